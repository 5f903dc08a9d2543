"""Conversions of a fetch of 100 MB, in a broker of its own: how much memory they take beside what was there before."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from builders import run
from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.codecs import Codec
from magicbyte.engine.protocol import APIS, read_response, write_request
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.scan import scan
from server.broker.builders import made
from server.broker.serving import Peer

FETCHED = 100_000_000
MOST_EXTRA = 32 << 20
BATCH_RECORDS = 900  # of 1 kB: a set of nearly 1 MB, the largest that brokers take by default
TIME = 1_700_000_000_000

if not Path("/proc/self/clear_refs").exists():  # pragma: no cover
    pytest.skip("needs Linux: peaks of memory are read from /proc", allow_module_level=True)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[int, int]]:
    """Run a broker; give its port and process."""
    settings = ["num.partitions=40", "fetch.max.bytes=200000000", "log.segment.bytes=200000000"]
    command = [sys.executable, "-m", "magicbyte", "serve", "--dir", str(folder), "--listen", "127.0.0.1:0", *settings]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield int(line.split(" (")[0].rpartition(":")[2]), process.pid
    finally:
        process.terminate()
        process.wait(120)
        process.stdout.close()


def memory(pid: int, name: str) -> int:
    """Return a figure of a process's memory in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def values(count: int) -> list[Record]:
    chance = random.Random(7)
    half = [chance.randbytes(500) for _ in range(50)]
    return [Record(at, TIME + at, 0, b"%d" % at, half[at % 50] + half[at * 7 % 49]) for at in range(count)]


async def fill(peer: Peer, data: bytes, partitions: int) -> None:
    """Write sets to the partitions, in turn, until there are 100 MB."""
    for at in range(-(-FETCHED // len(data))):
        part = PartitionProduceData(index=at % partitions, records=data)
        request = ProduceRequest(acks=1, timeout_ms=9, topic_data=[TopicProduceData(name="t", partition_data=[part])])
        answer = await peer.ask(request, 7, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0


def asking(partitions: int) -> FetchRequest:
    parts = [FetchPartition(partition=at, partition_max_bytes=FETCHED // partitions) for at in range(partitions)]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=FETCHED, topics=[FetchTopic(topic="t", partitions=parts)])


async def received(peer: Peer, request: FetchRequest, version: int) -> bytes:
    """Send a fetch and return all that comes."""
    await peer.stream.write([bytes(write_request(request, version, correlation_id=1, client_id="test"))])
    size = int.from_bytes(await peer._exactly(4), "big")
    buffer = bytearray(size)
    have = 0
    while have < size:
        count = await peer.stream.read_into(memoryview(buffer)[have:])
        assert count
        have += count
    return bytes(buffer)


async def baseline(peer: Peer, pid: int) -> int:
    """Return the broker's memory when small fetches add nothing to it, and the compiled loops are loaded."""
    sizes: list[int] = []
    small = asking(1)
    small.topics[0].partitions[0].partition_max_bytes = 1 << 20
    while len(sizes) < 20 or sizes[-1] > sizes[-10] or "llvmlite" not in Path(f"/proc/{pid}/maps").read_text():
        for version in (1, 3):
            await received(peer, small, version)
        sizes.append(memory(pid, "VmRSS"))
    return sizes[-1]


def last_offsets(answer: bytes, version: int, target: Format) -> list[int]:
    """Check that each partition's sets are whole entries of a format; return the last offset of each."""
    _, response = read_response(answer, APIS[1], version)
    assert isinstance(response, FetchResponse)
    found = []
    for part in response.responses[0].partitions:
        assert part.error_code == 0
        assert isinstance(part.records, memoryview)
        table = scan(part.records)
        assert set(np.asarray(table.magic).tolist()) == {target.magic}
        found.append(int(table.offset[-1]))
        first = part.records[: int(table.position[1])]
        (columns, *_) = decode(first)
        assert next(iter(columns)).timestamp == (TIME if target is Format.V1 else -1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("partitions", [1, 40])
def test_a_fetch_of_100_mb_is_converted_in_32_mib(partitions: int, codec: Codec, folder: Path) -> None:
    data = made(values(BATCH_RECORDS), Format.V2, codec)
    subprocess.run([sys.executable, "-m", "magicbyte", "warm"], stdout=subprocess.DEVNULL, check=True)

    async def work() -> None:
        with serving(folder) as (port, pid):
            peer = Peer(await SocketStream.connect("127.0.0.1", port))
            await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 4, MetadataResponse)
            await fill(peer, data, partitions)
            before = await baseline(peer, pid)
            for version, target in ((1, Format.V0), (3, Format.V1)):
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak
                answer = await received(peer, asking(partitions), version)
                extra = memory(pid, "VmHWM") - before
                assert len(answer) > FETCHED * 9 // 10
                assert extra < MOST_EXTRA
                assert min(last_offsets(answer, version, target)) >= 2 * BATCH_RECORDS - 1
            peer.close()

    run(work(), seconds=120)
