"""Deadlines by key, without a clock; postponing one is nearly free."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
FEW: Final = 64
DAY_MS: Final = 24 * 3_600_000


class Deadlines(Generic[K]):
    """A deadline (ms) for each of some keys.

    The heap may have an earlier time for a key than its deadline: a member's heartbeats postpone its deadline without
    touching the heap. When the entry comes up, it is reinserted with the new time.
    """

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._named: dict[K, int] = {}  # the earliest heap entry of a key
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0  # breaks ties in the order of insertion, so that keys need no order

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def __getitem__(self, key: K) -> int:
        return self._due[key]

    def set(self, key: K, at_ms: int) -> None:
        """Set the deadline of `key`, replacing an earlier one."""
        self._due[key] = at_ms
        if self._named.get(key, at_ms + 1) > at_ms:
            self._push(key, at_ms)

    def cancel(self, key: K) -> None:
        """Remove the deadline of `key`, if there is one."""
        self._due.pop(key, None)

    def next_ms(self) -> int | None:
        """Return the next time to call `pop`: not later than the first deadline; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def pop(self, monotonic_ms: int) -> K | None:
        """Remove and return the key with the earliest deadline up to `monotonic_ms`, or None."""
        while self._heap and self._heap[0][0] <= monotonic_ms:
            at_ms, _, key = heapq.heappop(self._heap)
            if self._named.get(key) != at_ms:
                continue  # superseded by another entry, or cancelled
            del self._named[key]
            due = self._due.get(key)
            if due == at_ms:
                del self._due[key]
                return key
            if due is not None:
                self._push(key, due)
        return None

    def _push(self, key: K, at_ms: int) -> None:
        if len(self._heap) > FEW + 2 * len(self._due):  # most entries were cancelled
            self._heap, self._named = [], {}
            for each, due in self._due.items():
                self._push(each, due)
            if key in self._named:
                return
        self._count += 1
        self._named[key] = at_ms
        heapq.heappush(self._heap, (at_ms, self._count, key))
