"""Streams that are killed under load, again and again: from a log directory that grows into another one, or a cluster.

Run: python tests/spark/stream_kills.py ROUNDS [SEED] [-o FILE] [--folder FOLDER | --cluster]
(test_stream_spark.py runs one round of each, and two as a campaign.)
A round starts the stream as a process of its own, while this process appends to the source, and kills it with SIGKILL
at a moment that the seed draws: some time after it has staged something, or has committed. With it go all processes
below it, or its Java machine alone: then a Python process may finish a commit without a waiting driver. At the end the
stream runs until it has caught up, and each record of the source is to be in the sink, once, in its order. In a FOLDER
that is kept, rounds continue where others ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))

import magicbyte
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.offsets import LATEST, list_offset
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.spark.log_sink import WORK
from magicbyte.testing import Broker
from magicbyte.tools.mirror.log_target import LogTarget

PARTITIONS = 3
RECORDS_PER_SET = 40
SETS_PER_SECOND = 10
RECORDS_PER_BATCH = 4000
START_SECONDS = 300
"""How long a stream may take until its first batch is committed."""
START_MS = 1_700_000_000_000

STREAM = """
import json, sys
from magicbyte.spark import local_session
source, sink, checkpoint, most = sys.argv[1:]
spark = local_session("local[2]", name="stream", conf={"spark.sql.shuffle.partitions": "2"})
options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": most, "includeHeaders": "true"}
rows = spark.readStream.format("magicbyte").options(**options).load(source)
writer = rows.writeStream.format("magicbyte").option("checkpointLocation", checkpoint).options(**json.loads(sink))
writer = writer.trigger(availableNow=True) if most == "0" else writer.trigger(processingTime="200 milliseconds")
writer.start().awaitTermination()
spark.stop()
"""


class Load:
    """Appends to a log directory, set by set, in a thread, until it is stopped: as a mirror does, which locks it."""

    def __init__(self, folder: Path) -> None:
        self._target = LogTarget(folder)
        self.sent = [self._target.log("orders", number).log_end_offset for number in range(PARTITIONS)]
        self._over = threading.Event()
        self.append()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(1 / SETS_PER_SECOND):
            self.append()

    def append(self) -> None:
        """Append a set to each partition."""
        for number in range(PARTITIONS):
            first = self.sent[number]
            header = BatchHeader(partition_leader_epoch=0)
            data = encode_records(
                [record(number, first + at) for at in range(RECORDS_PER_SET)], Format.V2, header=header
            )
            self._target.append(self._target.log("orders", number), memoryview(data))
            self.sent[number] = first + RECORDS_PER_SET

    def stop(self) -> None:
        """End it."""
        self._over.set()
        self._thread.join()
        self._target.__exit__(None, None, None)


def record(partition: int, number: int) -> Record:
    """Return a record that says which it is."""
    value = b"%d:%d:" % (partition, number) + bytes(60)
    return Record(number, START_MS + number, 0, b"key-%d" % (number % 97), value, (("n", b"%d" % number),))


class DirectorySink:
    """A log directory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.options = folder / "sink", {"path": str(folder / "sink")}
        self.staging = self.folder

    def progress(self) -> str:
        """Return what is another one when a batch is committed: the name of the last manifest."""
        return max((each.name for each in self.folder.glob("spark-*.json")), default="")

    def check(self, number: int, sent: int) -> int:
        """Return how many records a partition has: each of the source's once, in their order."""
        (found,) = discover([str(self.folder / f"orders-{number}")])
        expected = 0
        for columns in SegmentReader(found).records():
            for each in columns:
                assert each == record(number, expected), (number, expected)
                expected += 1
        assert expected == sent, (number, expected, sent)
        return expected


