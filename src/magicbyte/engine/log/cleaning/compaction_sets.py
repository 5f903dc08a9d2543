"""Decide what compaction keeps of each set: the same bytes, a set with fewer records, an empty batch, or nothing.

A set is a v2 batch, a wrapper or a plain message. Sets that keep all records are copied; for sets just read, the marks
of the offset map decide that without decompression. Sources: Kafka's Cleaner and MemoryRecords.filterTo; for merging,
KIP-31 and the Enriched Message Metadata proposal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from magicbyte.engine.codecs import Codec
from magicbyte.engine.compiled.kernel import worth_compiling
from magicbyte.engine.log.cleaning.offset_marks import OffsetMarks
from magicbyte.engine.records.batch import HEADER, RecordBatch, batch_attributes, build_batch
from magicbyte.engine.records.decode import DecodeOptions, decode_entries
from magicbyte.engine.records.encode import DEFAULT_HEADER, BatchHeader, Format, RowWriter
from magicbyte.engine.records.extent import header_lasts
from magicbyte.engine.records.layout import (
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    ENRICHED_CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP,
    PARTITION_LEADER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
    V1_TIMESTAMP,
    Dialect,
    TimestampType,
)
from magicbyte.engine.records.scan import BatchTable, scan
from magicbyte.engine.records.thin import thin_lz4
from magicbyte.engine.sentinels import NO_PRODUCER_ID, NO_TIMESTAMP
from magicbyte.engine.wire.checksum import Buffer

if TYPE_CHECKING:
    from magicbyte.engine.log.cleaning.cleaned_transactions import CleanedTransactions
    from magicbyte.engine.log.cleaning.offset_map import OffsetMap
    from magicbyte.engine.log.files.producer_snapshot import ProducerEntry
    from magicbyte.engine.records.columns import RecordColumns

Array = np.ndarray[Any, Any]

_DROP, _COPY, _LOOK = range(3)
_MOST_MARKS_AT_ONCE = 1 << 26
_EVERYTHING = DecodeOptions(control=True)
_TRUSTED = DecodeOptions(control=True, verify=False)
_LEADER_EPOCH = 8


class Dropped(Struct):
    """The number of dropped records by reason, and of sets dropped or rewritten for it."""

    superseded: int = 0
    tombstones: int = 0
    without_key: int = 0
    aborted: int = 0
    markers: int = 0
    sets_copied: int = 0
    sets_rewritten: int = 0
    sets_dropped: int = 0
    sets_emptied: int = 0
    sets_merged: int = 0

    @property
    def records(self) -> int:
        """All dropped records, markers included."""
        return self.superseded + self.tombstones + self.without_key + self.aborted + self.markers

    def add(self, other: Dropped) -> None:
        """Add the counts of `other`."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_json(self) -> dict[str, int]:
        """Return the counts by name."""
        return {
            "superseded": self.superseded,
            "tombstones": self.tombstones,
            "withoutKey": self.without_key,
            "aborted": self.aborted,
            "markers": self.markers,
            "setsCopied": self.sets_copied,
            "setsRewritten": self.sets_rewritten,
            "setsDropped": self.sets_dropped,
            "setsEmptied": self.sets_emptied,
            "setsMerged": self.sets_merged,
        }


class Piece(NamedTuple):
    """One set to write. `row`: the first row that it was made of; `last`: the last offset for the index."""

    row: int
    data: Buffer
    last: int


class Rules(Struct, frozen=True):
    """The parameters of the decision, besides the map. Times in ms. `horizons`: v2 batches get delete horizons (3.1).

    `keeps_last`: the batch that ends at `end_offset` is kept, empty if need be (4.0). `producers` are the active ones,
    with their last batches. `merges`: neighbouring sets become one of at most `max_message_bytes`. `opens_wrappers`:
    some wrappers of magic 1 contain messages of magic 0, and must be rewritten.
    """

    now_ms: int
    delete_retention_ms: int
    horizons: bool
    keeps_last: bool
    end_offset: int
    producers: Mapping[int, ProducerEntry]
    merges: bool
    max_message_bytes: int
    last_leader_epoch: int = -1  # enriched: offset of the latest leader epoch message
    opens_wrappers: bool = False


