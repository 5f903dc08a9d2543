"""Controllers that come and go while partitions move, brokers die and leaders change in-sync replicas: from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication import controller
from magicbyte.engine.replication.controller import Controller, Effect, StateChange
from magicbyte.engine.replication.election import ElectionType
from magicbyte.engine.replication.reassignment import OngoingMove
from magicbyte.engine.replication.state import NEW_NODE, KnownState, PartitionState

KEYS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
BROKERS = (1, 2, 3, 4)
STEPS, ROUNDS = 80, 40


class ControllerDiedError(Exception):
    """The controller ends in the middle of what it performs."""


@dataclass
class History:
    """The tree, the last orders to each broker, and the controller that is in office."""

    random: random.Random
    replicas: dict[TopicPartition, tuple[int, ...]] = field(default_factory=lambda: dict.fromkeys(KEYS, (1, 2)))
    moves: dict[TopicPartition, OngoingMove] = field(default_factory=dict)
    states: dict[TopicPartition, KnownState] = field(default_factory=dict)
    brokers: dict[int, int] = field(default_factory=lambda: dict.fromkeys(BROKERS, 1))
    told: dict[tuple[int, TopicPartition], tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    targets: dict[TopicPartition, set[int]] = field(default_factory=lambda: {key: {1, 2} for key in KEYS})
    epoch: int = 0
    is_mortal: bool = True

    def elect(self) -> None:
        """Have a new controller, which knows what is in the tree."""
        while True:
            self.epoch += 1
            self.now = Controller(self.epoch, self.brokers, self.replicas, self.states, moves=self.moves)
            if self.perform(self.now.start()):
                return

    def perform(self, effects: Iterable[Effect]) -> bool:
        """Perform effects; return whether the controller lives."""
        try:
            self._perform(effects)
        except ControllerDiedError:
            return False
        return True

    def act(self, effects: Iterable[Effect]) -> None:
        if not self.perform(effects):
            self.elect()

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if self.is_mortal and self.random.random() < 0.03:
                raise ControllerDiedError
            match effect:
                case controller.WriteStates(changes):
                    written = {
                        change.partition: self.states[change.partition] for change in changes if self._write(change)
                    }
                    refused = [each.partition for each in changes if each.partition not in written]
                    self._perform(self.now.states_written(written, refused))
                case controller.ReadStates(partitions):
                    self._perform(self.now.states_read({key: self.states[key] for key in partitions}))
                case controller.WriteAssignments(assignments):
                    for each in assignments:
                        self.replicas[each.partition] = each.replicas
                        self.targets[each.partition] = set(each.move.targets(each.replicas))
                        self.moves.pop(each.partition, None)
                        if each.move:
                            self.moves[each.partition] = each.move
                    self._perform(self.now.assignments_written(assignments))
                case controller.LeaderAndIsr(broker_id, orders):
                    for order in orders:
                        assert broker_id in order.replicas
                        epoch, _ = self.told.get((broker_id, order.partition), (-1, ()))
                        if order.state.leader_epoch > epoch:
                            self.told[broker_id, order.partition] = order.state.leader_epoch, order.replicas
                case controller.StopReplicas(broker_id, partitions, True):
                    for key in partitions:
                        assert broker_id not in self.states[key].state.isr, "a replica in sync is deleted"
                        self.told.pop((broker_id, key), None)

    def _write(self, change: StateChange) -> bool:
        known = self.states.get(change.partition)
        if (NEW_NODE if known is None else known.version) != change.expected_version:
            return False
        state = change.state
        assert known is None or state.leader_epoch == known.state.leader_epoch + 1
        assert state.leader == -1 or state.leader in state.isr
        assert state.isr, "there is a replica in sync, dead or alive"
        assert known is None or set(state.isr) <= set(known.state.isr), "only leaders take replicas into sync"
        self.states[change.partition] = KnownState(state, change.expected_version + 1)
        return True

    # ---- what happens

    def step(self) -> None:
        action = self.random.choice(["broker", "isr", "isr", "isr", "move", "cancel", "prefer", "notify", "controller"])
        key = self.random.choice(KEYS)
        if action == "broker":
            self._die_or_start(self.random.choice(BROKERS))
        elif action == "isr":
            self._change_isr(key, self.random.choice(BROKERS))
        elif action == "move":
            self._reassign(key, tuple(self.random.sample(BROKERS, self.random.randint(1, 3))))
        elif action == "cancel":
            self._reassign(key, None)
        elif action == "prefer":
            self.act(self.now.elect(ElectionType.PREFERRED, KEYS))
        elif action == "notify":
            self.act(self.now.isr_notified(KEYS))
        else:
            self.elect()

    def _die_or_start(self, broker_id: int) -> None:
        if broker_id in self.brokers:
            del self.brokers[broker_id]
            self.told = {where: each for where, each in self.told.items() if where[0] != broker_id}
        else:
            self.brokers[broker_id] = self.random.randint(2, 1 << 30)
        self.act(self.now.brokers_changed(self.brokers))

    def _reassign(self, key: TopicPartition, targets: tuple[int, ...] | None) -> None:
        effects, _ = self.now.reassign({key: targets})
        self.act(effects)

    def _change_isr(self, key: TopicPartition, broker_id: int) -> None:
        """Have the leader of a partition take a replica into sync, or out of it, as far as it knows."""
        known = self.states[key]
        epoch, replicas = self.told.get((known.state.leader, key), (-1, ()))
        if known.state.leader not in self.brokers or epoch != known.state.leader_epoch or broker_id not in replicas:
            return
        isr = set(known.state.isr) ^ {broker_id}
        if known.state.leader not in isr or (broker_id in isr and broker_id not in self.brokers):
            return
        state = PartitionState(known.state.leader, epoch, tuple(sorted(isr)), known.state.controller_epoch)
        if self.random.random() < 0.5:  # by the controller
            change = self.now.isr_asked(known.state.leader, key, epoch, state.isr, known.version)
            if isinstance(change, StateChange):
                assert change.state.isr == state.isr
                self.states[key] = KnownState(change.state, known.version + 1)
                self.act(self.now.states_read({key: self.states[key]}))
            else:
                assert change in (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INELIGIBLE_REPLICA,
                                  ErrorCode.INVALID_REQUEST, ErrorCode.FENCED_LEADER_EPOCH)  # fmt: skip
        else:
            self.states[key] = KnownState(state, known.version + 1)

    def end(self) -> None:
        """Start all brokers, and let leaders take all replicas into sync: every move ends."""
        self.is_mortal = False
        for broker_id in BROKERS:
            if broker_id not in self.brokers:
                self._die_or_start(broker_id)
        for _ in range(ROUNDS):
            for key in KEYS:
                for broker_id in BROKERS:
                    if broker_id not in self.states[key].state.isr:
                        self._change_isr(key, broker_id)
            self.act(self.now.isr_notified(KEYS))
        assert not self.moves
        for key in KEYS:
            state = self.states[key].state
            assert set(self.replicas[key]) == set(state.isr) == self.targets[key], key
            assert state.leader in state.isr
            for broker_id in self.replicas[key]:
                epoch, replicas = self.told[broker_id, key]
                assert (epoch, set(replicas)) == (state.leader_epoch, set(state.isr)), key


FOUND = (1437, 2870, 5708, 5989)
"""Seeds that found faults: leaders that were never told of new replicas, and partitions that no replica could lead."""


@pytest.mark.parametrize("seeds", [range(150), FOUND], ids=["many", "those that found something"])
def test_partitions_end_where_they_were_moved_to_and_no_replica_in_sync_is_deleted(seeds: Iterable[int]) -> None:
    for seed in seeds:
        history = History(random.Random(seed))
        history.elect()
        for _ in range(STEPS):
            history.step()
        history.end()
