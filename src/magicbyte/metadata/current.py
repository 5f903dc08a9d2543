"""The tree as the current session of several sees it: a session that has expired is replaced by a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magicbyte.errors import NetworkError

if TYPE_CHECKING:
    from magicbyte.ports import MetadataStore, Node, NodeChange, Watch


class CurrentStore:
    """A `ports.MetadataStore` that hands each call to the store of the current session. Raises what that does."""

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
        """Return a node, None if it is not there, and watch for it to come, change or go."""
        return self._current.exists(path, watch)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted, and watch for them to come or go. Raises NoNodeError."""
        return self._current.children(path, watch)

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Return nodes, None for each that does not exist, and watch those that do: with one wait for all."""
        return self._current.get_many(paths, watch)

    def children_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[list[str] | None]:
        """Return the names of the children of nodes, None for each node that does not exist: with one wait for all."""
        return self._current.children_many(paths, watch)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Make a node, with `parents` those above it, too; return its path."""
        return self._current.create(path, data, ephemeral=ephemeral, sequence=sequence, parents=parents)

    def set(self, path: str, data: bytes, version: int = -1) -> Node:
        """Change a node's data; return the node. Raises NoNodeError, BadVersionError."""
        return self._current.set(path, data, version)

    def delete(self, path: str, version: int = -1) -> None:
        """Take a node away. Raises NoNodeError, NotEmptyError, BadVersionError."""
        self._current.delete(path, version)

    def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        """Make all of the changes, or raise what the first impossible one raises; return the path of each."""
        return self._current.transaction(changes)

    def close(self) -> None:
        """End the session: its ephemeral nodes go."""
        self._current.close()
