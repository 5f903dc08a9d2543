"""Shared by commands that remove records or segments: they write a copy, or with --in-place change the logs."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from magicbyte.cli.options import OutputPath

if TYPE_CHECKING:
    from magicbyte.cli.options import F
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.tools.offline.copies import CopiedLogs


def change_options(command: F) -> F:
    """Add --out, --in-place, --dry-run and --accept-missing: `out`, `in_place`, `dry_run` and `accept_missing`."""
    for option in (
        click.option("--accept-missing", is_flag=True,
                     help="With --in-place, also change logs from which records may be missing."),
        click.option("--dry-run", is_flag=True, help="Show what would be removed, and write nothing."),
        click.option("--in-place", is_flag=True, help="Change the logs themselves: removed records are gone."),
        click.option("--out", type=OutputPath(folder=True), metavar="DIR",
                     help="A new log directory for the remaining records; the logs themselves are not changed."),
    ):  # fmt: skip
        command = option(command)
    return command


def check_mode(*, out: Path | None, in_place: bool, dry_run: bool) -> None:
    """Raise UsageError unless exactly one destination is given."""
    if out is not None and in_place:
        raise click.UsageError("--out and --in-place: expected one of them")
    if out is None and not in_place and not dry_run:
        raise click.UsageError(
            "expected --out DIR for the remaining records, --in-place to change the logs themselves, or --dry-run"
        )


@contextlib.contextmanager
def copies(
    partitions: Collection[PartitionDirectory], out: Path | None, *, dry_run: bool
) -> Iterator[CopiedLogs | None]:
    """Yield copies of the partitions if there is an output, else None."""
    if out is None or dry_run:
        yield None
        return
    from magicbyte.tools.offline.copies import copied_logs

    with copied_logs(partitions, out) as found:
        yield found
