"""The topics known to a broker, by name and id, with the settings in force."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from magicbyte.engine.errors import InvalidTopicError, PolicyViolationError, UnknownTopicError, UnknownTopicIdError
from magicbyte.engine.internal_topics import INTERNAL
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.server.metadata import layout
from magicbyte.server.settings import topic_config
from magicbyte.server.settings.topic_config import TopicConfig

if TYPE_CHECKING:
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.server.settings.config import BrokerConfig


@dataclass(frozen=True, slots=True)
class ServedTopic:
    """A topic. `configs` are its own settings; `config` those in force. `leader_epochs` is by partition."""

    name: str
    id: uuid.UUID
    partitions: int
    configs: Mapping[str, str]
    config: TopicConfig
    leader_epochs: Sequence[int]

    @property
    def is_internal(self) -> bool:
        """Whether it is one of Kafka's internal topics."""
        return self.name in INTERNAL


class TopicTable:
    """All topics, by name. One thread at a time changes them; any may read. Open logs use these settings."""

    def __init__(self, config: BrokerConfig, logs: LogDirectory) -> None:
        self._config, self._logs = config, logs
        self._topics: dict[str, ServedTopic] = {}
        self._by_id: dict[uuid.UUID, str] = {}

    # ---- look-ups

    def names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self._topics)

    def get(self, name: str) -> ServedTopic | None:
        """Return a topic, or None."""
        return self._topics.get(name)

    def by_id(self, topic_id: uuid.UUID) -> ServedTopic | None:
        """Return the topic with this id."""
        name = self._by_id.get(topic_id)
        return None if name is None else self._topics[name]

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
            raise UnknownTopicIdError(f"there is no topic with id {layout.id_text(topic_id)}")
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

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch of a partition. Raises UnknownTopicError."""
        return self._partition(topic, partition).leader_epochs[partition]

    def check_partition(self, topic: str, partition: int) -> None:
        """Raise UnknownTopicError unless a topic has this partition."""
        self._partition(topic, partition)

    def _partition(self, topic: str, partition: int) -> ServedTopic:
        found = self.known(topic)
        if not 0 <= partition < found.partitions:
            raise UnknownTopicError(f"topic {topic} has no partition {partition}")
        return found

    # ---- changes

    def _keep(self, topic: ServedTopic) -> None:
        self._topics[topic.name] = topic
        if topic.id != NULL_UUID:
            self._by_id[topic.id] = topic.name
        for partition in range(topic.partitions):
            log = self._logs.logs.get(TopicPartition(topic.name, partition))
            if log is not None:
                log.reconfigure(topic.config.log)

    def forget(self, name: str) -> None:
        """Forget a topic, because the controller is deleting it."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            self._by_id.pop(topic.id, None)

    def check_config(self, config: BrokerConfig) -> None:
        """Raise InvalidConfigError if a topic would be invalid with these broker settings."""
        for topic in self._topics.values():
            topic_config.resolve(topic.configs, config)

    def config_changed(self) -> None:
        """Apply the broker's current settings to all topics."""
        for topic in list(self._topics.values()):
            self._keep(replace(topic, config=topic_config.resolve(topic.configs, self._config)))
