"""Long work in slices: after each, every other connection has its turn on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

STEPS_AT_ONCE: Final = 500
"""Steps between two turns of the others: a step is about 5 µs, such as a partition that is looked up and answered."""


class Turns:
    """The steps that one request has taken so far; `given` counts how often the loop was given back."""

    __slots__ = ("_next", "given", "steps")

    def __init__(self) -> None:
        self.steps = self.given = 0
        self._next = STEPS_AT_ONCE

    @property
    def is_long(self) -> bool:
        """Whether the work is more than one slice, and so what comes of it is better written in a thread."""
        return self.given > 0

    async def take(self, steps: int) -> None:
        """Count steps, and let others have their turn where it is due."""
        self.steps += steps
        if self.steps >= self._next:
            self._next = self.steps + STEPS_AT_ONCE
            self.given += 1
            await asyncio.sleep(0)

    def over(self, items: Iterable[T], steps: int = 1) -> AsyncIterator[T]:
        """Yield the items; each is so many steps."""
        return _Sliced(self, items, steps)


class _Sliced(AsyncIterator[T], Generic[T]):
    __slots__ = ("_items", "_steps", "_turns")

    def __init__(self, turns: Turns, items: Iterable[T], steps: int) -> None:
        self._turns, self._items, self._steps = turns, iter(items), steps

    async def __anext__(self) -> T:
        for item in self._items:
            await self._turns.take(self._steps)
            return item
        raise StopAsyncIteration
