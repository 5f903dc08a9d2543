"""Finds transactions that read from each other in a circle: G1c, by write-read edges alone.

Circles with write-write edges (G0, and G1c with both) are not looked for: Kafka does not isolate writes, so that sound
clusters have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from magicbyte.testing.checker.history import Value
from magicbyte.testing.checker.report import Anomaly, AnomalyKind


class Read(NamedTuple):
    """A value that one transaction wrote and another one read."""

    partition: str
    offset: int
    value: Value


class Circles:
    """Which transactions read what others wrote. Only those that write, too, are noted: others are in no circle."""

    def __init__(self) -> None:
        self._read: dict[int, dict[int, Read]] = {}  # by reader, by writer: the first value

    def note(self, reader: int, writer: int, read: Read) -> None:
        """Note that a transaction read a value of another one; both are positions in the history."""
        self._read.setdefault(reader, {}).setdefault(writer, read)

    def anomalies(self) -> Iterator[Anomaly]:
        """Yield circles that have no transaction in common, as many as there are in one order of search."""
        readers: dict[int, list[int]] = {}
        left: dict[int, int] = {}  # by transaction: how many of those that it read from are left
        for reader, writers in self._read.items():
            left[reader] = sum(writer in self._read for writer in writers)
            for writer in writers:
                readers.setdefault(writer, []).append(reader)
        gone = [each for each, count in left.items() if not count]
        while True:
            while gone:  # who has nobody left to read from is in no circle
                writer = gone.pop()
                if left.pop(writer, None) is None:
                    continue
                for reader in readers.get(writer, ()):
                    if reader in left:
                        left[reader] -= 1
                        if not left[reader]:
                            gone.append(reader)
            if not left:
                return
            gone = self._circle(left)
            yield self._anomaly(gone)

    def _circle(self, left: dict[int, int]) -> list[int]:
        """Return a circle, each transaction before the one that it read from. All that are left read from others."""
        at, path = next(iter(left)), dict[int, None]()
        while at not in path:
            path[at] = None
            at = next(writer for writer in self._read[at] if writer in left)
        steps = list(path)
        return steps[steps.index(at) :]

    def _anomaly(self, circle: list[int]) -> Anomaly:
        pairs = list(zip(circle, [*circle[1:], circle[0]], strict=True))
        reads = [self._read[reader][writer] for reader, writer in pairs]
        told = [
            f"operation {reader} read {read.value!r} at offset {read.offset} of {read.partition}, which operation "
            f"{writer} wrote"
            for (reader, writer), read in zip(pairs, reads, strict=True)
        ]
        return Anomaly(
            AnomalyKind.CIRCULAR_READ,
            reads[0].partition,
            tuple(each.offset for each in reads),
            tuple(each.value for each in reads),
            tuple(circle),
            "transactions read from each other: " + "; ".join(told),
        )
