"""Memory that long requests took goes back to the system: the C library keeps what was freed, in pieces, for good."""

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
"""Time since it was asked for last: memory that is used again soon is better kept."""


class Trimming:
    """Gives memory back, in a thread, when nothing has asked for it for a while. `count`: how often it has."""

    def __init__(
        self, clock: Clock, threads: Threads, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    ) -> None:
        self.count = 0
        self._clock, self._threads, self._spawn = clock, threads, spawn
        self.is_due = self.is_stopping = False
        self._asked_ms = 0

    def ask(self) -> None:
        """Have it done soon, once for all who ask until then."""
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
    """Return glibc's function, None where the C library is another one."""
    try:
        found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # there is no such library here
        return None
    return found
