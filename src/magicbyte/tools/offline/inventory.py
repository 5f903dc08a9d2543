"""Take the inventory of a log: formats, codecs, offsets, times, gaps and transactions, from headers.

Nothing is decompressed and no checksum verified unless the inventory is `deep`; unknown numbers are then None. Of large
entries only the headers are read. Memory does not grow with the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from magicbyte.access.workers import in_order
from magicbyte.engine.codecs import Codec, Lz4Header, lz4_header_checksum
from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.headers import Headers, headers_of, read_headers
from magicbyte.engine.log.files.missing import CheckpointedOffsets, end_offset, missing_of
from magicbyte.engine.log.files.partitions import log_start_offset
from magicbyte.engine.log.files.reader import DamageHandler, SegmentReader, decode_chunk, stop_at_damage
from magicbyte.engine.records import layout
from magicbyte.engine.records import survey_kernels as survey
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import ControlType, marker_of
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions
from magicbyte.engine.records.enriched import EnrichedMessage
from magicbyte.engine.records.entry import parse_entry
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.records.scan import scan
from magicbyte.engine.sentinels import NO_PRODUCER_ID, NO_TIMESTAMP
from magicbyte.tools.offline.blocks import Block, blocks_of
from magicbyte.tools.offline.tally import FormatCount, Holes, OpenTransaction, RecordFacts, Tally

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.missing import Missing
    from magicbyte.engine.records.columns import RecordColumns
    from magicbyte.tools.offline.diff import FetchedLog

    Int64s = np.ndarray[Any, np.dtype[np.int64]]
    Bools = np.ndarray[Any, np.dtype[np.bool_]]

Json = dict[str, Any]

_CODECS = 8  # values of three bits
_SHORT_VARINTS = slice(layout.RECORD_BATCH_OVERHEAD, layout.RECORD_BATCH_OVERHEAD + 5)
_MARKER_KEY = 8  # zigzag of 4 bytes
_LZ4_HEADS = {kind: np.frombuffer(b"\x04\x22\x4d\x18\x60\x40" + end, np.uint8) for kind, end in
              ((Lz4Header.CORRECT, b"\x82"), (Lz4Header.BROKEN, b"\x1a"))}  # fmt: skip
_LZ4_LONGEST_HEAD = 15


@dataclass(slots=True)
class PartitionInventory:
    """The inventory of one partition folder."""

    partition: PartitionDirectory
    dialect: Dialect
    log_start_offset: int
    tally: Tally
    damage: list[CorruptRecordError]  # in segments
    index_damage: list[CorruptRecordError]  # in index files, snapshots and checkpoints
    missing: list[Missing] = field(default_factory=list)  # of this partition, by its own files and the checkpoints

    @property
    def folder(self) -> PartitionDirectory | None:
        """The partition's folder."""
        return self.partition

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return self.partition.size

    def to_json(self) -> Json:
        """Return its JSON in `magicbyte inventory --format json`."""
        return _partition_json(self)


@dataclass(slots=True)
class FetchedInventory:
    """The inventory of a partition of a running cluster, without companion files and damage."""

    partition: FetchedLog
    dialect: Dialect
    log_start_offset: int
    tally: Tally
    damage: tuple[()] = ()
    index_damage: tuple[()] = ()
    missing: tuple[()] = ()

    @property
    def folder(self) -> PartitionDirectory | None:
        """None: a fetched partition has no folder."""
        return None

    @property
    def size(self) -> int:
        """Bytes of the fetched sets."""
        return self.tally.bytes

    def to_json(self) -> Json:
        """Return its JSON in `magicbyte inventory --format json`."""
        return _partition_json(self)


