"""Histories of a whole cluster are sound, and repeat exactly."""

from __future__ import annotations

import pytest

from simulation.cluster_histories import History


@pytest.mark.parametrize(("protocol", "seed"), [("0.11.0", 1), ("1.1", 2), ("2.4", 3)])
def test_nothing_acknowledged_is_lost_and_everything_heals(protocol: str, seed: int) -> None:
    history = History(seed, protocol=protocol)
    history.run()
    assert len(history.acknowledged) > 20
    assert sum(history.faults.values()) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_more_of_them(seed: int) -> None:
    History(seed).run()


def test_a_history_of_a_cluster_repeats_exactly() -> None:
    digests = []
    for _ in range(2):
        history = History(4, sends=60, protocol="2.4")
        history.run()
        digests.append((history.world.digest(), history.events, len(history.recorder.history)))
    assert digests[0] == digests[1]
