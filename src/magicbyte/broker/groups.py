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
from magicbyte.broker.pieces import joined, pieces
from magicbyte.broker.turns import STEPS_AT_ONCE
from magicbyte.codecs import Codec
from magicbyte.errors import (
    CoordinatorNotAvailableError,
    CorruptRecordError,
    ErrorCode,
    LogDirectoryError,
    MagicbyteError,
    MetadataError,
    NotReplicatedError,
    TopicExistsError,
)
from magicbyte.groups.config import GroupConfig, StoredVersions
from magicbyte.groups.coordinator import ANSWERED, Coordinator
from magicbyte.groups.effects import Caller, Effect, Reply, Store, encoded
from magicbyte.groups.loading import LoadedPartition, Loading
from magicbyte.groups.partitioning import OFFSETS_TOPIC, partition_for
from magicbyte.groups.records import GroupMetadataValue
from magicbyte.metadata import layout
from magicbyte.ports import Moment
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
    """The groups of a broker, on its event loop. What the log says of them is read in the background, first of all."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.coordinator = Coordinator(
            _config(broker.config), token=lambda: str(broker.new_uuid()), has_partition=self._has_partition
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._stores: dict[int, deque[Store]] = {}
        topic = broker.topics.get(OFFSETS_TOPIC)
        if topic is not None and broker.membership is None:
            self._begin(topic.partitions)
        broker.spawn(self._expire())

    def _begin(self, partitions: int) -> None:
        """Coordinate the groups of all partitions of the topic; those that have a log are read first."""
        broker = self._broker
        self.coordinator.config = replace(self.coordinator.config, offsets_partitions=partitions)
        logs = {
            key.partition: each for key, each in broker.logs.logs.items() if key.topic == OFFSETS_TOPIC and each.size
        }
        offline = broker.topics.offline_of(OFFSETS_TOPIC)
        for partition in range(partitions):
            if partition in offline:  # what its groups committed is in there
                self.coordinator.begin_loading(partition)
                self.coordinator.load_failed(partition)
            elif partition in logs:
                self.coordinator.begin_loading(partition)
            else:
                self.coordinator.loaded(partition, LoadedPartition(), Moment.of(broker.clock))
        if logs:
            broker.spawn(self._load(logs))

    async def elected(self, partition: int, _leader_epoch: int) -> None:
        """Coordinate the groups of a partition that this broker leads now."""
        broker = self._broker
        topic = broker.topics.known(OFFSETS_TOPIC)
        self.coordinator.config = replace(self.coordinator.config, offsets_partitions=topic.partitions)
        self.coordinator.begin_loading(partition)
        broker.spawn(self._load({partition: broker.replicas.partition(OFFSETS_TOPIC, partition).log}))

    def resigned(self, partition: int, _leader_epoch: int) -> None:
        """Coordinate the groups of a partition no more."""
        self.perform(self.coordinator.resign(partition))

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
        if broker.membership is None and not self.coordinator.partitions:
            self._begin(topic.partitions)
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
            for partition in list(self.coordinator.partitions):
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
        waiting = self._stores[partition]
        try:
            while waiting:
                code = await self._append(waiting[0])
                done = waiting.popleft()
                self.perform(self.coordinator.stored(done, code, Moment.of(self._broker.clock)))
        finally:
            del self._stores[partition]

    async def _append(self, store: Store) -> ErrorCode:
        """Append the records of one effect as one set; return the code of what went wrong."""
        broker = self._broker
        try:
            partition = await broker.replicas.opened(OFFSETS_TOPIC, store.partition)
            await broker.load_numpy()  # to encode with
            rules = broker.topics.rules(OFFSETS_TOPIC)
            codec = Codec(broker.config.offsets_topic_compression_codec)
            now_ms = broker.clock.now_ms()
            encode = partial(records_of, store, rules.format, codec, now_ms)
            size = sum(len(key) + _size(value) for key, value in store.records)
            records = encode() if size <= _QUICK_BYTES else await broker.writing.run(encode)
            appended = await broker.appends.append(NewSet(partition, records, rules))
            least = broker.topics.known(OFFSETS_TOPIC).config.min_insync_replicas
            (code,) = await broker.appends.replicated(
                [Acknowledgement(partition, appended, least)], broker.config.offsets_commit_timeout_ms
            )
            if code:
                raise NotReplicatedError(code, "the in-sync replicas do not have them")
        except MagicbyteError as error:
            broker.complaints.line(log, OFFSETS_TOPIC, "groups", "%s-%d: records of a group could not be stored: %s",
                                   OFFSETS_TOPIC, store.partition, error)  # fmt: skip
            return error.code
        return ErrorCode.NONE

    async def _load(self, logs: Mapping[int, PartitionLog]) -> None:
        """Read what logs say of their groups."""
        broker = self._broker
        for index, each in logs.items():
            try:
                await broker.logs_lock.acquire_shared()  # no segment is exchanged while it is read
                try:
                    found = await broker.reading.run(read_groups, each)
                finally:
                    broker.logs_lock.release_shared()
            except (CorruptRecordError, LogDirectoryError, OSError) as error:
                log.critical("%s-%d cannot be read, its groups are not served: %s", OFFSETS_TOPIC, index, error)
                self.coordinator.load_failed(index)
                continue
            if found.passed_over:
                log.warning("%s-%d: %d records of types not known here", OFFSETS_TOPIC, index, found.passed_over)
            self.coordinator.loaded(index, found, Moment.of(broker.clock))
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
