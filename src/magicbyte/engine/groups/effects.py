"""The continuations after appends of the group coordinator, as data."""

from __future__ import annotations

import uuid
from collections.abc import Hashable
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from magicbyte.engine.coordination.effects import Caller, Reply, Store, Tell
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.consumer.records import GroupRecord
from magicbyte.engine.groups.records import OffsetCommitValue
from magicbyte.engine.groups.share.records import ShareRecord
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from magicbyte.engine.records.encode import BatchHeader

PartitionCode: TypeAlias = tuple[int, ErrorCode]
TopicCodes: TypeAlias = tuple[str, tuple[PartitionCode, ...]]

OFFSETS_HEADER: Final = BatchHeader(base_sequence=0)
"""Of batches of offsets, as in Kafka's."""


class GatheredPart(NamedTuple):
    """A part of a long request, which several appends answer: the number of its `Gathering`, and its place."""

    number: int
    place: int


class CommitOffsets(Struct, frozen=True):
    """Apply these offsets to a group, and answer its OffsetCommit.

    `codes`: by topic, the requested partitions with their errors; those without an error get that of the append.
    `producer_id`: of the transaction at whose end the offsets become valid; then the request was a TxnOffsetCommit.
    `gathered`: the part of a long request; None: all of a request.
    """

    caller: Caller
    group_id: str
    offsets: tuple[tuple[TopicPartition, OffsetCommitValue], ...]
    codes: tuple[TopicCodes, ...]
    producer_id: int | None = None
    gathered: GatheredPart | None = None


class AnswerOffsetDelete(Struct, frozen=True):
    """Answer an OffsetDelete. `codes` as in `CommitOffsets`, but the append's error is that of the whole response.

    `gathered`: the part of a long request; None: all of a request.
    """

    caller: Caller
    codes: tuple[TopicCodes, ...]
    gathered: GatheredPart | None = None


class EndGroupDelete(Struct, frozen=True):
    """Record the outcome for one group of a DeleteGroups; the last one answers. `number`: of its `Gathering`."""

    number: int
    group_id: str


class AssignMembers(Struct, frozen=True):
    """Give the members of a generation their assignments, by member id, unless the group has changed meanwhile.

    Every group has a unique `leader`, even one with the name of a deleted group.
    """

    group_id: str
    generation: int
    leader: str
    assignments: tuple[tuple[str, bytes], ...]


class AnswerReplacement(Struct, frozen=True):
    """Answer the JoinGroup of an instance that returned as a new member. `told_leader`: the previous leader."""

    caller: Caller
    group_id: str
    member_id: str
    told_leader: str


class EndTransaction(Struct, frozen=True):
    """Apply or discard the offsets that a producer has committed; report to the writer of the marker (`ticket`)."""

    ticket: Hashable
    producer_id: int
    commits: bool


class EndConsumerStep(Struct, frozen=True):
    """Apply changes to a consumer group, and answer the request that caused them; None: none did.

    `resolves`: whether patterns of topic names are resolved next, among the topics that the caller may describe.
    `sync_ms`: the time that a member that joined by the classic protocol has for its SyncGroup. `left`: the members
    that are gone, and with them all that use the consumer protocol: the group becomes a classic one.
    """

    group_id: str
    records: tuple[GroupRecord, ...]
    caller: Caller | None = None
    response: Message | None = None
    resolves: bool = False
    sync_ms: int | None = None
    left: frozenset[str] | None = None


class InitializeStates(NamedTuple):
    """Ask the share coordinator to keep states of partitions, by topic, which begin with the group's epoch.

    The outcome is reported by `states_initialized`.
    """

    group_id: str
    epoch: int
    topics: tuple[tuple[uuid.UUID, tuple[int, ...]], ...]


class EndShareStep(Struct, frozen=True):
    """Apply changes to a share group, and answer the heartbeat that caused them; None: none did.

    `asks`: what the share coordinator is asked for then. `ticket`: of work that the outcome is reported to.
    """

    group_id: str
    records: tuple[ShareRecord, ...]
    caller: Caller | None = None
    response: ShareGroupHeartbeatResponse | None = None
    asks: tuple[InitializeStates, ...] = ()
    ticket: Hashable | None = None


class DeleteStates(NamedTuple):
    """Ask the share coordinator to delete the states of a group, by topic; `then` the group is deleted.

    The outcome is reported by `states_deleted`.
    """

    group_id: str
    topics: tuple[tuple[uuid.UUID, tuple[int, ...]], ...]
    then: EndGroupDelete


AfterStore: TypeAlias = (
    CommitOffsets
    | AnswerOffsetDelete
    | EndGroupDelete
    | AssignMembers
    | AnswerReplacement
    | EndTransaction
    | EndConsumerStep
    | EndShareStep
)


Effect: TypeAlias = Reply | Store[AfterStore | None] | Tell | InitializeStates | DeleteStates
