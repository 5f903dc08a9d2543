"""ShareFetch and ShareAcknowledge: records for members of share groups, and what members say about them (KIP-932).

Source: Kafka's KafkaApis.handleShareFetchRequest and DelayedShareFetch (4.3).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct, field

from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.errors import CorruptRecordError, ErrorCode, MagicbyteError
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages import share_acknowledge as acknowledging
from magicbyte.engine.protocol.messages import share_fetch as fetching
from magicbyte.engine.sharing.share_partition import RENEW, RecordAcknowledgement, Wanted
from magicbyte.engine.sharing.states import StateKey
from magicbyte.server.apis.leaders import current_leader, live_leaders
from magicbyte.server.apis.share_sessions import CLOSING, OPENING, Place, SessionKey, ShareSession
from magicbyte.server.serving.authorization import GROUP_REFUSED, READ_GROUP, TOPIC_REFUSED, AuthorizedCaller
from magicbyte.server.serving.metrics import now_ns
from magicbyte.server.serving.routes import MANY, MIB, Route

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.coordinating.shared_partitions import SharedPartition
    from magicbyte.server.serving.request import Handler, Request

_LONGEST_MEMBER_ID: Final = 36
_BATCH_OPTIMIZED, _RECORD_LIMIT = 0, 1
_FIRST_WITH_RENEWAL: Final = 2
_STEPS: Final = 20  # to look at a partition
_COORDINATOR: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a share coordinator that is not reachable now: a fetch waits for it."""

MayRead: TypeAlias = Callable[[str], bool] | None


class _SharedResult(Struct):
    """What the response says about a partition of a ShareFetch."""

    data: fetching.PartitionData
    is_told: bool = False


class _Fetching(Struct):
    """A ShareFetch in progress: the results so far by partition, and the number of records and bytes."""

    found: dict[Place, _SharedResult] = field(default_factory=dict)
    records: int = 0
    size: int = 0
    has_error: bool = False

    def at(self, key: Place) -> _SharedResult:
        """Return the response of a partition."""
        known = self.found.get(key)
        if known is None:
            leader = fetching.LeaderIdAndEpoch()
            data = fetching.PartitionData(partition_index=key[1], current_leader=leader, records=[])
            known = self.found[key] = _SharedResult(data)
        return known


async def share_fetch(
    broker: BrokerParts, request: Request[fetching.ShareFetchRequest], may_read: MayRead = None
) -> fetching.ShareFetchResponse:
    """Acknowledge records, and return those that the member acquires: once there are some, or after `max_wait_ms`."""
    message, version = request.message, request.version
    lock_ms = broker.shared_partitions.rules.lock_ms
    if code := _fault(broker, message) or _fetch_fault(message):
        return fetching.ShareFetchResponse(error_code=code)
    key = SessionKey(message.group_id or "", message.member_id or "")
    session = _session(broker, request, key)
    if isinstance(session, ErrorCode):
        if session is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            await asyncio.sleep(message.max_wait_ms / 1000)
        return fetching.ShareFetchResponse(error_code=session)
    if version >= _FIRST_WITH_RENEWAL and message.share_acquire_mode not in (_BATCH_OPTIMIZED, _RECORD_LIMIT):
        return fetching.ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka: the epoch has moved
    asked = [
        (topic.topic_id, part)
        async for topic in request.turns.over(message.topics)
        async for part in request.turns.over(topic.partitions)
    ]
    if message.share_session_epoch != CLOSING:
        async for forgotten in request.turns.over(message.forgotten_topics_data):
            async for index in request.turns.over(forgotten.partitions):
                session.partitions.pop((forgotten.topic_id, index), None)
        broker.share_sessions.add(session, ((topic_id, part.partition_index) for topic_id, part in asked))
    state = _Fetching()
    if message.share_session_epoch == OPENING:
        for place in list(session.partitions):
            state.at(place).is_told = True
            await broker.shared_partitions.refresh(StateKey(key.group_id, *place))
    async for topic_id, part in request.turns.over(asked, _STEPS):
        if part.acknowledgement_batches:
            place = topic_id, part.partition_index
            told = state.at(place)
            code = await _acknowledged(broker, request, place, part.acknowledgement_batches, may_read)
            told.is_told, told.data.acknowledge_error_code = True, code
    if message.share_session_epoch == CLOSING:
        broker.shared_partitions.release(*key, session.partitions)
    elif not message.is_renew_ack and message.max_records > 0:
        limited = broker.runtime.quotas.limited_share_fetch(request)
        if limited is not None:
            await _fetch(broker, limited, session, state, may_read)
    response = _fetched(broker, request, state, lock_ms)
    broker.runtime.quotas.record_share_fetch(request, response)
    return response


