"""The broker side of the group coordinator: its timer and its log.

Decisions are made in `groups/`. Here records are appended to `__consumer_offsets`, and requests are answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from magicbyte.engine.codecs import Codec
from magicbyte.engine.coordination.effects import Caller, Marker, Reply
from magicbyte.engine.errors import AppendRefusedError, ErrorCode
from magicbyte.engine.groups.config import GroupConfig, StoredVersions
from magicbyte.engine.groups.coordinator import Coordinator
from magicbyte.engine.groups.effects import Effect, StoreRecords, Tell, encoded
from magicbyte.engine.groups.loading import LoadedPartition, Loading
from magicbyte.engine.groups.offsets import end_transaction
from magicbyte.engine.groups.records import GroupMetadataValue
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.ports import Moment
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.messages.describe_groups import DescribeGroupsResponse
from magicbyte.engine.protocol.messages.join_group import JoinGroupResponse
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import TimestampType
from magicbyte.server.coordinating.coordinating import (
    Coordinating,
    CoordinatorTopic,
    has_partition,
    own_topic,
    read_into,
    set_result_if_pending,
)
from magicbyte.server.coordinating.markers import marker_set
from magicbyte.server.coordinating.pieces import joined, pieces
from magicbyte.server.serving.turns import STEPS_AT_ONCE

if TYPE_CHECKING:
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.protocol import Message
    from magicbyte.server.coordinating.coordinator_services import CoordinatorServices
    from magicbyte.server.serving.request import Request
    from magicbyte.server.settings.config import BrokerConfig

log = logger(__name__)

_STEP_BYTES: Final = 4096  # of a response, written in one step
_OFFSETS_HEADER: Final = BatchHeader(base_sequence=0)  # as in Kafka's batches of offsets without a producer


class Groups(Coordinating[StoreRecords, Effect, LoadedPartition]):
    """The groups of the partitions of `__consumer_offsets` that a broker leads."""

    topic = OFFSETS_TOPIC
    what = "groups"
    is_joined = False  # batches of transactions are verified individually

    def __init__(self, services: CoordinatorServices) -> None:
        runtime = services.runtime
        self.coordinator = Coordinator(
            _config(runtime.config),
            token=lambda: str(runtime.new_uuid()),
            has_partition=partial(has_partition, services.topics),
        )
        super().__init__(services, self.coordinator, runtime.config.offsets_retention_check_interval_ms)

    # ---- partitions

    def _begin(self, partition: int, _leader_epoch: int, partitions: int) -> int:
        self.coordinator.config = replace(self.coordinator.config, offsets_partitions=partitions)
        return self.coordinator.begin_loading(partition)

    def _end(self, partition: int) -> None:
        self.perform(self.coordinator.resign(partition))

    def _loaded(self, partition: int, term: int, found: LoadedPartition) -> None:
        if found.passed_over:
            log.warning("%s-%d: %d records of unknown types", OFFSETS_TOPIC, partition, found.passed_over)
        self.coordinator.loaded(partition, term, found, Moment.of(self._runtime.clock))
        self.set_timer()

    def _expire_now(self) -> Sequence[Effect]:
        return self.coordinator.expire(self._runtime.clock.now_ms())

    def _plan(self) -> CoordinatorTopic:
        config = self._runtime.config
        segment_bytes = str(config.offsets_topic_segment_bytes)
        settings = own_topic(config, {"compression.type": "producer", "segment.bytes": segment_bytes})
        return CoordinatorTopic(config.offsets_topic_num_partitions, config.offsets_topic_replication_factor, settings)

    def topic_deleted(self, topic: str) -> None:
        """Delete the offsets that groups committed for a deleted topic; all groups, if it is the offsets topic."""
        self.perform(self.coordinator.forget_topic(topic))
        super().topic_deleted(topic)

    # ---- requests

    async def ask(self, request: Request[Any]) -> Message:
        """Return the coordinator's response, once it is available; a long one is built in slices."""
        answers: list[Message] = []
        for piece in pieces(request.message) if request.is_large else (request.message,):
            if answers:
                await request.turns.take(STEPS_AT_ONCE)
            answers.append(await self.answered(request, partial(self._decide, piece)))
        for each in answers:
            await request.turns.take(_payload_bytes(each) // _STEP_BYTES)
        if len(answers) == 1:
            return answers[0]
        return await self._runtime.messages.run(joined, type(request.message), answers)

    def _decide(self, message: Message, caller: Caller) -> Sequence[Effect]:
        return self.coordinator.answer(caller, message, Moment.of(self._runtime.clock))

    def perform(self, effects: Sequence[Effect]) -> None:
        """Perform effects, and set the timer."""
        for effect in effects:
            match effect:
                case Reply(to=Caller(ticket=asyncio.Future() as answer), message=message):
                    set_result_if_pending(answer, message)
                case Tell(ticket=asyncio.Future() as answer, code=code):
                    set_result_if_pending(answer, code)
                case StoreRecords():
                    self.store(effect)
        self.set_timer()

    def end_transaction(self, partition: int, marker: Marker) -> asyncio.Future[ErrorCode]:
        """Append a marker to a partition, and apply or discard the offsets of its transaction; return the outcome."""
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.perform(end_transaction(self.coordinator, answer, partition, marker))
        return answer

    def close(self) -> None:
        """Answer waiting requests; later ones are refused."""
        self.perform(self.coordinator.close())
        super().close()

    # ---- the log

    def _encoding(self, store: StoreRecords, target: Format, now_ms: int) -> tuple[int, Callable[[], memoryview]]:
        if store.origin is not None and target is not Format.V2:
            why = f"format {target.value} has no transactions"
            raise AppendRefusedError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, why)
        codec = Codec(self._runtime.config.offsets_topic_compression_codec)
        size = sum(len(key) + _size(value) for key, value in store.records)
        return size, partial(records_of, store, target, codec, now_ms)

    def _timeout_ms(self, _store: StoreRecords) -> int:
        return self._runtime.config.offsets_commit_timeout_ms

    @staticmethod
    def _read(each: PartitionLog | None) -> LoadedPartition:
        return LoadedPartition() if each is None else read_groups(each)


def read_groups(each: PartitionLog) -> LoadedPartition:
    """Load the groups in a partition's log. Raises CorruptRecordError."""
    loading = Loading()
    read_into(loading, each)
    return loading.finish()


def _payload_bytes(answer: Message) -> int:
    """Return the bytes of members' metadata in a response: a leader gets those of all."""
    if isinstance(answer, JoinGroupResponse):
        return sum(len(each.metadata) for each in answer.members)
    if isinstance(answer, DescribeGroupsResponse):
        members = (each for group in answer.groups for each in group.members)
        return sum(len(each.member_metadata) + len(each.member_assignment) for each in members)
    return 0


def _size(value: bytes | GroupMetadataValue | None) -> int:
    return value.weight if isinstance(value, GroupMetadataValue) else len(value or b"")


def records_of(store: StoreRecords, target: Format, codec: Codec, now_ms: int) -> memoryview:
    """Return the records of one effect as the set that a Kafka broker would append."""
    if isinstance(store.origin, Marker):
        return marker_set(store.origin, now_ms)
    rows = [
        Record(offset, now_ms, TimestampType.CREATE_TIME, key, encoded(value))
        for offset, (key, value) in enumerate(store.records)
    ]
    header = BatchHeader() if store.is_group else _OFFSETS_HEADER
    if store.origin is not None:
        header = header._replace(
            is_transactional=True, producer_id=store.origin.producer_id, producer_epoch=store.origin.epoch
        )
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
