"""A log directory goes to and fro between us and real brokers: written, compacted, retained, cut, cleaned, killed.

We append to logs, compact one, retain and cut the head of the other, and close; a broker opens them without recovery,
reads all and appends. We take them back, append and roll; a broker's cleaner goes over them, it appends, and is killed.
We recover what it left and append; a broker opens what we closed, and so do we.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders import base64_text
from golden_data import log_case
from interop import jvm
from interop.batches import Json
from interop.builders import LAST_TIME, SETTINGS, complaints
from interop.sweeps import cells
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.log.cleaning.compaction import CompactionConfig
from magicbyte.engine.log.cleaning.maintenance import Action, Maintenance
from magicbyte.engine.log.files.checkpoints import CLEANER, parse_offset_checkpoint, parse_partition_metadata
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.live.log_directory import LogDirectory, Settings
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.entry import entries
from topic_settings import log_config

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SOURCES = {
    "0.9.0.1": ("0.9.0.1/compact-snappy.before", "0.9.0.1/basic-none"),
    "0.10.2.2": ("0.10.2.2/compact-snappy.before", "0.10.2.2/basic-none"),
    "0.11.0.3": ("0.11.0.3/txn-compact-none.before", "0.10.2.2/basic-none"),
    "2.8.2": ("2.8.2/compact-zstd.before", "2.8.2/txn-none"),
    "3.9.1": ("3.9.1/compact-snappy.before", "3.9.1/txn-none"),
    "4.3.1": ("4.3.1/txn-compact-none.before", "4.3.1/basic-none"),
}
"""By version: a log that is to be compacted, one that loses its first segments and the head of the next."""
FORMATS = {"0.9.0.1": (Format.V0, 1), "0.10.2.2": (Format.V1, 2)}  # and the version of the request; others: v2
CONFIG = {"segment.bytes": "9000", "index.interval.bytes": "600", "retention.ms": "-1", "file.delete.delay.ms": "0"}
COMPACTED = CONFIG | {"cleanup.policy": "compact"}
CUT = CONFIG | {"retention.bytes": "25000", "log.head.truncation": "true"}
CLEANING = (
    "log.cleaner.enable=true",
    "log.cleanup.policy=compact",
    "log.cleaner.min.cleanable.ratio=0",
    "log.cleaner.backoff.ms=100",
)
SECONDS = 240  # that a cleaner may take


@dataclass
class Stay:
    """What a broker said while it had the directory, and the records that its consumer read, by topic."""

    said: str
    consumed: dict[str, list[Json]]


@dataclass
class Opened:
    """What we found when we had it, and what was there when we gave it away."""

    was_clean: bool
    recovered: dict[str, list[int]] = field(default_factory=dict)
    found: dict[str, list[Json]] = field(default_factory=dict)
    left: dict[str, list[Json]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)


class Travels:
    """A log directory that goes to and fro; what was seen at each stage."""

    def __init__(self, version: str, folder: Path) -> None:
        self.version, self.folder = version, folder
        self.data, self.broker_log = folder / "broker" / "data", folder / "broker" / "broker.log"
        self.rules = replace(IndexRules.of(version), interval_bytes=600)
        self.topics = {f"live-{name.replace('/', '-')}": name for name in SOURCES[version]}
        self.compacted, self.cut = self.topics
        self.ids = dict.fromkeys(self.topics)
        if version.startswith("4."):  # only topics that the metadata log knows are taken
            with self.broker() as state:
                self.produce(state["bootstrap"], b"first")
            for topic in self.topics:
                known = (self.data / f"{topic}-0" / "partition.metadata").read_bytes()
                self.ids[topic] = parse_partition_metadata(known).topic_id
                shutil.rmtree(self.data / f"{topic}-0")
        self.written = self.hold(self.write)
        self.first_stay = self.stay(b"appended by the broker")
        self.taken_back = self.hold(self.append)
        self.second_stay = self.stay(b"appended before the kill", *CLEANING, kill=True)
        self.recovered = self.hold(self.append)
        self.third_stay = self.stay(b"appended at last")
        self.closed = self.hold(lambda _directory: None)

    # ---- ours

    def hold(self, work: Callable[[LogDirectory], None]) -> Opened:
        """Open the directory, do some work, and close it."""
        self.data.mkdir(parents=True, exist_ok=True)
        configs = {
            topic: log_config(COMPACTED if topic == self.compacted else CUT, self.rules) for topic in self.topics
        }
        default = log_config(CONFIG, self.rules)
        settings = Settings(
            config_of=lambda key: configs.get(key.topic, default), token=lambda: os.urandom(16).hex(), rules=self.rules
        )
        directory = LogDirectory.open(LocalFiles(), str(self.data), settings, monotonic_ms=LAST_TIME)
        opened = Opened(directory.was_clean)
        for topic, log in self.logs(directory):
            opened.recovered[topic], opened.found[topic] = list(log.loaded.recovered), records_of(log)
        work(directory)
        for topic, log in self.logs(directory):
            opened.left[topic] = records_of(log)
            log.high_watermark = opened.ends[topic] = log.log_end_offset
        directory.close()
        return opened

    def logs(self, directory: LogDirectory) -> list[tuple[str, PartitionLog]]:
        return [(key.topic, log) for key, log in directory.logs.items() if key.topic in self.topics]

    def write(self, directory: LogDirectory) -> None:
        """Append golden logs batch by batch; compact the one, let the head of the other go."""
        for topic, name in self.topics.items():
            log = directory.create(TopicPartition(topic, 0), monotonic_ms=LAST_TIME, topic_id=self.ids[topic])
            for content in log_case(name).segments().values():
                for _, entry in entries(content):
                    log.append(record_set(entry.buffer, log.config.rules), Moment.fixed(LAST_TIME))
            assert len(log.segments) > 2, "it rolls"
            log.high_watermark = log.log_end_offset
        log = directory[TopicPartition(self.cut, 0)]
        assert log.delete_old_segments(Moment.fixed(LAST_TIME)), "by size"
        first = log.segments[0]
        (_, _), (_, second), *_ = entries(first.log.read_at(0, first.size))
        log.delete_records(second.last_offset if second.last_offset is not None else second.offset)
        assert log.delete_old_segments(Moment.fixed(LAST_TIME))[-1].head
        maintenance = Maintenance(
            directory, lambda _key: CompactionConfig(min_cleanable_ratio=0.0), secret=lambda: bytes(16)
        )
        while maintenance.step(1 << 20, Moment.fixed(LAST_TIME)).action is not Action.NOTHING:
            pass
        assert maintenance.results.keys() == {TopicPartition(self.compacted, 0)}
        assert not maintenance.uncleanable

    def append(self, directory: LogDirectory) -> None:
        """Append sets as a leader does, the same key again and again, and begin a new segment between two of them."""
        form, request_version = FORMATS.get(self.version, (Format.V2, 8))
        for _, log in self.logs(directory):
            epoch = log.epochs.entries[-1].epoch if log.epochs.entries else 0
            for value in (b"ours, superseded", b"ours, to stay"):
                some = [Record(at, LAST_TIME + at, 0, b"key", value) for at in range(3)]
                prepared = prepare(
                    memoryview(encode_records(some, form, Codec.GZIP)),
                    AppendRules(format=form, compacted=log.config.compact),
                    next_offset=log.log_end_offset,
                    now_ms=LAST_TIME,
                    leader_epoch=epoch,
                    request_version=request_version,
                )
                assert not prepared.rebuilt or form is Format.V0
                log.append(prepared, Moment.fixed(LAST_TIME))
                log.roll(LAST_TIME)

    # ---- the brokers'

    @contextmanager
    def broker(self, *settings: str, kill: bool = False) -> Iterator[Json]:
        more = (jvm.SHORT_SESSION,) if kill else ()
        with jvm.broker(self.version, self.folder / "broker", *SETTINGS, *settings, *more, kill=kill) as state:
            yield state

    def stay(self, value: bytes, *settings: str, kill: bool = False) -> Stay:
        """Let a broker have the directory, and a cleaner if it has one; end it or kill it."""
        before = self.broker_log.stat().st_size if self.broker_log.exists() else 0
        with self.broker(*settings, kill=kill) as state:
            if settings:
                self.wait_for_cleaner()
            self.produce(state["bootstrap"], value)
            consumed = self.consume(state["bootstrap"])
        return Stay(self.broker_log.read_text()[before:], consumed)

    def wait_for_cleaner(self) -> None:
        """Wait until all but the active segment of each log is clean, as the cleaner's checkpoint tells."""
        wanted = {
            TopicPartition(topic, 0): max(int(path.stem) for path in (self.data / f"{topic}-0").glob("*.log"))
            for topic in self.topics
        }
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            checkpoint = self.data / CLEANER
            if checkpoint.exists() and wanted.items() <= parse_offset_checkpoint(checkpoint.read_bytes()).items():
                return
            time.sleep(0.1)
        pytest.fail(f"the cleaner has not come to {wanted}")

    def produce(self, bootstrap: str, value: bytes) -> None:
        lines = "".join(f"{topic}\t{LAST_TIME}\t{base64_text(b'key')}\t{base64_text(value)}\n" for topic in self.topics)
        pairs = [f"{topic}=none" for topic in self.topics]
        jvm.run("Produce", bootstrap, *pairs, stdin=lines.encode(), version=self.version)

    def consume(self, bootstrap: str) -> dict[str, list[Json]]:
        """Return what the version's own consumer reads of each topic."""
        return jvm.consumed_records(self.version, bootstrap, self.topics, "offset", "key", "value")


