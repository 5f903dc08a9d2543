"""A server of frames: order, limits, peers that break the rules, without an effect on others."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from builders import hurried, run
from magicbyte.access.net import server as module
from magicbyte.access.net.complaints import BURST
from magicbyte.access.net.descriptors import lowest_free
from magicbyte.access.net.memory import Budget
from magicbyte.access.net.server import Answer, DelayResponse, FrameLimit, PeerLimits, Server
from magicbyte.access.net.stream import SocketStream, Stream
from magicbyte.access.security.quotas import ConnectionArrival
from magicbyte.engine.errors import ProtocolError


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


async def echo(frame: memoryview) -> Answer:
    return [framed(bytes(frame))]


@asynccontextmanager
async def serving(
    handler: Callable[[memoryview], Awaitable[Answer | None]] = echo, limits: PeerLimits | None = None
) -> AsyncIterator[tuple[Server[str], int]]:
    server = Server[str](limits or PeerLimits(), lambda _host, _peer, _listener: handler)
    port = await server.listen("127.0.0.1", 0, "PLAINTEXT")
    try:
        yield server, port
    finally:
        await server.aclose(grace_ms=1000)


async def read_exactly(stream: Stream, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = await stream.read(size - len(found))
        assert data, "the server closed the connection"
        found += data
    return found


async def test_requests_that_come_together_or_in_pieces_are_answered_in_order() -> None:
    contents = [b"", b"one", b"x" * 200_000, b"two", b"y" * 70_000, b"three"]
    data = b"".join(map(framed, contents))

    async with serving() as (_, port):
        stream = await SocketStream.connect("127.0.0.1", port)
        for step in (len(data), 5, 65_536):
            sending = asyncio.create_task(_in_pieces(stream, data, step if step > 5 else 50_001))
            assert await read_exactly(stream, len(data)) == data
            await sending
        stream.close()


async def _in_pieces(stream: Stream, data: bytes, size: int) -> None:
    for at in range(0, len(data), size):
        await stream.write([data[at : at + size]])


@pytest.mark.parametrize(("size", "count"), [(4, 1000), (100_000, 12)])
async def test_a_peer_that_sends_many_requests_in_advance_does_not_keep_others_waiting(size: int, count: int) -> None:
    order = list[int]()

    async def slow(frame: memoryview) -> Answer:
        order.append(len(frame))
        time.sleep(0.2 / count)  # on the loop, as requests that need no disk
        return await echo(frame[:3])

    async with serving(slow) as (_, port):
        flooding = await SocketStream.connect("127.0.0.1", port)
        other = await SocketStream.connect("127.0.0.1", port)
        await flooding.write([framed(bytes(size)) * count])
        while not order:
            await asyncio.sleep(0)
        await other.write([framed(b"one")])
        assert await read_exactly(other, 7) == framed(b"one")
        assert len(order) < count
        await read_exactly(flooding, 7 * count)
        assert len(order) == count + 1
        flooding.close()
        other.close()


async def test_the_second_request_of_a_connection_waits_for_the_first_answer_and_those_of_others_do_not() -> None:
    gate, begun = asyncio.Event(), list[bytes]()

    async def slow(frame: memoryview) -> Answer:
        begun.append(bytes(frame))
        if bytes(frame) == b"slow":
            await gate.wait()
        return [framed(bytes(frame))]

    async with serving(slow) as (_, port):
        first, second = [await SocketStream.connect("127.0.0.1", port) for _ in range(2)]
        await first.write([framed(b"slow"), framed(b"after")])
        await second.write([framed(b"other")])
        assert await read_exactly(second, 9) == framed(b"other")
        assert b"after" not in begun
        gate.set()
        assert await read_exactly(first, 8 + 9) == framed(b"slow") + framed(b"after")
        first.close()
        second.close()


@pytest.mark.parametrize("size", [-1, 101, 0x48545450])
def test_a_size_that_no_frame_may_have_closes_the_connection_and_is_logged_with_the_peer(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(limits=PeerLimits(largest_frame=100)) as (_, port):
            stream = await SocketStream.connect("127.0.0.1", port)
            await stream.write([size.to_bytes(4, "big", signed=True)])
            assert await stream.read(1) == b""
            stream.close()

    with caplog.at_level(logging.WARNING):
        run(work())
    assert "closing 127.0.0.1:" in caplog.text
    assert f"found {size}" in caplog.text


async def test_a_peer_that_vanishes_inside_a_frame_gives_its_memory_back() -> None:
    async with serving() as (server, port):
        stream = await SocketStream.connect("127.0.0.1", port)
        await stream.write([(1 << 20).to_bytes(4, "big"), b"half"])
        while not server.budget.used:
            await asyncio.sleep(0)
        stream.close()
        while server.connections:
            await asyncio.sleep(0)
        assert server.budget.used == 0


def test_a_bug_in_a_handler_ends_one_connection_and_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(_: memoryview) -> Answer:
        raise ZeroDivisionError("ours")

    async def work() -> None:
        async with serving(broken) as (server, port):
            stream = await SocketStream.connect("127.0.0.1", port)
            await stream.write([framed(b"a")])
            assert await stream.read(1) == b""
            stream.close()
            assert server.connections == 0

    run(work())
    assert "ZeroDivisionError: ours" in caplog.text


async def test_a_connection_beyond_the_limit_is_closed_and_existing_ones_continue() -> None:
    async with serving(limits=PeerLimits(connections=1)) as (_, port):
        first = await SocketStream.connect("127.0.0.1", port)
        await first.write([framed(b"a")])
        await read_exactly(first, 5)
        second = await SocketStream.connect("127.0.0.1", port)
        assert await second.read(1) == b""
        await first.write([framed(b"b")])
        assert await read_exactly(first, 5) == framed(b"b")
        first.close()
        second.close()


async def test_of_many_connections_that_are_refused_the_latest_are_kept_and_no_timer_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_REFUSED", 2)

    def timers() -> list[asyncio.TimerHandle]:
        return [
            each
            for each in asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
            if not each.cancelled() and "_close_refused" in repr(each)
        ]

    server = Server[str](PeerLimits(), lambda *_: echo, arrived=lambda *_: ConnectionArrival(refused_ms=3_600_000))
    port = await server.listen("127.0.0.1", 0, "")
    streams = [await SocketStream.connect("127.0.0.1", port) for _ in range(5)]
    for stream in streams[:3]:
        assert await stream.read(1) == b""
    assert len(timers()) == 2
    await server.aclose()
    for stream in streams[3:]:
        assert await stream.read(1) == b""
    assert timers() == []
    for stream in streams:
        stream.close()


async def test_idle_connections_are_closed_and_one_whose_request_is_in_work_is_not() -> None:
    gate = asyncio.Event()

    async def slow(frame: memoryview) -> Answer:
        await gate.wait()
        return await echo(frame)

    async with serving(slow, PeerLimits(idle_ms=1000)) as (_, port):
        busy, idle = [await SocketStream.connect("127.0.0.1", port) for _ in range(2)]
        await busy.write([framed(b"a")])
        assert await hurried(idle.read(1), 3) == b""
        gate.set()
        assert await read_exactly(busy, 5) == framed(b"a")
        busy.close()
        idle.close()


async def test_a_request_in_work_ends_when_its_peer_is_gone() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(_: memoryview) -> Answer:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("it never ends by itself")

    async with serving(endless, PeerLimits(idle_ms=1000)) as (server, port):
        stream = await SocketStream.connect("127.0.0.1", port)
        await stream.write([framed(b"a")])
        await begun.wait()
        stream.close()
        await ended.wait()
        while server.connections:
            await asyncio.sleep(0)


async def test_a_peer_that_does_not_read_an_answer_that_was_held_is_closed() -> None:
    async def held(_frame: memoryview) -> Answer:
        return [DelayResponse(150), bytes(64 << 20)]

    async with serving(held, PeerLimits(idle_ms=100)) as (server, port):
        peer = await SocketStream.connect("127.0.0.1", port)
        await peer.write([framed(b"x")])
        while not server.connections:
            await asyncio.sleep(0)
        while server.connections:
            await asyncio.sleep(0.01)
        peer.close()


async def test_a_peer_that_stops_inside_a_frame_is_closed_before_one_that_is_idle(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STALL_MS", 50)
    caplog.set_level("INFO")

    async with serving() as (server, port):
        stalled, idle = [await SocketStream.connect("127.0.0.1", port) for _ in range(2)]
        await stalled.write([(1000).to_bytes(4, "big"), b"half"])
        assert await stalled.read(1) == b""
        assert caplog.records[0].getMessage().endswith("closed after 50 ms without traffic")
        while server.connections > 1:  # the first large frame of a process loads NumPy, which is not interrupted
            await asyncio.sleep(0.001)
        assert server.connections == 1
        idle_is_open = asyncio.create_task(idle.read(1))
        await idle.write([framed(b"x")])
        assert await idle_is_open == b"\0"
        stalled.close()
        idle.close()


async def test_requests_wait_while_others_hold_all_the_memory_first_come_first_served() -> None:
    budget, order = Budget(10), list[str]()

    async def take(name: str, size: int) -> None:
        await budget.take(size)
        order.append(name)

    await take("first", 25)  # beyond the limit, as it is alone
    waiting = [asyncio.create_task(take(name, 8)) for name in ("second", "third", "fourth", "fifth")]
    await asyncio.sleep(0)
    assert order == ["first"]
    waiting[1].cancel()
    budget.give(25)
    await waiting[2]
    assert (order, budget.used) == (["first", "second", "fourth"], 16)
    budget.give(8)
    await waiting[3]
    assert (order, budget.used) == (["first", "second", "fourth", "fifth"], 16)


def test_a_handler_that_refuses_closes_the_connection_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def refuses(_: memoryview) -> Answer:
        raise ProtocolError("a field", expected="sense", found="nonsense")

    async def work() -> None:
        async with serving(refuses) as (_, port):
            stream = await SocketStream.connect("127.0.0.1", port)
            await stream.write([framed(b"a")])
            assert await stream.read(1) == b""
            stream.close()

    with caplog.at_level(logging.WARNING):
        run(work())
    assert "a field: expected sense, found nonsense" in caplog.text
    assert "Traceback" not in caplog.text


async def test_an_end_of_the_server_lets_a_request_in_work_be_answered() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def slow(frame: memoryview) -> Answer:
        begun.set()
        await gate.wait()
        return await echo(frame)

    async with serving(slow) as (server, port):
        stream = await SocketStream.connect("127.0.0.1", port)
        await stream.write([framed(b"a")])
        await begun.wait()
        closing = asyncio.create_task(server.aclose(grace_ms=5000))
        await asyncio.sleep(0)
        gate.set()
        assert await read_exactly(stream, 5) == framed(b"a")
        assert await stream.read(1) == b""
        await closing
        stream.close()


def test_the_listener_is_paused_while_descriptors_are_for_files_and_takes_connections_again_when_some_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        async with serving() as (server, port):
            peers = [await SocketStream.connect("127.0.0.1", port) for _ in range(20)]
            first = peers[0]
            await first.write([framed(b"one")])
            assert await read_exactly(first, 7) == framed(b"one")
            while server.connections < len(peers):
                await asyncio.sleep(0.01)
            # the next ones get the lowest descriptors, of which these are the first that are not for connections
            server.limits = PeerLimits(descriptors=lowest_free(0) + 1)
            late = [await SocketStream.connect("127.0.0.1", port) for _ in range(3)]
            await late[2].write([framed(b"late")])
            await first.write([framed(b"two")])
            assert await read_exactly(first, 7) == framed(b"two")
            assert server.connections <= len(peers) + 1
            for each in (*peers, *late[:2]):
                each.close()
            assert await hurried(read_exactly(late[2], 8), 2) == framed(b"late")
            late[2].close()

    run(work())
    assert [each for each in caplog.messages if "no connections are accepted" in each] == [
        "no connections are accepted until some of the 21 end: the descriptors that are left are for files"
    ]


def test_a_peer_that_breaks_the_rules_again_and_again_gets_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with serving(limits=PeerLimits(largest_frame=100)) as (_, port):
            for _ in range(3 * BURST):
                stream = await SocketStream.connect("127.0.0.1", port)
                await stream.write([b"GET "])
                assert await stream.read(1) == b""
                stream.close()

    with caplog.at_level(logging.WARNING):
        run(work())
    assert sum(each.startswith("closing ") for each in caplog.messages) == BURST


async def test_a_frame_may_be_as_large_as_its_head_allows_and_is_let_go_when_it_was_read() -> None:
    used: list[int] = []

    def terms(head: memoryview) -> FrameLimit:
        return FrameLimit(200_000 if head == b"some" else 100_000, is_kept=head != b"some")

    async def handler(frame: memoryview) -> Answer:
        used.append(server.budget.used)
        return [framed(bytes(frame[:4]))]

    async with serving(handler, PeerLimits(frame_limit_of=terms)) as (server, port):
        stream = await SocketStream.connect("127.0.0.1", port)
        for head, size in ((b"some", 200_000), (b"kept", 100_000), (b"tiny", 10)):
            await stream.write([framed(head + bytes(size - 4))])
            assert await read_exactly(stream, 8) == framed(head)
        assert used == [0, 100_000, 0]
        await stream.write([(100_001).to_bytes(4, "big")])
        await stream.write([b"kep"])
        await stream.write([b"t"])
        assert await stream.read(1) == b""
        stream.close()
        assert server.budget.used == 0
