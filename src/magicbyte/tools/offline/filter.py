"""Remove records from a log by timestamp, offset and key. Offsets are kept: removed records leave gaps in them.

The log end offset is also kept. A set that loses no record is copied unchanged, one that loses all records is dropped,
and others are encoded again with the same codec and header. Transaction markers and other control records are kept
whatever the limits are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from magicbyte.engine.codecs import Codec
from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.files.partitions import log_start_offset, meta_properties
from magicbyte.engine.log.files.reader import MAX_OFFSET, read_chunks
from magicbyte.engine.records.batch import HEADER
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions, decode_entries
from magicbyte.engine.records.encode import DEFAULT_HEADER, BatchHeader, Format, RowWriter
from magicbyte.engine.records.extent import last_offsets
from magicbyte.engine.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    ENRICHED_CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Dialect,
    TimestampType,
)
from magicbyte.tools.offline.convert import last_epoch
from magicbyte.tools.offline.parts import WrittenSegment, written_in
from magicbyte.tools.offline.rebuild import recognise
from magicbyte.tools.offline.writer import LogDirectoryWriter, PartitionWriter

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.engine.records.columns import RecordColumns
    from magicbyte.engine.records.scan import BatchTable

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Select the records to keep: those within all limits. Timestamps in ms, from `since` to below `until`.

    Offsets from `first` to below `end`. `keys`: the key is one of these; `prefix`: the key starts with it. A record
    without a timestamp (all of v0) is outside every limit of time, and one without a key outside both limits of keys.
    """

    since: int | None = None
    until: int | None = None
    first: int = 0
    end: int = MAX_OFFSET
    keys: frozenset[bytes] | None = None
    prefix: bytes | None = None

    def mask(self, columns: RecordColumns) -> Array:
        """Return whether each record is kept. Shape: (n,) bool."""
        offset, time = np.asarray(columns.offset, np.int64), np.asarray(columns.timestamp, np.int64)
        matches: Array = (offset >= self.first) & (offset < self.end)
        if self.since is not None:
            matches &= time >= max(self.since, 0)
        if self.until is not None:
            matches &= (time < self.until) & (time >= 0)
        if self.keys is not None or self.prefix is not None:
            assert columns.key is not None
            matches &= np.fromiter(map(self._has_key, columns.key.cells()), np.bool_, len(columns))
        return matches

    def _has_key(self, key: bytes | None) -> bool:
        is_one = self.keys is None or key in self.keys
        return key is not None and is_one and (self.prefix is None or key.startswith(self.prefix))


@dataclass(slots=True)
class FilterReport:
    """Number of records read and kept, without control records, and of sets copied, rewritten and dropped."""

    records: int = 0
    kept: int = 0
    copied: int = 0
    rewritten: int = 0
    dropped: int = 0


def filter_partition(
    source: PartitionDirectory,
    name: TopicPartition,
    out: Path,
    wanted: RecordFilter,
    *,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
) -> FilterReport:
    """Write a new log directory `out` with the wanted records of one partition. Segments keep their base offsets.

    Checksums are verified. Raises CorruptRecordError for damage, OSError if `out` cannot be written.
    """
    report = FilterReport()
    directory = LogDirectoryWriter(out, recognise(source) or LATEST_RULES)
    with _writer(source, name, directory) as to:
        next_offset = _write(source, to, wanted, limit, report)
        if next_offset > to.end_offset:  # the last records were removed: their offsets must not be assigned again
            to.roll(next_offset)
        _finish(source, to)
    directory.finish(meta_properties([source]), {name: log_start_offset(source)})
    return report


class FilteredPart(NamedTuple):
    """Adjacent filtered segments, for `join_filtered`. `next_offset`: last offset of their source + 1, 0 if empty."""

    segments: list[WrittenSegment]
    report: FilterReport
    next_offset: int


def filter_part(
    portion: PartitionDirectory, name: TopicPartition, out: Path, wanted: RecordFilter, *, rules: IndexRules, limit: int
) -> FilteredPart:
    """Filter some adjacent segments as `filter_partition` does, into a folder of their own. Raises the same errors.

    `rules` are those of the index files of the whole partition.
    """
    report, alone = FilterReport(), replace(portion, texts={}, snapshots={})
    directory = LogDirectoryWriter(out, rules)
    with _writer(alone, name, directory, is_part=True) as to:
        next_offset = _write(alone, to, wanted, limit, report)
        folder = to.finish().folder
    return FilteredPart(written_in(folder, rules), report, next_offset)


def join_filtered(
    source: PartitionDirectory, name: TopicPartition, out: Path, parts: Sequence[FilteredPart], *, rules: IndexRules
) -> FilterReport:
    """Combine all parts of one partition, in order, into the new log directory `out`, as `filter_partition` writes it.

    Parts do not overlap in offsets. The parts must be on the same file system as `out`.
    """
    report, segments = FilterReport(), [segment for part in parts for segment in part.segments]
    for part in parts:
        for each in fields(FilterReport):
            setattr(report, each.name, getattr(report, each.name) + getattr(part.report, each.name))
    next_offset = next((part.next_offset for part in reversed(parts) if part.next_offset), 0)
    # A last segment that lost all its records is replaced by one that begins after them.
    is_given_up = not segments[-1].size and next_offset > segments[-1].end_offset
    directory = LogDirectoryWriter(out, rules)
    with _writer(source, name, directory) as to:
        for segment in segments[:-1] if is_given_up else segments:
            to.adopt(segment)
        if next_offset > to.end_offset:
            to.roll(next_offset, keep_empty=is_given_up)
        _finish(source, to)
    directory.finish(meta_properties([source]), {name: log_start_offset(source)})
    return report


