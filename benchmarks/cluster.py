"""Three of our brokers and three of Kafka 2.8.2, each cluster with a ZooKeeper of its own, on the same machine.

- produce: librdkafka in this process, `acks=all`, linger.ms=5, to a topic of three partitions, one led by each broker,
  with three replicas. Clusters run at the same time and take turns. Beside the rate stands what the three brokers used
  of CPU together (utime and stime).
- failover: the leader of a partition is killed (SIGKILL); seconds until a produce with `acks=all` succeeds again.
  ZooKeeper ends a session at the first tick that is later than its last request by the timeout. Here that is 2 s, with
  ticks of 0.1 s; the usual ones, 6 s or 18 s and 2 s, hide the work of brokers behind chance. Leaders are killed at
  random times, the same for both. `session` ends when the broker's node is gone, and `after_session` begins then.
- controller: the controller of 2,000 partitions with three replicas is killed; seconds until clients see its
  successor and a live leader for each partition. Sessions of 6 s, ticks of 2 s; `after_session` as above.
- topics: seconds until 200 topics of one partition with three replicas were made by one request.
- catch-up: a follower is stopped while 1 GiB is produced, then started: seconds until clients see it in sync again. Of
  these, `restart` ends with the first byte in its logs, and `copying` with the last one; `cpu` is that of all three
  brokers from the start on, `cpu_copying` from the first byte on.
- four: one of our brokers compared with four in a cluster, `acks=1`, requests of 200 kB, a topic of four partitions
  without further replicas: what the brokers used of CPU together for a record. The partitions are filled one after the
  other: there are fewer cores than brokers, and brokers that share one drive each other out of its caches.

A virtual machine may get pages of memory from its host at their first use, which takes longer than a copy, and give
free ones back after seconds. So more of them than are needed are used and freed just before. A round may still get
pages that are new; such pages only add, so the lowest CPU time of a record stands beside the median.

Run: python benchmarks/cluster.py [CASE...]   (written to benchmarks/results/cluster.json)
"""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic
from kazoo.client import KazooClient

import harness
from broker import BATCH, OURS, RECORDS, Server, free_port, server_command, values
from data import kafka_oracle

KAFKA = "2.8.2"
RIVAL = f"Kafka {KAFKA}"
BROKERS, PARTITIONS = (1, 2, 3), 3
ROUNDS, WARM_UPS, FOUR_ROUNDS = 9, 15, 15  # a JVM compiles during the first ones
FAILOVERS, SUCCESSIONS, TOPICS = 20, 3, 200
WITHIN_S = 2.0  # a leader is killed: several of its requests to ZooKeeper
MANY = {"topics": 20, "partitions": 100}
CATCH_UPS, CAUGHT_UP = 2, 1 << 30
PATIENCE_S = 300
PIECE = 1 << 20
POLL_S = 0.01
SESSION_MS, TICK_MS = 6000, 2000  # of ZooKeeper
SHORT_SESSION_MS, SHORT_TICK_MS = 2000, 100
COMMON = (
    "log.retention.ms=-1",
    "offsets.topic.replication.factor=3",
    "auto.leader.rebalance.enable=false",
)


