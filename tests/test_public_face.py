"""What `import magicbyte` promises: names, signatures, results compared with Kafka's own tools, and refusals.

`python tests/test_public_face.py` rewrites `public_face.txt` after an intended change of the interface.
"""

import asyncio
import base64
import dataclasses
import enum
import functools
import inspect
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from msgspec import Struct

import golden_data
import magicbyte
from magicbyte import Codec, CorruptRecordError, Format, LogDirectoryError, Record, UnknownTopicError, testing
from magicbyte.access.client import admin
from magicbyte.access.client.produce import send
from magicbyte.engine.log.files.directory import PartitionDirectory, discover
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.reader import DamageHandler
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.convert import ConversionReport
from magicbyte.engine.records.encode import encode_records
from magicbyte.public import logs, operations, selected, sources
from magicbyte.tools.offline.convert import PartitionConversion
from magicbyte.tools.offline.diff import Difference, DiffReport, PartitionComparison, What
from magicbyte.tools.offline.findings import Finding, Severity
from magicbyte.tools.offline.inventory import FetchedInventory, PartitionInventory
from magicbyte.tools.offline.salvage import Aside, Loss, SalvagedPartition, SalvageReport
from magicbyte.tools.offline.tally import FormatCount, Holes, Lz4Headers, OpenTransaction, RecordFacts, Tally

FACE = Path(__file__).with_name("public_face.txt")
RETURNED = (
    Aside, ConversionReport, DiffReport, Difference, FetchedInventory, Finding, FormatCount, Holes, Loss, Lz4Headers,
    OpenTransaction, PartitionComparison, PartitionConversion, PartitionDirectory, PartitionInventory, RecordFacts,
    SalvageReport, SalvagedPartition, Severity, Tally, TopicPartition, What, testing.Broker, testing.Cluster,
    testing.TurnedClock,
)  # fmt: skip
"""The results of the functions, in addition to the names of the package itself."""
ALIASES = {
    "AnyPath": sources.AnyPath,
    "DamageHandler": DamageHandler,
    "Depth": operations.Depth,
    "Ignorable": operations.Ignorable,
    "Isolation": selected.Isolation,
    "Time": selected.Time,
}
ONLY: dict[str, tuple[str, ...]] = {
    "Client": ("aclose", "consume", "existing_topic", "producer", "topics"),
    "PartitionDirectory": ("name", "partition", "path", "size", "topic"),
}
"""Classes of which only so much is public."""
INTERNAL = ("add", "describe", "lines", "locate", "plus", "served")
"""Attributes of public classes that are not."""
ERRORS = (
    magicbyte.BrokerError("produce", 3, broker="localhost:9092"),
    CorruptRecordError("crc", expected=1, found=2, position=3),
)
"""Errors that have attributes of their own."""

TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
NO_TIME = {"timestamp": -1, "timestampType": "NoTimestampType"}
ZSTD = golden_data.log_case("4.3.1/basic-zstd")
LZ4 = golden_data.log_case("0.10.2.2/basic-lz4")
PLAIN = golden_data.log_case("3.9.1/basic-none")
TRANSACTIONS = golden_data.log_case("3.9.1/txn-open-none")
OLDEST = golden_data.log_case("0.8.2.2/basic-gzip")
FLIPPED = golden_data.log_case("0.10.2.2/crash-flip.crashed")
START = 1_700_000_000_000


def folder_of(case: golden_data.Case) -> Path:
    return case.partition_dir(named=True)


def as_a_tool_saw(record: Record) -> dict[str, Any]:
    def text(cell: bytes | None) -> str | None:
        return None if cell is None else base64.b64encode(cell).decode()

    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": TYPES[record.timestamp_type],
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
    }


def expected(case: golden_data.Case) -> list[dict[str, Any]]:
    """What a consumer saw; those before 0.10 know no timestamps, where we say that v0 has none."""
    return [record if record["timestamp"] is not None else record | NO_TIME for record in case.records()]


