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

    __slots__ = ("_marked_bytes", "_next_hot", "hot_offset", "index", "lock", "log", "topic", "waiting")

    HOT_BYTES = 32 << 20

    def __init__(self, topic: str, index: int, log: PartitionLog) -> None:
        self.topic, self.index, self.log = topic, index, log
        self.lock = asyncio.Lock()
        self.waiting: set[asyncio.Event] = set()
        self.hot_offset = self._next_hot = log.log_end_offset
        self._marked_bytes = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def appended(self, size: int) -> None:
        """Take in that so many bytes were written."""
        self._marked_bytes += size
        if self._marked_bytes >= self.HOT_BYTES:
            self.hot_offset, self._next_hot, self._marked_bytes = self._next_hot, self.log.log_end_offset, 0

    def advance(self, offset: int) -> None:
        """Let readers have what is below `offset`, and wake those that wait for it."""
        if offset > self.log.high_watermark:
            self.log.high_watermark = offset
            self.wake()

    def wake(self) -> None:
        """Have all who wait look again."""
        for event in self.waiting:
            event.set()
