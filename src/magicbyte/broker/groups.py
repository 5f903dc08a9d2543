"""The group coordinator at work: its requests, its timer, and the log in which it keeps what it knows.

Decisions are made in `groups/`. Here records are appended to `__consumer_offsets`, and whoever waits gets its answer.
Offsets of version 0 are those that old consumers keep in ZooKeeper: they are in the metadata tree.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from magicbyte.broker.appends import Acknowledgement, NewSet
from magicbyte.broker.cluster_view import NOBODY
from magicbyte.broker.metrics import now_ns
from magicbyte.broker.partition import NO_EPOCH
from magicbyte.broker.pieces import joined, pieces
from magicbyte.broker.turns import STEPS_AT_ONCE
from magicbyte.codecs import Codec
from magicbyte.errors import (
    AppendRefusedError,
    CoordinatorNotAvailableError,
    CorruptRecordError,
    ErrorCode,
    LogDirectoryError,
    MagicbyteError,
    MetadataError,
    NotLeaderError,
    TopicExistsError,
)
from magicbyte.groups.config import GroupConfig, StoredVersions
from magicbyte.groups.coordinator import ANSWERED, Coordinator
from magicbyte.groups.effects import Caller, Effect, Reply, Store, encoded
from magicbyte.groups.loading import LoadedPartition, Loading
from magicbyte.groups.partitioning import OFFSETS_TOPIC, partition_for
from magicbyte.groups.records import GroupMetadataValue
from magicbyte.metadata import layout
from magicbyte.ports import Moment, TopicPartition
from magicbyte.printable import logger
from magicbyte.protocol.messages.describe_groups import DescribeGroupsResponse
from magicbyte.protocol.messages.find_coordinator import (
    Coordinator as FoundCoordinator,
)
from magicbyte.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from magicbyte.protocol.messages.join_group import JoinGroupResponse
from magicbyte.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from magicbyte.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from magicbyte.records.columns import Record
from magicbyte.records.encode import BatchHeader, Format, encode_records
from magicbyte.records.layout import TimestampType

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker
    from magicbyte.broker.config import BrokerConfig
    from magicbyte.broker.request import Handler, Request
    from magicbyte.broker.topic_table import Topic
    from magicbyte.log.live.partition_log import PartitionLog
    from magicbyte.protocol import Message

log = logger(__name__)

READ_BYTES: Final = 4 << 20  # of a partition's log at a time, when its groups are loaded
_ZOOKEEPER: Final = 0  # version of OffsetCommit and OffsetFetch
_QUICK_BYTES: Final = 64 << 10  # of records that are encoded on the event loop
_STEP_BYTES: Final = 4096  # of an answer, to be written in one step
_TREE_STEPS: Final = 20  # to look something up in the metadata tree
_MANY_KEYS: Final = 4  # version of FindCoordinator from which on it asks for several groups
_GROUP, _TRANSACTION = 0, 1
_OFFSETS_HEADER: Final = BatchHeader(base_sequence=0)  # as Kafka's batches of offsets have it, without a producer


class Groups:
    """The groups of the partitions of `__consumer_offsets` that a broker leads, on its event loop.

    A partition comes with `elected` and goes with `resigned`. Its log is read in the background, one after the other;
    requests for its groups get COORDINATOR_LOAD_IN_PROGRESS until then.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.coordinator = Coordinator(
            _config(broker.config), token=lambda: str(broker.new_uuid()), has_partition=self._has_partition
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._stores: dict[int, deque[Store]] = {}
        self._leader_epochs: dict[int, int] = {}  # by partition, the latest that was heard of
        self._to_load: dict[int, int] = {}  # terms by partition
        self._loader: asyncio.Task[None] | None = None
        topic = broker.topics.get(OFFSETS_TOPIC)
        if topic is not None and broker.membership is None:
            self._elect_alone(topic)
        broker.spawn(self._expire())

    def _elect_alone(self, topic: Topic) -> None:
        """Coordinate the groups of all partitions: no other broker does."""
        for partition, leader_epoch in enumerate(topic.leader_epochs):
            self.elected(partition, leader_epoch)

    # ---- partitions

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Coordinate the groups of a partition that this broker leads in `leader_epoch`.

        They are loaded first, unless this broker has led it before without a break. What overtakes the load, a
        resignation or a later epoch, makes it void.
        """
        if self._is_stale(partition, leader_epoch) or self.coordinator.terms.is_active(partition):
            return
        broker, key = self._broker, TopicPartition(OFFSETS_TOPIC, partition)
        partitions = broker.topics.known(OFFSETS_TOPIC).partitions
        self.coordinator.config = replace(self.coordinator.config, offsets_partitions=partitions)
        term = self.coordinator.begin_loading(partition)
        known = broker.logs.logs.get(key)
        if key in broker.logs.offline:  # what its groups committed is in there
            self.coordinator.load_failed(partition, term)
        elif known is None or not known.size:
            self.coordinator.loaded(partition, term, LoadedPartition(), Moment.of(broker.clock))
        else:
            self._to_load[partition] = term
            if self._loader is None:
                self._loader = broker.spawn(self._load_all())

    def resigned(self, partition: int, leader_epoch: int) -> None:
        """Coordinate the groups of a partition no more: it is led by nobody or another broker in `leader_epoch`.

        Whoever waits is told NOT_COORDINATOR, and what is still to be appended is not.
        """
        if not self._is_stale(partition, leader_epoch):
            self.perform(self.coordinator.resign(partition))

    def _is_stale(self, partition: int, leader_epoch: int) -> bool:
        """Whether a later epoch was heard of; else this is the latest now."""
        if leader_epoch < self._leader_epochs.get(partition, NO_EPOCH):
            return True
        self._leader_epochs[partition] = leader_epoch
        return False

    def _has_partition(self, topic: str, partition: int) -> bool:
        found = self._broker.topics.get(topic)
        return found is not None and 0 <= partition < found.partitions

    async def found(self) -> Topic:
        """Return the topic of the offsets, made if need be. Raises what `Topics.create` does."""
        broker = self._broker
        topic = broker.topics.get(OFFSETS_TOPIC)
        if topic is None:
            async with broker.directory:
                topic = broker.topics.get(OFFSETS_TOPIC)
                if topic is None:
                    topic = await broker.writing.run(_make_topic, broker)
        if broker.membership is None and not self.coordinator.terms:
            self._elect_alone(topic)
        return topic

    # ---- requests

    async def ask(self, request: Request[Any]) -> Message:
        """Return the coordinator's answer, as soon as it has one; others have their turns while it is long."""
        answers: list[Message] = []
        for piece in pieces(request.message) if request.is_large else (request.message,):
            if answers:
                await request.turns.take(STEPS_AT_ONCE)
            answers.append(await self._ask(request, piece))
        for each in answers:
            await request.turns.take(_payload_bytes(each) // _STEP_BYTES)
        if len(answers) == 1:
            return answers[0]
        return await self._broker.messages.run(joined, type(request.message), answers)

    async def _ask(self, request: Request[Any], message: Message) -> Message:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        caller = Caller(answer, request.version, request.client_id or "", f"/{request.connection.host}")
        self.perform(self.coordinator.answer(caller, message, Moment.of(self._broker.clock)))
        started = now_ns()
        try:
            return await answer
        finally:
            request.connection.waited_ns += now_ns() - started

    def perform(self, effects: Sequence[Effect]) -> None:
        """Do what the coordinator wants done, and wake it when it wants to be."""
        for effect in effects:
            match effect:
                case Reply(to=Caller(ticket=asyncio.Future() as answer), message=message):
                    if not answer.done():  # whoever asked may have gone
                        answer.set_result(message)
                case Store():
                    self._store(effect)
        self._set_timer()

    def _set_timer(self) -> None:
        next_ms = self.coordinator.next_ms()
        if next_ms == self._timer_ms or self.coordinator.closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, next_ms
        if next_ms is not None:
            delay_ms = max(next_ms - self._broker.clock.monotonic_ms(), 0)
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._due)

    def _due(self) -> None:
        self._timer = self._timer_ms = None
        self.perform(self.coordinator.due(Moment.of(self._broker.clock)))

    def topic_deleted(self, topic: str) -> None:
        """Forget what groups have committed for a topic that is gone: all groups, if it is that of the offsets."""
        self.perform(self.coordinator.forget_topic(topic))
        if topic == OFFSETS_TOPIC:
            self._leader_epochs.clear()  # those of a topic that is made later begin anew
            for partition in list(self.coordinator.terms):
                self.perform(self.coordinator.resign(partition))

    def close(self) -> None:
        """Answer whoever waits; from here on requests are refused."""
        self.perform(self.coordinator.close())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self._broker.config.offsets_retention_check_interval_ms / 1000)
            self.perform(self.coordinator.expire(self._broker.clock.now_ms()))

    # ---- the log

    def _store(self, store: Store) -> None:
        """Append after all that is to be appended to the same partition already."""
        waiting = self._stores.get(store.partition)
        if waiting is not None:
            waiting.append(store)
            return
        self._stores[store.partition] = deque([store])
        self._broker.spawn(self._append_all(store.partition))

    async def _append_all(self, partition: int) -> None:
        """Append what is to be stored in a partition, and go on after each append in that order.

        What is waiting by then is appended, too, before the in-sync replicas are waited for.
        """
        waiting = self._stores[partition]
        try:
            while waiting:
                appended = [await self._append(waiting[0])]
                while _is_pending(appended[-1]) and len(appended) < len(waiting):
                    appended.append(await self._append(waiting[len(appended)]))
                for code in await self._outcomes(partition, appended):
                    store = waiting.popleft()
                    self.perform(self.coordinator.stored(store, code, Moment.of(self._broker.clock)))
        finally:
            del self._stores[partition]

    async def _outcomes(self, partition: int, appended: Sequence[Acknowledgement | ErrorCode]) -> list[ErrorCode]:
        """Wait until the in-sync replicas have what was appended; return how each append ends."""
        waits = [each for each in appended if isinstance(each, Acknowledgement)]
        codes = await self._broker.appends.replicated(waits, self._broker.config.offsets_commit_timeout_ms)
        for code in dict.fromkeys(codes):
            if code:
                self._complain(partition, f"the in-sync replicas do not have them: {code.name}")
        acknowledged = iter(codes)
        return [next(acknowledged) if isinstance(each, Acknowledgement) else each for each in appended]

    async def _append(self, store: Store) -> Acknowledgement | ErrorCode:
        """Append the records of one effect as one set; return what acknowledges it, or the code of what went wrong."""
        broker = self._broker
        try:
            partition = await broker.replicas.opened(OFFSETS_TOPIC, store.partition)
            await broker.load_numpy()  # to encode with
            topic, codec = broker.topics.known(OFFSETS_TOPIC), Codec(broker.config.offsets_topic_compression_codec)
            rules, now_ms = topic.config.append, broker.clock.now_ms()
            encode = partial(records_of, store, rules.format, codec, now_ms)
            size = sum(len(key) + _size(value) for key, value in store.records)
            records = encode() if size <= _QUICK_BYTES else await broker.writing.run(encode)
            leader = partition.led()
            if not self.coordinator.terms.is_present(store.partition, store.term):
                raise NotLeaderError("another broker has led the partition since they were decided")
            least = topic.config.min_insync_replicas if leader.followers else 1
            if (in_sync := len(leader.state.isr)) < least:
                why = f"min.insync.replicas is {least}, and {in_sync} in sync"
                raise AppendRefusedError(ErrorCode.NOT_ENOUGH_REPLICAS, why)
            return Acknowledgement(partition, await broker.appends.append(NewSet(partition, records, rules)), least)
        except MagicbyteError as error:
            self._complain(store.partition, str(error))
            return error.code

    def _complain(self, partition: int, why: str) -> None:
        self._broker.complaints.line(log, OFFSETS_TOPIC, "groups", "%s-%d: records of a group could not be stored: %s",
                                     OFFSETS_TOPIC, partition, why)  # fmt: skip

    async def _load_all(self) -> None:
        """Read the logs of partitions whose groups are to be loaded."""
        try:
            while self._to_load:
                partition = next(iter(self._to_load))
                await self._load(partition, self._to_load.pop(partition))
        finally:
            self._loader = None

    async def _load(self, partition: int, term: int) -> None:
        broker, key = self._broker, TopicPartition(OFFSETS_TOPIC, partition)
        known = broker.logs.logs.get(key)
        if known is None or not self.coordinator.terms.is_loading(partition, term):
            return  # it was resigned
        try:
            await broker.logs_lock.acquire_shared()  # no segment is exchanged while it is read
            try:
                found = await broker.reading.run(read_groups, known)
            finally:
                broker.logs_lock.release_shared()
        except (CorruptRecordError, LogDirectoryError, OSError) as error:
            if self.coordinator.terms.is_loading(partition, term):
                log.critical("%s cannot be read, its groups are not served: %s", key, error)
                self.coordinator.load_failed(partition, term)
            return
        if found.passed_over:
            log.warning("%s: %d records of types not known here", key, found.passed_over)
        self.coordinator.loaded(partition, term, found, Moment.of(broker.clock))
        self._set_timer()


