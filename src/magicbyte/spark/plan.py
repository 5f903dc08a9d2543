"""What each Spark task reads: slices of segments, planned from names, sizes and indexes, without reading records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from magicbyte.errors import CorruptRecordError, MagicbyteError, UnknownTopicError
from magicbyte.log.checkpoints import TopicPartition
from magicbyte.log.directory import PartitionDirectory, Segment, discover, parse_topic_partition
from magicbyte.log.partitions import choose, in_use, log_start_offset
from magicbyte.log.reader import Isolation, SegmentReader, Selection, read_chunks
from magicbyte.records.decode import DecodeOptions
from magicbyte.records.layout import Dialect
from magicbyte.records.transactions import AbortedTransaction
from magicbyte.spark.options import EARLIEST, LATEST, Bound, SourceOptions

LARGEST_SLICE = 64 << 20  # bytes of a task
SMALLEST_SLICE = 2 << 20
_MAX_OFFSET = (1 << 63) - 1


@dataclass(frozen=True)
class Limits:
    """Which records filters and options leave. Bounds as in Selection; timestamps in ms."""

    first: int = 0
    end: int = _MAX_OFFSET
    since: int | None = None
    until: int | None = None

    def narrowed(self, *, first: int = 0, end: int = _MAX_OFFSET) -> Limits:
        """Return the limits with offsets below `first` and from `end` on left out, too."""
        return replace(self, first=max(self.first, first), end=min(self.end, end))

    def within(self, *, since: int | None = None, until: int | None = None) -> Limits:
        """Return the limits with timestamps below `since` and from `until` on left out, too."""
        lows = [each for each in (self.since, since) if each is not None]
        highs = [each for each in (self.until, until) if each is not None]
        return replace(self, since=max(lows, default=None), until=min(highs, default=None))


NO_LIMITS = Limits()


@dataclass(frozen=True)
class SegmentSlice:
    """Entries of one file that begin at positions from `start` to below `end` (None: the file's end), in bytes."""

    path: str
    start: int
    end: int | None
    size: int
    topic: str | None
    partition: int | None
    dialect: Dialect
    selection: Selection
    aborted: tuple[AbortedTransaction, ...]


@dataclass(frozen=True)
class Task(InputPartition):
    """The slices of one task, in order. Pickled to the workers."""

    slices: tuple[SegmentSlice, ...]


def chosen_partitions(options: SourceOptions) -> list[PartitionDirectory]:
    """Return the partitions that the options mean. Raises UnknownTopicError, LogDirectoryError."""
    named = parse_topic_partition(options.as_) if options.as_ else None
    found = in_use(discover(options.paths, named))
    if options.subscribe is not None:
        return choose(found, sorted(options.subscribe))
    if options.pattern is not None:
        return [each for each in found if each.topic is not None and re.fullmatch(options.pattern, each.topic)]
    if options.assign is not None:
        by_name = {TopicPartition(each.topic or "", each.partition or 0): each for each in found if each.topic}
        if lost := options.assign - by_name.keys():
            topic, partition = min(lost)
            raise UnknownTopicError(f"no partition {topic}-{partition} here")
        return [by_name[partition] for partition in sorted(options.assign)]
    return found


def plan(options: SourceOptions, partitions: list[PartitionDirectory], limits: Limits, cores: int) -> list[Task]:
    """Return the tasks that read `partitions`: enough to feed all cores, none much larger than LARGEST_SLICE."""
    total = sum(each.size for each in partitions)
    wanted = max(options.min_partitions, 2 * cores)
    target = min(max(total // wanted, 1 if options.min_partitions else SMALLEST_SLICE), LARGEST_SLICE)
    tasks: list[Task] = []
    pending: list[SegmentSlice] = []
    size = 0
    for partition in partitions:
        for piece in _slices(options, partition, limits, target):
            if pending and size + piece.size > target:
                tasks.append(Task(tuple(pending)))
                pending, size = [], 0
            pending.append(piece)
            size += piece.size
    if pending:
        tasks.append(Task(tuple(pending)))
    return tasks


def _slices(
    options: SourceOptions, partition: PartitionDirectory, limits: Limits, target: int
) -> Iterator[SegmentSlice]:
    reader = SegmentReader(partition, options.dialect)
    limits = _with_bounds(options, reader, limits)
    aborted: tuple[AbortedTransaction, ...] = ()
    if options.isolation is Isolation.READ_COMMITTED:
        found = reader.transactions(limit=options.max_batch_bytes)
        aborted = tuple(found.aborted)
        limits = limits.narrowed(end=found.last_stable_offset)
    selection = Selection(limits.first, limits.end, limits.since, limits.until, options.isolation)
    dialect = options.dialect or partition.dialect
    for segment in reader.segments_from(selection.first):
        if segment.base_offset >= selection.end:
            return
        start = reader.start_position(segment, selection.first)
        cuts = [start, *_cuts(partition, segment, dialect, start, target), None]
        for begin, end in pairwise(cuts):
            assert begin is not None, "only the last cut is open"
            size = (segment.log.size if end is None else end) - begin
            yield SegmentSlice(
                segment.log.path, begin, end, size, partition.topic, partition.partition, dialect, selection, aborted
            )


def _cuts(partition: PartitionDirectory, segment: Segment, dialect: Dialect, start: int, target: int) -> Iterator[int]:
    """Yield positions of entries, about `target` bytes apart: from the offset index, else by a shallow walk."""
    if segment.log.size - start < 2 * target:
        return
    try:
        index = partition.offset_index(segment)
    except CorruptRecordError:
        index = None
    before = start
    if index is not None and len(index):
        while (position := index.floor_of_position(before + target)[1]) > before:
            if segment.log.size - position >= target // 2:
                yield position
            before = position
        return
    with partition.files.open(segment.log.path) as file:
        for chunk in read_chunks(file, start=start, dialect=dialect, on_damage=lambda _: None):
            for row in range(len(chunk.table)):
                position = chunk.position + int(chunk.table.position[row])
                if position - before >= target:
                    before = position
                    yield before


def _with_bounds(options: SourceOptions, reader: SegmentReader, limits: Limits) -> Limits:
    """Return the limits with the starting and ending offsets of the options applied to the reader's partition."""
    partition = reader.partition
    key = TopicPartition(partition.topic or "", -1 if partition.partition is None else partition.partition)
    log_start = max(log_start_offset(partition), partition.segments[0].base_offset if partition.segments else 0)
    start, end = options.starts.get(key, options.start), options.ends.get(key, options.end)
    first, last = _offset(reader, start, EARLIEST), _offset(reader, end, LATEST)
    if first is None:
        if options.start_strategy == "error":
            raise MagicbyteError(
                f"{partition.name}: no record from timestamp {start.timestamp} on; the option "
                "startingOffsetsByTimestampStrategy=latest reads nothing then"
            )
        first = _MAX_OFFSET
    if first not in (EARLIEST, _MAX_OFFSET) and first < log_start and options.fail_on_data_loss:
        raise MagicbyteError(
            f"{partition.name}: expected offset {first}, found none before {log_start}; the option "
            "failOnDataLoss=false begins there"
        )
    end_offset = _MAX_OFFSET if last in (None, LATEST) else last
    assert end_offset is not None, "LATEST and no match are the open end"
    return limits.narrowed(first=max(first, log_start), end=end_offset)


def _offset(reader: SegmentReader, bound: Bound, open_value: int) -> int | None:
    """Return the offset that a bound means in the reader's partition, None where no record has its timestamp."""
    if bound.timestamp is None:
        return open_value if bound.offset is None else bound.offset
    options = DecodeOptions(keys=False, values=False, headers=False)
    for columns in reader.records(Selection(since=bound.timestamp), options):
        return int(columns.offset[0])
    return None
