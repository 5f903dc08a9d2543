"""The replicas that a broker has: its partitions with their roles, and whoever waits for them.

A broker that is a cluster by itself leads all of them; in a cluster of several the controller says which
(`cluster_replicas.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from magicbyte.broker.partition import ServedPartition
from magicbyte.errors import MagicbyteError, UnknownTopicError
from magicbyte.ports import TopicPartition
from magicbyte.replication.leader import LeaderPartition
from magicbyte.replication.state import PartitionState

if TYPE_CHECKING:
    from magicbyte.broker.runtime import Runtime
    from magicbyte.broker.topics import Topics
    from magicbyte.protocol.messages.fetch import FetchPartition

P = ParamSpec("P")
T = TypeVar("T")


class Replicas:
    """The replicas of a broker that leads all partitions. A log is made when it is first asked for."""

    def __init__(self, runtime: Runtime, topics: Topics) -> None:
        self._runtime, self._topics = runtime, topics
        self.partitions: dict[tuple[str, int], ServedPartition] = {}

    async def opened(self, topic: str, index: int) -> ServedPartition:
        """Return a partition of which this broker has a replica, its log made if need be.

        Raises UnknownTopicError, NotLeaderError without a replica, LogDirectoryOfflineError.
        """
        while not self._topics.has_log(topic, index):
            async with self._runtime.directory:
                await self._runtime.writing.run(self._topics.log, topic, index)
        return self.partition(topic, index)

    async def known_partition(self, topic: str, index: int) -> ServedPartition | None:
        """Return a partition, None for one of which there is no replica here, or cannot be."""
        try:
            return await self.opened(topic, index)
        except MagicbyteError:
            return None

    def partition(self, topic: str, index: int) -> ServedPartition:
        """Return a partition with its log, made if need be: who is not to wait for that asks `opened`.

        Raises UnknownTopicError, LogDirectoryOfflineError.
        """
        log_of = self._topics.log(topic, index)
        found = self.partitions.get((topic, index))
        if found is None or found.log is not log_of:
            if found is not None:
                found.wake()
            found = self.partitions[topic, index] = ServedPartition(topic, index, log_of)
            self._lead_alone(found, self._topics.leader_epoch(topic, index))
        return found

    def _lead_alone(self, partition: ServedPartition, epoch: int) -> None:
        """Lead a partition of which there is no other replica."""
        broker_id, log = self._runtime.node_id, partition.log
        partition.lead(
            LeaderPartition(
                broker_id,
                PartitionState(broker_id, epoch, (broker_id,), 0),
                (broker_id,),
                0,
                log_end_offset=log.high_watermark,  # of a log that is being synced: what is durable
                high_watermark=log.high_watermark,
                now_ms=self._runtime.clock.monotonic_ms(),
                max_lag_ms=self._runtime.config.replica_lag_time_max_ms,
            )
        )

    async def raise_leader_epoch(self, partition: ServedPartition, epoch: int) -> None:
        """Lead in a later epoch, that of records taken from elsewhere. Raises UnknownTopicError."""
        runtime = self._runtime
        async with runtime.directory:
            await runtime.writing.run(self._topics.raise_leader_epoch, partition.topic, partition.index, epoch)
        self._lead_alone(partition, epoch)

    async def read(self, partition: ServedPartition, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return what `work`, which looks something up in a partition's log, returns.

        Raises UnknownTopicError for a partition that was deleted meanwhile: what was read may be anything then.
        """
        try:
            return await self._runtime.run_short(self._runtime.reading, partition, partial(work, *arguments, **named))
        finally:
            self.check_is_there(partition)

    async def read_long(
        self, partition: ServedPartition, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Do as `read` does, for work that always takes its time."""
        try:
            return await self._runtime.reading.run(work, *arguments, **named)
        finally:
            self.check_is_there(partition)

    def check_is_there(self, partition: ServedPartition) -> None:
        """Raise UnknownTopicError for a partition that was deleted while somebody waited for his turn at it."""
        if self.partitions.get((partition.topic, partition.index)) is not partition:
            raise UnknownTopicError(f"{partition} was deleted; another partition has its name now")

    def fetched(self, partition: ServedPartition, follower_id: int, asked: FetchPartition) -> None:
        """Take in which offset a follower fetches from: it has all records before that."""
        raise AssertionError(f"{partition} has no follower {follower_id}, which asks for {asked.fetch_offset}")

    def nearest(self, _partition: ServedPartition, _rack: str, _offset: int) -> int | None:
        """Return the replica that consumers in a rack are to read from; None for this one."""
        return None

    def low_watermark(self, partition: ServedPartition) -> int:
        """Return the smallest log start offset of the live replicas: below it, records are deleted everywhere."""
        return partition.log.log_start_offset

    def start(self) -> None:
        """Begin what the clock asks for."""

    async def close(self) -> None:
        """End what fetches from other brokers."""

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Forget partitions that are deleted: whoever waits for them finds out."""
        for key in keys:
            found = self.partitions.pop(key, None)
            if found is not None:
                found.wake()

    def wake_all(self) -> None:
        """Have all who wait look again."""
        for partition in self.partitions.values():
            partition.wake()
