"""The replicas of a broker: its partitions with their roles, and waiting requests.

Roles are ordered (`PartitionOrder`), and here they are taken: logs are created, fetching is started and stopped.
A controller sends orders, or they follow from the broker's own image of the cluster (`own_order`): then it leads each
partition from its first use on. Source: Kafka's ReplicaManager and Partition.

Invariants:
1. Requests of the controller are executed one at a time (`turn`). An order with no higher leader epoch is ignored.
2. The role of a partition changes with its lock held, so not within an append, a truncation or a deletion of records.
   A partition that is led by the image has its role before anything else knows it.
3. Fetching stops before the role changes, and starts again after it: a fetcher never writes to a log that this broker
   leads.
4. In a log of magic 2 the leader's epoch is in the file of epochs before anything is appended in it. That file is
   written with `logs_lock` shared, like every other change of a log. An order of the image begins no epoch: there is no
   other replica that could have records after the end of the log, and the first batch of an epoch adds it.
5. A log is created with `Runtime.directory` held, and deleted with `Runtime.directory` and `logs_lock` held, after its
   role has ended.
6. With `log.flush.policy=group-commit` all records of a log are durable before its broker leads: they count for the
   high watermark at once, and some may be from a fetch whose sync was still pending.

Roles are in memory only: after a crash the controller sends them again, or they follow from the image again.
Tests: `test_replicas.py`, `test_followers.py`, `test_cluster_checks.py`, `tests/simulation/test_cluster_bugs.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

from magicbyte.engine.errors import (
    ErrorCode,
    MagicbyteError,
    NotLeaderError,
    OutOfDescriptorsError,
    UnknownTopicError,
)
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.records.encode import Format
from magicbyte.engine.releases import inter_broker_versions
from magicbyte.engine.replication.leader import LeaderPartition
from magicbyte.engine.replication.state import PartitionOrder
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.server.partitions.partition import ServedPartition

if TYPE_CHECKING:
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.protocol.messages.fetch import FetchPartition
    from magicbyte.server.partitions.background import Background
    from magicbyte.server.partitions.in_sync import Replication
    from magicbyte.server.partitions.replica_fetchers import FollowedLeader
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.topics import Topics

    class OfPartitions(Protocol):
        """A coordinator: it works for the partitions of its topic that this broker leads."""

        def elected(self, partition: int, leader_epoch: int) -> None:
            """Begin to work for a partition that this broker leads."""

        def resigned(self, partition: int, leader_epoch: int) -> None:
            """End the work for a partition."""


P = ParamSpec("P")
T = TypeVar("T")

logs = logger(__name__)

_FIRST_WITH_LOG_START: Final = 5
_SELECTOR: Final = "RackAwareReplicaSelector"


class Replicas:
    """The replicas of a broker.

    `partitions` has those with a log and a role. `controller` is the latest one seen, by its epoch and the number of
    its connection: requests of an earlier one are refused. Its requests are executed one at a time (`turn`).
    """

    def __init__(
        self,
        runtime: Runtime,
        topics: Topics,
        logs: LogDirectory,
        *,
        view: ClusterView,
        background: Background,
        own_order: Callable[[TopicPartition], PartitionOrder | None],
        coordinator_of: Callable[[str], OfPartitions | None],
        replication: Callable[[Mapping[tuple[str, int], ServedPartition]], Replication],
    ) -> None:
        """`own_order` returns the order that follows from the image, None if a controller sends orders.

        It raises UnknownTopicError. `coordinator_of` returns the coordinator whose topic this is, None for most topics.
        `replication` is called at the first order of a controller, with the partitions: else nothing of it is needed.
        """
        self._runtime, self._topics, self._logs, self._view = runtime, topics, logs, view
        self._background, self._own_order, self._coordinator_of = background, own_order, coordinator_of
        self._make_replication = replication
        self.partitions: dict[tuple[str, int], ServedPartition] = {}
        self.turn = asyncio.Lock()
        self.controller = 0, 0
        self._replication: Replication | None = None
        self._is_closed = False
        self._postponed: dict[TopicPartition, tuple[PartitionOrder, tuple[str, int] | None]] = {}
        self._retry: asyncio.Task[None] | None = None

    @property
    def replication(self) -> Replication:
        """Fetching from other brokers, and the in-sync replicas; from the first use on."""
        if self._replication is None:
            self._replication = made = self._make_replication(self.partitions)
            made.in_sync.start()
        return self._replication

    async def close(self) -> None:
        """Stop following, whatever the controller orders later."""
        self._is_closed = True
        if self._replication is not None:
            fetchers = self._replication.fetchers
            for key in list(fetchers.partitions):
                fetchers.forget(key)
            await fetchers.close_idle()

    # ---- look-ups

    async def opened(self, topic: str, index: int) -> ServedPartition:
        """Return a partition with a replica on this broker, its log created if needed.

        Raises UnknownTopicError, NotLeaderError without a replica, LogDirectoryOfflineError.
        """
        served = self.partitions.get((topic, index))
        if served is not None:
            return served
        key = TopicPartition(topic, index)
        if self._topics.existing_log(topic, index) is None and self._own_order(key) is not None:
            async with self._runtime.directory:
                await self._runtime.writing.run(self._topics.log, topic, index)
        return self.partition(topic, index)

    async def known_partition(self, topic: str, index: int) -> ServedPartition | None:
        """Return a partition, None if there is no replica here, or cannot be."""
        try:
            return await self.opened(topic, index)
        except MagicbyteError:
            return None

    def partition(self, topic: str, index: int) -> ServedPartition:
        """Return a partition with its log, created if needed; `opened` does this without blocking.

        Raises as `opened` does.
        """
        served = self.partitions.get((topic, index))
        if served is None:
            self._topics.existing_log(topic, index)  # raises an error for an offline log
            order = self._own_order(TopicPartition(topic, index))
            if order is None:
                raise NotLeaderError(f"this broker has no replica of {topic}-{index}")
            served = ServedPartition(topic, index, self._topics.log(topic, index))
            served.lead(self._leader_by(order, served))
            self.partitions[topic, index] = served
        return served

    async def read(self, partition: ServedPartition, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return the result of `work`, which looks something up in a partition's log.

        Raises UnknownTopicError if the partition was deleted meanwhile: then the result may be anything.
        """
        try:
            return await self._runtime.run_short(self._runtime.reading, partition, partial(work, *arguments, **named))
        finally:
            self.check_is_there(partition)

    async def read_long(
        self, partition: ServedPartition, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Return the result as `read` does, for work that is always slow."""
        try:
            return await self._runtime.reading.run(work, *arguments, **named)
        finally:
            self.check_is_there(partition)

    def check_is_there(self, partition: ServedPartition) -> None:
        """Raise UnknownTopicError if the partition was deleted while its lock was awaited."""
        if self.partitions.get((partition.topic, partition.index)) is not partition:
            raise UnknownTopicError(f"{partition} was deleted; another partition has its name now")

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Forget deleted partitions, and wake their waiting requests."""
        for key in keys:
            found = self.partitions.pop(key, None)
            if found is not None:
                found.wake()

    def wake_all(self) -> None:
        """Wake all waiting requests."""
        for partition in self.partitions.values():
            partition.wake()

    # ---- roles

    async def take_orders(
        self, orders: Sequence[PartitionOrder], addresses: Mapping[int, tuple[str, int]]
    ) -> dict[TopicPartition, ErrorCode]:
        """Lead and follow as ordered; return the error of each partition.

        `addresses`: of the live leaders among other brokers. Followed partitions are fetched from now on. Orders that
        fail for a lack of file descriptors are retried here. Their error is not one of the disk, for which a controller
        would count the replica as dead until this broker restarts.
        """
        codes: dict[TopicPartition, ErrorCode] = {}
        led, followed = list[tuple[ServedPartition, PartitionOrder]](), list[tuple[ServedPartition, PartitionOrder]]()
        for order in orders:
            self._postponed.pop(order.partition, None)
            try:
                partition = await self._ordered(order)
            except MagicbyteError as error:
                codes[order.partition] = self._refusal(order, addresses, error)
                continue
            if partition is None:
                self._confirm(order)
                codes[order.partition] = ErrorCode.STALE_CONTROLLER_EPOCH
                continue
            codes[order.partition] = ErrorCode.NONE
            is_led = order.state.leader == self._runtime.node_id
            (led if is_led else followed).append((partition, order))
        fetchers = self.replication.fetchers
        leaders = {order.partition: fetchers.forget(order.partition) for _, order in (*led, *followed)}
        for partition, order in led:
            try:
                await self._lead(partition, order)
            except MagicbyteError as error:
                codes[order.partition] = self._refusal(order, addresses, error)
        for partition, order in followed:
            await self._follow(partition, order, addresses.get(order.state.leader), leaders[order.partition])
        await fetchers.close_idle()
        return codes

    def _confirm(self, order: PartitionOrder) -> None:
        """Let a coordinator that was suspended continue, if this is the order by which it worked."""
        held = self.partitions.get(order.partition)
        if held is None or held.leader is None or order.state.leader_epoch != held.leader_epoch:
            return
        if (coordinator := self._coordinator_of(held.topic)) is not None:
            coordinator.elected(held.index, held.leader_epoch)

    def _refusal(
        self, order: PartitionOrder, addresses: Mapping[int, tuple[str, int]], error: MagicbyteError
    ) -> ErrorCode:
        """Return the error of a failed order; schedule a retry if that may succeed soon."""
        if not isinstance(error, OutOfDescriptorsError):
            return error.code
        key = order.partition
        self._runtime.complaints.line(logs, "descriptors", "orders", "%s: tried again: %s", key, error)
        self._postponed[key] = order, addresses.get(order.state.leader)
        if self._retry is None:
            self._retry = self._runtime.spawn(self._try_postponed())
        return ErrorCode.UNKNOWN_SERVER_ERROR

    async def _try_postponed(self) -> None:
        """Retry the orders that lacked file descriptors, until they succeed."""
        try:
            while self._postponed:
                await asyncio.sleep(self._runtime.config.replica_fetch_backoff_ms / 1000)
                async with self.turn:
                    waiting = list(self._postponed.values())
                    addresses = {order.state.leader: address for order, address in waiting if address is not None}
                    await self.take_orders([order for order, _ in waiting], addresses)
        finally:
            self._retry = None

    async def _ordered(self, order: PartitionOrder) -> ServedPartition | None:
        """Return the partition of an order, its log created if needed; None for an order that is not newer.

        Raises UnknownTopicError if this broker must not have a replica of it, LogDirectoryOfflineError.
        """
        runtime, key = self._runtime, order.partition
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

    async def _lead(self, partition: ServedPartition, order: PartitionOrder) -> None:
        runtime, state = self._runtime, order.state
        async with partition.lock:  # excludes appends and truncations
            leader = self._leader_by(order, partition)
            works = list[Callable[[], None]]()
            if self._topics.rules(partition.topic).format is Format.V2:
                works.append(partial(_begin_epoch, partition.log, state.leader_epoch))
            if partition.log.config.group_commit:  # invariant 6
                works.append(partial(partition.log.flush, runtime.clock.monotonic_ms()))
            for work in works:
                await runtime.logs_lock.acquire_shared()  # maintenance writes the file of epochs, too
                try:
                    await runtime.writing.run(work)
                finally:
                    runtime.logs_lock.release_shared()
            partition.lead(leader)
        logs.info("%s: leads from offset %d on in epoch %d; in sync: %s",
                 partition, partition.log.log_end_offset, state.leader_epoch, list(state.isr))  # fmt: skip
        if (coordinator := self._coordinator_of(partition.topic)) is not None:
            coordinator.elected(partition.index, state.leader_epoch)

    def _leader_by(self, order: PartitionOrder, partition: ServedPartition) -> LeaderPartition:
        """Return the leader's side of a partition as ordered; the present one with its followers, if there is one."""
        runtime, now_ms, leader = self._runtime, self._runtime.clock.monotonic_ms(), partition.leader
        if leader is not None:
            leader.renew(order.state, order.replicas, order.version, now_ms)
            return leader
        return LeaderPartition(
            runtime.node_id,
            order.state,
            order.replicas,
            order.version,
            log_end_offset=partition.log.log_end_offset,
            high_watermark=partition.log.high_watermark,
            now_ms=now_ms,
            max_lag_ms=runtime.config.replica_lag_time_max_ms,
        )

    async def raise_leader_epoch(self, partition: ServedPartition, epoch: int) -> None:
        """Lead in a later epoch, that of records appended unchanged; not if the controller sets it.

        Raises UnknownTopicError.
        """
        key = TopicPartition(partition.topic, partition.index)
        if self._own_order(key) is None:
            return
        await self._topics.raise_leader_epoch(*key, epoch)
        if (order := self._own_order(key)) is not None:
            partition.lead(self._leader_by(order, partition))

    async def _follow(
        self,
        partition: ServedPartition,
        order: PartitionOrder,
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
        await self.replication.fetchers.follow(partition, address, before)

    async def stop(self, key: TopicPartition, leader_epoch: int | None, *, deletes: bool) -> ErrorCode:
        """Stop following or leading a partition, and delete its log (`deletes`). `leader_epoch`: None matches any."""
        partition = self.partitions.get(key)
        if partition is not None and leader_epoch is not None and 0 <= leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        self.replication.fetchers.forget(key)
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
        self.replication.in_sync.fetched(partition, follower_id)

    async def delete_records(
        self, topic: str, index: int, offset: int, check: Callable[[str], None] | None = None
    ) -> ServedPartition:
        """Raise the log start offset of a partition that this broker leads; return the partition.

        `check` raises an error for a topic whose records must stay. Raises NotLeaderError, UnknownTopicError,
        OffsetOutOfRangeError, and those of `check`.
        """
        opened = await self.opened(topic, index)
        async with opened.lock:  # before `logs_lock`, as appends do
            opened.led()  # a follower's log begins where its leader's does
            await self._runtime.logs_lock.acquire_shared()
            try:
                self.check_is_there(opened)
                if check is not None:
                    check(topic)
                await self._runtime.writing.run(opened.log.delete_records, offset)
                return opened
            finally:
                self._runtime.logs_lock.release_shared()

    def low_watermark(self, partition: ServedPartition) -> int:
        """Return the smallest log start offset of the live replicas, -1 if one is unknown.

        Below it, records are deleted everywhere.
        """
        followers, start = partition.led().followers, partition.log.log_start_offset
        protocol = self._runtime.config.inter_broker_protocol_version
        if not followers or inter_broker_versions(protocol)[ApiKey.FETCH] < _FIRST_WITH_LOG_START:
            return start
        live = self._view.live
        return min([start, *(each.log_start_offset for broker_id, each in followers.items() if broker_id in live)])

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


def _begin_epoch(log: PartitionLog, epoch: int) -> None:
    """Record that this replica leads in an epoch from its log's end on: later records of other replicas are discarded.

    Kafka does so from 2.0 on; before, the epoch's first batch adds it to the file. Older formats have no epochs.
    """
    if log.config.rules.has_producers:
        with log.health:
            log.epoch_file.begin(epoch, log.log_end_offset)