def read_groups(each: PartitionLog) -> LoadedPartition:
    """Return what a partition's log says of its groups. Raises CorruptRecordError."""
    loading, offset = Loading(), each.log_start_offset
    while (part := each.read(offset, READ_BYTES)) is not None:
        last = loading.read(memoryview(part.read()))
        if last < offset:
            break
        offset = last + 1
    return loading.finish()


def _is_pending(appended: Acknowledgement | ErrorCode) -> bool:
    """Whether the in-sync replicas have to be waited for."""
    return isinstance(appended, Acknowledgement) and appended.code() is None


def _payload_bytes(answer: Message) -> int:
    """Return the bytes of members' own in an answer: a leader is told those of all."""
    if isinstance(answer, JoinGroupResponse):
        return sum(len(each.metadata) for each in answer.members)
    if isinstance(answer, DescribeGroupsResponse):
        members = (each for group in answer.groups for each in group.members)
        return sum(len(each.member_metadata) + len(each.member_assignment) for each in members)
    return 0


def _size(value: bytes | GroupMetadataValue | None) -> int:
    return value.weight if isinstance(value, GroupMetadataValue) else len(value or b"")


def records_of(store: Store, target: Format, codec: Codec, now_ms: int) -> memoryview:
    """Return the records of one effect as the set that a Kafka broker would append."""
    rows = [
        Record(offset, now_ms, TimestampType.CREATE_TIME, key, encoded(value))
        for offset, (key, value) in enumerate(store.records)
    ]
    header = BatchHeader() if store.is_group else _OFFSETS_HEADER
    return memoryview(encode_records(rows, target, codec, header=header))


