"""Listeners and their connections: frames in, answers out, in the order of the requests.

Of a frame nothing but its size is understood. A connection has one request in work at a time; what a peer sends
meanwhile stays with the system, which slows the peer down. Memory: of each connection one frame and its answer, of all
of them together about what the `Budget` has, apart from small frames, of which the number of connections is the bound.
A frame's memory is filled, and so used, only as its bytes arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from magicbyte.errors import MagicbyteError, NetworkError, ProtocolError
from magicbyte.net.complaints import Complaints
from magicbyte.net.memory import Budget
from magicbyte.net.network import Door, Listening, Network, SocketNetwork
from magicbyte.net.stream import Buffer, Stream
from magicbyte.printable import logger

if TYPE_CHECKING:
    from magicbyte.security.quotas import ConnectionArrival

log = logger(__name__)
T = TypeVar("T")

READ_BYTES: Final = 64 << 10
SMALL_FRAME: Final = 64 << 10  # bytes of a frame that waits for no memory
HEAD: Final = 4  # bytes: what says which request a frame is
MOST_ENTERING: Final = 1024  # connections whose peers have not said yet who they are
MOST_REFUSED: Final = 256  # connections that are not served, and kept for a while
STALL_MS: Final = 60_000  # for a peer that has begun a frame and sends nothing more of it
_SIZE = struct.Struct(">i")
_EMPTY = memoryview(b"")
_TELL_S: Final = 60.0  # between two lines about that


class AnswerPart(Protocol):
    """A part of an answer that is not bytes at hand."""

    async def send(self, stream: Stream) -> None:
        """Send all of it. Raises NetworkError when the peer is gone, or when there is less than was promised."""

    def close(self) -> None:
        """Give back what it holds, whether it was sent or not."""


Answer: TypeAlias = Sequence[Buffer | AnswerPart]


@dataclass(frozen=True, slots=True)
class Mute:
    """The last part of an answer, of no bytes: behind it nothing is read from the connection for a while."""

    ms: int

    async def send(self, stream: Stream) -> None:
        """Send nothing."""

    def close(self) -> None:
        """Hold nothing."""


Handler: TypeAlias = Callable[[memoryview], Awaitable[Answer | None]]
"""Takes a frame without its size, returns the whole answer, None where there is none. The frame is its to keep."""


class Entered(NamedTuple):
    """A connection that was let in: its stream from now on, its frames, and who handles them."""

    stream: Stream
    incoming: Incoming
    handler: Handler


Entrance: TypeAlias = Callable[[Stream, str], Awaitable[Entered]]
"""Finds out who a peer is, given its stream and its host, before its requests are served. Raises MagicbyteError."""


class Terms(NamedTuple):
    """What holds for a large frame. `is_kept`: its handler needs its bytes to the end, not only to read a message."""

    largest: int
    is_kept: bool = True


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """What peers may take: sizes in bytes, times in ms. `entrance_ms`: until a peer has said who it is.

    `terms_of` is given the first `HEAD` bytes of a frame of more than `SMALL_FRAME` bytes: what holds for such a one.
    `descriptors`: the number that those of connections stay below; the others are for files.
    """

    largest_frame: int = 100 << 20
    terms_of: Callable[[memoryview], Terms] | None = None
    connections: int = (1 << 31) - 1
    connections_per_host: int = (1 << 31) - 1
    idle_ms: int = 600_000
    entrance_ms: int = 30_000
    descriptors: int = 1 << 30


class Incoming:
    """The frames of one connection."""

    def __init__(self, stream: Stream, limits: PeerLimits, budget: Budget) -> None:
        self.limits = limits
        self.held = 0  # bytes of the budget, of the frame that is read or was returned last
        self.is_kept = True  # whether they are needed until that one is answered
        self.begun = False  # whether a frame is half there
        self._stream, self._budget = stream, budget
        self._rest = _EMPTY

    async def next(self) -> memoryview | None:
        """Return the next frame without its size; None when the peer sends no more.

        Raises ProtocolError for a size that no frame may have, NetworkError for an end inside a frame, BusyError when
        there is no memory for too long.
        """
        rest = await self._at_least(self._rest, _SIZE.size)
        if not len(rest):
            return None
        (size,) = _SIZE.unpack_from(rest)
        self._check(size, self.limits.largest_frame)
        self.begun = True
        if size > SMALL_FRAME:
            if self.limits.terms_of is not None:
                rest = await self._at_least(rest, _SIZE.size + HEAD)
                largest, self.is_kept = self.limits.terms_of(rest[_SIZE.size : _SIZE.size + HEAD])
                self._check(size, min(largest, self.limits.largest_frame))
            self.begun = False  # it is not the peer who is waited for
            await self._budget.take(size)
            self.held, self.begun = size, True
        end = _SIZE.size + size
        frame = rest[_SIZE.size : end] if end <= len(rest) else await self._large(rest[_SIZE.size :], size)
        self._rest = rest[end:] if end < len(rest) else _EMPTY
        self.begun = False
        return frame

    async def _at_least(self, rest: memoryview, size: int) -> memoryview:
        """Return `rest` with what comes behind it, `size` bytes at least; as it is where nothing came at all."""
        while len(rest) < size:
            data = await self._stream.read(READ_BYTES)
            if not data:
                if len(rest):
                    raise self._cut()
                break
            rest = memoryview(bytes(rest) + data if len(rest) else data)
            self.begun = True
        return rest

    @staticmethod
    def _check(size: int, largest: int) -> None:
        if not 0 <= size <= largest:
            raise ProtocolError("size of a frame", expected=f"0 to {largest}", found=size, position=0)

    async def _large(self, start: memoryview, size: int) -> memoryview:
        if "numpy" not in sys.modules:
            await asyncio.to_thread(import_module, "numpy")  # which takes a while
        import numpy as np

        frame = memoryview(np.empty(size, np.uint8).data)  # the system gives it page by page, as it is filled
        have = len(start)
        frame[:have] = start
        while have < size:
            count = await self._stream.read_into(frame[have:])
            if not count:
                raise self._cut()
            have += count
        return frame

    def _cut(self) -> NetworkError:
        return NetworkError(f"{self._stream.peer}: the connection ended inside a request")

    def release(self) -> None:
        """Give back the memory of the last frame."""
        held, self.held = self.held, 0
        if held:
            self._budget.give(held)


class _Connection:
    __slots__ = ("busy", "host", "idle_since", "incoming", "is_muted", "moved", "stream", "task")

    def __init__(self, stream: Stream, host: str, incoming: Incoming, now: float) -> None:
        self.stream, self.host, self.incoming = stream, host, incoming
        self.busy = False  # a request is in work
        self.is_muted = False  # nothing is read from it for a while
        self.moved, self.idle_since = 0, now
        self.task: asyncio.Task[None] | None = None


class Server(Generic[T]):
    """Serves connections at any number of addresses; `T` is whatever the owner knows each of these by.

    `connected` is given a peer's host, its name for messages and the listener, and returns who handles its requests.
    `budget` is that of the whole process, where there is one, as are `complaints`. `network` is this machine's unless
    given. `entrance_of` says what connections of a listener pass before; there `connected` is not asked. `arrived` is
    told the listener and the peer's host of each connection, and says whether it waits, or is not served.
    """

    def __init__(
        self,
        limits: PeerLimits,
        connected: Callable[[str, str, T], Handler],
        *,
        budget: Budget | None = None,
        complaints: Complaints | None = None,
        network: Network | None = None,
        entrance_of: Callable[[T], Entrance | None] = lambda _listener: None,
        arrived: Callable[[T, str], ConnectionArrival | None] = lambda _listener, _host: None,
    ) -> None:
        self.limits = limits
        self.budget = budget or Budget(-1)
        self.complaints = complaints or Complaints()
        self._connected = connected
        self._entrance_of, self._arrived = entrance_of, arrived
        self._refused: dict[Stream, asyncio.TimerHandle] = {}  # in the order of their coming
        self._entering: dict[_Connection, None] = {}  # in the order of their coming
        self._network = network or SocketNetwork()
        self._listening: list[Listening] = []
        self._connections: dict[_Connection, None] = {}  # in the order of their coming
        self._hosts = Counter[str]()
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._told_s = -_TELL_S

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    async def listen(self, host: str, port: int, listener: T) -> int:
        """Take connections at the first address of `host` ("" is any); port 0 is any free one. Return the port.

        Raises NetworkError.
        """
        door = Door(partial(self._take, listener), lambda: self.limits.descriptors, self._tell_full)
        listening = await self._network.listen(host, port, door)
        self._listening.append(listening)
        if self._sweeper is None:
            self._sweep()
        return listening.port

    def close_listeners(self) -> None:
        """Take no more connections."""
        self._is_closing = True
        for listening in self._listening:
            listening.close()
        self._listening.clear()

    async def aclose(self, *, grace_ms: int = 5000) -> None:
        """Take no more connections, close those that are there; a request in work has so long to be answered."""
        self.close_listeners()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for stream in list(self._refused):
            self._close_refused(stream)
        tasks = [each.task for each in self._connections if each.task is not None]
        for each in list(self._connections):
            if not each.busy and each.task is not None:
                each.task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=grace_ms / 1000)
            for task in tasks:
                task.cancel()  # those that are late; nothing happens to the others
            await asyncio.gather(*tasks, return_exceptions=True)

    # ---- connections come and go

    def _tell_full(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told_s >= _TELL_S:
            self._told_s = now
            log.warning("no connections are taken until some of the %d end: %s", self.connections, why)

    def _take(self, listener: T, stream: Stream, host: str) -> float:
        """Serve a connection, if that may be; return for how many seconds to take no more of them."""
        limits, wait_s = self.limits, 0.0
        if (arrival := self._arrived(listener, host)) is not None:
            wait_s = arrival.wait_ms / 1000
            if arrival.refused_ms:
                self._refuse(stream, arrival.refused_ms / 1000)
                return wait_s
        if len(self._connections) >= limits.connections or self._hosts[host] >= limits.connections_per_host:
            self.complaints.line(log, host, "refused connections", "refused a connection from %s: there are %d, of "
                                 "this host %d", host, self.connections, self._hosts[host])  # fmt: skip
            stream.close()
            return wait_s
        loop = asyncio.get_running_loop()
        incoming = Incoming(stream, limits, self.budget)
        connection = _Connection(stream, host, incoming, loop.time())
        self._connections[connection] = None
        self._hosts[host] += 1
        entrance = self._entrance_of(listener)
        handler = self._connected(host, stream.peer, listener) if entrance is None else None
        connection.task = loop.create_task(self._serve(connection, handler, entrance, wait_s))
        connection.task.add_done_callback(_complain)
        return wait_s

    def _refuse(self, stream: Stream, seconds: float) -> None:
        """Close a connection after a time, so that its peer does not come again at once; of too many the oldest."""
        self._refused[stream] = asyncio.get_running_loop().call_later(seconds, self._close_refused, stream)
        if len(self._refused) > MOST_REFUSED:
            self._close_refused(next(iter(self._refused)))

    def _close_refused(self, stream: Stream) -> None:
        self._refused.pop(stream).cancel()
        stream.close()

    async def _let_in(self, connection: _Connection, entrance: Entrance) -> Handler:
        """Return who handles the requests of a connection when it is known who sends them.

        Of too many that are not that far the oldest is closed, so that others have their turn.
        """
        self._entering[connection] = None
        if len(self._entering) > MOST_ENTERING:
            oldest = next(iter(self._entering))
            del self._entering[oldest]
            oldest.stream.close()
        try:
            async with asyncio.timeout(self.limits.entrance_ms / 1000):
                connection.stream, connection.incoming, handler = await entrance(connection.stream, connection.host)
        except TimeoutError:
            late = f"it has not said who it is within {self.limits.entrance_ms} ms"
            raise NetworkError(f"{connection.stream.peer}: {late}") from None
        finally:
            self._entering.pop(connection, None)
        connection.incoming.limits = self.limits
        return handler

    async def _serve(
        self, connection: _Connection, handler: Handler | None, entrance: Entrance | None, wait_s: float
    ) -> None:
        """Answer one connection's requests until the peer ends it, or breaks the rules."""
        stream, incoming = connection.stream, connection.incoming
        try:
            if wait_s:
                await self._mute(connection, wait_s)
            if handler is None:
                assert entrance is not None, "one of the two"
                handler = await self._let_in(connection, entrance)
                stream, incoming = connection.stream, connection.incoming
            while (frame := await incoming.next()) is not None:
                connection.busy = True
                answering = handler(frame)
                del frame
                if not incoming.is_kept:
                    incoming.release()
                answer = await answering
                del answering
                connection.busy = False
                muted_ms = 0
                if answer is not None:
                    if answer and isinstance(answer[-1], Mute):
                        muted_ms, answer = answer[-1].ms, answer[:-1]
                    await _send(stream, answer)
                    del answer
                incoming.release()
                if self._is_closing:
                    return
                if muted_ms:
                    await self._mute(connection, muted_ms / 1000)
        except NetworkError as error:
            self.complaints.line(log, connection.host, "lost connections", "%s", error, level=logging.INFO)
        except MagicbyteError as error:  # the peer's fault: one line, no traceback
            self.complaints.line(log, connection.host, "closed connections", "closing %s: %s", stream.peer, error)
        finally:
            incoming.release()
            stream.close()
            self._connections.pop(connection, None)
            self._hosts[connection.host] -= 1
            if not self._hosts[connection.host]:
                del self._hosts[connection.host]

    @staticmethod
    async def _mute(connection: _Connection, seconds: float) -> None:
        connection.is_muted = True
        await asyncio.sleep(seconds)
        connection.is_muted = False

    def _sweep(self) -> None:
        """Close connections on which nothing has moved for too long, and those whose peers do not wait any more."""
        loop = asyncio.get_running_loop()
        now, idle_ms = loop.time(), self.limits.idle_ms
        stall_ms = min(STALL_MS, idle_ms)
        for each in list(self._connections):
            limit_ms = stall_ms if each.incoming.begun else idle_ms
            if each.busy:
                each.idle_since = now
                if each.stream.is_abandoned and each.task is not None:
                    self.complaints.line(log, each.host, "abandoned requests", "%s: gone while its request was in work",
                                         each.stream.peer, level=logging.INFO)  # fmt: skip
                    each.task.cancel()
            elif each.is_muted and each.stream.is_abandoned and each.task is not None:
                each.task.cancel()
            elif each.moved != each.stream.moved:
                each.moved, each.idle_since = each.stream.moved, now
            elif (now - each.idle_since) * 1000 >= limit_ms:
                self.complaints.line(log, each.host, "idle connections", "%s: closed, nothing has come or gone for "
                                     "%d ms", each.stream.peer, limit_ms, level=logging.INFO)  # fmt: skip
                each.stream.close()
                if each.is_muted and each.task is not None:
                    each.task.cancel()
        self.complaints.flush()
        self._sweeper = loop.call_later(max(stall_ms / 4000, 0.01), self._sweep)


async def _send(stream: Stream, answer: Answer) -> None:
    """Send an answer, neighbouring buffers in one call."""
    try:
        buffers: list[Buffer] = []
        for part in answer:
            if isinstance(part, bytes | bytearray | memoryview):
                buffers.append(part)
            else:
                if buffers:
                    await stream.write(buffers, more=True)
                    buffers = []
                await part.send(stream)
        if buffers:
            await stream.write(buffers)
    finally:
        discard(answer)


def discard(answer: Answer) -> None:
    """Give back what the parts of an answer hold."""
    for part in answer:
        if not isinstance(part, bytes | bytearray | memoryview):
            part.close()


def _complain(task: asyncio.Task[None]) -> None:
    """Say what ended a connection that nobody expected: a fault of ours, which ends nothing else."""
    with contextlib.suppress(asyncio.CancelledError):
        if (error := task.exception()) is not None:
            log.error("a connection ended because of a bug", exc_info=error)