def _partition_json(inventory: PartitionInventory | FetchedInventory) -> Json:
    partition, tally, folder = inventory.partition, inventory.tally, inventory.folder
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "path": partition.path,
        "state": None if folder is None else folder.state.value,
        "dialect": inventory.dialect.value,
        "segments": None if folder is None else len(folder.segments),
        "bytes": inventory.size,
        "logStartOffset": inventory.log_start_offset,
        "firstOffset": tally.first_offset,
        "lastOffset": tally.last_offset,
        **tally.to_json(),
        "openTransactions": [each.to_json() for each in tally.open_transactions],
        "leftovers": [] if folder is None else [entry.name for entry in folder.leftovers],
        "orphans": [] if folder is None else [entry.name for entry in folder.orphans],
        "damagedIndexes": [error.to_json() for error in inventory.index_damage],
        "damage": [error.to_json() for error in inventory.damage],
        "missing": [each.to_json() for each in inventory.missing],
    }


def report_of(
    inventories: Sequence[PartitionInventory | FetchedInventory], whole: Tally, missing: Sequence[Missing] = ()
) -> Json:
    """Return partitions as in `magicbyte inventory --format json`; `whole` is `add_up` of their tallies.

    `missing`: partitions without a folder.
    """
    folders = [each.folder for each in inventories if each.folder is not None]
    total = {
        "partitions": len(inventories),
        "segments": sum(len(each.segments) for each in folders),
        "bytes": sum(each.size for each in inventories),
        **whole.to_json(),
        "leftovers": sum(len(each.leftovers) for each in folders),
        "orphans": sum(len(each.orphans) for each in folders),
        "damagedIndexes": sum(len(each.index_damage) for each in inventories),
        "damage": sum(len(each.damage) for each in inventories),
        "missing": sum(len(each.missing) for each in inventories) + len(missing),
    }
    return {
        "partitions": [each.to_json() for each in inventories],
        "missing": [each.to_json() for each in missing],
        "total": total,
    }


