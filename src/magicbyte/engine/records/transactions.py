"""Decide what a consumer with isolation `read_committed` may see.

Source: Kafka's CompletedFetch (the consumer's side), ProducerAppendInfo and ProducerStateManager (the broker's side).
"""

from __future__ import annotations

import bisect
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import ControlType, marker_of, marker_types
from magicbyte.engine.records.extent import header_lasts
from magicbyte.engine.records.layout import CONTROL_BIT, PRODUCER_ID, TRANSACTIONAL_BIT, Dialect
from magicbyte.engine.sentinels import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from magicbyte.engine.records.enriched import EnrichedMessage
    from magicbyte.engine.records.message import MessageView
    from magicbyte.engine.records.scan import BatchTable


class BatchFacts(NamedTuple):
    """The facts of a batch that matter for transactions.

    `marker` is the type of a control batch's first record, else None.
    """

    producer_id: int
    base_offset: int
    last_offset: int
    is_transactional: bool
    is_control: bool
    marker: ControlType | None

    @property
    def next_offset(self) -> int:
        """The offset after the last one."""
        return self.last_offset + 1


def batch_facts(entry: RecordBatch | MessageView | EnrichedMessage) -> BatchFacts:
    """Return the facts of an entry. Only magic 2 has transactions. Raises CorruptRecordError for a bad marker."""
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


def table_facts(
    table: BatchTable, on_damage: Callable[[CorruptRecordError], object] = lambda _: None
) -> list[BatchFacts | None]:
    """Return the facts of each row of a scan; None for a row that is in no transaction and no control batch.

    An invalid marker is passed to `on_damage`, with its position in the buffer, and has no type.
    """
    facts_of_rows: list[BatchFacts | None] = [None] * len(table)
    if table.dialect is Dialect.ENRICHED:
        return facts_of_rows
    bits = TRANSACTIONAL_BIT | CONTROL_BIT
    if isinstance(table.position, list):
        for row in range(len(table)):
            if table.magic[row] == 2 and table.attributes[row] & bits:
                facts_of_rows[row] = _row_facts(table, row, on_damage)
        return facts_of_rows
    import numpy as np

    attributes = np.asarray(table.attributes)
    rows = np.flatnonzero((np.asarray(table.magic) == 2) & ((attributes & bits) != 0))
    if not len(rows):
        return facts_of_rows
    bases, lasts = np.asarray(table.offset)[rows], header_lasts(table)[rows]
    is_control = (attributes[rows] & CONTROL_BIT) != 0
    is_transactional = (attributes[rows] & TRANSACTIONAL_BIT) != 0
    columns = (table.gather(PRODUCER_ID, rows), bases, lasts, is_transactional, is_control)
    numbers = rows.tolist()
    for row, facts in zip(numbers, map(BatchFacts, *(each.tolist() for each in columns), repeat(None)), strict=False):
        facts_of_rows[row] = facts
    for row in rows[lasts < bases].tolist():  # last offsets beyond 64 bits
        facts_of_rows[row] = _row_facts(table, row, on_damage)
    controls = rows[is_control & (lasts >= bases)]
    for row, kind in zip(controls.tolist(), marker_types(table, controls), strict=True):
        facts = facts_of_rows[row]
        assert facts is not None
        facts_of_rows[row] = _row_facts(table, row, on_damage) if kind is None else facts._replace(marker=kind)
    return facts_of_rows


def _row_facts(table: BatchTable, row: int, on_damage: Callable[[CorruptRecordError], object]) -> BatchFacts:
    batch = RecordBatch.parse(table.buffer[int(table.position[row]) :])
    assert batch is not None, "the scan found it whole"
    try:
        return batch_facts(batch)
    except CorruptRecordError as error:
        error.position = int(table.position[row])
        on_damage(error)
        return BatchFacts(batch.producer_id, batch.base_offset, batch.last_offset, batch.is_transactional, True, None)


class AbortedRange(NamedTuple):
    """An aborted transaction, as in a row of a `.txnindex` file; a fetch response has only the first two fields.

    It extends from the first offset of the transaction to that of its ABORT marker. `last_stable_offset` is the last
    stable offset after the abort.
    """

    producer_id: int
    first_offset: int
    last_offset: int = -1
    last_stable_offset: int = -1


