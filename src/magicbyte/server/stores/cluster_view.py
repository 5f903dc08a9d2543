"""The cluster as this broker knows it: brokers, controller, and leaders and replicas of partitions.

All responses and metrics about the cluster use it. It is a view of the latest image of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.sentinels import NO_BROKER

if TYPE_CHECKING:
    from magicbyte.engine.cluster.brokers import RegisteredBroker
    from magicbyte.engine.cluster.changes import ClusterChange
    from magicbyte.engine.cluster.image import ClusterImage, TopicImage
    from magicbyte.engine.cluster.store import ClusterStore
    from magicbyte.server.settings.listeners import Listener
    from magicbyte.server.stores.topic_control import PartitionView, TopicControl

_FIRST_UPDATE_S: Final = 10.0


class ClusterMember(NamedTuple):
    """A broker, and its address on the requested listener."""

    id: int
    host: str
    port: int
    rack: str | None


class _TopicViews(NamedTuple):
    """The partitions of a topic, as they were made of its image and the live brokers."""

    topic: TopicImage
    live: Mapping[int, RegisteredBroker]
    unopened: Collection[int]
    partitions: Sequence[PartitionView]


class ClusterView:
    """The cluster by the image of a store. `inter_broker`: the name of the listener for other brokers.

    `control` knows who leads a partition.
    """

    def __init__(self, store: ClusterStore, broker_id: int, inter_broker: str, control: TopicControl) -> None:
        self._store, self._broker_id, self._inter_broker, self._control = store, broker_id, inter_broker, control
        self._waiting: dict[asyncio.Event, None] = {}
        self._views: dict[str, _TopicViews] = {}
        store.subscribe(self._cluster_changed)

    def _cluster_changed(self, image: ClusterImage, _changes: Sequence[ClusterChange]) -> None:
        for name in self._views.keys() - image.topics.keys():
            del self._views[name]
        for event in self._waiting:
            event.set()

    @property
    def _image(self) -> ClusterImage:
        return self._store.image

    # ---- waiting

    async def until_first_update(self) -> None:
        """Wait, for ten seconds at most, until brokers are known.

        Responses without brokers would make librdkafka close its connections to all of them.
        """
        if not self._has_addresses():
            await self.until(self._has_addresses, _FIRST_UPDATE_S)

    def _has_addresses(self) -> bool:
        return any(each.registration.endpoints for each in self.live.values())

    async def until(self, is_known: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until an update makes `is_known` true; return whether it did in time."""
        news = asyncio.Event()
        self._waiting[news] = None
        try:
            async with asyncio.timeout(timeout_s):
                while not is_known():
                    await news.wait()
                    news.clear()
        except TimeoutError:
            return False
        finally:
            del self._waiting[news]
        return True

    # ---- brokers

    @property
    def controller_id(self) -> int:
        """The controller's broker id, NO_BROKER if there is none."""
        return self._image.controller_id

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller."""
        return self.controller_id == self._broker_id

    @property
    def live(self) -> Mapping[int, RegisteredBroker]:
        """The live brokers, by id."""
        return self._image.brokers

    def broker_ids(self) -> Sequence[int]:
        """Return the ids of the live brokers, in order."""
        return sorted(self.live)

    def brokers(self, listener: Listener) -> list[ClusterMember]:
        """Return the live brokers that have a listener of this name."""
        return [member for each in self.broker_ids() if (member := self.member(each, listener.name)) is not None]

    def member(self, broker_id: int, listener: str) -> ClusterMember | None:
        """Return a broker if it is live, and has a listener of this name."""
        broker = self.live.get(broker_id)
        if broker is None:
            return None
        for each in broker.registration.endpoints:
            if each.listener == listener:
                return ClusterMember(broker_id, each.host, each.port, broker.registration.rack)
        return None

    def inter_broker_address(self, broker_id: int) -> tuple[str, int] | None:
        """Return the inter-broker address of a live broker."""
        member = self.member(broker_id, self._inter_broker)
        return None if member is None else (member.host, member.port)

    def rack(self, broker_id: int) -> str | None:
        """Return the rack of a live broker."""
        broker = self.live.get(broker_id)
        return None if broker is None else broker.registration.rack

    def racks(self) -> dict[int, str] | None:
        """Return the rack of each live broker, None unless all have one."""
        racks = {each: rack for each in self.live if (rack := self.rack(each))}
        return racks if len(racks) == len(self.live) else None

    # ---- partitions

    def coordinator(self, listener: Listener, place: TopicPartition) -> ClusterMember | None:
        """Return the coordinator for a partition of an internal topic, None if there is none."""
        return self.member(self.leader(place), listener.name)

    def leader(self, key: TopicPartition) -> int:
        """Return the live leader of a partition, NO_BROKER if there is none or it is unknown."""
        return self._control.leader(self._image, key)

    def has_leaders(self, topic: str, partitions: int) -> bool:
        """Return whether that many partitions of a topic are known, each with a leader."""
        known = self.partitions(topic)[:partitions]
        return len(known) == partitions and all(each.leader != NO_BROKER for each in known)

    def partitions(self, topic: str) -> Sequence[PartitionView]:
        """Return leader and replicas of each partition of a topic, from partition 0 on; none of an unknown one."""
        image, control = self._image, self._control
        of_topic, live, unopened = image.topics.get(topic), image.brokers, control.unopened(topic)
        if of_topic is None:
            return ()
        views = self._views.get(topic)
        if views is None or views.topic is not of_topic or views.live is not live or views.unopened != unopened:
            made = control.views(of_topic, live, unopened)
            views = self._views[topic] = _TopicViews(of_topic, live, unopened, made)
        return views.partitions

    def unopened(self) -> Sequence[TopicPartition]:
        """Return what `partitions` depends on besides the image: the logs that cannot be opened here."""
        return self._control.all_unopened()

    def in_sync(self, topic: str, partition: int) -> int:
        """Return the number of in-sync replicas of a partition."""
        partitions = self.partitions(topic)
        return len(partitions[partition].isr) if 0 <= partition < len(partitions) else 0
