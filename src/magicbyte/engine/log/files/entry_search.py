"""Find sound entries in untrusted bytes: test a position, or search for the next one.

Time stays linear on any input: checksums that fail are computed at the expense of a credit. When that is used up,
checksums come from running CRCs, which read every byte once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from magicbyte.engine.compiled.running_crc import CRC32, CRC32C, CrcKind
from magicbyte.engine.log.files.reader import CHUNK_BYTES, MAX_OFFSET
from magicbyte.engine.records import search_kernels as search
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.header import extent_of
from magicbyte.engine.records.kernels import batches
from magicbyte.engine.records.kernels import statuses as kernels
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    BATCH_CRC,
    LOG_OVERHEAD,
    MAGIC,
    MESSAGE_CRC,
    SIZE,
)
from magicbyte.engine.wire.checksum import crc32, crc32c

if TYPE_CHECKING:
    from magicbyte.engine.ports import ReadableFile


CREDIT_BYTES = 64 << 20
HEAD_BYTES = 4096  # of an entry, read to test it
FIRST_WINDOW = 16 << 10  # of a search; doubled up to CHUNK_BYTES
_FOUND_AT_ONCE = 4096
_STEP = 4096  # distance between two running CRCs


class Limits(Struct, frozen=True):
    """The offsets that a segment can hold, from `low` to `high`, and the maximum size of an entry."""

    low: int = 0
    high: int = MAX_OFFSET
    entry_bytes: int = DEFAULT_MAX_BATCH_BYTES


class Entry(NamedTuple):
    """A sound entry that the search returned."""

    position: int
    end: int
    first: int
    last: int


class EntrySearch:
    """Find sound entries after damage. `begin` sets the damage; positions ascend from one to the next.

    `start` is the position of the current damage, `credit` the bytes that may still be read for failing checksums.
    """

    def __init__(self, file: ReadableFile, limits: Limits, enriched: int, make: Any) -> None:
        self.file, self.limits, self.enriched, self.make = file, limits, enriched, make
        self.credit = CREDIT_BYTES
        self.start = 0
        self._running: list[tuple[int, int]] = []  # CRC-32 and CRC-32C from a start position up to each _STEP
        self._running_from = 0

    def begin(self, position: int) -> None:
        """Start at the damage at `position`."""
        self.credit = min(self.credit + 4 * (position - self.start), 4 * CREDIT_BYTES)
        self.start = position

    # ---- testing a position

    def sound_at(self, position: int) -> Entry | None:
        """Return the sound entry at `position`, or None."""
        head = self.file.read_at(position, HEAD_BYTES)
        size = search.plausible.py_func(
            head, 0, len(head), self.file.size - position, self.limits.entry_bytes, self.enriched
        )
        if size < 0:
            return None
        view = memoryview(head)
        stored = BATCH_CRC.read(view) if head[MAGIC.start] == 2 else MESSAGE_CRC.read(view)
        if self._crc(position, size, head) != stored:
            return None
        first, last, _ = extent_of(view)
        return Entry(position, position + size, first, last)

    def computed_crc(self, position: int) -> int:
        """Return the checksum that the whole entry at `position` should have."""
        head = self.file.read_at(position, HEAD_BYTES)
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
        """Return the CRC of all bytes from the start of the running CRCs to `position`."""
        floor = self.start - self.start % _STEP
        if not self._running or floor < self._running_from:
            self._running_from, self._running = floor, [(0, 0)]
        elif floor - self._running_from > 8 * self.limits.entry_bytes:  # bytes far behind are not requested again
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

    # ---- runs of entries

    def row_of(self, entry: Entry, most: int, stop: int) -> tuple[int, int, int]:
        """Return the end of the run of sound entries that begins with `entry`, its last offset, and its length.

        The run is counted up to `most` entries and up to position `stop`.
        """
        end, highest, count = entry.end, entry.last, 1
        while count < most and end < stop and (more := self.sound_at(end)) is not None:
            end, highest, count = more.end, more.last, count + 1
        return end, highest, count

    def falls_behind(self, position: int, last: int, most: int) -> int:
        """Return how many adjacent sound entries with offsets up to `last` begin at `position`."""
        count, before = 0, -1
        while count < most and (more := self.sound_at(position)) is not None and before < more.first <= last:
            position, before, count = more.end, more.last, count + 1
        return count

    def rises_later(self, entry: Entry, least: int, most: int) -> bool:
        """Return whether `entry` is not above `least` but another entry of its run is: then it is not part of the
        run.
        """
        more: Entry | None = entry
        for _ in range(most):
            if more is None or more.first > least:
                break
            more = self.sound_at(more.end)
        return more is not None and more is not entry and more.first > least

    def straddled(self, found: Entry, position: int, most: int) -> bool:
        """Return whether the run that begins with `found` has an entry across `position`, which then is no boundary."""
        more: Entry | None = found
        for _ in range(most):
            if more is None or more.end >= position:
                break
            more = self.sound_at(more.end)
        return more is not None and more.end > position > more.position

    def records_end(self, position: int, most: int) -> tuple[int, int]:
        """Return the position after the last plausible record from `position` on, and the number of records.

        `most` is the expected count; the walk ends there if no further record follows.
        """
        window, at, records = FIRST_WINDOW, position, 0
        state = self.make.zeros(search.FOLLOW)
        while True:
            data = self.file.read_at(at, window)
            stop = at + int(
                self.make.form(search.follow_records)(
                    self.make.bytes_of(data), 0, len(data), max(most - records, 0) or MAX_OFFSET, state
                )
            )
            count = int(state[search.ENTRIES])
            records += count
            if records == most or at + len(data) >= self.file.size:
                return stop, records
            if not count:
                size, _ = batches.long_varint.py_func(data, 0, len(data))
                if not len(data) < size <= min(self.limits.entry_bytes, self.credit):
                    return stop, records
                self.credit -= size
                window = size + 8
            else:
                window = min(2 * window, CHUNK_BYTES)
            at = stop

    # ---- searching

    def candidates(self, start: int, stop: int) -> Candidates:
        """Return the sound entries that begin from `start` to below `stop`."""
        return Candidates(self, start, stop)


class Candidates:
    """An iterator over sound entries that skips those before `skip_to`, which may change while it runs."""

    def __init__(self, entries: EntrySearch, start: int, stop: int) -> None:
        self._entries, self._start, self._stop, self.skip_to = entries, start, stop, start

    def __iter__(self) -> Iterator[Entry]:
        entries, at, window = self._entries, self._start, FIRST_WINDOW
        file, limits, make = entries.file, entries.limits, entries.make
        state = make.zeros(search.FOLLOW)
        positions = make.zeros(_FOUND_AT_ONCE)
        find = make.form(search.find_headers)
        while at < self._stop:
            data = make.bytes_of(file.read_at(at, window + HEAD_BYTES))
            last, room = min(window, self._stop - at), file.size - at
            status = find(data, 0, last, len(data), room, limits.entry_bytes, entries.enriched, positions, state)
            for place in positions[: int(state[search.ENTRIES])]:
                position = at + int(place)
                if position >= self.skip_to and (entry := entries.sound_at(position)) is not None:
                    yield entry
            at = max(at + (int(state[kernels.AT]) if status == kernels.FULL else last), self.skip_to)
            window = min(2 * window, CHUNK_BYTES)
