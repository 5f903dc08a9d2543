"""Read-only look-ups in a live log: offsets by time for ListOffsets, and facts needed to send a slice."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from magicbyte.engine.errors import UnsupportedForMessageFormatError
from magicbyte.engine.log.files.directory import LOG
from magicbyte.engine.log.live.transaction_checks import check_transactions, has_transactions
from magicbyte.engine.records.layout import Dialect

if TYPE_CHECKING:
    from magicbyte.engine.log.files.indexes import AbortedTransaction
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.log.live.segment import FileSlice

LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP_SEARCH = -1, -2, -3
_NO_TIME = (1 << 63) - 1


def size_in_segment(log: PartitionLog, offset: int, upper: int) -> int | None:
    """Return how many bytes there are from the first entry that reaches `offset` to `upper`.

    None if `upper`, as in `PartitionLog.read`, is in a later segment: then the rest of this segment may be read, and
    nothing is appended to it.
    """
    segments = log.segments_from(offset)
    for at, segment in enumerate(segments):
        if segment.base_offset >= upper or (head := segment.find(offset)) is None:
            continue
        if at + 1 < len(segments) and segments[at + 1].base_offset <= upper:
            return None
        last = segment.find(upper) if upper < log.log_end_offset else None
        return (segment.size if last is None else last.position) - head.position
    return 0


def aborted_transactions(
    log: PartitionLog, first: int, end: int, *, trusts_indexes: bool = False
) -> list[AbortedTransaction]:
    """Return the aborted transactions with an offset in `first` to below `end`, in the order of their markers.

    Transaction indexes that this process did not make are compared with the log first, once; not if the caller
    `trusts_indexes`, because it compares them itself.
    """
    transactions: list[AbortedTransaction] = []
    for segment in log.segments_from(first):
        if first < segment.closed_end and not trusts_indexes:
            for _ in check_transactions(log, segment):
                pass
        aborted, is_complete = segment.indexes.aborted(first, end)
        transactions += aborted
        if is_complete or (segment.checked is not None and segment.checked.are_all_before(end)):
            break
    return transactions


def aborted_in_slice(log: PartitionLog, first: int, upper: int, stored: FileSlice) -> list[AbortedTransaction]:
    """Return the aborted transactions with an offset in `first` to below `upper` and not after a slice of the log.

    Its end is that of an index entry, so a few later ones may be among them, as with Kafka. A slice without data of a
    transaction needs none, which spares it the comparison of an index with the log.
    """
    source = stored.segment
    if source is not None and source.checked is None and first < source.closed_end and not has_transactions(stored):
        return []
    end = log.log_end_offset
    for segment, following in pairwise((*log.segments, None)):
        if segment is source and segment is not None:
            after = segment.indexes.offset_after(stored.position + stored.length)
            end = after if after is not None else end if following is None else following.base_offset
    return aborted_transactions(log, first, min(upper, end))


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> tuple[int, int] | None:
    """Return timestamp and offset of the first record of `timestamp` (ms) or later; None if there is none.

    -2 means the log's start, -1 its end (then the timestamp is -1), -3 the largest timestamp. Raises
    UnsupportedForMessageFormatError if the log has no timestamps.
    """
    if timestamp == EARLIEST_TIMESTAMP:
        return -1, log.log_start_offset
    if timestamp == LATEST_TIMESTAMP:
        return -1, log.log_end_offset
    if not (log.config.rules.has_time_index or log.config.dialect is Dialect.ENRICHED):
        raise UnsupportedForMessageFormatError(f"{log.folder}: this log has no timestamps")
    if timestamp == MAX_TIMESTAMP_SEARCH:
        largest = max(each.largest_timestamp for each in log.segments)
        timestamp = largest if largest >= 0 else _NO_TIME
    for segment in log.segments:
        if segment.largest_timestamp >= timestamp:
            found = segment.find_timestamp(timestamp, log.log_start_offset)
            if found is not None:
                return found
    return None


def offsets_before(log: PartitionLog, timestamp: int, max_offsets: int, now_ms: int) -> list[int]:
    """Return base offsets of segments written up to `timestamp`, newest first: the answer of ListOffsets version 0."""
    pairs = [(each.base_offset, log.files.modified_ms(each.path(LOG))) for each in log.segments]
    if log.active.size:
        pairs.append((log.log_end_offset, now_ms))
    if timestamp == LATEST_TIMESTAMP:
        at = len(pairs) - 1
    elif timestamp == EARLIEST_TIMESTAMP:
        at = 0
    else:
        at = next((each for each in reversed(range(len(pairs))) if pairs[each][1] <= timestamp), -1)
    offsets = [max(pairs[each][0], log.log_start_offset) for each in range(at, -1, -1)]
    return offsets[:max_offsets]
