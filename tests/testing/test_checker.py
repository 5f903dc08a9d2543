"""The checker of histories: sound histories pass, each planted anomaly is found, and a naive checker says the same."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from magicbyte.testing.checker import (
    AnomalyKind,
    ClientOperation,
    HistoryRules,
    Kind,
    OperationOutcome,
    Polled,
    Report,
    Sent,
    check,
)
from testing.sound_histories import World

K = AnomalyKind
SEEDS = range(40)


# ---- sound histories


@pytest.mark.parametrize("transactions", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
def test_a_sound_history_has_only_what_is_allowed(transactions: bool, deletes: bool) -> None:
    allowed = set[AnomalyKind]()
    for seed in SEEDS:
        world = World(seed, transactions=transactions, deletes=deletes)
        report = check(world.run(150), world.rules)
        assert report.is_sound, f"seed {seed}: {report}"
        allowed |= set(report.allowed)
    assert allowed == {K.INT_SEND_SKIP, K.NONMONOTONIC_POLL}


# ---- each anomaly, planted in a sound history

History = list[ClientOperation]
Plant = Callable[[History, random.Random], None]


def sends(
    history: History, outcome: OperationOutcome = OperationOutcome.OK, kind: Kind = Kind.SEND
) -> list[tuple[int, int, Sent]]:
    """Return operation, step and record of the sends with a known offset, or with an unknown one."""
    return [
        (number, at, step)
        for number, operation in enumerate(history)
        if operation.outcome is outcome and operation.kind is kind
        for at, step in enumerate(operation.steps)
        if isinstance(step, Sent) and not step.may_repeat
    ]


def polls(history: History, least: int) -> list[tuple[int, str, tuple[tuple[int, int], ...]]]:
    """Return operation, partition and records of the polls with which processes read to the end, but each's first."""
    found, crashed = [], set[str]()
    for number in reversed(range(len(history))):
        operation = history[number]
        if operation.kind is Kind.CRASH:
            crashed.add(operation.process)
        if operation.kind is not Kind.POLL or operation.process in crashed or not operation.steps:
            continue
        is_first = history[number - 1].kind is not Kind.POLL
        polled = operation.steps[0]
        assert isinstance(polled, Polled)
        found += [
            (number, key, records) for key, records in polled.records.items() if len(records) >= least and not is_first
        ]
    return found


def with_step(operation: ClientOperation, at: int, step: Sent | Polled) -> ClientOperation:
    return replace(operation, steps=(*operation.steps[:at], step, *operation.steps[at + 1 :]))


def with_records(history: History, number: int, key: str, records: tuple[tuple[int, int], ...]) -> None:
    polled = history[number].steps[0]
    assert isinstance(polled, Polled)
    history[number] = with_step(history[number], 0, Polled({**polled.records, key: records}))


def highest(history: History, key: str) -> int:
    return max(
        offset
        for operation in history
        for step in operation.steps
        if isinstance(step, Polled)
        for offset, _ in step.records.get(key, ())
    )


def lost_write(history: History, chance: random.Random) -> None:
    """No poll has a value that was acknowledged and lies before others: it is skipped, too."""
    read = [each for each in sends(history) if each[2].offset is not None]
    read = [each for each in read if each[2].offset < highest(history, each[2].partition)]  # type: ignore[operator]
    _, _, lost = chance.choice(read)
    for number, operation in enumerate(history):
        for at, step in enumerate(operation.steps):
            if isinstance(step, Polled) and lost.partition in step.records:
                left = tuple(each for each in step.records[lost.partition] if each[1] != lost.value)
                history[number] = with_step(history[number], at, Polled({**step.records, lost.partition: left}))


def duplicate(history: History, chance: random.Random) -> None:
    number, key, records = polls(history, 1)[0]
    sent = chance.choice([each for _, _, each in sends(history) if each.partition == key])
    with_records(history, number, key, (*records, (highest(history, key) + 1, sent.value)))  # type: ignore[arg-type]


def inconsistent_offsets(history: History, chance: random.Random) -> None:
    number, key, records = chance.choice(polls(history, 1))
    history.append(ClientOperation("other", Kind.SEND, OperationOutcome.INFO, (Sent(key, 10**6),)))
    with_records(history, number, key, ((records[0][0], 10**6), *records[1:]))


