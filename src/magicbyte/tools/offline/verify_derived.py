"""Check that transaction indexes have every entry that a broker relies on, and no other one.

The table in docs/commands/verify.md lists all on which a broker would act falsely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.log.files.aborted import SegmentAborts
from magicbyte.engine.log.files.directory import LOG, TRANSACTION_INDEX
from magicbyte.engine.records.transactions import table_facts
from magicbyte.tools.offline.findings import REBUILD, Finding, Severity

if TYPE_CHECKING:
    from magicbyte.engine.log.files.indexes import TransactionIndex
    from magicbyte.engine.records.scan import BatchTable


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
    _aborts: SegmentAborts = field(default_factory=SegmentAborts)

    def append(self, table: BatchTable) -> None:
        """Add the next entries of the segment."""
        self._aborts.append(table_facts(table))

    def segment(
        self, path: str, index: TransactionIndex | None, severity: Severity, *, is_sound: bool
    ) -> Iterator[Finding]:
        """Yield the findings for the index of the segment at `path`, None if it has none, and begin the next segment.

        `severity`: of differences from the log. `is_sound`: whether all entries of the segment were read.
        """
        entries = () if index is None else index.entries
        index_path = path.removesuffix(LOG) + TRANSACTION_INDEX
        for what, expected, found, offsets in self._aborts.differences(entries, is_whole=is_sound):
            yield Finding(severity, index_path, what, expected, found, REBUILD, offsets=offsets)
        named = {(each.producer_id, each.last_offset) for each in entries}
        self.unexplained += map(AbortWithoutEntry._make, sorted(self._aborts.without_data - named))
        self._aborts.begin_segment()

    @property
    def open_producers(self) -> set[int]:
        """The producers with an open transaction at the end of the segments so far."""
        return set(self._aborts.open.first_offsets)
