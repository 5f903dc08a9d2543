"""Required rights of the transaction APIs: to a transactional id, and to its topics and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from magicbyte.engine.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from magicbyte.engine.protocol.messages.describe_transactions import TransactionState
from magicbyte.engine.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from magicbyte.engine.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from magicbyte.engine.transactions.answers import FIRST_OF_BROKERS, not_added, partition_codes
from magicbyte.server.apis.rights_special import AuthorizedCaller, Need, Special, need_of_group, need_of_topic
from magicbyte.server.coordinating.coordinating import has_partition
from magicbyte.server.stores.topic_nodes import INTERNAL

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.serving.request import Handler, Request

_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
WRITE_ID: Final = Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, _REFUSED)
_DESCRIBE_ID: Final = Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, _REFUSED)
_READ_GROUP: Final = need_of_group(AclOperation.READ)
_WRITE_TOPIC: Final = need_of_topic(AclOperation.WRITE)
_READ_TOPIC: Final = need_of_topic(AclOperation.READ)
_DESCRIBE_TOPIC: Final = need_of_topic(AclOperation.DESCRIBE)


def _refusal(caller: AuthorizedCaller, transactional_id: str, group_id: str | None = None) -> ErrorCode:
    """Return why a producer may not use its id, or its offsets are refused for a group."""
    if not caller.may(WRITE_ID, transactional_id):
        return WRITE_ID.code
    is_refused = group_id is not None and not caller.may(_READ_GROUP, group_id)
    return _READ_GROUP.code if is_refused else ErrorCode.NONE


async def _add_partitions(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Add partitions of topics that may be written: all or none; brokers may add any."""
    message = request.message
    if request.version >= FIRST_OF_BROKERS:
        if caller.has(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return await handler(request)
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if code := _refusal(caller, message.v3_and_below_transactional_id):
        return partition_codes(message, lambda _place: code)
    _, refused = caller.split(_WRITE_TOPIC, {topic.name for topic in message.v3_and_below_topics}, str)
    if not refused:
        return await handler(request)

    def code_of(place: TopicPartition) -> ErrorCode:
        if place.topic in refused or place.topic in INTERNAL:
            return _TOPIC_REFUSED
        return not_added(is_there=has_partition(caller.services.topics, *place))

    return partition_codes(message, code_of)


async def _add_offsets(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Add a group that may be read to a transaction."""
    if code := _refusal(caller, request.message.transactional_id, request.message.group_id):
        return AddOffsetsToTxnResponse(error_code=code)
    return await handler(request)


async def _write_markers(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Write markers for other brokers and, as from 3.8 on, for those who may alter the cluster."""
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


async def _commit_offsets(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Commit offsets of readable topics, for a readable group, in the caller's own transaction."""
    message = request.message
    if code := _refusal(caller, message.transactional_id, message.group_id):
        return TxnOffsetCommitResponse(topics=[_not_committed(each, code) for each in message.topics])
    allowed, refused = caller.split(_READ_TOPIC, message.topics, lambda each: str(each.name))
    response: Any = TxnOffsetCommitResponse()
    if allowed or not refused:
        response = await handler(replace(request, message=replace(message, topics=allowed)))
    response.topics = [*response.topics, *(_not_committed(each, _TOPIC_REFUSED) for each in refused)]
    answered: Message = response
    return answered


def _not_committed(asked: Any, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    parts = [
        TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
        for each in asked.partitions
    ]
    return TxnOffsetCommitResponseTopic(name=asked.name, partitions=parts)


async def _describe(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Describe permitted ids, without topics that may not be described."""
    message = request.message
    allowed, refused = caller.split(_DESCRIBE_ID, message.transactional_ids, str)
    response: Any = await handler(replace(request, message=replace(message, transactional_ids=allowed)))
    for told in response.transaction_states:
        told.topics = [each for each in told.topics if caller.may(_DESCRIBE_TOPIC, each.topic)]
    response.transaction_states += [TransactionState(error_code=_REFUSED, transactional_id=each) for each in refused]
    answered: Message = response
    return answered


async def _list(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """List the ids that may be described."""
    response: Any = await handler(request)
    response.transaction_states = [
        each for each in response.transaction_states if caller.may(_DESCRIBE_ID, each.transactional_id)
    ]
    answered: Message = response
    return answered


OF_TRANSACTIONS: Final[Mapping[int, Special]] = {
    24: _add_partitions,
    25: _add_offsets,
    27: _write_markers,
    28: _commit_offsets,
    65: _describe,
    66: _list,
}
"""By API key."""
