"""One group of the classic protocol: its members, and the rebalances by which they agree on an assignment.

A request and the time in, effects out; later work is scheduled in `Deadlines`. The caller has made the checks that do
not depend on the group. Source: Kafka's GroupCoordinator and GroupMetadata (3.9).

Invariants:
1. The state changes only along `rules.TRANSITIONS` (`_move`). A group that is DEAD is in no table, and stays so:
   later outcomes of its appends do nothing.
2. A member has at most one JoinGroup and one SyncGroup that wait (`joining`, `syncing`). A later one of the same member
   answers the earlier one, and so do the removal of the member and the end of the group. So each request is answered.
3. While members join, the state is PREPARING_REBALANCE, and its deadline is set. It ends with the next generation, in
   which all members have joined, but static ones that may return.
4. `leader` is a member of the group whenever there are members. `protocol` is one that all members of the generation
   support.
5. The assignment of a generation counts when its record is stored (`assignment_stored`), and only if generation and
   leader are still those of the record. Until then members wait, and the state is COMPLETING_REBALANCE.
6. A session deadline removes its member, except while a request of it waits: the response extends the session. A new
   member is removed nevertheless: it has not heard of its membership, and may be gone.
7. `usage` counts what is kept of members and of pending ids. Members are changed by the methods of `Members` alone.
8. `pending` ids were given out, and are no members. A rebalance waits for them, until they join or their time is over.
9. Offsets are here, and change only in `groups/offsets.py`.

After a crash the record gives members and assignments; requests that waited are sent again. `test_coordinator.py`,
`test_moves.py` and `test_model.py` in `tests/engine/groups` have 1 to 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from magicbyte.engine.coordination.deadlines import Deadlines
from magicbyte.engine.coordination.effects import Caller, Reply, Store
from magicbyte.engine.coordination.parts import STEP_BYTES
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.members import Member, Members, protocols_of
from magicbyte.engine.groups.classic.rules import ALLOWED, GROUP_NOT_STORED, HEARTBEAT_REPLY, SYNC_REPLY, GroupState
from magicbyte.engine.groups.classic.usage import Usage, weight
from magicbyte.engine.groups.config import GroupConfig
from magicbyte.engine.groups.effects import AfterStore, AnswerReplacement, AssignMembers, Effect
from magicbyte.engine.groups.records import GroupMetadataKey, GroupMetadataValue, OffsetCommitValue
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from magicbyte.engine.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NEW_MEMBER_JOIN_MS: Final = 5 * 60_000
"""How long a new member may take for its first join: it cannot send heartbeats yet."""
NULLABLE_PROTOCOL: Final = 7  # version of JoinGroup from which the protocol may be null
KNOWN_MEMBER_ID: Final = 4  # version of JoinGroup from which a member must rejoin with the id it was given (KIP-394)
LONGEST_NAME: Final = 1000  # characters of a client id in a member id, which must fit into a string of the protocol
SKIPS_ASSIGNMENT: Final = 9  # version of JoinGroup that can tell the leader to skip the assignment


class GroupDeadline(NamedTuple):
    """The kinds of deadline: a member's session, a pending member id, the joins or the syncs of a group."""

    group_id: str
    what: str
    member_id: str = ""


