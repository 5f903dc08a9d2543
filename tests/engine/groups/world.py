"""The coordinator with a clock that tests turn, a log in memory, and clients that remember their answers."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from magicbyte.engine.coordination.decider import Work
from magicbyte.engine.coordination.effects import Caller, Marker, Producer, Reply, Steps, Store, Tell, encoded
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.group import Group
from magicbyte.engine.groups.config import GroupConfig
from magicbyte.engine.groups.consumer.config import ConsumerConfig
from magicbyte.engine.groups.consumer.topics import GroupTopic
from magicbyte.engine.groups.coordinator import Coordinator
from magicbyte.engine.groups.effects import DeleteStates, Effect, InitializeStates
from magicbyte.engine.groups.loading import LoadedPartition, Loading
from magicbyte.engine.groups.offsets import end_transaction
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest
from magicbyte.engine.protocol.messages.describe_groups import DescribeGroupsRequest
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from magicbyte.engine.protocol.messages.list_groups import ListGroupsRequest
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magicbyte.engine.protocol.messages.offset_delete import OffsetDeleteRequest
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from magicbyte.engine.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from magicbyte.engine.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import TimestampType

START = 1_700_000_000_000
TOPICS = {"t": 4, "u": 1}
LATEST: dict[type[Message], int] = {
    ConsumerGroupHeartbeatRequest: 1,
    JoinGroupRequest: 9,
    SyncGroupRequest: 5,
    HeartbeatRequest: 4,
    LeaveGroupRequest: 5,
    OffsetCommitRequest: 9,
    OffsetFetchRequest: 9,
    OffsetDeleteRequest: 0,
    DescribeGroupsRequest: 5,
    ListGroupsRequest: 5,
    DeleteGroupsRequest: 2,
}
M = TypeVar("M", bound=Message)


class KnownTopics:
    """The topics of the cluster, which a test may change."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.version: object = object()
        self.topics: dict[str, GroupTopic] = {}
        for name, partitions in counts.items():
            self.set(name, partitions)

    def set(self, name: str, partitions: int, number: int | None = None) -> None:
        """Create a topic, or give it more partitions; with another `number` it is another topic of the name."""
        known = self.topics.get(name)
        topic_id = known.id if known is not None else topic_id_of(name)
        self.topics[name] = GroupTopic(name, topic_id if number is None else topic_id_of(name, number), partitions)
        self.version = object()

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.version = object()

    @property
    def position(self) -> int:
        return len(self.topics)

    def names(self) -> list[str]:
        return list(self.topics)

    def find(self, name: str) -> GroupTopic | None:
        return self.topics.get(name)

    def find_id(self, topic_id: uuid.UUID) -> GroupTopic | None:
        return next((each for each in self.topics.values() if each.id == topic_id), None)


