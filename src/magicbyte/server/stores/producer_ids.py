"""The producer ids that a broker gives to producers, from blocks that it reserves in its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.engine.cluster.changes import PRODUCER_ID_BLOCK, ProducerIdsAllocated
from magicbyte.engine.cluster.producer_ids import next_block
from magicbyte.engine.cluster.store import change
from magicbyte.engine.errors import MagicbyteError, NoProducerIdError
from magicbyte.engine.printable import logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine
    from typing import Any

    from magicbyte.engine.cluster.changes import ProposedChange
    from magicbyte.engine.cluster.image import ClusterImage
    from magicbyte.engine.cluster.store import ClusterStore
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.server.serving.runtime import Runtime

log = logger(__name__)


class ProducerIds:
    """Give unique producer ids, across restarts.

    A block is durable in the store before any id of it is used; the rest of it is lost with the process. `directory` is
    held to reserve one. `last_in_logs` returns the largest id in the logs.
    """

    def __init__(
        self,
        store: ClusterStore,
        broker_id: int,
        directory: asyncio.Lock,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        last_in_logs: Callable[[], int] = lambda: -1,
    ) -> None:
        self._store, self._broker_id, self._last_in_logs = store, broker_id, last_in_logs
        self._directory, self._spawn = directory, spawn
        self._next = self._end = 0

    @classmethod
    def of(cls, store: ClusterStore, runtime: Runtime, logs: LogDirectory) -> ProducerIds:
        """Return those of a broker."""

        def last_in_logs() -> int:
            known = (each.producer_id for log in logs.logs.values() for each in log.producers.snapshot().producers)
            return max(known, default=-1)

        return cls(store, runtime.node_id, runtime.directory, runtime.spawn, last_in_logs)

    def next(self) -> int:
        """Return a unique id. Raises NoProducerIdError without one; then a block is reserved soon."""
        if self._next == self._end:
            self._spawn(self._fill_soon())
            raise NoProducerIdError("the broker has no producer id left, and is about to reserve others")
        self._next += 1
        return self._next - 1

    async def fill(self) -> None:
        """Reserve a block, unless an id is left: `next` has one until the caller awaits anything.

        Raises as `ClusterStore.propose` does.
        """
        while self._next == self._end:
            async with self._directory:
                if self._next == self._end:
                    self._next = await self.reserve(self._broker_id)
                    self._end = self._next + PRODUCER_ID_BLOCK

    async def _fill_soon(self) -> None:
        try:
            await self.fill()
        except MagicbyteError as error:
            log.warning("no producer ids could be reserved: %s", error)

    async def reserve(self, broker_id: int) -> int:
        """Reserve the next block for a broker; return its first id. Raises as `ClusterStore.propose` does."""
        block: ProducerIdsAllocated

        def decide(image: ClusterImage) -> list[ProposedChange]:
            nonlocal block
            block = next_block(image, broker_id, self._last_in_logs)
            return [block]

        await change(self._store, decide)
        return block.first_of_block
