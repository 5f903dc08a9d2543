"""Who leads next: Kafka's elections, row by row."""

from __future__ import annotations

import pytest

from magicbyte.engine.replication import election
from magicbyte.engine.replication.state import PartitionState

STATE = PartitionState(1, 5, (1, 2, 3), 8)
REPLICAS = (1, 2, 3)


def after(leader: int, *isr: int) -> PartitionState:
    return PartitionState(leader, 6, isr, 9)


@pytest.mark.parametrize(
    ("live", "expected"), [((3, 2), PartitionState(2, 0, (2, 3), 9)), ((3,), PartitionState(3, 0, (3,), 9)), ((), None)]
)
def test_a_new_partition_is_led_by_the_first_live_replica(
    live: tuple[int, ...], expected: PartitionState | None
) -> None:
    assert election.first_state(REPLICAS, live, 9) == expected


@pytest.mark.parametrize(
    ("isr", "live", "unclean", "expected"),
    [
        ((3, 2), (2, 3), False, after(2, 3, 2)),  # in the order of the assignment, not of the in-sync replicas
        ((1, 3), (2, 3), False, after(3, 3)),
        ((1,), (2, 3), False, None),
        ((1,), (2, 3), True, after(2, 2)),
        ((1, 3), (2, 3), True, after(3, 3)),
        ((1,), (), True, None),
    ],
)
def test_the_leader_is_gone(
    isr: tuple[int, ...], live: tuple[int, ...], unclean: bool, expected: PartitionState | None
) -> None:
    state = PartitionState(1, 5, isr, 8)
    assert election.offline(state, REPLICAS, live, 9, unclean=unclean) == expected


@pytest.mark.parametrize(
    ("state", "live", "expected"),
    [
        (STATE, (1, 2, 3), None),
        (STATE, (1, 2), after(1, 1, 2)),
        (STATE, (2, 3), after(-1, 2, 3)),
        (PartitionState(1, 5, (1,), 8), (2, 3), after(-1, 1)),
        (PartitionState(-1, 5, (1,), 8), (2, 3), None),
    ],
)
def test_dead_brokers_leave_the_in_sync_replicas_but_the_last_one(
    state: PartitionState, live: tuple[int, ...], expected: PartitionState | None
) -> None:
    assert election.without_dead(state, (1, 2, 3), live, 9) == expected


def test_a_broker_that_is_no_longer_a_replica_leaves_the_isr_before_the_last_replica() -> None:
    state = PartitionState(1, 5, (1, 3), 8)
    assert election.without_dead(state, (1, 2), (2, 3), 9) == after(-1, 1)
    assert election.without_dead(PartitionState(3, 5, (3,), 8), (1, 2), (2,), 9) == after(-1, 3)


@pytest.mark.parametrize(
    ("replicas", "live", "isr", "expected"),
    [
        ((2, 1, 3), (1, 2, 3), (1, 2, 3), after(2, 1, 2, 3)),
        ((1, 2, 3), (1, 2, 3), (1, 2, 3), None),  # it leads
        ((2, 1, 3), (1, 3), (1, 2, 3), None),
        ((2, 1, 3), (1, 2, 3), (1, 3), None),
    ],
)
def test_the_preferred_leader(
    replicas: tuple[int, ...], live: tuple[int, ...], isr: tuple[int, ...], expected: PartitionState | None
) -> None:
    assert election.preferred(PartitionState(1, 5, isr, 8), replicas, live, 9) == expected


@pytest.mark.parametrize(
    ("targets", "live", "expected"),
    [
        ((4, 2), (1, 2, 4), after(2, 2)),  # 4 is not in sync
        ((3, 1), (1, 3), after(1, 1, 3)),  # the leader stays where it can
        ((3, 1), (3,), after(3, 1, 3)),
        ((4, 2), (1, 4), None),
    ],
)
def test_a_partition_is_confined_to_the_replicas_that_it_keeps(
    targets: tuple[int, ...], live: tuple[int, ...], expected: PartitionState | None
) -> None:
    assert election.confined(STATE, targets, live, 9) == expected


@pytest.mark.parametrize(
    ("isr", "shutting_down", "expected"),
    [
        ((1, 2, 3), {1}, after(2, 2, 3)),
        ((1, 2, 3), {1, 2}, after(3, 3)),
        ((1, 2, 3), {2}, after(1, 1, 3)),
        ((1,), {1}, None),
    ],
)
def test_a_broker_shuts_down(isr: tuple[int, ...], shutting_down: set[int], expected: PartitionState | None) -> None:
    state = PartitionState(1, 5, isr, 8)
    assert election.controlled_shutdown(state, REPLICAS, (1, 2, 3), shutting_down, 9) == expected


def test_a_follower_that_shuts_down_leaves_the_in_sync_replicas() -> None:
    assert election.shrunk(STATE, 3, 9) == after(1, 1, 2)
    assert election.shrunk(STATE, 4, 9) is None
    assert election.shrunk(PartitionState(-1, 5, (3,), 8), 3, 9) is None
