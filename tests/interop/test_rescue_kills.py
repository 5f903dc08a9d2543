"""Rescues into real brokers that are killed: a few in each run, and what a campaign found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interop.run_rescue_kills import killed_rescues
from interop.test_rescue_backups import TARGETS

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

FIGURES = Path(__file__).with_name("rescue_kill_figures.json")


@pytest.mark.parametrize(
    "version", [pytest.param(each, marks=[] if each == TARGETS[-1] else pytest.mark.campaign) for each in TARGETS]
)
def test_a_killed_rescue_continues_without_duplicates(version: str, tmp_path: Path) -> None:
    found = killed_rescues(version, tmp_path, kills=3)
    assert found.killed == 3
    assert found.wrong == {}


def test_the_recorded_kills_lost_nothing_and_wrote_nothing_twice() -> None:
    found = json.loads(FIGURES.read_text(encoding="utf-8"))
    assert found.keys() == set(TARGETS)
    for figures in found.values():
        assert figures["kills"] == sum(figures["killsByStep"].values()) >= 20
        assert figures["killsByStep"].keys() >= {"unpack", "salvage", "convert", "produce"}
        assert figures["wrong"] == {}
