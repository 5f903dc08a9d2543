"""Each client, each of its features, topics of each format: what the run of test_clients.py does and expects.

    python -m interop.matrix KAFKA_VERSION [CLIENT...]     (in tests/) against a real broker before 4.0, or `ours`

A broker that is not ours proves the programs of `clients/` and the table of what cannot be.
"""

import argparse
import contextlib
import fnmatch
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from builders import base64_text
from interop import client_programs, jvm
from interop.client_programs import ClientProcess
from interop.kafka_oracle import version_key
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import scan

JAVA: Final = ("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2", "0.11.0.3", "2.8.2", "3.9.1", "4.3.1")
COMMANDS: Final[dict[str, Callable[[], list[str]]]] = {
    **{f"Java {version}": partial(client_programs.java, version) for version in JAVA},
    "confluent-kafka": partial(client_programs.python, "confluent"),
    "kafka-python": partial(client_programs.python, "kafka_python"),
    "aiokafka": partial(client_programs.python, "aio_kafka"),
    "kcat": partial(client_programs.python, "kcat"),
    "franz-go": partial(client_programs.go, "franz"),
    "sarama": partial(client_programs.go, "sarama"),
    "kafkajs": partial(client_programs.node, "kafkajs"),
}
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")  # by their numbers
PRODUCE: Final = tuple(f"produce {codec}" for codec in CODECS)
APART: Final = ("lz4", "zstd")  # not every client can read what is in these topics
FEATURES: Final = (
    *PRODUCE,
    "idempotent produce",
    "consume",
    "consume lz4",
    "consume zstd",
    "commit and resume",
    "group",
    "admin",
)
MAGICS: Final = {"0": 0, "1": 1, "2": 2, "enriched": 1}  # as bytes of each format say
FORMATS: Final = tuple(MAGICS)

Cell = tuple[str, str, str]  # client, feature, format
# Patterns of clients, features and formats, and why there is no such thing. The first that fits counts.
NOT_THERE: Final = (
    ("Java 0.8*", "group", "*", "groups of 0.8 are ZooKeeper's"),
    ("Java 0.8*", "admin", "*", "no admin client before 0.11"),
    ("Java 0.9*", "admin", "*", "no admin client before 0.11"),
    ("Java 0.10*", "admin", "*", "no admin client before 0.11"),
    ("kcat", "admin", "*", "makes no topics"),
    ("Java 0.8*", "idempotent produce", "*", "came with 0.11"),
    ("Java 0.9*", "idempotent produce", "*", "came with 0.11"),
    ("Java 0.10*", "idempotent produce", "*", "came with 0.11"),
    ("Java 0.*", "*zstd", "*", "zstd came with 2.1"),
    ("*", "*zstd", "[01]", "zstd needs format 2"),
    ("*", "*zstd", "enriched", "zstd needs format 2"),
    ("aiokafka", "consume lz4", "0", "refuses LZ4 of format 0"),
    *(
        (client, "consume lz4", "0", "LZ4 of format 0 has a wrong header checksum")
        for client in ("franz-go", "sarama", "kafkajs")
    ),
    ("*", "idempotent produce", "[01]", "producer ids need format 2"),
    ("*", "idempotent produce", "enriched", "producer ids need format 2"),
)
WITHOUT_TIMES: Final = ("Java 0.8.2.2", "Java 0.9.0.1")  # they send and read format 0
WITHOUT_HEADERS: Final = (*WITHOUT_TIMES, "Java 0.10.0.1", "Java 0.10.2.2")
TEXT_ONLY: Final = ("kcat",)  # nor times, nor headers, nor an empty value, when it writes
START: Final = 1_700_000_000_000
PATIENCE_S: Final = 200  # of a client for anything: fifteen of them begin at once
FIRST, RESUMED, GROUPED = 7, 20, 40  # records: before the commit, in all; of both partitions

SETTINGS: Final = ("log.retention.ms=-1", "group.initial.rebalance.delay.ms=0")  # the records are from 2023

B64 = str | None
Known = tuple[int | None, B64, B64, tuple[tuple[B64, B64], ...]]  # time (None: whenever it was), key, value, headers


def reason(cell: Cell) -> str | None:
    """Return why a cell cannot be, or None for one that has to pass."""
    for *patterns, why in NOT_THERE:
        if all(map(fnmatch.fnmatchcase, cell, patterns)):
            return why
    return None


