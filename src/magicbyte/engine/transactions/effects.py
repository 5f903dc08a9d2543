"""The continuations after appends of the transaction coordinator, and the markers that it sends, as data."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from magicbyte.engine.coordination.effects import Caller, Reply, Store
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.transactions.records import TransactionValue


class Answer(NamedTuple):
    """Answer a request after the append: with `code` if it succeeded, else with the append's error."""

    caller: Caller
    request: Message
    code: int = 0


class TransactionChange(NamedTuple):
    """Give a transactional id the appended value. `last_epoch` is not in the log."""

    transactional_id: str
    value: TransactionValue
    last_epoch: int
    answer: Answer | None = None


class Forget(NamedTuple):
    """Delete expired transactional ids."""

    transactional_ids: tuple[str, ...]


class SendMarkers(NamedTuple):
    """Write a marker into each of `partitions`, by their leaders, and pass each outcome to `Coordinator.marked`.

    `again`: a leader refused or was unreachable, so it must be looked up again, after a pause.
    """

    transactional_id: str
    partition: int  # of `__transaction_state`
    term: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    partitions: tuple[TopicPartition, ...]
    again: bool = False


AfterStore: TypeAlias = TransactionChange | Forget
Effect: TypeAlias = Reply | Store[AfterStore] | SendMarkers
