"""The log of one partition: segments, one behind the other, of which the last is appended to.

No thread, clock or timer: dates come in as `now_ms`, readings of the monotonic clock as `monotonic_ms`, both
as a `Moment`, and what is to be done later is done by whoever owns the log, by
`flush`, `delete_old_segments` and `remove_deleted`. Calls that change the log are made one at a time. Sources: Kafka's
UnifiedLog, LocalLog and LogSegments.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from magicbyte.errors import (
    LogDirectoryError,
    OffsetOutOfRangeError,
    OutOfDescriptorsError,
    UnsupportedForMessageFormatError,
)
from magicbyte.log.append.prepare import ProducerBatch
from magicbyte.log.append.producer_check import ProducerChecks
from magicbyte.log.append.record_set import prepared_set
from magicbyte.log.files.checkpoints import (
    LEADER_EPOCHS,
    MESSAGE_DIALECT,
    format_leader_epochs,
    format_message_dialect,
    parse_message_dialect,
)
from magicbyte.log.files.directory import LOG, SNAPSHOT, parse_file
from magicbyte.log.files.filesystem import ViewedFiles, put_file
from magicbyte.log.files.health import Health
from magicbyte.log.files.index_writer import MAX_RELATIVE
from magicbyte.log.files.open_files import bounded
from magicbyte.log.files.producer_state import LeaderEpochs
from magicbyte.log.files.resync import first_offset
from magicbyte.log.live.loading import (
    Loaded,
    Mends,
    drop_snapshots,
    load,
    producers_at,
    segment_bases,
    snapshot_offsets,
)
from magicbyte.log.live.retention import Due, Reason, due_segments, head_cut
from magicbyte.log.live.segment import CLEANED, DELETED, SWAP, FileSlice, Head, Segment, exists
from magicbyte.records.control import marker_of
from magicbyte.records.layout import NO_PRODUCER_ID, NO_SEQUENCE, Dialect

if TYPE_CHECKING:
    from magicbyte.log.append.prepare import PreparedAppend
    from magicbyte.log.append.record_set import RecordSet
    from magicbyte.log.files.indexes import AbortedTransaction
    from magicbyte.log.files.open_files import OpenFile, OpenFiles
    from magicbyte.log.live.config import LogConfig
    from magicbyte.ports import Moment, WritableFileSystem
    from magicbyte.records.batch import RecordBatch

LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP_SEARCH = -1, -2, -3
_NO_TIME = (1 << 63) - 1
_COPY_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Flush:
    """A sync that is under way: `run` it, in a thread if you like, then hand it to `PartitionLog.flushed`."""

    file: OpenFile
    end_offset: int
    generation: int

    def run(self) -> None:
        """Sync. Raises OSError: then the directory is to be taken offline (`PartitionLog.health`)."""
        self.file.sync()


@dataclass(frozen=True, slots=True)
class Removed:
    """What retention took away: a segment, or the head of one (`head`), with its bytes and offsets."""

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int
    reason: Reason
    head: bool = False


class PartitionLog:
    """An open log. Offsets: `log_start_offset` <= `recovery_point`, `high_watermark` <= `log_end_offset`.

    All below `recovery_point` is durable. Every change that fails for an I/O error, and every one after it, raises
    LogDirectoryOfflineError: nothing is acknowledged that is not known to be written.
    """

    def __init__(
        self,
        files: OpenFiles,
        folder: str,
        config: LogConfig,
        loaded: Loaded,
        health: Health,
        lowered: Callable[[], None],
        jitter: Callable[[int], int],
    ) -> None:
        self.files, self.folder, self.config, self.health = files, folder, config, health
        self.segments = loaded.segments
        self.loaded = loaded
        self.log_end_offset = loaded.end_offset
        self.log_start_offset = loaded.segments[0].base_offset
        self.high_watermark = self.log_start_offset
        self.recovery_point = self.log_end_offset
        self.producers, self.epochs = loaded.producers, loaded.epochs
        self.checks = ProducerChecks()
        self.checks.start_from(loaded.producers.snapshot())
        self.last_flush_at_ms = 0
        self._deleted: list[tuple[int, Segment]] = []  # when its files go
        self._lowered, self._jitter = lowered, jitter
        self.generation = 0  # one more with each truncation, and at the end
        self._is_released = False
        self._has_unsaved_epochs = False

    @classmethod
    def open(
        cls,
        files: WritableFileSystem,
        folder: str,
        config: LogConfig,
        *,
        monotonic_ms: int,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        health: Health | None = None,
        quarantine: str | None = None,
        lowered: Callable[[], None] = lambda: None,
        jitter: Callable[[int], int] = lambda _most: 0,
        mends: Mends = Mends.TORN_END,
    ) -> PartitionLog:
        """Open the log in `folder`, made if need be, mend what a crash left, and make it ready to be appended to.

        `clean`, `recovery_point` and `log_start_offset` are what the log directory's files say. `lowered` is called
        when a truncation has lowered the recovery point, before anything is cut off: the new one is durable from then
        on.
        `jitter` draws a number from 0 to the given one. Raises LogDirectoryError for a log of another dialect, and
        CorruptRecordError where damage would have to be cut off that `mends` does not name.
        """
        files = bounded(files, health := health or Health(folder))
        with health:
            if not exists(files, folder):
                files.make_directory(folder)
                files.sync_directory(folder.rpartition("/")[0] or "/")
            _settle_dialect(files, folder, config.dialect)
            loaded = load(
                files,
                folder,
                config,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                quarantine=quarantine,
                mends=mends,
            )
            self = cls(files, folder, config, loaded, health, lowered, jitter)
            self.log_start_offset = max(log_start_offset, self.log_start_offset)
            if not clean:
                self.recovery_point = min(recovery_point, self.log_end_offset)
            self.high_watermark = self.log_start_offset
            self.last_flush_at_ms = monotonic_ms
            if loaded.epochs.truncate_start(self.log_start_offset) or loaded.epochs_changed():
                self._put_epochs()
            if config.rules.has_producers and clean and self.size and not snapshot_offsets(files, folder):
                nobody = not self.producers.snapshot().producers  # an upgrade from a version that knew none
                bases = [each.base_offset for each in self.segments[-2:]] if nobody else []
                for offset in {*bases, self.log_end_offset}:
                    self._put_snapshot(offset)
            if (
                config.rules.has_producers
                and config.rules.release.makes_empty_epochs
                and not exists(files, f"{folder}/{LEADER_EPOCHS}")
            ):
                put_file(files, f"{folder}/{LEADER_EPOCHS}", b"")
            self.active.activate(monotonic_ms, self._draw())
            files.sync_directory(folder)
        return self

    @classmethod
    @contextlib.contextmanager
    def view(
        cls, files: WritableFileSystem, folder: str, config: LogConfig, *, log_start_offset: int = 0
    ) -> Iterator[PartitionLog]:
        """Give a closed log, opened to be looked at: nothing is changed, made or mended, nor may be.

        Raises LogDirectoryError for a folder without segments, CorruptRecordError for an index that is missing or
        wrong: then the log would have to be recovered.
        """
        viewed = bounded(ViewedFiles(files), health := Health(folder))
        loaded = Loaded([], 0, config.rules.producer_states(), LeaderEpochs())
        try:
            for base in segment_bases(viewed, folder):
                segment = Segment.of_log(viewed, folder, base, config)
                loaded.segments.append(segment)
                segment.open_indexes()
            if not loaded.segments:
                raise LogDirectoryError(f"{folder}: expected a .log file")
            loaded.end_offset = segment.end_offset()
            self = cls(viewed, folder, config, loaded, health, lambda: None, lambda _most: 0)
            self.log_start_offset = max(log_start_offset, self.log_start_offset)
            yield self
        finally:
            for segment in loaded.segments:
                segment.release()

    def reconfigure(self, config: LogConfig) -> None:
        """Let `config` hold for what comes, the segment that is appended to included. The dialect stays.

        It may be called while another thread is in any other call.
        """
        assert config.dialect is self.config.dialect
        self.config = self.active.config = replace(config, rules=self.config.rules)

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(each.size for each in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records have to stop: the first open transaction, or the high watermark."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def _draw(self) -> int:
        return self._jitter(min(self.config.segment_jitter_ms, self.config.roll_ms))

    # ---- appending

    def append(self, records: RecordSet, now: Moment) -> None:
        """Write a set, whose offsets begin at `log_end_offset` or behind it. Durable after the next flush.

        Raises LogDirectoryError for offsets that are not behind those that are there.
        """
        if records.first_offset < self.log_end_offset or records.last_offset < records.first_offset:
            raise LogDirectoryError(
                f"{self.folder}: expected offsets from {self.log_end_offset} on, "
                f"found {records.first_offset} to {records.last_offset}"
            )
        with self.health:
            if self.active.must_roll(records, now):
                # What a wrapper begins with need not be known: then its segment begins as early as it can.
                first = records.last_offset - MAX_RELATIVE if records.has_older else records.first_offset
                self._roll(max(first, self.log_end_offset), now.monotonic_ms)
                if records.last_offset - self.active.base_offset > MAX_RELATIVE:
                    raise LogDirectoryError(f"{self.folder}: a set of more offsets than a segment can hold")
            if self.config.rules.has_producers:
                self._assign_epochs(records)
            self.active.append(records)
            self.log_end_offset = records.last_offset + 1
            if self.config.rules.has_producers:
                for batch in records.batches:
                    if batch.producer_id != NO_PRODUCER_ID:
                        self._take_producer(batch)
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush(now.monotonic_ms)

    def append_prepared(self, prepared: PreparedAppend, now: Moment) -> tuple[int, int]:
        """Write what `prepare` gave, of which there is something; return its first and last offset.

        Of a batch that its producer sent before these are those that it has already, and nothing is written. Raises
        AppendRefusedError for one that does not follow what is known of its producer.
        """
        records = prepared_set(prepared, self.config.rules, self.config.dialect)
        if prepared.producer is not None:
            marker = marker_of(records.batches[0]) if prepared.producer.is_control else None
            if marker is not None and marker.coordinator_epoch is not None:
                producer = prepared.producer
                self.checks.check_marker(producer.producer_id, producer.producer_epoch, marker.coordinator_epoch)
            elif not prepared.producer.is_control and (known := self.checks.check(prepared.producer)) is not None:
                return known.first_offset, known.last_offset
        self.append(records, now)
        return prepared.first_offset, prepared.last_offset

    def _take_producer(self, batch: RecordBatch) -> None:
        """Take in a batch of a producer that is in the log now."""
        aborted = self.producers.add(batch)
        if aborted is not None:
            self.active.append_aborted(aborted)
        producer, epoch = batch.producer_id, batch.producer_epoch
        if not batch.is_control and batch.base_sequence > NO_SEQUENCE:
            facts = ProducerBatch(
                producer, epoch, batch.base_sequence, batch.last_sequence, batch.is_transactional, is_control=False
            )
            self.checks.appended(facts, batch.base_offset, batch.last_offset, batch.max_timestamp)
        elif batch.is_control and (marker := marker_of(batch)) is not None and marker.coordinator_epoch is not None:
            self.checks.ended(producer, epoch, marker.coordinator_epoch, batch.max_timestamp)

    def _assign_epochs(self, records: RecordSet) -> None:
        changed = bool(records.has_older) and self.epochs.end_with_older()
        for batch in records.batches:
            changed = self.epochs.assign(batch.partition_leader_epoch, batch.base_offset) or changed
        self._has_unsaved_epochs = self._has_unsaved_epochs or changed
        if self._has_unsaved_epochs:  # also of an append before, for which there was no descriptor
            self._put_epochs()
            self._has_unsaved_epochs = False

    def roll(self, monotonic_ms: int) -> None:
        """Begin a new segment at the log's end, unless there is an empty one."""
        with self.health:
            self._roll(self.log_end_offset, monotonic_ms)

    def _roll(self, base_offset: int, monotonic_ms: int) -> None:
        """Close the active segment, durably, and begin one at `base_offset`, whose names are durable then.

        The old segment is synced first: else a crash could keep what was appended behind it and lose its end, and
        nothing would tell the hole from one that compaction made. The new one is the log's when all of this is done:
        OutOfDescriptorsError leaves the log as it was.
        """
        old = self.active
        if base_offset == old.base_offset:
            old.activate(monotonic_ms, self._draw())  # it is empty; without it nothing would tell where the log ends
            return
        old.finish()
        old.sync()
        if self.config.rules.has_producers:
            self._put_snapshot(base_offset)
        begun = Segment.create(self.files, self.folder, base_offset, self.config)
        try:
            begun.activate(monotonic_ms, self._draw())
            self.files.sync_directory(self.folder)
        except OutOfDescriptorsError:
            begun.remove()
            raise
        self.segments.append(begun)
        begun.config = self.config  # which another thread may have changed meanwhile
        self.recovery_point = max(self.recovery_point, min(base_offset, self.log_end_offset))

    def _put_snapshot(self, offset: int) -> None:
        """Write the producers as they are now."""
        with self.files.create(f"{self.folder}/{offset:020}{SNAPSHOT}") as file:
            file.write_at(0, self.producers.snapshot().to_bytes())
            file.sync()
        self._drop_snapshots_before(min([each.base_offset for each in self.segments[-2:]], default=0))

    def _drop_snapshots_before(self, offset: int) -> None:
        """Remove older snapshots, as a broker up to 2.7 does; a later one keeps them as long as their segments."""
        if not self.config.rules.release.keeps_all_snapshots:
            for each in snapshot_offsets(self.files, self.folder):
                if each < offset:
                    self.files.delete(f"{self.folder}/{each:020}{SNAPSHOT}")

    def _put_epochs(self) -> None:
        put_file(self.files, f"{self.folder}/{LEADER_EPOCHS}", format_leader_epochs(self.epochs.entries))

    # ---- durability

    def begin_flush(self) -> Flush | None:
        """Return the sync that makes all durable that was appended so far; None when it is, or the log was let go."""
        if self.recovery_point >= self.log_end_offset or self._is_released:
            return None
        return Flush(self.active.log, self.log_end_offset, self.generation)

    def flushed(self, flush: Flush, monotonic_ms: int) -> None:
        """Take in that `flush` was run: what it covers can be acknowledged, unless it was truncated meanwhile."""
        if flush.generation == self.generation:
            self.recovery_point = max(self.recovery_point, flush.end_offset)
            self.last_flush_at_ms = monotonic_ms

    def flush(self, monotonic_ms: int) -> None:
        """Make all durable that was appended so far."""
        flush = self.begin_flush()
        if flush is not None:
            with self.health:
                flush.run()
            self.flushed(flush, monotonic_ms)

    def is_flush_due(self, monotonic_ms: int) -> bool:
        """Say whether `flush.ms` has passed since the last flush, and there is something to flush."""
        return (
            self.recovery_point < self.log_end_offset and monotonic_ms - self.last_flush_at_ms >= self.config.flush_ms
        )

    def close(self) -> None:
        """Make everything durable as a closed log is, so that it can be opened without a look into it, and let go."""
        with self.health:
            self.active.finish()
            if self.config.rules.has_producers and self.log_end_offset > self.segments[0].base_offset:
                self._put_snapshot(self.log_end_offset)
            self.active.sync()
            self.files.sync_directory(self.folder)
            self.recovery_point = self.log_end_offset
        self.release()

    def release(self) -> None:
        """Let go of all open files, as they are. What was not durable by then is not to be acknowledged."""
        self._is_released = True
        self.generation += 1
        for segment in (*self.segments, *(each for _, each in self._deleted)):
            segment.release()
        self._deleted.clear()

    # ---- reading

    def _floor(self, offset: int) -> int:
        """Return which segment may hold `offset`, -1 when it lies before all."""
        return bisect.bisect_right(self.segments, offset, key=lambda each: each.base_offset) - 1

    def read(
        self, offset: int, max_bytes: int, *, upper: int | None = None, whole_first: bool = True
    ) -> FileSlice | None:
        """Return up to `max_bytes` of the log from the first entry on that reaches `offset`.

        `upper`: entries that reach this offset (high watermark, last stable offset) are left out. `whole_first`: at
        least one entry, whatever its size. None when there is nothing yet. Raises OffsetOutOfRangeError for an offset
        below the log's start or behind its end.
        """
        lowest = (
            self.log_start_offset if self.config.rules.release.reads_from_log_start else self.segments[0].base_offset
        )
        if not lowest <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.folder}: expected an offset of {lowest} to {self.log_end_offset}, found {offset}"
            )
        upper = self.log_end_offset if upper is None else min(upper, self.log_end_offset)
        for segment in self.segments[max(self._floor(offset), 0) :]:
            if segment.base_offset >= upper or offset >= upper:
                return None
            end = segment.size
            if upper < self.log_end_offset and (head := segment.find(upper)) is not None:
                end = head.position
            found = segment.read(offset, max_bytes, end=end, whole_first=whole_first)
            if found is not None:
                return found if found.length else None
        return None

    def size_in_segment(self, offset: int, upper: int) -> int | None:
        """Return how many bytes there are from the first entry that reaches `offset` to `upper`.

        None where `upper`, as in `read`, is in a later segment: then all that is left of this one may be read, and
        nothing is added to it.
        """
        segments = self.segments[max(self._floor(offset), 0) :]
        for at, segment in enumerate(segments):
            if segment.base_offset >= upper or (head := segment.find(offset)) is None:
                continue
            if at + 1 < len(segments) and segments[at + 1].base_offset <= upper:
                return None
            last = segment.find(upper) if upper < self.log_end_offset else None
            return (segment.size if last is None else last.position) - head.position
        return 0

    def aborted_transactions(self, first: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with an offset in `first` to below `end`, in the order of their markers."""
        found = []
        for segment in self.segments[max(self._floor(first), 0) :]:
            found += segment.transactions(first, end)
        return found

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return timestamp and offset of the first record of `timestamp` (ms) or later; None when there is none.

        -2 is the log's start, -1 its end (then the timestamp is -1), -3 the largest timestamp. Raises
        UnsupportedForMessageFormatError where the log has no timestamps to look by.
        """
        if timestamp == EARLIEST_TIMESTAMP:
            return -1, self.log_start_offset
        if timestamp == LATEST_TIMESTAMP:
            return -1, self.log_end_offset
        if not (self.config.rules.has_time_index or self.config.dialect is Dialect.ENRICHED):
            raise UnsupportedForMessageFormatError(f"{self.folder}: this log has no timestamps to look for")
        if timestamp == MAX_TIMESTAMP_SEARCH:
            largest = max(each.largest_timestamp for each in self.segments)
            timestamp = largest if largest >= 0 else _NO_TIME
        for segment in self.segments:
            if segment.largest_timestamp >= timestamp:
                found = segment.find_timestamp(timestamp, self.log_start_offset)
                if found is not None:
                    return found
        return None

    def offsets_before(self, timestamp: int, max_offsets: int, now_ms: int) -> list[int]:
        """Return bases of segments written up to `timestamp`, newest first: what ListOffsets version 0 answers."""
        pairs = [(each.base_offset, self.files.modified_ms(each.path(LOG))) for each in self.segments]
        if self.active.size:
            pairs.append((self.log_end_offset, now_ms))
        if timestamp == LATEST_TIMESTAMP:
            at = len(pairs) - 1
        elif timestamp == EARLIEST_TIMESTAMP:
            at = 0
        else:
            at = next((each for each in reversed(range(len(pairs))) if pairs[each][1] <= timestamp), -1)
        offsets = [max(pairs[each][0], self.log_start_offset) for each in range(at, -1, -1)]
        return offsets[:max_offsets]

    # ---- truncation

    def truncate_to(self, offset: int, monotonic_ms: int) -> bool:
        """Cut off all from `offset` on; the log ends there then, and if that is inside a batch its data before.

        Says whether anything had to be done.
        """
        if offset >= self.log_end_offset:
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully(offset, monotonic_ms)
            return True
        self._lower(offset)
        with self.health:
            while self.active.base_offset > offset:  # the last one first: what stays is always a beginning of the log
                self._delete_now(self.segments.pop())
            self.active.truncate_to(offset)
            self._end_at(offset, monotonic_ms)
        return True

    def truncate_fully(self, offset: int, monotonic_ms: int) -> None:
        """Delete all; the log is empty then, and begins at `offset`."""
        self._lower(offset)
        with self.health:
            while self.segments:
                self._delete_now(self.segments.pop())
            self.segments.append(Segment.create(self.files, self.folder, offset, self.config))
            self.log_start_offset = offset
            self._end_at(offset, monotonic_ms)

    def _lower(self, offset: int) -> None:
        """Have a lower recovery point, durably: what is written in place of the rest is not synced, other than that."""
        self.generation += 1
        if offset < self.recovery_point:
            self.recovery_point = offset
            self._lowered()

    def _delete_now(self, segment: Segment) -> None:
        segment.release()
        segment.rename(DELETED, snapshot=True, log_first=True)
        for entry in self.files.list(self.folder):
            if entry.name.startswith(f"{segment.base_offset:020}.") and entry.name.endswith(DELETED):
                self.files.delete(entry.path)

    def _end_at(self, offset: int, monotonic_ms: int) -> None:
        """Let the log end at `offset`, where its data ends at or before that."""
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        if self.epochs.truncate_end(offset):
            self._put_epochs()
        if self.config.rules.has_producers:
            drop_snapshots(self.files, self.folder, [each.base_offset for each in self.segments], offset)
            self.producers = producers_at(
                self.files, self.folder, self.config, self.segments, offset, replays=True
            )  # fmt: skip
            self.checks = ProducerChecks()
            self.checks.start_from(self.producers.snapshot())
        self.active.activate(monotonic_ms, self._draw())
        self.files.sync_directory(self.folder)

    # ---- retention

    def delete_records(self, offset: int) -> int:
        """Let the log start at `offset`, -1 for the high watermark; the files go with the next retention. Returns it.

        Raises OffsetOutOfRangeError above the high watermark.
        """
        offset = self.high_watermark if offset == -1 else offset
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.folder}: expected an offset up to the high watermark {self.high_watermark}, found {offset}"
            )
        if offset > self.log_start_offset:
            with self.health:
                self._start_at(offset)
        return self.log_start_offset

    def due(self, now_ms: int) -> list[Due]:
        """Return the segments that are due to be deleted."""
        if self.config.dialect is Dialect.ENRICHED and self.config.compact:
            return []
        return due_segments(
            self.segments,
            self.config,
            now_ms=now_ms,
            end_offset=self.log_end_offset,
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start_offset,
        )

    def delete_old_segments(self, now: Moment) -> list[Removed]:
        """Delete the segments that are due, and cut the head of the first that stays where the log is one that has it.

        Files are renamed, and gone after `file.delete.delay.ms` (`remove_deleted`). A log that loses all begins anew
        with an empty segment at its end.
        """
        with self.health:
            if self.config.dialect is Dialect.ENRICHED:
                self.active.index_last_entry()
            due = self.due(now.date_ms)
            removed = self._removed(due)
            if due and due[-1].segment is self.active:
                self._roll(self.log_end_offset, now.monotonic_ms)
            for _ in due:
                self._delete_later(self.segments.pop(0), now.monotonic_ms)
            if self.cuts_heads and (cut := self._cut_head(now)) is not None:
                removed.append(cut)
            self._start_at(self.segments[0].base_offset)
        return removed

    def plan(self, now_ms: int) -> tuple[list[Removed], int]:
        """Return what `delete_old_segments` would take away now, and where the log would start then."""
        due = self.due(now_ms)
        removed = self._removed(due)
        start = max(self.log_start_offset, removed[-1].end_offset if removed else 0)
        if self.cuts_heads and len(due) < len(self.segments):
            segment = self.segments[len(due)]
            head = self._head_cut(segment, now_ms)
            if head is not None:
                removed.append(self._head_removed(segment, head))
                start = max(start, removed[-1].end_offset)
        return removed, start

    def _removed(self, due: Sequence[Due]) -> list[Removed]:
        ends = [*(each.base_offset for each in self.segments[1:]), self.log_end_offset]
        return [
            Removed(each.segment.base_offset, end, each.segment.size, each.segment.largest_timestamp, each.reason)
            for each, end in zip(due, ends, strict=False)
        ]

    def _head_cut(self, segment: Segment, now_ms: int) -> Head | None:
        return head_cut(
            segment,
            self.config,
            now_ms=now_ms,
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start_offset,
        )

    def _head_removed(self, segment: Segment, head: Head) -> Removed:
        base = first_offset(segment.log, head.position, self.config.dialect)
        reason = Reason.START if base <= self.log_start_offset else Reason.TIME
        return Removed(segment.base_offset, base, head.position, segment.largest_timestamp, reason, head=True)

    @property
    def cuts_heads(self) -> bool:
        """Whether retention goes on inside the first segment that stays."""
        if self.config.dialect is Dialect.ENRICHED:
            return self.config.delete
        return self.config.head_truncation

    def _start_at(self, offset: int) -> None:
        """Let the log start at `offset` at least."""
        self.log_start_offset = max(self.log_start_offset, offset)
        if self.epochs.truncate_start(self.log_start_offset):
            self._put_epochs()
        self._drop_snapshots_before(self.log_start_offset)

    def _delete_later(self, segment: Segment, monotonic_ms: int) -> None:
        """Take a segment's names away, durably, so that it cannot come back when a later one has gone."""
        segment.rename(DELETED, snapshot=True, log_first=True)
        self._deleted.append((monotonic_ms + self.config.file_delete_delay_ms, segment))

    def remove_deleted(self, monotonic_ms: int) -> int:
        """Delete the files of segments whose delay has passed; return how many segments there were."""
        due = [segment for time, segment in self._deleted if time <= monotonic_ms]
        self._deleted = [(time, segment) for time, segment in self._deleted if time > monotonic_ms]
        with self.health:
            for segment in due:
                segment.release()
                for entry in self.files.list(self.folder):
                    if entry.name.startswith(f"{segment.base_offset:020}.") and entry.name.endswith(DELETED):
                        self.files.delete(entry.path)
        return len(due)

    def _cut_head(self, now: Moment) -> Removed | None:
        """Cut off the head of the first segment, as far as it is due: a new file with the rest takes its place."""
        segment = self.segments[0]
        head = self._head_cut(segment, now.date_ms)
        if head is None:
            return None
        removed = self._head_removed(segment, head)
        base = removed.end_offset
        if segment is self.active:
            self._roll(self.log_end_offset, now.monotonic_ms)
        rest = self.new_segment(base)
        position = head.position
        while position < segment.size:
            piece = segment.log.read_at(position, min(_COPY_BYTES, segment.size - position))
            rest.log.write_at(position - head.position, piece)
            position += len(piece)
        rest.take_log(segment.transactions(base, self.log_end_offset))
        self.replace([segment], rest, now)
        return removed

    # ---- exchanging segments

    def new_segment(self, base_offset: int) -> Segment:
        """Make an empty segment that is not part of the log yet (`.cleaned`): fill it, then `replace` others by it.

        Append record sets to it, or write its log and call its `take_log`.
        """
        return Segment.create(self.files, self.folder, base_offset, self.config, suffix=CLEANED)

    def replace(self, old: Sequence[Segment], new: Segment, now: Moment) -> None:
        """Put `new` in place of `old`, neighbours of the log that are not active, at once as far as a crash can see.

        `new` comes from `new_segment`; its offsets lie within those of `old`. Segments of `old` that retention deleted
        meanwhile are left out. A crash before `new` is durably called `.swap` leaves the old ones, or the new one if
        all of its names were, a crash behind it the new one. No sync is needed before that: the old ones are whole.
        """
        with self.health:
            old = [each for each in old if each in self.segments]
            assert self.active not in old
            modified = self.files.modified_ms(old[-1].path(LOG)) if old else now.date_ms
            new.finish()
            self.files.set_modified_ms(new.path(LOG), modified)
            new.sync()
            new.rename(SWAP)
            self.files.sync_directory(self.folder)  # from here on a crash ends with it
            at = self.segments.index(old[0]) if old else 0
            for segment in old:  # the first one first: else what a tombstone deleted could come back without it
                segment.rename(DELETED, snapshot=segment.base_offset != new.base_offset, log_first=True)
                self._deleted.append((now.monotonic_ms + self.config.file_delete_delay_ms, segment))
            self.files.sync_directory(self.folder)  # else an old one's transaction index could stay beside the new log
            new.rename("")
            self.files.sync_directory(self.folder)  # else the next exchange could find this `.swap` beside its own
            self.segments[at : at + len(old)] = [new]


def _settle_dialect(files: WritableFileSystem, folder: str, dialect: Dialect) -> None:
    """Have the dialect written in the folder; a log of Kafka's own dialect needs no file for that.

    Raises LogDirectoryError when the log is one of another dialect.
    """
    path = f"{folder}/{MESSAGE_DIALECT}"
    found = parse_file(files, path, parse_message_dialect) if exists(files, path) else Dialect.KAFKA
    if found is dialect:
        return
    if any(entry.size for entry in files.list(folder) if entry.name.endswith(LOG)):
        raise LogDirectoryError(f"{folder}: a log in the dialect {found.value}: expected {dialect.value}")
    put_file(files, path, format_message_dialect(dialect))
