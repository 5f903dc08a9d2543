"""Walk a segment with untrusted bytes: yield its sound entries and the exact damage between them.

`verify` and `salvage` share this walk. An entry is sound if its size, magic byte and checksum hold; within a run of
sound entries nothing is searched. After damage the next entry is found by the rules of docs/internals/salvage.md
(`judgement.py`), among the sound entries that `entry_search.py` finds.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from magicbyte.engine.compiled.checksums import CASTAGNOLI, IEEE
from magicbyte.engine.compiled.kernel import worth_compiling
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError, TruncatedLogError
from magicbyte.engine.log.files.entry_search import CREDIT_BYTES, EntrySearch, Limits
from magicbyte.engine.log.files.filesystem import data_pieces
from magicbyte.engine.log.files.judgement import RUN, Judgement, Resumption
from magicbyte.engine.log.files.reader import CHUNK_BYTES, MAX_OFFSET, Buffers, Window
from magicbyte.engine.records import search_kernels as search
from magicbyte.engine.records.decode import decode_rows
from magicbyte.engine.records.extent import OFFSETS_AND_TIMES, last_offsets
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.header import extent_of
from magicbyte.engine.records.kernels import statuses as kernels
from magicbyte.engine.records.layout import (
    BATCH_CRC,
    CODEC_MASK,
    HEADER_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC,
    MESSAGE_ATTRIBUTES,
    MESSAGE_CRC,
    OFFSET,
    RECORD_BATCH_OVERHEAD,
    SIZE,
    V0_OVERHEAD,
    Dialect,
)
from magicbyte.engine.records.scan import complaint, scan

if TYPE_CHECKING:
    from magicbyte.engine.ports import Executor, ReadableFile, Task
    from magicbyte.engine.records.scan import BatchTable


class RowOrder(enum.Enum):
    """The position of sound entries relative to the log, by their offsets."""

    MAIN = "main"  # above all earlier offsets
    BACK = "back"  # not above them: a duplicate, a moved block, or a wrong offset
    OUTSIDE = "outside"  # offsets outside the segment
    STRAY = "stray"  # within the remains of a damaged entry, and contradicted by later entries


class Sound(NamedTuple):
    """Adjacent sound entries: `view` has their bytes, `position` is that in the file.

    Offsets ascend within one `row`, which may come in several pieces of a few MiB. `sure`: the preceding bytes end
    exactly where the row begins. Otherwise it was found by a search, and might still be the content of a record.
    """

    position: int
    view: memoryview
    entries: int
    first: int
    last: int
    order: RowOrder
    row: int
    sure: bool

    @property
    def end(self) -> int:
        """Position after the last entry."""
        return self.position + len(self.view)


class Outlier(NamedTuple):
    """The last entry of the MAIN row so far, at `position` to `end`, contradicts later entries: its offset is too high.

    `last` is the last offset before it, `offsets` are the offsets in its header.
    """

    position: int
    end: int
    last: int
    offsets: tuple[int, int]


class Displaced(NamedTuple):
    """A longer row contradicts earlier MAIN rows: those from number `row` on become BACK.

    `last` is the last offset before them.
    """

    row: int
    last: int


class Gap(NamedTuple):
    """Damaged bytes from `position` to `end`, for the reason in `error`; `last` is the last offset before them."""

    position: int
    end: int
    error: CorruptRecordError
    last: int


def walk(
    file: ReadableFile,
    limits: Limits,
    dialect: Dialect = Dialect.KAFKA,
    *,
    pool: Executor | None = None,
    buffers: Buffers | None = None,
) -> Iterator[Sound | Outlier | Displaced | Gap]:
    """Yield all of a segment in order, sound entries and damage, with every byte accounted for.

    Damage raises nothing. Memory does not grow with the file. A thread of `pool` reads ahead. `buffers`: the caller's,
    so that there are enough of them while it keeps views.
    """
    return _Walk(file, limits, dialect, pool=pool, buffers=buffers).run()


def sound_beginning(file: ReadableFile, limits: Limits, dialect: Dialect = Dialect.KAFKA) -> Iterator[Sound | Gap]:
    """Yield the sound entries at the beginning of a segment, and a Gap from the first entry that is damaged or out of
    order.

    Nothing after it is examined: recovery truncates there.
    """
    last = limits.low - 1
    for row in _Walk(file, limits, dialect, searches=False).run():
        if isinstance(row, Sound) and row.order is RowOrder.MAIN:
            last = row.last
            yield row
        elif isinstance(row, Gap):
            yield row
            return
        else:
            assert not isinstance(row, Displaced), "the bytes after it are not examined"
            position = row.position if isinstance(row, Sound) else row.end
            first = row.first if isinstance(row, Sound) else row.last
            error = CorruptRecordError("offset", expected=f"> {last}", found=first, position=position)
            yield Gap(position, file.size, error.locate(path=file.path), last)
            return


def first_offset_at(file: ReadableFile, position: int, dialect: Dialect) -> int:
    """Return the first offset in the sound entry at `position`; a wrapper must be decompressed for it."""
    head = memoryview(file.read_at(position, V0_OVERHEAD))
    offset = OFFSET.read(head)
    if dialect is Dialect.ENRICHED or head[MAGIC.start] == 2 or not head[MESSAGE_ATTRIBUTES.start] & CODEC_MASK:
        return offset
    table = scan(memoryview(file.read_at(position, LOG_OVERHEAD + SIZE.read(head))))
    try:
        return min((int(columns.offset[0]) for columns in decode_rows(table, [0], OFFSETS_AND_TIMES)), default=offset)
    except CorruptRecordError:  # its checksum holds, but it cannot be decompressed: use its header
        return offset


def known_lasts(table: BatchTable) -> Any:
    """Return the last offset of each sound entry; for a wrapper that cannot be decompressed, its own offset."""
    import numpy as np

    try:
        return last_offsets(table)
    except CorruptRecordError:
        return np.array(table.offset, np.int64)


class _Walk:
    def __init__(
        self,
        file: ReadableFile,
        limits: Limits,
        dialect: Dialect,
        *,
        searches: bool = True,
        pool: Executor | None = None,
        buffers: Buffers | None = None,
    ) -> None:
        self.file, self.limits, self.searches, self.pool = file, limits, searches, pool
        self.dialect, self.enriched = dialect, int(dialect is Dialect.ENRICHED)
        self.make = form_for(compiled=worth_compiling(file.size))
        self.state = self.make.zeros(search.FOLLOW)
        self.state[search.CREDIT] = CREDIT_BYTES
        self.entries = EntrySearch(file, limits, self.enriched, self.make)
        self.judgement = Judgement(self.entries)
        self.order, self.row, self.sure = RowOrder.MAIN, 0, True
        self.main_last = self.before = limits.low - 1
        self.previous: tuple[int, int, int] | None = None  # position, end and first offset of the last MAIN entry
        self.buffers = Buffers() if buffers is None else buffers
        self.preparing: Task[None] | None = None
        self.main_rows: list[_MainRow] = []
        self.last = self.main_last  # of the current row

    def run(self) -> Iterator[Sound | Outlier | Displaced | Gap]:
        """Walk the whole file; no thread reads it when this ends."""
        try:
            yield from self._run()
        finally:
            if self.preparing is not None:
                self.preparing.exception()

    def _run(self) -> Iterator[Sound | Outlier | Displaced | Gap]:
        file, position, wanted, least = self.file, 0, CHUNK_BYTES, CHUNK_BYTES // 2
        window, prepared = Window(file, self.buffers), Window(file, self.buffers)
        overlap = Window.SLACK
        follow = self.make.form(search.follow)
        tables = self.make.crc_table(IEEE), self.make.crc_table(CASTAGNOLI)
        state = self.state
        while position < file.size:
            asked = min(wanted, file.size - position)
            if self.preparing is not None:
                self.preparing.result()
                window, self.preparing = prepared, None
            view = window.read(position, asked, min(least, asked))
            if not view:
                return  # the file was truncated meanwhile
            if self.pool is not None and (end := position + len(view)) < file.size:
                prepared = Window(file, self.buffers)  # it overlaps this window: the last entry here may continue there
                start = max(end - overlap, position)
                self.preparing = self.pool.submit(prepared.prepare, start, start + CHUNK_BYTES)
            data, at, wanted, least = self.make.bytes_of(view), 0, CHUNK_BYTES, CHUNK_BYTES // 2
            while True:
                rejoin = self.main_last if self.order is RowOrder.BACK else MAX_OFFSET
                status = follow(
                    data, at, len(view), self.enriched, self.last, self.limits.low, self.limits.high, rejoin,
                    *tables, state,
                )  # fmt: skip
                stop = int(state[kernels.AT])
                if stop > at:
                    yield self._followed(position, at, view[at:stop])
                at = stop
                if status == search.OUTSIDE:
                    size = LOG_OVERHEAD + SIZE.read(view[at:])
                    yield self._outside(position + at, view[at : at + size])
                    at += size
                elif status == search.BACK:
                    wrong = self._went_back(position + at)
                    if wrong is not None:
                        yield wrong
                elif status == search.REJOINED:
                    self.order, self.last, self.row = RowOrder.MAIN, self.main_last, self.row + 1
                elif status == search.UNSURE and self.entries.sound_at(position + at) is not None:
                    state[search.CREDIT] = LOG_OVERHEAD + SIZE.read(view[at:])
                else:
                    break
            position += at
            if status == kernels.DONE:
                continue
            if status == kernels.SHORT and position + (need := int(state[kernels.NEED])) <= file.size:
                overlap = max(Window.SLACK, min(need, Window.ROOM))
                if need <= CHUNK_BYTES:
                    least = need
                    continue
                # never read the claimed size of an unverified entry at once
                if self.entries.sound_at(position) is not None:
                    state[search.CREDIT] += need
                    wanted = least = need
                    continue
            error = self._error(position, status)
            if not self.searches:
                yield Gap(position, file.size, self._tail(position) or error, self.main_last)
                return
            end, how = self.judgement.resume(position, self.main_last)
            if end == file.size and not isinstance(error, TruncatedLogError):
                error = self._tail(position) or error
            yield Gap(position, end, error, self.main_last)
            position = end
            self.row, self.sure = self.row + 1, how is Resumption.SURE
            self.order, self.last = RowOrder.MAIN, self.main_last
            if how in (Resumption.STRAY, Resumption.BACK):
                sound = self.entries.sound_at(position)
                assert sound is not None, "the search found it"
                displaced = self._displaced(position, sound.first) if how is Resumption.BACK else None
                if displaced is not None:
                    yield displaced
                else:
                    self.order, self.last = (
                        RowOrder.STRAY if how is Resumption.STRAY else RowOrder.BACK,
                        sound.first - 1,
                    )

    def _followed(self, buffer_position: int, at: int, view: memoryview) -> Sound:
        """Return the entries just followed, from `at` of the buffer on, and record them."""
        state, position = self.state, buffer_position + at
        begin = buffer_position + int(state[search.PREVIOUS_AT])
        first, self.last = int(state[search.FIRST]), int(state[search.LAST])
        if self.enriched:  # a wrapper's header has its first offset; its last one is inside
            self.last = max(self.last, int(known_lasts(scan(view[begin - position :], dialect=self.dialect))[-1]))
        if self.order is RowOrder.MAIN:
            if not self.main_rows or self.main_rows[-1].row != self.row:
                if first > self.main_last + 1:
                    self.judgement.holes.append((self.main_last, first))
                self.main_rows.append(_MainRow(self.row, self.main_last))
            self.main_rows[-1].entries += int(state[search.ENTRIES])
            self.main_rows[-1].last = self.last
            self.before, self.main_last = int(state[search.BEFORE]), self.last
            self.previous = begin, position + len(view), int(state[search.PREVIOUS_FIRST])
        state[search.CREDIT] = min(int(state[search.CREDIT]) + len(view), 4 * CREDIT_BYTES)
        sound = Sound(position, view, int(state[search.ENTRIES]), first, self.last, self.order, self.row, self.sure)
        self.sure = self.sure or self.order is RowOrder.MAIN  # the entries after a MAIN row are where they belong
        return sound

    def _outside(self, position: int, view: memoryview) -> Sound:
        first, last = int(self.state[search.NEXT_FIRST]), int(self.state[search.NEXT_LAST])
        self.row += 2
        return Sound(position, view, 1, first, last, RowOrder.OUTSIDE, self.row - 1, self.sure)

    def _went_back(self, position: int) -> Outlier | Displaced | None:
        """Decide whether the entry at `position`, whose offset does not ascend, is misplaced, or those before it."""
        first = int(self.state[search.NEXT_FIRST])
        self.row += 1
        if self.order is RowOrder.MAIN and self.previous is not None:
            begin, end, previous_first = self.previous
            begins = first_offset_at(self.file, begin, self.dialect)
            fits_without = first > self.before and begins != self.before + 1
            if fits_without:
                outlier = Outlier(begin, end, self.before, (previous_first, self.main_last))
                self.main_last = self.last = self.main_rows[-1].last = self.before
                self.main_rows[-1].entries -= 1
                self.previous = None
                return outlier
        if self.order is not RowOrder.STRAY:
            displaced = self._displaced(position, first) if self.searches else None
            if displaced is not None:
                return displaced
            self.order = RowOrder.BACK
        self.last = first - 1
        return None

    def _displaced(self, position: int, first: int) -> Displaced | None:
        """Withdraw MAIN rows that contradict the row at `position`, if that is longer than all of them."""
        against = 0
        for at in range(len(self.main_rows) - 1, -1, -1):
            row = self.main_rows[at]
            if row.last < first:
                break
            against += row.entries
            if against >= RUN:
                return None
            if row.before < first and self.entries.falls_behind(position, self.main_last, against + 1) > against:
                del self.main_rows[at:]
                while self.judgement.holes and self.judgement.holes[-1][0] >= row.before:
                    self.judgement.holes.pop()
                self.main_last = self.last = self.before = row.before
                self.order, self.previous = RowOrder.MAIN, None
                return Displaced(row.row, row.before)
        return None

    def _error(self, position: int, status: int) -> CorruptRecordError:
        """Return the reason why no sound entry is at `position`."""
        head = memoryview(self.file.read_at(position, RECORD_BATCH_OVERHEAD))
        need = int(self.state[kernels.NEED])
        error: CorruptRecordError
        if status == kernels.SHORT and need > self.limits.entry_bytes:
            error = BatchTooLargeError("batch size", expected=f"<= {self.limits.entry_bytes}", found=need)
        elif status == kernels.SHORT and position + need > self.file.size:
            expected = f"{need} bytes of an entry" if need > HEADER_TO_MAGIC else "an entry"
            found = f"{self.file.size - position} bytes"
            error = TruncatedLogError("end of the log", expected=expected, found=found)
        elif status in (kernels.SHORT, search.UNSURE, kernels.BAD_CRC):
            computed = self.entries.computed_crc(position)
            kind = kernels.BAD_BATCH_CRC if head[MAGIC.start] == 2 else kernels.BAD_CRC
            stored = (BATCH_CRC if kind == kernels.BAD_BATCH_CRC else MESSAGE_CRC).read(head)
            error = complaint(kind, [0, 0, 0, stored, computed])
        else:
            error = complaint(status, self.state)
        error.position = position
        if len(head) >= RECORD_BATCH_OVERHEAD and any(head[:HEADER_TO_MAGIC]):
            first, last, _ = extent_of(head)
            error.locate(offsets=(first, max(first, last)))
        return error.locate(path=self.file.path)

    def _tail(self, position: int) -> CorruptRecordError | None:
        """Return the error for a file with only zeros from `position` on, else None."""
        if next(data_pieces(self.file, position), None) is not None:
            return None
        found = f"{self.file.size - position} zero bytes up to the end"
        error = TruncatedLogError("end of the log", expected="an entry", found=found, position=position)
        return error.locate(path=self.file.path)


class _MainRow(Struct):
    """A MAIN row: its number, the last offset before it, its own last offset, and its number of entries."""

    row: int
    before: int
    last: int = -1
    entries: int = 0
