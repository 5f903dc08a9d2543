"""The nodes of partition states, as leaders before 2.7 write them, and their notifications of the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.server.stores.znodes import layout

if TYPE_CHECKING:
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.server.metadata.on_loop import LoopStore


class StateNodes:
    """States in the tree of a cluster. `store` returns the tree in its current session. Raises NetworkError."""

    def __init__(self, store: Callable[[], LoopStore]) -> None:
        self._store = store

    async def write(self, key: TopicPartition, state: PartitionState, version: int) -> KnownState:
        """Write a state in place of the one of this version. Raises BadVersionError, NoNodeError."""
        node = await self._store().set(layout.state_path(*key), layout.dump_state(state), version)
        return KnownState(state, node.version)

    async def read(self, key: TopicPartition) -> KnownState:
        """Return a state. Raises NoNodeError, MetadataError."""
        path = layout.state_path(*key)
        node = await self._store().get(path)
        return KnownState(layout.load_state(path, node.data), node.version)

    async def notify(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Notify the controller of partitions with other in-sync replicas."""
        await self._store().create(layout.ISR_CHANGE, layout.dump_partitions(list(partitions)), sequence=True)
