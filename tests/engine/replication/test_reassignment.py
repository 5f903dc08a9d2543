"""Reassignments: the targets that are refused, and the sets of replicas while a partition moves."""

import pytest

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.replication.reassignment import NO_MOVE, OngoingMove, fault, moved

LIVE = {1: 10, 2: 20, 3: 30}


@pytest.mark.parametrize("targets", [(), (1, 1), (2, 2), (1, 2, 1), (-1,), (1, -1), (1, -1, -1), (4,), (1, 4)], ids=str)
def test_targets_that_are_not_live_brokers_each_once_are_refused(targets: tuple[int, ...]) -> None:
    found = fault(targets, (1, 2), NO_MOVE, (1, 2), LIVE)
    assert found is not None
    assert found[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("targets", [(1,), (2, 1), (3,), (3, 1, 2)], ids=str)
def test_live_brokers_are_accepted_as_targets(targets: tuple[int, ...]) -> None:
    assert fault(targets, (1, 2), NO_MOVE, (1, 2), LIVE) is None


def test_a_dead_replica_may_stay_but_not_be_added() -> None:
    assert fault((1, 4), (1, 4), NO_MOVE, (1,), LIVE) is None
    assert fault((1, 4), (1, 2), NO_MOVE, (1,), LIVE) is not None


def test_the_only_replicas_in_sync_are_not_deleted() -> None:
    during = OngoingMove(adding=(3,), removing=(1,))
    assert fault((2,), (1, 2, 3), during, (3,), LIVE) is not None
    assert fault((2,), (1, 2, 3), during, (3, 2), LIVE) is None


def test_a_move_that_replaces_another_one_begins_at_the_first_replicas() -> None:
    replicas, move = moved((1, 2), NO_MOVE, (3,))
    assert (replicas, move) == ((3, 1, 2), OngoingMove((3,), (1, 2)))
    assert moved(replicas, move, (2, 4)) == ((2, 4, 1), OngoingMove((4,), (1,)))