def _config(config: BrokerConfig) -> GroupConfig:
    return GroupConfig(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        metadata_max_bytes=config.group_metadata_max_bytes,
        offsets_partitions=config.offsets_topic_num_partitions,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        stored=StoredVersions.of(config.inter_broker_protocol_version),
    )


def _make_topic(broker: Broker) -> Topic:
    partitions, settings = broker.config.offsets_topic_num_partitions, _topic_settings(broker.config)
    if broker.membership is not None:
        with suppress(TopicExistsError):  # another broker made it, and the controller will tell of it
            broker.topics.create(OFFSETS_TOPIC, partitions, broker.config.offsets_topic_replication_factor, settings)
        raise CoordinatorNotAvailableError(f"{OFFSETS_TOPIC} is being made")
    topic = broker.topics.create(OFFSETS_TOPIC, partitions, 1, settings)
    # Logs are made when they are needed; the last one tells how many there are, if the tree is lost.
    broker.topics.log(OFFSETS_TOPIC, partitions - 1)
    return topic


def _topic_settings(config: BrokerConfig) -> dict[str, str | None]:
    settings: dict[str, str | None] = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    if config.log_message_format_version is Format.ENRICHED:
        settings["message.format.version"] = config.plain_format.value
    return settings


# ---- handlers


