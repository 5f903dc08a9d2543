"""Real brokers open our log directories: no recovery, no index rebuilt, every record read, one more appended.

Then each is made to recover logs without any index, which it does loudly, so that silence before means something; and
what it makes of them is what we make.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders import base64_text
from cli.command import run
from engine.log.appended import batch_of, indexes_of
from golden_data import log_case
from interop import jvm
from interop.batches import Json
from interop.builders import INTERVAL, LAST_TIME, SETTINGS, complaints
from interop.sweeps import cells
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.files.producer_snapshot import ProducerEntry, ProducerSnapshot
from magicbyte.engine.log.files.producer_state import LeaderEpochs
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.extent import last_offsets
from magicbyte.engine.records.scan import scan
from magicbyte.tools.offline.convert import ConvertOptions, convert_partitions, partitions_to_convert
from magicbyte.tools.offline.salvage import SalvageOptions, salvage_logs
from magicbyte.tools.offline.writer import LogDirectoryWriter

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SEGMENT_BYTES = 20_000  # not where the source rolled
FORGETTING = {
    "0.11.0.3": ("transactional.id.expiration.ms=1",),
    "2.8.2": ("transactional.id.expiration.ms=1",),
    "3.9.1": ("producer.id.expiration.ms=1",),
    "4.3.1": ("producer.id.expiration.ms=1",),
}
"""By version that knows producers: what makes it forget, of the snapshot before each segment that it recovers, all
whose transaction is not open. By default those of a day or a week ago: another outcome on another date."""
WRITTEN = {
    "0.9.0.1": ["0.9.0.1/basic-none", "0.9.0.1/basic-snappy", "0.10.0.1/stored-v0-gzip"],  # magic 0
    "0.10.2.2": ["0.10.2.2/basic-none", "0.10.2.2/basic-gzip", "0.10.2.2/logappend-snappy"],  # magic 1
    "0.11.0.3": ["0.11.0.3/stored-v1-none", "0.10.2.2/basic-lz4"],
    "2.8.2": ["2.8.2/basic-none", "2.8.2/txn-zstd", "2.8.2/txn-open-none"],  # magic 2
    "3.9.1": ["3.9.1/basic-gzip", "3.9.1/txn-none", "2.8.2/basic-snappy"],
    "4.3.1": ["4.3.1/basic-none", "4.3.1/txn-lz4", "3.9.1/txn-open-none"],
}
RECOVERED = {
    "0.9.0.1": ["0.9.0.1/basic-none", "0.9.0.1/compact-snappy.after"],
    "0.10.2.2": ["0.10.2.2/basic-none", "0.10.2.2/mixed-snappy-0102-090", "0.10.2.2/compact-snappy.after"],
    "0.11.0.3": ["0.11.0.3/txn-lz4", "0.11.0.3/basic-none", "0.11.0.3/stored-v1-gzip"],
    "2.8.2": ["2.8.2/txn-none", "2.8.2/mixed-none-090-0102-28", "2.8.2/compact-zstd.after"],
    "3.9.1": ["3.9.1/txn-none", "3.9.1/basic-none", "3.9.1/compact-gzip.after"],
    "4.3.1": ["4.3.1/txn-none", "4.3.1/basic-snappy", "4.3.1/compact-none.after2"],
}
REBUILT = {
    "0.9.0.1": "0.9.0.1/recompress-snappy-to-gzip",
    "0.10.2.2": "0.10.2.2/mixed-snappy-0102-090",
    "0.11.0.3": "0.11.0.3/txn-none",
    "2.8.2": "2.8.2/mixed-none-090-0102-28",
    "3.9.1": "3.9.1/idempotent-gzip",
    "4.3.1": "4.3.1/txn-none",
}
CONVERTED = {
    "0.9.0.1": [("4.3.1/basic-zstd", "gzip"), ("3.9.1/txn-none", "keep"), ("0.10.2.2/basic-lz4", "keep")],
    "0.10.2.2": [("4.3.1/basic-zstd", "lz4"), ("2.8.2/txn-compact-none.after", "keep"), ("0.9.0.1/basic-gzip", "none")],
    "0.11.0.3": [("3.9.1/basic-snappy", "keep"), ("4.3.1/txn-lz4", "gzip"), ("0.8.2.2/basic-gzip", "keep")],
    "2.8.2": [("0.8.2.2/basic-none", "lz4"), ("0.10.2.2/basic-gzip", "zstd"), ("2.8.2/mixed-none-090-0102-28", "keep")],
    "3.9.1": [("0.9.0.1/basic-snappy", "zstd"), ("0.10.2.2/logappend-snappy", "keep"), ("2.8.2/txn-zstd", "gzip")],
    "4.3.1": [("0.8.2.2/basic-gzip", "keep"), ("0.10.2.2/basic-lz4", "zstd"), ("3.9.1/txn-none", "zstd")],
}
"""By version: logs that are converted for it, and to which codec."""
CONVERTED_TO = {"0.9.0.1": Format.V0, "0.10.2.2": Format.V1, "0.11.0.3": Format.V1}  # others: v2
SALVAGED = {
    "0.9.0.1": "0.9.0.1/basic-none",
    "0.10.2.2": "0.10.2.2/basic-none",
    "0.11.0.3": "0.11.0.3/stored-v1-gzip",
    "2.8.2": "2.8.2/basic-lz4",
    "3.9.1": "3.9.1/basic-snappy",
    "4.3.1": "4.3.1/basic-zstd",
}
"""By version: logs of which a batch is damaged before they are salvaged for it."""
MISNAMED = [(3_000_000_000, 5), (3_000_000_001, LAST_TIME), (3_000_000_001 + 2**31, 2**53), (2**40, 2**62)]
"""Offsets and timestamps of the records of a segment that is named 0: no index file can have all of them."""
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def marker(kind: ControlType, offset: int, producer: int, epoch: int) -> bytes:
    return build_marker(
        kind,
        base_offset=offset,
        timestamp=LAST_TIME + offset,
        producer_id=producer,
        producer_epoch=epoch,
        coordinator_epoch=3,
        partition_leader_epoch=offset // 5,
    )


def batch(offset: int, producer: int, epoch: int, sequence: int, *, transactional: bool = False) -> bytes:
    return batch_of(
        offset,
        LAST_TIME - offset,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=16 * transactional,
        partition_leader_epoch=offset // 5,
    )


CORNERS = b"".join(
    [
        marker(ABORT, 0, 7, 0),  # of a transaction without records
        batch(1, 8, 0, 0, transactional=True),
        marker(ABORT, 2, 7, 0),  # again, while another one is open
        batch(3, 9, 0, 0, transactional=True),
        marker(ABORT, 4, 9, 0),
        marker(COMMIT, 5, 8, 0),
        batch(6, 8, 1, 0),  # a newer epoch of the producer
        batch(7, 10, 0, 2**31 - 1, transactional=True),
        marker(ABORT, 8, 10, 3),  # a newer epoch in the marker
        batch(9, 11, 0, 0),
        marker(ABORT, 10, 11, 0),  # nothing transactional before
        batch(11, 12, 0, 5, transactional=True),  # left open
    ]
)
"""Producers and transactions in the order that one broker or another treats differently."""


def rules_of(version: str) -> IndexRules:
    return replace(IndexRules.of(version), interval_bytes=INTERVAL)


def write_golden(version: str, out: LogDirectoryWriter) -> dict[str, list[Json]]:
    """Write the logs of WRITTEN; return the records of each topic."""
    topics = {}
    for case in map(log_case, WRITTEN[version]):
        topic = f"written-{case.version}-{case.name}"
        with out.partition(topic, 0, segment_bytes=SEGMENT_BYTES) as writer:
            for log in case.segments().values():
                writer.append(log)
            writer.finish()
        topics[topic] = case.records()
    return topics


def write_converted(version: str, out: LogDirectoryWriter) -> dict[str, list[Json]]:
    """Write the logs of CONVERTED; return the records of each topic."""
    topics = {}
    for name, codec in CONVERTED[version]:
        case = log_case(name)
        topic = f"converted-{case.version}-{case.name}"
        options = ConvertOptions(
            CONVERTED_TO.get(version, Format.V2),
            None if codec == "keep" else Codec[codec.upper()],
            version=version,
            verify=True,
        )
        folder = out.out.with_name("converted") / topic
        partitions = partitions_to_convert([str(case.partition_dir())], as_=TopicPartition(topic, 0))
        (done,) = convert_partitions(partitions, folder, options)
        assert done.verified
        (done.folder / checkpoints.PARTITION_METADATA).unlink(missing_ok=True)  # the topic is another one here
        done.folder.rename(out.out / done.folder.name)
        topics[topic] = case.records()
    return topics


def write_rebuilt(version: str, out: LogDirectoryWriter) -> dict[str, list[Json]]:
    """Copy the log of REBUILT and let `rebuild-index` make what belongs to it."""
    case = log_case(REBUILT[version])
    topic = f"indexed-{case.version}-{case.name}"
    folder = out.out / f"{topic}-0"
    folder.mkdir()
    for name, content in case.partition_files().items():
        if name.endswith(".log") or name == checkpoints.LEADER_EPOCHS:
            (folder / name).write_bytes(content)
    result = run("rebuild-index", folder, "--kafka", version, "--index-interval", str(INTERVAL), "--write")
    assert result.exit_code == 0, result.output
    return {topic: case.records()}


def write_salvaged(version: str, out: LogDirectoryWriter) -> dict[str, list[Json]]:
    """Damage the size field of a batch of SALVAGED, and salvage the rest; return its records."""
    case = log_case(SALVAGED[version])
    name = TopicPartition(f"salvaged-{case.version}-{case.name}", 0)
    batches = case.batches()
    lost = batches[len(batches) // 2]
    source = out.out.with_name("damaged") / str(name)
    source.mkdir(parents=True)
    for file, content in case.segments().items():
        damaged = bytearray(content)
        if file == lost["segment"]:
            damaged[lost["position"] + 8] ^= 0x55
        (source / file).write_bytes(damaged)
    folder = out.out.with_name("salvaged")
    (done,) = salvage_logs(partitions_to_convert([str(source)]), folder, SalvageOptions(version))
    assert [(loss.position, loss.end - loss.position) for loss in done.report.lost] == [
        (lost["position"], lost["size"])
    ]
    done.folder.rename(out.out / done.folder.name)
    missing = range(lost["baseOffset"], lost["lastOffset"] + 1)
    return {name.topic: [record for record in case.records() if record["offset"] not in missing]}


def write_misnamed(version: str, out: LogDirectoryWriter) -> dict[str, list[Json]]:
    """Salvage a segment of MISNAMED, named 0; return its records. 0.9 and 0.10 have no batches."""
    if not rules_of(version).has_producers:
        return {}
    name = TopicPartition("misnamed", 0)
    source = out.out.with_name("misnamed") / str(name)
    source.mkdir(parents=True)
    (source / f"{0:020}.log").write_bytes(b"".join(batch_of(*each) for each in MISNAMED))
    folder = out.out.with_name("named")
    (done,) = salvage_logs(partitions_to_convert([str(source)]), folder, SalvageOptions(version))
    assert not done.report.lost
    done.folder.rename(out.out / done.folder.name)
    return {name.topic: [{"offset": offset, "key": None, "value": None, "timestamp": at} for offset, at in MISNAMED]}


WRITERS: list[Callable[[str, LogDirectoryWriter], dict[str, list[Json]]]] = [
    write_golden,
    write_converted,
    write_rebuilt,
    write_salvaged,
    write_misnamed,
]
"""Each writes partitions 0 of topics of its own, in the newest format of the version, and returns their records."""


class Opened:
    """The state in which a broker left our log directory, and logs that it had to recover."""

    def __init__(self, version: str, folder: Path) -> None:
        self.version, self.folder = version, folder
        self.data, self.log = folder / "broker" / "data", folder / "broker" / "broker.log"
        made = LogDirectoryWriter(folder / "made", rules_of(version).recovering())
        self.records = {topic: records for write in WRITERS for topic, records in write(version, made).items()}
        self.ends = {key.topic: end for key, end in made.finish().items()}
        self.recovered = {f"bare-{name.replace('/', '-')}": segments(name) for name in RECOVERED[version]}
        if version not in ("0.9.0.1", "0.10.2.2"):
            self.recovered["bare-corners"] = {"00000000000000000000.log": CORNERS}
        if version.startswith("4."):  # only topics that the metadata log knows are taken
            with self.broker() as bootstrap:
                self.produce(bootstrap, [*self.records, *self.recovered])
        for topic in self.records:
            self.place(topic, {path.name: path.read_bytes() for path in (made.out / f"{topic}-0").iterdir()})
        for path in made.out.iterdir():
            if path.is_file():
                shutil.copy(path, self.data)
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.broker() as bootstrap:
            self.produce(bootstrap, self.records)
            self.consumed = self.consume(bootstrap)
        self.said = self.log.read_text()[before:]
        self.after = {topic: files_of(self.data / f"{topic}-0") for topic in self.records}
        self.recover()

    def recover(self) -> None:
        """Let the broker rebuild the other files of the logs of `recovered`, of which it is given nothing else."""
        for topic, logs in self.recovered.items():
            self.place(topic, logs)
        (self.data / checkpoints.CLEAN_SHUTDOWN).unlink()
        (self.data / checkpoints.RECOVERY_POINT).write_bytes(b"")
        before = self.log.stat().st_size
        with self.broker(*FORGETTING.get(self.version, ())):
            self.refused = run("rebuild-index", self.data, "--write")
        self.said_recovering = self.log.read_text()[before:]

    def place(self, topic: str, files: dict[str, bytes]) -> None:
        """Make `files` the topic's partition; the topic's id stays."""
        folder = self.data / f"{topic}-0"
        kept = folder / checkpoints.PARTITION_METADATA
        files = {checkpoints.PARTITION_METADATA: kept.read_bytes(), **files} if kept.exists() else files
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)

    @contextmanager
    def broker(self, *settings: str) -> Iterator[str]:
        with jvm.broker(self.version, self.folder / "broker", *SETTINGS, *settings) as state:
            yield state["bootstrap"]

    def produce(self, bootstrap: str, topics: list[str] | dict[str, list[Json]]) -> None:
        """Send a record to each topic. Where there is none of the name, the broker makes it of what it has loaded."""
        lines = "".join(
            f"{topic}\t{LAST_TIME}\t{base64_text(b'key')}\t{base64_text(b'appended')}\n" for topic in topics
        )
        pairs = [f"{topic}=none" for topic in topics]
        jvm.run("Produce", bootstrap, *pairs, stdin=lines.encode(), version=self.version)

    def consume(self, bootstrap: str) -> dict[str, list[Json]]:
        """Return offset, key and value of all records, and what else the version's consumer knows."""
        fields = ("offset", "timestamp", "key", "value")
        return jvm.consumed_records(self.version, bootstrap, self.records, *fields)


