"""File descriptors: those of connections leave enough for logs, and their lack passes."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from magicbyte.access.client import Client, admin
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.fetch import fetch_sets
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.access.net import descriptors
from magicbyte.cli.main import main
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.log.files.filesystem import LocalFiles, LocalWritableFile
from magicbyte.engine.ports import FileEntry, TopicPartition
from magicbyte.engine.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.engine.replication.fetcher import Truncate
from magicbyte.server.apis.fetch import fetch as fetch_handler
from magicbyte.server.broker.broker import Broker
from magicbyte.server.serving.parts import FilePart
from magicbyte.server.serving.request import ClientConnection, Request
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.spark.workers import expect_bytes
from server.broker.builders import asking, fetch, made, produce, records
from server.broker.clusters import QUICK, cluster, until
from server.broker.serving import Peer, Running

TIME = 1_700_000_000_000
TOLD_EVERY_S = 60  # that connections are not accepted


class Scarce(LocalFiles):
    """The file system of this machine, for a process that has no descriptor left while `is_over`."""

    is_over = False

    def check(self, path: str) -> None:
        if self.is_over:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def list(self, path: str) -> list[FileEntry]:
        self.check(path)
        return super().list(path)

    def create(self, path: str) -> LocalWritableFile:
        self.check(path)
        return super().create(path)

    def edit(self, path: str) -> LocalWritableFile:
        self.check(path)
        return super().edit(path)

    def sync_directory(self, path: str) -> None:
        self.check(path)
        super().sync_directory(path)

    def hold_descriptor(self) -> Any:
        self.check("")
        return super().hold_descriptor()


async def test_without_a_descriptor_requests_get_an_error_that_passes_and_nothing_goes_offline(folder: Path) -> None:
    files = Scarce()

    async def create(peer: Peer, name: str) -> tuple[int, str | None]:
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=3, replication_factor=1)], timeout_ms=1000
        )
        (found,) = (await peer.ask(request, 5, CreateTopicsResponse)).topics
        return found.error_code, found.error_message

    given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder)}
    broker = Broker(BrokerConfig(given), files=files)
    await broker.start()
    peer = await Peer.of(broker)
    assert await create(peer, "old") == (0, None)
    data = made(records(5), Format.V2)
    assert (await produce(peer, "old", data, Format.V2)).error_code == 0
    files.is_over = True
    broker.logs.files.shrink(100)
    broker.logs.files.close()  # another user has the descriptors that the log gave up
    answer = await produce(peer, "old", data, Format.V2)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert answer.error_message is not None
    assert "Too many open files" in answer.error_message
    old = await produce(peer, "old", made(records(5), Format.V1), Format.V1)
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # what those clients know, and ask again after
    assert (await fetch(peer, 11, asking("old", 0))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await fetch(peer, 3, asking("old", 0))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    code, why = await create(peer, "new")
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert why is not None
    assert "Too many open files" in why
    assert broker.logs.health.error is None
    files.is_over = False
    assert (await produce(peer, "old", data, Format.V2)).base_offset == 5
    assert await create(peer, "new") == (0, None)
    assert (await produce(peer, "new", data, Format.V2)).error_code == 0
    assert (await fetch(peer, 11, asking("old", 0))).error_code == 0
    peer.close()
    await broker.stop()
    assert (folder / ".kafka_cleanshutdown").exists()


def open_logs() -> list[str]:
    """Return the segments' `.log` files that this process has open, each as often as it has a descriptor."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(each.readlink()))
        except OSError:  # the one that lists them
            continue
    return [each for each in found if re.fullmatch(r"[0-9]{20}\.log", Path(each).name)]


async def test_replicas_that_there_were_no_descriptors_for_are_led_and_followed_as_soon_as_there_are(
    folder: Path,
) -> None:
    scarce = Scarce()

    async with cluster(folder, 1) as members:
        await members.start(2, files=scarce)
        async with Client(members.bootstrap) as client:
            made = NewTopic("t", 2, assignments=[[1, 2], [2, 1]])
            await until(lambda: members.brokers[1].cluster_view.broker_ids() == [1, 2])
            scarce.is_over = True
            members.brokers[2].logs.files.close()  # another user has the descriptors that logs gave up
            await create_topic(client, made)
            await until(lambda: members.brokers[2].topics.get("t") is not None)
            await asyncio.sleep(5 * int(QUICK["replica.fetch.backoff.ms"]) / 1000)  # it is tried again meanwhile
            assert members.replica(members.brokers[2], "t") is None
            scarce.is_over = False
            await until(lambda: members.isr("t", 0) == members.isr("t", 1) == {1, 2})
            await send(client, "t", 0, records(10))
            await send(client, "t", 1, records(10))
            assert members.brokers[2].logs.health.error is None
        for index in (0, 1):
            await until(lambda index=index: members.is_settled("t", index))
            assert len(set(members.contents("t", index).values())) == 1


