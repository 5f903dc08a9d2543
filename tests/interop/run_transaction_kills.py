"""Transactions while brokers and clients are killed: committed records are there once, and no others are.

A writer sends unique values in transactions; a copier consumes, transforms and produces them; both are processes with
librdkafka (transactional_programs.py). A consumer reads both topics with `read_committed` all the while. Each round
kills a broker and one or both of the programs with SIGKILL, in random order and distance, and starts them again. The
next round begins when each program has committed again. The checker of histories judges what clients saw. A new
consumer reads both topics in the end: each committed value of the source is in the target once, in order.

Run: PYTHONPATH=tests python -m interop.run_transaction_kills --rounds 100 --out FIGURES
(tests/interop/transaction_kill_figures.json is committed)
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from builders import add_run
from interop.bounced import SIZES, Bounced, make_topics, running
from interop.processes import DIES_WITH_US, BadDayError
from interop.run_cluster_kills import judge_history
from interop.transactional_programs import (
    PARTITIONS,
    SOURCE,
    TARGET,
    is_end,
    log_of,
    place_of,
    reader_of,
    value_of,
)
from magicbyte.testing.checker import Pending, Recorder

PROGRAMS: Final = ("write", "copy")
PATIENCE_S: Final = 120.0
TESTS: Final = Path(__file__).parent.parent
LOGS: Final = [log_of(topic, partition) for topic in (SOURCE, TARGET) for partition in range(PARTITIONS)]


class Program:
    """A transactional program: one process after the other, whose transactions are recorded.

    `commits`: of all. `given_up`: errors after which it restarted, with the offsets that were acknowledged before.
    """

    def __init__(self, name: str, bootstrap: str, recorder: Recorder, seed: int, folder: Path) -> None:
        self.name, self.commits, self.given_up = name, 0, list[list[Any]]()
        self._arguments, self._recorder = (bootstrap, str(seed)), recorder
        self._incarnations = itertools.count()
        self._log = folder / f"{name}.log"
        self.start()

    def start(self) -> None:
        program = [sys.executable, "-m", "interop.transactional_programs", self.name, *self._arguments]
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*DIES_WITH_US, *program, str(next(self._incarnations))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=TESTS,
            )  # fmt: skip
        self._thread = threading.Thread(target=self._record)
        self._thread.start()

    def _record(self) -> None:
        """Record each transaction. The outcome of the last one of a killed program is unknown."""
        pending: Pending | None = None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("]\n"):
                break  # it was killed while it wrote
            what, *told = json.loads(line)
            if what == "begin":
                pending = self._recorder.transaction(self.name)
                continue
            assert pending is not None, line
            if what == "polled":
                pending.polled({log: [(at, value) for at, value in records] for log, records in told[0].items()})
            elif what == "send":
                pending.send(*told)
            elif what == "committed":
                pending.ok(*told[0])
                self.commits += 1
            elif what == "aborted":
                pending.fail()
            else:
                self.given_up.append(told)

    def check_is_running(self) -> None:
        if self._process.poll() is not None:
            raise BadDayError(f"{self.name} ended by itself: {self._log.read_text()[-3000:]}")
        for error, offsets in self.given_up:
            if any(each is not None for each in offsets):
                raise BadDayError(f"{self.name} gave up a transaction with acknowledged records: {error}, {offsets}")

    def kill(self) -> None:
        self.check_is_running()
        self._process.send_signal(signal.SIGKILL)
        self._ended(-signal.SIGKILL)
        self._recorder.crash(self.name)

    def end(self) -> None:
        """End it behind its transaction."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._ended(0)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def _ended(self, status: int) -> None:
        try:
            found = self._process.wait(PATIENCE_S)
        finally:
            self.close()
        if found != status:
            raise BadDayError(f"{self.name} ended with {found}: {self._log.read_text()[-3000:]}")


def read(bootstrap: str, recorder: Recorder, name: str, stop: threading.Event | None = None) -> dict[str, list[str]]:
    """Read both topics from their starts to the event, or to their ends; record polls and return the values."""
    consumer = reader_of(bootstrap, name)
    values: dict[str, list[str]] = {each: [] for each in LOGS}
    at_end, deadline = set[str](), time.monotonic() + PATIENCE_S
    consumer.assign([TopicPartition(topic, each, 0) for topic in (SOURCE, TARGET) for each in range(PARTITIONS)])
    while len(at_end) < len(LOGS) if stop is None else not stop.is_set():
        if stop is None and time.monotonic() > deadline:
            raise BadDayError(f"the {name} reached the ends of {sorted(at_end)} only")
        with recorder.poll(name) as poll:
            records: dict[str, list[tuple[int, str]]] = {}
            for message in consumer.consume(500, timeout=0.3):
                error = message.error()
                if is_end(message):
                    at_end.add(log_of(message.topic(), message.partition()))
                elif error is None:
                    partition, offset = place_of(message)
                    log = log_of(message.topic(), partition)
                    records.setdefault(log, []).append((offset, value_of(message)))
                    values[log].append(value_of(message))
                elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    raise BadDayError(f"the {name}: {error}")
            poll.polled(records)
            poll.ok()
    consumer.close()
    return values


