"""The cluster as one immutable value: what a broker knows of it up to a position of the metadata.

Images share structure: `changes.apply` copies the touched sections, and never changes an image. So an image may be read
in any thread, and kept for as long as a request takes. Source: Kafka's MetadataImage.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from magicbyte.engine.cluster.acls import AccessControlEntry, Entries, ResourcePattern
from magicbyte.engine.cluster.brokers import RegisteredBroker, RegisteredController
from magicbyte.engine.cluster.quotas import QuotaEntity
from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.reassignment import NO_MOVE, OngoingMove
from magicbyte.engine.replication.state import KnownState
from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH


class EntityKind(enum.Enum):
    """The kind of an entity with settings."""

    TOPIC = "topics"
    BROKER = "brokers"
    CLIENT_METRICS = "client-metrics"
    GROUP = "groups"


class ConfigEntity(NamedTuple):
    """The owner of settings, such as a topic or a broker; all brokers: None."""

    kind: EntityKind
    name: str | None


class QuorumPartition(NamedTuple):
    """What a KRaft quorum knows besides of a partition.

    `directories`: of each replica, in their order. `eligible`: replicas out of sync that have all committed records;
    `last_eligible`: former ones, after an unclean stop. `is_recovering`: the leader was elected out of sync.
    """

    directories: tuple[uuid.UUID, ...] = ()
    eligible: tuple[int, ...] = ()
    last_eligible: tuple[int, ...] = ()
    is_recovering: bool = False


class PartitionImage(NamedTuple):
    """A partition: its replicas, the reassignment in progress, and its state; None until a controller has made one.

    The version of the state is that of its node, or the partition epoch of a quorum.
    """

    replicas: tuple[int, ...]
    move: OngoingMove = NO_MOVE
    known: KnownState | None = None
    quorum: QuorumPartition | None = None


class TopicImage(NamedTuple):
    """A topic: its partitions from 0 on, and its id; None: it is from before 2.8."""

    name: str
    id: uuid.UUID | None
    partitions: tuple[PartitionImage, ...]


class AclBinding(NamedTuple):
    """An ACL with its resource."""

    resource: ResourcePattern
    entry: AccessControlEntry


class DelegationToken(NamedTuple):
    """A delegation token, without its secret. Principals are texts, times are in ms."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    latest_ms: int
    expires_ms: int


class DamagedSection(enum.Enum):
    """A section of the image with an unreadable part, and the form of the part's name."""

    BROKER = "the registration of a broker, by id"
    TOPIC = "the replicas of a topic"
    STATE = "the state of a partition, as TOPIC-PARTITION"
    TOPIC_SETTINGS = "the settings of a topic"
    BROKER_SETTINGS = "the settings of a broker"
    GROUP_SETTINGS = "the settings of a group"
    CLIENT = "quotas and credentials of a user, client or address"
    CREDENTIAL = "the credential of a user for a mechanism, as MECHANISM USER"
    ACLS = "the ACLs of a resource, by the path of its node"
    REQUESTS = "requested reassignments or preferred elections"


class DamagedPart(NamedTuple):
    """A part of the metadata that cannot be read."""

    section: DamagedSection
    name: str


_SECTIONS: Final = {
    EntityKind.TOPIC: DamagedSection.TOPIC_SETTINGS,
    EntityKind.GROUP: DamagedSection.GROUP_SETTINGS,
}


def credential_part(user: str, mechanism: str) -> DamagedPart:
    """Return the part that is damaged if a user's credential cannot be read."""
    return DamagedPart(DamagedSection.CREDENTIAL, f"{mechanism} {user}")


def settings_part(entity: ConfigEntity) -> DamagedPart:
    """Return the part that is damaged if the settings of an entity cannot be read; "" for all brokers."""
    return DamagedPart(_SECTIONS.get(entity.kind, DamagedSection.BROKER_SETTINGS), entity.name or "")


def users_with_damage(damage: Iterable[DamagedPart]) -> set[str]:
    """Return the users with a credential that cannot be read."""
    return {part.name.partition(" ")[2] for part in damage if part.section is DamagedSection.CREDENTIAL}


Settings: TypeAlias = Mapping[str, str]
Limits: TypeAlias = Mapping[str, float]
"""The quotas of an entity, by the names of Kafka's settings."""


class ClusterImage(Struct, frozen=True):
    """What is known of a cluster up to `position`, which grows with each change (-1: nothing is known).

    `topics`: by name. `topic_names`: by id. `settings`: an entity without any is absent, one whose last setting was
    removed is present. `connection_rates`: by address, None for all without their own. `acls`: a damaged resource
    denies everything. `next_producer_id`: the first id that no broker has; None: none was ever allocated. `deletions`:
    topics that are being deleted. `reassignments` and `preferred_elections`: requests of old tools. `damage`: parts
    that cannot be read, with the reason. Except for ACLs they are missing above: a reader whose default would lose data
    must look there.

    Of a KRaft quorum alone: `controllers`, by id; `acl_ids`: the same ACLs by their ids; `tokens`, by id;
    `zookeeper_migration`: the state of the migration, None if none is recorded.
    """

    position: int = -1
    cluster_id: str | None = None
    brokers: Mapping[int, RegisteredBroker] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[uuid.UUID, str] = field(default_factory=dict)
    settings: Mapping[ConfigEntity, Settings] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Limits] = field(default_factory=dict)
    connection_rates: Mapping[str | None, float] = field(default_factory=dict)
    acls: Mapping[ResourcePattern, Entries] = field(default_factory=dict)
    scram_users: Mapping[str, Mapping[str, Credential]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int | None = None
    controller_id: int = NO_BROKER
    controller_epoch: int = NO_EPOCH
    deletions: frozenset[str] = frozenset()
    reassignments: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    preferred_elections: frozenset[TopicPartition] | None = None
    damage: Mapping[DamagedPart, str] = field(default_factory=dict)
    controllers: Mapping[int, RegisteredController] = field(default_factory=dict)
    acl_ids: Mapping[uuid.UUID, AclBinding] = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    zookeeper_migration: int | None = None

    def partition(self, key: TopicPartition) -> PartitionImage | None:
        """Return a partition, None for an unknown one."""
        topic = self.topics.get(key.topic)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            return None
        return topic.partitions[key.partition]
