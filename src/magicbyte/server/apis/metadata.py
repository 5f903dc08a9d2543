"""Metadata: brokers and topics. A topic requested by name may be created automatically."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.acls import CLUSTER_NAME, AclOperation, ResourceType
from magicbyte.engine.errors import CoordinatorNotAvailableError, ErrorCode, MagicbyteError, TopicExistsError
from magicbyte.engine.internal_topics import INTERNAL
from magicbyte.engine.log.files.names import check_topic_name, is_reserved
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.server.serving.authorization import (
    TOPIC_REFUSED,
    AuthorizedCaller,
)
from magicbyte.server.serving.routes import MANY, MIB, Route
from magicbyte.server.serving.shared_answers import SharedAnswer

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.quotas import MutationQuota
    from magicbyte.server.serving.request import Handler, Request
    from magicbyte.server.stores.topics import ServedTopic, Topics

# Without an authorizer all operations are allowed; the bits are numbers of ACL operations.
_FIRST_OF_ALL_BY_NULL: Final = 1
_FIRST_WITH_IDS, _FIRST_BY_ID = 10, 12
_MOST_NAMES: Final = 100  # of topics in a request whose answer is kept for others
CLUSTER_OPERATIONS: Final = sum(1 << each for each in (5, 7, 8, 9, 10, 11, 12))
"""Create, alter, describe, cluster action, describe configs, alter configs, idempotent write."""
TOPIC_OPERATIONS: Final = sum(1 << each for each in (3, 4, 5, 6, 7, 8, 10, 11))
"""Read, write, create, delete, alter, describe, describe configs, alter configs."""


async def metadata(broker: BrokerParts, request: Request[MetadataRequest]) -> Message:
    """Return the brokers' addresses on the client's listener, and the topics."""
    asked = request.message.topics
    if not broker.shares_answers or len(asked or ()) > _MOST_NAMES:
        return await _described(broker, request)
    view, answers, image = broker.cluster_view, broker.shared_answers, broker.cluster_store.image
    key = _kind(request)
    found = answers.find(image, key)
    unopened = view.unopened()
    if found is not None and found.seen == unopened:
        return found
    response = await _described(broker, request)
    if not response.brokers or any(each.error_code for each in response.topics):
        return response
    answer = SharedAnswer(response, request.version, unopened, is_long=request.turns.is_long)
    answers.put(image, key, answer, sum(len(each.partitions) + 1 for each in response.topics))
    return answer


class _TopicsById:
    """Metadata of topics by id: if a request has an id, its names are ignored.

    Versions 10 and 11 have a field for the id, and refuse a request that uses it.
    """

    first: Final = _FIRST_WITH_IDS

    async def __call__(
        self, _broker: BrokerParts, request: Request[MetadataRequest], handle: Handler, /
    ) -> Message | None:
        """Return the response to a request with either names or ids, each once."""
        asked = request.message.topics or ()
        ids = dict.fromkeys(each.topic_id for each in asked if each.topic_id != NULL_UUID)
        is_unnamed = any(each.name is None for each in asked)
        if request.version < _FIRST_BY_ID and (ids or is_unnamed):
            return _refused_whole(asked, ErrorCode.INVALID_REQUEST)
        if ids:
            topics = [MetadataRequestTopic(name=None, topic_id=each) for each in ids]
            return await handle(replace(request, message=replace(request.message, topics=topics)))
        if is_unnamed:
            return _refused_whole(asked, ErrorCode.UNKNOWN_SERVER_ERROR)
        return await handle(request)


def _refused_whole(asked: Iterable[MetadataRequestTopic], code: ErrorCode) -> MetadataResponse:
    topics = [MetadataResponseTopic(error_code=code, name=each.name or "", topic_id=each.topic_id) for each in asked]
    return MetadataResponse(topics=topics, error_code=code)


def _kind(request: Request[MetadataRequest]) -> Hashable:
    """Return what the answer to a request depends on, besides the cluster and whether topics may be created."""
    message = request.message
    asked = None if message.topics is None else tuple((each.topic_id.int, each.name) for each in message.topics)
    operations = message.include_cluster_authorized_operations, message.include_topic_authorized_operations
    return ApiKey.METADATA, request.version, request.connection.listener.name, operations, asked


async def _described(broker: BrokerParts, request: Request[MetadataRequest]) -> MetadataResponse:
    message, turns = request.message, request.turns
    await broker.cluster_view.until_first_update()
    asked = message.topics
    if asked is None or (not asked and request.version == 0):
        described = []
        async for name in turns.over(broker.topics.names()):
            if (topic := broker.topics.get(name)) is not None:  # it may be deleted meanwhile
                described.append(_describe(broker, topic))
                await turns.take(topic.partitions)
    else:
        may_create = message.allow_auto_topic_creation and broker.runtime.config.auto_create_topics_enable
        once = {(each.topic_id.int, each.name): each for each in asked}.values()
        described = []
        quota = broker.runtime.quotas.mutations_of(request)
        async for each in turns.over(once):
            described.append(await _find(broker, each, quota, may_create=may_create))
            await turns.take(len(described[-1].partitions))
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=member.id, host=member.host, port=member.port, rack=member.rack)
            for member in broker.cluster_view.brokers(request.connection.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.cluster_view.controller_id,
        topics=described,
    )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    if message.include_topic_authorized_operations:
        for told in described:
            told.topic_authorized_operations = TOPIC_OPERATIONS
    return response


async def _find(
    broker: BrokerParts, asked: MetadataRequestTopic, quota: MutationQuota, *, may_create: bool
) -> MetadataResponseTopic:
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
            if not may_create or is_reserved(name):
                return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
            # As in Kafka while its partitions have no leader yet: the client retries. So it should if another request
            # creates the same topic at this moment.
            with suppress(TopicExistsError, CoordinatorNotAvailableError):
                quota.take((await broker.topic_changes.create(name)).partitions)
            return MetadataResponseTopic(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=name, is_internal=name in INTERNAL
            )
    except MagicbyteError as error:
        return MetadataResponseTopic(error_code=error.code, name=name)
    return _describe(broker, topic)


def _describe(broker: BrokerParts, topic: ServedTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_BROKER else ErrorCode.NONE,
                partition_index=index,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.isr,
                offline_replicas=state.offline,
            )
            for index, state in enumerate(broker.cluster_view.partitions(topic.name))
        ],
    )


async def _authorized_metadata(
    broker: BrokerParts, request: Request[MetadataRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Return topics with topic Describe (29); to create one also needs Create on it or on the cluster."""
    message, version = request.message, request.version
    asked = message.topics
    is_all = asked is None or (not asked and version < _FIRST_OF_ALL_BY_NULL)
    refused: list[MetadataRequestTopic] = []
    if asked and not is_all:
        may_create = message.allow_auto_topic_creation and broker.runtime.config.auto_create_topics_enable
        allowed = []
        for each in asked:
            name = name_of_topic(broker.topics, each)
            if name is None or _may_ask(broker, caller, name, may_create=may_create):
                allowed.append(each)
            else:
                refused.append(each)
        some = replace(message, topics=allowed)
        request = replace(request, message=some, version=max(version, _FIRST_OF_ALL_BY_NULL))
    response: Any = await handler(request)
    if is_all:
        response.topics = [
            each for each in response.topics if caller.has(AclOperation.DESCRIBE, ResourceType.TOPIC, each.name)
        ]
    if message.include_topic_authorized_operations:
        for told in response.topics:
            if told.name is not None:
                told.topic_authorized_operations = caller.operations(ResourceType.TOPIC, told.name)
    response.topics = [
        *response.topics,
        *(
            MetadataResponseTopic(
                error_code=TOPIC_REFUSED,
                name=None if each.topic_id != NULL_UUID else each.name,
                topic_id=each.topic_id,
            )
            for each in refused
        ),
    ]
    tell_cluster_operations(message, response, caller)
    answered: Message = response
    return answered


