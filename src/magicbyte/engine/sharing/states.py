"""Delivery states of records, as values: runs of offsets as they are stored, and the stored state of a partition.

Source: Kafka's PersisterStateBatchCombiner and ShareCoordinatorShard (4.3).

Invariants of `StoredState.batches`:
1. They are in order, do not overlap, and end at or after the start offset.
2. Two neighbours without a gap between them differ in state or count.
"""

from __future__ import annotations

import enum
import uuid
from base64 import urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct, field

UNSET: Final = -1
"""In place of an offset, an epoch or a count: it is unknown, or as before."""


class DeliveryState(enum.IntEnum):
    """The states of a record, as they are stored. ACQUIRED is not stored, and the last two are final."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        """Whether a record in this state is done."""
        return self >= DeliveryState.ACKNOWLEDGED


class StateBatch(NamedTuple):
    """Records in one state, each with so many `deliveries`. `state` is a number: later releases have further ones."""

    first: int
    last: int
    state: int
    deliveries: int


class StateKey(NamedTuple):
    """What a stored state belongs to: a partition of a topic, and a share group."""

    group_id: str
    topic_id: uuid.UUID
    partition: int

    @property
    def text(self) -> str:
        """The text whose hash gives the partition of `__share_group_state`."""
        topic = urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")
        return f"{self.group_id}:{topic}:{self.partition}"


class StateSnapshot(NamedTuple):
    """Type 0: the whole state. Times in ms."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start: int
    created_ms: int
    written_ms: int
    batches: Sequence[StateBatch] = ()
    complete_count: int = UNSET


class StateUpdate(NamedTuple):
    """Type 1: what has changed since the snapshot of `snapshot_epoch`."""

    snapshot_epoch: int
    leader_epoch: int
    start: int
    batches: Sequence[StateBatch] = ()
    complete_count: int = UNSET


class StoredState(Struct):
    """The state of a partition for a group. `updates`: how many there are since the snapshot.

    `floor`: the offset of the snapshot, or an earlier one: records before it are not needed for the state.
    """

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start: int = UNSET
    complete_count: int = UNSET
    created_ms: int = 0
    written_ms: int = 0
    updates: int = 0
    floor: int = 0
    batches: list[StateBatch] = field(default_factory=list)

    @classmethod
    def of(cls, snapshot: StateSnapshot) -> StoredState:
        """Return the state that a snapshot has."""
        state = cls(
            snapshot.snapshot_epoch,
            snapshot.state_epoch,
            snapshot.leader_epoch,
            snapshot.start,
            snapshot.complete_count,
            snapshot.created_ms,
            snapshot.written_ms,
        )
        state.put(snapshot.batches)
        return state

    def update(self, update: StateUpdate) -> None:
        """Apply an update."""
        self.updates += 1
        if update.leader_epoch != UNSET:
            self.leader_epoch = update.leader_epoch
        if update.start != UNSET:
            self.start = update.start
        self.complete_count = update.complete_count
        self.put(update.batches)

    def put(self, batches: Iterable[StateBatch]) -> None:
        """Merge further batches: where two overlap, that of more deliveries counts, then that of the later state.

        It takes a look only at the batches that overlap.
        """
        for each in batches:
            self._put_one(each)
        self._drop_done()

    def snapshot(self, now_ms: int) -> StateSnapshot:
        """Return the next snapshot of this state."""
        return StateSnapshot(
            self.snapshot_epoch + 1,
            self.state_epoch,
            self.leader_epoch,
            self.start,
            self.created_ms,
            now_ms,
            tuple(self.batches),
            self.complete_count,
        )

    def _put_one(self, new: StateBatch) -> None:
        low = bisect_left(self.batches, new.first, key=attrgetter("last"))
        high = bisect_right(self.batches, new.last, key=attrgetter("first"))
        low, high = _with_neighbours(self.batches, new, low, high)
        pieces, at = list[StateBatch](), new.first
        for old in self.batches[low:high]:
            if old.first < new.first:
                _join(pieces, old._replace(last=min(old.last, new.first - 1)))
            if old.first > at and at <= new.last:
                _join(pieces, new._replace(first=at, last=min(old.first - 1, new.last)))
                at = pieces[-1].last + 1
            first, last = max(old.first, new.first), min(old.last, new.last)
            if first <= last:
                wins = (new.deliveries, new.state) > (old.deliveries, old.state)
                _join(pieces, (new if wins else old)._replace(first=first, last=last))
                at = last + 1
            if old.last > new.last:
                if at <= new.last:
                    _join(pieces, new._replace(first=at))
                    at = new.last + 1
                _join(pieces, old._replace(first=max(old.first, new.last + 1)))
        if at <= new.last:
            _join(pieces, new._replace(first=at))
        self.batches[low:high] = pieces

    def _drop_done(self) -> None:
        done = bisect_left(self.batches, self.start, key=attrgetter("last"))
        del self.batches[:done]
        if self.batches and self.batches[0].first < self.start:
            self.batches[0] = self.batches[0]._replace(first=self.start)


def _with_neighbours(batches: Sequence[StateBatch], new: StateBatch, low: int, high: int) -> tuple[int, int]:
    """Return the range of batches that overlap, and those that touch the new one."""
    if low and batches[low - 1].last == new.first - 1:
        low -= 1
    if high < len(batches) and batches[high].first == new.last + 1:
        high += 1
    return low, high


def _join(pieces: list[StateBatch], piece: StateBatch) -> None:
    """Add a piece, joined with the last one if they are alike."""
    if pieces and pieces[-1].last == piece.first - 1 and pieces[-1][2:] == piece[2:]:
        pieces[-1] = pieces[-1]._replace(last=piece.last)
    else:
        pieces.append(piece)
