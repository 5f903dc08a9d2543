"""A cluster inside a test: several brokers in a thread of this process, with a metadata tree in memory.

    with Cluster(brokers=3) as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
        cluster.kill(cluster.leader("orders", 0))

Sockets and files are real, and so is replication; only the tree, usually ZooKeeper's, is in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from secrets import token_urlsafe
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from magicbyte.access.clock import SystemClock
from magicbyte.access.net.network import SocketNetwork
from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.cluster.image import ClusterImage
from magicbyte.engine.errors import ErrorCode, NetworkError, UnknownTopicError
from magicbyte.engine.extras import require
from magicbyte.engine.ports import TopicPartition
from magicbyte.server.broker.broker import Broker as Served
from magicbyte.server.stores.znodes.member_store import MemberStore
from magicbyte.server.stores.znodes.reading import image_of
from magicbyte.server.stores.znodes.writing import WritingTerms, node_changes
from magicbyte.testing.broker import Broker
from magicbyte.testing.loop_thread import LoopThread
from magicbyte.testing.tree import SimulatedSession, SimulatedTree

if TYPE_CHECKING:
    from magicbyte.access.net.stream import Stream
    from magicbyte.engine.ports import Clock, MetadataStore, SessionListener
    from magicbyte.engine.replication.state import PartitionState
    from magicbyte.public.sources import AnyPath
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.testing.security import Security

T = TypeVar("T")

_MOST_REPLICAS: Final = 3
_PATIENCE_S: Final = 30.0
_POLL_S: Final = 0.01
_BROKER: Final = "broker"  # the user as which brokers authenticate to each other
_DEFAULTS: Final = {
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "20",
    "replica.lag.time.max.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "50",
    "offsets.topic.num.partitions": "3",
    "auto.leader.rebalance.enable": "false",  # leaders stay where a test has moved them
}


class TurnedClock:
    """This machine's clock, which a test can advance from any thread."""

    def __init__(self) -> None:
        self._system, self._ahead_ms = SystemClock(), 0
        self._watchers: list[Callable[[], None]] = []

    def advance(self, ms: int) -> None:
        """Advance the clock. Brokers immediately run due timers."""
        self._ahead_ms += ms
        for each in list(self._watchers):
            each()

    def _watch(self, turned: Callable[[], None]) -> None:
        """Call `turned` after each advance, in the thread that made it."""
        self._watchers.append(turned)

    def now_ms(self) -> int:
        """Return the date in ms since 1970."""
        date_ms = self._system.now_ms()
        return date_ms + self._ahead_ms

    def monotonic_ms(self) -> int:
        """Return ms since an arbitrary start."""
        return self._system.monotonic_ms() + self._ahead_ms