def unseen(history: History, chance: random.Random) -> None:
    history.append(
        ClientOperation("other", Kind.SEND, OperationOutcome.OK, (Sent("a-0", 10**6, chance.choice((None, 10**6))),))
    )


def unwritten(history: History, _chance: random.Random) -> None:
    number, key, records = polls(history, 1)[0]
    with_records(history, number, key, (*records, (highest(history, key) + 1, 10**6)))


def int_poll_skip(history: History, chance: random.Random) -> None:
    number, key, records = chance.choice(polls(history, 3))
    with_records(history, number, key, (records[0], *records[2:]))


def poll_skip(history: History, chance: random.Random) -> None:
    number, key, records = chance.choice(polls(history, 2))
    with_records(history, number, key, records[1:])


def int_nonmonotonic_poll(history: History, chance: random.Random) -> None:
    number, key, records = chance.choice(polls(history, 2))
    with_records(history, number, key, (records[0], *records))


def nonmonotonic_poll(history: History, chance: random.Random) -> None:
    """A client reads a poll's last record again with the next."""
    number, key, records = chance.choice(polls(history, 1))
    again = ClientOperation(history[number].process, Kind.POLL, OperationOutcome.OK, (Polled({key: records[-1:]}),))
    history.insert(number + 1, again)


def nonmonotonic_send(history: History, chance: random.Random) -> None:
    """The second record of a process has an offset before the first."""
    known = [each for each in sends(history) if each[2].offset is not None and len(history[each[0]].steps) == 1]
    pairs = [
        (first, second)
        for (first, _, one), (second, _, other) in itertools.pairwise(sorted(known, key=lambda each: each[2].partition))
        if one.partition == other.partition and history[first].process == history[second].process
    ]
    first, second = chance.choice(pairs)
    history[first], history[second] = history[second], history[first]


def int_nonmonotonic_send(history: History, chance: random.Random) -> None:
    sent = [(number, at, each.partition) for number, at, each in sends(history, kind=Kind.TRANSACTION)]
    pairs = [(one, other) for one, other in itertools.combinations(sent, 2) if one[::2] == other[::2]]
    (number, at, _), (_, after, _) = chance.choice(pairs)
    steps = list(history[number].steps)
    steps[at], steps[after] = steps[after], steps[at]
    history[number] = replace(history[number], steps=tuple(steps))


def aborted_read(history: History, chance: random.Random) -> None:
    number, _, _ = chance.choice([each for each in sends(history) if len(history[each[0]].steps) == 1])
    history[number] = replace(history[number], outcome=OperationOutcome.FAIL)


def precommitted_read(history: History, chance: random.Random) -> None:
    number, _, sent = chance.choice(sends(history, kind=Kind.TRANSACTION))
    read_too(history, number, sent)


def circular_read(history: History, chance: random.Random) -> None:
    """Transactions, two or three, read each one the next one's value, and the last one the first one's."""
    written = {number: sent for number, _, sent in sends(history, kind=Kind.TRANSACTION)}
    circle = chance.sample(sorted(written), chance.choice((2, 3)))
    for reader, writer in zip(circle, [*circle[1:], circle[0]], strict=True):
        read_too(history, reader, written[writer])


def read_too(history: History, number: int, sent: Sent) -> None:
    """Let an operation read a value besides, by a seek there and back."""
    assert sent.offset is not None
    step = Polled({sent.partition: ((sent.offset, sent.value),)})  # type: ignore[dict-item]
    moved = (*history[number].repositioned, sent.partition)
    history[number] = replace(history[number], steps=(*history[number].steps, step), repositioned=moved)
    after = [each for each in range(number + 1, len(history)) if history[each].process == history[number].process]
    history[after[0]] = replace(history[after[0]], repositioned=(*history[after[0]].repositioned, sent.partition))


def torn_transaction(history: History, chance: random.Random) -> None:
    """A transaction of unknown outcome is there, as others read some of it, and one of its values is not."""
    whole = [number for number, _, _ in sends(history, kind=Kind.TRANSACTION)]
    number = chance.choice(whole)
    steps = (*history[number].steps, Sent("b-0", 10**6))
    history[number] = replace(history[number], outcome=OperationOutcome.INFO, steps=steps)


