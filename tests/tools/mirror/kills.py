"""Runs of a mirror in which it or a broker is killed, once or more, at moments that a seed says.

Mirror, source and target are processes of their own, killed by SIGKILL; brokers start again on the same port and
directory. The source has sets when the mirror starts, so that it has several on their way, and gets more meanwhile. At
the end a mirror runs until it has caught up, and everything is compared.

In some runs the target has another number of partitions, so that keys decide; groups are not copied then.

Run: python tests/tools/mirror/kills.py FIRST LAST [SOURCE TARGET] [--seconds N]   (seeds; their outcomes
replace those of earlier runs in kills.json, and none begins when N seconds are over. With two versions of Kafka
between their brokers, sets of magic 2 alone; in kills-kafka.json. The table in docs/evidence/mirror-proof.md is
rewritten)
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import platform
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent.parent))

from interop import jvm
from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.cli.main import main
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, NetworkError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from ports import free_port

HERE = Path(__file__).parent
RESULTS, KAFKA_RESULTS = HERE / "kills.json", HERE / "kills-kafka.json"
PAGE = HERE.parents[2] / "docs/evidence/mirror-proof.md"
BEGIN, END = "<!-- kills.py: begin -->\n", "<!-- kills.py: end -->\n"  # around the table
VICTIMS = ("mirror", "source", "target")
SECONDS = 240  # for anything
START = 1_700_000_000_000
BACKLOG, MEANWHILE = 200, 40  # sets
BY_PROGRESS = 0.6  # the share of kills at a given state of the target; the others are at a given time
FORMATS = [Format.V2, Format.V2, Format.V1, Format.V0]
KEYED = 0.25  # the share of runs with another number of partitions at the target
KEYS = 17  # of each partition of the source


PROCESSES = multiprocessing.get_context("forkserver")  # which imports once what each of them needs
PROCESSES.set_forkserver_preload(
    ["magicbyte.cli.serve", "magicbyte.server.broker.broker", "magicbyte.tools.mirror.mirror", "numpy"]
)


def command(arguments: list[str], log: Path) -> None:
    """A process that runs one of our commands; its output is appended to a file."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    main(arguments)


def started(arguments: list[str], log: Path) -> Any:
    process = PROCESSES.Process(target=command, args=(arguments, log))
    process.start()
    return process