async def find_coordinator(broker: Broker, request: Request[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    """Name the coordinator of groups. The topic of their offsets is made if need be."""
    message = request.message
    code, why, partitions = ErrorCode.NONE, None, 0
    if message.key_type == _TRANSACTION:
        code, why = ErrorCode.UNSUPPORTED_VERSION, "this broker has no transactions"
    elif message.key_type != _GROUP:
        code, why = ErrorCode.INVALID_REQUEST, f"coordinators of type {message.key_type} are not known"
    else:
        try:
            partitions = (await broker.groups.found()).partitions
        except MagicbyteError as error:
            code, why = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
    many = request.version >= _MANY_KEYS
    found = [
        _coordinator_of(broker, request, key, partitions)
        if partitions
        else FoundCoordinator(key=key, node_id=NOBODY, host="", port=-1, error_code=code, error_message=why)
        async for key in request.turns.over(dict.fromkeys(message.coordinator_keys if many else [message.key]))
    ]
    if many:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator_of(
    broker: Broker, request: Request[FindCoordinatorRequest], group: str, partitions: int
) -> FoundCoordinator:
    """Name the leader of the partition of `__consumer_offsets` that a group belongs to."""
    member = broker.cluster_view.coordinator(request.connection.listener, partition_for(group, partitions))
    if member is None:
        code, why = ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of group {group} has no leader"
        return FoundCoordinator(key=group, node_id=NOBODY, host="", port=-1, error_code=code, error_message=why)
    return FoundCoordinator(key=group, node_id=member.id, host=member.host, port=member.port, error_message=None)


async def answer(broker: Broker, request: Request[Any]) -> Message:
    """Answer a request that the coordinator knows."""
    return await broker.groups.ask(request)


async def offset_commit(broker: Broker, request: Request[OffsetCommitRequest]) -> Message:
    """Store offsets: with the coordinator, or, of version 0, in the metadata tree."""
    if request.version > _ZOOKEEPER:
        return await broker.groups.ask(request)
    message = request.message
    topics = []
    async for topic in request.turns.over(message.topics):
        answers = []
        async for each in request.turns.over(topic.partitions):
            code = await _commit_to_tree(broker, message.group_id, topic.name, each)
            answers.append(OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return OffsetCommitResponse(topics=topics)


async def _commit_to_tree(broker: Broker, group: str, topic: str, partition: OffsetCommitRequestPartition) -> ErrorCode:
    index = partition.partition_index
    if not _is_node_name(group):
        return ErrorCode.INVALID_GROUP_ID
    if await broker.replicas.known_partition(topic, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len((partition.committed_metadata or "").encode()) > broker.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    path, data = layout.consumer_offset_path(group, topic, index), str(partition.committed_offset).encode()
    try:
        async with broker.directory:
            if broker.metadata.exists(path) is None:
                await broker.writing.run(broker.metadata.create, path, data, parents=True)
            else:
                await broker.writing.run(broker.metadata.set, path, data)
    except MetadataError as error:
        broker.complaints.line(log, "the metadata tree", "offsets", "%s", error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


async def offset_fetch(broker: Broker, request: Request[OffsetFetchRequest]) -> Message:
    """Tell offsets: the coordinator's, or, of version 0, those in the metadata tree."""
    if request.version > _ZOOKEEPER:
        return await broker.groups.ask(request)
    message = request.message
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                await _fetch_from_tree(broker, message.group_id, topic.name, each)
                async for each in request.turns.over(topic.partition_indexes, _TREE_STEPS)
            ],
        )
        async for topic in request.turns.over(message.topics or ())
    ]
    return OffsetFetchResponse(topics=topics)


async def _fetch_from_tree(broker: Broker, group: str, topic: str, index: int) -> OffsetFetchResponsePartition:
    node = None
    if _is_node_name(group) and await broker.replicas.known_partition(topic, index) is not None:
        node = broker.metadata.exists(layout.consumer_offset_path(group, topic, index))
    if node is None or not node.data.isdigit():
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
    return OffsetFetchResponsePartition(partition_index=index, committed_offset=int(node.data))


def _is_node_name(group: str) -> bool:
    return group not in ("", ".", "..") and "/" not in group and "\0" not in group


HANDLERS: Final[Mapping[type, Handler]] = {
    **dict.fromkeys(ANSWERED, answer),
    FindCoordinatorRequest: find_coordinator,
    OffsetCommitRequest: offset_commit,
    OffsetFetchRequest: offset_fetch,
}
