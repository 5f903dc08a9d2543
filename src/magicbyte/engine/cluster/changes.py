"""Changes of a cluster, and their effect on an image of it.

Invariants:
1. `apply` is a function of its arguments: brokers that apply the same changes have equal images.
2. An image is never changed. A batch copies each touched section (such as the topics) once.
3. `apply(old, difference(old, new), new.position) == new`.

Whether a change is permitted is decided before: here it has happened.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.cluster.acls import AccessControlEntry, Entries, ResourcePattern
from magicbyte.engine.cluster.brokers import RegisteredBroker, RegisteredController
from magicbyte.engine.cluster.image import (
    AclBinding,
    ClusterImage,
    ConfigEntity,
    DamagedPart,
    DelegationToken,
    Limits,
    PartitionImage,
    Settings,
    TopicImage,
)
from magicbyte.engine.cluster.quotas import QuotaEntity
from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.errors import UnknownTopicError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.reassignment import NO_MOVE, OngoingMove
from magicbyte.engine.replication.state import KnownState
from magicbyte.engine.sentinels import NO_BROKER

PRODUCER_ID_BLOCK: Final = 1000
"""The number of producer ids that a broker reserves at once."""

K = TypeVar("K")
V = TypeVar("V")


class ClusterIdentified(Struct, frozen=True):
    """A new cluster has its id."""

    cluster_id: str


class BrokerRegistered(Struct, frozen=True):
    """A broker has registered, under a new epoch."""

    broker: RegisteredBroker


class BrokerUnregistered(Struct, frozen=True):
    """A broker has left."""

    broker_id: int


class TopicCreated(Struct, frozen=True):
    """A topic was created, with partitions that may have states."""

    topic: TopicImage


class TopicDeleted(Struct, frozen=True):
    """A topic is gone."""

    name: str


class TopicIdAssigned(Struct, frozen=True):
    """A topic from before 2.8 has an id."""

    name: str
    topic_id: uuid.UUID


class PartitionsCreated(Struct, frozen=True):
    """A topic has more partitions, numbered from its former number on."""

    topic: str
    partitions: tuple[PartitionImage, ...]


class ReplicasChanged(Struct, frozen=True):
    """A reassignment of a partition has begun, has ended, or was replaced."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    move: OngoingMove = NO_MOVE


class PartitionStateChanged(Struct, frozen=True):
    """A partition has another leader, epoch or ISR, under a new version; None: its state is gone."""

    partition: TopicPartition
    known: KnownState | None


class PartitionReplaced(Struct, frozen=True):
    """All of a partition may have changed."""

    partition: TopicPartition
    image: PartitionImage


class SettingsChanged(Struct, frozen=True):
    """A topic or broker has these settings of its own; None: no longer any."""

    entity: ConfigEntity
    settings: Settings | None


class QuotasChanged(Struct, frozen=True):
    """A user or client has these quotas; none are left if it is empty."""

    entity: QuotaEntity
    limits: Limits


class ConnectionRateChanged(Struct, frozen=True):
    """An address, or all without their own (None), has this limit of new connections per second; None: no limit."""

    address: str | None
    rate: float | None


class AclsChanged(Struct, frozen=True):
    """A resource has these ACLs; none are left if it is empty."""

    resource: ResourcePattern
    entries: Entries


class AclAdded(Struct, frozen=True):
    """There is another ACL, with an id."""

    id: uuid.UUID
    acl: AclBinding


class AclRemoved(Struct, frozen=True):
    """An ACL is gone; an equal one with another id stays."""

    id: uuid.UUID


class ScramCredentialChanged(Struct, frozen=True):
    """A user has this credential for a mechanism; None: no longer any."""

    user: str
    mechanism: str
    credential: Credential | None


class FeatureChanged(Struct, frozen=True):
    """The cluster has this level of a feature; None: no longer any."""

    name: str
    level: int | None


class ProducerIdsAllocated(Struct, frozen=True):
    """A broker has the producer ids below `next_producer_id` that no broker had before."""

    broker_id: int
    next_producer_id: int

    @property
    def first_of_block(self) -> int:
        """The first of these ids, if they are one block."""
        return self.next_producer_id - PRODUCER_ID_BLOCK


class ControllerChanged(Struct, frozen=True):
    """A broker is the controller of an epoch; `NO_BROKER`: the former one has left."""

    controller_id: int
    epoch: int


class DeletionRequested(Struct, frozen=True):
    """A topic is to be deleted."""

    topic: str


