"""Histories of a partition under faults: what is acknowledged stays, and replicas become equal again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from magicbyte.ports import TopicPartition
from magicbyte.replication import fetcher
from magicbyte.replication.fetcher import Fetcher
from magicbyte.replication.leader import IsrChange, LeaderPartition
from magicbyte.replication.state import PartitionState
from magicbyte.replication.truncation import EpochEnd, Truncation
from replication.histories import History

SEEDS = range(260)
FAULTS = (
    *("crash", "cut", "heal", "session lost", "isr conflict", "isr answer lost"),
    *("fetch answer lost", "fetch answer of another leader", "shutdown", "new controller"),
)


@pytest.mark.parametrize("compares_epochs", [False, True], ids=["asks for epochs", "fetch compares epochs"])
@pytest.mark.parametrize("min_isr", [1, 2])
def test_nothing_acknowledged_is_lost(compares_epochs: bool, min_isr: int) -> None:
    faults, acknowledged = Counter[str](), 0
    for seed in SEEDS:
        history = History(seed, compares_epochs=compares_epochs, min_isr=min_isr)
        history.run(400)
        faults += history.faults
        acknowledged += len(history.acknowledged)
    assert acknowledged > 2 * len(SEEDS)
    assert all(faults[each] > 20 for each in FAULTS), faults


def run_all(*, asks_epochs: bool) -> None:
    for seed in range(1000):  # it ends with the first that fails
        History(seed, asks_epochs=asks_epochs).run(400)


def test_truncation_by_high_watermark_loses_records_as_before_leader_epochs() -> None:
    with pytest.raises(AssertionError, match=r"was acknowledged|are equal"):
        run_all(asks_epochs=False)


def high_watermark_without_followers(self: LeaderPartition, _now_ms: int) -> bool:
    advanced = self.log_end_offset > self.high_watermark
    self.high_watermark = max(self.high_watermark, self.log_end_offset)
    return advanced


def high_watermark_without_pending(self: LeaderPartition, _now_ms: int) -> bool:
    ends = [self.followers[each].log_end_offset for each in self.state.isr if each in self.followers]
    smallest = min([self.log_end_offset, *ends])
    advanced = smallest > self.high_watermark
    self.high_watermark = max(self.high_watermark, smallest)
    return advanced


def expansion_at_any_offset(self: LeaderPartition, follower_id: int) -> IsrChange | None:
    return self._change((*self.state.isr, follower_id)) if follower_id not in self.state.isr else None


def failure_means_not_written(self: LeaderPartition, change: IsrChange) -> None:
    if change is self._pending:
        self._pending = None


def failure_means_written(self: LeaderPartition, change: IsrChange) -> None:
    self.isr_written(change, change.expected_version + 1, 0)


def conflict_adopts_any_state(
    self: LeaderPartition, change: IsrChange, found: PartitionState, version: int, now_ms: int
) -> bool:
    if change is self._pending:
        self.state, self.version, self._pending = found, version, None
    return self._advance(now_ms)


def deposed_leader_goes_on(
    self: LeaderPartition, change: IsrChange, found: PartitionState, version: int, now_ms: int
) -> bool:
    advanced = REFUSED(self, change, found, version, now_ms)
    self.is_deposed = False
    return self._advance(now_ms) or advanced


def offset_of_the_answer_is_acknowledged(
    self: LeaderPartition, follower_id: int, _offset: int, start: int, now_ms: int
) -> bool:
    return FETCHED(self, follower_id, self.log_end_offset, start, now_ms)


def truncation_by_the_leader_alone(
    answer: EpochEnd, _own_end_of: Callable[[int], EpochEnd], *, log_end_offset: int, high_watermark: int
) -> Truncation:
    return Truncation(min(answer.end_offset if answer.end_offset >= 0 else high_watermark, log_end_offset))


def no_truncation(_answer: EpochEnd, _own_end_of: Callable[[int], EpochEnd], **ends: int) -> Truncation:
    return Truncation(ends["log_end_offset"])


def answers_of_any_leader(self: Fetcher, key: TopicPartition, _leader_epoch: int) -> Any:
    return self._followed.get(key)


REFUSED = LeaderPartition.isr_refused
FETCHED = LeaderPartition.fetched
PLANTED: list[tuple[Any, str, Any]] = [
    (LeaderPartition, "_advance", high_watermark_without_followers),
    (LeaderPartition, "_advance", high_watermark_without_pending),
    (LeaderPartition, "expansion", expansion_at_any_offset),
    (LeaderPartition, "isr_failed", failure_means_not_written),
    (LeaderPartition, "isr_failed", failure_means_written),
    (LeaderPartition, "isr_refused", deposed_leader_goes_on),
    (LeaderPartition, "isr_refused", conflict_adopts_any_state),
    (LeaderPartition, "fetched", offset_of_the_answer_is_acknowledged),
    (fetcher, "by_leader_epoch", truncation_by_the_leader_alone),
    (fetcher, "by_leader_epoch", no_truncation),
    (Fetcher, "_current", answers_of_any_leader),
]


@pytest.mark.parametrize(("owner", "name", "fault"), PLANTED, ids=[each[2].__name__ for each in PLANTED])
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fault: Any) -> None:
    monkeypatch.setattr(owner, name, fault)
    with pytest.raises((AssertionError, KeyError)):
        run_all(asks_epochs=True)