def judge_values(values: dict[str, list[str]]) -> int:
    """See that the target has each value of the source once, in its order; return how many. Raises BadDayError."""
    count = 0
    for partition in range(PARTITIONS):
        source = values[log_of(SOURCE, partition)]
        target = [each.partition("/")[0] for each in values[log_of(TARGET, partition)]]
        if len(set(source)) != len(source):
            raise BadDayError(f"{log_of(SOURCE, partition)}: a value is there twice")
        if target != source:
            at = next((at for at, pair in enumerate(zip(source, target, strict=False)) if len(set(pair)) > 1), None)
            raise BadDayError(
                f"{log_of(TARGET, partition)} has {len(target)} values, the source {len(source)}; "
                f"the first difference is at {at if at is not None else min(len(source), len(target))}"
            )
        count += len(source)
    return count


def _kill(brokers: Bounced, programs: list[Program], pick: random.Random) -> None:
    """Kill a broker and programs, in an order and distance by chance, and start them again."""

    def kill_programs() -> None:
        for each in programs:
            time.sleep(pick.uniform(0, 0.3))
            each.kill()

    if pick.random() < 0.5:
        kill_programs()
        brokers.bounce(hard=True)
    else:
        with ThreadPoolExecutor(1) as other:  # a broker dies with the thread that started it: with this one
            killed = other.submit(kill_programs)
            brokers.bounce(hard=True)
            killed.result()
    for each in programs:
        each.start()


def _await_progress(programs: list[Program]) -> None:
    """Wait until each program has committed twice more: a transaction that was begun before may be one of them."""
    before, end = [each.commits for each in programs], time.monotonic() + PATIENCE_S
    while any(each.commits < count + 2 for each, count in zip(programs, before, strict=True)):
        for each in programs:
            each.check_is_running()
        if time.monotonic() > end:
            raise BadDayError(f"no transactions are committed {PATIENCE_S} s after the kill")
        time.sleep(0.05)


@contextlib.contextmanager
def _reading(bootstrap: str, recorder: Recorder) -> Iterator[None]:
    """Read both topics inside the block."""
    stop, failed = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            read(bootstrap, recorder, "reader", stop)
        except (BadDayError, KafkaException) as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def campaign(folder: Path, rounds: int, *, size: str, seed: int, as_version: str) -> dict[str, Any]:
    """Kill in so many rounds; return what happened. Raises BadDayError."""
    began, pick = time.monotonic(), random.Random(seed)
    tally, recorder = Counter[str](), Recorder(lambda: time.monotonic_ns() // 1_000_000)
    with running(size, folder, as_version=as_version) as brokers:
        make_topics(brokers.bootstrap, PARTITIONS, SOURCE, TARGET)
        programs = [Program(each, brokers.bootstrap, recorder, seed, folder) for each in PROGRAMS]
        try:
            with _reading(brokers.bootstrap, recorder):
                _await_progress(programs)
                for number in range(rounds):
                    victims = pick.choice(([programs[0]], [programs[1]], programs))
                    tally[" and ".join(["broker", *(each.name for each in victims)])] += 1
                    since = time.monotonic()
                    _kill(brokers, victims, pick)
                    _await_progress(programs)
                    print(f"round {number}: {sum(each.commits for each in programs)} commits, "
                          f"{time.monotonic() - since:.1f} s", flush=True)  # fmt: skip
                    time.sleep(pick.uniform(0, 0.5))
                for each in programs:
                    each.end()
        finally:
            for each in programs:
                each.close()
        values = read(brokers.bootstrap, recorder, "last reader")
    return {
        "seed": seed, "size": size, "asVersion": as_version, "rounds": rounds,
        "seconds": round(time.monotonic() - began), "kills": dict(sorted(tally.items())),
        "commits": sum(each.commits for each in programs), "givenUp": sum(len(each.given_up) for each in programs),
        "copied": judge_values(values),
        **judge_history(recorder.history),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", choices=SIZES, default="one", help="one broker, or three in a cluster")
    parser.add_argument("--as-version", default="4.1", help="a release before 4.0 has transactions of protocol 1")
    parser.add_argument("--out", type=Path, help="a file to add the figures to, a run each")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = campaign(
            Path(folder), chosen.rounds, size=chosen.size, seed=chosen.seed, as_version=chosen.as_version
        )
    print(json.dumps(figures))
    if chosen.out is not None:
        add_run(chosen.out, figures)


if __name__ == "__main__":
    main()
