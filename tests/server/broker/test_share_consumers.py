"""Share groups with librdkafka's share consumer: members divide records, acknowledge them, and outlive brokers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer

from magicbyte.engine.internal_topics import SHARE_TOPIC
from magicbyte.testing import Broker, Cluster

SETTINGS = {
    "group.share.auto.offset.reset": "earliest",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "50",
    "share.coordinator.state.topic.num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "num.partitions": "2",
}
PATIENCE_S = 60


def consumer(address: str, **settings: str) -> ShareConsumer:
    made = ShareConsumer({"bootstrap.servers": address, "group.id": "g", **settings})
    made.subscribe(["t"])
    return made


def fill(address: str, values: Iterable[int]) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": "0"})
    for number in values:
        producer.produce("t", b"%d" % number, partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0


def read(one: ShareConsumer, timeout_s: float = 0.2) -> list[Message]:
    found = list(one.poll(timeout_s))
    assert not [each.error() for each in found if each.error()]
    return found


def value_of(message: Message) -> int:
    value = message.value()
    assert isinstance(value, bytes)
    return int(value)


def read_all(consumers: list[ShareConsumer], wanted: set[int]) -> Counter[int]:
    """Read until all values have come; count how often each has."""
    seen, end = Counter[int](), time.monotonic() + PATIENCE_S
    while not seen.keys() >= wanted:
        assert time.monotonic() < end, sorted(wanted - seen.keys())
        for each in consumers:
            seen.update(map(value_of, read(each)))
    return seen


@pytest.mark.parametrize("release", ["", "4.2", "4.4"])
def test_members_divide_the_records(release: str) -> None:
    with Broker({**SETTINGS, **({"as.version": release} if release else {})}) as served:
        fill(served.bootstrap_servers, range(40))
        members = [consumer(served.bootstrap_servers) for _ in range(3)]
        seen = read_all(members, set(range(40)))
        fill(served.bootstrap_servers, range(40, 200))
        seen += read_all(members, set(range(40, 200)))
        assert set(seen.values()) == {1}, "each record once"
        for each in members:
            each.close()


def test_released_records_come_again_and_rejected_ones_do_not() -> None:
    with Broker(SETTINGS) as served:
        fill(served.bootstrap_servers, range(10))
        one = consumer(served.bootstrap_servers, **{"share.acknowledgement.mode": "explicit"})
        deliveries, end = Counter[int](), time.monotonic() + PATIENCE_S
        while deliveries.total() < 10 + 5 or len(deliveries) < 10:
            assert time.monotonic() < end, deliveries
            for message in read(one):
                number = value_of(message)
                deliveries[number] += 1
                kind = AcknowledgeType.ACCEPT
                if number % 2 and deliveries[number] == 1:
                    kind = AcknowledgeType.RELEASE
                elif number % 4 == 0:
                    kind = AcknowledgeType.REJECT
                one.acknowledge(message, kind)
            one.commit_sync(PATIENCE_S)
        assert deliveries == {number: 1 + number % 2 for number in range(10)}
        assert not read(one, 0.5)
        one.close()


def test_records_that_were_acknowledged_are_gone_after_a_restart(tmp_path: Path) -> None:
    with Broker(SETTINGS, directory=tmp_path) as served:
        fill(served.bootstrap_servers, range(20))
        one = consumer(served.bootstrap_servers)
        read_all([one], set(range(20)))
        one.commit_sync(PATIENCE_S)
        one.close()
    with Broker(SETTINGS, directory=tmp_path) as served:
        fill(served.bootstrap_servers, range(20, 30))
        one = consumer(served.bootstrap_servers)
        assert set(read_all([one], set(range(20, 30)))) == set(range(20, 30))
        one.close()


def test_a_group_outlives_its_coordinators_and_leaders() -> None:
    settings = {
        **SETTINGS, "as.version": "4.4", "default.replication.factor": "3", "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3", "share.coordinator.state.topic.replication.factor": "3",
    }  # fmt: skip
    with Cluster(3, settings) as cluster:
        fill(cluster.bootstrap_servers, range(20))
        one = consumer(cluster.bootstrap_servers)
        read_all([one], set(range(20)))
        assert not any(one.commit_sync(PATIENCE_S).values())
        for partition in range(2):
            leader = cluster.leader(SHARE_TOPIC, partition)
            cluster.move_leader(SHARE_TOPIC, partition, next(iter(cluster.running - {leader})))
        fill(cluster.bootstrap_servers, range(20, 40))
        read_all([one], set(range(20, 40)))
        one.commit_sync(PATIENCE_S)
        leader = cluster.leader("t", 0)
        assert leader is not None
        cluster.kill(leader)
        fill(cluster.bootstrap_servers, range(40, 60))
        seen = read_all([one], set(range(40, 60)))
        assert not set(seen).intersection(range(20)), "records whose commit has succeeded are gone"
        one.close()


def test_read_committed_members_get_no_aborted_records() -> None:
    settings = {
        **SETTINGS,
        "group.share.isolation.level": "read_committed",
        "transaction.state.log.num.partitions": "1",
    }
    with Broker(settings) as served:
        producer = Producer({"bootstrap.servers": served.bootstrap_servers, "transactional.id": "x"})
        producer.init_transactions(PATIENCE_S)
        for start, commits in ((0, True), (100, False), (10, True), (200, False)):
            producer.begin_transaction()
            for number in range(start, start + 6):
                producer.produce("t", b"%d" % number, partition=number % 2)
            assert producer.flush(PATIENCE_S) == 0
            (producer.commit_transaction if commits else producer.abort_transaction)(PATIENCE_S)
        one = consumer(served.bootstrap_servers)
        wanted = {*range(6), *range(10, 16)}
        assert read_all([one], wanted) == dict.fromkeys(wanted, 1)
        one.commit_sync(PATIENCE_S)
        assert not read(one, 0.5)
        one.close()


@pytest.mark.parametrize("format_version", ["0", "1", "enriched"])
def test_records_of_every_format_are_shared(format_version: str) -> None:
    with Broker({**SETTINGS, "log.message.format.version": format_version}) as served:
        fill(served.bootstrap_servers, range(20))
        one = consumer(served.bootstrap_servers)
        assert read_all([one], set(range(20))) == dict.fromkeys(range(20), 1)
        one.commit_sync(PATIENCE_S)
        fill(served.bootstrap_servers, range(20, 30))
        assert read_all([one], set(range(20, 30))) == dict.fromkeys(range(20, 30), 1)
        one.close()
