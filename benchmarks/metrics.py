"""What counting costs a broker, and what a scrape does.

- requests: seconds of CPU of `magicbyte serve` (its own clock, all threads) for one Produce or Fetch, over the wire,
  one at a time: of a set of one record, which is the most that counting can weigh, and of a set of 100 records of 100
  bytes, as producers send them that have something to do.
- counting: all that is done for the numbers of one such request, alone, in this process: the client's name, the counts
  of its kind and times, of its topic and its formats. `share` is that over the former.
- scrape: CPU of the broker for /metrics with 200 partitions; `share_every_15_s` of a core.

Run: python benchmarks/metrics.py   (written to benchmarks/results/metrics.json)
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import harness
from magicbyte.broker.metrics import Conversion, Metrics, count, now_ns
from magicbyte.client import Client
from magicbyte.client.admin import NewTopic, create_topic
from magicbyte.client.client import Node
from magicbyte.client.fetch import FetchOptions, fetch_sets
from magicbyte.net.scrape import scrape
from magicbyte.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from magicbyte.records.columns import Record
from magicbyte.records.encode import Format, encode_records

ROUNDS, REQUESTS, SCRAPES = 5, 2000, 20
PARTITIONS = 200


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
            await create_topic(client, NewTopic(topic, 1, 1))
            node = await client.leader(topic, 0)
            part = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=data)])]

            async def produce(node: Node = node, part: list[TopicProduceData] = part) -> None:
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


def counting() -> float:
    """Return the seconds that the numbers of one request take."""
    metrics = Metrics()
    name = metrics.client("client", "library", "1.2.3")
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(100_000):
            begin = now_ns()
            client = name if name == ("client", "library", "1.2.3") else metrics.client("client", "library", "1.2.3")
            topic = metrics.of("topic")
            topic.produce_requests += 1
            count(topic.produced, Conversion(Format.V2, Format.V2, 7, client), 100, 1, 1000, 1)
            metrics.answered(0, 7, now_ns() - begin + 50_000, 0)
        found.append((time.perf_counter() - started) / 100_000)
    return statistics.median(found)


def main() -> None:
    with harness.serving() as (bootstrap, http):
        found = asyncio.run(requests(bootstrap, http))
    one = counting()
    shares = {f"share_of_{name}": one / found[name] for name in found if name != "scrape"}
    seconds = {name: round(value * 1e6, 2) for name, value in found.items()}
    case = {
        "cpu_us": seconds,
        "counting_us": round(one * 1e6, 2),
        **{name: round(value, 4) for name, value in shares.items()},
        "share_every_15_s": round(found["scrape"] / 15, 5),
    }
    harness.save("metrics", __doc__, {"counting": case})


if __name__ == "__main__":
    main()
