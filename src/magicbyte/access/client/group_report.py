"""Reports on consumer groups: lag and members by partition; and resets of their offsets."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NoReturn

from msgspec import Struct, field

from magicbyte.access.client.client import Client
from magicbyte.access.client.group_admin import (
    SHARE,
    DescribedGroup,
    GroupMember,
    describe_group,
    list_groups,
    share_offsets,
)
from magicbyte.access.client.groups import (
    Committed,
    TopicPartition,
    commit_offsets,
    committed_offsets,
    zookeeper_offsets,
)
from magicbyte.access.client.offsets import LATEST, bounds, list_offset
from magicbyte.engine.errors import BrokerError, ErrorCode, UnknownTopicError, UnsupportedVersionError
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey

Json = dict[str, Any]
Kind = Literal["earliest", "latest", "offset", "datetime", "shift"]

OTHER_KINDS: Final = ("streams",)
_TIMES_KNOWN: Final = 1  # the first version of ListOffsets that searches by record timestamps


class ReportedGroup(Struct):
    """A group. `described` is None with brokers before 0.9, which have no members."""

    name: str
    described: DescribedGroup | None
    offsets: dict[TopicPartition, Committed]
    in_zookeeper: dict[TopicPartition, Committed] = field(default_factory=dict)

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """Its members, none if they are unknown."""
        return () if self.described is None else self.described.members

    @property
    def exists(self) -> bool:
        """Whether it has offsets, or its coordinator knows it."""
        return bool(self.offsets or self.in_zookeeper or (self.described is not None and self.described.is_known))

    def why_unknown(self, *, zookeeper: bool) -> str | None:
        """Return why it may have members that are not among `members`. `zookeeper`: its offsets there are meant."""
        if self.described is None:
            return "brokers before 0.9 know no members"
        return "the members of consumers with offsets in ZooKeeper are known to ZooKeeper only" if zookeeper else None

    def check_empty(self, task: str) -> None:
        """Raise BrokerError, NON_EMPTY_GROUP, for a group with members; `task` names the requested operation."""
        if self.members:
            clients = ", ".join(sorted({f"{each.client_id} at {each.host.lstrip('/')}" for each in self.members}))
            count = "1 member" if len(self.members) == 1 else f"{len(self.members)} members"
            detail = f"{count} ({clients}): stop these consumers first"
            raise BrokerError(f"{task} {self.name}", ErrorCode.NON_EMPTY_GROUP, broker="the cluster", detail=detail)


class GroupPlace(Struct, frozen=True):
    """The position of a group in a partition. `end` is None if it is unknown; `kept_in`: "kafka" or "zookeeper"."""

    topic: str
    partition: int
    committed: Committed | None
    end: int | None
    kept_in: str
    member: GroupMember | None

    def to_json(self) -> Json:
        """Return the row of `magicbyte groups describe --format json`."""
        offset = None if self.committed is None else self.committed.offset
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": offset,
            "end": self.end,
            "lag": None if offset is None or self.end is None else max(self.end - offset, 0),
            "metadata": None if self.committed is None else self.committed.metadata,
            "keptIn": self.kept_in,
            "member": None if self.member is None or self.kept_in == "zookeeper" else self.member.id,
        }


class GroupReport(Struct, frozen=True):
    """A group with the partitions for which it has offsets or assignments."""

    group: ReportedGroup
    places: tuple[GroupPlace, ...]

    def to_json(self) -> Json:
        """Return the group as printed by `magicbyte groups describe --format json`."""
        group, described = self.group, self.group.described
        return {
            "group": group.name,
            "state": None if described is None else described.state,
            "kind": None if described is None else described.kind,
            "protocolType": None if described is None else described.protocol_type,
            "assignor": None if described is None else described.assignor,
            "coordinator": None if described is None else described.coordinator.id,
            "members": [
                {
                    "id": member.id,
                    "instanceId": member.instance_id,
                    "clientId": member.client_id,
                    "host": member.host,
                    "partitions": [f"{topic}-{index}" for topic, index in member.partitions],
                }
                for member in group.members
            ]
            if described is not None
            else None,
            "partitions": [member.to_json() for member in self.places],
        }


async def report_of(client: Client, group: ReportedGroup) -> GroupReport:
    """Return the group's position in each partition. Raises BrokerError and NetworkError."""
    readers = {place: member for member in group.members for place in member.partitions}
    places = sorted(group.offsets.keys() | group.in_zookeeper.keys() | readers.keys())
    ends = await _ends(client, places)
    rows = []
    for place in places:
        for kept, offsets in (("kafka", group.offsets), ("zookeeper", group.in_zookeeper)):
            if place in offsets or (kept == "kafka" and place not in group.in_zookeeper):
                rows.append(GroupPlace(*place, offsets.get(place), ends[place], kept, readers.get(place)))
    return GroupReport(group, tuple(rows))