def records_of(log: PartitionLog) -> list[Json]:
    """What a consumer sees: slices from the log's start to its end. Before 0.11 the first segment whole."""
    found: list[Json] = []
    begin = log.log_start_offset if log.config.rules.has_producers else log.segments[0].base_offset
    offset = begin
    while offset < log.log_end_offset and (part := log.read(offset, 1 << 20)) is not None:
        for columns in decode(memoryview(part.read())):
            found += [
                {"offset": each.offset, "key": base64_text(each.key), "value": base64_text(each.value)}
                for each in columns
                if each.offset >= begin
            ]
        offset = record_set(part.read(), log.config.rules).last_offset + 1
    return found


def assert_compacted(before: list[Json], after: list[Json], aborted: Iterable[int]) -> None:
    """Of `before`, offsets of aborted records known, `after` is less, and has the latest of each key."""
    offsets = {each["offset"] for each in after}
    assert after == [each for each in before if each["offset"] in offsets]
    assert len(after) < len(before)
    latest = {each["key"]: each for each in before if each["key"] is not None and each["offset"] not in set(aborted)}
    assert offsets >= {each["offset"] for each in latest.values() if each["value"] is not None}


def assert_loaded_as_it_was(seen: Travels, stay: Stay, opened: Opened) -> None:
    """A broker found each log where we said that it ends, and had nothing to do for it, at least until it was open."""
    for topic in seen.topics:
        (loaded,) = (line for line in stay.said.splitlines() if "Completed load of" in line and topic in line)
        end = opened.ends[topic]
        assert re.search(rf"(end offset |logEndOffset=){end}\b", loaded), loaded
        opening = complaints(stay.said[: stay.said.index(loaded)], topic, end)
        # The snapshot of where a log was closed before goes, unless a segment begins there: of its own logs, too.
        assert [line for line in opening if "Deleted producer state snapshot" not in line] == []


