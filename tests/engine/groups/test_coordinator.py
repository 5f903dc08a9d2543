"""The rules of the group coordinator, case by case. The table of the protocol: docs/internals/groups.md."""

import struct

import pytest

from engine.groups.world import START, World
from magicbyte.engine.coordination.deadlines import DAY_MS
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.rules import GroupState
from magicbyte.engine.groups.config import GroupConfig, StoredVersions
from magicbyte.engine.groups.offsets import expired_offsets
from magicbyte.engine.groups.records import GroupMetadataValue, OffsetCommitValue, decode_key, decode_value
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from magicbyte.engine.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from magicbyte.engine.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from magicbyte.engine.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from magicbyte.engine.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

SUBSCRIBES_T = struct.pack(">hih", 0, 1, 1) + b"t" + struct.pack(">i", -1)
PLACES = (("t", 0), ("t", 1), ("u", 0))


@pytest.fixture
def world() -> World:
    return World()


def describe(world: World, group: str = "g", version: int = 5) -> DescribedGroup:
    response = world.answered(DescribeGroupsResponse, DescribeGroupsRequest(groups=[group]), version)
    return response.groups[0]


def listed(world: World, *states: str) -> dict[str, str]:
    response = world.answered(ListGroupsResponse, ListGroupsRequest(states_filter=list(states)))
    assert response.error_code == 0
    return {each.group_id: each.group_state for each in response.groups}


# ---- joining


def test_a_member_is_given_its_id_before_it_is_one(world: World) -> None:
    first = world.join().answer
    assert (first.error_code, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-id0")
    assert first.protocol_name is None
    second = world.join("c-id0").answer
    assert (second.error_code, second.generation_id, second.leader) == (0, 1, "c-id0")
    assert [each.member_id for each in second.members] == ["c-id0"]


@pytest.mark.parametrize("version", [3, 9])
def test_a_client_with_the_longest_name_has_an_id_that_fits(world: World, version: int) -> None:
    member = world.join(version=version, client_id="é" * 16_000).answer.member_id
    if version > 3:
        world.join(member, version=version, client_id="é" * 16_000)
    assert world.sync(member, 1, {member: b"mine"}).answer.assignment == b"mine"


@pytest.mark.parametrize("version", range(4))
def test_old_versions_join_at_once(world: World, version: int) -> None:
    answer = world.join(version=version).answer
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"kind": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
    ids=str,
)
def test_a_join_that_is_wrong_gets_its_code(world: World, fields: dict[str, object], code: ErrorCode) -> None:
    for version in (0, 9):
        assert world.join(version=version, **fields).answer.error_code == code


def test_members_must_have_a_protocol_in_common_and_the_same_kind(world: World) -> None:
    world.stable(1)
    for fields in ({"protocols": {"sticky": b""}}, {"kind": "connect"}):
        assert world.join(version=3, **fields).answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_that_most_like_best_is_taken_of_those_that_all_know(world: World) -> None:
    world.config = GroupConfig(initial_rebalance_delay_ms=1000)
    world.start()
    asked = [
        world.join(version=3, protocols=dict.fromkeys(names, b""))
        for names in (["a", "b", "c"], ["c", "b"], ["c", "b", "d"])
    ]
    world.later(1000)
    world.later(59_000)
    assert {each.answer.protocol_name for each in asked} == {"c"}


def test_a_full_group_accepts_no_further_member() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    _, members = world.stable(2)
    assert world.join(version=3).answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join(members[0], version=3, protocols={"range": b"new"}).answer is None


def test_the_first_rebalance_waits_for_more_members_as_long_as_they_keep_coming() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=3000))
    asked = [world.join(version=3, rebalance=8_000)]
    for _ in range(2):
        world.later(2_900)
        asked.append(world.join(version=3, rebalance=8_000))
    assert all(each.answer is None for each in asked)
    world.later(8_000 - 5_800 - 1)
    assert all(each.answer is None for each in asked)
    world.later(1)
    assert {each.answer.generation_id for each in asked} == {1}
    assert [len(each.answer.members) for each in asked] == [3, 0, 0]


