"""A partition that this broker leads: its log, who changes it now, and who waits for records in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magicbyte.log.partition_log import PartitionLog


class Partition:
    """What the broker keeps beside the log of a partition. Changes of the log are made with `lock` held.

    `hot_offset`: what lies behind it was written so lately that it is in the system's cache.
    """

    __slots__ = ("_marked_bytes", "_newest", "_next_hot", "hot_offset", "index", "lock", "log", "topic", "waiting")

    HOT_BYTES = 32 << 20

    def __init__(self, topic: str, index: int, log: PartitionLog) -> None:
        self.topic, self.index, self.log = topic, index, log
        self.lock = asyncio.Lock()
        self.waiting: set[asyncio.Event] = set()
        self.hot_offset = self._next_hot = log.log_end_offset
        self._marked_bytes = 0
        self._newest: dict[tuple[str, int], tuple[int, int]] = {}  # of a segment's beginning: where it ends, magic

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def appended(self, size: int, magic: int) -> None:
        """Take in that so many bytes were written, all of one format."""
        active = self.log.active
        self.saw(active.log.path, active.size - size, active.size, magic)
        self._marked_bytes += size
        if self._marked_bytes >= self.HOT_BYTES:
            self.hot_offset, self._next_hot, self._marked_bytes = self._next_hot, self.log.log_end_offset, 0

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
