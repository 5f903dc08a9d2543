"""A transaction coordinator with a log and partitions that do at once, or when told, what it wants done."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

from magicbyte.engine.coordination.effects import Caller, Reply, Store
from magicbyte.engine.errors import ErrorCode, NoProducerIdError
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.engine.transactions.answers import codes_of
from magicbyte.engine.transactions.config import TransactionConfig
from magicbyte.engine.transactions.coordinator import Coordinator
from magicbyte.engine.transactions.effects import AfterStore, Effect, SendMarkers
from magicbyte.engine.transactions.records import TransactionKey, TransactionValue, decode_key, decode_value

A, B, C = (TopicPartition("t", each) for each in range(3))
START_MS = 1_700_000_000_000


class World:
    """`holds_stores`, `holds_markers`: they wait in `stores` and `sent` until a test releases them."""

    def __init__(self, config: TransactionConfig | None = None, *, first_id: int = 1000) -> None:
        self.log: list[tuple[bytes, bytes | None]] = []
        self.markers: list[tuple[TopicPartition, int, int, int, bool]] = []
        self.stores: deque[Store[AfterStore]] = deque()
        self.sent: deque[SendMarkers] = deque()
        self.holds_stores = self.holds_markers = False
        self.store_code = ErrorCode.NONE
        self.now_ms = START_MS
        self.replies: dict[int, Message] = {}
        self._tickets = itertools.count()
        self.has_ids, self._ids = True, itertools.count(first_id)
        self.coordinator = Coordinator(
            config or TransactionConfig(),
            new_producer_id=self._new_producer_id,
            has_partition=lambda topic, index: topic == "t" and index < 3,
            offsets_partitions=lambda: 50,
        )
        self.elect(1)

    def _new_producer_id(self) -> int:
        if not self.has_ids:
            raise NoProducerIdError("not now")
        return next(self._ids)

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms, self.now_ms - START_MS + 5_000)

    def elect(self, epoch: int) -> None:
        """Lead every partition in this epoch, and load what the log says."""
        found = self.values()
        for partition in range(self.coordinator.partitions):
            term = self.coordinator.begin_loading(partition, epoch)
            mine = {each: value for each, value in found.items() if self.coordinator.partition_of(each) == partition}
            self.perform(self.coordinator.loaded(partition, term, mine, self.now))

    def values(self) -> dict[str, TransactionValue]:
        """Return what the log says, the last record of each id."""
        found: dict[str, TransactionValue] = {}
        for raw, data in self.log:
            key = decode_key(raw)
            assert isinstance(key, TransactionKey)
            value = decode_value(key, data)
            if value is None:
                found.pop(key.transactional_id, None)
            else:
                assert isinstance(value, TransactionValue)
                found[key.transactional_id] = value
        return found

    def states(self) -> list[str]:
        """Return state and epoch of each record of the log."""
        found = []
        for raw, data in self.log:
            value = decode_value(decode_key(raw), data)
            assert value is None or isinstance(value, TransactionValue)
            state = None if value is None else value.state
            found.append("-" if value is None or state is None else f"{state.label} {value.producer_epoch}")
        return found

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply():
                    assert isinstance(effect.to.ticket, int)
                    assert effect.to.ticket not in self.replies, "one answer"
                    self.replies[effect.to.ticket] = effect.message
                case Store():
                    self.stores.append(effect)
                case SendMarkers():
                    self.sent.append(effect)
        while self.stores and not self.holds_stores:
            self.store(self.store_code)
        while self.sent and not self.holds_markers:
            self.mark()

    def store(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Let the first append that waits end."""
        store = self.stores.popleft()
        if not code:
            self.log += store.records
        self.perform(self.coordinator.stored(store, code, self.now))

    def mark(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Let the first markers that wait be written, or refused."""
        sent = self.sent.popleft()
        for place in sent.partitions:
            if not code:
                epochs = (sent.producer_epoch, sent.coordinator_epoch)
                self.markers.append((place, sent.producer_id, *epochs, sent.commits))
            self.perform(self.coordinator.marked(sent, place, code))

    def later(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.perform(self.coordinator.due(self.now))

    # ---- requests: what they are answered, None while they wait

    def _caller(self, version: int) -> tuple[int, Caller]:
        ticket = next(self._tickets)
        return ticket, Caller(ticket, version)

    def init(
        self, key: str = "x", pair: tuple[int, int] = (-1, -1), *, version: int = 4, timeout_ms: int = 60_000
    ) -> tuple[int, int, int] | None:
        """Return code, id and epoch."""
        ticket, caller = self._caller(version)
        request = InitProducerIdRequest(
            transactional_id=key, transaction_timeout_ms=timeout_ms, producer_id=pair[0], producer_epoch=pair[1]
        )
        self.perform(self.coordinator.answer(caller, request, self.now))
        found = self.replies.get(ticket)
        if found is None:
            return None
        assert isinstance(found, InitProducerIdResponse)
        return found.error_code, found.producer_id, found.producer_epoch

    def add(self, pair: tuple[int, int], *places: TopicPartition, key: str = "x", version: int = 3) -> list[int] | None:
        """Return the codes of the partitions."""
        ticket, caller = self._caller(version)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=key,
            v3_and_below_producer_id=pair[0],
            v3_and_below_producer_epoch=pair[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=(each,)) for topic, each in places],
        )
        self.perform(self.coordinator.add_partitions(caller, request, self.now))
        found = self.replies.get(ticket)
        if found is None:
            return None
        assert isinstance(found, AddPartitionsToTxnResponse)
        topics = found.results_by_topic_v3_and_below
        return [each.partition_error_code for topic in topics for each in topic.results_by_partition]

    def ask(
        self, pair: tuple[int, int], *places: TopicPartition, verify: bool = False, key: str = "x"
    ) -> list[int] | None:
        """Return the codes of partitions that a broker asks about, as they join or to verify that they are in."""
        ticket, caller = self._caller(5)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=key,
            producer_id=pair[0],
            producer_epoch=pair[1],
            verify_only=verify,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=(each,)) for topic, each in places],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        self.perform(self.coordinator.add_partitions(caller, request, self.now))
        found = self.replies.get(ticket)
        if found is None:
            return None
        assert isinstance(found, AddPartitionsToTxnResponse)
        return list(codes_of(found.results_by_transaction[0]).values())

    def add_offsets(self, pair: tuple[int, int], group: str, *, key: str = "x") -> int | None:
        ticket, caller = self._caller(3)
        request = AddOffsetsToTxnRequest(
            transactional_id=key, producer_id=pair[0], producer_epoch=pair[1], group_id=group
        )
        self.perform(self.coordinator.add_offsets(caller, request, self.now))
        return self._code(ticket)

    def end(self, pair: tuple[int, int], *, commit: bool = True, key: str = "x", version: int = 3) -> int | None:
        ticket, caller = self._caller(version)
        request = EndTxnRequest(transactional_id=key, producer_id=pair[0], producer_epoch=pair[1], committed=commit)
        self.perform(self.coordinator.answer(caller, request, self.now))
        return self._code(ticket)

    def end_and_raise(
        self, pair: tuple[int, int], *, commit: bool = True, key: str = "x"
    ) -> tuple[int, int, int] | None:
        """Return code, id and epoch: those of the next transaction (protocol 2)."""
        ticket, caller = self._caller(5)
        request = EndTxnRequest(transactional_id=key, producer_id=pair[0], producer_epoch=pair[1], committed=commit)
        self.perform(self.coordinator.answer(caller, request, self.now))
        found = self.replies.get(ticket)
        if found is None:
            return None
        assert isinstance(found, EndTxnResponse)
        return found.error_code, found.producer_id, found.producer_epoch

    def _code(self, ticket: int) -> int | None:
        found = self.replies.get(ticket)
        if found is None:
            return None
        assert isinstance(found, AddOffsetsToTxnResponse | EndTxnResponse)
        return found.error_code
