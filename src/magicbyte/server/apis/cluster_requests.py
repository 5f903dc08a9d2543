"""Requests of the controller: LeaderAndIsr, StopReplica, UpdateMetadata.

Those of one controller are handled in order; those of an earlier one, or for an earlier registration of this broker,
are refused; a connection that the controller has abandoned is closed. A broker that is a cluster by itself has no
controller, and refuses all. Source: Kafka's KafkaApis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from magicbyte.engine.errors import ErrorCode, MetadataError, NetworkError
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
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
from magicbyte.server.serving.authorization import (
    ACT,
    CLUSTER_REFUSED,
    WholeRight,
)
from magicbyte.server.serving.routes import ALL_PARTITIONS, MIB, Route
from magicbyte.server.stores.orders import orders_of, stops_of, update_of

if TYPE_CHECKING:
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Request

_ControlRequest: TypeAlias = (
    "Request[LeaderAndIsrRequest] | Request[StopReplicaRequest] | Request[UpdateMetadataRequest]"
)
log = logger(__name__)

_FIRST_BY_TOPIC_ID: Final = 5  # version of LeaderAndIsr whose response has topic ids


def _fault(broker: BrokerParts, request: _ControlRequest) -> ErrorCode:
    """Return why a controller's request is refused; record its epoch and its connection.

    A controller sends one request at a time, and opens another connection only after it has abandoned the one before.
    So a request that is read late from an older connection is older than those executed already. Kafka's brokers
    compare only the controller epoch and execute it: a late UpdateMetadata replaces newer metadata there.

    Raises NetworkError for such a request, so that the connection ends. If the abandoned connection was accepted last,
    because packets of its handshake were lost, the one that ends is the controller's: it repeats the request on a new
    one. After an error code Kafka's controllers do not.
    """
    message, (epoch, number) = request.message, broker.replicas.controller
    if not broker.membership.takes_orders or message.controller_epoch < epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if message.controller_epoch == epoch and request.connection.number < number:
        raise NetworkError(f"{request.connection.peer}: the controller has sent requests on a later connection")
    if 0 <= message.broker_epoch < broker.membership.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    broker.replicas.controller = message.controller_epoch, request.connection.number
    return ErrorCode.NONE


async def leader_and_isr(broker: BrokerParts, request: Request[LeaderAndIsrRequest]) -> LeaderAndIsrResponse:
    """Lead and follow partitions as the controller says."""
    message = request.message
    async with broker.replicas.turn:
        fault = _fault(broker, request)
        if fault:
            return LeaderAndIsrResponse(error_code=fault)
        ids = {each.topic_name: each.topic_id for each in message.topic_states}
        orders = orders_of(message)
        counts = dict[str, int]()
        for key in (each.partition for each in orders):
            counts[key.topic] = max(counts.get(key.topic, 0), key.partition + 1)
        await _know(broker, counts)
        addresses = {each.broker_id: (each.host_name, each.port) for each in message.live_leaders}
        codes = await broker.replicas.take_orders(orders, addresses)
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


async def _know(broker: BrokerParts, counts: Mapping[str, int]) -> None:
    """Add topics to the topic table, or read them again if they have grown to more partitions than it knows."""
    new = {
        name for name, count in counts.items() if (topic := broker.topics.get(name)) is None or topic.partitions < count
    }
    if not new:
        return
    try:
        await broker.membership.announcements.announced(new)
    except (MetadataError, NetworkError) as error:
        log.warning("topics %s cannot be read from the metadata tree: %s", ", ".join(sorted(new)[:20]), error)


async def stop_replica(broker: BrokerParts, request: Request[StopReplicaRequest]) -> StopReplicaResponse:
    """Stop following and leading partitions; delete those that the controller requests."""
    errors = []
    async with broker.replicas.turn:
        fault = _fault(broker, request)
        if fault:
            return StopReplicaResponse(error_code=fault)
        for key, epoch, deletes in stops_of(request.message, request.version):
            code = await broker.replicas.stop(key, epoch, deletes=deletes)
            errors.append(
                StopReplicaPartitionError(topic_name=key.topic, partition_index=key.partition, error_code=code)
            )
    return StopReplicaResponse(partition_errors=errors)


async def update_metadata(broker: BrokerParts, request: Request[UpdateMetadataRequest]) -> UpdateMetadataResponse:
    """Apply the controller's metadata of the cluster."""
    async with broker.replicas.turn:
        fault = _fault(broker, request)
        if fault:
            return UpdateMetadataResponse(error_code=fault)
        update = update_of(request.message, broker.runtime.config.inter_broker_listener.name)
        deleted = [name for name in update.deleted if broker.topics.get(name) is not None]
        await broker.membership.announcements.updated(update)
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
