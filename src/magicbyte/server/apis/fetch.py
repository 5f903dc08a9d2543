"""Fetch: stored records by `sendfile` if the client supports their format, else converted; waits for new records.

Sources: KIP-31, KIP-32 (formats by version), KIP-74 (limits), KIP-98 (isolation), KIP-227 (sessions), KIP-320 (epochs),
KIP-516 (topic ids), KIP-951 (leaders in responses).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from msgspec import Struct, field

from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.errors import (
    CorruptRecordError,
    ErrorCode,
    LogDirectoryOfflineError,
    MagicbyteError,
    OffsetOutOfRangeError,
    UnsupportedVersionError,
)
from magicbyte.engine.log.live.lookups import aborted_in_slice, size_in_segment
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.protocol.first_versions import FETCH_BY_ID, FETCH_WITH_WHOLE_SETS
from magicbyte.engine.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import LOG_OVERHEAD, SIZE, Dialect
from magicbyte.engine.replication import truncation
from magicbyte.engine.replication.truncation import UNDEFINED, EpochEnd
from magicbyte.server.apis.leaders import current_leader, live_leaders
from magicbyte.server.apis.sessions import AskedTopic
from magicbyte.server.partitions.conversion import SliceConversion, converted, newest_magic
from magicbyte.server.partitions.partition import tell_corrected_index
from magicbyte.server.serving.authorization import (
    TOPIC_REFUSED,
    AuthorizedCaller,
)
from magicbyte.server.serving.metrics import count, now_ns
from magicbyte.server.serving.parts import ConvertedPart, FilePart, KeptFile
from magicbyte.server.serving.routes import MANY, MIB, Route
from magicbyte.server.serving.turns import STEPS_AT_ONCE

if TYPE_CHECKING:
    from magicbyte.engine.log.files.indexes import AbortedTransaction as IndexedAbort
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.log.live.segment import FileSlice
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.apis.sessions import BegunFetch, FoundPartition
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.serving.request import Handler, Request

    _Watched: TypeAlias = tuple[FetchPartition, ServedPartition]

T = TypeVar("T")

_FORMAT_OF_VERSION: Final = (Format.V0, Format.V0, Format.V1, Format.V1)  # later ones: V2
_FIRST_WITH_STORAGE_ERROR: Final = 6
_FIRST_WITH_ZSTD: Final = 10
_FIRST_FROM_FOLLOWERS: Final = 11
_FIRST_WITH_REPLICA_STATE: Final = 15
_FIRST_WITH_LEADERS: Final = 16
_WITH_LEADER: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_WITHOUT_LOG: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
"""Errors that name no log: from version 13 on they have an empty array of aborted transactions, and others null."""
_NEED_NOT_ANSWER: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Errors that remain for as long as a reader asks: as in Kafka, they do not end the wait for other partitions."""
_COMMITTED: Final = 1
_EMPTY: Final = b""
_STEPS: Final = 20  # to read a partition
_LONGEST_LARGE_WAIT_MS: Final = 1000  # of a request that holds much memory
_MOST_HELD_BYTES: Final = 4 << 20  # converted before the first byte of a response is sent


class _PartitionResult(Struct):
    """What lies at one partition: `size` bytes of stored records for the reader, or an error in `data`.

    Records that are sent as they are stored are in `data`. Those to be converted, of `partition`, are in `stored`: they
    are converted when the response is final, so once for a reader that waits for many bytes. `source` and `target` are
    their formats. `must_answer_now`: there is something besides records to report immediately.
    """

    topic: AskedTopic
    asked: FetchPartition
    data: PartitionData
    size: int = 0
    partition: ServedPartition | None = None
    stored: FileSlice | None = None
    source: Format = Format.V2
    target: Format = Format.V2
    must_answer_now: bool = False


