"""The cluster as this broker knows it: brokers, controller, and leaders and replicas of partitions.

All responses and metrics about the cluster use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.server.settings.listeners import Listener
    from magicbyte.server.stores.topic_table import ServedTopic
    from magicbyte.server.stores.topics import Topics

NOBODY: Final = -1
"""Used instead of a broker id."""


class ClusterMember(NamedTuple):
    """A broker, and its address on the requested listener."""

    id: int
    host: str
    port: int
    rack: str | None


class PartitionView(NamedTuple):
    """Leader (`NOBODY` if there is none) and leader epoch of a partition; replicas, in-sync and offline ones."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class ClusterView(Protocol):
    """The broker's view of the cluster."""

    @property
    def controller_id(self) -> int:
        """The controller's broker id, NOBODY if there is none."""

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller."""

    def broker_ids(self) -> Sequence[int]:
        """Return the ids of the live brokers, in order."""

    def brokers(self, listener: Listener) -> list[ClusterMember]:
        """Return the brokers that have a listener of this name."""

    def coordinator(self, listener: Listener, place: TopicPartition) -> ClusterMember | None:
        """Return the coordinator for a partition of an internal topic, None if there is none."""

    def partitions(self, topic: ServedTopic) -> Iterator[PartitionView]:
        """Yield leader and replicas of each partition of a topic, from partition 0 on."""

    def in_sync(self, topic: str, partition: int) -> int:
        """Return the number of in-sync replicas of a partition."""


class ViewAlone:
    """The view of a broker that is a cluster by itself: it leads all partitions that it can open.

    `address_of` returns the advertised host and port of a listener.
    """

    def __init__(
        self, broker_id: int, rack: str | None, topics: Topics, address_of: Callable[[Listener], tuple[str, int]]
    ) -> None:
        self._broker_id, self._rack, self._topics, self._address_of = broker_id, rack, topics, address_of
        self._alone = (broker_id,)

    @property
    def controller_id(self) -> int:
        """The controller's broker id."""
        return self._broker_id

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller."""
        return self.controller_id == self._broker_id

    def broker_ids(self) -> Sequence[int]:
        """Return its broker id."""
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
        """Yield leader and replicas of each partition of a topic, from partition 0 on."""
        offline, alone = self._topics.offline_of(topic.name), self._alone
        epochs = set(topic.leader_epochs)  # few: partitions of an epoch share a view
        led = {epoch: PartitionView(self._broker_id, epoch, alone, alone, ()) for epoch in epochs}
        lost = {epoch: PartitionView(NOBODY, epoch, alone, alone, alone) for epoch in epochs}
        for index, epoch in enumerate(topic.leader_epochs):
            yield lost[epoch] if index in offline else led[epoch]

    def in_sync(self, _topic: str, _partition: int) -> int:
        """Return the number of in-sync replicas of a partition."""
        return len(self._alone)
