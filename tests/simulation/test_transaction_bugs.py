"""The histories of transactions prove themselves: each of these mistakes, made on purpose, is found by them.

So is what is wrong with transaction protocol 1 itself (KAFKA-17754), wherever clients send requests again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from builders import first_of
from magicbyte.engine.coordination.effects import Reply
from magicbyte.engine.coordination.terms import CoordinatorTerms
from magicbyte.engine.errors import AppendRefusedError, ErrorCode
from magicbyte.engine.groups import loading as group_loading
from magicbyte.engine.groups import offsets
from magicbyte.engine.internal_topics import STATE_TOPIC
from magicbyte.engine.log.append.producer_check import ProducerChecks
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.log.live.segment_indexes import LiveIndexes
from magicbyte.engine.transactions.answers import answer
from magicbyte.engine.transactions.coordinator import Coordinator
from magicbyte.engine.transactions.effects import SendMarkers
from magicbyte.engine.transactions.loading import Loading
from magicbyte.engine.transactions.transaction import Transaction, by_topic
from magicbyte.server.coordinating.coordinating import Coordinating
from magicbyte.server.coordinating.coordinator_log import CoordinatorLog
from magicbyte.testing.loop import StuckError
from simulation.plants import faults_of_plants
from simulation.transaction_histories import TransactionHistory

Patch = pytest.MonkeyPatch
MOST_SEEDS = 60
PLANTED: dict[str, tuple[int, bool, Callable[[Patch], None]]] = {}
"""By name: the first seed that finds it, whether leaders verify transactions then, and how it is planted."""


def planted(first_seed: int, *, verifies: bool = True) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def take(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
        PLANTED[function.__name__] = first_seed, verifies, function
        return function

    return take


# ---- the coordinator of transactions


@planted(4)
def a_producer_that_begins_keeps_the_epoch(patch: Patch) -> None:
    real = Transaction.renewed

    def renewed(self: Transaction, *given: Any) -> Any:
        found = real(self, *given)
        return (
            None if found is None else (found[0]._replace(producer_epoch=max(self.value.producer_epoch, 0)), found[1])
        )

    patch.setattr(Transaction, "renewed", renewed)


@planted(0)
def an_old_epoch_may_still_end_transactions(patch: Patch) -> None:
    real = Coordinator._of

    def of(self: Coordinator, *who: Any) -> Any:
        code, found = real(self, *who)
        return ErrorCode.NONE if code is ErrorCode.PRODUCER_FENCED else code, found

    patch.setattr(Coordinator, "_of", of)


@planted(27)
def a_fence_that_does_not_raise_the_epoch(patch: Patch) -> None:
    real = Coordinator._fence

    def fence(self: Coordinator, transaction: Transaction, *more: Any) -> Any:
        transaction.epoch_was_raised = True
        return real(self, transaction, *more)

    patch.setattr(Coordinator, "_fence", fence)


@planted(12)
def a_new_coordinator_commits_what_was_to_be_aborted(patch: Patch) -> None:
    real = Coordinator.loaded

    def loaded(*given: Any) -> Any:
        return [each._replace(commits=True) if isinstance(each, SendMarkers) else each for each in real(*given)]

    patch.setattr(Coordinator, "loaded", loaded)


@planted(62)
def a_new_coordinator_forgets_when_transactions_time_out(patch: Patch) -> None:
    real = Coordinator.loaded

    def loaded(self: Coordinator, partition: int, term: int, found: Any, now: Any) -> Any:
        effects = real(self, partition, term, found, now)
        for each in found:
            self.deadlines.cancel(each)
        return effects

    patch.setattr(Coordinator, "loaded", loaded)


@planted(0)
def a_new_coordinator_takes_the_first_record_for_the_last(patch: Patch) -> None:
    real = Loading.read

    def read(self: Loading, data: memoryview) -> int:
        before = dict(self._last)
        last = real(self, data)
        self._last.update(before)
        return last

    patch.setattr(Loading, "read", read)
    patch.setattr("magicbyte.server.coordinating.coordinating.READ_BYTES", 300)


@planted(18)
def a_commit_that_is_answered_before_it_is_stored(patch: Patch) -> None:
    real = Coordinator.end

    def end(self: Coordinator, caller: Any, request: Any, now: Any) -> Any:
        effects = real(self, caller, request, now)
        if isinstance(effects[0], Reply):
            return effects
        (store,) = effects
        return [answer(caller, request, ErrorCode.NONE), store._replace(then=store.then._replace(answer=None))]

    patch.setattr(Coordinator, "end", end)


@planted(15)
def markers_that_are_sent_before_the_decision_is_stored(patch: Patch) -> None:
    real = Coordinator.end

    def end(self: Coordinator, caller: Any, request: Any, now: Any) -> Any:
        effects = real(self, caller, request, now)
        if isinstance(effects[0], Reply):
            return effects
        one = self.transactions[request.transactional_id]
        return [*effects, self._markers(one, tuple(sorted(one.places)))._replace(commits=request.committed)]

    patch.setattr(Coordinator, "end", end)


@planted(15)
def a_transaction_that_is_complete_with_its_first_marker(patch: Patch) -> None:
    real = Coordinator.marked

    def marked(self: Coordinator, sent: SendMarkers, place: Any, code: ErrorCode) -> Any:
        one = self.transactions.get(sent.transactional_id)
        if one is not None and place in one.unmarked:
            one.unmarked = {place}
        return real(self, sent, place, code)

    patch.setattr(Coordinator, "marked", marked)


@planted(8)
def a_marker_that_is_not_sent_again(patch: Patch) -> None:
    real = Coordinator.marked

    def marked(self: Coordinator, sent: SendMarkers, place: Any, _code: ErrorCode) -> Any:
        return real(self, sent, place, ErrorCode.NONE)

    patch.setattr(Coordinator, "marked", marked)


@planted(0)
def a_transaction_that_forgets_its_earlier_partitions(patch: Patch) -> None:
    real = Transaction.extended

    def extended(self: Transaction, places: Any, *more: Any) -> Any:
        return real(self, places, *more)._replace(partitions=by_topic(places))

    patch.setattr(Transaction, "extended", extended)


@planted(0)
def offsets_that_are_not_added_to_the_transaction(patch: Patch) -> None:
    def add_offsets(_self: Coordinator, caller: Any, request: Any, _now: Any) -> Any:
        return [answer(caller, request, ErrorCode.NONE)]

    patch.setattr(Coordinator, "add_offsets", add_offsets)


@planted(17)
def states_that_count_before_the_replicas_have_them(patch: Patch) -> None:
    real = CoordinatorLog._outcomes

    async def outcomes(self: Any, partition: int, appended: Any, timeout_ms: int) -> Any:
        if self._topic == STATE_TOPIC:
            return [each if isinstance(each, ErrorCode) else ErrorCode.NONE for each in appended]
        return await real(self, partition, appended, timeout_ms)

    patch.setattr(CoordinatorLog, "_outcomes", outcomes)


@planted(0)
def coordinators_that_answer_before_they_have_loaded(patch: Patch) -> None:
    real, load = CoordinatorTerms.refusal, Coordinating._load

    async def slowly(self: Any, *given: int) -> None:
        await asyncio.sleep(1)
        await load(self, *given)

    patch.setattr(Coordinating, "_load", slowly)

    def refusal(self: CoordinatorTerms, partition: int) -> ErrorCode:
        code = real(self, partition)
        return ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code

    patch.setattr(CoordinatorTerms, "refusal", refusal)


# ---- offsets of groups


@planted(0)
def offsets_that_count_before_the_commit(patch: Patch) -> None:
    real = offsets.committed

    def committed(coordinator: Any, then: Any, code: ErrorCode) -> Any:
        found = real(coordinator, then, code)
        group = coordinator.groups.get(then.group_id)
        if group is not None and not code:
            group.offsets.update(then.offsets)
        return found

    patch.setattr(offsets, "committed", committed)


@planted(0)
def offsets_that_count_though_their_transaction_was_aborted(patch: Patch) -> None:
    real = offsets.ended

    def ended(coordinator: Any, then: Any, *more: Any) -> Any:
        return real(coordinator, replace(then, commits=True), *more)

    patch.setattr(offsets, "ended", ended)


@planted(0)
def offsets_that_do_not_count_though_their_transaction_was_committed(patch: Patch) -> None:
    real = offsets.ended

    def ended(coordinator: Any, then: Any, *more: Any) -> Any:
        return real(coordinator, replace(then, commits=False), *more)

    patch.setattr(offsets, "ended", ended)


@planted(0)
def pending_offsets_that_a_new_coordinator_forgets(patch: Patch) -> None:
    real = group_loading.Loading.finish

    def finish(self: group_loading.Loading) -> Any:
        self._open.clear()
        return real(self)

    patch.setattr(group_loading.Loading, "finish", finish)


# ---- logs


@planted(0)
def readers_that_are_given_what_is_open(patch: Patch) -> None:
    patch.setattr(PartitionLog, "last_stable_offset", property(lambda self: self.high_watermark))


@planted(0)
def an_abort_that_the_index_does_not_have(patch: Patch) -> None:
    patch.setattr(LiveIndexes, "append_aborted", lambda *_: None)


@planted(6, verifies=False)  # else the coordinator refuses nearly all of them
def a_partition_that_takes_old_epochs(patch: Patch) -> None:
    real = ProducerChecks.check

    def check(self: ProducerChecks, batch: Any, *more: Any) -> Any:
        try:
            return real(self, batch, *more)
        except AppendRefusedError as error:
            if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                return None
            raise

    patch.setattr(ProducerChecks, "check", check)


@planted(2)
def a_batch_that_comes_again_and_is_written_again(patch: Patch) -> None:
    real = ProducerChecks.check

    def check(self: ProducerChecks, batch: Any, *more: Any) -> None:
        real(self, batch, *more)

    patch.setattr(ProducerChecks, "check", check)


class _Short(TransactionHistory):
    """One that is stuck sooner; 60 transactions take some 40,000 turns."""

    most_turns = 120_000


def finds(seed: int, *, verifies: bool) -> bool:
    try:
        _Short(seed, transactions=60, verifies=verifies).run()
    except (AssertionError, StuckError):
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_of_transactions_is_found(
    name: str, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    first, verifies, plant = PLANTED[name]
    plant(monkeypatch)
    assert any(finds(seed, verifies=verifies) for seed in range(first, first + MOST_SEEDS))
    assert faults_of_plants(caplog.records) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "requests", "verifies", "what"),
    [
        (0, ("commit", "abort"), True, "G1a"),
        (1, ("commit offsets",), False, r"__consumer_offsets-\d: a transaction is open"),
    ],
)
def test_protocol_1_breaks_where_late_requests_are_sent_again(
    seed: int, requests: tuple[str, ...], verifies: bool, what: str
) -> None:
    """As KAFKA-17754 has it: a late EndTxn ends the next transaction. Late offsets begin one that no client ends."""
    with pytest.raises(AssertionError, match=what):
        TransactionHistory(seed, resends=requests, verifies=verifies).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_of([2, 3]))
def test_offsets_that_come_late_leave_nothing_open_where_partitions_are_verified(seed: int) -> None:
    TransactionHistory(seed, resends=("commit offsets",)).run()


LATE = [("commit", "abort"), ("commit offsets",), ("produce",)]


@pytest.mark.slow
@pytest.mark.parametrize("requests", LATE)
@pytest.mark.parametrize("seed", first_of([0, 2]))
def test_protocol_2_does_not_break_where_late_requests_are_sent_again(seed: int, requests: tuple[str, ...]) -> None:
    history = TransactionHistory(seed, transaction_protocol=2, resends=requests)
    history.run()
    assert sum(count for name, count in history.faults.items() if name.startswith("requests are late")) >= 5


@pytest.mark.slow
def test_it_would_break_if_its_ends_did_not_raise_the_epoch(monkeypatch: Patch) -> None:
    real = Transaction.raised

    def raised(self: Transaction, *more: Any) -> Any:
        value, epoch = real(self, *more)
        return value._replace(producer_epoch=epoch), epoch

    monkeypatch.setattr(Transaction, "raised", raised)
    with pytest.raises(AssertionError):
        TransactionHistory(0, transaction_protocol=2, resends=("commit", "abort")).run()
