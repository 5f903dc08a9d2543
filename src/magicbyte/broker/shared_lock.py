"""A shared/exclusive lock of the event loop: appends share it, each in a partition of its own; maintenance is alone."""

from __future__ import annotations

import asyncio
from types import TracebackType


class SharedLock:
    """Held by many with `acquire_shared` and `release_shared`, or, as a context, by one alone: the exclusive way.

    A waiting exclusive holder blocks later shared ones, so that it is not starved.
    """

    def __init__(self) -> None:
        self._is_exclusive = False  # or somebody waits for that
        self._sharing = 0
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()

    async def acquire_shared(self) -> None:
        """Hold it beside others, as soon as nobody has it alone, or waits to; `release_shared` is to follow."""
        while self._is_exclusive:
            await self._change()
        self._sharing += 1

    def release_shared(self) -> None:
        """Let go of it."""
        self._sharing -= 1
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def __aenter__(self) -> None:
        await self._turn.acquire()
        self._is_exclusive = True
        try:
            while self._sharing:
                await self._change()
        except asyncio.CancelledError:
            self._release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._release()

    def _release(self) -> None:
        self._is_exclusive = False
        self._turn.release()
        self._changed.set()
