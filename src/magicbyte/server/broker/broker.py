"""A broker: its parts, start and stop. Requests are handled by the other modules.

One event loop; threads for work that would block it: slow disks, large sets.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magicbyte.access.net import descriptors
from magicbyte.access.net.network import Network
from magicbyte.access.net.server import Entrance, Handler, PeerLimits, Server
from magicbyte.engine.cluster.brokers import BrokerEndpoint, Registration
from magicbyte.engine.cluster.changes import DamageChanged, SettingsChanged
from magicbyte.engine.cluster.image import ConfigEntity, EntityKind, settings_part
from magicbyte.engine.errors import CorruptRecordError, InvalidConfigError, LogDirectoryError, MetadataError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import parse_file
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.live.log_directory import Identity, LogDirectory, Settings
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.records.layout import Dialect
from magicbyte.server.apis.broker_parts import BrokerParts
from magicbyte.server.apis.broker_routes import BROKER_ROUTES
from magicbyte.server.apis.sessions import Sessions
from magicbyte.server.broker import adoption
from magicbyte.server.coordinating.coordinator_services import CoordinatorServices
from magicbyte.server.coordinating.coordinators import Coordinators
from magicbyte.server.partitions.appends import Appends
from magicbyte.server.partitions.background import Background
from magicbyte.server.partitions.replicas import Replicas
from magicbyte.server.partitions.syncs import Syncs
from magicbyte.server.partitions.throttles import ReplicationThrottle
from magicbyte.server.serving.dispatch import FIRST_ASKED, Dispatcher, Router
from magicbyte.server.serving.request import ClientConnection
from magicbyte.server.serving.runtime import Runtime
from magicbyte.server.serving.threads import SystemThreads, Threads
from magicbyte.server.settings.kept_format import warn_beyond
from magicbyte.server.stores.cluster_view import ClusterView
from magicbyte.server.stores.membership import membership_of
from magicbyte.server.stores.topic_logs import log_config_of, refused_of
from magicbyte.server.stores.topics import Topics

if TYPE_CHECKING:
    from random import Random

    from magicbyte.access.net.http import Pages
    from magicbyte.engine.cluster.changes import ClusterChange
    from magicbyte.engine.cluster.image import ClusterImage
    from magicbyte.engine.cluster.store import ClusterStore
    from magicbyte.engine.ports import Clock, MetadataStore, WritableFileSystem
    from magicbyte.server.coordinating.groups import Groups
    from magicbyte.server.coordinating.transactions import Transactions
    from magicbyte.server.metadata.on_loop import OpenSession
    from magicbyte.server.partitions.in_sync import Replication
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.settings.listeners import Listener
    from magicbyte.server.stores.authorizer import Authorizer
    from magicbyte.server.stores.peers import Peers

log = logger(__name__)

_MOST_OPEN_FILES: Final = 1 << 16
GRACE_MS: Final = 5000  # for requests in progress when the broker stops


class Broker:
    """One broker. `start` it, and `stop` it on the same event loop.

    Its `membership` knows whether it is a cluster by itself, and leads all partitions, or has the tree of a cluster:
    `session` opens that, or `zookeeper.connect` names it.

    It creates all other objects of `broker/` and gives each the parts that it uses; none is given the broker
    (docs/decisions/0015). `runtime` exists from the beginning, `parts` once the logs are open. `ports` are the
    listening ports, by listener.

    `clock`, `files`, `threads`, `network` and `random` are by default this machine's. `around` is for tests: it is
    called with the handler of a connection, and returns its replacement. `repairs`: logs that cannot be opened
    otherwise lose their damaged parts, which go to the quarantine; without it their partitions are offline.
    """

    cluster_id: str
    metadata: MetadataStore
    cluster_store: ClusterStore
    logs: LogDirectory
    topics: Topics
    cluster_view: ClusterView
    appends: Appends
    parts: BrokerParts
    """All parts, as handlers get them."""
    http_port: int
    authorizer: Authorizer | None = None
    """Decides by ACLs; None: everything is allowed."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        files: WritableFileSystem | None = None,
        session: OpenSession | None = None,
        threads: Callable[[str, int], Threads] = SystemThreads,
        network: Network | None = None,
        random: Random | None = None,
        around: Callable[[Broker, Handler], Handler] | None = None,
        repairs: bool = False,
    ) -> None:
        self.config = config
        self._around, self._repairs = around, repairs
        self.membership = membership_of(config, session, adoption.adopt)
        offer = self.membership.offer
        self.runtime = Runtime(config, offer, clock=clock, random=random, network=network, threads=threads)
        self.runtime.slow_ns = _slow_ns(config)
        self.node_id, self.metrics = self.runtime.node_id, self.runtime.metrics
        self.clock, self.random = self.runtime.clock, self.runtime.random
        self.reading, self.writing = self.runtime.reading, self.runtime.writing
        self.ports: dict[str, int] = {}
        self._files, self._threads = files or LocalFiles(), threads
        self._opened = contextlib.AsyncExitStack()  # closed at the end, in reverse order
        self._server: Server[Listener] | None = None
        self._syncs = Syncs(self.runtime)
        self._background: Background | None = None
        self._pages: Pages | None = None
        self._clients = weakref.WeakSet[ClientConnection]()

    # ---- starting and stopping

    async def start(self) -> None:
        """Open the log directory, with recovery if needed, and listen.

        Raises LogDirectoryError if another process has the directory, InvalidConfigError, NetworkError for an
        unavailable address; then nothing is left open.
        """
        loading = asyncio.create_task(
            self.reading.run(BROKER_ROUTES.load_all, FIRST_ASKED)
        )  # while the disk is awaited
        await asyncio.sleep(0)
        try:
            await self._open()
            self._background = background = Background(self.runtime, self.logs, self.topics)
            self._make_services(background)
            self.cluster_store.subscribe(self.runtime.quotas.cluster_changed)
            self.cluster_store.subscribe(self._cluster_changed)
            if self.config.authorizer_class_name:
                from magicbyte.server.stores.authorizer import Authorizer

                await self.cluster_store.follow_acls()
                self.authorizer = Authorizer(self.config, self.cluster_store)
            self.parts = self._all_parts(background)
            await self._listen()
            await loading
        except BaseException:
            await self.stop()
            raise
        background.start()
        if self.config.replica_scrub_interval_ms:
            from magicbyte.server.partitions.scrubbing import Scrubbing

            self.runtime.spawn(Scrubbing(self.runtime, self.logs, self.replicas, background, self._peers()).run())
        self.coordinators.start()

    async def _open(self) -> None:
        path, membership = str(Path(self.config.log_directory).absolute()), self.membership
        self._opened.push_async_callback(membership.close)
        await membership.open(self.runtime, self._threads, path, _known_cluster_id(self._files, path))
        self.metadata, self.cluster_id = membership.metadata, membership.cluster_id
        self.cluster_store = store = membership.cluster_store
        self._apply_settings(store.image)
        self.runtime.slow_ns = _slow_ns(self.config)
        settings = Settings(
            config_of=log_config_of(
                lambda: store.image, self.config, dialect_of=partial(_dialect_of, self._files, path)
            ),
            token=lambda: self.runtime.new_uuid().hex,
            identity=Identity(self.node_id, self.cluster_id),
            jitter=lambda most: self.random.randint(0, most),
            refused=refused_of(lambda: store.image),
            repairs=self._repairs,
            max_open_files=self.config.max_open_files or min(descriptors.limit() // 2, _MOST_OPEN_FILES),
            checkpoint_lock=threading.Lock(),
        )
        self.logs = LogDirectory.open(self._files, path, settings, monotonic_ms=self.clock.monotonic_ms())
        self._opened.push_async_callback(self.writing.run, self.logs.close)
        for note in self.logs.notes:
            log.warning("%s", note)
        for key, partition in self.logs.offline.items():
            log.error("partition %s is offline, the others are served: %s", key, partition.why)
        for key, each in self.logs.logs.items():
            for cut in each.loaded.cuts:
                log.warning("%s: recovery %s", key, cut)
        membership.logs_opened(self.logs)
        self.topics = Topics(
            store,
            self.config,
            self.logs,
            self.clock,
            self.writing,
            self.runtime.new_uuid,
            control=membership.topic_control,
            brokers=lambda: self.cluster_view.broker_ids(),
            racks=lambda: self.cluster_view.racks(),
            draw=lambda most: self.random.randrange(most),
        )
        self.cluster_view = ClusterView(
            store,
            self.node_id,
            self.config.inter_broker_listener.name,
            membership.topic_control,
        )
        await membership.topics_opened(self.topics)
        if self.topics.adopted:
            names = ", ".join(self.topics.adopted[:20])
            why = "topics without metadata are adopted; they keep all their records until they get settings"
            log.warning("%s: %s: %s", path, why, names)

    def _make_services(self, background: Background) -> None:
        """Create the services on the opened logs, each with the parts that it uses."""
        runtime, topics, config = self.runtime, self.topics, self.config
        self.fetch_sessions = Sessions(lambda: self.random.randint(1, (1 << 31) - 1))
        self.leader_throttle = ReplicationThrottle(
            runtime, topics, lambda: config.leader_replication_throttled_rate, lambda topic: topic.leaders
        )
        self.replicas = Replicas(
            runtime,
            topics,
            self.logs,
            view=self.cluster_view,
            background=background,
            own_order=lambda key: self.membership.topic_control.own_order(self.cluster_store.image, key),
            coordinator_of=lambda topic: self.coordinators.of(topic),
            replication=self._replication,
        )
        self.appends = Appends(runtime, self.replicas, self._syncs)
        services = CoordinatorServices(runtime, topics, self.logs, self.replicas, self.appends, topics.led_at_once)
        self.coordinators = Coordinators(services, lambda: self.parts.producer_ids.next(), self._peers)

    def _replication(self, partitions: Mapping[tuple[str, int], ServedPartition]) -> Replication:
        from magicbyte.server.partitions.in_sync import InSyncReplicas, Replication
        from magicbyte.server.partitions.replica_fetchers import ReplicaFetchers

        runtime, config, membership = self.runtime, self.config, self.membership
        throttle = ReplicationThrottle(
            runtime, self.topics, lambda: config.follower_replication_throttled_rate, lambda topic: topic.followers
        )
        return Replication(
            ReplicaFetchers(runtime, membership.links, throttle, self._syncs),
            InSyncReplicas(runtime, partitions, membership.states),
        )

    def _peers(self) -> Peers:
        from magicbyte.server.stores.peers import Peers

        return Peers(self.cluster_view, self.cluster_store, lambda: self.membership.links)

    def _all_parts(self, background: Background) -> BrokerParts:
        return BrokerParts(
            self.runtime,
            self.cluster_id,
            self.metadata,
            self.cluster_store,
            self.logs,
            self.topics,
            self.cluster_view,
            self.membership,
            self.replicas,
            self.appends,
            self.coordinators,
            background,
            self.fetch_sessions,
            self.leader_throttle,
            self.authorizer,
        )

    async def _listen(self) -> None:
        config = self.config
        self._router = Router(self.runtime, BROKER_ROUTES, self.parts, self.authorizer)
        self._server = Server(
            _limits(config),
            self._connected,
            budget=self.runtime.memory,
            complaints=self.runtime.complaints,
            network=self.runtime.network,
            entrance_of=await self._entrances(),
            arrived=self.runtime.quotas.arrived,
        )
        # until the controller knows this broker, clients should use the others
        await self.membership.wait_for_earlier_session()
        for listener in config.listeners:
            self.ports[listener.name] = await self._server.listen(listener.host, listener.port, listener)
        await self.membership.join(self._registration, self.coordinators.suspend)
        if (address := config.http) is not None:
            from magicbyte.server.broker.pages import PageServices, pages

            services = PageServices(
                self.runtime,
                self.cluster_id,
                self.logs,
                self.topics,
                self.cluster_view,
                self.coordinators,
                self.fetch_sessions,
                self.membership.controller,
                self._uncleanable_bytes,
                self._connected_clients,
                self.ports,
            )
            self._pages = pages(services)
            self.http_port = await self._pages.listen(*address)

    def _registration(self) -> Registration:
        """Return this broker's registration, once it listens."""
        endpoints = [
            BrokerEndpoint(each.name, each.security_protocol, *self.address_of(each)) for each in self.config.listeners
        ]
        return Registration(tuple(endpoints), self.config.broker_rack)

    def _connected(self, host: str, peer: str, listener: Listener) -> Handler:
        return self.handler_of(ClientConnection(host, peer, listener))

    def handler_of(self, connection: ClientConnection) -> Handler:
        """Return the handler of a connection's requests."""
        self._clients.add(connection)
        handler = Dispatcher(self._router, connection)
        return handler if self._around is None else self._around(self, handler)

    async def stop(self) -> None:
        """Answer requests in progress, and close all logs cleanly, so that the next start needs no recovery.

        In a cluster, other brokers first take over the partitions that this one leads.
        """
        if self._server is not None:
            await self.replicas.close()  # a follower that kept fetching would be added to the ISR again
            await self.membership.leave(self.cluster_view)
        self.runtime.stop()
        if self._server is not None:
            self._server.close_listeners()
            self.replicas.wake_all()
            self.coordinators.close()
            await self._server.aclose(grace_ms=GRACE_MS)
            self._server = None
        if self._pages is not None:
            await self._pages.aclose()
            self._pages = None
        await self.runtime.cancel_tasks()
        if self._background is not None:
            self._background.close()
            self._background = None
        try:
            await self._opened.aclose()
        finally:
            self.runtime.close_threads()

    async def abort(self) -> None:
        """Stop as a crash would: without hand-over, responses, or clean shutdown marker.

        Its session of the metadata tree, if any, is left to expire.
        """
        self.runtime.stop()
        closing = self._opened.pop_all()
        if self._server is not None:
            self._server.close_listeners()
            await self._server.aclose(grace_ms=0)
            self._server = None
            self.coordinators.close()
        await self.runtime.cancel_tasks()
        if self._background is not None:
            self._background.close()
            self._background = None
        if self._pages is not None:
            await self._pages.aclose()
            self._pages = None
        del closing
        self.membership.abandon()
        self.runtime.close_threads()  # before the logs: a file used by a thread stays open
        self.logs.release()

    # ---- parts used by handlers

    @property
    def groups(self) -> Groups:
        """The group coordinator."""
        return self.coordinators.groups

    @property
    def transactions(self) -> Transactions:
        """The transaction coordinator."""
        return self.coordinators.transactions

    def _uncleanable_bytes(self) -> dict[TopicPartition, int]:
        """Return the bytes that compaction leaves unchanged because of damage, by partition."""
        return {} if self._background is None else self._background.uncleanable_bytes()

    def _connected_clients(self) -> list[tuple[str, str, str]]:
        """Return listener, software name and version of each open connection's client."""
        return [(each.listener.name, each.software_name, each.software_version) for each in self._clients]

    async def _entrances(self) -> Callable[[Listener], Entrance | None]:
        """Return the authentication of each listener's connections; none is needed if no listener is secured."""
        if all(each.security_protocol == "PLAINTEXT" for each in self.config.listeners):
            return lambda _listener: None
        from magicbyte.server.serving.entrance import EntranceServices, entrances
        from magicbyte.server.stores import scram_users

        services = EntranceServices(
            self.runtime,
            partial(scram_users.credential_of, lambda: self.cluster_store.image),
            self.membership.secret_of_decoys,
            self.handler_of,
        )
        made = await self.reading.run(entrances, services)
        return lambda listener: made.get(listener.name)

    def address_of(self, listener: Listener) -> tuple[str, int]:
        """Return the advertised host and port of a listener."""
        return listener.advertised_host, listener.advertised_port or self.ports[listener.name]

    def _cluster_changed(self, image: ClusterImage, changes: Sequence[ClusterChange]) -> None:
        """Apply changed settings of this broker; those that cannot be applied leave the former ones in force."""
        if not any(_changes_settings(each, self.node_id) for each in changes):
            return
        try:
            self._apply_settings(image)
            self._settings_changed()
        except (InvalidConfigError, MetadataError) as error:
            log.warning("changed settings of the broker cannot be applied: %s", error)

    def _apply_settings(self, image: ClusterImage) -> None:
        """Apply the dynamic settings of brokers. Raises InvalidConfigError, MetadataError; then nothing is changed."""
        of_all, of_this = (ConfigEntity(EntityKind.BROKER, name) for name in (None, str(self.node_id)))
        for entity in (of_all, of_this):
            if (why := image.damage.get(settings_part(entity))) is not None:
                path, _, reason = why.partition(": ")
                raise MetadataError(path, reason)
        self.config.change(image.settings.get(of_all, {}), image.settings.get(of_this, {}))

    def _settings_changed(self) -> None:
        """Apply changed settings everywhere."""
        warn_beyond(self.config, "the broker", self.config.log_message_format_version)
        self.runtime.slow_ns = _slow_ns(self.config)
        self.topics.config_changed()
        if self._background is not None:
            self._background.config_changed()
        if self._server is not None:
            self._server.limits = _limits(self.config)
        self.runtime.quotas.settings_changed()
        self.membership.controller.settings_changed()


def _changes_settings(change: ClusterChange, broker_id: int) -> bool:
    """Return whether a change may affect the settings of a broker."""
    owners = [ConfigEntity(EntityKind.BROKER, name) for name in (None, str(broker_id))]
    if isinstance(change, DamageChanged):
        return change.part in map(settings_part, owners)
    return isinstance(change, SettingsChanged) and change.entity in owners


def _slow_ns(config: BrokerConfig) -> float:
    """Return the time from which on a request is logged as slow."""
    return config.slow_request_ms * 1e6 if config.slow_request_ms >= 0 else math.inf


def _limits(config: BrokerConfig) -> PeerLimits:
    return PeerLimits(
        largest_frame=config.socket_request_max_bytes,
        frame_limit_of=BROKER_ROUTES.frame_limit_of,
        connections=config.max_connections,
        connections_per_host=config.max_connections_per_ip,
        idle_ms=config.connections_max_idle_ms,
        descriptors=descriptors.for_connections(descriptors.limit()),
    )


def _dialect_of(files: WritableFileSystem, directory: str, key: TopicPartition) -> Dialect:
    """Return the dialect stored in a partition's folder."""
    try:
        path = f"{directory}/{key}/{checkpoints.MESSAGE_DIALECT}"
        return parse_file(files, path, checkpoints.parse_message_dialect)
    except FileNotFoundError:
        return Dialect.KAFKA


def _known_cluster_id(files: WritableFileSystem, path: str) -> str | None:
    """Return the cluster id stored in a log directory."""
    file = f"{path}/{checkpoints.META_PROPERTIES}"
    try:
        return parse_file(files, file, checkpoints.parse_meta_properties).cluster_id
    except (OSError, CorruptRecordError, LogDirectoryError):  # the log directory reports it, and writes it again
        return None