class _Sets(Struct):
    """The rows of one table as arrays, and the decisions about them."""

    table: BatchTable
    first: Array  # for Kafka's wrappers, whose headers do not have it, a lower bound
    last: Array
    magic: Array
    attributes: Array
    count: Array
    enriched: bool
    verdict: Array
    retained: Array  # kept, at least as an empty batch
    horizon: Array  # -1: none
    sets_horizon: Array
    is_wrapper: Array
    is_control: Array
    pieces: dict[int, tuple[Buffer, int]] = field(default_factory=dict)

    def view(self, row: int) -> memoryview:
        position = int(self.table.position[row])
        return self.table.buffer[position : position + int(self.table.size[row])]


class SetFilter:
    """Filter the sets of a group of segments, in offset order. `dropped` counts the removed records.

    `keeps_deletes`: tombstones are kept, because records of their keys may be in a damaged segment before them.
    """

    def __init__(self, offset_map: OffsetMap | OffsetMarks, rules: Rules, transactions: CleanedTransactions) -> None:
        self.map, self.rules, self.transactions = offset_map, rules, transactions
        self.dropped = Dropped()
        self.records_seen = 0  # below the dirty part, whose records were counted in the first pass
        self.retains_deletes = True
        self.keeps_deletes = False
        self._before = -1  # last offset before the next table

    def begin_run(self, transactions: CleanedTransactions, *, keeps_deletes: bool) -> None:
        """Continue with segments that do not follow the previous ones; `transactions` are those at the first one."""
        self.transactions, self.keeps_deletes = transactions, keeps_deletes

    def begin_segment(self, base_offset: int, *, retains_deletes: bool) -> None:
        """Continue with another segment. `retains_deletes`: its tombstones and old-format markers must be kept."""
        self.retains_deletes, self._before = retains_deletes, base_offset - 1

    def filter(self, table: BatchTable) -> list[Piece]:
        """Return the remaining sets of an unmerged table, in order.

        Raises CorruptRecordError for a set that must be decompressed and cannot be.
        """
        sets = self._sets(table)
        self._judge_producers(sets)
        self._judge_by_marks(sets)
        looked = np.flatnonzero(sets.verdict == _LOOK)
        if len(looked):
            for rows in np.split(looked, np.flatnonzero(np.diff(sets.magic[looked]) != 0) + 1):
                for chosen, counts, columns in decode_entries(table, rows.tolist(), self._options(sets, rows)):
                    self._look(sets, np.asarray(chosen), np.asarray(counts, np.int64), columns)
        return self._collect(sets)

    # ---- which sets and records are kept

    def _sets(self, table: BatchTable) -> _Sets:
        magic, attributes, offset, count = (
            np.asarray(each, np.int64) for each in (table.magic, table.attributes, table.offset, table.count)
        )
        enriched = table.dialect is Dialect.ENRICHED
        batches = np.flatnonzero(magic == 2)
        last, horizon = header_lasts(table), np.full(len(table), NO_TIMESTAMP, np.int64)
        if len(batches):
            bases = table.gather(BASE_TIMESTAMP, batches)
            horizon[batches] = np.where(attributes[batches] & DELETE_HORIZON_BIT != 0, bases, NO_TIMESTAMP)
        first, is_wrapper = offset.copy(), count < 0
        if len(table):
            before = np.concatenate(([self._before], last[:-1])) + 1
            first = np.where(is_wrapper & (not enriched), before, first)
            self._before = int(last[-1])
        control = (
            (attributes & ENRICHED_CONTROL_BIT != 0) if enriched else (magic == 2) & (attributes & CONTROL_BIT != 0)
        )
        none = np.zeros(len(table), bool)
        return _Sets(
            table, first, last, magic, attributes, count, enriched, np.full(len(table), _LOOK), none.copy(), horizon,
            none, is_wrapper, control,
        )  # fmt: skip

    def _judge_producers(self, sets: _Sets) -> None:
        """Decide about control batches and aborted data, and find the batches with a producer's last sequence."""
        rules = self.rules
        if sets.enriched:
            for row in np.flatnonzero(sets.is_control).tolist():
                outdated = sets.attributes[row] & 15 == _LEADER_EPOCH and sets.first[row] < rules.last_leader_epoch
                sets.verdict[row] = _DROP if outdated else _COPY
                self.dropped.markers += int(outdated)
            return
        batches = sets.magic == 2
        rows = np.flatnonzero(batches)
        if not len(rows):
            return
        if rules.keeps_last:
            sets.retained |= batches & (sets.last + 1 == rules.end_offset)
        producers = sets.table.gather(PRODUCER_ID, rows)
        known = producers != NO_PRODUCER_ID
        for row in rows[known].tolist():
            batch = RecordBatch(sets.view(row))
            entry = rules.producers.get(batch.producer_id)
            if entry is not None and (
                batch.last_offset == entry.last_offset
                if entry.last_offset >= 0
                else batch.is_control and batch.producer_epoch == entry.producer_epoch
            ):
                sets.retained[row] = True
            if batch.is_control:
                self._judge_marker(sets, row, batch)
            elif self.transactions.is_aborted(batch):
                sets.verdict[row] = _DROP
                self.dropped.aborted += batch.record_count
        for row in rows[~known & sets.is_control[rows]].tolist():
            self._judge_marker(sets, row, RecordBatch(sets.view(row)))
        emptied = batches & (sets.count == 0)
        sets.verdict[emptied] = _DROP

    def _judge_marker(self, sets: _Sets, row: int, batch: RecordBatch) -> None:
        needless = self.transactions.is_needless(batch)
        horizon = batch.delete_horizon_ms
        if self.rules.horizons:
            due = needless and horizon is not None and horizon <= self.rules.now_ms
        else:
            due = needless and not self.retains_deletes
        if due:
            self.dropped.markers += batch.record_count
        sets_horizon = self.rules.horizons and needless and horizon is None
        sets.sets_horizon[row] = sets_horizon
        sets.verdict[row] = _DROP if due else _LOOK if sets_horizon else _COPY

    def _judge_by_marks(self, sets: _Sets) -> None:
        """Decide by the marks about sets whose offsets were all read for the map."""
        offsets = self.map
        end = min(offsets.latest + 1, offsets.marked_end)
        known = (sets.verdict == _LOOK) & (sets.first >= offsets.begin) & (sets.last < end) & ~sets.is_control
        known &= ~(sets.is_wrapper & (sets.enriched | self.rules.opens_wrappers))
        rows = np.flatnonzero(known)
        if not len(rows):
            return
        low, high = int(sets.first[rows].min()), int(sets.last[rows].max()) + 1
        if high - low > _MOST_MARKS_AT_ONCE:
            return
        first, last = sets.first[rows] - low, sets.last[rows] - low + 1
        marks = offsets.superseded(low, high)
        gone = np.concatenate(([0], np.cumsum(marks, dtype=np.int64)))
        odd = np.concatenate(([0], np.cumsum(offsets.odd(low, high), dtype=np.int64)))
        superseded, usual = gone[last] - gone[first], odd[last] == odd[first]
        whole = usual & (superseded == 0)
        if self.rules.merges:
            whole &= ~self._may_merge(sets)[rows]
        none = usual & ~sets.is_wrapper[rows] & (superseded >= sets.count[rows])
        sets.verdict[rows[whole]] = _COPY
        sets.verdict[rows[none]] = _DROP
        self.dropped.superseded += int(superseded[none].sum())
        if not self.rules.merges and worth_compiling(len(sets.table.buffer)):
            lz4 = (sets.magic[rows] == 2) & (sets.attributes[rows] & CODEC_MASK == Codec.LZ4)
            some = np.flatnonzero(usual & ~whole & ~none & lz4)
            self._thin(sets, rows[some], superseded[some], low, marks)

    def _thin(self, sets: _Sets, rows: Array, superseded: Array, low: int, marks: Array) -> None:
        """Rewrite those of the `rows` that need not be decoded; `marks` says which offsets are superseded."""
        lost = np.zeros(len(sets.verdict), np.int64)
        lost[rows] = superseded
        for thinned in thin_lz4(sets.table, rows, low, marks):
            sets.pieces.update(zip(thinned.rows, zip(thinned.data, thinned.last, strict=True), strict=True))
            sets.verdict[thinned.rows] = _COPY
            self.dropped.superseded += int(lost[thinned.rows].sum())
            self.dropped.sets_rewritten += len(thinned.rows)

    def _options(self, sets: _Sets, rows: Array) -> DecodeOptions:
        """Return the options: checksums of the sets read for the map were verified then."""
        read = sets.first[rows[0]] >= self.map.begin and sets.last[rows[-1]] <= self.map.latest
        return _TRUSTED if read else _EVERYTHING

    def _look(self, sets: _Sets, rows: Array, counts: Array, columns: RecordColumns) -> None:
        """Decide about decoded sets, record by record, and rewrite those that lose some records."""
        assert columns.key is not None
        assert columns.value is not None
        rules, dropped = self.rules, self.dropped
        ends = np.cumsum(counts)
        offset = np.asarray(columns.offset, np.int64)
        tombstone = np.asarray(columns.value.length) < 0
        past = (offset > self.map.latest) | np.repeat(sets.is_control[rows], counts)
        superseded = self._superseded(offset, columns) & ~past
        keyless = (np.asarray(columns.key.length) < 0) & ~past
        if rules.horizons:
            due = np.where(sets.magic[rows] == 2, _passed(sets.horizon[rows], rules.now_ms), not self.retains_deletes)
        else:
            due = np.full(len(rows), not self.retains_deletes)
        due = due & (not self.keeps_deletes)
        expired = tombstone & np.repeat(due, counts) & ~past & ~superseded & ~keyless
        keep = ~(superseded | keyless | expired)
        dropped.superseded += int(np.count_nonzero(superseded & ~keyless))
        dropped.without_key += int(np.count_nonzero(keyless))
        dropped.tombstones += int(np.count_nonzero(expired))
        self.records_seen += int(np.count_nonzero(offset < self.map.begin))
        kept = _sums(keep, counts, ends)
        if rules.horizons:
            fresh = (sets.magic[rows] == 2) & (sets.horizon[rows] == NO_TIMESTAMP) & ~sets.is_control[rows]
            sets.sets_horizon[rows] |= fresh & (_sums(keep & tombstone, counts, ends) > 0)
        whole = (kept == counts) & ~sets.sets_horizon[rows]
        if not sets.enriched:
            untimed = np.asarray(columns.timestamp_type) == TimestampType.NO_TIMESTAMP_TYPE
            whole &= (sets.magic[rows] != 1) | (_sums(untimed, counts, ends) == 0)
        merging = self._may_merge(sets)[rows] & (kept > 0) if rules.merges else np.zeros(len(rows), bool)
        sets.verdict[rows] = np.where(kept == 0, _DROP, np.where(whole, _COPY, _LOOK))
        anew = (kept > 0) & (~whole | merging)
        if anew.any():
            chosen = np.flatnonzero(anew)
            taken = columns.take(np.flatnonzero(keep & np.repeat(anew, counts)))
            _Rewriting(sets, rules, taken, rows[chosen], kept[chosen], whole[chosen], dropped).run()

    def _superseded(self, offset: Array, columns: RecordColumns) -> Array:
        """Return for each record whether a later one has its key; undefined for records after the map's end."""
        assert columns.key is not None
        if not len(offset):
            return np.zeros(0, bool)
        if isinstance(self.map, OffsetMarks):
            return self.map.superseded_of(offset)
        low, high = int(offset.min()), int(offset.max()) + 1
        if low >= self.map.begin and high <= self.map.marked_end and high - low <= _MOST_MARKS_AT_ONCE:
            found: Array = self.map.superseded(low, high)[offset - low].astype(bool)
        else:
            found = self.map.latest_of(columns.key) > offset
        return found

    def _may_merge(self, sets: _Sets) -> Array:
        """Return which sets may be merged with a similar neighbour."""
        if sets.enriched:
            return sets.is_wrapper
        producers: Array = np.full(len(sets.magic), NO_PRODUCER_ID)
        rows = np.flatnonzero(sets.magic == 2)
        producers[rows] = sets.table.gather(PRODUCER_ID, rows)
        calm: Array = (
            (producers == NO_PRODUCER_ID) & ~sets.is_control & ~sets.sets_horizon & (sets.horizon == NO_TIMESTAMP)
        )
        calm &= (sets.magic == 2) | ((sets.magic == 1) & sets.is_wrapper)
        return calm

    # ---- output

    def _collect(self, sets: _Sets) -> list[Piece]:
        """Return the pieces in order; neighbouring copied sets are one piece each, too."""
        dropped, pieces = self.dropped, []
        position, size, last = (
            np.asarray(each, np.int64).tolist() for each in (sets.table.position, sets.table.size, sets.last)
        )
        for row, (verdict, retained) in enumerate(zip(sets.verdict.tolist(), sets.retained.tolist(), strict=True)):
            if row in sets.pieces:
                data, last_kept = sets.pieces[row]
                if len(data):
                    pieces.append(Piece(row, data, last_kept))
            elif verdict == _COPY:
                dropped.sets_copied += 1
                pieces.append(Piece(row, sets.table.buffer[position[row] : position[row] + size[row]], last[row]))
            elif verdict == _DROP and retained:
                dropped.sets_emptied += int(sets.count[row] > 0)
                pieces.append(Piece(row, empty_batch(RecordBatch(sets.view(row))), last[row]))
            else:
                dropped.sets_dropped += 1
        return pieces


