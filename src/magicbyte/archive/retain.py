"""Apply retention to a stopped broker's logs, with limits given for once.

The log directory is locked meanwhile. Its clean shutdown marker is removed while anything changes, so that a broker
would recover after a killed run, and is restored at the end. `docs/commands/retain.md` has the guarantees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magicbyte.archive.rebuild import recognise
from magicbyte.archive.viewed import viewed_log
from magicbyte.errors import LogDirectoryError
from magicbyte.log.files import checkpoints
from magicbyte.log.files.directory import PartitionDirectory, parse_file
from magicbyte.log.files.filesystem import LocalFiles, exists, is_locked, put_file, read_whole
from magicbyte.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.log.files.partitions import log_start_offset
from magicbyte.log.live.config import LogConfig
from magicbyte.log.live.loading import Mends
from magicbyte.log.live.log_directory import LOCK
from magicbyte.log.live.partition_log import PartitionLog
from magicbyte.log.live.retention import Removed
from magicbyte.ports import Moment, TopicPartition

if TYPE_CHECKING:
    from magicbyte.ports import WritableFileSystem


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The limits, one or several: -1, -1 and None for no limit. `now_ms` is the time from which ages count.

    `rules`: of the Kafka version for new index files, None for that of the existing files.
    """

    now_ms: int
    retention_ms: int = -1
    retention_bytes: int = -1
    before_offset: int | None = None
    head_truncation: bool = False
    rules: IndexRules | None = None


