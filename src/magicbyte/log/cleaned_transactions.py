"""What a cleaner must know of transactions while it goes through a log: which data was aborted, which markers may go.

Source: Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from magicbyte.log.indexes import AbortedTransaction
from magicbyte.records.batch import RecordBatch
from magicbyte.records.control import ControlType, marker_of


class CleanedTransactions:
    """The transactions at one place of a log, moved on batch by batch, in offset order.

    `retained` are the aborted ones of which something stays: the transaction index of the segment that is written.
    """

    def __init__(self) -> None:
        self.retained: list[AbortedTransaction] = []
        self._waiting: list[tuple[int, AbortedTransaction]] = []  # a heap, by first offset
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer: those that the batch may be part of
        self._seen: set[int] = set()  # producers of them with a batch that is still there
        self._committed: set[int] = set()  # producers with a batch of another transaction

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
        producer = marker.producer_id
        if record.type is ControlType.COMMIT:
            had_data = producer in self._committed
            self._committed.discard(producer)
            return not had_data
        if record.type is not ControlType.ABORT:
            return False
        transaction = self._aborted.pop(producer, None)
        had_data = producer in self._seen
        self._seen.discard(producer)
        if transaction is not None and had_data:
            self.retained.append(transaction)
        return transaction is None or not had_data
