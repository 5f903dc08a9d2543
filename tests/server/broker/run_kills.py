"""Kills `magicbyte serve` again and again under producers and the cleaner: is each acknowledged record still there?

Twelve topics of all formats, some of them compacted. Producers are aiokafka's, plain and idempotent; they live through
all kills and resend what was not answered. What was acknowledged is noted by them alone, with its offset. After every
kill kafka-python, which shares no code with them or us, reads on where it had ended; at the end it reads everything
once more. The broker has few descriptors, and its log directory is that of a machine that stays up: SIGKILL ends a
process, a power cut is what the simulation has (docs/internals/crash-safety.md).

Run: PYTHONPATH=tests python -m broker.run_kills --kills 200 --out tests/server/broker/kill_figures.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import logging
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import kafka
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError, RequestTimedOutError

from builders import add_run
from magicbyte.access.client import Client, admin
from magicbyte.access.client.admin import NewTopic
from ports import free_port

DESCRIPTORS = 256
KEYS = 40
SETTINGS = {
    "log.initial.task.delay.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.retention.check.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.segment.delete.delay.ms": "200",
}
SMALL = {"segment.bytes": "30000", "file.delete.delay.ms": "200", "min.cleanable.dirty.ratio": "0.1"}


class Kind(NamedTuple):
    """What a topic is: its format, what it is compressed with, what becomes of it, and who produces to it."""

    format: str
    codec: str | None = None
    compacted: bool = False
    idempotent: bool = False
    flushes: bool = False

    @property
    def name(self) -> str:
        said = [f"v{self.format}" if self.format.isdigit() else self.format, self.codec or "plain"]
        said += ["compacted"] * self.compacted + ["idempotent"] * self.idempotent + ["flushed"] * self.flushes
        return "-".join(said)


KINDS = [
    Kind("0"),
    Kind("0", "gzip", compacted=True),
    Kind("1"),
    Kind("1", "lz4", compacted=True),
    Kind("2"),
    Kind("2", "zstd"),
    Kind("2", compacted=True),
    Kind("2", idempotent=True),
    Kind("2", "snappy", idempotent=True, compacted=True),
    Kind("2", idempotent=True, flushes=True),
    Kind("enriched"),
    Kind("enriched", "gzip", compacted=True),
]


@dataclass
class Ledger:
    """What a producer of one topic knows: `acknowledged` has the offset of each of its numbers, `sent` how many."""

    kind: Kind
    sent: int = 0
    acknowledged: dict[int, int] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)

    def key(self, number: int) -> bytes:
        return b"%d" % (random.Random(number).randrange(KEYS) if self.kind.compacted else number)

    def value(self, number: int) -> bytes:
        text = f"{self.kind.name}:{number}:"
        return (text + hashlib.sha256(text.encode()).hexdigest() * (1 + number % 6)).encode()


@dataclass
class Found:
    """What the reader found in a topic: the offset of each number, in the order of reading."""

    numbers: list[tuple[int, int]] = field(default_factory=list)  # offset, number
    position: int = 0


class LostError(AssertionError):
    """An acknowledged record is gone, or something else that must not be."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise LostError(what)


# ---- the broker


class Served:
    """`magicbyte serve` on one port, in one process after another."""

    def __init__(self, folder: Path, port: int, descriptors: int) -> None:
        self.folder, self.port, self.descriptors = folder, port, descriptors
        self.process: asyncio.subprocess.Process | None = None
        self.log = (folder.parent / "broker.log").open("ab")

    async def start(self, *, listens: bool = True) -> None:
        """Start it; return when it listens, or at once."""
        given = [f"{name}={value}" for name, value in SETTINGS.items()]
        arguments = ["-m", "magicbyte", "serve", "--dir", str(self.folder), "--listen", f"127.0.0.1:{self.port}"]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, *given, stdout=asyncio.subprocess.PIPE, stderr=self.log,
            preexec_fn=self._limit,
        )  # fmt: skip
        assert self.process.stdout is not None
        while listens and f":{self.port}".encode() not in (line := await self.process.stdout.readline()):
            expect(bool(line), f"the broker did not start: see {self.log.name}")

    def _limit(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))

    async def end(self, how: signal.Signals) -> int:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(how)
        return await self.process.wait()


# ---- the producers