def _fault(broker: BrokerParts, message: Any) -> ErrorCode:
    """Return what is wrong with a request of a share group, whatever its session."""
    if not broker.coordinators.groups.coordinator.config.share.is_enabled:
        return ErrorCode.UNSUPPORTED_VERSION
    if message.group_id is None or not message.member_id or len(message.member_id) > _LONGEST_MEMBER_ID:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _fetch_fault(message: fetching.ShareFetchRequest) -> ErrorCode:
    if message.is_renew_ack and (message.max_wait_ms or message.min_bytes or message.max_bytes or message.max_records):
        return ErrorCode.INVALID_REQUEST
    has_acknowledgements = any(part.acknowledgement_batches for topic in message.topics for part in topic.partitions)
    if message.share_session_epoch == OPENING and has_acknowledgements:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _session(broker: BrokerParts, request: Request[Any], key: SessionKey) -> ShareSession | ErrorCode:
    epoch = request.message.share_session_epoch
    if epoch == OPENING:
        return broker.share_sessions.open(key, request.connection)
    return broker.share_sessions.find(key, epoch)


# ---- acknowledgements


async def _acknowledged(
    broker: BrokerParts, request: Request[Any], place: Place, batches: Sequence[Any], may_read: MayRead
) -> ErrorCode:
    """Apply the acknowledgements of a partition; return the outcome."""
    message = request.message
    shared = await _opened(broker, message.group_id, place, may_read)
    if isinstance(shared, ErrorCode):
        return shared
    may_renew = request.version >= _FIRST_WITH_RENEWAL and message.is_renew_ack
    types = range(RENEW + 1) if may_renew else range(RENEW)
    acknowledgements, before = list[RecordAcknowledgement](), -1
    async for batch in request.turns.over(batches):
        size = batch.last_offset - batch.first_offset + 1
        is_sound = size >= 1 and len(batch.acknowledge_types) in (1, size) and batch.first_offset >= before
        if not is_sound or any(kind not in types for kind in batch.acknowledge_types):
            return ErrorCode.INVALID_REQUEST
        if batch.first_offset == before:
            return ErrorCode.INVALID_RECORD_STATE
        before = batch.last_offset
        acknowledgements.append(RecordAcknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types))
    return await broker.shared_partitions.acknowledge(shared, message.member_id, acknowledgements)


async def _opened(broker: BrokerParts, group_id: str, place: Place, may_read: MayRead) -> SharedPartition | ErrorCode:
    """Return the records in flight of a partition, or why they are not given to the member."""
    topic_id, index = place
    name = broker.topics.name_of(topic_id)
    if not name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if may_read is not None and not may_read(name):
        return TOPIC_REFUSED
    try:
        shared = await broker.shared_partitions.opened(StateKey(group_id, topic_id, index), name)
    except MagicbyteError as error:
        return error.code
    if not isinstance(shared, ErrorCode):
        return shared
    if shared is ErrorCode.INVALID_REQUEST:  # there is no such state, so no such group
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if shared in _COORDINATOR else shared


