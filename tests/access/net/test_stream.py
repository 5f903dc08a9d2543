"""Bytes through a pair of connected sockets."""

import asyncio
import errno
import os
import random
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from magicbyte.access.net import stream
from magicbyte.access.net.stream import SocketStream, Stream
from magicbyte.engine.errors import NetworkError

BYTES = random.Random(7).randbytes(3 << 20)  # more than sockets hold


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Stream, Stream]]:
    here, there = (SocketStream(end) for end in socket.socketpair())
    try:
        yield here, there
    finally:
        await here.aclose()
        await there.aclose()


async def read_all(stream: Stream) -> bytes:
    found = bytearray()
    while data := await stream.read(100_000):
        found += data
    return bytes(found)


async def arrives(send: Callable[[Stream], Awaitable[None]]) -> bytes:
    async with pair() as (here, there):
        reading = asyncio.create_task(read_all(there))
        try:
            await send(here)
        finally:  # a sender that fails leaves no task behind
            await here.aclose()
            found = await reading
        return found


class File:
    """A file of the system; `descriptor` False hides that it is one."""

    def __init__(self, path: Path, *, descriptor: bool) -> None:
        self.file = path.open("rb")
        self.descriptor = descriptor

    def fileno(self) -> int | None:
        return self.file.fileno() if self.descriptor else None

    def read_at(self, position: int, length: int) -> bytes:
        return os.pread(self.file.fileno(), length, position)


def test_many_buffers_arrive_in_order_through_a_reader_that_is_slower() -> None:
    cuts = sorted(random.Random(8).sample(range(len(BYTES)), 500))
    buffers = [BYTES[start:end] for start, end in zip([0, *cuts], [*cuts, len(BYTES)], strict=True)]
    assert asyncio.run(arrives(lambda stream: stream.write([b"", *buffers, b""]))) == BYTES


@pytest.mark.parametrize("descriptor", [True, False])
def test_a_slice_of_a_file_arrives_with_sendfile_and_without(tmp_path: Path, descriptor: bool) -> None:
    (tmp_path / "file").write_bytes(BYTES)
    file = File(tmp_path / "file", descriptor=descriptor)
    with file.file:
        assert asyncio.run(arrives(lambda stream: stream.send_file(file, 1000, 2_500_000))) == BYTES[1000:2_501_000]


