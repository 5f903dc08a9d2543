"""Elections, reassignments and log directories, against a scripted broker: what is asked, what is an error."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from access.client.broker import ScriptedBroker, cluster
from magicbyte.access.client import Client
from magicbyte.access.client.replicas import (
    Reassignment,
    ReplicaOnDisk,
    alter_reassignments,
    describe_log_dirs,
    elect_leaders,
    list_reassignments,
)
from magicbyte.engine.errors import BrokerError, ErrorCode, UnsupportedVersionError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages import alter_partition_reassignments as altered
from magicbyte.engine.protocol.messages import describe_log_dirs as log_dirs
from magicbyte.engine.protocol.messages import elect_leaders as elected
from magicbyte.engine.protocol.messages import list_partition_reassignments as listed
from magicbyte.engine.replication.election import ElectionType

ELECT_LEADERS, ALTER, LIST, LOG_DIRS = 43, 45, 46, 35
ONE, TWO = TopicPartition("topic", 0), TopicPartition("topic", 1)


def run(broker: ScriptedBroker, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
    """Return what `work` does with a client of the broker."""

    async def go() -> Any:
        async with cluster(broker) as client:
            return await work(client)

    return asyncio.run(go())


def election_answer(*codes: int) -> elected.ElectLeadersResponse:
    results = [elected.PartitionResult(partition_id=at, error_code=code) for at, code in enumerate(codes)]
    return elected.ElectLeadersResponse(
        replica_election_results=[elected.ReplicaElectionResult(topic="topic", partition_result=results)]
    )


def test_an_election_tells_the_outcome_of_each_partition() -> None:
    broker = ScriptedBroker()
    broker.answers[ELECT_LEADERS] = lambda *_: election_answer(0, 84)
    outcomes = run(broker, lambda client: elect_leaders(client, ElectionType.PREFERRED, [ONE, TWO]))
    assert [each.partition for each in outcomes] == [ONE, TWO]
    assert outcomes[0].error is None
    assert outcomes[1].error.code is ErrorCode.ELECTION_NOT_NEEDED
    (asked,) = broker.asked(elected.ElectLeadersRequest)
    assert [(each.topic, each.partitions) for each in asked.topic_partitions] == [("topic", (0, 1))]


def test_no_partitions_given_means_all() -> None:
    broker = ScriptedBroker()
    broker.answers[ELECT_LEADERS] = lambda *_: election_answer()
    broker.answers[LIST] = lambda *_: listed.ListPartitionReassignmentsResponse()
    assert run(broker, lambda client: elect_leaders(client, ElectionType.UNCLEAN, None)) == []
    assert run(broker, list_reassignments) == {}
    (asked,) = broker.asked(elected.ElectLeadersRequest)
    assert (asked.topic_partitions, asked.election_type) == (None, 1)
    assert broker.asked(listed.ListPartitionReassignmentsRequest)[0].topics is None


def test_a_broker_of_2_2_elects_preferred_leaders_only() -> None:
    broker = ScriptedBroker(versions={ELECT_LEADERS: range(1)})
    broker.answers[ELECT_LEADERS] = lambda *_: election_answer(0)
    (outcome,) = run(broker, lambda client: elect_leaders(client, ElectionType.PREFERRED, [ONE]))
    assert outcome.error is None
    with pytest.raises(UnsupportedVersionError, match="ElectLeaders at broker 7"):
        run(broker, lambda client: elect_leaders(client, ElectionType.UNCLEAN, [ONE]))


def test_a_broker_that_is_no_longer_the_controller_is_asked_no_more() -> None:
    broker = ScriptedBroker()
    answers = iter([election_answer(41), election_answer(0)])
    broker.answers[ELECT_LEADERS] = lambda *_: next(answers)
    (outcome,) = run(broker, lambda client: elect_leaders(client, ElectionType.PREFERRED, [ONE]))
    assert outcome.error is None
    assert len(broker.asked(elected.ElectLeadersRequest)) == 2


def test_moves_start_and_are_cancelled_partition_by_partition() -> None:
    broker = ScriptedBroker()
    responses = [
        altered.ReassignableTopicResponse(
            name="topic",
            partitions=[
                altered.ReassignablePartitionResponse(partition_index=0, error_message=None),
                altered.ReassignablePartitionResponse(partition_index=1, error_code=85, error_message="none to cancel"),
            ],
        )
    ]
    broker.answers[ALTER] = lambda *_: altered.AlterPartitionReassignmentsResponse(responses=responses)
    started, refused = run(broker, lambda client: alter_reassignments(client, {ONE: [3, 1], TWO: None}))
    assert started.error is None
    assert (refused.partition, refused.error.code) == (TWO, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    assert str(refused.error).endswith("reassign topic-1: NO_REASSIGNMENT_IN_PROGRESS (85): none to cancel")
    (asked,) = broker.asked(altered.AlterPartitionReassignmentsRequest)
    assert [(each.partition_index, each.replicas) for each in asked.topics[0].partitions] == [(0, (3, 1)), (1, None)]


def test_moves_under_way_tell_what_is_added_and_removed() -> None:
    broker = ScriptedBroker()
    move = listed.OngoingPartitionReassignment(
        partition_index=1, replicas=(3, 1, 2), adding_replicas=(3,), removing_replicas=(2,)
    )
    broker.answers[LIST] = lambda *_: listed.ListPartitionReassignmentsResponse(
        topics=[listed.OngoingTopicReassignment(name="topic", partitions=[move])]
    )
    found = run(broker, lambda client: list_reassignments(client, [TWO]))
    assert found == {TWO: Reassignment((3, 1, 2), (3,), (2,))}
    assert found[TWO].target == (3, 1)


def test_an_error_of_the_whole_request_is_raised() -> None:
    broker = ScriptedBroker()
    denied = {"error_code": 31, "error_message": "not for you"}
    broker.answers[LIST] = lambda *_: listed.ListPartitionReassignmentsResponse(**denied)
    broker.answers[ALTER] = lambda *_: altered.AlterPartitionReassignmentsResponse(**denied)
    broker.answers[ELECT_LEADERS] = lambda *_: elected.ElectLeadersResponse(error_code=31)
    for work in (
        list_reassignments,
        lambda client: alter_reassignments(client, {ONE: [1]}),
        lambda client: elect_leaders(client, ElectionType.PREFERRED, None),
    ):
        with pytest.raises(BrokerError) as raised:
            run(broker, work)
        assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_log_directories_of_a_broker_have_its_replicas() -> None:
    broker = ScriptedBroker()
    replica = log_dirs.DescribeLogDirsPartition(partition_index=0, partition_size=5, offset_lag=2)
    result = log_dirs.DescribeLogDirsResult(
        log_dir="/logs", topics=[log_dirs.DescribeLogDirsTopic(name="topic", partitions=[replica])], total_bytes=9
    )
    broker.answers[LOG_DIRS] = lambda *_: log_dirs.DescribeLogDirsResponse(results=[result])
    (found,) = run(broker, lambda client: describe_log_dirs(client, 7, [ONE]))
    assert found.replicas == {ONE: ReplicaOnDisk(5, 2, is_future=False)}
    assert (found.path, found.error, found.total_bytes, found.usable_bytes) == ("/logs", 0, 9, None)
    with pytest.raises(BrokerError) as raised:
        run(broker, lambda client: describe_log_dirs(client, 8))
    assert raised.value.code is ErrorCode.BROKER_NOT_AVAILABLE