def seen(records: Iterator[Record]) -> list[dict[str, Any]]:
    return [as_a_tool_saw(record) for record in records]


# ---- names and signatures


def lines_of_class(kind: type[Any]) -> Iterator[str]:
    """Yield a line for each public attribute of a class."""
    members = {**vars(kind.__bases__[0]), **vars(kind)} if kind is magicbyte.Client else vars(kind)
    fields: tuple[str, ...] = getattr(kind, "_fields", ())
    if issubclass(kind, Struct):
        fields = kind.__struct_fields__
    elif dataclasses.is_dataclass(kind):
        fields = tuple(each.name for each in dataclasses.fields(kind))
    annotations = inspect.get_annotations(kind)
    found = {name: f"{name}: {written(annotations[name])}" for name in fields}
    if issubclass(kind, enum.Enum):
        found = {each.name: f"{each.name} = {each.value!r}" for each in kind}
    found |= {name: name for error in ERRORS if type(error) is kind for name in sorted(vars(error))}
    for name, value in sorted(members.items()):
        if isinstance(value, property):
            assert value.fget is not None
            found[name] = f"{name} -> {written(inspect.signature(value.fget).return_annotation)}"
        elif inspect.isfunction(value):
            found[name] = signature(name, value)
    wanted = ONLY.get(kind.__name__, [name for name in found if not name.startswith("_") and name not in INTERNAL])
    if kind in (testing.Broker, magicbyte.Client):
        yield signature("", members["__init__"])
    yield from (found[name] for name in wanted)


def written(annotation: Any) -> str:
    if isinstance(annotation, type):
        return annotation.__name__
    return str(getattr(annotation, "__forward_arg__", annotation))


def signature(name: str, function: Callable[..., Any]) -> str:
    kind = "async " if inspect.iscoroutinefunction(function) else ""
    text = str(inspect.signature(function))  # which quotes the annotations
    return kind + name + re.sub(r"""(: |-> )(['"])(.*?)\2(?=[,)]| = |$)""", r"\1\3", text)


def face() -> str:
    """Return names and signatures as text."""
    lines = [f"{name} = {str(value).replace('typing.', '')}" for name, value in ALIASES.items()]
    public = [getattr(magicbyte, name) for name in magicbyte.__all__]
    for value in (*public, *RETURNED):
        if isinstance(value, ModuleType) and not callable(value):
            lines.append(f"module {value.__name__}: {', '.join(value.__all__)}")
        elif isinstance(value, type):
            lines.append(f"class {value.__name__}({', '.join(each.__name__ for each in value.__bases__)})")
            lines += [f"    {line}" for line in lines_of_class(value)]
        else:
            lines.append(signature(value.__name__.removeprefix("magicbyte."), value))
    return "\n".join(lines) + "\n"


def test_names_and_signatures_are_those_that_were_promised() -> None:
    assert face() == FACE.read_text(encoding="utf-8")


def test_an_unknown_argument_is_refused_at_once_by_each_function_that_selects_records() -> None:
    log = magicbyte.open_log(folder_of(PLAIN))
    for read in (log.records, log.arrow_batches, log.to_arrow, functools.partial(magicbyte.records, folder_of(PLAIN))):
        with pytest.raises(TypeError, match="unexpected keyword argument 'begin': expected some of start, end, since"):
            read(begin=3)


def test_type_checkers_and_signatures_have_the_same_arguments() -> None:
    shared = list(selected.Selected.__annotations__)
    for read in (magicbyte.Log.records, magicbyte.Log.arrow_batches, magicbyte.Log.to_arrow, magicbyte.records):
        arguments = list(inspect.signature(read).parameters.values())[-len(shared) :]
        assert [each.name for each in arguments] == shared
        assert {each.kind for each in arguments} == {inspect.Parameter.KEYWORD_ONLY}


