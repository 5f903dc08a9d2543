"""Bits of one replica flip under faults: nothing is lost, and everything is repaired."""

from __future__ import annotations

import pytest

from builders import first_of
from simulation.scrub_histories import FEWEST_FLIPS, ScrubHistory


def test_bits_that_flip_on_one_broker_are_repaired() -> None:
    history = ScrubHistory(7)
    history.run()
    assert len(history.acknowledged) > 20
    assert len(history.flips) >= FEWEST_FLIPS


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_of(range(100, 160), 6))
def test_more_of_them(seed: int) -> None:
    ScrubHistory(seed).run()
