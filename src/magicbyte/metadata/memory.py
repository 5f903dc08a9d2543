"""A metadata tree that lives as long as the process: for tests, and for simulated clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.metadata.tree import Session, StoredNode, Tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magicbyte.ports import Clock


class MemoryTree(Tree):
    """A tree of which nothing is kept. `session` gives each broker its own view."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, _forget)


class MemoryStore(Session):
    """The only session of a tree of its own."""

    def __init__(self, clock: Clock) -> None:
        only = MemoryTree(clock).session()
        super().__init__(only.tree, only.session_id)


def _forget(_nodes: Mapping[str, StoredNode | None], _zxid: int) -> None:
    """Keep nothing."""
