"""DescribeCluster, DescribeLogDirs, DescribeProducers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magicbyte.broker.metadata import CLUSTER_OPERATIONS
from magicbyte.broker.request import Request, UnboundHandler
from magicbyte.errors import ErrorCode, MagicbyteError
from magicbyte.ports import TopicPartition
from magicbyte.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from magicbyte.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from magicbyte.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from magicbyte.broker.cluster_view import ClusterView
    from magicbyte.broker.metadata_cache import MetadataCache
    from magicbyte.broker.replicas import Replicas
    from magicbyte.broker.runtime import Runtime
    from magicbyte.log.live.log_directory import LogDirectory

_BROKERS: Final = 1  # the only kind of endpoints: there are no controllers apart


@dataclass(frozen=True, slots=True)
class ClusterServices:
    """What these requests use of the broker."""

    runtime: Runtime
    logs: LogDirectory
    replicas: Replicas
    cluster_view: ClusterView
    cache: MetadataCache | None
    cluster_id: str


async def describe_cluster(
    services: ClusterServices, request: Request[DescribeClusterRequest]
) -> DescribeClusterResponse:
    """Say who is in the cluster."""
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
    """Say how large logs are, and how much space there is."""
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


async def describe_producers(
    services: ClusterServices, request: Request[DescribeProducersRequest]
) -> DescribeProducersResponse:
    """Say which producers wrote to partitions, as far as they are remembered."""
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
        async with partition.lock:  # nobody writes
            entries = partition.log.producers.snapshot().producers
    except MagicbyteError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=str(error))
    states = [
        ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.timestamp,
            coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=each.current_txn_first_offset,
        )
        for each in entries
    ]
    return PartitionResponse(partition_index=index, active_producers=states)


HANDLERS: Final[Mapping[type, UnboundHandler]] = {
    DescribeClusterRequest: describe_cluster,
    DescribeLogDirsRequest: describe_log_dirs,
    DescribeProducersRequest: describe_producers,
}