class DeletionEnded(Struct, frozen=True):
    """A requested deletion is done, or was refused."""

    topic: str


class ReassignmentsRequested(Struct, frozen=True):
    """The reassignments that old tools request are these."""

    partitions: Mapping[TopicPartition, tuple[int, ...]]


class PreferredElectionsRequested(Struct, frozen=True):
    """The preferred elections that old tools request are these; None: there is no request."""

    partitions: frozenset[TopicPartition] | None


class QuorumControllerRegistered(Struct, frozen=True):
    """A controller of the quorum has registered."""

    controller: RegisteredController


class QuorumControllerUnregistered(Struct, frozen=True):
    """A controller of the quorum has left."""

    controller_id: int


class TokenChanged(Struct, frozen=True):
    """There is this delegation token; None: it is gone."""

    token_id: str
    token: DelegationToken | None


class ZooKeeperMigrationChanged(Struct, frozen=True):
    """The migration from ZooKeeper has this state."""

    state: int | None


class DamageChanged(Struct, frozen=True):
    """A part of the metadata cannot be read, for this reason; None: it can be read again."""

    part: DamagedPart
    why: str | None


ProposedChange: TypeAlias = (
    ClusterIdentified
    | TopicCreated
    | TopicDeleted
    | TopicIdAssigned
    | PartitionsCreated
    | ReplicasChanged
    | PartitionStateChanged
    | SettingsChanged
    | QuotasChanged
    | ConnectionRateChanged
    | AclsChanged
    | ScramCredentialChanged
    | FeatureChanged
    | ProducerIdsAllocated
    | DeletionRequested
    | DeletionEnded
    | ReassignmentsRequested
    | PreferredElectionsRequested
)
"""A change that a broker may propose. The others follow from sessions of brokers, and from damage."""
QuorumChange: TypeAlias = (
    PartitionReplaced
    | AclAdded
    | AclRemoved
    | QuorumControllerRegistered
    | QuorumControllerUnregistered
    | TokenChanged
    | ZooKeeperMigrationChanged
)
"""A change that only the metadata log of a KRaft quorum has."""
ClusterChange: TypeAlias = (
    ProposedChange | QuorumChange | BrokerRegistered | BrokerUnregistered | ControllerChanged | DamageChanged
)


def apply(image: ClusterImage, change: ClusterChange) -> ClusterImage:
    """Return the image after a change. Raises UnknownTopicError for a change of an unknown topic or partition."""
    return apply_all(image, [change], image.position)


def apply_all(image: ClusterImage, changes: Iterable[ClusterChange], position: int) -> ClusterImage:
    """Return the image after changes, known up to `position`. Raises UnknownTopicError, as `apply` does."""
    draft = Draft(image)
    for change in changes:
        draft.apply(change)
    return draft.image(position)


