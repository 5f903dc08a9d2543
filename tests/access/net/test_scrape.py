"""Pages of numbers, asked for as they are, and with an authority, a certificate or a token."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from builders import run
from magicbyte.access.net.scrape import PageAccess, scrape
from magicbyte.engine.errors import NetworkError


def test_a_page_of_another_protocol_is_refused() -> None:
    with pytest.raises(NetworkError, match="expected HOST:PORT, or a URL that begins with http"):
        run(scrape("ftp://127.0.0.1/metrics", PageAccess()))


@pytest.mark.parametrize("access", [None, PageAccess()], ids=["as it is", "with access"])
@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-server\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na 1\n", b"HTTP/1.1 503 Busy\r\n\r\n"],
    ids=["no HTTP", "cut off", "refused"],
)
async def test_a_page_that_cannot_be_had_is_named(answer: bytes, access: PageAccess | None) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(NetworkError, match=f"http://{address}/metrics: "):
            await scrape(address, access)


@pytest.mark.parametrize("access", [None, PageAccess()], ids=["as it is", "with access"])
@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n"])
async def test_a_page_that_comes_byte_by_byte_has_a_deadline_as_a_whole(
    begin: bytes, access: PageAccess | None
) -> None:
    """Each byte comes in time, and the page is complete after four seconds."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(begin)
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                writer.write(b"#")
                await writer.drain()
                await asyncio.sleep(0.02)
            writer.write(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        with pytest.raises(NetworkError, match=r"not complete in time|timed out"):
            await scrape(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", access, patience_s=0.5)
