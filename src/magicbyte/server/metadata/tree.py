"""A tree of nodes with ZooKeeper's semantics: versions, transactions, ephemeral and sequential nodes, watches.

All of it is in memory. A persistent store passes `persist`, which makes a transaction durable before it becomes
visible. Source: the data model of ZooKeeper's programmer's guide, and the behaviour of its server.

Invariants:
1. A transaction is durable (`persist`) before any reader sees it, and seen as a whole. If `persist` fails, the tree is
   unchanged.
2. Every node except the root has a parent. Transaction numbers ascend, each is used once.
3. A watch is called once, by the thread that makes the change, with `lock` held, and before a later read by its session
   returns: it must not wait. It may use the tree, as the lock is re-entrant.
4. An ephemeral node is deleted with its session.

Any thread may call a session. `test_contract.py` has 1 to 4 for each store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from magicbyte.engine.errors import (
    BadVersionError,
    MetadataError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from magicbyte.engine.ports import CheckNode, CreateNode, DeleteNode, Node, NodeChange, NodeEvent, SetNode, Watch

if TYPE_CHECKING:
    from magicbyte.engine.ports import Clock

ROOT = "/"
FIRST_SESSION = 1
SESSION_TIMEOUT_MS = 18_000
"""The default of Kafka's `zookeeper.session.timeout.ms`."""


