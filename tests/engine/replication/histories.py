"""A simulated partition of three brokers: the decisions of replication/ with logs, a controller and faults from a seed.

A log is a list of (leader epoch, value), whose head retention deletes. The tree is one state node and the registered
brokers. What the controller sends waits in a queue for each broker. Consumers read all that is below a leader's high
watermark, at once.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication import controller, truncation
from magicbyte.engine.replication.controller import Controller, Effect
from magicbyte.engine.replication.election import ElectionType
from magicbyte.engine.replication.fetcher import (
    Answered,
    Append,
    AskEpochs,
    AskOffsets,
    Fetch,
    Fetcher,
    FetchFrom,
    Truncate,
)
from magicbyte.engine.replication.leader import IsrChange, LeaderPartition
from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.engine.replication.truncation import EpochEnd
from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH

KEY = TopicPartition("t", 0)
BROKERS = (1, 2, 3)
CONTROLLER = 0  # as an end of a connection that can be cut
MAX_LAG_MS = 3_000
ANY_VERSION = -1  # what ZooKeeper takes for "whatever is there"
DELETED = (-1, -1)  # in place of a record that a log has not, or no longer


@dataclass
class Log:
    """A follower's or leader's log; `epochs`, with their starts, are noted by append and by becoming leader."""

    records: list[tuple[int, int]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    high_watermark: int = 0
    log_start_offset: int = 0

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def epoch_after(self, epoch: int) -> int:
        return next((each for each, _ in self.epochs if each > epoch), -1)

    def append(self, epoch: int, value: int) -> None:
        self.note(epoch)
        self.records.append((epoch, value))

    def note(self, epoch: int) -> None:
        """Note that the next record is of an epoch; epochs without records are forgotten."""
        if epoch > self.latest_epoch:
            end = len(self.records)
            self.epochs = [*(each for each in self.epochs if each[1] < end), (epoch, end)]

    def truncate(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs = [each for each in self.epochs if each[1] < offset]
        self.high_watermark = min(self.high_watermark, offset)

    def delete_before(self, offset: int) -> None:
        """Delete the head; the epoch of the first record that stays begins there."""
        if offset <= self.log_start_offset:
            return
        self.records[:offset] = [DELETED] * offset
        before = [epoch for epoch, start in self.epochs if start <= offset]
        later = [each for each in self.epochs if each[1] > offset]
        self.epochs = [*((epoch, offset) for epoch in before[-1:] if offset < len(self.records)), *later]
        self.log_start_offset = offset

    def restart(self, offset: int) -> None:
        """Delete everything, and restart the log at an offset."""
        self.records, self.epochs = [DELETED] * offset, []
        self.high_watermark = self.log_start_offset = offset

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        if not self.epochs or epoch < 0 or epoch > self.latest_epoch:
            return EpochEnd(-1, -1)
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, len(self.records))
        lower = [each for each, _ in self.epochs if each <= epoch]
        return EpochEnd(lower[-1] if lower else epoch, next(start for each, start in self.epochs if each > epoch))


@dataclass
class Broker:
    """A broker: its log, its role, and what the controller told it and it has not taken in yet."""

    log: Log = field(default_factory=Log)
    is_alive: bool = True
    leader: LeaderPartition | None = None
    fetchers: dict[int, Fetcher] = field(default_factory=dict)  # by leader
    follows: int = NO_BROKER
    epoch: int = -1
    controller_epoch: int = -1

    @property
    def fetcher(self) -> Fetcher | None:
        """What asks the leader, None without one."""
        return self.fetchers.get(self.follows)

    told: deque[tuple[int, PartitionState, int]] = field(default_factory=deque)
    isr_write: IsrChange | None = None
    isr_answer: tuple[IsrChange, Callable[[LeaderPartition], object]] | None = None  # of the tree, on its way
    answer: tuple[Fetcher, FetchFrom, Answered, list[tuple[int, int]]] | None = None  # of a fetch, on its way
    waits: list[tuple[int, int]] = field(
        default_factory=list
    )  # offset after the record, and value, of produce requests


WEIGHTS = {
    "take in": 8, "produce": 20, "fetch": 40, "isr answer": 20, "shrink": 6, "crash": 1, "start": 6, "cut": 1,
    "lose session": 2, "notify": 4, "shut down": 0.3, "prefer": 2, "controller": 0.5, "delete": 0.5,
}  # fmt: skip
"""How often each happens."""
STORM = WEIGHTS | {"fetch": 20, "prefer": 8, "lose session": 5, "cut": 3, "produce": 12}
"""Leaders move faster than followers fetch."""


class ControllerEndsError(Exception):
    """The controller ended in the middle of its duties."""


class History:
    """One history. `acknowledged` are values by offset, of `acks=all`, and `read` those that a consumer could read.

    Each must stay where it is, but for those before `deleted`, which retention may have deleted.
    """

    def __init__(
        self,
        seed: int,
        *,
        asks_epochs: bool = True,
        compares_epochs: bool = False,
        min_isr: int = 1,
        storm: bool = False,
    ) -> None:
        self.random, self.asks_epochs, self.compares_epochs = random.Random(seed), asks_epochs, compares_epochs
        self.weights = STORM if storm else WEIGHTS
        self.min_isr, self.now_ms, self.values = min_isr, 0, 0
        self.brokers = {each: Broker() for each in BROKERS}
        self.cut: set[frozenset[int]] = set()  # pairs of brokers that do not reach each other
        self.state, self.version = PartitionState(1, 0, BROKERS, 1), 0
        self.replicas: tuple[int, ...] = BROKERS  # the preferred leader first
        self.registered = dict.fromkeys(BROKERS, 1)  # broker epochs
        self.acknowledged, self.read = dict[int, int](), dict[int, int]()
        self.deleted = 0
        self.faults: Counter[str] = Counter()
        self.controller_epoch, self.effects_left = 0, 1 << 60  # that the controller carries out before it ends
        self._new_controller()

    # ---- the controller

    def _new_controller(self) -> None:
        self.controller_epoch += 1
        known = {KEY: KnownState(self.state, self.version)}
        self.controller = Controller(self.controller_epoch, self.registered, {KEY: self.replicas}, known)
        self._perform(self.controller.start())

    def _perform(self, effects: Iterable[Effect]) -> None:
        try:
            self._carry_out(effects)
        except ControllerEndsError:
            self.faults["controller ends at work"] += 1
            self.effects_left = 1 << 60
            self._new_controller()

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if self.effects_left == 0:
                raise ControllerEndsError
            self.effects_left -= 1
            if isinstance(effect, controller.WriteStates):
                (change,) = effect.changes
                written, refused = dict[TopicPartition, KnownState](), list[TopicPartition]()
                if change.expected_version in (self.version, ANY_VERSION):
                    assert change.state.leader_epoch == self.state.leader_epoch + 1
                    self._put(change.state)
                    written[KEY] = KnownState(self.state, self.version)
                else:
                    self.faults["controller conflict"] += 1
                    refused.append(KEY)
                self._carry_out(self.controller.states_written(written, refused))
            elif isinstance(effect, controller.ReadStates):
                self._carry_out(self.controller.states_read({KEY: KnownState(self.state, self.version)}))
            elif isinstance(effect, controller.WriteAssignments):
                (self.replicas,) = (each.replicas for each in effect.changes)
                self._carry_out(self.controller.assignments_written(effect.changes))
            elif isinstance(effect, controller.LeaderAndIsr):
                (order,) = effect.orders
                self.brokers[effect.broker_id].told.append((self.controller.epoch, order.state, order.version))

    def _put(self, state: PartitionState) -> None:
        assert state.leader in (NO_BROKER, *state.isr), "a leader is in sync with itself"
        assert state.isr, "one replica at least is in sync, else none may ever lead again"
        assert set(state.isr) <= set(BROKERS)
        assert state.leader_epoch >= self.state.leader_epoch, "leader epochs do not fall"
        self.state, self.version = state, self.version + 1

    def _move_lead(self, replicas: tuple[int, ...]) -> None:
        """Prefer another leader, and elect it: the old one stays in sync, and may not hear of it for a while."""
        effects, _ = self.controller.reassign({KEY: replicas})
        self._perform(effects)
        self._perform(self.controller.elect(ElectionType.PREFERRED, [KEY]))

    def _register(self, broker_id: int) -> None:
        self.registered[broker_id] = self.registered.get(broker_id, 0) + self.random.randint(1, 1 << 30)
        self._see_brokers()

    def _unregister(self, broker_id: int) -> None:
        """End a broker's session. The controller may look so late that it sees the next one only."""
        del self.registered[broker_id]
        if self.random.random() < 0.7:
            self._see_brokers()

    def _see_brokers(self) -> None:
        self._perform(self.controller.brokers_changed(self.registered))
        able = set(self.registered) - self.controller.shutting_down
        if not able.isdisjoint(self.state.isr):
            assert self.state.leader in self.registered, "a replica that is in sync and live leads"

    # ---- what brokers do

    def _take_in(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if not broker.told or frozenset((broker_id, CONTROLLER)) in self.cut:
            return
        sender = self.random.choice(broker.told)[0]  # several controllers' requests come in any order, one's in theirs
        order = next(each for each in broker.told if each[0] == sender)
        broker.told.remove(order)
        controller_epoch, state, version = order
        if controller_epoch < broker.controller_epoch:
            self.faults["stale controller"] += 1
            return
        broker.controller_epoch = controller_epoch
        if state.leader_epoch <= broker.epoch:
            return
        broker.epoch = state.leader_epoch
        if state.leader == broker_id:
            self._unfollow(broker)
            broker.log.note(state.leader_epoch)
            if broker.leader is None:
                broker.leader = LeaderPartition(
                    broker_id,
                    state,
                    BROKERS,
                    version,
                    log_end_offset=broker.log.log_end_offset,
                    high_watermark=broker.log.high_watermark,
                    now_ms=self.now_ms,
                    max_lag_ms=MAX_LAG_MS,
                )
            else:
                broker.leader.renew(state, BROKERS, version, self.now_ms)
            self._show(broker)
            return
        broker.leader, broker.isr_write, broker.waits = None, None, []
        before, known_epoch = broker.follows, NO_EPOCH if broker.fetcher is None else broker.fetcher.known_epoch(KEY)
        followed_epoch = self._unfollow(broker)
        broker.follows = state.leader
        if state.leader != NO_BROKER:
            new = Fetcher(asks_epochs=self.asks_epochs, compares_epochs=self.compares_epochs)
            fetcher = broker.fetchers.setdefault(state.leader, new)
            since = followed_epoch if before == state.leader else NO_EPOCH
            cuts = fetcher.follow(KEY, broker.log, state.leader_epoch, followed_epoch=since, known_epoch=known_epoch)
            for each in cuts:
                self._truncate(broker, each)
            fetcher.was_cut(KEY, state.leader_epoch)

    def _truncate(self, broker: Broker, change: Truncate) -> None:
        if change.fully:
            self.faults["log restarted"] += 1
            broker.log.restart(change.offset)
        else:
            broker.log.truncate(change.offset)

    def _unfollow(self, broker: Broker) -> int:
        followed_epoch = NO_EPOCH if broker.fetcher is None else broker.fetcher.forget(KEY)
        broker.follows = NO_BROKER
        return followed_epoch

    def _produce(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if broker.leader is None or len(broker.leader.state.isr) < self.min_isr:
            return
        for _ in range(self.random.randint(1, 3)):
            self.values += 1
            broker.log.append(broker.leader.state.leader_epoch, self.values)
            broker.waits.append((broker.log.log_end_offset, self.values))
        broker.leader.appended(broker.log.log_end_offset, self.now_ms)
        self._show(broker)

    def _show(self, broker: Broker) -> None:
        assert broker.leader is not None
        assert broker.leader.high_watermark >= broker.log.high_watermark, "the high watermark of a leader never falls"
        for offset in range(max(broker.log.high_watermark, broker.log.log_start_offset), broker.leader.high_watermark):
            value = broker.log.records[offset][1]
            assert self.read.setdefault(offset, value) == value, "one offset, two values that consumers read"
        broker.log.high_watermark = broker.leader.high_watermark
        for end, value in list(broker.waits):
            code = broker.leader.acknowledgement(end, self.min_isr)
            if code is None:
                continue
            broker.waits.remove((end, value))
            if code == ErrorCode.NONE:
                assert len(broker.leader.state.isr) >= self.min_isr, "acknowledged with too few replicas in sync"
                assert self.acknowledged.setdefault(end - 1, value) == value, "one offset, two acknowledged values"

    def _write_isr(self, broker: Broker, change: IsrChange | None) -> None:
        if change is not None:
            broker.isr_write = change

    def _isr_answer(self, broker_id: int) -> None:
        """Let the tree carry out a leader's write, or its answer arrive."""
        broker = self.brokers[broker_id]
        if broker.isr_answer is not None:
            (_, take_in), broker.isr_answer = broker.isr_answer, None
            if broker.leader is not None:
                take_in(broker.leader)
                self._show(broker)
            return
        change, broker.isr_write = broker.isr_write, None
        if change is None:
            return
        outcome = self.random.random()
        is_lost, now_ms = outcome < 0.4, self.now_ms
        if outcome < 0.15:
            self.faults["isr not written"] += 1
        elif change.expected_version not in (self.version, ANY_VERSION):
            self.faults["isr conflict"] += 1
            found, version = self.state, self.version
            broker.isr_answer = change, lambda leader: leader.isr_refused(change, found, version, now_ms)
            return
        else:
            self._put(change.state)
            self.faults["isr answer lost"] += is_lost
        written = self.version
        if is_lost:
            broker.isr_answer = change, lambda leader: leader.isr_failed(change)
        else:
            broker.isr_answer = change, lambda leader: leader.isr_written(change, written, now_ms)

    def _fetch(self, broker_id: int) -> None:
        """Let a follower take one step: a question or a fetch, which its leader answers or does not."""
        broker = self.brokers[broker_id]
        if broker.answer is not None:
            self._take_answer(broker)
            return
        fetcher, leader = broker.fetcher, self.brokers.get(broker.follows)
        if fetcher is None or leader is None:
            return
        step = fetcher.next(self.now_ms)
        if not isinstance(step, AskEpochs | AskOffsets | Fetch):
            return
        if not leader.is_alive or frozenset((broker_id, broker.follows)) in self.cut:
            fetcher.failed(step, self.now_ms)
            return
        changes: list[Truncate] = []
        if isinstance(step, AskEpochs):
            question = step.questions[0]
            error = self._fault(leader, question.leader_epoch)
            answer = EpochEnd(-1, -1) if error else leader.log.end_of_epoch(question.epoch)
            changes = fetcher.epochs_answered(step, {KEY: (error, answer)}, self.now_ms)
        elif isinstance(step, AskOffsets):
            error = self._fault(leader, broker.epoch)
            start, end = leader.log.log_start_offset, leader.log.log_end_offset
            changes = fetcher.offsets_answered(step, {KEY: (error, start, end)}, self.now_ms)
        else:
            self._answer_fetch(broker_id, broker, leader, step.partitions[0])
        for each in changes:
            self._truncate(broker, each)

    def _fault(self, leader: Broker, epoch: int) -> ErrorCode:
        if leader.leader is None or leader.leader.state.leader_epoch < epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if leader.leader.state.leader_epoch > epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.NONE

    def _answer_fetch(self, broker_id: int, broker: Broker, leader: Broker, asked: FetchFrom) -> None:
        assert broker.fetcher is not None
        error = self._fault(leader, asked.leader_epoch)
        diverging = None
        if not error and self.compares_epochs and asked.last_epoch >= 0:
            diverging = truncation.diverging(asked.last_epoch, asked.offset, leader.log.end_of_epoch(asked.last_epoch))
        log = leader.log
        if not error and diverging is None and not log.log_start_offset <= asked.offset <= log.log_end_offset:
            self.faults["out of range"] += 1
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if not error and diverging is None:
            assert leader.leader is not None
            leader.leader.fetched(broker_id, asked.offset, asked.log_start_offset, self.now_ms)
            self._write_isr(leader, leader.leader.expansion(broker_id))
            self._show(leader)
        records = leader.log.records[asked.offset : asked.offset + self.random.randint(1, 4)]
        answered = Answered(error, log.high_watermark, log.log_start_offset, diverging)
        broker.answer = broker.fetcher, asked, answered, records

    def _take_answer(self, broker: Broker) -> None:
        assert broker.answer is not None
        (fetcher, asked, answer, records), broker.answer = broker.answer, None
        if self.random.random() < 0.05:
            self.faults["fetch answer lost"] += 1
            fetcher.failed(Fetch((asked,)), self.now_ms)
            return
        if fetcher is not broker.fetcher or asked.leader_epoch != broker.epoch:
            self.faults["fetch answer of another leader"] += 1
        done = fetcher.fetched(asked, answer, self.now_ms)
        if isinstance(done, Truncate):
            self._truncate(broker, done)
        elif isinstance(done, Append):
            for epoch, value in records:
                broker.log.append(epoch, value)
            broker.log.high_watermark = min(done.high_watermark, broker.log.log_end_offset)
            broker.log.delete_before(min(done.log_start_offset, broker.log.high_watermark))

    # ---- faults

    def _crash(self, broker_id: int) -> None:
        """End a broker's process: its log stays, its high watermark is what it wrote last, if anything."""
        broker = self.brokers[broker_id]
        if broker.is_alive:
            self.faults["crash"] += 1
            broker.log.high_watermark = self.random.randint(0, broker.log.high_watermark)
            self.brokers[broker_id] = Broker(log=broker.log, is_alive=False)
            self._unregister(broker_id)

    def _start(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if not broker.is_alive:
            broker.is_alive = True
            if not self._may_be_in_sync(broker_id) and self.random.random() < 0.3:
                self.faults["tail lost"] += 1  # the power went before it was on disk: only those in sync must have it
                start, end = broker.log.log_start_offset, broker.log.log_end_offset
                broker.log.truncate(self.random.choice((start, self.random.randint(start, max(start, end)))))
            self._register(broker_id)

    def _may_be_in_sync(self, broker_id: int) -> bool:
        """Return whether a broker is in sync, or a leader is about to write that it is.

        Such a write succeeds also when the broker died and came back in between (KIP-903 ended that for KRaft).
        """
        writes = [each.isr_write.state.isr for each in self.brokers.values() if each.isr_write is not None]
        return any(broker_id in isr for isr in (self.state.isr, *writes))

    def _delete(self, broker: Broker) -> None:
        """Let the retention of a leader delete committed records."""
        if broker.leader is not None:
            self.faults["retention"] += 1
            broker.log.delete_before(self.random.randint(broker.log.log_start_offset, broker.log.high_watermark))
            self.deleted = max(self.deleted, broker.log.log_start_offset)

    def _cut_or_heal(self) -> None:
        pair = frozenset(self.random.sample((CONTROLLER, *BROKERS), 2))
        self.faults["heal" if pair in self.cut else "cut"] += 1
        self.cut ^= {pair}

    def _lose_session(self, broker_id: int) -> None:
        """Take the lead from a broker that lives but lost its session; it learns of that later."""
        self.faults["session lost"] += 1
        if broker_id in self.registered:
            self._unregister(broker_id)
        self._register(broker_id)

    # ---- running and judging

    def run(self, steps: int) -> None:
        """Take random steps, then heal everything and take the steps that make replicas equal; judge all the time."""
        for _ in range(steps):
            self.now_ms += self.random.randint(0, 300)
            broker_id = self.random.choice(BROKERS)
            (action,) = self.random.choices(list(self.weights), list(self.weights.values()))
            self._act(action, broker_id)
            self._judge()
        self.cut.clear()
        self.effects_left = 1 << 60
        for broker_id in BROKERS:
            self._start(broker_id)
        self._settle(2 * len(self.brokers[1].log.records) + 200)
        self._produce_and_wait()
        self._perform(self.controller.isr_notified([KEY]))
        self._move_lead(BROKERS)
        self._settle(10)
        assert self.state.leader == 1
        self._produce_and_wait()
        self._leave_a_follower_behind()
        logs = [self.brokers[each].log for each in BROKERS]
        start = max(each.log_start_offset for each in logs)
        assert self.deleted >= start
        assert min(each.log_start_offset for each in logs) == logs[0].log_start_offset, "followers learn of deletions"
        assert logs[0].records[start:] == logs[1].records[start:] == logs[2].records[start:], "replicas are equal"
        assert set(self.state.isr) == set(BROKERS), "all are in sync in the end"

    def _settle(self, rounds: int, brokers: Iterable[int] = BROKERS) -> None:
        """Take the steps that make replicas equal, unless something is in the way."""
        for _ in range(rounds):
            self.now_ms += 500
            for broker_id in brokers:
                for action in ("take in", "fetch", "isr answer", "shrink"):
                    self._act(action, broker_id)
            self._judge()

    def _produce_and_wait(self) -> None:
        self._produce(self.state.leader)
        self._settle(80)
        log = self.brokers[self.state.leader].log
        assert log.high_watermark == log.log_end_offset, "it is committed"
        assert set(self.state.isr) == set(BROKERS), "all are in sync"

    def _leave_a_follower_behind(self) -> None:
        """Hang a follower while records are written: they are committed without it; then it comes back."""
        self._produce(1)
        self._settle(80, (1, 2))
        assert set(self.state.isr) == {1, 2}, "a follower that hangs is removed"
        self._produce(1)
        self._settle(80, (1, 2))
        assert self.brokers[1].log.high_watermark == self.brokers[1].log.log_end_offset, "it is committed without it"
        self._settle(80)
        self._produce_and_wait()

    def _act(self, action: str, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if action == "start":
            self._start(broker_id)
        elif action == "cut":
            self._cut_or_heal()
        elif action == "notify":
            self._perform(self.controller.isr_notified([KEY]))
        elif action == "prefer":
            self._move_lead(tuple(self.random.sample(BROKERS, len(BROKERS))))
        elif action == "controller":
            self.faults["new controller"] += 1
            self.effects_left = self.random.randint(0, 8)
        elif broker.is_alive:
            if action == "take in":
                self._take_in(broker_id)
            elif action == "produce":
                self._produce(broker_id)
            elif action == "fetch":
                self._fetch(broker_id)
            elif action == "isr answer":
                self._isr_answer(broker_id)
            elif action == "shrink" and broker.leader is not None:
                self._write_isr(broker, broker.leader.shrinking(self.now_ms))
            elif action == "crash":
                self._crash(broker_id)
            elif action == "delete":
                self._delete(broker)
            elif action == "lose session":
                self._lose_session(broker_id)
            elif action == "shut down":
                self.faults["shutdown"] += 1
                self._perform(self.controller.shut_down(broker_id))
                self._crash(broker_id)  # also where partitions remain: a broker tries three times, then stops

    def _judge(self) -> None:
        """No record that was read or acknowledged is missing from a replica that may be elected next."""
        for broker_id in self.state.isr:
            log = self.brokers[broker_id].log
            assert log.log_start_offset <= self.deleted, (
                f"broker {broker_id} has deleted records that it was not asked to delete"
            )
            assert log.log_end_offset >= self.deleted, f"broker {broker_id} lacks records up to {self.deleted}"
            for offset, value in self.read.items():
                if offset >= self.deleted:
                    assert offset < log.log_end_offset, f"record {offset} was acknowledged, broker {broker_id} lacks it"
                    assert log.records[offset][1] == value, f"record {offset} was acknowledged, {broker_id} has another"