def due(client: str) -> list[Cell]:
    """Return the cells of a client that have to pass."""
    cells = [(client, feature, magic) for feature in FEATURES for magic in FORMATS]
    return [cell for cell in cells if reason(cell) is None]


def ledger(client: str, feature: str, magic: str) -> list[Known]:
    """Return the records that a client writes for a cell; no two cells have one in common."""
    name = f"{client}/{feature}/{magic}"
    text: list[tuple[bytes, bytes | None]] = [
        (f"{name}/{i}".encode(), f"value {i} of {name} ".encode() * (i + 1)) for i in range(6)
    ]
    text.append((f"{name}/tombstone".encode(), None))
    more = [
        (None, f"{name} without a key".encode()),
        (f"{name}/empty".encode(), b""),
        (b"", f"{name} with an empty key".encode()),
        (f"{name}/\0\n\t\xff".encode("latin-1"), bytes(range(256)) * 8),
    ]
    pairs = text if client in TEXT_ONLY else [*text, *more]
    with_headers = magic == "2" and client not in (*WITHOUT_HEADERS, *TEXT_ONLY)
    headers = ((base64_text(b"name"), base64_text(b"value")), (base64_text("ключ".encode()), base64_text(b"1")))
    return [
        (START + 1000 * (i ^ 1), base64_text(key), base64_text(value), headers if with_headers and i % 3 == 1 else ())
        for i, (key, value) in enumerate(pairs)
    ]


def lines(records: Iterable[Known]) -> str:
    """Return a ledger as the file that clients read."""
    rows = (
        [str(time), key, value, *(cell for pair in headers for cell in pair)] for time, key, value, headers in records
    )
    return "".join("\t".join("~" if cell is None else cell for cell in row) + "\n" for row in rows)


def stored(record: Known, writer: str, magic: str) -> Known:
    """Return a record as a topic of a format holds it: no times in 0, the broker's own in enriched ones."""
    told, *rest = record
    time = -1 if magic == "0" else None if magic == "enriched" or writer in TEXT_ONLY else told
    time = -1 if writer in WITHOUT_TIMES and magic in ("1", "2") else time
    return (time, *rest)  # type: ignore[return-value]


@dataclass(frozen=True)
class Target:
    """A broker under test, and how it calls the formats of topics."""

    bootstrap: str
    data: Path  # its log directory
    formats: dict[str, str]
    prefix: str = ""  # of topics and groups, for another run against the same broker


@dataclass
class Results:
    """The results of a run. A cell that passed has None, others say what was wrong."""

    cells: dict[Cell, str | None] = field(default_factory=dict)
    pairs: dict[tuple[str, str, str], str | None] = field(default_factory=dict)  # writer, reader, format


