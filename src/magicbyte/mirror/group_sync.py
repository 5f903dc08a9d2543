"""Consumer groups of the source at the target: their offsets translated, so that they go on there where they were.

A group's offset is written only where the group has no members at the target, and never moves back: from the first
consumer that runs there on, the target's own offsets count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from magicbyte.client import Client
from magicbyte.client.group_admin import describe_group
from magicbyte.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.errors import BrokerError, ErrorCode
from magicbyte.mirror.group_names import GroupNames
from magicbyte.mirror.offset_map import Translation
from magicbyte.mirror.offset_topic import KnownMaps, Reach
from magicbyte.mirror.progress import DEFAULT_GROUP, Book, MirrorPlace

TopicPartition: TypeAlias = tuple[str, int]

IDLE: Final = frozenset({"Empty", "Dead"})  # states of groups without members
JOINED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
"""What a commit from outside gets as soon as a group has members."""
HAS_MEMBERS: Final = "it has members at the target"
_MOST_NAMED: Final = 3
_SHARE: Final = "share"
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
        found += offsets_at(name, await committed_offsets(source, name, reaches), reaches)
    return found


def _of_readers(places: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, Committed]:
    return {partition: each for partition, each in places.items() if DEFAULT_GROUP not in each.metadata}


def offsets_at(
    name: str, places: Mapping[TopicPartition, Committed], reaches: Mapping[TopicPartition, Reach]
) -> list[GroupOffset]:
    """Return where a group with these places at the source goes on, in partitions that are copied.

    The places of mirrors are none of readers.
    """
    return [
        GroupOffset(
            name, partition, place.offset, reaches[partition].target, reaches[partition].translate(place.offset)
        )
        for partition, place in sorted(_of_readers(places).items())
        if partition in reaches
    ]


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


@dataclass(slots=True)
class Synced:
    """What was written of groups, and by group why others were left out, or some of their partitions."""

    written: list[GroupOffset] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def leave_out(self, group: str, why: str) -> None:
        """Note a reason, beside others that there are."""
        before = self.left_out.get(group)
        self.left_out[group] = why if before is None else f"{before}; {why}"


async def write_groups(target: Client, offsets: Iterable[GroupOffset], synced: Synced) -> None:
    """Commit translated offsets at the target, where that is not a step back; note what was done."""
    by_group: dict[str, list[GroupOffset]] = {}
    for each in offsets:
        by_group.setdefault(each.group, []).append(each)
    for name, wanted in by_group.items():
        if (await describe_group(target, name)).state not in IDLE:
            synced.leave_out(name, HAS_MEMBERS)
            continue
        there = await committed_offsets(target, name, [each.target for each in wanted])
        further = [each.target for each in wanted if each.translation.offset < _place(there.get(each.target))]
        ahead = [each for each in wanted if each.translation.offset > _place(there.get(each.target))]
        if further:
            synced.leave_out(name, f"the target is further on in {_named(further)}")
        if not ahead:
            continue
        try:
            await commit_offsets(target, name, {each.target: Committed(each.translation.offset) for each in ahead})
        except BrokerError as error:
            if error.code not in JOINED:
                raise
            synced.leave_out(name, HAS_MEMBERS)
            continue
        synced.written += ahead


def _named(partitions: Sequence[TopicPartition]) -> str:
    """Return some partitions by name, and how many others there are."""
    names = ", ".join(f"{topic}-{partition}" for topic, partition in partitions[:_MOST_NAMED])
    others = len(partitions) - _MOST_NAMED
    return names if others <= 0 else f"{names} and {others} others"


def _place(committed: Committed | None) -> int:
    return -1 if committed is None else committed.offset


class GroupSync:
    """Takes the groups of the source along, again and again. `group` is the mirror's."""

    def __init__(self, source: Client, target: Client, group: str) -> None:
        self._source = source
        self._target = target
        self._maps = KnownMaps(group)
        self._names = GroupNames(source)

    async def sync(
        self,
        places: Mapping[TopicPartition, tuple[TopicPartition, MirrorPlace]],
        without_place: Mapping[TopicPartition, str],
    ) -> Synced:
        """Write where groups are by now; return what was written and left out.

        `places`: of partitions of the source, as saved, behind the partition of the target. `without_place`: why other
        partitions that are mirrored have none. Raises MirrorError, BrokerError and NetworkError.
        """
        synced = Synced()
        if not places and not without_place:
            return synced
        await self._maps.refresh(self._target)
        reaches = {partition: self._maps.reach(target, place) for partition, (target, place) in places.items()}
        offsets = list[GroupOffset]()
        for name, kind in (await self._names.find()).items():
            if kind == _SHARE:  # it has no offsets to ask for
                synced.leave_out(name, "a share group has no offsets")
                continue
            found = await committed_offsets(self._source, name, [*places, *without_place])
            readers = _of_readers(found)
            if found and not readers:
                synced.leave_out(name, "its offsets are the progress of a mirror")
            elif readers and kind not in _CONSUMERS:
                synced.leave_out(name, f"it is a group of type {kind}, not of consumers")
            else:
                for why in sorted({without_place[each] for each in readers if each in without_place}):
                    lacking = sorted(each for each in readers if without_place.get(each) == why)
                    synced.leave_out(name, f"{why} in {_named(lacking)}")
                offsets += offsets_at(name, readers, reaches)
        await write_groups(self._target, offsets, synced)
        if self._names.untold is not None:
            synced.leave_out("(groups without members)", self._names.untold)
        synced.left_out = dict(sorted(synced.left_out.items()))
        return synced
