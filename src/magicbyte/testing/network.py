"""A simulated network under virtual time: hosts with names, connections between them, and faults of both.

It implements `net.network.Network` and `net.stream.Stream` without sockets: the further behaviour of system sockets
(buffers, readiness, descriptors) would have to be reproducible as well. A connection is two pipes. A pipe keeps order,
accepts what fits into the receiver's buffer, and delivers each segment after a latency from the seed. Between
partitioned hosts nothing arrives, but nothing is lost: it arrives when they are healed, as TCP would retransmit it. So
a partitioned peer is silent, and is detected only by timeouts.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from itertools import count
from random import Random
from typing import Final, NamedTuple

from magicbyte.access.net.network import Door, Listening
from magicbyte.access.net.stream import Buffer, SendableFile, Stream
from magicbyte.engine.errors import NetworkError
from magicbyte.testing.loop import VirtualLoop

BUFFER_BYTES: Final = 256 << 10
"""In flight in one direction of a connection, or unread: further writes wait."""
_PIECE_BYTES: Final = 256 << 10  # of a file per segment
_FIRST_PORT: Final = 49_152
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 8.0  # between two connection attempts without a response
_SPLIT: Final = 0.1  # fraction of segments that arrive in two pieces


class Direction(NamedTuple):
    """The direction from a host to another."""

    source: str
    target: str


class _Sign(enum.Enum):
    """A segment without bytes."""

    END = "end"
    RESET = "reset"


class _Host:
    """A host: its connections, and its listeners. `is_up`: it responds, at least with refusals."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        self.listening: dict[int, _ListeningPort] = {}
        self.streams: dict[SimulatedStream, None] = {}
        self.ports = count(_FIRST_PORT)


class SimulatedNetwork:
    """All hosts and the links between them. `random` draws latencies, within `latency_ms`."""

    def __init__(self, loop: VirtualLoop, random: Random, latency_ms: tuple[float, float] = (0.1, 1.0)) -> None:
        self.loop, self.latency_ms = loop, latency_ms
        self.changed: Callable[[], None] = lambda: None
        """Called after hosts were partitioned or healed."""
        self.bytes_moved = 0
        self._random = random
        self._context = contextvars.Context()
        self._hosts: dict[str, _Host] = {}
        self._cut: dict[Direction, None] = {}
        self._delays_ms: dict[Direction, float] = {}
        self._stalled: dict[_Pipe, None] = {}
        self._trace = hashlib.blake2b()

    def host(self, name: str) -> HostNetwork:
        """Return the network as seen by a host, which is created if needed."""
        return HostNetwork(self, self._hosts.setdefault(name, _Host(name)))

    def digest(self) -> str:
        """Return a digest of all deliveries so far, with time and receiver."""
        return self._trace.hexdigest()

    # ---- faults

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Block delivery from `one` to `other`, and also in reverse unless it is `one_way`."""
        self._cut[Direction(one, other)] = None
        if not one_way:
            self._cut[Direction(other, one)] = None
        self.changed()

    def heal(self, one: str, other: str) -> None:
        """Resume delivery between two hosts, including bytes sent meanwhile."""
        self._cut.pop(Direction(one, other), None)
        self._cut.pop(Direction(other, one), None)
        self._resume()
        self.changed()

    def heal_all(self) -> None:
        """Resume all deliveries, immediately."""
        self._cut.clear()
        self._delays_ms.clear()
        self._resume()
        self.changed()

    def delay(self, source: str, target: str, delay_ms: float) -> None:
        """Set an additional latency from `source` to `target`."""
        self._delays_ms[Direction(source, target)] = delay_ms

    def reset(self, one: str, other: str) -> None:
        """Reset all connections between two hosts: both ends get it, once it can arrive."""
        for stream in list(self._hosts[one].streams):
            if stream.remote.name == other:
                stream.outgoing.send(_Sign.RESET)
                stream.incoming.send(_Sign.RESET)

    def crash(self, name: str, *, is_process: bool) -> None:
        """Remove the connections and listeners of a host.

        If only its process ends, peers are notified; else it is silent.
        """
        host = self._hosts[name]
        for listening in list(host.listening.values()):
            listening.close()
        for stream in list(host.streams):
            stream.die(tell=is_process)
        host.is_up = is_process

    def start(self, name: str) -> None:
        """Restart a host: data for its old connections is refused."""
        self._hosts[name].is_up = True
        self._resume()

    def is_reachable(self, source: str, target: str) -> bool:
        """Return whether data from `source` arrives at `target`."""
        return self._hosts[target].is_up and Direction(source, target) not in self._cut

    # ---- for pipes and connections

    def latency_s(self, source: str, target: str) -> float:
        """Return the latency of the next segment."""
        delay_ms = self._delays_ms.get(Direction(source, target), 0.0)
        return (self._random.uniform(*self.latency_ms) + delay_ms) / 1000

    def pieces(self, data: bytes) -> Sequence[bytes]:
        """Return the segments in which a write arrives."""
        if len(data) < 2 or self._random.random() >= _SPLIT:
            return (data,)
        at = self._random.randrange(1, len(data))
        return data[:at], data[at:]

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call something at a time, outside any process."""
        self.loop.call_at(when, call, context=self._context)

    def stall(self, pipe: _Pipe) -> None:
        """Stall a pipe until its hosts are connected again."""
        self._stalled[pipe] = None

    def delivered(self, pipe: _Pipe, segment: bytes | _Sign) -> None:
        """Record a delivery."""
        self._trace.update(f"{self.loop.now_ns} {pipe.name} ".encode())
        if isinstance(segment, bytes):
            self.bytes_moved += len(segment)
            self._trace.update(segment)
        else:
            self._trace.update(segment.value.encode())

    def listener(self, host: str, port: int) -> _ListeningPort | None:
        """Return the listener at an address. Raises NetworkError for an unknown host."""
        if host not in self._hosts:
            raise NetworkError(f"{host}:{port}: Name or service not known")
        return self._hosts[host].listening.get(port)

    def join(self, source: _Host, accepting: _ListeningPort) -> SimulatedStream:
        """Return the caller's end of a new connection; the listener gets the other one."""
        here = f"{source.name}:{next(source.ports)}"
        there = f"{accepting.host.name}:{accepting.port}"
        out, back = _Pipe(self, source.name, accepting.host.name), _Pipe(self, accepting.host.name, source.name)
        out.name, back.name = f"{here}>{there}", f"{there}>{here}"
        near = SimulatedStream(self, there, source, accepting.host, out, back)
        far = SimulatedStream(self, here, accepting.host, source, back, out)
        accepting.take(far, source.name)
        return near

    def _resume(self) -> None:
        stalled, self._stalled = self._stalled, {}
        for pipe in stalled:
            pipe.resume()


