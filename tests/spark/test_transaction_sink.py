"""Rows into a cluster by transactions: each batch once, whatever it is cut off at; without a Spark session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import magicbyte
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.offsets import LATEST, list_offset
from magicbyte.access.client.partitioning import partition_of
from magicbyte.access.client.transactions import TransactionalProducer
from magicbyte.engine.errors import BrokerError, LogDirectoryError, UnknownTopicError
from magicbyte.spark import transaction_sink
from magicbyte.spark.log_sink import WORK
from magicbyte.spark.options import OptionError
from magicbyte.spark.writing import LogStreamWriter, LogWriter, parse_write_options
from magicbyte.testing import Broker
from spark.builders import RECORDS, SCHEMA, CutError, arrow, rows

ID = "7b4e6d1c-0000-4000-8000-000000000001"


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(cluster: str, request: pytest.FixtureRequest) -> str:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)

    async def make() -> None:
        async with Client(cluster) as client:
            await create_topic(client, NewTopic(name, partitions=2))

    asyncio.run(make())
    return name


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "metadata").write_text(f'{{"id":"{ID}"}}')
    return folder


def stream(cluster: str, topic: str, checkpoint: Path, **more: str) -> LogStreamWriter:
    options = {
        "kafka.bootstrap.servers": cluster,
        "topic": topic,
        "kafka.transactional.id": f"spark-{topic}",
        "checkpointLocation": str(checkpoint),
        **more,
    }
    return LogStreamWriter.of(parse_write_options(options), from_arrow_schema(SCHEMA), overwrite=False)


@pytest.fixture
def writer(cluster: str, topic: str, checkpoint: Path) -> LogStreamWriter:
    return stream(cluster, topic, checkpoint)


def batch(writer: LogStreamWriter, number: int, *tasks: list[dict[str, Any]]) -> None:
    writer.commit([writer.write(arrow(given)) for given in tasks], number)


def values(cluster: str, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    """Return the values of partition 0, when no transaction is open."""
    asyncio.run(until_ended(cluster, topic))
    return [each.value for each in magicbyte.records(f"kafka://{cluster}/{topic}/0", isolation=isolation)]


async def until_ended(cluster: str, topic: str) -> None:
    async with Client(cluster) as client, asyncio.timeout(60):
        while True:
            stable, end = [
                await list_offset(client, topic, 0, LATEST, committed=committed) for committed in (True, False)
            ]
            if stable.offset == end.offset:
                return
            await asyncio.sleep(0.02)


def written(count: int, first: int = 0) -> list[bytes | None]:
    """Return the values of what `rows` makes."""
    return [each.value for each in RECORDS[first : first + count]]


def test_rows_become_records_and_each_batch_is_one_transaction(
    cluster: str, topic: str, writer: LogStreamWriter, checkpoint: Path
) -> None:
    batch(writer, 0, rows(100, topic=topic), rows(50, first=100, topic=topic))
    batch(writer, 1, rows(30, first=150, topic=topic))
    assert values(cluster, topic) == written(180)
    records = list(magicbyte.records(f"kafka://{cluster}/{topic}/0"))
    assert [each.offset for each in records] == [*range(150), *range(151, 181)]  # a marker between them
    expected = [(each.timestamp, each.key, each.headers) for each in RECORDS[:180]]
    assert [(each.timestamp, each.key, each.headers) for each in records] == expected
    assert not (checkpoint / WORK).exists()


def test_a_batch_that_spark_runs_again_is_there_once_also_in_other_tasks(
    cluster: str, topic: str, writer: LogStreamWriter
) -> None:
    batch(writer, 0, rows(20, topic=topic))
    batch(writer, 1, rows(20, first=20, topic=topic))
    batch(writer, 1, rows(10, first=20, topic=topic), rows(10, first=30, topic=topic))
    batch(writer, 0, rows(20, topic=topic))
    batch(writer, 2, rows(5, first=40, topic=topic))
    assert values(cluster, topic) == written(45)


STEPS = ("begin", "send_made", "commit_offsets", "commit")


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("step", STEPS)
def test_a_batch_is_there_once_whatever_step_of_its_commit_the_driver_is_killed_at(
    cluster: str, topic: str, writer: LogStreamWriter, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    batch(writer, 0, rows(10, topic=topic))
    real = getattr(TransactionalProducer, step)

    async def cut(*given: Any, **named: Any) -> Any:
        if after:
            await real(*given, **named)
        raise CutError

    async def nothing(_: TransactionalProducer) -> None:
        """Leave the transaction open, as a process does that is gone."""

    with monkeypatch.context() as patch:
        patch.setattr(TransactionalProducer, "abort", nothing)
        patch.setattr(TransactionalProducer, step, cut)
        with pytest.raises(CutError):
            batch(writer, 1, rows(60, first=10, topic=topic))
    batch(writer, 1, rows(30, first=10, topic=topic), rows(30, first=40, topic=topic))
    batch(writer, 2, rows(5, first=70, topic=topic))
    assert values(cluster, topic) == written(75)


def test_a_commit_that_another_has_taken_the_place_of_commits_nothing(
    cluster: str, topic: str, writer: LogStreamWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a query that was believed dead, and continues when its successor has committed the batch."""
    batch(writer, 0, rows(10, topic=topic))
    late = writer.write(arrow(rows(10, first=10, topic=topic)))
    commit_offsets = TransactionalProducer.commit_offsets

    async def slow(*given: Any) -> None:
        if not overtaken:
            overtaken.append(True)
            again = writer.write(arrow(rows(10, first=10, topic=topic)))
            await asyncio.to_thread(writer.commit, [again], 1)
        await commit_offsets(*given)

    overtaken = list[bool]()
    monkeypatch.setattr(TransactionalProducer, "commit_offsets", slow)
    with pytest.raises(BrokerError, match="another producer began with this transactional id"):
        writer.commit([late], 1)
    assert values(cluster, topic) == written(20)
    assert len(values(cluster, topic, "read_uncommitted")) == 30  # ten of them aborted


