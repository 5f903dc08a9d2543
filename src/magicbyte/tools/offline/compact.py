"""Compaction of a stopped broker's logs, as by its own cleaner, in one run.

Lock, clean shutdown marker and crashes are as in retain.py. `docs/commands/compact.md` has the guarantees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct, field

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.internal_topics import OFFSETS_TOPIC, STATE_TOPIC
from magicbyte.engine.log.cleaning.compaction import (
    DEFAULT_CONFIG,
    CleanableOffsets,
    Compaction,
    CompactionConfig,
    CompactionReport,
    select,
)
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import SNAPSHOT, PartitionDirectory, parse_file
from magicbyte.engine.log.files.filesystem import LocalFiles, exists, put_file
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.files.partitions import log_start_offset
from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
from magicbyte.engine.log.files.reader import SegmentReader, decode_chunk, stop_at_damage
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.loading import RepairScope
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.log.live.producers import producers_at
from magicbyte.engine.log.live.segment_names import snapshot_offsets
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.records.decode import DecodeOptions
from magicbyte.tools.offline.rebuild import recognised
from magicbyte.tools.offline.retain import held, known_high_watermark, why_unsettled
from magicbyte.tools.offline.viewed import viewed_log

if TYPE_CHECKING:
    from magicbyte.engine.log.cleaning.offset_marks import OffsetMarks
    from magicbyte.engine.ports import WritableFileSystem


class CompactOptions(Struct, frozen=True):
    """Options of a compaction. `now_ms`: the time for the expiry of tombstones. `secret`: 16 random bytes.

    `from_start`: ignore the checkpoint of the broker's cleaner. `rules`: of the Kafka version to write for, None for
    that of the existing files. `segment_bytes`: the size limit of joined segments. `marks`: the superseded offsets of
    the only log, from its start, if they were computed elsewhere.
    """

    now_ms: int
    secret: bytes
    config: CompactionConfig = DEFAULT_CONFIG
    segment_bytes: int = 1 << 30
    from_start: bool = False
    rules: IndexRules | None = None
    marks: OffsetMarks | None = None


class Compacted(Struct):
    """The result for one log, or that of a dry run. `size` and `size_after` in bytes; `error`: why it is unchanged.

    `rounds`: one, or more if the memory for keys is too small.
    """

    name: str
    path: str
    size: int
    size_after: int
    log_end_offset: int
    first_uncleanable: int
    rounds: list[CompactionReport] = field(default_factory=list)
    error: CorruptRecordError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a partition as in `magicbyte compact --format json`."""
        return {
            "partition": self.name,
            "path": self.path,
            "bytes": self.size,
            "bytesAfter": self.size_after,
            "logEndOffset": self.log_end_offset,
            "firstUncleanable": self.first_uncleanable,
            "error": None if self.error is None else str(self.error),
            "rounds": [each.to_json() for each in self.rounds],
        }


BY_BROKERS: Final = frozenset({OFFSETS_TOPIC, STATE_TOPIC, "__share_group_state", "__magicbyte_mirror_offsets"})
"""Topics that brokers and tools create for state by key: their latest records are needed however old they are."""


def kept_by_key(partitions: Iterable[PartitionDirectory]) -> list[PartitionDirectory]:
    """Return the partitions of topics that are known to be compacted: BY_BROKERS, and those of `compacted_before`."""
    found = list(partitions)
    known = {each.path for each in compacted_before(found)}
    return [each for each in found if each.topic in BY_BROKERS or each.path in known]


def compacted_before(partitions: Iterable[PartitionDirectory]) -> list[PartitionDirectory]:
    """Return the partitions that their broker's cleaner has compacted before, by its checkpoint."""
    known: dict[str, dict[TopicPartition, int]] = {}
    compacted = []
    for each in partitions:
        if _above(each) not in known:
            known[_above(each)] = _cleaner_offsets(each)
        if _key(each) in known[_above(each)]:
            compacted.append(each)
    return compacted


def unkeyed(partition: PartitionDirectory, options: CompactOptions) -> int:
    """Return the number of records without a key in the range to compact. Raises CorruptRecordError."""
    with looked_at(partition, options) as (_, selection):
        end = selection.first_uncleanable
    count, decoding = 0, DecodeOptions(values=False, headers=False)
    for chunk in SegmentReader(partition).chunks():
        for columns in decode_chunk(chunk, range(len(chunk.table)), decoding, stop_at_damage):
            assert columns.key is not None
            count += int(((np.asarray(columns.key.length) < 0) & (np.asarray(columns.offset) < end)).sum())
    return count


def _key(partition: PartitionDirectory) -> TopicPartition | None:
    if partition.topic is None or partition.partition is None:
        return None
    return TopicPartition(partition.topic, partition.partition)


def _above(partition: PartitionDirectory) -> str:
    return partition.path.rstrip("/").rpartition("/")[0] or "/"


def _cleaner_offsets(partition: PartitionDirectory) -> dict[TopicPartition, int]:
    path = f"{_above(partition)}/{checkpoints.CLEANER}"
    try:
        return parse_file(partition.files, path, checkpoints.parse_offset_checkpoint)
    except FileNotFoundError:
        return {}