def name_of_topic(topics: Topics, asked: Any) -> str | None:
    """Return the name of a topic requested by name or id; None for an unknown id."""
    if asked.topic_id == NULL_UUID:
        return asked.name or ""
    topic = topics.by_id(asked.topic_id)
    return None if topic is None else topic.name


def _may_ask(broker: BrokerParts, caller: AuthorizedCaller, name: str, *, may_create: bool) -> bool:
    if not caller.has(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return False
    if not may_create or broker.topics.get(name) is not None:
        return True
    return caller.has(AclOperation.CREATE, ResourceType.CLUSTER) or caller.has(
        AclOperation.CREATE, ResourceType.TOPIC, name
    )


def tell_cluster_operations(message: Any, response: Any, caller: AuthorizedCaller) -> None:
    """Add the operations on the cluster that the caller is authorized for to a response, if requested."""
    if message.include_cluster_authorized_operations:
        is_told = caller.has(AclOperation.DESCRIBE, ResourceType.CLUSTER)
        response.cluster_authorized_operations = caller.operations(ResourceType.CLUSTER, CLUSTER_NAME) if is_told else 0


ROUTES: Final = (
    Route(
        ApiKey.METADATA,
        range(14),
        metadata,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_authorized_metadata,
        by_id=_TopicsById(),
    ),
)