async def _ends(client: Client, places: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
    """Return the end of each partition, None for deleted ones and those without a leader."""
    known = await client.topics()
    found: dict[TopicPartition, int | None] = {}
    for topic, index in places:
        partition = known[topic].partitions.get(index) if topic in known else None
        leads = partition is not None and partition.leader in client.cluster.brokers
        found[topic, index] = (await list_offset(client, topic, index, LATEST)).offset if leads else None
    return found


async def find_groups(client: Client, *, zookeeper: bool, warn: Callable[[str], None]) -> list[ReportedGroup]:
    """Return all groups; `warn` is called with those that are not among them: of other kinds, or unknown."""
    groups = []
    listed = await list_groups(client)
    if listed.hidden:
        warn(listed.warning)
    for each in listed.groups:
        if each.kind in OTHER_KINDS:
            warn(f"{each.name} is a {each.kind} group, which this command does not support")
            continue
        try:
            groups.append(await find_group(client, each.name, zookeeper=zookeeper))
        except BrokerError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:  # deleted meanwhile
                raise
    return groups


async def find_group(client: Client, name: str, *, zookeeper: bool = False) -> ReportedGroup:
    """Return a group. Raises BrokerError, GROUP_ID_NOT_FOUND, for one that has neither members nor offsets.

    The brokers look up ZooKeeper partition by partition, so this is done only if needed, or with `zookeeper`.
    """
    group = await _reported(client, name, zookeeper=zookeeper)
    if not group.exists:
        await _not_found(client, name)
    return group


async def _reported(client: Client, name: str, *, zookeeper: bool) -> ReportedGroup:
    """Return a group, which may not exist."""
    try:
        described = await describe_group(client, name)
    except UnsupportedVersionError:
        described = None
    if described is not None and described.kind == SHARE:
        return ReportedGroup(name, described, await share_offsets(client, name))
    group = ReportedGroup(name, described, await committed_offsets(client, name, None))
    if zookeeper or not group.offsets:
        group.in_zookeeper = await zookeeper_offsets(client, name)
    return group


async def _not_found(client: Client, name: str) -> NoReturn:
    try:
        listed = await list_groups(client)
    except UnsupportedVersionError:
        detail = "it has no committed offsets, and these brokers know nothing else of groups"
    else:
        known = {each.name: each.kind for each in listed.groups}
        near = difflib.get_close_matches(name, known, 3)
        detail = (
            f"is it {' or '.join(map(repr, near))}?"
            if near
            else f"no similarly named group among the {len(known)} that exist"
        )
        if (kind := known.get(name)) in OTHER_KINDS:
            detail = f"it is a {kind} group, which this command does not support; Kafka's own tools do"
    raise BrokerError(f"group {name!r}", ErrorCode.GROUP_ID_NOT_FOUND, broker="the cluster", detail=detail)


# ---- offset resets


class OffsetTarget(Struct, frozen=True):
    """The target of a reset: `number` is an offset, a time in ms, or a shift by a number of records."""

    kind: Kind
    number: int = 0


class Reset(Struct, frozen=True):
    """The reset of a group in a partition. `wanted`: the offset before it was clamped to `start` and `end`."""

    topic: str
    partition: int
    was: int | None
    wanted: int
    start: int
    end: int

    @property
    def offset(self) -> int:
        """The new offset."""
        return min(max(self.wanted, self.start), self.end)

    def to_json(self) -> Json:
        """Return the row of `magicbyte groups reset-offsets --format json`."""
        return {"topic": self.topic, "partition": self.partition, "was": self.was, "offset": self.offset,
                "start": self.start, "end": self.end, "lag": self.end - self.offset}  # fmt: skip


async def reset_offsets(
    client: Client, name: str, topics: Mapping[str, list[int]], target: OffsetTarget, *, dry_run: bool, zookeeper: bool,
    warn: Callable[[str], None],
) -> list[Reset]:  # fmt: skip
    """Reset the offsets of a group without members and return them; a `dry_run` changes nothing.

    `topics`: partitions by topic, an empty list for all of it; without topics, those for which the group has offsets.
    Raises BrokerError for an unknown group or one with members, UnknownTopicError and NetworkError.
    """
    task = f"reset offsets of group {name}"
    group = await _group_to_reset(client, name, wanted=bool(topics), zookeeper=zookeeper)
    group.check_empty("reset offsets of group")
    if (why := group.why_unknown(zookeeper=zookeeper)) is not None:
        warn(f"whether group {name} has members is not known, {why}: see that its consumers have stopped")
    if group.in_zookeeper and not group.offsets and not zookeeper:
        detail = "its offsets are in ZooKeeper, where its consumers look: add --zookeeper"
        raise BrokerError(task, ErrorCode.INVALID_REQUEST, broker="the cluster", detail=detail)
    was = group.in_zookeeper if zookeeper else group.offsets
    places = await _chosen(client, topics) if topics else sorted(was)
    if not places:
        detail = "it has no offsets: name topics with -t"
        raise BrokerError(task, ErrorCode.INVALID_REQUEST, broker="the cluster", detail=detail)
    latest = (await client.any_connection()).versions.latest(APIS[ApiKey.LIST_OFFSETS])
    if target.kind == "datetime" and latest is not None and latest < _TIMES_KNOWN:
        warn("brokers before 0.10.1 have no index of timestamps: the start of a segment is used")
    resets = []
    for place in places:
        each = await _reset(client, place, was.get(place), target)
        if each.offset != each.wanted:
            warn(
                f"{place[0]}-{place[1]}: {each.wanted} is not within {each.start} to {each.end}: {each.offset} is used"
            )
        resets.append(each)
    if not dry_run:
        offsets = {(each.topic, each.partition): Committed(each.offset) for each in resets}
        await commit_offsets(client, name, offsets, zookeeper=zookeeper)
    return resets


async def _group_to_reset(client: Client, name: str, *, wanted: bool, zookeeper: bool) -> ReportedGroup:
    """Return a group; an unknown one is created by its first offsets if topics are given (`wanted`)."""
    group = await _reported(client, name, zookeeper=zookeeper)
    if group.described is not None and group.described.kind == SHARE:
        detail = "it is a share group, whose offsets this command does not reset; Kafka's own tools do"
        raise BrokerError(f"group {name!r}", ErrorCode.GROUP_ID_NOT_FOUND, broker="the cluster", detail=detail)
    if not (group.exists or wanted):
        await _not_found(client, name)
    return group


async def _chosen(client: Client, topics: Mapping[str, list[int]]) -> list[TopicPartition]:
    """Return the requested partitions. Raises UnknownTopicError."""
    partitions: list[TopicPartition] = []
    for topic, numbers in topics.items():
        known = sorted((await client.existing_topic(topic)).partitions)
        for each in numbers:
            if each not in known:
                raise UnknownTopicError(f"partition {each} of {topic!r}: expected one of 0 to {len(known) - 1}")
        partitions += [(topic, each) for each in sorted(set(numbers)) or known]
    return partitions


async def _reset(client: Client, partition: TopicPartition, was: Committed | None, target: OffsetTarget) -> Reset:
    start, end = await bounds(client, *partition)
    match target.kind:
        case "earliest":
            wanted = start
        case "latest":
            wanted = end
        case "offset":
            wanted = target.number
        case "shift":
            if was is None:
                raise UnknownTopicError(
                    f"{partition[0]}-{partition[1]}: the group has no committed offset in this partition"
                )
            wanted = was.offset + target.number
        case "datetime":
            found = (await list_offset(client, *partition, target.number)).offset
            wanted = end if found is None else found
    return Reset(*partition, None if was is None else was.offset, wanted, start, end)
