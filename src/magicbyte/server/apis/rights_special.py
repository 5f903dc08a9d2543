"""Required rights of APIs whose rules do not fit the table in `apis/rights.py`; and the caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from magicbyte.engine.cluster.acls import CLUSTER_NAME, AclOperation, ResourceType
from magicbyte.engine.errors import ErrorCode, NotControllerError
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.protocol.messages import alter_client_quotas as quotas
from magicbyte.engine.protocol.messages.alter_configs import AlterConfigsResourceResponse
from magicbyte.engine.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from magicbyte.engine.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from magicbyte.engine.protocol.messages.create_topics import CreatableTopic, CreatableTopicResult
from magicbyte.engine.protocol.messages.delete_topics import DeletableTopicResult
from magicbyte.engine.protocol.messages.describe_configs import DescribeConfigsResult
from magicbyte.engine.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, FetchTopic, PartitionData
from magicbyte.engine.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from magicbyte.engine.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdResponse
from magicbyte.engine.protocol.messages.metadata import MetadataRequestTopic, MetadataResponseTopic
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from magicbyte.server.apis.admin_topics import check_controller
from magicbyte.server.apis.fetch import give_back

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.serving.request import ClientConnection, Handler, Request
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.stores.authorizer import Authorizer
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.topics import Topics

T = TypeVar("T")

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_TRANSACTION_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NEW_SESSION: Final = 0
_NO_SESSION: Final = -1
_FIRST_WITH_TOP_CODE: Final = 2  # of OffsetFetch
_FIRST_WITH_GROUPS: Final = 8
_FIRST_WITH_KEYS: Final = 4  # of FindCoordinator
_FIRST_WITH_CONFIGS: Final = 5  # of CreateTopics
_FIRST_WITH_IDS: Final = 6  # of DeleteTopics
_FIRST_OF_ALL_BY_NULL: Final = 1  # of Metadata
_TOPIC_CONFIGS, _BROKER_CONFIGS, _LOGGER_CONFIGS = 2, 4, 8


class RightsServices(NamedTuple):
    """The parts of the broker used before a request is handled."""

    config: BrokerConfig
    authorizer: Authorizer
    topics: Topics
    cluster_view: ClusterView


class Need(NamedTuple):
    """A right, and the error code without it."""

    operation: AclOperation
    type: ResourceType
    code: ErrorCode


def need_of_cluster(operation: AclOperation) -> Need:
    """Return a right to the cluster."""
    return Need(operation, _CLUSTER, _CLUSTER_REFUSED)


def need_of_group(operation: AclOperation) -> Need:
    """Return a right to a group."""
    return Need(operation, _GROUP, _GROUP_REFUSED)


def need_of_topic(operation: AclOperation) -> Need:
    """Return a right to a topic."""
    return Need(operation, _TOPIC, _TOPIC_REFUSED)


class AuthorizedCaller:
    """The caller: a connection with its authorizer."""

    __slots__ = ("_authorizer", "_connection", "services")

    def __init__(self, services: RightsServices, connection: ClientConnection) -> None:
        self.services, self._authorizer, self._connection = services, services.authorizer, connection

    def may(self, need: Need, name: str) -> bool:
        """Return whether the caller has this right."""
        return self._authorizer.allows(self._connection, need.operation, need.type, name)

    def has(self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether an operation is allowed."""
        return self._authorizer.allows(self._connection, operation, kind, name)

    def has_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Return whether an operation is allowed on any name."""
        return self._authorizer.allows_any(self._connection, operation, kind)

    def operations(self, kind: ResourceType, name: str) -> int:
        """Return the authorized operations, as bits."""
        return self._authorizer.operations(self._connection, kind, name)

    def split(self, need: Need, asked: Iterable[T], name_of: Callable[[T], str]) -> tuple[list[T], list[T]]:
        """Return the items with an authorized name, and the others."""
        allowed: list[T] = []
        refused: list[T] = []
        for each in asked:
            (allowed if self.may(need, name_of(each)) else refused).append(each)
        return allowed, refused


Special: TypeAlias = Callable[["Request[Any]", "Handler", AuthorizedCaller], Awaitable["Message | None"]]


async def _fetch(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Allow brokers to fetch everything, others topics that they may read; changed rights end a session."""
    message = request.message
    if message.replica_id >= 0:
        if caller.has(AclOperation.CLUSTER_ACTION, _CLUSTER):
            return await handler(request)
        return FetchResponse(responses=[_not_fetched(each) for each in message.topics])
    need = need_of_topic(AclOperation.READ)
    allowed, refused = caller.split(need, message.topics, lambda each: str(each.topic))
    is_whole = message.session_epoch in (_NEW_SESSION, _NO_SESSION)
    if refused and not is_whole:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if refused:
        some = replace(message, topics=allowed, session_epoch=_NO_SESSION, max_wait_ms=0)
        request = replace(request, message=some)
    response: Any = await handler(request)
    kept, lost = caller.split(need, response.responses, lambda each: str(each.topic))
    if lost:  # the right was revoked after the session began, or while the fetch waited
        for topic in response.responses:
            for part in topic.partitions:
                give_back(part)
        if not is_whole:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return FetchResponse(responses=[_not_fetched(each) for each in message.topics])
    response.responses = kept + [_not_fetched(each) for each in refused]
    answered: Message = response
    return answered


