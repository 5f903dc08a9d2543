"""The responses of the transaction coordinator: an error code in the form of each request and version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from magicbyte.engine.coordination.effects import Caller, Reply
from magicbyte.engine.errors import ErrorCode, code_of
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.first_versions import FIRST_OF_PROTOCOL_2
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.engine.sentinels import NO_EPOCH, NO_PRODUCER_ID
from magicbyte.engine.transactions.rules import FENCED_BEFORE

FIRST_OF_BROKERS: Final = 4
"""The first version of AddPartitionsToTxn that brokers send to each other, with many transactions."""


def answer(
    caller: Caller, request: Message, code: ErrorCode, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_EPOCH
) -> Reply:
    """Return the response to a request.

    InitProducerId contains the producer id and epoch, and EndTxn too if it raises the epoch, both only without an
    error.
    """
    assert request.API_KEY is not None, "a request"
    if code is ErrorCode.PRODUCER_FENCED and caller.version < FENCED_BEFORE[request.API_KEY]:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    match request:
        case InitProducerIdRequest() if code:
            return Reply(
                caller, InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
            )
        case InitProducerIdRequest():
            return Reply(caller, InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch))
        case AddPartitionsToTxnRequest():
            return Reply(caller, partition_codes(request, lambda _place: code))
        case EndTxnRequest() if code or caller.version < FIRST_OF_PROTOCOL_2[ApiKey.END_TXN]:
            return Reply(caller, EndTxnResponse(error_code=code))
        case EndTxnRequest():
            return Reply(caller, EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch))
    return Reply(caller, AddOffsetsToTxnResponse(error_code=code))


def not_added(*, is_there: bool) -> ErrorCode:
    """Return the code of a partition if not all can be added: for an existing one, and for a missing one."""
    return ErrorCode.OPERATION_NOT_ATTEMPTED if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def transactions_of(request: AddPartitionsToTxnRequest) -> Sequence[AddPartitionsToTxnTransaction]:
    """Return the transactions of a request: many of a broker, one of a client, whose requests have another form."""
    if request.transactions:
        return request.transactions
    return (
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        ),
    )


def codes_of(told: AddPartitionsToTxnResult) -> dict[TopicPartition, ErrorCode]:
    """Return the code of each partition in the response for one transaction."""
    return {
        TopicPartition(topic.name, each.partition_index): code_of(each.partition_error_code)
        for topic in told.topic_results
        for each in topic.results_by_partition
    }


def places_of(transaction: AddPartitionsToTxnTransaction) -> set[TopicPartition]:
    """Return the partitions of a transaction."""
    return {TopicPartition(topic.name, each) for topic in transaction.topics for each in topic.partitions}


def partition_codes(
    request: AddPartitionsToTxnRequest, code_of: Callable[[TopicPartition], ErrorCode]
) -> AddPartitionsToTxnResponse:
    """Return the response with a code for each requested partition."""
    results = [
        AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=each, partition_error_code=code_of(TopicPartition(topic.name, each))
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in transaction.topics
            ],
        )
        for transaction in transactions_of(request)
    ]
    if request.transactions:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
