"""Check logs: each entry, each file beside the log, and whether they match.

Damage does not end the check: the walk of log/files/resync.py continues. Nothing is written, and no damage raises an
exception. Memory does not grow with the log.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from magicbyte.access.workers import worker_threads
from magicbyte.engine.codecs import Codec, Lz4Header, lz4_header_checksum
from magicbyte.engine.codecs.lz4 import HEADER as LZ4_HEADER
from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError, TruncatedLogError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.directory import LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, log_directories
from magicbyte.engine.log.files.filesystem import read_whole
from magicbyte.engine.log.files.left_out import in_use, left_out
from magicbyte.engine.log.files.missing import CheckpointedOffsets, missing_of, missing_partitions
from magicbyte.engine.log.files.names import MAX_RELATIVE
from magicbyte.engine.log.files.partitions import choose, recovery_offset
from magicbyte.engine.log.files.producer_state import LeaderEpochs
from magicbyte.engine.log.files.reader import Buffers, decode_chunk, read_chunks
from magicbyte.engine.log.files.resync import (
    Displaced,
    Gap,
    Outlier,
    RowOrder,
    Sound,
    first_offset_at,
    known_lasts,
    walk,
)
from magicbyte.engine.log.files.segment_ranges import segment_ranges
from magicbyte.engine.records.arrays import at_each_byte
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions
from magicbyte.engine.records.enriched import EnrichedMessage
from magicbyte.engine.records.entry import parse_entry
from magicbyte.engine.records.extent import last_offsets, max_timestamps
from magicbyte.engine.records.header import extent_of
from magicbyte.engine.records.layout import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME_BIT,
    PARTITION_LEADER_EPOCH,
    RECORD_BATCH_OVERHEAD,
    Dialect,
)
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.records.proof import doubtful_rows
from magicbyte.engine.records.scan import BatchTable, scan
from magicbyte.engine.sentinels import NO_OFFSET, NO_TIMESTAMP
from magicbyte.tools.offline.findings import (
    DELETE,
    FIX_LZ4,
    LIMIT,
    LOOK,
    NOTHING,
    ORDER,
    READ,
    REBUILD,
    RENAME,
    SALVAGE,
    SPLIT,
    TORN,
    WAIT,
    Depth,
    Finding,
    Severity,
    of_left_out,
    of_missing,
)
from magicbyte.tools.offline.verify_derived import TransactionCheck

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import DirectoryFiles, FoundLogs, PartitionDirectory, SegmentFiles
    from magicbyte.engine.log.files.indexes import OffsetIndex, TimeIndex, TransactionIndex
    from magicbyte.engine.log.files.segment_ranges import SegmentRange
    from magicbyte.engine.ports import ReadableFile, TopicPartition
    from magicbyte.engine.records.columns import RecordColumns

    Int64s = np.ndarray[Any, np.dtype[np.int64]]

_WAITING = 4  # queued chunks, so that no thread is idle
_WALKED = 6  # additional buffers: of the walk, its read-ahead, and one being released
_FRAME = 19  # the largest LZ4 frame header
_NONE = -(1 << 62)
_CORRECT = np.frombuffer(LZ4_HEADER[Lz4Header.CORRECT], np.uint8)


def verify(
    partitions: Iterable[PartitionDirectory],
    *,
    depth: Depth = Depth.USUAL,
    dialect: Dialect | None = None,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
    threads: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Finding]:
    """Yield all findings, partition by partition and segment by segment, by position; then those of log directories.

    `dialect` overrides that of the folders. Entries of more than `limit` bytes, or that decompress to more, are
    findings. `threads` decode when DEEP. `progress` receives the bytes checked.
    """
    chosen = list(partitions)
    kernel.expect(sum(each.size for each in chosen))
    known, ends = CheckpointedOffsets(), dict[str, int]()
    buffers = Buffers(kept=max(threads, _WAITING) + _WALKED)
    with worker_threads(threads, "magicbyte-verify") as pool:
        for partition in chosen:
            work = PartitionCheck(
                partition, depth, dialect or partition.dialect, limit, pool, threads=threads, buffers=buffers,
                known=known, progress=progress,
            )  # fmt: skip
            yield from work.check()
            ends[partition.path] = work.end_offset
    if depth is not Depth.QUICK:
        for directory in log_directories(chosen):
            yield from check_log_directory(directory, ends)


def verify_all(
    logs: FoundLogs,
    topics: Collection[str] = (),
    *,
    depth: Depth = Depth.USUAL,
    dialect: Dialect | None = None,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
    threads: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Finding]:
    """Yield the findings of `verify` for the logs in use, then folders that are not checked and missing partitions.

    `topics`: check only these. Other arguments as in `verify`.
    """
    chosen = choose(in_use(logs.partitions, quorum=True), topics)
    yield from verify(chosen, depth=depth, dialect=dialect, limit=limit, threads=threads, progress=progress)
    for folder in left_out(logs.partitions, topics, quorum=True):
        yield of_left_out(folder)
    known = CheckpointedOffsets()
    for directory in logs.directories:
        for missing in missing_partitions(directory, logs.partitions, known, topics):
            yield of_missing(missing)


class _Run(NamedTuple):
    """Adjacent entries of a file, with ascending offsets. `row`: as in Sound."""

    position: int
    end: int
    first: int
    last: int
    row: int


class _Segment(Struct):
    """The state of the walk over one segment."""

    path: str
    findings: list[Finding] = field(default_factory=list)
    main: list[_Run] = field(default_factory=list)  # with ascending offsets
    back: list[_Run] = field(default_factory=list)  # with offsets not above all earlier ones
    last: int = NO_OFFSET  # of the last entry
    largest_timestamp: int = NO_TIMESTAMP
    epoch: int = -1
    epoch_before: int = -1
    lz4: dict[str, list[int]] = field(default_factory=dict)  # positions by finding

    def displace(self, row: int, last: int) -> None:
        """Report the runs from row number `row` on as out of order.

        The entries after them continue after offset `last`.
        """
        while self.main and self.main[-1].row >= row:
            run = self.main.pop()
            expected = f"> {last}, and below those after it"
            self.findings.append(_out_of_order(self.path, expected, run.position, run.end, (run.first, run.last)))


class PartitionCheck:
    """The check of one partition: `segment` for each of its segments, in order, then the files `beside` them.

    Chunks are decoded by `pool`, which has `threads` threads. `end_offset`, `epochs` and `ends_with_batch` (None: no
    entries) are those of the segments so far.
    """

    def __init__(
        self,
        partition: PartitionDirectory,
        depth: Depth,
        dialect: Dialect,
        limit: int,
        pool: ThreadPoolExecutor,
        *,
        threads: int = 1,
        buffers: Buffers | None = None,
        known: CheckpointedOffsets | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.known = CheckpointedOffsets() if known is None else known
        self.partition, self.depth, self.dialect, self.limit = partition, depth, dialect, limit
        self.progress, self.pool, self.threads = progress, pool, threads
        self.buffers = Buffers(kept=max(threads, _WAITING) + _WALKED) if buffers is None else buffers
        self.ranges = segment_ranges(partition, dialect, limit)
        self.end_offset = self.ranges[0].limits.low if self.ranges else 0
        self.reached_offset = self.end_offset  # the end with damaged entries whose offsets are known
        self.epochs = LeaderEpochs()
        self.ends_with_batch: bool | None = None
        self.transactions = TransactionCheck()
        self._recovery = recovery_offset(partition, self.known)

    def check(self) -> Iterator[Finding]:
        """Yield the findings of all files of the partition."""
        for each in self.ranges:
            yield from self.segment(each)
        yield from self.beside()

    def follow(self, end_offset: int, epochs: LeaderEpochs, *, ends_with_batch: bool | None) -> None:
        """Apply the results of the next segments, which another worker has checked."""
        self.end_offset = max(self.end_offset, end_offset)
        self.epochs.follow(epochs)
        if ends_with_batch is not None:
            self.ends_with_batch = ends_with_batch

    # ---- a segment

    def segment(self, checked: SegmentRange) -> list[Finding]:
        """Return the findings of the next segment, one of `ranges`, by path and position."""
        return sorted(self._segment(checked), key=lambda finding: (finding.path, finding.position or 0))

    def _segment(self, checked: SegmentRange) -> list[Finding]:
        segment = checked.segment
        state = _Segment(segment.log.path, last=self.end_offset - 1)
        is_last = segment is self.partition.segments[-1]
        indexes = None if self.depth is Depth.QUICK else _Indexes(self.partition, segment)
        pending: deque[Future[list[Finding]]] = deque()
        gaps: list[Gap] = []
        ahead = self.pool if self.threads > 1 else None
        with self.partition.files.open(segment.log.path) as file:
            limits = checked.limits
            if checked.misnamed is not None:
                limits = replace(limits, low=max(limits.low, self.end_offset))
            for event in walk(file, limits, self.dialect, pool=ahead, buffers=self.buffers):
                if isinstance(event, Gap):
                    self.progress(event.end - event.position)
                    gaps.append(event)
                elif isinstance(event, Outlier):
                    expected = f"> {event.last}, and below those after it"
                    state.findings.append(_out_of_order(state.path, expected, event.position, event.end, event.offsets))
                    last = state.main.pop()
                    if last.position < event.position:
                        state.main.append(last._replace(end=event.position, last=event.last))
                elif isinstance(event, Displaced):
                    state.displace(event.row, event.last)
                else:
                    self.progress(len(event.view))
                    if event.order is RowOrder.MAIN:
                        self._close_gaps(state, gaps, event.first - 1, is_last=is_last)
                    self._entries(state, event, indexes, pending)
            state.findings += _disorder(file, state, self.dialect, self.limit)
        self._close_gaps(state, gaps, None, is_last=is_last)
        for task in pending:
            state.findings += task.result()
        state.findings += _lz4_findings(state)
        base = segment.base_offset if checked.misnamed is None else 0
        self.end_offset = max(self.end_offset, base, state.last + 1)
        if indexes is not None:
            is_sound = not any(each.path == state.path and each.severity is Severity.ERROR for each in state.findings)
            is_trusted = self._recovery is None or self.end_offset <= self._recovery
            is_closed = is_trusted and (not is_last or self.partition.log_directory is not None)
            state.findings += indexes.findings(state, is_sound=is_sound, is_closed=is_closed)
            if indexes.has_transactions:
                severity = Severity.ERROR if is_trusted else Severity.WARNING
                state.findings += self.transactions.segment(
                    state.path, indexes.transactions, severity, is_sound=is_sound
                )
        state.findings += _name_findings(checked, state.last)
        return state.findings

    def _entries(
        self, state: _Segment, sound: Sound, indexes: _Indexes | None, pending: deque[Future[list[Finding]]]
    ) -> None:
        """Check one piece of a row: its order, its headers, and, in a thread, its records."""
        run = _Run(sound.position, sound.end, sound.first, sound.last, sound.row)
        if sound.order is RowOrder.MAIN:
            state.main.append(run)
        elif sound.order is RowOrder.BACK:
            state.back.append(run)
        else:
            expected = "one that no other segment has" if sound.order is RowOrder.OUTSIDE else f"> {state.last}"
            state.findings.append(_out_of_order(state.path, expected, run.position, run.end, (run.first, run.last)))
        if self.depth is Depth.QUICK:
            state.last = max(state.last, sound.last) if sound.order is RowOrder.MAIN else state.last
            return
        table = scan(sound.view, dialect=self.dialect)
        self._headers(state, sound.position, table)
        if sound.order is RowOrder.MAIN:
            if indexes is not None:
                indexes.entries(sound.position, table, state.last)
            self.epochs.append(table)
            self.transactions.append(table)
            self.ends_with_batch = bool(len(table)) and int(table.magic[len(table) - 1]) == 2
            state.last = max(state.last, sound.last)
        if self.depth is Depth.DEEP:
            chunk = Chunk(state.path, sound.position, table)
            pending.append(self.pool.submit(_records, chunk, self.limit))
            if len(pending) > max(self.threads, _WAITING):
                state.findings += pending.popleft().result()

    def _headers(self, state: _Segment, position: int, table: BatchTable) -> None:
        """Check the header fields of v2 batches, and the header checksums of LZ4 frames."""
        magic = np.asarray(table.magic, np.int64)
        batches = np.flatnonzero(magic == 2)
        if len(batches):
            self._leader_epochs(state, position, table, batches)
            delta = table.gather(LAST_OFFSET_DELTA, batches)
            count = np.asarray(table.count, np.int64)[batches]
            wrong = (delta < 0) | (count < 0) | (count > delta + 1)
            for at in np.flatnonzero(wrong).tolist():
                row = int(batches[at])
                offset = int(table.offset[row])
                state.findings.append(
                    Finding(
                        Severity.ERROR,
                        state.path,
                        "record count",
                        f"0 to {int(delta[at]) + 1}, as the last offset delta allows",
                        str(int(count[at])),
                        READ,
                        position + int(table.position[row]),
                        position + int(table.position[row]) + int(table.size[row]),
                        (offset, offset + max(int(delta[at]), 0)),
                    )
                )
        self._lz4_headers(state, position, table, magic)

    def _leader_epochs(self, state: _Segment, position: int, table: BatchTable, batches: Int64s) -> None:
        """Find decreasing leader epochs, which no checksum covers. Of three adjacent ones the odd one is wrong."""
        epochs = table.gather(PARTITION_LEADER_EPOCH, batches)
        before = state.epoch
        if (epochs >= np.maximum.accumulate(np.concatenate(([before], epochs[:-1])))).all():
            state.epoch_before, state.epoch = (int(epochs[-2]) if len(epochs) > 1 else before), int(epochs[-1])
            return
        known = [state.epoch_before, before]
        for at, epoch in enumerate(epochs.tolist()):
            if epoch < known[-1]:
                high = epoch >= known[-2] and at > 0
                wrong = at - 1 if high else at
                row = int(batches[wrong])
                first = int(table.offset[row])
                least = f">= {known[-1]}" if not high else f"{known[-2]} to {epoch}"
                last = extent_of(table.buffer, int(table.position[row]))[1]
                place = position + int(table.position[row])
                end = place + int(table.size[row])
                found = str(int(epochs[wrong]))
                state.findings.append(
                    Finding(Severity.ERROR, state.path, "leader epoch", least, found, LOOK, place, end, (first, last))
                )
                if not high:
                    continue
                known.pop()
            known = [known[-1], epoch]
        state.epoch_before, state.epoch = known[0], known[-1]

    def _lz4_headers(self, state: _Segment, position: int, table: BatchTable, magic: Int64s) -> None:
        rows = np.flatnonzero(table.codec == Codec.LZ4)
        size = np.asarray(table.size, np.int64)[rows]
        usual = (magic[rows] == 2) & (size >= RECORD_BATCH_OVERHEAD + len(_CORRECT))
        if usual.any():
            starts = np.asarray(table.position, np.int64)[rows[usual]] + RECORD_BATCH_OVERHEAD
            frames = at_each_byte(table.buffer, f"V{len(_CORRECT)}")[starts]
            usual[usual] = (frames.view(np.uint8).reshape(-1, len(_CORRECT)) == _CORRECT).all(axis=1)
        rows = rows[~usual]
        for row in rows.tolist():
            start = int(table.position[row])
            entry = table.buffer[start : start + int(table.size[row])]
            frame = entry[RECORD_BATCH_OVERHEAD:][:_FRAME] if magic[row] == 2 else _wrapper_frame(entry, self.dialect)
            kind = lz4_header_checksum(frame)
            if magic[row] > 0 and kind is Lz4Header.BROKEN:
                state.lz4.setdefault(f"lz4 header checksum of magic {magic[row]}", []).append(position + start)
            elif magic[row] == 0 and kind is Lz4Header.CORRECT:
                state.lz4.setdefault("lz4 header checksum of magic 0", []).append(position + start)

    def _close_gaps(self, state: _Segment, gaps: list[Gap], last: int | None, *, is_last: bool) -> None:
        """Turn `gaps` into findings; the log continues after offset `last`, or ends."""
        for gap in gaps:
            error = gap.error
            offsets = error.offsets if last is None else (gap.last + 1, last) if gap.last < last else None
            if offsets is not None:
                self.reached_offset = max(self.reached_offset, offsets[1] + 1)
            advice = SALVAGE
            if isinstance(error, TruncatedLogError) and is_last:
                advice = TORN
            elif isinstance(error, BatchTooLargeError) and error.found == gap.end - gap.position:
                advice = LIMIT
            state.findings.append(_of_error(error, advice, state.path, gap.position, gap.end, offsets))
        gaps.clear()

    # ---- files beside the segments

    def beside(self) -> Iterator[Finding]:
        """Yield the findings of all files except those of segments: when QUICK, only of what is missing."""
        partition = self.partition
        lost = missing_of(partition, self.known, max(self.end_offset, self.reached_offset))
        yield from map(of_missing, lost)
        if self.depth is Depth.QUICK:
            return
        last_base = partition.segments[-1].base_offset if partition.segments else 0
        for offset in partition.snapshots:
            path = partition.snapshots[offset].path
            try:
                snapshot = partition.snapshot(offset)
            except CorruptRecordError as error:
                yield _of_error(error, REBUILD, path)
                continue
            for producer in snapshot.producers:
                if producer.last_offset >= offset:
                    yield _beyond(
                        path,
                        f"last offset of producer {producer.producer_id}",
                        offset - 1,
                        producer.last_offset,
                        REBUILD,
                    )
        yield from self._epoch_file()
        try:
            partition.metadata()
        except CorruptRecordError as error:
            yield _of_error(error, LOOK, partition.texts[checkpoints.PARTITION_METADATA].path)
        for leftover in partition.leftovers:
            is_deleted = leftover.name.endswith(".deleted")
            severity = Severity.NOTE if is_deleted else Severity.WARNING
            what = "file that was being deleted" if is_deleted else "file of unfinished work"
            yield Finding(severity, leftover.path, what, "none", f"{leftover.size} bytes", WAIT)
        without_log = {each.path.removesuffix(LOG) for each in lost}
        for orphan in partition.orphans:
            if partition.segments and orphan.path.rpartition(".")[0] not in without_log:
                yield Finding(Severity.WARNING, orphan.path, "index", "one of a .log file", "no such .log", DELETE)
        for other in partition.others:
            found = "a folder" if other.is_directory else "another file"
            yield Finding(Severity.NOTE, other.path, "name", "that of a file of Kafka", found, NOTHING)
        for segment in partition.segments:
            if OFFSET_INDEX not in segment.companions and self.dialect is Dialect.KAFKA:
                found = "none" if segment.base_offset < last_base else "none of the last segment"
                yield Finding(Severity.WARNING, segment.log.path, "offset index", "one", found, REBUILD)

    def _epoch_file(self) -> Iterator[Finding]:
        """Compare the leader epochs of the checkpoint with those of the batches."""
        partition = self.partition
        entry = partition.texts.get(checkpoints.LEADER_EPOCHS)
        if entry is None:
            return
        try:
            noted = partition.leader_epochs() or []
        except CorruptRecordError as error:
            yield _of_error(error, LOOK, entry.path)
            return
        for (epoch, start), known in self.epochs.unlike(noted) if self.ends_with_batch else ():
            found = "no such epoch" if known is None else f"from offset {known} on"
            expected = f"epoch {epoch} from offset {start} on, or from before it"
            yield Finding(
                Severity.ERROR, entry.path, "leader epochs", expected, found, LOOK, None, None, (start, start)
            )


class _Indexes:
    """The indexes of one segment, compared with its entries as they are walked."""

    def __init__(self, partition: PartitionDirectory, segment: SegmentFiles) -> None:
        self.segment = segment
        self.found: list[Finding] = []
        self.offsets: OffsetIndex | None = self._read(partition.offset_index, segment)
        self.times: TimeIndex | None = self._read(partition.time_index, segment)
        self.transactions: TransactionIndex | None = self._read(partition.transaction_index, segment)
        self._read(partition.enriched_index, segment)
        # for each entry of the offset index: the last offset before its position, _NONE if no entry begins there
        self.before = np.full(0 if self.offsets is None else len(self.offsets), _NONE, np.int64)
        # for each entry of the time index: the max timestamp up to its offset; known for `timed` of them
        self.largest = np.full(0 if self.times is None else len(self.times), NO_TIMESTAMP, np.int64)
        self.timed = 0
        self.largest_timestamp = NO_TIMESTAMP
        self.unclosed = [
            entry.path
            for suffix, size in ((".index", 8), (".timeindex", 12))
            if (entry := segment.companions.get(suffix)) is not None
            and entry.size > size
            and not any(read_whole(partition.files, entry.path)[-size:])
        ]

    def _read(self, read: Callable[[SegmentFiles], Any], segment: SegmentFiles) -> Any:
        try:
            return read(segment)
        except CorruptRecordError as error:
            self.found.append(_of_error(error, REBUILD, error.path or segment.log.path))
            return None

    def entries(self, position: int, table: BatchTable, before: int) -> None:
        """Add entries at `position` of the segment, which follow offset `before`."""
        try:
            lasts = last_offsets(table)
            timestamps = max_timestamps(table)
        except CorruptRecordError:  # an enriched wrapper that cannot be decompressed: reported by DEEP
            return
        if self.offsets is not None and len(self.offsets):
            starts = np.asarray(table.position, np.int64) + position
            low, high = np.searchsorted(self.offsets.positions, [position, position + table.end])
            indexed = self.offsets.positions[low:high]
            rows = np.minimum(np.searchsorted(starts, indexed), len(starts) - 1)
            in_front = np.concatenate(([before], lasts[:-1]))[rows]
            self.before[low:high] = np.where(starts[rows] == indexed, in_front, _NONE)
        if self.times is not None and len(self.times):
            running = np.maximum(np.maximum.accumulate(timestamps), self.largest_timestamp)
            end = int(np.searchsorted(self.times.offsets, lasts[-1], "right"))
            if end > self.timed:
                self.largest[self.timed : end] = running[np.searchsorted(lasts, self.times.offsets[self.timed : end])]
                self.timed = end
        self.largest_timestamp = max(self.largest_timestamp, int(timestamps.max()))

    @property
    def has_transactions(self) -> bool:
        """Whether the transaction index can be compared with the log: it is readable, or there is none."""
        return self.transactions is not None or TRANSACTION_INDEX not in self.segment.companions

    def findings(self, state: _Segment, *, is_sound: bool, is_closed: bool) -> list[Finding]:
        """Return the findings, after all entries.

        `is_sound`: whether the segment has no error. `is_closed`: whether a broker has closed it and trusts its
        indexes.
        """
        findings = self.found
        for path in self.unclosed:
            findings.append(
                Finding(Severity.NOTE, path, "index", "closed", "room for more: its broker did not close it", NOTHING)
            )
        advice = REBUILD if is_sound else SALVAGE
        findings += self._offset_findings(state, advice)
        findings += self._time_findings(state, advice)
        is_complete = self.times is not None and not any(each.path.endswith(TIME_INDEX) for each in findings)
        if is_sound and is_closed and is_complete and self.largest_timestamp > NO_TIMESTAMP:
            assert self.times is not None
            findings += self._time_end(self.times)
        return findings

    def _time_end(self, times: TimeIndex) -> Iterator[Finding]:
        """Check the last entry, which a broker takes for the largest timestamp when it deletes segments by time."""
        path, expected = self.segment.companions[TIME_INDEX].path, f"an entry for {self.largest_timestamp}, the largest"
        if not len(times):
            found = "no entries: a broker takes the time of the file"
            yield Finding(Severity.WARNING, path, "end of the time index", expected, found, REBUILD)
        elif times.timestamps[-1] < self.largest_timestamp:
            found = f"{times.timestamps[-1]}: a broker deletes the segment too early"
            yield Finding(Severity.ERROR, path, "end of the time index", expected, found, REBUILD)

    def _offset_findings(self, state: _Segment, advice: str) -> Iterator[Finding]:
        if self.offsets is None or not len(self.offsets):
            return
        path, offsets, positions = (
            self.segment.companions[OFFSET_INDEX].path,
            self.offsets.offsets,
            self.offsets.positions,
        )
        if len(offsets) == 1 and positions[0] == 0 and offsets[0] == self.segment.base_offset:
            return  # Kafka treats such an index as empty
        most = np.append(self.before[1:], state.last)
        most[most == _NONE] = state.last
        wrong = (self.before == _NONE) | (offsets <= self.before) | (offsets > most)
        for at in np.flatnonzero(wrong).tolist():
            span, offset, position = (at * 8, at * 8 + 8), int(offsets[at]), int(positions[at])
            if self.before[at] == _NONE:
                expected = "the position of an entry"
                yield Finding(Severity.ERROR, path, "offset index", expected, str(position), advice, *span)
            else:
                expected = f"{self.before[at] + 1} to {most[at]} for position {position}"
                offsets_of = (offset, offset)
                yield Finding(Severity.ERROR, path, "offset index", expected, str(offset), advice, *span, offsets_of)

    def _time_findings(self, state: _Segment, advice: str) -> Iterator[Finding]:
        if self.times is None:
            return
        path, timestamps, offsets = self.segment.companions[TIME_INDEX].path, self.times.timestamps, self.times.offsets
        unlike = self.largest != timestamps
        unlike[self.timed :] = True
        for at in np.flatnonzero(unlike).tolist():
            span, offset, timestamp, most = (
                (at * 12, at * 12 + 12),
                int(offsets[at]),
                int(timestamps[at]),
                self.largest[at],
            )
            severity, expected, found, todo = Severity.ERROR, f"an offset up to {state.last}", offset, advice
            if at < self.timed:
                expected, found = f"{most}, the largest timestamp up to offset {offset}", timestamp
                if most < timestamp:  # look-ups begin earlier than necessary, and succeed
                    severity, todo = Severity.NOTE, NOTHING
            yield Finding(severity, path, "time index", expected, str(found), todo, *span, (offset, offset))


def _records(chunk: Chunk, limit: int) -> list[Finding]:
    """Decode the entries of `chunk` and compare their records with their headers."""
    rows = doubtful_rows(chunk.table, limit)
    errors: list[CorruptRecordError] = []
    findings: list[Finding] = []
    table = chunk.table
    # which have checksums of their own; those of batches were verified
    inner = bool((np.asarray(table.magic, np.int64) < 2).any())
    usual = DecodeOptions(keys=False, values=False, headers=False, verify=inner, control=True, limit=limit)
    for columns in decode_chunk(chunk, rows, replace(usual, strict=True), errors.append):
        findings += _against_headers(chunk, columns)
    for error in errors:
        row = int(
            np.searchsorted(np.asarray(table.position, np.int64), (error.position or 0) - chunk.position, "right")
        )
        end = chunk.position + int(table.position[row - 1] + table.size[row - 1])
        if not isinstance(error, BatchTooLargeError):
            still: list[CorruptRecordError] = []
            of_row = [each for columns in decode_chunk(chunk, [row - 1], usual, still.append)
                      for each in _against_headers(chunk, columns)]  # fmt: skip
            if not still:  # Kafka's readers do not verify this
                findings += of_row
                note = _of_error(error, NOTHING, chunk.path, error.position, end, error.offsets)
                findings.append(replace(note, severity=Severity.NOTE))
                continue
        lz4 = error.what.startswith("lz4 header checksum")
        advice = FIX_LZ4 if lz4 else LIMIT if isinstance(error, BatchTooLargeError) else READ
        findings.append(_of_error(error, advice, chunk.path, error.position, end, error.offsets))
    return findings


def _against_headers(chunk: Chunk, columns: RecordColumns) -> Iterator[Finding]:
    """Yield a finding for each entry whose header disagrees with the offsets or timestamps of its records."""
    table = chunk.table
    offset, timestamp = np.asarray(columns.offset, np.int64), np.asarray(columns.timestamp, np.int64)
    if not len(offset) or table.dialect is Dialect.ENRICHED:
        return
    falls = np.flatnonzero(offset[1:] <= offset[:-1])
    if len(falls):
        at = int(falls[0]) + 1
        wrong = int(offset[at])
        row = int(np.searchsorted(np.asarray(table.offset, np.int64), wrong))
        position = chunk.position + int(table.position[min(row, len(table) - 1)])
        expected = f"> {int(offset[at - 1])}"
        yield Finding(
            Severity.ERROR, chunk.path, "offset of a record", expected, str(wrong), READ, position, None, (wrong, wrong)
        )
        return
    lasts = last_offsets(table)
    rows = np.searchsorted(lasts, offset)
    begins = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
    largest = np.maximum.reduceat(timestamp, begins)
    headers = max_timestamps(table)
    attributes, magics = np.asarray(table.attributes, np.int64), np.asarray(table.magic, np.int64)
    for row, most in zip(rows[begins].tolist(), largest.tolist(), strict=True):
        if row >= len(lasts) or magics[row] == 0 or headers[row] == most:
            continue
        position = chunk.position + int(table.position[row])
        is_batch, compressed = magics[row] == 2, attributes[row] & CODEC_MASK
        if attributes[row] & LOG_APPEND_TIME_BIT or (is_batch and attributes[row] & DELETE_HORIZON_BIT):
            continue
        if is_batch or compressed:
            yield Finding(
                Severity.WARNING,
                chunk.path,
                "largest timestamp of a batch" if is_batch else "timestamp of a wrapper",
                f"{most}, the largest of its records",
                str(int(headers[row])),
                READ,
                position,
                position + int(table.size[row]),
                (int(table.offset[row]), int(lasts[row])),
            )


def _wrapper_frame(entry: memoryview, dialect: Dialect) -> bytes:
    """Return the first bytes of a wrapper's value, none without one."""
    try:
        view = parse_entry(entry, dialect)
        assert isinstance(view, MessageView | EnrichedMessage)
        return bytes((view.value or b"")[:_FRAME])
    except CorruptRecordError:  # reported by DEEP
        return b""


