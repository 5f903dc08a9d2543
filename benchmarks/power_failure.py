"""Three of our brokers lose power together: how many of a million records are lost?

They are processes on disks that forget at a power failure all bytes that were not synced.

- group commit, kafka: records of 100 bytes with `acks=all` to three partitions with three replicas,
  `min.insync.replicas=2`, with `log.flush.policy=group-commit` and with Kafka's default. Four times while they are sent
  all brokers are killed and their disks lose power at once; then the brokers start again. In the end everything is
  read: `lost` are acknowledged records that are not there. ZooKeeper keeps its power.
- flips: as group commit without power failures; then 20 bits flip in the logs of one broker, and the brokers check
  theirs (`replica.scrub.interval.ms`). `repaired_s`: until all replicas are equal again byte for byte.
- cost: without these disks, records/s with `acks=all` and linger.ms=5, and the time of single records one after the
  other, by flush policy. The disk is that of the machine.

Anchor (Jepsen, NATS 2.12.1): 131,418 of 930,005 acknowledged records lost by a coordinated power failure; 679,153 of
1,367,069 by bits that flipped on one of five nodes.

The disks are lossy_disk.py, which says what it needs.

Run: python benchmarks/power_failure.py [CASE...]   (written to benchmarks/results/power_failure.json)
"""

import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

import harness
from cluster import BROKERS, PARTITIONS, PATIENCE_S, Cluster, Ours, cluster

COUNT = int(os.environ.get("RECORDS", "1000000"))
FAILURES, FLIPS, SINGLE, ROUND = 4, 20, 100, 10_000
TOPIC = "kept"
DISK = Path(__file__).with_name("lossy_disk.py")
POLICIES = {
    "kafka": (),
    "group-commit": ("log.flush.policy=group-commit",),
    "flush.messages=1": ("log.flush.interval.messages=1",),
}


class OnLossyDisks(Ours):
    """Brokers whose directories are mounts of lossy disks."""

    def __init__(self, folder: Path, zookeeper: int, session_ms: int) -> None:
        super().__init__(folder, zookeeper, session_ms)
        self.disks: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        if number not in self.disks:
            self._mount(number)
        super().start(number)

    def _mount(self, number: int) -> None:
        disk, mount = self.folder / f"disk-{number}", self.folder / str(number)
        disk.mkdir(exist_ok=True)
        mount.mkdir(exist_ok=True)
        self.disks[number] = subprocess.Popen([sys.executable, str(DISK), str(disk), str(mount)])
        self.wait_for(lambda: os.path.ismount(mount), "the disk is mounted")

    def unmount(self, number: int) -> None:
        """End a disk; what was not synced is lost."""
        process = self.disks.pop(number)
        process.kill()
        process.wait(60)
        subprocess.run(["umount", "-l", str(self.folder / str(number))], check=True)
        disk = self.folder / f"disk-{number}"
        shutil.rmtree(disk / "live")
        shutil.copytree(disk / "durable", disk / "live")

    def power_failure(self) -> None:
        """Kill all brokers, and lose what they have not synced."""
        for process in self._processes.values():
            process.kill()
        for number in list(self.servers):
            self.kill(number)
        for number in list(self.disks):
            self.unmount(number)


@contextlib.contextmanager
def running(folder: Path, *settings: str) -> Iterator[OnLossyDisks]:
    class Made(OnLossyDisks):
        def __init__(self, folder: Path, zookeeper: int, session_ms: int) -> None:
            super().__init__(folder, zookeeper, session_ms)
            self.settings = (*self.settings, "min.insync.replicas=2", *settings)

    with cluster(Made, folder) as made:
        assert isinstance(made, Made)
        try:
            made.make(TOPIC)
            yield made
        finally:
            for number in list(made.servers):
                made.kill(number)
            for number in list(made.disks):
                made.unmount(number)


def producer(made: Cluster) -> Producer:
    return Producer(
        {"bootstrap.servers": made.bootstrap, "acks": "all", "linger.ms": 5, "message.timeout.ms": PATIENCE_S * 1000}
    )


def send_all(made: Cluster, failures: list[int], fail: Any) -> bytearray:
    """Send `COUNT` records, with a power failure at each of these numbers; return which were acknowledged."""
    acknowledged, client = bytearray(COUNT), producer(made)

    def note(number: int) -> Any:
        def told(error: object, _: object) -> None:
            if error is None:
                acknowledged[number] = 1

        return told

    for number in range(COUNT):
        while True:
            try:
                client.produce(TOPIC, b"%-100d" % number, partition=number % PARTITIONS, callback=note(number))
                break
            except BufferError:
                client.poll(0.1)
        if number in failures:
            client.poll(0.2)
            fail()
        elif not number % 1000:
            client.poll(0)
    left = client.flush(PATIENCE_S)
    assert not left, f"{left} records have no answer"
    return acknowledged


