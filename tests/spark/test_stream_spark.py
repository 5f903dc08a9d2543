"""Streams and writes in a Spark session, and streams that are killed."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from magicbyte.engine.records.encode import Format
from spark import stream_kills
from spark.builders import read
from spark.logs import content_of, some_records, write_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_a_log_directory_is_followed_into_another_one(spark: "SparkSession", tmp_path: Path) -> None:
    folder = write_partition(tmp_path / "logs", "orders-0", some_records(100, magic=1), target=Format.V1)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60", "subscribe": "orders"}
    for _ in range(2):
        rows = spark.readStream.format("magicbyte").options(**options).load(str(tmp_path / "logs"))
        writer = rows.writeStream.format("magicbyte").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("kafka.compression.type", "zstd").trigger(availableNow=True).start(str(tmp_path / "sink"))
        query.awaitTermination()
        if folder.joinpath(f"{100:020}.log").exists():
            break
        (folder / f"{100:020}.log").write_bytes(content_of(some_records(50, first=100, magic=1), Format.V1))
    found = read(tmp_path / "sink")
    assert found == [*some_records(100, magic=1), *some_records(50, first=100, magic=1)]
    assert [each["sources"][0]["endOffset"] for each in query.recentProgress if each["numInputRows"]] == [
        '{"orders": {"0": 150}}'
    ]


def test_what_a_query_read_is_written_as_it_was(spark: "SparkSession", tmp_path: Path) -> None:
    write_partition(tmp_path / "logs", "orders-0", some_records(60))
    write_partition(tmp_path / "logs", "orders-1", some_records(30))
    rows: DataFrame = spark.read.format("magicbyte").option("includeHeaders", "true").load(str(tmp_path / "logs"))
    rows.write.format("magicbyte").mode("append").option("jobId", "once").save(str(tmp_path / "out"))
    rows.write.format("magicbyte").mode("append").option("jobId", "once").save(str(tmp_path / "out"))
    assert read(tmp_path / "out") == some_records(60)
    assert read(tmp_path / "out", "orders-1") == some_records(30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "rounds", "seed"),
    [
        # The Java machine alone is killed: a Python process may continue.
        pytest.param(False, 1, 7, id="directory, after a commit"),
        pytest.param(True, 1, 15, id="cluster, before a commit"),
        pytest.param(False, 2, 1, id="directory", marks=pytest.mark.campaign),
        pytest.param(True, 2, 1, id="cluster", marks=pytest.mark.campaign),
    ],
)
def test_a_stream_that_is_killed_under_load_loses_nothing_and_writes_nothing_twice(
    tmp_path: Path, cluster: bool, rounds: int, seed: int
) -> None:
    told = stream_kills.campaign(tmp_path, rounds, seed, cluster=cluster)
    assert len(told["kills"]) == rounds
    assert sum(told["records"].values()) > 0
