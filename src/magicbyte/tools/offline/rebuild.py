"""Rebuild index files and producer snapshots of a partition from its log, and compare them with the existing ones.

The result is that of Kafka's own recovery. Existing files may instead be those that a leader writes during appends:
both count as correct. Only `put` writes.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec.structs import replace

from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files.checkpoints import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    OFFSET_CHECKPOINTS,
    format_leader_epochs,
)
from magicbyte.engine.log.files.directory import (
    INDEXES,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    PartitionDirectory,
    SegmentFiles,
)
from magicbyte.engine.log.files.filesystem import exists, read_whole
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules, SegmentIndexer
from magicbyte.engine.log.files.indexes import TransactionIndex
from magicbyte.engine.log.files.outputs import put_whole
from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
from magicbyte.engine.log.files.producer_state import LeaderEpochs
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.extent import last_offsets, max_timestamps
from magicbyte.engine.records.layout import MAGIC, Dialect
from magicbyte.engine.releases import MarkerRule
from magicbyte.engine.sentinels import NO_OFFSET, NO_TIMESTAMP

if TYPE_CHECKING:
    from pathlib import Path

    from magicbyte.engine.log.files.chunk import Chunk
    from magicbyte.engine.log.files.indexes import AbortedTransaction
    from magicbyte.engine.log.files.producer_state import ProducerStates
    from magicbyte.engine.records.scan import BatchTable

T = TypeVar("T")

FAMILIES = ("4.3", "3.7", "2.7", "2.4.0", "1.1", "0.11.0", "0.10.2", "0.10.0")
"""Versions that can be distinguished from later ones by their files, newest first."""

SAMPLE_BYTES = 64 << 20


class FileState(enum.Enum):
    """The comparison of an existing file with the rebuilt one."""

    SAME = "same"
    SOUND = "sound"  # an index with other, correct entries: it depends on the sizes of appends
    MISSING = "missing"
    UNCLOSED = "not closed"  # preallocated zeros after the entries: the broker was killed, or is running
    DIFFERENT = "different"  # an index with wrong entries, or other transactions or producers than in the log
    UNNEEDED = "unneeded"  # this version has no such file, or none here; it is kept


WRONG = (FileState.MISSING, FileState.UNCLOSED, FileState.DIFFERENT)


@dataclass(frozen=True, slots=True)
class RebuiltFile:
    """An index, a snapshot or the leader epochs; sizes are in bytes.

    `content` is the rebuilt one, None if there must be no file.
    """

    name: str
    state: FileState
    content: bytes | None
    found_size: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the file as printed by `magicbyte rebuild-index --format json`, except whether it was written."""
        return {
            "name": self.name,
            "state": self.state.value,
            "bytes": None if self.content is None else len(self.content),
            "foundBytes": self.found_size,
        }


@dataclass(frozen=True, slots=True)
class RebuiltSegment:
    """The files of a segment: its indexes, and the snapshot at its base.

    The last one also has the snapshot at the log's end and the leader epochs of the log.
    """

    segment: SegmentFiles
    files: tuple[RebuiltFile, ...]

    @property
    def wrong(self) -> int:
        """The number of missing or wrong files."""
        return sum(each.state in WRONG for each in self.files)


def _nothing(_: int) -> None:
    """Ignore progress."""


def rebuild(
    partition: PartitionDirectory,
    rules: IndexRules = LATEST_RULES,
    *,
    dialect: Dialect | None = None,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
    progress: Callable[[int], None] = _nothing,
) -> Iterator[RebuiltSegment]:
    """Yield each segment with its files as required by `rules`, in order; `progress` is called with the bytes read.

    The producers at the log's start come from the snapshot there, if it is readable. Raises CorruptRecordError at the
    first damage of the log, because later files depend on it.
    """
    rebuilding = _Rebuilding(partition, [rules], dialect=dialect, limit=limit, progress=progress)
    for segment in partition.segments:
        yield rebuilding.next(segment, [rules])[rules]


