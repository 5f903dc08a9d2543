"""The records of share groups in `__consumer_offsets`, types 10 to 15, as Kafka 4.1 and later write them.

A record is a key with its value, None to delete. State changes only by records: `ShareGroup.replay`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from magicbyte.engine.coordination.stored import read_stored, write_stored
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.groups.consumer.members import Partitions
from magicbyte.engine.groups.consumer.records import GroupEpoch, TargetEpoch
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.stored import share_group_current_member_assignment as current
from magicbyte.engine.protocol.stored import share_group_member_metadata as member
from magicbyte.engine.protocol.stored import share_group_metadata as group
from magicbyte.engine.protocol.stored import share_group_state_partition_metadata as states
from magicbyte.engine.protocol.stored import share_group_target_assignment_member as target
from magicbyte.engine.protocol.stored import share_group_target_assignment_metadata as target_epoch
from magicbyte.engine.wire.reader import Reader


class ShareSubscriber(Struct, frozen=True):
    """Type 10: the subscription of a member. `topics` are sorted."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        """The approximate bytes in memory besides a fixed number."""
        texts = (self.rack_id, self.client_id, self.client_host, *self.topics)
        return sum(len(each) for each in texts if each)


class ShareProgress(Struct, frozen=True):
    """Type 14: the epoch that a member has reached, the one before, and its partitions."""

    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = {}


class TopicStates(NamedTuple):
    """The partitions of a topic of which states are kept."""

    name: str
    partitions: tuple[int, ...]


class KeptStates(Struct, frozen=True):
    """Type 15: the partitions with a state, by topic: those that are being initialized, and those that are.

    `deleting`: the names of topics whose states are being deleted.
    """

    initializing: Mapping[uuid.UUID, TopicStates] = {}
    initialized: Mapping[uuid.UUID, TopicStates] = {}
    deleting: Mapping[uuid.UUID, str] = {}


ShareValue: TypeAlias = ShareSubscriber | GroupEpoch | TargetEpoch | Partitions | ShareProgress | KeptStates


class ShareRecord(NamedTuple):
    """A record of a group. `type` is that of its key; `member_id` is "" for records of the group itself."""

    type: int
    group_id: str
    member_id: str
    value: ShareValue | None


MEMBER, GROUP, TARGET, TARGET_OF_MEMBER, CURRENT, STATES = range(10, 16)
_Key: TypeAlias = (
    member.ShareGroupMemberMetadataKey
    | group.ShareGroupMetadataKey
    | target_epoch.ShareGroupTargetAssignmentMetadataKey
    | target.ShareGroupTargetAssignmentMemberKey
    | current.ShareGroupCurrentMemberAssignmentKey
    | states.ShareGroupStatePartitionMetadataKey
)
_KEYS: Final[dict[int, type[_Key]]] = {
    MEMBER: member.ShareGroupMemberMetadataKey,
    GROUP: group.ShareGroupMetadataKey,
    TARGET: target_epoch.ShareGroupTargetAssignmentMetadataKey,
    TARGET_OF_MEMBER: target.ShareGroupTargetAssignmentMemberKey,
    CURRENT: current.ShareGroupCurrentMemberAssignmentKey,
    STATES: states.ShareGroupStatePartitionMetadataKey,
}
_OF_MEMBERS: Final = frozenset({MEMBER, TARGET_OF_MEMBER, CURRENT})


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value. Raises ProtocolError for a name that is too long."""
    names = {"member_id": record.member_id} if record.type in _OF_MEMBERS else {}
    key = write_stored(_KEYS[record.type](group_id=record.group_id, **names), record.type)
    value = _stored(record.value)
    return key, None if value is None else write_stored(value, 0)