def _not_fetched(asked: FetchTopic) -> FetchableTopicResponse:
    parts = [
        PartitionData(  # librdkafka takes null in place of no records for damage
            partition_index=partition.partition,
            error_code=_TOPIC_REFUSED,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
        for partition in asked.partitions
    ]
    return FetchableTopicResponse(topic=asked.topic, partitions=parts)


async def _metadata(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Return topics that may be described, and create none without the right to."""
    message, version = request.message, request.version
    is_all = message.topics is None or (not message.topics and version < _FIRST_OF_ALL_BY_NULL)
    refused: list[MetadataRequestTopic] = []
    if not is_all:
        may_create = message.allow_auto_topic_creation and caller.services.config.auto_create_topics_enable
        allowed = []
        for each in message.topics:
            name = _name_of(caller.services.topics, each)
            if name is None or _may_ask(caller, name, may_create=may_create):
                allowed.append(each)
            else:
                refused.append(each)
        some = replace(message, topics=allowed)
        request = replace(request, message=some, version=max(version, _FIRST_OF_ALL_BY_NULL))
    response: Any = await handler(request)
    if is_all:
        response.topics = [each for each in response.topics if caller.has(AclOperation.DESCRIBE, _TOPIC, each.name)]
    if message.include_topic_authorized_operations:
        for told in response.topics:
            if told.name is not None:
                told.topic_authorized_operations = caller.operations(_TOPIC, told.name)
    response.topics = [
        *response.topics,
        *(
            MetadataResponseTopic(
                error_code=_TOPIC_REFUSED,
                name=None if each.topic_id != NULL_UUID else each.name,
                topic_id=each.topic_id,
            )
            for each in refused
        ),
    ]
    _tell_cluster_operations(message, response, caller)
    answered: Message = response
    return answered


def _name_of(topics: Topics, asked: Any) -> str | None:
    """Return the name of a topic requested by name or id; None for an unknown id."""
    if asked.topic_id == NULL_UUID:
        return asked.name or ""
    topic = topics.by_id(asked.topic_id)
    return None if topic is None else topic.name


def _may_ask(caller: AuthorizedCaller, name: str, *, may_create: bool) -> bool:
    if not caller.has(AclOperation.DESCRIBE, _TOPIC, name):
        return False
    if not may_create or caller.services.topics.get(name) is not None:
        return True
    return caller.has(AclOperation.CREATE, _CLUSTER) or caller.has(AclOperation.CREATE, _TOPIC, name)


async def _describe_cluster(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Return the brokers to every client, and the authorized operations to those who may describe the cluster."""
    response: Any = await handler(request)
    _tell_cluster_operations(request.message, response, caller)
    answered: Message = response
    return answered


def _tell_cluster_operations(message: Any, response: Any, caller: AuthorizedCaller) -> None:
    if message.include_cluster_authorized_operations:
        is_told = caller.has(AclOperation.DESCRIBE, _CLUSTER)
        response.cluster_authorized_operations = caller.operations(_CLUSTER, CLUSTER_NAME) if is_told else 0


async def _offset_fetch(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Return offsets of groups and topics that may be described."""
    message, version = request.message, request.version
    if version < _FIRST_WITH_GROUPS:
        if not caller.has(AclOperation.DESCRIBE, _GROUP, message.group_id):
            each_code = _GROUP_REFUSED if version < _FIRST_WITH_TOP_CODE else None
            topics = [] if each_code is None else _offsets_refused(message.topics or (), each_code)
            return OffsetFetchResponse(error_code=_GROUP_REFUSED, topics=topics)
        allowed, refused = _describable(caller, message.topics)
        response: Any = await handler(replace(request, message=replace(message, topics=allowed)))
        if allowed is None:
            response.topics = _describable(caller, response.topics)[0]
        response.topics = [*response.topics, *_offsets_refused(refused, _TOPIC_REFUSED)]
        first: Message = response
        return first
    groups, no_groups, withheld = [], [], dict[str, list[Any]]()
    for group in message.groups:
        if caller.has(AclOperation.DESCRIBE, _GROUP, group.group_id):
            allowed, withheld[group.group_id] = _describable(caller, group.topics)
            groups.append(replace(group, topics=allowed))
        else:
            no_groups.append(group)
    response = OffsetFetchResponse()
    if groups:
        response = await handler(replace(request, message=replace(message, groups=groups)))
    all_of = {each.group_id for each in groups if each.topics is None}
    for told in response.groups:
        if told.group_id in all_of:
            told.topics = _describable(caller, told.topics)[0]
        told.topics = [*told.topics, *map(_topic_offsets_refused, withheld.get(told.group_id, ()))]
    response.groups = [*response.groups, *map(_group_refused, no_groups)]
    answered: Message = response
    return answered


def _describable(caller: AuthorizedCaller, topics: Any) -> tuple[Any, list[Any]]:
    """Return the topics that may be described, and the others; None stands for all, and stays None."""
    if topics is None:
        return None, []
    need = need_of_topic(AclOperation.DESCRIBE)
    return caller.split(need, topics, lambda each: str(each.name))


def _offsets_refused(topics: Iterable[Any], code: ErrorCode) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def _topic_offsets_refused(asked: Any) -> OffsetFetchResponseTopics:
    parts = [
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, metadata="", error_code=_TOPIC_REFUSED
        )
        for index in asked.partition_indexes
    ]
    return OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id, partitions=parts)


def _group_refused(asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=_GROUP_REFUSED)


async def _find_coordinator(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Return the coordinators of groups and transactional ids that may be described."""
    message = request.message
    kind, code = _GROUP, _GROUP_REFUSED
    if message.key_type == 1:
        kind, code = ResourceType.TRANSACTIONAL_ID, _TRANSACTION_REFUSED
    need = Need(AclOperation.DESCRIBE, kind, code)
    if request.version < _FIRST_WITH_KEYS:
        if caller.may(need, message.key):
            return await handler(request)
        return FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    allowed, refused = caller.split(need, message.coordinator_keys, str)
    response: Any = FindCoordinatorResponse()  # without calling the handler, which would create a missing offsets topic
    if allowed:
        response = await handler(replace(request, message=replace(message, coordinator_keys=allowed)))
    response.coordinators = [
        *response.coordinators,
        *(Coordinator(key=each, node_id=-1, port=-1, error_code=code) for each in refused),
    ]
    answered: Message = response
    return answered


async def _list_groups(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """List all groups for those who may describe the cluster, for others those that they may describe."""
    response: Any = await handler(request)
    if not caller.has(AclOperation.DESCRIBE, _CLUSTER):
        response.groups = [each for each in response.groups if caller.has(AclOperation.DESCRIBE, _GROUP, each.group_id)]
    answered: Message = response
    return answered


def is_controller(view: ClusterView) -> bool:
    """Return whether this broker may change topics: NOT_CONTROLLER takes precedence over missing rights."""
    try:
        check_controller(view)
    except NotControllerError:
        return False
    return True


async def _create_topics(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Create topics for those who may create all, or these; return their settings to those who may describe them."""
    if not is_controller(caller.services.cluster_view):
        return await handler(request)
    message = request.message
    allowed: list[CreatableTopic] = message.topics
    refused: list[CreatableTopic] = []
    if not caller.has(AclOperation.CREATE, _CLUSTER):
        twice = {name for name, count in Counter(each.name for each in message.topics).items() if count > 1}
        allowed = []
        for each in message.topics:
            is_passed = each.name in twice or caller.has(AclOperation.CREATE, _TOPIC, each.name)
            (allowed if is_passed else refused).append(each)
    response: Any = await handler(replace(request, message=replace(message, topics=allowed)))
    response.topics = [
        *response.topics,
        *(CreatableTopicResult(name=each.name, error_code=_TOPIC_REFUSED, configs=[]) for each in refused),
    ]
    if request.version >= _FIRST_WITH_CONFIGS:
        hiding = (ErrorCode.NONE, _TOPIC_REFUSED, ErrorCode.INVALID_REQUEST)
        for told in response.topics:
            if told.error_code in hiding and not caller.has(AclOperation.DESCRIBE_CONFIGS, _TOPIC, told.name):
                told.topic_config_error_code, told.configs = _TOPIC_REFUSED, []
                told.num_partitions = told.replication_factor = -1
    answered: Message = response
    return answered


async def _delete_topics(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Delete topics; the name of an id that may not be described is not returned."""
    if not is_controller(caller.services.cluster_view):
        return await handler(request)
    message = request.message
    by_ids = request.version >= _FIRST_WITH_IDS
    asked = message.topics if by_ids else message.topic_names
    allowed, refused = [], []
    for wanted in asked:
        name = _name_of(caller.services.topics, wanted) if by_ids else wanted
        if name is None or caller.has(AclOperation.DELETE, _TOPIC, name):
            allowed.append(wanted)
            continue
        result = DeletableTopicResult(name=name, error_code=_TOPIC_REFUSED)
        if by_ids and wanted.topic_id != NULL_UUID:
            result.topic_id = wanted.topic_id
            result.name = name if caller.has(AclOperation.DESCRIBE, _TOPIC, name) else None
        refused.append(result)
    some = replace(message, **{"topics" if by_ids else "topic_names": allowed})
    response: Any = await handler(replace(request, message=some))
    response.responses = [*response.responses, *refused]
    answered: Message = response
    return answered


def _of_configs(operation: AclOperation, listed: str, row: type[Any]) -> Special:
    """Return the check for a request about settings: a topic's, or the cluster's."""

    async def answer(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
        message = request.message
        allowed, refused = [], []
        for resource in message.resources:
            code = ErrorCode.NONE
            if resource.resource_type == _TOPIC_CONFIGS:
                code = _TOPIC_REFUSED if not caller.has(operation, _TOPIC, resource.resource_name) else code
            elif resource.resource_type in (_BROKER_CONFIGS, _LOGGER_CONFIGS):
                code = _CLUSTER_REFUSED if not caller.has(operation, _CLUSTER) else code
            if code:
                refused.append(
                    row(error_code=code, resource_type=resource.resource_type, resource_name=resource.resource_name)
                )
            else:
                allowed.append(resource)
        response: Any = await handler(replace(request, message=replace(message, resources=allowed)))
        setattr(response, listed, [*getattr(response, listed), *refused])
        answered: Message = response
        return answered

    return answer


async def _init_producer_id(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Return ids to those who may write: to any topic, or with their transactional id."""
    name = request.message.transactional_id
    code = ErrorCode.NONE
    if name is not None:
        if not caller.has(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            code = _TRANSACTION_REFUSED
    elif not (caller.has(AclOperation.IDEMPOTENT_WRITE, _CLUSTER) or caller.has_any(AclOperation.WRITE, _TOPIC)):
        code = _CLUSTER_REFUSED
    if code:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return await handler(request)


async def _alter_scram(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Allow those who may alter the cluster to change credentials."""
    if caller.has(AclOperation.ALTER, _CLUSTER):
        return await handler(request)
    names = dict.fromkeys(each.name for each in (*request.message.deletions, *request.message.upsertions))
    results = [AlterUserScramCredentialsResult(user=each, error_code=_CLUSTER_REFUSED) for each in names]
    return AlterUserScramCredentialsResponse(results=results)


async def _alter_quotas(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Allow those who may alter the cluster's settings to change quotas."""
    if caller.has(AclOperation.ALTER_CONFIGS, _CLUSTER):
        return await handler(request)
    refused = [
        quotas.AlterClientQuotasResponseEntryData(
            error_code=_CLUSTER_REFUSED,
            entity=[
                quotas.AlterClientQuotasResponseEntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                for part in each.entity
            ],
        )
        for each in request.message.entries
    ]
    return quotas.AlterClientQuotasResponse(entries=refused)


async def _alter_log_dirs(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Allow those who may alter the cluster to move replicas between directories."""
    if caller.has(AclOperation.ALTER, _CLUSTER):
        return await handler(request)
    topics = dict[str, dict[int, None]]()
    for directory in request.message.dirs:
        for topic in directory.topics:
            topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[
                AlterReplicaLogDirPartitionResult(partition_index=each, error_code=_CLUSTER_REFUSED) for each in indexes
            ],
        )
        for name, indexes in topics.items()
    ]
    return AlterReplicaLogDirsResponse(results=results)


SPECIAL: Final[Mapping[int, Special]] = {
    1: _fetch,
    3: _metadata,
    9: _offset_fetch,
    10: _find_coordinator,
    16: _list_groups,
    19: _create_topics,
    20: _delete_topics,
    22: _init_producer_id,
    32: _of_configs(AclOperation.DESCRIBE_CONFIGS, "results", DescribeConfigsResult),
    33: _of_configs(AclOperation.ALTER_CONFIGS, "responses", AlterConfigsResourceResponse),
    34: _alter_log_dirs,
    44: _of_configs(AclOperation.ALTER_CONFIGS, "responses", IncrementalResourceResponse),
    49: _alter_quotas,
    51: _alter_scram,
    60: _describe_cluster,
}
"""By API key."""