def recognise(
    partitions: PartitionDirectory | Iterable[PartitionDirectory],
    *,
    interval_bytes: int = LATEST_RULES.interval_bytes,
    dialect: Dialect | None = None,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
) -> IndexRules | None:
    """Return the rules of the release that wrote the files of a partition, or of all partitions of a log directory.

    These are the rules that no file contradicts, of a release that can write the formats in the logs, and that give
    the most existing files; of several the newest. None if there are none. `interval_bytes` was the setting
    `index.interval.bytes`. Of each partition only the first segments are examined, about SAMPLE_BYTES of them. A
    missing file is evidence of an older version only if there is none of its kind. Raises CorruptRecordError for damage
    of the only log; of several, damaged ones are left out.
    """
    several = [partitions] if isinstance(partitions, PartitionDirectory) else list(partitions)
    candidates = {replace(IndexRules.of(version), interval_bytes=interval_bytes): 0 for version in FAMILIES}
    is_known = False
    for partition in several:
        kinds = {suffix for segment in partition.segments for suffix in segment.companions}
        if partition.snapshots or LEADER_EPOCHS in partition.texts:
            kinds.add(SNAPSHOT)
        if not kinds:
            continue
        try:
            counts = _files_given(partition, kinds, candidates, dialect, limit)
        except CorruptRecordError:
            if len(several) == 1:
                raise
            continue
        is_known = True
        candidates = {rules: known + counts[rules] for rules, known in candidates.items() if rules in counts}
    if not is_known or not candidates:
        return None
    return max(candidates, key=lambda rules: candidates[rules])  # the first of several, which is the newest


def recognised(partition: PartitionDirectory) -> IndexRules:
    """Return the rules that `recognise` finds, or else the newest; also for a damaged log, which readers report."""
    with contextlib.suppress(CorruptRecordError):
        return recognise(partition) or LATEST_RULES
    return LATEST_RULES


def _files_given(
    partition: PartitionDirectory,
    kinds: Collection[str],
    rules: Iterable[IndexRules],
    dialect: Dialect | None,
    limit: int,
) -> dict[IndexRules, int]:
    """Return how many of the existing files are as each of the rules gives them; without rules that one contradicts."""
    sizes = itertools.accumulate(segment.log.size for segment in partition.segments)
    sample = partition.segments[: 1 + sum(size <= SAMPLE_BYTES for size in sizes)]
    newest_magic = 0
    if (dialect or partition.dialect) is Dialect.KAFKA:
        for segment in sample:
            with partition.files.open(segment.log.path) as log:
                newest_magic = max([newest_magic, *log.read_at(MAGIC.start, 1)])
    counts = dict.fromkeys((each for each in rules if each.release.newest_magic >= newest_magic), 0)
    rebuilding = _Rebuilding(partition, counts, dialect=dialect, limit=limit)
    for segment in sample if counts else []:
        for each, rebuilt in rebuilding.next(segment, list(counts)).items():
            if {_as_evidence(file, kinds) for file in rebuilt.files} <= {FileState.SAME, FileState.SOUND}:
                counts[each] += sum(file.state is FileState.SAME and bool(file.found_size) for file in rebuilt.files)
            else:
                del counts[each]
        if not counts:
            break
    return counts


def _as_evidence(file: RebuiltFile, kinds: Collection[str]) -> FileState:
    """Return what an existing or missing file tells about the rules of its writer: SAME is no evidence against them."""
    if file.name == LEADER_EPOCHS:
        return FileState.SAME  # all versions with this file write it alike
    harmless = file.state is FileState.UNCLOSED
    if file.state is FileState.MISSING:
        harmless = file.name[20:] in {*kinds, TRANSACTION_INDEX}
    return FileState.SAME if harmless else file.state


def put(folder: Path, rebuilt: RebuiltSegment, *, all_files: bool = False) -> list[str]:
    """Write the files that differ, or all, into `folder`, each atomically. Returns their names."""
    written = []
    for file in rebuilt.files:
        if file.content is not None and (all_files or file.state is not FileState.SAME):
            put_whole(folder / file.name, file.content)
            written.append(file.name)
    return written


