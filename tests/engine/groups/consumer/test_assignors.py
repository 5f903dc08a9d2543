"""The assignors: range exactly as Kafka's, uniform with its loads and as few moves as possible."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.groups.consumer.assignors import AssignedMember, assign
from magicbyte.engine.groups.consumer.config import RANGE, UNIFORM
from magicbyte.engine.groups.consumer.members import Partitions

IDS = {name: uuid.uuid5(uuid.NAMESPACE_URL, name) for name in ("t7", "t3", "t6", "t1")}
COUNTS = {IDS[name]: int(name[1]) for name in IDS}
MIXED = {"0": ("t7", "t3"), "1": ("t7", "t6"), "2": ("t3", "t6"), "3": ("t1",)}


def members(
    subscriptions: dict[str, tuple[str, ...]], targets: dict[str, Partitions] | None = None
) -> dict[str, AssignedMember]:
    return {
        member_id: AssignedMember(None, frozenset(IDS[name] for name in topics), (targets or {}).get(member_id, {}))
        for member_id, topics in subscriptions.items()
    }


def named(assignment: dict[str, Partitions]) -> dict[str, dict[str, tuple[int, ...]]]:
    names = {topic: name for name, topic in IDS.items()}
    return {
        member_id: {names[topic]: partitions for topic, partitions in target.items()}
        for member_id, target in assignment.items()
    }


def size(target: Partitions) -> int:
    return sum(map(len, target.values()))


def test_range_gives_consecutive_partitions_in_the_order_of_ids() -> None:
    found = named(assign(RANGE, members(dict.fromkeys("dbca", ("t7", "t3"))), COUNTS))
    assert found == {
        "a": {"t7": (0, 1), "t3": (0,)},
        "b": {"t7": (2, 3), "t3": (1,)},
        "c": {"t7": (4, 5), "t3": (2,)},
        "d": {"t7": (6,)},
    }


def test_range_puts_static_members_first() -> None:
    those = members({"a": ("t3",), "b": ("t3",)})
    those["b"] = AssignedMember("i", those["b"].topics, {})
    assert named(assign(RANGE, those, COUNTS)) == {"a": {"t3": (2,)}, "b": {"t3": (0, 1)}}


def test_range_of_different_subscriptions() -> None:
    assert named(assign(RANGE, members(MIXED), COUNTS)) == {
        "0": {"t7": (0, 1, 2, 3), "t3": (0, 1)},
        "1": {"t7": (4, 5, 6), "t6": (0, 1, 2)},
        "2": {"t3": (2,), "t6": (3, 4, 5)},
        "3": {"t1": (0,)},
    }


def test_uniform_of_different_subscriptions_of_members_that_joined_one_by_one() -> None:
    subscriptions: dict[str, tuple[str, ...]] = {}
    target: dict[str, Partitions] = {}
    for member_id, topics in MIXED.items():
        subscriptions[member_id] = topics
        target = assign(UNIFORM, members(subscriptions, target), COUNTS)
    assert {member_id: size(each) for member_id, each in target.items()} == {"0": 5, "1": 5, "2": 6, "3": 1}
    assert named(target) == {
        "0": {"t7": (0, 1, 2, 3), "t3": (0,)},
        "1": {"t7": (4, 5, 6), "t6": (0, 1)},
        "2": {"t3": (1, 2), "t6": (2, 3, 4, 5)},
        "3": {"t1": (0,)},
    }


def test_uniform_moves_only_what_it_must() -> None:
    target: dict[str, Partitions] = {}
    loads = []
    for count in (1, 2, 3, 4):
        ids = [f"m{number}" for number in range(count)]
        before = target
        target = assign(UNIFORM, members(dict.fromkeys(ids, ("t7",)), target), COUNTS)
        loads.append(sorted(map(size, target.values()), reverse=True))
        for member_id in before:
            kept = set(target[member_id].get(IDS["t7"], ())) - set(before[member_id].get(IDS["t7"], ()))
            assert not kept, "a member gets nothing while it loses something"
    assert loads == [[7], [4, 3], [3, 2, 2], [2, 2, 2, 1]]


@pytest.mark.parametrize("assignor", [RANGE, UNIFORM])
@given(data=st.data())
def test_every_partition_goes_to_one_subscriber(assignor: str, data: st.DataObject) -> None:
    names = st.lists(st.sampled_from([*IDS, "t1"]), max_size=4, unique=True)
    target: dict[str, Partitions] = {}
    for _ in range(3):
        subscriptions = data.draw(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), names, min_size=1))
        those = members({member_id: tuple(topics) for member_id, topics in subscriptions.items()}, target)
        target = assign(assignor, those, COUNTS)
        wanted = {name for topics in subscriptions.values() for name in topics}
        places = [
            (topic, partition) for each in target.values() for topic, numbers in each.items() for partition in numbers
        ]
        assert sorted(places) == sorted((IDS[name], number) for name in wanted for number in range(COUNTS[IDS[name]]))
        assert target.keys() == subscriptions.keys()
        for member_id, each in target.items():
            assert each.keys() <= those[member_id].topics
        if assignor == UNIFORM and len({each.topics for each in those.values()}) == 1:
            loads = [size(each) for each in target.values()]
            assert max(loads) - min(loads) <= 1
