"""Balanced assignments: even, with as few copies as that takes, and stable."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest

from magicbyte.engine.errors import InvalidReplicationFactorError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.balance import balance

Assignment = Mapping[TopicPartition, Sequence[int]]


def topic(*replicas: Sequence[int], name: str = "t") -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(name, index): tuple(each) for index, each in enumerate(replicas)}


def copies(before: Assignment, after: Assignment) -> int:
    return sum(len(set(after[each]) - set(before[each])) for each in before)


def unevenness(assignment: Iterable[Sequence[int]]) -> int:
    loads = Counter(broker for replicas in assignment for broker in replicas)
    return sum(load * load for load in loads.values())


def test_what_is_balanced_stays_as_it_is() -> None:
    current = topic((1, 2), (2, 3), (3, 1))
    assert balance(current, [1, 2, 3]) == current


def test_a_broker_that_goes_gives_its_replicas_to_those_that_stay() -> None:
    assert balance(topic((1, 2), (2, 3), (3, 1)), [1, 2]) == topic((1, 2), (2, 1), (1, 2))


def test_a_new_broker_gets_its_share_and_nothing_else_is_copied() -> None:
    current = topic((1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1))
    found = balance(current, [1, 2, 3])
    assert Counter(broker for replicas in found.values() for broker in replicas) == {1: 4, 2: 4, 3: 4}
    assert Counter(replicas[0] for replicas in found.values()) == {1: 2, 2: 2, 3: 2}
    assert copies(current, found) == 4


def test_leaders_are_spread_without_a_copy() -> None:
    current = topic((1, 2, 3), (1, 2, 3), (1, 2, 3))
    found = balance(current, [1, 2, 3])
    assert sorted(replicas[0] for replicas in found.values()) == [1, 2, 3]
    assert copies(current, found) == 0


def test_topics_of_one_partition_are_spread_over_the_brokers() -> None:
    current = topic((1,), name="a") | topic((1,), name="b") | topic((1,), name="c")
    assert sorted(replicas[0] for replicas in balance(current, [1, 2, 3]).values()) == [1, 2, 3]


def test_each_topic_is_even_by_itself() -> None:
    current = topic((1,), (1,), name="a") | topic((2,), (2,), name="b")
    found = balance(current, [1, 2])
    for name in ("a", "b"):
        assert {replicas[0] for partition, replicas in found.items() if partition.topic == name} == {1, 2}


def test_the_replication_factor_may_grow_and_shrink() -> None:
    assert balance(topic((1, 2, 3)), [1, 2, 3], 1) == topic((1,))
    assert {frozenset(each) for each in balance(topic((3,)), [1, 2, 3], 3).values()} == {frozenset((1, 2, 3))}


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(InvalidReplicationFactorError, match="replication factor 2: there is one broker"):
        balance(topic((1, 2)), [1, 1])


def test_no_assignment_is_more_even_and_none_as_even_copies_less() -> None:
    random_numbers = random.Random(20)
    for _ in range(150):
        factor = random_numbers.randint(1, 3)
        brokers = random_numbers.sample(range(1, 6), random_numbers.randint(factor, min(5, factor + 2)))
        current = topic(*(random_numbers.sample(range(1, 6), factor) for _ in range(random_numbers.randint(1, 3))))
        every = itertools.product(*(itertools.combinations(brokers, factor) for _ in current))
        best = min((unevenness(each), copies(current, dict(zip(current, each, strict=True)))) for each in every)
        found = balance(current, brokers)
        assert (unevenness(found.values()), copies(current, found)) == best, current
        assert balance(found, brokers) == found, current
