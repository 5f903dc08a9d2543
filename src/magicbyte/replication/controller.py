"""The controller of a cluster: who leads each partition, as brokers and topics come and go.

Pure: what the tree and brokers say comes in, what is to be written and sent goes out. `broker/` calls one method at a
time, performs its effects in order, and reports what came of `WriteStates` and `ReadStates` before it calls the next.
Source: Kafka's KafkaController and its state machines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from magicbyte.ports import TopicPartition
from magicbyte.replication import election
from magicbyte.replication.state import NO_LEADER, PartitionState

BEING_DELETED: Final = -2
"""In place of a leader: what UpdateMetadata says of a topic that is being deleted."""
NEW_NODE: Final = -1
"""In place of a version: the state node is to be created."""


class KnownState(NamedTuple):
    """A partition's state, and the version of the node that holds it."""

    state: PartitionState
    version: int


@dataclass(frozen=True, slots=True)
class StateChange:
    """A state to write, if the node has `expected_version`, or is not there (`NEW_NODE`)."""

    partition: TopicPartition
    state: PartitionState
    expected_version: int


@dataclass(frozen=True, slots=True)
class PartitionOrder:
    """What a broker is told of a partition. `is_new`: it has just been created."""

    partition: TopicPartition
    state: PartitionState
    version: int
    replicas: tuple[int, ...]
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class WriteStates:
    """Write states; then call `states_written`. Each is written or refused by itself."""

    changes: tuple[StateChange, ...]


@dataclass(frozen=True, slots=True)
class ReadStates:
    """Read states; then call `states_read`."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Tell a broker which partitions it leads and follows."""

    broker_id: int
    orders: tuple[PartitionOrder, ...]


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """Tell a broker of all live brokers, and of these partitions; a leader of `BEING_DELETED` removes one."""

    broker_id: int
    orders: tuple[PartitionOrder, ...]


