"""The wall clock of a machine is turned, by NTP or by hand: whatever a group waits for comes when it is due."""

from __future__ import annotations

import pytest

from engine.groups.world import START, World
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.rules import GroupState
from magicbyte.engine.groups.config import GroupConfig

DAY_MS = 86_400_000
TURNS = {"back 20 s": -20_000, "back an hour": -3_600_000, "on a day": DAY_MS, "to 1970": -START}


@pytest.fixture(params=TURNS.values(), ids=TURNS)
def turned_ms(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def test_a_rebalance_ends_when_its_timeout_has_passed(turned_ms: int) -> None:
    world = World()
    _, (first, second) = world.stable(2)
    asked = world.join(first, version=3, rebalance=60_000)
    world.date_ms += turned_ms
    for _ in range(11):  # the other one lives, and does not join
        world.later(5_000)
        world.beat(second, 2)
    world.later(4_999)
    assert asked.answer is None
    world.later(1)
    assert asked.answer.error_code == ErrorCode.NONE
    assert list(world.group().members) == [first]


def test_the_first_rebalance_waits_its_delay_and_no_longer(turned_ms: int) -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=3_000))
    asked = world.join(version=3)
    world.date_ms += turned_ms
    world.later(2_999)
    assert asked.answer is None
    world.later(1)
    assert asked.answer.error_code == ErrorCode.NONE


def test_a_member_that_falls_silent_goes_after_its_session(turned_ms: int) -> None:
    world = World()
    world.stable(1, session=10_000)
    world.date_ms += turned_ms
    world.later(9_999)
    assert len(world.group().members) == 1
    world.later(1)
    assert world.group().state is GroupState.EMPTY


def test_members_that_keep_their_heartbeats_stay(turned_ms: int) -> None:
    world = World()
    generation, members = world.stable(3, session=10_000)
    for at in range(20):
        world.date_ms += (turned_ms, -turned_ms)[at % 2]
        assert {world.beat(each, generation) for each in members} == {ErrorCode.NONE}
        world.later(9_999)
    assert sorted(world.group().members) == sorted(members)


def test_an_assignment_that_does_not_come_is_given_up_after_the_rebalance_timeout(turned_ms: int) -> None:
    world = World()
    first = world.join(version=3, rebalance=9_000).answer
    world.date_ms += turned_ms
    world.later(8_999)
    assert world.group().state is GroupState.COMPLETING_REBALANCE
    world.later(1)
    assert world.group().state is GroupState.EMPTY
    assert world.beat(first.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unused_member_id_is_forgotten_after_its_session(turned_ms: int) -> None:
    world = World()
    world.join(session=10_000)
    world.date_ms += turned_ms
    world.later(9_999)
    assert len(world.group().pending) == 1
    world.later(1)
    assert not world.group().pending


def test_members_that_were_loaded_have_a_whole_session_to_be_heard_of(turned_ms: int) -> None:
    world = World()
    generation, (member,) = world.stable(1, session=10_000)
    world.date_ms += turned_ms
    world.start()
    world.later(9_999)
    assert world.beat(member, generation) == ErrorCode.NONE


def test_stored_records_have_dates_and_deadlines_have_none(turned_ms: int) -> None:
    world = World()
    generation, (member,) = world.stable(1)
    world.date_ms += turned_ms
    world.commit(7, member, generation, version=4, retention=5_000)
    (committed,) = world.group().offsets.values()
    assert (committed.commit_timestamp, committed.expire_timestamp) == (START + turned_ms, START + turned_ms + 5_000)
    world.leave((member, None))
    assert world.group().state_since_ms == START + turned_ms
    assert world.coordinator.next_ms() is None or world.coordinator.next_ms() < START // 2
