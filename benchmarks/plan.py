"""`magicbyte plan` put to the test: what it predicts of a step, and what the step then costs.

Each case is a load: a paced producer, whose sets come in one format or in two, alternating, and consumers, over the
wire, on `magicbyte serve` in a process of its own, with a topic in the old format. When the broker has loaded its
compiled loops the plan is made as the command makes it, by the numbers of some seconds (--window) and a rehearsal in a
further process. Then the broker is watched for as long without the step (`control`); the step is taken
(message.format.version by AlterConfigs), and the same load continues.

Predicted CPU: what the plan says the broker uses (its whole process, by its own clock, per second), and by how much the
step changes that. What is measured is what the same rate of records takes; a case is repeated, twice at most, if the
rate was not held (`records_per_s`: during the plan, in the control, after the step), which is no load to compare,
but a machine that is too busy for it. Predicted memory: the largest that the process had when the plan was begun, and
the growth that was rehearsed. `error` is predicted over measured, less 1.
`memory_growth_mb`: rehearsed; measured from the end of the control on; and, for comparison, from the plan to the end of
the control, where nothing changed.

- 10,000 segments: `magicbyte plan --dir` of 20 partitions with 100 gzip batches of 1 kB records in each segment, of all
  three formats in rotation. Seconds of the whole command, the median of three: of files in the system's cache, and of
  such that the system was asked to drop from it just before (posix_fadvise).

Run: python benchmarks/plan.py [CASE...]   (written to benchmarks/results/plan.json; a case takes some 35 seconds)
"""

import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import harness
from magicbyte.access.client import Client
from magicbyte.access.client.admin import ConfigResource, NewTopic, alter_configs, create_topic
from magicbyte.access.client.fetch import FetchOptions, fetch_sets
from magicbyte.access.net.scrape import Scrape, scrape
from magicbyte.engine.codecs import Codec
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.tools.migration import planner

WINDOW_S = 6.0
STEADY = 1.1  # the largest of rates that are taken for the same, over the smallest
ATTEMPTS = 3
MOST_S = 60.0  # to wait for compiled loops
TOPIC = "load"
KEPT = {"retention.ms": "-1"}  # the records have times of 2023
SEGMENTS = "10,000 segments"
PRODUCE_VERSION = {Format.V0: 1, Format.V1: 2, Format.V2: 7}


class Case(NamedTuple):
    """A load: so many sets a second of so many records of so many bytes; consumers by their versions of Fetch."""

    stored: Format
    target: Format
    codec: Codec
    size: int
    records: int
    sets_per_s: float
    sent: tuple[Format, ...]
    consumers: tuple[int, ...]


V0, V1, V2 = Format.V0, Format.V1, Format.V2
CASES = {
    "0 to 1, plain 100 B, new producer, 2 old consumers": Case(V0, V1, Codec.NONE, 100, 100, 40, (V1,), (1, 1)),
    "0 to 1, gzip 1 kB, new producer, old consumer": Case(V0, V1, Codec.GZIP, 1000, 50, 30, (V1,), (1,)),
    "0 to 1, gzip 1 kB, new producer, new consumer": Case(V0, V1, Codec.GZIP, 1000, 50, 30, (V1,), (3,)),
    "0 to 1, gzip 10 kB, sets of 2 MB, 4 old consumers": Case(V0, V1, Codec.GZIP, 10_000, 200, 2, (V1,), (1, 1, 1, 1)),
    "0 to 1, lz4 100 B, old producer, old consumer": Case(V0, V1, Codec.LZ4, 100, 200, 30, (V0,), (1,)),
    "1 to 2, snappy 100 B, new producer, 2 old consumers": Case(V1, V2, Codec.SNAPPY, 100, 200, 30, (V2,), (3, 3)),
    "1 to 2, snappy 1 kB, old and new clients": Case(V1, V2, Codec.SNAPPY, 1000, 50, 30, (V1, V2), (3, 11)),
    "1 to 2, plain 10 kB, old producer, old consumer": Case(V1, V2, Codec.NONE, 10_000, 20, 60, (V1,), (3,)),
    "1 to 2, lz4 1 kB, new producer, new consumers": Case(V1, V2, Codec.LZ4, 1000, 100, 30, (V2,), (11, 11)),
    "0 to 2, plain 1 kB, new producer, 3 old consumers": Case(V0, V2, Codec.NONE, 1000, 100, 30, (V2,), (1, 1, 1)),
}


