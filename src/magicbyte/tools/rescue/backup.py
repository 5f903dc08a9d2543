"""Find the partitions in a backup, at any depth; of several replicas of a partition, choose the most complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.engine.errors import CorruptRecordError, InvalidTopicError, LogDirectoryError, UnknownTopicError
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.log.files.checkpoints import MESSAGE_DIALECT, OFFSET_CHECKPOINTS
from magicbyte.engine.log.files.directory import FoundLogs, PartitionDirectory, survey
from magicbyte.engine.log.files.left_out import in_use, is_quorums_own, left_out
from magicbyte.engine.log.files.missing import Missing, end_offset, missing_in
from magicbyte.engine.log.files.names import check_topic_name, is_named_by_offset, lone_segment
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import printable
from magicbyte.tools.mirror.plan import INTERNAL
from magicbyte.tools.offline.diff import DiffOptions, DiffReport, Ignored, Side, What, diff_partition
from magicbyte.tools.offline.salvage import SalvageOptions, salvage_partition
from magicbyte.tools.rescue.unpack import begins_like_segment

if TYPE_CHECKING:
    from collections.abc import Collection

    from magicbyte.tools.offline.salvage import SalvageReport

OLD_CLUSTERS: Final = "it belongs to the old cluster"
UNNAMED: Final = "expected a folder named TOPIC-N; --as TOPIC-N names a single one"


class BackupReplica(NamedTuple):
    """A replica in the backup that was not chosen: its folder, sound bytes, damaged ranges, and the reason.

    `differing`: records with other content than those of the same offsets in the chosen replica.
    """

    path: str
    bytes: int
    lost: int
    why: str
    differing: int = 0


class Omission(NamedTuple):
    """Why a folder of the backup is left out. `is_loss`: records of a user may be in it, and in no other folder."""

    why: str
    is_loss: bool


@dataclass(slots=True)
class BackupContent:
    """The partitions of a backup by name, and the other replicas of each.

    `left_out`: ignored partitions by name, and ignored folders by path. `gaps`: what log directories prove to be
    missing, unless the chosen replica has it.
    """

    partitions: dict[TopicPartition, PartitionDirectory] = field(default_factory=dict)
    others: dict[TopicPartition, list[BackupReplica]] = field(default_factory=dict)
    left_out: dict[str, Omission] = field(default_factory=dict)
    gaps: list[Missing] = field(default_factory=list)

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

    `as_`: the name of the only partition. Raises LogDirectoryError for a folder without logs, or with logs of one
    partition from two clusters; UnknownTopicError.
    """
    content = BackupContent()
    same: dict[TopicPartition, list[PartitionDirectory]] = {}
    found = _logs(folder, as_)
    for other, why, is_only_copy in left_out(found.partitions):
        if not topics or other.topic in topics:
            advice = ": give this path itself to rescue it" if is_only_copy else ""
            content.left_out[printable(other.path)] = Omission(f"{why}{advice}", is_only_copy)
    for partition in in_use(found.partitions):
        if partition.topic is None or partition.partition is None:
            content.left_out[printable(partition.path)] = Omission(UNNAMED, is_loss=True)
            continue
        name = TopicPartition(partition.topic, partition.partition)
        if partition.topic in INTERNAL and partition.topic != OFFSETS_TOPIC:
            content.left_out[str(name)] = Omission(OLD_CLUSTERS, is_loss=False)
            continue
        try:
            check_topic_name(partition.topic)
        except InvalidTopicError as error:
            content.left_out[str(name)] = Omission(f"no topic has this name: {error}", is_loss=True)
            continue
        if not topics or partition.topic in topics or partition.topic == OFFSETS_TOPIC:
            same.setdefault(name, []).append(_of_new_cluster(partition))
    unnamed = [path for path, omission in content.left_out.items() if omission.why == UNNAMED]
    if not same and unnamed:
        raise LogDirectoryError(f"{unnamed[0]}: {UNNAMED}")
    _refuse_two_clusters(same, found)
    for topic in topics:
        if not any(name.topic == topic for name in same):
            raise UnknownTopicError(f"{folder}: no topic {topic!r}")
    for name, replicas in sorted(same.items()):
        content.partitions[name], others = _best(replicas, options)
        if others:
            content.others[name] = others
    content.gaps = [gap for gap in missing_in(found, topics) if not _is_covered(gap, content)]
    return content


