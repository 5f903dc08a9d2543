"""Every order of messages and faults of one small model: `replication_model.py` has it, and what must hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulation.run_exhaustive import KNOWN_LOSSES, PLANTED, SOUND, Plan, find

FIGURES = Path(__file__).with_name("exhaustive_figures.json")
QUICK = 1.0
"""Core seconds up to which a planted bug is searched in each run."""
RECORDED = json.loads(FIGURES.read_text())


def test_no_order_of_one_record_and_one_fault_breaks_a_promise() -> None:
    found = Plan("2.8", 1, 1).run()
    assert (found.broken, found.is_complete) == ("", True)
    assert sum(found.states) > 5_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two records", "two records, followers ask for epochs"])
def test_no_order_of_two_records_and_one_fault_breaks_a_promise(name: str) -> None:
    found = SOUND[name].run()
    assert (found.broken, found.is_complete) == ("", True)
    assert sum(found.states) == RECORDED["sound"][name]["states"]


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN_LOSSES)
def test_a_loss_that_is_documented_is_found(name: str) -> None:
    found = KNOWN_LOSSES[name].run()
    assert (found.broken, found.trace) == (
        RECORDED["knownLosses"][name]["broken"],
        RECORDED["knownLosses"][name]["trace"],
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if RECORDED["plantedBugs"][name]["coreSeconds"] < QUICK else pytest.mark.slow)
        for name in PLANTED
    ],
)
def test_a_planted_bug_is_found_by_the_shortest_trace(name: str) -> None:
    found = find(name)
    assert (found.broken, found.trace) == (
        RECORDED["plantedBugs"][name]["broken"],
        RECORDED["plantedBugs"][name]["trace"],
    )


def test_recorded_explorations_are_complete_and_break_no_promise() -> None:
    assert RECORDED["sound"].keys() == SOUND.keys()
    assert not any("broken" in each for each in RECORDED["sound"].values())
