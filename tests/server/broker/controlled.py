"""Brokers that take in what a controller tells them, and a tree in memory in which they are registered."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from magicbyte.engine.cluster.brokers import BrokerEndpoint
from magicbyte.engine.errors import ErrorCode, NetworkError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol import Message
from magicbyte.engine.protocol.apis import APIS
from magicbyte.engine.protocol.framing import read_request, read_response, write_request, write_response
from magicbyte.engine.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from magicbyte.engine.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from magicbyte.engine.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from magicbyte.engine.releases import inter_broker_versions, registration_version
from magicbyte.engine.replication.state import PartitionState
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.controller import ControllerService
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.cluster import found_cluster
from magicbyte.server.stores.znodes.controller_tree import ElectionNodes
from magicbyte.server.stores.znodes.layout import TopicNode
from magicbyte.testing.tree import SimulatedSession, SimulatedTree
from server.broker.serving import Clock

PATIENCE_S = 120


@dataclass
class ToldBroker:
    """A broker that accepts all orders. `requests`: all of them, in order."""

    id: int
    requests: list[Message] = field(default_factory=list)
    roles: dict[TopicPartition, LeaderAndIsrPartitionState] = field(default_factory=dict)
    metadata: dict[TopicPartition, int] = field(default_factory=dict)  # leaders
    live: list[int] = field(default_factory=list)
    deleted: list[TopicPartition] = field(default_factory=list)
    failed: set[TopicPartition] = field(default_factory=set)  # replicas on a failed disk
    is_reachable: bool = True
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    most_at_once: int = 0
    _at_once: int = 0

    def __post_init__(self) -> None:
        self.answers.set()

    async def take(self, request: Message, version: int) -> Message:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if not self.is_reachable:
                raise NetworkError(f"broker {self.id} is not reachable")
            self.requests.append(request)
            await self.answers.wait()
            response = self._take(request)
            if isinstance(response, LeaderAndIsrResponse):
                (response.partition_errors if version >= 5 else response.topics).clear()
            return response
        finally:
            self._at_once -= 1

    def _take(self, request: Message) -> Message:
        match request:
            case LeaderAndIsrRequest():
                return self._lead(request)
            case UpdateMetadataRequest():
                topics = [(each.topic_name, each) for each in request.ungrouped_partition_states]
                topics += [
                    (topic.topic_name, each) for topic in request.topic_states for each in topic.partition_states
                ]
                self.live = [each.id for each in request.live_brokers]
                self.metadata |= {TopicPartition(name, each.partition_index): each.leader for name, each in topics}
                return UpdateMetadataResponse()
            case StopReplicaRequest():
                return self._stop(request)
        raise AssertionError(request)

    def _lead(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        response = LeaderAndIsrResponse()
        for each in request.ungrouped_partition_states:
            error = self._role(TopicPartition(each.topic_name, each.partition_index), each)
            response.partition_errors.append(
                LeaderAndIsrPartitionError(
                    topic_name=each.topic_name, partition_index=each.partition_index, error_code=error
                )
            )
        for topic in request.topic_states:
            errors = [
                LeaderAndIsrPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=each.partition_index,
                    error_code=self._role(TopicPartition(topic.topic_name, each.partition_index), each),
                )
                for each in topic.partition_states
            ]
            response.partition_errors += errors
            response.topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return response

    def _role(self, key: TopicPartition, state: LeaderAndIsrPartitionState) -> int:
        assert self.id in state.replicas, "a broker gets orders for its own replicas only"
        if key in self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        before = self.roles.get(key)
        if before is not None and before.leader_epoch >= state.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.roles[key] = state
        return ErrorCode.NONE

    def _stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        keys = [(TopicPartition(each.topic_name, each.partition_index), request.delete_partitions)
                for each in request.ungrouped_partitions]  # fmt: skip
        keys += [(TopicPartition(topic.name, each), request.delete_partitions)
                 for topic in request.topics for each in topic.partition_indexes]  # fmt: skip
        keys += [(TopicPartition(topic.topic_name, each.partition_index), each.delete_partition)
                 for topic in request.topic_states for each in topic.partition_states]  # fmt: skip
        for key, deletes in keys:
            if deletes:
                self.roles.pop(key, None)
                self.deleted.append(key)
        errors = [StopReplicaPartitionError(topic_name=key.topic, partition_index=key.partition) for key, _ in keys]
        return StopReplicaResponse(partition_errors=errors)


class ToldLink:
    """A connection to such a broker, over which messages go in their bytes."""

    is_stale = is_closed = False

    def __init__(self, broker: ToldBroker, protocol: tuple[int, ...], client_id: str) -> None:
        self._broker, self._versions, self._client_id = broker, inter_broker_versions(protocol), client_id

    async def send(self, request: Message, *, timeout_ms: int) -> Message:
        assert request.API_KEY is not None
        version = self._versions[request.API_KEY]
        frame = bytes(write_request(request, version, correlation_id=1, client_id=self._client_id))
        response = await self._broker.take(read_request(frame[4:]).message, version)
        answer = bytes(write_response(response, version, correlation_id=1))
        return read_response(answer[4:], APIS[request.API_KEY], version)[1]

    def abort(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class ControlledCluster:
    """A tree and brokers; and controllers, of which any number may stand."""

    def __init__(self, *, protocol: tuple[int, ...] = (2, 8), settings: Mapping[str, str] | None = None) -> None:
        self.clock, self.protocol = Clock(), protocol
        self.tree = SimulatedTree(self.clock)
        self.view = self.tree.session()
        found_cluster(self.view, None, uuid.uuid4)
        self.brokers: dict[int, ToldBroker] = {}
        self.sessions: dict[int, SimulatedSession] = {}
        self.controllers: list[ControllerService] = []
        self.controller_sessions: list[SimulatedSession] = []
        given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "nowhere", **(settings or {})}
        self.config = BrokerConfig(given)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ids = 0

    # ---- brokers

    def register(self, *broker_ids: int) -> None:
        """Let brokers start; each believes nothing yet."""
        for broker_id in broker_ids:
            self.brokers[broker_id] = ToldBroker(broker_id)
            self.sessions[broker_id] = self.tree.session()
            endpoint = BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "host", 9000 + broker_id)
            data = layout.dump_broker([endpoint], None, 5, registration_version(self.protocol))
            self.sessions[broker_id].create(layout.broker_path(broker_id), data, ephemeral=True)

    def kill(self, broker_id: int) -> None:
        """End a broker's session."""
        self.sessions[broker_id].close()

    async def connect(
        self, broker_id: int, host: str, port: int, *, protocol: tuple[int, ...], client_id: str, timeout_ms: int
    ) -> ToldLink:
        assert (host, port, protocol) == ("host", 9000 + broker_id, self.protocol)
        return ToldLink(self.brokers[broker_id], protocol, client_id)

    # ---- controllers

    async def control(self, broker_id: int) -> ControllerService:
        """Let a broker stand for election."""
        made = await self.candidate(broker_id)
        await made.start()
        return made

    async def candidate(self, broker_id: int) -> ControllerService:
        """Return a broker that is about to stand for election."""
        made: list[ControllerService] = []

        def session(*, listener: Callable[[Any], None]) -> SimulatedSession:
            opened = self.tree.session(listener=listener)
            self.controller_sessions.append(opened)
            return opened

        store = await LoopStore.open(session, listener=lambda event: made[0].session_event(event))
        made.append(
            ControllerService(
                self._elections(store, broker_id),
                broker_id,
                self.config,
                protocol=self.protocol,
                spawn=self._spawn,
                new_id=self._new_id,
                connect=self.connect,
            )
        )
        self.controllers.append(made[0])
        return made[0]

    def _elections(self, store: LoopStore, broker_id: int) -> ElectionNodes:
        return ElectionNodes(store, broker_id, self.clock.now_ms, self.protocol)

    async def reopen(self, controller: ControllerService) -> None:
        """Give a controller a new session."""
        store = await LoopStore.open(
            lambda *, listener: self.tree.session(listener=listener), listener=controller.session_event
        )
        await controller.renew(self._elections(store, controller._broker_id))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _new_id(self) -> uuid.UUID:
        self._ids += 1
        return uuid.UUID(int=self._ids)

    async def stop(self) -> None:
        for each in self.controllers:
            await each.stop()
        await asyncio.sleep(0)
        assert not self._tasks, "a controller that stopped leaves nothing behind"

    # ---- the tree

    def create_topic(self, name: str, *replicas: Sequence[int]) -> None:
        node = TopicNode(dict(enumerate(map(list, replicas))), None)
        self.view.create(layout.topic_path(name), node.dump())

    def topic(self, name: str) -> TopicNode:
        path = layout.topic_path(name)
        return TopicNode.load(path, self.view.get(path).data)

    def state(self, topic: str, partition: int = 0) -> PartitionState | None:
        node = self.view.exists(layout.state_path(topic, partition))
        return None if node is None else layout.load_state("", node.data)

    def set_isr(self, topic: str, *isr: int, partition: int = 0) -> None:
        """Change in-sync replicas as a leader does."""
        state = self.state(topic, partition)
        assert state is not None
        changed = PartitionState(state.leader, state.leader_epoch, isr, state.controller_epoch)
        self.view.set(layout.state_path(topic, partition), layout.dump_state(changed))
        said = layout.dump({"version": 1, "partitions": [{"topic": topic, "partition": partition}]})
        self.view.create(f"{layout.ISR_CHANGES}/isr_change_", said, sequence=True)

    def write(self, path: str, value: Mapping[str, Any]) -> None:
        self.view.create(path, layout.dump(value))


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def controlled(**named: Any) -> AsyncIterator[ControlledCluster]:
    """Yield a cluster; its controllers are stopped afterwards."""
    cluster = ControlledCluster(**named)
    try:
        yield cluster
    finally:
        await cluster.stop()


def partitions(topic: str, count: int) -> Iterable[TopicPartition]:
    return (TopicPartition(topic, each) for each in range(count))
