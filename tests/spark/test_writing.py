"""Rows into log directories: each batch once, whatever it is cut off at; without a Spark session."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from magicbyte.access.client.partitioning import partition_of
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import InvalidTopicError, LogDirectoryError, MagicbyteError
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.records.columns import Record
from magicbyte.spark import log_sink, writing
from magicbyte.spark.columns import topics_of
from magicbyte.spark.log_sink import WORK, partitions_there
from magicbyte.spark.options import OptionError, parse_options
from magicbyte.spark.pipeline import sink
from magicbyte.spark.source import MagicbyteSource
from magicbyte.spark.writing import LogStreamWriter, LogWriter, parse_write_options
from magicbyte.tools.mirror.log_target import LogTarget
from magicbyte.tools.offline.findings import Depth, Severity
from magicbyte.tools.offline.verify import verify
from spark.builders import RECORDS, SCHEMA, CutError, Rows, arrow, read, rows
from spark.logs import START


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "metadata").write_text('{"id":"7b4e6d1c-0000-4000-8000-000000000001"}')
    return folder


@pytest.fixture
def writer(tmp_path: Path, checkpoint: Path) -> LogStreamWriter:
    options = {"path": str(tmp_path / "logs"), "checkpointLocation": str(checkpoint)}
    return LogStreamWriter.of(parse_write_options(options), from_arrow_schema(SCHEMA), overwrite=False)


def batch(writer: LogStreamWriter, number: int, *tasks: Rows) -> None:
    writer.commit([writer.write(arrow(given)) for given in tasks], number)


def as_written(count: int, first: int = 0, offset: int = 0) -> list[Record]:
    """Return what `rows` become."""
    return [each._replace(offset=offset + at) for at, each in enumerate(RECORDS[first : first + count])]


def test_rows_become_records_one_behind_the_other(tmp_path: Path, writer: LogStreamWriter) -> None:
    batch(writer, 0, rows(100), rows(50, first=100))
    batch(writer, 1, rows(30, first=150))
    logs = tmp_path / "logs"
    assert read(logs) == as_written(180)
    assert not [each for each in verify(discover([str(logs)]), depth=Depth.DEEP) if each.severity is Severity.ERROR]
    assert sorted(each.name for each in logs.iterdir() if each.is_dir()) == ["orders-0"]
    assert [each.name for each in logs.glob("spark-*")] == ["spark-00000002.json"]


def test_a_batch_that_spark_runs_again_is_there_once(tmp_path: Path, writer: LogStreamWriter) -> None:
    batch(writer, 0, rows(20))
    batch(writer, 1, rows(20, first=20))
    batch(writer, 1, rows(10, first=20), rows(10, first=30))  # other tasks, the same records
    batch(writer, 2, rows(5, first=40))
    assert read(tmp_path / "logs") == as_written(45)


def test_a_commit_that_comes_late_touches_nothing_of_the_next_batch(tmp_path: Path, writer: LogStreamWriter) -> None:
    """As of a query that was killed, while the next one has continued."""
    batch(writer, 0, rows(20))
    following, late = writer.write(arrow(rows(10, first=20))), writer.write(arrow(rows(20)))
    writer.commit([late], 0)
    assert not Path(late.staged[0].path).exists()
    writer.commit([following], 1)
    assert read(tmp_path / "logs") == as_written(30)
    assert not (tmp_path / "logs" / WORK).exists()


def test_a_removed_file_of_a_task_is_not_committed(tmp_path: Path, writer: LogStreamWriter) -> None:
    batch(writer, 0, rows(10))
    message = writer.write(arrow(rows(5, first=10)))
    Path(message.staged[0].path).unlink()
    with pytest.raises(LogDirectoryError, match="bytes staged by a task: the file is missing"):
        writer.commit([message], 1)
    batch(writer, 1, rows(5, first=10))
    assert read(tmp_path / "logs") == as_written(15)


@pytest.mark.parametrize("at", range(15))
def test_a_commit_that_is_cut_off_anywhere_is_finished_by_the_next_one(
    tmp_path: Path, writer: LogStreamWriter, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Before each step in turn: opening, the manifest, each append, flushes, removals."""
    batch(writer, 0, rows(10))
    steps = 0

    def cut(step: Any) -> Any:
        def do(*given: Any, **named: Any) -> Any:
            nonlocal steps
            if str(given[0]).endswith(".kafka_cleanshutdown"):  # when the log directory is opened, before all
                return step(*given, **named)
            steps += 1
            if steps == at + 1:
                raise CutError
            return step(*given, **named)

        return do

    with monkeypatch.context() as patch:
        for owner, name in (
            (LogTarget, "log"), (sink, "put_once"), (LogTarget, "append"), (LogTarget, "flush"), (Path, "unlink"),
        ):  # fmt: skip
            patch.setattr(owner, name, cut(getattr(owner, name)))
        try:
            batch(writer, 1, rows(60, first=10), rows(30, first=70, partition=1))
        except CutError:
            batch(writer, 1, rows(60, first=10), rows(30, first=70, partition=1))
        assert steps > max(at, 14)
    batch(writer, 2, rows(5, first=70))
    assert read(tmp_path / "logs") == as_written(75)
    assert read(tmp_path / "logs", "orders-1") == as_written(30, first=70)
    assert not (tmp_path / "logs" / WORK).exists()


