"""One consumer group: its state, which only records change.

Source: Kafka's ConsumerGroup and its replay in GroupMetadataManager (4.3).

Invariants:
1. The state is the result of the stored records, in their order: `replay` is the only way to change it, for records
   just appended and for those read from the log.
2. A partition has at most one owner, which has it assigned or must still stop owning it.
3. A member exists while its subscription is stored. Its target and its progress may come before.
4. `named` counts the members that name a topic, `matching` those of a pattern; `static` has those with an instance id,
   `owners` those of partitions, `classic` those of the classic protocol. `supported` counts these by their protocols.
"""

from __future__ import annotations

import enum
import uuid
from collections import Counter
from collections.abc import Iterable

from magicbyte.engine.groups.classic.usage import MEMBER_BYTES, Usage
from magicbyte.engine.groups.consumer import records
from magicbyte.engine.groups.consumer.members import NEW, MemberProgress, MemberState, Partitions, Subscriber
from magicbyte.engine.groups.consumer.records import GroupEpoch, GroupRecord, RecordValue, ResolvedPattern, TargetEpoch

_PARTITION_BYTES = 100  # in memory, for a partition of a member


class ConsumerGroupState(enum.Enum):
    """The states of a consumer group. The values are those in ConsumerGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """A consumer group. `epoch` grows with each change of what the assignment depends on; `target_epoch` follows.

    `term`: of the coordinator, in which it was loaded or created. `assigned_ms`: the date of the assignment, 0 if it is
    unknown. `checked_version`: the version of the topics with which `metadata_hash` agreed last. `refreshed_ms` and
    `refreshed_version`: the date of the last time when patterns were resolved, and the version of the topics then.
    `usage` counts the bytes of members of all groups.
    """

    def __init__(self, group_id: str, partition: int, term: int, first_epoch: int, usage: Usage) -> None:
        self.group_id, self.partition, self.term = group_id, partition, term
        self.epoch = self.target_epoch = self._first_epoch = first_epoch
        self.metadata_hash, self.assigned_ms = 0, 0
        self.subscribers: dict[str, Subscriber] = {}
        self.progress: dict[str, MemberProgress] = {}
        self.targets: dict[str, Partitions] = {}
        self.static: dict[str, str] = {}
        self.classic = set[str]()
        self.supported = Counter[str]()
        self.named, self.matching = Counter[str](), Counter[str]()
        self.patterns: dict[str, ResolvedPattern] = {}
        self.refreshed_ms, self.refreshed_version = 0, object()
        self.owners: dict[tuple[uuid.UUID, int], str] = {}
        self.checked_version: object = None
        self._usage = usage

    @property
    def state(self) -> ConsumerGroupState:
        """The state; it takes a look at all members."""
        if not self.subscribers:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        for member_id in self.subscribers:
            progress = self.progress.get(member_id, NEW)
            if progress.state is not MemberState.STABLE or progress.epoch != self.target_epoch:
                return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    def replay(self, record: GroupRecord) -> None:
        """Apply a record. One without effect, such as the deletion of an unknown member, is ignored."""
        member_id, value = record.member_id, record.value
        match record.type, value:
            case _, GroupEpoch():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case _, TargetEpoch():
                self.target_epoch, self.assigned_ms = value.epoch, value.date_ms
            case records.TARGET, None:
                self.target_epoch, self.assigned_ms = self._first_epoch, 0
            case records.MEMBER, Subscriber() | None:
                self._subscribe(member_id, value)
            case records.TARGET_OF_MEMBER, dict() | None:
                self._aim(member_id, value)
            case records.PATTERN, ResolvedPattern():
                self.patterns[member_id] = value
                self.refreshed_ms = max(self.refreshed_ms, value.date_ms)
            case records.PATTERN, None:
                self.patterns.pop(member_id, None)
            case records.CURRENT, MemberProgress() | None:
                self._proceed(member_id, value)

    def _subscribe(self, member_id: str, subscriber: Subscriber | None) -> None:
        before = self.subscribers.pop(member_id, None)
        if before is not None:
            self.named = +(self.named - Counter(before.topics))
            self.matching = +(self.matching - Counter({before.regex: 1} if before.regex else ()))
            self._usage.used -= MEMBER_BYTES + before.weight
            if before.classic is not None:
                self.classic.discard(member_id)
                self.supported = +(self.supported - Counter(dict.fromkeys(dict(before.classic.protocols), 1)))
            if before.instance_id is not None and self.static.get(before.instance_id) == member_id:
                del self.static[before.instance_id]
        if subscriber is not None:
            self.subscribers[member_id] = subscriber
            self.named.update(subscriber.topics)
            self.matching.update([subscriber.regex] if subscriber.regex else [])
            self._usage.used += MEMBER_BYTES + subscriber.weight
            if subscriber.classic is not None:
                self.classic.add(member_id)
                self.supported.update(dict.fromkeys(dict(subscriber.classic.protocols), 1))
            if subscriber.instance_id is not None:
                self.static[subscriber.instance_id] = member_id

    def _aim(self, member_id: str, target: Partitions | None) -> None:
        self._usage.used -= _PARTITION_BYTES * _size(self.targets.pop(member_id, {}))
        if target is not None:
            self.targets[member_id] = target
            self._usage.used += _PARTITION_BYTES * _size(target)

    def _proceed(self, member_id: str, progress: MemberProgress | None) -> None:
        for place in self.progress.pop(member_id, NEW).held():
            self._usage.used -= _PARTITION_BYTES
            if self.owners.get(place) == member_id:
                del self.owners[place]
        if progress is not None:
            self.progress[member_id] = progress
            for place in progress.held():
                self._usage.used += _PARTITION_BYTES
                self.owners[place] = member_id

    def matched(self, pattern: str) -> tuple[str, ...]:
        """Return the topics that match a pattern; none for one that is not resolved yet, or for no pattern."""
        resolved = self.patterns.get(pattern)
        return () if resolved is None else resolved.topics

    @property
    def topics(self) -> set[str]:
        """The names of all topics that members read."""
        return topics_with(self, (), None)

    def is_free(self, topic: uuid.UUID, partition: int, member_id: str) -> bool:
        """Return whether a member may get a partition: no other one has it."""
        return self.owners.get((topic, partition), member_id) == member_id

    def supports(self, protocols: Iterable[str]) -> bool:
        """Return whether a member with these classic protocols may join: others of its kind have one of them, too."""
        return any(self.supported[each] == len(self.classic) for each in protocols)

    # ---- records

    def record(self, kind: int, value: RecordValue | None, member_id: str = "") -> GroupRecord:
        """Return a record of this group."""
        return GroupRecord(kind, self.group_id, member_id, value)

    def deletion_of_member(self, member_id: str) -> list[GroupRecord]:
        """Return the records that delete a member."""
        kinds = (records.CURRENT, records.TARGET_OF_MEMBER, records.MEMBER)
        return [self.record(kind, None, member_id) for kind in kinds]

    def deletion(self) -> list[GroupRecord]:
        """Return the records that delete the group; without members, as its deletion is refused otherwise."""
        return [self.record(kind, None) for kind in (records.TARGET, records.TOPICS_OF_4_0, records.GROUP)]

    def forget(self) -> None:
        """Release the bytes that are counted for the group, which is in no table."""
        for member_id in list(self.subscribers):
            self._subscribe(member_id, None)
        for member_id in list(self.targets):
            self._aim(member_id, None)
        for member_id in list(self.progress):
            self._proceed(member_id, None)


def _size(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def topics_with(group: ConsumerGroup, before: Iterable[Subscriber], after: Subscriber | None) -> set[str]:
    """Return the topics that the group reads once a member has taken the place of others; None: of none."""
    named, matching = Counter(group.named), Counter(group.matching)
    for each in before:
        named.subtract(each.topics)
        matching.subtract([each.regex])
    if after is not None:
        named.update(after.topics)
        matching.update([after.regex])
    topics = set(+named)
    for pattern in +matching:
        topics.update(group.matched(pattern))
    return topics