@pytest.fixture(
    scope="module",
    params=cells(SOURCES),
)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Travels:
    return Travels(request.param, tmp_path_factory.mktemp(f"live-{request.param}"))


def aborted_offsets(name: str) -> set[int]:
    case = log_case(name)
    if not case.has_committed:
        return set()
    return {each["offset"] for each in case.records()} - {each["offset"] for each in case.committed()}


def source(name: str) -> list[Json]:
    return [{key: each[key] for key in ("offset", "key", "value")} for each in log_case(name).records()]


def test_what_we_compacted_retained_and_cut_is_what_had_to_stay(seen: Travels) -> None:
    name = seen.topics[seen.compacted]
    assert_compacted(source(name), seen.written.left[seen.compacted], aborted_offsets(name))
    left, all_ = seen.written.left[seen.cut], source(seen.topics[seen.cut])
    assert 0 < len(left) < len(all_)
    assert left == all_[-len(left) :]


def test_brokers_open_what_we_closed_without_work(seen: Travels) -> None:
    assert_loaded_as_it_was(seen, seen.first_stay, seen.written)
    assert_loaded_as_it_was(seen, seen.second_stay, seen.taken_back)
    assert_loaded_as_it_was(seen, seen.third_stay, seen.recovered)
    for stay, opened in ((seen.first_stay, seen.written), (seen.third_stay, seen.recovered)):
        for topic, end in opened.ends.items():
            assert complaints(stay.said, topic, end) == []


def test_consumers_read_all_that_we_left_and_what_their_broker_appended(seen: Travels) -> None:
    for stay, opened in ((seen.first_stay, seen.written), (seen.third_stay, seen.recovered)):
        for topic in seen.topics:
            *found, last = stay.consumed[topic]
            assert found == opened.left[topic]
            assert last["offset"] == opened.ends[topic]
            assert last["key"] == base64_text(b"key")


def test_we_open_what_a_broker_closed_without_recovery_and_find_what_it_had(seen: Travels) -> None:
    for opened, stay in ((seen.taken_back, seen.first_stay), (seen.closed, seen.third_stay)):
        assert opened.was_clean
        for topic in seen.topics:
            assert opened.recovered[topic] == []
            assert opened.found[topic] == stay.consumed[topic]


def test_what_a_broker_cleaned_after_us_keeps_the_latest_of_each_key(seen: Travels) -> None:
    for topic, name in seen.topics.items():
        *cleaned, last = seen.second_stay.consumed[topic]
        assert_compacted(seen.taken_back.left[topic], cleaned, aborted_offsets(name))
        assert last["value"] == base64_text(b"appended before the kill")


def test_we_recover_what_a_killed_broker_left_and_lose_nothing(seen: Travels) -> None:
    assert not seen.recovered.was_clean
    for topic in seen.topics:
        assert seen.recovered.recovered[topic]
        assert seen.recovered.found[topic] == seen.second_stay.consumed[topic]
        names = [path.name for path in (seen.data / f"{topic}-0").iterdir()]
        assert not [name for name in names if name.endswith((".deleted", ".cleaned", ".swap"))]
