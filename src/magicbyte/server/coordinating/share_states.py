"""The service side of the share coordinator: its topic, and the requests of this broker to share coordinators.

Decisions are made in `engine/sharing/`. Here they get the broker's settings and topics.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from magicbyte.engine.codecs import Codec
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.errors import ErrorCode, MagicbyteError
from magicbyte.engine.internal_topics import SHARE_TOPIC
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.messages import delete_share_group_state as deletion
from magicbyte.engine.protocol.messages import initialize_share_group_state as initialization
from magicbyte.engine.protocol.messages import read_share_group_state as reading
from magicbyte.engine.protocol.messages import read_share_group_state_summary as summarizing
from magicbyte.engine.protocol.messages import write_share_group_state as writing
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.engine.sharing.records import Loading
from magicbyte.engine.sharing.share_coordinator import ShareCoordinator, ShareStateConfig
from magicbyte.engine.sharing.states import UNSET, StateBatch, StateKey
from magicbyte.server.coordinating.coordinating import Coordinating, CoordinatorKind, CoordinatorTopic, own_topic
from magicbyte.server.stores.peers import PeerLink

if TYPE_CHECKING:
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.protocol.message import Message
    from magicbyte.engine.sharing.share_partition import DeliveryChange
    from magicbyte.server.coordinating.coordinator_services import CoordinatorServices
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.stores.peers import Peers
    from magicbyte.server.stores.topics import Topics

log = logger(__name__)

_TIMEOUT_MS: Final = 30_000  # for the response of another broker
_VERSION: Final = 1  # of requests to this broker itself
_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a coordinator that is not reachable now, or does not know the topic yet."""


