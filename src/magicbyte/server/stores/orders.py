"""Requests of a controller as changes of the cluster and as orders, for a member of it.

Source: Kafka's ZkMetadataCache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.access.security.settings import PROTOCOLS
from magicbyte.engine.cluster import topics
from magicbyte.engine.cluster.brokers import BrokerEndpoint, RegisteredBroker, Registration
from magicbyte.engine.cluster.changes import (
    BrokerRegistered,
    BrokerUnregistered,
    ClusterChange,
    PartitionsCreated,
    PartitionStateChanged,
    ReplicasChanged,
    SettingsChanged,
    TopicDeleted,
)
from magicbyte.engine.cluster.image import PartitionImage
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.controller import BEING_DELETED
from magicbyte.engine.replication.state import KnownState, PartitionOrder, PartitionState
from magicbyte.engine.sentinels import NO_EPOCH

if TYPE_CHECKING:
    from magicbyte.engine.cluster.image import ClusterImage
    from magicbyte.engine.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
    from magicbyte.engine.protocol.messages.stop_replica import StopReplicaRequest
    from magicbyte.engine.protocol.messages.update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
    )

_PLAINTEXT: Final = PROTOCOLS[0]
_FIRST_WITH_EPOCHS: Final = 3  # version of StopReplica with an operation for each partition


class MetadataUpdate(NamedTuple):
    """What an UpdateMetadata has: all live brokers, the changed partitions, and the topics that are being deleted."""

    brokers: Mapping[int, RegisteredBroker]
    partitions: Mapping[TopicPartition, PartitionImage]
    deleted: Collection[str]


def update_of(request: UpdateMetadataRequest, inter_broker: str) -> MetadataUpdate:
    """Return the content of a request. `inter_broker`: the listener for which old requests have a port."""
    partitions, deleted = dict[TopicPartition, PartitionImage](), dict[str, None]()
    for topic, state in _states(request):
        if state.leader == BEING_DELETED:
            deleted[topic] = None
            continue
        known = PartitionState(state.leader, state.leader_epoch, tuple(state.isr), state.controller_epoch)
        key = TopicPartition(topic, state.partition_index)
        partitions[key] = PartitionImage(tuple(state.replicas), known=KnownState(known, state.zk_version))
    brokers = {each.id: _broker(each, inter_broker) for each in request.live_brokers}
    return MetadataUpdate(brokers, partitions, list(deleted))


def changes_of(image: ClusterImage, update: MetadataUpdate) -> list[ClusterChange]:
    """Return the changes of an image that an update tells of. Partitions of unknown topics are left out."""
    changes: list[ClusterChange] = [
        BrokerUnregistered(broker_id) for broker_id in image.brokers if broker_id not in update.brokers
    ]
    changes += [
        BrokerRegistered(broker) for broker in update.brokers.values() if image.brokers.get(broker.id) != broker
    ]
    for name in update.deleted:
        if name in image.topics:
            changes.append(TopicDeleted(name))
        if (entity := topics.entity_of(name)) in image.settings:
            changes.append(SettingsChanged(entity, None))
    return changes + changes_of_partitions(image, update.partitions)


def changes_of_partitions(
    image: ClusterImage, partitions: Mapping[TopicPartition, PartitionImage]
) -> list[ClusterChange]:
    """Return the changes of an image by which partitions are these. Those of unknown topics are left out."""
    changes, counts = list[ClusterChange](), dict[str, int]()
    for topic, index in partitions:
        counts[topic] = max(counts.get(topic, 0), index + 1)
    for name, count in counts.items():
        topic_image = image.topics.get(name)
        if topic_image is not None and count > len(topic_image.partitions):
            new = count - len(topic_image.partitions)
            changes.append(PartitionsCreated(name, (PartitionImage(()),) * new))
    for key, partition in partitions.items():
        if key.topic not in image.topics:
            continue
        before = image.partition(key)
        if before is None or before.replicas != partition.replicas:
            changes.append(ReplicasChanged(key, partition.replicas))
        if before is None or before.known != partition.known:
            changes.append(PartitionStateChanged(key, partition.known))
    return changes


def _broker(told: UpdateMetadataBroker, inter_broker: str) -> RegisteredBroker:
    endpoints = [
        BrokerEndpoint(each.listener or PROTOCOLS[each.security_protocol], _protocol(each.security_protocol),
                       each.host, each.port)
        for each in told.endpoints
        if each.listener or each.security_protocol in range(len(PROTOCOLS))  # versions 1 and 2 have no names
    ]  # fmt: skip
    if not told.endpoints:  # version 0
        endpoints = [BrokerEndpoint(inter_broker, _PLAINTEXT, told.v0_host, told.v0_port)]
    return RegisteredBroker(told.id, NO_EPOCH, Registration(tuple(endpoints), told.rack))


def _protocol(number: int) -> str:
    return PROTOCOLS[number] if number in range(len(PROTOCOLS)) else str(number)


def _states(request: UpdateMetadataRequest) -> Iterable[tuple[str, UpdateMetadataPartitionState]]:
    for state in request.ungrouped_partition_states:
        yield state.topic_name, state
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, state


# ---- roles


def orders_of(request: LeaderAndIsrRequest) -> list[PartitionOrder]:
    """Return the orders of a LeaderAndIsr of any version."""
    return [_order(topic, state) for topic, state in _leader_states(request)]


def _leader_states(request: LeaderAndIsrRequest) -> Iterable[tuple[str, LeaderAndIsrPartitionState]]:
    for state in request.ungrouped_partition_states:
        yield state.topic_name, state
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, state


def _order(topic: str, told: LeaderAndIsrPartitionState) -> PartitionOrder:
    state = PartitionState(told.leader, told.leader_epoch, tuple(told.isr), told.controller_epoch)
    key = TopicPartition(topic, told.partition_index)
    return PartitionOrder(key, state, told.partition_epoch, tuple(told.replicas))


def stops_of(request: StopReplicaRequest, version: int) -> Iterable[tuple[TopicPartition, int | None, bool]]:
    """Yield each partition of a StopReplica, with the leader epoch known to the controller, and whether to delete it.

    The epoch is None if the version has none.
    """
    if version >= _FIRST_WITH_EPOCHS:
        for states in request.topic_states:
            for each in states.partition_states:
                key = TopicPartition(states.topic_name, each.partition_index)
                yield key, each.leader_epoch, each.delete_partition
        return
    for one in request.ungrouped_partitions:
        yield TopicPartition(one.topic_name, one.partition_index), None, request.delete_partitions
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index), None, request.delete_partitions
