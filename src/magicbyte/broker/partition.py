"""A partition that this broker has a replica of: its log, its role, its lock, and the fetches that wait for records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from magicbyte.errors import AppendRefusedError, CorruptRecordError, ErrorCode, NotLeaderError
from magicbyte.log.live.segment import FileSlice, Segment
from magicbyte.printable import logger
from magicbyte.replication.state import NO_LEADER

if TYPE_CHECKING:
    from magicbyte.log.live.partition_log import PartitionLog
    from magicbyte.replication.leader import LeaderPartition

T = TypeVar("T")

log = logger(__name__)

NO_EPOCH: Final = -1
MOST_DAMAGE_TOLD: Final = 100
"""Lines on damage in one partition, as long as it is open."""


class _RecentSet(NamedTuple):
    """Where a set begins, and its size in bytes."""

    segment: Segment
    generation: int
    position: int
    size: int


class ServedPartition:
    """What the broker keeps beside the log of a partition. Log and role are changed with `lock` held.

    `leader`: the leader's side of replication, while this broker leads; `leader_id` and `leader_epoch` are what the
    controller said last. `waiting` are set when the high watermark advances or the role changes, `waiting_followers`
    when something is appended. `is_slow`: the disk took its time when something short was asked of it last.
    """

    __slots__ = (
        "_newest",
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
        self.waiting: dict[asyncio.Event, None] = {}  # in the order of their coming
        self.waiting_followers: dict[asyncio.Event, None] = {}
        self.leader: LeaderPartition | None = None
        self.leader_id, self.leader_epoch = NO_LEADER, NO_EPOCH
        self.is_slow = False
        self._recent: dict[int, _RecentSet] = {}  # by offset, the oldest first: what those ask for who are at the end
        self._newest = WeakKeyDictionary[Segment, tuple[int, int, int]]()  # generation; of its beginning: end, magic
        self._reported_damage = set[tuple[str | None, int | None]]()  # files and positions of damage

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def appended(self, first_offset: int, size: int, magic: int) -> None:
        """Take in that a set was written, of so many bytes, all of one format."""
        active = self.log.active
        position = active.size - size
        self.saw(active, position, active.size, magic)
        if len(self._recent) >= self.RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[first_offset] = _RecentSet(active, self.log.generation, position, size)
        for event in self.waiting_followers:
            event.set()

    def recent(self, offset: int, max_bytes: int) -> FileSlice | None:
        """Return what `log.read` would from a set on that was written lately; None where the log has to be asked."""
        place = self._recent.get(offset)
        active = self.log.active
        if place is None or place.segment is not active or place.generation != self.log.generation:
            return None
        if max_bytes < place.size or offset < self.log.log_start_offset:
            return None
        length = min(max_bytes, active.size - place.position)
        file = active.log.opened_now()  # to open it is for a thread
        return None if file is None else FileSlice(file, place.position, length, active)

    def saw(self, segment: Segment, position: int, end: int, magic: int) -> None:
        """Take in that no entry of a segment from `position` to `end` has a newer format than `magic`."""
        known_end, newest = self._known(segment)
        if position <= known_end:
            self._newest[segment] = self.log.generation, max(known_end, end), max(newest, magic)

    def newest_up_to(self, segment: Segment, end: int) -> int | None:
        """Return a magic that no entry of a segment in front of `end` is newer than, None if it is not known."""
        known_end, newest = self._known(segment)
        return newest if end <= known_end else None

    def _known(self, segment: Segment) -> tuple[int, int]:
        generation, known_end, newest = self._newest.get(segment, (-1, 0, -1))
        return (known_end, newest) if generation == self.log.generation else (0, -1)

    def tell_damage(self, error: CorruptRecordError) -> None:
        """Log damage that a reader met: each place once, as readers come again and again, and some of the first."""
        place = error.path, error.position
        if place in self._reported_damage or len(self._reported_damage) > MOST_DAMAGE_TOLD:
            return
        self._reported_damage.add(place)
        if len(self._reported_damage) > MOST_DAMAGE_TOLD:
            log.warning("%s: further damage is not logged: `magicbyte verify --deep` lists it all", self)
        else:
            log.warning("%s: damaged batches are not served: %s", self, error)

    def telling_damage(self, read: Iterator[T]) -> Iterator[T]:
        """Yield what `read` does, and log damage that ends it."""
        try:
            yield from read
        except CorruptRecordError as error:
            self.tell_damage(error)
            raise

    # ---- the role

    def lead(self, leader: LeaderPartition) -> None:
        """Become the leader, or go on as it with what the controller said now."""
        self.leader = leader
        self.leader_id, self.leader_epoch = leader.state.leader, leader.state.leader_epoch
        self.advance(leader.high_watermark)
        self.wake()

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Become a follower of `leader_id`, NO_LEADER while there is none. Pending requests find out."""
        self.leader, self.leader_id, self.leader_epoch = None, leader_id, leader_epoch
        self.wake()

    def led(self) -> LeaderPartition:
        """Return the leader's side. Raises NotLeaderError."""
        if self.leader is None:
            raise NotLeaderError(f"{self} is led by broker {self.leader_id}" if self.leader_id >= 0 else
                                 f"{self} has no leader")  # fmt: skip
        return self.leader

    def check_in_sync(self, least: int) -> None:
        """See that so many replicas are in sync that more may be appended.

        Raises NotLeaderError, and AppendRefusedError where there are fewer.
        """
        in_sync = len(self.led().state.isr)
        if in_sync < least:
            why = f"min.insync.replicas is {least}, and {in_sync} in sync"
            raise AppendRefusedError(ErrorCode.NOT_ENOUGH_REPLICAS, why)

    def least_in_sync(self, wanted: int) -> int:
        """Return how many replicas have to have what the broker writes for itself: `wanted`, but 1 where it is alone.

        Raises NotLeaderError, and AppendRefusedError while fewer are in sync.
        """
        least = wanted if self.led().followers else 1
        self.check_in_sync(least)
        return least

    def acknowledgement(self, leader: LeaderPartition, end_offset: int, least_in_sync: int) -> ErrorCode | None:
        """Return how a produce request with `acks=all` ends whose records end at `end_offset`; None: not yet.

        `leader`: the role that the records were appended in. A later one may have other records at their offsets.
        """
        if self.leader is not leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return leader.acknowledgement(end_offset, least_in_sync)

    # ---- waiting fetches

    def written(self, end_offset: int, monotonic_ms: int) -> None:
        """Take in that the leader's log is as durable as asked up to `end_offset`: it counts for the high watermark."""
        if self.leader is not None and self.leader.appended(end_offset, monotonic_ms):
            self.advance(self.leader.high_watermark)

    def advance(self, offset: int) -> None:
        """Advance the high watermark to `offset`, and wake those that wait for it."""
        if offset > self.log.high_watermark:
            self.log.high_watermark = offset
            for event in self.waiting:
                event.set()

    def wake(self) -> None:
        """Have all who wait look again."""
        for event in (*self.waiting, *self.waiting_followers):
            event.set()
