"""One segment of a live log: its `.log` file and the indexes beside it. Sources: Kafka's LogSegment and RollParams."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.errors import CorruptRecordError, OutOfDescriptorsError
from magicbyte.log.append.record_set import PlainEntries
from magicbyte.log.files.directory import ENRICHED_INDEX, LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from magicbyte.log.files.entry_search import Limits
from magicbyte.log.files.filesystem import put_file, read_whole
from magicbyte.log.files.index_file import ENRICHED_ENTRY, OFFSET_ENTRY, TIME_ENTRY, IndexFile
from magicbyte.log.files.index_writer import MAX_RELATIVE, SegmentIndexer, SegmentIndexes, last_offsets, max_timestamps
from magicbyte.log.files.indexes import TransactionIndex
from magicbyte.log.files.resync import Sound, sound_beginning
from magicbyte.log.live.config import LogConfig
from magicbyte.records.batch import RecordBatch
from magicbyte.records.decode import DecodeOptions, decode_rows
from magicbyte.records.layout import (
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    V0_MINIMUM,
    V1_TIMESTAMP,
    Dialect,
)
from magicbyte.records.scan import scan
from magicbyte.records.survey import first_of_time

if TYPE_CHECKING:
    from struct import Struct

    from magicbyte.log.append.prepare import PreparedAppend
    from magicbyte.log.append.record_set import IndexEntry, RecordSet
    from magicbyte.log.files.indexes import AbortedTransaction
    from magicbyte.log.files.open_files import OpenFile, OpenFiles
    from magicbyte.log.files.producer_state import LeaderEpochs, ProducerStates
    from magicbyte.ports import Moment, ReadableFile, WritableFileSystem

_HEAD = struct.Struct(">qiib")  # offset, size, CRC or leader epoch, magic
_LAST_DELTA = struct.Struct(">i")
_HEAD_BYTES = MAX_TIMESTAMP.start + 8  # of an entry: as far as its offsets and timestamp go
_WALK_BYTES = 8192
_TIMES_ONLY = DecodeOptions(keys=False, values=False, headers=False, verify=False, control=True)
COMPANIONS = (OFFSET_INDEX, TIME_INDEX, ENRICHED_INDEX, TRANSACTION_INDEX)


class FileSlice(NamedTuple):
    """Whole entries, but for the last one where a limit cut it: `length` bytes at `position` of an open file.

    The file is open as long as anybody refers to it, whatever becomes of the `segment` that it is of.
    """

    file: ReadableFile
    position: int
    length: int
    segment: Segment | None = None

    def read(self) -> bytes:
        """Return the bytes."""
        return self.file.read_at(self.position, self.length)


class Head(NamedTuple):
    """What an entry's header says. `last_offset` is None where only opening the wrapper would tell."""

    position: int
    size: int
    offset: int
    last_offset: int | None
    timestamp: int  # ms, the largest; -1: none


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery kept and what it cut off, in bytes; `error` says why, None where nothing was cut."""

    kept: int
    removed: int
    end_offset: int
    error: CorruptRecordError | None


class Segment:
    """An open segment. `size` is in bytes; timestamps in ms, -1 while none is known.

    `largest_timestamp` and the offset that it counts as are those of all entries. `activated_at_ms`, by the monotonic
    clock, is the time of the first roll rule; `jitter_ms` what was drawn for this segment.
    """

    def __init__(self, files: OpenFiles, folder: str, base_offset: int, config: LogConfig, *, suffix: str = "") -> None:
        self.files, self.folder, self.base_offset, self.config, self.suffix = files, folder, base_offset, config, suffix
        self.activated_at_ms = self.jitter_ms = 0
        self.log: OpenFile
        self.size = 0
        self.largest_timestamp, self.largest_offset = NO_TIMESTAMP, base_offset
        self._first_timestamp: int | None = None  # not looked up yet
        self._since_entry = 0  # bytes from the beginning of the append that got the last index entry
        self._indexes: dict[str, IndexFile] = {}
        self._transactions: OpenFile | None = None
        self._last_head: tuple[int, int] | None = None  # enriched: offset and position of the last entry

    # ---- opening and closing

    @classmethod
    def create(cls, files: OpenFiles, folder: str, base_offset: int, config: LogConfig, *, suffix: str = "") -> Segment:
        """Make the files of an empty segment, in place of any that are there. Names are not durable yet.

        Where there are no descriptors for all of them there are none: an empty log that is left would cut off what is
        appended to the one before it.
        """
        self = cls(files, folder, base_offset, config, suffix=suffix)
        self._delete_files()
        made: list[OpenFile] = []
        try:
            made.extend(files.create(self.path(kind)) for kind in (LOG, *self.index_kinds))
        except OutOfDescriptorsError:
            for file in made:
                file.close()
            self._delete_files()
            raise
        self.log, *indexes = made
        for (kind, layout), file in zip(self.index_kinds.items(), indexes, strict=True):
            self._indexes[kind] = IndexFile(file, layout, config.segment_index_bytes)
        self._first_timestamp = NO_TIMESTAMP
        return self

    @classmethod
    def of_log(cls, files: OpenFiles, folder: str, base_offset: int, config: LogConfig, *, suffix: str = "") -> Segment:
        """Open the log alone: then come `open_indexes`, or `recover`.

        Raises CorruptRecordError for a file that is larger than any log: an index names positions of 31 bits.
        """
        self = cls(files, folder, base_offset, config, suffix=suffix)
        self.log = files.edit(self.path(LOG))
        self.size = self.log.size
        if self.size > MAX_RELATIVE:
            self.log.close()
            raise CorruptRecordError("file size", expected=f"<= {MAX_RELATIVE}", found=self.size).locate(
                path=self.path(LOG)
            )
        return self

    def open_indexes(self) -> None:
        """Open the indexes of a segment that was closed. A time index that is missing is made, empty.

        Raises CorruptRecordError when an index is missing or cannot be this segment's: then it is to be recovered.
        """
        for kind, layout in self.index_kinds.items():
            path = self.path(kind)
            if not self._has(kind):
                if kind != TIME_INDEX:
                    raise CorruptRecordError("index", expected="a file", found="none").locate(path=path)
                self.files.create(path).close()
            index = IndexFile(self.files.edit(path), layout, self.config.segment_index_bytes)
            self._indexes[kind] = index
            index.verify(_OFFSET_COLUMN[kind])
            place = _POSITION_COLUMN.get(kind)
            if index.last is not None and place is not None and not 0 <= index.last[place] < self.size:
                raise CorruptRecordError(
                    _BEHIND, expected=f"0 to {self.size - 1}", found=index.last[place]
                ).locate(path=path)  # fmt: skip
        if self._has(TRANSACTION_INDEX):
            self.transactions(0, 0)  # raises what is wrong with it
        self._load_largest()

    def names_more_than_there_is(self, error: CorruptRecordError, end_offset: int) -> bool:
        """Whether `error`, of `open_indexes`, says that an index names what the log does not have, and can be believed.

        `end_offset`: that of the log as it was closed, or the next segment's base. An index that names an offset of
        the segment shows that the log was cut short, between two entries even; any other one is damaged itself.
        """
        if error.what not in (_BEHIND, _LATER):
            return False
        lasts = [index.last[_OFFSET_COLUMN[kind]] for kind, index in self._indexes.items() if index.last is not None]
        return bool(lasts) and all(0 <= each < end_offset - self.base_offset for each in lasts)

    @property
    def index_kinds(self) -> dict[str, Struct]:
        """The index files that the segment has from its beginning on, by suffix, and their entries."""
        if self.config.dialect is Dialect.ENRICHED:
            return {ENRICHED_INDEX: ENRICHED_ENTRY}
        if self.config.rules.has_time_index:
            return {OFFSET_INDEX: OFFSET_ENTRY, TIME_INDEX: TIME_ENTRY}
        return {OFFSET_INDEX: OFFSET_ENTRY}

    @property
    def index_sizes(self) -> list[int]:
        """The bytes of the entries in each of these files."""
        return [
            index.count * layout.size
            for index, layout in zip(self._indexes.values(), self.index_kinds.values(), strict=True)
        ]

    def path(self, kind: str) -> str:
        """Return where a file of the segment is."""
        return f"{self.folder}/{self.base_offset:020}{kind}{self.suffix}"

    def rename(self, suffix: str, *, snapshot: bool = False, log_first: bool = False) -> None:
        """Put `suffix` behind the names of all files, in place of the present one; the log's comes first.

        `snapshot`: behind that of the producer snapshot at the base offset, too. `log_first`: the log's new name is
        durable before any other changes, so that it is never found without an index that it had.
        """
        for kind in (LOG, *COMPANIONS, *([SNAPSHOT] if snapshot else [])):
            if not self._has(kind):
                continue
            self.files.rename(self.path(kind), f"{self.path(kind).removesuffix(self.suffix)}{suffix}")
            if kind == LOG and log_first:
                self.files.sync_directory(self.folder)
        self.suffix = suffix

    def _has(self, kind: str) -> bool:
        return exists(self.files, self.path(kind))

    def activate(self, monotonic_ms: int, jitter_ms: int) -> None:
        """Make the segment the one that is appended to: indexes get their full size."""
        self.activated_at_ms, self.jitter_ms = monotonic_ms, jitter_ms
        for index in self._indexes.values():
            index.grow()
        if self.config.preallocate and self.log.size < self.config.segment_bytes:
            self.log.truncate(self.config.segment_bytes)

    def finish(self) -> None:
        """End appending: the largest timestamp has its index entry at last, and no file any room behind its data."""
        if self.config.dialect is Dialect.ENRICHED:
            self.index_last_entry()
        else:
            self._add_times([(self.largest_timestamp, self.largest_offset)])
        for index in self._indexes.values():
            index.trim()
        if self.log.size != self.size:
            self.log.truncate(self.size)

    def sync(self) -> None:
        """Make the files' content durable, in Kafka's order."""
        for file in self.open_files():
            file.sync()

    def open_files(self) -> list[OpenFile]:
        """Return the open files in the order in which they are synced."""
        files = [self.log, *(index.file for index in self._indexes.values())]
        return files if self._transactions is None else [*files, self._transactions]

    def release(self) -> None:
        """Give back the open files. Nothing is synced."""
        for file in self.open_files():
            file.close()

    def remove(self) -> None:
        """Delete all files of a segment that is not part of the log, or not any more."""
        self.release()
        self._delete_files()

    def _delete_files(self) -> None:
        for kind in (LOG, *COMPANIONS):
            if self._has(kind):
                self.files.delete(self.path(kind))

    # ---- appending

    def must_roll(self, records: RecordSet | PreparedAppend, now: Moment) -> bool:
        """Say whether the set belongs into the next segment."""
        config = self.config
        if self.size > config.segment_bytes - records.size:
            return True
        if records.last_offset - self.base_offset > MAX_RELATIVE:
            return True
        if any(index.count >= index.capacity - (kind == TIME_INDEX) for kind, index in self._indexes.items()):
            return True
        if not self.size:
            return False
        return self.waited_ms(records.max_timestamp, now) > config.roll_ms - self.jitter_ms

    def waited_ms(self, timestamp: int, now: Moment) -> int:
        """Return the age of the segment by a set's timestamp, or by the clock where the first entry has none.

        Up to 0.10.0, and of the enriched dialect by its first message, the clock decides alone.
        """
        if self.config.dialect is Dialect.ENRICHED:
            return now.date_ms - self.first_timestamp if self.first_timestamp >= 0 else 0
        if self.config.rules.has_time_index and self.first_timestamp >= 0:
            return timestamp - self.first_timestamp
        return now.monotonic_ms - self.activated_at_ms

    @property
    def first_timestamp(self) -> int:
        """The timestamp of the first entry, -1 without one."""
        if self._first_timestamp is None:
            self._first_timestamp = next((head.timestamp for head in self.heads(0)), NO_TIMESTAMP)
        return self._first_timestamp

    def append(self, records: RecordSet) -> None:
        """Write the set behind the others, with the index entries that are due. Its offsets fit: see `must_roll`.

        All files that it takes are open before anything is written: OutOfDescriptorsError leaves the segment as it was.
        """
        begin, interval = self.size, self.config.index_interval_bytes
        due = records.due(self._since_entry, interval, self.largest_timestamp, self.largest_offset)
        pinned: list[tuple[OpenFile, bool]] = []
        try:
            if due.entries:
                pinned.extend((index.file, index.file.pin()) for index in self._indexes.values())
            self.log.write_at(begin, *records.pieces)
            if not begin:
                self._first_timestamp = records.first_timestamp
            self.size = begin + records.size
            self._since_entry, self.largest_timestamp = due.since_entry, due.timestamp
            self.largest_offset = due.time_offset
            if due.entries:
                self._add_entries(due.entries, begin)
        finally:
            for file, before in pinned:
                file.unpin(before)
        if self.config.dialect is Dialect.ENRICHED:
            assert not isinstance(records.parts, PlainEntries), "its entries are no plain ones"
            self._last_head = records.parts[-1].first_offset, begin + records.parts[-1].position

    def _add_entries(self, entries: Sequence[IndexEntry], begin: int) -> None:
        """Add the index entries of a set that begins at a position."""
        base, rules = self.base_offset, self.config.rules
        if self.config.dialect is Dialect.ENRICHED:
            triples = [(each.first_offset - base, each.timestamp, begin + each.position) for each in entries]
            self._indexes[ENRICHED_INDEX].extend(triples)
            return
        named = [each.last_offset if rules.names_last_offset else each.first_offset for each in entries]
        self._indexes[OFFSET_INDEX].extend(
            [(offset - base, begin + each.position) for offset, each in zip(named, entries, strict=True)]
        )
        self._add_times([(each.timestamp, each.time_offset) for each in entries])

    def _add_times(self, times: Sequence[tuple[int, int]]) -> None:
        """Give timestamps and their offsets entries in the time index, each unless the entry before it has it."""
        index = self._indexes.get(TIME_INDEX)
        if index is None:
            return
        last, entries = NO_TIMESTAMP if index.last is None else index.last[0], []
        for timestamp, offset in times:
            if timestamp > last:
                entries.append((timestamp, offset - self.base_offset))
                last = timestamp
        if entries:
            index.extend(entries)

    def index_last_entry(self) -> None:
        """Enriched: give the last message an index entry, unless it has one: what retention looks at."""
        if self._last_head is None:
            for head in self.heads(self.position_before(MAX_RELATIVE + self.base_offset)):
                self._last_head = head.offset, head.position
        index = self._indexes[ENRICHED_INDEX]
        if self._last_head is not None and (index.last is None or index.last[2] < self._last_head[1]):
            offset, position = self._last_head
            index.append(offset - self.base_offset, self.largest_timestamp, position)

    def append_aborted(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction, whose marker was appended here."""
        if self._transactions is None:
            path = self.path(TRANSACTION_INDEX)
            self._transactions = self.files.edit(path) if self._has(TRANSACTION_INDEX) else self.files.create(path)
        content = TransactionIndex((aborted,)).to_bytes()
        self._transactions.write_at(self._transactions.size, content)

    def transactions(self, first: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with an offset in `first` to below `end` whose markers lie here."""
        if not self._has(TRANSACTION_INDEX):
            return []
        path = self.path(TRANSACTION_INDEX)
        try:
            index = TransactionIndex.parse(read_whole(self.files, path))
            index.verify()
        except CorruptRecordError as error:
            raise error.locate(path=path) from None
        return index.aborted(first, end)

    # ---- reading

    def heads(self, position: int) -> Iterator[Head]:
        """Walk the entries' headers from `position`, where one begins, to the end. The log is sound: see `recover`.

        Raises CorruptRecordError for a size that no entry has, or that goes beyond the end.
        """
        enriched = self.config.dialect is Dialect.ENRICHED
        end, start, data = self.size, position, b""
        while position < end:
            at = position - start
            if at + _HEAD_BYTES > len(data) and start + len(data) < end:
                start, data = position, self.log.read_at(position, min(_WALK_BYTES, end - position))
                at = 0
            left = end - position
            offset, length, _, magic = _HEAD.unpack_from(data, at) if len(data) - at >= _HEAD.size else (0, left, 0, 0)
            size = LOG_OVERHEAD + length
            if length < V0_MINIMUM or size > left or (magic == 2 and size < _HEAD_BYTES and not enriched):
                expected = f"{V0_MINIMUM} to {left - LOG_OVERHEAD}, which is what is left of the file"
                raise CorruptRecordError("entry size", expected=expected, found=length, position=position).locate(
                    path=self.log.path
                )
            last: int | None = offset
            timestamp = NO_TIMESTAMP
            if enriched:
                whole = self.log.read_at(position, size)
                table = scan(memoryview(whole), dialect=Dialect.ENRICHED)
                if len(table) != 1:
                    return
                timestamp = int(max_timestamps(table)[0])
                last = None if table.count[0] < 0 else offset
            elif magic == 2:
                last = offset + _LAST_DELTA.unpack_from(data, at + LAST_OFFSET_DELTA_AT)[0]
                timestamp = int(MAX_TIMESTAMP.type.unpack_from(data, at + MAX_TIMESTAMP.start)[0])
            elif magic == 1:
                timestamp = int(V1_TIMESTAMP.type.unpack_from(data, at + V1_TIMESTAMP.start)[0])
            yield Head(position, size, offset, last, timestamp)
            position += size

    def position_before(self, offset: int) -> int:
        """Return a position at or before every entry with `offset` or a later one, an index interval away at most."""
        relative = offset - self.base_offset
        if relative < 0:
            return 0
        kind = ENRICHED_INDEX if self.config.dialect is Dialect.ENRICHED else OFFSET_INDEX
        index = self._indexes[kind]
        at = index.floor(0, min(relative, MAX_RELATIVE))
        position = index.entry(at)[-1] if at >= 0 else 0
        if position < 0:
            raise CorruptRecordError("index position", expected=">= 0", found=position).locate(path=index.file.path)
        return position

    def find(self, offset: int) -> Head | None:
        """Return the first entry whose last offset is at or behind `offset`; None when there is none."""
        for head in self.heads(self.position_before(offset)):
            last = head.last_offset
            if last is None:
                last = self.last_offset_of(head)
            if last >= offset:
                return head
        return None

    def last_offset_of(self, head: Head) -> int:
        """Return the last offset of an entry, opened if need be."""
        if head.last_offset is not None:
            return head.last_offset
        table = scan(memoryview(self.log.read_at(head.position, head.size)), dialect=self.config.dialect)
        return int(last_offsets(table)[0])

    def end_offset(self) -> int:
        """Return one behind the last offset; the base of an empty segment."""
        last = None
        for head in self.heads(self.position_before(MAX_RELATIVE + self.base_offset)):
            last = head
        return self.base_offset if last is None else self.last_offset_of(last) + 1

    def newest_magic(self) -> int | None:
        """Return the larger magic byte of the first entry and those behind the last index entry; None without any.

        A log's format rises within a segment only where a broker's setting was changed, and stays so.
        Raises CorruptRecordError for a size that no entry has.
        """
        first = [head.position for _, head in zip(range(1), self.heads(0), strict=False)]
        last = [head.position for head in self.heads(self.position_before(MAX_RELATIVE + self.base_offset))]
        places = (self.log.read_at(position + MAGIC.start, MAGIC.type.size) for position in first + last)
        return max((MAGIC.type.unpack(each)[0] for each in places), default=None)

    def read(
        self, offset: int, max_bytes: int, *, end: int | None = None, whole_first: bool = True
    ) -> FileSlice | None:
        """Return up to `max_bytes` from the first entry that reaches `offset`, and below position `end`.

        `whole_first`: at least that entry, whatever its size. None when no entry reaches `offset`.
        """
        head = self.find(offset)
        if head is None:
            return None
        end = self.size if end is None else end
        length = min(max(max_bytes, head.size if whole_first else 0), max(end - head.position, 0))
        return FileSlice(self.log.opened(), head.position, length, self)

    def find_timestamp(self, timestamp: int, first_offset: int) -> tuple[int, int] | None:
        """Return timestamp and offset of the first record of `timestamp` or later, at `first_offset` or behind it."""
        begin = self.position_before_timestamp(timestamp)
        if first_offset > self.base_offset:
            begin = max(begin, self.position_before(first_offset))
        for head in self.heads(begin):
            if head.timestamp < timestamp or (head.last_offset is not None and head.last_offset < first_offset):
                continue
            found = self._first_of_time(head, timestamp, first_offset)
            if found is not None:
                return found
        return None

    def _first_of_time(self, head: Head, timestamp: int, first_offset: int) -> tuple[int, int] | None:
        """As `find_timestamp`, inside one entry."""
        import numpy as np

        data = memoryview(self.log.read_at(head.position, head.size))
        if data[MAGIC.start] == 2 and self.config.dialect is Dialect.KAFKA:
            return first_of_time(RecordBatch(data), timestamp, first_offset)
        for columns in decode_rows(scan(data, dialect=self.config.dialect), [0], _TIMES_ONLY):
            times, offsets = np.asarray(columns.timestamp), np.asarray(columns.offset)
            rows = np.flatnonzero((times >= timestamp) & (offsets >= first_offset))
            if len(rows):
                return int(times[rows[0]]), int(offsets[rows[0]])
        return None

    def position_before_timestamp(self, timestamp: int) -> int:
        """Return a position before which all entries are older than `timestamp`, by the indexes."""
        if self.config.dialect is Dialect.ENRICHED:
            index = self._indexes[ENRICHED_INDEX]
            at = index.floor(1, timestamp - 1)
            return index.entry(at)[2] if at >= 0 else 0
        times = self._indexes.get(TIME_INDEX)
        at = -1 if times is None else times.floor(0, timestamp - 1)
        return 0 if times is None or at < 0 else self.position_before(times.entry(at)[1] + self.base_offset)

    def largest_or_modified(self) -> int:
        """Return the largest timestamp, or when the file was last written where no entry has one."""
        return self.largest_timestamp if self.largest_timestamp >= 0 else self.files.modified_ms(self.path(LOG))

    def _load_largest(self, *, is_indexed: bool = False) -> None:
        """Find the largest timestamp: by the index, and by the headers behind its last entry unless it `is_indexed`."""
        self.largest_timestamp, self.largest_offset = NO_TIMESTAMP, self.base_offset
        if not self.index_kinds.keys() & {TIME_INDEX, ENRICHED_INDEX}:
            return
        begin = 0
        if self.config.dialect is Dialect.ENRICHED:
            last = self._indexes[ENRICHED_INDEX].last
            if last is not None:
                self.largest_timestamp, begin = last[1], last[2]
        else:
            last = self._indexes[TIME_INDEX].last
            if last is not None:
                self.largest_timestamp, self.largest_offset = last[0], last[1] + self.base_offset
                begin = self.position_before(self.largest_offset)
            elif (places := self._indexes[OFFSET_INDEX].last) is not None:
                begin = places[1]
        newest: Head | None = None
        for head in self.heads(self.size if is_indexed else begin):
            newest = head
            if head.timestamp > self.largest_timestamp:
                self.largest_timestamp, self.largest_offset = head.timestamp, self.last_offset_of(head)
        named = self._indexes[TIME_INDEX].last if TIME_INDEX in self._indexes else None
        end = self.base_offset - 1 if newest is None else newest.last_offset
        if not is_indexed and named is not None and end is not None and self.base_offset + named[1] > end:
            raise CorruptRecordError(_LATER, expected=f"<= {end}", found=self.base_offset + named[1]).locate(
                path=self.path(TIME_INDEX)
            )

    # ---- cutting and mending

    def truncate_to(self, offset: int) -> int:
        """Cut the segment in front of the first entry whose last offset is at or behind `offset`; return bytes cut.

        Durable once it returns: bytes that were cut off and came back could follow others that were not there.
        """
        head = self.find(offset)
        if head is None:
            return 0
        removed = self.size - head.position
        self.log.truncate(head.position)
        self.size = head.position
        relative = max(offset - self.base_offset, 0)
        for kind, index in self._indexes.items():
            count = index.floor(_OFFSET_COLUMN[kind], relative - 1) + 1
            if kind in _POSITION_COLUMN:
                count = min(count, index.floor(_POSITION_COLUMN[kind], self.size - 1) + 1)
            index.truncate(count)
        kept = self.transactions(0, offset)
        if self._has(TRANSACTION_INDEX):
            self._put_transactions([each for each in kept if each.last_offset < offset])
        self._since_entry, self._last_head = 0, None
        if not self.size:
            self._first_timestamp = NO_TIMESTAMP
        self._load_largest()
        self.sync()
        return removed

    def _put_transactions(self, entries: list[AbortedTransaction]) -> None:
        if self._transactions is None:
            self._transactions = self.files.edit(self.path(TRANSACTION_INDEX))
        self._transactions.truncate(len(entries) * TransactionIndex.ENTRY_SIZE)

    def take_log(self, transactions: list[AbortedTransaction]) -> None:
        """Make the indexes of a log that was written to `log` alone, of sound entries; `transactions` it has."""
        states = self.config.rules.producer_states()
        self.recover(states, None, _refuse_to_cut, durable=False)
        if self._transactions is not None:
            self._transactions.truncate(0)
        for each in transactions:
            self.append_aborted(each)

    def recover(
        self,
        producers: ProducerStates,
        epochs: LeaderEpochs | None,
        cut: Callable[[int, CorruptRecordError | None], None],
        *,
        durable: bool,
    ) -> Recovered:
        """Walk the whole segment, make its indexes anew and cut it behind the last sound entry.

        `producers` is the state in front of the segment and is moved on, `epochs` likewise. `cut` is called before
        anything is cut off, with the bytes that stay and why. `durable`: each index file is put there whole, the one
        without which the segment is recovered again last; else nothing is synced, because the next start recovers it in
        any case. Raises CorruptRecordError for a marker that says nothing, which no crash leaves.
        """
        rules, base = self.config.rules.recovering(), self.base_offset
        indexer = SegmentIndexer(base, rules, dialect=self.config.dialect, producers=producers)
        end_offset, kept, error = base, 0, None
        for found in sound_beginning(self.log.opened(), Limits(base, base + MAX_RELATIVE), self.config.dialect):
            if not isinstance(found, Sound):
                error = found.error
                break
            table = scan(found.view, dialect=self.config.dialect)
            indexer.append(table, found.position)
            if epochs is not None:
                epochs.append(table)
            end_offset, kept = int(last_offsets(table)[-1]) + 1, found.end
        if kept < self.log.size:
            cut(kept, error)
        removed = self.log.size - kept
        if removed:
            self.log.truncate(kept)
        self.size = kept
        self._put_indexes(indexer.finish().files(), durable=durable)
        return Recovered(kept, removed, end_offset, error)

    def take_indexes(self, made: SegmentIndexes, transactions: list[AbortedTransaction]) -> None:
        """Take over the indexes that were made while `log` was written; `transactions` it has."""
        self.size = self.log.size
        self._put_indexes(made.files(), durable=False)
        for each in transactions:
            self.append_aborted(each)

    def _put_indexes(self, made: Mapping[str, bytes], *, durable: bool) -> None:
        """Have these files, by suffix, in place of the indexes that there are; the one whose lack is noticed last."""
        for kind in (TRANSACTION_INDEX, *reversed(self.index_kinds)):
            self._put_index(kind, made.get(kind, b""), durable=durable)
        self._since_entry, self._first_timestamp, self._last_head = 0, None, None
        self._load_largest(is_indexed=True)

    def _put_index(self, kind: str, content: bytes, *, durable: bool) -> None:
        """Put an index file in place of the one that is there; of aborted transactions only where there are any."""
        path = self.path(kind)
        if kind in self._indexes:
            self._indexes.pop(kind).file.close()
        if not content and kind == TRANSACTION_INDEX:
            if self._has(kind):
                self.files.delete(path)
            return
        if durable:
            put_file(self.files, path, content)
            file = self.files.edit(path)
        else:
            file = self.files.create(path)
            file.write_at(0, content)
        if kind == TRANSACTION_INDEX:
            self._transactions = file
        else:
            self._indexes[kind] = IndexFile(file, self.index_kinds[kind], self.config.segment_index_bytes)


_BEHIND, _LATER = "index position", "index offset"  # than the log has
DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"
_OFFSET_COLUMN = {OFFSET_INDEX: 0, TIME_INDEX: 1, ENRICHED_INDEX: 0}
_POSITION_COLUMN = {OFFSET_INDEX: 1, ENRICHED_INDEX: 2}


def _refuse_to_cut(_kept: int, error: CorruptRecordError | None) -> None:
    """Stop the recovery of a log that is to be sound."""
    assert error is not None
    raise error


def exists(files: WritableFileSystem, path: str) -> bool:
    """Say whether there is anything at `path`."""
    try:
        files.entry(path)
    except FileNotFoundError:
        return False
    return True
