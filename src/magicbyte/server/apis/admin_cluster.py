"""DescribeCluster, DescribeLogDirs, AlterReplicaLogDirs, DescribeProducers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.errors import ErrorCode, MagicbyteError, NotLeaderError
from magicbyte.engine.log.files.names import LONGEST_FILE_NAME
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from magicbyte.engine.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from magicbyte.engine.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from magicbyte.engine.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from magicbyte.server.apis.metadata import CLUSTER_OPERATIONS, tell_cluster_operations
from magicbyte.server.serving.authorization import (
    CLUSTER_REFUSED,
    AuthorizedCaller,
    RowRights,
    WholeRight,
    need_of_cluster,
    need_of_topic,
)
from magicbyte.server.serving.request import Request
from magicbyte.server.serving.routes import FEW, MANY, MIB, ONE_NAME, Route
from magicbyte.server.serving.shared_answers import SharedAnswer

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Handler

_WHILE_MOVED: Final = f".{'0' * 32}-future"  # Kafka's suffix of a log that is being copied to another directory
_BROKERS: Final = 1  # the only endpoint type, as there are no separate controllers


async def describe_cluster(broker: BrokerParts, request: Request[DescribeClusterRequest]) -> Message:
    """Return the brokers of the cluster."""
    message, image, version = request.message, broker.cluster_store.image, request.version
    if message.endpoint_type != _BROKERS:
        why = f"endpoint type {message.endpoint_type}: expected 1 (brokers)"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=why)
    if not broker.shares_answers:
        return await _described(broker, request)
    operations, listener = message.include_cluster_authorized_operations, request.connection.listener.name
    key = ApiKey.DESCRIBE_CLUSTER, version, listener, operations
    answer = broker.shared_answers.find(image, key)
    if answer is None:
        response = await _described(broker, request)
        answer = SharedAnswer(response, version)
        if response.brokers:
            broker.shared_answers.put(image, key, answer, len(response.brokers))
    return answer


async def _described(broker: BrokerParts, request: Request[DescribeClusterRequest]) -> DescribeClusterResponse:
    await broker.cluster_view.until_first_update()
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.cluster_view.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=member.id, host=member.host, port=member.port, rack=member.rack)
            for member in broker.cluster_view.brokers(request.connection.listener)
        ],
    )
    if request.message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


async def describe_log_dirs(broker: BrokerParts, request: Request[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    """Return the sizes of logs, and the space of the disk."""
    logs, wanted, turns = broker.logs, request.message.topics, request.turns
    keys: Iterable[TopicPartition] = logs.logs
    if wanted is not None:
        once = dict[TopicPartition, None]()
        async for each in turns.over(wanted):
            async for one in turns.over(each.partitions):
                if (key := TopicPartition(each.topic, one)) in logs.logs:
                    once[key] = None
        keys = once
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    async for key in turns.over(sorted(keys)):
        if key not in logs.logs:
            continue
        found = DescribeLogDirsPartition(partition_index=key.partition, partition_size=logs.logs[key].size)
        by_topic.setdefault(key.topic, []).append(found)
    result = DescribeLogDirsResult(
        log_dir=logs.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
    )
    if logs.health.error is not None:
        result.error_code, result.topics = ErrorCode.KAFKA_STORAGE_ERROR, []
    else:
        space = await broker.runtime.reading.run(shutil.disk_usage, logs.path)
        result.total_bytes, result.usable_bytes = space.total, space.free
    return DescribeLogDirsResponse(results=[result])


async def alter_replica_log_dirs(
    broker: BrokerParts, request: Request[AlterReplicaLogDirsRequest]
) -> AlterReplicaLogDirsResponse:
    """Confirm replicas that are in the given directory: there is only one, so nothing is moved."""
    wanted, turns = dict[TopicPartition, str](), request.turns
    async for directory in turns.over(request.message.dirs):
        async for topic in turns.over(directory.topics):
            async for index in turns.over(topic.partitions):
                wanted[TopicPartition(topic.name, index)] = directory.path
    by_topic: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    async for key in turns.over(wanted):
        code = await _place_fault(broker, key, wanted[key])
        found = AlterReplicaLogDirPartitionResult(partition_index=key.partition, error_code=code)
        by_topic.setdefault(key.topic, []).append(found)
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=each) for name, each in by_topic.items()]
    )


async def _place_fault(broker: BrokerParts, key: TopicPartition, path: str) -> ErrorCode:
    """Return why a replica cannot be in a directory, as Kafka's ReplicaManager does."""
    if len(f"{key}{_WHILE_MOVED}") > LONGEST_FILE_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != broker.logs.path:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if broker.logs.health.error is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        await broker.replicas.opened(*key)
    except NotLeaderError:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    except MagicbyteError as error:
        return error.code
    return ErrorCode.NONE


