"""Histories of a whole cluster are sound, and repeat exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders import first_of
from simulation.cluster_histories import History
from simulation.run_cluster_histories import Figures

FIGURES = Path(__file__).with_name("cluster_figures.json")


@pytest.mark.parametrize(
    ("protocol", "seed"),
    [pytest.param("0.11.0", 1, marks=pytest.mark.slow), ("1.1", 2), pytest.param("2.4", 3, marks=pytest.mark.slow)],
)
def test_nothing_acknowledged_is_lost_and_everything_heals(protocol: str, seed: int) -> None:
    history = History(seed, protocol=protocol)
    history.run()
    assert len(history.acknowledged) > 20
    assert sum(history.faults.values()) >= 5


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "seed"), [("0.11.0", 3313), ("0.11.0", 3651), ("1.1", 14674), ("1.1", 24610)])
def test_a_follower_that_missed_elections_heals_although_its_leader_cannot_see_it(protocol: str, seed: int) -> None:
    """It appended records of later epochs to a log that had parted from the leader's below (KIP-320)."""
    history = History(seed, sends=100)
    history.run()
    assert history.protocol == protocol


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_of(range(100), 10))
def test_more_of_them(seed: int) -> None:
    History(seed).run()


def test_a_history_of_a_cluster_repeats_exactly() -> None:
    digests = []
    for _ in range(2):
        history = History(4, sends=20, protocol="2.4")
        history.run()
        digests.append((history.world.digest(), history.events, len(history.recorder.history)))
    assert digests[0] == digests[1]


def test_figures_are_added_to_run_by_run_and_a_seed_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    for expected in (0, 1):
        figures = Figures(path)
        assert figures.next_seed == expected
        figures.begin(expected, expected + 9, sends=10, protocol=None)
        history = History(expected, sends=10)
        history.run()
        figures.add(history, 0.5)
        figures.save()
    found = json.loads(path.read_text())
    assert found["histories"] == 2
    assert [(each["firstSeed"], each["lastSeed"], each["cpuSeconds"]) for each in found["runs"]] == [
        (0, 0, 0.5),
        (1, 1, 0.5),
    ]
    assert found["leastFaults"] >= 5
    figures = Figures(path)
    with pytest.raises(ValueError, match="recorded already"):
        figures.begin(1, 1)
    figures.failed["1"] = "why"
    figures.mend(1)
    figures.save()
    assert json.loads(path.read_text())["failed"] == {}
    assert json.loads(path.read_text())["mended"]["1"]["failed"] == "why"


def test_recorded_histories_are_long_meet_faults_and_are_sound() -> None:
    found = json.loads(FIGURES.read_text())
    assert found["histories"] == sum(each["lastSeed"] - each["firstSeed"] + 1 for each in found["runs"]) >= 1750
    assert found["leastOperations"] >= 200
    assert found["leastFaults"] >= 5
    assert found["failed"] == {}
