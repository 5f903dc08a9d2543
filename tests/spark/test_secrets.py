"""Passwords of a secured cluster are in no plan of Spark, no message and no file of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from magicbyte.access.client import Client, admin
from magicbyte.access.client.produce import send
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
SECRET, WRONG = "sp4rk-S3same-zq", "wr0ng-S3same-zq"
RECORDS: Final = [Record(at, 1_500_000_000_000 + at, 0, b"k", b"%d" % at) for at in range(5)]


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    """Options of a secured cluster with a topic, the password among them as it is."""
    with Broker(security="SASL_SSL", users={"alice": SECRET}) as broker:
        security = broker.security
        assert security is not None

        async def prepare() -> None:
            async with Client(broker.bootstrap_servers, security=security.client()) as client:
                for topic in ("orders", "copy"):
                    await admin.create_topic(client, admin.NewTopic(topic))
                await send(client, "orders", 0, RECORDS)

        asyncio.run(prepare())
        given = {f"kafka.{name}": value for name, value in security.librdkafka().items()}
        assert SECRET in given.values()
        yield given | {"kafka.bootstrap.servers": broker.bootstrap_servers}


def plans_of(rows: DataFrame) -> str:
    """Return all that Spark tells of a query, as text and as JSON."""
    execution = rows._jdf.queryExecution()
    plans = (execution.logical(), execution.analyzed(), execution.optimizedPlan(), execution.executedPlan())
    jvm = rows.sparkSession._jvm
    assert jvm is not None
    explained = [jvm.PythonSQLUtils.explainString(execution, mode) for mode in ("extended", "formatted", "cost")]
    return "\n".join([str(execution), *explained, *(f"{each}\n{each.toJSON()}" for each in plans)])


def test_plans_and_messages_of_a_query_show_no_password(spark: SparkSession, options: dict[str, str]) -> None:
    reader = spark.read.format("magicbyte").option("subscribe", "orders")
    rows = reader.options(**options).load()
    assert rows.count() == len(RECORDS)
    plans = plans_of(rows.select("value").where("offset > 1"))
    assert "magicbyte" in plans
    assert SECRET not in plans
    refused = reader.options(**options | {"kafka.sasl.password": WRONG}).load()
    assert WRONG not in plans_of(refused)
    with pytest.raises(Exception, match="was refused") as error:
        refused.count()
    assert WRONG not in str(error.value)


@pytest.mark.slow
def test_files_and_progress_of_a_stream_have_no_password(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    reader = spark.readStream.format("magicbyte").options(**options).option("subscribe", "orders")
    rows = reader.option("startingOffsets", "earliest").load().select("key", "value")
    writer = rows.writeStream.format("magicbyte").options(**options).option("topic", "copy")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = str(query.recentProgress) + str(query.lastProgress)
    assert sum(each["numInputRows"] for each in query.recentProgress) == len(RECORDS)
    assert SECRET not in progress
    written = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert written
    assert [each for each in written if SECRET.encode() in each.read_bytes()] == []
