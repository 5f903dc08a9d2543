"""The coordinator's inputs and effects as data: it answers nothing and writes nothing itself.

Effects can be compared, logged and replayed. The continuation after an append is part of its `StoreRecords`, and
`Coordinator.stored` performs it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from magicbyte.engine.coordination.effects import Caller, Marker, Producer, Reply
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.records import GroupMetadataValue, OffsetCommitValue
from magicbyte.engine.ports import TopicPartition

PartitionCode: TypeAlias = tuple[int, ErrorCode]
TopicCodes: TypeAlias = tuple[str, tuple[PartitionCode, ...]]


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Apply these offsets to a group, and answer its OffsetCommit.

    `codes`: by topic, the requested partitions with their errors; those without an error get that of the append.
    `producer_id`: of the transaction at whose end the offsets become valid; then the request was a TxnOffsetCommit.
    """

    caller: Caller
    group_id: str
    offsets: tuple[tuple[TopicPartition, OffsetCommitValue], ...]
    codes: tuple[TopicCodes, ...]
    producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class AnswerOffsetDelete:
    """Answer an OffsetDelete. `codes` as in `CommitOffsets`, but the append's error is that of the whole response."""

    caller: Caller
    codes: tuple[TopicCodes, ...]


@dataclass(frozen=True, slots=True)
class EndGroupDelete:
    """Record the outcome for one group of a DeleteGroups; the last one answers. `number` identifies the request."""

    number: int
    group_id: str


@dataclass(frozen=True, slots=True)
class AssignMembers:
    """Give the members of a generation their assignments, by member id, unless the group has changed meanwhile.

    Every group has a unique `leader`, even one with the name of a deleted group.
    """

    group_id: str
    generation: int
    leader: str
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class AnswerReplacement:
    """Answer the JoinGroup of an instance that returned as a new member. `told_leader`: the previous leader."""

    caller: Caller
    group_id: str
    member_id: str
    told_leader: str


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Apply or discard the offsets that a producer has committed; report to the writer of the marker (`ticket`)."""

    ticket: Hashable
    producer_id: int
    commits: bool


AfterStore: TypeAlias = (
    CommitOffsets | AnswerOffsetDelete | EndGroupDelete | AssignMembers | AnswerReplacement | EndTransaction
)


@dataclass(frozen=True, slots=True)
class StoreRecords:
    """Append records to a partition of `__consumer_offsets`, as one set, and pass the outcome to `Coordinator.stored`.

    Within one partition outcomes come in the order of the appends. `records` are pairs of a key and a value, None to
    delete; a group's value is `encoded` at the append, because it may have megabytes. They are not appended after the
    `term` in which they were decided: the partition may have had another leader since. `then` is the continuation.
    `is_group`: the record is a group's, not its offsets'. `origin`: the producer whose transaction the offsets are part
    of, or a marker, which is appended instead of records.
    """

    partition: int
    term: int
    records: tuple[tuple[bytes, bytes | GroupMetadataValue | None], ...]
    then: AfterStore | None = None
    is_group: bool = False
    origin: Producer | Marker | None = None


@dataclass(frozen=True, slots=True)
class Tell:
    """Report the outcome of a marker to its writer."""

    ticket: Hashable
    code: ErrorCode


Effect: TypeAlias = Reply | StoreRecords | Tell


def encoded(value: bytes | GroupMetadataValue | None) -> bytes | None:
    """Return the encoded value of a record."""
    return value.to_bytes() if isinstance(value, GroupMetadataValue) else value
