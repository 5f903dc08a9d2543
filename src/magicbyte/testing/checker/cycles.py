"""Find transactions that read from each other in a cycle: G1c with write-read edges only.

Cycles with write-write edges (G0, and G1c with both) are not anomalies, because Kafka does not isolate writes: sound
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
    """The graph of transactions that read from others.

    Only transactions that also write are in it, as in every cycle.
    """

    def __init__(self) -> None:
        self._read: dict[int, dict[int, Read]] = {}  # by reader, by writer: the first value

    def note(self, reader: int, writer: int, read: Read) -> None:
        """Record that a transaction read a value of another one. Both are positions in the history."""
        self._read.setdefault(reader, {}).setdefault(writer, read)

    def anomalies(self) -> Iterator[Anomaly]:
        """Yield cycles without common transactions, as many as one order of search finds."""
        readers: dict[int, list[int]] = {}
        left: dict[int, int] = {}  # by transaction: the number of remaining transactions that it read from
        for reader, writers in self._read.items():
            left[reader] = sum(writer in self._read for writer in writers)
            for writer in writers:
                readers.setdefault(writer, []).append(reader)
        gone = [each for each, count in left.items() if not count]
        while True:
            while gone:  # a transaction that read from none of the remaining ones is in no cycle
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
        """Return a cycle, each transaction before the one that it read from.

        All remaining ones must have read from others.
        """
        at, path = next(iter(left)), dict[int, None]()
        while at not in path:
            path[at] = None
            at = next(writer for writer in self._read[at] if writer in left)
        steps = list(path)
        return steps[steps.index(at) :]

    def _anomaly(self, circle: list[int]) -> Anomaly:
        pairs = list(zip(circle, [*circle[1:], circle[0]], strict=True))
        reads = [self._read[reader][writer] for reader, writer in pairs]
        steps = [
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
            "transactions read from each other: " + "; ".join(steps),
        )