class TransactionScan(NamedTuple):
    """The result of a walk over a log.

    `aborted` is in the order of markers, as in `.txnindex`; `open` maps the producers of open transactions to their
    first offsets; `last_stable_offset` is the smallest of these, else the end of the log.
    """

    aborted: list[AbortedRange]
    last_stable_offset: int
    open: dict[int, int]


class OpenTransactions:
    """The open transactions at one offset of a log, advanced batch by batch. `first_offsets`: by producer."""

    def __init__(self) -> None:
        self.first_offsets: dict[int, int] = {}

    def append(self, batch: BatchFacts) -> AbortedRange | None:
        """Advance past `batch`, the next one in offset order. Return the transaction that it aborts, if it does."""
        if batch.producer_id == NO_PRODUCER_ID:
            return None
        if batch.is_control:
            if batch.marker in (ControlType.ABORT, ControlType.COMMIT):
                first = self.first_offsets.pop(batch.producer_id, None)
                if first is not None and batch.marker is ControlType.ABORT:
                    stable = self.last_stable_offset(batch.next_offset)
                    return AbortedRange(batch.producer_id, first, batch.last_offset, stable)
        elif batch.is_transactional:
            self.first_offsets.setdefault(batch.producer_id, batch.base_offset)
        return None

    def last_stable_offset(self, end: int) -> int:
        """Return the first offset of the earliest open transaction, or `end` (of the log so far) if none is open."""
        return min(self.first_offsets.values(), default=end)


def scan_transactions(batches: Iterable[BatchFacts], log_start_offset: int = 0) -> TransactionScan:
    """Find aborted and open transactions in `batches`, which come in offset order, markers included.

    The result is exact for a log read from its start, and for every transaction whose data from the first batch on is
    in `batches`. A transaction that began earlier is assumed to begin at its first batch here, which filters the same
    records. A marker without data has no effect.
    """
    transactions = OpenTransactions()
    aborted = []
    end = log_start_offset
    for batch in batches:
        end = batch.next_offset
        if (ended := transactions.append(batch)) is not None:
            aborted.append(ended)
    return TransactionScan(aborted, transactions.last_stable_offset(end), transactions.first_offsets)


class CommittedFilter:
    """Decide which batches to deliver to a `read_committed` consumer.

    A batch is delivered if and only if it is data, lies wholly below `last_stable_offset`, and is not part of an
    aborted transaction. `aborted` comes from a `.txnindex`, a fetch response or `scan_transactions` and must name every
    aborted transaction that overlaps the batches. Transactions that ended before the batches do no harm if their
    `last_offset` is known, and fetch responses do not name them.

    If every `last_offset` is known, batches may be tested in any order and by many threads at once. With a fetch
    response they are unknown: batches must then be tested in offset order, because their markers end the transactions.

    Records from the last stable offset on are withheld, of all producers, because they may still be aborted.
    """

    def __init__(self, aborted: Iterable[AbortedRange], last_stable_offset: int) -> None:
        # by producer: first offsets in order, and the largest last offset so far
        self._ended: dict[int, tuple[list[int], list[int]]] = {}
        self._waiting: list[AbortedRange] = []  # transactions whose end only a marker will show, the next one last
        self._aborted_producers: set[int] = set()
        self._last_stable_offset = last_stable_offset
        for transaction in sorted(aborted, key=lambda one: one.first_offset):
            if transaction.last_offset < 0:
                self._waiting.append(transaction)
            else:
                firsts, lasts = self._ended.setdefault(transaction.producer_id, ([], []))
                firsts.append(transaction.first_offset)
                lasts.append(max([transaction.last_offset, *lasts[-1:]]))
        self._waiting.reverse()

    def delivered(self, table: Sequence[BatchFacts | None]) -> list[bool]:
        """Return for each row of `table_facts` whether to deliver its records."""
        return [batch is None or self.delivers(batch) for batch in table]

    def delivers(self, batch: BatchFacts) -> bool:
        """Return whether to deliver the records of `batch` to the application."""
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