class Ours:
    """Our broker in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.process: Any = None

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        options = ["--dir", str(self.folder / "data"), "--listen", self.address, "log.retention.ms=-1"]
        self.process = started(["serve", *options], self.folder / "log")
        wait_for(self.address, self.process)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


class Kafka:
    """A broker of Kafka, with its ZooKeeper, in processes of their own."""

    def __init__(self, folder: Path, version: str) -> None:
        self.folder = folder
        self.version = version
        self.ports = free_port(), free_port()
        self.address = f"127.0.0.1:{self.ports[0]}"

    def start(self) -> None:
        port, other = map(str, self.ports)
        kept = ["--prop", "log.retention.ms=-1", "--prop", jvm.SHORT_SESSION]  # the records' times are long ago
        self._launch("start", self.version, "--dir", self.folder, "--port", port, "--zk-port", other, *kept)

    def kill(self) -> None:
        self._launch("stop", self.folder, "--kill")

    @staticmethod
    def _launch(*arguments: str | Path) -> None:
        launcher = HERE.parents[1] / "interop" / "kafka_oracle.py"
        subprocess.run([sys.executable, launcher, *arguments], check=True, stdout=subprocess.DEVNULL, timeout=240)


def wait_for(address: str, process: Any) -> None:
    """Return when something takes connections there."""
    host, port = address.split(":")
    while True:
        assert process.is_alive(), f"{address}: ended with status {process.exitcode}"
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.01)


@dataclass
class Outcome:
    """The parameters of a run, and its outcome."""

    seed: int
    format: str
    codec: str
    partitions: int
    target_partitions: int
    commit: str = ""
    killed: list[str] = field(default_factory=list)
    records: int = 0
    lost: int = 0
    twice: int = 0
    out_of_order: int = 0
    groups: int = 0
    groups_exact: int = 0
    groups_wrong: int = 0
    mirror_ended: int = 0


class Run:
    """One run between two brokers, from a seed."""

    def __init__(self, seed: int, source: Any, target: Any, log: Path, formats: list[Format]) -> None:
        self.chance = random.Random(seed)
        self.brokers = {"source": source, "target": target}
        self.topic, self.group = f"run-{seed}", f"mirror-{seed}"
        self.form = self.chance.choice(formats)
        codecs = [each for each in Codec if self.form is Format.V2 or each is not Codec.ZSTD]
        self.codec = self.chance.choice(codecs)
        partitions = target = self.chance.randint(1, 3)
        if self.chance.random() < KEYED:
            target = self.chance.choice([each for each in range(1, 5) if each != partitions])
        self.outcome = Outcome(seed, self.form.value, self.codec.name.lower(), partitions, target)
        self.log = log
        self.mirror: Any = None

    def run(self) -> Outcome:
        asyncio.run(self.make())
        asyncio.run(self.produce(BACKLOG, pause=0.0))
        kills = [(self.chance.choice(VICTIMS), self.chance.random(), self.chance.random()) for _ in range(3)]
        producing = threading.Thread(target=lambda: asyncio.run(self.produce(MEANWHILE, pause=0.06)))
        self.start_mirror("--sync-groups")
        producing.start()
        try:
            for victim, kind, moment in kills[: self.chance.randint(1, 3)]:
                if kind < BY_PROGRESS:
                    self.sleep_until(moment)
                else:
                    self.sleep(1.5 * moment)
                self.outcome.killed.append(victim)
                self.kill(victim)
        finally:
            producing.join(SECONDS)
            self.mirror.kill() if self.chance.random() < 0.5 else self.mirror.terminate()
            self.mirror.join(SECONDS)
        assert not producing.is_alive()
        places = asyncio.run(self.commit())  # of which nothing comes where keys decide
        self.start_mirror("--sync-groups", "--until-caught-up")
        self.mirror.join(SECONDS)
        assert self.mirror.exitcode == 0, f"seed {self.outcome.seed}: the last mirror failed; see {self.log}"
        asyncio.run(self.compare(places))
        return self.outcome

    def sleep(self, seconds: float) -> None:
        """Wait for a moment that the seed says; a mirror that ends by itself meanwhile is started again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.mirror.join(max(end - time.monotonic(), 0))
            if not self.mirror.is_alive():
                self.outcome.mirror_ended += 1
                self.start_mirror("--sync-groups")

    def sleep_until(self, share: float) -> None:
        """Wait until about this share of the backlog is at the target, or it takes too long."""

        async def reached() -> None:
            async with Client(self.brokers["target"].address) as there:
                partitions, end = range(self.outcome.target_partitions), time.monotonic() + 3
                while time.monotonic() < end:
                    found = [(await bounds(there, self.topic, each))[1] for each in partitions]
                    if sum(found) >= share * 50 * BACKLOG:
                        return

        asyncio.run(reached())

    def kill(self, victim: str) -> None:
        if victim == "mirror":
            self.mirror.kill()
            self.mirror.join()
            self.start_mirror("--sync-groups")
        else:
            self.brokers[victim].kill()
            self.brokers[victim].start()

    def start_mirror(self, *options: str) -> None:
        ends = ["--from", self.brokers["source"].address, "--to", self.brokers["target"].address]
        arguments = ["mirror", *ends, "--topics", self.topic, "--group", self.group, "--yes", *options]
        self.mirror = started(arguments, self.log)

    def clients(self) -> tuple[Client, Client]:
        return Client(self.brokers["source"].address), Client(self.brokers["target"].address)

    async def make(self) -> None:
        configs = {} if self.form is Format.V2 else {"message.format.version": self.form.value}
        here, there = self.clients()
        async with here, there:
            for client, count in ((here, self.outcome.partitions), (there, self.outcome.target_partitions)):
                await admin.create_topic(client, admin.NewTopic(self.topic, count, configs=configs))

    async def produce(self, sets: int, pause: float) -> None:
        """Send sets. No value is sent twice: what is not acknowledged gets a new one."""
        options = ProduceOptions(codec=self.codec, format=self.form)
        chance, number = random.Random(self.outcome.seed + sets), sets << 32
        async with Client(self.brokers["source"].address, retry_ms=0) as client:
            for _ in range(sets):
                partition, count = chance.randrange(self.outcome.partitions), chance.randint(1, 100)
                while True:
                    records = [record(partition, each) for each in range(number, number + count)]
                    number += count
                    try:
                        await send(client, self.topic, partition, records, options)
                        break
                    except (BrokerError, NetworkError):
                        await asyncio.sleep(0.05)
                await asyncio.sleep(chance.uniform(0, pause))

    async def commit(self) -> dict[int, int]:
        """Let a group of the source be somewhere in each partition; return its offsets."""
        here, there = self.clients()
        async with here, there:
            places = {}
            for partition in range(self.outcome.partitions):
                start, end = await bounds(here, self.topic, partition)
                places[partition] = self.chance.randint(start, end)
            offsets = {(self.topic, each): Committed(offset) for each, offset in places.items()}
            await commit_offsets(here, f"readers-{self.topic}", offsets)
        return places

    async def compare(self, places: dict[int, int]) -> None:
        here, there = self.clients()
        async with here, there:
            if self.outcome.target_partitions == self.outcome.partitions:
                await self.compare_partitions(here, there, places)
            else:
                await self.compare_keys(here, there)
            for client in (here, there):
                await admin.delete_topic(client, self.topic)

    async def compare_partitions(self, here: Client, there: Client, places: dict[int, int]) -> None:
        keys = [(self.topic, each) for each in places]
        found = await committed_offsets(there, f"readers-{self.topic}", keys)
        for partition, place in places.items():
            source, target = await records(here, self.topic, partition), await records(there, self.topic, partition)
            self.compare_records([each.value for each in source], [each.value for each in target])
            unread = [each.value for each in source if each.offset >= place]
            group = found[self.topic, partition].offset
            to_read = [each.value for each in target if each.offset >= group]
            self.outcome.groups += 1
            self.outcome.groups_exact += to_read == unread
            self.outcome.groups_wrong += not set(unread) <= set(to_read)

    async def compare_keys(self, here: Client, there: Client) -> None:
        """Compare the records of each key, which are in one partition of each end."""
        sides: list[dict[bytes | None, list[bytes | None]]] = []
        for client, count in ((here, self.outcome.partitions), (there, self.outcome.target_partitions)):
            found: dict[bytes | None, list[bytes | None]] = {}
            for partition in range(count):
                inside: dict[bytes | None, list[bytes | None]] = {}
                for each in await records(client, self.topic, partition):
                    inside.setdefault(each.key, []).append(each.value)
                assert not found.keys() & inside.keys(), "a key is in two partitions"
                found |= inside
            sides.append(found)
        source, target = sides
        assert target.keys() <= source.keys()
        for key, values in source.items():
            self.compare_records(values, target.get(key, []))

    def compare_records(self, source: list[bytes | None], target: list[bytes | None]) -> None:
        """Count missing and repeated records, and those that follow a gap."""
        order = {value: at for at, value in enumerate(source)}
        assert len(order) == len(source)
        found = [order[value] for value in target]
        self.outcome.records += len(source)
        self.outcome.lost += len(source) - len(set(found))
        self.outcome.twice += len(found) - len(set(found))
        self.outcome.out_of_order += sum(each > before + 1 for before, each in zip([-1, *found], found, strict=False))


