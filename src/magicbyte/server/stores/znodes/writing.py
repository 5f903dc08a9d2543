"""Make the changes of nodes that write changes of a cluster, as Kafka's brokers write them.

Invariants:
1. A node is written only in the version that was read, so a transaction that another broker has overtaken fails as a
   whole. `image_of` of the written tree is the image after the changes.
2. Content that an image lacks is kept: other settings of a user, quotas that are not numbers.
3. Brokers that the cluster's protocol version permits can read every written node (`znodes/readable.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from magicbyte.access.security.quotas import CONNECTION_RATE, TYPES
from magicbyte.engine.cluster.changes import (
    AclsChanged,
    ClusterIdentified,
    ConnectionRateChanged,
    DeletionEnded,
    DeletionRequested,
    FeatureChanged,
    PartitionsCreated,
    PartitionStateChanged,
    PreferredElectionsRequested,
    ProducerIdsAllocated,
    ProposedChange,
    QuotasChanged,
    ReassignmentsRequested,
    ReplicasChanged,
    ScramCredentialChanged,
    SettingsChanged,
    TopicCreated,
    TopicDeleted,
    TopicIdAssigned,
    apply_all,
)
from magicbyte.engine.cluster.image import ClusterImage, EntityKind, PartitionImage, TopicImage
from magicbyte.engine.errors import BadVersionError, MetadataError
from magicbyte.engine.ports import CreateNode, DeleteNode, NodeChange, SetNode
from magicbyte.engine.releases import registration_version
from magicbyte.engine.replication.state import NEW_NODE, KnownState
from magicbyte.server.metadata.tree import paths_above
from magicbyte.server.stores.znodes import acl_nodes, clients, layout
from magicbyte.server.stores.znodes.layout import TopicNode
from magicbyte.server.stores.znodes.readable import check_acls, config_change, knows_prefixed_acls

if TYPE_CHECKING:
    from magicbyte.engine.cluster.acls import ResourcePattern
    from magicbyte.engine.ports import MetadataStore, Node
    from magicbyte.server.settings.config import BrokerConfig

_NOTES_KEPT_MS: Final = 15 * 60_000
_MOST_NOTES: Final = 100  # notifications checked when one is written
_ALWAYS_THERE: Final = frozenset(
    above for path in layout.ALWAYS_THERE if not path.startswith(layout.OURS) for above in (*paths_above(path), path)
)  # every broker creates these nodes at its start, one of Kafka too


class WritingTerms(Struct, frozen=True):
    """The date, the protocol version of the brokers that read the tree (`BrokerConfig.tree_protocol`), and the version
    of this broker's registration.
    """

    now_ms: int
    protocol: tuple[int, ...] | None
    registration_version: int = 5

    @classmethod
    def of(cls, config: BrokerConfig, now_ms: int) -> WritingTerms:
        """Return those of a broker with these settings."""
        return cls(now_ms, config.tree_protocol, registration_version(config.inter_broker_protocol_version))


def node_changes(
    store: MetadataStore,
    image: ClusterImage,
    changes: Sequence[ProposedChange],
    terms: WritingTerms,
    nodes: Mapping[str, Node | None] | None = None,
) -> list[NodeChange]:
    """Return the changes of nodes that write `changes` of a cluster, and notify its brokers. Blocks.

    They belong into one transaction, which fails if a node has another version by then. `nodes`: those that `image` was
    made from; others are read. Raises BadVersionError for a topic that exists already, and for a partition's state that
    does not follow the written one; ProtocolTooOldError for content that a broker of the cluster cannot read;
    MetadataError for an unreadable node that only a part of is to be changed; UnknownTopicError.
    """
    writing = _Writing(store, image, changes, terms, nodes or {})
    for change in changes:
        _WRITE[type(change)](writing, change)
    writing.write_topics()
    writing.write_notes(_new_topics(changes))
    return writing.made


def _new_topics(changes: Iterable[ProposedChange]) -> set[str]:
    """Return the topics whose brokers need no notification of settings: they were created or deleted."""
    created = {change.topic.name for change in changes if isinstance(change, TopicCreated)}
    deleted = {change.name for change in changes if isinstance(change, TopicDeleted)}
    return created | deleted | {change.topic for change in changes if isinstance(change, DeletionEnded)}


class _Writing:
    """The changes so far, and the nodes as they will be then: data and version, None for a missing one."""

    def __init__(
        self,
        store: MetadataStore,
        before: ClusterImage,
        changes: Sequence[ProposedChange],
        terms: WritingTerms,
        nodes: Mapping[str, Node | None],
    ) -> None:
        self._store, self._changes, self.terms = store, changes, terms
        self._before = before
        self._counts: dict[str, int] = {}  # of partitions, of topics with new ones
        self._new_topics = set[str]()
        self._nodes = {path: _content(node) for path, node in nodes.items()}
        self._changed_topics: dict[str, None] = {}
        self._entities: dict[tuple[str, str], None] = {}
        self._resources: dict[ResourcePattern, None] = {}
        self.made: list[NodeChange] = []

    @cached_property
    def after(self) -> ClusterImage:
        """The image after the changes. Raises UnknownTopicError."""
        return apply_all(self._before, self._changes, self._before.position)

    # ---- nodes

    def data(self, path: str) -> bytes | None:
        """Return the data of a node, None for a missing one."""
        node = self._at(path)
        return None if node is None else node[0]

    def _at(self, path: str) -> tuple[bytes, int] | None:
        if path not in self._nodes:
            self._nodes[path] = _content(self._store.exists(path))
        return self._nodes[path]

    def version(self, path: str) -> int:
        """Return the version of a node, `NEW_NODE` for a missing one."""
        node = self._at(path)
        return NEW_NODE if node is None else node[1]

    def put(self, path: str, data: bytes) -> None:
        """Create a node, and missing nodes above it, or change it."""
        node = self._at(path)
        if node is not None:
            self.made.append(SetNode(path, data, node[1]))
            self._nodes[path] = data, node[1] + 1
            return
        for above in paths_above(path):
            if above not in _ALWAYS_THERE and self._at(above) is None:
                self._create(above, b"")
        self._create(path, data)

    def _create(self, path: str, data: bytes) -> None:
        self.made.append(CreateNode(path, data))
        self._nodes[path] = data, 0

    def remove(self, path: str) -> None:
        """Delete a node without children, if it exists."""
        node = self._at(path)
        if node is not None:
            self.made.append(DeleteNode(path, node[1]))
            self._nodes[path] = None

    def remove_tree(self, top: str) -> None:
        """Delete a node and all below it."""
        levels, below = [top], list[str]()
        while levels:
            names = self._store.children_many(levels)
            levels = [f"{path}/{name}" for path, own in zip(levels, names, strict=True) for name in own or ()]
            below += levels
        new = (path for path, node in self._nodes.items() if node is not None and path.startswith(f"{top}/"))
        there = [path for path in dict.fromkeys([*below, *new]) if self._nodes.get(path, ()) is not None]
        for path in sorted(there, reverse=True):  # children first
            self.made.append(DeleteNode(path))
            self._nodes[path] = None
        self.remove(top)

    # ---- topics

    def topic_created(self, name: str) -> None:
        """Note that nothing is below a topic's node yet."""
        self._counts[name] = 0
        self._new_topics.add(name)
        self._nodes[layout.partitions_path(name)] = None

    def add_partitions(self, topic: str, partitions: Sequence[PartitionImage]) -> None:
        """Write the states of a topic's new partitions, which may have none."""
        first = self._counts[topic] if topic in self._counts else len(self._before.topics[topic].partitions)
        self._counts[topic] = first + len(partitions)
        for index, partition in enumerate(partitions, first):
            if partition.known is not None:
                path = layout.state_path(topic, index)
                if topic in self._new_topics:
                    self._nodes[path] = self._nodes[path.rpartition("/")[0]] = None
                self.put_state(path, partition.known)

    def put_state(self, path: str, known: KnownState) -> None:
        """Write the state of a partition. Raises BadVersionError unless it follows the one that was read."""
        version = self.version(path)
        if version + 1 != known.version:
            why = f"expected version {known.version - 1} of the state, found {version}"
            raise BadVersionError(path, why)
        self.put(path, layout.dump_state(known.state))

    def topic_changed(self, name: str) -> None:
        """Write the replicas of a topic later, once for all of its changes."""
        self._changed_topics[name] = None

    def forget_topic(self, name: str) -> None:
        self._changed_topics.pop(name, None)

    def write_topics(self) -> None:
        for name in self._changed_topics:
            path = layout.topic_path(name)
            if self.data(path) is None:
                raise BadVersionError(path, "the topic was deleted")
            self.put(path, _topic_data(self.after.topics[name]))

    # ---- notifications of brokers

    def settings_changed(self, kind: str, name: str) -> None:
        self._entities[kind, name] = None

    def acls_changed(self, resource: ResourcePattern) -> None:
        self._resources[resource] = None

    def write_notes(self, new_topics: set[str]) -> None:
        """Notify brokers of changed settings and ACLs, and delete old notifications."""
        protocol = self.terms.protocol
        entities = [each for each in self._entities if each[0] != EntityKind.TOPIC.value or each[1] not in new_topics]
        notes = [
            (f"{layout.GROUP_CHANGES}/", layout.dump_config_change(*each))
            if each[0] == EntityKind.GROUP.value
            else (layout.CONFIG_CHANGE, config_change(*each, protocol))
            for each in entities
        ]
        is_old = not knows_prefixed_acls(protocol)
        notes += [acl_nodes.acl_change(each, is_old=is_old) for each in self._resources]
        for parent in dict.fromkeys(path.rpartition("/")[0] for path, _ in notes):
            self.made += self._old_notes(parent)
        self.made += [CreateNode(path, data, sequence=True) for path, data in notes]

    def _old_notes(self, parent: str) -> list[NodeChange]:
        (names,) = self._store.children_many([parent])
        if names is None:
            self.put(parent, b"")
            return []
        paths = [f"{parent}/{name}" for name in names[:_MOST_NOTES]]
        nodes = zip(paths, self._store.get_many(paths), strict=True)
        oldest = self.terms.now_ms - _NOTES_KEPT_MS
        return [DeleteNode(path) for path, node in nodes if node is not None and node.ctime_ms < oldest]


