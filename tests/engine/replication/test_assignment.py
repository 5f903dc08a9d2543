"""Who gets a new partition: the table of the comment in Kafka's AdminUtils, and rules of what may be assigned."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from magicbyte.engine.replication.assignment import assign, check_assignments, check_factor

TEN_ON_FIVE = """
p0 p1 p2 p3 p4
p5 p6 p7 p8 p9
p4 p0 p1 p2 p3
p8 p9 p5 p6 p7
p3 p4 p0 p1 p2
p7 p8 p9 p5 p6
"""
"""A column for each broker; two lines each of first, second, third replicas."""


def test_ten_partitions_of_three_replicas_go_to_five_brokers_as_in_kafka() -> None:
    expected: dict[int, list[int]] = {index: [] for index in range(10)}
    for line in TEN_ON_FIVE.split("\n")[1:-1]:
        for broker, partition in enumerate(line.split()):
            expected[int(partition[1:])].append(broker)
    assert assign(range(10), 3, range(5)) == expected


def test_later_partitions_continue_where_the_others_ended() -> None:
    whole = assign(range(20), 3, [4, 7, 9, 11], start=2, shift=1)
    assert assign(range(12, 20), 3, [4, 7, 9, 11], start=2, shift=1) == {at: whole[at] for at in range(12, 20)}
    assert Counter(each[0] for each in whole.values()) == dict.fromkeys([4, 7, 9, 11], 5)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_what_is_assigned_may_be(factor: int) -> None:
    brokers = [3, 5, 8]
    check_factor(factor, brokers)
    check_assignments(assign(range(7), factor, brokers, start=1), range(7), brokers)


@pytest.mark.parametrize(
    ("factor", "brokers", "told"),
    [(0, [1], "there is one broker"), (2, [1], "there is one broker"), (4, [1, 2, 3], "there are 3 brokers")],
)
def test_more_replicas_than_brokers_are_refused(factor: int, brokers: list[int], told: str) -> None:
    with pytest.raises(InvalidReplicationFactorError, match=f"replication factor {factor}: {told}"):
        check_factor(factor, brokers)


@pytest.mark.parametrize(
    ("assignments", "told"),
    [
        ({0: [1]}, r"expected brokers of each partition, found those of \[0\]"),
        ({0: [1], 2: [1]}, r"found those of \[0, 2\]"),
        ({0: [1], 1: []}, r"partition 1: expected 1 of the brokers 1, 2, each once, found \[\]"),
        ({0: [], 1: []}, r"partition 0: expected 1 of"),
        ({0: [1, 2], 1: [1]}, r"partition 1: expected 2 of"),
        ({0: [1, 1], 1: [1, 2]}, r"partition 0: .* found \[1, 1\]"),
        ({0: [1], 1: [3]}, r"partition 1: .* found \[3\]"),
    ],
)
def test_assignments_that_cannot_be_are_refused(assignments: dict[int, list[int]], told: str) -> None:
    with pytest.raises(InvalidReplicaAssignmentError, match=told):
        check_assignments(assignments, range(2), [1, 2])


RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_racks_take_turns() -> None:
    """The example of Kafka's AdminUtils."""
    assert assign(range(7), 3, sorted(RACKS), racks=RACKS) == {
        0: [0, 3, 1],
        1: [3, 1, 5],
        2: [1, 5, 4],
        3: [5, 4, 2],
        4: [4, 2, 0],
        5: [2, 0, 3],
        6: [0, 4, 2],
    }


@given(
    racks=st.dictionaries(st.integers(0, 40), st.sampled_from("abc"), min_size=1, max_size=12),
    start=st.integers(0, 11),
    shift=st.integers(0, 11),
    data=st.data(),
)
def test_no_rack_has_two_replicas_while_another_has_none(
    racks: dict[int, str], start: int, shift: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    brokers = sorted(racks)
    for found in assign(range(20), factor, brokers, start=start, shift=shift, racks=racks).values():
        assert len(set(found)) == factor
        assert len({racks[each] for each in found}) == min(factor, len(set(racks.values())))
