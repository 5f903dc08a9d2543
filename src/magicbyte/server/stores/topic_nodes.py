"""Read topics from the metadata tree, and build the changes that create, alter and delete them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from magicbyte.engine.internal_topics import INTERNAL
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.files.names import MOST_PARTITIONS
from magicbyte.engine.ports import CreateNode, DeleteNode, NodeChange, SetNode, TopicPartition
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.replication.state import PartitionState
from magicbyte.server.metadata import layout
from magicbyte.server.metadata.layout import TopicNode
from magicbyte.server.settings import topic_config

if TYPE_CHECKING:
    import uuid

    from magicbyte.engine.log.live.config import LogConfig
    from magicbyte.engine.ports import MetadataStore, Node
    from magicbyte.server.settings.config import BrokerConfig

"""Topics of Kafka's own."""


def creation(
    metadata: MetadataStore,
    name: str,
    topic_id: uuid.UUID | None,
    configs: Mapping[str, str],
    replicas: Mapping[int, list[int]],
) -> list[NodeChange]:
    """Return the changes that create a topic: its settings, and its partitions' brokers."""
    return [
        settings_change(metadata, "topics", name, configs),
        CreateNode(layout.topic_path(name), TopicNode(dict(replicas), topic_id).dump()),
    ]


def first_states(metadata: MetadataStore, name: str, replicas: Mapping[int, Sequence[int]]) -> list[NodeChange]:
    """Return the changes that create the partition states of a new topic."""
    return [CreateNode(layout.partitions_path(name)), *states(metadata, name, replicas)]


def states(metadata: MetadataStore, name: str, replicas: Mapping[int, Sequence[int]]) -> list[NodeChange]:
    """Return the changes that create new partitions' states, each led by the first of its brokers, all in sync."""
    node = metadata.exists(layout.CONTROLLER_EPOCH)
    epoch = 0 if node is None else int(node.data)
    changes: list[NodeChange] = []
    for partition, brokers in replicas.items():
        path = layout.state_path(name, partition)
        state = PartitionState(brokers[0], 0, tuple(brokers), epoch)
        changes += [CreateNode(path.rpartition("/")[0]), CreateNode(path, layout.dump_state(state))]
    return changes


def growth(metadata: MetadataStore, name: str, replicas: Mapping[int, list[int]]) -> list[NodeChange]:
    """Return the changes that add partitions to a topic, without states yet."""
    path = layout.topic_path(name)
    found = metadata.get(path)
    node = TopicNode.load(path, found.data)
    node = replace(node, replicas={**node.replicas, **replicas})
    return [SetNode(path, node.dump(), found.version)]


def first_replicas(metadata: MetadataStore, name: str) -> list[int]:
    """Return the brokers of a topic's first partition."""
    path = layout.topic_path(name)
    return list(TopicNode.load(path, metadata.get(path).data).replicas[0])


def removal(metadata: MetadataStore, name: str) -> list[NodeChange]:
    """Return the changes that delete a topic, its settings, and the deletion request."""
    gone = [layout.topic_path(name), layout.config_path("topics", name), f"{layout.DELETE_TOPICS}/{name}"]
    return [DeleteNode(path) for top in gone for path in _below(metadata, top)]


def _below(metadata: MetadataStore, path: str) -> list[str]:
    """Return a node and all below it, children first; none if it does not exist."""
    found, level = list[str](), [path]
    while level:
        below = metadata.children_many(level)
        there = [(each, names) for each, names in zip(level, below, strict=True) if names is not None]
        found += [each for each, _ in there]
        level = [f"{each}/{name}" for each, names in there for name in names]
    return found[::-1]


def children(metadata: MetadataStore, path: str) -> list[str]:
    """Return the names below a node, none if it does not exist."""
    return [] if metadata.exists(path) is None else metadata.children(path)


def settings_change(metadata: MetadataStore, kind: str, name: str, configs: Mapping[str, str]) -> NodeChange:
    """Return the change that replaces the own settings of a topic or broker."""
    path, data = layout.config_path(kind, name), layout.dump_config(configs)
    return CreateNode(path, data) if metadata.exists(path) is None else SetNode(path, data)


def leader_epoch(metadata: MetadataStore, name: str, partition: int) -> int:
    """Return the leader epoch of a partition, 0 if the tree has no state of it."""
    path = layout.state_path(name, partition)
    node = metadata.exists(path)
    return 0 if node is None else layout.load_state(path, node.data).leader_epoch


def log_config_of(
    metadata: MetadataStore,
    config: BrokerConfig,
    rules: IndexRules = LATEST_RULES,
    dialect_of: Callable[[TopicPartition], Dialect] = lambda _key: Dialect.KAFKA,
) -> Callable[[TopicPartition], LogConfig]:
    """Return the function that configures the logs of a directory when they are opened or created.

    `dialect_of`: the dialect in a log's folder, used if the tree has no settings of its topic.
    """

    def config_of(key: TopicPartition) -> LogConfig:
        own = settings_of(metadata, "topics", key.topic)
        known = metadata.exists(layout.config_path("topics", key.topic)) is not None
        if not known and dialect_of(key) is Dialect.ENRICHED:
            own[topic_config.FORMAT] = Format.ENRICHED.value
        return topic_config.resolve(topic_config.usable(own, config), config, rules).log

    return config_of


def keep_all(metadata: MetadataStore) -> None:
    """Give topics whose settings were lost settings with which nothing is deleted."""
    for name in children(metadata, layout.TOPICS):
        path = layout.config_path("topics", name)
        if metadata.exists(path) is None:
            own = {"cleanup.policy": "compact"} if name in INTERNAL else topic_config.KEEPS_ALL
            metadata.create(path, layout.dump_config(own), parents=True)


def refused_of(metadata: MetadataStore) -> Callable[[Collection[TopicPartition]], Mapping[TopicPartition, str]]:
    """Return the function that finds folders of a directory without a partition, and without one to adopt."""

    def refused(keys: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        counts = {name: _count_of(metadata, name) for name in {key.topic for key in keys}}
        reasons = {}
        for key in keys:
            count = counts[key.topic]
            if count is not None and key.partition >= count:
                reasons[key] = f"topic {key.topic} has {count} partitions, 0 to {count - 1}: move the folder away"
            elif count is None and key.partition >= MOST_PARTITIONS:
                reasons[key] = (
                    f"expected up to {MOST_PARTITIONS} partitions of a topic: it is not adopted. `magicbyte cat` "
                    "reads it; move the folder away"
                )
        return reasons

    return refused


def _count_of(metadata: MetadataStore, name: str) -> int | None:
    """Return the number of a topic's partitions in the tree, None for an unknown one."""
    path = layout.topic_path(name)
    node = metadata.exists(path)
    return None if node is None else len(TopicNode.load(path, node.data).replicas)


def settings_of(metadata: MetadataStore, kind: str, name: str) -> dict[str, str]:
    """Return the settings in the tree of a topic (`topics`), broker (`brokers`), user or client.

    A node without data exists only as a parent of others.
    """
    path = layout.config_path(kind, name)
    return settings_in(path, metadata.exists(path))


def settings_in(path: str, node: Node | None) -> dict[str, str]:
    """Return the settings in a node, which may be missing."""
    return {} if node is None or not node.data else layout.load_config(path, node.data)
