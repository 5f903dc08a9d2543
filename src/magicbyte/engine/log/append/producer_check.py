"""The state by which a leader distinguishes a producer's duplicate batches and sequence gaps from new batches.

It has the last five batches of each producer. A snapshot on disk has only the last one, so the others come from the log
before it. docs/internals/append.md has the rules as a table. Source: KIP-98; Kafka's ProducerStateEntry and
ProducerAppendInfo.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from magicbyte.engine.errors import AppendRefusedError, ErrorCode
from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
from magicbyte.engine.log.files.producer_state import REMEMBERED, AppendedBatch
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.sentinels import NO_EPOCH, NO_SEQUENCE

_SEQUENCES = 1 << 31
MOST_GUARDS = 10_000


class _Producer(Struct):
    """A producer's last batches. `timestamp` is that of the last batch or marker, in ms."""

    epoch: int
    timestamp: int
    coordinator_epoch: int = NO_EPOCH
    in_transaction: bool = False
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class Guard(Struct, eq=False):
    """A pending verification: the coordinator is being asked about a producer without an open transaction here.

    It is valid as long as it is registered. `sequence`: the lowest one of the waiting batches. `joins`: the waiting
    batches add the partition to the transaction (protocol 2).
    """

    sequence: int
    epoch: int
    joins: bool = False


OPEN: Final = Guard(0, NO_EPOCH)
"""Used instead of a guard if the transaction was open already, and no verification was needed."""


