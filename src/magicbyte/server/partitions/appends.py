"""Append to the logs that this broker leads. All appends of producers and of the broker itself go through here.

An append has five phases. Those of a follower (`replica_fetchers.py`) are the same up to the fourth.

1. Validate (a thread): check sizes, checksums and records. A follower, and a set that is appended unchanged:
   `log/append/prepare.prepare_unchanged`; all others: `log/append/sets.validate`.
2. Assign (the same thread, `log/append/prepare.prepare`): set offsets from the log end offset on, and timestamps. A
   follower keeps the leader's.
3. Write (the same thread, `PartitionLog.append`): check the producer's sequence, write bytes and index entries.
4. Publish (the loop, `Appends._publish`): wake waiting followers, and count. Without group commit the records are as
   durable as configured, so that the high watermark may advance.
5. Await (the loop, without locks): the sync of a group commit (`syncs.py`), then with `acks=all` the in-sync replicas
   (`replicated`).

Invariants:
1. Phases 1 to 4 of a set run with the lock of its partition held. So offsets are assigned in the order of the writes.
2. A cancelled task still publishes what it has written: threads finish their work, and there is no wait between its end
   and phase 4.
3. A member of a cluster changes the role of a partition only with its lock held, so a set is published in the role in
   which it was validated. A broker without a cluster leads always; only the epoch may rise meanwhile.
4. Nothing is acknowledged that is not durable as configured: a duplicate waits for the sync of the original, and a sync
   that fails acknowledges no append (`GroupCommit`).
5. A set of a request is refused or stored as a whole, and its failure leaves the other sets alone.

Lock order, the same in every task: `Runtime.directory`; locks of partitions by topic and index; `Runtime.logs_lock`.
Several partition locks may be held while another is awaited only because of this order. `logs_lock` is last because its
exclusive holders (maintenance, deletion) never wait for a partition. Phase 5 begins when all are released: the next
append may share the sync.

A crash before the end of phase 3 leaves nothing, or a torn end, which the next start cuts. A later one, before the
answer, leaves a set that its producer sends again: an idempotent one gets the offsets of the first
(`test_transactions.py`, `tests/engine/log/test_partition_log.py`, check 30). `test_produce_together.py` has invariants
1 and 5 and the lock order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import (
    AppendRefusedError,
    ErrorCode,
    LogDirectoryOfflineError,
    MagicbyteError,
    NotLeaderError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from magicbyte.engine.log.append.prepare import NOTHING_STORED, prepare, prepare_own, prepare_unchanged
from magicbyte.engine.log.append.rules import ALL_ROOM, KEPT_ROOM, KEPT_SCRATCH, Room, RoomNeeded
from magicbyte.engine.log.live.config import FOREVER
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
    OFFSET,
    Dialect,
)
from magicbyte.engine.sentinels import NO_TIMESTAMP
from magicbyte.server.partitions.writes import PartitionLocks, Work, WrittenSet, memory_for, write, write_all
from magicbyte.server.serving.metrics import UNNAMED, ClientSoftware, TopicMetrics, count

if TYPE_CHECKING:
    from magicbyte.engine.log.append.producer_check import Guard
    from magicbyte.engine.log.append.record_set import RecordSet
    from magicbyte.engine.log.append.rules import AppendRules
    from magicbyte.engine.replication.leader import LeaderPartition
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.partitions.syncs import Syncs
    from magicbyte.server.serving.runtime import Runtime

log = logger(__name__)

QUICK_BYTES: Final = 2 << 20  # a set up to this size is usually stored before the loop could do something else
QUICK_SLOW_CODEC_BYTES: Final = 128 << 10
SMALL_BYTES: Final = 64 << 10
"""Maximum size of a set for which the hand-over to a thread costs more than the work, so that it shares a thread."""
TOGETHER_BYTES: Final = 256 << 10
"""Bytes of sets in one piece of work; further ones go to other threads at the same time."""
_USUAL_RATIO: Final = 4
_QUICK_CODECS: Final = (Codec.NONE, Codec.SNAPPY, Codec.LZ4)
WARM_AFTER_BYTES: Final = 1 << 20  # of records, from which the kernels are loaded, in a thread
_ATTRIBUTES: Final = {
    0: MESSAGE_ATTRIBUTES_AT,
    1: MESSAGE_ATTRIBUTES_AT,
    2: ATTRIBUTES_AT + 1,
}  # by magic: the position of the byte with the codec
_LONGEST_HEADER: Final = ATTRIBUTES_AT + 2


class NewSet(Struct, frozen=True):
    """A set to append. `rules` None: it is appended unchanged, as by a follower.

    `request_version`: of the Produce request; `client`: its sender. None: the broker itself has encoded the records,
    and `is_ours` is true. `dialect`: of `records`. `is_ours`: `records` is writable memory without another user.
    `guard`: the verification of a transaction's records, None: any transaction.
    """

    partition: ServedPartition
    records: memoryview
    rules: AppendRules | None
    request_version: int | None = None
    client: ClientSoftware = UNNAMED
    dialect: Dialect = Dialect.KAFKA
    is_ours: bool = False
    guard: Guard | None = None


class Appended(Struct, frozen=True):
    """The result of an append: its offsets, -1 for an empty set. Times in ms, -1 if the records' own were kept.

    `leader`: the role in which it was appended, which knows when it is replicated.
    """

    first_offset: int
    last_offset: int
    log_append_time: int
    leader: LeaderPartition


class Acknowledgement(Struct, frozen=True):
    """An append that is acknowledged when the in-sync replicas have it, at least `least_in_sync` of them."""

    partition: ServedPartition
    appended: Appended
    least_in_sync: int

    def code(self) -> ErrorCode | None:
        """Return its result, None if it is pending."""
        end_offset = self.appended.last_offset + 1
        return self.partition.acknowledgement(self.appended.leader, end_offset, self.least_in_sync)


class Appends:
    """All appends of a broker."""

    def __init__(self, runtime: Runtime, replicas: Replicas, syncs: Syncs) -> None:
        self._runtime, self._replicas, self._syncs = runtime, replicas, syncs
        self._is_old = runtime.offer.newest_format is not Format.V2  # a broker before 0.11
        self._seen_bytes = 0

    async def append(self, new: NewSet) -> Appended:
        """Append a set; return when this replica has it with the durability of the topic's settings.

        Other replicas may not have it yet: `replicated` waits for them. Raises AppendRefusedError, NotLeaderError,
        LogDirectoryOfflineError, and UnknownTopicError if the topic was deleted meanwhile: then nothing was appended.
        For unchanged sets, also OffsetOutOfRangeError unless they lie after the log's end, and CorruptRecordError.
        """
        await self._load_modules((new,))
        return await self._append_one(new)

    async def append_all(self, sets: Sequence[NewSet]) -> list[Appended | Exception]:
        """Append each set as `append` does. Return its results or exceptions.

        Small ones go to a thread together. Those for one partition are appended in order.
        """
        await self._load_modules(sets)  # a set that waited by itself would be overtaken by others of its partition
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
            return await self._append_one(new)
        except Exception as error:  # noqa: BLE001 (the caller raises it, when the other sets need the frame no more)
            return error

    async def _outcomes(self, sets: Sequence[NewSet]) -> list[Appended | Exception]:
        """As `_append_group`; a bug is the outcome of the whole group, and other groups complete."""
        try:
            return await self._append_group(sets)
        except Exception as error:  # noqa: BLE001 (as above)
            return [error] * len(sets)

    # ---- the phases, in order

    async def _append_one(self, new: NewSet) -> Appended:
        if new.rules is None:
            await self._follow_epoch(new)
        elif self._is_old and _is_batch(new.records):
            raise AppendRefusedError(ErrorCode.CORRUPT_MESSAGE, "magic 2 came with 0.11")
        lock = new.partition.lock
        await lock.acquire()  # without `async with`, which costs two calls more
        try:
            written = await self._write(new)
            appended, sync = self._publish(new, written)
        finally:
            lock.release()
        if sync is not None:
            await self._await_sync(new.partition, sync)
        return appended

    async def _append_group(self, sets: Sequence[NewSet]) -> list[Appended | Exception]:
        """Append small sets, each to a different partition, in one piece of work; RoomNeeded: not appended."""
        outcomes: list[Appended | Exception] = []
        syncs: list[tuple[int, asyncio.Future[bool]]] = []
        async with PartitionLocks([new.partition for new in sets]):
            for new, written in zip(sets, await self._write_all(sets), strict=True):
                if isinstance(written, Exception):
                    outcomes.append(written)
                    continue
                appended, sync = self._publish(new, written)
                if sync is not None:
                    syncs.append((len(outcomes), sync))
                outcomes.append(appended)
        for at, sync in syncs:
            try:
                await self._await_sync(sets[at].partition, sync)
            except MagicbyteError as error:
                outcomes[at] = error
        return outcomes

    async def _write(self, new: NewSet) -> WrittenSet:
        """Do phases 1 to 3 of a set; one that decompresses to much waits for memory."""
        records, rules = new.records, new.rules
        written: WrittenSet | Exception
        if rules is not None and len(records) > KEPT_SCRATCH // _USUAL_RATIO and _is_compressed(records):
            written = RoomNeeded()
        else:
            (written,) = await self._write_all((new,), is_quick=_is_quick(records))
        if isinstance(written, RoomNeeded):
            del written  # its traceback refers to scratch memory that others may use
            async with memory_for(self._runtime, rules):
                (written,) = await self._write_all((new,), is_quick=False, has_room=True)
        if not isinstance(written, Exception):
            return written
        try:
            raise written
        finally:
            del written  # with the traceback it would be a cycle, which keeps the request's memory

    async def _write_all(
        self, sets: Sequence[NewSet], *, is_quick: bool = True, has_room: bool = False
    ) -> list[WrittenSet | Exception]:
        runtime = self._runtime
        await runtime.logs_lock.acquire_shared()
        try:
            now = Moment.of(runtime.clock)
            works = [self._work(new, now, has_room=has_room) for new in sets]
            return await write_all(runtime, sets, works, is_quick=is_quick)
        finally:
            runtime.logs_lock.release_shared()

    def _work(self, new: NewSet, now: Moment, *, has_room: bool = False) -> Work | MagicbyteError:
        """Return phases 1 to 3 of a set as work for a thread, or the reason why it cannot be stored."""
        partition, rules = new.partition, new.rules
        try:
            partition.led()
            self._replicas.check_is_there(partition)
        except (UnknownTopicError, NotLeaderError) as error:
            return error
        if rules is None:
            return partial(_write_unchanged, new, now, ALL_ROOM if has_room else KEPT_ROOM)
        how: Callable[..., RecordSet] = prepare_own
        if new.request_version is not None:
            how = partial(prepare, request_version=new.request_version, dialect=new.dialect, is_ours=new.is_ours)
        prepared = partial(
            how,
            new.records,
            rules,
            next_offset=partition.log.log_end_offset,
            now_ms=now.date_ms,
            leader_epoch=partition.leader_epoch,
            has_room=has_room,
        )
        return partial(write, partition.log, prepared, now, new.guard)

    def _publish(self, new: NewSet, written: WrittenSet) -> tuple[Appended, asyncio.Future[bool] | None]:
        """Report a written set to its partition; return its offsets, and a future of the sync that it waits for."""
        records, first, last = written.records, written.first_offset, written.last_offset
        partition, rules = new.partition, new.rules
        leader, log = partition.led(), partition.log
        if first == NOTHING_STORED:
            return Appended(NOTHING_STORED, NOTHING_STORED, NO_TIMESTAMP, leader), None
        sync = None
        if first == records.first_offset:
            partition.publish(first, records.size, records.newest_magic if rules is None else rules.format.magic)
            if log.config.group_commit:
                sync = self._syncs.next(partition)
            else:
                partition.advance_leader(log.log_end_offset, self._runtime.clock.monotonic_ms())
        elif log.config.group_commit and last >= log.recovery_point:
            sync = self._syncs.next(partition)  # a duplicate of a batch whose sync is pending
        if rules is not None and new.request_version is not None:
            source = Format.ENRICHED if new.dialect is Dialect.ENRICHED else KAFKA_FORMATS[new.records[MAGIC.start]]
            what = (source, rules.format, new.request_version, new.client)
            _count(self._runtime.metrics.of(partition.topic), what, len(new.records), records, written.validated_ns)
        return Appended(first, last, records.log_append_time, leader), sync

    async def _await_sync(self, partition: ServedPartition, sync: asyncio.Future[bool]) -> None:
        """Wait until the written set has its configured durability. Raises LogDirectoryOfflineError."""
        if not await sync:
            self._replicas.check_is_there(partition)
            raise LogDirectoryOfflineError(f"{partition}: cannot sync the appended batch")

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

    # ---- before the phases

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
            and not (self._is_old and _is_batch(new.records))
        )

    async def _follow_epoch(self, new: NewSet) -> None:
        """Raise the leader epoch to that of unchanged batches: consumers that saw it reject older epochs."""
        batches = entries(new.records.toreadonly(), new.dialect)
        epoch = max((entry.partition_leader_epoch for _, entry in batches), default=-1)
        if epoch > new.partition.leader_epoch:
            await self._replicas.raise_leader_epoch(new.partition, epoch)

    async def _load_modules(self, sets: Iterable[NewSet]) -> None:
        """Load the modules that sets need; the kernels in the background, as no request waits for them."""
        for new in sets:
            if new.rules is None:
                continue
            size = len(new.records)
            if self._seen_bytes < WARM_AFTER_BYTES <= self._seen_bytes + size:
                self._runtime.spawn(self._runtime.writing.warm_kernels())
            self._seen_bytes += size
            if new.request_version is not None and not _is_plain_batch(new.records):
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


def _write_unchanged(new: NewSet, now: Moment, room: Room) -> WrittenSet:
    """Write a set with its own offsets and leader epochs, as a follower does.

    Raises OffsetOutOfRangeError, and RoomNeeded for a wrapper that exceeds `room`.
    """
    partition, records = new.partition, new.records.toreadonly()
    log, end = partition.log, partition.log.log_end_offset
    first = OFFSET.read(records) if len(records) >= LOG_OVERHEAD else 0
    if records and first < end:
        raise OffsetOutOfRangeError(f"{partition}: expected offsets from {end} on, found {first}")
    unchanged = partial(prepare_unchanged, records, log.config.rules, next_offset=end, dialect=new.dialect, room=room)
    return write(log, unchanged, now)


def _is_plain_batch(records: memoryview) -> bool:
    """Return whether a set is an uncompressed batch, which needs no NumPy if it is stored unchanged."""
    return _is_batch(records) and not records[_ATTRIBUTES[2]] & CODEC_MASK


def _is_batch(records: memoryview) -> bool:
    return len(records) >= _LONGEST_HEADER and records[MAGIC.start] == Format.V2.magic


def _count(
    metrics: TopicMetrics,
    what: tuple[Format, Format, int, ClientSoftware],
    size: int,
    stored: RecordSet,
    spent_ns: int,
) -> None:
    count(metrics.produced, what, size, 1, spent_ns, stored.records)
    if stored.compressed:
        metrics.recompressions_done += 1
    elif stored.decompressed and not stored.rebuilt:
        metrics.recompressions_avoided += 1
