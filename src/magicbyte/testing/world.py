"""A whole cluster in one process under virtual time, from one seed: brokers, clients, disks, network and tree.

with World(seed=1) as world:
    broker = world.broker(0)

    async def history() -> None:
        await broker.start()
        async with world.client() as client:
            ...

    world.run(history())

The code of broker, client and net runs unchanged. The simulation replaces the event loop's time (`loop.py`), threads,
whose work runs on the loop after a delay (`threads.py`), the network (`network.py`), disks (`disk.py`), the tree
(`tree.py`), clocks, and random numbers. The same seed gives the same history in any process, as `World.digest` shows.

A *killed* broker loses its connections, of which its peers are notified, and its sessions end after their timeout; its
writes to disk are kept. A *power cut* also loses data that is not durable, and no peer is notified. A *paused* broker
runs nothing, as under SIGSTOP; its peers may connect and send until buffers are full. The tree is a separate host, from
which brokers can be partitioned; it responds without a delay.

Not simulated: HTTP pages, `sendfile`, and the duration of computations.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import importlib
import logging
from collections.abc import Coroutine, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from magicbyte.access.client.client import Client
from magicbyte.engine.errors import NetworkError
from magicbyte.engine.printable import logger
from magicbyte.server.apis.broker_routes import BROKER_ROUTES
from magicbyte.server.broker.broker import Broker
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.testing.disk import SimulatedDisk
from magicbyte.testing.loop import START_NS, Process, VirtualClock, VirtualLoop, current_process
from magicbyte.testing.network import SimulatedNetwork
from magicbyte.testing.threads import SimulatedThreads
from magicbyte.testing.tree import SimulatedSession, SimulatedTree

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore, SessionListener

T = TypeVar("T")

TREE: Final = "tree"
"""The tree's host name in the network."""
PORT: Final = 9092
_DIRECTORY: Final = "/data"
_RECONNECT_S: Final = 1.0
_SETTINGS: Final = {
    "log.dirs": _DIRECTORY,
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "65536",  # the preallocated size of each file
    "max.open.files": "1000",
}


class World:
    """The simulation. `settings`: Kafka's, for every broker; `disk_ms` is the longest duration of thread work.

    A history ends with StuckError after `most_virtual_s`, after `most_turns` of the loop, and when no event is
    scheduled.
    """

    def __init__(
        self,
        seed: int,
        *,
        settings: Mapping[str, str] | None = None,
        latency_ms: tuple[float, float] = (0.1, 1.0),
        disk_ms: float = 0.5,
        most_virtual_s: float = 3600,
        most_turns: int = 5_000_000,
    ) -> None:
        self.seed, self.settings, self.disk_ms = seed, dict(settings or {}), disk_ms
        self.loop = VirtualLoop(most_virtual_s=most_virtual_s, most_turns=most_turns)
        self.loop.work_delay_s = self._work_delay_s
        self.random = self.random_of("world")
        self.clock = VirtualClock(self.loop)
        self.network = SimulatedNetwork(self.loop, self.random_of("network"), latency_ms)
        self.tree = _Tree(self)
        self.brokers: dict[int, SimulatedBroker] = {}
        self._threads = self.random_of("threads")
        self._context = contextvars.Context()
        self._expiry: asyncio.TimerHandle | None = None
        self._reconnect: asyncio.TimerHandle | None = None
        self._watched = _Faults(self.loop.faults)
        logger("magicbyte").addHandler(self._watched)
        self.network.host(TREE)
        BROKER_ROUTES.load_all()  # an import at the first request would take a thread's time in the first world only
        importlib.import_module("numpy")
        self.network.changed = self.connect_sessions

    def random_of(self, name: str) -> Random:
        """Return a random generator for one purpose, independent of the others."""
        return Random(f"{self.seed} {name}")

    def broker(self, broker_id: int, settings: Mapping[str, str] | None = None) -> SimulatedBroker:
        """Return a broker with an empty disk, not started yet."""
        made = self.brokers[broker_id] = SimulatedBroker(self, broker_id, {**self.settings, **(settings or {})})
        return made

    def client(self, name: str = "client", **options: Any) -> Client:
        """Return a client on a host of that name. `options` are those of `Client`."""
        bootstrap = [broker.address for broker in self.brokers.values()]
        jitter = self.random_of(name).uniform
        network = self.network.host(name)
        return Client(bootstrap, client_id=name, clock=self.clock, jitter=jitter, network=network, **options)

    @property
    def virtual_s(self) -> float:
        """The virtual seconds that have passed."""
        return (self.loop.now_ns - START_NS) / 1e9

    def run(self, history: Coroutine[Any, Any, T]) -> T:
        """Run a history to its end; return its result. Raises StuckError, AssertionError because of a bug."""
        result = self.loop.run(history)
        assert not self.loop.faults, "\n".join(self.loop.faults)
        return result

    def digest(self) -> str:
        """Return a digest of all network traffic so far with its times, of all disks, and of the time."""
        found = hashlib.blake2b(f"{self.network.digest()} {self.loop.now_ns}".encode())
        for broker in self.brokers.values():
            for path, content in broker.disk.walk():
                found.update(f"{broker.name} {path} {len(content)} ".encode())
                found.update(content)
        return found.hexdigest()

    def close(self) -> None:
        """End everything."""
        logger("magicbyte").removeHandler(self._watched)
        self.loop.shut_down()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- sessions of the tree

    def open_session(self, broker: SimulatedBroker, listener: SessionListener) -> SimulatedSession:
        """Return a session of a broker. Raises NetworkError if it is partitioned from the tree."""
        if not self._reaches_tree(broker):
            raise NetworkError(f"{broker.name} is cut off from the tree")
        return self.tree.session(listener=listener, timeout_ms=broker.session_timeout_ms)

    def connect_sessions(self) -> None:
        """Disconnect and reconnect the sessions of brokers according to the network."""
        for broker in self.brokers.values():
            for session in broker.sessions:
                if not session.is_cut and not session.is_over and not self._reaches_tree(broker):
                    self.tree.cut(session)
                elif session.is_cut and not session.is_closed and self._reaches_tree(broker):
                    self.tree.heal(session)
        self._expire()

    def connect_soon(self) -> None:
        """Schedule that: a client that lost its connection reconnects after a while."""
        if self._reconnect is None:
            when = self.loop.time() + _RECONNECT_S
            self._reconnect = self.loop.call_at(when, self._connect_again, context=self._context)

    def _connect_again(self) -> None:
        self._reconnect = None
        self.connect_sessions()

    def _reaches_tree(self, broker: SimulatedBroker) -> bool:
        network = self.network
        is_running = broker.process is not None and not broker.process.is_paused
        return is_running and network.is_reachable(broker.name, TREE) and network.is_reachable(TREE, broker.name)

    def _expire(self) -> None:
        """Expire due sessions, and schedule the next expiration."""
        self.tree.expire_overdue()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        due_ms = self.tree.next_expiry_ms()
        if due_ms is not None:
            self._expiry = self.loop.call_at(due_ms / 1000, self._expire, context=self._context)

    def _work_delay_s(self) -> float:
        process = current_process()
        slow = next((broker.disk_ms for broker in self.brokers.values() if broker.process is process), None)
        return self._threads.uniform(0, self.disk_ms if slow is None else slow) / 1000