class ProducerChecks:
    """The producers of one partition. Call `check` before a batch is written, `appended` or `ended` afterwards."""

    def __init__(self, most_guards: int = MOST_GUARDS) -> None:
        self._producers: dict[int, _Producer] = {}
        self._most_guards = most_guards
        self._guards = OrderedDict[int, Guard]()  # by producer; other threads remove theirs concurrently

    def start_from(self, snapshot: ProducerSnapshot, recent: Mapping[int, Iterable[AppendedBatch]]) -> None:
        """Load a snapshot, with the `recent` batches of each producer."""
        for entry in snapshot.producers:
            in_transaction = entry.current_txn_first_offset >= 0
            producer = _Producer(entry.producer_epoch, entry.timestamp, entry.coordinator_epoch, in_transaction)
            producer.batches.extend(recent.get(entry.producer_id, ()))
            self._producers[entry.producer_id] = producer

    def guard(self, producer_id: int, epoch: int, sequence: int, *, joins: bool) -> Guard:
        """Return the guard for the first records of a transaction, which must be verified with the coordinator first.

        Returns OPEN if the transaction is open; then they are not the first. A guard ends with the first records; with
        a marker, except that of the previous transaction under protocol 2; and, the oldest first, if there are too
        many.
        """
        if self.is_open(producer_id, epoch):
            return OPEN
        guard = self._guards.get(producer_id)
        if guard is None:
            while len(self._guards) >= self._most_guards:
                self._guards.popitem(last=False)
            guard = self._guards[producer_id] = Guard(sequence, epoch, joins)
        elif epoch > guard.epoch:
            guard.epoch, guard.sequence, guard.joins = epoch, sequence, joins
        elif epoch == guard.epoch:
            guard.sequence = min(guard.sequence, sequence)
        return guard

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return whether a producer has an open transaction of this epoch in the partition."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.in_transaction and producer.epoch == epoch

    def check(self, batch: RecordBatch, guard: Guard | None = None) -> AppendedBatch | None:
        """Return the batch in the log that this one duplicates, or None: it must be written.

        An unknown producer may begin with any sequence, because the log may have forgotten it. `guard`: the one
        obtained for the records of a transaction; None accepts any. Raises AppendRefusedError for an old epoch, a gap,
        non-transactional records while a transaction is open, and records of a transaction that may have ended
        meanwhile.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            self._check_guard(batch, guard)
            if guard is not None and guard.joins and batch.base_sequence != 0:
                raise _refusal(_GAP, batch, f"a transaction begins with sequence {batch.base_sequence}, not 0")
            return None
        if batch.producer_epoch < producer.epoch:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
            raise _refusal(code, batch, f"epoch {batch.producer_epoch} is older than {producer.epoch}")
        if batch.producer_epoch > producer.epoch:
            self._check_guard(batch, guard)
            if batch.base_sequence != 0:
                raise _refusal(_GAP, batch, f"a new epoch begins with sequence {batch.base_sequence}, not 0")
            return None
        for known in producer.batches:
            if known.base_sequence == batch.base_sequence and known.last_sequence == batch.last_sequence:
                return known
        self._check_guard(batch, guard)
        expected = (producer.batches[-1].last_sequence + 1) % _SEQUENCES if producer.batches else 0
        if batch.base_sequence != expected:
            raise _refusal(_GAP, batch, f"expected sequence {expected}, found {batch.base_sequence}")
        if producer.in_transaction and not batch.is_transactional:
            raise _refusal(
                ErrorCode.INVALID_TXN_STATE, batch, "non-transactional records while its transaction is open"
            )
        return None

    def _check_guard(self, batch: RecordBatch, guard: Guard | None) -> None:
        """Raise AppendRefusedError for records of a transaction that was not verified, or that has ended."""
        if guard is None or not batch.is_transactional or self.is_open(batch.producer_id, batch.producer_epoch):
            return
        if guard is not self._guards.get(batch.producer_id):
            raise _refusal(ErrorCode.INVALID_TXN_STATE, batch, "records of a transaction that is not open")
        if batch.base_sequence > guard.sequence:
            raise _refusal(_GAP, batch, f"expected sequence {guard.sequence} first, found {batch.base_sequence}")

    def appended(self, batch: RecordBatch, first_offset: int, last_offset: int, timestamp: int) -> None:
        """Record a data batch that was written."""
        assert batch.base_sequence > NO_SEQUENCE, "an idempotent batch has a sequence"
        producer = self._moved(batch.producer_id, batch.producer_epoch, timestamp)
        self._guards.pop(batch.producer_id, None)
        producer.timestamp, producer.in_transaction = timestamp, batch.is_transactional
        producer.batches.append(
            AppendedBatch(batch.base_sequence, batch.last_sequence, first_offset, last_offset, timestamp)
        )

    def _moved(self, producer_id: int, epoch: int, timestamp: int) -> _Producer:
        """Return a producer that has written in `epoch`: a newer one than before forgets its earlier batches."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(epoch, timestamp)
        elif epoch > producer.epoch:
            producer.epoch = epoch
            producer.batches.clear()
        return producer

    def check_epochs(self, producer_id: int, producer_epoch: int, coordinator_epoch: int | None) -> None:
        """Raise AppendRefusedError for an old producer epoch, or a marker from an old coordinator."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if producer_epoch < producer.epoch:
            why = f"producer {producer_id}: epoch {producer_epoch} is older than {producer.epoch}"
            raise AppendRefusedError(ErrorCode.INVALID_PRODUCER_EPOCH, why)
        if coordinator_epoch is not None and coordinator_epoch < producer.coordinator_epoch:
            why = f"producer {producer_id}: a marker of coordinator epoch {coordinator_epoch}"
            raise AppendRefusedError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED, f"{why}, older than {producer.coordinator_epoch}"
            )

    def ended(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Record a marker that was written, of `timestamp` in ms: the producer's transaction has ended."""
        producer = self._moved(producer_id, producer_epoch, timestamp)
        guard = self._guards.get(producer_id)
        # Protocol 2 ends a transaction in the epoch of the next one, whose first records may be waiting already.
        if guard is not None and not (guard.joins and guard.epoch == producer_epoch):
            self._guards.pop(producer_id, None)
        producer.timestamp = timestamp
        producer.coordinator_epoch, producer.in_transaction = coordinator_epoch, False

    def expire(self, now_ms: int, after_ms: int) -> None:
        """Forget producers without an open transaction that wrote nothing for `after_ms`."""
        self._producers = {
            each: producer
            for each, producer in self._producers.items()
            if producer.in_transaction or now_ms - producer.timestamp < after_ms
        }


_GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def _refusal(code: ErrorCode, batch: RecordBatch, why: str) -> AppendRefusedError:
    return AppendRefusedError(code, f"producer {batch.producer_id}: {why}")
