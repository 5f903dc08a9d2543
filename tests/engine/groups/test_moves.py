"""Groups move with their partitions: to another coordinator and back, while members wait and records are stored."""

from __future__ import annotations

import pytest

from engine.groups.world import World
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.rules import GroupState
from magicbyte.engine.groups.config import GroupConfig
from magicbyte.engine.groups.loading import LoadedPartition
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest

PLACE = ("t", 0)


@pytest.fixture
def world() -> World:
    return World(GroupConfig(initial_rebalance_delay_ms=0, offsets_partitions=2))


def move_away(world: World) -> int:
    """End the term of the partition of group `g`; return the partition."""
    partition = world.group().partition
    world.perform(world.coordinator.resign(partition))
    return partition


def other_broker(world: World) -> World:
    """Return another broker, with the same log, that leads all partitions now."""
    other = World(world.config)
    other.log, other.sets = world.log, world.sets
    other.start()
    return other


def test_a_group_continues_at_the_next_coordinator_and_then_at_the_first_one(world: World) -> None:
    generation, (leader, follower) = world.stable(2)
    world.commit(7, leader, generation)
    partition = move_away(world)
    assert world.beat(leader, generation) == ErrorCode.NOT_COORDINATOR
    other = other_broker(world)
    assert other.beat(leader, generation) == other.beat(follower, generation) == ErrorCode.NONE
    assert other.committed(PLACE) == [(7, 0)]
    other.commit(8, leader, generation)
    other.leave((follower, None))
    assert other.join(leader, version=3).answer.generation_id == generation + 1
    other.sync(leader, generation + 1, {leader: b"all"})
    world.load(partition)
    assert world.committed(PLACE) == [(8, 0)]
    assert world.sync(leader, generation + 1).answer.assignment == b"all"
    assert world.beat(follower, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_wait_for_a_join_or_an_assignment_are_answered_at_a_move_and_no_timer_remains(
    world: World,
) -> None:
    first = world.join(version=3).answer
    joining = world.join(version=3)  # the first one has to join again
    syncing = World(world.config)
    members = [syncing.join(version=3).answer.member_id]
    second = syncing.join(version=3)
    syncing.join(members[0], version=3)
    waiting = syncing.sync(second.answer.member_id, second.answer.generation_id, version=2)
    for each, asked in ((world, joining), (syncing, waiting)):
        assert asked.answer is None
        move_away(each)
        assert asked.answer.error_code == ErrorCode.NOT_COORDINATOR
        assert each.coordinator.groups == {}
        assert each.coordinator.usage.used == 0
        assert each.coordinator.deadlines.pop(each.monotonic_ms + (1 << 40)) is None
    assert world.join(first.member_id, version=3).answer.error_code == ErrorCode.NOT_COORDINATOR


def test_groups_of_other_partitions_stay(world: World) -> None:
    generation, (member,) = world.stable(1)
    other = next(
        name for name in "abc" if world.commit(3, group=name) and world.group(name).partition != world.group().partition
    )
    move_away(world)
    assert set(world.coordinator.groups) == {other}
    assert world.committed(PLACE, group=other) == [(3, 0)]
    assert world.beat(member, generation) == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("again", [False, True], ids=["given up", "and taken on again"])
def test_a_load_that_was_overtaken_installs_nothing(world: World, again: bool) -> None:
    world.commit(7)
    partition = move_away(world)
    coordinator = world.coordinator
    term, old = coordinator.begin_loading(partition, 0), world.logged(partition)
    world.perform(coordinator.resign(partition))
    later = coordinator.begin_loading(partition, 0) if again else None
    for outcome in (
        lambda: coordinator.loaded(partition, term, old, world.now),
        lambda: coordinator.load_failed(partition, term),
    ):
        outcome()
        assert coordinator.groups == {}
        assert not coordinator.terms.is_active(partition)
    if later is None:
        assert partition not in coordinator.terms
    else:
        assert coordinator.terms.is_loading(partition, later)
        coordinator.loaded(partition, later, old, world.now)
        assert world.committed(PLACE) == [(7, 0)]


def test_a_later_election_overtakes_a_load(world: World) -> None:
    world.commit(7)
    partition = move_away(world)
    old = world.logged(partition)
    first = world.coordinator.begin_loading(partition, 0)
    second = world.coordinator.begin_loading(partition, 0)
    world.coordinator.loaded(partition, first, old, world.now)
    assert not world.coordinator.terms.is_active(partition)
    world.coordinator.loaded(partition, second, LoadedPartition(), world.now)
    assert world.committed(PLACE) == [(-1, 0)]


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_commit_that_is_being_stored_at_a_move_is_refused_and_overwrites_no_later_one(
    world: World, comes_back: bool
) -> None:
    """It may have been appended: then the next leader finds it in the log."""
    world.holds = True
    committing = world.commit(7)
    partition = move_away(world)
    later = None
    if comes_back:
        world.load(partition, LoadedPartition())
        later = world.commit(9)
    assert [world.coordinator.terms.is_present(store.partition, store.term) for store in world.held] == [False, True][
        : len(world.held)
    ]
    world.holds = False
    world.release()
    assert committing.answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    if later is None:
        assert world.coordinator.groups == {}
    else:
        assert later.answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert world.committed(PLACE) == [(9, 0)]


@pytest.mark.parametrize("comes_back", [False, True])
def test_an_assignment_that_is_being_stored_at_a_move_reaches_no_member(world: World, comes_back: bool) -> None:
    joined = world.join(version=3).answer
    world.holds = True
    syncing = world.sync(joined.member_id, joined.generation_id, {joined.member_id: b"all"}, version=2)
    partition = move_away(world)
    assert syncing.answer.error_code == ErrorCode.NOT_COORDINATOR
    if comes_back:
        world.load(partition, LoadedPartition())
        again = world.join(version=3).answer
        assert again.generation_id == joined.generation_id  # of another group of the same name
    world.holds = False
    world.release()
    if comes_back:
        assert world.group().state is GroupState.COMPLETING_REBALANCE
        assert world.sync(again.member_id, again.generation_id, {again.member_id: b"some"}).answer.assignment == b"some"
    else:
        assert (world.coordinator.groups, world.coordinator.usage.used) == ({}, 0)


def test_an_instance_that_returned_at_a_move_gets_not_coordinator(world: World) -> None:
    joined = world.join(version=5, instance="i").answer
    world.sync(joined.member_id, joined.generation_id, {joined.member_id: b"all"}, group_instance_id="i")
    world.holds = True
    replacing = world.join(version=5, instance="i")
    assert replacing.answer is None
    move_away(world)
    world.holds = False
    world.release()
    assert replacing.answer.error_code == ErrorCode.NOT_COORDINATOR


def test_a_deletion_that_is_being_stored_at_a_move_is_answered(world: World) -> None:
    for name in "gh":
        world.commit(7, group=name)
    assert world.group("g").partition != world.group("h").partition
    world.holds = True
    deleting = world.ask(DeleteGroupsRequest(groups_names=["g", "h"]))
    world.perform(world.coordinator.resign(partition_for("g", 2)))
    world.holds = False
    world.release()
    assert [each.error_code for each in deleting.answer.results] == [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]


def test_a_group_whose_partition_is_led_elsewhere_is_not_taken_from_the_log_of_another(world: World) -> None:
    """So it is when their number was changed."""
    world.commit(7)
    world.commit(5, group="h")
    found = LoadedPartition()
    for partition in range(2):
        logged = world.logged(partition)
        found.offsets.update(logged.offsets)
    ours, theirs = world.group("g").partition, world.group("h").partition
    assert ours != theirs
    for partition in range(2):
        world.perform(world.coordinator.resign(partition))
    world.load(ours, found)
    assert set(world.coordinator.groups) == {"g"}
