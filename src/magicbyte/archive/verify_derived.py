"""Check that transaction indexes have every entry that a broker relies on, and no other one.

A broker trusts them after a clean shutdown: without the entry of an aborted transaction it serves its records as
committed. The table in docs/commands/verify.md lists all on which a broker would act falsely. Source: Kafka's
LogSegment.updateTxnIndex and ProducerAppendInfo.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.archive.findings import REBUILD, Finding, Severity
from magicbyte.log.files.directory import LOG, TRANSACTION_INDEX
from magicbyte.records.control import ControlType
from magicbyte.records.transactions import OpenTransactions, table_facts

if TYPE_CHECKING:
    from magicbyte.log.files.indexes import TransactionIndex
    from magicbyte.records.scan import BatchTable


class AbortWithoutEntry(NamedTuple):
    """An ABORT marker that a transaction index does not name, and whose transaction begins in no segment seen so far.

    Only if its data is in the log, the index is wrong.
    """

    producer_id: int
    offset: int


@dataclass(slots=True)
class TransactionCheck:
    """Compares the transactions of a log with its transaction indexes, segment by segment. It can be pickled.

    `unexplained`: markers whose data may be in earlier segments, which another worker has checked.
    """

    unexplained: list[AbortWithoutEntry] = field(default_factory=list)
    _open: OpenTransactions = field(default_factory=OpenTransactions)
    _aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first offset, marker; of the segment
    _markers: dict[tuple[int, int], ControlType | None] = field(default_factory=dict)  # by producer and offset

    def append(self, table: BatchTable) -> None:
        """Add the next entries of the segment."""
        for facts in table_facts(table):
            if facts is None:
                continue
            if facts.is_control:
                self._markers[facts.producer_id, facts.last_offset] = facts.marker
            if (aborted := self._open.append(facts)) is not None:
                self._aborted.append((aborted.producer_id, aborted.first_offset, aborted.last_offset))

    def segment(
        self, path: str, index: TransactionIndex | None, severity: Severity, *, is_sound: bool
    ) -> Iterator[Finding]:
        """Yield the findings for the index of the segment at `path`, None if it has none, and begin the next segment.

        `severity`: of entries that are missing. `is_sound`: whether all entries of the segment were read.
        """
        named = {} if index is None else {(each.producer_id, each.last_offset): each for each in index.entries}
        index_path = path.removesuffix(LOG) + TRANSACTION_INDEX
        known = set()
        for producer, first, last in self._aborted:
            known.add((producer, last))
            entry = named.get((producer, last))
            if entry is None:
                yield _without_entry(index_path, producer, first, last, severity)
            elif entry.first_offset > first:
                yield Finding(
                    severity, index_path, f"first offset of the aborted transaction of producer {producer}",
                    f"up to {first}", str(entry.first_offset), REBUILD, offsets=(first, last),
                )  # fmt: skip
        for (producer, offset), marker in self._markers.items():
            if marker is ControlType.ABORT and (producer, offset) not in named and (producer, offset) not in known:
                self.unexplained.append(AbortWithoutEntry(producer, offset))
        for (producer, offset), entry in named.items():
            marker = self._markers.get((producer, offset))
            if marker is not ControlType.ABORT and (is_sound or marker is not None):
                found = "no marker of its producer" if marker is None else f"a {marker.name} marker"
                yield Finding(
                    severity, index_path, f"aborted transaction of producer {producer}", "an ABORT marker at its end",
                    found, REBUILD, offsets=(entry.first_offset, offset),
                )  # fmt: skip
        self._aborted.clear()
        self._markers.clear()

    @property
    def open_producers(self) -> set[int]:
        """The producers with an open transaction at the end of the segments so far."""
        return set(self._open.first_offsets)


def _without_entry(path: str, producer: int, first: int, last: int, severity: Severity) -> Finding:
    return Finding(
        severity, path, "transaction index", f"the aborted transaction of producer {producer}", "no entry for it",
        REBUILD, offsets=(first, last),
    )  # fmt: skip
