"""`magicbyte mirror` and Kafka's two mirrors, between the same two brokers, with the same sets.

A topic of 8 partitions is filled with the sets of data.py (closed where the Java producer closes them, with its default
of batch.size=16384), again and again until it has MEGABYTES of them, compressed. Then each mirror in turn copies it,
from a start of its own, to an empty topic of the target. What counts is the time between two moments: when a quarter of
the records is there, and when all are; start, first requests and most of what a JVM compiles lie before. Bytes are
those of the source's sets, CPU is utime and stime of the mirror's process, all of its threads. Brokers and mirror share
the machine's cores.

Kafka's mirrors run with their defaults, but for the codec, which is the source's, what a mirror of one topic has no use
for (heartbeats, checkpoints, ACLs), and as many consumers as there are cores. Heap 1 GiB, G1, both compilers.

- closed CODEC SIZE: between real brokers, 2.8.2 and 3.9.1; rivals MirrorMaker 1 of 2.8.2 and MirrorMaker 2 of 3.9.1.
- ours CODEC SIZE: between two of our brokers, our mirror alone; closed, and opened since a source of magic 1 becomes
  one of magic 2 at the target.
- sets CODEC BYTES: as `closed`, our mirror alone, with larger sets: the records of 1000 B in sets of about so many
  bytes, compressed.

Run: python benchmarks/mirror.py [CASE...]   (written to benchmarks/results/mirror.json; a case takes 1 to 2 minutes)
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import broker
import data
import harness
from broker import Server
from data import kafka_oracle
from magicbyte.access.client import Client, admin
from magicbyte.access.client.offsets import LATEST, list_offset
from magicbyte.access.client.produce import Addressed, goes_with, send_together
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.engine.log.append.reencode import joined
from magicbyte.engine.protocol.fields import as_bytes
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format, encode
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.message import MessageView
from magicbyte.tools.mirror.rewrite import closed_message

PARTITIONS = 8
MEGABYTES = {("gzip", 100): 100, ("gzip", 1000): 200, ("zstd", 100): 100, ("lz4", 100): 200}
MOST_MEGABYTES = 500  # of the others
TOPIC = "bench"
FIRST = 0.25  # of the records: where measuring begins
MM1, MM2 = "2.8.2", "3.9.1"
CODECS = {"gzip": Codec.GZIP, "zstd": Codec.ZSTD, "lz4": Codec.LZ4}
SET_BYTES = (64_000, 900_000)
MOST_SECONDS = 150
EXTRA_JARS = ("connect-mirror", "connect-runtime")
JVM = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true"]

Figures = dict[str, Any]


class Job(NamedTuple):
    """What a mirror is to do. `turn` tells those of one case apart."""

    folder: Path
    source: Server
    target: Server
    codec: str
    turn: int


Command = Callable[[Job], list[str]]


# ---- the mirrors


def magicbyte(job: Job) -> list[str]:
    arguments = ["--from", job.source.bootstrap, "--to", job.target.bootstrap, "--topics", TOPIC]
    return [sys.executable, "-m", "magicbyte", "mirror", *arguments, "--group", f"turn-{job.turn}", "--yes"]


def mirror_maker_1(job: Job) -> list[str]:
    consumer = {
        "bootstrap.servers": job.source.bootstrap,
        "group.id": f"mm1-{job.turn}",
        "auto.offset.reset": "earliest",
    }
    producer = {"bootstrap.servers": job.target.bootstrap, "compression.type": job.codec}
    kafka_oracle.write_properties(job.folder / "consumer.properties", consumer)
    kafka_oracle.write_properties(job.folder / "producer.properties", producer)
    configs = [
        "--consumer.config",
        job.folder / "consumer.properties",
        "--producer.config",
        job.folder / "producer.properties",
    ]
    streams = str(os.cpu_count())
    arguments = [*map(str, configs), "--whitelist", TOPIC, "--num.streams", streams]
    return [*java(MM1, job.folder, kafka_oracle.fetch(MM1)), "kafka.tools.MirrorMaker", *arguments]


def mirror_maker_2(job: Job) -> list[str]:
    settings = {
        "clusters": "source, target",
        "source.bootstrap.servers": job.source.bootstrap,
        "target.bootstrap.servers": job.target.bootstrap,
        "target.producer.compression.type": job.codec,
        "source->target.enabled": "true",
        "source->target.topics": TOPIC,
        "target->source.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "tasks.max": os.cpu_count(),
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "sync.topic.acls.enabled": "false",
        **dict.fromkeys(("replication.factor", "offset-syncs.topic.replication.factor"), 1),
        **{f"{each}.storage.replication.factor": 1 for each in ("config", "offset", "status")},
    }
    kafka_oracle.write_properties(job.folder / "mm2.properties", settings)
    main = ["org.apache.kafka.connect.mirror.MirrorMaker", str(job.folder / "mm2.properties")]
    return [*java(MM2, job.folder, connect_jars()), *main]


def java(version: str, folder: Path, jars: Path) -> list[str]:
    flags = kafka_oracle.logging_flags(version, folder / "mirror.log", "INFO")
    return [kafka_oracle.jdk_program("java"), *JVM, *flags, "-cp", f"{jars}/*"]


def connect_jars() -> Path:
    """Return the folder of MirrorMaker 2's jars, fetched by Maven when it is not there."""
    home = kafka_oracle.cache_home() / f"connect-{MM2}"
    if not home.is_dir():
        wanted = [("org.apache.kafka", name, MM2) for name in EXTRA_JARS]
        wanted += [("ch.qos.reload4j", "reload4j", "1.2.25"), ("org.slf4j", "slf4j-reload4j", "1.7.36")]
        listed = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
            for group, name, version in wanted
        )
        build = Path(tempfile.mkdtemp(dir=home.parent))
        (build / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>oracle</groupId><artifactId>connect</artifactId>"
            f"<version>1</version><dependencies>{listed}</dependencies></project>\n"
        )
        options = ["-DoutputDirectory=jars", "-DincludeScope=runtime"]
        subprocess.run(["mvn", "-q", "-B", kafka_oracle.DEPENDENCY_PLUGIN, *options], cwd=build, check=True)
        (build / "jars").rename(home)
        shutil.rmtree(build)
    return home


