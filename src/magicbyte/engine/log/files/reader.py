"""Read a partition's log by ranges, as closed entries or records. All damage is reported."""

from __future__ import annotations

import bisect
import enum
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError, TruncatedLogError
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.committed import CommittedChunk, CommittedChunks
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DEFAULT_OPTIONS, DecodeOptions, decode_rows
from magicbyte.engine.records.header import extent_of
from magicbyte.engine.records.layout import HEADER_TO_MAGIC, Dialect
from magicbyte.engine.records.scan import BatchTable, entry_end, scan
from magicbyte.engine.records.transactions import BatchFacts, TransactionScan, scan_transactions, table_facts
from magicbyte.engine.sentinels import NO_PRODUCER_ID

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory, SegmentFiles
    from magicbyte.engine.ports import ReadableFile
    from magicbyte.engine.records.columns import RecordColumns

CHUNK_BYTES = 4 << 20
MAX_OFFSET = (1 << 63) - 1


class Isolation(enum.Enum):
    """Which transactions a reader sees. The names are those of the consumer's `isolation.level`."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


DamageHandler = Callable[[CorruptRecordError], None]
"""Called for each damage, with file and position: raise it to stop, return to continue after it."""


def stop_at_damage(error: CorruptRecordError) -> None:
    """The DamageHandler that stops at the first damage."""
    raise error


class Selection(Struct, frozen=True):
    """Limits of a read: offsets from `first` to below `end`, timestamps (ms) from `since` to below `until`."""

    first: int = 0
    end: int = MAX_OFFSET
    since: int | None = None
    until: int | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED


EVERYTHING = Selection()


def read_chunks(
    file: ReadableFile,
    *,
    start: int = 0,
    end: int | None = None,
    dialect: Dialect = Dialect.KAFKA,
    merge: bool = False,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
    on_damage: DamageHandler = stop_at_damage,
) -> Iterator[Chunk]:
    """Yield the entries of one `.log` file that begin in [start, end), a chunk at a time.

    `start` is the position of an entry. An entry larger than `limit` is damage, too. A smaller one that exceeds the
    file is a truncated tail. After an entry with a wrong size or magic byte nothing of the file can be found: the walk
    ends there, after `on_damage`.
    """
    stop = file.size if end is None else min(end, file.size)
    rules = ScanRules(dialect, limit, merge)
    return _reported(walk_range(Window(file, Buffers()), start, stop, rules, sliced=end is not None), on_damage)


def _reported(steps: Iterable[Chunk | CorruptRecordError], on_damage: DamageHandler) -> Iterator[Chunk]:
    """Yield the chunks of a walk, and pass the damage between them to `on_damage`, which may raise it."""
    for step in steps:
        if isinstance(step, Chunk):
            yield step
        else:
            on_damage(step)
        del step  # so that its buffer can be used again


def walk_range(
    window: Window, position: int, stop: int, rules: ScanRules, *, sliced: bool
) -> Generator[Chunk | CorruptRecordError, None, int | None]:
    """Yield the chunks and the damage of the entries that begin from `position` to below `stop`.

    Returns the position after the last of them, or None if nothing can be found after damage. `sliced`: more entries
    follow at `stop`, and are left out.
    """
    file, limit = window.file, rules.limit
    wanted = 0
    while position < stop:
        asked = max(min(max(wanted, min(CHUNK_BYTES, stop - position)), file.size - position), 0)
        view = window.read(position, asked)
        table = scan(view, dialect=rules.dialect, merge=rules.merge)
        if position + table.end >= stop and sliced:
            table = _begun_before(table, stop - position)
        if len(table):
            yield Chunk(file.path, position, table)
        rest = view[table.end :]
        if table.damage is not None:
            error = _tail_of_zeros(file, position + table.end, rest) or table.damage.locate(shift=position)
            yield _located(error, file, rest)
            return None
        position += table.end
        if position < stop and table.need > limit:
            error = BatchTooLargeError("batch size", expected=f"<= {limit}", found=table.need, position=position)
            yield _located(error, file, rest)
            position += table.need
        elif position < stop and (position + table.need > file.size or len(view) < asked):
            # the file may have been truncated meanwhile
            left = len(rest) if len(view) < asked else file.size - position
            expected = f"{table.need} bytes of an entry" if table.need > HEADER_TO_MAGIC else "an entry"
            error = TruncatedLogError("end of the log", expected=expected, found=f"{left} bytes", position=position)
            yield _located(error, file, rest)
            return None
        wanted = table.need
        del table, rest, view  # so that the buffer can be used again
    return position


class ScanRules(NamedTuple):
    """Rules of the walk: the maximum size of an entry, and whether adjacent plain messages are one row (`scan`)."""

    dialect: Dialect
    limit: int = DEFAULT_MAX_BATCH_BYTES
    merge: bool = False


class Buffers:
    """Memory for chunks, reused when no view of it is left: new memory costs more than reading.

    Any number of threads may use it. `kept`: the number of buffers kept for later chunks.
    """

    def __init__(self, kept: int = 6) -> None:
        self.kept = kept
        self._known: deque[bytearray] = deque()  # a deque has atomic operations; a buffer being tested is not in it

    def unused(self, size: int) -> memoryview:
        """Return `size` bytes or more. They are in use as long as this view, or one made of it, is alive."""
        unused: bytearray | None = None
        for _ in range(len(self._known)):
            try:
                buffer = self._known.popleft()
            except IndexError:  # other threads are testing the last ones
                break
            if len(buffer) < size:
                continue
            try:
                buffer.pop()  # raises BufferError while a memoryview or an array of it is alive
            except BufferError:
                self._known.append(buffer)
                continue
            buffer.append(0)  # appending first would grow the buffer, and so move its memory
            unused = buffer
            break
        buffer = bytearray(size) if unused is None else unused
        view = memoryview(buffer)
        self._known.append(buffer)
        while len(self._known) > self.kept:
            self._known.popleft()
        return view


class Window:
    """Reads a file by views. `prepare` reads a range before its parts are requested."""

    SLACK = 64 << 10  # bytes read in addition to a prepared range: most entries that begin in it end there
    ROOM = 1 << 20  # further bytes of its buffer: the largest entry of a broker with default settings

    def __init__(self, file: ReadableFile, buffers: Buffers) -> None:
        self.file, self.buffers = file, buffers
        self._start = self._end = 0
        self._whole = memoryview(bytearray())

    def prepare(self, start: int, end: int) -> None:
        """Read the bytes from `start` to `end`, and a few more."""
        self._whole = self.buffers.unused(end - start + self.ROOM)
        most = min(end + self.SLACK, self.file.size) - start
        self._start, self._end = start, start + self.file.read_into(start, self._whole[: max(most, 0)])

    def read(self, position: int, size: int, least: int | None = None) -> memoryview:
        """Return the bytes from `position` on: `size` of them or more, fewer only at the end of the file.

        From a prepared range `least` bytes (default: `size`) suffice.
        """
        first, least = position - self._start, size if least is None else least
        if self._start <= position < self._end and first + least <= len(self._whole):
            if position + least > self._end:
                missing = self._whole[self._end - self._start : first + least]
                self._end += self.file.read_into(self._end, missing)
            return self._whole[first : self._end - self._start].toreadonly()
        with self.buffers.unused(size) as whole:
            filled = self.file.read_into(position, whole[:size])
            return whole.toreadonly()[:filled]


def _begun_before(table: BatchTable, stop: int) -> BatchTable:
    """Return the rows of `table` that begin before position `stop`; a merged row is cut there."""
    rows = bisect.bisect_left(table.position, stop)
    if rows and table.count[rows - 1] > 1 and table.position[rows - 1] + table.size[rows - 1] > stop:
        at = count = 0
        at = int(table.position[rows - 1])
        while at < stop:
            at, count = entry_end(table.buffer, at), count + 1
        table.size[rows - 1], table.count[rows - 1] = at - int(table.position[rows - 1]), count
    columns = {
        name: getattr(table, name)[:rows] for name in ("position", "size", "magic", "attributes", "offset", "count")
    }
    end = int(table.position[rows - 1] + table.size[rows - 1]) if rows else max(stop, 0)
    return replace(table, **columns, end=max(end, stop), damage=None)


def _tail_of_zeros(file: ReadableFile, position: int, view: memoryview) -> TruncatedLogError | None:
    """Return the error for a file with only zeros from `position` on, else None."""
    at = position
    while not any(view):
        at += len(view)
        if at >= file.size:
            found = f"{file.size - position} zero bytes up to the end"
            return TruncatedLogError("end of the log", expected="an entry", found=found, position=position)
        view = memoryview(file.read_at(at, CHUNK_BYTES))
    return None


def _located(error: CorruptRecordError, file: ReadableFile, entry: memoryview) -> CorruptRecordError:
    """Add the file, and the first offset of the damaged `entry`."""
    if len(entry) >= 8 and any(entry[:HEADER_TO_MAGIC]):
        offset = int.from_bytes(entry[:8], "big", signed=True)
        error.locate(offsets=(offset, offset))
    return error.locate(path=file.path)


def decode_chunk(
    chunk: Chunk, rows: Sequence[int], options: DecodeOptions, on_damage: DamageHandler
) -> Iterator[RecordColumns]:
    """Yield the records of some rows of a chunk; continue after each damage if `on_damage` returns.

    After damage rows are read in steps that double from one on, so that time stays linear if everything is damaged.
    """
    table, at, step = chunk.table, 0, len(rows)
    while at < len(rows):
        try:
            yield from decode_rows(table, rows[at : at + step], options)
            at, step = at + step, 2 * step
        except CorruptRecordError as error:
            position, step = error.position or 0, 1
            broken = bisect.bisect_right(table.position, position) - 1
            at = bisect.bisect_right(rows, broken)
            on_damage(error.locate(path=chunk.path, shift=chunk.position))
            rest = entry_end(table.buffer, position)
            row_end = int(table.position[broken] + table.size[broken])
            # one of several merged plain messages: the others are sound, or have damage of their own
            if rest < row_end:
                inner = scan(table.buffer[:row_end], start=rest, dialect=table.dialect)
                yield from decode_chunk(replace(chunk, table=inner), list(range(len(inner))), options, on_damage)


class SegmentReader(Struct, frozen=True):
    """Reads the segments of one partition folder. `dialect` overrides that of the folder."""

    partition: PartitionDirectory
    dialect: Dialect | None = None

    def chunks(
        self,
        *,
        first: int = 0,
        merge: bool = False,
        limit: int = DEFAULT_MAX_BATCH_BYTES,
        on_damage: DamageHandler = stop_at_damage,
    ) -> Iterator[Chunk]:
        """Yield the entries of all segments, from the one that may hold offset `first` on."""
        return _reported(self.steps(first=first, merge=merge, limit=limit), on_damage)

    def steps(
        self, *, first: int = 0, merge: bool = False, limit: int = DEFAULT_MAX_BATCH_BYTES
    ) -> Iterator[Chunk | CorruptRecordError]:
        """Yield chunks as `chunks` does, and the damage between them."""
        for segment in self.segments_from(first):
            yield from self._walk(segment, self.start_position(segment, first), None, limit, merge=merge)

    def steps_before(self, first: int, limit: int) -> Iterator[Chunk | CorruptRecordError]:
        """Yield the entries of the log before those of `steps`, and the damage between them."""
        later = self.segments_from(first)
        for segment in self.partition.segments[: len(self.partition.segments) - len(later)]:
            yield from self._walk(segment, 0, None, limit)
        for segment in later[:1]:  # a folder may have no segment
            yield from self._walk(segment, 0, self.start_position(segment, first), limit)

    def steps_after(self, chunk: Chunk, limit: int) -> Iterator[Chunk | CorruptRecordError]:
        """Yield the entries of the log after a chunk, and the damage between them."""
        start = chunk.position + chunk.table.end
        for segment in self.partition.segments[self._index_of(chunk) :]:
            yield from self._walk(segment, start, None, limit)
            start = 0

    def _index_of(self, chunk: Chunk) -> int:
        return next(at for at, segment in enumerate(self.partition.segments) if segment.log.path == chunk.path)

    def _walk(
        self, segment: SegmentFiles, start: int, end: int | None, limit: int, *, merge: bool = False
    ) -> Iterator[Chunk | CorruptRecordError]:
        rules = ScanRules(self.dialect or self.partition.dialect, limit, merge)
        with self.partition.files.open(segment.log.path) as file:
            stop = file.size if end is None else min(end, file.size)
            yield from walk_range(Window(file, Buffers()), start, stop, rules, sliced=end is not None)

    def segments_from(self, first: int) -> list[SegmentFiles]:
        """Return the segments that may hold offset `first` or later ones."""
        bases = [segment.base_offset for segment in self.partition.segments]
        return list(self.partition.segments[max(bisect.bisect_right(bases, first) - 1, 0) :])

    def start_position(self, segment: SegmentFiles, first: int) -> int:
        """Return a position in the segment from which every entry with offsets >= `first` is found."""
        if first <= segment.base_offset:
            return 0
        try:
            index = self.partition.offset_index(segment)
        except CorruptRecordError:
            return 0  # the log itself is authoritative; `inventory` reports damaged indexes
        return index.floor(first)[1] if index is not None else 0

    def transactions(self, *, first: int = 0, limit: int = DEFAULT_MAX_BATCH_BYTES) -> TransactionScan:
        """Find the partition's aborted and open transactions by a shallow walk. Damaged entries are left out.

        `first`: only those that concern a reader from this offset on, if it is not beyond the last stable offset.
        Raises CorruptRecordError only for an invalid marker, which reading the records would not report.
        """
        return scan_transactions(self._facts(limit, stop_at_damage, first), first)

    def _facts(self, limit: int, on_damage: DamageHandler, first: int = 0) -> Iterator[BatchFacts]:
        for step in self.steps(first=first, limit=limit):
            if isinstance(step, CorruptRecordError):
                continue  # reading the records will report it
            table = step.table
            damage = list[CorruptRecordError]()
            facts = table_facts(table, damage.append)
            for error in damage:
                on_damage(error.locate(path=step.path, shift=step.position))
            yield from filter(None, facts)
            if facts[-1] is None:
                offset, last, _ = extent_of(table.buffer, int(table.position[-1]))
                yield BatchFacts(NO_PRODUCER_ID, offset, last, False, False, None)

    def records(
        self,
        selection: Selection = EVERYTHING,
        options: DecodeOptions = DEFAULT_OPTIONS,
        *,
        on_damage: DamageHandler = stop_at_damage,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Iterator[RecordColumns]:
        """Yield the selected records in offset order. `progress` is called with the bytes of each chunk."""
        self.expect_decoding(selection.first)
        for step in self.released(
            self.steps(first=selection.first, merge=True, limit=options.limit), selection, options.limit
        ):
            if isinstance(step, CorruptRecordError):
                on_damage(step)
                continue
            chunk, rows, more = chosen_rows(step, selection)
            for columns in decode_chunk(chunk, rows, options, on_damage):
                chosen = select_records(columns, selection)
                if len(chosen):
                    yield chosen
            progress(chunk.table.end)
            if not more:
                return

    def released(
        self, steps: Iterator[Chunk | CorruptRecordError], selection: Selection, limit: int
    ) -> Iterator[Chunk | CommittedChunk | CorruptRecordError]:
        """Return `steps`, for `read_committed` each as soon as its committed ranges are known."""
        if selection.isolation is Isolation.READ_COMMITTED:
            before = self.steps_before(selection.first, limit)
            return CommittedChunks(partial(self.steps_after, limit=limit)).released(steps, before)
        return steps

    def expect_decoding(self, first: int) -> None:
        """Prepare the kernels for the bytes from offset `first` on."""
        kernel.expect(sum(segment.log.size for segment in self.segments_from(first)))


def held_bytes(step: object) -> int:
    """Return about how many bytes `step` keeps in memory, if it is RecordColumns; else 0."""
    from magicbyte.engine.records.columns import RecordColumns

    if not isinstance(step, RecordColumns):
        return 0
    return sum(len(memoryview(cells.data)) for cells in (step.key, step.value) if cells is not None)


def chosen_rows(step: Chunk | CommittedChunk, selection: Selection) -> tuple[Chunk, Sequence[int], bool]:
    """Return the chunk with the result of `select_rows`."""
    if isinstance(step, Chunk):
        return step, *select_rows(step.table, selection)
    stable = replace(selection, end=min(selection.end, step.end))
    return step.chunk, *select_rows(step.chunk.table, stable, step.delivered)


def select_rows(
    table: BatchTable, selection: Selection, delivered: Sequence[bool] | None = None
) -> tuple[Sequence[int], bool]:
    """Return the rows that may hold selected records, and whether later entries may, too.

    By header fields only: v2 batches by offsets and largest timestamp, v0 and v1 entries by their offset. `delivered`:
    of each row, for `read_committed`.
    """
    if selection == EVERYTHING or table.dialect is Dialect.ENRICHED:
        return range(len(table)), True
    if selection.first <= 0 and selection.since is None and delivered is not None:
        offsets: Any = table.offset
        if (max(offsets) if isinstance(offsets, list) else int(offsets.max())) < selection.end:
            return [row for row, is_delivered in enumerate(delivered) if is_delivered], True
    rows: list[int] = []
    for row in range(len(table)):
        offset = int(table.offset[row])
        if table.magic[row] == 2:
            if offset >= selection.end < MAX_OFFSET:
                return rows, False
            _, last, latest = extent_of(table.buffer, int(table.position[row]))
            if last < selection.first > 0:
                continue
            if delivered is not None and not delivered[row]:
                continue
            if selection.since is not None and latest < selection.since:
                continue
        elif table.count[row] < 2:
            if table.count[row] == 1 and offset >= selection.end < MAX_OFFSET:
                return rows, False
            if offset < selection.first > 0:  # the message's offset, or that of a wrapper's last message
                continue
        rows.append(row)
    return rows, True


def select_records(columns: RecordColumns, selection: Selection) -> RecordColumns:
    """Return the selected ones of `columns`."""
    since, until = selection.since, selection.until
    # impossible negative offsets are shown, not hidden
    first = selection.first if selection.first > 0 else -MAX_OFFSET - 1
    end = selection.end if selection.end < MAX_OFFSET else MAX_OFFSET + 1
    offsets: Any = columns.offset
    if isinstance(offsets, list):
        lowest, highest = min(offsets), max(offsets)
    else:
        lowest, highest = int(offsets.min()), int(offsets.max())
    if first <= lowest and highest < end and since is None and until is None:
        return columns
    import numpy as np

    offset, timestamp = np.asarray(offsets, np.int64), np.asarray(columns.timestamp, np.int64)
    keep = np.full(len(offset), fill_value=True)
    if first > lowest:
        keep &= offset >= first
    if highest >= end:
        keep &= offset < end
    if since is not None:
        keep &= timestamp >= since
    if until is not None:
        keep &= timestamp < until
    return columns if keep.all() else columns.take(np.flatnonzero(keep))
