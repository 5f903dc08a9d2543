"""The source in a Spark session: equal to what consumers saw, to a query without push-down, and to Kafka's schema."""

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.engine.records.encode import Format
from magicbyte.spark import SparkUnavailableError, local_session, use_this_python
from magicbyte.spark.options import OptionError
from magicbyte.spark.source import MagicbyteSource
from spark.conftest import GoldenLogs
from spark.logs import START, some_records, write_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = tuple[Any, ...]

# As `spark.read.format("kafka")` gives it, says Spark's documentation and KafkaRecordToRowConverter.
KAFKA_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
KAFKA_HEADERS = "headers array<struct<key: string, value: binary>>"


def frame(spark: "SparkSession", path: Path | list[str], **options: str) -> "DataFrame":
    return spark.read.format("magicbyte").options(**options).load(path if isinstance(path, list) else str(path))


def rows_of(found: "DataFrame") -> dict[str, list[Row]]:
    """Return the rows by topic and in offset order: offset, timestamp (ms), its type, key, value, headers."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    by_topic: dict[str, list[Row]] = {}
    for row in found.toArrow().to_pylist():
        headers = tuple((pair["key"], pair["value"]) for pair in row["headers"] or ())
        millis = (row["timestamp"] - epoch) // timedelta(milliseconds=1)
        assert row["partition"] == 0
        by_topic.setdefault(row["topic"], []).append(
            (row["offset"], millis, row["timestampType"], row["key"], row["value"], headers)
        )
    return {topic: sorted(rows, key=lambda row: row[0]) for topic, rows in by_topic.items()}


def records_of(logs: GoldenLogs) -> dict[str, list[Row]]:
    """Return the same as SegmentReader reads it, damaged batches left out."""
    found = {}
    for partition in discover([str(logs.path)]):
        assert partition.topic is not None
        start = 77 if "trimmed" in partition.topic else 0
        rows = [
            (record.offset, record.timestamp, record.timestamp_type, record.key, record.value, record.headers)
            for columns in SegmentReader(partition).records(on_damage=lambda _: None)
            for record in columns
            if record.offset >= start
        ]
        if rows:
            found[partition.topic] = rows
    return found


@pytest.mark.spark
def test_every_golden_log_is_what_the_consumer_saw_in_every_column(spark: "SparkSession", golden: GoldenLogs) -> None:
    found = rows_of(frame(spark, golden.path, includeHeaders="true"))
    assert found == records_of(golden)
    for topic, case in golden.cases.items():
        assert [row[0] for row in found[topic]] == [record["offset"] for record in case.records()]


@pytest.mark.spark
def test_of_crashed_logs_all_is_read_but_what_is_damaged(spark: "SparkSession", crashed: GoldenLogs) -> None:
    assert rows_of(frame(spark, crashed.path, includeHeaders="true", onDamage="skip")) == records_of(crashed)


@pytest.mark.spark
def test_read_committed_is_what_such_a_consumer_saw(spark: "SparkSession", golden: GoldenLogs) -> None:
    cases = {topic: case for topic, case in golden.cases.items() if case.has_committed}
    query = frame(spark, golden.path, subscribe=",".join(cases), isolation="read_committed").select("topic", "offset")
    found: dict[str, list[int]] = {topic: [] for topic in cases}
    for row in query.collect():
        found[row.topic].append(row.offset)
    for topic, case in cases.items():
        assert sorted(found[topic]) == [record["offset"] for record in case.committed()]


# ---- the schema
@pytest.mark.spark
def test_the_schema_is_that_of_sparks_kafka_source(spark: "SparkSession", golden: GoldenLogs) -> None:
    from pyspark.sql.types import StructType

    assert frame(spark, golden.path).schema == StructType.fromDDL(KAFKA_SCHEMA)
    with_headers = frame(spark, golden.path, includeHeaders="true").schema
    assert with_headers == StructType.fromDDL(f"{KAFKA_SCHEMA}, {KAFKA_HEADERS}")


@pytest.mark.spark
def test_a_user_schema_picks_and_orders_columns(spark: "SparkSession", tmp_path: Path) -> None:
    write_partition(tmp_path, "a-0", some_records(20))
    reader = spark.read.format("magicbyte").option("includeHeaders", "true")
    query = reader.schema("offset bigint, headers array<struct<key: string, value: binary>>, value binary").load(
        str(tmp_path)
    )
    assert query.columns == ["offset", "headers", "value"]
    assert [(row.offset, [tuple(pair) for pair in row.headers or ()], row.value) for row in query.collect()] == [
        (record.offset, list(record.headers), record.value) for record in some_records(20)
    ]
    same = frame(spark, tmp_path, columns="value, offset")
    assert [tuple(row) for row in same.collect()] == [(record.value, record.offset) for record in some_records(20)]


# ---- options
@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs")
    for number in range(3):
        write_partition(path, f"orders-{number}", some_records(30), some_records(30, first=30), codec=Codec.LZ4)
    write_partition(path, "clicks-0", some_records(30, magic=1), target=Format.V1, codec=Codec.GZIP)
    return path


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"assign": '{"orders": [0, 2]}'}, 120),
        ({"subscribe": "clicks"}, 30),
        ({"subscribePattern": "c.*s"}, 30),
        ({"subscribe": "clicks", "startingOffsets": '{"clicks": {"0": 12}}'}, 18),
        ({"subscribe": "clicks", "endingOffsets": '{"clicks": {"0": 12}}'}, 12),
        ({"subscribe": "clicks", "startingTimestamp": str(START + 20_000)}, 10),
        ({"subscribe": "clicks", "endingTimestamp": str(START + 20_000)}, 20),
        ({"subscribe": "clicks", "startingOffsetsByTimestamp": f'{{"clicks": {{"0": {START + 20_000}}}}}'}, 10),
        ({"subscribe": "clicks", "endingOffsetsByTimestamp": f'{{"clicks": {{"0": {START + 20_000}}}}}'}, 20),
        ({"minPartitions": "11", "failOnDataLoss": "true", "maxBatchBytes": "1000000"}, 210),
    ],
    ids=str,
)
def test_options_reach_the_source(spark: "SparkSession", logs: Path, options: dict[str, str], count: int) -> None:
    assert frame(spark, logs, **options).count() == count


@pytest.mark.spark
def test_min_partitions_is_the_number_of_tasks(spark: "SparkSession", tmp_path: Path) -> None:
    write_partition(tmp_path, "a-0", some_records(3000))
    assert frame(spark, tmp_path).rdd.getNumPartitions() == 1
    query = frame(spark, tmp_path, minPartitions="6", columns="offset")
    assert query.rdd.getNumPartitions() == 6
    assert [row.offset for row in query.collect()] == list(range(3000))


@pytest.mark.spark
def test_several_paths_are_read_as_one(spark: "SparkSession", logs: Path) -> None:
    paths = [str(logs / "orders-0"), str(logs / "clicks-0")]
    assert frame(spark, paths).count() == 90
    assert frame(spark, Path(",".join(paths))).count() == 90


@pytest.mark.spark
def test_the_enriched_dialect_is_read_where_it_is_named(spark: "SparkSession", tmp_path: Path) -> None:
    records = some_records(40, magic=1)
    write_partition(tmp_path, "a-0", records, target=Format.ENRICHED, codec=Codec.LZ4)
    found = frame(spark, tmp_path, dialect="enriched").collect()
    assert [(row.offset, row.key, row.value) for row in found] == [
        (record.offset, record.key, record.value) for record in records
    ]


@pytest.mark.spark
def test_an_empty_partition_gives_no_rows(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0/00000000000000000000.log").write_bytes(b"")
    assert frame(spark, tmp_path).collect() == []
    assert frame(spark, tmp_path, mode="shallow").collect() == []


# ---- filters
@pytest.fixture(scope="module")
def everything(spark: "SparkSession", logs: Path) -> Any:
    """All rows, as an Arrow table."""
    return frame(spark, logs).toArrow()


@pytest.mark.spark
@pytest.mark.parametrize(
    "condition",
    [
        "topic = 'orders' and partition = 1",
        "topic in ('orders', 'x') and partition in (0, 2) and offset > 50",
        "topic like 'cl%' and offset <= 3",
        "partition < 2 and partition >= 1 and offset = 29",
        "partition <= 0 and partition > -1 and offset in (3, 50)",
        "offset < 5 and offset >= 3",
        "timestamp = timestamp '2023-11-14 22:13:25'",
        "timestamp > timestamp '2023-11-14 22:13:25.0005' and timestamp < timestamp '2023-11-14 22:13:30.000001'",
        "timestamp >= timestamp '2023-11-14 22:13:50' and timestamp <= timestamp '2023-11-14 22:14:00'",
        "offset = 3 or timestamp = timestamp '2023-11-14 22:13:25'",
        "not (topic = 'orders') and key is not null",
    ],
)
def test_a_filter_gives_the_same_rows_with_and_without_push_down(
    spark: "SparkSession", logs: Path, everything: Any, condition: str
) -> None:
    pushed = frame(spark, logs, pushFilters="true").where(condition).collect()
    plain = spark.createDataFrame(everything).where(condition).collect()
    assert sorted(pushed, key=str) == sorted(plain, key=str)
    assert pushed


@pytest.mark.spark
def test_a_pushed_filter_leaves_no_task_for_other_topics(spark: "SparkSession", logs: Path) -> None:
    """The other topic's log is damaged, without an effect."""
    broken = logs.parent / "broken"
    shutil.copytree(logs, broken)
    (broken / "orders-0/00000000000000000000.log").write_bytes(bytes(range(200)))
    assert frame(spark, broken, pushFilters="true").where("topic = 'clicks'").count() == 30
    assert frame(spark, broken, pushFilters="true").where("partition > 0").count() == 120


