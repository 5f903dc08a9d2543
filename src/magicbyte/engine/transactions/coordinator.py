"""The transaction coordinator: the transactional ids of the partitions of `__transaction_state` that this broker leads.

Each state of a transactional id is stored before it takes effect. Protocol 1 (KIP-98, KIP-360, KIP-447), and protocol 2
(KIP-890), in which each transaction has an epoch. Source: Kafka's TransactionCoordinator and TransactionStateManager
(3.9, 4.3).

Invariants, besides those of every `Decider`:
1. `Transaction.value` is the last stored state, and `pending` the one that is being stored. An id has one pending state
   at a time; meanwhile requests that would change it get CONCURRENT_TRANSACTIONS. Exception: in protocol 1 a fence
   counts at once.
2. A state follows only one of its predecessors (`rules.PREDECESSORS`).
3. Markers are sent when the decision (PREPARE_COMMIT, PREPARE_ABORT) is stored, and it cannot change. The end is stored
   when every partition has acknowledged its marker, cannot hold one, or is deleted.
4. The epoch of a producer id never falls. A new producer id follows its last epoch.
5. Markers carry the leader epoch of the term, so that a leader of a partition refuses those of an earlier coordinator.
   The outcome of a marker of an ended term changes nothing.

After a crash `loaded` continues from the last stored state: an ONGOING transaction has the rest of its timeout; of a
PREPARE one all markers are sent again, which leaders accept twice. `tests/engine/transactions/test_coordinator.py` has
1 to 5 and the loads, `tests/simulation/test_transaction_bugs.py` plants mistakes in most of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from magicbyte.engine.coordination.decider import Decider
from magicbyte.engine.coordination.effects import Caller, Reply, Store
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.errors import ErrorCode, NoProducerIdError
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.first_versions import FIRST_OF_PROTOCOL_2
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from magicbyte.engine.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest
from magicbyte.engine.sentinels import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from magicbyte.engine.transactions.answers import answer, not_added, partition_codes, places_of, transactions_of
from magicbyte.engine.transactions.config import TransactionConfig
from magicbyte.engine.transactions.effects import AfterStore, Answer, Effect, Forget, SendMarkers, TransactionChange
from magicbyte.engine.transactions.records import STATES, TransactionKey, TransactionState, TransactionValue
from magicbyte.engine.transactions.rules import (
    COMPLETION,
    IDLE,
    MARKED,
    MARKER_FENCED,
    NOT_STORED,
    PREDECESSORS,
)
from magicbyte.engine.transactions.transaction import LAST_EPOCH, PROTOCOL_2, Transaction, next_pair

_FORGOTTEN_TOGETHER = 500  # ids per append, whose tombstones fit into a set
_ENDED = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
_OF_ITS_PAIR = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED)
"""The errors of a producer id or epoch that does not match the transactional id."""
_PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}


class Coordinator(Decider[Effect, str, Mapping[str, TransactionValue]]):
    """Answer requests about transactional ids. Times are in ms.

    `new_producer_id` returns a unique producer id, or raises NoProducerIdError for now. `has_partition` tells whether a
    topic has a partition. `offsets_partitions` returns the number of partitions of `__consumer_offsets`.
    """

    def __init__(
        self,
        config: TransactionConfig,
        *,
        new_producer_id: Callable[[], int],
        has_partition: Callable[[str, int], bool],
        offsets_partitions: Callable[[], int],
    ) -> None:
        super().__init__(config.state_partitions)
        self.config = config
        self.transactions: dict[str, Transaction] = {}
        self._new_producer_id, self._has_partition = new_producer_id, has_partition
        self._offsets_partitions = offsets_partitions

    # ---- partitions

    def _install(self, partition: int, content: Mapping[str, TransactionValue], now: Moment) -> Sequence[Effect]:
        """Install the state read from the log, and complete decided transactions: all markers are sent again."""
        term = self.terms[partition].number
        effects: list[Effect] = []
        for transactional_id, value in content.items():
            each = Transaction(transactional_id, partition, term, value)
            self.transactions[transactional_id] = each
            effects += self._settled(each, now)
        return effects

    def _drop(self, partition: int) -> Sequence[Effect]:
        """Forget the ids of a partition; requests wait only for appends."""
        for each in [each for each in self.transactions.values() if each.partition == partition]:
            del self.transactions[each.transactional_id]
            self.deadlines.cancel(each.transactional_id)
        return []

    def status(self, transactional_id: str) -> ErrorCode:
        """Return why this coordinator does not serve an id, or NONE."""
        return super().status(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST

    # ---- time

    def _deadline_reached(self, key: str, now: Moment) -> Sequence[Effect]:
        """Abort a transaction that timed out, or retry an end that could not be stored."""
        transaction = self.transactions[key]
        if transaction.state in COMPLETION:
            return [self._complete(transaction)]
        if transaction.pending is not None:
            self._try_later(transaction, now)
        elif transaction.state is TransactionState.ONGOING:
            try:
                return self._fence(transaction, None, now)
            except NoProducerIdError:
                self._try_later(transaction, now)
        return []

    def _try_later(self, transaction: Transaction, now: Moment) -> None:
        self.deadlines.set(transaction.transactional_id, now.monotonic_ms + self.config.check_interval_ms)

    def expire(self, date_ms: int) -> list[Effect]:
        """Delete ids that have not been used for long: they are gone when their tombstones are stored."""
        expired: dict[int, list[Transaction]] = {}
        for each in self.transactions.values():
            is_old = each.value.last_update_timestamp <= date_ms - self.config.id_expiration_ms
            if is_old and each.pending is None and each.state in IDLE:
                each.pending = TransactionState.DEAD
                expired.setdefault(each.partition, []).append(each)
        return [
            Store(
                partition,
                together[0].term,
                tuple((TransactionKey(each.transactional_id).to_bytes(), None) for each in together),
                Forget(tuple(each.transactional_id for each in together)),
                timeout_ms=self.config.check_interval_ms,
            )
            for partition, old in expired.items()
            for at in range(0, len(old), _FORGOTTEN_TOGETHER)
            for together in [old[at : at + _FORGOTTEN_TOGETHER]]
        ]

    # ---- requests

    def answer(self, caller: Caller, request: Message, now: Moment) -> Sequence[Effect]:
        """Answer one of the four requests of producers and brokers. Without a producer id it may be repeated."""
        try:
            match request:
                case InitProducerIdRequest():
                    return self.init_producer(caller, request, now)
                case AddPartitionsToTxnRequest():
                    return self.add_partitions(caller, request, now)
                case AddOffsetsToTxnRequest():
                    return self.add_offsets(caller, request, now)
            assert isinstance(request, EndTxnRequest), "the handlers know which there are"
            return self.end(caller, request, now)
        except NoProducerIdError as error:
            return [answer(caller, request, error.code)]

    def init_producer(self, caller: Caller, request: InitProducerIdRequest, now: Moment) -> list[Effect]:
        """Answer an InitProducerId with a transactional id, possibly later: its new epoch fences older producers."""
        transactional_id = request.transactional_id or ""
        given = None if request.producer_epoch == NO_EPOCH else request.producer_epoch
        code = ErrorCode.NONE
        if not transactional_id or (request.producer_id == NO_PRODUCER_ID) != (given is None):
            code = ErrorCode.INVALID_REQUEST
        elif not 0 < request.transaction_timeout_ms <= self.config.max_timeout_ms:
            code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        code = code or self.status(transactional_id)
        if code:
            return [answer(caller, request, code)]
        transaction = self.transactions.get(transactional_id) or self._new(transactional_id, now)
        if transaction.pending is not None:
            return [answer(caller, request, ErrorCode.CONCURRENT_TRANSACTIONS)]
        if given is not None and not _may_be_of(transaction, request.producer_id, given):
            return [answer(caller, request, ErrorCode.PRODUCER_FENCED)]
        if transaction.state is TransactionState.ONGOING:
            return self._fence(transaction, Answer(caller, request, ErrorCode.CONCURRENT_TRANSACTIONS), now)
        return self._begin(transaction, given, Answer(caller, request), request.transaction_timeout_ms, now)

    def _new(self, transactional_id: str, now: Moment) -> Transaction:
        value = TransactionValue(
            version=0,
            producer_id=self._new_producer_id(),
            previous_producer_id=NO_PRODUCER_ID,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_EPOCH,
            timeout_ms=0,
            status=int(TransactionState.EMPTY),
            partitions=None,
            last_update_timestamp=now.date_ms,
            start_timestamp=-1,
            client_transaction_version=0,
        )
        partition = self.partition_of(transactional_id)
        found = Transaction(transactional_id, partition, self.terms[partition].number, value)
        self.transactions[transactional_id] = found
        return found

    def _begin(
        self, transaction: Transaction, given: int | None, then: Answer, timeout_ms: int, now: Moment
    ) -> list[Effect]:
        epoch = transaction.value.producer_epoch
        if epoch < LAST_EPOCH:
            renewed = transaction.renewed(given, timeout_ms, now.date_ms)
        elif given in (None, epoch):
            renewed = transaction.rotated(self._new_producer_id(), given, timeout_ms, now.date_ms)
        else:
            return [answer(then.caller, then.request, ErrorCode.UNKNOWN_SERVER_ERROR)]
        if renewed is None:
            return [answer(then.caller, then.request, ErrorCode.PRODUCER_FENCED)]
        return [self._change(transaction, *renewed, then)]

    def add_partitions(self, caller: Caller, request: AddPartitionsToTxnRequest, now: Moment) -> list[Effect]:
        """Answer an AddPartitionsToTxn, possibly later: add all partitions or none; or verify which ones are in.

        The request has one transaction. From a broker it is a verification in protocol 2, where the first records add a
        partition.
        """
        (wanted,) = transactions_of(request)
        places, who = places_of(wanted), (wanted.producer_id, wanted.producer_epoch)
        if wanted.verify_only:
            codes = self.verify(wanted.transactional_id, who, places)
            return [Reply(caller, partition_codes(request, codes.__getitem__))]
        if missing := {each for each in places if not self._has_partition(*each)}:
            return [Reply(caller, partition_codes(request, lambda each: not_added(is_there=each not in missing)))]
        client_version = PROTOCOL_2 if request.transactions else 0
        return self._add(Answer(caller, request), wanted.transactional_id, who, places, now, client_version)

    def verify(
        self, transactional_id: str, who: tuple[int, int], places: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether it is in the transaction of a producer: NONE, or the error.

        `who`: producer id and epoch. Pending changes are ignored: a marker decides.
        """
        if missing := {each for each in places if not self._has_partition(*each)}:
            return {each: not_added(is_there=each not in missing) for each in places}
        code, transaction = self._of(transactional_id, *who)
        if not code and transaction.state in COMPLETION:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        if code:
            return dict.fromkeys(places, code)
        added, missing_code = transaction.places, ErrorCode.TRANSACTION_ABORTABLE
        return {each: ErrorCode.NONE if each in added else missing_code for each in places}

    def add_offsets(self, caller: Caller, request: AddOffsetsToTxnRequest, now: Moment) -> list[Effect]:
        """Answer an AddOffsetsToTxn, possibly later: adds the partition of a group's offsets to the transaction."""
        place = TopicPartition(OFFSETS_TOPIC, partition_for(request.group_id, self._offsets_partitions()))
        who = (request.producer_id, request.producer_epoch)
        return self._add(Answer(caller, request), request.transactional_id, who, {place}, now, 0)

    def _add(
        self,
        then: Answer,
        transactional_id: str,
        who: tuple[int, int],
        places: set[TopicPartition],
        now: Moment,
        client_version: int,
    ) -> list[Effect]:
        code, transaction = self._of(transactional_id, *who)
        if transaction.pending is not None and (not code or (code in _OF_ITS_PAIR and self.config.has_protocol_2)):
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        is_in = not code and transaction.state is TransactionState.ONGOING and places <= transaction.places
        if code or is_in:
            return [answer(then.caller, then.request, code)]
        value = transaction.extended(places, now.date_ms, client_version)
        return [self._change(transaction, value, transaction.last_epoch, then)]

    def end(self, caller: Caller, request: EndTxnRequest, now: Moment) -> list[Effect]:
        """Answer an EndTxn, possibly later: when the decision is stored. The markers follow."""
        if caller.version >= FIRST_OF_PROTOCOL_2[ApiKey.END_TXN]:
            return self._end_and_raise(caller, request, now)
        code, transaction = self._of(request.transactional_id, request.producer_id, request.producer_epoch)
        if not code:
            if transaction.pending is not None:
                code = ErrorCode.CONCURRENT_TRANSACTIONS
            elif transaction.state is TransactionState.ONGOING:
                value = transaction.prepared(_PREPARED[request.committed], now.date_ms)
                return [self._change(transaction, value, transaction.last_epoch, Answer(caller, request))]
            elif transaction.state is not _ENDED[request.committed]:
                code = ErrorCode.INVALID_TXN_STATE
        return [answer(caller, request, code)]

    def _end_and_raise(self, caller: Caller, request: EndTxnRequest, now: Moment) -> list[Effect]:
        """Answer an EndTxn of protocol 2: one with an old epoch was late, or is a retry after a lost response."""
        who, found = (request.producer_id, request.producer_epoch), self.transactions.get(request.transactional_id)
        code, transaction = self._of(request.transactional_id, *who)
        if found is None or (code and code not in _OF_ITS_PAIR):
            return [answer(caller, request, code)]
        has_ended = transaction.state in _ENDED.values()
        if transaction.pending is not None:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        elif has_ended and transaction.was_ended_by(*who):
            code = ErrorCode.NONE if transaction.state is _ENDED[request.committed] else ErrorCode.INVALID_TXN_STATE
            return [answer(caller, request, code, *next_pair(transaction.value))]
        elif not code and request.committed and transaction.state is not TransactionState.ONGOING:
            code = ErrorCode.INVALID_TXN_STATE
        if code:
            return [answer(caller, request, code)]
        state = _PREPARED[request.committed]
        value, last_epoch = transaction.raised(state, now.date_ms, self._new_producer_id)
        return [self._change(transaction, value, last_epoch, Answer(caller, request))]

    def _of(self, transactional_id: str, producer_id: int, epoch: int) -> tuple[ErrorCode, Transaction]:
        """Return the transaction of a producer, and NONE; or an error, and a transaction that must not be used."""
        transaction = self.transactions.get(transactional_id)
        code = self.status(transactional_id)
        if not code and (transaction is None or transaction.value.producer_id != producer_id):
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        elif not code and transaction is not None and transaction.value.producer_epoch != epoch:
            code = ErrorCode.PRODUCER_FENCED
        return code, transaction or _NO_TRANSACTION

    # ---- changes

    def _change(
        self, transaction: Transaction, value: TransactionValue, last_epoch: int, then: Answer | None
    ) -> Store[AfterStore]:
        """Return the append of a value that takes effect once it is stored.

        In version 1, as in Kafka, the previous producer id is the current one, usually the same.
        """
        if self.config.transaction_version:
            value = value._replace(version=1, previous_producer_id=transaction.value.producer_id)
        elif value.version:
            value = value._replace(version=0)
        target = STATES[value.status]
        assert transaction.state in PREDECESSORS[target], f"{transaction.state.label} to {target.label}"
        transaction.pending = target
        return Store(
            transaction.partition,
            transaction.term,
            ((TransactionKey(transaction.transactional_id).to_bytes(), value.to_bytes()),),
            TransactionChange(transaction.transactional_id, value, last_epoch, then),
            timeout_ms=value.timeout_ms,
        )

    def _fence(self, transaction: Transaction, then: Answer | None, now: Moment) -> list[Effect]:
        """Abort a transaction and fence its producer, which has an old epoch from now on.

        In protocol 1 it is fenced even if that could not be stored.
        """
        if self.config.has_protocol_2:
            prepare_abort = TransactionState.PREPARE_ABORT
            value, last_epoch = transaction.raised(prepare_abort, now.date_ms, self._new_producer_id)
            return [self._change(transaction, value, last_epoch, then)]
        if not transaction.epoch_was_raised:
            raised = transaction.value.producer_epoch + 1
            transaction.value = transaction.value._replace(producer_epoch=raised)
            transaction.epoch_was_raised = True
        value = transaction.prepared(TransactionState.PREPARE_ABORT, now.date_ms)
        return [self._change(transaction, value, NO_EPOCH, then)]

    def _continue(self, store: Store[AfterStore], code: ErrorCode, now: Moment) -> Sequence[Effect]:
        """Continue after an append. One of an ended term changes nothing, and is answered NOT_COORDINATOR."""
        code = NOT_STORED.get(code, code)
        if not self.terms.is_present(store.partition, store.term):
            return _answers(store, code)
        if isinstance(store.then, Forget):
            for each in store.then.transactional_ids:
                if code:
                    self.transactions[each].pending = None
                else:
                    del self.transactions[each]
                    self.deadlines.cancel(each)
            return []
        transaction = self.transactions[store.then.transactional_id]
        if code:
            if transaction.state in COMPLETION:  # it stays pending: the markers are written
                self._try_later(transaction, now)
            else:
                transaction.pending = None
                if transaction.state is TransactionState.ONGOING and transaction.transactional_id not in self.deadlines:
                    self._try_later(transaction, now)
            return _answers(store, code)
        transaction.value, transaction.last_epoch = store.then.value, store.then.last_epoch
        transaction.pending, transaction.epoch_was_raised = None, False
        return [*_answers(store, code), *self._settled(transaction, now)]

    def _settled(self, transaction: Transaction, now: Moment) -> list[Effect]:
        """Continue from a state that has just taken effect."""
        key, value = transaction.transactional_id, transaction.value
        if transaction.state in COMPLETION:
            self.deadlines.cancel(key)
            transaction.pending = COMPLETION[transaction.state]
            transaction.unmarked, transaction.prepared_ms = transaction.places, now.date_ms
            if not transaction.unmarked:
                return [self._complete(transaction)]
            return [self._markers(transaction, tuple(sorted(transaction.unmarked)))]
        if transaction.state is not TransactionState.ONGOING:
            self.deadlines.cancel(key)
        elif key not in self.deadlines:  # otherwise it continues, and its timeout is running
            left_ms = value.start_timestamp + value.timeout_ms - now.date_ms
            self.deadlines.set(key, now.monotonic_ms + min(max(left_ms, 0), value.timeout_ms) + 1)
        return []

    # ---- markers

    def _markers(self, transaction: Transaction, places: tuple[TopicPartition, ...]) -> SendMarkers:
        return SendMarkers(
            transaction.transactional_id,
            transaction.partition,
            transaction.term,
            transaction.value.producer_id,
            transaction.value.producer_epoch,
            self.terms[transaction.partition].leader_epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            places,
        )

    def marked(self, sent: SendMarkers, partition: TopicPartition, code: ErrorCode) -> list[Effect]:
        """Apply a leader's response to a marker; NONE also for a deleted partition.

        The last one completes the transaction. A marker refused as outdated is not sent again in this term.
        """
        transaction = self.transactions.get(sent.transactional_id)
        is_void = not self.terms.is_present(sent.partition, sent.term)
        if transaction is None or is_void or partition not in transaction.unmarked or code in MARKER_FENCED:
            return []
        if code not in MARKED:
            return [sent._replace(partitions=(partition,), again=True)]
        transaction.unmarked.remove(partition)
        return [] if transaction.unmarked else [self._complete(transaction)]

    def _complete(self, transaction: Transaction) -> Store[AfterStore]:
        """Store that all markers are written. Kafka's timestamp for it is that of the decision."""
        value, last_epoch = transaction.completed(COMPLETION[transaction.state])
        return self._change(transaction, value, last_epoch, None)


_NO_TRANSACTION = Transaction(
    "",
    NO_PRODUCER_ID,
    NO_PRODUCER_ID,
    TransactionValue(
        0, NO_PRODUCER_ID, NO_PRODUCER_ID, NO_PRODUCER_ID, NO_EPOCH, 0, 0, None, NO_TIMESTAMP, NO_TIMESTAMP, 0
    ),
)


def _may_be_of(transaction: Transaction, producer_id: int, epoch: int) -> bool:
    """Return whether the producer may have been given this producer id."""
    value = transaction.value
    if value.producer_epoch == NO_EPOCH or producer_id == value.producer_id:
        return True
    return producer_id == value.previous_producer_id and epoch >= LAST_EPOCH


def _answers(store: Store[AfterStore], code: ErrorCode) -> list[Effect]:
    """Return the response to the request that waits for an append."""
    if isinstance(store.then, Forget) or (then := store.then.answer) is None:
        return []
    return [answer(then.caller, then.request, code or ErrorCode(then.code), *next_pair(store.then.value))]
