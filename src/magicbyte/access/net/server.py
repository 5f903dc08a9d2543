"""Serve connections: frames in, responses out, in the order of the requests.

Frames are opaque except for their size. A connection has one request in progress at a time; further bytes stay in the
system's buffer, which gives back-pressure. Memory: each connection has one frame and its response, and all of them
together about the `Budget`, apart from small frames, which are bounded by the number of connections. A frame's memory
is committed only as its bytes arrive.

Invariants:
1. A connection has one task. It takes the next frame when the answer of the last one is sent: answers have the order of
   the requests.
2. Memory that was taken from the budget is given back once: by `release`, after the answer, or earlier if the frame is
   not kept, and in any case when the task ends (`_leave`).
3. The parts of an answer are closed, whether they were sent or not.
4. A served connection ends in one place, `_leave`, whatever ended its task; a bug ends that connection only.
5. A connection that is not authenticated ends after `entrance_ms`; of more than MOST_ENTERING the oldest ends.

All of it runs on one event loop without a lock. `_sweep` closes connections of peers that stopped; a request in
progress is cancelled only when its peer is gone, or when the server ends before the answer.
`tests/access/net/test_server.py` has 1 to 4.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from magicbyte.access.net.complaints import Complaints
from magicbyte.access.net.memory import Budget
from magicbyte.access.net.network import Door, Listening, Network, SocketNetwork
from magicbyte.access.net.stream import Buffer, Stream
from magicbyte.engine.errors import MagicbyteError, NetworkError
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.framing import SIZE_BYTES, frame_size

if TYPE_CHECKING:
    from magicbyte.access.security.quotas import ConnectionArrival

log = logger(__name__)
T = TypeVar("T")

READ_BYTES: Final = 64 << 10
SMALL_FRAME: Final = 64 << 10  # frames up to this size need no budget
HEAD: Final = 4  # bytes: the start of a frame, which identifies the request
MOST_ENTERING: Final = 1024  # connections that are not authenticated yet
MOST_REFUSED: Final = 256  # refused connections that are kept open for a while
STALL_MS: Final = 60_000  # the longest pause inside a frame
_TURN_S: Final = 0.001  # of the loop, for a connection whose next frame is always there
_EMPTY = memoryview(b"")
_TELL_S: Final = 60.0  # between two log lines about connection limits


class AnswerPart(Protocol):
    """A part of a response other than bytes in memory."""

    async def send(self, stream: Stream) -> None:
        """Send all of it. Raises NetworkError if the peer is gone, or if there is less than promised."""

    def close(self) -> None:
        """Release its resources, whether it was sent or not."""


Answer: TypeAlias = Sequence[Buffer | AnswerPart]


class MuteConnection(Struct, frozen=True):
    """The last part of a response, without bytes: after it the connection is muted, which means not read, for a
    while.
    """

    ms: int

    def around(self, answer: Answer | None) -> Answer:
        """Return an answer with this at its place."""
        return [*(answer or ()), self]

    async def send(self, stream: Stream) -> None:
        """Send nothing."""

    def close(self) -> None:
        """Hold nothing."""


class DelayResponse(Struct, frozen=True):
    """The first part of an answer, of no bytes: the others are sent after a time, without the request's memory."""

    ms: int

    def around(self, answer: Answer | None) -> Answer:
        """Return an answer with this at its place."""
        return [self, *(answer or ())]

    async def send(self, stream: Stream) -> None:  # noqa: ARG002  (nothing is sent yet)
        """Wait."""
        await asyncio.sleep(self.ms / 1000)

    def close(self) -> None:
        """Hold nothing."""


Handler: TypeAlias = Callable[[memoryview], Awaitable[Answer | None]]
"""Handle a frame, given without its size; return the whole response, or None. The handler owns the frame."""


class AdmittedConnection(NamedTuple):
    """An admitted connection: its stream, its frames, and its handler."""

    stream: Stream
    incoming: Incoming
    handler: Handler


