"""Streams and pipelines on a running broker of Kafka and on its log directory, without a Spark session."""

import contextlib
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from builders import base64_text
from interop import jvm
from interop.builders import SETTINGS, complaints, log_bytes
from interop.test_pipeline_sinks import append, consume
from interop.test_spark_kafka import lines, transaction
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.engine.records.columns import arrow_schema
from magicbyte.spark.options import parse_options
from magicbyte.spark.pipeline.config import load
from magicbyte.spark.pipeline.driver import run
from magicbyte.spark.stream import LogStream
from magicbyte.spark.writing import LogWriter, parse_write_options
from magicbyte.testing import Broker
from spark.builders import RECORDS as WRITTEN
from spark.builders import SCHEMA, arrow, rows
from spark.in_process import InProcess
from spark.logs import some_records, write_partition

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

VERSION = "3.9.1"
RECORDS = 2000  # of a topic, each time something is produced
Place = dict[str, Any]


class Followed:
    """A stream, as Spark drives one: `rows` are those that it gave so far."""

    def __init__(self, **options: str) -> None:
        self._stream = LogStream(parse_options({"startingOffsets": "earliest", **options}, stream=True), arrow_schema())
        self._place: Place = {}
        self.rows: list[tuple[Any, ...]] = []

    def catch_up(self) -> None:
        """Read what there is now, batch by batch."""
        while True:
            limit = self._stream.getDefaultReadLimit()
            end = json.loads(json.dumps(self._stream.latestOffset(self._place, limit)))
            if end == self._place:
                return
            tasks = self._stream.partitions(self._place, end)
            for batch in chain.from_iterable(map(self._stream.read, tasks)):
                self.rows += [tuple(row.values()) for row in batch.to_pylist()]
            self._place = end

    def close(self) -> None:
        self._stream.stop()

    def sorted(self) -> list[tuple[Any, ...]]:
        return sorted(self.rows, key=lambda row: row[2:5])


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    kept = "log.retention.ms=-1"  # the records are old: half a minute after its start a broker deletes their segments
    with jvm.broker(VERSION, tmp_path_factory.mktemp("broker"), "log.segment.bytes=1048576", kept) as running:
        yield running


def produce(state: dict[str, Any], seed: int) -> None:
    rng = random.Random(seed)
    given = "".join([*lines("plain", rng), *transaction("transactions", rng)])
    jvm.run("Produce", state["bootstrap"], "plain=zstd", "transactions=lz4", stdin=given.encode(), version=VERSION)


