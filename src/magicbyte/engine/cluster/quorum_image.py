"""The image of a cluster as a KRaft quorum has it, for a node that takes over its partitions.

A tree of nodes lacks what a quorum needs: ids of topics and ACLs, directories, levels. It has what no quorum takes:
requests of old tools, registrations of its brokers. Source: Kafka's MetadataImage, and how 3.9 to 4.4 open a directory
that they did not write.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from magicbyte.engine.cluster.brokers import QuorumRegistration, RegisteredBroker, Registration
from magicbyte.engine.cluster.features import METADATA_VERSION
from magicbyte.engine.cluster.image import (
    AclBinding,
    ClusterImage,
    EntityKind,
    PartitionImage,
    QuorumPartition,
    TopicImage,
)
from magicbyte.engine.errors import InvalidRequestError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.reassignment import NO_MOVE
from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH

UNASSIGNED: Final = uuid.UUID(int=0)
"""The directory of a replica that no broker has placed: its broker places it at its start."""


class TakingOver(NamedTuple):
    """How a node takes over a cluster.

    `levels`: of features, None to keep those of a quorum. `is_alone`: the node becomes the only replica of each
    partition, and other nodes are forgotten. `epochs`: of the partitions whose logs it has, the latest leader epoch in
    them (`NO_EPOCH` for none). `topic_ids`: those in the folders of its logs. `not_kafkas`: settings of topics that
    Kafka does not have. `new_id`: draws an id.
    """

    node_id: int
    directory_id: uuid.UUID
    levels: Mapping[str, int] | None
    new_id: Callable[[], uuid.UUID]
    is_alone: bool = False
    epochs: Mapping[TopicPartition, int] = {}
    topic_ids: Mapping[str, uuid.UUID] = {}
    not_kafkas: Collection[str] = ()


def quorum_image(image: ClusterImage, taking: TakingOver) -> tuple[ClusterImage, list[str]]:
    """Return the image of the quorum, and the parts that it does not have, in words.

    An image of a quorum is the same, unless the node is alone, has logs, or gets other levels: then what these change
    is different. Raises InvalidRequestError for a tree that cannot be read as a whole, and a folder's topic id that is
    not that of its topic.
    """
    if image.damage:
        part = next(iter(image.damage))
        raise InvalidRequestError(f"cannot be read: {part.section.value}: {part.name}")
    left_out = [f"topic {name}: it was being deleted" for name in sorted(image.deletions & image.topics.keys())]
    topics = {name: _topic(each, taking) for name, each in image.topics.items() if name not in image.deletions}
    ids = image.acl_ids or {
        taking.new_id(): AclBinding(resource, entry) for resource, entries in image.acls.items() for entry in entries
    }
    settings = {}
    for entity, each in image.settings.items():
        is_topic = entity.kind is EntityKind.TOPIC
        kept = {name: value for name, value in each.items() if not is_topic or name not in taking.not_kafkas}
        if is_topic and entity.name not in topics:
            continue
        left_out += [f"settings of topic {entity.name}: {name}" for name in sorted(each.keys() - kept.keys())]
        if taking.is_alone and entity.kind is EntityKind.BROKER and entity.name not in (None, str(taking.node_id)):
            left_out.append(f"settings of broker {entity.name}")
        elif kept:
            settings[entity] = kept
    return ClusterImage(
        position=image.position,
        brokers=_brokers(image, taking),
        topics=topics,
        topic_names={each.id: name for name, each in topics.items() if each.id is not None},
        settings=settings,
        quotas=image.quotas,
        connection_rates=image.connection_rates,
        acls=image.acls,
        scram_users=image.scram_users,
        features=_features(image, taking),
        next_producer_id=image.next_producer_id,
        controllers={} if taking.is_alone else image.controllers,
        acl_ids=ids,
        tokens=image.tokens,
        zookeeper_migration=image.zookeeper_migration,
    ), left_out


def _brokers(image: ClusterImage, taking: TakingOver) -> Mapping[int, RegisteredBroker]:
    """Return the registered brokers; of a node that is alone a fenced one, as after its clean stop.

    Without one, Kafka 4 would take its start for that after an unclean stop, and remove it from each ISR.
    """
    if not taking.is_alone:
        return {number: each for number, each in image.brokers.items() if each.quorum is not None}
    details = QuorumRegistration(taking.new_id(), is_fenced=True, directories=(taking.directory_id,))
    return {taking.node_id: RegisteredBroker(taking.node_id, 0, Registration((), None), details)}


def _features(image: ClusterImage, taking: TakingOver) -> Mapping[str, int]:
    if taking.levels is not None:
        return taking.levels
    if METADATA_VERSION not in image.features:
        raise InvalidRequestError(f"no level of {METADATA_VERSION}: expected a release or a level for the directory")
    return image.features


def _topic(topic: TopicImage, taking: TakingOver) -> TopicImage:
    in_folders = taking.topic_ids.get(topic.name)
    if None not in (topic.id, in_folders) and topic.id != in_folders:
        raise InvalidRequestError(f"topic {topic.name}: expected the id {topic.id} in its folders, found {in_folders}")
    partitions = tuple(
        _partition(each, TopicPartition(topic.name, number), taking) for number, each in enumerate(topic.partitions)
    )
    return TopicImage(topic.name, topic.id or in_folders or taking.new_id(), partitions)


def _partition(partition: PartitionImage, key: TopicPartition, taking: TakingOver) -> PartitionImage:
    """Return a partition with a state, with this node's directory if its log is there, or it is alone."""
    replicas, move = partition.replicas, partition.move
    known = partition.known or KnownState(PartitionState(replicas[0], 0, replicas, NO_EPOCH), 0)
    state, details = known.state, partition.quorum or QuorumPartition((UNASSIGNED,) * len(replicas))
    if taking.is_alone:
        replicas, move = (taking.node_id,), NO_MOVE
        state = replace(state, leader=NO_BROKER, isr=replicas)  # as after a clean stop: elected when it is unfenced
        details = QuorumPartition((taking.directory_id,))
    elif key in taking.epochs:
        places = zip(replicas, details.directories, strict=True)
        details = details._replace(
            directories=tuple(taking.directory_id if node == taking.node_id else at for node, at in places)
        )
    epoch = max(state.leader_epoch, taking.epochs.get(key, NO_EPOCH), 0)
    state = replace(state, leader_epoch=epoch, controller_epoch=NO_EPOCH)
    return PartitionImage(replicas, move, KnownState(state, max(known.version, 0)), details)
