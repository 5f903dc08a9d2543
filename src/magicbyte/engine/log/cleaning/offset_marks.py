"""The marks of an offset map without its keys, made in pieces, for logs with more keys than fit in memory.

A segment's marks are two sorted arrays of offsets: of records whose key came again, and of those without key or value.
`SetFilter` needs no more of a map that has read the whole log.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class OffsetMarks:
    """The marks of offsets from `begin` to below `end`, all of which were read; `keys` is the number of distinct keys.

    `bases` are those of the segments from the one with `begin` on. `load` returns the superseded and the odd offsets of
    the segment of a base, sorted, int64; those of one segment are kept.
    """

    def __init__(
        self, begin: int, end: int, keys: int, bases: Sequence[int], load: Callable[[int], tuple[Array, Array]]
    ) -> None:
        self.begin, self.latest, self.marked_end, self.keys = begin, end - 1, end, keys
        self._bases, self._load = bases, load
        self._loaded: tuple[int, tuple[Array, Array]] | None = None

    def superseded(self, first: int, end: int) -> Array:
        """Return for each offset from `first` to below `end`, all of one segment, whether its key came again."""
        return self._bits(0, first, end)

    def odd(self, first: int, end: int) -> Array:
        """Return for each offset whether its record has no key or no value."""
        return self._bits(1, first, end)

    def superseded_of(self, offset: Array) -> Array:
        """Return the same for ascending offsets of one segment, however far apart."""
        marks = self._of(int(offset[0]))[0]
        at = np.searchsorted(marks, offset)
        found: Array = at < len(marks)
        found[found] = marks[at[found]] == offset[found]
        return found

    def _of(self, offset: int) -> tuple[Array, Array]:
        base = self._bases[max(bisect.bisect_right(self._bases, offset) - 1, 0)]
        if self._loaded is None or self._loaded[0] != base:
            self._loaded = base, self._load(base)
        return self._loaded[1]

    def _bits(self, kind: int, first: int, end: int) -> Array:
        marks = self._of(first)[kind]
        low, high = np.searchsorted(marks, (first, end))
        found = np.zeros(end - first, np.uint8)
        found[marks[low:high] - first] = 1
        return found
