"""The partitions that share groups read here: the records in flight of those that this broker leads.

`engine/sharing/share_partition.py` decides. Here it gets what the log has, the time, and its stored state.

Invariants:
1. The records in flight belong to one term of leadership and one state epoch. After either has ended they are dropped,
   and read again from the stored state.
2. One read at a time leads to an acquisition, so no two members read the same records.
3. Changes are stored in the order in which they were made.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.engine.errors import ErrorCode, NotLeaderError, OffsetOutOfRangeError
from magicbyte.engine.log.live.lookups import aborted_in_slice
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.extent import header_lasts
from magicbyte.engine.records.layout import (
    CONTROL_BIT,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
    Dialect,
)
from magicbyte.engine.records.scan import scan
from magicbyte.engine.sharing.share_partition import (
    AcquiredRun,
    DeliveryChange,
    LogBatch,
    RecordAcknowledgement,
    SharePartition,
    ShareRules,
    Wanted,
)
from magicbyte.engine.sharing.states import UNSET, StateKey
from magicbyte.server.coordinating.coordinating import set_result_if_pending
from magicbyte.server.partitions.conversion import SliceConversion, converted

if TYPE_CHECKING:
    from magicbyte.engine.log.files.indexes import AbortedTransaction
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.replication.leader import LeaderPartition
    from magicbyte.server.coordinating.share_states import ReadState, ShareStateClient
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.serving.runtime import Runtime

_MOST_READ_BYTES: Final = 4 << 20  # of a partition at once; a larger batch is read as a whole
_LARGEST_BATCH_BYTES: Final = 128 << 20  # decompressed, of a log in the enriched format
_ENDED: Final = frozenset({ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH})
EARLIEST: Final = "earliest"


class ReadBatches(NamedTuple):
    """What a read of the log has found: batches, where each begins in `data`, and the end of the last one."""

    batches: Sequence[LogBatch]
    positions: Sequence[int]
    data: memoryview


class Delivery(NamedTuple):
    """Records that a member has acquired, with the batches that have them."""

    runs: Sequence[AcquiredRun]
    data: memoryview


class SharedPartition:
    """The records in flight of a partition for a group, in one term of leadership.

    `waiting` are set when records may have become available.
    """

    def __init__(
        self, key: StateKey, partition: ServedPartition, leader: LeaderPartition, state_epoch: int,
        records: SharePartition,
    ) -> None:  # fmt: skip
        self.key, self.partition, self.leader, self.state_epoch = key, partition, leader, state_epoch
        self.leader_epoch = partition.leader_epoch
        self.records = records
        self.reading = asyncio.Lock()
        self.waiting: dict[asyncio.Event, None] = {}
        self.to_store = deque[
            tuple[DeliveryChange, asyncio.Future[ErrorCode]]
        ]()  # in the order in which they were made
        self.timer: asyncio.TimerHandle | None = None
        self.timer_ms = 0

    @property
    def is_current(self) -> bool:
        """Whether the broker still leads the partition in the same term."""
        return self.partition.leader is self.leader and self.partition.leader_epoch == self.leader_epoch

    def wake(self) -> None:
        """Wake the fetches that wait for available records."""
        for event in self.waiting:
            event.set()


class SharedPartitions:
    """All partitions that share groups read at this broker."""

    def __init__(self, runtime: Runtime, replicas: Replicas, client: ShareStateClient) -> None:
        self._runtime, self._replicas, self._client = runtime, replicas, client
        self._open: dict[StateKey, SharedPartition] = {}
        self._opening: dict[StateKey, asyncio.Lock] = {}
        config = runtime.config
        self.rules = ShareRules(
            lock_ms=config.group_share_record_lock_duration_ms,
            delivery_limit=config.group_share_delivery_count_limit,
            most_in_flight=config.group_share_partition_max_record_locks,
            eases_near_limit=runtime.offer.keeps_assignment_epochs,
        )
        self._is_committed = config.group_share_isolation_level == "read_committed"

    async def opened(self, key: StateKey, topic: str) -> SharedPartition | ErrorCode:
        """Return a partition with its records in flight, which are read from the stored state if needed.

        Raises UnknownTopicError, NotLeaderError and others of `Replicas.opened`.
        """
        partition = await self._replicas.opened(topic, key.partition)
        if (known := self._known(key, partition)) is not None:
            return known
        lock = self._opening.setdefault(key, asyncio.Lock())
        async with lock:
            try:
                known = self._known(key, partition)
                return known if known is not None else await self._begun(key, partition)
            finally:
                self._opening.pop(key, None)

    async def refresh(self, key: StateKey) -> None:
        """Forget the records in flight of a partition if its state was reset or deleted meanwhile."""
        known = self._open.get(key)
        if known is None:
            return
        state = await self._client.summary(key)
        if not isinstance(state, ErrorCode) and state.state_epoch != known.state_epoch:
            self._drop(known)

    def _known(self, key: StateKey, partition: ServedPartition) -> SharedPartition | None:
        known = self._open.get(key)
        if known is None or (known.partition is partition and known.is_current):
            return known
        self._drop(known)
        return None

    def _drop(self, shared: SharedPartition) -> None:
        if self._open.get(shared.key) is shared:
            del self._open[shared.key]
        if shared.timer is not None:
            shared.timer.cancel()
        shared.wake()

    async def _begun(self, key: StateKey, partition: ServedPartition) -> SharedPartition | ErrorCode:
        leader, epoch = partition.led(), partition.leader_epoch
        state = await self._client.read(key, epoch)
        if isinstance(state, ErrorCode):
            return state
        if partition.leader is not leader:
            raise NotLeaderError(f"{partition} has another leader since its state was asked for")
        records = SharePartition(self._start(partition, state), state.batches, self.rules)
        records.begin_at(partition.log.log_start_offset)
        shared = self._open[key] = SharedPartition(key, partition, leader, state.state_epoch, records)
        return shared

    def _start(self, partition: ServedPartition, state: ReadState) -> int:
        """Return the start offset: that of the state, or of a group that has not read the partition yet."""
        if state.start != UNSET:
            return state.start
        if self._runtime.config.group_share_auto_offset_reset == EARLIEST:
            return partition.log.log_start_offset
        return self._end(partition)

    def _end(self, partition: ServedPartition) -> int:
        return partition.log.last_stable_offset if self._is_committed else partition.log.high_watermark

    # ---- deliveries

    async def acquire(self, shared: SharedPartition, member: str, wanted: Wanted, most_bytes: int) -> Delivery | None:
        """Acquire records for a member, as far as there are any.

        Raises NotLeaderError if the term of leadership has ended, and the errors of reading the log.
        """
        async with shared.reading:
            self._expire(shared)
            partition, log = shared.partition, shared.partition.log
            shared.records.begin_at(log.log_start_offset)
            offset, upper = shared.records.next_offset(), self._end(shared.partition)
            if offset is None or offset >= upper:
                return None
            await self._runtime.load_numpy()
            read = partial(
                _read, log, offset, min(most_bytes, _MOST_READ_BYTES), upper, is_committed=self._is_committed
            )
            try:
                read_now = await self._replicas.read_long(partition, read)
            except OffsetOutOfRangeError:  # deleted meanwhile: the next read begins at the log start offset
                return None
            if not shared.is_current:
                self._drop(shared)
                raise NotLeaderError(f"{partition} has another leader since its records were read")
            if read_now is None:
                return None
            now_ms = self._runtime.clock.monotonic_ms()
            runs = shared.records.acquire(member, read_now.batches, wanted, now_ms, asked=offset)
            self._set_timer(shared)
            return Delivery(runs, _bytes_of(read_now, runs)) if runs else None

    async def acknowledge(
        self, shared: SharedPartition, member: str, acknowledgements: Sequence[RecordAcknowledgement]
    ) -> ErrorCode:
        """Acknowledge records of a member; return the outcome when it is stored."""
        self._expire(shared)
        now_ms = self._runtime.clock.monotonic_ms()
        change = shared.records.acknowledge(member, acknowledgements, now_ms)
        self._set_timer(shared)
        if change is None:
            return ErrorCode.NONE
        if isinstance(change, ErrorCode):
            return change
        code = await self._store(shared, change)
        if code in _ENDED:
            self._drop(shared)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code:
            shared.records.roll_back(change)
            self._set_timer(shared)
            return ErrorCode.GROUP_ID_NOT_FOUND if code is ErrorCode.INVALID_REQUEST else code
        shared.records.commit(change)
        shared.wake()
        return ErrorCode.NONE

    def release(self, group_id: str, member: str, places: Iterable[tuple[uuid.UUID, int]]) -> None:
        """Release the records that a member of a group has acquired in the partitions of its session."""
        for topic_id, index in places:
            shared = self._open.get(StateKey(group_id, topic_id, index))
            if shared is not None and not self._runtime.is_stopping:
                self._store_soon(shared, shared.records.release(member))

    # ---- the end of locks

    def _expire(self, shared: SharedPartition) -> None:
        self._store_soon(shared, shared.records.expire(self._runtime.clock.monotonic_ms()))

    def _store_soon(self, shared: SharedPartition, change: DeliveryChange | None) -> None:
        """Store a change that is already committed. If that fails, a later leader delivers records once more."""
        if change is not None:
            shared.wake()
            self._store(shared, change)

    def _store(self, shared: SharedPartition, change: DeliveryChange) -> asyncio.Future[ErrorCode]:
        """Store a change after those before it; return its outcome."""
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        shared.to_store.append((change, answer))
        if len(shared.to_store) == 1:
            self._runtime.spawn(self._store_all(shared))
        return answer

    async def _store_all(self, shared: SharedPartition) -> None:
        """Store the pending changes of a partition, one after the other."""
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        while shared.to_store:
            change, answer = shared.to_store[0]
            try:
                code = await self._client.write(shared.key, shared.state_epoch, shared.leader_epoch, change)
            finally:
                shared.to_store.popleft()
                set_result_if_pending(answer, code)
            if code in _ENDED:
                self._drop(shared)

    def _set_timer(self, shared: SharedPartition) -> None:
        """Set the timer for the next lock that ends, unless it is set for that time or an earlier one."""
        next_ms = shared.records.next_ms
        if next_ms is None or (shared.timer is not None and shared.timer_ms <= next_ms):
            return
        if shared.timer is not None:
            shared.timer.cancel()
        shared.timer_ms = next_ms
        delay_ms = max(next_ms - self._runtime.clock.monotonic_ms(), 0)
        shared.timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._locks_due, shared)

    def _locks_due(self, shared: SharedPartition) -> None:
        shared.timer = None
        if self._open.get(shared.key) is shared and not self._runtime.is_stopping:
            self._expire(shared)
            self._set_timer(shared)


def _read(log: PartitionLog, offset: int, limit: int, upper: int, *, is_committed: bool) -> ReadBatches | None:
    """Read batches from the one with `offset` on. Raises OffsetOutOfRangeError, CorruptRecordError."""
    stored = log.read(offset, limit, upper=upper)
    if stored is None:
        return None
    if log.config.dialect is Dialect.ENRICHED:
        conversion = SliceConversion(Format.ENRICHED, Format.V2)
        chunks = converted(stored, log.config.dialect, conversion, offset, _LARGEST_BATCH_BYTES)
        data = memoryview(b"".join(piece for chunk in chunks for piece in chunk))
    else:
        data = memoryview(stored.read())
    table = scan(data)
    if table.damage is not None and not table.end:
        raise table.damage
    aborted = aborted_in_slice(log, offset, upper, stored) if is_committed else []
    batches, positions = list[LogBatch](), list[int]()
    following, lasts = offset, header_lasts(table)
    for row in range(len(table)):
        position, last = int(table.position[row]), int(lasts[row])
        first = int(table.offset[row])
        if table.magic[row] != Format.V2.magic:  # the offset of a set is that of its last record
            first = min(following, first)
        if last < offset:
            continue
        is_out = bool(aborted) and _is_aborted(data[position:], int(table.attributes[row]), first, aborted)
        batches.append(LogBatch(first, last, is_out))
        positions.append(position)
        following = last + 1
    positions.append(table.end)
    return ReadBatches(batches, positions, data) if batches else None


def _is_aborted(batch: memoryview, attributes: int, first: int, aborted: Sequence[AbortedTransaction]) -> bool:
    if not attributes & TRANSACTIONAL_BIT or attributes & CONTROL_BIT:
        return False
    producer = PRODUCER_ID.read(batch)
    return any(each.producer_id == producer and each.first_offset <= first <= each.last_offset for each in aborted)


def _bytes_of(read: ReadBatches, runs: Sequence[AcquiredRun]) -> memoryview:
    """Return the batches with the acquired records, and those between them."""
    with_records = [
        index
        for index, batch in enumerate(read.batches)
        if batch.last >= runs[0].first and batch.first <= runs[-1].last
    ]
    return read.data[read.positions[with_records[0]] : read.positions[with_records[-1] + 1]]
