"""Descriptions of consumer groups. Source: Kafka's ConsumerGroup.asDescribedGroup (4.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magicbyte.engine.coordination.decider import Work
from magicbyte.engine.coordination.effects import Caller, Reply, Steps
from magicbyte.engine.coordination.parts import in_parts, once_if_long
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.consumer.group import ConsumerGroup
from magicbyte.engine.groups.consumer.heartbeat import preferred_assignor
from magicbyte.engine.groups.consumer.members import NEW, Partitions, partitions_of
from magicbyte.engine.groups.effects import Effect
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from magicbyte.engine.groups.table import GroupTable

OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""The allowed operations on a group when there is no authorizer: also those on its settings, which 4.0 has."""
_OF_CLASSIC: Final = 0
_OF_CONSUMER: Final = 1
"""The types of members, by protocol."""


def describe(table: GroupTable, caller: Caller, request: ConsumerGroupDescribeRequest, _now: Moment) -> Work[Effect]:
    """Answer a ConsumerGroupDescribe. A group may change between the parts of its members."""
    groups = list[DescribedGroup]()
    for group_id in once_if_long(request.group_ids):
        described = DescribedGroup(group_id=group_id)
        code = table.status(group_id)
        group = table.consumers.get(group_id)
        if not code and not table.config.consumer.is_enabled:
            code = ErrorCode.UNSUPPORTED_VERSION
        if code or group is None:
            described.error_code = code or ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = None if code else f"There is no consumer group {group_id}."
        else:
            described.group_state, described.group_epoch = group.state.value, group.epoch
            described.assignment_epoch = group.target_epoch
            described.assignor_name = preferred_assignor(table.config.consumer, group.subscribers)
            if request.include_authorized_operations:
                described.authorized_operations = OPERATIONS
            for some in in_parts(list(group.subscribers)):
                members = [_member(table, group, each) for each in some if each in group.subscribers]
                described.members += members
                yield Steps(len(some) + sum(_size(each) for each in members) // 10)
        groups.append(described)
        yield Steps(1)
    yield Reply(caller, ConsumerGroupDescribeResponse(groups=groups))


def _size(member: Member) -> int:
    both = (member.assignment, member.target_assignment)
    return sum(len(topic.partitions) for each in both for topic in each.topic_partitions)


def _member(table: GroupTable, group: ConsumerGroup, member_id: str) -> Member:
    subscriber, progress = group.subscribers[member_id], group.progress.get(member_id, NEW)
    held = {
        topic: {**progress.assigned.get(topic, {}), **progress.revoking.get(topic, {})}
        for topic in progress.assigned.keys() | progress.revoking.keys()
    }
    return Member(
        member_id=member_id,
        instance_id=subscriber.instance_id,
        rack_id=subscriber.rack_id,
        member_epoch=progress.epoch,
        client_id=subscriber.client_id,
        client_host=subscriber.client_host,
        subscribed_topic_names=list(subscriber.topics),
        subscribed_topic_regex=subscriber.regex,
        assignment=_assignment(table, partitions_of(held)),
        target_assignment=_assignment(table, group.targets.get(member_id, {})),
        member_type=_OF_CONSUMER if subscriber.classic is None else _OF_CLASSIC,
    )


def _assignment(table: GroupTable, partitions: Partitions) -> Assignment:
    """Return partitions with the names of their topics; those of deleted topics are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=numbers)
            for topic_id, numbers in partitions.items()
            if (topic := table.topics.find_id(topic_id)) is not None
        ]
    )