@pytest.mark.spark
def test_a_data_frame_can_be_used_in_many_queries(spark: "SparkSession", logs: Path) -> None:
    """Spark gives what it planned for the latest filters of a DataFrame to its other queries, too."""
    rows = frame(spark, logs, columns="topic,offset")
    clicks = rows.where("topic = 'clicks'")
    assert clicks.count() == 30
    assert rows.count() == 210
    assert clicks.where("offset < 7").count() == 7
    assert clicks.count() == 30
    few, many = clicks.where("offset < 5"), clicks.where("offset >= 3")
    assert few.union(many).count() == 5 + 27
    assert few.join(many, "offset").count() == 2


# ---- shallow mode
@pytest.mark.spark
def test_shallow_mode_gives_closed_batches_that_read_back(
    spark: "SparkSession", golden: GoldenLogs, tmp_path: Path
) -> None:
    """All rows of a topic, put behind each other, are its segments again."""
    topic = next(topic for topic, case in golden.cases.items() if case.id == "3.9.1/txn-none")
    query = frame(spark, golden.path, mode="shallow", subscribe=topic)
    rows = query.orderBy("baseOffset").collect()
    assert [row.batch for row in rows] == [
        content[batch["position"] :][: batch["size"]]
        for name, content in golden.cases[topic].segments().items()
        for batch in golden.cases[topic].batches()
        if batch["segment"] == name
    ]
    assert query.where("isControl").count() == sum(batch["isControl"] for batch in golden.cases[topic].batches())


