"""The transaction requests of producers, other brokers and administrators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.effects import Marker, Producer
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
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
)
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest
from magicbyte.engine.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from magicbyte.engine.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from magicbyte.engine.transactions import reports
from magicbyte.engine.transactions.answers import FIRST_OF_BROKERS, not_added
from magicbyte.server.coordinating.coordinating import has_partition
from magicbyte.server.coordinating.markers import MarkerWriter, write_markers
from magicbyte.server.serving.turns import STEPS_AT_ONCE, Turns
from magicbyte.server.stores.topic_nodes import INTERNAL

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.coordinating.coordinators import Coordinators
    from magicbyte.server.serving.request import Request, UnboundHandler
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.topics import Topics

_TOGETHER: Final = 20  # transactions of a broker's request that are verified together


@dataclass(frozen=True, slots=True)
class TransactionServices:
    """The parts of the broker that these requests use."""

    runtime: Runtime
    topics: Topics
    coordinators: Coordinators
    marker_writer: MarkerWriter


async def answer(services: TransactionServices, request: Request[Any]) -> Message:
    """Answer a request that is handled by the coordinator."""
    return await services.coordinators.transactions.ask(request)


async def add_partitions(services: TransactionServices, request: Request[AddPartitionsToTxnRequest]) -> Message:
    """Add partitions to a transaction; for a missing one, the coordinator is not asked.

    Internal topics are not for clients: offsets are added by TxnOffsetCommit.
    """
    if request.version >= FIRST_OF_BROKERS:
        return await _add_for_brokers(services, request)
    refused = await _not_added(services, request.turns, request.message.v3_and_below_topics, INTERNAL)
    if refused is None:
        return await services.coordinators.transactions.ask(request)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refused)


async def _add_for_brokers(services: TransactionServices, request: Request[AddPartitionsToTxnRequest]) -> Message:
    """Add partitions to many transactions, or verify them; each has its own result."""
    asked, results = request.message.transactions, list[AddPartitionsToTxnResult]()
    for at in range(0, len(asked), _TOGETHER):
        joined = list[Awaitable[AddPartitionsToTxnResult]]()
        async for each in request.turns.over(asked[at : at + _TOGETHER], STEPS_AT_ONCE // _TOGETHER):
            joined.append(_added(services, request.turns, each))
        results += await asyncio.gather(*joined)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _added(
    services: TransactionServices, turns: Turns, asked: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    refused = await _not_added(services, turns, asked.topics)
    if refused is not None:
        return AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=refused)
    told = await services.coordinators.transactions.joined(AddPartitionsToTxnRequest(transactions=[asked]))
    return told.results_by_transaction[0]


async def _not_added(
    services: TransactionServices,
    turns: Turns,
    topics: Sequence[AddPartitionsToTxnTopic],
    forbidden: Collection[str] = (),
) -> list[AddPartitionsToTxnTopicResult] | None:
    """Return the response if some partitions are missing, or of `forbidden` topics; None otherwise."""

    def code_of(topic: str, partition: int) -> ErrorCode:
        if topic in forbidden:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return not_added(is_there=has_partition(services.topics, topic, partition))

    is_refused = False
    async for topic in turns.over(topics):
        async for each in turns.over(topic.partitions):
            is_refused = is_refused or code_of(topic.name, each) is not ErrorCode.OPERATION_NOT_ATTEMPTED
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


async def write_txn_markers(
    services: TransactionServices, request: Request[WriteTxnMarkersRequest]
) -> WriteTxnMarkersResponse:
    """Write a coordinator's markers into partitions that this broker leads."""
    turns, markers = request.turns, request.message.markers
    wanted, answers = list[tuple[TopicPartition, Marker]](), list[WritableTxnMarkerResult]()
    async for producer_marker in turns.over(markers):
        producer = Producer(producer_marker.producer_id, producer_marker.producer_epoch)
        marker = Marker(producer, producer_marker.coordinator_epoch, producer_marker.transaction_result)
        async for topic in turns.over(producer_marker.topics):
            async for one in turns.over(topic.partition_indexes):
                wanted.append((TopicPartition(topic.name, one), marker))
    codes = iter(await write_markers(services.marker_writer, wanted, turns))
    async for producer_marker in turns.over(markers):
        topics = list[WritableTxnMarkerTopicResult]()
        async for topic in turns.over(producer_marker.topics):
            told = list[WritableTxnMarkerPartitionResult]()
            async for one in turns.over(topic.partition_indexes):
                told.append(WritableTxnMarkerPartitionResult(partition_index=one, error_code=next(codes)))
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=told))
        answers.append(WritableTxnMarkerResult(producer_id=producer_marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=answers)


async def describe(
    services: TransactionServices, request: Request[DescribeTransactionsRequest]
) -> DescribeTransactionsResponse:
    """Describe transactional ids."""
    response = DescribeTransactionsResponse()
    async for each in request.turns.over(request.message.transactional_ids):
        response.transaction_states.append(reports.describe(services.coordinators.transactions.coordinator, each))
    return response


async def list_all(
    services: TransactionServices, request: Request[ListTransactionsRequest]
) -> ListTransactionsResponse:
    """List the transactional ids that this broker coordinates."""
    return reports.list_all(
        services.coordinators.transactions.coordinator, request.message, services.runtime.clock.now_ms()
    )


HANDLERS: Final[Mapping[type, UnboundHandler]] = {
    AddPartitionsToTxnRequest: add_partitions,
    AddOffsetsToTxnRequest: answer,
    EndTxnRequest: answer,
    WriteTxnMarkersRequest: write_txn_markers,
    DescribeTransactionsRequest: describe,
    ListTransactionsRequest: list_all,
}
