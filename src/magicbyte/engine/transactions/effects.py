"""The transaction coordinator's effects as data: it writes nothing and sends nothing itself.

The continuation after an append is part of its `Store`, and `Coordinator.stored` performs it.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from magicbyte.engine.coordination.effects import Caller, Reply
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


class Store(NamedTuple):
    """Append records to a partition of `__transaction_state` with acks=all, and report the outcome.

    Within one partition outcomes come in the order of the appends, each record of an id in a batch of its own. They are
    not appended after the `term` in which they were decided. The append may take `timeout_ms`.
    """

    partition: int
    term: int
    records: tuple[tuple[bytes, bytes | None], ...]
    timeout_ms: int
    then: TransactionChange | Forget


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


Effect: TypeAlias = Reply | Store | SendMarkers