def topic_id_of(name: str, number: int = 0) -> uuid.UUID:
    """Return the id of a topic by its name, so that it is the same in each run."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{number}")


class Asked:
    """A request under way: `answer` is there once it was answered."""

    def __init__(self) -> None:
        self.answer: Any = None


@dataclass
class World:
    """`held`: appends that are not performed until `release`. `log`: what was appended, by partition.

    `effects`: all that the coordinator wanted done. A ticket is the place of a request among all that were `asked`.
    `date_ms` may be turned at any time, as the clock of a machine may; `later` lets time pass, as both clocks see it.
    """

    config: GroupConfig = field(default_factory=lambda: GroupConfig(initial_rebalance_delay_ms=0))
    date_ms: int = START
    monotonic_ms: int = 5_000_000
    holds: bool = False

    def __post_init__(self) -> None:
        self.log: dict[int, list[Record]] = {}
        self.sets: dict[int, bytearray] = {}
        self.held: list[Store[Any]] = []
        self.asked: list[Asked] = []
        self.effects: list[Effect] = []
        self.append_code = ErrorCode.NONE
        self.topics = KnownTopics(TOPICS)
        self.own_settings: dict[str, ConsumerConfig] = {}
        self.may_describe: Callable[[str], bool] | None = None
        self._names = itertools.count()
        self.start()

    def start(self) -> None:
        """Start a coordinator that knows what is in the log."""
        self.coordinator = Coordinator(
            self.config,
            token=lambda: f"id{next(self._names)}",
            has_partition=lambda topic, partition: 0 <= partition < TOPICS.get(topic, 0),
            topics=self.topics,
            consumer_config=lambda group: self.own_settings.get(group, self.config.consumer),
        )
        for partition in range(self.config.offsets_partitions):
            self.load(partition)

    def load(self, partition: int, found: LoadedPartition | None = None) -> None:
        """Begin a term of a partition, the one before having ended; its groups are what its log says, or `found`."""
        self.perform(self.coordinator.resign(partition))
        term = self.coordinator.begin_loading(partition, 0)
        self.coordinator.loaded(partition, term, self.logged(partition) if found is None else found, self.now)

    def logged(self, partition: int) -> LoadedPartition:
        """Return what the log of a partition says."""
        loading = Loading()
        loading.read(memoryview(self.sets.get(partition, b"")))
        return loading.finish()

    def perform(self, effects: Work[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Steps):
                self.take_turn()
                continue
            self.effects.append(effect)
            if isinstance(effect, Reply):
                assert isinstance(effect.to.ticket, int)
                asked = self.asked[effect.to.ticket]
                assert asked.answer is None, "a request was answered twice"
                effect.message.encode(effect.to.version)  # the answer can be said in the version of the question
                asked.answer = effect.message
            elif isinstance(effect, Tell):
                assert isinstance(effect.ticket, int)
                self.asked[effect.ticket].answer = effect.code
            elif isinstance(effect, InitializeStates | DeleteStates):
                continue  # the share coordinator does not answer
            elif self.holds:
                self.held.append(effect)
            else:
                self.append(effect)

    def take_turn(self) -> None:
        """Do what others do between the parts of a long request: nothing, unless a test says so."""

    def append(self, store: Store[Any]) -> None:
        assert store.records or store.marker is not None
        if not self.append_code:
            log, sets = self.log.setdefault(store.partition, []), self.sets.setdefault(store.partition, bytearray())
            first = len(log)
            for key, value in store.records or [(b"a marker", None)]:
                log.append(Record(len(log), self.date_ms, TimestampType.CREATE_TIME, key, encoded(value)))
            if store.marker is not None:
                sets += build_marker(
                    ControlType.COMMIT if store.marker.commits else ControlType.ABORT,
                    base_offset=first,
                    timestamp=self.date_ms,
                    producer_id=store.marker.producer.producer_id,
                    producer_epoch=store.marker.producer.epoch,
                    coordinator_epoch=store.marker.coordinator_epoch,
                )
            if store.records:
                sets += encode_records(log[first:], Format.V2, header=store.header)
        self.perform(self.coordinator.stored(store, self.append_code, self.now))

    def release(self) -> None:
        """Perform the appends that were held."""
        while self.held:
            self.append(self.held.pop(0))

    def later(self, ms: int) -> None:
        """Advance the clock, and run due actions at their times."""
        end = self.monotonic_ms + ms
        while (due := self.coordinator.next_ms()) is not None and due <= end:
            self._pass(max(due - self.monotonic_ms, 0))
            self.perform(self.coordinator.due(self.now))
        self._pass(end - self.monotonic_ms)

    def _pass(self, ms: int) -> None:
        self.date_ms, self.monotonic_ms = self.date_ms + ms, self.monotonic_ms + ms

    @property
    def now(self) -> Moment:
        return Moment(self.date_ms, self.monotonic_ms)

    def ask(self, request: Message, version: int | None = None, client_id: str = "c") -> Asked:
        version = LATEST[type(request)] if version is None else version
        caller = Caller(len(self.asked), version, client_id, "/127.0.0.1", self.may_describe)
        asked = Asked()
        self.asked.append(asked)
        self.perform(self.coordinator.answer(caller, request, self.now))
        return asked

    def answered(self, kind: type[M], request: Message, version: int | None = None) -> M:
        answer = self.ask(request, version).answer
        assert isinstance(answer, kind)
        return answer

    def group(self, name: str = "g") -> Group:
        return self.coordinator.groups[name]

    # ---- requests

    def join(self, member: str = "", version: int = 9, **fields: Any) -> Asked:
        rebalance = fields.pop("rebalance", 60_000)
        protocols = fields.pop("protocols", {"range": b"", "roundrobin": b""})
        request = JoinGroupRequest(
            group_id=fields.pop("group", "g"),
            session_timeout_ms=fields.pop("session", 10_000),
            rebalance_timeout_ms=rebalance if version else -1,
            member_id=member,
            group_instance_id=fields.pop("instance", None),
            protocol_type=fields.pop("kind", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()],
        )
        client_id = fields.pop("client_id", "c")
        assert not fields
        return self.ask(request, version, client_id)

    def new(self, **fields: Any) -> tuple[str, Asked]:
        """Join as a new member, in the two steps of version 4 and later; return its id and the second request."""
        first = self.join(**fields).answer
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **fields)

    def sync(self, member: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any) -> Asked:
        given = [
            SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in (assignments or {}).items()
        ]
        version = fields.pop("version", 5)
        fields.setdefault("group_id", "g")
        return self.ask(
            SyncGroupRequest(generation_id=generation, member_id=member, assignments=given, **fields), version
        )

    def beat(self, member: str, generation: int, instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member, group_instance_id=instance)
        return ErrorCode(self.answered(HeartbeatResponse, request).error_code)

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        identities = [MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in members]
        response = self.answered(LeaveGroupResponse, LeaveGroupRequest(group_id="g", members=identities))
        assert not response.error_code
        return [each.error_code for each in response.members]

    def commit(
        self, offset: int, member: str = "", generation: int = -1, *, place: tuple[str, int] = ("t", 0), **fields: Any
    ) -> Asked:
        each = OffsetCommitRequestPartition(
            partition_index=place[1],
            committed_offset=offset,
            committed_metadata=fields.pop("metadata", ""),
            commit_timestamp=fields.pop("time", -1),
        )
        request = OffsetCommitRequest(
            group_id=fields.pop("group", "g"),
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=fields.pop("instance", None),
            retention_time_ms=fields.pop("retention", -1),
            topics=[OffsetCommitRequestTopic(name=place[0], partitions=[each])],
        )
        version = fields.pop("version", 9)
        assert not fields
        return self.ask(request, version)

    def commit_in_transaction(
        self, offset: int, producer_id: int = 9, *, place: tuple[str, int] = ("t", 0), version: int = 3, **fields: Any
    ) -> Asked:
        part = TxnOffsetCommitRequestPartition(
            partition_index=place[1], committed_offset=offset, committed_metadata=fields.pop("metadata", "")
        )
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=fields.pop("group", "g"),
            producer_id=producer_id,
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic(name=place[0], partitions=[part])],
            **fields,
        )
        return self.ask(request, version)

    def end(self, producer_id: int = 9, *, commits: bool = True, group: str = "g") -> Asked:
        """Have a producer's transaction end in the partition of a group."""
        asked, partition = Asked(), partition_for(group, self.config.offsets_partitions)
        self.asked.append(asked)
        marker = Marker(Producer(producer_id, 0), 0, commits)
        self.perform(end_transaction(self.coordinator, len(self.asked) - 1, partition, marker))
        return asked

    def committed(self, *places: tuple[str, int], group: str = "g", stable: bool = False) -> list[tuple[int, int]]:
        """Return offset and code of each place."""
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=(index,)) for topic, index in places]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable
        )
        response = self.answered(OffsetFetchResponse, request)
        (found,) = response.groups
        assert not found.error_code
        return [(each.committed_offset, each.error_code) for topic in found.topics for each in topic.partitions]

    def stable(self, count: int = 2, **fields: Any) -> tuple[int, list[str]]:
        """Bring a group of some members to a stable generation, each with its number as assignment."""
        members: list[str] = []
        for _ in range(count):
            asked = self.join(version=3, **fields)
            for member in members:  # they hear of it with their next heartbeat
                self.join(member, version=3, **fields)
            members.append(asked.answer.member_id)
        generation, leader = asked.answer.generation_id, asked.answer.leader
        assignments = {member: b"%d" % number for number, member in enumerate(members)}
        for member in members:
            self.sync(member, generation, assignments if member == leader else None)
        return generation, members
