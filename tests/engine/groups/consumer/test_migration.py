"""Groups with members of both protocols, case by case; `tests/interop/migration_steps.py` has what brokers answer."""

from __future__ import annotations

from typing import Any

import pytest

from engine.groups.consumer.test_heartbeat import beat, code, given, owned, request
from engine.groups.world import World
from magicbyte.engine.coordination.stored import write_stored
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.rules import GroupState
from magicbyte.engine.groups.config import GroupConfig
from magicbyte.engine.groups.consumer.config import ConsumerConfig, MigrationPolicy
from magicbyte.engine.groups.consumer.members import ClassicMember
from magicbyte.engine.groups.consumer_protocol import Assignment
from magicbyte.engine.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from magicbyte.engine.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from magicbyte.engine.protocol.messages.consumer_protocol_subscription import TopicPartition as Owned
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

UPGRADING, DOWNGRADING = ("upgrade", "bidirectional"), ("downgrade", "bidirectional")


def subscription(*partitions: int, version: int = 3) -> bytes:
    places = [Owned(topic="t", partitions=partitions)] if partitions else []
    return write_stored(ConsumerProtocolSubscription(topics=["t"], owned_partitions=places), version)


def assignment(*partitions: int) -> bytes:
    rows = [TopicPartition(topic="t", partitions=partitions)]
    return write_stored(ConsumerProtocolAssignment(assigned_partitions=rows, user_data=None), 3)


def world_with(**settings: Any) -> World:
    config = ConsumerConfig(**settings)
    return World(GroupConfig(initial_rebalance_delay_ms=0, offsets_partitions=1, consumer=config))


def join(world: World, member: str = "", *owns: int, version: int = 9, **fields: Any) -> Any:
    return world.join(member, version, protocols={"range": subscription(*owns)}, **fields).answer


def new(world: World, **fields: Any) -> Any:
    """Join as a new member, with the id that the broker gives."""
    first = join(world, **fields)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return join(world, first.member_id, **fields)


def synced(world: World, member: str, generation: int) -> tuple[int, ...]:
    answer = world.sync(member, generation).answer
    assert not answer.error_code, answer
    parsed = Assignment.parse(bytes(answer.assignment))
    return tuple(number for topic in parsed.assigned_partitions for number in topic.partitions)


def classic_group(world: World, **fields: Any) -> str:
    """Make a classic group of one member, which has all partitions; return its id."""
    joined = new(world, **fields)
    world.sync(joined.member_id, joined.generation_id, {joined.member_id: assignment(0, 1, 2, 3)})
    member: str = joined.member_id
    return member


