"""Random histories of a consumer group: members join, leave, stall, lose answers and lie, topics change, terms end.

At no time do two members own a partition, and in the end each partition has one owner. Every planted bug is found.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.groups.world import World
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.config import GroupConfig
from magicbyte.engine.groups.consumer import heartbeat, reconciliation
from magicbyte.engine.groups.consumer.config import RANGE, UNIFORM, ConsumerConfig
from magicbyte.engine.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from magicbyte.engine.groups.consumer.records import GroupRecord
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)

SEEDS, STEPS = 60, 150
REJOINS = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
LATER = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
Place = tuple[uuid.UUID, int]


@dataclass
class Member:
    """A client: it owns what it was given, and stops owning what is gone from its assignment at a later heartbeat."""

    name: str
    topics: list[str]
    assignor: str | None
    epoch: int = 0
    owned: set[Place] = field(default_factory=set)
    wanted: set[Place] = field(default_factory=set)
    is_sure: bool = False  # the last answer has arrived


class History:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        config = ConsumerConfig(assignment_interval_ms=self.draw.choice((0, 1000)))
        self.world = World(GroupConfig(offsets_partitions=1, consumer=config))
        self.members: list[Member] = []
        self.made = 0

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
            self.check()
        self.settle()

    def step(self) -> None:
        draw, world = self.draw, self.world
        world.append_code = ErrorCode.NOT_ENOUGH_REPLICAS if draw.random() < 0.05 else ErrorCode.NONE
        match draw.randrange(20):
            case 0 | 1 if len(self.members) < 5:
                self.join()
            case 2 if self.members:
                member = draw.choice(self.members)
                if not self.ask(member, -1).error_code:
                    self.members.remove(member)
            case 3 if self.members:
                self.members.remove(draw.choice(self.members))  # it is gone without a word
            case 4:
                world.later(draw.choice((100, 1_000, 6_000, 50_000)))
            case 5:
                world.topics.set(draw.choice("tu"), draw.randrange(1, 9))
            case 6:
                world.load(0)
            case _ if self.members:
                self.beat(draw.choice(self.members), hears=draw.random() < 0.8)

    def join(self) -> None:
        draw = self.draw
        self.made += 1
        topics = draw.choice((["t"], ["t", "u"], ["u"]))
        self.members.append(Member(f"m{self.made}", topics, draw.choice((None, UNIFORM, RANGE))))
        self.beat(self.members[-1])

    def ask(self, member: Member, epoch: int) -> Any:
        by_topic: dict[uuid.UUID, list[int]] = {}
        for topic, partition in sorted(member.owned):
            by_topic.setdefault(topic, []).append(partition)
        owned = [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic, partitions=tuple(those))
            for topic, those in by_topic.items()
        ]
        is_full = epoch == 0 or not member.is_sure
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member.name,
            member_epoch=epoch,
            rebalance_timeout_ms=5_000 if is_full else -1,
            subscribed_topic_names=member.topics if is_full else None,
            server_assignor=member.assignor if is_full else None,
            topic_partitions=owned,
        )
        answer = self.world.ask(request).answer
        assert answer is not None
        return answer

    def beat(self, member: Member, *, hears: bool = True) -> None:
        member.owned &= member.wanted  # it has stopped reading the others
        answer = self.ask(member, member.epoch)
        if not hears:
            member.is_sure = False
            return
        code = ErrorCode(answer.error_code)
        if code in REJOINS:
            self.made += 1
            member.name, member.epoch, member.is_sure = f"m{self.made}", 0, False
            member.owned, member.wanted = set(), set()
            return
        if code:
            assert code in LATER, code
            member.is_sure = False
            return
        member.epoch, member.is_sure = answer.member_epoch, True
        if answer.assignment is not None:
            member.wanted = {
                (each.topic_id, partition)
                for each in answer.assignment.topic_partitions
                for partition in each.partitions
            }
            member.owned |= member.wanted

    def check(self) -> None:
        """No partition is owned by two of those whose sessions last."""
        group = self.world.coordinator.consumers.get("g")
        owners: dict[Place, str] = {}
        for member in self.members:
            if group is not None and member.name in group.subscribers:
                for place in member.owned & member.wanted:
                    other = owners.setdefault(place, member.name)
                    assert other == member.name, f"{place} is owned by {other} and {member.name}"

    def settle(self) -> None:
        """Let all members follow; then each partition of a subscribed topic has one owner."""
        self.world.append_code = ErrorCode.NONE
        if not self.members:
            self.join()
        for _ in range(30):
            self.world.later(2_000)
            for member in self.members:
                self.beat(member)
                self.check()
        group = self.world.coordinator.consumers["g"]
        assert set(group.subscribers) == {member.name for member in self.members}
        assert group.state is ConsumerGroupState.STABLE
        expected = set[Place]()
        for name in {name for member in self.members for name in member.topics}:
            topic = self.world.topics.topics[name]
            expected |= {(topic.id, partition) for partition in range(topic.partitions)}
        owned = [place for member in self.members for place in member.owned]
        assert sorted(owned) == sorted(expected)
        for member in self.members:
            topics = {self.world.topics.topics[name].id for name in member.topics}
            assert {topic for topic, _ in member.owned} <= topics


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_partition_has_one_owner_at_most_and_in_the_end_one(seed: int) -> None:
    History(seed).run()


# ---- planted bugs


def run_all() -> None:
    for seed in range(SEEDS):
        History(seed).run()


def _all_is_free(self: ConsumerGroup, topic: uuid.UUID, partition: int, member_id: str) -> bool:
    return True


def _revoked_at_once(held: object, owned: object) -> bool:
    return False


replay, assign = ConsumerGroup.replay, heartbeat.assign


def _keeps_owners(self: ConsumerGroup, record: GroupRecord) -> None:
    before = dict(self.owners)
    replay(self, record)
    self.owners = {**before, **self.owners}


def _no_owners(self: ConsumerGroup, record: GroupRecord) -> None:
    replay(self, record)
    self.owners.clear()


def _same_hash(topics: object, names: object) -> int:
    return 1


def _any_epoch(owned: object, progress: object) -> bool:
    return True


def _no_expiry(*arguments: object) -> list[Any]:
    return []


def _no_removal(table: Any, group: ConsumerGroup, member_ids: list[str]) -> tuple[list[Any], None]:
    return [record for each in member_ids for record in group.deletion_of_member(each)], None


def _first_alone(name: str, members: Any, counts: Any) -> dict[str, Any]:
    given = assign(name, members, counts)
    return {member_id: target if index else {} for index, (member_id, target) in enumerate(given.items())}


def _twice(name: str, members: Any, counts: Any) -> dict[str, Any]:
    given = assign(name, members, counts)
    every = {topic: tuple(range(count)) for topic, count in counts.items()}
    return dict.fromkeys(given, every)


BUGS: list[tuple[str, object, str, Callable[..., Any]]] = [
    ("a partition of another member is free", ConsumerGroup, "is_free", _all_is_free),
    ("a client need not stop owning", reconciliation, "owns_some", _revoked_at_once),
    ("a partition stays with its former owner", ConsumerGroup, "replay", _keeps_owners),
    ("owners are not known", ConsumerGroup, "replay", _no_owners),
    ("changes of topics are not seen", heartbeat, "metadata_hash", _same_hash),
    ("a member without heartbeats stays", heartbeat, "extend_session", _no_expiry),
    ("a removal begins no epoch", heartbeat, "removal", _no_removal),
    ("an assignor leaves partitions out", heartbeat, "assign", _first_alone),
    ("an assignor gives partitions twice", heartbeat, "assign", _twice),
]


@pytest.mark.parametrize(("what", "where", "name", "bug"), BUGS, ids=[each[0] for each in BUGS])
def test_a_planted_bug_is_found(
    what: str, where: object, name: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, bug)
    with pytest.raises((AssertionError, KeyError)):
        run_all()
