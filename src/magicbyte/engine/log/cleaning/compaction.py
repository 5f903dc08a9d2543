"""Compaction: keep only the latest record of each key, without changing offsets.

Two passes, as in Kafka: the dirty part of the log is read for the offset map, then groups of segments are rewritten,
each as one segment, and replaced by the log's own swap. `Compaction.run` does it step by step, for a worker with other
tasks. Sources: Kafka's LogCleaner, Cleaner and LogCleanerManager; docs/commands/compact.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Generator, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from magicbyte.engine.compiled.kernel import worth_compiling
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.cleaning.cleaned_transactions import CleanedTransactions, SegmentTransactions
from magicbyte.engine.log.cleaning.compaction_sets import Dropped, Piece, Rules, SetFilter, may_be_mixed
from magicbyte.engine.log.cleaning.offset_map import OffsetMap
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.directory import LOG
from magicbyte.engine.log.files.index_writer import SegmentIndexer
from magicbyte.engine.log.files.names import MAX_RELATIVE
from magicbyte.engine.log.files.producer_snapshot import ProducerEntry
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.log.live.lookups import aborted_transactions
from magicbyte.engine.log.live.transaction_checks import check_transactions
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.decode import DecodeOptions, decode_rows
from magicbyte.engine.records.extent import last_offsets
from magicbyte.engine.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT, Dialect
from magicbyte.engine.records.scan import scan

if TYPE_CHECKING:
    from magicbyte.engine.log.cleaning.offset_marks import OffsetMarks
    from magicbyte.engine.log.files.indexes import AbortedTransaction
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.log.live.segment import Segment
    from magicbyte.engine.ports import Moment
    from magicbyte.engine.records.columns import RecordColumns
    from magicbyte.engine.records.scan import BatchTable


FOREVER = (1 << 63) - 1
_KEYS = DecodeOptions(headers=False)


class CompactionConfig(Struct, frozen=True):
    """The settings of the log cleaner and of the topic for it. Sizes in bytes, times in ms; names and defaults are
    Kafka's.

    Our own is `merge_sets` (`cleaner.merge.sets`): whether to merge neighbouring sets; None: in the enriched dialect.
    """

    dedupe_buffer_bytes: int = 128 << 20
    load_factor: float = 0.9
    io_buffer_bytes: int = 512 << 10
    min_cleanable_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    min_lag_ms: int = 0
    max_lag_ms: int = FOREVER
    max_message_bytes: int = 1_048_588
    merge_sets: bool | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> CompactionConfig:
        """Return the configuration of typed values of a topic and its broker, by the names of their settings."""
        return cls(
            dedupe_buffer_bytes=values["log.cleaner.dedupe.buffer.size"],
            load_factor=values["log.cleaner.io.buffer.load.factor"],
            io_buffer_bytes=values["log.cleaner.io.buffer.size"],
            min_cleanable_ratio=values["min.cleanable.dirty.ratio"],
            delete_retention_ms=values["delete.retention.ms"],
            min_lag_ms=values["min.compaction.lag.ms"],
            max_lag_ms=values["max.compaction.lag.ms"],
            max_message_bytes=values["max.message.bytes"],
        )


DEFAULT_CONFIG = CompactionConfig()


class CleanableOffsets(NamedTuple):
    """The part of a log that can be compacted. Offsets from `first_dirty` to below `first_uncleanable` are dirty.

    `clean_bytes`: of segments that begin below the dirty part; `cleanable_bytes`: of those with dirty offsets.
    `is_due`: whether there is enough, or it has waited too long. `resets`: the checkpoint was impossible.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    is_due: bool
    resets: bool

    @property
    def ratio(self) -> float:
        """The cleanable part of all clean or cleanable bytes; 0 if there are none."""
        return self.cleanable_bytes / max(self.clean_bytes + self.cleanable_bytes, 1)