class HostNetwork:
    """The network as seen by one host: a `net.network.Network`."""

    def __init__(self, network: SimulatedNetwork, host: _Host) -> None:
        self._network, self._host = network, host

    async def connect(self, host: str, port: int, *, timeout_ms: int = 10_000) -> Stream:
        """Return a connection. Raises NetworkError."""
        network, here = self._network, self._host.name
        retry_s = _FIRST_RETRY_S
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    network.listener(host, port)
                    await asyncio.sleep(network.latency_s(here, host))
                    if network.is_reachable(here, host) and network.is_reachable(host, here):
                        break
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, _LONGEST_RETRY_S)
                accepting = network.listener(host, port)
                stream = None if accepting is None else network.join(self._host, accepting)
                try:
                    await asyncio.sleep(network.latency_s(host, here))
                except BaseException:
                    if stream is not None:
                        stream.close()
                    raise
        except TimeoutError:
            raise NetworkError(f"{host}:{port}: no connection within {timeout_ms} ms") from None
        if stream is None:
            raise NetworkError(f"{host}:{port}: Connection refused")
        return stream

    async def listen(self, host: str, port: int, door: Door) -> Listening:
        """Listen at a port of this host; 0 is any free one. Raises NetworkError."""
        used = self._host.listening
        if port in used:
            raise NetworkError(f"cannot listen at {host}:{port}: Address already in use")
        accepting = _ListeningPort(self._network.loop, self._host, port or next(self._host.ports), door)
        used[accepting.port] = accepting
        return accepting