class Cluster:
    """Brokers 1 to `brokers`, each on a free port of this machine that it keeps across restarts.

    `settings` are Kafka's, of every broker; `directory`, an empty one, keeps the logs. `clock` measures the brokers'
    intervals and dates: for instance a `TurnedClock`. `security` and `users` are those of `Broker`: brokers use them
    among each other, too, as the super user `broker`, and the attribute `security` has the settings of clients. Every
    method may be called from any thread and blocks until it is done; in a coroutine, `await
    asyncio.to_thread(cluster.stop, 1)` keeps the loop running.
    """

    security: Security | None = None

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        directory: AnyPath | None = None,
        clock: Clock | None = None,
        security: str | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers: expected at least one, found {brokers}")
        given = None if directory is None else Path(directory)
        if given is not None and given.exists() and any(given.iterdir()):
            why = "the metadata of the cluster that filled it were in memory"
            raise ValueError(f"directory: expected an empty folder, found files in {given}: {why}")
        self._clock: Clock = clock or SystemClock()
        self._tree = SimulatedTree(self._clock)
        self._directory, self._temporary = given, given is None
        replicas = str(min(brokers, _MOST_REPLICAS))
        factors = dict.fromkeys(("offsets.topic.replication.factor", "default.replication.factor"), replicas)
        self._settings = {**_DEFAULTS, **factors, **(settings or {})}
        self._secured = None if security is None else (security, dict(users or {}))
        self._count = brokers
        self._links = _Links()
        self._members: dict[int, _Member] = {}
        self._thread: LoopThread | None = None

    # ---- state

    @property
    def bootstrap_servers(self) -> str:
        """Host and port of every broker, comma-separated, including stopped ones."""
        return ",".join(each.kept_address for each in self._members.values())

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers by id: for faults, and their served state. The cluster starts and stops them."""
        return self._members

    @property
    def running(self) -> set[int]:
        """The ids of the running brokers."""
        return {number for number, each in self._members.items() if each.is_running}

    @property
    def controller(self) -> int | None:
        """The controller's broker id, None if there is none."""
        found = self._image.controller_id
        return None if found < 0 else found

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the leader of a partition, None if there is none. Raises UnknownTopicError.

        This is the controller's decision; brokers and clients learn of it a moment later.
        """
        found = self._state(topic, partition).leader
        return None if found < 0 else found

    def isr(self, topic: str, partition: int) -> set[int]:
        """Return the in-sync replicas of a partition. Raises UnknownTopicError."""
        return set(self._state(topic, partition).isr)

    def _state(self, topic: str, partition: int) -> PartitionState:
        found = self._image.partition(TopicPartition(topic, partition))
        if found is None or found.known is None:
            raise UnknownTopicError(f"partition {topic}-{partition} is not in the cluster")
        return found.known.state

    @property
    def _image(self) -> ClusterImage:
        session = self._tree.session()
        try:
            return image_of(session)
        finally:
            session.close()

    def wait(self, is_so: Callable[[], bool], timeout_s: float = _PATIENCE_S) -> None:
        """Wait for a change that the brokers make by themselves. Raises TimeoutError."""
        clock = SystemClock()
        end_ms = clock.monotonic_ms() + timeout_s * 1000
        while not is_so():
            if clock.monotonic_ms() > end_ms:
                raise TimeoutError(f"the condition is not met after {timeout_s} s")
            time.sleep(_POLL_S)

    # ---- actions of a test

    def kill(self, broker: int) -> None:
        """Crash a broker: connections end, leadership is not handed over, its session expires immediately.

        Its logs have no clean shutdown marker. Raises ValueError for a broker that does not run.
        """
        self._do(self._running(broker).kill())

    def stop(self, broker: int) -> None:
        """Stop a broker cleanly: it hands over leadership, and closes its logs. Raises ValueError."""
        self._do(self._running(broker).stop())

    def restart(self, broker: int) -> None:
        """Start a killed or stopped broker, on its logs and its port; a running one is stopped first.

        Returns when the controller has updated it; after ten seconds in any case, as it may be cut off.
        """

        async def work(member: _Member) -> None:
            if member.is_running:
                await member.stop()
            await member.start()
            await member.served.cluster_view.until_first_update()

        self._do(work(self._member(broker)))

    def cut(self, a: int, b: int) -> None:
        """Partition the network between two brokers, in both directions, until `heal`.

        Their connections to each other end, and new ones fail immediately. Clients still reach both, and both still
        reach the metadata tree. Raises ValueError.
        """
        pair = frozenset((self._member(a).id, self._member(b).id))
        if len(pair) == 1:
            raise ValueError(f"expected two brokers, found {a} twice")

        async def work() -> None:
            self._links.cut(pair)

        self._do(work())

    def heal(self) -> None:
        """Remove all network partitions."""
        self._links.cuts.clear()

    def restore(self) -> None:
        """Remove all network partitions, and start the brokers that do not run."""
        self.heal()
        for number in sorted(set(self._members) - self.running):
            self.restart(number)

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Move leadership of a partition to another in-sync replica, which becomes the preferred leader.

        Returns when the controller has decided it. Raises BrokerError, UnknownTopicError, ValueError for a broker that
        does not run.
        """
        self._running(to)
        self._state(topic, partition)
        self._do(self._move_leader(TopicPartition(topic, partition), to))
        self.wait(lambda: self.leader(topic, partition) == to)

    async def _move_leader(self, partition: TopicPartition, to: int) -> None:
        from magicbyte.access.client import Client
        from magicbyte.access.client.replicas import alter_reassignments, elect_leaders
        from magicbyte.engine.replication.election import ElectionType

        found = self._image.partition(partition)
        replicas = [] if found is None else list(found.replicas)
        if to not in replicas:
            raise UnknownTopicError(f"{partition}: expected a replica on broker {to}, found replicas {replicas}")
        addresses = [each.address() for each in self._members.values() if each.is_running]
        security = None if self.security is None else self.security.client(_BROKER if self.security.users else None)
        async with Client(addresses, security=security) as client:
            order = (to, *(broker for broker in replicas if broker != to))
            outcomes = await alter_reassignments(client, {partition: order})
            outcomes += await elect_leaders(client, ElectionType.PREFERRED, [partition])
            for each in outcomes:
                if each.error is not None and each.error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                    raise each.error

    def _member(self, broker: int) -> _Member:
        found = self._members.get(broker)
        if found is None:
            raise ValueError(f"broker {broker}: expected one of {', '.join(map(str, self._members))}")
        return found

    def _running(self, broker: int) -> _Member:
        found = self._member(broker)
        if not found.is_running:
            raise ValueError(f"broker {broker} is not running: `restart` starts it")
        return found

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that runs on the loop of the brokers."""
        assert self._thread is not None, "the cluster runs inside the block"
        return self._thread.run(work)

    # ---- start and stop

    def __enter__(self) -> Self:
        self._thread = LoopThread("cluster", self._serve)
        self._thread.start()
        return self

    async def _serve(self, started: Callable[[], None], ended: asyncio.Event) -> None:
        directory = self._directory or Path(tempfile.mkdtemp(prefix="magicbyte-"))
        certificates = tempfile.mkdtemp(prefix="magicbyte-")
        try:
            secured = self._secure(Path(certificates))
            for number in range(1, self._count + 1):
                own = directory / f"broker-{number}"
                member = _Member(number, secured | self._settings, own, self._tree, self._clock, self._links)
                self._members[number] = member
            failures = await asyncio.gather(*(each.start() for each in self._members.values()), return_exceptions=True)
            for failure in failures:
                if failure is not None:
                    raise failure
            await self._joined()
            if self.security is not None:
                session, terms = self._tree.session(), WritingTerms(self._clock.now_ms(), None)
                session.transaction(node_changes(session, ClusterImage(), self.security.credentials(), terms))
                for member in self._members.values():
                    store = member.served.cluster_store
                    assert isinstance(store, MemberStore), "brokers of this cluster share a tree"
                    await store.start()  # its notification might arrive after the first login
            started()
            await ended.wait()
        finally:
            for each in self._members.values():
                if each.is_running:
                    await (each.kill() if self._temporary else each.stop())
            shutil.rmtree(certificates, ignore_errors=True)
            if self._temporary:
                shutil.rmtree(directory, ignore_errors=True)

    def _secure(self, folder: Path) -> dict[str, str]:
        """Return the settings of secured listeners, or none."""
        if self._secured is None:
            return {}
        require("security", "a secured cluster")
        from magicbyte.testing.security import Security

        protocol, users = self._secured
        everybody = users | {_BROKER: token_urlsafe()} if users else users
        self.security = Security(protocol, everybody, folder)
        return self.security.cluster_settings(_BROKER)

    async def _joined(self) -> None:
        """Wait until every broker knows all brokers and the controller."""
        everyone = sorted(self._members)
        async with asyncio.timeout(_PATIENCE_S):
            while any(each.served.cluster_view.broker_ids() != everyone for each in self._members.values()):
                await asyncio.sleep(_POLL_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        assert self._thread is not None
        self._thread.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)


class _Member(Broker):
    """A broker of a cluster, with persistent ports."""

    def __init__(
        self,
        number: int,
        settings: Mapping[str, str],
        directory: Path,
        tree: SimulatedTree,
        clock: Clock,
        links: _Links,
    ) -> None:
        super().__init__({**settings, "broker.id": str(number)}, directory=directory, clock=clock)
        self.id, self._tree, self._links = number, tree, links
        self._session: SimulatedSession | None = None
        self.kept_address = ""  # of its first listener, also while it is down

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor killed since."""
        return self._broker is not None

    def _made(self, config: BrokerConfig) -> Served:
        network = _MemberNetwork(self.id, self._links)
        return Served(config, clock=self._clock, session=self._open_session, network=network, around=self._faulty)

    def _open_session(self, *, listener: SessionListener) -> MetadataStore:
        self._session = self._tree.session(listener=listener)
        return self._session

    async def start(self) -> None:
        """Start the broker on the running loop."""
        await super().start()
        served = self.served
        ports = {each.name: served.ports[each.name] for each in served.config.listeners}
        hosts = [(each.name, each.host) for each in served.config.listeners]
        self._settings["listeners"] = ",".join(f"{name}://{host}:{ports[name]}" for name, host in hosts)
        self._links.ports |= dict.fromkeys(ports.values(), self.id)
        self.kept_address = self.address()

    async def kill(self) -> None:
        """Crash the broker; its session expires immediately."""
        broker, self._broker = self.served, None
        await broker.abort()
        if self._session is not None:
            self._tree.cut(self._session)
            self._tree.expire_session(self._session)


