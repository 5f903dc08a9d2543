"""The broker as a candidate: it stands for election as the controller, and does its work while it is.

For whoever runs a broker:

* `service = ControllerService(store, broker_id, clock, config, protocol=..., spawn=runtime.spawn, new_id=...,
  connect=links.connect)`: `store` is a `LoopStore` over the session in which the broker has
  registered itself, of a tree with the nodes that `cluster.found_cluster` makes; `config` is the `BrokerConfig` whose
  values are looked at when they are needed.
* `await service.start()`, once the broker listens and is registered: the controller connects to itself like to others.
  It returns when it is known who the controller is. `on_change` is called then, and whenever that changes.
* `service.session_event(event)` with every `SessionEvent` of the store, in the listener of `LoopStore.open`. After
  EXPIRED, and a new session and registration: `await service.renew(store)`.
* `service.settings_changed()` when values of `config` have changed.
* `await service.stop()`, before the store is closed and after the broker's own ControlledShutdown.
* `service.controller_id` (`NOBODY` while it is not known), `service.epoch`, `service.is_active`.
* The handlers in `controller_requests.py` ask it: they are given a function that returns it, None for a broker alone.

One task takes one event at a time, in order: changes of the tree, requests, answers of brokers, the clock. What a
controller does in an epoch is in `controller_term.py`. docs/decisions/0012-controller.md has the reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from magicbyte.broker import election
from magicbyte.broker.controller_channel import RETRY_S, Connect, Spawn, Surroundings
from magicbyte.broker.controller_term import ControllerTerm, Event, IsrAnswer, IsrWish
from magicbyte.broker.controller_tree import patiently
from magicbyte.errors import (
    ErrorCode,
    MagicbyteError,
    NotControllerError,
    SessionExpiredError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    UnknownBrokerError,
    UnknownOutcomeError,
)
from magicbyte.ports import NodeEvent, SessionEvent, TopicPartition
from magicbyte.printable import logger
from magicbyte.releases import TOPIC_IDS
from magicbyte.replication.election import ElectionType
from magicbyte.replication.reassignment import OngoingMove

if TYPE_CHECKING:
    import uuid

    from magicbyte.broker.config import BrokerConfig
    from magicbyte.metadata.on_loop import LoopStore
    from magicbyte.ports import Clock

T = TypeVar("T")

NOBODY: Final = -1
_AFTER_FAULT_S: Final = 1.0
log = logger(__name__)


class ControllerService:
    """Stands for election in one session of the tree after the other, and answers what only the controller can.

    Requests raise NotControllerError where another broker is the controller, or becomes it meanwhile.
    """

    def __init__(
        self,
        store: LoopStore,
        broker_id: int,
        clock: Clock,
        config: BrokerConfig,
        *,
        protocol: tuple[int, ...],
        spawn: Spawn,
        new_id: Callable[[], uuid.UUID],
        connect: Connect,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._broker_id, self._clock = store, broker_id, clock
        self._around = Surroundings(broker_id, config, protocol, protocol >= TOPIC_IDS, new_id, connect, spawn)
        self._on_change = on_change
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._term: ControllerTerm | None = None
        self._election: election.ControllerElection | None = None
        self._is_electing = False
        self._unclean_elections = 0
        self._known = asyncio.Event()
        self._waiting: set[asyncio.Future[Any]] = set()

    # ---- who is it?

    @property
    def controller_id(self) -> int:
        """The broker that is the controller, `NOBODY` while that is not known."""
        return NOBODY if self._election is None else self._election.controller

    @property
    def epoch(self) -> int:
        """The epoch of that controller, -1 while it is not known."""
        return election.NO_EPOCH if self._election is None else self._election.epoch

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._term is not None and not self._term.is_over

    @property
    def unclean_elections(self) -> int:
        """How often this broker has had a replica lead that was not in sync."""
        return self._unclean_elections + (0 if self._term is None else self._term.unclean_elections)

    # ---- from start to stop

    async def start(self) -> None:
        """Stand for election; return when it is known who the controller is."""
        self._task = self._around.spawn(self._run())
        self._stand()
        await self._known.wait()

    async def renew(self, store: LoopStore) -> None:
        """Go on in a new session, after the one before has expired; return when it is known who the controller is."""
        self._store = store
        self._changed(None)
        self._stand()
        await self._known.wait()

    def session_event(self, event: SessionEvent) -> None:
        """Take in what happened to the session: once it has expired, nothing is sent or written any more."""
        if event is SessionEvent.EXPIRED:
            if self._term is not None:
                self._term.end()
            self._changed(None)

    def settings_changed(self) -> None:
        """Take in that settings of the broker have changed: the default of `unclean.leader.election.enable`."""
        if self.is_active:
            self._events.put_nowait(self._settle)

    async def _settle(self) -> None:
        if self._term is not None and not self._term.is_over:
            await self._term.settle()

    async def stop(self) -> None:
        """Resign, so that another broker becomes the controller at once; close all connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        found, was_active = self._election, self.is_active
        await self._resign()
        if found is not None and was_active:
            try:
                await election.resign(self._store, found)
            except MagicbyteError as error:  # then the end of the session does it
                log.warning("controller: cannot resign: %s", error)
        for waiting in self._waiting:
            _fail(waiting, NotControllerError("the broker stops"))

    # ---- what only the controller can do

    async def check_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Raise NotControllerError, or UnknownBrokerError or StaleBrokerEpochError for a request of such a broker."""

        async def check(term: ControllerTerm) -> None:
            term.check_broker(broker_id, broker_epoch)

        await self._ask(check)

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move the lead away from a broker; return the partitions where that is not possible (ControlledShutdown).

        Raises NotControllerError, UnknownBrokerError, StaleBrokerEpochError.
        """
        return await self._ask(lambda term: term.shut_down(broker_id, broker_epoch))

    async def elect(
        self, kind: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect leaders of partitions, None: of all that need it; return what became of each (ElectLeaders)."""
        return await self._ask(lambda term: term.elect(kind, partitions))

    async def reassign(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, keeps_factor: bool = False
    ) -> dict[TopicPartition, tuple[ErrorCode, str]]:
        """Begin to move partitions to other replicas, None: end a move; return why some cannot be moved.

        `keeps_factor`: to as many as they have.
        """
        return await self._ask(lambda term: term.reassign(wanted, keeps_factor=keeps_factor))

    async def reassignments(self) -> dict[TopicPartition, tuple[tuple[int, ...], OngoingMove]]:
        """Return the replicas and moves of the partitions that are being reassigned."""

        async def look(term: ControllerTerm) -> dict[TopicPartition, tuple[tuple[int, ...], OngoingMove]]:
            return term.reassignments()

        return await self._ask(look)

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, wishes: Mapping[TopicPartition, IsrWish]
    ) -> dict[TopicPartition, IsrAnswer]:
        """Change in-sync replicas as leaders ask for it; return what became of each partition (AlterPartition).

        Raises NotControllerError, UnknownBrokerError, StaleBrokerEpochError.
        """
        return await self._ask(lambda term: term.alter_partitions(broker_id, broker_epoch, wishes))

    async def _ask(self, work: Callable[[ControllerTerm], Awaitable[T]]) -> T:
        """Do work as an event; return what it returns, and raise what it raises."""
        if self._task is None or self._task.done():
            raise NotControllerError("the broker is stopping")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        try:
            self._events.put_nowait(partial(self._answer, work, answer))
            return await answer
        finally:
            self._waiting.discard(answer)

    async def _answer(self, work: Callable[[ControllerTerm], Awaitable[T]], answer: asyncio.Future[T]) -> None:
        try:
            if self._term is None or self._term.is_over:
                raise NotControllerError(f"broker {self._broker_id} is not the controller")
            result = await work(self._term)
        except (SessionExpiredError, StaleControllerEpochError) as error:
            _fail(answer, NotControllerError(str(error)))
            raise
        except (NotControllerError, UnknownBrokerError, StaleBrokerEpochError) as error:
            _fail(answer, error)
        except Exception:
            _fail(answer, NotControllerError(f"broker {self._broker_id} resigns for a fault"))
            raise
        else:
            if not answer.done():
                answer.set_result(result)

    # ---- events

    async def _run(self) -> None:
        while True:
            event = await self._events.get()
            try:
                await event()
            except SessionExpiredError as error:  # `renew` goes on
                log.warning("controller: %s", error)
                await self._resign()
            except StaleControllerEpochError as error:
                log.warning("controller: resigning: %s", error)
                await self._resign()
                self._stand()
            except Exception:  # a fault of ours, or of a node: the next controller begins from what is in the tree
                log.exception("controller: resigning for a fault")
                found = self._election
                await self._resign()
                if found is not None and found.won:
                    await self._let_others(found)
                await asyncio.sleep(_AFTER_FAULT_S)
                self._stand()

    async def _let_others(self, found: election.ControllerElection) -> None:
        try:
            await patiently(election.resign, self._store, found)
        except MagicbyteError as error:
            log.warning("controller: cannot resign: %s", error)

    def _controller_changed(self, _event: NodeEvent, _path: str) -> None:
        """Take in that `/controller` has changed: whoever it was is not sure to be it any more."""
        self._stand()

    def _stand(self) -> None:
        if not self._is_electing:
            self._is_electing = True
            self._events.put_nowait(self._elect)

    async def _elect(self) -> None:
        """Find out who the controller is; become it if there is none."""
        self._is_electing = False
        store = self._store
        found = await self._outcome(store)
        if self.is_active and found == self._election:
            return
        await self._resign()
        if found.won:
            self._term = ControllerTerm(self._around, store, found.epoch, found.epoch_version, self._events.put_nowait)
            self._changed(found)
            await self._term.start()
        else:
            self._changed(found)

    async def _outcome(self, store: LoopStore) -> election.ControllerElection:
        while True:
            try:
                return await patiently(election.elect, store, self._broker_id, self._clock, self._controller_changed)
            except UnknownOutcomeError:
                await asyncio.sleep(RETRY_S)

    async def _resign(self) -> None:
        """End the term, if there is one: brokers are told nothing more by it."""
        term, self._term = self._term, None
        if term is not None:
            self._unclean_elections += term.unclean_elections
            log.info("controller: epoch %d ends", term.epoch)
            await asyncio.gather(*term.end(), return_exceptions=True)
            self._changed(None)

    def _changed(self, found: election.ControllerElection | None) -> None:
        if found is None:
            self._known.clear()
        else:
            self._known.set()
        if found != self._election:
            self._election = found
            self._on_change()


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
