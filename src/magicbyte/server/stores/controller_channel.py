"""The controller's requests to brokers: in order for each, one at a time, repeated after a lost connection.

The queue for an unresponsive broker is bounded by its partitions: later orders for a partition replace earlier ones.

Invariants:
1. A broker gets requests in the order in which they were decided; a later order for a partition may take the place of
   one that waits, except across a StopReplica.
2. A request is repeated until it has a response, on a new connection after a reset of the last: no older request
   arrives after a newer one.
3. A bug costs the request that triggered it, and the broker is sent everything again.

One task for each broker sends; `send` only queues. After a crash of the controller the next one sends everything.
`test_controller_channel.py` has 1 to 3.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.errors import MagicbyteError, NetworkError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.replication.controller import LeaderAndIsr, StopReplicas, UpdateMetadata
from magicbyte.engine.replication.state import PartitionOrder

if TYPE_CHECKING:
    import uuid

    from magicbyte.engine.cluster.brokers import RegisteredBroker
    from magicbyte.engine.protocol import Message
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.stores.controller_messages import ControlMessages

RETRY_S: Final = 0.1
_MOST_RECOVERY_S: Final = 30.0
log = logger(__name__)


class Link(Protocol):
    """A connection to a broker."""

    @property
    def is_stale(self) -> bool:
        """Whether its authentication expires soon."""

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended, for instance because the broker closed it while it was idle."""

    async def send(self, request: Message, *, timeout_ms: int) -> Message:
        """Send a request and return the response. Raises NetworkError."""

    def abort(self) -> None:
        """Fail the pending request. If there is one, reset the connection, so that no more of it is delivered."""

    async def aclose(self) -> None:
        """Close the connection."""


class Connect(Protocol):
    """Open a connection to a broker: `Links.connect`. Raises NetworkError."""

    def __call__(
        self, broker_id: int, host: str, port: int, *, protocol: tuple[int, ...], client_id: str, timeout_ms: int
    ) -> Awaitable[Link]:
        """Return a connection that sends requests in the versions of `protocol`."""


Control: TypeAlias = LeaderAndIsr | UpdateMetadata | StopReplicas
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Surroundings(Struct, frozen=True):
    """The dependencies of a controller in every term. `new_id` returns topic ids, if `gives_ids`."""

    broker_id: int
    config: BrokerConfig
    protocol: tuple[int, ...]
    gives_ids: bool
    new_id: Callable[[], uuid.UUID]
    connect: Connect
    spawn: Spawn


class _WaitingOrders(Struct):
    """A queued request; `later`: merged orders of later requests of its kind, by partition, or None."""

    control: Control
    answered: Callable[[Message], None]
    later: dict[TopicPartition, PartitionOrder] | None = None

    def takes_in(self, control: Control) -> bool:
        """Merge the orders of `control`, if it is of the same kind; return whether it was."""
        earlier = self.control
        if isinstance(earlier, StopReplicas) or isinstance(control, StopReplicas) or type(earlier) is not type(control):
            return False
        if self.later is None:
            self.later = {each.partition: each for each in earlier.orders}
        for each in control.orders:
            before = self.later.get(each.partition)
            self.later[each.partition] = replace(each, is_new=each.is_new or (before is not None and before.is_new))
        return True

    def whole(self) -> Control:
        """Return the request with all merged orders."""
        if self.later is None or isinstance(self.control, StopReplicas):
            return self.control
        return replace(self.control, orders=tuple(self.later.values()))