def test_streams_follow_a_broker_and_its_log_directory_and_give_the_same(state: dict[str, Any]) -> None:
    topics = {"subscribe": "plain,transactions"}
    live, files = {**topics, "kafka.bootstrap.servers": state["bootstrap"]}, {**topics, "path": state["data"]}
    produce(state, 1)
    with contextlib.ExitStack() as streams:
        everything = [
            streams.enter_context(contextlib.closing(Followed(**each)))
            for each in (live, files, {**files, "maxOffsetsPerTrigger": "700"})
        ]
        committed = [
            streams.enter_context(contextlib.closing(Followed(**each, isolation="read_committed")))
            for each in (live, files)
        ]
        for seed in (2, 3):
            for each in everything + committed:
                each.catch_up()
            produce(state, seed)
        for each in everything + committed:
            each.catch_up()
    assert len(everything[0].rows) == 3 * 2 * RECORDS
    assert len(committed[0].rows) == 3 * (RECORDS + RECORDS // 2)
    assert everything[0].sorted() == everything[1].sorted() == everything[2].sorted()
    assert committed[0].sorted() == committed[1].sorted()


def test_pipelines_copy_from_the_broker_and_into_it(state: dict[str, Any], tmp_path: Path) -> None:
    produce(state, 4)
    write_partition(tmp_path / "logs", "copied-0", some_records(200), per_batch=20)
    ends = {
        "from": (f'bootstrap = "{state["bootstrap"]}"\ntopics = ["plain", "transactions"]', 'path = "copy"'),
        "into": ('path = "logs"', f'bootstrap = "{state["bootstrap"]}"'),
        "back": (f'bootstrap = "{state["bootstrap"]}"\ntopics = ["copied"]', 'path = "back"'),
    }
    for name, (source, sink) in ends.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(f'[source]\n{source}\n[[stage]]\ndo = "mirror"\n[sink]\n{sink}\n')
        done = run(load(path), context=InProcess())
        assert done.status == 0, done.units
    for topic in ("plain", "transactions"):
        assert log_bytes(tmp_path / f"copy/{topic}-0") == log_bytes(Path(state["data"]) / f"{topic}-0")
    (found,) = discover([str(tmp_path / "back/copied-0")])
    assert [record for columns in SegmentReader(found).records() for record in columns] == some_records(200)


DYING = """
import os, signal, sys
from magicbyte.spark.pipeline import topics
from magicbyte.spark.pipeline.config import load
from magicbyte.spark.pipeline.driver import run
from pathlib import Path
from tools.mirror.pair import Dying
from spark.in_process import InProcess

class DyingClient(topics.Client):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        Dying(int(sys.argv[2]), arrives=True).patched(self)

topics.Client = DyingClient
try:
    run(load(Path(sys.argv[1])), context=InProcess())
finally:
    os.kill(os.getpid(), signal.SIGKILL)  # nothing is closed, and no transaction ended
"""


@pytest.mark.parametrize("real", [True, False], ids=["3.9.1", "ours"])
def test_a_killed_pipeline_in_transactions_is_run_again_and_each_record_is_there_once(
    state: dict[str, Any], tmp_path: Path, real: bool
) -> None:
    """A consumer of committed records sees each once, in order."""
    write_partition(tmp_path / "logs", "once-0", some_records(200), per_batch=20)
    with contextlib.nullcontext(state["bootstrap"]) if real else our_broker() as bootstrap:
        path = tmp_path / "once.toml"
        path.write_text(
            f'[source]\npath = "logs"\n[sink]\nbootstrap = "{bootstrap}"\n'
            'group = "once"\ntransactional-id = "nightly"\n'
        )
        for at in (5, 3, 6, 7):  # of the requests that change something; the first run ends before its records
            command = [sys.executable, "-c", DYING, str(path), str(at)]
            done = subprocess.run(
                command, cwd=Path(__file__).parent.parent, capture_output=True, timeout=240, check=False
            )
            assert done.returncode == -signal.SIGKILL, done.stderr
        again = run(load(path), context=InProcess())
        assert again.status == 0, again.units
        seen = jvm.consumed(VERSION, bootstrap, ["once"], "read_committed")["once"]
    assert [line.split("\t")[4] for line in seen] == [
        "~" if each.value is None else base64_text(each.value) for each in some_records(200)
    ]


@contextlib.contextmanager
def our_broker() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_a_broker_takes_a_log_directory_that_rows_were_written_to(tmp_path: Path) -> None:
    options = parse_write_options({"path": str(tmp_path / "broker/data"), "kafka.compression.type": "zstd"})
    for number in range(3):
        writer = LogWriter.of(options, from_arrow_schema(SCHEMA), overwrite=False)
        writer.commit([writer.write(arrow(rows(100, first=100 * number)))])
    written = [
        {"offset": at, "key": base64_text(each.key), "value": base64_text(each.value)}
        for at, each in enumerate(WRITTEN)
    ]
    with jvm.broker(VERSION, tmp_path / "broker", *SETTINGS) as state:
        append(state["bootstrap"], VERSION, ["orders"])
        consumed = consume(state["bootstrap"], ["orders"], VERSION)["orders"]
    said = complaints((tmp_path / "broker/broker.log").read_text(), "orders", 300)
    # Of the snapshots of the commits before the last one a broker needs none.
    assert [line for line in said if "Deleted producer state snapshot" not in line] == []
    assert consumed == [*written, {"offset": 300, "key": base64_text(b"key"), "value": base64_text(b"appended")}]