@pytest.mark.spark
def test_shallow_sums_agree_with_the_golden_batches(spark: "SparkSession", golden: GoldenLogs) -> None:
    found = frame(spark, golden.path, mode="shallow", columns="topic,size,count").groupBy("topic")
    sizes = {row.topic: row["sum(size)"] for row in found.agg({"size": "sum"}).collect()}
    for topic, case in golden.cases.items():
        if case.topic != "trimmed-none":
            assert sizes[topic] == sum(batch["size"] for batch in case.batches())


# ---- errors reach the driver in words
@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"colour": "red"}, "unknown option 'colour': expected one of as, assign, "),
        ({"subscribe": "new"}, "no topic 'new' here: expected one of clicks, orders"),
        ({"columns": "value,colour"}, "columns: no column 'colour': expected some of key, value, "),
        ({"columns": "headers"}, "columns: no column 'headers': expected some of key, value, "),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest for a batch query"),
    ],
    ids=str,
)
def test_a_wrong_option_is_reported_on_the_driver(
    spark: "SparkSession", logs: Path, options: dict[str, str], said: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as raised:
        frame(spark, logs, **options).count()
    assert said in str(raised.value)


@pytest.mark.spark
def test_a_schema_with_a_wrong_type_is_refused(spark: "SparkSession", logs: Path) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="schema: expected offset bigint, found int"):
        spark.read.format("magicbyte").schema("offset int").load(str(logs)).count()