def shared_group(world: World) -> str:
    """Make a group that `m1` shares with a classic member; return the id of that one, in generation 2."""
    member = classic_group(world)
    assert beat(world, "m1").member_epoch == 2
    assert world.beat(member, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join(world, member, 0, 1, 2, 3).generation_id == 1
    assert synced(world, member, 1) == (0, 1)
    assert join(world, member, 0, 1).generation_id == 2
    assert synced(world, member, 2) == (0, 1)
    assert given(beat(world, "m1", 2)) == {"t": (2, 3)}
    return member


# ---- policies


@pytest.mark.parametrize("policy", [each.value for each in MigrationPolicy])
def test_a_classic_group_is_converted_if_the_policy_has_upgrades(policy: str) -> None:
    world = world_with(migration=MigrationPolicy(policy))
    classic_group(world)
    answer = beat(world)
    assert code(answer) is (ErrorCode.NONE if policy in UPGRADING else ErrorCode.GROUP_ID_NOT_FOUND)
    assert ("g" in world.coordinator.consumers) is (policy in UPGRADING)


@pytest.mark.parametrize("policy", [each.value for each in MigrationPolicy])
def test_a_classic_member_joins_a_consumer_group_unless_the_policy_is_disabled(policy: str) -> None:
    world = world_with(migration=MigrationPolicy(policy))
    beat(world)
    first = join(world)
    if policy == "disabled":
        assert code(first) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return
    member = first.member_id
    assert join(world, member).generation_id == 2
    assert synced(world, member, 2) == ()
    world.later(1000)
    beat(world, "m1", 2)
    beat(world, "m1", 2, topic_partitions=owned(t=(0, 1)))
    assert world.beat(member, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert beat(world, "m1", -1).member_epoch == -1
    assert ("g" in world.coordinator.consumers) is (policy not in DOWNGRADING)


def test_a_group_of_more_members_than_permitted_is_not_converted_back() -> None:
    world = world_with()
    world.config = GroupConfig(initial_rebalance_delay_ms=0, offsets_partitions=1, max_size=1)
    world.start()
    beat(world)
    new(world)
    new(world)
    beat(world, "m1", -1)
    assert len(world.coordinator.consumers["g"].subscribers) == 2


# ---- conversions


def test_an_upgrade_is_stored_at_once_and_loaded_as_it_was() -> None:
    world = world_with()
    member = classic_group(world)
    beat(world)
    before = _state(world)
    world.load(0)
    assert _state(world) == before
    after = world.coordinator.consumers["g"]
    assert after.subscribers[member].classic == ClassicMember(10_000, (("range", subscription()),))
    assert not world.coordinator.groups, "the classic group has a tombstone"


def test_a_downgrade_is_loaded_as_it_was() -> None:
    world = world_with()
    member = shared_group(world)
    beat(world, "m1", -1)
    assert world.group().state is GroupState.PREPARING_REBALANCE
    world.load(0)
    assert not world.coordinator.consumers
    group = world.group()
    assert (group.state, group.generation, set(group.members)) == (GroupState.STABLE, 2, {member})
    assert group.members[member].assignment == assignment(0, 1)


def test_a_conversion_that_could_not_be_stored_changes_nothing() -> None:
    world = world_with()
    member = classic_group(world)
    world.append_code = ErrorCode.NOT_ENOUGH_REPLICAS
    assert code(beat(world)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not world.coordinator.consumers
    assert world.beat(member, 1) is ErrorCode.NONE
    world.append_code = ErrorCode.NONE
    assert beat(world).member_epoch == 2
    world.append_code = ErrorCode.NOT_ENOUGH_REPLICAS
    assert code(beat(world, "m1", -1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.beat(member, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(world.coordinator.consumers["g"].subscribers) == {member, "m1"}


def test_requests_of_classic_members_wait_for_the_conversion_of_their_group() -> None:
    world = world_with()
    member = classic_group(world)
    world.holds = True
    joining = world.ask(request("m1"))
    pulse, rejoin = world.ask(_pulse(member, 1)), world.join(member, protocols={"range": subscription(0, 1, 2, 3)})
    world.later(20_000)
    assert (joining.answer, pulse.answer, rejoin.answer) == (None, None, None), "its session lasts until then"
    world.holds = False
    world.release()
    assert joining.answer.member_epoch == 2
    assert pulse.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (rejoin.answer.error_code, rejoin.answer.generation_id) == (0, 1)


def test_waiting_requests_of_each_kind_are_refused_at_the_end_of_the_term() -> None:
    world = world_with()
    member = classic_group(world)
    world.holds = True
    asked = [
        world.ask(request("m1")),
        world.ask(_pulse(member, 1)),
        world.join(member, protocols={"range": subscription()}),
        world.sync(member, 1),
        world.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member)])),
    ]
    world.perform(world.coordinator.resign(0))
    assert [each.answer.error_code for each in asked[1:]] == [ErrorCode.NOT_COORDINATOR] * 4


def test_a_group_whose_assignment_is_being_stored_is_converted_later() -> None:
    world = world_with()
    joined = new(world)
    world.holds = True
    syncing = world.sync(joined.member_id, 1, {joined.member_id: assignment(0, 1, 2, 3)})
    assert code(beat(world)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.holds = False
    world.release()
    assert not syncing.answer.error_code
    assert given(beat(world)) == {}
    assert world.coordinator.consumers["g"].owners.keys() == {
        (topic.id, number) for topic in [world.topics.topics["t"]] for number in range(4)
    }


def test_waiting_joins_and_syncs_of_a_converted_group_are_to_join_again() -> None:
    world = world_with()
    first = classic_group(world)
    second = join(world).member_id
    joining = world.join(second, protocols={"range": subscription()})
    assert joining.answer is None, "it waits for the other one"
    assert beat(world).member_epoch == 2
    assert joining.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.coordinator.consumers["g"].classic == {first, second}


def test_offsets_stay_with_a_group_through_both_conversions() -> None:
    world = world_with()
    member = classic_group(world)
    world.commit(7, member, 1)
    beat(world)
    assert world.committed(("t", 0)) == [(7, 0)]
    beat(world, "m1", -1)
    assert world.committed(("t", 0)) == [(7, 0)]
    world.load(0)
    assert world.committed(("t", 0)) == [(7, 0)]


def test_user_data_of_an_assignment_would_be_lost() -> None:
    world = world_with()
    joined = new(world)
    rows = [TopicPartition(topic="t", partitions=(0,))]
    data = write_stored(ConsumerProtocolAssignment(assigned_partitions=rows, user_data=b"u"), 3)
    world.sync(joined.member_id, 1, {joined.member_id: data})
    assert code(beat(world)) is ErrorCode.GROUP_ID_NOT_FOUND


# ---- times


def test_a_classic_member_has_its_own_session_timeout() -> None:
    world = world_with()
    member = shared_group(world)
    world.later(6_000)
    assert world.beat(member, 2) is ErrorCode.NONE
    world.later(6_000)
    assert world.beat(member, 2) is ErrorCode.NONE
    world.later(10_001)
    assert world.beat(member, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert set(world.coordinator.consumers["g"].subscribers) == {"m1"}


def test_the_last_consumer_member_may_go_by_its_session() -> None:
    world = world_with()
    member = shared_group(world)
    for _ in range(5):
        world.later(9_000)
        world.beat(member, 2)
    assert not world.coordinator.consumers
    assert world.group().state is GroupState.PREPARING_REBALANCE


def test_a_member_that_does_not_sync_or_join_in_time_is_removed() -> None:
    world = world_with(assignment_interval_ms=0)
    beat(world, rebalance_timeout_ms=300_000)
    member = new(world, rebalance=2_000).member_id
    world.later(2_001)
    assert world.beat(member, 3) is ErrorCode.UNKNOWN_MEMBER_ID, "no sync"
    joined = new(world, rebalance=2_000)
    member = joined.member_id
    synced(world, member, joined.generation_id)
    beat(world, "m1", world.coordinator.consumers["g"].progress["m1"].epoch, topic_partitions=[])
    beat(world, "m2")
    assert world.beat(member, joined.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    world.later(2_001)
    assert world.beat(member, joined.generation_id) is ErrorCode.UNKNOWN_MEMBER_ID, "no join"


def test_both_kinds_stay_after_a_failover() -> None:
    world = world_with()
    member = shared_group(world)
    world.load(0)
    assert world.beat(member, 2) is ErrorCode.NONE
    assert given(beat(world, "m1", 2)) is None
    world.later(10_001)
    assert world.beat(member, 2) is ErrorCode.UNKNOWN_MEMBER_ID


# ---- members


def test_a_member_changes_to_the_consumer_protocol_under_its_id() -> None:
    world = world_with()
    member = classic_group(world)
    answer = beat(world, member)
    assert given(answer) == {"t": (0, 1, 2, 3)}
    assert not world.coordinator.consumers["g"].classic
    assert world.beat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_was_removed_gives_up_what_it_owned() -> None:
    world = world_with()
    member = shared_group(world)
    world.later(10_001)
    assert code(join(world, member, 0, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert not join(world, member).error_code, "an id that it was given is enough otherwise"


def test_several_members_leave_in_one_epoch() -> None:
    world = world_with()
    beat(world)
    first, second = new(world).member_id, new(world).member_id
    epoch = world.coordinator.consumers["g"].epoch
    members = [MemberIdentity(member_id=each) for each in (first, "nobody", second)]
    answer = world.answered(LeaveGroupResponse, LeaveGroupRequest(group_id="g", members=members))
    assert [each.error_code for each in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert world.coordinator.consumers["g"].epoch == epoch + 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_of_requests_work_in_a_consumer_group(version: int) -> None:
    world = world_with()
    beat(world)
    joined = join(world, version=version)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 2, "")
    assert not world.sync(joined.member_id, 2, version=version).answer.error_code
    leaving = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    assert not world.answered(LeaveGroupResponse, leaving, version).error_code


def _state(world: World) -> Any:
    group = world.coordinator.consumers["g"]
    return group.epoch, group.target_epoch, dict(group.owners), dict(group.subscribers), dict(group.progress)


def _pulse(member: str, generation: int) -> Any:
    return HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