def sets_of(case: Case) -> list[tuple[Format, bytes]]:
    source = random.Random(7)
    words = [bytes(source.choices(b"abcdefghijklmnop ", k=6)) for _ in range(500)]
    found = []
    for at in range(40):
        rows = [
            Record(
                each, 1_700_000_000_000 + at, 0, b"key %d" % each, b" ".join(source.choices(words, k=case.size // 7))
            )
            for each in range(case.records)
        ]
        form = case.sent[at % len(case.sent)]
        found.append((form, encode_records(rows, form, case.codec)))
    return found


async def produce(case: Case, server: harness.Serving) -> None:
    """Send sets at the pace of the case, until cancelled."""
    async with Client(server.bootstrap, client_id="producer") as client:
        node, sets = await client.leader(TOPIC, 0), sets_of(case)
        due, at = time.monotonic(), 0
        while True:
            form, data = sets[at % len(sets)]
            version = PRODUCE_VERSION[form]
            part = [PartitionProduceData(index=0, records=data)]
            request = ProduceRequest(
                acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=part)]
            )
            response = await client.ask(node, request, ProduceResponse, versions=range(version, version + 1))
            assert not response.responses[0].partition_responses[0].error_code
            at, due = at + 1, due + 1 / case.sets_per_s
            await asyncio.sleep(max(0, due - time.monotonic()))


async def consume(version: int, name: str, server: harness.Serving) -> None:
    """Read all that comes, until cancelled."""
    options = FetchOptions(versions=range(version, version + 1))
    async with Client(server.bootstrap, client_id=name) as client:
        offset = 0
        while True:
            offset = (await fetch_sets(client, TOPIC, 0, offset, options)).next_offset


def cpu(found: Scrape) -> float:
    return found.one("process_cpu_seconds_total") or 0.0


def peak(found: Scrape) -> float:
    return found.one("magicbyte_process_peak_resident_bytes") or 0.0


async def kernels_loaded(server: harness.Serving) -> None:
    """Wait until the broker has loaded its compiled loops."""
    async with asyncio.timeout(MOST_S):
        while not (await scrape(server.http)).one("magicbyte_kernels_loaded"):
            await asyncio.sleep(0.25)
    await asyncio.sleep(1)


async def used(server: harness.Serving, records_per_s: float) -> tuple[float, float, float]:
    """Return CPU by second at such a rate, the largest memory, and the rate that there was, in a window."""
    before = await scrape(server.http)
    await asyncio.sleep(WINDOW_S)
    after = await scrape(server.http)
    records, seconds = count_in(after) - count_in(before), after.at_s - before.at_s
    return (cpu(after) - cpu(before)) / records * records_per_s, peak(after), records / seconds


def count_in(found: Scrape) -> float:
    return found.one("kafka_server_brokertopicmetrics_messagesin_total") or 0.0