@pytest.mark.spark
def test_damage_is_reported_on_the_driver_with_file_and_position(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    folder = write_partition(tmp_path, "a-0", some_records(30))
    segment = folder / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    with pytest.raises(PySparkException) as raised:
        frame(spark, tmp_path).count()
    assert f"{segment}, position 0, offsets 0..9: crc: expected 0x" in str(raised.value)
    assert frame(spark, tmp_path, onDamage="skip").count() == 20


# ---- sessions
def test_without_java_the_session_says_in_one_line_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SparkUnavailableError) as raised:
        local_session()
    assert "apt-get install default-jre-headless" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_java_home_without_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match=f"JAVA_HOME, {tmp_path}, contains no bin/java"):
        local_session()


def test_a_java_that_is_too_old_is_reported_without_a_trace(tmp_path: Path) -> None:
    java, logs = tmp_path / "jre/bin/java", tmp_path / "logs"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho UnsupportedClassVersionError >&2\nexit 1\n")
    java.chmod(0o755)
    write_partition(logs, "orders-0", some_records(10))
    (tmp_path / "p.toml").write_text('[source]\npath = "logs"\n[[stage]]\ndo = "digest"\n')
    done = subprocess.run(
        [sys.executable, "-m", "magicbyte", "pipeline", "run", str(tmp_path / "p.toml")],
        capture_output=True, text=True, timeout=120, env=os.environ | {"JAVA_HOME": str(tmp_path / "jre")},
    )  # fmt: skip
    assert done.returncode == 2
    assert "UnsupportedClassVersionError" in done.stderr
    assert "Java ended at its start; its output above has the reason. Java 17 or later is needed" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_invalid_python_for_workers_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        master = "local[2]"

    context: Any = Context()
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    with pytest.raises(SparkUnavailableError, match="PYSPARK_PYTHON names /nowhere/python, expected a Python"):
        use_this_python(context)


def test_a_column_that_is_requested_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="columns: expected each column once, found 'offset' again"):
        MagicbyteSource({"path": str(tmp_path), "columns": "offset,offset"}).schema()


@pytest.mark.spark
def test_register_sets_what_the_source_needs_and_may_be_called_again(spark: "SparkSession", logs: Path) -> None:
    from magicbyte.spark import register

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    register(spark)
    assert frame(spark, logs, subscribe="clicks", pushFilters="true").where("offset < 7").count() == 7


@pytest.mark.slow
@pytest.mark.spark
def test_a_local_session_says_nothing_of_its_own(logs: Path) -> None:
    """But for the line of the Java machine about a module that Spark asks for."""
    program = (
        "import sys\n"
        "from magicbyte.spark import local_session\n"
        "spark = local_session('local[1]')\n"
        "print(spark.read.format('magicbyte').option('columns', 'offset').load(sys.argv[1]).count())\n"
        "spark.stop()\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    done = subprocess.run(
        [sys.executable, "-c", program, logs], capture_output=True, text=True, timeout=120, env=environment
    )
    assert json.loads(done.stdout) == 210
    said = [line for line in done.stderr.splitlines() if "incubator modules" not in line]
    assert said == []


# ---- the documentation
@pytest.mark.spark
def test_every_option_and_column_is_documented() -> None:
    from magicbyte.engine.records.columns import arrow_schema
    from magicbyte.spark import options
    from magicbyte.spark.shallow import shallow_schema

    text = (Path(__file__).parents[2] / "docs/spark/dataframes.md").read_text()
    names = {*options._KNOWN, *arrow_schema(headers=True, millis=True).names, *shallow_schema(millis=True).names} - {
        "paths"
    }
    assert {name for name in names if f"`{name}`" not in text} == set()
