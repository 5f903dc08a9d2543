"""Throttles of replication on a broker: one for what it sends to followers, one for what it fetches from leaders.

Replicas that are in sync are never held back, but what they move counts. Source: Kafka's ReplicationQuotaManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from magicbyte.broker.topic_config import TopicConfig
from magicbyte.replication.throttle import ThrottledReplicas, Throughput

if TYPE_CHECKING:
    from magicbyte.broker.runtime import Runtime
    from magicbyte.broker.topics import Topics


class ReplicationThrottle:
    """One side's: `rate` returns the limit in bytes per second, `replicas` the throttled replicas of a topic."""

    def __init__(
        self,
        runtime: Runtime,
        topics: Topics,
        rate: Callable[[], int],
        replicas: Callable[[TopicConfig], ThrottledReplicas],
    ) -> None:
        self._runtime, self._topics, self._rate, self._replicas = runtime, topics, rate, replicas
        config = runtime.config
        self._throughput = Throughput(
            config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000
        )

    def holds_back(self, topic: str, partition: int) -> bool:
        """Say whether a replica that is not in sync has to wait: it is throttled, and more passed than may."""
        passed = self._throughput.per_second(self._runtime.clock.monotonic_ms())
        return passed > self._rate() and self._is_throttled(topic, partition)

    def record(self, topic: str, partition: int, size: int) -> None:
        """Take in that bytes of a partition were sent or fetched; they count where it is throttled."""
        if size and self._is_throttled(topic, partition):
            self._throughput.record(size, self._runtime.clock.monotonic_ms())

    def _is_throttled(self, topic: str, partition: int) -> bool:
        found = self._topics.get(topic)
        return found is not None and self._replicas(found.config).has(partition, self._runtime.node_id)
