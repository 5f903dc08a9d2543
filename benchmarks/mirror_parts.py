"""What the mirror's process spends on a set that stays closed, part by part, without brokers.

Each figure is the least of some rounds, as CPU time of this process alone: what else runs on the machine makes it more,
never less. The sets are the first 4 MiB of data.py's, lz4 of 1000 B, in each of 8 partitions: of about 14 kB.

- headers: making the headers of all of them, in machine code; beside it verifying and computing their checksums.
- python: all that happens to a set between the response that brought it and the answer to the request that took it,
  but for the event loop and the system: requests are written and canned answers read.
- requests: a request of 8 sets, short ones, to a process that answers at once what was prepared, five under way: event
  loop, small calls of the system, writing and reading; per request.
- system: a loop that receives a gigabyte from one process and sends it to another, on the loopback interface, 1 MiB at
  a time: the least that any copy costs.

Run: python benchmarks/mirror_parts.py [CASE...]   (written to benchmarks/results/mirror_parts.json; 10 s each)
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import data
import harness
from magicbyte.access.client import Client
from magicbyte.access.client.client import BrokerNode
from magicbyte.access.client.connection import Connection
from magicbyte.access.client.fetch import ClosedSets
from magicbyte.access.client.produce import Addressed
from magicbyte.access.client.produce_frames import Produced, SetsRequest, SetsResponse
from magicbyte.access.client.versions import BrokerVersions
from magicbyte.access.net.stream import Stream
from magicbyte.engine.compiled.kernel import WORTH_LOADING, expect
from magicbyte.engine.protocol import APIS, read_response, write_request, write_response
from magicbyte.engine.protocol.message import COPIED
from magicbyte.engine.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.forward import NO_LIMIT, forward_batches
from magicbyte.engine.records.forward_kernels import HEADER
from magicbyte.engine.records.scan import scan
from magicbyte.tools.mirror import outbox
from magicbyte.tools.mirror.flow import Flow
from magicbyte.tools.mirror.rewrite import ProducerIdentity, Storage, closed_batch

PARTITIONS = 8
ROUNDS = 40
VERSION = 9  # of Produce
MAGIC_2 = Storage(Format.V2)
OURS = ProducerIdentity(4000, 0, 0)
REQUESTS = 2000
RELAYED = 1 << 30
PIECE = 1 << 20

Figures = dict[str, Any]


def sets() -> memoryview:
    return memoryview(data.prefix(data.log(1000, 2, "lz4"), 4 << 20))


def least(work: Callable[[], Any]) -> float:
    """Return the least CPU seconds of all rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def headers(_: Path) -> Figures:
    expect(WORTH_LOADING)
    table = scan(sets())
    batches = [batch for _, batch in entries(table.buffer) if isinstance(batch, RecordBatch)]

    def at_once() -> None:
        row = 0
        while row < len(table):
            row += len(forward_batches(table, row, 0, NO_LIMIT, 0x1F, OURS).rows)

    def one_by_one() -> None:
        for each in batches:
            closed_batch(each, OURS)

    return {
        "sets": len(table),
        "at_once_us_per_set": round(least(at_once) / len(table) * 1e6, 2),
        "one_by_one_us_per_set": round(least(one_by_one) / len(table) * 1e6, 2),
    }


def python(_: Path) -> Figures:
    expect(WORTH_LOADING)
    raw = sets()
    frame = memoryview(bytes(write_response(answer(), VERSION, correlation_id=1)))[4:]

    async def send(_client: Any, _node: Any, row: list[outbox.Sending], _kind: range) -> list[Produced]:
        write_request(SetsRequest(-1, 30_000, row), VERSION, correlation_id=1, client_id="magicbyte").buffers()
        read_response(frame, APIS[0], VERSION, SetsResponse)
        return [Produced(each.first, -1, -1) for each in row]

    async def copy() -> int:
        arrived = 0

        def hear(_each: outbox.Sending, _offset: int) -> None:
            nonlocal arrived
            arrived += 1

        async with asyncio.TaskGroup() as tasks:
            box = outbox.Outbox(Client("localhost:1"), BrokerNode(0, "localhost", 1), tasks)

            async def one(partition: int) -> None:
                flow = Flow("bench", partition, MAGIC_2, OURS, hear, asyncio.Event())
                found = ClosedSets(raw, 0, NO_LIMIT, NO_LIMIT, 0, scan(raw))
                await flow.send(found, 0, box, at_boundary=True)
                await flow.arrive()

            for partition in range(PARTITIONS):
                tasks.create_task(one(partition))
        return arrived

    before, outbox.send_together = outbox.send_together, send
    try:
        count = asyncio.run(copy())
        return {"sets": count, "us_per_set": round(least(lambda: asyncio.run(copy())) / count * 1e6, 2)}
    finally:
        outbox.send_together = before


