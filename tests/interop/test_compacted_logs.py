"""Real brokers open log directories that we compacted: no recovery, every record read, one more appended, and back."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders import base64_text
from cli.command import run
from golden_data import log_case
from interop import jvm
from interop.batches import Json
from interop.builders import LAST_TIME, SETTINGS, complaints
from interop.sweeps import cells
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.files.checkpoints import parse_partition_metadata
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.live.log_directory import LogDirectory, Settings
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.entry import entries
from topic_settings import log_config

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SOURCES = {
    "0.10.2.2": ["0.10.2.2/compact-none", "0.10.2.2/compact-snappy"],
    "2.8.2": ["2.8.2/compact-lz4", "2.8.2/txn-compact-none"],
    "3.9.1": ["3.9.1/compact-gzip", "3.9.1/txn-compact-none"],
    "4.3.1": ["4.3.1/compact-zstd", "4.3.1/txn-compact-none"],
}
CONFIG = {"segment.bytes": "9000", "index.interval.bytes": "600", "retention.ms": "-1"}


class Compacted:
    """One of our log directories, compacted by the command, and what a broker made of it."""

    def __init__(self, version: str, folder: Path) -> None:
        self.version, self.folder = version, folder
        self.data = folder / "broker" / "data"
        self.rules = replace(IndexRules.of(version), interval_bytes=600)
        self.topics = {f"compacted-{name.replace('/', '-')}": name for name in SOURCES[version]}
        self.ids = dict.fromkeys(self.topics)
        if version.startswith("4."):  # only topics that the metadata log knows are taken
            with self.broker() as state:
                self.produce(state["bootstrap"])
            for topic in self.topics:
                known = (self.data / f"{topic}-0" / "partition.metadata").read_bytes()
                self.ids[topic] = parse_partition_metadata(known).topic_id
                shutil.rmtree(self.data / f"{topic}-0")
        self.ends = self.write()
        names = [part for topic in self.topics for part in ("--topic", topic)]
        self.done = run(
            "compact", self.data, "--in-place", "--drop-unkeyed", *names, "--kafka", version, "--segment-bytes", "20000"
        )
        self.left = {topic: self.records(topic) for topic in self.topics}
        log = folder / "broker" / "broker.log"
        before = log.stat().st_size if log.exists() else 0
        with self.broker() as state:
            self.produce(state["bootstrap"])
            self.consumed = self.consume(state["bootstrap"])
        self.said = log.read_text()[before:]

    def open(self) -> LogDirectory:
        self.data.mkdir(parents=True, exist_ok=True)
        config = log_config(CONFIG, self.rules)
        settings = Settings(config_of=lambda _key: config, token=lambda: os.urandom(16).hex(), rules=self.rules)
        return LogDirectory.open(LocalFiles(), str(self.data), settings, monotonic_ms=LAST_TIME)

    def write(self) -> dict[str, int]:
        """Append golden logs that no cleaner has seen, batch by batch; return where they end."""
        directory, ends = self.open(), {}
        for topic, name in self.topics.items():
            log = directory.create(TopicPartition(topic, 0), monotonic_ms=LAST_TIME, topic_id=self.ids[topic])
            for content in log_case(f"{name}.before").segments().values():
                for _, entry in entries(content):
                    log.append(record_set(entry.buffer, log.config.rules), Moment.fixed(LAST_TIME))
            log.high_watermark = ends[topic] = log.log_end_offset
        directory.close()
        return ends

    def records(self, topic: str) -> list[Json]:
        return [
            {"offset": record.offset, "key": base64_text(record.key), "value": base64_text(record.value)}
            for path in sorted((self.data / f"{topic}-0").glob("*.log"))
            for columns in decode(memoryview(path.read_bytes()))
            for record in columns
        ]

    @contextmanager
    def broker(self) -> Iterator[Json]:
        with jvm.broker(self.version, self.folder / "broker", *SETTINGS) as state:
            yield state

    def produce(self, bootstrap: str) -> None:
        lines = "".join(
            f"{topic}\t{LAST_TIME}\t{base64_text(b'key')}\t{base64_text(b'appended')}\n" for topic in self.topics
        )
        pairs = [f"{topic}=none" for topic in self.topics]
        jvm.run("Produce", bootstrap, *pairs, stdin=lines.encode(), version=self.version)

    def consume(self, bootstrap: str) -> dict[str, list[Json]]:
        return jvm.consumed_records(self.version, bootstrap, self.topics, "offset", "key", "value")


@pytest.mark.parametrize("version", cells(SOURCES))
def test_a_broker_takes_a_directory_that_we_compacted_as_its_own(version: str, tmp_path: Path) -> None:
    seen = Compacted(version, tmp_path)
    assert seen.done.exit_code == 0, seen.done.output
    assert "superseded" in seen.done.stdout
    for topic, end in seen.ends.items():
        loaded = [line for line in seen.said.splitlines() if "Completed load of" in line and topic in line]
        assert re.search(rf"(end offset |logEndOffset=){end}\b", loaded[0]), loaded
        assert complaints(seen.said, topic, end) == []
        *found, last = seen.consumed[topic]
        assert found == seen.left[topic]
        assert last == {"offset": end, "key": base64_text(b"key"), "value": base64_text(b"appended")}
    directory = seen.open()
    assert directory.was_clean
    for topic in seen.topics:
        assert directory[TopicPartition(topic, 0)].loaded.recovered == []
    directory.close()
