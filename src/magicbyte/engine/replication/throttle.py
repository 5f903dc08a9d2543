"""Replication throttles (KIP-73): the throttled replicas, and the throughput of the last seconds."""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from msgspec import Struct

_ALL: Final = "*"
_REPLICA: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")


class ThrottledReplicas(Struct, frozen=True):
    """The replicas of one topic that are throttled: all, or pairs of partition and broker."""

    are_all: bool
    listed: frozenset[tuple[int, int]]

    @classmethod
    def parse(cls, text: str) -> ThrottledReplicas:
        """Parse `*` or `PARTITION:BROKER,...`. Raises ValueError."""
        entries = [each.strip() for each in text.split(",")]
        if entries[0] == _ALL:
            return cls(True, frozenset())
        found = [_REPLICA.fullmatch(each) for each in entries if each]
        if not all(found):
            raise ValueError(text)
        return cls(False, frozenset((int(each[1]), int(each[2])) for each in found if each))

    def has(self, partition: int, broker_id: int) -> bool:
        """Return whether the replica of a partition on a broker is throttled."""
        return self.are_all or (partition, broker_id) in self.listed


class Throughput:
    """The throughput per second, over the last `samples` samples of `sample_ms` each.

    The amount is divided by the time since the oldest sample began. Until there are `least_samples` complete samples,
    each missing one counts as elapsed; the divisor is at least one sample, so that traffic after a pause may use the
    limit of one sample at once. Kafka's SimpleRate has no `least_samples`; its Rate has all but one.
    """

    def __init__(self, samples: int, sample_ms: int, least_samples: int = 0) -> None:
        self._all_ms, self._sample_ms, self._least = samples * sample_ms, sample_ms, least_samples
        self._samples = deque[tuple[int, float]]()  # start and amount of each sample

    def record(self, amount: float, now_ms: int) -> None:
        """Record an amount; a negative one is subtracted."""
        self._forget_old(now_ms)
        if self._samples and now_ms - self._samples[-1][0] < self._sample_ms:
            began, before = self._samples.pop()
            self._samples.append((began, before + amount))
        else:
            self._samples.append((now_ms, amount))

    def window_ms(self, now_ms: int) -> int:
        """Return the divisor, in ms."""
        self._forget_old(now_ms)
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        missing = max(self._least - elapsed_ms // self._sample_ms, 0)
        return max(elapsed_ms + missing * self._sample_ms, self._sample_ms)

    def per_second(self, now_ms: int) -> float:
        """Return the amount per second."""
        window_ms = self.window_ms(now_ms)
        return sum(amount for _, amount in self._samples) * 1000 / window_ms

    def _forget_old(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= self._all_ms:
            self._samples.popleft()
