"""Histories of share groups are sound, and find each of the bugs that are planted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.sharing import records, share_partition
from magicbyte.engine.sharing.share_coordinator import ShareCoordinator
from magicbyte.engine.sharing.share_partition import SharePartition
from magicbyte.engine.sharing.states import DeliveryState, StateUpdate, StoredState
from simulation.share_histories import RULES, ShareHistory

Patch = pytest.MonkeyPatch
HISTORIES = int(os.environ.get("SHARE_HISTORIES", "40"))
MOST_SEEDS = 40


def test_no_record_is_acquired_twice_or_above_its_limit_and_acknowledged_ones_are_gone() -> None:
    outcomes = Counter[str]()
    for seed in range(HISTORIES):
        history = ShareHistory(seed)
        history.run()
        outcomes += history.outcomes
    assert outcomes.keys() == {
        "delivered", "acknowledged", "refused", "left", "fenced", "coordinator moved", "leader changed",
    }  # fmt: skip
    assert outcomes["acknowledged"] > 40 * HISTORIES


def locks_end_early(patch: Patch) -> None:
    real = SharePartition.expire
    patch.setattr(SharePartition, "expire", lambda self, now_ms: real(self, now_ms + RULES.lock_ms // 4))


def records_in_transition_expire(patch: Patch) -> None:
    patch.setattr(share_partition, "_is_held", lambda run: run.state is DeliveryState.ACQUIRED)


def a_session_that_ends_releases_records_of_others(patch: Patch) -> None:
    real = SharePartition.release
    patch.setattr(SharePartition, "release", lambda self, _: real(self, "a") or real(self, "b"))


def records_of_another_member_are_acknowledged(patch: Patch) -> None:
    real = SharePartition.acknowledge

    def acknowledge(self: SharePartition, _: str, said: Any, now_ms: int) -> Any:
        run = self._at(said[0].first)
        return real(self, run.member if run is not None else "", said, now_ms)

    patch.setattr(SharePartition, "acknowledge", acknowledge)


def records_are_delivered_once_too_often(patch: Patch) -> None:
    def released(_: SharePartition, run: Any) -> DeliveryState:
        return DeliveryState.AVAILABLE if run.count <= RULES.delivery_limit else DeliveryState.ARCHIVED

    patch.setattr(SharePartition, "_released", released)


def aborted_records_are_delivered(patch: Patch) -> None:
    real = SharePartition.acquire

    def acquire(self: SharePartition, member: str, read: Any, *given: Any, **named: Any) -> Any:
        return real(self, member, [each._replace(is_aborted=False) for each in read], *given, **named)

    patch.setattr(SharePartition, "acquire", acquire)


def a_change_that_could_not_be_stored_counts(patch: Patch) -> None:
    patch.setattr(SharePartition, "roll_back", SharePartition.commit)


def released_records_are_stored_without_their_count(patch: Patch) -> None:
    real = SharePartition._change

    def change(self: SharePartition, runs: Any) -> Any:
        found = real(self, runs)
        found.batches = [each._replace(deliveries=0) if not each.state else each for each in found.batches]
        return found

    patch.setattr(SharePartition, "_change", change)


def the_start_moves_past_an_acquired_record(patch: Patch) -> None:
    real = SharePartition._advance

    def advance(self: SharePartition) -> None:
        real(self)
        if len(self._runs) > 2 and self._runs[0].state is DeliveryState.ACQUIRED:
            self.start = self._runs.pop(0).last + 1

    patch.setattr(SharePartition, "_advance", advance)


def an_earlier_leader_may_write(patch: Patch) -> None:
    def fenced(self: ShareCoordinator, row: Any) -> StoredState | None:
        return self.states.get(row.key)

    patch.setattr(ShareCoordinator, "_fenced", fenced)


def the_epoch_of_a_reading_leader_is_not_stored(patch: Patch) -> None:
    real = ShareCoordinator.read

    def read(self: ShareCoordinator, row: Any, now: Any) -> None:
        real(self, row, now)

    from magicbyte.engine.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
    from magicbyte.engine.sharing import share_coordinator

    kind = share_coordinator._KINDS[ReadShareGroupStateRequest]
    kinds = {**share_coordinator._KINDS, ReadShareGroupStateRequest: kind._replace(decide=read)}
    patch.setattr(share_coordinator, "_KINDS", kinds)


def an_append_that_failed_is_answered_as_stored(patch: Patch) -> None:
    real = ShareCoordinator.stored
    patch.setattr(ShareCoordinator, "stored", lambda self, store, _, now: real(self, store, ErrorCode.NONE, now))


def a_snapshot_loses_the_last_batch(patch: Patch) -> None:
    real = StoredState.snapshot

    def snapshot(self: StoredState, now_ms: int) -> Any:
        found = real(self, now_ms)
        return found._replace(batches=found.batches[:-1])

    patch.setattr(StoredState, "snapshot", snapshot)


def updates_after_the_first_snapshot_are_not_loaded(patch: Patch) -> None:
    real = records.Loading.apply

    def apply(self: Any, key: Any, value: Any, offset: int) -> None:
        if not isinstance(value, StateUpdate) or not value.snapshot_epoch:
            real(self, key, value, offset)

    patch.setattr(records.Loading, "apply", apply)


def an_update_does_not_replace_earlier_batches(patch: Patch) -> None:
    real = StoredState._put_one

    def put_one(self: StoredState, new: Any) -> None:
        if not any(old.first <= new.last and new.first <= old.last for old in self.batches):
            real(self, new)

    patch.setattr(StoredState, "_put_one", put_one)


PLANTS: list[Callable[[Patch], None]] = [
    locks_end_early, records_in_transition_expire, a_session_that_ends_releases_records_of_others,
    records_of_another_member_are_acknowledged, records_are_delivered_once_too_often, aborted_records_are_delivered,
    a_change_that_could_not_be_stored_counts, released_records_are_stored_without_their_count,
    the_start_moves_past_an_acquired_record, an_earlier_leader_may_write, the_epoch_of_a_reading_leader_is_not_stored,
    an_append_that_failed_is_answered_as_stored, a_snapshot_loses_the_last_batch,
    updates_after_the_first_snapshot_are_not_loaded, an_update_does_not_replace_earlier_batches,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert any(_finds(seed) for seed in range(MOST_SEEDS))


def _finds(seed: int) -> bool:
    try:
        ShareHistory(seed).run()
    except (AssertionError, KeyError):  # a key that the ledger has not: a record that no member has acquired
        return True
    return False