def _was_killed(partition: PartitionDirectory) -> bool:
    """Return whether the partition is in a log directory that its broker did not close, or has open."""
    above = partition.log_directory
    if above is None:
        return False
    is_one = any(exists(partition.files, f"{above}/{name}") for name in OFFSET_CHECKPOINTS)
    return is_one and not exists(partition.files, f"{above}/{CLEAN_SHUTDOWN}")


def _producers_at_start(partition: PartitionDirectory, rules: IndexRules) -> ProducerStates:
    producers = rules.producer_states()
    first = partition.segments[0].base_offset if partition.segments else 0
    if rules.has_producers and first in partition.snapshots:
        try:
            producers.start_from(partition.snapshot(first))
        except CorruptRecordError:
            return producers  # as a broker does; `verify` reports it
    return producers


class _Rebuilding:
    """Rebuilds the files of a partition by the rules of several releases, and reads the log once for all of them.

    What rules have in common is computed once. `next` takes the segments in order.
    """

    def __init__(
        self,
        partition: PartitionDirectory,
        rules: Iterable[IndexRules],
        *,
        dialect: Dialect | None,
        limit: int,
        progress: Callable[[int], None] = _nothing,
    ) -> None:
        kernel.expect(partition.size)
        self._partition, self._limit, self._progress = partition, limit, progress
        self._dialect = dialect or partition.dialect
        self._bases = [segment.base_offset for segment in partition.segments]
        self._is_open = _was_killed(partition)
        self._producers: dict[_ProducerRules, ProducerStates] = {}
        self._epochs: dict[bool, LeaderEpochs] = {}
        for each in self._with_producers(rules):
            self._producers.setdefault(_producer_rules(each), _producers_at_start(partition, each))
            ends_with_older = each.release.ends_epochs_with_older
            self._epochs.setdefault(ends_with_older, LeaderEpochs(ends_with_older=ends_with_older))

    def _with_producers(self, rules: Iterable[IndexRules]) -> list[IndexRules]:
        return [each for each in rules if each.of_dialect(self._dialect).has_producers]

    def next(self, segment: SegmentFiles, rules: Collection[IndexRules]) -> dict[IndexRules, RebuiltSegment]:
        """Return the next segment with its files as each of the rules requires them. Raises as `rebuild` does.

        `rules`: some of those of the segment before.
        """
        partition, base = self._partition, segment.base_offset
        known = self._with_producers(rules)
        producers = {key: self._producers[key] for key in map(_producer_rules, known)}
        at_base = {key: states.snapshot() for key, states in producers.items()}
        aborted: dict[_ProducerRules, list[AbortedTransaction]] = {key: [] for key in producers}
        indexers = {
            key: SegmentIndexer(base, key, dialect=self._dialect)
            for key in dict.fromkeys(_shared(own) for each in rules for own in (each.recovering(), each))
        }
        look_ups = _LookUps(partition, segment)
        with partition.files.open(segment.log.path) as file:
            for chunk in read_chunks(file, dialect=self._dialect, limit=self._limit):
                try:
                    for indexer in indexers.values():
                        indexer.append(chunk.table, chunk.position)
                    for key, states in producers.items():
                        aborted[key] += _aborted(states, chunk)
                    look_ups.append(chunk.table, chunk.position)
                    for epochs in self._epochs.values():
                        epochs.append(chunk.table)
                except CorruptRecordError as error:
                    raise error.locate(path=chunk.path) from None
                self._progress(chunk.table.end)
        indexes = {key: indexer.finish().files() for key, indexer in indexers.items()}
        rebuilt = {}
        for rule in rules:
            made, also = dict(indexes[_shared(rule.recovering())]), indexes[_shared(rule)]
            snapshots: dict[int, ProducerSnapshot] = {}
            if rule in known:
                if ended := aborted[_producer_rules(rule)]:
                    made[TRANSACTION_INDEX] = TransactionIndex(tuple(ended)).to_bytes()
                snapshots = self._snapshots(rule, base, look_ups.last_offset + 1, at_base[_producer_rules(rule)])
            files = [
                _compared(partition, segment, suffix, made.get(suffix), also.get(suffix), sound=look_ups.hold(suffix))
                for suffix in INDEXES
                if suffix in made or suffix in segment.companions
            ]
            files += [_compared_snapshot(partition, offset, snapshot) for offset, snapshot in snapshots.items()]
            if rule in known and base == self._bases[-1]:
                files += _compared_epochs(partition, self._epochs[rule.release.ends_epochs_with_older])
            rebuilt[rule] = RebuiltSegment(segment, tuple(files))
        return rebuilt

    def _snapshots(
        self, rules: IndexRules, base: int, end: int, at_base: ProducerSnapshot
    ) -> dict[int, ProducerSnapshot]:
        """Return the snapshots of a segment by offset: at its base, and of the last one at its end."""
        snapshots, bases = {}, self._bases
        kept = bases if rules.release.keeps_all_snapshots else bases[-2:]
        if base in kept and base != bases[0]:
            snapshots[base] = at_base
        # brokers write that of the end when they close a log with records
        is_closed = end > bases[0] and not self._is_open
        if base == bases[-1] and (is_closed or end in self._partition.snapshots):
            snapshots[end] = self._producers[_producer_rules(rules)].snapshot()
        return snapshots