async def describe_producers(
    broker: BrokerParts, request: Request[DescribeProducersRequest]
) -> DescribeProducersResponse:
    """Return the known producers of partitions."""
    topics, turns = [], request.turns
    async for topic in turns.over(request.message.topics):
        partitions = []
        async for index in turns.over(dict.fromkeys(topic.partition_indexes)):
            partitions.append(await _producers(broker, topic.name, index))
            await turns.take(len(partitions[-1].active_producers))
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


async def _producers(broker: BrokerParts, topic: str, index: int) -> PartitionResponse:
    try:
        partition = await broker.replicas.opened(topic, index)
        partition.led()
        async with partition.lock:  # excludes writers
            entries = partition.log.producers.snapshot().producers
    except MagicbyteError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=str(error))
    states = [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.current_txn_first_offset,
        )
        for entry in entries
    ]
    return PartitionResponse(partition_index=index, active_producers=states)


async def _authorized_describe_cluster(
    _broker: BrokerParts, request: Request[DescribeClusterRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Return the brokers to every client; the authorized operations need cluster Describe."""
    response: Any = await handler(request)
    tell_cluster_operations(request.message, response, caller)
    answered: Message = response
    return answered


async def _authorized_alter_log_dirs(
    _broker: BrokerParts, request: Request[AlterReplicaLogDirsRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Move replicas between directories with cluster Alter (31 in each partition)."""
    if caller.has(AclOperation.ALTER, ResourceType.CLUSTER):
        return await handler(request)
    topics = dict[str, dict[int, None]]()
    for directory in request.message.dirs:
        for topic in directory.topics:
            topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[
                AlterReplicaLogDirPartitionResult(partition_index=each, error_code=CLUSTER_REFUSED) for each in indexes
            ],
        )
        for name, indexes in topics.items()
    ]
    return AlterReplicaLogDirsResponse(results=results)


def _refuse_producers(response: DescribeProducersResponse, asked: TopicRequest, code: ErrorCode) -> None:
    parts = [PartitionResponse(partition_index=each, error_code=code) for each in asked.partition_indexes]
    response.topics.append(TopicResponse(name=asked.name, partitions=parts))


_PRODUCERS: Final[RowRights[DescribeProducersRequest, TopicRequest, DescribeProducersResponse]] = RowRights(
    need_of_topic(AclOperation.READ),
    rows=lambda message: message.topics,
    name=lambda topic: topic.name,
    only=lambda message, topics: replace(message, topics=topics),
    refuse=_refuse_producers,
)

ROUTES: Final = (
    Route(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        range(3),
        alter_replica_log_dirs,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_authorized_alter_log_dirs,
    ),
    Route(
        ApiKey.DESCRIBE_LOG_DIRS,
        range(6),
        describe_log_dirs,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=WholeRight(
            need_of_cluster(AclOperation.DESCRIBE), lambda _: DescribeLogDirsResponse(error_code=CLUSTER_REFUSED)
        ),
    ),
    Route(
        ApiKey.DESCRIBE_CLUSTER,
        range(3),
        describe_cluster,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=_authorized_describe_cluster,
    ),
    Route(
        ApiKey.DESCRIBE_PRODUCERS,
        range(1),
        describe_producers,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_PRODUCERS,
    ),
)