def segments(case_id: str) -> dict[str, bytes]:
    return log_case(case_id).segments()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Opened]:
    """By broker version, each made when it is first asked for."""

    class Made(dict[str, Opened]):
        def __missing__(self, version: str) -> Opened:
            self[version] = Opened(version, tmp_path_factory.mktemp(f"kafka-{version}"))
            return self[version]

    return Made()


@pytest.mark.parametrize("version", cells(WRITTEN))
def test_a_broker_opens_our_logs_without_recovery_or_an_index_rebuilt(version: str, opened: dict[str, Opened]) -> None:
    broker = opened[version]
    for topic, end in broker.ends.items():
        loaded = [line for line in broker.said.splitlines() if "Completed load of" in line and topic in line]
        assert len(loaded) == 1
        assert re.search(rf"(end offset |logEndOffset=){end}\b", loaded[0]), loaded
        assert complaints(broker.said, topic, end) == []
    for topic in broker.recovered:
        assert complaints(broker.said_recovering, topic, None), "a broker that recovers says so"


@pytest.mark.parametrize("version", cells(WRITTEN))
def test_a_broker_changes_nothing_of_what_we_wrote_but_what_it_appends(version: str, opened: dict[str, Opened]) -> None:
    broker = opened[version]
    for topic, after in broker.after.items():
        before = files_of(broker.folder / "made" / f"{topic}-0")
        active = max(name for name in before if name.endswith(".log"))[:20]
        for name, content in before.items():
            if name == f"{active}.log":
                assert after[name].startswith(content)
            elif not name.startswith(active) and name != checkpoints.LEADER_EPOCHS:
                assert after[name] == content, name


