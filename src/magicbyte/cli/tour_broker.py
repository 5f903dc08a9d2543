"""Brokers of the tour: processes of `magicbyte serve`, as if started in another terminal."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from magicbyte.cli.tour_stage import TourStage

_LISTENING: Final = re.compile(r"^listening on (\S+) .*\n", re.MULTILINE)
_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
_MOST_READ: Final = 64 << 10  # bytes of its output
_MOST_SHOWN: Final = 2000  # characters of a failed start


@contextmanager
def serving(stage: TourStage, *arguments: str) -> Iterator[str]:
    """Run `magicbyte serve` on a free port inside the block, show its start, and yield its address.

    Its output goes to a file, because a broker waits at a full pipe. Raises ClickException if it does not start.
    """
    given = ("serve", *arguments, "--listen", "127.0.0.1:0")
    stage.command(f"magicbyte {shlex.join(given)} &")
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            [sys.executable, "-m", "magicbyte", *given],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            line, address = _started(process, output)
            stage.lines([line])
            yield address
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _started(process: subprocess.Popen[bytes], output: IO[bytes]) -> tuple[str, str]:
    """Return the line with which a broker starts, and its address. Raises ClickException, with its output."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        has_ended = process.poll() is not None
        text = os.pread(output.fileno(), _MOST_READ, 0).decode(errors="backslashreplace")  # the broker's position stays
        if found := _LISTENING.search(text):
            return found[0].rstrip(), found[1]
        if has_ended or time.monotonic() > deadline:
            why = text.strip()[-_MOST_SHOWN:] or f"it printed nothing in {_START_SECONDS:.0f} s"
            raise click.ClickException(f"the broker did not start: {why}")
        time.sleep(_POLL_SECONDS)