def requests(_: Path) -> Figures:
    head, body = bytes(HEADER), bytes(COPIED)
    row = [Addressed("bench", each, [head, body]) for each in range(PARTITIONS)]
    found = [asyncio.run(asked(row)) for _ in range(5)]
    return {"us_per_request": round(min(found) / REQUESTS * 1e6, 1)}


async def asked(row: list[Addressed]) -> float:
    """Return the CPU seconds of REQUESTS requests."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pid = child(answering, listener.getsockname())
        taken, _ = listener.accept()
    connection = Connection(Stream(taken), name="benchmark", client_id="magicbyte")
    connection.versions = BrokerVersions({0: range(VERSION + 1)})
    connection.begin()

    async def ask() -> None:
        for _ in range(REQUESTS // 5):
            await connection.send(SetsRequest(-1, 30_000, row), SetsResponse, versions=range(3, 13))

    began = time.process_time()
    await asyncio.gather(*(ask() for _ in range(5)))
    spent = time.process_time() - began
    await connection.aclose()
    os.waitpid(pid, 0)
    return spent


def answering(connected: socket.socket) -> None:
    """Answer each request, whatever is in it."""
    frames = [bytes(write_response(answer(), VERSION, correlation_id=each + 1)) for each in range(REQUESTS)]
    for frame in frames:
        size = int.from_bytes(connected.recv(4, socket.MSG_WAITALL), "big")
        connected.recv(size, socket.MSG_WAITALL)
        connected.sendall(frame)
    connected.recv(1)


def answer() -> ProduceResponse:
    told = [PartitionProduceResponse(index=each, base_offset=1 << 40) for each in range(PARTITIONS)]
    return ProduceResponse(responses=[TopicProduceResponse(name="bench", partition_responses=told)])


def system(_: Path) -> Figures:
    figures = [relayed() for _ in range(3)]
    return {"cpu_seconds_per_GB": round(min(figures) / RELAYED * 1e9, 3)}


def relayed() -> float:
    """Return the CPU seconds of receiving and sending RELAYED bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        children = [child(work, address) for work in (source, sink)]
        given, taken = (listener.accept()[0] for _ in children)
        if given.recv(1) == b"t":
            given, taken = taken, given
            given.recv(1)
        else:
            taken.recv(1)
        room, left = memoryview(bytearray(PIECE)), RELAYED
        began = time.process_time()
        while left:
            count = given.recv_into(room[: min(left, PIECE)])
            taken.sendall(room[:count])
            left -= count
        spent = time.process_time() - began
        given.close()
        taken.close()
        for pid in children:
            os.waitpid(pid, 0)
        return spent


def child(work: Callable[[socket.socket], None], address: Any) -> int:
    pid = os.fork()
    if not pid:
        with socket.create_connection(address) as connected:
            work(connected)
        os._exit(0)
    return pid


def source(connected: socket.socket) -> None:
    connected.sendall(b"g")
    piece = bytes(PIECE)
    for _ in range(RELAYED // PIECE):
        connected.sendall(piece)


def sink(connected: socket.socket) -> None:
    connected.sendall(b"t")
    room = bytearray(PIECE)
    while connected.recv_into(room):
        pass


CASES: dict[str, Callable[[Path], Figures]] = {
    "headers": headers,
    "python": python,
    "requests": requests,
    "system": system,
}


if __name__ == "__main__":
    harness.run_cases("mirror_parts", __doc__, CASES)