def _writer(
    source: PartitionDirectory, name: TopicPartition, directory: LogDirectoryWriter, *, is_part: bool = False
) -> PartitionWriter:
    metadata = source.metadata()
    return directory.partition(
        *name,
        segment_bytes=max([1 << 30, *(segment.log.size for segment in source.segments)]),
        topic_id=None if metadata is None else metadata.topic_id,
        dialect=source.dialect,
        is_part=is_part,
    )


def _write(
    source: PartitionDirectory, to: PartitionWriter, wanted: RecordFilter, limit: int, report: FilterReport
) -> int:
    """Write the kept records of all segments. Return the last offset of the source + 1, 0 for an empty log."""
    next_offset = 0
    kernel.expect(source.size)
    for segment in source.segments:
        to.roll(max(segment.base_offset, to.end_offset), keep_empty=True)
        with source.files.open(segment.log.path) as file:
            for chunk in read_chunks(file, dialect=source.dialect, limit=limit):
                try:
                    to.append(b"".join(_kept(chunk.table, wanted, limit, report)))
                except CorruptRecordError as error:
                    raise error.locate(path=chunk.path, shift=chunk.position) from None
                next_offset = _end(chunk)
    return next_offset


def _finish(source: PartitionDirectory, to: PartitionWriter) -> None:
    if (epoch := last_epoch(source)) is not None:
        to.note_epoch(epoch)
    to.finish()


def _end(chunk: Chunk) -> int:
    return int(last_offsets(chunk.table)[-1]) + 1


def _kept(table: BatchTable, wanted: RecordFilter, limit: int, report: FilterReport) -> Iterator[memoryview]:
    """Yield the kept sets and the rewritten ones of an unmerged table, in order."""
    magic = np.asarray(table.magic, np.int64)
    bits = np.asarray(table.attributes, np.int64)
    is_enriched = table.dialect is Dialect.ENRICHED
    control = (bits & ENRICHED_CONTROL_BIT != 0) if is_enriched else (magic == 2) & (bits & CONTROL_BIT != 0)
    options = DecodeOptions(control=True, limit=limit)
    for same in np.split(np.arange(len(table)), np.flatnonzero(np.diff(magic) != 0) + 1):
        held = same[np.asarray(table.count, np.int64)[same] != 0]  # the cleaner leaves empty batches: they are dropped
        report.dropped += len(same) - len(held)
        for rows, counts, columns in decode_entries(table, held.tolist(), options):
            yield from _sets(table, rows, np.asarray(counts, np.int64), columns, control, wanted, report)


def _sets(
    table: BatchTable,
    rows: list[int],
    counts: Array,
    columns: RecordColumns,
    control: Array,
    wanted: RecordFilter,
    report: FilterReport,
) -> Iterator[memoryview]:
    """Yield decoded sets: unchanged, with fewer records, or not at all."""
    is_control = np.repeat(control[rows], counts)
    keep = wanted.mask(columns) | is_control
    report.records += int(np.count_nonzero(~is_control))
    report.kept += int(np.count_nonzero(keep & ~is_control))
    ends = np.cumsum(counts)
    for row, end, count in zip(rows, ends.tolist(), counts.tolist(), strict=True):
        left = np.flatnonzero(keep[end - count : end]) + end - count
        position = int(table.position[row])
        if len(left) == count:
            report.copied += 1
            yield table.buffer[position : position + int(table.size[row])]
        elif len(left):
            report.rewritten += 1
            yield _rewritten(table, row, columns.take(left))
        else:
            report.dropped += 1


def _rewritten(table: BatchTable, row: int, columns: RecordColumns) -> memoryview:
    """Return a set encoded with only the given records."""
    is_enriched = table.dialect is Dialect.ENRICHED
    target = Format.ENRICHED if is_enriched else Format(str(int(table.magic[row])))
    header = DEFAULT_HEADER
    if is_enriched:
        header = BatchHeader(base_offset=int(table.offset[row]))
    elif target is Format.V2:
        header = _header_of(table, row)
    writer = RowWriter(columns, target)
    return writer.write(writer.batch(0, len(columns)), Codec(int(table.attributes[row]) & CODEC_MASK), [header])


def _header_of(table: BatchTable, row: int) -> BatchHeader:
    """Return the header fields of a v2 batch that do not depend on its records."""
    base, _, epoch, _, _, bits, delta, base_timestamp, latest, producer, producer_epoch, sequence, _ = (
        HEADER.unpack_from(table.buffer, int(table.position[row]))
    )
    has_horizon, append_time = bool(bits & DELETE_HORIZON_BIT), bool(bits & LOG_APPEND_TIME_BIT)
    return BatchHeader(
        base_offset=base,
        last_offset=base + delta,
        base_timestamp=base_timestamp if has_horizon else None,
        timestamp_type=TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME,
        max_timestamp=latest if append_time else None,
        is_transactional=bool(bits & TRANSACTIONAL_BIT),
        has_delete_horizon=has_horizon,
        partition_leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )
