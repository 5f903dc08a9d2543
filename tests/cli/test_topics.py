"""`magicbyte topics` against our broker, and against ones that are older, silent or without a leader."""

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from access.client.broker import Answer, ScriptedBroker, scripted
from cli.command import run
from magicbyte.access.client import Client
from magicbyte.access.client.produce import send
from magicbyte.cli import topics
from magicbyte.engine.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from magicbyte.engine.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from magicbyte.engine.protocol.messages.metadata import MetadataResponse
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker

METADATA, DELETE_TOPICS, LIST_OFFSETS, LIST_REASSIGNMENTS = 3, 20, 2, 46


@pytest.fixture(scope="module")
def shared() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def bootstrap(shared: str) -> Iterator[str]:
    """A broker without topics."""
    yield shared
    made = [each["topic"] for each in json.loads(run("topics", "list", "-b", shared, "--format", "json").stdout)]
    if made:
        assert run("topics", "delete", "-b", shared, *made).exit_code == 0


def produce(bootstrap: str, topic: str, partition: int, count: int) -> None:
    async def work() -> None:
        async with Client(bootstrap) as client:
            await send(client, topic, partition, [Record(0, -1, 0, None, b"value")] * count)

    asyncio.run(work())


def test_topics_that_were_made_are_listed_and_described(bootstrap: str) -> None:
    assert run("topics", "create", "-b", bootstrap, "orders", "--partitions", "2", "--replicas", "1").exit_code == 0
    assert run("topics", "create", "-b", bootstrap, "bills", "cleanup.policy=compact").exit_code == 0
    produce(bootstrap, "orders", 1, 5)
    assert run("topics", "list", "-b", bootstrap).stdout == (
        "topic   partitions  replicas\nbills            1         1\norders           2         1\n"
    )
    assert run("topics", "describe", "-b", bootstrap, "orders").stdout == (
        "partition  leader  epoch  replicas  in sync  offline  start  end  state\n"
        "orders-0        0      0  0         0        -            0    0  ok\n"
        "orders-1        0      0  0         0        -            0    5  ok\n"
    )


def test_the_same_as_json(bootstrap: str) -> None:
    run("topics", "create", "-b", bootstrap, "orders")
    produce(bootstrap, "orders", 0, 3)
    (listed,) = json.loads(run("topics", "list", "-b", bootstrap, "--format", "json").stdout)
    assert listed == {"topic": "orders", "partitions": 1, "replicas": 1, "internal": False}
    (described,) = json.loads(run("topics", "describe", "-b", bootstrap, "orders", "--format", "json").stdout)
    partition = {
        "partition": 0, "leader": 0, "leaderEpoch": 0, "replicas": [0], "inSync": [0], "offline": [], "adding": [],
        "removing": [], "underReplicated": False, "start": 0, "end": 3,
    }  # fmt: skip
    assert described == {"topic": "orders", "partitions": [partition]}


def test_a_topic_that_was_deleted_is_gone_and_none_is_when_one_of_two_is_not_there(bootstrap: str) -> None:
    run("topics", "create", "-b", bootstrap, "orders")
    result = run("topics", "delete", "-b", bootstrap, "orders", "order")
    assert result.exit_code == 2
    assert "topic 'order': expected on the brokers, found none of that name: is it 'orders'?" in result.stderr
    assert "orders" in run("topics", "list", "-b", bootstrap).stdout
    assert run("topics", "delete", "-b", bootstrap, "orders").exit_code == 0
    assert run("topics", "list", "-b", bootstrap).stdout == "topic  partitions  replicas\n"


def test_asking_for_a_topic_makes_none(bootstrap: str) -> None:
    result = run("topics", "describe", "-b", bootstrap, "nowhere")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no similarly named topic among the 0 that exist" in result.stderr
    assert run("topics", "list", "-b", bootstrap).stdout.count("\n") == 1


def test_what_a_broker_refuses_is_one_line_with_its_reason(bootstrap: str) -> None:
    run("topics", "create", "-b", bootstrap, "orders")
    for arguments, why in (
        (["orders"], "TOPIC_ALREADY_EXISTS (36)"),
        (["other", "cleanup.policy=burn"], "INVALID_CONFIG (40)"),
        (["other", "--replicas", "3"], "INVALID_REPLICATION_FACTOR (38)"),
        (["other", "cleanup.policy"], "expected KEY=VALUE"),
    ):
        result = run("topics", "create", "-b", bootstrap, *arguments)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert why in result.stderr


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("manner", ["0.8.2", "0.9"])
def test_old_brokers_list_topics_and_say_what_they_cannot_do(manner: str) -> None:
    broker = ScriptedBroker(manner, topic="__consumer_offsets")
    with scripted(broker) as address:
        assert run("topics", "list", "-b", address).stdout == "topic  partitions  replicas\n"
        assert "__consumer_offsets           2         1" in run("topics", "list", "-b", address, "--internal").stdout
        for command in ("create", "delete"):
            result = run("topics", command, "-b", address, "orders")
            assert result.exit_code == 2
            assert f"{command} topic orders: UNSUPPORTED_VERSION (35): brokers from 0.10.1 on" in result.stderr


