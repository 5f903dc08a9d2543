"""The service side of the group coordinator: its topic, and the ends of transactions in it.

Decisions are made in `groups/`. Here they get the broker's settings, and topics that are deleted.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.image import ConfigEntity, EntityKind
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import InvalidConfigError
from magicbyte.engine.groups.config import GroupConfig, StoredVersions
from magicbyte.engine.groups.consumer.config import ConsumerConfig, MigrationPolicy
from magicbyte.engine.groups.consumer.topics import GroupTopic
from magicbyte.engine.groups.coordinator import Coordinator
from magicbyte.engine.groups.effects import DeleteStates, InitializeStates
from magicbyte.engine.groups.loading import LoadedPartition, Loading
from magicbyte.engine.groups.offsets import end_transaction
from magicbyte.engine.groups.share.config import ShareConfig
from magicbyte.engine.groups.share.heartbeat import states_initialized
from magicbyte.engine.groups.share.kept_states import change_states, states_deleted
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.printable import logger
from magicbyte.engine.releases import FIRST_WITH_FEATURES
from magicbyte.engine.sharing.states import StateKey
from magicbyte.server.coordinating.coordinating import (
    Coordinating,
    CoordinatorKind,
    CoordinatorTopic,
    has_partition,
    own_topic,
    read_log,
)
from magicbyte.server.settings.group_settings import CONSUMER_HEARTBEAT, CONSUMER_INTERVAL, CONSUMER_SESSION, int_of

if TYPE_CHECKING:
    from magicbyte.engine.cluster.brokers import RegisteredBroker
    from magicbyte.engine.cluster.image import ClusterImage, Settings, TopicImage
    from magicbyte.engine.coordination.effects import Marker
    from magicbyte.engine.errors import ErrorCode
    from magicbyte.engine.groups.share.records import TopicStates
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.server.coordinating.coordinator_services import CoordinatorServices
    from magicbyte.server.coordinating.share_states import ShareStateClient
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.settings.offer import Offer
    from magicbyte.server.stores.topics import Topics

log = logger(__name__)
_MOST_GROUPS: Final = 10_000  # whose settings are kept as computed


class Groups(Coordinating[Coordinator]):
    """The groups of the partitions of `__consumer_offsets` that a broker leads."""

    def __init__(self, services: CoordinatorServices, share_states: Callable[[], ShareStateClient]) -> None:
        runtime = services.runtime
        config = runtime.config
        kind = CoordinatorKind(
            OFFSETS_TOPIC,
            "groups",
            partial(_topic, config),
            Loading,
            timeout_ms=config.offsets_commit_timeout_ms,
            expiry_interval_ms=config.offsets_retention_check_interval_ms,
            codec=Codec(config.offsets_topic_compression_codec),
            is_joined=False,  # batches of transactions are verified individually
        )
        group_config = _config(config, runtime.offer)
        coordinator = Coordinator(
            group_config,
            token=lambda: str(runtime.new_uuid()),
            has_partition=partial(has_partition, services.topics),
            topics=TopicsOfGroups(services.topics),
            consumer_config=_SettingsOfGroups(services.topics, config, group_config.consumer),
        )
        self._share_states = share_states
        super().__init__(services, kind, coordinator, {InitializeStates: self._initialize, DeleteStates: self._delete})

    def _loaded(self, partition: int, term: int, content: object) -> None:
        assert isinstance(content, LoadedPartition), "of its kind"
        if content.passed_over:
            log.warning("%s-%d: %d records of unknown types", OFFSETS_TOPIC, partition, content.passed_over)
        super()._loaded(partition, term, content)

    def topic_deleted(self, topic: str) -> None:
        """Delete the offsets that groups committed for a deleted topic; all groups, if it is the offsets topic."""
        self.perform(self.coordinator.forget_topic(topic))
        super().topic_deleted(topic)

    def _initialize(self, wanted: InitializeStates) -> None:
        self._runtime.spawn(self._initialized(wanted))

    async def _initialized(self, wanted: InitializeStates) -> None:
        """Ask the share coordinators to keep states of partitions, and report of which they do."""
        begun = await self._share_states().initialize(wanted.group_id, wanted.epoch, dict(wanted.topics))
        if begun:
            self.perform(states_initialized(self.coordinator, wanted.group_id, begun))

    def _delete(self, wanted: DeleteStates) -> None:
        self._runtime.spawn(self._deleted(wanted))

    async def _deleted(self, wanted: DeleteStates) -> None:
        """Ask the share coordinators to delete the states of a group, and report the outcome."""
        keys = [
            StateKey(wanted.group_id, topic_id, partition)
            for topic_id, partitions in wanted.topics
            for partition in partitions
        ]
        code = await self._share_states().delete(keys)
        self.perform(states_deleted(self.coordinator, wanted, code))

    def change_states(
        self, group_id: str, added: Mapping[uuid.UUID, TopicStates], removed: Collection[uuid.UUID] = ()
    ) -> asyncio.Future[ErrorCode]:
        """Store of which partitions a share group has states; return the outcome."""
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.perform(change_states(self.coordinator, answer, group_id, added, removed))
        return answer

    def end_transaction(self, partition: int, marker: Marker) -> asyncio.Future[ErrorCode]:
        """Append a marker to a partition, and apply or discard the offsets of its transaction; return the outcome."""
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.perform(end_transaction(self.coordinator, answer, partition, marker))
        return answer


class _SettingsOfGroups:
    """The settings of consumer groups, computed again when a group gets others."""

    def __init__(self, topics: Topics, config: BrokerConfig, consumer: ConsumerConfig) -> None:
        self._topics, self._config, self._consumer = topics, config, consumer
        self._found: dict[str, tuple[Settings, ConsumerConfig]] = {}  # of groups with their own settings

    def __call__(self, group_id: str) -> ConsumerConfig:
        own = self._topics.image.settings.get(ConfigEntity(EntityKind.GROUP, group_id))
        if not own:
            self._found.pop(group_id, None)
            return self._consumer
        known = self._found.get(group_id)
        if known is None or known[0] is not own:
            if len(self._found) >= _MOST_GROUPS:
                self._found.clear()
            known = self._found[group_id] = own, self._with(group_id, own)
        return known[1]

    def _with(self, group_id: str, own: Settings) -> ConsumerConfig:
        try:
            return replace(
                self._consumer,
                session_timeout_ms=int_of(own, CONSUMER_SESSION, self._config),
                heartbeat_interval_ms=int_of(own, CONSUMER_HEARTBEAT, self._config),
                assignment_interval_ms=int_of(own, CONSUMER_INTERVAL, self._config),
            )
        except InvalidConfigError as error:
            log.warning("settings of group %s are ignored: %s", group_id, error)
            return self._consumer


class TopicsOfGroups:
    """The topics of the cluster, for consumer groups."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._found: dict[str, tuple[TopicImage, Mapping[int, RegisteredBroker], GroupTopic]] = {}

    @property
    def version(self) -> object:
        """The image of the cluster: each change makes another one."""
        return self._topics.image

    @property
    def position(self) -> int:
        """The position of the cluster's image."""
        return self._topics.image.position

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self._topics.names()

    def find(self, name: str) -> GroupTopic | None:
        """Return a topic that has an id, or None; the same object as long as it does not change."""
        image = self._topics.image
        topic = image.topics.get(name)
        if topic is None or topic.id is None or name in image.deletions:
            self._found.pop(name, None)
            return None
        known = self._found.get(name)
        if known is None or known[0] is not topic or known[1] is not image.brokers:
            found, count, racks = None if known is None else known[2], len(topic.partitions), _racks(image, topic)
            if found is None or (found.id, found.partitions, found.racks) != (topic.id, count, racks):
                found = GroupTopic(name, topic.id, count, racks)
            if len(self._found) > 2 * len(image.topics):  # topics were deleted that no group has asked for since
                self._found.clear()
            known = self._found[name] = topic, image.brokers, found
        return known[2]

    def find_id(self, topic_id: uuid.UUID) -> GroupTopic | None:
        """Return the topic with this id, or None."""
        name = self._topics.name_of(topic_id)
        return self.find(name) if name else None