def record(partition: int, number: int) -> Record:
    """A record of which both key and value tell the partition of the source."""
    return Record(0, START + number % 100, 0, b"%d/%d" % (partition, number % KEYS), b"%d-%d" % (partition, number))


async def records(client: Client, topic: str, partition: int) -> list[Record]:
    ends = await bounds(client, topic, partition)
    return [each async for part in read_records(client, topic, partition, *ends) for each in part]


def check(outcome: Outcome) -> None:
    """Nothing is lost or out of order; nothing is twice, and groups are exact, where the target stores magic 2."""
    assert (outcome.lost, outcome.out_of_order, outcome.groups_wrong) == (0, 0, 0), outcome
    if outcome.format == Format.V2.value:
        assert (outcome.twice, outcome.groups_exact) == (0, outcome.groups), outcome


@contextlib.contextmanager
def running(*brokers: Any) -> Iterator[Any]:
    """Run brokers inside the block."""
    try:
        for each in brokers:
            each.start()
        yield brokers
    finally:
        for each in brokers:
            each.kill()


def totals(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum up runs."""
    sums = {name: sum(each[name] for each in outcomes) for name in COUNTED}
    keyed = [each for each in outcomes if each["partitions"] != each["target_partitions"]]
    once = [each for each in outcomes if each["format"] == Format.V2.value]
    return {
        "runs": len(outcomes),
        "seeds": [min(each["seed"] for each in outcomes), max(each["seed"] for each in outcomes)],
        "kills": {victim: sum(each["killed"].count(victim) for each in outcomes) for victim in VICTIMS},
        **sums,
        "keyed": {"runs": len(keyed), "kills": sum(len(each["killed"]) for each in keyed)},
        "exactly_once": {"runs": len(once), "twice": sum(each["twice"] for each in once),
                         "groups": sum(each["groups"] for each in once),
                         "groups_exact": sum(each["groups_exact"] for each in once)},
    }  # fmt: skip


COUNTED = ("records", "lost", "twice", "out_of_order", "groups", "groups_exact", "groups_wrong", "mirror_ended")


def campaign() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    wanted = parser.parse_args()
    versions, end = wanted.versions, time.monotonic() + wanted.seconds
    results = KAFKA_RESULTS if versions else RESULTS
    found: list[dict[str, Any]] = json.loads(results.read_text())["outcomes"] if results.exists() else []
    head = ["git", "-C", HERE, "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if versions:
            pair: Any = [Kafka(folder / side, each) for side, each in zip(("source", "target"), versions, strict=True)]
        else:
            pair = Ours(folder / "source"), Ours(folder / "target")
        with running(*pair):
            for seed in range(wanted.first, wanted.last + 1):
                if time.monotonic() > end:
                    break
                log, formats = folder / f"mirror-{seed}.log", [Format.V2] if versions else FORMATS
                outcome = Run(seed, *pair, log, formats).run()
                check(outcome)
                outcome.commit = commit
                found = [each for each in found if each["seed"] != seed] + [outcome.__dict__]
                print(outcome, flush=True)
                save(results, found, versions)


def save(results: Path, found: list[dict[str, Any]], versions: list[str]) -> None:
    content = {
        "brokers": [f"Kafka {each}" for each in versions] or ["magicbyte", "magicbyte"],
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "totals": totals(found),
        "outcomes": found,
    }
    results.write_text(json.dumps(content, separators=(",", ":")).replace("},{", "},\n{") + "\n")
    if RESULTS.exists() and KAFKA_RESULTS.exists():
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1])


def table() -> str:
    """Return the outcomes of the recorded runs as Markdown."""
    rows: list[list[str]] = []
    for results in (RESULTS, KAFKA_RESULTS):
        recorded = json.loads(results.read_text())
        total, once = recorded["totals"], recorded["totals"]["exactly_once"]
        commits = Counter(each["commit"] for each in recorded["outcomes"])
        rows.append([
            " to ".join(recorded["brokers"]),
            f"{total['runs']}, {total['keyed']['runs']} of them where keys decide",
            ", ".join(f"{count} of the {victim}" for victim, count in total["kills"].items()),
            f"{total['records']:,}",
            f"{total['lost']}, {total['out_of_order']}",
            f"{once['runs']} runs, {once['twice']} records twice, {once['groups_exact']} of {once['groups']} exact",
            f"{total['runs'] - once['runs']} runs, {total['twice'] - once['twice']:,} records twice, "
            f"{total['groups_exact'] - once['groups_exact']} of {total['groups'] - once['groups']} exact",
            f"{total['groups_wrong']}",
            f"{total['mirror_ended']}",
            ", ".join(f"{commit} ({count})" for commit, count in commits.items()),
        ])  # fmt: skip
    names = [
        "", "runs", "kills", "records at the source", "of these lost, out of order",
        "magic 2, exactly once; places of groups", "magic 0 and 1, at least once; places of groups",
        "groups that would miss a record", "mirrors that ended by themselves, as a broker was away", "commits",
    ]  # fmt: skip
    lines = ["| " + " | ".join(cells) + " |\n" for cells in zip(names, *rows, strict=True)]
    return "".join([lines[0], "|---|---|---|\n", *lines[1:]])


if __name__ == "__main__":
    campaign()
