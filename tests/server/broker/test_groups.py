"""Consumer groups of two Python clients against the broker, in this process: they share, rebalance, resume."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from kafka.admin import KafkaAdminClient
from msgspec.structs import replace

from golden_data import Case, log_cases
from magicbyte.access.client import Client, admin, groups
from magicbyte.access.client.connection import Connection
from magicbyte.access.client.groups import Committed
from magicbyte.engine.codecs import Codec
from magicbyte.engine.coordination.effects import Store
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.engine.groups.effects import OFFSETS_HEADER
from magicbyte.engine.protocol import APIS, Message
from magicbyte.engine.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest
from magicbyte.engine.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from magicbyte.engine.protocol.messages.list_groups import ListGroupsRequest
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magicbyte.engine.protocol.messages.offset_delete import OffsetDeleteRequest
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from magicbyte.engine.protocol.messages.sync_group import SyncGroupRequest
from magicbyte.engine.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import BatchHeader, Format
from magicbyte.engine.records.entry import entries
from magicbyte.server.coordinating.coordinator_log import set_of
from magicbyte.server.settings.offer import OWN
from magicbyte.server.settings.served import SERVED
from magicbyte.testing import Broker
from server.broker.serving import Running, TurnedClock

PARTITIONS = 4
SETTINGS = {"num.partitions": str(PARTITIONS)}
EACH = 5


async def send_some(broker: Broker, first: int = 0) -> set[bytes]:
    """Send some values to each partition; return them."""
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    await producer.start()
    values = {
        (partition, b"%d of %d" % (number, partition))
        for partition in range(PARTITIONS)
        for number in range(first, first + EACH)
    }
    for partition, value in sorted(values):
        await producer.send_and_wait("topic", value, partition=partition)
    await producer.stop()
    return {value for _, value in values}


@asynccontextmanager
async def member(broker: Broker, **settings: object) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
    consumer = aiokafka.AIOKafkaConsumer(
        "topic",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="group",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        enable_auto_commit=False,
        **settings,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def shared(members: list[aiokafka.AIOKafkaConsumer]) -> list[int]:
    """Wait until the members share all partitions; return how many each has."""
    while True:
        counts = [len(each.assignment()) for each in members]
        if sum(counts) == PARTITIONS and all(counts):
            return sorted(counts)
        await asyncio.gather(*(each.getmany(timeout_ms=50) for each in members))


async def read(consumer: aiokafka.AIOKafkaConsumer, count: int) -> set[bytes]:
    found: set[bytes] = set()
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            found |= {each.value for each in records}
    return found


async def test_members_share_the_partitions_and_take_over_from_those_that_leave() -> None:
    async with Broker(SETTINGS) as broker:
        await send_some(broker)
        async with member(broker) as first:
            assert await shared([first]) == [4]
            async with member(broker) as second, member(broker) as third:
                assert await shared([first, second, third]) == [1, 1, 2]
            assert await shared([first]) == [4]


@pytest.mark.parametrize("settings", [{}, {"group_instance_id": "instance"}], ids=["dynamic", "static"])
async def test_a_group_resumes_after_the_broker_was_started_again(tmp_path: Path, settings: dict[str, str]) -> None:
    async with Broker(SETTINGS, directory=tmp_path) as broker:
        sent = await send_some(broker)
        async with member(broker, **settings) as consumer:
            assert await read(consumer, len(sent)) == sent
            await consumer.commit()
    async with Broker(SETTINGS, directory=tmp_path) as broker:
        later = await send_some(broker, first=EACH)
        async with member(broker, **settings) as consumer:
            assert await read(consumer, len(later)) == later


def test_kafka_python_consumes_in_a_group_and_its_admin_client_sees_and_deletes_it() -> None:
    with Broker(SETTINGS) as broker:
        address = broker.bootstrap_servers
        sent = asyncio.run(send_some(broker))
        consumer = kafka.KafkaConsumer(
            "topic",
            bootstrap_servers=address,
            group_id="group",
            auto_offset_reset="earliest",
            consumer_timeout_ms=20_000,
            enable_auto_commit=False,
        )
        found = {each.value for _, each in zip(range(len(sent)), consumer, strict=False)}
        consumer.commit()
        asking = KafkaAdminClient(bootstrap_servers=address)
        (listed,) = asking.list_groups()
        described = asking.describe_groups(["group"])["group"]
        offsets = asking.list_group_offsets({"group": None})["group"]
        refused = asking.delete_groups(["group"])
        consumer.close()
        deleted = asking.delete_groups(["group"])
        asking.close()
    assert found == sent
    assert (listed["group_id"], listed["group_state"]) == ("group", "Stable")
    (only,) = described["members"]
    assigned = [{"topic": "topic", "partitions": list(range(PARTITIONS))}]
    assert (only["client_host"], only["member_assignment"]["assigned_partitions"]) == ("/127.0.0.1", assigned)
    assert {each.partition: at.offset for each, at in offsets.items()} == dict.fromkeys(range(PARTITIONS), EACH)
    assert (refused, deleted) == ({"group": "NonEmptyGroupError"}, {"group": "OK"})


async def test_aiokafkas_admin_client_describes_and_deletes_groups() -> None:
    async with Broker(SETTINGS) as broker:
        await send_some(broker)
        asking = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await asking.start()
        async with member(broker) as consumer:
            await shared([consumer])
            assert ("group", "consumer") in await asking.list_consumer_groups()
            ((described, *_),) = [each.groups for each in await asking.describe_consumer_groups(["group"])]
            assert described[1:5] == ("group", "Stable", "consumer", "roundrobin")
        await asking.close()


@pytest.mark.parametrize("partitions", [50, 3])
def test_groups_work_whichever_request_created_their_topic(partitions: int) -> None:
    """50: a request for its metadata; 3: an administrator."""

    async def work() -> int:
        async with Broker(SETTINGS) as broker, Client(broker.bootstrap_servers) as client:
            await send_some(broker)
            await groups.committed_offsets(client, "other", [("topic", 0)])  # the coordinator is there already
            await admin.delete_topic(client, "__consumer_offsets")
            if partitions == 3:
                await admin.create_topic(client, admin.NewTopic("__consumer_offsets", partitions=3))
            else:
                asking = MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")])
                await client.ask_any(asking, MetadataResponse)
            client.forget_coordinator("g")
            await groups.commit_offsets(client, "g", {("topic", 0): Committed(3)})
            assert await groups.committed_offsets(client, "g", [("topic", 0)]) == {("topic", 0): Committed(3)}
            found = broker.served.topics.known("__consumer_offsets")
            assert broker.served.topics.log("__consumer_offsets", partition_for("g", found.partitions)).size
            return found.partitions

    assert asyncio.run(asyncio.wait_for(work(), 120)) == partitions


async def test_offsets_go_with_their_topic_and_groups_with_theirs() -> None:
    place = ("topic", 0)

    async with Broker(SETTINGS) as broker, Client(broker.bootstrap_servers, retry_ms=0) as client:
        for gone in ("topic", "__consumer_offsets"):
            await send_some(broker)
            await groups.commit_offsets(client, "g", {place: Committed(3)})
            assert await groups.committed_offsets(client, "g", [place]) == {place: Committed(3)}
            await admin.delete_topic(client, gone)
            with contextlib.suppress(BrokerError):  # the coordinator is asked for again: its topic has gone
                await groups.committed_offsets(client, "g", [place])
            assert await groups.committed_offsets(client, "g", [place]) == {}


async def test_our_client_commits_by_both_ways_and_each_has_its_own_offsets(tmp_path: Path) -> None:
    place = ("topic", 1)

    async with Broker(SETTINGS, directory=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        await send_some(broker)
        assert await groups.committed_offsets(client, "g", [place]) == {}
        assert await groups.committed_offsets(client, "g", [place], zookeeper=True) == {}
        await groups.commit_offsets(client, "g", {place: Committed(3, "note", 0)})
        await groups.commit_offsets(client, "g", {place: Committed(1)}, zookeeper=True)
        await groups.commit_offsets(client, "g", {place: Committed(2)}, zookeeper=True)
        with pytest.raises(BrokerError) as refused:
            await groups.commit_offsets(client, "a/b", {place: Committed(2)}, zookeeper=True)
        assert refused.value.code == ErrorCode.INVALID_GROUP_ID
    async with Broker(SETTINGS, directory=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        assert await groups.committed_offsets(client, "g", [place]) == {place: Committed(3, "note", 0)}
        assert await groups.committed_offsets(client, "g", [place], zookeeper=True) == {place: Committed(2)}


def test_every_version_that_is_advertised_is_answered() -> None:
    requests: list[Message] = [
        FindCoordinatorRequest(key="g", coordinator_keys=["g"]),
        JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer"),
        SyncGroupRequest(group_id="g"),
        HeartbeatRequest(group_id="g"),
        LeaveGroupRequest(group_id="g", member_id="m", members=[MemberIdentity(member_id="m")]),
        OffsetCommitRequest(
            group_id="g",
            topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])],
        ),
        OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequestTopic(name="t", partition_indexes=(0,))],
            groups=[OffsetFetchRequestGroup(group_id="g", topics=None)],
        ),
        DescribeGroupsRequest(groups=["g"]),
        ListGroupsRequest(),
        DeleteGroupsRequest(groups_names=["g"]),
        OffsetDeleteRequest(group_id="g"),
        TxnOffsetCommitRequest(group_id="g"),
        ConsumerGroupHeartbeatRequest(group_id="g"),
        ConsumerGroupDescribeRequest(group_ids=["g"]),
    ]

    async def work() -> int:
        answered = 0
        async with Broker() as broker:
            host, _, port = broker.bootstrap_servers.rpartition(":")
            connection = await Connection.open(host, int(port), client_id="c")
            for request in requests:
                assert request.API_KEY is not None
                for version in OWN.answered[request.API_KEY]:
                    sent = only_of(request, version)
                    response = await connection.send(sent, versions=range(version, version + 1))
                    assert type(response) is APIS[request.API_KEY].response
                    answered += 1
            await connection.aclose()
        return answered

    assert asyncio.run(asyncio.wait_for(work(), 120)) == sum(
        len(OWN.answered[key])
        for key, served in SERVED.items()
        if served.module in ("group_requests", "find_coordinator")
    )


def only_of(request: Message, version: int) -> Message:
    """Return the request without what this version of it has not."""
    without: dict[str, Any] = {}
    match request:
        case FindCoordinatorRequest():
            without = {"key": ""} if version >= 4 else {"coordinator_keys": []}
        case LeaveGroupRequest():
            without = {"member_id": ""} if version >= 3 else {"members": []}
        case OffsetFetchRequest():
            without = {"group_id": "", "topics": []} if version >= 8 else {"groups": []}
    return replace(request, **without)


def test_members_that_fall_silent_are_let_go_by_the_clock() -> None:
    async def work() -> int:
        settings = {"group.min.session.timeout.ms": "50"}
        async with Broker(settings) as broker, Client(broker.bootstrap_servers) as client:
            await groups.committed_offsets(client, "g", [("t", 0)])  # the coordinator is there
            node = await client.coordinator("g")
            join = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=50,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range")],
            )
            joined = await client.ask(node, join, JoinGroupResponse, versions=range(1))
            members = []
            while not members or members[-1]:
                described = await client.ask(node, DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse)
                members.append(len(described.groups[0].members))
                await asyncio.sleep(0.01)
            assert described.groups[0].group_state == "Empty"
            return int(joined.generation_id)

    assert asyncio.run(asyncio.wait_for(work(), 120)) == 1


@pytest.mark.parametrize("turned_ms", [-20_000, -3_600_000, 86_400_000])
def test_a_rebalance_does_not_wait_for_a_wall_clock_that_was_turned(turned_ms: int, tmp_path: Path) -> None:
    """Of two members one does not join again: the other one's wait ends with its rebalance timeout, of 200 ms."""
    clock = TurnedClock()

    def joining(member: str = "") -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=200,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range")],
        )

    async def work() -> list[int]:
        async with (
            Running(tmp_path, {"group.initial.rebalance.delay.ms": "0"}, clock) as broker,
            Client(f"127.0.0.1:{broker.ports['PLAINTEXT']}") as client,
        ):
            await groups.committed_offsets(client, "g", [("t", 0)])  # the coordinator is there
            node = await client.coordinator("g")
            connection = await Connection.open(node.host, node.port, client_id="other")
            first = await client.ask(node, joining(), JoinGroupResponse, versions=range(2, 3))
            waits = asyncio.create_task(connection.send(joining(), versions=range(2, 3)))
            while broker.groups.coordinator.groups["g"].state.value != "PreparingRebalance":
                await asyncio.sleep(0.001)
            clock.turned_ms = turned_ms
            second = await asyncio.wait_for(waits, 60)
            assert isinstance(second, JoinGroupResponse)
            await connection.aclose()
            found = list(broker.groups.coordinator.groups["g"].members)
            assert (first.member_id in found, second.member_id in found) == (False, True)
            return [first.generation_id, second.generation_id]

    assert asyncio.run(work()) == [1, 2]