def test_the_package_lists_its_names_and_has_no_others() -> None:
    assert dir(magicbyte) == sorted([*magicbyte.__all__, "__version__"])
    with pytest.raises(AttributeError, match=r"no attribute 'reed': expected one of .*records"):
        _ = magicbyte.reed  # type: ignore[attr-defined]


PATHS = ("path", "paths", "out", "directory")


def functions_with_paths() -> Iterator[tuple[str, inspect.Parameter]]:
    """Each argument that is a path, of public functions, methods and constructors."""
    given = [value for name in magicbyte.__all__ if callable(value := getattr(magicbyte, name))]
    for value in (*given, discover, testing.Broker, testing.Cluster):
        methods = [each for each in vars(value).values() if inspect.isfunction(each)] if isinstance(value, type) else []
        public = [each for each in methods if each.__name__ == "__init__" or not each.__name__.startswith("_")]
        for function in public or [value]:
            if (isinstance(value, type) and issubclass(value, Exception | tuple)) or value is magicbyte.Log:
                continue  # errors, and what only this package makes
            for each in inspect.signature(function).parameters.values():
                if each.name in PATHS or "Path" in str(each.annotation):
                    yield f"{value.__name__}.{function.__name__}", each


def test_each_path_of_the_public_face_is_text_or_like_a_path() -> None:
    found = list(functions_with_paths())
    assert len(found) == 13
    for name, argument in found:
        is_any = "AnyPath" in str(argument.annotation) or "str | os.PathLike[str]" in str(argument.annotation)
        assert is_any, (name, argument)


class PathOfTheirOwn(os.PathLike[str]):
    """An object that is like a path, and neither text nor of pathlib."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __fspath__(self) -> str:
        return self._path


@pytest.mark.parametrize("kind", [str, Path, PathOfTheirOwn])
def test_each_function_takes_each_kind_of_path(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    folder = kind(folder_of(PLAIN))
    assert seen(magicbyte.records(folder)) == seen(magicbyte.open_log(folder).records()) == PLAIN.records()
    assert magicbyte.inventory(folder)[0].tally.records == len(PLAIN.records())
    assert magicbyte.verify(folder) == []
    assert magicbyte.convert(folder, kind(tmp_path / "converted"), Format.V2)[0].sound
    assert magicbyte.salvage(folder, kind(tmp_path / "salvaged"))[0].report.is_sound
    assert magicbyte.diff(folder, kind(tmp_path / "salvaged")).same
    assert [each.path for each in discover(folder)] == [each.path for each in discover([folder])]
    for made in (
        testing.Broker(directory=kind(tmp_path / "broker")),
        testing.Cluster(1, directory=kind(tmp_path / "3")),
    ):
        with made:
            assert made.bootstrap_servers
    assert (tmp_path / "broker/meta.properties").exists()
    with pytest.raises(ValueError, match="expected an empty folder"):
        testing.Cluster(1, directory=kind(tmp_path))


LOADED = """
import sys, magicbyte
heavy = {"numba", "pyarrow", "pyspark", "numpy", "asyncio", "typing", "dataclasses"}
at_first = sorted(heavy & set(sys.modules))
found = [getattr(magicbyte, name) for name in magicbyte.__all__] + [magicbyte.testing.Broker]
list(magicbyte.records(sys.argv[1], threads=1))
print(at_first, sorted({"numba", "pyarrow", "pyspark"} & set(sys.modules)))
"""


def test_importing_loads_nothing_and_no_name_loads_numba_arrow_or_spark() -> None:
    command = [sys.executable, "-P", "-c", LOADED, str(folder_of(ZSTD))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[] []\n"


def test_records_is_the_function_also_when_the_room_of_that_name_was_imported() -> None:
    import magicbyte.engine.records.columns

    assert magicbyte.engine.records.columns.Record is Record
    assert inspect.signature(magicbyte.records) == inspect.signature(logs.records)
    assert pickle.loads(pickle.dumps(magicbyte.records)) is magicbyte.records  # as Spark does with what tasks call
    assert seen(magicbyte.records(folder_of(ZSTD))) == ZSTD.records()


USER = """
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import assert_type

