"""Threads, and who may change logs in them: appends, each to a partition of its own, or maintenance, all alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Do `work` in a thread and return what it returns. A cancellation has no effect before the caller's next wait."""
    doing = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **named))
    cancelled = False
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled and (task := asyncio.current_task()) is not None:
        task.cancel()
    return doing.result()


class Gate:
    """As a context it is the only one inside; `enter` and `leave` are for those who do not mind each other.

    Code on the loop that does not wait in between needs neither: only `await quiet()` in front of it.
    """

    def __init__(self) -> None:
        self.closed = False
        self._inside = 0
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()

    async def quiet(self) -> None:
        """Wait until nobody is alone inside."""
        while self.closed:
            await self._change()

    async def enter(self) -> None:
        """Come in; `leave` is to follow."""
        await self.quiet()
        self._inside += 1

    def leave(self) -> None:
        """Go out."""
        self._inside -= 1
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def __aenter__(self) -> None:
        await self._turn.acquire()
        self.closed = True
        try:
            while self._inside:
                await self._change()
        except asyncio.CancelledError:
            self._open()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._open()

    def _open(self) -> None:
        self.closed = False
        self._turn.release()
        self._changed.set()
