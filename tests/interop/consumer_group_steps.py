"""A long conversation with a coordinator of consumer groups, and the records that it stored, as plain values.

Topics have their names in place of ids, dates and hashes are left out, and so are texts of errors.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.consumer import records
from magicbyte.engine.groups.consumer.members import MemberProgress, Subscriber
from magicbyte.engine.groups.consumer.records import GroupEpoch, ResolvedPattern, TargetEpoch
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from magicbyte.engine.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magicbyte.engine.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from magicbyte.engine.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataResponse
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from magicbyte.engine.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.scan import scan
from server.broker.serving import Peer

TOPICS = {"t": 4, "u": 2, "v": 7}
INTERVAL_S = 1.1
SUBSCRIPTION = bytes.fromhex("0000 00000001 0001 74 ffffffff")
NOT_YET = {ErrorCode(each) for each in (14, 15, 16)}

Said = tuple[str, Any]


class Script:
    """Asks a broker, and notes what it answers."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.said = peer, list[Said]()
        self.ids: dict[str, uuid.UUID] = {}

    @property
    def names(self) -> dict[uuid.UUID, str]:
        return {topic_id: name for name, topic_id in self.ids.items()}

    async def learn_topics(self, *names: str) -> None:
        """Learn the ids of topics, once the broker knows these."""
        while not self.ids.keys() >= set(names):
            response = await self.peer.ask(MetadataRequest(topics=None), 12, MetadataResponse)
            self.ids |= {each.name: each.topic_id for each in response.topics if each.name is not None}

    async def beat(self, what: str, member: str, epoch: int = 0, **fields: Any) -> Any:
        """Send a heartbeat; `owned` are partitions by the names of topics. One that joins subscribes to `t`."""
        owned = fields.pop("owned", [] if epoch == 0 else None)
        if isinstance(owned, dict):
            owned = [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self.ids[name], partitions=those)
                for name, those in owned.items()
            ]
        joining = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": ["t"]} if epoch == 0 else {}
        version = fields.pop("version", 1)
        fields = {"group_id": "g", "member_id": member, "member_epoch": epoch, **joining, **fields}
        request = ConsumerGroupHeartbeatRequest(topic_partitions=owned, **fields)
        while True:
            answer = await self.peer.ask(request, version, ConsumerGroupHeartbeatResponse)
            if answer.error_code not in NOT_YET:
                break
            await asyncio.sleep(0.05)
        assigned = None if answer.assignment is None else self.named(answer.assignment.topic_partitions)
        heard = (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms, assigned)
        self.said.append((what, heard))
        return answer

    def named(self, topics: Any) -> dict[str, tuple[int, ...]]:
        return {self.names[each.topic_id]: tuple(sorted(each.partitions)) for each in topics}

    async def describe(self, what: str, *groups: str, version: int = 1) -> None:
        request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True)
        response = await self.peer.ask(request, version, ConsumerGroupDescribeResponse)
        for group in response.groups:
            members = sorted(
                (
                    (
                        each.member_id, each.instance_id, each.rack_id, each.member_epoch, each.client_id,
                        each.client_host, each.subscribed_topic_names, each.subscribed_topic_regex,
                        self.named(each.assignment.topic_partitions),
                        self.named(each.target_assignment.topic_partitions), each.member_type,
                    )
                    for each in group.members
                ),
                key=self.order,
            )  # fmt: skip
            facts = (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name)
            heard = (group.error_code, bool(group.error_message), group.group_id, *facts, members)
            self.said.append((f"{what}: {group.group_id}", (*heard, group.authorized_operations)))

    async def commit(self, what: str, member: str, epoch: int, *places: tuple[str, int], version: int = 9) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=name, partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=5)]
            )
            for name, index in places
        ]
        request = OffsetCommitRequest(
            group_id="g", member_id=member, generation_id_or_member_epoch=epoch, topics=topics
        )
        response = await self.peer.ask(request, version, OffsetCommitResponse)
        codes = [(topic.name, part.error_code) for topic in response.topics for part in topic.partitions]
        self.said.append((what, codes))

    async def committed(self, what: str, member: str | None, epoch: int, group: str = "g") -> None:
        asked = OffsetFetchRequestGroup(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            topics=[OffsetFetchRequestTopics(name="t", partition_indexes=(0, 1))],
        )
        response = await self.peer.ask(OffsetFetchRequest(groups=[asked]), 9, OffsetFetchResponse)
        (answered,) = response.groups
        offsets = [part.committed_offset for topic in answered.topics for part in topic.partitions]
        self.said.append((what, (answered.error_code, offsets)))

    async def listed(self, what: str, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> None:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        groups = (await self.peer.ask(request, 5, ListGroupsResponse)).groups
        heard = sorted((each.group_id, each.protocol_type, each.group_state, each.group_type) for each in groups)
        self.said.append((what, heard))

    async def classic(self, what: str) -> None:
        """Ask about the group, and as a member of it, as clients of the classic protocol do."""
        for version in (5, 6):
            described = await self.peer.ask(DescribeGroupsRequest(groups=["g"]), version, DescribeGroupsResponse)
            (group,) = described.groups
            self.said.append((f"{what}: describe {version}", (group.error_code, group.group_state, len(group.members))))
        beat = HeartbeatRequest(group_id="g", member_id="m1", generation_id=2)
        self.said.append((f"{what}: heartbeat", (await self.peer.ask(beat, 4, HeartbeatResponse)).error_code))
        leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="nobody")])
        left = await self.peer.ask(leave, 5, LeaveGroupResponse)
        self.said.append((f"{what}: leave", (left.error_code, [each.error_code for each in left.members])))
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="connect",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        self.said.append((f"{what}: join", (await self.peer.ask(join, 3, JoinGroupResponse)).error_code))

    async def delete(self, what: str, *groups: str) -> None:
        response = await self.peer.ask(DeleteGroupsRequest(groups_names=list(groups)), 2, DeleteGroupsResponse)
        self.said.append((what, sorted((each.group_id, each.error_code) for each in response.results)))

    async def delete_offsets(self, what: str, *topics: str) -> None:
        request = OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(name=each, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
                for each in topics
            ],
        )
        response = await self.peer.ask(request, 0, OffsetDeleteResponse)
        codes = sorted((topic.name, part.error_code) for topic in response.topics for part in topic.partitions)
        self.said.append((what, (response.error_code, codes)))

    async def stored(self) -> None:
        """Note the records of consumer groups in `__consumer_offsets`: targets by member, patterns last."""
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8 << 20)
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=OFFSETS_TOPIC, partitions=[part])])
        answered = (await self.peer.ask(request, 11, FetchResponse)).responses[0].partitions[0]
        assert isinstance(answered.records, memoryview)
        rows = list[tuple[Any, ...]]()
        table = scan(answered.records)
        for columns in decode(answered.records[: table.end]):
            for each in columns:
                assert each.key is not None
                record = records.decode(each.key, each.value)
                if record is not None:
                    rows.append((record.type, record.group_id, record.member_id, self.plain(record.value)))
                else:
                    rows.append(self.other(each.key, each.value))
        # Kafka stores them when a thread has resolved them
        resolved = sorted((row for row in rows if row[0] == records.PATTERN), key=lambda row: str(row[2]))
        rows = [row for row in rows if row[0] != records.PATTERN]
        at = 0
        while at < len(rows):  # Kafka's order of members is that of a hash table
            end = at + 1
            while end < len(rows) and rows[at][0] == rows[end][0] and _is_of_any_member(rows[at], rows[end]):
                end += 1
            rows[at:end] = sorted(rows[at:end], key=self.order)
            at = end
        self.said += [(f"record {number}", row) for number, row in enumerate(rows + resolved)]

    def other(self, key: bytes, value: bytes | None) -> tuple[Any, ...]:
        """Return what is compared of a record of another type."""
        return key[:2], value is None

    def order(self, row: tuple[Any, ...]) -> str:
        """Return what records of several members are sorted by."""
        return repr(row)

    def plain(self, value: object) -> object:
        match value:
            case GroupEpoch():
                return value.epoch, value.metadata_hash != 0
            case TargetEpoch():
                return value.epoch, value.date_ms != 0
            case MemberProgress():
                held = [
                    {self.names[topic]: dict(sorted(epochs.items())) for topic, epochs in those.items()}
                    for those in (value.assigned, value.revoking)
                ]
                return value.epoch, value.previous_epoch, int(value.state), held
            case dict():
                return {self.names[topic]: partitions for topic, partitions in partitions_of_target(value).items()}
            case ResolvedPattern():
                return value.topics, value.date_ms != 0
            case Subscriber():
                return repr(value)
        return value