_ProducerRules = tuple[MarkerRule | None, bool]


def _producer_rules(rules: IndexRules) -> _ProducerRules:
    """Return the part of the rules that makes a difference to the states of producers."""
    return rules.marker_rule, rules.release.indexes_empty_aborts


def _shared(rules: IndexRules) -> IndexRules:
    """Return the rules without what makes no difference to entries of the offset and time index."""
    return replace(rules, release=LATEST_RULES.release, entry_per_batch=True, marker_rule=None)


def _aborted(states: ProducerStates, chunk: Chunk) -> list[AbortedTransaction]:
    try:
        return states.append(chunk.table)
    except CorruptRecordError as error:
        raise error.locate(shift=chunk.position) from None


class _LookUps:
    """Whether every look-up in the existing offset and time index leads to a position before its target."""

    def __init__(self, partition: PartitionDirectory, segment: SegmentFiles) -> None:
        self.last_offset = segment.base_offset - 1
        self._largest = NO_TIMESTAMP
        self._offsets = self._read(partition.offset_index, segment)
        self._times = self._read(partition.time_index, segment)
        self._indexed = self._timed = 0  # entries that were checked
        self._wrong: set[str] = set()

    @staticmethod
    def _read(read: Callable[[SegmentFiles], T | None], segment: SegmentFiles) -> T | None:
        try:
            return read(segment)
        except CorruptRecordError:
            return None

    def append(self, table: BatchTable, start_position: int) -> None:
        """Add the entries of `table`, unmerged; its buffer begins `start_position` bytes into the segment."""
        last = last_offsets(table)
        largest = np.maximum.accumulate(np.concatenate(([self._largest], max_timestamps(table))))
        if self._offsets is not None:
            positions = start_position + np.asarray(table.position, np.int64)
            until = int(np.searchsorted(self._offsets.positions, start_position + table.end))
            entries = slice(self._indexed, until)
            rows = np.minimum(np.searchsorted(positions, self._offsets.positions[entries]), len(table) - 1)
            before = np.concatenate(([self.last_offset], last[:-1]))[rows]
            hold = (positions[rows] == self._offsets.positions[entries]) & (before < self._offsets.offsets[entries])
            self._indexed = until
            if not hold.all():
                self._wrong.add(OFFSET_INDEX)
        if self._times is not None:
            until = int(np.searchsorted(self._times.offsets, last[-1], "right"))
            entries = slice(self._timed, until)
            rows = np.searchsorted(last, self._times.offsets[entries])
            self._timed = until
            if (largest[rows] > self._times.timestamps[entries]).any():
                self._wrong.add(TIME_INDEX)
        self.last_offset, self._largest = int(last[-1]), int(largest[-1])

    def hold(self, suffix: str) -> bool:
        """Return whether all entries of the index are correct and belong to the segment. Of other files: False."""
        if suffix in self._wrong:
            return False
        if suffix == OFFSET_INDEX:
            return self._offsets is not None and self._indexed == len(self._offsets)
        if suffix != TIME_INDEX or self._times is None or self._timed < len(self._times):
            return False
        # A broker takes the last entry for the max timestamp of the segment.
        return self._largest <= (int(self._times.timestamps[-1]) if len(self._times) else NO_TIMESTAMP)


