"""Walks a segment whose bytes cannot be trusted: sound entries, and between them what is damaged, exactly.

`verify` and `salvage` share this walk. An entry is sound when its size, magic byte and checksum hold; in a row of sound
entries nothing has to be searched for. Behind damage the next entry is found again by the rules of docs/salvage.md:
what the damaged entry itself still says comes first, and only then candidates are looked for, of which those that are
the content of a record are told from entries by what lies in front of them, behind them, and by their offsets.

Time stays linear on any input: a checksum that fails is paid for from a credit, and when that is used up checksums come
from running CRCs, which read every byte once.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from magicbyte.compiled.checksums import CASTAGNOLI, IEEE
from magicbyte.compiled.kernel import worth_compiling
from magicbyte.compiled.running_crc import CRC32, CRC32C, CrcKind
from magicbyte.errors import BatchTooLargeError, CorruptRecordError, TruncatedLogError
from magicbyte.log.files.filesystem import data_pieces
from magicbyte.log.files.index_writer import last_offsets
from magicbyte.log.files.reader import CHUNK_BYTES, Buffers, Window
from magicbyte.records import search_kernels as search
from magicbyte.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions, decode_rows
from magicbyte.records.forms import form_for
from magicbyte.records.kernels import batches
from magicbyte.records.kernels import statuses as kernels
from magicbyte.records.layout import (
    ATTRIBUTES,
    BATCH_CRC,
    CODEC_MASK,
    ENRICHED_TAGS_LENGTH,
    ENRICHED_TAGS_START,
    HEADER_TO_MAGIC,
    INT32,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    MAGIC,
    MESSAGE_ATTRIBUTES,
    MESSAGE_CRC,
    OFFSET,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT,
    SIZE,
    V0_KEY_LENGTH,
    V0_MINIMUM,
    V0_OVERHEAD,
    V1_KEY_LENGTH,
    Dialect,
)
from magicbyte.records.scan import complaint, scan
from magicbyte.wire.checksum import crc32, crc32c

if TYPE_CHECKING:
    from magicbyte.log.files.directory import PartitionDirectory, Segment
    from magicbyte.ports import ReadableFile
    from magicbyte.records.scan import BatchTable

MAX_RELATIVE = (1 << 31) - 1
MAX_OFFSET = (1 << 63) - 1

_CREDIT = 64 << 20
_HEAD = 4096  # bytes of an entry that are read to judge it
_FIRST_WINDOW = 16 << 10  # of a search, doubled up to CHUNK_BYTES
_FOUND_AT_ONCE = 4096
_LOOK_BACK = 1024  # for the record that holds a candidate
_LOOK_BACK_PLAIN = 64  # for the message that does
_LOOK_AHEAD = 64 << 10
_RUN = 32  # entries in a row that prove each other
_SHORT_RUN = 6  # that speak against others
_LOOK_ON = 256 << 10  # for those
_HOLES = 4
_CLOSE = 64  # offsets
_MESSAGE_ATTRIBUTES = 15  # the largest there are
_STEP = 4096  # between two running CRCs
_OFFSETS_ONLY = DecodeOptions(keys=False, values=False, headers=False, verify=False, control=True)
_ZEROS = bytes(HEADER_TO_MAGIC)


class Place(enum.Enum):
    """Where sound entries stand by their offsets."""

    MAIN = "main"  # above all before
    BACK = "back"  # not above: a duplicate, a block that was moved, or an offset that is wrong
    OUTSIDE = "outside"  # not offsets of this segment at all
    STRAY = "stray"  # among the remains of a damaged entry, and what follows contradicts them


class Sound(NamedTuple):
    """Sound entries, one behind the other: `view` has their bytes, which lie at `position` of the file.

    Offsets rise within one `row`; a row may come in several pieces, of a few MiB each. `sure`: what lies in front of
    the row ends where it begins. Else it was searched for, and might be the content of a record after all.
    """

    position: int
    view: memoryview
    entries: int
    first: int
    last: int
    place: Place
    row: int
    sure: bool

    @property
    def end(self) -> int:
        """Position behind the last entry."""
        return self.position + len(self.view)


class Outlier(NamedTuple):
    """The last entry of the MAIN row so far, at `position` to `end`, contradicts what follows: its offset is too high.

    `last` is the last offset in front of it, `offsets` what it claims to hold.
    """

    position: int
    end: int
    last: int
    offsets: tuple[int, int]


class Displaced(NamedTuple):
    """MAIN rows contradict a longer one that follows: those from number `row` on are BACK from now on.

    `last` is the last offset in front of them.
    """

    row: int
    last: int


class Gap(NamedTuple):
    """Damaged bytes from `position` to `end`, for the reason in `error`; `last` is the last offset in front of them."""

    position: int
    end: int
    error: CorruptRecordError
    last: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a segment can hold: offsets from `low` to `high`, entries up to `entry_bytes`."""

    low: int = 0
    high: int = MAX_OFFSET
    entry_bytes: int = DEFAULT_MAX_BATCH_BYTES


