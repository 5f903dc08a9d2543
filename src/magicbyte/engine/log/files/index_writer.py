"""Index files of a segment, as a given Kafka version writes them.

The offset and time index do not follow from the log alone. A broker adds entries per *append*, and the log does not
record the appends (a produce request, a fetched chunk, a cleaner's buffer). The caller passes them if they matter. The
default is the rule of Kafka's own recovery: each entry is an append. docs/internals/index-files.md has the rules, and
which real segments each of them reproduces. Sources: Kafka's LogSegment, OffsetIndex and TimeIndex.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files import directory
from magicbyte.engine.log.files.indexes import EnrichedIndex, OffsetIndex, TimeIndex, TransactionIndex
from magicbyte.engine.log.files.names import MAX_RELATIVE
from magicbyte.engine.log.files.producer_state import ProducerStates
from magicbyte.engine.records.decode import decode_rows
from magicbyte.engine.records.extent import OFFSETS_AND_TIMES, first_offset, last_offsets, max_timestamps
from magicbyte.engine.records.layout import CODEC_MASK, CONTROL_BIT, LOG_APPEND_TIME_BIT, Dialect
from magicbyte.engine.records.scan import BatchTable
from magicbyte.engine.releases import LINES, MarkerRule, Release
from magicbyte.engine.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from magicbyte.engine.log.files.indexes import AbortedTransaction, Int64Array


class IndexRules(Struct, frozen=True):
    """Rules for index entries and companion files of a log. `of` returns those of a Kafka version.

    `interval_bytes` and `max_index_bytes` are the settings `index.interval.bytes` and `segment.index.bytes`.
    """

    release: Release
    names_last_offset: bool
    entry_per_batch: bool
    has_time_index: bool
    names_record_of_time: bool
    """Only for a leader's appends. Recovery and compaction do not know the record."""
    marker_rule: MarkerRule | None
    """The effect of markers; None without producers, transactions and leader epochs."""
    interval_bytes: int = 4096
    max_index_bytes: int = 10 << 20

    @classmethod
    def of(cls, version: str) -> IndexRules:
        """Return the rules of a release such as "0.8.2.2", or of a line such as "3.9", as its leaders append.

        Raises LogDirectoryError, which lists the known releases, for any other text.
        """
        try:
            release = Release.of(version)
        except ValueError as error:
            raise LogDirectoryError(str(error)) from None
        return cls(
            release,
            names_last_offset=release.names_last_offset,
            entry_per_batch=release.entry_per_batch,
            has_time_index=release.has_time_index,
            names_record_of_time=release.names_record_of_time,
            marker_rule=release.marker_rule,
        )

    @property
    def version(self) -> str:
        """The release as given."""
        return self.release.version

    @property
    def has_producers(self) -> bool:
        """Whether there are `.txnindex` and `.snapshot` files and a `leader-epoch-checkpoint`: from 0.11 on."""
        return self.marker_rule is not None

    def recovering(self) -> IndexRules:
        """Return the rules by which the same version rebuilds indexes during recovery."""
        return replace(self, names_record_of_time=False)

    def of_dialect(self, dialect: Dialect) -> IndexRules:
        """Return the rules for a log of `dialect`: the enriched dialect has no producers."""
        return self if dialect is Dialect.KAFKA else replace(self, marker_rule=None)

    def producer_states(self, *, remembered: int = 0) -> ProducerStates:
        """Return the state before the first entry of a log, which keeps `remembered` batches of each producer."""
        rule = self.marker_rule or MarkerRule.TIMESTAMP
        return ProducerStates(rule, indexes_empty=self.release.indexes_empty_aborts, remembered=remembered)


LATEST_RULES = IndexRules.of(LINES[-1])


class SegmentIndexes(Struct, frozen=True):
    """The index files of one closed segment; None for a file that the version does not have.

    `largest_timestamp` (ms) is -1 if no entry has a timestamp.
    """

    offset_index: bytes | None
    time_index: bytes | None
    transaction_index: bytes | None
    enriched_index: bytes | None
    largest_timestamp: int

    def files(self) -> Mapping[str, bytes]:
        """Return the content of the files by suffix."""
        named = {
            directory.OFFSET_INDEX: self.offset_index,
            directory.TIME_INDEX: self.time_index,
            directory.TRANSACTION_INDEX: self.transaction_index,
            directory.ENRICHED_INDEX: self.enriched_index,
        }
        return {suffix: content for suffix, content in named.items() if content is not None}


class _Columns(Struct):
    """Collected entries of an index, as pieces of columns."""

    pieces: list[tuple[Int64Array, ...]] = field(default_factory=list)
    count: int = 0

    def add(self, *columns: Int64Array) -> None:
        if len(columns[0]):
            self.pieces.append(columns)
            self.count += len(columns[0])

    def whole(self, width: int) -> Iterator[Int64Array]:
        import numpy as np

        empty = np.empty(0, np.int64)
        return (np.concatenate([empty, *(piece[at] for piece in self.pieces)]) for at in range(width))


