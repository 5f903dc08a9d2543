"""One connection: bytes in and out of a raw socket on the event loop, and files sent from disk to the socket.

`Stream` is the interface. `SocketStream` is a connection of this machine; `testing/network.py` has simulated ones.

There are no buffers in either direction: unread bytes stay in the system, and a write ends when the system has all of
it, so that a slow peer slows down the sender. The caller sets timeouts, with `asyncio.timeout`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from itertools import islice
from typing import Any, Final, Protocol, Self, TypeAlias

from magicbyte.engine.addresses import port_of
from magicbyte.engine.errors import NetworkError

Buffer: TypeAlias = bytes | bytearray | memoryview

MOST_BUFFERS: Final = 64  # per call of `sendmsg`; every system accepts that many
SENDFILE_BYTES: Final = 1 << 20  # per call of `sendfile`, so that other connections are served meanwhile
_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)  # the system may wait to fill the packet
_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)  # Linux: fail instead of reading the disk
_RESET: Final = struct.pack("HH" if sys.platform == "win32" else "ii", 1, 0)  # SO_LINGER: on, 0 seconds
_WINDOW_BYTES: Final = 128 << 10  # Linux's read-ahead
_COPIED_BYTES: Final = 1 << 18  # read from a file at once without `sendfile`


class SendableFile(Protocol):
    """An open file, of this machine or simulated."""

    def fileno(self) -> int | None:
        """Return the descriptor, or None if there is none: then the bytes are read and written."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`; fewer only at the end of the file."""


class Stream(Protocol):
    """An open connection. One reader and one writer at a time, which may be different tasks.

    Every call raises NetworkError if the peer is gone. A cancelled `write` or `send_file` may have sent a part: then
    only `aclose` is allowed.
    """

    peer: str
    """The peer's name, for messages."""

    @property
    def moved(self) -> int:
        """Bytes in both directions, to detect progress."""

    @property
    def is_closed(self) -> bool:
        """Whether `aclose` was called."""

    @property
    def is_abandoned(self) -> bool:
        """Return whether the peer has ended its direction, as far as the system knows; bytes before the end are not
        read.
        """

    async def read(self, size: int) -> bytes:
        """Return the bytes that have arrived, at least one and at most `size`; b"" at the end of the stream."""

    async def read_into(self, buffer: memoryview) -> int:
        """Fill the start of `buffer` with arrived bytes; return their number, 0 at the end of the stream."""

    def read_now(self, buffer: memoryview) -> int | None:
        """Read as `read_into` does, or return None if nothing has arrived."""

    def listen(self, arrived: Callable[[], None]) -> None:
        """Call `arrived` whenever there is something to read, instead of waiting in `read`."""

    async def write(self, buffers: Sequence[Buffer], *, more: bool = False) -> None:
        """Send all of `buffers`, one after the other, without joining them.

        `more`: further bytes follow immediately.
        """

    def write_now(self, buffers: Sequence[Buffer], *, more: bool = False) -> Sequence[Buffer]:
        """Send as much of `buffers` as the system accepts without waiting; return the rest."""

    async def send_file(self, file: SendableFile, position: int, count: int, executor: Executor | None = None) -> None:
        """Send `count` bytes of `file` from `position` on. Raises NetworkError also if the file ends earlier.

        Threads of `executor`, if given, wait for the disk.
        """

    async def aclose(self) -> None:
        """Close the connection, as `close` does."""

    def close(self) -> None:
        """Close the connection in any state. A waiting reader or writer gets a NetworkError."""

    def abort(self) -> None:
        """Reset the connection: close it and drop the bytes that the system has not sent yet."""


