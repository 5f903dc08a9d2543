"""The in-sync replicas of the partitions that a broker leads, where these have others.

`replication/leader.py` decides who is in sync. Here its changes are written, and the controller is notified. Source:
Kafka's Partition and ReplicaManager.

Invariants:
1. A change is written over the version of the state that the leader knows. If that is another one by now, it is read:
   the controller has decided, or an answer was lost.
2. A change whose outcome is unknown stays pending: the next check of lagging followers repeats it.
3. Each written change is notified once it was written; a notification that fails is sent again.

Nothing of it is kept: after a crash the next leader starts from the state. `test_cluster.py` has these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.errors import BadVersionError, MetadataError, NetworkError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.releases import tells_isr_at_once
from magicbyte.engine.replication.leader import IsrChange, IsrNotifications, LeaderPartition

if TYPE_CHECKING:
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.partitions.replica_fetchers import ReplicaFetchers
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.znodes.states import StateNodes

log = logger(__name__)


class InSyncReplicas:
    """Change the in-sync replicas of led partitions. `states` has the states of all partitions of the cluster."""

    def __init__(
        self, runtime: Runtime, partitions: Mapping[tuple[str, int], ServedPartition], states: StateNodes
    ) -> None:
        self._runtime, self._partitions, self._states = runtime, partitions, states
        at_once = tells_isr_at_once(runtime.config.inter_broker_protocol_version)
        self._notifications = IsrNotifications(runtime.clock.monotonic_ms(), at_once=at_once)
        self._has_notifications = asyncio.Event()

    def start(self) -> None:
        """Start to check for lagging followers. The tasks end with the broker's."""
        self._runtime.spawn(self._shrink())
        self._runtime.spawn(self._notify())

    def fetched(self, partition: ServedPartition, follower_id: int) -> None:
        """Add a follower that has just fetched to the in-sync replicas, if it has caught up."""
        leader = partition.led()
        if (change := leader.expansion(follower_id)) is not None:
            self._runtime.spawn(self._write(partition, leader, change))

    async def _shrink(self) -> None:
        """Remove lagging followers from the in-sync replicas."""
        while True:
            await asyncio.sleep(self._runtime.config.replica_lag_time_max_ms / 2000)
            now_ms = self._runtime.clock.monotonic_ms()
            for partition in list(self._partitions.values()):
                leader = partition.leader
                if leader is not None and (change := leader.shrinking(now_ms)) is not None:
                    await self._write(partition, leader, change)

    async def _write(self, partition: ServedPartition, leader: LeaderPartition, change: IsrChange) -> None:
        """Write a change into the state, unless the controller has changed that meanwhile."""
        before = leader.state.isr
        key = TopicPartition(partition.topic, partition.index)
        try:
            written = await self._states.write(key, change.state, change.expected_version)
        except BadVersionError:
            self._runtime.metrics.failed_isr_updates += 1
            await self._read_refused(partition, leader, change, key)
            return
        except (NetworkError, MetadataError) as error:
            log.warning("%s: in-sync replicas %s could not be written: %s", partition, list(change.state.isr), error)
            leader.isr_failed(change)
            return
        if leader.isr_written(change, written.version, self._runtime.clock.monotonic_ms()):
            partition.advance(leader.high_watermark)
        if len(change.state.isr) < len(before):
            self._runtime.metrics.isr_shrinks += 1
        else:
            self._runtime.metrics.isr_expands += 1
        log.info("%s: in sync: %s, before: %s", partition, list(change.state.isr), list(before))
        self._changed(partition)

    async def _read_refused(
        self, partition: ServedPartition, leader: LeaderPartition, change: IsrChange, key: TopicPartition
    ) -> None:
        try:
            found, version = await self._states.read(key)
        except (NetworkError, MetadataError) as error:
            log.warning("%s: the state of the partition could not be read: %s", partition, error)
            leader.isr_failed(change)
            return
        if leader.isr_refused(change, found, version, self._runtime.clock.monotonic_ms()):
            partition.advance(leader.high_watermark)
        self._changed(partition)

    def _changed(self, partition: ServedPartition) -> None:
        partition.wake()  # the result of acks=all may change
        self._notifications.changed(partition.topic, partition.index, self._runtime.clock.monotonic_ms())
        self._has_notifications.set()

    async def _notify(self) -> None:
        """Notify the controller of changed in-sync replicas, in batches."""
        while True:
            await self._has_notifications.wait()
            await asyncio.sleep(self._notifications.check_ms / 1000)
            due = self._notifications.due(self._runtime.clock.monotonic_ms())
            if not due:
                continue
            self._has_notifications.clear()
            try:
                await self._states.notify(due)
            except (NetworkError, MetadataError) as error:
                log.warning("the controller could not be notified of changed in-sync replicas: %s", error)
                now_ms = self._runtime.clock.monotonic_ms()
                for topic, index in due:
                    self._notifications.changed(topic, index, now_ms)
                self._has_notifications.set()


class Replication(NamedTuple):
    """What a broker does for partitions with other replicas: fetch from their leaders, and tell who is in sync."""

    fetchers: ReplicaFetchers
    in_sync: InSyncReplicas
