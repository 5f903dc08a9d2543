"""The records of consumer groups in `__consumer_offsets`, types 3 to 8 and 16, as Kafka 4.1 and later write them.

A record is a key with its value, None to delete. State changes only by records: `ConsumerGroup.replay`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from magicbyte.engine.coordination.stored import read_stored, write_stored
from magicbyte.engine.groups.consumer.members import (
    ClassicMember,
    Held,
    MemberProgress,
    MemberState,
    Partitions,
    Subscriber,
)
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.stored import consumer_group_current_member_assignment as current
from magicbyte.engine.protocol.stored import consumer_group_target_assignment_member as target
from magicbyte.engine.protocol.stored.consumer_group_member_metadata import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from magicbyte.engine.protocol.stored.consumer_group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from magicbyte.engine.protocol.stored.consumer_group_partition_metadata import ConsumerGroupPartitionMetadataKey
from magicbyte.engine.protocol.stored.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from magicbyte.engine.protocol.stored.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from magicbyte.engine.wire.reader import Reader


class GroupEpoch(NamedTuple):
    """Type 3: the epoch of a group, and the hash of the topics that its members subscribe to."""

    epoch: int
    metadata_hash: int


class TargetEpoch(NamedTuple):
    """Type 6: the epoch of the assignment, and its date (ms); 0 for none."""

    epoch: int
    date_ms: int


class ResolvedPattern(NamedTuple):
    """Type 16: the topics that match a pattern, as of a version of the cluster and a date (ms)."""

    topics: tuple[str, ...]
    version: int
    date_ms: int


RecordValue: TypeAlias = GroupEpoch | Subscriber | TargetEpoch | Partitions | MemberProgress | ResolvedPattern
"""What the value of a record says, by its type."""


class GroupRecord(NamedTuple):
    """A record of a group. `type` is that of its key.

    `member_id` is "" for records of the group itself, and the text of the pattern for records of one.
    """

    type: int
    group_id: str
    member_id: str
    value: RecordValue | None


GROUP, TOPICS_OF_4_0, MEMBER, TARGET, TARGET_OF_MEMBER, CURRENT, PATTERN = 3, 4, 5, 6, 7, 8, 16
TYPES: Final = frozenset({GROUP, TOPICS_OF_4_0, MEMBER, TARGET, TARGET_OF_MEMBER, CURRENT, PATTERN})

_Key: TypeAlias = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | target.ConsumerGroupTargetAssignmentMemberKey
    | current.ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
_KEYS: Final[dict[int, type[_Key]]] = {
    GROUP: ConsumerGroupMetadataKey,
    TOPICS_OF_4_0: ConsumerGroupPartitionMetadataKey,
    MEMBER: ConsumerGroupMemberMetadataKey,
    TARGET: ConsumerGroupTargetAssignmentMetadataKey,
    TARGET_OF_MEMBER: target.ConsumerGroupTargetAssignmentMemberKey,
    CURRENT: current.ConsumerGroupCurrentMemberAssignmentKey,
    PATTERN: ConsumerGroupRegularExpressionKey,
}
_OF_MEMBERS: Final = frozenset({MEMBER, TARGET_OF_MEMBER, CURRENT})


def encode(record: GroupRecord, *, with_epochs: bool) -> tuple[bytes, bytes | None]:
    """Return the key and the value. `with_epochs`: also the epochs of assigned partitions, as from 4.3 on.

    Raises ProtocolError for a name that is too long.
    """
    names = {"member_id": record.member_id} if record.type in _OF_MEMBERS else {}
    if record.type == PATTERN:
        names = {"regular_expression": record.member_id}
    key = write_stored(_KEYS[record.type](group_id=record.group_id, **names), record.type)
    value = _stored(record.value, with_epochs)
    return key, None if value is None else write_stored(value, 0)


def _stored(value: RecordValue | None, with_epochs: bool) -> Message | None:
    match value:
        case None:
            return None
        case GroupEpoch():
            return ConsumerGroupMetadataValue(epoch=value.epoch, metadata_hash=value.metadata_hash)
        case TargetEpoch():
            return ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=value.epoch, assignment_timestamp=value.date_ms
            )
        case ResolvedPattern():
            return ConsumerGroupRegularExpressionValue(
                topics=list(value.topics), version=value.version, timestamp=value.date_ms
            )
        case Subscriber():
            return ConsumerGroupMemberMetadataValue(
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                subscribed_topic_names=list(value.topics),
                subscribed_topic_regex=value.regex or None,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                server_assignor=value.assignor,
                classic_member_metadata=None if value.classic is None else _classic(value.classic),
            )
        case MemberProgress():
            return current.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=value.epoch,
                previous_member_epoch=value.previous_epoch,
                state=value.state,
                assigned_partitions=_held(value.assigned, with_epochs),
                partitions_pending_revocation=_held(value.revoking, with_epochs),
            )
        case dict():
            return target.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    target.TopicPartition(topic_id=topic, partitions=partitions) for topic, partitions in value.items()
                ]
            )
    raise TypeError(value)


def _classic(member: ClassicMember) -> ClassicMemberMetadata:
    protocols = [ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols]
    return ClassicMemberMetadata(session_timeout_ms=member.session_timeout_ms, supported_protocols=protocols)


def _read_classic(stored: ClassicMemberMetadata | None) -> ClassicMember | None:
    """Return the data of a member that uses the classic protocol; None if the field is null, empty or missing."""
    if stored is None or not stored.supported_protocols:
        return None
    protocols = tuple((each.name, bytes(each.metadata)) for each in stored.supported_protocols)
    return ClassicMember(stored.session_timeout_ms, protocols)


def _held(held: Held, with_epochs: bool) -> list[current.TopicPartitions]:
    return [
        current.TopicPartitions(
            topic_id=topic,
            partitions=tuple(epochs),
            assignment_epochs=tuple(epochs.values()) if with_epochs else (),
        )
        for topic, epochs in held.items()
    ]


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Return a record of a consumer group, None for records of other types and versions.

    Raises CorruptRecordError.
    """
    kind = Reader(key).int16()
    if kind not in TYPES:
        return None
    names = read_stored(_KEYS[kind], key, kind)
    member_id: str = getattr(names, "regular_expression" if kind == PATTERN else "member_id", "")
    if value is None or kind == TOPICS_OF_4_0:
        return GroupRecord(kind, names.group_id, member_id, None)
    if Reader(value).int16() != 0:
        return None
    return GroupRecord(kind, names.group_id, member_id, _read(kind, value))


