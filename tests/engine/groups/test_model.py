"""Members that come, go, fall silent and commit at random, beside what must be true of their group all the time."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from builders import tries
from engine.groups.world import Asked, World
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.rules import GroupState
from magicbyte.engine.groups.classic.usage import weight
from magicbyte.engine.groups.config import GroupConfig

SESSION_MS, REBALANCE_MS = 6_000, 9_000
CONFIGS = [GroupConfig(initial_rebalance_delay_ms=delay, offsets_partitions=3) for delay in (0, 2_000)]
PROTOCOLS = [{"a": b"1", "b": b"1"}, {"b": b"2", "a": b"2"}, {"a": b"3"}]


@dataclass(eq=False)
class Member:
    """A client that keeps to the protocol. `instance` makes it a static member."""

    instance: str | None
    version: int
    protocols: dict[str, bytes] = field(default_factory=lambda: PROTOCOLS[0])
    id: str = ""
    generation: int = -1
    waits_to_join: Asked | None = None
    waits_for_assignment: Asked | None = None
    assignment: bytes | None = None
    gone: bool = False


class Consumers(RuleBasedStateMachine):
    """`told`: by start of the coordinator and generation, who was to assign, and to whom."""

    members = Bundle("members")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(CONFIGS[0])
        self.all: list[Member] = []
        self.starts = 0
        self.told: dict[tuple[int, int], tuple[Member, list[str]]] = {}
        self.committed = -1
        self.last_generation = 0

    # ---- what happens

    @rule(config=st.sampled_from(CONFIGS))
    def the_broker_is_started_again(self, config: GroupConfig) -> None:
        """Appends that it did not get to are lost, and so are the pending answers."""
        self.world.held.clear()
        self.world.config = config
        self.world.start()
        self.starts += 1
        self.last_generation = 0
        for each in self.all:
            each.waits_to_join = each.waits_for_assignment = None

    @rule(target=members, instance=st.sampled_from((None, None, "i", "j")), version=st.integers(0, 9))
    def a_member_joins(self, instance: str | None, version: int) -> object:
        if len([each for each in self.all if not each.gone]) >= 6:
            return multiple()
        for each in self.all:  # of an instance there is one: the one before has crashed
            each.gone = each.gone or (instance is not None and each.instance == instance)
        member = Member(instance, max(version, 5) if instance else version)
        self.all.append(member)
        return member

    @rule(member=members)
    def a_member_continues(self, member: Member) -> None:
        if not member.gone:
            self.advance(member)

    @rule()
    def all_members_continue(self) -> None:
        for each in [each for each in self.all if not each.gone]:
            self.advance(each)

    @rule(member=members, protocols=st.sampled_from(PROTOCOLS))
    def a_member_changes_its_subscription(self, member: Member, protocols: dict[str, bytes]) -> None:
        member.protocols = protocols
        if not member.gone and member.waits_to_join is None:
            self.join(member)

    @rule(member=members)
    def a_member_crashes(self, member: Member) -> None:
        member.gone = True

    @rule(member=members)
    def a_member_leaves(self, member: Member) -> None:
        if not member.gone and member.id and member.waits_to_join is None:
            self.world.leave((member.id, member.instance))
            member.gone = True

    @rule(member=members, offset=st.integers(0, 100))
    def a_member_commits(self, member: Member, offset: int) -> None:
        if member.gone or self.world.holds or self.world.append_code:
            return
        asked = self.world.commit(offset, member.id, member.generation, instance=member.instance)
        if not asked.answer.topics[0].partitions[0].error_code:
            self.committed = offset

    @rule(ms=st.sampled_from((1, 500, 3_000, SESSION_MS, REBALANCE_MS)))
    def time_passes(self, ms: int) -> None:
        self.world.later(ms)

    @rule(holds=st.booleans())
    def appends_take_long(self, holds: bool) -> None:
        self.world.holds = holds
        if not holds:
            self.world.release()

    @rule(code=st.sampled_from((ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS)))
    def appends_fail(self, code: ErrorCode) -> None:
        self.world.append_code = code

    # ---- what a client does

    def join(self, member: Member) -> None:
        member.assignment = None
        member.waits_for_assignment = None
        member.waits_to_join = self.world.join(
            member.id,
            member.version,
            instance=member.instance,
            protocols=member.protocols,
            session=SESSION_MS,
            rebalance=REBALANCE_MS,
        )

    def advance(self, member: Member) -> None:
        if member.waits_to_join is not None:
            self.hear_of_join(member)
        elif member.waits_for_assignment is not None:
            self.hear_of_assignment(member)
        elif member.assignment is None:
            self.join(member)
        else:
            code = self.world.beat(member.id, member.generation, member.instance)
            if code:
                self.fail(member, code)

    def fail(self, member: Member, code: int) -> None:
        """Join again, as what the code says."""
        member.waits_to_join = member.waits_for_assignment = member.assignment = None
        if code == ErrorCode.FENCED_INSTANCE_ID:
            member.gone = True
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            member.id, member.generation = "", -1

    def hear_of_join(self, member: Member) -> None:
        assert member.waits_to_join is not None
        answer = member.waits_to_join.answer
        if answer is None:
            return
        member.waits_to_join = None
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member.id = answer.member_id
            self.join(member)
            return
        if answer.error_code:
            self.fail(member, answer.error_code)
            return
        member.id, member.generation = answer.member_id, answer.generation_id
        given = None
        if answer.members and not answer.skip_assignment:
            assert answer.leader == member.id
            ids = [each.member_id for each in answer.members]
            known = self.told.setdefault((self.starts, member.generation), (member, ids))
            assert known == (member, ids), "one leader, one list of members in a generation"
            given = {each: self.work(each, member.generation) for each in ids}
        member.waits_for_assignment = self.world.sync(
            member.id,
            member.generation,
            given,
            version=min(member.version, 5) if member.version >= 5 else 0,
            group_instance_id=member.instance,
        )

    def hear_of_assignment(self, member: Member) -> None:
        assert member.waits_for_assignment is not None
        answer = member.waits_for_assignment.answer
        if answer is None:
            return
        member.waits_for_assignment = None
        if answer.error_code:
            self.fail(member, answer.error_code)
            return
        member.assignment = answer.assignment
        if member.instance is None:
            assert answer.assignment == self.work(member.id, member.generation), "what the leader gave to it"
        elif answer.assignment:  # its own, or, if it took the place of one before it, that one's
            assert answer.assignment.endswith(self.work("", member.generation))
            others = [each for each in self.all if not each.gone and each is not member]
            held = [each.assignment for each in others if each.generation == member.generation]
            assert answer.assignment not in held

    def work(self, member_id: str, generation: int) -> bytes:
        return f"{member_id} in {generation}".encode()

    # ---- what is always true

    @invariant()
    def generations_go_up(self) -> None:
        group = self.world.coordinator.groups.get("g")
        if group is None:
            self.last_generation = 0
        else:
            assert group.generation >= self.last_generation
            self.last_generation = group.generation

    @invariant()
    def a_group_is_in_order(self) -> None:
        group = self.world.coordinator.groups.get("g")
        if group is None:
            return
        assert bool(group.members) or group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE)
        assert group.leader is None or group.leader in group.members
        instances = {each.instance_id: each.member_id for each in group.members.values() if each.instance_id}
        assert instances == group.members.static
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert group.leader is not None
            assert all(group.protocol in dict(each.protocols) for each in group.members.values())
            assert all(each.joining is None for each in group.members.values())
        if group.state is not GroupState.COMPLETING_REBALANCE:
            assert all(each.syncing is None for each in group.members.values())

    @invariant()
    def what_members_have_sent_is_counted(self) -> None:
        coordinator = self.world.coordinator
        found = sum(each.weight for group in coordinator.groups.values() for each in group.members.values())
        found += sum(weight((), each) for group in coordinator.groups.values() for each in group.pending)
        if not self.world.held:  # else there are assignments that are being stored
            assert coordinator.usage.used == found

    @invariant()
    def offsets_are_those_of_the_last_commit(self) -> None:
        if not self.world.holds and not self.world.append_code:
            assert self.world.committed(("t", 0)) == [(self.committed, 0)]

    def teardown(self) -> None:
        """When nothing more happens, all that are left come to share one generation."""
        self.world.append_code = ErrorCode.NONE
        self.appends_take_long(holds=False)
        for _ in range(60):
            self.all_members_continue()
            self.world.later(500)
        left = [each for each in self.all if not each.gone]
        assert all(each.assignment is not None for each in left)
        assert len({each.generation for each in left}) <= 1
        group = self.world.coordinator.groups.get("g")
        assert {each.id for each in left} == (set(group.members) if group is not None else set())


class TestConsumers(Consumers.TestCase):  # type: ignore[misc,name-defined]
    settings = settings(tries(120), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