@dataclass(frozen=True, slots=True)
class StopReplicas:
    """Tell a broker to stop fetching partitions, and to delete their logs (`deletes`): then call `replicas_deleted`."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]
    deletes: bool


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """Remove a topic from the tree: no broker has a replica of it any more."""

    name: str


Effect: TypeAlias = WriteStates | ReadStates | LeaderAndIsr | UpdateMetadata | StopReplicas | RemoveTopic


class Controller:
    """The controller in one epoch, from its election to its resignation.

    `brokers` are the live ones with their broker epochs, `assignments` the replicas of each partition, `states` what
    the tree has of them, `deleting` the topics to be deleted. `unclean(topic)` is its `unclean.leader.election.enable`.
    """

    def __init__(
        self,
        epoch: int,
        brokers: Mapping[int, int],
        assignments: Mapping[TopicPartition, Sequence[int]],
        states: Mapping[TopicPartition, KnownState],
        *,
        deleting: Collection[str] = (),
        unclean: Callable[[str], bool] = lambda _topic: False,
    ) -> None:
        self.epoch, self._unclean = epoch, unclean
        self.brokers, self.shutting_down = dict(brokers), set[int]()
        self.replicas = {key: tuple(each) for key, each in assignments.items()}
        self.states = dict(states)
        self._undeleted: dict[str, set[tuple[int, TopicPartition]]] = {}  # replicas that still exist, by topic
        self._to_delete = set(deleting)

    # ---- events

    def start(self) -> list[Effect]:
        """Begin: every broker learns of every broker and partition, and partitions without a leader get one."""
        effects: list[Effect] = [UpdateMetadata(each, ()) for each in sorted(self.brokers)]
        effects += self._order(self.states, self.brokers)
        effects += self._settle(self.replicas)
        return effects + self.delete_topics(self._to_delete)

    def brokers_changed(self, brokers: Mapping[int, int]) -> list[Effect]:
        """Take in the live brokers and their epochs. A broker with another epoch died and came back in between."""
        came = {each for each, epoch in brokers.items() if self.brokers.get(each) != epoch}
        gone = {each for each, epoch in self.brokers.items() if brokers.get(each) != epoch}
        self.shutting_down -= gone
        effects: list[Effect] = []
        if gone:
            self.brokers = {each: epoch for each, epoch in self.brokers.items() if each not in gone}
            effects += self._settle(self._held_by(gone))
        self.brokers = dict(brokers)
        if came:
            effects += [UpdateMetadata(each, self._orders(self.states)) for each in sorted(came)]
            effects += [UpdateMetadata(each, ()) for each in sorted(set(brokers) - came)]
            effects += self._lead(self._held_by(came), came)
            effects += self._settle(self.replicas)
            effects += self._stop_deleted(came)
        elif gone:
            effects += [UpdateMetadata(each, ()) for each in sorted(brokers)]
        return effects

    def partitions_created(self, assignments: Mapping[TopicPartition, Sequence[int]]) -> list[Effect]:
        """Take in partitions of new topics, or new ones of known topics."""
        new = {key: tuple(each) for key, each in assignments.items() if key not in self.replicas}
        self.replicas |= new
        return self._settle(new)

    def states_written(
        self, written: Mapping[TopicPartition, KnownState], refused: Collection[TopicPartition]
    ) -> list[Effect]:
        """Take in which states of a `WriteStates` were written, with their versions; refused ones are read again."""
        new = {key for key in written if key not in self.states}
        self.states |= written
        effects = self._order(written, self.brokers, new)
        return [*effects, ReadStates(tuple(sorted(refused)))] if refused else effects

    def states_read(self, found: Mapping[TopicPartition, KnownState]) -> list[Effect]:
        """Take in states that leaders have changed; brokers learn of them, and what is wrong in them is put right."""
        self.states |= found
        effects: list[Effect] = [UpdateMetadata(each, self._orders(found)) for each in sorted(self.brokers)]
        return effects + self._settle(found)

    def isr_notified(self, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """Take in that leaders have changed the in-sync replicas of partitions."""
        known = tuple(sorted(key for key in set(partitions) if key in self.replicas))
        return [ReadStates(known)] if known else []

    def elect_preferred(self, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """Give the lead to the preferred leaders of partitions, where they are live and in sync."""
        changes = list[StateChange]()
        for key in sorted(set(partitions)):
            if (known := self.states.get(key)) is not None and key.topic not in self._to_delete:
                state = election.preferred(known.state, self.replicas[key], self._can_lead, self.epoch)
                changes += [] if state is None else [StateChange(key, state, known.version)]
        return _written(changes)

    def shut_down(self, broker_id: int) -> list[Effect]:
        """Move the lead away from a broker that is going to stop, and stop its replicas. Ask `remaining` afterwards."""
        self.shutting_down.add(broker_id)
        changes, stopped = list[StateChange](), list[TopicPartition]()
        for key in self._held_by([broker_id]):
            if (known := self.states.get(key)) is None or len(self.replicas[key]) == 1:
                continue
            if known.state.leader == broker_id:
                state = election.controlled_shutdown(
                    known.state, self.replicas[key], self.brokers, self.shutting_down, self.epoch
                )
            else:
                state = election.shrunk(known.state, broker_id, self.epoch)
                stopped.append(key)
            changes += [] if state is None else [StateChange(key, state, known.version)]
        stop: list[Effect] = [StopReplicas(broker_id, tuple(stopped), deletes=False)] if stopped else []
        return [*stop, *_written(changes)]

    def remaining(self, broker_id: int) -> list[TopicPartition]:
        """Return the partitions with other replicas that a broker still leads: it asks again before it stops."""
        return [
            key
            for key in self._held_by([broker_id])
            if len(self.replicas[key]) > 1 and key in self.states and self.states[key].state.leader == broker_id
        ]

    def delete_topics(self, names: Iterable[str]) -> list[Effect]:
        """Delete topics: readers forget them, replicas stop, then are deleted. Dead brokers' replicas wait for them."""
        effects: list[Effect] = []
        for name in sorted(names):
            keys = sorted(key for key in self.replicas if key.topic == name)
            self._to_delete.add(name)
            if not keys:
                effects.append(RemoveTopic(name))
                continue
            self._undeleted[name] = {(broker_id, key) for key in keys for broker_id in self.replicas[key]}
            gone = tuple(self._being_deleted(key) for key in keys)
            effects += [UpdateMetadata(each, gone) for each in sorted(self.brokers)]
            effects += self._stop_deleted(self.brokers, name)
        return effects

    def replicas_deleted(self, broker_id: int, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """Take in that a broker has deleted replicas; a topic whose last one this was is removed."""
        effects: list[Effect] = []
        for key in partitions:
            left = self._undeleted.get(key.topic)
            if left is None:
                continue
            left.discard((broker_id, key))
            if not left:
                del self._undeleted[key.topic]
                self._to_delete.discard(key.topic)
                for each in [each for each in self.replicas if each.topic == key.topic]:
                    del self.replicas[each]
                    self.states.pop(each, None)
                effects.append(RemoveTopic(key.topic))
        return effects

    # ---- decisions

    @property
    def _can_lead(self) -> set[int]:
        return set(self.brokers) - self.shutting_down

    def _held_by(self, broker_ids: Collection[int]) -> list[TopicPartition]:
        return sorted(key for key, replicas in self.replicas.items() if not set(replicas).isdisjoint(broker_ids))

    def _settle(self, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """Elect leaders where there is none, and remove dead brokers from the in-sync replicas."""
        changes = list[StateChange]()
        for key in sorted(partitions):
            if key.topic in self._to_delete:
                continue
            known = self.states.get(key)
            state = self._settled(key, known)
            if state is not None:
                changes.append(StateChange(key, state, NEW_NODE if known is None else known.version))
        return _written(changes)

    def _settled(self, key: TopicPartition, known: KnownState | None) -> PartitionState | None:
        """Return the state that a partition should have instead of the one it has; None where that is right."""
        replicas = self.replicas[key]
        if known is None:
            return election.first_state(replicas, self._can_lead, self.epoch)
        state = known.state
        if state.leader not in self.brokers:
            unclean = self._unclean(key.topic)
            elected = election.offline(state, replicas, self._can_lead, self.epoch, unclean=unclean)
            if elected is not None:
                return elected
        return election.without_dead(state, self.brokers, self.epoch)

    # ---- what brokers are told

    def _orders(
        self, partitions: Iterable[TopicPartition], new: Collection[TopicPartition] = ()
    ) -> tuple[PartitionOrder, ...]:
        return tuple(
            PartitionOrder(key, *self.states[key], self.replicas[key], key in new)
            for key in sorted(partitions)
            if key in self.replicas and key in self.states and key.topic not in self._to_delete
        )

    def _order(
        self, partitions: Iterable[TopicPartition], to: Collection[int], new: Collection[TopicPartition] = ()
    ) -> list[Effect]:
        """Tell the replicas of partitions their roles, and all brokers who leads them."""
        keys = list(partitions)
        orders = self._orders(keys)
        updates: list[Effect] = [UpdateMetadata(each, orders) for each in sorted(to)] if orders else []
        return [*self._lead(keys, to, new), *updates]

    def _lead(
        self, partitions: Iterable[TopicPartition], to: Collection[int], new: Collection[TopicPartition] = ()
    ) -> list[Effect]:
        orders = self._orders(partitions, new)
        effects: list[Effect] = []
        for broker_id in sorted(to):
            own = tuple(each for each in orders if broker_id in each.replicas)
            if own:
                effects.append(LeaderAndIsr(broker_id, own))
        return effects

    def _stop_deleted(self, to: Collection[int], name: str | None = None) -> list[Effect]:
        """Stop and delete the replicas that live brokers have of topics that are being deleted."""
        effects: list[Effect] = []
        for broker_id in sorted(to):
            keys = tuple(
                sorted(
                    key
                    for topic, left in self._undeleted.items()
                    if name in (None, topic)
                    for holder, key in left
                    if holder == broker_id
                )
            )
            if keys:
                effects += [StopReplicas(broker_id, keys, deletes=False), StopReplicas(broker_id, keys, deletes=True)]
        return effects

    def _being_deleted(self, key: TopicPartition) -> PartitionOrder:
        known = self.states.get(key) or KnownState(PartitionState(NO_LEADER, 0, (), self.epoch), 0)
        state = PartitionState(BEING_DELETED, known.state.leader_epoch, known.state.isr, self.epoch)
        return PartitionOrder(key, state, known.version, self.replicas[key])


def _written(changes: Sequence[StateChange]) -> list[Effect]:
    return [WriteStates(tuple(changes))] if changes else []
