"""After a power failure of the whole cluster each setting keeps what it promises."""

from __future__ import annotations

import pytest

from builders import first_of
from simulation.power_histories import FEWEST_FAILURES, PowerHistory, Setting


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
