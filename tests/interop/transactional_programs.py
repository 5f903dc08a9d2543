"""Transactional programs with librdkafka, as processes that tests kill: `write` and `copy`.

Run: python -m interop.transactional_programs write|copy BOOTSTRAP SEED INCARNATION

`write` sends unique values to the topic SOURCE, a transaction after the other. `copy` reads its committed records,
and sends each value to TARGET, with the offsets in the same transaction. Some transactions are aborted on purpose. Each
prints, one JSON array a line, what it does: `["begin"]`, `["polled", {partition: [[offset, value]]}]`,
`["send", partition, value]` before it is sent, `["committed", [offset]]`, `["aborted"]`, and `["given up", error,
[offset]]` behind an error after which a new producer is needed. The end of standard input ends
it behind the transaction that it is in; `copy` first copies all that is committed.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

SOURCE: Final = "source"
TARGET: Final = "target"
PARTITIONS: Final = 3
GROUP: Final = "copier"
MOST_SENT: Final = 6
ABORTED: Final = 0.15
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.02


def common(bootstrap: str) -> dict[str, Any]:
    """Return the settings of all clients."""
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 2,  # otherwise they log each lost connection
        # else send_offsets_to_transaction of librdkafka 2.16 hangs behind a restart of its only broker: its issue 5511
        "metadata.recovery.strategy": "none",
        "reconnect.backoff.max.ms": 500,
        "socket.timeout.ms": 10_000,
        "topic.metadata.refresh.interval.ms": 5000,
    }


def reader_of(bootstrap: str, group: str) -> Consumer:
    """Return a consumer that reads committed records and assigns partitions itself."""
    return Consumer(
        {
            **common(bootstrap), "group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed",
            "auto.offset.reset": "error", "check.crcs": True, "enable.partition.eof": True,
        }
    )  # fmt: skip


def log_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def value_of(message: Message) -> str:
    return (message.value() or b"").decode()


def place_of(message: Message) -> tuple[int, int]:
    """Return the partition and the offset of a message, or of a partition's end."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def is_end(message: Message) -> bool:
    """Return whether this says that the end of a partition is reached."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def say(*line: object) -> None:
    print(json.dumps(line), flush=True)


class Transactions:
    """The transactions of one producer, which it prints."""

    def __init__(self, bootstrap: str, transactional_id: str, pick: random.Random) -> None:
        self._bootstrap, self._id, self._pick, self._offsets = bootstrap, transactional_id, pick, list[int | None]()
        self._start()

    def _start(self) -> None:
        """Start a producer, which aborts an open transaction of the one before."""
        self._producer = Producer(
            {
                **common(self._bootstrap),
                "transactional.id": self._id,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 0,
            }
        )
        _until_done(lambda: self._producer.init_transactions(PATIENCE_S))

    def run(
        self,
        topic: str,
        records: Iterable[tuple[int, str]],
        polled: dict[str, list[tuple[int, str]]],
        add: Callable[[Producer], None] | None = None,
    ) -> bool:
        """Send records, partition and value each, in one transaction and end it. Return whether it was committed."""
        try:
            return self._run(topic, records, polled, add)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            # as when it ends a transaction that the coordinator does not know, because the broker was killed before it
            # read AddPartitionsToTxn
            say("given up", error.args[0].name(), self._offsets)
            self._start()
            return False

    def _run(
        self,
        topic: str,
        records: Iterable[tuple[int, str]],
        polled: dict[str, list[tuple[int, str]]],
        add: Callable[[Producer], None] | None,
    ) -> bool:
        self._offsets = []
        self._producer.begin_transaction()
        say("begin")
        if polled:
            say("polled", polled)
        try:
            for at, (partition, value) in enumerate(records):
                say("send", log_of(topic, partition), value)
                self._offsets.append(None)
                self._producer.produce(
                    topic, value.encode(), partition=partition,
                    on_delivery=partial(self._delivered, at),
                )  # fmt: skip
            if self._pick.random() < ABORTED:
                self._producer.flush(self._pick.choice((0, 5)))
                self._abort()
                return False
            if add is not None:
                _until_done(lambda: add(self._producer))
            _until_done(lambda: self._producer.commit_transaction(PATIENCE_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort()
            return False
        say("committed", self._offsets)
        return True

    def _abort(self) -> None:
        _until_done(lambda: self._producer.abort_transaction(PATIENCE_S))
        say("aborted")

    def _delivered(self, at: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._offsets[at] = message.offset()


def _until_done(work: Callable[[], None]) -> None:
    """Call again while the error says that it may succeed."""
    while True:
        try:
            return work()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def write(bootstrap: str, pick: random.Random, incarnation: int, stop: threading.Event) -> None:
    """Send unique values to the source."""
    transactions, number = Transactions(bootstrap, "writer", pick), 0
    while not stop.wait(PAUSE_S):
        values = [f"{incarnation}.{number + each}" for each in range(pick.randint(1, MOST_SENT))]
        number += len(values)
        transactions.run(SOURCE, ((pick.randrange(PARTITIONS), each) for each in values), {})


def copy(bootstrap: str, pick: random.Random, incarnation: int, stop: threading.Event) -> None:
    """Send the committed records of the source to the target, from the group's offsets on."""
    transactions, attempt = Transactions(bootstrap, "copier", pick), 0
    consumer = reader_of(bootstrap, GROUP)
    partitions = [TopicPartition(SOURCE, each) for each in range(PARTITIONS)]
    positions, at_end, is_ending = list[int](), set[int | None](), False
    while not is_ending or len(at_end) < PARTITIONS:
        if stop.is_set() and not is_ending:
            is_ending = True
            positions.clear()  # the ends are reported again after an assignment
        if not positions:
            _until_done(lambda: positions.extend(max(each.offset, 0) for each in consumer.committed(partitions, 60)))
            consumer.assign([TopicPartition(SOURCE, *each) for each in enumerate(positions)])
            at_end.clear()
        told = consumer.consume(20, timeout=0.2)
        at_end.update(each.partition() for each in told if is_end(each))
        messages = [each for each in told if each.error() is None]
        if not messages:
            continue
        polled: dict[str, list[tuple[int, str]]] = {}
        for each in messages:
            partition, offset = place_of(each)
            polled.setdefault(log_of(SOURCE, partition), []).append((offset, value_of(each)))
            positions[partition] = offset + 1
        attempt += 1
        values = [(place_of(each)[0], f"{value_of(each)}/{incarnation}.{attempt}") for each in messages]
        offsets = [TopicPartition(SOURCE, *each) for each in enumerate(positions)]
        commit_offsets = partial(_send_offsets, offsets, consumer.consumer_group_metadata())
        if not transactions.run(TARGET, values, polled, commit_offsets):
            positions.clear()
            at_end.clear()
    consumer.close()


def _send_offsets(offsets: list[TopicPartition], group: object, producer: Producer) -> None:
    producer.send_offsets_to_transaction(offsets, group, PATIENCE_S)


def main() -> None:
    name, bootstrap, seed, incarnation = sys.argv[1:]
    stop = threading.Event()
    threading.Thread(target=_stop_at_end_of_input, args=(stop,), daemon=True).start()
    program = {"write": write, "copy": copy}[name]
    program(bootstrap, random.Random(f"{name} {seed} {incarnation}"), int(incarnation), stop)


def _stop_at_end_of_input(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    main()
