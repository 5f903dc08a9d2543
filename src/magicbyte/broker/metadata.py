"""Metadata: which brokers and topics there are. A topic that is asked for by its name may be made by that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from magicbyte.errors import ErrorCode, MagicbyteError
from magicbyte.log.checkpoints import check_topic_name
from magicbyte.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from magicbyte.protocol.runtime import NULL_UUID

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker
    from magicbyte.broker.request import Handler, Request
    from magicbyte.broker.topics import Topic


async def metadata(broker: Broker, request: Request[MetadataRequest]) -> MetadataResponse:
    """Return this broker's address on the listener that was asked, and the topics."""
    message = request.message
    host, port = broker.address_of(request.connection.listener)
    asked = message.topics
    if asked is None or (not asked and request.version == 0):
        found = [_describe(broker, broker.topics.known(name)) for name in broker.topics.names()]
    else:
        may_create = message.allow_auto_topic_creation and broker.config.auto_create_topics_enable
        found = [await _find(broker, each, may_create=may_create) for each in asked]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.config.broker_rack)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=found,
    )


async def _find(broker: Broker, asked: MetadataRequestTopic, *, may_create: bool) -> MetadataResponseTopic:
    if asked.topic_id != NULL_UUID:
        topic = broker.topics.by_id(asked.topic_id)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            return MetadataResponseTopic(error_code=code, name=None, topic_id=asked.topic_id)
        return _describe(broker, topic)
    name = asked.name or ""
    topic = broker.topics.get(name)
    try:
        if topic is None:
            check_topic_name(name)
            if not may_create:
                return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
            topic = await broker.create_topic(name)
    except MagicbyteError as error:
        return MetadataResponseTopic(error_code=error.code, name=name)
    return _describe(broker, topic)


def _describe(broker: Broker, topic: Topic) -> MetadataResponseTopic:
    only = (broker.node_id,)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=broker.node_id,
                leader_epoch=topic.leader_epochs[index],
                replica_nodes=only,
                isr_nodes=only,
            )
            for index in range(topic.partitions)
        ],
    )


HANDLERS: Final[Mapping[type, Handler]] = {MetadataRequest: metadata}
