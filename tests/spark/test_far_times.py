"""Timestamps that microseconds cannot hold, through every reader of the Spark source: an error, null, or as stored."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.spark.columns import by_partition
from magicbyte.spark.source import LogReader, MagicbyteSource
from spark.builders import ran
from spark.logs import START, write_partition

MOST = ((1 << 63) - 1) // 1000
FAR = [MOST + 1, 1 << 62, (1 << 63) - 1, -(1 << 63), START * 1_000_000]


def log_with(folder: Path, times: list[int], target: Format) -> Path:
    records = [Record(offset, time, 0, None, b"v") for offset, time in enumerate(times)]
    write_partition(folder, "t-0", records, target=target, codec=Codec.NONE, per_batch=1)
    return folder


def read(path: Path, **options: str) -> list[dict[str, Any]]:
    source = MagicbyteSource({"path": str(path), **options})
    reader = source.reader(source.schema())
    assert isinstance(reader, LogReader)
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


@pytest.mark.parametrize("target", [Format.V1, Format.V2])
@pytest.mark.parametrize("mode", ["deep", "shallow"])
@pytest.mark.parametrize("time", FAR)
def test_a_far_timestamp_is_an_error_or_null_and_can_be_read_as_stored(
    tmp_path: Path, time: int, mode: str, target: Format
) -> None:
    micros, millis = ("timestamp", "timestampMillis") if mode == "deep" else ("maxTimestamp", "maxTimestampMillis")
    path = log_with(tmp_path, [START, time], target)
    with pytest.raises(MagicbyteError, match=rf"1 timestamp is beyond .*t-0, offset 1: {time} ms.*{millis}.*=null"):
        read(path, mode=mode)
    found = read(path, mode=mode, onFarTimestamp="null", columns=f"{micros},{millis}")
    assert [row[millis] for row in found] == [START, time]
    assert [row[micros] is None for row in found] == [False, True]
    assert [row[millis] for row in read(path, mode=mode, columns=millis)] == [START, time]


def test_timestamps_at_the_edge_are_read(tmp_path: Path) -> None:
    """Their year has six digits, so Python's datetime cannot show them, but Spark can."""
    path = log_with(tmp_path, [MOST], Format.V2)
    source = MagicbyteSource({"path": str(path), "columns": "timestamp"})
    reader = source.reader(source.schema())
    (batch,) = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert batch.column(0).cast("int64").to_pylist() == [MOST * 1000]


def test_the_column_of_timestamps_as_stored_is_there_only_if_it_is_named(tmp_path: Path) -> None:
    for mode in ("deep", "shallow"):
        names = MagicbyteSource({"path": str(tmp_path), "mode": mode}).schema().names
        assert [name for name in names if "Millis" in name] == []


def test_rows_are_written_with_the_timestamps_as_stored(tmp_path: Path) -> None:
    values, times = pa.array([b"v"] * 3, pa.binary()), pa.array([MOST + 1, 5, None], pa.int64())
    given = {"value": values, "timestampMillis": times, "timestamp": pa.nulls(3, pa.timestamp("us", tz="UTC"))}
    rows = pa.RecordBatch.from_pydict(given)
    ((_, columns),) = list(by_partition(rows, "t", lambda _: 1, 0))
    assert list(columns.timestamp)[:2] == [MOST + 1, 5]
    assert columns.timestamp[2] > START, "without one a row gets the current time"


@pytest.mark.parametrize("above", [None, 1])
def test_a_pipelines_tables_count_them_and_have_them_as_stored(tmp_path: Path, above: int | None) -> None:
    source = log_with(tmp_path / "logs", [START, 1 << 62, START], Format.V2)
    done = ran(
        tmp_path, source, str(tmp_path / "out"), '[[stage]]\ndo = "records"\ntimestamp-millis = true\n{above}', above
    )
    (stage,) = done.units[0]["stages"]
    (path,) = (tmp_path / "out").rglob("*.parquet")
    assert (stage["farTimestamps"], stage["bytesOut"]) == (1, path.stat().st_size)
    table = pq.read_table(path)
    assert table["timestampMillis"].to_pylist() == [START, 1 << 62, START]
    assert table["timestamp"].is_null().to_pylist() == [False, True, False]
