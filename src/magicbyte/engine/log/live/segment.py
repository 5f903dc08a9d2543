"""One segment of a live log: its `.log` file and the indexes beside it. Sources: Kafka's LogSegment and RollParams.

One thread at a time changes it (`partition_log.py`); other threads read it meanwhile.

Invariants:
1. The first `size` bytes of the file are whole entries. Nothing beyond is read: it is preallocated space.
2. An append writes the entries, then `size`, then index entries: no index names an entry that a reader does not find.
3. Offsets lie between the base offset and MAX_RELATIVE above it: `must_roll` asks before each append, and loading
   splits segments of old brokers that break this (`parting.py`).
4. Indexes are hints. A look-up compares an index entry with the log, and passes over a wrong one: a damaged index costs
   time and hides no record (`tests/engine/log/test_damaged_indexes.py`).
5. `finish` makes the files those of a closed segment. A crash before that leaves preallocated space, and indexes that
   may lack entries: recovery walks such a segment, and makes them again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from magicbyte.engine.errors import CorruptRecordError, OutOfDescriptorsError
from magicbyte.engine.log.files.directory import LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX
from magicbyte.engine.log.files.entry_search import Limits
from magicbyte.engine.log.files.heads import HEAD, entry_heads
from magicbyte.engine.log.files.index_writer import SegmentIndexer, SegmentIndexes
from magicbyte.engine.log.files.names import LARGEST_OFFSET, MAX_RELATIVE
from magicbyte.engine.log.files.resync import Sound, sound_beginning
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.segment_indexes import LiveIndexes, WalkedLog
from magicbyte.engine.log.live.segment_names import CLEANED, SegmentNames
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.decode import DecodeOptions, decode_rows
from magicbyte.engine.records.extent import last_offsets, max_timestamps
from magicbyte.engine.records.header import extent_of
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    CONTROL_BIT,
    LOG_OVERHEAD,
    MAGIC,
    OFFSET,
    PRODUCER_ID,
    RECORD_BATCH_OVERHEAD,
    SIZE,
    TRANSACTIONAL_BIT,
    V0_MINIMUM,
    Dialect,
)
from magicbyte.engine.records.scan import scan
from magicbyte.engine.records.survey import first_of_time
from magicbyte.engine.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from magicbyte.engine.log.append.record_set import RecordSet
    from magicbyte.engine.log.files.indexes import AbortedTransaction
    from magicbyte.engine.log.files.open_files import OpenFile, OpenFiles
    from magicbyte.engine.log.files.producer_state import LeaderEpochs, ProducerStates
    from magicbyte.engine.ports import Moment, ReadableFile

_ENRICHED = Dialect.ENRICHED
_WALK_BYTES = 8192
_TIMES_ONLY = DecodeOptions(keys=False, values=False, headers=False, verify=False, control=True)


class FileSlice(NamedTuple):
    """Whole entries, except a last one that a limit cut: `length` bytes at `position` of an open file.

    The file stays open while it is referenced, also after its `segment` is deleted.
    """

    file: ReadableFile
    position: int
    length: int
    segment: Segment | None = None

    def read(self) -> bytes:
        """Return the bytes."""
        return self.file.read_at(self.position, self.length)


class Head(NamedTuple):
    """Fields of an entry's header. `last_offset` is None if only the wrapper's content has it."""

    position: int
    size: int
    offset: int
    last_offset: int | None
    timestamp: int  # the largest, in ms; -1: none


class CheckedTransactions(NamedTuple):
    """The result of a comparison of a segment's transaction index with its entries below `end_offset`.

    `open`: the transactions that are open there, first offsets by producer. `is_whole`: the walk met no damage.
    """

    end_offset: int
    open: dict[int, int]
    is_whole: bool

    def are_all_before(self, end: int) -> bool:
        """Return whether every transaction with an offset below `end` ends in this segment or an earlier one."""
        return self.is_whole and end <= self.end_offset and min(self.open.values(), default=end) >= end


class Recovered(Struct, frozen=True):
    """Bytes that a recovery kept and cut off; `error` is the reason, None if nothing was cut."""

    kept: int
    removed: int
    end_offset: int
    error: CorruptRecordError | None


class Segment:
    """An open segment. `size` is in bytes; timestamps in ms, -1 while none is known.

    `largest_timestamp` and its offset are those of all entries. `activated_at_ms`, by the monotonic clock, is the time
    of the first roll rule; `jitter_ms` was drawn for this segment. The last three are for `transaction_checks`:
    `closed_end` is the end of the entries that were there when the log opened, 0 if their transaction index was made
    since; `without_transactions` are positions between which no entry belongs to a transaction.
    """

    def __init__(self, files: OpenFiles, folder: str, base_offset: int, config: LogConfig, *, suffix: str = "") -> None:
        self.files, self.folder, self.base_offset, self.config = files, folder, base_offset, config
        self.names = SegmentNames(files, folder, base_offset, suffix)
        self.indexes = LiveIndexes(self.names, config)
        self.activated_at_ms = self.jitter_ms = 0
        self.log: OpenFile
        self.size = 0
        self.largest_timestamp, self.largest_offset = NO_TIMESTAMP, base_offset
        self._first_timestamp: int | None = None  # not looked up yet
        self._since_entry = 0  # bytes since the start of the append with the last index entry
        self._passed_over_for: int | None = None  # an offset for which a look-up passed over an index entry
        self._last_head: tuple[int, int] | None = None  # enriched: offset and position of the last entry
        self.closed_end = 0
        self.checked: CheckedTransactions | None = None
        self.without_transactions = 0, 0

    # ---- opening and closing

    @classmethod
    def create(cls, files: OpenFiles, folder: str, base_offset: int, config: LogConfig, *, suffix: str = "") -> Segment:
        """Create the files of an empty segment, in place of existing ones. Names are not durable yet.

        Without descriptors for all of them none is left: a left-over empty log would truncate later appends to the
        segment before it.
        """
        self = cls(files, folder, base_offset, config, suffix=suffix)
        self.names.delete()
        made: list[OpenFile] = []
        try:
            made.extend(files.create(self.path(kind)) for kind in (LOG, *self.indexes.kinds))
        except OutOfDescriptorsError:
            for file in made:
                file.close()
            self.names.delete()
            raise
        self.log, *indexes = made
        self.indexes.begin(indexes)
        self._first_timestamp = NO_TIMESTAMP
        return self

    @classmethod
    def of_log(cls, files: OpenFiles, folder: str, base_offset: int, config: LogConfig, *, suffix: str = "") -> Segment:
        """Open the log alone, before `open_indexes` or `recover`.

        Raises CorruptRecordError for a file that is larger than any log: an index has positions of 31 bits.
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
        """Open the indexes of a closed segment. A missing time index is created, empty.

        Raises CorruptRecordError if an index is missing or cannot be this segment's: the segment needs a recovery.
        """
        self.indexes.open()
        self._load_largest()
        self._verify_last_entries()

    def _verify_last_entries(self) -> None:
        """Raise CorruptRecordError if the last entry of an index does not name an entry of the log."""
        last = self.indexes.last(self.indexes.of_offsets)
        if last is not None and not self._is_entry(last[-1], self.base_offset + last[0]):
            raise self._wrong_position(last[-1])
        last = self.indexes.last(TIME_INDEX)
        head = None if last is None else self.find(self.base_offset + last[1])
        if last is None or head is None or head.offset > self.base_offset + last[1]:
            return
        if head.timestamp != last[0]:
            raise CorruptRecordError(
                "index timestamp", expected=f"{head.timestamp}, that of its offset", found=last[0]
            ).locate(path=self.path(TIME_INDEX))  # fmt: skip

    def verify_aborted(self, entry_of: Callable[[int], bytes | None], end_offset: int) -> None:
        """Raise CorruptRecordError if the index of aborted transactions contradicts the log.

        The segment ends before `end_offset`. `entry_of` returns the first bytes of the entry with an offset, of this
        segment or an earlier one, or None if the log lacks it: compaction may have removed it.
        """
        for aborted in self.indexes.transactions(0, LARGEST_OFFSET):
            producer, following = aborted.producer_id, aborted.next_offset
            stable = aborted.last_stable_offset  # the first offset of another open transaction, or `following`
            is_of_log = (
                self.base_offset <= aborted.last_offset < end_offset
                and 0 <= stable <= following
                and _is_transactional(entry_of(aborted.last_offset), None, producer, is_marker=True)
                and _is_transactional(entry_of(aborted.first_offset), aborted.first_offset, producer)
                and (stable == following or _is_transactional(entry_of(stable), stable, None))
            )
            if not is_of_log:
                found = f"{aborted.first_offset} to {aborted.last_offset} of producer {producer}"
                raise CorruptRecordError("aborted transaction", expected="one that the log has", found=found).locate(
                    path=self.path(TRANSACTION_INDEX)
                )

    def entry_with(self, offset: int) -> bytes | None:
        """Return the first bytes of the entry with `offset`, None if there is none."""
        head = self.find(offset)
        if head is None or head.offset > offset:
            return None
        return self.log.read_at(head.position, min(head.size, HEAD))

    def _may_be_wrapper(self, position: int) -> bool:
        """Return whether the entry at `position` has its last offset in the header, and maybe earlier ones inside."""
        return self.config.dialect is Dialect.ENRICHED or self.log.read_at(max(position, 0) + MAGIC.start, 1) < b"\2"

    def names_more_than_there_is(self, end_offset: int) -> bool:
        """Return whether the indexes credibly show that the log lacks entries before `end_offset`, where it ended.

        Reads the headers of the whole segment, unless it reaches that offset.
        """
        starts, largest, last, behind = set[int](), NO_TIMESTAMP, None, 0
        with contextlib.suppress(CorruptRecordError):  # the log itself is damaged from here on, which others report
            for head in self.heads(0):
                starts.add(head.position)
                largest, last, behind = max(largest, head.timestamp), head, head.position + head.size
        end = self.base_offset if last is None else self.last_offset_of(last) + 1
        if end >= end_offset:
            return False
        return self.indexes.names_more_than_there_is(WalkedLog(self.size, behind, starts, end, largest), end_offset)

    def path(self, kind: str) -> str:
        """Return the path of a file of the segment."""
        return self.names.path(kind)

    def activate(self, monotonic_ms: int, jitter_ms: int) -> None:
        """Prepare the segment for appends: indexes get their full size."""
        self.activated_at_ms, self.jitter_ms = monotonic_ms, jitter_ms
        self.indexes.grow()
        if self.config.preallocate and self.log.size < self.config.segment_bytes:
            self.log.truncate(self.config.segment_bytes)

    def finish(self) -> None:
        """End appends: write the index entry of the largest timestamp, and trim the files."""
        if self.config.dialect is Dialect.ENRICHED:
            self.index_last_entry()
        else:
            self.indexes.add_times([(self.largest_timestamp, self.largest_offset)])
        self.indexes.trim()
        if self.log.size != self.size:
            self.log.truncate(self.size)

    def sync(self) -> None:
        """Make the files' content durable, in Kafka's order."""
        for file in self.open_files():
            file.sync()

    def open_files(self) -> list[OpenFile]:
        """Return the open files in the order in which they are synced."""
        return [self.log, *self.indexes.open_files()]

    def release(self) -> None:
        """Close the open files. Nothing is synced."""
        self.log.close()
        self.indexes.release()

    def remove(self) -> None:
        """Delete all files of a segment that is not, or no longer, part of the log."""
        self.release()
        self.names.delete()

    # ---- appending

    def must_roll(self, records: RecordSet, now: Moment) -> bool:
        """Return whether the set belongs to a new segment."""
        config = self.config
        if self.size > config.segment_bytes - records.size:
            return True
        if records.last_offset - self.base_offset > MAX_RELATIVE:
            return True
        if self.indexes.is_full:
            return True
        if not self.size:
            return False
        return self.waited_ms(records.max_timestamp, now) > config.roll_ms - self.jitter_ms

    def waited_ms(self, timestamp: int, now: Moment) -> int:
        """Return the age of the segment by a set's timestamp, or by the clock if the first entry has no timestamp.

        Up to 0.10.0, and of the enriched dialect by its first message, the clock decides alone.
        """
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp
        if self.config.dialect is _ENRICHED:
            return now.date_ms - first if first >= 0 else 0
        if first >= 0 and self.config.rules.has_time_index:
            return timestamp - first
        return now.monotonic_ms - self.activated_at_ms

    @property
    def first_timestamp(self) -> int:
        """The timestamp of the first entry, -1 without one."""
        if self._first_timestamp is None:
            self._first_timestamp = next((head.timestamp for head in self.heads(0)), NO_TIMESTAMP)
        return self._first_timestamp

    def append(self, records: RecordSet) -> None:
        """Append the set, with the index entries that are due. Its offsets fit: see `must_roll`.

        All files are open before anything is written: OutOfDescriptorsError leaves the segment unchanged.
        """
        begin, interval = self.size, self.config.index_interval_bytes
        due = records.due(self._since_entry, interval, self.largest_timestamp, self.largest_offset)
        pinned: list[tuple[OpenFile, bool]] = []
        try:
            if due.entries:
                pinned.extend((index.file, index.file.pin()) for index in self.indexes.by_kind.values())
            self.log.write_at(begin, *records.pieces)
            if not begin:
                self._first_timestamp = records.first_timestamp
            self.size = begin + records.size
            self._since_entry, self.largest_timestamp = due.since_entry, due.timestamp
            self.largest_offset = due.time_offset
            if due.entries:
                self.indexes.add(due.entries, begin)
        finally:
            for file, before in pinned:
                file.unpin(before)
        if self.config.dialect is _ENRICHED:
            assert isinstance(records.parts, list), "its entries are no plain ones"
            self._last_head = records.parts[-1].first_offset, begin + records.parts[-1].position

    def index_last_entry(self) -> None:
        """Enriched: give the last message an index entry, unless it has one. Retention reads it."""
        if self._last_head is None:
            for head in self.heads_from(MAX_RELATIVE + self.base_offset):
                self._last_head = head.offset, head.position
        if self._last_head is not None:
            offset, position = self._last_head
            self.indexes.add_last(offset, self.largest_timestamp, position)

    # ---- reading

    def heads(self, position: int) -> Iterator[Head]:
        """Walk the entries' headers from `position`, where one begins, to the end. The log is sound: see `recover`.

        Raises CorruptRecordError for a size that no entry has, or that goes beyond the end.
        """
        log, end, dialect = self.log, self.size, self.config.dialect
        enriched = dialect is Dialect.ENRICHED
        walk = entry_heads(log, position, end, end=end, dialect=dialect, window_bytes=_WALK_BYTES, is_sound=True)
        for at, behind, head in walk:
            last: int | None
            if enriched:
                table = scan(memoryview(log.read_at(at, behind - at)), dialect=dialect)
                if len(table) != 1:
                    return
                offset, timestamp = int(table.offset[0]), int(max_timestamps(table)[0])
                last = None if table.count[0] < 0 else offset
            else:
                offset, last, timestamp = extent_of(head)
            yield Head(at, behind - at, offset, last, timestamp)
            position = behind
        if position < end:
            left, head = end - position, self.log.read_at(position, min(LOG_OVERHEAD, end - position))
            found = SIZE.read(memoryview(head)) if len(head) == LOG_OVERHEAD else left
            expected = f"{V0_MINIMUM} to {left - LOG_OVERHEAD}, the remaining size of the file"
            raise CorruptRecordError("entry size", expected=expected, found=found, position=position).locate(
                path=self.log.path
            )

    def heads_from(self, offset: int) -> Iterator[Head]:
        """Walk the headers as `heads` does, from an entry at or before each one with `offset` or a later one.

        Usually this is less than an index interval away. The log decides which index entry is right: one that names no
        entry there, or one with later offsets, is passed over. So a damaged index costs time, but hides no record.
        """
        for position in self.indexes.before(offset):
            walk = self._walk_at(position, offset)
            if walk is not None:
                yield from walk
                return
            self._passed_over_for = offset

    def contradiction(self) -> CorruptRecordError | None:
        """Return how the offset index contradicts the log, if a look-up since the last call met it, else None."""
        offset, self._passed_over_for = self._passed_over_for, None
        for position in () if offset is None else self.indexes.before(offset):
            if offset is not None and not self._is_entry(position, offset):
                return self._wrong_position(position)
        return None

    def _is_entry(self, position: int, offset: int) -> bool:
        """Return whether an index entry can name `offset` and `position`."""
        most = self.base_offset + MAX_RELATIVE if self._may_be_wrapper(position) else offset
        return self._walk_at(position, most) is not None

    def _wrong_position(self, position: int) -> CorruptRecordError:
        error = CorruptRecordError("index position", expected="that of an entry with its offset", found=position)
        return error.locate(path=self.path(self.indexes.of_offsets))

    def _walk_at(self, position: int, offset: int) -> Iterator[Head] | None:
        """Return the walk from an entry that begins at `position`, at `offset` or before it; None if none does.

        Bytes inside an entry are distinguished from one by their offsets, sizes and successor.
        """
        if position < 0:
            return None
        walk = self.heads(position)
        if not position:
            return walk
        most = self.base_offset + MAX_RELATIVE
        try:
            first = list(itertools.islice(walk, 2))
        except CorruptRecordError:
            return None
        if not first or not self.base_offset <= first[0].offset <= min(offset, most):
            return None
        if len(first) > 1 and not first[0].offset < first[1].offset <= most:
            return None
        return itertools.chain(first, walk)

    def position_before(self, offset: int) -> int:
        """Return the position at which `heads_from` begins."""
        return next((head.position for head in self.heads_from(offset)), 0)

    def find(self, offset: int) -> Head | None:
        """Return the first entry whose last offset is at least `offset`; None if there is none."""
        for head in self.heads_from(offset):
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
        """Return the last offset plus 1; the base offset of an empty segment."""
        last = None
        for head in self.heads_from(MAX_RELATIVE + self.base_offset):
            last = head
        return self.base_offset if last is None else self.last_offset_of(last) + 1

    def newest_magic(self) -> int | None:
        """Return the larger magic byte of the first entry and those after the last index entry; None without any.

        A log's format rises within a segment only by a change of a broker's setting, and then stays.
        Raises CorruptRecordError for a size that no entry has.
        """
        first = [head.position for _, head in zip(range(1), self.heads(0), strict=False)]
        last = [head.position for head in self.heads_from(MAX_RELATIVE + self.base_offset)]
        places = (self.log.read_at(position + MAGIC.start, MAGIC.type.size) for position in first + last)
        return max((MAGIC.type.unpack(each)[0] for each in places), default=None)

    def read(
        self, offset: int, max_bytes: int, *, end: int | None = None, whole_first: bool = True
    ) -> FileSlice | None:
        """Return up to `max_bytes` from the first entry that reaches `offset`, and below position `end`.

        `whole_first`: at least that entry, whatever its size. None if no entry reaches `offset`.
        """
        head = self.find(offset)
        if head is None:
            return None
        end = self.size if end is None else end
        length = min(max(max_bytes, head.size if whole_first else 0), max(end - head.position, 0))
        return FileSlice(self.log.opened(), head.position, length, self)

    def position_before_timestamp(self, timestamp: int) -> int:
        """Return the position of an entry before which all are older than `timestamp` (ms)."""
        for named, offset in self.indexes.before_timestamp(timestamp):
            head = self.find(offset)
            if head is not None and head.offset <= offset and head.timestamp == named:
                return head.position
        return 0

    def find_timestamp(self, timestamp: int, first_offset: int) -> tuple[int, int] | None:
        """Return timestamp and offset of the first record of `timestamp` or later, and of `first_offset` or later."""
        begin = self.position_before_timestamp(timestamp)
        if first_offset > self.base_offset:
            begin = max(begin, self.position_before(first_offset))
        for head in self.heads(begin):
            if head.timestamp < timestamp or (head.last_offset is not None and head.last_offset < first_offset):
                continue
            data = memoryview(self.log.read_at(head.position, head.size))
            found = _first_of_time(data, self.config.dialect, timestamp, first_offset)
            if found is not None:
                return found
        return None

    def largest_or_modified(self) -> int:
        """Return the largest timestamp, or the file's modification time if no entry has one."""
        return self.largest_timestamp if self.largest_timestamp >= 0 else self.files.modified_ms(self.path(LOG))

    def _load_largest(self, *, is_indexed: bool = False) -> None:
        """Find the largest timestamp: by the index, and by the headers after its last entry unless it `is_indexed`."""
        self.largest_timestamp, self.largest_offset = NO_TIMESTAMP, self.base_offset
        named = self.indexes.largest_timestamp()
        if named is None:
            return
        self.largest_timestamp, self.largest_offset = named
        if is_indexed:
            return
        newest: Head | None = None
        for head in self.heads_from(self.largest_offset):
            newest = head
            if head.timestamp > self.largest_timestamp:
                self.largest_timestamp, self.largest_offset = head.timestamp, self.last_offset_of(head)
        end = self.base_offset - 1 if newest is None else newest.last_offset
        for kind, column in ((OFFSET_INDEX, 0), (TIME_INDEX, 1)):
            last = self.indexes.last(kind)
            if last is not None and end is not None and self.base_offset + last[column] > end:
                raise CorruptRecordError(
                    "index offset", expected=f"<= {end}", found=self.base_offset + last[column]
                ).locate(path=self.path(kind))

    # ---- truncation and repair

    def truncate_to(self, offset: int) -> int:
        """Cut the segment before the first entry whose last offset is at least `offset`; return the bytes cut.

        Durable once it returns: else bytes that come back after a crash could follow later appends.
        """
        self.closed_end = min(self.closed_end, offset)
        self.forget_check()
        head = self.find(offset)
        if head is None:
            return 0
        removed = self.size - head.position
        self.log.truncate(head.position)
        self.size = head.position
        self.indexes.truncate(offset, self.size)
        self._since_entry, self._last_head = 0, None
        if not self.size:
            self._first_timestamp = NO_TIMESTAMP
        self._load_largest()
        self.sync()
        return removed

    def forget_check(self) -> None:
        """Forget what the check of the transaction index found, because the log was truncated."""
        self.checked = None
        self.indexes.forget_corrections()
        self.without_transactions = 0, 0

    def take_log(self, transactions: list[AbortedTransaction]) -> None:
        """Make the indexes of a log of sound entries that was written to `log` alone; `transactions` are its own."""
        states = self.config.rules.producer_states()
        self.recover(states, None, _refuse_to_cut, durable=False)
        self.indexes.put_aborted(transactions)

    def recover(
        self,
        producers: ProducerStates,
        epochs: LeaderEpochs | None,
        cut: Callable[[int, CorruptRecordError | None], None],
        *,
        durable: bool,
    ) -> Recovered:
        """Walk the whole segment, rebuild its indexes and cut it after the last sound entry.

        `producers` is the state before the segment and is updated, `epochs` likewise. `cut` is called before anything
        is cut off, with the remaining bytes and the reason. `durable`: each index file is put whole, and last the one
        whose absence causes a recovery. Otherwise nothing is synced, because the next start recovers the segment
        anyway. Raises CorruptRecordError for an invalid marker, which no crash leaves.
        """
        rules, base = self.config.rules.recovering(), self.base_offset
        indexer = SegmentIndexer(base, rules, dialect=self.config.dialect, producers=producers)
        end_offset, kept, error = base, 0, None
        for row in sound_beginning(self.log.opened(), Limits(base, base + MAX_RELATIVE), self.config.dialect):
            if not isinstance(row, Sound):
                error = row.error
                break
            table = scan(row.view, dialect=self.config.dialect)
            indexer.append(table, row.position)
            if epochs is not None:
                epochs.append(table)
            end_offset, kept = int(last_offsets(table)[-1]) + 1, row.end
        if kept < self.log.size:
            cut(kept, error)
        removed = self.log.size - kept
        if removed:
            self.log.truncate(kept)
        self.size = kept
        self._put_indexes(indexer.finish().files(), durable=durable)
        return Recovered(kept, removed, end_offset, error)

    def with_log(self, path: str) -> Segment:
        """Return a segment that is not part of the log yet (`.cleaned`), with the log at `path` and these indexes.

        The log has the same entries at the same positions as this one, which is closed. It is renamed.
        """
        indexes = {}
        for kind in (*self.indexes.kinds, TRANSACTION_INDEX):
            if self.names.has(kind):
                with self.files.open(self.path(kind)) as file:
                    indexes[kind] = file.read_at(0, file.size)
        SegmentNames(self.files, self.folder, self.base_offset, CLEANED).delete()
        made = Segment(self.files, self.folder, self.base_offset, self.config, suffix=CLEANED)
        self.files.rename(path, made.path(LOG))
        made.log = self.files.edit(made.path(LOG))
        made.size = made.log.size
        made._put_indexes(indexes, durable=False)
        made.closed_end = self.closed_end
        return made

    def take_indexes(self, made: SegmentIndexes, transactions: list[AbortedTransaction]) -> None:
        """Use the indexes that were made while `log` was written; `transactions` are its own."""
        self.size = self.log.size
        self._put_indexes(made.files(), durable=False)
        self.indexes.put_aborted(transactions)

    def _put_indexes(self, made: Mapping[str, bytes], *, durable: bool) -> None:
        """Replace the indexes by these files, by suffix."""
        self.indexes.put(made, durable=durable)
        self._since_entry, self._first_timestamp, self._last_head = 0, None, None
        self._load_largest(is_indexed=True)