def _is_of_any_member(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    """Return whether two records of the same type are of members whose order is that of a hash table."""
    are_deletions = first[3:] == second[3:] == (None,) and first[1] == second[1]
    return first[0] == records.TARGET_OF_MEMBER or (first[0] in (records.MEMBER, records.CURRENT) and are_deletions)


def partitions_of_target(target: dict[uuid.UUID, tuple[int, ...]]) -> dict[uuid.UUID, tuple[int, ...]]:
    return {topic: tuple(sorted(partitions)) for topic, partitions in target.items()}


async def converse(script: Script, client: Client) -> None:
    """Go through the life of groups: joins, rebalances, static members, commits, and what is refused."""
    beat = script.beat
    await refusals(script)
    await beat("first", "m1")
    await script.describe("of one", "g", "unknown")
    await beat("within the interval", "m2")
    await script.describe("assigning", "g")
    await asyncio.sleep(INTERVAL_S)
    await beat("m2 computes", "m2", 2)
    await beat("m1 without owned", "m1", 2)
    await script.describe("reconciling", "g")
    await beat("m1 repeats", "m1", 2)
    await beat("m1 owns all", "m1", 2, owned={"t": (0, 1, 2, 3)})
    await beat("m2 waits", "m2", 3)
    await beat("m2 waits again", "m2", 3)
    await beat("m1 has revoked", "m1", 2, owned={"t": (0, 1)})
    await beat("m2 gets the rest", "m2", 3)
    await script.describe("stable", "g")
    await script.listed("all")
    await script.listed("types", types=("Consumer",))
    await script.listed("other types", types=("classic", "x"))
    await script.listed("states", states=("STABLE",))
    await script.listed("other states", states=("Empty",))
    await offsets(script)
    await beat("full", "m1", 3, owned={"t": (0, 1)}, rebalance_timeout_ms=5000, subscribed_topic_names=["t"])
    await beat("full, no timeout", "m1", 3, owned={"t": (0, 1)}, subscribed_topic_names=["t"])
    await beat("steady", "m1", 3)
    await beat("epoch before, owned", "m1", 2, owned={"t": (0,)})
    await beat("epoch before, nothing owned", "m1", 2, owned={})
    await beat("epoch before, owned is null", "m1", 2)
    await beat("epoch before, too much", "m1", 2, owned={"t": (0, 3)})
    await beat("later epoch", "m1", 9)
    await beat("older epoch", "m1", 1, owned={})
    await beat("joins while there", "m1")
    await beat("joins while there, owns", "m1", owned={"t": (0,)})
    await script.classic("classic requests")
    await script.delete("with members", "g", "unknown")
    await beat("another topic", "m2", 3, subscribed_topic_names=["u", "t"])
    await asyncio.sleep(INTERVAL_S)
    await beat("it computes", "m2", 3, owned={"t": (2, 3)})
    await beat("it follows", "m2", 3, owned={})
    await beat("m1 follows", "m1", 3, owned={"t": (0, 1)})
    await beat("m1 follows again", "m1", 4, owned={"t": (0, 1)})
    await beat("m2 follows again", "m2", 4)
    await script.describe("heterogeneous", "g")
    await beat("m1 by range", "m1", 4, server_assignor="range")
    await asyncio.sleep(INTERVAL_S)
    await beat("m1 leaves", "m1", -1)
    await beat("m1 after that", "m1", 4)
    await beat("m2 after that", "m2", 4)
    await asyncio.sleep(INTERVAL_S)
    await beat("m2 later", "m2", 4)
    await beat("m2 leaves", "m2", -1)
    await script.describe("empty", "g")
    await script.listed("empty")
    await script.commit("empty group, no member", "", -1, ("t", 0))
    await script.commit("empty group, a member", "m1", 0, ("t", 0))
    await script.delete_offsets("empty group", "t")
    await static_members(script)
    await late_members(script)
    await assignments(script)
    await topic_changes(script, client)
    await patterns(script)
    await script.delete("empty", "g")
    await script.listed("after the deletion")
    await script.stored()


async def refusals(script: Script) -> None:
    """Requests with wrong fields, of which no group comes."""
    beat = script.beat
    await beat("no group", "m1", group_id="")
    await beat("no member", "")
    await beat("no instance", "m1", instance_id="")
    await beat("no rack", "m1", rack_id="")
    await beat("epoch -3", "m1", -3)
    await beat("epoch -2 of a dynamic member", "m1", -2)
    await beat("owned null", "m1", owned=None)
    await beat("owned", "m1", owned={"t": (0,)})
    await beat("no timeout", "m1", rebalance_timeout_ms=-1)
    await beat("no subscription", "m1", subscribed_topic_names=None)
    await beat("unknown assignor", "m1", server_assignor="x")
    await beat("empty assignor", "m1", server_assignor="")
    await beat("unknown group", "m1", 3)
    await beat("unknown group, leaves", "m1", -1)
    await beat("unknown group, leaves for a while", "m1", -2, instance_id="i")
    await beat("a wrong pattern", "m1", subscribed_topic_names=None, subscribed_topic_regex="(")


async def offsets(script: Script) -> None:
    """Commits and fetches of two members at epoch 3: m1 kept 0 and 1 of t from epoch 2."""
    commit = script.commit
    await commit("current", "m1", 3, ("t", 0), ("u", 0))
    await commit("of another", "m1", 3, ("t", 3))
    await commit("epoch before, kept", "m1", 2, ("t", 0))
    await commit("epoch before, lost", "m1", 2, ("t", 3))
    await commit("epoch before, both", "m1", 2, ("t", 0), ("t", 3))
    await commit("epoch before, another topic", "m1", 2, ("u", 0))
    await commit("older, kept", "m1", 1, ("t", 0))
    await commit("later", "m1", 4, ("t", 0))
    await commit("unknown member", "x", 3, ("t", 0))
    await commit("no member", "", -1, ("t", 0))
    await commit("own id, no epoch", "m1", -1, ("t", 0))
    await commit("unknown partition", "m1", 3, ("t", 9), ("x", 0))
    for version in (8, 2):
        await commit(f"version {version}", "m1", 3, ("t", 0), version=version)
    await script.committed("unchecked", None, -1)
    await script.committed("current epoch", "m1", 3)
    await script.committed("epoch before", "m1", 2)
    await script.committed("no epoch", "m1", -1)
    await script.committed("unknown member reads", "x", 3)
    await script.committed("empty member reads", "", -1)
    await script.committed("null member with an epoch", None, 3)
    await script.committed("unknown group", "m1", 3, "unknown")
    await script.delete_offsets("subscribed", "t", "u", "x")


async def static_members(script: Script) -> None:
    beat = script.beat
    await asyncio.sleep(INTERVAL_S)
    await beat("static", "s1", instance_id="i1", rack_id="r1")
    await asyncio.sleep(INTERVAL_S)
    await beat("static computes", "s1", 7, instance_id="i1")
    await beat("static computes, whatever its epoch", "s1", 8)
    await beat("static again", "s1", instance_id="i1")
    await beat("in use", "s2", instance_id="i1")
    await beat("goes for a while", "s1", -2, instance_id="i1")
    await beat("again", "s1", -2, instance_id="i1")
    await beat("old epoch", "s1", 8, instance_id="i1")
    await script.describe("static member away", "g")
    await beat("dynamic beside it", "d1")
    await asyncio.sleep(INTERVAL_S)
    await beat("dynamic beside it, later", "d1", 8)
    await beat("dynamic leaves", "d1", -1)
    await asyncio.sleep(INTERVAL_S)
    await beat("returns", "s2", instance_id="i1")
    await beat("returns, next", "s2", 10, instance_id="i1")
    await beat("old id with the instance", "s1", 8, instance_id="i1")
    await beat("old id", "s1", 8)
    await beat("unknown instance", "s2", 8, instance_id="i7")
    await beat("new id, old member goes", "s2", -2, instance_id="i1")
    await beat("same id returns, other topic", "s2", instance_id="i1", subscribed_topic_names=["u"])
    await script.describe("static member back", "g")
    await beat("static leaves", "s2", -1, instance_id="i1")


async def late_members(script: Script) -> None:
    """A member that does not revoke in time is removed."""
    beat = script.beat
    await asyncio.sleep(INTERVAL_S)
    await beat("slow one", "l1", group_id="late", rebalance_timeout_ms=1000)
    await asyncio.sleep(INTERVAL_S)
    await beat("second of late", "l2", group_id="late")
    await beat("slow one must revoke", "l1", 2, group_id="late")
    await asyncio.sleep(1.5)
    await beat("slow one is gone", "l1", 2, group_id="late")
    await beat("second gets all", "l2", 3, group_id="late")
    await beat("second leaves", "l2", -1, group_id="late")


async def assignments(script: Script) -> None:
    """Two assignors with members that join one by one, each at once stable."""
    for assignor, topics in (("range", ["t", "v"]), ("uniform", ["v"])):  # of several it depends on their ids
        epochs: dict[str, int] = {}
        owned: dict[str, dict[str, tuple[int, ...]]] = {}
        for number in range(4):
            member, group = f"{assignor}-{number}", f"of {assignor}"
            answer = await script.beat(
                f"{member} joins", member, group_id=group, server_assignor=assignor, subscribed_topic_names=topics
            )
            epochs[member], owned[member] = answer.member_epoch, {}
            await asyncio.sleep(INTERVAL_S)
            for turn in range(4):
                for each in list(epochs):
                    what = f"{each} turn {turn} of {number}"
                    answer = await script.beat(what, each, epochs[each], group_id=group, owned=owned[each])
                    epochs[each] = answer.member_epoch
                    if answer.assignment is not None:
                        owned[each] = script.named(answer.assignment.topic_partitions)
        await script.describe("assigned", group)


async def patterns(script: Script) -> None:
    """Members that subscribe by a pattern of one topic: the order of several depends on their ids."""

    async def beat(what: str, member: str, epoch: int = 0, **fields: Any) -> Any:
        names = {"subscribed_topic_names": None, "subscribed_topic_regex": "v.?"} if epoch == 0 else {}
        answer = await script.beat(what, member, epoch, **{"group_id": "p", **names, **fields})
        await asyncio.sleep(INTERVAL_S)
        return answer

    await beat("by pattern", "p1")
    await script.describe("unresolved or resolved", "p")
    await beat("by pattern, next", "p1", 1)
    await script.describe("by pattern", "p")
    await beat("second by the same pattern", "p2")
    await beat("second, next", "p2", 2)
    await beat("first follows", "p1", 2, owned={"v": (0, 1, 2, 3)})
    await beat("wrong pattern", "p1", 3, subscribed_topic_regex="[")
    await beat("look-ahead", "p1", 3, subscribed_topic_regex="a(?=b)")
    await beat("back reference", "p1", 3, subscribed_topic_regex="(a)\\1")
    await beat("another pattern", "p2", 3, subscribed_topic_regex="zzz.*")
    await script.describe("pattern without topics", "p")
    await asyncio.sleep(3)  # patterns are resolved at most every ten seconds
    await beat("another pattern, next", "p2", 3, owned={})
    await beat("first again", "p1", 3)
    await beat("first with a name too", "p1", 4, subscribed_topic_names=["t"], owned=None)
    await beat("first without the pattern", "p1", 4, subscribed_topic_regex="", owned={"t": ()})
    await script.describe("without the pattern", "p")
    await beat("second leaves", "p2", -1)
    await beat("first leaves", "p1", -1)


async def topic_changes(script: Script, client: Client) -> None:
    beat = script.beat
    await beat("before the topic", "w1", group_id="w", subscribed_topic_names=["w"])
    await asyncio.sleep(INTERVAL_S)
    await create_topic(client, NewTopic("w", 2))
    await asyncio.sleep(INTERVAL_S)
    await script.learn_topics("w")
    await beat("after the topic", "w1", 2, group_id="w")
    await beat("after the topic, next", "w1", 3, group_id="w")


def conversation(address: str) -> list[Said]:
    """Have the conversation with a new broker."""

    async def work() -> list[Said]:
        host, _, port = address.rpartition(":")
        async with Client(address) as client:
            for name, partitions in TOPICS.items():
                await create_topic(client, NewTopic(name, partitions))
            peer = Peer(await SocketStream.connect(host, int(port)))
            script = Script(peer)
            await script.learn_topics(*TOPICS)
            await find_coordinator(peer)
            await converse(script, client)
            peer.close()
            return script.said

    return asyncio.run(asyncio.wait_for(work(), 300))


async def find_coordinator(peer: Peer) -> None:
    from server.broker.transacting import found

    while await found(peer, "g", 0):
        await asyncio.sleep(0.05)
