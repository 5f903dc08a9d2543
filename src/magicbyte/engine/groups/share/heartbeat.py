"""Heartbeats of share groups: members join, get their partitions, and leave.

A partition is assigned once the share coordinator keeps a state of it, which the group asks for. As in consumer groups
a heartbeat is decided from the stored state, and its records are appended before it is answered; while an append of a
group is pending, later changes of the group wait in order.

Source: Kafka's GroupMetadataManager.shareGroupHeartbeat (4.3).
"""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.engine.coordination.effects import Caller, Reply, Store, Tell
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.group import GroupDeadline
from magicbyte.engine.groups.classic.rules import GROUP_NOT_STORED
from magicbyte.engine.groups.classic.usage import MEMBER_BYTES
from magicbyte.engine.groups.consumer.members import JOINING, LEAVING, Partitions
from magicbyte.engine.groups.consumer.records import GroupEpoch, TargetEpoch
from magicbyte.engine.groups.consumer.topics import metadata_hash
from magicbyte.engine.groups.consumer.waiting import Refusal
from magicbyte.engine.groups.effects import AfterStore, Effect, EndShareStep, InitializeStates
from magicbyte.engine.groups.share import records
from magicbyte.engine.groups.share.assignor import assign
from magicbyte.engine.groups.share.group import ShareGroup
from magicbyte.engine.groups.share.records import (
    KeptStates,
    ShareProgress,
    ShareRecord,
    ShareSubscriber,
    TopicStates,
)
from magicbyte.engine.groups.share.waiting import ShareExpiry, StatesInitialized, WaitingShare
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from magicbyte.engine.groups.table import GroupTable

SHARE_SESSION: Final = "share session"
"""The kind of deadlines of members."""
LONGEST_MEMBER_ID: Final = 36
_RETRY_MS: Final = 500  # until a removal that could not be stored is tried again


class _ShareStep(NamedTuple):
    """What a heartbeat changes, and its answer. `asks_for`: the states that are needed, of the epoch `epoch`."""

    records: Sequence[ShareRecord]
    response: ShareGroupHeartbeatResponse
    touches: str | None = None
    asks_for: Mapping[uuid.UUID, tuple[int, ...]] = {}
    epoch: int = 0


def heartbeat(table: GroupTable, caller: Caller, request: ShareGroupHeartbeatRequest, now: Moment) -> list[Effect]:
    """Answer a ShareGroupHeartbeat, when its changes are stored."""
    if not table.config.share.is_enabled:
        return [_refused(caller, Refusal(ErrorCode.UNSUPPORTED_VERSION, "the feature share.version is off"))]
    refusal = _field_refusal(request)
    if refusal is None and (code := table.status(request.group_id)):
        refusal = Refusal(code, "the group is not served here now")
    if refusal is not None:
        return [_refused(caller, refusal)]
    return _decide(table, caller, request, now)


def _decide(table: GroupTable, caller: Caller, request: ShareGroupHeartbeatRequest, now: Moment) -> list[Effect]:
    group_id = request.group_id
    step = _step(table, caller, request, now)
    if isinstance(step, Refusal):
        return [_refused(caller, step)]
    if (step.records or step.asks_for) and group_id in table.waiting_share:
        table.waiting_share[group_id].append(WaitingShare(caller, request))
        return []
    if step.touches is not None:
        _extend_session(table, group_id, step.touches, now)
    asks = [InitializeStates(group_id, step.epoch, tuple(step.asks_for.items()))] if step.asks_for else []
    if asks and group_id in table.shares:
        table.shares[group_id].asked_ms = now.monotonic_ms
    if not step.records:
        return [Reply(caller, step.response), *asks]
    return [store_step(table, group_id, step.records, caller, step.response, tuple(asks))]


def store_step(
    table: GroupTable,
    group_id: str,
    changes: Sequence[ShareRecord],
    caller: Caller | None = None,
    response: ShareGroupHeartbeatResponse | None = None,
    asks: tuple[InitializeStates, ...] = (),
    *,
    ticket: Hashable | None = None,
) -> Store[AfterStore | None]:
    """Return the append of changes of a group, during which later changes of it wait.

    `ticket`: of work that the outcome is reported to.
    """
    table.waiting_share.setdefault(group_id, [])
    partition = table.partition_of(group_id)
    then = EndShareStep(group_id, tuple(changes), caller, response, asks, ticket)
    return Store(partition, table.terms[partition].number, tuple(map(records.encode, changes)), then)


