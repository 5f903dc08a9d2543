"""Compare the transaction indexes of a live log with its entries, once for each segment that was there when it opened.

A missing index is normal: it means that no transaction ended as aborted in the segment. So only the log shows that an
index was lost or cut, and that needs its headers. They are read at the first look-up that meets transactional batches,
not at the start. Indexes that this process made are not checked: `Segment.closed_end` is the end of what others wrote.

Invariants:
1. `Segment.checked` holds for the log's current `generation`: a check that a truncation overtakes withdraws its result.
2. Readers change no file. They find the corrected entries in memory (`LiveIndexes.correct`) until
   `PartitionLog.mend_transaction_indexes`, which is a change of the log like others, has put the new file.
3. Two threads may check a segment at the same time. They get the same result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.directory import SNAPSHOT, TRANSACTION_INDEX, parse_file
from magicbyte.engine.log.files.filesystem import exists
from magicbyte.engine.log.files.heads import HEAD, entry_heads
from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
from magicbyte.engine.log.live.segment import CheckedTransactions, Segment
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    CONTROL_BIT,
    MAGIC,
    PRODUCER_ID,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_BIT,
)
from magicbyte.engine.records.transactions import OpenTransactions
from magicbyte.engine.sentinels import NO_OFFSET

if TYPE_CHECKING:
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.log.live.segment import FileSlice

_SLICE_WINDOW = 64 << 10
_NO_LIMIT = 1 << 31  # of an entry's size
_BITS = TRANSACTIONAL_BIT | CONTROL_BIT


def check_transactions(log: PartitionLog, segment: Segment) -> Iterator[int]:
    """Check a segment's transaction index; yield about how many bytes were read since the last step.

    Does nothing for a segment that was checked, or whose index this process made. Any thread may call it. A segment
    begins with the open transactions at the end of the one before it, or in the producer snapshot at its base offset.
    Without either, the segments before it are checked first.
    """
    if not segment.closed_end or segment.checked is not None:
        return
    segments, generation = list(log.segments), log.generation
    if segment not in segments:
        return
    begin = segments.index(segment)
    while (opened := _open_before(log, segments, begin)) is None:
        begin -= 1
    for at in range(begin, segments.index(segment) + 1):
        current = segments[at]
        end = segments[at + 1].base_offset if at + 1 < len(segments) else current.closed_end
        if current.checked is None:
            yield from _check(log, current, opened, end, generation)
        if current.checked is None:
            return  # a truncation
        opened = current.checked.open


def has_transactions(stored: FileSlice) -> bool:
    """Return whether a slice of a log has data of a transaction."""
    segment = stored.segment
    assert segment is not None, "of a log"
    end = stored.position + stored.length
    start, behind = segment.without_transactions
    if not start <= stored.position <= behind:
        start = behind = stored.position
    walk = entry_heads(
        stored.file, behind, end, end=end, dialect=segment.config.dialect, window_bytes=_SLICE_WINDOW, is_sound=True
    )
    for _, entry_end, head in walk:
        if _is_data_of_transaction(head):
            return True
        behind = entry_end
    segment.without_transactions = start, behind
    return False


def _is_data_of_transaction(head: bytes) -> bool:
    if len(head) < RECORD_BATCH_OVERHEAD or head[MAGIC.start] != 2:
        return False
    attributes: int = ATTRIBUTES.type.unpack_from(head, ATTRIBUTES.start)[0]
    return attributes & _BITS == TRANSACTIONAL_BIT and PRODUCER_ID.type.unpack_from(head, PRODUCER_ID.start)[0] >= 0


def _open_before(log: PartitionLog, segments: list[Segment], at: int) -> dict[int, int] | None:
    """Return the open transactions at the base of a segment: first offsets by producer; None if they are not known."""
    if not at:
        return {}
    if (checked := segments[at - 1].checked) is not None:
        return checked.open
    path = segments[at].path(SNAPSHOT)
    try:
        if not exists(log.files, path):
            return None
        snapshot = parse_file(log.files, path, ProducerSnapshot.parse)
    except (CorruptRecordError, FileNotFoundError):
        return None
    begins = {each.producer_id: each.current_txn_first_offset for each in snapshot.producers}
    return {producer: first for producer, first in begins.items() if first != NO_OFFSET}


def _check(log: PartitionLog, segment: Segment, opened: dict[int, int], end: int, generation: int) -> Iterator[int]:
    """Walk a segment from its beginning, with the transactions that are open there, to offset `end`.

    Compare its index, unless this process made it.
    """
    from magicbyte.engine.log.files.aborted import SegmentAborts, header_facts
    from magicbyte.engine.log.files.headers import read_headers

    aborts = SegmentAborts(OpenTransactions())
    aborts.open.first_offsets.update(opened)
    walked_to = segment.base_offset
    damage: list[CorruptRecordError] = []
    blocks = read_headers(
        segment.log.opened(), end=segment.size, dialect=log.config.dialect, limit=_NO_LIMIT, on_damage=damage.append,
        expected_bytes=segment.size,
    )  # fmt: skip
    for headers in blocks:
        aborts.append(each for each in header_facts(headers) if each.base_offset < end)
        walked_to = min(max(walked_to, int(headers.last_offset[-1]) + 1), end)
        yield len(headers) * HEAD if headers.chunk is None else headers.chunk.table.end
        if walked_to >= end:
            break
    if not damage:
        walked_to = end
    indexes = segment.indexes
    stored = [each for each in indexes.transactions(0, walked_to) if each.last_offset < walked_to]
    difference = next(aborts.differences(stored), None) if segment.closed_end else None
    if log.generation != generation:
        return
    if difference is not None:
        indexes.correct(aborts.corrected(stored), walked_to)
        error = CorruptRecordError(difference.what, expected=difference.expected, found=difference.found)
        log.index_faults.append(error.locate(path=segment.path(TRANSACTION_INDEX), offsets=difference.offsets))
    segment.checked = CheckedTransactions(walked_to, aborts.open.first_offsets, not damage)
    if log.generation != generation:  # a truncation began before the result was set, and may have ended
        segment.forget_check()