def limits_of(partition: PartitionDirectory, segment: Segment, limit: int = DEFAULT_MAX_BATCH_BYTES) -> Limits:
    """Return what a segment can hold, by its own name and that of the next one."""
    bases = [each.base_offset for each in partition.segments]
    later = [base for base in bases if base > segment.base_offset]
    high = min(later) - 1 if later else min(segment.base_offset + MAX_RELATIVE, MAX_OFFSET)
    return Limits(segment.base_offset, high, limit)


def walk(
    file: ReadableFile,
    limits: Limits,
    dialect: Dialect = Dialect.KAFKA,
    *,
    pool: Executor | None = None,
    buffers: Buffers | None = None,
) -> Iterator[Sound | Outlier | Displaced | Gap]:
    """Yield all of a segment, in its order: sound entries and damage, without a byte left out.

    Nothing is raised for damage. Memory does not grow with the file. A thread of `pool` reads ahead. `buffers`: those
    of the caller, who keeps views for a while, so that there are enough of them.
    """
    return _Walk(file, limits, dialect, pool=pool, buffers=buffers).run()


def sound_beginning(file: ReadableFile, limits: Limits, dialect: Dialect = Dialect.KAFKA) -> Iterator[Sound | Gap]:
    """Yield the sound entries that a segment begins with, and a Gap from the first one on that is not, or not in order.

    Nothing is looked for behind it: what recovery keeps ends there.
    """
    last = limits.low - 1
    for found in _Walk(file, limits, dialect, searches=False).run():
        if isinstance(found, Sound) and found.place is Place.MAIN:
            last = found.last
            yield found
        elif isinstance(found, Gap):
            yield found
            return
        else:
            assert not isinstance(found, Displaced), "what follows is not looked at"
            position = found.position if isinstance(found, Sound) else found.end
            first = found.first if isinstance(found, Sound) else found.last
            error = CorruptRecordError("offset", expected=f"> {last}", found=first, position=position)
            yield Gap(position, file.size, error.locate(path=file.path), last)
            return


def first_offset(file: ReadableFile, position: int, dialect: Dialect) -> int:
    """Return the first offset in the sound entry at `position`: of a wrapper it is known only when it is opened."""
    head = memoryview(file.read_at(position, V0_OVERHEAD))
    offset = OFFSET.read(head)
    if dialect is Dialect.ENRICHED or head[MAGIC.start] == 2 or not head[MESSAGE_ATTRIBUTES.start] & CODEC_MASK:
        return offset
    table = scan(memoryview(file.read_at(position, LOG_OVERHEAD + SIZE.read(head))))
    try:
        return min((int(columns.offset[0]) for columns in decode_rows(table, [0], _OFFSETS_ONLY)), default=offset)
    except CorruptRecordError:  # sound by its checksum, and yet not to be opened: it stays closed
        return offset


