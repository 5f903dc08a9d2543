"""What counting costs a broker, and what a scrape does.

- pairs, sets of 10 kB, of 100 kB: a broker in a process of its own on one core, with and without counting, alternating:
  the counters are replaced by ones that do nothing, here, as there is no such setting. (Two processes differ by 2 % of
  themselves, from start to start.) Clients on some connections at once send sets of 100 or 1,000 records of 100 bytes
  and fetch such, some hundred requests a turn; what is first in a pair is second in the next. `share`: of the broker's
  CPU (its whole process, by the system's clock for it) what is saved without counting, the median of all pairs, its
  quartiles, and the bounds of the median (95 %, by order statistics).
- requests: seconds of CPU of `magicbyte serve` (its own clock, all threads) for one Produce or Fetch, over the wire,
  one at a time: of a set of one record, which is the most that counting can weigh, and of a set of 100 records of 100
  bytes, as producers send them that have something to do.
- counting: what it adds to one such request: a broker in this process is given the frames, without sockets, 20 with and
  20 without counting, alternating; the difference of what nine tenths of all took longer than. `share` is that over the
  former. What is counted later, many requests at a time, is added by itself (`sort_us`).
- scrape: CPU of the broker for /metrics with 200 partitions; `share_every_15_s` of a core.

Run: python benchmarks/metrics.py [CASE...]   (written to benchmarks/results/metrics.json; 3 minutes)
"""

import asyncio
import contextlib
import itertools
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import harness
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.client import BrokerNode
from magicbyte.access.client.fetch import FetchOptions, fetch_sets
from magicbyte.access.net.scrape import scrape
from magicbyte.cli.main import main as magicbyte
from magicbyte.engine.protocol import write_request
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.server.apis import fetch
from magicbyte.server.broker.broker import Broker
from magicbyte.server.partitions import appends, conversion, writes
from magicbyte.server.serving import dispatch
from magicbyte.server.serving.metrics import MOST_NEW, UNNAMED, ApiMetrics, Metrics, TopicMetrics
from magicbyte.server.serving.parts import FilePart
from magicbyte.server.serving.request import ClientConnection
from magicbyte.server.settings.config import BrokerConfig

ROUNDS, REQUESTS, SCRAPES = 5, 2000, 20
PARTITIONS = 200
PAIRS, CONNECTIONS, TURN = 150, 4, 40  # requests of each kind on each connection in a turn
TURNS = 800  # of 20 requests, of each kind
TOPIC = "topic"
KEPT = {"retention.ms": "-1"}  # the records have times of 2023


# ---- pairs


def serve(folder: str) -> None:
    """A broker that stops counting at a signal, and resumes at the next."""
    instead = list(replaced())
    real = [(where, name, getattr(where, name)) for where, name, _ in instead]
    kinds = itertools.cycle((instead, real))

    def switch(*_: object) -> None:
        for where, name, does in next(kinds):
            setattr(where, name, does)

    signal.signal(signal.SIGUSR1, switch)
    magicbyte(["serve", "--dir", folder, "--listen", "127.0.0.1:0"])


def replaced() -> Iterator[tuple[Any, str, Callable[..., object]]]:
    """Yield what counting is done by: where it is, its name, and what does nothing in its place."""
    nobody = TopicMetrics()
    for module in (appends, conversion, dispatch, fetch, writes):
        yield module, "now_ns", lambda: 0
    yield appends, "_count", lambda *_: None
    yield fetch, "count", lambda *_: None
    yield dispatch.Dispatcher, "_named", lambda *_: UNNAMED
    yield dispatch.Dispatcher, "_count", lambda *_: None
    yield Metrics, "of", lambda *_: nobody


class Rival(NamedTuple):
    """A broker that runs."""

    bootstrap: str
    pid: int

    def switch(self) -> None:
        """Switch counting on or off."""
        os.kill(self.pid, signal.SIGUSR1)

    def cpu_s(self) -> float:
        """Return what its process has used, by the clock that the system keeps for each."""
        return time.clock_gettime((~self.pid << 3) | 2)


@contextlib.contextmanager
def rival(folder: Path) -> Iterator[Rival]:
    command = harness.pinned([sys.executable, __file__, "--serve", str(folder)])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Rival(re.findall(r"listening on (\S+)", process.stdout.readline())[0], process.pid)
    finally:
        process.terminate()
        process.wait(30)