import magicbyte
from magicbyte import Codec, CorruptRecordError, Dialect, Format, Log, Record, records
from magicbyte.testing import Broker

assert_type(records(Path("logs"), until=datetime(2016, 11, 1), topic="orders", partition=0), Iterator[Record])
for record in magicbyte.records("logs/orders-0", since="2016-11-01"):
    assert_type(record, Record)
    assert_type(record.key, bytes | None)
    assert_type(record.topic, str | None)
    assert_type(record.headers, tuple[tuple[str, bytes | None], ...])
log = magicbyte.open_log("logs", dialect=Dialect.ENRICHED)
assert_type(log, Log)
assert_type(log.topics, list[str])
assert_type(magicbyte.inventory("logs")[0].tally.records, int | None)
assert_type([finding.advice for finding in magicbyte.verify("logs", depth="deep")], list[str])
assert_type(magicbyte.convert("logs", "out", Format.V2, codec=Codec.ZSTD)[0].sound, bool)
assert_type(magicbyte.salvage("logs", "out")[0].report.is_sound, bool)
assert_type(magicbyte.diff("a", "b", ignore=["headers"]).same, bool)


def damaged(error: CorruptRecordError) -> None:
    assert_type(error.path, str | None)


async def serve() -> None:
    async with magicbyte.Client("localhost:9092") as client, magicbyte.testing.Broker() as broker:
        assert_type(client, magicbyte.Client)
        assert_type(broker, Broker)
        assert_type(broker.bootstrap_servers, str)


magicbyte.records("logs", on_damage=damaged)
magicbyte.records("logs", since=1.5)  # type: ignore[arg-type]
magicbyte.records("logs", isolation="committed")  # type: ignore[arg-type]
magicbyte.verify("logs", depth="shallow")  # type: ignore[arg-type]
magicbyte.convert("logs", "out", "v2")  # type: ignore[arg-type]
magicbyte.reed  # type: ignore[attr-defined]
"""


@pytest.mark.slow
def test_a_strict_type_checker_sees_precise_types_in_a_users_program(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", "cache", "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


# ---- records and tables, beside what Kafka's consumers saw


@pytest.fixture(scope="module")
def log_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, one of them with two partitions and one trimmed, and a folder that is being deleted."""
    target = tmp_path_factory.mktemp("face") / "data"
    for name in ("basic-gzip", "basic-gzip.p1", "trimmed-none"):
        case = golden_data.log_case(f"3.9.1/{name}")
        shutil.copytree(case.partition_dir(), target / f"{case.topic}-{case.partition}")
    shutil.copytree(PLAIN.partition_dir(), target / f"basic-gzip-0.{'a' * 32}-delete")
    (target / "log-start-offset-checkpoint").write_text("0\n1\ntrimmed-none 0 77\n")
    return target


@pytest.mark.parametrize("case", [OLDEST, LZ4, ZSTD], ids=str)
@pytest.mark.parametrize("place", ["folder", "segment", "file", "memory"])
def test_records_are_what_a_consumer_saw_wherever_the_log_is(case: golden_data.Case, place: str) -> None:
    folder = folder_of(case)
    if place == "memory":
        for name, content in case.partition_files().items():
            fsspec.filesystem("memory").pipe(f"/face/{folder.name}/{name}", content)
    (segment, *more) = sorted(folder.glob("*.log"))
    path = {"folder": folder, "segment": segment, "file": folder.as_uri(), "memory": f"memory://face/{folder.name}"}
    end = int(more[0].stem) if more and place == "segment" else sys.maxsize
    found = list(magicbyte.records(path[place]))
    assert seen(iter(found)) == [record for record in expected(case) if record["offset"] < end]
    assert {(record.topic, record.partition) for record in found} == {(case.topic, case.partition)}