class ClusterSink:
    """A topic of a broker, written in transactions."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.bootstrap, self.staging = bootstrap, folder / "checkpoint"
        self.options = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": "stream"}
        asyncio.run(self._make_topic())

    async def _make_topic(self) -> None:
        async with Client(self.bootstrap) as client:
            await create_topic(client, NewTopic("orders", partitions=PARTITIONS))

    async def _ends(self, *, committed: bool) -> list[int | None]:
        async with Client(self.bootstrap) as client:
            return [
                (await list_offset(client, "orders", number, LATEST, committed=committed)).offset
                for number in range(PARTITIONS)
            ]

    def progress(self) -> str:
        """Return what is another one when a batch is committed: the last stable offsets."""
        return str(asyncio.run(self._ends(committed=True)))

    def check(self, number: int, sent: int) -> int:
        """Return how many records a partition has: each of the source's once, in their order."""
        deadline = time.monotonic() + START_SECONDS
        while asyncio.run(self._ends(committed=True)) != asyncio.run(self._ends(committed=False)):
            assert time.monotonic() < deadline, "a transaction is left open"
        found = magicbyte.records(f"kafka://{self.bootstrap}/orders/{number}", isolation="read_committed")
        expected = 0
        for each in found:
            assert each._replace(offset=expected, topic=None, partition=None) == record(number, expected), (
                number,
                expected,
            )
            expected += 1
        assert expected == sent, (number, expected, sent)
        return expected


Sink = DirectorySink | ClusterSink


def started(folder: Path, sink: Sink, most: int) -> subprocess.Popen[bytes]:
    """Start the stream, with `most` records in a batch; 0: to read all there is, and end. It leads its own group."""
    arguments = [str(folder / "source"), json.dumps(sink.options), str(folder / "checkpoint"), str(most)]
    log = (folder / "stream.log").open("ab")
    return subprocess.Popen([sys.executable, "-c", STREAM, *arguments], stdout=log, stderr=log, start_new_session=True)


def kill(process: subprocess.Popen[bytes], *, workers: bool) -> None:
    """Kill the stream and its Java machine; `workers`: and the Python processes that the machine started, before it."""
    for pid in reversed(below(process.pid)) if workers else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def below(pid: int) -> list[int]:
    """Return the processes below one, children before theirs."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def staged(sink: Sink) -> set[Path]:
    """Return what tasks have staged."""
    return set((sink.staging / WORK).glob("*/*"))


def wait_for(folder: Path, sink: Sink, process: subprocess.Popen[bytes], before: str, is_due: bool) -> str:
    """Wait until the stream has committed once, or, if not `is_due`, until it stages something; return which."""
    deadline, left = time.monotonic() + START_SECONDS, staged(sink)
    while time.monotonic() < deadline:
        assert process.poll() is None, (folder / "stream.log").read_text()[-3000:]
        if is_due and sink.progress() != before:
            return "committed"
        if not is_due and staged(sink) - left:
            return "staged"
        time.sleep(0.002)
    raise AssertionError((folder / "stream.log").read_text()[-3000:])


def campaign(folder: Path, rounds: int, seed: int, *, cluster: bool = False) -> dict[str, Any]:
    """Run it in a folder; return what happened. Raises AssertionError for a record that is lost or there twice.

    `cluster`: into a cluster, which lasts as long as this.
    """
    if not cluster:
        return _campaign(folder, DirectorySink(folder), rounds, seed)
    with Broker() as broker:
        return _campaign(folder, ClusterSink(folder, broker.bootstrap_servers), rounds, seed)


def _campaign(folder: Path, sink: Sink, rounds: int, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    load, kills = Load(folder / "source"), []
    try:
        for _ in range(rounds):
            before, process = sink.progress(), started(folder, sink, RECORDS_PER_BATCH)
            try:
                is_due = rng.random() < 0.5
                at = wait_for(folder, sink, process, before, is_due)
                later = rng.choice([0.0, rng.uniform(0, 0.05), rng.uniform(0, 2)])
                time.sleep(later)
            finally:
                workers = rng.random() < 0.5
                kill(process, workers=workers)
            kills.append({"after": at, "secondsLater": round(later, 3), "workersToo": workers})
    finally:
        load.stop()
    last = started(folder, sink, 0)
    assert last.wait(10 * START_SECONDS) == 0, (folder / "stream.log").read_text()[-3000:]
    counts = {number: sink.check(number, load.sent[number]) for number in range(PARTITIONS)}
    assert not (sink.staging / WORK).exists(), "what attempts staged is gone"
    return {"seed": seed, "rounds": rounds, "records": counts, "lost": 0, "twice": 0, "kills": kills}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=20260109)
    parser.add_argument("-o", type=Path, dest="out")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--folder", type=Path)
    kept.add_argument("--cluster", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        done = campaign(given.folder or Path(home), given.rounds, given.seed, cluster=given.cluster)
    report = json.dumps(done, indent=1) + "\n"
    if given.out is not None:
        given.out.write_text(report)
    sys.stdout.write(report)