async def measure(case: Case) -> dict[str, Any]:
    with harness.serving() as server:
        async with Client(server.bootstrap) as client:
            await create_topic(
                client, NewTopic(TOPIC, 1, 1, configs=KEPT | {"message.format.version": case.stored.value})
            )
            load = [asyncio.create_task(produce(case, server))]
            load += [
                asyncio.create_task(consume(version, f"consumer-{at}", server))
                for at, version in enumerate(case.consumers)
            ]
            try:
                await kernels_loaded(server)
                high = peak(await scrape(server.http))
                started = time.monotonic()
                usage = await planner.look_at_metrics(server.http, WINDOW_S)
                facts, _ = await planner.look_at_cluster(client, [TOPIC], 4)
                found = await planner.plan(facts, usage, now_ms=0, target=case.target)
                spent = time.monotonic() - started
                rate = sum(each.records_per_s for each in usage.uses[TOPIC] if not each.is_consumer)
                control, unchanged, control_rate = await used(server, rate)
                changes = {"message.format.version": case.target.value}
                await alter_configs(client, ConfigResource.TOPIC, TOPIC, changes)
                await asyncio.sleep(1)
                after, highest, after_rate = await used(server, rate)
            finally:
                for each in load:
                    each.cancel()
                await asyncio.gather(*load, return_exceptions=True)
    (topic,) = found.topics
    assert topic.now is not None
    assert topic.after is not None
    assert found.cpu_s is not None
    assert not found.notes, found.notes
    predicted, grown = found.cpu_s + topic.after.cpu_s - topic.now.cpu_s, topic.after.memory_bytes or 0
    memory = high + grown
    return {
        "records_per_s": [round(each) for each in (rate, control_rate, after_rate)],
        "cpu_before": round(found.cpu_s, 4),
        "cpu_control": round(control, 4),
        "cpu_predicted": round(predicted, 4),
        "cpu_measured": round(after, 4),
        "cpu_error": round(predicted / after - 1, 3),
        "cpu_rehearsed": [round(topic.now.cpu_s, 4), round(topic.after.cpu_s, 4)],
        "memory_before_mb": round(high / 1e6, 1),
        "memory_predicted_mb": round(memory / 1e6, 1),
        "memory_measured_mb": round(highest / 1e6, 1),
        "memory_error": round(memory / highest - 1, 3),
        "memory_growth_mb": {
            "predicted": round(grown / 1e6, 1),
            "measured": round((highest - unchanged) / 1e6, 1),
            "control": round((unchanged - high) / 1e6, 1),
        },
        "step": topic.stage.step.value,
        "converted_per_s_predicted": round(topic.after.converted_records),
        "plan_s": round(spent, 1),
    }


def segments(folder: Path) -> dict[str, Any]:
    """Return the time of a plan of 10,000 segments: files in the system's cache, and, where it can be had, not."""
    rows = [Record(at, 1_700_000_000_000 + at, 0, b"key", b"value" * 200) for at in range(10)]
    data = [encode_records(rows, form, Codec.GZIP) * 100 for form in (V0, V1, V2)]
    files = []
    for partition in range(20):
        path = folder / f"topic-{partition}"
        path.mkdir()
        for at in range(500):
            files.append(path / f"{at * 1000:020}.log")
            files[-1].write_bytes(data[at % 3])
    os.sync()
    cold, warm = [], []
    for _ in range(3):
        for times, forget in ((cold, True), (warm, False)):
            for each in files if forget else ():
                with each.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "magicbyte", "plan", "--dir", str(folder)], check=True, capture_output=True
            )
            times.append(time.perf_counter() - started)
    return {
        "seconds": round(statistics.median(warm), 2),
        "seconds_not_cached": round(statistics.median(cold), 2),
        "bytes": sum(map(len, data)) * 10_000 // 3,
    }


def measured(case: Case, _: Path) -> dict[str, Any]:
    """Measure a case; exit where the load could not be held."""
    for _attempt in range(ATTEMPTS):
        found = asyncio.run(measure(case))
        rates = found["records_per_s"]
        if max(rates) <= STEADY * min(rates):
            return found
    sys.exit(f"the machine is too busy: of {case} {rates} records per second were sent")


if __name__ == "__main__":
    harness.run_cases(
        "plan", __doc__, {SEGMENTS: segments} | {name: partial(measured, case) for name, case in CASES.items()}
    )
