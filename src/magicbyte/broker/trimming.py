"""Memory that long requests took goes back to the system: the C library keeps what was freed, in pieces, for good."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker

AFTER_S: Final = 1.0  # since it was asked for first: a burst is followed by one


class Trimming:
    """Gives memory back, some time after it is asked for, in a thread."""

    def __init__(self, broker: Broker) -> None:
        self.count = 0
        self._broker = broker
        self.is_due = False

    def ask(self) -> None:
        """Have it done soon, once for all who ask until then."""
        if not self.is_due and not self._broker.is_stopping:
            self.is_due = True
            self._broker.spawn(self._trim())

    async def _trim(self) -> None:
        await asyncio.sleep(AFTER_S)
        self.is_due = False
        self.count += 1
        if (trim := _malloc_trim()) is not None:
            await self._broker.messages.run(trim, 0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return glibc's function, None where the C library is another one."""
    try:
        found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # there is no such library here
        return None
    return found
