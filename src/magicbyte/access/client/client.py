"""The client: brokers, leaders of partitions, and connections on demand."""

from __future__ import annotations

import asyncio
import difflib
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from msgspec import Struct, field

from magicbyte.access.client.connection import Connection
from magicbyte.access.client.login import Credentials
from magicbyte.access.client.versions import BrokerVersions
from magicbyte.access.clock import SystemClock, uniform
from magicbyte.engine.addresses import addresses
from magicbyte.engine.errors import BrokerError, ErrorCode, NetworkError, ProtocolError, UnknownTopicError
from magicbyte.engine.internal_topics import INTERNAL
from magicbyte.engine.protocol import APIS, NULL_UUID, Message
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from magicbyte.access.net.network import Network
    from magicbyte.access.security.settings import ClientSecurity
    from magicbyte.engine.ports import Clock

T = TypeVar("T")
M = TypeVar("M", bound=Message)

RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.LISTENER_NOT_FOUND, ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)  # fmt: skip
"""Transient errors. A damaged set (2), which Kafka's own client sends again, stays damaged."""

_COORDINATOR_STAYS: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS})

UNKNOWN_MS: Final = 10_000
"""How long UNKNOWN_SERVER_ERROR is retried: brokers return it while they stop or start, and for permanent faults."""

LONGEST_BACKOFF_MS: Final = 1000
_METADATA = range(13)  # version 13 adds nothing needed here
_COORDINATOR = (range(4), range(1, 4))  # by kind; from version 4 on a request has many keys

GROUP: Final = 0
TRANSACTION: Final = 1
"""Kinds of coordinators, as FindCoordinator has them. Brokers from 0.11 on know those of transactions."""


class BrokerNode(Struct, frozen=True):
    """A broker. Bootstrap servers have no id: -1."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.id < 0 else f"broker {self.id} ({host}:{self.port})"


class Partition(Struct, frozen=True):
    """A partition as the cluster sees it. `leader` is a broker's id, -1 while there is none; `error` Kafka's code.

    `offline`: replicas that are unreachable or on a failed disk, from brokers from 1.0 on.
    """

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: int
    offline: tuple[int, ...] = ()


class Topic(Struct, frozen=True):
    """A topic and its partitions by number. `error` is Kafka's code, 0 if all is well. `id`: brokers from 2.8 on."""

    name: str
    is_internal: bool
    partitions: dict[int, Partition]
    error: int
    id: uuid.UUID | None = None

    @property
    def is_own(self) -> bool:
        """Whether it belongs to the brokers themselves, which those before 0.10 do not report."""
        return self.is_internal or self.name in INTERNAL

    @property
    def replicas(self) -> int:
        """The number of replicas of its partitions. They differ during a reassignment: then the largest number."""
        return max((len(each.replicas) for each in self.partitions.values()), default=0)

    def to_json(self) -> dict[str, Any]:
        """Return the topic as JSON."""
        return {
            "topic": self.name,
            "partitions": len(self.partitions),
            "replicas": self.replicas,
            "internal": self.is_own,
        }


class _KnownTopic(Struct):
    topic: Topic
    at_ms: int


class ClusterMetadata(Struct):
    """The latest metadata of the cluster. `controller` is the id of the broker for changes, None before 0.10."""

    brokers: dict[int, BrokerNode] = field(default_factory=dict)
    cluster_id: str | None = None
    controller: int | None = None


