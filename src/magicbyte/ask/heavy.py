"""Find the heaviest items of a stream in bounded memory.

Misra-Gries: each item has a weight. When there are more items than `kept`, the weight of the first one that must go is
subtracted from all of them, and those with nothing left are forgotten. The sum of what was subtracted is at most the
total divided by `kept`, and an item misses no more than that. Source: Misra and Gries, Finding repeated elements, 1982.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


class HeavyItem(Struct, frozen=True):
    """An item, by its label. `bytes` and `count` were seen; at most `missed_bytes` more came while it was forgotten."""

    label: Any
    bytes: int
    count: int
    missed_bytes: int


class HeavyItems:
    """The heaviest items by bytes. Memory: about 200 bytes and a label for each of 2 × `kept` items; None: for all.

    Items are known by 64-bit hashes of the caller, who must choose ones without collisions in practice.
    """

    def __init__(self, kept: int | None) -> None:
        self.kept = kept
        self.total_bytes = 0
        self._hashes = np.empty(0, np.uint64)  # sorted
        self._weights = np.empty(0, np.int64)  # what decides which items are forgotten
        self._bytes = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._missed = np.empty(0, np.int64)
        self._labels: dict[int, Any] = {}
        self._subtracted = 0

    def __len__(self) -> int:
        return len(self._hashes)

    @property
    def missed_bytes(self) -> int:
        """What may be missing of an item, or of one that is not in the result at all."""
        return self._subtracted

    def add(self, hashes: Array, sizes: Array, label: Callable[[int], Any]) -> None:
        """Add rows: uint64 `hashes` of their items and int64 `sizes` in bytes, both (n,).

        `label(row)` returns what an item is called; it is called for new items only.
        """
        if not len(hashes):
            return
        items, first, which, counts = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
        sums = np.zeros(len(items), np.int64)
        np.add.at(sums, which, sizes)
        self.total_bytes += int(sums.sum())
        at = np.searchsorted(self._hashes, items)
        known = np.zeros(len(items), bool)
        inside = at < len(self._hashes)
        known[inside] = self._hashes[at[inside]] == items[inside]
        rows = at[known]
        self._weights[rows] += sums[known]
        self._bytes[rows] += sums[known]
        self._counts[rows] += counts[known]
        new = ~known
        if not new.any():
            return
        self._insert(items[new], sums[new], counts[new], at[new])
        unnamed = dict(zip(items[new].tolist(), first[new].tolist(), strict=True))
        if self.kept is not None and len(self._hashes) > 2 * self.kept:
            stay = self._forget(self.kept)
            unnamed = {item: row for item, row in unnamed.items() if item in stay}
        for item, row in unnamed.items():
            self._labels[item] = label(row)

    def _insert(self, items: Array, sums: Array, counts: Array, at: Array) -> None:
        self._hashes = np.insert(self._hashes, at, items)
        self._weights = np.insert(self._weights, at, sums)
        self._bytes = np.insert(self._bytes, at, sums)
        self._counts = np.insert(self._counts, at, counts)
        self._missed = np.insert(self._missed, at, self._subtracted)

    def _forget(self, kept: int) -> set[int]:
        """Keep at most `kept` items, and return them."""
        least = int(np.partition(self._weights, len(self._weights) - kept - 1)[len(self._weights) - kept - 1])
        self._subtracted += least
        stay = self._weights > least
        for item in self._hashes[~stay].tolist():
            self._labels.pop(item, None)  # a new item has none yet
        self._hashes, self._weights = self._hashes[stay], self._weights[stay] - least
        self._bytes, self._counts, self._missed = self._bytes[stay], self._counts[stay], self._missed[stay]
        return set(self._hashes.tolist())

    def heaviest(self, count: int) -> list[HeavyItem]:
        """Return the `count` heaviest items by the bytes that were seen."""
        order = np.argsort(-self._bytes, kind="stable")[: max(count, 0)]
        return [
            HeavyItem(
                self._labels[int(self._hashes[row])],
                int(self._bytes[row]),
                int(self._counts[row]),
                int(self._missed[row]),
            )
            for row in order.tolist()
        ]