def test_records_of_a_log_directory_are_those_of_its_partitions_from_the_log_start_offset_on(
    log_directory: Path,
) -> None:
    log = magicbyte.open_log(log_directory)
    assert log.topics == ["basic-gzip", "trimmed-none"]
    assert log.partitions == [("basic-gzip", 0), ("basic-gzip", 1), ("trimmed-none", 0)]
    cases = [golden_data.log_case(f"3.9.1/{name}") for name in ("basic-gzip", "basic-gzip.p1", "trimmed-none")]
    assert seen(log.records()) == [record for case in cases for record in case.records()]
    assert seen(log.records("basic-gzip", 1)) == cases[1].records()
    assert seen(magicbyte.records(log_directory, topic="trimmed-none")) == cases[2].records()
    assert cases[2].records()[0]["offset"] == 77


def test_offsets_and_times_choose_from_start_to_below_end() -> None:
    records = PLAIN.records()
    times = sorted(record["timestamp"] for record in records)
    since, until = times[50], times[120]
    between = [record for record in records if since <= record["timestamp"] < until]
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=since)
    elsewhere = moment.astimezone(timezone(timedelta(hours=5)))
    folder = folder_of(PLAIN)
    assert seen(magicbyte.records(folder, start=37, end=91)) == records[37:91]
    for first in (since, str(since), moment, elsewhere, moment.replace(tzinfo=None), moment.isoformat()):
        assert seen(magicbyte.records(folder, since=first, until=until)) == between
    assert seen(magicbyte.records(folder, since="2016-11-01")) == records
    assert seen(magicbyte.records(folder, since="2033-05-18")) == []


def test_committed_records_are_what_such_a_consumer_saw() -> None:
    folder = folder_of(TRANSACTIONS)
    assert seen(magicbyte.records(folder, isolation="read_committed")) == TRANSACTIONS.committed()
    assert seen(magicbyte.records(folder)) == TRANSACTIONS.records() != TRANSACTIONS.committed()


