"""The output of the commands: messages on stderr, data on stdout or into a file.

All output goes through this module, which escapes text from brokers and files, so that it cannot control a terminal,
and hides passwords of URLs in messages: see printable.py. A value printed as one line stays one line. No other module
of the commands calls `click.echo`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import click

from magicbyte.cli.progress import hide_bar
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, MagicbyteError, TruncatedLogError
from magicbyte.engine.printable import printable, printable_text, without_passwords

if TYPE_CHECKING:
    from magicbyte.engine.log.files.missing import Missing

CANNOT_WRITE = "cannot write"  # how log/files/outputs.py begins the reason
_STYLE = re.compile("(\x1b\\[[0-9;]*m)")


class Colored(str):
    """A line that `say` escapes, and then colors."""

    __slots__ = ("color",)
    color: str


def good(line: str) -> str:
    """Return a good verdict, in green."""
    return _colored(line, "green")


def doubtful(line: str) -> str:
    """Return a line that needs attention, in yellow."""
    return _colored(line, "yellow")


def bad(line: str) -> str:
    """Return a line about damage, loss or refusal, in red."""
    return _colored(line, "red")


def _colored(line: str, color: str) -> str:
    found = Colored(line)
    found.color = color
    return found


def complain(what: object, *, color: bool | None = None) -> None:
    """Write an error to stderr, on one line or several, and ignore a closed stderr.

    `color`: whether in colors; None depends on --color, the environment and the terminal.
    """
    if isinstance(what, TruncatedLogError):
        what = f"cut short: {what}"
    elif isinstance(what, CorruptRecordError):
        what = f"damage: {what}"
    first, *others = what.lines() if isinstance(what, MagicbyteError) else [str(what)]
    with contextlib.suppress(OSError):
        hide_bar()
        name = click.style("magicbyte:", fg="yellow" if first.startswith("warning") else "red", bold=True)
        click.echo("\n".join([f"{name} {_safe(first)}", *map(_safe, others)]), err=True, color=color)


def os_error_text(error: OSError) -> str:
    """Return an error of the system as text: the file, and what is wrong with it."""
    if error.filename is None or error.strerror is None:
        return str(error)
    name, reason = os.fsdecode(error.filename), error.strerror
    if reason.startswith(CANNOT_WRITE):
        return f"{CANNOT_WRITE} {name}: {reason.removeprefix(CANNOT_WRITE).lstrip(' :')}"
    return f"{name}: {'no such file or folder' if isinstance(error, FileNotFoundError) else reason}"


def say(*lines: str, err: bool = False) -> None:
    """Write each of `lines` as one line, to stdout or, with `err`, to stderr. Hides a progress bar meanwhile."""
    if lines:
        hide_bar()
        click.echo("\n".join(map(_shown, lines)), err=err)


def ask(question: str, *, err: bool = False) -> None:
    """Print a question to which yes or no is the answer, on stderr with `err`, and stay on its line."""
    click.echo(f"{_safe(question)} [y/N]: ", nl=False, err=err)


def pause(prompt: str) -> str:
    """Prompt for a line of stdin, then erase the prompt. Return the line, empty at the end of the input."""
    click.echo(click.style(prompt, dim=True), nl=False)
    sys.stdout.flush()
    answer = sys.stdin.readline()
    click.echo("\x1b[A\x1b[K", nl=False, color=True)  # up to the prompt's line, and clear it
    return answer


def _safe(text: str) -> str:
    return printable(without_passwords(text))


def _shown(line: str) -> str:
    text = _safe(line)
    return click.style(text, fg=line.color) if isinstance(line, Colored) else text


def say_text(text: str) -> None:
    """Write trusted text of several lines."""
    hide_bar()
    click.echo(printable_text(text))


def say_json(found: Any, *, indent: int | None = 2) -> None:
    """Write a JSON document. All control characters in it are escaped, and passwords of URLs are hidden."""
    hide_bar()
    click.echo(json.dumps(_without_passwords(found), indent=indent).replace("\x7f", "\\u007f"))


_CONTENTS: Final = frozenset({"key", "value", "headers"})
"""Members with contents of records and values of settings, which stay as they are."""


def _without_passwords(found: Any) -> Any:
    match found:
        case str():
            return without_passwords(found)
        case dict():
            return {
                without_passwords(name) if isinstance(name, str) else name: content
                if name in _CONTENTS
                else _without_passwords(content)
                for name, content in found.items()
            }
        case list() | tuple():
            return [_without_passwords(each) for each in found]
    return found


def prints_in_color() -> bool:
    """Return whether stdout keeps colors."""
    context = click.get_current_context(silent=True)
    return sys.stdout.isatty() if context is None or context.color is None else context.color


def say_styled(line: str) -> None:
    """Write one line with colors of `click.style`. The untrusted text in it must have been escaped by `printable`."""
    click.echo("".join(each if _STYLE.fullmatch(each) else printable(each) for each in _STYLE.split(line)))


class DamagePolicy:
    """The reaction to damage in a log.

    `policy`: stop raises the first one, skip reports each and continues after it.
    """

    def __init__(self, policy: str) -> None:
        self.stops = policy == "stop"
        self.found = 0

    def __call__(self, error: CorruptRecordError) -> None:
        """Handle damage: a DamageHandler."""
        self.found += 1
        if self.stops:
            raise error
        complain(error)

    def missing(self, missing: Iterable[Missing]) -> None:
        """Count what a log directory proves to be missing as damage.

        Not if it held no records, or compaction can have removed them; and not the end of a log, which a copy from a
        running broker misses as well: `verify` calls that an error.
        """
        from magicbyte.engine.log.files.missing import END_OF_LOG

        self.found += sum(each.is_loss and each.what != END_OF_LOG for each in missing)

    def exit(self) -> None:
        """Exit with status 1 if there was any damage."""
        if self.found:
            click.get_current_context().exit(1)


class _Terminal:
    """A stream of bytes to a terminal, with unprintable characters escaped."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, data: bytes | memoryview) -> int:
        """Write whole lines, or whole values."""
        self._stream.write(printable_text(bytes(data).decode(errors="backslashreplace")).encode())
        return len(data)

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()


@contextlib.contextmanager
def binary_output(path: Path | None, inputs: Iterable[str] = ()) -> Iterator[BinaryIO]:
    """Yield stdout, flushed at the end, or the file at `path` (`-`: stdout), for bytes.

    The file is renamed to its name at the end. Damage of an input ends it at the damage. Raises LogDirectoryError,
    before anything is written, for a file that is one of `inputs` or inside of one.
    """
    from magicbyte.engine.log.files.outputs import refuse_overlap, whole_file

    if path is None or str(path) == "-":
        _refuse_own_input(inputs)
        stream = cast("BinaryIO", _Terminal(sys.stdout.buffer)) if sys.stdout.isatty() else sys.stdout.buffer
        try:
            yield stream
        finally:
            stream.flush()
    else:
        refuse_overlap(path, inputs)
        with whole_file(path, keeps=(CorruptRecordError,)) as file:
            yield file


def _refuse_own_input(inputs: Iterable[str]) -> None:
    """Raise LogDirectoryError if stdout is redirected into an input, as with `>>`, which would grow without end."""
    with contextlib.suppress(OSError, ValueError):  # tests replace stdout by a stream without a descriptor
        own = os.fstat(sys.stdout.fileno())
        for each in inputs:
            if Path(each).is_file() and os.path.samestat(own, Path(each).stat()):
                raise LogDirectoryError(f"stdout: expected a path outside of {each}, which is an input")
