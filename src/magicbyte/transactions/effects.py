"""What the transaction coordinator wants done, as data: it writes nothing and sends nothing itself.

What is to happen after an append stands in its `Store`, and `Coordinator.stored` does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from magicbyte.groups.effects import Caller, Reply
from magicbyte.ports import TopicPartition
from magicbyte.protocol.message import Message
from magicbyte.transactions.records import TransactionValue


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a request when the append is done: with `code` if it succeeded, else with the append's."""

    caller: Caller
    request: Message
    code: int = 0


@dataclass(frozen=True, slots=True)
class TransactionChange:
    """Let a transactional id have the value that was appended. `last_epoch` is not in the log."""

    transactional_id: str
    value: TransactionValue
    last_epoch: int
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    """Forget transactional ids that have expired."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """Append records to a partition of `__transaction_state`, for all its in-sync replicas, and tell the outcome.

    Of one partition that is done in the order of the appends, each record of an id in a batch of its own. They are not
    appended after the `term` in which they were decided. The append may take `timeout_ms`.
    """

    partition: int
    term: int
    records: tuple[tuple[bytes, bytes | None], ...]
    timeout_ms: int
    then: TransactionChange | Forget


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Write a marker into each of `partitions`, by their leaders, and give each outcome to `Coordinator.marked`.

    `again`: a leader refused or was not reached, so it is to be looked up once more, after a pause.
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
