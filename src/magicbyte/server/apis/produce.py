"""Produce: every version, and any format of set for any format of topic. docs/internals/append.md has the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.acls import AclOperation
from magicbyte.engine.errors import (
    AppendRefusedError,
    ErrorCode,
    MagicbyteError,
    NotReplicatedError,
    ProtocolError,
    RequestRefusedError,
    UnknownTopicError,
)
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.sentinels import NO_OFFSET
from magicbyte.server.apis.leaders import current_leader, live_leaders
from magicbyte.server.coordinating.verification import is_transactional, must_verify, names_several, with_guards
from magicbyte.server.partitions.appends import Acknowledgement, Appended, NewSet
from magicbyte.server.serving.authorization import (
    WRITE_ID,
    AuthorizedCaller,
    RowRights,
    need_of_topic,
)
from magicbyte.server.serving.metrics import now_ns
from magicbyte.server.serving.routes import MANY, Route
from magicbyte.server.serving.topic_ids import UNKNOWN_ID, RowsById

if TYPE_CHECKING:
    from magicbyte.engine.log.append.rules import AppendRules
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.serving.request import Handler, Request

_ACKS: Final = (-1, 0, 1)
_ALL: Final = -1
_ADMIN_CLIENT: Final = "__admin_client"
_FIRST_WITH_STORAGE_ERROR: Final = 4
_FIRST_WITH_LEADERS: Final = 10
_FIRST_BY_ID: Final = 13
_NO_LOG_ASKED: Final = {  # errors that Kafka returns without the log start offset, although some are found in the log
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
}
_NOT_ITS_ID: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NOT_ITS_PRODUCER: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING
_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_TOGETHER: Final = 64  # partitions of a request that are appended to concurrently
_STEPS: Final = 20  # to append to a partition, on the event loop


async def produce(broker: BrokerParts, request: Request[ProduceRequest]) -> ProduceResponse | None:
    """Append the sets of each partition, each with its own result.

    With acks=0 there is no response: a refusal closes the connection, and is logged.
    """
    message = request.message
    parts = [(topic.name, part) for topic in message.topic_data for part in topic.partition_data]
    answers = list[PartitionProduceResponse]()
    if (refused := _refusal(broker, request, parts)) is not None:
        answers = [_answer(broker, request.version, topic, part.index, None, refused) for topic, part in parts]
        parts = []
    for at in range(0, len(parts), _TOGETHER):
        answers += await _append(broker, request, parts[at : at + _TOGETHER])
    results = iter(answers)
    responses = [
        TopicProduceResponse(name=topic.name, partition_responses=[next(results) for _ in topic.partition_data])
        for topic in message.topic_data
    ]
    if message.acks:
        response = ProduceResponse(responses=responses)
        if request.version >= _FIRST_WITH_LEADERS and any(each.error_code == _NOT_LEADER for each in answers):
            _add_leaders(broker, request, response)
        return response
    for topic in responses:
        for each in topic.partition_responses:
            if each.error_code:
                why = f"refused records with acks=0 for {topic.name}-{each.index}: {each.error_message}"
                raise AppendRefusedError(ErrorCode(each.error_code), why)
    return None


def _add_leaders(broker: BrokerParts, request: Request[ProduceRequest], response: ProduceResponse) -> None:
    """Add the leaders of the partitions that are led by other brokers, and their addresses."""
    leaders = set[int]()
    for topic in response.responses:
        for part in topic.partition_responses:
            if part.error_code == _NOT_LEADER:
                leader, epoch = current_leader(broker, topic.name, part.index)
                part.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
    response.node_endpoints = [
        NodeEndpoint(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
        for each in live_leaders(broker, request.connection.listener, leaders)
    ]


def _refusal(
    broker: BrokerParts, request: Request[ProduceRequest], parts: Sequence[tuple[str, PartitionProduceData]]
) -> RequestRefusedError | None:
    """Return why a whole request is refused: its transactional fields contradict its sets."""
    bound = (part.records for topic, part in parts if _needs_id(broker, topic, part.records))
    if request.message.transactional_id is None:
        if next(bound, None) is not None:
            return RequestRefusedError(_NOT_ITS_ID, "a transactional batch in a request without a transactional id")
    elif len(parts) > 1 and must_verify(broker.runtime, request.version) and names_several(bound):
        return RequestRefusedError(_NOT_ITS_PRODUCER, "transactional records of several producers")
    return None


async def _append(
    broker: BrokerParts, request: Request[ProduceRequest], parts: Sequence[tuple[str, PartitionProduceData]]
) -> list[PartitionProduceResponse]:
    """Append the sets of some partitions, and return the result of each."""
    partitions: list[ServedPartition | None] = [None] * len(parts)
    outcomes: list[Appended | Exception | None] = [None] * len(parts)
    sets: dict[int, NewSet] = {}
    for at, (topic, part) in enumerate(parts):
        if request.turns.is_due(_STEPS):
            await request.turns.give()
        try:
            partitions[at] = partition = await _partition(broker, request, topic, part.index)
            sets[at] = _new_set(broker, request, partition, part)
        except MagicbyteError as error:
            outcomes[at] = error
    if request.message.transactional_id is not None:
        sets, refused = await with_guards(broker.verification, request, sets)
        for at, why in refused.items():
            outcomes[at] = why
    for at, outcome in zip(sets, await broker.appends.append_all(list(sets.values())), strict=True):
        outcomes[at] = outcome
    if request.message.acks == _ALL:
        await _replicate(broker, request, outcomes, partitions)
    return [
        _answer(broker, request.version, topic, part.index, partition, outcome)
        for (topic, part), partition, outcome in zip(parts, partitions, outcomes, strict=True)
    ]


async def _replicate(
    broker: BrokerParts,
    request: Request[ProduceRequest],
    outcomes: list[Appended | Exception | None],
    partitions: Sequence[ServedPartition | None],
) -> None:
    """Wait until the in-sync replicas have the appended records; replace the outcomes of those that do not by
    errors.
    """
    waits: dict[int, Acknowledgement] = {}
    for at, (outcome, partition) in enumerate(zip(outcomes, partitions, strict=True)):
        if isinstance(outcome, Appended) and partition is not None and outcome.leader.followers:
            try:
                least = broker.topics.known(partition.topic).config.min_insync_replicas
            except UnknownTopicError as error:  # it was deleted meanwhile
                outcomes[at] = error
                continue
            waits[at] = Acknowledgement(partition, outcome, least)
    if not waits:
        return
    started = now_ns()
    codes = await broker.appends.replicated(list(waits.values()), request.message.timeout_ms)
    request.connection.waited_ns += now_ns() - started
    for at, code in zip(waits, codes, strict=True):
        if code:
            outcomes[at] = NotReplicatedError(code, f"{waits[at].partition}: the in-sync replicas do not have it")


def _answer(
    broker: BrokerParts,
    version: int,
    topic: str,
    index: int,
    partition: ServedPartition | None,
    outcome: Appended | Exception | None,
) -> PartitionProduceResponse:
    """Return the response for one set; an error becomes the code that this request version has for it."""
    if isinstance(outcome, AppendRefusedError):
        start = NO_OFFSET
        if partition is not None:
            broker.runtime.metrics.of(topic).sets_refused += 1
            if outcome.code not in _NO_LOG_ASKED and not isinstance(outcome, RequestRefusedError):
                start = partition.log.log_start_offset
        return PartitionProduceResponse(
            index=index,
            error_code=outcome.code,
            base_offset=NO_OFFSET,
            log_start_offset=start,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=each.batch_index, batch_index_error_message=each.message)
                for each in outcome.record_errors
            ],
            error_message=outcome.message,
        )
    if isinstance(outcome, MagicbyteError):
        code = outcome.code
        if code == ErrorCode.KAFKA_STORAGE_ERROR and version < _FIRST_WITH_STORAGE_ERROR:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionProduceResponse(index=index, error_code=code, base_offset=NO_OFFSET, error_message=str(outcome))
    if isinstance(outcome, Exception):
        raise outcome
    assert outcome is not None, "each set has an outcome"
    assert partition is not None, "it was appended to"
    return PartitionProduceResponse(
        index=index,
        base_offset=outcome.first_offset,
        log_append_time_ms=outcome.log_append_time,
        log_start_offset=partition.log.log_start_offset,
    )


async def _partition(broker: BrokerParts, request: Request[ProduceRequest], topic: str, index: int) -> ServedPartition:
    """Return the partition, if this client may write to it."""
    if request.message.acks not in _ACKS:
        raise AppendRefusedError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {request.message.acks}: expected -1, 0 or 1")
    partition = await broker.replicas.opened(topic, index)
    partition.led()
    broker.runtime.metrics.of(topic).produce_requests += 1
    if broker.topics.known(topic).is_internal and request.client_id != _ADMIN_CLIENT:
        raise AppendRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
    return partition


def _needs_id(broker: BrokerParts, topic: str, records: object) -> bool:
    """Return whether a set requires a transactional id; one that is appended unchanged may be of any transaction."""
    if not is_transactional(records):
        return False
    known = broker.topics.get(topic)
    return known is None or not known.config.is_identical


def _new_set(
    broker: BrokerParts,
    request: Request[ProduceRequest],
    partition: ServedPartition,
    produced: PartitionProduceData,
) -> NewSet:
    config = broker.topics.known(partition.topic).config
    if request.message.acks == _ALL and (wanted := config.min_insync_replicas) > 1:  # the leader itself is always
        partition.check_in_sync(wanted)
    enriched = request.connection.enriched and partition.log.config.dialect is Dialect.ENRICHED
    dialect = Dialect.ENRICHED if enriched else Dialect.KAFKA
    assert produced.records is None or isinstance(produced.records, memoryview), "records are a view into the frame"
    records = memoryview(b"") if produced.records is None else produced.records
    rules: AppendRules | None = config.append
    if config.is_identical:
        if dialect is not partition.log.config.dialect:
            raise RequestRefusedError(
                ErrorCode.INVALID_REQUEST, "sets of an enriched topic need a listener of the enriched dialect"
            )
        rules = None
    is_ours = not records.readonly
    return NewSet(partition, records, rules, request.version, request.client, dialect, is_ours)


def _refuse(response: ProduceResponse, topic: TopicProduceData, code: ErrorCode) -> None:
    response.responses.append(
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=part.index, error_code=code, base_offset=NO_OFFSET)
                for part in topic.partition_data
            ],
        )
    )


_TOPICS_WRITTEN: Final[RowRights[ProduceRequest, TopicProduceData, ProduceResponse]] = RowRights(
    need_of_topic(AclOperation.WRITE),
    rows=lambda message: message.topic_data,
    name=lambda topic: topic.name,
    only=lambda message, topics: replace(message, topic_data=topics),
    refuse=_refuse,
)


_BY_ID: Final[RowsById[ProduceRequest, TopicProduceData, ProduceResponse]] = RowsById(
    _FIRST_BY_ID,
    rows=lambda message: message.topic_data,
    only=lambda message, topics: replace(message, topic_data=topics),
    answered=lambda response: response.responses,
    parts=lambda topic: topic.partition_data,
    refused=lambda part: PartitionProduceResponse(index=part.index, error_code=UNKNOWN_ID, base_offset=NO_OFFSET),
    refusal=lambda topic, parts: TopicProduceResponse(topic_id=topic.topic_id, partition_responses=parts),
)


async def _authorized_produce(
    broker: BrokerParts, request: Request[ProduceRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Append for those with topic Write (29); sets of a transaction also need transactional id Write (53)."""
    message, name = request.message, request.message.transactional_id
    sets = (part.records for topic in message.topic_data for part in topic.partition_data)
    if name is not None and not caller.may(WRITE_ID, name) and any(is_transactional(each) for each in sets):
        if not message.acks:
            raise ProtocolError(
                "Produce with acks=0", expected=f"Write on transactional id {name}", found="no such right"
            )
        refused = ProduceResponse()
        for topic in message.topic_data:
            _refuse(refused, topic, WRITE_ID.code)
        return refused
    return await _TOPICS_WRITTEN(broker, request, handler, caller)


ROUTES: Final = (
    Route(
        ApiKey.PRODUCE,
        range(14),
        produce,
        most_bytes=None,
        most_elements=MANY,
        rights=_authorized_produce,
        by_id=_BY_ID,
    ),
)
