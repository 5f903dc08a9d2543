"""Descriptions of share groups. Source: Kafka's ShareGroup.asDescribedGroup (4.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magicbyte.engine.coordination.decider import Work
from magicbyte.engine.coordination.effects import Caller, Reply, Steps
from magicbyte.engine.coordination.parts import in_parts, once_if_long
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.consumer.describe import OPERATIONS
from magicbyte.engine.groups.effects import Effect
from magicbyte.engine.groups.share.group import ShareGroup
from magicbyte.engine.groups.share.records import ShareProgress
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from magicbyte.engine.groups.table import GroupTable

_ASSIGNOR: Final = "simple"


def describe(table: GroupTable, caller: Caller, request: ShareGroupDescribeRequest, _now: Moment) -> Work[Effect]:
    """Answer a ShareGroupDescribe. A group may change between the parts of its members."""
    groups = list[DescribedGroup]()
    for group_id in once_if_long(request.group_ids):
        described = DescribedGroup(group_id=group_id)
        code = table.status(group_id)
        group = table.shares.get(group_id)
        if not code and not table.config.share.is_enabled:
            code = ErrorCode.UNSUPPORTED_VERSION
        if code or group is None:
            described.error_code = code or ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = None if code else f"There is no share group {group_id}."
        else:
            described.group_state, described.group_epoch = group.state.value, group.epoch
            described.assignment_epoch, described.assignor_name = group.target_epoch, _ASSIGNOR
            if request.include_authorized_operations:
                described.authorized_operations = OPERATIONS
            for some in in_parts(list(group.subscribers)):
                described.members += [_member(table, group, each) for each in some if each in group.subscribers]
                yield Steps(2 * len(some))
        groups.append(described)
        yield Steps(1)
    yield Reply(caller, ShareGroupDescribeResponse(groups=groups))


def _member(table: GroupTable, group: ShareGroup, member_id: str) -> Member:
    subscriber, progress = group.subscribers[member_id], group.progress.get(member_id, ShareProgress())
    return Member(
        member_id=member_id,
        rack_id=subscriber.rack_id,
        member_epoch=progress.epoch,
        client_id=subscriber.client_id,
        client_host=subscriber.client_host,
        subscribed_topic_names=list(subscriber.topics),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=partitions)
                for topic_id, partitions in progress.assigned.items()
                if (topic := table.topics.find_id(topic_id)) is not None
            ]
        ),
    )
