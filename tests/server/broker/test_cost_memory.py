"""Memory that sets take when they are opened: of all requests together, not of each."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from builders import hurried, run
from engine.log.made_sets import enriched_set
from magicbyte.access.net.memory import PATIENCE_S
from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.codecs import Codec
from magicbyte.engine.coordination.effects import Store
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.records import GroupMetadataValue
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.rules import KEPT_SCRATCH, AppendRules
from magicbyte.engine.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import OFFSET, Dialect, TimestampType
from magicbyte.server.coordinating import coordinator_log
from magicbyte.server.coordinating.coordinator_log import set_of
from magicbyte.server.partitions import appends, conversion
from magicbyte.server.partitions.appends import Acknowledgement, NewSet
from magicbyte.server.partitions.writes import DECOMPRESSED_TIMES, OPENED_BYTES
from magicbyte.server.serving import trimming
from server.broker.serving import KEEP_ALL, Peer, Running

PARTITIONS = 6
MOST = 8 << 20
SETTINGS = {"max.decompressed.message.bytes": str(MOST), "queued.max.request.bytes": str(MOST)}

ALLOCATING = """
from resource import RUSAGE_SELF, getrusage
from magicbyte.server.serving.trimming import keep_freed
keep_freed()
for number in range(20):
    if number == 10:
        before = getrusage(RUSAGE_SELF).ru_minflt
    requests = [b"x" * 1_000_000 for _ in range(3)]
    del requests
