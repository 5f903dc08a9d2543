"""Requests of the controller: LeaderAndIsr, StopReplica, UpdateMetadata.

Those of one controller are handled in order; those of an earlier one, or for an earlier registration of this broker,
are refused; a connection that the controller has abandoned is closed. A broker that is a cluster by itself has no
controller, and refuses all. Source: Kafka's KafkaApis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from magicbyte.engine.errors import ErrorCode, MetadataError, NetworkError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from magicbyte.engine.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from magicbyte.engine.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from magicbyte.engine.replication.state import PartitionState
from magicbyte.server.partitions.cluster_replicas import ClusterReplicas, Order
from magicbyte.server.serving.authorization import (
    ACT,
    CLUSTER_REFUSED,
    WholeRight,
)
from magicbyte.server.serving.routes import ALL_PARTITIONS, MIB, Route
from magicbyte.server.stores.orders import update_of
from magicbyte.server.stores.znodes.member_store import MemberStore

if TYPE_CHECKING:
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Request
    from magicbyte.server.stores.membership import Membership

_ControlRequest: TypeAlias = (
    "Request[LeaderAndIsrRequest] | Request[StopReplicaRequest] | Request[UpdateMetadataRequest]"
)
log = logger(__name__)

_FIRST_BY_TOPIC_ID: Final = 5  # version of LeaderAndIsr whose response has topic ids
_FIRST_WITH_EPOCHS: Final = 3  # version of StopReplica with an operation for each partition


class _ClusterState(NamedTuple):
    replicas: ClusterReplicas
    store: MemberStore
    membership: Membership


def _cluster_of(broker: BrokerParts) -> _ClusterState | None:
    replicas, store = broker.replicas, broker.cluster_store
    if not isinstance(replicas, ClusterReplicas) or not isinstance(store, MemberStore):
        return None
    return _ClusterState(replicas, store, broker.membership)


def _fault(cluster: _ClusterState, request: _ControlRequest) -> ErrorCode:
    """Return why a controller's request is refused; record its epoch and its connection.

    A controller sends one request at a time, and opens another connection only after it has abandoned the one before.
    So a request that is read late from an older connection is older than those executed already. Kafka's brokers
    compare only the controller epoch and execute it: a late UpdateMetadata replaces newer metadata there.

    Raises NetworkError for such a request, so that the connection ends. If the abandoned connection was accepted last,
    because packets of its handshake were lost, the one that ends is the controller's: it repeats the request on a new
    one. After an error code Kafka's controllers do not.
    """
    message, (epoch, number) = request.message, cluster.replicas.controller
    if message.controller_epoch < epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if message.controller_epoch == epoch and request.connection.number < number:
        raise NetworkError(f"{request.connection.peer}: the controller has sent requests on a later connection")
    if 0 <= message.broker_epoch < cluster.membership.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    cluster.replicas.controller = message.controller_epoch, request.connection.number
    return ErrorCode.NONE


async def leader_and_isr(broker: BrokerParts, request: Request[LeaderAndIsrRequest]) -> LeaderAndIsrResponse:
    """Lead and follow partitions as the controller says."""
    message, cluster = request.message, _cluster_of(broker)
    if cluster is None:
        return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    async with cluster.replicas.turn:
        fault = _fault(cluster, request)
        if fault:
            return LeaderAndIsrResponse(error_code=fault)
        ids = {each.topic_name: each.topic_id for each in message.topic_states}
        orders = [_order(name, state) for name, state in _leader_states(message)]
        counts = dict[str, int]()
        for key in (each.key for each in orders):
            counts[key.topic] = max(counts.get(key.topic, 0), key.partition + 1)
        await _know(broker, cluster.store, counts)
        addresses = {each.broker_id: (each.host_name, each.port) for each in message.live_leaders}
        codes = await cluster.replicas.take_orders(orders, addresses)
    if request.version < _FIRST_BY_TOPIC_ID:
        return LeaderAndIsrResponse(
            partition_errors=[
                LeaderAndIsrPartitionError(topic_name=key.topic, partition_index=key.partition, error_code=code)
                for key, code in codes.items()
            ]
        )
    by_topic: dict[str, list[LeaderAndIsrPartitionError]] = {}
    for key, code in codes.items():
        by_topic.setdefault(key.topic, []).append(
            LeaderAndIsrPartitionError(partition_index=key.partition, error_code=code)
        )
    return LeaderAndIsrResponse(
        topics=[LeaderAndIsrTopicError(topic_id=ids[name], partition_errors=each) for name, each in by_topic.items()]
    )


def _leader_states(message: LeaderAndIsrRequest) -> Iterable[tuple[str, LeaderAndIsrPartitionState]]:
    for state in message.ungrouped_partition_states:
        yield state.topic_name, state
    for topic in message.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, state


def _order(topic: str, told: LeaderAndIsrPartitionState) -> Order:
    state = PartitionState(told.leader, told.leader_epoch, tuple(told.isr), told.controller_epoch)
    return Order(TopicPartition(topic, told.partition_index), state, told.partition_epoch, tuple(told.replicas))


async def _know(broker: BrokerParts, store: MemberStore, counts: Mapping[str, int]) -> None:
    """Add topics to the topic table, or read them again if they have grown to more partitions than it knows."""
    new = {
        name for name, count in counts.items() if (topic := broker.topics.get(name)) is None or topic.partitions < count
    }
    if not new:
        return
    try:
        await store.announced(new)
    except (MetadataError, NetworkError) as error:
        log.warning("topics %s cannot be read from the metadata tree: %s", ", ".join(sorted(new)[:20]), error)


async def stop_replica(broker: BrokerParts, request: Request[StopReplicaRequest]) -> StopReplicaResponse:
    """Stop following and leading partitions; delete those that the controller requests."""
    message, cluster = request.message, _cluster_of(broker)
    if cluster is None:
        return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    errors = []
    async with cluster.replicas.turn:
        fault = _fault(cluster, request)
        if fault:
            return StopReplicaResponse(error_code=fault)
        for key, epoch, deletes in _stopped(message, request.version):
            code = await cluster.replicas.stop(key, epoch, deletes=deletes)
            errors.append(
                StopReplicaPartitionError(topic_name=key.topic, partition_index=key.partition, error_code=code)
            )
    return StopReplicaResponse(partition_errors=errors)


def _stopped(message: StopReplicaRequest, version: int) -> Iterable[tuple[TopicPartition, int | None, bool]]:
    """Yield each partition with the leader epoch known to the controller, and whether its log is deleted."""
    if version >= _FIRST_WITH_EPOCHS:
        for states in message.topic_states:
            for each in states.partition_states:
                key = TopicPartition(states.topic_name, each.partition_index)
                yield key, each.leader_epoch, each.delete_partition
        return
    for one in message.ungrouped_partitions:
        yield TopicPartition(one.topic_name, one.partition_index), None, message.delete_partitions
    for topic in message.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index), None, message.delete_partitions


async def update_metadata(broker: BrokerParts, request: Request[UpdateMetadataRequest]) -> UpdateMetadataResponse:
    """Apply the controller's metadata of the cluster."""
    message, cluster = request.message, _cluster_of(broker)
    if cluster is None:
        return UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    async with cluster.replicas.turn:
        fault = _fault(cluster, request)
        if fault:
            return UpdateMetadataResponse(error_code=fault)
        update = update_of(message, broker.runtime.config.inter_broker_listener.name)
        deleted = [name for name in update.deleted if broker.topics.get(name) is not None]
        await cluster.store.updated(update)
        for name in deleted:
            broker.runtime.metrics.forget(name)
            if broker.coordinators.of(name) is None:
                broker.coordinators.groups.topic_deleted(name)
    return UpdateMetadataResponse()


ROUTES: Final = (
    Route(
        ApiKey.LEADER_AND_ISR,
        range(8),
        leader_and_isr,
        most_bytes=64 * MIB,
        most_elements=ALL_PARTITIONS,
        rights=WholeRight(ACT, lambda _: LeaderAndIsrResponse(error_code=CLUSTER_REFUSED)),
        of_brokers=True,
    ),
    Route(
        ApiKey.STOP_REPLICA,
        range(5),
        stop_replica,
        most_bytes=64 * MIB,
        most_elements=ALL_PARTITIONS,
        rights=WholeRight(ACT, lambda _: StopReplicaResponse(error_code=CLUSTER_REFUSED)),
        of_brokers=True,
    ),
    Route(
        ApiKey.UPDATE_METADATA,
        range(9),
        update_metadata,
        most_bytes=64 * MIB,
        most_elements=ALL_PARTITIONS,
        rights=WholeRight(ACT, lambda _: UpdateMetadataResponse(error_code=CLUSTER_REFUSED)),
        of_brokers=True,
    ),
)
