"""Requests to the controller: shutdowns, elections, reassignments, in-sync replicas, producer ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from magicbyte.engine.cluster.acls import AclOperation
from magicbyte.engine.cluster.changes import PRODUCER_ID_BLOCK
from magicbyte.engine.errors import (
    ErrorCode,
    NotControllerError,
    StaleBrokerEpochError,
    UnknownBrokerError,
)
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from magicbyte.engine.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from magicbyte.engine.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from magicbyte.engine.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from magicbyte.engine.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from magicbyte.engine.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from magicbyte.engine.replication.controller import IsrAnswer, IsrWish
from magicbyte.engine.replication.election import ElectionType
from magicbyte.server.serving.authorization import (
    ACT,
    CLUSTER_REFUSED,
    WholeRight,
    need_of_cluster,
)
from magicbyte.server.serving.request import Request
from magicbyte.server.serving.routes import FEW, MANY, MIB, ONE_NAME, Route

if TYPE_CHECKING:
    from magicbyte.server.apis.broker_parts import BrokerParts

_FIRST_ELECTION_WITH_ERROR: Final = 1  # of the whole request
_WHY: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the partition does not exist",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic is being deleted",
    ErrorCode.ELECTION_NOT_NEEDED: "the partition has that leader",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is not live and in sync",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica is live",
}


async def controlled_shutdown(
    broker: BrokerParts, request: Request[ControlledShutdownRequest]
) -> ControlledShutdownResponse:
    """Move leadership away from a broker that is about to stop."""
    message = request.message
    try:
        remaining = await broker.membership.controller.shut_down(message.broker_id, message.broker_epoch)
    except (NotControllerError, UnknownBrokerError, StaleBrokerEpochError) as error:
        return ControlledShutdownResponse(error_code=error.code)
    left = [RemainingPartition(topic_name=each.topic, partition_index=each.partition) for each in remaining]
    return ControlledShutdownResponse(remaining_partitions=left)


async def elect_leaders(broker: BrokerParts, request: Request[ElectLeadersRequest]) -> ElectLeadersResponse:
    """Elect leaders of partitions."""
    message, response, partitions = request.message, ElectLeadersResponse(), list[TopicPartition]()
    async for topic in request.turns.over(message.topic_partitions or ()):
        async for index in request.turns.over(topic.partitions):
            partitions.append(TopicPartition(topic.topic, index))
    try:
        if message.election_type not in ElectionType.__members__.values():
            code, results = ErrorCode.INVALID_REQUEST, dict[TopicPartition, ErrorCode]()
        else:
            asked = None if message.topic_partitions is None else partitions
            code = ErrorCode.NONE
            results = await broker.membership.controller.elect(ElectionType(message.election_type), asked)
    except NotControllerError as error:
        code, results = error.code, dict.fromkeys(partitions, error.code)
    if request.version >= _FIRST_ELECTION_WITH_ERROR:
        response.error_code = code
    by_topic: defaultdict[str, list[PartitionResult]] = defaultdict(list)
    async for key, each in request.turns.over(results.items()):
        result = PartitionResult(partition_id=key.partition, error_code=each, error_message=_WHY.get(each))
        by_topic[key.topic].append(result)
    response.replica_election_results = [
        ReplicaElectionResult(topic=topic, partition_result=each) for topic, each in by_topic.items()
    ]
    return response


async def alter_partition_reassignments(
    broker: BrokerParts, request: Request[AlterPartitionReassignmentsRequest]
) -> AlterPartitionReassignmentsResponse:
    """Begin or cancel reassignments of partitions."""
    message, wanted = request.message, dict[TopicPartition, Sequence[int] | None]()
    keeps_factor = not message.allow_replication_factor_change
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change, error_message=None
    )
    async for topic in request.turns.over(message.topics):
        async for each in request.turns.over(topic.partitions):
            wanted[TopicPartition(topic.name, each.partition_index)] = each.replicas
    try:
        faults = await broker.membership.controller.reassign(wanted, keeps_factor=keeps_factor)
    except NotControllerError as error:
        response.error_code, response.error_message = error.code, str(error)
        return response
    by_topic: defaultdict[str, list[ReassignablePartitionResponse]] = defaultdict(list)
    async for key in request.turns.over(wanted):
        code, why = faults.get(key, (ErrorCode.NONE, None))
        by_topic[key.topic].append(
            ReassignablePartitionResponse(partition_index=key.partition, error_code=code, error_message=why)
        )
    response.responses = [ReassignableTopicResponse(name=topic, partitions=each) for topic, each in by_topic.items()]
    return response


async def list_partition_reassignments(
    broker: BrokerParts, request: Request[ListPartitionReassignmentsRequest]
) -> ListPartitionReassignmentsResponse:
    """Return the reassignments in progress."""
    message = request.message
    try:
        moves = await broker.membership.controller.reassignments()
    except NotControllerError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
    if message.topics is not None:
        asked = set[TopicPartition]()
        async for topic in request.turns.over(message.topics):
            async for index in request.turns.over(topic.partition_indexes):
                asked.add(TopicPartition(topic.name, index))
        moves = {key: each for key, each in moves.items() if key in asked}
    by_topic: defaultdict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
    async for key, (replicas, move) in request.turns.over(moves.items()):
        by_topic[key.topic].append(
            OngoingPartitionReassignment(
                partition_index=key.partition,
                replicas=replicas,
                adding_replicas=move.adding,
                removing_replicas=move.removing,
            )
        )
    topics = [OngoingTopicReassignment(name=topic, partitions=each) for topic, each in by_topic.items()]
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


async def alter_partition(broker: BrokerParts, request: Request[AlterPartitionRequest]) -> AlterPartitionResponse:
    """Change ISRs, as requested by the leaders of partitions."""
    message, wishes = request.message, dict[TopicPartition, IsrWish]()
    async for topic in request.turns.over(message.topics):
        async for each in request.turns.over(topic.partitions):
            key = TopicPartition(topic.topic_name, each.partition_index)
            wishes[key] = IsrWish(each.leader_epoch, each.new_isr, each.partition_epoch)
    try:
        answers = await broker.membership.controller.alter_partitions(message.broker_id, message.broker_epoch, wishes)
    except UnknownBrokerError:
        return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    except (NotControllerError, StaleBrokerEpochError) as error:
        return AlterPartitionResponse(error_code=error.code)
    by_topic: defaultdict[str, list[AlterPartitionResponsePartitionData]] = defaultdict(list)
    async for key, answer in request.turns.over(answers.items()):
        by_topic[key.topic].append(_altered(key, answer))
    return AlterPartitionResponse(
        topics=[AlterPartitionResponseTopicData(topic_name=topic, partitions=each) for topic, each in by_topic.items()]
    )


async def allocate_producer_ids(
    broker: BrokerParts, request: Request[AllocateProducerIdsRequest]
) -> AllocateProducerIdsResponse:
    """Allocate a block of producer ids: Kafka's brokers request it from protocol 3.0 on (KIP-730)."""
    message = request.message
    try:
        await broker.membership.controller.check_broker(message.broker_id, message.broker_epoch)
    except UnknownBrokerError:
        return AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    except (NotControllerError, StaleBrokerEpochError) as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    first = await broker.producer_ids.reserve(message.broker_id)
    return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK)


