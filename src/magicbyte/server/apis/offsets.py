"""ListOffsets and OffsetForLeaderEpoch: log ends, and offsets by time and leader epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.acls import CLUSTER_NAME, AclOperation
from magicbyte.engine.errors import ErrorCode, MagicbyteError
from magicbyte.engine.log.live.lookups import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP_SEARCH,
    offset_for_timestamp,
    offsets_before,
)
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from magicbyte.engine.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from magicbyte.engine.sentinels import NO_EPOCH
from magicbyte.server.apis.fetch import epoch_fault
from magicbyte.server.serving.authorization import (
    ACT,
    AuthorizedCaller,
    RowRights,
    need_of_topic,
)
from magicbyte.server.serving.routes import MANY, MIB, Route

if TYPE_CHECKING:
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.serving.request import Handler, Request

    _Find = Callable[
        ["BrokerParts", Request[ListOffsetsRequest], ServedPartition, ListOffsetsPartition],
        Awaitable[ListOffsetsPartitionResponse],
    ]

_COMMITTED: Final = 1
_CONSUMER: Final = -1
_STEPS: Final = 10  # for a search by time, in another thread that is awaited
_FIRST_WITH_EPOCHS: Final = 4
_FIRST_NOT_AVAILABLE: Final = 5
_EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_NOT_UPLOADED = -4, -5, -6
_FIRST_VERSION: Final = {MAX_TIMESTAMP_SEARCH: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_NOT_UPLOADED: 11}
"""The first request version with each special timestamp, unless it is the first."""


async def list_offsets(broker: BrokerParts, request: Request[ListOffsetsRequest]) -> ListOffsetsResponse:
    """Return an offset by timestamp for each partition; in version 0 base offsets of segments by their age."""
    find = _old_offsets if request.version == 0 else _offset
    known: dict[tuple[str, int, int, int, int], ListOffsetsPartitionResponse] = {}  # repeated searches are done once
    topics = []
    async for topic in request.turns.over(request.message.topics):
        partitions = []
        async for each in request.turns.over(topic.partitions, _STEPS):
            epoch, timestamp, most = each.current_leader_epoch, each.timestamp, each.max_num_offsets
            key = topic.name, each.partition_index, epoch, timestamp, most
            if key not in known:
                known[key] = await _of_partition(broker, request, topic.name, each, find)
            partitions.append(known[key])
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


async def _of_partition(
    broker: BrokerParts, request: Request[ListOffsetsRequest], topic: str, asked: ListOffsetsPartition, find: _Find
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        partition = await broker.replicas.opened(topic, index)
        partition.led()
        fault = epoch_fault(asked.current_leader_epoch, partition.leader_epoch)
        if fault:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=fault)
        return await find(broker, request, partition, asked)
    except MagicbyteError as error:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)


async def _old_offsets(
    broker: BrokerParts,
    request: Request[ListOffsetsRequest],
    partition: ServedPartition,
    asked: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    """Answer version 0, from before the time index. Consumers get only offsets that they can read."""
    log = partition.log
    most, now_ms = max(asked.max_num_offsets, 0), broker.runtime.clock.now_ms()
    found = await broker.replicas.read(partition, offsets_before, log, asked.timestamp, most, now_ms)
    if request.message.replica_id == _CONSUMER and any(each > log.high_watermark for each in found):
        found = [log.high_watermark, *(each for each in found if each < log.high_watermark)]
    return ListOffsetsPartitionResponse(partition_index=partition.index, old_style_offsets=tuple(found))


async def _offset(
    broker: BrokerParts,
    request: Request[ListOffsetsRequest],
    partition: ServedPartition,
    asked: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    log, timestamp = partition.log, asked.timestamp
    committed = request.message.isolation_level == _COMMITTED
    end = log.high_watermark if request.message.replica_id == _CONSUMER else log.log_end_offset
    end = log.last_stable_offset if committed else end
    response = ListOffsetsPartitionResponse(partition_index=partition.index)
    if timestamp < _EARLIEST_NOT_UPLOADED or request.version < _FIRST_VERSION.get(timestamp, 0):
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        return response
    if timestamp in (_LATEST_TIERED, _EARLIEST_NOT_UPLOADED):  # there is no tiered storage
        return response
    if timestamp == _EARLIEST_LOCAL:
        timestamp = EARLIEST_TIMESTAMP
    # A new leader learns the high watermark from its followers: until then it must not return less than the old leader
    # did.
    is_behind = request.message.replica_id == _CONSUMER and log.high_watermark < partition.led().epoch_start
    if timestamp == LATEST_TIMESTAMP:
        if is_behind:
            response.error_code = _behind(request.version)
            return response
        response.offset = end
    else:
        quick = timestamp == EARLIEST_TIMESTAMP
        if quick:
            offset_of_time = offset_for_timestamp(log, timestamp)
        else:
            async with broker.runtime.memory.work(broker.topics.rules(partition.topic).max_decompressed_bytes):
                offset_of_time = await broker.replicas.read(partition, offset_for_timestamp, log, timestamp)
        if offset_of_time is None or (not quick and offset_of_time[1] >= end):
            response.error_code = _behind(request.version) if is_behind else ErrorCode.NONE
            return response
        response.timestamp, response.offset = offset_of_time
    if request.version >= _FIRST_WITH_EPOCHS:
        response.leader_epoch = _epoch_at(log, response.offset)
    return response


def _behind(version: int) -> ErrorCode:
    """Return the error for an unknown high watermark (KIP-207)."""
    return ErrorCode.OFFSET_NOT_AVAILABLE if version >= _FIRST_NOT_AVAILABLE else ErrorCode.LEADER_NOT_AVAILABLE


def _epoch_at(log: PartitionLog, offset: int) -> int:
    """Return the leader epoch of an existing or next offset; -1 if unknown."""
    entries = log.epochs.entries
    at = bisect_right(entries, offset, key=lambda each: each.start_offset) - 1
    return entries[at].epoch if at >= 0 else NO_EPOCH


async def offset_for_leader_epoch(
    broker: BrokerParts, request: Request[OffsetForLeaderEpochRequest]
) -> OffsetForLeaderEpochResponse:
    """Return the end offset of a leader epoch, for each partition (KIP-101, KIP-320)."""
    topics, turns = [], request.turns
    async for topic in turns.over(request.message.topics):
        partitions = [await _end_of_epoch(broker, topic.topic, each) async for each in turns.over(topic.partitions)]
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


async def _end_of_epoch(broker: BrokerParts, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = await broker.replicas.opened(topic, asked.partition)
        partition.led()
        fault = epoch_fault(asked.current_leader_epoch, partition.leader_epoch)
    except MagicbyteError as error:
        fault = error.code
    if fault:
        return EpochEndOffset(error_code=fault, partition=asked.partition)
    log = partition.log
    epoch, end_offset = log.epochs.end_offset_of(asked.leader_epoch, log.log_end_offset)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


def _refuse_epochs(response: OffsetForLeaderEpochResponse, asked: OffsetForLeaderTopic, code: ErrorCode) -> None:
    parts = [EpochEndOffset(partition=each.partition, error_code=code) for each in asked.partitions]
    response.topics.append(OffsetForLeaderTopicResult(topic=asked.topic, partitions=parts))


_EPOCHS: Final[RowRights[OffsetForLeaderEpochRequest, OffsetForLeaderTopic, OffsetForLeaderEpochResponse]] = RowRights(
    need_of_topic(AclOperation.DESCRIBE),
    rows=lambda message: message.topics,
    name=lambda topic: topic.topic,
    only=lambda message, topics: replace(message, topics=topics),
    refuse=_refuse_epochs,
)


async def _authorized_leader_epochs(
    broker: BrokerParts, request: Request[OffsetForLeaderEpochRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Return epochs of topics with topic Describe (29), all to brokers with cluster ClusterAction."""
    if caller.may(ACT, CLUSTER_NAME):
        return await handler(request)
    return await _EPOCHS(broker, request, handler, caller)


def _refuse_offsets(response: ListOffsetsResponse, asked: ListOffsetsTopic, code: ErrorCode) -> None:
    parts = [
        ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code, timestamp=-1, offset=-1)
        for each in asked.partitions
    ]
    response.topics.append(ListOffsetsTopicResponse(name=asked.name, partitions=parts))


_OFFSETS: Final[RowRights[ListOffsetsRequest, ListOffsetsTopic, ListOffsetsResponse]] = RowRights(
    need_of_topic(AclOperation.DESCRIBE),
    rows=lambda message: message.topics,
    name=lambda topic: topic.name,
    only=lambda message, topics: replace(message, topics=topics),
    refuse=_refuse_offsets,
)

ROUTES: Final = (
    Route(
        ApiKey.LIST_OFFSETS,
        range(12),
        list_offsets,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_OFFSETS,
    ),
    Route(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        range(5),
        offset_for_leader_epoch,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_authorized_leader_epochs,
    ),
)
