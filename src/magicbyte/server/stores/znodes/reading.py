"""Make an image of the cluster from the tree of Kafka's znodes, as brokers of 0.8.2 to 3.9 write them.

A tree in which others write at the same time is read in several round trips: the image may have one change and lack an
earlier one. A later reading has both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from magicbyte.access.security.quotas import CONNECTION_RATE, TYPES
from magicbyte.access.security.scram import HASHES
from magicbyte.engine.cluster.acls import DENY_ALL, Entries, Pattern, ResourcePattern, ResourceType
from magicbyte.engine.cluster.brokers import RegisteredBroker
from magicbyte.engine.cluster.changes import PartitionStateChanged, apply_all
from magicbyte.engine.cluster.image import (
    ClusterImage,
    ConfigEntity,
    DamagedPart,
    DamagedSection,
    EntityKind,
    PartitionImage,
    TopicImage,
    credential_part,
    settings_part,
)
from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.errors import MagicbyteError, MetadataError, SecurityError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.reassignment import OngoingMove
from magicbyte.engine.replication.state import KnownState
from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH
from magicbyte.server.stores.znodes import acl_nodes, clients, layout
from magicbyte.server.stores.znodes.layout import TopicNode

if TYPE_CHECKING:
    import uuid

    from magicbyte.engine.cluster.image import Limits, Settings
    from magicbyte.engine.cluster.quotas import QuotaEntity
    from magicbyte.engine.ports import MetadataStore, Node

P = ParamSpec("P")
T = TypeVar("T")

_KINDS: Final = {
    kind: f"{layout.CONFIG}/{kind.value}" for kind in (EntityKind.TOPIC, EntityKind.BROKER, EntityKind.GROUP)
}
_OF_SETTINGS: Final = (
    DamagedSection.TOPIC_SETTINGS,
    DamagedSection.BROKER_SETTINGS,
    DamagedSection.GROUP_SETTINGS,
    DamagedSection.CLIENT,
    DamagedSection.CREDENTIAL,
)
_KIND_NAMES: Final = {kind.value: kind for kind in _KINDS}
_CLIENT_KINDS: Final = (clients.USERS, clients.CLIENTS, clients.ADDRESSES)
_RESOURCES: Final = [(kind, pattern) for pattern in Pattern for kind in ResourceType]


class TreeReading(NamedTuple):
    """An image, and the nodes that it was made from, None for missing ones."""

    image: ClusterImage
    nodes: Mapping[str, Node | None]


class ClientParts(NamedTuple):
    """The sections of an image that are in the nodes of users, clients and addresses."""

    quotas: dict[QuotaEntity, Limits]
    rates: dict[str | None, float]
    credentials: dict[str, Mapping[str, Credential]]

    def sections(self) -> dict[str, Any]:
        """Return them by the names of an image's fields."""
        return {"quotas": self.quotas, "connection_rates": self.rates, "scram_users": self.credentials}


class Parts(Struct):
    """Parts of a cluster that are to be read again. `places`: kind and name of settings, of a client or an address.

    `topics` are read with their settings. `has_producer_ids`: the producer ids that brokers have.
    """

    places: dict[tuple[str, str], None] = field(default_factory=dict)
    resources: dict[ResourcePattern, None] = field(default_factory=dict)
    topics: dict[str, None] = field(default_factory=dict)
    states: dict[TopicPartition, None] = field(default_factory=dict)
    deletions: dict[str, None] = field(default_factory=dict)
    has_producer_ids: bool = False


def read_settings(store: MetadataStore, image: ClusterImage) -> ClusterImage:
    """Return `image` with all settings, quotas and credentials of a tree. Blocks.

    Raises NetworkError, MetadataError.
    """
    nodes = _Nodes(store)
    return nodes.onto(image, _OF_SETTINGS, settings=_settings(nodes), **_clients(nodes).sections())


def read_topics(store: MetadataStore, image: ClusterImage) -> ClusterImage:
    """Return `image` with all topics of a tree, their states, requested deletions, and the controller's epoch.

    Blocks. Raises NetworkError, MetadataError.
    """
    nodes = _Nodes(store)
    topics = _topics(nodes)
    return nodes.onto(
        image,
        (DamagedSection.TOPIC, DamagedSection.STATE),
        topics=topics,
        topic_names=_names_of(topics),
        deletions=_deletions(nodes),
        controller_epoch=_controller_epoch(nodes),
    )


def read_producer_ids(store: MetadataStore, image: ClusterImage) -> ClusterImage:
    """Return `image` with the producer ids that brokers have. Blocks. Raises NetworkError, MetadataError."""
    nodes = _Nodes(store)
    return nodes.onto(image, (), next_producer_id=_next_producer_id(nodes))


def read_acls(store: MetadataStore, image: ClusterImage) -> ClusterImage:
    """Return `image` with all ACLs of a tree. Blocks. Raises NetworkError, MetadataError."""
    nodes = _Nodes(store)
    return nodes.onto(image, (DamagedSection.ACLS,), acls=_acls(nodes))