def may_be_mixed(table: BatchTable, columns: RecordColumns) -> bool:
    """Return whether a wrapper of magic 1 in `table` may contain messages of magic 0, given records of the table."""
    untimed = np.asarray(columns.timestamp_type) == TimestampType.NO_TIMESTAMP_TYPE
    wrappers = (np.asarray(table.magic) == 1) & (np.asarray(table.count) < 0)
    return table.dialect is Dialect.KAFKA and bool(untimed.any() and wrappers.any())


def empty_batch(batch: RecordBatch) -> bytes:
    """Return a batch without its records: its offsets, producer and sequences are kept."""
    return build_batch(
        b"",
        base_offset=batch.base_offset,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
        record_count=0,
        attributes=batch_attributes(
            Codec.NONE,
            batch.timestamp_type,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
        ),
        partition_leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def _passed(horizon: Array, now_ms: int) -> Array:
    """Return whether there is a delete horizon that has passed."""
    found: Array = (horizon != NO_TIMESTAMP) & (horizon <= now_ms)
    return found


def _sums(flags: Array, counts: Array, ends: Array) -> Array:
    """Return how many flags are set among the records of each row."""
    total = np.concatenate(([0], np.cumsum(flags, dtype=np.int64)))
    found: Array = total[ends] - total[ends - counts]
    return found


class _Rewriting(Struct):
    """Rewrite sets from their kept records: `kept[i]` adjacent records of `columns` belong to `rows[i]`.

    `whole` marks rows that lost no record.
    """

    sets: _Sets
    rules: Rules
    columns: RecordColumns
    rows: Array
    kept: Array
    whole: Array
    dropped: Dropped

    def run(self) -> None:
        """Store the rewritten sets in the pieces."""
        single = [[at] for at in range(len(self.rows))]
        unions = self._unions() if self.rules.merges else single
        self._put(unions)

    def _put(self, unions: list[list[int]]) -> None:
        sets, starts = self.sets, np.cumsum(self.kept) - self.kept
        target = Format.ENRICHED if sets.enriched else Format(str(int(sets.magic[self.rows[0]])))
        writer = RowWriter(self.columns, target)
        alone = [union for union in unions if len(union) > 1 or not self.whole[union[0]]]
        codecs = (sets.attributes[self.rows] & CODEC_MASK).tolist()
        for number, group in itertools.groupby(alone, key=lambda union: codecs[union[0]]):
            codec, chosen = Codec(number), list(group)
            fields: list[int] = []
            for union in chosen:
                first, end = int(starts[union[0]]), int(starts[union[-1]] + self.kept[union[-1]])
                fields += writer.batch_fields(first, end)
            headers = [self._header(union, target) for union in chosen]
            self._take(chosen, writer.write(writer.form.int64(fields), codec, headers))

    def _take(self, unions: list[list[int]], written: memoryview) -> None:
        table = scan(written, dialect=self.sets.table.dialect)
        offsets = np.asarray(self.columns.offset, np.int64)
        ends = np.cumsum(self.kept)
        positions, sizes = (np.asarray(each, np.int64).tolist() for each in (table.position, table.size))
        for union, position, size in zip(unions, positions, sizes, strict=True):
            if len(union) > 1 and size > self.rules.max_message_bytes:
                self._put([[at] for at in union])
                continue
            data = written[position : position + size]
            self.sets.pieces[int(self.rows[union[0]])] = data, int(offsets[ends[union[-1]] - 1])
            for at in union[1:]:
                self.sets.pieces[int(self.rows[at])] = b"", 0
            self.dropped.sets_rewritten += 1
            self.dropped.sets_merged += len(union) - 1

    def _header(self, union: list[int], target: Format) -> BatchHeader:
        sets, first, last = self.sets, int(self.rows[union[0]]), int(self.rows[union[-1]])
        if target is Format.ENRICHED:
            return BatchHeader(base_offset=int(sets.first[first]))
        if target is not Format.V2:
            return DEFAULT_HEADER
        base, _, epoch, _, _, bits, _, base_timestamp, latest, producer, producer_epoch, sequence, _ = (
            HEADER.unpack_from(sets.table.buffer, int(sets.table.position[first]))
        )
        horizon = base_timestamp if bits & DELETE_HORIZON_BIT else None
        if sets.sets_horizon[first]:
            horizon = self.rules.now_ms + self.rules.delete_retention_ms
        append_time = bits & LOG_APPEND_TIME_BIT != 0
        return BatchHeader(
            base_offset=base,
            last_offset=int(sets.last[last]),
            base_timestamp=horizon,
            timestamp_type=TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME,
            max_timestamp=latest if append_time else None,
            is_transactional=bits & TRANSACTIONAL_BIT != 0,
            is_control=bits & CONTROL_BIT != 0,
            has_delete_horizon=horizon is not None,
            partition_leader_epoch=epoch,
            producer_id=producer,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )

    def _unions(self) -> list[list[int]]:
        """Group neighbours that may be merged, as long as the result is not too large."""
        sets, rows = self.sets, self.rows.tolist()
        kinds = _kinds(sets, rows)
        unions: list[list[int]] = []
        room = 0
        for at, row in enumerate(rows):
            size = int(sets.table.size[row])
            together = (
                at > 0
                and kinds[at] is not None
                and kinds[at] == kinds[at - 1]
                and not _stands_between(sets, rows[at - 1], row)
                and size <= room
                and int(sets.last[row]) - int(sets.first[rows[unions[-1][0]]]) < 1 << 31
            )
            if together:
                unions[-1].append(at)
            else:
                unions.append([at])
                room = self.rules.max_message_bytes
            room -= size
        return unions


def _kinds(sets: _Sets, rows: Iterable[int]) -> list[tuple[int, ...] | None]:
    """Return for each row the properties that neighbours must share to be merged; None: it is not merged."""
    kinds: list[tuple[int, ...] | None] = []
    for row in rows:
        bits = int(sets.attributes[row])
        view = sets.view(row)
        kind: tuple[int, ...] | None = None
        append_time = bool(bits & LOG_APPEND_TIME_BIT)
        if sets.enriched:
            kind = (bits & 15,)
        elif sets.magic[row] == 1 and sets.is_wrapper[row]:
            kind = (1, bits & 15, V1_TIMESTAMP.read(view) if append_time else 0)
        elif (
            sets.magic[row] == 2
            and not bits & (CONTROL_BIT | TRANSACTIONAL_BIT | DELETE_HORIZON_BIT)
            and not sets.sets_horizon[row]
            and PRODUCER_ID.read(view) == NO_PRODUCER_ID
        ):
            kind = (2, bits & 15, PARTITION_LEADER_EPOCH.read(view), MAX_TIMESTAMP.read(view) if append_time else 0)
        kinds.append(kind)
    return kinds


def _stands_between(sets: _Sets, before: int, row: int) -> bool:
    """Return whether a set that stays, but is not rewritten, lies between two rows."""
    between = slice(before + 1, row)
    return bool(((sets.verdict[between] != _DROP) | sets.retained[between]).any())