def test_a_commit_that_comes_late_touches_nothing_of_the_next_batch(
    cluster: str, topic: str, writer: LogStreamWriter
) -> None:
    """As of a query that was killed, while the next one has continued."""
    batch(writer, 0, rows(20, topic=topic))
    following, late = writer.write(arrow(rows(10, first=20, topic=topic))), writer.write(arrow(rows(20, topic=topic)))
    writer.commit([late], 0)
    assert not Path(late.staged[0].path).exists()
    writer.commit([following], 1)
    assert values(cluster, topic) == written(30)


def test_a_removed_staged_file_is_not_committed(
    cluster: str, topic: str, writer: LogStreamWriter, checkpoint: Path
) -> None:
    message = writer.write(arrow(rows(5, topic=topic)))
    (staged,) = message.staged
    assert Path(staged.path).is_relative_to(checkpoint)
    Path(staged.path).unlink()
    with pytest.raises(LogDirectoryError, match="bytes staged by a task: the file is missing"):
        writer.commit([message], 0)
    batch(writer, 0, rows(5, topic=topic))
    assert values(cluster, topic) == written(5)


def test_a_batch_without_rows_needs_no_transaction(cluster: str, topic: str, writer: LogStreamWriter) -> None:
    writer.commit([writer.write(iter(()))], 0)
    batch(writer, 1, rows(5, topic=topic))
    assert values(cluster, topic) == written(5)


def test_another_query_with_the_same_transactional_id_counts_its_own_batches(
    cluster: str, topic: str, writer: LogStreamWriter, tmp_path: Path
) -> None:
    batch(writer, 0, rows(5, topic=topic))
    other = tmp_path / "other"
    other.mkdir()
    (other / "metadata").write_text('{"id":"another"}')
    batch(stream(cluster, topic, other), 0, rows(5, first=5, topic=topic))
    assert values(cluster, topic) == written(10)


def test_a_write_is_all_or_nothing_and_one_with_the_id_of_a_job_is_done_once(
    cluster: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(count: int, **options: str) -> None:
        common = {
            "kafka.bootstrap.servers": cluster, "kafka.transactional.id": topic, "topic": topic,
            "stagingLocation": str(tmp_path / "staged"),
        }  # fmt: skip
        made = LogWriter.of(parse_write_options(common | options), from_arrow_schema(SCHEMA), overwrite=False)
        made.commit([made.write(arrow(rows(count, topic=topic)))])

    write(3)
    write(3)
    write(4, jobId="nightly")
    write(4, jobId="nightly")
    with monkeypatch.context() as patch:
        patch.setattr(transaction_sink, "SENDS_AT_ONCE", 1)
        patch.setattr(TransactionalProducer, "commit_offsets", fail)
        with pytest.raises(CutError):
            write(5, jobId="other")
    assert values(cluster, topic) == [*written(3), *written(3), *written(4)]


async def fail(*_: object) -> None:
    raise CutError


def test_keys_decide_by_the_partitions_that_the_topic_has(cluster: str, topic: str, writer: LogStreamWriter) -> None:
    given = rows(60, topic=topic, partition=None)
    batch(writer, 0, given)
    for partition in range(2):
        found = list(magicbyte.records(f"kafka://{cluster}/{topic}/{partition}"))
        assert found
        assert all(each.key is None or partition_of(each.key, 2) == partition for each in found)


def test_a_topic_that_is_not_there_is_named(cluster: str, checkpoint: Path) -> None:
    with pytest.raises(UnknownTopicError, match="nowhere"):
        stream(cluster, "nowhere", checkpoint).write(arrow(rows(5, topic="nowhere", partition=None)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "logs"}, "kafka.transactional.id: expected a cluster"),
        ({"kafka.transactional.id": ""}, "kafka.transactional.id: expected a name"),
        ({"kafka.transaction.timeout.ms": "0"}, "kafka.transaction.timeout.ms: expected milliseconds"),
        ({"kafka.transaction.timeout.ms": "1e9"}, "kafka.transaction.timeout.ms: expected milliseconds"),
        ({"checkpointLocation": "s3://bucket/folder"}, "stagingLocation: expected a local folder"),
        ({"checkpointLocation": None}, "stagingLocation: expected a folder that the driver and all workers share"),
        ({"kafka.transactional.id": None, "stagingLocation": "x"}, "stagingLocation: expected with"),
    ],
    ids=str,
)
def test_options_that_cannot_be_are_refused(options: dict[str, str | None], said: str) -> None:
    given = {"kafka.transactional.id": "name", "checkpointLocation": "/checkpoint"} | options
    if "path" not in options:
        given["kafka.bootstrap.servers"] = "nowhere:9092"
    with pytest.raises(OptionError, match=said):
        parse_write_options({name: value for name, value in given.items() if value is not None})
