"""Who may change logs, each in a thread: appends, each to a partition of its own, or maintenance, all alone."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Gate:
    """As a context it is the only one inside; `enter` and `leave` are for those who do not mind each other."""

    def __init__(self) -> None:
        self.closed = False
        self._inside = 0
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()

    async def enter(self) -> None:
        """Come in as soon as nobody is alone inside; `leave` is to follow."""
        while self.closed:
            await self._change()
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