async def test_a_log_that_cannot_be_truncated_for_want_of_descriptors_is_truncated_when_there_are(folder: Path) -> None:
    scarce = Scarce()

    async with cluster(folder, 1) as members:
        follower = await members.start(2, files=scarce)
        await until(lambda: members.brokers[1].cluster_view.broker_ids() == [1, 2])
        async with Client(members.bootstrap) as client:
            await create_topic(client, NewTopic("t", 1, assignments=[[1, 2]]))
            await send(client, "t", 0, records(10))
            await until(lambda: members.is_settled("t"))
            partition = members.replica(follower, "t")
            assert partition is not None
            key, fetchers = TopicPartition("t", 0), follower.replicas.replication.fetchers
            fetcher = fetchers._by_key[key]
            scarce.is_over = True
            follower.logs.files.close()
            await fetcher._truncate_all([Truncate(key, 5)])
            assert partition.log.log_end_offset == 10
            assert key not in fetcher._fetcher.partitions
            await send(client, "t", 0, records(5), ProduceOptions(acks=1))
            scarce.is_over = False
            await until(lambda: members.is_settled("t"))
        assert len(set(members.contents("t").values())) == 1


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are counted there")
async def test_a_fetch_that_names_a_partition_900_times_takes_one_descriptor(folder: Path) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        await broker.topics.create("topic")
        for _ in range(3):
            await produce(peer, "topic", made(records(5), Format.V2), Format.V2)
        asked = [
            FetchPartition(partition=0, fetch_offset=offset % 15, partition_max_bytes=1 << 20) for offset in range(900)
        ]
        message = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 30, topics=[FetchTopic(topic="topic", partitions=asked)]
        )
        connection = ClientConnection("127.0.0.1", "127.0.0.1:1", broker.config.listeners[0])
        before = open_logs()
        response = await fetch_handler(broker.parts, Request(message, 11, "test", connection))
        parts = [piece for topic in response.responses for each in topic.partitions for piece in each.records or ()]
        assert parts
        assert all(isinstance(each, FilePart) for each in parts)
        assert len(before) == 1
        assert open_logs() == before
        broker.logs.files.shrink(100)  # they have it as long as they need it
        assert open_logs() == before
        for each in parts:
            assert isinstance(each, FilePart)
            each.close()
        assert open_logs() == []
        peer.close()


# ---- a process with few of them

_LISTENS = re.compile(r"listening on (127\.0\.0\.1):([0-9]+)")
_METRICS = re.compile(r"(http://127\.0\.0\.1:[0-9]+)/metrics")


class Limited:
    """`magicbyte serve` in a process of its own with so many descriptors at most."""

    def __init__(self, folder: Path, descriptors: int, settings: tuple[str, ...], errors: Path) -> None:
        command = [sys.executable, "-m", "magicbyte", "serve", "--dir", str(folder), "--listen", "127.0.0.1:0"]
        with errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*command, "--http", "127.0.0.1:0", *settings],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors)),
            )
        assert self.process.stdout is not None
        listens = _LISTENS.search(self.process.stdout.readline())
        pages = _METRICS.search(self.process.stdout.readline())
        assert listens is not None, errors.read_text()
        assert pages is not None
        self.address = listens[1], int(listens[2])
        self.bootstrap, self.pages = f"{listens[1]}:{listens[2]}", pages[1]

    def health(self) -> Any:
        with urllib.request.urlopen(f"{self.pages}/health", timeout=120) as answer:
            return json.load(answer)

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.pages}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        (line,) = (each for each in text.splitlines() if re.match(rf"{name}[ {{]", each))
        return float(line.rpartition(" ")[2])

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def stop(self, seconds: float = 60) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(seconds) == 0


@contextmanager
def limited(folder: Path, descriptors: int, *settings: str) -> Iterator[Limited]:
    broker = Limited(folder / "logs", descriptors, settings, folder / "errors")
    try:
        yield broker
    finally:
        broker.process.kill()
        broker.process.wait()


async def put(client: Client, topic: str, partition: int, value: bytes) -> None:
    await send(client, topic, partition, [Record(0, TIME, 0, None, value)])


@pytest.mark.skipif(sys.platform != "linux", reason="limits and descriptors as Linux has them")
def test_a_broker_with_256_descriptors_and_250_idle_sockets_works_and_takes_others_when_they_leave(
    tmp_path: Path,
) -> None:
    async def work(broker: Limited) -> None:
        async with Client(broker.bootstrap) as client:
            await admin.create_topic(client, NewTopic("topic", 40))
            await put(client, "topic", 0, b"before")
            idle = [socket.create_connection(broker.address, 120) for _ in range(250)]
            for partition in range(40):
                await put(client, "topic", partition, b"meanwhile")
                assert (await fetch_sets(client, "topic", partition, 0)).data
            await admin.create_topic(client, NewTopic("other", 3))
            health = await asyncio.to_thread(broker.health)  # pages have descriptors of their own
            assert health["ready"], health
            assert broker.descriptors < 256
            for each in idle:
                each.close()
        async with Client(broker.bootstrap, request_timeout_ms=120_000) as client:
            await put(client, "topic", 0, b"after")
            assert len((await fetch_sets(client, "topic", 0, 0)).data) > 0
        assert (await asyncio.to_thread(broker.health))["logDirectories"][0]["error"] is None

    with limited(tmp_path, 256, "log.retention.ms=-1") as broker:
        begun = time.monotonic()
        asyncio.run(asyncio.wait_for(work(broker), 120))
        took_s = time.monotonic() - begun
        broker.stop()
    told = (tmp_path / "errors").read_text()
    assert "offline" not in told
    assert 1 <= told.count("no connections are accepted until") <= 1 + took_s // TOLD_EVERY_S
    assert (tmp_path / "logs/.kafka_cleanshutdown").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits and descriptors as Linux has them")