Entrance: TypeAlias = Callable[[Stream, str], Awaitable[AdmittedConnection]]
"""Authenticate a peer, given its stream and its host, before its requests are served. Raises MagicbyteError."""


class FrameLimit(NamedTuple):
    """The treatment of a large frame. `is_kept`: its handler needs its bytes to the end, not only for parsing."""

    largest: int
    is_kept: bool = True


class PeerLimits(Struct, frozen=True):
    """The limits of peers: sizes in bytes, times in ms. `entrance_ms`: until a peer is authenticated.

    `frame_limit_of` is called with the first `HEAD` bytes of a frame of more than `SMALL_FRAME` bytes. `descriptors`:
    the bound on descriptor numbers of connections; the others are for files.
    """

    largest_frame: int = 100 << 20
    frame_limit_of: Callable[[memoryview], FrameLimit] | None = None
    connections: int = (1 << 31) - 1
    connections_per_host: int = (1 << 31) - 1
    idle_ms: int = 600_000
    entrance_ms: int = 30_000
    descriptors: int = 1 << 30


class Incoming:
    """The frames of one connection."""

    def __init__(self, stream: Stream, limits: PeerLimits, budget: Budget) -> None:
        self.limits = limits
        self.held = 0  # bytes of the budget held for the current or the last returned frame
        self.is_kept = True  # whether they are needed until the response
        self.begun = False  # whether a frame has arrived in part
        self._stream, self._budget = stream, budget
        self._rest = _EMPTY

    async def next(self) -> memoryview | None:
        """Return the next frame without its size; None at the end of the connection.

        Raises ProtocolError for an invalid size, NetworkError for an end inside a frame, BusyError after a timeout for
        memory.
        """
        rest = await self._at_least(self._rest, SIZE_BYTES)
        if not len(rest):
            return None
        size = frame_size(rest, self.limits.largest_frame)
        self.begun = True
        if size > SMALL_FRAME:
            if self.limits.frame_limit_of is not None:
                rest = await self._at_least(rest, SIZE_BYTES + HEAD)
                largest, self.is_kept = self.limits.frame_limit_of(rest[SIZE_BYTES : SIZE_BYTES + HEAD])
                frame_size(rest, min(largest, self.limits.largest_frame))
            self.begun = False  # the pause is not the peer's
            await self._budget.take(size)
            self.held, self.begun = size, True
        end = SIZE_BYTES + size
        frame = rest[SIZE_BYTES:end] if end <= len(rest) else await self._large(rest[SIZE_BYTES:], size)
        self._rest = rest[end:] if end < len(rest) else _EMPTY
        self.begun = False
        return frame

    async def _at_least(self, rest: memoryview, size: int) -> memoryview:
        """Return `rest` with the bytes after it, at least `size`; `rest` itself if no more came."""
        while len(rest) < size:
            data = await self._stream.read(READ_BYTES)
            if not data:
                if len(rest):
                    raise self._cut()
                break
            rest = memoryview(bytes(rest) + data if len(rest) else data)
            self.begun = True
        return rest

    async def _large(self, start: memoryview, size: int) -> memoryview:
        if "numpy" not in sys.modules:
            await asyncio.to_thread(import_module, "numpy")  # the import takes a while
        import numpy as np

        frame = memoryview(np.empty(size, np.uint8).data)  # the system commits it page by page, as it is filled
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

    def set_limits(self, limits: PeerLimits, budget: Budget) -> None:
        """Release the memory of the last frame, and read the next ones with other limits, from another budget."""
        self.release()
        self.limits, self._budget = limits, budget

    def release(self) -> None:
        """Release the memory of the last frame."""
        held, self.held = self.held, 0
        if held:
            self._budget.give(held)


