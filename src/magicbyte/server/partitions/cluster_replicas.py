"""The replicas of a broker in a cluster: the controller decides which it leads and which it follows.

`replication/leader.py` decides about followers and ISR changes; here roles are changed, state nodes are written, and
fetching is started and stopped. Source: Kafka's ReplicaManager and Partition.

Invariants:
1. Requests of the controller are executed one at a time (`turn`). An order with no higher leader epoch is ignored.
2. The role of a partition changes with its lock held, so not within an append, a truncation or a deletion of records.
3. Fetching stops before the role changes, and starts again after it: a fetcher never writes to a log that this broker
   leads.
4. In a log of magic 2 the leader's epoch is in the file of epochs before anything is appended in it. That file is
   written with `logs_lock` shared, like every other change of a log.
5. A log is deleted with `Runtime.directory` and `logs_lock` held, after its role has ended.

Roles are in memory only: after a crash the controller sends them again. `test_followers.py`, `test_cluster_checks.py`
and `tests/simulation/test_cluster_bugs.py` have these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from magicbyte.engine.errors import (
    BadVersionError,
    ErrorCode,
    LogDirectoryOfflineError,
    MagicbyteError,
    MetadataError,
    NetworkError,
    NotLeaderError,
    OutOfDescriptorsError,
    UnknownTopicError,
)
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.records.encode import Format
from magicbyte.engine.releases import inter_broker_versions, tells_isr_at_once
from magicbyte.engine.replication.leader import IsrChange, IsrNotifications, LeaderPartition
from magicbyte.engine.replication.state import PartitionState
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.server.partitions.partition import ServedPartition
from magicbyte.server.partitions.replica_fetchers import FollowedLeader, ReplicaFetchers
from magicbyte.server.partitions.replicas import Replicas

if TYPE_CHECKING:
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.protocol.messages.fetch import FetchPartition
    from magicbyte.server.partitions.background import Background
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.topics import Topics
    from magicbyte.server.stores.znodes.states import StateNodes

    class OfPartitions(Protocol):
        """A coordinator: it works for the partitions of its topic that this broker leads."""

        def elected(self, partition: int, leader_epoch: int) -> None:
            """Begin to work for a partition that this broker leads."""

        def resigned(self, partition: int, leader_epoch: int) -> None:
            """End the work for a partition."""


logs = logger(__name__)

_FIRST_WITH_LOG_START: Final = 5
_SELECTOR: Final = "RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class Order:
    """The controller's order for one partition (LeaderAndIsr). `version` is that of its state node."""

    key: TopicPartition
    state: PartitionState
    version: int
    replicas: tuple[int, ...]


