"""A broker's membership in a cluster with ZooKeeper: its session of the tree, and its registration.

An expired session is replaced by a new one, in which the broker registers again: the controller treats it as restarted,
and sends its roles again. Source: Kafka's KafkaServer and KafkaZkClient.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.changes import ControllerChanged
from magicbyte.engine.errors import (
    InvalidConfigError,
    MagicbyteError,
    NetworkError,
    SessionExpiredError,
    code_of,
)
from magicbyte.engine.extras import require
from magicbyte.engine.ports import SessionEvent
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH
from magicbyte.server.metadata.current import CurrentStore
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.settings.offer import TRANSACTION_VERSION
from magicbyte.server.stores.controller import ControllerService
from magicbyte.server.stores.links import Links
from magicbyte.server.stores.topic_control import AnnouncedTopics
from magicbyte.server.stores.znodes import cluster
from magicbyte.server.stores.znodes.clients import secret_of_decoys
from magicbyte.server.stores.znodes.controller_tree import ElectionNodes
from magicbyte.server.stores.znodes.member_store import MemberStore
from magicbyte.server.stores.znodes.states import StateNodes
from magicbyte.server.stores.znodes.writing import WritingTerms

if TYPE_CHECKING:
    from magicbyte.engine.cluster.brokers import Registration
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.ports import MetadataStore, SessionListener
    from magicbyte.server.metadata.on_loop import OpenSession
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.serving.threads import Threads
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.topics import Topics
    from magicbyte.server.stores.znodes.zookeeper_security import ZooKeeperSecurity

log = logger(__name__)

_RETRY_S: Final = 1.0
_EXPIRY_MS: Final = 12_000  # after its timeout, for an earlier session to end: servers check in steps
_MOST_REFUSALS: Final = 5
"""New sessions in a row in which a broker is refused, for a reason other than the connection."""


class ZooKeeperMembership:
    """A member of a cluster: a `Membership`. `store` is the tree of the current session, for coroutines."""

    cluster_id: str
    cluster_store: MemberStore
    topic_control = AnnouncedTopics()
    takes_orders = True
    links: Links
    controller: ControllerService

    def __init__(self, config: BrokerConfig, session: OpenSession) -> None:
        config.is_in_cluster = True
        self._config, self._session = config, session
        self.offer = config.offer.in_a_cluster(config.inter_broker_protocol_version)
        self._current = CurrentStore()
        self.metadata: MetadataStore = self._current
        self.broker_epoch = NO_EPOCH
        self.store: LoopStore
        self._runtime: Runtime
        self._threads: Threads
        self._logs: LogDirectory
        self._opened = AsyncExitStack()
        self.states = StateNodes(lambda: self.store)
        self._registration: Callable[[], Registration] | None = None
        self._is_leaving = False
        self._renewal: asyncio.Task[None] | None = None
        self._sessions = 0  # number of sessions begun
        self._lapsed: Callable[[], None]

    # ---- sessions

    async def open(
        self, runtime: Runtime, threads: Callable[[str, int], Threads], _path: str, known_id: str | None
    ) -> None:
        """Begin the first session: see `Membership.open`."""
        self._runtime = runtime
        self.links = await runtime.reading.run(Links.of, runtime)
        self._threads = threads("metadata", 1)
        self._opened.callback(self._threads.close)
        await self._begin_session()
        self._opened.push_async_callback(lambda: self.store.close())
        self.cluster_store = MemberStore(
            self.metadata,
            lambda: self.store,
            runtime.reading,
            runtime.writing,
            runtime.spawn,
            lambda: WritingTerms.of(self._config, runtime.clock.now_ms()),
            max(cluster.PATIENCE_MS, self._config.zookeeper_session_timeout_ms + _EXPIRY_MS),
        )
        self.cluster_id = cluster.found_cluster(self.metadata, known_id, runtime.new_uuid)
        await self.cluster_store.start()
        self.controller = ControllerService(
            self._elections(),
            runtime.node_id,
            runtime.config,
            protocol=runtime.config.inter_broker_protocol_version,
            spawn=runtime.spawn,
            new_id=runtime.new_uuid,
            connect=self.links.connect,
            on_change=self._controller_changed,
        )

    @property
    def announcements(self) -> MemberStore:
        """Take what the controller announces."""
        return self.cluster_store

    def _elections(self) -> ElectionNodes:
        """Return the elections of the current session."""
        runtime = self._runtime
        protocol = runtime.config.inter_broker_protocol_version
        return ElectionNodes(self.store, runtime.node_id, runtime.clock.now_ms, protocol)

    def _controller_changed(self) -> None:
        self.cluster_store.follow([ControllerChanged(self.controller.controller_id, self.controller.epoch)])

    async def _begin_session(self) -> None:
        self._sessions = number = self._sessions + 1

        def session(*, listener: SessionListener) -> MetadataStore:
            opened = self._session(listener=listener)
            self._current.renew(opened)
            return opened

        def told(event: SessionEvent) -> None:
            # otherwise the event is late: the session has been replaced already after an error
            if number == self._sessions:
                self._session_event(event)

        self.store = await LoopStore.open(session, self._threads.run, told)

    def _session_event(self, event: SessionEvent) -> None:
        log.info("session of the metadata tree: %s", event.value)
        if self._registration is not None:
            self.controller.session_event(event)
            if event is SessionEvent.EXPIRED:
                self._lapsed()
            if event is SessionEvent.EXPIRED and not self._is_leaving:
                if self._renewal is not None:
                    self._renewal.cancel()  # it was renewing into the session that has expired now
                self._renewal = self._runtime.spawn(self._renew(self._renewal))

    async def _renew(self, earlier: asyncio.Task[None] | None = None) -> None:
        """Continue in a new session, as soon as there is one; without a tree for as long as that takes.

        A broker that is refused again and again has failed: another one has its number, or other features. `earlier`: a
        cancelled renewal, which ends first: until the work of its thread is done it may close the session in use.
        """
        if earlier is not None:
            await asyncio.wait({earlier})
        refusals = 0
        while True:
            try:
                await self._begin_session()
                await self._register()
                await self.controller.renew(self._elections())
                self.cluster_store.session_renewed()
            except MagicbyteError as error:
                with suppress(MagicbyteError):  # open, its registration would keep out that of the next one
                    await self.store.close()
                refusals = 0 if isinstance(error, NetworkError | SessionExpiredError) else refusals + 1
                if refusals >= _MOST_REFUSALS:
                    self._runtime.fail(error)
                    return
                log.warning("cannot resume in a new session of the metadata tree yet: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    # ---- what was opened

    def logs_opened(self, logs: LogDirectory) -> None:
        """Note the logs: formats follow from the settings, and the controller says what is led."""
        self._logs = logs

    async def topics_opened(self, _topics: Topics) -> None:
        """Read the topics of the logs; the controller tells of others."""
        await self.cluster_store.announced({key.topic for key in self._logs.logs})

    def secret_of_decoys(self) -> bytes:
        """Return the cluster's secret for the challenges of unknown users. Blocks. Raises MetadataError."""
        return secret_of_decoys(self.metadata)

    # ---- joining and leaving

    async def wait_for_earlier_session(self) -> None:
        """Wait until this broker's registration before a crash has expired. Raises NodeExistsError if it stays."""
        await self.cluster_store.wait_for_earlier_session(self._runtime.node_id)

    async def join(self, registration: Callable[[], Registration], lapsed: Callable[[], None]) -> None:
        """Register the broker, and stand for election: see `Membership.join`.

        An expired session is renewed meanwhile.
        """
        self._registration, self._lapsed = registration, lapsed
        try:
            await self._register()
        except SessionExpiredError as error:
            log.warning("%s: the broker joins in a new session", error)
            if self._renewal is None:  # the event comes after the error, or came before this call
                self._renewal = self._runtime.spawn(self._renew())
        await self.controller.start()

    async def _register(self) -> None:
        assert self._registration is not None, "called after `join`"
        number, level = self._runtime.node_id, self.offer.transaction_version
        content = replace(self._registration(), features={TRANSACTION_VERSION: level} if level else {})
        self.broker_epoch = await self.cluster_store.register(number, content)
        log.info("registered as broker %d, epoch %d", number, self.broker_epoch)

    async def leave(self, view: ClusterView) -> None:
        """Ask the controller to move leadership away, then stop being a candidate."""
        if self._registration is None:
            return
        self._is_leaving = True
        config = self._runtime.config
        if config.controlled_shutdown_enable:
            for attempt in range(config.controlled_shutdown_max_retries):
                if attempt:
                    await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
                try:
                    if await self._shut_down(view):
                        break
                except MagicbyteError as error:
                    log.warning("controlled shutdown: %s", error)
            else:
                log.warning("the broker stops without handing over its leadership")
        await self.controller.stop()

    async def _shut_down(self, view: ClusterView) -> bool:
        """Ask the controller once; return whether no partition is left."""
        node_id, config, controller_id = self._runtime.node_id, self._runtime.config, self.controller.controller_id
        address = None if controller_id == NO_BROKER else view.inter_broker_address(controller_id)
        if address is None:
            raise NetworkError("no controller is known")
        timeout_ms = config.controller_socket_timeout_ms
        link = await self.links.connect(
            controller_id,
            *address,
            protocol=config.inter_broker_protocol_version,
            client_id=str(node_id),
            timeout_ms=timeout_ms,
        )
        try:
            request = ControlledShutdownRequest(broker_id=node_id, broker_epoch=self.broker_epoch)
            response = await link.send(request, timeout_ms=timeout_ms)
        finally:
            await link.aclose()
        assert isinstance(response, ControlledShutdownResponse), "the generated class"
        if response.error_code:
            code = code_of(response.error_code).name
            raise NetworkError(f"broker {controller_id}, the controller, answered {code}")
        left = response.remaining_partitions
        if left:
            named = ", ".join(f"{each.topic_name}-{each.partition_index}" for each in left[:10])
            log.warning("controlled shutdown: no other replica can lead %d partitions, among them %s", len(left), named)
        return not left

    async def close(self) -> None:
        """End the session, if there is one."""
        await self._opened.aclose()

    def abandon(self) -> None:
        """Leave the session to expire, as a crash does."""
        self._threads.close()