class SocketStream:
    """A `Stream` over a connected socket."""

    __slots__ = ("_loop", "_reader", "_reading", "_received", "_socket", "_wanted", "_writer", "moved", "peer")

    def __init__(self, connected: socket.socket) -> None:
        """Take over a connected socket, on the loop that runs."""
        connected.setblocking(False)
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._loop = asyncio.get_running_loop()  # is given descriptors: of a socket it would format the name each time
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._reading = False
        self._wanted = 0  # bytes that the waiting `read` takes
        self._received: bytes | None = None  # for the next read
        self.moved = 0
        self.peer = _name(connected)

    @classmethod
    async def connect(cls, host: str, port: int, *, timeout_ms: int = 10_000) -> Self:
        """Return a connection to the first address of `host` that accepts it."""
        name, loop = _join(host, port), asyncio.get_running_loop()
        reason: OSError = OSError("no address")
        try:
            port_of(port, name)  # a broker may return any
            async with asyncio.timeout(timeout_ms / 1000):
                for family, kind, number, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                    try:
                        attempt = socket.socket(family, kind, number)
                    except OSError as error:  # out of descriptors, or the system does not have this family
                        reason = error
                        continue
                    try:
                        attempt.setblocking(False)
                        await loop.sock_connect(attempt, address)
                        return cls(attempt)
                    except OSError as error:
                        attempt.close()
                        reason = error
                    except asyncio.CancelledError:
                        attempt.close()
                        raise
        except TimeoutError:
            raise NetworkError(f"{name}: no connection within {timeout_ms} ms") from None
        except socket.gaierror as error:
            raise NetworkError(f"{name}: {error.strerror}") from None
        except (UnicodeError, OverflowError, ValueError) as error:  # an invalid host or port
            raise NetworkError(f"{name}: no address: {error}") from None
        except OSError as error:  # of the resolver
            raise NetworkError(f"{name}: {error.strerror or error}") from None
        raise NetworkError(f"{name}: {reason.strerror or reason}") from None

    @property
    def is_closed(self) -> bool:
        """Whether `aclose` was called."""
        return self._socket.fileno() < 0

    @property
    def is_abandoned(self) -> bool:
        """Return whether the peer has ended its direction, as far as the system knows; bytes before the end are not
        read.
        """
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    async def read(self, size: int) -> bytes:
        """Return the bytes that have arrived, at least one and at most `size`; b"" at the end of the stream."""
        while self._received is None:
            try:
                data = self._socket.recv(size)
                self.moved += len(data)
                return data
            except (BlockingIOError, InterruptedError):
                await self._readable(size)
            except OSError as error:
                raise self._lost(error) from None
        return self._taken(size)

    async def read_into(self, buffer: memoryview) -> int:
        """Fill the start of `buffer` with arrived bytes; return their number, 0 at the end of the stream."""
        while (count := self.read_now(buffer)) is None:
            await self._readable()
        return count

    def read_now(self, buffer: memoryview) -> int | None:
        """Read as `read_into` does, or return None if nothing has arrived."""
        if self._received is not None:
            data = self._taken(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        try:
            count = self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise self._lost(error) from None
        self.moved += count
        return count

    def listen(self, arrived: Callable[[], None]) -> None:
        """Call `arrived` whenever there is something to read, instead of waiting in `read`."""
        assert self._reader is None, "no task is reading"
        assert self._received is None, "a cancelled read was not repeated"
        self._loop.add_reader(self._socket.fileno(), arrived)
        self._reading = True

    async def write(self, buffers: Sequence[Buffer], *, more: bool = False) -> None:
        """Send all of `buffers`, one after the other, without joining them.

        `more`: further bytes follow immediately.
        """
        while buffers := self.write_now(buffers, more=more):
            await self._writable()

    def write_now(self, buffers: Sequence[Buffer], *, more: bool = False) -> Sequence[Buffer]:
        """Send as much of `buffers` as the system accepts without waiting; return the rest."""
        waiting, flags = deque(buffers), _MORE if more else 0
        while waiting:
            try:
                sent = self._send(waiting, flags)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                raise self._lost(error) from None
            self.moved += sent
            while waiting and sent >= (size := _size(waiting[0])):
                sent -= size
                waiting.popleft()
            if sent:
                waiting[0] = memoryview(waiting[0]).cast("B")[sent:]
        return waiting

    async def send_file(self, file: SendableFile, position: int, count: int, executor: Executor | None = None) -> None:
        """Send `count` bytes of `file` from `position` on; with `sendfile` they never enter this process (zero-copy).

        Bytes that are not in the page cache are read into it by a thread first, of `executor` if given, so that the
        disk blocks this connection alone. Raises NetworkError also if the file ends earlier, because those bytes were
        promised to the peer.
        """
        end, descriptor = position + count, file.fileno()
        if descriptor is None or not hasattr(os, "sendfile"):
            await self._copy_file(file, position, end, executor)
            return
        warm = position
        while position < end:
            # Checked once per SENDFILE_BYTES, not per call: a socket accepts less than that at a time, and the pages
            # usually stay cached meanwhile. If they do not, `sendfile` blocks the loop for one read.
            if position >= warm:
                warm = min(position + SENDFILE_BYTES, end)
                if not is_cached(descriptor, position, warm):
                    await self._loop.run_in_executor(executor, _read_ahead, descriptor, position, warm)
            try:
                sent = os.sendfile(self._socket.fileno(), descriptor, position, warm - position)
            except (BlockingIOError, InterruptedError):
                await self._writable()
                continue
            except OSError as error:
                raise self._lost(error) from None
            if not sent:
                raise self._short(end - position)
            position += sent
            self.moved += sent
            # A fast peer keeps the socket writable. Without this, its connection could hold the loop for a whole
            # segment.
            if position < end:
                await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Close the connection, as `close` does."""
        self.close()

    def close(self) -> None:
        """Close the connection in any state. A waiting reader or writer gets a NetworkError."""
        if self.is_closed:
            return
        with contextlib.suppress(OSError):  # a peer that is gone already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._close()

    def abort(self) -> None:
        """Reset the connection: close it and drop the bytes that the system has not sent yet.

        After `close` the system retransmits them for minutes, and may deliver them after those of a later connection.
        """
        if self.is_closed:
            return
        if self._socket.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._close()

    def _close(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._socket.fileno())
        if self._writer is not None:
            self._loop.remove_writer(self._socket.fileno())
        self._received = None
        for waiting in (self._reader, self._writer):
            if waiting is not None and not waiting.done():
                waiting.set_exception(NetworkError(f"{self.peer}: the connection was closed"))
        self._socket.close()

    def _send(self, waiting: deque[Buffer], flags: int) -> int:
        if len(waiting) == 1 or not hasattr(self._socket, "sendmsg"):
            return self._socket.send(waiting[0], flags)
        return self._socket.sendmsg(islice(waiting, MOST_BUFFERS), [], flags)

    async def _copy_file(self, file: SendableFile, position: int, end: int, executor: Executor | None) -> None:
        while position < end:
            size = min(end - position, _COPIED_BYTES)
            piece = await self._loop.run_in_executor(executor, file.read_at, position, size)
            if not piece:
                raise self._short(end - position)
            await self.write([piece])
            position += len(piece)

    def _taken(self, size: int) -> bytes:
        """Return received bytes, at most `size`."""
        data, self._received = self._received, None
        assert data is not None, "the caller has looked"
        if len(data) > size:
            data, self._received = data[:size], data[size:]
        return data

    async def _readable(self, wanted: int = 0) -> None:
        """Wait until there is something to read; up to `wanted` bytes of it are received at once."""
        # The socket stays registered with the loop between reads, which saves two system calls per read; bytes that
        # arrive without a waiting reader deregister it.
        assert self._reader is None, "one reader at a time"
        self._reader, self._wanted = self._loop.create_future(), wanted
        if not self._reading:
            self._loop.add_reader(self._socket.fileno(), self._on_readable)
            self._reading = True
        try:
            await self._reader
        finally:
            self._reader = None

    def _on_readable(self) -> None:
        if self._reader is None:
            self._loop.remove_reader(self._socket.fileno())
            self._reading = False
        elif not self._reader.done():
            # The task runs in the loop's next turn only, which asks the system about the socket again before. Bytes
            # that are still there would deregister it while the task handles them, or wake its next wait for nothing.
            if self._wanted:
                try:
                    self._received = self._socket.recv(self._wanted)
                except (BlockingIOError, InterruptedError):
                    return
                except OSError as error:
                    self._reader.set_exception(self._lost(error))
                    return
                self.moved += len(self._received)
            self._reader.set_result(None)

    async def _writable(self) -> None:
        assert self._writer is None, "one writer at a time"
        self._writer = self._loop.create_future()
        self._loop.add_writer(self._socket.fileno(), _wake, self._writer)
        try:
            await self._writer
        finally:
            self._writer = None
            if not self.is_closed:
                self._loop.remove_writer(self._socket.fileno())

    def _lost(self, error: OSError) -> NetworkError:
        return NetworkError(f"{self.peer}: {'the connection was closed' if self.is_closed else error.strerror}")

    def _short(self, missing: int) -> NetworkError:
        return NetworkError(f"{self.peer}: the file to send has {missing} bytes less than promised")


def is_cached(descriptor: int, position: int, end: int) -> bool:
    """Return whether bytes of a file are in the page cache, judged by one byte of each read-ahead window.

    If the system cannot tell, they count as cached.
    """
    if _NOWAIT is None:
        return True
    byte = bytearray(1)
    try:
        for at in (*range(position, end, _WINDOW_BYTES), end - 1):
            os.preadv(descriptor, [byte], at, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such reads
        return True
    return True


def read_cached(descriptor: int, position: int, buffer: memoryview) -> int:
    """Read bytes of a file that are in the page cache into the start of `buffer`; return how many, 0 if none are.

    0 as well if the file ends there, or if the system cannot tell.
    """
    if _NOWAIT is None:
        return 0
    try:
        return os.preadv(descriptor, [buffer], position, _NOWAIT)
    except OSError:
        return 0


def _read_ahead(descriptor: int, position: int, end: int) -> None:
    """Read bytes of a file into the page cache."""
    piece = bytearray(min(end - position, _COPIED_BYTES))
    while position < end and (count := os.preadv(descriptor, [memoryview(piece)[: end - position]], position)):
        position += count


def _size(buffer: Buffer) -> int:
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _name(connected: socket.socket) -> str:
    try:
        address: Any = connected.getpeername()
    except OSError:  # closed before it was taken over
        return "a peer that is gone"
    return _join(*address[:2]) if isinstance(address, tuple) else address or "a local peer"


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