def _content(node: Node | None) -> tuple[bytes, int] | None:
    return None if node is None else (node.data, node.version)


def _topic_data(topic: TopicImage) -> bytes:
    partitions = topic.partitions
    return TopicNode(
        {index: each.replicas for index, each in enumerate(partitions)},
        topic.id,
        {index: each.move.adding for index, each in enumerate(partitions) if each.move.adding},
        {index: each.move.removing for index, each in enumerate(partitions) if each.move.removing},
    ).dump()


def _identified(writing: _Writing, change: ClusterIdentified) -> None:
    writing.put(layout.CLUSTER_ID, layout.dump_cluster_id(change.cluster_id))


def _created(writing: _Writing, change: TopicCreated) -> None:
    topic = change.topic
    path = layout.topic_path(topic.name)
    if writing.data(path) is not None:
        raise BadVersionError(path, "the topic exists already")
    writing.put(path, _topic_data(topic))
    writing.topic_created(topic.name)
    writing.add_partitions(topic.name, topic.partitions)


def _deleted(writing: _Writing, change: TopicDeleted) -> None:
    writing.forget_topic(change.name)
    writing.remove_tree(layout.topic_path(change.name))


def _id(writing: _Writing, change: TopicIdAssigned) -> None:
    writing.topic_changed(change.name)


