"""The offsets of share groups: described, changed and deleted by administrators.

Source: Kafka's KafkaApis.handleDescribeShareGroupOffsetsRequest and its siblings (4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.acls import AclOperation
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.share.kept_states import change_refusal
from magicbyte.engine.groups.share.records import TopicStates
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.protocol.messages import alter_share_group_offsets as altering
from magicbyte.engine.protocol.messages import delete_share_group_offsets as deleting
from magicbyte.engine.protocol.messages import describe_share_group_offsets as describing
from magicbyte.engine.sharing.states import UNSET, StateKey
from magicbyte.server.serving.authorization import (
    GROUP_REFUSED,
    READ_GROUP,
    TOPIC_REFUSED,
    AuthorizedCaller,
    RowRights,
    WholeRight,
    need_of_group,
    need_of_topic,
)
from magicbyte.server.serving.routes import MANY, MIB, Route

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Handler, Request

_STEPS: Final = 20  # for a group, a topic or a partition
_NOTHING: Final = "There is no offset information to delete."


async def describe_offsets(
    broker: BrokerParts, request: Request[describing.DescribeShareGroupOffsetsRequest]
) -> describing.DescribeShareGroupOffsetsResponse:
    """Return how far groups are. A lag is known of partitions that this broker leads."""
    response = describing.DescribeShareGroupOffsetsResponse()
    table = broker.coordinators.groups.coordinator
    async for asked in request.turns.over(request.message.groups, _STEPS):
        described = describing.DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        response.groups.append(described)
        described.error_code = table.status(asked.group_id)
        if described.error_code:
            continue
        group = table.shares.get(asked.group_id)
        topics = [(topic.topic_name, topic.partitions) for topic in asked.topics or ()]
        if asked.topics is None and group is not None:
            topics = [(name, partitions) for name, partitions in group.states.initialized.values()]
        async for name, partitions in request.turns.over(topics, _STEPS):
            topic = broker.topics.get(name)
            topic_id = NULL_UUID if topic is None or topic.id is None else topic.id
            parts = [
                await _described(broker, StateKey(asked.group_id, topic_id, index), name)
                async for index in request.turns.over(partitions, _STEPS)
            ]
            described.topics.append(
                describing.DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=parts)
            )
    return response


async def _described(
    broker: BrokerParts, key: StateKey, topic: str
) -> describing.DescribeShareGroupOffsetsResponsePartition:
    answer = describing.DescribeShareGroupOffsetsResponsePartition(partition_index=key.partition, start_offset=UNSET)
    if key.topic_id == NULL_UUID:
        return answer
    state = await broker.coordinators.share_state_client.summary(key)
    if isinstance(state, ErrorCode):
        answer.error_code = state
        return answer
    answer.start_offset, answer.leader_epoch = state.start, state.leader_epoch
    served = await broker.replicas.known_partition(topic, key.partition)
    if state.start != UNSET and state.complete_count != UNSET and served is not None and served.leader is not None:
        answer.lag = served.log.high_watermark - state.start - state.complete_count
    return answer


async def alter_offsets(
    broker: BrokerParts, request: Request[altering.AlterShareGroupOffsetsRequest]
) -> altering.AlterShareGroupOffsetsResponse:
    """Begin the states of a group without members again, at given offsets; the group is created if needed."""
    message, groups = request.message, broker.coordinators.groups
    table = groups.coordinator
    if code := change_refusal(table, message.group_id, may_create=True):
        return altering.AlterShareGroupOffsetsResponse(error_code=code)
    group = table.shares.get(message.group_id)
    epoch = max(table.config.share.first_epoch, 1) if group is None else group.epoch
    response, added = altering.AlterShareGroupOffsetsResponse(), dict[Any, TopicStates]()
    async for asked in request.turns.over(message.topics, _STEPS):
        topic = broker.topics.get(asked.topic_name)
        answer = altering.AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        response.responses.append(answer)
        begun = list[int]()
        async for wanted in request.turns.over(asked.partitions, _STEPS):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is not None and topic.id is not None and 0 <= wanted.partition_index < topic.partitions:
                key = StateKey(message.group_id, topic.id, wanted.partition_index)
                code = await broker.coordinators.share_state_client.begin(key, epoch, wanted.start_offset)
                begun += [wanted.partition_index] if not code else []
            answer.partitions.append(
                altering.AlterShareGroupOffsetsResponsePartition(
                    partition_index=wanted.partition_index, error_code=code
                )
            )
        if topic is not None and topic.id is not None:
            answer.topic_id = topic.id
            if begun:
                added[topic.id] = TopicStates(asked.topic_name, tuple(begun))
    if added:
        response.error_code = await groups.change_states(message.group_id, added)
    return response


async def delete_offsets(
    broker: BrokerParts, request: Request[deleting.DeleteShareGroupOffsetsRequest]
) -> deleting.DeleteShareGroupOffsetsResponse:
    """Delete the states of topics of a group without members."""
    message, groups = request.message, broker.coordinators.groups
    table = groups.coordinator
    if code := change_refusal(table, message.group_id, may_create=False):
        return deleting.DeleteShareGroupOffsetsResponse(error_code=code)
    response, removed = deleting.DeleteShareGroupOffsetsResponse(), list[Any]()
    group = table.shares[message.group_id]
    async for asked in request.turns.over(message.topics, _STEPS):
        topic = broker.topics.get(asked.topic_name)
        answer = deleting.DeleteShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        response.responses.append(answer)
        if topic is None or topic.id is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        answer.topic_id = topic.id
        partitions = {*group.kept(topic.id, is_initialized=True), *group.kept(topic.id, is_initialized=False)}
        if not partitions:
            answer.error_code, answer.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NOTHING
            continue
        keys = [StateKey(message.group_id, topic.id, each) for each in sorted(partitions)]
        answer.error_code = await broker.coordinators.share_state_client.delete(keys)
        removed += [topic.id] if not answer.error_code else []
    if removed:
        response.error_code = await groups.change_states(message.group_id, {}, removed)
    return response


# ---- rights


async def _authorized_describe(
    _broker: BrokerParts,
    request: Request[describing.DescribeShareGroupOffsetsRequest],
    handler: Handler,
    caller: AuthorizedCaller,
) -> Message | None:
    """Return offsets with group Describe (30) of topics with topic Describe (29)."""
    need_group, need = need_of_group(AclOperation.DESCRIBE), need_of_topic(AclOperation.DESCRIBE)
    groups, refused = caller.split(need_group, request.message.groups, lambda each: str(each.group_id))
    asked, withheld = list[Any](), dict[str, list[Any]]()
    for group in groups:
        allowed = group.topics
        if allowed is not None:
            allowed, withheld[group.group_id] = caller.split(need, allowed, lambda each: str(each.topic_name))
        asked.append(replace(group, topics=allowed))
    response: Any = await handler(replace(request, message=replace(request.message, groups=asked)))
    for described in response.groups:
        described.topics = [each for each in described.topics if caller.may(need, each.topic_name)]
        for topic in withheld.get(described.group_id, ()):
            parts = [
                describing.DescribeShareGroupOffsetsResponsePartition(
                    partition_index=index, start_offset=UNSET, error_code=TOPIC_REFUSED
                )
                for index in topic.partitions
            ]
            described.topics.append(
                describing.DescribeShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, partitions=parts)
            )
    response.groups += [
        describing.DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, error_code=GROUP_REFUSED)
        for group in refused
    ]
    answered: Message = response
    return answered


def _refuse_altered(response: altering.AlterShareGroupOffsetsResponse, asked: Any, code: ErrorCode) -> None:
    parts = [
        altering.AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index, error_code=code)
        for each in asked.partitions
    ]
    response.responses.append(
        altering.AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name, partitions=parts)
    )


_ALTERED: Final[
    RowRights[
        altering.AlterShareGroupOffsetsRequest,
        altering.AlterShareGroupOffsetsRequestTopic,
        altering.AlterShareGroupOffsetsResponse,
    ]
] = RowRights(
    need_of_topic(AclOperation.READ),
    rows=lambda message: message.topics,
    name=lambda topic: topic.topic_name,
    only=lambda message, topics: replace(message, topics=topics),
    refuse=_refuse_altered,
    whole=WholeRight(
        READ_GROUP,
        lambda _: altering.AlterShareGroupOffsetsResponse(error_code=GROUP_REFUSED),
        lambda message: message.group_id,
    ),
)
_DELETED: Final[
    RowRights[
        deleting.DeleteShareGroupOffsetsRequest,
        deleting.DeleteShareGroupOffsetsRequestTopic,
        deleting.DeleteShareGroupOffsetsResponse,
    ]
] = RowRights(
    need_of_topic(AclOperation.READ),
    rows=lambda message: message.topics,
    name=lambda topic: topic.topic_name,
    only=lambda message, topics: replace(message, topics=topics),
    refuse=lambda response, topic, code: response.responses.append(
        deleting.DeleteShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, error_code=code)
    ),
    whole=WholeRight(
        need_of_group(AclOperation.DELETE),
        lambda _: deleting.DeleteShareGroupOffsetsResponse(error_code=GROUP_REFUSED),
        lambda message: message.group_id,
    ),
)


ROUTES: Final = (
    Route(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        range(2),
        describe_offsets,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_authorized_describe,
    ),
    Route(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        range(1),
        alter_offsets,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_ALTERED,
    ),
    Route(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        range(1),
        delete_offsets,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_DELETED,
    ),
)
