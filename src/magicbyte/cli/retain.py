"""`magicbyte retain`: delete old records of a stopped broker's logs, by limits on the command line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from magicbyte.access.clock import SystemClock
from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.changing import change_options, check_mode, copies
from magicbyte.cli.gaps import complain_of_gaps, refuse_change_of_incomplete
from magicbyte.cli.output import complain, doubtful, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import many, size_text
from magicbyte.engine.errors import CorruptRecordError

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.tools.offline.retain import Retained


_BYTES = re.compile(r"([0-9]{1,15})\s*(|k|m|g|t)(?:i?b)?", re.IGNORECASE)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def _bytes(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Option callback: return the bytes of a size such as 10GiB or 500000. Units are powers of 1024."""
    found = None if value is None else _BYTES.fullmatch(value)
    if value is not None and found is None:
        raise click.BadParameter(f"{value!r}: expected bytes such as 1073741824 or 10GiB")
    return None if found is None else int(found[1]) << _SHIFTS[found[2].lower()]


@click.command(
    cls=Command,
    examples=(
        "magicbyte retain /var/kafka-logs --older-than 30d --dry-run",
        "magicbyte retain /var/kafka-logs --older-than 30d --out newer",
    ),
)
@options.paths_argument
@click.option("--older-than", "retention_ms", callback=options.duration, metavar="TIME",
              help="Remove older records: 7d, 12h, 30m, 45s.")  # fmt: skip
@click.option("--bytes", "retention_bytes", callback=_bytes, metavar="SIZE",
              help="Remove old segments while at least SIZE remains.")  # fmt: skip
@click.option("--before-offset", type=click.IntRange(0), metavar="N",
              help="Set the log start offset of the only partition.")  # fmt: skip
@click.option("--head-truncation", is_flag=True,
              help="Also cut the first remaining segment, at the first remaining batch.")  # fmt: skip
@change_options
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@click.option("--kafka", "version", metavar="VERSION",
              help="Write index files as this Kafka version does.  [default: that of the existing ones]")  # fmt: skip
@options.format_option
@options.as_option
def retain(
    paths: tuple[str, ...],
    retention_ms: int | None,
    retention_bytes: int | None,
    before_offset: int | None,
    head_truncation: bool,
    out: Path | None,
    in_place: bool,
    dry_run: bool,
    accept_missing: bool,
    topics: tuple[str, ...],
    version: str | None,
    form: str,
    as_: TopicPartition | None,
) -> None:
    """Remove old records from a stopped broker's logs, as its retention would: in new ones, or --in-place.

    Whole segments are removed, from the first on, while every record in them is beyond a limit; ages are those of the
    records' timestamps. Records above the high watermark are kept. The log directory is locked.

    Exit status: 0 done, 1 a log is damaged, 2 wrong use, or the broker runs or was killed.
    """
    from magicbyte.engine.log.files.directory import survey
    from magicbyte.engine.log.files.index_writer import IndexRules
    from magicbyte.engine.log.files.left_out import in_use
    from magicbyte.engine.log.files.partitions import choose
    from magicbyte.tools.offline.retain import RetentionLimits, retain_logs

    if retention_ms is None and retention_bytes is None and before_offset is None:
        raise click.UsageError("expected --older-than, --bytes or --before-offset")
    check_mode(out=out, in_place=in_place, dry_run=dry_run)
    logs = survey(paths, as_, needs_partition=True)
    partitions = choose(in_use(logs.partitions), topics)
    left_out = [] if topics else _kept_by_key(partitions, paths)
    partitions = [each for each in partitions if each not in left_out]
    gaps = complain_of_gaps(logs, topics)
    if in_place and not dry_run and not accept_missing:
        refuse_change_of_incomplete(gaps, partitions)
    if before_offset is not None and len(partitions) != 1:
        raise click.UsageError(f"--before-offset: expected one partition, found {len(partitions)}")
    limits = RetentionLimits(
        now_ms=SystemClock().now_ms(),
        retention_ms=-1 if retention_ms is None else retention_ms,
        retention_bytes=-1 if retention_bytes is None else retention_bytes,
        before_offset=before_offset,
        head_truncation=head_truncation,
        rules=None if version is None else IndexRules.of(version),
    )
    done: list[Retained] = []
    total = sum(each.size for each in partitions)
    with copies(partitions, out, dry_run=dry_run) as copied, progress(total) as advance:
        try:
            for each in retain_logs(
                partitions if copied is None else copied.partitions, limits, dry_run=dry_run, progress=advance,
                note=complain,
            ):  # fmt: skip
                done.append(each if copied is None else replace(each, path=copied.final(each.path)))
                if form == "text":
                    say(*_lines(each, dry_run=dry_run))
        except CorruptRecordError as error:
            raise error if copied is None else copied.relocate(error) from None
    removed = sum(each.removed_bytes for each in done)
    if form == "json":
        report = {
            "dryRun": dry_run,
            "partitions": [each.to_json() for each in done],
            "removedBytes": removed,
            "leftOut": [each.name for each in left_out],
        }
        say_json(report)
    else:
        for partition in left_out:
            say(
                doubtful(
                    f"{partition.name}: left out, because its topic is compacted, not deleted: --topic includes it"
                )
            )
        verb = "would go" if dry_run else "gone"
        say(f"{many(len(done), 'partition')}: {size_text(removed)} {verb}")


def _kept_by_key(partitions: list[PartitionDirectory], paths: tuple[str, ...]) -> list[PartitionDirectory]:
    """Return the partitions of compacted topics, except those whose own folder is named."""
    from magicbyte.tools.offline.compact import kept_by_key

    named = {Path(path).resolve() for path in paths}
    return [each for each in kept_by_key(partitions) if Path(each.path).resolve() not in named]


def _lines(done: Retained, *, dry_run: bool) -> list[str]:
    verb = "would go" if dry_run else "gone"
    lines = [
        f"{done.name}: {size_text(done.removed_bytes)} of {size_text(done.size)} {verb}; "
        f"offsets {done.log_start_offset} to {done.log_end_offset - 1} stay"
        if done.log_end_offset > done.log_start_offset
        else f"{done.name}: {size_text(done.removed_bytes)} of {size_text(done.size)} {verb}; nothing stays"
    ]
    for each in done.removed:
        what = "head of segment" if each.head else "segment"
        lines.append(
            f"  {what} {each.base_offset:020}: offsets {each.base_offset} to {each.end_offset - 1}, "
            f"{size_text(each.size)}: {each.reason.value}"
        )
    return lines