class Clients:
    """Connections to one broker that are at work at the same time."""

    def __init__(self, clients: Sequence[Client], node: BrokerNode, records: int) -> None:
        self.clients, self.node = clients, node
        rows = [Record(at, 1_700_000_000_000, 0, b"key", b"value" * 20) for at in range(records)]
        self.data = encode_records(rows, Format.V2)

    @classmethod
    async def of(cls, rival: Rival, records: int, stack: contextlib.AsyncExitStack) -> "Clients":
        clients = [await stack.enter_async_context(Client(rival.bootstrap)) for _ in range(CONNECTIONS)]
        await create_topic(clients[0], NewTopic(TOPIC, 1, 1, configs=KEPT))
        return cls(clients, await clients[0].leader(TOPIC, 0), records)

    async def turn(self) -> None:
        await asyncio.gather(*(self._work(each) for each in self.clients))

    async def _work(self, client: Client) -> None:
        part = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=self.data)])]
        for _ in range(TURN):
            request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=part)
            await client.ask(self.node, request, ProduceResponse, versions=range(7, 8))
            await fetch_sets(client, TOPIC, 0, 0, FetchOptions(max_bytes=len(self.data)))


async def compare(broker: Rival, records: int) -> list[list[float]]:
    """Return the CPU of each pair of turns: with counting, and without."""
    async with contextlib.AsyncExitStack() as stack:
        clients = await Clients.of(broker, records, stack)
        for _ in range(10):
            await clients.turn()  # what runs fast is loaded
            broker.switch()
        await asyncio.sleep(3)
        spent: list[list[float]] = []
        for pair in range(PAIRS):
            row = [0.0, 0.0]
            for at in (0, 1) if pair % 2 == 0 else (1, 0):
                before = broker.cpu_s()
                await clients.turn()
                row[at] = broker.cpu_s() - before
                if at == pair % 2:  # after the first of the two
                    broker.switch()
            spent.append(row)
    return spent


def pairs(folder: Path, records: int) -> dict[str, Any]:
    with rival(folder) as broker:
        spent = asyncio.run(compare(broker, records))
    shares = sorted(1 - without / counting for counting, without in spent)
    margin = round(0.98 * math.sqrt(len(shares)))  # ranks around the middle
    middle, requests = len(shares) // 2, 2 * TURN * CONNECTIONS
    return {
        "pairs": len(shares),
        "cpu_us_of_a_request": round(statistics.median(each for each, _ in spent) / requests * 1e6, 1),
        "share": round(statistics.median(shares), 4),
        "share_quartiles": [round(shares[len(shares) // 4], 4), round(shares[3 * len(shares) // 4], 4)],
        "share_median_95": [round(shares[middle - margin], 4), round(shares[middle + margin], 4)],
    }


# ---- parts


async def cpu(http: str) -> float:
    return (await scrape(http)).one("process_cpu_seconds_total") or 0.0


async def cost(http: str, times: int, work: Callable[[], Awaitable[object]]) -> float:
    """Return the broker's CPU for one time of the work: the median of some rounds, without what the looks cost."""
    found = []
    for _ in range(ROUNDS):
        idle = await cpu(http)
        before = await cpu(http)
        for _ in range(times):
            await work()
        found.append((await cpu(http) - before - (before - idle)) / times)
    return statistics.median(found)


async def requests(bootstrap: str, http: str) -> dict[str, float]:
    found = {}
    async with Client(bootstrap) as client:
        for count_ in (1, 100):
            topic = f"sets-of-{count_}"
            rows = [Record(at, 1_700_000_000_000, 0, b"key", b"value" * 20) for at in range(count_)]
            data = encode_records(rows, Format.V2)
            await create_topic(client, NewTopic(topic, 1, 1, configs=KEPT))
            node = await client.leader(topic, 0)
            part = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=data)])]

            async def produce(node: BrokerNode = node, part: list[TopicProduceData] = part) -> None:
                request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=part)
                await client.ask(node, request, ProduceResponse, versions=range(7, 8))

            async def fetch(topic: str = topic, size: int = len(data)) -> None:
                await fetch_sets(client, topic, 0, 0, FetchOptions(max_bytes=size))

            for _ in range(500):
                await produce()
            found[f"produce_{count_}"] = await cost(http, REQUESTS, produce)
            found[f"fetch_{count_}"] = await cost(http, REQUESTS, fetch)
        await create_topic(client, NewTopic("many", PARTITIONS, 1))
        for index in range(PARTITIONS):  # each has a log from its first record on
            one = [TopicProduceData(name="many", partition_data=[PartitionProduceData(index=index, records=data)])]
            await client.ask(node, ProduceRequest(acks=1, timeout_ms=1000, topic_data=one), ProduceResponse)

    async def look() -> None:
        await scrape(http)

    found["scrape"] = await cost(http, SCRAPES, look)
    return found