def known_lasts(table: BatchTable) -> Any:
    """Return the last offset of each sound entry; of a wrapper that must be opened for it, and cannot be, its own."""
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
        self.state[search.CREDIT] = _CREDIT
        self.search = _Search(file, limits, self.enriched, self.make)
        self.place, self.row, self.sure = Place.MAIN, 0, True
        self.main_last = self.before = limits.low - 1
        self.previous: tuple[int, int, int] | None = None  # position, end and first offset of the last MAIN entry
        self.buffers = Buffers() if buffers is None else buffers
        self.preparing: Future[None] | None = None
        self.main_rows: list[_MainRow] = []
        self.last = self.main_last  # of the row that is being followed

    def run(self) -> Iterator[Sound | Outlier | Displaced | Gap]:
        """Walk the whole file; no thread reads it any more when this ends."""
        try:
            yield from self._run()
        finally:
            if self.preparing is not None:
                wait([self.preparing])

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
                return  # the file shrank
            if self.pool is not None and (end := position + len(view)) < file.size:
                prepared = Window(file, self.buffers)  # it overlaps with this one: the last entry here may go on there
                start = max(end - overlap, position)
                self.preparing = self.pool.submit(prepared.prepare, start, start + CHUNK_BYTES)
            data, at, wanted, least = self.make.bytes_of(view), 0, CHUNK_BYTES, CHUNK_BYTES // 2
            while True:
                rejoin = self.main_last if self.place is Place.BACK else MAX_OFFSET
                status = follow(
                    data, at, len(view), self.enriched, self.last, self.limits.low, self.limits.high, rejoin,
                    *tables, state,
                )  # fmt: skip
                stop = int(state[search.AT])
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
                    self.place, self.last, self.row = Place.MAIN, self.main_last, self.row + 1
                elif status == search.UNSURE and self.search.sound_at(position + at) is not None:
                    state[search.CREDIT] = LOG_OVERHEAD + SIZE.read(view[at:])
                else:
                    break
            position += at
            if status == kernels.DONE:
                continue
            if status == kernels.SHORT and position + (need := int(state[search.NEED])) <= file.size:
                overlap = max(Window.SLACK, min(need, Window.ROOM))
                if need <= CHUNK_BYTES:
                    least = need
                    continue
                if self.search.sound_at(position) is not None:  # nothing is read in one piece on its word alone
                    state[search.CREDIT] += need
                    wanted = least = need
                    continue
            error = self._error(position, status)
            if not self.searches:
                yield Gap(position, file.size, self._tail(position) or error, self.main_last)
                return
            end, how = self.search.resume(position, self.main_last)
            if end == file.size and not isinstance(error, TruncatedLogError):
                error = self._tail(position) or error
            yield Gap(position, end, error, self.main_last)
            position = end
            self.row, self.sure = self.row + 1, how is _How.SURE
            self.place, self.last = Place.MAIN, self.main_last
            if how in (_How.STRAY, _How.BACK):
                found = self.search.sound_at(position)
                assert found is not None, "the search found it"
                displaced = self._displaced(position, found.first) if how is _How.BACK else None
                if displaced is not None:
                    yield displaced
                else:
                    self.place, self.last = Place.STRAY if how is _How.STRAY else Place.BACK, found.first - 1

    def _followed(self, buffer_position: int, at: int, view: memoryview) -> Sound:
        """Return what was just followed, from `at` of the buffer on, and remember it."""
        state, position = self.state, buffer_position + at
        begin = buffer_position + int(state[search.PREVIOUS_AT])
        first, self.last = int(state[search.FIRST]), int(state[search.LAST])
        if self.enriched:  # a wrapper says where it begins; where it ends is inside
            self.last = max(self.last, int(known_lasts(scan(view[begin - position :], dialect=self.dialect))[-1]))
        if self.place is Place.MAIN:
            if not self.main_rows or self.main_rows[-1].row != self.row:
                if first > self.main_last + 1:
                    self.search.holes.append((self.main_last, first))
                self.main_rows.append(_MainRow(self.row, self.main_last))
            self.main_rows[-1].entries += int(state[search.ENTRIES])
            self.main_rows[-1].last = self.last
            self.before, self.main_last = int(state[search.BEFORE]), self.last
            self.previous = begin, position + len(view), int(state[search.PREVIOUS_FIRST])
        state[search.CREDIT] = min(int(state[search.CREDIT]) + len(view), 4 * _CREDIT)
        sound = Sound(position, view, int(state[search.ENTRIES]), first, self.last, self.place, self.row, self.sure)
        self.sure = self.sure or self.place is Place.MAIN  # what is behind these is where it belongs
        return sound

    def _outside(self, position: int, view: memoryview) -> Sound:
        first, last = int(self.state[search.NEXT_FIRST]), int(self.state[search.NEXT_LAST])
        self.row += 2
        return Sound(position, view, 1, first, last, Place.OUTSIDE, self.row - 1, self.sure)

    def _went_back(self, position: int) -> Outlier | Displaced | None:
        """Decide, of the entry at `position`, whose offset does not rise, what is out of order: it, or those before."""
        first = int(self.state[search.NEXT_FIRST])
        self.row += 1
        if self.place is Place.MAIN and self.previous is not None:
            begin, end, previous_first = self.previous
            begins = first_offset(self.file, begin, self.dialect)
            fits_without = first > self.before and begins != self.before + 1
            if fits_without:
                outlier = Outlier(begin, end, self.before, (previous_first, self.main_last))
                self.main_last = self.last = self.main_rows[-1].last = self.before
                self.main_rows[-1].entries -= 1
                self.previous = None
                return outlier
        if self.place is not Place.STRAY:
            displaced = self._displaced(position, first) if self.searches else None
            if displaced is not None:
                return displaced
            self.place = Place.BACK
        self.last = first - 1
        return None

    def _displaced(self, position: int, first: int) -> Displaced | None:
        """Take back MAIN rows that contradict the row of entries at `position` if that is longer than all of them."""
        against = 0
        for at in range(len(self.main_rows) - 1, -1, -1):
            row = self.main_rows[at]
            if row.last < first:
                break
            against += row.entries
            if against >= _RUN:
                return None
            if row.before < first and self.search.falls_behind(position, self.main_last, against + 1) > against:
                del self.main_rows[at:]
                while self.search.holes and self.search.holes[-1][0] >= row.before:
                    self.search.holes.pop()
                self.main_last = self.last = self.before = row.before
                self.place, self.previous = Place.MAIN, None
                return Displaced(row.row, row.before)
        return None

    def _error(self, position: int, status: int) -> CorruptRecordError:
        """Say why no sound entry is at `position`."""
        head = memoryview(self.file.read_at(position, RECORD_BATCH_OVERHEAD))
        need = int(self.state[search.NEED])
        error: CorruptRecordError
        if status == kernels.SHORT and need > self.limits.entry_bytes:
            error = BatchTooLargeError("batch size", expected=f"<= {self.limits.entry_bytes}", found=need)
        elif status == kernels.SHORT and position + need > self.file.size:
            expected = f"{need} bytes of an entry" if need > HEADER_TO_MAGIC else "an entry"
            found = f"{self.file.size - position} bytes"
            error = TruncatedLogError("end of the log", expected=expected, found=found)
        elif status in (kernels.SHORT, search.UNSURE, kernels.BAD_CRC):
            computed = self.search.computed_crc(position)
            kind = kernels.BAD_BATCH_CRC if head[MAGIC.start] == 2 else kernels.BAD_CRC
            stored = (BATCH_CRC if kind == kernels.BAD_BATCH_CRC else MESSAGE_CRC).read(head)
            error = complaint(kind, [0, 0, 0, stored, computed])
        else:
            error = complaint(status, [0, 0, 0, int(self.state[search.EXPECTED]), int(self.state[search.FOUND])])
        error.position = position
        if len(head) >= RECORD_BATCH_OVERHEAD and any(head[:HEADER_TO_MAGIC]):
            first = OFFSET.read(head)
            delta = LAST_OFFSET_DELTA.read(head) if head[MAGIC.start] == 2 else 0
            error.locate(offsets=(first, first + max(delta, 0)))
        return error.locate(path=self.file.path)

    def _tail(self, position: int) -> CorruptRecordError | None:
        """Return the error for a file that holds nothing but zeros from `position` on, else None."""
        if next(data_pieces(self.file, position), None) is not None:
            return None
        found = f"{self.file.size - position} zero bytes up to the end"
        error = TruncatedLogError("end of the log", expected="an entry", found=found, position=position)
        return error.locate(path=self.file.path)


