"""A simulated partition of three brokers: the decisions of replication/ with logs, a controller and faults from a seed.

A log is a list of (leader epoch, value). The tree is one state node and the registered brokers. What the controller
sends waits in a queue for each broker.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from magicbyte.errors import ErrorCode
from magicbyte.ports import TopicPartition
from magicbyte.replication import controller
from magicbyte.replication.controller import Controller, Effect, KnownState
from magicbyte.replication.fetcher import Answered, Append, AskEpochs, AskOffsets, Fetch, Fetcher, FetchFrom, Truncate
from magicbyte.replication.leader import IsrChange, LeaderPartition
from magicbyte.replication.state import NO_LEADER, PartitionState
from magicbyte.replication.truncation import EpochEnd

KEY = TopicPartition("t", 0)
BROKERS = (1, 2, 3)
MAX_LAG_MS = 3_000


@dataclass
class Log:
    """A follower's or leader's log; `epochs` are noted by append and by becoming leader, as in Kafka."""

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

    def append(self, epoch: int, value: int) -> None:
        if epoch > self.latest_epoch:
            self.epochs.append((epoch, len(self.records)))
        self.records.append((epoch, value))

    def truncate(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs = [each for each in self.epochs if each[1] < offset]
        self.high_watermark = min(self.high_watermark, offset)

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
    follows: int = NO_LEADER
    epoch: int = -1
    controller_epoch: int = -1

    @property
    def fetcher(self) -> Fetcher | None:
        """What asks the leader, None without one."""
        return self.fetchers.get(self.follows)

    told: deque[tuple[int, PartitionState, int]] = field(default_factory=deque)
    isr_write: IsrChange | None = None
    answer: tuple[Fetcher, FetchFrom, Answered, list[tuple[int, int]]] | None = None  # of a fetch, on its way
    waits: list[tuple[int, int]] = field(
        default_factory=list
    )  # offset after the record, and value, of produce requests


class History:
    """One history. `acknowledged` are values by offset, of `acks=all`; each must stay where it is."""

    def __init__(self, seed: int, *, asks_epochs: bool = True, compares_epochs: bool = False, min_isr: int = 1) -> None:
        self.random, self.asks_epochs, self.compares_epochs = random.Random(seed), asks_epochs, compares_epochs
        self.min_isr, self.now_ms, self.values = min_isr, 0, 0
        self.brokers = {each: Broker() for each in BROKERS}
        self.cut: set[frozenset[int]] = set()  # pairs of brokers that do not reach each other
        self.state, self.version = PartitionState(1, 0, BROKERS, 1), 0
        self.registered = dict.fromkeys(BROKERS, 1)  # broker epochs
        self.acknowledged: dict[int, int] = {}
        self.faults: Counter[str] = Counter()
        self.controller_epoch = 0
        self._new_controller()

    # ---- the controller

    def _new_controller(self) -> None:
        self.controller_epoch += 1
        known = {KEY: KnownState(self.state, self.version)}
        self.controller = Controller(self.controller_epoch, self.registered, {KEY: BROKERS}, known)
        self._perform(self.controller.start())

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, controller.WriteStates):
                (change,) = effect.changes
                written, refused = dict[TopicPartition, KnownState](), list[TopicPartition]()
                if change.expected_version == self.version:
                    assert change.state.leader_epoch == self.state.leader_epoch + 1
                    self._put(change.state)
                    written[KEY] = KnownState(self.state, self.version)
                else:
                    self.faults["controller conflict"] += 1
                    refused.append(KEY)
                self._perform(self.controller.states_written(written, refused))
            elif isinstance(effect, controller.ReadStates):
                self._perform(self.controller.states_read({KEY: KnownState(self.state, self.version)}))
            elif isinstance(effect, controller.LeaderAndIsr):
                (order,) = effect.orders
                self.brokers[effect.broker_id].told.append((self.controller.epoch, order.state, order.version))

    def _put(self, state: PartitionState) -> None:
        self.state, self.version = state, self.version + 1

    def _register(self, broker_id: int) -> None:
        self.registered[broker_id] = self.registered.get(broker_id, 0) + self.random.randint(1, 1 << 30)
        self._perform(self.controller.brokers_changed(self.registered))

    def _unregister(self, broker_id: int) -> None:
        del self.registered[broker_id]
        self._perform(self.controller.brokers_changed(self.registered))

    # ---- what brokers do

    def _take_in(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if not broker.told:
            return
        controller_epoch, state, version = broker.told.popleft()
        if controller_epoch < broker.controller_epoch:
            self.faults["stale controller"] += 1
            return
        broker.controller_epoch = controller_epoch
        if state.leader_epoch <= broker.epoch:
            return
        broker.epoch = state.leader_epoch
        if state.leader == broker_id:
            self._unfollow(broker)
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
            broker.isr_write = None
            self._show(broker)
            return
        broker.leader, broker.isr_write, broker.waits = None, None, []
        self._unfollow(broker)
        broker.follows = state.leader
        if state.leader != NO_LEADER:
            new = Fetcher(asks_epochs=self.asks_epochs, compares_epochs=self.compares_epochs)
            fetcher = broker.fetchers.setdefault(state.leader, new)
            for each in fetcher.follow(KEY, broker.log, state.leader_epoch):
                broker.log.truncate(each.offset)

    def _unfollow(self, broker: Broker) -> None:
        if broker.fetcher is not None:
            broker.fetcher.forget(KEY)
        broker.follows = NO_LEADER

    def _produce(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if broker.leader is None or len(broker.leader.state.isr) < self.min_isr:
            return
        self.values += 1
        broker.log.append(broker.leader.state.leader_epoch, self.values)
        broker.waits.append((broker.log.log_end_offset, self.values))
        broker.leader.appended(broker.log.log_end_offset, self.now_ms)
        self._show(broker)

    def _show(self, broker: Broker) -> None:
        assert broker.leader is not None
        assert broker.leader.high_watermark >= broker.log.high_watermark, "the high watermark of a leader never falls"
        broker.log.high_watermark = broker.leader.high_watermark
        for end, value in list(broker.waits):
            code = broker.leader.acknowledgement(end, self.min_isr)
            if code is None:
                continue
            broker.waits.remove((end, value))
            if code == ErrorCode.NONE:
                assert self.acknowledged.setdefault(end - 1, value) == value, "one offset, two acknowledged values"

    def _write_isr(self, broker: Broker, change: IsrChange | None) -> None:
        if change is not None:
            broker.isr_write = change

    def _isr_answer(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        change, broker.isr_write = broker.isr_write, None
        if change is None or broker.leader is None:
            return
        outcome = self.random.random()
        if outcome < 0.15:
            self.faults["isr not written"] += 1
            broker.leader.isr_failed(change)
        elif change.expected_version != self.version:
            self.faults["isr conflict"] += 1
            broker.leader.isr_refused(change, self.state, self.version, self.now_ms)
        else:
            self._put(change.state)
            if outcome < 0.4:
                self.faults["isr answer lost"] += 1
                broker.leader.isr_failed(change)
            else:
                broker.leader.isr_written(change, self.version, self.now_ms)
        self._show(broker)

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
            changes = fetcher.offsets_answered(step, {KEY: (error, 0, leader.log.log_end_offset)}, self.now_ms)
        else:
            self._answer_fetch(broker_id, broker, leader, step.partitions[0])
        for each in changes:
            broker.log.truncate(each.offset)

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
            end = leader.log.end_of_epoch(asked.last_epoch)
            if end.end_offset >= 0 and (end.epoch < asked.last_epoch or end.end_offset < asked.offset):
                diverging = end
        if not error and diverging is None and asked.offset > leader.log.log_end_offset:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if not error and diverging is None:
            assert leader.leader is not None
            leader.leader.fetched(broker_id, asked.offset, 0, self.now_ms)
            self._write_isr(leader, leader.leader.expansion(broker_id))
            self._show(leader)
        records = leader.log.records[asked.offset : asked.offset + self.random.randint(1, 4)]
        broker.answer = broker.fetcher, asked, Answered(error, leader.log.high_watermark, 0, diverging), records

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
            broker.log.truncate(done.offset)
        elif isinstance(done, Append):
            for epoch, value in records:
                broker.log.append(epoch, value)
            broker.log.high_watermark = min(done.high_watermark, broker.log.log_end_offset)

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
            self._register(broker_id)

    def _cut_or_heal(self) -> None:
        pair = frozenset(self.random.sample(BROKERS, 2))
        self.faults["heal" if pair in self.cut else "cut"] += 1
        self.cut ^= {pair}

    def _lose_session(self, broker_id: int) -> None:
        """Take the lead from a broker that lives but lost its session; it learns of that later."""
        self.faults["session lost"] += 1
        self._unregister(broker_id)
        self._register(broker_id)

    # ---- running and judging

    def run(self, steps: int) -> None:
        """Take random steps, then heal everything and take the steps that make replicas equal; judge all the time."""
        for _ in range(steps):
            self.now_ms += self.random.randint(0, 300)
            broker_id = self.random.choice(BROKERS)
            action = self.random.choices(
                (
                    "take in",
                    "produce",
                    "fetch",
                    "isr answer",
                    "shrink",
                    "crash",
                    "start",
                    "cut",
                    "lose session",
                    "notify",
                    "shut down",
                    "prefer",
                    "controller",
                ),
                (8, 20, 40, 10, 6, 1, 6, 1, 2, 4, 0.3, 2, 0.5),
            )[0]
            self._act(action, broker_id)
            self._judge()
        self.cut.clear()
        for broker_id in BROKERS:
            self._start(broker_id)
        for _ in range(4 * len(self.brokers[1].log.records) + 400):
            self.now_ms += 500
            for broker_id in BROKERS:
                for action in ("take in", "fetch", "isr answer", "shrink"):
                    self._act(action, broker_id)
            self._judge()
        self._perform(self.controller.isr_notified([KEY]))
        self._perform(self.controller.elect(controller.Election.PREFERRED, [KEY]))
        for broker_id in BROKERS:
            self._act("take in", broker_id)
            self._act("take in", broker_id)
        assert self.state.leader == 1
        self._produce(1)
        for _ in range(40):
            self.now_ms += 500
            for broker_id in BROKERS:
                self._act("fetch", broker_id)
        assert max(self.acknowledged, default=-1) == self.brokers[self.state.leader].log.log_end_offset - 1
        logs = [self.brokers[each].log.records for each in BROKERS]
        assert logs[0] == logs[1] == logs[2], "replicas that fetched all are equal"
        assert set(self.state.isr) == set(BROKERS), "all are in sync in the end"

    def _act(self, action: str, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if action == "start":
            self._start(broker_id)
        elif action == "cut":
            self._cut_or_heal()
        elif action == "notify":
            self._perform(self.controller.isr_notified([KEY]))
        elif action == "prefer":
            self._perform(self.controller.elect(controller.Election.PREFERRED, [KEY]))
        elif action == "controller":
            self.faults["new controller"] += 1
            self._new_controller()
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
            elif action == "lose session":
                self._lose_session(broker_id)
            elif action == "shut down":
                self.faults["shutdown"] += 1
                self._perform(self.controller.shut_down(broker_id))
                self._crash(broker_id)  # also where partitions remain: a broker tries three times, then stops

    def _judge(self) -> None:
        """No acknowledged record is missing from a replica that may be elected next."""
        for broker_id in self.state.isr:
            records = self.brokers[broker_id].log.records
            for offset, value in self.acknowledged.items():
                assert offset < len(records), f"record {offset} was acknowledged, broker {broker_id} lacks it"
                assert records[offset][1] == value, f"record {offset} was acknowledged, broker {broker_id} has another"