@pytest.mark.parametrize("descriptor", [True, False])
def test_a_file_that_is_shorter_than_promised_is_an_error(tmp_path: Path, descriptor: bool) -> None:
    (tmp_path / "file").write_bytes(b"short")
    file = File(tmp_path / "file", descriptor=descriptor)
    with file.file, pytest.raises(NetworkError, match="95 bytes less"):
        asyncio.run(arrives(lambda stream: stream.send_file(file, 0, 100)))


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system does not tell what is cached")
def test_bytes_that_are_not_cached_are_read_by_a_thread_before_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(BYTES)
    cold, readers, preadv = True, set[int](), os.preadv

    def slow(descriptor: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        if flags & os.RWF_NOWAIT and cold:
            raise BlockingIOError
        if not flags:
            readers.add(threading.get_ident())
        return preadv(descriptor, buffers, position, flags)

    monkeypatch.setattr(os, "preadv", slow)
    file = File(tmp_path / "file", descriptor=True)
    with file.file:
        assert asyncio.run(arrives(lambda stream: stream.send_file(file, 5, len(BYTES) - 5))) == BYTES[5:]
        assert readers
        assert threading.get_ident() not in readers
        readers.clear()
        cold = False
        assert asyncio.run(arrives(lambda stream: stream.send_file(file, 5, len(BYTES) - 5))) == BYTES[5:]
        assert not readers


async def test_one_task_reads_while_another_writes() -> None:
    async with pair() as (here, there):

        async def echo() -> None:
            while data := await there.read(65536):
                await there.write([data])

        echoing = asyncio.create_task(echo())
        writing = asyncio.create_task(here.write([BYTES]))
        found = bytearray()
        while len(found) < len(BYTES):
            found += await here.read(65536)
        await writing
        await here.aclose()
        await echoing
        assert found == BYTES


async def test_bytes_received_between_reads_are_kept_for_the_next_read() -> None:
    async with pair() as (here, there):
        reading = asyncio.create_task(there.read(10))
        await asyncio.sleep(0)
        await here.write([b"one"])
        assert await reading == b"one"
        await here.write([b"two"])
        for _ in range(5):
            await asyncio.sleep(0)
        target = bytearray(10)
        assert await there.read_into(memoryview(target)) == 3
        assert target[:3] == b"two"


async def test_a_read_that_is_cancelled_loses_nothing() -> None:
    async with pair() as (here, there):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await there.read(10)
        await here.write([b"later"])
        assert await there.read(10) == b"later"


@pytest.mark.parametrize("size", [2, 5, 10])
async def test_bytes_that_were_received_for_a_cancelled_read_are_kept(size: int) -> None:
    async with pair() as (here, there):
        reading = asyncio.create_task(there.read(10))
        await asyncio.sleep(0)
        await here.write([b"12345"])
        while not there.moved:
            await asyncio.sleep(0)
        reading.cancel()  # the bytes are received, and the task has not run yet
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert there.moved == 5
        found = await there.read(size)
        assert found == b"12345"[:size]
        await here.write([b"6"])
        target = bytearray(10)
        while len(found) < 6:
            found += target[: await there.read_into(memoryview(target))]
        assert found == b"123456"


async def test_bytes_that_were_received_before_the_close_are_not_read_after_it() -> None:
    async with pair() as (here, there):
        reading = asyncio.create_task(there.read(10))
        await asyncio.sleep(0)
        await here.write([b"12345"])
        while not there.moved:
            await asyncio.sleep(0)
        there.close()
        with pytest.raises(NetworkError, match="was closed"):
            await reading


async def test_closing_wakes_readers_and_writers_and_may_be_done_twice() -> None:
    async with pair() as (here, _):
        waiting = [asyncio.create_task(here.read(1)), asyncio.create_task(here.write([BYTES]))]
        await asyncio.sleep(0.01)
        await here.aclose()
        await here.aclose()
        assert [type(found) for found in await asyncio.gather(*waiting, return_exceptions=True)] == [
            NetworkError,
            NetworkError,
        ]
        with pytest.raises(NetworkError, match="closed"):
            await here.read(1)


def received(peer: socket.socket) -> tuple[int, bool]:
    """Read to the end; return how many bytes came, and whether it was a reset."""
    count = 0
    try:
        while data := peer.recv(100_000):
            count += len(data)
    except ConnectionResetError:
        return count, True
    return count, False


@pytest.mark.parametrize("is_reset", [False, True])
async def test_what_a_peer_has_not_got_yet_is_dropped_by_an_abort_and_not_by_closing(is_reset: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        here = await SocketStream.connect(*server.getsockname())
        peer, _ = server.accept()  # which does not read for now
        with peer:
            here.write_now([BYTES])
            if is_reset:
                here.abort()
                here.abort()
            else:
                here.close()
            assert here.is_closed
            count, was_reset = await asyncio.to_thread(received, peer)
            assert was_reset == is_reset
            assert (count < here.moved) == is_reset


async def test_a_peer_that_is_gone_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        here = await SocketStream.connect("127.0.0.1", port)
        there, _ = server.accept()
        there.close()
        assert await here.read(1) == b""
        with pytest.raises(NetworkError, match=f"127.0.0.1:{port}"):
            await here.write([BYTES] * 100)
        await here.aclose()
    with pytest.raises(NetworkError, match=f"127.0.0.1:{port}"):
        await SocketStream.connect("127.0.0.1", port)


@pytest.mark.parametrize("where", ["socket", "resolver"])
async def test_a_connection_without_a_descriptor_for_it_is_a_network_error(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a bug with a traceback, of which a follower would log one for each fetch."""

    def lacking(*_arguments: Any, **_named: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(*((stream.socket, "socket") if where == "socket" else (socket, "getaddrinfo")), lacking)
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1:9: Too many open files"):
        await SocketStream.connect("127.0.0.1", 9)
