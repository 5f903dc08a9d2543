"""Starting and stopping, durability, slow and failing disks, and what bad input gets."""

import asyncio
import logging
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from builders import run
from magicbyte.engine.errors import LogDirectoryError, NetworkError
from magicbyte.engine.log.files.filesystem import LocalFiles, LocalWritableFile
from magicbyte.engine.protocol import APIS, read_response, write_request
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from magicbyte.engine.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.server.broker.broker import Broker
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.settings.offer import OWN
from server.broker.serving import CLOSED, Clock, Peer, Running

TIME = 1_700_000_000_000


def batch(count: int = 3, time: int = TIME, form: Format = Format.V2) -> bytes:
    return encode_records([Record(at, time + at, 0, None, b"value %d" % at) for at in range(count)], form)


async def produce(
    peer: Peer, topic: str = "topic", data: bytes | None = None, version: int = 7, acks: int = -1
) -> PartitionProduceResponse:
    part = PartitionProduceData(index=0, records=batch() if data is None else data)
    request = ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[part])]
    )
    return (await peer.ask(request, version, ProduceResponse)).responses[0].partition_responses[0]


async def high_watermark(peer: Peer, topic: str = "topic") -> int:
    asked = [FetchTopic(topic=topic, partitions=[FetchPartition(partition_max_bytes=1000)])]
    response = await peer.ask(FetchRequest(topics=asked), 4, FetchResponse)
    return response.responses[0].partitions[0].high_watermark


# ---- starting and stopping


