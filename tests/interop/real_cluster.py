"""Real brokers that join the ZooKeeper of a test, and one of our brokers that is only a candidate for controller."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from interop import jvm, kafka_oracle
from magicbyte.access.net.network import SocketNetwork
from magicbyte.engine.cluster.brokers import BrokerEndpoint, Registration
from magicbyte.engine.errors import NetworkError
from magicbyte.engine.protocol import Message, write_response
from magicbyte.engine.protocol.framing import read_request
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest
from magicbyte.engine.releases import protocol_version, registration_version
from magicbyte.engine.replication.state import PartitionState
from magicbyte.server.apis.broker_routes import BROKER_ROUTES
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.metadata.zookeeper import ZooKeeperStore
from magicbyte.server.serving.request import ClientConnection, Request
from magicbyte.server.serving.threads import SystemThreads
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.settings.served import SERVED
from magicbyte.server.settings.versions import versions_response
from magicbyte.server.stores.controller import ControllerService
from magicbyte.server.stores.links import Links
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.cluster import OwnRegistration, found_cluster, register
from magicbyte.server.stores.znodes.controller_tree import ElectionNodes
from ports import free_port
from server.broker.controlled import ToldBroker
from server.broker.serving import Clock

PATIENCE_S = 180
SESSION_MS = 30_000  # they end by themselves: a process may stand still for seconds
LAUNCHER = [sys.executable, str(Path(kafka_oracle.__file__))]
CONTROL = range(4, 7)  # LeaderAndIsr, StopReplica, UpdateMetadata


async def run(*command: str | Path) -> str:
    """Run a program beside the loop; return what it says."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(process.communicate(), jvm.SECONDS)
    assert process.returncode == 0, said.decode(errors="replace")[-3000:]
    return said.decode(errors="replace")


