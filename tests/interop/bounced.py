"""One of our brokers as a process, or three in a cluster, which tests bounce while transactional programs run."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from interop.processes import DIES_WITH_US
from magicbyte.testing import Cluster
from ports import free_port

PATIENCE_S: Final = 120
SETTINGS: Final = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
SIZES: Final = ("one", "three")


class Bounced(Protocol):
    """Brokers that can be bounced. `bootstrap`: their addresses."""

    bootstrap: str

    def bounce(self, *, hard: bool) -> None:
        """End a broker, as a crash does (`hard`) or an operator, and start it again."""


class OneBroker:
    """A broker by itself: one process after the other, on one address and one log directory."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.bootstrap = f"127.0.0.1:{free_port()}"
        serve = [sys.executable, "-m", "magicbyte", "serve", "--dir", str(folder / "logs"), "--listen", self.bootstrap]
        self._command = [*DIES_WITH_US, *serve, *(f"{name}={value}" for name, value in settings.items())]
        self._log = folder / "broker.log"
        self._process: subprocess.Popen[str]

    def start(self) -> None:
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self._process.stdout is not None
        while self.bootstrap not in (line := self._process.stdout.readline()):
            assert line, f"the broker did not start: {self._log.read_text()[-3000:]}"

    def end(self, how: signal.Signals) -> None:
        assert self._process.poll() is None, f"the broker ended by itself: {self._log.read_text()[-3000:]}"
        self._process.send_signal(how)
        assert self._process.wait(PATIENCE_S) == (-how if how is signal.SIGKILL else 0)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def bounce(self, *, hard: bool) -> None:
        self.end(signal.SIGKILL if hard else signal.SIGTERM)
        self.start()

    def check_log(self) -> None:
        """Raise AssertionError if the broker told of a fault of its own."""
        assert "because of a bug" not in self._log.read_text()


class ThreeBrokers:
    """Three brokers of a cluster, of which one after the other is bounced."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self.bootstrap = cluster, cluster.bootstrap_servers
        self._next = 0

    def bounce(self, *, hard: bool) -> None:
        self._next = self._next % 3 + 1
        (self._cluster.kill if hard else self._cluster.stop)(self._next)
        self._cluster.restart(self._next)
        self._until_in_sync()

    def _until_in_sync(self) -> None:
        """Wait until all replicas are in sync, so that the next bounce leaves enough of them."""
        admin, end = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2}), time.monotonic() + PATIENCE_S
        while not _is_in_sync(admin):
            assert time.monotonic() < end, f"replicas are not in sync {PATIENCE_S} s after a bounce"
            time.sleep(0.1)


def _is_in_sync(admin: AdminClient) -> bool:
    try:
        topics = admin.list_topics(timeout=10).topics.values()
    except KafkaException:  # of a broker that starts
        return False
    return all(set(each.isrs) == set(each.replicas) for topic in topics for each in topic.partitions.values())


@contextlib.contextmanager
def running(size: str, folder: Path, **settings: str) -> Iterator[Bounced]:
    """Run one broker or three inside the block. `settings`: with `_` in place of dots."""
    given = SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}
    if size == "three":
        with Cluster(
            3, {"transaction.state.log.replication.factor": "3", "min.insync.replicas": "2"} | given
        ) as cluster:
            yield ThreeBrokers(cluster)
        return
    broker = OneBroker(folder, given)
    broker.start()
    try:
        yield broker
    finally:
        broker.end(signal.SIGTERM)
    broker.check_log()


def make_topics(bootstrap: str, partitions: int, *names: str, **configs: str) -> None:
    """Make topics with as many replicas as the brokers' default."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, partitions, -1, config=configs) for name in names])
    for each in made.values():
        each.result(PATIENCE_S)
