"""A metadata tree in memory, for tests and simulated clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.server.metadata.tree import Session, StoredNode, Tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magicbyte.engine.ports import Clock


class MemoryTree(Tree):
    """A tree that is not persisted. `session` gives each broker its own view."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, _forget)


class MemoryStore(Session):
    """The only session of a tree of its own."""

    def __init__(self, clock: Clock) -> None:
        only = MemoryTree(clock).session()
        super().__init__(only.tree, only.session_id)


def _forget(_nodes: Mapping[str, StoredNode | None], _zxid: int) -> None:
    """Persist nothing."""
