"""HTTP by urllib with a deadline for the whole response: urllib's own timeout restarts with every byte."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from magicbyte.access.clock import SystemClock
from magicbyte.engine.addresses import port_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CLOCK: Final = SystemClock()


def timed_handlers(seconds: float, context: ssl.SSLContext | None = None) -> tuple[urllib.request.BaseHandler, ...]:
    """Return handlers of http: and https: URLs. Each of their responses ends, or raises TimeoutError, in `seconds`.

    They begin when the connection is made. The time to connect has the opener's own timeout.
    """
    return _Http(seconds), _Https(seconds, context)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._connection = _timed(http.client.HTTPConnection, seconds)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, seconds: float, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._connection = _timed(http.client.HTTPSConnection, seconds)
        self._trusted = context or ssl.create_default_context()

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req, context=self._trusted)


def _timed(kind: type[http.client.HTTPConnection], seconds: float) -> type[http.client.HTTPConnection]:
    """Return a class of connections whose responses, those of a proxy as well, have one deadline."""

    class TimedConnection(kind):  # type: ignore[misc, valid-type]  # one of two classes
        def connect(self) -> None:
            deadline_ms = _CLOCK.monotonic_ms() + round(seconds * 1000)
            self.response_class = partial(_Response, deadline_ms=deadline_ms)
            port_of(self.port, f"{self.host}:{self.port}")
            super().connect()

    return TimedConnection


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *given: Any, deadline_ms: int, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        raw = self.fp.detach()  # it keeps the socket open after the connection has let it go
        self.fp = io.BufferedReader(_TimedReads(raw, sock, deadline_ms))


class _TimedReads(io.RawIOBase):
    """Reads of a socket, each with the time that is left."""

    def __init__(self, raw: io.RawIOBase, connected: socket.socket, deadline_ms: int) -> None:
        self._raw, self._socket, self._deadline_ms = raw, connected, deadline_ms

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        left_ms = self._deadline_ms - _CLOCK.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError("the response is not complete in time")
        self._socket.settimeout(left_ms / 1000)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
