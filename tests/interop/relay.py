"""A relay between clients and a broker that notes which requests, in which versions, clients send, in order."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

_HEAD = struct.Struct(">ihh")


class Relay:
    """Listens on `port`, and forwards all bytes to `target`, another port of this machine, while the block lasts.

    `seen` may be replaced: it gets the bytes of later connections.
    """

    OWN = frozenset({4, 5, 6, 7, 56, 57, 58, 67})
    """API keys that brokers alone send: to the controller, which they know by the same address, and it to them."""

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self.seen: list[tuple[object, int, int]] = []  # connection, API key, version

    def sent(self) -> tuple[tuple[int, int], ...]:
        """Return API keys and versions that clients sent, in the order in which each came first."""
        brokers = {connection for connection, key, _ in self.seen if key in self.OWN}
        return tuple(dict.fromkeys((key, at) for connection, key, at in self.seen if connection not in brokers))

    async def serve(self, started: Future[asyncio.Event]) -> None:
        """Relay until the event that `started` gets is set."""
        stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        async with server:
            started.set_result(stop)
            await stop.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = self.seen
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):  # the last one at the end
            theirs, to_them = await asyncio.open_connection("127.0.0.1", self.target)
            back = asyncio.create_task(self._back(theirs, writer))
            try:
                while True:
                    head = await reader.readexactly(_HEAD.size)
                    size, key, version = _HEAD.unpack(head)
                    seen.append((writer, key, version))
                    to_them.write(head + await reader.readexactly(size - 4))
                    await to_them.drain()
            finally:
                to_them.close()
                await back
        writer.close()

    @staticmethod
    async def _back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@contextmanager
def relay(port: int, target: int) -> Iterator[Relay]:
    """Run a relay in a thread."""
    found, started = Relay(port, target), Future[asyncio.Event]()
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as threads:
        ran = threads.submit(loop.run_until_complete, found.serve(started))
        try:
            yield found
        finally:
            loop.call_soon_threadsafe(started.result(10).set)
            ran.result(30)
            loop.run_until_complete(_end_tasks())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
