"""A broker that is a cluster by itself. Its tree is a file of the log directory, which no other broker reads.

It does the work of a controller in place ([decision 0014](../../../../docs/decisions/0014-alone-and-in-a-cluster.md)).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from magicbyte.engine.cluster.brokers import RegisteredBroker, Registration
from magicbyte.engine.cluster.changes import BrokerRegistered
from magicbyte.engine.printable import logger
from magicbyte.engine.sentinels import NO_EPOCH
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.stores.topic_control import OwnTopics
from magicbyte.server.stores.znodes import cluster
from magicbyte.server.stores.znodes.clients import secret_of_decoys
from magicbyte.server.stores.znodes.salvage import open_metadata
from magicbyte.server.stores.znodes.store import TreeStore
from magicbyte.server.stores.znodes.writing import WritingTerms

if TYPE_CHECKING:
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.ports import MetadataStore
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.serving.threads import Threads
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.links import Links
    from magicbyte.server.stores.lone_controller import LoneController
    from magicbyte.server.stores.topics import Topics
    from magicbyte.server.stores.znodes.member_store import MemberStore
    from magicbyte.server.stores.znodes.states import StateNodes

    AdoptFormats: TypeAlias = Callable[[BrokerConfig, MetadataStore, LogDirectory], None]
    """Puts the formats in force in which a directory is kept. Raises InvalidConfigError, LogDirectoryError."""

log = logger(__name__)


class OwnCluster:
    """The only broker of its cluster: a `Membership`. Its formats are those in which the directory is kept."""

    cluster_id: str
    metadata: MetadataStore
    cluster_store: TreeStore
    topic_control: OwnTopics
    broker_epoch = NO_EPOCH
    takes_orders = False

    def __init__(self, config: BrokerConfig, adopt: AdoptFormats) -> None:
        self._config, self._adopt = config, adopt
        self.offer = config.offer
        self._runtime: Runtime
        self._topics: Topics
        self._opened = contextlib.ExitStack()

    async def open(
        self, runtime: Runtime, _threads: Callable[[str, int], Threads], path: str, known_id: str | None
    ) -> None:
        """Open the tree in the log directory: see `Membership.open`."""
        self._runtime = runtime
        Path(path).mkdir(parents=True, exist_ok=True)
        self.metadata, salvaged = open_metadata(Path(path), runtime.clock, _keep_all)
        if salvaged is not None:
            log.error("%s", salvaged)
        self._opened.callback(self.metadata.close)
        watching = LoopStore(self.metadata, runtime.writing.run)
        self.cluster_store = store = TreeStore(
            self.metadata,
            lambda: watching,
            runtime.reading,
            runtime.writing,
            runtime.spawn,
            lambda: WritingTerms.of(self._config, runtime.clock.now_ms()),
        )
        self.cluster_id = cluster.found_cluster(self.metadata, known_id, runtime.new_uuid)
        await store.start()
        unknown = Registration((), self._config.broker_rack)  # its address is known once it listens
        store.follow([BrokerRegistered(RegisteredBroker(runtime.node_id, NO_EPOCH, unknown))])

    @property
    def links(self) -> Links:
        """There are none."""
        raise AssertionError("no other broker is known")

    @property
    def states(self) -> StateNodes:
        """There are none."""
        raise AssertionError("no partition has a follower")

    @property
    def announcements(self) -> MemberStore:
        """There are none."""
        raise AssertionError("no controller announces anything")

    def logs_opened(self, logs: LogDirectory) -> None:
        """Commit all records, as there is no other replica, and adopt the formats of the directory."""
        for each in logs.logs.values():
            each.high_watermark = each.log_end_offset
        self.topic_control = OwnTopics(self._runtime.node_id, logs, self._runtime.writing)
        self._adopt(self._config, self.metadata, logs)

    async def topics_opened(self, topics: Topics) -> None:
        """Finish what is pending of the topics."""
        self._topics = topics
        await topics.finish_pending()

    @cached_property
    def controller(self) -> LoneController:
        """Answers requests to the controller."""
        from magicbyte.server.stores.lone_controller import LoneController

        return LoneController(self._runtime.node_id, self._topics, self.topic_control)

    def secret_of_decoys(self) -> bytes:
        """Return the secret for the challenges of unknown users. Blocks. Raises MetadataError."""
        return secret_of_decoys(self.metadata)

    async def wait_for_earlier_session(self) -> None:
        """Do nothing: another process with this log directory has kept the broker from starting."""

    async def join(self, registration: Callable[[], Registration], _lapsed: Callable[[], None]) -> None:
        """Register the broker, and make it the controller. No other broker can take its roles."""
        self.broker_epoch = await self.cluster_store.register(self._runtime.node_id, registration())
        await self.cluster_store.take_control(self._runtime.node_id)

    async def leave(self, view: ClusterView) -> None:
        """Do nothing: no other broker can lead."""

    async def close(self) -> None:
        """Close the tree, if it is open."""
        self._opened.close()

    def abandon(self) -> None:
        """Leave the file as it is."""


def _keep_all(metadata: MetadataStore) -> None:
    from magicbyte.server.stores.znodes.salvaged import keep_all

    keep_all(metadata)