@dataclass(slots=True)
class Group:
    """A group, with or without members. `offsets` are the committed ones, by topic and partition.

    `term`: of the coordinator, in which it was loaded or created. `pending_offsets`: those of open transactions, by
    partition and producer, in the order of the log; None: superseded by a later commit. `unstable`: partitions for
    which such offsets are being appended, with their number. `token` makes the suffix of member ids. `usage` counts the
    bytes of members of all groups.
    """

    group_id: str
    partition: int
    term: int
    config: GroupConfig
    deadlines: Deadlines[GroupDeadline]
    token: Callable[[], str]
    usage: Usage
    state: GroupState = GroupState.EMPTY
    state_since_ms: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: Members = field(init=False)
    pending: set[str] = field(default_factory=set)
    unsynced: set[str] = field(default_factory=set)
    offsets: dict[TopicPartition, OffsetCommitValue] = field(default_factory=dict)
    pending_offsets: dict[TopicPartition, dict[int, OffsetCommitValue | None]] = field(default_factory=dict)
    unstable: Counter[TopicPartition] = field(default_factory=Counter)
    _gathering_ms: int | None = None  # of the first rebalance: how much longer it may wait for new members
    is_downgraded: bool = False  # it was a consumer group until a rebalance that is not over
    _has_new: bool = False  # a member joined since that wait began

    def __post_init__(self) -> None:
        self.members = Members(self.usage)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to keep."""
        kept = self.offsets or self.pending_offsets or self.unstable or self.pending
        return self.state is GroupState.EMPTY and not kept

    # ---- joining

    def join(self, caller: Caller, request: JoinGroupRequest, now: Moment) -> list[Effect]:
        """Answer a JoinGroup, immediately or when its rebalance is complete."""
        member_id = request.member_id
        if not self._has_room(member_id):
            gone = self.remove(member_id, now) if member_id in self.members else []
            return [*gone, refused_join(caller, "", ErrorCode.GROUP_MAX_SIZE_REACHED)]
        if not _is_supported(self, request):
            return [refused_join(caller, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
        if not member_id:
            effects = self._join_new(caller, request, now)
        elif member_id in self.pending and request.group_instance_id is None:
            effects = self._add(caller, member_id, request, now)
        elif code := self.members.fault(member_id, request.group_instance_id):
            return [refused_join(caller, member_id, code)]
        else:
            effects = self._rejoin(caller, self.members[member_id], request, now)
        return effects + self._complete_if_all_joined(now)

    def _has_room(self, member_id: str) -> bool:
        if self.state is GroupState.EMPTY:
            return True
        known = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:  # for the first member to join
            joining = sum(each.joining is not None for each in self.members.values())
            return (known is not None and known.joining is not None) or joining < self.config.max_size
        return known is not None or len(self.members) < self.config.max_size

    def _join_new(self, caller: Caller, request: JoinGroupRequest, now: Moment) -> list[Effect]:
        instance = request.group_instance_id
        name = caller.client_id if instance is None else instance
        member_id = f"{name[:LONGEST_NAME]}-{self.token()}"
        if instance is not None and instance in self.members.static:
            return self._replace_static(caller, member_id, request, now)
        if instance is None and caller.version >= KNOWN_MEMBER_ID:
            self.pending.add(member_id)
            self.usage.used += weight((), member_id)
            self.deadlines.set(
                GroupDeadline(self.group_id, "pending", member_id), now.monotonic_ms + request.session_timeout_ms
            )
            return [refused_join(caller, member_id, ErrorCode.MEMBER_ID_REQUIRED)]
        return self._add(caller, member_id, request, now)

    def _add(self, caller: Caller, member_id: str, request: JoinGroupRequest, now: Moment) -> list[Effect]:
        self._forget_pending(member_id)
        member = Member(member_id, request.group_instance_id, caller.client_id, caller.host, 0, 0, (), is_new=True)
        self.admit(member, now.monotonic_ms + NEW_MEMBER_JOIN_MS)
        self.members.revise(member, caller, request)
        self.protocol_type = request.protocol_type
        self.leader = self.leader or member_id
        self._has_new = True
        return self._prepare(now)

    def admit(self, member: Member, until_ms: int) -> None:
        """Add a member, which must send its next request before `until_ms`."""
        self.members.admit(member)
        self.deadlines.set(GroupDeadline(self.group_id, "session", member.member_id), until_ms)

    def _rejoin(self, caller: Caller, member: Member, request: JoinGroupRequest, now: Moment) -> list[Effect]:
        unchanged = member.protocols == protocols_of(request)
        is_leader = member.member_id == self.leader
        match self.state:
            case GroupState.EMPTY | GroupState.DEAD:
                return [refused_join(caller, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)]
            case GroupState.COMPLETING_REBALANCE if unchanged:  # the response to its first request was lost
                return [_joined(self, caller, member)]
            case GroupState.STABLE if unchanged and not is_leader:  # by joining, the leader asks for a rebalance
                return [_joined(self, caller, member)]
        # its earlier request, whose connection is no longer used
        before = _fenced_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.members.revise(member, caller, request)
        return [*before, *self._prepare(now)]

    def _replace_static(self, caller: Caller, member_id: str, request: JoinGroupRequest, now: Moment) -> list[Effect]:
        """Let an instance that returned under a new member id replace its former member."""
        instance = request.group_instance_id
        assert instance is not None
        before = self.members.static[instance]
        member = self.members[before]
        effects = [*_fenced_join(member, ErrorCode.FENCED_INSTANCE_ID), *_fenced_sync(member)]
        self.deadlines.cancel(GroupDeadline(self.group_id, "session", before))
        told_leader = self.leader or ""
        self.members.rename(member, member_id)
        if self.leader == before:
            self.leader = member_id
        if before in self.unsynced:
            self.unsynced.remove(before)
            self.unsynced.add(member_id)
        self.members.revise(member, caller, request)
        self.touch(member, now)
        if self.state is not GroupState.STABLE or self.members.vote() != self.protocol:
            return [*effects, *self._prepare(now)]
        member.joining = None  # other changes of it wait for the next rebalance, as in Kafka
        return [*effects, self.store(now, AnswerReplacement(caller, self.group_id, member_id, told_leader))]

    # ---- rebalancing

    def _prepare(self, now: Moment) -> list[Effect]:
        """Begin a rebalance, unless one is in progress."""
        if self.state is GroupState.PREPARING_REBALANCE:
            return []
        effects: list[Effect] = []
        if self.state is GroupState.COMPLETING_REBALANCE:
            effects = self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now)
        self.deadlines.cancel(GroupDeadline(self.group_id, "sync"))
        self.unsynced.clear()
        wait = self.members.rebalance_timeout_ms
        if self.state is GroupState.EMPTY:
            self._gathering_ms = max(wait - self.config.initial_rebalance_delay_ms, 0)
            self._has_new = False
            wait = self.config.initial_rebalance_delay_ms
        self._move(GroupState.PREPARING_REBALANCE, now.date_ms)
        self.deadlines.set(GroupDeadline(self.group_id, "join"), now.monotonic_ms + wait)
        return effects

    def rebalance(self, now: Moment) -> list[Effect]:
        """Have all members join again."""
        return self._prepare(now) + self._complete_if_all_joined(now)

    @property
    def is_unsettled(self) -> bool:
        """Whether members own, or are about to own, more than their assignments say.

        So it is while the assignment of a generation is being stored, and from a downgrade to the next one.
        """
        is_storing = self.state is GroupState.COMPLETING_REBALANCE and self.leader not in self.unsynced
        return is_storing or self.is_downgraded

    def joins_due(self, now: Moment) -> list[Effect]:
        """Continue without members that have not joined; the first rebalance continues while new members arrive."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            return []
        if self._gathering_ms and self._has_new:
            wait = min(self.config.initial_rebalance_delay_ms, self._gathering_ms)
            self._gathering_ms -= wait
            self._has_new = False
            self.deadlines.set(GroupDeadline(self.group_id, "join"), now.monotonic_ms + wait)
            return []
        return self._complete(now)

    def _complete_if_all_joined(self, now: Moment) -> list[Effect]:
        if self.state is not GroupState.PREPARING_REBALANCE:
            return []
        if self._gathering_ms is not None and self.members:
            return [] if self.config.initial_rebalance_delay_ms else self._complete(now)
        joined = all(each.joining is not None for each in self.members.values())
        return self._complete(now) if joined and not self.pending else []

    def _complete(self, now: Moment) -> list[Effect]:
        """Begin the next generation with the members that have joined, and static members that may return."""
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._drop(member)
        joined = [each for each in self.members.values() if each.joining is not None]
        if self.members and not joined:
            self.deadlines.set(
                GroupDeadline(self.group_id, "join"), now.monotonic_ms + self.members.rebalance_timeout_ms
            )
            return []
        self.deadlines.cancel(GroupDeadline(self.group_id, "join"))
        self._gathering_ms = None
        self.generation += 1
        if not joined:
            self.protocol = self.leader = None
            self.is_downgraded = False
            self._move(GroupState.EMPTY, now.date_ms)
            return [self.store(now)]
        if self.leader is None or self.members[self.leader].joining is None:
            self.leader = joined[0].member_id
        self.protocol = self.members.vote()
        self._move(GroupState.COMPLETING_REBALANCE, now.date_ms)
        self.unsynced = set(self.members)
        self.deadlines.set(GroupDeadline(self.group_id, "sync"), now.monotonic_ms + self.members.rebalance_timeout_ms)
        effects: list[Effect] = []
        for member in self.members.values():
            if member.joining is not None:
                effects.append(_joined(self, member.joining, member))
            member.joining, member.is_new = None, False
            self.touch(member, now)
        return effects

    def _move(self, state: GroupState, date_ms: int) -> None:
        assert (self.state, state) in ALLOWED, (self.state, state)
        self.state, self.state_since_ms = state, date_ms

    # ---- the assignment

    def sync(self, caller: Caller, request: SyncGroupRequest, now: Moment) -> list[Effect]:
        """Answer a SyncGroup: when the leader's assignment has arrived and is stored, or immediately."""
        code = self.members.fault(request.member_id, request.group_instance_id)
        if not code and request.generation_id != self.generation:
            code = ErrorCode.ILLEGAL_GENERATION
        if not code and (
            request.protocol_type not in (None, self.protocol_type)
            or request.protocol_name not in (None, self.protocol)
        ):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        reply = code or SYNC_REPLY[self.state]
        if reply:
            return [Reply(caller, SyncGroupResponse(error_code=reply))]
        member = self.members[request.member_id]
        self.unsynced.discard(member.member_id)
        if not self.unsynced:
            self.deadlines.cancel(GroupDeadline(self.group_id, "sync"))
        if self.state is GroupState.STABLE:
            self.touch(member, now)
            return [_assigned(self, caller, member)]
        before = _fenced_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.syncing = caller
        if member.member_id == self.leader:
            assignments = {each.member_id: each.assignment for each in request.assignments}
            return [*before, *self._store_assignment(assignments, now)]
        return before

    def _store_assignment(self, assignments: dict[str, bytes], now: Moment) -> list[Effect]:
        assert self.leader is not None
        then = AssignMembers(self.group_id, self.generation, self.leader, tuple(assignments.items()))
        size = sum(map(len, assignments.values()))
        before = sum(len(each.assignment) for each in self.members.values())
        if self.usage.used + size - before > self.config.metadata_max_bytes:
            return self.assignment_stored(then, ErrorCode.RECORD_LIST_TOO_LARGE, now)
        self.usage.used += size  # until they are stored
        return [self.store(now, then, assignments)]

    def assignment_stored(self, then: AssignMembers, code: ErrorCode, now: Moment) -> list[Effect]:
        """Give the members their assignments, unless the group has changed meanwhile."""
        is_current = (self.generation, self.leader) == (then.generation, then.leader)
        if self.state is not GroupState.COMPLETING_REBALANCE or not is_current:
            return []
        if code:
            effects = self._answer_syncs(GROUP_NOT_STORED.get(code, code), now)
            return effects + self._prepare(now) + self._complete_if_all_joined(now)
        assignments = dict(then.assignments)
        for member in self.members.values():
            self.members.assign(member, assignments.get(member.member_id, b""))
        self.is_downgraded = False
        self._move(GroupState.STABLE, now.date_ms)
        return self._answer_syncs(ErrorCode.NONE, now)

    def _answer_syncs(self, code: ErrorCode, now: Moment) -> list[Effect]:
        """Answer all pending SyncGroups; with a `code`, there are no assignments."""
        effects: list[Effect] = []
        for member in self.members.values():
            if code:
                self.members.assign(member, b"")
            if member.syncing is not None:
                failed = Reply(member.syncing, SyncGroupResponse(error_code=code))
                effects.append(failed if code else _assigned(self, member.syncing, member))
                member.syncing = None
                self.touch(member, now)
        return effects

    def syncs_due(self, now: Moment) -> list[Effect]:
        """Continue without the members that joined this generation and sent no SyncGroup."""
        effects: list[Effect] = []
        for member_id in list(self.unsynced):
            effects += self._drop(self.members[member_id])
        return effects + self._prepare(now) + self._complete_if_all_joined(now)

    # ---- staying and leaving

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Moment) -> ErrorCode:
        """Answer a heartbeat. It extends the session even of a member that has not rejoined yet."""
        code = self.members.fault(member_id, instance_id)
        if code or generation != self.generation:
            return code or ErrorCode.ILLEGAL_GENERATION
        self.touch(self.members[member_id], now)
        return HEARTBEAT_REPLY[self.state]

    def touch(self, member: Member, now: Moment) -> None:
        """Restart a member's session timeout."""
        self.deadlines.set(
            GroupDeadline(self.group_id, "session", member.member_id), now.monotonic_ms + member.session_timeout_ms
        )

    def leave(self, member_id: str, instance_id: str | None, now: Moment) -> tuple[ErrorCode, list[Effect]]:
        """Remove a member by its member id or, if that is empty, by its instance id."""
        if not member_id:
            member_id = self.members.static.get(instance_id or "", "")
            code = ErrorCode.NONE if member_id else ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in self.pending:
            return ErrorCode.NONE, self.pending_due(member_id, now)
        else:
            code = self.members.fault(member_id, instance_id)
        return (code, []) if code else (code, self.remove(member_id, now))

    def session_due(self, member_id: str, now: Moment) -> list[Effect]:
        """Remove a member whose session has expired, unless it is waiting for our response."""
        member = self.members.get(member_id)
        if member is None:
            return []
        waits = member.joining is not None or member.syncing is not None
        return [] if waits and not member.is_new else self.remove(member_id, now)

    def pending_due(self, member_id: str, now: Moment) -> list[Effect]:
        """Remove a pending member id that was not used."""
        self._forget_pending(member_id)
        return self._complete_if_all_joined(now)

    def _forget_pending(self, member_id: str) -> None:
        if member_id in self.pending:
            self.pending.remove(member_id)
            self.usage.used -= weight((), member_id)
        self.deadlines.cancel(GroupDeadline(self.group_id, "pending", member_id))

    def remove(self, member_id: str, now: Moment) -> list[Effect]:
        """Remove a member, and begin a rebalance."""
        effects = self._drop(self.members[member_id])
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            effects += self._prepare(now)
        return effects + self._complete_if_all_joined(now)

    def _drop(self, member: Member) -> list[Effect]:
        effects = _fenced_join(member, ErrorCode.UNKNOWN_MEMBER_ID) + _fenced_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.members.drop(member)
        self.unsynced.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        self.deadlines.cancel(GroupDeadline(self.group_id, "session", member.member_id))
        return effects

    def dismiss(self, code: ErrorCode) -> list[Effect]:
        """Answer all waiting requests, because this broker no longer coordinates the group."""
        effects: list[Effect] = []
        for member in self.members.values():
            effects += _fenced_join(member, code) + _fenced_sync(member, code)
            self.deadlines.cancel(GroupDeadline(self.group_id, "session", member.member_id))
        for member_id in list(self.pending):
            self._forget_pending(member_id)
        for what in ("join", "sync"):
            self.deadlines.cancel(GroupDeadline(self.group_id, what))
        return effects

    def bury(self, code: ErrorCode) -> list[Effect]:
        """End the group, so that pending appends have no effect on it; answer all waiting requests."""
        effects = self.dismiss(code)
        self.usage.used -= sum(each.weight for each in self.members.values())
        self._move(GroupState.DEAD, self.state_since_ms)
        return effects

    def become_simple(self) -> None:
        """Keep the offsets alone, because a consumer group takes the place of this group, which has no members."""
        assert self.state is GroupState.EMPTY, "a group with members is converted"
        for member_id in list(self.pending):  # a consumer group takes any id
            self._forget_pending(member_id)
        self.generation, self.state_since_ms = 0, -1
        self.protocol_type = self.protocol = self.leader = None

    # ---- stored records

    def store(
        self,
        now: Moment,
        then: AfterStore | None = None,
        assignments: dict[str, bytes] | None = None,
    ) -> Store[AfterStore | None]:
        """Return the effect that stores the group, with the given or the current assignments."""
        key, keeps = GroupMetadataKey(self.group_id), self.members or self.config.stored.keeps_empty_groups
        value = stored_value(self, now.date_ms, assignments) if keeps else None
        return Store(self.partition, self.term, ((key.to_bytes(), value),), then)


