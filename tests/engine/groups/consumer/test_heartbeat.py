"""Heartbeats of consumer groups, case by case: the answers that real brokers of 4.3 gave."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from engine.groups.world import TOPICS, World, topic_id_of
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.config import GroupConfig
from magicbyte.engine.groups.consumer.config import ConsumerConfig
from magicbyte.engine.groups.consumer.group import ConsumerGroupState
from magicbyte.engine.groups.consumer.members import MemberProgress, MemberState
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest

OLD = ConsumerConfig(keeps_assignment_epochs=False, closes_empty=False)


def world_with(**settings: Any) -> World:
    return World(GroupConfig(offsets_partitions=1, consumer=ConsumerConfig(**settings)))


def owned(**partitions: tuple[int, ...]) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id_of(name), partitions=those)
        for name, those in partitions.items()
    ]


def request(member: str = "m1", epoch: int = 0, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat; one that joins subscribes to `t`."""
    joining = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    fields = {**(joining if epoch == 0 else {}), **fields}
    return ConsumerGroupHeartbeatRequest(**{"group_id": "g", "member_id": member, "member_epoch": epoch, **fields})


def beat(world: World, member: str = "m1", epoch: int = 0, **fields: Any) -> Any:
    version = fields.pop("version", 1)
    return world.ask(request(member, epoch, **fields), version).answer


def given(answer: Any) -> dict[str, tuple[int, ...]] | None:
    """Return the assignment in an answer by the names of topics."""
    assert not answer.error_code, answer
    if answer.assignment is None:
        return None
    names = {topic_id_of(name): name for name in TOPICS}
    return {names[each.topic_id]: tuple(each.partitions) for each in answer.assignment.topic_partitions}


def code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def progress(world: World, member: str) -> MemberProgress:
    return world.coordinator.consumers["g"].progress[member]


def state(world: World) -> ConsumerGroupState:
    return world.coordinator.consumers["g"].state


def two_members(world: World) -> None:
    """Bring m1 and m2 to an assignment of two partitions each."""
    assert beat(world, "m1").member_epoch == 2
    world.later(1000)
    assert given(beat(world, "m2")) == {}
    kept = given(beat(world, "m1", 2))
    assert kept == {"t": (0, 1)}
    assert beat(world, "m1", 2, topic_partitions=owned(t=(0, 1))).member_epoch == 3
    assert given(beat(world, "m2", 3)) == {"t": (2, 3)}
    assert state(world) is ConsumerGroupState.STABLE


def test_the_first_member_gets_all_partitions_at_epoch_2() -> None:
    world = world_with()
    answer = beat(world)
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m1", 2, 5000)
    assert given(answer) == {"t": (0, 1, 2, 3)}
    assert state(world) is ConsumerGroupState.STABLE


def test_before_4_3_the_first_epoch_is_1() -> None:
    world = World(GroupConfig(offsets_partitions=1, consumer=OLD))
    assert beat(world).member_epoch == 1
    assert given(beat(world, "m2")) == {}
    assert beat(world, "m1", 1).member_epoch == 1, "it must revoke first"


def test_a_member_without_topics_raises_no_epoch() -> None:
    world = world_with()
    assert beat(world, subscribed_topic_names=[]).member_epoch == 1
    assert beat(world, "m2", subscribed_topic_names=["nope"]).member_epoch == 2
    assert given(beat(world, "m3", subscribed_topic_names=["u", "u"])) == {}, "the interval is not over"