def _altered(key: TopicPartition, answer: IsrAnswer) -> AlterPartitionResponsePartitionData:
    if answer.known is None:
        # versions without topic ids do not have INELIGIBLE_REPLICA
        is_ineligible = answer.error is ErrorCode.INELIGIBLE_REPLICA
        code = ErrorCode.OPERATION_NOT_ATTEMPTED if is_ineligible else answer.error
        return AlterPartitionResponsePartitionData(partition_index=key.partition, error_code=code)
    state = answer.known.state
    return AlterPartitionResponsePartitionData(
        partition_index=key.partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=answer.known.version,
    )


def _elections_refused(request: Request[ElectLeadersRequest]) -> ElectLeadersResponse:
    response = ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(partition_id=each, error_code=CLUSTER_REFUSED) for each in asked.partitions
                ],
            )
            for asked in request.message.topic_partitions or ()
        ]
    )
    if request.version >= _FIRST_ELECTION_WITH_ERROR:
        response.error_code = CLUSTER_REFUSED
    return response


def _reassignments_refused(
    request: Request[AlterPartitionReassignmentsRequest],
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=CLUSTER_REFUSED,
        responses=[
            ReassignableTopicResponse(
                name=asked.name,
                partitions=[
                    ReassignablePartitionResponse(partition_index=each.partition_index, error_code=CLUSTER_REFUSED)
                    for each in asked.partitions
                ],
            )
            for asked in request.message.topics
        ],
    )


ROUTES: Final = (
    Route(
        ApiKey.CONTROLLED_SHUTDOWN,
        range(4),
        controlled_shutdown,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=WholeRight(ACT, lambda _: ControlledShutdownResponse(error_code=CLUSTER_REFUSED)),
        of_brokers=True,
    ),
    Route(
        ApiKey.ELECT_LEADERS,
        range(3),
        elect_leaders,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=WholeRight(need_of_cluster(AclOperation.ALTER), _elections_refused),
    ),
    Route(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        range(2),
        alter_partition_reassignments,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=WholeRight(need_of_cluster(AclOperation.ALTER), _reassignments_refused),
    ),
    Route(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        range(1),
        list_partition_reassignments,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=WholeRight(
            need_of_cluster(AclOperation.DESCRIBE),
            lambda _: ListPartitionReassignmentsResponse(error_code=CLUSTER_REFUSED),
        ),
    ),
    Route(
        ApiKey.ALTER_PARTITION,
        range(2),  # later ones identify topics by id
        alter_partition,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=WholeRight(ACT, lambda _: AlterPartitionResponse(error_code=CLUSTER_REFUSED)),
        of_brokers=True,
    ),
    Route(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        range(1),
        allocate_producer_ids,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=WholeRight(ACT, lambda _: AllocateProducerIdsResponse(error_code=CLUSTER_REFUSED)),
        of_brokers=True,
    ),
)
