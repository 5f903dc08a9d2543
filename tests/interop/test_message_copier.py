"""Kafka's TransactionalMessageCopier, as Kafka's own system test runs it: brokers and copiers are bounced and killed.

After TransactionsTest of Kafka's system tests. What is copied is judged by a reader of committed records: nothing is
lost, nothing is there twice, and each partition is in order.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from interop import kafka_oracle
from interop.bounced import PATIENCE_S, Bounced, make_topics, running
from interop.processes import DIES_WITH_US

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

PARTITIONS, EVERY = 2, 6_000
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"


class Copier:
    """A copier of one partition: one process after the other, until all is copied."""

    def __init__(self, version: str, bootstrap: str, partition: int, log: Path, news: queue.Queue[int]) -> None:
        arguments = [
            "--broker-list", bootstrap, "--input-topic", "input", "--input-partition", str(partition),
            "--output-topic", "output", "--consumer-group", "copiers", "--transactional-id", f"copier-{partition}",
            "--transaction-size", "250", "--transaction-timeout", "20000", "--enable-random-aborts",
        ]  # fmt: skip
        self._command = [*DIES_WITH_US, *kafka_oracle.tool_command(version, COPIER, arguments)]
        self._log, self._news = log, news
        self.is_done = False
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._reader = threading.Thread(target=self._follow, args=[self._process])
        self._reader.start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        """Tell of each transaction how many messages it copied, and of the process that it ended."""
        assert process.stdout is not None
        copied = 0
        for line in process.stdout:
            if line.startswith("{"):
                told = json.loads(line)
                self._news.put(told["consumed"] - copied)
                copied = told["consumed"]
                self.is_done |= told["remaining"] == 0
        process.stdout.close()
        self._news.put(0)

    def end(self, how: signal.Signals) -> None:
        """End the process; what it was at is aborted by the next one, or by its timeout."""
        self._process.send_signal(how)
        self._process.wait(PATIENCE_S)
        self._reader.join()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def restart(self, how: signal.Signals) -> None:
        if not self.has_ended:
            self.end(how)
        self.start()


def fill(bootstrap: str, messages: int) -> None:
    """Write the numbers below `messages`, each to the partition of its remainder."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for number in range(messages):
        producer.produce("input", b"%d" % number, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0


def committed(bootstrap: str, partition: int, count: int) -> list[int]:
    """Return the first `count` numbers of a partition that are committed, and what follows them up to its end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
    reader = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True, "check.crcs": True})
    reader.assign([TopicPartition("output", partition, 0)])
    found = list[int]()
    is_at_end = False
    while len(found) < count or not is_at_end:
        messages = reader.consume(10_000, PATIENCE_S)
        assert messages, f"partition {partition}: {len(found)} of {count} are committed"
        for message in messages:
            error = message.error()
            is_at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            assert error is None or is_at_end or error.retriable(), error
            if error is None:
                found.append(int(message.value() or b""))
    reader.close()
    return found


@contextlib.contextmanager
def copying(version: str, brokers: Bounced, folder: Path, news: queue.Queue[int]) -> Iterator[list[Copier]]:
    copiers = [
        Copier(version, brokers.bootstrap, each, folder / f"copier-{each}.log", news) for each in range(PARTITIONS)
    ]
    try:
        yield copiers
    finally:
        for copier in copiers:
            if not copier.has_ended:
                copier.end(signal.SIGKILL)


@pytest.mark.parametrize(
    ("version", "size", "as_version", "messages"),
    [
        pytest.param("2.8.2", "one", None, 100_000, marks=pytest.mark.campaign),
        pytest.param("3.9.1", "three", None, 100_000, marks=pytest.mark.campaign),
        pytest.param("4.3.1", "one", "4.1", 100_000, marks=pytest.mark.campaign),
        ("4.3.1", "one", "4.1", 30_000),
    ],
    ids=["2.8.2 one", "3.9.1 three", "4.3.1 one, protocol 2", "4.3.1 one, protocol 2, fewer"],
)
def test_messages_are_copied_once_and_in_order_while_brokers_and_copiers_are_bounced(
    version: str, size: str, as_version: str | None, messages: int, tmp_path: Path
) -> None:
    news = queue.Queue[int]()
    more = {} if as_version is None else {"as_version": as_version}
    with running(size, tmp_path, **more) as brokers:
        make_topics(brokers.bootstrap, PARTITIONS, "input", "output")
        fill(brokers.bootstrap, messages)
        with copying(version, brokers, tmp_path, news) as copiers:
            events = itertools.cycle(["kill client", "kill broker", "stop client", "stop broker"])
            happened = copied = 0
            while not all(each.is_done for each in copiers):
                copied += news.get(timeout=PATIENCE_S)
                for copier in copiers:
                    if copier.has_ended and not copier.is_done:  # as one does that was fenced, or lost its broker
                        copier.restart(signal.SIGKILL)
                if copied < EVERY * (happened + 1):
                    continue
                event, who = next(events), copiers[happened % PARTITIONS]
                happened += 1
                if event.endswith("broker"):
                    brokers.bounce(hard=event == "kill broker")
                elif not who.is_done:
                    who.restart(signal.SIGKILL if event == "kill client" else signal.SIGTERM)
        assert happened >= min(10, messages // EVERY - 1)  # each kind of event at least once
        for partition in range(PARTITIONS):
            expected = list(range(partition, messages, PARTITIONS))
            assert committed(brokers.bootstrap, partition, len(expected)) == expected
