"""Write partition folders and log directories that a broker opens like its own after a clean shutdown.

Each folder is built next to its final name and made durable before it is renamed, so a crash or a full disk leaves
under that name either nothing or the whole folder. Memory: the index entries of one segment, the producers, the leader
epochs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from msgspec.structs import replace

from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, TruncatedLogError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.checkpoints import CleanShutdown, PartitionMetadata
from magicbyte.engine.log.files.directory import INDEXES, LOG, SNAPSHOT, TRANSACTION_INDEX, discover
from magicbyte.engine.log.files.filesystem import clone_file, make_directory, replace_file, sync_directory
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules, SegmentIndexer
from magicbyte.engine.log.files.indexes import OffsetIndex, TimeIndex, TransactionIndex
from magicbyte.engine.log.files.names import MAX_RELATIVE
from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
from magicbyte.engine.log.files.producer_state import LeaderEpochs
from magicbyte.engine.log.files.reader import MAX_OFFSET, read_chunks
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import MARKER_BYTES, marker_of
from magicbyte.engine.records.extent import last_offsets
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import BatchTable, scan
from magicbyte.tools.offline.new_cluster import closing_markers, of_new_cluster

if TYPE_CHECKING:
    import uuid
    from io import FileIO
    from types import TracebackType

    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.indexes import Int64Array
    from magicbyte.engine.wire.checksum import Buffer
    from magicbyte.tools.offline.parts import WrittenSegment

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
_ROW_COLUMNS = ("position", "size", "magic", "attributes", "offset", "count")


class WrittenPartition(NamedTuple):
    """The result of a PartitionWriter. `end_offset` is the last offset + 1, or the base of an empty last segment."""

    folder: Path
    first_offset: int  # base of the first segment
    end_offset: int
    segments: int
    size: int  # bytes of all `.log` files
    ended_transactions: int = 0  # open at the end of a log for a new cluster


def temporary_name(folder: Path) -> Path:
    """Return the path at which a folder is built before it is renamed."""
    return folder.with_name(f".{folder.name}.part")


def give_name(folder: Path) -> None:
    """Rename a complete folder from its temporary to its final name, durably."""
    temporary_name(folder).rename(folder)
    sync_directory(folder.parent)


class PartitionWriter:
    """Write one partition folder: segments, indexes, snapshots, leader epochs, as Kafka `rules.version` does.

    Segments are rolled by `segment_bytes` and the rules' limits, as in Kafka; `topic_id` goes into
    `partition.metadata`. With `rules.recovering()` time indexes are those that Kafka builds when it recovers a log, and
    no record is read. Without it, in versions 0.11 to 3.7, they are those of a leader, for which some batches are
    decoded.

    A temporary folder of an earlier run is replaced. With `resume_at` it is continued: `checkpoint` of that run must
    have made the segments below base `resume_at` durable, and the caller rolls to this base first. Raises
    LogDirectoryError if `folder` exists.

    `new_cluster`: entries are rewritten for a cluster without state of their leaders and producers (see
    new_cluster.py). Its topics have other ids, so there is no `partition.metadata`. Snapshots are empty, and
    transactions that are open at the end are aborted by markers in an additional segment, unless the log `is_part` of
    one.

    A context manager. Leaving it without `finish`, for an error or not, leaves the temporary folder for the next
    PartitionWriter of this folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rules: IndexRules = LATEST_RULES,
        segment_bytes: int = 1 << 30,
        topic: str | None = None,
        partition: int | None = None,
        topic_id: uuid.UUID | None = None,
        dialect: Dialect = Dialect.KAFKA,
        resume_at: int | None = None,
        new_cluster: bool = False,
        is_part: bool = False,
    ) -> None:
        self.folder = folder
        self._new_cluster = new_cluster and dialect is Dialect.KAFKA
        self._ends_transactions = self._new_cluster and not is_part
        self._ended_transactions = 0
        self.name = folder.name if topic is None else f"{topic}-{partition}"
        self._rules = rules = rules.of_dialect(dialect)
        entries = min(
            rules.max_index_bytes // OffsetIndex.ENTRY_SIZE, rules.max_index_bytes // TimeIndex.ENTRY_SIZE - 1
        )
        self._segment_bytes = min(segment_bytes, MAX_RELATIVE, entries * (rules.interval_bytes + 1))
        self._topic_id = None if self._new_cluster else topic_id
        self._dialect = dialect
        self._producers = rules.producer_states()
        self._epochs = LeaderEpochs(ends_with_older=rules.release.ends_epochs_with_older)
        self._has_batches = False
        self._log: FileIO | None = None
        self._indexer: SegmentIndexer | None = None
        self._base = self._end_offset = 0  # of the open segment; of the log so far
        self._segment_size = self._whole_size = 0
        self._bases: list[int] = []
        self._snapshots: list[int] = []
        self._is_complete = False
        if folder.exists():
            raise LogDirectoryError(f"{folder}: expected a new name, found a file or folder")
        self._temporary = temporary_name(folder)
        if resume_at is not None:
            self._resume(resume_at)
            return
        if self._temporary.exists():
            shutil.rmtree(self._temporary)
        self._temporary.mkdir(parents=True)

    @property
    def end_offset(self) -> int:
        """The last offset written + 1."""
        return self._end_offset

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def append(self, data: Buffer) -> None:
        """Write whole entries whose offsets follow those already written. A call costs about 0.1 ms: join small pieces.

        Raises CorruptRecordError, with the position in `data`, for a truncated or invalid entry, for one whose offsets
        do not follow those before it, and for a marker or wrapper whose content is needed and unreadable. The entries
        before the error may have been written: do not finish the partition then.
        """
        view = memoryview(data).toreadonly().cast("B")
        kernel.expect(self._whole_size + len(view))
        table = scan(view, dialect=self._dialect)
        if table.damage is not None:
            raise table.damage
        if table.end < len(view):
            expected = f"{table.need} bytes of an entry"
            raise TruncatedLogError(
                "end of the data", expected=expected, found=len(view) - table.end, position=table.end
            )
        if self._new_cluster and len(table):
            table = scan(of_new_cluster(table), dialect=self._dialect)
        if len(table):
            self._append(table)

    def roll(self, base_offset: int, *, keep_empty: bool = False) -> None:
        """Begin a segment at `base_offset`, which is not below the log end offset.

        An empty open segment is removed first, unless it has that base already, or `keep_empty`: compacted logs have
        empty segments.
        """
        assert base_offset >= self._end_offset, (base_offset, self._end_offset)
        if self._bases and self._segment_size == 0 and base_offset == self._base:
            return
        if self._bases and self._segment_size == 0 and not keep_empty:
            self._close_segment(keep=False)
            if self._base in self._snapshots:
                self._snapshots.remove(self._base)
                self._path(self._base, SNAPSHOT).unlink()
        else:
            self._close_segment()
        if self._bases:
            self._write_snapshot(base_offset, self._bases[-1])
        self._base = self._end_offset = base_offset
        self._segment_size = 0
        self._bases.append(base_offset)
        self._open_segment()

    def _open_segment(self) -> None:
        """Open the log file of the last segment, which is empty."""
        self._indexer = SegmentIndexer(self._base, self._rules, dialect=self._dialect, producers=self._producers)
        with self._named_errors():
            self._log = self._path(self._base, LOG).open("wb", buffering=0)  # unbuffered: closing it writes nothing

    def checkpoint(self) -> int:
        """Make the segments before the open one durable, for `resume_at` of its base. Return the bytes of their logs.

        Call it while the open segment, which `roll` began, is empty.
        """
        assert self._segment_size == 0, self._segment_size
        sync_directory(self._temporary)
        return self._whole_size

    def _resume(self, base_offset: int) -> None:
        """Reuse the durable segments below `base_offset`, and delete the files of later ones."""
        for path in self._temporary.iterdir():
            if not path.stem.isdecimal() or int(path.stem) >= base_offset:
                path.unlink()
        (unfinished,) = discover([str(self._temporary)])
        for segment in unfinished.segments:
            self._bases.append(segment.base_offset)
            self._base, self._segment_size = segment.base_offset, segment.log.size
            self._whole_size += segment.log.size
            self._end_offset = max(self._end_offset, segment.base_offset)
            with unfinished.files.open(segment.log.path) as file:
                for chunk in read_chunks(file, dialect=self._dialect):
                    self._take_over(chunk.table)
        self._snapshots = sorted(unfinished.snapshots)

    def _take_over(self, table: BatchTable) -> None:
        """Apply entries that are already written to the state of producers, epochs and offsets."""
        self._has_batches = bool(self._rules.has_producers and table.magic[len(table) - 1] == 2)
        if self._rules.has_producers:
            self._producers.append(table)
            self._epochs.append(table)
        self._end_offset = int(last_offsets(table)[-1]) + 1

    def adopt(self, segment: WrittenSegment) -> None:
        """Take in a segment that another writer made, with the same rules, on this file system.

        Its offsets follow those already written. Its log is linked and its indexes are copied, so another process can
        adopt it again if this one dies.
        """
        assert segment.base_offset >= self._end_offset, (segment.base_offset, self._end_offset)
        self._close_segment()
        if self._bases:
            self._write_snapshot(segment.base_offset, self._bases[-1])
        base = self._base = segment.base_offset
        self._bases.append(base)
        log = segment.folder / f"{base:020}{LOG}"
        if segment.size:
            _link(log, self._path(base, LOG))
        else:  # this writer may append to it, so no link
            clone_file(log, self._path(base, LOG))
        for suffix in INDEXES:
            made = segment.folder / f"{base:020}{suffix}"
            if suffix != TRANSACTION_INDEX and made.exists():
                clone_file(made, self._path(base, suffix))
        batches = [RecordBatch(memoryview(entry)) for entry in segment.producers]
        found = [self._producers.add(batch, marker_of(batch)) for batch in batches]
        if aborted := tuple(each for each in found if each is not None):
            self._put(self._path(base, TRANSACTION_INDEX), TransactionIndex(aborted).to_bytes())
        self._epochs.follow(segment.epochs)
        if segment.has_batches is not None:
            self._has_batches = self._rules.has_producers and segment.has_batches
        self._end_offset, self._segment_size = segment.end_offset, segment.size
        self._whole_size += segment.size

    def note_epoch(self, epoch: int) -> None:
        """Record the epoch of a leader that has written nothing yet, if it is above those of the batches.

        Does nothing for a new cluster, whose only leader epoch is the first.
        """
        if self._epochs.entries and not self._new_cluster:
            self._epochs.assign(epoch, self._end_offset)

    def complete(self) -> int:
        """Write the remaining files and make the folder durable under its temporary name. No append may follow.

        Returns the bytes of the logs.
        """
        if not self._bases:
            self.roll(0)
        if self._ends_transactions:
            self._end_transactions()
        self._close_segment()
        self._write_snapshot(self._end_offset, self._bases[-2] if len(self._bases) > 1 else self._bases[0])
        self._write_texts()
        sync_directory(self._temporary)
        self._is_complete = True
        return self._whole_size

    def _end_transactions(self) -> None:
        """Abort the open transactions, which would otherwise hold back the last stable offset and new producers."""
        markers = closing_markers(self._producers.snapshot(), self._end_offset)
        if markers:
            self.roll(self._end_offset)
            if self._log is None:  # an empty segment that was adopted
                self._open_segment()
            self.append(markers)
            self._ended_transactions = len(markers) // MARKER_BYTES

    def finish(self) -> WrittenPartition:
        """Complete the folder, if `complete` was not called, and rename it to its final name."""
        if not self._is_complete:
            self.complete()
        give_name(self.folder)
        return WrittenPartition(
            self.folder,
            self._bases[0],
            self._end_offset,
            len(self._bases),
            self._whole_size,
            self._ended_transactions,
        )

    def _path(self, offset: int, suffix: str) -> Path:
        return self._temporary / f"{offset:020}{suffix}"

    def _append(self, table: BatchTable) -> None:
        first, last = np.array(table.offset, np.int64), last_offsets(table)
        before = np.concatenate(([self._end_offset - 1], last[:-1]))
        wrong = (first <= before) | (last < first)
        if wrong.any():
            row = int(np.argmax(wrong))
            found = int(first[row])
            raise CorruptRecordError(
                "offset", expected=f"> {int(before[row])}", found=found, position=int(table.position[row])
            ).locate(offsets=(found, int(last[row])))
        self._has_batches = bool(self._rules.has_producers and table.magic[len(table) - 1] == 2)
        for start, end in self._spans(table, first, last):
            rows = slice(start, end)
            part = replace(table, **{name: getattr(table, name)[rows] for name in _ROW_COLUMNS})
            self._write(part, int(last[end - 1]))

    def _spans(self, table: BatchTable, first: Int64Array, last: Int64Array) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows, first and end, for one segment each. Rolls before each range but the first."""
        ends = np.asarray(table.position, np.int64) + np.asarray(table.size, np.int64)
        start = 0
        while start < len(table):
            begin = int(table.position[start])
            room = begin + self._segment_bytes - self._segment_size
            end = min(
                int(np.searchsorted(ends, room, "right")),
                int(np.searchsorted(last, min(self._base + MAX_RELATIVE, MAX_OFFSET), "right")),
            )
            if not self._bases or (end <= start and (self._segment_size or last[start] - self._base > MAX_RELATIVE)):
                self.roll(self._next_base(table, start, first, last))
                continue
            end = max(end, start + 1)  # an entry larger than a segment gets its own
            yield start, end
            start = end

    def _next_base(self, table: BatchTable, row: int, first: Int64Array, last: Int64Array) -> int:
        """Return the base of a segment that begins with `row`.

        Wrappers have no first offset: the lowest possible one.
        """
        wrapper = int(table.count[row]) < 0 and self._dialect is Dialect.KAFKA
        return max(self._end_offset, int(last[row]) - MAX_RELATIVE if wrapper else int(first[row]))

    def _write(self, table: BatchTable, last_offset: int) -> None:
        """Write the rows of `table` into the open segment."""
        assert self._log is not None
        assert self._indexer is not None
        begin = int(table.position[0])
        end = int(table.position[len(table) - 1] + table.size[len(table) - 1])
        self._indexer.append(table, self._segment_size - begin)
        if self._rules.has_producers:
            self._epochs.append(table)
        with self._named_errors():
            at = begin
            while at < end:
                at += self._log.write(table.buffer[at:end])
        self._segment_size += end - begin
        self._whole_size += end - begin
        self._end_offset = last_offset + 1

    def _close_segment(self, *, keep: bool = True) -> None:
        """Make the open segment durable, with its indexes; delete it unless `keep`."""
        if self._log is None or self._indexer is None:
            return
        if keep:
            for suffix, content in self._indexer.finish().files().items():
                self._put(self._path(self._base, suffix), content)
            with self._named_errors():
                os.fsync(self._log.fileno())
        self._log.close()
        self._log = self._indexer = None
        if not keep:
            self._path(self._base, LOG).unlink()
            self._bases.pop()

    def _write_snapshot(self, offset: int, second_newest: int) -> None:
        """Write the producers' state at `offset`. Delete the snapshots that a broker up to 2.7 would have deleted."""
        if not self._rules.has_producers:
            return
        known = ProducerSnapshot(()) if self._new_cluster else self._producers.snapshot()
        self._put(self._path(offset, SNAPSHOT), known.to_bytes())
        self._snapshots.append(offset)
        while not self._rules.release.keeps_all_snapshots and self._snapshots[0] < second_newest:
            self._path(self._snapshots.pop(0), SNAPSHOT).unlink()

    def _write_texts(self) -> None:
        """Write the files beside the segments: leader epochs, partition.metadata, dialect."""
        if self._has_batches or self._epochs.entries:
            self._put(
                self._temporary / checkpoints.LEADER_EPOCHS, checkpoints.format_leader_epochs(self._epochs.entries)
            )
        elif self._rules.has_producers and self._rules.release.makes_empty_epochs:
            self._put(self._temporary / checkpoints.LEADER_EPOCHS, b"")
        if self._topic_id is not None and self._rules.release.has_topic_ids:
            metadata = checkpoints.format_partition_metadata(PartitionMetadata(0, self._topic_id))
            self._put(self._temporary / checkpoints.PARTITION_METADATA, metadata)
        if self._dialect is not Dialect.KAFKA:
            self._put(self._temporary / checkpoints.MESSAGE_DIALECT, checkpoints.format_message_dialect(self._dialect))

    def _put(self, path: Path, content: bytes) -> None:
        """Write a file of the temporary folder, durably."""
        with self._named_errors(), path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Add to an OSError of a write, such as a full disk, the folder and how far the partition was written."""
        try:
            yield
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror}; written: {self._whole_size} bytes, offsets below {self._end_offset}",
                str(self._temporary),
            ) from error


def _link(log: Path, name: Path) -> None:
    """Give a log another name, or copy it if the file system has no hard links."""
    try:
        name.hardlink_to(log)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        clone_file(log, name)


class LogDirectoryWriter:
    """Write a log directory `out`: partitions in any order or in parallel, then the checkpoints.

    After an interruption, another run continues: finished partitions have their final names and are kept.
    """

    def __init__(self, out: Path, rules: IndexRules = LATEST_RULES) -> None:
        self.out = out
        self._rules = rules
        make_directory(out)

    def is_finished(self, topic: str, partition: int) -> bool:
        """Return whether the partition has been written, in this run or an earlier one."""
        return self._folder(topic, partition).exists()

    def partition(
        self,
        topic: str,
        partition: int,
        *,
        segment_bytes: int = 1 << 30,
        topic_id: uuid.UUID | None = None,
        dialect: Dialect = Dialect.KAFKA,
        resume_at: int | None = None,
        new_cluster: bool = False,
        is_part: bool = False,
    ) -> PartitionWriter:
        """Return the writer of an unfinished partition. Parameters as in PartitionWriter."""
        return PartitionWriter(
            self._folder(topic, partition),
            rules=self._rules,
            segment_bytes=segment_bytes,
            topic_id=topic_id,
            dialect=dialect,
            resume_at=resume_at,
            new_cluster=new_cluster,
            is_part=is_part,
        )

    def finish(
        self,
        meta_properties: bytes | None = None,
        log_start_offsets: Mapping[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, int]:
        """Write the checkpoints of all partitions in `out`, and last the clean shutdown marker.

        `meta_properties`: the content of that file; None if the broker creates its own. `log_start_offsets`: those
        above the base of the first segment. Returns the end offsets.
        """
        ends, starts = {}, {}
        for found in discover([str(self.out)]) if any(self.out.iterdir()) else []:
            if found.topic is not None and found.partition is not None:
                key = TopicPartition(found.topic, found.partition)
                ends[key] = end_offset(found)
                start = (log_start_offsets or {}).get(key, 0)
                if found.segments and start > found.segments[0].base_offset:
                    starts[key] = start
        write_checkpoints(self.out, self._rules, ends, starts, meta_properties)
        return ends

    def _folder(self, topic: str, partition: int) -> Path:
        return self.out / f"{topic}-{partition}"


def write_checkpoints(
    out: Path,
    rules: IndexRules,
    ends: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    meta_properties: bytes | None = None,
) -> None:
    """Write the checkpoints of partitions that end at `ends`, and last the clean shutdown marker.

    `starts`: log start offsets above the base of the first segment.
    """
    texts = {checkpoints.RECOVERY_POINT: ends, checkpoints.HIGH_WATERMARK: ends}
    if rules.has_producers:
        texts[checkpoints.LOG_START] = starts
    if meta_properties is not None:
        replace_file(out / checkpoints.META_PROPERTIES, meta_properties)
    for name, offsets in texts.items():
        replace_file(out / name, checkpoints.format_offset_checkpoint(offsets))
    marker = CleanShutdown(0, -1) if rules.release.names_broker_epoch else CleanShutdown(None, None)
    replace_file(out / checkpoints.CLEAN_SHUTDOWN, checkpoints.format_clean_shutdown(marker))


def end_offset(partition: PartitionDirectory) -> int:
    """Return the log end offset of a sound log, from its last segment that has entries.

    Raises CorruptRecordError for damage in that segment.
    """
    for segment in reversed(partition.segments):
        if not segment.log.size:
            continue
        index = partition.offset_index(segment)
        start = 0 if index is None else index.floor(MAX_OFFSET)[1]
        end = segment.base_offset
        with partition.files.open(segment.log.path) as file:
            for chunk in read_chunks(file, start=start, dialect=partition.dialect):
                end = int(last_offsets(chunk.table)[-1]) + 1
        return max(end, partition.segments[-1].base_offset)
    return partition.segments[-1].base_offset if partition.segments else 0