def take_inventory(
    partition: PartitionDirectory,
    *,
    dialect: Dialect | None = None,
    deep: bool = False,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
    threads: int = 1,
    expected_bytes: int | None = None,
    known: CheckpointedOffsets | None = None,
    on_damage: DamageHandler = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> PartitionInventory:
    """Return the inventory of one partition.

    `threads` decode when `deep`. `expected_bytes`: of all partitions that the caller will process (default: of this
    one), which decide whether to load compiled kernels. `known`: checkpoints that were read before. `on_damage` is
    called for all damage, in logs and in the files beside them, and may raise; the inventory also lists it.
    """
    counter = EntryCounter(dialect or partition.dialect, deep=deep)
    total = partition.size if expected_bytes is None else expected_bytes
    result = PartitionInventory(partition, counter.dialect, 0, counter.tally, [], [])

    def log_damage(error: CorruptRecordError) -> None:
        result.damage.append(error)
        on_damage(error)

    check = CompanionCheck(partition, result.index_damage, on_damage)
    result.log_start_offset = check.log_start_offset()
    check.indexes()
    check.beside()
    done = 0

    def walked(size: int) -> None:
        nonlocal done
        done += size
        progress(size)

    count_log(partition, counter, limit, threads, total, log_damage, walked)
    progress(sum(segment.log.size for segment in partition.segments) - done)
    counter.finish()
    result.missing = missing_of(partition, known or CheckpointedOffsets(), end_of(partition, counter.tally))
    return result


def end_of(partition: PartitionDirectory, tally: Tally) -> int | None:
    """Return the end offset of a log by its inventory; None if headers do not have it."""
    if tally.next_offset is None:
        return end_offset(partition)
    return max(tally.next_offset, partition.segments[-1].base_offset)


def count_log(
    partition: PartitionDirectory,
    counter: EntryCounter,
    limit: int,
    threads: int,
    expected_bytes: int,
    on_damage: DamageHandler,
    walked: Callable[[int], None] = lambda _: None,
) -> None:
    """Add the entries of all segments to `counter`.

    `walked` receives the bytes read; the rest as in `take_inventory`.
    """
    if counter.is_deep:
        kernel.expect(expected_bytes)
        _count_deep(partition, counter, limit, threads, on_damage, walked)
        return
    for segment in partition.segments:
        with partition.files.open(segment.log.path) as file:
            end = 0
            for block in read_headers(
                file, dialect=counter.dialect, limit=limit, on_damage=on_damage, expected_bytes=expected_bytes
            ):
                counter.add(block, None, on_damage)
                walked(block.end - end)
                end = block.end


def take_fetched_inventory(log: FetchedLog, dialect: Dialect = Dialect.KAFKA) -> FetchedInventory:
    """Return the inventory of a partition of a running cluster, from the headers of the fetched sets.

    The first and the last set are counted in full, including records below the log start offset. Raises as `log.tables`
    does, and CorruptRecordError for invalid headers.
    """
    counter = EntryCounter(dialect, deep=False)
    position = 0
    for table in log.tables():
        sets = Chunk(log.path, position, table)
        counter.add(headers_of(SentPart(log.path, position, table.buffer), sets), None, stop_at_damage)
        position += table.end
    counter.finish()
    return FetchedInventory(log, dialect, log.first, counter.tally)


@dataclass(frozen=True, slots=True)
class SentPart:
    """Fetched bytes, as a part at `position` of a virtual file of all fetched bytes."""

    path: str
    position: int
    buffer: memoryview

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`, fewer only at the end."""
        at = position - self.position
        return bytes(self.buffer[at : at + length])


def add_up(tallies: Iterable[Tally]) -> Tally:
    """Return the sums over several partitions. Offsets are None."""
    total = Tally()
    smallest: list[int | None] = []
    for tally in tallies:
        for name, count in tally.formats.items():
            known = total.formats.setdefault(name, FormatCount())
            known.batches += count.batches
            known.bytes += count.bytes
            known.records = None if known.records is None or count.records is None else known.records + count.records
        for kind in ("correct", "broken", "other"):
            setattr(total.lz4_headers, kind, getattr(total.lz4_headers, kind) + getattr(tally.lz4_headers, kind))
        if total.holes is None or tally.holes is None:
            total.holes = None
        else:
            total.holes = Holes(total.holes.count + tally.holes.count, total.holes.offsets + tally.holes.offsets)
        total.committed, total.aborted = total.committed + tally.committed, total.aborted + tally.aborted
        total.control_batches += tally.control_batches
        total.open_transactions += tally.open_transactions
        total.max_timestamp = _extreme(max, total.max_timestamp, tally.max_timestamp)
        total.min_batch_timestamp = _extreme(min, total.min_batch_timestamp, tally.min_batch_timestamp)
        if tally.min_batch_timestamp is not None:
            smallest.append(tally.min_timestamp)
        if tally.deep is not None:
            total.deep = total.deep or RecordFacts()
            total.deep.add(tally.deep)
    known_ones = [tally for tally in smallest if tally is not None]
    total.min_timestamp = min(known_ones) if known_ones and len(known_ones) == len(smallest) else None
    return total


def _extreme(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else choose(one, other)


@dataclass(slots=True)
class CompanionCheck:
    """Parses the files beside a log, and adds their damage to `damage`."""

    partition: PartitionDirectory
    damage: list[CorruptRecordError]
    on_damage: DamageHandler = lambda _: None

    def log_start_offset(self) -> int:
        """Return the log start offset, 0 if its checkpoint is damaged."""
        return self._read(lambda: log_start_offset(self.partition)) or 0

    def indexes(self) -> None:
        """Parse the index files of all segments."""
        of = self.partition
        for segment in of.segments:
            for read in (of.offset_index, of.time_index, of.transaction_index, of.enriched_index):
                self._read(lambda read=read, segment=segment: read(segment))  # type: ignore[misc]

    def beside(self) -> None:
        """Parse the files that do not belong to a segment."""
        for offset in self.partition.snapshots:
            self._read(lambda offset=offset: self.partition.snapshot(offset))  # type: ignore[misc]
        self._read(self.partition.leader_epochs)
        self._read(self.partition.metadata)

    def _read(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except CorruptRecordError as error:
            self.damage.append(error)
            self.on_damage(error)
            return None


# ---- decoding


@dataclass(slots=True)
class _Records:
    """The records of a block.

    `wrapper_first`: the first offset in each v0 or v1 wrapper, if all entries are wrappers.
    """

    facts: RecordFacts = field(default_factory=RecordFacts)
    by_format: dict[int, int] = field(default_factory=dict)
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    wrapper_first: Int64s | None = None


def _count_deep(
    partition: PartitionDirectory,
    counter: EntryCounter,
    limit: int,
    threads: int,
    on_damage: DamageHandler,
    walked: Callable[[int], None],
) -> None:
    """Add all records of a partition to `counter`, decoded by several threads."""

    def work(block: Block) -> Iterator[CorruptRecordError | tuple[Headers, _Records]]:
        for step in block.walk():
            if isinstance(step, CorruptRecordError):
                yield step
                continue
            damage: list[CorruptRecordError] = []
            records = _count_records(step, limit, damage.append)
            yield from damage
            yield headers_of(SentPart(step.path, step.position, step.table.buffer), step), records

    blocks = blocks_of(SegmentReader(partition, counter.dialect), threads, limit=limit)
    for step in in_order(blocks, work, threads):
        if isinstance(step, CorruptRecordError):
            on_damage(step)
        else:
            headers, records = step
            counter.add(headers, records, on_damage)
            walked(headers.end - int(headers.position[0]))


def _count_records(chunk: Chunk, limit: int, on_damage: DamageHandler) -> _Records:
    """Decode all records of a chunk, with their checksums, one format at a time."""
    table = scan(chunk.table.buffer[: chunk.table.end], dialect=chunk.table.dialect, merge=True)
    merged = replace(chunk, table=table)
    facts_of_records = _Records()
    kinds = np.asarray(table.magic, np.int64) * _CODECS + table.codec
    wrapped = (np.asarray(table.count, np.int64) == -1) & (np.asarray(table.magic, np.int64) < 2)
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        rows = np.flatnonzero(kinds == kind)
        offsets = []
        count = 0
        for columns in decode_chunk(merged, rows.tolist(), DecodeOptions(limit=limit), on_damage):
            _add_columns(facts_of_records, columns)
            count += len(columns)
            if wrapped[rows[0]]:
                offsets.append(np.asarray(columns.offset, np.int64))
        facts_of_records.by_format[kind] = count
        if offsets and table.dialect is Dialect.KAFKA:
            firsts = _first_offsets(np.concatenate(offsets), np.asarray(table.offset, np.int64)[rows])
            facts_of_records.wrapper_first = _put(facts_of_records.wrapper_first, len(table), rows, firsts)
    if facts_of_records.wrapper_first is not None:
        facts_of_records.wrapper_first = facts_of_records.wrapper_first[wrapped]
    return facts_of_records


def _put(whole: Int64s | None, size: int, rows: Int64s, values: Int64s) -> Int64s:
    whole = np.full(size, -1, np.int64) if whole is None else whole
    whole[rows] = values
    return whole


def _first_offsets(offsets: Int64s, lasts: Int64s) -> Int64s:
    """Return the first offset in each wrapper, from all offsets inside and the last offset of each; -1 if ambiguous."""
    starts = np.concatenate(([0], np.searchsorted(offsets, lasts[:-1], "right")))
    firsts = offsets[np.minimum(starts, len(offsets) - 1)]
    return np.where(firsts <= lasts, firsts, -1)


def _add_columns(totals: _Records, columns: RecordColumns) -> None:
    assert columns.key is not None
    assert columns.value is not None
    assert columns.headers is not None
    facts, count = totals.facts, len(columns)
    make = form_for(compiled=not isinstance(columns.timestamp, list))
    counted = make.zeros(survey.COUNTED)
    make.form(survey.count_columns)(
        columns.timestamp, columns.key.length, columns.value.length, columns.headers.count, counted
    )
    keyed, tombstones, with_headers, headers, smallest, largest = map(int, counted)
    facts.add(RecordFacts(count, tombstones, keyed, count - keyed, with_headers, headers))
    if smallest <= largest:
        totals.min_timestamp = _extreme(min, totals.min_timestamp, smallest)
        totals.max_timestamp = _extreme(max, totals.max_timestamp, largest)


# ---- counting


class EntryCounter:
    """Adds blocks of one partition, in order, to a tally.

    `is_part`: of some segments only, for the `follow` of the counter of earlier ones.
    """

    def __init__(self, dialect: Dialect, *, deep: bool, is_part: bool = False) -> None:
        self.dialect = dialect
        self.tally = Tally(deep=RecordFacts() if deep else None)
        self.is_deep = deep
        self._is_first = True
        self._last: int | None = None  # offset of the previous entry, if known
        self._smallest_known = True
        self._open: dict[int, OpenTransaction] = {}  # by producer id
        self._ended: set[int] | None = set() if is_part else None  # producers with a marker

    def add(self, block: Headers, counted_records: _Records | None, on_damage: DamageHandler) -> None:
        """Count the entries of a block."""
        control, wrapper, lz4 = block.is_control, block.is_wrapper, block.codec == Codec.LZ4
        self.tally.control_batches += int(np.count_nonzero(control))
        self._add_formats(block, np.where(control, 0, block.count), wrapper, counted_records)
        self._add_offsets(block, wrapper, counted_records)
        self._add_times(block, ~control & (block.count != 0), wrapper)
        if counted_records is not None:
            self._add_records(counted_records)
        if lz4.any():
            self._add_lz4(block, np.flatnonzero(lz4), on_damage)
        transactional = block.is_batch & (block.attributes & (layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT) != 0)
        if transactional.any():
            self._add_transactions(block, control, np.flatnonzero(transactional), on_damage)

    def follow(self, later: EntryCounter) -> None:
        """Add the counts of a counter of the next part."""
        before, self.tally = self.tally, add_up((self.tally, later.tally))
        self.tally.min_timestamp = _extreme(min, before.min_timestamp, later.tally.min_timestamp)
        self.tally.first_offset, self.tally.last_offset = before.first_offset, before.last_offset
        if not later._is_first:
            if self._is_first:
                self.tally.first_offset = later.tally.first_offset
            elif self._last is None or later.tally.first_offset is None:
                self.tally.holes = None
            elif (gap := later.tally.first_offset - self._last - 1) > 0 and self.tally.holes is not None:
                self.tally.holes.count += 1
                self.tally.holes.offsets += gap
            self._is_first, self._last = False, later._last
            self.tally.last_offset = later._last
        self._smallest_known &= later._smallest_known
        assert later._ended is not None, "a counter of a part"
        for producer in later._ended:
            self._open.pop(producer, None)
        for producer, each in later._open.items():
            known = self._open.get(producer)
            self._open[producer] = each if known is None else each._replace(first_offset=known.first_offset)

    def finish(self) -> None:
        """Compute the numbers that depend on the whole log."""
        if not self.is_deep and not self._smallest_known:
            self.tally.min_timestamp = None
        self.tally.open_transactions = sorted(self._open.values())

    def _add_formats(self, block: Headers, count: Int64s, wrapper: Bools, records: _Records | None) -> None:
        kind = block.magic * _CODECS + block.codec
        batches = np.bincount(kind)
        sizes = np.bincount(kind, weights=block.size)
        counts = np.bincount(kind, weights=np.where(wrapper, 0, count))
        unknown = np.bincount(kind, weights=wrapper) > 0
        for format_and_codec in np.flatnonzero(batches).tolist():
            number = format_and_codec % _CODECS
            name = (
                format_and_codec // _CODECS,
                Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown {number}",
            )
            known = self.tally.formats.setdefault(name, FormatCount())
            known.batches += int(batches[format_and_codec])
            known.bytes += int(sizes[format_and_codec])
            if records is not None and known.records is not None:
                known.records += records.by_format.get(format_and_codec, 0)
            else:
                known.records = (
                    None
                    if unknown[format_and_codec] or known.records is None
                    else known.records + int(counts[format_and_codec])
                )

    def _add_offsets(self, block: Headers, wrapper: Bools, records: _Records | None) -> None:
        first, last = block.offset, block.last_offset
        if self.dialect is Dialect.ENRICHED:
            knows_first, knows_last = np.ones_like(wrapper), ~wrapper
        else:
            knows_first, knows_last = ~wrapper, np.ones_like(wrapper)
            if records is not None and records.wrapper_first is not None:
                first = first.copy()
                first[wrapper] = records.wrapper_first
                knows_first |= wrapper & (first >= 0)
        tally = self.tally
        before = np.concatenate(([-1 if self._last is None else self._last], last[:-1]))
        knows_before = np.concatenate(([self._last is not None or self._is_first], knows_last[:-1]))
        if self._is_first:
            tally.first_offset = int(first[0]) if knows_first[0] else None
            before[:1] = first[:1] - 1
            knows_first[0] = True  # the log begins here
        if tally.holes is not None and (knows_first & knows_before).all():
            gaps = first - before - 1
            gaps = gaps[gaps > 0]
            tally.holes.count += len(gaps)
            tally.holes.offsets += int(gaps.sum())
        else:
            tally.holes = None
        self._is_first = False
        self._last = tally.last_offset = int(last[-1]) if knows_last[-1] else None

    def _add_times(self, block: Headers, data: Bools, wrapper: Bools) -> None:
        times = block.timestamp
        if self.dialect is Dialect.ENRICHED:
            exact = ~wrapper
        else:
            exact = block.attributes & layout.LOG_APPEND_TIME_BIT != 0
            exact |= np.where(block.is_batch, block.fields["record_count"] == 1, ~wrapper)
        dated = data & (times != NO_TIMESTAMP)
        if not dated.any():
            return
        tally, smallest = self.tally, int(times[dated].min())
        tally.min_batch_timestamp = _extreme(min, tally.min_batch_timestamp, smallest)
        if not self.is_deep:
            tally.min_timestamp = tally.min_batch_timestamp
            tally.max_timestamp = _extreme(max, tally.max_timestamp, int(times[dated].max()))
            self._smallest_known &= bool(exact[dated].all())

    def _add_records(self, found: _Records) -> None:
        assert self.tally.deep is not None
        self.tally.deep.add(found.facts)
        self.tally.min_timestamp = _extreme(min, self.tally.min_timestamp, found.min_timestamp)
        self.tally.max_timestamp = _extreme(max, self.tally.max_timestamp, found.max_timestamp)

    def _add_lz4(self, block: Headers, rows: Int64s, on_damage: DamageHandler) -> None:
        """Classify the header checksums of LZ4 frames; usual ones as arrays, others one by one."""
        heads, magic = block.fields, block.magic
        starts = np.array([layout.V0_OVERHEAD, layout.V1_OVERHEAD, layout.RECORD_BATCH_OVERHEAD])[magic[rows]]
        keyless = np.where(magic == 0, heads["v0_key_length"], heads["v1_key_length"]) == -1
        plain = keyless[rows] | (magic[rows] == 2)
        if self.dialect is Dialect.ENRICHED:
            plain[:] = False  # the frame follows the tags
        frames = block.heads[rows[:, None], starts[:, None] + np.arange(_LZ4_LONGEST_HEAD)]
        unusual = np.ones(len(rows), bool)
        for kind, common in _LZ4_HEADS.items():
            same = plain & (frames[:, : len(common)] == common).all(axis=1)
            self._count_lz4(kind, int(np.count_nonzero(same)))
            unusual &= ~same
        for at in np.flatnonzero(unusual).tolist():
            row = int(rows[at])
            if plain[at]:
                frame = frames[at, : max(int(block.size[row]) - int(starts[at]), 0)].tobytes()
            else:
                frame = self._frame(block, row, on_damage)
            self._count_lz4(lz4_header_checksum(frame), 1)

    def _count_lz4(self, kind: Lz4Header | None, count: int) -> None:
        name = kind.value if kind is not None else "other"
        setattr(self.tally.lz4_headers, name, getattr(self.tally.lz4_headers, name) + count)

    def _frame(self, block: Headers, row: int, on_damage: DamageHandler) -> bytes:
        """Return the start of the value of a wrapper with a key or tags."""
        position = int(block.position[row])
        content = memoryview(block.file.read_at(position, int(block.size[row])))
        try:
            entry = parse_entry(content, self.dialect)
            assert isinstance(entry, MessageView | EnrichedMessage)
            return bytes((entry.value or b"")[:_LZ4_LONGEST_HEAD])
        except CorruptRecordError as error:
            error.position = position
            if not self.is_deep:  # decoding reports it, too
                on_damage(error.locate(path=block.file.path))
            return b""

    def _add_transactions(self, block: Headers, control: Bools, rows: Int64s, on_damage: DamageHandler) -> None:
        """Count markers, and track the open transactions of producers."""
        heads = block.fields
        data, markers = rows[~control[rows]], rows[control[rows]]
        markers = markers[heads["record_count"][markers] != 0]  # without those emptied by the cleaner
        types = heads["marker_type"][markers].astype(np.int64)
        usual = (block.heads[markers, _SHORT_VARINTS] < 128).all(axis=1) & (
            heads["marker_key_length"][markers] == _MARKER_KEY
        )
        for at in np.flatnonzero(~usual).tolist():
            types[at] = self._marker_type(block, int(markers[at]), on_damage)
        self.tally.committed += int(np.count_nonzero(types == ControlType.COMMIT))
        self.tally.aborted += int(np.count_nonzero(types == ControlType.ABORT))
        ends = markers[(types == ControlType.COMMIT) | (types == ControlType.ABORT)]
        ended = dict(zip(heads["producer_id"][ends].tolist(), ends.tolist(), strict=True))  # the last of each
        for producer in ended:
            self._open.pop(producer, None)
        if self._ended is not None:
            self._ended.update(ended)
        producers, which = np.unique(heads["producer_id"][data].astype(np.int64), return_inverse=True)
        ends_at = np.array([ended.get(each, -1) for each in producers.tolist()], np.int64)
        unended = data > ends_at[which] if len(data) else np.zeros(0, bool)
        rows = data[unended]
        ids = heads["producer_id"][rows].astype(np.int64)
        still, first = np.unique(ids, return_index=True)
        last = len(rows) - 1 - np.unique(ids[::-1], return_index=True)[1]
        for producer, row, end in zip(still.tolist(), rows[first].tolist(), rows[last].tolist(), strict=True):
            if producer != NO_PRODUCER_ID:
                known = self._open.get(producer)
                start = int(heads["offset"][row]) if known is None else known.first_offset
                epoch, timestamp = int(heads["producer_epoch"][end]), int(heads["max_timestamp"][end])
                self._open[producer] = OpenTransaction(producer, start, epoch, timestamp)

    def _marker_type(self, block: Headers, row: int, on_damage: DamageHandler) -> int:
        """Return the type of a control batch with an unusual layout."""
        position = int(block.position[row])
        try:
            batch = RecordBatch.parse(memoryview(block.file.read_at(position, int(block.size[row]))))
            marker = None if batch is None else marker_of(batch)
            return ControlType.UNKNOWN if marker is None else marker.type
        except CorruptRecordError as error:
            error.position = position
            on_damage(error.locate(path=block.file.path))
            return ControlType.UNKNOWN
