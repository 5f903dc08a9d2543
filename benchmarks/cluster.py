"""Three brokers of ours beside three of Kafka 2.8.2, each with a ZooKeeper of its own, on the same machine.

- produce: librdkafka in this process, `acks=all`, linger.ms=5, to a topic of three partitions, one led by each broker,
  with three replicas. Clusters run at the same time and take turns. Beside the rate stands what the three brokers used
  of CPU together (utime and stime).
- failover: the leader of a partition is killed (SIGKILL); seconds until a produce with `acks=all` succeeds again. Both
  wait for ZooKeeper to end the session, whose timeout is 6 s for both.
- topics: seconds until 200 topics of one partition with three replicas were made by one request.
- catch-up: a follower is stopped while 1 GiB is produced, then started: seconds until it is in sync again.

Run: python benchmarks/cluster.py [CASE...]   (written to benchmarks/results/cluster.json)
"""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import harness
from broker import BATCH, OURS, RECORDS, Server, free_port, server_command, values
from data import kafka_oracle

KAFKA = "2.8.2"
RIVAL = f"Kafka {KAFKA}"
BROKERS, PARTITIONS = (1, 2, 3), 3
ROUNDS, WARM_UPS = 3, 1
FAILOVERS, TOPICS = 3, 200
CAUGHT_UP = 1 << 30
COMMON = (
    "log.retention.ms=-1",
    "zookeeper.session.timeout.ms=6000",
    "offsets.topic.replication.factor=3",
    "auto.leader.rebalance.enable=false",
)