# ---- filling, and measuring


def sets_of(magic: int, codec: str, size: int, set_bytes: int | None) -> list[Any]:
    """Return sets as a producer sends them, those of data.py or others of about `set_bytes`."""
    log = memoryview(data.log(size, magic, codec).read_bytes())
    if set_bytes is None:
        return closed(log)
    records = joined(list(decode(log)))
    batch_bytes = set_bytes * data.log(size, magic, "none").stat().st_size // len(log)
    made = encode(records, Format.V2, CODECS[codec], batch_bytes=batch_bytes)
    return closed(memoryview(made))


async def fill(server: Server, magic: int, codec: str, size: int, set_bytes: int | None = None) -> tuple[int, int]:
    """Fill the topic at the source with closed sets; return how many records and bytes it has then."""
    sets, kind = sets_of(magic, codec, size, set_bytes), goes_with(magic, CODECS[codec])
    length = sum(len(as_bytes(each)) for each in sets)
    times = max(MEGABYTES.get((codec, size), MOST_MEGABYTES) * 10**6 // length, 1)
    async with Client(server.bootstrap) as client:
        await make(client, magic)
        leader = await client.leader(TOPIC, 0)
        for _ in range(times):
            for at in range(0, len(sets), PARTITIONS):
                row = [Addressed(TOPIC, each, made) for each, made in enumerate(sets[at : at + PARTITIONS])]
                for answer in await send_together(client, leader, row, kind):
                    assert not isinstance(answer, BrokerError), answer
        return sum(await ends(client)), times * length


def closed(log: memoryview) -> list[Any]:
    """Return the sets of a log as a producer sends them, each with offsets from 0 on."""
    found: list[Any] = []
    first = 0
    for _, entry in entries(log):
        if isinstance(entry, RecordBatch):
            found.append([bytes(8), entry.buffer[8:]])
        else:
            assert isinstance(entry, MessageView)
            found.append(closed_message(entry, first))
            first = entry.offset + 1
    return found


async def make(client: Client, magic: int) -> None:
    configs = {} if magic == 2 else {"message.format.version": str(magic)}
    while True:
        try:
            await admin.create_topic(client, admin.NewTopic(TOPIC, PARTITIONS, configs=configs))
            break
        except BrokerError as error:  # Kafka deletes topics when it finds the time
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            await asyncio.sleep(0.2)
    while len((await client.topics([TOPIC]))[TOPIC].partitions) < PARTITIONS:
        await asyncio.sleep(0.1)


async def ends(client: Client) -> list[int]:
    found = [await list_offset(client, TOPIC, partition, LATEST) for partition in range(PARTITIONS)]
    return [each.offset or 0 for each in found]


async def empty(client: Client) -> None:
    """Have no topic at the target."""
    if TOPIC in await client.topics():
        await admin.delete_topic(client, TOPIC)
    while TOPIC in await client.topics():
        await asyncio.sleep(0.2)


async def watch(client: Client, process: Server, records: int, size: int) -> Figures:
    """Return what the mirror used between the two moments."""
    deadline, began = time.monotonic() + MOST_SECONDS, None
    while True:
        await asyncio.sleep(0.05)
        assert time.monotonic() < deadline, f"not all of {records} records came"
        topic = (await client.topics()).get(TOPIC)
        if topic is None or len(topic.partitions) < PARTITIONS:
            continue
        there = sum(await ends(client))
        now = time.perf_counter(), process.cpu(), there
        if began is None and there >= FIRST * records:
            began = now
        if there >= records:
            break
    assert began is not None
    seconds, cpu, share = (after - before for before, after in zip(began, now, strict=True))
    copied = size * share / records
    return {
        "MB_per_second": round(copied / seconds / 1e6, 1),
        "cpu_seconds_per_GB": round(cpu / copied * 1e9, 2),
        "measured_MB": round(copied / 1e6),
        "cpu_seconds_from_start": round(process.cpu(), 2),
        "resident_MB": round(process.resident() / 1e6),
    }


async def turn(command: Command, job: Job, filled: tuple[int, int]) -> Figures:
    """Let one mirror copy all to an empty topic of magic 2, and measure it."""
    job.folder.mkdir()
    async with Client(job.target.bootstrap) as client:
        await empty(client)
        await make(client, 2)
        with (job.folder / "out").open("wb") as out:
            process = subprocess.Popen(command(job), stdout=out, stderr=out)
        try:
            return await watch(client, Server("", process.pid), *filled)
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def real(folder: Path) -> Iterator[tuple[Server, Server]]:
    with broker.kafka(MM1, folder / "source") as source, broker.kafka(MM2, folder / "target") as target:
        yield started(source, target)


@contextlib.contextmanager
def own(folder: Path) -> Iterator[tuple[Server, Server]]:
    folder.mkdir(exist_ok=True)
    with broker.ours(folder / "source") as source, broker.ours(folder / "target") as target:
        yield started(source, target)


def started(source: Callable[[], Server], target: Callable[[], Server]) -> tuple[Server, Server]:
    pair = source(), target()
    for server in pair:
        broker.first_records(server)
    return pair


def beside(folder: Path, codec: str, size: int) -> Figures:
    """Compare the three between real brokers."""
    rivals = {"magicbyte": magicbyte, f"MirrorMaker 1 {MM1}": mirror_maker_1, f"MirrorMaker 2 {MM2}": mirror_maker_2}
    found: Figures = {}
    with real(folder) as pair:
        filled = asyncio.run(fill(pair[0], 2, codec, size))
        for number, (name, command) in enumerate(rivals.items()):
            job = Job(folder / f"turn-{number}", *pair, codec, number)
            found[name] = asyncio.run(turn(command, job, filled))
    mine = found["magicbyte"]
    found["ratios"] = {
        name: {
            "MB_per_second": round(mine["MB_per_second"] / each["MB_per_second"], 2),
            "cpu_seconds_per_GB": round(each["cpu_seconds_per_GB"] / mine["cpu_seconds_per_GB"], 2),
        }
        for name, each in found.items()
        if name != "magicbyte"
    }
    return found


def alone(folder: Path, codec: str, size: int) -> Figures:
    """Compare closed and opened between our brokers."""
    found: Figures = {}
    for name, magic in (("closed", 2), ("opened", 1)):
        if magic == 1 and codec == "zstd":
            continue
        with own(folder / f"{name}-brokers") as pair:
            filled = asyncio.run(fill(pair[0], magic, codec, size))
            found[name] = asyncio.run(turn(magicbyte, Job(folder / name, *pair, codec, 0), filled))
    return found


def larger(folder: Path, codec: str, set_bytes: int) -> Figures:
    """Measure our mirror with larger sets."""
    with real(folder) as pair:
        filled = asyncio.run(fill(pair[0], 2, codec, 1000, set_bytes))
        return asyncio.run(turn(magicbyte, Job(folder / "turn", *pair, codec, 0), filled))


CASES: dict[str, Callable[[Path], Figures]] = {
    f"{what} {codec} {size} B": lambda folder, work=work, codec=codec, size=size: work(folder, codec, size)
    for what, work in (("closed", beside), ("ours", alone))
    for codec in CODECS
    for size in data.COUNTS
} | {
    f"sets lz4 {set_bytes} B": lambda folder, set_bytes=set_bytes: larger(folder, "lz4", set_bytes)
    for set_bytes in SET_BYTES
}


if __name__ == "__main__":
    harness.run_cases("mirror", __doc__, CASES)
