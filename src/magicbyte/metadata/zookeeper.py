"""A ZooKeeper's tree, read and written node by node. Needs the extra `cluster`."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.exceptions import NodeExistsError as _NodeExistsError
from kazoo.exceptions import NoNodeError as _NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat

from magicbyte.errors import MetadataError, NetworkError, NodeExistsError, NoNodeError
from magicbyte.ports import Node

_PATIENCE_S: Final = 15.0


class ZooKeeper:
    """The tree of a ZooKeeper while the block lasts. `address`: HOST:PORT[,…] with a path of the root, if it has one.

    Raises NetworkError where none answers, MetadataError for what it refuses.
    """

    def __init__(self, address: str) -> None:
        self._client = KazooClient(hosts=address, timeout=_PATIENCE_S)
        self._address = address

    def __enter__(self) -> Self:
        try:
            self._client.start(timeout=_PATIENCE_S)
            self._client.ensure_path("/")
        except (KazooTimeoutError, KazooException) as error:
            self._client.close()
            raise NetworkError(f"no ZooKeeper answers at {self._address}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._client.stop()
        self._client.close()

    def get(self, path: str) -> Node:
        """Return a node. Raises NoNodeError."""
        try:
            data, stat = self._client.get(path)
        except _NoNodeError:
            raise NoNodeError(path, "is not there") from None
        return _node(data, stat)

    def exists(self, path: str) -> Node | None:
        """Return a node, None if it is not there."""
        try:
            return self.get(path)
        except NoNodeError:
            return None

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted. Raises NoNodeError."""
        try:
            return sorted(self._client.get_children(path))
        except _NoNodeError:
            raise NoNodeError(path, "is not there") from None

    def create(self, path: str, data: bytes = b"", *, parents: bool = False) -> str:
        """Make a node; return its path. Raises NodeExistsError, NoNodeError."""
        try:
            return str(self._client.create(path, data, makepath=parents))
        except _NodeExistsError:
            raise NodeExistsError(path, "is there") from None
        except KazooException as error:
            raise MetadataError(path, repr(error)) from error

    def set(self, path: str, data: bytes) -> Node:
        """Change a node's data. Raises NoNodeError."""
        try:
            stat = self._client.set(path, data)
        except _NoNodeError:
            raise NoNodeError(path, "is not there") from None
        return _node(data, stat)


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
