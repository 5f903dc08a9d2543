"""What the commands say: complaints on stderr, data on stdout or into a file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import click

from magicbyte.cli.progress import hide_bar
from magicbyte.errors import CorruptRecordError, LogDirectoryError, TruncatedLogError


def complain(what: object) -> None:
    """Write one line to stderr, where that can be written."""
    if isinstance(what, TruncatedLogError):
        what = f"cut short: {what}"
    elif isinstance(what, CorruptRecordError):
        what = f"damage: {what}"
    hide_bar()
    with contextlib.suppress(OSError):
        click.echo(f"magicbyte: {what}", err=True)


def say(text: str) -> None:
    """Write lines to stdout; a progress bar on the same terminal makes room for them."""
    hide_bar()
    click.echo(text)


class Damage:
    """What to do about damage in a log: `policy` stop raises the first, skip reports each and goes on behind it."""

    def __init__(self, policy: str) -> None:
        self.stops = policy == "stop"
        self.found = 0

    def __call__(self, error: CorruptRecordError) -> None:
        """Take one damage: a DamageHandler."""
        self.found += 1
        if self.stops:
            raise error
        complain(error)

    def exit(self) -> None:
        """End the command with status 1 if there was any damage."""
        if self.found:
            click.get_current_context().exit(1)


@contextlib.contextmanager
def binary_output(path: Path | None, inputs: Iterable[str] = ()) -> Iterator[BinaryIO]:
    """Give stdout, flushed at the end, or the file at `path` (`-`: stdout), to write bytes to.

    The file gets its name at the end, whole; damage of an input ends it in front of the damage. Raises
    LogDirectoryError, before anything is written, for a file that is one of `inputs` or lies in one.
    """
    from magicbyte.log.outputs import refuse_overlap, whole_file

    if path is None or str(path) == "-":
        _refuse_own_input(inputs)
        stream = sys.stdout.buffer
        try:
            yield stream
        finally:
            stream.flush()
    else:
        refuse_overlap(path, inputs)
        with whole_file(path, keeps=(CorruptRecordError,)) as file:
            yield file


def _refuse_own_input(inputs: Iterable[str]) -> None:
    """Raise LogDirectoryError where the shell sent stdout into an input, as with `>>`: its end would never be met."""
    with contextlib.suppress(OSError, ValueError):  # a stream of a test, which has no descriptor
        own = os.fstat(sys.stdout.fileno())
        for each in inputs:
            if Path(each).is_file() and os.path.samestat(own, Path(each).stat()):
                raise LogDirectoryError(f"stdout: expected a place outside of {each}, which is only read")