class _ListeningPort:
    """A listening port of a host."""

    def __init__(self, loop: VirtualLoop, host: _Host, port: int, door: Door) -> None:
        self.host, self._port, self._door = host, port, door
        self._loop, self._context = loop, contextvars.copy_context()

    @property
    def port(self) -> int:
        """The port."""
        return self._port

    def take(self, stream: SimulatedStream, host: str) -> None:
        """Pass a connection to the process."""
        self._loop.call_soon(self._take, stream, host, context=self._context)

    def _take(self, stream: SimulatedStream, host: str) -> None:
        if self.host.listening.get(self._port) is self:
            self._door.take(stream, host)
        else:  # connections waiting for a closed listener are refused
            stream.close()

    def close(self) -> None:
        """Stop listening."""
        if self.host.listening.get(self._port) is self:
            del self.host.listening[self._port]


class _Pipe:
    """One direction of a connection."""

    name: str
    receiver: SimulatedStream
    """Its receiving end; the sender is that of the other direction."""

    def __init__(self, network: SimulatedNetwork, source: str, target: str) -> None:
        self._network, self._source, self._target = network, source, target
        self._segments: deque[tuple[float, bytes | _Sign | int]] = deque()
        self._last = 0.0
        self._is_set = False  # whether the timer of the first segment is set

    def send(self, segment: bytes | _Sign | int) -> None:
        """Send a segment: bytes, a sign, or a number of bytes read in the other direction."""
        self._last = max(self._last, self._network.loop.time() + self._network.latency_s(self._source, self._target))
        self._segments.append((self._last, segment))
        if not self._is_set:
            self._set()

    def resume(self) -> None:
        """Continue after a stall: the sender retransmits after a while."""
        if self._segments:
            self._set(delayed=True)
        else:
            self._is_set = False

    def clear(self) -> None:
        """Drop everything in flight."""
        self._segments.clear()

    def clear_stalled(self) -> None:
        """Drop what waits for a link that is cut."""
        if not self._network.is_reachable(self._source, self._target):
            self._segments.clear()

    def _set(self, *, delayed: bool = False) -> None:
        self._is_set = True
        when = self._segments[0][0]
        if delayed:
            when = self._network.loop.time() + self._network.latency_s(self._source, self._target)
        self._network.at(when, self._arrive)

    def _arrive(self) -> None:
        network = self._network
        if not network.is_reachable(self._source, self._target):
            network.stall(self)
            return
        now = network.loop.time()
        while self._segments and self._segments[0][0] <= now:
            _, segment = self._segments.popleft()
            if isinstance(segment, int):
                self.receiver.sent_was_read(segment)
            else:
                network.delivered(self, segment)
                self.receiver.arrived(segment)
        self._is_set = False
        if self._segments:
            self._set()


