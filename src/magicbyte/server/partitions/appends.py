"""Append to the logs that this broker leads: validate and write in a thread, one by one, durable as configured.

All appends go through here: those of producers, and the broker's own to internal topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import (
    AppendRefusedError,
    ErrorCode,
    LogDirectoryOfflineError,
    MagicbyteError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutOfDescriptorsError,
    UnknownTopicError,
)
from magicbyte.engine.log.append.prepare import NOTHING_STORED, prepare, prepare_unchanged
from magicbyte.engine.log.append.record_set import RecordSet
from magicbyte.engine.log.append.sets import KEPT_SCRATCH, RoomNeeded
from magicbyte.engine.log.live.config import FOREVER
from magicbyte.engine.log.live.group_commit import GroupCommit, Outcome
from magicbyte.engine.ports import Moment
from magicbyte.engine.printable import logger
from magicbyte.engine.records.encode import KAFKA_FORMATS, Format
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    LOG_OVERHEAD,
    MAGIC,
    MESSAGE_ATTRIBUTES_AT,
    NO_TIMESTAMP,
    OFFSET,
    Dialect,
)
from magicbyte.server.serving.metrics import UNNAMED, ClientSoftware, TopicMetrics, count, now_ns

if TYPE_CHECKING:
    from magicbyte.engine.log.append.producer_check import Guard
    from magicbyte.engine.log.append.rules import AppendRules
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.replication.leader import LeaderPartition
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.serving.runtime import Runtime

log = logger(__name__)
T = TypeVar("T")

QUICK_BYTES: Final = 2 << 20  # a set up to this size is usually stored before the loop could do something else
QUICK_SLOW_CODEC_BYTES: Final = 128 << 10
SMALL_BYTES: Final = 64 << 10
"""Maximum size of a set for which the hand-over to a thread costs more than the work, so that it shares a thread."""
TOGETHER_BYTES: Final = 256 << 10
"""Bytes of sets in one piece of work; further ones go to other threads at the same time."""
DECOMPRESSED_TIMES: Final = 4
"""Memory counted for a large set, as a multiple of its decompressed limit: it may have to be rebuilt."""
_USUAL_RATIO: Final = 4
_QUICK_CODECS: Final = (Codec.NONE, Codec.SNAPPY, Codec.LZ4)
WARM_AFTER_BYTES: Final = 1 << 20  # of records, from which the kernels are loaded, in a thread
_ATTRIBUTES: Final = {
    0: MESSAGE_ATTRIBUTES_AT,
    1: MESSAGE_ATTRIBUTES_AT,
    2: ATTRIBUTES_AT + 1,
}  # by magic: the position of the byte with the codec
_LONGEST_HEADER: Final = ATTRIBUTES_AT + 2


class NewSet(NamedTuple):
    """A set to append. `rules` None: it is appended unchanged, as by a follower.

    `request_version`: of the Produce request, None for the broker's own records; `client`: its sender. `dialect`: of
    `records`. `is_ours`: `records` is writable memory without another user. `guard`: the verification of a
    transaction's records, None: any transaction.
    """

    partition: ServedPartition
    records: memoryview
    rules: AppendRules | None
    request_version: int | None = None
    client: ClientSoftware = UNNAMED
    dialect: Dialect = Dialect.KAFKA
    is_ours: bool = False
    guard: Guard | None = None


class Appended(NamedTuple):
    """The result of an append: its offsets, -1 for an empty set. Times in ms, -1 if the records' own were kept.

    `leader`: the role in which it was appended, which knows when it is replicated.
    """

    first_offset: int
    last_offset: int
    log_append_time: int
    leader: LeaderPartition


class Acknowledgement(NamedTuple):
    """An append that is acknowledged when the in-sync replicas have it, at least `least_in_sync` of them."""

    partition: ServedPartition
    appended: Appended
    least_in_sync: int

    def code(self) -> ErrorCode | None:
        """Return its result, None if it is pending."""
        end_offset = self.appended.last_offset + 1
        return self.partition.acknowledgement(self.appended.leader, end_offset, self.least_in_sync)


class _WrittenSet(NamedTuple):
    """The set to write, its final offsets, and how long its validation took."""

    prepared: RecordSet
    first_offset: int
    last_offset: int
    spent_ns: int


class _Waiter(NamedTuple):
    """An append that waits for a sync. Afterwards readers may read up to `end_offset`."""

    partition: ServedPartition
    end_offset: int
    done: asyncio.Future[bool]

    def tell(self, *, durable: bool) -> None:
        if not self.done.done():
            self.done.set_result(durable)


class Appends:
    """All appends of a broker."""

    def __init__(self, runtime: Runtime, replicas: Replicas) -> None:
        self._runtime, self._replicas = runtime, replicas
        self._seen_bytes = 0
        self._commits = GroupCommit[_Waiter]()
        self._committer: asyncio.Task[None] | None = None

    async def append(self, new: NewSet) -> Appended:
        """Append a set; return when this replica has it with the durability of the topic's settings.

        Other replicas may not have it yet: `replicated` waits for them. Raises AppendRefusedError, NotLeaderError,
        LogDirectoryOfflineError, and UnknownTopicError if the topic was deleted meanwhile: then nothing was appended.
        For unchanged sets, also the errors of `prepare_unchanged`.
        """
        await self._expect((new,))
        return await self._append(new)

    async def _append(self, new: NewSet) -> Appended:
        if new.rules is None:
            return await self.append_unchanged(new.partition, new.records.toreadonly(), new.dialect)
        if self._is_too_new(new):
            raise AppendRefusedError(ErrorCode.CORRUPT_MESSAGE, "magic 2 came with 0.11")
        async with new.partition.lock:
            stored = await self._stored(new, new.rules)
            found, durable = self._taken(new, new.rules, stored)
        await self._check_durable(new.partition, durable)
        return found

    async def replicated(self, waits: Sequence[Acknowledgement], timeout_ms: int) -> list[ErrorCode]:
        """Wait until the in-sync replicas have the appended records (`acks=all`); return the result of each partition.

        REQUEST_TIMED_OUT after `timeout_ms`; the records stay in the log.
        """
        codes = [each.code() for each in waits]
        if None not in codes:
            return [code for code in codes if code is not None]
        changed = asyncio.Event()
        for each in waits:
            each.partition.waiting[changed] = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                    while None in (codes := [each.code() for each in waits]):
                        await changed.wait()
                        changed.clear()
        finally:
            for each in waits:
                each.partition.waiting.pop(changed, None)
        return [ErrorCode.REQUEST_TIMED_OUT if code is None else code for code in codes]

    async def append_all(self, sets: Sequence[NewSet]) -> list[Appended | Exception]:
        """Append each set as `append` does. Return its results or exceptions.

        Small ones go to a thread together. Those for one partition are appended in order.
        """
        await self._expect(sets)  # a set that waited by itself would be overtaken by others of its partition
        if len(sets) == 1:
            return [await self._outcome(sets[0])]
        groups = self._groups(sets)
        if len(groups) == 1:  # usual: without the tasks of `gather`
            found = [await self._outcomes([sets[at] for at in groups[0]])]
        else:
            found = await asyncio.gather(*[self._outcomes([sets[at] for at in group]) for group in groups])
        outcomes: dict[int, Appended | Exception] = {
            at: each for at, each in zip(chain(*groups), chain(*found), strict=True) if not isinstance(each, RoomNeeded)
        }
        alone = [at for at in range(len(sets)) if at not in outcomes]
        results = await asyncio.gather(*[self._outcome(sets[at]) for at in alone])
        outcomes.update(zip(alone, results, strict=True))
        return [outcomes[at] for at in range(len(sets))]

    async def _outcome(self, new: NewSet) -> Appended | Exception:
        try:
            return await self._append(new)
        except Exception as error:  # noqa: BLE001 (the caller raises it, when the other sets need the frame no more)
            return error

    async def _outcomes(self, sets: Sequence[NewSet]) -> list[Appended | Exception]:
        """As `_append_together`; a bug is the outcome of the whole group, and other groups complete."""
        try:
            return await self._append_together(sets)
        except Exception as error:  # noqa: BLE001 (as above)
            return [error] * len(sets)

    async def _append_together(self, sets: Sequence[NewSet]) -> list[Appended | Exception]:
        """Append sets, each to a different partition, in one piece of work of a thread; RoomNeeded: not appended."""
        outcomes: list[Appended | Exception] = []
        waiting: list[tuple[int, asyncio.Future[bool]]] = []
        held: list[asyncio.Lock] = []
        try:
            # Lock order of the append path, the same in every task: first the locks of partitions, sorted by topic and
            # index; then `logs_lock`, shared, inside `_stored_together`. Holding several partition locks while waiting
            # for another is safe only because all tasks acquire them in this order. `logs_lock` comes last because its
            # exclusive holders (maintenance, deletion) never wait for a partition while they hold it. The locks are
            # released before the wait for durability below: the offsets are assigned and the bytes written by then, and
            # the next append may share the same sync.
            for partition in sorted((new.partition for new in sets), key=lambda each: (each.topic, each.index)):
                await partition.lock.acquire()
                held.append(partition.lock)
            for new, stored in zip(sets, await self._stored_together(sets), strict=True):
                if isinstance(stored, Exception):
                    outcomes.append(stored)
                    continue
                assert new.rules is not None, "sets that are taken as they are go alone"
                found, durable = self._taken(new, new.rules, stored)
                if durable is not None:
                    waiting.append((len(outcomes), durable))
                outcomes.append(found)
        finally:
            for lock in held:
                lock.release()
        for at, durable in waiting:
            try:
                await self._check_durable(sets[at].partition, durable)
            except MagicbyteError as error:
                outcomes[at] = error
        return outcomes

    async def _stored_together(self, sets: Sequence[NewSet]) -> list[_WrittenSet | Exception]:
        """Validate and write small sets, with the locks of their partitions held."""
        runtime, partitions = self._runtime, [new.partition for new in sets]
        slowest = max(partitions, key=lambda each: each.is_slow)
        await runtime.logs_lock.acquire_shared()
        try:
            now = Moment.of(runtime.clock)
            works = [self._small_work(new, now) for new in sets]
            found = await runtime.run_short(runtime.writing, slowest, partial(_store_each, works))
        finally:
            runtime.logs_lock.release_shared()
        for partition in partitions:
            partition.is_slow = slowest.is_slow  # it is unknown which of them was slow
        return found

    def _small_work(self, new: NewSet, now: Moment) -> Callable[[], _WrittenSet] | MagicbyteError:
        """Return the work that stores a small set, or the reason why it cannot be stored."""
        assert new.rules is not None, "sets that are taken as they are go alone"
        try:
            self._replicas.check_is_there(new.partition)
            new.partition.led()
        except (UnknownTopicError, NotLeaderError) as error:
            return error
        look_through = partial(self._look_through(new, new.rules, now), has_room=False)
        return partial(_store, new.partition.log, look_through, now, new.guard)

    def _look_through(self, new: NewSet, rules: AppendRules, now: Moment) -> Callable[..., RecordSet]:
        """Return the function that prepares a set for the end of its log."""
        partition = new.partition
        return partial(
            prepare,
            new.records,
            rules,
            next_offset=partition.log.log_end_offset,
            now_ms=now.date_ms,
            leader_epoch=partition.leader_epoch,
            request_version=new.request_version,
            dialect=new.dialect,
            is_ours=new.is_ours,
        )

    async def _stored(self, new: NewSet, rules: AppendRules) -> _WrittenSet:
        """Validate and write a set; one that decompresses to much waits for memory."""
        partition, records, now = new.partition, new.records, Moment.of(self._runtime.clock)
        partition.led()
        look_through = self._look_through(new, rules, now)
        if not _is_compressed(records) or len(records) <= KEPT_SCRATCH // _USUAL_RATIO:
            work = partial(_store, partition.log, partial(look_through, has_room=False), now, new.guard)
            with suppress(RoomNeeded):
                return await self._write(partition, work, is_quick=_is_quick(records))
        async with self._runtime.memory.work(DECOMPRESSED_TIMES * rules.max_decompressed_bytes):
            self._runtime.trimming.ask()
            work = partial(_store, partition.log, look_through, now, new.guard)
            return await self._write(partition, work, is_quick=False)

    def _taken(
        self, new: NewSet, rules: AppendRules, stored: _WrittenSet
    ) -> tuple[Appended, asyncio.Future[bool] | None]:
        """Report a stored batch to its partition; return its offsets, and a future of its durability."""
        prepared, first, last, spent = stored
        leader = new.partition.led()
        if first == NOTHING_STORED:
            return Appended(NOTHING_STORED, NOTHING_STORED, NO_TIMESTAMP, leader), None
        durable, partition, records = None, new.partition, new.records
        if first == prepared.first_offset:
            durable = self._written(partition, first, prepared.size, rules.format.magic)
        elif partition.log.config.group_commit and last >= partition.log.recovery_point:
            durable = self._next_sync(partition)  # a duplicate of a batch whose sync is pending
        if new.request_version is not None:
            source = Format.ENRICHED if new.dialect is Dialect.ENRICHED else KAFKA_FORMATS[records[MAGIC.start]]
            what = (source, rules.format, new.request_version, new.client)
            _count(self._runtime.metrics.of(partition.topic), what, len(records), prepared, spent)
        return Appended(first, last, prepared.log_append_time, leader), durable

    async def append_unchanged(self, partition: ServedPartition, records: memoryview, dialect: Dialect) -> Appended:
        """Append sets as a follower does: with unchanged bytes, offsets and leader epochs.

        They must be whole and lie after the log's end. Raises OffsetOutOfRangeError if they do not, CorruptRecordError,
        LogDirectoryOfflineError and UnknownTopicError.
        """
        log = partition.log
        await self._follow_epoch(partition, records, dialect)
        async with partition.lock:
            leader = partition.led()
            end, first = log.log_end_offset, OFFSET.read(records) if len(records) >= LOG_OVERHEAD else 0
            if records and first < end:
                raise OffsetOutOfRangeError(f"{partition}: expected offsets from {end} on, found {first}")
            rules, writing = log.config.rules, self._runtime.writing
            made = await writing.run(prepare_unchanged, records, rules, next_offset=end, dialect=dialect)
            if not made.size:
                return Appended(NOTHING_STORED, NOTHING_STORED, NO_TIMESTAMP, leader)
            await self._write(partition, partial(log.append, made, Moment.of(self._runtime.clock)))
            durable = self._written(partition, first, made.size, 2 if made.batches else 1)
        await self._check_durable(partition, durable)
        return Appended(first, made.last_offset, NO_TIMESTAMP, leader)

    async def _follow_epoch(self, partition: ServedPartition, records: memoryview, dialect: Dialect) -> None:
        """Raise the leader epoch to that of appended batches: consumers that saw it reject older epochs."""
        epoch = max((entry.partition_leader_epoch for _, entry in entries(records, dialect)), default=-1)
        if epoch > partition.leader_epoch:
            await self._replicas.raise_leader_epoch(partition, epoch)

    async def _write(self, partition: ServedPartition, write: Callable[[], T], *, is_quick: bool = True) -> T:
        """Write a prepared set, in a thread that waits for the disk if a sync is needed."""
        log, lock, threads = partition.log, self._runtime.logs_lock, self._runtime.writing
        await lock.acquire_shared()
        try:
            self._replicas.check_is_there(partition)
            is_quick = is_quick and log.config.flush_messages == FOREVER
            return await (self._runtime.run_short(threads, partition, write) if is_quick else threads.run(write))
        finally:
            lock.release_shared()

    async def _check_durable(self, partition: ServedPartition, durable: asyncio.Future[bool] | None) -> None:
        """Wait until the written set has its configured durability. Raises LogDirectoryOfflineError."""
        if durable is not None and not await durable:
            self._replicas.check_is_there(partition)
            raise LogDirectoryOfflineError(f"{partition}: cannot sync the appended batch")

    def _written(
        self, partition: ServedPartition, first_offset: int, size: int, magic: int
    ) -> asyncio.Future[bool] | None:
        """Report a written batch to its partition, now or once it is durable; return a future of its durability."""
        partition.appended(first_offset, size, magic)
        if not partition.log.config.group_commit:
            partition.written(partition.log.log_end_offset, self._runtime.clock.monotonic_ms())
            return None
        return self._next_sync(partition)

    def _next_sync(self, partition: ServedPartition) -> asyncio.Future[bool]:
        """Return a future of the durability of all records in a partition's log."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        end = partition.log.log_end_offset
        self._commits.wait(partition.log, _Waiter(partition, end, done))
        if self._committer is None:
            self._committer = self._runtime.spawn(self._commit())
        return done

    async def _commit(self) -> None:
        """Sync for all current waiters, repeatedly until there are none."""
        try:
            while len(self._commits):
                await self._runtime.logs_lock.acquire_shared()  # no log is deleted while it is synced
                try:
                    # Appends that arrive during this sync are not covered by it and wait for the next round: an fsync
                    # guarantees only the writes before its start. So one slow disk operation serves all appends
                    # that came during the previous one, and the batch grows by itself when the disk is slow. A timer
                    # would add its delay to an idle broker as well.
                    running, started = self._commits.begin(), now_ns()
                    try:
                        await self._runtime.writing.run(running.run)
                    except Exception as error:
                        if not isinstance(error, OSError | OutOfDescriptorsError):
                            log.exception("a sync ended because of a bug; its appends are refused")
                        outcome = Outcome(durable=[], lost=self._commits.fail(running, error))
                    else:
                        outcome = self._commits.end(running, self._runtime.clock.monotonic_ms())
                        self._runtime.metrics.syncs.add([now_ns() - started])
                finally:
                    self._runtime.logs_lock.release_shared()
                monotonic_ms = self._runtime.clock.monotonic_ms()
                for waiter in outcome.durable:
                    waiter.partition.written(waiter.end_offset, monotonic_ms)
                    waiter.tell(durable=True)
                for waiter in outcome.lost:
                    waiter.tell(durable=False)
        finally:
            self._committer = None

    def _groups(self, sets: Sequence[NewSet]) -> list[list[int]]:
        """Return which sets share a piece of work: small ones that need not wait, each of a different partition."""
        seen: set[ServedPartition] = set()
        groups, group, size = list[list[int]](), list[int](), 0
        for at, new in enumerate(sets):
            is_first = new.partition not in seen
            seen.add(new.partition)
            if not is_first or not self._is_small(new):
                continue
            if size + len(new.records) > TOGETHER_BYTES:
                groups.append(group)
                group, size = [], 0
            group.append(at)
            size += len(new.records)
        return [group for group in (*groups, group) if len(group) > 1]

    def _is_small(self, new: NewSet) -> bool:
        """Return whether a set can be stored soon: without waiting for its partition, a sync or memory."""
        partition = new.partition
        return (
            new.rules is not None
            and len(new.records) <= SMALL_BYTES
            and partition.log.config.flush_messages == FOREVER
            and not partition.lock.locked()
            and not self._is_too_new(new)
        )

    def _is_too_new(self, new: NewSet) -> bool:
        return self._runtime.offer.newest_format is not Format.V2 and _is_batch(new.records)

    async def _expect(self, sets: Iterable[NewSet]) -> None:
        """Load the modules that sets need; the kernels in the background, as no request waits for them."""
        for new in sets:
            if new.rules is None:
                continue
            size = len(new.records)
            if self._seen_bytes < WARM_AFTER_BYTES <= self._seen_bytes + size:
                self._runtime.spawn(self._runtime.writing.warm_kernels())
            self._seen_bytes += size
            if not _is_plain_batch(new.records):
                await self._runtime.load_numpy()


