"""The image of a tree: of real brokers, of each old form of a node, and of damaged nodes."""

from collections.abc import Callable

import pytest

from magicbyte.engine.cluster.acls import DENY_ALL, AccessControlEntry, AclOperation, Pattern, Permission
from magicbyte.engine.cluster.acls import ResourcePattern as Resource
from magicbyte.engine.cluster.acls import ResourceType as Type
from magicbyte.engine.cluster.brokers import BrokerEndpoint
from magicbyte.engine.cluster.image import (
    ClusterImage,
    ConfigEntity,
    DamagedPart,
    DamagedSection,
    EntityKind,
    PartitionImage,
    credential_part,
)
from magicbyte.engine.cluster.principal import Principal
from magicbyte.engine.cluster.quotas import QuotaEntity
from magicbyte.engine.errors import MetadataError
from magicbyte.engine.ports import MetadataStore, TopicPartition
from magicbyte.engine.replication.reassignment import OngoingMove
from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.layout import TopicNode
from magicbyte.server.stores.znodes.reading import image_of, read_tree
from server.stores.znodes.builders import RECORDED, new_tree, recorded

LED = PartitionImage((5,), known=KnownState(PartitionState(5, 0, (5,), 1), 0))


def topic_settings(name: str) -> ConfigEntity:
    return ConfigEntity(EntityKind.TOPIC, name)


@pytest.mark.parametrize("version", RECORDED)
def test_the_tree_of_a_real_broker_has_its_broker_controller_and_producer_ids(version: str) -> None:
    image = image_of(recorded(version))
    broker = image.brokers[5]
    assert (broker.id, broker.registration.rack, sorted(image.brokers)) == (5, None, [5])
    (endpoint,) = broker.registration.endpoints
    assert endpoint == BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", endpoint.port)
    assert (image.controller_id, image.controller_epoch) == (5, 1)
    assert image.next_producer_id == (None if version == "3.9.1" else 1000)  # no producer has asked for an id
    assert len(image.cluster_id or "") == 22
    assert image.position > broker.epoch > 0
    assert image.damage == {}