def _stored(value: ShareValue | None) -> Message | None:
    match value:
        case None:
            return None
        case ShareSubscriber():
            return member.ShareGroupMemberMetadataValue(
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                subscribed_topic_names=list(value.topics),
            )
        case GroupEpoch():
            return group.ShareGroupMetadataValue(epoch=value.epoch, metadata_hash=value.metadata_hash)
        case TargetEpoch():
            return target_epoch.ShareGroupTargetAssignmentMetadataValue(
                assignment_epoch=value.epoch, assignment_timestamp=value.date_ms
            )
        case ShareProgress():
            return current.ShareGroupCurrentMemberAssignmentValue(
                member_epoch=value.epoch,
                previous_member_epoch=value.previous_epoch,
                assigned_partitions=[
                    current.TopicPartitions(topic_id=topic, partitions=partitions)
                    for topic, partitions in value.assigned.items()
                ],
            )
        case KeptStates():
            return states.ShareGroupStatePartitionMetadataValue(
                initializing_topics=_topics(value.initializing),
                initialized_topics=_topics(value.initialized),
                deleting_topics=[
                    states.TopicInfo(topic_id=topic, topic_name=name) for topic, name in value.deleting.items()
                ],
            )
        case dict():
            return target.ShareGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    target.TopicPartition(topic_id=topic, partitions=partitions) for topic, partitions in value.items()
                ]
            )
    raise TypeError(value)


def _topics(kept: Mapping[uuid.UUID, TopicStates]) -> list[states.TopicPartitionsInfo]:
    return [
        states.TopicPartitionsInfo(topic_id=topic, topic_name=name, partitions=partitions)
        for topic, (name, partitions) in kept.items()
    ]


def decode(key: bytes, value: bytes | None) -> ShareRecord | None:
    """Return a record of a share group, None for records of other types and versions, and those of 4.0.

    In 4.0 share groups were experimental, and their records had other fields. Raises CorruptRecordError
    for a damaged key.
    """
    kind = Reader(key).int16()
    if kind not in _KEYS:
        return None
    names = read_stored(_KEYS[kind], key, kind)
    member_id: str = getattr(names, "member_id", "")
    if value is None:
        return ShareRecord(kind, names.group_id, member_id, None)
    if Reader(value).int16() != 0:
        return None
    try:
        return ShareRecord(kind, names.group_id, member_id, _read(kind, value))
    except CorruptRecordError:
        return None


def _read(kind: int, data: bytes) -> ShareValue:
    if kind == MEMBER:
        found = read_stored(member.ShareGroupMemberMetadataValue, data, 0)
        return ShareSubscriber(found.rack_id, found.client_id, found.client_host, tuple(found.subscribed_topic_names))
    if kind == GROUP:
        epoch = read_stored(group.ShareGroupMetadataValue, data, 0)
        return GroupEpoch(epoch.epoch, epoch.metadata_hash)
    if kind == TARGET:
        date = read_stored(target_epoch.ShareGroupTargetAssignmentMetadataValue, data, 0)
        return TargetEpoch(date.assignment_epoch, date.assignment_timestamp)
    if kind == TARGET_OF_MEMBER:
        aimed = read_stored(target.ShareGroupTargetAssignmentMemberValue, data, 0)
        return {each.topic_id: tuple(each.partitions) for each in aimed.topic_partitions}
    if kind == CURRENT:
        stored = read_stored(current.ShareGroupCurrentMemberAssignmentValue, data, 0)
        assigned = {each.topic_id: tuple(each.partitions) for each in stored.assigned_partitions}
        return ShareProgress(stored.member_epoch, stored.previous_member_epoch, assigned)
    kept = read_stored(states.ShareGroupStatePartitionMetadataValue, data, 0)
    return KeptStates(
        {each.topic_id: TopicStates(each.topic_name, tuple(each.partitions)) for each in kept.initializing_topics},
        {each.topic_id: TopicStates(each.topic_name, tuple(each.partitions)) for each in kept.initialized_topics},
        {each.topic_id: each.topic_name for each in kept.deleting_topics},
    )