class Cluster:
    """Brokers of one kind, each started and ended by its number."""

    numbers: tuple[int, ...] = BROKERS

    def __init__(self, folder: Path, zookeeper: int, session_ms: int) -> None:
        self.folder, self.zookeeper = folder, f"127.0.0.1:{zookeeper}"
        self.settings = (*COMMON, f"zookeeper.session.timeout.ms={session_ms}")
        self.ports = {each: free_port() for each in self.numbers}
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
        for each in self.numbers:
            self.start(each)
        self.until(lambda told: len(told.brokers) == len(self.numbers))

    def make(self, topic: str, partitions: int = PARTITIONS, replicas: int = len(BROKERS)) -> None:
        """Make a topic, and wait until each partition has its leader and its replicas are in sync."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, replicas)], request_timeout=60)[topic].result(60)
        self.until_in_sync(topic)

    def until_in_sync(self, topic: str) -> None:
        self.until(
            lambda told: all(
                each.leader >= 0 and len(each.isrs) == len(each.replicas)
                for each in told.topics[topic].partitions.values()
            ),
            topic,
        )

    def until(self, is_so: Callable[[ClusterMetadata], bool], topic: str | None = None) -> ClusterMetadata:
        """Wait until clients see it, of a topic, else of all; return the metadata that they got."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(KafkaException, KeyError):  # of a broker that was just killed, or has just started
                told = admin.list_topics(topic, timeout=5)
                if (topic is None or told.topics[topic].partitions) and is_so(told):
                    return told
            assert time.monotonic() < deadline, f"{topic or 'all topics'}: the state that is waited for does not come"
            time.sleep(POLL_S)

    @staticmethod
    def wait_for(is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so on the disk, which clients cannot see."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, f"{PATIENCE_S} s are over before {what}"
            time.sleep(POLL_S)

    def leader(self, topic: str) -> int:
        told = self.until(lambda told: told.topics[topic].partitions[0].leader >= 0, topic)
        return int(told.topics[topic].partitions[0].leader)

    @contextlib.contextmanager
    def session(self, number: int) -> Iterator[list[float]]:
        """Give a list that gets the time at which ZooKeeper ends the session of a broker."""
        client, ended = KazooClient(self.zookeeper), list[float]()
        client.start()
        try:
            node = client.exists(f"/brokers/ids/{number}", watch=lambda _: ended.append(time.perf_counter()))
            assert node is not None, f"broker {number} is not registered"
            yield ended
        finally:
            client.stop()
            client.close()

    def logs(self, number: int, topic: str) -> list[Path]:
        """Return the segments of a topic."""
        return sorted((self.folder / str(number)).rglob(f"{topic}-*/*.log"))


class Ours(Cluster):
    def __init__(self, folder: Path, zookeeper: int, session_ms: int) -> None:
        super().__init__(folder, zookeeper, session_ms)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        settings = (f"broker.id={number}", f"zookeeper.connect={self.zookeeper}", *self.settings)
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
        given = dict(each.split("=", 1) for each in self.settings)
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
def cluster(
    kind: type[Cluster], folder: Path, session_ms: int = SESSION_MS, tick_ms: int = TICK_MS
) -> Iterator[Cluster]:
    folder.mkdir()
    zookeeper = free_port()
    pid = kafka_oracle.start_zookeeper(KAFKA, folder, zookeeper, 60, tick_ms)
    made = kind(folder, zookeeper, session_ms)
    try:
        made.start_all()
        yield made
    finally:
        for number in list(made.servers):
            made.kill(number)
        kafka_oracle.stop_process(pid, folder, signal.SIGTERM)


class Alone(Ours):
    numbers = (1,)


class Four(Ours):
    numbers = (1, 2, 3, 4)


RIVALS: dict[str, type[Cluster]] = {OURS: Ours, RIVAL: Kafka}
SIZES: dict[str, type[Cluster]] = {"one broker": Alone, "four brokers": Four}


def use_pages(folder: Path, size: int) -> None:
    """Use pages of memory for so many bytes, and free them."""
    path = folder / "pages"
    with path.open("wb", buffering=0) as file:
        for _ in range(0, 4 * size, PIECE):
            file.write(bytes(PIECE))
    path.unlink()


def send(
    made: Cluster,
    topic: str,
    lines: list[bytes],
    count: int,
    acks: str = "all",
    partitions: int = PARTITIONS,
    in_request: int | None = None,
) -> None:
    """Send records to all partitions in turn, and wait until all are acknowledged.

    `in_request`: the records of each request, and one partition is filled after the other; None: as many as the client
    has within 5 ms.
    """
    client = Producer(
        {
            "bootstrap.servers": made.bootstrap,
            "acks": acks,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            **({"linger.ms": 5} if in_request is None else {"linger.ms": 1000, "batch.num.messages": in_request}),
        }
    )
    failed: list[str] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    messages = [{"value": line, "callback": note} for line in lines]
    for number, at in enumerate(range(0, count, BATCH)):
        start = at % len(messages)
        partition = number % partitions if in_request is None else at * partitions // count
        if in_request is not None and partition != (at - BATCH) * partitions // count:
            client.flush(120)  # else the queue of one partition is sent while the next one is filled
        client.produce_batch(topic, messages[start : start + BATCH], partition=partition)
        client.poll(0)
    left = client.flush(120)
    assert not left, f"{left} records are not acknowledged"
    assert not failed, failed[0]


def alternating(
    folder: Path,
    kinds: Mapping[str, type[Cluster]],
    *,
    acks: str,
    partitions: int,
    replicas: int,
    share: float,
    rounds: int = ROUNDS,
    request_bytes: int | None = None,
) -> dict[str, Any]:
    """Produce a share of `RECORDS` to clusters that run at the same time and take turns."""
    results: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        clusters = {name: stack.enter_context(cluster(kind, folder / name.split()[0])) for name, kind in kinds.items()}
        for size, count in RECORDS.items():
            lines, count = values(size), int(count * share)
            in_request = None if request_bytes is None else request_bytes // size
            rates: dict[str, list[float]] = {name: [] for name in clusters}
            cpu: dict[str, list[float]] = {name: [] for name in clusters}
            for made in clusters.values():
                made.make(f"size-{size}", partitions, replicas)
            for number in range(WARM_UPS + rounds):
                for name, made in clusters.items():
                    use_pages(folder, count * size * replicas)
                    used, begin = made.cpu(), time.perf_counter()
                    send(made, f"size-{size}", lines, count, acks, partitions, in_request)
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
                    "lowest_broker_cpu_s_per_million": round(min(cpu[name]), 2),
                }
                for name in clusters
            }
    return results


