"""The answers of the transaction coordinator: a code as each request's response has it, in its version."""

from __future__ import annotations

from collections.abc import Mapping

from magicbyte.errors import ErrorCode
from magicbyte.groups.effects import Caller, Reply
from magicbyte.ports import TopicPartition
from magicbyte.protocol.message import Message
from magicbyte.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from magicbyte.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from magicbyte.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from magicbyte.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.transactions.rules import FENCED_BEFORE
from magicbyte.transactions.transaction import NO_EPOCH, NO_ID


def answer(
    caller: Caller, request: Message, code: ErrorCode, producer_id: int = NO_ID, producer_epoch: int = NO_EPOCH
) -> Reply:
    """Return the answer to a request; of a producer's id and epoch only InitProducerId tells, without an error."""
    assert request.API_KEY is not None, "a request"
    if code is ErrorCode.PRODUCER_FENCED and caller.version < FENCED_BEFORE[request.API_KEY]:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    match request:
        case InitProducerIdRequest() if code:
            return Reply(caller, InitProducerIdResponse(error_code=code, producer_id=NO_ID, producer_epoch=NO_EPOCH))
        case InitProducerIdRequest():
            return Reply(caller, InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch))
        case AddPartitionsToTxnRequest():
            topics = request.v3_and_below_topics
            places = [TopicPartition(topic.name, each) for topic in topics for each in topic.partitions]
            return Reply(caller, partition_codes(request, dict.fromkeys(places, code)))
        case EndTxnRequest():
            return Reply(caller, EndTxnResponse(error_code=code))
    return Reply(caller, AddOffsetsToTxnResponse(error_code=code))


def partition_codes(
    request: AddPartitionsToTxnRequest, codes: Mapping[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResponse:
    """Return the response with a code for each partition that was asked for."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=each, partition_error_code=codes[TopicPartition(topic.name, each)]
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
