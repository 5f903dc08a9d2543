"""Queues of requests to other brokers: for each a queue, a connection and a task, which sends one request at a time.

The queue decides which items go together, and may merge them (`PeerQueue`). The sender of items delivers them and
reports their outcome (`deliver`). Everything is on the event loop.

Invariants:
1. The next request to a broker is made when `deliver` has returned, so it has the outcome of the one before.
2. Each item that is put is delivered once, or reported as lost: after a bug in `deliver`, or when the broker stops.
3. A bug costs the items of its request. The others are delivered.
4. A queue that has been empty for long ends with its connection. It is seen empty and forgotten without a wait in
   between, so no item is put into a queue without a task.

A request waits for the one before, also if that is slow. So each kind of item has its own `Outgoing`, with its own
connections: markers wait for replicas, and must not hold up the verification of other transactions.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from magicbyte.engine.printable import logger

if TYPE_CHECKING:
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.peers import PeerLink

log = logger(__name__)

IDLE_S: Final = 60.0  # after which a connection is closed

T = TypeVar("T")
Q = TypeVar("Q", bound="PeerQueue[Any]")


class PeerQueue(ABC, Generic[T]):
    """The items that wait for one broker. A subclass keeps them, and calls `added` when it has put one."""

    def __init__(self) -> None:
        self._has_items = asyncio.Event()

    def added(self) -> None:
        """Wake the task that sends."""
        self._has_items.set()

    @abstractmethod
    def _pop(self, most: int | None) -> list[T]:
        """Remove and return the items of the next request, at most so many; None: all."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether nothing waits."""

    def pop(self, most: int | None = None) -> list[T]:
        """Remove and return the items of the next request, at most so many; without `most`, all."""
        taken = self._pop(most)
        if self.is_empty:
            self._has_items.clear()
        return taken

    async def take(self, most: int, idle_s: float) -> list[T]:
        """Return the items of the next request; an empty list if there are none for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(idle_s):
                await self._has_items.wait()
        return self.pop(most)


class ItemsInOrder(PeerQueue[T]):
    """Items in the order in which they were put."""

    def __init__(self) -> None:
        super().__init__()
        self._items = deque[T]()

    def put(self, item: T) -> None:
        """Add an item."""
        self._items.append(item)
        self.added()

    def _pop(self, most: int | None) -> list[T]:
        count = len(self._items) if most is None else min(most, len(self._items))
        return [self._items.popleft() for _ in range(count)]

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._items


class Outgoing(Generic[Q, T]):
    """The items of one kind for other brokers: a queue, a connection and a task for each, while there is work.

    `link_to` makes the connection to a broker. `deliver` sends items to a broker in one request, and reports their
    outcome. `lost` reports items that are not delivered: with the error after a bug, with None if the broker stops.
    `most`: items per request.
    """

    def __init__(
        self,
        runtime: Runtime,
        make_queue: Callable[[], Q],
        link_to: Callable[[int], PeerLink],
        deliver: Callable[[int, PeerLink, list[T]], Awaitable[None]],
        lost: Callable[[list[T], Exception | None], None],
        *,
        most: int,
    ) -> None:
        self._runtime, self._make_queue, self._link_to = runtime, make_queue, link_to
        self._deliver, self._lost, self._most = deliver, lost, most
        self._queues: dict[int, Q] = {}  # by broker

    def to(self, broker_id: int) -> Q:
        """Return the queue of a broker, for items to be put into at once: an idle one may end later."""
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = self._make_queue()
            self._runtime.spawn(self._serve(broker_id, queue))
        return queue

    async def _serve(self, broker_id: int, queue: Q) -> None:
        link, taken = self._link_to(broker_id), list[T]()
        try:
            while taken := await queue.take(self._most, IDLE_S):
                try:
                    await self._deliver(broker_id, link, taken)
                except Exception as error:
                    log.exception("%s: a request was not sent because of a bug", link.name)
                    self._lost(taken, error)
                taken = []
        finally:
            del self._queues[broker_id]
            if unsent := [*taken, *queue.pop()]:
                self._lost(unsent, None)
            await link.aclose()