class SimulatedStream:
    """One end of a connection: a `net.stream.Stream`."""

    def __init__(
        self,
        network: SimulatedNetwork,
        peer: str,
        local: _Host,
        remote: _Host,
        outgoing: _Pipe,
        incoming: _Pipe,
    ) -> None:
        self.peer, self.moved = peer, 0
        self.is_closed = False
        self.remote = remote
        self.outgoing, self.incoming = outgoing, incoming
        incoming.receiver = self
        self._network, self._loop, self._local = network, network.loop, local
        self._unread = bytearray()
        self._read_since = 0  # bytes read that have not been reported to the sender
        self._room = BUFFER_BYTES
        self._is_at_end = self._is_reset = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._listener: tuple[Callable[[], None], contextvars.Context] | None = None
        self._is_called = False
        local.streams[self] = None

    # ---- the interface of `Stream`

    @property
    def is_abandoned(self) -> bool:
        """Return whether the peer has ended its direction; bytes before the end are not read."""
        return not self._unread and self._is_readable

    async def read(self, size: int) -> bytes:
        """Return the bytes that have arrived, at least one and at most `size`; b"" at the end of the stream."""
        buffer = bytearray(size)
        count = await self.read_into(memoryview(buffer))
        return bytes(buffer[:count])

    async def read_into(self, buffer: memoryview) -> int:
        """Fill the start of `buffer` with arrived bytes; return their number, 0 at the end of the stream."""
        while (count := self.read_now(buffer)) is None:
            assert self._reader is None, "one reader at a time"
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return count

    def read_now(self, buffer: memoryview) -> int | None:
        """Read as `read_into` does, or return None if nothing has arrived."""
        self._check_open()
        count = min(len(self._unread), len(buffer))
        if not count:
            if self._is_reset:
                raise self._lost("Connection reset by peer")
            return 0 if self._is_at_end else None
        buffer[:count] = memoryview(self._unread)[:count]
        del self._unread[:count]
        self.moved += count
        self._read_since += count
        if self._read_since >= BUFFER_BYTES // 2:
            self.outgoing.send(self._read_since)
            self._read_since = 0
        return count

    def listen(self, arrived: Callable[[], None]) -> None:
        """Call `arrived` whenever there is something to read, instead of waiting in `read`."""
        assert self._reader is None, "no task is reading"
        self._listener = arrived, contextvars.copy_context()
        self._tell_reader()

    async def write(self, buffers: Sequence[Buffer], *, more: bool = False) -> None:
        """Send all of `buffers`, one after the other."""
        while buffers := self.write_now(buffers, more=more):
            assert self._writer is None, "one writer at a time"
            self._writer = self._loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    def write_now(self, buffers: Sequence[Buffer], *, more: bool = False) -> Sequence[Buffer]:
        """Send as much of `buffers` as fits without waiting; return the rest."""
        del more  # there are no packets to fill
        self._check_open()
        if self._is_reset:
            raise self._lost("Broken pipe")
        data = b"".join(buffers)
        now = data[: self._room]
        if now:
            self._room -= len(now)
            self.moved += len(now)
            for piece in self._network.pieces(now):
                self.outgoing.send(piece)
        return [memoryview(data)[len(now) :]] if len(now) < len(data) else []

    async def send_file(self, file: SendableFile, position: int, count: int, executor: Executor | None = None) -> None:
        """Send `count` bytes of `file` from `position` on. Raises NetworkError also if the file ends earlier."""
        del executor  # the file is in memory
        end = position + count
        while position < end:
            piece = file.read_at(position, min(end - position, _PIECE_BYTES))
            if not piece:
                raise self._lost(f"the file to send has {end - position} bytes less than promised")
            await self.write([piece])
            position += len(piece)

    async def aclose(self) -> None:
        """Close the connection, as `close` does."""
        self.close()

    def close(self) -> None:
        """Close the connection in any state. A waiting reader or writer gets a NetworkError."""
        if not self.is_closed:
            self._end(_Sign.RESET if self._unread else _Sign.END)

    def abort(self) -> None:
        """Reset the connection: close it and drop the bytes that could not be sent because the link is cut."""
        if not self.is_closed:
            self.outgoing.clear_stalled()
            self._end(_Sign.RESET)

    # ---- for the network

    def arrived(self, segment: bytes | _Sign) -> None:
        """Handle an arrived segment."""
        if self.is_closed:
            if segment is not _Sign.RESET:  # no process could read it
                self.outgoing.send(_Sign.RESET)
            return
        if isinstance(segment, bytes):
            self._unread += segment
        elif segment is _Sign.END:
            self._is_at_end = True
        else:
            self._is_reset = True
            self._local.streams.pop(self, None)
            self._tell_writer()
        self._tell_reader()

    def sent_was_read(self, count: int) -> None:
        """Free that many bytes of the send window."""
        self._room += count
        self._tell_writer()

    def die(self, *, tell: bool) -> None:
        """End with the process; `tell` the peer, as a surviving operating system does."""
        if not self.is_closed:
            self._end((_Sign.RESET if self._unread else _Sign.END) if tell else None)
            if not tell:
                self.outgoing.clear()

    def _end(self, sign: _Sign | None) -> None:
        self.is_closed = True
        self._local.streams.pop(self, None)
        if sign is not None and not self._is_reset:
            self.outgoing.send(sign)
        for waiting in (self._reader, self._writer):
            if waiting is not None and not waiting.done():
                waiting.set_exception(self._lost("the connection was closed"))

    # ---- waiting tasks

    @property
    def _is_readable(self) -> bool:
        return bool(self._unread) or self._is_at_end or self._is_reset

    def _tell_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
        if self._listener is not None and not self._is_called and self._is_readable:
            self._is_called = True
            self._loop.call_soon(self._call_listener, context=self._listener[1])

    def _call_listener(self) -> None:
        self._is_called = False
        if self._listener is not None and not self.is_closed and self._is_readable:
            self._listener[0]()
            self._tell_reader()

    def _tell_writer(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def _check_open(self) -> None:
        if self.is_closed:
            raise self._lost("the connection was closed")

    def _lost(self, why: str) -> NetworkError:
        return NetworkError(f"{self.peer}: {why}")