class SegmentIndexer:
    """Build the index files of one segment from its entries, in order, table after table.

    Memory: the size of the index files. `producers` is the state before the segment's first entry, for transactions
    that began in an earlier segment. It is updated.
    """

    def __init__(
        self,
        base_offset: int,
        rules: IndexRules = LATEST_RULES,
        *,
        dialect: Dialect = Dialect.KAFKA,
        producers: ProducerStates | None = None,
    ) -> None:
        self.base_offset = base_offset
        self._rules = rules
        self._dialect = dialect
        self._producers = producers or rules.producer_states()
        self._offsets, self._times = _Columns(), _Columns()
        self._aborted: list[AbortedTransaction] = []
        self._indexed_at = 0  # position from which the interval counts
        self._largest, self._largest_offset = NO_TIMESTAMP, base_offset  # the largest timestamp so far, and its offset
        self._last_time = NO_TIMESTAMP  # of the time index's last entry
        self._last_entry: tuple[int, int] | None = None  # enriched: offset and position of the last message

    def append(
        self,
        table: BatchTable,
        start_position: int,
        appends: Sequence[int] | None = None,
        last: Int64Array | None = None,
    ) -> None:
        """Add the entries of `table`, unmerged; its buffer begins `start_position` bytes into the segment.

        `appends`: the rows, ascending from 0, that each began an append; the last append ends with the table. None:
        each entry was appended by itself. `last`: the last offset of each row for appends with one index entry, if it
        differs from the header's (a log cleaner's last record). Raises CorruptRecordError for an offset or position
        that does not fit into an index, and for a wrapper, batch or marker that must be read and is damaged; positions
        are those of the segment.
        """
        if not len(table):
            return
        assert table.dialect is self._dialect
        try:
            if self._dialect is Dialect.ENRICHED:
                self._append_enriched(table, start_position)
            else:
                self._append(table, start_position, *((None, None) if self._rules.entry_per_batch else (appends, last)))
                if self._rules.has_producers:
                    self._aborted += self._producers.append(table)
        except CorruptRecordError as error:
            raise error.locate(shift=start_position) from None

    def finish(self) -> SegmentIndexes:
        """Return the files of the closed segment, with the last time index entry for the largest timestamp."""
        import numpy as np

        base = self.base_offset
        if self._dialect is Dialect.ENRICHED:
            if self._last_entry is not None and (
                not self._offsets.count or self._last_position() < self._last_entry[1]
            ):
                self._offsets.add(
                    *(np.array([each], np.int64) for each in (self._last_entry[0], self._largest, self._last_entry[1]))
                )
            enriched = EnrichedIndex(base, *self._offsets.whole(3)).to_bytes()
            return SegmentIndexes(None, None, None, enriched, self._largest)
        if self._largest > self._last_time:
            self._times.add(np.array([self._largest], np.int64), np.array([self._largest_offset], np.int64))
            self._last_time = self._largest
        return SegmentIndexes(
            OffsetIndex(base, *self._offsets.whole(2)).to_bytes(),
            TimeIndex(base, *self._times.whole(2)).to_bytes() if self._rules.has_time_index else None,
            TransactionIndex(tuple(self._aborted)).to_bytes() if self._aborted else None,
            None,
            self._largest,
        )

    def _last_position(self) -> int:
        return int(self._offsets.pieces[-1][2][-1])

    def _append(
        self, table: BatchTable, start_position: int, appends: Sequence[int] | None, named: Int64Array | None
    ) -> None:
        import numpy as np

        count = len(table)
        header_offsets = np.asarray(table.offset, np.int64)
        last, timestamps = last_offsets(table), max_timestamps(table)
        self._check(table, start_position, last)

        starts = np.arange(count) if appends is None else np.asarray(appends, np.int64)
        ends = np.append(starts[1:], count) - 1
        chosen = self._choose(start_position + np.asarray(table.position, np.int64)[starts])
        if self._rules.names_last_offset:
            offsets = (last if named is None else named)[ends[chosen]]
        else:
            offsets = header_offsets[starts[chosen]]
            for at in np.flatnonzero(np.asarray(table.count)[starts[chosen]] < 0).tolist():
                offsets[at] = first_offset(table, int(starts[chosen[at]]))
        self._offsets.add(offsets, start_position + np.asarray(table.position, np.int64)[starts[chosen]])
        self._add_times(table, timestamps, last, ends[chosen])

    def _check(self, table: BatchTable, start_position: int, offsets: Int64Array) -> None:
        """Raise CorruptRecordError for an entry whose offset or position does not fit into an index entry."""
        import numpy as np

        position = int(table.position[len(table) - 1])
        if start_position + position > MAX_RELATIVE:
            in_segment = start_position + position
            raise CorruptRecordError(
                "position in the segment", expected=f"<= {MAX_RELATIVE}", found=in_segment, position=position
            )
        far = (offsets < self.base_offset) | (offsets - self.base_offset > MAX_RELATIVE)
        if far.any():
            row = int(np.argmax(far))
            expected = f"{self.base_offset} to {self.base_offset + MAX_RELATIVE}"
            in_segment = int(offsets[row])
            raise CorruptRecordError(
                "offset in the segment", expected=expected, found=in_segment, position=int(table.position[row])
            ).locate(offsets=(in_segment, in_segment))

    def _choose(self, positions: Int64Array) -> Int64Array:
        """Return which of the appends at `positions` get an entry: those more than the interval after the last one."""
        import numpy as np

        interval = self._rules.interval_bytes
        at = int(np.searchsorted(positions, self._indexed_at + interval, side="right"))
        chosen: Int64Array = np.arange(at, len(positions))
        if len(chosen) and not (np.diff(positions[at:]) > interval).all():
            following = np.searchsorted(positions, positions + interval, side="right").tolist()
            found = []
            while at < len(following):
                found.append(at)
                at = following[at]
            chosen = np.array(found, np.int64)
        if len(chosen):
            self._indexed_at = int(positions[chosen[-1]])
        return chosen

    def _add_times(self, table: BatchTable, timestamps: Int64Array, last: Int64Array, indexed: Int64Array) -> None:
        """Advance the largest timestamp, and add the time index entries that are due after the `indexed` rows."""
        import numpy as np

        largest = np.maximum.accumulate(np.concatenate(([self._largest], timestamps)))
        grows = timestamps > largest[:-1]
        # row of the largest so far; -1: before the table
        holder = np.maximum.accumulate(np.where(grows, np.arange(len(table)), -1))
        times = largest[1:][indexed]
        new = times > np.concatenate(([self._last_time], times[:-1]))
        holders = holder[indexed][new]
        if self._rules.names_record_of_time:
            offsets = np.array([self._offset_of_time(table, row, last) for row in holders.tolist()], np.int64)
        else:
            offsets = np.where(holders < 0, self._largest_offset, last[holders])
        self._times.add(times[new], offsets)
        if len(times):
            self._last_time = max(self._last_time, int(times[-1]))
        self._largest_offset = self._offset_of_time(table, int(holder[-1]), last)
        self._largest = int(largest[-1])

    def _offset_of_time(self, table: BatchTable, row: int, last: Int64Array) -> int:
        """Return the offset of an entry's largest timestamp for the time index; row -1 is an entry before the table."""
        return self._largest_offset if row < 0 else offset_of_time(table, row, int(last[row]), self._rules)

    def _append_enriched(self, table: BatchTable, start_position: int) -> None:
        """Add enriched entries: one index of offset, largest timestamp so far, and position."""
        import numpy as np

        offsets = np.asarray(table.offset, np.int64)
        self._check(table, start_position, offsets)
        positions = np.asarray(table.position, np.int64)
        timestamps = max_timestamps(table)
        largest = np.maximum.accumulate(np.concatenate(([self._largest], timestamps)))
        chosen = self._choose(start_position + positions)
        self._offsets.add(offsets[chosen], largest[1:][chosen], start_position + positions[chosen])
        self._largest = int(largest[-1])
        self._last_entry = int(offsets[-1]), start_position + int(positions[-1])


