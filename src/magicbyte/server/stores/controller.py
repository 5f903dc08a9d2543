"""The broker as a candidate for controller: it stands for election, and acts as controller when elected.

For the owner of a broker:

* `service = ControllerService(elections, broker_id, config, protocol=..., spawn=runtime.spawn, new_id=...,
connect=links.connect)`: `elections` are those of the session in which the broker has registered itself; `config` is the
`BrokerConfig` whose values are read when needed. * `await service.start()`, once the broker listens and is registered:
the controller also connects to itself. It returns when the controller is known. `on_change` is called then, and at each
change. * `service.session_event(event)` with every `SessionEvent`. After EXPIRED, and a new session and registration:
`await service.renew(elections)`. * `service.settings_changed()` when values of `config` have changed. * `await
service.stop()`, before the session ends and after the broker's own ControlledShutdown. * `service.controller_id`
(`NO_BROKER` while unknown), `service.epoch`, `service.is_active`. * The handlers in `controller_requests.py` use it as
`ControllerRequests`.

One task handles one event at a time, in order: changes of the tree, requests, responses of brokers, timers.
`controller_term.py` is the work of a controller in one epoch. docs/decisions/0012-controller.md has the reasons.

Invariants:
1. One task handles events in order; nothing else touches the term. `end` alone may be called meanwhile: after it the
   term sends and writes nothing.
2. A term belongs to one election that this broker won. Each change of the tree checks the version of
   `/controller_epoch`, so a controller that does not know that it was deposed changes nothing
   (`test_a_controller_that_does_not_know_that_it_was_deposed_writes_nothing`).
3. A request to the controller gets its result, or NotControllerError if the term ends before.
4. After a fault or an invalid node the broker resigns and lets others try: the next controller starts from the tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from magicbyte.engine.errors import (
    ErrorCode,
    MagicbyteError,
    NotControllerError,
    SessionExpiredError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    UnknownBrokerError,
)
from magicbyte.engine.ports import SessionEvent, TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.releases import TOPIC_IDS
from magicbyte.engine.replication.election import ElectionType
from magicbyte.engine.replication.reassignment import OngoingMove
from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH
from magicbyte.server.stores.controller_channel import Connect, Spawn, Surroundings
from magicbyte.server.stores.controller_term import ControllerTerm, Event

if TYPE_CHECKING:
    import uuid

    from magicbyte.engine.cluster.brokers import ControllerElection
    from magicbyte.engine.cluster.controller_store import Elections
    from magicbyte.engine.replication.controller import IsrAnswer, IsrWish
    from magicbyte.server.settings.config import BrokerConfig

T = TypeVar("T")

_AFTER_FAULT_S: Final = 1.0
log = logger(__name__)


class ControllerService:
    """Stand for election in successive sessions of the tree, and answer requests to the controller.

    Requests raise NotControllerError if another broker is the controller, or becomes it meanwhile.
    """

    def __init__(
        self,
        elections: Elections,
        broker_id: int,
        config: BrokerConfig,
        *,
        protocol: tuple[int, ...],
        spawn: Spawn,
        new_id: Callable[[], uuid.UUID],
        connect: Connect,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._elections, self._broker_id = elections, broker_id
        self._around = Surroundings(broker_id, config, protocol, protocol >= TOPIC_IDS, new_id, connect, spawn)
        self._on_change = on_change
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._term: ControllerTerm | None = None
        self._election: ControllerElection | None = None
        self._is_electing = False
        self._unclean_elections = 0
        self._known = asyncio.Event()
        self._waiting: set[asyncio.Future[Any]] = set()

    # ---- state

    @property
    def controller_id(self) -> int:
        """The controller's broker id, `NO_BROKER` while unknown."""
        return NO_BROKER if self._election is None else self._election.controller

    @property
    def epoch(self) -> int:
        """The epoch of that controller, -1 while unknown."""
        return NO_EPOCH if self._election is None else self._election.epoch

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._term is not None and not self._term.is_over

    @property
    def unclean_elections(self) -> int:
        """The number of unclean leader elections by this broker."""
        return self._unclean_elections + (0 if self._term is None else self._term.unclean_elections)

    # ---- start and stop

    async def start(self) -> None:
        """Stand for election; return when the controller is known."""
        self._task = self._around.spawn(self._run())
        self._stand()
        await self._known.wait()

    async def renew(self, elections: Elections) -> None:
        """Continue in a new session, after the previous one has expired; return when the controller is known."""
        self._elections = elections
        self._changed(None)
        self._stand()
        await self._known.wait()

    def session_event(self, event: SessionEvent) -> None:
        """Handle a session event: after an expiration, nothing more is sent or written."""
        if event is SessionEvent.EXPIRED:
            if self._term is not None:
                self._term.end()
            self._changed(None)

    def settings_changed(self) -> None:
        """Apply changed settings of the broker: the default of `unclean.leader.election.enable`."""
        if self.is_active:
            self._events.put_nowait(self._settle)

    async def _settle(self) -> None:
        if self._term is not None and not self._term.is_over:
            await self._term.settle()

    async def stop(self) -> None:
        """Resign, so that another broker becomes the controller immediately; close all connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        found, was_active = self._election, self.is_active
        await self._resign()
        if found is not None and was_active:
            try:
                await self._elections.resign(found)
            except MagicbyteError as error:  # then the end of the session has the same effect
                log.warning("controller: cannot resign: %s", error)
        for waiting in self._waiting:
            _fail(waiting, NotControllerError("the broker stops"))

    # ---- requests to the controller

    async def check_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Raise NotControllerError, UnknownBrokerError or StaleBrokerEpochError for a request of such a broker."""

        async def check(term: ControllerTerm) -> None:
            term.check_broker(broker_id, broker_epoch)

        await self._ask(check)

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker; return the partitions where that is impossible (ControlledShutdown)."""
        return await self._ask(lambda term: term.shut_down(broker_id, broker_epoch))

    async def elect(
        self, kind: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect leaders of partitions, None: of all that need it; return the result of each (ElectLeaders)."""
        return await self._ask(lambda term: term.elect(kind, partitions))

    async def reassign(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, keeps_factor: bool = False
    ) -> dict[TopicPartition, tuple[ErrorCode, str]]:
        """Begin reassignments, None: cancel one; return the errors.

        `keeps_factor`: the replication factor must not change.
        """
        return await self._ask(lambda term: term.reassign(wanted, keeps_factor=keeps_factor))

    async def reassignments(self) -> dict[TopicPartition, tuple[tuple[int, ...], OngoingMove]]:
        """Return replicas and moves of the partitions being reassigned."""

        async def look(term: ControllerTerm) -> dict[TopicPartition, tuple[tuple[int, ...], OngoingMove]]:
            return term.reassignments()

        return await self._ask(look)

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, wishes: Mapping[TopicPartition, IsrWish]
    ) -> dict[TopicPartition, IsrAnswer]:
        """Change ISRs as requested by leaders; return the result of each partition (AlterPartition).

        Raises NotControllerError, UnknownBrokerError, StaleBrokerEpochError.
        """
        return await self._ask(lambda term: term.alter_partitions(broker_id, broker_epoch, wishes))

    async def _ask(self, work: Callable[[ControllerTerm], Awaitable[T]]) -> T:
        """Run work as an event; return its result, or raise its error."""
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
            except SessionExpiredError as error:  # `renew` continues
                log.warning("controller: %s", error)
                await self._resign()
            except StaleControllerEpochError as error:
                log.warning("controller: resigning: %s", error)
                await self._resign()
                self._stand()
            except Exception:  # a bug, or an invalid node: the next controller starts from the tree
                log.exception("controller: resigning for a fault")
                found = self._election
                await self._resign()
                if found is not None and found.won:
                    await self._let_others(found)
                await asyncio.sleep(_AFTER_FAULT_S)
                self._stand()

    async def _let_others(self, found: ControllerElection) -> None:
        try:
            await self._elections.resign(found, waits=True)
        except MagicbyteError as error:
            log.warning("controller: cannot resign: %s", error)

    def _stand(self) -> None:
        """Stand for election: the known controller may have resigned."""
        if not self._is_electing:
            self._is_electing = True
            self._events.put_nowait(self._elect)

    async def _elect(self) -> None:
        """Determine the controller; become it if there is none."""
        self._is_electing = False
        elections = self._elections
        winner = await elections.stand(self._stand)
        if self.is_active and winner == self._election:
            return
        await self._resign()
        if winner.won:
            self._term = ControllerTerm(self._around, elections, winner, self._events.put_nowait)
            self._changed(winner)
            await self._term.start()
        else:
            self._changed(winner)

    async def _resign(self) -> None:
        """End the term, if there is one: it sends nothing more to brokers."""
        term, self._term = self._term, None
        if term is not None:
            self._unclean_elections += term.unclean_elections
            log.info("controller: epoch %d ends", term.epoch)
            await asyncio.gather(*term.end(), return_exceptions=True)
            self._changed(None)

    def _changed(self, winner: ControllerElection | None) -> None:
        if winner is None:
            self._known.clear()
        else:
            self._known.set()
        if winner != self._election:
            self._election = winner
            self._on_change()


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
