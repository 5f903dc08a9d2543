"""Return the memory of long requests to the system, because the C library keeps freed fragments."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from magicbyte.broker.threads import Threads
    from magicbyte.ports import Clock

AFTER_S: Final = 1.0
"""The idle time before trimming: memory that is reused soon should be kept."""


class Trimming:
    """Trim the heap in a thread after an idle time. `count`: the number of trims."""

    def __init__(
        self, clock: Clock, threads: Threads, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    ) -> None:
        self.count = 0
        self._clock, self._threads, self._spawn = clock, threads, spawn
        self.is_due = self.is_stopping = False
        self._asked_ms = 0

    def ask(self) -> None:
        """Schedule a trim, one for all requests until then."""
        self._asked_ms = self._clock.monotonic_ms()
        if not self.is_due and not self.is_stopping:
            self.is_due = True
            self._spawn(self._trim())

    async def _trim(self) -> None:
        clock, after_ms = self._clock, AFTER_S * 1000
        while (left_ms := self._asked_ms + after_ms - clock.monotonic_ms()) > 0:
            await asyncio.sleep(left_ms / 1000)
        self.is_due = False
        self.count += 1
        if (trim := _malloc_trim()) is not None:
            await self._threads.run(trim, 0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return glibc's function, None with another C library."""
    try:
        found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # no such library here
        return None
    return found
