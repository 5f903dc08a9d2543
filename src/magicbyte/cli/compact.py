"""`magicbyte compact`: compact a stopped broker's logs, as its log cleaner would."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from magicbyte.access.clock import SystemClock
from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.changing import change_options, check_mode, copies
from magicbyte.cli.gaps import complain_of_gaps, refuse_change_of_incomplete
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import many, size_text
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError

if TYPE_CHECKING:
    from magicbyte.engine.log.cleaning.compaction_sets import Dropped
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.tools.offline.compact import Compacted, CompactOptions


@click.command(
    cls=Command,
    examples=(
        "magicbyte compact /var/kafka-logs/orders-0 --dry-run",
        "magicbyte compact /var/kafka-logs --topic orders --out compacted",
    ),
)
@options.paths_argument
@click.option("--topic", "topics", multiple=True, help="Compact this topic. Can be given several times.")
@change_options
@click.option("--drop-unkeyed", is_flag=True,
              help="Remove records without a key from logs that were never compacted.")  # fmt: skip
@click.option("--from-start", is_flag=True, help="Compact from the log start, not from the cleaner's checkpoint.")
@click.option("--merge-sets/--no-merge-sets", default=None,
              help="Merge adjacent similar sets.  [default: in the enriched dialect]")  # fmt: skip
@click.option("--delete-retention", callback=options.duration, default="1d", show_default=True, metavar="TIME",
              help="How long tombstones and markers are kept: delete.retention.ms.")  # fmt: skip
@click.option("--min-lag", callback=options.duration, default="0s", show_default=True, metavar="TIME",
              help="Keep younger records: min.compaction.lag.ms.")  # fmt: skip
@click.option("--segment-bytes", callback=options.size, default="1GiB", metavar="SIZE",
              help="Join segments up to this size.  [default: 1 GiB]")  # fmt: skip
@click.option("--max-message-bytes", callback=options.size, default="1048588", show_default=True, metavar="SIZE",
              help="Merge sets up to this size.")  # fmt: skip
@click.option("--dedupe-buffer", callback=options.size, default="128MiB", show_default=True, metavar="SIZE",
              help="Memory for keys, 27 bytes each; several rounds if it is too small.")  # fmt: skip
@click.option("--kafka", "version", metavar="VERSION",
              help="Compact as this Kafka version does.  [default: that of the index files]")  # fmt: skip
@options.format_option
@options.as_option
def compact(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    out: Path | None,
    in_place: bool,
    dry_run: bool,
    accept_missing: bool,
    drop_unkeyed: bool,
    from_start: bool,
    merge_sets: bool | None,
    delete_retention: int,
    min_lag: int,
    segment_bytes: int,
    max_message_bytes: int,
    dedupe_buffer: int,
    version: str | None,
    form: str,
    as_: TopicPartition | None,
) -> None:
    """Keep only the latest record of each key of a stopped broker's logs: in new ones, or --in-place.

    Records without a key are removed; from a log that was never compacted only with --drop-unkeyed. In a log directory,
    only partitions that its cleaner has compacted before, or that --topic names, are compacted; a partition folder
    always is. Offsets do not change, and the last segment is not compacted. The log directory is locked.

    Exit status: 0 done, 1 a log is damaged and was not changed, 2 wrong use, or the broker runs or was killed.
    """
    from magicbyte.engine.log.cleaning.compaction import CompactionConfig
    from magicbyte.engine.log.files.directory import survey
    from magicbyte.engine.log.files.index_writer import IndexRules
    from magicbyte.engine.log.files.left_out import in_use
    from magicbyte.engine.log.files.partitions import choose
    from magicbyte.tools.offline.compact import CompactOptions, compact_logs

    check_mode(out=out, in_place=in_place, dry_run=dry_run)
    logs = survey(paths, as_, needs_partition=True)
    chosen = _meant(choose(in_use(logs.partitions), topics), paths, topics)
    gaps = complain_of_gaps(logs, topics)
    if in_place and not dry_run and not accept_missing:
        refuse_change_of_incomplete(gaps, chosen)
    config = CompactionConfig(
        dedupe_buffer_bytes=dedupe_buffer,
        delete_retention_ms=delete_retention,
        min_lag_ms=min_lag,
        max_message_bytes=max_message_bytes,
        merge_sets=merge_sets,
    )
    how = CompactOptions(
        now_ms=SystemClock().now_ms(),
        secret=os.urandom(16),
        config=config,
        segment_bytes=segment_bytes,
        from_start=from_start,
        rules=None if version is None else IndexRules.of(version),
    )
    if not dry_run and not drop_unkeyed:
        _refuse_unkeyed(chosen, how)
    done: list[Compacted] = []
    total = sum(each.size for each in chosen)
    with copies(chosen, out, dry_run=dry_run) as copied, progress(3 * total) as advance:
        partitions = chosen if copied is None else copied.partitions
        for compacted in compact_logs(partitions, how, dry_run=dry_run, progress=advance, note=complain):
            if copied is not None:
                compacted.path = copied.final(compacted.path)
                compacted.error = compacted.error and copied.relocate(compacted.error)
            done.append(compacted)
            if form == "text":
                say(*_lines(compacted, dry_run=dry_run))
            if compacted.error is not None:
                complain(compacted.error)
    saved = sum(each.size - each.size_after for each in done)
    if form == "json":
        found = {"dryRun": dry_run, "partitions": [each.to_json() for each in done], "savedBytes": saved}
        say_json(found)
    else:
        say(f"{many(len(done), 'partition')}: {size_text(saved)} {'would go' if dry_run else 'gone'}")
    if any(each.error is not None for each in done):
        click.get_current_context().exit(1)


def _meant(
    partitions: list[PartitionDirectory], paths: tuple[str, ...], topics: tuple[str, ...]
) -> list[PartitionDirectory]:
    """Return the partitions to compact; without `topics`, those named by `paths` or compacted before."""
    from magicbyte.tools.offline.compact import compacted_before

    if topics:
        return partitions
    named = {Path(path).resolve() for path in paths}
    known = {each.path for each in compacted_before(partitions)}
    chosen = [each for each in partitions if each.path in known or Path(each.path).resolve() in named]
    if not chosen:
        raise LogDirectoryError(
            f"{paths[0]}: no partition was compacted before: expected --topic, or the folder of a partition"
        )
    return chosen


def _refuse_unkeyed(partitions: list[PartitionDirectory], how: CompactOptions) -> None:
    """Raise LogDirectoryError for a log that was never compacted and has records without keys."""
    from magicbyte.tools.offline.compact import compacted_before, unkeyed

    known = {each.path for each in compacted_before(partitions)}
    for partition in partitions:
        if partition.path in known:
            continue
        with contextlib.suppress(CorruptRecordError):  # a damaged log is left unchanged, and reported
            if count := unkeyed(partition, how):
                raise LogDirectoryError(
                    f"{partition.name}: was never compacted, and {many(count, 'record')} without a key would be removed"
                    ": --drop-unkeyed removes them, --dry-run shows what else"
                )


_REASONS = {
    "superseded": "superseded",
    "tombstones": "tombstones due",
    "without_key": "without a key",
    "aborted": "aborted",
    "markers": "transaction markers",
}


def _lines(done: Compacted, *, dry_run: bool) -> list[str]:
    if done.error is not None:
        return [f"{done.name}: damaged, not compacted"]
    if not done.rounds:
        return [f"{done.name}: nothing to compact below offset {done.first_uncleanable}"]
    verb = "would go" if dry_run else "gone"
    lines = [
        f"{done.name}: {size_text(done.size - done.size_after)} of {size_text(done.size)} {verb}; "
        f"clean up to offset {done.rounds[-1].end_offset}"
    ]
    for report in done.rounds:
        went = ", ".join(f"{count} {why}" for name, why in _REASONS.items() if (count := getattr(report.dropped, name)))
        before = sum(map(len, report.groups))
        lines.append(
            f"  offsets {report.first_dirty} to {report.end_offset - 1}: {many(report.records, 'record')} read, "
            f"{many(report.keys, 'key')}; {verb}: {went or 'nothing'}"
        )
        lines.append(f"  {many(before, 'segment')} to {len(report.groups)}; sets {_sets(report.dropped)}")
    return lines


def _sets(dropped: Dropped) -> str:
    return (
        f"copied: {dropped.sets_copied}, rewritten: {dropped.sets_rewritten}, emptied: {dropped.sets_emptied}, "
        f"dropped: {dropped.sets_dropped}, merged into others: {dropped.sets_merged}"
    )
