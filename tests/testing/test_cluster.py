"""A cluster in a test: what it promises, and what a test may do to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import send
from magicbyte.engine.errors import ErrorCode, InvalidConfigError, UnknownTopicError
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Cluster, TurnedClock

ALL = {1, 2, 3}


@pytest.fixture(scope="module")
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture(scope="module")
def shared(clock: TurnedClock) -> Iterator[Cluster]:
    with Cluster(clock=clock) as cluster:
        yield cluster


@pytest.fixture
def topic(shared: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of this test with a replica on each broker of the cluster, which is restored after it."""
    name = f"topic-{request.node.name}"[:100]

    async def make() -> None:
        async with Client(shared.bootstrap_servers) as client:
            await create_topic(client, NewTopic(name, assignments=[(1, 2, 3)]))
        for address in shared.bootstrap_servers.split(","):  # a broker that is cut off now would never hear of it
            async with Client(address) as client:
                await bounds(client, name, 0)

    asyncio.run(make())
    yield name
    shared.restore()


def produce(cluster: Cluster, topic: str, value: bytes) -> None:
    async def work() -> None:
        async with Client(cluster.bootstrap_servers) as client:
            await send(client, topic, 0, [Record(0, -1, 0, None, value)])

    asyncio.run(work())


def consumed(cluster: Cluster, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        return [next(consumer).value for _ in range(end)]
    finally:
        consumer.close()


def test_records_are_on_every_broker_and_outlive_the_leader(shared: Cluster, topic: str) -> None:
    assert (shared.running, shared.leader(topic, 0), shared.isr(topic, 0)) == (ALL, 1, ALL)
    producer = KafkaProducer(bootstrap_servers=shared.bootstrap_servers, acks="all")
    try:
        producer.send(topic, b"before").get(timeout=120)
        shared.kill(1)
        shared.wait(lambda: shared.leader(topic, 0) == 2)
        producer.send(topic, b"after").get(timeout=120)
    finally:
        producer.close()
    assert (shared.running, shared.isr(topic, 0)) == ({2, 3}, {2, 3})
    assert consumed(shared, topic) == [b"before", b"after"]
    address = shared.bootstrap_servers
    shared.restart(1)
    shared.wait(lambda: shared.isr(topic, 0) == ALL)
    assert shared.bootstrap_servers == address


def test_a_broker_that_is_stopped_hands_over_and_one_that_is_restarted_comes_back(shared: Cluster, topic: str) -> None:
    shared.stop(1)
    assert shared.leader(topic, 0) == 2
    assert shared.controller in {2, 3}
    shared.restart(1)
    shared.restart(2)
    shared.wait(lambda: shared.isr(topic, 0) == ALL)
    assert shared.running == ALL


def test_leaders_move_to_where_a_test_wants_them(shared: Cluster, topic: str) -> None:
    for to in (3, 2, 2):
        shared.move_leader(topic, 0, to)
        assert shared.leader(topic, 0) == to
    produce(shared, topic, b"value")
    with pytest.raises(UnknownTopicError, match="-7 is not in the cluster"):
        shared.move_leader(topic, 7, 1)


def test_a_follower_that_is_cut_off_falls_out_of_sync_by_the_clock_and_comes_back(
    shared: Cluster, topic: str, clock: TurnedClock
) -> None:
    shared.cut(1, 3)
    thread = threading.Thread(target=produce, args=(shared, topic, b"waits for broker 3"))
    thread.start()

    def is_shrunk() -> bool:
        clock.advance(20)  # a little at a time: followers that are not cut off keep up
        return 3 not in shared.isr(topic, 0)

    shared.wait(is_shrunk)
    thread.join()
    shared.heal()
    shared.wait(lambda: shared.isr(topic, 0) == ALL)
    assert consumed(shared, topic) == [b"waits for broker 3"]


def test_each_broker_has_faults_of_its_own(shared: Cluster, topic: str) -> None:
    with shared.brokers[1].fault("Produce", error=ErrorCode.NOT_LEADER_OR_FOLLOWER) as fault:
        produce(shared, topic, b"value")
    assert fault.hits == 1
    assert consumed(shared, topic) == [b"value"]


def test_what_cannot_be_is_refused_with_what_there_is(shared: Cluster, topic: str) -> None:
    with pytest.raises(ValueError, match="broker 4: expected one of 1, 2, 3"):
        shared.kill(4)
    with pytest.raises(ValueError, match="expected two brokers, found 2 twice"):
        shared.cut(2, 2)
    shared.kill(3)
    with pytest.raises(ValueError, match="broker 3 is not running: `restart` starts it"):
        shared.stop(3)
    with pytest.raises(UnknownTopicError, match="nowhere-0 is not in the cluster"):
        shared.leader("nowhere", 0)


def test_a_cluster_in_a_coroutine_leaves_its_logs_where_they_are_wanted(tmp_path: Path) -> None:
    folder = tmp_path / "logs"

    async def work() -> None:
        async with Cluster(2, directory=folder) as cluster, Client(cluster.bootstrap_servers) as client:
            await create_topic(client, NewTopic("orders", 1, 2))
            await send(client, "orders", 0, [Record(0, -1, 0, None, b"value")])

    asyncio.run(work())
    logs = [(folder / f"broker-{number}/orders-0/{0:020}.log").read_bytes() for number in (1, 2)]
    assert logs[0] == logs[1] != b""
    assert (folder / "broker-1/.kafka_cleanshutdown").exists()
    with pytest.raises(ValueError, match="expected an empty folder"):
        Cluster(2, directory=folder)


def test_a_setting_that_cannot_be_is_raised_and_nothing_is_left() -> None:
    before = set(threading.enumerate())
    with pytest.raises(InvalidConfigError, match=r"num\.partitions"), Cluster(2, {"num.partitions": "many"}):
        pass
    with pytest.raises(ValueError, match="expected at least one, found 0"):
        Cluster(0)
    assert set(threading.enumerate()) <= before


def test_a_cluster_may_be_of_an_older_release() -> None:
    with Cluster(2, {"as.version": "0.10.2"}) as cluster:
        assert cluster.controller in cluster.running


def test_a_cluster_that_has_ended_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with Cluster(2) as cluster:
        cluster.kill(1)
    assert set(threading.enumerate()) <= before