def compact_logs(
    partitions: Collection[PartitionDirectory],
    options: CompactOptions,
    *,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[Compacted]:
    """Compact log after log, and yield the result of each. `dry_run`: nothing is changed.

    `progress` is called with the bytes read and written. A damaged log is not changed, and `error` is the reason.
    `note` is called with a line about a log directory whose figures may change, in a dry run. Raises LogDirectoryError
    for a log directory to change that is in use, or was not closed.
    """
    above: dict[str, list[PartitionDirectory]] = {}
    for each in partitions:
        if not isinstance(each.files, LocalFiles):
            raise LogDirectoryError(f"{each.path}: expected a local folder")
        above.setdefault(_above(each), []).append(each)
    for folder, inside in above.items():
        files = LocalFiles()
        doubt = why_unsettled(files, folder) if dry_run else None
        if doubt is not None:
            note(doubt)
        with contextlib.nullcontext() if dry_run else held(files, folder) as changing:
            for partition in inside:
                done = Compacted(partition.name, partition.path, partition.size, partition.size, 0, 0)
                try:
                    with _opened(files, partition, options, changing, is_closed=doubt is None) as log:
                        _compact(log, partition, options, done, progress, dry_run=dry_run)
                except CorruptRecordError as error:
                    done.error = error
                if done.rounds and not dry_run:
                    _put_cleaner_offset(files, partition, done.rounds[-1].end_offset)
                yield done


def exchange(partition: PartitionDirectory, options: CompactOptions, change: Callable[[PartitionLog], int]) -> None:
    """Open a log as `compact_logs` does and call `change` on it, which returns the end of the clean part.

    Raises as `compact_logs`, and CorruptRecordError.
    """
    files = LocalFiles()
    with held(files, _above(partition)) as changing:
        with _opened(files, partition, options, changing) as log:
            end = change(log)
        _put_cleaner_offset(files, partition, end)


def mend(partition: PartitionDirectory, options: CompactOptions) -> None:
    """Open and close a log as `compact_logs` does, so that it has all index files. Raises as that."""
    files = LocalFiles()
    with held(files, _above(partition)) as changing, _opened(files, partition, options, changing):
        pass


@contextlib.contextmanager
def looked_at(
    partition: PartitionDirectory, options: CompactOptions
) -> Iterator[tuple[PartitionLog, CleanableOffsets]]:
    """Yield an unchanged log, and the range of it that can be compacted. Raises CorruptRecordError."""
    with _opened(LocalFiles(), partition, options, None) as log:
        key = None if options.from_start else _key(partition)
        checkpoint = None if key is None else _cleaner_offsets(partition).get(key)
        yield log, select(log, checkpoint, options.config, options.now_ms)


@contextlib.contextmanager
def _opened(
    files: WritableFileSystem,
    partition: PartitionDirectory,
    options: CompactOptions,
    changing: Callable[[], None] | None,
    *,
    is_closed: bool = True,
) -> Iterator[PartitionLog]:
    """Yield the log; without `changing`, which is called before anything changes, as a dry run sees it.

    Changes to it are durable at the end.
    """
    config = LogConfig(
        segment_bytes=options.segment_bytes,
        file_delete_delay_ms=0,
        delete=False,
        compact=True,
        dialect=partition.dialect,
        rules=options.rules or recognised(partition),
    )
    start = log_start_offset(partition)
    if changing is None:
        for at in snapshot_offsets(files, partition.path):  # a run would delete damaged ones
            parse_file(files, f"{partition.path}/{at:020}{SNAPSHOT}", ProducerSnapshot.parse)
        with viewed_log(files, partition.path, config, log_start_offset=start, is_closed=is_closed) as log:
            log.producers.start_from(
                producers_at(files, partition.path, config, log.segments, log.log_end_offset, replays=True)
            )
            log.high_watermark = _high_watermark(files, partition, log)
            yield log
        return
    changing()
    log = PartitionLog.open(
        files, partition.path, config, monotonic_ms=options.now_ms, clean=True, log_start_offset=start,
        repair_scope=RepairScope.NOTHING,
    )  # fmt: skip
    log.high_watermark = _high_watermark(files, partition, log)
    try:
        yield log
    except CorruptRecordError:
        log.close()
        raise
    log.remove_deleted(options.now_ms)
    log.close()


def _high_watermark(files: LocalFiles | WritableFileSystem, partition: PartitionDirectory, log: PartitionLog) -> int:
    assert isinstance(files, LocalFiles)
    known = known_high_watermark(files, partition, log)
    return min(max(known, log.log_start_offset), log.log_end_offset)


def _compact(
    log: PartitionLog,
    partition: PartitionDirectory,
    options: CompactOptions,
    done: Compacted,
    progress: Callable[[int], None],
    *,
    dry_run: bool,
) -> None:
    """Compact in as many rounds as needed; a dry run shows the first."""
    key = None if options.from_start else _key(partition)
    checkpoint = None if key is None else _cleaner_offsets(partition).get(key)
    done.log_end_offset = log.log_end_offset
    while True:
        selection = select(log, checkpoint, options.config, options.now_ms)
        done.first_uncleanable = selection.first_uncleanable
        if not selection.cleanable_bytes:
            return
        compaction = Compaction(
            log,
            selection,
            options.config,
            now=Moment.fixed(options.now_ms),
            secret=options.secret,
            writes=not dry_run,
            marks=options.marks,
        )
        for size in compaction.run():
            progress(size)
        report = compaction.report
        done.rounds.append(report)
        done.size_after += report.bytes_after - report.bytes_before
        checkpoint = report.end_offset
        if dry_run or report.end_offset >= selection.first_uncleanable:
            return


def _put_cleaner_offset(files: WritableFileSystem, partition: PartitionDirectory, offset: int) -> None:
    """Write the end of the clean part into the log directory's checkpoint, if it has one."""
    path, key = f"{_above(partition)}/{checkpoints.CLEANER}", _key(partition)
    if key is not None and exists(files, path):
        offsets = parse_file(files, path, checkpoints.parse_offset_checkpoint)
        put_file(files, path, checkpoints.format_offset_checkpoint({**offsets, key: offset}))
