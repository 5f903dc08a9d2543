"""The controller of a cluster: decides who leads each partition, as brokers and topics come and go.

Pure: facts of the tree and of brokers in, writes and requests out. `stores/` calls one method at a time, performs its
effects in order, and reports the outcome of `WriteStates` and `ReadStates` before the next call. Source: Kafka's
KafkaController and its state machines.

Invariants:
1. The tree is the truth; what this object knows of states is what it read or wrote last. A change names the version
   that it replaces, and is refused if the node has another: then the state is read, and decided again.
2. Brokers get a new leader only after it is in the tree. So a crash leaves a tree that is ahead of the brokers, never
   behind; the next controller sends everything again (`start`).
3. A change of the leader or of the replicas has a higher leader epoch, by which brokers tell later orders from earlier
   ones.
4. The leader is elected among in-sync replicas; only `unclean` allows others. The last one stays in the ISR when it
   dies.
5. A reassignment ends when all targets are in sync and in the ISR alone; its former replicas are deleted after that is
   written.
6. A topic is removed from the tree when every broker has deleted its replica; those of dead brokers remain pending.

One event is handled at a time: effects are performed in order, and the outcome of a write is reported before the next
event. `tests/engine/replication/test_controller_histories.py` has random histories with crashes of controllers between
effects; `test_histories.py` finds the mistakes of `planted.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication import election, reassignment
from magicbyte.engine.replication.election import ElectionType
from magicbyte.engine.replication.reassignment import NO_MOVE, OngoingMove
from magicbyte.engine.replication.state import NEW_NODE, KnownState, PartitionOrder, PartitionState
from magicbyte.engine.sentinels import NO_BROKER

BEING_DELETED: Final = -2
"""Used instead of a leader: UpdateMetadata's mark of a topic that is being deleted."""


class StateChange(Struct, frozen=True):
    """A state to write, if the node has `expected_version`, or does not exist (`NEW_NODE`)."""

    partition: TopicPartition
    state: PartitionState
    expected_version: int


class AssignmentChange(Struct, frozen=True):
    """The replicas of a partition to write into its topic's node, and the reassignment in progress."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    move: OngoingMove = NO_MOVE


class IsrWish(Struct, frozen=True):
    """The ISR that a leader requests (AlterPartition), to replace that in `version` of the node."""

    leader_epoch: int
    isr: tuple[int, ...]
    version: int


class IsrAnswer(Struct, frozen=True):
    """The result of an `IsrWish`: the current state, None with an error code."""

    error: ErrorCode
    known: KnownState | None = None


class WriteStates(Struct, frozen=True):
    """Write states; then call `states_written`. Each is written or refused individually."""

    changes: tuple[StateChange, ...]


class ReadStates(Struct, frozen=True):
    """Read states; then call `states_read`."""

    partitions: tuple[TopicPartition, ...]


class WriteAssignments(Struct, frozen=True):
    """Write replicas of partitions into the nodes of their topics; then call `assignments_written`."""

    changes: tuple[AssignmentChange, ...]


class LeaderAndIsr(Struct, frozen=True):
    """Send a broker its roles as leader and follower."""

    broker_id: int
    orders: tuple[PartitionOrder, ...]


class UpdateMetadata(Struct, frozen=True):
    """Send a broker all live brokers, and these partitions; a leader of `BEING_DELETED` removes one."""

    broker_id: int
    orders: tuple[PartitionOrder, ...]


class StopReplicas(Struct, frozen=True):
    """Tell a broker to stop fetching partitions, and to delete their logs (`deletes`): then call `replicas_deleted`."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]
    deletes: bool


class RemoveTopic(Struct, frozen=True):
    """Remove a topic from the tree: no broker has a replica of it."""

    name: str


Effect: TypeAlias = (
    WriteStates | ReadStates | WriteAssignments | LeaderAndIsr | UpdateMetadata | StopReplicas | RemoveTopic
)


