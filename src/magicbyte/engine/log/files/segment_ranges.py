"""Decide which offsets each segment of a log can hold: from its own entries first, then from the files' names.

A name is a statement about the first offset of its file, no proof. Rescued files have other names, and log cleaners of
0.10 to 1.0 merged segments beyond what an index can hold (KAFKA-6264). But an offset is covered by no checksum, so one
entry alone does not contradict a name that the entry after it agrees with. Nor do entries of another segment before
those that the name announces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.log.files.entry_search import Entry, EntrySearch, Limits
from magicbyte.engine.log.files.reader import MAX_OFFSET
from magicbyte.engine.log.files.resync import RowOrder, Sound, first_offset_at, walk
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.layout import Dialect

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory, SegmentFiles
    from magicbyte.engine.ports import ReadableFile


class SegmentRange(NamedTuple):
    """The offsets that a segment can hold. `misnamed`: its first offset, which its name excludes; else None."""

    segment: SegmentFiles
    limits: Limits
    misnamed: int | None


class _SegmentStart(NamedTuple):
    """A segment with its first two sound entries, fewer if it has no more. `is_named`: its name agrees with them."""

    segment: SegmentFiles
    entries: tuple[Entry, ...]
    is_named: bool

    @property
    def first_offset(self) -> int:
        """The lowest offset of its entries; the base offset without an entry."""
        return min((entry.first for entry in self.entries), default=self.segment.base_offset)

    @property
    def start(self) -> int:
        """The offset by which it is sorted."""
        return self.segment.base_offset if self.is_named else self.first_offset


def segment_ranges(
    partition: PartitionDirectory, dialect: Dialect | None = None, limit: int = DEFAULT_MAX_BATCH_BYTES
) -> list[SegmentRange]:
    """Return the ranges of all segments, in the order of their offsets. The first entries of each segment are read.

    A range begins at the base offset, and ends before the next segment that has entries. If the segment's own first
    entries lie outside of that, only its entries and those of the next segment count, unless other segments lie between
    them and those that the name announces. `limit`: bytes of an entry.
    """
    starts = []
    dialect = dialect or partition.dialect
    bases = sorted(segment.base_offset for segment in partition.segments if segment.log.size)
    for segment in partition.segments:
        with partition.files.open(segment.log.path) as file:
            entries = _first_entries(file, dialect, limit)
            base = segment.base_offset
            following = next((each for each in bases if each > base), MAX_OFFSET)
            is_named = not entries or any(base <= each.first < following for each in entries)
            if not is_named:
                first = min(each.first for each in entries)
                is_divided = any(first < each < base or base < each <= first for each in bases)
                is_named = is_divided and _has_entries(file, Limits(base, following - 1, limit), dialect)
        starts.append(_SegmentStart(segment, entries, is_named))
    starts.sort(key=lambda candidate: candidate.start)
    ranges: list[SegmentRange] = []
    high = MAX_OFFSET
    for candidate in reversed(starts):
        low = candidate.segment.base_offset if candidate.is_named else 0
        misnamed = None if candidate.is_named else candidate.first_offset
        ranges.append(SegmentRange(candidate.segment, Limits(low, high, limit), misnamed))
        if candidate.segment.log.size:  # the name of an empty file proves nothing about the segment before it
            high = min(high, max(candidate.segment.base_offset, candidate.first_offset) - 1)
    return ranges[::-1]


def _has_entries(file: ReadableFile, limits: Limits, dialect: Dialect) -> bool:
    """Return whether a segment has entries within `limits` that follow each other; one alone proves nothing."""
    rows = (event for event in walk(file, limits, dialect) if isinstance(event, Sound))
    return any(row.order is RowOrder.MAIN and row.entries > 1 for row in rows)


def _first_entries(file: ReadableFile, dialect: Dialect, limit: int) -> tuple[Entry, ...]:
    """Return the first two sound entries of a segment.

    After damage at its beginning, they are the first that follow each other, since one alone may be the content of a
    record.
    """
    is_enriched = dialect is Dialect.ENRICHED
    search = EntrySearch(file, Limits(entry_bytes=limit), int(is_enriched), form_for(compiled=False))
    first = search.sound_at(0)
    if first is None:
        rows = (event for event in walk(file, Limits(entry_bytes=limit), dialect) if isinstance(event, Sound))
        row = next((row for row in rows if row.order is RowOrder.MAIN and row.entries > 1), None)
        first = None if row is None else search.sound_at(row.position)
    if first is None:
        return ()
    second = search.sound_at(first.end)
    entries = (first,) if second is None else (first, second)
    located = (each._replace(first=first_offset_at(file, each.position, dialect)) for each in entries)
    return tuple(each for each in located if 0 <= each.first <= each.last)
