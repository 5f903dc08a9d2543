"""Which segments of a log are due to go, and where the head of the first that stays is to be cut.

By what the records say alone: the largest timestamps, offsets and sizes, never by when files were written; but for logs
without timestamps, where Kafka has nothing else. Source: Kafka's UnifiedLog.deleteOldSegments; the cut is that of the
Enriched Message Metadata proposal.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magicbyte.records.layout import Dialect

if TYPE_CHECKING:
    from magicbyte.log.live.config import LogConfig
    from magicbyte.log.live.segment import Head, Segment


class Reason(enum.Enum):
    """Why a segment goes, or a head is cut."""

    TIME = "older than retention.ms"
    SIZE = "more than retention.bytes"
    START = "below the log start offset"


@dataclass(frozen=True, slots=True)
class Due:
    """A segment that is due to be deleted."""

    segment: Segment
    reason: Reason


def due_segments(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    now_ms: int,
    end_offset: int,
    high_watermark: int,
    log_start_offset: int,
) -> list[Due]:
    """Return the segments to delete, from the first on; the last one of the log as well, if it holds anything.

    None goes that holds an offset at or above the high watermark.
    """
    due: list[Due] = []
    surplus = sum(each.size for each in segments) - config.retention_bytes
    for at, segment in enumerate(segments):
        is_last = at + 1 == len(segments)
        next_base = end_offset if is_last else segments[at + 1].base_offset
        if next_base > high_watermark or (is_last and not segment.size):
            break
        if next_base <= log_start_offset and not is_last:
            reason = Reason.START
        elif config.delete and _is_old(segment, config, now_ms):
            reason = Reason.TIME
        elif config.delete and config.retention_bytes >= 0 and surplus >= segment.size:
            reason = Reason.SIZE
        else:
            break
        surplus -= segment.size
        due.append(Due(segment, reason))
    return due


def _is_old(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    """Say whether all of a segment is older than the retention time; of the enriched dialect, unknown times are new."""
    if config.retention_ms < 0:
        return False
    if config.dialect is Dialect.ENRICHED:
        return 0 <= segment.largest_timestamp < now_ms - config.retention_ms
    return now_ms - segment.largest_or_modified() > config.retention_ms


def head_cut(
    segment: Segment, config: LogConfig, *, now_ms: int, high_watermark: int, log_start_offset: int
) -> Head | None:
    """Return the first entry of a segment that is to stay, where that is not its first; None: nothing is to be cut.

    What is cut off lies below the high watermark, and below the log start offset or before the retention time.
    """
    oldest = now_ms - config.retention_ms if config.delete and config.retention_ms >= 0 else None
    begin = segment.position_before(log_start_offset)
    if oldest is not None:
        begin = max(begin, segment.position_before_timestamp(oldest))
    begin = min(begin, segment.position_before(high_watermark))
    for head in segment.heads(begin):
        last = segment.last_offset_of(head)
        is_due = last < log_start_offset or (oldest is not None and 0 <= head.timestamp < oldest)
        if last >= high_watermark or not is_due:
            return head if head.position else None
    return None
