"""Index files and producer snapshots of a partition made anew from its log, and compared with those that are there.

What is made is what Kafka itself makes when it recovers a log. What is there may as well be what its leader wrote while
it appended: both are taken for the same. Nothing is written but by `put`.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from magicbyte.errors import CorruptRecordError, LogDirectoryError
from magicbyte.log.checkpoints import LEADER_EPOCHS
from magicbyte.log.directory import INDEXES, SNAPSHOT, TRANSACTION_INDEX, PartitionDirectory, Segment
from magicbyte.log.files import read_whole, replace_file
from magicbyte.log.index_writer import LATEST_RULES, IndexRules, SegmentIndexer, last_offsets
from magicbyte.log.producer_snapshot import NO_OFFSET, ProducerSnapshot
from magicbyte.log.reader import read_chunks
from magicbyte.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.records.layout import Dialect
from magicbyte.wire import kernel

if TYPE_CHECKING:
    from pathlib import Path

    from magicbyte.log.producer_state import ProducerStates

FAMILIES = ("4.3", "3.7", "2.7", "2.1", "1.1", "0.11.0", "0.10.2", "0.10.0")
"""Versions whose files can tell them from later ones, newest first."""

SAMPLE_BYTES = 64 << 20


class FileState(enum.Enum):
    """How a file that is there compares with the one that was made."""

    SAME = "same"
    MISSING = "missing"
    UNCLOSED = "not closed"  # zeros are left behind the entries: the broker was killed, or is running
    DIFFERENT = "different"
    UNNEEDED = "unneeded"  # this version has no such file, or none here; it is left alone


@dataclass(frozen=True, slots=True)
class RebuiltFile:
    """One index or snapshot. `content` is what was made, None where no file is to be there; sizes are in bytes."""

    name: str
    state: FileState
    content: bytes | None
    found_size: int | None


@dataclass(frozen=True, slots=True)
class RebuiltSegment:
    """What belongs to a segment: its indexes, the snapshot at its base; to the last one that at the log's end, too."""

    segment: Segment
    files: tuple[RebuiltFile, ...]

    @property
    def differs(self) -> bool:
        """Whether a file would have to be written."""
        return any(each.state not in (FileState.SAME, FileState.UNNEEDED) for each in self.files)


def _nothing(_: int) -> None:
    """Take no notice of progress."""


def rebuild(
    partition: PartitionDirectory,
    rules: IndexRules = LATEST_RULES,
    *,
    dialect: Dialect | None = None,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
    progress: Callable[[int], None] = _nothing,
) -> Iterator[RebuiltSegment]:
    """Yield each segment with its files as `rules` want them, in order; `progress` is told the bytes read.

    Producers that are known at the log's start come from the snapshot there, if it can be read. Raises
    CorruptRecordError at the first damage of the log: what lies behind it cannot be told.
    """
    kernel.expect(partition.size)
    producers = _producers_at_start(partition, rules)
    bases = [segment.base_offset for segment in partition.segments]
    kept = bases if rules.line >= (2, 8) else bases[-2:]
    for segment in partition.segments:
        snapshots = {}
        if rules.has_producers and segment.base_offset in kept and segment.base_offset != bases[0]:
            snapshots[segment.base_offset] = producers.snapshot()
        made, also, end = _indexes(partition, segment, rules, producers, dialect or partition.dialect, limit, progress)
        if rules.has_producers and segment.base_offset == bases[-1]:
            snapshots[end] = producers.snapshot()
        files = [
            _compared(partition, segment, suffix, made.get(suffix), also.get(suffix))
            for suffix in INDEXES
            if suffix in made or suffix in segment.companions
        ]
        files += [_compared_snapshot(partition, offset, snapshot) for offset, snapshot in snapshots.items()]
        yield RebuiltSegment(segment, tuple(files))


def recognise(
    partition: PartitionDirectory,
    *,
    interval_bytes: int = LATEST_RULES.interval_bytes,
    dialect: Dialect | None = None,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
) -> IndexRules | None:
    """Return the newest rules that give the files that are there, None when none do, or none are there.

    `interval_bytes` is what `index.interval.bytes` was. The first segments are looked at, about SAMPLE_BYTES of them.
    A missing file tells of an older version only where there is none of its kind. Raises CorruptRecordError for damage
    of the log.
    """
    kinds = {suffix for segment in partition.segments for suffix in segment.companions}
    if partition.snapshots or LEADER_EPOCHS in partition.texts:
        kinds.add(SNAPSHOT)
    sizes = itertools.accumulate(segment.log.size for segment in partition.segments)
    sample = 1 + sum(size <= SAMPLE_BYTES for size in sizes)
    for version in FAMILIES if kinds else ():
        rules = replace(IndexRules.of(version), interval_bytes=interval_bytes)
        segments = itertools.islice(rebuild(partition, rules, dialect=dialect, limit=limit), sample)
        if not any(_speaks_against(file, kinds) for segment in segments for file in segment.files):
            return rules
    return None