def test_a_broker_that_deletes_nothing_is_said_to_need_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ScriptedBroker(versions={DELETE_TOPICS: range(2)})
    timed_out = DeletableTopicResult(name="topic", error_code=7)
    broker.answers[DELETE_TOPICS] = lambda *_: DeleteTopicsResponse(responses=[timed_out])
    monkeypatch.setattr(topics, "client_of", lambda bootstrap: Client(bootstrap, retry_ms=0))
    with scripted(broker) as address:
        result = run("topics", "delete", "-b", address, "topic")
    assert result.exit_code == 2
    assert "REQUEST_TIMED_OUT (7): brokers before 1.0 delete nothing unless delete.topic.enable is set" in result.stderr


def test_a_partition_without_a_leader_has_no_offsets() -> None:
    broker = ScriptedBroker(versions={LIST_REASSIGNMENTS: range(0)})

    def without_leader(request: Any, version: int) -> MetadataResponse:
        found = broker.metadata(request, version)
        for each in found.topics[0].partitions:
            each.leader_id, each.isr_nodes, each.error_code = -1, (), 5
        return found

    broker.answers[METADATA] = without_leader
    with scripted(broker) as address:
        lines = run("topics", "describe", "-b", address, "topic").stdout.splitlines()
    assert lines[1:] == [
        f"topic-{number}         -      -  7         -        -            -    -  unavailable" for number in (0, 1)
    ]


def many_replicas(broker: ScriptedBroker, replicas: tuple[int, ...], isr: tuple[int, ...], leader: int = 7) -> Answer:
    """Metadata whose partition 1 has these replicas; broker 7 is the only one that is alive."""

    def metadata(request: Any, version: int) -> MetadataResponse:
        found = broker.metadata(request, version)
        for topic in found.topics:
            topic.partitions[1].replica_nodes, topic.partitions[1].isr_nodes = replicas, isr
            topic.partitions[1].leader_id = leader
        return found

    return metadata


def offsets(request: Any, _version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=3 + each.timestamp)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_under_replicated_and_unavailable_partitions_are_shown_alone() -> None:
    broker = ScriptedBroker()
    broker.answers[LIST_OFFSETS] = offsets
    broker.answers[LIST_REASSIGNMENTS] = lambda *_: ListPartitionReassignmentsResponse(error_code=31)  # not allowed
    broker.answers[METADATA] = many_replicas(broker, (7, 8), (7,))
    with scripted(broker) as address:
        shown = run("topics", "describe", "-b", address, "--under-replicated")
        assert "reassignments are unknown: the controller did not list them" in shown.stderr
        assert shown.stdout == (
            "partition  leader  epoch  replicas  in sync  offline  start  end  state\n"
            "topic-1         7      -  7,8       7        8            1    2  under-replicated\n"
        )
        assert run("topics", "describe", "-b", address, "--unavailable").stdout.count("\n") == 1
        broker.answers[METADATA] = many_replicas(broker, (8, 9), (8,), leader=8)  # which died just now
        (found,) = json.loads(run("topics", "describe", "-b", address, "--unavailable", "--format", "json").stdout)
    (partition,) = found["partitions"]
    assert (partition["leader"], partition["offline"], partition["underReplicated"]) == (None, [8, 9], True)
    assert (partition["adding"], partition["removing"]) == (None, None)


def test_a_partition_that_moves_is_not_under_replicated() -> None:
    broker = ScriptedBroker()
    broker.answers[LIST_OFFSETS] = offsets
    move = OngoingPartitionReassignment(
        partition_index=1, replicas=(8, 7), adding_replicas=(8,), removing_replicas=(7,)
    )
    broker.answers[LIST_REASSIGNMENTS] = lambda *_: ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name="topic", partitions=[move])]
    )
    broker.answers[METADATA] = many_replicas(broker, (8, 7), (7,))
    with scripted(broker) as address:
        assert run("topics", "describe", "-b", address, "--under-replicated").stdout.count("\n") == 1
        line = run("topics", "describe", "-b", address, "topic").stdout.splitlines()[2]
    assert line.endswith("  moving to 8")


def test_without_a_listener_the_error_says_what_starts_a_broker() -> None:
    with socket.socket() as bound:  # bound, not listening: no other process gets this port meanwhile
        bound.bind(("127.0.0.1", 0))
        result = run("topics", "list", "-b", f"127.0.0.1:{bound.getsockname()[1]}")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "no broker answers" in result.stderr
    assert "`magicbyte serve` starts one" in result.stderr


def test_an_address_without_port_and_no_address_are_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAGICBYTE_BOOTSTRAP", raising=False)
    assert "expected HOST:PORT" in run("topics", "list", "-b", "nowhere").stderr
    result = run("topics", "list")
    assert result.exit_code == 2
    assert "--bootstrap" in result.stderr


def test_the_environment_may_say_where_the_brokers_are(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGICBYTE_BOOTSTRAP", bootstrap)
    assert run("topics", "list").exit_code == 0
