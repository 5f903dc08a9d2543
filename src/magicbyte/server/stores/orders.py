"""Requests of a controller as changes of the cluster, for a member of it.

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
from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.engine.sentinels import NO_EPOCH

if TYPE_CHECKING:
    from magicbyte.engine.cluster.image import ClusterImage
    from magicbyte.engine.protocol.messages.update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
    )

_PLAINTEXT: Final = PROTOCOLS[0]


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
