"""Fetch: shallow, closed sets as the broker stores them, and deep, their records as columns.

Invariants:
1. Sets are returned in the order of their offsets, each once: the next request begins at `next_offset`, which never
   falls.
2. `read_sets` has at most one request in flight; it ends with the caller.
3. Bytes that are no whole set are dropped and asked for again. Damage is an error when nothing sound is before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterator
from typing import Final

from msgspec import Struct, field

from magicbyte.access.client.client import BrokerNode, only
from magicbyte.access.client.source import Source
from magicbyte.engine.compiled.kernel import expect
from magicbyte.engine.errors import BatchTooLargeError, BrokerError, OffsetOutOfRangeError
from magicbyte.engine.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from magicbyte.engine.records.columns import RecordColumns
from magicbyte.engine.records.decode import DEFAULT_OPTIONS, DecodeOptions, decode, decode_rows
from magicbyte.engine.records.enriched import EnrichedMessage
from magicbyte.engine.records.entry import Entry, parse_entry
from magicbyte.engine.records.layout import LOG_OVERHEAD, Dialect
from magicbyte.engine.records.scan import BatchTable, scan
from magicbyte.engine.records.transactions import AbortedRange, CommittedFilter, batch_facts

MAX_BYTES: Final = (4 << 20) - (16 << 10)  # of a response, so that it fits into 4 MiB with its other fields
LARGEST_SET: Final = 64 << 20  # of one set, above which it is an error
_VERSIONS = range(13)  # from version 13 on topics have ids instead of names
_COMMITTED: Final = 4  # the first version with transactions
_CONSUMER, _ANY_REPLICA = -1, -2  # who fetches: Kafka's id of consumers that read from followers, too


class FetchOptions(Struct, frozen=True):
    """How to fetch. `max_bytes` of one response, more only for a single set that is larger, up to `largest_set`.

    `max_wait_ms`: how long the broker waits for `min_bytes`. `committed`: without aborted or open transactions.
    `versions`: of Fetch requests; a lower limit than ours makes brokers convert to older formats. `dialect`: that of
    the fetched sets, for brokers that serve enriched topics unconverted. `ahead`: `read_sets` fetches the next sets
    while its caller works, and holds up to `max_bytes` more.
    """

    max_bytes: int = MAX_BYTES
    largest_set: int = LARGEST_SET
    min_bytes: int = 1
    max_wait_ms: int = 500
    committed: bool = False
    versions: range = _VERSIONS
    dialect: Dialect = Dialect.KAFKA
    ahead: bool = False


DEFAULT_FETCH: Final = FetchOptions()


class ClosedSets(Struct):
    """Whole entries in the order of their offsets: messages, wrappers, batches, as bytes; none is opened.

    The first may begin before the requested offset. `next_offset` is the one to fetch next. `high_watermark`,
    `last_stable_offset` (-1 before 0.11) and `log_start_offset` (-1 before 1.0) are from the response. `table` is the
    shallow walk over `data`, `aborted` the transactions that a reader of committed records leaves out.
    """

    data: memoryview
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    table: BatchTable
    aborted: list[AbortedRange] = field(default_factory=list)


async def fetch_sets(
    client: Source, topic: str, partition: int, offset: int, options: FetchOptions = DEFAULT_FETCH
) -> ClosedSets:
    """Fetch once: the sets from the one with `offset` on; none if no records came within `max_wait_ms`.

    Raises OffsetOutOfRangeError, BatchTooLargeError for a set beyond `largest_set`, CorruptRecordError for bytes that
    are no sets, BrokerError and NetworkError.
    """
    max_bytes = options.max_bytes
    while True:
        asked = max_bytes

        async def ask(node: BrokerNode, size: int = asked) -> PartitionData:
            return await _fetch(client, node, topic, partition, offset, size, options)

        answer = await client.at_leader(topic, partition, ask)
        data = memoryview(b"") if answer.records is None else _joined(answer.records)
        table = scan(data, dialect=options.dialect)
        first, next_offset = _first_row(table, offset, answer.high_watermark)
        if table.damage is not None and first == len(table):
            raise table.damage
        if first < len(table) or not len(data) or table.end == len(data):
            break
        # Brokers before 0.10.1 cut a set that is larger than the limit.
        max_bytes = max(2 * max_bytes, table.need if table.need > LOG_OVERHEAD + 5 else 0)
        if asked >= options.largest_set:
            raise BatchTooLargeError("size of a set", expected=f"<= {options.largest_set}", found=table.need)
        max_bytes = min(max_bytes, options.largest_set)
    if first:
        data = data[table.position[first] if first < len(table) else len(data) :]
        table = scan(data, dialect=options.dialect)
    aborted = [AbortedRange(each.producer_id, each.first_offset) for each in answer.aborted_transactions or []]
    return ClosedSets(
        data[: table.end],
        next_offset,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        table,
        aborted,
    )


async def fetch_from_replica(
    client: Source, node: BrokerNode, topic: str, partition: int, offset: int, options: FetchOptions = DEFAULT_FETCH
) -> BatchTable:
    """Fetch once from one replica, which need not be the leader: the entries from the one with `offset` on, unopened.

    Kafka's brokers answer it since 0.8.2. Raises OffsetOutOfRangeError, BrokerError and NetworkError.
    """
    answer = await _fetch(client, node, topic, partition, offset, options.max_bytes, options, replica_id=_ANY_REPLICA)
    data = memoryview(b"") if answer.records is None else _joined(answer.records)
    return scan(data, dialect=options.dialect)


async def read_sets(
    client: Source,
    topic: str,
    partition: int,
    start: int,
    end: int | None = None,
    options: FetchOptions = DEFAULT_FETCH,
) -> AsyncGenerator[ClosedSets]:
    """Yield the sets that hold the offsets from `start` to before `end`, closed; for ever if `end` is None.

    The first and the last set may reach beyond. If the current high watermark (`committed`: last stable offset) is
    below `end`, it ends there. Raises what `fetch_sets` does.
    """

    def ask(offset: int) -> asyncio.Task[ClosedSets]:
        return asyncio.create_task(fetch_sets(client, topic, partition, offset, options))

    offset, asked = start, ask(start) if options.ahead and (end is None or start < end) else None
    try:
        while end is None or offset < end:
            sets = await (asked or fetch_sets(client, topic, partition, offset, options))
            asked, before, offset = None, offset, sets.next_offset
            if options.ahead and sets.data and (end is None or offset < end):
                asked = ask(offset)
            if end is not None:
                sets = _up_to(sets, end, options.dialect)
            if sets.data:
                yield sets
            elif end is not None and before >= _readable_end(sets, options):
                return
            elif offset == before < _readable_end(sets, options):
                await asyncio.sleep(options.max_wait_ms / 1000)
    finally:
        if asked is not None:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)


async def read_records(
    client: Source,
    topic: str,
    partition: int,
    start: int,
    end: int | None = None,
    options: FetchOptions = DEFAULT_FETCH,
    decoding: DecodeOptions = DEFAULT_OPTIONS,
) -> AsyncGenerator[RecordColumns]:
    """Yield the records with offsets from `start` to before `end` in columns; for ever if `end` is None.

    The offsets inside wrappers are computed by the rule of the dialect: from the last message in Kafka's, from the
    first in the enriched one. Raises what `fetch_sets` and `decode` do.
    """
    size = 0
    async with contextlib.aclosing(read_sets(client, topic, partition, start, end, options)) as sets:
        async for found in sets:
            size += len(found.data)
            expect(size)
            for columns in records_of(found, start, end, options, decoding):
                yield columns


def records_of(
    sets: ClosedSets,
    start: int,
    end: int | None = None,
    options: FetchOptions = DEFAULT_FETCH,
    decoding: DecodeOptions = DEFAULT_OPTIONS,
) -> Iterator[RecordColumns]:
    """Yield the records of closed sets with offsets from `start` to before `end`, if any. Raises what `decode` does.

    `options` are those of the fetch. It may be called in a thread, during the next fetch.
    """
    for columns in _decoded(sets, options, decoding):
        part = _within(columns, start, end)
        if len(part):
            yield part


def _decoded(found: ClosedSets, options: FetchOptions, decoding: DecodeOptions) -> Iterator[RecordColumns]:
    if not (options.committed and found.aborted):
        yield from decode(found.data, decoding, dialect=options.dialect)
        return
    yield from decode_rows(found.table, delivered_rows(found), decoding)


def delivered_rows(found: ClosedSets) -> list[int]:
    """Return the rows for a reader of committed records. Raises CorruptRecordError."""
    committed = CommittedFilter(found.aborted, found.last_stable_offset)
    rows = []
    for row in range(len(found.table)):
        entry = parse_entry(found.data[found.table.position[row] :], found.table.dialect)
        assert entry is not None, "the scan has seen all of it"
        if committed.delivers(batch_facts(entry)):
            rows.append(row)
    return rows


async def _fetch(
    client: Source,
    node: BrokerNode,
    topic: str,
    partition: int,
    offset: int,
    max_bytes: int,
    options: FetchOptions,
    replica_id: int = _CONSUMER,
) -> PartitionData:
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=options.max_wait_ms,
        min_bytes=options.min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(options.committed),
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)],
            )
        ],
    )
    oldest = max(_COMMITTED - options.versions[0], 0) if options.committed else 0
    response = await client.ask(
        node, request, FetchResponse, versions=options.versions[oldest:], wait_ms=options.max_wait_ms
    )
    what = f"fetch of {topic}-{partition} at {offset}"
    if response.error_code:
        raise BrokerError(what, response.error_code, broker=str(node))
    found = only(only(response.responses, "topics").partitions, "partitions")
    if found.error_code == OffsetOutOfRangeError.code:
        raise OffsetOutOfRangeError(f"{node}: {what}: the offset is out of the partition's range")
    if found.error_code:
        raise BrokerError(what, found.error_code, broker=str(node))
    return found


def _joined(records: object) -> memoryview:
    assert isinstance(records, memoryview), "records are a view into the frame"
    return records


def offset_behind(table: BatchTable, row: int, end: int) -> int:
    """Return the offset after an entry. Raises CorruptRecordError.

    For an enriched wrapper it may be known only from its content, unless the wrapper reaches the log's `end`, where it
    has no holes yet.
    """
    view = _entry(table, row)
    if view.next_offset is not None:
        return view.next_offset
    least = _least_behind(view)
    if least >= end:
        return least
    data = table.buffer[table.position[row] : table.position[row] + table.size[row]]
    return max(int(columns.offset[-1]) for columns in decode(data, dialect=table.dialect)) + 1


def _entry(table: BatchTable, row: int) -> Entry:
    view = parse_entry(table.buffer[table.position[row] :], table.dialect)
    assert view is not None, "the scan has seen all of it"
    return view


def _least_behind(view: Entry) -> int:
    """Return a lower bound of the offset after an enriched wrapper."""
    assert isinstance(view, EnrichedMessage), "of others the header tells it"
    return view.offset + (view.record_count or 1)


def _reaches(table: BatchTable, row: int, offset: int, end: int) -> bool:
    """Return whether an entry holds `offset`, or lies after it. It is opened only if headers do not suffice."""
    view = _entry(table, row)
    if view.next_offset is None and _least_behind(view) > offset:
        return True
    if view.next_offset is None and row + 1 < len(table) and table.offset[row + 1] <= offset:
        return False
    return offset_behind(table, row, end) > offset


def _first_row(table: BatchTable, offset: int, end: int) -> tuple[int, int]:
    """Return the first row that reaches `offset`, and the offset after the last row."""
    if not len(table):
        return 0, offset
    first = 0
    while first < len(table) and not _reaches(table, first, offset, end):
        first += 1
    return first, max(offset, offset_behind(table, len(table) - 1, end))


def _up_to(sets: ClosedSets, end: int, dialect: Dialect) -> ClosedSets:
    """Return the sets up to the one that reaches `end`."""
    if sets.next_offset <= end or not len(sets.table):
        return sets
    row = 0
    while not _reaches(sets.table, row, end - 1, sets.high_watermark):
        row += 1
    if _begins_at(sets.table, row) >= end:
        row -= 1
    data = sets.data[: sets.table.position[row] + sets.table.size[row]] if row >= 0 else sets.data[:0]
    sets.data, sets.table = data, scan(data, dialect=dialect)
    return sets


def _begins_at(table: BatchTable, row: int) -> int:
    """Return the first offset of an entry; of a wrapper whose header has only the last, a lower bound."""
    view = _entry(table, row)
    return -1 if view.base_offset is None else view.base_offset


def _readable_end(found: ClosedSets, options: FetchOptions) -> int:
    known = options.committed and found.last_stable_offset >= 0
    return found.last_stable_offset if known else found.high_watermark


def _within(columns: RecordColumns, start: int, end: int | None) -> RecordColumns:
    first = bisect_left(columns.offset, start)
    last = len(columns) if end is None else bisect_left(columns.offset, end)
    return columns.slice(first, last)
