"""Brokers of the tour: processes of `magicbyte serve`, as if started in another terminal."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from magicbyte.cli.tour_stage import TourStage

_LISTENING: Final = re.compile(r"listening on (\S+) ")
_END_SECONDS: Final = 10.0


@contextmanager
def serving(stage: TourStage, *arguments: str) -> Iterator[str]:
    """Run `magicbyte serve` on a free port inside the block, show its start, and yield its address.

    Raises ClickException if it does not start.
    """
    given = ("serve", *arguments, "--listen", "127.0.0.1:0")
    stage.command(f"magicbyte {shlex.join(given)} &")
    with subprocess.Popen(
        [sys.executable, "-m", "magicbyte", *given],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
    ) as process:
        try:
            assert process.stdout is not None, "it is piped"
            line = process.stdout.readline()
            found = _LISTENING.match(line)
            if found is None:
                _, complaints = process.communicate(timeout=_END_SECONDS)
                raise click.ClickException(f"the broker did not start: {complaints.strip()}")
            stage.lines([line.rstrip()])
            yield found[1]
        finally:
            process.terminate()
            try:
                process.communicate(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
