"""Requests that only the controller answers: of a broker alone, and of one that stands for election."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol import Message
from magicbyte.engine.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from magicbyte.engine.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
)
from magicbyte.engine.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from magicbyte.engine.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from magicbyte.engine.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.engine.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from magicbyte.server.apis.broker_routes import BROKER_ROUTES
from magicbyte.server.serving.request import ClientConnection, Request
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.controller import ControllerService
from magicbyte.server.stores.znodes import layout
from server.broker.controlled import controlled, until
from server.broker.serving import Peer, Running

T0 = TopicPartition("t", 0)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def reassignment(**targets: tuple[int, ...] | None) -> AlterPartitionReassignmentsRequest:
    topics = [
        ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=0, replicas=each)])
        for name, each in targets.items()
    ]
    return AlterPartitionReassignmentsRequest(topics=topics)


def codes(answer: AlterPartitionReassignmentsResponse | ElectLeadersResponse) -> dict[str, int]:
    if isinstance(answer, ElectLeadersResponse):
        return {topic.topic: topic.partition_result[0].error_code for topic in answer.replica_election_results}
    return {topic.name: topic.partitions[0].error_code for topic in answer.responses}


# ---- a broker alone


async def test_a_broker_alone_answers_as_the_only_broker_of_a_cluster(tmp_path: Path) -> None:
    async with Running(tmp_path) as broker:
        own = broker.node_id
        await broker.parts.topic_changes.create("t")
        peer = await Peer.of(broker)
        election = ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=each, partitions=(0,)) for each in ("t", "gone")]
        )
        for version in range(3):
            elected = await peer.ask(election, version, ElectLeadersResponse)
            assert codes(elected) == {"t": ErrorCode.ELECTION_NOT_NEEDED, "gone": UNKNOWN}
        elected = await peer.ask(ElectLeadersRequest(topic_partitions=None), 2, ElectLeadersResponse)
        assert elected.replica_election_results == []
        elected = await peer.ask(ElectLeadersRequest(election_type=7), 2, ElectLeadersResponse)
        assert elected.error_code == ErrorCode.INVALID_REQUEST
        for targets, code in (
            ((own,), ErrorCode.NONE),
            ((own, 7), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ):
            wanted = reassignment(t=targets, gone=targets)
            moved = await peer.ask(wanted, 0, AlterPartitionReassignmentsResponse)
            assert codes(moved) == {"t": code, "gone": UNKNOWN}
        for wrong in ((own, 7), (own, own), (), (-1,), (own, -1)):
            wanted = reassignment(t=wrong)
            wanted.allow_replication_factor_change = False
            moved = await peer.ask(wanted, 1, AlterPartitionReassignmentsResponse)
            assert codes(moved) == {"t": ErrorCode.INVALID_REPLICA_ASSIGNMENT}, wrong
        listed = await peer.ask(ListPartitionReassignmentsRequest(), 0, ListPartitionReassignmentsResponse)
        assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])
        for broker_id, code in ((own, ErrorCode.NONE), (own + 1, ErrorCode.BROKER_NOT_AVAILABLE)):
            for version in range(4):
                asked = ControlledShutdownRequest(broker_id=broker_id)
                stopped = await peer.ask(asked, version, ControlledShutdownResponse)
                assert (stopped.error_code, stopped.remaining_partitions) == (code, [])
        altered = await peer.ask(AlterPartitionRequest(broker_id=7), 0, AlterPartitionResponse)
        assert altered.error_code == ErrorCode.STALE_BROKER_EPOCH
        unknown = await peer.ask(AllocateProducerIdsRequest(broker_id=7), 0, AllocateProducerIdsResponse)
        assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        blocks = [
            await peer.ask(AllocateProducerIdsRequest(broker_id=own), 0, AllocateProducerIdsResponse) for _ in range(2)
        ]
        assert [(each.error_code, each.producer_id_len) for each in blocks] == [(ErrorCode.NONE, 1000)] * 2
        assert blocks[1].producer_id_start == blocks[0].producer_id_start + 1000
        given = await peer.ask(InitProducerIdRequest(transactional_id=None), 0, InitProducerIdResponse)
        assert given.producer_id == blocks[1].producer_id_start + 1000  # which no block has
        peer.close()


# ---- a candidate


async def ask(controller: ControllerService, message: Message, version: int) -> Message:
    """Return what a broker answers that stands for election."""
    config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "nowhere"})
    services: Any = SimpleNamespace(membership=SimpleNamespace(controller=controller))
    connection = ClientConnection("host", "peer", config.listeners[0])
    assert message.API_KEY is not None
    answer = await BROKER_ROUTES.load(message.API_KEY).handler(services, Request(message, version, None, connection))
    assert answer is not None
    return answer


async def test_a_candidate_that_is_not_elected_says_so() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        await cluster.control(1)
        other = await cluster.control(2)
        election = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=(0,))])
        for message in (
            ControlledShutdownRequest(broker_id=1),
            election,
            reassignment(t=(1,)),
            ListPartitionReassignmentsRequest(),
            AlterPartitionRequest(broker_id=1),
            AllocateProducerIdsRequest(broker_id=1),
        ):
            answer = await ask(other, message, 0)
            if isinstance(answer, ElectLeadersResponse):
                assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.NOT_CONTROLLER
                answer = await ask(other, election, 1)
            assert answer.error_code == ErrorCode.NOT_CONTROLLER  # type: ignore[attr-defined] # all of them have one


async def test_the_controller_does_what_it_is_asked_for() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2, 3)
        cluster.create_topic("t", [1, 2])
        controller = await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[2].roles)
        epoch = cluster.view.get(layout.broker_path(1)).czxid
        change = AlterPartitionRequestPartitionData(partition_index=0, leader_epoch=0, new_isr=(1,), partition_epoch=0)
        wish = AlterPartitionRequestTopicData(topic_name="t", partitions=[change])
        asked = AlterPartitionRequest(broker_id=1, broker_epoch=epoch, topics=[wish])
        altered = await ask(controller, asked, 0)
        assert isinstance(altered, AlterPartitionResponse)
        (answer,) = altered.topics[0].partitions
        assert (answer.leader_id, answer.isr, answer.partition_epoch, answer.error_code) == (1, (1,), 1, 0)
        change.new_isr, change.partition_epoch = (1, 3), 1
        altered = await ask(controller, asked, 1)
        assert isinstance(altered, AlterPartitionResponse)
        assert altered.topics[0].partitions[0].error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
        moved = await ask(controller, reassignment(t=(1, 3), gone=(1,)), 0)
        assert isinstance(moved, AlterPartitionReassignmentsResponse)
        assert codes(moved) == {"t": ErrorCode.NONE, "gone": UNKNOWN}
        for topics in (None, [ListPartitionReassignmentsTopics(name="t", partition_indexes=(0, 1))]):
            listed = await ask(controller, ListPartitionReassignmentsRequest(topics=topics), 0)
            assert isinstance(listed, ListPartitionReassignmentsResponse)
            (each,) = listed.topics[0].partitions
            assert (each.replicas, each.adding_replicas, each.removing_replicas) == ((1, 3, 2), (3,), (2,))
        stopped = await ask(controller, ControlledShutdownRequest(broker_id=1), 2)
        assert isinstance(stopped, ControlledShutdownResponse)
        (left,) = stopped.remaining_partitions
        assert (left.topic_name, left.partition_index) == T0
        stopped = await ask(controller, ControlledShutdownRequest(broker_id=1, broker_epoch=epoch - 1), 2)
        assert isinstance(stopped, ControlledShutdownResponse)
        assert stopped.error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("kind", [0, 1])
async def test_elections_are_answered_by_partition(kind: int) -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        cluster.create_topic("t", [1, 2])
        controller = await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[2].roles)
        named = [TopicPartitions(topic="t", partitions=(0,))]
        answer = await ask(controller, ElectLeadersRequest(election_type=kind, topic_partitions=named), 1)
        assert isinstance(answer, ElectLeadersResponse)
        (result,) = answer.replica_election_results[0].partition_result
        assert (result.error_code, result.error_message) == (84, "the partition has that leader")