def _grown(writing: _Writing, change: PartitionsCreated) -> None:
    writing.add_partitions(change.topic, change.partitions)
    writing.topic_changed(change.topic)


def _replicas(writing: _Writing, change: ReplicasChanged) -> None:
    writing.topic_changed(change.partition.topic)


def _state(writing: _Writing, change: PartitionStateChanged) -> None:
    path = layout.state_path(*change.partition)
    if change.known is None:
        writing.remove(path)
        return
    writing.put_state(path, change.known)


def _settings(writing: _Writing, change: SettingsChanged) -> None:
    kind, name = layout.settings_place(change.entity)
    path = layout.config_path(kind, name)
    if change.settings is None:
        writing.remove(path)
    else:
        writing.put(path, layout.dump_config(change.settings))
    writing.settings_changed(kind, name)


def _quotas(writing: _Writing, change: QuotasChanged) -> None:
    _write_limits(writing, *clients.place_of(change.entity), change.limits)


def _rate(writing: _Writing, change: ConnectionRateChanged) -> None:
    limits = {} if change.rate is None else {CONNECTION_RATE: change.rate}
    _write_limits(writing, *clients.address_place(change.address), limits)


def _write_limits(writing: _Writing, kind: str, name: str, limits: Mapping[str, float]) -> None:
    changed = dict[str, str | None](dict.fromkeys((*TYPES, CONNECTION_RATE)))
    changed |= {limit: clients.limit_text(limit, value) for limit, value in limits.items()}
    _write_client(writing, kind, name, changed)


