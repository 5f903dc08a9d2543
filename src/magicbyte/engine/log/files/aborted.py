"""The aborted transactions of a log by its entries, and how a transaction index differs from them.

A broker trusts the index after a clean shutdown: without the entry of an aborted transaction it serves its records as
committed. `verify` reports the differences; a live log corrects its indexes by them (log/live/transaction_checks.py).
Source: Kafka's LogSegment.updateTxnIndex and ProducerAppendInfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.indexes import TRANSACTION_VERSION, AbortedTransaction
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import ControlType
from magicbyte.engine.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from magicbyte.engine.records.transactions import AbortedRange, BatchFacts, OpenTransactions, batch_facts, table_facts
from magicbyte.engine.sentinels import NO_PRODUCER_ID

if TYPE_CHECKING:
    from magicbyte.engine.log.files.headers import Headers


class IndexDifference(NamedTuple):
    """A difference of a transaction index from its log, of the transaction with these offsets."""

    what: str
    expected: str
    found: str
    offsets: tuple[int, int]


class SegmentAborts(Struct):
    """The aborted transactions whose markers lie in one segment, as far as `append` has gone. It can be pickled.

    `aborted` is in the order of markers. `without_data`: producers and offsets of ABORT markers without data in the log
    so far; an index may name them. `open`: the open transactions, which the next segment begins with.
    """

    open: OpenTransactions = field(default_factory=OpenTransactions)
    aborted: list[AbortedRange] = field(default_factory=list)
    without_data: set[tuple[int, int]] = field(default_factory=set)
    _lowest: list[int] = field(default_factory=list)  # the first offset that each of `aborted` can have had
    _after_marker: dict[int, int] = field(default_factory=dict)  # by producer

    def append(self, batches: Iterable[BatchFacts | None]) -> None:
        """Add the next entries."""
        for facts in batches:
            if facts is None:
                continue
            if (aborted := self.open.append(facts)) is not None:
                self.aborted.append(aborted)
                self._lowest.append(self._after_marker.get(facts.producer_id, 0))
            elif facts.marker is ControlType.ABORT:
                self.without_data.add((facts.producer_id, facts.last_offset))
            if facts.is_control:
                self._after_marker[facts.producer_id] = facts.next_offset

    def begin_segment(self) -> None:
        """Continue with the next segment."""
        self.aborted.clear()
        self._lowest.clear()
        self.without_data.clear()

    def differences(self, entries: Iterable[AbortedTransaction], *, is_whole: bool = True) -> Iterator[IndexDifference]:
        """Yield the differences of the segment's index that make a broker serve the wrong records.

        An entry may begin earlier than the remaining data, and name an earlier last stable offset: compaction and
        retention have removed data since. `is_whole`: whether all entries of the segment were added.
        """
        named = {(each.producer_id, each.last_offset): each for each in entries}
        for transaction, lowest in zip(self.aborted, self._lowest, strict=True):
            entry = named.pop((transaction.producer_id, transaction.last_offset), None)
            offsets = transaction.first_offset, transaction.last_offset
            if entry is None:
                expected = f"the aborted transaction of producer {transaction.producer_id}"
                yield IndexDifference("transaction index", expected, "no entry for it", offsets)
                continue
            of = f"of the aborted transaction of producer {transaction.producer_id}"
            if not lowest <= entry.first_offset <= transaction.first_offset:
                expected = f"{lowest} to {transaction.first_offset}" if lowest else f"up to {transaction.first_offset}"
                yield IndexDifference(f"first offset {of}", expected, str(entry.first_offset), offsets)
            if entry.last_stable_offset > transaction.last_stable_offset:
                expected = f"up to {transaction.last_stable_offset}"
                yield IndexDifference(f"last stable offset {of}", expected, str(entry.last_stable_offset), offsets)
        for key in named.keys() - self.without_data if is_whole else ():
            producer, last = key
            yield IndexDifference(
                f"aborted transaction of producer {producer}", "an ABORT marker at its end", "none",
                (named[key].first_offset, last),
            )  # fmt: skip

    def corrected(self, entries: Iterable[AbortedTransaction]) -> list[AbortedTransaction]:
        """Return the entries of the right index: what is true of `entries` stays, and the log adds the rest."""
        named = {(each.producer_id, each.last_offset): each for each in entries}
        right = [named[key] for key in named.keys() & self.without_data]
        for transaction, lowest in zip(self.aborted, self._lowest, strict=True):
            entry = named.get((transaction.producer_id, transaction.last_offset))
            first, stable = transaction.first_offset, transaction.last_stable_offset
            if entry is not None:
                first = entry.first_offset if lowest <= entry.first_offset <= first else first
                stable = min(stable, entry.last_stable_offset)
            right.append(
                AbortedTransaction(TRANSACTION_VERSION, transaction.producer_id, first, transaction.last_offset, stable)
            )
        return sorted(right, key=lambda each: each.last_offset)


def header_facts(headers: Headers) -> list[BatchFacts]:
    """Return the facts of batches that are in a transaction, and of control batches. An invalid marker has no type."""
    if headers.chunk is not None:
        return [each for each in table_facts(headers.chunk.table) if each is not None]
    import numpy as np

    fields = headers.fields
    bits = headers.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)
    rows = np.flatnonzero(headers.is_batch & (bits != 0) & (fields["producer_id"] != NO_PRODUCER_ID))
    columns = (
        fields["producer_id"][rows],
        headers.offset[rows],
        headers.last_offset[rows],
        bits[rows] & TRANSACTIONAL_BIT != 0,
        headers.is_control[rows],
    )
    facts = list(map(BatchFacts, *(each.tolist() for each in columns), repeat(None)))
    for at in np.flatnonzero(columns[-1]).tolist():
        facts[at] = facts[at]._replace(marker=_marker(headers, int(rows[at])))
    return facts


def _marker(headers: Headers, row: int) -> ControlType | None:
    """Return the type of the marker in a control batch; None for an invalid one."""
    size = int(headers.size[row])
    if size <= headers.heads.shape[1]:
        data = headers.heads[row, :size].tobytes()
    else:
        data = headers.file.read_at(int(headers.position[row]), size)
    batch = RecordBatch.parse(memoryview(data))
    try:
        return None if batch is None else batch_facts(batch).marker
    except CorruptRecordError:
        return None