def _is_transactional(
    head: bytes | None, first_offset: int | None, producer_id: int | None, *, is_marker: bool = False
) -> bool:
    """Return whether an entry with these first bytes is a transaction's batch or marker, of these where given.

    True also for an entry that the log lacks (None).
    """
    if head is None:
        return True
    if len(head) < RECORD_BATCH_OVERHEAD or MAGIC.type.unpack_from(head, MAGIC.start) != (2,):
        return False
    attributes = ATTRIBUTES.type.unpack_from(head, ATTRIBUTES.start)[0]
    return (
        bool(attributes & TRANSACTIONAL_BIT)
        and bool(attributes & CONTROL_BIT) is is_marker
        and first_offset in (None, OFFSET.type.unpack_from(head, OFFSET.start)[0])
        and producer_id in (None, PRODUCER_ID.type.unpack_from(head, PRODUCER_ID.start)[0])
    )


def _refuse_to_cut(_kept: int, error: CorruptRecordError | None) -> None:
    """Raise the error of a log that should be sound, in place of a recovery."""
    assert error is not None
    raise error


def _first_of_time(entry: memoryview, dialect: Dialect, timestamp: int, first_offset: int) -> tuple[int, int] | None:
    """As `find_timestamp`, inside one entry."""
    import numpy as np

    if entry[MAGIC.start] == 2 and dialect is Dialect.KAFKA:
        return first_of_time(RecordBatch(entry), timestamp, first_offset)
    for columns in decode_rows(scan(entry, dialect=dialect), [0], _TIMES_ONLY):
        times, offsets = np.asarray(columns.timestamp), np.asarray(columns.offset)
        rows = np.flatnonzero((times >= timestamp) & (offsets >= first_offset))
        if len(rows):
            return int(times[rows[0]]), int(offsets[rows[0]])
    return None