class BrokerChannel:
    """The requests to one registered broker, until `close`. `make` builds them when they are sent.

    A later request of the same kind is merged into a queued one, unless replicas must be stopped in between. A request
    without a response is repeated on a new connection before the next one: brokers accept the same request twice, but
    no older one after a newer one. So the connection before is reset, which drops what it has not
    delivered. `open_link` connects to the broker's current address.

    A bug loses the request that triggered it, but does not stop the channel: `lost` is called, with a growing
    delay, so that the broker is sent everything again.
    """

    def __init__(
        self,
        broker_id: int,
        open_link: Callable[[], Awaitable[Link]],
        make: Callable[[Control], Message],
        spawn: Spawn,
        lost: Callable[[], None],
        *,
        timeout_ms: int,
    ) -> None:
        self._broker_id, self._open_link, self._make, self._timeout_ms = broker_id, open_link, make, timeout_ms
        self._lost, self._recovery_s = lost, RETRY_S
        self._waiting = deque[_WaitingOrders]()
        self._has_work = asyncio.Event()
        self._link: Link | None = None
        self._is_reachable = True
        self._task = spawn(self._run())

    def send(self, control: Control, answered: Callable[[Message], None]) -> None:
        """Queue a request, or merge it into one; `answered` is called with the response."""
        for waiting in reversed(self._waiting):
            if waiting.takes_in(control):
                return
            if isinstance(waiting.control, StopReplicas):
                break
        self._waiting.append(_WaitingOrders(control, answered))
        self._has_work.set()

    def close(self) -> asyncio.Task[None]:
        """Stop sending. Returns the task that closes the connection."""
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        try:
            while True:
                await self._has_work.wait()
                waiting = self._waiting.popleft()
                if not self._waiting:
                    self._has_work.clear()
                try:
                    response = await self._deliver(self._make(waiting.whole()))
                    if response is not None:
                        waiting.answered(response)
                    self._recovery_s = RETRY_S
                except Exception:
                    log.exception("controller: a request to broker %d ended because of a bug; everything is sent again "
                                  "in %.1f s", self._broker_id, self._recovery_s)  # fmt: skip
                    await self._recover()
        except asyncio.CancelledError:
            return
        finally:
            await self._disconnect()

    async def _recover(self) -> None:
        """Continue after a bug with the queue, followed by everything that the broker must know."""
        await self._disconnect()
        await asyncio.sleep(self._recovery_s)
        self._recovery_s = min(2 * self._recovery_s, _MOST_RECOVERY_S)
        self._lost()

    async def _deliver(self, request: Message) -> Message | None:
        """Return the response, None if it cannot be parsed."""
        while True:
            try:
                # The broker closes connections that are idle for long: no reason to complain of.
                if self._link is not None and (self._link.is_stale or self._link.is_closed):
                    await self._disconnect()
                if self._link is None:
                    self._link = await self._open_link()
                # After a timeout the broker may or may not have handled the request, so the same one is sent again on a
                # new connection before any later one. Both outcomes are safe: orders carry controller and leader
                # epochs, and a repeated order has no effect. A later order sent first would not be: the old request may
                # still be in flight, and would be handled after the new one.
                response = await self._link.send(request, timeout_ms=self._timeout_ms)
            except NetworkError as error:
                if self._is_reachable:
                    log.warning("controller: cannot reach broker %d, trying again: %s", self._broker_id, error)
                self._is_reachable = False
                await self._disconnect()
                await asyncio.sleep(RETRY_S)
            except MagicbyteError as error:
                log.error("controller: broker %d sends a response that cannot be parsed: %s", self._broker_id, error)  # noqa: TRY400
                await self._disconnect()
                return None
            else:
                self._is_reachable = True
                return response

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abort()
            await link.aclose()


class Channels:
    """A channel for each live broker. `messages` builds the requests, with knowledge of the brokers.

    `lost` is called with a broker that may have missed something because of a bug.
    """

    def __init__(self, around: Surroundings, messages: ControlMessages, lost: Callable[[int], None]) -> None:
        self.messages = messages
        self._around, self._lost = around, lost
        self._channels: dict[int, BrokerChannel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def renew(self, brokers: Mapping[int, RegisteredBroker]) -> None:
        """Apply the live brokers. The queues of brokers that died, or restarted in between, are dropped."""
        before, self.messages.brokers = self.messages.brokers, dict(brokers)
        for broker_id, broker in before.items():
            if broker_id not in brokers or brokers[broker_id].epoch != broker.epoch:
                task = self._channels.pop(broker_id).close()
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        timeout_ms = self._around.config.controller_socket_timeout_ms
        for broker_id in brokers:
            if broker_id not in self._channels:
                open_link = partial(self._open_link, broker_id, timeout_ms)
                lost = partial(self._lost, broker_id)
                self._channels[broker_id] = BrokerChannel(
                    broker_id, open_link, self._made, self._around.spawn, lost, timeout_ms=timeout_ms
                )

    def send(self, control: Control, answered: Callable[[Message], None]) -> None:
        """Send a request to a broker, if it is live."""
        channel = self._channels.get(control.broker_id)
        if channel is not None:
            channel.send(control, answered)

    def _made(self, control: Control) -> Message:
        match control:
            case LeaderAndIsr(broker_id, orders):
                return self.messages.leader_and_isr(broker_id, orders)
            case UpdateMetadata(broker_id, orders):
                return self.messages.update_metadata(broker_id, orders)
            case StopReplicas(broker_id, partitions, deletes):
                return self.messages.stop_replicas(broker_id, partitions, deletes=deletes)

    def close(self) -> list[asyncio.Task[None]]:
        """Stop sending. Returns the tasks that close connections."""
        tasks = [each.close() for each in self._channels.values()]
        self._channels.clear()
        return [*tasks, *self._closing]

    async def _open_link(self, broker_id: int, timeout_ms: int) -> Link:
        broker, around = self.messages.brokers.get(broker_id), self._around
        listener = around.config.inter_broker_name
        endpoint = None if broker is None else broker.endpoint(listener)
        if endpoint is None:
            raise NetworkError(f"broker {broker_id} is registered without listener {listener or 'PLAINTEXT'}")
        return await around.connect(
            *(broker_id, endpoint.host, endpoint.port),
            protocol=around.protocol,
            client_id=str(around.broker_id),
            timeout_ms=timeout_ms,
        )
