"""Disks that are slow, or stand still: the event loop touches no file, so that no other request waits for them."""

import asyncio
import os
import random
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from magicbyte.access.client import Client
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, OffsetOutOfRangeError
from magicbyte.engine.log.files.filesystem import LocalFiles, LocalWritableFile
from magicbyte.engine.ports import Buffer
from magicbyte.engine.protocol import Message
from magicbyte.engine.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from magicbyte.engine.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from magicbyte.engine.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from magicbyte.engine.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from magicbyte.engine.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from magicbyte.engine.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from magicbyte.engine.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
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
from magicbyte.engine.records.encode import Format
from magicbyte.server.broker.broker import Broker
from magicbyte.server.serving.parts import KeptFile
from magicbyte.server.serving.threads import SystemThreads
from server.broker.builders import asking, fetch, made, produce, records
from server.broker.serving import Peer, Running
from server.broker.test_admin_churn import BUSY, EXPECTED, one_thing

TIME = 1_700_000_000_000
WATCHED = {"list", "entry", "open", "rename", "delete", "make_directory", "sync_directory", "lock", "modified_ms"}
WAIT_S = 50  # for what is to come: far longer than it takes


class Disk:
    """What is known of each operation on files: its name, its path, and the thread that does it.

    While `stuck` says so of an operation, it does not end.
    """

    def __init__(self) -> None:
        self.on_loop: list[str] = []
        self.operations = 0
        self.loop: int | None = None
        self.stuck: Callable[[str, str], bool] = lambda _operation, _path: False
        self.stands = threading.Event()
        self.goes = threading.Event()

    def at(self, operation: str, path: str) -> None:
        self.operations += 1
        if threading.get_ident() == self.loop:
            self.on_loop.append(f"{operation} {path}")
        if self.stuck(operation, path):
            self.stands.set()
            assert self.goes.wait(WAIT_S)


class WatchedFile(LocalWritableFile):
    def __init__(self, disk: Disk, path: str, *, create: bool) -> None:
        disk.at("open", path)
        super().__init__(path, create=create)
        self.disk = disk

    def read_at(self, position: int, length: int) -> bytes:
        self.disk.at("read", self.path)
        return super().read_at(position, length)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self.disk.at("read", self.path)
        return super().read_into(position, buffer)

    def write_at(self, position: int, *pieces: Buffer) -> None:
        self.disk.at("write", self.path)
        super().write_at(position, *pieces)

    def truncate(self, size: int) -> None:
        self.disk.at("truncate", self.path)
        super().truncate(size)

    def sync(self) -> None:
        self.disk.at("sync", self.path)
        super().sync()


class WatchedFiles(LocalFiles):
    """This machine's files; each operation is announced to the disk first."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return partial(self._told, name, found) if name in WATCHED else found

    def _told(self, name: str, call: Callable[..., Any], path: str, *more: Any) -> Any:
        self.disk.at(name, path)
        return call(path, *more)

    def create(self, path: str) -> LocalWritableFile:
        return WatchedFile(self.disk, path, create=True)

    def edit(self, path: str) -> LocalWritableFile:
        return WatchedFile(self.disk, path, create=False)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A disk, of which the metadata's file is a part."""
    made = Disk()
    connect = sqlite3.connect

    def watched(path: str, **named: Any) -> sqlite3.Connection:
        class WatchedConnection(sqlite3.Connection):
            def execute(self, statement: str, *given: Any) -> sqlite3.Cursor:
                if statement == "BEGIN":
                    made.at("write", path)
                return super().execute(statement, *given)

        return connect(path, factory=WatchedConnection, **named)

    monkeypatch.setattr(sqlite3, "connect", watched)
    yield made
    made.goes.set()


@contextmanager
def watching(disk: Disk) -> Iterator[None]:
    """Note what happens on this thread inside the block."""
    disk.loop = threading.get_ident()
    yield
    disk.loop = None
    assert disk.on_loop == []


def on(disk: Disk, folder: Path, settings: dict[str, str] | None = None) -> Running:
    running = Running(folder, settings)
    running.broker = Broker(running.broker.config, files=WatchedFiles(disk))
    return running


# ---- no file on the loop


