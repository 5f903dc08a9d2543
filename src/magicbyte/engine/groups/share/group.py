"""One share group: its state, which only records change.

Invariants: as those of a consumer group. A partition may have several members, and no member waits for another one.
"""

from __future__ import annotations

import enum
import uuid
from collections import Counter

from magicbyte.engine.groups.classic.usage import MEMBER_BYTES, Usage
from magicbyte.engine.groups.consumer.members import Partitions
from magicbyte.engine.groups.consumer.records import GroupEpoch, TargetEpoch
from magicbyte.engine.groups.share import records
from magicbyte.engine.groups.share.records import KeptStates, ShareProgress, ShareRecord, ShareSubscriber, ShareValue

_PARTITION_BYTES = 100  # in memory, for a partition of a member


class ShareGroupState(enum.Enum):
    """The states of a share group. The values are those in ShareGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup:
    """A share group. `epoch`, `target_epoch`, `metadata_hash` and `assigned_ms` are those of a consumer group.

    `has_unassigned`: whether partitions have got a state since the last assignment. `asked_ms`: by the monotonic clock,
    the last time when the share coordinator was asked for states; None: never.
    """

    def __init__(self, group_id: str, partition: int, first_epoch: int, usage: Usage) -> None:
        self.group_id, self.partition = group_id, partition
        self.epoch = self.target_epoch = self._first_epoch = first_epoch
        self.metadata_hash, self.assigned_ms = 0, 0
        self.subscribers: dict[str, ShareSubscriber] = {}
        self.progress: dict[str, ShareProgress] = {}
        self.targets: dict[str, Partitions] = {}
        self.states = KeptStates()
        self.named = Counter[str]()
        self.has_unassigned = False
        self.asked_ms: int | None = None
        self.checked_version: object = None
        self._usage = usage

    @property
    def state(self) -> ShareGroupState:
        """The state."""
        return ShareGroupState.STABLE if self.subscribers else ShareGroupState.EMPTY

    def replay(self, record: ShareRecord) -> None:
        """Apply a record. One without effect, such as the deletion of an unknown member, is ignored."""
        member_id, value = record.member_id, record.value
        match record.type, value:
            case _, GroupEpoch():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case _, TargetEpoch():
                self.target_epoch, self.assigned_ms, self.has_unassigned = value.epoch, value.date_ms, False
            case records.TARGET, None:
                self.target_epoch, self.assigned_ms = self._first_epoch, 0
            case records.MEMBER, ShareSubscriber() | None:
                self._subscribe(member_id, value)
            case records.TARGET_OF_MEMBER, dict() | None:
                self._usage.used -= _PARTITION_BYTES * _size(self.targets.pop(member_id, {}))
                if value is not None:
                    self.targets[member_id] = value
                    self._usage.used += _PARTITION_BYTES * _size(value)
            case records.CURRENT, ShareProgress() | None:
                self._usage.used -= _PARTITION_BYTES * _size(self.progress.pop(member_id, ShareProgress()).assigned)
                if value is not None:
                    self.progress[member_id] = value
                    self._usage.used += _PARTITION_BYTES * _size(value.assigned)
            case records.STATES, KeptStates() | None:
                before, self.states = self.states, value or KeptStates()
                self.has_unassigned = self.has_unassigned or self.states.initialized != before.initialized

    def _subscribe(self, member_id: str, subscriber: ShareSubscriber | None) -> None:
        before = self.subscribers.pop(member_id, None)
        if before is not None:
            self.named = +(self.named - Counter(before.topics))
            self._usage.used -= MEMBER_BYTES + before.weight
        if subscriber is not None:
            self.subscribers[member_id] = subscriber
            self.named.update(subscriber.topics)
            self._usage.used += MEMBER_BYTES + subscriber.weight

    def names_with(self, before: ShareSubscriber | None, after: ShareSubscriber | None) -> set[str]:
        """Return the topics that the group reads once a member has changed; None: it is not there before, or after."""
        named = Counter(self.named)
        named.subtract(before.topics if before is not None else ())
        named.update(after.topics if after is not None else ())
        return set(+named)

    def kept(self, topic_id: uuid.UUID, *, is_initialized: bool) -> tuple[int, ...]:
        """Return the partitions of a topic that have a state, or of which one is being initialized."""
        found = (self.states.initialized if is_initialized else self.states.initializing).get(topic_id)
        return () if found is None else found.partitions

    # ---- records

    def record(self, kind: int, value: ShareValue | None, member_id: str = "") -> ShareRecord:
        """Return a record of this group."""
        return ShareRecord(kind, self.group_id, member_id, value)

    def deletion_of_member(self, member_id: str) -> list[ShareRecord]:
        """Return the records that delete a member."""
        kinds = (records.CURRENT, records.TARGET_OF_MEMBER, records.MEMBER)
        return [self.record(kind, None, member_id) for kind in kinds]

    def deletion(self) -> list[ShareRecord]:
        """Return the records that delete the group; without members, as its deletion is refused otherwise."""
        return [self.record(kind, None) for kind in (records.STATES, records.TARGET, records.GROUP)]

    def forget(self) -> None:
        """Release the bytes that are counted for the group, which is in no table."""
        for member_id in {*self.subscribers, *self.targets, *self.progress}:
            for record in self.deletion_of_member(member_id):
                self.replay(record)


def _size(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))
