"""Translate consumer group offsets from a backup's `__consumer_offsets` to the offsets of the new cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from magicbyte.access.client.groups import Committed
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.groups.loading import LoadedPartition, Loading
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.tools.mirror.group_sync import Synced, offsets_at, saved_reaches, write_groups

if TYPE_CHECKING:
    from magicbyte.access.client import Client
    from magicbyte.engine.log.files.directory import PartitionDirectory

StoredGroups = dict[str, dict[tuple[str, int], Committed]]


def stored_groups(partitions: Iterable[PartitionDirectory]) -> tuple[StoredGroups, list[str]]:
    """Return the offsets of each group, by topic and partition, and a message for each damaged partition."""
    groups: StoredGroups = {}
    damaged = []
    for each in partitions:
        try:
            loaded = loaded_groups(each)
        except CorruptRecordError as error:
            damaged.append(f"{each.name}: {error}")
            continue
        for group, offsets in loaded.offsets.items():
            places = groups.setdefault(group, {})
            places |= {
                (name.topic, name.partition): Committed(value.offset, value.metadata) for name, value in offsets.items()
            }
    return dict(sorted(groups.items())), damaged


def loaded_groups(partition: PartitionDirectory) -> LoadedPartition:
    """Return the groups and offsets in a partition of `__consumer_offsets`. Raises CorruptRecordError."""
    loading = Loading()
    for chunk in SegmentReader(partition).chunks():
        loading.read(chunk.table.buffer[: chunk.table.end])
    return loading.finish()


async def write_stored_groups(
    target: Client, mirror_group: str, groups: StoredGroups, topics: Mapping[str, int]
) -> Synced:
    """Commit the translated offsets of groups at the target, for the partitions of `topics` copied by a mirror.

    Groups with members there are left out, and no committed offset is lowered. Raises MirrorError, BrokerError and
    NetworkError.
    """
    synced = Synced()
    copied = [(name, number) for name, count in topics.items() for number in range(count)]
    reaches = await saved_reaches(target, mirror_group, "", copied)
    offsets = []
    for name, places in groups.items():
        translated = offsets_at(name, places, reaches)
        offsets += translated
        if lacking := sorted({topic for topic, _ in places} - {each.source[0] for each in translated}):
            synced.leave_out(name, f"its topics are not in the backup: {', '.join(lacking)}")
    await write_groups(target, offsets, synced)
    return synced