def producing(folder: Path) -> dict[str, Any]:
    """Produce with acks=all."""
    return alternating(folder, RIVALS, acks="all", partitions=PARTITIONS, replicas=len(BROKERS), share=0.5)


def beside_one(folder: Path) -> dict[str, Any]:
    """Produce to four brokers, and to one: so much that their connections cost little beside it."""
    return alternating(
        folder, SIZES, acks="1", partitions=len(Four.numbers), replicas=1,
        share=2.0, rounds=FOUR_ROUNDS, request_bytes=200_000,
    )  # fmt: skip


def timed(
    folder: Path,
    work: Callable[[Cluster, int], dict[str, float]],
    times: int,
    session_ms: int = SESSION_MS,
    tick_ms: int = TICK_MS,
) -> dict[str, Any]:
    """Measure something in one cluster after the other, several times each."""
    results = {}
    for name, kind in RIVALS.items():
        with cluster(kind, folder / name.split()[0], session_ms, tick_ms) as made:
            found = [work(made, number) for number in range(times)]
        results[name] = {
            what: {
                "median": round(statistics.median(each[what] for each in found), 3),
                "mean": round(statistics.mean(each[what] for each in found), 3),
                "lowest": round(min(each[what] for each in found), 3),
                "highest": round(max(each[what] for each in found), 3),
            }
            for what in found[0]
        }
    return results


def failing_over(folder: Path) -> dict[str, Any]:
    """Kill the leader of a partition."""

    def work(made: Cluster, number: int) -> dict[str, float]:
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
        time.sleep(Random(number).uniform(0, WITHIN_S))  # at once, it would have asked ZooKeeper just before
        acknowledged: list[float] = []
        with made.session(leader) as ended:
            begin = time.perf_counter()
            made.kill(leader)
            client.produce(topic, b"after", callback=lambda _error, _message: acknowledged.append(time.perf_counter()))
            assert not client.flush(60)
        made.start(leader)
        made.until_in_sync(topic)
        return {
            "seconds": acknowledged[0] - begin,
            "session": ended[0] - begin,
            "after_session": acknowledged[0] - ended[0],
        }

    return timed(folder, work, FAILOVERS, SHORT_SESSION_MS, SHORT_TICK_MS)