class _Reading(Struct):
    """One pass over all partitions of a request: `size` bytes were found, `left` may still be read.

    `is_first`: a follower's fetch offsets acknowledge earlier records, which is applied only in the first pass.
    """

    left: int
    size: int = 0
    is_first: bool = True
    has_error: bool = False
    found: list[_PartitionResult] = field(default_factory=list)

    def add(self, result: _PartitionResult) -> None:
        """Add what lies at the next partition."""
        self.found.append(result)
        self.size += result.size
        self.left -= result.size
        code = result.data.error_code
        self.has_error = self.has_error or result.must_answer_now or (bool(code) and code not in _NEED_NOT_ANSWER)

    def close(self) -> None:
        """Release what was found, which will not be sent."""
        for each in self.found:
            give_back(each.data)


def give_back(data: PartitionData) -> None:
    """Release the resources in a partition's response, which will not be sent."""
    for piece in data.records or ():
        if isinstance(piece, FilePart | ConvertedPart):
            piece.close()


async def fetch(
    broker: BrokerParts, request: Request[FetchRequest], may_read: Callable[[str], bool] | None = None
) -> FetchResponse:
    """Return records once there are `min_bytes`, or an error, or `max_wait_ms` have passed.

    `may_read`: whether the client may read a topic; it is asked again in each pass. None: it may read all.
    """
    _name_replica(request)
    request = broker.runtime.quotas.limited_fetch(request)
    message = request.message
    begun = await _begin(broker, request)
    if begun.error:
        return FetchResponse(error_code=begun.error)
    loop = asyncio.get_running_loop()
    wait_ms = min(message.max_wait_ms, _LONGEST_LARGE_WAIT_MS) if request.is_large else message.max_wait_ms
    deadline = loop.time() + wait_ms / 1000
    is_first = True
    while True:
        event = asyncio.Event()
        watched: list[_Watched] = []
        try:
            await _watch(broker, request, begun, event, watched, may_read)
            reading = await _read(broker, request, begun, may_read, is_first=is_first)
            is_first = False
            left = deadline - loop.time()
            enough = reading.size >= message.min_bytes or reading.has_error or not watched
            if not enough and left > 0:
                try:
                    enough = await _is_enough_stored(broker, request, watched)
                except BaseException:
                    reading.close()
                    raise
                if enough and event.is_set():  # records came just now
                    reading.close()
                    reading = await _read(broker, request, begun, may_read)
            if enough or left <= 0 or broker.runtime.is_stopping:
                if broker.runtime.quotas.is_limiting and _exceeds_client_quota(broker, request, begun, reading):
                    reading.close()
                    return _nothing(broker, begun)
                try:
                    await _answer(broker, request, reading.found)
                    response = await _response(broker, request, begun, reading)
                except BaseException:
                    reading.close()
                    raise
                if _is_follower(message):
                    for each in reading.found:
                        broker.leader_throttle.record(each.topic.name, each.data.partition_index, each.size)
                return response
            reading.close()
            started = now_ns()
            await _wait(event, left)
            request.connection.waited_ns += now_ns() - started
        finally:
            for _, partition in watched:
                partition.waiting.pop(event, None)
                partition.waiting_followers.pop(event, None)


def _exceeds_client_quota(
    broker: BrokerParts, request: Request[FetchRequest], begun: BegunFetch, reading: _Reading
) -> bool:
    """Return whether the client gets nothing now because its quota is used up; otherwise count what it gets."""
    told = [
        (each.topic.name, each.data, each.size)
        for each in reading.found
        if not begun.is_incremental or each.size or each.data.error_code
    ]
    return broker.runtime.quotas.is_held_back(request, told)


def _nothing(broker: BrokerParts, begun: BegunFetch) -> FetchResponse:
    """Return the response to a throttled client. A session of the request is dropped: the next one begins another."""
    if begun.session is None:
        return FetchResponse()
    if begun.is_incremental:
        return FetchResponse(session_id=begun.session.id)
    broker.sessions.close(begun.session.id)
    return FetchResponse()


async def _begin(broker: BrokerParts, request: Request[FetchRequest]) -> BegunFetch:
    name_of = broker.topics.name_of if request.version >= FETCH_BY_ID else None
    steps = broker.sessions.begin_in_steps(request.message, broker.runtime.clock.monotonic_ms(), name_of)
    while True:
        try:
            for _ in range(STEPS_AT_ONCE):
                next(steps)
        except StopIteration as end:
            begun: BegunFetch = end.value
            return begun
        await request.turns.take(STEPS_AT_ONCE)


