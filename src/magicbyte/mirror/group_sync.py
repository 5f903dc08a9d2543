"""Consumer groups of the source at the target: their offsets translated, so that they go on there where they were.

A group's offset is written only where the group has no members at the target, and never moves back: from the first
consumer that runs there on, the target's own offsets count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from magicbyte.client import Client
from magicbyte.client.group_admin import describe_group, list_groups
from magicbyte.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.errors import BrokerError, ErrorCode
from magicbyte.mirror.offset_map import Translation
from magicbyte.mirror.offset_topic import KnownMaps, Reach
from magicbyte.mirror.progress import DEFAULT_GROUP, Book, Place

TopicPartition: TypeAlias = tuple[str, int]

IDLE: Final = frozenset({"Empty", "Dead"})  # states of groups without members
JOINED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
"""What a commit from outside gets as soon as a group has members."""
_CONSUMERS: Final = frozenset({"", "consumer"})  # the protocol types of groups that commit offsets for themselves


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A group's place in a partition of the source, and where that is at the target."""

    group: str
    source: TopicPartition
    offset: int
    target: TopicPartition
    translation: Translation


async def translate_groups(
    source: Client, reaches: Mapping[TopicPartition, Reach], names: Iterable[str]
) -> list[GroupOffset]:
    """Return where groups of the source are at the target, for all mirrored partitions in which they have a place.

    The places of mirrors that copy to the source are none of readers.
    """
    found = []
    for name in names:
        places = await committed_offsets(source, name, reaches)
        for partition, place in sorted(places.items()):
            if DEFAULT_GROUP in place.metadata:
                continue
            reach = reaches[partition]
            told = reach.translate(place.offset)
            found.append(GroupOffset(name, partition, place.offset, reach.target, told))
    return found


async def consumer_groups(source: Client) -> list[str]:
    """Return the names of the source's groups of consumers. Raises BrokerError and NetworkError."""
    return [each.name for each in await list_groups(source) if each.protocol_type in _CONSUMERS]


async def saved_reaches(
    target: Client, group: str, prefix: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Reach]:
    """Return what the target knows of partitions that a mirror copies, whether or not it runs; others are left out.

    Those whose records go where keys decide have no map. Raises MirrorError, BrokerError and NetworkError.
    """
    maps, found = KnownMaps(group), {}
    await maps.refresh(target)
    for topic, partition in partitions:
        place = await Book(group, prefix + topic, partition).load(target, 1)
        if place is not None:
            found[topic, partition] = maps.reach((prefix + topic, partition), place)
    return found


async def write_groups(target: Client, offsets: Iterable[GroupOffset]) -> list[GroupOffset]:
    """Commit translated offsets at the target, where that is not a step back; return those that were."""
    by_group: dict[str, list[GroupOffset]] = {}
    for each in offsets:
        by_group.setdefault(each.group, []).append(each)
    written = []
    for name, wanted in by_group.items():
        if (await describe_group(target, name)).state not in IDLE:
            continue
        there = await committed_offsets(target, name, [each.target for each in wanted])
        ahead = [each for each in wanted if each.translation.offset > _place(there.get(each.target))]
        if not ahead:
            continue
        try:
            await commit_offsets(target, name, {each.target: Committed(each.translation.offset) for each in ahead})
        except BrokerError as error:
            if error.code not in JOINED:
                raise
            continue
        written += ahead
    return written


def _place(committed: Committed | None) -> int:
    return -1 if committed is None else committed.offset


class GroupSync:
    """Takes the groups of the source along, again and again. `group` is the mirror's."""

    def __init__(self, source: Client, target: Client, group: str) -> None:
        self._source = source
        self._target = target
        self._maps = KnownMaps(group)

    async def sync(self, places: Mapping[TopicPartition, tuple[TopicPartition, Place]]) -> list[GroupOffset]:
        """Write where groups are by now; return what was written. `places`: of partitions of the source, as saved.

        Beside each place stands the partition of the target. Raises MirrorError, BrokerError and NetworkError.
        """
        if not places:
            return []
        await self._maps.refresh(self._target)
        reaches = {partition: self._maps.reach(target, place) for partition, (target, place) in places.items()}
        found = await translate_groups(self._source, reaches, await consumer_groups(self._source))
        return await write_groups(self._target, found)