def _name_findings(checked: SegmentRange, last: int) -> Iterator[Finding]:
    """Yield a finding if the name of a segment excludes its first entries, or is too far below its last offset."""
    base, path = checked.segment.base_offset, checked.segment.log.path
    if checked.misnamed is not None:
        expected = f"{checked.misnamed}, its first offset"
        yield Finding(Severity.ERROR, path, "base offset in the file's name", expected, str(base), RENAME)
    elif last - base > MAX_RELATIVE:
        expected = f"up to {base + MAX_RELATIVE}, which its indexes can hold"
        yield Finding(Severity.WARNING, path, "last offset of the segment", expected, str(last), SPLIT)


def _lz4_findings(state: _Segment) -> Iterator[Finding]:
    for what, positions in state.lz4.items():
        if what.endswith("0"):
            wrong = f"the correct one, in {len(positions)} wrappers: consumers before 0.10 refuse them"
            yield Finding(
                Severity.NOTE, state.path, what, "the broken one of old clients", wrong, NOTHING, positions[0]
            )
        else:
            wrong = f"the broken one of old clients, in {len(positions)} entries: consumers refuse them"
            yield Finding(Severity.ERROR, state.path, what, "the correct one", wrong, FIX_LZ4, positions[0])


def _out_of_order(path: str, expected: str, position: int, end: int, offsets: tuple[int, int]) -> Finding:
    return Finding(Severity.ERROR, path, "offset", expected, str(offsets[0]), ORDER, position, end, offsets)