async def _watch(
    broker: BrokerParts,
    request: Request[FetchRequest],
    begun: BegunFetch,
    event: asyncio.Event,
    watched: list[_Watched],
    may_read: Callable[[str], bool] | None,
) -> None:
    """Register `event` for new records of partitions, before they are read, so that none is missed.

    `watched` gets the partitions, for deregistration.
    """
    async for topic, asked in request.turns.over(begun.partitions):
        if (topic.id is not None or may_read is not None) and _topic_fault(broker, topic, may_read):
            continue
        if (partition := await broker.replicas.known_partition(topic.name, asked.partition)) is not None:
            waiting = partition.waiting_followers if _is_follower(request.message) else partition.waiting
            waiting[event] = None
            watched.append((asked, partition))


def _topic_fault(broker: BrokerParts, topic: AskedTopic, may_read: Callable[[str], bool] | None) -> ErrorCode:
    """Return why a topic cannot be read by its id, or by this client."""
    if topic.id is not None and not topic.name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if may_read is not None and not may_read(topic.name):
        return TOPIC_REFUSED
    if topic.id is None:
        return ErrorCode.NONE
    known = broker.topics.get(topic.name)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if known.id == topic.id else ErrorCode.INCONSISTENT_TOPIC_ID  # another one has its name now


async def _is_enough_stored(broker: BrokerParts, request: Request[FetchRequest], watched: Sequence[_Watched]) -> bool:
    """Return whether a fetch with a result below `min_bytes` should not wait.

    The result may end before the stored records do: at the end of a segment, to which nothing more is appended, or
    at a limit of the request. As in Kafka's DelayedFetch, this counts all bytes up to the last offset that the reader
    may have, and a segment that is not the last one is enough.
    """
    stored = 0
    async for asked, partition in request.turns.over(watched, _STEPS):
        log, offset = partition.log, asked.fetch_offset
        upper = _upper(partition, request.message)
        if offset >= upper or _is_replication_throttled(broker, request.message, partition):
            continue
        try:
            size = await broker.replicas.read(partition, size_in_segment, log, offset, upper)
        except MagicbyteError:  # deleted or damaged meanwhile, which the next pass reports
            continue
        if size is None:
            return True
        stored += min(size, asked.partition_max_bytes)
    return stored >= request.message.min_bytes


def _name_replica(request: Request[FetchRequest]) -> None:
    """Set the field that names the replica in earlier versions."""
    if request.version >= _FIRST_WITH_REPLICA_STATE:
        request.message.replica_id = request.message.replica_state.replica_id


def _is_follower(message: FetchRequest) -> bool:
    return message.replica_id >= 0


def _upper(partition: ServedPartition, message: FetchRequest) -> int:
    """Return the end offset for the reader: followers also get records that are not committed.

    With group commit these are durable here: else this broker could lose them, lead again in the same epoch, and write
    other records at their offsets, which followers could not tell from theirs.
    """
    log = partition.log
    if _is_follower(message):
        leader = partition.leader
        return leader.log_end_offset if leader is not None and log.config.group_commit else log.log_end_offset
    return log.last_stable_offset if message.isolation_level == _COMMITTED else log.high_watermark


def _is_replication_throttled(broker: BrokerParts, message: FetchRequest, partition: ServedPartition) -> bool:
    """Return whether a follower that is not in sync gets nothing now because it is throttled."""
    if not _is_follower(message) or partition.leader is None or message.replica_id in partition.leader.state.isr:
        return False
    return broker.leader_throttle.holds_back(partition.topic, partition.index)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


