"""Members of consumer groups that use the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

They follow the coordinator's assignment as other members do: JoinGroup is their report of owned partitions, the
generation is their epoch, and REBALANCE_IN_PROGRESS makes them join again. Source: Kafka's GroupMetadataManager (4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from magicbyte.engine.coordination.effects import Caller, Reply
from magicbyte.engine.errors import CorruptRecordError, ErrorCode
from magicbyte.engine.groups.classic.group import KNOWN_MEMBER_ID, GroupDeadline, refused_join
from magicbyte.engine.groups.classic.members import protocols_of
from magicbyte.engine.groups.consumer.heartbeat import (
    JOIN,
    SYNC,
    HeartbeatStep,
    Staying,
    expect_sync,
    extend_session,
    removal,
    store_step,
)
from magicbyte.engine.groups.consumer.members import (
    JOINING,
    NEW,
    ClassicMember,
    MemberProgress,
    MemberState,
    partitions_of,
)
from magicbyte.engine.groups.consumer.migration import becomes_classic, encoded_assignment, partitions_by_id, version_of
from magicbyte.engine.groups.consumer.waiting import Refusal, WaitingRequest
from magicbyte.engine.groups.consumer_protocol import Subscription
from magicbyte.engine.groups.records import CONSUMER
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from magicbyte.engine.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from magicbyte.engine.groups.consumer.group import ConsumerGroup
    from magicbyte.engine.groups.effects import Effect
    from magicbyte.engine.groups.table import GroupTable
    from magicbyte.engine.ports import Moment

_EACH_LEAVES: Final = 3  # version of LeaveGroup from which each member has a code


def join(
    table: GroupTable, group: ConsumerGroup, caller: Caller, request: JoinGroupRequest, now: Moment
) -> list[Effect]:
    """Answer a JoinGroup to a consumer group with members, when its changes are stored."""
    if code := _join_refusal(table, group, request):
        return [refused_join(caller, request.member_id, code)]
    if not request.member_id and request.group_instance_id is None and caller.version >= KNOWN_MEMBER_ID:
        return [refused_join(caller, table.token(), ErrorCode.MEMBER_ID_REQUIRED)]
    try:
        subscription = Subscription.parse(request.protocols[0].metadata)
    except CorruptRecordError:
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not table.config.consumer.closes_empty:  # before 4.4
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        return [refused_join(caller, request.member_id, code)]
    joining = _Joining(table, group, caller, request, subscription, now)
    step = joining.step()
    if isinstance(step, Refusal):
        return [refused_join(caller, request.member_id, step.code)]
    is_other = joining.replaced is not None and joining.replaced not in group.classic
    if is_other and becomes_classic(table, group, frozenset({joining.replaced or ""}), joins=1):
        step = step._replace(left=frozenset())
    if step.is_change and group.group_id in table.waiting:
        table.waiting[group.group_id].append(WaitingRequest(caller, request))
        return []
    response = JoinGroupResponse(
        generation_id=step.response.member_epoch,
        protocol_type=CONSUMER,
        protocol_name=request.protocols[0].name,
        member_id=step.touches or "",
    )
    sync_ms = _sync_ms(caller, request)
    if step.is_change:
        return store_step(table, group.group_id, step, caller, response, now, sync_ms=sync_ms)
    expect_sync(table, group.group_id, response.member_id, sync_ms, now)
    return [Reply(caller, response)]


def _sync_ms(caller: Caller, request: JoinGroupRequest) -> int:
    return request.rebalance_timeout_ms if caller.version >= 1 else request.session_timeout_ms


def _join_refusal(table: GroupTable, group: ConsumerGroup, request: JoinGroupRequest) -> ErrorCode:
    if not table.config.consumer.migration.mixes:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id not in group.subscribers and len(group.subscribers) >= table.config.consumer.max_size:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if request.protocol_type != CONSUMER or not group.supports(each.name for each in request.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


class _Joining(Staying):
    """The decision about a JoinGroup, as if it were the heartbeat of a member that reports what it owns."""

    def __init__(
        self,
        table: GroupTable,
        group: ConsumerGroup,
        caller: Caller,
        request: JoinGroupRequest,
        subscription: Subscription,
        now: Moment,
    ) -> None:
        owned = {topic: tuple(numbers) for topic, numbers in subscription.owned_partitions}
        same = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id=request.member_id,
            member_epoch=JOINING,
            instance_id=request.group_instance_id,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=_sync_ms(caller, request),
            subscribed_topic_names=subscription.topics,
            topic_partitions=[
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in partitions_by_id(table, owned).items()
            ],
        )
        super().__init__(table, group, caller, same, now)
        self._classic = ClassicMember(request.session_timeout_ms, protocols_of(request))

    def _find(self) -> Refusal | None:
        instance_id = self.request.instance_id
        if instance_id is None:
            is_gone = self.request.member_id not in self.group.subscribers and bool(self.request.topic_partitions)
            # Kafka takes a removed member back; but what it owns may be another's by now
            return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, "the member was removed") if is_gone else None
        if self.request.member_id:
            code = member_fault(self.group, self.request.member_id, instance_id)
            return Refusal(code, "another member has the instance") if code else None
        self.replaced = self.group.static.get(instance_id)
        return None

    def _classic_data(self) -> ClassicMember | None:
        return self._classic


def member_fault(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """Return the error for a request by this member and instance id: NONE for a known member."""
    if instance_id is not None:
        known = group.static.get(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if known == member_id else ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.subscribers else ErrorCode.UNKNOWN_MEMBER_ID


def _classic_fault(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Return the error for a request of a member that must use the classic protocol, in a generation."""
    code = member_fault(group, member_id, instance_id)
    if not code and member_id not in group.classic:
        code = ErrorCode.UNKNOWN_MEMBER_ID
    if not code and generation != group.progress.get(member_id, NEW).epoch:
        code = ErrorCode.ILLEGAL_GENERATION
    return code