print(getrusage(RUSAGE_SELF).ru_minflt - before)
"""
"""Print how many pages the system gives while three requests at a time come and go."""


def bomb(size: int, codec: Codec = Codec.ZSTD) -> bytes:
    row = Record(0, 1_700_000_000_000, TimestampType.CREATE_TIME, b"key", bytes(size))
    return bytes(encode_records([row], Format.V2, codec, header=BatchHeader()))


def enriched_bomb(size: int, offset: int = 0) -> memoryview:
    """Return an enriched wrapper of one message; its header has not its last offset."""
    row = Record(0, 1_700_000_000_000, TimestampType.CREATE_TIME, b"key", bytes(size))
    data = bytearray(enriched_set(Codec.GZIP, [row]))
    OFFSET.type.pack_into(data, OFFSET.start, offset)
    return memoryview(data)


class Together:
    """Wraps functions that threads run, and counts how many run at a time."""

    def __init__(self) -> None:
        self.now = self.most = self.calls = 0
        self._lock = threading.Lock()

    def of(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                self.now += 1
                self.calls += 1
                self.most = max(self.most, self.now)
            try:
                return work(*arguments, **named)
            finally:
                with self._lock:
                    self.now -= 1

        return wrapped


async def produce(peer: Peer, partition: int, records: bytes) -> int:
    part = PartitionProduceData(index=partition, records=records)
    data = [TopicProduceData(name="topic", partition_data=[part])]
    answer = await peer.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 9, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


async def test_sets_that_decompress_to_much_wait_for_each_other_and_small_ones_for_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = Together(), Together()
    real = appends.prepare

    def prepare(*arguments: Any, has_room: bool = True, **named: Any) -> Any:
        return (large if has_room else small).of(real)(*arguments, has_room=has_room, **named)

    monkeypatch.setattr(appends, "prepare", prepare)

    async with Running(folder, SETTINGS) as broker:
        await broker.topics.create("topic", PARTITIONS)
        peers = [await Peer.of(broker) for _ in range(PARTITIONS)]
        one = bomb(KEPT_SCRATCH + 1000)
        codes = await asyncio.gather(*[produce(each, at, one) for at, each in enumerate(peers)])
        assert codes == [ErrorCode.NONE] * PARTITIONS
        assert (large.most, large.calls) == (1, PARTITIONS)
        assert broker.runtime.memory.peak == DECOMPRESSED_TIMES * MOST
        assert await produce(peers[0], 0, bomb(KEPT_SCRATCH - 1000)) == ErrorCode.NONE
        assert large.calls == PARTITIONS
        assert await produce(peers[0], 0, bomb(MOST + 1)) == ErrorCode.MESSAGE_TOO_LARGE
        assert broker.runtime.memory.used == 0
        for each in peers:
            each.close()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_set_that_is_written_in_another_format_takes_no_more_memory_than_is_counted(codec: Codec) -> None:
    rules = AppendRules(format=Format.V1, max_message_bytes=1 << 30, max_decompressed_bytes=MOST)
    data = memoryview(bomb(MOST - 1000, codec))
    work = partial(prepare, data, rules, next_offset=5, now_ms=1_700_000_000_000, leader_epoch=0, request_version=9)
    work()  # what is imported and kept for the next set is there, whatever ran before
    tracemalloc.start()
    try:
        work()
        assert 2 * MOST < tracemalloc.get_traced_memory()[1] <= DECOMPRESSED_TIMES * MOST
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("mode", "counted"), [("trust", DECOMPRESSED_TIMES * MOST), ("unchanged", OPENED_BYTES)])
async def test_a_wrapper_that_is_opened_for_its_offsets_alone_counts(mode: str, counted: int, folder: Path) -> None:
    async with Running(folder, {**SETTINGS, "enriched.append.mode": "trust"}) as broker:
        await broker.topics.create("topic", configs={"message.format.version": "enriched"})
        partition = await broker.replicas.opened("topic", 0)
        rules = broker.topics.known("topic").config.append if mode == "trust" else None
        for offset, size, peak in ((0, KEPT_SCRATCH - 1000, 0), (1, KEPT_SCRATCH + 1000, counted)):
            new = NewSet(partition, enriched_bomb(size, offset), rules, 2, dialect=Dialect.ENRICHED)
            assert (await broker.appends.append(new)).last_offset == offset
            assert (broker.runtime.memory.peak, broker.runtime.memory.used) == (peak, 0)


async def test_a_request_that_waits_too_long_for_memory_gets_a_retriable_error(folder: Path) -> None:
    async with Running(folder, SETTINGS) as broker:
        await broker.topics.create("topic", 1)
        peer = await Peer.of(broker)
        async with broker.runtime.memory.work(MOST):
            refused = await hurried(produce(peer, 0, bomb(KEPT_SCRATCH + 1000)), PATIENCE_S)
            assert refused == ErrorCode.REQUEST_TIMED_OUT
            assert await produce(peer, 0, bomb(1000)) == ErrorCode.NONE
        assert await produce(peer, 0, bomb(KEPT_SCRATCH + 1000)) == ErrorCode.NONE
        peer.close()


async def test_conversions_and_searches_by_time_take_from_the_same_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Together()
    monkeypatch.setattr(
        conversion, "convert", lambda *a, **named: iter(together.of(lambda: list(CONVERT(*a, **named)))())
    )

    async with Running(folder, {**SETTINGS, **KEEP_ALL}) as broker:
        await broker.topics.create("topic", PARTITIONS)
        peers = [await Peer.of(broker) for _ in range(PARTITIONS)]
        for at, each in enumerate(peers):
            assert await produce(each, at, bomb(1 << 18, Codec.LZ4)) == ErrorCode.NONE

        async def fetch(at: int, peer: Peer) -> int:
            part = FetchPartition(partition=at, partition_max_bytes=1 << 20)
            request = FetchRequest(topics=[FetchTopic(topic="topic", partitions=[part])])
            answer = await peer.ask(request, 3, FetchResponse)
            return len(bytes(answer.responses[0].partitions[0].records or b""))

        assert all(await asyncio.gather(*[fetch(at, each) for at, each in enumerate(peers)]))
        assert together.calls >= PARTITIONS
        assert together.most == 1
        assert broker.runtime.memory.peak == MOST

        part = ListOffsetsPartition(partition_index=0, timestamp=5)
        asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="topic", partitions=[part])])
        async with broker.runtime.memory.work(MOST):
            refused = await hurried(peers[0].ask(asked, 5, ListOffsetsResponse), PATIENCE_S)
            assert refused.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        found = await peers[0].ask(asked, 5, ListOffsetsResponse)
        assert found.topics[0].partitions[0].offset == 0
        for each in peers:
            each.close()


async def test_work_on_a_message_that_takes_all_memory_itself_does_not_wait_for_it(folder: Path) -> None:
    async with Running(folder, SETTINGS) as broker:
        await broker.topics.create("topic", 1)
        peer = await Peer.of(broker)
        assert await produce(peer, 0, bomb(1000)) == ErrorCode.NONE
        parts = [ListOffsetsPartition(partition_index=0, timestamp=5)]
        parts += [ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(1, 3000)]
        asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="topic", partitions=parts)])
        answer = await peer.ask(asked, 5, ListOffsetsResponse)
        assert broker.runtime.memory.peak > MOST
        first = answer.topics[0].partitions[0]
        assert (first.error_code, first.offset) == (ErrorCode.NONE, 0)
        peer.close()


CONVERT = conversion.convert


def test_megabytes_of_a_group_are_encoded_in_a_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noted(*arguments: Any) -> memoryview:
        threads.append(threading.current_thread().name.partition("_")[0])
        return set_of(*arguments)

    monkeypatch.setattr(coordinator_log, "set_of", noted)

    async def work() -> None:
        async with Running(folder) as broker:
            await broker.groups.ensure_topic()
            for size in (10, 100_000):
                term = broker.groups.coordinator.terms[0].number
                store = Store(0, term, ((b"key", bytes(size)),), None)
                (appended,) = await broker.groups.log._append(0, [store])
                assert isinstance(appended, Acknowledgement)
                assert appended.code() is ErrorCode.NONE

    run(work())
    assert threads == ["MainThread", "writing"]


def test_a_group_of_megabytes_is_written_as_a_record_in_a_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[tuple[int, str]] = []
    real = GroupMetadataValue.to_bytes

    def noted(self: GroupMetadataValue) -> bytes:
        made = real(self)
        threads.append((len(made) >> 20, threading.current_thread().name.partition("_")[0]))
        return made

    monkeypatch.setattr(GroupMetadataValue, "to_bytes", noted)
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}

    async def work() -> None:
        async with Running(folder, settings) as broker:
            await broker.groups.ensure_topic()
            peer = await Peer.of(broker)
            for group, size in (("small", 10), ("large", 3 << 20)):
                protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(size))]
                join = JoinGroupRequest(
                    group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=60_000, protocol_type="consumer",
                    protocols=protocols,
                )  # fmt: skip
                joined = await peer.ask(join, 3, JoinGroupResponse)
                sync = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
                synced = await peer.ask(sync, 2, SyncGroupResponse)
                assert (synced.error_code == ErrorCode.NONE) == (group == "small")  # no record may be so large
            peer.close()

    run(work())
    assert threads == [(0, "MainThread"), (3, "writing")]


async def test_memory_goes_back_to_the_system_when_large_requests_are_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trims: list[int] = []
    monkeypatch.setattr(trimming, "AFTER_S", 0.05)
    monkeypatch.setattr(trimming, "malloc_trim", lambda: trims.append)

    async with Running(folder) as broker:
        await broker.topics.create("topic", 1)
        peer = await Peer.of(broker)
        assert await produce(peer, 0, bomb(100_000)) == ErrorCode.NONE
        assert not broker.runtime.trimming.is_due
        assert await produce(peer, 0, bomb(KEPT_SCRATCH + 1)) == ErrorCode.NONE
        while not trims:
            await asyncio.sleep(0.01)
        trims.clear()
        assert await produce(peer, 0, bytes(100_000)) != ErrorCode.NONE  # hundreds at once are megabytes
        while not trims:
            await asyncio.sleep(0.01)
        peer.close()


def test_the_c_library_is_asked_if_it_can_give_memory_back() -> None:
    trim = trimming.malloc_trim()
    assert (trim is not None) == hasattr(ctypes.CDLL(None), "malloc_trim")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_memory_of_a_few_megabytes_is_kept_for_the_next_request() -> None:
    done = subprocess.run([sys.executable, "-c", ALLOCATING], check=True, stdout=subprocess.PIPE, text=True)
    assert int(done.stdout) < 100  # of 4500 pages, which it gives again and again by default


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_thirty_two_bombs_at_once_take_less_than_a_gigabyte(folder: Path) -> None:
    def resident(process: subprocess.Popen[str], name: str) -> int:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        return next(int(each.split()[1]) >> 10 for each in lines if each.startswith(name))

    async def work(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[2].rpartition(":")[2])
        peers = [Peer(await SocketStream.connect("127.0.0.1", port)) for _ in range(32)]
        topics = [CreatableTopic(name="topic", num_partitions=32, replication_factor=1)]
        await peers[0].ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 5, CreateTopicsResponse)
        one = bomb(60 << 20)
        codes = await asyncio.gather(*[produce(each, at, one) for at, each in enumerate(peers)])
        assert codes == [ErrorCode.NONE] * 32
        assert resident(process, "VmHWM") < 1000  # MB; 32 times 60 MiB are 2000
        async with asyncio.timeout(120):
            while resident(process, "VmRSS") >= 600:
                await asyncio.sleep(0.1)
        for each in peers:
            each.close()

    command = [sys.executable, "-m", "magicbyte", "serve", "--dir", str(folder), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            run(work(process), seconds=300)
        finally:
            process.terminate()