def log_requests(time: int) -> list[tuple[Message, int, type[Message]]]:
    """Requests of everything that may touch files, in the order in which they make sense; `topic` has records."""
    asked = [ListOffsetsTopic(name="topic", partitions=[ListOffsetsPartition(timestamp=time)])]
    committed = [OffsetCommitRequestTopic(name="topic", partitions=[OffsetCommitRequestPartition(committed_offset=1)])]
    changed = [AlterableConfig(name="retention.ms", value="1000000")]
    own = [AlterableConfig(name="log.cleaner.threads", value="1")]
    return [
        (ListOffsetsRequest(replica_id=-1, topics=asked), 0, ListOffsetsResponse),
        (ListOffsetsRequest(replica_id=-1, topics=asked), 7, ListOffsetsResponse),
        (MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 4, MetadataResponse),
        (
            CreateTopicsRequest(topics=[CreatableTopic(name="made", num_partitions=3, replication_factor=1)]),
            2,
            CreateTopicsResponse,
        ),
        (
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="made", count=5, assignments=None)]),
            1,
            CreatePartitionsResponse,
        ),
        (FindCoordinatorRequest(key="group"), 1, FindCoordinatorResponse),
        (OffsetCommitRequest(group_id="group", topics=committed), 0, OffsetCommitResponse),
        (OffsetCommitRequest(group_id="group", topics=committed), 0, OffsetCommitResponse),
        (OffsetCommitRequest(group_id="group", topics=committed), 2, OffsetCommitResponse),
        (
            AlterConfigsRequest(
                resources=[AlterConfigsResource(resource_type=2, resource_name="topic", configs=changed)]
            ),
            1,
            AlterConfigsResponse,
        ),
        (
            AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=4, resource_name="0", configs=own)]),
            1,
            AlterConfigsResponse,
        ),
        (InitProducerIdRequest(transactional_id=None), 1, InitProducerIdResponse),
        (DescribeLogDirsRequest(), 1, DescribeLogDirsResponse),
        (
            DescribeProducersRequest(topics=[TopicRequest(name="topic", partition_indexes=(0,))]),
            0,
            DescribeProducersResponse,
        ),
        (
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(name="topic", partitions=[DeleteRecordsPartition(partition_index=0, offset=9)])
                ]
            ),
            1,
            DeleteRecordsResponse,
        ),
        (DeleteTopicsRequest(topic_names=["topic"]), 3, DeleteTopicsResponse),
    ]


@pytest.mark.parametrize("settings", [{}, {"log.flush.policy": "group-commit"}, {"log.flush.interval.messages": "1"}])
async def test_no_request_has_the_loop_touch_a_file(settings: dict[str, str], folder: Path, disk: Disk) -> None:
    async with on(disk, folder, {"log.segment.bytes": "40000", "index.interval.bytes": "100", **settings}) as broker:
        peer = await Peer.of(broker)
        with watching(disk):
            await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="topic")]), 4, MetadataResponse)
            for form in (Format.V0, Format.V1, Format.V2):
                for count, codec in ((1, Codec.NONE), (300, Codec.NONE), (300, Codec.LZ4)):  # here, in threads
                    answer = await produce(peer, "topic", made(records(count), form, codec), form)
                    assert answer.error_code == 0
            for version in range(13):
                for offset in (0, 7, 1500, 1802, 1803):
                    assert (await fetch(peer, version, asking("topic", offset))).error_code == 0
                    committed = asking("topic", offset, limit=100, isolation_level=1)
                    assert (await fetch(peer, version, committed)).error_code == 0
            for request, version, response in log_requests(TIME + 50):
                before = disk.operations
                await peer.ask(request, version, response)
                looks = isinstance(request, DescribeLogDirsRequest | DescribeProducersRequest)
                assert disk.operations > before or looks, request  # else nothing was tried
        peer.close()


async def test_whatever_happens_to_topics_the_loop_touches_no_file(folder: Path, disk: Disk) -> None:
    async def worker(address: str, number: int) -> None:
        chance = random.Random(number)
        async with Client(address, retry_ms=1, backoff_ms=1, request_timeout_ms=10_000) as client:
            for _ in range(30):
                try:
                    await one_thing(client, chance)
                except BrokerError as error:
                    if error.code not in EXPECTED:
                        raise
                except OffsetOutOfRangeError:  # deleted between the two questions
                    pass

    async with on(disk, folder, BUSY) as broker:
        address = f"127.0.0.1:{next(iter(broker.ports.values()))}"
        with watching(disk):
            await asyncio.gather(*(worker(address, number) for number in range(4)))