async def counting(folder: Path) -> dict[str, float]:
    """Return the seconds that counting adds to each kind of request."""
    instead = list(replaced())
    real = [getattr(where, name) for where, name, _ in instead]
    found = {}
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), "log.retention.ms": "-1"}
    broker = Broker(BrokerConfig(settings))
    await broker.start()
    try:
        await broker.topics.create(TOPIC)
        handle = dispatch.Dispatcher(broker, ClientConnection("127.0.0.1", "peer", broker.config.listeners[0]))
        for count in (1, 100):
            for name, frame in frames_of(count):
                spent: list[list[int]] = [[], []]
                for turn in range(TURNS):
                    for (where, attribute, nothing), counts in zip(instead, real, strict=True):
                        setattr(where, attribute, nothing if turn % 2 else counts)
                    spent[turn % 2] += [await timed(handle, frame) for _ in range(20)]
                with_, without = (sorted(each)[len(each) // 10] for each in spent)
                found[f"{name}_{count}"] = (with_ - without) / 1e9
    finally:
        for (where, attribute, _), counts in zip(instead, real, strict=True):
            setattr(where, attribute, counts)
        await broker.stop()
    return found


def frames_of(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield a Produce request of a set of so many records, and a Fetch request of such a set."""
    rows = [Record(at, 1_700_000_000_000, 0, b"key", b"value" * 20) for at in range(count)]
    data = encode_records(rows, Format.V2)
    parts = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=data)])]
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=len(data))
    topics = [FetchTopic(topic=TOPIC, partitions=[asked])]
    for name, request, version in (
        ("produce", ProduceRequest(acks=1, timeout_ms=1000, topic_data=parts), 7),
        ("fetch", FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), 11),
    ):
        yield name, bytes(write_request(request, version, correlation_id=1, client_id="client"))[4:]


async def timed(handle: dispatch.Dispatcher, frame: bytes) -> int:
    """Have a frame handled; return how many ns that took."""
    own = memoryview(bytearray(frame))  # what the server gives is its own, too
    started = time.perf_counter_ns()
    answer = await handle(own)
    spent = time.perf_counter_ns() - started
    for piece in answer or ():
        if isinstance(piece, FilePart):
            piece.close()
    return spent


def sorting() -> float:
    """Return the seconds that it takes to count a request that was noted."""
    source, spent = random.Random(7), []
    for _ in range(50):
        counters = ApiMetrics()
        counters.versions.extend([7] * MOST_NEW)
        counters.totals.extend(source.randrange(50_000, 500_000) for _ in range(MOST_NEW))
        for noted in (counters.waits, counters.codes):
            noted.extend([0] * MOST_NEW)
        started = time.perf_counter()
        counters.sort()
        spent.append((time.perf_counter() - started) / MOST_NEW)
    return statistics.median(spent)


def parts(folder: Path) -> dict[str, Any]:
    with harness.serving() as (bootstrap, http):
        found = asyncio.run(requests(bootstrap, http))
    added, sorted_ = asyncio.run(counting(folder)), sorting()
    return {
        "cpu_us": {name: round(value * 1e6, 2) for name, value in found.items()},
        "counting_us": {name: round(value * 1e6, 2) for name, value in added.items()},
        "sort_us": round(sorted_ * 1e6, 2),
        "share": {name: round((value + sorted_) / found[name], 4) for name, value in added.items()},
        "share_every_15_s": round(found["scrape"] / 15, 5),
    }


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "pairs, sets of 10 kB": lambda folder: pairs(folder, 100),
    "pairs, sets of 100 kB": lambda folder: pairs(folder, 1000),
    "counting": parts,
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        harness.run_cases("metrics", __doc__, CASES)