def _disorder(file: ReadableFile, state: _Segment, dialect: Dialect, limit: int) -> Iterator[Finding]:
    """Yield a finding for each block that is out of order: of two swapped blocks the smaller one.

    Entries whose offsets exist already are a duplicated block.
    """
    rows: dict[int, _Run] = {}
    for run in state.back:
        known = rows.get(run.row)
        rows[run.row] = run if known is None else known._replace(end=run.end, last=run.last)
    behind: dict[int, list[_Run]] = {}
    in_front: dict[int, tuple[_Run, int]] = {}
    for run, block, before in _before(file, state.main, rows.values(), dialect, limit):
        behind.setdefault(block.position, []).append(run)
        in_front[block.position] = block, before
    for position, runs in behind.items():
        block, before = in_front[position]
        are_missing = before < min(run.first for run in runs) and max(run.last for run in runs) < block.first
        if are_missing and block.end - block.position < sum(run.end - run.position for run in runs):
            expected = f"> {before}, and below those after it"
            yield _out_of_order(state.path, expected, block.position, block.end, (block.first, block.last))
        else:
            for run in runs:
                yield _out_of_order(state.path, f"> {block.last}", run.position, run.end, (run.first, run.last))


def _before(
    file: ReadableFile, main: list[_Run], runs: Iterable[_Run], dialect: Dialect, limit: int
) -> Iterator[tuple[_Run, _Run, int]]:
    """Yield each run, the preceding entries of `main` with higher offsets than its first, and the offset before.

    The runs are sorted by offset, so that each part of `main` is read at most once.
    """
    read, positions, lasts = -1, np.empty(0, np.int64), np.empty(0, np.int64)
    for run in sorted(runs, key=lambda each: each.first):
        end = bisect.bisect_left(main, run.position, key=lambda each: each.position)
        at = min(bisect.bisect_left(main, run.first, hi=end, key=lambda each: each.last), end - 1)
        if at != read:
            chunks = read_chunks(file, start=main[at].position, end=main[at].end, dialect=dialect, limit=limit)
            tables = [(chunk.position + np.asarray(chunk.table.position), known_lasts(chunk.table)) for chunk in chunks]
            positions, lasts = (np.concatenate(column) for column in zip(*tables, strict=True))
            read = at
        row = min(int(np.searchsorted(lasts, run.first)), len(lasts) - 1)
        before = int(lasts[row - 1]) if row else main[at - 1].last if at else NO_OFFSET
        position = int(positions[row])
        first = first_offset_at(file, position, dialect)
        yield run, main[end - 1]._replace(position=position, first=first), before


