"""Crash simulations of one step each, with every cut within it: aimed.py says which, and what they are for."""

from collections.abc import Callable

import pytest

from simulation.aimed import AIMED

SLOW = ("compaction_of_several_segments_into_one", "a_close_and_a_new_start")


@pytest.mark.parametrize(
    "simulate",
    [pytest.param(each, id=name, marks=pytest.mark.slow if name in SLOW else ()) for name, each in AIMED.items()],
)
def test_every_state_after_a_cut_within_one_step_is_recovered(simulate: Callable[[], None]) -> None:
    simulate()
