"""A broker inside a test: real sockets, real files in a temporary folder, removed with the test.

    async with Broker() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)

`with Broker() as broker:` is the same for tests without an event loop: the broker then runs in a thread with its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from magicbyte.broker.broker import Broker as Served
from magicbyte.broker.config import BrokerConfig
from magicbyte.errors import ErrorCode

if TYPE_CHECKING:
    from magicbyte.net.server import Answer, Handler
    from magicbyte.ports import Clock
    from magicbyte.public.sources import AnyPath
    from magicbyte.testing.faults import Fault, Faults
    from magicbyte.testing.security import Security

_DEFAULTS: Final = {"listeners": "PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
_KEPT: Final = {"log.retention.ms": "-1"}
_RETENTION: Final = {"log.retention.ms", "log.retention.minutes", "log.retention.hours"}


class Broker:
    """A broker on a free port of this machine. `settings` are Kafka's, by name; `directory` keeps the logs if given.

    `security` is SSL, SASL_PLAINTEXT or SASL_SSL, `users` passwords by name, for PLAIN and SCRAM; the attribute
    `security` then has the settings of clients. A name that no JAAS text can hold, for instance with a comma, is for
    SCRAM only. `clock` measures the broker's intervals and dates: for instance a `TurnedClock`.

    Records of any date are kept: `log.retention.ms` is -1 unless `settings` have a retention time.
    """

    security: Security | None = None

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        directory: AnyPath | None = None,
        security: str | None = None,
        users: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock
        self._secured = None if security is None else (security, dict(users or {}))
        self._certificates: str | None = None
        self._settings = dict(settings or {})
        self._directory = None if directory is None else os.fspath(directory)
        self._temporary: str | None = None
        self._broker: Served | None = None
        self._faults: Faults | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._ran: Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def served(self) -> Served:
        """The broker itself, while it runs."""
        assert self._broker is not None, "the broker runs inside the block"
        return self._broker

    @property
    def bootstrap_servers(self) -> str:
        """Host and port of its first listener."""
        return self.address()

    def address(self, listener: str | None = None) -> str:
        """Return host and port of a listener, the first one by default."""
        broker = self.served
        chosen = next(each for each in broker.config.listeners if listener in (None, each.name))
        host, port = broker.address_of(chosen)
        return f"{host}:{port}"

    def fault(
        self,
        api: str,
        *,
        at: int = 1,
        times: int | None = 1,
        delay_ms: int = 0,
        error: ErrorCode | int | None = None,
        disconnect: Literal["before", "after"] | None = None,
        cut_bytes: int | None = None,
    ) -> Fault:
        """Inject a fault into requests of an API, such as "Produce", until the block of the fault ends.

        It affects the `at`-th request from now on, and `times` requests in total (None: all). One or several effects:
        the request is handled `delay_ms` later; it is not handled, and refused with `error`; the connection ends
        "before" it is handled, or "after" that and before the response (`disconnect`); the connection ends after the
        first `cut_bytes` of the response, including the four of its size. Any thread may call this.

        Raises ValueError for an impossible combination.
        """
        from magicbyte.testing.faults import Fault, Faults

        fault = Fault(api, at, times, delay_ms, error, disconnect, cut_bytes)
        if self._faults is None:
            self._faults = Faults()
        return self._faults.add(fault)

    def _faulty(self, broker: Served, handler: Handler) -> Handler:
        async def faulty(frame: memoryview) -> Answer | None:
            if self._faults is None:
                return await handler(frame)
            return await self._faults.handle(broker, handler, frame)

        return faulty

    async def start(self) -> None:
        """Start the broker on the running loop."""
        if self._directory is None:
            self._temporary = tempfile.mkdtemp(prefix="magicbyte-")
        try:
            secured = self._secure()
            logs = {"log.dirs": self._directory or str(self._temporary)}
            kept = {} if _RETENTION & self._settings.keys() else _KEPT
            broker = self._made(BrokerConfig({**logs, **_DEFAULTS, **kept, **secured, **self._settings}))
            await broker.start()
        except BaseException:
            self._clear()
            raise
        if (watch := getattr(self._clock, "_watch", None)) is not None:  # a `TurnedClock`
            loop = asyncio.get_running_loop()

            def turned() -> None:
                with contextlib.suppress(RuntimeError):  # the loop has ended, and the broker with it
                    loop.call_soon_threadsafe(broker.coordinators.clock_turned)

            watch(turned)
        if self.security is not None:
            self.security.add_users(broker.metadata)
        self._broker = broker

    def _secure(self) -> dict[str, str]:
        """Return the settings of a secured listener, or none."""
        if self._secured is None:
            return {}
        from magicbyte.testing.security import Security

        self._certificates = tempfile.mkdtemp(prefix="magicbyte-")
        self.security = Security(*self._secured, Path(self._certificates))
        return self.security.broker_settings()

    def _made(self, config: BrokerConfig) -> Served:
        return Served(config, clock=self._clock, around=self._faulty)

    async def stop(self) -> None:
        """Stop the broker cleanly, and remove a temporary folder."""
        broker, self._broker = self._broker, None
        try:
            if broker is not None:
                await broker.stop()
        finally:
            self._clear()

    def _clear(self) -> None:
        for folder in (self._temporary, self._certificates):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
        self._temporary = self._certificates = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        started: Future[None] = Future()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="broker")
        self._ran = self._threads.submit(lambda: asyncio.run(self._run(started)))
        wait((started, self._ran), return_when=FIRST_COMPLETED)
        if not started.done():
            self._end()
        return self

    async def _run(self, started: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self.start()
        started.set_result(None)
        await self._stop.wait()
        await self.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._end()

    def _end(self) -> None:
        """Wait for the thread's end; raise an error that ended it."""
        assert self._threads is not None
        assert self._ran is not None
        self._threads.shutdown()
        self._ran.result()