def select(
    log: PartitionLog,
    checkpoint: int | None,
    config: CompactionConfig,
    now_ms: int,
    *,
    damaged: Collection[int] = (),
) -> CleanableOffsets:
    """Return the part of `log` that can be compacted; `checkpoint` is the cleaner's last one.

    `damaged`: base offsets of segments that stay unchanged; their bytes count neither as clean nor as cleanable. Raises
    CorruptRecordError if the first header of a segment is damaged.
    """
    first_dirty = log.log_start_offset if checkpoint is None else checkpoint
    resets = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if resets:
        first_dirty = log.log_start_offset
    segments, active = log.segments, log.active
    bounds = [active.base_offset]
    if log.config.rules.has_producers or log.config.dialect is Dialect.ENRICHED:
        bounds.append(log.last_stable_offset)
    dirty = _floor(segments, first_dirty)
    if config.min_lag_ms > 0:
        young = (each.base_offset for each in dirty if each.largest_or_modified() > now_ms - config.min_lag_ms)
        bounds.append(next(young, active.base_offset))
    first_uncleanable = _floor(segments, max(min(bounds), segments[0].base_offset))[0].base_offset
    first_uncleanable = max(first_uncleanable, first_dirty) if first_dirty < active.base_offset else first_dirty
    clean = sum(each.size for each in segments if each.base_offset < first_dirty and each.base_offset not in damaged)
    cleanable_segments = [
        each
        for each in dirty
        if each.base_offset < first_uncleanable and each is not active and each.base_offset not in damaged
    ]
    cleanable = sum(each.size for each in cleanable_segments) if first_uncleanable > first_dirty else 0
    found = CleanableOffsets(first_dirty, first_uncleanable, clean, cleanable, False, resets)
    waited = bool(cleanable_segments) and 0 <= cleanable_segments[0].first_timestamp < now_ms - config.max_lag_ms
    return found._replace(is_due=cleanable > 0 and (found.ratio > config.min_cleanable_ratio or waited))