def test_a_log_that_another_writer_has_extended_is_not_overwritten(
    tmp_path: Path, writer: LogStreamWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch(writer, 0, rows(10))
    with monkeypatch.context() as patch:
        patch.setattr(LogTarget, "append", lambda *_: (_ for _ in ()).throw(CutError))
        with pytest.raises(CutError):
            batch(writer, 1, rows(10, first=10))
    other = writer.write(arrow(rows(4, first=50)))
    (staged,) = other.staged
    with LogTarget(tmp_path / "logs") as target, (Path(staged.path)).open("rb") as file:
        data = log_sink.stamped(log_sink.scan(memoryview(file.read())), 10)[0]
        target.append(target.log("orders", 0), data)
    with pytest.raises(LogDirectoryError, match="expected to append at offset 10, found other records there"):
        batch(writer, 1, rows(10, first=10))


def test_one_who_has_the_log_directory_is_waited_for_but_not_for_ever(
    tmp_path: Path, writer: LogStreamWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch(writer, 0, rows(10))
    monkeypatch.setattr(log_sink, "LOCK_SECONDS", 0.1)
    lock = LocalFiles().lock(str(tmp_path / "logs/.lock"))
    with pytest.raises(LogDirectoryError, match="another process is using this log directory"):
        batch(writer, 1, rows(5, first=10))
    lock.release()
    batch(writer, 1, rows(5, first=10))
    assert read(tmp_path / "logs") == as_written(15)


def test_a_write_with_the_id_of_a_job_is_done_once(tmp_path: Path) -> None:
    schema, logs = from_arrow_schema(SCHEMA), tmp_path / "logs"

    def write(**options: str) -> None:
        made = LogWriter.of(parse_write_options({"path": str(logs), **options}), schema, overwrite=False)
        made.commit([made.write(arrow(rows(10)))])

    write(jobId="2026-01-07")
    write(jobId="2026-01-07")
    assert len(read(logs)) == 10
    write()
    write(jobId="2026-01-08")
    assert len(read(logs)) == 30


def test_what_is_given_up_leaves_nothing(tmp_path: Path, writer: LogStreamWriter) -> None:
    message = writer.write(arrow(rows(10)))
    assert (tmp_path / "logs" / WORK).exists()
    writer.abort([message, None], 0)
    assert not (tmp_path / "logs" / WORK).exists()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_choose_the_partition_as_in_kafkas_producers(tmp_path: Path, codec: str) -> None:
    options = {"path": str(tmp_path / "logs"), "partitions": "4", "kafka.compression.type": codec, "topic": "all"}
    writer = LogWriter.of(parse_write_options(options), from_arrow_schema(SCHEMA), overwrite=False)
    given = rows(200, partition=None)
    writer.commit([writer.write(arrow(given))])
    found = {number: read(tmp_path / "logs", f"all-{number}") for number in range(4)}
    for number, records in found.items():
        assert {record.offset for record in records} == set(range(len(records)))
        assert all(record.key is None or partition_of(record.key, 4) == number for record in records)
    written = sorted((each["key"] or b"", each["value"] or b"") for each in given)
    assert sorted((each.key or b"", each.value or b"") for part in found.values() for each in part) == written


def test_all_partitions_of_a_new_topic_are_created_at_once_so_that_keys_stay_in_their_partitions(
    tmp_path: Path,
) -> None:
    options = parse_write_options({"path": str(tmp_path / "logs"), "partitions": "16"})
    given = [{**each, "partition": None} for each in rows(300) if each["key"] is not None]
    for few in (given[:1], given):  # the first batch has a key, and so records in one partition
        writer = LogWriter.of(options, from_arrow_schema(SCHEMA), overwrite=False)
        writer.commit([writer.write(arrow(few))])
    found = [(number, each) for number in range(16) for each in read(tmp_path / "logs", f"orders-{number}")]
    assert len(found) == len(given) + 1
    assert [number for number, _ in found] == [partition_of(each.key, 16) for _, each in found if each.key]


def test_a_commit_that_is_cut_off_while_it_makes_a_topic_leaves_the_number_of_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = parse_write_options({"path": str(tmp_path / "logs"), "partitions": "16"})
    made: list[int] = []
    make = LogTarget.log

    def once(target: LogTarget, topic: str, partition: int, *rest: Any) -> Any:
        if made:
            raise CutError
        made.append(partition)
        return make(target, topic, partition, *rest)

    writer = LogWriter.of(options, from_arrow_schema(SCHEMA), overwrite=False)
    message = writer.write(arrow([{**each, "partition": None} for each in rows(10)]))
    with monkeypatch.context() as patch:
        patch.setattr(LogTarget, "log", once)
        with pytest.raises(CutError):
            writer.commit([message])
    assert topics_of(partitions_there(tmp_path / "logs")) == {"orders": 16}


def test_relative_paths_are_made_whole_where_the_query_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_write_options({"path": "logs", "topic": "a"}).path == str(tmp_path / "logs")
    assert parse_options({"path": "logs, s3://b/c"}).paths == (str(tmp_path / "logs"), "s3://b/c")


def test_texts_and_rows_without_times_can_be_written(tmp_path: Path) -> None:
    schema = pa.schema([("value", pa.string())])
    options = parse_write_options({"path": str(tmp_path / "logs"), "topic": "a"})
    writer = LogWriter.of(options, from_arrow_schema(schema), overwrite=False)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pylist([{"value": "é"}, {"value": None}], schema=schema)]))])
    found = read(tmp_path / "logs", "a-0")
    assert [(each.key, each.value, each.headers) for each in found] == [(None, "é".encode(), ()), (None, None, ())]
    assert all(each.timestamp > START for each in found)


