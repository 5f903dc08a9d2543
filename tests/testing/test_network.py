"""The simulated network: streams that behave as those of sockets do, and every way in which they fail."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from magicbyte.access.net.network import Door
from magicbyte.access.net.stream import Stream
from magicbyte.engine.errors import NetworkError
from magicbyte.testing.loop import VirtualLoop
from magicbyte.testing.network import BUFFER_BYTES, SimulatedNetwork

Serve = Callable[[Stream], Awaitable[None]]


class Net:
    """Two hosts, one of which serves each connection by `serve`."""

    def __init__(self, serve: Serve, seed: int = 1) -> None:
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(self.loop, Random(seed))
        self.here, self.there = self.network.host("here"), self.network.host("there")
        self._serve, self._tasks = serve, list[asyncio.Task[None]]()

    async def listen(self) -> None:
        await self.there.listen("there", 9092, Door(self._take, lambda: 0, print))

    def _take(self, stream: Stream, _host: str) -> None:
        async def serve() -> None:
            await self._serve(stream)

        self._tasks.append(asyncio.get_running_loop().create_task(serve()))

    async def connect(self) -> Stream:
        return await self.here.connect("there", 9092)

    def run(self, history: Callable[[Net], Awaitable[None]]) -> None:
        async def work() -> None:
            await self.listen()
            await history(self)

        self.loop.run(work())
        self.loop.shut_down()


async def echo(stream: Stream) -> None:
    """Echo all bytes until the end of the stream."""
    try:
        while data := await stream.read(1000):
            await stream.write([data])
    except NetworkError:
        pass
    finally:
        stream.close()


async def silence(stream: Stream) -> None:
    await asyncio.sleep(1000)
    stream.close()


async def read_all(stream: Stream) -> bytes:
    found = b""
    while data := await stream.read(1 << 16):
        found += data
    return found


def test_bytes_come_in_their_order_however_many_there_are() -> None:
    data = Random(2).randbytes(3 * BUFFER_BYTES + 17)

    async def takes(stream: Stream) -> None:
        await stream.write([hashlib.sha256(await read_exactly(stream, len(data))).digest()])
        stream.close()

    async def history(net: Net) -> None:
        stream = await net.connect()
        await stream.write([data[:5], memoryview(data)[5:]])
        assert await read_all(stream) == hashlib.sha256(data).digest()
        stream.close()

    Net(takes).run(history)


async def read_exactly(stream: Stream, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = await stream.read(size - len(found))
        assert data
        found += data
    return found


def test_a_writer_waits_for_a_reader_and_a_write_that_does_not_wait_returns_the_rest() -> None:
    async def history(net: Net) -> None:
        stream = await net.connect()
        (left,) = stream.write_now([bytes(BUFFER_BYTES + 10)])
        assert len(left) == 10
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(50):
                await stream.write([left])
        stream.close()

    Net(silence).run(history)


def test_bytes_sent_before_the_end_can_be_read_and_later_writes_fail() -> None:
    async def says_goodbye(stream: Stream) -> None:
        await stream.write([b"bye"])
        stream.close()

    async def history(net: Net) -> None:
        stream = await net.connect()
        assert await read_all(stream) == b"bye"
        assert stream.is_abandoned
        await stream.write([b"unread bytes"])
        await asyncio.sleep(1)
        with pytest.raises(NetworkError, match="Broken pipe"):
            await stream.write([b"nobody"])
        with pytest.raises(NetworkError, match="Connection reset by peer"):
            await stream.read(1)
        stream.close()
        with pytest.raises(NetworkError, match="the connection was closed"):
            await stream.read(1)

    Net(says_goodbye).run(history)


def test_a_listener_is_called_as_long_as_there_is_something_to_read() -> None:
    async def sends(stream: Stream) -> None:
        await stream.write([b"abcdef"])
        stream.close()

    async def history(net: Net) -> None:
        stream, found = await net.connect(), list[bytes]()
        buffer = memoryview(bytearray(1))

        def arrived() -> None:
            if stream.read_now(buffer):
                found.append(bytes(buffer))
            else:
                stream.close()

        stream.listen(arrived)
        await asyncio.sleep(1)
        assert found == [b"a", b"b", b"c", b"d", b"e", b"f"]

    Net(sends).run(history)


def test_without_a_listener_a_connection_is_refused_and_an_unknown_host_has_no_address() -> None:
    async def history(net: Net) -> None:
        with pytest.raises(NetworkError, match="there:1: Connection refused"):
            await net.here.connect("there", 1)
        with pytest.raises(NetworkError, match="nowhere:1: Name or service not known"):
            await net.here.connect("nowhere", 1)

    Net(echo).run(history)


def test_a_connection_to_a_host_that_is_cut_off_is_made_when_it_is_healed() -> None:
    async def history(net: Net) -> None:
        net.network.cut("there", "here", one_way=True)
        connecting = asyncio.create_task(net.connect())
        await asyncio.sleep(5)
        assert not connecting.done()
        net.network.heal("here", "there")
        (await connecting).close()

    Net(echo).run(history)


def test_a_reset_ends_a_connection_at_both_ends() -> None:
    ended = list[str]()

    async def waits(stream: Stream) -> None:
        try:
            await stream.read(1)
        except NetworkError as error:
            ended.append(str(error))
        stream.close()

    async def history(net: Net) -> None:
        stream = await net.connect()
        net.network.reset("here", "there")
        with pytest.raises(NetworkError, match="there:9092: Connection reset by peer"):
            await stream.read(1)
        stream.close()
        await asyncio.sleep(1)
        assert ended == ["here:49152: Connection reset by peer"]

    Net(waits).run(history)


def test_peers_of_a_host_without_power_hear_nothing_until_it_is_up_again() -> None:
    async def history(net: Net) -> None:
        stream = await net.connect()
        await stream.write([b"a"])
        assert await stream.read(1) == b"a"
        net.network.crash("there", is_process=False)
        await stream.write([b"b"])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await stream.read(1)
        net.network.start("there")
        with pytest.raises(NetworkError, match="Connection reset by peer"):
            await stream.read(1)
        stream.close()

    Net(echo).run(history)


def test_a_killed_process_leaves_a_system_that_ends_its_connections_and_refuses_new_ones() -> None:
    async def history(net: Net) -> None:
        stream = await net.connect()
        net.network.crash("there", is_process=True)
        assert await stream.read(1) == b""
        with pytest.raises(NetworkError, match="Connection refused"):
            await net.connect()
        stream.close()

    Net(echo).run(history)


def test_a_delay_holds_for_one_direction() -> None:
    async def history(net: Net) -> None:
        stream = await net.connect()
        times = []
        for delay_ms in (0, 500):
            net.network.delay("there", "here", delay_ms)
            at = net.loop.time()
            await stream.write([b"ping"])
            await read_exactly(stream, 4)
            times.append(net.loop.time() - at)
        assert times[1] - times[0] == pytest.approx(0.5, abs=0.01)
        stream.close()

    Net(echo).run(history)