async def _response(
    broker: BrokerParts, request: Request[FetchRequest], begun: BegunFetch, reading: _Reading
) -> FetchResponse:
    answers: list[FoundPartition] = [(each.topic, each.data, each.size) for each in reading.found]
    if begun.session is not None:
        news: list[FoundPartition] = []
        for at in range(0, len(answers), STEPS_AT_ONCE):
            some = answers[at : at + STEPS_AT_ONCE]
            news += begun.session.news(some)
            await request.turns.take(len(some))
        answers = news if begun.is_incremental else answers
    topics: list[FetchableTopicResponse] = []
    last = None
    async for topic, data, _ in request.turns.over(answers):
        if topic != last:
            topics.append(FetchableTopicResponse(topic=topic.name, topic_id=topic.id or NULL_UUID))
            last = topic
        topics[-1].partitions.append(data)
    response = FetchResponse(session_id=0 if begun.session is None else begun.session.id, responses=topics)
    if reading.has_error and request.version >= _FIRST_WITH_LEADERS:
        _add_leaders(broker, request, response)
    return response


def _add_leaders(broker: BrokerParts, request: Request[FetchRequest], response: FetchResponse) -> None:
    """Add the leaders of the partitions that are led by other brokers, and their addresses."""
    leaders = set[int]()
    for topic in response.responses:
        for part in topic.partitions:
            if part.error_code in _WITH_LEADER:
                leader, epoch = current_leader(broker, topic.topic, part.partition_index)
                part.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
    response.node_endpoints = [
        NodeEndpoint(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
        for each in live_leaders(broker, request.connection.listener, leaders)
    ]


async def _read(
    broker: BrokerParts,
    request: Request[FetchRequest],
    begun: BegunFetch,
    may_read: Callable[[str], bool] | None,
    *,
    is_first: bool = False,
) -> _Reading:
    limited = request.version >= FETCH_WITH_WHOLE_SETS
    most = (
        min(request.message.max_bytes, broker.runtime.config.fetch_max_bytes) if limited else request.message.max_bytes
    )
    reading = _Reading(most, is_first=is_first)
    try:
        async for topic, asked in request.turns.over(begun.partitions, _STEPS):
            if (topic.id is not None or may_read is not None) and (code := _topic_fault(broker, topic, may_read)):
                reading.add(_refused(broker, request, topic, asked, code))
            else:
                reading.add(await _find(broker, request, topic, asked, reading))
    except BaseException:
        reading.close()
        raise
    return reading


# ---- what lies there


async def _find(
    broker: BrokerParts, request: Request[FetchRequest], topic: AskedTopic, asked: FetchPartition, reading: _Reading
) -> _PartitionResult:
    """Return what lies at a partition for a reader: records, or an error code."""
    partition = None
    try:
        partition = await broker.replicas.opened(topic.name, asked.partition)
        return await _lying(broker, request, topic, partition, asked, reading)
    except MagicbyteError as error:
        return _failed(broker, request, topic, asked, partition, error)


def _failed(
    broker: BrokerParts,
    request: Request[FetchRequest],
    topic: AskedTopic,
    asked: FetchPartition,
    partition: ServedPartition | None,
    error: MagicbyteError,
) -> _PartitionResult:
    if isinstance(error, CorruptRecordError) and partition is not None:
        partition.tell_damage(error)
    code = error.code
    if code == ErrorCode.KAFKA_STORAGE_ERROR and request.version < _FIRST_WITH_STORAGE_ERROR:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return _refused(broker, request, topic, asked, code)


def _refused(
    broker: BrokerParts, request: Request[FetchRequest], topic: AskedTopic, asked: FetchPartition, code: ErrorCode
) -> _PartitionResult:
    # otherwise clients could create counters for arbitrary names
    if topic.name in broker.runtime.metrics.topics:
        broker.runtime.metrics.of(topic.name).fetches_failed += 1
    data = PartitionData(  # librdkafka takes null in place of no records for damage
        partition_index=asked.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=[] if request.version >= FETCH_BY_ID and code in _WITHOUT_LOG else None,
        records=_EMPTY,
    )
    return _PartitionResult(topic, asked, data)


async def _lying(
    broker: BrokerParts,
    request: Request[FetchRequest],
    topic: AskedTopic,
    partition: ServedPartition,
    asked: FetchPartition,
    reading: _Reading,
) -> _PartitionResult:
    message, log = request.message, partition.log
    broker.runtime.metrics.of(topic.name).fetch_requests += 1
    code = _role_fault(request, partition, asked) or _codec_fault(broker, request, topic.name)
    if code:
        return _refused(broker, request, topic, asked, code)
    if (nearest := _nearest(broker, request, partition, asked)) is not None:
        data = _marks(partition, asked)
        data.preferred_read_replica = nearest
        return _PartitionResult(topic, asked, data, must_answer_now=True)
    committed = message.isolation_level == _COMMITTED
    upper = _upper(partition, message)
    if log.health.error is not None:
        raise LogDirectoryOfflineError(f"{log.health.path}: offline since {log.health.error}")
    if (diverging := _diverging(request, partition, asked)) is not None:
        data = _marks(partition, asked)
        data.diverging_epoch = diverging
        return _PartitionResult(topic, asked, data, must_answer_now=True)
    stored, aborted = await _slice(broker, request, partition, asked, reading, upper)
    if reading.is_first and _is_follower(message):
        if code := _role_fault(request, partition, asked):  # its roles may have changed meanwhile
            return _refused(broker, request, topic, asked, code)
        broker.replicas.fetched(partition, message.replica_id, asked)
    data = _marks(partition, asked)
    data.aborted_transactions = [] if committed else None
    if stored is None or _is_replication_throttled(broker, message, partition):
        return _PartitionResult(topic, asked, data)
    if committed:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted
        ]
    return await _in_its_format(
        broker, request, _PartitionResult(topic, asked, data, partition=partition), partition, stored
    )


