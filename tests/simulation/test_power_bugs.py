"""The histories of power failures prove themselves: each of these mistakes, made on purpose, is found by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from magicbyte.engine.log.live.group_commit import Round
from magicbyte.server.partitions import replica_fetchers
from magicbyte.testing.loop import StuckError
from simulation.plants import faults_of_plants
from simulation.power_histories import PowerHistory

Patch = pytest.MonkeyPatch
MOST_SEEDS = 40
PLANTED: dict[str, tuple[int, Callable[[Patch], None]]] = {}
"""By name: the first seed that finds it, and how it is planted."""


def planted(first_seed: int) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def take(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
        PLANTED[function.__name__] = first_seed, function
        return function

    return take


@planted(0)
def an_acknowledgement_before_the_sync(patch: Patch) -> None:
    """Of leaders and followers: a round takes as long as it does, and syncs nothing."""
    patch.setattr(Round, "run", lambda _round: None)


@planted(0)
def a_follower_that_fetches_before_its_sync(patch: Patch) -> None:
    async def at_once(*_: Any) -> bool:
        return True

    patch.setattr(replica_fetchers._LeaderFetcher, "_is_durable", at_once)


def finds(seed: int) -> bool:
    try:
        PowerHistory(seed).run()
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
