"""Select partitions from a search, and find the log start offset of each."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, UnknownTopicError
from magicbyte.engine.log.files.checkpoints import (
    CLEAN_SHUTDOWN,
    LOG_START,
    META_PROPERTIES,
    RECOVERY_POINT,
    parse_offset_checkpoint,
)
from magicbyte.engine.log.files.directory import PartitionDirectory, log_directories, parse_file
from magicbyte.engine.log.files.filesystem import read_whole
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.entry import dialect_doubt, entries
from magicbyte.engine.records.layout import Dialect

if TYPE_CHECKING:
    from magicbyte.engine.log.files.missing import CheckpointedOffsets

_NAMED_AT_MOST = 12
_SAMPLE_BYTES = 64 << 10


class Named(Protocol):
    """A partition of a topic: a folder, or records sent by brokers."""

    @property
    def topic(self) -> str | None:
        """Its topic, None if unknown."""

    @property
    def partition(self) -> int | None:
        """Its number."""

    @property
    def name(self) -> str:
        """Topic and number, for messages."""


P = TypeVar("P", bound=Named)


def choose(partitions: Collection[P], topics: Collection[str] = (), numbers: Collection[int] = ()) -> list[P]:
    """Return the partitions of `topics` with one of the `numbers`; no topics or no numbers mean all.

    Raises UnknownTopicError, with the existing names, for a topic or a partition that does not exist.
    """
    missing = [topic for topic in topics if topic not in {each.topic for each in partitions}]
    if missing:
        raise UnknownTopicError(f"no topic {missing[0]!r} here: expected {_some({each.topic for each in partitions})}")
    chosen = [each for each in partitions if not topics or each.topic in topics]
    absent = [number for number in numbers if number not in {each.partition for each in chosen}]
    if absent:
        raise UnknownTopicError(f"no partition {absent[0]} here: expected {_some({each.name for each in chosen})}")
    return [each for each in chosen if not numbers or each.partition in numbers]


def _some(names: Iterable[str | None]) -> str:
    """Return the names for a message, the first ones of many."""
    known = sorted(name for name in names if name is not None)
    if not known:
        return "a folder named TOPIC-N, or a name given by --as TOPIC-N"
    more = len(known) - _NAMED_AT_MOST
    listed = ", ".join(known[:_NAMED_AT_MOST])
    return f"one of {listed} and {more} more" if more > 0 else f"one of {listed}" if len(known) > 1 else listed


def log_start_offset(partition: PartitionDirectory) -> int:
    """Return the log start offset. A broker returns no records below it, though the first segments may have some.

    It is in the log directory's `log-start-offset-checkpoint`; 0 if that does not name the partition. Raises
    CorruptRecordError for a damaged checkpoint.
    """
    if partition.topic is None or partition.partition is None:
        return 0
    above = partition.log_directory or partition.path.rstrip("/").rpartition("/")[0]
    try:
        starts = parse_file(partition.files, f"{above}/{LOG_START}", parse_offset_checkpoint)
    except (OSError, LogDirectoryError):  # no such file, or the folder stands alone
        return 0
    return starts.get(TopicPartition(partition.topic, partition.partition), 0)


def recovery_offset(partition: PartitionDirectory, known: CheckpointedOffsets) -> int | None:
    """Return the offset from which a broker recovers the log when it opens it, and rebuilds its indexes.

    None if it trusts them, after a clean shutdown, or if that is unknown, because the folder stands alone.
    """
    if partition.log_directory is None or partition.topic is None or partition.partition is None:
        return None
    with contextlib.suppress(OSError):
        partition.files.entry(f"{partition.log_directory}/{CLEAN_SHUTDOWN}")
        return None
    points = known.of(partition.files, partition.log_directory)[RECOVERY_POINT]
    return points.get(TopicPartition(partition.topic, partition.partition), 0)


def meta_properties(partitions: Iterable[PartitionDirectory]) -> bytes | None:
    """Return the `meta.properties` of the log directory of `partitions`; None if there is none, or more than one
    directory.
    """
    found = [
        read_whole(directory.files, directory.texts[META_PROPERTIES].path)
        for directory in log_directories(partitions)
        if META_PROPERTIES in directory.texts
    ]
    return found[0] if len(found) == 1 else None


def dialect_doubts(partition: PartitionDirectory, dialect: Dialect) -> list[str]:
    """Return a line with the reason if the partition seems to be in the other dialect than `dialect`; else [].

    Reads the entries in the first bytes of the first and of the last segment.
    """
    for segment in partition.segments[:1] + partition.segments[1:][-1:]:
        with partition.files.open(segment.log.path) as file:
            sample = memoryview(file.read_at(0, _SAMPLE_BYTES))
        walk = entries(sample, dialect)
        try:
            for position, entry in walk:
                if doubt := dialect_doubt(entry.buffer, dialect):
                    return [f"{segment.log.path}, position {position}: {doubt}"]
        except CorruptRecordError:  # readers of the records will report it; here it may be another sign
            if doubt := dialect_doubt(sample[walk.position :], dialect):
                return [f"{segment.log.path}, position {walk.position}: {doubt}"]
    return []
