"""Make an image of the cluster from the tree of Kafka's znodes, as brokers of 0.8.2 to 3.9 write them.

A tree in which others write at the same time is read in several round trips: the image may have one change and lack an
earlier one. A later reading has both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

from magicbyte.access.security.quotas import CONNECTION_RATE, TYPES
from magicbyte.access.security.scram import HASHES
from magicbyte.engine.cluster.acls import DENY_ALL, Entries, Pattern, ResourcePattern, ResourceType
from magicbyte.engine.cluster.brokers import RegisteredBroker
from magicbyte.engine.cluster.image import (
    ClusterImage,
    ConfigEntity,
    DamagedPart,
    DamagedSection,
    EntityKind,
    PartitionImage,
    TopicImage,
    credential_part,
)
from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.errors import MagicbyteError, MetadataError, SecurityError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.reassignment import OngoingMove
from magicbyte.engine.replication.state import KnownState
from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH
from magicbyte.server.metadata import acl_nodes, layout
from magicbyte.server.metadata.layout import TopicNode
from magicbyte.server.stores.znodes import clients

if TYPE_CHECKING:
    from magicbyte.engine.cluster.image import Limits, Settings
    from magicbyte.engine.cluster.quotas import QuotaEntity
    from magicbyte.engine.ports import MetadataStore, Node

P = ParamSpec("P")
T = TypeVar("T")

_KINDS: Final = {kind: f"{layout.CONFIG}/{kind.value}" for kind in (EntityKind.TOPIC, EntityKind.BROKER)}
_SECTIONS: Final = {
    EntityKind.TOPIC: DamagedSection.TOPIC_SETTINGS,
    EntityKind.BROKER: DamagedSection.BROKER_SETTINGS,
}
_OF_CLIENTS: Final = (DamagedSection.CLIENT, DamagedSection.CREDENTIAL)
_RESOURCES: Final = [(kind, pattern) for pattern in Pattern for kind in ResourceType]


class TreeReading(NamedTuple):
    """An image, and the version of each node that it was made from."""

    image: ClusterImage
    versions: Mapping[str, int]


class ClientParts(NamedTuple):
    """The sections of an image that are in the nodes of users, clients and addresses."""

    quotas: dict[QuotaEntity, Limits]
    rates: dict[str | None, float]
    credentials: dict[str, Mapping[str, Credential]]


def read_clients(store: MetadataStore, image: ClusterImage) -> ClusterImage:
    """Return `image` with all quotas and credentials of a tree. Blocks. Raises NetworkError, MetadataError."""
    nodes = _Nodes(store)
    parts = _clients(nodes)
    damage = {part: why for part, why in image.damage.items() if part.section not in _OF_CLIENTS}
    return replace(
        image,
        quotas=parts.quotas,
        connection_rates=parts.rates,
        scram_users=parts.credentials,
        damage=damage | nodes.damage,
        position=max(image.position, nodes.position),
    )


def reread_clients(store: MetadataStore, image: ClusterImage, places: Sequence[tuple[str, str]]) -> ClusterImage:
    """Return `image` with the current quotas and credentials of some nodes, each by its kind and name.

    Blocks. Raises NetworkError, MetadataError.
    """
    nodes = _Nodes(store)
    parts = _clients_at(nodes, places)
    quotas, rates = dict(image.quotas), dict(image.connection_rates)
    users, damage = dict(image.scram_users), dict(image.damage)
    for kind, name in places:
        damage.pop(_client_part(kind, name), None)
        if kind == clients.ADDRESSES:
            rates.pop(clients.address_at(name), None)
        elif (entity := clients.entity_at(kind, name)) is not None:
            quotas.pop(entity, None)
        if (user := clients.user_at(kind, name)) is not None:
            users.pop(user, None)
            for mechanism in HASHES:
                damage.pop(credential_part(user, mechanism), None)
    return replace(
        image,
        quotas=quotas | parts.quotas,
        connection_rates=rates | parts.rates,
        scram_users=users | parts.credentials,
        damage=damage | nodes.damage,
        position=max(image.position, nodes.position),
    )


def read_acls(store: MetadataStore, image: ClusterImage) -> ClusterImage:
    """Return `image` with all ACLs of a tree. Blocks. Raises NetworkError, MetadataError."""
    nodes = _Nodes(store)
    acls = _acls(nodes)
    damage = {part: why for part, why in image.damage.items() if part.section is not DamagedSection.ACLS}
    return replace(image, acls=acls, damage=damage | nodes.damage, position=max(image.position, nodes.position))


def reread_acls(store: MetadataStore, image: ClusterImage, resources: Sequence[ResourcePattern]) -> ClusterImage:
    """Return `image` with the current ACLs of some resources. Blocks. Raises NetworkError, MetadataError."""
    nodes = _Nodes(store)
    found = _acls_of(nodes, resources)
    again = frozenset(resources)
    acls = {resource: entries for resource, entries in image.acls.items() if resource not in again} | found
    parts = {_acls_part(each) for each in resources}
    damage = {part: why for part, why in image.damage.items() if part not in parts}
    return replace(image, acls=acls, damage=damage | nodes.damage, position=max(image.position, nodes.position))


def image_of(store: MetadataStore) -> ClusterImage:
    """Return the cluster in a tree. Blocks.

    Unreadable parts are in the image's `damage`. Raises NetworkError, and MetadataError for an unreadable node that
    the whole cluster depends on: its id, its features, its controller and epoch, its producer ids.
    """
    return read_tree(store).image


def read_tree(store: MetadataStore) -> TreeReading:
    """Return the cluster in a tree, and the versions of its nodes. Raises as `image_of` does."""
    nodes = _Nodes(store)
    topics = _topics(nodes)
    client_parts = _clients(nodes)
    single = [layout.CLUSTER_ID, layout.FEATURES, layout.PRODUCER_IDS, layout.CONTROLLER, layout.CONTROLLER_EPOCH]
    cluster_id, features, producer_ids, controller, epoch = (
        None if node is None else node.data for node in nodes.many(single)
    )
    last_producer_id = None if producer_ids is None else layout.load_last_producer_id(producer_ids)
    image = ClusterImage(
        cluster_id=None if cluster_id is None else layout.load_cluster_id(cluster_id),
        brokers=_brokers(nodes),
        topics=topics,
        topic_names={each.id: each.name for each in topics.values() if each.id is not None},
        settings=_settings(nodes),
        quotas=client_parts.quotas,
        connection_rates=client_parts.rates,
        acls=_acls(nodes),
        scram_users=client_parts.credentials,
        features={} if features is None else layout.load_features(features),
        next_producer_id=None if last_producer_id is None else last_producer_id + 1,
        controller_id=NO_BROKER if controller is None else layout.load_controller(controller),
        controller_epoch=NO_EPOCH if epoch is None else layout.load_controller_epoch(epoch),
        deletions=_deletions(nodes),
        reassignments=_reassignments(nodes),
        preferred_elections=_preferred_elections(nodes),
        position=nodes.position,
        damage=nodes.damage,
    )
    return TreeReading(image, nodes.versions)


@dataclass(slots=True)
class _Nodes:
    """Reads nodes, and records their versions, the latest transaction that they show, and damage."""

    store: MetadataStore
    versions: dict[str, int] = field(default_factory=dict)
    damage: dict[DamagedPart, str] = field(default_factory=dict)
    position: int = -1

    def many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes = self.store.get_many(paths) if paths else []
        for path, node in zip(paths, nodes, strict=True):
            if node is not None:
                self.versions[path] = node.version
                self.position = max(self.position, node.czxid, node.mzxid, node.pzxid)
        return nodes

    def names(self, path: str) -> list[str]:
        """Return the names below a node, none if it does not exist."""
        return self.names_below([path])[0]

    def names_below(self, paths: Sequence[str]) -> list[list[str]]:
        self.many(paths)  # their latest transaction may be the deletion of a child
        return [names or [] for names in (self.store.children_many(paths) if paths else [])]

    def parsed(self, part: DamagedPart, load: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
        """Parse a part; record an invalid one, and return None, so that it does not affect others."""
        try:
            return load(*arguments, **named)
        except (MetadataError, SecurityError) as error:
            self.damaged(part, error)
            return None

    def damaged(self, part: DamagedPart, why: MagicbyteError | str) -> None:
        earlier = f"{self.damage[part]}; " if part in self.damage else ""
        self.damage[part] = f"{earlier}{why}"


def _brokers(nodes: _Nodes) -> dict[int, RegisteredBroker]:
    ids = [int(name) for name in nodes.names(layout.BROKER_IDS) if name.isdigit()]
    brokers = dict[int, RegisteredBroker]()
    for broker_id, node in zip(ids, nodes.many([layout.broker_path(each) for each in ids]), strict=True):
        if node is not None:
            part = DamagedPart(DamagedSection.BROKER, str(broker_id))
            path = layout.broker_path(broker_id)
            registration = nodes.parsed(part, layout.load_broker, path, node.data)
            if registration is not None:
                brokers[broker_id] = RegisteredBroker(broker_id, node.czxid, registration)
    return brokers


def _topics(nodes: _Nodes) -> dict[str, TopicImage]:
    names = nodes.names(layout.TOPICS)
    topics = dict[str, TopicNode]()
    for name, node in zip(names, nodes.many([layout.topic_path(each) for each in names]), strict=True):
        if node is not None:
            part, data = DamagedPart(DamagedSection.TOPIC, name), node.data
            topic = nodes.parsed(part, TopicNode.load, layout.topic_path(name), data)
            if topic is not None:
                topics[name] = topic
    states = _states(nodes, [TopicPartition(name, index) for name, topic in topics.items() for index in topic.replicas])
    return {name: _topic(name, node, states) for name, node in topics.items()}


def _topic(name: str, node: TopicNode, states: Mapping[TopicPartition, KnownState]) -> TopicImage:
    partitions = tuple(
        PartitionImage(
            tuple(replicas),
            OngoingMove(tuple(node.adding.get(index, ())), tuple(node.removing.get(index, ()))),
            states.get(TopicPartition(name, index)),
        )
        for index, replicas in node.replicas.items()
    )
    return TopicImage(name, node.topic_id, partitions)


def _states(nodes: _Nodes, keys: Sequence[TopicPartition]) -> dict[TopicPartition, KnownState]:
    paths = [layout.state_path(*key) for key in keys]
    states = dict[TopicPartition, KnownState]()
    for key, path, node in zip(keys, paths, nodes.many(paths), strict=True):
        if node is not None:
            try:
                states[key] = KnownState(layout.load_state(path, node.data), node.version)
            except MetadataError as error:
                nodes.damaged(DamagedPart(DamagedSection.STATE, str(key)), error)
    return states


def _settings(nodes: _Nodes) -> dict[ConfigEntity, Settings]:
    names = zip(_KINDS, nodes.names_below(list(_KINDS.values())), strict=True)
    entities = [(kind, name) for kind, known in names for name in known]
    settings: dict[ConfigEntity, Settings] = {}
    paths = [layout.config_path(kind.value, name) for kind, name in entities]
    for (kind, name), own in zip(entities, _texts(nodes, paths, _parts(entities)), strict=True):
        if own is not None:
            settings[ConfigEntity(kind, None if name == layout.DEFAULT_ENTITY else name)] = own
    return settings


def _parts(entities: Iterable[tuple[EntityKind, str]]) -> list[DamagedPart]:
    return [DamagedPart(_SECTIONS[kind], name) for kind, name in entities]


def _texts(nodes: _Nodes, paths: Sequence[str], parts: Iterable[DamagedPart]) -> list[dict[str, str] | None]:
    """Return the settings in nodes; None for missing and for unreadable ones.

    A node without data exists only as a parent of others.
    """
    texts = list[dict[str, str] | None]()
    for path, part, node in zip(paths, parts, nodes.many(paths), strict=True):
        if node is None or not node.data:
            texts.append(None if node is None else {})
        else:
            data = node.data
            texts.append(nodes.parsed(part, layout.load_config, path, data))
    return texts


def _clients(nodes: _Nodes) -> ClientParts:
    """Return quotas, the rates of addresses, and credentials, which are in the nodes of users."""
    kinds = (clients.USERS, clients.CLIENTS, clients.ADDRESSES)
    users, client_ids, addresses = nodes.names_below([f"{layout.CONFIG}/{kind}" for kind in kinds])
    below = nodes.names_below([f"{layout.CONFIG}/{clients.USERS}/{user}/{clients.CLIENTS}" for user in users])
    places = [
        *((clients.USERS, user) for user in users),
        *(
            (clients.USERS, f"{user}/{clients.CLIENTS}/{client_id}")
            for user, own in zip(users, below, strict=True)
            for client_id in own
        ),
        *((clients.CLIENTS, client_id) for client_id in client_ids),
        *((clients.ADDRESSES, address) for address in addresses),
    ]
    return _clients_at(nodes, places)


def _clients_at(nodes: _Nodes, places: Sequence[tuple[str, str]]) -> ClientParts:
    quotas: dict[QuotaEntity, Limits] = {}
    rates = dict[str | None, float]()
    credentials = dict[str, Mapping[str, Credential]]()
    parts = [_client_part(kind, name) for kind, name in places]
    paths = [layout.config_path(*place) for place in places]
    for (kind, name), client, texts in zip(places, parts, _texts(nodes, paths, parts), strict=True):
        limits = _limits(nodes, client, texts or {})
        if kind == clients.ADDRESSES:
            if CONNECTION_RATE in limits:
                rates[clients.address_at(name)] = limits[CONNECTION_RATE]
            continue
        entity = clients.entity_at(kind, name)
        if limits and entity is not None:
            quotas[entity] = limits
        user = clients.user_at(kind, name)
        if user is not None and (own := _credentials(nodes, user, texts or {})):
            credentials[user] = own
        if user is not None and texts is None and client in nodes.damage:
            for mechanism in HASHES:
                nodes.damaged(credential_part(user, mechanism), nodes.damage[client])
    return ClientParts(quotas, rates, credentials)


def _client_part(kind: str, name: str) -> DamagedPart:
    return DamagedPart(DamagedSection.CLIENT, f"{kind}/{name}")


def _limits(nodes: _Nodes, client: DamagedPart, texts: Mapping[str, str]) -> dict[str, float]:
    limits = dict[str, float]()
    for name, text in texts.items():
        if name in TYPES or name == CONNECTION_RATE:
            try:
                limits[name] = float(text)
            except ValueError:
                nodes.damaged(client, f"{name} is ignored: expected a number, found {text!r}")
    return limits


def _credentials(nodes: _Nodes, user: str, texts: Mapping[str, str]) -> dict[str, Credential]:
    credentials = dict[str, Credential]()
    for mechanism in HASHES:
        if mechanism in texts:
            text = texts[mechanism]
            credential = nodes.parsed(credential_part(user, mechanism), Credential.load, text)
            if credential is not None:
                credentials[mechanism] = credential
    return credentials


def _acls(nodes: _Nodes) -> dict[ResourcePattern, Entries]:
    roots = [acl_nodes.type_path(kind, pattern) for kind, pattern in _RESOURCES]
    names_of = zip(_RESOURCES, nodes.names_below(roots), strict=True)
    return _acls_of(
        nodes, [ResourcePattern(kind, name, pattern) for (kind, pattern), names in names_of for name in names]
    )


def _acls_of(nodes: _Nodes, resources: Sequence[ResourcePattern]) -> dict[ResourcePattern, Entries]:
    acls = dict[ResourcePattern, Entries]()
    paths = [acl_nodes.acls_path(each) for each in resources]
    for resource, path, node in zip(resources, paths, nodes.many(paths), strict=True):
        if node is not None:
            entries = nodes.parsed(_acls_part(resource), acl_nodes.load_entries, path, node.data)
            if entries is None:
                entries = frozenset({DENY_ALL})
            if entries:
                acls[resource] = entries
    return acls


def _acls_part(resource: ResourcePattern) -> DamagedPart:
    return DamagedPart(DamagedSection.ACLS, acl_nodes.acls_path(resource))


def _deletions(nodes: _Nodes) -> frozenset[str]:
    names = nodes.names(layout.DELETE_TOPICS)
    nodes.many([f"{layout.DELETE_TOPICS}/{name}" for name in names])
    return frozenset(names)


def _reassignments(nodes: _Nodes) -> dict[TopicPartition, tuple[int, ...]]:
    (node,) = nodes.many([layout.REASSIGNMENTS])
    part = DamagedPart(DamagedSection.REQUESTS, "reassignments")
    return {} if node is None else nodes.parsed(part, layout.load_reassignments, node.data) or {}


def _preferred_elections(nodes: _Nodes) -> frozenset[TopicPartition] | None:
    (node,) = nodes.many([layout.PREFERRED_ELECTION])
    if node is None:
        return None
    part = DamagedPart(DamagedSection.REQUESTS, "preferred elections")
    return frozenset(nodes.parsed(part, layout.load_partitions, layout.PREFERRED_ELECTION, node.data) or ())
