"""The transaction requests of producers, other brokers and administrators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.coordination.effects import Marker, Producer
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.internal_topics import INTERNAL
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from magicbyte.engine.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from magicbyte.engine.protocol.messages.end_txn import EndTxnResponse
from magicbyte.engine.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from magicbyte.engine.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from magicbyte.engine.transactions import reports
from magicbyte.engine.transactions.answers import FIRST_OF_BROKERS, not_added, partition_codes
from magicbyte.server.coordinating.coordinating import has_partition
from magicbyte.server.coordinating.markers import write_markers
from magicbyte.server.serving.authorization import (
    ID_REFUSED,
    TOPIC_REFUSED,
    WRITE_ID,
    AuthorizedCaller,
    WholeRight,
    id_refusal,
    need_of_id,
    need_of_topic,
)
from magicbyte.server.serving.routes import FEW, MANY, MIB, ONE_NAME, Route
from magicbyte.server.serving.turns import STEPS_AT_ONCE, Turns

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Handler, Request

_TOGETHER: Final = 20  # transactions of a broker's request that are verified together, or partitions looked up


async def answer(broker: BrokerParts, request: Request[Any]) -> Message:
    """Answer a request that is handled by the coordinator."""
    return await broker.coordinators.transactions.ask(request)


async def add_partitions(broker: BrokerParts, request: Request[AddPartitionsToTxnRequest]) -> Message:
    """Add partitions to a transaction; for a missing one, the coordinator is not asked.

    Internal topics are not for clients: offsets are added by TxnOffsetCommit.
    """
    if request.version >= FIRST_OF_BROKERS:
        return await _add_for_brokers(broker, request)
    refused = await _not_added(broker, request.turns, request.message.v3_and_below_topics, INTERNAL)
    if refused is None:
        return await broker.coordinators.transactions.ask(request)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refused)


async def _add_for_brokers(broker: BrokerParts, request: Request[AddPartitionsToTxnRequest]) -> Message:
    """Add partitions to many transactions, or verify them; each has its own result."""
    asked, results = request.message.transactions, list[AddPartitionsToTxnResult]()
    for at in range(0, len(asked), _TOGETHER):
        joined = list[Awaitable[AddPartitionsToTxnResult]]()
        async for each in request.turns.over(asked[at : at + _TOGETHER], STEPS_AT_ONCE // _TOGETHER):
            joined.append(_added(broker, request.turns, each))
        results += await asyncio.gather(*joined)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _added(broker: BrokerParts, turns: Turns, asked: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    refused = await _not_added(broker, turns, asked.topics)
    if refused is not None:
        return AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=refused)
    told = await broker.coordinators.transactions.joined(AddPartitionsToTxnRequest(transactions=[asked]))
    return told.results_by_transaction[0]


async def _not_added(
    broker: BrokerParts,
    turns: Turns,
    topics: Sequence[AddPartitionsToTxnTopic],
    forbidden: Collection[str] = (),
) -> list[AddPartitionsToTxnTopicResult] | None:
    """Return the response if some partitions are missing, or of `forbidden` topics; None otherwise."""

    def code_of(topic: str, partition: int) -> ErrorCode:
        if topic in forbidden:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return not_added(is_there=has_partition(broker.topics, topic, partition))

    is_refused = False
    for topic in topics:
        if turns.is_due(1):
            await turns.give()
        known = 0 if topic.name in forbidden else broker.topics.partition_count(topic.name)
        for at in range(0, len(topic.partitions), _TOGETHER):
            some = topic.partitions[at : at + _TOGETHER]
            if turns.is_due(len(some)):
                await turns.give()
            is_refused = is_refused or min(some) < 0 or max(some) >= known
    if not is_refused:
        return None
    answers = []
    async for topic in turns.over(topics):
        codes = [
            AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code_of(topic.name, each))
            async for each in turns.over(topic.partitions)
        ]
        answers.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=codes))
    return answers


async def write_txn_markers(broker: BrokerParts, request: Request[WriteTxnMarkersRequest]) -> WriteTxnMarkersResponse:
    """Write a coordinator's markers into partitions that this broker leads."""
    turns, markers = request.turns, request.message.markers
    wanted, answers = list[tuple[TopicPartition, Marker]](), list[WritableTxnMarkerResult]()
    async for producer_marker in turns.over(markers):
        producer = Producer(producer_marker.producer_id, producer_marker.producer_epoch)
        marker = Marker(producer, producer_marker.coordinator_epoch, producer_marker.transaction_result)
        async for topic in turns.over(producer_marker.topics):
            async for one in turns.over(topic.partition_indexes):
                wanted.append((TopicPartition(topic.name, one), marker))
    codes = iter(await write_markers(broker.coordinators.marker_writer, wanted, turns))
    async for producer_marker in turns.over(markers):
        topics = list[WritableTxnMarkerTopicResult]()
        async for topic in turns.over(producer_marker.topics):
            told = list[WritableTxnMarkerPartitionResult]()
            async for one in turns.over(topic.partition_indexes):
                told.append(WritableTxnMarkerPartitionResult(partition_index=one, error_code=next(codes)))
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=told))
        answers.append(WritableTxnMarkerResult(producer_id=producer_marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=answers)


async def describe(broker: BrokerParts, request: Request[DescribeTransactionsRequest]) -> DescribeTransactionsResponse:
    """Describe transactional ids."""
    response = DescribeTransactionsResponse()
    async for each in request.turns.over(request.message.transactional_ids):
        response.transaction_states.append(reports.describe(broker.coordinators.transactions.coordinator, each))
    return response


async def list_all(broker: BrokerParts, request: Request[ListTransactionsRequest]) -> ListTransactionsResponse:
    """List the transactional ids that this broker coordinates."""
    return reports.list_all(
        broker.coordinators.transactions.coordinator, request.message, broker.runtime.clock.now_ms()
    )


async def _authorized_add_partitions(
    broker: BrokerParts, request: Request[AddPartitionsToTxnRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Add partitions with transactional id Write (53) and topic Write (29, with 55 in the others), all or none."""
    message = request.message
    if request.version >= FIRST_OF_BROKERS:
        if caller.has(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return await handler(request)
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if code := id_refusal(caller, message.v3_and_below_transactional_id):
        return partition_codes(message, lambda _place: code)
    _, refused = caller.split(
        need_of_topic(AclOperation.WRITE), {topic.name for topic in message.v3_and_below_topics}, str
    )
    if not refused:
        return await handler(request)

    def code_of(place: TopicPartition) -> ErrorCode:
        if place.topic in refused or place.topic in INTERNAL:
            return TOPIC_REFUSED
        return not_added(is_there=has_partition(broker.topics, *place))

    return partition_codes(message, code_of)


async def _authorized_add_offsets(
    _broker: BrokerParts, request: Request[AddOffsetsToTxnRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Add a group with transactional id Write (53) and group Read (30)."""
    if code := id_refusal(caller, request.message.transactional_id, request.message.group_id):
        return AddOffsetsToTxnResponse(error_code=code)
    return await handler(request)


async def _authorized_write_markers(
    _broker: BrokerParts, request: Request[WriteTxnMarkersRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Write markers with cluster ClusterAction or, as from 3.8 on, Alter (31)."""
    may = any(caller.has(marker, ResourceType.CLUSTER) for marker in (AclOperation.CLUSTER_ACTION, AclOperation.ALTER))
    if may:
        return await handler(request)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=one, error_code=code)
                            for one in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.message.markers
        ]
    )


async def _authorized_describe(
    _broker: BrokerParts, request: Request[DescribeTransactionsRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Describe ids with transactional id Describe (53), and their topics with topic Describe."""
    message = request.message
    allowed, refused = caller.split(need_of_id(AclOperation.DESCRIBE), message.transactional_ids, str)
    response: Any = await handler(replace(request, message=replace(message, transactional_ids=allowed)))
    for told in response.transaction_states:
        told.topics = [each for each in told.topics if caller.may(need_of_topic(AclOperation.DESCRIBE), each.topic)]
    response.transaction_states += [TransactionState(error_code=ID_REFUSED, transactional_id=each) for each in refused]
    answered: Message = response
    return answered


async def _authorized_list(
    _broker: BrokerParts, request: Request[ListTransactionsRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """List ids with transactional id Describe."""
    response: Any = await handler(request)
    response.transaction_states = [
        each
        for each in response.transaction_states
        if caller.may(need_of_id(AclOperation.DESCRIBE), each.transactional_id)
    ]
    answered: Message = response
    return answered


ROUTES: Final = (
    Route(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        range(6),
        add_partitions,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_authorized_add_partitions,
    ),
    Route(
        ApiKey.ADD_OFFSETS_TO_TXN,
        range(5),
        answer,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=_authorized_add_offsets,
    ),
    Route(
        ApiKey.END_TXN,
        range(6),
        answer,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=WholeRight(
            WRITE_ID, lambda _: EndTxnResponse(error_code=ID_REFUSED), lambda message: message.transactional_id
        ),
    ),
    Route(
        ApiKey.WRITE_TXN_MARKERS,
        range(2),
        write_txn_markers,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_authorized_write_markers,
        of_brokers=True,
    ),
    Route(
        ApiKey.DESCRIBE_TRANSACTIONS,
        range(1),
        describe,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_authorized_describe,
    ),
    Route(
        ApiKey.LIST_TRANSACTIONS,
        range(2),  # later ones have patterns
        list_all,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=_authorized_list,
    ),
)