def _of_error(
    error: CorruptRecordError,
    advice: str,
    path: str,
    position: int | None = None,
    end: int | None = None,
    offsets: tuple[int, int] | None = None,
) -> Finding:
    place = error.position if position is None else position
    text = str(error.expected), str(error.found)
    return Finding(Severity.ERROR, error.path or path, error.what, *text, advice, place, end, offsets)


def _beyond(path: str, what: str, most: int, found: int, advice: str) -> Finding:
    return Finding(Severity.ERROR, path, what, f"up to {most}", str(found), advice)


def check_log_directory(directory: DirectoryFiles, ends: Mapping[str, int]) -> Iterator[Finding]:
    """Compare the checkpoints of a log directory with its partitions that were checked: `ends` by path of the folder.

    `missing_of` compares the end of each log with the offsets that it had reached.
    """
    for read in (directory.meta_properties, directory.clean_shutdown):
        try:
            read()
        except CorruptRecordError as error:
            yield _of_error(error, LOOK, error.path or directory.path)
    known: dict[str, dict[TopicPartition, int]] = {}
    for name in checkpoints.OFFSET_CHECKPOINTS:
        try:
            known[name] = directory.offsets(name) or {}
        except CorruptRecordError as error:
            yield _of_error(error, "a broker starts without it, but checks more", error.path or directory.path)
    for name in (checkpoints.LOG_START, checkpoints.CLEANER):
        for partition, offset in known.get(name, {}).items():
            if (end := ends.get(f"{directory.path}/{partition}")) is not None and offset > end:
                what = f"offset of {partition}"
                yield _beyond(directory.texts[name].path, what, end, offset, "records may be missing at the log's end")
    starts, marks = known.get(checkpoints.LOG_START, {}), known.get(checkpoints.HIGH_WATERMARK, {})
    for partition, start in starts.items():
        mark = marks.get(partition)
        if f"{directory.path}/{partition}" in ends and mark is not None and start > mark:
            path = directory.texts[checkpoints.LOG_START].path
            yield _beyond(path, f"log start offset of {partition}", mark, start, LOOK)
