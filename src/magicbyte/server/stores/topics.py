"""The topics that a broker serves: their settings in force, and their logs; creating, altering and deleting them.

The store of the cluster is authoritative, and durable before a change takes effect; logs are created at their first
use, so that a crash in between leaves nothing to repair. `topic_control.py` has the part of a controller.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.cluster import topics
from magicbyte.engine.cluster.changes import (
    DamageChanged,
    DeletionEnded,
    DeletionRequested,
    PartitionsCreated,
    SettingsChanged,
    TopicCreated,
    TopicDeleted,
    TopicIdAssigned,
)
from magicbyte.engine.cluster.image import DamagedSection, settings_part
from magicbyte.engine.cluster.store import change
from magicbyte.engine.errors import (
    InvalidConfigError,
    InvalidTopicError,
    LogDirectoryOfflineError,
    MetadataError,
    PolicyViolationError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from magicbyte.engine.internal_topics import COMPACTED, INTERNAL
from magicbyte.engine.log.files.checkpoints import PARTITION_METADATA, parse_partition_metadata
from magicbyte.engine.log.files.directory import parse_file
from magicbyte.engine.log.files.filesystem import exists
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.fields import NULL_UUID, id_text
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.releases import TOPIC_IDS
from magicbyte.engine.replication.assignment import assign
from magicbyte.server.settings import topic_config
from magicbyte.server.settings.kept_format import warn_beyond
from magicbyte.server.stores.topic_logs import stored_settings

if TYPE_CHECKING:
    from magicbyte.engine.cluster.changes import ClusterChange, ProposedChange
    from magicbyte.engine.cluster.image import ClusterImage, TopicImage
    from magicbyte.engine.cluster.store import ClusterStore
    from magicbyte.engine.log.append.rules import AppendRules
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.ports import Clock
    from magicbyte.server.serving.threads import Threads
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.settings.topic_config import TopicConfig
    from magicbyte.server.stores.topic_control import TopicControl

logs = logger(__name__)

_MOST_SHOWN: Final = 1000  # characters of ignored settings
_MOST_RESOLVED: Final = 1000  # different own settings whose resolution is remembered


class ServedTopic(Struct, frozen=True):
    """A topic. `configs` are its own settings; `config` those in force."""

    name: str
    id: uuid.UUID
    partitions: int
    configs: Mapping[str, str]
    config: TopicConfig

    @property
    def is_internal(self) -> bool:
        """Whether it is one of Kafka's internal topics."""
        return self.name in INTERNAL


