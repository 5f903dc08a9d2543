"""A synchronous view of a topic in a running cluster, with the interface of a partition folder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.access.client.client import Client
from magicbyte.access.client.fetch import ClosedSets, FetchOptions, delivered_rows, read_sets
from magicbyte.access.client.offsets import LATEST, bounds, list_offset
from magicbyte.access.client.settings import client_arguments
from magicbyte.access.workers import in_order
from magicbyte.engine.compiled.kernel import expect
from magicbyte.engine.errors import UnknownTopicError
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.reader import (
    EVERYTHING,
    DamageHandler,
    Isolation,
    Selection,
    decode_chunk,
    held_bytes,
    select_records,
    stop_at_damage,
)
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.records.columns import RecordColumns
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DEFAULT_OPTIONS, DecodeOptions
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import BatchTable

SCHEME: Final = "kafka://"
_WITH_TIMES: Final = range(1, 10)  # versions that search by record timestamps


class FetchedPartition(Struct):
    """A partition from its log start offset, `first`, to its high watermark when it was looked up, `end`.

    It is read as `SegmentReader` reads a folder. `path` is the address by which it was opened, with the partition's
    number.
    """

    path: str
    topic: str
    partition: int
    first: int
    end: int
    options: FetchOptions
    _client: Client
    _runner: asyncio.Runner

    @property
    def name(self) -> str:
        """The partition as `topic-partition`."""
        return f"{self.topic}-{self.partition}"

    @property
    def dialect(self) -> Dialect:
        """The dialect of the brokers' responses."""
        return self.options.dialect

    def tables(self) -> Iterator[BatchTable]:
        """Yield closed sets, as stored by the brokers. Raises as `read_sets` does."""
        for found in self._sets(self.first, self.end, self.options):
            yield found.table

    def chunks(
        self,
        *,
        first: int = 0,
        limit: int = DEFAULT_MAX_BATCH_BYTES,
        on_damage: DamageHandler = stop_at_damage,  # noqa: ARG002 (a fetch cannot continue after damage)
    ) -> Iterator[Chunk]:
        """Yield closed sets from the one with offset `first` on; positions count as if all were in one file."""
        position = 0
        options = replace(self.options, largest_set=limit)
        for found in self._sets(max(first, self.first), self.end, options):
            yield Chunk(self.path, position, found.table)
            position += found.table.end

    def records(
        self,
        selection: Selection = EVERYTHING,
        options: DecodeOptions = DEFAULT_OPTIONS,
        *,
        threads: int = 1,
        on_damage: DamageHandler = stop_at_damage,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Iterator[RecordColumns]:
        """Yield the selected records in offset order. Damage is reported as the sets are decoded.

        Raises as `read_sets` does; UnsupportedVersionError for committed records of brokers before 0.11.
        """
        selection = replace(selection, first=self._first_of(selection), end=min(selection.end, self.end))
        committed = selection.isolation is Isolation.READ_COMMITTED
        asked = replace(self.options, committed=committed, largest_set=options.limit)

        def work() -> Iterator[tuple[Chunk, list[int]]]:
            position = 0
            for sets in self._sets(selection.first, selection.end, asked):
                expect(position + sets.table.end)
                rows = delivered_rows(sets) if committed else list(range(len(sets.table)))
                if rows:
                    yield Chunk(self.path, position, sets.table), rows
                position += sets.table.end
                progress(sets.table.end)

        for columns in in_order(work(), lambda item: decode_chunk(*item, options, on_damage), threads, size=held_bytes):
            chosen = select_records(columns, selection)
            if len(chosen):
                yield chosen

    def _first_of(self, selection: Selection) -> int:
        """Return the first offset to read; for a time limit only if brokers can search by record timestamps."""
        first = max(selection.first, self.first)
        if selection.since is None:
            return first
        found = self._runner.run(self._of_time(selection.since))
        return first if found is None else max(first, found)

    async def _of_time(self, since: int) -> int | None:
        connection = await self._client.any_connection()
        if connection.versions.latest(APIS[ApiKey.LIST_OFFSETS], _WITH_TIMES) is None:
            return None
        found = (await list_offset(self._client, self.topic, self.partition, since)).offset
        return (await list_offset(self._client, self.topic, self.partition, LATEST)).offset if found is None else found

    def _sets(self, start: int, end: int, options: FetchOptions) -> Iterator[ClosedSets]:
        sets = read_sets(self._client, self.topic, self.partition, start, end, options)
        while (found := self._runner.run(anext(sets, None))) is not None:
            if len(found.table):
                yield found


@contextlib.contextmanager
def open_topic(
    address: str, dialect: Dialect | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[list[FetchedPartition]]:
    """Connect to `kafka://HOST:PORT[,HOST:PORT…]/TOPIC[/PARTITION]`, and yield the partitions for the block.

    Nothing is written, and no topic is created. `dialect`: of the brokers' responses, if it is not Kafka's. `settings`:
    of the client, by Kafka's names. Raises ValueError for an invalid address, InvalidConfigError, SecurityError,
    UnknownTopicError, BrokerError and NetworkError.
    """
    bootstrap, _, rest = address.removeprefix(SCHEME).partition("/")
    topic, slash, number = rest.partition("/")
    if not address.startswith(SCHEME) or not bootstrap or not topic or (slash and not number.isdecimal()):
        raise ValueError(f"{address!r}: expected {SCHEME}HOST:PORT/TOPIC or {SCHEME}HOST:PORT/TOPIC/PARTITION")
    options = FetchOptions(dialect=dialect or Dialect.KAFKA)
    with asyncio.Runner() as runner:
        client = Client(bootstrap, **client_arguments(settings or {}))
        try:
            yield [
                FetchedPartition(f"{SCHEME}{bootstrap}/{topic}-{index}", topic, index, *ends, options, client, runner)
                for index, ends in runner.run(_partitions(client, topic, int(number) if number else None)).items()
            ]
        finally:
            runner.run(client.aclose())


async def _partitions(client: Client, topic: str, number: int | None) -> dict[int, tuple[int, int]]:
    """Return start and end of each partition, or of the requested one."""
    found = sorted((await client.existing_topic(topic)).partitions)
    if number is not None and number not in found:
        raise UnknownTopicError(f"partition {number} of {topic!r}: expected one of 0 to {len(found) - 1}")
    return {index: await bounds(client, topic, index) for index in (found if number is None else [number])}
