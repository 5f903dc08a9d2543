"""CreateTopics, CreatePartitions, DeleteTopics, DeleteRecords.

In a cluster the controller answers the first three, after it has notified the brokers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.errors import (
    ErrorCode,
    LogDirectoryError,
    MagicbyteError,
    NotControllerError,
    PolicyViolationError,
    UnknownTopicError,
)
from magicbyte.engine.log.files.names import MOST_PARTITIONS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from magicbyte.engine.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from magicbyte.engine.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from magicbyte.engine.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from magicbyte.server.apis.metadata import name_of_topic
from magicbyte.server.serving.authorization import (
    TOPIC_REFUSED,
    AuthorizedCaller,
    RowRights,
    need_of_topic,
)
from magicbyte.server.serving.request import Request
from magicbyte.server.serving.routes import MANY, MIB, Route
from magicbyte.server.stores import configs

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.serving.quotas import MutationQuota
    from magicbyte.server.serving.request import Handler
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.topics import ServedTopic

_FIRST_WITH_CONFIGS: Final = 5  # of CreateTopics
_FIRST_WITH_IDS: Final = 6  # of DeleteTopics
_FIRST_WITH_DISABLED: Final = 3  # of DeleteTopics
_BROKERS_OWN: Final = -1
_FIRST_STRICT_CREATE: Final = 6  # from this version requests beyond a quota are refused; before, they are throttled
_FIRST_STRICT_DELETION: Final = 5
_FIRST_STRICT_GROWTH: Final = 3
_MADE_AT_ONCE: Final = 100  # logs of a topic created at once
_SETTINGS_STEPS: Final = 30  # to list all settings of a topic


def check_controller(view: ClusterView) -> None:
    """Raise NotControllerError if another broker is the controller."""
    if not view.is_controller:
        raise NotControllerError(f"the controller is broker {view.controller_id}")


async def _until(broker: BrokerParts, is_known: Callable[[], bool], timeout_ms: int) -> bool:
    """Wait until the controller's update has arrived; return whether it did in time."""
    return await broker.cluster_view.until(is_known, max(timeout_ms, 0) / 1000)


def _has_leaders(broker: BrokerParts, name: str, partitions: int) -> bool:
    """Return whether all partitions of a topic have a leader, as far as this broker knows."""
    topic = broker.topics.get(name)
    return topic is not None and topic.partitions >= partitions and broker.cluster_view.has_leaders(name, partitions)


async def create_topics(broker: BrokerParts, request: Request[CreateTopicsRequest]) -> CreateTopicsResponse:
    """Create topics and their logs, each topic by itself."""
    message = request.message
    names = Counter(wanted.name for wanted in message.topics)
    results = []
    made: list[tuple[ServedTopic, CreatableTopicResult]] = []
    left = MOST_PARTITIONS
    quota = broker.runtime.quotas.mutations_of(request, strict_from=_FIRST_STRICT_CREATE)
    async with broker.runtime.directory:
        async for wanted in request.turns.over(message.topics):
            if names[wanted.name] > 1:
                why = "expected a topic once in a request"
                results.append(_not_created(wanted.name, ErrorCode.INVALID_REQUEST, why))
                continue
            left -= len(wanted.assignments) or max(wanted.num_partitions, 1)
            try:
                check_controller(broker.cluster_view)
                if left < 0:
                    raise PolicyViolationError(f"expected up to {MOST_PARTITIONS} partitions in a request")
                if quota.is_limiting and not message.validate_only:  # only valid requests count towards the quota
                    quota.take((await _create(broker, wanted, validate_only=True)).partitions)
                topic = await _create(broker, wanted, validate_only=message.validate_only)
            except MagicbyteError as error:
                results.append(_not_created(wanted.name, error.code, str(error)))
                continue
            results.append(_created(topic, _factor(broker, wanted), validate_only=message.validate_only))
            if request.version >= _FIRST_WITH_CONFIGS:
                results[-1].configs = _settings_of(broker, topic)
                await request.turns.take(_SETTINGS_STEPS)
            if not message.validate_only:
                made.append((topic, results[-1]))
    await _until(
        broker,
        lambda: all(_has_leaders(broker, wanted.name, wanted.partitions) for wanted, _ in made),
        message.timeout_ms,
    )
    for topic, result in made:
        await _finish(broker, topic, topic.partitions, result, f"topic {topic.name} was created")
    return CreateTopicsResponse(topics=results)


