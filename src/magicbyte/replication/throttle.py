"""Throttles of replication (KIP-73): which replicas they are for, and how much passed in the last seconds.

Pure: bytes and readings of the monotonic clock in. Sources: Kafka's ReplicationQuotaManager, SimpleRate and
ThrottledReplicaListValidator.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Final

_ALL: Final = "*"
_REPLICA: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The replicas of one topic that are throttled: all, or pairs of partition and broker."""

    are_all: bool
    listed: frozenset[tuple[int, int]]

    @classmethod
    def parse(cls, text: str) -> ThrottledReplicas:
        """Return what `*` or `PARTITION:BROKER,...` stands for. Raises ValueError."""
        entries = [each.strip() for each in text.split(",")]
        if entries[0] == _ALL:
            return cls(True, frozenset())
        found = [_REPLICA.fullmatch(each) for each in entries if each]
        if not all(found):
            raise ValueError(text)
        return cls(False, frozenset((int(each[1]), int(each[2])) for each in found if each))

    def has(self, partition: int, broker_id: int) -> bool:
        """Say whether the replica of a partition on a broker is throttled."""
        return self.are_all or (partition, broker_id) in self.listed


class Throughput:
    """Bytes per second over the last `samples` samples of `sample_ms` each.

    They are divided by the time since the oldest sample began, by one sample's time at least: what begins after a
    pause may pass at once up to the limit of one sample.
    """

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._all_ms, self._sample_ms = samples * sample_ms, sample_ms
        self._samples = deque[tuple[int, int]]()  # when each began, and its bytes

    def record(self, size: int, now_ms: int) -> None:
        """Take in that so many bytes passed."""
        self._forget_old(now_ms)
        if self._samples and now_ms - self._samples[-1][0] < self._sample_ms:
            began, before = self._samples.pop()
            self._samples.append((began, before + size))
        else:
            self._samples.append((now_ms, size))

    def per_second(self, now_ms: int) -> float:
        """Return the bytes per second."""
        self._forget_old(now_ms)
        if not self._samples:
            return 0.0
        return sum(size for _, size in self._samples) * 1000 / max(now_ms - self._samples[0][0], self._sample_ms)

    def _forget_old(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= self._all_ms:
            self._samples.popleft()