def _marks(partition: ServedPartition, asked: FetchPartition) -> PartitionData:
    """Return the offsets of a log as they are now, without records."""
    log = partition.log
    return PartitionData(
        partition_index=asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=_EMPTY,
    )


def _role_fault(request: Request[FetchRequest], partition: ServedPartition, asked: FetchPartition) -> ErrorCode:
    """Check this broker's role and the client's leader epoch (KIP-320).

    Consumers may read from a follower from version 11 on (KIP-392). An unknown follower gets REPLICA_NOT_AVAILABLE.
    """
    fault = epoch_fault(asked.current_leader_epoch, partition.leader_epoch)
    if fault:
        return fault
    is_follower = _is_follower(request.message)
    if partition.leader is None:
        may_follow = request.version >= _FIRST_FROM_FOLLOWERS and not is_follower and partition.leader_id >= 0
        return ErrorCode.NONE if may_follow else ErrorCode.NOT_LEADER_OR_FOLLOWER
    if is_follower and request.message.replica_id not in partition.leader.followers:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE


def _codec_fault(broker: BrokerParts, request: Request[FetchRequest], topic: str) -> ErrorCode:
    zstd = broker.topics.known(topic).config.settings["compression.type"] == "zstd"
    return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if zstd and request.version < _FIRST_WITH_ZSTD else ErrorCode.NONE


def _diverging(
    request: Request[FetchRequest], partition: ServedPartition, asked: FetchPartition
) -> EpochEndOffset | None:
    """Return where the reader's last epoch ends in this log, if it ends elsewhere: its log diverges (KIP-595).

    Raises OffsetOutOfRangeError for a follower whose last epoch is unknown: it truncates by offsets.
    """
    if asked.last_fetched_epoch < 0:
        return None
    log = partition.log
    end = EpochEnd(*log.epochs.end_offset_of(asked.last_fetched_epoch, log.log_end_offset))
    if end.end_offset == UNDEFINED and _is_follower(request.message):
        raise OffsetOutOfRangeError(f"{partition}: the end of epoch {asked.last_fetched_epoch} is not known")
    found = truncation.diverging(asked.last_fetched_epoch, asked.fetch_offset, end)
    return None if found is None else EpochEndOffset(epoch=found.epoch, end_offset=found.end_offset)


def _nearest(
    broker: BrokerParts, request: Request[FetchRequest], partition: ServedPartition, asked: FetchPartition
) -> int | None:
    """Return the replica in the reader's rack, None to read here (KIP-392)."""
    message = request.message
    if request.version < _FIRST_FROM_FOLLOWERS or not message.rack_id or _is_follower(message):
        return None
    return broker.replicas.nearest(partition, message.rack_id, asked.fetch_offset)


