"""A broker's membership in a cluster: its session of the tree, and its registration.

An expired session is replaced by a new one, in which the broker registers again: the controller treats it as restarted,
and sends its roles again. Source: Kafka's KafkaServer and KafkaZkClient.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import (
    MagicbyteError,
    NetworkError,
    SessionExpiredError,
    code_of,
)
from magicbyte.engine.ports import SessionEvent
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.server.metadata.current import CurrentStore
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.stores.controller import ControllerService
from magicbyte.server.stores.znodes import cluster
from magicbyte.server.stores.znodes.features import finalize

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore, SessionListener
    from magicbyte.server.metadata.on_loop import OpenSession
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.serving.threads import Threads
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.links import Links
    from magicbyte.server.stores.znodes.cluster import OwnRegistration

log = logger(__name__)

_RETRY_S: Final = 1.0
_EXPIRY_MS: Final = 12_000  # after its timeout, for a session to end: servers check in steps
_MOST_REFUSALS: Final = 5
"""New sessions in a row in which a broker is refused, for a reason other than the connection."""


class Membership:
    """A member of a cluster. `current` is the tree for threads, `store` the same for coroutines.

    `broker_epoch` is that of the registration: the controller's requests to an earlier one are refused.
    """

    def __init__(
        self,
        runtime: Runtime,
        links: Links,
        session: OpenSession,
        threads: Threads,
        *,
        session_renewed: Callable[[], None],
        controller_changed: Callable[[int, int], None],
    ) -> None:
        """`session_renewed` is called in each new session, after the registration; `controller_changed` with the id and
        the epoch of each controller.
        """
        self._runtime, self._links, self._session, self._threads = runtime, links, session, threads
        self._session_renewed, self._controller_changed = session_renewed, controller_changed
        self.current = CurrentStore()
        self.store: LoopStore
        self.controller: ControllerService
        self.broker_epoch = -1
        self._registration: Callable[[], OwnRegistration] | None = None
        self._is_leaving = False
        self._renewal: asyncio.Task[None] | None = None
        self._sessions = 0  # number of sessions begun

    # ---- sessions

    async def open(self) -> None:
        """Begin the first session. Raises NetworkError, MetadataError; then there is nothing to close."""
        try:
            await self._begin_session()
        except BaseException:
            self._threads.close()
            raise

    async def _begin_session(self) -> None:
        self._sessions = number = self._sessions + 1

        def session(*, listener: SessionListener) -> MetadataStore:
            opened = self._session(listener=listener)
            self.current.renew(opened)
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
                await self.controller.renew(self.store)
                self._session_renewed()
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

    # ---- joining and leaving

    async def wait_for_earlier_session(self) -> None:
        """Wait until this broker's registration before a crash has expired. Raises NodeExistsError if it stays."""
        await cluster.wait_for_earlier_session(self.store, self._runtime.node_id, self._session_expiry_timeout_ms)

    @property
    def _session_expiry_timeout_ms(self) -> int:
        """How long an earlier session of this broker, probably with the same timeout, may take to expire."""
        return max(cluster.PATIENCE_MS, self._runtime.config.zookeeper_session_timeout_ms + _EXPIRY_MS)

    def candidate(self) -> ControllerService:
        """Return the service that `join` starts as a candidate."""
        runtime = self._runtime
        self.controller = ControllerService(
            self.store,
            runtime.node_id,
            runtime.clock,
            runtime.config,
            protocol=runtime.config.inter_broker_protocol_version,
            spawn=runtime.spawn,
            new_id=runtime.new_uuid,
            connect=self._links.connect,
            on_change=lambda: self._controller_changed(self.controller.controller_id, self.controller.epoch),
        )
        return self.controller

    async def join(self, registration: Callable[[], OwnRegistration]) -> None:
        """Register the broker, which listens already; stand for election. An expired session is renewed meanwhile.

        Raises NodeExistsError for an id in use, InvalidConfigError if other brokers have other features.
        """
        self._registration = registration
        try:
            await self._register()
        except SessionExpiredError as error:
            log.warning("%s: the broker joins in a new session", error)
            if self._renewal is None:  # the event comes after the error, or came before this call
                self._renewal = self._runtime.spawn(self._renew())
        await self.controller.start()

    async def _register(self) -> None:
        assert self._registration is not None, "called after `join`"
        number, level = self._runtime.node_id, self._runtime.offer.transaction_version
        await finalize(self.store, number, level)
        self.broker_epoch = await cluster.register(
            self.store, number, self._registration(), self._session_expiry_timeout_ms
        )
        await finalize(self.store, number, level)
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
        link = await self._links.connect(
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
        """End the session."""
        await self.store.close()
        self._threads.close()

    def abandon(self) -> None:
        """Leave the session to expire, as a crash does."""
        self._threads.close()