def offset_of_time(table: BatchTable, row: int, last_offset: int, rules: IndexRules) -> int:
    """Return the offset of a row's largest timestamp for the time index; `last_offset` is the row's."""
    import numpy as np

    simple = int(table.attributes[row]) & (CODEC_MASK | LOG_APPEND_TIME_BIT | CONTROL_BIT) == 0
    if rules.names_record_of_time and int(table.magic[row]) == 2 and simple:
        best: tuple[int, int] | None = None
        for columns in decode_rows(table, [row], OFFSETS_AND_TIMES):
            at = int(np.asarray(columns.timestamp).argmax())
            if best is None or int(columns.timestamp[at]) > best[0]:
                best = int(columns.timestamp[at]), int(columns.offset[at])
        if best is not None:
            return best[1]
    return last_offset


def looked_into(table: BatchTable, rules: IndexRules) -> Any:
    """Return a mask of the rows whose content is needed for index entries under `rules`, or for their offsets."""
    import numpy as np

    magic, attributes = np.asarray(table.magic, np.int64), np.asarray(table.attributes, np.int64)
    wrapper = np.asarray(table.count, np.int64) < 0
    if table.dialect is Dialect.ENRICHED:
        return wrapper
    simple = attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT | CONTROL_BIT) == 0
    of_times = (magic == 2) & simple & rules.names_record_of_time
    return of_times | ((magic < 2) & wrapper & (not rules.names_last_offset))
