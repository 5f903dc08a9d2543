"""Apply retention to a stopped broker's logs, with limits given for once.

The log directory is locked meanwhile. Its clean shutdown marker is removed while anything changes, so that a broker
would recover after a killed run, and is restored at the end. `docs/commands/retain.md` has the guarantees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import PartitionDirectory, parse_file
from magicbyte.engine.log.files.filesystem import LocalFiles, exists, is_locked, put_file, read_whole
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.files.partitions import log_start_offset
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.loading import RepairScope
from magicbyte.engine.log.live.log_directory import LOCK
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.log.live.retention import Removed
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.tools.offline.rebuild import recognised
from magicbyte.tools.offline.viewed import viewed_log

if TYPE_CHECKING:
    from magicbyte.engine.ports import WritableFileSystem


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
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[Retained]:
    """Delete segments beyond the limits, log by log, and yield the results. `dry_run`: nothing is changed.

    Records from the high watermark on are kept. `note` is called with a line about a log directory whose figures may
    change, in a dry run. Raises LogDirectoryError for a log directory to change that is in use, or was not closed, and
    CorruptRecordError for a damaged log: then nothing in its log directory was changed.
    """
    above: dict[str, list[PartitionDirectory]] = {}
    for each in partitions:
        if not isinstance(each.files, LocalFiles):
            raise LogDirectoryError(f"{each.path}: expected a local folder")
        above.setdefault(each.path.rstrip("/").rpartition("/")[0] or "/", []).append(each)
    for folder, inside in above.items():
        files = LocalFiles()
        if dry_run:
            doubt = why_unsettled(files, folder)
            if doubt is not None:
                note(doubt)
            for partition in inside:
                yield _planned(files, partition, limits, is_closed=doubt is None).result
                progress(partition.size)
            continue
        with held(files, folder) as changing:
            plans = [_planned(files, partition, limits) for partition in inside]  # all, before anything is changed
            changing()
            moved: dict[TopicPartition, int] = {}
            for plan in plans:
                retained = _apply(files, plan, limits)
                if plan.partition.topic is not None and plan.partition.partition is not None:
                    moved[TopicPartition(plan.partition.topic, plan.partition.partition)] = retained.log_start_offset
                progress(plan.partition.size)
                yield retained
            _put_log_starts(files, folder, moved, {each.name: each for each in inside})


@dataclass(slots=True)
class _ShutdownMark:
    """The clean shutdown marker at `path` while its log directory is held."""

    files: WritableFileSystem
    path: str
    content: bytes
    is_away: bool = False

    def take_away(self) -> None:
        """Remove the marker, durably, unless it is away."""
        if not self.is_away:
            self.files.delete(self.path)
            self.files.sync_directory(self.path.rpartition("/")[0])
            self.is_away = True


@contextlib.contextmanager
def held(files: WritableFileSystem, folder: str) -> Iterator[Callable[[], None]]:
    """Lock the log directory at `folder`, if it is one, and yield a function to be called before anything changes.

    It removes the clean shutdown marker, which is restored at the end. Raises LogDirectoryError for a log directory
    that is in use, or was not closed; then nothing was changed.
    """
    if not _is_log_directory(files, folder):
        yield lambda: None
        return
    refuse_unsettled(files, folder)
    try:
        lock = files.lock(f"{folder}/{LOCK}")
    except BlockingIOError as error:
        raise LogDirectoryError(_in_use(folder)) from error
    marker = f"{folder}/{checkpoints.CLEAN_SHUTDOWN}"
    try:
        refuse_unsettled(files, folder, is_mine=True)  # a broker may have come in between
        mark = _ShutdownMark(files, marker, read_whole(files, marker))
        yield mark.take_away
        if mark.is_away:
            put_file(files, marker, mark.content)
    finally:
        lock.release()


def refuse_unsettled(files: WritableFileSystem, folder: str, *, is_mine: bool = False) -> None:
    """Raise LogDirectoryError for a log directory that is in use, or was not closed. `is_mine`: this process locks it.

    Nothing is written, so that no write permission is needed.
    """
    if not _is_log_directory(files, folder):
        return
    if not is_mine and is_locked(Path(folder, LOCK)):
        raise LogDirectoryError(_in_use(folder))
    if not exists(files, f"{folder}/{checkpoints.CLEAN_SHUTDOWN}"):
        raise LogDirectoryError(
            f"{folder}: its broker was not shut down cleanly: expected {checkpoints.CLEAN_SHUTDOWN}; "
            "start the broker so that it recovers its logs, and stop it, or use the output of salvage or convert"
        )


def why_unsettled(files: WritableFileSystem, folder: str) -> str | None:
    """Return why the content of a log directory may change, None if its broker closed it."""
    if not _is_log_directory(files, folder):
        return None
    if is_locked(Path(folder, LOCK)):
        return f"{folder}: a broker is using this log directory: the figures may change"
    if not exists(files, f"{folder}/{checkpoints.CLEAN_SHUTDOWN}"):
        return f"{folder}: its broker was not shut down cleanly: the figures may change when it recovers its logs"
    return None


def _is_log_directory(files: WritableFileSystem, folder: str) -> bool:
    return any(exists(files, f"{folder}/{name}") for name in checkpoints.OFFSET_CHECKPOINTS)


def _in_use(folder: str) -> str:
    return f"{folder}: a broker is using this log directory; stop it first"


class _RetainPlan(NamedTuple):
    """What retention would do to a log, which then starts at `start` or later: `result`."""

    partition: PartitionDirectory
    config: LogConfig
    start: int
    result: Retained


def _planned(
    files: LocalFiles, partition: PartitionDirectory, limits: RetentionLimits, *, is_closed: bool = True
) -> _RetainPlan:
    config = LogConfig(
        retention_ms=limits.retention_ms,
        retention_bytes=limits.retention_bytes,
        head_truncation=limits.head_truncation,
        file_delete_delay_ms=0,
        dialect=partition.dialect,
        rules=limits.rules or recognised(partition),
    )
    start = log_start_offset(partition)
    with viewed_log(files, partition.path, config, log_start_offset=start, is_closed=is_closed) as log:
        high_watermark = known_high_watermark(files, partition, log)
        log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        if limits.before_offset is not None:
            start = max(log.log_start_offset, min(limits.before_offset, log.high_watermark))
            log.log_start_offset = start
        removed, begin = log.retention(limits.now_ms).plan(log.segments)
        known, end, size = log.high_watermark, log.log_end_offset, log.size
    result = Retained(partition.name, partition.path, size, tuple(removed), begin, end, known)
    return _RetainPlan(partition, config, start, result)


def _apply(files: LocalFiles, plan: _RetainPlan, limits: RetentionLimits) -> Retained:
    if not plan.result.removed:
        return plan.result
    log = PartitionLog.open(
        files, plan.partition.path, plan.config, monotonic_ms=limits.now_ms, clean=True, log_start_offset=plan.start,
        repair_scope=RepairScope.NOTHING,
    )  # fmt: skip
    log.high_watermark = plan.result.high_watermark
    removed = log.delete_old_segments(Moment.fixed(limits.now_ms))
    log.remove_deleted(limits.now_ms)
    begin = log.log_start_offset
    log.close()
    return replace(plan.result, removed=tuple(removed), log_start_offset=begin)


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