def reread(store: MetadataStore, image: ClusterImage, parts: Parts) -> TreeReading:
    """Return `image` with the current content of some parts, and their nodes.

    A topic keeps the states that the image has, unless they are parts themselves. One that is missing in the tree stays
    as it is. Blocks. Raises NetworkError, MetadataError.
    """
    nodes = _Nodes(store)
    entities = [(kind, name) for kind, name in parts.places if kind in _KIND_NAMES]
    entities += [(EntityKind.TOPIC.value, topic) for topic in parts.topics]
    places = [(kind, name) for kind, name in parts.places if kind in _CLIENT_KINDS]
    nodes.many(
        [
            *(layout.config_path(*each) for each in (*entities, *places)),
            *(acl_nodes.acls_path(each) for each in parts.resources),
            *(layout.topic_path(each) for each in parts.topics),
            *(layout.state_path(*each) for each in parts.states),
            *(_deletion_path(each) for each in parts.deletions),
            *([layout.PRODUCER_IDS] if parts.has_producer_ids else []),
        ]
    )
    if entities:
        image = _reread_settings(nodes, image, entities)
    if places:
        image = _reread_clients(nodes, image, places)
    if parts.resources:
        image = _reread_acls(nodes, image, parts.resources)
    if parts.topics:
        image = _reread_topics(nodes, image, parts.topics)
    if parts.states:
        image = _reread_states(nodes, image, parts.states)
    if parts.deletions:
        marked = {each for each in parts.deletions if nodes.found[_deletion_path(each)] is not None}
        image = replace(image, deletions=(image.deletions - parts.deletions.keys()) | marked)
    if parts.has_producer_ids:
        image = replace(image, next_producer_id=_next_producer_id(nodes))
    return TreeReading(replace(image, position=max(image.position, nodes.position)), nodes.found)


def _reread_settings(nodes: _Nodes, image: ClusterImage, places: Sequence[tuple[str, str]]) -> ClusterImage:
    entities = [(_KIND_NAMES[kind], name) for kind, name in places]
    owners, found, parts = (
        [layout.settings_entity(*each) for each in entities],
        _settings_at(nodes, entities),
        _parts(entities),
    )
    if all(image.settings.get(each) == found.get(each) for each in owners) and _is_same_damage(nodes, image, parts):
        return image
    settings, damage = dict(image.settings), dict(image.damage)
    for part, owner in zip(parts, owners, strict=True):
        damage.pop(part, None)
        settings.pop(owner, None)
    settings |= found
    return replace(image, settings=settings, damage=damage | nodes.damage)


def _is_same_damage(nodes: _Nodes, image: ClusterImage, parts: Iterable[DamagedPart]) -> bool:
    return all(image.damage.get(part) == nodes.damage.get(part) for part in parts)


def _reread_clients(nodes: _Nodes, image: ClusterImage, places: Sequence[tuple[str, str]]) -> ClusterImage:
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
    )


def _reread_acls(nodes: _Nodes, image: ClusterImage, resources: Collection[ResourcePattern]) -> ClusterImage:
    found = _acls_of(nodes, list(resources))
    acls = {resource: entries for resource, entries in image.acls.items() if resource not in resources} | found
    parts = {_acls_part(each) for each in resources}
    damage = {part: why for part, why in image.damage.items() if part not in parts}
    return replace(image, acls=acls, damage=damage | nodes.damage)


def _reread_topics(nodes: _Nodes, image: ClusterImage, names: Iterable[str]) -> ClusterImage:
    found, parts = dict[str, TopicImage](), [DamagedPart(DamagedSection.TOPIC, name) for name in names]
    for name, node in _topic_nodes(nodes, list(names)).items():
        before = image.topics.get(name)
        is_same = before is not None and before.id in (None, node.topic_id)
        known = before.partitions if before is not None and is_same else ()
        states = {TopicPartition(name, index): each.known for index, each in enumerate(known) if each.known is not None}
        found[name] = topic_of(name, node, states)
    if all(image.topics.get(name) == topic for name, topic in found.items()) and _is_same_damage(nodes, image, parts):
        return image
    topics, topic_names = dict(image.topics), dict(image.topic_names)
    damage = {part: why for part, why in image.damage.items() if part not in parts or part.name not in found}
    for name, topic in found.items():
        former = topics.get(name)
        if former is not None and former.id is not None:
            topic_names.pop(former.id, None)
        topics[name] = topic
        if topic.id is not None:
            topic_names[topic.id] = name
    return replace(image, topics=topics, topic_names=topic_names, damage=damage | nodes.damage)


def _reread_states(nodes: _Nodes, image: ClusterImage, keys: Iterable[TopicPartition]) -> ClusterImage:
    found = _states(nodes, list(keys))
    changes = [PartitionStateChanged(key, found.get(key)) for key in keys if image.partition(key) is not None]
    return apply_all(image, changes, image.position)


def cluster_paths(paths: Iterable[str]) -> list[str]:
    """Return the chroot paths under which a tree has the nodes of a cluster, `/` for its root."""
    ends = [path.removesuffix(layout.TOPICS) or "/" for path in paths if path.endswith(layout.TOPICS)]
    return sorted(ends)