class _Connection:
    __slots__ = ("busy", "host", "idle_since", "incoming", "is_muted", "moved", "stream", "task", "turn_s")

    def __init__(self, stream: Stream, host: str, incoming: Incoming, now: float) -> None:
        self.stream, self.host, self.incoming = stream, host, incoming
        self.busy = False  # a request is in progress
        self.is_muted = False  # it is muted
        self.moved, self.idle_since = 0, now
        self.turn_s: float | None = None  # when it got the loop; None: others have had it since its last frame
        self.task: asyncio.Task[None] | None = None

    def end_turn(self) -> None:
        """Record that the loop has turned."""
        self.turn_s = None


class Server(Generic[T]):
    """Serve connections at any number of addresses; `T` is the owner's identification of an address.

    `connected` is called with a peer's host, its name for messages and the listener, and returns the handler of its
    requests. `budget` is shared by the whole process, if given, as are `complaints`. `network` is by default this
    machine's. `entrance_of` returns the authentication of a listener's connections; then `connected` is not called.
    `arrived` is called with the listener and the peer's host of each connection, and decides whether it is delayed or
    refused.
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
        self._refused: dict[Stream, asyncio.TimerHandle] = {}  # in order of arrival
        self._entering: dict[_Connection, None] = {}  # in order of arrival
        self._network = network or SocketNetwork()
        self._listening: list[Listening] = []
        self._connections: dict[_Connection, None] = {}  # in order of arrival
        self._hosts = Counter[str]()
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._told_s = -_TELL_S

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def listen(self, host: str, port: int, listener: T) -> int:
        """Listen at the first address of `host` ("" is any); port 0 is any free one. Return the port."""
        door = Door(partial(self._take, listener), lambda: self.limits.descriptors, self._tell_full)
        listening = await self._network.listen(host, port, door)
        self._listening.append(listening)
        if self._sweeper is None:
            self._sweep()
        return listening.port

    def close_listeners(self) -> None:
        """Stop listening."""
        self._is_closing = True
        for listening in self._listening:
            listening.close()
        self._listening.clear()

    async def aclose(self, *, grace_ms: int = 5000) -> None:
        """Stop listening and close connections; a request in progress has `grace_ms` to be answered."""
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
                task.cancel()  # those that are late; the others have ended
            await asyncio.gather(*tasks, return_exceptions=True)

    # ---- connections come and go

    def _tell_full(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told_s >= _TELL_S:
            self._told_s = now
            log.warning("no connections are accepted until some of the %d end: %s", self.connections, why)

    def _take(self, listener: T, stream: Stream, host: str) -> float:
        """Serve a connection, if allowed; return for how many seconds to accept no more."""
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
        connection.task.add_done_callback(partial(self._leave, connection))
        return wait_s

    def _refuse(self, stream: Stream, seconds: float) -> None:
        """Close a connection after a delay, so that its peer does not reconnect at once; if there are too many, the
        oldest.
        """
        self._refused[stream] = asyncio.get_running_loop().call_later(seconds, self._close_refused, stream)
        if len(self._refused) > MOST_REFUSED:
            self._close_refused(next(iter(self._refused)))

    def _close_refused(self, stream: Stream) -> None:
        self._refused.pop(stream).cancel()
        stream.close()

    async def _let_in(self, connection: _Connection, entrance: Entrance) -> Handler:
        """Return the handler of a connection after its authentication.

        If too many are not authenticated yet, the oldest is closed.
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
            late = f"it has not authenticated within {self.limits.entrance_ms} ms"
            raise NetworkError(f"{connection.stream.peer}: {late}") from None
        finally:
            self._entering.pop(connection, None)
        connection.incoming.set_limits(self.limits, self.budget)
        return handler

    async def _serve(
        self, connection: _Connection, handler: Handler | None, entrance: Entrance | None, wait_s: float
    ) -> None:
        """Answer one connection's requests until the peer ends it or violates the protocol."""
        stream, incoming = connection.stream, connection.incoming
        try:
            if wait_s:
                await self._mute(connection, wait_s)
            if handler is None:
                assert entrance is not None, "one of the two"
                handler = await self._let_in(connection, entrance)
                stream, incoming = connection.stream, connection.incoming
            while (frame := await self._next(connection)) is not None:
                connection.busy = True
                answering = handler(frame)
                del frame
                if not incoming.is_kept:
                    incoming.release()
                answer = await answering
                del answering
                if answer and isinstance(hold := answer[0], DelayResponse):
                    incoming.release()
                    try:
                        await hold.send(stream)
                    except BaseException:
                        discard(answer)
                        raise
                    answer = answer[1:]
                connection.busy = False
                muted_ms = 0
                if answer is not None:
                    if answer and isinstance(answer[-1], MuteConnection):
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

    def _leave(self, connection: _Connection, task: asyncio.Task[None]) -> None:
        """Close a connection whose task has ended: also one that was cancelled before its first step.

        Log an unexpected error: a bug, which ends nothing else.
        """
        connection.incoming.release()
        connection.stream.close()
        del self._connections[connection]
        self._hosts[connection.host] -= 1
        if not self._hosts[connection.host]:
            del self._hosts[connection.host]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection ended because of a bug", exc_info=error)

    @staticmethod
    async def _next(connection: _Connection) -> memoryview | None:
        """Return the next frame. A peer that sends requests in advance does not get the loop for all of them."""
        frame, loop = await connection.incoming.next(), asyncio.get_running_loop()
        now_s = loop.time()
        if connection.turn_s is not None and now_s - connection.turn_s > _TURN_S:
            await asyncio.sleep(0)
            now_s = loop.time()
        if connection.turn_s is None:
            connection.turn_s = now_s
            # Called in the loop's next turn, whatever this task waits for until then. Time alone does not tell whether
            # there was one: receiving a large frame takes longer.
            loop.call_soon(connection.end_turn)
        return frame

    @staticmethod
    async def _mute(connection: _Connection, seconds: float) -> None:
        connection.is_muted = True
        await asyncio.sleep(seconds)
        connection.is_muted = False

    def _sweep(self) -> None:
        """Close connections that made no progress for too long, and those whose peers no longer wait."""
        loop = asyncio.get_running_loop()
        now, idle_ms = loop.time(), self.limits.idle_ms
        stall_ms = min(STALL_MS, idle_ms)
        for peer in list(self._connections):
            limit_ms = stall_ms if peer.incoming.begun else idle_ms
            if peer.busy:
                peer.idle_since = now
                if peer.stream.is_abandoned and peer.task is not None:
                    self.complaints.line(log, peer.host, "abandoned requests", "%s: disconnected during its request",
                                         peer.stream.peer, level=logging.INFO)  # fmt: skip
                    peer.task.cancel()
            elif peer.is_muted and peer.stream.is_abandoned and peer.task is not None:
                peer.task.cancel()
            elif peer.moved != peer.stream.moved:
                peer.moved, peer.idle_since = peer.stream.moved, now
            elif (now - peer.idle_since) * 1000 >= limit_ms:
                self.complaints.line(log, peer.host, "idle connections", "%s: closed after %d ms without "
                                     "traffic", peer.stream.peer, limit_ms, level=logging.INFO)  # fmt: skip
                peer.stream.close()
                if peer.is_muted and peer.task is not None:
                    peer.task.cancel()
        self.complaints.flush()
        self._sweeper = loop.call_later(max(stall_ms / 4000, 0.01), self._sweep)


async def _send(stream: Stream, answer: Answer) -> None:
    """Send a response, adjacent buffers in one call."""
    try:
        buffers: list[Buffer] = []
        for piece in answer:
            if isinstance(piece, bytes | bytearray | memoryview):
                buffers.append(piece)
            else:
                if buffers:
                    await stream.write(buffers, more=True)
                    buffers = []
                await piece.send(stream)
        if buffers:
            await stream.write(buffers)
    finally:
        discard(answer)


def discard(answer: Answer) -> None:
    """Release the resources of a response's parts."""
    for part in answer:
        if not isinstance(part, bytes | bytearray | memoryview):
            part.close()
