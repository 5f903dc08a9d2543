"""What the coordinator is asked by, and what it wants done, as data: it answers nobody and writes nothing itself.

Effects can be compared, logged and replayed. What is to happen after an append stands in its `StoreRecords`, and
`Coordinator.stored` does it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from magicbyte.errors import ErrorCode
from magicbyte.groups.records import GroupMetadataValue, OffsetCommitValue
from magicbyte.ports import TopicPartition
from magicbyte.protocol.message import Message


@dataclass(frozen=True, slots=True)
class Caller:
    """A request that waits for its response. `ticket` identifies it and has no meaning here."""

    ticket: Hashable
    version: int  # of the request
    client_id: str = ""
    host: str = ""  # the peer's address, as "/127.0.0.1"


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request."""

    to: Caller
    message: Message


PartitionCode: TypeAlias = tuple[int, ErrorCode]
TopicCodes: TypeAlias = tuple[str, tuple[PartitionCode, ...]]


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Let a group have these offsets, and answer its OffsetCommit.

    `codes`: by topic, the partitions that were asked for, each with its error; without one it has the append's.
    `producer_id`: of the transaction at whose end the offsets count, and then it was a TxnOffsetCommit.
    """

    caller: Caller
    group_id: str
    offsets: tuple[tuple[TopicPartition, OffsetCommitValue], ...]
    codes: tuple[TopicCodes, ...]
    producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class AnswerOffsetDelete:
    """Answer an OffsetDelete. `codes` as in `CommitOffsets`, but the append's code is that of the whole."""

    caller: Caller
    codes: tuple[TopicCodes, ...]


@dataclass(frozen=True, slots=True)
class EndGroupDelete:
    """Take in what became of one group of a DeleteGroups; the last one answers. `number` tells the request."""

    number: int
    group_id: str


@dataclass(frozen=True, slots=True)
class AssignMembers:
    """Let the members of a generation have their assignments, by member id, unless the group has gone on meanwhile.

    No two groups have the same `leader`, one that has the name of a deleted group included.
    """

    group_id: str
    generation: int
    leader: str
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class AnswerReplacement:
    """Answer the JoinGroup of an instance that came back as another member. `told_leader`: who led before."""

    caller: Caller
    group_id: str
    member_id: str
    told_leader: str


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Let the offsets that a producer has committed count, or forget them; tell whoever wrote the marker (`ticket`)."""

    ticket: Hashable
    producer_id: int
    commits: bool


AfterStore: TypeAlias = (
    CommitOffsets | AnswerOffsetDelete | EndGroupDelete | AssignMembers | AnswerReplacement | EndTransaction
)


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer, in whose transaction something is appended."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Marker:
    """What ends a transaction in a partition. `coordinator_epoch`: of who says so."""

    producer: Producer
    coordinator_epoch: int
    commits: bool


@dataclass(frozen=True, slots=True)
class StoreRecords:
    """Append records to a partition of `__consumer_offsets`, as one set, and give the outcome to `Coordinator.stored`.

    Of one partition that is done in the order of the appends. `records` are pairs of a key and a value, None to delete;
    a group's value is `encoded` by whoever appends it, since it may have megabytes. They are not appended after the
    `term` in which they were decided: the partition may have had another leader since. `then` is what happens
    afterwards. `is_group`: the record is a group's, not its offsets'. `origin`: the producer of whose transaction
    offsets are part, or a marker, which is appended in place of records.
    """

    partition: int
    term: int
    records: tuple[tuple[bytes, bytes | GroupMetadataValue | None], ...]
    then: AfterStore | None = None
    is_group: bool = False
    origin: Producer | Marker | None = None


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell whoever wrote a marker what became of it."""

    ticket: Hashable
    code: ErrorCode


Effect: TypeAlias = Reply | StoreRecords | Tell


def encoded(value: bytes | GroupMetadataValue | None) -> bytes | None:
    """Return the value of a record as it is appended."""
    return value.to_bytes() if isinstance(value, GroupMetadataValue) else value