def stored_value(group: Group, date_ms: int, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
    """Return the stored value of a group, with the given or the current assignments."""
    members = group.members.stored(group.protocol or "", assignments)
    since = group.state_since_ms if group.state_since_ms >= 0 else date_ms
    version = group.config.stored.group_value
    return GroupMetadataValue(
        version, group.protocol_type or "", group.generation, group.protocol, group.leader, since, members
    )


def _is_supported(group: Group, request: JoinGroupRequest) -> bool:
    protocols = [each.name for each in request.protocols]
    if not group.members:
        return bool(request.protocol_type and protocols)
    return request.protocol_type == group.protocol_type and group.members.support(protocols)


def _joined(group: Group, caller: Caller, member: Member) -> Reply:
    """Answer a member of the current generation; the leader also gets all members."""
    assert group.protocol is not None
    response = JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member.member_id,
        members=group.members.for_leader(group.protocol) if member.member_id == group.leader else [],
    )
    return Reply(caller, response, sum(len(each.metadata) for each in response.members) // STEP_BYTES)


def replacement_stored(group: Group, then: AnswerReplacement, code: ErrorCode) -> Reply:
    """Answer the JoinGroup of an instance that returned while the group was stable; it is a member unless `code`."""
    member = group.members.get(then.member_id)
    if code or member is None:
        return refused_join(then.caller, "", code or ErrorCode.UNKNOWN_MEMBER_ID)
    reply = _joined(group, then.caller, member)
    response = reply.message
    assert isinstance(response, JoinGroupResponse)
    if then.caller.version >= SKIPS_ASSIGNMENT:
        response.skip_assignment = group.leader == then.member_id
    else:  # with the old leader's id it does not consider itself the leader, and assigns nothing
        response.leader, response.members = then.told_leader, []
    return reply


def _assigned(group: Group, caller: Caller, member: Member) -> Reply:
    response = SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
    return Reply(caller, response)


def refused_join(caller: Caller, member_id: str, code: ErrorCode) -> Reply:
    """Return the response to a refused JoinGroup."""
    none = None if caller.version >= NULLABLE_PROTOCOL else ""
    return Reply(caller, JoinGroupResponse(error_code=code, protocol_name=none, member_id=member_id))


def _fenced_join(member: Member, code: ErrorCode) -> list[Effect]:
    if member.joining is None:
        return []
    caller, member.joining = member.joining, None
    return [refused_join(caller, "" if code is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id, code)]


def _fenced_sync(member: Member, code: ErrorCode = ErrorCode.FENCED_INSTANCE_ID) -> list[Effect]:
    if member.syncing is None:
        return []
    caller, member.syncing = member.syncing, None
    return [Reply(caller, SyncGroupResponse(error_code=code))]