@dataclass(slots=True)
class _MainRow:
    """What is known of a MAIN row: its number, the last offset in front of it, its own last one, how many entries."""

    row: int
    before: int
    last: int = -1
    entries: int = 0


class _How(enum.Enum):
    """How the log was found again: by what is in front, by a search, or in bytes that are not where they belong.

    BACK: with offsets that were missing before.
    """

    SURE = "sure"
    SEARCHED = "searched"
    STRAY = "stray"
    BACK = "back"


class Entry(NamedTuple):
    """A sound entry, found by the search."""

    position: int
    end: int
    first: int
    last: int


class _Search:
    """Finds the next entry behind damage. Positions asked about rise from one damage to the next."""

    def __init__(self, file: ReadableFile, limits: Limits, enriched: int, make: Any) -> None:
        self.file, self.limits, self.enriched, self.make = file, limits, enriched, make
        self.credit = _CREDIT
        self.start = 0  # of the damage at hand
        self.last = -1  # offset in front of it
        self.skip_to = 0  # of the candidates: none in front of it
        self.holder_end = 0  # of the record or message that held the last candidate that was held
        self.holes: deque[tuple[int, int]] = deque(
            maxlen=_HOLES
        )  # lately met in the offsets: last before, first behind
        self._running: list[tuple[int, int]] = []  # CRC-32 and CRC-32C from some position up to each _STEP
        self._running_from = 0

    # ---- is there a sound entry?

    def sound_at(self, position: int) -> Entry | None:
        """Return the sound entry at `position`, None if there is none."""
        head = self.file.read_at(position, _HEAD)
        size = search.plausible.py_func(
            head, 0, len(head), self.file.size - position, self.limits.entry_bytes, self.enriched
        )
        if size < 0:
            return None
        view = memoryview(head)
        stored = BATCH_CRC.read(view) if head[MAGIC.start] == 2 else MESSAGE_CRC.read(view)
        if self._crc(position, size, head) != stored:
            return None
        first = OFFSET.read(view)
        return Entry(
            position, position + size, first, first + (LAST_OFFSET_DELTA.read(view) if head[MAGIC.start] == 2 else 0)
        )

    def computed_crc(self, position: int) -> int:
        """Return the checksum that the entry at `position`, which is whole, should have."""
        head = self.file.read_at(position, _HEAD)
        return self._crc(position, LOG_OVERHEAD + SIZE.read(memoryview(head)), head)

    def _crc(self, position: int, size: int, head: bytes) -> int:
        is_batch = head[MAGIC.start] == 2
        skipped = ATTRIBUTES.start if is_batch else MAGIC.start
        if size <= len(head) or size <= self.credit:
            whole = memoryview(head if size <= len(head) else self.file.read_at(position, size))
            self.credit -= size if size > len(head) else 0
            return (crc32c if is_batch else crc32)(whole[skipped:size])
        kind: CrcKind = CRC32C if is_batch else CRC32
        before, after = (self._running_crc(at, kind) for at in (position + skipped, position + size))
        return kind.part(before, after, size - skipped)

    def _running_crc(self, position: int, kind: CrcKind) -> int:
        """Return the CRC of all from where the running ones begin to `position`."""
        floor = self.start - self.start % _STEP
        if not self._running or floor < self._running_from:
            self._running_from, self._running = floor, [(0, 0)]
        elif floor - self._running_from > 8 * self.limits.entry_bytes:  # what is behind us is not asked about again
            drop = min((floor - self._running_from) // _STEP, len(self._running) - 1)
            del self._running[:drop]
            self._running_from += drop * _STEP
        wanted = (position - self._running_from) // _STEP
        while len(self._running) <= wanted:
            at = self._running_from + (len(self._running) - 1) * _STEP
            piece = memoryview(self.file.read_at(at, CHUNK_BYTES))
            one, other = self._running[-1]
            for cut in range(0, len(piece) - _STEP + 1, _STEP):
                one, other = CRC32.resume(piece[cut : cut + _STEP], one), CRC32C.resume(piece[cut : cut + _STEP], other)
                self._running.append((one, other))
            if len(piece) < CHUNK_BYTES:
                break
        start = self._running_from + wanted * _STEP
        rest = self.file.read_at(start, position - start)
        return kind.resume(rest, self._running[wanted][kind is CRC32C])

    # ---- where does the log go on?

    def resume(self, position: int, last: int) -> tuple[int, _How]:
        """Return where the log goes on behind the damage at `position`; `last` is the last offset in front of it.

        That is a sound entry, or a damaged one whose place is certain, or the end of the file.
        """
        self.credit = min(self.credit + 4 * (position - self.start), 4 * _CREDIT)
        self.start, self.last, self.holder_end = position, last, 0
        head = memoryview(self.file.read_at(position, _HEAD))
        claimed, framed = self._claimed_end(position, head), self._framed_end(position, head)
        least = last
        if self._like_wrapper(position, head, last, claimed):
            least = OFFSET.read(head)  # of its last message
        for end in (framed, claimed):
            if end == self.file.size:
                return self._within(end, least, MAX_OFFSET)
            if end is not None and (behind := self.sound_at(end)) is not None:
                found, how = self._within(end, least, behind.first)
                out_of_order = found == end and behind.first <= last and not self._fills(behind)
                return found, _How.SEARCHED if out_of_order else how
        for end in (claimed, framed):
            if end is not None and self._like_header(end, last):
                return self._within(end, least, OFFSET.read(memoryview(self.file.read_at(end, LOG_OVERHEAD))))
        return self._searched(position, last, least)

    def _like_wrapper(self, position: int, head: memoryview, last: int, claimed: int | None) -> bool:
        """Say whether the damaged entry at `position` is a wrapper: its magic byte says so, or its size is right."""
        if not self._header_marks(position, last) or not head[MESSAGE_ATTRIBUTES.start] & CODEC_MASK:
            return False
        magic = head[MAGIC.start]
        return magic < 2 or (magic > 2 and claimed is not None and self.sound_at(claimed) is not None)

    def _claimed_end(self, position: int, head: memoryview) -> int | None:
        """Return where the entry ends by its size field, if that is possible."""
        if len(head) < HEADER_TO_MAGIC or SIZE.read(head) < V0_MINIMUM:
            return None
        end = position + LOG_OVERHEAD + SIZE.read(head)
        return end if end <= self.file.size else None

    def _framed_end(self, position: int, head: memoryview) -> int | None:
        """Return where the entry ends by the lengths inside, if they fit together.

        A message says its end a second time with the lengths of key and value, an uncompressed batch with its records.
        """
        if len(head) < RECORD_BATCH_OVERHEAD or head[MAGIC.start] < 2:
            return self._message_end(position, head) if len(head) >= V0_OVERHEAD else None
        if head[MAGIC.start] == 2 and ATTRIBUTES.read(head) & CODEC_MASK:
            return None
        end, found = self._records_end(position + RECORD_BATCH_OVERHEAD, max(RECORD_COUNT.read(head), 0))
        return end if found and (found == RECORD_COUNT.read(head) or self.sound_at(end) is not None) else None

    def _message_end(self, position: int, head: memoryview) -> int | None:
        if self.enriched:
            at = ENRICHED_TAGS_START + max(ENRICHED_TAGS_LENGTH.read(head), 0)
        else:
            at = (V1_KEY_LENGTH if head[MAGIC.start] == 1 else V0_KEY_LENGTH).start
        for _ in range(2):
            raw = self.file.read_at(position + at, 4)
            length = int.from_bytes(raw, "big", signed=True)
            if len(raw) < 4 or length < -1 or length > self.file.size - position - at - 4:
                return None
            at += 4 + max(length, 0)
        return position + at

    def _records_end(self, position: int, most: int) -> tuple[int, int]:
        """Return where the records from `position` on cease to make sense, and how many there are.

        `most` is the count that is expected; where it is reached the walk ends, if a record does not follow.
        """
        window, at, found = _FIRST_WINDOW, position, 0
        state = self.make.zeros(search.FOLLOW)
        while True:
            data = self.file.read_at(at, window)
            stop = at + int(
                self.make.form(search.follow_records)(
                    self.make.bytes_of(data), 0, len(data), max(most - found, 0) or MAX_OFFSET, state
                )
            )
            count = int(state[search.ENTRIES])
            found += count
            if found == most or at + len(data) >= self.file.size:
                return stop, found
            if not count:
                size, _ = batches.long_varint.py_func(data, 0, len(data))
                if not len(data) < size <= min(self.limits.entry_bytes, self.credit):
                    return stop, found
                self.credit -= size
                window = size + 8
            else:
                window = min(2 * window, CHUNK_BYTES)
            at = stop

    def _within(self, end: int, least: int, most: int) -> tuple[int, _How]:
        """Return where the log goes on, if not at `end`, where the next entry begins by the word of the damaged one.

        A row of entries may end exactly there. Content never ends where its batch does, a record's header count follows
        it: so the size field is wrong, and leads past sound entries. (Content of a message may end with it, but
        messages say their end twice, and messages in a wrapper have offsets up to its own: those of the row are above
        `least` and below `most`.) Or a row leads to another damaged entry: bytes of another place, written here.
        """
        row_end = highest = -1
        own = self._own_offset(least)
        for found in self._candidates(self.start + 1, end):
            held = self._held_until(found)
            if found.end > row_end:
                row_end, highest, _ = self._row_of(found, MAX_OFFSET, end)
            if held is None:
                between = found.first > least and highest < most
                if self._fills(found):
                    return found.position, _How.BACK
                if row_end == end and between:
                    return found.position, _How.SURE
                across = row_end > end and found.first > least  # an entry lies over the end that was claimed
                in_front = least < found.first <= highest < own  # of the damaged one, by its own word
                if across or in_front or (row_end < end and self._like_header(row_end, highest)):
                    stray = found.first <= least or self._contradicted(row_end, least, highest)
                    return found.position, _How.STRAY if stray else _How.SEARCHED
            self.skip_to = found.end if held is None or held < row_end else row_end
        return end, _How.SURE

    def _searched(self, position: int, last: int, least: int) -> tuple[int, _How]:
        """Return where the first candidate behind the damage lies that is an entry, not the content of a record.

        An entry that is cut off by the file's end has all the rest inside, unless that is a long row.
        """
        cut = self._claims(position, self.file.size, last) and not self._contradicted(position + 1, last, MAX_OFFSET)
        for found in self._candidates(position + 1, self.file.size):
            held = self._held_until(found)
            if held is None and self._fills(found):
                return found.position, _How.BACK
            end, highest, count = self._row_of(found, _RUN, self.file.size)
            rises = self._rises_later(found, least)
            if held is None and not rises:
                if count == _RUN or (end == self.file.size and not cut):
                    return found.position, _How.SEARCHED
                rising, goes_on = found.first > least, self._like_header(end, highest)
                contradicted = rising and self._contradicted(end, least, highest)
                if count >= _SHORT_RUN and rising and not contradicted:
                    return found.position, _How.SEARCHED
                if not cut and (goes_on or not (self._tail_of_record(end) or self._claims(position, end, last))):
                    stray = contradicted or (not rising and count == 1 and not goes_on) or highest > self.limits.high
                    return found.position, _How.STRAY if stray else _How.SEARCHED
            self.skip_to = found.end if held is None or held < end else end
        return self.file.size, _How.SURE

    def _candidates(self, start: int, stop: int) -> Iterator[Entry]:
        """Yield sound entries that begin from `start` to below `stop`, and not in front of `skip_to`."""
        self.skip_to = start
        at, window = start, _FIRST_WINDOW
        state = self.make.zeros(search.FOLLOW)
        found = self.make.zeros(_FOUND_AT_ONCE)
        find = self.make.form(search.find_headers)
        while at < stop:
            data = self.make.bytes_of(self.file.read_at(at, window + _HEAD))
            last, room = min(window, stop - at), self.file.size - at
            status = find(data, 0, last, len(data), room, self.limits.entry_bytes, self.enriched, found, state)
            for place in found[: int(state[search.ENTRIES])]:
                position = at + int(place)
                if position >= self.skip_to and (entry := self.sound_at(position)) is not None:
                    yield entry
            at = max(at + (int(state[search.AT]) if status == kernels.FULL else last), self.skip_to)
            window = min(2 * window, CHUNK_BYTES)

    def _row_of(self, entry: Entry, most: int, stop: int) -> tuple[int, int, int]:
        """Return where the row of sound entries that begins with `entry` ends, its last offset, and how many they are.

        They are counted up to `most`, and up to position `stop`.
        """
        end, highest, count = entry.end, entry.last, 1
        while count < most and end < stop and (more := self.sound_at(end)) is not None:
            end, highest, count = more.end, more.last, count + 1
        return end, highest, count

    def falls_behind(self, position: int, last: int, most: int) -> int:
        """Return how many sound entries begin at `position`, one behind the other, with offsets up to `last`."""
        count, before = 0, -1
        while count < most and (more := self.sound_at(position)) is not None and before < more.first <= last:
            position, before, count = more.end, more.last, count + 1
        return count

    def _fills(self, entry: Entry) -> bool:
        """Say whether `entry` has offsets that were missing a little earlier: a page that came too early had others."""
        return any(before < entry.first and entry.last < behind for before, behind in self.holes)

    def _own_offset(self, last: int) -> int:
        """Return the offset of the damaged entry by its own word, 0 if that does not make sense behind `last`."""
        if self._header_marks(self.start, last) < 2:
            return 0
        return OFFSET.read(memoryview(self.file.read_at(self.start, LOG_OVERHEAD)))

    def _rises_later(self, entry: Entry, least: int) -> bool:
        """Say whether `entry` is not above `least`, but another one of its row is: then it is no part of that row."""
        more: Entry | None = entry
        for _ in range(_RUN):
            if more is None or more.first > least:
                break
            more = self.sound_at(more.end)
        return more is not None and more is not entry and more.first > least

    def _contradicted(self, start: int, last: int, highest: int) -> bool:
        """Say whether the log goes on behind `start` with offsets above `last`, but not above `highest`.

        Only a row of several entries says so, and it is looked for in the next bytes only.
        """
        outer = self.skip_to
        for found in self._candidates(start, min(start + _LOOK_ON, self.file.size)):
            end, _, count = self._row_of(found, _SHORT_RUN, self.file.size)
            if count == _SHORT_RUN and found.first > last:
                self.skip_to = outer
                return found.first <= highest
            self.skip_to = end
        self.skip_to = outer
        return False

    # ---- what an entry is known by

    def _like_header(self, position: int, last: int) -> bool:
        """Say whether a damaged entry begins at `position`: its offset follows `last`, two of its fields make sense.

        Of an offset that is the very next one, one other field is enough.
        """
        marks = self._header_marks(position, last)
        return marks >= 2 or (marks > 0 and OFFSET.read(memoryview(self.file.read_at(position, 8))) == last + 1)

    def _header_marks(self, position: int, last: int) -> int:
        """Return how many of size, magic byte and attributes make sense at `position`; 0 if the offset does not."""
        head = memoryview(self.file.read_at(position, RECORD_BATCH_OVERHEAD))
        if len(head) < V0_OVERHEAD or head[:HEADER_TO_MAGIC] == _ZEROS:
            return 0
        offset = OFFSET.read(head)
        if not last < offset <= min(last + MAX_RELATIVE, self.limits.high):
            return 0
        size = V0_MINIMUM <= SIZE.read(head) <= self.limits.entry_bytes
        magic = head[MAGIC.start] == 1 if self.enriched else head[MAGIC.start] <= 2
        flags = MESSAGE_ATTRIBUTES.read(head) if head[MAGIC.start] < 2 else ATTRIBUTES.read(head)
        return size + magic + (0 <= flags <= search.LARGEST_ATTRIBUTES)

    def _claims(self, position: int, end: int, last: int) -> bool:
        """Say whether the header of the damaged entry at `position` looks whole, and as if it reached to `end`."""
        if self._header_marks(position, last) < 3:
            return False
        return end <= position + LOG_OVERHEAD + SIZE.read(memoryview(self.file.read_at(position, LOG_OVERHEAD)))

    def _held_until(self, found: Entry) -> int | None:
        """Return where the record or message ends that seems to hold `found` as its content; None if there is none.

        Its own lengths must add up exactly, so what lies in front of an entry by chance does not pass for one.
        """
        if found.end > self.holder_end:
            self.holder_end = self._holder(found) or 0
        if not self.holder_end or self._straddled(found, self.holder_end):
            return None
        fits = self._fills(found) or self.last < found.first <= self.last + _CLOSE
        return None if fits and self._refuted(self.holder_end) else self.holder_end

    def _straddled(self, found: Entry, position: int) -> bool:
        """Say whether the row that begins with `found` has an entry across `position`, which then is no end."""
        more: Entry | None = found
        for _ in range(_RUN):
            if more is None or more.end >= position:
                break
            more = self.sound_at(more.end)
        return more is not None and more.end > position > more.position

    def _holder(self, found: Entry) -> int | None:
        """Look for a record or message around `found` in the bytes themselves."""
        low = max(self.start, found.position - _LOOK_BACK)
        ahead = _LOOK_AHEAD if self.credit > _LOOK_AHEAD else _HEAD
        self.credit -= ahead
        data = self.file.read_at(low, found.end - low + ahead)
        start, stop = found.position - low, found.end - low
        end = int(self.make.form(search.held_by_record)(self.make.bytes_of(data), 0, start, stop, len(data)))
        if end >= 0:
            return low + end
        for at in range(start - 4, max(start - 4 - _LOOK_BACK_PLAIN, -1), -1):
            length = int.from_bytes(data[at : at + 4], "big", signed=True)
            ends = low + at + 4 + length
            if length <= 0 or not found.end <= ends <= self.file.size:
                continue
            if at == start - 4 and (ends in (found.end, self.file.size) or self.sound_at(ends) is not None):
                return ends
            if _is_message(data, at, ends - low, self.enriched) and self.sound_at(ends) is not None:
                return ends
        return None

    def _refuted(self, position: int) -> bool:
        """Say whether no record ends at `position`: nothing that could follow does, or a sound entry lies across it."""
        if not self._goes_on(position):
            return True
        outer, low = self.skip_to, max(position - _LOOK_BACK, 0)
        across = any(found.end > position for found in self._candidates(low, position))
        self.skip_to = outer
        return across

    def _goes_on(self, position: int) -> bool:
        """Say whether a record or a sound entry begins at `position`."""
        if self.sound_at(position) is not None:
            return True
        data = self.file.read_at(position, _LOOK_AHEAD)
        return int(search.record_end.py_func(data, 0, len(data))) >= 0

    def _tail_of_record(self, position: int) -> bool:
        """Say whether the end of a record lies at `position`: its headers, and then another record or a sound entry."""
        data = self.file.read_at(position, _HEAD)
        count, at = batches.long_varint.py_func(data, 0, len(data))
        if at < 0 or count < 0 or count > len(data):
            return False
        at = batches.skip_headers.py_func(data, at, len(data), count)
        return at >= 0 and self._goes_on(position + at)


def _is_message(data: bytes, at: int, end: int, enriched: int) -> bool:
    """Say whether a message's key with its length in front, null or short, ends at `at`, and its header is in front.

    Of that either the size leads to `end`, or magic byte and attributes make sense; an enriched one has no fixed place.
    """
    keys = [at - 4] if data[max(at - 4, 0) : at] == b"\xff\xff\xff\xff" else []
    sizes = range(1, min(_LOOK_BACK_PLAIN, at - 3))
    keys += [at - 4 - size for size in sizes if data[at - 4 - size : at - size] == INT32.pack(size)]
    for key in keys:
        if enriched:
            return True
        for magic, place in ((0, V0_KEY_LENGTH), (1, V1_KEY_LENGTH)):
            start = key - place.start
            if start < 0:
                continue
            size = data[start + SIZE.start : start + SIZE.start + 4] == INT32.pack(end - start - LOG_OVERHEAD)
            attributes = data[start + MESSAGE_ATTRIBUTES.start]
            if size or (data[start + MAGIC.start] == magic and attributes <= _MESSAGE_ATTRIBUTES):
                return True
    return False