class ShareStates(Coordinating[ShareCoordinator]):
    """The states of the partitions of `__share_group_state` that a broker leads."""

    def __init__(self, services: CoordinatorServices) -> None:
        config = services.runtime.config
        kind = CoordinatorKind(
            SHARE_TOPIC,
            "states of share groups",
            partial(_topic, config),
            Loading,
            timeout_ms=config.share_coordinator_write_timeout_ms,
            expiry_interval_ms=config.share_coordinator_snapshot_interval_ms,
            codec=Codec(config.share_coordinator_state_topic_compression_codec),
            is_joined=True,
        )
        state_config = ShareStateConfig(
            partitions=config.share_coordinator_state_topic_num_partitions,
            updates_per_snapshot=config.share_coordinator_updates_per_snapshot,
            keeps_counts=services.runtime.offer.keeps_share_counts,
        )
        coordinator = ShareCoordinator(
            state_config, partial(_has_partition, services.topics), partial(_end_offset, services.logs)
        )
        super().__init__(services, kind, coordinator)
        self._runtime.spawn(self._prune(config.share_coordinator_prune_interval_ms))

    async def _prune(self, interval_ms: int) -> None:
        """Delete records that no state needs, at intervals."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for partition, offset in self.coordinator.needed_from().items():
                try:
                    await self._replicas.delete_records(SHARE_TOPIC, partition, offset)
                except MagicbyteError as error:  # the next time will do
                    why = "%s-%d: its old records are not deleted: %s"
                    self._runtime.complaints.line(log, SHARE_TOPIC, "old records", why, SHARE_TOPIC, partition, error)


def _has_partition(topics: Topics, topic_id: uuid.UUID, partition: int) -> bool:
    name = topics.name_of(topic_id)
    return bool(name) and 0 <= partition < topics.partition_count(name)


def _end_offset(logs: LogDirectory, partition: int) -> int:
    known = logs.logs.get(TopicPartition(SHARE_TOPIC, partition))
    return 0 if known is None else known.log_end_offset


def _topic(config: BrokerConfig) -> CoordinatorTopic:
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "compression.type": "producer",
        "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
        "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
    }
    factor = config.share_coordinator_state_topic_replication_factor
    return own_topic(config, config.share_coordinator_state_topic_num_partitions, factor, settings)


class ReadState(NamedTuple):
    """The state of a partition for a group, as the share coordinator has it."""

    state_epoch: int
    start: int
    batches: Sequence[StateBatch]


class StateSummary(NamedTuple):
    """How far a group is with a partition: `start` and `complete_count` are UNSET if they are unknown."""

    state_epoch: int
    leader_epoch: int
    start: int
    complete_count: int


class ShareStateClient:
    """Asks the coordinators of states, here and at other brokers. `states` returns this broker's own."""

    def __init__(self, runtime: Runtime, states: Callable[[], ShareStates], peers: Peers) -> None:
        self._runtime, self._states, self._peers = runtime, states, peers
        self._links: dict[int, PeerLink] = {}

    async def initialize(
        self, group_id: str, epoch: int, topics: Mapping[uuid.UUID, Sequence[int]]
    ) -> dict[uuid.UUID, tuple[int, ...]]:
        """Begin states; return the partitions of which the states are kept now, by topic. The others may be retried."""
        begun: dict[uuid.UUID, tuple[int, ...]] = {}
        for topic_id, partitions in topics.items():
            for partition in partitions:
                key = StateKey(group_id, topic_id, partition)
                if code := await self.begin(key, epoch, UNSET):
                    self._complain(key, "its state could not be initialized", code)
                else:
                    begun[topic_id] = (*begun.get(topic_id, ()), partition)
        return begun

    async def begin(self, key: StateKey, epoch: int, start: int) -> ErrorCode:
        """Begin a state at an offset; return why it cannot be, or NONE."""
        row = initialization.PartitionData(partition=key.partition, state_epoch=epoch, start_offset=start)
        topic = initialization.InitializeStateData(topic_id=key.topic_id, partitions=[row])
        message = initialization.InitializeShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        return ErrorCode((await self._patiently(key, message)).error_code)

    async def delete(self, keys: Sequence[StateKey]) -> ErrorCode:
        """Delete states; return why one of them cannot be deleted, or NONE."""
        for key in keys:
            topic = deletion.DeleteStateData(
                topic_id=key.topic_id, partitions=[deletion.PartitionData(partition=key.partition)]
            )
            message = deletion.DeleteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
            if code := ErrorCode((await self._patiently(key, message)).error_code):
                return code
        return ErrorCode.NONE

    async def summary(self, key: StateKey) -> StateSummary | ErrorCode:
        """Return how far a group is with a partition, or why that is unknown."""
        topic = summarizing.ReadStateSummaryData(
            topic_id=key.topic_id, partitions=[summarizing.PartitionData(partition=key.partition)]
        )
        message = summarizing.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=[topic])
        result = await self._ask(key, message)
        if result.error_code:
            return ErrorCode(result.error_code)
        return StateSummary(
            result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count
        )

    async def read(self, key: StateKey, leader_epoch: int) -> ReadState | ErrorCode:
        """Return a state to the leader of its partition, or why it cannot be had."""
        row = reading.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = reading.ReadStateData(topic_id=key.topic_id, partitions=[row])
        result = await self._ask(key, reading.ReadShareGroupStateRequest(group_id=key.group_id, topics=[topic]))
        if result.error_code:
            return ErrorCode(result.error_code)
        batches = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in result.state_batches
        ]
        return ReadState(result.state_epoch, result.start_offset, batches)

    async def write(self, key: StateKey, state_epoch: int, leader_epoch: int, change: DeliveryChange) -> ErrorCode:
        """Store a change; return why it is not stored, or NONE. A coordinator that moves is asked again."""
        row = writing.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=change.start,
            delivery_complete_count=change.complete_count,
            state_batches=[
                writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in change.batches
            ],
        )
        topic = writing.WriteStateData(topic_id=key.topic_id, partitions=[row])
        message = writing.WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        code = ErrorCode((await self._patiently(key, message)).error_code)
        if code:
            self._complain(key, "a change of its state is not stored", code)
        return code

    async def _patiently(self, key: StateKey, message: Message) -> Any:
        """Return the row of a response; a coordinator that is not reachable is asked again."""
        for pause_s in (*_PAUSES_S, None):
            result = await self._ask(key, message)
            if pause_s is None or result.error_code not in _RETRIABLE:
                break
            await asyncio.sleep(pause_s)
        return result

    async def _ask(self, key: StateKey, message: Message) -> Any:
        """Return the one row of the response to a request with one row."""
        try:
            leader = self._leader(key)
            if leader == NO_BROKER:
                await self._states().ensure_topic()
                leader = self._leader(key)
            if leader == NO_BROKER:
                return initialization.PartitionResult(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if leader == self._runtime.node_id:
                response: Any = await self._states().call(message, _VERSION)
            else:
                link = self._links.get(leader)
                if link is None:
                    link = PeerLink(self._runtime, self._peers, leader, timeout_ms=_TIMEOUT_MS, asks_versions=True)
                    self._links[leader] = link
                response = await link.send(message)
            return response.results[0].partitions[0]
        except MagicbyteError as error:
            self._complain(key, "the share coordinator cannot be reached", error)
            return initialization.PartitionResult(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _leader(self, key: StateKey) -> int:
        view = self._peers.view
        partitions = len(view.partitions(SHARE_TOPIC))
        if not partitions:
            return NO_BROKER
        return view.leader(TopicPartition(SHARE_TOPIC, partition_for(key.text, partitions)))

    def _complain(self, key: StateKey, what: str, why: object) -> None:
        self._runtime.complaints.line(log, SHARE_TOPIC, what, "%s: %s: %s", key.text, what, why)
