"""A partition with a replica on this broker: its log, its role, its lock, and waiting fetches.

Invariants:
1. Log and role are changed with `lock` held; `appends.py` has the lock order, and the one exception.
2. Everything else here belongs to the event loop. No thread touches it.
3. Remembered positions are valid in one generation of the log: a truncation makes them void (`_RecentSet`, `_newest`).
4. `newest_up_to` is an upper bound of the entries' magic, from the segment's beginning on without a gap: fetches skip a
   scan by it, so too small a bound would send a reader a format that it does not know.
5. A waiter is registered before it asks for its condition, and woken at each change of the high watermark and of the
   role: it misses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from magicbyte.engine.errors import AppendRefusedError, CorruptRecordError, ErrorCode, NotLeaderError
from magicbyte.engine.log.live.segment import FileSlice, Segment
from magicbyte.engine.printable import logger
from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH

if TYPE_CHECKING:
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.replication.leader import LeaderPartition

T = TypeVar("T")

log = logger(__name__)

_UNSEEN: Final = -1, 0, -1
MOST_DAMAGE_TOLD: Final = 100
"""The most log lines about damage in one partition, while it is open."""


class _RecentSet(Struct, frozen=True):
    """The position of a set, and its size in bytes."""

    segment: Segment
    generation: int
    position: int
    size: int


class ServedPartition:
    """The broker's state of a partition besides its log. Log and role are changed with `lock` held.

    `leader`: the leader's side of replication, while this broker leads; `leader_id` and `leader_epoch` are from the
    last order. `waiting` are set when the high watermark advances or the role changes, `waiting_followers`
    at each append. `is_slow`: the last short disk operation was slow.
    """

    __slots__ = (
        "_newest",
        "_newest_written",
        "_recent",
        "_reported_damage",
        "index",
        "is_slow",
        "leader",
        "leader_epoch",
        "leader_id",
        "lock",
        "log",
        "topic",
        "waiting",
        "waiting_followers",
    )

    RECENT = 256

    def __init__(self, topic: str, index: int, log: PartitionLog) -> None:
        self.topic, self.index, self.log = topic, index, log
        self.lock = asyncio.Lock()
        self.waiting: dict[asyncio.Event, None] = {}  # in order of arrival
        self.waiting_followers: dict[asyncio.Event, None] = {}
        self.leader: LeaderPartition | None = None
        self.leader_id, self.leader_epoch = NO_BROKER, NO_EPOCH
        self.is_slow = False
        self._recent: dict[int, _RecentSet] = {}  # by offset, the oldest first: for readers at the end of the log
        # by segment: generation, and the end and magic of its examined beginning; the one that was seen last is apart
        self._newest = WeakKeyDictionary[Segment, tuple[int, int, int]]()
        self._newest_written: tuple[Segment | None, tuple[int, int, int]] = None, _UNSEEN
        self._reported_damage = set[tuple[str | None, int | None]]()  # files and positions of logged damage

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def publish(self, first_offset: int, size: int, magic: int) -> None:
        """Record the last written set, of `size` bytes, with no entry newer than `magic`; wake waiting followers."""
        active = self.log.active
        position = active.size - size
        self.saw(active, position, active.size, magic)
        if len(self._recent) >= self.RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[first_offset] = _RecentSet(active, self.log.generation, position, size)
        if not self.log.config.group_commit:  # else after the sync
            for event in self.waiting_followers:
                event.set()

    def recent(self, offset: int, max_bytes: int) -> FileSlice | None:
        """Return the result of `log.read` for a recently written set; None if the log must be searched."""
        recent = self._recent.get(offset)
        active = self.log.active
        if recent is None or recent.segment is not active or recent.generation != self.log.generation:
            return None
        if max_bytes < recent.size or offset < self.log.log_start_offset:
            return None
        length = min(max_bytes, active.size - recent.position)
        file = active.log.opened_now()  # opening a file is left to a thread
        return None if file is None else FileSlice(file, recent.position, length, active)

    def saw(self, segment: Segment, position: int, end: int, magic: int) -> None:
        """Record that no entry of a segment from `position` to `end` has a newer format than `magic`."""
        known_end, newest = self._known(segment)
        if position <= known_end:
            last, seen = self._newest_written
            if last is not segment and last is not None:
                self._newest[last] = seen
            self._newest_written = segment, (self.log.generation, max(known_end, end), max(newest, magic))

    def newest_up_to(self, segment: Segment, end: int) -> int | None:
        """Return an upper bound of the magic of a segment's entries before `end`, None if unknown."""
        known_end, newest = self._known(segment)
        return newest if end <= known_end else None

    def _known(self, segment: Segment) -> tuple[int, int]:
        last, seen = self._newest_written
        generation, known_end, newest = seen if last is segment else self._newest.get(segment, _UNSEEN)
        return (known_end, newest) if generation == self.log.generation else (0, -1)

    def tell_damage(self, error: CorruptRecordError) -> None:
        """Log damage found by a reader: once per position, because readers retry, and only the first ones."""
        place = error.path, error.position
        if place in self._reported_damage or len(self._reported_damage) > MOST_DAMAGE_TOLD:
            return
        self._reported_damage.add(place)
        if len(self._reported_damage) > MOST_DAMAGE_TOLD:
            log.warning("%s: further damage is not logged: `magicbyte verify --deep` lists it all", self)
        else:
            log.warning("%s: damaged batches are not served: %s", self, error)

    def telling_damage(self, read: Iterator[T]) -> Iterator[T]:
        """Yield the items of `read`, and log damage that ends it."""
        try:
            yield from read
        except CorruptRecordError as error:
            self.tell_damage(error)
            raise

    # ---- the role

    def lead(self, leader: LeaderPartition) -> None:
        """Become the leader, or continue as leader with the controller's new order."""
        self.leader = leader
        self.leader_id, self.leader_epoch = leader.state.leader, leader.state.leader_epoch
        self.advance(leader.high_watermark)
        self.wake()

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Become a follower of `leader_id`, NO_BROKER if there is none. Waiting requests are woken."""
        self.leader, self.leader_id, self.leader_epoch = None, leader_id, leader_epoch
        self.wake()

    def led(self) -> LeaderPartition:
        """Return the leader's side. Raises NotLeaderError."""
        if self.leader is None:
            raise NotLeaderError(f"{self} is led by broker {self.leader_id}" if self.leader_id >= 0 else
                                 f"{self} has no leader")  # fmt: skip
        return self.leader

    def check_in_sync(self, least: int) -> None:
        """Check that enough replicas are in sync for another append.

        Raises NotLeaderError, and AppendRefusedError if there are fewer.
        """
        _check_in_sync(self.led(), least)

    def least_in_sync(self, wanted: int) -> int:
        """Return how many replicas must have the broker's own records: `wanted`, but 1 without a cluster.

        Raises NotLeaderError, and AppendRefusedError while fewer are in sync.
        """
        leader = self.led()
        if not leader.followers:
            return 1  # the leader itself, which is always in sync
        _check_in_sync(leader, wanted)
        return wanted

    def acknowledgement(self, leader: LeaderPartition, end_offset: int, least_in_sync: int) -> ErrorCode | None:
        """Return the result of a produce request with `acks=all` that ends at `end_offset`; None: pending.

        `leader`: the role in which the records were appended. A later one may have other records at their offsets.
        """
        if self.leader is not leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return leader.acknowledgement(end_offset, least_in_sync)

    # ---- waiting fetches

    def advance_leader(self, end_offset: int, monotonic_ms: int) -> None:
        """Record that the leader's log has its configured durability up to `end_offset`, for the high watermark."""
        leader = self.leader
        if leader is None:
            return
        if leader.appended(end_offset, monotonic_ms):
            self.advance(leader.high_watermark)
        if self.log.config.group_commit:  # followers get durable records only: see `publish`
            for event in self.waiting_followers:
                event.set()

    def advance(self, offset: int) -> None:
        """Advance the high watermark to `offset`, and wake waiting fetches."""
        if offset > self.log.high_watermark:
            self.log.high_watermark = offset
            for event in self.waiting:
                event.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until `is_so`, asked again when the high watermark advances and at `wake`. The caller sets an end."""
        changed = asyncio.Event()
        self.waiting[changed] = None
        try:
            while not is_so():
                await changed.wait()
                changed.clear()
        finally:
            self.waiting.pop(changed, None)

    def wake(self) -> None:
        """Wake all waiting requests."""
        for event in (*self.waiting, *self.waiting_followers):
            event.set()


def _check_in_sync(leader: LeaderPartition, least: int) -> None:
    in_sync = len(leader.state.isr)
    if in_sync < least:
        why = f"min.insync.replicas is {least}, and {in_sync} in sync"
        raise AppendRefusedError(ErrorCode.NOT_ENOUGH_REPLICAS, why)


def tell_corrected_index(partition: object, error: CorruptRecordError) -> None:
    """Log a transaction index that contradicts its log."""
    log.warning("%s: a transaction index contradicts the log: %s; readers get what the log says, and the index is "
                "rebuilt", partition, error)  # fmt: skip