@pytest.mark.parametrize("version", cells(WRITTEN))
def test_a_log_directory_that_a_broker_uses_is_not_written_to(version: str, opened: dict[str, Opened]) -> None:
    refused = opened[version].refused
    assert refused.exit_code == 2
    assert "a broker is using this log directory" in refused.stderr


@pytest.mark.parametrize("version", cells(WRITTEN))
def test_its_consumer_reads_every_record_and_the_one_appended(version: str, opened: dict[str, Opened]) -> None:
    broker = opened[version]
    for topic, records in broker.records.items():
        *found, last = broker.consumed[topic]
        assert (last["offset"], last["key"], last["value"]) == (
            broker.ends[topic],
            base64_text(b"key"),
            base64_text(b"appended"),
        )
        for name in ("offset", "key", "value", "timestamp"):
            expected = [record[name] for record in records]
            if name == "timestamp":
                expected = [None if version == "0.9.0.1" or at is None else str(at) for at in expected]
                found = [
                    {**each, name: None if at is None else each[name]} for each, at in zip(found, expected, strict=True)
                ]
            assert [record[name] for record in found] == expected, name


@pytest.mark.parametrize("version", cells(WRITTEN))
def test_its_dump_tool_has_no_complaint(version: str, opened: dict[str, Opened]) -> None:
    made = opened[version].folder / "made"
    paths = sorted(str(path) for path in made.glob("*/*.*") if path.stem.isdigit())
    tool = "org.apache.kafka.tools.DumpLogSegments" if version.startswith("4.") else "kafka.tools.DumpLogSegments"
    command = jvm.kafka_oracle.tool_command(version, tool, ["--deep-iteration", "--files", ",".join(paths)])
    done = subprocess.run(command, capture_output=True, timeout=jvm.SECONDS, text=True)
    # Markers that a format cannot hold leave holes, as compaction and damage do, and the tool tells of all holes.
    with_holes = r"/(converted-[^/]*-(txn|compact)-|salvaged-|misnamed-)[^/]*/"
    holes = rf"Non-(con)?secutive offsets in .*{with_holes}.*\n(  [0-9]+ is followed by .*\n)+"
    complaints = re.sub(holes, "", done.stderr)
    if version.startswith("4."):  # this tool says so of every segment whose base is not 0, a broker's own included
        complaints = re.sub(r"Non-consecutive offsets in .*\n  -1 is followed by [0-9]+\n", "", complaints)
    assert (done.returncode, complaints) == (0, "")
    assert done.stdout.count("Dumping ") == len(paths)


