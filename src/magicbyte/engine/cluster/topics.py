"""Decisions about topics: the changes that a request needs, or the reason why it is impossible.

Source: Kafka's AdminManager and AdminZkClient.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from magicbyte.engine.cluster.changes import (
    DeletionEnded,
    PartitionsCreated,
    PartitionStateChanged,
    ProposedChange,
    SettingsChanged,
    TopicCreated,
    TopicDeleted,
    TopicIdAssigned,
)
from magicbyte.engine.cluster.image import ClusterImage, ConfigEntity, EntityKind, PartitionImage, Settings, TopicImage
from magicbyte.engine.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    InvalidTopicError,
    TopicExistsError,
    UnknownTopicError,
)
from magicbyte.engine.log.files.names import MOST_PARTITIONS, check_new_topic
from magicbyte.engine.replication.assignment import assign, check_assignments, check_factor
from magicbyte.engine.replication.state import NEW_NODE, KnownState, PartitionOrder, PartitionState

if TYPE_CHECKING:
    import uuid

    from magicbyte.engine.ports import TopicPartition


class Placement(NamedTuple):
    """Where replicas of new partitions may be: on the live brokers, in order of their ids.

    `racks`: None unless each broker has one. `draw` returns a number below the given one. `check_folders` raises
    InvalidTopicError if new partitions of a topic cannot have folders. `led_at_once` returns those that have their
    first leader from the beginning.
    """

    brokers: Sequence[int]
    racks: Mapping[int, str] | None
    draw: Callable[[int], int]
    check_folders: Callable[[str, range], None]
    led_at_once: Callable[[Collection[int]], Collection[int]]


def entity_of(topic: str) -> ConfigEntity:
    """Return a topic as the owner of its settings."""
    return ConfigEntity(EntityKind.TOPIC, topic)


def known(image: ClusterImage, name: str) -> TopicImage:
    """Return a topic. Raises UnknownTopicError."""
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicError(f"there is no topic {name}")
    return topic


# ---- creating


def place(
    image: ClusterImage,
    name: str,
    placement: Placement,
    *,
    numbers: tuple[int | None, int | None],
    defaults: tuple[int, int],
    assignments: Mapping[int, Sequence[int]] | None,
) -> dict[int, list[int]]:
    """Return the brokers of each partition of a new topic.

    `numbers` of partitions and replicas are given, or `assignments`; None stands for a default. Raises
    TopicExistsError, InvalidTopicError, InvalidPartitionsError, InvalidReplicationFactorError,
    InvalidReplicaAssignmentError, InvalidRequestError.
    """
    if name in image.topics:
        raise TopicExistsError(f"topic {name} already exists")
    factor = 0
    if assignments:
        if numbers != (None, None):
            raise InvalidRequestError("either brokers of each partition, or numbers of partitions and replicas")
        count = len(assignments)
    else:
        count, factor = (
            default if number is None else number for number, default in zip(numbers, defaults, strict=True)
        )
        if not 1 <= count <= MOST_PARTITIONS:
            raise InvalidPartitionsError(f"expected 1 to {MOST_PARTITIONS} partitions, found {count}")
        check_factor(factor, placement.brokers)
    _check_name(name, image.topics)
    placement.check_folders(name, range(count))
    if assignments:
        check_assignments(assignments, range(count), placement.brokers)
        return {partition: list(brokers) for partition, brokers in assignments.items()}
    brokers = placement.brokers
    start, shift = placement.draw(len(brokers)), placement.draw(len(brokers))
    return assign(range(count), factor, brokers, start=start, shift=shift, racks=placement.racks)


def _check_name(name: str, others: Iterable[str]) -> None:
    """Raise InvalidTopicError or InvalidRequestError unless a topic of this name may exist beside the others."""
    check_new_topic(name)
    alike = name.replace(".", "_")
    for other in others:
        if other.replace(".", "_") == alike:
            raise InvalidTopicError(f"topic {name} and topic {other} collide: their metrics would have the same name")


def creation(
    image: ClusterImage,
    name: str,
    topic_id: uuid.UUID | None,
    settings: Settings,
    replicas: Mapping[int, Sequence[int]],
    led: Collection[int] = (),
) -> list[ProposedChange]:
    """Return the changes that create a topic. Partitions in `led` have their first leader from the beginning."""
    partitions = tuple(
        _new_partition(image, replicas[index], has_leader=index in led) for index in range(len(replicas))
    )
    return [SettingsChanged(entity_of(name), settings), TopicCreated(TopicImage(name, topic_id, partitions))]


def _new_partition(image: ClusterImage, replicas: Sequence[int], *, has_leader: bool) -> PartitionImage:
    state = KnownState(first_state(image, replicas), NEW_NODE + 1) if has_leader else None
    return PartitionImage(tuple(replicas), known=state)


def first_state(image: ClusterImage, replicas: Sequence[int]) -> PartitionState:
    """Return the first state of a partition: led by the first of its brokers, all in sync."""
    return PartitionState(replicas[0], 0, tuple(replicas), max(image.controller_epoch, 0))


def missing_ids(image: ClusterImage, new_id: Callable[[], uuid.UUID]) -> list[ProposedChange]:
    """Return the changes that give topics from before 2.8 an id."""
    return [TopicIdAssigned(name, new_id()) for name, topic in image.topics.items() if topic.id is None]


# ---- growing


def growth(
    image: ClusterImage,
    name: str,
    count: int,
    placement: Placement,
    assignments: Sequence[Sequence[int]] | None,
) -> list[ProposedChange]:
    """Return the change that increases the number of partitions of a topic to `count`.

    `assignments` are the brokers of each new one. Without them leaders rotate from that of the first partition on, as
    in Kafka. Raises UnknownTopicError, InvalidPartitionsError, InvalidTopicError, InvalidReplicaAssignmentError.
    """
    partitions = known(image, name).partitions
    if count <= len(partitions):
        raise InvalidPartitionsError(f"topic {name} has {len(partitions)} partitions: expected more, found {count}")
    if count > MOST_PARTITIONS:
        raise InvalidPartitionsError(f"expected up to {MOST_PARTITIONS} partitions, found {count}")
    new = range(len(partitions), count)
    placement.check_folders(name, new)
    brokers = placement.brokers
    if assignments is not None:
        if len(assignments) != len(new):
            raise InvalidReplicaAssignmentError(f"expected brokers of {len(new)} partitions, found {len(assignments)}")
        replicas = dict(zip(new, map(list, assignments), strict=True))
        check_assignments(replicas, new, brokers)
    else:
        first = partitions[0].replicas
        check_factor(len(first), brokers)
        start = next((at for at, each in enumerate(brokers) if each >= first[0]), 0)
        shift = start - (len(partitions) - 1) // len(brokers)  # Kafka counts the rounds of new partitions alone
        replicas = assign(new, len(first), brokers, start=start, shift=shift, racks=placement.racks)
    led = placement.led_at_once(new)
    made = tuple(_new_partition(image, replicas[index], has_leader=index in led) for index in new)
    return [PartitionsCreated(name, made)]


# ---- leader epochs


def leader_epoch(image: ClusterImage, key: TopicPartition) -> int:
    """Return the leader epoch of a partition, 0 if it has no state yet. Raises UnknownTopicError."""
    partition = _partition(image, key)
    return 0 if partition.known is None else partition.known.state.leader_epoch


def own_order(image: ClusterImage, key: TopicPartition, broker_id: int) -> PartitionOrder:
    """Return the order by which a broker that is a cluster by itself leads a partition. Raises UnknownTopicError."""
    alone = (broker_id,)
    return PartitionOrder(key, PartitionState(broker_id, leader_epoch(image, key), alone, 0), 0, alone)


def later_epoch(image: ClusterImage, key: TopicPartition, epoch: int) -> list[ProposedChange]:
    """Return the change that raises a partition's leader epoch, none if it is as late. Raises UnknownTopicError."""
    partition = _partition(image, key)
    if epoch <= leader_epoch(image, key):
        return []
    known = partition.known or KnownState(first_state(image, partition.replicas), NEW_NODE)  # adopted without a log
    return [PartitionStateChanged(key, KnownState(replace(known.state, leader_epoch=epoch), known.version + 1))]


def _partition(image: ClusterImage, key: TopicPartition) -> PartitionImage:
    partition = image.partition(key)
    if partition is None:
        known(image, key.topic)
        raise UnknownTopicError(f"topic {key.topic} has no partition {key.partition}")
    return partition


# ---- deleting


def removal(image: ClusterImage, name: str) -> list[ProposedChange]:
    """Return the changes that remove a topic, its settings, and the request to delete it."""
    changes = list[ProposedChange]()
    if name in image.topics:
        changes.append(TopicDeleted(name))
    return [*changes, SettingsChanged(entity_of(name), None), DeletionEnded(name)]