def test_rows_that_no_record_can_be_are_refused(writer: LogStreamWriter) -> None:
    with pytest.raises(MagicbyteError, match="a row without a topic"):
        writer.write(arrow([{**rows(1)[0], "topic": None}]))
    with pytest.raises(MagicbyteError, match="a header without a name"):
        writer.write(arrow([{**rows(1)[0], "headers": [{"key": None, "value": b""}]}]))
    with pytest.raises(MagicbyteError, match="a timestamp before 1970, which records cannot have: -2000 ms"):
        writer.write(arrow([{**rows(1)[0], "timestamp": datetime(1969, 12, 31, 23, 59, 58, tzinfo=UTC)}]))
    with pytest.raises(MagicbyteError, match="expected a partition of 0 or more, found -2"):
        writer.write(arrow([{**rows(1)[0], "partition": -2}]))


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../../a", "é", "a b", "a" * 250])
def test_a_name_that_no_topic_can_have_makes_no_folder(tmp_path: Path, writer: LogStreamWriter, topic: str) -> None:
    with pytest.raises(InvalidTopicError):
        writer.write(arrow(rows(1, topic=topic)))
    with pytest.raises(InvalidTopicError):
        parse_write_options({"path": str(tmp_path / "logs"), "topic": topic})
    assert {each.name for each in tmp_path.rglob("*-0")} == set()


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("column", ["key", "value", "headers"])
def test_a_record_that_no_reader_takes_is_refused_before_it_is_committed(
    tmp_path: Path, writer: LogStreamWriter, monkeypatch: pytest.MonkeyPatch, column: str, codec: str
) -> None:
    """Committed, it would be in the way of all later batches."""
    monkeypatch.setattr(writing, "LARGEST_RECORD", 50_000)
    content: dict[str, Any] = {column: [{"key": "a", "value": bytes(50_000)}] if column == "headers" else bytes(50_001)}
    large = [{**rows(1)[0], "key": b"", "value": b"", "headers": None} | content]
    named = replace(writer, options=replace(writer.options, codec=Codec[codec.upper()]))
    with pytest.raises(MagicbyteError, match="orders-0: expected records of up to 50000 bytes, found one of 50001"):
        named.write(arrow([*rows(5), *large]))
    named.abort([], 0)
    batch(named, 0, rows(5))
    assert read(tmp_path / "logs") == as_written(5)


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({"path": "logs"}, "value binary", "expected a column `topic`, or the option topic"),
        ({"path": "logs", "topic": "a"}, "key binary", "expected a column `value`, found none"),
        ({"path": "logs", "topic": "a"}, "value binary, colour int", "found 'colour'"),
        ({"path": "logs", "topic": "a"}, "value int", "expected value binary or string, found int"),
        ({"topic": "a"}, "value binary", "expected either a path"),
        ({"path": "s3://b/logs", "topic": "a"}, "value binary", "path: expected a log directory of this machine"),
        ({"path": "logs", "topic": "a", "partitions": "0"}, "value binary", "partitions: expected a number"),
        ({"path": "logs", "topic": "a", "kafka.compression.type": "br"}, "value binary", "kafka.compression.type: "),
        ({"path": "logs", "colour": "red"}, "value binary", "unknown option 'colour'"),
    ],
    ids=str,
)
def test_what_cannot_be_written_is_refused(options: dict[str, str], columns: str, said: str) -> None:
    fields = {"binary": pa.binary(), "int": pa.int32()}
    schema = pa.schema([(name, fields[kind]) for name, kind in (each.split() for each in columns.split(", "))])
    with pytest.raises(OptionError, match=said):
        MagicbyteSource(options).writer(from_arrow_schema(schema), overwrite=False)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="mode: expected append"):
        MagicbyteSource({"path": str(tmp_path), "topic": "a"}).writer(from_arrow_schema(SCHEMA), overwrite=True)
    with pytest.raises(OptionError, match="outputMode: expected append or update"):
        MagicbyteSource({"path": str(tmp_path), "topic": "a"}).streamWriter(from_arrow_schema(SCHEMA), overwrite=True)


def test_a_stream_is_known_by_the_id_in_its_checkpoint(tmp_path: Path, checkpoint: Path) -> None:
    schema = from_arrow_schema(SCHEMA)
    given = {"path": str(tmp_path / "logs")}
    with pytest.raises(OptionError, match="checkpointLocation: expected"):
        MagicbyteSource(given).streamWriter(schema, overwrite=False)
    named = {**given, "checkpointLocation": checkpoint.as_uri()}
    assert (
        MagicbyteSource(named).streamWriter(schema, overwrite=False).name
        == json.loads((checkpoint / "metadata").read_text())["id"]
    )
    (checkpoint / "metadata").unlink()
    with pytest.raises(LogDirectoryError, match="expected a checkpoint with the id of its stream"):
        MagicbyteSource(named).streamWriter(schema, overwrite=False)