# ---- a disk that stands still


async def no_request_waits(broker: Broker) -> None:
    """Write, read and look at another topic, from another connection."""
    peer = await Peer.of(broker)
    for form in (Format.V1, Format.V2):
        assert (await produce(peer, "quick", made(records(5), form), form)).error_code == 0
    for version in (1, 11):
        assert (await fetch(peer, version, asking("quick", 0))).records
    found = await peer.ask(MetadataRequest(topics=None), 4, MetadataResponse)
    assert {each.name for each in found.topics} >= {"quick", "slow"}
    peer.close()


async def _write(peer: Peer) -> object:
    return await produce(peer, "slow", made(records(3), Format.V2), Format.V2)


async def _read(peer: Peer) -> object:
    return await fetch(peer, 11, asking("slow", 5))


async def _convert(peer: Peer) -> object:
    return await fetch(peer, 0, asking("slow", 5))


async def _find(peer: Peer) -> object:
    asked = [ListOffsetsTopic(name="slow", partitions=[ListOffsetsPartition(timestamp=TIME + 2)])]
    return await peer.ask(ListOffsetsRequest(replica_id=-1, topics=asked), 7, ListOffsetsResponse)


async def _make(peer: Peer) -> object:
    return await peer.ask(
        CreateTopicsRequest(topics=[CreatableTopic(name="slow-too", num_partitions=1, replication_factor=1)]),
        2,
        CreateTopicsResponse,
    )


@pytest.mark.parametrize(
    ("ask", "operation", "path"),
    [
        (_write, "write", "/slow-0/"),
        (_write, "open", "/slow-0/"),  # of a new segment
        (_write, "sync", "/slow-0/"),
        (_read, "read", "/slow-0/"),
        (_convert, "read", "/slow-0/"),
        (_find, "read", "/slow-0/"),
        (_make, "make_directory", "/slow-too-0"),
        (_make, "sync_directory", ""),
        (_make, "write", "metadata.sqlite"),
    ],
)
async def test_a_disk_that_stands_still_delays_only_the_requests_for_it(
    ask: Callable[[Peer], Coroutine[Any, Any, object]], operation: str, path: str, folder: Path, disk: Disk
) -> None:
    async with on(disk, folder) as broker:
        await broker.topics.create("slow", configs={"segment.bytes": "3000"})
        await broker.topics.create("quick")
        slow = await Peer.of(broker)
        for _ in range(5):  # as far as the end of a segment
            assert (await produce(slow, "slow", made(records(3), Format.V2), Format.V2)).error_code == 0
        await broker.topics.alter("slow", lambda _: {"segment.bytes": "600"})
        await no_request_waits(broker)
        disk.stuck = lambda did, where: did == operation and path in where
        waiting = asyncio.create_task(ask(slow))
        async with asyncio.timeout(WAIT_S):
            while not disk.stands.is_set():
                await asyncio.sleep(0)
        await no_request_waits(broker)
        assert not waiting.done()
        disk.goes.set()
        await waiting
        slow.close()


async def test_a_partition_is_known_as_slow_until_it_is_quick_again(folder: Path, disk: Disk) -> None:
    async with on(disk, folder) as broker:
        peer = await Peer.of(broker)
        await broker.topics.create("slow")
        slow = broker.replicas.partition("slow", 0)
        disk.stuck = lambda did, where: did == "write" and "/slow-0/" in where
        waiting = asyncio.create_task(_write(peer))
        async with asyncio.timeout(WAIT_S):
            while not disk.stands.is_set():
                await asyncio.sleep(0)
        await asyncio.sleep(0.02)  # for so long the disk stands still
        disk.goes.set()
        await waiting
        assert slow.is_slow
        disk.stuck = lambda _did, _where: False
        async with asyncio.timeout(WAIT_S):
            while slow.is_slow:  # until it was quick once
                await _write(peer)
        peer.close()


