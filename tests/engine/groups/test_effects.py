"""Effects are data: the same requests have equal effects each time; what follows an append is part of its effect."""

from __future__ import annotations

import pickle
import random
from typing import get_args

import pytest

from engine.groups.world import Asked, World
from magicbyte.engine.coordination.effects import Store
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.config import GroupConfig
from magicbyte.engine.groups.effects import AfterStore, AssignMembers, Effect
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest
from magicbyte.engine.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from magicbyte.engine.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

SEEDS = range(4)
STEPS = 200
CODES = (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS)


class PickledWorld(World):
    """What is to be appended goes through bytes: whatever happens afterwards is in them."""

    def append(self, store: Store[AfterStore | None]) -> None:
        super().append(pickle.loads(pickle.dumps(store)))


def history(seed: int, world: World) -> list[Effect]:
    """Let members of two groups do things at random; return all that the coordinator wanted done."""
    draw = random.Random(seed)
    joins: list[tuple[str, str | None, Asked]] = []
    for _ in range(STEPS):
        group, instance = draw.choice("gh"), draw.choice((None, "i"))
        world.holds, world.append_code = draw.random() < 0.3, draw.choice(CODES)
        match draw.randrange(14):
            case 0 | 1:
                joins.append((group, instance, world.join(version=draw.choice((3, 9)), group=group, instance=instance)))
            case 2 | 3 | 4 | 5 if joins:
                group, instance, asked = draw.choice(joins[-3:])
                if asked.answer is not None and asked.answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                    joins.append((group, instance, world.join(asked.answer.member_id, group=group)))
                elif asked.answer is not None and not asked.answer.error_code:
                    member = asked.answer.member_id
                    given = {each.member_id: b"%d" % seed for each in asked.answer.members}
                    world.sync(member, asked.answer.generation_id, given, group_id=group, group_instance_id=instance)
            case 6:
                world.commit(draw.randrange(100), group=group)
            case 7:
                world.ask(DeleteGroupsRequest(groups_names=["g", "h"]))
            case 8:
                partitions = [OffsetDeleteRequestPartition(partition_index=0)]
                topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
                world.ask(OffsetDeleteRequest(group_id=group, topics=topics))
            case 9:
                world.commit_in_transaction(draw.randrange(100), group=group)
            case 11:
                heartbeat = ConsumerGroupHeartbeatRequest(
                    group_id=draw.choice("ghk"),
                    member_id=draw.choice("mn"),
                    member_epoch=draw.choice((0, 0, -1)),
                    rebalance_timeout_ms=1_000,
                    subscribed_topic_names=["t"],
                    topic_partitions=[],
                )
                world.ask(heartbeat)
            case 12:
                shared = ShareGroupHeartbeatRequest(
                    group_id="s",
                    member_id=draw.choice("mn"),
                    member_epoch=draw.choice((0, 0, -1)),
                    subscribed_topic_names=["t"],
                )
                world.ask(shared, 1)
            case 10:
                world.end(group=group, commits=draw.random() < 0.5)
            case _:
                world.later(draw.choice((10, 5_000, 60_000)))
        if not world.holds:
            world.release()
    return world.effects


@pytest.fixture(scope="module")
def histories() -> list[list[Effect]]:
    config = GroupConfig(initial_rebalance_delay_ms=0, offsets_partitions=2)
    return [history(seed, World(config)) for seed in SEEDS]


def test_a_seed_has_the_same_effects_in_each_run(histories: list[list[Effect]]) -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, offsets_partitions=2)
    again = [history(seed, World(config)) for seed in SEEDS]
    assert again == histories
    assert repr(again) == repr(histories)
    assert histories[0] != histories[1]


def test_what_follows_an_append_is_in_its_effect_alone(histories: list[list[Effect]]) -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, offsets_partitions=2)
    assert [history(seed, PickledWorld(config)) for seed in SEEDS] == histories


def test_histories_have_every_kind_of_what_follows_an_append(histories: list[list[Effect]]) -> None:
    """Else the tests above would say nothing of the others."""
    found = {type(each.then) for effects in histories for each in effects if isinstance(each, Store)}
    assert found == {*get_args(AfterStore), type(None)}


def test_an_effect_cannot_be_changed() -> None:
    store = Store(0, 0, ((b"key", None),), AssignMembers("g", 1, "m", (("m", b"a"),)))
    with pytest.raises(AttributeError, match="immutable"):
        store.then.generation = 2  # type: ignore[misc,union-attr]