STORED = {
    "magic 0": {"log.message.format.version": "0.9.0", "inter.broker.protocol.version": "0.9.0"},
    "magic 1": {"log.message.format.version": "0.10.2", "inter.broker.protocol.version": "0.10.2"},
    "magic 1, gzip": {"log.message.format.version": "0.10.2", "offsets.topic.compression.codec": "1"},
    "magic 2, zstd": {"offsets.topic.compression.codec": "4"},
    "enriched": {"log.message.format.version": "enriched"},
    "one partition": {"offsets.topic.num.partitions": "1"},
}


@pytest.mark.parametrize("settings", STORED.values(), ids=STORED)
def test_what_was_acknowledged_outlives_a_broker_that_is_not_stopped(settings: dict[str, str], tmp_path: Path) -> None:
    """The directory is copied while the broker runs: so it would be found after a kill."""
    before, after = tmp_path / "before", tmp_path / "after"
    places = {("topic", partition): Committed(partition + 5, "text") for partition in range(PARTITIONS)}

    async def work() -> object:
        async with Broker({**SETTINGS, **settings}, directory=before) as broker:
            async with Client(broker.bootstrap_servers) as client:
                await send_some(broker)
                await groups.commit_offsets(client, "g", dict.fromkeys(places, Committed(1)))
                await groups.commit_offsets(client, "g", places)
            shutil.copytree(before, after)
        async with (
            Broker({**SETTINGS, **settings}, directory=after) as broker,
            Client(broker.bootstrap_servers) as client,
        ):
            return await groups.committed_offsets(client, "g", places)

    assert asyncio.run(asyncio.wait_for(work(), 120)) == places


