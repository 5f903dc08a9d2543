"""What a reader with isolation `read_committed` may see.

Source: Kafka's CompletedFetch (the consumer's side), ProducerAppendInfo and ProducerStateManager (the broker's side).
"""

import bisect
from collections.abc import Iterable
from typing import NamedTuple

from magicbyte.records.batch import RecordBatch
from magicbyte.records.control import ControlType, marker_of
from magicbyte.records.enriched import EnrichedMessage
from magicbyte.records.layout import NO_PRODUCER_ID
from magicbyte.records.message import MessageView


class BatchFacts(NamedTuple):
    """What about a batch matters here. `marker` is the type of a control batch's first record, else None."""

    producer_id: int
    base_offset: int
    last_offset: int
    is_transactional: bool
    is_control: bool
    marker: ControlType | None


def batch_facts(entry: RecordBatch | MessageView | EnrichedMessage) -> BatchFacts:
    """Return the facts of an entry. Only magic 2 knows transactions; raises CorruptRecordError for a bad marker."""
    if isinstance(entry, RecordBatch):
        record = marker_of(entry)
        return BatchFacts(
            entry.producer_id,
            entry.base_offset,
            entry.last_offset,
            entry.is_transactional,
            entry.is_control,
            None if record is None else record.type,
        )
    last = entry.offset if entry.last_offset is None else entry.last_offset
    return BatchFacts(NO_PRODUCER_ID, entry.offset, last, False, entry.is_control, None)


class AbortedRange(NamedTuple):
    """A line of a `.txnindex` file; a fetch response has the first two fields only.

    From the first offset of the transaction to that of its ABORT marker; `last_stable_offset` is what it was after.
    """

    producer_id: int
    first_offset: int
    last_offset: int = -1
    last_stable_offset: int = -1


class TransactionScan(NamedTuple):
    """What a walk over a log found.

    `aborted` in the order of their markers, as `.txnindex` has them; `open` maps the producers of unfinished
    transactions to where those begin; `last_stable_offset` is the smallest of these, else the end of the log.
    """

    aborted: list[AbortedRange]
    last_stable_offset: int
    open: dict[int, int]


class OpenTransactions:
    """The transactions that are open at one place of a log, moved on batch by batch. `first_offsets`: by producer."""

    def __init__(self) -> None:
        self.first_offsets: dict[int, int] = {}

    def append(self, batch: BatchFacts) -> AbortedRange | None:
        """Move behind `batch`, which follows in offset order. Returns the transaction that it aborted, if it did."""
        if batch.producer_id == NO_PRODUCER_ID:
            return None
        if batch.is_control:
            if batch.marker in (ControlType.ABORT, ControlType.COMMIT):
                first = self.first_offsets.pop(batch.producer_id, None)
                if first is not None and batch.marker is ControlType.ABORT:
                    stable = self.last_stable_offset(batch.last_offset + 1)
                    return AbortedRange(batch.producer_id, first, batch.last_offset, stable)
        elif batch.is_transactional:
            self.first_offsets.setdefault(batch.producer_id, batch.base_offset)
        return None

    def last_stable_offset(self, end: int) -> int:
        """Return where the first open transaction begins, `end` (of the log so far) when none is open."""
        return min(self.first_offsets.values(), default=end)


def scan_transactions(batches: Iterable[BatchFacts], log_start_offset: int = 0) -> TransactionScan:
    """Find aborted and open transactions in `batches`, which come in offset order, markers included.

    The result is exact for a log read from its start, and for every transaction whose remaining data lies in
    `batches`. A transaction that began earlier begins here at its first batch seen: what that hides or holds back is
    the same. A marker without data hides nothing.
    """
    transactions = OpenTransactions()
    aborted = []
    end = log_start_offset
    for batch in batches:
        end = batch.last_offset + 1
        if (ended := transactions.append(batch)) is not None:
            aborted.append(ended)
    return TransactionScan(aborted, transactions.last_stable_offset(end), transactions.first_offsets)


class CommittedFilter:
    """Tells which batches a `read_committed` reader is given.

    Promise: a batch is delivered if and only if it is data, lies wholly below `last_stable_offset`, and is not part of
    an aborted transaction. `aborted` comes from a `.txnindex`, a fetch response or `scan_transactions` and must name
    every aborted transaction that overlaps the batches; one that ended before them does no harm when its `last_offset`
    is known, and is not named in a fetch response.

    Where every `last_offset` is known, batches may be asked about in any order and by many threads at once. A fetch
    response names none: its batches must be asked about in offset order, as their markers end the transactions.

    Records from the last stable offset on may still be aborted, so they are held back, of whichever producer.
    """

    def __init__(self, aborted: Iterable[AbortedRange], last_stable_offset: int) -> None:
        self._ended: dict[int, tuple[list[int], list[int]]] = {}  # by producer: firsts in order, largest lasts so far
        self._waiting: list[AbortedRange] = []  # those whose end a marker tells, the next one last
        self._aborted_producers: set[int] = set()
        self._last_stable_offset = last_stable_offset
        for each in sorted(aborted, key=lambda one: one.first_offset):
            if each.last_offset < 0:
                self._waiting.append(each)
            else:
                firsts, lasts = self._ended.setdefault(each.producer_id, ([], []))
                firsts.append(each.first_offset)
                lasts.append(max([each.last_offset, *lasts[-1:]]))
        self._waiting.reverse()

    def delivers(self, batch: BatchFacts) -> bool:
        """Whether the records of `batch` are given to the application."""
        if batch.last_offset >= self._last_stable_offset:
            return False
        if batch.producer_id == NO_PRODUCER_ID:
            return not batch.is_control
        while self._waiting and self._waiting[-1].first_offset <= batch.last_offset:
            self._aborted_producers.add(self._waiting.pop().producer_id)
        if batch.is_control:
            if batch.marker is ControlType.ABORT:
                self._aborted_producers.discard(batch.producer_id)
            return False
        if not batch.is_transactional:
            return True
        if batch.producer_id in self._aborted_producers:
            return False
        firsts, lasts = self._ended.get(batch.producer_id, ((), ()))
        latest = bisect.bisect_right(firsts, batch.last_offset) - 1
        return latest < 0 or lasts[latest] < batch.base_offset
