"""An image after each change: what it has then, and what it shares with the image before."""

import uuid
from collections import UserDict
from collections.abc import KeysView, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cluster.builders import CREDENTIAL, batches, partition, topic
from magicbyte.engine.cluster.acls import DENY_ALL, ResourcePattern, ResourceType
from magicbyte.engine.cluster.brokers import RegisteredBroker, Registration
from magicbyte.engine.cluster.changes import (
    AclsChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ClusterChange,
    ClusterIdentified,
    ConnectionRateChanged,
    ControllerChanged,
    DamageChanged,
    DeletionEnded,
    DeletionRequested,
    FeatureChanged,
    PartitionsCreated,
    PartitionStateChanged,
    PreferredElectionsRequested,
    ProducerIdsAllocated,
    QuotasChanged,
    ReassignmentsRequested,
    ReplicasChanged,
    ScramCredentialChanged,
    SettingsChanged,
    TopicCreated,
    TopicDeleted,
    TopicIdAssigned,
    apply,
    apply_all,
    difference,
)
from magicbyte.engine.cluster.image import (
    ClusterImage,
    ConfigEntity,
    DamagedPart,
    DamagedSection,
    EntityKind,
    PartitionImage,
    TopicImage,
)
from magicbyte.engine.cluster.quotas import QuotaEntity
from magicbyte.engine.errors import UnknownTopicError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.reassignment import OngoingMove
from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.engine.sentinels import NO_BROKER

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
BROKER = RegisteredBroker(1, 77, Registration((), "attic"))
ORDERS = ConfigEntity(EntityKind.TOPIC, "orders")
ALICE = QuotaEntity("alice")
RESOURCE = ResourcePattern(ResourceType.TOPIC, "orders")
DAMAGED = DamagedPart(DamagedSection.TOPIC, "orders")
CLUSTER = apply_all(
    ClusterImage(),
    [
        ClusterIdentified("AAAAAAAAAAAAAAAAAAAAAQ"),
        BrokerRegistered(BROKER),
        ControllerChanged(1, 3),
        TopicCreated(topic("orders", 2)),
        SettingsChanged(ORDERS, {"retention.ms": "1"}),
        QuotasChanged(ALICE, {"producer_byte_rate": 1.0}),
        ConnectionRateChanged(None, 5.0),
        AclsChanged(RESOURCE, frozenset({DENY_ALL})),
        ScramCredentialChanged("alice", "SCRAM-SHA-256", CREDENTIAL),
        FeatureChanged("transaction.version", 2),
        ProducerIdsAllocated(1, 1000),
        DeletionRequested("orders"),
        DamageChanged(DAMAGED, "expected JSON"),
    ],
    position=9,
)
LED = KnownState(PartitionState(2, 1, (2,), 3), 1)

CASES = [  # a change of CLUSTER, the field that it changes, and its value afterwards
    (BrokerUnregistered(1), "brokers", {}),
    (BrokerUnregistered(8), "brokers", {1: BROKER}),
    (ControllerChanged(NO_BROKER, 3), "controller_id", NO_BROKER),
    (TopicDeleted("orders"), "topics", {}),
    (TopicDeleted("orders"), "topic_names", {}),
    (TopicDeleted("others"), "topics", CLUSTER.topics),
    (SettingsChanged(ORDERS, {}), "settings", {ORDERS: {}}),
    (SettingsChanged(ORDERS, None), "settings", {}),
    (QuotasChanged(ALICE, {}), "quotas", {}),
    (ConnectionRateChanged(None, None), "connection_rates", {}),
    (AclsChanged(RESOURCE, frozenset()), "acls", {}),
    (ScramCredentialChanged("alice", "SCRAM-SHA-256", None), "scram_users", {}),
    (ScramCredentialChanged("bob", "SCRAM-SHA-256", None), "scram_users", CLUSTER.scram_users),
    (FeatureChanged("transaction.version", None), "features", {}),
    (ProducerIdsAllocated(2, 2000), "next_producer_id", 2000),
    (DeletionEnded("orders"), "deletions", frozenset()),
    (ReassignmentsRequested({FIRST: (1, 2)}), "reassignments", {FIRST: (1, 2)}),
    (PreferredElectionsRequested(frozenset({FIRST})), "preferred_elections", {FIRST}),
    (DamageChanged(DAMAGED, None), "damage", {}),
]