class _Cluster:
    """The controller's knowledge of the cluster, and its requests about partitions."""

    def __init__(
        self,
        epoch: int,
        brokers: Mapping[int, int],
        assignments: Mapping[TopicPartition, Sequence[int]],
        states: Mapping[TopicPartition, KnownState],
        *,
        moves: Mapping[TopicPartition, OngoingMove] | None = None,
        deleting: Collection[str] = (),
        unclean: Callable[[str], bool] = lambda _topic: False,
    ) -> None:
        self.epoch, self._unclean = epoch, unclean
        self.brokers, self.shutting_down = dict(brokers), set[int]()
        self.replicas = {key: tuple(each) for key, each in assignments.items()}
        self.states, self.moves = dict(states), dict(moves or {})
        self._partitions: defaultdict[str, set[TopicPartition]] = defaultdict(set)
        for key in self.replicas:
            self._partitions[key.topic].add(key)
        self._failed: defaultdict[int, set[TopicPartition]] = defaultdict(set)  # replicas on failed disks, by broker
        self._untold: set[TopicPartition] = set()  # whose changed replicas brokers have not been sent yet
        # replicas to delete once their partition's state is written
        self._surplus: dict[TopicPartition, tuple[int, ...]] = {}
        self._refused: set[TopicPartition] = set()  # whose last change was refused: replicas may wait for their role
        self._undeleted: dict[str, set[tuple[int, TopicPartition]]] = {}  # replicas that still exist, by topic
        self._to_delete = set(deleting)

    @property
    def topics(self) -> set[str]:
        """The names of all topics."""
        return set(self._partitions)

    @property
    def _can_lead(self) -> set[int]:
        return set(self.brokers) - self.shutting_down

    def _live(self, key: TopicPartition, live: Collection[int] | None = None) -> Collection[int]:
        """Return the brokers among `live` that can lead a partition."""
        able = self._can_lead if live is None else live
        return {each for each in able if key not in self._failed[each]} if self._failed else able

    def held_by(self, broker_ids: Collection[int]) -> list[TopicPartition]:
        """Return the partitions with replicas at these brokers."""
        return sorted(key for key, replicas in self.replicas.items() if not set(replicas).isdisjoint(broker_ids))

    # ---- requests to brokers

    def _orders(
        self, partitions: Iterable[TopicPartition], new: Collection[TopicPartition] = ()
    ) -> tuple[PartitionOrder, ...]:
        return tuple(
            PartitionOrder(
                key,
                *self.states[key],
                self.replicas[key],
                key in new,
                self.moves.get(key, NO_MOVE),
                self._offline(key),
            )
            for key in sorted(partitions)
            if key in self.replicas and key in self.states and key.topic not in self._to_delete
        )

    def _offline(self, key: TopicPartition) -> tuple[int, ...]:
        live = self._live(key, self.brokers)
        return tuple(broker for broker in self.replicas[key] if broker not in live)

    def _order(
        self, partitions: Iterable[TopicPartition], to: Collection[int], new: Collection[TopicPartition] = ()
    ) -> list[Effect]:
        """Send the replicas of partitions their roles, and all brokers the leaders."""
        keys = list(partitions)
        orders = self._orders(keys)
        updates: list[Effect] = [UpdateMetadata(each, orders) for each in sorted(to)] if orders else []
        return [*self._lead(keys, to, new), *updates]

    def _lead(
        self, partitions: Iterable[TopicPartition], to: Collection[int], new: Collection[TopicPartition] = ()
    ) -> list[Effect]:
        own: defaultdict[int, list[PartitionOrder]] = defaultdict(list)
        for order in self._orders(partitions, new):
            for broker_id in order.replicas:
                if broker_id in to:
                    is_added = broker_id in order.move.adding and broker_id not in order.state.isr
                    own[broker_id].append(replace(order, is_new=True) if is_added else order)
        return [LeaderAndIsr(broker_id, tuple(own[broker_id])) for broker_id in sorted(own)]

    def _being_deleted(self, key: TopicPartition) -> PartitionOrder:
        known = self.states.get(key) or KnownState(PartitionState(NO_BROKER, 0, (), self.epoch), 0)
        state = PartitionState(BEING_DELETED, known.state.leader_epoch, known.state.isr, self.epoch)
        return PartitionOrder(key, state, known.version, self.replicas[key])