class RealCluster:
    """ZooKeeper, and real brokers of one release that are started and stopped one by one."""

    def __init__(self, release: str, folder: Path, *properties: str) -> None:
        self.release, self.folder = release, folder
        given = ("delete.topic.enable=true", "replica.lag.time.max.ms=5000", "log.retention.ms=-1")  # records of 1970
        self.properties = (*given, *properties)
        self.port = free_port()
        self.zookeeper = f"{kafka_oracle.LOOPBACK}:{self.port}"
        self.ports: dict[int, int] = {}
        self.view: LoopStore
        self._threads = SystemThreads("test-view", 1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RealCluster"]:
        await asyncio.to_thread(kafka_oracle.fetch, self.release)
        pid = await asyncio.to_thread(kafka_oracle.start_zookeeper, self.release, self.folder, self.port, PATIENCE_S)
        try:
            session = partial(ZooKeeperStore, self.zookeeper, session_timeout_ms=SESSION_MS)
            await self._threads.run(found, session)
            self.view = await LoopStore.open(session, self._threads.run)
            yield self
            await self.view.close()
        finally:
            for broker_id in list(self.ports):
                await self.stop(broker_id, kill=True)
            await asyncio.to_thread(kafka_oracle.stop_process, pid, self.folder, 15)
            self._threads.close()

    def _directory(self, broker_id: int) -> Path:
        return self.folder / f"broker-{broker_id}"

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{kafka_oracle.LOOPBACK}:{port}" for port in self.ports.values())

    async def start(
        self, broker_id: int, *properties: str, release: str | None = None, port: int | None = None
    ) -> None:
        """Start a broker, by default of the cluster's release at any port, with further properties."""
        path, directory = layout.broker_path(broker_id), self._directory(broker_id)
        await until(lambda: self.is_gone(path), "the session of a broker that was killed has ended")
        state = directory / "oracle.json"
        if state.exists():  # of a broker that was killed: the launcher would wait for the end of its session
            state.write_text(json.dumps({**json.loads(state.read_text()), "crashed": False}))
        port = self.ports[broker_id] = port or free_port()
        settings = [part for each in (*self.properties, *properties) for part in ("--prop", each)]
        where = ["--dir", directory, "--port", str(port), "--broker-id", str(broker_id), "--join-zk", self.zookeeper]
        await run(*LAUNCHER, "start", release or self.release, *where, *settings)

    async def is_gone(self, path: str) -> bool:
        return await self.view.exists(path) is None

    async def stop(self, broker_id: int, *, kill: bool = False) -> None:
        del self.ports[broker_id]
        await run(*LAUNCHER, "stop", self._directory(broker_id), *(["--kill"] if kill else []))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """All of them stand still, for less than a session lasts."""
        states = [json.loads((self._directory(each) / "oracle.json").read_text()) for each in self.ports]
        for each in states:
            os.kill(each["pids"]["broker"], signal.SIGSTOP)
        try:
            yield
        finally:
            for each in states:
                os.kill(each["pids"]["broker"], signal.SIGCONT)

    async def tool(self, name: str, *arguments: str) -> str:
        """Run one of Kafka's own tools, which changes the tree."""
        command = kafka_oracle.tool_command(
            self.release, f"kafka.admin.{name}", ["--zookeeper", self.zookeeper, *arguments]
        )
        return await run(*command)

    async def state(self, topic: str, partition: int = 0) -> PartitionState | None:
        node = await self.view.exists(layout.state_path(topic, partition))
        return None if node is None else layout.load_state("", node.data)

    async def is_led(self, topic: str, leader: int, *isr: int) -> bool:
        state = await self.state(topic)
        return state is not None and state.leader == leader and set(state.isr) == set(isr)

    async def controller(self) -> int | None:
        node = await self.view.exists(layout.CONTROLLER)
        return None if node is None else layout.load_controller(node.data)


def found(session: Callable[[], ZooKeeperStore]) -> None:
    """Make what every cluster has in its tree."""
    with contextlib.suppress(NetworkError):  # it listens before it answers
        session().close()
    store = session()
    found_cluster(store, None, uuid.uuid4)
    store.close()


class Candidate:
    """One of our brokers without partitions: it registers itself, stands for election, and answers for it."""

    def __init__(self, zookeeper: str, broker_id: int, protocol: str) -> None:
        self.id, self.protocol = broker_id, protocol_version(protocol)
        self.told = ToldBroker(broker_id)
        self.asked = list[Message]()
        self.service: ControllerService
        self._session = partial(ZooKeeperStore, zookeeper, session_timeout_ms=SESSION_MS)
        self._config = BrokerConfig({"log.dirs": "nowhere", "controller.socket.timeout.ms": "5000"})
        self._runtime: Any = SimpleNamespace(network=SocketNetwork())
        self._tasks = set[asyncio.Task[None]]()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ControllerService]:
        threads = SystemThreads("test-candidate", 1)
        server = await asyncio.start_server(self._serve, kafka_oracle.LOOPBACK, 0)
        port = server.sockets[0].getsockname()[1]
        store = await LoopStore.open(self._session, threads.run, lambda event: self.service.session_event(event))
        endpoint = BrokerEndpoint("PLAINTEXT", "PLAINTEXT", kafka_oracle.LOOPBACK, port)
        content = Registration((endpoint,), None)
        own = OwnRegistration(content, Clock().now_ms(), registration_version(self.protocol))
        await register(store, self.id, own)
        self.service = ControllerService(
            ElectionNodes(store, self.id, Clock().now_ms, self.protocol),
            self.id,
            self._config,
            protocol=self.protocol,
            spawn=self._spawn,
            new_id=uuid.uuid4,
            connect=Links(self._runtime).connect,
        )
        self._services: Any = SimpleNamespace(membership=SimpleNamespace(controller=self.service))
        await self.service.start()
        try:
            yield self.service
        finally:
            await self.service.stop()
            await store.close()
            server.close()
            threads.close()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                request = read_request(await reader.readexactly(size))
                version = request.header.request_api_version
                response = await self._answer(request.api.key, request.message, version)
                writer.write(bytes(write_response(response, version, correlation_id=request.header.correlation_id)))
                await writer.drain()
        writer.close()

    async def _answer(self, key: int, message: Message, version: int) -> Message:
        if isinstance(message, ApiVersionsRequest):
            return versions_response({key: SERVED[key].versions for key in (7, 18, 56)})
        if key in CONTROL:
            return await self.told.take(message, version)
        self.asked.append(message)
        connection = ClientConnection("host", "peer", self._config.listeners[0])
        answer = await BROKER_ROUTES.load(key).handler(self._services, Request(message, version, None, connection))
        assert answer is not None
        return answer


async def until(condition: Callable[[], Awaitable[object]], what: str) -> None:
    """Wait until something holds."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await condition():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"after {PATIENCE_S} s: {what}") from None