async def _slice(
    broker: BrokerParts,
    request: Request[FetchRequest],
    partition: ServedPartition,
    asked: FetchPartition,
    reading: _Reading,
    upper: int,
) -> tuple[FileSlice | None, list[IndexedAbort]]:
    """Return the readable slice of stored bytes, or None, and for `read_committed` the aborted transactions in it.

    Raises OffsetOutOfRangeError.
    """
    log, committed = partition.log, request.message.isolation_level == _COMMITTED
    limit = max(min(asked.partition_max_bytes, reading.left), 0)
    strict = request.version < FETCH_WITH_WHOLE_SETS
    whole_first = not strict and not reading.size
    recent = None
    if upper == log.log_end_offset:
        if asked.fetch_offset == upper:
            return None, []
        recent = partition.recent(asked.fetch_offset, limit)
        if recent is not None and not committed:
            return recent, []
    read = partial(log.read, asked.fetch_offset, limit, upper=upper, whole_first=whole_first)
    read = read if strict or whole_first else partial(_if_whole, read)
    if not committed:
        return await broker.replicas.read(partition, read), []
    find = (lambda: recent) if recent is not None else read
    search = partial(_with_aborted, find, log, asked.fetch_offset, upper)
    try:
        return await broker.replicas.read(partition, search)
    finally:
        for error in log.take_index_faults():
            tell_corrected_index(partition, error)


async def _in_its_format(
    broker: BrokerParts,
    request: Request[FetchRequest],
    result: _PartitionResult,
    partition: ServedPartition,
    stored: FileSlice,
) -> _PartitionResult:
    """Add the slice: as it is stored, or to be converted for this reader."""
    version, dialect = request.version, partition.log.config.dialect
    target = Format.V2 if version >= len(_FORMAT_OF_VERSION) else _FORMAT_OF_VERSION[version]
    source = target
    if dialect is Dialect.ENRICHED:
        source = Format.ENRICHED
        # A follower of an enriched topic is a magicbyte broker, and stores the bytes unchanged.
        is_closed = request.connection.enriched or _is_follower(request.message)
        target = source if is_closed else target
    elif target is not Format.V2:
        newest, stored = await _newest(broker, partition, stored, target.magic)
        source = target if newest < 0 else Format(str(newest))
    result.size, result.source, result.target = stored.length, source, target
    if source is target or (dialect is Dialect.KAFKA and source.magic < target.magic):
        result.target = source
        result.data.records = [FilePart(stored, broker.runtime.reading)]
    elif broker.topics.known(partition.topic).config.downconversion_enabled:
        result.stored = stored
    else:
        raise UnsupportedVersionError("Fetch of a newer format", version)
    return result


async def _newest(
    broker: BrokerParts, partition: ServedPartition, stored: FileSlice, target: int
) -> tuple[int, FileSlice]:
    """Return the newest magic of the whole entries in a slice, or an upper bound of it if that is at most `target`.

    Also returns the slice, which ends before any damage.
    """
    assert stored.segment is not None, "of a log"
    known = partition.newest_up_to(stored.segment, stored.position + stored.length)
    if known is not None and known <= target:
        return known, stored
    newest, end, damage = await broker.replicas.read_long(partition, newest_magic, stored)
    partition.saw(stored.segment, stored.position, end, newest)
    if damage is not None:
        partition.tell_damage(damage)
        stored = stored._replace(length=end - stored.position)
    return newest, stored


# ---- what to answer


async def _answer(broker: BrokerParts, request: Request[FetchRequest], results: list[_PartitionResult]) -> None:
    """Make what was found ready to be sent: count it, and convert what is to be converted."""
    held = 0
    for at, result in enumerate(results):
        if (stored := result.stored) is None:
            if result.data.records is not _EMPTY:
                what = (result.source, result.target, request.version, request.client)
                count(broker.runtime.metrics.of(result.topic.name).fetched, what, result.size, 1, 0)
            continue
        result.stored = None
        try:
            held += await _convert(broker, request, result, stored, held)
        except MagicbyteError as error:
            results[at] = _failed(broker, request, result.topic, result.asked, result.partition, error)