class SimulatedBroker:
    """A broker and its machine. `disk_ms` is the longest duration of its thread work, None: the world's.

    `clock.ahead_ms` shifts its wall clock. `settings` are those of its next start.
    """

    def __init__(self, world: World, broker_id: int, settings: Mapping[str, str]) -> None:
        self.id, self.name = broker_id, f"broker-{broker_id}"
        self.address = f"{self.name}:{PORT}"
        self.clock = VirtualClock(world.loop)
        self.disk = SimulatedDisk(world.random.getrandbits(32), self.clock)
        self.disk_ms: float | None = None
        self.process: Process | None = None
        self.sessions: list[SimulatedSession] = []
        self.session_timeout_ms = 18_000
        self._world = world
        self._network = world.network.host(self.name)
        self.settings = {
            **_SETTINGS,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.address}",
            **settings,
        }
        self._starts = 0
        self._broker: Broker | None = None

    @property
    def served(self) -> Broker:
        """The broker itself, while it runs."""
        assert self._broker is not None, "the broker runs between start and stop"
        return self._broker

    @property
    def is_running(self) -> bool:
        """Whether it was started and neither stopped nor killed since."""
        return self._broker is not None

    async def start(self) -> None:
        """Start it, on the content of its disk."""
        assert self.process is None, "it is stopped or killed first"
        world = self._world
        world.network.start(self.name)
        self._starts += 1
        process = self.process = Process(world.loop, f"{self.name}.{self._starts}")
        try:
            self._broker = await process.spawn(self._start(world.random_of(process.name)))
        except BaseException as error:
            if self.process is not process and isinstance(error, asyncio.CancelledError):
                raise NetworkError(f"{self.name} was killed while it started") from None
            self._gone(is_process=True)
            raise

    async def _start(self, random: Random) -> Broker:
        broker = Broker(
            BrokerConfig(self.settings),
            clock=self.clock,
            files=self.disk,
            session=self._session,
            threads=SimulatedThreads,
            network=self._network,
            random=random,
        )
        await broker.start()
        return broker

    def _session(self, *, listener: SessionListener) -> MetadataStore:
        session = self._world.open_session(self, listener)
        self.sessions.append(session)
        return session

    async def stop(self) -> None:
        """Stop it cleanly."""
        assert self.process is not None, "it was started"
        await self.process.spawn(self.served.stop())
        self._gone(is_process=True)

    def kill(self) -> None:
        """Kill its process, as SIGKILL does."""
        self._gone(is_process=True)
        self.disk = self.disk.after_a_kill(self._world.random.getrandbits(32))

    def cut_power(self) -> None:
        """Cut the power of its machine: data that is not durable may be lost, and peers are not notified."""
        self._gone(is_process=False)
        self.disk = self.disk.after_a_cut(self._world.random.getrandbits(32))

    def pause(self) -> None:
        """Pause its process, as SIGSTOP does, including its session of the tree."""
        assert self.process is not None, "it was started"
        self.process.pause()
        self._world.connect_sessions()

    def resume(self) -> None:
        """Resume its process."""
        assert self.process is not None, "it was started"
        self.process.resume()
        self._world.connect_sessions()

    def _gone(self, *, is_process: bool) -> None:
        assert self.process is not None, "it was started"
        process, self.process, self._broker = self.process, None, None
        self._world.network.crash(self.name, is_process=is_process)
        self._world.connect_sessions()
        self.sessions.clear()
        process.kill()


class _Tree(SimulatedTree):
    """A tree whose sessions reconnect automatically if they can, and expire if they cannot."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock)
        self._world = world

    def cut(self, session: SimulatedSession) -> None:
        """Disconnect a session."""
        super().cut(session)
        self._world.connect_soon()


class _Faults(logging.Handler):
    """Collect logged bugs that end nothing: in a history they are failures."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        """Record an error, except one of a killed process, whose last tasks may fail in any way."""
        process = current_process()
        if record.exc_info and (process is None or process.killed_s is None):
            self._faults.append(f"{record.getMessage()}: {record.exc_info[1]!r}")
