"""Synchronize consumer groups: translate their offsets, so that they can continue at the target.

A group's offset is written only if the group has no members at the target, and never decreases: from the first consumer
at the target on, the target's own offsets count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from magicbyte.access.client import Client
from magicbyte.access.client.group_admin import describe_group
from magicbyte.access.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.tools.mirror.group_names import GroupNames
from magicbyte.tools.mirror.offset_map import Translation
from magicbyte.tools.mirror.offset_topic import KnownMaps, Reach
from magicbyte.tools.mirror.progress import DEFAULT_GROUP, Book, MirrorPlace

TopicPartition: TypeAlias = tuple[str, int]

IDLE: Final = frozenset({"Empty", "Dead"})  # states of groups without members
JOINED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
"""Errors of a commit from outside as soon as a group has members."""
HAS_MEMBERS: Final = "it has members at the target"
_MOST_NAMED: Final = 3
_SHARE: Final = "share"
_CONSUMERS: Final = frozenset({"", "consumer"})  # protocol types of groups whose members commit offsets


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A group's offset in a partition of the source, and its translation for the target."""

    group: str
    source: TopicPartition
    offset: int
    target: TopicPartition
    translation: Translation


async def translate_groups(
    source: Client, reaches: Mapping[TopicPartition, Reach], names: Iterable[str]
) -> list[GroupOffset]:
    """Return the translated offsets of groups, for all mirrored partitions in which they have one.

    Groups that are themselves progress of mirrors to the source are skipped.
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
    """Return the translated offsets of a group with these offsets at the source.

    Groups that are themselves progress of mirrors are skipped.
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
    """Return the target's stored state of partitions that a mirror copies, running or not; others are left out.

    Partitions whose records are spread by key have no map. Raises MirrorError, BrokerError and NetworkError.
    """
    maps, reaches = KnownMaps(group), {}
    await maps.refresh(target)
    for topic, partition in partitions:
        place = await Book(group, prefix + topic, partition).load(target, 1)
        if place is not None:
            reaches[topic, partition] = maps.reach((prefix + topic, partition), place)
    return reaches


@dataclass(slots=True)
class Synced:
    """The written offsets, and by group the reasons why it was skipped, or some of its partitions."""

    written: list[GroupOffset] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def leave_out(self, group: str, why: str) -> None:
        """Add a reason to those of a group."""
        before = self.left_out.get(group)
        self.left_out[group] = why if before is None else f"{before}; {why}"


async def write_groups(target: Client, offsets: Iterable[GroupOffset], synced: Synced) -> None:
    """Commit translated offsets at the target, unless that would decrease them; record the results."""
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
            synced.leave_out(name, f"the target's offsets are higher in {_named(further)}")
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
    """Return the first partitions by name, and the number of the others."""
    names = ", ".join(f"{topic}-{partition}" for topic, partition in partitions[:_MOST_NAMED])
    others = len(partitions) - _MOST_NAMED
    return names if others <= 0 else f"{names} and {others} others"


def _place(committed: Committed | None) -> int:
    return -1 if committed is None else committed.offset


class GroupSync:
    """Synchronize the groups of the source, repeatedly. `group` is the mirror's."""

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
        """Write the current offsets of groups; return the written and the skipped ones.

        `places`: the stored positions of partitions of the source, each with the partition of the target.
        `without_place`: why other mirrored partitions have none. Raises MirrorError, BrokerError and NetworkError.
        """
        synced = Synced()
        if not places and not without_place:
            return synced
        await self._maps.refresh(self._target)
        reaches = {partition: self._maps.reach(target, place) for partition, (target, place) in places.items()}
        offsets = list[GroupOffset]()
        for name, kind in (await self._names.find()).items():
            if kind == _SHARE:  # it has no committed offsets
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
        for kind, why in self._names.untold.items():
            synced.leave_out(kind, why)
        synced.left_out = dict(sorted(synced.left_out.items()))
        return synced
