"""Faults of a broker that a test asks for: what the client sees, and what the log holds afterwards."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import kafka
import pytest

from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol import Message, write_request
from magicbyte.engine.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from magicbyte.engine.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.testing import Broker
from server.broker.serving import CLOSED, Peer

TOPIC = "topic"
REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER


def produce(acks: int = 1, value: bytes = b"value") -> ProduceRequest:
    part = PartitionProduceData(index=0, records=encode_records([Record(0, 0, 0, None, value)], Format.V2))
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[part])])


def fetch(offset: int = 0, **more: int) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(topics=[FetchTopic(topic=TOPIC, partitions=[part])], **{"session_epoch": -1, **more})


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[Broker, Peer]]:
    """Yield a broker that has the topic, and a connection to it."""
    async with Broker() as broker:
        peer = await connect(broker)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        while (await peer.ask(asked, 4, MetadataResponse)).topics[0].error_code:
            pass
        yield broker, peer
        peer.close()


async def connect(broker: Broker) -> Peer:
    return Peer(await SocketStream.connect("127.0.0.1", int(broker.bootstrap_servers.rsplit(":", 1)[1])))


def end_of(broker: Broker) -> int:
    return broker.served.replicas.partition(TOPIC, 0).log.log_end_offset


async def produced(peer: Peer) -> int:
    return (await peer.ask(produce(), 7, ProduceResponse)).responses[0].partition_responses[0].error_code


def frame_of(request: Message, version: int) -> bytes:
    return bytes(write_request(request, version, correlation_id=7, client_id="test"))


async def test_a_refused_produce_leaves_nothing_and_the_next_is_taken() -> None:
    async with serving() as (broker, peer):
        with broker.fault("produce", error=REFUSED) as fault:
            assert await produced(peer) == REFUSED
            assert (fault.hits, end_of(broker)) == (1, 0)
            assert await produced(peer) == 0
            assert (fault.hits, end_of(broker)) == (1, 1)


async def test_a_fault_happens_to_the_requests_it_is_for_and_ends_with_its_block() -> None:
    async with serving() as (broker, peer):
        with broker.fault("Produce", at=2, times=2, error=REFUSED) as fault:
            assert [await produced(peer) for _ in range(4)] == [0, REFUSED, REFUSED, 0]
            assert fault.hits == 2
        with broker.fault("Produce", times=None, error=REFUSED) as fault:
            assert [await produced(peer) for _ in range(3)] == [REFUSED] * 3
        assert (await produced(peer), fault.hits, end_of(broker)) == (0, 3, 3)


@pytest.mark.parametrize(("disconnect", "stored"), [("before", 0), ("after", 1)])
async def test_a_connection_ends_before_a_request_is_carried_out_or_after(disconnect: str, stored: int) -> None:
    async with serving() as (broker, peer):
        with broker.fault("Produce", disconnect=disconnect):  # type: ignore[arg-type]
            assert await peer.exchange(frame_of(produce(), 7)) == CLOSED
        assert end_of(broker) == stored
        again = await connect(broker)
        assert await produced(again) == 0
        again.close()


async def test_an_answer_is_cut_anywhere_records_that_come_from_a_file_as_well() -> None:
    async with serving() as (broker, peer):
        assert (await peer.ask(produce(value=b"v" * 300), 7, ProduceResponse)).responses[0].partition_responses
        whole = await peer.exchange(frame_of(fetch(), 4))
        assert b"v" * 300 in whole
        for size in (0, 3, 4, 60, len(whole) - 200, len(whole) - 1):
            other = await connect(broker)
            with broker.fault("Fetch", cut_bytes=size):
                await other.stream.write([frame_of(fetch(), 4)])
                found = bytearray()
                while data := await other.stream.read(1 << 16):
                    found += data
            assert bytes(found) == whole[:size]
            other.close()


@pytest.mark.slow  # a broker that stops waits for requests that are in work
async def test_a_request_is_delayed_and_others_are_not() -> None:
    async with serving() as (broker, peer):
        other = await connect(broker)
        with broker.fault("Produce", delay_ms=3_600_000) as fault:
            late = asyncio.create_task(produced(peer))
            while not fault.hits:
                await other.ask(fetch(), 4, FetchResponse)
            assert await produced(other) == 0
            assert not late.done()
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        with broker.fault("Produce", delay_ms=30):
            began = asyncio.get_running_loop().time()
            assert await produced(other) == 0
            assert asyncio.get_running_loop().time() - began >= 0.03
        other.close()


async def test_a_fetch_is_refused_within_a_session_too() -> None:
    async with serving() as (broker, peer):
        first = await peer.ask(fetch(session_epoch=0), 7, FetchResponse)
        assert first.session_id
        following = FetchRequest(session_id=first.session_id, session_epoch=1, topics=[])
        with broker.fault("Fetch", error=ErrorCode.OFFSET_OUT_OF_RANGE):
            answer = await peer.ask(following, 7, FetchResponse)
        (topic,) = answer.responses
        found = [(each.partition_index, each.error_code) for each in topic.partitions]
        assert (topic.topic, found) == (TOPIC, [(0, ErrorCode.OFFSET_OUT_OF_RANGE)])
        again = await peer.ask(FetchRequest(session_id=first.session_id, session_epoch=2, topics=[]), 7, FetchResponse)
        assert (again.error_code, again.responses) == (0, [])


async def test_reads_are_answered_with_the_code_in_each_place() -> None:
    async with serving() as (broker, peer):
        with broker.fault("Metadata", error=ErrorCode.LEADER_NOT_AVAILABLE):
            found = await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 4, MetadataResponse)
        assert [each.error_code for each in found.topics] == [ErrorCode.LEADER_NOT_AVAILABLE]
        assert found.brokers
        asked = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        with broker.fault("ListOffsets", error=REFUSED):
            offsets = await peer.ask(ListOffsetsRequest(topics=[asked]), 2, ListOffsetsResponse)
        assert offsets.topics[0].partitions[0].error_code == REFUSED


async def test_other_requests_that_change_something_are_refused_and_not_carried_out() -> None:
    async with serving() as (broker, peer):
        with broker.fault("CreateTopics", error=ErrorCode.REQUEST_TIMED_OUT):
            made = await peer.ask(
                CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]),
                4,
                CreateTopicsResponse,
            )
        assert [(each.name, each.error_code) for each in made.topics] == [("new", ErrorCode.REQUEST_TIMED_OUT)]
        for version, request in (
            (4, DeleteTopicsRequest(topic_names=[TOPIC])),
            (6, DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)])),
        ):
            with broker.fault("DeleteTopics", error=ErrorCode.NOT_CONTROLLER):
                gone = await peer.ask(request, version, DeleteTopicsResponse)
            assert [(each.name, each.error_code) for each in gone.responses] == [(TOPIC, ErrorCode.NOT_CONTROLLER)]
        assert broker.served.topics.names() == [TOPIC]
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        commit = OffsetCommitRequest(
            group_id="group", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        )
        with broker.fault("OffsetCommit", error=ErrorCode.REBALANCE_IN_PROGRESS):
            committed = await peer.ask(commit, 2, OffsetCommitResponse)
        assert committed.topics[0].partitions[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS
        with broker.fault("Heartbeat", error=ErrorCode.ILLEGAL_GENERATION):
            beat = await peer.ask(HeartbeatRequest(group_id="group"), 1, HeartbeatResponse)
        assert beat.error_code == ErrorCode.ILLEGAL_GENERATION


async def test_a_produce_without_acknowledgement_is_refused_without_an_answer() -> None:
    async with serving() as (broker, peer):
        with broker.fault("Produce", error=REFUSED) as fault:
            await peer.stream.write([frame_of(produce(acks=0), 7)])
            assert await produced(peer) == 0
            assert (fault.hits, end_of(broker)) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"api": "Produces", "delay_ms": 1}, "Produces"),
        ({"api": "Produce"}, "one of"),
        ({"api": "Produce", "at": 0, "delay_ms": 1}, "from 1 on"),
        ({"api": "Produce", "times": 0, "delay_ms": 1}, "from 1 on"),
        ({"api": "Produce", "cut_bytes": -1}, "from 0 on"),
        ({"api": "Produce", "disconnect": "now"}, "before"),
        ({"api": "CreatePartitions", "error": 1}, "CreatePartitions"),
    ],
)
def test_a_fault_that_cannot_be_is_an_error_where_it_is_asked_for(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Broker().fault(**arguments)  # type: ignore[arg-type]


def test_a_client_tries_again() -> None:
    with Broker() as broker:
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retries=5, retry_backoff_ms=10)
        with broker.fault("Produce", error=REFUSED) as refused, broker.fault("Produce", at=2, disconnect="before"):
            assert producer.send(TOPIC, b"value").get(timeout=30).offset == 0
        assert refused.hits == 1
        producer.close()