class Run:
    """One run of the matrix: writers first, all of them at once, then readers, all of them at once."""

    def __init__(
        self, target: Target, folder: Path, clients: Iterable[str] = COMMANDS, log: Callable[[str], None] | None = None
    ) -> None:
        self.target, self.folder = target, folder
        self.clients = tuple(clients)
        self.log = log
        self.results = Results()
        self.written: dict[str, dict[int, tuple[str, Known]]] = {}  # topic -> offset -> writer and record
        self.ends: dict[str, int] = {}
        self.processes: dict[str, ClientProcess] = {}
        self.lock = threading.Lock()

    def run(self) -> Results:
        self.make_topics()
        with ThreadPoolExecutor(len(self.clients)) as threads:
            try:
                for work in (self.start, self.write, self.read):
                    list(threads.map(work, self.clients))
                    self.ends = self.find_ends()
            finally:
                for process in self.processes.values():
                    process.close()
        return self.results

    def start(self, client: str) -> None:
        log = self.folder / f"{client.replace(' ', '-')}.log"
        self.processes[client] = ClientProcess(COMMANDS[client](), self.target.bootstrap, log, seconds=PATIENCE_S)

    def make_topics(self) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.target.bootstrap)
        producer = KafkaProducer(bootstrap_servers=self.target.bootstrap, enable_idempotence=False)
        for magic, version in self.target.formats.items():
            settings = {"message.format.version": version}
            sizes = {"all": 1, "lz4": 1, "zstd": 1, "resume": 1, "group": 2}
            admin.create_topics(
                [NewTopic(self.topic(name, magic), size, 1, topic_configs=settings) for name, size in sizes.items()]
            )
            for i in range(RESUMED):
                producer.send(self.topic("resume", magic), b"%d" % i, partition=0, timestamp_ms=START)
                if i % 5 == 4:
                    producer.flush()
            for i in range(GROUPED):
                producer.send(self.topic("group", magic), b"%d" % i, partition=i % 2, timestamp_ms=START)
        producer.flush()
        producer.close()
        admin.close()

    def topic(self, name: str, magic: str) -> str:
        return f"{self.target.prefix}{name}-{magic}"

    def find_ends(self) -> dict[str, int]:
        consumer = KafkaConsumer(bootstrap_servers=self.target.bootstrap)
        ends = consumer.end_offsets([TopicPartition(topic, 0) for topic in self.written])
        consumer.close()
        return {partition.topic: end for partition, end in ends.items()}

    def cell(self, client: str, feature: str, magic: str, work: Callable[[], None]) -> None:
        """Fill a cell, unless there is none."""
        cell = (client, feature, magic)
        if reason(cell) is not None:
            return
        start = time.monotonic()
        try:
            work()
            found = None
        except AssertionError as error:
            found = str(error) or repr(error)
        with self.lock:
            self.results.cells[cell] = found
        if self.log is not None:
            self.log(f"{time.monotonic() - start:6.2f} s  {', '.join(cell)}: {found or 'ok'}")

    def write(self, client: str) -> None:
        process = self.processes[client]
        for magic in self.target.formats:
            for feature in (*PRODUCE, "idempotent produce"):
                self.cell(client, feature, magic, partial(self.produce, client, process, feature, magic))

    def produce(self, client: str, process: ClientProcess, feature: str, magic: str) -> None:
        idempotent = feature == "idempotent produce"
        codec = "gzip" if idempotent else feature.split()[1]
        topic = self.topic(codec if codec in APART else "all", magic)
        records = ledger(client, feature, magic)
        path = self.folder / f"{client}-{feature}-{magic}.tsv".replace(" ", "-")
        path.write_text(lines(records))
        offsets = process.ask("produce", topic, codec, int(idempotent), path)["offsets"]
        assert len(set(offsets)) == len(records), f"{len(records)} records, acknowledged at {offsets}"
        with self.lock:
            found = self.written.setdefault(topic, {})
            found |= {at: (client, stored(record, client, magic)) for at, record in zip(offsets, records, strict=True)}
        sets = {each for each in sets_of(self.target.data, topic, magic) if each.holds(offsets)}
        assert {each.magic for each in sets} == {MAGICS[magic]}, sets
        assert codec in {each.codec for each in sets}, sets  # a set that it would make larger may come as it is

    def read(self, client: str) -> None:
        process = self.processes[client]
        for magic in self.target.formats:
            group = self.topic(client.replace(" ", "-"), magic)
            self.cell(client, "consume", magic, partial(self.consume, client, process, magic, self.topic("all", magic)))
            for codec in APART:
                read = partial(self.consume, client, process, magic, self.topic(codec, magic))
                self.cell(client, f"consume {codec}", magic, read)
            self.cell(client, "commit and resume", magic, partial(self.resume, process, magic, f"{group}-resumes"))
            self.cell(client, "group", magic, partial(self.rebalance, process, group, self.topic("group", magic)))
            self.cell(client, "admin", magic, partial(self.admin, process, f"{group}-made", magic))

    def consume(self, client: str, process: ClientProcess, magic: str, topic: str) -> None:
        records = process.ask("consume", topic, self.ends.get(topic, 0))["records"]
        found = {
            offset: (when, key, value, tuple(map(tuple, headers))) for offset, when, key, value, headers in records
        }
        wrong: dict[str, str | None] = {}
        for offset, (writer, expected) in sorted(self.written[topic].items()):
            wrong.setdefault(writer, None)
            if wrong[writer] is None and not seen_as(found.get(offset), expected, client):
                wrong[writer] = f"offset {offset} of {writer}: wrote {expected}, read {found.get(offset)}"
        with self.lock:
            for writer, complaint in wrong.items():
                if self.results.pairs.get((writer, client, magic)) is None:  # a topic with zstd comes second
                    self.results.pairs[writer, client, magic] = complaint
        complaints = list(filter(None, wrong.values()))
        assert [offset for offset, *_ in records] == list(range(self.ends[topic])), (
            f"read {len(records)} of {self.ends[topic]}"
        )
        assert not complaints, complaints[0]

    def resume(self, process: ClientProcess, magic: str, group: str) -> None:
        read = process.ask("resume", group, self.topic("resume", magic), FIRST, RESUMED)["read"]
        assert read == [list(range(FIRST)), list(range(FIRST, RESUMED))], f"read {read}"

    def rebalance(self, process: ClientProcess, group: str, topic: str) -> None:
        answer = process.ask("group", group, topic, GROUPED)
        one, two, again = answer["stages"]
        assert one == again == [[0, 1]], answer["stages"]
        assert sorted(two) == [[0], [1]], answer["stages"]
        expected = {(i % 2, i // 2) for i in range(GROUPED)}
        assert set(map(tuple, answer["read"])) == expected, f"read {answer['read']}"

    def admin(self, process: ClientProcess, topic: str, magic: str) -> None:
        version = self.target.formats[magic]
        answer = process.ask("admin", topic, "message.format.version", version)
        assert answer == {"partitions": 3, "value": version, "gone": True}, answer


class StoredSet(NamedTuple):
    """A set as it lies in a log: a batch, a wrapper, or a message of its own."""

    first: int
    last: int
    magic: int
    codec: str

    def holds(self, offsets: Iterable[int]) -> bool:
        return any(self.first <= offset <= self.last for offset in offsets)


def sets_of(data: Path, topic: str, magic: str) -> list[StoredSet]:
    """Return what partition 0 holds. Wrappers of formats 0 and 1 tell their last offset, others their first."""
    log = b"".join(path.read_bytes() for path in sorted((data / f"{topic}-0").glob("*.log")))
    table = scan(memoryview(log), dialect=Dialect.ENRICHED if magic == "enriched" else Dialect.KAFKA)
    offsets, kinds = [int(each) for each in table.offset], zip(table.magic, table.codec, strict=True)
    if magic in ("0", "1"):
        spans = [(before + 1, last) for before, last in pairwise([-1, *offsets])]
    else:
        spans = [(first, following - 1) for first, following in pairwise([*offsets, 1 << 62])]
    return [StoredSet(*span, int(kind), CODECS[int(codec)]) for span, (kind, codec) in zip(spans, kinds, strict=True)]


def seen_as(found: Any, expected: Known, reader: str) -> bool:
    """Whether a reader saw a record: all of it that the reader's format has."""
    if found is None:
        return False
    when, key, value, headers = found
    time, *rest = expected
    in_time = reader in WITHOUT_TIMES or (when is not None if time is None else (-1 if when is None else when) == time)
    return in_time and [key, value, () if reader in WITHOUT_HEADERS else headers] == [
        rest[0],
        rest[1],
        () if reader in WITHOUT_HEADERS else rest[2],
    ]


@contextmanager
def ours(folder: Path) -> Iterator[Target]:
    """Run `magicbyte serve`: with topics of all formats."""
    command = [sys.executable, "-m", "magicbyte", "serve", "--dir", str(folder), "--listen", "127.0.0.1:0", *SETTINGS]
    with (folder.with_suffix(".log")).open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        said = re.match(r"listening on (\S+)", process.stdout.readline())
        assert said is not None, folder.with_suffix(".log").read_text()
        yield Target(said[1], folder, {magic: magic for magic in FORMATS})
    finally:
        process.terminate()
        process.communicate(timeout=120)
    assert process.returncode == 0, folder.with_suffix(".log").read_text()


@contextmanager
def kafka(version: str, folder: Path) -> Iterator[Target]:
    """Run a real broker: with topics of formats 0, 1 and 2 before 3.0, of format 2 from then on."""
    with jvm.broker(version, folder, *SETTINGS) as state:
        old = {"0": "0.9.0", "1": "0.10.0"} if version_key(version) < (3,) else {}
        new = {"2": ".".join(version.split(".")[:2])} if version_key(version) >= (0, 11) else {}
        yield Target(state["bootstrap"], Path(state["data"]), old | new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("clients", nargs="*", default=list(COMMANDS))
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        start = ours if options.version == "ours" else partial(kafka, options.version)
        target = stack.enter_context(start(folder / "broker"))
        results = Run(target, folder, options.clients, print).run()
    failed = {cell: found for cell, found in (*results.cells.items(), *results.pairs.items()) if found is not None}
    print(f"{len(results.cells)} cells, {len(results.pairs)} pairs, {len(failed)} failed")


if __name__ == "__main__":
    main()