SKIPS = {K.POLL_SKIP, K.INT_POLL_SKIP}
PLANTS: list[tuple[Plant, AnomalyKind, set[AnomalyKind]]] = [
    (lost_write, K.LOST_WRITE, SKIPS),
    (duplicate, K.DUPLICATE, set()),
    (inconsistent_offsets, K.INCONSISTENT_OFFSETS, set()),
    (unseen, K.UNSEEN, set()),
    (unwritten, K.UNWRITTEN, set()),
    (poll_skip, K.POLL_SKIP, set()),
    (int_poll_skip, K.INT_POLL_SKIP, set()),
    (nonmonotonic_poll, K.NONMONOTONIC_POLL, set()),
    (int_nonmonotonic_poll, K.INT_NONMONOTONIC_POLL, set()),
    (nonmonotonic_send, K.NONMONOTONIC_SEND, set()),
    (int_nonmonotonic_send, K.INT_NONMONOTONIC_SEND, set()),
    (aborted_read, K.ABORTED_READ, set()),
    (precommitted_read, K.PRECOMMITTED_READ, set()),
    (torn_transaction, K.TORN_TRANSACTION, set()),
    (circular_read, K.CIRCULAR_READ, set()),
]


@pytest.mark.parametrize(("plant", "kind", "companions"), PLANTS, ids=[str(each[1]) for each in PLANTS])
def test_a_planted_anomaly_is_found_and_nothing_else(
    plant: Plant, kind: AnomalyKind, companions: set[AnomalyKind]
) -> None:
    for seed in SEEDS:
        history = World(seed, deletes=False).run(200)
        plant(history, random.Random(seed))
        report = check(history)
        kinds = set(report.counts)
        assert kind in kinds, f"seed {seed}: {report}"
        assert kinds <= {kind} | companions, f"seed {seed}: {report}"


def test_every_kind_of_anomaly_is_planted() -> None:
    assert {each[1] for each in PLANTS} | {K.INT_SEND_SKIP} == set(AnomalyKind)


# ---- what is no anomaly, and what is one all the same


def ok(process: str, *steps: Sent | Polled) -> ClientOperation:
    return ClientOperation(process, Kind.SEND if isinstance(steps[0], Sent) else Kind.POLL, OperationOutcome.OK, steps)


def reading(*records: tuple[int, int]) -> ClientOperation:
    return ok("reader", Polled({"p": records}))


def kinds_of(history: History, rules: HistoryRules | None = None) -> set[AnomalyKind]:
    return set(check(history, rules).counts)


@pytest.mark.parametrize(
    ("outcome", "expected"), [(OperationOutcome.OK, {K.LOST_WRITE, K.INT_POLL_SKIP}), (OperationOutcome.INFO, set())]
)
def test_a_value_between_two_that_were_read_is_lost_if_it_was_acknowledged(
    outcome: OperationOutcome, expected: set[AnomalyKind]
) -> None:
    middle = replace(ok("y", Sent("p", 2, 1)), outcome=outcome)
    assert kinds_of([ok("x", Sent("p", 1, 0)), middle, ok("x", Sent("p", 3, 2)), reading((0, 1), (2, 3))]) == expected


def test_a_value_after_the_last_read_one_is_unseen_only_after_reading_to_the_end() -> None:
    history = [ok("x", Sent("p", 1, 0)), ok("x", Sent("p", 2, 1)), reading((0, 1))]
    assert kinds_of(history) == {K.UNSEEN}
    assert kinds_of(history, HistoryRules(read_to_end=False)) == set()


def test_records_before_the_log_start_may_be_missing_and_others_not() -> None:
    history = [ok("x", *(Sent("p", each, each) for each in range(5))), reading((0, 0), (4, 4))]
    assert kinds_of(history) == {K.LOST_WRITE, K.INT_POLL_SKIP}
    assert kinds_of(history, HistoryRules(log_starts={"p": 4})) == set()
    report = check(history, HistoryRules(log_starts={"p": 3}))
    assert [each.values for each in report.anomalies if each.kind is K.LOST_WRITE] == [(3,)]


def test_the_last_value_of_a_key_may_not_be_missing_from_a_compacted_partition() -> None:
    keys = ("a", "b", "a", "b", "c")
    history = [ok("x", *(Sent("p", each, each, keys[each]) for each in range(5)))]
    rules = HistoryRules(compacted=frozenset({"p"}))
    assert kinds_of([*history, reading((2, 2), (3, 3), (4, 4))], rules) == set()
    assert kinds_of([*history, reading((2, 2), (3, 3), (4, 4))]) == {K.LOST_WRITE}
    assert kinds_of([*history, reading((2, 2), (4, 4))], rules) == {K.LOST_WRITE, K.INT_POLL_SKIP}
    doubt = ClientOperation("y", Kind.SEND, OperationOutcome.INFO, (Sent("p", 9, None, "b"),))
    assert kinds_of([*history, doubt, reading((2, 2), (4, 4))], rules) == set()