def read_all(made: Cluster) -> bytearray:
    """Return which records are in the logs."""
    found = bytearray(COUNT)
    client = Consumer({"bootstrap.servers": made.bootstrap, "group.id": "judge", "enable.auto.commit": False})
    ends = {}
    for partition in range(PARTITIONS):
        start, end = client.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=60)
        ends[partition] = end if end > start else 0
    client.assign([TopicPartition(TOPIC, partition, 0) for partition in ends])
    deadline = time.monotonic() + PATIENCE_S
    while any(ends.values()):
        assert time.monotonic() < deadline, f"not read to the ends {ends}"
        for message in client.consume(10_000, 1.0):
            if message.error() is None:
                found[int(message.value())] = 1
                if message.offset() + 1 >= ends[message.partition()]:
                    ends[message.partition()] = 0
    client.close()
    return found


def counts(acknowledged: bytearray, found: bytearray) -> dict[str, int]:
    lost = sum(1 for told, there in zip(acknowledged, found, strict=True) if told and not there)
    return {"acknowledged": sum(acknowledged), "lost": lost}


def losing_power(folder: Path, *settings: str) -> dict[str, Any]:
    with running(folder / "power", *settings) as made:
        down = list[float]()

        def fail() -> None:
            made.power_failure()
            begin = time.monotonic()
            made.start_all()
            made.until_in_sync(TOPIC)
            down.append(time.monotonic() - begin)

        drawn = random.Random(40)
        failures = [int(COUNT * (at + drawn.uniform(0.3, 0.9)) / FAILURES) for at in range(FAILURES)]
        acknowledged = send_all(made, failures, fail)
        made.until_in_sync(TOPIC)
        found = counts(acknowledged, read_all(made))
        return {"settings": list(settings), "power_failures": FAILURES, **found}


def flipping(folder: Path) -> dict[str, Any]:
    with running(folder / "flips", *POLICIES["group-commit"], "replica.scrub.interval.ms=1000") as made:
        acknowledged = send_all(made, [], None)
        made.until_in_sync(TOPIC)
        drawn = random.Random(40)
        files = made.logs(BROKERS[0], TOPIC)
        for _ in range(FLIPS):
            path = drawn.choice(files)
            position, bit = drawn.randrange(path.stat().st_size), 1 << drawn.randrange(8)
            with path.open("r+b") as file:
                file.seek(position)
                byte = file.read(1)[0]
                file.seek(position)
                file.write(bytes([byte ^ bit]))

        def are_equal() -> bool:
            logs = [{path.parent.name: b"" for path in made.logs(number, TOPIC)} for number in BROKERS]
            for number, log in zip(BROKERS, logs, strict=True):
                for path in made.logs(number, TOPIC):
                    log[path.parent.name] += path.read_bytes()
            return logs[0] == logs[1] == logs[2]

        begin = time.monotonic()
        is_damaged = not are_equal()
        made.wait_for(are_equal, "all replicas are equal")
        seconds = time.monotonic() - begin
        found = counts(acknowledged, read_all(made))
        return {"bits": FLIPS, "differed": is_damaged, "repaired_s": round(seconds, 1), **found}


def costing(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, settings in POLICIES.items():

        class Made(Ours):
            def __init__(self, folder: Path, zookeeper: int, session_ms: int) -> None:
                super().__init__(folder, zookeeper, session_ms)
                self.settings = (*self.settings, "min.insync.replicas=2", *settings)  # noqa: B023

        with cluster(Made, folder / name) as made:
            made.make(TOPIC)
            rates, times, client = list[float](), list[float](), producer(made)
            for at in range(4):
                begin = time.perf_counter()
                for number in range(ROUND):
                    client.produce(TOPIC, b"%-100d" % number, partition=number % PARTITIONS)
                    if not number % 1000:
                        client.poll(0)
                assert not client.flush(PATIENCE_S)
                if at:
                    rates.append(ROUND / (time.perf_counter() - begin))
            single = Producer({"bootstrap.servers": made.bootstrap, "acks": "all", "linger.ms": 0})
            for _ in range(SINGLE):
                begin = time.perf_counter()
                single.produce(TOPIC, b"%-100d" % 1, partition=0)
                assert not single.flush(60)
                times.append(time.perf_counter() - begin)
            times.sort()
            results[name] = {
                "records_per_s": round(statistics.median(rates)),
                "lowest": round(min(rates)),
                "highest": round(max(rates)),
                "single_ms": round(1000 * statistics.median(times), 2),
                "single_p99_ms": round(1000 * times[int(0.99 * SINGLE)], 2),
            }
    return results


if __name__ == "__main__":
    harness.run_cases(
        "power_failure",
        __doc__,
        {
            "group commit": lambda folder: losing_power(folder, *POLICIES["group-commit"]),
            "kafka": losing_power,
            "flips": flipping,
            "cost": costing,
        },
    )
