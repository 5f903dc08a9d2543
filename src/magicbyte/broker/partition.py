"""A partition that this broker leads: its log, who changes it now, and who waits for records in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.log.segment import FileSlice, Segment

if TYPE_CHECKING:
    from magicbyte.log.partition_log import PartitionLog


_ONE_BATCH: Final = 2  # the magic of sets that are one batch each


class _Place(NamedTuple):
    """Where a batch begins, and its size in bytes."""

    segment: Segment
    generation: int
    position: int
    size: int


class Partition:
    """What the broker keeps beside the log of a partition. Changes of the log are made with `lock` held.

    `hot_offset`: what lies behind it was written so lately that it is in the system's cache.
    """

    __slots__ = (
        "_marked_bytes",
        "_newest",
        "_next_hot",
        "_recent",
        "hot_offset",
        "index",
        "lock",
        "log",
        "topic",
        "waiting",
    )

    HOT_BYTES = 32 << 20
    RECENT = 256

    def __init__(self, topic: str, index: int, log: PartitionLog) -> None:
        self.topic, self.index, self.log = topic, index, log
        self.lock = asyncio.Lock()
        self.waiting: set[asyncio.Event] = set()
        self.hot_offset = self._next_hot = log.log_end_offset
        self._marked_bytes = 0
        self._recent: dict[int, _Place] = {}  # by offset, the oldest first: what those ask for who are at the end
        self._newest: dict[tuple[str, int], tuple[int, int]] = {}  # of a segment's beginning: where it ends, magic

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def appended(self, first_offset: int, size: int, magic: int) -> None:
        """Take in that a set was written, of so many bytes, all of one format."""
        active = self.log.active
        position = active.size - size
        self.saw(active.log.path, position, active.size, magic)
        if magic == _ONE_BATCH:
            if len(self._recent) >= self.RECENT:
                del self._recent[next(iter(self._recent))]
            self._recent[first_offset] = _Place(active, self.log.generation, position, size)
        self._marked_bytes += size
        if self._marked_bytes >= self.HOT_BYTES:
            self.hot_offset, self._next_hot, self._marked_bytes = self._next_hot, self.log.log_end_offset, 0

    def recent(self, offset: int, max_bytes: int, *, whole_first: bool) -> FileSlice | None:
        """Return what `log.read` would from a batch on that was written lately; None where the log has to be asked."""
        place = self._recent.get(offset)
        active = self.log.active
        if place is None or place.segment is not active or place.generation != self.log.generation:
            return None
        length = min(max(max_bytes, place.size if whole_first else 0), active.size - place.position)
        return FileSlice(active.log, place.position, length) if offset >= self.log.log_start_offset else None

    def saw(self, path: str, position: int, end: int, magic: int) -> None:
        """Take in that no entry of a segment's file from `position` to `end` has a newer format than `magic`."""
        key = path, self.log.generation
        known_end, newest = self._newest.get(key, (0, -1))
        if position <= known_end:
            self._newest[key] = max(known_end, end), max(newest, magic)

    def newest_up_to(self, path: str, end: int) -> int | None:
        """Return a magic that no entry of a segment's file in front of `end` is newer than, None if it is not known."""
        known_end, newest = self._newest.get((path, self.log.generation), (0, -1))
        return newest if end <= known_end else None

    def advance(self, offset: int) -> None:
        """Let readers have what is below `offset`, and wake those that wait for it."""
        if offset > self.log.high_watermark:
            self.log.high_watermark = offset
            self.wake()

    def wake(self) -> None:
        """Have all who wait look again."""
        for event in self.waiting:
            event.set()
