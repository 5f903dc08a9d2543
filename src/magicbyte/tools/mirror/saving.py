"""Estimate the CPU time saved by closed sets: that of decompressing and compressing them again.

It is measured on samples, now and then: they are fetched once more, recompressed, and thrown away. Decoding and
encoding their records would cost more, and is not counted.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from magicbyte.access.client.fetch import ClosedSets, FetchOptions, fetch_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.source import Source
from magicbyte.engine.codecs import Codec, Lz4Header, compress, decompress
from magicbyte.engine.records.decode import DEFAULT_OPTIONS
from magicbyte.engine.records.enriched import EnrichedMessage
from magicbyte.engine.records.entry import Entry, entries
from magicbyte.engine.records.message import MessageView
from magicbyte.tools.mirror.copier import Copied
from magicbyte.tools.mirror.plan import TopicMirrorPlan

LOOK_BYTES: Final = 1 << 16  # of sets per sample, more only for a single larger set
_BACK: Final = 100  # offsets before the end of a partition


@dataclass(slots=True)
class OpeningCost:
    """The cost of samples: bytes of sets, and CPU seconds."""

    size: int = 0
    seconds: float = 0.0
    looks: int = 0


class Savings:
    """Measure the savings, topic by topic. Call `look` now and then."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._costs: dict[str, OpeningCost] = {}

    def seconds(self, copied: Mapping[str, Copied]) -> dict[str, float]:
        """Return the saved CPU seconds by topic, for topics with samples."""
        known = {topic: cost for topic, cost in self._costs.items() if cost.size and topic in copied}
        return {topic: copied[topic].closed_bytes * cost.seconds / cost.size for topic, cost in known.items()}

    async def look(self, planned: list[TopicMirrorPlan], copied: Mapping[str, Copied]) -> None:
        """Sample a topic without a sample, or the one with most bytes per sample."""
        closed = {each.name: copied[each.name].closed_bytes for each in planned if each.name in copied}
        wanted = max((each for each in planned if closed.get(each.name)), key=self._due(closed), default=None)
        if wanted is None:
            return
        cost = self._costs.setdefault(wanted.name, OpeningCost())
        partition, cost.looks = cost.looks % wanted.partitions, cost.looks + 1
        start, end = await bounds(self._source, wanted.name, partition)
        if start == end:
            return
        options = FetchOptions(max_bytes=LOOK_BYTES, max_wait_ms=0, dialect=wanted.dialect)
        found = await fetch_sets(self._source, wanted.name, partition, max(start, end - _BACK), options)
        size, seconds = await asyncio.to_thread(opened, found)
        cost.size, cost.seconds = cost.size + size, cost.seconds + seconds

    def _due(self, closed: Mapping[str, int]) -> Callable[[TopicMirrorPlan], float]:
        def due(wanted: TopicMirrorPlan) -> float:
            looks = self._costs.get(wanted.name, OpeningCost()).looks
            return closed[wanted.name] / looks if looks else math.inf

        return due


def opened(found: ClosedSets) -> tuple[int, float]:
    """Decompress and compress compressed sets; return the bytes of all sets, and this thread's CPU time."""
    size, seconds = 0, 0.0
    for _, entry in entries(found.data, found.table.dialect):
        if entry.is_control or entry.record_count == 0:
            continue
        size += entry.size
        if entry.codec is not Codec.NONE:
            began = time.thread_time()
            inside = decompress(entry.codec, _payload(entry), limit=DEFAULT_OPTIONS.limit, lz4_header=Lz4Header.ANY)
            compress(entry.codec, inside)
            seconds += time.thread_time() - began
    return size, seconds


def _payload(entry: Entry) -> memoryview:
    if isinstance(entry, EnrichedMessage | MessageView):
        return entry.value or memoryview(b"")
    return entry.records_section
