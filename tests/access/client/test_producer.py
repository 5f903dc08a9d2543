"""The producer of single records and the iterator over a topic, with our brokers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

import magicbyte
from magicbyte.access.client import admin, consumer
from magicbyte.access.client import producer as module
from magicbyte.access.client.partitioning import partition_of
from magicbyte.access.client.transaction_admin import open_transactions
from magicbyte.access.client.transactions import TransactionalProducer
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.records.columns import RecordColumns
from magicbyte.engine.records.encode import columns_of
from magicbyte.testing import Broker


@pytest.fixture
def broker() -> Any:
    with Broker() as found:
        yield found


@contextlib.asynccontextmanager
async def connected(broker: Broker, partitions: int = 3) -> AsyncIterator[magicbyte.Client]:
    """Yield a client of the broker, which has the topic `orders`."""
    async with magicbyte.Client(broker.bootstrap_servers, retry_ms=20_000) as client:
        if "orders" not in await client.topics():
            await admin.create_topic(client, admin.NewTopic("orders", partitions))
        yield client


async def all_of(client: magicbyte.Client, **options: Any) -> list[magicbyte.Record]:
    return [each async for each in client.consume("orders", stop_at_end=True, **options)]


async def test_records_are_sent_in_batches_and_read_back_in_order(broker: Broker) -> None:
    async with connected(broker) as client:
        async with client.producer(codec=magicbyte.Codec.GZIP) as producer:
            for number in range(1000):
                key = f"{number % 7}".encode()
                await producer.send("orders", f"{number}".encode(), key=key, headers=[("n", b"1")])
        found = await all_of(client)
    assert sorted(int(each.value) for each in found) == list(range(1000))
    by_partition: dict[int, list[magicbyte.Record]] = {}
    for each in found:
        assert (each.topic, each.headers, each.partition) == ("orders", (("n", b"1"),), partition_of(each.key, 3))
        by_partition.setdefault(each.partition, []).append(each)
    for records in by_partition.values():
        assert [each.offset for each in records] == list(range(len(records)))
        assert [int(each.value) for each in records] == sorted(int(each.value) for each in records)


async def test_a_partition_and_a_time_can_be_given_and_records_without_a_key_share_batches(broker: Broker) -> None:
    async with connected(broker) as client:
        async with client.producer() as producer:
            await producer.send("orders", None, key=b"gone", partition=2, timestamp=1_700_000_000_000)
            for number in range(20):
                await producer.send("orders", b"%d" % number)
        found = await all_of(client)
    (given,) = [each for each in found if each.key]
    assert (given.partition, given.timestamp, given.value) == (2, 1_700_000_000_000, None)
    assert len({each.partition for each in found if each.key is None}) == 1


async def test_a_full_batch_goes_at_once_and_flush_sends_the_rest(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUFFERED_BYTES", 100_000)  # beyond it `send` waits for a batch to be stored
    async with connected(broker) as client, client.producer(linger_ms=3_600_000) as producer:
        for _ in range(300):
            await producer.send("orders", bytes(10_000), partition=0)
        assert len(await all_of(client)) > 0
        await producer.flush()
        assert len(await all_of(client)) == 300


async def test_nothing_counts_as_waiting_once_all_is_stored(broker: Broker) -> None:
    async with connected(broker) as client:
        waiting = []
        async with client.producer() as producer:
            for number in range(9):
                await producer.send("orders", b"%d" % number, partition=number % 2)
                await producer.flush()
                waiting.append(producer._size)
        assert waiting == [0] * 9


async def test_a_transaction_is_seen_whole_or_not_at_all(broker: Broker) -> None:
    async def leave(client: magicbyte.Client) -> None:
        async with client.producer(transactional_id="t") as producer:
            await producer.send("orders", b"fourth")
            await producer.flush()
            raise RuntimeError("left")

    async with connected(broker) as client:
        async with client.producer(transactional_id="t") as producer:
            await producer.send("orders", b"first")
            await producer.commit()
            await producer.send("orders", b"second")
            await producer.flush()
            await producer.abort()
            await producer.send("orders", b"third")
        with pytest.raises(RuntimeError, match="left"):
            await leave(client)
        assert sorted([each.value for each in await all_of(client, isolation="read_committed")]) == [b"first", b"third"]


async def test_a_failure_is_raised_at_the_next_call(broker: Broker) -> None:
    async def work() -> None:
        async with connected(broker) as client, client.producer() as producer:
            await producer.send("orders", b"value", partition=0)
            with pytest.raises(magicbyte.BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                await producer.flush()
            with pytest.raises(magicbyte.BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                await producer.send("orders", b"value", partition=0)
            with pytest.raises(magicbyte.UnknownTopicError):
                async with client.producer() as other:
                    await other.send("none", b"value")

    refusing = broker.fault("Produce", times=None, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with refusing, pytest.raises(magicbyte.BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        await work()


async def test_a_flush_that_is_cancelled_loses_no_records(broker: Broker) -> None:
    async with connected(broker) as client:
        async with client.producer() as producer:
            with broker.fault("Produce", times=None, error=ErrorCode.NOT_ENOUGH_REPLICAS) as refused:
                for number in range(6):
                    await producer.send("orders", b"%d" % number, partition=number % 3)
                flushing = asyncio.create_task(producer.flush())
                while not refused.seen:
                    await asyncio.sleep(0.01)
                flushing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await flushing
            await producer.flush()
            found = await all_of(client)
        assert sorted(each.value or b"" for each in found) == [b"%d" % each for each in range(6)]


async def test_a_flush_ends_while_others_keep_sending(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[bytes | None] = []

    async def store(_client: Any, _topic: str, _partition: int, records: list[magicbyte.Record], _options: Any) -> None:
        await asyncio.sleep(0)
        stored.extend(each.value for each in records)

    monkeypatch.setattr(module, "send", store)
    async with connected(broker) as client:

        async def keep_sending() -> None:
            while True:
                await producer.send("orders", b"other", partition=0)
                await asyncio.sleep(0)

        async with client.producer(linger_ms=0) as producer:
            await producer.send("orders", b"first", partition=0)
            others = asyncio.create_task(keep_sending())
            await asyncio.sleep(0.01)
            await producer.send("orders", b"last", partition=0)
            await producer.flush()
            assert b"last" in stored
            others.cancel()


async def test_many_small_records_count_with_the_memory_of_their_objects(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def store(*_given: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "BUFFERED_BYTES", 100_000)
    monkeypatch.setattr(module, "send", store)
    async with connected(broker) as client:
        producer, count = client.producer(), 0

        async def send_all() -> None:
            nonlocal count
            while True:
                await producer.send("orders", b"x", partition=0)
                count += 1

        sending = asyncio.create_task(send_all())
        while producer._size <= module.BUFFERED_BYTES and not sending.done():
            await asyncio.sleep(0.001)
        assert sending.cancel(), sending.exception()
        await producer._drop()
        assert count < 100_000 / 200


async def test_a_transaction_whose_commit_fails_at_the_end_of_the_block_is_aborted(broker: Broker) -> None:
    async def fail(client: magicbyte.Client) -> None:
        async with client.producer(transactional_id="t") as producer:
            await producer.send("orders", b"value", partition=0)
            await producer.flush()
            assert await open_transactions(client, "orders", 0)
            await producer.send("orders", b"refused", partition=0)

    async with connected(broker) as client:
        refusing = broker.fault("Produce", times=None, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, at=2)
        with refusing, pytest.raises(magicbyte.BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            await fail(client)
        async with asyncio.timeout(30):  # EndTxn is answered before the marker is written
            while await open_transactions(client, "orders", 0):
                await asyncio.sleep(0.01)


async def test_a_record_that_is_sent_during_a_commit_belongs_to_the_next_transaction(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker) as client:
        events: list[str] = []
        going = asyncio.Event()

        class Transactions:
            async def send(self, _topic: str, _partition: int, records: list[magicbyte.Record], _options: Any) -> None:
                events.extend(f"{each.value!r}" for each in records)

            async def commit(self) -> None:
                events.append("commit begins")
                await going.wait()
                events.append("commit ends")

        async def begin(*_: object) -> Transactions:
            return Transactions()

        monkeypatch.setattr(TransactionalProducer, "begin", begin)
        async with client.producer(transactional_id="t", linger_ms=0) as producer:
            await producer.send("orders", b"first", partition=0)
            committing = asyncio.create_task(producer.commit())
            while "commit begins" not in events:
                await asyncio.sleep(0)
            sending = asyncio.create_task(producer.send("orders", b"second", partition=0))
            for _ in range(20):
                await asyncio.sleep(0)
            going.set()
            await asyncio.gather(committing, sending)
            await producer.flush()
        assert events[:4] == ["b'first'", "commit begins", "commit ends", "b'second'"]


async def test_partitions_that_a_topic_gets_meanwhile_are_used(broker: Broker) -> None:
    async with connected(broker) as client:
        async with (
            magicbyte.Client(broker.bootstrap_servers, metadata_max_age_ms=-1) as own,
            own.producer() as producer,
        ):
            await producer.send("orders", b"first", partition=0)
            await producer.flush()
            await admin.create_partitions(client, "orders", 9)
            for value in (b"second", b"third"):  # between these batches of one partition partitions are counted
                await producer.send("orders", value, partition=0)
                await producer.flush()
            for number in range(9):
                await producer.send("orders", b"%d" % number, key=b"%d" % number)
        assert {each.partition for each in await all_of(client) if each.key} == {
            partition_of(b"%d" % each, 9) for each in range(9)
        }


async def test_nothing_is_sent_behind_the_block_of_a_producer_that_failed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list[int]()

    async def store(_client: Any, _topic: str, partition: int, *_given: Any) -> None:
        if partition == 0:
            raise magicbyte.NetworkError("lost")
        await asyncio.sleep(5)
        sent.append(partition)

    async def fail(client: magicbyte.Client) -> None:
        async with client.producer(linger_ms=0) as producer:
            for partition in (1, 0):
                await producer.send("orders", b"value", partition=partition)

    monkeypatch.setattr(module, "send", store)
    async with connected(broker) as client:
        with pytest.raises(magicbyte.NetworkError, match="lost"):
            await fail(client)
        running = {each.get_coro().__qualname__ for each in asyncio.all_tasks()}
        assert not [each for each in running if "RecordProducer" in each]
    assert not sent


async def test_a_record_for_a_partition_that_is_not_there_is_refused_alone(broker: Broker) -> None:
    async with connected(broker) as client:
        async with client.producer() as producer:
            for wrong in (-1, 3):
                with pytest.raises(magicbyte.UnknownTopicError, match="expected one of 0 to 2"):
                    await producer.send("orders", b"value", partition=wrong)
            await producer.send("orders", b"value", partition=2)
        assert len(await all_of(client)) == 1


async def test_consuming_waits_for_more_from_the_end_or_an_offset_and_stops_when_it_is_left(broker: Broker) -> None:
    async def first(records: AsyncIterator[magicbyte.Record]) -> magicbyte.Record:
        return await anext(records)

    async with connected(broker) as client:
        async with client.producer() as producer:
            for number in range(5):
                await producer.send("orders", b"%d" % number, partition=1)
        middle = [each.value for each in await all_of(client, partition=1, start=3)]
        seen: list[bytes | None] = []
        async with aclosing(client.consume("orders", start="latest")) as records:
            waiting = asyncio.ensure_future(first(records))
            while not waiting.done():
                async with client.producer() as producer:
                    await producer.send("orders", b"later", partition=0)
                await asyncio.sleep(0.05)
            seen.append((await waiting).value)
        assert (middle, seen) == ([b"3", b"4"], [b"later"])


async def test_what_waits_for_a_consumer_is_bounded_however_many_partitions_there_are(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches: list[int] = []
    yielded = 0

    async def endless(*given: Any) -> AsyncIterator[RecordColumns]:
        nonlocal yielded
        fetches.append(given[-1].max_bytes)
        while True:
            yielded += 1
            yield columns_of([magicbyte.Record(0, 0, 0, None, b"value")])

    monkeypatch.setattr(consumer, "read_records", endless)
    async with connected(broker, partitions=50) as client, aclosing(client.consume("orders")) as records:
        await anext(records)
        for _ in range(200):
            await asyncio.sleep(0.001)
    assert sum(fetches) <= 50 * (256 << 10)
    assert len(fetches) == 50
    assert yielded <= 1 + 16 + 50


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"partition": 9}, magicbyte.UnknownTopicError, "expected one of 0 to 2"),
        ({"isolation": "none"}, ValueError, "expected 'read_uncommitted' or 'read_committed'"),
    ],
)
async def test_what_cannot_be_read_is_refused(
    broker: Broker, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    async with connected(broker) as client:
        with pytest.raises(error, match=message):
            await all_of(client, **options)
