"""Pages over HTTP: what is asked rightly, wrongly, slowly, and by too many."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import cast

import pytest

from builders import hurried, run
from magicbyte.access.net import http
from magicbyte.access.net.http import Answer, Page, Pages
from magicbyte.engine.errors import NetworkError


async def hello(accept: str) -> Answer:
    return Answer("text/plain", f"hello {accept}".encode())


async def unwell(_: str) -> Answer:
    return Answer("text/plain", b"unwell", HTTPStatus.SERVICE_UNAVAILABLE)


PAGES: Mapping[str, Page] = {"/hello": hello, "/unwell": unwell}


def asked(request: bytes, seconds: float = 0) -> bytes:
    async def work() -> bytes:
        pages = Pages(PAGES)
        reader, writer = await asyncio.open_connection("127.0.0.1", await pages.listen("127.0.0.1", 0))
        writer.write(request)
        found = await hurried(reader.read(), seconds)
        writer.close()
        await pages.aclose()
        return found

    return cast(bytes, run(work()))


@pytest.mark.parametrize(
    ("request_", "first", "last"),
    [
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nAccept: a/b\r\n\r\n", b"200 OK", b"hello a/b"),
        (b"GET /hello?name[]=x HTTP/1.0\r\n\r\n", b"200 OK", b"hello "),
        (b"HEAD /hello HTTP/1.1\r\n\r\n", b"200 OK", b"\r\n\r\n"),
        (b"GET /unwell HTTP/1.1\r\n\r\n", b"503 Service Unavailable", b"unwell"),
        (b"GET /other HTTP/1.1\r\n\r\n", b"404 Not Found", b"Not Found\n"),
        (b"POST /hello HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405 Method Not Allowed", b"Method Not Allowed\n"),
        (b"\r\n\r\n", b"405 Method Not Allowed", b"Method Not Allowed\n"),
        (b"\x00\xff\xfe\r\n\r\n", b"405 Method Not Allowed", b"Method Not Allowed\n"),
    ],
)
def test_a_request_gets_its_answer(request_: bytes, first: bytes, last: bytes) -> None:
    found = asked(request_)
    assert found.startswith(b"HTTP/1.1 " + first + b"\r\n")
    assert found.endswith(last)
    assert b"Connection: close" in found


def test_a_request_of_any_length_is_given_up() -> None:
    assert asked(b"GET /hello HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n") == b""


def test_a_request_that_does_not_come_is_given_up() -> None:
    assert asked(b"GET /hello HTTP/1.1\r\n", 4) == b""


async def test_the_connection_that_was_silent_longest_gives_way_where_there_are_too_many() -> None:
    pages = Pages(PAGES, connections=10)
    port = await pages.listen("127.0.0.1", 0)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /hello HTTP/1.1\r\n\r\n")
    assert b"200 OK" in await reader.read()
    assert [await each.read() for each, _ in silent[:20]] == [b""] * 20
    last_reader, last_writer = silent[-1]
    last_writer.write(b"GET /hello HTTP/1.1\r\n\r\n")
    assert b"200 OK" in await last_reader.read()
    for _, each in [*silent, (reader, writer)]:
        each.close()
    await pages.aclose()


async def test_a_connection_is_closed_unanswered_where_all_others_are_being_answered() -> None:
    proceed, begun = asyncio.Event(), asyncio.Event()

    async def slow(_: str) -> Answer:
        begun.set()
        await proceed.wait()
        return Answer("text/plain", b"slow")

    pages = Pages({"/slow": slow}, connections=2)
    port = await pages.listen("127.0.0.1", 0)
    one, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
    await begun.wait()
    two, other = await asyncio.open_connection("127.0.0.1", port)
    assert await two.read() == b""
    proceed.set()
    assert b"slow" in await one.read()
    writer.close()
    other.close()
    await pages.aclose()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_hundred_that_connect_at_once_take_no_more_descriptors_than_are_allowed() -> None:
    pages = Pages(PAGES, connections=5)
    port = await pages.listen("127.0.0.1", 0)
    await asyncio.sleep(0)
    before = open_descriptors()
    with contextlib.ExitStack() as opened:
        for _ in range(100):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))  # the loop stands still meanwhile
        most = 0
        for _ in range(500):
            await asyncio.sleep(0)
            most = max(most, open_descriptors() - before - 100)
    assert 1 < most <= 5
    await pages.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_peer_that_takes_nothing_of_its_answer_is_given_up() -> None:
    async def large(_: str) -> Answer:
        return Answer("text/plain", bytes(16 << 20))

    pages = Pages({"/large": large})
    port = await pages.listen("127.0.0.1", 0)
    before = open_descriptors()
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.02)
        assert open_descriptors() == before + 2

        async def given_up() -> None:
            while open_descriptors() > before + 1:
                await asyncio.sleep(0.01)

        await hurried(given_up(), 20)
    await pages.aclose()


async def test_closing_ends_requests_that_are_half_there() -> None:
    pages = Pages(PAGES)
    reader, writer = await asyncio.open_connection("127.0.0.1", await pages.listen("127.0.0.1", 0))
    writer.write(b"GET /hel")
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await pages.aclose()
    assert await reader.read() == b""
    writer.close()


async def test_an_address_that_is_taken_is_a_fault_with_its_name() -> None:
    first, second = Pages(PAGES), Pages(PAGES)
    port = await first.listen("127.0.0.1", 0)
    with pytest.raises(NetworkError, match=f"cannot listen at 127.0.0.1:{port}"):
        await second.listen("127.0.0.1", port)
    await second.aclose()
    await first.aclose()


def test_a_fault_that_ends_the_taking_of_requests_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __init__(self, _: socket.socket) -> None:
            raise RuntimeError("planted")

    async def work() -> None:
        pages = Pages(PAGES)
        port = await pages.listen("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", port)):
            async with asyncio.timeout(60):
                while not caplog.records:
                    await asyncio.sleep(0)
        await pages.aclose()

    monkeypatch.setattr(http, "SocketStream", Broken)
    asyncio.run(work())
    (record,) = caplog.records
    assert record.getMessage() == "no further requests for pages are accepted, because of a bug"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "planted"


async def test_pages_are_served_at_all_addresses_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(*_: object, **__: object) -> list[tuple[object, ...]]:
        of_nobody = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("203.0.113.7", 0))  # for documentation
        ours = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{at}", 0)) for at in (2, 1)]
        return [ours[0], of_nobody, ours[1]]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    pages = Pages(PAGES)
    await pages.listen("many", 0)
    assert [each.getsockname()[0] for each in pages._listening] == ["127.0.0.2", "127.0.0.1"]
    await pages.aclose()