def stored(table: GroupTable, then: EndShareStep, code: ErrorCode, now: Moment, *, is_present: bool) -> list[Effect]:
    """Apply the changes that were appended, and answer; after a failed append nothing has changed.

    `is_present`: whether the term of the append has not ended. Its end has answered the requests that waited for it.
    """
    group_id, effects = then.group_id, list[Effect]()
    if is_present and not code:
        group = table.share_of(group_id)
        for record in then.records:
            group.replay(record)
            if record.type == records.MEMBER and record.value is None:
                table.deadlines.cancel(GroupDeadline(group_id, SHARE_SESSION, record.member_id))
        if then.asks:
            group.asked_ms = now.monotonic_ms
        effects += then.asks
    if then.ticket is not None:
        effects.append(Tell(then.ticket, GROUP_NOT_STORED.get(code, code)))
    if then.caller is not None and then.response is not None:
        refused = GROUP_NOT_STORED.get(code, code)
        if refused is ErrorCode.REBALANCE_IN_PROGRESS:  # the append took too long
            refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        why = Refusal(refused, "the change of the group could not be stored")
        effects.append(_refused(then.caller, why) if refused else Reply(then.caller, then.response))
    if not is_present:
        return effects
    waiting = table.waiting_share.pop(group_id, [])
    for index, event in enumerate(waiting):
        match event:
            case WaitingShare():
                effects += _decide(table, event.caller, event.request, now)
            case ShareExpiry():
                effects += expire_member(table, group_id, event.member_id, now)
            case StatesInitialized():
                effects += states_initialized(table, group_id, event.topics)
        if group_id in table.waiting_share:
            table.waiting_share[group_id] += waiting[index + 1 :]
            break
    return effects


def dismissed(table: GroupTable, group_id: str, code: ErrorCode) -> list[Effect]:
    """Refuse all requests that wait for the pending append of a group, because its term ends."""
    why = Refusal(code, "another broker coordinates the group")
    waiting = table.waiting_share.pop(group_id, [])
    return [_refused(each.caller, why) for each in waiting if isinstance(each, WaitingShare)]


def states_initialized(
    table: GroupTable, group_id: str, topics: Mapping[uuid.UUID, tuple[int, ...]]
) -> Sequence[Effect]:
    """Record that the share coordinator has begun to keep the states of partitions. Unknown ones are ignored."""
    group = table.shares.get(group_id)
    if group is None or table.status(group_id):
        return []
    if group_id in table.waiting_share:
        table.waiting_share[group_id].append(StatesInitialized(topics))
        return []
    initializing, initialized = dict(group.states.initializing), dict(group.states.initialized)
    for topic_id, partitions in topics.items():
        known = initializing.pop(topic_id, None)
        if known is None:
            continue
        found, left = set(known.partitions).intersection(partitions), set(known.partitions).difference(partitions)
        if left:
            initializing[topic_id] = TopicStates(known.name, tuple(sorted(left)))
        found.update(group.kept(topic_id, is_initialized=True))
        initialized[topic_id] = TopicStates(known.name, tuple(sorted(found)))
    kept = KeptStates(initializing, initialized, group.states.deleting)
    if kept == group.states:
        return []
    return [store_step(table, group_id, [group.record(records.STATES, kept)])]


# ---- time


def _extend_session(table: GroupTable, group_id: str, member_id: str, now: Moment) -> None:
    timeout = table.config.share.session_timeout_ms
    table.deadlines.set(GroupDeadline(group_id, SHARE_SESSION, member_id), now.monotonic_ms + timeout)


def watch_members(table: GroupTable, group: ShareGroup, now: Moment) -> None:
    """Begin the sessions of all members of a group that was loaded."""
    for member_id in group.subscribers:
        _extend_session(table, group.group_id, member_id, now)


