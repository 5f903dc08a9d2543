"""Topics of a live cluster (our broker here; tests/interop has Kafka's): queries, streams and writes."""

import asyncio
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.partitioning import partition_of
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import MagicbyteError, OffsetOutOfRangeError, SecurityError, UnknownTopicError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.columns import Record, arrow_schema
from magicbyte.engine.records.encode import Format
from magicbyte.spark import live
from magicbyte.spark.options import OptionError, parse_options
from magicbyte.spark.plan import OffsetSpan
from magicbyte.spark.shallow import shallow_schema
from magicbyte.spark.source import LogReader, MagicbyteSource, PruningReader
from magicbyte.spark.writing import parse_write_options, write_rows
from magicbyte.testing import Broker
from spark.builders import SCHEMA, arrow, rows, step, steps, stream_reader
from spark.logs import START, read_all, some_records

CODECS = (Codec.NONE, Codec.GZIP, Codec.ZSTD)
RECORDS = [some_records(120), some_records(40)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with the topics `orders`, of two partitions, and `old`, of messages of magic 1."""
    with Broker() as running:
        asyncio.run(fill(running.bootstrap_servers))
        yield running


async def fill(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        await admin.create_topic(client, admin.NewTopic("orders", 2))
        await admin.create_topic(client, admin.NewTopic("old", 1, configs={"message.format.version": "1"}))
        for number, records in enumerate(RECORDS):
            for at in range(0, len(records), 10):
                options = ProduceOptions(codec=CODECS[at // 10 % 3])
                await send(client, "orders", number, records[at : at + 10], options)
        await send(client, "old", 0, some_records(50, magic=1), ProduceOptions(codec=Codec.GZIP, format=Format.V1))


def options_of(broker: Broker, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}


def reader_of(broker: Broker, **options: str) -> PruningReader:
    parsed = parse_options(options_of(broker, **{"subscribe": "orders", **options}))
    schema = shallow_schema() if parsed.mode == "shallow" else arrow_schema(headers=parsed.include_headers)
    return PruningReader(parsed, schema)


def offsets(reader: LogReader) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in read_all(reader):
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def test_the_records_of_a_topic_are_those_that_were_sent(broker: Broker) -> None:
    found = read_all(reader_of(broker, includeHeaders="true"))
    expected = [
        (number, each.offset, each.key, each.value, list(each.headers))
        for number, records in enumerate(RECORDS)
        for each in records
    ]
    assert [
        (
            row["partition"], row["offset"], row["key"], row["value"],
            [(pair["key"], pair["value"]) for pair in row["headers"] or ()],
        )
        for row in found
    ] == expected  # fmt: skip
    assert {row["topic"] for row in found} == {"orders"}


def test_an_address_names_a_topic_or_a_partition(broker: Broker) -> None:
    for path, counts in (("orders", [120, 40]), ("orders/1", [40]), ("old", [50])):
        options = parse_options({"path": f"kafka://{broker.bootstrap_servers}/{path}"})
        found = offsets(LogReader(options, arrow_schema()))
        assert [len(each) for each in found.values()] == counts


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"assign": '{"orders": [1]}'}, {1: range(40)}),
        ({"subscribePattern": "ord.*"}, {0: range(120), 1: range(40)}),
        ({"startingOffsets": '{"orders": {"0": 105, "1": -2}}'}, {0: range(105, 120), 1: range(40)}),
        ({"endingOffsets": '{"orders": {"0": 15, "1": -1}}'}, {0: range(15), 1: range(40)}),
        ({"startingTimestamp": str(START + 32_000)}, {0: range(32, 120), 1: range(32, 40)}),
        ({"endingTimestamp": str(START + 32_000)}, {0: range(32), 1: range(32)}),
        ({"minPartitions": "9"}, {0: range(120), 1: range(40)}),
        ({"isolation": "read_committed"}, {0: range(120), 1: range(40)}),
    ],
    ids=str,
)
def test_the_options_mean_what_they_mean_for_files(
    broker: Broker, options: dict[str, str], expected: dict[int, range]
) -> None:
    given = options if {"assign", "subscribePattern"} & options.keys() else {"subscribe": "orders", **options}
    reader = LogReader(parse_options(options_of(broker, **given)), arrow_schema())
    assert offsets(reader) == {number: list(each) for number, each in expected.items()}
    if "minPartitions" in options:
        assert len(reader.partitions()) >= 9


def test_a_time_without_records_is_an_error_or_reads_nothing(broker: Broker) -> None:
    with pytest.raises(MagicbyteError, match="orders-0: no record from timestamp"):
        reader_of(broker, startingTimestamp=str(2 * START)).partitions()
    late = reader_of(broker, startingTimestamp=str(2 * START), startingOffsetsByTimestampStrategy="latest")
    assert offsets(late) == {}


def test_shallow_mode_gives_closed_sets(broker: Broker) -> None:
    found = read_all(reader_of(broker, mode="shallow"))
    assert sum(row["count"] for row in found) == 160
    assert {row["codec"] for row in found} == {"none", "gzip", "zstd"}
    assert all(row["segment"].startswith(f"kafka://{broker.bootstrap_servers}/orders-") for row in found)
    assert all(len(row["batch"]) == row["size"] for row in found)


def test_lost_records_are_an_error_or_are_skipped(tmp_path: Path) -> None:
    async def shorten(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            await admin.delete_records(client, "orders", 0, 25)

    with Broker() as broker:
        asyncio.run(fill(broker.bootstrap_servers))
        loose = {"startingOffsets": '{"orders": {"0": 5, "1": -2}}', "failOnDataLoss": "false"}
        strict = {**loose, "failOnDataLoss": "true"}
        planned, passing = reader_of(broker, **strict), reader_of(broker, **loose)
        tasks, more = planned.partitions(), passing.partitions()
        asyncio.run(shorten(broker.bootstrap_servers))
        with pytest.raises(OffsetOutOfRangeError):
            list(chain.from_iterable(map(planned.read, tasks)))
        batches = list(chain.from_iterable(map(passing.read, more)))
        assert pa.Table.from_batches(batches).num_rows == 95 + 40
        with pytest.raises(MagicbyteError, match="orders-0: expected offset 5, found none before 25"):
            planned.partitions()
        assert [len(each) for each in offsets(passing).values()] == [95, 40]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "a cluster: expected one of assign, subscribe and subscribePattern, found none"),
        ({"subscribe": "orders", "onDamage": "skip"}, "option onDamage: for logs in files only"),
        ({"subscribe": "orders", "path": "logs"}, "option path: for logs in files only"),
    ],
    ids=str,
)
def test_options_that_say_nothing_of_a_cluster_are_refused(broker: Broker, options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_options(options_of(broker, **options))


def test_an_unknown_topic_is_an_error_and_is_not_created(broker: Broker) -> None:
    with pytest.raises(UnknownTopicError, match="no topic 'new' here"):
        reader_of(broker, subscribe="new").partitions()
    assert "new" not in asyncio.run(topics(broker.bootstrap_servers))


async def topics(bootstrap: str) -> list[str]:
    async with Client(bootstrap) as client:
        return sorted(await client.topics())


def test_a_stream_follows_a_topic() -> None:
    async def more(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            await send(client, "orders", 1, some_records(7))

    with Broker() as broker:
        asyncio.run(fill(broker.bootstrap_servers))
        given = options_of(broker, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="50")
        stream = stream_reader(given)
        stream.prepareForTriggerAvailableNow()
        found = list(steps(stream, {}))
        assert len(found) == 4
        assert all(len(batch) <= 50 for _, batch in found)
        assert sum(len(batch) for _, batch in found) == 160
        assert found[-1][0] == {"orders": {"0": 120, "1": 40}}
        stream.stop()
        asyncio.run(more(broker.bootstrap_servers))
        again = stream_reader(options_of(broker, subscribe="orders"))
        place, batch = step(again, found[-1][0])
        assert batch == [("orders", 1, offset) for offset in range(40, 47)]
        assert step(again, place) == (place, [])
        late = stream_reader(options_of(broker, subscribe="orders"))
        assert step(late, {})[0] == {**place, "began at": place}
        for each in (again, late):
            each.stop()


def test_rows_are_produced_to_a_cluster() -> None:
    async def read(bootstrap: str, partition: int) -> list[Record]:
        async with Client(bootstrap) as client:
            found = read_records(client, "orders", partition, *(await bounds(client, "orders", partition)))
            return [each async for columns in found for each in columns]

    async def make(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            await admin.create_topic(client, admin.NewTopic("orders", 3))

    with Broker() as broker:
        options = options_of(broker, topic="orders", **{"kafka.compression.type": "lz4"})
        writer = MagicbyteSource(options).writer(from_arrow_schema(SCHEMA), overwrite=False)
        given = rows(120, partition=None)
        with pytest.raises(UnknownTopicError):
            writer.write(arrow(given))
        asyncio.run(make(broker.bootstrap_servers))
        writer.commit([writer.write(arrow(given))])
        found = [asyncio.run(read(broker.bootstrap_servers, number)) for number in range(3)]
    for number, records in enumerate(found):
        assert all(each.key is None or partition_of(each.key, 3) == number for each in records)
    sent = sorted((each["key"] or b"", each["value"] or b"") for each in given)
    assert sorted((each.key or b"", each.value or b"") for each in chain.from_iterable(found)) == sent


def test_a_range_is_parted_evenly_and_completely() -> None:
    assert list(live._pieces(5, 5, 10)) == []
    assert list(live._pieces(0, 30, 10)) == [(0, 10), (10, 20), (20, 30)]
    assert list(live._pieces(3, 10, 4)) == [(3, 6), (6, 10)]


def test_partitions_with_few_new_records_share_a_task_however_high_their_offsets() -> None:
    cluster = live.LiveCluster(parse_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}))
    first = 1_000_000_000
    tasks = cluster.tasks({TopicPartition("orders", number): OffsetSpan(first, first + 50) for number in range(4)})
    assert [len(task.slices) for task in tasks] == [4]
    cluster.close()


def test_places_are_those_of_sparks_kafka_source(broker: Broker) -> None:
    stream = stream_reader(options_of(broker, subscribe="orders", startingOffsets='{"orders": {"0": 100, "1": -1}}'))
    place, batch = step(stream, {})
    stream.stop()
    told: dict[str, Any] = json.loads(json.dumps(place))
    assert told["orders"] == {"0": 120, "1": 40}
    assert told["began at"] == {"orders": {"0": 100, "1": 40}}
    assert len(batch) == 20


def test_rows_go_to_and_come_from_a_secured_cluster_by_its_client_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SECRET", "wonder")
    with Broker(security="SASL_SSL", users={"alice": "wonder"}) as secured:
        assert secured.security is not None
        known = secured.security.librdkafka() | {"sasl.password": "${env:SPARK_SECRET}"}
        options = {f"kafka.{name}": value for name, value in known.items()}
        options["kafka.bootstrap.servers"] = secured.bootstrap_servers

        async def make() -> None:
            async with Client(secured.bootstrap_servers, security=secured.security.client()) as client:  # type: ignore[union-attr]
                await admin.create_topic(client, admin.NewTopic("orders", 1))

        asyncio.run(make())
        wanted = parse_write_options(options)
        assert "wonder" not in repr(wanted) + str(wanted.security)
        write_rows(arrow(rows(20)), wanted, "writer")
        parsed = parse_options(options | {"subscribe": "orders"})
        assert "SPARK_SECRET" not in repr(parsed)
        assert offsets(PruningReader(parsed, arrow_schema(headers=False))) == {0: list(range(20))}
        wrong = parse_options(options | {"subscribe": "orders", "kafka.sasl.password": "wrong"})
        with pytest.raises(SecurityError, match="was refused"):
            offsets(PruningReader(wrong, arrow_schema(headers=False)))


def test_settings_of_a_secured_cluster_are_refused_where_there_is_none(tmp_path: Path) -> None:
    for parse in (parse_options, parse_write_options):
        with pytest.raises(OptionError, match="not for logs in files"):
            parse({"path": str(tmp_path), "kafka.security.protocol": "SSL"})
    with pytest.raises(OptionError, match="unknown option"):
        parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.sasl.nothing": "x"})


def test_a_topic_made_again_is_continued_at_its_end_as_by_sparks_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_UP_INTERVAL_S", 0.01)
    with Broker() as broker:

        async def add(count: int, *, again: bool) -> None:
            async with Client(broker.bootstrap_servers) as client:
                if again:
                    await admin.delete_topic(client, "t")
                await admin.create_topic(client, admin.NewTopic("t", 1))
                await send(client, "t", 0, some_records(count))

        async def more(count: int) -> None:
            async with Client(broker.bootstrap_servers) as client:
                await send(client, "t", 0, some_records(count))

        place: dict[str, Any] = {}
        found = []
        for work in (add(4, again=False), add(2, again=True), more(2), more(3)):
            asyncio.run(work)
            options = options_of(broker, subscribe="t", startingOffsets="earliest", failOnDataLoss="false")
            stream = stream_reader(options)
            if len(found) == 1:  # before the position moved
                strict = stream_reader({**options, "failOnDataLoss": "true"})
                with pytest.raises(MagicbyteError, match="t-0: read up to offset 4 before, and ends at 2 now"):
                    step(strict, place)
                strict.stop()
            place, batch = step(stream, place)
            found.append([offset for _, _, offset in batch])
            stream.stop()
    assert found == [[0, 1, 2, 3], [], [2, 3], [4, 5, 6]]


def test_an_end_that_lags_behind_the_position_is_looked_up_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a leader that was just elected: its high watermark follows."""
    monkeypatch.setattr(live, "LOOK_UP_INTERVAL_S", 0.01)
    lags = iter((100, 110, 0))

    async def lagging(*given: Any) -> tuple[int, int]:
        first, end = await bounds(*given)
        return first, end - next(lags, 0) if given[1:] == ("orders", 0) else end

    monkeypatch.setattr(live, "bounds", lagging)
    stream = stream_reader(options_of(broker, subscribe="orders"))
    place = {"orders": {"0": 120, "1": 40}}
    assert step(stream, place) == (place, [])
    stream.stop()


@pytest.mark.parametrize(("first", "read"), [(0, 2), (3, 0)])
def test_a_task_of_a_topic_that_was_made_again_fails_or_reads_what_there_is(first: int, read: int) -> None:
    with Broker() as broker:

        async def fill_it(count: int) -> None:
            async with Client(broker.bootstrap_servers) as client:
                if "t" in await client.topics():
                    await admin.delete_topic(client, "t")
                await admin.create_topic(client, admin.NewTopic("t", 1))
                await send(client, "t", 0, some_records(count))

        asyncio.run(fill_it(9))
        given = {"subscribe": "t", "startingOffsets": f'{{"t": {{"0": {first}}}}}'}
        strict, loose = reader_of(broker, **given), reader_of(broker, **given, failOnDataLoss="false")
        tasks = strict.partitions()
        asyncio.run(fill_it(2))
        assert sum(batch.num_rows for task in tasks for batch in loose.read(task)) == read
        with pytest.raises((OffsetOutOfRangeError, MagicbyteError)):
            _ = [batch for task in tasks for batch in strict.read(task)]
