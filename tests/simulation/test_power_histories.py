"""After a power failure of the whole cluster each setting keeps what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders import first_of
from simulation.power_histories import FEWEST_FAILURES, PowerHistory, Setting

FIGURES = Path(__file__).with_name("power_figures.json")


@pytest.mark.parametrize(
    ("setting", "seed"),
    [(Setting.GROUP_COMMIT, 1), *(pytest.param(each, 1, marks=pytest.mark.slow) for each in list(Setting)[1:])],
)
def test_a_setting_keeps_its_promise_when_the_power_of_all_brokers_fails(setting: Setting, seed: int) -> None:
    history = PowerHistory(seed, setting)
    history.run()
    assert len(history.answers) > 20
    assert len(history.power_failures) >= FEWEST_FAILURES


@pytest.mark.slow
@pytest.mark.parametrize("setting", Setting)
@pytest.mark.parametrize("seed", first_of(range(100, 160), 6))
def test_more_of_them(setting: Setting, seed: int) -> None:
    PowerHistory(seed, setting).run()


@pytest.mark.slow
def test_a_disk_that_lies_loses_records_if_its_broker_leads_first() -> None:
    history = PowerHistory(4, Setting.LYING_DISK, liar_first=True)
    history.run()
    assert history.lost


def test_recorded_histories_lost_only_what_their_setting_may_lose() -> None:
    found = json.loads(FIGURES.read_text())
    assert found.keys() == {"groupCommit", "kafka", "lyingDisk", "bitFlips"}
    assert all(each["histories"] >= 10 and not each["failed"] for each in found.values())
    assert found["groupCommit"]["powerFailures"] >= 250
    assert found["groupCommit"]["lostRecords"] == found["lyingDisk"]["lostRecords"] == 0
    assert found["kafka"]["lostRecords"] > 0