@pytest.mark.parametrize(("topics", "partitions"), [(2, 600), pytest.param(10, 1000, marks=pytest.mark.campaign)])
def test_thousands_of_partitions_are_served_with_1024_descriptors(topics: int, partitions: int, tmp_path: Path) -> None:
    async def fill(broker: Limited) -> None:
        async with Client(broker.bootstrap, request_timeout_ms=120_000) as client:
            for topic in range(topics):
                await admin.create_topic(client, NewTopic(f"topic-{topic}", partitions))
                for partition in range(partitions):
                    await put(client, f"topic-{topic}", partition, b"%d" % partition)
            await check(broker, client)

    async def check(broker: Limited, client: Client) -> None:
        for topic in range(topics):
            for partition in range(partitions):
                found = await fetch_sets(client, f"topic-{topic}", partition, 0)
                assert bytes(found.data).endswith(b"%d\0" % partition)
        assert broker.descriptors < 1024

    async def again(broker: Limited) -> None:
        async with Client(broker.bootstrap, request_timeout_ms=120_000) as client:
            await check(broker, client)

    with limited(tmp_path, 1024, "log.retention.ms=-1") as broker:
        asyncio.run(fill(broker))
        assert broker.health()["ready"]
        assert broker.metric("magicbyte_open_files") <= 512
        assert broker.metric("magicbyte_out_of_descriptors_total") == 0
        broker.stop(600)
    assert len(list((tmp_path / "logs").glob("topic-*"))) == topics * partitions
    with limited(tmp_path, 1024, "log.retention.ms=-1") as broker:
        asyncio.run(again(broker))
        broker.stop(600)
    assert "offline" not in (tmp_path / "errors").read_text()


async def test_produce_and_fetch_of_an_open_segment_open_and_close_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        await broker.topics.create("topic")
        data = made(records(5), Format.V2)
        assert (await produce(peer, "topic", data, Format.V2)).error_code == 0
        assert (await fetch(peer, 11, asking("topic", 0))).records
        called: list[str] = []
        with monkeypatch.context() as patch:
            for name in ("open", "close", "dup"):
                patch.setattr(os, name, lambda *_arguments, _name=name: called.append(_name))
            for _ in range(20):
                assert (await produce(peer, "topic", data, Format.V2)).error_code == 0
                assert (await fetch(peer, 11, asking("topic", 0))).records
        assert called == []
        peer.close()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The process's limits, soft and hard, the present ones last."""
    limits = [(256, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, wanted: limits.append(wanted))
    return limits


def test_the_soft_limit_is_raised_to_the_hard_one(limits: list[tuple[int, int]]) -> None:
    assert descriptors.raise_limit() == 4096
    assert limits[1:] == [(4096, 4096)]
    assert descriptors.raise_limit() == 4096  # there is nothing to raise
    assert len(limits) == 2


def test_every_command_raises_the_soft_limit(limits: list[tuple[int, int]], folder: Path) -> None:
    CliRunner().invoke(main, ["inventory", str(folder)])
    assert limits[1:] == [(4096, 4096)]


def test_a_worker_of_spark_raises_the_soft_limit(limits: list[tuple[int, int]]) -> None:
    expect_bytes(0)
    assert limits[1:] == [(4096, 4096)]


def test_a_hard_limit_that_the_system_does_not_give_is_approached(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(256, resource.RLIM_INFINITY)]

    def give(_kind: int, wanted: tuple[int, int]) -> None:
        if wanted[0] == resource.RLIM_INFINITY:
            raise ValueError("current limit exceeds maximum limit")
        limits.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", give)
    assert descriptors.raise_limit() == 10_240


@pytest.mark.parametrize("limit", [64, 256, 1024, 20_000, 1 << 20])
def test_logs_and_pages_have_a_share_of_the_descriptors(limit: int) -> None:
    assert limit // 2 < descriptors.for_connections(limit) < limit
    assert limit - descriptors.for_connections(limit) <= 4096 + 64
    assert limit - descriptors.for_connections(limit) - descriptors.for_pages(limit) >= min(limit // 4, 4096)


async def test_pages_take_their_share_of_the_descriptors_and_no_more(
    limits: list[tuple[int, int]], folder: Path
) -> None:
    limits[0] = (256, 256)
    async with Running(folder, {"http.address": "127.0.0.1:0"}) as broker:
        assert broker._pages is not None
        assert broker._pages._most == 256 // 16