async def share_acknowledge(
    broker: BrokerParts, request: Request[acknowledging.ShareAcknowledgeRequest], may_read: MayRead = None
) -> acknowledging.ShareAcknowledgeResponse:
    """Acknowledge records of a session."""
    message = request.message
    if code := _fault(broker, message):
        return acknowledging.ShareAcknowledgeResponse(error_code=code)
    key = SessionKey(message.group_id or "", message.member_id or "")
    if message.share_session_epoch == OPENING:
        return acknowledging.ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = _session(broker, request, key)
    if isinstance(session, ErrorCode):
        return acknowledging.ShareAcknowledgeResponse(error_code=session)
    response = acknowledging.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=broker.shared_partitions.rules.lock_ms
    )
    leaders = set[int]()
    async for topic in request.turns.over(message.topics, _STEPS):
        parts = list[acknowledging.PartitionData]()
        async for each in request.turns.over(topic.partitions, _STEPS):
            place = topic.topic_id, each.partition_index
            code = await _acknowledged(broker, request, place, each.acknowledgement_batches, may_read)
            part = acknowledging.PartitionData(partition_index=each.partition_index, error_code=code)
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader, epoch = current_leader(broker, broker.topics.name_of(topic.topic_id), each.partition_index)
                part.current_leader = acknowledging.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
            parts.append(part)
        response.responses.append(
            acknowledging.ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=parts)
        )
    if message.share_session_epoch == CLOSING:
        broker.shared_partitions.release(*key, session.partitions)
    response.node_endpoints = [
        acknowledging.NodeEndpoint(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
        for each in live_leaders(broker, request.connection.listener, leaders)
    ]
    return response


# ---- records


async def _fetch(
    broker: BrokerParts,
    request: Request[fetching.ShareFetchRequest],
    session: ShareSession,
    state: _Fetching,
    may_read: MayRead,
) -> None:
    """Acquire records once there are some, or an error, or the time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.message.max_wait_ms / 1000
    while True:
        event = asyncio.Event()
        watched: list[SharedPartition] = []
        try:
            for place in list(session.partitions):
                await request.turns.take(_STEPS)
                shared = await _opened(broker, session.key.group_id, place, may_read)
                if isinstance(shared, ErrorCode):
                    if shared is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                        _refuse(broker, state, place, shared)
                    continue
                shared.waiting[event] = shared.partition.waiting[event] = None
                watched.append(shared)
                await _take(broker, request, session, state, shared)
            left = deadline - loop.time()
            if state.records or state.has_error or left <= 0 or broker.runtime.is_stopping:
                return
            started = now_ns()
            try:
                async with asyncio.timeout(left if watched else min(left, 0.1)):
                    await event.wait()
            except TimeoutError:
                pass
            request.connection.waited_ns += now_ns() - started
        finally:
            for each in watched:
                each.waiting.pop(event, None)
                each.partition.waiting.pop(event, None)


def _refuse(broker: BrokerParts, state: _Fetching, place: Place, code: ErrorCode) -> None:
    told = state.at(place)
    told.is_told, told.data.error_code = True, code
    state.has_error = True
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        leader, epoch = current_leader(broker, broker.topics.name_of(place[0]), place[1])
        told.data.current_leader = fetching.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)


async def _take(
    broker: BrokerParts,
    request: Request[fetching.ShareFetchRequest],
    session: ShareSession,
    state: _Fetching,
    shared: SharedPartition,
) -> None:
    """Acquire records of one partition, as far as the limits of the request allow."""
    message = request.message
    left = message.max_records - state.records
    most_bytes = min(message.max_bytes, broker.runtime.config.fetch_max_bytes) - state.size
    if left <= 0 or (state.size and most_bytes <= 0):
        return
    is_strict = message.share_acquire_mode == _RECORD_LIMIT
    wanted = Wanted(left, max(message.batch_size, 1), is_strict=is_strict)
    read_from = shared.key.topic_id, shared.key.partition
    try:
        delivery = await broker.shared_partitions.acquire(shared, session.key.member_id, wanted, max(most_bytes, 0))
    except MagicbyteError as error:
        if isinstance(error, CorruptRecordError):
            shared.partition.tell_damage(error)
        _refuse(broker, state, read_from, error.code)
        return
    if delivery is None:
        return
    answered = state.at(read_from)
    answered.is_told = True
    answered.data.records = [delivery.data]
    answered.data.acquired_records = [
        fetching.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in delivery.runs
    ]
    state.records += sum(last - first + 1 for first, last, _ in delivery.runs)
    state.size += len(delivery.data)
    broker.runtime.metrics.of(shared.partition.topic).fetch_requests += 1
    session.to_end(read_from)


def _fetched(
    broker: BrokerParts, request: Request[fetching.ShareFetchRequest], state: _Fetching, lock_ms: int
) -> fetching.ShareFetchResponse:
    topics: dict[uuid.UUID, list[fetching.PartitionData]] = {}
    leaders = set[int]()
    for (topic_id, _), each in state.found.items():
        if each.is_told:
            topics.setdefault(topic_id, []).append(each.data)
            if each.data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leaders.add(each.data.current_leader.leader_id)
    return fetching.ShareFetchResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[
            fetching.ShareFetchableTopicResponse(topic_id=topic_id, partitions=parts)
            for topic_id, parts in topics.items()
        ],
        node_endpoints=_endpoints(broker, request, leaders),
    )


def _endpoints(broker: BrokerParts, request: Request[Any], leaders: Iterable[int]) -> list[fetching.NodeEndpoint]:
    return [
        fetching.NodeEndpoint(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
        for each in live_leaders(broker, request.connection.listener, leaders)
    ]


# ---- rights


async def _authorized_fetch(
    broker: BrokerParts, request: Request[fetching.ShareFetchRequest], _handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Return records with group Read (30) of topics with topic Read (29)."""
    if not caller.may(READ_GROUP, request.message.group_id or ""):
        return fetching.ShareFetchResponse(error_code=GROUP_REFUSED)
    return await share_fetch(broker, request, partial(caller.has, AclOperation.READ, ResourceType.TOPIC))


async def _authorized_acknowledge(
    broker: BrokerParts,
    request: Request[acknowledging.ShareAcknowledgeRequest],
    _handler: Handler,
    caller: AuthorizedCaller,
) -> Message | None:
    """Acknowledge with group Read (30) records of topics with topic Read (29)."""
    if not caller.may(READ_GROUP, request.message.group_id or ""):
        return acknowledging.ShareAcknowledgeResponse(error_code=GROUP_REFUSED)
    return await share_acknowledge(broker, request, partial(caller.has, AclOperation.READ, ResourceType.TOPIC))


ROUTES: Final = (
    Route(
        ApiKey.SHARE_FETCH,
        range(3),
        share_fetch,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_authorized_fetch,
    ),
    Route(
        ApiKey.SHARE_ACKNOWLEDGE,
        range(3),
        share_acknowledge,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_authorized_acknowledge,
    ),
)