class Topics:
    """All topics, by name, as the latest image of the cluster has them. Any thread may look them up.

    They are changed on the event loop. `threads` run work on the log directory. `new_id` returns unique ids. `control`
    is who decides about topics. `brokers` returns the live brokers of the cluster, `racks` theirs, None unless all have
    one, and `draw` a number below the given one. `adopted` are topics that the tree did not have, but whose logs were
    in the directory, for instance another broker's. Nothing of them is deleted until their settings are changed.
    """

    def __init__(
        self,
        store: ClusterStore,
        config: BrokerConfig,
        logs: LogDirectory,
        clock: Clock,
        threads: Threads,
        new_id: Callable[[], uuid.UUID],
        *,
        control: TopicControl,
        brokers: Callable[[], Sequence[int]],
        racks: Callable[[], Mapping[int, str] | None] = lambda: None,
        draw: Callable[[int], int] = lambda _most: 0,
    ) -> None:
        """Raises InvalidConfigError for a topic that these settings of the broker do not permit."""
        self._store, self._config, self._logs, self._clock, self._threads = store, config, logs, clock, threads
        self._new_id, self._draw, self._racks, self._brokers = new_id, draw, racks, brokers
        self._control = control
        self._topics: dict[str, ServedTopic] = {}
        self._resolved: dict[frozenset[tuple[str, str]], TopicConfig] = {}
        self.adopted: list[str] = []
        self._is_following = False
        store.subscribe(self._cluster_changed)
        self._is_following = True

    async def finish_pending(self) -> None:
        """Finish what no controller does: give topics ids, complete deletions, and adopt logs without a topic.

        Raises MetadataError, NetworkError, LogDirectoryError.
        """
        store = self._store
        for part, why in store.image.damage.items():
            if part.section in (DamagedSection.TOPIC, DamagedSection.STATE):
                raise MetadataError(part.name, why)
        if ids := topics.missing_ids(store.image, self._new_id):
            await store.propose(ids, store.image)
        for name in sorted(store.image.deletions):
            keys = [key for key in self._logs.logs if key.topic == name]
            for log in await self._threads.run(self.take_away, keys):
                log.release()
            await self.finish_delete(name)
        self.adopted = await self._adopt()

    # ---- look-ups

    @property
    def image(self) -> ClusterImage:
        """The cluster with these topics."""
        return self._store.image

    def names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self._topics)

    def get(self, name: str) -> ServedTopic | None:
        """Return a topic, or None."""
        return self._topics.get(name)

    def partition_count(self, name: str) -> int:
        """Return how many partitions a topic has, 0 for an unknown topic."""
        found = self._topics.get(name)
        return 0 if found is None else found.partitions

    def by_id(self, topic_id: uuid.UUID) -> ServedTopic | None:
        """Return the topic with this id."""
        return self._topics.get(self.name_of(topic_id))

    def name_of(self, topic_id: uuid.UUID) -> str:
        """Return the name of the topic with this id, "" if there is none."""
        return self._store.image.topic_names.get(topic_id, "")

    def known(self, name: str) -> ServedTopic:
        """Return a topic. Raises UnknownTopicError."""
        found = self._topics.get(name)
        if found is None:
            raise UnknownTopicError(f"there is no topic {name}")
        return found

    def known_id(self, topic_id: uuid.UUID) -> ServedTopic:
        """Return the topic with this id. Raises UnknownTopicIdError."""
        found = self.by_id(topic_id)
        if found is None:
            raise UnknownTopicIdError(f"there is no topic with id {id_text(topic_id)}")
        return found

    def check_erasable(self, topic: str) -> None:
        """Raise UnknownTopicError, InvalidTopicError or PolicyViolationError unless its records may be deleted."""
        found = self.known(topic)
        if found.is_internal:
            raise InvalidTopicError(f"requests cannot delete records of {topic}")
        if not found.config.log.delete:
            raise PolicyViolationError(f"topic {topic}: its cleanup.policy is not delete")

    def rules(self, topic: str) -> AppendRules:
        """Return the rules for appends to a topic. Raises UnknownTopicError."""
        return self.known(topic).config.append

    def led_at_once(self, topic: ServedTopic) -> list[tuple[int, int]]:
        """Return the partitions that this broker leads without an order of a controller, with their leader epochs."""
        image = self._store.image
        keys = (TopicPartition(topic.name, index) for index in self._control.led_at_once(range(topic.partitions)))
        return [(key.partition, topics.leader_epoch(image, key)) for key in keys]

    def _partition(self, topic: str, partition: int) -> ServedTopic:
        found = self.known(topic)
        if not 0 <= partition < found.partitions:
            raise UnknownTopicError(f"topic {topic} has no partition {partition}")
        return found

    # ---- logs

    def existing_log(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the log of a partition, None if it does not exist yet. Raises UnknownTopicError,
        LogDirectoryOfflineError.
        """
        self._partition(topic, partition)
        key = TopicPartition(topic, partition)
        if key in self._logs.offline:
            raise LogDirectoryOfflineError(f"{key} is offline: {self._logs.offline[key].why}")
        return self._logs.logs.get(key)

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

    async def create(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> ServedTopic:
        """Create a topic, for a caller that holds `directory`; return it. None stands for the broker's default.

        `assignments` are the brokers of each partition, instead of the two numbers. `validate_only` only checks whether
        the topic could be created. Raises TopicExistsError, InvalidTopicError, InvalidPartitionsError,
        InvalidReplicationFactorError, InvalidReplicaAssignmentError, InvalidConfigError, InvalidRequestError, and as
        `ClusterStore.propose` does.
        """
        config, placement, topic_id = self._config, await self._placement(), self._new_id()
        given = partitions, replication_factor

        decided: ServedTopic

        def decide(image: ClusterImage) -> list[ProposedChange]:
            nonlocal decided
            defaults = config.num_partitions, config.default_replication_factor
            replicas = topics.place(
                image, name, placement, numbers=given, defaults=defaults, assignments=assignments
            )  # fmt: skip
            of_topic = topic_config.of_new_topic(configs or {}, config)
            own = self._store.readable(of_topic)
            made_id = topic_id if self._store.has_topic_ids else None
            decided = ServedTopic(name, made_id or NULL_UUID, len(replicas), own, self._resolve(own))
            return topics.creation(image, name, made_id, own, replicas, placement.led_at_once(replicas.keys()))

        if validate_only:
            decide(self._store.image)
            return decided
        await change(self._store, decide)
        _warn_beyond(decided, config)
        return decided

    async def _placement(self) -> topics.Placement:
        control = self._control
        return topics.Placement(
            self._brokers(), self._racks(), self._draw, await control.folder_check(), control.led_at_once
        )

    async def add_partitions(
        self,
        name: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Increase the number of partitions of a topic to `count`, for a caller that holds `directory`.

        `assignments` are the brokers of each new one. Raises as `topics.growth` and `ClusterStore.propose` do.
        """
        placement = await self._placement()

        def decide(image: ClusterImage) -> list[ProposedChange]:
            self.known(name)
            return topics.growth(image, name, count, placement, assignments)

        if validate_only:
            decide(self._store.image)
        else:
            await change(self._store, decide)

    async def raise_leader_epoch(self, name: str, partition: int, epoch: int) -> None:
        """Raise a partition's leader epoch to that of records appended unchanged. Raises UnknownTopicError."""
        key = TopicPartition(name, partition)
        if topics.later_epoch(self._store.image, key, epoch):
            await change(self._store, lambda image: topics.later_epoch(image, key, epoch))

    # ---- deleting

    async def begin_delete(self, name: str) -> bool:
        """Mark a topic for deletion; return whether `take_away` and `finish_delete` follow. Raises UnknownTopicError.

        Then it is unknown from now on, and a restart continues the deletion. Otherwise the controller does all of it.
        """
        self.known(name)
        await change(self._store, lambda _image: [DeletionRequested(name)])
        return self._control.deletes_logs

    def take_away(self, keys: Iterable[TopicPartition]) -> list[PartitionLog]:
        """Delete the logs of partitions; return them, to be released when unused. Their files are deleted later."""
        there = [key for key in keys if key in self._logs.logs]
        return self._logs.take_away(there, monotonic_ms=self._clock.monotonic_ms())

    async def finish_delete(self, name: str) -> None:
        """Delete the logs of a topic that are offline, the topic, and the mark of its deletion."""
        now_ms = self._clock.monotonic_ms()
        await self._threads.run(self._logs.take_away_offline, name, monotonic_ms=now_ms)
        await change(self._store, lambda image: topics.removal(image, name))

    # ---- settings

    async def alter(
        self,
        name: str,
        rewrite: Callable[[ServedTopic], Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace the own settings of a topic by what `rewrite` makes of it. They apply immediately.

        Raises UnknownTopicError, InvalidConfigError, and as `rewrite` and `ClusterStore.propose` do.
        """
        config = self._config

        def decide(_image: ClusterImage) -> list[ProposedChange]:
            topic = self.known(name)
            own = self._store.readable(topic_config.check_overrides(rewrite(topic)))
            if self._resolve(own).log.dialect is not topic.config.log.dialect:
                raise InvalidConfigError(
                    f"topic {name}: {topic_config.FORMAT} cannot be switched to or from enriched for an existing topic"
                )
            return [SettingsChanged(topics.entity_of(name), own)]

        if validate_only:
            decide(self._store.image)
            return
        await change(self._store, decide)
        if (altered := self.get(name)) is not None:
            _warn_beyond(altered, config)

    def check_config(self, config: BrokerConfig) -> None:
        """Raise InvalidConfigError if a topic would be invalid with these broker settings."""
        for own in {frozenset(topic.configs.items()) for topic in self._topics.values()}:
            topic_config.resolve(dict(own), config)

    def config_changed(self) -> None:
        """Apply the broker's current settings to all topics. Raises InvalidConfigError."""
        self._resolved.clear()
        for topic in list(self._topics.values()):
            self._keep(replace(topic, config=self._resolve(topic.configs)))

    def _resolve(self, own: Mapping[str, str]) -> TopicConfig:
        """Return the settings in force with these own settings, which many topics share. Raises InvalidConfigError."""
        key = frozenset(own.items())
        if key not in self._resolved:
            if len(self._resolved) >= _MOST_RESOLVED:
                self._resolved.clear()
            self._resolved[key] = topic_config.resolve(own, self._config)
        return self._resolved[key]

    # ---- following the cluster

    def _cluster_changed(self, image: ClusterImage, changes: Sequence[ClusterChange]) -> None:
        for name in dict.fromkeys(name for each in changes if (name := _topic_of(each)) is not None):
            topic = image.topics.get(name)
            if topic is None or name in image.deletions:
                self._topics.pop(name, None)
                continue
            try:
                self._keep(self._served(topic, image))
            except InvalidConfigError as error:
                if not self._is_following:
                    raise
                logs.warning("settings of topic %s cannot be applied: %s", name, error)

    def _served(self, topic: TopicImage, image: ClusterImage) -> ServedTopic:
        open_logs = self._open_logs(topic.name, len(topic.partitions))
        own = self._usable(topic.name, image, open_logs)
        config = self._resolve(own)
        return ServedTopic(topic.name, topic.id or NULL_UUID, len(topic.partitions), own, config)

    def _usable(self, name: str, image: ClusterImage, open_logs: Iterable[PartitionLog]) -> dict[str, str]:
        """Return a topic's settings, without invalid ones: Kafka may have stored them."""
        stored = stored_settings(image, name)
        if (why := image.damage.get(settings_part(topics.entity_of(name)))) is not None:
            if _is_enriched(open_logs):
                stored[topic_config.FORMAT] = Format.ENRICHED.value
            logs.error("topic %s: its settings cannot be read, and until it is altered no record is deleted or "
                       "compacted: %s", name, why)  # fmt: skip
        if frozenset(stored.items()) in self._resolved:  # valid
            return stored
        own = topic_config.usable(stored, self._config)
        if own != stored:
            ignored = ", ".join(f"{key}={text!r}" for key, text in stored.items() if own.get(key) != text)
            logs.error("topic %s: settings with an invalid one are ignored, and until it is altered no record is "
                       "deleted or compacted: %s", name, ignored[:_MOST_SHOWN])  # fmt: skip
        return own

    def _keep(self, topic: ServedTopic) -> None:
        before = self._topics.get(topic.name)
        self._topics[topic.name] = topic
        if before is None or before.config is not topic.config:
            for log in self._open_logs(topic.name, topic.partitions):
                log.reconfigure(topic.config.log)

    def _open_logs(self, topic: str, partitions: int) -> list[PartitionLog]:
        open_logs = self._logs.logs
        if len(open_logs) < partitions:
            return [log for key, log in list(open_logs.items()) if key.topic == topic and key.partition < partitions]
        keys = (TopicPartition(topic, partition) for partition in range(partitions))
        return [log for key in keys if (log := open_logs.get(key)) is not None]

    # ---- adopting

    async def _adopt(self) -> list[str]:
        """Create topics whose logs exist without them; return their names."""
        partitions_of: dict[str, list[int]] = {}
        for key in (*self._logs.logs, *(key for key, each in self._logs.offline.items() if each.has_log)):
            if key.topic not in self._topics:
                partitions_of.setdefault(key.topic, []).append(key.partition)
        for name, partitions in partitions_of.items():
            own_logs = [log for key, log in self._logs.logs.items() if key.topic == name]
            topic_id = await self._threads.run(self._id_in_folder, name)
            replicas = assign(range(max(partitions) + 1), 1, self._brokers())
            own = self._usable(name, self._store.image, own_logs) or _settings_of_adopted(name, own_logs)
            changes = topics.creation(
                self._store.image, name, topic_id, own, replicas, partitions
            )  # per folder a state
            await self._store.propose(changes, self._store.image)
            for partition in partitions:
                await self._go_on_with_epoch(name, partition)
        return sorted(partitions_of)

    async def _go_on_with_epoch(self, name: str, partition: int) -> None:
        """Raise the leader epoch to that of the log's last batches: clients reject earlier ones than they have seen."""
        log = self._logs.logs.get(TopicPartition(name, partition))
        if log is not None and log.epochs.entries:
            await self.raise_leader_epoch(name, partition, log.epochs.entries[-1].epoch)

    def _id_in_folder(self, name: str) -> uuid.UUID:
        for key, log in self._logs.logs.items():
            path = f"{log.folder}/{PARTITION_METADATA}"
            if key.topic == name and exists(self._logs.files, path):
                return parse_file(self._logs.files, path, parse_partition_metadata).topic_id
        return self._new_id()


def _topic_of(change: ClusterChange) -> str | None:
    """Return the topic whose entry a change may affect."""
    match change:
        case TopicCreated(topic=topic):
            return topic.name
        case TopicDeleted(name=name) | TopicIdAssigned(name=name) | PartitionsCreated(topic=name):
            return name
        case DeletionRequested(topic=name) | DeletionEnded(topic=name):
            return name
        case SettingsChanged(entity=entity) if entity == topics.entity_of(entity.name or ""):
            return entity.name
        case DamageChanged(part=part) if part.section is DamagedSection.TOPIC_SETTINGS:
            return part.name
    return None


def _warn_beyond(topic: ServedTopic, config: BrokerConfig) -> None:
    if topic_config.FORMAT in topic.configs:
        warn_beyond(config, f"topic {topic.name}", topic.config.append.format)


def _settings_of_adopted(name: str, logs: Sequence[PartitionLog]) -> dict[str, str]:
    """Return the settings of a topic known only from its logs: nothing of it is deleted."""
    own = {"cleanup.policy": "compact"} if name in COMPACTED else dict(topic_config.KEEPS_ALL)
    if _is_enriched(logs):
        own[topic_config.FORMAT] = Format.ENRICHED.value
    return own


def _is_enriched(logs: Iterable[PartitionLog]) -> bool:
    return any(each.config.dialect is Dialect.ENRICHED for each in logs)