# ---- following


def sync(
    table: GroupTable, group: ConsumerGroup, caller: Caller, request: SyncGroupRequest, now: Moment
) -> list[Effect]:
    """Answer a SyncGroup with what the member has, unless it must join again."""
    member_id = request.member_id
    code = _classic_fault(group, member_id, request.group_instance_id, request.generation_id)
    if code:
        return [Reply(caller, SyncGroupResponse(error_code=code))]
    subscriber, progress = group.subscribers[member_id], group.progress.get(member_id, NEW)
    assert subscriber.classic is not None, "it uses the classic protocol"
    protocol, metadata = subscriber.classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, protocol):
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    elif group.target_epoch > progress.epoch and progress.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(table, group, member_id, now)
        code = ErrorCode.REBALANCE_IN_PROGRESS
    if code:
        return [Reply(caller, SyncGroupResponse(error_code=code))]
    table.deadlines.cancel(GroupDeadline(group.group_id, SYNC, member_id))
    extend_session(table, group.group_id, member_id, now)
    assignment = encoded_assignment(table, partitions_of(progress.assigned), version_of(metadata))
    return [Reply(caller, SyncGroupResponse(protocol_type=CONSUMER, protocol_name=protocol, assignment=assignment))]


def heartbeat(table: GroupTable, group: ConsumerGroup, request: HeartbeatRequest, now: Moment) -> ErrorCode:
    """Return the answer to a Heartbeat: REBALANCE_IN_PROGRESS if the member must join again, within a time."""
    member_id = request.member_id
    if code := _classic_fault(group, member_id, request.group_instance_id, request.generation_id):
        return code
    extend_session(table, group.group_id, member_id, now)
    if not _must_join(group, member_id):
        return ErrorCode.NONE
    _expect_join(table, group, member_id, now)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _must_join(group: ConsumerGroup, member_id: str) -> bool:
    progress = group.progress.get(member_id, NEW)
    if progress.epoch < group.target_epoch or progress.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return progress.state is MemberState.UNRELEASED_PARTITIONS and _is_released(group, member_id, progress)


def _is_released(group: ConsumerGroup, member_id: str, progress: MemberProgress) -> bool:
    """Return whether no other member has a partition of a member's target."""
    target = group.targets.get(member_id, {})
    missing = (
        (topic, number)
        for topic, numbers in target.items()
        for number in numbers
        if number not in progress.assigned.get(topic, {})
    )
    return all(group.is_free(topic, number, member_id) for topic, number in missing)


def _expect_join(table: GroupTable, group: ConsumerGroup, member_id: str, now: Moment) -> None:
    """Begin the time in which a member must join again, unless it has begun."""
    deadline = GroupDeadline(group.group_id, JOIN, member_id)
    if deadline not in table.deadlines:
        timeout = group.subscribers[member_id].rebalance_timeout_ms
        table.deadlines.set(deadline, now.monotonic_ms + timeout)


# ---- leaving


def leave(
    table: GroupTable, group: ConsumerGroup, caller: Caller, members: Sequence[MemberIdentity], now: Moment
) -> list[Effect]:
    """Remove members, whatever their protocol; answer when that is stored."""
    leaving, answers = dict[str, None](), list[MemberResponse]()
    for identity in members:
        given_id, instance_id = identity.member_id, identity.group_instance_id
        member_id = given_id or group.static.get(instance_id or "", "")
        code = member_fault(group, member_id, instance_id if given_id else None)
        if not code:
            leaving[member_id] = None
        answers.append(MemberResponse(member_id=given_id, group_instance_id=instance_id, error_code=code))
    response = LeaveGroupResponse(members=answers)
    if caller.version < _EACH_LEAVES:
        response = LeaveGroupResponse(error_code=answers[0].error_code)
    if not leaving:
        return [Reply(caller, response)]
    changes, left = removal(table, group, list(leaving))
    step = HeartbeatStep(changes, left=left)
    return store_step(table, group.group_id, step, caller, response, now)