def test_the_first_rebalance_ends_when_no_member_joined_during_the_delay() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=3000))
    asked = world.join(version=3)
    world.later(2999)
    assert asked.answer is None
    world.later(1)
    assert asked.answer.generation_id == 1


def test_a_member_that_rejoins_a_generation_unchanged_gets_the_same_answer(world: World) -> None:
    member = world.join(version=3).answer.member_id
    again = world.join(member, version=3).answer
    assert (again.generation_id, [each.member_id for each in again.members]) == (1, [member])


def test_a_follower_without_change_keeps_its_generation_and_a_leader_begins_a_new_one(world: World) -> None:
    generation, (leader, follower) = world.stable(2)
    kept = world.join(follower, version=3).answer
    assert (kept.generation_id, kept.members, world.group().state) == (generation, [], GroupState.STABLE)
    waiting = world.join(leader, version=3)
    assert waiting.answer is None
    assert world.group().state is GroupState.PREPARING_REBALANCE
    assert world.join(follower, version=3).answer.generation_id == waiting.answer.generation_id == generation + 1


def test_who_does_not_join_again_in_time_is_out(world: World) -> None:
    generation, (leader, follower) = world.stable(2, session=6_000, rebalance=20_000)
    waiting = world.join(leader, version=3, session=6_000, rebalance=20_000)
    for _ in range(4):
        world.later(4_999)
        assert world.beat(follower, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    world.later(5)
    assert waiting.answer.generation_id == generation + 1
    assert world.beat(follower, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_version_0_has_one_timeout_for_both(world: World) -> None:
    world.join(version=0, session=6_000)
    assert world.group().members.rebalance_timeout_ms == 6_000


def test_a_pending_member_is_forgotten_after_its_session(world: World) -> None:
    world.join(session=6_000)
    assert world.group().pending == {"c-id0"}
    world.later(6_000)
    assert world.group().pending == set()
    assert world.join("c-id0").answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_members_that_have_their_id_already(world: World) -> None:
    generation, (member,) = world.stable(1)
    pending = world.join(session=6_000).answer.member_id
    waiting = world.join(member, version=3)
    assert waiting.answer is None
    world.join(pending)
    assert waiting.answer.generation_id == generation + 1


def test_a_new_member_that_is_never_answered_is_let_go_after_five_minutes(world: World) -> None:
    generation, (member,) = world.stable(1, session=1_800_000, rebalance=1_800_000)
    new = world.join(version=3, rebalance=1_800_000)
    world.later(5 * 60_000 - 1)
    assert new.answer is None
    world.later(1)
    assert new.answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat(member, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_that_all_have_left_takes_new_members(world: World) -> None:
    _, (member,) = world.stable(1)
    world.join()
    world.leave((member, None))
    assert world.group().state is GroupState.PREPARING_REBALANCE
    waiting = world.join(version=3, protocols={"other": b""})
    assert waiting.answer is None
    world.later(1)  # no member remains whose rebalance timeout would count
    assert (waiting.answer.protocol_name, waiting.answer.generation_id) == ("other", 2)


def test_a_member_that_asks_twice_gets_an_answer_to_both(world: World) -> None:
    _, (leader, _) = world.stable(2)
    first = world.join(leader, version=3)
    second = world.join(leader, version=3)
    assert first.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.answer is None


# ---- the assignment


def test_every_member_gets_the_leaders_assignment_when_it_is_stored(world: World) -> None:
    leader = world.join(version=3).answer.member_id
    waiting = world.join(version=3)
    world.join(leader, version=3)
    follower = waiting.answer.member_id
    world.holds = True
    asked = [world.sync(follower, 2), world.sync(leader, 2, {follower: b"f", leader: b"l"})]
    assert [each.answer for each in asked] == [None, None]
    world.release()
    assert [each.answer.assignment for each in asked] == [b"f", b"l"]
    assert world.group().state is GroupState.STABLE
    again = world.sync(follower, 2).answer
    assert (again.assignment, again.protocol_type, again.protocol_name) == (b"f", "consumer", "range")


def test_a_member_that_the_leader_forgot_has_an_empty_assignment(world: World) -> None:
    member = world.join(version=3).answer.member_id
    assert world.sync(member, 1, {"somebody": b"x"}).answer.assignment == b""


def test_an_assignment_that_comes_too_late_is_nobodys(world: World) -> None:
    leader = world.join(version=3).answer.member_id
    world.holds = True
    waiting = world.sync(leader, 1, {leader: b"x"})
    world.join(version=3)
    assert waiting.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.release()
    assert world.group().state is GroupState.PREPARING_REBALANCE
    assert world.group().members[leader].assignment == b""


def test_an_assignment_of_an_earlier_generation_is_not_taken(world: World) -> None:
    leader = world.join(version=3).answer.member_id
    world.holds = True
    world.sync(leader, 1, {leader: b"old"})
    world.join(version=3)
    assert world.join(leader, version=3).answer.generation_id == 2
    world.release()
    assert world.group().state is GroupState.COMPLETING_REBALANCE
    assert world.sync(leader, 2, {leader: b"new"}).answer is None
    world.release()
    assert world.group().members[leader].assignment == b"new"


def test_a_member_that_asks_twice_for_its_assignment_gets_an_answer_to_both(world: World) -> None:
    leader = world.join(version=3).answer.member_id
    world.holds = True
    first, second = world.sync(leader, 1, {leader: b"x"}), world.sync(leader, 1, {leader: b"x"})
    assert first.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.release()
    assert second.answer.assignment == b"x"


@pytest.mark.parametrize(
    ("append", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=str,
)
def test_an_assignment_that_cannot_be_stored_makes_all_join_again(
    world: World, append: ErrorCode, told: ErrorCode
) -> None:
    leader = world.join(version=3).answer.member_id
    world.append_code = append
    assert world.sync(leader, 1, {leader: b"x"}).answer.error_code == told
    assert world.group().state is GroupState.PREPARING_REBALANCE


def test_a_sync_that_is_wrong_gets_its_code(world: World) -> None:
    assert world.sync("who", 1).answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    generation, (member,) = world.stable(1)
    assert world.sync("who", generation).answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync(member, generation + 1).answer.error_code == ErrorCode.ILLEGAL_GENERATION
    for fields in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        code = world.sync(member, generation, **fields).answer.error_code
        assert code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.join(version=3)
    assert world.sync(member, generation).answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_who_joins_and_does_not_ask_for_its_assignment_is_out_after_the_rebalance_timeout(world: World) -> None:
    leader = world.join(version=3, rebalance=20_000, session=30_000).answer.member_id
    waiting = world.join(version=3, rebalance=20_000, session=30_000)
    world.join(leader, version=3, rebalance=20_000, session=30_000)
    assert world.sync(leader, 2, {leader: b"l"}).answer.assignment == b"l"
    world.later(20_000)
    assert world.beat(leader, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.beat(waiting.answer.member_id, 2) == ErrorCode.UNKNOWN_MEMBER_ID


# ---- staying and leaving


def test_heartbeats_say_how_the_group_is(world: World) -> None:
    assert world.beat("who", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    member = world.join(version=3).answer.member_id
    assert world.beat(member, 1) == ErrorCode.NONE
    world.sync(member, 1, {})
    assert world.beat(member, 1) == ErrorCode.NONE
    assert world.beat(member, 2) == ErrorCode.ILLEGAL_GENERATION
    world.join(version=3)
    assert world.beat(member, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_is_silent_is_out_and_the_others_rebalance(world: World) -> None:
    generation, (leader, follower) = world.stable(2, session=6_000)
    world.later(5_999)
    assert world.beat(leader, generation) == ErrorCode.NONE
    world.later(1)
    assert world.beat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.beat(follower, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(world.join(leader, version=3, session=6_000).answer.members) == 1


def test_members_leave_by_id_or_by_instance_and_each_gets_its_code(world: World) -> None:
    generation, members = world.stable(2, session=6_000)
    pending = world.join().answer.member_id
    world.join(instance="i", version=5)
    wanted = [(members[0], None), ("", "i"), ("", "j"), ("who", None), (pending, None)]
    assert world.leave(*wanted) == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert list(world.group().members) == [members[1]]
    assert world.beat(members[1], generation) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", range(3))
def test_old_versions_let_one_member_leave(world: World, version: int) -> None:
    _, (member,) = world.stable(1)
    for each, code in ((member, ErrorCode.NONE), (member, ErrorCode.UNKNOWN_MEMBER_ID)):
        request = LeaveGroupRequest(group_id="g", member_id=each)
        assert world.answered(LeaveGroupResponse, request, version).error_code == code


def test_the_last_member_leaves_an_empty_group_with_its_offsets(world: World) -> None:
    generation, (member,) = world.stable(1)
    world.commit(7, member, generation)
    assert world.leave((member, None)) == [0]
    found = describe(world)
    assert (found.group_state, found.protocol_type, world.group().generation) == ("Empty", "consumer", generation + 1)
    assert world.committed(("t", 0)) == [(7, 0)]


def test_the_leader_that_leaves_is_followed_by_another(world: World) -> None:
    _, (leader, follower) = world.stable(2)
    world.leave((leader, None))
    answer = world.join(follower, version=3).answer
    assert (answer.leader, len(answer.members)) == (follower, 1)


# ---- static members


def test_an_instance_that_comes_back_takes_its_place_without_a_rebalance(world: World) -> None:
    member = world.join(instance="i").answer.member_id
    assert member == "i-id0"
    world.sync(member, 1, {member: b"mine"}, group_instance_id="i")
    for version, (skips, leader) in {9: (True, "i-id1"), 8: (False, "i-id1")}.items():
        answer = world.join(instance="i", version=version).answer
        assert (answer.generation_id, answer.skip_assignment, answer.leader) == (1, skips, leader)
        assert len(answer.members) == int(skips)
    assert world.sync(answer.member_id, 1, group_instance_id="i").answer.assignment == b"mine"
    assert world.beat(member, 1, "i") == ErrorCode.FENCED_INSTANCE_ID
    assert world.beat(answer.member_id, 1, "j") == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(member, instance="i").answer.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_that_likes_another_protocol_now_makes_all_join_again(world: World) -> None:
    member = world.join(instance="i").answer.member_id
    world.sync(member, 1, {member: b"mine"}, group_instance_id="i")
    assert world.join(instance="i", protocols={"roundrobin": b""}).answer.generation_id == 2


def test_an_instance_that_comes_back_fences_the_one_that_waits(world: World) -> None:
    world.join(version=3)
    waiting = world.join(instance="i", version=5)
    assert waiting.answer is None
    world.join(instance="i", version=5)
    assert waiting.answer.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_is_waited_for_as_long_as_its_session(world: World) -> None:
    first = world.join(instance="i", session=30_000, rebalance=10_000).answer.member_id
    world.sync(first, 1, {}, group_instance_id="i")
    waiting = world.join(version=3, session=30_000, rebalance=10_000)
    world.later(10_000)
    assert waiting.answer.generation_id == 2
    assert len(world.group().members) == 2
    world.later(20_000)
    assert world.group().members.static == {}


def test_a_static_leader_that_does_not_rejoin_loses_the_leadership(world: World) -> None:
    leader = world.join(instance="i", session=60_000, rebalance=10_000).answer.member_id
    world.sync(leader, 1, {}, group_instance_id="i")
    waiting = world.join(version=5, instance="j", session=60_000, rebalance=10_000)
    world.later(10_000)
    assert (waiting.answer.leader, len(waiting.answer.members)) == (waiting.answer.member_id, 2)


def test_records_too_old_to_hold_static_members_refuse_them() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, stored=StoredVersions.of((2, 2))))
    assert world.join(instance="i").answer.error_code == ErrorCode.UNSUPPORTED_VERSION


READABLE = {
    (0, 9, 0): (0, 1, False), (0, 10, 0): (0, 1, False), (0, 10, 1): (1, 1, True), (0, 10, 2): (1, 1, True),
    (0, 11, 0): (1, 1, True), (1, 1): (1, 1, True), (2, 0): (1, 1, True), (2, 1): (2, 3, True), (2, 2): (2, 3, True),
    (2, 3): (3, 3, True), (2, 8): (3, 3, True),
}  # fmt: skip
"""By release: the latest versions of values of groups and offsets that it reads, and whether a protocol may be null."""


@pytest.mark.parametrize("release", READABLE, ids=str)
def test_brokers_of_a_release_can_read_all_that_is_stored_for_them(release: tuple[int, ...]) -> None:
    """Of groups that are stable, left, deleted, and of offsets with and without an end of their own."""
    group_value, offset_value, may_be_null = READABLE[release]
    world = World(GroupConfig(initial_rebalance_delay_ms=0, stored=StoredVersions.of(release)))
    generation, (member,) = world.stable(1)
    world.commit(7, member, generation)
    world.leave((member, None))
    world.commit(8)
    world.commit(9, retention=1000)
    stored = [(decode_key(each.key or b""), each.value) for log in world.log.values() for each in log]
    values = [(key, decode_value(key, value)) for key, value in stored]
    offsets = [value for key, value in values if isinstance(value, OffsetCommitValue)]
    groups = [value for key, value in values if isinstance(value, GroupMetadataValue)]
    assert [each.offset for each in offsets] == [7, 8, 9]
    assert all(each.version <= offset_value for each in offsets)
    assert all(each.version <= group_value for each in groups)
    nulls = [each for each in groups if each.protocol is None or each.leader is None]
    assert len(nulls) == may_be_null  # the group that was left
    assert [value for key, value in values if value is None] == [None] * (not may_be_null)
    world.start()
    assert world.committed(("t", 0)) == [(9, 0)]
    assert world.group().state is GroupState.EMPTY


# ---- offsets


def test_a_consumer_that_assigns_its_own_partitions_commits_to_a_group_without_members(world: World) -> None:
    answer = world.commit(7).answer
    assert answer.topics[0].partitions[0].error_code == 0
    assert world.committed(*PLACES) == [(7, 0), (-1, 0), (-1, 0)]
    assert listed(world) == {"g": "Empty"}
    assert world.commit(7, group="").answer.topics[0].partitions[0].error_code == 0


def test_a_commit_that_is_wrong_gets_its_code(world: World) -> None:
    def code(*arguments: object, **fields: object) -> int:
        return int(world.commit(7, *arguments, **fields).answer.topics[0].partitions[0].error_code)  # type: ignore[arg-type]

    assert code("who", 1) == ErrorCode.ILLEGAL_GENERATION
    assert code(place=("t", 4)) == code(place=("x", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(metadata="é" * 2048) == 0
    assert code(metadata="é" * 2048 + "x") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    member = world.join(version=3).answer.member_id
    assert code() == code("who", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(member, 2) == ErrorCode.ILLEGAL_GENERATION
    assert code(member, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    world.sync(member, 1, {})
    assert code(member, 1) == ErrorCode.NONE
    assert code(member, 1, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID
    world.join(version=3)
    assert code(member, 1) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("append", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
    ids=str,
)
def test_offsets_count_when_they_are_stored(world: World, append: ErrorCode, told: ErrorCode) -> None:
    world.commit(3)
    world.append_code = append
    assert world.commit(7).answer.topics[0].partitions[0].error_code == told
    assert world.committed(("t", 0)) == [(3, 0)]
    world.append_code, world.holds = ErrorCode.NONE, True
    waiting = world.commit(8)
    assert world.committed(("t", 0)) == [(3, 0)]
    world.release()
    assert waiting.answer.topics[0].partitions[0].error_code == 0
    assert world.committed(("t", 0)) == [(8, 0)]


def test_an_offset_that_is_stored_after_its_group_was_deleted_is_there(world: World) -> None:
    world.commit(3, place=("t", 1))
    world.holds = True
    waiting = world.commit(7)
    world.ask(DeleteGroupsRequest(groups_names=["g"]))
    world.release()
    assert waiting.answer.topics[0].partitions[0].error_code == 0
    assert world.committed(*PLACES) == [(7, 0), (-1, 0), (-1, 0)]
    world.start()
    assert world.committed(*PLACES) == [(7, 0), (-1, 0), (-1, 0)]


def test_a_commit_is_a_sign_of_life(world: World) -> None:
    generation, (member,) = world.stable(1, session=6_000)
    for offset in range(3):
        world.later(5_000)
        world.commit(offset, member, generation)
    assert world.beat(member, generation) == ErrorCode.NONE


@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_fetches_what_every_version_commits(world: World, version: int) -> None:
    world.commit(5, version=version)
    if version >= 8:
        assert world.committed(("t", 0)) == [(5, 0)]
        return
    request = OffsetFetchRequest(group_id="g", topics=[] if version < 2 else None)
    response = world.answered(OffsetFetchResponse, request, version)
    found = [(each.name, part.committed_offset) for each in response.topics for part in each.partitions]
    assert found == ([] if version < 2 else [("t", 5)])


def test_a_commit_may_say_how_long_it_is_kept(world: World) -> None:
    world.commit(7, retention=5_000, version=4)
    world.commit(8, place=("t", 1), version=1, time=START - 10)
    world.later(5_000)
    world.perform(world.coordinator.expire(world.date_ms))
    assert world.committed(*PLACES) == [(-1, 0), (8, 0), (-1, 0)]


def test_offsets_expire_when_the_group_has_been_empty_long_enough(world: World) -> None:
    generation, (member,) = world.stable(1, protocols={"range": SUBSCRIBES_T})
    for place in PLACES:
        world.commit(7, member, generation, place=place)
    for _ in range(8 * 24 * 60 * 10):
        world.later(6_000)
        world.beat(member, generation)
        if world.date_ms - START >= 7 * DAY_MS:
            break
    world.perform(world.coordinator.expire(world.date_ms))
    assert world.committed(*PLACES) == [(7, 0), (7, 0), (-1, 0)]  # no member reads u now
    world.leave((member, None))
    world.later(7 * DAY_MS - 1)
    world.perform(world.coordinator.expire(world.date_ms))
    assert world.committed(*PLACES) == [(7, 0), (7, 0), (-1, 0)]
    world.later(1)
    world.perform(world.coordinator.expire(world.date_ms))
    assert listed(world) == {}
    world.start()
    assert listed(world) == {}


def test_before_20_each_offset_has_its_own_end() -> None:
    stored = StoredVersions.of((1, 1))
    world = World(GroupConfig(initial_rebalance_delay_ms=0, stored=stored, offsets_retention_ms=DAY_MS))
    world.commit(7)
    world.later(DAY_MS // 2)
    world.commit(8, place=("t", 1))
    world.later(DAY_MS // 2)
    world.perform(world.coordinator.expire(world.date_ms))
    assert world.committed(*PLACES) == [(-1, 0), (8, 0), (-1, 0)]


def test_offsets_of_a_topic_that_is_gone_are_dropped(world: World) -> None:
    world.commit(7)
    world.commit(8, place=("u", 0))
    world.perform(world.coordinator.forget_topic("t"))
    world.start()
    assert world.committed(*PLACES) == [(-1, 0), (-1, 0), (8, 0)]


def delete_offsets(world: World, *places: tuple[str, int]) -> tuple[int, list[int]]:
    topics = [
        OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        for topic, index in places
    ]
    answer = world.answered(OffsetDeleteResponse, OffsetDeleteRequest(group_id="g", topics=topics))
    return answer.error_code, [each.error_code for topic in answer.topics for each in topic.partitions]


def test_offsets_of_topics_without_subscribers_are_deleted(world: World) -> None:
    assert delete_offsets(world, ("t", 0)) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    generation, (member,) = world.stable(1, protocols={"range": SUBSCRIBES_T})
    for place in PLACES:
        world.commit(7, member, generation, place=place)
    codes = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete_offsets(world, ("t", 0), ("u", 0), ("t", 9)) == (0, codes)
    assert world.committed(*PLACES) == [(7, 0), (7, 0), (-1, 0)]
    world.leave((member, None))
    assert delete_offsets(world, ("t", 0), ("t", 1)) == (0, [0, 0])
    assert listed(world) == {}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, -1])
def test_a_subscription_is_read_up_to_the_fields_of_version_0(world: World, version: int) -> None:
    """Some clients write less than their version has: no owned partitions, no generation."""
    shortened = struct.pack(">h", version) + SUBSCRIBES_T[2:]
    generation, (member,) = world.stable(1, protocols={"range": shortened})
    for place in PLACES:
        world.commit(7, member, generation, place=place)
    assert delete_offsets(world, ("t", 0), ("u", 0)) == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE])
    world.commit(7, member, generation, place=("u", 0))
    assert list(expired_offsets(world.coordinator.groups["g"], world.date_ms + 8 * DAY_MS)) == [("u", 0)]


def test_offsets_of_a_group_that_does_other_work_are_not_deleted(world: World) -> None:
    generation, (member,) = world.stable(1, kind="connect")
    world.commit(7, member, generation)
    assert delete_offsets(world, ("t", 0)) == (ErrorCode.NON_EMPTY_GROUP, [])


# ---- groups


def test_a_group_is_described_in_every_state(world: World) -> None:
    assert (describe(world).group_state, describe(world).error_code) == ("Dead", 0)
    assert describe(world, version=6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member = world.join(version=3, protocols={"range": b"meta"}, client_id="me").answer.member_id
    found = describe(world)
    assert (found.group_state, found.protocol_data) == ("CompletingRebalance", "")
    assert [(each.client_id, each.client_host, each.member_metadata) for each in found.members] == [
        ("me", "/127.0.0.1", b"")
    ]
    world.sync(member, 1, {member: b"mine"})
    found = describe(world)
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    assert [(each.member_metadata, each.member_assignment) for each in found.members] == [(b"meta", b"mine")]
    world.join(version=3)
    assert describe(world).group_state == "PreparingRebalance"
    assert listed(world, "stable") == {}
    assert listed(world, "preparingrebalance") == {"g": "PreparingRebalance"}


def test_groups_without_members_are_deleted_for_good(world: World) -> None:
    world.stable(1)
    world.commit(7, group="simple")
    world.commit(7, group="")
    request = DeleteGroupsRequest(groups_names=["g", "simple", "nobody", ""])
    response = world.answered(DeleteGroupsResponse, request)
    codes = [ErrorCode.NON_EMPTY_GROUP, 0, ErrorCode.GROUP_ID_NOT_FOUND, 0]
    assert [each.error_code for each in response.results] == codes
    world.start()
    assert listed(world) == {"g": "Stable"}


def test_groups_are_deleted_together_whether_or_not_there_is_something_to_store(world: World) -> None:
    world.join(group="idle", protocols={})
    world.commit(7, group="simple")
    world.holds = True
    waiting = world.ask(DeleteGroupsRequest(groups_names=["idle", "simple", "idle"]))
    assert waiting.answer is None
    world.release()
    assert [each.error_code for each in waiting.answer.results] == [0, 0, ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_deletion_that_cannot_be_stored_says_so(world: World) -> None:
    world.commit(7)
    world.append_code = ErrorCode.KAFKA_STORAGE_ERROR
    response = world.answered(DeleteGroupsResponse, DeleteGroupsRequest(groups_names=["g"]))
    assert [each.error_code for each in response.results] == [ErrorCode.NOT_COORDINATOR]
    world.append_code = ErrorCode.NONE
    world.start()
    assert world.committed(("t", 0)) == [(7, 0)]


# ---- partitions


def test_requests_during_loading_get_the_codes_that_make_clients_wait(world: World) -> None:
    generation, (member,) = world.stable(1)
    partition = world.group().partition
    world.perform(world.coordinator.resign(partition))
    term = world.coordinator.begin_loading(partition, 0)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.join(member).answer.error_code == loading
    assert world.commit(7, member, generation).answer.topics[0].partitions[0].error_code == loading
    assert world.sync(member, generation).answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.beat(member, generation) == ErrorCode.NONE
    assert describe(world).error_code == loading
    request = OffsetFetchRequest(group_id="g", topics=None)
    assert world.answered(OffsetFetchResponse, request, 5).error_code == loading
    world.coordinator.load_failed(partition, term)
    assert world.join(member).answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_waiting_members_are_answered_when_the_broker_resigns_the_group(world: World) -> None:
    world.stable(1)
    waiting = world.join(version=3)
    world.perform(world.coordinator.resign(world.group().partition))
    assert waiting.answer.error_code == ErrorCode.NOT_COORDINATOR
    assert world.join(version=3).answer.error_code == ErrorCode.NOT_COORDINATOR
    world.later(DAY_MS)


def test_a_stopping_coordinator_answers_all_waiting_members(world: World) -> None:
    world.stable(1)
    waiting = world.join(version=3)
    world.perform(world.coordinator.close())
    assert waiting.answer.error_code == ErrorCode.NOT_COORDINATOR
    assert world.join(version=3).answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_group_survives_a_restart_with_its_members_and_offsets(world: World) -> None:
    generation, (leader, follower) = world.stable(2)
    world.commit(7, leader, generation)
    world.start()
    assert world.committed(("t", 0)) == [(7, 0)]
    assert world.beat(leader, generation) == world.beat(follower, generation) == ErrorCode.NONE
    assert world.sync(follower, generation).answer.assignment == b"1"
    world.later(10_000)
    assert world.beat(leader, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert describe(world).group_state == "Empty"


# ---- what members send, in bytes


def test_beyond_the_bytes_of_all_groups_joins_are_refused_and_existing_members_continue() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, metadata_max_bytes=10_000))
    large = {"range": bytes(3000)}
    ids = [world.join(version=3, group=f"g{at}", protocols=large).answer.member_id for at in range(2)]
    used = world.coordinator.usage.used
    assert 2 * 3000 < used < 10_000
    for group in ("g0", "g2"):
        refused = world.join(version=3, group=group, protocols=large).answer
        assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert "g2" not in world.coordinator.groups
    assert world.coordinator.usage.used == used
    again = world.join(ids[0], version=3, group="g0", protocols=large).answer
    assert (again.error_code, again.member_id) == (ErrorCode.NONE, ids[0])
    assert world.join(version=3, group="g3", protocols={"range": b""}).answer.error_code == ErrorCode.NONE
    world.later(60_000)
    assert world.coordinator.usage.used == 0
    assert world.join(version=3, group="g2", protocols=large).answer.error_code == ErrorCode.NONE


def test_an_assignment_beyond_the_bytes_of_all_groups_is_refused_as_one_that_no_record_holds() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, metadata_max_bytes=10_000))
    joined = world.join(version=3, protocols={"range": bytes(3000)}).answer
    used = world.coordinator.usage.used
    refused = world.sync(joined.member_id, joined.generation_id, {joined.member_id: bytes(7000)}, version=2).answer
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.coordinator.usage.used == used
    joined = world.join(joined.member_id, version=3, protocols={"range": bytes(3000)}).answer
    for size in (5000, 6000):  # the new one takes the place of the one before
        synced = world.sync(joined.member_id, joined.generation_id, {joined.member_id: bytes(size)}, version=2).answer
        assert (synced.error_code, len(synced.assignment)) == (ErrorCode.NONE, size)
        assert world.coordinator.usage.used == used + size
        joined = world.join(joined.member_id, version=3, protocols={"range": bytes(3000)}).answer


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_of_a_group_that_was_let_go_while_it_was_stored_nothing_is_counted(code: ErrorCode) -> None:
    world = World()
    joined = world.join(version=3).answer
    world.holds, group = True, world.group()
    synced = world.sync(joined.member_id, joined.generation_id, {joined.member_id: bytes(5000)}, version=2)
    world.perform(world.coordinator.resign(group.partition))
    assert synced.answer.error_code == ErrorCode.NOT_COORDINATOR
    world.append_code = code
    world.release()
    assert (world.coordinator.usage.used, group.state) == (0, GroupState.DEAD)


def test_member_ids_that_never_rejoin_are_counted_too() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0, metadata_max_bytes=20_000))
    codes = [world.join(group=f"g{at}").answer.error_code for at in range(100)]
    assert set(codes) == {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED}
    assert len(world.coordinator.groups) == codes.count(ErrorCode.MEMBER_ID_REQUIRED) < 40
    world.later(60_000)
    assert world.coordinator.usage.used == 0
