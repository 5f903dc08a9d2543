"""The cluster as this broker knows it: its members, its controller, and who leads and holds each partition.

Whatever a broker tells of the cluster, to clients or in metrics, comes from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from magicbyte.broker.listeners import Listener
    from magicbyte.broker.topic_table import ServedTopic
    from magicbyte.broker.topics import Topics
    from magicbyte.ports import TopicPartition

NOBODY: Final = -1
"""In place of a broker's number."""


class ClusterMember(NamedTuple):
    """A broker, and its address on the listener that was asked for."""

    id: int
    host: str
    port: int
    rack: str | None


class PartitionView(NamedTuple):
    """Who leads a partition (`NOBODY` while nobody can) and since which epoch; brokers that hold it, all and some."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class ClusterView(Protocol):
    """What there is to know of the cluster."""

    @property
    def controller_id(self) -> int:
        """The broker that is the controller, NOBODY while there is none."""

    @property
    def is_controller(self) -> bool:
        """Whether this broker is it."""

    def broker_ids(self) -> Sequence[int]:
        """Return the numbers of the live brokers, in order."""

    def brokers(self, listener: Listener) -> list[ClusterMember]:
        """Return the brokers that have a listener of this name."""

    def coordinator(self, listener: Listener, place: TopicPartition) -> ClusterMember | None:
        """Return the broker that coordinates what a partition of a topic of Kafka's own keeps, None for nobody."""

    def partitions(self, topic: ServedTopic) -> Iterator[PartitionView]:
        """Yield who leads and holds each partition of a topic, from partition 0 on."""

    def in_sync(self, topic: str, partition: int) -> int:
        """Return how many replicas of a partition are in sync."""


class ViewAlone:
    """A broker that is a cluster by itself: it leads all partitions that it can open.

    `address_of` gives host and port that clients of a listener are told.
    """

    def __init__(
        self, broker_id: int, rack: str | None, topics: Topics, address_of: Callable[[Listener], tuple[str, int]]
    ) -> None:
        self._broker_id, self._rack, self._topics, self._address_of = broker_id, rack, topics, address_of
        self._alone = (broker_id,)

    @property
    def controller_id(self) -> int:
        """The broker that is the controller."""
        return self._broker_id

    @property
    def is_controller(self) -> bool:
        """Whether this broker is it."""
        return self.controller_id == self._broker_id

    def broker_ids(self) -> Sequence[int]:
        """Return its number."""
        return self._alone

    def brokers(self, listener: Listener) -> list[ClusterMember]:
        """Return this broker."""
        return [self._this(listener)]

    def coordinator(self, listener: Listener, _place: TopicPartition) -> ClusterMember | None:
        """Return this broker."""
        return self._this(listener)

    def _this(self, listener: Listener) -> ClusterMember:
        return ClusterMember(self._broker_id, *self._address_of(listener), self._rack)

    def partitions(self, topic: ServedTopic) -> Iterator[PartitionView]:
        """Yield who leads and holds each partition of a topic, from partition 0 on."""
        offline, alone = self._topics.offline_of(topic.name), self._alone
        epochs = set(topic.leader_epochs)  # few: one view serves all partitions of an epoch
        led = {epoch: PartitionView(self._broker_id, epoch, alone, alone, ()) for epoch in epochs}
        lost = {epoch: PartitionView(NOBODY, epoch, alone, alone, alone) for epoch in epochs}
        for index, epoch in enumerate(topic.leader_epochs):
            yield lost[epoch] if index in offline else led[epoch]

    def in_sync(self, _topic: str, _partition: int) -> int:
        """Return how many replicas of a partition are in sync."""
        return len(self._alone)
