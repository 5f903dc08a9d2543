"""`magicbyte serve` and Kafka's brokers: start, produce, consume, down-conversion, round trips, idle connections.

The client is librdkafka (confluent-kafka) in this process, the same for all; brokers are processes of their own, all of
a case run at the same time, are warmed up and take turns. Client and brokers share the machine's cores, so a rate of
records is mostly the client's; beside each stands what the broker used of CPU (utime and stime of its process, all of
its threads, the JVM's compilers and collectors, too). Kafka runs as its own scripts run it: a heap of 1 GiB, G1, both
compilers; its ZooKeeper is up before a start is measured, and in none of its figures. Our kernels are compiled before,
as those of a wheel are; a clone's broker compiles them in its first minutes, and uses their plain twins meanwhile.

- start: from the process' start until a set of ten records was produced and fetched by a client that tries all the
  time; resident memory then. Ours has its bytecode on the disk, as after an installation: a first start, which is not
  measured, writes it.
- v2, v1, v0: produce (acks=1, linger.ms=5) and consume records of 100 and 1000 bytes of text. In the cases of v0 the
  client is configured for brokers of 0.9, so that it sends magic 0, which is the topics' format. It has no setting to
  send magic 1 to a newer broker: in the cases of v1 ours offers the versions of 0.10.0 (`as.version`).
- down-conversion: a log in format 2, read by a client with the same configuration.
- round trip: one record at a time, acks=1, from call to acknowledgement.
- idle: connections that asked for ApiVersions once.

Run: python benchmarks/broker.py [CASE...]   (written to benchmarks/results/broker.json; a case takes 1 to 3 minutes)
"""

import contextlib
import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, Producer, TopicPartition

import data
import harness
from data import kafka_oracle
from magicbyte.engine.protocol import APIS, Message, read_response, write_request
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, columns_of, encode
from magicbyte.engine.records.layout import TimestampType

OURS = "magicbyte"
ROUNDS, WARM_UPS = 3, 2
STARTS = 5
TRIPS = 1000
CONNECTIONS = 5000
RECORDS = {100: 600_000, 1000: 150_000}
BATCH = 2000  # records handed to the client in a call
TICK = os.sysconf("SC_CLK_TCK")
HERE = Path(__file__).parent
OLD_CLIENT = {"api.version.request": False, "broker.version.fallback": "0.9.0"}
SERVER = {
    "-XX:TieredStopAtLevel=1": [],
    "-Xmx512m": ["-Xms1g", "-Xmx1g"],
    "-XX:+UseSerialGC": ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"],
}


class Server(NamedTuple):
    """A running broker."""

    bootstrap: str
    pid: int

    def cpu(self) -> float:
        """Return the seconds of CPU that it used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def has_kernels(self) -> bool:
        """Return whether our compiled loops are in its memory."""
        return "llvmlite" in Path(f"/proc/{self.pid}/maps").read_text()

    def resident(self) -> int:
        """Return its resident memory in bytes."""
        return next(
            int(line.split()[1]) * 1024
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS")
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server_command(*arguments: Any, **more: Any) -> list[str]:
    """Return the launcher's java command with the flags that Kafka's own scripts give a broker."""
    command = kafka_oracle.java_command(*arguments, **more)
    return [part for each in command for part in SERVER.get(each, [each])]


@contextlib.contextmanager
def ours(folder: Path, *settings: str) -> Iterator[Callable[[], Server]]:
    """Give what starts `magicbyte serve` in a folder, its kernels compiled; it ends with the block."""
    subprocess.run([sys.executable, "-m", "magicbyte", "warm"], check=True, stdout=subprocess.DEVNULL)
    started: list[subprocess.Popen[bytes]] = []
    port = free_port()
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(data.folder() / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    options = ["--dir", str(folder / "data"), "--listen", f"127.0.0.1:{port}", "log.retention.ms=-1", *settings]

    def start() -> Server:
        log = (folder / "log").open("ab")
        command = [sys.executable, "-m", "magicbyte", "serve", *options]
        started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
        return Server(f"127.0.0.1:{port}", started[-1].pid)

    folder.mkdir()
    try:
        yield start
    finally:
        for process in started:
            process.terminate()
            process.wait(60)


@contextlib.contextmanager
def kfake(folder: Path) -> Iterator[Callable[[], Server]]:
    """Give what starts franz-go's fake broker; it ends with the block."""
    folder.mkdir()
    subprocess.run(["go", "build", "-o", str(folder / "kfake"), "."], cwd=HERE / "kfake", check=True)
    started: list[subprocess.Popen[bytes]] = []
    port = free_port()

    def start() -> Server:
        started.append(subprocess.Popen([folder / "kfake", str(port)]))
        return Server(f"127.0.0.1:{port}", started[-1].pid)

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextlib.contextmanager
def kafka(version: str, folder: Path, *settings: str) -> Iterator[Callable[[], Server]]:
    """Give what starts a broker of Kafka, whose ZooKeeper runs already; both end with the block."""
    folder.mkdir()
    port = free_port()
    zookeeper = free_port()
    pids = [kafka_oracle.start_zookeeper(version, folder, zookeeper, 60)]

    def start() -> Server:
        given = dict(each.split("=", 1) for each in ("log.retention.ms=-1", *settings))
        properties = kafka_oracle.broker_properties(version, folder, port, 0, f"127.0.0.1:{zookeeper}", None, given)
        kafka_oracle.write_properties(folder / "server.properties", properties)
        command = [*server_command(version, "512m", folder / "broker.log"), "kafka.Kafka"]
        pids.append(kafka_oracle.spawn([*command, str(folder / "server.properties")], folder / "broker.out"))
        return Server(f"127.0.0.1:{port}", pids[-1])

    try:
        yield start
    finally:
        for pid in reversed(pids):
            kafka_oracle.stop_process(pid, folder, signal.SIGTERM)