@pytest.mark.parametrize("version", cells(RECOVERED))
def test_what_a_recovering_broker_makes_of_a_log_is_what_we_make_of_it(version: str, opened: dict[str, Opened]) -> None:
    rules, data = rules_of(version).recovering(), opened[version].data
    for topic, logs in opened[version].recovered.items():
        found, producers = files_of(data / f"{topic}-0"), rules.producer_states()
        epochs, end = LeaderEpochs(ends_with_older=rules.release.ends_epochs_with_older), 0
        for name, log in logs.items():
            base = name.removesuffix(".log")
            assert found[name] == log
            taken = by_id(producers.snapshot())
            still = {each: entry for each, entry in taken.items() if entry.current_txn_first_offset >= 0}
            if rules.has_producers and f"{base}.snapshot" in found:
                # Behind a hole it is a copy of one that was taken at the end of the segment before.
                expected = taken if end == int(base) else still
                assert by_id(ProducerSnapshot.parse(found[f"{base}.snapshot"])) == expected, (topic, name)
            producers = rules.producer_states()
            producers.start_from(ProducerSnapshot(tuple(still.values())))
            made = indexes_of(log, int(base), rules, producers).files()
            epochs.append(table := scan(memoryview(log)))
            end = int(last_offsets(table)[-1]) + 1
            for suffix in (".index", ".timeindex", ".txnindex"):
                assert found.get(base + suffix) == made.get(suffix), (topic, base + suffix)
        if rules.has_producers:
            last = max(name for name in found if name.endswith(".snapshot"))
            assert by_id(ProducerSnapshot.parse(found[last])) == by_id(producers.snapshot())
            if checkpoints.LEADER_EPOCHS in found:
                known = checkpoints.parse_leader_epochs(found[checkpoints.LEADER_EPOCHS])
                assert known[: len(epochs.entries)] == epochs.entries  # behind them that of the new leader
                assert len(known) <= len(epochs.entries) + 1


def by_id(snapshot: ProducerSnapshot) -> dict[int, ProducerEntry]:
    """Return the producers of a snapshot, of which each is there once."""
    found = {entry.producer_id: entry for entry in snapshot.producers}
    assert len(found) == len(snapshot.producers)
    return found