async def test_readers_of_a_disk_that_stands_still_leave_threads_for_those_who_write(folder: Path, disk: Disk) -> None:
    async with on(disk, folder) as broker:
        await broker.topics.create("slow")
        await broker.topics.create("quick")
        first = await Peer.of(broker)
        await produce(first, "slow", made(records(30), Format.V2), Format.V2)
        await produce(first, "quick", made(records(5), Format.V2), Format.V2)
        disk.stuck = lambda did, where: did == "read" and "/slow-0/" in where
        peers = [await Peer.of(broker) for _ in range(40)]
        waiting = [asyncio.create_task(_read(peer)) for peer in peers]
        async with asyncio.timeout(WAIT_S):
            while not disk.stands.is_set():
                await asyncio.sleep(0)
        answer = await produce(first, "quick", made(records(5), Format.V2), Format.V2)
        assert (await fetch(first, 11, asking("quick", answer.base_offset))).records
        assert not any(each.done() for each in waiting)
        disk.goes.set()
        for each, peer in zip(waiting, peers, strict=True):
            assert (await each).error_code == 0
            peer.close()
        first.close()


def test_a_file_that_was_deleted_while_it_was_sent_is_closed_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    close = os.close

    def watched(descriptor: int) -> None:
        closed.append(threading.get_ident())
        close(descriptor)

    files = []
    for name in ("there", "deleted"):
        (tmp_path / name).write_bytes(b"abc")
        files.append(LocalWritableFile(str(tmp_path / name)))
    threads = SystemThreads("test", 1)
    there, deleted = (KeptFile(file, threads) for file in files)
    second = KeptFile(files[1], threads)
    monkeypatch.setattr(os, "close", watched)
    files.clear()  # the segments that had them are gone
    there.close()
    there.close()
    assert closed == [threading.get_ident()]
    (tmp_path / "deleted").unlink()
    assert deleted.read_at(0, 9) == b"abc"
    deleted.close()
    deleted.close()
    assert second.read_at(0, 9) == b"abc"
    second.close()
    threads.close()
    assert len(closed) == 2
    assert closed[1] != closed[0]


# ---- threads


async def test_the_loop_stands_still_for_no_work_while_other_work_is_late() -> None:
    threads, late, goes = SystemThreads("test", 4), threading.Event(), threading.Event()
    assert await threads.run_short(len, "abc") == 3

    def waits() -> None:
        late.set()
        assert goes.wait(WAIT_S)

    first = asyncio.create_task(threads.run_short(waits))
    while not late.is_set():
        await asyncio.sleep(0)
    turns = 0
    second = asyncio.create_task(threads.run_short(goes.wait, WAIT_S))
    while turns < 100 and not second.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns == 100  # it did not end within any grace
    goes.set()
    await first
    assert await second
    threads.close()


async def test_work_that_was_begun_ends_although_its_caller_is_cancelled() -> None:
    threads, goes, ended = SystemThreads("test", 1), threading.Event(), threading.Event()

    def waits() -> None:
        assert goes.wait(WAIT_S)
        ended.set()

    for do in (threads.run, threads.run_short):
        goes.clear()
        ended.clear()
        task = asyncio.create_task(do(waits))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        goes.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()
    threads.close()


async def test_a_timeout_that_passes_while_a_thread_works_is_raised_as_one() -> None:
    threads, goes = SystemThreads("test", 1), threading.Event()

    async def go_behind(timeout: asyncio.Timeout) -> None:
        while not timeout.expired():
            await asyncio.sleep(0)
        goes.set()

    async def in_time(do: Callable[..., Awaitable[bool]]) -> None:
        async with asyncio.timeout(0) as timeout:
            watch = asyncio.create_task(go_behind(timeout))
            assert await do(goes.wait, WAIT_S)
            await asyncio.gather(watch, asyncio.sleep(WAIT_S))

    for do in (threads.run, threads.run_short):
        goes.clear()
        with pytest.raises(TimeoutError):
            await in_time(do)
    threads.close()


async def test_a_timeout_that_work_itself_raises_is_passed_on() -> None:
    def fails() -> None:
        raise TimeoutError("of the work")

    threads = SystemThreads("test", 1)
    with pytest.raises(TimeoutError, match="of the work"):
        await threads.run_short(fails)
    threads.close()
