"""Histories of power failures and flipped bits prove themselves: they find each of these mistakes, made on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from magicbyte.engine.log.cleaning.scrub import Agreement
from magicbyte.engine.log.live import loading
from magicbyte.engine.log.live.group_commit import Round
from magicbyte.server.partitions import replica_fetchers, scrubbing
from magicbyte.testing.loop import StuckError
from simulation.plants import faults_of_plants
from simulation.power_histories import PowerHistory
from simulation.scrub_histories import ScrubHistory

Patch = pytest.MonkeyPatch
MOST_SEEDS = 40
PLANTED: dict[str, tuple[type[PowerHistory | ScrubHistory], int, Callable[[Patch], None]]] = {}
"""By name: the histories that find it, the first seed that does, and how it is planted."""


def planted(
    histories: type[PowerHistory | ScrubHistory], first_seed: int
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def take(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
        PLANTED[function.__name__] = histories, first_seed, function
        return function

    return take


@planted(PowerHistory, 0)
def an_acknowledgement_before_the_sync(patch: Patch) -> None:
    """Of leaders and followers: a round takes as long as it does, and syncs nothing."""
    patch.setattr(Round, "run", lambda _round: None)


@planted(PowerHistory, 0)
def a_follower_that_fetches_before_its_sync(patch: Patch) -> None:
    async def at_once(*_: Any) -> bool:
        return True

    patch.setattr(replica_fetchers._LeaderFetcher, "_is_durable", at_once)


@planted(ScrubHistory, 1)
def a_repair_that_is_not_made(patch: Patch) -> None:
    patch.setattr(scrubbing, "agreed", lambda *_: Agreement(None))


@planted(ScrubHistory, 60)
def a_recovery_that_cuts_committed_records(patch: Patch) -> None:
    """As Kafka's does: the replica that lost records may lead afterwards."""
    patch.setattr(loading, "_end_before", lambda *_: 1 << 62)


def finds(history: PowerHistory | ScrubHistory) -> bool:
    try:
        history.run()
    except (AssertionError, StuckError):
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: Patch, caplog: pytest.LogCaptureFixture) -> None:
    histories, first, plant = PLANTED[name]
    plant(monkeypatch)
    assert any(finds(histories(seed)) for seed in range(first, first + MOST_SEEDS))
    assert faults_of_plants(caplog.records) == []