class StoredNode(Struct, frozen=True):
    """A node. `created` counts all children that it ever had: the next sequence number."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    created: int
    ephemeral_owner: int


_SessionWatch: TypeAlias = tuple[int, Watch]
"""A watch, and the session that set it."""

Persist = Callable[[Mapping[str, StoredNode | None], int], None]
"""Makes a transaction durable: the changed nodes, None for deleted ones, and its number."""


class _Change(Struct):
    """A transaction in preparation: its changes, and its events in order."""

    zxid: int
    now_ms: int
    nodes: dict[str, StoredNode | None] = field(default_factory=dict)
    children: dict[str, set[str]] = field(default_factory=dict)
    events: list[tuple[NodeEvent, str]] = field(default_factory=list)


class Tree:
    """The nodes, by path, and the sessions: each call of a session holds `lock`."""

    def __init__(
        self, clock: Clock, persist: Persist, nodes: Mapping[str, StoredNode] | None = None, last_zxid: int = 0
    ) -> None:
        self.lock = threading.RLock()
        self._clock, self._persist = clock, persist
        self._nodes = dict(nodes or {ROOT: StoredNode(b"", 0, 0, 0, 0, 0, 0, 0, 0)})
        self._children: dict[str, set[str]] = {}
        for path in self._nodes:
            if path != ROOT:
                parent, name = _split(path)
                self._children.setdefault(parent, set()).add(name)
        self._data_watches: dict[str, list[_SessionWatch]] = {}
        self._child_watches: dict[str, list[_SessionWatch]] = {}
        self.last_zxid = last_zxid
        self._last_session = FIRST_SESSION - 1

    def session(self) -> Session:
        """Return a new view of the tree."""
        self._last_session += 1
        return Session(self, self._last_session)

    def expire_all(self) -> None:
        """Delete all ephemeral nodes, which belong to sessions of an earlier process."""
        self._expire(path for path, node in self._nodes.items() if node.ephemeral_owner)

    def expire(self, session: int) -> None:
        """Delete the ephemeral nodes of a session."""
        self._expire(path for path, node in self._nodes.items() if node.ephemeral_owner == session)

    def _expire(self, paths: Iterable[str]) -> None:
        gone = sorted(paths)
        if gone:
            change = self._begin()
            for path in gone:
                self._delete(change, path, -1)
            self._commit(change)

    def drop_watches(self, session: int) -> list[tuple[str, Watch]]:
        """Remove the watches of a session; return each with its path, once."""
        dropped: dict[tuple[str, Watch], None] = {}
        for watches in (self._data_watches, self._child_watches):
            for path, waiting in list(watches.items()):
                dropped |= dict.fromkeys((path, watch) for owner, watch in waiting if owner == session)
                watches[path] = [each for each in waiting if each[0] != session]
                if not watches[path]:
                    del watches[path]
        return list(dropped)

    # ---- reading

    def has(self, path: str) -> bool:
        """Return whether a node exists."""
        check_path(path)
        return path in self._nodes

    def find(self, path: str, watch: Watch | None, session: int) -> Node | None:
        """Return a node or None, and watch its creation, change and deletion."""
        check_path(path)
        if watch is not None:
            self._data_watches.setdefault(path, []).append((session, watch))
        stored = self._nodes.get(path)
        return None if stored is None else self._node(path, stored)

    def get(self, path: str, watch: Watch | None, session: int) -> Node:
        """Return a node. Raises NoNodeError; then no watch is set."""
        check_path(path)
        if path not in self._nodes:
            raise NoNodeError(path, "there is no such node")
        found = self.find(path, watch, session)
        assert found is not None
        return found

    def children(self, path: str, watch: Watch | None, session: int) -> list[str]:
        """Return the names of the children, sorted. Raises NoNodeError."""
        check_path(path)
        if path not in self._nodes:
            raise NoNodeError(path, "there is no such node")
        if watch is not None:
            self._child_watches.setdefault(path, []).append((session, watch))
        return sorted(self._children.get(path, ()))

    def _node(self, path: str, stored: StoredNode) -> Node:
        count = len(self._children.get(path, ()))
        return Node(
            data=stored.data,
            version=stored.version,
            czxid=stored.czxid,
            mzxid=stored.mzxid,
            pzxid=stored.pzxid,
            ctime_ms=stored.ctime_ms,
            mtime_ms=stored.mtime_ms,
            cversion=2 * stored.created - count,  # one for each creation, and one for each deletion, of a child
            ephemeral_owner=stored.ephemeral_owner,
            child_count=count,
        )

    # ---- changing

    def apply(self, changes: Sequence[NodeChange], session: int) -> list[str]:
        """Make all changes in one transaction, or none; return the path of each."""
        change = self._begin()
        done = [self._one(change, each, session) for each in changes]
        self._commit(change)
        return done

    def _begin(self) -> _Change:
        return _Change(self.last_zxid + 1, self._clock.now_ms())

    def _one(self, change: _Change, asked: NodeChange, session: int) -> str:
        sequence = isinstance(asked, CreateNode) and asked.sequence
        check_path(f"{asked.path}0" if sequence else asked.path)  # the digits may be the whole name
        match asked:
            case CreateNode():
                return self._create(change, asked, session)
            case SetNode():
                self._set(change, asked)
            case CheckNode():
                _check_version(asked.path, self._known(change, asked.path), asked.version)
            case _:
                self._delete(change, asked.path, asked.version)
        return asked.path

    def _find(self, change: _Change, path: str) -> StoredNode | None:
        return change.nodes[path] if path in change.nodes else self._nodes.get(path)

    def _known(self, change: _Change, path: str) -> StoredNode:
        found = self._find(change, path)
        if found is None:
            raise NoNodeError(path, "there is no such node")
        return found

    def _names(self, change: _Change, path: str) -> set[str]:
        """Return the names of the children in the transaction, which may be modified."""
        if path not in change.children:
            change.children[path] = set(self._children.get(path, ()))
        return change.children[path]

    def _create(self, change: _Change, asked: CreateNode, session: int) -> str:
        if asked.path == ROOT and not asked.sequence:
            raise NodeExistsError(ROOT, "the node already exists")
        parent, name = _split(asked.path)
        above = self._known(change, parent)
        path = asked.path
        if asked.sequence:
            path, name = f"{path}{above.created:010d}", f"{name}{above.created:010d}"
        if self._find(change, path) is not None:
            raise NodeExistsError(path, "the node already exists")
        if above.ephemeral_owner:
            raise NoChildrenForEphemeralsError(parent, "the node is ephemeral and has no children")
        zxid, now = change.zxid, change.now_ms
        change.nodes[path] = StoredNode(asked.data, 0, zxid, zxid, zxid, now, now, 0, session if asked.ephemeral else 0)
        change.nodes[parent] = replace(above, created=above.created + 1, pzxid=zxid)
        self._names(change, parent).add(name)
        change.events += [(NodeEvent.CREATED, path), (NodeEvent.CHILDREN_CHANGED, parent)]
        return path

    def _set(self, change: _Change, asked: SetNode) -> None:
        known = self._known(change, asked.path)
        _check_version(asked.path, known, asked.version)
        change.nodes[asked.path] = replace(
            known, data=asked.data, version=known.version + 1, mzxid=change.zxid, mtime_ms=change.now_ms
        )
        change.events.append((NodeEvent.DATA_CHANGED, asked.path))

    def _delete(self, change: _Change, path: str, version: int) -> None:
        if path == ROOT:
            raise MetadataError(ROOT, "the root cannot be deleted")
        _check_version(path, self._known(change, path), version)
        if self._names(change, path):
            raise NotEmptyError(path, "the node has children")
        parent, name = _split(path)
        change.nodes[path] = None
        change.nodes[parent] = replace(self._known(change, parent), pzxid=change.zxid)
        self._names(change, parent).remove(name)
        change.events += [(NodeEvent.DELETED, path), (NodeEvent.CHILDREN_CHANGED, parent)]

    def _commit(self, change: _Change) -> None:
        self._persist(change.nodes, change.zxid)
        self.last_zxid = change.zxid
        for path, stored in change.nodes.items():
            if stored is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = stored
        for path, names in change.children.items():
            if names:
                self._children[path] = names
            else:
                self._children.pop(path, None)
        for event, path in change.events:
            self._tell(event, path)

    def _tell(self, event: NodeEvent, path: str) -> None:
        called: list[_SessionWatch] = []
        if event is not NodeEvent.CHILDREN_CHANGED:
            called += self._data_watches.pop(path, [])
        if event in (NodeEvent.CHILDREN_CHANGED, NodeEvent.DELETED):
            called += self._child_watches.pop(path, [])
        for _, watch in dict.fromkeys(called):  # a watch of both is called once
            watch(event, path)


class Session:
    """A `ports.MetadataStore`: one session's view of a tree."""

    def __init__(self, tree: Tree, session_id: int) -> None:
        self.tree, self.session_id = tree, session_id
        self._ended = False

    def get(self, path: str, watch: Watch | None = None) -> Node:
        """Return a node, and watch its data. Raises NoNodeError."""
        with self.tree.lock:
            return self._alive().get(path, watch, self.session_id)

    def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """Return a node or None, and watch its creation, change and deletion."""
        with self.tree.lock:
            return self._alive().find(path, watch, self.session_id)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted, and watch their creation and deletion. Raises NoNodeError."""
        with self.tree.lock:
            return self._alive().children(path, watch, self.session_id)

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Return nodes, None for each that does not exist, and watch those that do."""
        with self.tree.lock:
            tree = self._alive()
            return [tree.get(path, watch, self.session_id) if tree.has(path) else None for path in paths]

    def children_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[list[str] | None]:
        """Return the names of the children of nodes, None for each node that does not exist."""
        with self.tree.lock:
            tree = self._alive()
            return [tree.children(path, watch, self.session_id) if tree.has(path) else None for path in paths]

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Create a node, and with `parents` the missing nodes above it; return its path.

        Raises NodeExistsError, NoNodeError, NoChildrenForEphemeralsError.
        """
        with self.tree.lock:
            changes = [CreateNode(above) for above in paths_above(path) if not self.exists(above)] if parents else []
            return self.transaction([*changes, CreateNode(path, data, ephemeral, sequence)])[-1]

    def set(self, path: str, data: bytes, version: int = -1) -> Node:
        """Change a node's data; return the node. Raises NoNodeError, BadVersionError."""
        with self.tree.lock:
            self.transaction([SetNode(path, data, version)])
            return self.get(path)

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a node. Raises NoNodeError, NotEmptyError, BadVersionError."""
        self.transaction([DeleteNode(path, version)])

    def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        """Make all changes or none: raise the error of the first impossible one; return the path of each."""
        with self.tree.lock:
            return self._alive().apply(changes, self.session_id)

    def close(self) -> None:
        """End the session: its watches and ephemeral nodes are deleted."""
        with self.tree.lock:
            if not self._ended:
                self.tree.drop_watches(self.session_id)
                self.tree.expire(self.session_id)
                self._ended = True

    def _alive(self) -> Tree:
        if self._ended:
            raise SessionExpiredError(ROOT, f"session {self.session_id} has ended")
        return self.tree


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or ROOT, name


def paths_above(path: str) -> list[str]:
    """Return the paths above a path, without the root, the topmost first."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _check_version(path: str, node: StoredNode, expected: int) -> None:
    if expected not in (-1, node.version):
        raise BadVersionError(path, f"expected version {expected}, found {node.version}")


def check_stored(path: str, node: StoredNode) -> None:
    """Raise MetadataError for impossible values of a stored node."""
    numbers = (
        *(node.version, node.czxid, node.mzxid, node.pzxid, node.ctime_ms, node.mtime_ms),
        *(node.created, node.ephemeral_owner),
    )
    if not isinstance(path, str) or not isinstance(node.data, bytes) or not all(type(each) is int for each in numbers):
        raise MetadataError(str(path), "expected text, bytes and numbers")
    if not path.startswith("/") or (path != "/" and not all(path.split("/")[1:])):
        raise MetadataError(path, "expected a path such as /brokers/ids")


def check_path(path: str) -> None:
    """Raise MetadataError unless a path is absolute and normalized."""
    parts = path.split("/")[1:]
    if path != ROOT and (not path.startswith("/") or not all(parts) or {".", ".."} & set(parts) or "\0" in path):
        raise MetadataError(path, "expected a path such as /brokers/ids")
