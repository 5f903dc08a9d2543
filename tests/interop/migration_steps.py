"""Groups with members of both protocols: a conversation with a coordinator, as plain values.

Each part has groups of its own. Members have the names that they were given in place of ids that the broker made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from interop.consumer_group_steps import INTERVAL_S, NOT_YET, TOPICS, Said, Script, find_coordinator
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.coordination.stored import write_stored
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.consumer_protocol import Assignment
from magicbyte.engine.groups.records import GroupMetadataValue, decode_key, decode_value
from magicbyte.engine.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from magicbyte.engine.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from magicbyte.engine.protocol.messages.consumer_protocol_subscription import TopicPartition as Owned
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magicbyte.engine.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from magicbyte.engine.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from server.broker.serving import Peer

Places = Mapping[str, tuple[int, ...]]
_VERSION: Final = 3  # of subscriptions and assignments


def subscription(*topics: str, owned: Places | None = None, version: int = _VERSION, user_data: bytes = b"") -> bytes:
    places = [Owned(topic=name, partitions=numbers) for name, numbers in (owned or {}).items()]
    message = ConsumerProtocolSubscription(topics=list(topics), user_data=user_data or None, owned_partitions=places)
    return write_stored(message, version)


def assignment(places: Places, user_data: bytes = b"") -> bytes:
    rows = [TopicPartition(topic=name, partitions=numbers) for name, numbers in places.items()]
    return write_stored(ConsumerProtocolAssignment(assigned_partitions=rows, user_data=user_data or None), _VERSION)


class Mixed(Script):
    """A script with members of the classic protocol, too. `ids`: of members, by the names that they have here."""

    group = "m"

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self.members: dict[str, str] = {}

    def other(self, key: bytes, value: bytes | None) -> tuple[Any, ...]:
        found_key = decode_key(key)
        found = decode_value(found_key, value)
        if not isinstance(found, GroupMetadataValue):
            return super().other(key, value)
        members = [
            (
                each.member_id, each.group_instance_id, each.client_id, each.client_host, each.rebalance_timeout,
                each.session_timeout, bytes(each.subscription), bytes(each.assignment),
            )
            for each in found.members
        ]  # fmt: skip
        facts = found.version, found.protocol_type, found.generation, found.protocol, found.leader
        return 2, facts, sorted(members)

    def order(self, row: tuple[Any, ...]) -> str:
        return repr(_named(row, self))

    def name(self, member_id: str) -> str:
        return next((name for name, own in self.members.items() if own == member_id), member_id)

    async def join(self, what: str, name: str, *topics: str, again: bool = True, **fields: Any) -> JoinGroupResponse:
        """Send a JoinGroup; with the id that the broker gives, if it asks for that."""
        metadata = fields.pop("metadata", None) or subscription(*(topics or ("t",)), owned=fields.pop("owned", None))
        protocols = fields.pop("protocols", ["range"])
        version = fields.pop("version", 9)
        request = JoinGroupRequest(
            **{
                "group_id": self.group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
                "protocol_type": "consumer", "member_id": self.members.get(name, ""), **fields,
            },
            protocols=[JoinGroupRequestProtocol(name=each, metadata=metadata) for each in protocols],
        )  # fmt: skip
        answer = await self.peer.ask(request, version, JoinGroupResponse)
        while answer.error_code in NOT_YET:
            await asyncio.sleep(0.05)
            answer = await self.peer.ask(request, version, JoinGroupResponse)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.said.append((f"{what}: needs an id", bool(answer.member_id)))
            self.members[name] = answer.member_id
            request.member_id = answer.member_id
            if not again:
                return answer
            answer = await self.peer.ask(request, version, JoinGroupResponse)
        elif not answer.error_code:
            self.members[name] = answer.member_id
        heard = (
            answer.error_code, answer.generation_id, answer.protocol_type, answer.protocol_name,
            self.name(answer.leader), len(answer.members), answer.skip_assignment,
        )  # fmt: skip
        self.said.append((what, heard))
        return answer

    async def sync(
        self, what: str, name: str, generation: int, given: Mapping[str, bytes] | None = None, **fields: Any
    ) -> None:
        rows = [
            SyncGroupRequestAssignment(member_id=self.members[each], assignment=data)
            for each, data in (given or {}).items()
        ]
        request = SyncGroupRequest(
            **{
                "group_id": self.group, "generation_id": generation, "member_id": self.members.get(name, name),
                "protocol_type": "consumer", "protocol_name": "range", "assignments": rows, **fields,
            }
        )  # fmt: skip
        answer = await self.peer.ask(request, 5, SyncGroupResponse)
        assigned: Any = answer.assignment
        if assigned:
            parsed = Assignment.parse(bytes(assigned))
            assigned = parsed.version, {topic: tuple(numbers) for topic, numbers in parsed.assigned_partitions}
        self.said.append((what, (answer.error_code, answer.protocol_type, answer.protocol_name, assigned)))

    async def pulse(self, what: str, name: str, generation: int, **fields: Any) -> None:
        request = HeartbeatRequest(
            **{"group_id": self.group, "generation_id": generation, "member_id": self.members.get(name, name), **fields}
        )
        self.said.append((what, (await self.peer.ask(request, 4, HeartbeatResponse)).error_code))

    async def go(self, what: str, *names: str, **fields: Any) -> None:
        members = [MemberIdentity(member_id=self.members.get(each, each), **fields) for each in names]
        request = LeaveGroupRequest(group_id=self.group, members=members)
        answer = await self.peer.ask(request, 5, LeaveGroupResponse)
        codes = [(self.name(each.member_id), each.error_code) for each in answer.members]
        self.said.append((what, (answer.error_code, codes)))

    async def store(self, what: str, name: str, generation: int, *, version: int = 9) -> None:
        topics = [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(committed_offset=5)])]
        request = OffsetCommitRequest(
            group_id=self.group,
            member_id=self.members.get(name, name),
            generation_id_or_member_epoch=generation,
            topics=topics,
        )
        answer = await self.peer.ask(request, version, OffsetCommitResponse)
        self.said.append((what, answer.topics[0].partitions[0].error_code))

    async def step(self, what: str, member: str, epoch: int = 0, **fields: Any) -> Any:
        return await self.beat(what, member, epoch, **{"group_id": self.group, **fields})

    async def classic_group(
        self, name: str = "c1", generation: int = 1, given: bytes | None = None, **fields: Any
    ) -> None:
        """Make a classic group of one member, which has all of `t`."""
        await self.join("alone", name, **fields)
        own = assignment({"t": (0, 1, 2, 3)}) if given is None else given
        await self.sync("alone: sync", name, generation, {name: own})


async def upgrade(script: Mixed) -> None:
    """A consumer-protocol member joins a classic group; both share; it leaves again (R55 to R58)."""
    script.group = "m1"
    await script.classic_group()
    await script.store("commit before", "c1", 1)
    await script.step("upgrades", "m1")
    await script.describe("upgraded", "m1")
    await script.listed("upgraded")
    await script.pulse("classic: heartbeat", "c1", 1)
    await script.pulse("classic: wrong generation", "c1", 2)
    await script.store("commit, generation 1", "c1", 1)
    await script.store("commit, generation 1, version 8", "c1", 1, version=8)
    await script.store("commit, generation 2", "c1", 2)
    await script.step("still waits", "m1", 2)
    await script.sync("sync before it joins", "c1", 1)
    await script.join("owning all", "c1", owned={"t": (0, 1, 2, 3)})
    await script.describe("revoking", "m1")
    await script.sync("sync to revoke", "c1", 1)
    await script.pulse("heartbeat to revoke", "c1", 1)
    await script.step("waits for two", "m1", 2)
    await script.join("owning two", "c1", owned={"t": (0, 1)})
    await script.sync("sync of two", "c1", 2)
    await script.sync("sync, wrong generation", "c1", 1)
    await script.sync("sync, wrong protocol", "c1", 2, protocol_name="x")
    await script.sync("sync, wrong type", "c1", 2, protocol_type="x")
    await script.pulse("heartbeat, stable", "c1", 2)
    await script.step("gets two", "m1", 2)
    await script.describe("shared", "m1")
    await script.sync("consumer member syncs", "m1", 2)
    await script.pulse("consumer member's heartbeat", "m1", 2)
    await script.go("unknown member by LeaveGroup", "nobody")
    await script.join("another type", "c2", protocol_type="connect")
    await script.join("another protocol", "c2", protocols=["roundrobin"])
    await script.join("unknown id", "c2", member_id="made-up", protocols=["roundrobin", "range"])
    await script.go("it leaves", "c2")
    await asyncio.sleep(INTERVAL_S)
    await script.step("after that", "m1", 2)
    await script.join("classic follows", "c1", owned={"t": (0, 1)})
    await script.sync("classic follows: sync", "c1", 4)
    await script.describe("before the downgrade", "m1")
    await script.step("leaves", "m1", -1)
    await script.pulse("heartbeat after the downgrade, old", "c1", 3)
    await script.pulse("heartbeat after the downgrade", "c1", 4)
    await script.step("is unknown", "m1", 4)
    await script.listed("downgraded")
    answer = await script.join("joins classic again", "c1", owned={"t": (0, 1)})
    await script.sync("has all", "c1", answer.generation_id, {"c1": assignment({"t": (0, 1, 2, 3)})})
    await script.pulse("classic again", "c1", answer.generation_id)


async def refused(script: Mixed) -> None:
    """Classic groups that are not converted (R59)."""
    script.group = "r1"
    await script.classic_group(given=assignment({"t": (0,)}, user_data=b"u"))
    await script.step("assignment with user data", "m1")
    script.group = "r2"
    await script.classic_group("c2", metadata=subscription("t", user_data=b"u"))
    await script.step("subscription with user data", "m2")
    script.group = "r3"
    await script.classic_group("c3", protocol_type="connect", given=b"x")
    await script.step("another type", "m3")
    script.group = "r4"
    await script.classic_group("c4", metadata=b"zz", given=b"")
    await script.step("metadata zz", "m4")
    script.group = "r5"
    await script.join("before its sync", "c5", group_instance_id="i")
    await script.step("upgrades before the sync", "m5", server_assignor="range")
    await script.sync("sync after that", "c5", 1, {"c5": assignment({"t": (0, 1, 2, 3)})})
    await script.join("and joins", "c5", group_instance_id="i")
    await script.sync("and syncs", "c5", 2)
    await script.step("its neighbour", "m5", 2)
    await script.describe("so it is", "r5")


async def downgrade_by_leave(script: Mixed) -> None:
    """Several classic members in a consumer group; LeaveGroup of one; the last are classic."""
    script.group = "d1"
    await script.step("first", "d-m1")
    await script.join("joins without an id", "d1", again=False)
    await script.join("joins", "d1")
    await script.sync("syncs at once", "d1", 2)
    await asyncio.sleep(INTERVAL_S)
    await script.step("computes", "d-m1", 2)
    await script.step("revokes", "d-m1", 2, owned={"t": (0, 1)})
    await script.pulse("must join", "d1", 2)
    await script.join("joins again", "d1")
    await script.sync("has two", "d1", 3)
    await script.join("eager one", "d2", metadata=subscription("t", version=0))
    await script.describe("three members", "d1")
    await script.go("d2 leaves", "d2")
    await script.describe("two members", "d1")
    await script.join("bad metadata", "d3", member_id="x", metadata=b"zz")
    await script.join("unknown id", "d4", member_id="made-up", protocols=["roundrobin", "range"])
    await script.sync("unknown id: sync", "made-up", 3)
    await script.go("d4 leaves, and one that is unknown", "made-up", "nobody")
    await script.go("consumer member by LeaveGroup, downgrade", "d-m1")
    await script.pulse("d1 hears", "d1", 3)
    await script.listed("after the downgrade")
    await script.go("the last leaves", "d1")
    await script.join("to an empty group", "d1")


async def statics(script: Mixed) -> None:
    """Static members change their protocol."""
    script.group = "s1"
    await script.classic_group("i1", group_instance_id="i")
    await script.step("takes the instance over", "s-m1", instance_id="i")
    await script.pulse("old id", "i1", 1, group_instance_id="i")
    await script.pulse("old id, no instance", "i1", 1)
    await script.describe("taken over", "s1")
    await script.join("and back", "i2", group_instance_id="i")
    await script.listed("and back")
    await script.step("consumer member is gone", "s-m1", 2, instance_id="i")
    await script.sync("and back: sync", "i2", 2)


async def lost(script: Mixed) -> None:
    """Members whose times are over: the session of the consumer-protocol member, a join, a sync; static ones."""
    script.group = "l1"
    await script.step("first", "l-m1", rebalance_timeout_ms=1000)
    await script.join("short of time", "l1", rebalance_timeout_ms=500)
    await asyncio.sleep(1.5)
    await script.pulse("it did not sync", "l1", 2)
    await script.describe("only the first", "l1")
    await script.join("joins again", "l2", rebalance_timeout_ms=500)
    await script.sync("and syncs", "l2", 2)
    await script.step("computes", "l-m1", 2)
    await script.step("revokes", "l-m1", 2, owned={"t": (0, 1)})
    await script.pulse("must join", "l2", 2)
    await asyncio.sleep(1)
    await script.pulse("it did not join", "l2", 2)
    await script.join("static", "l3", group_instance_id="i", session_timeout_ms=6000)
    await script.join("static, again", "l3", group_instance_id="i", session_timeout_ms=6000)
    await script.join("static, unknown instance", "l3", group_instance_id="j", session_timeout_ms=6000)
    await script.join("static, with another id", "l4", group_instance_id="i", member_id="x", session_timeout_ms=6000)
    await script.join("static, replaced", "l5", group_instance_id="i", session_timeout_ms=6000, member_id="")
    await script.pulse("fenced", "l3", 3, group_instance_id="i")
    await script.describe("replaced", "l1")
    await script.go("by its instance", "", group_instance_id="i")
    await script.describe("the first again", "l1")


async def empty(script: Mixed) -> None:
    """Empty groups are replaced."""
    script.group = "e1"
    await script.classic_group("e1")
    await script.go("leaves", "e1")
    await script.step("replaces the empty classic group", "e-m1")
    await script.step("leaves, too", "e-m1", -1)
    await script.join("replaces the empty consumer group", "e2")


PARTS: Final = {part.__name__: part for part in (upgrade, refused, downgrade_by_leave, statics, lost, empty)}


def mixed_conversation(address: str, *parts: str) -> list[Said]:
    """Have the conversation with a new broker, and note what it has stored then."""

    async def work() -> list[Said]:
        host, _, port = address.rpartition(":")
        async with Client(address) as client:
            for name, partitions in TOPICS.items():
                await create_topic(client, NewTopic(name, partitions))
            script = Mixed(Peer(await SocketStream.connect(host, int(port))))
            await script.learn_topics(*TOPICS)
            await find_coordinator(script.peer)
            for part in parts or PARTS:
                await PARTS[part](script)
            before = len(script.said)
            await asyncio.sleep(INTERVAL_S)  # the last records are stored without an answer that waits for them
            await script.stored()
            # Kafka 4 also stores a classic group when it hears of it
            rows = [row for _, row in script.said[before:] if row[:2] != (2, (3, "", 0, None, None))]
            script.said[before:] = [(f"record {number}", row) for number, row in enumerate(rows)]
            script.peer.close()
            return [(what, _named(heard, script)) for what, heard in script.said]

    return asyncio.run(asyncio.wait_for(work(), 200))


def _named(heard: Any, script: Mixed) -> Any:
    """Return values with names of members in place of ids."""
    if isinstance(heard, str):
        for name, member_id in script.members.items():
            heard = heard.replace(member_id, f"<{name}>")
        return heard
    if isinstance(heard, dict):
        return {_named(key, script): _named(value, script) for key, value in heard.items()}
    if isinstance(heard, list):
        return [_named(each, script) for each in heard]
    if isinstance(heard, tuple):
        return tuple(_named(each, script) for each in heard)
    return heard