def _read(kind: int, data: bytes) -> RecordValue:
    if kind == GROUP:
        group = read_stored(ConsumerGroupMetadataValue, data, 0)
        return GroupEpoch(group.epoch, group.metadata_hash)
    if kind == TARGET:
        date = read_stored(ConsumerGroupTargetAssignmentMetadataValue, data, 0)
        return TargetEpoch(date.assignment_epoch, date.assignment_timestamp)
    if kind == PATTERN:
        pattern = read_stored(ConsumerGroupRegularExpressionValue, data, 0)
        return ResolvedPattern(tuple(pattern.topics), pattern.version, pattern.timestamp)
    if kind == TARGET_OF_MEMBER:
        assigned = read_stored(target.ConsumerGroupTargetAssignmentMemberValue, data, 0)
        return {each.topic_id: tuple(each.partitions) for each in assigned.topic_partitions}
    if kind == MEMBER:
        member = read_stored(ConsumerGroupMemberMetadataValue, data, 0)
        return Subscriber(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=tuple(member.subscribed_topic_names),
            regex=member.subscribed_topic_regex or "",
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            assignor=member.server_assignor,
            classic=_read_classic(member.classic_member_metadata),
        )
    stored = read_stored(current.ConsumerGroupCurrentMemberAssignmentValue, data, 0)
    known = stored.state in MemberState.__members__.values()
    return MemberProgress(
        epoch=stored.member_epoch,
        previous_epoch=stored.previous_member_epoch,
        state=MemberState(stored.state) if known else MemberState.UNKNOWN,
        assigned=_read_held(stored.assigned_partitions, stored.member_epoch),
        revoking=_read_held(stored.partitions_pending_revocation, stored.member_epoch),
    )


def _read_held(topics: Iterable[current.TopicPartitions], epoch: int) -> Held:
    held: dict[uuid.UUID, dict[int, int]] = {}
    for topic in topics:
        epochs: Sequence[int] = topic.assignment_epochs or ()
        if len(epochs) != len(topic.partitions):  # of a release before 4.3
            epochs = [epoch] * len(topic.partitions)
        held[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return held
