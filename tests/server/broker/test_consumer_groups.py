"""Consumer groups of KIP-848 with librdkafka's consumer: members share, leave, commit, and find their group again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.testing import Broker, Cluster

SETTINGS = {"offsets.topic.num.partitions": "1", "group.consumer.heartbeat.interval.ms": "100", "num.partitions": "4"}
PATIENCE_S = 60


def consumer(address: str, **settings: str) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **settings,
        }
    )
    made.subscribe(["t"])
    return made


def fill(address: str, values: Iterable[bytes]) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number, value in enumerate(values):
        producer.produce("t", value, partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0


def until(consumers: list[Consumer], sizes: list[int]) -> None:
    """Poll until each consumer has so many partitions; sizes are sorted."""
    end = time.monotonic() + PATIENCE_S
    while sorted(len(each.assignment()) for each in consumers) != sizes:
        assert time.monotonic() < end, [each.assignment() for each in consumers]
        for each in consumers:
            message = each.poll(0.05)
            assert message is None or not message.error() or message.error().retriable(), message.error()


def read(one: Consumer, count: int) -> set[bytes]:
    values, end = set[bytes](), time.monotonic() + PATIENCE_S
    while len(values) < count:
        assert time.monotonic() < end, values
        message = one.poll(0.1)
        if message is not None and not message.error():
            values.add(message.value())
    return values


@pytest.mark.parametrize("release", ["", "4.1", "4.4"])  # librdkafka asks for version 1, of 4.1
def test_two_members_share_the_partitions_and_the_last_one_gets_all(release: str) -> None:
    with Broker({**SETTINGS, **({"as.version": release} if release else {})}) as served:
        values = [b"%d" % number for number in range(40)]
        fill(served.bootstrap_servers, values)
        first = consumer(served.bootstrap_servers)
        until([first], [4])
        second = consumer(served.bootstrap_servers)
        until([first, second], [2, 2])
        second.close()
        until([first], [4])
        first.close()


def test_commits_count_after_a_restart_and_the_group_is_described_and_deleted(tmp_path: Path) -> None:
    values = [b"%d" % number for number in range(40)]
    with Broker(SETTINGS, directory=tmp_path) as served:
        fill(served.bootstrap_servers, values)
        first = consumer(served.bootstrap_servers, **{"group.instance.id": "i"})
        assert read(first, 40) == set(values)
        first.commit(asynchronous=False)
        described = AdminClient({"bootstrap.servers": served.bootstrap_servers})
        group = described.describe_consumer_groups(["g"])["g"].result(PATIENCE_S)
        assert group.state is ConsumerGroupState.STABLE
        assert [each.group_instance_id for each in group.members] == ["i"]
        first.close()
    with Broker(SETTINGS, directory=tmp_path) as served:
        fill(served.bootstrap_servers, [b"later"])
        second = consumer(served.bootstrap_servers, **{"group.instance.id": "i"})
        assert read(second, 1) == {b"later"}
        committed = second.committed([TopicPartition("t", number) for number in range(4)], PATIENCE_S)
        assert [each.offset for each in committed] == [10, 10, 10, 10]
        second.unsubscribe()
        second.close()


def test_a_group_outlives_its_coordinators() -> None:
    settings = {**SETTINGS, "as.version": "4.4", "offsets.topic.replication.factor": "3"}
    with Cluster(3, {**settings, "default.replication.factor": "3"}) as cluster:
        values = [b"%d" % number for number in range(40)]
        fill(cluster.bootstrap_servers, values)
        members = [consumer(cluster.bootstrap_servers) for _ in range(2)]
        until(members, [2, 2])
        assert read(members[0], 1)
        members[0].commit(asynchronous=False)
        before = [sorted(each.assignment(), key=str) for each in members]
        coordinator = cluster.leader(OFFSETS_TOPIC, 0)
        assert coordinator is not None
        other = next(iter(cluster.running - {coordinator}))
        cluster.move_leader(OFFSETS_TOPIC, 0, other)
        until(members, [2, 2])
        cluster.kill(other)
        third = consumer(cluster.bootstrap_servers)
        until([*members, third], [1, 1, 2])
        kept = [sorted(each.assignment(), key=str) for each in members]
        assert all(set(map(str, after)) <= set(map(str, was)) for was, after in zip(before, kept, strict=True))
        for each in (*members, third):
            each.close()
