"""The broker side of the transaction coordinator: its requests and its log.

Decisions are made in `transactions/`. Here records are appended to `__transaction_state`, markers are sent, and
requests are answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from magicbyte.engine.coordination.effects import Caller, Reply
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.internal_topics import OFFSETS_TOPIC, STATE_TOPIC
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import TimestampType
from magicbyte.engine.transactions.answers import FIRST_OF_BROKERS
from magicbyte.engine.transactions.config import TransactionConfig
from magicbyte.engine.transactions.coordinator import Coordinator
from magicbyte.engine.transactions.effects import Effect, SendMarkers, Store
from magicbyte.engine.transactions.loading import Loading
from magicbyte.engine.transactions.records import TransactionValue
from magicbyte.engine.transactions.rules import MARKED
from magicbyte.server.coordinating.coordinating import (
    Coordinating,
    CoordinatorTopic,
    has_partition,
    own_topic,
    read_into,
    set_result_if_pending,
)
from magicbyte.server.coordinating.markers import MarkerSender

if TYPE_CHECKING:
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.protocol import Message
    from magicbyte.server.coordinating.coordinator_services import CoordinatorServices
    from magicbyte.server.coordinating.markers import MarkerWriter
    from magicbyte.server.serving.request import Request
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.settings.offer import Offer
    from magicbyte.server.stores.peers import ClusterPeers

log = logger(__name__)

_Loaded = dict[str, TransactionValue]


class Transactions(Coordinating[Store, Effect, _Loaded]):
    """The transactional ids of the partitions of `__transaction_state` that a broker leads."""

    topic = STATE_TOPIC
    what = "transactional ids"
    is_joined = True
    awaits_commit = True  # a state that is lost later leaves transactions open that were begun by it

    def __init__(
        self,
        services: CoordinatorServices,
        new_producer_id: Callable[[], int],
        marker_writer: MarkerWriter,
        peers: ClusterPeers | None,
    ) -> None:
        runtime = services.runtime
        self.coordinator = Coordinator(
            _config(runtime.config, runtime.offer),
            new_producer_id=new_producer_id,
            has_partition=partial(has_partition, services.topics),
        )
        self._sender = MarkerSender(
            runtime,
            services.topics,
            marker_writer,
            peers,
            self._marked,
            lambda sent: not self.coordinator.terms.is_present(sent.partition, sent.term),
        )
        super().__init__(services, self.coordinator, runtime.config.expired_id_interval_ms)

    # ---- partitions

    def _begin(self, partition: int, leader_epoch: int, partitions: int) -> int:
        self.coordinator.config = replace(self.coordinator.config, state_partitions=partitions)
        return self.coordinator.begin_loading(partition, leader_epoch)

    def _go_on(self, partition: int, leader_epoch: int) -> None:
        self.coordinator.continue_term(partition, leader_epoch)

    def _end(self, partition: int) -> None:
        self.coordinator.resign(partition)
        self.set_timer()

    def _loaded(self, partition: int, term: int, found: _Loaded) -> None:
        self.perform(self.coordinator.loaded(partition, term, found, Moment.of(self._runtime.clock)))

    def _expire_now(self) -> Sequence[Effect]:
        return self.coordinator.expire(self._runtime.clock.now_ms())

    def _plan(self) -> CoordinatorTopic:
        config = self._runtime.config
        settings = {
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_state_min_isr),
            "segment.bytes": str(config.transaction_state_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
        factor = config.transaction_state_replication_factor
        return CoordinatorTopic(config.transaction_state_num_partitions, factor, own_topic(config, settings))

    # ---- requests

    async def ask(self, request: Request[Any]) -> Message:
        """Return the coordinator's response, once it is available."""
        return await self.answered(request, partial(self._decide, request.message))

    async def joined(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Return the response to a broker that asks about one transaction."""
        answer: asyncio.Future[AddPartitionsToTxnResponse] = asyncio.get_running_loop().create_future()
        self.perform(self._decide(request, Caller(answer, FIRST_OF_BROKERS)))
        return await answer

    def _decide(self, message: Message, caller: Caller) -> Sequence[Effect]:
        coordinator, now = self.coordinator, Moment.of(self._runtime.clock)
        match message:
            case InitProducerIdRequest():
                return coordinator.init_producer(caller, message, now)
            case AddPartitionsToTxnRequest():
                return coordinator.add_partitions(caller, message, now)
            case AddOffsetsToTxnRequest():
                topic, config = self._topics.get(OFFSETS_TOPIC), self._runtime.config
                partitions = config.offsets_topic_num_partitions if topic is None else topic.partitions
                coordinator.config = replace(coordinator.config, offsets_partitions=partitions)
                return coordinator.add_offsets(caller, message, now)
        assert isinstance(message, EndTxnRequest), "the handlers know which there are"
        return coordinator.end(caller, message, now)

    def perform(self, effects: Sequence[Effect]) -> None:
        """Perform effects, and set the timer."""
        for effect in effects:
            match effect:
                case Reply(to=Caller(ticket=asyncio.Future() as answer), message=message):
                    set_result_if_pending(answer, message)
                case Store():
                    self.store(effect)
                case SendMarkers():
                    self._sender.send(effect)
        self.set_timer()

    def _marked(self, sent: SendMarkers, place: TopicPartition, code: ErrorCode) -> None:
        if code not in MARKED:
            self._runtime.complaints.line(log, place.topic, "markers", "%s: a marker of %s was refused: %s",
                                         place, sent.transactional_id, code.name)  # fmt: skip
        self.perform(self.coordinator.marked(sent, place, code))

    def close(self) -> None:
        """Refuse requests from here on; requests with pending appends are answered."""
        self.coordinator.close()
        super().close()

    # ---- the log

    def _encoding(self, store: Store, target: Format, now_ms: int) -> tuple[int, Callable[[], memoryview]]:
        size = sum(len(key) + len(value or b"") for key, value in store.records)
        return size, partial(records_of, store, target, now_ms)

    def _timeout_ms(self, store: Store) -> int:
        return store.timeout_ms

    @staticmethod
    def _read(each: PartitionLog | None) -> _Loaded:
        loading = Loading()
        if each is not None:
            read_into(loading, each)
        return loading.finish()


def records_of(store: Store, target: Format, now_ms: int) -> memoryview:
    """Return the records of one effect as the set that a Kafka broker would append."""
    rows = [
        Record(offset, now_ms, TimestampType.CREATE_TIME, key, value)
        for offset, (key, value) in enumerate(store.records)
    ]
    return memoryview(encode_records(rows, target))


def _config(config: BrokerConfig, offer: Offer) -> TransactionConfig:
    return TransactionConfig(
        transaction_version=offer.transaction_version,
        state_partitions=config.transaction_state_num_partitions,
        offsets_partitions=config.offsets_topic_num_partitions,
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        check_interval_ms=config.aborted_transaction_interval_ms,
    )
