"""Metadata: brokers and topics. A topic requested by name may be created automatically."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import CoordinatorNotAvailableError, ErrorCode, MagicbyteError, TopicExistsError
from magicbyte.engine.log.files.names import check_topic_name, is_reserved
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from magicbyte.server.stores.cluster_view import NOBODY
from magicbyte.server.stores.topic_nodes import INTERNAL

if TYPE_CHECKING:
    from magicbyte.server.coordinating.topic_changes import TopicChanges
    from magicbyte.server.serving.quotas import MutationQuota
    from magicbyte.server.serving.request import Request, UnboundHandler
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.metadata_cache import MetadataCache
    from magicbyte.server.stores.topic_table import ServedTopic
    from magicbyte.server.stores.topics import Topics

# Without an authorizer all operations are allowed; the bits are numbers of ACL operations.
CLUSTER_OPERATIONS: Final = sum(1 << each for each in (5, 7, 8, 9, 10, 11, 12))
"""Create, alter, describe, cluster action, describe configs, alter configs, idempotent write."""
TOPIC_OPERATIONS: Final = sum(1 << each for each in (3, 4, 5, 6, 7, 8, 10, 11))
"""Read, write, create, delete, alter, describe, describe configs, alter configs."""


@dataclass(frozen=True, slots=True)
class MetadataServices:
    """The parts of the broker that Metadata uses."""

    runtime: Runtime
    topics: Topics
    cluster_view: ClusterView
    cache: MetadataCache | None
    topic_changes: TopicChanges
    cluster_id: str


async def metadata(services: MetadataServices, request: Request[MetadataRequest]) -> MetadataResponse:
    """Return the brokers' addresses on the client's listener, and the topics."""
    message, turns = request.message, request.turns
    if services.cache is not None:
        await services.cache.until_first_update()
    asked = message.topics
    if asked is None or (not asked and request.version == 0):
        described = []
        async for name in turns.over(services.topics.names()):
            if (topic := services.topics.get(name)) is not None:  # it may be deleted meanwhile
                described.append(_describe(services, topic))
                await turns.take(topic.partitions)
    else:
        may_create = message.allow_auto_topic_creation and services.runtime.config.auto_create_topics_enable
        once = {(each.topic_id.int, each.name): each for each in asked}.values()
        described = []
        quota = services.runtime.quotas.mutations_of(request)
        async for each in turns.over(once):
            described.append(await _find(services, each, quota, may_create=may_create))
            await turns.take(len(described[-1].partitions))
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
            for each in services.cluster_view.brokers(request.connection.listener)
        ],
        cluster_id=services.cluster_id,
        controller_id=services.cluster_view.controller_id,
        topics=described,
    )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    if message.include_topic_authorized_operations:
        for told in described:
            told.topic_authorized_operations = TOPIC_OPERATIONS
    return response


async def _find(
    services: MetadataServices, asked: MetadataRequestTopic, quota: MutationQuota, *, may_create: bool
) -> MetadataResponseTopic:
    if asked.topic_id != NULL_UUID:
        topic = services.topics.by_id(asked.topic_id)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            return MetadataResponseTopic(error_code=code, name=None, topic_id=asked.topic_id)
        return _describe(services, topic)
    name = asked.name or ""
    topic = services.topics.get(name)
    try:
        if topic is None:
            check_topic_name(name)
            if not may_create or is_reserved(name):
                return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
            # As in Kafka while its partitions have no leader yet: the client retries. So it should if another request
            # creates the same topic at this moment.
            with suppress(TopicExistsError, CoordinatorNotAvailableError):
                quota.take((await services.topic_changes.create(name)).partitions)
            return MetadataResponseTopic(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=name, is_internal=name in INTERNAL
            )
    except MagicbyteError as error:
        return MetadataResponseTopic(error_code=error.code, name=name)
    return _describe(services, topic)


def _describe(services: MetadataServices, topic: ServedTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NOBODY else ErrorCode.NONE,
                partition_index=index,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.isr,
                offline_replicas=state.offline,
            )
            for index, state in enumerate(services.cluster_view.partitions(topic))
        ],
    )


HANDLERS: Final[Mapping[type, UnboundHandler]] = {MetadataRequest: metadata}
