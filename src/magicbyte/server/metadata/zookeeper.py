"""A ZooKeeper session, through kazoo. Needs the extra `cluster`.

kazoo has one thread for the connection and one for callbacks. Watches, session events and the results of calls go
through that one thread, in the order in which ZooKeeper sent them. Source: ZooKeeper's programmer's guide.
"""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import Create
from kazoo.protocol.states import Callback, EventType, KazooState
from kazoo.security import OPEN_ACL_UNSAFE

from magicbyte.engine.addresses import zookeeper_addresses
from magicbyte.engine.errors import (
    BadVersionError,
    InvalidConfigError,
    MetadataError,
    NetworkError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    UnknownOutcomeError,
)
from magicbyte.engine.ports import CheckNode, CreateNode, DeleteNode, Node, NodeChange, NodeEvent, SessionEvent, SetNode
from magicbyte.server.metadata.tree import ROOT, SESSION_TIMEOUT_MS, check_path, paths_above

if TYPE_CHECKING:
    from kazoo.interfaces import IAsyncResult
    from kazoo.protocol.states import WatchedEvent, ZnodeStat
    from kazoo.security import ACL

    from magicbyte.engine.ports import SessionListener, Watch

    class SessionSecurity(Protocol):
        """How a session is secured."""

        def of_client(self) -> dict[str, Any]:
            """Return the arguments of a client of kazoo."""

        def acl_of(self, path: str) -> list[ACL]:
            """Return the ACL of a new node."""


MAX_REQUEST_BYTES: Final = 0xFFFFF
"""The default of ZooKeeper's `jute.maxbuffer`. A server closes the connection on a larger request."""

_CHANGE_OVERHEAD: Final = 96  # an upper bound of headers, ACL, flags and lengths besides path and data
_PIPELINED: Final = 500  # requests in flight: kazoo is woken through a socket with a small buffer
_READ_ATTEMPTS: Final = 3
_RECONNECT: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
_EPHEMERAL: Final = 1  # flags of ZooKeeper's CreateMode
_SEQUENCE: Final = 2

_EVENTS: Final = {
    EventType.CREATED: NodeEvent.CREATED,
    EventType.DELETED: NodeEvent.DELETED,
    EventType.CHANGED: NodeEvent.DATA_CHANGED,
    EventType.CHILD: NodeEvent.CHILDREN_CHANGED,
}

_REFUSALS: Final[dict[type[Exception], tuple[type[MetadataError], str]]] = {
    kazoo_errors.NoNodeError: (NoNodeError, "the node, or its parent, does not exist"),
    kazoo_errors.NodeExistsError: (NodeExistsError, "the node exists already"),
    kazoo_errors.BadVersionError: (BadVersionError, "the node has another version than the expected one"),
    kazoo_errors.NotEmptyError: (NotEmptyError, "the node has children"),
    kazoo_errors.NoChildrenForEphemeralsError: (
        NoChildrenForEphemeralsError,
        "the parent is ephemeral and cannot have children",
    ),
    kazoo_errors.SessionExpiredError: (SessionExpiredError, "the session has expired"),
    kazoo_errors.ConnectionClosedError: (SessionExpiredError, "the session is closed"),
}
_LOST: Final = (kazoo_errors.ConnectionLoss, kazoo_errors.OperationTimeoutError)
_NOT_THE_CAUSE: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""ZooKeeper's errors for the changes before and after the one that made a transaction fail."""


def _open_to_all(_path: str) -> list[ACL]:
    return list(OPEN_ACL_UNSAFE)