def test_a_record_may_be_there_twice_where_a_producer_without_idempotence_sent_it_again() -> None:
    twice = reading((0, 1), (1, 1))
    assert kinds_of([ok("x", Sent("p", 1, 1)), twice]) == {K.DUPLICATE}
    assert kinds_of([ok("x", Sent("p", 1, 1, may_repeat=True)), twice]) == set()


def test_a_process_may_read_again_after_a_seek_or_a_crash_and_not_otherwise() -> None:
    sent, again = ok("x", Sent("p", 1, 0)), reading((0, 1))
    assert kinds_of([sent, again, again]) == {K.NONMONOTONIC_POLL}
    assert kinds_of([sent, again, replace(again, repositioned=("p",))]) == set()
    assert kinds_of([sent, again, ClientOperation("reader", Kind.CRASH, OperationOutcome.INFO), again]) == set()
    kept, others = (ClientOperation("reader", Kind.ASSIGN, OperationOutcome.OK, (), each) for each in (("p",), ("q",)))
    assert kinds_of([sent, again, kept, again]) == {K.NONMONOTONIC_POLL}
    assert kinds_of([sent, again, others, kept, again]) == set()
    subscribed = check([sent, ClientOperation("reader", Kind.SUBSCRIBE, OperationOutcome.OK, (), ("p",)), again, again])
    assert (subscribed.is_sound, subscribed.allowed) == (True, {K.NONMONOTONIC_POLL: 1})


def test_foreign_values_are_no_anomaly_where_others_send_to_the_partitions() -> None:
    assert kinds_of([reading((0, 7))]) == {K.UNWRITTEN}
    assert kinds_of([reading((0, 7))], HistoryRules(all_sends_known=False)) == set()


def in_transaction(
    process: str, *steps: Sent | Polled, outcome: OperationOutcome = OperationOutcome.OK
) -> ClientOperation:
    return ClientOperation(process, Kind.TRANSACTION, outcome, steps)


def test_a_failing_transaction_that_reads_its_own_value_is_a_precommitted_read_and_no_aborted_one() -> None:
    failing = in_transaction("x", Sent("p", 1, 0), Polled({"p": ((0, 1),)}), outcome=OperationOutcome.FAIL)
    assert kinds_of([failing]) == {K.PRECOMMITTED_READ}


def test_transactions_that_write_in_another_order_to_each_partition_are_sound() -> None:
    history = [
        in_transaction("x", Sent("p", 1, 0), Sent("q", 1, 1)),
        in_transaction("y", Sent("p", 2, 1), Sent("q", 2, 0)),
        ok("reader", Polled({"p": ((0, 1), (1, 2)), "q": ((0, 2), (1, 1))})),
    ]
    assert check(history).is_sound


def test_a_chain_of_reads_is_sound_and_a_circle_names_who_read_what() -> None:
    first = in_transaction("x", Sent("p", 1, 0))
    second = in_transaction("y", Polled({"p": ((0, 1),)}), Sent("q", 2, 0))
    third = ok("reader", Polled({"p": ((0, 1),), "q": ((0, 2),)}))
    assert check([first, second, third]).is_sound
    report = check([replace(first, steps=(Polled({"q": ((0, 2),)}), *first.steps)), second, third])
    (found,) = report.anomalies
    assert (found.kind, found.operations, found.values) == (K.CIRCULAR_READ, (0, 1), (2, 1))
    assert found.message == (
        "transactions read from each other: operation 0 read 2 at offset 0 of q, which operation 1 wrote; "
        "operation 1 read 1 at offset 0 of p, which operation 0 wrote"
    )


def test_what_is_no_history_is_refused() -> None:
    with pytest.raises(ValueError, match="value 1 is sent to p by operation 0 and again by operation 1: each value"):
        check([ok("x", Sent("p", 1)), ok("x", Sent("p", 1))])
    with pytest.raises(ValueError, match="cannot check an iterator"):
        check(iter([reading((0, 1))]))


