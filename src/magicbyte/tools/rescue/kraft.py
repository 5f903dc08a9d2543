"""The metadata of a rescued log directory, so that a KRaft node of Kafka starts on it and deletes nothing.

Kafka 4 serves records of formats 0 and 1 as they are. It deletes records that are older than a topic's retention, and
committed offsets that are older than a week, at its first check. So topics keep everything, and the commits of groups
are written again with the present time, unless it is asked otherwise. Source: Kafka's LogManager,
BrokerMetadataPublisher and OffsetExpirationCondition.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from magicbyte.engine.cluster.features import initial_levels
from magicbyte.engine.cluster.image import ClusterImage, ConfigEntity, EntityKind, PartitionImage, TopicImage
from magicbyte.engine.cluster.metadata_fold import records_of
from magicbyte.engine.cluster.quorum_image import TakingOver, quorum_image
from magicbyte.engine.groups.records import GroupMetadataKey, OffsetCommitKey
from magicbyte.engine.internal_topics import CLUSTER_METADATA, COMPACTED, OFFSETS_TOPIC
from magicbyte.engine.log.files.checkpoints import (
    HIGH_WATERMARK,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT,
    PartitionMetadata,
    format_offset_checkpoint,
    format_partition_metadata,
    parse_offset_checkpoint,
)
from magicbyte.engine.log.files.directory import LOG, OFFSET_INDEX, TIME_INDEX, discover, parse_file
from magicbyte.engine.log.files.filesystem import LocalFiles, put_file
from magicbyte.engine.log.files.headers import read_headers
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.fields import id_text
from magicbyte.engine.records.batch import build_batch, single_record
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.tools.offline.new_cluster import LEADER_EPOCH
from magicbyte.tools.offline.quorum_export import ExportedOwner, ExportOptions, MetadataStart, put_metadata
from magicbyte.tools.offline.quorum_format import new_id
from magicbyte.tools.offline.writer import end_offset
from magicbyte.tools.rescue.groups import loaded_groups

if TYPE_CHECKING:
    from pathlib import Path

    from magicbyte.engine.errors import CorruptRecordError
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.releases import Release

KEPT: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""The settings with which a topic keeps all its records."""
_COMPACTED: Final = {"cleanup.policy": "compact"}
_KEY_VERSION, _OFFSET_VERSION, _GROUP_VERSION = 1, 3, 3
_MOST_RECORDS: Final = 1000  # of a batch
_EPOCH: Final = 1


class KraftTarget(NamedTuple):
    """How a rescued directory becomes that of a KRaft node.

    `image`: a cluster whose settings, ids, ACLs, quotas, users and tokens it gets; None without one. `keeps_retention`:
    topics get no other retention. `keeps_commit_times`: commits of groups are not written again. `converts`: records of
    formats 0 and 1 become format 2; else only those of Kafka's own topics, which it compacts.
    """

    node_id: int
    release: Release
    now_ms: int
    level: int | None = None
    cluster_id: uuid.UUID | None = None
    image: ClusterImage | None = None
    keeps_retention: bool = False
    keeps_commit_times: bool = False
    converts: bool = False

    def identity(self) -> dict[str, Any]:
        """Return what decides the directory: an interrupted rescue is continued only with the same."""
        return {
            "node": self.node_id,
            "release": self.release.version,
            "level": self.level,
            "cluster": None if self.cluster_id is None else id_text(self.cluster_id),
            "keepsRetention": self.keeps_retention,
            "keepsCommitTimes": self.keeps_commit_times,
            "converts": self.converts,
        }


