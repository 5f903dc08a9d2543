"""Changes written into a tree, and read again."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import tries
from engine.cluster.builders import CREDENTIAL, batches, topic
from magicbyte.engine.cluster.acls import AccessControlEntry, AclOperation, Pattern, Permission
from magicbyte.engine.cluster.acls import ResourcePattern as Resource
from magicbyte.engine.cluster.acls import ResourceType as Type
from magicbyte.engine.cluster.brokers import BrokerEndpoint, RegisteredBroker, Registration
from magicbyte.engine.cluster.changes import (
    AclsChanged,
    BrokerRegistered,
    ConnectionRateChanged,
    ControllerChanged,
    DeletionEnded,
    DeletionRequested,
    PartitionStateChanged,
    ProposedChange,
    QuotasChanged,
    ReplicasChanged,
    ScramCredentialChanged,
    SettingsChanged,
    TopicCreated,
    TopicDeleted,
    apply,
    apply_all,
)
from magicbyte.engine.cluster.image import ClusterImage, ConfigEntity, EntityKind
from magicbyte.engine.cluster.principal import Principal
from magicbyte.engine.cluster.quotas import QuotaEntity
from magicbyte.engine.errors import BadVersionError, MetadataError, ProtocolTooOldError, UnknownTopicError
from magicbyte.engine.ports import CreateNode, MetadataStore, NodeChange, SetNode, TopicPartition
from magicbyte.engine.replication.reassignment import OngoingMove
from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.election import candidacy
from magicbyte.server.stores.znodes.reading import image_of, read_tree
from magicbyte.server.stores.znodes.writing import WritingTerms, node_changes
from server.stores.znodes.builders import RECORDED, new_tree, recorded

NOW = WritingTerms(now_ms=1_700_000_000_000, protocol=None)
FIRST = TopicPartition("orders", 0)
ORDERS = ConfigEntity(EntityKind.TOPIC, "orders")
ENDPOINTS = (BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "a", 9092),)


def write(store: MetadataStore, changes: Sequence[ProposedChange], terms: WritingTerms = NOW) -> list[NodeChange]:
    image, nodes = read_tree(store)
    made = node_changes(store, image, changes, terms, nodes)
    store.transaction(made)
    return made


def at(image: ClusterImage, position: int) -> ClusterImage:
    return replace(image, position=position)


def follow(store: MetadataStore, data: st.DataObject) -> None:
    """Write random changes, and compare the tree after each batch with the fold of the changes."""
    image = image_of(store)
    for number in range(3):
        changes = data.draw(batches(image))
        write(store, changes)
        image = apply_all(image, changes, image.position + 1)
        if data.draw(st.booleans()):
            registration = Registration(ENDPOINTS, data.draw(st.sampled_from([None, "attic"])))
            said = layout.dump_broker(ENDPOINTS, registration.rack, NOW.now_ms, 4)
            path = store.create(layout.broker_path(10 + number), said, ephemeral=True)
            broker = RegisteredBroker(10 + number, store.get(path).czxid, registration)
            image = apply(image, BrokerRegistered(broker))
        assert image_of(store) == at(image, image_of(store).position)


@given(st.data())
@tries(60)
def test_a_tree_after_any_changes_is_the_image_after_them(data: st.DataObject) -> None:
    follow(new_tree(), data)


@pytest.mark.parametrize("version", RECORDED)
@given(data=st.data())
@tries(10)
def test_the_tree_of_a_real_broker_after_any_changes_is_the_image_after_them(version: str, data: st.DataObject) -> None:
    follow(recorded(version), data)


@pytest.mark.parametrize("version", RECORDED)
def test_the_topics_of_a_real_broker_are_written_again_as_they_were(version: str) -> None:
    store = recorded(version)
    image = image_of(store)
    for name, known in image.topics.items():
        path = layout.topic_path(name)
        before = layout.load(path, store.get(path).data)
        key, replicas = TopicPartition(name, 0), known.partitions[0].replicas
        write(store, [ReplicasChanged(key, replicas)])
        after = layout.load(path, store.get(path).data)
        assert after == {"adding_replicas": {}, "removing_replicas": {}} | before | {"version": after["version"]}


def test_the_election_of_a_controller_is_a_change_of_two_fields() -> None:
    store = new_tree()
    image = image_of(store)
    store.transaction(candidacy(None, 4, NOW.now_ms))
    elected = image_of(store)
    assert elected == at(apply(image, ControllerChanged(4, 1)), elected.position)


# ---- expected versions


def test_an_overtaken_proposal_changes_nothing() -> None:
    store = new_tree()
    write(store, [TopicCreated(topic("orders", 2)), SettingsChanged(ORDERS, {})])
    image, nodes = read_tree(store)
    store.set(layout.config_path("topics", "orders"), layout.dump_config({"retention.ms": "1"}))
    made = node_changes(store, image, [SettingsChanged(ORDERS, {"retention.ms": "2"})], NOW, nodes)
    with pytest.raises(BadVersionError, match=r"/config/topics/orders: expected version 0, found 1"):
        store.transaction(made)
    made = node_changes(store, image, [DeletionRequested("orders")], NOW, nodes)  # that is another node
    store.transaction(made)
    assert image_of(store).settings == {ORDERS: {"retention.ms": "1"}}


def test_a_proposal_that_is_overtaken_after_its_nodes_were_read_fails_in_the_store() -> None:
    store = new_tree()
    write(store, [TopicCreated(topic("orders", 1))])
    image, nodes = read_tree(store)
    state = PartitionState(2, 1, (2,), 1)
    made = node_changes(store, image, [PartitionStateChanged(FIRST, KnownState(state, 1))], NOW, nodes)
    path = layout.state_path(*FIRST)
    store.set(path, store.get(path).data)
    with pytest.raises(BadVersionError):
        store.transaction(made)


@pytest.mark.parametrize("version", [0, 2])
def test_a_state_that_does_not_follow_the_written_one_is_refused(version: int) -> None:
    store = new_tree()
    write(store, [TopicCreated(topic("orders", 1))])
    with pytest.raises(BadVersionError, match=f"expected version {version - 1} of the state, found 0"):
        write(store, [PartitionStateChanged(FIRST, KnownState(PartitionState(2, 1, (2,), 1), version))])


def test_a_topic_that_another_broker_has_created_is_not_created_again() -> None:
    store = new_tree()
    image = image_of(store)
    write(store, [TopicCreated(topic("orders", 1))])
    with pytest.raises(BadVersionError, match="the topic exists already"):
        node_changes(store, image, [TopicCreated(topic("orders", 2))], NOW)
    with pytest.raises(UnknownTopicError):
        node_changes(store, image, [ReplicasChanged(FIRST, (1,), OngoingMove())], NOW)


# ---- content that an image lacks


def test_other_settings_of_a_user_and_quotas_that_are_no_numbers_are_kept() -> None:
    store = new_tree()
    path = layout.config_path("users", "u")
    kept = {"producer_byte_rate": "many", "x": "y", "consumer_byte_rate": "5"}
    store.create(path, layout.dump_config(kept))
    write(store, [QuotasChanged(QuotaEntity("u"), {"request_percentage": 2.5})])
    write(store, [ScramCredentialChanged("u", "SCRAM-SHA-256", CREDENTIAL)])
    own = layout.load_config(path, store.get(path).data)
    assert own == {
        "producer_byte_rate": "many",
        "x": "y",
        "request_percentage": "2.5",
        "SCRAM-SHA-256": CREDENTIAL.dump(),
    }


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"producer_byte_rate": 1024.0}, "1024"),
        ({"producer_byte_rate": float(1 << 63)}, "9223372036854775807"),
        ({"producer_byte_rate": 0.5}, "0.5"),
        ({"request_percentage": 50.0}, "50.0"),
        ({"request_percentage": float("inf")}, "Infinity"),
        ({"request_percentage": float("-inf")}, "-Infinity"),
    ],
)
def test_a_quota_is_written_as_kafka_writes_it(limits: dict[str, float], text: str) -> None:
    store = new_tree()
    write(store, [QuotasChanged(QuotaEntity("u"), limits)])
    path = layout.config_path("users", "u")
    assert list(layout.load_config(path, store.get(path).data).values()) == [text]


def test_an_unreadable_node_of_which_only_a_part_would_change_is_left_unchanged() -> None:
    store = new_tree()
    store.create("/config/users/u", b"{}")
    store.create("/kafka-acl/Topic/t", b"{}", parents=True)
    entries = frozenset({AccessControlEntry(Principal("User", "u"), Permission.ALLOW, AclOperation.READ)})
    changes: list[ProposedChange] = [
        QuotasChanged(QuotaEntity("u"), {}),
        ScramCredentialChanged("u", "SCRAM-SHA-256", CREDENTIAL),
        AclsChanged(Resource(Type.TOPIC, "t"), entries),
    ]
    for change in changes:
        with pytest.raises(MetadataError, match="expected"):
            write(store, [change])


# ---- notifications


def notes(made: Sequence[NodeChange]) -> list[tuple[str, bytes]]:
    return [(each.path, each.data) for each in made if isinstance(each, CreateNode) and each.sequence]


def test_brokers_are_notified_once_of_each_changed_entity() -> None:
    store = new_tree()
    created = write(store, [TopicCreated(topic("orders", 1)), SettingsChanged(ORDERS, {})])
    assert notes(created) == []
    changes: list[ProposedChange] = [
        SettingsChanged(ORDERS, {"retention.ms": "1"}),
        QuotasChanged(QuotaEntity("u", None), {"producer_byte_rate": 1.0}),
        ScramCredentialChanged("u v", "SCRAM-SHA-256", CREDENTIAL),
        ScramCredentialChanged("u v", "SCRAM-SHA-512", CREDENTIAL),
        ConnectionRateChanged(None, 5.0),
    ]
    entities = ["topics/orders", "users/u/clients/<default>", "users/u%20v", "ips/<default>"]
    said = [layout.dump({"version": 2, "entity_path": each}) for each in entities]
    assert notes(write(store, changes)) == [(layout.CONFIG_CHANGE, each) for each in said]
    assert notes(write(store, [SettingsChanged(ORDERS, None), TopicDeleted("orders")])) == []


@pytest.mark.parametrize("pattern", Pattern)
def test_brokers_are_notified_of_changed_acls_and_old_notifications_are_deleted(pattern: Pattern) -> None:
    store = new_tree()
    resource = Resource(Type.TOPIC, "t", pattern)
    entries = frozenset({AccessControlEntry(Principal("User", "u"), Permission.ALLOW, AclOperation.READ)})
    (_, said), *others = notes(write(store, [AclsChanged(resource, entries)]))
    assert (b"t" in said, others) == (True, [])
    assert notes(write(store, [AclsChanged(resource, entries)])) == []
    later = WritingTerms(store.get("/kafka-acl-changes").ctime_ms + 3_600_000, None)
    write(store, [AclsChanged(resource, frozenset())], later)
    parent = "/kafka-acl-changes" if pattern is Pattern.LITERAL else "/kafka-acl-extended-changes"
    assert len(store.children(parent)) == 1
    assert image_of(store).acls == {}


def test_content_that_a_broker_of_the_cluster_cannot_read_is_refused() -> None:
    store = new_tree()
    old = WritingTerms(NOW.now_ms, (0, 11))
    entries = frozenset({AccessControlEntry(Principal("User", "u"), Permission.ALLOW, AclOperation.READ)})
    with pytest.raises(ProtocolTooOldError):
        write(store, [AclsChanged(Resource(Type.TOPIC, "t", Pattern.PREFIXED), entries)], old)
    with pytest.raises(ProtocolTooOldError):
        write(store, [ConnectionRateChanged(None, 5.0)], old)


def test_a_refused_deletion_leaves_the_topic() -> None:
    store = new_tree()
    write(store, [TopicCreated(topic("orders", 1)), DeletionRequested("orders")])
    made = write(store, [DeletionEnded("orders")])
    assert not any(isinstance(each, SetNode) for each in made)
    assert (list(image_of(store).topics), image_of(store).deletions) == (["orders"], frozenset())
