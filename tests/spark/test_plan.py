"""What the tasks read, planned and read without a Spark session: each record exactly once, and little besides."""

import operator
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import golden_data
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import (
    CorruptRecordError,
    LogDirectoryError,
    MagicbyteError,
    TruncatedLogError,
    UnknownTopicError,
)
from magicbyte.engine.log.files import headers, heads
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.filesystem import LocalFile
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.encode import Format
from magicbyte.spark import plan, reading, workers
from magicbyte.spark.options import OptionError
from magicbyte.spark.plan import NO_LIMITS, SegmentSlice
from magicbyte.spark.source import LogReader
from spark.conftest import GoldenLogs, topic_of
from spark.logs import START, content_of, offsets_of, options_of, read_all, reader_of, some_records, write_partition

datasource = pytest.importorskip("pyspark.sql.datasource")

FORMATS = [
    (Format.V0, Codec.NONE),
    (Format.V0, Codec.GZIP),
    (Format.V1, Codec.NONE),
    (Format.V1, Codec.LZ4),
    (Format.V2, Codec.NONE),
    (Format.V2, Codec.ZSTD),
    (Format.ENRICHED, Codec.NONE),
    (Format.ENRICHED, Codec.SNAPPY),
]


def pieces_of(path: Path, target: int = 4096, **options: str) -> list[SegmentSlice]:
    """Plan with tasks of about `target` bytes, as if there were many cores."""
    parsed = options_of(path, **options)
    found = plan.chosen_partitions(parsed)
    cores = max(sum(each.size for each in found) // (2 * target), 1)
    return [piece for task in plan.plan(parsed, found, NO_LIMITS, cores) for piece in task.slices]


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slices be as small as an index interval of Kafka."""
    monkeypatch.setattr(plan, "SMALLEST_SLICE", 4096)
    monkeypatch.setattr(plan, "LARGEST_SLICE", 4096)


# ---- slices
@pytest.mark.parametrize(("target", "codec"), FORMATS, ids=lambda value: value.name)
def test_a_segment_without_index_is_split_and_read_exactly_once(
    target: Format, codec: Codec, tmp_path: Path, small_slices: None
) -> None:
    records = some_records(2000, magic=target.magic)
    write_partition(tmp_path, "a-0", records, target=target, codec=codec)
    reader = reader_of(tmp_path, dialect=target.dialect.value, minPartitions="9")
    tasks = reader.partitions()
    assert len(tasks) >= 9
    slices = [piece for task in tasks for piece in task.slices]
    assert [piece.start for piece in slices] == [0, *(piece.end for piece in slices[:-1])]
    assert slices[-1].end == (tmp_path / "a-0/00000000000000000000.log").stat().st_size
    assert sum(piece.size for piece in slices) == slices[-1].end
    assert [(row["offset"], row["key"], row["value"]) for row in read_all(reader)] == [
        (record.offset, record.key, record.value) for record in records
    ]


@pytest.mark.parametrize("is_all", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["each kind", "all"])
def test_golden_logs_are_read_exactly_once_however_they_are_split(
    golden: GoldenLogs, small_slices: None, is_all: bool
) -> None:
    split, cases = 0, list(golden.cases.values())
    for case in cases if is_all else golden_data.those_of_each_kind(cases):
        topic = topic_of(case)
        reader = reader_of(golden.partition(topic), minPartitions="1000")
        slices = [piece for task in reader.partitions() for piece in task.slices]
        assert len(slices) >= len(case.segments())
        split += len(slices) > len(case.segments())
        assert offsets_of(reader) == [record["offset"] for record in case.records()]
    assert split > (100 if is_all else 30)


@pytest.mark.parametrize("case", [c for c in golden_data.log_cases() if c.has_committed and c.has_records], ids=str)
def test_aborted_transactions_are_left_out_of_every_slice(
    case: golden_data.Case, golden: GoldenLogs, small_slices: None
) -> None:
    topic = next(topic for topic, each in golden.cases.items() if each is case)
    reader = reader_of(golden.partition(topic), isolation="read_committed", minPartitions="1000")
    assert offsets_of(reader) == [record["offset"] for record in case.committed()]


def test_the_index_splits_without_reading_the_log(
    golden: GoldenLogs, small_slices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = next(topic for topic, case in golden.cases.items() if case.id == "2.8.2/basic-none")
    whole = pieces_of(golden.partition(topic))
    monkeypatch.setattr(
        "magicbyte.engine.log.files.headers.read_headers", lambda *_, **__: pytest.fail("the log was read")
    )
    indexed = pieces_of(golden.partition(topic), target=8192)
    assert len(indexed) > len(golden.cases[topic].segments())
    assert len(whole) >= len(indexed)


def test_what_the_index_does_not_reach_is_split_by_a_walk(golden: GoldenLogs, tmp_path: Path) -> None:
    """An index is cut short: the rest of the segment does not become one slice."""
    topic = next(topic for topic, case in golden.cases.items() if case.id == "3.9.1/basic-none")
    source = golden.partition(topic)
    segment = max(source.glob("*.log"), key=lambda path: path.stat().st_size)
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / segment.name).write_bytes(segment.read_bytes())
    full = segment.with_suffix(".index").read_bytes()
    (tmp_path / "a-0" / segment.with_suffix(".index").name).write_bytes(full[:8])
    size = segment.stat().st_size
    found = discover([str(tmp_path)])
    options = options_of(tmp_path, minPartitions="4")
    pieces = [piece for task in plan.plan(options, found, NO_LIMITS, 1) for piece in task.slices]
    assert len(pieces) > 1
    assert sum(piece.size for piece in pieces) == size


def test_small_partitions_share_a_task_and_every_task_is_pickled(tmp_path: Path) -> None:
    for number in range(30):
        write_partition(tmp_path, f"a-{number}", some_records(3))
    reader = reader_of(tmp_path)
    tasks = reader.partitions()
    assert len(tasks) == 1
    again = pickle.loads(pickle.dumps(tasks[0]))
    assert again.slices == tasks[0].slices
    assert len(list(pickle.loads(pickle.dumps(reader)).read(again))) == 1  # one Arrow batch for all


def test_what_is_appended_after_the_planning_is_not_read(tmp_path: Path) -> None:
    """So that each attempt at a task, and each query of a DataFrame, gives the same rows."""
    write_partition(tmp_path / "more", "a-0", some_records(30, first=30))
    folder = write_partition(tmp_path / "logs", "a-0", some_records(30))
    reader = reader_of(tmp_path / "logs")
    tasks = reader.partitions()
    log = folder / "00000000000000000000.log"
    log.write_bytes(log.read_bytes() + (tmp_path / "more/a-0/00000000000000000030.log").read_bytes())
    read = [row for task in tasks for batch in reader.read(task) for row in batch.column("offset").to_pylist()]
    assert read == list(range(30))
    assert offsets_of(reader_of(tmp_path / "logs")) == list(range(60))


def test_min_partitions_makes_at_least_about_as_many_tasks(tmp_path: Path) -> None:
    write_partition(tmp_path, "a-0", some_records(3000))
    assert len(reader_of(tmp_path).partitions()) == 1
    assert len(reader_of(tmp_path, minPartitions="8").partitions()) in (7, 8, 9)


def test_an_empty_partition_gives_no_task(tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0/00000000000000000000.log").write_bytes(b"")
    reader = reader_of(tmp_path)
    assert read_all(reader) == []
    assert list(reader.read(datasource.InputPartition(None))) == []  # what Spark makes of a plan without tasks


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "shallow"},
        {"isolation": "read_committed"},
        {"startingTimestamp": "1"},
        {"endingTimestamp": str(START + 1000 * 1000)},
        {"minPartitions": "5"},
        {"subscribePattern": ".*"},
        {"startingOffsets": '{"lost": {"0": 0}, "there": {"0": 0}}'},
    ],
    ids=str,
)
def test_a_partition_folder_without_its_log_is_reported_and_the_others_are_read(
    tmp_path: Path, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """As a `.gitignore` with *.log leaves it."""
    write_partition(tmp_path, "there-0", some_records(30))
    (tmp_path / "lost-0").mkdir()
    (tmp_path / "lost-0/00000000000000000057.snapshot").write_bytes(b"")
    (tmp_path / "lost-0/leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    strategy = {"startingOffsetsByTimestampStrategy": "latest"} if "startingTimestamp" in options else {}
    rows = read_all(reader_of(tmp_path, **options, **strategy))
    assert {row["topic"] for row in rows} == {"there"}
    assert len(rows) == (3 if "mode" in options else 30)
    (told,) = [each.getMessage() for each in caplog.records]
    assert told.startswith(f"missing: {tmp_path}/lost-0: log, offsets 0..56 (57)")


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({}, ["gone-0", "gone-1"]),
        ({"subscribe": "there"}, []),
        ({"subscribePattern": ".*"}, ["gone-0", "gone-1"]),
        ({"subscribePattern": "th.*"}, []),
        ({"assign": '{"there": [0]}'}, []),
    ],
    ids=str,
)
def test_partitions_that_only_the_checkpoints_know_are_reported_if_they_are_selected(
    tmp_path: Path, options: dict[str, str], reported: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    write_partition(tmp_path, "there-0", some_records(30))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n3\ngone 0 12\ngone 1 5\nthere 0 30\n")
    assert len(read_all(reader_of(tmp_path, **options))) == 30
    told = [each.getMessage() for each in caplog.records]
    assert sorted(text.split(": ")[1].removeprefix(f"{tmp_path}/") for text in told) == reported


def test_a_worker_loads_the_kernels_for_a_large_task_or_after_many_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_partition(tmp_path, "a-0", some_records(30))
    size = (folder / "00000000000000000000.log").stat().st_size
    told: list[int] = []
    monkeypatch.setattr("magicbyte.spark.workers.kernel.expect", told.append)
    before = workers.announced_bytes()
    for _ in range(4):
        read_all(reader_of(tmp_path))
    assert told == [before + size, before + 2 * size, before + 3 * size, before + 4 * size]


def test_what_is_loaded_is_frozen_once_and_again_with_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else Spark's collection of garbage after each task takes longer than the task."""
    write_partition(tmp_path, "a-0", some_records(30))
    monkeypatch.setenv("MAGICBYTE_KERNELS", "compiled")
    read_all(reader_of(tmp_path))
    done: list[str] = []
    monkeypatch.setattr("magicbyte.spark.workers.gc.collect", lambda: done.append("collect"))
    monkeypatch.setattr("magicbyte.spark.workers.gc.freeze", lambda: done.append("freeze"))
    for kernels in ("plain", "compiled"):
        monkeypatch.setenv("MAGICBYTE_KERNELS", kernels)
        for _ in range(3):
            assert len(read_all(reader_of(tmp_path))) == 30
        assert done == ["collect", "freeze"]
        done.clear()


# ---- filters
def filtered(reader: Any, *filters: Any) -> list[Any]:
    """Push filters into a reader; return those that it leaves to Spark."""
    return list(reader.pushFilters(list(filters)))


COMPARISONS: list[tuple[str, Callable[[Any, Any], bool]]] = [
    ("EqualTo", operator.eq),
    ("LessThan", operator.lt),
    ("LessThanOrEqual", operator.le),
    ("GreaterThan", operator.gt),
    ("GreaterThanOrEqual", operator.ge),
]


@pytest.fixture(scope="module")
def three_topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """v0, v1 wrappers and v2, each in two segments; `late` has three partitions; one folder has no name."""
    path = tmp_path_factory.mktemp("logs")
    write_partition(
        path,
        "old-0",
        some_records(50, magic=0),
        some_records(50, first=50, magic=0),
        target=Format.V0,
        codec=Codec.GZIP,
    )
    write_partition(path, "older-0", some_records(50, magic=1), some_records(50, first=50, magic=1), target=Format.V1)
    for number in range(3):
        write_partition(path, f"late-{number}", some_records(50), some_records(50, first=50), codec=Codec.LZ4)
    write_partition(path, "backup", some_records(20))
    return path


@pytest.mark.parametrize(("name", "compare"), COMPARISONS, ids=lambda value: str(value))
@pytest.mark.parametrize("value", [0, 25, 49, 50, 99, 100, 1 << 62, -1])
def test_offset_filters_are_exact(three_topics: Path, name: str, compare: Any, value: int) -> None:
    everything = read_all(reader_of(three_topics))
    reader = reader_of(three_topics)
    assert filtered(reader, getattr(datasource, name)(("offset",), value)) == []
    assert read_all(reader) == [row for row in everything if compare(row["offset"], value)]


@pytest.mark.parametrize(("name", "compare"), COMPARISONS, ids=lambda value: str(value))
@pytest.mark.parametrize("micros", [0, 1, 999, 10_000_000, 10_000_001, 9_999_999, 99_000_000, -60_000_000])
def test_timestamp_filters_are_exact_to_the_microsecond(
    three_topics: Path, name: str, compare: Any, micros: int
) -> None:
    value = datetime.fromtimestamp(START // 1000, UTC) + timedelta(microseconds=micros)
    everything = read_all(reader_of(three_topics))
    reader = reader_of(three_topics)
    assert filtered(reader, getattr(datasource, name)(("timestamp",), value)) == []
    assert read_all(reader) == [row for row in everything if compare(row["timestamp"], value)]


@pytest.mark.parametrize(("name", "compare"), COMPARISONS, ids=lambda value: str(value))
@pytest.mark.parametrize("value", [-1, 0, 1, 2, 3])
def test_partition_filters_are_exact_also_for_folders_without_a_name(
    three_topics: Path, name: str, compare: Any, value: int
) -> None:
    everything = read_all(reader_of(three_topics))
    assert {row["partition"] for row in everything} == {-1, 0, 1, 2}
    reader = reader_of(three_topics)
    assert filtered(reader, getattr(datasource, name)(("partition",), value)) == []
    assert read_all(reader) == [row for row in everything if compare(row["partition"], value)]


def test_topic_filters_pick_partitions(three_topics: Path) -> None:
    def topics(*filters: Any) -> set[str | None]:
        reader = reader_of(three_topics)
        assert filtered(reader, *filters) == []
        return {piece.topic for task in reader.partitions() for piece in task.slices}

    assert topics() == {"old", "older", "late", None}
    assert topics(datasource.EqualTo(("topic",), "old")) == {"old"}
    assert topics(datasource.In(("topic",), ("old", "late", "x"))) == {"old", "late"}
    assert topics(datasource.StringStartsWith(("topic",), "old")) == {"old", "older"}
    starts_with, both = datasource.StringStartsWith(("topic",), "old"), datasource.In(("topic",), ("old", "late"))
    assert topics(starts_with, both) == {"old"}
    assert topics(datasource.EqualTo(("topic",), "old"), datasource.EqualTo(("topic",), "late")) == set()


def test_filters_that_are_not_applied_exactly_are_given_back(three_topics: Path) -> None:
    left = [
        datasource.IsNotNull(("topic",)),
        datasource.EqualTo(("key",), b"x"),
        datasource.EqualTo(("offset",), None),
        datasource.In(("topic",), ("old", None)),
        datasource.In(("offset",), (3, 5)),
        datasource.EqualTo(("headers", "key"), "x"),
        datasource.Not(datasource.EqualTo(("offset",), 3)),
        datasource.GreaterThan(("topic",), "a"),
    ]
    assert filtered(reader_of(three_topics), *left) == left


def test_a_list_of_offsets_bounds_the_records(three_topics: Path) -> None:
    reader = reader_of(three_topics, subscribe="late")
    filtered(reader, datasource.In(("offset",), (60, 70)))
    assert set(offsets_of(reader)) == set(range(60, 71))


def test_offset_filters_leave_out_segments_and_the_ends_of_segments(golden: GoldenLogs) -> None:
    topic = next(topic for topic, case in golden.cases.items() if case.id == "2.8.2/basic-lz4")
    case = golden.cases[topic]
    last = case.records()[-1]["offset"]
    size = sum(len(content) for content in case.segments().values())
    for value in range(0, last, 7):
        before, after = reader_of(golden.partition(topic)), reader_of(golden.partition(topic))
        filtered(before, datasource.LessThan(("offset",), value))
        filtered(after, datasource.GreaterThanOrEqual(("offset",), value))
        assert offsets_of(before) + offsets_of(after) == [record["offset"] for record in case.records()]
    few = reader_of(golden.partition(topic))
    filtered(few, datasource.LessThan(("offset",), 3))
    assert sum(piece.size for task in few.partitions() for piece in task.slices) < size // 2


def test_timestamp_filters_are_exact_on_every_golden_log_and_leave_out_segments(golden: GoldenLogs) -> None:
    """By the time index: but for the last segment, a whole segment of older records is not even opened."""
    skipped = 0
    for topic, case in golden.cases.items():
        if not case.id.startswith(("2.8.2/", "0.10.2.2/", "4.3.1/")):
            continue
        everything = read_all(reader_of(golden.partition(topic)))
        times = sorted(row["timestamp"] for row in everything)
        for value in {times[len(times) // 2], times[-1], times[-1] + timedelta(milliseconds=1)}:
            reader = reader_of(golden.partition(topic))
            filtered(reader, datasource.GreaterThanOrEqual(("timestamp",), value))
            read = {piece.path for task in reader.partitions() for piece in task.slices}
            skipped += len(case.segments()) - len(read)
            assert read_all(reader) == [row for row in everything if row["timestamp"] >= value]
    assert skipped > 20


def test_batches_outside_the_limits_are_not_decoded(tmp_path: Path) -> None:
    """Their checksums are wrong, without an effect."""
    content = bytearray(content_of(some_records(30)))
    content[70] ^= 1  # the first of three batches
    folder = tmp_path / "a-0"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(content)
    with pytest.raises(CorruptRecordError, match=r"position 0, offsets 0\.\.9: crc"):
        read_all(reader_of(tmp_path))
    by_offset = reader_of(tmp_path)
    filtered(by_offset, datasource.GreaterThan(("offset",), 9))
    assert offsets_of(by_offset) == list(range(10, 30))
    by_time = reader_of(tmp_path)
    filtered(by_time, datasource.GreaterThan(("timestamp",), datetime.fromtimestamp(START // 1000 + 9, UTC)))
    assert offsets_of(by_time) == [row for row in range(10, 30) if row % 7 != 3]


def test_columns_that_are_not_asked_for_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_partition(tmp_path, "a-0", some_records(30))
    asked = []
    real = plan.DecodeOptions
    monkeypatch.setattr(
        "magicbyte.spark.reading.DecodeOptions", lambda **options: asked.append(options) or real(**options)
    )
    reader = reader_of(tmp_path)
    reader.columns = reader.columns.field(4), reader.columns.field(1)
    import pyarrow as pa

    reader.columns = pa.schema(reader.columns)
    assert reader.columns.names == ["offset", "value"]
    assert len(read_all(reader)) == 30
    assert [(each["keys"], each["values"], each["headers"]) for each in asked] == [(False, True, False)]


# ---- offsets and timestamps of the options
def test_starting_is_inclusive_and_ending_is_not(three_topics: Path) -> None:
    bounds = {"startingOffsets": '{"older": {"0": 20}}', "endingOffsets": '{"older": {"0": 70}}'}
    assert offsets_of(reader_of(three_topics, subscribe="older", **bounds)) == list(range(20, 70))


def test_minus_two_and_minus_one_are_both_ends_in_the_json_forms(three_topics: Path) -> None:
    bounds = {
        "startingOffsets": '{"late": {"0": -2, "1": 95, "2": 99}}',
        "endingOffsets": '{"late": {"0": 2, "1": -1, "2": -1}}',
    }
    rows = read_all(reader_of(three_topics, subscribe="late", **bounds))
    assert [(row["partition"], row["offset"]) for row in rows] == [
        *((0, offset) for offset in range(2)),
        *((1, offset) for offset in range(95, 100)),
        (2, 99),
    ]


@pytest.mark.parametrize("topic", ["older", "late"])
def test_a_starting_timestamp_is_the_offset_of_the_first_record_that_has_it_or_a_later_one(
    topic: str, three_topics: Path
) -> None:
    """As in Kafka: records after that offset are read, whatever their own timestamps."""
    only = {"assign": f'{{"{topic}": [0]}}'}
    times = [record.timestamp for record in some_records(100, magic=1)]
    for since in (START - 100_000, START + 20_500, START + 52_000):
        first = next(offset for offset, time in enumerate(times) if time >= since)
        assert offsets_of(reader_of(three_topics, **only, startingTimestamp=str(since))) == list(range(first, 100))
        by_partition = f'{{"{topic}": {{"0": {since}}}}}'
        found = offsets_of(reader_of(three_topics, **only, startingOffsetsByTimestamp=by_partition))
        assert found == list(range(first, 100))
        assert offsets_of(reader_of(three_topics, **only, endingTimestamp=str(since))) == list(range(first))
        found = offsets_of(reader_of(three_topics, **only, endingOffsetsByTimestamp=by_partition))
        assert found == list(range(first))


def test_a_starting_timestamp_behind_all_records_is_an_error_or_reads_nothing(three_topics: Path) -> None:
    late = {"subscribe": "older", "startingTimestamp": str(START + 10_000_000)}
    with pytest.raises(MagicbyteError, match=r"older-0: no record from timestamp .* on; the option startingOffsetsBy"):
        reader_of(three_topics, **late).partitions()
    assert offsets_of(reader_of(three_topics, **late, startingOffsetsByTimestampStrategy="latest")) == []
    assert len(offsets_of(reader_of(three_topics, subscribe="older", endingTimestamp=str(START + 10_000_000)))) == 100


def test_a_starting_timestamp_is_found_by_the_time_index(golden: GoldenLogs) -> None:
    for topic, case in golden.cases.items():
        if not case.id.startswith(("0.10.2.2/basic", "2.8.2/basic", "4.3.1/basic", "3.9.1/logappend")):
            continue
        records = case.records()
        for since in {records[at]["timestamp"] for at in range(0, len(records), 37)}:
            first = next(record["offset"] for record in records if record["timestamp"] >= since)
            reader = reader_of(golden.partition(topic), startingTimestamp=str(max(since, 0)))
            assert offsets_of(reader)[0] == first


def test_bounds_by_partition_must_name_each_partition_that_is_read_and_no_other(three_topics: Path) -> None:
    for given, said in (
        ('{"late": {"0": 1, "1": 1}}', "found none for late-2"),
        ('{"late": {"0": 1, "1": 1, "2": 1, "7": 1}}', "found one for late-7"),
    ):
        with pytest.raises(OptionError, match=f"^starting offsets or timestamps by partition: .* {said}$"):
            reader_of(three_topics, subscribe="late", startingOffsets=given).partitions()


def test_offsets_that_the_log_has_lost_are_an_error_unless_data_loss_is_allowed(tmp_path: Path) -> None:
    write_partition(tmp_path, "a-0", some_records(20, first=40))
    start = {"startingOffsets": '{"a": {"0": 10}}'}
    with pytest.raises(MagicbyteError, match=r"^a-0: expected offset 10, found none before 40; the option failOnData"):
        reader_of(tmp_path, **start).partitions()
    assert offsets_of(reader_of(tmp_path, **start, failOnDataLoss="false")) == list(range(40, 60))


def test_a_segment_that_is_gone_since_the_plan_is_an_error_unless_data_loss_is_allowed(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, "a-0", some_records(20), some_records(20, first=20))
    careful, easy = reader_of(tmp_path), reader_of(tmp_path, failOnDataLoss="false")
    (task,) = careful.partitions()
    (folder / "00000000000000000000.log").unlink()
    with pytest.raises(MagicbyteError, match=r"00000000000000000000\.log: deleted since the query was planned"):
        list(careful.read(task))
    assert sum(batch.num_rows for batch in easy.read(task)) == 20


# ---- which partitions
def test_partitions_are_chosen_by_assign_subscribe_or_pattern(three_topics: Path) -> None:
    def chosen(**options: str) -> list[str]:
        return [each.name for each in plan.chosen_partitions(options_of(three_topics, **options))]

    assert chosen(assign='{"late": [2, 0], "old": [0]}') == ["late-0", "late-2", "old-0"]
    assert chosen(subscribe="old,late") == ["late-0", "late-1", "late-2", "old-0"]
    assert chosen(subscribePattern="old.*") == ["old-0", "older-0"]
    assert chosen(subscribePattern="ol") == []
    assert len(chosen()) == 6


def test_an_unknown_topic_or_partition_lists_the_existing_ones(three_topics: Path) -> None:
    for options, said in (
        ({"subscribe": "new"}, "no topic 'new' here: expected one of late, old, older"),
        ({"assign": '{"new": [0]}'}, "no topic 'new' here: expected one of late, old, older"),
        ({"assign": '{"late": [3]}'}, "no partition 3 of topic 'late' here: expected one of 0, 1, 2"),
    ):
        with pytest.raises(UnknownTopicError) as raised:
            reader_of(three_topics, **options).partitions()
        assert str(raised.value) == said


def test_a_folder_of_any_name_is_named_by_as(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, "copy of a backup", some_records(3))
    assert {(row["topic"], row["partition"]) for row in read_all(reader_of(folder))} == {(None, -1)}
    named = read_all(reader_of(folder, **{"as": "orders-3"}))
    assert {(row["topic"], row["partition"]) for row in named} == {("orders", 3)}


def test_a_path_without_logs_is_one_line_that_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(LogDirectoryError, match=r"expected a \.log file, a partition folder.*, found no log in it$"):
        reader_of(tmp_path).partitions()


# ---- damage
def test_a_truncated_tail_is_an_error_unless_data_loss_or_damage_is_let_pass(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, "a-0", some_records(30))
    segment = folder / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes()[:-5])
    with pytest.raises(CorruptRecordError, match="end of the log"):
        read_all(reader_of(tmp_path))
    assert offsets_of(reader_of(tmp_path, failOnDataLoss="false")) == list(range(20))
    assert offsets_of(reader_of(tmp_path, onDamage="skip")) == list(range(20))


def test_damage_is_skipped_where_asked_also_while_a_timestamp_is_looked_up(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, "a-0", some_records(30))
    segment = folder / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    assert offsets_of(reader_of(tmp_path, onDamage="skip")) == list(range(10, 30))
    since = {"startingTimestamp": str(START)}
    assert offsets_of(reader_of(tmp_path, onDamage="skip", **since)) == list(range(11, 30))  # 10 is late
    for reader in (reader_of(tmp_path), reader_of(tmp_path, failOnDataLoss="false"), reader_of(tmp_path, **since)):
        with pytest.raises(CorruptRecordError, match=r"position 0, offsets 0\.\.9: crc"):
            read_all(reader)


def test_a_batch_above_max_batch_bytes_is_damage(tmp_path: Path) -> None:
    write_partition(tmp_path, "a-0", some_records(30), codec=Codec.GZIP)
    with pytest.raises(CorruptRecordError, match=r"expected .*<= 200|at most 200"):
        read_all(reader_of(tmp_path, maxBatchBytes="200"))


# ---- shallow mode
def test_shallow_rows_are_those_of_kafkas_dump_tool(golden: GoldenLogs) -> None:
    for topic, case in golden.cases.items():
        if case.topic == "trimmed-none":
            continue
        rows = read_all(reader_of(golden.partition(topic), mode="shallow"))
        contents = case.segments()
        assert len(rows) == len(case.batches())
        for row, kafka in zip(rows, case.batches(), strict=True):
            same = ("lastOffset", "position", "size", "magic", "crc")
            assert [row[name] for name in same] == [kafka[name] for name in same]
            assert row["segment"].endswith(f"/{topic}-0/{kafka['segment']}")
            assert row["codec"] == kafka["codec"].lower()
            assert row["batch"] == contents[kafka["segment"]][kafka["position"] :][: kafka["size"]]
            wrapper = kafka["magic"] < 2 and row["codec"] != "none"
            assert row["baseOffset"] == (None if wrapper else kafka["baseOffset"])
            assert row["count"] == (None if wrapper else kafka["count"] if kafka["magic"] == 2 else 1)
            at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=kafka["maxTimestamp"])
            assert row["maxTimestamp"] == at
            if kafka["magic"] == 2:
                same = (
                    "producerId",
                    "producerEpoch",
                    "baseSequence",
                    "partitionLeaderEpoch",
                    "isTransactional",
                    "isControl",
                )
                assert [row[name] for name in same] == [kafka[name] for name in same]
            else:
                assert row["producerId"] is None


def without_batches(path: Path, **options: str) -> LogReader:
    """Return a shallow reader of all columns but the bytes of the entries."""
    reader = reader_of(path, mode="shallow", **options)
    columns = [each for each in reader.columns if each.name != "batch"]
    return LogReader(reader.options, pa.schema(columns))


def rows_and_damage(reader: LogReader) -> tuple[list[dict[str, Any]], list[str]]:
    """Read on behind damage; return the rows, without the entries' bytes, and what is said of the damage."""
    said: list[str] = []
    reader.options = replace(reader.options, skip_damage=True)
    with mock.patch.object(reading._log, "warning", lambda _, error: said.append(str(error))):
        return [{name: row[name] for name in row if name != "batch"} for row in read_all(reader)], said


@pytest.fixture(scope="module")
def shallow(golden: GoldenLogs, crashed: GoldenLogs) -> dict[Path, tuple[list[dict[str, Any]], list[str]]]:
    """Rows and damage of whole entries, by log directory."""
    return {logs.path: rows_and_damage(reader_of(logs.path, mode="shallow")) for logs in (golden, crashed)}


@pytest.mark.parametrize("large", [0, 100, 1 << 30])
def test_headers_alone_give_the_same_shallow_rows_and_damage(
    large: int, shallow: dict[Path, tuple[list[dict[str, Any]], list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "LARGE_ENTRY", large)
    monkeypatch.setattr(headers, "WINDOW_BYTES", 200)
    for path, whole in shallow.items():
        assert rows_and_damage(without_batches(path)) == whole
    assert sum(len(damage) for _, damage in shallow.values()) >= 10


@pytest.mark.parametrize(("target", "codec"), FORMATS, ids=lambda value: value.name)
@pytest.mark.parametrize("bounds", [(0, 99), (1, 98), (10, 90), (35, 36), (98, 99)], ids=str)
def test_headers_alone_give_the_same_shallow_rows_within_bounds_and_slices(
    target: Format, codec: Codec, bounds: tuple[int, int], tmp_path: Path, small_slices: None
) -> None:
    write_partition(tmp_path, "a-0", some_records(100, magic=target.magic), target=target, codec=codec)
    options = {
        "dialect": target.dialect.value,
        "startingOffsets": f'{{"a": {{"0": {bounds[0]}}}}}',
        "endingOffsets": f'{{"a": {{"0": {bounds[1]}}}}}',
        "minPartitions": "5",
    }
    rows, _ = rows_and_damage(without_batches(tmp_path, **options))
    assert rows
    assert rows == rows_and_damage(reader_of(tmp_path, mode="shallow", **options))[0]


def test_of_large_entries_headers_alone_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [record._replace(value=bytes(2000)) for record in some_records(1000)]
    folder = write_partition(tmp_path, "a-0", records)
    read = 0
    read_at = LocalFile.read_at

    def counted(file: LocalFile, position: int, length: int) -> bytes:
        nonlocal read
        read += length
        return read_at(file, position, length)

    monkeypatch.setattr(LocalFile, "read_at", counted)
    monkeypatch.setattr(LocalFile, "read_into", lambda *_: pytest.fail("whole entries were read"))
    assert len(read_all(without_batches(tmp_path))) == 100
    assert read < (folder / "00000000000000000000.log").stat().st_size / 20


def test_a_segment_that_shrinks_while_its_headers_are_read_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_partition(tmp_path, "a-0", some_records(100))
    monkeypatch.setattr(headers, "ROWS_TO_JUDGE_BY", 3)
    monkeypatch.setattr(headers, "WINDOW_BYTES", 100)
    batches = iter(without_batches(tmp_path).read(without_batches(tmp_path).partitions()[0]))
    segment = folder / "00000000000000000000.log"
    read_at = LocalFile.read_at

    def shrinking(file: LocalFile, position: int, length: int) -> bytes:
        if position > 3000:
            os.truncate(segment, 3100)
        return read_at(file, position, length)

    monkeypatch.setattr(LocalFile, "read_at", shrinking)
    with pytest.raises(TruncatedLogError):
        list(batches)


def test_shallow_rows_end_where_the_bounds_end(three_topics: Path) -> None:
    bounds = {
        "startingOffsets": '{"late": {"0": 25, "1": 0, "2": 99}}',
        "endingOffsets": '{"late": {"0": 31, "1": 1, "2": -1}}',
    }
    rows = read_all(reader_of(three_topics, subscribe="late", mode="shallow", **bounds))
    assert [(row["partition"], row["baseOffset"], row["lastOffset"]) for row in rows] == [
        (0, 20, 29),
        (0, 30, 39),
        (1, 0, 9),
        (2, 90, 99),
    ]


def test_shallow_mode_opens_nothing(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, "a-0", some_records(30))
    segment = folder / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    assert len(read_all(reader_of(tmp_path, mode="shallow"))) == 3


def test_shallow_partition_filters_keep_to_nulls(three_topics: Path) -> None:
    reader = reader_of(three_topics, mode="shallow")
    filtered(reader, datasource.LessThan(("partition",), 1))
    assert {(row["topic"], row["partition"]) for row in read_all(reader)} == {("old", 0), ("older", 0), ("late", 0)}


def test_shallow_mode_has_the_facts_of_an_enriched_wrapper(tmp_path: Path) -> None:
    records = some_records(30, magic=1)
    write_partition(tmp_path, "a-0", records, target=Format.ENRICHED, codec=Codec.GZIP)
    rows = read_all(reader_of(tmp_path, mode="shallow", dialect="enriched"))
    assert [(row["baseOffset"], row["lastOffset"], row["codec"], row["count"]) for row in rows] == [
        (first, None, "gzip", None) for first in (0, 10, 20)
    ]


def test_the_reader_of_one_partition_agrees_with_the_source(three_topics: Path) -> None:
    for partition in discover([str(three_topics)]):
        name = TopicPartition(partition.topic or "", partition.partition or 0)
        whole = [int(offset) for columns in SegmentReader(partition).records() for offset in columns.offset]
        assert offsets_of(reader_of(Path(partition.path))) == whole, name
