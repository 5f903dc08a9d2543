"""The log of one partition: a sequence of segments. Appends go to the last one.

It has no thread, clock or timer. Callers pass dates as `now_ms`, the monotonic clock as `monotonic_ms`, and both as a
`Moment`. The owner of the log calls `flush`, `delete_old_segments` and `remove_deleted` for later work. Sources:
Kafka's UnifiedLog, LocalLog and LogSegments.

Calls that change the log are made by one thread at a time; the broker's locks ensure that
(`server/partitions/appends.py`). Meanwhile other threads may look things up, and one of them may call `begin_flush`,
`flushed` and `reconfigure`, and raise `high_watermark`.

Invariants; 1 holds between changes, the others at every moment:
1. `log_start_offset` <= `high_watermark` <= `log_end_offset`, and `recovery_point` <= `log_end_offset`.
2. There is always a last segment, `active`, which alone takes appends. Segments ascend and do not overlap. A roll adds
   the new one when its names and the whole segment before it are durable.
3. Everything below `recovery_point` is durable. A truncation lowers it, also in the checkpoint (`lowered`), before it
   cuts. A sync that began before a truncation does not raise it afterwards.
4. `generation` changes before a truncation does. A caller that keeps a position or an offset of the log over a wait
   compares it: `flushed`, `GroupCommit`, `transaction_checks`, `ServedPartition`.
5. A leader epoch is in its file before the first record of that epoch is written.
6. After an I/O error every change raises LogDirectoryOfflineError. A lack of file descriptors is no such error: the
   call raises OutOfDescriptorsError and may be repeated.

docs/internals/crash-safety.md has what a crash after each step of an append, roll, truncation, retention and exchange
leaves; comments below say why each order is needed. `tests/simulation/crashes.py` cuts the power within every file
operation, `test_planted_bugs.py` breaks most of these rules, and `test_partition_log.py` has 1, 2 and 3 by name.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.errors import LogDirectoryError, OffsetOutOfRangeError, OutOfDescriptorsError
from magicbyte.engine.log.append.record_set import AppendOrigin, indexed
from magicbyte.engine.log.files.directory import LOG
from magicbyte.engine.log.files.filesystem import exists
from magicbyte.engine.log.files.health import Health
from magicbyte.engine.log.files.names import MAX_RELATIVE
from magicbyte.engine.log.files.open_files import bounded
from magicbyte.engine.log.live.config import FOREVER
from magicbyte.engine.log.live.deleted import DeletedSegments, delete_now
from magicbyte.engine.log.live.epoch_file import EpochFile
from magicbyte.engine.log.live.loading import Loaded, RepairScope, load, settle_dialect
from magicbyte.engine.log.live.producers import LogProducers
from magicbyte.engine.log.live.retention import Removed, Retention
from magicbyte.engine.log.live.segment import FileSlice, Segment
from magicbyte.engine.log.live.segment_names import CLEANED, DELETED, SWAP, snapshot_offsets
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.sentinels import NO_PRODUCER_ID

if TYPE_CHECKING:
    from magicbyte.engine.errors import CorruptRecordError
    from magicbyte.engine.log.append.producer_check import Guard
    from magicbyte.engine.log.append.record_set import RecordSet
    from magicbyte.engine.log.files.open_files import OpenFile, OpenFiles
    from magicbyte.engine.log.live.config import LogConfig
    from magicbyte.engine.ports import Moment, WritableFileSystem

_COPY_BYTES = 4 << 20
_REPLICATION, _COORDINATOR = AppendOrigin.REPLICATION, AppendOrigin.COORDINATOR


class Flush(Struct, frozen=True):
    """A pending sync: call `run`, in any thread, then pass it to `PartitionLog.flushed`."""

    file: OpenFile
    end_offset: int
    generation: int

    def run(self) -> None:
        """Sync. Raises OSError: then the directory is to be taken offline (`PartitionLog.health`)."""
        self.file.sync()


class PartitionLog:
    """An open log. A change that fails with an I/O error, and every later one, raises LogDirectoryOfflineError."""

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
        self._has_producers = config.rules.has_producers  # `reconfigure` does not change the rules
        self.segments = loaded.segments
        self.loaded = loaded
        self.log_end_offset = loaded.end_offset
        self.log_start_offset = loaded.segments[0].base_offset
        self.high_watermark = self.log_start_offset
        self._floor, self._synced = 0, (0, self.log_end_offset)  # see `recovery_point`
        self.producers = LogProducers(files, folder, config, loaded.producers)
        self.epochs = loaded.epochs
        self.epoch_file = EpochFile(files, folder, loaded.epochs)
        self.last_flush_at_ms = 0
        self._deleted = DeletedSegments()
        self._lowered, self._jitter = lowered, jitter
        self.index_faults: list[
            CorruptRecordError
        ] = []  # of transaction indexes, found by readers: see take_index_faults
        self.generation = 0  # increased by each truncation, and when the log is released
        self._truncated_at = 0  # the generation of the last truncation
        self._is_released = False

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
        committed: int = 0,
        log_start_offset: int = 0,
        health: Health | None = None,
        quarantine: str | None = None,
        lowered: Callable[[], None] = lambda: None,
        jitter: Callable[[int], int] = lambda _most: 0,
        repair_scope: RepairScope = RepairScope.TORN_END,
    ) -> PartitionLog:
        """Open the log in `folder` for appends. Create it if need be, and recover it after a crash.

        `clean`, `recovery_point`, `committed` (a high watermark) and `log_start_offset` come from the log directory's
        files. `lowered` is called with a lower recovery point before a truncation, and makes it durable. `jitter` draws
        a number from 0 to the given one. Raises LogDirectoryError for a log of another dialect, and CorruptRecordError
        if a recovery would have to truncate damage that `repair_scope` does not name.
        """
        files = bounded(files, health := health or Health(folder))
        with health:
            if not exists(files, folder):
                files.make_directory(folder)
                files.sync_directory(folder.rpartition("/")[0] or "/")
            settle_dialect(files, folder, config.dialect)
            loaded = load(
                files,
                folder,
                config,
                clean=clean,
                recovery_point=recovery_point,
                committed=committed,
                log_start_offset=log_start_offset,
                quarantine=quarantine,
                repair_scope=repair_scope,
            )
            self = cls(files, folder, config, loaded, health, lowered, jitter)
            self.log_start_offset = max(log_start_offset, self.log_start_offset)
            if not clean:
                self.recovery_point = min(recovery_point, self.log_end_offset)
            self.high_watermark = self.log_start_offset
            self.last_flush_at_ms = monotonic_ms
            if loaded.epochs.truncate_start(self.log_start_offset) or loaded.epochs_changed():
                self.epoch_file.put()
            if self._has_producers and clean and self.size and not snapshot_offsets(files, folder):
                nobody = not self.producers.snapshot().producers  # an upgrade from a version without producers
                bases = [each.base_offset for each in self.segments[-2:]] if nobody else []
                for offset in {*bases, self.log_end_offset}:
                    self.producers.put_snapshot(offset, self.segments)
            if self._has_producers and config.rules.release.makes_empty_epochs:
                self.epoch_file.put_empty()
            self.active.activate(monotonic_ms, self._draw())
            files.sync_directory(folder)
            if config.group_commit:  # so that the checkpoint of its high watermark is not lowered: see `committed`
                self.recovery_point = self.log_end_offset
        return self

    def reconfigure(self, config: LogConfig) -> None:
        """Apply `config` to later calls, also for the active segment. The dialect does not change.

        It may be called while another thread is in any other call.
        """
        assert config.dialect is self.config.dialect
        self.config = self.active.config = replace(config, rules=self.config.rules)

    @property
    def active(self) -> Segment:
        """The segment that takes appends."""
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(each.size for each in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """The end for readers of committed records: the first open transaction, or the high watermark."""
        unstable = self.producers.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is durable.

        It is stored with its generation, in one assignment: a sync that ends on the event loop while a thread truncates
        the log cannot raise it again.
        """
        generation, offset = self._synced
        return offset if generation >= self._truncated_at else self._floor

    @recovery_point.setter
    def recovery_point(self, offset: int) -> None:
        self._synced = self.generation, offset

    @property
    def committed(self) -> int:
        """The high watermark for the checkpoint; with group commit as far as it is durable here.

        A follower that catches up knows records as committed before its own sync.
        """
        return min(self.high_watermark, self.recovery_point) if self.config.group_commit else self.high_watermark

    def _draw(self) -> int:
        return self._jitter(min(self.config.segment_jitter_ms, self.config.roll_ms))

    # ---- appending

    def append(self, records: RecordSet, now: Moment, guard: Guard | None = None) -> tuple[int, int]:
        """Write a nonempty set with offsets from `log_end_offset` on, or later ones; return its first and last offset.

        Durable after the next flush. For a client's duplicate batch, returns the offsets of the original and writes
        nothing. `guard`: the verification of a transaction's records; None accepts those of any transaction. Raises
        AppendRefusedError for a batch that does not follow its producer's state, LogDirectoryError for offsets below
        the log end offset.
        """
        first, last = records.first_offset, records.last_offset
        if records.origin is not _REPLICATION:
            if not records.batches:
                records = indexed(records, self.config.rules, self.config.dialect)
            elif (producer := records.producer) is not None:
                if records.origin is _COORDINATOR:
                    self.producers.check_epoch(producer)
                elif (known := self.producers.check(producer, guard)) is not None:
                    return known.first_offset, known.last_offset
        self._write(records, now)
        return first, last

    def _write(self, records: RecordSet, now: Moment) -> None:
        if records.first_offset < self.log_end_offset or records.last_offset < records.first_offset:
            raise LogDirectoryError(
                f"{self.folder}: expected offsets from {self.log_end_offset} on, "
                f"found {records.first_offset} to {records.last_offset}"
            )
        has_producers, active = self._has_producers, self.segments[-1]
        with self.health:
            if active.must_roll(records, now):
                # The first offset of a wrapper need not be known: its segment begins as early as it can.
                first = records.last_offset - MAX_RELATIVE if records.has_older else records.first_offset
                self.roll(now.monotonic_ms, max(first, self.log_end_offset))
                active = self.segments[-1]
                if records.last_offset - active.base_offset > MAX_RELATIVE:
                    raise LogDirectoryError(f"{self.folder}: a set with more offsets than a segment can hold")
            if has_producers:
                self.epoch_file.assign(records)
            active.append(records)
            self.log_end_offset = records.next_offset
            if has_producers:
                for batch in records.batches:
                    if batch.producer_id != NO_PRODUCER_ID:
                        self.producers.take(batch, active.indexes, self.high_watermark)
        most = self.config.flush_messages
        if most != FOREVER and self.log_end_offset - self.recovery_point >= most:
            self.flush(now.monotonic_ms)

    def roll(self, monotonic_ms: int, base_offset: int | None = None) -> None:
        """Close the active segment, durably, and begin one at `base_offset` (None: the log's end), with durable names.

        An empty active segment that begins there stays.

        The old segment is synced first: otherwise a crash could keep later appends and lose its end, and the gap would
        look like one from compaction. The new segment becomes part of the log when all of this is done:
        OutOfDescriptorsError leaves the log unchanged.
        """
        old, base_offset = self.active, self.log_end_offset if base_offset is None else base_offset
        with self.health:
            if base_offset == old.base_offset:
                old.activate(monotonic_ms, self._draw())  # without an active segment the log would have no end
                return
            old.finish()
            old.sync()
            if self._has_producers:
                self.producers.put_snapshot(base_offset, self.segments)
            begun = Segment.create(self.files, self.folder, base_offset, self.config)
            try:
                begun.activate(monotonic_ms, self._draw())
                self.files.sync_directory(self.folder)
            except OutOfDescriptorsError:
                begun.remove()
                raise
            self.segments.append(begun)
            begun.config = self.config  # another thread may have changed it meanwhile
            self.recovery_point = max(self.recovery_point, min(base_offset, self.log_end_offset))

    # ---- durability

    def begin_flush(self) -> Flush | None:
        """Return the sync for all appends so far; None if they are durable, or the log was released."""
        if self.recovery_point >= self.log_end_offset or self._is_released:
            return None
        return Flush(self.active.log, self.log_end_offset, self.generation)

    def flushed(self, flush: Flush, monotonic_ms: int) -> None:
        """Apply a finished `flush`: its records can be acknowledged, unless they were truncated meanwhile."""
        if flush.generation == self.generation:
            self._synced = flush.generation, max(self.recovery_point, flush.end_offset)
            self.last_flush_at_ms = monotonic_ms

    def flush(self, monotonic_ms: int) -> None:
        """Make all appends so far durable."""
        flush = self.begin_flush()
        if flush is not None:
            with self.health:
                flush.run()
            self.flushed(flush, monotonic_ms)

    def is_flush_due(self, monotonic_ms: int) -> bool:
        """Return whether `flush.ms` has passed since the last flush, and there is something to flush."""
        return (
            self.recovery_point < self.log_end_offset and monotonic_ms - self.last_flush_at_ms >= self.config.flush_ms
        )

    def close(self) -> None:
        """Make the log durable in its closed form, so that it opens without a recovery, and release it."""
        self.mend_transaction_indexes()
        with self.health:
            self.active.indexes.mend_transactions()
            self.active.finish()
            if self._has_producers and self.log_end_offset > self.segments[0].base_offset:
                self.producers.put_snapshot(self.log_end_offset, self.segments)
            self.active.sync()
            self.files.sync_directory(self.folder)
            self.recovery_point = self.log_end_offset
        self.release()

    def release(self) -> None:
        """Close all open files as they are. Records that are not durable by then must not be acknowledged."""
        self._is_released = True
        self.generation += 1
        for segment in self.segments:
            segment.release()
        self._deleted.release()

    # ---- reading

    def segments_from(self, offset: int) -> list[Segment]:
        """Return the segments from the one that may hold `offset`; all of them if it is before them."""
        at = bisect.bisect_right(self.segments, offset, key=lambda each: each.base_offset) - 1
        return self.segments[max(at, 0) :]

    def read(
        self, offset: int, max_bytes: int, *, upper: int | None = None, whole_first: bool = True
    ) -> FileSlice | None:
        """Return up to `max_bytes` of the log, from the first entry whose last offset is at least `offset`.

        `upper`: entries that reach this offset (high watermark, last stable offset) are left out. `whole_first`: at
        least one entry, whatever its size. None if there is no entry yet. Raises OffsetOutOfRangeError for an offset
        below the log start offset or above the log end offset.
        """
        lowest = (
            self.log_start_offset if self.config.rules.release.reads_from_log_start else self.segments[0].base_offset
        )
        if not lowest <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.folder}: expected an offset of {lowest} to {self.log_end_offset}, found {offset}"
            )
        upper = self.log_end_offset if upper is None else min(upper, self.log_end_offset)
        for segment in self.segments_from(offset):
            if segment.base_offset >= upper or offset >= upper:
                return None
            end = segment.size
            if upper < self.log_end_offset and (head := segment.find(upper)) is not None:
                end = head.position
            found = segment.read(offset, max_bytes, end=end, whole_first=whole_first)
            if found is not None:
                return found if found.length else None
        return None

    # ---- transaction indexes

    def take_index_faults(self) -> list[CorruptRecordError]:
        """Return how transaction indexes contradict the log, as far as look-ups since the last call found.

        Look-ups use the entries by the log instead. Any thread may call it.
        """
        return [self.index_faults.pop(0) for _ in range(len(self.index_faults))]

    def mend_transaction_indexes(self) -> None:
        """Write the transaction indexes that look-ups have corrected, except that of the active segment."""
        with self.health:
            for segment in self.segments[:-1]:
                segment.indexes.mend_transactions()

    # ---- truncation

    def truncate_to(self, offset: int, monotonic_ms: int) -> bool:
        """Truncate the log to `offset`, its new log end offset. If that is inside a batch, the data ends before the
        batch.

        Epochs from there on are removed, even if no record is cut. Returns whether records were cut.
        """
        if offset >= self.log_end_offset:
            with self.health:
                self.epoch_file.truncate_end(self.log_end_offset)  # epochs of leaders that wrote nothing
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully(offset, monotonic_ms)
            return True
        # Crash order: the lower recovery point is durable before anything is cut. Records appended in place of the old
        # ones are unsynced at first; after a crash, a start that trusted the old recovery point would take a torn
        # mixture of old and new bytes below it for durable, and skip the walk that detects it. The other way round
        # costs only a longer recovery.
        self._lower(offset)
        with self.health:
            while self.active.base_offset > offset:  # the last one first: a crash always leaves a prefix of the log
                delete_now(self.segments.pop())
            self.active.truncate_to(offset)
            self._end_at(offset, monotonic_ms)
        return True

    def truncate_fully(self, offset: int, monotonic_ms: int) -> None:
        """Delete all records. The empty log begins at `offset`."""
        self._lower(offset)
        with self.health:
            while len(self.segments) > 1:
                delete_now(self.segments.pop())
            delete_now(self.active)
            self.segments[0] = Segment.create(self.files, self.folder, offset, self.config)
            self.log_start_offset = self.high_watermark = offset
            self._end_at(offset, monotonic_ms)

    def _lower(self, offset: int) -> None:
        """Lower the recovery point, durably, because records written in place of the old ones are unsynced at first."""
        self._floor = floor = min(offset, self.recovery_point)
        self.generation += 1
        self._truncated_at = self.generation  # from here on no earlier sync counts
        is_lower = floor < self._synced[1]
        self.recovery_point = floor
        if is_lower:
            self._lowered()

    def _end_at(self, offset: int, monotonic_ms: int) -> None:
        """Set the log end offset to `offset`; the data ends at or before it."""
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epoch_file.truncate_end(offset)
        if self._has_producers:
            self.producers.truncate(self.segments, offset)
        self.active.activate(monotonic_ms, self._draw())
        self.files.sync_directory(self.folder)

    # ---- retention

    def delete_records(self, offset: int) -> int:
        """Set the log start offset, -1 for the high watermark, and return it. The next retention deletes the files.

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

    def delete_old_segments(self, now: Moment) -> list[Removed]:
        """Delete the segments that are due. With head truncation, also cut the head of the first remaining one.

        Files are renamed, and deleted after `file.delete.delay.ms` (`remove_deleted`). A log that loses all segments
        gets an empty segment at its end.
        """
        with self.health:
            if self.config.dialect is Dialect.ENRICHED:
                self.active.index_last_entry()
            retention = self.retention(now.date_ms)
            removed = retention.due(self.segments)
            if len(removed) == len(self.segments):
                self.roll(now.monotonic_ms)
            for segment in self.segments[: len(removed)]:
                self.segments.remove(segment)
                # durably: a crash cannot bring back the segment alone
                segment.names.rename(DELETED, snapshot=True, log_first=True)
                self._deleted.keep(segment, now.monotonic_ms + self.config.file_delete_delay_ms)
            head = retention.head(self.segments[0])
            if head is not None:
                self._cut_head(head, now)
                removed.append(head)
            self._start_at(self.segments[0].base_offset)
        return removed

    def retention(self, now_ms: int) -> Retention:
        """Return the rules by which `delete_old_segments` would delete segments now."""
        return Retention(self.config, now_ms, self.log_start_offset, self.high_watermark, self.log_end_offset)

    def _start_at(self, offset: int) -> None:
        """Raise the log start offset to `offset`, if it is lower.

        A gap in the offsets at the high watermark does not move it beyond that.
        """
        self.log_start_offset = max(self.log_start_offset, min(offset, self.high_watermark))
        self.epoch_file.truncate_start(self.log_start_offset)
        self.producers.drop_snapshots_before(self.log_start_offset)

    def remove_deleted(self, monotonic_ms: int) -> int:
        """Delete the files of segments whose delay has passed; return the number of segments."""
        with self.health:
            return self._deleted.remove_due(monotonic_ms)

    def _cut_head(self, head: Removed, now: Moment) -> None:
        """Replace the first segment by a new file without its head."""
        segment = self.segments[0]
        if segment is self.active:
            self.roll(now.monotonic_ms)
        rest = self.new_segment(head.end_offset)
        position = head.size
        while position < segment.size:
            piece = segment.log.read_at(position, min(_COPY_BYTES, segment.size - position))
            rest.log.write_at(position - head.size, piece)
            position += len(piece)
        rest.take_log(segment.indexes.transactions(head.end_offset, self.log_end_offset))
        self.replace([segment], rest, now)

    # ---- exchanging segments

    def new_segment(self, base_offset: int) -> Segment:
        """Make an empty segment that is not part of the log yet (`.cleaned`): fill it, then `replace` others by it.

        Append record sets to it, or write its log and call its `take_log`.
        """
        return Segment.create(self.files, self.folder, base_offset, self.config, suffix=CLEANED)

    def replace_log(self, old: Segment, path: str, now: Moment) -> None:
        """Replace the log of a closed segment by the file at `path`, as `replace` does; its indexes stay.

        The file has sound entries in place of damaged ones, all at the same positions.
        """
        assert old in self.segments[:-1]
        with self.health:
            new = old.with_log(path)
        # An index `.swap` without its log would have the old indexes deleted at a start, and the damaged log walked.
        self.replace([old], new, now, log_first=True)

    def replace(self, old: Sequence[Segment], new: Segment, now: Moment, *, log_first: bool = False) -> None:
        """Replace `old`, adjacent segments that are not active, by `new`: after a crash the log has the one or the
        other.

        `new` comes from `new_segment`; its offsets lie within those of `old`. Segments of `old` that retention deleted
        meanwhile are left out. `log_first`: the new log is durably named `.swap` before its indexes. A crash before
        `new` is durably named `.swap` leaves the old ones, or the new one if all of its names were durable. A later
        crash leaves the new one. No sync is needed before: the old ones are whole.
        """
        with self.health:
            old = [each for each in old if each in self.segments]
            assert self.active not in old
            modified = self.files.modified_ms(old[-1].path(LOG)) if old else now.date_ms
            new.finish()
            self.files.set_modified_ms(new.path(LOG), modified)
            new.sync()
            # Crash order, with the state that a start finds at each step. Before the first sync of the folder: the old
            # segments, and `.cleaned` files, which are deleted. After it: a complete `.swap`, which wins over old
            # segments in its range, whatever their names; so the renames of the old ones may be durable in any subset.
            # Before the final rename they must all be durable: otherwise the new log could appear under its final name
            # beside an old segment, and offsets would exist twice. Kafka's broker understands each of these states as
            # well.
            new.names.rename(SWAP, log_first=log_first)
            self.files.sync_directory(self.folder)  # from here on a crash leaves the new segment
            at = self.segments.index(old[0]) if old else 0
            # the first one first: otherwise records deleted by a tombstone could come back without the tombstone
            for segment in old:
                segment.names.rename(DELETED, snapshot=segment.base_offset != new.base_offset, log_first=True)
                self._deleted.keep(segment, now.monotonic_ms + self.config.file_delete_delay_ms)
            # otherwise an old segment's transaction index could remain beside the new log
            self.files.sync_directory(self.folder)
            new.names.rename("")
            self.files.sync_directory(self.folder)  # otherwise the next exchange could find this `.swap` beside its own
            self.segments[at : at + len(old)] = [new]
