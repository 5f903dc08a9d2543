"""A long conversation with a group coordinator, in given versions of its requests, and what was answered.

Answers are plain values that can be compared between brokers: members have the names m1, m2 ... in the order in which
they got their ids, and what is the broker's own business (addresses, texts of errors, throttling) is left out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from magicbyte.access.client.connection import Connection
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol import APIS, Message
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest
from magicbyte.engine.protocol.messages.describe_groups import DescribeGroupsRequest
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from magicbyte.engine.protocol.messages.list_groups import ListGroupsRequest
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magicbyte.engine.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from magicbyte.engine.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

JOIN, SYNC, LEAVE, COMMIT, FETCH, DESCRIBE, LIST, DELETE, DELETE_OFFSETS = 11, 14, 13, 8, 9, 15, 16, 42, 47
GROUP_APIS = (COMMIT, FETCH, 10, JOIN, 12, LEAVE, SYNC, DESCRIBE, LIST, DELETE, DELETE_OFFSETS)
SUBSCRIPTION = bytes.fromhex("0000 00000001 0001 74 ffffffff")  # to topic t
MEMBER_ID = re.compile(r".*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LEFT_OUT = {"throttle_time_ms", "error_message", "unknown_tags", "host", "port", "node_id", "authorized_operations"}
WAIT_S = 120

Steps = list[tuple[str, Any]]


class Talk:
    """Asks one broker, in `versions` by API key, and writes down what is answered."""

    def __init__(self, address: str, versions: dict[int, int]) -> None:
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self.versions = versions
        self.said: Steps = []
        self.names: dict[str, str] = {}
        self.connections: list[Connection] = []

    def has(self, api: int, version: int = 0) -> bool:
        return self.versions.get(api, -1) >= version

    async def connect(self) -> Connection:
        connection = await Connection.open(self.host, self.port, client_id="c")
        self.connections.append(connection)
        return connection

    async def close(self) -> None:
        for each in self.connections:
            await each.aclose()

    async def send(self, request: Message, connection: Connection | None = None) -> Any:
        assert request.API_KEY is not None
        version = self.versions.get(request.API_KEY, 0)
        connection = connection or (self.connections[0] if self.connections else await self.connect())
        return await connection.send(request, versions=range(version, version + 1), timeout_ms=WAIT_S * 1000)

    async def step(self, what: str, request: Message) -> Any:
        """Ask, write the answer down and return it."""
        answer = await self.send(request)
        self.note(what, answer)
        return answer

    def note(self, what: str, answer: Any) -> None:
        self.said.append((what, self.plain(answer)))

    def plain(self, value: Any) -> Any:
        if isinstance(value, Struct):
            return {name: self.plain(getattr(value, name)) for name in value.__struct_fields__ if name not in LEFT_OUT}
        if isinstance(value, (list, tuple)):
            return sorted((self.plain(each) for each in value), key=repr)
        if isinstance(value, str) and MEMBER_ID.fullmatch(value):
            return self.names.setdefault(value, f"m{len(self.names) + 1}")
        return value

    # ---- requests

    def joining(
        self, member: str = "", group: str = "g", instance: str | None = None, **changes: Any
    ) -> JoinGroupRequest:
        protocols = changes.get("protocols", {"range": SUBSCRIPTION, "roundrobin": SUBSCRIPTION})
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=changes.get("session", 30_000),
            rebalance_timeout_ms=30_000,
            member_id=member,
            group_instance_id=instance,
            protocol_type=changes.get("kind", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()],
        )

    async def join(self, what: str, member: str = "", **changes: Any) -> Any:
        """Join, in two steps where that is how it goes; return the last answer."""
        answer = await self.step(what, self.joining(member, **changes))
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = await self.step(f"{what}, with its id", self.joining(answer.member_id, **changes))
        return answer

    async def waiting_join(self, what: str, member: str = "", **changes: Any) -> Callable[[], Awaitable[Any]]:
        """Begin a join that is not answered yet; the result waits for its answer and writes it down."""
        connection = await self.connect()
        if not member and not changes.get("instance") and self.has(JOIN, 4):
            given = await self.send(self.joining(**changes), connection)
            self.note(f"{what}, for an id", given)
            member = given.member_id
        task = asyncio.create_task(self.send(self.joining(member, **changes), connection))
        await self.until_state("PreparingRebalance", changes.get("group", "g"))

        async def answered() -> Any:
            answer = await asyncio.wait_for(task, WAIT_S)
            self.note(what, answer)
            return answer

        return answered

    async def until_state(self, state: str, group: str = "g") -> None:
        async with asyncio.timeout(WAIT_S):
            while (await self.send(DescribeGroupsRequest(groups=[group]))).groups[0].group_state != state:
                await asyncio.sleep(0.02)

    def syncing(
        self, member: str, generation: int, given: dict[str, bytes] | None = None, **more: Any
    ) -> SyncGroupRequest:
        assignments = [
            SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in (given or {}).items()
        ]
        more.setdefault("group_id", "g")
        if self.has(SYNC, 5):
            more = {"protocol_type": "consumer", "protocol_name": "range"} | more
        return SyncGroupRequest(generation_id=generation, member_id=member, assignments=assignments, **more)

    async def sync(
        self, what: str, member: str, generation: int, given: dict[str, bytes] | None = None, **more: Any
    ) -> None:
        await self.step(what, self.syncing(member, generation, given, **more))

    async def beat(
        self, what: str, member: str, generation: int, instance: str | None = None, group: str = "g"
    ) -> None:
        request = HeartbeatRequest(
            group_id=group, member_id=member, generation_id=generation, group_instance_id=instance
        )
        await self.step(f"heartbeat: {what}", request)

    async def commit(self, what: str, member: str = "", generation: int = -1, **more: Any) -> None:
        text = more.get("metadata", "m")
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=each, committed_offset=7, committed_metadata=text)
                    for each in which
                ],
            )
            for topic, which in more.get("places", {"t": [0]}).items()
        ]
        request = OffsetCommitRequest(
            group_id=more.get("group", "g"),
            member_id=member,
            generation_id_or_member_epoch=generation,
            group_instance_id=more.get("instance"),
            topics=topics,
        )
        await self.step(f"commit: {what}", request)

    async def fetch(self, what: str, group: str = "g", *, everything: bool = False) -> None:
        if self.has(FETCH, 8):
            wanted = None if everything else [OffsetFetchRequestTopics(name="t", partition_indexes=(0, 1, 9))]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
        else:
            names = None if everything else [OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1, 9))]
            request = OffsetFetchRequest(group_id=group, topics=names)
        await self.step(f"offsets: {what}", request)

    async def leave(self, what: str, *members: tuple[str, str | None], group: str = "g") -> None:
        if self.has(LEAVE, 3):
            identities = [MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in members]
            await self.step(f"leave: {what}", LeaveGroupRequest(group_id=group, members=identities))
            return
        for member, _ in members:
            await self.step(f"leave: {what}", LeaveGroupRequest(group_id=group, member_id=member))

    async def describe(self, what: str, *groups: str) -> None:
        await self.step(f"describe: {what}", DescribeGroupsRequest(groups=list(groups or ("g",))))

    async def delete_offsets(self, what: str, group: str = "g") -> None:
        if self.has(DELETE_OFFSETS):
            topics = [
                OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
                for topic, index in (("t", 0), ("other", 0), ("none", 0))
            ]
            await self.step(f"delete offsets: {what}", OffsetDeleteRequest(group_id=group, topics=topics))

    async def delete(self, what: str, *groups: str) -> None:
        if self.has(DELETE):
            await self.step(f"delete: {what}", DeleteGroupsRequest(groups_names=list(groups)))


# ---- the conversation


async def begin(talk: Talk) -> None:
    """Have the topics, and a coordinator."""
    connection = await talk.connect()
    for topic in ("t", "other"):
        async with asyncio.timeout(WAIT_S):
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            while (await connection.send(request, versions=range(1))).topics[0].error_code:  # type: ignore[attr-defined]
                await asyncio.sleep(0.05)
    async with asyncio.timeout(120):
        while True:
            found = await connection.send(FindCoordinatorRequest(key="g"), versions=range(1))
            probe = await connection.send(HeartbeatRequest(group_id="g", member_id="x"), versions=range(1))
            codes = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
            if not found.error_code and probe.error_code == ErrorCode.UNKNOWN_MEMBER_ID:  # type: ignore[attr-defined]
                return
            assert {found.error_code, probe.error_code} & {*codes, 0}  # type: ignore[attr-defined]
            await asyncio.sleep(0.1)


def talk_with(address: str, newest: int, work: Callable[[Talk], Awaitable[Any]]) -> Any:
    """Run `work` with a conversation that has begun, in the latest versions up to `newest`; return what it returns."""

    async def inside() -> Any:
        talk = Talk(address, {})
        try:
            await begin(talk)
            ranges = talk.connections[0].versions.ranges
            talk.versions = {api: min(ranges[api][-1], newest) for api in (*GROUP_APIS, 12) if api in ranges}
            return await work(talk)
        finally:
            await talk.close()

    return asyncio.run(asyncio.wait_for(inside(), 240))


async def join_alone(talk: Talk) -> tuple[str, int]:
    """Make group g, stable with one member that lives while a broker is started again; return its id and generation."""
    answer = await talk.join("join", session=120_000)
    assert answer.error_code == ErrorCode.NONE
    await talk.sync("sync", answer.member_id, answer.generation_id, {answer.member_id: b"assigned"})
    return answer.member_id, answer.generation_id


async def strangers(talk: Talk) -> None:
    """What is said to those that the coordinator does not know."""
    await talk.step("join: no group", talk.joining(group=""))
    await talk.step("join: session too short", talk.joining(session=5))
    await talk.step("join: session too long", talk.joining(session=1_800_001))
    await talk.step("join: unknown member", talk.joining("who"))
    await talk.beat("no group", "who", 1, group="")
    await talk.beat("unknown group", "who", 1)
    await talk.sync("sync: unknown group", "who", 1, group_id="none")
    await talk.sync("sync: no group", "who", 1, group_id="")
    await talk.leave("unknown group", ("who", None), group="none")
    await talk.commit("of a generation, unknown group", "who", 1, group="none")
    await talk.fetch("unknown group", "none")
    await talk.describe("unknown group, and no group", "none", "")
    await talk.delete("unknown groups", "none", "")
    await talk.delete_offsets("unknown group", "none")
    await talk.delete_offsets("no group", "")
    await talk.commit("no group", group="")
    await talk.fetch("no group", "")
    await talk.delete("no group", "")
    await talk.step("join: no protocols", talk.joining(group="p", protocols={}))
    await talk.step("join: no kind", talk.joining(group="p", kind=""))


async def alone(talk: Talk) -> tuple[str, int]:
    """One member, from its first join to a stable generation; return both."""
    answer = await talk.join("join: the first")
    member, generation = answer.member_id, answer.generation_id
    await talk.beat("before the assignment", member, generation)
    await talk.commit("before the assignment", member, generation)
    await talk.describe("before the assignment")
    await talk.step("join: once more before the assignment", talk.joining(member))
    await talk.sync("sync: unknown member", "who", generation)
    await talk.sync("sync: other generation", member, generation + 1)
    await talk.sync("sync: the leader", member, generation, {member: b"mine"})
    await talk.sync("sync: again", member, generation)
    if talk.has(SYNC, 5):
        await talk.sync("sync: other protocol", member, generation, protocol_name="sticky")
        await talk.sync("sync: other kind", member, generation, protocol_type="connect")
    await talk.describe("stable")
    await talk.beat("stable", member, generation)
    await talk.beat("other generation", member, generation + 1)
    await talk.beat("unknown member", "who", generation)
    await talk.commit("stable", member, generation, places={"t": [0, 9], "other": [0], "none": [0]})
    await talk.commit("other generation", member, generation + 1)
    await talk.commit("unknown member", "who", generation)
    await talk.commit("nobody's", "", -1)
    await talk.commit("large text", member, generation, metadata="x" * 4097)
    await talk.fetch("of three")
    if talk.has(FETCH, 2):
        await talk.fetch("all", everything=True)
    await talk.delete("with a member", "g")
    await talk.delete_offsets("of read partitions, and of others")
    await talk.step("join: no common protocol", talk.joining(protocols={"sticky": b""}))
    await talk.step("join: other kind", talk.joining(kind="connect"))
    answer = await talk.join("join: the leader, again", member)
    await talk.sync("sync: the leader, again", member, answer.generation_id, {member: b"mine"})
    return member, answer.generation_id


async def together(talk: Talk, first: str, generation: int) -> None:
    """A second member comes, and goes."""
    coming = await talk.waiting_join("join: the second")
    await talk.describe("rebalancing")
    await talk.beat("rebalancing", first, generation)
    await talk.commit("rebalancing", first, generation)
    await talk.sync("sync: rebalancing", first, generation)
    leading = await talk.join("join: the first joins the second", first)
    second = (await coming()).member_id
    generation = leading.generation_id
    follower = await talk.connect()
    waiting = asyncio.create_task(talk.send(talk.syncing(second, generation), follower))
    await talk.sync("sync: the leader of two", first, generation, {first: b"1", second: b"2"})
    talk.note("sync: the follower", await asyncio.wait_for(waiting, WAIT_S))
    await talk.describe("two")
    await talk.join("join: the follower, without change", second)
    await talk.leave("the second, and strangers", (second, None), ("who", None))
    await talk.beat("the other has left", first, generation)
    answer = await talk.join("join: alone again", first)
    await talk.sync("sync: alone again", first, answer.generation_id, {})
    await talk.leave("the last", (first, None))
    await talk.describe("empty")
    await talk.beat("empty", first, answer.generation_id)
    await talk.commit("without a group, empty", "", -1)
    await talk.commit("a member's, empty", first, answer.generation_id)
    await talk.fetch("empty")
    await talk.delete_offsets("empty")
    await talk.delete("empty", "g")
    await talk.describe("deleted")
    await talk.fetch("deleted")


async def static(talk: Talk) -> None:
    """An instance goes and comes back."""
    name = {"group": "s"}
    answer = await talk.join("static: joins", instance="i", **name)
    old, generation = answer.member_id, answer.generation_id
    more = {"group_id": "s", "group_instance_id": "i"}
    await talk.sync("static: syncs", old, generation, {old: b"mine"}, **more)
    back = await talk.join("static: comes back", instance="i", **name)
    await talk.beat("static: the old one", old, generation, "i", group="s")
    await talk.beat("static: other instance", back.member_id, generation, "j", group="s")
    await talk.beat("static: the new one", back.member_id, generation, "i", group="s")
    await talk.sync("static: the old one syncs", old, generation, **more)
    await talk.sync("static: the new one syncs", back.member_id, generation, **more)
    await talk.commit("static: the old one", old, generation, instance="i", group="s")
    await talk.step("static: the old one joins", talk.joining(old, instance="i", **name))
    changed = {"range": SUBSCRIPTION + b"\0", "roundrobin": SUBSCRIPTION}
    again = await talk.join("static: comes back with other metadata", instance="i", protocols=changed, **name)
    await talk.describe("static", "s")
    turned = dict(reversed(changed.items()))
    again = await talk.join("static: comes back with another protocol", instance="i", protocols=turned, **name)
    await talk.sync("static: syncs again", again.member_id, again.generation_id, {}, protocol_name="roundrobin", **more)
    await talk.leave("static: strangers", ("", "j"), ("who", None), (old, "i"), group="s")
    await talk.leave("static: by instance", ("", "i"), group="s")
    await talk.describe("static: left", "s")


async def simple(talk: Talk) -> None:
    """A consumer that assigns partitions to itself."""
    await talk.commit("simple", group="simple")
    await talk.fetch("simple", "simple")
    await talk.describe("simple", "simple")
    await talk.step("list", ListGroupsRequest())
    if talk.has(LIST, 4):
        await talk.step("list: empty ones", ListGroupsRequest(states_filter=["Empty"]))
        await talk.step("list: stable ones", ListGroupsRequest(states_filter=["Stable"]))
    await talk.delete_offsets("simple", "simple")
    await talk.delete("simple", "simple")


async def old_offsets(talk: Talk) -> None:
    """Offsets as consumers of 0.8 keep them, in ZooKeeper."""
    later, talk.versions = talk.versions, {**talk.versions, COMMIT: 0, FETCH: 0}
    await talk.fetch("old, before", "old")
    await talk.commit("old", group="old", places={"t": [0, 9], "none": [0]})
    await talk.commit("old, large text", group="old", places={"t": [1]}, metadata="x" * 4097)
    await talk.fetch("old", "old")
    talk.versions = later
    await talk.fetch("old, asked for otherwise", "old")


async def converse(address: str, versions: dict[int, int], *, old: bool) -> Steps:
    """Go through all of it, with offsets in ZooKeeper where brokers know them (`old`); return what was said."""
    talk = Talk(address, versions)
    try:
        await begin(talk)
        await strangers(talk)
        member, generation = await alone(talk)
        await together(talk, member, generation)
        if talk.has(JOIN, 5):
            await static(talk)
        await simple(talk)
        if old:
            await old_offsets(talk)
    finally:
        await talk.close()
    return talk.said


def highest(versions: dict[int, range]) -> dict[int, int]:
    """Return the latest version of each API that both have."""
    return {
        api: min(versions[api][-1], APIS[api].versions[-1], LATEST_HERE.get(api, 99))
        for api in GROUP_APIS
        if api in versions
    }


LATEST_HERE = {COMMIT: 9, FETCH: 9}  # later ones name topics by their ids
