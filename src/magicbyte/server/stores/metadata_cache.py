"""The controller's metadata of the cluster: live brokers, and the state of each partition.

Plain state: UpdateMetadata requests in, answers for clients out. Source: Kafka's ZkMetadataCache.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.access.security.settings import PROTOCOLS
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.replication.controller import BEING_DELETED
from magicbyte.server.stores.cluster_view import NOBODY, ClusterMember, PartitionView

if TYPE_CHECKING:
    from magicbyte.engine.protocol.messages.update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
    )
    from magicbyte.server.settings.listeners import Listener
    from magicbyte.server.stores.topic_table import ServedTopic

_FIRST_UPDATE_S: Final = 10.0
_LOST: Final = PartitionView(NOBODY, -1, (), (), ())
"""A partition that is not in any update yet."""


class LiveBroker(NamedTuple):
    """A live broker: host and port by listener, and its rack."""

    addresses: dict[str, tuple[str, int]]
    rack: str | None


class MetadataUpdate(NamedTuple):
    """The changes of an UpdateMetadata: topics with states, by name with their ids; topics being deleted."""

    topics: dict[str, uuid.UUID]
    deleted: set[str]


class MetadataCache:
    """The latest metadata of the cluster. `inter_broker`: the listener for which old requests have a port.

    `controller`: the controller's broker id, from the tree.
    """

    def __init__(self, broker_id: int, inter_broker: str, controller: Callable[[], int]) -> None:
        self._broker_id, self._inter_broker, self._controller = broker_id, inter_broker, controller
        self.live: dict[int, LiveBroker] = {}
        self._waiting: dict[asyncio.Event, None] = {}
        self._states: dict[str, dict[int, PartitionView]] = {}

    # ---- UpdateMetadata

    def update(self, request: UpdateMetadataRequest) -> MetadataUpdate:
        """Apply the live brokers, always complete, and the changed states of partitions."""
        self.live = {each.id: self._live(each) for each in request.live_brokers}
        topics: dict[str, uuid.UUID] = {}
        deleted = set[str]()
        for name, topic_id, state in _states(request):
            if state.leader == BEING_DELETED:
                deleted.add(name)
                self._states.pop(name, None)
                continue
            topics[name] = topic_id
            view = PartitionView(
                state.leader, state.leader_epoch, state.replicas, state.isr, tuple(state.offline_replicas)
            )
            self._states.setdefault(name, {})[state.partition_index] = view
        return MetadataUpdate(topics, deleted)

    def notify_waiters(self) -> None:
        """Wake the requests that wait for an update."""
        for event in self._waiting:
            event.set()

    async def until_first_update(self) -> None:
        """Wait, for ten seconds at most, until the first update has arrived.

        Responses from an empty cache would have no brokers: librdkafka then closes its connections to all of them.
        """
        if not self.live:
            await self.until(lambda: bool(self.live), _FIRST_UPDATE_S)

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

    def _live(self, told: UpdateMetadataBroker) -> LiveBroker:
        addresses = {
            each.listener or PROTOCOLS[each.security_protocol]: (each.host, each.port)  # versions 1 and 2 have no names
            for each in told.endpoints
            if each.listener or each.security_protocol in range(len(PROTOCOLS))
        }
        if not told.endpoints:  # version 0
            addresses = {self._inter_broker: (told.v0_host, told.v0_port)}
        return LiveBroker(addresses, told.rack)

    # ---- answers for clients

    @property
    def controller_id(self) -> int:
        """The controller's broker id, NOBODY if there is none."""
        return self._controller()

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller."""
        return self.controller_id == self._broker_id

    def broker_ids(self) -> Sequence[int]:
        """Return the ids of the live brokers, in order."""
        return sorted(self.live)

    def brokers(self, listener: Listener) -> list[ClusterMember]:
        """Return the live brokers that have a listener of this name."""
        return [member for each in self.broker_ids() if (member := self._member(each, listener)) is not None]

    def _member(self, broker_id: int, listener: Listener) -> ClusterMember | None:
        live = self.live.get(broker_id)
        address = None if live is None else live.addresses.get(listener.name)
        return None if live is None or address is None else ClusterMember(broker_id, *address, live.rack)

    def inter_broker_address(self, broker_id: int) -> tuple[str, int] | None:
        """Return the inter-broker address of a live broker."""
        live = self.live.get(broker_id)
        return None if live is None else live.addresses.get(self._inter_broker)

    def racks(self) -> dict[int, str] | None:
        """Return the rack of each live broker, None unless all have one."""
        found = {each: live.rack for each, live in self.live.items() if live.rack}
        return found if len(found) == len(self.live) else None

    def rack(self, broker_id: int) -> str | None:
        """Return the rack of a live broker."""
        live = self.live.get(broker_id)
        return None if live is None else live.rack

    def coordinator(self, listener: Listener, place: TopicPartition) -> ClusterMember | None:
        """Return the coordinator for a partition of an internal topic, None if there is none."""
        return self._member((self.partition(place) or _LOST).leader, listener)

    def partitions(self, topic: ServedTopic) -> Iterator[PartitionView]:
        """Yield leader and replicas of each partition of a topic, from partition 0 on."""
        states, live = self._states.get(topic.name, {}), self.live
        for index in range(topic.partitions):
            view = states.get(index, _LOST)
            offline = tuple(each for each in view.replicas if each not in live)
            leader = view.leader if view.leader in live else NOBODY
            if offline != view.offline or leader != view.leader:
                view = view._replace(offline=offline, leader=leader)
            yield view

    def partition(self, key: TopicPartition) -> PartitionView | None:
        """Return leader and replicas of a partition; None if it is unknown."""
        return self._states.get(key.topic, {}).get(key.partition)

    def count(self, topic: str) -> int:
        """Return the known number of partitions of a topic."""
        return max(self._states.get(topic, ()), default=-1) + 1

    def has_leaders(self, topic: str, partitions: int) -> bool:
        """Return whether that many partitions of a topic are known, each with a leader."""
        states = self._states.get(topic, {})
        return all(states.get(index, _LOST).leader >= 0 for index in range(partitions))

    def in_sync(self, topic: str, partition: int) -> int:
        """Return the number of in-sync replicas of a partition."""
        return len(self._states.get(topic, {}).get(partition, _LOST).isr)


def _states(request: UpdateMetadataRequest) -> Iterable[tuple[str, uuid.UUID, UpdateMetadataPartitionState]]:
    for state in request.ungrouped_partition_states:
        yield state.topic_name, NULL_UUID, state
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, topic.topic_id, state
