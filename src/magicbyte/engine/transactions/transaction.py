"""One transactional id: its last stored state, and the pending one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct, field

from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.sentinels import NO_EPOCH, NO_PRODUCER_ID
from magicbyte.engine.transactions.records import STATES, TransactionState, TransactionValue, WrittenPartitions

LAST_EPOCH: Final = 0x7FFF - 1  # the last that clients get; a fence may still add one
PROTOCOL_2: Final = 2


class Transaction(Struct):
    """`value` was stored last. `pending` is the state whose record is being appended, or will follow.

    `unmarked`: partitions whose marker has not been acknowledged. `prepared_ms`: the date at which the current end was
    stored. `epoch_was_raised`: by a fence that was not stored.
    """

    transactional_id: str
    partition: int
    term: int
    value: TransactionValue
    last_epoch: int = NO_EPOCH
    pending: TransactionState | None = None
    unmarked: set[TopicPartition] = field(default_factory=set)
    prepared_ms: int = -1
    epoch_was_raised: bool = False

    @property
    def state(self) -> TransactionState:
        """The state that was stored last."""
        return STATES[self.value.status]

    @property
    def places(self) -> set[TopicPartition]:
        """The partitions of the transaction."""
        return places_of(self.value)

    def renewed(self, given_epoch: int | None, timeout_ms: int, date_ms: int) -> tuple[TransactionValue, int] | None:
        """Return the value and the previous epoch for a producer that begins; None for one that was fenced.

        `given_epoch` is its current epoch, if the request has it (KIP-360).
        """
        epoch, last = self.value.producer_epoch, NO_EPOCH
        if given_epoch is not None and epoch not in (NO_EPOCH, given_epoch):
            if given_epoch != self.last_epoch:
                return None
            last = self.last_epoch  # its response was lost: answer the same again
        else:
            last = NO_EPOCH if given_epoch is None else epoch
            epoch += 1
        return self._empty(timeout_ms, date_ms)._replace(producer_epoch=epoch), last

    def rotated(
        self, producer_id: int, given_epoch: int | None, timeout_ms: int, date_ms: int
    ) -> tuple[TransactionValue, int]:
        """Return the value for a producer that begins when all epochs of its id are used up: a new producer id."""
        last = NO_EPOCH if given_epoch is None else self.value.producer_epoch
        value = self._empty(timeout_ms, date_ms)._replace(
            producer_id=producer_id,
            previous_producer_id=self.value.producer_id,
            producer_epoch=0,
        )
        return value, last

    def _empty(self, timeout_ms: int, date_ms: int) -> TransactionValue:
        return self.value._replace(
            status=int(TransactionState.EMPTY),
            partitions=None,
            timeout_ms=timeout_ms,
            start_timestamp=-1,
            last_update_timestamp=date_ms,
        )

    def extended(self, places: Iterable[TopicPartition], date_ms: int, client_version: int) -> TransactionValue:
        """Return the value with these partitions added to the transaction."""
        goes_on = self.state is TransactionState.ONGOING
        return self.value._replace(
            status=int(TransactionState.ONGOING),
            partitions=by_topic({*self.places, *places}),
            start_timestamp=self.value.start_timestamp if goes_on else date_ms,
            last_update_timestamp=date_ms,
            client_transaction_version=client_version,
        )

    def prepared(self, state: TransactionState, date_ms: int) -> TransactionValue:
        """Return the value when the end of the transaction is decided, in its current epoch."""
        return self.value._replace(status=int(state), last_update_timestamp=date_ms, client_transaction_version=0)

    def raised(self, state: TransactionState, date_ms: int, new_id: Callable[[], int]) -> tuple[TransactionValue, int]:
        """Return the value when the end is decided and raises the epoch, and the previous epoch (protocol 2).

        There may be no partitions: an abort of nothing. If the epochs are used up, the producer continues with a new id
        when the transaction is complete.
        """
        epoch, goes_on = self.value.producer_epoch, self.state is TransactionState.ONGOING
        value = self.value._replace(
            status=int(state),
            partitions=by_topic(self.places),
            start_timestamp=self.value.start_timestamp if goes_on else date_ms,
            last_update_timestamp=date_ms,
            producer_epoch=epoch + 1,
            next_producer_id=new_id() if epoch >= LAST_EPOCH else NO_PRODUCER_ID,
            client_transaction_version=PROTOCOL_2,
        )
        return value, epoch

    def was_ended_by(self, producer_id: int, epoch: int) -> bool:
        """Return whether an EndTxn of protocol 2 by this producer led to this state: then its response was lost."""
        if (producer_id, epoch + 1) == (self.value.producer_id, self.value.producer_epoch):
            return True
        is_rotated = producer_id == self.value.previous_producer_id and self.value.producer_epoch == 0
        return is_rotated and epoch == LAST_EPOCH

    def completed(self, state: TransactionState) -> tuple[TransactionValue, int]:
        """Return the value when all markers are written: the next producer id, if there is one, becomes the current
        one.
        """
        value = self.value._replace(status=int(state), partitions=[], last_update_timestamp=self.prepared_ms)
        if value.next_producer_id == NO_PRODUCER_ID:
            return value, self.last_epoch
        rotated = value._replace(
            producer_id=value.next_producer_id,
            previous_producer_id=value.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=0,
        )
        return rotated, LAST_EPOCH


def next_pair(value: TransactionValue) -> tuple[int, int]:
    """Return producer id and epoch of the next transaction."""
    if value.next_producer_id != NO_PRODUCER_ID:
        return value.next_producer_id, 0
    return value.producer_id, value.producer_epoch


def places_of(value: TransactionValue) -> set[TopicPartition]:
    """Return the partitions of a value."""
    return {TopicPartition(topic, each) for topic, ids in value.partitions or () for each in ids}


def by_topic(places: Iterable[TopicPartition]) -> list[WrittenPartitions]:
    """Return partitions in order, grouped by topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return [WrittenPartitions(topic, ids) for topic, ids in found.items()]