class _Status(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    ENDED = "ended"


class _OneOrder(SequentialThreadingHandler):  # type: ignore[misc]
    """Run callbacks for watches in the order in which results arrive; kazoo's own handler has two threads for the
    two.
    """

    def dispatch_callback(self, callback: Callback) -> None:
        """Schedule a callback after the results that arrived before."""
        self.completion_queue.put(lambda: callback.func(*callback.args))


class ZooKeeperStore:
    """A `ports.MetadataStore`: one session of the ZooKeeper at `address`, HOST:PORT[,…] with the path of its root.

    Usable from any thread. Watches and `listener` are called in a thread of kazoo; calls from there work, except for
    `close`. Each wait ends after the session timeout. A read is repeated if the connection was lost; a change is not,
    and raises UnknownOutcomeError. After SessionEvent.EXPIRED each call raises SessionExpiredError: open another store.
    Raises InvalidConfigError for an invalid address, NetworkError if no ZooKeeper responds, MetadataError if it refuses
    the session.
    """

    def __init__(
        self,
        address: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        listener: SessionListener | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        security: SessionSecurity | None = None,
    ) -> None:
        try:
            zookeeper_addresses(address)
        except ValueError as error:
            raise InvalidConfigError(f"zookeeper.connect: {error}") from error
        self._acl_of = security.acl_of if security is not None else _open_to_all
        self._address, self._listener, self._max_request_bytes = address, listener, max_request_bytes
        self._patience_s = session_timeout_ms / 1000
        self._status = _Status.SUSPENDED
        self._changed = threading.Condition()  # held to read or change the status, and to send
        self._lost_watches: list[tuple[str, Watch]] = []
        self._event: WatchedEvent | None = None
        self._called: list[Watch] = []
        self._delivering: int | None = None
        self._handler = _OneOrder()
        self._client = KazooClient(
            hosts=address,
            timeout=self._patience_s,
            handler=self._handler,
            connection_retry=_RECONNECT,
            **({} if security is None else security.of_client()),
        )
        self._client.add_listener(self._on_state)
        self.session_id = 0
        if not self._client.start_async().wait(self._patience_s):
            self.close()
            raise NetworkError(f"no ZooKeeper answers at {address}")
        self.session_id = self._client.client_id[0]
        try:
            self._make_root()
        except Exception:
            self.close()
            raise

    def _make_root(self) -> None:
        root = self._client.chroot
        for path in [*paths_above(root), root] if root else []:
            request = self._client.transaction()
            request.operations.append(Create(path, b"", self._acl_of(path), 0))
            answer = self._change(path, request.commit_async)[0]
            if isinstance(answer, Exception) and not isinstance(answer, kazoo_errors.NodeExistsError):
                raise _refusal(path, answer) from answer

    # ---- the session

    def _on_state(self, state: str) -> None:
        """Follow the connection's state. Called in its thread, before it reads or sends anything more."""
        with self._changed:
            before = self._status
            if before is _Status.ENDED:
                return
            self._status = {
                KazooState.CONNECTED: _Status.CONNECTED,
                KazooState.SUSPENDED: _Status.SUSPENDED,
            }.get(state, _Status.ENDED)
            self._changed.notify_all()
        if state == KazooState.SUSPENDED:
            self._dispatch(self._tell_session, SessionEvent.SUSPENDED)
        elif state == KazooState.CONNECTED:
            if self.session_id:
                self._dispatch(self._reconnected)
        else:
            self._dispatch(self._tell_session, SessionEvent.EXPIRED)
            self._handler.spawn(self._stop)  # otherwise kazoo would start a new session

    def _dispatch(self, call: Callable[..., None], *arguments: object) -> None:
        self._handler.dispatch_callback(Callback("session", call, arguments))

    def _tell_session(self, event: SessionEvent) -> None:
        if self._listener is not None:
            self._deliver(self._listener, event)

    def _reconnected(self) -> None:
        self._tell_session(SessionEvent.RECONNECTED)
        lost, self._lost_watches = self._lost_watches, []
        for path, watch in dict.fromkeys(lost):
            self._deliver(watch, NodeEvent.WATCH_LOST, path)

    def _watcher(self, path: str, watch: Watch | None) -> Callable[[WatchedEvent], None] | None:
        return None if watch is None else partial(self._on_watch, path, watch)

    def _on_watch(self, path: str, watch: Watch, event: WatchedEvent) -> None:
        if event.type == EventType.NONE:  # the connection is lost, and kazoo drops the watch
            self._lost_watches.append((path, watch))
            return
        if event is not self._event:
            self._event, self._called = event, []
        if watch not in self._called:  # a watch of data and children is called once
            self._called.append(watch)
            self._deliver(watch, _EVENTS[event.type], event.path)

    def _deliver(self, call: Callable[..., None], *arguments: object) -> None:
        self._delivering = threading.get_ident()
        try:
            call(*arguments)
        finally:
            self._delivering = None

    def close(self) -> None:
        """End the session: its ephemeral nodes are deleted."""
        with self._changed:
            was_ended = self._status is _Status.ENDED
            self._status = _Status.ENDED
            self._changed.notify_all()
        if not was_ended:
            self._stop()

    def _stop(self) -> None:
        with contextlib.suppress(kazoo_errors.WriterNotClosedException):  # then the session ends by its timeout
            self._client.stop()
            self._client.close()

    # ---- reading

    def get(self, path: str, watch: Watch | None = None) -> Node:
        """Return a node, and watch its data. Raises NoNodeError."""
        (node,) = self.get_many([path], watch)
        if node is None:
            raise NoNodeError(path, "the node does not exist")
        return node

    def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """Return a node or None, and watch its creation, change and deletion."""
        while True:
            (node,) = self.get_many([path], watch)
            if node is not None or watch is None:
                return node
            (stat,) = self._read([path], partial(self._client.exists_async, watch=self._watcher(path, watch)))
            if stat is None:
                return None  # otherwise it was created in between: it is watched twice, and called once

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted, and watch their creation and deletion. Raises NoNodeError."""
        (names,) = self.children_many([path], watch)
        if names is None:
            raise NoNodeError(path, "the node does not exist")
        return names

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Return nodes (None for those that do not exist) and watch those that exist, in one round trip."""
        found = self._read(paths, lambda path: self._client.get_async(path, watch=self._watcher(path, watch)))
        return [None if each is None else _node(*each) for each in found]

    def children_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[list[str] | None]:
        """Return the names of the children of nodes, None for nodes that do not exist, in one round trip."""
        found = self._read(paths, lambda path: self._client.get_children_async(path, watch=self._watcher(path, watch)))
        return [None if each is None else sorted(each) for each in found]

    def _read(self, paths: Sequence[str], begin: Callable[[str], IAsyncResult]) -> list[Any]:
        """Return the result for each path, None for a missing node."""
        for path in paths:
            check_path(path)
        answers: list[Any] = []
        for start in range(0, len(paths), _PIPELINED):
            answers += self._read_some(paths[start : start + _PIPELINED], begin)
        return answers

    def _read_some(self, paths: Sequence[str], begin: Callable[[str], IAsyncResult]) -> list[Any]:
        for _ in range(_READ_ATTEMPTS):
            pending = self._send(paths[0], lambda: [begin(path) for path in paths])
            if not self._arrived(pending[-1]):  # responses arrive in order
                break
            if not any(isinstance(each.exception, _LOST) for each in pending):
                return [_answer(path, each) for path, each in zip(paths, pending, strict=True)]
        raise NetworkError(f"cannot read {paths[0]}: the connection to ZooKeeper at {self._address} was lost")

    # ---- changing

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Create a node, and with `parents` the missing nodes above it; return its path.

        Raises NodeExistsError, NoNodeError, NoChildrenForEphemeralsError.
        """
        change = CreateNode(path, data, ephemeral, sequence)
        try:
            return self.transaction([change])[0]
        except NoNodeError:
            if not parents:
                raise
        for above in paths_above(path):
            try:
                self.transaction([CreateNode(above)])
            except NodeExistsError:  # or another session was faster
                continue
        return self.transaction([change])[0]

    def set(self, path: str, data: bytes, version: int = -1) -> Node:
        """Change a node's data; return the node. Raises NoNodeError, BadVersionError."""
        self._check_size([SetNode(path, data, version)])
        return _node(data, self._change(path, partial(self._client.set_async, path, data, version)))

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a node. Raises NoNodeError, NotEmptyError, BadVersionError."""
        self._check_size([DeleteNode(path, version)])
        self._change(path, partial(self._client.delete_async, path, version))

    def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        """Make all changes or none: raise the error of the first impossible one; return the path of each.

        Raises MetadataError for more bytes than ZooKeeper accepts in one request: the caller must split the changes.
        """
        if not changes:
            return []
        self._check_size(changes)
        request = self._client.transaction()
        for change in changes:
            self._add(request, change)
        answers = self._change(changes[0].path, request.commit_async)
        for change, answer in zip(changes, answers, strict=True):
            if isinstance(answer, Exception) and not isinstance(answer, _NOT_THE_CAUSE):
                raise _refusal(change.path, answer) from answer
        return [
            answer if isinstance(answer, str) else change.path for change, answer in zip(changes, answers, strict=True)
        ]

    def _add(self, request: Any, change: NodeChange) -> None:
        match change:
            case CreateNode():  # kazoo's own method strips the last slash of a sequential node without a name
                flags = change.ephemeral * _EPHEMERAL | change.sequence * _SEQUENCE
                path = self._client.chroot + change.path if change.path != ROOT else self._client.chroot or ROOT
                request.operations.append(Create(path, change.data, self._acl_of(change.path), flags))
            case SetNode():
                request.set_data(change.path, change.data, change.version)
            case DeleteNode():
                request.delete(change.path, change.version)
            case CheckNode():
                request.check(change.path, change.version)

    def _check_size(self, changes: Sequence[NodeChange]) -> None:
        """Check the paths, and that ZooKeeper accepts the changes in one request."""
        size = 0
        for change in changes:
            sequence = isinstance(change, CreateNode) and change.sequence
            check_path(f"{change.path}0" if sequence else change.path)
            data = change.data if isinstance(change, CreateNode | SetNode) else b""
            size += _CHANGE_OVERHEAD + len(self._client.chroot) + len(change.path.encode()) + len(data)
        if size > self._max_request_bytes:
            raise MetadataError(
                changes[0].path,
                f"cannot send {len(changes)} changes of {size} bytes in one request: ZooKeeper takes "
                f"{self._max_request_bytes} (jute.maxbuffer); split the changes",
            )

    def _change(self, path: str, begin: Callable[[], IAsyncResult]) -> Any:
        pending = self._send(path, begin)
        if not self._arrived(pending) or isinstance(pending.exception, _LOST):
            raise UnknownOutcomeError(
                f"the connection to ZooKeeper at {self._address} was lost before the response to a change of {path}: "
                "the change may have been made"
            )
        if pending.exception is not None:
            raise _refusal(path, pending.exception) from pending.exception
        return pending.value

    # ---- requests

    def _send(self, path: str, begin: Callable[[], Any]) -> Any:
        """Send while the session is connected. Under the lock, so that nothing is sent in a later session."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._status is not _Status.SUSPENDED, self._patience_s):
                raise NetworkError(f"cannot read or change {path}: no ZooKeeper answers at {self._address}")
            if self._status is _Status.ENDED:
                raise SessionExpiredError(path, "the session has expired or is closed")
            return begin()

    def _arrived(self, pending: IAsyncResult) -> bool:
        """Wait for a response, and for the watches that ZooKeeper sent before it; False after a timeout."""
        if self._delivering == threading.get_ident():
            return bool(pending.wait(self._patience_s))
        arrived = threading.Event()
        pending.rawlink(lambda _: arrived.set())
        return arrived.wait(self._patience_s)


def _answer(path: str, pending: IAsyncResult) -> Any:
    if isinstance(pending.exception, kazoo_errors.NoNodeError):
        return None
    if pending.exception is not None:
        raise _refusal(path, pending.exception) from pending.exception
    return pending.value


def _refusal(path: str, error: Exception) -> MetadataError:
    kind, why = _REFUSALS.get(type(error), (MetadataError, f"ZooKeeper refuses: {error!r}"))
    return kind(path, why)


def _node(data: bytes | None, stat: ZnodeStat) -> Node:
    return Node(
        data=data or b"",
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=stat.pzxid,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        child_count=stat.numChildren,
    )
