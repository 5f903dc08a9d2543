"""Long requests are decided in parts. Between these others have a turn, after which anything may have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.groups import world as worlds
from engine.groups.world import World
from magicbyte.engine.coordination import parts
from magicbyte.engine.coordination.effects import Store
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magicbyte.engine.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

COUNT = 45


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of more than 40 elements are long, and a part has 10."""
    monkeypatch.setattr(parts, "PART", 10)
    monkeypatch.setattr(parts, "WHOLE", 40)
    monkeypatch.setitem(worlds.TOPICS, "long", 100)


class Busy(World):
    """Others do something at the second turn that a request leaves them."""

    def __post_init__(self) -> None:
        self.turns, self.others = 0, lambda: None
        super().__post_init__()

    def take_turn(self) -> None:
        self.turns += 1
        if self.turns == 2:
            self.others()


def others(world: Busy, work: Callable[[], object]) -> None:
    world.turns, world.others = 0, work  # type: ignore[assignment]


def commit(count: int = COUNT, offset: int = 7) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=at, committed_offset=offset) for at in range(count)]
    topics = [OffsetCommitRequestTopic(name="long", partitions=partitions)]
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)


def fetch(count: int = COUNT) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name="long", partition_indexes=tuple(range(count)))]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])


def delete(count: int = COUNT) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=at) for at in range(count)]
    return OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="long", partitions=partitions)])


def sizes(world: World) -> list[int]:
    return [len(each.records) for each in world.effects if isinstance(each, Store)]


def codes(answer: Any) -> list[int]:
    (topic,) = answer.topics
    assert [each.partition_index for each in topic.partitions] == list(range(len(topic.partitions)))
    return [each.error_code for each in topic.partitions]


def fetched(answer: Any) -> list[int]:
    (group,) = answer.groups
    assert not group.error_code
    (topic,) = group.topics
    return [each.committed_offset for each in topic.partitions]


def test_a_long_commit_is_several_sets_and_has_one_answer() -> None:
    world = Busy()
    assert codes(world.ask(commit()).answer) == [0] * COUNT
    assert sum(sizes(world)) == COUNT
    assert max(sizes(world)) <= 10
    assert fetched(world.ask(fetch()).answer) == [7] * COUNT
    assert world.coordinator.gatherings == {}


def test_a_commit_that_is_not_long_is_one_set() -> None:
    world = Busy()
    assert codes(world.ask(commit(39)).answer) == [0] * 39
    assert sizes(world) == [39]


def test_a_long_commit_is_answered_when_its_last_set_is_stored() -> None:
    world = Busy(holds=True)
    asked = world.ask(commit())
    while len(world.held) > 1:
        world.append(world.held.pop(0))
        assert asked.answer is None
    world.release()
    assert codes(asked.answer) == [0] * COUNT


def test_a_set_of_a_long_commit_that_cannot_be_stored_has_the_error_and_others_have_none() -> None:
    world = Busy(holds=True)
    asked = world.ask(commit())
    world.append(world.held.pop(0))
    world.append_code = ErrorCode.NOT_ENOUGH_REPLICAS
    world.append(world.held.pop(0))
    world.append_code = ErrorCode.NONE
    world.release()
    answered = codes(asked.answer)
    assert set(answered) == {0, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert answered == sorted(answered[:20], key=bool) + [0] * (COUNT - 20)


def test_a_commit_in_the_turn_of_a_long_one_is_between_its_sets() -> None:
    world = Busy()
    others(world, lambda: world.ask(commit(39, offset=8)))
    world.ask(commit())
    assert len(world.asked) == 2
    found = fetched(world.ask(fetch()).answer)
    assert set(found) == {7, 8}
    assert found[:15] == [8] * 15, "the sets before it"
    assert found[39:] == [7] * (COUNT - 39), "the sets after it"


def test_after_the_end_of_the_term_the_rest_of_a_long_commit_is_refused() -> None:
    world = Busy()
    partition = world.coordinator.partition_of("g")
    others(world, lambda: world.perform(world.coordinator.resign(partition)))
    answered = codes(world.ask(commit()).answer)
    assert answered == sorted(answered)
    assert set(answered) == {0, ErrorCode.NOT_COORDINATOR}


def test_a_group_that_becomes_unavailable_during_a_long_fetch_is_answered_as_such() -> None:
    world = Busy()
    world.ask(commit())
    partition = world.coordinator.partition_of("g")
    others(world, lambda: world.perform(world.coordinator.resign(partition)))
    (group,) = world.ask(fetch()).answer.groups
    assert (group.error_code, group.topics) == (ErrorCode.NOT_COORDINATOR, [])


def test_long_deletions_have_one_answer() -> None:
    world = Busy()
    world.ask(commit())
    before = len(sizes(world))
    answer = world.ask(delete()).answer
    assert (answer.error_code, codes(answer)) == (0, [0] * COUNT)
    assert max(sizes(world)[before:]) <= 11, "a part, and the tombstone of the group"
    # the last offsets took the group with them
    assert world.ask(delete()).answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_of_a_name_that_stands_in_a_long_request_more_than_once_there_is_one_answer() -> None:
    world = Busy()
    answer = world.ask(DeleteGroupsRequest(groups_names=["g", "h"] * 30)).answer
    assert [(each.group_id, each.error_code) for each in answer.results] == [("g", 69), ("h", 69)]
    few = world.ask(DeleteGroupsRequest(groups_names=["g", "h", "g"])).answer
    assert [each.group_id for each in few.results] == ["g", "h", "g"]


def test_many_members_leave_and_others_have_turns() -> None:
    world = Busy()
    member, _ = world.new()
    others(world, lambda: world.leave((member, None)))
    members = [MemberIdentity(member_id=f"m{at}") for at in range(COUNT)] + [MemberIdentity(member_id=member)]
    answer = world.ask(LeaveGroupRequest(group_id="g", members=members)).answer
    assert [each.error_code for each in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * (COUNT + 1)