class Draft:
    """An image in preparation: its changed sections, and the changed partitions of topics.

    For many changes of which each depends on those before; otherwise `apply_all` is simpler.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._before = image
        self._sections: dict[str, Any] = {}
        self._partitions: dict[str, list[PartitionImage]] = {}
        self._resources = set[ResourcePattern]()  # whose ACLs follow from `acl_ids`

    def apply(self, change: ClusterChange) -> None:
        """Apply a change. Raises UnknownTopicError."""
        _APPLY[type(change)](self, change)

    def image(self, position: int) -> ClusterImage:
        """Return the image after all changes, known up to `position`."""
        if self._partitions:
            topics: dict[str, TopicImage] = self.section("topics")
            for name, partitions in self._partitions.items():
                topics[name] = TopicImage(name, topics[name].id, tuple(partitions))
        if self._resources:
            self._derive_acls()
        return replace(self._before, position=position, **self._sections)

    def _derive_acls(self) -> None:
        """Set the ACLs of resources by `acl_ids`: once for all changes, as each may be of the same resource."""
        entries: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for acl in self.get("acl_ids").values():
            if acl.resource in self._resources:
                entries.setdefault(acl.resource, set()).add(acl.entry)
        for resource in self._resources:
            found = frozenset(entries.get(resource, ()))
            self.put("acls", resource, found, is_absent=not found)

    def put_acl(self, acl_id: uuid.UUID, acl: AclBinding | None) -> None:
        """Set the ACL with an id; None: remove it. Another ACL that is equal stays."""
        before: AclBinding | None = self.section("acl_ids").pop(acl_id, None)
        self._resources |= {each.resource for each in (before, acl) if each is not None}
        if acl is not None:
            self.section("acl_ids")[acl_id] = acl

    def section(self, name: str) -> dict[Any, Any]:
        """Return a section that may be changed."""
        if name not in self._sections:
            self._sections[name] = dict(getattr(self._before, name))
        section: dict[Any, Any] = self._sections[name]
        return section

    def put(self, section: str, key: object, value: object, *, is_absent: bool) -> None:
        """Set a value of a section, or remove it."""
        values = self.section(section)
        if is_absent:
            values.pop(key, None)
        else:
            values[key] = value

    def set(self, name: str, value: object) -> None:
        """Set a field that is no mapping."""
        self._sections[name] = value

    def get(self, name: str) -> Any:
        """Return a field, as it was changed last."""
        return self._sections[name] if name in self._sections else getattr(self._before, name)

    def topic(self, name: str) -> TopicImage:
        """Return a topic; its partitions may be older ones. Raises UnknownTopicError."""
        topic: TopicImage | None = self.get("topics").get(name)
        if topic is None:
            raise UnknownTopicError(f"the metadata changes topic {name}, which does not exist")
        return topic

    def partitions(self, name: str) -> list[PartitionImage]:
        """Return the partitions of a topic, which may be changed. Raises UnknownTopicError."""
        partitions = self._partitions.get(name)
        if partitions is None:
            partitions = self._partitions[name] = list(self.topic(name).partitions)
        return partitions

    def put_topic(self, topic: TopicImage) -> None:
        """Create or replace a topic."""
        self.remove_topic(topic.name)
        self.section("topics")[topic.name] = topic
        if topic.id is not None:
            self.section("topic_names")[topic.id] = topic.name

    def remove_topic(self, name: str) -> None:
        """Remove a topic, if it exists."""
        self._partitions.pop(name, None)
        topic: TopicImage | None = self.get("topics").get(name)
        if topic is not None:
            del self.section("topics")[name]
            if topic.id is not None:
                self.section("topic_names").pop(topic.id, None)


def _partition_at(draft: Draft, key: TopicPartition) -> tuple[list[PartitionImage], PartitionImage]:
    topic, index = key
    partitions = draft.partitions(topic)
    if not 0 <= index < len(partitions):
        raise UnknownTopicError(f"the metadata changes partition {key}, which does not exist")
    return partitions, partitions[index]


def _id_assigned(draft: Draft, change: TopicIdAssigned) -> None:
    partitions = tuple(draft.partitions(change.name))
    draft.put_topic(TopicImage(change.name, change.topic_id, partitions))


def _partitions_created(draft: Draft, change: PartitionsCreated) -> None:
    draft.partitions(change.topic).extend(change.partitions)


def _replicas_changed(draft: Draft, change: ReplicasChanged) -> None:
    partitions, before = _partition_at(draft, change.partition)
    partitions[change.partition.partition] = before._replace(replicas=change.replicas, move=change.move)


def _state_changed(draft: Draft, change: PartitionStateChanged) -> None:
    partitions, before = _partition_at(draft, change.partition)
    replicas, move, _, quorum = before
    partitions[change.partition.partition] = PartitionImage(replicas, move, change.known, quorum)


def _partition_replaced(draft: Draft, change: PartitionReplaced) -> None:
    partitions, _ = _partition_at(draft, change.partition)
    partitions[change.partition.partition] = change.image


def _settings_changed(draft: Draft, change: SettingsChanged) -> None:
    draft.put("settings", change.entity, change.settings, is_absent=change.settings is None)


def _quotas_changed(draft: Draft, change: QuotasChanged) -> None:
    draft.put("quotas", change.entity, change.limits, is_absent=not change.limits)


def _rate_changed(draft: Draft, change: ConnectionRateChanged) -> None:
    draft.put("connection_rates", change.address, change.rate, is_absent=change.rate is None)


def _acls_changed(draft: Draft, change: AclsChanged) -> None:
    draft.put("acls", change.resource, change.entries, is_absent=not change.entries)


def _credential_changed(draft: Draft, change: ScramCredentialChanged) -> None:
    users = draft.section("scram_users")
    credentials = {name: each for name, each in users.get(change.user, {}).items() if name != change.mechanism}
    if change.credential is not None:
        credentials[change.mechanism] = change.credential
    draft.put("scram_users", change.user, credentials, is_absent=not credentials)


def _feature_changed(draft: Draft, change: FeatureChanged) -> None:
    draft.put("features", change.name, change.level, is_absent=change.level is None)


def _controller_changed(draft: Draft, change: ControllerChanged) -> None:
    draft.set("controller_id", change.controller_id)
    draft.set("controller_epoch", change.epoch)


def _damage_changed(draft: Draft, change: DamageChanged) -> None:
    draft.put("damage", change.part, change.why, is_absent=change.why is None)


_APPLY: Final[Mapping[type, Callable[[Draft, Any], None]]] = {
    ClusterIdentified: lambda draft, change: draft.set("cluster_id", change.cluster_id),
    BrokerRegistered: lambda draft, change: draft.section("brokers").update({change.broker.id: change.broker}),
    BrokerUnregistered: lambda draft, change: draft.put("brokers", change.broker_id, None, is_absent=True),
    TopicCreated: lambda draft, change: draft.put_topic(change.topic),
    TopicDeleted: lambda draft, change: draft.remove_topic(change.name),
    TopicIdAssigned: _id_assigned,
    PartitionsCreated: _partitions_created,
    ReplicasChanged: _replicas_changed,
    PartitionStateChanged: _state_changed,
    SettingsChanged: _settings_changed,
    QuotasChanged: _quotas_changed,
    ConnectionRateChanged: _rate_changed,
    AclsChanged: _acls_changed,
    ScramCredentialChanged: _credential_changed,
    FeatureChanged: _feature_changed,
    ProducerIdsAllocated: lambda draft, change: draft.set("next_producer_id", change.next_producer_id),
    ControllerChanged: _controller_changed,
    DeletionRequested: lambda draft, change: draft.set("deletions", draft.get("deletions") | {change.topic}),
    DeletionEnded: lambda draft, change: draft.set("deletions", draft.get("deletions") - {change.topic}),
    ReassignmentsRequested: lambda draft, change: draft.set("reassignments", dict(change.partitions)),
    PreferredElectionsRequested: lambda draft, change: draft.set("preferred_elections", change.partitions),
    DamageChanged: _damage_changed,
    PartitionReplaced: _partition_replaced,
    AclAdded: lambda draft, change: draft.put_acl(change.id, change.acl),
    AclRemoved: lambda draft, change: draft.put_acl(change.id, None),
    QuorumControllerRegistered: lambda draft, change: draft.section("controllers").update(
        {change.controller.id: change.controller}
    ),
    QuorumControllerUnregistered: lambda draft, change: draft.put(
        "controllers", change.controller_id, None, is_absent=True
    ),
    TokenChanged: lambda draft, change: draft.put(
        "tokens", change.token_id, change.token, is_absent=change.token is None
    ),
    ZooKeeperMigrationChanged: lambda draft, change: draft.set("zookeeper_migration", change.state),
}


# ---- the way back: from two images to the changes between them


def difference(old: ClusterImage, new: ClusterImage) -> list[ClusterChange]:
    """Return the changes from an image to a later one of the same cluster.

    An image does not know which broker allocated producer ids: their change has `NO_BROKER`.
    """
    changes = list[ClusterChange]()
    for name in ClusterImage.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if name in _BETWEEN and before is not after and before != after:
            changes += _BETWEEN[name](before, after)
    if (old.controller_id, old.controller_epoch) != (new.controller_id, new.controller_epoch):
        changes.append(ControllerChanged(new.controller_id, new.controller_epoch))
    return changes


def _changed(old: Mapping[K, V], new: Mapping[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
    """Yield each key with another value, the old value and the new one; None for a missing one."""
    for key, before in old.items():
        if key not in new:
            yield key, before, None
    for key, after in new.items():
        before_or_none = old.get(key)
        if before_or_none is not after and before_or_none != after:
            yield key, before_or_none, after


def _of_brokers(old: Mapping[int, RegisteredBroker], new: Mapping[int, RegisteredBroker]) -> Iterator[ClusterChange]:
    for broker_id, _, broker in _changed(old, new):
        yield BrokerUnregistered(broker_id) if broker is None else BrokerRegistered(broker)


def _of_topics(old: Mapping[str, TopicImage], new: Mapping[str, TopicImage]) -> Iterator[ClusterChange]:
    created = list[ClusterChange]()
    for name, before, after in _changed(old, new):
        if after is None:
            yield TopicDeleted(name)
        elif before is None:
            created.append(TopicCreated(after))
        elif len(after.partitions) < len(before.partitions) or before.id not in (None, after.id):
            yield TopicDeleted(name)  # another topic has its name
            created.append(TopicCreated(after))
        else:
            created += _of_topic(before, after)
    yield from created  # after the deletions: a new topic may have the id of a deleted one


def _of_topic(before: TopicImage, after: TopicImage) -> Iterator[ClusterChange]:
    if before.id is None and after.id is not None:
        yield TopicIdAssigned(after.name, after.id)
    if len(after.partitions) > len(before.partitions):
        yield PartitionsCreated(after.name, after.partitions[len(before.partitions) :])
    for index, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=False)):
        if old is new:
            continue
        key = TopicPartition(after.name, index)
        if old.quorum != new.quorum:
            yield PartitionReplaced(key, new)
            continue
        if old[:2] != new[:2]:
            yield ReplicasChanged(key, new.replicas, new.move)
        if old.known != new.known:
            yield PartitionStateChanged(key, new.known)


def _of_settings(old: Mapping[ConfigEntity, Settings], new: Mapping[ConfigEntity, Settings]) -> Iterator[ClusterChange]:
    for entity, _, settings in _changed(old, new):
        yield SettingsChanged(entity, settings)


def _of_quotas(old: Mapping[QuotaEntity, Limits], new: Mapping[QuotaEntity, Limits]) -> Iterator[ClusterChange]:
    for entity, _, limits in _changed(old, new):
        yield QuotasChanged(entity, limits or {})


def _of_rates(old: Mapping[str | None, float], new: Mapping[str | None, float]) -> Iterator[ClusterChange]:
    for address, _, rate in _changed(old, new):
        yield ConnectionRateChanged(address, rate)


def _of_acls(old: Mapping[ResourcePattern, Entries], new: Mapping[ResourcePattern, Entries]) -> Iterator[ClusterChange]:
    for resource, _, entries in _changed(old, new):
        yield AclsChanged(resource, entries or frozenset())


def _of_users(
    old: Mapping[str, Mapping[str, Credential]], new: Mapping[str, Mapping[str, Credential]]
) -> Iterator[ClusterChange]:
    for user, before, after in _changed(old, new):
        for mechanism, _, credential in _changed(before or {}, after or {}):
            yield ScramCredentialChanged(user, mechanism, credential)


def _of_features(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[ClusterChange]:
    for name, _, level in _changed(old, new):
        yield FeatureChanged(name, level)


def _of_deletions(old: frozenset[str], new: frozenset[str]) -> Iterator[ClusterChange]:
    yield from map(DeletionEnded, sorted(old - new))
    yield from map(DeletionRequested, sorted(new - old))


def _of_acl_ids(old: Mapping[uuid.UUID, AclBinding], new: Mapping[uuid.UUID, AclBinding]) -> Iterator[ClusterChange]:
    for acl_id, _, acl in _changed(old, new):
        yield AclRemoved(acl_id) if acl is None else AclAdded(acl_id, acl)


def _of_controllers(
    old: Mapping[int, RegisteredController], new: Mapping[int, RegisteredController]
) -> Iterator[ClusterChange]:
    for controller_id, _, controller in _changed(old, new):
        if controller is None:
            yield QuorumControllerUnregistered(controller_id)
        else:
            yield QuorumControllerRegistered(controller)


def _of_tokens(old: Mapping[str, DelegationToken], new: Mapping[str, DelegationToken]) -> Iterator[ClusterChange]:
    for token_id, _, token in _changed(old, new):
        yield TokenChanged(token_id, token)


def _of_damage(old: Mapping[DamagedPart, str], new: Mapping[DamagedPart, str]) -> Iterator[ClusterChange]:
    for part, _, why in _changed(old, new):
        yield DamageChanged(part, why)


_BETWEEN: Final[Mapping[str, Callable[[Any, Any], Iterable[ClusterChange]]]] = {
    "cluster_id": lambda _, new: [ClusterIdentified(new)],
    "brokers": _of_brokers,
    "topics": _of_topics,
    "settings": _of_settings,
    "quotas": _of_quotas,
    "connection_rates": _of_rates,
    "acls": _of_acls,
    "scram_users": _of_users,
    "features": _of_features,
    "next_producer_id": lambda _, new: [ProducerIdsAllocated(NO_BROKER, new)],
    "deletions": _of_deletions,
    "reassignments": lambda _, new: [ReassignmentsRequested(new)],
    "preferred_elections": lambda _, new: [PreferredElectionsRequested(new)],
    "damage": _of_damage,
    "controllers": _of_controllers,
    "acl_ids": _of_acl_ids,
    "tokens": _of_tokens,
    "zookeeper_migration": lambda _, new: [ZooKeeperMigrationChanged(new)],
}
"""By field: the changes from one value to another. `topic_names` follows from the topics."""
