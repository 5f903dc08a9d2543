"""Histories of a partition under faults: what is acknowledged stays, and replicas become equal again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from engine.replication.histories import History
from engine.replication.planted import PLANTED, Planted, in_place, seed_that_fails

MOST_SEEDS = 300  # after the first that found a fault when they were searched: the others are skipped
FOUND_BY = json.loads(Path(__file__).with_name("planted_figures.json").read_text())
FAULTS = (
    *("crash", "cut", "heal", "session lost", "isr conflict", "isr answer lost"),
    *("fetch answer lost", "fetch answer of another leader", "shutdown", "new controller"),
    *("stale controller", "controller ends at work", "tail lost", "retention", "out of range", "log restarted"),
)


@pytest.mark.parametrize("compares_epochs", [False, True], ids=["asks for epochs", "fetch compares epochs"])
@pytest.mark.parametrize("min_isr", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("seeds", [range(80), pytest.param(range(80, 200), marks=pytest.mark.slow)], ids=str)
def test_nothing_acknowledged_is_lost(compares_epochs: bool, min_isr: int, seeds: range) -> None:
    faults, acknowledged = Counter[str](), 0
    for seed in seeds:
        history = History(seed, compares_epochs=compares_epochs, min_isr=min_isr)
        history.run(400)
        faults += history.faults
        acknowledged += len(history.acknowledged)
    assert acknowledged > 2 * len(seeds)
    assert all(faults[each] > 2 for each in FAULTS), faults


def test_truncation_by_high_watermark_loses_records_as_before_leader_epochs() -> None:
    first = 230  # one of the first 300 seeds finds it
    assert seed_that_fails(range(first, first + MOST_SEEDS), asks_epochs=False) is not None


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_a_planted_fault_is_found(planted: Planted) -> None:
    first = FOUND_BY[str(planted)]
    with in_place(planted):
        assert seed_that_fails(range(first, first + MOST_SEEDS), **planted.options) is not None


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 100), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("compares_epochs", [False, True])
def test_nothing_is_lost_where_leaders_move_faster_than_followers_fetch(compares_epochs: bool, seeds: range) -> None:
    for seed in seeds:
        History(seed, compares_epochs=compares_epochs, storm=True).run(400)


def test_thirty_faults_and_more_are_planted_and_none_twice() -> None:
    assert len({str(each) for each in PLANTED}) == len(PLANTED) >= 30
