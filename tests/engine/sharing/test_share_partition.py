"""The records in flight of a partition: what real brokers of 4.3 gave, and random histories with planted bugs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import pytest

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.sharing.share_partition import (
    ACCEPT,
    GAP,
    MOST_RECORDS,
    MOST_RUNS,
    REJECT,
    RELEASE,
    RENEW,
    AcquiredRun,
    DeliveryChange,
    LogBatch,
    RecordAcknowledgement,
    Run,
    SharePartition,
    ShareRules,
    Wanted,
)
from magicbyte.engine.sharing.states import DeliveryState, StateBatch, StateSnapshot, StateUpdate, StoredState

ALL = Wanted(500, 500)


def partition(**rules: int) -> SharePartition:
    return SharePartition(0, (), ShareRules(**rules))


def take(
    shared: SharePartition, *batches: tuple[int, int], member: str = "m", wanted: Wanted = ALL, now: int = 0
) -> list[tuple[int, int, int]]:
    found = [LogBatch(*each) for each in batches]
    return [tuple(each) for each in shared.acquire(member, found, wanted, now)]


def say(
    shared: SharePartition, *acknowledgements: tuple[int, int, int], member: str = "m", now: int = 0
) -> DeliveryChange:
    change = shared.acknowledge(member, [RecordAcknowledgement(a, b, (kind,)) for a, b, kind in acknowledgements], now)
    assert isinstance(change, DeliveryChange), change
    shared.commit(change)
    return change


def test_an_acknowledgement_stores_its_batches_with_the_start_before_them() -> None:
    shared = partition()
    assert take(shared, (0, 4)) == [(0, 4, 1)]
    change = say(shared, (0, 1, ACCEPT))
    assert (change.start, change.batches, change.complete_count) == (0, [StateBatch(0, 1, 2, 1)], 2)
    assert shared.start == 2
    change = say(shared, (2, 2, RELEASE), (3, 3, REJECT), (4, 4, GAP))
    assert (change.start, change.batches) == (2, [StateBatch(2, 2, 0, 1), StateBatch(3, 4, 4, 1)])
    assert take(shared, (0, 4)) == [(2, 2, 2)]


def test_two_members_get_disjoint_records() -> None:
    shared = partition()
    strict = Wanted(3, 3, is_strict=True)
    assert take(shared, (0, 7), wanted=strict) == [(0, 2, 1)]
    assert shared.next_offset() == 3
    assert take(shared, (0, 7), member="n", wanted=strict) == [(3, 5, 1)]
    assert shared.acknowledge("n", [RecordAcknowledgement(2, 3, (ACCEPT,))], 0) is ErrorCode.INVALID_RECORD_STATE


def test_record_limit_and_then_whole_batches() -> None:
    shared = partition()
    assert take(shared, (0, 3), (4, 7), (8, 11), wanted=Wanted(6, 6, is_strict=True)) == [(0, 5, 1)]
    assert take(shared, (4, 7), (8, 11), wanted=Wanted(3, 3)) == [(6, 7, 1), (8, 11, 1)]


@pytest.mark.parametrize(
    ("limit", "count", "deliveries"),
    [
        (5, 8, ["0-7"] * 3 + ["0-3", "0-0", "1-1", "2-2", "3-3", "4-7", "4-4", "5-5", "6-6", "7-7"]),
        (10, 16, ["0-15"] * 5 + ["0-7", "0-3", "0-1", "0-0", "0-0", "1-1", "1-1", "2-3"]),
        (3, 8, ["0-7"] * 2 + ["0-0", "1-1"]),
    ],
)
def test_near_the_delivery_limit_records_come_in_smaller_runs(limit: int, count: int, deliveries: list[str]) -> None:
    shared = partition(delivery_limit=limit)
    got = []
    for _ in deliveries:
        ((first, last, _),) = take(shared, (0, count - 1))
        got.append(f"{first}-{last}")
        say(shared, (first, last, RELEASE))
    assert got == deliveries


def test_a_record_that_was_delivered_often_enough_is_archived() -> None:
    shared = partition(delivery_limit=2)
    for count in (1, 2):
        assert take(shared, (0, 0)) == [(0, 0, count)]
        change = say(shared, (0, 0, RELEASE))
    assert change.batches == [StateBatch(0, 0, 4, 2)]
    assert shared.start == 1
    assert take(shared, (0, 0)) == []


def test_an_expired_lock_gives_the_records_to_others() -> None:
    shared = partition(lock_ms=100)
    take(shared, (0, 3))
    assert shared.expire(99) is None
    change = shared.expire(100)
    assert change is not None
    assert change.batches == [StateBatch(0, 3, 0, 1)]
    assert shared.acknowledge("m", [RecordAcknowledgement(0, 3, (ACCEPT,))], 100) is ErrorCode.INVALID_RECORD_STATE
    assert take(shared, (0, 3), member="n", now=100) == [(0, 3, 2)]


def test_a_renewal_keeps_the_records_for_another_time() -> None:
    shared = partition(lock_ms=100)
    take(shared, (0, 3))
    assert shared.acknowledge("m", [RecordAcknowledgement(1, 1, (RENEW,))], 50) is None
    change = shared.expire(100)
    assert change is not None
    assert change.batches == [StateBatch(0, 0, 0, 1), StateBatch(2, 3, 0, 1)]
    assert shared.next_ms == 150


def test_a_change_that_is_not_stored_has_no_effect() -> None:
    shared = partition(lock_ms=100)
    take(shared, (0, 3))
    change = shared.acknowledge("m", [RecordAcknowledgement(0, 1, (ACCEPT,))], 0)
    assert isinstance(change, DeliveryChange)
    assert shared.acknowledge("m", [RecordAcknowledgement(1, 2, (ACCEPT,))], 0) is ErrorCode.INVALID_RECORD_STATE
    assert shared.expire(100) is not None, "the others"
    shared.roll_back(change)
    late = shared.expire(100)
    assert late is not None
    assert late.batches == [StateBatch(0, 1, 0, 1)]
    assert late.complete_count == 0


def test_offsets_beyond_and_below_those_in_flight() -> None:
    shared = partition()
    take(shared, (0, 3))
    say(shared, (0, 1, ACCEPT))
    assert shared.acknowledge("m", [RecordAcknowledgement(3, 4, (ACCEPT,))], 0) is ErrorCode.INVALID_REQUEST
    assert shared.acknowledge("m", [RecordAcknowledgement(0, 1, (RELEASE,))], 0) is None
    assert shared.start == 2


def test_released_records_of_a_member_keep_their_count() -> None:
    shared = partition()
    take(shared, (0, 1))
    take(shared, (2, 3), member="n")
    change = shared.release("m")
    assert change is not None
    assert change.batches == [StateBatch(0, 1, 0, 1)]
    assert take(shared, (0, 1), member="n") == [(0, 1, 2)]
    assert shared.release("x") is None


def test_the_log_start_archives_available_records() -> None:
    shared = partition()
    take(shared, (0, 2))
    shared.begin_at(4)
    assert shared.start == 0, "records that are acquired stay"
    assert take(shared, (3, 5)) == [(3, 5, 1)], "R76: a batch in which the log begins, as a whole"
    say(shared, (0, 2, ACCEPT))
    assert shared.start == 4
    shared.begin_at(100)
    assert shared.acknowledge("m", [RecordAcknowledgement(4, 5, (ACCEPT,))], 0) is not None


def test_a_batch_of_a_million_records_with_as_many_holes_is_in_flight_in_parts_of_a_bounded_number() -> None:
    shared, size, seen = partition(), 1_000_000, 0
    whole = [LogBatch(0, size - 1)]
    assert shared.acquire("m", whole, Wanted(500, 500), 0) == [(0, MOST_RECORDS - 1, 1)]
    assert shared.next_offset() is None, "no more until some are done"
    kinds = [RELEASE, ACCEPT] * (MOST_RECORDS // 2)
    change = shared.acknowledge("m", [RecordAcknowledgement(0, MOST_RECORDS - 1, kinds)], 0)
    assert isinstance(change, DeliveryChange)
    shared.commit(change)
    assert len(shared.runs) == MOST_RECORDS
    while shared.start < 3 * MOST_RECORDS:
        runs = shared.acquire("m", whole, ALL, 0, asked=shared.next_offset())
        assert 0 < len(runs) <= MOST_RUNS
        assert shared.end - shared.start <= MOST_RECORDS
        change = shared.acknowledge("m", [RecordAcknowledgement(a, b, (ACCEPT,)) for a, b, _ in runs], 0)
        assert isinstance(change, DeliveryChange)
        shared.commit(change)
        seen += sum(b - a + 1 for a, b, _ in runs)
    assert seen == shared.start - MOST_RECORDS // 2, "each once, and the released half of the first ones again"


def test_a_gap_that_is_larger_than_all_that_may_be_in_flight_is_passed() -> None:
    shared = partition()
    far = 5 * MOST_RECORDS
    assert shared.acquire("m", [LogBatch(far, far + 1)], ALL, 0, asked=0) == [(far, far + 1, 1)]
    assert shared.start == far


def test_aborted_batches_are_done_and_markers_are_delivered() -> None:
    shared = partition()
    found = [LogBatch(0, 0, is_aborted=True), LogBatch(1, 1, is_aborted=True), *map(LogBatch, (2, 3, 4), (2, 3, 4))]
    assert [tuple(each) for each in shared.acquire("m", found, ALL, 0)] == [(2, 4, 1)]
    assert shared.start == 2


def test_what_compaction_removed_is_done() -> None:
    shared = SharePartition(0, [StateBatch(0, 9, 0, 1)], ShareRules())
    acquired = shared.acquire("m", [LogBatch(4, 5), LogBatch(8, 9)], ALL, 0, asked=0)
    assert [tuple(each) for each in acquired] == [(4, 5, 2), (8, 9, 2)]
    assert [(run.first, run.last) for run in shared.runs if run.state is DeliveryState.ACQUIRED] == [(4, 5), (8, 9)]
    say(shared, (4, 5, ACCEPT), (8, 9, ACCEPT))
    assert shared.start == 10


def test_no_more_records_than_the_limit_are_in_flight() -> None:
    shared = partition(most_in_flight=6)
    assert take(shared, (0, 3), (4, 7), (8, 11)) == [(0, 7, 1)]
    assert shared.next_offset() is None
    say(shared, (0, 3, ACCEPT))
    assert shared.next_offset() == 8


def test_stored_states_are_continued_and_holes_are_available() -> None:
    shared = SharePartition(5, [StateBatch(7, 8, 2, 1), StateBatch(9, 9, 0, 3)], ShareRules())
    assert (shared.start, shared.end, shared.next_offset()) == (5, 10, 5)
    assert take(shared, (0, 9), wanted=Wanted(1, 1)) == [(5, 6, 1)]


def test_many_holes_are_kept_as_they_are() -> None:
    count = 200_000
    batches = [StateBatch(offset, offset, 2 if offset % 2 else 0, 1) for offset in range(count)]
    shared = SharePartition(0, batches, ShareRules(most_in_flight=count + 10, delivery_limit=50))
    one = Wanted(1, 1)
    for _ in range(10):
        offset = shared.next_offset()
        assert offset is not None
        assert len(shared.acquire("m", [LogBatch(offset, offset)], one, 0)) == 1
    assert len(shared.runs) == count


# ---- histories


class Model:
    """What holds of any history: each record has one owner, its deliveries are counted, and done is done."""

    def __init__(self, seed: int, make: Callable[..., SharePartition]) -> None:
        self.random = random.Random(seed)
        self.rules = ShareRules(lock_ms=50, delivery_limit=4, most_in_flight=40)
        self.make = make
        self.shared = make(0, (), self.rules)
        self.stored = StoredState.of(StateSnapshot(0, 0, 0, 0, 0, 0))
        self.owner: dict[int, tuple[str, int]] = {}
        self.count: dict[int, int] = {}
        self.done = set[int]()  # as stored
        self.gone = set[int]()  # in this term
        self.now, self.log_end = 0, 200
        self.pending: list[DeliveryChange] = []

    def store(self, change: DeliveryChange) -> None:
        """Changes are stored in the order in which they were made."""
        self.stored.update(StateUpdate(0, 0, change.start, change.batches, change.complete_count))
        for each in change.batches:
            if each.state != DeliveryState.AVAILABLE:
                self.done.update(range(each.first, each.last + 1))

    def step(self) -> None:
        self.now += self.random.randrange(12)
        self.ended(self.shared.expire(self.now))
        self.owner = {
            offset: held for offset, held in self.owner.items() if held[1] > self.now or self.changing(offset)
        }
        self.random.choice(
            [self.fetch, self.fetch, self.fetch, self.acknowledge, self.acknowledge, self.settle, self.leave, self.fail]
        )()

    def changing(self, offset: int) -> bool:
        return any(run.first <= offset <= run.last for change in self.pending for run in change.runs)

    def ended(self, change: DeliveryChange | None) -> None:
        """A change that is already committed is stored after those before it."""
        if change is not None:
            self.pending.append(change)
            for each in change.batches:
                if each.state != DeliveryState.AVAILABLE:
                    self.gone.update(range(each.first, each.last + 1))

    def fetch(self) -> None:
        offset = self.shared.next_offset()
        if offset is None or offset >= self.log_end:
            return
        found, at = list[LogBatch](), offset
        while at < min(offset + 12, self.log_end):
            last = min(at + self.random.randrange(4), self.log_end - 1)
            found.append(LogBatch(at, last))
            at = last + 1
        member = self.random.choice("abc")
        wanted = Wanted(self.random.randrange(1, 8), 4, is_strict=self.random.random() < 0.5)
        for run in self.shared.acquire(member, found, wanted, self.now):
            for each in range(run.first, run.last + 1):
                assert each not in self.owner, "no record is acquired by two"
                assert each not in self.done | self.gone, "done is done"
                self.count[each] = self.count.get(each, 0) + 1
                assert run.deliveries == self.count[each] <= self.rules.delivery_limit
                self.owner[each] = member, self.now + self.rules.lock_ms

    def acknowledge(self) -> None:
        held = [offset for offset in self.owner if not self.changing(offset)]
        if not held:
            return
        first = self.random.choice(held)
        member, last = self.owner[first][0], first
        while (
            self.owner.get(last + 1, ("",))[0] == member and not self.changing(last + 1) and self.random.random() < 0.7
        ):
            last += 1
        kinds = [self.random.choice([GAP, ACCEPT, RELEASE, REJECT, ACCEPT]) for _ in range(first, last + 1)]
        change = self.shared.acknowledge(member, [RecordAcknowledgement(first, last, kinds)], self.now)
        assert isinstance(change, DeliveryChange), change
        stored = {offset: each.state for each in change.batches for offset in range(each.first, each.last + 1)}
        for offset, kind in zip(range(first, last + 1), kinds, strict=True):
            assert stored[offset] == self.state_after(kind, offset), "acknowledged means gone"
        self.pending.append(change)

    def state_after(self, kind: int, offset: int) -> DeliveryState:
        if kind == ACCEPT:
            return DeliveryState.ACKNOWLEDGED
        is_again = kind == RELEASE and self.count[offset] < self.rules.delivery_limit
        return DeliveryState.AVAILABLE if is_again else DeliveryState.ARCHIVED

    def settle(self) -> None:
        if not self.pending:
            return
        change = self.pending.pop(0)
        if change.runs and self.random.random() < 0.2:
            self.shared.roll_back(change)
            return
        self.store(change)
        if not change.runs:
            return
        self.shared.commit(change)
        for each in change.batches:
            for offset in range(each.first, each.last + 1):
                self.owner.pop(offset, None)

    def leave(self) -> None:
        member = self.random.choice("abc")
        self.ended(self.shared.release(member))
        self.owner = {offset: held for offset, held in self.owner.items() if held[0] != member or self.changing(offset)}

    def fail(self) -> None:
        """Another leader continues with the stored state: counts that were not stored are lost."""
        if self.random.random() > 0.3:
            return
        for change in self.pending[: self.random.randrange(1 + len(self.pending))]:
            self.store(change)
        self.pending.clear()
        self.owner.clear()
        self.gone.clear()
        self.shared = self.make(self.stored.start, self.stored.batches, self.rules)
        counts = dict.fromkeys(range(self.shared.start, self.log_end), 0)
        for run in self.shared.runs:
            counts.update(dict.fromkeys(range(run.first, run.last + 1), run.count))
        self.count = counts

    def finish(self) -> None:
        """Accept all: the group comes to the end of the log."""
        while self.pending:
            self.settle()
        self.owner.clear()
        self.ended(self.shared.expire(1 << 40))
        while self.pending:
            self.settle()
        for _ in range(4 * self.log_end):
            offset = self.shared.next_offset()
            if offset == self.log_end:
                break
            assert offset is not None
            got = self.shared.acquire("z", [LogBatch(each, each) for each in range(offset, self.log_end)], ALL, 1 << 41)
            change = self.shared.acknowledge("z", [RecordAcknowledgement(a, b, (ACCEPT,)) for a, b, _ in got], 1 << 41)
            assert isinstance(change, DeliveryChange)
            assert not self.done.intersection(each for a, b, _ in got for each in range(a, b + 1)), "done is done"
            self.shared.commit(change)
        assert self.shared.start == self.shared.end == self.log_end
        assert not self.shared.runs


def run(make: Callable[..., SharePartition], seeds: range, steps: int = 150) -> None:
    for seed in seeds:
        model = Model(seed, make)
        for _ in range(steps):
            model.step()
            check(model.shared)
        model.finish()


def check(shared: SharePartition) -> None:
    at, complete = shared.start, 0
    for each in shared.runs:
        assert each.first == at <= each.last, "runs are in order, without holes"
        at = each.last + 1
        is_done = each.state.is_final or (each.becomes is not None and each.becomes.is_final)
        complete += each.size if is_done else 0
    assert at == shared.end
    assert complete == shared._complete
    assert not shared.runs or not shared.runs[0].state.is_final


def test_histories() -> None:
    run(SharePartition, range(60))


class TwiceAcquired(SharePartition):
    def _acquired(self, run: Run, member: str, now_ms: int) -> Run:
        found = super()._acquired(run, member, now_ms)
        if found.first % 7 == 3:
            found.state = DeliveryState.AVAILABLE
            self._available.append(found.first)
        return found


class UncountedDeliveries(SharePartition):
    def _released(self, run: Run) -> DeliveryState:
        run.count -= run.count > 1
        return super()._released(run)


class ForgottenLimit(SharePartition):
    def _released(self, run: Run) -> DeliveryState:
        return DeliveryState.AVAILABLE


class ReleasedWhilePending(SharePartition):
    def release(self, member: str) -> DeliveryChange | None:
        for each in self.runs:
            if each.member == member and each.becomes is not None:
                each.becomes = None
        return super().release(member)


class LostRecords(SharePartition):
    def roll_back(self, change: DeliveryChange) -> None:
        super().roll_back(change)
        for each in change.runs:
            each.deadline_ms += 1


class StartTooFar(SharePartition):
    def _advance(self) -> None:
        super()._advance()
        if self._runs and self._runs[0].state is DeliveryState.ACQUIRED and len(self._runs) > 3:
            self.start = self._runs[0].last + 1
            del self._runs[0]


class NoMerging(SharePartition):
    def acquire(
        self, member: str, read: Sequence[LogBatch], wanted: Wanted, now_ms: int, *, asked: int | None = None
    ) -> list[AcquiredRun]:
        return super().acquire(member, read, wanted._replace(most=wanted.most + 1), now_ms, asked=asked) * 2


class ReleasedAcknowledged(SharePartition):
    def _after(self, kind: int, run: Run) -> DeliveryState:
        return super()._after(RELEASE if run.size == 2 else kind, run)


class ForgottenStates(SharePartition):
    def __init__(self, start: int, batches: Iterable[StateBatch], rules: ShareRules) -> None:
        super().__init__(start, [each for each in batches if each.first % 3], rules)


@pytest.mark.parametrize(
    "planted",
    [TwiceAcquired, UncountedDeliveries, ForgottenLimit, ReleasedWhilePending, LostRecords, StartTooFar, NoMerging,
     ReleasedAcknowledged, ForgottenStates],
)  # fmt: skip
def test_histories_find_planted_bugs(planted: type[SharePartition]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        run(planted, range(60))
