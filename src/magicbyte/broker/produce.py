"""Produce: every version, any format of set to any format of topic. docs/append.md has what is answered to what."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from magicbyte.broker.appends import Appended
from magicbyte.errors import (
    AppendRefusedError,
    ErrorCode,
    MagicbyteError,
    RequestRefusedError,
)
from magicbyte.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from magicbyte.records.layout import NO_TIMESTAMP, Dialect

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker
    from magicbyte.broker.partition import Partition
    from magicbyte.broker.request import Handler, Request

_ACKS: Final = (-1, 0, 1)
_ALL: Final = -1
_NO_OFFSET: Final = -1
_ADMIN_CLIENT: Final = "__admin_client"
_FIRST_WITH_STORAGE_ERROR: Final = 4
_NO_LOG_ASKED: Final = {  # faults that Kafka answers without the log's start, though some are found there
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
}
_TOGETHER: Final = 64  # partitions of a request that are appended to at a time
_STEPS: Final = 20  # to append to a partition, on the event loop
_AT_ONCE_BYTES: Final = 64 << 10  # of a request whose partitions are not worth a task each


async def produce(broker: Broker, request: Request[ProduceRequest]) -> ProduceResponse | None:
    """Append what came to each partition; each is answered for itself.

    With acks=0 nobody waits for the answer: what is refused closes the connection, with a line that says why.
    """
    message, turns = request.message, request.turns
    parts = [(topic.name, part) for topic in message.topic_data for part in topic.partition_data]
    size = sum(len(part.records or b"") for _, part in parts)
    results: Iterator[PartitionProduceResponse]
    if len(parts) > 1 and size > _AT_ONCE_BYTES:
        found = list[PartitionProduceResponse]()
        for at in range(0, len(parts), _TOGETHER):
            some = parts[at : at + _TOGETHER]
            found += await asyncio.gather(*[_append(broker, request, topic, part) for topic, part in some])
            await turns.take(_STEPS * len(some))
        results = iter(found)
    elif len(parts) == 1:
        results = iter([await _append(broker, request, *parts[0])])
    else:
        results = iter([await _append(broker, request, *each) async for each in turns.over(parts, _STEPS)])
    responses = [
        TopicProduceResponse(name=topic.name, partition_responses=[next(results) for _ in topic.partition_data])
        for topic in message.topic_data
    ]
    if message.acks:
        return ProduceResponse(responses=responses)
    for topic in responses:
        for each in topic.partition_responses:
            if each.error_code:
                why = f"refused what came with acks=0 for {topic.name}-{each.index}: {each.error_message}"
                raise AppendRefusedError(ErrorCode(each.error_code), why)
    return None


async def _append(
    broker: Broker, request: Request[ProduceRequest], topic: str, part: PartitionProduceData
) -> PartitionProduceResponse:
    """Append one set; a fault becomes the code that this version of the request has for it."""
    version, partition = request.version, None
    try:
        partition = await _partition(broker, request, topic, part.index)
        found = await _store(broker, request, partition, part)
    except AppendRefusedError as error:
        start = _NO_OFFSET
        if partition is not None:
            broker.metrics.of(topic).sets_refused += 1
            if error.code not in _NO_LOG_ASKED and not isinstance(error, RequestRefusedError):
                start = partition.log.log_start_offset
        return PartitionProduceResponse(
            index=part.index,
            error_code=error.code,
            base_offset=_NO_OFFSET,
            log_start_offset=start,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=each.batch_index, batch_index_error_message=each.message)
                for each in error.record_errors
            ],
            error_message=error.message,
        )
    except MagicbyteError as error:
        code = error.code
        if code == ErrorCode.KAFKA_STORAGE_ERROR and version < _FIRST_WITH_STORAGE_ERROR:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionProduceResponse(
            index=part.index, error_code=code, base_offset=_NO_OFFSET, error_message=str(error)
        )
    return PartitionProduceResponse(
        index=part.index,
        base_offset=found.first_offset,
        log_append_time_ms=found.log_append_time,
        log_start_offset=partition.log.log_start_offset,
    )


async def _partition(broker: Broker, request: Request[ProduceRequest], topic: str, index: int) -> Partition:
    """Return the partition, which may be written to by this client."""
    if request.message.acks not in _ACKS:
        raise AppendRefusedError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {request.message.acks}: expected -1, 0 or 1")
    partition = await broker.opened(topic, index)
    broker.metrics.of(topic).produce_requests += 1
    if broker.topics.known(topic).is_internal and request.client_id != _ADMIN_CLIENT:
        raise AppendRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own")
    return partition


async def _store(
    broker: Broker, request: Request[ProduceRequest], partition: Partition, part: PartitionProduceData
) -> Appended:
    wanted = broker.topics.known(partition.topic).config.min_insync_replicas
    if request.message.acks == _ALL and wanted > 1:
        raise AppendRefusedError(ErrorCode.NOT_ENOUGH_REPLICAS, f"min.insync.replicas is {wanted}, and there is one")
    rules = broker.topics.rules(partition.topic)
    enriched = request.connection.enriched and partition.log.config.dialect is Dialect.ENRICHED
    dialect = Dialect.ENRICHED if enriched else Dialect.KAFKA
    assert part.records is None or isinstance(part.records, memoryview), "what was read is a view into the frame"
    records = memoryview(b"") if part.records is None else part.records
    if broker.topics.known(partition.topic).config.is_identical:
        if dialect is not partition.log.config.dialect:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "sets of an enriched topic come by such a listener")
        found = await broker.appends.take(partition, records.toreadonly(), dialect)
    else:
        found = await broker.appends.append(
            partition,
            records,
            rules,
            request_version=request.version,
            client=request.client,
            dialect=dialect,
            is_ours=not records.readonly,
        )
    return found if found.first_offset >= 0 else Appended(_NO_OFFSET, _NO_OFFSET, NO_TIMESTAMP)


HANDLERS: Final[Mapping[type, Handler]] = {ProduceRequest: produce}