async def _convert(
    broker: BrokerParts, request: Request[FetchRequest], result: _PartitionResult, stored: FileSlice, held: int
) -> int:
    """Add the slice in the target format: all of it if it is small, else converted while it is sent.

    The converted bytes held for a response, `held` before, are bounded: beyond that, the chunks converted to determine
    a slice's size are converted again when it is sent. Returns how many are held for this one.
    """
    partition, metrics = result.partition, broker.runtime.metrics.of(result.topic.name)
    assert partition is not None, "its records were found"
    limit = broker.topics.rules(result.topic.name).max_decompressed_bytes
    dialect, first_offset = partition.log.config.dialect, result.asked.fetch_offset
    kept = KeptFile(stored.file, broker.runtime.reading)

    def convert(how: SliceConversion) -> Iterator[list[memoryview]]:
        found_here = stored._replace(file=kept)
        return partition.telling_damage(converted(found_here, dialect, how, first_offset, limit))

    async def in_thread(step: Callable[[], T]) -> T:
        async with broker.runtime.memory.work(limit):
            broker.runtime.trimming.ask()
            return await broker.runtime.reading.run(step)

    conversion = SliceConversion(result.source, result.target)
    chunks = convert(conversion)
    try:
        first, second = await in_thread(partial(_first_two, chunks))
    except BaseException:
        kept.close()
        raise
    size = sum(map(len, first)) + sum(map(len, second))
    announced = max(stored.length, size) if second else size
    is_held = not held or held + size <= _MOST_HELD_BYTES
    if not is_held:
        conversion = SliceConversion(result.source, result.target)
        first, second, chunks = [], [], convert(conversion)
    report = conversion.report
    what = (result.source, result.target, request.version, request.client)

    def done() -> None:
        kept.close()
        count(metrics.fetched, what, report.bytes_in, report.batches, conversion.time_ns, report.records)

    if is_held and not second:
        done()
        result.data.records = [*first]
    else:
        result.data.records = [ConvertedPart(announced, first + second, chunks, done, in_thread)]
    return size if is_held else 0


def _with_aborted(
    find: Callable[[], FileSlice | None], log: PartitionLog, first: int, upper: int
) -> tuple[FileSlice | None, list[IndexedAbort]]:
    """Return the slice that is found, and the aborted transactions in it."""
    found = find()
    return found, [] if found is None else aborted_in_slice(log, first, upper, found)


def _if_whole(read: Callable[[], FileSlice | None]) -> FileSlice | None:
    """Return the slice that is read, None if its first entry is incomplete."""
    found = read()
    if found is None or found.length < LOG_OVERHEAD:
        return None
    head = memoryview(found.file.read_at(found.position, LOG_OVERHEAD))
    return found if LOG_OVERHEAD + SIZE.read(head) <= found.length else None


def _first_two(chunks: Iterator[list[memoryview]]) -> tuple[list[memoryview], list[memoryview]]:
    """Return the first two chunks; an error after the first is left to the next fetch."""
    first = next(chunks, [])
    try:
        return first, next(chunks, [])
    except MagicbyteError:
        return first, []


def epoch_fault(known: int, ours: int) -> ErrorCode:
    """Return the error of a client's leader epoch; -1: the client sent none."""
    if known < 0 or known == ours:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if known < ours else ErrorCode.UNKNOWN_LEADER_EPOCH


async def _authorized_fetch(
    broker: BrokerParts, request: Request[FetchRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Return topics with topic Read (29), all to brokers with ClusterAction. Each partition is checked at each fetch"""
    _name_replica(request)
    if not _is_follower(request.message):
        return await fetch(broker, request, lambda name: caller.has(AclOperation.READ, ResourceType.TOPIC, name))
    if caller.has(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return await handler(request)
    refused = [
        FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                _refused(broker, request, AskedTopic(topic.topic), each, TOPIC_REFUSED).data
                for each in topic.partitions
            ],
        )
        for topic in request.message.topics
    ]
    return FetchResponse(responses=refused)


ROUTES: Final = (
    Route(
        ApiKey.FETCH,
        range(19),
        fetch,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_authorized_fetch,
    ),
)
