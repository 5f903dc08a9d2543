"""Crash simulations of one step each, with every cut within it: aimed.py says which, and what they are for."""

from collections.abc import Callable

import pytest

from simulation.aimed import AIMED


@pytest.mark.parametrize("simulate", AIMED.values(), ids=AIMED)
def test_whatever_a_cut_within_one_step_leaves_is_mended(simulate: Callable[[], None]) -> None:
    simulate()