def zookeeper_session(config: BrokerConfig) -> OpenSession:
    """Return the function that opens a session of the configured ZooKeeper. Raises InvalidConfigError."""
    require("cluster", "zookeeper.connect")
    from magicbyte.server.metadata.zookeeper import ZooKeeperStore

    assert config.zookeeper_connect is not None, "otherwise the broker is a cluster by itself"
    return partial(
        ZooKeeperStore,
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        security=_security(config),
    )


def _security(config: BrokerConfig) -> ZooKeeperSecurity | None:
    """Return how the settings secure sessions. Raises InvalidConfigError."""
    if not config.zookeeper_ssl_client_enable:
        if config.zookeeper_set_acl:
            why = "expected zookeeper.ssl.client.enable=true: ZooKeeper must authenticate the creator of a node"
            raise InvalidConfigError(f"zookeeper.set.acl: {why}")
        return None
    from magicbyte.server.stores.znodes.zookeeper_security import ZooKeeperSecurity

    if config.zookeeper_ssl_keystore_location is None:
        raise InvalidConfigError("zookeeper.ssl.keystore.location: expected a PEM file with a certificate and its key")
    return ZooKeeperSecurity(
        config.zookeeper_ssl_keystore_location,
        config.zookeeper_ssl_truststore_location,
        config.zookeeper_ssl_keystore_password,
        checks_host=bool(config.zookeeper_ssl_endpoint_identification_algorithm),
        sets_acls=config.zookeeper_set_acl,
    )
