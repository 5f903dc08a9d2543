"""Transactional clients, unchanged, with our broker: the Java clients of several releases, and librdkafka."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from cli.command import run
from interop import jvm
from interop.sweeps import cells
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

VALUES = [b"value %d" % number for number in range(40)]
PATIENCE_S = 240


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Give a broker with a topic in which every other transaction was aborted."""
    with Broker() as broker:
        address = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": address})
        for made in admin.create_topics([NewTopic("from", 1)]).values():
            made.result(PATIENCE_S)
        producer = transactional(address, "filler")
        for at in range(0, len(VALUES), 10):
            for end in (producer.abort_transaction, producer.commit_transaction):
                producer.begin_transaction()
                for value in VALUES[at : at + 10]:
                    producer.produce("from", value, partition=0)
                assert producer.flush(PATIENCE_S) == 0  # or an abort would keep them from being sent at all
                end(PATIENCE_S)
        yield address


def transactional(address: str, key: str, **more: Any) -> Producer:
    producer = Producer({"bootstrap.servers": address, "transactional.id": key, **more})
    producer.init_transactions(PATIENCE_S)
    return producer


def consumer(address: str, group: str, isolation: str = "read_committed") -> Consumer:
    settings = {"bootstrap.servers": address, "group.id": group, "isolation.level": isolation}
    return Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})


def until_ended(address: str, topic: str) -> None:
    """Wait until no transaction is open: the end of one is answered before its marker is written."""
    admin, end = AdminClient({"bootstrap.servers": address}), time.monotonic() + PATIENCE_S

    def offset(isolation: IsolationLevel) -> int:
        asked = {TopicPartition(topic, 0): OffsetSpec.latest()}
        (told,) = admin.list_offsets(asked, isolation_level=isolation).values()
        return int(told.result(PATIENCE_S).offset)

    while offset(IsolationLevel.READ_COMMITTED) < offset(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < end, f"a transaction in {topic} is left open"
        time.sleep(0.02)


def values(address: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Return all that a consumer is given."""
    until_ended(address, topic)
    reader = consumer(address, "reader", isolation)
    reader.assign([TopicPartition(topic, 0, 0)])
    found = list[bytes]()
    while (message := reader.poll(PATIENCE_S)) is not None:
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        value = message.value()
        assert isinstance(value, bytes)
        found.append(value)
    reader.close()
    return found


def committed(address: str, group: str) -> int:
    reader = consumer(address, group)
    (place,) = reader.committed([TopicPartition("from", 0)], PATIENCE_S)
    reader.close()
    return place.offset


def test_librdkafka_commits_and_aborts_and_reads_committed_records(bootstrap: str) -> None:
    assert values(bootstrap, "from") == VALUES
    assert sorted(values(bootstrap, "from", "read_uncommitted")) == sorted(2 * VALUES)


@pytest.mark.parametrize("version", cells(("0.11.0.3", "2.8.2", "4.3.1")))
def test_java_clients_copy_committed_records_exactly_once(version: str, bootstrap: str) -> None:
    to, group = f"to-{version}", f"group-{version}"
    jvm.run("Transfer", bootstrap, "from", to, group, f"transfer-{version}", str(len(VALUES)), version=version)
    assert values(bootstrap, to) == VALUES
    assert len(values(bootstrap, to, "read_uncommitted")) > len(VALUES)
    assert committed(bootstrap, group) == 4 * 22 - 1  # after the last record, before the last marker


def test_a_commit_in_two_phases_ends_the_transaction_of_a_process_that_is_gone(bootstrap: str) -> None:
    """As Flink's connector does it: the second process takes the first one's producer id and epoch, by reflection."""
    program, version = ("TwoPhase", bootstrap, "two-phases"), "3.9.1"
    prepared = {key: jvm.run(*program, key, "prepare", version=version).split() for key in ("kept", "dropped", "late")}
    ends = {"kept": "commit", "dropped": "abort", "late": "commit"}
    for key, (producer, epoch) in prepared.items():
        jvm.run(*program, key, ends[key], producer.decode(), epoch.decode(), version=version)
    producer, epoch = prepared["kept"]
    jvm.run(*program, "kept", "commit", producer.decode(), epoch.decode(), version=version)  # as after a lost answer
    expected = [f"{key}-{number}".encode() for key in ("kept", "late") for number in range(10)]
    assert values(bootstrap, "two-phases") == expected


def test_a_producer_that_another_has_taken_the_place_of_is_fenced(bootstrap: str) -> None:
    old = transactional(bootstrap, "twice")
    old.begin_transaction()
    old.produce("fenced", b"of the old one", partition=0)
    assert old.flush(PATIENCE_S) == 0
    new = transactional(bootstrap, "twice")
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError._FENCED
    new.begin_transaction()
    new.produce("fenced", b"of the new one", partition=0)
    new.commit_transaction(PATIENCE_S)
    assert values(bootstrap, "fenced") == [b"of the new one"]


def test_the_command_lists_and_describes_transactions_of_this_broker(bootstrap: str) -> None:
    producer = transactional(bootstrap, "open", **{"transaction.timeout.ms": 600_000})
    producer.begin_transaction()
    producer.produce("left", b"open", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    told = run("transactions", "describe", "-b", bootstrap, "open", "--format", "json")
    assert told.exit_code == 0, told.output
    (described,) = json.loads(told.stdout)
    assert (described["state"], described["partitions"]) == ("Ongoing", [{"topic": "left", "partition": 0}])
    producer.abort_transaction(PATIENCE_S)
