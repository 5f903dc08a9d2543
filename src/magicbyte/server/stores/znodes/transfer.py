"""Transfer a metadata tree between the store beside the logs and a ZooKeeper.

Persistent state is transferred: topics, partitions, settings, ids, offsets of old consumers. Left out are ephemeral
nodes of running brokers, notifications to them, and nodes of our brokers only. `docs/commands/metadata.md` describes
how a directory changes hands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Protocol

from msgspec import Struct

from magicbyte.engine.errors import MetadataError
from magicbyte.engine.ports import Node
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.releases import MAGIC_AS_RELEASE
from magicbyte.server.stores.znodes import layout

_TOLD: Final = ("/config/changes", "/isr_change_notification", "/log_dir_event_notification")
"""The roots of notifications to brokers that were running then."""
_ZOOKEEPERS_OWN: Final = "/zookeeper"
_TOPIC_SETTINGS: Final = f"{layout.CONFIG}/topics"
_ACLS: Final = "/kafka-acl"
_FORMAT: Final = "message.format.version"


class Keeper(Protocol):
    """The part of a `MetadataStore` that is needed here."""

    def get(self, path: str) -> Node:
        """Return a node. Raises NoNodeError."""

    def exists(self, path: str) -> Node | None:
        """Return a node or None."""

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children. Raises NoNodeError."""

    def create(self, path: str, data: bytes = b"", *, parents: bool = False) -> str:
        """Create a node; return its path. Raises NodeExistsError, NoNodeError."""

    def set(self, path: str, data: bytes) -> Node:
        """Change a node's data. Raises NoNodeError."""


class Transferred(Struct, frozen=True):
    """The transferred nodes. `left_out`: settings of topics, by topic, that Kafka's brokers do not have."""

    nodes: int
    topics: int
    left_out: Mapping[str, tuple[str, ...]]


def transfer(source: Keeper, target: Keeper, *, ours: Collection[str] = ()) -> Transferred:
    """Copy the tree. `ours`: settings that only our brokers have; they are left out, and formats are named by release.

    The target may have the nodes that a broker creates at its first start. Raises MetadataError, without changes, if it
    belongs to another cluster or has topics; an interrupted transfer can be repeated.
    """
    nodes, left_out = {}, {}
    for path, data in _lasting(source, "/"):
        if ours and path.startswith(_TOPIC_SETTINGS + "/"):
            topic = path.rpartition("/")[2]
            data, gone = _for_kafka(path, data, ours)
            if gone:
                left_out[topic] = gone
        nodes[path] = data
    if ours:
        # Kafka creates the roots of ACLs by type of resource itself, as far as the release knows them: an unknown one
        # keeps it from starting.
        above = {path.rpartition("/")[0] for path in nodes}
        nodes = {path: data for path, data in nodes.items() if data or path in above or not path.startswith(_ACLS)}
    _check(nodes, target)
    # Topics come last: after an interrupted transfer none is without its settings, whose records would be deleted.
    for path, data in sorted(nodes.items(), key=lambda item: item[0].startswith(layout.TOPICS)):
        known = target.exists(path)
        if known is None:
            target.create(path, data, parents=True)
        elif known.data != data and data:
            target.set(path, data)
    topics = sum(path.rpartition("/")[0] == layout.TOPICS for path in nodes)
    return Transferred(len(nodes), topics, left_out)


def _lasting(source: Keeper, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the persistent nodes below a node, parents first."""
    for name in source.children(path):
        child = f"{path.rstrip('/')}/{name}"
        node = source.get(child)
        if node.ephemeral_owner or child in (_ZOOKEEPERS_OWN, layout.OURS):
            continue
        yield child, node.data
        if child not in _TOLD:
            yield from _lasting(source, child)


def _for_kafka(path: str, data: bytes, ours: Collection[str]) -> tuple[bytes, tuple[str, ...]]:
    settings = layout.load_config(path, data)
    kept = {name: value for name, value in settings.items() if name not in ours}
    if kept.get(_FORMAT) == Dialect.ENRICHED.value:
        raise MetadataError(path, "holds enriched sets, which Kafka's brokers cannot read: convert or delete the topic")
    if _FORMAT in kept:
        kept[_FORMAT] = MAGIC_AS_RELEASE.get(kept[_FORMAT], kept[_FORMAT])
    return layout.dump_config(kept), tuple(sorted(settings.keys() - kept.keys()))


def _check(nodes: Mapping[str, bytes], target: Keeper) -> None:
    """Raise MetadataError unless the target has no cluster id, or this one and no other topics."""
    known = target.exists(layout.CLUSTER_ID)
    ours = nodes.get(layout.CLUSTER_ID)
    if known is not None and ours is not None:
        there, here = layout.load_cluster_id(known.data), layout.load_cluster_id(ours)
        if there != here:
            raise MetadataError(layout.CLUSTER_ID, f"the target is of cluster {there}, the source of {here}")
    names = target.children(layout.TOPICS) if target.exists(layout.TOPICS) is not None else []
    for name in names:
        path = layout.topic_path(name)
        if path not in nodes:
            raise MetadataError(path, "the target has this topic, but the source does not")
        ids = {layout.TopicNode.load(name, data).topic_id for data in (nodes[path], target.get(path).data)} - {None}
        if len(ids) > 1:
            raise MetadataError(path, "the target has another topic of this name")