def _is_quick(records: memoryview) -> bool:
    """Return whether a set is usually stored faster than the loop could switch to other work."""
    size = len(records)
    if size <= QUICK_SLOW_CODEC_BYTES:
        return True
    place = _ATTRIBUTES.get(records[MAGIC.start])
    return size <= QUICK_BYTES and place is not None and records[place] & CODEC_MASK in _QUICK_CODECS


def _is_compressed(records: memoryview) -> bool:
    place = _ATTRIBUTES.get(records[MAGIC.start]) if len(records) >= _LONGEST_HEADER else None
    return place is not None and records[place] & CODEC_MASK != 0


def _store(log: PartitionLog, look_through: Callable[[], RecordSet], now: Moment, guard: Guard | None) -> _WrittenSet:
    """Validate a set, and write it unless it is empty."""
    started = now_ns()
    prepared = look_through()
    spent = now_ns() - started
    if prepared.first_offset == NOTHING_STORED:
        return _WrittenSet(prepared, NOTHING_STORED, NOTHING_STORED, spent)
    return _WrittenSet(prepared, *log.append_prepared(prepared, now, guard), spent)


def _store_each(works: Iterable[Callable[[], _WrittenSet] | MagicbyteError]) -> list[_WrittenSet | Exception]:
    """Store sets; return the result of each. Whatever happens, the others are stored and made readable."""
    outcomes: list[_WrittenSet | Exception] = []
    for work in works:
        try:
            outcomes.append(work if isinstance(work, MagicbyteError) else work())
        except Exception as error:  # noqa: BLE001 (it is raised where the set is answered)
            outcomes.append(error)
    return outcomes


def _is_plain_batch(records: memoryview) -> bool:
    """Return whether a set is an uncompressed batch, which needs no NumPy if it is stored unchanged."""
    return _is_batch(records) and not records[_ATTRIBUTES[2]] & CODEC_MASK


def _is_batch(records: memoryview) -> bool:
    return len(records) >= _LONGEST_HEADER and records[MAGIC.start] == Format.V2.magic


def _count(
    metrics: TopicMetrics,
    what: tuple[Format, Format, int, ClientSoftware],
    size: int,
    prepared: RecordSet,
    spent_ns: int,
) -> None:
    count(metrics.produced, what, size, 1, spent_ns, prepared.records)
    if prepared.compressed:
        metrics.recompressions_done += 1
    elif prepared.decompressed and not prepared.rebuilt:
        metrics.recompressions_avoided += 1