def _speaks_against(file: RebuiltFile, kinds: Collection[str]) -> bool:
    """Whether the file as it is there, or is not, cannot be the work of the rules it was made by."""
    if file.state is FileState.MISSING:
        return file.name[20:] not in {*kinds, TRANSACTION_INDEX}
    return file.state in (FileState.DIFFERENT, FileState.UNNEEDED)


def put(folder: Path, rebuilt: RebuiltSegment, *, all_files: bool = False) -> list[str]:
    """Write the files that differ, or all, into `folder`; each is there whole or not at all. Returns their names."""
    written = []
    for file in rebuilt.files:
        if file.content is not None and (all_files or file.state is not FileState.SAME):
            replace_file(folder / file.name, file.content)
            written.append(file.name)
    return written


def _producers_at_start(partition: PartitionDirectory, rules: IndexRules) -> ProducerStates:
    producers = rules.producer_states()
    first = partition.segments[0].base_offset if partition.segments else 0
    if rules.has_producers and first in partition.snapshots:
        try:
            producers.start_from(partition.snapshot(first))
        except CorruptRecordError:
            return producers  # as a broker does; `verify` reports it
    return producers


def _indexes(
    partition: PartitionDirectory,
    segment: Segment,
    rules: IndexRules,
    producers: ProducerStates,
    dialect: Dialect,
    limit: int,
    progress: Callable[[int], None],
) -> tuple[Mapping[str, bytes], Mapping[str, bytes], int]:
    """Return the index files by suffix, those of them that a leader writes otherwise, and the log's end offset."""
    base, end = segment.base_offset, segment.base_offset
    made = SegmentIndexer(base, rules.recovering(), dialect=dialect, producers=producers)
    leader = None
    if rules.names_record_of_time and dialect is Dialect.KAFKA:
        leader = SegmentIndexer(base, replace(rules, marker_rule=None))
    with partition.files.open(segment.log.path) as file:
        for chunk in read_chunks(file, dialect=dialect, limit=limit):
            try:
                made.append(chunk.table, chunk.position)
                if leader is not None:
                    leader.append(chunk.table, chunk.position)
                end = int(last_offsets(chunk.table)[-1]) + 1
            except CorruptRecordError as error:
                raise error.locate(path=chunk.path) from None
            progress(chunk.table.end)
    return made.finish().files(), {} if leader is None else leader.finish().files(), end


def _compared(
    partition: PartitionDirectory, segment: Segment, suffix: str, made: bytes | None, also: bytes | None
) -> RebuiltFile:
    name = f"{segment.base_offset:020}{suffix}"
    entry = segment.companions.get(suffix)
    if entry is None:
        return RebuiltFile(name, FileState.MISSING, made, None)
    found = read_whole(partition.files, entry.path)
    if found in (made, also) or (not found and not made):
        state = FileState.SAME
    elif made is None:
        state = FileState.UNNEEDED
    elif any(each is not None and _is_unclosed(found, each) for each in (made, also)):
        state = FileState.UNCLOSED
    else:
        state = FileState.DIFFERENT
    return RebuiltFile(name, state, made, len(found))


def _is_unclosed(found: bytes, closed: bytes) -> bool:
    """Whether `found` is `closed` with room behind its entries, where the time index's last may still be due."""
    return len(found) > len(closed) and closed.startswith(found.rstrip(b"\0"))


def _compared_snapshot(partition: PartitionDirectory, offset: int, made: ProducerSnapshot) -> RebuiltFile:
    name, content = f"{offset:020}{SNAPSHOT}", made.to_bytes()
    entry = partition.snapshots.get(offset)
    if entry is None:
        return RebuiltFile(name, FileState.MISSING, content, None)
    try:
        found = partition.snapshot(offset)
    except (CorruptRecordError, LogDirectoryError):
        return RebuiltFile(name, FileState.DIFFERENT, content, entry.size)
    lacking = set(made.producers) - set(found.producers)
    # A broker forgets producers that have long been silent: nothing in the log tells when it did.
    forgotten = {each.producer_id for each in lacking if each.current_txn_first_offset == NO_OFFSET}
    known = {each.producer_id for each in found.producers}
    same = set(found.producers) <= set(made.producers) and len(forgotten) == len(lacking) and not forgotten & known
    return RebuiltFile(name, FileState.SAME if same else FileState.DIFFERENT, content, entry.size)