class Cluster:
    """Brokers of one kind, each started and ended by its number."""

    def __init__(self, folder: Path, zookeeper: int) -> None:
        self.folder, self.zookeeper = folder, f"127.0.0.1:{zookeeper}"
        self.ports = {each: free_port() for each in BROKERS}
        self.servers: dict[int, Server] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def cpu(self) -> float:
        return sum(each.cpu() for each in self.servers.values())

    def start(self, number: int) -> None:
        raise NotImplementedError

    def kill(self, number: int) -> None:
        raise NotImplementedError

    def start_all(self) -> None:
        for each in BROKERS:
            self.start(each)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        deadline = time.monotonic() + 60
        while len(admin.list_topics(timeout=10).brokers) < len(BROKERS):
            assert time.monotonic() < deadline, "the brokers do not find each other"
            time.sleep(0.1)

    def make(self, topic: str, partitions: int = PARTITIONS) -> None:
        """Make a topic, and wait until each partition has its leader and its replicas are in sync."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, len(BROKERS))])[topic].result(60)
        self.until_in_sync(topic)

    def until_in_sync(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        deadline = time.monotonic() + 300
        while True:
            with contextlib.suppress(Exception):  # of a broker that was just killed
                found = admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
                if found and all(each.leader >= 0 and len(each.isrs) == len(BROKERS) for each in found):
                    return
            assert time.monotonic() < deadline, f"{topic} is not in sync"
            time.sleep(0.05)

    def leader(self, topic: str) -> int:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)


class Ours(Cluster):
    def __init__(self, folder: Path, zookeeper: int) -> None:
        super().__init__(folder, zookeeper)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        settings = (f"broker.id={number}", f"zookeeper.connect={self.zookeeper}", *COMMON)
        where = ["--dir", str(self.folder / str(number)), "--listen", f"127.0.0.1:{self.ports[number]}"]
        log = (self.folder / f"{number}.out").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-m", "magicbyte", "serve", *where, *settings], stdout=log, stderr=log, env=os.environ
        )
        self._processes[number] = process
        self.servers[number] = Server(f"127.0.0.1:{self.ports[number]}", process.pid)

    def kill(self, number: int) -> None:
        del self.servers[number]
        process = self._processes.pop(number)
        process.kill()
        process.wait(60)


class Kafka(Cluster):
    def start(self, number: int) -> None:
        folder = self.folder / str(number)
        folder.mkdir(exist_ok=True)
        given = dict(each.split("=", 1) for each in COMMON)
        properties = kafka_oracle.broker_properties(
            KAFKA, folder, self.ports[number], number, self.zookeeper, None, given
        )
        kafka_oracle.write_properties(folder / "server.properties", properties)
        command = [*server_command(KAFKA, "512m", folder / "broker.log"), "kafka.Kafka"]
        pid = kafka_oracle.spawn([*command, str(folder / "server.properties")], folder / "broker.out")
        self.servers[number] = Server(f"127.0.0.1:{self.ports[number]}", pid)

    def kill(self, number: int) -> None:
        pid = self.servers.pop(number).pid
        kafka_oracle.stop_process(pid, self.folder / str(number), signal.SIGKILL)


@contextlib.contextmanager
def cluster(kind: type[Cluster], folder: Path) -> Iterator[Cluster]:
    folder.mkdir()
    zookeeper = free_port()
    pid = kafka_oracle.start_zookeeper(KAFKA, folder, zookeeper, 60)
    made = kind(folder, zookeeper)
    try:
        made.start_all()
        yield made
    finally:
        for number in list(made.servers):
            made.kill(number)
        kafka_oracle.stop_process(pid, folder, signal.SIGTERM)


RIVALS: dict[str, type[Cluster]] = {OURS: Ours, RIVAL: Kafka}


def send(made: Cluster, topic: str, lines: list[bytes], count: int, acks: str = "all") -> None:
    """Send records to all partitions in turn, and wait until all are acknowledged."""
    client = Producer(
        {
            "bootstrap.servers": made.bootstrap,
            "linger.ms": 5,
            "acks": acks,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    failed: list[str] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    messages = [{"value": line, "callback": note} for line in lines]
    for number, at in enumerate(range(0, count, BATCH)):
        start = at % len(messages)
        client.produce_batch(topic, messages[start : start + BATCH], partition=number % PARTITIONS)
        client.poll(0)
    left = client.flush(120)
    assert not left, f"{left} records are not acknowledged"
    assert not failed, failed[0]


def producing(folder: Path) -> dict[str, Any]:
    """Produce with acks=all."""
    results: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        clusters = {name: stack.enter_context(cluster(kind, folder / name.split()[0])) for name, kind in RIVALS.items()}
        for size, count in RECORDS.items():
            lines, count = values(size), count // 2
            rates: dict[str, list[float]] = {name: [] for name in clusters}
            cpu: dict[str, list[float]] = {name: [] for name in clusters}
            for made in clusters.values():
                made.make(f"size-{size}")
            for number in range(WARM_UPS + ROUNDS):
                for name, made in clusters.items():
                    used, begin = made.cpu(), time.perf_counter()
                    send(made, f"size-{size}", lines, count)
                    seconds = time.perf_counter() - begin
                    if number >= WARM_UPS:
                        rates[name].append(count / seconds)
                        cpu[name].append((made.cpu() - used) / count * 1e6)
            results[f"{size} B"] = {
                name: {
                    "records_per_s": round(statistics.median(rates[name])),
                    "lowest": round(min(rates[name])),
                    "highest": round(max(rates[name])),
                    "broker_cpu_s_per_million": round(statistics.median(cpu[name]), 2),
                }
                for name in clusters
            }
    return results


def timed(folder: Path, work: Callable[[Cluster, int], float], times: int) -> dict[str, Any]:
    """Measure something in one cluster after the other, several times each."""
    results = {}
    for name, kind in RIVALS.items():
        with cluster(kind, folder / name.split()[0]) as made:
            found = [work(made, number) for number in range(times)]
        results[name] = {
            "seconds": round(statistics.median(found), 3),
            "lowest": round(min(found), 3),
            "highest": round(max(found), 3),
        }
    return results


def failing_over(folder: Path) -> dict[str, Any]:
    """Kill the leader of a partition."""

    def work(made: Cluster, number: int) -> float:
        topic = f"failover-{number}"
        made.make(topic, 1)
        leader = made.leader(topic)
        client = Producer(
            {
                "bootstrap.servers": made.bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "topic.metadata.refresh.interval.ms": 100,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
            }
        )
        client.produce(topic, b"before")
        assert not client.flush(30)
        acknowledged: list[float] = []
        begin = time.perf_counter()
        made.kill(leader)
        client.produce(topic, b"after", callback=lambda _error, _message: acknowledged.append(time.perf_counter()))
        assert not client.flush(60)
        made.start(leader)
        made.until_in_sync(topic)
        return acknowledged[0] - begin

    return timed(folder, work, FAILOVERS)


def making(folder: Path) -> dict[str, Any]:
    """Make many topics at once."""

    def work(made: Cluster, number: int) -> float:
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        begin = time.perf_counter()
        made_topics = admin.create_topics(
            [NewTopic(f"topic-{number}-{each}", 1, len(BROKERS)) for each in range(TOPICS)], request_timeout=120
        )
        for each in made_topics.values():
            each.result(120)
        return time.perf_counter() - begin

    return timed(folder, work, 3)


def catching_up(folder: Path) -> dict[str, Any]:
    """Start a follower that is far behind."""

    def work(made: Cluster, number: int) -> float:
        topic, lines = f"behind-{number}", values(1000)
        made.make(topic)
        follower = next(each for each in BROKERS if each != made.leader(topic))
        made.kill(follower)
        time.sleep(8)  # until its session is over, and it has left the in-sync replicas
        send(made, topic, lines, CAUGHT_UP // 1000, acks="1")
        begin = time.perf_counter()
        made.start(follower)
        made.until_in_sync(topic)
        return time.perf_counter() - begin

    return timed(folder, work, 1)


if __name__ == "__main__":
    harness.run_cases(
        "cluster",
        __doc__,
        {"produce": producing, "failover": failing_over, "topics": making, "catch-up": catching_up},
    )
