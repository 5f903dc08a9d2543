"""A progress bar on stderr, if that is a terminal and the work is large enough."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, TextIO

WORTH_SHOWING: Final = 64 << 20  # bytes
EACH_SECONDS: Final = 0.1
_WIDEST: Final = 30  # characters of the bar
_ERASE: Final = "\r\x1b[K"


class Bar:
    """A line with a bar, bytes, rate and time left, redrawn by `advance` at most every 0.1 s."""

    def __init__(self, total: int, stream: TextIO, clock: Callable[[], float] = time.monotonic, name: str = "") -> None:
        self._total, self._stream, self._clock = total, stream, clock
        self._name = f"{name}  " * bool(name)
        self._begun = self._drawn = clock()
        self._done = 0

    def advance(self, size: int) -> None:
        """Add the bytes just done."""
        self._done = min(self._done + size, self._total)
        now = self._clock()
        if now - self._drawn >= EACH_SECONDS:
            self._drawn = now
            self._write(f"{_ERASE}{self._line(now)}")

    def hide(self) -> None:
        """Remove the line until a later `advance`."""
        self._write(_ERASE)

    def _line(self, now: float) -> str:
        from magicbyte.cli.render import size_text  # it loads numpy

        rate = self._done / (now - self._begun)
        left = "" if not rate else f"  {_time_text((self._total - self._done) / rate)} left"
        label = f"{self._name}{size_text(self._done)} of {size_text(self._total)}  {size_text(int(rate))}/s{left}"
        columns = shutil.get_terminal_size((80, 24)).columns - 1  # a full line would wrap
        width = min(_WIDEST, columns - len(label) - 2)
        filled = width * self._done // self._total
        return f"{'━' * filled}{'╌' * (width - filled)}  {label}" if width > 0 else label[:columns]

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, UnicodeEncodeError):  # an error in the display must not fail the command
            self._stream.write(text)
            self._stream.flush()


_shown: list[Bar] = []


@contextlib.contextmanager
def progress(total: int, *, streams: bool = False, name: str = "") -> Iterator[Callable[[int], None]]:
    """Yield a callback for the bytes just done, of `total`.

    `name`: of the step, shown before the bar. `streams`: data flows to stdout meanwhile, so there is no bar if that is
    a terminal, too. `output.say` and `output.complain` hide the bar while they write a line.
    """
    if total < WORTH_SHOWING or not is_terminal(sys.stderr) or (streams and is_terminal(sys.stdout)):
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
    """Remove the bar from the terminal until the next `advance`, before writing a line."""
    for bar in _shown:
        bar.hide()


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream leads to a terminal."""
    return stream is not None and stream.isatty()


def _time_text(seconds: float) -> str:
    minutes, whole = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{whole:02}"
