"""What transactions cost: a second of them, the time of a commit, and reading committed records only.

- transactions: librdkafka (confluent-kafka) in this process begins a transaction, produces 10 records of 1000 bytes
  over 3 partitions of a topic, and commits it; one producer, one transaction after the other, to `magicbyte serve` and
  Kafka 3.9.1, which take turns. `commit` is the time of the call that commits: it sends the remaining records,
  and returns when the coordinator has noted the outcome. CPU is that of the broker's process (benchmarks/broker.py).
- read_committed: a log of records of 1000 bytes in transactions of 100, of which one in ten is aborted, read by
  librdkafka from our broker with each isolation.level, alternating: CPU of the broker for the whole log. The same of
  the log directory, read by `Log.arrow_batches`: CPU of this process.

Run: python benchmarks/transactions.py [CASE...]   (written to benchmarks/results/transactions.json)
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import harness
import magicbyte
from broker import OURS, Server, consume, first_records, ours, pair, values

TOPIC, PARTITIONS = "transactions", 3
RECORDS, SIZE = 10, 1000  # of a transaction
TURN, ROUNDS, WARM_UPS = 150, 15, 30  # transactions, rounds of them, and those that do not count: a JVM compiles
LOG_RECORDS, BATCH, ABORTED = 100_000, 100, 10  # of the log that is read; one of ABORTED is aborted
# Both isolation levels deliver a multiple of the 10,000 records that `consume` waits for at a time.
READ_ROUNDS = 9
PATIENCE_S = 60


def transactional(server: Server, name: str) -> Producer:
    """Return a producer with a transactional id that is ready."""
    client = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": name, "linger.ms": 0})
    client.init_transactions(PATIENCE_S)
    return client


def make_topic(server: Server, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_S)


def commit_all(client: Producer, lines: list[bytes], count: int) -> list[float]:
    """Do transactions one after the other; return the seconds that each commit took."""
    took = []
    for number in range(count):
        client.begin_transaction()
        for at in range(RECORDS):
            client.produce(TOPIC, lines[(number * RECORDS + at) % len(lines)], partition=at % PARTITIONS)
        begun = time.perf_counter()
        client.commit_transaction(PATIENCE_S)
        took.append(time.perf_counter() - begun)
    return took


def committing(folder: Path) -> dict[str, Any]:
    """Commit transactions in rounds, each broker in turn."""
    lines = values(SIZE)
    with pair(folder, "3.9.1") as turns:
        clients = {}
        for name, server in turns.servers.items():
            make_topic(server, TOPIC, PARTITIONS)
            clients[name] = transactional(server, "benchmark")
        wall: dict[str, list[float]] = {name: [] for name in clients}
        cpu: dict[str, list[float]] = {name: [] for name in clients}
        commits: dict[str, list[float]] = {name: [] for name in clients}
        for number in range(WARM_UPS + ROUNDS):
            for name, server in turns.servers.items():
                begun, used = time.perf_counter(), server.cpu()
                took = commit_all(clients[name], lines, TURN)
                if number >= WARM_UPS:
                    wall[name].append(time.perf_counter() - begun)
                    cpu[name].append(server.cpu() - used)
                    commits[name] += took
        (rival,) = set(clients) - {OURS}
    found: dict[str, Any] = {
        name: {
            "transactions_per_second": round(TURN / statistics.median(wall[name]), 1),
            "broker_cpu_ms_each": round(sum(cpu[name]) / TURN / ROUNDS * 1e3, 3),
            "commit_median_ms": round(statistics.median(commits[name]) * 1e3, 3),
            "commit_p99_ms": round(statistics.quantiles(commits[name], n=100)[98] * 1e3, 3),
        }
        for name in clients
    }
    mine, its = found[OURS], found[rival]
    ratios = {
        "transactions_per_second": (mine["transactions_per_second"] / its["transactions_per_second"], 1),
        "transactions_per_cpu_second": (its["broker_cpu_ms_each"] / mine["broker_cpu_ms_each"], 2),
        "commit_median": (its["commit_median_ms"] / mine["commit_median_ms"], 1),
        "commit_p99": (its["commit_p99_ms"] / mine["commit_p99_ms"], 1),
    }
    return found | {
        "times as good": {
            name: {"ratio": round(ratio, 2), "target": target, "reached": ratio >= target}
            for name, (ratio, target) in ratios.items()
        }
    }


def write_log(server: Server, lines: list[bytes]) -> int:
    """Write the log that is read; return how many of its records are committed."""
    make_topic(server, TOPIC, 1)
    client = transactional(server, "writer")
    committed = 0
    for number in range(LOG_RECORDS // BATCH):
        client.begin_transaction()
        for at in range(BATCH):
            client.produce(TOPIC, lines[(number * BATCH + at) % len(lines)], partition=0)
        if number % ABORTED:
            client.commit_transaction(PATIENCE_S)
            committed += BATCH
        else:
            client.flush(PATIENCE_S)  # else it would drop them unsent
            client.abort_transaction(PATIENCE_S)
    return committed


def reading(folder: Path) -> dict[str, Any]:
    """Read a log with both levels of isolation, alternating."""
    with ours(folder / "ours") as start:
        server = start()
        first_records(server)
        counts = {"read_committed": write_log(server, values(SIZE)), "read_uncommitted": LOG_RECORDS}
        log = magicbyte.open_log(folder / "ours" / "data" / f"{TOPIC}-0")

        def by_broker(level: str) -> float:
            used = server.cpu()
            consume(server, TOPIC, counts[level], {"isolation.level": level})
            return server.cpu() - used

        def from_disk(level: str) -> float:
            used = time.process_time()
            read = sum(len(each) for each in log.arrow_batches(isolation=level, threads=1))  # type: ignore[arg-type]
            assert read == counts[level]
            return time.process_time() - used

        return {"broker": compared(by_broker, counts), "log directory": compared(from_disk, counts)}


def compared(read: Callable[[str], float], levels: dict[str, int]) -> dict[str, Any]:
    """Return the seconds of CPU for the log at each level, the median of rounds that alternate, and how many more."""
    seconds: dict[str, list[float]] = {level: [] for level in levels}
    for number in range(READ_ROUNDS + 2):
        for level in sorted(levels, reverse=bool(number % 2)):
            used = read(level)
            if number >= 2:
                seconds[level].append(used)
    found = {level: {"cpu_ms": round(statistics.mean(each) * 1e3, 2)} for level, each in seconds.items()}
    more = found["read_committed"]["cpu_ms"] / found["read_uncommitted"]["cpu_ms"] - 1
    return found | {"more": {"share": round(more, 3), "target": 0.05, "reached": more <= 0.05}}


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {"transactions": committing, "read_committed": reading}


if __name__ == "__main__":
    harness.run_cases("transactions", __doc__, CASES)
