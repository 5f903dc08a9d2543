"""A metadata store that survives the expiration of sessions: an expired session is replaced by a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magicbyte.engine.errors import NetworkError

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore, Node, NodeChange, Watch


class CurrentStore:
    """A `ports.MetadataStore` that passes each call to the current session's store. Raises as that does."""

    def __init__(self) -> None:
        self._store: MetadataStore | None = None

    def renew(self, store: MetadataStore) -> None:
        """Use a new session's store from now on."""
        self._store = store

    @property
    def _current(self) -> MetadataStore:
        if self._store is None:
            raise NetworkError("there is no session of the metadata tree yet")
        return self._store

    @property
    def session_id(self) -> int:
        """The session's number, which is the `ephemeral_owner` of its ephemeral nodes."""
        return self._current.session_id

    def get(self, path: str, watch: Watch | None = None) -> Node:
        """Return a node, and watch its data. Raises NoNodeError."""
        return self._current.get(path, watch)

    def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """Return a node or None, and watch its creation, change and deletion."""
        return self._current.exists(path, watch)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted, and watch their creation and deletion. Raises NoNodeError."""
        return self._current.children(path, watch)

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Return nodes (None for those that do not exist) and watch those that exist, in one round trip."""
        return self._current.get_many(paths, watch)

    def children_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[list[str] | None]:
        """Return the names of the children of nodes, None for nodes that do not exist, in one round trip."""
        return self._current.children_many(paths, watch)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Create a node, and with `parents` the missing nodes above it; return its path."""
        return self._current.create(path, data, ephemeral=ephemeral, sequence=sequence, parents=parents)

    def set(self, path: str, data: bytes, version: int = -1) -> Node:
        """Change a node's data; return the node. Raises NoNodeError, BadVersionError."""
        return self._current.set(path, data, version)

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a node. Raises NoNodeError, NotEmptyError, BadVersionError."""
        self._current.delete(path, version)

    def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        """Make all changes or none: raise the error of the first impossible one; return the path of each."""
        return self._current.transaction(changes)

    def close(self) -> None:
        """End the session: its ephemeral nodes are deleted."""
        self._current.close()
