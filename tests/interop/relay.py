"""A relay between clients and a broker that notes which requests, in which versions, clients send."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

_HEAD = struct.Struct(">ihh")


class Relay:
    """Listens on `port`, and passes on what comes to `target`, another port of this machine, while the block lasts."""

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self.seen: set[tuple[int, int]] = set()  # API keys and versions

    async def serve(self, started: Future[asyncio.Event]) -> None:
        """Relay until the event that `started` gets is set."""
        stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        async with server:
            started.set_result(stop)
            await stop.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            theirs, to_them = await asyncio.open_connection("127.0.0.1", self.target)
            back = asyncio.create_task(self._back(theirs, writer))
            try:
                while True:
                    head = await reader.readexactly(_HEAD.size)
                    size, key, version = _HEAD.unpack(head)
                    self.seen.add((key, version))
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
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