# ---- start


R = TypeVar("R", bound=Message)
HIGHEST = {ProduceRequest: 7, FetchRequest: 4, MetadataRequest: 4}  # versions that we ask with, if the broker has them


class Peer:
    """A connection that sends a request and waits for its answer."""

    def __init__(self, server: Server) -> None:
        host, port = server.bootstrap.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        offered = self.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys
        self.highest = {each.api_key: each.max_version for each in offered}

    def version(self, request: type[Message]) -> int:
        assert request.API_KEY is not None
        return min(HIGHEST[request], self.highest[request.API_KEY])

    def ask(self, request: Message, version: int, response: type[R]) -> R:
        assert request.API_KEY is not None
        self.socket.sendall(bytes(write_request(request, version, correlation_id=1, client_id="benchmark")))
        stream = self.socket.makefile("rb")
        head = stream.read(4)
        if len(head) < 4:
            raise ConnectionResetError
        _, found = read_response(stream.read(int.from_bytes(head, "big")), APIS[request.API_KEY], version)
        assert isinstance(found, response)
        return found


def first_records(server: Server) -> None:
    """Return when ten records were written and read, trying all the time, for a minute at most."""
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError):
            peer = Peer(server)
            with peer.socket:
                if wrote_and_read(peer):
                    return
        assert time.monotonic() < deadline, f"{server.bootstrap} does not answer"
        time.sleep(0.002)


def wrote_and_read(peer: Peer) -> bool:
    """Whether a set was written and read; False while the broker or its topic does not exist."""
    version = peer.version(MetadataRequest)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="first")])
    (topic,) = peer.ask(asked, version, MetadataResponse).topics
    if topic.error_code or not topic.partitions or topic.partitions[0].error_code:
        return False
    version = peer.version(ProduceRequest)
    records = [Record(i, 1_700_000_000_000 + i, TimestampType.CREATE_TIME, b"key", b"value", ()) for i in range(10)]
    made = encode(columns_of(records), Format.V2 if version >= 3 else Format.V1)
    partition = PartitionProduceData(index=0, records=made)
    data = [TopicProduceData(name="first", partition_data=[partition])]
    produced = peer.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), version, ProduceResponse)
    if produced.responses[0].partition_responses[0].error_code:
        return False
    fetched = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic="first", partitions=[fetched])])
    found = peer.ask(request, peer.version(FetchRequest), FetchResponse).responses[0].partitions[0]
    return found.error_code == 0 and len(found.records or b"") >= len(made)


