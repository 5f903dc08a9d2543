"""Plain counters: what a migration is steered by. Who shows them, and in which form, is not decided here."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from magicbyte.records.encode import Format

now_ns = time.perf_counter_ns


class Conversion(NamedTuple):
    """What became of sets: the formats before and behind, and the version of the request. Equal: they stayed closed."""

    source: Format
    target: Format
    version: int


@dataclass(slots=True)
class Moved:
    """Bytes as they came, sets (of a fetch that converts nothing: slices, not looked into), and time in ns."""

    bytes: int = 0
    sets: int = 0
    time_ns: int = 0

    def add(self, size: int, sets: int, time_ns: int) -> None:
        """Count some more."""
        self.bytes += size
        self.sets += sets
        self.time_ns += time_ns


@dataclass(slots=True)
class TopicMetrics:
    """Counters of one topic. `recompressions_avoided`: compressed sets that were stored with the bytes that came."""

    produced: dict[Conversion, Moved] = field(default_factory=dict)
    fetched: dict[Conversion, Moved] = field(default_factory=dict)
    recompressions_avoided: int = 0
    recompressions_done: int = 0
    sets_refused: int = 0


@dataclass(slots=True)
class Metrics:
    """Counters of a broker, since it was started."""

    topics: dict[str, TopicMetrics] = field(default_factory=dict)

    def of(self, topic: str) -> TopicMetrics:
        """Return the counters of a topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicMetrics()
        return found


def count(moved: dict[Conversion, Moved], what: Conversion, size: int, sets: int, time_ns: int) -> None:
    """Add to one of a topic's tables."""
    found = moved.get(what)
    if found is None:
        found = moved[what] = Moved()
    found.add(size, sets, time_ns)