def _credential(writing: _Writing, change: ScramCredentialChanged) -> None:
    text = None if change.credential is None else change.credential.dump()
    _write_client(writing, clients.USERS, clients.sanitised(change.user), {change.mechanism: text})


def _write_client(writing: _Writing, kind: str, name: str, changed: Mapping[str, str | None]) -> None:
    """Change some settings of a node; those of a quota that is not a number and has no new value are kept."""
    path = layout.config_path(kind, name)
    data = writing.data(path)
    before = layout.load_config(path, data) if data else {}
    after = dict(before)
    for setting, text in changed.items():
        if text is not None:
            after[setting] = text if not _is_same(before.get(setting), text) else before[setting]
        elif setting not in (*TYPES, CONNECTION_RATE) or _is_number(before.get(setting)):
            after.pop(setting, None)
    if data is not None or after:
        writing.put(path, layout.dump_config(after))
        writing.settings_changed(kind, name)


def _is_number(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def _is_same(before: str | None, text: str) -> bool:
    """Return whether a quota has this value already, perhaps in another notation."""
    return before is not None and _is_number(before) and _is_number(text) and float(before) == float(text)


def _acls(writing: _Writing, change: AclsChanged) -> None:
    resource, path = change.resource, acl_nodes.acls_path(change.resource)
    data = writing.data(path)
    before = frozenset() if data is None else acl_nodes.load_entries(path, data)
    added = {each.operation.name for each in change.entries - before}
    if added:
        is_prefixed = resource.pattern is not type(resource.pattern).LITERAL
        check_acls(resource.type.name, added, writing.terms.protocol, is_prefixed=is_prefixed)
    if change.entries == before:
        return
    if change.entries:
        entries = acl_nodes.dump_entries(change.entries)
        if len(entries) > acl_nodes.MOST_NODE_BYTES:
            why = f"expected at most {acl_nodes.MOST_NODE_BYTES} bytes of ACLs, found {len(entries)}"
            raise MetadataError(path, why)
        writing.put(path, entries)
    else:
        writing.remove(path)
    writing.acls_changed(resource)


def _feature(writing: _Writing, _change: FeatureChanged) -> None:
    writing.put(layout.FEATURES, layout.dump_features(writing.after.features))


def _producer_ids(writing: _Writing, change: ProducerIdsAllocated) -> None:
    writing.put(layout.PRODUCER_IDS, layout.dump_producer_ids(change.broker_id, change.first_of_block))


def _deletion_requested(writing: _Writing, change: DeletionRequested) -> None:
    path = f"{layout.DELETE_TOPICS}/{change.topic}"
    if writing.data(path) is None:
        writing.put(path, b"")


def _deletion_ended(writing: _Writing, change: DeletionEnded) -> None:
    writing.remove(f"{layout.DELETE_TOPICS}/{change.topic}")


def _reassignments(writing: _Writing, change: ReassignmentsRequested) -> None:
    if change.partitions:
        writing.put(layout.REASSIGNMENTS, layout.dump_reassignments(change.partitions))
    else:
        writing.remove(layout.REASSIGNMENTS)


def _elections(writing: _Writing, change: PreferredElectionsRequested) -> None:
    if change.partitions is None:
        writing.remove(layout.PREFERRED_ELECTION)
    else:
        writing.put(layout.PREFERRED_ELECTION, layout.dump_partitions(sorted(change.partitions)))


_WRITE: Final[Mapping[type, Callable[[_Writing, Any], None]]] = {
    ClusterIdentified: _identified,
    TopicCreated: _created,
    TopicDeleted: _deleted,
    TopicIdAssigned: _id,
    PartitionsCreated: _grown,
    ReplicasChanged: _replicas,
    PartitionStateChanged: _state,
    SettingsChanged: _settings,
    QuotasChanged: _quotas,
    ConnectionRateChanged: _rate,
    AclsChanged: _acls,
    ScramCredentialChanged: _credential,
    FeatureChanged: _feature,
    ProducerIdsAllocated: _producer_ids,
    DeletionRequested: _deletion_requested,
    DeletionEnded: _deletion_ended,
    ReassignmentsRequested: _reassignments,
    PreferredElectionsRequested: _elections,
}
