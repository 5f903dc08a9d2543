"""A few pages over HTTP, for monitoring: GET and HEAD, an answer, and the connection is closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

from magicbyte.errors import NetworkError

log = logging.getLogger(__name__)

_MOST_HEAD_BYTES: Final = 16 << 10
_MOST_CONNECTIONS: Final = 64
_PATIENCE_S: Final = 10.0  # for an answer to be made and taken
_REQUEST_S: Final = 2.0  # for a request to come, from when the connection was made
_GONE = (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


class Answer(NamedTuple):
    """What a page says."""

    content_type: str
    body: bytes
    status: int = HTTPStatus.OK


Page: TypeAlias = Callable[[str], Awaitable[Answer]]
"""Is given the request's Accept header, "" without one."""


class Pages:
    """Serves pages by their paths. Requests are bounded in size, number and time.

    Where there are too many connections, the one that has been silent for longest gives way: those that only connect
    keep nobody from asking.
    """

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open = set[asyncio.Task[None]]()
        self._silent = dict[asyncio.Task[None], None]()  # those whose request has not come yet, the oldest first

    async def listen(self, host: str, port: int) -> int:
        """Take requests at `host` ("" is any); port 0 is any free one. Return the port. Raises NetworkError."""
        try:
            self._server = await asyncio.start_server(self._take, host or None, port, limit=_MOST_HEAD_BYTES)
        except OSError as error:
            raise NetworkError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
        return int(self._server.sockets[0].getsockname()[1])

    async def aclose(self) -> None:
        """Take no more requests, and give up those that are there."""
        if self._server is not None:
            self._server.close()
            for task in list(self._open):
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            await self._server.wait_closed()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "each connection has one"
        self._open.add(task)
        self._silent[task] = None
        if len(self._open) > _MOST_CONNECTIONS:  # `task` itself where all others have been asked something
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.cancel()
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
            self._silent.pop(task, None)
            async with asyncio.timeout(_PATIENCE_S):
                await self._answer(head, writer)
        except _GONE as error:
            log.debug("a request for a page was not answered: %s", error)
        finally:
            self._silent.pop(task, None)
            self._open.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        """Answer one request. What stands behind its headers is not read: no page wants a body."""
        head = request.decode("latin-1").split("\r\n")
        method, path = [*head[0].split(" "), "", ""][:2]
        accept = next((line.partition(":")[2].strip() for line in head if line.lower().startswith("accept:")), "")
        page = self._pages.get(path.partition("?")[0])
        if method not in ("GET", "HEAD"):
            answer = _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        elif page is None:
            answer = _plain(HTTPStatus.NOT_FOUND)
        else:
            answer = await page(accept)
        status = HTTPStatus(answer.status)
        writer.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n".encode("latin-1")
        )
        writer.write(b"" if method == "HEAD" else answer.body)
        await writer.drain()


def _plain(status: HTTPStatus) -> Answer:
    return Answer("text/plain; charset=utf-8", f"{status.phrase}\n".encode(), status)
