"""Decide which segments of a log are due for deletion, and where to cut the head of the first remaining one.

Decided by the records' largest timestamps, offsets and sizes, never by modification times, except for logs without
timestamps, where Kafka has nothing else. Source: Kafka's UnifiedLog.deleteOldSegments; head truncation is that of the
Enriched Message Metadata proposal.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from magicbyte.engine.log.files.resync import first_offset_at
from magicbyte.engine.records.layout import Dialect

if TYPE_CHECKING:
    from magicbyte.engine.log.live.config import LogConfig
    from magicbyte.engine.log.live.segment import Segment


class Reason(enum.Enum):
    """Why a segment is deleted, or a head cut."""

    TIME = "older than retention.ms"
    SIZE = "more than retention.bytes"
    START = "below the log start offset"


class Removed(Struct, frozen=True):
    """A segment that retention deletes, or the head of one (`head`), with its bytes and offsets."""

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int
    reason: Reason
    head: bool = False


class Retention(Struct, frozen=True):
    """The deletions of a log with these settings and bounds at `now_ms`.

    Offsets from the high watermark on are kept.
    """

    config: LogConfig
    now_ms: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int

    def plan(self, segments: Sequence[Segment]) -> tuple[list[Removed], int]:
        """Return the deletions for a log of these segments, and its new log start offset."""
        removed = self.due(segments)
        start = max(self.log_start_offset, removed[-1].end_offset if removed else 0)
        if len(removed) < len(segments):  # it may begin after a gap that an earlier deletion left
            start = max(start, min(segments[len(removed)].base_offset, self.high_watermark))
        if len(removed) < len(segments) and (head := self.head(segments[len(removed)])) is not None:
            removed.append(head)
            start = max(start, min(head.end_offset, self.high_watermark))  # a gap may follow the head
        return removed, start

    def due(self, segments: Sequence[Segment]) -> list[Removed]:
        """Return the segments to delete, from the first on; also the last one of the log, unless it is empty."""
        config, due = self.config, list[Removed]()
        if config.dialect is Dialect.ENRICHED and config.compact:
            return due
        surplus = sum(each.size for each in segments) - config.retention_bytes
        for at, segment in enumerate(segments):
            is_last = at + 1 == len(segments)
            end = self.log_end_offset if is_last else segments[at + 1].base_offset
            if end > self.high_watermark or (is_last and not segment.size):
                break
            if end <= self.log_start_offset and not is_last:
                reason = Reason.START
            elif config.delete and self._is_old(segment):
                reason = Reason.TIME
            elif config.delete and config.retention_bytes >= 0 and surplus >= segment.size:
                reason = Reason.SIZE
            else:
                break
            surplus -= segment.size
            due.append(Removed(segment.base_offset, end, segment.size, segment.largest_timestamp, reason))
        return due

    def _is_old(self, segment: Segment) -> bool:
        """Return whether a whole segment is older than the retention time; enriched segments without times count as
        new.
        """
        config = self.config
        if config.retention_ms < 0:
            return False
        if config.dialect is Dialect.ENRICHED:
            return 0 <= segment.largest_timestamp < self.now_ms - config.retention_ms
        return self.now_ms - segment.largest_or_modified() > config.retention_ms

    def head(self, segment: Segment) -> Removed | None:
        """Return the head of `size` bytes to cut from the first remaining segment, which is never emptied, or None.

        The head is below the log start offset or before the retention time.
        """
        config = self.config
        if not (config.delete if config.dialect is Dialect.ENRICHED else config.head_truncation):
            return None
        size = self._head_size(segment)
        if not size:
            return None
        end = first_offset_at(segment.log, size, config.dialect)
        reason = Reason.START if end <= self.log_start_offset else Reason.TIME
        return Removed(segment.base_offset, end, size, segment.largest_timestamp, reason, head=True)

    def _head_size(self, segment: Segment) -> int:
        """Return the position of the first entry of a segment that must stay."""
        config = self.config
        oldest = self.now_ms - config.retention_ms if config.delete and config.retention_ms >= 0 else None
        begin = segment.position_before(self.log_start_offset)
        if oldest is not None:
            begin = max(begin, segment.position_before_timestamp(oldest))
        begin = min(begin, segment.position_before(self.high_watermark))
        for head in segment.heads(begin):
            last = segment.last_offset_of(head)
            is_due = last < self.log_start_offset or (oldest is not None and 0 <= head.timestamp < oldest)
            if last >= self.high_watermark or not is_due:
                return head.position
        return 0