def _compared(
    partition: PartitionDirectory,
    segment: SegmentFiles,
    suffix: str,
    made: bytes | None,
    also: bytes | None,
    *,
    sound: bool,
) -> RebuiltFile:
    name = f"{segment.base_offset:020}{suffix}"
    entry = segment.companions.get(suffix)
    if entry is None:
        return RebuiltFile(name, FileState.MISSING, made, None)
    stored = read_whole(partition.files, entry.path)
    if stored in (made, also) or (not stored and not made):
        state = FileState.SAME
    elif made is None:
        state = FileState.UNNEEDED
    elif any(each is not None and _is_unclosed(stored, each) for each in (made, also)):
        state = FileState.UNCLOSED
    elif sound:
        state = FileState.SOUND
    else:
        state = FileState.DIFFERENT
    return RebuiltFile(name, state, made, len(stored))


def _is_unclosed(found: bytes, closed: bytes) -> bool:
    """Return whether `found` is `closed` with preallocated space, and possibly without the time index's last entry."""
    return len(found) > len(closed) and closed.startswith(found.rstrip(b"\0"))


def _compared_snapshot(partition: PartitionDirectory, offset: int, made: ProducerSnapshot) -> RebuiltFile:
    name, content = f"{offset:020}{SNAPSHOT}", made.to_bytes()
    entry = partition.snapshots.get(offset)
    if entry is None:
        return RebuiltFile(name, FileState.MISSING, content, None)
    try:
        stored = partition.snapshot(offset)
    except (CorruptRecordError, LogDirectoryError):
        return RebuiltFile(name, FileState.DIFFERENT, content, entry.size)
    lacking = set(made.producers) - set(stored.producers)
    # A broker removes producers after a time without batches; the log does not show when.
    forgotten = {each.producer_id for each in lacking if each.current_txn_first_offset == NO_OFFSET}
    known = {each.producer_id for each in stored.producers}
    same = set(stored.producers) <= set(made.producers) and len(forgotten) == len(lacking) and not forgotten & known
    return RebuiltFile(name, FileState.SAME if same else FileState.DIFFERENT, content, entry.size)


def _compared_epochs(partition: PartitionDirectory, made: LeaderEpochs) -> Iterator[RebuiltFile]:
    """Compare the leader epochs of the log with those of the checkpoint.

    A leader records its epoch before its first record, and deleted records leave epochs behind: such epochs are kept.
    """
    content, entry = format_leader_epochs(made.entries), partition.texts.get(LEADER_EPOCHS)
    if entry is None:
        if made.entries:
            yield RebuiltFile(LEADER_EPOCHS, FileState.MISSING, content, None)
        return
    stored = read_whole(partition.files, entry.path)
    try:
        noted = partition.leader_epochs() or []
        wrong = any(made.unlike(noted)) or (not noted and bool(made.entries))
    except CorruptRecordError:
        wrong = True
    if wrong:
        yield RebuiltFile(LEADER_EPOCHS, FileState.DIFFERENT, content, len(stored))
    else:
        yield RebuiltFile(LEADER_EPOCHS, FileState.SAME, stored, len(stored))
