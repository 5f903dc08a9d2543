"""The network of this machine, or a simulated one (`testing/network.py`), as an interface.

Servers and clients get streams from a `Network`, and do not know which one it is.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from magicbyte.access.net.descriptors import OUT_OF_DESCRIPTORS, lowest_free
from magicbyte.access.net.listening import listening_sockets
from magicbyte.access.net.stream import SocketStream, Stream

_BACKLOG: Final = 1024
_ACCEPTS: Final = 64  # connections accepted at once, so that existing ones are served meanwhile
_LEAST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 1.0
"""Seconds before a retry after a lack of descriptors: short at first, as most that waited may have ended."""


class Door(NamedTuple):
    """A server's callbacks for accepting connections.

    `take` is called with each connection and its peer's host, and returns for how many seconds to accept no more.
    `descriptors` returns the bound on descriptor numbers of connections. `full` is called with the reason why accepting
    is paused.
    """

    take: Callable[[Stream, str], float]
    descriptors: Callable[[], int]
    full: Callable[[str], None]


class Listening(Protocol):
    """A listening address."""

    @property
    def port(self) -> int:
        """The port."""

    def close(self) -> None:
        """Stop listening."""


class Network(Protocol):
    """A network as one of its hosts sees it."""

    async def connect(self, host: str, port: int, *, timeout_ms: int = 10_000) -> Stream:
        """Return a connection. Raises NetworkError."""

    async def listen(self, host: str, port: int, door: Door) -> Listening:
        """Listen at the first address of `host` ("" is any); port 0 is any free one. Raises NetworkError."""


class SocketNetwork:
    """The network of this machine, through sockets."""

    async def connect(self, host: str, port: int, *, timeout_ms: int = 10_000) -> Stream:
        """Return a connection to the first address of `host` that accepts it. Raises NetworkError."""
        return await SocketStream.connect(host, port, timeout_ms=timeout_ms)

    async def listen(self, host: str, port: int, door: Door) -> Listening:
        """Listen at the first address of `host` ("" is any); port 0 is any free one. Raises NetworkError."""
        (listening,) = await listening_sockets(host, port, backlog=_BACKLOG, first_only=True)
        return _Accepting(listening, door)


class _Accepting:
    """A listening socket."""

    def __init__(self, listening: socket.socket, door: Door) -> None:
        self._socket, self._door = listening, door
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._pause_s = _LEAST_PAUSE_S
        self._loop.add_reader(listening, self._accept)

    @property
    def port(self) -> int:
        """The port."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        self._is_closed = True
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                connected, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                self._lack(error.strerror or str(error))
                return
            number = connected.fileno()
            if wait_s := self._door.take(SocketStream(connected), str(address[0])):
                self._pause(wait_s)
                return
            if number >= self._door.descriptors() - 1:  # the system assigns the lowest: all below are in use
                self._lack("the descriptors that are left are for files")
                return

    def _lack(self, why: str) -> None:
        self._door.full(why)
        self._pause(self._pause_s)

    def _pause(self, seconds: float) -> None:
        """Accept no connections for a while: new ones wait in the system's queue."""
        self._loop.remove_reader(self._socket)
        self._loop.call_later(seconds, self._accept_again)

    def _accept_again(self) -> None:
        if self._is_closed:
            return
        if lowest_free(self._socket.fileno()) >= self._door.descriptors():
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._loop.call_later(self._pause_s, self._accept_again)
        else:
            self._pause_s = _LEAST_PAUSE_S
            self._loop.add_reader(self._socket, self._accept)