def _racks(image: ClusterImage, topic: TopicImage) -> tuple[tuple[str, ...], ...]:
    """Return the racks of the replicas of each partition; () if no broker has one."""
    known = {number: broker.registration.rack for number, broker in image.brokers.items()}
    racks = {number: rack for number, rack in known.items() if rack}
    if not racks:
        return ()
    return tuple(tuple(sorted({racks[each] for each in part.replicas if each in racks})) for part in topic.partitions)


def read_groups(partition: PartitionLog) -> LoadedPartition:
    """Load the groups in a partition's log. Raises CorruptRecordError."""
    return read_log(Loading(), partition)


def _topic(config: BrokerConfig) -> CoordinatorTopic:
    settings = {"compression.type": "producer", "segment.bytes": str(config.offsets_topic_segment_bytes)}
    return own_topic(config, config.offsets_topic_num_partitions, config.offsets_topic_replication_factor, settings)


def _config(config: BrokerConfig, offer: Offer) -> GroupConfig:
    consumer = ConsumerConfig(
        is_enabled=offer.group_version > 0 and config.inter_broker_protocol_version >= FIRST_WITH_FEATURES,
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        max_size=config.group_consumer_max_size,
        assignors=config.group_consumer_assignors,
        migration=MigrationPolicy(config.group_consumer_migration_policy),
        keeps_assignment_epochs=offer.keeps_assignment_epochs,
        closes_empty=offer.closes_empty_groups,
        names_missing_group=offer.names_missing_groups,
    )
    share = ShareConfig(
        is_enabled=offer.share_version > 0 and config.inter_broker_protocol_version >= FIRST_WITH_FEATURES,
        session_timeout_ms=config.group_share_session_timeout_ms,
        heartbeat_interval_ms=config.group_share_heartbeat_interval_ms,
        assignment_interval_ms=config.group_share_assignment_interval_ms,
        max_size=config.group_share_max_size,
        initialize_retry_ms=config.group_share_initialize_retry_interval_ms,
        has_assignment_dates=offer.keeps_assignment_epochs,
        closes_empty=offer.closes_empty_groups,
    )
    return GroupConfig(
        consumer=consumer,
        share=share,
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        metadata_max_bytes=config.group_metadata_max_bytes,
        offsets_partitions=config.offsets_topic_num_partitions,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        stored=StoredVersions.of(config.inter_broker_protocol_version),
    )