def _floor(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """Return the segments from the one that contains `offset` on."""
    at = max((at for at, each in enumerate(segments) if each.base_offset <= offset), default=0)
    return segments[at:]


def damaged_segment(segments: Sequence[Segment], error: CorruptRecordError) -> int | None:
    """Return the base offset of the segment whose log `error` names, None if it names another file.

    A segment that replaced others was opened under a temporary name: the error gets the current one.
    """
    found = next((each for each in segments if each.log.path == error.path), None)
    if found is None:
        return None
    error.path = found.path(LOG)
    return found.base_offset


class CompactionReport(Struct):
    """The result of a compaction. Bytes are those of `.log` files; `records` and `keys` are counted once each.

    `end_offset`: everything below it is clean now. `groups`: source base offsets of each new segment. `aborted`: the
    log was truncated meanwhile, so that the compaction is incomplete.
    """

    first_dirty: int
    end_offset: int
    records: int = 0
    keys: int = 0
    bytes_read: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    groups: list[list[int]] = field(default_factory=list)
    dropped: Dropped = field(default_factory=Dropped)
    aborted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return a round as in reports of compaction."""
        return {
            "firstDirty": self.first_dirty,
            "endOffset": self.end_offset,
            "records": self.records,
            "keys": self.keys,
            "bytesRead": self.bytes_read,
            "segments": self.groups,
            "dropped": self.dropped.to_json(),
        }

    def add(self, other: CompactionReport) -> None:
        """Add the results of another part of the same round."""
        for name in ("records", "bytes_read", "bytes_before", "bytes_after"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.groups += other.groups
        self.dropped.add(other.dropped)


class Compaction:
    """One round of compaction of one log.

    `secret`: 16 bytes unknown to anybody who chooses keys. Without `writes` it only computes the result. `marks`, if
    they were made elsewhere from the `keys` of each segment, cover everything up to the end of the cleanable part.

    `damaged` maps base offsets of unreadable segments to the errors. These segments stay unchanged, and so do the
    tombstones and transaction markers after the first of them, because their keys or data may be in it; everything else
    is compacted. Damage found on the way is added. Without `damaged`, `run` raises CorruptRecordError for unreadable
    data, and with it for a file that is no segment's log: segments not replaced by then are unchanged.
    """

    def __init__(
        self,
        log: PartitionLog,
        selection: CleanableOffsets,
        config: CompactionConfig,
        *,
        now: Moment,
        secret: bytes,
        writes: bool = True,
        marks: OffsetMarks | None = None,
        damaged: MutableMapping[int, CorruptRecordError] | None = None,
    ) -> None:
        self._marks, self._damaged = marks, damaged
        self.log, self.selection, self.config, self.now, self.writes = log, selection, config, now, writes
        self.report = CompactionReport(selection.first_dirty, selection.first_dirty)
        self._generation = log.generation
        self._secret = secret
        self._last_leader_epoch = -1
        self._opens_wrappers = marks is not None  # their maker did not record whether there are mixed wrappers

    @property
    def total_bytes(self) -> int:
        """About how many bytes `run` will report."""
        end = self.selection.first_uncleanable
        return self.selection.cleanable_bytes + sum(each.size for each in self.log.segments if each.base_offset < end)

    def run(self) -> Generator[int, None, None]:
        """Do the work; yield the bytes read and written since the last step, some megabytes at most.

        Closing the iterator abandons the current group; replaced segments stay, and are sound.
        """
        for segment in list(self.log.segments):
            if segment.base_offset < self.selection.first_uncleanable:
                yield from check_transactions(self.log, segment)
        if self._marks is None:
            offsets = self._new_map()
            yield from self._map(offsets)
            yield from self._clean(offsets)
        else:
            yield from self._clean(self._marks)

    def _new_map(self) -> OffsetMap:
        return OffsetMap(
            self.selection.first_dirty,
            self.selection.first_uncleanable,
            dedupe_bytes=self.config.dedupe_buffer_bytes,
            load_factor=self.config.load_factor,
            secret=self._secret,
            compiled=worth_compiling(self.selection.cleanable_bytes),
        )

    def _clean(self, offsets: OffsetMap | OffsetMarks) -> Iterator[int]:
        """Rewrite the segments covered by the map."""
        report = self.report
        report.keys, report.end_offset = offsets.keys, offsets.latest + 1
        sources = self.sources(report.end_offset)
        sets = SetFilter(offsets, self.rules(), CleanedTransactions())
        report.dropped = sets.dropped
        retains_deletes = self.retains_deletes(sources)
        runs = self._readable_runs(sources)
        while runs:
            run = runs.pop(0)
            follows_damage = run[0] is not sources[0]
            transactions = CleanedTransactions(keeps_markers=follows_damage)
            transactions.add_aborted(self.aborted(run, report.end_offset))
            sets.begin_run(transactions, keeps_deletes=follows_damage)
            for group in self.groups(run):
                if self._truncated():
                    report.aborted = True
                    return
                dropped = replace(sets.dropped)
                try:
                    yield from self.write(group, sets, retains_deletes)
                except CorruptRecordError as error:
                    self._set_aside(error, group)
                    sets.dropped = report.dropped = dropped
                    runs[:0] = self._readable_runs(run[run.index(group[0]) :])
                    break
        report.records += sets.records_seen

    def _readable_runs(self, segments: Sequence[Segment]) -> list[list[Segment]]:
        """Split `segments` into runs of neighbours that are not known to be damaged."""
        damaged = self._damaged or {}
        runs = itertools.groupby(segments, lambda each: each.base_offset in damaged)
        return [list(run) for is_damaged, run in runs if not is_damaged]

    def _set_aside(self, error: CorruptRecordError, segments: Sequence[Segment]) -> None:
        """Record which of `segments` is damaged; raise the error if it is none of them, or if there is no `damaged`."""
        base = None if self._damaged is None else damaged_segment(segments, error)
        if self._damaged is None or base is None:
            raise error
        self._damaged[base] = error

    def sources(self, end: int) -> list[Segment]:
        """Return the segments to rewrite with a map of everything up to `end`."""
        return [each for each in self.log.segments[:-1] if each.base_offset < end]

    def aborted(
        self, sources: Sequence[Segment], end: int, *, trusts_indexes: bool = False
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions with an offset in `sources` below `end`, in the order of their markers."""
        if not sources or not self.log.config.rules.has_producers:
            return []
        return aborted_transactions(self.log, sources[0].base_offset, end, trusts_indexes=trusts_indexes)

    def retains_deletes(self, sources: Sequence[Segment]) -> dict[int, bool]:
        """Return for each segment, by base, whether its tombstones and old-format markers must be kept."""
        modified = {each.base_offset: self.log.files.modified_ms(each.path(LOG)) for each in sources}
        latest = max((time for base, time in modified.items() if base < self.selection.first_dirty), default=0)
        horizon = max(latest - self.config.delete_retention_ms, 0)
        return {base: time > horizon for base, time in modified.items()}

    def _truncated(self) -> bool:
        return self.log.generation != self._generation

    def rules(self) -> Rules:
        """Return the rules that decide about sets, besides the map."""
        release = self.log.config.rules.release
        producers: dict[int, ProducerEntry] = {}
        if self.log.config.rules.has_producers:
            producers = {each.producer_id: each for each in self.log.producers.snapshot().producers}
        enriched = self.log.config.dialect is Dialect.ENRICHED
        return Rules(
            now_ms=self.now.date_ms,
            delete_retention_ms=self.config.delete_retention_ms,
            horizons=release.has_delete_horizons,
            keeps_last=release.keeps_last_batch,
            end_offset=self.selection.first_uncleanable,
            producers=producers,
            merges=enriched if self.config.merge_sets is None else self.config.merge_sets,
            max_message_bytes=self.config.max_message_bytes,
            last_leader_epoch=self._last_leader_epoch,
            opens_wrappers=self._opens_wrappers,
        )

    # ---- the first pass

    def _map(self, offsets: OffsetMap) -> Iterator[int]:
        """Fill the map from the dirty part, until its end or until the map is full."""
        begin, end = self.selection.first_dirty, self.selection.first_uncleanable
        dirty = [each for each in _floor(self.log.segments, begin) if each.base_offset < end]
        transactions = self._transactions_from(begin, end)
        for segment, following in itertools.zip_longest(dirty, dirty[1:]):
            behind = end if following is None else following.base_offset
            try:
                if segment.base_offset not in (self._damaged or {}) and (
                    yield from self._map_segment(offsets, segment, transactions)
                ):
                    return
            except CorruptRecordError as error:
                self._set_aside(error, [segment])
            if segment.base_offset in (self._damaged or {}):  # the index alone tells which transactions end in it
                transactions = self._transactions_from(behind, end)
            offsets.read_to(behind - 1)

    def _transactions_from(self, first: int, end: int) -> CleanedTransactions:
        """Return the transactions at offset `first`, to be advanced to `end`."""
        transactions = CleanedTransactions()
        if self.log.config.rules.has_producers:
            transactions.add_aborted(aborted_transactions(self.log, first, end))
        return transactions

    def _map_segment(
        self, offsets: OffsetMap, segment: Segment, transactions: CleanedTransactions
    ) -> Generator[int, None, bool]:
        """Fill the map from one segment; return whether it is full."""
        begin = self.selection.first_dirty
        start = segment.position_before(begin)
        for chunk in read_chunks(
            segment.log, start=start, end=segment.size, dialect=self.log.config.dialect, merge=True
        ):
            self.report.bytes_read += chunk.table.end
            for columns in self._mapped(chunk, transactions):
                self._opens_wrappers |= may_be_mixed(chunk.table, columns)
                self.report.records += int(np.count_nonzero(np.asarray(columns.offset) >= begin))
                if not offsets.put(columns):
                    return True
            offsets.read_to(_last(chunk.table))
            yield chunk.table.end
        return False

    def keys(self, segment: Segment, transactions: SegmentTransactions) -> Iterator[RecordColumns]:
        """Yield the records of one segment that count for the map, with keys and values.

        `transactions` has the aborted ones of the segment, and is advanced to its end. Checksums are verified. Raises
        CorruptRecordError for unreadable data.
        """
        for chunk in read_chunks(segment.log, end=segment.size, dialect=self.log.config.dialect, merge=True):
            yield from self._mapped(chunk, transactions)

    def _mapped(self, chunk: Chunk, transactions: CleanedTransactions) -> Iterator[RecordColumns]:
        """Yield the records of a chunk whose keys count. Raises CorruptRecordError with the file."""
        try:
            yield from decode_rows(chunk.table, self._mapped_rows(chunk.table, transactions), _KEYS)
        except CorruptRecordError as error:
            raise error.locate(path=chunk.path, shift=chunk.position) from None

    def _mapped_rows(self, table: BatchTable, transactions: CleanedTransactions) -> Sequence[int]:
        """Return the rows whose keys count: no control batches, and no aborted data."""
        attributes = np.asarray(table.attributes, np.int64)
        if table.dialect is Dialect.ENRICHED:
            epochs = np.flatnonzero(attributes & 15 == _LEADER_EPOCH)
            if len(epochs):
                self._last_leader_epoch = int(table.offset[epochs[-1]])
            return range(len(table))
        special = np.asarray(table.magic, np.int64) == 2
        special &= attributes & (CONTROL_BIT | TRANSACTIONAL_BIT) != 0
        if not special.any():
            return range(len(table))
        left = np.ones(len(table), bool)
        for row in np.flatnonzero(special).tolist():
            position = int(table.position[row])
            batch = RecordBatch(table.buffer[position : position + int(table.size[row])])
            if batch.is_control:
                transactions.is_needless(batch)
                left[row] = False
            else:
                left[row] = not transactions.is_aborted(batch)
        rows: list[int] = np.flatnonzero(left).tolist()
        return rows

    # ---- the second pass

    def groups(self, segments: Sequence[Segment]) -> Iterator[list[Segment]]:
        """Split segments into groups that become one each: limited by size, indexes and offsets."""
        most, most_index = self.log.config.segment_bytes, self.log.config.segment_index_bytes
        group: list[Segment] = []
        size, index_sizes = 0, [0]
        for segment, following in itertools.zip_longest(segments, segments[1:]):
            end = self.selection.first_uncleanable if following is None else following.base_offset
            grown = [a + b for a, b in itertools.zip_longest(index_sizes, segment.indexes.sizes, fillvalue=0)]
            fits = size + segment.size <= most and max(grown) <= most_index
            if group and fits and (not segment.size or end - 1 - group[0].base_offset <= MAX_RELATIVE):
                group.append(segment)
                size, index_sizes = size + segment.size, grown
                continue
            if group:
                yield group
            group, size, index_sizes = [segment], segment.size, segment.indexes.sizes
        if group:
            yield group

    def write(
        self,
        group: Sequence[Segment],
        sets: SetFilter,
        retains_deletes: Mapping[int, bool],
        *,
        beside_ms: int | None = None,
    ) -> Iterator[int]:
        """Write the remaining records of a group, and replace it; yields as `run`.

        `beside_ms`: the log's folder is not the group's, which stays unchanged; the output gets that modification time.
        """
        log, report = self.log, self.report
        output = _GroupOutput(log, group[0].base_offset, writes=self.writes)
        try:
            for segment in group:
                sets.begin_segment(segment.base_offset, retains_deletes=retains_deletes[segment.base_offset])
                buffers = _Buffers(self.config.io_buffer_bytes // 2)
                for chunk in read_chunks(segment.log, end=segment.size, dialect=log.config.dialect):
                    written = output.append(_filtered(chunk, sets), buffers.of(chunk))
                    report.bytes_read += chunk.table.end
                    yield chunk.table.end + written
                    if self._truncated():
                        report.aborted = True
                        return
            replaced, time = (group, self.now) if beside_ms is None else ([], replace(self.now, date_ms=beside_ms))
            output.put_in_place(replaced, sets.transactions, time)
            report.bytes_before += sum(each.size for each in group)
            report.bytes_after += output.size
            report.groups.append([each.base_offset for each in group])
        finally:
            output.discard()


_LEADER_EPOCH = 8


def _filtered(chunk: Chunk, sets: SetFilter) -> list[Piece]:
    """Return the remaining sets of a chunk. Raises CorruptRecordError with the file."""
    try:
        return sets.filter(chunk.table)
    except CorruptRecordError as error:
        raise error.locate(path=chunk.path, shift=chunk.position) from None


def _last(table: BatchTable) -> int:
    """Return the last offset of a table; for merged messages and enriched wrappers, one of their offsets."""
    return int(last_offsets(table)[-1]) if table.dialect is Dialect.KAFKA else int(table.offset[len(table) - 1])


class _Buffers:
    """Which sets a broker's cleaner would have in its buffer at once: these are one append, for the index."""

    def __init__(self, size: int) -> None:
        self._size, self._begin, self._number = size, 0, 0

    def of(self, chunk: Chunk) -> list[int]:
        """Return the number of the buffer for each row of the next chunk of a segment."""
        numbers = []
        positions, sizes = (np.asarray(each, np.int64).tolist() for each in (chunk.table.position, chunk.table.size))
        for position, size in zip(positions, sizes, strict=True):
            begin, end = chunk.position + position, chunk.position + position + size
            if end - self._begin > self._size:
                self._begin, self._number = begin, self._number + 1
                while self._size < size:
                    self._size *= 2
            numbers.append(self._number)
        return numbers


class _GroupOutput:
    """The segment that replaces a group. `size` in bytes, also if nothing is written."""

    def __init__(self, log: PartitionLog, base_offset: int, *, writes: bool) -> None:
        self.size = 0
        self._log = log
        self._segment = log.new_segment(base_offset) if writes else None
        rules = replace(log.config.rules.recovering(), marker_rule=None)
        self._indexer = SegmentIndexer(base_offset, rules, dialect=log.config.dialect)

    def append(self, pieces: Sequence[Piece], buffers: Sequence[int]) -> int:
        """Write sets after the previous ones; `buffers` has the append of each row. Returns the bytes."""
        if self._segment is None or not pieces:
            written = sum(len(piece.data) for piece in pieces)
            self.size += written
            return written
        data = b"".join(piece.data for piece in pieces)
        self._segment.log.write_at(self.size, data)
        numbers = [buffers[piece.row] for piece in pieces]
        appends = [at for at, number in enumerate(numbers) if not at or number != numbers[at - 1]]
        table = scan(memoryview(data), dialect=self._log.config.dialect)
        self._indexer.append(table, self.size, appends, np.array([piece.last for piece in pieces], np.int64))
        self.size += len(data)
        return len(data)

    def put_in_place(self, group: Sequence[Segment], transactions: CleanedTransactions, now: Moment) -> None:
        """Replace the group by the new segment."""
        retained, transactions.retained = transactions.retained, []
        if self._segment is not None:
            self._segment.take_indexes(self._indexer.finish(), retained)
            segment, self._segment = self._segment, None
            self._log.replace(group, segment, now)

    def discard(self) -> None:
        """Remove the new segment, unless it has replaced the group."""
        if self._segment is not None:
            self._segment.remove()
            self._segment = None
