"""Salvage one partition with several workers, each some of its segments.

A segment is judged by its own bytes and by the base offset of the next segment, so parts are independent. But where a
segment belongs whose entries lie outside of its name is only known together with all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.log.files.partitions import meta_properties
from magicbyte.tools.offline.parts import WrittenSegment, written_in
from magicbyte.tools.offline.salvage import SalvageOptions, SalvageReport, log_starts, salvage_segments, salvage_writer
from magicbyte.tools.offline.writer import LogDirectoryWriter

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory, SegmentFiles
    from magicbyte.engine.ports import TopicPartition


class SalvagedPart(NamedTuple):
    """The sound entries of some adjacent segments, for `join_salvaged`. Picklable."""

    segments: list[WrittenSegment]
    report: SalvageReport


def salvage_part(
    portion: PartitionDirectory,
    following: SegmentFiles | None,
    name: TopicPartition,
    out: Path,
    options: SalvageOptions,
) -> SalvagedPart:
    """Salvage some adjacent segments into a folder of their own. Raises as `salvage_logs` does.

    `following` is the segment after them, None at the end of the partition.
    """
    whole = portion if following is None else replace(portion, segments=(*portion.segments, following))
    directory = LogDirectoryWriter(out, options.rules)
    with salvage_writer(portion, name, directory, options, is_part=True) as to:
        report = salvage_segments(whole, portion.segments, to, options)
        folder = to.finish().folder
    segments = written_in(folder, options.rules)
    if following is not None and not report.bytes:  # a part without a sound entry adds nothing to the log
        segments = []
    return SalvagedPart(segments, report)


def join_salvaged(
    source: PartitionDirectory,
    name: TopicPartition,
    out: Path,
    options: SalvageOptions,
    parts: Sequence[SalvagedPart],
) -> SalvageReport:
    """Combine all parts of a partition, in order, into the new log directory `out`, as `salvage_logs` writes it.

    Parts do not overlap in offsets, and none has misnamed segments. The parts must be on the same file system as `out`.
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
    """Add the result of the segments after those of `report`."""
    for name in ("segments", "misnamed", "entries", "bytes", "moved", "ended_transactions", "lost", "aside"):
        setattr(report, name, getattr(report, name) + getattr(later, name))