class Client:
    """A client of one cluster. Any number of tasks of its event loop may use it.

    `bootstrap`: one or more `host:port`, of which any may be down. `request_timeout_ms`: for a response, beyond the
    time that the request itself allows the broker. `retry_ms`: how long transient failures are retried; 0: never.
    `clock`, `jitter` (a random number between two) and `network` are by default this machine's. `security`: TLS and
    SASL; the files that it names are read now.

    Raises ValueError for an invalid address, InvalidConfigError.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str = "magicbyte",
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        retry_ms: int = 30_000,
        backoff_ms: int = 50,
        metadata_max_age_ms: int = 300_000,
        clock: Clock | None = None,
        jitter: Callable[[float, float], float] | None = None,
        network: Network | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        names = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        self.bootstrap = [BrokerNode(-1, host, port) for host, port in addresses(names)]
        self.cluster = ClusterMetadata()
        self.request_timeout_ms = request_timeout_ms
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._retry_ms = retry_ms
        self._backoff_ms = backoff_ms
        self._metadata_max_age_ms = metadata_max_age_ms
        self.clock = clock or SystemClock()
        self._jitter = jitter or uniform
        self._network = network
        self._credentials = Credentials.of(security)
        self._retiring: set[asyncio.Task[None]] = set()
        self._connections: dict[BrokerNode, Connection] = {}
        self._opening: dict[BrokerNode, asyncio.Lock] = {}
        self._topics: dict[str, _KnownTopic] = {}
        self._coordinators: dict[tuple[int, str], BrokerNode] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        connections, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(connection.aclose() for connection in connections))
        for task in self._retiring:
            task.cancel()

    # ---- requests

    async def connection(self, node: BrokerNode) -> Connection:
        """Return the connection to a broker, opened if need be. Raises NetworkError."""
        known = self._connections.get(node)
        if known is not None and not known.is_closed and not known.is_stale:
            return known
        async with self._opening.setdefault(node, asyncio.Lock()):
            connection = self._connections.get(node)
            if connection is not None and connection.is_closed:
                await self._connections.pop(node).aclose()
                connection = None
            if connection is not None and connection.is_stale:
                self._retire(self._connections.pop(node))
                connection = None
            if connection is None:
                connection = await Connection.open(
                    node.host,
                    node.port,
                    client_id=self._client_id,
                    name=str(node),
                    timeout_ms=self._connect_timeout_ms,
                    network=self._network,
                    credentials=self._credentials,
                )
                self._connections[node] = connection
            return connection

    def _retire(self, connection: Connection) -> None:
        """Close a connection after its pending requests."""
        task = asyncio.create_task(connection.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def versions(self) -> BrokerVersions:
        """Return the request versions of a broker known from metadata. Raises NetworkError."""
        node = next(iter(self.cluster.brokers.values()))
        return (await self.connection(node)).versions

    async def ask(
        self, node: BrokerNode, request: Message, response: type[M], *, versions: range | None = None, wait_ms: int = 0
    ) -> M:
        """Send a request to a broker once and return its response. The request lets the broker wait for `wait_ms`."""
        connection = await self.connection(node)
        timeout_ms = self.request_timeout_ms + wait_ms
        found = await connection.send(request, response, versions=versions, timeout_ms=timeout_ms)
        assert isinstance(found, response)
        return found

    async def ask_any(self, request: Message, response: type[M], *, versions: range | None = None) -> M:
        """Send a request to any broker that responds: connected ones first, then the others in turn."""
        return await self._from_any(lambda node: self.ask(node, request, response, versions=versions))

    async def _from_any(self, ask: Callable[[BrokerNode], Awaitable[T]]) -> T:
        nodes = [*self.cluster.brokers.values(), *self.bootstrap]
        nodes.sort(key=lambda node: node not in self._connections)
        failures = []
        for node in dict.fromkeys(nodes):
            try:
                return await ask(node)
            except NetworkError as error:
                failures.append(str(error))
        raise _silence(failures)

    async def any_connection(self) -> Connection:
        """Return a connection to any broker, preferably an open one. Raises NetworkError."""
        failures = []
        for node in dict.fromkeys([*self._connections, *self.cluster.brokers.values(), *self.bootstrap]):
            try:
                return await self.connection(node)
            except NetworkError as error:
                failures.append(str(error))
        raise _silence(failures)

    async def retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `attempt`. Retry transient failures with exponential back-off."""
        end, backoff = self.clock.monotonic_ms() + self._retry_ms, self._backoff_ms
        unknown_end: int | None = None  # while the broker gives no specific error
        while True:
            try:
                return await attempt()
            except (BrokerError, NetworkError) as error:
                now = self.clock.monotonic_ms()
                if error.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                    unknown_end = None
                elif unknown_end is None:
                    unknown_end = now + UNKNOWN_MS
                if not _may_pass(error) or now >= min(end, unknown_end or end):
                    raise
            await asyncio.sleep(backoff * self._jitter(0.8, 1.2) / 1000)
            backoff = min(2 * backoff, LONGEST_BACKOFF_MS)

    # ---- metadata

    async def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        """Request topics, all if `names` is None, and return them by name, also those with errors.

        Brokers before 0.11 with `auto.create.topics.enable` create topics that are requested by name.
        """

        async def ask(node: BrokerNode) -> MetadataResponse:
            connection = await self.connection(node)  # the request is built for its version, as brokers may differ
            latest = connection.versions.choose(APIS[ApiKey.METADATA], _METADATA, connection.name)
            topics = (
                None if names is None and latest >= 1 else [MetadataRequestTopic(name=name) for name in names or ()]
            )
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=latest < 4)
            return await self.ask(node, request, MetadataResponse, versions=range(latest + 1))

        response = await self._from_any(ask)
        self._learn(response)
        return {each.name: self._topics[each.name].topic for each in response.topics if each.name is not None}

    async def existing_topic(self, name: str) -> Topic:
        """Return a topic without creating it: all topics are requested, since old brokers create those that are named.

        Raises UnknownTopicError, which lists similar names.
        """
        topics = await self.topics()
        if name not in topics:
            near = difflib.get_close_matches(name, topics, 3)
            there = (
                f"is it {' or '.join(map(repr, near))}?"
                if near
                else f"no similarly named topic among the {len(topics)} that exist"
            )
            raise UnknownTopicError(f"topic {name!r}: expected on the brokers, found none of that name: {there}")
        return topics[name]

    async def topic(self, name: str) -> Topic:
        """Return a topic from the cached metadata, refreshed if it is too old. Raises BrokerError."""
        known = self._topics.get(name)
        if known is None or self.clock.monotonic_ms() - known.at_ms > self._metadata_max_age_ms:
            topic = only([each for each in (await self.topics([name])).values() if each.name == name], "topics")
        else:
            topic = known.topic
        if topic.error:
            self.forget(name)
            raise BrokerError(f"topic {name}", topic.error, broker="the cluster")
        return topic

    async def leader(self, topic: str, partition: int) -> BrokerNode:
        """Return the broker that leads a partition. Raises BrokerError."""
        known = (await self.topic(topic)).partitions.get(partition)
        node = None if known is None else self.cluster.brokers.get(known.leader)
        if node is None:
            self.forget(topic)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else ErrorCode.LEADER_NOT_AVAILABLE
            raise BrokerError(f"leader of {topic}-{partition}", code, broker="the cluster")
        return node

    def forget(self, topic: str) -> None:
        """Invalidate the cached metadata of a topic."""
        self._topics.pop(topic, None)

    async def controller(self) -> BrokerNode:
        """Return the controller. Raises BrokerError, at once for brokers before 0.10, which do not name it."""
        if self.cluster.controller is None or self.cluster.controller not in self.cluster.brokers:
            await self.topics([])
        node = self.cluster.brokers.get(-1 if self.cluster.controller is None else self.cluster.controller)
        connection = await self.any_connection()
        if node is None and connection.versions.latest(APIS[ApiKey.METADATA]) == 0:
            why = "brokers before 0.10 do not report the controller"
            raise BrokerError("controller", ErrorCode.UNSUPPORTED_VERSION, broker=connection.name, detail=why)
        if node is None:
            raise BrokerError("controller", ErrorCode.NOT_CONTROLLER, broker="the cluster")
        return node

    def forget_controller(self) -> None:
        """Invalidate the cached controller."""
        self.cluster.controller = None

    async def coordinator(self, name: str, kind: int = GROUP) -> BrokerNode:
        """Return the coordinator of a group, or of a transactional id with `kind` TRANSACTION. Raises BrokerError."""
        known = self._coordinators.get((kind, name))
        if known is None:
            request = FindCoordinatorRequest(key=name, key_type=kind)
            found = await self.ask_any(request, FindCoordinatorResponse, versions=_COORDINATOR[kind])
            if found.error_code:
                raise BrokerError(f"coordinator of {name}", found.error_code, broker="the cluster")
            known = self._coordinators[kind, name] = BrokerNode(found.node_id, found.host, found.port)
        return known

    def forget_coordinator(self, name: str, kind: int = GROUP) -> None:
        """Invalidate a cached coordinator."""
        self._coordinators.pop((kind, name), None)

    async def at_leader(self, topic: str, partition: int, attempt: Callable[[BrokerNode], Awaitable[T]]) -> T:
        """Return the result of `attempt` at the leader of a partition, retried at the new leader if it has moved."""

        async def once() -> T:
            node = await self.leader(topic, partition)
            try:
                return await attempt(node)
            except (BrokerError, NetworkError):
                self.forget(topic)
                raise

        return await self.retried(once)

    async def at_broker(self, broker_id: int, attempt: Callable[[BrokerNode], Awaitable[T]]) -> T:
        """Return the result of `attempt` at a broker, with retries. Raises BrokerError for an unknown broker."""

        async def once() -> T:
            if broker_id not in self.cluster.brokers:
                await self.topics([])
            node = self.cluster.brokers.get(broker_id)
            if node is None:
                raise BrokerError(f"broker {broker_id}", ErrorCode.BROKER_NOT_AVAILABLE, broker="the cluster")
            return await attempt(node)

        return await self.retried(once)

    async def at_controller(self, attempt: Callable[[BrokerNode], Awaitable[T]]) -> T:
        """Return the result of `attempt` at the controller, retried at the new one if it has moved."""

        async def once() -> T:
            node = await self.controller()
            try:
                return await attempt(node)
            except (BrokerError, NetworkError):
                self.forget_controller()
                raise

        return await self.retried(once)

    async def at_coordinator(self, name: str, attempt: Callable[[BrokerNode], Awaitable[T]], kind: int = GROUP) -> T:
        """Return the result of `attempt` at a coordinator, retried at the new one if it has moved."""

        async def once() -> T:
            node = await self.coordinator(name, kind)
            try:
                return await attempt(node)
            except (BrokerError, NetworkError) as error:
                if error.code not in _COORDINATOR_STAYS:
                    self.forget_coordinator(name, kind)
                raise

        return await self.retried(once)

    def _learn(self, response: MetadataResponse) -> None:
        brokers = {
            topic_answer.node_id: BrokerNode(topic_answer.node_id, topic_answer.host, topic_answer.port)
            for topic_answer in response.brokers
        }
        if brokers:
            self.cluster.brokers = brokers
        self.cluster.cluster_id = response.cluster_id
        self.cluster.controller = response.controller_id if response.controller_id >= 0 else None
        for topic_answer in response.topics:
            if topic_answer.name is not None:
                partitions = {
                    part.partition_index: Partition(
                        part.partition_index, part.leader_id, part.leader_epoch, tuple(part.replica_nodes),
                        tuple(part.isr_nodes), part.error_code, tuple(part.offline_replicas),
                    )
                    for part in topic_answer.partitions
                }  # fmt: skip
                known = None if topic_answer.topic_id == NULL_UUID else topic_answer.topic_id
                topic = Topic(topic_answer.name, topic_answer.is_internal, partitions, topic_answer.error_code, known)
                self._topics[topic_answer.name] = _KnownTopic(topic, self.clock.monotonic_ms())


def _may_pass(error: BrokerError | NetworkError) -> bool:
    """Return whether a retry may succeed. Unknown codes are not retried."""
    return error.code in RETRIABLE and getattr(error, "number", error.code) == error.code


def _silence(failures: Sequence[str]) -> NetworkError:
    return NetworkError("no broker answers: " + "; ".join(failures))


def only(items: Sequence[T], what: str) -> T:
    """Return the only element of a response. Raises ProtocolError if there are more or none."""
    if len(items) != 1:
        raise ProtocolError(what, expected="one", found=len(items), position=None)
    return items[0]
