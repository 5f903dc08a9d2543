"""How a broker belongs to its cluster: with a tree of its own, or in a session of a tree that it shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from magicbyte.engine.cluster.brokers import Registration
    from magicbyte.engine.cluster.store import ClusterStore
    from magicbyte.engine.errors import ErrorCode
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.ports import MetadataStore, TopicPartition
    from magicbyte.engine.replication.controller import IsrAnswer, IsrWish
    from magicbyte.engine.replication.election import ElectionType
    from magicbyte.engine.replication.reassignment import OngoingMove
    from magicbyte.server.metadata.on_loop import OpenSession
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.serving.threads import Threads
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.settings.offer import Offer
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.links import Links
    from magicbyte.server.stores.own_cluster import AdoptFormats
    from magicbyte.server.stores.topic_control import TopicControl
    from magicbyte.server.stores.topics import Topics
    from magicbyte.server.stores.znodes.member_store import MemberStore
    from magicbyte.server.stores.znodes.states import StateNodes


class ControllerRequests(Protocol):
    """Requests that only the controller answers.

    They raise NotControllerError if another broker is the controller, or becomes it meanwhile.
    """

    @property
    def unclean_elections(self) -> int:
        """The number of unclean leader elections by this broker."""

    def settings_changed(self) -> None:
        """Apply changed settings of the broker."""

    async def check_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Raise UnknownBrokerError or StaleBrokerEpochError for a request of such a broker."""

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker; return the partitions where that is impossible (ControlledShutdown)."""

    async def elect(
        self, kind: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect leaders of partitions, None: of all that need it; return the result of each (ElectLeaders)."""

    async def reassign(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, keeps_factor: bool = False
    ) -> dict[TopicPartition, tuple[ErrorCode, str]]:
        """Begin reassignments, None: cancel one; return the errors.

        `keeps_factor`: the replication factor must not change.
        """

    async def reassignments(self) -> dict[TopicPartition, tuple[tuple[int, ...], OngoingMove]]:
        """Return replicas and moves of the partitions being reassigned."""

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, wishes: Mapping[TopicPartition, IsrWish]
    ) -> dict[TopicPartition, IsrAnswer]:
        """Change ISRs as requested by leaders; return the result of each partition (AlterPartition).

        Raises UnknownBrokerError, StaleBrokerEpochError.
        """


class Membership(Protocol):
    """A broker's part in its cluster. The broker makes these calls in this order, and asks nothing else about it.

    From `open` on there are all properties, if nothing else is said; `offer` is there before.
    """

    @property
    def offer(self) -> Offer:
        """The API versions that the broker supports in this cluster."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""

    @property
    def metadata(self) -> MetadataStore:
        """The tree of the cluster, for threads."""

    @property
    def cluster_store(self) -> ClusterStore:
        """What is known of the cluster, and the way to change it."""

    @property
    def topic_control(self) -> TopicControl:
        """Who decides about topics; from `logs_opened` on."""

    @property
    def links(self) -> Links:
        """Connections to other brokers. Without others nothing asks for it."""

    @property
    def states(self) -> StateNodes:
        """The states of partitions that leaders with followers write. Without other brokers nothing asks for it."""

    @property
    def takes_orders(self) -> bool:
        """Whether a controller sends this broker its roles; otherwise such requests are refused."""

    @property
    def announcements(self) -> MemberStore:
        """The store, which takes what a controller announces. Without orders nothing asks for it."""

    @property
    def controller(self) -> ControllerRequests:
        """Answers requests to the controller; from `topics_opened` on."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration: requests of a controller to an earlier one are refused."""

    async def open(
        self, runtime: Runtime, threads: Callable[[str, int], Threads], path: str, known_id: str | None
    ) -> None:
        """Open the metadata, and read it. `path` is the log directory, `known_id` the cluster's id in it.

        Raises NetworkError, MetadataError, LogDirectoryError for another cluster. `close` follows in any case.
        """

    def logs_opened(self, logs: LogDirectory) -> None:
        """Prepare the logs, before anything is served. Raises InvalidConfigError, LogDirectoryError."""

    async def topics_opened(self, topics: Topics) -> None:
        """Read the topics, and finish what is pending. Raises MetadataError, NetworkError, LogDirectoryError."""

    def secret_of_decoys(self) -> bytes:
        """Return the cluster's secret for the challenges of unknown users. Blocks. Raises MetadataError."""

    async def wait_for_earlier_session(self) -> None:
        """Wait until this broker may serve: its registration before a crash has ended. Raises NodeExistsError."""

    async def join(self, registration: Callable[[], Registration], lapsed: Callable[[], None]) -> None:
        """Register the broker, which listens already; return when the controller is known.

        `registration` returns its endpoints and its rack. `lapsed` is called when the registration has ended without
        the broker's doing: a controller may have given its roles to others meanwhile. Raises NodeExistsError for an id
        in use, InvalidConfigError if other brokers have other features.
        """

    async def leave(self, view: ClusterView) -> None:
        """Hand over what the broker leads, before it stops."""

    async def close(self) -> None:
        """Close what is open of the metadata."""

    def abandon(self) -> None:
        """Leave the metadata as a crash does."""


def membership_of(config: BrokerConfig, session: OpenSession | None, adopt: AdoptFormats) -> Membership:
    """Return the membership that the settings ask for. `session` opens the tree of a cluster, whatever they say.

    `adopt` is called if the formats are those in which the log directory is kept.

    Raises InvalidConfigError.
    """
    if session is None and config.zookeeper_connect is None:
        from magicbyte.server.stores.own_cluster import OwnCluster

        return OwnCluster(config, adopt)
    from magicbyte.server.stores.zookeeper_membership import ZooKeeperMembership, zookeeper_session

    return ZooKeeperMembership(config, session or zookeeper_session(config))
