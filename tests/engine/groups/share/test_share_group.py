"""Heartbeats of share groups, case by case, their records byte for byte, and the assignor."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.groups.world import TOPICS, World, topic_id_of
from magicbyte.engine.coordination.decider import Work
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.config import GroupConfig
from magicbyte.engine.groups.consumer.records import GroupEpoch, TargetEpoch
from magicbyte.engine.groups.effects import DeleteStates, Effect, InitializeStates
from magicbyte.engine.groups.share import records
from magicbyte.engine.groups.share.assignor import assign
from magicbyte.engine.groups.share.config import ShareConfig
from magicbyte.engine.groups.share.heartbeat import states_initialized
from magicbyte.engine.groups.share.kept_states import states_deleted
from magicbyte.engine.groups.share.records import (
    KeptStates,
    ShareProgress,
    ShareRecord,
    ShareSubscriber,
    TopicStates,
    decode,
    encode,
)
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest
from magicbyte.engine.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

T = uuid.UUID("1810ed756560407883212f62cb050282")
HASH = 0x9ABD154601B5E315 - (1 << 64)
ID = "1810ed756560407883212f62cb050282"


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (
            ShareRecord(records.MEMBER, "vs", "m", ShareSubscriber(None, "probe", "/127.0.0.1", ("vt",))),
            "0000000670726f62650b2f3132372e302e302e310203767400",
        ),
        (ShareRecord(records.GROUP, "vs", "", GroupEpoch(2, HASH)), "0000000000029abd154601b5e31500"),
        (ShareRecord(records.TARGET, "vs", "", TargetEpoch(2, 0x1A22715C6AA)), "000000000002010008000001a22715c6aa"),
        (ShareRecord(records.CURRENT, "vs", "m", ShareProgress(2)), "00000000000200000000000100"),
        (
            ShareRecord(records.STATES, "vs", "", KeptStates({T: TopicStates("vt", (0, 1))})),
            "000002" + ID + "03767403000000000000000100010100",
        ),
        (
            ShareRecord(records.CURRENT, "vs", "m", ShareProgress(3, 2, {T: (0, 1)})),
            "000000000003000000020002" + ID + "0300000000000000010000",
        ),
    ],
)  # fmt: skip
def test_records_are_those_of_real_brokers(record: ShareRecord, value: str) -> None:
    key, data = encode(record)
    assert data is not None
    assert data.hex() == value
    assert decode(key, data) == record
    assert decode(key, None) == record._replace(value=None)


def test_a_record_of_4_0_is_unknown() -> None:
    key, _ = encode(ShareRecord(records.GROUP, "g", "", None))
    assert decode(key, b"\0\0\0\0\0\1\0") is None


# ---- the assignor


def test_each_partition_has_about_as_many_members() -> None:
    topic = frozenset({T})
    found = assign({f"m{number}": topic for number in range(4)}, {}, {T: (0, 1, 2)})
    assert sorted(len(each[T]) for each in found.values()) == [1, 1, 2, 2]
    assert sorted(number for each in found.values() for number in each[T]) == [0, 0, 1, 1, 2, 2]


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_every_partition_is_assigned_and_members_keep_what_they_can(
    members: int, partitions: int, data: st.DataObject
) -> None:
    topic, before = frozenset({T}), dict[str, Any]()
    for _ in range(3):
        names = data.draw(st.sets(st.integers(0, members), min_size=1))
        found = assign({f"m{number}": topic for number in names}, before, {T: range(partitions)})
        assert {number for each in found.values() for number in each.get(T, ())} == set(range(partitions))
        sizes = [len(each.get(T, ())) for each in found.values()]
        assert max(sizes) <= -(-partitions * -(-len(names) // partitions) // len(names))
        before = found


def test_each_topic_goes_to_its_subscribers() -> None:
    other = uuid.UUID(int=7)
    found = assign({"a": frozenset({T}), "b": frozenset({T, other}), "c": frozenset()}, {}, {T: (0, 1), other: (0,)})
    assert found["c"] == {}
    assert other not in found["a"]
    assert found["b"][other] == (0,)


# ---- heartbeats


class Shares(World):
    """A world with one coordinator partition, and the share group "g". `wanted`: the states it has asked for."""

    def __init__(self, **settings: Any) -> None:
        self.wanted: list[InitializeStates] = []
        self.begins_states, self.deletion_code = True, ErrorCode.NONE
        super().__init__(GroupConfig(offsets_partitions=1, share=ShareConfig(**settings)))

    def perform(self, effects: Work[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, InitializeStates):
                self.wanted.append(effect)
                if self.begins_states:
                    self.begin_states()
            elif isinstance(effect, DeleteStates):
                self.perform(states_deleted(self.coordinator, effect, self.deletion_code))
            else:
                super().perform([effect])

    def begin_states(self) -> None:
        self.perform(states_initialized(self.coordinator, "g", dict(self.wanted[-1].topics)))

    def share(self, epoch: int, names: list[str] | None = None, member_id: str = "m", **fields: Any) -> Any:
        given = {"group_id": "g", "member_id": member_id, **fields}
        request = ShareGroupHeartbeatRequest(member_epoch=epoch, subscribed_topic_names=names, **given)
        return self.ask(request, 1).answer

    def partitions(self, answer: Any) -> dict[str, tuple[int, ...]] | None:
        if answer.assignment is None:
            return None
        names = {topic_id_of(name): name for name in TOPICS}
        return {names[each.topic_id]: each.partitions for each in answer.assignment.topic_partitions}


def test_a_member_gets_partitions_when_their_states_are_kept() -> None:
    world = Shares()
    first = world.share(0, ["t"])
    assert (first.error_code, first.member_epoch, world.partitions(first)) == (0, 2, {})
    stored = [decode(each.key or b"", each.value) for each in world.log[0]]
    assert [None if each is None else each.type for each in stored] == [10, 11, 13, 12, 14, 15, 15]
    assert world.wanted == [InitializeStates("g", 2, ((topic_id_of("t"), (0, 1, 2, 3)),))]
    second = world.share(2)
    assert (second.member_epoch, world.partitions(second)) == (2, None), "the next assignment is not due"
    world.later(1000)
    third = world.share(2)
    assert (third.member_epoch, world.partitions(third)) == (3, {"t": (0, 1, 2, 3)})
    size = len(world.log[0])
    assert world.partitions(world.share(3)) is None
    assert world.partitions(world.share(2)) is None, "the previous epoch is accepted"
    assert len(world.log[0]) == size, "nothing has changed"


def test_two_members_divide_partitions_and_one_of_several_is_shared() -> None:
    world = Shares(assignment_interval_ms=0)
    world.share(0, ["t"])
    world.share(0, ["t"], "n")
    assert world.partitions(world.share(2)) == {"t": (0, 1)}
    group = world.coordinator.shares["g"]
    assert group.state.value == "Stable"
    left = world.share(-1, None, "n")
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert world.partitions(world.share(3)) == {"t": (0, 1, 2, 3)}
    assert world.share(3, None, "n").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_epochs_and_groups_that_are_refused() -> None:
    world = Shares(max_size=1)
    assert world.share(1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.share(0, ["t"]).member_epoch == 2
    assert world.share(9).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.share(1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.share(0, ["t"], "n").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join().answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.commit(1).answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="c", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert world.ask(consumer).answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    classic = World(GroupConfig(offsets_partitions=1))
    classic.commit(1)
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t"])
    assert classic.ask(request, 1).answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_states_are_asked_for_again_after_a_while() -> None:
    world = Shares(assignment_interval_ms=0)
    world.begins_states = False
    world.share(0, ["t"])
    world.share(2)
    assert len(world.wanted) == 1
    world.later(30_000)
    world.share(2)
    assert len(world.wanted) == 2
    world.begin_states()
    assert world.partitions(world.share(2)) == {"t": (0, 1, 2, 3)}


def test_a_session_that_ends_removes_the_member() -> None:
    world = Shares()
    world.share(0, ["t"])
    world.later(44_999)
    assert "m" in world.coordinator.shares["g"].subscribers
    world.later(1)
    group = world.coordinator.shares["g"]
    assert not group.subscribers
    assert (group.state.value, group.epoch, group.metadata_hash) == ("Empty", 3, 0)
    assert not group.progress
    assert not group.targets


@pytest.mark.parametrize(("closes_empty", "target"), [(True, 3), (False, 2)])
def test_the_assignment_of_a_group_that_becomes_empty_reaches_its_last_epoch(closes_empty: bool, target: int) -> None:
    world = Shares(closes_empty=closes_empty)
    world.share(0, ["t"])
    world.share(-1)
    group = world.coordinator.shares["g"]
    assert (group.epoch, group.target_epoch) == (3, target)


def test_requests_wait_for_the_pending_append_of_their_group() -> None:
    world = Shares(assignment_interval_ms=0)
    world.holds = True
    first = world.ask(ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t"]), 1)
    second = world.ask(ShareGroupHeartbeatRequest(group_id="g", member_id="n", subscribed_topic_names=["t"]), 1)
    assert (first.answer, second.answer, len(world.held)) == (None, None, 1)
    world.release()
    assert (first.answer.member_epoch, second.answer.member_epoch) == (2, 3)
    third = world.ask(ShareGroupHeartbeatRequest(group_id="g", member_id="o", subscribed_topic_names=["t"]), 1)
    fourth = world.ask(ShareGroupHeartbeatRequest(group_id="g", member_id="p", subscribed_topic_names=["t"]), 1)
    world.perform(world.coordinator.resign(0))
    assert fourth.answer.error_code == ErrorCode.NOT_COORDINATOR
    world.release()
    assert third.answer.error_code == ErrorCode.NOT_COORDINATOR


def test_a_group_is_as_before_after_its_log_was_loaded_and_is_deleted_when_empty() -> None:
    world = Shares(assignment_interval_ms=0)
    world.share(0, ["t"])
    world.share(2)
    before = world.coordinator.shares["g"]
    used = world.coordinator.usage.used
    world.start()
    after = world.coordinator.shares["g"]
    for name in ("epoch", "target_epoch", "metadata_hash", "subscribers", "progress", "targets", "states", "named"):
        assert getattr(after, name) == getattr(before, name), name
    assert world.coordinator.usage.used == used
    assert world.partitions(world.share(3, ["t"])) == {"t": (0, 1, 2, 3)}
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert world.ask(delete).answer.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    world.share(-1)
    world.deletion_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.ask(delete).answer.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.deletion_code = ErrorCode.NONE
    assert world.ask(delete).answer.results[0].error_code == ErrorCode.NONE
    assert world.ask(delete).answer.results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.coordinator.usage.used == 0
    world.start()
    assert not world.coordinator.shares


def test_a_topic_that_grows_gets_further_partitions() -> None:
    world = Shares(assignment_interval_ms=0)
    world.share(0, ["u"])
    assert world.partitions(world.share(2)) == {"u": (0,)}
    world.topics.set("u", 2)
    world.share(3)
    assert world.partitions(world.share(4)) == {"u": (0, 1)}