def starting(folder: Path) -> dict[str, Any]:
    """Start each broker several times, always with nothing in its folder."""
    rivals: dict[str, Callable[[Path], Any]] = {
        OURS: ours,
        "Kafka 3.9.1": lambda path: kafka("3.9.1", path),
        "Kafka 0.10.0.1": lambda path: kafka("0.10.0.1", path),
        "kfake": kfake,
    }
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    resident: dict[str, list[int]] = {name: [] for name in rivals}
    with ours(folder / "first") as start:
        first_records(start())
    for number in range(STARTS):
        for name, make in rivals.items():
            with make(folder / f"{name.replace(' ', '-')}-{number}") as start:
                begin = time.perf_counter()
                server = start()
                first_records(server)
                seconds[name].append(time.perf_counter() - begin)
                resident[name].append(server.resident())
    return {
        name: {
            "seconds": round(statistics.median(seconds[name]), 3),
            "lowest": round(min(seconds[name]), 3),
            "highest": round(max(seconds[name]), 3),
            "resident_MB": round(statistics.median(resident[name]) / 1e6, 1),
        }
        for name in rivals
    }


# ---- produce and consume


def values(size: int) -> list[bytes]:
    """Return some different values of a size, of text."""
    return [line.encode() for line in islice(data.text(random.Random(data.SEED), size), 20_000)]


def producer(server: Server, codec: str, settings: Mapping[str, Any]) -> Producer:
    fixed = {
        "linger.ms": 5,
        "acks": 1,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1 << 20,
    }
    return Producer({"bootstrap.servers": server.bootstrap, "compression.type": codec, **fixed, **settings})


def produce(client: Producer, topic: str, lines: list[bytes], count: int) -> None:
    """Send records and wait until all are acknowledged; fail when one is not."""
    failed: list[str] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    messages = [{"value": line, "callback": note} for line in lines]
    for at in range(0, count, BATCH):
        start = at % len(messages)
        client.produce_batch(topic, messages[start : start + BATCH], partition=0)
        client.poll(0)
    left = client.flush(60)
    assert not left, f"{left} records are not acknowledged"
    assert not failed, failed[0]


