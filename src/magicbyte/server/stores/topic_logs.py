"""What the cluster says about the logs of a directory: their configuration, and folders without a partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from magicbyte.engine.cluster.image import settings_part
from magicbyte.engine.cluster.topics import entity_of
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.files.names import MOST_PARTITIONS
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import Dialect
from magicbyte.server.settings import topic_config

if TYPE_CHECKING:
    from magicbyte.engine.cluster.image import ClusterImage
    from magicbyte.engine.log.live.config import LogConfig
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.server.settings.config import BrokerConfig


def log_config_of(
    image: Callable[[], ClusterImage],
    config: BrokerConfig,
    rules: IndexRules = LATEST_RULES,
    dialect_of: Callable[[TopicPartition], Dialect] = lambda _key: Dialect.KAFKA,
) -> Callable[[TopicPartition], LogConfig]:
    """Return the function that configures the logs of a directory when they are opened or created.

    `dialect_of`: the dialect in a log's folder, used if the settings of its topic are unknown.
    """

    def config_of(key: TopicPartition) -> LogConfig:
        own = stored_settings(image(), key.topic)
        if entity_of(key.topic) not in image().settings and dialect_of(key) is Dialect.ENRICHED:
            own[topic_config.FORMAT] = Format.ENRICHED.value
        return topic_config.resolve(topic_config.usable(own, config), config, rules).log

    return config_of


def stored_settings(image: ClusterImage, topic: str) -> dict[str, str]:
    """Return the own settings of a topic. If they cannot be read: settings with which nothing is deleted."""
    entity = entity_of(topic)
    unknown = topic_config.KEEPS_RECORDS if settings_part(entity) in image.damage else {}
    return dict(image.settings.get(entity, unknown))


def refused_of(
    image: Callable[[], ClusterImage],
) -> Callable[[Collection[TopicPartition]], Mapping[TopicPartition, str]]:
    """Return the function that finds folders of a directory without a partition, and without one to adopt."""

    def refused(keys: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        topics, reasons = image().topics, {}
        for key in keys:
            count = len(topics[key.topic].partitions) if key.topic in topics else None
            if count is not None and key.partition >= count:
                reasons[key] = f"topic {key.topic} has {count} partitions, 0 to {count - 1}: move the folder away"
            elif count is None and key.partition >= MOST_PARTITIONS:
                reasons[key] = (
                    f"expected up to {MOST_PARTITIONS} partitions of a topic: it is not adopted. `magicbyte cat` "
                    "reads it; move the folder away"
                )
        return reasons

    return refused
