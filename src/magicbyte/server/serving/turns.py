"""Long work in slices, with a turn of the event loop after each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

STEPS_AT_ONCE: Final = 500
"""Steps per slice: a step takes about 5 µs, such as the look-up and response of a partition."""


class Turns:
    """The steps of one request so far; `given` counts its yields to the loop, the next of which is due at `next`."""

    __slots__ = ("given", "next", "steps")

    def __init__(self) -> None:
        self.steps = self.given = 0
        self.next = STEPS_AT_ONCE

    @property
    def is_long(self) -> bool:
        """Whether the work is more than one slice, so that its result is better encoded in a thread."""
        return self.given > 0

    async def take(self, steps: int) -> None:
        """Count steps, and yield to the loop if a slice is complete."""
        if self.is_due(steps):
            await self.give()

    def is_due(self, steps: int) -> bool:
        """Count steps, as `take`; return whether the caller must `give` the loop a turn."""
        self.steps += steps
        return self.steps >= self.next

    async def give(self) -> None:
        """Yield to the loop, and begin the next slice."""
        self.next = self.steps + STEPS_AT_ONCE
        self.given += 1
        await asyncio.sleep(0)

    def over(self, items: Iterable[T], steps: int = 1) -> AsyncIterator[T]:
        """Yield the items; each counts that many steps."""
        return _Sliced(self, items, steps)


class _Sliced(AsyncIterator[T], Generic[T]):
    __slots__ = ("_items", "_steps", "_turns")

    def __init__(self, turns: Turns, items: Iterable[T], steps: int) -> None:
        self._turns, self._items, self._steps = turns, iter(items), steps

    async def __anext__(self) -> T:
        for item in self._items:
            turns = self._turns  # as `take`, which would cost another call for each item
            turns.steps += self._steps
            if turns.steps >= turns.next:
                await turns.give()
            return item
        raise StopAsyncIteration
