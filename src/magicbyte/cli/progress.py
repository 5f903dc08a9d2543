"""How far a command is, in a line on stderr: on a terminal only, and only where there is something to wait for."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, TextIO

WORTH_SHOWING: Final = 64 << 20  # bytes
_EACH_SECONDS: Final = 0.1
_WIDEST: Final = 30  # characters of the bar
_ERASE: Final = "\r\x1b[K"


class Bar:
    """A line with a bar, bytes, rate and time left, written anew at most every 0.1 s while something is done."""

    def __init__(self, total: int, stream: TextIO, clock: Callable[[], float] = time.monotonic, name: str = "") -> None:
        self._total, self._stream, self._clock = total, stream, clock
        self._name = f"{name}  " * bool(name)
        self._begun = self._drawn = clock()
        self._done = 0

    def advance(self, size: int) -> None:
        """Take the bytes just done."""
        self._done = min(self._done + size, self._total)
        now = self._clock()
        if now - self._drawn >= _EACH_SECONDS:
            self._drawn = now
            self._write(f"{_ERASE}{self._line(now)}")

    def hide(self) -> None:
        """Remove the line; the next `advance` that is due brings it back."""
        self._write(_ERASE)

    def _line(self, now: float) -> str:
        from magicbyte.cli.render import size_text  # it loads numpy

        rate = self._done / (now - self._begun)
        left = "" if not rate else f"  {_time_text((self._total - self._done) / rate)} left"
        label = f"{self._name}{size_text(self._done)} of {size_text(self._total)}  {size_text(int(rate))}/s{left}"
        columns = shutil.get_terminal_size((80, 24)).columns - 1  # a line that is full would wrap
        width = min(_WIDEST, columns - len(label) - 2)
        filled = width * self._done // self._total
        return f"{'━' * filled}{'╌' * (width - filled)}  {label}" if width > 0 else label[:columns]

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, UnicodeEncodeError):  # nothing fails because its progress cannot be shown
            self._stream.write(text)
            self._stream.flush()


_shown: list[Bar] = []


@contextlib.contextmanager
def progress(total: int, *, streams: bool = False, name: str = "") -> Iterator[Callable[[int], None]]:
    """Give a function that takes the bytes just done, of `total`.

    `name`: of the step, shown in front. `streams`: data flows to stdout meanwhile; no bar then, if that is a terminal
    as well. Single lines, written by `output.say` and `output.complain`, go between two states of the bar.
    """
    if total < WORTH_SHOWING or not _is_terminal(sys.stderr) or (streams and _is_terminal(sys.stdout)):
        yield lambda _: None
        return
    bar = Bar(total, sys.stderr, name=name)
    _shown.append(bar)
    try:
        yield bar.advance
    finally:
        _shown.remove(bar)
        bar.hide()


def hide_bar() -> None:
    """Remove the bar from the terminal until the next `advance`, for a line that is written now."""
    for bar in _shown:
        bar.hide()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _time_text(seconds: float) -> str:
    minutes, whole = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{whole:02}"