class KraftReceipt(NamedTuple):
    """What was made of a rescued directory.

    `unlimited`: topics whose retention is now -1. `renewed_commits`: group offsets whose commit time is now that of the
    rescue. `old_formats`: topics with records of formats 0 and 1, whose bytes are those of the backup.
    """

    node_id: int
    cluster_id: str
    metadata_version: int
    unlimited: Sequence[str]
    renewed_commits: int
    old_formats: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of `magicbyte rescue --json`."""
        return {
            "nodeId": self.node_id,
            "clusterId": self.cluster_id,
            "metadataVersion": self.metadata_version,
            "unlimitedRetention": list(self.unlimited),
            "renewedCommits": self.renewed_commits,
            "oldFormats": list(self.old_formats),
        }


def forget_metadata(folder: Path) -> None:
    """Delete the metadata of an interrupted rescue from a directory."""
    (folder / META_PROPERTIES).unlink(missing_ok=True)
    if (log := folder / f"{CLUSTER_METADATA}-0").exists():
        shutil.rmtree(log)


def add_metadata(folder: Path, target: KraftTarget) -> KraftReceipt:
    """Give a directory of rescued logs what a KRaft node needs; return what was done.

    Raises ValueError for a level that the release does not have, InvalidRequestError for an image that cannot be read.
    """
    logs = [each for each in discover([str(folder)]) if each.topic != CLUSTER_METADATA]
    renewed = 0 if target.keeps_commit_times else _renew_commits(folder, logs, target.now_ms)
    level = target.level or target.release.metadata_version or 0
    base = _base_image(logs, target)
    unlimited = [] if target.keeps_retention else sorted(base.topics.keys() - COMPACTED)
    owner = ExportedOwner(target.node_id, new_id(), id_text(target.cluster_id or new_id()))
    taking = TakingOver(
        node_id=target.node_id,
        directory_id=owner.directory_id,
        levels=initial_levels(level, target.release, {}),
        new_id=new_id,
        is_alone=True,
    )
    image, _ = quorum_image(base, taking)
    image = replace(image, settings=_settings(image, unlimited))
    for each in logs:
        topic, number = each.topic, each.partition
        assert topic is not None
        topic_id = image.topics[topic].id
        assert topic_id is not None
        content = format_partition_metadata(PartitionMetadata(0, topic_id))
        put_file(LocalFiles(), f"{folder}/{topic}-{number}/{PARTITION_METADATA}", content)
    start = MetadataStart(sum(1 for _ in records_of(image)), _EPOCH, _EPOCH)
    put_metadata(folder, image, owner, start, ExportOptions(target.release), target.now_ms)
    old = sorted({each.topic for each in logs if each.topic is not None and _has_old_formats(each)})
    return KraftReceipt(owner.node_id, owner.cluster_id, level, unlimited, renewed, old)


def _has_old_formats(log: PartitionDirectory) -> bool:
    """Return whether a log has entries of format 0 or 1."""
    for segment in log.segments:
        with log.files.open(segment.log.path) as file:
            for headers in read_headers(
                file, dialect=log.dialect, limit=DEFAULT_MAX_BATCH_BYTES, on_damage=_raise, expected_bytes=log.size
            ):
                if (headers.magic < 2).any():
                    return True
    return False


def _raise(error: CorruptRecordError) -> None:
    raise error


def _base_image(logs: Sequence[PartitionDirectory], target: KraftTarget) -> ClusterImage:
    """Return the cluster of the folders: their topics alone, with all that the given image says of them."""
    known = target.image or ClusterImage()
    counts = dict[str, int]()
    for each in logs:
        assert each.topic is not None
        assert each.partition is not None
        counts[each.topic] = max(counts.get(each.topic, 0), each.partition + 1)
    topics = {}
    for name, count in counts.items():
        before = known.topics.get(name)
        partitions = [PartitionImage((target.node_id,))] * max(count, 0 if before is None else len(before.partitions))
        topics[name] = TopicImage(name, None if before is None else before.id, tuple(partitions))
    return replace(known, topics=topics, deletions=frozenset())


def _settings(image: ClusterImage, unlimited: Sequence[str]) -> Mapping[ConfigEntity, Mapping[str, str]]:
    """Return the settings of an image, with those that keep all records and the latest of each key."""
    settings = dict(image.settings)
    for name in image.topics:
        entity = ConfigEntity(EntityKind.TOPIC, name)
        if name in unlimited:
            settings[entity] = {**settings.get(entity, {}), **KEPT}
        elif name in COMPACTED:
            settings[entity] = {**_COMPACTED, **settings.get(entity, {})}
    return settings


# ---- commits


def _renew_commits(folder: Path, logs: Sequence[PartitionDirectory], now_ms: int) -> int:
    """Append the offsets of all groups with the present time to their logs, durably; return how many."""
    ends, renewed = dict[TopicPartition, int](), 0
    for log in logs:
        if log.topic != OFFSETS_TOPIC or log.partition is None:
            continue
        records = list(_commits(log, now_ms))
        if not records:
            continue
        end = end_offset(log)
        content = b"".join(
            _batch(records[at : at + _MOST_RECORDS], end + at, now_ms) for at in range(0, len(records), _MOST_RECORDS)
        )
        for suffix, data in ((OFFSET_INDEX, b""), (TIME_INDEX, b""), (LOG, content)):
            put_file(LocalFiles(), f"{log.path}/{end:020}{suffix}", data)
        ends[TopicPartition(log.topic, log.partition)] = end + len(records)
        renewed += sum(1 for is_offset, _, _ in records if is_offset)
    for name in (RECOVERY_POINT, HIGH_WATERMARK) if ends else ():
        offsets = parse_file(LocalFiles(), f"{folder}/{name}", parse_offset_checkpoint) | ends
        put_file(LocalFiles(), f"{folder}/{name}", format_offset_checkpoint(offsets))
    return renewed


def _commits(partition: PartitionDirectory, now_ms: int) -> Iterator[tuple[bool, bytes, bytes]]:
    """Yield the records of groups and offsets, each with the present time, and whether it is an offset."""
    loaded = loaded_groups(partition)
    for name, group in loaded.groups.items():
        if group.current_state_timestamp >= 0:
            value = replace(group, version=max(group.version, _GROUP_VERSION), current_state_timestamp=now_ms)
            yield False, GroupMetadataKey(name).to_bytes(), value.to_bytes()
    for name, offsets in loaded.offsets.items():
        for place, commit in offsets.items():
            key = OffsetCommitKey(_KEY_VERSION, name, place.topic, place.partition)
            renewed = replace(
                commit, version=_OFFSET_VERSION, commit_timestamp=now_ms, expire_timestamp=-1, topic_id=None
            )
            yield True, key.to_bytes(), renewed.to_bytes()


def _batch(records: Sequence[tuple[bool, bytes, bytes]], base_offset: int, now_ms: int) -> bytes:
    return build_batch(
        b"".join(single_record(key, value, offset_delta=at) for at, (_, key, value) in enumerate(records)),
        base_offset=base_offset,
        last_offset_delta=len(records) - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        record_count=len(records),
        partition_leader_epoch=LEADER_EPOCH,
    )