def succeeding(folder: Path) -> dict[str, Any]:
    """Kill the controller of many partitions."""
    topics = [f"many-{each}" for each in range(MANY["topics"])]

    def is_led(told: ClusterMetadata, numbers: set[int], in_sync: int) -> bool:
        return told.controller_id in numbers and all(
            len(told.topics[topic].partitions) == MANY["partitions"]
            and all(
                each.leader in numbers and len(each.isrs) >= in_sync for each in told.topics[topic].partitions.values()
            )
            for topic in topics
        )

    def work(made: Cluster, number: int) -> dict[str, float]:
        everybody = set(made.numbers)
        if number == 0:
            for topic in topics:
                made.make(topic, MANY["partitions"])
        controller = int(made.until(lambda told: is_led(told, everybody, len(BROKERS))).controller_id)
        with made.session(controller) as ended:
            begin = time.perf_counter()
            made.kill(controller)
            made.until(lambda told: is_led(told, everybody - {controller}, 1))
            end = time.perf_counter()
        made.start(controller)
        return {"seconds": end - begin, "after_session": end - ended[0]}

    return timed(folder, work, SUCCESSIONS)


def making(folder: Path) -> dict[str, Any]:
    """Make many topics at once."""

    def work(made: Cluster, number: int) -> dict[str, float]:
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        begin = time.perf_counter()
        made_topics = admin.create_topics(
            [NewTopic(f"topic-{number}-{each}", 1, len(BROKERS)) for each in range(TOPICS)], request_timeout=120
        )
        for each in made_topics.values():
            each.result(120)
        return {"seconds": time.perf_counter() - begin}

    return timed(folder, work, 3)


def catching_up(folder: Path) -> dict[str, Any]:
    """Start a follower that is far behind."""

    def work(made: Cluster, number: int) -> dict[str, float]:
        topic, lines = f"behind-{number}", values(1000)
        made.make(topic)
        leader = made.leader(topic)
        follower = next(each for each in made.numbers if each != leader)
        made.kill(follower)
        made.until(
            lambda told: all(follower not in each.isrs for each in told.topics[topic].partitions.values()), topic
        )
        send(made, topic, lines, CAUGHT_UP // 1000, acks="1")
        os.sync()  # what was produced is written to the disk before the measurement
        logs, wanted = made.logs(follower, topic), sum(each.stat().st_size for each in made.logs(leader, topic))
        use_pages(made.folder, wanted)
        used, begin = made.cpu(), time.perf_counter()
        made.start(follower)
        made.wait_for(lambda: sum(each.stat().st_size for each in logs) > 0, "the follower fetches")
        used_before, first = made.cpu(), time.perf_counter()
        made.wait_for(lambda: sum(each.stat().st_size for each in logs) >= wanted, "the follower has the whole log")
        copied = time.perf_counter()
        made.until_in_sync(topic)
        return {
            "seconds": time.perf_counter() - begin,
            "restart": first - begin,
            "copying": copied - first,
            "copied_mb_per_s": wanted / 1e6 / (copied - first),
            "cpu": made.cpu() - used,
            "cpu_copying": made.cpu() - used_before,
        }

    return timed(folder, work, CATCH_UPS)


if __name__ == "__main__":
    harness.run_cases(
        "cluster",
        __doc__,
        {
            "produce": producing,
            "failover": failing_over,
            "controller": succeeding,
            "topics": making,
            "catch-up": catching_up,
            "four": beside_one,
        },
    )
