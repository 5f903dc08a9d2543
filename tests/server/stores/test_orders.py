"""What a member of a cluster knows after a controller's UpdateMetadata of any version."""

import uuid

from magicbyte.engine.cluster.brokers import BrokerEndpoint
from magicbyte.engine.cluster.changes import apply_all
from magicbyte.engine.cluster.image import ClusterImage, ConfigEntity, EntityKind, PartitionImage, TopicImage
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from magicbyte.engine.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from magicbyte.engine.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from magicbyte.engine.replication.controller import BEING_DELETED
from magicbyte.engine.replication.state import KnownState, PartitionOrder, PartitionState
from magicbyte.server.stores.orders import changes_of, orders_of, stops_of, update_of

ORDERS = TopicImage("orders", uuid.UUID(int=7), (PartitionImage((1, 2)),))
SETTINGS = {ConfigEntity(EntityKind.TOPIC, "orders"): {"retention.ms": "5"}}
IMAGE = ClusterImage(topics={"orders": ORDERS}, topic_names={uuid.UUID(int=7): "orders"}, settings=SETTINGS)


def after(request: UpdateMetadataRequest, image: ClusterImage = IMAGE) -> ClusterImage:
    return apply_all(image, changes_of(image, update_of(request, "INTERNAL")), image.position)


def state(index: int, leader: int = 1, topic: str = "") -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        topic_name=topic,
        partition_index=index,
        leader=leader,
        leader_epoch=3,
        isr=[leader],
        controller_epoch=4,
        zk_version=5,
        replicas=[1, 2],
    )


def known(leader: int = 1) -> PartitionImage:
    return PartitionImage((1, 2), known=KnownState(PartitionState(leader, 3, (leader,), 4), 5))


def test_states_are_those_of_the_request_and_topics_grow_with_it() -> None:
    topics = [UpdateMetadataTopicState(topic_name="orders", partition_states=[state(0), state(2, 2)])]
    image = after(UpdateMetadataRequest(topic_states=topics))
    assert image.topics["orders"].partitions == (known(), PartitionImage(()), known(2))
    request = UpdateMetadataRequest(ungrouped_partition_states=[state(1, topic="orders"), state(0, topic="unknown")])
    image = after(request, image)
    assert image.topics == {"orders": ORDERS._replace(partitions=(known(), known(), known(2)))}
    assert changes_of(image, update_of(request, "INTERNAL")) == []


def test_a_deleted_topic_is_gone_with_its_settings() -> None:
    states = [state(0, BEING_DELETED, "orders"), state(0, BEING_DELETED, "unknown")]
    image = after(UpdateMetadataRequest(ungrouped_partition_states=states))
    assert (image.topics, image.topic_names, image.settings) == ({}, {}, {})


def test_brokers_are_those_of_the_request_with_their_listeners_in_every_version() -> None:
    endpoints = [
        UpdateMetadataEndpoint(host="a", port=1, listener="CLIENTS", security_protocol=3),
        UpdateMetadataEndpoint(host="a", port=2, security_protocol=1),  # versions 1 and 2
        UpdateMetadataEndpoint(host="a", port=3, security_protocol=9),  # unknown, and without a name
    ]
    brokers = [
        UpdateMetadataBroker(id=1, endpoints=endpoints, rack="attic"),
        UpdateMetadataBroker(id=2, v0_host="b", v0_port=4),
    ]
    image = after(UpdateMetadataRequest(live_brokers=brokers))
    assert image.brokers[1].registration.rack == "attic"
    assert image.brokers[1].registration.endpoints == (
        BrokerEndpoint("CLIENTS", "SASL_SSL", "a", 1),
        BrokerEndpoint("SSL", "SSL", "a", 2),
    )
    assert image.brokers[2].registration.endpoints == (BrokerEndpoint("INTERNAL", "PLAINTEXT", "b", 4),)
    assert list(after(UpdateMetadataRequest(live_brokers=brokers[1:]), image).brokers) == [2]


def test_roles_are_the_same_orders_in_each_version_of_leader_and_isr() -> None:
    def role(topic: str = "") -> LeaderAndIsrPartitionState:
        return LeaderAndIsrPartitionState(
            topic_name=topic,
            partition_index=2,
            controller_epoch=4,
            leader=1,
            leader_epoch=3,
            isr=[1],
            partition_epoch=5,
            replicas=[1, 2],
        )

    order = PartitionOrder(TopicPartition("orders", 2), PartitionState(1, 3, (1,), 4), 5, (1, 2))
    flat = LeaderAndIsrRequest(ungrouped_partition_states=[role("orders")])
    grouped = LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(topic_name="orders", partition_states=[role()])])
    assert orders_of(flat) == orders_of(grouped) == [order]


def test_stops_are_the_same_in_each_version_and_later_ones_have_an_epoch() -> None:
    key = TopicPartition("orders", 2)
    first = StopReplicaRequest(
        delete_partitions=True, ungrouped_partitions=[StopReplicaPartitionV0(topic_name="orders", partition_index=2)]
    )
    by_topic = StopReplicaRequest(
        delete_partitions=True, topics=[StopReplicaTopicV1(name="orders", partition_indexes=[2])]
    )
    states = [StopReplicaPartitionState(partition_index=2, leader_epoch=3, delete_partition=True)]
    with_epochs = StopReplicaRequest(topic_states=[StopReplicaTopicState(topic_name="orders", partition_states=states)])
    assert [*stops_of(first, 0)] == [*stops_of(by_topic, 2)] == [(key, None, True)]
    assert [*stops_of(with_epochs, 3)] == [(key, 3, True)]
