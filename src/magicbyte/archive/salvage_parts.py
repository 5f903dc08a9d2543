"""Salvage of one partition by several workers, each some of its segments.

A segment is judged by its own bytes and by the base offset of the next one, so no part has to know another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.archive.parts import WrittenSegment, written_in
from magicbyte.archive.salvage import SalvageOptions, SalvageReport, log_starts, salvage_segments, salvage_writer
from magicbyte.archive.writer import LogDirectoryWriter
from magicbyte.log.files.partitions import meta_properties

if TYPE_CHECKING:
    from magicbyte.log.files.directory import PartitionDirectory, SegmentFiles
    from magicbyte.ports import TopicPartition


class SalvagedPart(NamedTuple):
    """What is sound in some neighbouring segments, for `join_salvaged`. May be pickled."""

    segments: list[WrittenSegment]
    report: SalvageReport


def salvage_part(
    part: PartitionDirectory,
    following: SegmentFiles | None,
    name: TopicPartition,
    out: Path,
    options: SalvageOptions,
) -> SalvagedPart:
    """Salvage some neighbouring segments into a folder of their own. Raises as `salvage_logs` does.

    `following` is the segment behind them, None at the end of the partition.
    """
    whole = part if following is None else replace(part, segments=(*part.segments, following))
    directory = LogDirectoryWriter(out, options.rules)
    with salvage_writer(part, name, directory, options, is_part=True) as to:
        report = salvage_segments(whole, part.segments, to, options)
        folder = to.finish().folder
    segments = written_in(folder, options.rules)
    if following is not None and not report.bytes:  # of a part without a sound entry there is nothing in the log
        segments = []
    return SalvagedPart(segments, report)


def join_salvaged(
    source: PartitionDirectory,
    name: TopicPartition,
    out: Path,
    options: SalvageOptions,
    parts: Sequence[SalvagedPart],
) -> SalvageReport:
    """Make the new log directory `out` of all parts of a partition, in order, as `salvage_logs` makes it.

    No part has offsets of the next one. The parts must be on the same file system.
    """
    report = SalvageReport(source.path)
    directory = LogDirectoryWriter(out, options.rules)
    with salvage_writer(source, name, directory, options) as to:
        for part in parts:
            _add(report, part.report)
            for segment in part.segments:
                to.adopt(segment)
        report.ended_transactions = to.finish().ended_transactions
    directory.finish(meta_properties([source]), log_starts({name: source}))
    return report


def _add(report: SalvageReport, later: SalvageReport) -> None:
    """Add the result of the segments behind those of `report`."""
    for name in ("segments", "entries", "bytes", "moved", "ended_transactions", "lost", "aside"):
        setattr(report, name, getattr(report, name) + getattr(later, name))