def test_two_members_share_and_one_that_leaves_frees_its_partitions() -> None:
    world = world_with()
    two_members(world)
    world.later(1000)
    left = beat(world, "m1", -1)
    assert (left.member_epoch, left.heartbeat_interval_ms, left.assignment) == (-1, 0, None)
    answer = beat(world, "m2", 3)
    assert (answer.member_epoch, given(answer)) == (4, {"t": (0, 1, 2, 3)})
    assert code(beat(world, "m1", 3)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_partition_is_given_only_when_its_owner_reports_without_it() -> None:
    world = world_with()
    beat(world, "m1")
    world.later(1000)
    beat(world, "m2")
    assert given(beat(world, "m1", 2)) == {"t": (0, 1)}
    assert given(beat(world, "m1", 2)) is None, "it has been given that"
    assert given(beat(world, "m2", 3)) is None
    assert given(beat(world, "m1", 2, topic_partitions=owned(t=(0, 1, 2, 3)))) is None
    assert progress(world, "m1").state is MemberState.UNREVOKED_PARTITIONS
    assert progress(world, "m2").state is MemberState.UNRELEASED_PARTITIONS
    assert beat(world, "m1", 2, topic_partitions=owned(t=(0, 1))).member_epoch == 3
    assert given(beat(world, "m2", 3)) == {"t": (2, 3)}


def test_a_join_within_the_interval_waits_for_the_next_assignment() -> None:
    world = world_with()
    beat(world, "m1")
    answer = beat(world, "m2")
    assert (answer.member_epoch, given(answer)) == (2, {})
    assert state(world) is ConsumerGroupState.ASSIGNING
    world.later(1000)
    assert beat(world, "m2", 2).member_epoch == 3
    assert state(world) is ConsumerGroupState.RECONCILING


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    world = world_with()
    two_members(world)
    before = len(world.log[0])
    assert given(beat(world, "m1", 3)) is None
    assert given(beat(world, "m1", 3, topic_partitions=owned(t=(0, 1)), subscribed_topic_names=["t"])) is None
    full = beat(world, "m1", 3, topic_partitions=[], subscribed_topic_names=["t"], rebalance_timeout_ms=5000)
    assert given(full) == {"t": (0, 1)}
    assert len(world.log[0]) == before


@pytest.mark.parametrize(
    ("epoch", "fields"),
    [
        (0, {"group_id": ""}),
        (0, {"member_id": ""}),
        (0, {"instance_id": ""}),
        (0, {"rack_id": ""}),
        (-3, {}),
        (-2, {}),
        (0, {"topic_partitions": None}),
        (0, {"topic_partitions": owned(t=(0,))}),
        (0, {"rebalance_timeout_ms": -1}),
        (0, {"subscribed_topic_names": None}),
    ],
)
def test_a_request_with_wrong_fields_is_refused_whatever_the_group(epoch: int, fields: dict[str, Any]) -> None:
    world = world_with()
    assert code(beat(world, "m1", epoch, **fields)) is ErrorCode.INVALID_REQUEST
    assert world.coordinator.consumers == {}


def test_version_0_gives_a_member_its_id() -> None:
    world = world_with()
    assert beat(world, "", version=0).member_id == "id0"
    assert code(beat(world, "", 2, version=0)) is ErrorCode.INVALID_REQUEST


def test_epochs_that_are_not_the_members_are_fenced_except_the_one_before() -> None:
    world = world_with()
    two_members(world)
    assert code(beat(world, "m1", 4)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert code(beat(world, "m1", 1)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert code(beat(world, "m1", 2)) is ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it owns"
    assert code(beat(world, "m1", 2, topic_partitions=owned(t=(0, 3)))) is ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(world, "m1", 2, topic_partitions=owned(t=(0,))).member_epoch == 3
    assert beat(world, "m1", 2, topic_partitions=[]).member_epoch == 3


def test_a_group_and_a_member_that_do_not_exist() -> None:
    world = world_with()
    assert code(beat(world, "m1", 3)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(beat(world, "m1", -1)) is ErrorCode.GROUP_ID_NOT_FOUND
    beat(world)
    assert code(beat(world, "m2", 3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(beat(world, "m2", -1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_is_there_may_join_again() -> None:
    world = world_with()
    beat(world)
    again = beat(world)
    assert (again.member_epoch, given(again)) == (2, {"t": (0, 1, 2, 3)})


def test_an_unknown_assignor_is_refused() -> None:
    world = world_with()
    assert code(beat(world, server_assignor="sticky")) is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert code(beat(world, server_assignor="")) is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_group_has_at_most_max_size_members() -> None:
    world = world_with(max_size=1)
    beat(world)
    assert code(beat(world, "m2")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert code(beat(world, "m2", instance_id="i")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not beat(world, "m1", 2).error_code


def test_members_with_too_much_metadata_are_refused() -> None:
    world = World(GroupConfig(offsets_partitions=1, metadata_max_bytes=2000))
    beat(world)
    names = [f"{number:0200}" for number in range(10)]
    assert code(beat(world, "m2", subscribed_topic_names=names)) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_member_without_heartbeats_is_removed_after_the_session_timeout() -> None:
    world = world_with()
    two_members(world)
    world.later(44_000)
    beat(world, "m2", 3)
    world.later(2_000)
    assert list(world.coordinator.consumers["g"].subscribers) == ["m2"]
    assert code(beat(world, "m1", 3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert given(beat(world, "m2", 3)) == {"t": (0, 1, 2, 3)}


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    world = world_with()
    beat(world, "m1")
    world.later(1000)
    beat(world, "m2")
    beat(world, "m1", 2)
    world.later(4_999)
    beat(world, "m1", 2)
    world.later(1)
    assert code(beat(world, "m1", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert given(beat(world, "m2", 3)) == {"t": (0, 1, 2, 3)}


def test_a_removal_that_could_not_be_stored_is_tried_again() -> None:
    world = world_with()
    beat(world)
    world.append_code = ErrorCode.NOT_ENOUGH_REPLICAS
    world.later(46_000)
    assert list(world.coordinator.consumers["g"].subscribers) == ["m1"]
    world.append_code = ErrorCode.NONE
    world.later(1_000)
    assert state(world) is ConsumerGroupState.EMPTY


def test_a_static_member_that_is_away_keeps_its_partitions_and_gets_them_back_with_a_new_id() -> None:
    world = world_with()
    beat(world, "m1", instance_id="i1")
    assert code(beat(world, "m9", instance_id="i1")) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert code(beat(world, "m1", instance_id="i1")) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert beat(world, "m1", -2, instance_id="i1").member_epoch == -2
    assert beat(world, "m1", -2, instance_id="i1").member_epoch == -2
    assert code(beat(world, "m1", 2, instance_id="i1")) is ErrorCode.FENCED_MEMBER_EPOCH
    assert state(world) is ConsumerGroupState.RECONCILING
    back = beat(world, "m9", instance_id="i1")
    assert (back.member_epoch, given(back)) == (2, {"t": (0, 1, 2, 3)})
    assert world.coordinator.consumers["g"].epoch == 2
    assert code(beat(world, "m1", 2, instance_id="i1")) is ErrorCode.FENCED_INSTANCE_ID
    assert code(beat(world, "m1", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(beat(world, "m9", 2, instance_id="i7")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_subscription_of_a_static_member_begins_an_epoch() -> None:
    world = world_with()
    beat(world, "m1", instance_id="i1")
    beat(world, "m1", -2, instance_id="i1")
    world.later(1000)
    back = beat(world, "m9", instance_id="i1", subscribed_topic_names=["u"])
    assert (back.member_epoch, given(back)) == (3, {"u": (0,)})


def test_the_last_member_leaves_an_empty_group() -> None:
    world = world_with()
    beat(world)
    beat(world, "m1", -1)
    group = world.coordinator.consumers["g"]
    assert (group.state, group.epoch, group.target_epoch, group.metadata_hash) == (ConsumerGroupState.EMPTY, 3, 3, 0)
    again = beat(world)
    assert (again.member_epoch, given(again)) == (4, {"t": (0, 1, 2, 3)})


def test_in_4_3_the_assignment_of_an_empty_group_stays_behind() -> None:
    world = world_with(closes_empty=False)
    beat(world)
    beat(world, "m1", -1)
    assert world.coordinator.consumers["g"].target_epoch == 2
    again = beat(world)
    assert (again.member_epoch, given(again)) == (2, {})


def test_a_topic_that_grows_or_goes_begins_an_epoch_at_the_next_heartbeat() -> None:
    world = world_with()
    beat(world)
    world.topics.set("t", 6)
    world.later(1000)
    assert given(beat(world, "m1", 2)) == {"t": (0, 1, 2, 3, 4, 5)}
    world.topics.delete("t")
    world.later(1000)
    assert given(beat(world, "m1", 3)) == {}
    assert beat(world, "m1", 3, topic_partitions=[]).member_epoch == 4
    world.topics.set("other", 1)
    before = len(world.log[0])
    beat(world, "m1", 4)
    assert len(world.log[0]) == before


def test_a_changed_subscription_revokes_and_assigns() -> None:
    world = world_with()
    beat(world)
    world.later(1000)
    assert given(beat(world, "m1", 2, subscribed_topic_names=["u"])) == {}
    answer = beat(world, "m1", 2, topic_partitions=[])
    assert (answer.member_epoch, given(answer)) == (3, {"u": (0,)})


def test_an_append_that_fails_changes_nothing() -> None:
    world = world_with()
    world.append_code = ErrorCode.NOT_ENOUGH_REPLICAS
    assert code(beat(world)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.coordinator.consumers == {}
    world.append_code = ErrorCode.NONE
    assert beat(world).member_epoch == 2


def test_changes_wait_for_the_pending_append_of_their_group() -> None:
    world = world_with()
    two_members(world)
    world.later(1000)
    world.holds = True
    third = world.ask(request("m3"))
    fourth = world.ask(request("m4"))
    steady = world.ask(request("m2", 3))
    assert (third.answer, fourth.answer) == (None, None)
    assert steady.answer.member_epoch == 3, "it changes nothing as far as is stored"
    assert len(world.held) == 1
    world.release()
    world.release()
    assert (third.answer.member_epoch, fourth.answer.member_epoch) == (4, 4)


def test_requests_that_wait_are_refused_when_the_term_ends() -> None:
    world = world_with()
    world.holds = True
    first, second = world.ask(request("m1")), world.ask(request("m2"))
    world.load(0)
    assert code(second.answer) is ErrorCode.NOT_COORDINATOR
    assert first.answer is None
    world.release()
    assert code(first.answer) is ErrorCode.NOT_COORDINATOR
    assert world.coordinator.waiting == {}


def test_a_group_is_loaded_as_it_was() -> None:
    world = world_with()
    two_members(world)
    world.commit(7, "m1", 3)
    names = ("epoch", "target_epoch", "metadata_hash", "assigned_ms", "subscribers", "progress", "targets", "owners")
    before = [copy(getattr(world.coordinator.consumers["g"], name)) for name in names]
    world.load(0)
    assert [getattr(world.coordinator.consumers["g"], name) for name in names] == before
    assert given(beat(world, "m1", 3)) is None
    assert world.committed(("t", 0)) == [(7, 0)]
    world.later(46_000)
    assert state(world) is ConsumerGroupState.EMPTY


def test_the_feature_may_be_off() -> None:
    world = world_with(is_enabled=False)
    assert code(beat(world)) is ErrorCode.UNSUPPORTED_VERSION


def by_pattern(world: World, member: str = "m1", epoch: int = 0, pattern: str = "[tu]", **fields: Any) -> Any:
    return beat(world, member, epoch, subscribed_topic_names=None, subscribed_topic_regex=pattern, **fields)


def test_a_pattern_is_resolved_after_the_first_heartbeat() -> None:
    world = world_with()
    first = by_pattern(world)
    assert (first.member_epoch, given(first)) == (1, {})
    answer = beat(world, "m1", 1)
    assert (answer.member_epoch, given(answer)) == (2, {"t": (0, 1, 2, 3), "u": (0,)})


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", "(a)\\1", "a" * 2000])
def test_a_wrong_pattern_is_refused_and_changes_nothing(pattern: str) -> None:
    world = world_with()
    assert code(by_pattern(world, pattern=pattern)) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.coordinator.consumers == {}


def test_a_new_topic_that_matches_is_seen_ten_seconds_after_the_last_look() -> None:
    world = world_with()
    by_pattern(world, pattern="n.*")
    assert beat(world, "m1", 1).member_epoch == 1
    world.topics.set("new", 2)
    world.later(10_000)
    assert beat(world, "m1", 1).assignment is None
    world.later(1)
    beat(world, "m1", 1)
    assert beat(world, "m1", 1).member_epoch == 2
    assert world.coordinator.consumers["g"].targets["m1"] == {topic_id_of("new"): (0, 1)}


def test_the_last_subscriber_of_a_pattern_takes_it_away() -> None:
    world = world_with()
    by_pattern(world, "m1")
    second = by_pattern(world, "m2")
    assert not by_pattern(world, "m2", second.member_epoch, "zzz").error_code
    assert set(world.coordinator.consumers["g"].patterns) == {"[tu]"}
    beat(world, "m1", -1)
    assert world.coordinator.consumers["g"].patterns == {}
    assert set(world.coordinator.consumers["g"].matching) == {"zzz"}


def test_a_pattern_matches_topics_that_its_member_may_describe_alone() -> None:
    world = world_with()
    world.may_describe = lambda name: name != "u"
    by_pattern(world)
    assert given(beat(world, "m1", 1)) == {"t": (0, 1, 2, 3)}


def test_a_group_with_a_pattern_is_loaded_as_it_was() -> None:
    world = world_with()
    by_pattern(world)
    beat(world, "m1", 1)
    before = dict(world.coordinator.consumers["g"].patterns)
    world.load(0)
    group = world.coordinator.consumers["g"]
    assert (group.patterns, group.topics) == (before, {"t", "u"})
    assert given(beat(world, "m1", 2)) is None


def test_a_commit_of_a_member_to_an_unknown_group_is_refused_as_its_release_does() -> None:
    for names, expected in ((True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.ILLEGAL_GENERATION)):
        world = world_with(names_missing_group=names)
        codes = [world.commit(7, "m1", 3, version=each).answer.topics[0].partitions[0].error_code for each in (8, 9)]
        assert codes == [ErrorCode.ILLEGAL_GENERATION, expected]


def test_offsets_are_committed_and_fetched_with_the_epoch_of_the_member() -> None:
    world = world_with()
    two_members(world)

    def commit(member: str, epoch: int, partition: int = 0, version: int = 9) -> int:
        answer = world.commit(7, member, epoch, place=("t", partition), version=version).answer
        return int(answer.topics[0].partitions[0].error_code)

    assert [commit("m1", 3), commit("m1", 3, 3), commit("m1", 2), commit("m1", 2, 3)] == [0, 0, 0, 113]
    assert [commit("m1", 1), commit("m1", 4), commit("m1", -1), commit("", -1), commit("x", 3)] == [
        113,
        113,
        113,
        25,
        25,
    ]
    assert commit("m1", 3, version=8) == 35
    for member in ("m1", "m2"):
        beat(world, member, -1)
    assert [commit("", -1), commit("m1", 3)] == [0, 25]


def test_an_empty_group_is_deleted_with_its_offsets_and_one_with_members_is_not() -> None:
    world = world_with()
    beat(world)
    world.commit(7, "m1", 2)

    def delete() -> int:
        answer = world.ask(DeleteGroupsRequest(groups_names=["g"])).answer
        return int(answer.results[0].error_code)

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    beat(world, "m1", -1)
    assert delete() == 0
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND
    world.load(0)
    assert world.coordinator.consumers == {}
    assert world.committed(("t", 0)) == [(-1, 0)]


def test_a_group_takes_the_place_of_an_empty_classic_one_and_the_reverse() -> None:
    world = World(GroupConfig(offsets_partitions=1, initial_rebalance_delay_ms=0))
    _, members = world.stable(1)
    world.commit(7, members[0], 1)
    assert code(beat(world)) is ErrorCode.GROUP_ID_NOT_FOUND
    world.leave((members[0], None))
    assert beat(world).member_epoch == 2
    assert world.committed(("t", 0)) == [(7, 0)]
    assert world.join(version=3).answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.load(0)
    assert not beat(world, "m1", 2).error_code
    beat(world, "m1", -1)
    assert world.join(version=3).answer.generation_id == 1
    assert world.coordinator.consumers == {}
    assert world.committed(("t", 0)) == [(7, 0)]


def test_an_empty_group_without_offsets_is_deleted_after_a_while() -> None:
    world = world_with()
    beat(world)
    world.perform(world.coordinator.expire(world.date_ms))
    assert set(world.coordinator.consumers) == {"g"}
    beat(world, "m1", -1)
    world.perform(world.coordinator.expire(world.date_ms))
    assert world.coordinator.consumers == {}