def test_a_report_counts_all_and_shows_the_first_hundred_of_a_kind() -> None:
    report = check([ok("x", *(Sent("p", each) for each in range(150))), reading()])
    assert report.counts == {K.UNSEEN: 150}
    assert len(report.anomalies) == 100
    assert report.to_json()["anomalies"][1] == {
        "kind": "unseen",
        "partition": "p",
        "offsets": [],
        "values": [1],
        "operations": [0],
        "message": "value 1 of operation 0 was acknowledged and never read, though all was read to the end",
        "isAllowed": False,
    }
    assert str(report).splitlines()[:3] == [
        "2 operations, 1 partitions: 150 values acknowledged, 0 read, 0 of unknown outcome",
        "anomalies: unseen 150",
        "unseen: p: value 0 of operation 0 was acknowledged and never read, though all was read to the end",
    ]


# ---- a naive checker, from the definitions


def naive(history: History, rules: HistoryRules) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield kind, partition and operations or offsets of what is wrong; quadratic, and without deletions."""
    every = [(n, o, s) for n, o in enumerate(history) for s in o.steps]
    wrote = [(n, o, s) for n, o, s in every if isinstance(s, Sent)]
    read = [(n, o, k, at, v) for n, o, s in every if isinstance(s, Polled) for k, r in s.records.items() for at, v in r]
    is_read = {(k, v) for _, o, k, _, v in read if o.outcome is OperationOutcome.OK}
    sure = {
        n
        for n, o, s in wrote
        if o.outcome is OperationOutcome.OK
        or (o.outcome is OperationOutcome.INFO and (s.partition, s.value) in is_read)
    }
    log = {(k, at, v) for _, _, k, at, v in read}
    log |= {(s.partition, s.offset, s.value) for n, _, s in wrote if n in sure and s.offset is not None}
    repeats = {(s.partition, s.value) for _, _, s in wrote if s.may_repeat}
    for k, at, v in log:
        if any((k, at) == (key, other) and v != value for key, other, value in log):
            yield "inconsistent-offsets", k, (at,)
        offsets = tuple(sorted(other for key, other, value in log if (key, value) == (k, v)))
        if len(offsets) > 1 and (k, v) not in repeats:
            yield "duplicate", k, offsets
    for n, o, s in wrote:
        k, v, offsets = s.partition, s.value, [at for key, at, value in log if (key, value) == (s.partition, s.value)]
        bound = max((min(a for q, a, w in log if (q, w) == (k, x)) for p, x in is_read if p == k), default=-1)
        is_ok, is_lost = (
            o.outcome is OperationOutcome.OK,
            (k, v) not in is_read and n in sure and bool(offsets) and max(offsets) <= bound,
        )
        if is_lost:
            yield "lost-write", k, (n, max(offsets))
        elif (k, v) not in is_read and rules.read_to_end and n in sure and (is_ok or o.kind is Kind.TRANSACTION):
            yield "unseen" if is_ok else "torn-transaction", k, (n,)
        if (k, v) in is_read and o.outcome is OperationOutcome.FAIL:
            yield "G1a", k, (n,)
        if any((m, key, value) == (n, k, v) for m, _, key, _, value in read):
            yield "precommitted-read", k, (n,)
    whole = {(n, o.outcome, s.partition, s.value) for n, o, s in wrote if o.kind is Kind.TRANSACTION}
    edges = {(n, m) for n, o, k, _, v in read for m, _, *sent in whole if [k, v] == sent and o.kind is Kind.TRANSACTION}
    lasting = {
        (n, m) for n, m in edges if n != m and OperationOutcome.FAIL not in (history[n].outcome, history[m].outcome)
    }
    for _ in history:
        lasting |= {(n, r) for n, m in lasting for q, r in lasting if m == q}
    if any(n == m for n, m in lasting):
        yield "G1c", "", ()
    for k, v in is_read - {(s.partition, s.value) for _, _, s in wrote}:
        yield "unwritten", k, (min(at for key, at, value in log if (key, value) == (k, v)),)
    offsets_of = {k: {at for key, at, _ in log if key == k} for k in ("p", "q")}
    for n, o, k, first, second, m in neighbours(history, log, sure):
        between = any(first < at < second for at in offsets_of[k])
        where = "int-" if n == m else ""
        if o == "send" and second <= first:
            yield f"{where}nonmonotonic-send", k, (m, first, second)
        elif o == "send" and between and n == m:
            yield "int-send-skip", k, (m, first, second)
        elif o == "poll" and (second <= first or between):
            yield where + ("poll-skip" if between else "nonmonotonic-poll"), k, (m, first, second)


def neighbours(
    history: History, log: set[tuple[str, int, int]], sure: set[int]
) -> Iterator[tuple[int, str, str, int, int, int]]:
    """Yield what follows what: operation, send or poll, partition, both offsets, and the operation of the second."""
    for process, k, what in itertools.product("xy", "pq", ("send", "poll")):
        last: tuple[int, int] | None = None
        for n, o in enumerate(history):
            if o.process != process:
                continue
            forgets = o.kind is Kind.ASSIGN and k not in o.partitions and o.outcome is not OperationOutcome.FAIL
            unclear = o.kind in (Kind.POLL, Kind.TRANSACTION) and o.outcome is OperationOutcome.INFO
            moved = k in o.repositioned and what == "poll"
            if o.kind is Kind.CRASH or (forgets and what == "poll") or moved:
                last = None
            offsets = list[int]()
            for s in o.steps:
                if what == "poll" and isinstance(s, Polled):
                    offsets += [at for at, _ in s.records.get(k, ())]
                elif what == "send" and isinstance(s, Sent) and s.partition == k and not s.may_repeat:
                    known = [s.offset] if s.offset is not None and n in sure else []
                    known += sorted(at for key, at, v in log if (key, v) == (k, s.value))
                    offsets += [] if o.outcome is OperationOutcome.FAIL else known[:1]
            if last is not None and offsets:
                yield last[0], what, k, last[1], offsets[0], n
            if not moved:
                for first, second in itertools.pairwise(offsets):
                    yield n, what, k, first, second, n
            if o.outcome is OperationOutcome.OK and offsets:
                last = n, offsets[-1]
            elif unclear and what == "poll":
                last = None


def any_history(chance: random.Random) -> History:
    """A history of a broken cluster: outcomes, offsets and reads are as it comes."""
    history, values = list[ClientOperation](), iter(range(1000))
    for _ in range(chance.randint(1, 10)):
        kind = chance.choices(list(Kind), (6, 6, 4, 1, 0, 0.5))[0]
        steps = list[Sent | Polled]()
        for _ in range(chance.randint(1, 3)):
            key = chance.choice("pq")
            if kind is Kind.SEND or (kind is Kind.TRANSACTION and chance.random() < 0.6):
                offset = chance.choice((None, chance.randrange(7)))
                steps.append(Sent(key, next(values), offset, None, chance.random() < 0.1))
            elif kind in (Kind.POLL, Kind.TRANSACTION):
                count = chance.randint(0, 3)
                steps.append(Polled({key: tuple((chance.randrange(7), chance.randrange(12)) for _ in range(count))}))
        outcome = chance.choices(list(OperationOutcome), (6, 1, 2))[0]
        partitions, moved = tuple(chance.sample("pq", chance.randint(0, 2))), ("p",) if chance.random() < 0.1 else ()
        history.append(ClientOperation(chance.choice("xy"), kind, outcome, tuple(steps), partitions, moved))
    return history


def as_naive(report: Report) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield the anomalies of a report as `naive` does."""
    for each in report.anomalies:
        match each.kind:
            case K.INCONSISTENT_OFFSETS | K.DUPLICATE | K.UNWRITTEN:
                yield each.kind, each.partition, each.offsets
            case K.LOST_WRITE:
                yield each.kind, each.partition, (each.operations[0], *each.offsets)
            case K.UNSEEN | K.TORN_TRANSACTION | K.ABORTED_READ | K.PRECOMMITTED_READ:
                yield each.kind, each.partition, each.operations[:1]
            case K.CIRCULAR_READ:
                yield each.kind, "", ()  # which circles are named depends on the order of search
            case _:
                yield each.kind, each.partition, (each.operations[-1], each.offsets[0], each.offsets[-1])


def test_a_naive_checker_finds_the_same_in_any_history() -> None:
    kinds = set[str]()
    for seed in range(1500):
        chance = random.Random(seed)
        history, rules = any_history(chance), HistoryRules(read_to_end=chance.random() < 0.5)
        report = check(history, rules)
        expected = set(naive(history, rules))
        assert set(as_naive(report)) == expected, f"seed {seed}"
        assert report.is_sound == all(each[0] == K.INT_SEND_SKIP for each in expected)
        kinds |= {each[0] for each in expected}
    assert kinds == set(AnomalyKind)