async def produce(ledger: Ledger, address: str, stop: asyncio.Event, seed: int) -> None:
    """Send numbers, several at a time, and note which were acknowledged, until the event."""
    kind = ledger.kind
    pick = random.Random(seed)
    producer = AIOKafkaProducer(
        bootstrap_servers=address, acks="all", compression_type=kind.codec, enable_idempotence=kind.idempotent,
        linger_ms=5, request_timeout_ms=120_000, retry_backoff_ms=50, metadata_max_age_ms=10_000,
    )  # fmt: skip
    await producer.start()
    try:
        while not stop.is_set():
            numbers = range(ledger.sent, ledger.sent + pick.randint(1, 30))
            ledger.sent = numbers.stop
            asked = [
                (number, await producer.send(kind.name, ledger.value(number), ledger.key(number), partition=0))
                for number in numbers
            ]
            for number, future in asked:
                try:
                    ledger.acknowledged[number] = (await future).offset
                except (KafkaTimeoutError, RequestTimedOutError) as error:  # not answered: it may be there or not
                    ledger.refused[type(error).__name__] += 1
                except KafkaError as error:
                    ledger.refused[type(error).__name__] += 1
                    expect(not kind.idempotent, f"{kind.name}: a producer was refused: {error!r}")
            await asyncio.sleep(0.01)
    finally:
        await producer.stop()


# ---- the reader


