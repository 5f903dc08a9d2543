"""Measure the cost of a migration step: a separate broker of magicbyte takes it with a sample of the topic's records.

A rehearsal starts `magicbyte serve` on a free port of this machine, with one topic in the present format and one in the
next. The sample is produced set by set in the producers' formats, and fetched at once in the version of each consumer.
The process's use of CPU and memory is the cost. It includes codecs, copies, system calls, threads and wake-ups.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.client import BrokerNode, Client
from magicbyte.access.client.fetch import FetchOptions, fetch_sets
from magicbyte.access.net.scrape import Scrape, scrape
from magicbyte.engine.codecs import Codec
from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import BrokerError, NetworkError
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records

WARM_BYTES: Final = (1 << 20) + (64 << 10)  # produced first: the broker loads compiled kernels after a MiB
AGAIN_BYTES: Final = 128 << 10  # produced first to each further topic
TURNS: Final = 3  # of each load, alternating, so that other work on the machine affects all loads
LEAST_CPU_S: Final = 0.2  # per turn; the CPU clock is exact, but other work disturbs
LONGEST_S: Final = 1.5  # per turn
ROUNDS: Final = 20  # before the first scrape
QUIET_S: Final = 0.25
_START_S: Final = 20.0
_END_S: Final = 10.0
_LOAD_S: Final = 60.0  # for loading compiled kernels from disk
_WARM: Final = ("-m", "magicbyte", "warm")
_PRODUCE_VERSION: Final = {Format.V0: 1, Format.V1: 2, Format.V2: 7}


@dataclass(frozen=True, slots=True)
class Load:
    """The use of a topic, with a sample of its `records` in format `stored`.

    `producers`: ratio of sets in each format, of `records_per_set` records. `consumers`: the Fetch version of each
    consumer that reads the whole topic, `sets_per_fetch` sets at a time. `settings`: of the topic, besides its format.
    """

    stored: Format

    records: Sequence[Record]
    codec: Codec
    records_per_set: int
    producers: Mapping[Format, int]
    consumers: Sequence[int]
    sets_per_fetch: int = 1
    settings: Mapping[str, str] | None = None


class Cost(NamedTuple):
    """The cost of a load per record, for all clients together.

    `peak_bytes`: peak memory of the process until then, None if the system does not report it. `has_kernels`: compiled
    kernels were loaded.
    """

    cpu_s: float
    stored_bytes: float
    converted_records: float
    converted_bytes: float
    zero_copy_bytes: float
    peak_bytes: int | None
    has_kernels: bool


async def rehearse(*loads: Load) -> list[Cost]:
    """Return the cost of each load, measured alternately. Raises NetworkError if no broker can be started.

    A long-running broker uses compiled kernels. If they are missing, they are compiled first, which takes minutes;
    otherwise a quarter of a second.
    """
    compiled = await _compile()
    async with _stage(compiled=compiled) as stage:
        plays = []
        for at, load in enumerate(loads):
            plays.append(await _begun(stage, load, at))
            await plays[at].turn()
        for play in plays * (TURNS - 1):
            await play.turn()
        return [_cost(each) for each in plays]


async def _compile() -> bool:
    """Compile the kernels unless they are compiled or disabled. Return whether a broker can load them."""
    if os.environ.get("MAGICBYTE_KERNELS") == "plain" or kernel.cache_directory() is None:
        return False
    process = await asyncio.create_subprocess_exec(
        sys.executable, *_WARM, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await process.wait()
        return kernel.is_warm()
    finally:
        await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Terminate a process, and kill it if it does not end in time."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        process.kill()
        await process.wait()


@dataclass(slots=True)
class _Stage:
    """A running broker and its metrics page. `compiled`: it can load compiled kernels."""

    client: Client
    readers: list[Client]
    http: str
    bootstrap: str
    compiled: bool

    async def reader(self, at: int) -> Client:
        """Return the client of a consumer, with its own connection."""
        while len(self.readers) <= at:
            self.readers.append(Client(self.bootstrap, client_id=f"reader-{len(self.readers)}"))
        return self.readers[at]

    async def cpu_s(self) -> float:
        return (await scrape(self.http)).one("process_cpu_seconds_total") or 0.0

    async def quiet(self) -> None:
        """Wait until the broker has loaded its kernels and is idle."""
        end = asyncio.get_running_loop().time() + _LOAD_S
        while self.compiled and asyncio.get_running_loop().time() < end:
            if (await scrape(self.http)).one("magicbyte_kernels_loaded"):
                break
            await asyncio.sleep(QUIET_S)
        before = await self.cpu_s()
        for _ in range(round(_START_S / QUIET_S)):
            await asyncio.sleep(QUIET_S)
            now = await self.cpu_s()
            if now - before < QUIET_S / 10:
                return
            before = now


@contextlib.asynccontextmanager
async def _stage(*, compiled: bool) -> AsyncIterator[_Stage]:
    with tempfile.TemporaryDirectory(prefix="magicbyte-") as folder:
        command = ["-m", "magicbyte", "serve", "--dir", folder, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            bootstrap, http = await _addresses(process)
            stage = _Stage(Client(bootstrap, client_id="rehearsal"), [], http, bootstrap, compiled)
            try:
                yield stage
            finally:
                for each in (stage.client, *stage.readers):
                    await each.aclose()
        finally:
            await _ended(process)


async def _addresses(process: asyncio.subprocess.Process) -> tuple[str, str]:
    assert process.stdout is not None, "it is a pipe"
    output = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_S):
            while (line := (await process.stdout.readline()).decode()) and "/metrics" not in output:
                output += line
                if "/metrics" in output:
                    break
    found = re.search(r"listening on (\S+).*http://(\S+)/metrics", output, re.DOTALL)
    if found is None:
        raise NetworkError("no broker could be started for a rehearsal")
    return found[1], found[2]


async def _begun(stage: _Stage, load: Load, at: int) -> _Play:
    """Return a warmed-up load: the broker has loaded what it needs for it."""
    topic = f"rehearsal-{at}"
    settings = {**(load.settings or {}), "message.format.version": load.stored.value, "retention.ms": "-1"}
    await create_topic(stage.client, NewTopic(topic, 1, 1, configs=settings))
    play = _Play(stage, load, topic)
    while play.sent_bytes < (AGAIN_BYTES if at else WARM_BYTES):
        await play.round()
    await stage.quiet()
    return play


class _RehearsalTurn(NamedTuple):
    """The scrapes before and after a turn, and its number of records."""

    before: Scrape
    after: Scrape
    records: int


class _Play:
    """The producers and consumers of a load, in alternation."""

    def __init__(self, stage: _Stage, load: Load, topic: str) -> None:
        self._stage, self._load, self.topic = stage, load, topic
        self._node: BrokerNode | None = None
        kinds = [form for form, share in load.producers.items() for _ in range(share)]
        self._sets = itertools.cycle(_sets(load, kinds))
        self.sent_bytes = self.records = self.end = 0
        self.turns: list[_RehearsalTurn] = []

    async def turn(self) -> None:
        """Run for long enough to be measured."""
        before, clock = await scrape(self._stage.http), asyncio.get_running_loop().time
        records, until, rounds = self.records, clock() + LONGEST_S, ROUNDS
        while True:
            for _ in range(rounds):
                await self.round()
            after = await scrape(self._stage.http)
            if _cpu(after) - _cpu(before) >= LEAST_CPU_S or clock() > until:
                break
            rounds *= 2  # a scrape costs time, too
        self.turns.append(_RehearsalTurn(before, after, self.records - records))

    async def round(self) -> None:
        """Produce some sets, and let every consumer fetch them.

        With one set per fetch, consumers wait for it already.
        """
        sets = [next(self._sets) for _ in range(self._load.sets_per_fetch)]
        begin, self.end = self.end, self.end + sum(count for _, _, count in sets)
        consumers = self._consumers(begin) if len(sets) == 1 else []
        try:
            for form, data, count in sets:
                await self._produce(form, data)
                self.sent_bytes += len(data)
                self.records += count
            consumers = consumers or self._consumers(begin)
            await asyncio.gather(*consumers)
        finally:
            for each in consumers:
                each.cancel()

    def _consumers(self, offset: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._consume(at, offset)) for at in range(len(self._load.consumers))]

    async def _produce(self, form: Format, data: bytes) -> None:
        client = self._stage.client
        self._node = self._node or await client.leader(self.topic, 0)
        part = [TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=0, records=data)])]
        version = _PRODUCE_VERSION[form]
        request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=part)
        response = await client.ask(self._node, request, ProduceResponse, versions=range(version, version + 1))
        code = response.responses[0].partition_responses[0].error_code
        if code:
            raise BrokerError("rehearsal", code, broker=str(self._node))

    async def _consume(self, at: int, offset: int) -> None:
        client, version = await self._stage.reader(at), self._load.consumers[at]
        options = FetchOptions(versions=range(version, version + 1))
        while offset < self.end:
            offset = (await fetch_sets(client, self.topic, 0, offset, options)).next_offset


def _sets(load: Load, kinds: Sequence[Format]) -> Iterator[tuple[Format, bytes, int]]:
    """Yield the sample as sets in the formats of the producers in turn: format, bytes, number of records."""
    turns = itertools.cycle(kinds)
    for begin in range(0, len(load.records), load.records_per_set):
        rows = load.records[begin : begin + load.records_per_set]
        form = next(turns)
        renumbered = [each._replace(offset=at, timestamp_type=0) for at, each in enumerate(rows)]
        yield form, encode_records(renumbered, form, load.codec), len(rows)


def _cpu(found: Scrape) -> float:
    return found.one("process_cpu_seconds_total") or 0.0


def _cost(play: _Play) -> Cost:
    first, last = play.turns[0], play.turns[-1]
    records, topic = sum(each.records for each in play.turns), play.topic

    def grown(name: str, **labels: str) -> float:
        def total(found: Scrape) -> float:
            return sum(
                each.value for each in found.all(name) if {"topic": topic, **labels}.items() <= each.labels.items()
            )

        return (total(last.after) - total(first.before)) / records

    fetched = grown("magicbyte_moved_bytes_total", direction="fetch")
    closed = grown("magicbyte_zero_copy_bytes_total")
    size = sum(each.value for each in last.after.all("kafka_log_log_size") if each.labels["topic"] == topic)
    end = sum(each.value for each in last.after.all("kafka_log_log_logendoffset") if each.labels["topic"] == topic)
    peak = first.after.one("magicbyte_process_peak_resident_bytes")  # later peaks include the other loads
    return Cost(
        cpu_s=sum(_cpu(each.after) - _cpu(each.before) for each in play.turns) / records,
        stored_bytes=size / end,
        converted_records=grown("kafka_server_brokertopicmetrics_fetchmessageconversions_total"),
        converted_bytes=fetched - closed,
        zero_copy_bytes=closed,
        peak_bytes=None if peak is None else int(peak),
        has_kernels=bool(first.before.one("magicbyte_kernels_loaded")),
    )