def image_of(store: MetadataStore) -> ClusterImage:
    """Return the cluster in a tree. Blocks.

    Unreadable parts are in the image's `damage`. Raises NetworkError, and MetadataError for an unreadable node that
    the whole cluster depends on: its id, its features, its controller and epoch, its producer ids.
    """
    return read_tree(store).image


def read_tree(store: MetadataStore) -> TreeReading:
    """Return the cluster in a tree, and its nodes. Raises as `image_of` does."""
    nodes = _Nodes(store)
    topics = _topics(nodes)
    client_parts = _clients(nodes)
    single = [layout.CLUSTER_ID, layout.FEATURES, layout.PRODUCER_IDS, layout.CONTROLLER]
    cluster_id, features, _, controller = (None if node is None else node.data for node in nodes.many(single))
    image = ClusterImage(
        cluster_id=None if cluster_id is None else layout.load_cluster_id(cluster_id),
        brokers=_brokers(nodes),
        topics=topics,
        topic_names=_names_of(topics),
        settings=_settings(nodes),
        acls=_acls(nodes),
        **client_parts.sections(),
        features={} if features is None else layout.load_features(features),
        next_producer_id=_next_producer_id(nodes),
        controller_id=NO_BROKER if controller is None else layout.load_controller(controller),
        controller_epoch=_controller_epoch(nodes),
        deletions=_deletions(nodes),
        reassignments=_reassignments(nodes),
        preferred_elections=_preferred_elections(nodes),
        position=nodes.position,
        damage=nodes.damage,
    )
    return TreeReading(image, nodes.found)


def _names_of(topics: Mapping[str, TopicImage]) -> dict[uuid.UUID, str]:
    return {each.id: each.name for each in topics.values() if each.id is not None}


def _next_producer_id(nodes: _Nodes) -> int | None:
    (node,) = nodes.many([layout.PRODUCER_IDS])
    last = None if node is None else layout.load_last_producer_id(node.data)
    return None if last is None else last + 1


def _controller_epoch(nodes: _Nodes) -> int:
    (node,) = nodes.many([layout.CONTROLLER_EPOCH])
    return NO_EPOCH if node is None else layout.load_controller_epoch(node.data)


class _Nodes(Struct):
    """Reads nodes, each once, and records them, the latest transaction that they show, and damage."""

    store: MetadataStore
    found: dict[str, Node | None] = field(default_factory=dict)
    damage: dict[DamagedPart, str] = field(default_factory=dict)
    position: int = -1

    def many(self, paths: Sequence[str]) -> list[Node | None]:
        new = [path for path in dict.fromkeys(paths) if path not in self.found]
        for path, node in zip(new, self.store.get_many(new) if new else [], strict=True):
            self.found[path] = node
            if node is not None:
                self.position = max(self.position, node.czxid, node.mzxid, node.pzxid)
        return [self.found[path] for path in paths]

    def onto(self, image: ClusterImage, damaged: Container[DamagedSection], **sections: Any) -> ClusterImage:
        """Return an image with sections as they were read. `damaged`: the sections whose damage was looked for."""
        damage = {part: why for part, why in image.damage.items() if part.section not in damaged}
        position = max(image.position, self.position)
        return replace(image, **sections, damage=damage | self.damage, position=position)

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
    topics = _topic_nodes(nodes, nodes.names(layout.TOPICS))
    states = _states(nodes, [TopicPartition(name, index) for name, topic in topics.items() for index in topic.replicas])
    return {name: topic_of(name, node, states) for name, node in topics.items()}


def _topic_nodes(nodes: _Nodes, names: Sequence[str]) -> dict[str, TopicNode]:
    """Return the topics of these names that exist and can be read."""
    topics = dict[str, TopicNode]()
    paths = [layout.topic_path(each) for each in names]
    for name, path, node in zip(names, paths, nodes.many(paths), strict=True):
        if node is not None:
            topic = nodes.parsed(DamagedPart(DamagedSection.TOPIC, name), TopicNode.load, path, node.data)
            if topic is not None:
                topics[name] = topic
    return topics


def topic_of(name: str, node: TopicNode, states: Mapping[TopicPartition, KnownState]) -> TopicImage:
    """Return the topic of a node, with the states of its partitions."""
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
    return _settings_at(nodes, [(kind, name) for kind, known in names for name in known])


def _settings_at(nodes: _Nodes, entities: Sequence[tuple[EntityKind, str]]) -> dict[ConfigEntity, Settings]:
    paths = [layout.config_path(kind.value, name) for kind, name in entities]
    found = zip(entities, _texts(nodes, paths, _parts(entities)), strict=True)
    return {layout.settings_entity(kind, name): own for (kind, name), own in found if own is not None}


def _parts(entities: Iterable[tuple[EntityKind, str]]) -> list[DamagedPart]:
    return [settings_part(layout.settings_entity(*each)) for each in entities]


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
    users, client_ids, addresses = nodes.names_below([f"{layout.CONFIG}/{kind}" for kind in _CLIENT_KINDS])
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
    nodes.many([_deletion_path(name) for name in names])
    return frozenset(names)


def _deletion_path(topic: str) -> str:
    return f"{layout.DELETE_TOPICS}/{topic}"


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
