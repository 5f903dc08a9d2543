"""A producer of single records, which sends them in batches per partition in the background."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct, field

from magicbyte.access.client.groups import TopicPartition
from magicbyte.access.client.partitioning import partition_of
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.access.client.transactions import TransactionalProducer
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, MagicbyteError, NetworkError, UnknownTopicError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from magicbyte.access.client.client import Client

BUFFERED_BYTES: Final = 32 << 20
"""Limit of the bytes of records waiting to be sent. `send` waits above it."""
_OBJECT_BYTES: Final = 200  # memory of a record's objects, about
_OVERHEAD: Final = 16  # approximate bytes of a record besides its key, value and headers


class _Lane(Struct):
    """The records waiting for one partition, and the task that sends them batch by batch."""

    records: list[Record] = field(default_factory=list)
    size: int = 0
    added: int = 0
    done: int = 0
    is_full: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class RecordProducer:
    """Send records to any topics, in batches: `async with client.producer() as producer`.

    The end of the block sends all waiting records. With a transactional id it also commits. An exception aborts
    instead, and `read_committed` consumers never see the transaction's records. The order of records of a partition is
    that of the calls. Without an id, records are stored at least once. A failure is raised by the next `send`, `flush`
    or `commit`, or at the end of the block, and waiting records are dropped. Several tasks may call it: a `send` waits
    while another task commits or aborts.
    """

    def __init__(self, client: Client, transactional_id: str | None, codec: Codec, linger_ms: int) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._transactions: TransactionalProducer | None = None
        self._options = ProduceOptions(codec)
        self._linger_s = linger_ms / 1000
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._counts: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._size = 0
        self._batch_ended = asyncio.Event()
        self._failure: Exception | None = None
        self._ending = asyncio.Lock()

    async def __aenter__(self) -> Self:
        if self._transactional_id is not None:
            self._transactions = await TransactionalProducer.begin(self._client, self._transactional_id)
        return self

    async def __aexit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        try:
            await self._end(error)
        finally:
            await self._drop()  # after a failure: nothing is sent behind the block

    async def _end(self, error: BaseException | None) -> None:
        """Send or drop what waits at the end of a block that raised `error`."""
        if error is None:
            await self._finish()
        elif self._transactions is not None:
            with contextlib.suppress(MagicbyteError):  # the coordinator aborts it after its timeout
                await self.abort()
        elif isinstance(error, Exception):
            with contextlib.suppress(MagicbyteError):  # the first failure is raised
                await self.flush()

    async def _finish(self) -> None:
        if self._transactions is None:
            await self.flush()
            return
        try:
            await self.commit()
        except BaseException:  # left open, the transaction would hold up readers until its timeout
            with contextlib.suppress(MagicbyteError):
                await self.abort()
            raise

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int = NO_TIMESTAMP,
    ) -> None:
        """Add a record to the batch of a partition: `partition`, that of the key, or any.

        Returns before the batch is sent. `timestamp`: ms; by default the time at which the batch is sent. Raises
        UnknownTopicError, and the failure of an earlier batch.
        """
        self._check()
        count = self._counts.get(topic, 0)
        if not count or (partition is not None and partition >= count):
            count = self._counts[topic] = len((await self._client.existing_topic(topic)).partitions)
        if partition is not None and not 0 <= partition < count:
            raise UnknownTopicError(f"partition {partition} of {topic!r}: expected one of 0 to {count - 1}")
        while self._ending.locked():  # a record sent after the end of its transaction would stay pending for ever
            async with self._ending:
                self._check()
        if partition is None:
            partition = self._turns.get(topic, 0) % count if key is None else partition_of(key, count)
        record = Record(0, timestamp, 0, key, value, tuple(headers))
        size = _OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(each or b"") for name, each in record.headers)
        lane = self._lanes.setdefault((topic, partition), _Lane())
        lane.records.append(record)
        lane.added += 1
        lane.size += size
        self._size += size + _OBJECT_BYTES
        if lane.task is None:
            lane.is_full.clear()
            lane.task = asyncio.create_task(self._send_all(topic, partition, lane))
        if lane.size >= self._options.batch_bytes:
            lane.is_full.set()
        while self._size > BUFFERED_BYTES:
            self._hurry()
            await self._next_batch()
            self._check()

    def _hurry(self) -> None:
        """Send all batches without waiting for more records."""
        for lane in self._lanes.values():
            lane.is_full.set()

    async def flush(self) -> None:
        """Send all waiting records, and return when brokers have stored them. Raises BrokerError, NetworkError."""
        self._hurry()
        # Not until the tasks end: other callers may continue adding records. A cancelled call leaves them running.
        wanted = [(lane, lane.added) for lane in self._lanes.values()]
        while self._failure is None and any(lane.done < added for lane, added in wanted):
            await self._next_batch()
        self._check()

    async def _next_batch(self) -> None:
        """Wait until a batch is stored, or a failure."""
        self._batch_ended.clear()
        await self._batch_ended.wait()

    async def commit(self) -> None:
        """Commit the transaction with all records so far. The next `send` begins another. Raises as `flush` does."""
        assert self._transactions is not None, "a producer with a transactional id commits"
        async with self._ending:
            await self.flush()
            await self._transactions.commit()

    async def abort(self) -> None:
        """Abort the transaction: none of its records becomes visible. The next `send` begins another."""
        assert self._transactions is not None, "a producer with a transactional id aborts"
        async with self._ending:
            await self._drop()
            self._failure = None
            await self._transactions.abort()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _drop(self) -> None:
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self._lanes.values():
            lane.done = lane.added
        self._lanes.clear()
        self._size = 0
        self._batch_ended.set()

    async def _send_all(self, topic: str, partition: int, lane: _Lane) -> None:
        """Send the batches of a partition until none waits; the first one when it is full or has lingered."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._linger_s):  # wait_for of 3.11 may swallow a cancellation
                    await lane.is_full.wait()
            while lane.records and self._failure is None:
                records, size = lane.records, lane.size
                lane.records, lane.size = [], 0
                lane.is_full.clear()
                self._turns[topic] = partition + 1  # the next batch without keys goes to the next partition
                if self._transactions is None:
                    await send(self._client, topic, partition, records, self._options)
                else:
                    await self._transactions.send(topic, partition, records, self._options)
                lane.done += len(records)
                self._size -= size + _OBJECT_BYTES * len(records)
                self._batch_ended.set()
                await self._count(topic)
        except Exception as error:  # noqa: BLE001 (any of them, also a bug's, belongs to the caller of send)
            self._failure = self._failure or error
            self._batch_ended.set()
        finally:
            lane.task = None

    async def _count(self, topic: str) -> None:
        """Count the partitions of a topic, which may grow, in the client's metadata, which it refreshes by its age."""
        with contextlib.suppress(BrokerError, NetworkError):  # they are counted again after the next batch
            self._counts[topic] = len((await self._client.topic(topic)).partitions)
