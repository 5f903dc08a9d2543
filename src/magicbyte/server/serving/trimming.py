"""Keep freed memory for the next requests, and return that of long ones to the system once they are over.

By default glibc returns the memory of each request of a megabyte, and the system clears all of its pages for the next.
It also keeps freed fragments for ever.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from magicbyte.engine.ports import Clock
    from magicbyte.server.serving.threads import Threads

AFTER_S: Final = 1.0
"""The idle time before trimming: memory that is reused soon should be kept."""

_KEPT_BYTES: Final = 16 << 20  # freed memory at the end of the heap
_MAPPED_BYTES: Final = 8 << 20  # blocks from this size on are not in the heap, but returned when they are freed
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


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
        if (trim := malloc_trim()) is not None:
            await self._threads.run(trim, 0)


def keep_freed() -> None:
    """Let this process keep some freed memory, if the C library is glibc."""
    if (mallopt := _glibc("mallopt")) is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def malloc_trim() -> Callable[..., int] | None:
    """Return the function of glibc that returns free memory to the system, None with another C library."""
    return _glibc("malloc_trim")


@cache
def _glibc(name: str) -> Callable[..., int] | None:
    """Return a function of glibc, None with another C library."""
    try:
        found: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):  # no such library here
        return None
    return found
