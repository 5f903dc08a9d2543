"""Plan the slices that each Spark task reads, from names, sizes and indexes, without reading records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from pyspark.sql.datasource import InputPartition

from magicbyte.access.workers import requests_at_once
from magicbyte.engine.errors import CorruptRecordError, MagicbyteError, TruncatedLogError, UnknownTopicError
from magicbyte.engine.log.files.directory import PartitionDirectory, SegmentFiles, discover, parse_topic_partition
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.left_out import in_use
from magicbyte.engine.log.files.partitions import P, choose, log_start_offset
from magicbyte.engine.log.files.reader import MAX_OFFSET, Isolation, SegmentReader, Selection
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.transactions import AbortedRange
from magicbyte.spark.missing import report_missing
from magicbyte.spark.options import EARLIEST, LATEST, Bound, OptionError, SourceOptions

if TYPE_CHECKING:
    import numpy as np

    from magicbyte.engine.log.files.indexes import OffsetIndex

LARGEST_SLICE = 256 << 20  # bytes per task; each task costs 25 ms of CPU, in which 100,000 small records become rows
SMALLEST_SLICE = 8 << 20
HEADERS_SLICE = 1 << 30  # bytes per task that reads only headers


@dataclass(frozen=True)
class RecordLimits:
    """The limits of filters and options on records. Bounds as in Selection; timestamps in ms."""

    first: int = 0
    end: int = MAX_OFFSET
    since: int | None = None
    until: int | None = None

    def narrowed(self, *, first: int = 0, end: int = MAX_OFFSET) -> RecordLimits:
        """Return the limits restricted to offsets from `first` to below `end`."""
        return replace(self, first=max(self.first, first), end=min(self.end, end))

    def within(self, *, since: int | None = None, until: int | None = None) -> RecordLimits:
        """Return the limits restricted to timestamps from `since` to below `until`."""
        lows = [each for each in (self.since, since) if each is not None]
        highs = [each for each in (self.until, until) if each is not None]
        return replace(self, since=max(lows, default=None), until=min(highs, default=None))


NO_LIMITS = RecordLimits()


@dataclass(frozen=True)
class SegmentSlice:
    """Entries of one file that begin at positions from `start` to below `end`, in bytes."""

    path: str
    start: int
    end: int
    size: int
    topic: str | None
    partition: int | None
    dialect: Dialect
    selection: Selection
    aborted: tuple[AbortedRange, ...]


@dataclass(frozen=True)
class TopicSlice:
    """Offsets of one partition of a running cluster. `size`: a number of offsets, as their bytes are unknown."""

    bootstrap: str
    topic: str
    partition: int
    size: int
    dialect: Dialect
    selection: Selection

    @property
    def path(self) -> str:
        """Its address, for messages."""
        return f"kafka://{self.bootstrap}/{self.topic}-{self.partition}"


class OffsetSpan(NamedTuple):
    """Offsets of a partition, from `first` to below `end`."""

    first: int
    end: int


Ranges: TypeAlias = Mapping[TopicPartition, OffsetSpan]

S = TypeVar("S", SegmentSlice, TopicSlice)


@dataclass(frozen=True)
class SparkTask(InputPartition):
    """The slices of one task, in order. Pickled to the workers."""

    slices: tuple[SegmentSlice | TopicSlice, ...]


def chosen_partitions(options: SourceOptions, *, reports_missing: bool = False) -> list[PartitionDirectory]:
    """Return the partitions selected by the options. Raises UnknownTopicError, LogDirectoryError, OptionError.

    `reports_missing`: log a warning for each of them that a log directory proves to be missing, or to lack segments. As
    all plans, this reads no logs.
    """
    named = parse_topic_partition(options.as_) if options.as_ else None
    with requests_at_once() as many:
        found = discover(options.paths, named, many=many)
    if reports_missing:
        report_missing(found, partial(_selects, options))
    return meant(in_use(found), options)


def _selects(options: SourceOptions, topic: str | None, number: int | None) -> bool:
    """Return whether the options select a partition, if it exists."""
    if options.assign is not None:
        return (topic, number) in options.assign
    if options.pattern is not None:
        return topic is not None and re.fullmatch(options.pattern, topic) is not None
    return options.subscribe is None or topic in options.subscribe


def meant(partitions: list[P], options: SourceOptions) -> list[P]:
    """Return the given partitions that the options select. Raises UnknownTopicError, OptionError."""
    if options.subscribe is not None:
        partitions = choose(partitions, sorted(options.subscribe))
    elif options.pattern is not None:
        partitions = [each for each in partitions if _selects(options, each.topic, each.partition)]
    elif options.assign is not None:
        choose(partitions, sorted({topic for topic, _ in options.assign}))
        by_name = _by_name(partitions)
        if lost := options.assign - by_name.keys():
            topic, number = min(lost)
            there = ", ".join(str(partition) for name, partition in sorted(by_name) if name == topic)
            raise UnknownTopicError(f"no partition {number} of topic {topic!r} here: expected one of {there}")
        partitions = [by_name[partition] for partition in sorted(options.assign)]
    for what, bounds in (("starting", options.starts), ("ending", options.ends)):
        if bounds and (differing := bounds.keys() ^ _by_name(partitions).keys()):
            topic, number = min(differing)
            raise OptionError(
                f"{what} offsets or timestamps by partition: expected one for each partition that is read, found "
                f"{'one for' if (topic, number) in bounds else 'none for'} {topic}-{number}"
            )
    return partitions


def _by_name(partitions: list[P]) -> dict[TopicPartition, P]:
    return {
        TopicPartition(each.topic, each.partition): each
        for each in partitions
        if each.topic is not None and each.partition is not None
    }


def no_record(name: str, bound: Bound) -> MagicbyteError:
    """Return the error for a start timestamp that no record has or exceeds."""
    return MagicbyteError(
        f"{name}: no record from timestamp {bound.timestamp} on; the option "
        "startingOffsetsByTimestampStrategy=latest reads nothing then"
    )


def lost(name: str, expected: int, found: int) -> MagicbyteError:
    """Return the error for a log that begins above the first requested offset."""
    return MagicbyteError(
        f"{name}: expected offset {expected}, found none before {found}; the option failOnDataLoss=false begins there"
    )


def plan(
    options: SourceOptions,
    partitions: list[PartitionDirectory],
    limits: RecordLimits,
    cores: int,
    *,
    headers_only: bool = False,
    follows: bool = False,
) -> list[SparkTask]:
    """Return the tasks that read `partitions`: enough for all cores, and none much larger than LARGEST_SLICE.

    `headers_only`: tasks read only headers, which of local files is little work. `follows`: reading continues at or
    below a former last stable offset, so aborted transactions are searched only from there on.
    """
    total = sum(each.size for each in partitions)
    wanted = max(options.min_partitions, 2 * cores)
    smallest, largest = SMALLEST_SLICE, LARGEST_SLICE
    if headers_only and all(isinstance(each.files, LocalFiles) for each in partitions):
        smallest = largest = HEADERS_SLICE
    target = min(max(total // wanted, 1 if options.min_partitions else smallest), largest)
    pieces = (piece for each in partitions for piece in _slices(options, each, limits, target, follows=follows))
    return bundled(pieces, target)


def bundled(pieces: Iterable[S], target: int) -> list[SparkTask]:
    """Return slices as tasks of up to `target` in total. A larger slice is a task of its own."""
    tasks: list[SparkTask] = []
    pending: list[S] = []
    size = 0
    for piece in pieces:
        if pending and size + piece.size > target:
            tasks.append(SparkTask(tuple(pending)))
            pending, size = [], 0
        pending.append(piece)
        size += piece.size
    if pending:
        tasks.append(SparkTask(tuple(pending)))
    return tasks


def _slices(
    options: SourceOptions, partition: PartitionDirectory, limits: RecordLimits, target: int, *, follows: bool
) -> Iterator[SegmentSlice]:
    reader = SegmentReader(partition, options.dialect)
    limits = _with_bounds(options, reader, limits)
    aborted: tuple[AbortedRange, ...] = ()
    if options.isolation is Isolation.READ_COMMITTED:
        found = reader.transactions(first=limits.first if follows else 0, limit=options.max_batch_bytes)
        aborted = tuple(found.aborted)
        limits = limits.narrowed(end=found.last_stable_offset)
    selection = Selection(limits.first, limits.end, limits.since, limits.until, options.isolation)
    dialect = options.dialect or partition.dialect
    segments = reader.segments_from(selection.first)
    if not segments:
        return
    bases = [*(segment.base_offset for segment in segments[1:]), MAX_OFFSET]
    for segment, next_base in zip(segments, bases, strict=True):
        if segment.base_offset >= selection.end:
            return
        first = max(selection.first, _first_since(partition, segment, selection.since))
        if first >= next_base:
            continue
        index = _offset_index(partition, segment)
        start, stop = reader.start_position(segment, first), _stop_position(index, selection.end)
        stop = segment.log.size if stop is None else stop  # entries appended later are read by no attempt of the task
        cuts = [start, *_cuts(partition, segment, dialect, index, start, stop, target), stop]
        for begin, end in pairwise(cuts):
            yield SegmentSlice(
                segment.log.path, begin, end, end - begin, partition.topic, partition.partition, dialect, selection,
                aborted,
            )  # fmt: skip


def _offset_index(partition: PartitionDirectory, segment: SegmentFiles) -> OffsetIndex | None:
    try:
        return partition.offset_index(segment)
    except CorruptRecordError:  # ignore a damaged index: the log has the offsets
        return None


def _first_since(partition: PartitionDirectory, segment: SegmentFiles, since: int | None) -> int:
    """Return an offset, from the time index, below which no record has timestamp `since` (ms) or a later one."""
    if since is None:
        return 0
    try:
        index = partition.time_index(segment)
    except CorruptRecordError:
        return 0
    timestamp, offset = index.floor(since - 1) if index is not None else (-1, 0)
    return offset + 1 if timestamp > 0 else 0


def _stop_position(index: OffsetIndex | None, end: int) -> int | None:
    """Return a position from which on all offsets are `end` or above, None if the index has no such position."""
    if index is None:
        return None
    behind = int(index.offsets.searchsorted(end)) + 1  # the found entry may begin below `end`
    return int(index.positions[behind]) if behind < len(index) else None


def _cuts(
    partition: PartitionDirectory,
    segment: SegmentFiles,
    dialect: Dialect,
    index: OffsetIndex | None,
    start: int,
    end: int,
    target: int,
) -> Iterator[int]:
    """Yield positions of entries between `start` and `end`, at least `target` bytes apart."""
    before = start
    if end - start < 2 * target:
        return
    for positions in _entry_positions(partition, segment, dialect, index, start, target):
        while (row := int(positions.searchsorted(before + target))) < len(positions):
            before = int(positions[row])
            if end - before < max(target // 2, 1):
                return
            yield before


def _entry_positions(
    partition: PartitionDirectory,
    segment: SegmentFiles,
    dialect: Dialect,
    index: OffsetIndex | None,
    start: int,
    target: int,
) -> Iterator[np.ndarray[Any, Any]]:
    """Yield positions of entries after `start`, from the offset index, and beyond its last entry by a shallow walk."""
    from magicbyte.engine.log.files.headers import read_headers

    at = start
    if index is not None:
        yield index.positions
        at = max(at, int(index.positions[-1])) if len(index) else at
    left = segment.log.size - at
    if left < 2 * target:
        return
    with partition.files.open(segment.log.path) as file:
        for headers in read_headers(
            file,
            start=at,
            dialect=dialect,
            limit=DEFAULT_MAX_BATCH_BYTES,
            on_damage=lambda _: None,
            expected_bytes=left,
        ):
            yield headers.position


def _with_bounds(options: SourceOptions, reader: SegmentReader, limits: RecordLimits) -> RecordLimits:
    """Return the limits with the starting and ending offsets of the options applied to the reader's partition."""
    partition = reader.partition
    key = TopicPartition(partition.topic or "", -1 if partition.partition is None else partition.partition)
    log_start = max(log_start_offset(partition), partition.segments[0].base_offset if partition.segments else 0)
    start, end = options.starts.get(key, options.start), options.ends.get(key, options.end)
    first, last = _offset(options, reader, start, EARLIEST), _offset(options, reader, end, LATEST)
    if first is None:
        if options.start_strategy == "error":
            raise no_record(partition.name, start)
        first = MAX_OFFSET
    if first not in (EARLIEST, MAX_OFFSET) and first < log_start and options.fail_on_data_loss:
        assert first is not None, "no match was dealt with"
        raise lost(partition.name, first, log_start)
    end_offset = MAX_OFFSET if last in (None, LATEST) else last
    assert end_offset is not None, "LATEST and no match are the open end"
    return limits.narrowed(first=max(first, log_start), end=end_offset)


def _offset(options: SourceOptions, reader: SegmentReader, bound: Bound, open_value: int) -> int | None:
    """Return the offset of a bound in the reader's partition, None if no record has its timestamp."""
    if bound.timestamp is None:
        return open_value if bound.offset is None else bound.offset
    return timestamp_offset(options, reader, bound.timestamp)


def timestamp_offset(options: SourceOptions, reader: SegmentReader, timestamp: int) -> int | None:
    """Return the offset of the first record with a timestamp (ms) or a later one, None if there is none."""

    def on_damage(error: CorruptRecordError) -> None:
        if not (options.skip_damage or (isinstance(error, TruncatedLogError) and not options.fail_on_data_loss)):
            raise error  # otherwise the workers report it

    first, segments = 0, reader.partition.segments
    for segment, behind in pairwise(segments):
        if _first_since(reader.partition, segment, timestamp) < behind.base_offset:
            break
        first = behind.base_offset
    wanted = DecodeOptions(keys=False, values=False, headers=False, limit=options.max_batch_bytes)
    for columns in reader.records(Selection(first=first, since=timestamp), wanted, on_damage=on_damage):
        return int(columns.offset[0])
    return None