def test_a_broker_starts_produces_and_fetches_without_numpy_numba_arrow_and_spark_or_the_parts_of_members() -> None:
    program = """
import asyncio, sys
sys.path.insert(0, "tests")
from server.broker.test_broker import batch, high_watermark, produce
from server.broker.serving import Peer
from magicbyte.testing import Broker
async def work():
    async with Broker() as broker:
        await broker.served.topics.create("topic")
        peer = await Peer.of(broker.served)
        assert (await produce(peer)).error_code == 0
        assert await high_watermark(peer) == 3
        peer.close()
asyncio.run(work())
heavy = ("numpy", "numba", "llvmlite", "pyarrow", "pyspark", "fsspec", "kazoo", "rich")
of_members = ["controller", "controller_term", "links", "orders", "zookeeper_membership", "znodes.controller_tree",
              "znodes.member_store"]
unwanted = [
    *heavy, "magicbyte.engine.replication.controller", *(f"magicbyte.server.stores.{each}" for each in of_members)
]
print([name for name in unwanted if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_after_a_clean_stop_all_records_are_there_without_a_recovery(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        for _ in range(3):
            await produce(peer)
        cluster_id = broker.cluster_id
        peer.close()
    async with Running(folder) as broker:
        assert broker.logs.was_clean
        assert broker.replicas.partition("topic", 0).log.loaded.recovered == []
        assert broker.cluster_id == cluster_id
        peer = await Peer.of(broker)
        assert await high_watermark(peer) == 9
        assert (await produce(peer)).base_offset == 9
        peer.close()


async def test_two_brokers_do_not_share_a_folder_and_the_second_says_so(folder: Path) -> None:
    async with Running(folder) as broker:
        with pytest.raises(LogDirectoryError, match="another process is using it"):
            await Running(folder).__aenter__()
        assert (await broker.topics.create("topic")).partitions == 1


async def test_a_start_that_fails_leaves_nothing_open(folder: Path) -> None:
    async with Running(folder) as broker:
        port = broker.ports["PLAINTEXT"]
        with pytest.raises(NetworkError, match="cannot listen"):
            await Running(folder / "other", {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}).__aenter__()
    async with Running(folder / "other") as broker:
        assert broker.logs.was_clean


def test_an_aborted_broker_does_no_further_work(folder: Path) -> None:
    ended = []

    def timers() -> list[asyncio.TimerHandle]:
        return [each for each in asyncio.get_running_loop()._scheduled if not each.cancelled()]

    async def again() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(1)
            if len(ended) < 3:
                broker.runtime.spawn(again())
                await asyncio.sleep(0)

    async def work() -> None:
        at_first = timers()
        broker.runtime.spawn(again())
        await broker.start()
        peer = await Peer.of(broker)
        member = JoinGroupRequest(
            group_id="group",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        await peer.ask(member, 2, JoinGroupResponse)
        assert timers() != at_first  # the group's
        await broker.abort()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert timers() == at_first
        peer.stream.close()

    broker = Broker(BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder)}))
    run(work())
    assert len(ended) == 3


def test_what_was_acknowledged_is_there_after_a_kill(folder: Path) -> None:
    command = [sys.executable, "-m", "magicbyte", "serve", "--dir", str(folder), "--listen", "127.0.0.1:0"]

    async def acknowledged(port: int) -> int:
        broker = Broker(BrokerConfig({"log.dirs": str(folder)}))
        broker.ports["PLAINTEXT"] = port
        peer = await Peer.of(broker)
        await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="topic")]), 4, MetadataResponse)
        last = [await produce(peer, acks=1) for _ in range(50)][-1]
        peer.close()
        return last.base_offset + 3

    async def found() -> int:
        async with Running(folder) as broker:
            assert not broker.logs.was_clean
            peer = await Peer.of(broker)
            end = await high_watermark(peer)
            peer.close()
            return end

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().split(" (")[0].rpartition(":")[2])
        wanted = run(acknowledged(port))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    assert run(found()) == wanted == 150


# ---- disks


class SlowFile(LocalWritableFile):
    """A file whose sync waits, or fails."""

    def __init__(self, path: str, disk: "SlowDisk", *, create: bool) -> None:
        super().__init__(path, create=create)
        self.disk = disk

    def sync(self) -> None:
        if self.path.endswith(".log") and "/topic-" in self.path:
            self.disk.syncs += 1
            assert self.disk.may_sync.wait(120)
            if self.disk.has_bug:
                self.disk.has_bug = False
                raise RuntimeError("a bug")
            if self.disk.fails:
                raise OSError(5, "Input/output error", self.path)
        super().sync()

    def read_at(self, position: int, length: int) -> bytes:
        if self.path.endswith(".log"):
            assert self.disk.may_read.wait(120)
        return super().read_at(position, length)


class SlowDisk(LocalFiles):
    """This machine's files, but for syncs and reads of one topic's logs."""

    def __init__(self) -> None:
        self.may_sync, self.may_read = threading.Event(), threading.Event()
        self.may_sync.set()
        self.may_read.set()
        self.fails = self.has_bug = False
        self.syncs = 0

    def create(self, path: str) -> LocalWritableFile:
        return SlowFile(path, self, create=True)

    def edit(self, path: str) -> LocalWritableFile:
        return SlowFile(path, self, create=False)


class OnSlowDisk(Running):
    """A broker on a slow disk."""

    def __init__(self, folder: Path, disk: SlowDisk) -> None:
        super().__init__(folder)
        self.broker = Broker(self.broker.config, files=disk)


@pytest.mark.parametrize("settings", [{"log.flush.policy": "group-commit"}, {"flush.messages": "1"}])
async def test_nothing_is_acknowledged_before_its_sync_and_no_other_request_waits_for_that(
    settings: dict[str, str], folder: Path
) -> None:
    disk = SlowDisk()
    async with OnSlowDisk(folder, disk) as broker:
        await broker.topics.create("topic", configs=settings)
        await broker.topics.create("other")
        slow, quick = await Peer.of(broker), await Peer.of(broker)
        disk.may_sync.clear()
        waiting = asyncio.create_task(produce(slow))
        while not disk.syncs:
            await asyncio.sleep(0)
        assert (await produce(quick, "other")).error_code == 0
        assert await high_watermark(quick) == 0
        assert not waiting.done()
        disk.may_sync.set()
        assert (await waiting).base_offset == 0
        assert await high_watermark(quick) == 3
        slow.close()
        quick.close()


async def test_a_batch_that_is_sent_again_before_its_sync_is_acknowledged_with_the_first(folder: Path) -> None:
    header = BatchHeader(producer_id=7, producer_epoch=0, base_sequence=0)
    data = encode_records([Record(0, TIME, 0, None, b"value")], Format.V2, header=header)

    disk = SlowDisk()
    async with OnSlowDisk(folder, disk) as broker:
        await broker.topics.create("topic", configs={"log.flush.policy": "group-commit"})
        peers = [await Peer.of(broker) for _ in range(2)]
        disk.may_sync.clear()
        first = asyncio.create_task(produce(peers[0], data=data, acks=1))
        while not disk.syncs:
            await asyncio.sleep(0)
        again = asyncio.create_task(produce(peers[1], data=data, acks=1))
        while broker.metrics.of("topic").produce_requests < 2:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        is_early = again.done()
        disk.may_sync.set()
        assert not is_early
        assert [(await each).base_offset for each in (first, again)] == [0, 0]
        assert (await produce(peers[1], data=data, acks=1)).base_offset == 0
        for each in peers:
            each.close()


async def test_a_bug_in_a_sync_is_answered_and_stops_no_later_append(folder: Path) -> None:
    disk = SlowDisk()
    async with OnSlowDisk(folder, disk) as broker:
        await broker.topics.create("topic", configs={"log.flush.policy": "group-commit"})
        peer = await Peer.of(broker)
        disk.has_bug = True
        answers = [await asyncio.wait_for(produce(peer, acks=acks), 120) for acks in (1, 1, -1)]
        assert [each.error_code for each in answers] == [56, 0, 0]
        assert await high_watermark(peer) == 9
        peer.close()


async def test_a_sync_that_fails_is_answered_with_a_storage_error_and_takes_the_directory_offline(folder: Path) -> None:
    disk = SlowDisk()
    running = OnSlowDisk(folder, disk)
    broker = running.broker
    await broker.start()
    await broker.topics.create("topic", configs={"log.flush.policy": "group-commit"})
    await broker.topics.create("other")
    peer = await Peer.of(broker)
    disk.fails = True
    assert [(await produce(peer, version=version)).error_code for version in (7, 4, 3)] == [56, 56, 6]
    assert (await produce(peer, "other")).error_code == 56
    asked = FetchRequest(topics=[FetchTopic(topic="topic", partitions=[FetchPartition(partition_max_bytes=9)])])
    for version, code in ((4, 6), (11, 56)):
        response = await peer.ask(asked, version, FetchResponse)
        assert response.responses[0].partitions[0].error_code == code
    peer.close()
    with pytest.raises(LogDirectoryError, match="offline"):
        await broker.stop()


async def test_a_cold_read_delays_no_other_request(folder: Path) -> None:
    disk = SlowDisk()
    async with Running(folder) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        await produce(peer)
        peer.close()
    async with OnSlowDisk(folder, disk) as broker:
        slow, quick = await Peer.of(broker), await Peer.of(broker)
        disk.may_read.clear()
        waiting = asyncio.create_task(high_watermark(slow))
        await broker.topics.create("other")
        assert (await produce(quick, "other")).error_code == 0
        assert not waiting.done()
        disk.may_read.set()
        assert await waiting == 3
        slow.close()
        quick.close()


# ---- offsets


async def offset_of(
    peer: Peer, timestamp: int, version: int = 7, *, epoch: int = -1, most: int = 5
) -> ListOffsetsPartitionResponse:
    part = ListOffsetsPartition(timestamp=timestamp, current_leader_epoch=epoch, max_num_offsets=most)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="topic", partitions=[part])])
    if version:
        part.max_num_offsets = 1
    return (await peer.ask(request, version, ListOffsetsResponse)).topics[0].partitions[0]


async def test_offsets_are_found_by_time_in_every_version(folder: Path) -> None:
    async with Running(folder, clock=Clock(TIME + 500)) as broker:
        await broker.topics.create("topic", configs={"segment.bytes": "150"})
        peer = await Peer.of(broker)
        for at in range(4):
            await produce(peer, data=batch(time=TIME + 100 * at))
        for version in range(1, 11):
            found = [await offset_of(peer, each, version) for each in (-2, -1, TIME, TIME + 101, TIME + 900)]
            assert [each.offset for each in found] == [0, 12, 0, 4, -1]
            assert [each.timestamp for each in found] == [-1, -1, TIME, TIME + 101, -1]
        latest = await offset_of(peer, -3, 7)
        assert (latest.offset, latest.timestamp, latest.leader_epoch) == (11, TIME + 302, 0)
        assert (await offset_of(peer, -3, 6)).error_code == 35
        for version in (8, 9, 10):
            local = await offset_of(peer, -4, version)
            assert (local.error_code, local.timestamp, local.offset, local.leader_epoch) == (0, -1, 0, 0)
        assert (await offset_of(peer, -1, 0)).old_style_offsets == (12, 9, 6, 3, 0)
        assert (await offset_of(peer, -1, 0, most=1)).old_style_offsets == (12,)
        assert (await offset_of(peer, -2, 0)).old_style_offsets == (0,)
        assert (await offset_of(peer, -1, 4, epoch=3)).error_code == 75
        asked = OffsetForLeaderTopic(topic="topic", partitions=[OffsetForLeaderPartition(leader_epoch=0)])
        for version in range(5):
            request = OffsetForLeaderEpochRequest(topics=[asked])
            response = await peer.ask(request, version, OffsetForLeaderEpochResponse)
            assert response.topics[0].partitions[0].end_offset == 12
        peer.close()


# ---- bad input

GARBAGE = random.Random(5).randbytes(300)
FRAMES: dict[str, bytes] = {
    "nothing": b"",
    "one byte": b"\x00",
    "an unknown api": struct.pack(">hhi", 999, 0, 1),
    "an api that is not served": struct.pack(">hhih", 4, 0, 1, -1),
    "a version that is too new": struct.pack(">hhih", 0, 99, 1, -1),
    "a negative version": struct.pack(">hhih", 3, -1, 1, -1),
    "no body": struct.pack(">hhih", 0, 7, 1, -1),
    "a client id that is longer than the frame": struct.pack(">hhih", 3, 0, 1, 32_000),
    "more topics than bytes": struct.pack(">hhihi", 3, 1, 1, -1, 0x7FFFFFFF),
    "a negative count": struct.pack(">hhihi", 3, 1, 1, -1, -5),
    "garbage behind a header": struct.pack(">hhih", 0, 7, 1, -1) + GARBAGE,
    "an http request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("what", FRAMES)
def test_a_frame_that_is_no_request_closes_its_connection_with_a_line_and_no_other(
    what: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with Running(folder) as broker:
            await broker.topics.create("topic")
            bad, good = await Peer.of(broker), await Peer.of(broker)
            frame = FRAMES[what]
            assert await bad.exchange(len(frame).to_bytes(4, "big") + frame) == CLOSED
            assert (await produce(good)).error_code == 0
            bad.close()
            good.close()

    with caplog.at_level(logging.WARNING):
        run(work())
    assert "closing 127.0.0.1:" in caplog.text
    assert "Traceback" not in caplog.text


def test_flipped_and_cut_requests_never_hurt_the_broker(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    chosen = random.Random(11)
    request = ProduceRequest(
        acks=1, topic_data=[TopicProduceData(name="topic", partition_data=[PartitionProduceData(records=batch())])]
    )

    def damaged(version: int) -> bytes:
        frame = bytearray(bytes(write_request(request, version, correlation_id=1, client_id="me"))[4:])
        for _ in range(chosen.randint(1, 3)):
            frame[chosen.randrange(8, len(frame))] = chosen.randrange(256)
        return bytes(frame[: chosen.choice((len(frame), chosen.randrange(len(frame))))])

    async def work() -> None:
        async with Running(folder) as broker:
            await broker.topics.create("topic")
            good = await Peer.of(broker)
            for _ in range(200):
                bad, frame = await Peer.of(broker), damaged(chosen.choice((3, 7, 9)))
                await bad.stream.write([len(frame).to_bytes(4, "big") + frame])
                follow = bytes(write_request(ApiVersionsRequest(), 0, correlation_id=2, client_id="me"))
                await bad.stream.write([follow])
                await bad.next()
                bad.close()
            before = await high_watermark(good)
            assert (await produce(good)).base_offset == before
            good.close()

    run(work())
    assert "Traceback" not in caplog.text


async def test_api_versions_is_answered_in_every_version_and_in_an_unknown_one(folder: Path) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        software = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
        for version in range(6):
            found = await peer.ask(software if version >= 3 else ApiVersionsRequest(), version, ApiVersionsResponse)
            assert {each.api_key: range(each.min_version, each.max_version + 1) for each in found.api_keys} == (
                OWN.listed
            )
        unknown = bytearray(bytes(write_request(software, 4, correlation_id=9, client_id="me")))
        unknown[7] = 77
        header, response = read_response((await peer.exchange(bytes(unknown)))[4:], APIS[18], 0)
        assert isinstance(response, ApiVersionsResponse)
        assert (header.correlation_id, response.error_code) == (9, 35)
        assert [(each.api_key, each.max_version) for each in response.api_keys] == [(18, 5)]
        bad = ApiVersionsRequest(client_software_name="-", client_software_version="")
        assert (await peer.ask(bad, 3, ApiVersionsResponse)).error_code == 42
        peer.close()


@pytest.mark.parametrize("make", [lambda size: b"\x00" * (size // 2), lambda _: b""])
async def test_a_half_frame_and_a_vanished_client_leave_nothing_behind(
    make: Callable[[int], bytes], folder: Path
) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic")
        gone, good = await Peer.of(broker), await Peer.of(broker)
        await gone.stream.write([(1 << 20).to_bytes(4, "big") + make(1 << 20)])
        gone.close()
        assert (await produce(good)).base_offset == 0
        good.close()


async def test_a_produce_that_cannot_be_acknowledged_or_may_not_be_sent_is_refused(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic", configs={"min.insync.replicas": "2"})
        await broker.topics.create("__consumer_offsets", 1)
        peer = await Peer.of(broker)
        assert (await produce(peer, acks=-1)).error_code == 19
        assert (await produce(peer, acks=1)).error_code == 0
        refused = await produce(peer, acks=2, version=8)
        assert (refused.error_code, refused.base_offset, refused.error_message) == (
            21,
            -1,
            "acks 2: expected -1, 0 or 1",
        )
        assert (await produce(peer, "__consumer_offsets")).error_code == 17
        assert broker.replicas.partition("topic", 0).log.log_end_offset == 3
        peer.close()
