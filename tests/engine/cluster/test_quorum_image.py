"""A tree's image as that of a quorum: ids are drawn, and its records lead to the same image."""

import itertools
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from magicbyte.engine.cluster.acls import AccessControlEntry, AclOperation, Permission, ResourcePattern, ResourceType
from magicbyte.engine.cluster.image import (
    ClusterImage,
    ConfigEntity,
    DamagedPart,
    DamagedSection,
    EntityKind,
    PartitionImage,
    TopicImage,
)
from magicbyte.engine.cluster.metadata_fold import MetadataFold, records_of
from magicbyte.engine.cluster.principal import Principal
from magicbyte.engine.cluster.quorum_image import TakingOver, quorum_image
from magicbyte.engine.cluster.quotas import QuotaEntity
from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.errors import InvalidRequestError
from magicbyte.engine.ports import TopicPartition

DIRECTORY = uuid.UUID(int=1 << 100)
ENTRY = AccessControlEntry(Principal.parse("User:alice"), Permission.ALLOW, AclOperation.READ)


def ids() -> Callable[[], uuid.UUID]:
    """Return a source of ids from 1000 on."""
    numbers = itertools.count(1000)
    return lambda: uuid.UUID(int=next(numbers))


def taking(**changed: Any) -> TakingOver:
    """Return how node 1 takes over a cluster at level 30."""
    return TakingOver(1, DIRECTORY, {"metadata.version": 30}, ids())._replace(**changed)


TREE = ClusterImage(
    topics={
        "orders": TopicImage("orders", None, (PartitionImage((0,)), PartitionImage((0,)))),
        "gone": TopicImage("gone", None, (PartitionImage((0,)),)),
    },
    deletions=frozenset({"gone"}),
    settings={
        ConfigEntity(EntityKind.TOPIC, "orders"): {"retention.ms": "5", "ours": "x"},
        ConfigEntity(EntityKind.BROKER, "0"): {"log.cleaner.threads": "2"},
        ConfigEntity(EntityKind.BROKER, None): {"log.cleaner.threads": "3"},
    },
    quotas={QuotaEntity("alice", None): {"producer_byte_rate": 5.0}},
    connection_rates={None: 7.0},
    acls={ResourcePattern(ResourceType.TOPIC, "orders"): frozenset({ENTRY})},
    scram_users={"alice": {"SCRAM-SHA-256": Credential(b"salt", b"stored", b"server", 4096)}},
    next_producer_id=4000,
)


def test_the_records_of_a_tree_lead_to_the_image_of_the_quorum() -> None:
    image, left_out = quorum_image(TREE, taking(is_alone=True, not_kafkas={"ours"}))
    fold = MetadataFold()
    for record in records_of(image):
        fold.add(record)
    assert fold.image(TREE.position) == image
    assert left_out == ["topic gone: it was being deleted", "settings of topic orders: ours", "settings of broker 0"]
    assert image.topics.keys() == {"orders"}
    assert [binding.entry for binding in image.acl_ids.values()] == [ENTRY]
    assert image.quotas == TREE.quotas
    assert image.scram_users == TREE.scram_users
    assert image.brokers[1].quorum is not None
    assert image.brokers[1].quorum.is_fenced


def test_a_leader_epoch_is_at_least_that_of_the_log_and_an_id_that_of_its_folder() -> None:
    known = uuid.UUID(int=77)
    epochs = {TopicPartition("orders", 1): 9}
    image, _ = quorum_image(TREE, taking(is_alone=True, epochs=epochs, topic_ids={"orders": known}))
    states = [each.known.state.leader_epoch for each in image.topics["orders"].partitions if each.known]
    assert states == [0, 9]
    assert image.topic_names == {known: "orders"}


def test_a_damaged_tree_and_an_image_without_a_level_are_refused() -> None:
    part = DamagedPart(DamagedSection.TOPIC, "orders")
    with pytest.raises(InvalidRequestError, match="cannot be read: the replicas of a topic: orders"):
        quorum_image(ClusterImage(damage={part: "garbled"}), taking())
    with pytest.raises(InvalidRequestError, match=r"no level of metadata\.version"):
        quorum_image(TREE, taking(levels=None))
