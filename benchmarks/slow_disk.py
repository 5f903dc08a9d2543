"""What a slow disk does to connections that do not use it: latencies beside a partition whose files are slow.

A broker in a process of its own, whose file system takes 20 ms for each operation (open, read, write, sync, rename ...)
on the files of one topic. Four connections write single records to that topic, read it from its beginning and convert
it, all the time. Meanwhile one connection writes single records to another topic, fetches them and asks for metadata,
one request at a time. The same is measured without clients of the slow topic, before and after.

The client is a plain socket in this process; times are from the request's first byte to the answer's last.

Run: python benchmarks/slow_disk.py   (written to benchmarks/results/slow_disk.json; half a minute)
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import harness
from broker import Peer, Server
from magicbyte.engine.log.files.filesystem import LocalFiles, LocalWritableFile
from magicbyte.engine.ports import Buffer
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.server.broker.broker import Broker
from magicbyte.server.settings.config import BrokerConfig

DELAY_S = 0.02
ROUNDS = 1000
SLOW, QUICK = "slow", "quick"


class SlowFile(LocalWritableFile):
    """A file of which each operation takes its time, if it is the slow topic's."""

    def __init__(self, path: str, *, create: bool) -> None:
        wait(path)
        super().__init__(path, create=create)

    def read_at(self, position: int, length: int) -> bytes:
        wait(self.path)
        return super().read_at(position, length)

    def write_at(self, position: int, *pieces: Buffer) -> None:
        wait(self.path)
        super().write_at(position, *pieces)

    def truncate(self, size: int) -> None:
        wait(self.path)
        super().truncate(size)

    def sync(self) -> None:
        wait(self.path)
        super().sync()


class SlowFiles(LocalFiles):
    """This machine's files, those of one topic slow."""

    def create(self, path: str) -> LocalWritableFile:
        return SlowFile(path, create=True)

    def edit(self, path: str) -> LocalWritableFile:
        return SlowFile(path, create=False)

    def rename(self, source: str, target: str) -> None:
        wait(source)
        super().rename(source, target)

    def delete(self, path: str) -> None:
        wait(path)
        super().delete(path)

    def make_directory(self, path: str) -> None:
        wait(path)
        super().make_directory(path)

    def sync_directory(self, path: str) -> None:
        wait(path)
        super().sync_directory(path)


def wait(path: str) -> None:
    if f"/{SLOW}-" in path:
        time.sleep(DELAY_S)


async def serve(folder: str) -> None:
    """Run the broker until its input ends."""
    settings = {"log.dirs": folder, "listeners": "PLAINTEXT://127.0.0.1:0", "log.segment.bytes": "100000"}
    broker = Broker(BrokerConfig(settings), files=SlowFiles())
    await broker.start()
    print(next(iter(broker.ports.values())), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await broker.stop()


@contextmanager
def serving() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="magicbyte-benchmark-") as folder:
        process = subprocess.Popen([sys.executable, __file__, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield Server(f"127.0.0.1:{int(process.stdout.readline())}", process.pid)
        finally:
            process.stdin.close()
            process.wait(30)


class Asking(Peer):
    """A connection that writes, reads, and asks for topics."""

    def produce(self, topic: str) -> int:
        part = PartitionProduceData(index=0, records=ONE)
        data = [TopicProduceData(name=topic, partition_data=[part])]
        answer = self.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 7, ProduceResponse)
        found = answer.responses[0].partition_responses[0]
        assert found.error_code == 0
        return found.base_offset

    def fetch(self, topic: str, offset: int, version: int = 11) -> None:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50_000)
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[part])])
        found = self.ask(request, version, FetchResponse).responses[0].partitions[0]
        assert found.error_code == 0
        assert found.records

    def metadata(self, topic: str) -> None:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        assert self.ask(asked, 4, MetadataResponse).topics[0].error_code == 0


ONE = bytes(encode_records([Record(0, 1_700_000_000_000, 0, b"key", b"v" * 100)], Format.V2))


def measure(server: Server) -> dict[str, dict[str, float]]:
    """Return the latencies of one connection at the quick topic."""
    peer = Asking(server)
    times: dict[str, list[float]] = {"produce": [], "fetch": [], "metadata": []}
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        offset = peer.produce(QUICK)
        times["produce"].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        peer.fetch(QUICK, offset)
        times["fetch"].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        peer.metadata(QUICK)
        times["metadata"].append(time.perf_counter() - begin)
    return {
        name: {
            "median_us": round(statistics.median(each) * 1e6),
            "p99_us": round(statistics.quantiles(each, n=100)[98] * 1e6),
            "largest_us": round(max(each) * 1e6),
        }
        for name, each in times.items()
    }


@contextmanager
def disturbing(server: Server) -> Iterator[list[int]]:
    """Have connections at the slow topic inside the block; give how many requests each of them made."""
    ended, counts = threading.Event(), [0, 0, 0, 0]

    def work(number: int) -> None:
        peer = Asking(server)
        while not ended.is_set():
            if number < 2:
                peer.produce(SLOW)
            else:
                peer.fetch(SLOW, 0, version=11 if number == 2 else 1)
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(counts))]
    for each in threads:
        each.start()
    try:
        yield counts
    finally:
        ended.set()
        for each in threads:
            each.join()


def main() -> None:
    found: dict[str, Any] = {}
    with serving() as server:
        peer = Asking(server)
        for topic in (SLOW, QUICK):
            peer.metadata(topic)
            for _ in range(300):
                peer.produce(topic)
        found["alone, before"] = measure(server)
        with disturbing(server) as counts:
            found["beside a slow partition"] = measure(server)
        found["beside a slow partition"]["requests_there"] = {"count": sum(counts)}
        found["alone, after"] = measure(server)
    harness.save(
        "slow_disk", __doc__, {name: each | {"load_average": os.getloadavg()[0]} for name, each in found.items()}
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(serve(sys.argv[1]))
    else:
        main()
