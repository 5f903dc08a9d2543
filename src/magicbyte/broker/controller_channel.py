"""What a controller sends to brokers: to each in order, one request at a time, again after a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from magicbyte.errors import MagicbyteError, NetworkError
from magicbyte.printable import logger

if TYPE_CHECKING:
    import uuid

    from magicbyte.broker.config import BrokerConfig
    from magicbyte.broker.controller_messages import ControlMessages, LiveBroker
    from magicbyte.protocol import Message

RETRY_S: Final = 0.1
log = logger(__name__)


class Link(Protocol):
    """A connection to a broker."""

    async def send(self, request: Message, *, timeout_ms: int) -> Message:
        """Send a request and return the response. Raises NetworkError."""

    async def aclose(self) -> None:
        """Close the connection."""


class Connect(Protocol):
    """Opens a connection to a broker: `links.connect`. Raises NetworkError."""

    def __call__(
        self, broker_id: int, host: str, port: int, *, protocol: tuple[int, ...], client_id: str, timeout_ms: int
    ) -> Awaitable[Link]:
        """Return a connection whose requests go out in the versions of `protocol`."""


Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a controller needs, in every term. `new_id` gives topics their ids where `gives_ids`."""

    broker_id: int
    config: BrokerConfig
    protocol: tuple[int, ...]
    gives_ids: bool
    new_id: Callable[[], uuid.UUID]
    connect: Connect
    spawn: Spawn


class BrokerChannel:
    """The requests to one registered broker, until `close`.

    A request that gets no answer is sent again on a new connection, and the next one waits: brokers take the same
    request twice, but no older one behind a newer one. `open_link` connects to where the broker is then.
    """

    def __init__(
        self, broker_id: int, open_link: Callable[[], Awaitable[Link]], spawn: Spawn, *, timeout_ms: int
    ) -> None:
        self._broker_id, self._open_link, self._timeout_ms = broker_id, open_link, timeout_ms
        self._queue: asyncio.Queue[tuple[Message, Callable[[Message], None]]] = asyncio.Queue()
        self._link: Link | None = None
        self._is_reachable = True
        self._task = spawn(self._run())

    def send(self, request: Message, answered: Callable[[Message], None]) -> None:
        """Send a request behind those before it; `answered` is called with the response."""
        self._queue.put_nowait((request, answered))

    def close(self) -> asyncio.Task[None]:
        """Send nothing more. Returns the task that closes the connection."""
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        try:
            while True:
                request, answered = await self._queue.get()
                response = await self._deliver(request)
                if response is not None:
                    answered(response)
        except asyncio.CancelledError:
            return
        finally:
            await self._disconnect()

    async def _deliver(self, request: Message) -> Message | None:
        """Return the response, None for one that cannot be read."""
        while True:
            try:
                if self._link is None:
                    self._link = await self._open_link()
                response = await self._link.send(request, timeout_ms=self._timeout_ms)
            except NetworkError as error:
                if self._is_reachable:
                    log.warning("controller: cannot reach broker %d, trying again: %s", self._broker_id, error)
                self._is_reachable = False
                await self._disconnect()
                await asyncio.sleep(RETRY_S)
            except MagicbyteError as error:
                log.error("controller: broker %d answers what cannot be read: %s", self._broker_id, error)  # noqa: TRY400
                await self._disconnect()
                return None
            else:
                self._is_reachable = True
                return response

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()


class Channels:
    """A channel for each live broker. What is to be sent is made by `messages`, which know the brokers."""

    def __init__(self, around: Surroundings, messages: ControlMessages) -> None:
        self.messages = messages
        self._around = around
        self._channels: dict[int, BrokerChannel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def renew(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Take in the live brokers. What was to be sent to one that died, or came back in between, is dropped."""
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
                self._channels[broker_id] = BrokerChannel(
                    broker_id, open_link, self._around.spawn, timeout_ms=timeout_ms
                )

    def send(self, broker_id: int, make: Callable[[], Message], answered: Callable[[Message], None]) -> None:
        """Send a request to a broker, if it is live."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.send(make(), answered)

    def close(self) -> list[asyncio.Task[None]]:
        """Send nothing more. Returns the tasks that close connections."""
        tasks = [each.close() for each in self._channels.values()]
        self._channels.clear()
        return [*tasks, *self._closing]

    async def _open_link(self, broker_id: int, timeout_ms: int) -> Link:
        broker, around = self.messages.brokers.get(broker_id), self._around
        listener = around.config.inter_broker_listener_name
        endpoint = None if broker is None else broker.endpoint(listener)
        if endpoint is None:
            raise NetworkError(f"broker {broker_id} is registered without the listener {listener or 'PLAINTEXT'}")
        return await around.connect(
            *(broker_id, endpoint.host, endpoint.port),
            protocol=around.protocol,
            client_id=str(around.broker_id),
            timeout_ms=timeout_ms,
        )