def rows(table: pa.Table) -> list[Record]:
    names = ("offset", "timestamp", "timestampType", "key", "value", "headers", "topic", "partition")
    columns = [table.column(name).to_pylist() for name in names]
    columns[1] = [int(at.value // 10**6) if hasattr(at, "value") else round(at.timestamp() * 1000) for at in columns[1]]
    columns[5] = [tuple((each["key"], each["value"]) for each in headers or ()) for headers in columns[5]]
    return [Record(*row) for row in zip(*columns, strict=True)]


def test_a_table_has_the_records_of_a_topic(log_directory: Path) -> None:
    log = magicbyte.open_log(log_directory)
    table = log.to_arrow(topic="basic-gzip")
    assert rows(table) == list(log.records("basic-gzip"))
    assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    reader = log.arrow_batches(topic="basic-gzip", start=5)
    assert reader.schema == table.schema
    assert rows(reader.read_all()) == list(log.records("basic-gzip", start=5))
    assert log.to_arrow(since="2033-05-18").num_rows == 0


def test_a_table_warns_of_timestamps_beyond_microseconds_and_has_them_as_stored(tmp_path: Path) -> None:
    far = [Record(offset, time, 0, None, b"v") for offset, time in enumerate([5, 1 << 62])]
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0/00000000000000000000.log").write_bytes(encode_records(far, Format.V2, Codec.NONE))
    log = magicbyte.open_log(tmp_path)
    with pytest.warns(
        UserWarning, match=rf"1 timestamp is beyond .*t-0, offset 1: {1 << 62} ms.*timestamp_millis=True"
    ) as said:
        log.to_arrow()
    assert said[0].filename == __file__
    with pytest.warns(UserWarning, match="timestampMillis has them"):
        table = log.to_arrow(timestamp_millis=True)
    assert table["timestampMillis"].to_pylist() == [5, 1 << 62]
    assert table["timestamp"].is_null().to_pylist() == [False, True]


def test_no_more_is_read_ahead_than_the_threads_have_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight segments: one for each thread, one that waits, and one that is given."""
    case = golden_data.log_case("0.8.2.2/compact-none.before")
    log = magicbyte.open_log(folder_of(case))
    opened: list[str] = []
    whole = LocalFiles.open
    monkeypatch.setattr(LocalFiles, "open", lambda files, path: (opened.append(path), whole(files, path))[1])
    for threads, most in ((1, 1), (2, 4)):
        opened.clear()
        records = log.records(threads=threads)
        assert opened == []
        next(records)
        assert len([path for path in opened if path.endswith(".log")]) <= most
        assert len(list(records)) == len(case.records()) - 1


# ---- a running cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of an embedded broker and its log directory; `orders` has two partitions."""

    async def produce(address: str) -> None:
        async with magicbyte.Client(address) as client:
            await admin.create_topic(client, admin.NewTopic("orders", 2))
            for partition in (0, 1):
                sent = [Record(0, START + 1000 * at, 0, b"key", b"%d" % at, (("name", None),)) for at in range(20)]
                await send(client, "orders", partition, sent)

    folder = tmp_path_factory.mktemp("cluster")
    with testing.Broker(directory=folder) as broker:
        asyncio.run(produce(broker.bootstrap_servers))
        yield broker.bootstrap_servers, folder


@pytest.mark.parametrize(
    "options",
    [{}, {"partition": 1}, {"since": START + 7000, "until": START + 9000}, {"start": 3, "end": 5}],
    ids=str,
)
def test_a_topic_of_a_cluster_reads_as_its_log_directory(options: dict[str, int], cluster: tuple[str, Path]) -> None:
    address, folder = cluster
    on_disk = list(magicbyte.records(folder, topic="orders", **options))  # type: ignore[arg-type]
    log = magicbyte.open_log(f"kafka://{address}/orders")
    assert on_disk
    assert log.partitions == [("orders", 0), ("orders", 1)]
    assert list(log.records(**options)) == on_disk  # type: ignore[arg-type]
    assert rows(log.to_arrow(**options)) == on_disk  # type: ignore[arg-type]
    assert list(magicbyte.records(f"kafka://{address}/orders/1")) == list(
        magicbyte.records(folder, partition=1, topic="orders")
    )


def test_a_topic_of_a_secured_cluster_is_read_with_settings_of_a_client_and_not_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_OF_ALICE", "wonderland")
    users = {"alice": "wonderland"}
    with magicbyte.testing.Broker(security="SASL_SSL", users=users) as broker:
        assert broker.security is not None
        topic = f"kafka://{broker.bootstrap_servers}/orders"
        known = broker.security.librdkafka() | {"sasl.password": "${env:SECRET_OF_ALICE}"}

        async def written() -> None:
            async with magicbyte.Client(broker.bootstrap_servers, security=broker.security.client()) as client:
                await admin.create_topic(client, admin.NewTopic("orders"))
                await send(client, "orders", 0, [Record(0, START, 0, b"k", b"v")])

        asyncio.run(written())
        assert [each.value for each in magicbyte.records(topic, client_settings=known)] == [b"v"]
        log = magicbyte.open_log(topic, client_settings=known)
        assert "alice" not in repr(log)
        assert log.to_arrow()["value"].to_pylist() == [b"v"]
        assert magicbyte.inventory(topic, client_settings=known)[0].tally.records == 1
        assert magicbyte.diff(topic, topic, client_settings=known).same
        with pytest.raises(magicbyte.NetworkError, match=r"security\.protocol"):
            magicbyte.open_log(topic)
        with pytest.raises(magicbyte.MagicbyteError, match=r"login was refused|Authentication failed") as refused:
            magicbyte.open_log(topic, client_settings=known | {"sasl.password": "hunter2"})
        assert "hunter2" not in str(refused.value)
        with pytest.raises(magicbyte.MagicbyteError, match=r"sasl\.pasword"):
            magicbyte.open_log(topic, client_settings=known | {"sasl.pasword": "hunter2"})
    with pytest.raises(ValueError, match="expected a topic, kafka://HOST:PORT/TOPIC"):
        magicbyte.records("logs/orders-0", client_settings=known)


def test_a_cluster_is_read_where_an_event_loop_runs_as_in_a_notebook(cluster: tuple[str, Path]) -> None:
    address, folder = cluster

    async def cell() -> list[Any]:
        topic = f"kafka://{address}/orders"
        half = magicbyte.records(topic)
        next(half)
        del half
        (first, _) = magicbyte.inventory(topic)
        return [list(magicbyte.records(topic)), first.tally.records, magicbyte.diff(topic, topic).same]

    assert asyncio.run(cell()) == [list(magicbyte.records(folder, topic="orders")), 20, True]


# ---- whole logs


def test_an_inventory_counts_what_the_dump_tool_listed(log_directory: Path) -> None:
    found = magicbyte.inventory(folder_of(ZSTD), deep=True)
    assert [(each.partition.topic, each.partition.partition) for each in found] == [(ZSTD.topic, ZSTD.partition)]
    assert found[0].tally.batches == len(ZSTD.batches())
    assert found[0].tally.deep is not None
    assert found[0].tally.deep.records == len(ZSTD.records())
    assert [each.partition.topic for each in magicbyte.inventory(log_directory, topic="trimmed-none")] == [
        "trimmed-none"
    ]


def test_verify_finds_nothing_in_what_is_sound_and_tells_where_damage_is() -> None:
    assert magicbyte.verify(folder_of(ZSTD), depth="deep") == []
    findings = magicbyte.verify(folder_of(FLIPPED), depth="quick")
    (invalid,) = [row for row in FLIPPED.batches() if not row["isvalid"]]
    assert (findings[0].severity.value, findings[0].position) == ("error", invalid["position"])


def test_convert_salvage_and_diff_keep_every_record(tmp_path: Path) -> None:
    (done,) = magicbyte.convert(folder_of(LZ4), tmp_path / "new", Format.V2, codec=Codec.ZSTD, verify=True)
    assert (done.sound, done.verified) == (True, True)
    assert list(magicbyte.records(tmp_path / "new")) == list(magicbyte.records(folder_of(LZ4)))
    (kept,) = magicbyte.salvage(tmp_path / "new", tmp_path / "again")
    assert kept.report.is_sound
    assert magicbyte.diff(tmp_path / "new", tmp_path / "again").same


def test_a_damaged_log_is_not_converted_and_what_is_whole_of_it_can_be_salvaged(tmp_path: Path) -> None:
    (refused,) = magicbyte.convert(folder_of(FLIPPED), tmp_path / "new", Format.V2)
    assert isinstance(refused.error, CorruptRecordError)
    (kept,) = magicbyte.salvage(folder_of(FLIPPED), tmp_path / "whole")
    assert [loss.offsets for loss in kept.report.lost] == [refused.error.offsets]
    report = magicbyte.diff(folder_of(FLIPPED), tmp_path / "whole", on_damage=lambda _: None)
    assert report.same
    report = magicbyte.diff(folder_of(FLIPPED), folder_of(LZ4), described=2, on_damage=lambda _: None)
    (partition,) = report.partitions
    assert (report.same, len(partition.differences)) == (False, 2)
    assert sum(partition.differing.values()) > 2


# ---- what is wrong is said in a sentence


def test_damage_is_an_error_with_file_and_position_behind_what_is_whole() -> None:
    (invalid,) = [row for row in FLIPPED.batches() if not row["isvalid"]]
    records, found = magicbyte.records(folder_of(FLIPPED)), []
    with pytest.raises(CorruptRecordError) as caught:
        found.extend(records)
    assert [record.offset for record in found] == list(range(len(found)))
    assert found
    assert (Path(caught.value.path or "").parent, caught.value.position) == (folder_of(FLIPPED), invalid["position"])
    with pytest.raises(CorruptRecordError) as in_arrow:
        magicbyte.open_log(folder_of(FLIPPED)).to_arrow()
    assert str(in_arrow.value) == str(caught.value)
    told: list[CorruptRecordError] = []
    assert len(list(magicbyte.records(folder_of(FLIPPED), on_damage=told.append))) >= len(found)
    assert str(told[0]) == str(caught.value)


@pytest.mark.parametrize("work", [magicbyte.open_log, magicbyte.records, magicbyte.inventory, magicbyte.verify])
def test_a_log_in_the_other_dialect_is_warned_about_at_the_line_that_asked(work: Callable[..., object]) -> None:
    case = golden_data.log_case("0.10.2.2/basic-none")
    with pytest.warns(UserWarning, match="is this log in Kafka's own dialect") as caught:
        work(folder_of(case), dialect=magicbyte.Dialect.ENRICHED)
    assert [each.filename for each in caught] == [__file__]


def of_zstd(**options: Any) -> Iterator[Record]:
    return magicbyte.records(folder_of(ZSTD), **options)


def disks(tmp_path: Path) -> Path:
    """A folder of log directories."""
    shutil.copytree(folder_of(ZSTD), tmp_path / "disks/one/orders-0")
    return tmp_path / "disks"


def log_with(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("no log")
    return tmp_path


@pytest.mark.parametrize(
    ("work", "kind", "message"),
    [
        (lambda _: magicbyte.records("nowhere/orders-0"), LogDirectoryError, "orders-0: no such file or folder"),
        (lambda tmp: magicbyte.open_log(log_with(tmp)), LogDirectoryError, "expected .*, found no log in it"),
        (lambda tmp: magicbyte.open_log(log_with(tmp) / "notes.txt"), LogDirectoryError, "a file of another name"),
        (lambda _: magicbyte.open_log("kafka://localhost"), ValueError, "expected kafka://HOST:PORT/TOPIC"),
        (lambda _: magicbyte.open_log("kafka://127.0.0.1:1/x"), magicbyte.NetworkError, "is a broker running there"),
        (lambda _: of_zstd(topic="x"), UnknownTopicError, "no topic 'x' here: expected"),
        (lambda _: of_zstd(partition=9), UnknownTopicError, "no partition 9 here: expected"),
        (lambda _: of_zstd(since="soon"), ValueError, "since='soon': expected a time such as"),
        (lambda _: of_zstd(until="2016-13-01"), ValueError, "until='2016-13-01': expected"),
        (lambda _: of_zstd(start=5, end=4), ValueError, "end=4: expected an offset from 5"),
        (lambda _: of_zstd(start=-1), ValueError, "start=-1: expected an offset"),
        (lambda _: of_zstd(threads=0), ValueError, "threads=0: expected 1 or more"),
        (lambda _: of_zstd(isolation="all"), ValueError, "isolation='all': expected"),
        (lambda _: magicbyte.verify("x", depth="shallow"), ValueError, "depth='shallow': expected 'quick'"),
        (lambda _: magicbyte.verify("kafka://h:1/x"), LogDirectoryError, "cannot verify kafka://h:1/x: expected"),
        (lambda _: magicbyte.inventory("kafka://h:1/x", deep=True), ValueError, "expected a log on disk"),
        (lambda _: magicbyte.diff("a", "b", ignore=["keys"]), ValueError, "ignore='keys': expected some of 'times"),
        (lambda _: magicbyte.convert("a", "s3://b", Format.V2), ValueError, "expected a local path"),
        (lambda tmp: magicbyte.salvage(disks(tmp), tmp / "disks/new"), LogDirectoryError, "expected a path outside"),
        (lambda tmp: magicbyte.convert(disks(tmp), tmp / "disks", Format.V2), LogDirectoryError, "a path outside"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_at_once(
    work: Callable[[Path], object], kind: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message):
        work(tmp_path)


if __name__ == "__main__":
    FACE.write_text(face(), encoding="utf-8")
