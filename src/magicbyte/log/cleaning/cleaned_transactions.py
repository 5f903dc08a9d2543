"""What a cleaner must know of transactions while it goes through a log: which data was aborted, which markers may go.

Source: Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from magicbyte.log.files.indexes import AbortedTransaction
from magicbyte.records.batch import RecordBatch
from magicbyte.records.control import ControlType, marker_of
from magicbyte.records.layout import NO_PRODUCER_ID


class CleanedTransactions:
    """The transactions at one place of a log, moved on batch by batch, in offset order.

    `retained` are the aborted ones of which something stays: the transaction index of the segment that is written.
    `seen`, `committed`: producers with a batch in front of that place, of a transaction that does not end there.
    `keeps_markers`: what lies in front of that place is not known, so every marker may end a transaction that has data.
    """

    def __init__(self, seen: Iterable[int] = (), committed: Iterable[int] = (), *, keeps_markers: bool = False) -> None:
        self._keeps_markers = keeps_markers
        self.retained: list[AbortedTransaction] = []
        self._waiting: list[tuple[int, AbortedTransaction]] = []  # a heap, by first offset
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer: those that the batch may be part of
        self._seen = set(seen)  # producers of them with a batch that is still there
        self._committed = set(committed)  # producers with a batch of another transaction

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Take in the aborted transactions that overlap the next segment; again those that go on in it."""
        for each in transactions:
            heapq.heappush(self._waiting, (each.first_offset, each))

    def _reach(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, each = heapq.heappop(self._waiting)
            if each.producer_id not in self._aborted:
                self._aborted[each.producer_id] = each

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Say whether a batch of data is part of an aborted transaction: then none of its records stays."""
        self._reach(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborted:
            self._seen.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def is_needless(self, marker: RecordBatch) -> bool:
        """Say whether a control batch ends a transaction of which no batch is left."""
        self._reach(marker.last_offset)
        record = marker_of(marker)
        if record is None:
            return True  # a cleaner emptied it before
        return self._ends(marker, record.type)

    def _ends(self, marker: RecordBatch, kind: ControlType) -> bool:
        producer = marker.producer_id
        if kind is ControlType.COMMIT:
            had_data = self._keeps_markers or producer in self._committed
            self._committed.discard(producer)
            return not had_data
        if kind is not ControlType.ABORT:
            return False
        transaction = self._aborted.pop(producer, None)
        had_data = self._keeps_markers or producer in self._seen
        self._seen.discard(producer)
        if transaction is not None and had_data:
            self.retained.append(transaction)
        return not had_data or (transaction is None and not self._keeps_markers)


class Passage(NamedTuple):
    """What a segment does to what is known of transactions in front of it. All but `fits` are ids of producers.

    `seen`, `committed`: with a batch of an aborted transaction, of another one, that does not end behind it in here.
    `aborts`, `commits`: with a marker in here. `fits`: aborted transactions end where the index says, one before the
    next, so that the index alone tells which of them a place lies in.
    """

    seen: frozenset[int]
    committed: frozenset[int]
    aborts: frozenset[int]
    commits: frozenset[int]
    fits: bool

    def behind(self, seen: frozenset[int], committed: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
        """Return what is known behind the segment, given the same of the place in front of it."""
        return (seen - self.aborts) | self.seen, (committed - self.commits) | self.committed

    def to_pairs(self) -> list[tuple[int, int]]:
        """Return it as pairs of a place in the tuple and an id, or 0 where it does not fit: what a file can hold."""
        sets = enumerate((self.seen, self.committed, self.aborts, self.commits))
        pairs = [(place, producer) for place, producers in sets for producer in sorted(producers)]
        return pairs if self.fits else [*pairs, (_FITS_NOT, 0)]

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[int, int]]) -> Passage:
        """Return what `to_pairs` was made of."""
        sets: list[set[int]] = [set() for _ in cls._fields]
        for place, producer in pairs:
            sets[place].add(producer)
        seen, committed, aborts, commits, fits_not = map(frozenset, sets)
        return cls(seen, committed, aborts, commits, not fits_not)


_FITS_NOT = 4


class SegmentTransactions(CleanedTransactions):
    """The transactions of one segment by itself, for `passage`; it is handed those that overlap it once."""

    def __init__(self) -> None:
        super().__init__()
        self._aborts: set[int] = set()
        self._commits: set[int] = set()
        self._fits = True

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Take in the aborted transactions that overlap the segment."""
        ordered = sorted(transactions, key=lambda each: (each.producer_id, each.first_offset))
        self._fits = not any(
            one.producer_id == other.producer_id and one.last_offset >= other.first_offset
            for one, other in itertools.pairwise(ordered)
        )
        super().add_aborted(ordered)

    def _ends(self, marker: RecordBatch, kind: ControlType) -> bool:
        producer = marker.producer_id
        if kind is ControlType.COMMIT:
            self._commits.add(producer)
        elif kind is ControlType.ABORT:
            self._aborts.add(producer)
            transaction = self._aborted.get(producer)
            self._fits &= transaction is None or transaction.last_offset == marker.last_offset
        return super()._ends(marker, kind)

    def passage(self, end: int) -> Passage:
        """Return what the segment, which ends in front of `end`, does to what is known."""
        self._reach(end - 1)
        ended = all(each.last_offset >= end for each in self._aborted.values())
        nobody = {NO_PRODUCER_ID}  # the second pass does not ask whose such data is
        seen, committed = frozenset(self._seen - nobody), frozenset(self._committed - nobody)
        return Passage(seen, committed, frozenset(self._aborts), frozenset(self._commits), self._fits and ended)