async def _finish(
    broker: BrokerParts,
    topic: ServedTopic,
    partitions: int,
    result: CreatableTopicResult | CreatePartitionsTopicResult,
    done: str,
) -> None:
    """Create the logs of a topic with new partitions; set the error of `result` if that, or a leader, is missing.

    `done` is the change that was made nevertheless, for the message.
    """
    if not _has_leaders(broker, topic.name, partitions):
        result.error_code = ErrorCode.REQUEST_TIMED_OUT
        result.error_message = f"{done}, but not all partitions have a leader yet"
    elif (fault := await _make_logs(broker, topic.name, range(topic.partitions))) is not None:
        result.error_code = fault.code
        result.error_message = f"{done}, but logs could not be created: {fault}"


async def _create(broker: BrokerParts, wanted: CreatableTopic, *, validate_only: bool) -> ServedTopic:
    return await broker.topics.create(
        wanted.name,
        None if wanted.num_partitions == _BROKERS_OWN else wanted.num_partitions,
        None if wanted.replication_factor == _BROKERS_OWN else wanted.replication_factor,
        {each.name: each.value for each in wanted.configs},
        assignments={each.partition_index: each.broker_ids for each in wanted.assignments},
        validate_only=validate_only,
    )


def _factor(broker: BrokerParts, wanted: CreatableTopic) -> int:
    """Return the replication factor of a new topic."""
    if wanted.assignments:
        return len(wanted.assignments[0].broker_ids)
    is_own = wanted.replication_factor == _BROKERS_OWN
    return broker.runtime.config.default_replication_factor if is_own else wanted.replication_factor


def _not_created(name: str, code: ErrorCode, why: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=why, configs=None)


def _settings_of(broker: BrokerParts, topic: ServedTopic) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=setting.name,
            value=setting.value,
            read_only=setting.is_read_only,
            config_source=setting.source,
            is_sensitive=setting.is_sensitive,
        )
        for setting in configs.describe_topic(topic, broker.runtime.config)
    ]


def _created(topic: ServedTopic, factor: int, *, validate_only: bool) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=NULL_UUID if validate_only else topic.id,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=factor,
    )


async def _make_logs(broker: BrokerParts, topic: str, partitions: range) -> LogDirectoryError | None:
    """Create the logs of partitions now, instead of at their first use; return why that is impossible.

    Not for hundreds of partitions, which would take longer than the client waits.
    """
    made = broker.membership.topic_control.led_at_once(partitions[:_MADE_AT_ONCE])  # others: as a controller orders
    try:
        for partition in made:
            await broker.replicas.opened(topic, partition)
    except UnknownTopicError:  # deleted meanwhile
        return None
    except LogDirectoryError as error:  # an offline directory, or a lack of descriptors
        return error
    return None


