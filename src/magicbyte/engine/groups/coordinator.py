"""The group coordinator: requests about groups of the partitions of `__consumer_offsets` that this broker leads.

Source: Kafka's GroupCoordinator (3.9), KIP-211, KIP-229, KIP-345, KIP-394, KIP-447, KIP-496.

Invariants, besides those of every `Decider`:
1. Offsets count, and members get assignments, only when their record is stored.
2. A part of a long request is decided as if it were a request of its own. A failure of one part does not undo others.
3. A deadline names its group and member. One whose group is gone does nothing.

After a crash members join again, and a commit without an answer is repeated. `loading.py` reads the rest from the log.
`tests/engine/groups/test_model.py` compares random histories with a model, `tests/simulation/test_group_histories.py`
whole clusters, and `tests/engine/groups/test_moves.py` has terms that end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from magicbyte.engine.coordination.decider import Work
from magicbyte.engine.coordination.effects import Caller, Reply, Steps, Store
from magicbyte.engine.coordination.parts import STEP_BYTES, in_parts, once_if_long
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups import offsets
from magicbyte.engine.groups.classic.group import Group, GroupDeadline, refused_join, replacement_stored
from magicbyte.engine.groups.classic.members import Member, weight_of
from magicbyte.engine.groups.classic.rules import GROUP_NOT_STORED, LOADING_REPLY, OFFSETS_NOT_STORED, GroupState
from magicbyte.engine.groups.consumer import classic_members
from magicbyte.engine.groups.consumer.describe import describe as describe_consumers
from magicbyte.engine.groups.consumer.heartbeat import (
    DEADLINES,
    dismissed,
    expire_member,
    watch_members,
)
from magicbyte.engine.groups.consumer.heartbeat import heartbeat as consumer_heartbeat
from magicbyte.engine.groups.consumer.heartbeat import stored as step_stored
from magicbyte.engine.groups.consumer.waiting import WaitingRequest
from magicbyte.engine.groups.effects import (
    AfterStore,
    AnswerOffsetDelete,
    AnswerReplacement,
    AssignMembers,
    CommitOffsets,
    DeleteStates,
    Effect,
    EndConsumerStep,
    EndGroupDelete,
    EndShareStep,
    EndTransaction,
)
from magicbyte.engine.groups.loading import LoadedPartition
from magicbyte.engine.groups.records import CONSUMER, GroupMetadataValue
from magicbyte.engine.groups.share import heartbeat as share
from magicbyte.engine.groups.share.describe import describe as describe_shares
from magicbyte.engine.groups.table import GroupTable
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages import (
    delete_groups,
    describe_groups,
    heartbeat,
    leave_group,
    list_groups,
)
from magicbyte.engine.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest
from magicbyte.engine.protocol.messages.offset_commit import OffsetCommitRequest
from magicbyte.engine.protocol.messages.offset_delete import OffsetDeleteRequest
from magicbyte.engine.protocol.messages.offset_fetch import OffsetFetchRequest
from magicbyte.engine.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from magicbyte.engine.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from magicbyte.engine.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from magicbyte.engine.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
"""The allowed operations on a group when there is no authorizer: read, delete, describe."""
DEAD_IS_AN_ERROR = 6  # version of DescribeGroups from which an unknown group is an error
_CONVERSION_MS: Final = 500  # until a deadline of a group that is being converted is looked at again
MANY_LEAVE = 3  # version of LeaveGroup from which each member has a code


class Coordinator(GroupTable):
    """Answer requests about the groups of a `GroupTable`. Times are in ms."""

    # ---- partitions

    def _install(self, _partition: int, content: LoadedPartition, now: Moment) -> Sequence[Effect]:
        """Install the groups read from the log. Members get a whole session timeout for their next heartbeat."""
        # A group belongs to another partition than its log's if the number of partitions was changed.
        for group_id, places in content.offsets.items():
            if places and self.partition_of(group_id) in self.terms:
                self.group_of(group_id).offsets.update(places)
        for group_id, value in content.groups.items():
            if self.partition_of(group_id) in self.terms:
                _restore(self.group_of(group_id), value, now)
        for group_id, stored in content.consumers.items():
            if self.partition_of(group_id) in self.terms:
                consumer = self.consumer_of(group_id)
                for record in stored:
                    consumer.replay(record)
                watch_members(self, consumer, now)
        for group_id, kept in content.shares.items():
            if self.partition_of(group_id) in self.terms:
                shared = self.share_of(group_id)
                for each in kept:
                    shared.replay(each)
                share.watch_members(self, shared, now)
        for group_id, pending in content.pending.items():
            if self.partition_of(group_id) in self.terms:
                group = self.group_of(group_id)
                group.pending_offsets.update(pending)
                for producer_id in {each for producers in pending.values() for each in producers}:
                    self.is_transacting(group, producer_id)
        return []

    def _drop(self, partition: int) -> Sequence[Effect]:
        """Forget the groups of a partition; members get NOT_COORDINATOR."""
        for key in [key for key in self.transacting if key[0] == partition]:
            del self.transacting[key]
        effects: list[Effect] = []
        for group in [each for each in self.groups.values() if each.partition == partition]:
            del self.groups[group.group_id]
            effects += group.bury(ErrorCode.NOT_COORDINATOR)
        for group_id in [each for each in self.waiting if self.partition_of(each) == partition]:
            effects += dismissed(self, group_id, ErrorCode.NOT_COORDINATOR)
        for consumer in [each for each in self.consumers.values() if each.partition == partition]:
            del self.consumers[consumer.group_id]
            consumer.forget()
        for group_id in [each for each in self.waiting_share if self.partition_of(each) == partition]:
            effects += share.dismissed(self, group_id, ErrorCode.NOT_COORDINATOR)
        for shared in [each for each in self.shares.values() if each.partition == partition]:
            del self.shares[shared.group_id]
            shared.forget()
        return effects

    def close(self) -> Sequence[Effect]:
        """Answer all waiting requests, because the broker stops. Later requests are refused."""
        super().close()
        effects = [each for group in self.groups.values() for each in group.dismiss(ErrorCode.NOT_COORDINATOR)]
        for group_id in list(self.waiting):
            effects += dismissed(self, group_id, ErrorCode.NOT_COORDINATOR)
        for group_id in list(self.waiting_share):
            effects += share.dismissed(self, group_id, ErrorCode.NOT_COORDINATOR)
        return effects

    # ---- time

    def _deadline_reached(self, key: GroupDeadline, now: Moment) -> Sequence[Effect]:
        """Process a deadline: a member expires, or a rebalance ends."""
        if key.what in DEADLINES:
            return expire_member(self, key.group_id, key.what, key.member_id, now)
        if key.what == share.SHARE_SESSION:
            return share.expire_member(self, key.group_id, key.member_id, now)
        if self._is_converting(key.group_id):
            self.deadlines.set(key, now.monotonic_ms + _CONVERSION_MS)
            return []
        group = self.groups.get(key.group_id)
        if group is None:
            return []
        match key.what:
            case "session":
                return group.session_due(key.member_id, now)
            case "pending":
                return group.pending_due(key.member_id, now)
            case "join":
                return group.joins_due(now)
        return group.syncs_due(now)

    # ---- members

    def answer(self, caller: Caller, request: Message, now: Moment) -> Work[Effect]:
        """Answer any request of `ANSWERED`."""
        return ANSWERED[type(request)](self, caller, request, now)

    def join(self, caller: Caller, request: JoinGroupRequest, now: Moment) -> list[Effect]:
        """Answer a JoinGroup, possibly much later."""
        code: ErrorCode = self.status(request.group_id) or self._refusal(request)
        before = list[Effect]()
        if not code and self._waits(caller, request.group_id, request):
            return []
        if not code and request.group_id in self.shares:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not code and request.group_id in self.consumers:
            if not self.is_empty_consumer(request.group_id):
                return classic_members.join(self, self.consumers[request.group_id], caller, request, now)
            before += self.forget_consumer(request.group_id)
        group = self.groups.get(request.group_id)
        if not (code or self._has_room(caller, request, group)):
            code = ErrorCode.GROUP_MAX_SIZE_REACHED
        if not code and group is None:
            if request.member_id:
                code = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                group = self.group_of(request.group_id)
        if code or group is None:
            return [*before, refused_join(caller, request.member_id, code)]
        return [*before, *group.join(caller, request, now)]

    def _is_converting(self, group_id: str) -> bool:
        """Return whether a consumer group of this name is being stored, with the members of a classic one, if any."""
        return group_id in self.waiting and group_id not in self.consumers

    def _waits(self, caller: Caller, group_id: str, request: Message, *, changes: bool = False) -> bool:
        """Return whether a request must wait for the pending append of its group, and have it wait.

        `changes`: whether it changes a consumer group. Others wait only until there is one.
        """
        if self._is_converting(group_id) or (changes and group_id in self.waiting):
            self.waiting[group_id].append(WaitingRequest(caller, request))
            return True
        return False

    def _has_room(self, caller: Caller, request: JoinGroupRequest, group: Group | None) -> bool:
        """Return whether a member's metadata can be stored; a member may always resend as much as before."""
        known = None if group is None else group.members.get(request.member_id)
        more = weight_of(caller, request) - (0 if known is None else known.weight)
        return more <= 0 or self.usage.used + more <= self.config.metadata_max_bytes

    def _refusal(self, request: JoinGroupRequest) -> ErrorCode:
        if request.group_instance_id is not None and not self.config.stored.has_static_members:
            return ErrorCode.UNSUPPORTED_VERSION
        least, most = self.config.min_session_timeout_ms, self.config.max_session_timeout_ms
        return ErrorCode.NONE if least <= request.session_timeout_ms <= most else ErrorCode.INVALID_SESSION_TIMEOUT

    def sync(self, caller: Caller, request: SyncGroupRequest, now: Moment) -> list[Effect]:
        """Answer a SyncGroup, possibly later."""
        if self._waits(caller, request.group_id, request):
            return []
        consumer = self.consumers.get(request.group_id)
        if consumer is not None and not self.status(request.group_id):
            return classic_members.sync(self, consumer, caller, request, now)
        code, group = self._serving(request.group_id, "SyncGroup")
        if code or group is None:
            return [Reply(caller, SyncGroupResponse(error_code=code or ErrorCode.UNKNOWN_MEMBER_ID))]
        return group.sync(caller, request, now)

    def heartbeat(self, caller: Caller, request: heartbeat.HeartbeatRequest, now: Moment) -> list[Effect]:
        """Answer a Heartbeat."""
        status = self.status(request.group_id)
        if status is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return [Reply(caller, heartbeat.HeartbeatResponse(error_code=LOADING_REPLY["Heartbeat"]))]
        if self._waits(caller, request.group_id, request):
            return []
        group, consumer = self.groups.get(request.group_id), self.consumers.get(request.group_id)
        code: ErrorCode = status or ErrorCode.UNKNOWN_MEMBER_ID
        if not status and consumer is not None:
            code = classic_members.heartbeat(self, consumer, request, now)
        elif not status and group is not None:
            code = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, now)
        return [Reply(caller, heartbeat.HeartbeatResponse(error_code=code))]

    def _serving(self, group_id: str, api: str) -> tuple[ErrorCode, Group | None]:
        """Return a group, or the error for which it is not served; without an error the group may not exist."""
        status = self.status(group_id)
        if status is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            status = LOADING_REPLY.get(api, status)
        return status, None if status else self.groups.get(group_id)

    def leave(self, caller: Caller, request: leave_group.LeaveGroupRequest, now: Moment) -> Work[Effect]:
        """Answer a LeaveGroup: of one member, or of several from version 3 on."""
        one = [leave_group.MemberIdentity(member_id=request.member_id)]
        members, left = request.members if caller.version >= MANY_LEAVE else one, list[leave_group.MemberResponse]()
        consumer = self.consumers.get(request.group_id)
        if self._waits(caller, request.group_id, request, changes=True):
            return
        if consumer is not None and not self.status(request.group_id):
            yield from classic_members.leave(self, consumer, caller, members, now)
            yield Steps(len(members))
            return
        for some in in_parts(members):
            status, group = self._serving(request.group_id, "LeaveGroup")
            if status:
                yield Reply(caller, leave_group.LeaveGroupResponse(error_code=status))
                return
            for leaving in some:
                code = ErrorCode.UNKNOWN_MEMBER_ID
                if group is not None:
                    code, effects = group.leave(leaving.member_id, leaving.group_instance_id, now)
                    yield from effects
                left.append(
                    leave_group.MemberResponse(
                        member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error_code=code
                    )
                )
            yield Steps(len(some))
        response = leave_group.LeaveGroupResponse(members=left)
        if caller.version < MANY_LEAVE:
            response = leave_group.LeaveGroupResponse(error_code=left[0].error_code)
        yield Reply(caller, response)

    # ---- groups

    def describe(self, caller: Caller, request: describe_groups.DescribeGroupsRequest, _now: Moment) -> Work[Effect]:
        """Answer a DescribeGroups."""
        groups = list[describe_groups.DescribedGroup]()
        for group_id in once_if_long(request.groups):
            described = self._described(caller, group_id)
            if request.include_authorized_operations and not described.error_code:
                described.authorized_operations = OPERATIONS
            groups.append(described)
            size = sum(len(each.member_metadata) + len(each.member_assignment) for each in described.members)
            yield Steps(1 + size // STEP_BYTES)
        yield Reply(caller, describe_groups.DescribeGroupsResponse(groups=groups))

    def _described(self, caller: Caller, group_id: str) -> describe_groups.DescribedGroup:
        code, group = self.status(group_id, may_be_empty=True), self.groups.get(group_id)
        if code or group is None or group_id in self.consumers:
            why = None
            if not code and caller.version >= DEAD_IS_AN_ERROR:
                code, why = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
            state = GroupState.DEAD.value if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) else ""
            return describe_groups.DescribedGroup(
                error_code=code, error_message=why, group_id=group_id, group_state=state
            )
        stable = group.state is GroupState.STABLE
        members = [
            describe_groups.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol or "") if stable else b"",
                member_assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ]
        return describe_groups.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if stable else "",
            members=members,
        )

    def list_all(self, caller: Caller, request: list_groups.ListGroupsRequest, _now: Moment) -> Work[Effect]:
        """Answer a ListGroups. States are compared without regard to case."""
        states = {group.lower() for group in request.states_filter}
        types = {group.lower() for group in request.types_filter}
        groups = list[list_groups.ListedGroup]()
        for some in in_parts(list(self.groups.values())):
            groups += [
                list_groups.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type="classic",
                )
                for group in some
                if group.group_id not in self.consumers
                and (not states or group.state.value.lower() in states)
                and (not types or "classic" in types)
            ]
            yield Steps(len(some))
        for those in in_parts(list(self.consumers.values())):
            of_type = [(group, group.state.value) for group in those if not types or "consumer" in types]
            groups += [
                list_groups.ListedGroup(
                    group_id=group.group_id, protocol_type=CONSUMER, group_state=state, group_type="consumer"
                )
                for group, state in of_type
                if not states or state.lower() in states
            ]
            yield Steps(len(those) + sum(len(group.subscribers) for group, _ in of_type) // 10)
        for shared in in_parts(list(self.shares.values())):
            groups += [
                list_groups.ListedGroup(
                    group_id=group.group_id, protocol_type="share", group_state=group.state.value, group_type="share"
                )
                for group in shared
                if (not types or "share" in types) and (not states or group.state.value.lower() in states)
            ]
            yield Steps(len(shared))
        code = ErrorCode.NONE
        if self.closed:
            code, groups = ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        elif self.terms.are_loading:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        yield Reply(caller, list_groups.ListGroupsResponse(error_code=code, groups=groups))

    def delete(self, caller: Caller, request: delete_groups.DeleteGroupsRequest, _now: Moment) -> Work[Effect]:
        """Delete groups without members, and their offsets; answer when all deletions are stored."""
        names = once_if_long(request.groups_names)
        results = [delete_groups.DeletableGroupResult(group_id=each) for each in names]
        number = self.gatherings.begin(
            caller, results, lambda outcome: delete_groups.DeleteGroupsResponse(results=outcome)
        )
        for result in results:
            result.error_code = self._deletion_refusal(result.group_id)
            if not result.error_code and result.group_id in self.shares:
                self.gatherings[number].waiting += 1
                yield self._deletion_of_states(result.group_id, EndGroupDelete(number, result.group_id))
            elif not result.error_code:
                group = self.group_of(result.group_id)
                places = sorted(group.offsets.keys() | group.pending_offsets.keys())
                stores = self.forget(group, places, EndGroupDelete(number, group.group_id), always=True)
                self.gatherings[number].waiting += len(stores)
                yield from stores
            yield Steps(1)
        yield from self.gatherings.decided(number)

    def _deletion_of_states(self, group_id: str, then: EndGroupDelete) -> Effect:
        """Delete the states of a share group, and then the group."""
        kept = self.shares[group_id].states
        topics: dict[uuid.UUID, set[int]] = {}
        for topic_id, states in (*kept.initializing.items(), *kept.initialized.items()):
            topics.setdefault(topic_id, set()).update(states.partitions)
        return DeleteStates(group_id, tuple((each, tuple(sorted(topics[each]))) for each in topics), then)

    def _deletion_refusal(self, group_id: str) -> ErrorCode:
        if code := self.status(group_id, may_be_empty=True):
            return code
        if group_id in self.consumers:
            return ErrorCode.NONE if self.is_empty_consumer(group_id) else ErrorCode.NON_EMPTY_GROUP
        if (shared := self.shares.get(group_id)) is not None:
            has_members = shared.subscribers or group_id in self.waiting_share
            return ErrorCode.NON_EMPTY_GROUP if has_members else ErrorCode.NONE
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def _group_deleted(self, then: EndGroupDelete, code: ErrorCode) -> Sequence[Effect]:
        for result in self.gatherings[then.number].outcome:
            if result.group_id == then.group_id and not result.error_code:
                result.error_code = OFFSETS_NOT_STORED.get(code, code)
        return self.gatherings.stored(then.number)

    def expire(self, date_ms: int) -> Work[Effect]:
        """Delete expired offsets, and groups that have neither offsets nor members."""
        for some in in_parts(list(self.groups.values())):
            for group in some:
                if self.groups.get(group.group_id) is not group:
                    continue
                consumer = self.consumers.get(group.group_id)
                subscribed = None if consumer is None else consumer.topics
                expired = list(offsets.expired_offsets(group, date_ms, subscribed))
                if expired or group.is_idle:
                    yield from self.forget(group, expired)
            yield Steps(len(some))
        for names in in_parts(list(self.consumers)):
            for name in names:
                if self.is_empty_consumer(name) and name not in self.groups:
                    yield from self.forget_consumer(name)
            yield Steps(len(names))

    def forget_topic(self, topic: str) -> Sequence[Effect]:
        """Delete all offsets of a topic that was deleted."""
        effects: list[Effect] = []
        for group in list(self.groups.values()):
            kept = group.offsets.keys() | group.pending_offsets.keys()
            places = sorted(place for place in kept if place.topic == topic)
            if places:
                effects += self.forget(group, places)
        return effects

    # ---- after appends

    def _continue(self, store: Store[AfterStore | None], code: ErrorCode, now: Moment) -> Sequence[Effect]:
        """Continue after an append."""
        match store.then:
            case CommitOffsets() as then:
                return offsets.committed(self, then, code)
            case EndTransaction() as then:
                return offsets.ended(self, then, store.partition, code)
            case AnswerOffsetDelete() as then:
                return offsets.deleted(self, then, code)
            case EndGroupDelete() as then:
                return self._group_deleted(then, code)
            case EndConsumerStep() as then:
                is_present = self.terms.is_present(store.partition, store.term)
                return step_stored(self, then, code, now, is_present=is_present)
            case EndShareStep() as then:
                is_present = self.terms.is_present(store.partition, store.term)
                return share.stored(self, then, code, now, is_present=is_present)
            case AssignMembers() as then:
                self.usage.used -= sum(len(each) for _, each in then.assignments)
                group = self.groups.get(then.group_id)
                return [] if group is None else group.assignment_stored(then, code, now)
            case AnswerReplacement() as then:
                group, refusal = self.groups.get(then.group_id), GROUP_NOT_STORED.get(code, code)
                if group is None:
                    refusal = refusal or self.status(then.group_id) or ErrorCode.UNKNOWN_MEMBER_ID
                    return [refused_join(then.caller, "", refusal)]
                return [replacement_stored(group, then, refusal)]
        return []


ANSWERED: Final[Mapping[type[Message], Callable[[Coordinator, Caller, Any, Moment], Work[Effect]]]] = {
    ConsumerGroupHeartbeatRequest: consumer_heartbeat,
    ConsumerGroupDescribeRequest: describe_consumers,
    ShareGroupHeartbeatRequest: share.heartbeat,
    ShareGroupDescribeRequest: describe_shares,
    JoinGroupRequest: Coordinator.join,
    SyncGroupRequest: Coordinator.sync,
    heartbeat.HeartbeatRequest: Coordinator.heartbeat,
    leave_group.LeaveGroupRequest: Coordinator.leave,
    OffsetCommitRequest: offsets.commit,
    OffsetFetchRequest: offsets.fetch,
    OffsetDeleteRequest: offsets.delete_offsets,
    TxnOffsetCommitRequest: offsets.commit_in_transaction,
    describe_groups.DescribeGroupsRequest: Coordinator.describe,
    list_groups.ListGroupsRequest: Coordinator.list_all,
    delete_groups.DeleteGroupsRequest: Coordinator.delete,
}


def _restore(group: Group, stored: GroupMetadataValue, now: Moment) -> None:
    """Restore a group from its record."""
    group.generation, group.protocol_type = stored.generation, stored.protocol_type or None
    group.protocol, group.leader = stored.protocol, stored.leader
    group.state_since_ms = stored.current_state_timestamp
    group.state = GroupState.STABLE if stored.members else GroupState.EMPTY
    for each in stored.members:
        timeout = each.rebalance_timeout if each.rebalance_timeout >= 0 else each.session_timeout
        protocols = ((stored.protocol or "", each.subscription),)
        member = Member(
            each.member_id, each.group_instance_id, each.client_id, each.client_host, each.session_timeout, timeout,
            protocols, each.assignment,
        )  # fmt: skip
        group.admit(member, now.monotonic_ms + member.session_timeout_ms)
