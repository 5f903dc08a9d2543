"""The documents' migration from one message format to the next, on a cluster of two real brokers and our own.

    python -m interop.migration_story RELEASE [-o FILE]     (in tests/) all of it, as a narrative

Clients of Kafka's old and new releases produce and consume all the time. Their acknowledgements and records are kept
in a ledger of their own. After each step the cells of the documents' matrix are compared with the counters of our
broker, with what a fetch of each version gets from the real ones, and with the trace of what our broker asked the
system for. Source: KIP-31 and KIP-32, "Compatibility, Deprecation, and Migration Plan".
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from cli.command import run
from interop import client_programs, kafka_oracle, matrix, system_calls
from interop.client_programs import ClientFailedError, ClientProcess
from interop.processes import DIES_WITH_US, Pauses
from interop.real_cluster import RealCluster, until
from magicbyte.access.client import Client
from magicbyte.access.client.fetch import FetchOptions, fetch_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.net.scrape import Scrape, scrape
from magicbyte.engine.log.files.directory import LOG
from magicbyte.engine.records.scan import scan
from magicbyte.server.stores.znodes import layout
from magicbyte.tools.migration.sightings import is_fetcher
from magicbyte.tools.migration.status import ClusterStep
from ports import free_port

OURS: Final = 2
REAL: Final = (0, 1)
LED_BY: Final = {"first": 0, "second": 1, "third": OURS}
"""Topics of one partition, which every broker has a replica of, by the broker that leads them."""
ROUND: Final = 12
"""Records that a producer sends at a time."""
SECONDS: Final = 20
"""That a client waits for anything."""
START: Final = 1_700_000_000_000
CODECS: Final = ("gzip", "none", "snappy")


@dataclass(frozen=True)
class Era:
    """A migration. `protocols`, `formats`, `magics`, `clients`: before and behind; `fetches`: a version of each kind.

    `software`: the releases of the real brokers before and behind.
    """

    software: tuple[str, str]
    protocols: tuple[str, str]
    formats: tuple[str, str]
    magics: tuple[int, int]
    clients: tuple[str, str]
    fetches: tuple[int, int]


ERAS: Final = {
    "0.9.0.1": Era(
        ("0.9.0.1", "0.10.2.2"), ("0.9.0", "0.10.2"), ("0.9.0", "0.10.2"), (0, 1), ("0.9.0.1", "0.10.2.2"), (1, 2)
    ),
    "0.10.2.2": Era(
        ("0.10.2.2", "0.11.0.3"), ("0.10.2", "0.11.0"), ("0.10.2", "0.11.0"), (1, 2), ("0.10.2.2", "0.11.0.3"), (3, 4)
    ),
    "2.8.2": Era(("2.8.2", "2.8.2"), ("0.10.2", "2.8"), ("0.10.2", "2.8"), (1, 2), ("0.10.2.2", "2.8.2"), (3, 4)),
}
"""By the release of the real brokers at the beginning."""


class SeenRecord(NamedTuple):
    """A record as a client saw it; key and value in base64, the time None where it knows none."""

    timestamp: int | None
    key: str | None
    value: str | None


@dataclass
class TopicLedger:
    """What is known of a topic without its brokers. Each record has a value of its own.

    `sent`: the time of each value, as its producer gave it. `seen`: what any reader saw at an offset. `reads`,
    `rounds`: how often each consumer read all of it, and each producer was answered. `times_kept`: records that were
    seen with their time.
    """

    sent: dict[str, int] = field(default_factory=dict)
    acknowledged: dict[int, str] = field(default_factory=dict)
    seen: dict[int, str] = field(default_factory=dict)
    reads: Counter[str] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)
    times_kept: int = 0

    def saw(self, reader: str, records: list[tuple[int, SeenRecord]]) -> None:
        """Compare what a reader saw, who began at offset 0, with what is known. Raises AssertionError."""
        offsets = [offset for offset, _ in records]
        assert offsets == list(range(len(offsets))), f"{reader} skipped or repeated: {offsets}"
        values = [record.value for _, record in records]
        assert len(set(values)) == len(values), f"{reader} saw a record twice"
        for offset, record in records:
            value = record.value
            assert value in self.sent, f"{reader}, offset {offset}: {record} was never sent"
            assert record.key == value, f"{reader}, offset {offset}: key and value are of two records"
            assert self.seen.setdefault(offset, value) == value, (
                f"{reader}, offset {offset}: another record than before"
            )
            assert record.timestamp in (None, -1, self.sent[value]), f"{reader}, offset {offset}: another time"
            self.times_kept += record.timestamp == self.sent[value]
        self.reads[reader] += 1

    def check(self) -> None:
        """Raise AssertionError unless what was acknowledged was seen, at its offset."""
        wrong = {at: value for at, value in self.acknowledged.items() if self.seen.get(at) != value}
        assert not wrong, f"acknowledged and not at their offsets: {sorted(wrong)[:5]} of {len(self.acknowledged)}"


class Load:
    """Clients that produce to every topic and read every topic, until they are stopped."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap, self._folder = bootstrap, folder
        self.ledger = {topic: TopicLedger() for topic in LED_BY}
        self.failures = Counter[str]()
        self.topics = list(LED_BY)[:-1]
        """Those that there are; the last one comes with our broker."""
        self._tasks = dict[str, asyncio.Task[None]]()
        self._leaving = set[str]()
        self._serial = 0

    @property
    def present(self) -> list[str]:
        return list(self._tasks)

    async def come(self, release: str, what: str) -> None:
        """Have a producer or a consumer of a Java release begin."""
        name = f"{what} {release}"
        self._leaving.discard(name)
        log = self._folder / f"{what}-{release}.log"
        command = await asyncio.to_thread(client_programs.java, release)
        process = await asyncio.to_thread(ClientProcess, command, self._bootstrap, log, seconds=SECONDS, goes_on=True)
        if what == "producer":  # one that is not idempotent and sends again may write twice
            (self._folder / "settings").write_text("retries=0\n")
            await asyncio.to_thread(process.ask, "settings", self._folder / "settings")
        work = self._produce if what == "producer" else self._consume
        self._tasks[name] = asyncio.create_task(self._until_it_leaves(name, process, work(name, process)))

    async def leave(self, name: str) -> None:
        """Have a client end. Raises what it met."""
        self._leaving.add(name)
        await self._tasks.pop(name)

    async def close(self) -> None:
        for name in self.present:
            with contextlib.suppress(Exception):
                await self.leave(name)

    async def go_round(self) -> None:
        """Wait until each client has worked on each topic, twice, from now on: what is measured then is of now."""
        wanted = {
            (topic, name): self.ledger[topic].reads[name] + self.ledger[topic].rounds[name] + 2
            for topic in self.topics
            for name in self._tasks
        }

        async def are_done() -> bool:
            for task in self._tasks.values():
                if task.done():
                    await task
            return all(
                self.ledger[topic].reads[name] + self.ledger[topic].rounds[name] >= count
                for (topic, name), count in wanted.items()
            )

        for _ in range(4):  # a client may wait for a broker that has just gone
            try:
                return await until(are_done, "every client has worked on every topic")
            except AssertionError:
                continue
        raise AssertionError(f"clients stand still: {self.failures}")

    async def see_everything(self) -> None:
        """See that each consumer reads all acknowledged records, while none is produced. Raises AssertionError."""
        for _ in range(3):
            before = self.failures.total()
            with Pauses() as pauses:
                await self.go_round()
            if self.failures.total() == before or not pauses.were_long:
                break
        assert self.failures.total() == before, self.failures
        for topic in self.topics:
            self.ledger[topic].check()

    async def _until_it_leaves(self, name: str, process: ClientProcess, work: Any) -> None:
        try:
            await work
        finally:
            await asyncio.to_thread(process.close)

    async def _produce(self, name: str, process: ClientProcess) -> None:
        path = self._folder / f"{name.replace(' ', '-')}.tsv"
        while name not in self._leaving:
            for topic in list(self.topics):
                ledger, records = self.ledger[topic], list[matrix.Known]()
                for _ in range(ROUND):
                    self._serial += 1
                    value = f"{name} {self._serial} ".encode() + b"." * (self._serial % 5 * 50)
                    text = base64.b64encode(value).decode()
                    ledger.sent[text] = START + self._serial
                    records.append((START + self._serial, text, text, ()))
                path.write_text(matrix.lines(records))
                codec = CODECS[self._serial // ROUND % len(CODECS)]
                try:
                    answer = await asyncio.to_thread(process.ask, "produce", topic, codec, 0, path)
                except ClientFailedError as error:  # it may be in the log or not, once
                    self.failures[f"{name}: {str(error).split(':')[0][:60]}"] += 1
                    continue
                for offset, (_, _, text, _) in zip(answer["offsets"], records, strict=True):
                    assert text is not None
                    assert ledger.acknowledged.setdefault(offset, text) == text, f"offset {offset} was given twice"
                ledger.rounds[name] += 1
            await asyncio.sleep(0.2)

    async def _consume(self, name: str, process: ClientProcess) -> None:
        while name not in self._leaving:
            for topic in list(self.topics):
                try:
                    await self.read(name, process, topic)
                except ClientFailedError as error:
                    self.failures[f"{name}: {str(error).split(':')[0][:60]}"] += 1
            await asyncio.sleep(0.2)

    async def read(self, name: str, process: ClientProcess, topic: str) -> None:
        ledger = self.ledger[topic]
        count = max(ledger.acknowledged, default=-1) + 1
        if not count:
            return
        found = await asyncio.to_thread(process.ask, "consume", topic, count)
        records = [(offset, SeenRecord(time, key, value)) for offset, time, key, value, _ in found["records"]]
        ledger.saw(name, records)
        if len(records) < count:
            self.failures[f"{name}: had less than all within its time"] += 1


class OurProcess:
    """Our broker: `magicbyte serve` under strace, with its counters over HTTP."""

    def __init__(self, zookeeper: str, folder: Path) -> None:
        self.port, self.http, self.folder = free_port(), free_port(), folder
        self._zookeeper = zookeeper
        self._process: asyncio.subprocess.Process | None = None
        self._starts = 0
        self.probes = list[tuple[str, str, bool]]()
        """Client id and topic of each fetch whose trace is to be looked at, and whether it has to be converted."""

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    async def start(self, *settings: str) -> None:
        self._starts += 1
        self._trace = self.folder / f"trace-{self._starts}"
        given = (
            f"broker.id={OURS}", f"zookeeper.connect={self._zookeeper}", "zookeeper.session.timeout.ms=30000",
            "replica.lag.time.max.ms=5000", "log.retention.ms=-1", *BOTH,
        )  # fmt: skip
        serve = [
            sys.executable, "-m", "magicbyte", "serve", "-v", "--dir", str(self.logs),
            "--listen", f"{kafka_oracle.LOOPBACK}:{self.port}", "--http", f"{kafka_oracle.LOOPBACK}:{self.http}",
        ]  # fmt: skip
        with (self.folder / "ours.log").open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *DIES_WITH_US, *system_calls.strace(self._trace), *serve, *given, *settings,
                stdout=asyncio.subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        assert self._process.stdout is not None
        async with asyncio.timeout(240):
            while b"listening on" not in (line := await self._process.stdout.readline()):
                assert line, f"our broker did not start: {(self.folder / 'ours.log').read_text()[-2000:]}"

    async def stop(self) -> None:
        """End it, and see what its probes made it ask the system for."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(self._process.wait(), 240)
        trace = list(system_calls.calls(await asyncio.to_thread(system_calls.whole, self._trace, self._process.pid)))
        for client_id, topic, is_converted in self.probes:
            found = system_calls.moved(trace, topic, client_id)
            if is_converted:
                assert not found["sendfile"], (client_id, found)
                assert found["written"] > 0, (client_id, found)
            else:
                assert found["sendfile"] > 0, (client_id, found)
                assert found["written"] <= 512, (client_id, found)
        self.probes.clear()

    async def numbers(self) -> Scrape:
        return await scrape(f"{kafka_oracle.LOOPBACK}:{self.http}")

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


BOTH: Final = (
    "auto.leader.rebalance.enable=true",
    "leader.imbalance.check.interval.seconds=3",
    "leader.imbalance.per.broker.percentage=0",
    "unclean.leader.election.enable=false",
    "controlled.shutdown.enable=true",
)


class Cell(NamedTuple):
    """Who asked our broker for what, and what became of it: "client" or "follower", formats before and behind."""

    who: str
    direction: str
    is_new: bool
    source: str
    target: str


class Story:
    """The cluster, its load, and the report."""

    def __init__(self, era: Era, folder: Path) -> None:
        self.era, self.folder = era, folder
        self.lines = list[str]()
        self.controllers = list[int | None]()
        self._probes = 0
        self._is_upgraded = era.software[0] == era.software[1]

    def tell(self, text: str = "") -> None:
        self.lines.append(text)

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        self.cluster = RealCluster(self.era.software[0], self.folder, *BOTH)
        ports = [free_port() for _ in REAL]
        self.real_ports = dict(zip(REAL, ports, strict=True))
        async with self.cluster.running():
            self.ours = OurProcess(self.cluster.zookeeper, self.folder)
            self.bootstrap = ",".join(f"{kafka_oracle.LOOPBACK}:{port}" for port in (*ports, self.ours.port))
            self.load = Load(self.bootstrap, self.folder)
            try:
                yield
            finally:
                await self.load.close()
                await self.ours.kill()

    async def tell_all(self) -> None:
        """Do the whole migration. Raises AssertionError for each deviation from the documents."""
        async with self._running():
            for step in (
                self._old_cluster, self._ours_joins, self._new_software, self._canary_before, self._new_protocol,
                self._new_clients, self._canary_behind, self._phase_2, self._last_old_client,
            ):  # fmt: skip
                await step()

    # ---- the steps

    async def _old_cluster(self) -> None:
        old = self.era.software[0]
        self.tell(f"## 1. A cluster of Kafka {old}")
        for each in REAL:
            await self._start_real(each, 0, 0, 0)
        for topic in self.load.topics:
            await self._create(topic)
        for what in ("producer", "consumer"):
            await self.load.come(self.era.clients[0], what)
        await self.load.go_round()
        self.tell(f"Two brokers run. A producer and a consumer of Kafka {self.era.clients[0]} work all the time.")
        await self._check_real()

    async def _ours_joins(self) -> None:
        self.tell("## 2. A magicbyte broker joins")
        await self.ours.start(*self._settings(0, 0))
        await until(partial(self._is_registered, OURS), "our broker is registered")
        await self._create("third")
        self.load.topics.append("third")
        await self._settled()
        self.tell("It has the protocol and the format of the old brokers, and leads one topic of three.")
        await self._cells({self._cell("produce", 0, 0, 0), self._cell("fetch", 0, 0, 0)})
        await self._check_real()

    async def _new_software(self) -> None:
        old, new = self.era.software
        self.tell("## 3. Phase 1: new software, old protocol, old format")
        await self._elect_ours()
        for each in REAL:
            await self._stop_real(each)
            await self._start_real(each, 1, 0, 0)
            await self._settled()
            await self._is_planned(each)
        self._is_upgraded = True
        self.tell(f"The brokers of Kafka {old} were stopped one after the other, and started as Kafka {new}.")
        await self._cells({self._cell("produce", 0, 0, 0), self._cell("fetch", 0, 0, 0)}, followers={False})
        await self._check_real()

    async def _canary_before(self) -> None:
        self.tell("## 4. A canary before the protocol is raised")
        await self._restart_ours(1, 1)
        self.tell("The canary stores the new format. The others fetch in the old version: their copies are converted.")
        await self._cells(
            {
                self._cell("produce", 0, 0, 1), self._cell("fetch", 0, 1, 0),
                self._cell("fetch", 0, 1, 0, who="follower"),
            },
            followers={False},
        )  # fmt: skip
        await self._quiet(self._canary_copies)
        judged = await self._command("rollback", "--broker", str(OURS), "--to", str(self.era.magics[0]))
        # The followers were asked for their copies, also those that do not return their protocol.
        assert (judged["refused"], judged["spread"], judged["unknown"]) == ([], {}, {}), judged
        self.tell("Rolled back: stop it, remove the partitions that it led, lower its format, start it.")
        await self.ours.stop()
        await until(partial(self._is_led_by_another, "third"), "another broker leads")
        shutil.rmtree(self.ours.logs / "third-0")
        await self.ours.start(*self._settings(0, 0))
        await self._settled()
        await self._quiet(partial(self._all_copies_are, "third", {self.era.magics[0]}))
        self.tell("Every copy holds the old format again, and every record is there.")
        await self._cells({self._cell("produce", 0, 0, 0), self._cell("fetch", 0, 0, 0)})

    async def _new_protocol(self) -> None:
        self.tell("## 5. Phase 1: the new protocol")
        await self._restart_ours(1, 0)
        for each in REAL:
            await self._stop_real(each)
            await self._start_real(each, 1, 1, 0)
            await self._settled()
        self.tell(
            "Brokers replicate with the new version of Fetch. They store the old format, and send it by zero-copy."
        )
        await self._cells({self._cell("produce", 0, 0, 0), self._cell("fetch", 0, 0, 0)}, followers={True})
        await self._check_real()

    async def _new_clients(self) -> None:
        self.tell("## 6. Phase 1: new clients")
        for what in ("consumer", "producer"):
            await self.load.come(self.era.clients[1], what)
        self.tell(f"A consumer and a producer of Kafka {self.era.clients[1]} start; the old ones stay.")
        await self._cells(
            {
                self._cell("produce", 0, 0, 0), self._cell("produce", 1, 1, 0),
                self._cell("fetch", 0, 0, 0), self._cell("fetch", 1, 0, 0),
            },
            followers={True},
        )  # fmt: skip
        await self._check_real()

    async def _canary_behind(self) -> None:
        self.tell("## 7. A canary after the protocol was raised")
        await self._restart_ours(1, 1)
        self.tell("The canary stores the new format. The others fetch in the new version: the format spreads to them.")
        await self._cells(self._phase_2_cells(), followers={True})
        await self._quiet(partial(self._are_identical, "third"))
        judged = await self._command("rollback", "--broker", str(OURS), "--to", str(self.era.magics[0]))
        assert (judged["refused"], judged["spread"]) == ([], {"third-0": list(REAL)}), judged
        self.tell("Its data stays: a copy from the others would have the new format. It converts by the stored format.")
        await self._restart_ours(1, 0)
        await self._cells(
            {
                self._cell("produce", 0, 0, 0), self._cell("produce", 1, 1, 0),
                self._cell("fetch", 0, 1, 0),
            },
            beside={self._cell("fetch", 1, 1, 1), self._cell("fetch", 1, 0, 0)},
            followers={True},
            probed=False,
        )  # fmt: skip
        self.tell(
            "New records are stored in the old format. Those of the canary's time are converted for old consumers."
        )

    async def _phase_2(self) -> None:
        self.tell("## 8. Phase 2: the new format everywhere")
        await self._elect_ours()
        for each in REAL:
            await self._stop_real(each)
            await self._start_real(each, 1, 1, 1)
            await self._settled()
        await self._restart_ours(1, 1)
        self.tell("All brokers store the new format. A log holds old and new records side by side.")
        await self._cells(self._phase_2_cells(), followers={True})
        await self._check_real(1)
        await self._quiet()

    async def _last_old_client(self) -> None:
        self.tell("## 9. The last old client leaves")
        old = self.era.clients[0]
        for what in ("consumer", "producer"):
            await self.load.leave(f"{what} {old}")
        self.tell("Nothing is converted.")
        await self._cells({self._cell("produce", 1, 1, 1), self._cell("fetch", 1, 1, 1)},
                          beside={self._cell("fetch", 1, 0, 0)}, followers={True})  # fmt: skip
        await self._quiet()
        await self.ours.stop()
        assert set(self.controllers) >= {OURS}, self.controllers
        assert set(self.controllers) & set(REAL), self.controllers
        kept = sum(each.times_kept for each in self.load.ledger.values())
        assert kept, "no reader saw the time of a record"
        count = sum(len(each.acknowledged) for each in self.load.ledger.values())
        reads = sum(each.reads.total() for each in self.load.ledger.values())
        controllers = [
            "magicbyte's" if each == OURS else f"Kafka's {each}"
            for each in dict.fromkeys(self.controllers)
            if each is not None
        ]
        self.tell(f"{count} records were acknowledged, and all logs were read {reads} times from their beginning: no "
                  "record was lost, changed or seen twice.")  # fmt: skip
        self.tell(f"The controller was {', '.join(controllers)}.")

    # ---- doing things to the cluster

    def _settings(self, protocol: int, form: int) -> tuple[str, ...]:
        return (
            f"inter.broker.protocol.version={self.era.protocols[protocol]}",
            f"log.message.format.version={self.era.formats[form]}",
        )

    async def _start_real(self, number: int, software: int, protocol: int, form: int) -> None:
        await self.cluster.start(
            number, *self._settings(protocol, form), release=self.era.software[software], port=self.real_ports[number]
        )

    async def _stop_real(self, number: int) -> None:
        await self.cluster.stop(number)
        self.controllers.append(await self._some_controller())

    async def _some_controller(self) -> int | None:
        await until(self._has_controller, "a controller is elected")
        return await self.cluster.controller()

    async def _has_controller(self) -> bool:
        return await self.cluster.controller() is not None

    async def _elect_ours(self) -> None:
        """Have our broker become the controller: it alone stands for election."""
        if await self.cluster.controller() != OURS:
            with self.cluster.paused():
                await self.cluster.view.delete(layout.CONTROLLER)
                await until(self._is_ours_controller, "our broker is the controller")
        await self._settled()

    async def _is_ours_controller(self) -> bool:
        return await self.cluster.controller() == OURS

    async def _restart_ours(self, protocol: int, form: int) -> None:
        await self.ours.stop()
        self.controllers.append(await self._some_controller())
        await until(partial(self.cluster.is_gone, layout.broker_path(OURS)), "our session has ended")
        await self.ours.start(*self._settings(protocol, form))
        await self._settled()

    async def _create(self, topic: str) -> None:
        leader = LED_BY[topic]
        known = [each for each in (*REAL, OURS) if each == OURS or each in self.cluster.ports]
        if topic != "third":
            known = list(REAL)
        replicas = [leader, *(each for each in known if each != leader)]
        assignment = ":".join(map(str, replicas))
        await self.cluster.tool("TopicCommand", "--create", "--topic", topic, "--replica-assignment", assignment)
        await until(partial(self.cluster.is_led, topic, leader, *replicas), f"{topic} is there")

    async def _is_registered(self, number: int) -> bool:
        return not await self.cluster.is_gone(layout.broker_path(number))

    async def _settled(self) -> None:
        """Wait until every topic is led by its own broker, with all replicas in sync."""
        for topic in self.load.topics:
            leader = LED_BY[topic]
            isr = (*REAL, OURS) if topic == "third" else REAL
            for _ in range(4):  # several times as long as elsewhere: the machine is busy with the load
                with contextlib.suppress(AssertionError):
                    await until(partial(self.cluster.is_led, topic, leader, *isr), f"{topic} is led by {leader}")
                    break
            else:
                raise AssertionError(f"{topic}: {await self.cluster.state(topic)}")
        self.controllers.append(await self._some_controller())

    async def _is_led_by_another(self, topic: str) -> bool:
        state = await self.cluster.state(topic)
        return state is not None and state.leader in REAL

    async def _command(self, name: str, *options: str, port: int | None = None) -> dict[str, Any]:
        """Run a command of `magicbyte migrate` against the cluster, by default asked through our broker.

        Return what it prints.
        """
        address = f"{kafka_oracle.LOOPBACK}:{port or self.ours.port}"
        done = await asyncio.to_thread(run, "migrate", name, "-b", address, *options, "--format", "json")
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    async def _is_planned(self, last: int) -> None:
        """Compare `status` in a cluster of three kinds of brokers with what is known, whichever of them is asked.

        `last`: the broker that has the new software since now.
        """
        for port in (self.ours.port, *self.cluster.ports.values()):
            found = await self._command("status", "--to", str(self.era.magics[1]), "--rehearse", "0", port=port)
            brokers = {each["id"]: each for each in found["clusterBrokers"]}
            assert brokers[OURS]["protocol"] == self.era.protocols[0], brokers
            hidden = {f"broker {each}" for each in REAL if brokers[each]["protocol"] is None}
            assert not (hidden and last == REAL[1] and self._tells_protocol)
            assert hidden <= {each["subject"] for each in found["unknown"]}
            if last == REAL[0] and self.era.software[0] != self.era.software[1]:
                assert (found["next"], found["brokers"]) == (ClusterStep.UPGRADE_BROKERS.value, [REAL[1]]), found
            elif last == REAL[1]:
                assert found["next"] == ClusterStep.RAISE_PROTOCOL.value, found
                known = [each for each in (*REAL, OURS) if f"broker {each}" not in hidden]
                assert found["brokers"] == known, found
        given = ("--broker-setting", f"inter.broker.protocol.version={self.era.protocols[0]}")
        found = await self._command("status", "--to", str(self.era.magics[1]), "--rehearse", "0", *given)
        if last == REAL[1]:
            assert (found["next"], found["brokers"]) == (ClusterStep.RAISE_PROTOCOL.value, [*REAL, OURS]), found

    # ---- the matrix

    def _cell(self, direction: str, client: int, source: int, target: int, who: str = "client") -> Cell:
        magics = self.era.magics
        return Cell(who, direction, bool(client), str(magics[source]), str(magics[target]))

    def _phase_2_cells(self) -> set[Cell]:
        return {
            self._cell("produce", 0, 0, 1), self._cell("produce", 1, 1, 1),
            self._cell("fetch", 0, 1, 0), self._cell("fetch", 1, 1, 1),
        }  # fmt: skip

    async def _cells(
        self,
        wanted: set[Cell],
        *,
        beside: set[Cell] | None = None,
        followers: set[bool] | None = None,
        probed: bool = True,
    ) -> None:
        """Compare what our broker does for its topic with the documents' matrix, and tell it.

        `beside`: what there may be, too. `followers`: by which versions of Fetch other brokers replicate.
        """
        before = await self.ours.numbers()
        await self.load.go_round()
        after = await self.ours.numbers()
        found = Counter({cell: count for cell, count in self._moved(after).items() if count})
        found.subtract(self._moved(before))
        grown = {cell for cell, count in found.items() if count > 0}
        may = wanted | (beside or set())
        for is_new in (False, True):  # the old part of a log goes as it is stored
            may.add(self._cell("fetch", int(is_new), 0, 0))
        asked = {cell for cell in grown if cell.who == "client"} | {
            self._counted(cell) for cell in wanted if cell.who == "follower"
        }
        missing, more = {self._counted(cell) for cell in wanted} - grown, asked - {self._counted(cell) for cell in may}
        assert not missing, f"counters that did not grow: {missing}; those that did: {grown}"
        assert not more, f"unexpected counters: {more}; expected: {wanted}"
        if followers is not None:
            assert self._follower_versions(before, after) == followers
        for cell in sorted(wanted):
            does = "converted" if cell.source != cell.target else "zero-copy" if cell.direction == "fetch" else "kept"
            kind = "new" if cell.is_new else "old"
            self.tell(f"- {kind} {cell.who}, {cell.direction}: format v{cell.source} to v{cell.target}, {does}")
        zero = self._zero_copy(after) - self._zero_copy(before)
        assert bool(zero) == any(each.direction == "fetch" and each.source == each.target for each in grown)
        if probed:
            for cell in wanted:
                if cell.direction == "fetch" and cell.who == "client":
                    await self._probe("third", int(cell.is_new), int(cell.target))
                    self.ours.probes.append((self._probe_id, "third", cell.source != cell.target))

    def _counted(self, cell: Cell) -> Cell:
        """Return a cell as the counters have it: they do not look into what a reader of every format is sent."""
        reads_all = cell.direction == "fetch" and cell.is_new and cell.source == cell.target
        return cell._replace(source="2", target="2") if reads_all and self.era.magics[1] == 2 else cell

    def _is_new(self, direction: str, version: int) -> bool:
        if direction == "fetch":
            return version >= self.era.fetches[1] if self.era.magics[0] == 0 else version >= 4
        return version >= (2 if self.era.magics[0] == 0 else 3)

    def _moved(self, numbers: Scrape) -> Counter[Cell]:
        found = Counter[Cell]()
        for each in numbers.all("magicbyte_moved_sets_total"):
            labels = each.labels
            if labels.get("topic") != "third" or labels["client_id"].startswith(("probe", "magicbyte")):
                continue
            who = "follower" if is_fetcher(labels["client_id"]) else "client"
            is_new = self._is_new(labels["direction"], int(labels["version"]))
            found[Cell(who, labels["direction"], is_new, labels["source"], labels["target"])] += int(each.value)
        return found

    def _follower_versions(self, before: Scrape, after: Scrape) -> set[bool]:
        counts = [
            {
                (each.labels["client_id"], int(each.labels["version"])): each.value
                for each in numbers.all("magicbyte_client_requests_total")
                if each.labels["request"] == "Fetch" and is_fetcher(each.labels["client_id"])
            }
            for numbers in (before, after)
        ]
        return {self._is_new("fetch", at[1]) for at, count in counts[1].items() if count > counts[0].get(at, 0)}

    @staticmethod
    def _zero_copy(numbers: Scrape) -> float:
        found = [
            each.value for each in numbers.all("magicbyte_zero_copy_bytes_total") if each.labels.get("topic") == "third"
        ]
        return sum(found)

    async def _probe(self, topic: str, client: int, magic: int) -> None:
        """Fetch the last records of a topic in an old or a new version, and see their format."""
        self._probes += 1
        self._probe_id = f"probe-{self._probes}."
        version = self.era.fetches[client]
        options = FetchOptions(versions=range(version, version + 1))
        async with Client(self.bootstrap, client_id=self._probe_id) as asking:
            _, end = await bounds(asking, topic, 0)
            found = await fetch_sets(asking, topic, 0, end - 1, options)
        assert set(found.table.magic) == {magic}, (topic, version, set(found.table.magic))

    async def _check_real(self, form: int = 0) -> None:
        """See what real brokers send of the topics that they lead, by the version of Fetch."""
        for topic in ("first", "second"):
            for client in (0, 1):
                if client and not self._is_upgraded:
                    continue  # it does not know that version
                magic = self.era.magics[form if client else 0]
                await self._probe(topic, client, magic)

    @property
    def _tells_protocol(self) -> bool:
        return kafka_oracle.version_key(self.era.software[1]) >= (0, 11)

    # ---- the logs

    async def _quiet(self, check: Callable[[], Awaitable[None]] | None = None) -> None:
        """Have producers stop until each consumer has read everything, and a check of the logs has been made."""
        producers = [name for name in self.load.present if name.startswith("producer")]
        for name in producers:
            await self.load.leave(name)
        await self._settled()
        await self.load.see_everything()
        if check is not None:
            await check()
        for name in producers:
            what, release = name.split()
            await self.load.come(release, what)

    def _copy(self, number: int, topic: str) -> bytes:
        root = self.ours.logs if number == OURS else self.folder / f"broker-{number}"
        (found,) = root.rglob(f"{topic}-0")
        return b"".join(each.read_bytes() for each in sorted(found.glob(f"*{LOG}")))

    async def _all_copies_are(self, topic: str, magics: set[int]) -> None:
        for number in (*REAL, OURS):
            assert set(scan(memoryview(self._copy(number, topic))).magic) == magics, number

    async def _canary_copies(self) -> None:
        """The canary's copy holds both formats, those that were converted for their brokers the old one."""
        old, new = self.era.magics
        assert set(scan(memoryview(self._copy(OURS, "third"))).magic) == {old, new}
        for number in REAL:
            assert set(scan(memoryview(self._copy(number, "third"))).magic) == {old}, number

    async def _are_identical(self, topic: str) -> None:
        await until(partial(self._same, topic), f"copies of {topic} are identical")

    async def _same(self, topic: str) -> bool:
        return len({self._copy(number, topic) for number in (*REAL, OURS)}) == 1


async def tell_story(release: str, folder: Path) -> Story:
    """Do the migration that begins with a release; return what there is to tell."""
    story = Story(ERAS[release], folder)
    try:
        await story.tell_all()
    except BaseException:
        print("\n".join(story.lines), file=sys.stderr)
        raise
    return story


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", choices=list(ERAS))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        story = asyncio.run(tell_story(options.release, Path(folder)))
    text = "\n".join(story.lines) + "\n"
    if options.output is not None:
        options.output.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
