"""Track transactions while a log is compacted: which data was aborted, and which markers may be removed."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from magicbyte.engine.log.files.indexes import AbortedTransaction
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import ControlType, marker_of
from magicbyte.engine.sentinels import NO_PRODUCER_ID


class CleanedTransactions:
    """The transactions at one position of a log, advanced batch by batch in offset order.

    `retained` are the aborted ones of which something remains: the transaction index of the new segment. `seen`,
    `committed`: producers that have a batch before that position, of a transaction that has not ended by then.
    `keeps_markers`: the data before that position is unknown, so every marker may end a transaction with data.
    """

    def __init__(self, seen: Iterable[int] = (), committed: Iterable[int] = (), *, keeps_markers: bool = False) -> None:
        self._keeps_markers = keeps_markers
        self.retained: list[AbortedTransaction] = []
        self._waiting: list[tuple[int, AbortedTransaction]] = []  # a heap, by first offset
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer: those to which the batch may belong
        self._seen = set(seen)  # their producers with a remaining batch
        self._committed = set(committed)  # producers with a remaining batch of another transaction

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add the aborted transactions that overlap the next segment, including those that extend into it."""
        for each in transactions:
            heapq.heappush(self._waiting, (each.first_offset, each))

    def _reach(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, each = heapq.heappop(self._waiting)
            if each.producer_id not in self._aborted:
                self._aborted[each.producer_id] = each

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Return whether a data batch is part of an aborted transaction: then none of its records remains."""
        self._reach(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborted:
            self._seen.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def is_needless(self, marker: RecordBatch) -> bool:
        """Return whether a control batch ends a transaction of which no batch remains."""
        self._reach(marker.last_offset)
        record = marker_of(marker)
        if record is None:
            return True  # an earlier compaction emptied it
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
    """The effect of a segment on the state of `CleanedTransactions`. All fields but `fits` are producer ids.

    `seen`, `committed`: with a batch of an aborted or another transaction that does not end within the segment.
    `aborts`, `commits`: with a marker in it. `fits`: aborted transactions end where the index says and do not overlap,
    so that the index alone tells which of them an offset is in.
    """

    seen: frozenset[int]
    committed: frozenset[int]
    aborts: frozenset[int]
    commits: frozenset[int]
    fits: bool

    def behind(self, seen: frozenset[int], committed: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
        """Return the state after the segment, given the state before it."""
        return (seen - self.aborts) | self.seen, (committed - self.commits) | self.committed

    def to_pairs(self) -> list[tuple[int, int]]:
        """Return the fields as pairs of a field number and an id, or 0 if it does not fit: the form stored in a
        file.
        """
        sets = enumerate((self.seen, self.committed, self.aborts, self.commits))
        pairs = [(place, producer) for place, producers in sets for producer in sorted(producers)]
        return pairs if self.fits else [*pairs, (_FITS_NOT, 0)]

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[int, int]]) -> Passage:
        """Parse the result of `to_pairs`."""
        sets: list[set[int]] = [set() for _ in cls._fields]
        for place, producer in pairs:
            sets[place].add(producer)
        seen, committed, aborts, commits, fits_not = map(frozenset, sets)
        return cls(seen, committed, aborts, commits, not fits_not)


_FITS_NOT = 4


class SegmentTransactions(CleanedTransactions):
    """The transactions of one segment by itself, for `passage`; `add_aborted` is called once."""

    def __init__(self) -> None:
        super().__init__()
        self._aborts: set[int] = set()
        self._commits: set[int] = set()
        self._fits = True

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add the aborted transactions that overlap the segment."""
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
        """Return the effect of the segment, which ends before `end`."""
        self._reach(end - 1)
        ended = all(each.last_offset >= end for each in self._aborted.values())
        nobody = {NO_PRODUCER_ID}  # the second pass does not ask for the producer of such data
        seen, committed = frozenset(self._seen - nobody), frozenset(self._committed - nobody)
        return Passage(seen, committed, frozenset(self._aborts), frozenset(self._commits), self._fits and ended)