@pytest.mark.parametrize(("change", "field", "value"), CASES, ids=lambda case: type(case).__name__)
def test_a_change_has_its_effect_on_one_field_and_the_others_are_shared(
    change: ClusterChange, field: str, value: object
) -> None:
    after = apply(CLUSTER, change)
    assert getattr(after, field) == value
    touched = {field, "topics", "topic_names"} if isinstance(change, TopicDeleted) else {field}
    others = set(ClusterImage.__struct_fields__) - touched
    assert all(getattr(after, name) is getattr(CLUSTER, name) for name in others)


def test_partitions_have_their_replicas_and_states_by_number() -> None:
    after = apply_all(
        CLUSTER,
        [
            ReplicasChanged(FIRST, (1, 2, 4), OngoingMove((4,), ())),
            PartitionStateChanged(FIRST, LED),
            PartitionsCreated("orders", (PartitionImage((2,)),)),
            PartitionStateChanged(SECOND, None),
        ],
        10,
    )
    assert after.position == 10
    assert after.topics["orders"].partitions == (
        PartitionImage((1, 2, 4), OngoingMove((4,), ()), LED),
        PartitionImage((1, 2, 3)),
        PartitionImage((2,)),
    )
    assert after.partition(SECOND) == PartitionImage((1, 2, 3))
    assert after.partition(TopicPartition("orders", 3)) is after.partition(TopicPartition("others", 0)) is None


def test_a_topic_without_id_gets_one_and_keeps_its_partitions() -> None:
    old = apply(ClusterImage(), TopicCreated(TopicImage("old", None, (partition(),))))
    assert old.topic_names == {}
    changes: list[ClusterChange] = [
        PartitionStateChanged(TopicPartition("old", 0), LED),
        TopicIdAssigned("old", uuid.UUID(int=5)),
    ]
    new = apply_all(old, changes, 1)
    assert new.topics["old"] == TopicImage("old", uuid.UUID(int=5), (PartitionImage((1, 2, 3), known=LED),))
    assert new.topic_names == {uuid.UUID(int=5): "old"}


def test_a_topic_of_the_same_name_has_nothing_of_the_deleted_one() -> None:
    changes = [PartitionStateChanged(FIRST, LED), TopicDeleted("orders"), TopicCreated(topic("orders", 1, 2))]
    after = apply_all(CLUSTER, changes, 10)
    assert after.topics == {"orders": topic("orders", 1, 2)}
    assert after.topic_names == {uuid.UUID(int=2): "orders"}


@pytest.mark.parametrize(
    "change",
    [
        PartitionStateChanged(TopicPartition("orders", 2), LED),
        PartitionStateChanged(TopicPartition("orders", -1), LED),
        ReplicasChanged(TopicPartition("others", 0), (1,)),
        PartitionsCreated("others", ()),
        TopicIdAssigned("others", uuid.UUID(int=5)),
    ],
)
def test_a_change_of_something_that_does_not_exist_is_refused(change: ClusterChange) -> None:
    with pytest.raises(UnknownTopicError, match="does not exist"):
        apply(CLUSTER, change)


def test_each_section_is_copied_once_by_a_batch() -> None:
    image = apply_all(ClusterImage(), [TopicCreated(topic(f"t{index}", 1, index + 1)) for index in range(50)], 1)
    copies = 0

    class Counted(UserDict[str, TopicImage]):
        def keys(self) -> KeysView[str]:
            nonlocal copies
            copies += 1
            return super().keys()

    counted = ClusterImage(topics=Counted(image.topics), topic_names=image.topic_names)
    changes = [PartitionStateChanged(TopicPartition(f"t{index}", 0), LED) for index in range(50)]
    assert len(apply_all(counted, changes, 2).topics) == 50
    assert copies == 1


def fold(image: ClusterImage, parts: Sequence[Sequence[ClusterChange]]) -> ClusterImage:
    for changes in parts:
        image = apply_all(image, changes, image.position + 1)
    return image


@given(st.data())
def test_the_difference_of_two_images_leads_from_one_to_the_other(data: st.DataObject) -> None:
    images = [CLUSTER]
    for _ in range(4):
        images.append(fold(images[-1], [data.draw(batches(images[-1]))]))
    for old in images:
        for new in images:
            assert apply_all(old, difference(old, new), new.position) == new
    assert difference(images[-1], images[-1]) == []


@given(st.data())
def test_a_batch_is_the_same_as_its_changes_one_by_one_and_leaves_the_image_before(data: st.DataObject) -> None:
    changes = data.draw(batches(CLUSTER))
    before = fold(CLUSTER, [])
    copy = apply_all(ClusterImage(), difference(ClusterImage(), before), before.position)
    one_by_one = CLUSTER
    for change in changes:
        one_by_one = apply(one_by_one, change)
    assert apply_all(CLUSTER, changes, CLUSTER.position) == one_by_one
    assert copy == CLUSTER
