"""Replication throttles of a broker: one for records sent to followers, one for those fetched from leaders.

In-sync replicas are never delayed, but their traffic counts. Source: Kafka's ReplicationQuotaManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from magicbyte.engine.replication.throttle import ThrottledReplicas, Throughput
from magicbyte.server.settings.topic_config import TopicConfig

if TYPE_CHECKING:
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.topics import Topics


class ReplicationThrottle:
    """One side's throttle: `rate` returns the limit in bytes per second, `replicas` the throttled replicas of a
    topic.
    """

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
        """Return whether a replica that is not in sync must wait: it is throttled, and the rate is exceeded."""
        passed = self._throughput.per_second(self._runtime.clock.monotonic_ms())
        return passed > self._rate() and self._is_throttled(topic, partition)

    def record(self, topic: str, partition: int, size: int) -> None:
        """Record sent or fetched bytes of a partition, if it is throttled."""
        if size and self._is_throttled(topic, partition):
            self._throughput.record(size, self._runtime.clock.monotonic_ms())

    def _is_throttled(self, topic: str, partition: int) -> bool:
        found = self._topics.get(topic)
        return found is not None and self._replicas(found.config).has(partition, self._runtime.node_id)
