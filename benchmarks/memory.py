"""Resident memory of `magicbyte serve`, as a wheel installs it, and of Kafka's broker.

A wheel has machine code of the kernels (`tools/images.py`, which needs ld.lld). This makes that of this processor in a
copy of the package; without it, as in a clone, LLVM is loaded, which takes 48 MB. Bytecode is on disk, as after an
installation.

- load: after the start; after 300,000 records of each size were produced (acks=1, linger.ms=5), and after they were
  consumed, by librdkafka; MB. `highest`: of samples during it.
- burst: connections that each send one Produce of 1 MB of LZ4 at the same time; the highest of samples, and what is
  resident ten seconds after the last answer.

Run: python benchmarks/memory.py [CASE…]   (written to benchmarks/results/memory.json)
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

import broker
import harness
from magicbyte.engine.codecs import Codec
from magicbyte.engine.compiled import shipped
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records

HERE = Path(__file__).parent
RECORDS = 300_000
CONNECTIONS = 200
SETTLED_S = 10


def installed(folder: Path) -> Path:
    """Make a copy of the package as a wheel has it for this processor."""
    level = shipped.levels_here()[0]
    shutil.copytree(HERE.parent / "src/magicbyte", folder / "magicbyte")
    images = folder / "magicbyte/engine/compiled/images"
    subprocess.run([sys.executable, str(HERE.parent / "tools/images.py"), str(images), level.name], check=True)
    return folder


class Highest:
    """Samples the resident memory of a server while it is entered."""

    def __init__(self, server: broker.Server) -> None:
        self._server, self._done, self.found = server, threading.Event(), 0
        self._thread = threading.Thread(target=self._sample)

    def _sample(self) -> None:
        while not self._done.wait(0.02):
            self.found = max(self.found, self._server.resident())

    def __enter__(self) -> "Highest":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def megabytes(size: int) -> float:
    return round(size / 1e6, 1)


def load(server: broker.Server) -> dict[str, float]:
    """Produce and consume; return the resident memory at each step."""
    broker.first_records(server)
    time.sleep(2)
    found = {"start": megabytes(server.resident())}
    with Highest(server) as highest:
        for size in (100, 1000):
            values, topic = broker.values(size), f"records-{size}"
            sender = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5, "acks": 1})
            for at in range(RECORDS):
                while True:
                    try:
                        sender.produce(topic, values[at % len(values)])
                        break
                    except BufferError:
                        sender.poll(0.05)
            assert sender.flush(120) == 0
            found[f"produced {size} B"] = megabytes(server.resident())
            reader = Consumer(
                {"bootstrap.servers": server.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
            )
            reader.subscribe([topic])
            left, deadline = RECORDS, time.monotonic() + 120
            while left > 0:
                assert time.monotonic() < deadline, "records are missing"
                left -= len(reader.consume(10_000, 1))
            reader.close()
            found[f"consumed {size} B"] = megabytes(server.resident())
    return found | {"highest": megabytes(highest.found)}


def burst(server: broker.Server) -> dict[str, float]:
    """Let many connections send a large set at once."""
    broker.first_records(server)
    values = [os.urandom(250) * 4 for _ in range(3400)]  # LZ4 makes a quarter of it
    rows = [Record(at, 0, 0, None, value) for at, value in enumerate(values)]
    records = encode_records(rows, Format.V2, Codec.LZ4)
    peers = [broker.Peer(server) for _ in range(CONNECTIONS)]
    asked = [TopicProduceData(name="first", partition_data=[PartitionProduceData(index=0, records=records)])]
    request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=asked)
    for peer in peers:
        peer.socket.settimeout(120)

    def send(peer: broker.Peer) -> None:
        answer = peer.ask(request, peer.version(ProduceRequest), ProduceResponse)
        assert not answer.responses[0].partition_responses[0].error_code

    with Highest(server) as highest, ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(send, peers))
    time.sleep(SETTLED_S)
    return {
        "connections": CONNECTIONS,
        "request": megabytes(len(records)),
        "highest": megabytes(highest.found),
        f"{SETTLED_S} s after": megabytes(server.resident()),
    }


def rivals(folder: Path, measure: Any) -> dict[str, Any]:
    """Measure ours as installed, and Kafka."""
    os.environ["PYTHONPATH"] = str(installed(folder / "package"))
    with broker.ours(folder / "first") as start:  # which writes bytecode
        broker.first_records(start())
        time.sleep(2)
    found = {}
    for name, make in {"magicbyte": broker.ours, "Kafka 3.9.1": lambda path: broker.kafka("3.9.1", path)}.items():
        with make(folder / name.replace(" ", "-")) as start:
            server = start()
            found[name] = measure(server)
            if name == "magicbyte":
                assert not server.has_kernels(), "LLVM is loaded: the machine code of the wheel was not used"
    return found


if __name__ == "__main__":
    harness.run_cases(
        "memory", __doc__, {"load": lambda path: rivals(path, load), "burst": lambda path: rivals(path, burst)}
    )
