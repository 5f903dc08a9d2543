"""Our brokers for tests, and connections that send and read frames as they are."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from builders import run
from magicbyte import testing
from magicbyte.access.clock import SystemClock
from magicbyte.access.net.stream import SocketStream, Stream
from magicbyte.engine import ports
from magicbyte.engine.protocol import APIS, Message, read_response, write_request
from magicbyte.server.broker.broker import Broker
from magicbyte.server.settings.config import BrokerConfig

R = TypeVar("R", bound=Message)
CLOSED = b""
KEEP_ALL = {"log.retention.ms": "-1"}
"""Records of tests have dates of long ago: retention, which first looks 30 s behind the start, would delete them."""


class Clock:
    """Two clocks that a test turns, apart or together (`advance`). `ms` is the date."""

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ms: int = 500_000) -> None:
        self.ms, self.elapsed_ms = now_ms, monotonic_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.elapsed_ms

    def advance(self, ms: int) -> None:
        """Let time pass, as both clocks see it."""
        self.ms, self.elapsed_ms = self.ms + ms, self.elapsed_ms + ms


class TurnedClock(SystemClock):
    """The clocks of this machine, of which a test turns the wall clock."""

    def __init__(self) -> None:
        self.turned_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.turned_ms


class Running:
    """A broker in a folder, while the block lasts. `clock`: that of the machine where none is given."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None = None, clock: ports.Clock | None = None
    ) -> None:
        given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory), **(settings or {})}
        self.broker = Broker(BrokerConfig(given), clock=clock)

    async def __aenter__(self) -> Broker:
        await self.broker.start()
        return self.broker

    async def __aexit__(self, *_: object) -> None:
        await self.broker.stop()


class OnClock(testing.Broker):
    """A broker of a test's process, by a clock that stands still unless the test turns it."""

    def __init__(self, settings: Mapping[str, str], clock: Clock | None = None, **named: Any) -> None:
        self.clock = clock or Clock()
        super().__init__(settings, **named)

    def _made(self, config: BrokerConfig) -> Broker:
        return Broker(config, clock=self.clock)


B = TypeVar("B", bound=OnClock)


def within(work: Callable[[B], Awaitable[None]], broker: B) -> None:
    """Run a coroutine while a broker serves, for a minute at most."""

    async def inside() -> None:
        async with broker:
            await work(broker)

    run(inside())


class Peer:
    """A connection to a broker, without a client's manners."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    @classmethod
    async def of(cls, broker: Broker, listener: str | None = None) -> "Peer":
        port = next(iter(broker.ports.values())) if listener is None else broker.ports[listener]
        return cls(await SocketStream.connect("127.0.0.1", port))

    async def exchange(self, frame: bytes) -> bytes:
        """Send a frame with its size, return the answer with its size; `CLOSED` where the broker closed instead."""
        await self.stream.write([frame])
        return await self.next()

    async def next(self) -> bytes:
        head = await self._exactly(4)
        return head and head + await self._exactly(int.from_bytes(head, "big"))

    async def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            data = await self.stream.read(size - len(found))
            if not data:
                assert not found, "the connection ended inside an answer"
                return CLOSED
            found += data
        return bytes(found)

    async def ask(self, request: Message, version: int, response: type[R]) -> R:
        """Send a request and return the response."""
        assert request.API_KEY is not None
        frame = bytes(write_request(request, version, correlation_id=7, client_id="test"))
        answer = await self.exchange(frame)
        assert answer, "the broker closed the connection"
        header, found = read_response(answer[4:], APIS[request.API_KEY], version)
        assert header.correlation_id == 7
        assert isinstance(found, response)
        return found

    def close(self) -> None:
        self.stream.close()
