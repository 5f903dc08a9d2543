"""Find the partitions in a backup, at any depth; of several replicas of a partition, choose the most complete."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.archive.salvage import SalvageOptions, salvage_partition
from magicbyte.errors import InvalidTopicError, LogDirectoryError, UnknownTopicError
from magicbyte.groups.partitioning import OFFSETS_TOPIC
from magicbyte.log.files.checkpoints import MESSAGE_DIALECT
from magicbyte.log.files.directory import PartitionDirectory, discover
from magicbyte.log.files.left_out import in_use
from magicbyte.log.files.names import check_topic_name, is_named_by_offset, lone_segment
from magicbyte.mirror.plan import INTERNAL
from magicbyte.ports import TopicPartition
from magicbyte.printable import printable
from magicbyte.rescue.unpack import begins_like_segment

if TYPE_CHECKING:
    from collections.abc import Collection

    from magicbyte.archive.salvage import SalvageReport

OLD_CLUSTERS: Final = "it belongs to the old cluster"
UNNAMED: Final = "expected a folder named TOPIC-N; --as TOPIC-N names a single one"


class BackupReplica(NamedTuple):
    """A replica in the backup that was not chosen: its folder, sound bytes, damaged ranges, and the reason."""

    path: str
    bytes: int
    lost: int
    why: str


@dataclass(slots=True)
class BackupContent:
    """The partitions of a backup by name, and the other replicas of each.

    `left_out`: ignored partitions, with reasons.
    """

    partitions: dict[TopicPartition, PartitionDirectory] = field(default_factory=dict)
    others: dict[TopicPartition, list[BackupReplica]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of the segments."""
        return sum(each.size for each in self.partitions.values())


def open_backup(
    folder: Path,
    topics: Collection[str],
    as_: TopicPartition | None,
    options: SalvageOptions,
) -> BackupContent:
    """Return the content of a folder, at any depth. Replicas of the same partition are read in full and compared.

    `as_`: the name of the only partition. Raises LogDirectoryError for a folder without logs, UnknownTopicError.
    """
    content = BackupContent()
    same: dict[TopicPartition, list[PartitionDirectory]] = {}
    for partition in _partitions(folder, as_):
        if partition.topic is None or partition.partition is None:
            content.left_out[printable(partition.path)] = UNNAMED
            continue
        name = TopicPartition(partition.topic, partition.partition)
        if partition.topic in INTERNAL and partition.topic != OFFSETS_TOPIC:
            content.left_out[str(name)] = OLD_CLUSTERS
            continue
        try:
            check_topic_name(partition.topic)
        except InvalidTopicError as error:
            content.left_out[str(name)] = f"no topic has this name: {error}"
            continue
        if not topics or partition.topic in topics or partition.topic == OFFSETS_TOPIC:
            same.setdefault(name, []).append(_of_new_cluster(partition))
    if not same and UNNAMED in content.left_out.values():
        raise LogDirectoryError(f"{next(iter(content.left_out))}: {UNNAMED}")
    for topic in topics:
        if not any(name.topic == topic for name in same):
            raise UnknownTopicError(f"{folder}: no topic {topic!r}")
    for name, replicas in sorted(same.items()):
        content.partitions[name], others = _best(replicas, options)
        if others:
            content.others[name] = others
    return content


def _partitions(folder: Path, as_: TopicPartition | None) -> list[PartitionDirectory]:
    """Return all partitions below a folder, or the one that it is."""
    if folder.is_file():
        return discover([str(folder)], as_)
    holding = sorted({place.parent if place.is_dir() and place != folder else place for place in _segments(folder)})
    if not holding:
        raise LogDirectoryError(f"{folder}: expected folders with segments (of 20 digits and .log), found none")
    partitions = in_use(each for place in holding for each in discover([str(place)]))
    partitions = list({each.path: each for each in partitions}.values())  # one log directory may contain another
    if as_ is not None:
        if len(partitions) != 1:
            raise LogDirectoryError(
                f"{as_} names one partition: expected one partition folder, found {len(partitions)}"
            )
        partitions = [replace(partitions[0], topic=as_.topic, partition=as_.partition)]
    return partitions


def _segments(folder: Path) -> Iterator[Path]:
    """Yield the folders with segments, and the segments outside of their folders."""
    for place, _, names in os.walk(folder):
        if any(name.endswith(".log") and is_named_by_offset(name) for name in names):
            yield Path(place)
        for path in (Path(place, name) for name in names if lone_segment(name) is not None):
            if path.is_file() and begins_like_segment(path):
                yield path


def _of_new_cluster(each: PartitionDirectory) -> PartitionDirectory:
    """Return the partition without its topic id, which is unknown in the new cluster."""
    return replace(each, texts={name: text for name, text in each.texts.items() if name == MESSAGE_DIALECT})


def _best(
    replicas: list[PartitionDirectory], options: SalvageOptions
) -> tuple[PartitionDirectory, list[BackupReplica]]:
    """Return the replica with the most sound bytes, then the fewest damaged ranges, and the others."""
    if len(replicas) == 1:
        return replicas[0], []
    reports = [(salvage_partition(each, None, options), each) for each in replicas]
    reports.sort(key=lambda pair: (-pair[0].bytes, len(pair[0].lost), pair[1].path))
    (best, taken), *others = reports
    return taken, [
        BackupReplica(each.path, report.bytes, len(report.lost), _why(best, report)) for report, each in others
    ]


def _why(best: SalvageReport, other: SalvageReport) -> str:
    if other.bytes < best.bytes:
        return f"{best.bytes - other.bytes} bytes of whole batches less"
    return "more damaged places" if len(other.lost) > len(best.lost) else "as good as the one that is taken"


def missing_numbers(names: Mapping[TopicPartition, PartitionDirectory]) -> list[TopicPartition]:
    """Return the partitions that are missing below the highest partition of each topic."""
    highest: dict[str, int] = {}
    for name in names:
        highest[name.topic] = max(highest.get(name.topic, 0), name.partition)
    every = (TopicPartition(topic, number) for topic, last in sorted(highest.items()) for number in range(last))
    return [each for each in every if each not in names and each.topic != OFFSETS_TOPIC]