def expire_member(table: GroupTable, group_id: str, member_id: str, now: Moment) -> list[Effect]:
    """Remove a member whose session has ended. The deadline is set again until the removal is stored."""
    group = table.shares.get(group_id)
    deadline = GroupDeadline(group_id, SHARE_SESSION, member_id)
    if group is None or member_id not in group.subscribers or deadline in table.deadlines:
        return []
    if group_id in table.waiting_share:
        table.waiting_share[group_id].append(ShareExpiry(member_id))
        return []
    table.deadlines.set(deadline, now.monotonic_ms + _RETRY_MS)
    return [store_step(table, group_id, _removal(table, group, member_id))]


# ---- decisions


def _field_refusal(request: ShareGroupHeartbeatRequest) -> Refusal | None:
    """Return what is wrong with a request, whatever the state of its group."""
    problem = ""
    if not request.group_id:
        problem = "the group id is empty"
    elif not request.member_id:
        problem = "the member id is empty"
    elif len(request.member_id) > LONGEST_MEMBER_ID:
        return Refusal(ErrorCode.INVALID_REQUEST, None)
    elif request.rack_id == "":
        problem = "the rack is empty"
    elif request.member_epoch < LEAVING:
        problem = f"the member epoch {request.member_epoch} is unknown"
    elif request.member_epoch == JOINING and not request.subscribed_topic_names:
        problem = "a member that joins needs a subscription"
    return Refusal(ErrorCode.INVALID_REQUEST, problem) if problem else None


def _step(table: GroupTable, caller: Caller, request: ShareGroupHeartbeatRequest, now: Moment) -> _ShareStep | Refusal:
    group_id, epoch, member_id = request.group_id, request.member_epoch, request.member_id
    group = table.shares.get(group_id)
    if group is None:
        if epoch != JOINING or group_id in table.groups or group_id in table.consumers:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id}")
        group = table.new_share_group(group_id)
    if member_id not in group.subscribers:
        if epoch != JOINING:
            return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no member {member_id}")
        if len(group.subscribers) >= table.config.share.max_size:
            return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {table.config.share.max_size} members")
    if epoch == LEAVING:
        response = ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)
        return _ShareStep(_removal(table, group, member_id), response)
    progress = group.progress.get(member_id, ShareProgress())
    if epoch not in (JOINING, progress.epoch, progress.previous_epoch) or epoch > progress.epoch:
        return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"the member has epoch {progress.epoch}: join again")
    return _staying(table, group, caller, request, now)


def _staying(
    table: GroupTable, group: ShareGroup, caller: Caller, request: ShareGroupHeartbeatRequest, now: Moment
) -> _ShareStep | Refusal:
    """Return what a heartbeat of a member changes that joins or stays."""
    member_id, names = request.member_id, request.subscribed_topic_names
    before = group.subscribers.get(member_id)
    old = before or ShareSubscriber()
    subscriber = ShareSubscriber(
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.host,
        topics=old.topics if names is None else tuple(sorted(set(names))),
    )
    more = subscriber.weight - (-MEMBER_BYTES if before is None else before.weight)
    if more > 0 and table.usage.used + more > table.config.metadata_max_bytes:
        return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, "group.metadata.max.bytes is reached")
    changes = list[ShareRecord]()
    if subscriber != before:
        changes.append(group.record(records.MEMBER, subscriber, member_id))
    topics, epoch = group.names_with(before, subscriber), group.epoch
    found_hash, version = group.metadata_hash, table.topics.version
    is_bumped = subscriber.topics != old.topics or (group.has_unassigned and group.epoch <= group.target_epoch)
    if is_bumped or group.checked_version is not version:
        found_hash = metadata_hash(table.topics, topics)
        if found_hash == group.metadata_hash:
            group.checked_version = version
        else:
            is_bumped = True
    if is_bumped:
        epoch += 1
        changes.append(group.record(records.GROUP, GroupEpoch(epoch, found_hash)))
    progress = group.progress.get(member_id, ShareProgress())
    target, target_epoch = group.targets.get(member_id, {}), group.target_epoch
    if target_epoch < epoch and _is_due(table, group, now):
        target, target_epoch = (
            _aim(table, group, {**group.subscribers, member_id: subscriber}, changes, member_id),
            epoch,
        )
        date_ms = now.date_ms if table.config.share.has_assignment_dates else 0
        changes.append(group.record(records.TARGET, TargetEpoch(epoch, date_ms)))
    following = progress
    if progress.epoch != target_epoch or subscriber.topics != old.topics:
        ids = {topic.id for name in subscriber.topics if (topic := table.topics.find(name)) is not None}
        assigned = {topic: partitions for topic, partitions in target.items() if topic in ids}
        following = ShareProgress(target_epoch, progress.epoch, assigned)
    if following != progress:
        changes.append(group.record(records.CURRENT, following, member_id))
    asks_for = _states_needed(table, group, topics, now)
    if asks_for and (kept := _with_initializing(table, group, asks_for)) != group.states:
        changes.append(group.record(records.STATES, kept))
    response = ShareGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=following.epoch,
        heartbeat_interval_ms=table.config.share.heartbeat_interval_ms,
    )
    if request.member_epoch == JOINING or names is not None or following.assigned != progress.assigned:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic, partitions=partitions)
                for topic, partitions in following.assigned.items()
            ]
        )
    return _ShareStep(changes, response, member_id, asks_for, epoch)


