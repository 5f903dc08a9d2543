"""A metadata store for coroutines: calls do not block the event loop, and watches are called on it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore, Node, NodeChange, SessionListener, Watch

P = ParamSpec("P")
T = TypeVar("T")


class Runner(Protocol):
    """Runs the work of a call elsewhere. It must not return before the work has ended, even if it is cancelled."""

    def __call__(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Awaitable[T]:
        """Run `work` and return its result."""


async def directly(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run the work directly on the loop: for trees in memory, so that a simulation is reproducible."""
    return work(*arguments, **named)


class OpenSession(Protocol):
    """Opens a new session of the same tree: at the start, and after the previous one has expired."""

    def __call__(self, *, listener: SessionListener) -> MetadataStore:
        """Return the new session's store. Its events go to `listener`."""


class LoopStore:
    """A `ports.MetadataStore` for coroutines of one event loop. `run` executes its calls, one at a time: a
    `Threads.run`.

    Watches and session events are called on the loop, in order, and before a later call returns the change that they
    report. They must not block. Their exceptions go to the loop's exception handler.
    """

    def __init__(self, store: MetadataStore, run: Runner = directly, deliveries: _Deliveries | None = None) -> None:
        self._store, self._run = store, run
        self._deliveries = deliveries or _Deliveries()
        self._turn = asyncio.Lock()

    @classmethod
    async def open(
        cls, session: OpenSession, run: Runner = directly, listener: SessionListener | None = None
    ) -> LoopStore:
        """Return a store over a new session."""
        deliveries = _Deliveries()
        told = _OnLoop(deliveries, listener or _ignore)
        return cls(await run(session, listener=told), run, deliveries)

    @property
    def session_id(self) -> int:
        """The session's number, which is the `ephemeral_owner` of its ephemeral nodes."""
        return self._store.session_id

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Return a node, and watch its data. Raises NoNodeError."""
        return await self._do(self._store.get, path, self._on_loop(watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """Return a node or None, and watch its creation, change and deletion."""
        return await self._do(self._store.exists, path, self._on_loop(watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted, and watch their creation and deletion. Raises NoNodeError."""
        return await self._do(self._store.children, path, self._on_loop(watch))

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Return nodes (None for those that do not exist) and watch those that exist, in one round trip."""
        return await self._do(self._store.get_many, paths, self._on_loop(watch))

    async def children_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[list[str] | None]:
        """Return the names of the children of nodes, None for nodes that do not exist, in one round trip."""
        return await self._do(self._store.children_many, paths, self._on_loop(watch))

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Create a node, and with `parents` the missing nodes above it; return its path.

        Raises NodeExistsError, NoNodeError, NoChildrenForEphemeralsError.
        """
        return await self._do(self._store.create, path, data, ephemeral=ephemeral, sequence=sequence, parents=parents)

    async def set(self, path: str, data: bytes, version: int = -1) -> Node:
        """Change a node's data; return the node. Raises NoNodeError, BadVersionError."""
        return await self._do(self._store.set, path, data, version)

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete a node. Raises NoNodeError, NotEmptyError, BadVersionError."""
        await self._do(self._store.delete, path, version)

    async def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        """Make all changes or none: raise the error of the first impossible one; return the path of each."""
        return await self._do(self._store.transaction, changes)

    async def close(self) -> None:
        """End the session: its ephemeral nodes are deleted, and no more events are delivered."""
        try:
            await self._do(self._store.close)
        finally:
            self._deliveries.close()

    def _on_loop(self, watch: Watch | None) -> Watch | None:
        return None if watch is None else _OnLoop(self._deliveries, watch)

    async def _do(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        async with self._turn:
            try:
                return await self._run(call, *arguments, **named)
            finally:
                self._deliveries.deliver()


class _Deliveries:
    """Calls to be made on the loop, in order: by the loop, or by the call that returns first.

    The loop makes them in the context in which the store was created, whatever caused them.
    """

    def __init__(self) -> None:
        self._loop, self._context = asyncio.get_running_loop(), contextvars.copy_context()
        self._waiting: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self._is_closed = False

    def add(self, call: Callable[..., None], arguments: tuple[object, ...]) -> None:
        """Schedule a call on the loop, from any thread."""
        self._waiting.append((call, arguments))
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.deliver, context=self._context)

    def deliver(self) -> None:
        """Make the pending calls, on the loop."""
        while self._waiting and not self._is_closed:
            call, arguments = self._waiting.popleft()
            try:
                call(*arguments)
            except Exception as error:  # noqa: BLE001 (a fault of the watcher: not of the call that delivers it)
                self._loop.call_exception_handler({"message": "a watch failed", "exception": error})

    def close(self) -> None:
        """Stop delivering."""
        self._is_closed = True


class _OnLoop(Struct, frozen=True):
    """A watch or listener that is called on the loop. Equal ones compare equal, as stores require of watches."""

    deliveries: _Deliveries
    call: Callable[..., None]

    def __call__(self, *arguments: Any) -> None:
        self.deliveries.add(self.call, arguments)


def _ignore(_event: object) -> None:
    """Do nothing."""
