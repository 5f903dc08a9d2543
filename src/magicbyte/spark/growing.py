"""Follow logs in growing files: find the end of their complete entries, and plan tasks that read the new ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from magicbyte.engine.errors import CorruptRecordError, TruncatedLogError
from magicbyte.engine.log.files.checkpoints import HIGH_WATERMARK, LOG_START
from magicbyte.engine.log.files.directory import PartitionDirectory, SegmentFiles, log_directories
from magicbyte.engine.log.files.headers import Headers, read_headers
from magicbyte.engine.log.files.reader import MAX_OFFSET, Isolation, SegmentReader, Selection
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.decode import DecodeOptions
from magicbyte.engine.records.layout import Dialect
from magicbyte.spark.options import Bound, OptionError, SourceOptions
from magicbyte.spark.plan import (
    NO_LIMITS,
    OffsetSpan,
    Ranges,
    SegmentSlice,
    SparkTask,
    TopicSlice,
    chosen_partitions,
    plan,
    timestamp_offset,
)


class _Whole(NamedTuple):
    """The complete part of a partition's last segment: its end position in bytes, and the last offset in it + 1.

    `last` is the position of its last entry, and `head` the first bytes of this entry: a log that has others there
    was recreated, restored or truncated since.
    """

    path: str
    position: int
    offset: int
    last: int = 0
    head: bytes = b""


@dataclass(slots=True)
class GrowingLogs:
    """The partitions selected by a stream's options. Entries known to be complete are not scanned again."""

    options: SourceOptions
    _found: dict[TopicPartition, PartitionDirectory] = field(default_factory=dict)
    _whole: dict[TopicPartition, _Whole] = field(default_factory=dict)

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def spans(self, begun: Mapping[TopicPartition, int] | None) -> Ranges:
        """Scan the files, and return the offsets of complete entries of each partition.

        `begun`: the offsets from which reading continues; with `read_committed` the ranges then end at the last stable
        offset. None: last stable offsets are ignored. Raises UnknownTopicError, LogDirectoryError, OptionError;
        CorruptRecordError for an invalid entry.
        """
        chosen = chosen_partitions(self.options, reports_missing=not self._found)
        self._found = partitions = {_key(partition): partition for partition in chosen}
        starts, marks = {}, {}
        for directory in log_directories(partitions.values()):
            starts[directory.path] = directory.offsets(LOG_START) or {}
            marks[directory.path] = directory.offsets(HIGH_WATERMARK) or {}
        spans = {}
        for key, partition in partitions.items():
            above = partition.log_directory or ""
            base = partition.segments[0].base_offset if partition.segments else 0
            first = max(base, starts.get(above, {}).get(key, 0))
            end = max(self._end(key, partition), first)
            if self.options.up_to_high_watermark:
                read = min(0 if begun is None else begun.get(key, 0), end)  # an older mark takes back nothing
                end = max(min(end, marks.get(above, {}).get(key, first)), first, read)
            if begun is not None and self.options.isolation is Isolation.READ_COMMITTED:
                end = self._stable(partition, min(begun.get(key, 0), end), end)
            spans[key] = OffsetSpan(first, end)
        return spans

    def _end(self, key: TopicPartition, partition: PartitionDirectory) -> int:
        """Return the last offset of complete entries + 1."""
        if not partition.segments:
            return 0
        segment, known = partition.segments[-1], self._whole.get(key)
        if known is None or not _is_same_log(partition, segment, known):
            start = SegmentReader(partition).start_position(segment, MAX_OFFSET)
            known = _Whole(segment.log.path, start, segment.base_offset)
        dialect = self.options.dialect or partition.dialect
        for headers in self._headers(partition, segment, known.position):
            head = headers.heads[-1, : int(headers.size[-1])].tobytes()
            known = known._replace(position=headers.end, last=int(headers.position[-1]), head=head)
            if dialect is not Dialect.ENRICHED:
                known = known._replace(offset=int(headers.last_offset[-1]) + 1)
        if dialect is Dialect.ENRICHED:  # headers of its wrappers have no last offset
            known = known._replace(offset=self._decoded_end(partition, known.offset))
        self._whole[key] = known
        return known.offset

    def _headers(self, partition: PartitionDirectory, segment: SegmentFiles, position: int) -> Iterator[Headers]:
        """Yield the headers of complete entries from a position on. An incomplete last entry is still being written."""
        with partition.files.open(segment.log.path) as file:
            for headers in read_headers(
                file,
                start=position,
                dialect=self.options.dialect or partition.dialect,
                limit=self.options.max_batch_bytes,
                on_damage=_not_whole_yet,
                expected_bytes=max(segment.log.size - position, 0),
            ):
                if len(headers):
                    yield headers

    def _decoded_end(self, partition: PartitionDirectory, start: int) -> int:
        options = DecodeOptions(keys=False, values=False, headers=False, control=True)
        records = SegmentReader(partition, Dialect.ENRICHED).records(
            Selection(start), options, on_damage=_not_whole_yet
        )
        return max((int(columns.offset[-1]) + 1 for columns in records), default=start)

    def _stable(self, partition: PartitionDirectory, begun: int, end: int) -> int:
        """Return the last stable offset. `begun` must not be above it."""
        if begun == end:
            return end
        reader = SegmentReader(partition, self.options.dialect)
        return min(reader.transactions(first=begun, limit=self.options.max_batch_bytes).last_stable_offset, end)

    def offset_from(self, key: TopicPartition, timestamp: int) -> int | None:
        """Return the offset of the first record with a timestamp (ms) or a later one, None if there is none."""
        passing = replace(self.options, fail_on_data_loss=False)  # the last entry may still be incomplete
        return timestamp_offset(passing, SegmentReader(self._found[key], self.options.dialect), timestamp)

    def within_bytes(self, ranges: Ranges, most: int) -> Ranges:
        """Return the ranges cut in proportion to about `most` bytes in total, each to at least one entry."""
        sizes = {key: self._bytes(key, *each) for key, each in ranges.items()}
        total = sum(sizes.values())
        if total <= most:
            return ranges
        return {
            key: OffsetSpan(first, self._end_within(key, first, end, most * sizes[key] // total))
            for key, (first, end) in ranges.items()
        }

    def _bytes(self, key: TopicPartition, first: int, end: int) -> int:
        """Return the approximate size of a range in bytes, from file names, file sizes and indexes."""
        reader = SegmentReader(self._found[key], self.options.dialect)
        segments = [each for each in reader.segments_from(first) if each.base_offset < end]
        if not segments or first >= end:
            return 0
        whole = sum(each.log.size for each in segments) - reader.start_position(segments[0], first)
        behind = reader.start_position(segments[-1], end)
        return whole - (segments[-1].log.size - behind if behind else 0)

    def _end_within(self, key: TopicPartition, first: int, end: int, most: int) -> int:
        """Return the end of the entries from offset `first` on that fit into `most` bytes, at least of one entry."""
        partition, taken = self._found[key], 0
        reader, at = SegmentReader(partition, self.options.dialect), first
        for segment in reader.segments_from(first):
            for headers in self._headers(partition, segment, reader.start_position(segment, first)):
                if headers.dialect is Dialect.ENRICHED:
                    return end
                for size, last in zip(headers.size.tolist(), headers.last_offset.tolist(), strict=True):
                    if last < first:
                        continue
                    taken += size
                    if taken > most and at > first:
                        return at
                    at = int(last) + 1
                    if at >= end or taken > most:
                        return min(at, end)
        return end

    def tasks(self, ranges: Ranges) -> list[SparkTask]:
        """Return tasks that read the ranges. Raises MagicbyteError for offsets that were deleted."""
        options = self.options
        partitions = [each for key, each in self._found.items() if key in ranges]
        asked = replace(
            options,
            starts={key: Bound(offset=first) for key, (first, _) in ranges.items()},
            ends={key: Bound(offset=end) for key, (_, end) in ranges.items()},
        )
        whole = {each.path: each.position for each in self._whole.values()}
        tasks = plan(asked, partitions, NO_LIMITS, os.cpu_count() or 1, follows=True)
        return [SparkTask(tuple(_closed(piece, whole) for piece in task.slices)) for task in tasks]


def _is_same_log(partition: PartitionDirectory, segment: SegmentFiles, known: _Whole) -> bool:
    """Return whether the segment still has the entry at which it was found to be complete."""
    if known.path != segment.log.path or not known.head or known.position > segment.log.size:
        return False
    with partition.files.open(segment.log.path) as file:
        return bytes(file.read_at(known.last, len(known.head))) == known.head


def _closed(piece: SegmentSlice | TopicSlice, whole: Mapping[str, int]) -> SegmentSlice:
    """Return a slice that ends at the last complete entry."""
    assert isinstance(piece, SegmentSlice), "planned from files"
    return replace(piece, end=min(piece.end, whole.get(piece.path, piece.end)))


def _key(partition: PartitionDirectory) -> TopicPartition:
    if partition.topic is None or partition.partition is None:
        raise OptionError(f"{partition.path}: a stream needs names, expected a folder TOPIC-N or the option as=TOPIC-N")
    return TopicPartition(partition.topic, partition.partition)


def _not_whole_yet(error: CorruptRecordError) -> None:
    if not isinstance(error, TruncatedLogError):
        raise error