class ClusterReplicas(Replicas):
    """The replicas of a broker in a cluster. Requests of the controller are executed one at a time (`turn`).

    `view` has the broker's metadata of the cluster. `controller` is the latest one seen, by its epoch and the number
    of its connection: requests of an earlier one are refused.
    """

    def __init__(
        self,
        runtime: Runtime,
        topics: Topics,
        logs: LogDirectory,
        *,
        view: ClusterView,
        states: StateNodes,
        fetchers: ReplicaFetchers,
        background: Background,
        coordinator_of: Callable[[str], OfPartitions | None],
    ) -> None:
        """`coordinator_of` returns the coordinator whose topic this is, None for most topics."""
        super().__init__(runtime, topics)
        self._logs, self._view, self._background = logs, view, background
        self._states = states
        self._coordinator_of = coordinator_of
        self.turn = asyncio.Lock()
        self.controller = 0, 0
        self._fetchers = fetchers
        protocol = runtime.config.inter_broker_protocol_version
        self._notifications = IsrNotifications(runtime.clock.monotonic_ms(), at_once=tells_isr_at_once(protocol))
        self._has_notifications = asyncio.Event()
        self._is_closed = False
        self._postponed: dict[TopicPartition, tuple[Order, tuple[str, int] | None]] = {}
        self._has_postponed = asyncio.Event()
        version = inter_broker_versions(protocol)[ApiKey.FETCH]
        self._tells_log_start = version >= _FIRST_WITH_LOG_START

    def start(self) -> None:
        """Start to check the in-sync replicas. The tasks end with the broker's."""
        self._runtime.spawn(self._shrink())
        self._runtime.spawn(self._notify())
        self._runtime.spawn(self._try_postponed())

    async def close(self) -> None:
        """Stop following, whatever the controller orders later."""
        self._is_closed = True
        for key in list(self._fetchers.partitions):
            self._fetchers.forget(key)
        await self._fetchers.close_idle()

    # ---- look-ups

    async def opened(self, topic: str, index: int) -> ServedPartition:
        """Return a partition of which this broker has a replica.

        Raises UnknownTopicError, NotLeaderError without a replica, LogDirectoryOfflineError.
        """
        return self.partition(topic, index)

    def partition(self, topic: str, index: int) -> ServedPartition:
        """Return a partition, as `opened` does."""
        found = self.partitions.get((topic, index))
        if found is not None:
            return found
        self._topics.check_partition(topic, index)
        offline = self._logs.offline.get(TopicPartition(topic, index))
        if offline is not None:
            raise LogDirectoryOfflineError(f"{topic}-{index} is offline: {offline.why}")
        raise NotLeaderError(f"this broker has no replica of {topic}-{index}")

    async def raise_leader_epoch(self, partition: ServedPartition, _epoch: int) -> None:
        """Do nothing: the controller sets the epoch."""

    # ---- LeaderAndIsr

    async def take_orders(
        self, orders: Sequence[Order], addresses: Mapping[int, tuple[str, int]]
    ) -> dict[TopicPartition, ErrorCode]:
        """Lead and follow as ordered; return the error of each partition.

        `addresses`: of the live leaders among other brokers. Followed partitions are fetched from now on. Orders that
        fail for a lack of file descriptors are retried here. Their error is not one of the disk, for which a controller
        would count the replica as dead until this broker restarts.
        """
        codes: dict[TopicPartition, ErrorCode] = {}
        led, followed = list[tuple[ServedPartition, Order]](), list[tuple[ServedPartition, Order]]()
        for order in orders:
            self._postponed.pop(order.key, None)
            try:
                partition = await self._ordered(order)
            except MagicbyteError as error:
                codes[order.key] = self._refusal(order, addresses, error)
                continue
            if partition is None:
                codes[order.key] = ErrorCode.STALE_CONTROLLER_EPOCH
                continue
            codes[order.key] = ErrorCode.NONE
            is_led = order.state.leader == self._runtime.node_id
            (led if is_led else followed).append((partition, order))
        leaders = {order.key: self._fetchers.forget(order.key) for _, order in (*led, *followed)}
        for partition, order in led:
            try:
                await self._lead(partition, order)
            except MagicbyteError as error:
                codes[order.key] = self._refusal(order, addresses, error)
        for partition, order in followed:
            await self._follow(partition, order, addresses.get(order.state.leader), leaders[order.key])
        await self._fetchers.close_idle()
        return codes

    def _refusal(self, order: Order, addresses: Mapping[int, tuple[str, int]], error: MagicbyteError) -> ErrorCode:
        """Return the error of a failed order; schedule a retry if that may succeed soon."""
        if not isinstance(error, OutOfDescriptorsError):
            return error.code
        self._runtime.complaints.line(logs, "descriptors", "orders", "%s: tried again: %s", order.key, error)
        self._postponed[order.key] = order, addresses.get(order.state.leader)
        self._has_postponed.set()
        return ErrorCode.UNKNOWN_SERVER_ERROR

    async def _try_postponed(self) -> None:
        """Retry the orders that lacked file descriptors, until they succeed."""
        while True:
            await self._has_postponed.wait()
            await asyncio.sleep(self._runtime.config.replica_fetch_backoff_ms / 1000)
            async with self.turn:
                self._has_postponed.clear()
                waiting = list(self._postponed.values())
                addresses = {order.state.leader: address for order, address in waiting if address is not None}
                await self.take_orders([order for order, _ in waiting], addresses)

    async def _ordered(self, order: Order) -> ServedPartition | None:
        """Return the partition of an order, its log created if needed; None for an order that is not newer.

        Raises UnknownTopicError if this broker must not have a replica of it, LogDirectoryOfflineError.
        """
        runtime, key = self._runtime, order.key
        if runtime.node_id not in order.replicas:
            raise UnknownTopicError(f"{key} is not assigned to this broker")
        partition = self.partitions.get(key)
        if partition is not None:
            return partition if order.state.leader_epoch > partition.leader_epoch else None
        self._topics.existing_log(*key)  # raises an error for an offline log
        async with runtime.directory:
            made = await runtime.writing.run(self._topics.log, *key)
        partition = self.partitions[key] = ServedPartition(key.topic, key.partition, made)
        return partition

    async def _lead(self, partition: ServedPartition, order: Order) -> None:
        runtime, now_ms, state = self._runtime, self._runtime.clock.monotonic_ms(), order.state
        async with partition.lock:  # excludes appends and truncations
            leader = partition.leader
            if leader is not None:
                leader.renew(state, order.replicas, order.version, now_ms)
            else:
                end = partition.log.log_end_offset
                leader = LeaderPartition(
                    runtime.node_id,
                    state,
                    order.replicas,
                    order.version,
                    log_end_offset=end,
                    high_watermark=partition.log.high_watermark,
                    now_ms=now_ms,
                    max_lag_ms=runtime.config.replica_lag_time_max_ms,
                )
            if self._topics.rules(partition.topic).format is Format.V2:
                await runtime.logs_lock.acquire_shared()  # maintenance writes the file of epochs, too
                try:
                    await runtime.writing.run(_begin_epoch, partition.log, state.leader_epoch)
                finally:
                    runtime.logs_lock.release_shared()
            partition.lead(leader)
        logs.info("%s: leads from offset %d on in epoch %d; in sync: %s",
                 partition, partition.log.log_end_offset, state.leader_epoch, list(state.isr))  # fmt: skip
        if (coordinator := self._coordinator_of(partition.topic)) is not None:
            coordinator.elected(partition.index, state.leader_epoch)

    async def _follow(
        self,
        partition: ServedPartition,
        order: Order,
        address: tuple[str, int] | None,
        before: FollowedLeader | None,
    ) -> None:
        state = order.state
        async with partition.lock:
            partition.follow(state.leader, state.leader_epoch)
        if (coordinator := self._coordinator_of(partition.topic)) is not None:
            coordinator.resigned(partition.index, state.leader_epoch)
        if address is None or self._is_closed:
            what = "no longer followed" if self._is_closed else "no leader"
            logs.info("%s: %s in epoch %d", partition, what, state.leader_epoch)
            return
        logs.info("%s: follows broker %d from offset %d on in epoch %d",
                 partition, state.leader, partition.log.log_end_offset, state.leader_epoch)  # fmt: skip
        await self._fetchers.follow(partition, address, before)

    # ---- StopReplica

    async def stop(self, key: TopicPartition, leader_epoch: int | None, *, deletes: bool) -> ErrorCode:
        """Stop following or leading a partition, and delete its log (`deletes`). `leader_epoch`: None matches any."""
        partition = self.partitions.get(key)
        if partition is not None and leader_epoch is not None and 0 <= leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        self._fetchers.forget(key)
        self._postponed.pop(key, None)
        if partition is not None:
            async with partition.lock:
                partition.follow(NO_BROKER, partition.leader_epoch)
            if (coordinator := self._coordinator_of(key.topic)) is not None:
                coordinator.resigned(key.partition, partition.leader_epoch)
        if deletes:
            await self._delete_log(key)
        return ErrorCode.NONE

    async def _delete_log(self, key: TopicPartition) -> None:
        """Delete the log of a removed replica. A missing log is no error."""
        async with self._runtime.directory, self._runtime.logs_lock:
            with self._background.without([key]):
                gone = await self._runtime.writing.run(self._take_log_away, key)
            self.forget([key])
            if gone is not None:
                gone.release()

    def _take_log_away(self, key: TopicPartition) -> PartitionLog | None:
        monotonic_ms = self._runtime.clock.monotonic_ms()
        return self._logs.take_away([key], monotonic_ms=monotonic_ms)[0] if key in self._logs.logs else None

    # ---- followers of led partitions

    def fetched(self, partition: ServedPartition, follower_id: int, asked: FetchPartition) -> None:
        """Record the offset from which a follower fetches: it has all records before that."""
        leader, now_ms = partition.led(), self._runtime.clock.monotonic_ms()
        if leader.followers[follower_id].log_start_offset != asked.log_start_offset:
            partition.wake()  # DeleteRecords may be waiting for it
        if leader.fetched(follower_id, asked.fetch_offset, asked.log_start_offset, now_ms):
            partition.advance(leader.high_watermark)
        if (change := leader.expansion(follower_id)) is not None:
            self._runtime.spawn(self._write_isr(partition, leader, change))

    def low_watermark(self, partition: ServedPartition) -> int:
        """Return the smallest log start offset of the live replicas, -1 if one is unknown."""
        starts = [
            each.log_start_offset
            for broker_id, each in partition.led().followers.items()
            if broker_id in self._view.live and self._tells_log_start
        ]
        return min([partition.log.log_start_offset, *starts])

    def nearest(self, partition: ServedPartition, rack: str, offset: int) -> int | None:
        """Return the replica from which consumers in a rack should read; None for this one (KIP-392)."""
        selector = self._runtime.config.replica_selector_class
        leader = partition.leader
        if leader is None or selector is None or selector.rpartition(".")[2] != _SELECTOR:
            return None
        if self._runtime.config.broker_rack == rack:
            return None
        distances = [
            (-each.log_end_offset, broker_id)
            for broker_id, each in leader.followers.items()
            if broker_id in leader.state.isr
            and each.log_start_offset <= offset <= each.log_end_offset
            and self._view.rack(broker_id) == rack
        ]
        return min(distances)[1] if distances else None

    # ---- in-sync replicas

    async def _shrink(self) -> None:
        """Remove lagging followers from the ISR."""
        while True:
            await asyncio.sleep(self._runtime.config.replica_lag_time_max_ms / 2000)
            now_ms = self._runtime.clock.monotonic_ms()
            for partition in list(self.partitions.values()):
                leader = partition.leader
                if leader is not None and (change := leader.shrinking(now_ms)) is not None:
                    await self._write_isr(partition, leader, change)

    async def _write_isr(self, partition: ServedPartition, leader: LeaderPartition, change: IsrChange) -> None:
        """Write a change of the ISR into the state node, unless the controller has changed that meanwhile."""
        before = leader.state.isr
        key = TopicPartition(partition.topic, partition.index)
        try:
            written = await self._states.write(key, change.state, change.expected_version)
        except BadVersionError:
            self._runtime.metrics.failed_isr_updates += 1
            await self._read_refused(partition, leader, change, key)
            return
        except (NetworkError, MetadataError) as error:
            logs.warning("%s: in-sync replicas %s could not be written: %s", partition, list(change.state.isr), error)
            leader.isr_failed(change)
            return
        if leader.isr_written(change, written.version, self._runtime.clock.monotonic_ms()):
            partition.advance(leader.high_watermark)
        if len(change.state.isr) < len(before):
            self._runtime.metrics.isr_shrinks += 1
        else:
            self._runtime.metrics.isr_expands += 1
        logs.info("%s: in sync: %s, before: %s", partition, list(change.state.isr), list(before))
        self._isr_changed(partition)

    async def _read_refused(
        self, partition: ServedPartition, leader: LeaderPartition, change: IsrChange, key: TopicPartition
    ) -> None:
        try:
            found, version = await self._states.read(key)
        except (NetworkError, MetadataError) as error:
            logs.warning("%s: the state of the partition could not be read: %s", partition, error)
            leader.isr_failed(change)
            return
        if leader.isr_refused(change, found, version, self._runtime.clock.monotonic_ms()):
            partition.advance(leader.high_watermark)
        self._isr_changed(partition)

    def _isr_changed(self, partition: ServedPartition) -> None:
        partition.wake()  # the result of acks=all may change
        self._notifications.changed(partition.topic, partition.index, self._runtime.clock.monotonic_ms())
        self._has_notifications.set()

    async def _notify(self) -> None:
        """Notify the controller of changed ISRs, in batches."""
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
                logs.warning("the controller could not be notified of changed in-sync replicas: %s", error)
                now_ms = self._runtime.clock.monotonic_ms()
                for topic, index in due:
                    self._notifications.changed(topic, index, now_ms)
                self._has_notifications.set()


def _begin_epoch(log: PartitionLog, epoch: int) -> None:
    """Record that this replica leads in an epoch from its log's end on: later records of other replicas are discarded.

    Kafka does so from 2.0 on; before, the epoch's first batch adds it to the file. Older formats have no epochs.
    """
    if log.config.rules.has_producers:
        with log.health:
            log.epoch_file.begin(epoch, log.log_end_offset)
