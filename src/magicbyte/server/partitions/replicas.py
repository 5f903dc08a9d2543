"""The replicas of a broker: its partitions with their roles, and waiting requests.

A broker that is a cluster by itself leads all of them; in a cluster the controller decides (`cluster_replicas.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from magicbyte.engine.errors import MagicbyteError, UnknownTopicError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.leader import LeaderPartition
from magicbyte.engine.replication.state import PartitionState
from magicbyte.server.partitions.partition import ServedPartition

if TYPE_CHECKING:
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.protocol.messages.fetch import FetchPartition
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.topics import Topics

P = ParamSpec("P")
T = TypeVar("T")


class Replicas:
    """The replicas of a broker that leads all partitions. A log is created at its first use."""

    def __init__(self, runtime: Runtime, topics: Topics) -> None:
        self._runtime, self._topics = runtime, topics
        self.partitions: dict[tuple[str, int], ServedPartition] = {}

    async def opened(self, topic: str, index: int) -> ServedPartition:
        """Return a partition with a replica on this broker, its log created if needed.

        Raises UnknownTopicError, NotLeaderError without a replica, LogDirectoryOfflineError.
        """
        while (log := self._topics.existing_log(topic, index)) is None:
            async with self._runtime.directory:
                await self._runtime.writing.run(self._topics.log, topic, index)
        return self._served(topic, index, log)

    async def known_partition(self, topic: str, index: int) -> ServedPartition | None:
        """Return a partition, None if there is no replica here, or cannot be."""
        try:
            return await self.opened(topic, index)
        except MagicbyteError:
            return None

    def partition(self, topic: str, index: int) -> ServedPartition:
        """Return a partition with its log, created if needed; `opened` does this without blocking.

        Raises UnknownTopicError, LogDirectoryOfflineError.
        """
        return self._served(topic, index, self._topics.log(topic, index))

    def _served(self, topic: str, index: int, log: PartitionLog) -> ServedPartition:
        served = self.partitions.get((topic, index))
        if served is None or served.log is not log:
            if served is not None:
                served.wake()
            served = self.partitions[topic, index] = ServedPartition(topic, index, log)
            self._lead_alone(served, self._topics.leader_epoch(topic, index))
        return served

    def _lead_alone(self, partition: ServedPartition, epoch: int) -> None:
        """Lead a partition without other replicas."""
        broker_id, log = self._runtime.node_id, partition.log
        partition.lead(
            LeaderPartition(
                broker_id,
                PartitionState(broker_id, epoch, (broker_id,), 0),
                (broker_id,),
                0,
                log_end_offset=log.high_watermark,  # of a log that is being synced: its durable part
                high_watermark=log.high_watermark,
                now_ms=self._runtime.clock.monotonic_ms(),
                max_lag_ms=self._runtime.config.replica_lag_time_max_ms,
            )
        )

    async def raise_leader_epoch(self, partition: ServedPartition, epoch: int) -> None:
        """Lead in a later epoch, that of records appended unchanged. Raises UnknownTopicError."""
        await self._topics.raise_leader_epoch(partition.topic, partition.index, epoch)
        self._lead_alone(partition, epoch)

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

    def fetched(self, partition: ServedPartition, follower_id: int, asked: FetchPartition) -> None:
        """Record the offset from which a follower fetches: it has all records before that."""
        raise AssertionError(f"{partition} has no follower {follower_id}, which fetches from {asked.fetch_offset}")

    def nearest(self, _partition: ServedPartition, _rack: str, _offset: int) -> int | None:
        """Return the replica from which consumers in a rack should read; None for this one."""
        return None

    def low_watermark(self, partition: ServedPartition) -> int:
        """Return the smallest log start offset of the live replicas: below it, records are deleted everywhere."""
        return partition.log.log_start_offset

    def start(self) -> None:
        """Start periodic work."""

    async def close(self) -> None:
        """Stop fetching from other brokers."""

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
