"""Offsets of transactions: pending until the marker, then committed or gone, and what readers get meanwhile.

Numbers are those of the checks in spec/transactions.md.
"""

from __future__ import annotations

import pytest

from engine.groups.world import Asked, World
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.config import GroupConfig
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest
from magicbyte.engine.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

A, B = ("t", 0), ("t", 1)
UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
CONFIG = GroupConfig(initial_rebalance_delay_ms=0, offsets_partitions=2)


@pytest.fixture
def world() -> World:
    return World(CONFIG)


def code(asked: Asked) -> int:
    found: int = asked.answer.topics[0].partitions[0].error_code
    return found


def test_64_pending_offsets_are_unstable_and_the_old_ones_count_until_the_commit(world: World) -> None:
    world.commit(5)
    assert code(world.commit_in_transaction(7)) == 0
    assert world.committed(A, stable=True) == [UNSTABLE]
    assert world.committed(A, B) == [(5, 0), (-1, 0)]
    assert world.end().answer is ErrorCode.NONE
    assert world.committed(A, stable=True) == [(7, 0)]


def test_offsets_that_are_being_appended_are_unstable_already(world: World) -> None:
    world.holds = True
    asked = world.commit_in_transaction(7)
    assert world.committed(A, stable=True) == [UNSTABLE]
    world.append_code = ErrorCode.NOT_ENOUGH_REPLICAS
    world.release()
    assert code(asked) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.committed(A, stable=True) == [(-1, 0)]
    world.append_code = ErrorCode.NONE
    world.end()
    world.release()
    assert world.committed(A) == [(-1, 0)]


def test_65_a_later_commit_without_a_transaction_stays(world: World) -> None:
    world.commit_in_transaction(7)
    world.commit(8)
    assert world.committed(A, stable=True) == [UNSTABLE]
    world.end()
    assert world.committed(A, stable=True) == [(8, 0)]


def test_66_of_two_commits_of_a_transaction_the_second_counts(world: World) -> None:
    world.commit_in_transaction(7)
    world.commit_in_transaction(6)
    world.end()
    assert world.committed(A) == [(6, 0)]


def test_67_after_an_abort_the_old_offset_counts(world: World) -> None:
    world.commit(5)
    world.commit_in_transaction(7)
    world.end(commits=False)
    assert world.committed(A, stable=True) == [(5, 0)]


@pytest.mark.parametrize(("first", "then", "left"), [(1, 2, 20), (2, 1, 20)])
def test_of_two_producers_the_later_write_counts_in_whatever_order_they_end(
    first: int, then: int, left: int, world: World
) -> None:
    world.commit_in_transaction(10, 1)
    world.commit_in_transaction(20, 2)
    world.end(first)
    assert world.committed(A, stable=True) == [UNSTABLE]
    world.end(then)
    assert world.committed(A, stable=True) == [(left, 0)]


@pytest.mark.parametrize("later", [None, 8])
def test_68_a_new_coordinator_knows_what_is_pending_and_what_it_is_behind(later: int | None, world: World) -> None:
    world.commit_in_transaction(7)
    if later is not None:
        world.commit(later)
    world.start()
    assert world.committed(A, stable=True) == [UNSTABLE]
    world.end()
    expected = [(7 if later is None else later, 0)]
    assert world.committed(A, stable=True) == expected
    world.start()
    assert world.committed(A, stable=True) == expected


def test_a_marker_ends_the_offsets_of_all_groups_of_its_partition_and_of_no_other(world: World) -> None:
    here, there = ["b", "d"], ["a", "c"]
    for group in here + there:
        world.commit_in_transaction(7, group=group)
    world.end(group="b")
    assert [world.committed(A, group=group) for group in here] == [[(7, 0)]] * 2
    assert [world.committed(A, group=group, stable=True) for group in there] == [[UNSTABLE]] * 2


def test_a_marker_is_refused_by_who_does_not_know_the_groups(world: World) -> None:
    for partition in range(CONFIG.offsets_partitions):
        world.coordinator.resign(partition)
    world.coordinator.begin_loading(1, 0)
    assert [world.end(group=group).answer for group in "bc"] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_62_63_a_consumer_that_says_who_it_is_has_to_be_a_member_of_the_generation(world: World) -> None:
    generation, (member, _) = world.stable()

    def commit(member_id: str, of: int, instance: str | None = None) -> int:
        return code(
            world.commit_in_transaction(
                1, generation_id_or_member_epoch=of, member_id=member_id, group_instance_id=instance
            )
        )

    assert commit("", -1) == commit(member, generation) == ErrorCode.NONE
    assert commit(member, generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert commit("m", generation) == commit("", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(world.commit_in_transaction(1, group="new", generation_id_or_member_epoch=5, member_id="m")) == 25
    world.join(version=3)
    assert commit(member, generation) == ErrorCode.NONE


def test_a_consumer_gets_the_reason_why_offsets_are_refused(world: World) -> None:
    assert code(world.commit_in_transaction(1, group="")) == ErrorCode.INVALID_GROUP_ID
    assert code(world.commit_in_transaction(1, place=("t", 4))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(world.commit_in_transaction(1, metadata="m" * 5000)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    for partition in range(CONFIG.offsets_partitions):
        world.coordinator.resign(partition)
    assert code(world.commit_in_transaction(1)) == ErrorCode.NOT_COORDINATOR
    for partition in range(CONFIG.offsets_partitions):
        world.coordinator.begin_loading(partition, 0)
    found = [code(world.commit_in_transaction(1, version=version)) for version in (1, 2)]
    assert found == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_pending_offsets_keep_a_group_and_are_deleted_with_their_partition(world: World) -> None:
    world.commit_in_transaction(7)
    world.perform(world.coordinator.expire(world.date_ms + 1))
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    assert "g" in world.coordinator.groups
    world.ask(OffsetDeleteRequest(group_id="g", topics=topics))
    world.end()
    assert world.committed(A, stable=True) == [(-1, 0)]
    world.commit_in_transaction(7)
    world.ask(DeleteGroupsRequest(groups_names=["g"]))
    world.end()
    assert world.committed(A, stable=True) == [(-1, 0)]
    world.start()
    assert world.committed(A, stable=True) == [(-1, 0)]
