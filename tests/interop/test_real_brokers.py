"""Real brokers of five eras write logs during the test; `magicbyte cat` must print what a consumer of that era saw."""

import json
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from builders import base64_text, unbase64
from interop import jvm
from interop.batches import Json, batch

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SEED = 20260103
RECORDS = 400  # more than a segment of 1 MiB, the least that Kafka 4 allows
OLD_CODECS = ("none", "gzip", "snappy", "lz4")
NEW_CODECS = (*OLD_CODECS, "zstd")
CODECS = {"0.8.2.2": OLD_CODECS, "0.10.2.2": OLD_CODECS, "2.8.2": NEW_CODECS, "3.9.1": NEW_CODECS, "4.3.1": NEW_CODECS}
NOT_IN_CI = ("0.10.2.2", "3.9.1")
"""Between the oldest, that of which three tests need the logs, and the newest."""
WITH_TRANSACTIONS = ("2.8.2", "3.9.1", "4.3.1")
STORED_OLD = {"stored-v0-lz4": ("0.9.0", "lz4"), "stored-v1-gzip": ("0.10.2", "gzip")}  # topics of the 2.8.2 broker


class Logs:
    """What one broker left behind: its log directory, and what its own consumer printed of each topic."""

    def __init__(self, version: str, folder: Path) -> None:
        self.version = version
        self.folder = folder / "data"
        self.consumed: dict[str, list[Json]] = {}
        settings = ["log.segment.bytes=1048576"]
        if not version.startswith("0.8"):
            settings.append("log.retention.ms=-1")  # some records are from 1970
        if version.startswith("4."):
            settings.append(f"log.message.timestamp.after.max.ms={2**63 - 1}")  # and some from far ahead
        with jvm.broker(version, folder, *settings) as state:
            self.fill(state["bootstrap"], state["zookeeper"])

    def fill(self, bootstrap: str, zookeeper: str | None) -> None:
        """Produce into one topic per codec, and consume all records."""
        codecs = {f"topic-{codec}": codec for codec in CODECS[self.version]}
        lines = [line for topic in codecs for line in self.records(topic)]
        if self.version in WITH_TRANSACTIONS:
            codecs["transactions"] = "lz4"
            lines += self.transactions("transactions")
        if self.version == "2.8.2":
            for topic, (stored, codec) in STORED_OLD.items():
                self.create(topic, stored, str(zookeeper))
                codecs[topic] = codec
                lines += self.records(topic)
        pairs = [f"{topic}={codec}" for topic, codec in codecs.items()]
        jvm.run("Produce", bootstrap, *pairs, stdin="".join(lines).encode(), version=self.version)
        self.consumed = self.consume(bootstrap, codecs, "read_uncommitted")
        if self.version in WITH_TRANSACTIONS:
            self.consumed["committed"] = self.consume(bootstrap, ["transactions"], "read_committed")["transactions"]

    def records(self, topic: str) -> list[str]:
        """Return random records as Produce takes them."""
        rng = random.Random(f"{SEED} {self.version} {topic}")
        lines = []
        magic = 1 if topic in STORED_OLD else 2  # a broker fails when it has to drop headers on produce
        for record in batch(rng, magic, "none", 0, RECORDS)["records"]:
            cells = [
                record["key"],
                record["value"],
                *(cell for name, value in record["headers"] for cell in (base64_text(name.encode()), value)),
            ]
            time = max(record["timestamp"], 0)
            lines.append("\t".join([topic, str(time), *("~" if cell is None else cell for cell in cells)]) + "\n")
        return lines

    def transactions(self, topic: str) -> list[str]:
        """Return four transactions; the second and the last are aborted."""
        lines = self.records(topic)
        parts = [lines[start : start + RECORDS // 4] for start in range(0, RECORDS, RECORDS // 4)]
        ends = ("commit", "abort", "commit", "abort")
        return [
            line
            for part, end in zip(parts, ends, strict=True)
            for line in (f"{topic}\tbegin\n", *part, f"{topic}\t{end}\n")
        ]

    def create(self, topic: str, stored: str, zookeeper: str) -> None:
        """Create a topic that stores an older message format."""
        command = [
            "--create",
            "--zookeeper",
            zookeeper,
            "--topic",
            topic,
            "--partitions",
            "1",
            "--replication-factor",
            "1",
        ]
        settings = ["--config", f"message.format.version={stored}"]
        tool = jvm.kafka_oracle.tool_command(self.version, "kafka.admin.TopicCommand", [*command, *settings])
        subprocess.run(tool, check=True, timeout=jvm.SECONDS, capture_output=True)

    def consume(self, bootstrap: str, topics: Iterable[str], isolation: str) -> dict[str, list[Json]]:
        """Return the records that this era's consumer gives, as lines of records.jsonl."""
        printed = jvm.consumed(self.version, bootstrap, topics, isolation)
        return {topic: [record_in(line) for line in lines] for topic, lines in printed.items()}


def record_in(line: str) -> Json:
    """Return the record in a line of a consumer."""
    offset, timestamp, kind, *cells = line.split("\t")
    key, value, *headers = (None if cell == "~" else cell for cell in cells)
    names = [(unbase64(name) or b"").decode() for name in headers[::2]]
    return {
        "offset": int(offset),
        "timestamp": int(timestamp),
        "timestampType": kind,
        "key": key,
        "value": value,
        "headers": [list(pair) for pair in zip(names, headers[1::2], strict=True)],
    }


def marks(version: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.campaign] if version in NOT_IN_CI else []


def cases() -> list[Any]:
    every = [(version, codec) for version, codecs in CODECS.items() for codec in codecs]
    return [pytest.param(*case, marks=marks(case[0])) for case in every]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Logs]:
    """The logs by broker version, each made when it is first asked for."""

    class Made(dict[str, Logs]):
        def __missing__(self, version: str) -> Logs:
            self[version] = Logs(version, tmp_path_factory.mktemp(f"kafka-{version}"))
            return self[version]

    return Made()


def cat(path: Path, *options: str) -> list[Json]:
    """Return what `magicbyte cat PATH --format jsonl` prints, with base64 for bytes."""
    program = [sys.executable, "-c", "from magicbyte.cli.main import main; main()"]
    command = [*program, "cat", path, "--format", "jsonl", "--values", "base64", *options]
    done = subprocess.run(command, capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def unnamed(found: list[Json]) -> list[Json]:
    """Return records as consumers print them: without topic and partition."""
    return [{name: each[name] for name in each if name not in ("topic", "partition")} for each in found]


@pytest.mark.parametrize(("version", "codec"), cases())
def test_cat_prints_what_the_consumer_of_that_era_prints(version: str, codec: str, logs: dict[str, Logs]) -> None:
    written = logs[version]
    assert len(written.consumed[f"topic-{codec}"]) == RECORDS
    assert unnamed(cat(written.folder / f"topic-{codec}-0")) == written.consumed[f"topic-{codec}"]


@pytest.mark.parametrize("topic", STORED_OLD)
def test_cat_prints_what_a_newer_broker_stored_in_an_older_format(topic: str, logs: dict[str, Logs]) -> None:
    written = logs["2.8.2"]
    assert len(written.consumed[topic]) == RECORDS
    assert unnamed(cat(written.folder / f"{topic}-0")) == written.consumed[topic]


@pytest.mark.parametrize("version", [pytest.param(each, marks=marks(each)) for each in WITH_TRANSACTIONS])
def test_cat_leaves_out_aborted_records_as_a_consumer_does(version: str, logs: dict[str, Logs]) -> None:
    written = logs[version]
    partition = written.folder / "transactions-0"
    assert unnamed(cat(partition)) == written.consumed["transactions"]
    committed = unnamed(cat(partition, "--isolation", "read_committed"))
    assert committed == written.consumed["committed"]
    assert len(committed) == RECORDS // 2


@pytest.mark.parametrize("version", [pytest.param(each, marks=marks(each)) for each in CODECS])
def test_cat_of_the_whole_log_directory_names_topic_and_partition(version: str, logs: dict[str, Logs]) -> None:
    written = logs[version]
    found: dict[str, list[Json]] = {}
    for line in cat(written.folder):
        topic, partition = line.pop("topic"), line.pop("partition")
        assert partition == 0 or topic.startswith("__")
        found.setdefault(topic, []).append(line)
    for topic, records in written.consumed.items():
        if topic != "committed":
            assert found[topic] == records