def _is_covered(gap: Missing, content: BackupContent) -> bool:
    """Return whether a gap of one replica is none in the rescued topics: the chosen replica reaches beyond it."""
    if not gap.may_have_records or gap.topic is None or gap.partition is None:
        return not gap.may_have_records
    if is_quorums_own(gap.topic) or (gap.topic in INTERNAL and gap.topic != OFFSETS_TOPIC):
        return True
    chosen = content.partitions.get(TopicPartition(gap.topic, gap.partition))
    if chosen is None or gap.path == chosen.path or Path(gap.path).parent == Path(chosen.path):
        return False
    end = end_offset(chosen)
    return gap.offsets is None or (end is not None and end > gap.offsets[1])


def _refuse_two_clusters(same: Mapping[TopicPartition, list[PartitionDirectory]], found: FoundLogs) -> None:
    """Raise LogDirectoryError if two log directories of different clusters have the same partition."""
    clusters: dict[str, str] = {}
    for directory in found.directories:
        with contextlib.suppress(CorruptRecordError):
            properties = directory.meta_properties()
            if properties is not None and properties.cluster_id is not None:
                clusters[directory.path] = properties.cluster_id
    for name, replicas in sorted(same.items()):
        of = {
            clusters[replica.log_directory]: replica.path for replica in replicas if replica.log_directory in clusters
        }
        if len(of) > 1:
            (one, path), (other, path_of_other), *_ = of.items()
            raise LogDirectoryError(
                f"{name} is in two clusters: {path} of {one}, {path_of_other} of {other}: they are no replicas of one "
                "log; rescue the folder of each cluster by itself"
            )


def _logs(folder: Path, as_: TopicPartition | None) -> FoundLogs:
    """Return all partitions below a folder, or the one that it is, and their log directories."""
    if folder.is_file():
        return survey([str(folder)], as_)
    holding = sorted(set(_roots(folder)))
    if not holding:
        raise LogDirectoryError(f"{folder}: expected folders with segments (of 20 digits and .log), found none")
    found = [survey([str(place)]) for place in holding]
    # one log directory may contain another
    partitions = list({each.path: each for some in found for each in some.partitions}.values())
    directories = list({each.path: each for some in found for each in some.directories}.values())
    if as_ is not None:
        if len(partitions) != 1:
            raise LogDirectoryError(
                f"{as_} names one partition: expected one partition folder, found {len(partitions)}"
            )
        partitions = [replace(partitions[0], topic=as_.topic, partition=as_.partition)]
    return FoundLogs(partitions, directories)


def _roots(folder: Path) -> Iterator[Path]:
    """Yield the folders above partition folders, log directories with checkpoints, and lone segments."""
    for path, _, names in os.walk(folder):
        place = Path(path)
        if any(name.endswith(".log") and is_named_by_offset(name) for name in names):
            yield place if place == folder else place.parent
        if any(name in OFFSET_CHECKPOINTS for name in names):
            yield place
        for segment in (place / name for name in names if lone_segment(name) is not None):
            if segment.is_file() and begins_like_segment(segment):
                yield segment


def _of_new_cluster(each: PartitionDirectory) -> PartitionDirectory:
    """Return the partition without its topic id, which is unknown in the new cluster."""
    return replace(each, texts={name: text for name, text in each.texts.items() if name == MESSAGE_DIALECT})


def _best(
    replicas: list[PartitionDirectory], options: SalvageOptions
) -> tuple[PartitionDirectory, list[BackupReplica]]:
    """Return the replica with the most sound bytes, then the fewest damaged ranges, and the others."""
    if len(replicas) == 1:
        return replicas[0], []
    reports = [(salvage_partition(replica, None, options), replica) for replica in replicas]
    reports.sort(key=lambda pair: (-pair[0].bytes, len(pair[0].lost), pair[1].path))
    (best, taken), *others = reports
    return taken, [
        BackupReplica(each.path, report.bytes, len(report.lost), _why(best, report), _differing(taken, each, options))
        for report, each in others
    ]


def _differing(taken: PartitionDirectory, other: PartitionDirectory, options: SalvageOptions) -> int:
    """Return how many records have the same offset in two replicas, but not the same content. Damage is passed over."""
    report = DiffReport()
    chosen = DiffOptions(frozenset({Ignored.CONTROL}), options.limit, on_damage=lambda _: None)
    for _ in diff_partition(Side(taken), Side(other), chosen, name=taken.name, report=report):
        pass  # only the counts matter
    (comparison,) = report.partitions
    either = What.ONLY_IN_A | What.ONLY_IN_B
    return sum(count for what, count in comparison.differing.items() if not what & either)


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
