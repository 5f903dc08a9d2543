"""Sets of 16 kB in one Produce request, each for another partition: what the broker spends on each.

A broker in this process is given frames, without sockets, as by `benchmarks/metrics.py`: requests of 10 and of 32
partitions, as producers send them that gather the sets for one broker, and of one. Its small sets go to a thread
together (as they do), and each by itself (as before: nothing is a group), alternating. CPU time of the process, all
threads, medians of the rounds, per set; beside it decompressing the payload alone, and `prepare` of the set alone.

Run: python benchmarks/produce_together.py [CASE...]   (written to benchmarks/results/produce_together.json)
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import harness
from append import append, produced
from magicbyte.access.net.server import Handler
from magicbyte.engine.codecs import Codec, decompress_into
from magicbyte.engine.compiled.kernel import warm
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.protocol import write_request
from magicbyte.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.entry import parse_entry
from magicbyte.engine.records.message import MessageView
from magicbyte.server.broker.broker import Broker
from magicbyte.server.partitions.appends import Appends
from magicbyte.server.serving.request import ClientConnection
from magicbyte.server.settings.config import BrokerConfig

TOPIC = "topic"
COUNTS = (1, 10, 32)
RECORDS = 16
ROUNDS, SETS = 15, 160  # sets in each turn
KEPT = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.retention.ms": "-1", "num.partitions": str(max(COUNTS))}
Together = Callable[[Appends, Any], list[list[int]]]


def frame_of(records: memoryview, count: int, version: int) -> bytes:
    """Return a request with the set for each of so many partitions."""
    parts = [PartitionProduceData(index=index, records=records) for index in range(count)]
    topics = [TopicProduceData(name=TOPIC, partition_data=parts)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    return bytes(write_request(request, version, correlation_id=1, client_id="client"))[4:]


async def spent(handle: Handler, frame: bytes, count: int) -> float:
    """Return the CPU seconds of one set."""
    frames = [memoryview(bytearray(frame)) for _ in range(max(1, SETS // count))]
    began = time.process_time()
    for each in frames:
        await handle(each)
    return (time.process_time() - began) / len(frames) / count


async def compare(folder: Path, form: Format, codec: Codec) -> dict[str, Any]:
    """Compare for sets of one format and codec."""
    records, version = produced(form, codec, RECORDS), 8 if form is Format.V2 else 2
    kinds: dict[str, Together] = {"alone": lambda *_: [], "together": Appends._groups}
    broker = Broker(BrokerConfig({**KEPT, "log.dirs": str(folder), "log.message.format.version": form.value}))
    await broker.start()
    found: dict[str, Any] = {"bytes": len(records)}
    try:
        await broker.topics.create(TOPIC)
        handle = broker.handler_of(ClientConnection("127.0.0.1", "peer", broker.config.listeners[0]))
        for count in COUNTS:
            frame, rounds = frame_of(records, count, version), {kind: list[float]() for kind in kinds}
            for _ in range(ROUNDS):
                for kind, groups in kinds.items():
                    with patch.object(Appends, "_groups", groups):
                        rounds[kind].append(await spent(handle, frame, count))
            each = {f"{kind}_us": round(1e6 * statistics.median(times), 1) for kind, times in rounds.items()}
            found[f"{count} partitions"] = {**each, "saved": round(1 - each["together_us"] / each["alone_us"], 2)}
    finally:
        await broker.stop()
    return found | parts(records, form, codec, version)


def parts(records: memoryview, form: Format, codec: Codec, version: int) -> dict[str, float]:
    """Return what decompressing takes of a set, and preparing it, in the same microseconds."""
    entry, rules, out = parse_entry(records), AppendRules(format=form), memoryview(bytearray(1 << 20))
    payload = entry.value if isinstance(entry, MessageView) else records[61:]
    assert payload is not None
    works: dict[str, Callable[[], object]] = {"prepare_us": lambda: append(records, rules, version)}
    if codec:
        works["decompress_us"] = lambda: decompress_into(codec, payload, out)
    rounds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            began = time.process_time()
            for _ in range(SETS):
                work()
            rounds[name].append((time.process_time() - began) / SETS)
    return {name: round(1e6 * statistics.median(times), 1) for name, times in rounds.items()}


def run(folder: Path, form: Format, codec: Codec) -> dict[str, Any]:
    os.sched_setaffinity(0, {int(harness.CORE)})
    warm()
    return asyncio.run(compare(folder, form, codec))


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    f"{form.name.lower()} {codec.name.lower()}": lambda folder, form=form, codec=codec: run(folder, form, codec)
    for form, codec in (
        (Format.V2, Codec.NONE),
        (Format.V2, Codec.LZ4),
        (Format.V2, Codec.GZIP),
        (Format.V1, Codec.LZ4),
    )
}


if __name__ == "__main__":
    harness.run_cases("produce_together", __doc__, CASES)
