"""What the commands say: complaints on stderr, data on stdout or into a file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from magicbyte.errors import CorruptRecordError, TruncatedLogError


def complain(what: object) -> None:
    """Write one line to stderr."""
    if isinstance(what, TruncatedLogError):
        what = f"cut short: {what}"
    elif isinstance(what, CorruptRecordError):
        what = f"damage: {what}"
    click.echo(f"magicbyte: {what}", err=True)


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
def binary_output(path: str | None) -> Iterator[BinaryIO]:
    """Give stdout, flushed at the end, or the file at `path`, closed at the end, to write bytes to."""
    if path is None or path == "-":
        stream = sys.stdout.buffer
        try:
            yield stream
        finally:
            stream.flush()
    else:
        with Path(path).open("wb") as file:
            yield file