def _is_due(table: GroupTable, group: ShareGroup, now: Moment) -> bool:
    interval, since = table.config.share.assignment_interval_ms, group.assigned_ms
    if not (interval and since and table.config.share.has_assignment_dates):
        return True
    return not since <= now.date_ms < since + interval


def _aim(
    table: GroupTable,
    group: ShareGroup,
    subscribers: Mapping[str, ShareSubscriber],
    changes: list[ShareRecord],
    member_id: str,
) -> Partitions:
    """Compute the assignment, and record its changes; return the part of a member."""
    ids: dict[str, uuid.UUID] = {}
    partitions: dict[uuid.UUID, Sequence[int]] = {}
    for name in {name for each in subscribers.values() for name in each.topics}:
        if (topic := table.topics.find(name)) is not None:
            kept = [each for each in group.kept(topic.id, is_initialized=True) if each < topic.partitions]
            if kept:
                ids[name], partitions[topic.id] = topic.id, kept
    subscriptions = {
        each: frozenset(ids[name] for name in subscriber.topics if name in ids)
        for each, subscriber in subscribers.items()
    }
    assignment = assign(subscriptions, group.targets, partitions)
    changes += [
        group.record(records.TARGET_OF_MEMBER, target, each)
        for each, target in assignment.items()
        if group.targets.get(each) != target
    ]
    return assignment[member_id]


def _states_needed(
    table: GroupTable, group: ShareGroup, topics: set[str], now: Moment
) -> Mapping[uuid.UUID, tuple[int, ...]]:
    """Return the partitions of which states are missing; none that were asked for a short time ago."""
    is_old = group.asked_ms is None or now.monotonic_ms - group.asked_ms >= table.config.share.initialize_retry_ms
    needed: dict[uuid.UUID, tuple[int, ...]] = {}
    for name in sorted(topics):
        topic = table.topics.find(name)
        if topic is None:
            continue
        known = set(group.kept(topic.id, is_initialized=True))
        if not is_old:
            known.update(group.kept(topic.id, is_initialized=False))
        if len(known) < topic.partitions and (
            missing := tuple(each for each in range(topic.partitions) if each not in known)
        ):
            needed[topic.id] = missing
    return needed


def _with_initializing(table: GroupTable, group: ShareGroup, topics: Mapping[uuid.UUID, tuple[int, ...]]) -> KeptStates:
    initializing = dict(group.states.initializing)
    for topic_id, partitions in topics.items():
        if (topic := table.topics.find_id(topic_id)) is not None:
            known = {*group.kept(topic_id, is_initialized=False), *partitions}
            initializing[topic_id] = TopicStates(topic.name, tuple(sorted(known)))
    return KeptStates(initializing, group.states.initialized, group.states.deleting)


def _removal(table: GroupTable, group: ShareGroup, member_id: str) -> list[ShareRecord]:
    """Return the records that remove a member; the others get its partitions in the next epoch."""
    topics = group.names_with(group.subscribers[member_id], None)
    epoch, changes = group.epoch + 1, group.deletion_of_member(member_id)
    changes.append(group.record(records.GROUP, GroupEpoch(epoch, metadata_hash(table.topics, topics))))
    if len(group.subscribers) == 1 and table.config.share.closes_empty:
        changes.append(group.record(records.TARGET, TargetEpoch(epoch, 0)))
    return changes


def _refused(caller: Caller, refusal: Refusal) -> Reply:
    return Reply(caller, ShareGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message))
