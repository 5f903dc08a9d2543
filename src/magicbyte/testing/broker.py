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
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from magicbyte.engine.errors import ErrorCode, InvalidConfigError
from magicbyte.engine.extras import require
from magicbyte.engine.printable import logger
from magicbyte.server.broker.broker import Broker as Served
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.testing.loop_thread import LoopThread, own_sockets

if TYPE_CHECKING:
    from magicbyte.access.net.server import Answer, Handler
    from magicbyte.engine.ports import Clock
    from magicbyte.public.sources import AnyPath
    from magicbyte.testing.faults import Fault, Faults
    from magicbyte.testing.security import Security

log = logger(__name__)

_DEFAULTS: Final = {"listeners": "PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
_KEPT: Final = {"log.retention.ms": "-1"}
_RETENTION: Final = {"log.retention.ms", "log.retention.minutes", "log.retention.hours"}


class Broker:
    """A broker on a free port of this machine. `settings` are Kafka's, by name; `directory` keeps the logs if given.

    Values are text as in a server.properties, or numbers and booleans. Starting it raises InvalidConfigError for a
    value that cannot be, and for a misspelt name; other unknown names are logged, as Kafka does.

    `security` is SSL, SASL_PLAINTEXT or SASL_SSL, `users` passwords by name, for PLAIN and SCRAM; the attribute
    `security` then has the settings of clients. A name that no JAAS text can hold, for instance with a comma, is for
    SCRAM only. `clock` measures the broker's intervals and dates: for instance a `TurnedClock`.

    Records of any date are kept: `log.retention.ms` is -1 unless `settings` have a retention time.
    """

    security: Security | None = None

    def __init__(
        self,
        settings: Mapping[str, str | int | float | bool] | None = None,
        *,
        directory: AnyPath | None = None,
        security: str | None = None,
        users: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock
        self._secured = None if security is None else (security, dict(users or {}))
        self._certificates: str | None = None
        self._settings = {name: _text(name, value) for name, value in (settings or {}).items()}
        self._directory = None if directory is None else os.fspath(directory)
        self._temporary: str | None = None
        self._broker: Served | None = None
        self._faults: Faults | None = None
        self._thread: LoopThread | None = None
        own_sockets(self, lambda: () if self._broker is None else self._broker.ports.values())

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
            config = BrokerConfig({**logs, **_DEFAULTS, **kept, **secured, **self._settings})
            _check_names(config)
            broker = self._made(config)
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
            await broker.cluster_store.propose(self.security.credentials(), broker.cluster_store.image)
        self._broker = broker

    def _secure(self) -> dict[str, str]:
        """Return the settings of a secured listener, or none."""
        if self._secured is None:
            return {}
        require("security", "a secured broker")
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
        self._thread = LoopThread("broker", self._serve)
        self._thread.start()
        return self

    async def _serve(self, started: Callable[[], None], ended: asyncio.Event) -> None:
        await self.start()
        try:
            started()
            await ended.wait()
        finally:
            await self.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        assert self._thread is not None
        self._thread.stop()


def _text(name: str, value: object) -> str:
    """Return a setting's value as text. Raises TypeError."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"setting {name}: expected text, a number or a boolean, found {value!r}")


def _check_names(config: BrokerConfig) -> None:
    """Log unknown settings. Raises InvalidConfigError for a misspelt name."""
    for name, meant in config.misspelt().items():
        raise InvalidConfigError(f"no setting {name!r}: did you mean {meant!r}?")
    for name in config.unknown():
        log.warning("%s: unknown, or without effect here", name)