def test_offsets_are_found_when_the_metadata_is_lost(tmp_path: Path) -> None:
    """The number of partitions, by which groups find theirs, follows from the logs that are there."""

    async def work() -> object:
        async with Broker(SETTINGS, directory=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
            await send_some(broker)
            await groups.commit_offsets(client, "g", {("topic", 0): Committed(3)})
        (tmp_path / "magicbyte-metadata.sqlite").unlink()
        settings = {**SETTINGS, "offsets.topic.num.partitions": "7"}  # for a topic that is made, which this is not
        async with Broker(settings, directory=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
            return await groups.committed_offsets(client, "g", [("topic", 0)])

    assert asyncio.run(asyncio.wait_for(work(), 120)) == {("topic", 0): Committed(3)}


def test_groups_whose_log_is_damaged_are_not_served_and_others_are(tmp_path: Path) -> None:
    names = ["g", "simple"]

    async def work() -> list[ErrorCode | None]:
        settings = {**SETTINGS, "offsets.topic.num.partitions": "5"}
        async with Broker(settings, directory=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
            await send_some(broker)
            for name in names:
                await groups.commit_offsets(client, name, {("topic", 0): Committed(3)})
        (path,) = (tmp_path / f"__consumer_offsets-{partition_for('g', 5)}").glob("*.log")
        damaged = bytearray(path.read_bytes())
        damaged[70] ^= 1
        path.write_bytes(damaged)
        async with (
            Broker(settings, directory=tmp_path) as broker,
            Client(broker.bootstrap_servers, retry_ms=0) as client,
        ):
            codes: list[ErrorCode | None] = []
            for name in names:
                code: ErrorCode | None = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                while code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    try:
                        found = await groups.committed_offsets(client, name, [("topic", 0)])
                        assert found == {("topic", 0): Committed(3)}
                        code = None
                    except BrokerError as error:
                        code = error.code
                codes.append(code)
            return codes

    assert partition_for("g", 5) != partition_for("simple", 5)
    codes = asyncio.run(asyncio.wait_for(work(), 120))
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE, None]


@pytest.mark.parametrize("case", log_cases(topic="__consumer_offsets"), ids=str)
def test_what_is_appended_for_a_group_is_what_a_real_broker_appends_byte_for_byte(case: Case) -> None:
    """Offsets and leader epochs, which an append sets, are taken from the real log."""
    compared = 0
    for segment in case.segments().values():
        for _, entry in entries(memoryview(segment)):
            records = [record for columns in decode(entry.buffer) for record in columns]
            is_group = isinstance(entry, RecordBatch) and entry.base_sequence == -1
            cells = tuple((record.key or b"", record.value) for record in records)
            store = Store(0, 0, cells, None, BatchHeader() if is_group else OFFSETS_HEADER)
            made = bytearray(set_of(store, Format(str(entry.magic)), Codec.NONE, records[0].timestamp))
            if isinstance(entry, RecordBatch):
                batch = RecordBatch(memoryview(made))
                batch.set_base_offset(entry.base_offset)
                batch.set_partition_leader_epoch(entry.partition_leader_epoch)
            else:
                made[:8] = entry.buffer[:8]
            assert made == entry.buffer
            compared += 1
    assert compared > 3


async def test_what_may_be_done_with_a_group_is_said_where_it_is_asked_for_and_the_group_could_be_described() -> None:
    not_said, said = -(1 << 31), 1 << 3 | 1 << 6 | 1 << 8  # read, delete, describe

    async with Broker({"offsets.topic.num.partitions": "1"}) as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        connection = await Connection.open(host, int(port), client_id="test")

        async def told(version: int, *, asks: bool) -> tuple[int, int]:
            request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=asks)
            response = await connection.send(request, versions=range(version, version + 1))
            assert isinstance(response, DescribeGroupsResponse)
            return response.groups[0].error_code, response.groups[0].authorized_operations

        for version in (3, 5, 6):
            assert await told(version, asks=True) == (ErrorCode.NOT_COORDINATOR, not_said)
        while (await told(5, asks=False))[0] != ErrorCode.NONE:
            await connection.send(FindCoordinatorRequest(key="g"), versions=range(2, 3))
        for version in (3, 5):
            assert await told(version, asks=True) == (ErrorCode.NONE, said)
            assert await told(version, asks=False) == (ErrorCode.NONE, not_said)
        assert await told(6, asks=True) == (ErrorCode.GROUP_ID_NOT_FOUND, not_said)
        await connection.aclose()