def test_a_tree_of_1_1_1_has_topics_without_ids() -> None:
    image = image_of(recorded("1.1.1"))
    topic = image.topics["zeta-one"]
    assert (topic.id, topic.partitions) == (None, (LED,) * 4)
    assert image.topic_names == {}
    assert image.settings == {topic_settings("zeta-one"): {"retention.ms": "-1"}}
    assert image.quotas == {QuotaEntity(client_id=None): {"producer_byte_rate": 1000.0}}
    assert image.scram_users["zeta-anna"]["SCRAM-SHA-256"].iterations == 4096
    assert image.acls == {}


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1"])
def test_trees_of_2_8_2_and_3_9_1_have_all_that_was_asked_of_their_brokers(version: str) -> None:
    image = image_of(recorded(version))
    assert {each.id: name for name, each in image.topics.items()} == image.topic_names
    assert image.settings[topic_settings("zeta-one")] == {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    assert {entity.name for entity in image.settings if entity.kind is EntityKind.BROKER} == {"5", None}
    assert image.quotas == {
        QuotaEntity(client_id="zeta-client"): {"consumer_byte_rate": 4_000_000.0},
        QuotaEntity(None): {"controller_mutation_rate": 43.0},
        QuotaEntity(None, None): {"consumer_byte_rate": 300_000.0},
        QuotaEntity("zeta-user", "zeta-client"): {"request_percentage": 12.5},
    }
    assert image.connection_rates == {"127.0.0.34": 1000.0, None: 5000.0}
    assert {user: sorted(own) for user, own in image.scram_users.items()} == {
        "zeta-anna": ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    }
    bob = AccessControlEntry(Principal("User", "bob"), Permission.ALLOW, AclOperation.WRITE, "127.0.0.1")
    assert image.acls[Resource(Type.TOPIC, "zeta", Pattern.PREFIXED)] == {bob}
    assert len(image.acls) == {"2.8.2": 5, "3.9.1": 6}[version]
    assert image.preferred_elections is None


def test_an_empty_tree_is_an_empty_cluster() -> None:
    image = image_of(new_tree())
    assert image == ClusterImage(position=image.position)


def test_reassignments_are_those_of_topics_and_those_of_old_tools() -> None:
    store = new_tree()
    store.create(layout.topic_path("t"), TopicNode({0: [1, 2], 1: [2]}, None, {0: [2]}, {0: [1]}).dump())
    key = TopicPartition("t", 1)
    store.create(layout.REASSIGNMENTS, layout.dump_reassignments({key: (3,)}))
    store.create(layout.PREFERRED_ELECTION, layout.dump_partitions([key]))
    image = image_of(store)
    assert image.topics["t"].partitions == (PartitionImage((1, 2), OngoingMove((2,), (1,))), PartitionImage((2,)))
    assert (image.reassignments, image.preferred_elections) == ({key: (3,)}, {key})


def test_the_nodes_of_a_reading_are_those_that_were_read() -> None:
    store = recorded("2.8.2")
    reading = read_tree(store)
    for path, node in reading.nodes.items():
        assert store.exists(path) == node
    assert {layout.topic_path("zeta-one"), layout.config_path("users", "bob")} <= reading.nodes.keys()


SECRET = "salt=x,stored_key=secret"
DAMAGE: list[tuple[str, bytes, DamagedPart, str]] = [
    ("/brokers/ids/7", b"{}", DamagedPart(DamagedSection.BROKER, "7"), "expected endpoints"),
    ("/brokers/topics/t", b"\0", DamagedPart(DamagedSection.TOPIC, "t"), "expected JSON"),
    ("/brokers/topics/u/partitions/0/state", b"{}", DamagedPart(DamagedSection.STATE, "u-0"), "expected leader"),
    ("/config/topics/t", b"[]", DamagedPart(DamagedSection.TOPIC_SETTINGS, "t"), "expected a JSON object"),
    ("/config/brokers/7", b"{}", DamagedPart(DamagedSection.BROKER_SETTINGS, "7"), "expected settings"),
    ("/config/users/u", b"{}", DamagedPart(DamagedSection.CLIENT, "users/u"), "expected settings"),
    (
        "/config/clients/c",
        layout.dump_config({"producer_byte_rate": "many", "consumer_byte_rate": "5"}),
        DamagedPart(DamagedSection.CLIENT, "clients/c"),
        "producer_byte_rate is ignored: expected a number, found 'many'",
    ),
    (
        "/config/users/a%20b",
        layout.dump_config({"SCRAM-SHA-256": SECRET}),
        credential_part("a b", "SCRAM-SHA-256"),
        "expected salt, stored_key, server_key and iterations",
    ),
    ("/kafka-acl/Topic/t", b"{}", DamagedPart(DamagedSection.ACLS, "/kafka-acl/Topic/t"), "expected ACLs of version 1"),
    ("/admin/reassign_partitions", b"{}", DamagedPart(DamagedSection.REQUESTS, "reassignments"), "expected partitions"),
    (
        "/admin/preferred_replica_election",
        b"{}",
        DamagedPart(DamagedSection.REQUESTS, "preferred elections"),
        "expected partitions",
    ),
]


@pytest.mark.parametrize(("path", "data", "part", "why"), DAMAGE, ids=lambda value: str(value)[:40])
def test_a_damaged_node_is_recorded_and_the_others_are_read(
    path: str, data: bytes, part: DamagedPart, why: str
) -> None:
    store = new_tree()
    store.create(layout.topic_path("u"), TopicNode({0: [1]}, None).dump())
    store.create(layout.config_path("clients", "d"), layout.dump_config({"producer_byte_rate": "1"}))
    store.create(path, data, parents=True)
    image = image_of(store)
    unusable = [credential_part("u", each) for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")]  # what the node may have had
    assert list(image.damage) == [part, *(unusable if part.name == "users/u" else [])]
    assert why in image.damage[part]
    assert SECRET not in image.damage[part]
    assert sorted(image.topics) == ["u"]
    assert image.quotas[QuotaEntity(client_id="d")] == {"producer_byte_rate": 1.0}
    assert image.quotas.get(QuotaEntity(client_id="c"), {"consumer_byte_rate": 5.0}) == {"consumer_byte_rate": 5.0}
    assert set(image.acls.values()) <= {frozenset({DENY_ALL})}
    assert (part.section is DamagedSection.ACLS) == bool(image.acls)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (layout.CLUSTER_ID, b"{}"),
        (layout.FEATURES, b"{"),
        (layout.PRODUCER_IDS, b"{}"),
        (layout.CONTROLLER, b"{}"),
        (layout.CONTROLLER_EPOCH, b"one"),
    ],
)
def test_a_damaged_node_that_the_whole_cluster_depends_on_is_an_error(path: str, data: bytes) -> None:
    store = new_tree()
    store.create(path, data, parents=True)
    with pytest.raises(MetadataError, match="expected"):
        image_of(store)


@pytest.mark.parametrize(
    "make",
    [
        lambda store: store.create("/config/users/<default>", layout.dump_config({"SCRAM-SHA-256": "x"})),
        lambda store: store.create("/config/users/a%2fb", layout.dump_config({"SCRAM-SHA-256": "x"})),
        lambda store: store.create("/config/users/u/clients", parents=True),
        lambda store: store.create("/brokers/ids/x", b"no id"),
        lambda store: store.create("/kafka-acl/Topic/t", b'{"version":1,"acls":[]}', parents=True),
        lambda store: store.create("/magicbyte/directories/0", b"{}", parents=True),
    ],
)
def test_a_node_that_no_reader_asks_for_changes_nothing(make: Callable[[MetadataStore], object]) -> None:
    store = new_tree()
    before = image_of(store)
    make(store)
    after = image_of(store)
    assert after == ClusterImage(position=after.position)
    assert after.position >= before.position
    assert after.controller_id == NO_BROKER
