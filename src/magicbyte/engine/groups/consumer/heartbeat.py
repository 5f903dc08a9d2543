"""Heartbeats of consumer groups: members join, follow their assignment, and leave.

A heartbeat is decided from the stored state, and its records are appended before it is answered. While an append of a
group is pending, later changes of the group wait in order; heartbeats that change nothing are answered at once.

Invariants:
1. One append of a group is pending at a time, so a decision never rests on a change that may fail.
2. A heartbeat that changes nothing takes no look at other members.
3. A session deadline removes its member unless a heartbeat came meanwhile; one of a revocation does if the member still
   has partitions to revoke.

Source: Kafka's GroupMetadataManager.consumerGroupHeartbeat (4.3).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.engine.coordination.effects import Caller, Reply, Steps, Store, StoredValue
from magicbyte.engine.errors import ErrorCode, InvalidRegularExpressionError
from magicbyte.engine.groups.classic.group import Group, GroupDeadline, refused_join
from magicbyte.engine.groups.classic.rules import GROUP_NOT_STORED, GroupState
from magicbyte.engine.groups.classic.usage import MEMBER_BYTES
from magicbyte.engine.groups.consumer import records
from magicbyte.engine.groups.consumer.assignors import AssignedMember, assign
from magicbyte.engine.groups.consumer.config import ConsumerConfig
from magicbyte.engine.groups.consumer.group import ConsumerGroup, topics_with
from magicbyte.engine.groups.consumer.members import (
    AWAY,
    JOINING,
    LEAVING,
    NEW,
    ClassicMember,
    MemberProgress,
    MemberState,
    Partitions,
    Subscriber,
    partitions_of,
)
from magicbyte.engine.groups.consumer.migration import (
    Unconvertible,
    become_classic,
    becomes_classic,
    classic_records,
    converted,
    succeed,
)
from magicbyte.engine.groups.consumer.reconciliation import Owned, next_step
from magicbyte.engine.groups.consumer.records import GroupEpoch, GroupRecord, RecordValue, ResolvedPattern, TargetEpoch
from magicbyte.engine.groups.consumer.topic_patterns import TopicPattern
from magicbyte.engine.groups.consumer.topics import metadata_hash
from magicbyte.engine.groups.consumer.waiting import Expiry, Refusal, WaitingRequest
from magicbyte.engine.groups.effects import Effect, EndConsumerStep
from magicbyte.engine.groups.records import GroupMetadataKey
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from magicbyte.engine.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from magicbyte.engine.groups.table import GroupTable

SESSION: Final = "consumer session"
REVOCATION: Final = "consumer revocation"
JOIN: Final = "consumer join"
SYNC: Final = "consumer sync"
"""The kinds of deadlines of members; the last two of members that use the classic protocol."""
DEADLINES: Final = (SESSION, REVOCATION, JOIN, SYNC)
_RETRY_MS: Final = 500  # until a removal that could not be stored is tried again
_LEAST_REFRESH_MS: Final = 10_000  # between two times at which the patterns of a group are resolved
_OWN_ID: Final = 1  # version from which a client makes its member id


class HeartbeatStep(NamedTuple):
    """What a request changes, and the answer to a heartbeat.

    `touches`: the member whose session timeout restarts. `resolves`: whether the group's patterns are resolved next.
    `left`: members that are gone after `records`, so that the group becomes classic; None: it does not.
    """

    records: Sequence[GroupRecord]
    response: ConsumerGroupHeartbeatResponse = ConsumerGroupHeartbeatResponse()
    touches: str | None = None
    resolves: bool = False
    left: frozenset[str] | None = None

    @property
    def is_change(self) -> bool:
        """Whether something is to be stored."""
        return bool(self.records) or self.left is not None


def heartbeat(table: GroupTable, caller: Caller, request: ConsumerGroupHeartbeatRequest, now: Moment) -> list[Effect]:
    """Answer a ConsumerGroupHeartbeat, when its changes are stored."""
    config = table.config.consumer
    if not config.is_enabled:
        return [_refused(caller, Refusal(ErrorCode.UNSUPPORTED_VERSION, "the feature group.version is off"))]
    refusal = _field_refusal(table, caller, request)
    if refusal is None and (code := table.status(request.group_id)):
        refusal = Refusal(code, "the group is not served here now")
    if refusal is not None:
        return [_refused(caller, refusal)]
    return _decide(table, caller, request, now)


def _decide(table: GroupTable, caller: Caller, request: ConsumerGroupHeartbeatRequest, now: Moment) -> list[Effect]:
    step = _step(table, caller, request, now)
    if isinstance(step, Refusal):
        return [_refused(caller, step)]
    if step.is_change and request.group_id in table.waiting:
        table.waiting[request.group_id].append(WaitingRequest(caller, request))
        return []
    if step.touches is not None:
        extend_session(table, request.group_id, step.touches, now)
    if not step.is_change:
        effects: list[Effect] = [Reply(caller, step.response)]
        if step.resolves and request.group_id not in table.waiting:
            effects += _resolve(table, request.group_id, caller, now)
        return effects
    return store_step(table, request.group_id, step, caller, step.response, now)


def store_step(
    table: GroupTable,
    group_id: str,
    step: HeartbeatStep,
    caller: Caller | None,
    response: Message | None,
    now: Moment,
    *,
    sync_ms: int | None = None,
) -> list[Effect]:
    """Return the append of changes of a group, during which later changes of it wait.

    `response`: the answer after it. `sync_ms`: see `EndConsumerStep`.
    """
    table.waiting.setdefault(group_id, [])
    classic = table.groups.get(group_id)
    encoded: list[tuple[bytes, bytes | StoredValue | None]] = []
    if classic is not None and group_id not in table.consumers:
        encoded.append((GroupMetadataKey(group_id).to_bytes(), None))
    with_epochs = table.config.consumer.keeps_assignment_epochs
    encoded += [records.encode(each, with_epochs=with_epochs) for each in step.records]
    if step.left is not None:
        encoded += classic_records(table, table.consumers[group_id], step.records, step.left, now)
    partition = table.partition_of(group_id)
    then = EndConsumerStep(group_id, tuple(step.records), caller, response, step.resolves, sync_ms, step.left)
    return [Store(partition, table.terms[partition].number, tuple(encoded), then)]


def stored(table: GroupTable, then: EndConsumerStep, code: ErrorCode, now: Moment, *, is_present: bool) -> list[Effect]:
    """Apply the changes that were appended, and answer; after a failed append nothing has changed.

    `is_present`: whether the term of the append has not ended. Its end has answered the requests that waited for it.
    """
    group_id, effects = then.group_id, list[Effect]()
    if is_present and not code:
        effects += _apply(table, then, now)
    if then.caller is not None and then.response is not None:
        refused = GROUP_NOT_STORED.get(code, code)
        if refused is ErrorCode.REBALANCE_IN_PROGRESS:  # the append took too long
            refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        answer = _refusal(then.caller, then.response, refused) if refused else Reply(then.caller, then.response)
        effects.append(answer)
    if not is_present:
        return effects
    waiting = table.waiting.pop(group_id, [])
    if then.resolves and then.caller is not None and not code:
        effects += _resolve(table, group_id, then.caller, now)
        if group_id in table.waiting:
            table.waiting[group_id] = waiting
            return effects
    for index, each in enumerate(waiting):
        if isinstance(each, WaitingRequest):
            answered = table.answer(each.caller, each.request, now)
            effects += [effect for effect in answered if not isinstance(effect, Steps)]
        else:
            effects += expire_member(table, group_id, each.what, each.member_id, now)
        if group_id in table.waiting:
            table.waiting[group_id] = [*table.waiting[group_id], *waiting[index + 1 :]]
            break
    return effects


def dismissed(table: GroupTable, group_id: str, code: ErrorCode) -> list[Effect]:
    """Refuse all requests that wait for the pending append of a group, because its term ends."""
    waiting = table.waiting.pop(group_id, [])
    return [_refusal(each.caller, each.request, code) for each in waiting if isinstance(each, WaitingRequest)]


def _apply(table: GroupTable, then: EndConsumerStep, now: Moment) -> list[Effect]:
    """Apply changes that are stored; a classic group becomes a consumer group, or a consumer group a classic one."""
    group_id, effects = then.group_id, list[Effect]()
    classic = table.groups.get(group_id)
    is_new = group_id not in table.consumers
    is_converted = is_new and classic is not None and classic.state is not GroupState.EMPTY
    if classic is not None and is_converted:
        effects += succeed(table, classic)
    elif classic is not None and is_new:
        classic.become_simple()
    group = table.consumer_of(group_id)
    for record in then.records:
        group.replay(record)
    if then.left is not None:
        for member_id in group.subscribers:
            _cancel(table, group_id, member_id)
        return effects + become_classic(table, group, then.left, now)
    _set_revocations(table, group, then.records, now)
    if is_converted:
        watch_members(table, group, now)
    if then.sync_ms is not None and isinstance(then.response, JoinGroupResponse):
        expect_sync(table, group_id, then.response.member_id, then.sync_ms, now)
    return effects


def expect_sync(table: GroupTable, group_id: str, member_id: str, sync_ms: int, now: Moment) -> None:
    """Begin the time that a member has for its SyncGroup, and restart its session."""
    table.deadlines.cancel(GroupDeadline(group_id, JOIN, member_id))
    extend_session(table, group_id, member_id, now)
    table.deadlines.set(GroupDeadline(group_id, SYNC, member_id), now.monotonic_ms + sync_ms)


def _cancel(table: GroupTable, group_id: str, member_id: str) -> None:
    for what in DEADLINES:
        table.deadlines.cancel(GroupDeadline(group_id, what, member_id))


def _refusal(caller: Caller, about: Message, code: ErrorCode) -> Reply:
    """Refuse a request, which is given by itself or by the answer to it."""
    match about:
        case JoinGroupRequest() | JoinGroupResponse():
            return refused_join(caller, about.member_id, code)
        case SyncGroupRequest():
            return Reply(caller, SyncGroupResponse(error_code=code))
        case HeartbeatRequest():
            return Reply(caller, HeartbeatResponse(error_code=code))
        case LeaveGroupRequest() | LeaveGroupResponse():
            return Reply(caller, LeaveGroupResponse(error_code=code))
    return _refused(caller, Refusal(code, "the change of the group could not be stored"))


# ---- patterns


def _resolve(table: GroupTable, group_id: str, caller: Caller, now: Moment) -> list[Effect]:
    """Find the topics of all patterns of a group among those that a caller may describe; store all if some changed."""
    group, topics = table.consumers[group_id], table.topics
    group.refreshed_ms, group.refreshed_version = now.date_ms, topics.version
    known = sorted(name for name in topics.names() if caller.may_describe is None or caller.may_describe(name))
    resolved, is_new, is_bumped, names = list[GroupRecord](), False, False, set(group.named)
    for text in sorted(group.matching):
        pattern = pattern_of(text)
        matched = tuple(name for name in known if pattern.matches(name))
        names.update(matched)
        is_new = is_new or text not in group.patterns
        is_bumped = is_bumped or matched != group.matched(text)
        resolved.append(group.record(records.PATTERN, ResolvedPattern(matched, topics.position, now.date_ms), text))
    changes = resolved if is_new or is_bumped else []
    found_hash = metadata_hash(topics, names)
    if is_bumped or found_hash != group.metadata_hash:
        changes.append(group.record(records.GROUP, GroupEpoch(group.epoch + 1, found_hash)))
    return store_step(table, group_id, HeartbeatStep(changes), None, None, now) if changes else []


@lru_cache(maxsize=256)
def pattern_of(text: str) -> TopicPattern:
    """Return a pattern. Raises InvalidRegularExpressionError."""
    return TopicPattern(text)


def _pattern_refusal(text: str) -> Refusal | None:
    try:
        pattern_of(text)
    except InvalidRegularExpressionError as error:
        return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error))
    return None


# ---- time


def extend_session(table: GroupTable, group_id: str, member_id: str, now: Moment) -> None:
    """Restart the session timeout of a member."""
    timeout = table.consumer_config(group_id).session_timeout_ms
    group = table.consumers.get(group_id)
    subscriber = None if group is None else group.subscribers.get(member_id)
    if subscriber is not None and subscriber.classic is not None:
        timeout = subscriber.classic.session_timeout_ms
    table.deadlines.set(GroupDeadline(group_id, SESSION, member_id), now.monotonic_ms + timeout)


def _set_revocations(table: GroupTable, group: ConsumerGroup, changes: Sequence[GroupRecord], now: Moment) -> None:
    """Begin and end the times that members have to revoke partitions, and end the sessions of those that are gone."""
    for record in changes:
        if record.type != records.CURRENT:
            continue
        deadline = GroupDeadline(group.group_id, REVOCATION, record.member_id)
        is_unrevoked = isinstance(record.value, MemberProgress) and (
            record.value.state is MemberState.UNREVOKED_PARTITIONS
        )
        if is_unrevoked and record.member_id not in group.classic:
            timeout = group.subscribers[record.member_id].rebalance_timeout_ms
            table.deadlines.set(deadline, now.monotonic_ms + timeout)
        else:
            table.deadlines.cancel(deadline)
        if record.member_id not in group.subscribers:
            _cancel(table, group.group_id, record.member_id)


def watch_members(table: GroupTable, group: ConsumerGroup, now: Moment) -> None:
    """Begin the sessions of all members of a group that was loaded, and the times of their revocations."""
    for member_id, subscriber in group.subscribers.items():
        extend_session(table, group.group_id, member_id, now)
        is_unrevoked = group.progress.get(member_id, NEW).state is MemberState.UNREVOKED_PARTITIONS
        if is_unrevoked and subscriber.classic is None:
            deadline = GroupDeadline(group.group_id, REVOCATION, member_id)
            table.deadlines.set(deadline, now.monotonic_ms + subscriber.rebalance_timeout_ms)


def expire_member(table: GroupTable, group_id: str, what: str, member_id: str, now: Moment) -> list[Effect]:
    """Remove a member whose session has ended, or that took too long to revoke partitions, to join or to sync.

    The deadline is set again until the removal is stored.
    """
    group = table.consumers.get(group_id)
    deadline = GroupDeadline(group_id, what, member_id)
    if group is None or member_id not in group.subscribers or deadline in table.deadlines:
        return []
    if group_id in table.waiting:
        table.waiting[group_id].append(Expiry(what, member_id))
        return []
    progress = group.progress.get(member_id, NEW)
    if what == REVOCATION and progress.state is not MemberState.UNREVOKED_PARTITIONS:
        return []
    table.deadlines.set(deadline, now.monotonic_ms + _RETRY_MS)
    changes, left = removal(table, group, [member_id])
    return store_step(table, group_id, HeartbeatStep(changes, left=left), None, None, now)


# ---- decisions


def _field_refusal(table: GroupTable, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> Refusal | None:
    """Return what is wrong with a request, whatever the state of its group."""
    epoch, problem = request.member_epoch, ""
    if not request.group_id:
        problem = "the group id is empty"
    elif not request.member_id and (caller.version >= _OWN_ID or epoch != JOINING):
        problem = "the member id is empty"
    elif request.instance_id == "":
        problem = "the instance id is empty"
    elif request.rack_id == "":
        problem = "the rack is empty"
    elif epoch < AWAY:
        problem = f"the member epoch {epoch} is unknown"
    elif epoch == AWAY and request.instance_id is None:
        problem = "a member without an instance id cannot leave for a while"
    elif epoch == JOINING and request.rebalance_timeout_ms == -1:
        problem = "a member that joins needs a rebalance timeout"
    elif epoch == JOINING and (request.topic_partitions is None or request.topic_partitions):
        problem = "a member that joins has no partitions, and must say so"
    elif epoch == JOINING and request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        problem = "a member that joins needs a subscription"
    if problem:
        return Refusal(ErrorCode.INVALID_REQUEST, problem)
    assignor, known = request.server_assignor, table.config.consumer.assignors
    if assignor is not None and assignor not in known:
        return Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, f"the assignors are {', '.join(known)}")
    return None


def _step(
    table: GroupTable, caller: Caller, request: ConsumerGroupHeartbeatRequest, now: Moment
) -> HeartbeatStep | Refusal:
    group, classic = table.consumers.get(request.group_id), table.groups.get(request.group_id)
    if group is None:
        if request.member_epoch != JOINING or request.group_id in table.shares:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {request.group_id}")
        if classic is not None and classic.state is not GroupState.EMPTY:
            return _upgraded(table, classic, caller, request, now)
        group = table.new_consumer_group(request.group_id)
    if request.member_epoch in (LEAVING, AWAY):
        return _leaving(table, group, request)
    return Staying(table, group, caller, request, now).step()


def _upgraded(
    table: GroupTable, classic: Group, caller: Caller, request: ConsumerGroupHeartbeatRequest, now: Moment
) -> HeartbeatStep | Refusal:
    """Return what makes a consumer group of a classic one, with the member that joins."""
    if classic.is_unsettled:  # Kafka converts it, so that two members may own a partition for a while
        return Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "an assignment of the group is not complete")
    changes = converted(table, classic)
    if isinstance(changes, Unconvertible):
        why = f"the classic group {classic.group_id} does not become a consumer group: {changes.why}"
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, why)
    group = table.new_consumer_group(classic.group_id)
    for record in changes:
        group.replay(record)
    step = Staying(table, group, caller, request, now).step()
    group.forget()
    return step if isinstance(step, Refusal) else step._replace(records=[*changes, *step.records])


def _refused(caller: Caller, refusal: Refusal) -> Reply:
    response = ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)
    return Reply(caller, response)


def _member_meant(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Refusal | None:
    """Return why a request is not one of a member of the group."""
    if request.instance_id is not None:
        static = group.static.get(request.instance_id)
        if static is None:
            return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no instance {request.instance_id}")
        if static != request.member_id:
            return Refusal(ErrorCode.FENCED_INSTANCE_ID, f"instance {request.instance_id} is another member now")
    elif request.member_id not in group.subscribers:
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no member {request.member_id}")
    return None


def _leaving(
    table: GroupTable, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
) -> HeartbeatStep | Refusal:
    if refusal := _member_meant(group, request):
        return refusal
    member_id, epoch = request.member_id, request.member_epoch
    response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)
    if epoch == LEAVING:
        changes, left = removal(table, group, [member_id])
        return HeartbeatStep(changes, response, left=left)
    before = group.progress.get(member_id, NEW)
    assigned = {topic: dict.fromkeys(epochs, 0) for topic, epochs in before.assigned.items()}
    away = MemberProgress(AWAY, before.previous_epoch, MemberState.STABLE, assigned, {})
    return HeartbeatStep([group.record(records.CURRENT, away, member_id)], response)


def removal(
    table: GroupTable, group: ConsumerGroup, member_ids: Sequence[str]
) -> tuple[list[GroupRecord], frozenset[str] | None]:
    """Return the records that remove members; the others get their partitions in the next epoch.

    Instead of records, return the members that leave, if the group becomes a classic one.
    """
    left = frozenset(member_ids)
    if becomes_classic(table, group, left):
        return [], left
    changes, leaving = list[GroupRecord](), [group.subscribers[each] for each in member_ids]
    for member_id in member_ids:
        changes += group.deletion_of_member(member_id)
    for regex, count in Counter(each.regex for each in leaving if each.regex).items():
        if group.matching[regex] == count:
            changes.append(group.record(records.PATTERN, None, regex))
    topics = topics_with(group, leaving, None)
    epoch = group.epoch + 1
    changes.append(group.record(records.GROUP, GroupEpoch(epoch, metadata_hash(table.topics, topics))))
    if len(group.subscribers) == len(left) and table.config.consumer.closes_empty:
        changes.append(group.record(records.TARGET, TargetEpoch(epoch, 0)))
    return changes, None


class Staying:
    """The decision about a heartbeat of a member that joins or stays."""

    def __init__(
        self,
        table: GroupTable,
        group: ConsumerGroup,
        caller: Caller,
        request: ConsumerGroupHeartbeatRequest,
        now: Moment,
    ) -> None:
        self.table, self.group, self.request, self.now = table, group, request, now
        self.caller, self.config = caller, table.consumer_config(group.group_id)
        self.member_id = request.member_id or table.token()
        self.replaced: str | None = None  # the member id of a static member that returns
        self.changes: list[GroupRecord] = []
        self.epoch, self.hash = group.epoch, group.metadata_hash
        self.target_epoch = group.target_epoch

    def step(self) -> HeartbeatStep | Refusal:
        """Return what the heartbeat changes."""
        refusal = self._full() or self._find()
        if refusal is not None:
            return refusal
        before = self.group.subscribers.get(self.replaced or self.member_id)
        subscriber = self._subscribed(before or Subscriber())
        if subscriber.regex and subscriber.regex not in self.group.matching:
            refusal = _pattern_refusal(subscriber.regex)
            if refusal is not None:
                return refusal
        more = subscriber.weight - before.weight if before is not None else subscriber.weight + MEMBER_BYTES
        if more > 0 and self.table.usage.used + more > self.table.config.metadata_max_bytes:
            return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, "group.metadata.max.bytes is reached")
        progress = self._begin(before)
        if subscriber != before:
            self._add(records.MEMBER, subscriber, self.member_id)
        resolves = self._must_resolve(before, subscriber)
        has_changed = self._has_changed(before, subscriber)
        self._raise_epoch(before, subscriber)
        target = self._aim(subscriber)
        following = self._reconcile(progress, target, subscriber, has_changed=has_changed)
        if following is None:
            return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, "the state of the member is unknown: join again")
        if following != progress:
            self._add(records.CURRENT, following, self.member_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=self.member_id,
            member_epoch=following.epoch,
            heartbeat_interval_ms=self.config.heartbeat_interval_ms,
        )
        if self._must_tell(progress, following):
            response.assignment = _assignment(following)
        return HeartbeatStep(self.changes, response, self.member_id, resolves)

    def _add(self, kind: int, value: RecordValue | None, member_id: str = "") -> None:
        self.changes.append(self.group.record(kind, value, member_id))

    # ---- the member

    def _full(self) -> Refusal | None:
        is_known = self.member_id in self.group.subscribers
        if is_known or len(self.group.subscribers) < self.config.max_size:
            return None
        return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {self.config.max_size} members")

    def _find(self) -> Refusal | None:
        """Return why the request is not accepted from its member."""
        request, group = self.request, self.group
        if request.member_epoch == JOINING:
            return None if request.instance_id is None else self._find_static(request.instance_id)
        if refusal := _member_meant(group, request):
            return refusal
        progress, epoch = group.progress.get(self.member_id, NEW), request.member_epoch
        if epoch == progress.epoch:
            return None
        if epoch == progress.previous_epoch and epoch < progress.epoch and _is_within(_owned(request), progress):
            return None
        return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"the member has epoch {progress.epoch}: join again")

    def _find_static(self, instance_id: str) -> Refusal | None:
        known = self.group.static.get(instance_id)
        if known is None:
            return None
        is_classic = known in self.group.classic
        if not is_classic and self.group.progress.get(known, NEW).epoch != AWAY:
            return Refusal(ErrorCode.UNRELEASED_INSTANCE_ID, f"instance {instance_id} is a member")
        self.replaced = known
        return None

    def _subscribed(self, before: Subscriber) -> Subscriber:
        request, names = self.request, self.request.subscribed_topic_names
        regex = request.subscribed_topic_regex
        return Subscriber(
            instance_id=before.instance_id if request.instance_id is None else request.instance_id,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            client_id=self.caller.client_id,
            client_host=self.caller.host,
            topics=before.topics if names is None else tuple(sorted(set(names))),
            regex=before.regex if regex is None else regex,
            rebalance_timeout_ms=before.rebalance_timeout_ms
            if request.rebalance_timeout_ms == -1
            else request.rebalance_timeout_ms,
            assignor=before.assignor if request.server_assignor is None else request.server_assignor,
            classic=self._classic_data(),
        )

    def _classic_data(self) -> ClassicMember | None:
        """Return what the member is known to have sent by the classic protocol."""
        return None

    def _begin(self, before: Subscriber | None) -> MemberProgress:
        """Return the progress of the member before this heartbeat. A static one that returns is a new member."""
        group = self.group
        if self.replaced is None:
            return group.progress.get(self.member_id, NEW)
        old = group.progress.get(self.replaced, NEW)
        self.changes += group.deletion_of_member(self.replaced)
        self._add(records.MEMBER, before, self.member_id)
        self._add(records.TARGET_OF_MEMBER, group.targets.get(self.replaced, {}), self.member_id)
        progress = MemberProgress(JOINING, 0, old.state, old.assigned, old.revoking)
        self._add(records.CURRENT, progress, self.member_id)
        return progress

    # ---- the group

    @staticmethod
    def _has_changed(before: Subscriber | None, subscriber: Subscriber) -> bool:
        old = before or Subscriber()
        return (subscriber.topics, subscriber.regex) != (old.topics, old.regex)

    def _must_resolve(self, before: Subscriber | None, subscriber: Subscriber) -> bool:
        """Return whether the patterns of the group are resolved after this; drop the one that no member has left."""
        group, old = self.group, before.regex if before is not None else ""
        if old not in ("", subscriber.regex) and group.matching[old] == 1:
            self._add(records.PATTERN, None, old)
        needed = {*group.matching, subscriber.regex} - {""}
        if not needed:
            return False
        since = self.now.date_ms - group.refreshed_ms
        if 0 <= since <= _LEAST_REFRESH_MS:
            return False
        is_resolved = group.patterns.keys() >= needed
        is_old = not 0 <= since <= self.config.regex_refresh_interval_ms
        return not is_resolved or is_old or group.refreshed_version is not self.table.topics.version

    def _raise_epoch(self, before: Subscriber | None, subscriber: Subscriber) -> None:
        """Begin a new epoch if the assignment depends on something that has changed."""
        group, topics, old = self.group, self.table.topics, before or Subscriber()
        is_bumped = subscriber.topics != old.topics or self.epoch == 0
        if subscriber.regex != old.regex and (not subscriber.regex or subscriber.regex in group.patterns):
            is_bumped = True
        if self.config.closes_empty and before is not None and subscriber.assignor != before.assignor:
            is_bumped = True
        version = topics.version
        if is_bumped or group.checked_version is not version:
            names = topics_with(group, () if before is None else (before,), subscriber)
            self.hash = metadata_hash(topics, names)
            if self.hash == group.metadata_hash:
                group.checked_version = version
            else:
                is_bumped = True
        if is_bumped:
            self.epoch += 1
            self._add(records.GROUP, GroupEpoch(self.epoch, self.hash))

    def _aim(self, subscriber: Subscriber) -> Partitions:
        """Compute the assignment if it is due; return the part of the member."""
        group = self.group
        mine = group.targets.get(self.replaced or self.member_id)
        if self.target_epoch >= self.epoch or not self._is_due():
            return mine or {}
        subscribers = dict(group.subscribers)
        targets: dict[str, Partitions] = dict(group.targets)
        if self.replaced is not None:
            subscribers.pop(self.replaced)
            targets.pop(self.replaced, None)
            targets[self.member_id] = mine or {}
        subscribers[self.member_id] = subscriber
        assignment = _assigned(self.table, group, subscribers, targets)
        for member_id, target in assignment.items():
            if targets.get(member_id) != target:
                self._add(records.TARGET_OF_MEMBER, target, member_id)
        has_date = self.config.keeps_assignment_epochs
        self.target_epoch = self.epoch
        self._add(records.TARGET, TargetEpoch(self.epoch, self.now.date_ms if has_date else 0))
        return assignment[self.member_id]

    def _is_due(self) -> bool:
        interval, since = self.config.assignment_interval_ms, self.group.assigned_ms
        if not (interval and since and self.config.keeps_assignment_epochs):
            return True
        return not since <= self.now.date_ms < since + interval

    def _reconcile(
        self, progress: MemberProgress, target: Partitions, subscriber: Subscriber, *, has_changed: bool
    ) -> MemberProgress | None:
        if progress.state is MemberState.STABLE and progress.epoch == self.target_epoch and not has_changed:
            return progress
        names = {*subscriber.topics, *self.group.matched(subscriber.regex)}
        subscribed = {topic.id for name in names if (topic := self.table.topics.find(name)) is not None}
        mine = {topic: partitions for topic, partitions in target.items() if topic in subscribed}
        is_free = partial(self.group.is_free, member_id=self.replaced or self.member_id)
        owned = _owned(self.request)
        return next_step(progress, mine, self.target_epoch, owned, is_free, has_changed=has_changed)

    def _must_tell(self, before: MemberProgress, after: MemberProgress) -> bool:
        request = self.request
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        is_joining = request.member_epoch == JOINING
        return is_joining or is_full or partitions_of(before.assigned) != partitions_of(after.assigned)


def _assigned(
    table: GroupTable, group: ConsumerGroup, subscribers: dict[str, Subscriber], targets: dict[str, Partitions]
) -> dict[str, Partitions]:
    """Return the assignment of all members, by the assignor that most of them prefer."""
    ids: dict[str, uuid.UUID] = {}
    counts: dict[uuid.UUID, int] = {}
    for name in {name for each in subscribers.values() for name in (*each.topics, *group.matched(each.regex))}:
        if (topic := table.topics.find(name)) is not None:
            ids[name], counts[topic.id] = topic.id, topic.partitions
    topics_of: dict[tuple[tuple[str, ...], str], frozenset[uuid.UUID]] = {}
    members = dict[str, AssignedMember]()
    for member_id, each in subscribers.items():
        key = each.topics, each.regex
        if key not in topics_of:
            names = (*each.topics, *group.matched(each.regex))
            topics_of[key] = frozenset(ids[name] for name in names if name in ids)
        members[member_id] = AssignedMember(each.instance_id, topics_of[key], targets.get(member_id, {}))
    return assign(preferred_assignor(table.config.consumer, subscribers), members, counts)


def preferred_assignor(config: ConsumerConfig, subscribers: Mapping[str, Subscriber]) -> str:
    """Return the assignor that most members prefer; those without a preference do not vote."""
    votes: dict[str, int] = {}
    for each in subscribers.values():
        if each.assignor is not None:
            votes[each.assignor] = votes.get(each.assignor, 0) + 1
    return max(config.assignors, key=lambda name: votes.get(name, 0))


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in request.topic_partitions if each.partitions}


def _is_within(owned: Owned | None, progress: MemberProgress) -> bool:
    if owned is None:
        return False
    return all(partitions <= progress.assigned.get(topic, {}).keys() for topic, partitions in owned.items())


def _assignment(progress: MemberProgress) -> Assignment:
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic, partitions=partitions)
            for topic, partitions in partitions_of(progress.assigned).items()
        ]
    )
