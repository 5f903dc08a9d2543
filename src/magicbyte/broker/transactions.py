"""The transaction coordinator at work: its requests, and the log in which it keeps what it knows.

Decisions are made in `transactions/`. Here records are appended to `__transaction_state`, markers are sent, and whoever
waits gets its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from magicbyte.broker.coordinating import Coordinating, CoordinatorTopic, give, has_partition, own_topic, read_into
from magicbyte.broker.markers import MarkerSender, write_markers
from magicbyte.broker.topic_nodes import INTERNAL
from magicbyte.broker.turns import STEPS_AT_ONCE, Turns
from magicbyte.errors import ErrorCode
from magicbyte.groups.effects import Caller, Marker, Producer, Reply
from magicbyte.groups.partitioning import OFFSETS_TOPIC, STATE_TOPIC
from magicbyte.ports import Moment, TopicPartition
from magicbyte.printable import logger
from magicbyte.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from magicbyte.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from magicbyte.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from magicbyte.protocol.messages.end_txn import EndTxnRequest
from magicbyte.protocol.messages.init_producer_id import InitProducerIdRequest
from magicbyte.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from magicbyte.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from magicbyte.records.columns import Record
from magicbyte.records.encode import Format, encode_records
from magicbyte.records.layout import TimestampType
from magicbyte.transactions import reports
from magicbyte.transactions.answers import FIRST_OF_BROKERS, not_added
from magicbyte.transactions.config import TransactionConfig
from magicbyte.transactions.coordinator import Coordinator
from magicbyte.transactions.effects import Effect, SendMarkers, Store
from magicbyte.transactions.loading import Loading
from magicbyte.transactions.records import TransactionValue
from magicbyte.transactions.rules import MARKED

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker
    from magicbyte.broker.config import BrokerConfig
    from magicbyte.broker.offer import Offer
    from magicbyte.broker.request import Handler, Request
    from magicbyte.log.live.partition_log import PartitionLog
    from magicbyte.protocol import Message

log = logger(__name__)

_TOGETHER: Final = 20  # transactions of a request of a broker that are looked at together

_Loaded = dict[str, TransactionValue]


class Transactions(Coordinating[Store, Effect, _Loaded]):
    """The transactional ids of the partitions of `__transaction_state` that a broker leads."""

    topic = STATE_TOPIC
    what = "transactional ids"

    def __init__(self, broker: Broker) -> None:
        self.coordinator = Coordinator(
            _config(broker.config, broker.offer),
            new_producer_id=broker.producer_ids.next,
            has_partition=partial(has_partition, broker),
        )
        self._sender = MarkerSender(
            broker,
            self._marked,
            lambda sent: not self.coordinator.terms.is_present(sent.partition, sent.term),
        )
        super().__init__(broker, self.coordinator, broker.config.expired_id_interval_ms)

    # ---- partitions

    def _begin(self, partition: int, leader_epoch: int, partitions: int) -> int:
        self.coordinator.config = replace(self.coordinator.config, state_partitions=partitions)
        return self.coordinator.begin_loading(partition, leader_epoch)

    def _go_on(self, partition: int, leader_epoch: int) -> None:
        self.coordinator.go_on(partition, leader_epoch)

    def _end(self, partition: int) -> None:
        self.coordinator.resign(partition)
        self.set_timer()

    def _loaded(self, partition: int, term: int, found: _Loaded) -> None:
        self.perform(self.coordinator.loaded(partition, term, found, Moment.of(self._broker.clock)))

    def _expire_now(self) -> Sequence[Effect]:
        return self.coordinator.expire(self._broker.clock.now_ms())

    def _plan(self) -> CoordinatorTopic:
        config = self._broker.config
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
        """Return the coordinator's answer, as soon as it has one."""
        return await self.answered(request, partial(self._decide, request.message))

    async def joined(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Return what a broker is told that asks about one transaction."""
        answer: asyncio.Future[AddPartitionsToTxnResponse] = asyncio.get_running_loop().create_future()
        self.perform(self._decide(request, Caller(answer, FIRST_OF_BROKERS)))
        return await answer

    def _decide(self, message: Message, caller: Caller) -> Sequence[Effect]:
        coordinator, now = self.coordinator, Moment.of(self._broker.clock)
        match message:
            case InitProducerIdRequest():
                return coordinator.init_producer(caller, message, now)
            case AddPartitionsToTxnRequest():
                return coordinator.add_partitions(caller, message, now)
            case AddOffsetsToTxnRequest():
                topic, config = self._broker.topics.get(OFFSETS_TOPIC), self._broker.config
                partitions = config.offsets_topic_num_partitions if topic is None else topic.partitions
                coordinator.config = replace(coordinator.config, offsets_partitions=partitions)
                return coordinator.add_offsets(caller, message, now)
        assert isinstance(message, EndTxnRequest), "the handlers below know which there are"
        return coordinator.end(caller, message, now)

    def perform(self, effects: Sequence[Effect]) -> None:
        """Do what the coordinator wants done, and wake it when it wants to be."""
        for effect in effects:
            match effect:
                case Reply(to=Caller(ticket=asyncio.Future() as answer), message=message):
                    give(answer, message)
                case Store():
                    self.store(effect)
                case SendMarkers():
                    self._sender.send(effect)
        self.set_timer()

    def _marked(self, sent: SendMarkers, place: TopicPartition, code: ErrorCode) -> None:
        if code not in MARKED:
            self._broker.complaints.line(log, place.topic, "markers", "%s: a marker of %s was refused: %s",
                                         place, sent.transactional_id, code.name)  # fmt: skip
        self.perform(self.coordinator.marked(sent, place, code))

    def close(self) -> None:
        """Refuse requests from here on; what is being appended is answered."""
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


# ---- handlers


async def answer(broker: Broker, request: Request[Any]) -> Message:
    """Answer a request that the coordinator knows."""
    return await broker.transactions.ask(request)


async def add_partitions(broker: Broker, request: Request[AddPartitionsToTxnRequest]) -> Message:
    """Add partitions to a transaction; where one is not there, the coordinator need not be asked.

    Those of the broker's own topics are not for clients: offsets come by TxnOffsetCommit.
    """
    if request.version >= FIRST_OF_BROKERS:
        return await _add_for_brokers(broker, request)
    refused = await _not_added(broker, request.turns, request.message.v3_and_below_topics, INTERNAL)
    if refused is None:
        return await broker.transactions.ask(request)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refused)


async def _add_for_brokers(broker: Broker, request: Request[AddPartitionsToTxnRequest]) -> Message:
    """Add partitions to many transactions, or say which are in; each is answered for itself."""
    asked, results = request.message.transactions, list[AddPartitionsToTxnResult]()
    for at in range(0, len(asked), _TOGETHER):
        joined = list[Awaitable[AddPartitionsToTxnResult]]()
        async for each in request.turns.over(asked[at : at + _TOGETHER], STEPS_AT_ONCE // _TOGETHER):
            joined.append(_added(broker, request.turns, each))
        results += await asyncio.gather(*joined)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _added(broker: Broker, turns: Turns, asked: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    refused = await _not_added(broker, turns, asked.topics)
    if refused is not None:
        return AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=refused)
    told = await broker.transactions.joined(AddPartitionsToTxnRequest(transactions=[asked]))
    return told.results_by_transaction[0]


async def _not_added(
    broker: Broker, turns: Turns, topics: Sequence[AddPartitionsToTxnTopic], forbidden: Collection[str] = ()
) -> list[AddPartitionsToTxnTopicResult] | None:
    """Return the answer to partitions of which some are not there, or of `forbidden` topics, None without any."""

    def code_of(topic: str, partition: int) -> ErrorCode:
        if topic in forbidden:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return not_added(is_there=has_partition(broker, topic, partition))

    is_refused = False
    async for topic in turns.over(topics):
        async for each in turns.over(topic.partitions):
            is_refused = is_refused or code_of(topic.name, each) is not ErrorCode.OPERATION_NOT_ATTEMPTED
    if not is_refused:
        return None
    answers = []
    async for topic in turns.over(topics):
        codes = [
            AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code_of(topic.name, each))
            async for each in turns.over(topic.partitions)
        ]
        answers.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=codes))
    return answers


async def write_txn_markers(broker: Broker, request: Request[WriteTxnMarkersRequest]) -> WriteTxnMarkersResponse:
    """Write what ends transactions, for a coordinator, into partitions that this broker leads."""
    turns, markers = request.turns, request.message.markers
    wanted, answers = list[tuple[TopicPartition, Marker]](), list[WritableTxnMarkerResult]()
    async for each in turns.over(markers):
        producer = Producer(each.producer_id, each.producer_epoch)
        marker = Marker(producer, each.coordinator_epoch, each.transaction_result)
        async for topic in turns.over(each.topics):
            async for one in turns.over(topic.partition_indexes):
                wanted.append((TopicPartition(topic.name, one), marker))
    codes = iter(await write_markers(broker, wanted, turns))
    async for each in turns.over(markers):
        topics = list[WritableTxnMarkerTopicResult]()
        async for topic in turns.over(each.topics):
            told = list[WritableTxnMarkerPartitionResult]()
            async for one in turns.over(topic.partition_indexes):
                told.append(WritableTxnMarkerPartitionResult(partition_index=one, error_code=next(codes)))
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=told))
        answers.append(WritableTxnMarkerResult(producer_id=each.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=answers)


async def describe(broker: Broker, request: Request[DescribeTransactionsRequest]) -> DescribeTransactionsResponse:
    """Tell where each of some transactional ids stands."""
    response = DescribeTransactionsResponse()
    async for each in request.turns.over(request.message.transactional_ids):
        response.transaction_states.append(reports.describe(broker.transactions.coordinator, each))
    return response


async def list_all(broker: Broker, request: Request[ListTransactionsRequest]) -> ListTransactionsResponse:
    """Tell the transactional ids that this broker coordinates."""
    return reports.list_all(broker.transactions.coordinator, request.message, broker.clock.now_ms())


HANDLERS: Final[Mapping[type, Handler]] = {
    AddPartitionsToTxnRequest: add_partitions,
    AddOffsetsToTxnRequest: answer,
    EndTxnRequest: answer,
    WriteTxnMarkersRequest: write_txn_markers,
    DescribeTransactionsRequest: describe,
    ListTransactionsRequest: list_all,
}