class _LinkStream(SocketStream):
    """A connection from one broker to another."""

    def cut(self) -> None:
        """End the connection in the network: both ends see it closed."""
        if not self.is_closed:
            with contextlib.suppress(OSError):  # the other end was faster
                self._socket.shutdown(socket.SHUT_RDWR)


class _Links:
    """Connections between brokers. `ports` has each broker's listening ports, `cuts` the partitioned pairs."""

    def __init__(self) -> None:
        self.ports: dict[int, int] = {}
        self.cuts: set[frozenset[int]] = set()
        self._open: list[tuple[frozenset[int], _LinkStream]] = []

    def check(self, pair: frozenset[int]) -> None:
        """Raise NetworkError for a partitioned pair."""
        if pair in self.cuts:
            raise NetworkError(f"a test has cut brokers {' and '.join(map(str, sorted(pair)))} off from each other")

    def opened(self, pair: frozenset[int], stream: _LinkStream) -> None:
        """Record a connection between two brokers."""
        self._open = [(between, each) for between, each in self._open if not each.is_closed]
        self._open.append((pair, stream))

    def cut(self, pair: frozenset[int]) -> None:
        """End the connections between two brokers, and refuse new ones."""
        self.cuts.add(pair)
        for between, stream in self._open:
            if between == pair:
                stream.cut()


class _MemberNetwork(SocketNetwork):
    """The network as seen by a broker."""

    def __init__(self, number: int, links: _Links) -> None:
        self._number, self._links = number, links

    async def connect(self, host: str, port: int, *, timeout_ms: int = 10_000) -> Stream:
        """Return a connection. Raises NetworkError."""
        pair = frozenset((self._number, self._links.ports.get(port, self._number)))
        self._links.check(pair)
        stream = await _LinkStream.connect(host, port, timeout_ms=timeout_ms)
        self._links.opened(pair, stream)
        try:
            self._links.check(pair)  # partitioned while it was being opened
        except NetworkError:
            stream.close()
            raise
        return stream
