"""The work of a controller during one term, from its election to its resignation.

Each method handles one event. `ControllerService` calls them one at a time, in order, as Kafka's ControllerEventManager
does; `replication/controller.py` decides, and here its effects are performed in order.

Invariants:
1. Effects are performed in order, and those that follow from one come before the next. The outcome of a write is
   reported to `replication/controller.py` before anything else happens.
2. A watch is set by the read whose result it guards, so no change is missed: a change that comes meanwhile is a later
   event.
3. Notices of ISR changes are deleted before the states are read: a later change has a notice of its own.

A crash at any effect leaves the tree as written so far. The next controller reads it whole, and sends it to all
brokers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from magicbyte.engine.cluster.controller_store import WatchedPart
from magicbyte.engine.errors import (
    ErrorCode,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    UnknownBrokerError,
)
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from magicbyte.engine.protocol.messages.stop_replica import StopReplicaResponse
from magicbyte.engine.replication.controller import (
    Controller,
    Effect,
    IsrAnswer,
    IsrWish,
    LeaderAndIsr,
    ReadStates,
    RemoveTopic,
    StateChange,
    StopReplicas,
    UpdateMetadata,
    WriteAssignments,
    WriteStates,
)
from magicbyte.engine.replication.election import ElectionType
from magicbyte.engine.replication.reassignment import OngoingMove
from magicbyte.engine.replication.state import KnownState
from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH
from magicbyte.server.stores.controller_channel import Channels, Surroundings
from magicbyte.server.stores.controller_messages import ControlMessages

if TYPE_CHECKING:
    import uuid

    from magicbyte.engine.cluster.brokers import ControllerElection
    from magicbyte.engine.cluster.controller_store import Elections
    from magicbyte.engine.cluster.image import TopicImage
    from magicbyte.engine.protocol import Message

T = TypeVar("T")

_FIRST_REBALANCE_S: Final = 5
log = logger(__name__)

Event: TypeAlias = Callable[[], Awaitable[None]]


class ControllerTerm:
    """The controller in one epoch. `enqueue` appends an event to the queue."""

    def __init__(
        self,
        around: Surroundings,
        elections: Elections,
        election: ControllerElection,
        enqueue: Callable[[Event], None],
    ) -> None:
        self.epoch = epoch = election.epoch
        self.is_over = False
        self.unclean_elections = 0
        self._around, self._enqueue = around, enqueue
        self._store = elections.store_of(election, self._on_change)
        self._changed: dict[WatchedPart, dict[TopicPartition | None, None]] = {}
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._unclean: dict[str, bool] = {}
        self._asked_by_old_tools: dict[TopicPartition, tuple[int, ...]] = {}
        self._watched = set[TopicPartition]()
        listener = around.config.inter_broker_name
        self._messages = ControlMessages(around.broker_id, epoch, around.protocol, self._topic_ids, listener)
        self._channels = Channels(around, self._messages, self._tell_again)
        self._controller = Controller(epoch, {}, {}, {})
        self._timer: asyncio.Task[None] | None = None

    # ---- begin and end

    async def start(self) -> None:
        """Read the cluster, and send it to all brokers."""
        store = self._store
        await store.isr_changes()  # before the states are read
        self._channels.renew(await store.brokers())
        topics = await self._with_ids(await store.topics(await store.topic_names()))
        self._unclean = await store.unclean(list(topics))
        await store.config_changes()
        assignments, moves = _assignments(topics)
        states = await store.states(list(assignments))
        self._controller = Controller(
            self.epoch,
            self._messages.epochs,
            assignments,
            states,
            moves=moves,
            deleting=await store.deletions(are_enabled=self._around.config.delete_topic_enable),
            unclean=lambda topic: self._unclean.get(topic, self._around.config.unclean_leader_election_enable),
        )
        log.info(
            "controller: epoch %d begins with %d brokers, %d topics, %d partitions",
            *(self.epoch, len(self._messages.brokers), len(topics), len(assignments)),
        )
        await self._perform(self._controller.start())
        await self._reassignments_changed()
        await self._preferred_election_changed()
        await self._log_directory_events_changed()
        await self._watch_moves()
        if self._around.config.auto_leader_rebalance_enable:
            self._timer = self._around.spawn(self._rebalance_regularly())

    def end(self) -> list[asyncio.Task[None]]:
        """Stop sending and writing. Returns the tasks that close connections."""
        self.is_over = True
        tasks = self._channels.close()
        if self._timer is not None:
            self._timer.cancel()
            tasks.append(self._timer)
        return tasks

    async def _with_ids(self, topics: Mapping[str, TopicImage]) -> dict[str, TopicImage]:
        """Record the ids of topics, assigning missing ones if brokers expect them."""
        known = dict(topics)
        for name, topic in topics.items():
            if topic.id is None and self._around.gives_ids:
                given = await self._store.give_id(name, self._around.new_id())
                if given is None:
                    del known[name]
                    continue
                known[name] = topic = given
            if topic.id is not None:
                self._topic_ids[name] = topic.id
        return known

    # ---- effects

    async def _perform(self, effects: Iterable[Effect]) -> None:
        """Perform effects in order; those that follow from one come before the next."""
        waiting = deque(effects)
        while waiting:
            if self.is_over:
                raise StaleControllerEpochError("the broker is no longer the controller")
            waiting.extendleft(reversed(await self._one(waiting.popleft())))

    async def _one(self, effect: Effect) -> Sequence[Effect]:
        controller, store = self._controller, self._store
        match effect:
            case WriteStates(changes):
                written = await store.write_states(changes)
                for key, leader in _not_in_sync(controller.states, written).items():
                    self.unclean_elections += 1
                    why = "was not in sync: acknowledged records may be lost"
                    log.warning("controller: broker %d leads %s and %s", leader, key, why)
                refused = [each.partition for each in changes if each.partition not in written]
                return controller.states_written(written, refused)
            case ReadStates(partitions):
                return controller.states_read(await store.states(partitions))
            case WriteAssignments(assignments):
                return controller.assignments_written(await store.write_assignments(assignments))
            case RemoveTopic(name):
                await store.remove_topic(name)
                self._topic_ids.pop(name, None)
            case LeaderAndIsr() | UpdateMetadata() | StopReplicas():
                deleted = effect.partitions if isinstance(effect, StopReplicas) and effect.deletes else ()
                self._channels.send(effect, partial(self._answered, effect.broker_id, deleted))
        return ()

    async def _catch_up(self, partitions: Iterable[TopicPartition], watch: WatchedPart | None = None) -> None:
        """Read states again: leaders report ISR changes some seconds later."""
        states = self._controller.states
        found = await self._store.states([key for key in partitions if key in states], watch)
        await self._perform(
            self._controller.states_read({key: each for key, each in found.items() if states[key] != each})
        )

    def _answered(self, broker_id: int, deleted: Sequence[TopicPartition], response: Message) -> None:
        """Handle a broker's response: its consequences become an event at the end of the queue."""
        code = getattr(response, "error_code", ErrorCode.NONE)
        if code:
            log.warning("controller: broker %d refuses %s: error %d", broker_id, type(response).__name__, code)
        elif isinstance(response, LeaderAndIsrResponse):
            failed = self._messages.failed(response)
            if failed:
                epoch = self._messages.epochs.get(broker_id)
                self._then(partial(self._replicas_failed, broker_id, epoch, failed))
        elif isinstance(response, StopReplicaResponse) and deleted:
            errors = [each for each in response.partition_errors if each.error_code]
            undone = {TopicPartition(each.topic_name, each.partition_index) for each in errors}
            done = [each for each in deleted if each not in undone]
            self._then(lambda: self._perform(self._controller.replicas_deleted(broker_id, done)))

    def _tell_again(self, broker_id: int) -> None:
        self._then(lambda: self._perform(self._controller.tell_again(broker_id)))

    def _then(self, event: Event) -> None:
        """Queue an event of this term."""

        async def unless_over() -> None:
            if not self.is_over:
                await event()
                await self._watch_moves()

        self._enqueue(unless_over)

    # ---- events: brokers

    async def _brokers_changed(self) -> None:
        before, brokers = self._messages.brokers, await self._store.brokers()
        self._channels.renew(brokers)
        effects = self._controller.brokers_changed(self._messages.epochs)
        if not effects and before != brokers:  # endpoints
            effects = [UpdateMetadata(each, ()) for each in sorted(brokers)]
        await self._perform(effects)

    async def _replicas_failed(
        self, broker_id: int, broker_epoch: int | None, failed: Sequence[TopicPartition]
    ) -> None:
        if self._messages.epochs.get(broker_id) == broker_epoch:
            await self._perform(self._controller.replicas_failed(broker_id, failed))

    # ---- events: the tree

    def _on_change(self, watched: WatchedPart, partition: TopicPartition | None) -> None:
        """Read a part of the metadata again; further changes until then are read with it."""
        if self.is_over:
            return
        partitions = self._changed.setdefault(watched, {})
        if not partitions:
            self._then(partial(self._read_again, watched))
        partitions[partition] = None

    async def _read_again(self, part: WatchedPart) -> None:
        partitions = [key for key in self._changed.pop(part) if key is not None]
        match part:
            case WatchedPart.BROKERS | WatchedPart.BROKER:
                await self._brokers_changed()
            case WatchedPart.TOPICS:
                await self._topics_changed()
            case WatchedPart.TOPIC:
                await self._partitions_changed([key.topic for key in partitions])
            case WatchedPart.STATE:
                changed = [key for key in partitions if key in self._watched]
                self._watched.difference_update(changed)
                await self._perform(self._controller.isr_notified(changed))
            case WatchedPart.DELETIONS:
                are_enabled = self._around.config.delete_topic_enable
                deleting = await self._store.deletions(are_enabled=are_enabled)
                await self._perform(self._controller.delete_topics(deleting))
            case WatchedPart.REASSIGNMENTS:
                await self._reassignments_changed()
            case WatchedPart.PREFERRED_ELECTION:
                await self._preferred_election_changed()
            case WatchedPart.ISR_CHANGES:
                await self._perform(self._controller.isr_notified(await self._store.isr_changes()))
            case WatchedPart.LOG_DIRECTORY_EVENTS:
                await self._log_directory_events_changed()
            case WatchedPart.CONFIG_CHANGES:
                await self._configs_changed()

    async def _topics_changed(self) -> None:
        names = set(await self._store.topic_names())
        known = self._controller.topics
        self._controller.topics_removed(known - names)
        for name in known - names:
            self._topic_ids.pop(name, None)
        await self._partitions_changed(sorted(names - known))

    async def _partitions_changed(self, names: Sequence[str]) -> None:
        topics = await self._with_ids(await self._store.topics(names))
        self._unclean |= await self._store.unclean(list(topics))
        assignments, _ = _assignments(topics)
        await self._perform(self._controller.partitions_created(assignments))

    async def _configs_changed(self) -> None:
        changed = await self._store.config_changes()
        for name in changed:
            self._unclean.pop(name, None)
        self._unclean |= await self._store.unclean(changed)
        await self._perform(self._controller.settle(changed))

    async def settle(self) -> None:
        """Apply this broker's settings to partitions without a leader."""
        await self._perform(self._controller.settle(self._controller.topics))

    async def _log_directory_events_changed(self) -> None:
        for broker_id in await self._store.log_directory_events():
            await self._perform(self._controller.log_directory_failed(broker_id))

    async def _preferred_election_changed(self) -> None:
        asked = await self._store.preferred_election()
        if asked is not None:
            await self.elect(ElectionType.PREFERRED, asked)
            await self._store.end_preferred_election()

    # ---- events: reassignments

    async def _reassignments_changed(self) -> None:
        """Begin the reassignments requested by old tools in the tree."""
        self._asked_by_old_tools = await self._store.reassignments()
        faults = await self.reassign(self._asked_by_old_tools, keeps_factor=False)
        for key, (_, why) in faults.items():
            log.warning("controller: cannot reassign %s: %s", key, why)

    async def _watch_moves(self) -> None:
        """Watch the states of partitions being reassigned; keep the node of old tools' requests up to date.

        Complete ones, and those that a later request replaced, are deleted. If a broker that may become the controller
        knows no others, all reassignments are in the node.
        """
        moves = self._controller.moves
        while unwatched := [key for key in moves if key not in self._watched]:
            self._watched.update(unwatched)
            await self._catch_up(unwatched, WatchedPart.STATE)
        self._watched &= moves.keys()
        wanted = {key: move.targets(self._controller.replicas[key]) for key, move in moves.items()}
        before = self._asked_by_old_tools
        if self._store.has_moves_of_topics:
            wanted = {key: targets for key, targets in wanted.items() if before.get(key) == targets}
        if wanted != before:
            self._asked_by_old_tools = wanted
            await self._store.put_reassignments(wanted, is_new=not before)

    async def reassign(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, keeps_factor: bool
    ) -> dict[TopicPartition, tuple[ErrorCode, str]]:
        """Reassign partitions to other replicas; return the errors."""
        await self._catch_up(wanted)
        effects, faults = self._controller.reassign(wanted, keeps_factor=keeps_factor)
        await self._perform(effects)
        await self._watch_moves()
        return faults

    def reassignments(self) -> dict[TopicPartition, tuple[tuple[int, ...], OngoingMove]]:
        """Return replicas and moves of the partitions being reassigned."""
        return {key: (self._controller.replicas[key], move) for key, move in self._controller.moves.items()}

    # ---- events: requests and timers

    def check_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Raise UnknownBrokerError or StaleBrokerEpochError unless a broker is registered with this epoch."""
        broker = self._messages.brokers.get(broker_id)
        if broker is None:
            raise UnknownBrokerError(f"broker {broker_id} is not registered")
        if broker_epoch != NO_EPOCH and broker_epoch < broker.epoch:
            raise StaleBrokerEpochError(f"broker {broker_id}: expected epoch {broker.epoch}, found {broker_epoch}")

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker; return the partitions where that is impossible."""
        self.check_broker(broker_id, broker_epoch)
        await self._catch_up(self._controller.held_by([broker_id]))
        await self._perform(self._controller.shut_down(broker_id))
        return self._controller.remaining(broker_id)

    async def elect(
        self, kind: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect leaders; return the result of each partition. None: of all that need it."""
        controller = self._controller
        asked = list(controller.replicas if partitions is None else partitions)
        await self._catch_up(asked)
        before = {key: controller.need_of(kind, key) for key in asked}
        await self._perform(controller.elect(kind, asked))
        results = dict[TopicPartition, ErrorCode]()
        for key, need in before.items():
            after = controller.need_of(kind, key)
            is_elected = after is ErrorCode.ELECTION_NOT_NEEDED and need is not after
            if partitions is not None or need is not ErrorCode.ELECTION_NOT_NEEDED:
                results[key] = ErrorCode.NONE if is_elected else after
        return results

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, wishes: Mapping[TopicPartition, IsrWish]
    ) -> dict[TopicPartition, IsrAnswer]:
        """Change ISRs as requested by leaders; return the result of each partition."""
        self.check_broker(broker_id, broker_epoch)
        controller, answers, changes = self._controller, dict[TopicPartition, IsrAnswer](), list[StateChange]()
        for key, wish in wishes.items():
            decision = controller.isr_asked(broker_id, key, wish.leader_epoch, wish.isr, wish.version)
            if isinstance(decision, StateChange):
                changes.append(decision)
            else:
                known = controller.states[key] if decision is ErrorCode.NONE else None
                answers[key] = IsrAnswer(decision, known)
        written = await self._store.write_states(changes)
        refused = [each.partition for each in changes if each.partition not in written]
        answers |= {key: IsrAnswer(ErrorCode.NONE, known) for key, known in written.items()}
        answers |= dict.fromkeys(refused, IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION))
        read = await self._store.states(refused)
        if changes:
            await self._perform(controller.states_read({**written, **read}))
            await self._watch_moves()
        return answers

    async def _rebalance_regularly(self) -> None:
        await asyncio.sleep(_FIRST_REBALANCE_S)
        while True:
            self._then(self._rebalance)
            await asyncio.sleep(self._around.config.leader_imbalance_check_interval_seconds)

    async def _rebalance(self) -> None:
        """Elect preferred leaders for brokers that lead too few of their partitions."""
        config = self._around.config
        await self.elect(
            ElectionType.PREFERRED, self._controller.imbalanced(config.leader_imbalance_per_broker_percentage)
        )


def _assignments(
    topics: Mapping[str, TopicImage],
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[TopicPartition, OngoingMove]]:
    """Return the replicas of all partitions, and the reassignments in progress."""
    replicas, moves = dict[TopicPartition, tuple[int, ...]](), dict[TopicPartition, OngoingMove]()
    for name, topic in topics.items():
        for index, partition in enumerate(topic.partitions):
            key = TopicPartition(name, index)
            replicas[key] = partition.replicas
            if partition.move:
                moves[key] = partition.move
    return replicas, moves


def _not_in_sync(
    before: Mapping[TopicPartition, KnownState], written: Mapping[TopicPartition, KnownState]
) -> dict[TopicPartition, int]:
    """Return the partitions whose new leaders were not in sync, with these leaders."""
    return {
        key: known.state.leader
        for key, known in written.items()
        if key in before and known.state.leader not in (NO_BROKER, *before[key].state.isr)
    }
