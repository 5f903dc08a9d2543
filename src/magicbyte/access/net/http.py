"""A minimal HTTP server for monitoring pages: GET and HEAD, one response per connection."""

from __future__ import annotations

import asyncio
import hmac
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

from magicbyte.access.net.descriptors import MOST_FOR_PAGES, OUT_OF_DESCRIPTORS
from magicbyte.access.net.listening import listening_sockets
from magicbyte.access.net.stream import SocketStream, Stream
from magicbyte.access.net.tls import TlsStream
from magicbyte.engine.errors import NetworkError, SecurityError
from magicbyte.engine.printable import logger

log = logger(__name__)

_MOST_HEAD_BYTES: Final = 16 << 10
_END: Final = b"\r\n\r\n"
_PATIENCE_S: Final = 10.0  # to produce and send a response
_REQUEST_S: Final = 2.0  # to receive a request, from the start of the connection
_BACKLOG: Final = 100
_PAUSE_S: Final = 1.0  # before a retry after a lack of descriptors


class Answer(NamedTuple):
    """The content of a page."""

    content_type: str
    body: bytes
    status: int = HTTPStatus.OK


Page: TypeAlias = Callable[[str], Awaitable[Answer]]
"""Called with the request's Accept header, "" without one."""


class Pages:
    """Serve pages by path. Requests are bounded in size, number and time.

    With `connections` open, the one that was idle longest is closed, so that idle connections cannot block the pages.
    Further ones wait in the system's queue meanwhile, without a descriptor.
    """

    def __init__(
        self,
        pages: Mapping[str, Page],
        connections: int = MOST_FOR_PAGES,
        *,
        token: str | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Serve `pages`, over TLS with a `context`. `token`: the bearer token that requests must have, if any."""
        self._pages, self._credentials = pages, None if token is None else f"bearer {token}".encode()
        self._context = context
        self._most = connections
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._open = set[asyncio.Task[None]]()
        self._silent = dict[asyncio.Task[None], None]()  # those without a request so far, the oldest first

    async def listen(self, host: str, port: int) -> int:
        """Listen at all addresses of `host` ("" is any); port 0 is any free one. Return the first address's port."""
        loop = asyncio.get_running_loop()
        for listening in await listening_sockets(host, port, backlog=_BACKLOG, first_only=False):
            self._listening.append(listening)
            accepting = loop.create_task(self._accept(listening))
            accepting.add_done_callback(_complain)
            self._accepting.append(accepting)
        return int(self._listening[0].getsockname()[1])

    async def aclose(self) -> None:
        """Stop listening, and cancel open connections."""
        tasks = [*self._accepting, *self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self._listening:
            each.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, _ = await loop.sock_accept(listening)
                stream = SocketStream(connected)
            except OSError as error:
                log.debug("a request for a page was not accepted: %s", error)
                await asyncio.sleep(_PAUSE_S if error.errno in OUT_OF_DESCRIPTORS else 0)
                continue
            self._take(stream)
            if len(self._open) >= self._most:
                # That is the connection just accepted if all others are being answered.
                oldest = next(iter(self._silent))
                oldest.cancel()
                await asyncio.wait({oldest})

    def _take(self, stream: Stream) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(stream))
        self._open.add(task)
        self._silent[task] = None

        def ended(task: asyncio.Task[None]) -> None:
            stream.close()
            self._open.discard(task)
            self._silent.pop(task, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("a request for a page ended because of a bug", exc_info=error)

        task.add_done_callback(ended)

    async def _serve(self, stream: Stream) -> None:
        task = asyncio.current_task()
        assert task is not None, "each connection has one"
        try:
            async with asyncio.timeout(_REQUEST_S):
                if self._context is not None:
                    stream = secured = TlsStream(stream, self._context, server_side=True)
                    await secured.handshake()
                head = await _head(stream)
            self._silent.pop(task, None)
            async with asyncio.timeout(_PATIENCE_S):
                await stream.write(await self._answer(head))
        except (NetworkError, SecurityError, TimeoutError) as error:
            log.debug("a request for a page was not answered: %s", error)
        finally:
            stream.close()

    async def _answer(self, request: bytes) -> list[bytes]:
        """Return the response to one request. Its body is not read, because no page uses one."""
        head = request.decode("latin-1").split("\r\n")
        method, path = [*head[0].split(" "), "", ""][:2]
        accept = _header(head, "accept")
        page = self._pages.get(path.partition("?")[0])
        if not self._is_allowed(_header(head, "authorization")):
            answer = _plain(HTTPStatus.UNAUTHORIZED)
        elif method not in ("GET", "HEAD"):
            answer = _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        elif page is None:
            answer = _plain(HTTPStatus.NOT_FOUND)
        else:
            answer = await page(accept)
        status = HTTPStatus(answer.status)
        challenge = "WWW-Authenticate: Bearer\r\n" if status == HTTPStatus.UNAUTHORIZED else ""
        start = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {answer.content_type}\r\n{challenge}"
            f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
        )
        return [start.encode("latin-1"), b"" if method == "HEAD" else answer.body]

    def _is_allowed(self, authorization: str) -> bool:
        """Return whether a request may have a page, by its Authorization header."""
        if self._credentials is None:
            return True
        scheme, _, token = authorization.partition(" ")
        given = f"{scheme.lower()} {token.strip()}".encode()
        return hmac.compare_digest(given, self._credentials)


def _header(head: list[str], name: str) -> str:
    """Return the value of a request's header, "" without it."""
    return next((line.partition(":")[2].strip() for line in head if line.lower().startswith(f"{name}:")), "")


async def _head(stream: Stream) -> bytes:
    """Return a request up to the end of its headers. Raises NetworkError if it is incomplete, or too long."""
    head = b""
    while _END not in head:
        data = await stream.read(_MOST_HEAD_BYTES)
        if not data or len(head) + len(data) > _MOST_HEAD_BYTES:
            raise NetworkError(f"{stream.peer}: expected a request of at most {_MOST_HEAD_BYTES} bytes")
        head += data
    return head[: head.index(_END)]


def _complain(task: asyncio.Task[None]) -> None:
    """Log an unexpected error of the accepting task: a bug."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("no further requests for pages are accepted, because of a bug", exc_info=error)


def _plain(status: HTTPStatus) -> Answer:
    return Answer("text/plain; charset=utf-8", f"{status.phrase}\n".encode(), status)
