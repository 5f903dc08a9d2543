"""Read topics of a running cluster: look-up and plan on the driver, fetches of closed sets in the workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.access.client import Client
from magicbyte.access.client.fetch import ClosedSets, FetchOptions, read_sets
from magicbyte.access.client.offsets import EARLIEST, LATEST, ListedOffset, bounds, list_offset
from magicbyte.engine.errors import MagicbyteError, OffsetOutOfRangeError
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.reader import Isolation, Selection
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.transactions import CommittedFilter
from magicbyte.spark.options import Bound, OptionError, SourceOptions, credentials_of
from magicbyte.spark.plan import (
    NO_LIMITS,
    OffsetSpan,
    Ranges,
    RecordLimits,
    SparkTask,
    TopicSlice,
    bundled,
    lost,
    meant,
    no_record,
)

if TYPE_CHECKING:
    from magicbyte.engine.log.files.headers import Headers

T = TypeVar("T")

SMALLEST_SLICE = 100_000  # offsets per task
_ASKED_AT_ONCE = 64
_LOOK_UPS, LOOK_UP_INTERVAL_S = 3, 1.0  # of an end offset below the position, as in Spark's Kafka source
_log = logger("magicbyte.spark")


class LivePartition(Struct, frozen=True):
    """A partition of a cluster, with its first and end offsets at the time of the look-up."""

    topic: str
    partition: int
    first: int = 0
    end: int = 0

    @property
    def name(self) -> str:
        """Topic and partition, for messages."""
        return f"{self.topic}-{self.partition}"

    @property
    def key(self) -> TopicPartition:
        """Topic and partition, as a key."""
        return TopicPartition(self.topic, self.partition)


class LiveCluster:
    """A blocking client of a cluster. It connects at the first request."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.bootstrap is not None
        self.bootstrap = options.bootstrap
        self.options = options
        self._committed = options.isolation is Isolation.READ_COMMITTED
        self._runner = asyncio.Runner()
        self._client: Client | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._runner.run(self._client.aclose())
        self._runner.close()

    def partitions(self) -> list[LivePartition]:
        """Return the partitions selected by the options, with their offsets.

        With `read_committed` they end at the last stable offset. Raises UnknownTopicError, OptionError, BrokerError and
        NetworkError.
        """
        found = meant(self._ask(self._topics), self.options)
        return self._ask(lambda client: _at_once(self._looked_up(client, each) for each in found))

    async def _topics(self, client: Client) -> list[LivePartition]:
        # All topics: old brokers create topics that are requested by name.
        found = await client.retried(client.topics)
        return [
            LivePartition(topic.name, number)
            for topic in found.values()
            for number in sorted(topic.partitions)
            if not (topic.is_internal and self.options.pattern is not None)
        ]

    async def _looked_up(self, client: Client, partition: LivePartition) -> LivePartition:
        first, end = await bounds(client, partition.topic, partition.partition)
        if self._committed:
            stable = (await list_offset(client, partition.topic, partition.partition, LATEST, committed=True)).offset
            assert stable is not None, "every partition has a last stable offset"
            end = min(end, stable)
        return replace(partition, first=first, end=end)

    def offset_from(self, key: TopicPartition, timestamp: int) -> int | None:
        """Return the offset of the first record with a timestamp (ms) or a later one, None if there is none.

        Raises OptionError for brokers before 0.10.1, which have no index of timestamps.
        """

        def ask(client: Client) -> Awaitable[ListedOffset]:
            return list_offset(client, *key, timestamp, committed=self._committed)

        found = self._ask(ask)
        if found.offset is not None and found.timestamp is None:
            raise OptionError(f"{key}: brokers before 0.10.1 have no index of timestamps: give offsets")
        return found.offset

    def _ask(self, question: Callable[[Client], Awaitable[T]]) -> T:
        async def answer() -> T:
            if self._client is None:
                self._client = Client(self.bootstrap, security=credentials_of(self.options.security))
            return await question(self._client)

        return self._runner.run(answer())

    def spans(self, begun: Mapping[TopicPartition, int] | None) -> Ranges:
        """Return the offsets of each partition. Raises the errors of `partitions`.

        An end below the offsets read so far is looked up again, as by Spark's Kafka source: the high watermark of a new
        leader may lag behind for a moment (KIP-207).
        """
        for attempt in range(_LOOK_UPS):
            spans = {each.key: OffsetSpan(each.first, each.end) for each in self.partitions()}
            lags = begun is not None and any(span.end < begun.get(key, 0) for key, span in spans.items())
            if not lags or attempt == _LOOK_UPS - 1:
                break
            self._runner.run(asyncio.sleep(LOOK_UP_INTERVAL_S))
        return spans

    def within_bytes(self, ranges: Ranges, _most: int) -> Ranges:
        """Return the ranges unchanged: their size in bytes is unknown before they are fetched."""
        return ranges

    def tasks(self, ranges: Ranges, limits: RecordLimits = NO_LIMITS) -> list[SparkTask]:
        """Return tasks that read the ranges within `limits`."""
        options, cores = self.options, os.cpu_count() or 1
        total = sum(end - first for first, end in ranges.values())
        least = 1 if options.min_partitions else SMALLEST_SLICE
        target = max(total // max(options.min_partitions, 2 * cores), least)
        return bundled(
            (
                TopicSlice(
                    self.bootstrap, *key, behind - at, options.dialect or Dialect.KAFKA,
                    Selection(at, behind, limits.since, limits.until, options.isolation),
                )
                for key, (first, end) in ranges.items()
                for at, behind in _pieces(first, end, target)
            ),
            target,
        )  # fmt: skip


def _pieces(first: int, end: int, target: int) -> Iterator[tuple[int, int]]:
    """Yield a range in pieces of equal size, of at most about `target`."""
    count = max(-(-(end - first) // target), 1) if end > first else 0
    for piece in range(count):
        yield first + (end - first) * piece // count, first + (end - first) * (piece + 1) // count


async def _at_once(questions: Iterable[Awaitable[T]]) -> list[T]:
    slots = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def answered(question: Awaitable[T]) -> T:
        async with slots:
            return await question

    return list(await asyncio.gather(*map(answered, questions)))


def plan_live(options: SourceOptions, wanted: Callable[[LivePartition], bool], limits: RecordLimits) -> list[SparkTask]:
    """Return the tasks of a query. `wanted`: whether filters select a partition."""
    cluster = LiveCluster(options)
    with contextlib.closing(cluster):
        ranges = {}
        for partition in cluster.partitions():
            if wanted(partition):
                first, end = bounded(cluster, partition)
                if limits.since is not None and (since := _since(cluster, partition, limits.since)) is not None:
                    first = max(first, since)
                first, end = max(first, limits.first), min(end, limits.end)
                if first < end:
                    ranges[partition.key] = OffsetSpan(first, end)
        return cluster.tasks(ranges, limits)


def _since(cluster: LiveCluster, partition: LivePartition, since: int) -> int | None:
    """Return an offset below which no record has the timestamp or a later one, None if brokers cannot tell."""
    try:
        found = cluster.offset_from(partition.key, since)
    except OptionError:
        return None
    return partition.end if found is None else found


def bounded(cluster: LiveCluster, partition: LivePartition) -> tuple[int, int]:
    """Return the first and end offset of a query in a partition. Raises MagicbyteError for deleted offsets."""
    options = cluster.options
    start, stop = options.starts.get(partition.key, options.start), options.ends.get(partition.key, options.end)
    first, end = _offset(cluster, partition, start), _offset(cluster, partition, stop)
    if first is None:
        if options.start_strategy == "error":
            raise no_record(partition.name, start)
        first = partition.end
    if first < partition.first and options.fail_on_data_loss:
        raise lost(partition.name, first, partition.first)
    return max(first, partition.first), min(partition.end if end is None else end, partition.end)


def _offset(cluster: LiveCluster, each: LivePartition, bound: Bound) -> int | None:
    if bound.timestamp is not None:
        return cluster.offset_from(each.key, bound.timestamp)
    named: dict[int | None, int] = {EARLIEST: each.first, LATEST: each.end}
    return named.get(bound.offset, bound.offset)


# ---- in workers


def fetched_chunks(
    piece: TopicSlice, options: SourceOptions
) -> Iterator[tuple[Chunk, CommittedFilter | None, Selection]]:
    """Yield closed sets of a slice, the filter of committed records for `read_committed`, and the records to select."""
    is_committed, position = piece.selection.isolation is Isolation.READ_COMMITTED, 0
    for found, first in _fetched(piece, options):
        committed = CommittedFilter(found.aborted, found.last_stable_offset) if is_committed else None
        yield Chunk(piece.path, position, found.table), committed, replace(piece.selection, first=first)
        position += found.table.end


def fetched_headers(piece: TopicSlice, options: SourceOptions) -> Iterator[Headers]:
    """Yield the headers of the closed sets of a slice."""
    from magicbyte.engine.log.files.headers import headers_of
    from magicbyte.tools.offline.inventory import SentPart

    for chunk, _, _ in fetched_chunks(piece, options):
        yield headers_of(SentPart(piece.path, chunk.position, chunk.table.buffer), chunk)


def _fetched(piece: TopicSlice, options: SourceOptions) -> Iterator[tuple[ClosedSets, int]]:
    """Yield the closed sets of a slice, each with the offset from which it was fetched.

    Raises OffsetOutOfRangeError for deleted offsets, and MagicbyteError for a log that now ends below the slice's end,
    unless `failOnDataLoss` is false.
    """
    asked = FetchOptions(
        committed=piece.selection.isolation is Isolation.READ_COMMITTED,
        dialect=piece.dialect,
        largest_set=options.max_batch_bytes,
    )
    first, end, at = piece.selection.first, piece.selection.end, (piece.topic, piece.partition)
    with asyncio.Runner() as runner:
        client = Client(piece.bootstrap, security=credentials_of(options.security))
        try:
            while first < end:
                sets = read_sets(client, *at, first, end, asked)
                try:
                    for found in _in_turn(runner, sets):
                        yield found, first
                        first = found.next_offset
                    start, log_end = runner.run(bounds(client, *at)) if first < end else (first, end)
                except OffsetOutOfRangeError as error:
                    start, log_end = runner.run(bounds(client, *at))
                    if options.fail_on_data_loss or start <= first <= log_end:
                        raise
                    _log.warning("%s; continuing at %d", error, start)
                if log_end < end:
                    problem = (
                        f"{piece.path}: ends at offset {log_end} now, and ended at {end} or above at planning time"
                    )
                    if options.fail_on_data_loss:
                        raise MagicbyteError(f"{problem}; the option failOnDataLoss=false reads up to there")
                    _log.warning("%s", problem)
                if start <= first or log_end <= first:
                    return
                first = start
        finally:
            runner.run(client.aclose())


def _in_turn(runner: asyncio.Runner, sets: AsyncGenerator[ClosedSets]) -> Iterator[ClosedSets]:
    try:
        while (found := runner.run(anext(sets, None))) is not None:
            if len(found.table):
                yield found
    finally:
        runner.run(sets.aclose())
