"""A shared/exclusive lock of the event loop: appends to different partitions share it, maintenance holds it alone."""

from __future__ import annotations

import asyncio
from types import TracebackType


class SharedLock:
    """Shared with `acquire_shared` and `release_shared`; exclusive as a context.

    A waiting exclusive holder blocks later shared ones, so that it is not starved.
    """

    def __init__(self) -> None:
        self._is_exclusive = False  # or a task waits for that
        self._sharing = 0
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()

    async def acquire_shared(self) -> None:
        """Acquire it shared, as soon as no exclusive holder has it or waits. `release_shared` must follow."""
        while self._is_exclusive:
            await self._change()
        self._sharing += 1

    def release_shared(self) -> None:
        """Release a shared hold."""
        self._sharing -= 1
        self._changed.set()

    async def _change(self) -> None:
        # One event serves all waiters. Each of them checks its own condition after it wakes, so a wake-up for another
        # one does no harm. None is lost either: there is no await between that check and `wait`.
        self._changed.clear()
        await self._changed.wait()

    async def __aenter__(self) -> None:
        await self._turn.acquire()
        # Set before the wait: from here on no shared holder enters, so the wait ends with those that are inside.
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
