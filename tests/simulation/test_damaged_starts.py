"""What recovery trusts it has checked: damaged_starts.py has the damages."""

from collections.abc import Callable

import pytest

from simulation.damaged_starts import simulations

STARTS = dict(simulations())


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_damage_is_reported_and_changes_nothing_else(start: Callable[[], None]) -> None:
    start()