@dataclass(frozen=True, slots=True)
class Retained:
    """The result for one log, or that of a dry run. Sizes in bytes."""

    name: str
    path: str
    size: int
    removed: tuple[Removed, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int

    @property
    def removed_bytes(self) -> int:
        """Removed bytes of `.log` files."""
        return sum(each.size for each in self.removed)

    def to_json(self) -> dict[str, Any]:
        """Return the partition as printed by `magicbyte retain --format json`."""
        return {
            "partition": self.name,
            "path": self.path,
            "bytes": self.size,
            "removedBytes": self.removed_bytes,
            "logStartOffset": self.log_start_offset,
            "logEndOffset": self.log_end_offset,
            "highWatermark": self.high_watermark,
            "removed": [
                {
                    "baseOffset": segment.base_offset,
                    "endOffset": segment.end_offset,
                    "bytes": segment.size,
                    "largestTimestamp": segment.largest_timestamp,
                    "head": segment.head,
                    "reason": segment.reason.name.lower(),
                }
                for segment in self.removed
            ],
        }


def retain_logs(
    partitions: Iterable[PartitionDirectory],
    limits: RetentionLimits,
    *,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Retained]:
    """Delete segments beyond the limits, log by log, and yield the results. `dry_run`: nothing is changed.

    Records from the high watermark on are kept. Raises LogDirectoryError for a log directory that is in use, or was not
    closed, and CorruptRecordError for a damaged log, which is then unchanged.
    """
    above: dict[str, list[PartitionDirectory]] = {}
    for each in partitions:
        if not isinstance(each.files, LocalFiles):
            raise LogDirectoryError(f"{each.path}: expected a local folder")
        above.setdefault(each.path.rstrip("/").rpartition("/")[0] or "/", []).append(each)
    for folder, inside in above.items():
        files = LocalFiles()
        with held(files, folder, dry_run=dry_run):
            moved: dict[TopicPartition, int] = {}
            for partition in inside:
                retained = _retain(files, partition, limits, dry_run=dry_run)
                if partition.topic is not None and partition.partition is not None:
                    moved[TopicPartition(partition.topic, partition.partition)] = retained.log_start_offset
                progress(partition.size)
                yield retained
            if not dry_run:
                _put_log_starts(files, folder, moved, {each.name: each for each in inside})


@contextlib.contextmanager
def held(files: WritableFileSystem, folder: str, *, dry_run: bool) -> Iterator[None]:
    """Lock the log directory at `folder`, if it is one; its clean shutdown marker is removed meanwhile.

    `dry_run`: nothing is written, neither lock nor marker, so that no write permission is needed. Raises
    LogDirectoryError for a log directory that is in use, or was not closed.
    """
    marker = f"{folder}/{checkpoints.CLEAN_SHUTDOWN}"
    is_log_directory = any(exists(files, f"{folder}/{name}") for name in checkpoints.OFFSET_CHECKPOINTS)
    if not is_log_directory:
        yield
        return
    in_use = f"{folder}: a broker is using this log directory; it must be stopped first"
    if dry_run:
        if is_locked(Path(folder, LOCK)):
            raise LogDirectoryError(in_use)
        _content_of_mark(files, marker)
        yield
        return
    try:
        lock = files.lock(f"{folder}/{LOCK}")
    except BlockingIOError as error:
        raise LogDirectoryError(in_use) from error
    try:
        said = _content_of_mark(files, marker)
        files.delete(marker)
        files.sync_directory(folder)
        yield
        put_file(files, marker, said)
    finally:
        lock.release()


def _content_of_mark(files: WritableFileSystem, marker: str) -> bytes:
    """Return the content of the clean shutdown marker. Raises LogDirectoryError without one."""
    if not exists(files, marker):
        folder, _, name = marker.rpartition("/")
        raise LogDirectoryError(
            f"{folder}: its broker was not shut down cleanly: expected {name}; "
            "start the broker so that it recovers its logs, and stop it, or use the output of salvage or convert"
        )
    return read_whole(files, marker)


def _retain(files: LocalFiles, partition: PartitionDirectory, limits: RetentionLimits, *, dry_run: bool) -> Retained:
    config = LogConfig(
        retention_ms=limits.retention_ms,
        retention_bytes=limits.retention_bytes,
        head_truncation=limits.head_truncation,
        file_delete_delay_ms=0,
        dialect=partition.dialect,
        rules=limits.rules or recognise(partition) or LATEST_RULES,
    )
    start = log_start_offset(partition)
    with viewed_log(files, partition.path, config, log_start_offset=start) as log:
        high_watermark = known_high_watermark(files, partition, log)
        log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        if limits.before_offset is not None:
            start = max(log.log_start_offset, min(limits.before_offset, log.high_watermark))
            log.log_start_offset = start
        removed, begin = log.retention(limits.now_ms).plan(log.segments)
        known = log.high_watermark
        end, size = log.log_end_offset, log.size
    if removed and not dry_run:
        log = PartitionLog.open(
            files, partition.path, config, monotonic_ms=limits.now_ms, clean=True, log_start_offset=start,
            mends=Mends.NOTHING,
        )  # fmt: skip
        log.high_watermark = known
        removed = log.delete_old_segments(Moment.fixed(limits.now_ms))
        log.remove_deleted(limits.now_ms)
        begin = log.log_start_offset
        log.close()
    return Retained(partition.name, partition.path, size, tuple(removed), begin, end, known)


def known_high_watermark(files: LocalFiles, partition: PartitionDirectory, log: PartitionLog) -> int:
    """Return the high watermark of the broker's checkpoint; without that file, the log's end."""
    path = f"{partition.path.rstrip('/').rpartition('/')[0]}/{checkpoints.HIGH_WATERMARK}"
    if partition.topic is None or partition.partition is None or not exists(files, path):
        return log.log_end_offset
    known = parse_file(files, path, checkpoints.parse_offset_checkpoint)
    return known.get(TopicPartition(partition.topic, partition.partition), log.log_start_offset)


def _put_log_starts(
    files: LocalFiles, folder: str, moved: Mapping[TopicPartition, int], partitions: Mapping[str, PartitionDirectory]
) -> None:
    """Write the log start offsets of logs that do not start with their first segment."""
    path = f"{folder}/{checkpoints.LOG_START}"
    if not exists(files, path):
        return
    starts = parse_file(files, path, checkpoints.parse_offset_checkpoint)
    for key, start in moved.items():
        bases = [
            int(entry.name.removesuffix(".log"))
            for entry in files.list(partitions[str(key)].path)
            if entry.name.endswith(".log")
        ]
        starts.pop(key, None)
        if start > min(bases, default=start):
            starts[key] = start
    put_file(files, path, checkpoints.format_offset_checkpoint(starts))
