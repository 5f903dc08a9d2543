"""Bits of one replica flip under faults: nothing is lost, and everything is repaired."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builders import first_of
from magicbyte.engine.log.cleaning.scrub import Agreement
from magicbyte.engine.log.live import loading
from magicbyte.server.partitions import scrubbing
from magicbyte.testing.loop import StuckError
from simulation.plants import faults_of_plants
from simulation.scrub_histories import FEWEST_FLIPS, ScrubHistory

Patch = pytest.MonkeyPatch
MOST_SEEDS = 20
PLANTED: dict[str, tuple[int, Callable[[Patch], None]]] = {}
"""By name: the first seed that finds it, and how it is planted."""


def planted(first_seed: int) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def take(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
        PLANTED[function.__name__] = first_seed, function
        return function

    return take


@planted(1)
def a_repair_that_is_not_made(patch: Patch) -> None:
    patch.setattr(scrubbing, "agreed", lambda *_: Agreement(None))


@planted(18)
def a_recovery_that_cuts_what_was_committed(patch: Patch) -> None:
    """As Kafka's does: the replica that lost records may lead afterwards."""
    patch.setattr(loading, "_end_before", lambda *_: 1 << 62)


def finds(seed: int) -> bool:
    try:
        ScrubHistory(seed).run()
    except (AssertionError, StuckError):
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: Patch, caplog: pytest.LogCaptureFixture) -> None:
    first, plant = PLANTED[name]
    plant(monkeypatch)
    assert any(finds(seed) for seed in range(first, first + MOST_SEEDS))
    assert faults_of_plants(caplog.records) == []


def test_bits_that_flip_on_one_broker_are_repaired() -> None:
    history = ScrubHistory(7)
    history.run()
    assert len(history.acknowledged) > 20
    assert len(history.flips) >= FEWEST_FLIPS


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_of(range(100, 160), 6))
def test_more_of_them(seed: int) -> None:
    ScrubHistory(seed).run()
