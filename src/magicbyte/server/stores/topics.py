"""The topics of the cluster: their partitions, settings and logs.

The metadata tree is authoritative, and durable before a change takes effect; logs are created at their first use, so
that a crash in between leaves nothing to repair. A broker that is a cluster by itself does the controller's work here:
it creates partition states, and deletes topics. In a cluster the controller does, and notifies the brokers.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    InvalidTopicError,
    LogDirectoryOfflineError,
    NodeExistsError,
    NoNodeError,
    TopicExistsError,
)
from magicbyte.engine.internal_topics import INTERNAL
from magicbyte.engine.log.files.checkpoints import PARTITION_METADATA, parse_partition_metadata
from magicbyte.engine.log.files.directory import parse_file
from magicbyte.engine.log.files.filesystem import exists
from magicbyte.engine.log.files.names import MOST_PARTITIONS, check_new_topic
from magicbyte.engine.ports import SetNode, TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.releases import TOPIC_IDS, line_of
from magicbyte.engine.replication.assignment import assign, check_assignments, check_factor
from magicbyte.server.metadata import layout, readable
from magicbyte.server.metadata.layout import TopicNode
from magicbyte.server.settings import topic_config
from magicbyte.server.settings.kept_format import warn_beyond
from magicbyte.server.stores import topic_nodes
from magicbyte.server.stores.cluster import config_change_notification
from magicbyte.server.stores.topic_table import ServedTopic, TopicTable

if TYPE_CHECKING:
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.ports import Clock, MetadataStore
    from magicbyte.server.settings.config import BrokerConfig

logs = logger(__name__)

_ATTEMPTS: Final = 5  # to create the nodes of a topic while other brokers create and delete the same ones
_MOST_SHOWN: Final = 1000  # characters of ignored settings


class Topics(TopicTable):
    """All topics, by name. One thread at a time changes them; any may read. `new_id` returns unique ids.

    `brokers` returns the live brokers of a cluster; None: there is no cluster. `racks` returns theirs, None unless all
    have one. `draw` returns a number below the given one. `adopted` are topics that the tree did not have, but whose
    logs were in the directory, for instance another broker's. Nothing of them is deleted until their settings are
    changed.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        config: BrokerConfig,
        logs: LogDirectory,
        clock: Clock,
        new_id: Callable[[], uuid.UUID],
        *,
        brokers: Callable[[], Sequence[int]] | None = None,
        racks: Callable[[], Mapping[int, str] | None] = lambda: None,
        draw: Callable[[int], int] = lambda _most: 0,
    ) -> None:
        super().__init__(config, logs)
        self._metadata, self._clock = metadata, clock
        self._new_id, self._draw, self._racks, self._is_alone = new_id, draw, racks, brokers is None
        self._brokers: Callable[[], Sequence[int]] = brokers or (lambda: (config.broker_id,))
        self.adopted: list[str] = []
        if not self._is_alone:
            return
        for name in topic_nodes.children(metadata, layout.TOPICS):
            self._keep(self._load(name))
        for name in topic_nodes.children(metadata, layout.DELETE_TOPICS):
            for log in self.take_away([key for key in self._logs.logs if key.topic == name]):
                log.release()
            self.finish_delete(name)
        self.adopted = self._adopt()

    def existing_log(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the log of a partition, None if it does not exist yet. Raises UnknownTopicError,
        LogDirectoryOfflineError.
        """
        self._partition(topic, partition)
        key = TopicPartition(topic, partition)
        if key in self._logs.offline:
            raise LogDirectoryOfflineError(f"{key} is offline: {self._logs.offline[key].why}")
        return self._logs.logs.get(key)

    def offline_of(self, topic: str) -> set[int]:
        """Return the partitions whose log, or anything with its name, cannot be opened."""
        return {key.partition for key in self._logs.offline if key.topic == topic}

    def offline(self) -> list[TopicPartition]:
        """Return the partitions of topics that are offline."""
        return [
            key
            for key in self._logs.offline
            if (topic := self._topics.get(key.topic)) is not None and key.partition < topic.partitions
        ]

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Return the log of a partition, created if needed. Raises UnknownTopicError, LogDirectoryOfflineError."""
        found = self._partition(topic, partition)
        key = TopicPartition(topic, partition)
        log = self._logs.logs.get(key)
        if log is None:
            known_ids = self._config.inter_broker_protocol_version >= TOPIC_IDS
            topic_id = found.id if known_ids else None
            log = self._logs.create(key, monotonic_ms=self._clock.monotonic_ms(), topic_id=topic_id)
        return log

    # ---- creating

    def create(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> ServedTopic:
        """Create a topic; return it. None stands for the broker's default.

        `assignments` are the brokers of each partition, instead of the two numbers. `validate_only` only checks whether
        the topic could be created. Raises TopicExistsError, InvalidTopicError, InvalidPartitionsError,
        InvalidReplicationFactorError, InvalidReplicaAssignmentError, InvalidConfigError, InvalidRequestError.
        """
        if name in self._topics:
            raise TopicExistsError(f"topic {name} already exists")
        if assignments:
            if partitions is not None or replication_factor is not None:
                raise InvalidRequestError("either brokers of each partition, or numbers of partitions and replicas")
            count, factor = len(assignments), 0
        else:
            count = self._config.num_partitions if partitions is None else partitions
            if not 1 <= count <= MOST_PARTITIONS:
                raise InvalidPartitionsError(f"expected 1 to {MOST_PARTITIONS} partitions, found {count}")
            factor = self._config.default_replication_factor if replication_factor is None else replication_factor
            check_factor(factor, self._brokers())
        _check_new(name, self._topics)
        self._check_folders(name, range(count))
        if assignments:
            check_assignments(assignments, range(count), self._brokers())
        replicas = _lists(assignments) if assignments else self._assign(range(count), factor)
        given = topic_config.of_new_topic(configs or {}, self._config)
        own = readable.topic_settings(given, self._config.tree_protocol)
        topic = ServedTopic(name, self._new_id(), count, own, topic_config.resolve(own, self._config), (0,) * count)
        if not validate_only:
            self._create_nodes(topic, replicas, replicas)
            if self._is_alone:
                self._keep(topic)
            _warn_beyond(topic, self._config)
        return topic

    def _assign(self, partitions: range, factor: int) -> dict[int, list[int]]:
        brokers = self._brokers()
        start, shift = self._draw(len(brokers)), self._draw(len(brokers))
        return assign(partitions, factor, brokers, start=start, shift=shift, racks=self._racks())

    def _create_nodes(self, topic: ServedTopic, replicas: Mapping[int, list[int]], partitions: Iterable[int]) -> None:
        """Create a topic in the tree; without a cluster, also the states of these partitions.

        Raises TopicExistsError if another broker has just created it.
        """
        has_ids = self._is_alone or line_of(self._config.inter_broker_protocol_version) >= TOPIC_IDS
        topic_id = topic.id if has_ids else None
        for _ in range(_ATTEMPTS):
            changes = topic_nodes.creation(self._metadata, topic.name, topic_id, topic.configs, replicas)
            if self._is_alone:
                some = {each: replicas[each] for each in partitions}
                changes += topic_nodes.first_states(self._metadata, topic.name, some)
            # Also the node of its settings may be made or deleted now, by another creation or the end of a deletion.
            with contextlib.suppress(NodeExistsError, NoNodeError):
                self._metadata.transaction(changes)
                return
            if self._metadata.exists(layout.topic_path(topic.name)) is not None:
                break
        raise TopicExistsError(f"topic {topic.name} already exists")

    def _check_folders(self, name: str, partitions: range) -> None:
        """Raise InvalidTopicError if something in the log directory has the name of a new partition.

        In a cluster the assigned brokers find that out: here may be the folder of a topic that is still being deleted.
        """
        if not self._is_alone:
            return
        taken = self._logs.taken_names()
        for key in (TopicPartition(name, partition) for partition in partitions):
            if str(key) in taken:
                why = (
                    self._logs.offline[key].why
                    if key in self._logs.offline
                    else "created outside the broker since its start"
                )
                raise InvalidTopicError(
                    f"partition {key} cannot be created: the log directory has something of that name: {why}"
                )

    def add_partitions(
        self,
        name: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> ServedTopic:
        """Increase the number of partitions of a topic to `count`; return it.

        `assignments` are the brokers of each new one. Without them leaders rotate from that of the first partition on,
        as in Kafka. Raises UnknownTopicError, InvalidPartitionsError, InvalidReplicaAssignmentError.
        """
        topic = self.known(name)
        if count <= topic.partitions:
            raise InvalidPartitionsError(
                f"topic {name} has {topic.partitions} partitions: expected more, found {count}"
            )
        if count > MOST_PARTITIONS:
            raise InvalidPartitionsError(f"expected up to {MOST_PARTITIONS} partitions, found {count}")
        new = range(topic.partitions, count)
        self._check_folders(name, new)
        if assignments is not None:
            if len(assignments) != len(new):
                raise InvalidReplicaAssignmentError(
                    f"expected brokers of {len(new)} partitions, found {len(assignments)}"
                )
            check_assignments(dict(zip(new, assignments, strict=True)), new, self._brokers())
            replicas = _lists(dict(zip(new, assignments, strict=True)))
        else:
            first, brokers = topic_nodes.first_replicas(self._metadata, name), self._brokers()
            check_factor(len(first), brokers)
            start = next((at for at, each in enumerate(brokers) if each >= first[0]), 0)
            shift = start - (topic.partitions - 1) // len(brokers)  # Kafka counts the rounds of new partitions alone
            replicas = assign(new, len(first), brokers, start=start, shift=shift, racks=self._racks())
        grown = replace(topic, partitions=count, leader_epochs=(*topic.leader_epochs, *[0] * len(new)))
        if not validate_only:
            changes = topic_nodes.growth(self._metadata, name, replicas)
            if self._is_alone:
                changes += topic_nodes.states(self._metadata, name, replicas)
            self._metadata.transaction(changes)
            if self._is_alone:
                self._keep(grown)
        return grown

    def raise_leader_epoch(self, name: str, partition: int, epoch: int) -> None:
        """Raise a partition's leader epoch to that of records appended unchanged. Raises UnknownTopicError."""
        topic = self._partition(name, partition)
        if epoch <= topic.leader_epochs[partition]:
            return
        path = layout.state_path(name, partition)
        if self._metadata.exists(path) is None:  # of an adopted topic, without a log until now
            replicas = assign([partition], 1, self._brokers())
            self._metadata.transaction(topic_nodes.states(self._metadata, name, replicas))
        found = self._metadata.get(path)
        state = replace(layout.load_state(path, found.data), leader_epoch=epoch)
        self._metadata.transaction([SetNode(path, layout.dump_state(state), found.version)])
        epochs = list(topic.leader_epochs)
        epochs[partition] = epoch
        self._keep(replace(topic, leader_epochs=tuple(epochs)))

    # ---- deleting

    def begin_delete(self, name: str) -> None:
        """Mark a topic for deletion; without a cluster, forget it. Raises UnknownTopicError.

        From here on a restart continues the deletion. In a cluster the controller does all of it; alone, `take_away`
        and `finish_delete` follow.
        """
        self.known(name)
        path = f"{layout.DELETE_TOPICS}/{name}"
        if not self._is_alone:
            with contextlib.suppress(NodeExistsError):  # the deletion has begun already
                self._metadata.create(path, parents=True)
            return
        self._metadata.create(path, parents=True)
        self.forget(name)

    def take_away(self, keys: Iterable[TopicPartition]) -> list[PartitionLog]:
        """Delete the logs of partitions; return them, to be released when unused. Their files are deleted later."""
        there = [key for key in keys if key in self._logs.logs]
        return self._logs.take_away(there, monotonic_ms=self._clock.monotonic_ms())

    def finish_delete(self, name: str) -> None:
        """Delete the logs of a topic that are offline, its nodes and the mark of its deletion."""
        self.forget(name)
        self._logs.take_away_offline(name, monotonic_ms=self._clock.monotonic_ms())
        self._metadata.transaction(topic_nodes.removal(self._metadata, name))

    # ---- settings

    def alter(self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False) -> ServedTopic:
        """Replace the own settings of a topic; return it. They apply immediately.

        Raises UnknownTopicError, InvalidConfigError.
        """
        topic = self.known(name)
        own = readable.topic_settings(topic_config.check_overrides(configs), self._config.tree_protocol)
        altered = replace(topic, configs=own, config=topic_config.resolve(own, self._config))
        if altered.config.log.dialect is not topic.config.log.dialect:
            raise InvalidConfigError(
                f"topic {name}: {topic_config.FORMAT} cannot be switched to or from enriched for an existing topic"
            )
        if not validate_only:
            self._metadata.transaction(
                [
                    topic_nodes.settings_change(self._metadata, "topics", name, own),
                    *config_change_notification(
                        self._metadata, "topics", name, self._clock.now_ms(), self._config.tree_protocol
                    ),
                ]
            )
            self._keep(altered)
            _warn_beyond(altered, self._config)
        return altered

    # ---- synchronizing

    def refresh(self, names: Collection[str]) -> None:
        """Read topics from the tree: new ones, and those whose partitions or settings have changed.

        Unknown names are ignored. Raises MetadataError.
        """
        wanted = sorted(names)
        nodes = self._metadata.get_many([layout.topic_path(each) for each in wanted])
        settings = self._metadata.get_many([layout.config_path("topics", each) for each in wanted])
        for name, node, own_node in zip(wanted, nodes, settings, strict=True):
            if node is None:
                continue
            found = TopicNode.load(layout.topic_path(name), node.data)
            path = layout.config_path("topics", name)
            own = self._usable(name, {} if own_node is None else layout.load_config(path, own_node.data))
            config = topic_config.resolve(own, self._config)
            count = len(found.replicas)
            self._keep(ServedTopic(name, found.topic_id or NULL_UUID, count, own, config, (0,) * count))

    def _load(self, name: str) -> ServedTopic:
        path = layout.topic_path(name)
        found = self._metadata.get(path)
        node = TopicNode.load(path, found.data)
        if node.topic_id is None:  # from before 2.8
            node = TopicNode(node.replicas, self._new_id())
            self._metadata.set(path, node.dump(), found.version)
        assert node.topic_id is not None
        own = self._usable(name, topic_nodes.settings_of(self._metadata, "topics", name))
        epochs = tuple(topic_nodes.leader_epoch(self._metadata, name, partition) for partition in node.replicas)
        return ServedTopic(
            name, node.topic_id, len(epochs), own, topic_config.resolve(own, self._config), epochs
        )  # fmt: skip

    def _usable(self, name: str, stored: Mapping[str, str]) -> dict[str, str]:
        """Return a topic's settings from the tree, without invalid ones: Kafka may have stored them."""
        own = topic_config.usable(stored, self._config)
        if own != stored:
            ignored = ", ".join(f"{key}={text!r}" for key, text in stored.items() if own.get(key) != text)
            logs.error("topic %s: settings with an invalid one are ignored, and until it is altered no record is "
                       "deleted or compacted: %s", name, ignored[:_MOST_SHOWN])  # fmt: skip
        return own

    def _adopt(self) -> list[str]:
        """Add topics to the tree whose logs exist without it; return their names."""
        partitions_of: dict[str, list[int]] = {}
        for key in (*self._logs.logs, *(key for key, each in self._logs.offline.items() if each.has_log)):
            if key.topic not in self._topics:
                partitions_of.setdefault(key.topic, []).append(key.partition)
        for name, partitions in partitions_of.items():
            count = max(partitions) + 1
            logs = [log for key, log in self._logs.logs.items() if key.topic == name]
            stored = topic_nodes.settings_of(self._metadata, "topics", name)
            own = self._usable(name, stored) or _settings_of_adopted(name, logs)
            config = topic_config.resolve(own, self._config)
            topic = ServedTopic(name, self._id_in_folder(name), count, own, config, (0,) * count)
            replicas = assign(range(count), 1, self._brokers())
            self._create_nodes(topic, replicas, partitions)  # a state for each folder
            self._keep(topic)
            for partition in partitions:
                self._go_on_with_epoch(name, partition)
        return sorted(partitions_of)

    def _go_on_with_epoch(self, name: str, partition: int) -> None:
        """Raise the leader epoch to that of the log's last batches: clients reject earlier ones than they have seen."""
        log = self._logs.logs.get(TopicPartition(name, partition))
        if log is not None and log.epochs.entries:
            self.raise_leader_epoch(name, partition, log.epochs.entries[-1].epoch)

    def _id_in_folder(self, name: str) -> uuid.UUID:
        for key, log in self._logs.logs.items():
            path = f"{log.folder}/{PARTITION_METADATA}"
            if key.topic == name and exists(self._logs.files, path):
                return parse_file(self._logs.files, path, parse_partition_metadata).topic_id
        return self._new_id()


def _check_new(name: str, others: Iterable[str]) -> None:
    """Raise InvalidTopicError or InvalidRequestError unless a topic of this name may exist beside the others."""
    check_new_topic(name)
    alike = name.replace(".", "_")
    for other in others:
        if other.replace(".", "_") == alike:
            raise InvalidTopicError(f"topic {name} and topic {other} collide: their metrics would have the same name")


def _lists(assignments: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    return {partition: list(brokers) for partition, brokers in assignments.items()}


def _warn_beyond(topic: ServedTopic, config: BrokerConfig) -> None:
    if topic_config.FORMAT in topic.configs:
        warn_beyond(config, f"topic {topic.name}", topic.config.append.format)


def _settings_of_adopted(name: str, logs: Iterable[PartitionLog]) -> dict[str, str]:
    """Return the settings of a topic known only from its logs: nothing of it is deleted."""
    own = {"cleanup.policy": "compact"} if name in INTERNAL else dict(topic_config.KEEPS_ALL)
    if any(each.config.dialect is Dialect.ENRICHED for each in logs):
        own[topic_config.FORMAT] = Format.ENRICHED.value
    return own