class Controller(_Cluster):
    """The controller in one epoch, from its election to its resignation.

    `brokers` are the live ones with their broker epochs, `assignments` the replicas of each partition, `states` those
    of the tree, `moves` the reassignments in progress, `deleting` the topics being deleted. `unclean(topic)` is its
    `unclean.leader.election.enable`. A new controller can restart all work from these.
    """

    # ---- events

    def start(self) -> list[Effect]:
        """Begin: send every broker all brokers and partitions, and elect leaders where there is none."""
        for key in [key for key in self.moves if key.topic in self._to_delete]:
            del self.moves[key]
        effects: list[Effect] = [UpdateMetadata(broker, ()) for broker in sorted(self.brokers)]
        effects += self._order(self.states, self.brokers)
        self._untold.update(self.moves)
        effects += self._settle(self.replicas)
        return effects + self.delete_topics(self._to_delete)

    def brokers_changed(self, brokers: Mapping[int, int]) -> list[Effect]:
        """Apply the live brokers and their epochs. A broker with another epoch restarted in between."""
        came = {each for each, epoch in brokers.items() if self.brokers.get(each) != epoch}
        gone = {each for each, epoch in self.brokers.items() if brokers.get(each) != epoch}
        self.shutting_down -= gone
        for each in gone | came:
            self._failed.pop(each, None)
        effects, changes, changed = list[Effect](), list[Effect](), set[TopicPartition]()
        unsure = tuple[TopicPartition, ...]()
        if gone:
            self.brokers = {each: epoch for each, epoch in self.brokers.items() if each not in gone}
            held = self.held_by(gone)
            changes = self._settle(held)
            # The leader may have added a broker that is gone to the ISR, which is not known here yet.
            changed = _changed(changes)
            unsure = tuple(key for key in held if key not in changed and key in self.states)
        self.brokers = dict(brokers)
        if came:
            # Partitions about to change are sent when the change is written: an earlier order would arrive after it.
            orders = self._orders(self.states.keys() - changed)
            effects += [UpdateMetadata(broker, ()) for broker in sorted(set(brokers) - came)]
            effects += [UpdateMetadata(each, orders) for each in sorted(came)]
            effects += self._lead([key for key in self.held_by(came) if key not in changed], came)
        effects += changes
        if came:
            effects += self._settle(self.replicas)
            effects += self._stop_deleted(came)
        elif gone:
            effects += [UpdateMetadata(broker, ()) for broker in sorted(brokers)]
        return [*effects, ReadStates(unsure)] if unsure else effects

    def partitions_created(self, assignments: Mapping[TopicPartition, Sequence[int]]) -> list[Effect]:
        """Apply new topics' partitions, or new partitions of known topics."""
        new = {key: tuple(each) for key, each in assignments.items() if key not in self.replicas}
        self.replicas |= new
        for key in new:
            self._partitions[key.topic].add(key)
        return self._settle(new)

    def topics_removed(self, names: Iterable[str]) -> None:
        """Apply the removal of topics from the tree."""
        for name in names:
            for key in self._partitions.pop(name, ()):
                for known in (self.replicas, self.states, self.moves, self._surplus):
                    known.pop(key, None)
                self._untold.discard(key)
                self._refused.discard(key)
            self._undeleted.pop(name, None)
            self._to_delete.discard(name)

    def states_written(
        self, written: Mapping[TopicPartition, KnownState], refused: Collection[TopicPartition]
    ) -> list[Effect]:
        """Apply the outcome of a `WriteStates`: written states with their versions; refused ones are read again."""
        new = {key for key in written if key not in self.states}
        self.states |= {key: known for key, known in written.items() if key in self.replicas}
        self._untold.difference_update(written)
        self._refused = (self._refused - written.keys()).union(refused)
        moved = [key for key in sorted(written) if self._is_moved(key)]
        for key in moved:
            move, everywhere = self.moves.pop(key), self.replicas[key]
            self.replicas[key], self._surplus[key] = move.targets(everywhere), move.removing
        effects = self._order(written, self.brokers, new)
        effects += self._delete_surplus(written)
        if moved:
            effects.append(WriteAssignments(tuple(AssignmentChange(key, self.replicas[key]) for key in moved)))
        # The last in-sync broker may have restarted meanwhile: both were seen in one look at the tree.
        effects += self._settle(key for key in written if key in self.states and self._is_offline(key))
        return [*effects, ReadStates(tuple(sorted(refused)))] if refused else effects

    def states_read(self, found: Mapping[TopicPartition, KnownState]) -> list[Effect]:
        """Apply states that leaders have changed: send them to brokers, and correct them if needed."""
        known = {key: each for key, each in found.items() if key in self.replicas}
        self.states |= known
        orders, changes = self._orders(known), self._settle(known)
        # A broker that returned did not learn of a partition that was about to change; an order of the same leader
        # epoch does nothing where it is known.
        due = (self._refused & known.keys()) - _changed(changes)
        self._refused -= due
        updates: list[Effect] = [UpdateMetadata(broker, orders) for broker in sorted(self.brokers)] if orders else []
        return [*self._lead(sorted(due), self.brokers), *updates, *changes]

    def isr_notified(self, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """Handle the notification that leaders have changed the ISR of partitions."""
        known = tuple(sorted(key for key in set(partitions) if key in self.replicas))
        return [ReadStates(known)] if known else []

    def isr_asked(
        self, broker_id: int, key: TopicPartition, leader_epoch: int, isr: Sequence[int], version: int
    ) -> StateChange | ErrorCode:
        """Return the change that a leader requests (AlterPartition), or its error; `NONE`: it has been made already.

        Write the change, and call `states_read` with the node's state afterwards, whether it was written or not.
        """
        known = self.states.get(key)
        if known is None or key.topic in self._to_delete:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state = replace(known.state, isr=tuple(isr), controller_epoch=self.epoch)
        if leader_epoch < known.state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader_epoch > known.state.leader_epoch or broker_id != known.state.leader or broker_id not in isr:
            return ErrorCode.INVALID_REQUEST
        if set(isr) == set(known.state.isr):
            return ErrorCode.NONE
        if version != known.version:
            return ErrorCode.INVALID_UPDATE_VERSION
        if not set(isr) <= set(known.state.isr) | (self._can_lead & set(self.replicas[key])):
            return ErrorCode.INELIGIBLE_REPLICA
        return StateChange(key, state, known.version)

    def replicas_failed(self, broker_id: int, partitions: Collection[TopicPartition]) -> list[Effect]:
        """Handle replicas that a broker cannot open on a failed disk: they count as dead until the broker restarts."""
        new = [key for key in partitions if key in self.replicas and key not in self._failed[broker_id]]
        self._failed[broker_id].update(new)
        return self._settle(new)

    def tell_again(self, broker_id: int) -> list[Effect]:
        """Send a live broker everything again, because it may have missed requests."""
        if broker_id not in self.brokers:
            return []
        update = UpdateMetadata(broker_id, self._orders(self.states))
        return [update, *self._lead(self.held_by([broker_id]), [broker_id]), *self._stop_deleted([broker_id])]

    def log_directory_failed(self, broker_id: int) -> list[Effect]:
        """Handle the failure of a broker's disk: asked to lead and follow, it reports the affected replicas."""
        return self._lead(self.held_by([broker_id]), [broker_id]) if broker_id in self.brokers else []

    def settle(self, names: Iterable[str]) -> list[Effect]:
        """Handle changed settings of topics: unclean elections may be allowed now."""
        return self._settle([key for name in set(names) for key in self._partitions.get(name, ())])

    # ---- requests of administrators

    def elect(self, kind: ElectionType, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """Elect the preferred leaders of partitions, or, for dead leaders, live ones that may not be in sync.

        `need_of` tells before and afterwards whether that is needed.
        """
        changes = list[StateChange]()
        for key in sorted(set(partitions)):
            if self.need_of(kind, key) not in _NEEDED:
                continue
            known, live = self.states[key], self._live(key)
            if kind is ElectionType.PREFERRED:
                state = election.preferred(known.state, self.replicas[key], live, self.epoch)
            else:
                state = election.offline(known.state, self.replicas[key], live, self.epoch, unclean=True)
            changes += [] if state is None else [StateChange(key, state, known.version)]
        return _written(changes)

    def need_of(self, kind: ElectionType, key: TopicPartition) -> ErrorCode:
        """Return ELECTION_NOT_NEEDED if an election would change nothing, else the code of its failure."""
        known = self.states.get(key)
        if known is None or key not in self.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if key.topic in self._to_delete:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        is_led = known.state.leader in self.brokers
        if is_led and (kind is ElectionType.UNCLEAN or known.state.leader == self.replicas[key][0]):
            return ErrorCode.ELECTION_NOT_NEEDED
        if kind is ElectionType.PREFERRED:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE

    def imbalanced(self, percentage: int) -> list[TopicPartition]:
        """Return the partitions for preferred leader election: of brokers that lead too few of theirs by that share."""
        preferred, away = Counter[int](), list[TopicPartition]()
        for key, known in self.states.items():
            if key.topic not in self._to_delete and key not in self.moves:
                preferred[self.replicas[key][0]] += 1
                if known.state.leader != self.replicas[key][0]:
                    away.append(key)
        lacking = Counter(self.replicas[key][0] for key in away)
        wanting = {each for each, count in lacking.items() if count * 100 > percentage * preferred[each]}
        return [key for key in away if self.replicas[key][0] in wanting & self._can_lead]

    def reassign(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, keeps_factor: bool = False
    ) -> tuple[list[Effect], dict[TopicPartition, tuple[ErrorCode, str]]]:
        """Reassign partitions to other replicas, or (None) cancel a reassignment in progress.

        `keeps_factor`: to as many as they have. Also returns why partitions cannot be reassigned.
        """
        changes, faults = list[AssignmentChange](), dict[TopicPartition, tuple[ErrorCode, str]]()
        for key, asked in wanted.items():
            if key not in self.replicas or key.topic in self._to_delete:
                faults[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist"
                continue
            replicas, move = self.replicas[key], self.moves.get(key, NO_MOVE)
            if asked is None and not move:
                faults[key] = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned"
                continue
            targets = move.origin(replicas) if asked is None else tuple(asked)
            isr = self.states[key].state.isr if key in self.states else ()
            if (fault := reassignment.fault(targets, replicas, move, isr, self.brokers)) is not None:
                faults[key] = fault
            elif keeps_factor and asked is not None and len(targets) != len(move.targets(replicas)):
                found = f"expected {len(move.targets(replicas))} replicas, found {len(targets)}"
                faults[key] = ErrorCode.INVALID_REPLICATION_FACTOR, found
            elif targets != move.targets(replicas):
                changes.append(AssignmentChange(key, *reassignment.moved(replicas, move, targets)))
        return ([WriteAssignments(tuple(changes))] if changes else []), faults

    def assignments_written(self, changes: Iterable[AssignmentChange]) -> list[Effect]:
        """Apply replicas written into the topics' nodes: brokers are sent a new leader epoch."""
        begun = list[TopicPartition]()
        for key, replicas, move in ((each.partition, each.replicas, each.move) for each in changes):
            before = self.replicas.get(key)
            if before is None or (before, self.moves.get(key, NO_MOVE)) == (replicas, move):
                continue  # deleted meanwhile, or the end of a reassignment
            self.replicas[key] = replicas
            self.moves.pop(key, None)
            if move:
                self.moves[key] = move
            surplus = dict.fromkeys((*self._surplus.get(key, ()), *before))
            self._surplus[key] = tuple(broker for broker in surplus if broker not in replicas)
            begun.append(key)
        self._untold.update(begun)
        return self._settle(begun)

    def shut_down(self, broker_id: int) -> list[Effect]:
        """Move leadership away from a broker that is about to stop, and stop its replicas.

        Call `remaining` afterwards.
        """
        self.shutting_down.add(broker_id)
        changes, stopped = list[StateChange](), list[TopicPartition]()
        for key in self.held_by([broker_id]):
            if (known := self.states.get(key)) is None or len(self.replicas[key]) == 1 or key.topic in self._to_delete:
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
            for key in self.held_by([broker_id])
            if len(self.replicas[key]) > 1 and key in self.states and self.states[key].state.leader == broker_id
        ]

    def delete_topics(self, names: Iterable[str]) -> list[Effect]:
        """Delete topics: remove them from metadata, stop replicas, then delete them.

        Dead brokers' replicas remain pending.
        """
        effects: list[Effect] = []
        gone, begun = list[PartitionOrder](), set[str]()
        for name in sorted(set(names) - self._undeleted.keys()):
            keys = sorted(self._partitions.get(name, ()))
            self._to_delete.add(name)
            if not keys:
                self._to_delete.discard(name)
                effects.append(RemoveTopic(name))
                continue
            begun.add(name)
            self._undeleted[name] = {(broker_id, key) for key in keys for broker_id in self.replicas[key]}
            gone += [self._being_deleted(key) for key in keys]
            for key in keys:
                self.moves.pop(key, None)
        if begun:
            orders = tuple(gone)
            effects += [UpdateMetadata(broker, orders) for broker in sorted(self.brokers)]
            effects += self._stop_deleted(self.brokers, begun)
        return effects

    def replicas_deleted(self, broker_id: int, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """Record that a broker has deleted replicas; remove a topic after its last one."""
        effects: list[Effect] = []
        for key in partitions:
            left = self._undeleted.get(key.topic)
            if left is None:
                continue
            left.discard((broker_id, key))
            if not left:
                self.topics_removed([key.topic])
                effects.append(RemoveTopic(key.topic))
        return effects

    # ---- decisions

    def _settle(self, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """Elect missing leaders, remove dead brokers from the ISR, and end reassignments.

        Leaders with changed replicas always get a new epoch: within one epoch they do not add other replicas to the
        ISR.
        """
        changes, kept, able = list[StateChange](), list[AssignmentChange](), self._can_lead
        for key in sorted(partitions):
            if key.topic in self._to_delete:
                continue
            known = self.states.get(key)
            if known is not None and set(isr := known.state.isr).isdisjoint(self.replicas[key]):
                # While a reassignment ended, the leader removed all others from the ISR: these stay until others are in
                # sync.
                move = self.moves.get(key, NO_MOVE)
                kept.append(
                    AssignmentChange(key, (*self.replicas[key], *isr), OngoingMove(move.adding, (*move.removing, *isr)))
                )
                continue
            state = self._settled(key, known, able)
            if state is None and known is not None and key in self._untold:
                state = election.confined(known.state, self.replicas[key], self._live(key, able), self.epoch)
            if state is not None:
                changes.append(StateChange(key, state, NEW_NODE if known is None else known.version))
        return [*_written(changes), *([WriteAssignments(tuple(kept))] if kept else [])]

    def _settled(self, key: TopicPartition, known: KnownState | None, able: Collection[int]) -> PartitionState | None:
        """Return the correct state of a partition; None if it has that already."""
        replicas, able = self.replicas[key], self._live(key, able)
        if known is None:
            return election.first_state(replicas, able, self.epoch)
        state, live = known.state, self._live(key, self.brokers)
        if state.leader not in live:
            unclean = self._unclean(key.topic)
            elected = election.offline(state, replicas, able, self.epoch, unclean=unclean)
            if elected is not None:
                return elected
        targets = self.moves.get(key, NO_MOVE).targets(replicas)
        is_moved = key in self.moves and set(targets) <= set(state.isr) & set(live)
        if is_moved or not set(state.isr) <= set(replicas):
            confined = election.confined(state, targets if is_moved else replicas, able, self.epoch)
            if confined is not None:
                return confined
        return election.without_dead(state, replicas, live, self.epoch)

    def _is_offline(self, key: TopicPartition) -> bool:
        return self.states[key].state.leader not in self._live(key, self.brokers)

    def _is_moved(self, key: TopicPartition) -> bool:
        """Return whether all targets of a partition's reassignment are in sync, and no other broker is."""
        if (move := self.moves.get(key)) is None:
            return False
        state, targets = self.states[key].state, move.targets(self.replicas[key])
        return set(state.isr) == set(targets) and state.leader in targets

    def _delete_surplus(self, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """Delete the replicas that partitions no longer have, unless the only in-sync ones are among them."""
        doomed: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for key in sorted(partitions):
            surplus = self._surplus.get(key, ())
            if surplus and set(self.states[key].state.isr).isdisjoint(surplus):
                del self._surplus[key]
                for broker_id in set(surplus) & self.brokers.keys():
                    doomed[broker_id].append(key)
        return [StopReplicas(each, tuple(keys), deletes=True) for each, keys in sorted(doomed.items())]

    def _stop_deleted(self, to: Collection[int], names: Collection[str] | None = None) -> list[Effect]:
        """Stop and delete the live brokers' replicas of topics that are being deleted."""
        held: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for topic in self._undeleted if names is None else names:
            for broker_id, key in self._undeleted[topic]:
                if broker_id in to:
                    held[broker_id].append(key)
        effects: list[Effect] = []
        for broker_id, keys in sorted(held.items()):
            doomed = tuple(sorted(keys))
            effects += [StopReplicas(broker_id, doomed, deletes=False), StopReplicas(broker_id, doomed, deletes=True)]
        return effects


_NEEDED: Final = (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)


def _written(changes: Sequence[StateChange]) -> list[Effect]:
    return [WriteStates(tuple(changes))] if changes else []


def _changed(effects: Iterable[Effect]) -> set[TopicPartition]:
    """Return the partitions whose states effects change."""
    return {each.partition for one in effects if isinstance(one, WriteStates) for each in one.changes}
