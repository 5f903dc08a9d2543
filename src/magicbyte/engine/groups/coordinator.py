"""The group coordinator: requests and the time in, effects out. It has no socket, task, clock or log of its own.

Each request gets its `Reply`, immediately or in the effects of a later call. The caller performs `StoreRecords` effects
of one partition in order, and calls `stored` in that order. Source: Kafka's GroupCoordinator (3.9), KIP-211, KIP-229,
KIP-345, KIP-394, KIP-447, KIP-496.

Invariants:
1. Each request gets one `Reply`. `resign` and `close` answer the members that wait.
2. Offsets count, and members get assignments, only when their record is stored.
3. Work belongs to a term. A load or an append of an ended term installs nothing, and is answered as by a broker that
   does not lead (`tests/engine/groups/test_moves.py`).
4. A partition has groups in memory only in a term; while it is loaded, clients must wait.
5. A deadline names its group and member. One whose group is gone does nothing.

Calls are made one at a time, and none waits. A crash loses only what no record has: members join again, and a commit
without an answer is repeated. `loading.py` reads the rest from the log. `tests/engine/groups/test_model.py` compares
random histories with a model, and `tests/simulation/test_group_histories.py` whole clusters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from magicbyte.engine.coordination.effects import Caller, Reply
from magicbyte.engine.coordination.terms import LoadState
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups import offsets
from magicbyte.engine.groups.classic.group import Group, refused_join, replacement_stored
from magicbyte.engine.groups.classic.members import Member, weight_of
from magicbyte.engine.groups.classic.rules import GROUP_NOT_STORED, LOADING_REPLY, OFFSETS_NOT_STORED, GroupState
from magicbyte.engine.groups.config import GroupConfig
from magicbyte.engine.groups.effects import (
    AnswerOffsetDelete,
    AnswerReplacement,
    AssignMembers,
    CommitOffsets,
    Effect,
    EndGroupDelete,
    EndTransaction,
    StoreRecords,
)
from magicbyte.engine.groups.loading import LoadedPartition
from magicbyte.engine.groups.records import GroupMetadataValue
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
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest
from magicbyte.engine.protocol.messages.offset_commit import OffsetCommitRequest
from magicbyte.engine.protocol.messages.offset_delete import OffsetDeleteRequest
from magicbyte.engine.protocol.messages.offset_fetch import OffsetFetchRequest
from magicbyte.engine.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from magicbyte.engine.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

DEAD_IS_AN_ERROR = 6  # version of DescribeGroups from which an unknown group is an error
MANY_LEAVE = 3  # version of LeaveGroup from which each member has a code
OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
"""The allowed operations on a group when there is no authorizer: read, delete, describe."""


@dataclass(slots=True)
class _Deletion:
    """A DeleteGroups in progress. `waiting`: its groups whose records are being appended."""

    caller: Caller
    results: list[delete_groups.DeletableGroupResult]
    waiting: int = 0


class Coordinator(GroupTable):
    """Answer requests about the groups of a `GroupTable`. Times are in ms."""

    def __init__(
        self, config: GroupConfig, *, token: Callable[[], str], has_partition: Callable[[str, int], bool]
    ) -> None:
        super().__init__(config, token=token, has_partition=has_partition)
        self._deletions: dict[int, _Deletion] = {}
        self._numbers = itertools.count()

    # ---- partitions

    def begin_loading(self, partition: int) -> int:
        """Begin a term as the coordinator of a partition's groups, which wait until they are `loaded`.

        Return the number of the term. Loads and appends of an earlier term no longer have an effect.
        """
        assert not self.terms.is_active(partition), "groups are loaded once in a term"
        waiting = self.resign(partition)
        assert not waiting, "no request waits for unknown groups"
        return self.terms.begin(partition)

    def load_failed(self, partition: int, term: int) -> None:
        """Give up a partition whose log cannot be read, so that no outdated offsets are returned."""
        self.terms.end_loading(partition, term, LoadState.FAILED)

    def loaded(self, partition: int, term: int, content: LoadedPartition, now: Moment) -> None:
        """Install the groups read from the log. Members get a whole session timeout for their next heartbeat.

        A term that has ended, or was superseded by a later one, installs nothing.
        """
        if not self.terms.end_loading(partition, term, LoadState.ACTIVE):
            return
        # A group belongs to another partition than its log's if the number of partitions was changed.
        for group_id, places in content.offsets.items():
            if places and self.partition_of(group_id) in self.terms:
                self.group_of(group_id).offsets.update(places)
        for group_id, value in content.groups.items():
            if self.partition_of(group_id) in self.terms:
                _restore(self.group_of(group_id), value, now)
        for group_id, pending in content.pending.items():
            if self.partition_of(group_id) in self.terms:
                group = self.group_of(group_id)
                group.pending_offsets.update(pending)
                for producer_id in {each for producers in pending.values() for each in producers}:
                    self.is_transacting(group, producer_id)

    def resign(self, partition: int) -> list[Effect]:
        """End the term of a partition that another broker leads now; members get NOT_COORDINATOR."""
        self.terms.pop(partition, None)
        for key in [key for key in self.transacting if key[0] == partition]:
            del self.transacting[key]
        effects: list[Effect] = []
        for group in [each for each in self.groups.values() if each.partition == partition]:
            del self.groups[group.group_id]
            effects += group.bury(ErrorCode.NOT_COORDINATOR)
        return effects

    def close(self) -> list[Effect]:
        """Answer all waiting requests, because the broker stops. Later requests are refused."""
        self.closed = True
        return [each for group in self.groups.values() for each in group.dismiss(ErrorCode.NOT_COORDINATOR)]

    # ---- time

    def next_ms(self) -> int | None:
        """Return the latest time to call `due`; None if nothing is pending."""
        return self.deadlines.next_ms()

    def due(self, now: Moment) -> list[Effect]:
        """Process deadlines: members expire, rebalances end."""
        effects: list[Effect] = []
        while (key := self.deadlines.pop(now.monotonic_ms)) is not None:
            group = self.groups.get(key.group_id)
            if group is None:
                continue
            match key.what:
                case "session":
                    effects += group.session_due(key.member_id, now)
                case "pending":
                    effects += group.pending_due(key.member_id, now)
                case "join":
                    effects += group.joins_due(now)
                case "sync":
                    effects += group.syncs_due(now)
        return effects

    # ---- members

    def answer(self, caller: Caller, request: Message, now: Moment) -> list[Effect]:
        """Answer any request of `ANSWERED`."""
        return ANSWERED[type(request)](self, caller, request, now)

    def join(self, caller: Caller, request: JoinGroupRequest, now: Moment) -> list[Effect]:
        """Answer a JoinGroup, possibly much later."""
        code: ErrorCode = self.status(request.group_id) or self._refusal(request)
        group = self.groups.get(request.group_id)
        if not (code or self._has_room(caller, request, group)):
            code = ErrorCode.GROUP_MAX_SIZE_REACHED
        if not code and group is None:
            if request.member_id:
                code = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                group = self.group_of(request.group_id)
        if code or group is None:
            return [refused_join(caller, request.member_id, code)]
        return group.join(caller, request, now)

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
        code, group = self._serving(request.group_id, "SyncGroup")
        if code or group is None:
            return [Reply(caller, SyncGroupResponse(error_code=code or ErrorCode.UNKNOWN_MEMBER_ID))]
        return group.sync(caller, request, now)

    def heartbeat(self, caller: Caller, request: heartbeat.HeartbeatRequest, now: Moment) -> list[Effect]:
        """Answer a Heartbeat."""
        status = self.status(request.group_id)
        if status is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return [Reply(caller, heartbeat.HeartbeatResponse(error_code=LOADING_REPLY["Heartbeat"]))]
        group = self.groups.get(request.group_id)
        code: ErrorCode = status or ErrorCode.UNKNOWN_MEMBER_ID
        if not status and group is not None:
            code = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, now)
        return [Reply(caller, heartbeat.HeartbeatResponse(error_code=code))]

    def _serving(self, group_id: str, api: str) -> tuple[ErrorCode, Group | None]:
        """Return a group, or the error for which it is not served; without an error the group may not exist."""
        status = self.status(group_id)
        if status is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            status = LOADING_REPLY.get(api, status)
        return status, None if status else self.groups.get(group_id)

    def leave(self, caller: Caller, request: leave_group.LeaveGroupRequest, now: Moment) -> list[Effect]:
        """Answer a LeaveGroup: of one member, or of several from version 3 on."""
        status, group = self._serving(request.group_id, "LeaveGroup")
        if status:
            return [Reply(caller, leave_group.LeaveGroupResponse(error_code=status))]
        one = [leave_group.MemberIdentity(member_id=request.member_id)]
        effects, left = list[Effect](), list[leave_group.MemberResponse]()
        for leaving in request.members if caller.version >= MANY_LEAVE else one:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                code, more = group.leave(leaving.member_id, leaving.group_instance_id, now)
                effects += more
            left.append(
                leave_group.MemberResponse(
                    member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error_code=code
                )
            )
        response = leave_group.LeaveGroupResponse(members=left)
        if caller.version < MANY_LEAVE:
            response = leave_group.LeaveGroupResponse(error_code=left[0].error_code)
        return [Reply(caller, response), *effects]

    # ---- groups

    def describe(self, caller: Caller, request: describe_groups.DescribeGroupsRequest, _now: Moment) -> list[Effect]:
        """Answer a DescribeGroups."""
        groups = [self._described(caller, each) for each in request.groups]
        if request.include_authorized_operations:
            for each in groups:
                if not each.error_code:
                    each.authorized_operations = OPERATIONS
        return [Reply(caller, describe_groups.DescribeGroupsResponse(groups=groups))]

    def _described(self, caller: Caller, group_id: str) -> describe_groups.DescribedGroup:
        code, group = self.status(group_id, may_be_empty=True), self.groups.get(group_id)
        if code or group is None:
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

    def list_all(self, caller: Caller, request: list_groups.ListGroupsRequest, _now: Moment) -> list[Effect]:
        """Answer a ListGroups. States are compared without regard to case."""
        states = {group.lower() for group in request.states_filter}
        types = {group.lower() for group in request.types_filter}
        groups = [
            list_groups.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type="classic",
            )
            for group in self.groups.values()
            if (not states or group.state.value.lower() in states) and (not types or "classic" in types)
        ]
        code = ErrorCode.NONE
        if self.closed:
            code, groups = ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        elif any(group.state is LoadState.LOADING for group in self.terms.values()):
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [Reply(caller, list_groups.ListGroupsResponse(error_code=code, groups=groups))]

    def delete(self, caller: Caller, request: delete_groups.DeleteGroupsRequest, _now: Moment) -> list[Effect]:
        """Delete groups without members, and their offsets; answer when all deletions are stored."""
        results = [delete_groups.DeletableGroupResult(group_id=each) for each in request.groups_names]
        number, deletion = next(self._numbers), _Deletion(caller, results)
        effects: list[Effect] = []
        for result in results:
            group = self.groups.get(result.group_id)
            result.error_code = self.status(result.group_id, may_be_empty=True)
            if not result.error_code and group is None:
                result.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            elif not result.error_code and group is not None and group.state is not GroupState.EMPTY:
                result.error_code = ErrorCode.NON_EMPTY_GROUP
            elif not result.error_code and group is not None:
                places = sorted(group.offsets.keys() | group.pending_offsets.keys())
                stores = self.forget(group, places, EndGroupDelete(number, group.group_id), always=True)
                deletion.waiting += len(stores)
                effects += stores
        if not deletion.waiting:
            return [*effects, Reply(caller, delete_groups.DeleteGroupsResponse(results=results))]
        self._deletions[number] = deletion
        return effects

    def _group_deleted(self, then: EndGroupDelete, code: ErrorCode) -> list[Effect]:
        deletion = self._deletions[then.number]
        for result in deletion.results:
            if result.group_id == then.group_id and not result.error_code:
                result.error_code = OFFSETS_NOT_STORED.get(code, code)
        deletion.waiting -= 1
        if deletion.waiting:
            return []
        del self._deletions[then.number]
        return [Reply(deletion.caller, delete_groups.DeleteGroupsResponse(results=deletion.results))]

    def expire(self, date_ms: int) -> list[Effect]:
        """Delete expired offsets, and groups that have neither offsets nor members."""
        effects: list[Effect] = []
        for group in list(self.groups.values()):
            expired = list(offsets.expired_offsets(group, date_ms))
            if expired or group.is_idle:
                effects += self.forget(group, expired)
        return effects

    def forget_topic(self, topic: str) -> list[Effect]:
        """Delete all offsets of a topic that was deleted."""
        effects: list[Effect] = []
        for group in list(self.groups.values()):
            kept = group.offsets.keys() | group.pending_offsets.keys()
            places = sorted(place for place in kept if place.topic == topic)
            if places:
                effects += self.forget(group, places)
        return effects

    # ---- after appends

    def stored(self, store: StoreRecords, code: ErrorCode, now: Moment) -> list[Effect]:
        """Continue after a `StoreRecords` that ended with `code`; if its term has ended, as not the leader."""
        if not self.terms.is_present(store.partition, store.term):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        match store.then:
            case CommitOffsets() as then:
                return [offsets.committed(self, then, code)]
            case EndTransaction() as then:
                return offsets.ended(self, then, store.partition, code)
            case AnswerOffsetDelete() as then:
                return [offsets.deleted(then, code)]
            case EndGroupDelete() as then:
                return self._group_deleted(then, code)
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


ANSWERED: Final[Mapping[type[Message], Callable[[Coordinator, Caller, Any, Moment], list[Effect]]]] = {
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
