"""Appends to the logs that this broker leads: validated and written in a thread, one by one, durable as asked.

Whoever has records for a partition comes here: producers, and the broker itself for its own topics.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from magicbyte.broker.metrics import UNNAMED, Client, TopicMetrics, count, now_ns
from magicbyte.codecs import Codec
from magicbyte.errors import (
    AppendRefusedError,
    ErrorCode,
    LogDirectoryOfflineError,
    OffsetOutOfRangeError,
    OutOfDescriptorsError,
)
from magicbyte.log.append import NOTHING_STORED, PreparedAppend, prepare, take
from magicbyte.log.append_set import KEPT_SCRATCH, RoomNeeded
from magicbyte.log.config import FOREVER
from magicbyte.log.group_commit import GroupCommit, Outcome
from magicbyte.log.record_set import record_set
from magicbyte.ports import Moment
from magicbyte.records.encode import Format
from magicbyte.records.entry import entries
from magicbyte.records.layout import CODEC_MASK, LOG_OVERHEAD, MAGIC, NO_TIMESTAMP, OFFSET, Dialect
from magicbyte.wire import kernel

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker
    from magicbyte.broker.partition import Partition
    from magicbyte.log.append_rules import AppendRules
    from magicbyte.log.partition_log import PartitionLog

T = TypeVar("T")

log = logging.getLogger(__name__)

QUICK_BYTES: Final = 2 << 20  # of a set that is mostly stored before the loop would wait for something else
QUICK_SLOW_CODEC_BYTES: Final = 128 << 10
DECOMPRESSED_TIMES: Final = 4
"""Memory that is counted for a set of much, in times of what it may decompress to: it may have to be written anew."""
_USUAL_RATIO: Final = 4
_QUICK_CODECS: Final = (Codec.NONE, Codec.SNAPPY, Codec.LZ4)
WARM_AFTER_BYTES: Final = 1 << 20  # of records, from which on the kernels are loaded, in a thread
_POLL_S: Final = 0.2
_FORMATS: Final = (Format.V0, Format.V1, Format.V2)  # by magic
_ATTRIBUTES: Final = {0: 17, 1: 17, 2: 22}  # position of the byte that has the codec, by magic
_LONGEST_HEADER: Final = 23


class Appended(NamedTuple):
    """Where a set is now: its offsets, -1 for a set of nothing. Times in ms, -1 where the records' own were kept."""

    first_offset: int
    last_offset: int
    log_append_time: int


class _Stored(NamedTuple):
    """What was to be written, where it is now, and how long it took to look it through."""

    prepared: PreparedAppend
    first_offset: int
    last_offset: int
    spent_ns: int


class _Waiter(NamedTuple):
    """Who waits for a sync, and what readers can have then."""

    partition: Partition
    end_offset: int
    done: asyncio.Future[bool]

    def tell(self, *, durable: bool) -> None:
        if not self.done.done():
            self.done.set_result(durable)