async def create_partitions(broker: BrokerParts, request: Request[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    """Add partitions to topics, each topic by itself."""
    message = request.message
    names = Counter(wanted.name for wanted in message.topics)
    results = []
    quota = broker.runtime.quotas.mutations_of(request, strict_from=_FIRST_STRICT_GROWTH)
    async with broker.runtime.directory:
        async for wanted in request.turns.over(message.topics):
            code, why = ErrorCode.NONE, None
            try:
                if names[wanted.name] > 1:
                    code, why = ErrorCode.INVALID_REQUEST, "expected a topic once in a request"
                else:
                    check_controller(broker.cluster_view)
                    if quota.is_limiting and not message.validate_only:
                        await _grow(broker, wanted, validate_only=True)
                        quota.take(wanted.count - broker.topics.known(wanted.name).partitions)
                    await _grow(broker, wanted, validate_only=message.validate_only)
            except MagicbyteError as error:
                code, why = error.code, str(error)
            results.append(CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=why))
    if not message.validate_only:
        counts = {wanted.name: wanted.count for wanted in message.topics}
        grown = {wanted.name: counts[wanted.name] for wanted in results if not wanted.error_code}
        await _until(broker, lambda: all(_has_leaders(broker, *wanted) for wanted in grown.items()), message.timeout_ms)
        for result in results:
            topic = broker.topics.get(result.name)
            if topic is None or result.error_code:
                continue
            done = f"partitions were added to {topic.name}"
            await _finish(broker, topic, counts[topic.name], result, done)
    return CreatePartitionsResponse(results=results)


async def _grow(broker: BrokerParts, wanted: CreatePartitionsTopic, *, validate_only: bool) -> None:
    given = wanted.assignments
    assignments = None if given is None else [each.broker_ids for each in given]
    await broker.topics.add_partitions(wanted.name, wanted.count, assignments=assignments, validate_only=validate_only)


async def delete_topics(broker: BrokerParts, request: Request[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    """Delete topics, each by itself. Waiting fetches of their records are answered."""
    results = list[DeletableTopicResult]()
    if request.version >= _FIRST_WITH_IDS:
        wanted, results = _meant_once(broker, request.message.topics)
    else:
        wanted = [DeleteTopicState(name=each) for each in request.message.topic_names]
    deleted: dict[str | None, DeletableTopicResult] = {}
    quota = broker.runtime.quotas.mutations_of(request, strict_from=_FIRST_STRICT_DELETION)
    async with broker.runtime.directory:
        async for each in request.turns.over(wanted):
            if each.name is not None and each.name in deleted and each.topic_id == NULL_UUID:
                results.append(deleted[each.name])
                continue
            result = await _delete(broker, each, request.version, quota)
            results.append(result)
            if not result.error_code:
                deleted[result.name] = result
    names = [name for name in deleted if name is not None]
    await _until(broker, lambda: not any(map(broker.topics.get, names)), request.message.timeout_ms)
    for name in names:
        if broker.topics.get(name) is not None:
            deleted[name].error_code = ErrorCode.REQUEST_TIMED_OUT
            deleted[name].error_message = f"topic {name} is still being deleted"
    return DeleteTopicsResponse(responses=results)


def _meant_once(
    broker: BrokerParts, asked: Sequence[DeleteTopicState]
) -> tuple[list[DeleteTopicState], list[DeletableTopicResult]]:
    """Return the topics that are named once, be it by name or by id; and one refusal of each other one."""
    by_topic = dict[object, list[DeleteTopicState]]()
    for at, each in enumerate(asked):
        is_valid = (each.name is None) != (each.topic_id == NULL_UUID)
        topic = name_of_topic(broker.topics, each) or each.topic_id if is_valid else at
        by_topic.setdefault(topic, []).append(each)
    once, refused = list[DeleteTopicState](), list[DeletableTopicResult]()
    for rows in by_topic.values():
        if len(rows) == 1:
            once += rows
            continue
        result = DeletableTopicResult(name=next((each.name for each in rows if each.name is not None), None))
        result.topic_id = next((each.topic_id for each in rows if each.topic_id != NULL_UUID), NULL_UUID)
        result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, "expected a topic once in a request"
        refused.append(result)
    return once, refused


async def _delete(
    broker: BrokerParts, wanted: DeleteTopicState, version: int, quota: MutationQuota
) -> DeletableTopicResult:
    result = DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id)
    if not broker.runtime.config.delete_topic_enable:
        known = version >= _FIRST_WITH_DISABLED
        result.error_code = ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST
        result.error_message = "delete.topic.enable is false"
        return result
    if (wanted.name is None) == (wanted.topic_id == NULL_UUID):
        result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, "expected either a name or an id"
        return result
    try:
        topic = broker.topics.known(wanted.name) if wanted.name is not None else broker.topics.known_id(wanted.topic_id)
        result.name, result.topic_id = topic.name, topic.id
        check_controller(broker.cluster_view)
        quota.take(topic.partitions)
        await broker.topic_changes.delete(topic)
    except MagicbyteError as error:
        result.error_code, result.error_message = error.code, str(error)
    return result


async def delete_records(broker: BrokerParts, request: Request[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    """Raise the log start offsets of partitions."""
    results = []
    async for topic in request.turns.over(request.message.topics):
        partitions = []
        # of a repeated partition the last offset counts
        offsets = {each.partition_index: each.offset for each in topic.partitions}
        async for index, offset in request.turns.over(offsets.items()):
            outcome = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
            try:
                partition = await broker.replicas.delete_records(
                    topic.name, index, offset, broker.topics.check_erasable
                )
                outcome.low_watermark = await _deleted_everywhere(broker, partition, request.message.timeout_ms)
                if outcome.low_watermark < min(partition.log.log_start_offset, max(offset, 0)):
                    outcome.error_code = ErrorCode.REQUEST_TIMED_OUT
            except MagicbyteError as error:
                outcome.error_code = error.code
            partitions.append(outcome)
        results.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=results)


async def _deleted_everywhere(broker: BrokerParts, partition: ServedPartition, timeout_ms: int) -> int:
    """Wait until all live replicas have deleted the records; return the smallest of their log start offsets."""
    wanted, replicas = partition.log.log_start_offset, broker.replicas
    with suppress(TimeoutError):
        async with asyncio.timeout(max(timeout_ms, 0) / 1000):
            await partition.until(lambda: replicas.low_watermark(partition) >= wanted)
    return replicas.low_watermark(partition)


async def _authorized_create_topics(
    broker: BrokerParts, request: Request[CreateTopicsRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Create topics with cluster or topic Create (29); their settings in the response need topic DescribeConfigs."""
    if not broker.cluster_view.is_controller:
        return await handler(request)
    message = request.message
    allowed: list[CreatableTopic] = message.topics
    refused: list[CreatableTopic] = []
    if not caller.has(AclOperation.CREATE, ResourceType.CLUSTER):
        twice = {name for name, count in Counter(each.name for each in message.topics).items() if count > 1}
        allowed = []
        for each in message.topics:
            is_passed = each.name in twice or caller.has(AclOperation.CREATE, ResourceType.TOPIC, each.name)
            (allowed if is_passed else refused).append(each)
    response: Any = await handler(replace(request, message=replace(message, topics=allowed)))
    response.topics = [
        *response.topics,
        *(CreatableTopicResult(name=each.name, error_code=TOPIC_REFUSED, configs=[]) for each in refused),
    ]
    if request.version >= _FIRST_WITH_CONFIGS:
        hiding = (ErrorCode.NONE, TOPIC_REFUSED, ErrorCode.INVALID_REQUEST)
        for told in response.topics:
            if told.error_code in hiding and not caller.has(
                AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, told.name
            ):
                told.topic_config_error_code, told.configs = TOPIC_REFUSED, []
                told.num_partitions = told.replication_factor = -1
    answered: Message = response
    return answered


async def _authorized_delete_topics(
    broker: BrokerParts, request: Request[DeleteTopicsRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Delete topics with topic Delete (29); the name of an id without topic Describe is not returned."""
    if not broker.cluster_view.is_controller:
        return await handler(request)
    message = request.message
    if request.version < _FIRST_WITH_IDS:
        names, unnamed = caller.split(need_of_topic(AclOperation.DELETE), message.topic_names, str)
        some = replace(message, topic_names=names)
        refused = [DeletableTopicResult(name=each, error_code=TOPIC_REFUSED) for each in unnamed]
    else:
        allowed, refused = [], []
        for wanted in message.topics:
            name = name_of_topic(broker.topics, wanted)
            if name is None or caller.has(AclOperation.DELETE, ResourceType.TOPIC, name):
                allowed.append(wanted)
                continue
            result = DeletableTopicResult(name=name, error_code=TOPIC_REFUSED)
            if wanted.topic_id != NULL_UUID:
                result.topic_id = wanted.topic_id
                result.name = name if caller.has(AclOperation.DESCRIBE, ResourceType.TOPIC, name) else None
            refused.append(result)
        some = replace(message, topics=allowed)
    response: Any = await handler(replace(request, message=some))
    response.responses = [*response.responses, *refused]
    answered: Message = response
    return answered


_GROWN: Final[RowRights[CreatePartitionsRequest, CreatePartitionsTopic, CreatePartitionsResponse]] = RowRights(
    need_of_topic(AclOperation.ALTER),
    rows=lambda message: message.topics,
    name=lambda topic: topic.name,
    only=lambda message, topics: replace(message, topics=topics),
    refuse=lambda response, topic, code: response.results.append(
        CreatePartitionsTopicResult(name=topic.name, error_code=code)
    ),
)


async def _authorized_create_partitions(
    broker: BrokerParts, request: Request[CreatePartitionsRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Add partitions with topic Alter (29); NOT_CONTROLLER takes precedence."""
    if not broker.cluster_view.is_controller:
        return await handler(request)
    return await _GROWN(broker, request, handler, caller)


def _refuse_erasure(response: DeleteRecordsResponse, asked: DeleteRecordsTopic, code: ErrorCode) -> None:
    parts = [
        DeleteRecordsPartitionResult(partition_index=each.partition_index, error_code=code, low_watermark=-1)
        for each in asked.partitions
    ]
    response.topics.append(DeleteRecordsTopicResult(name=asked.name, partitions=parts))


_ERASED: Final[RowRights[DeleteRecordsRequest, DeleteRecordsTopic, DeleteRecordsResponse]] = RowRights(
    need_of_topic(AclOperation.DELETE),
    rows=lambda message: message.topics,
    name=lambda topic: topic.name,
    only=lambda message, topics: replace(message, topics=topics),
    refuse=_refuse_erasure,
)

ROUTES: Final = (
    Route(
        ApiKey.CREATE_TOPICS,
        range(8),
        create_topics,
        most_bytes=16 * MIB,
        most_elements=MANY,
        rights=_authorized_create_topics,
    ),
    Route(
        ApiKey.DELETE_TOPICS,
        range(7),
        delete_topics,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_authorized_delete_topics,
    ),
    Route(
        ApiKey.DELETE_RECORDS,
        range(3),
        delete_records,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_ERASED,
    ),
    Route(
        ApiKey.CREATE_PARTITIONS,
        range(4),
        create_partitions,
        most_bytes=16 * MIB,
        most_elements=MANY,
        rights=_authorized_create_partitions,
    ),
)
