"""DescribeTopicPartitions: topics by name, in pages of a limited number of partitions (KIP-966).

Source: Kafka's DescribeTopicPartitionsRequestHandler and KRaftMetadataCache, and answers of 4.1.1 to 4.4.0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.errors import ErrorCode, InvalidTopicError
from magicbyte.engine.internal_topics import INTERNAL
from magicbyte.engine.log.files.names import check_topic_name
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.server.apis.metadata import TOPIC_OPERATIONS
from magicbyte.server.serving.authorization import TOPIC_REFUSED, AuthorizedCaller
from magicbyte.server.serving.routes import MANY, MIB, Route

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Handler, Request
    from magicbyte.server.stores.topics import ServedTopic


async def describe_topic_partitions(
    broker: BrokerParts, request: Request[DescribeTopicPartitionsRequest], caller: AuthorizedCaller | None = None
) -> DescribeTopicPartitionsResponse:
    """Return a page of topics in the order of their names: the named ones, or all.

    `next_cursor` is the first partition of the next page. `caller`: None if everything is allowed.
    """
    message = request.message
    await broker.cluster_view.until_first_update()
    wanted = sorted({each.name for each in message.topics})
    cursor, first = message.cursor, 0
    if cursor is not None:
        is_named = not wanted or cursor.topic_name in wanted
        if not is_named or cursor.partition_index < 0:
            return DescribeTopicPartitionsResponse(
                topics=[
                    DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=each.name)
                    for each in message.topics
                ]
            )
        first = cursor.partition_index
    named = wanted or broker.topics.names()
    if cursor is not None:
        named = named[bisect_left(named, cursor.topic_name) :]
    may_describe = _all_may if caller is None else _may_describe(caller)
    response = DescribeTopicPartitionsResponse()
    refused = list[DescribeTopicPartitionsResponseTopic]()
    left = max(1, min(message.response_partition_limit, broker.runtime.config.max_request_partition_size_limit))
    async for name in request.turns.over(named):
        if not may_describe(name):
            if wanted:
                refused.append(DescribeTopicPartitionsResponseTopic(error_code=TOPIC_REFUSED, name=name))
            continue
        if not left:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=0)
            break
        start = first if cursor is not None and name == cursor.topic_name else 0
        topic = broker.topics.get(name)
        if topic is None:
            if wanted:  # else it was deleted meanwhile
                response.topics.append(_unknown(name))
            continue
        partitions = _partitions(broker, topic, start, left)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name, topic_id=topic.id, is_internal=topic.is_internal, partitions=partitions
            )
        )
        left -= len(partitions)
        await request.turns.take(len(partitions))
        if not left and (end := start + len(partitions)) < topic.partitions:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=end)
            break
    for told in response.topics:
        told.topic_authorized_operations = (
            TOPIC_OPERATIONS if caller is None else caller.operations(ResourceType.TOPIC, told.name or "")
        )
    response.topics += refused
    return response


def _all_may(_name: str) -> bool:
    return True


def _may_describe(caller: AuthorizedCaller) -> Callable[[str], bool]:
    return lambda name: caller.has(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except InvalidTopicError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL)


def _partitions(
    broker: BrokerParts, topic: ServedTopic, start: int, most: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    states = broker.cluster_view.partitions(topic.name)[start : start + most]
    return [
        DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_BROKER else ErrorCode.NONE,
            partition_index=index,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.isr,
            eligible_leader_replicas=(),  # not null, with which the Java client of 4.3 fails
            last_known_elr=(),
            offline_replicas=state.offline,
        )
        for index, state in enumerate(states, start)
    ]


async def _authorized_describe(
    broker: BrokerParts,
    request: Request[DescribeTopicPartitionsRequest],
    _handler: Handler,
    caller: AuthorizedCaller,
) -> Message | None:
    """Describe topics with topic Describe (29 if they are named)."""
    return await describe_topic_partitions(broker, request, caller)


ROUTES: Final = (
    Route(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        range(1),
        describe_topic_partitions,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_authorized_describe,
    ),
)