def read_on(address: str, ledgers: list[Ledger], found: dict[str, Found], *, again: bool = False) -> int:
    """Read each topic from where the last reader ended, or all of it, with kafka-python; return how many records."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address, enable_auto_commit=False, check_crcs=True, fetch_max_wait_ms=50,
    )  # fmt: skip
    count = 0
    try:
        places = {kafka.TopicPartition(ledger.kind.name, 0): ledger for ledger in ledgers}
        consumer.assign(list(places))
        ends = consumer.end_offsets(list(places))
        for place, ledger in places.items():
            if again:
                found[ledger.kind.name] = Found()
            consumer.seek(place, found[ledger.kind.name].position)
        while any(consumer.position(place) < ends[place] for place in places):
            for place, records in consumer.poll(timeout_ms=2000).items():
                ledger = places[place]
                mine = found[ledger.kind.name]
                for record in records:
                    number = int(record.value.split(b":")[1])
                    sound = (record.key, record.value) == (ledger.key(number), ledger.value(number))
                    expect(sound, f"{place}: {record.offset} has other bytes than were sent")
                    expect(record.offset >= mine.position, f"{place}: {record.offset} came behind {mine.position}")
                    mine.numbers.append((record.offset, number))
                    mine.position = record.offset + 1
                    count += 1
        for place, ledger in places.items():
            found[ledger.kind.name].position = consumer.position(place)
    finally:
        consumer.close()
    return count


def verify(ledger: Ledger, found: Found, acknowledged: dict[int, int]) -> None:
    """See that each number that was acknowledged is at its offset; of compacted topics the latest of each key."""
    kind, there = ledger.kind, dict(found.numbers)
    if kind.compacted:
        latest: dict[bytes, int] = {}
        for _, number in sorted(found.numbers):
            latest[ledger.key(number)] = number
        for number, offset in acknowledged.items():
            key = ledger.key(number)
            kept = (
                there.get(offset) == number
                or max((at for at, other in found.numbers if ledger.key(other) == key), default=-1) > offset
            )
            expect(kept, f"{kind.name}: {number} at {offset} was acknowledged, and nothing stands for it")
    else:
        for number, offset in acknowledged.items():
            expect(there.get(offset) == number, f"{kind.name}: {number} was acknowledged at {offset}, and is not there")
    if kind.idempotent:
        numbers = [number for _, number in sorted(found.numbers)]
        expect(
            numbers == sorted(set(numbers)), f"{kind.name}: records of an idempotent producer twice, or out of order"
        )


# ---- the campaign


async def campaign(
    folder: Path, kills: int, *, seed: int = 1, descriptors: int = DESCRIPTORS, seconds: float = 3600
) -> dict[str, Any]:
    """Kill so many times, or fewer in so many seconds; return what happened.

    Raises LostError at the first record that is not as acknowledged: figures are returned only if nothing was lost.
    """
    for library in ("aiokafka", "kafka"):  # they tell of each connection that a kill ends
        logging.getLogger(library).setLevel(logging.CRITICAL)
    pick, began = random.Random(seed), time.monotonic()
    port = free_port()
    address = f"127.0.0.1:{port}"
    broker = Served(folder / "data", port, descriptors)
    ledgers, found = [Ledger(kind) for kind in KINDS], {kind.name: Found() for kind in KINDS}
    tally: Counter[str] = Counter()
    await broker.start()
    async with Client(address) as client:
        for kind in KINDS:
            configs = {**SMALL, "message.format.version": kind.format}
            configs |= {"flush.messages": "1"} if kind.flushes else {}
            configs["cleanup.policy"] = "compact" if kind.compacted else "delete"
            await admin.create_topic(client, NewTopic(kind.name, 1, 1, configs=configs))
    stop = asyncio.Event()
    producers = [asyncio.create_task(produce(each, address, stop, seed + at)) for at, each in enumerate(ledgers)]
    try:
        for _ in range(kills):
            if time.monotonic() - began > seconds:
                break
            before = sum(len(each.acknowledged) for each in ledgers)
            waited = time.monotonic()
            while sum(len(each.acknowledged) for each in ledgers) < before + 60 and time.monotonic() < waited + 60:
                await _alive(producers)
            expect(sum(len(each.acknowledged) for each in ledgers) > before, "no further record is acknowledged")
            await asyncio.sleep(pick.uniform(0, 0.4))
            known = {each.kind.name: dict(each.acknowledged) for each in ledgers}
            expect(await broker.end(signal.SIGKILL) == -signal.SIGKILL, "the broker had ended by itself")
            tally["kills"] += 1
            if pick.random() < 0.15:
                await broker.start(listens=False)
                await asyncio.sleep(pick.uniform(0.2, 1.2))
                expect(await broker.end(signal.SIGKILL) == -signal.SIGKILL, "the broker had ended by itself")
                tally["killsOfAStart"] += 1
            await broker.start()
            tally["recordsReadBetweenKills"] += await asyncio.to_thread(read_on, address, ledgers, found)
            for each in ledgers:
                verify(each, found[each.kind.name], known[each.kind.name])
        stop.set()
        await asyncio.wait_for(asyncio.gather(*producers), 150)
        tally["recordsReadAtTheEnd"] = await asyncio.to_thread(read_on, address, ledgers, found, again=True)
        for each in ledgers:
            verify(each, found[each.kind.name], each.acknowledged)
        expect(await broker.end(signal.SIGTERM) == 0, "the broker did not end cleanly")
    finally:
        for task in producers:
            task.cancel()
        await asyncio.gather(*producers, return_exceptions=True)
        if broker.process is not None and broker.process.returncode is None:
            await broker.end(signal.SIGKILL)
        broker.log.close()
    return {
        **tally,
        "acknowledged": sum(len(each.acknowledged) for each in ledgers),
        "descriptors": descriptors,
        "seconds": round(time.monotonic() - began),
        "seed": seed,
        "topics": {
            each.kind.name: {
                "acknowledged": len(each.acknowledged),
                "sent": each.sent,
                "kept": len(found[each.kind.name].numbers),
                **({"unanswered": dict(each.refused)} if each.refused else {}),
            }
            for each in ledgers
        },
    }


async def _alive(producers: list[asyncio.Task[None]]) -> None:
    """Wait a little; raise what a producer failed of."""
    done, _ = await asyncio.wait(producers, timeout=0.05)
    for task in done:
        task.result()
        raise LostError("a producer ended")


@contextlib.contextmanager
def _scratch(path: Path | None) -> Iterator[Path]:
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
        yield path
    else:
        with tempfile.TemporaryDirectory() as made:
            yield Path(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--descriptors", type=int, default=DESCRIPTORS)
    parser.add_argument("--seconds", type=float, default=3600, help="kill no more after so many")
    parser.add_argument("--scratch", type=Path, help="an empty folder that stays; else a temporary one")
    parser.add_argument("--out", type=Path, help="a file to add the figures to, a run each")
    chosen = parser.parse_args()
    with _scratch(chosen.scratch) as folder:
        figures = asyncio.run(
            campaign(folder, chosen.kills, seed=chosen.seed, descriptors=chosen.descriptors, seconds=chosen.seconds)
        )
    text = json.dumps(figures, indent=1) + "\n"
    print(text)
    if chosen.out is not None:
        add_run(chosen.out, figures)


if __name__ == "__main__":
    main()