class Appends:
    """All appends of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._seen_bytes = 0
        self._commits = GroupCommit[_Waiter]()
        self._committer: asyncio.Task[None] | None = None

    async def append(
        self,
        partition: Partition,
        records: memoryview,
        rules: AppendRules,
        *,
        request_version: int | None = None,
        client: Client = UNNAMED,
        dialect: Dialect = Dialect.KAFKA,
        is_ours: bool = False,
    ) -> Appended:
        """Append a set; return when it is as durable as the topic's settings ask for, and readers can have it.

        `request_version`: of the Produce request, None for what the broker writes itself; `client`: whose it is.
        `dialect`: of `records`. `is_ours`: nobody else needs those, which are in memory that can be written to.
        Raises AppendRefusedError, LogDirectoryOfflineError, and UnknownTopicError where the topic was deleted
        meanwhile: then nothing of it is in the log.
        """
        broker = self._broker
        if broker.release.newest_format is not Format.V2 and _is_batch(records):
            raise AppendRefusedError(ErrorCode.CORRUPT_MESSAGE, "magic 2 came with 0.11")
        self._expect(len(records))
        if not _is_plain_batch(records):
            await broker.load_numpy()
        async with partition.lock:
            now, end_before = Moment.of(broker.clock), partition.log.log_end_offset
            work = partial(
                prepare,
                records,
                rules,
                next_offset=end_before,
                now_ms=now.date_ms,
                leader_epoch=broker.topics.leader_epoch(partition.topic, partition.index),
                request_version=request_version,
                dialect=dialect,
                is_ours=is_ours,
            )
            prepared, first, last, spent = await self._stored(partition, records, rules, work, now)
            if first == NOTHING_STORED:
                return Appended(NOTHING_STORED, NOTHING_STORED, NO_TIMESTAMP)
            is_new = first >= end_before
            magic = rules.format.magic
            durable = self._written(partition, prepared.first_offset, prepared.size, magic) if is_new else None
            if request_version is not None:
                magic = records[MAGIC.start]
                source = Format.ENRICHED if dialect is Dialect.ENRICHED else _FORMATS[magic]
                what = (source, rules.format, request_version, client)
                _count(broker.metrics.of(partition.topic), what, len(records), prepared, spent)
        await self._check_durable(partition, durable)
        return Appended(first, last, prepared.log_append_time)

    async def _stored(
        self,
        partition: Partition,
        records: memoryview,
        rules: AppendRules,
        look_through: Callable[..., PreparedAppend],
        now: Moment,
    ) -> _Stored:
        """Look a set through and write it; one that holds much more than it is long waits for memory to do so."""
        if not _is_compressed(records) or len(records) <= KEPT_SCRATCH // _USUAL_RATIO:
            work = partial(_store, partition.log, partial(look_through, has_room=False), now)
            with suppress(RoomNeeded):
                return await self._write(partition, work, is_quick=_is_quick(records))
        async with self._broker.memory.work(DECOMPRESSED_TIMES * rules.max_decompressed_bytes):
            self._broker.trimming.ask()
            work = partial(_store, partition.log, look_through, now)
            return await self._write(partition, work, is_quick=False)

    async def take(self, partition: Partition, records: memoryview, dialect: Dialect) -> Appended:
        """Append sets as a follower does: their bytes, offsets and leader epochs stay what they are.

        Nothing is asked of them but that they are whole and lie behind the log's end. Raises OffsetOutOfRangeError for
        those that do not, CorruptRecordError, LogDirectoryOfflineError and UnknownTopicError.
        """
        log = partition.log
        await self._follow_epoch(partition, records, dialect)
        async with partition.lock:
            end, first = log.log_end_offset, OFFSET.read(records) if len(records) >= LOG_OVERHEAD else 0
            if records and first < end:
                raise OffsetOutOfRangeError(f"{partition}: expected offsets from {end} on, found {first}")
            taken = await asyncio.to_thread(take, records, next_offset=end, dialect=dialect)
            if taken.first_offset == NOTHING_STORED:
                return Appended(NOTHING_STORED, NOTHING_STORED, NO_TIMESTAMP)
            made = record_set(taken.data, log.config.rules, dialect)
            await self._write(partition, partial(log.append, made, Moment.of(self._broker.clock)))
            durable = self._written(partition, taken.first_offset, made.size, 2 if made.batches else 1)
        await self._check_durable(partition, durable)
        return Appended(taken.first_offset, taken.last_offset, NO_TIMESTAMP)

    async def _follow_epoch(self, partition: Partition, records: memoryview, dialect: Dialect) -> None:
        """Lead in no earlier epoch than that of batches which are taken: readers that saw one go by no older word."""
        broker, where = self._broker, (partition.topic, partition.index)
        epoch = max((entry.partition_leader_epoch for _, entry in entries(records, dialect)), default=-1)
        if epoch > broker.topics.leader_epoch(*where):
            async with broker.directory:
                await broker.writing.run(broker.topics.raise_leader_epoch, *where, epoch)

    async def _write(self, partition: Partition, write: Callable[[], T], *, is_quick: bool = True) -> T:
        """Write what is prepared, in a thread, which waits for the disk where something is synced."""
        log, gate, threads = partition.log, self._broker.gate, self._broker.writing
        await gate.enter()
        try:
            self._broker.check_is_there(partition)
            is_quick = is_quick and log.config.flush_messages == FOREVER
            return await (self._broker.soon(threads, partition, write) if is_quick else threads.run(write))
        finally:
            gate.leave()

    async def _check_durable(self, partition: Partition, durable: asyncio.Future[bool] | None) -> None:
        """Wait until what was written is as durable as it is to be. Raises LogDirectoryOfflineError."""
        if durable is not None and not await durable:
            self._broker.check_is_there(partition)
            raise LogDirectoryOfflineError(f"{partition}: what was appended could not be made durable")

    def _written(self, partition: Partition, first_offset: int, size: int, magic: int) -> asyncio.Future[bool] | None:
        """Let readers have what was written, now or when it is durable; return what says so."""
        partition.appended(first_offset, size, magic)
        if not partition.log.config.group_commit:
            partition.advance(partition.log.log_end_offset)
            return None
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        end = partition.log.log_end_offset
        self._commits.wait(partition.log, _Waiter(partition, end, done))
        if self._committer is None:
            self._committer = self._broker.spawn(self._commit())
        return done

    async def _commit(self) -> None:
        """Sync, for all who wait by then, until nobody does."""
        try:
            while len(self._commits):
                await self._broker.gate.enter()  # no log is deleted while it is synced
                try:
                    running, started = self._commits.begin(), now_ns()
                    try:
                        await self._broker.writing.run(running.run)
                    except (OSError, OutOfDescriptorsError) as error:
                        outcome = Outcome(durable=[], lost=self._commits.fail(running, error))
                    else:
                        outcome = self._commits.end(running, self._broker.clock.monotonic_ms())
                        self._broker.metrics.syncs.add([now_ns() - started])
                finally:
                    self._broker.gate.leave()
                for waiter in outcome.durable:
                    waiter.partition.advance(waiter.end_offset)
                    waiter.tell(durable=True)
                for waiter in outcome.lost:
                    waiter.tell(durable=False)
        finally:
            self._committer = None

    def _expect(self, size: int) -> None:
        """Have the kernels loaded, in the background, once there is work for them: no request waits for that."""
        if self._seen_bytes < WARM_AFTER_BYTES <= self._seen_bytes + size:
            self._broker.spawn(_warm())
        self._seen_bytes += size


async def _warm() -> None:
    """Load the kernels; where they have to be compiled first, another process does that, as long as it takes."""
    if os.environ.get("MAGICBYTE_KERNELS") == "plain":
        return
    if not kernel.is_warm():
        compiler = subprocess.Popen([sys.executable, "-m", "magicbyte", "warm"], stdout=subprocess.DEVNULL)
        try:
            while compiler.poll() is None:
                await asyncio.sleep(_POLL_S)
        finally:
            compiler.kill()
            compiler.wait()
        if not kernel.is_warm():
            log.warning("the fast paths could not be compiled: magicbyte warm ended with %d", compiler.returncode)
            return
    await asyncio.to_thread(kernel.warm)


def _is_quick(records: memoryview) -> bool:
    """Say whether a set is mostly stored so quickly that going on with something else meanwhile would take longer."""
    size = len(records)
    if size <= QUICK_SLOW_CODEC_BYTES:
        return True
    place = _ATTRIBUTES.get(records[MAGIC.start])
    return size <= QUICK_BYTES and place is not None and records[place] & CODEC_MASK in _QUICK_CODECS


def _is_compressed(records: memoryview) -> bool:
    place = _ATTRIBUTES.get(records[MAGIC.start]) if len(records) >= _LONGEST_HEADER else None
    return place is not None and records[place] & CODEC_MASK != 0


def _store(log: PartitionLog, look_through: Callable[[], PreparedAppend], now: Moment) -> _Stored:
    """Look a set through, and write it if there is anything in it."""
    started = now_ns()
    prepared = look_through()
    spent = now_ns() - started
    if prepared.first_offset == NOTHING_STORED:
        return _Stored(prepared, NOTHING_STORED, NOTHING_STORED, spent)
    return _Stored(prepared, *log.append_prepared(prepared, now), spent)


def _is_plain_batch(records: memoryview) -> bool:
    """Say whether a set is an uncompressed batch, which needs no numpy where it is stored as one."""
    return _is_batch(records) and not records[_ATTRIBUTES[2]] & CODEC_MASK


def _is_batch(records: memoryview) -> bool:
    return len(records) >= _LONGEST_HEADER and records[MAGIC.start] == Format.V2.magic


def _count(
    metrics: TopicMetrics,
    what: tuple[Format, Format, int, Client],
    size: int,
    prepared: PreparedAppend,
    spent_ns: int,
) -> None:
    count(metrics.produced, what, size, 1, spent_ns, prepared.records)
    if prepared.compressed:
        metrics.recompressions_done += 1
    elif prepared.decompressed and not prepared.rebuilt:
        metrics.recompressions_avoided += 1