def consume(server: Server, topic: str, count: int, settings: Mapping[str, Any]) -> None:
    """Read records from the beginning."""
    fixed = {
        "group.id": "none",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "queued.min.messages": 1_000_000,
    }
    consumer = Consumer({"bootstrap.servers": server.bootstrap, **fixed, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read, deadline = 0, time.monotonic() + 60
    while read < count:
        assert time.monotonic() < deadline, f"{read} of {count} records came"
        for message in consumer.consume(10_000, 1.0):
            assert message.error() is None, message.error()
            read += 1
    consumer.close()


class Turns:
    """Rates of several brokers that take turns."""

    def __init__(self, servers: dict[str, Server]) -> None:
        self.servers = servers

    def measure(self, count: int, work: Callable[[Server], None]) -> dict[str, Any]:
        """Do some work of `count` records with each, in rounds; the first ones do not count."""
        wall: dict[str, list[float]] = {name: [] for name in self.servers}
        cpu: dict[str, list[float]] = {name: [] for name in self.servers}
        for number in range(WARM_UPS + ROUNDS):
            for name, server in self.servers.items():
                begin, used = time.perf_counter(), server.cpu()
                work(server)
                if number >= WARM_UPS:
                    wall[name].append(time.perf_counter() - begin)
                    cpu[name].append(server.cpu() - used)
        return {
            name: {
                "records_per_second": round(count / statistics.median(wall[name])),
                "broker_cpu_seconds_per_million": round(statistics.median(cpu[name]) / count * 1e6, 3),
                "cpu_lowest": round(min(cpu[name]) / count * 1e6, 3),
                "cpu_highest": round(max(cpu[name]) / count * 1e6, 3),
                "resident_MB": round(server.resident() / 1e6, 1),
                **({"kernels_loaded": server.has_kernels()} if name == OURS else {}),
            }
            for name, server in self.servers.items()
        } | {"ratios": self.ratios(wall, cpu)}

    def ratios(self, wall: dict[str, list[float]], cpu: dict[str, list[float]]) -> dict[str, float]:
        """Return how many times as many records we handle, per second and per CPU second of the broker."""
        (rival,) = set(self.servers) - {OURS}
        return {
            "records_per_second": round(statistics.median(wall[rival]) / statistics.median(wall[OURS]), 2),
            "records_per_cpu_second": round(statistics.median(cpu[rival]) / statistics.median(cpu[OURS]), 2),
        }


@contextlib.contextmanager
def pair(folder: Path, version: str, settings: tuple[str, ...] = (), rivals: tuple[str, ...] = ()) -> Iterator[Turns]:
    """Run our broker and one of Kafka inside the block."""
    with contextlib.ExitStack() as stack:
        servers = {
            OURS: stack.enter_context(ours(folder / "ours", *settings))(),
            f"Kafka {version}": stack.enter_context(kafka(version, folder / "kafka", *rivals))(),
        }
        for server in servers.values():
            first_records(server)
        yield Turns(servers)


class Era(NamedTuple):
    """A rival, further settings of both brokers and of our own, and settings of the client."""

    rival: str
    both: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    client: Mapping[str, Any] = MappingProxyType({})


ERAS = {
    "v2": Era("3.9.1"),
    "v1": Era("0.10.0.1", ours=("as.version=0.10.0",)),
    "v0": Era("0.10.0.1", both=("log.message.format.version=0.9.0",), client=OLD_CLIENT),
}
CODECS = {"v2": ("none", "lz4", "zstd"), "v1": ("none", "lz4"), "v0": ("none", "lz4", "gzip")}


def moving(folder: Path, era: Era, size: int, codec: str) -> dict[str, Any]:
    """Produce in rounds, then consume the first records in rounds."""
    lines, count, settings = values(size), RECORDS[size], era.client
    with pair(folder, era.rival, (*era.both, *era.ours), era.both) as turns:
        clients = {server: producer(server, codec, settings) for server in turns.servers.values()}
        produced = turns.measure(count, lambda server: produce(clients[server], "bench", lines, count))
        clients.clear()
        consumed = turns.measure(count, lambda server: consume(server, "bench", count, settings))
    return {"produce": produced, "consume": consumed}


def converting(folder: Path, size: int, codec: str) -> dict[str, Any]:
    """Let an old consumer read what a new producer wrote."""
    lines, count = values(size), RECORDS[size]
    with pair(folder, "2.8.2") as turns:
        for server in turns.servers.values():
            produce(producer(server, codec, {}), "bench", lines, count)
        return turns.measure(count, lambda server: consume(server, "bench", count, OLD_CLIENT))


def round_trips(folder: Path) -> dict[str, Any]:
    """Produce records one at a time."""
    found: dict[str, Any] = {}
    with pair(folder, "3.9.1") as turns:
        times: dict[str, list[float]] = {name: [] for name in turns.servers}
        clients = {
            name: producer(server, "none", {"linger.ms": 0, "socket.nagle.disable": True})
            for name, server in turns.servers.items()
        }
        for number in range(6):
            for name, client in clients.items():
                for _ in range(TRIPS):
                    begin = time.perf_counter()
                    client.produce("bench", b"x" * 100, partition=0)
                    client.flush()
                    if number:
                        times[name].append(time.perf_counter() - begin)
    for name, each in times.items():
        found[name] = {
            "median_us": round(statistics.median(each) * 1e6, 1),
            "p99_us": round(statistics.quantiles(each, n=100)[98] * 1e6, 1),
        }
    return found


def idle(folder: Path) -> dict[str, Any]:
    """Hold many connections that do nothing."""
    request = struct.pack(">hhih", 18, 0, 1, -1)
    with ours(folder / "ours") as start, contextlib.ExitStack() as stack:
        server = start()
        first_records(server)
        before = server.resident()
        host, port = server.bootstrap.split(":")
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            connection.sendall(struct.pack(">i", len(request)) + request)
            assert connection.recv(4), "closed"
        return {OURS: {"bytes_each": round((server.resident() - before) / CONNECTIONS), "connections": CONNECTIONS}}


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "start": starting,
    "round trip": round_trips,
    "idle": idle,
    **{
        f"{name} {codec} {size} B": lambda folder, era=era, size=size, codec=codec: moving(folder, era, size, codec)
        for name, era in ERAS.items()
        for codec in CODECS[name]
        for size in RECORDS
    },
    **{
        f"down-conversion {codec} {size} B": lambda folder, size=size, codec=codec: converting(folder, size, codec)
        for codec in ("none", "lz4")
        for size in RECORDS
    },
}


if __name__ == "__main__":
    harness.run_cases("broker", __doc__, CASES)
