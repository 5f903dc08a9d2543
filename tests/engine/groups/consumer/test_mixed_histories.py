"""Random histories of a group with clients of both protocols: it is converted both ways while they read.

Clients of the classic protocol are cooperative: they keep what they own, and report it when they join. At no time do
two members own a partition, and in the end each partition has one owner. Every planted bug is found.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.groups.consumer.test_histories import History as ConsumerHistory
from engine.groups.consumer.test_histories import Member as ConsumerMember
from engine.groups.consumer.test_histories import _all_is_free
from engine.groups.consumer.test_migration import world_with
from engine.groups.world import Asked
from magicbyte.engine.coordination.stored import write_stored
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.rules import GroupState
from magicbyte.engine.groups.consumer import classic_members, heartbeat, migration
from magicbyte.engine.groups.consumer.config import MigrationPolicy
from magicbyte.engine.groups.consumer.group import ConsumerGroup
from magicbyte.engine.groups.consumer_protocol import Assignment, Subscription
from magicbyte.engine.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from magicbyte.engine.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from magicbyte.engine.protocol.messages.consumer_protocol_subscription import TopicPartition as Owned
from magicbyte.engine.protocol.messages.join_group import JoinGroupResponse
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

SEEDS, STEPS, PARTITIONS = 60, 150, 4
LOST = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}


@dataclass
class Classic:
    """A client of the classic protocol, which owns partitions of `t`. `name` is its member id."""

    name: str = ""
    generation: int = -1
    owned: set[int] = field(default_factory=set)
    joining: Asked | None = None
    syncing: Asked | None = None
    has_joined: bool = False
    to_assign: dict[str, bytes] | None = None  # by its SyncGroup, which is sent a while after the answer to JoinGroup

    def loses_all(self) -> None:
        self.owned, self.has_joined, self.generation, self.to_assign = set(), False, -1, None


def data_of(partitions: set[int]) -> bytes:
    rows = [TopicPartition(topic="t", partitions=tuple(sorted(partitions)))] if partitions else []
    return write_stored(ConsumerProtocolAssignment(assigned_partitions=rows, user_data=None), 1)


class History:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.world = world_with(
            assignment_interval_ms=self.draw.choice((0, 1000)), migration=MigrationPolicy.BIDIRECTIONAL
        )
        self.consumers = ConsumerHistory(seed)
        self.consumers.world = self.world
        self.classics: list[Classic] = []
        self.upgrades = self.downgrades = 0

    def run(self) -> None:
        was = False
        for _ in range(STEPS):
            self.step()
            self.check()
            group = self.world.coordinator.consumers.get("g")
            is_mixed = group is not None and bool(group.classic)
            self.upgrades += is_mixed and not was
            self.downgrades += was and "g" not in self.world.coordinator.consumers
            was = is_mixed
        self.settle()

    def step(self) -> None:
        draw, world = self.draw, self.world
        world.append_code = ErrorCode.NOT_ENOUGH_REPLICAS if draw.random() < 0.03 else ErrorCode.NONE
        match draw.randrange(24):
            case 0 | 1 if len(self.consumers.members) < 3:
                self.consumers.made += 1
                self.consumers.members.append(ConsumerMember(f"m{self.consumers.made}", ["t"], None))
                self.consumers.beat(self.consumers.members[-1])
            case 2 | 3 if len(self.classics) < 3:
                self.classics.append(Classic())
            case 4 | 5 if self.consumers.members:
                member = draw.choice(self.consumers.members)
                if not self.consumers.ask(member, -1).error_code:
                    self.consumers.members.remove(member)
            case 6 if self.classics:
                self.leave(draw.choice(self.classics))
            case 7 if self.classics:
                self.classics.remove(draw.choice(self.classics))
            case 8:
                world.later(draw.choice((100, 1_000, 6_000, 50_000)))
            case 9 if not self.is_downgraded:
                world.load(0)
            case pick if pick % 2 and self.classics:
                self.pulse(draw.choice(self.classics))
            case _ if self.consumers.members:
                self.consumers.beat(draw.choice(self.consumers.members), hears=draw.random() < 0.8)

    @property
    def is_downgraded(self) -> bool:
        """Whether a rebalance follows a downgrade, whose record has targets for assignments: a loaded group, too."""
        group = self.world.coordinator.groups.get("g")
        return group is not None and group.is_downgraded

    def leave(self, member: Classic) -> None:
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member.name)])
        answer = self.world.answered(LeaveGroupResponse, request)
        if not answer.error_code and not answer.members[0].error_code:
            self.classics.remove(member)

    # ---- a client of the classic protocol

    def pulse(self, member: Classic) -> None:
        if member.to_assign is not None:
            member.syncing, member.to_assign = self.world.sync(member.name, member.generation, member.to_assign), None
        elif member.joining is None and member.syncing is None and not member.has_joined:
            places = [Owned(topic="t", partitions=tuple(sorted(member.owned)))] if member.owned else []
            metadata = write_stored(ConsumerProtocolSubscription(topics=["t"], owned_partitions=places), 1)
            member.joining = self.world.join(member.name, protocols={"range": metadata}, rebalance=5_000)
        elif member.has_joined:
            self.hear(member, self.world.beat(member.name, member.generation))
        if member.joining is not None and member.joining.answer is not None:
            answer, member.joining = member.joining.answer, None
            self.joined(member, answer)
        if member.syncing is not None and member.syncing.answer is not None:
            answer, member.syncing = member.syncing.answer, None
            self.hear(member, ErrorCode(answer.error_code))
            if not answer.error_code:
                assigned = Assignment.parse(bytes(answer.assignment)).assigned_partitions if answer.assignment else []
                given = {number for topic in assigned for number in topic.partitions}
                member.has_joined = member.owned <= given  # it has revoked the others, and joins again
                member.owned = given

    def hear(self, member: Classic, code: ErrorCode) -> None:
        if code in LOST:
            member.loses_all()
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                member.name = ""
        elif code:
            member.has_joined = False

    def joined(self, member: Classic, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member.name = answer.member_id
        elif answer.error_code:
            self.hear(member, ErrorCode(answer.error_code))
        else:
            member.name, member.generation = answer.member_id, answer.generation_id
            member.to_assign = self.assigned(answer)

    def assigned(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """Return what a leader assigns: each keeps what it owns, the rest goes to those with least."""
        given = dict[str, set[int]]()
        for each in answer.members:
            owned = Subscription.parse(bytes(each.metadata)).owned_partitions
            given[each.member_id] = {number for topic in owned for number in topic.partitions}
        for number in range(PARTITIONS):
            if given and not any(number in own for own in given.values()):
                min(given.values(), key=len).add(number)
        return {member_id: data_of(own) for member_id, own in given.items()}

    # ---- what holds

    def owners(self) -> list[tuple[int, str]]:
        """Return who owns what among members of the group, but for what their clients are about to revoke."""
        coordinator = self.world.coordinator
        consumer, classic = coordinator.consumers.get("g"), coordinator.groups.get("g")
        known = set(() if consumer is None else consumer.subscribers)
        known |= set(() if classic is None else classic.members)
        found = [(number, each.name) for each in self.classics if each.name in known for number in each.owned]
        for member in self.consumers.members:
            if member.name in known:
                found += [(number, member.name) for _, number in member.owned & member.wanted]
        return found

    def check(self) -> None:
        found = self.owners()
        assert len({number for number, _ in found}) == len(found), found

    def settle(self) -> None:
        """Let all follow; then each partition has one owner."""
        self.world.append_code = ErrorCode.NONE
        if not self.classics:
            self.classics.append(Classic())
        for _ in range(60):
            self.world.later(1_000)
            for each in self.classics:
                self.pulse(each)
                self.check()
            for member in self.consumers.members:
                self.consumers.beat(member)
                self.check()
        assert sorted(number for number, _ in self.owners()) == list(range(PARTITIONS))
        group = self.world.coordinator.consumers.get("g")
        assert (group is not None) is bool(self.consumers.members), "it is of the protocol that is needed"
        if group is None:
            assert self.world.group().state is GroupState.STABLE


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_partition_has_one_owner_at_most_and_in_the_end_one(seed: int) -> None:
    History(seed).run()


def test_histories_have_conversions_both_ways() -> None:
    histories = [History(seed) for seed in range(20)]
    for history in histories:
        history.run()
    assert sum(history.upgrades for history in histories) > 10
    assert sum(history.downgrades for history in histories) > 10


# ---- planted bugs


def _without_assignment(_table: object, partitions: object) -> dict[Any, Any]:
    return {}


def _never(*_arguments: object, **_named: object) -> bool:
    return False


def _owns_nothing(_table: object, _partitions: object) -> dict[Any, Any]:
    return {}


BUGS: tuple[tuple[str, Any, str, Callable[..., Any]], ...] = (
    ("a conversion forgets assignments", migration, "partitions_by_id", _without_assignment),
    ("owned partitions of a JoinGroup are not read", classic_members, "partitions_by_id", _owns_nothing),
    ("a consumer group never becomes classic", heartbeat, "becomes_classic", _never),
    ("partitions of others are given", ConsumerGroup, "is_free", _all_is_free),
)


@pytest.mark.parametrize(("name", "owner", "attribute", "bug"), BUGS, ids=[bug[0] for bug in BUGS])
def test_a_planted_bug_is_found(
    name: str, owner: Any, attribute: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, bug)
    with pytest.raises(AssertionError):
        any(History(seed).run() for seed in range(SEEDS))
