"""DescribeCluster, DescribeLogDirs, AlterReplicaLogDirs, DescribeProducers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import ErrorCode, MagicbyteError, NotLeaderError
from magicbyte.engine.log.files.names import LONGEST_FILE_NAME
from magicbyte.engine.ports import TopicPartition
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
    TopicResponse,
)
from magicbyte.server.apis.metadata import CLUSTER_OPERATIONS
from magicbyte.server.serving.request import Request, UnboundHandler

if TYPE_CHECKING:
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.metadata_cache import MetadataCache

_WHILE_MOVED: Final = f".{'0' * 32}-future"  # Kafka's suffix of a log that is being copied to another directory
_BROKERS: Final = 1  # the only endpoint type, as there are no separate controllers


@dataclass(frozen=True, slots=True)
class ClusterServices:
    """The parts of the broker that these requests use."""

    runtime: Runtime
    logs: LogDirectory
    replicas: Replicas
    cluster_view: ClusterView
    cache: MetadataCache | None
    cluster_id: str


async def describe_cluster(
    services: ClusterServices, request: Request[DescribeClusterRequest]
) -> DescribeClusterResponse:
    """Return the brokers of the cluster."""
    message = request.message
    if message.endpoint_type != _BROKERS:
        why = f"endpoint type {message.endpoint_type}: expected 1 (brokers)"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=why)
    if services.cache is not None:
        await services.cache.until_first_update()
    response = DescribeClusterResponse(
        cluster_id=services.cluster_id,
        controller_id=services.cluster_view.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=each.id, host=each.host, port=each.port, rack=each.rack)
            for each in services.cluster_view.brokers(request.connection.listener)
        ],
    )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


async def describe_log_dirs(
    services: ClusterServices, request: Request[DescribeLogDirsRequest]
) -> DescribeLogDirsResponse:
    """Return the sizes of logs, and the space of the disk."""
    logs, wanted, turns = services.logs, request.message.topics, request.turns
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
        space = await services.runtime.reading.run(shutil.disk_usage, logs.path)
        result.total_bytes, result.usable_bytes = space.total, space.free
    return DescribeLogDirsResponse(results=[result])


async def alter_replica_log_dirs(
    services: ClusterServices, request: Request[AlterReplicaLogDirsRequest]
) -> AlterReplicaLogDirsResponse:
    """Confirm replicas that are in the given directory: there is only one, so nothing is moved."""
    wanted, turns = dict[TopicPartition, str](), request.turns
    async for directory in turns.over(request.message.dirs):
        async for topic in turns.over(directory.topics):
            async for index in turns.over(topic.partitions):
                wanted[TopicPartition(topic.name, index)] = directory.path
    by_topic: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    async for key in turns.over(wanted):
        code = await _place_fault(services, key, wanted[key])
        found = AlterReplicaLogDirPartitionResult(partition_index=key.partition, error_code=code)
        by_topic.setdefault(key.topic, []).append(found)
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=each) for name, each in by_topic.items()]
    )


async def _place_fault(services: ClusterServices, key: TopicPartition, path: str) -> ErrorCode:
    """Return why a replica cannot be in a directory, as Kafka's ReplicaManager does."""
    if len(f"{key}{_WHILE_MOVED}") > LONGEST_FILE_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != services.logs.path:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if services.logs.health.error is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        await services.replicas.opened(*key)
    except NotLeaderError:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    except MagicbyteError as error:
        return error.code
    return ErrorCode.NONE


async def describe_producers(
    services: ClusterServices, request: Request[DescribeProducersRequest]
) -> DescribeProducersResponse:
    """Return the known producers of partitions."""
    topics, turns = [], request.turns
    async for topic in turns.over(request.message.topics):
        partitions = []
        async for index in turns.over(dict.fromkeys(topic.partition_indexes)):
            partitions.append(await _producers(services, topic.name, index))
            await turns.take(len(partitions[-1].active_producers))
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


async def _producers(services: ClusterServices, topic: str, index: int) -> PartitionResponse:
    try:
        partition = await services.replicas.opened(topic, index)
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


HANDLERS: Final[Mapping[type, UnboundHandler]] = {
    DescribeClusterRequest: describe_cluster,
    DescribeLogDirsRequest: describe_log_dirs,
    AlterReplicaLogDirsRequest: alter_replica_log_dirs,
    DescribeProducersRequest: describe_producers,
}
