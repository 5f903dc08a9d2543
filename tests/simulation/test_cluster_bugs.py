"""The histories of clusters prove themselves: each of these mistakes, made on purpose, is found by them.

Known ones of Kafka's past are among them: KIP-101's lost records and diverging logs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from magicbyte.engine.replication import election, fetcher
from magicbyte.engine.replication.leader import LeaderPartition
from magicbyte.engine.replication.state import PartitionState
from magicbyte.engine.replication.truncation import Truncation
from magicbyte.server.apis import fetch
from magicbyte.testing.loop import StuckError
from simulation.cluster_histories import History
from simulation.plants import faults_of_plants

Patch = pytest.MonkeyPatch
MOST_SEEDS = 40
PLANTED: dict[str, tuple[str, int, Callable[[Patch], None]]] = {}
"""By name: the protocol, the first seed that finds it, and how it is planted."""


def planted(protocol: str, first_seed: int) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def take(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
        PLANTED[function.__name__] = protocol, first_seed, function
        return function

    return take


@planted("2.8", 6)
def a_leader_that_acknowledges_what_it_alone_has(patch: Patch) -> None:
    def advance(self: LeaderPartition, now_ms: int) -> bool:
        before, self.high_watermark = self.high_watermark, self.log_end_offset
        return self.high_watermark > before

    patch.setattr(LeaderPartition, "_advance", advance)


@planted("2.4", 5)
def a_follower_that_does_not_cut_where_logs_diverge(patch: Patch) -> None:
    def nowhere(*_: Any, log_end_offset: int, **__: Any) -> Truncation:
        return Truncation(log_end_offset)

    patch.setattr(fetcher, "by_leader_epoch", nowhere)


@planted("0.10.2", 72)
def truncation_by_the_high_watermark_which_is_kip_101(_patch: Patch) -> None:
    """What brokers before 0.11 do."""


@planted("2.8", 15)
def a_leader_that_does_not_tell_where_logs_diverge(patch: Patch) -> None:
    patch.setattr(fetch, "_diverging", lambda *_: None)


@planted("2.8", 7)
def an_election_of_any_replica_that_lives(patch: Patch) -> None:
    real = election.offline

    def offline(state: PartitionState, replicas: Any, live: Any, epoch: int, *, unclean: bool) -> Any:
        return real(replace(state, isr=()), replicas, live, epoch, unclean=True)

    patch.setattr(election, "offline", offline)


@planted("2.8", 163)
def a_deposed_leader_that_keeps_acknowledging(patch: Patch) -> None:
    real = LeaderPartition.isr_refused

    def isr_refused(self: LeaderPartition, change: Any, found: Any, version: int, now_ms: int) -> bool:
        told = real(self, change, found, version, now_ms)
        if self.is_deposed:
            self.is_deposed, self.state = False, change.state
            return self._advance(now_ms)
        return told

    patch.setattr(LeaderPartition, "isr_refused", isr_refused)


def finds(seed: int, protocol: str) -> bool:
    try:
        History(seed, protocol=protocol).run()
    except (AssertionError, StuckError):
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: Patch, caplog: pytest.LogCaptureFixture) -> None:
    protocol, first, plant = PLANTED[name]
    plant(monkeypatch)
    assert any(finds(seed, protocol) for seed in range(first, first + MOST_SEEDS))
    assert faults_of_plants(caplog.records) == []
