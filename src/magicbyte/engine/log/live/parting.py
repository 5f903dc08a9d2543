"""Split a segment with offsets too far from its base for an index, which brokers up to 1.0 could write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from magicbyte.engine.log.files.directory import LOG
from magicbyte.engine.log.files.entry_search import Limits
from magicbyte.engine.log.files.names import MAX_RELATIVE
from magicbyte.engine.log.files.reader import MAX_OFFSET
from magicbyte.engine.log.files.resync import Sound, first_offset_at, known_lasts, sound_beginning
from magicbyte.engine.log.live.segment_names import CLEANED, SWAP
from magicbyte.engine.records.scan import scan

if TYPE_CHECKING:
    from magicbyte.engine.errors import CorruptRecordError
    from magicbyte.engine.log.live.segment import Segment
    from magicbyte.engine.ports import WritableFile


def part_segment(
    segment: Segment, following: int | None, damaged: Callable[[int, CorruptRecordError], None]
) -> list[int]:
    """Write the logs that replace a segment, as a complete swap, and return their bases; `segment` is closed.

    They have no indexes: these are built when the swap is finished, as after a crash. The first keeps the old base,
    unless its first entry is too far from it. Offsets from `following` on belong to the next segment. `damaged` is
    called with the position of bytes that are not sound, and the reason; the result ends there. A crash before the
    first file is renamed to `.swap` keeps the segment, a later crash the parts.
    """
    files, folder = segment.files, segment.folder
    modified = files.modified_ms(segment.path(LOG))
    parts: dict[int, WritableFile] = {}
    for base, view in _pieces(segment, following, damaged):
        if base not in parts:
            parts[base] = files.create(_path(segment, base, CLEANED))
        parts[base].write_at(parts[base].size, view)
    segment.release()
    for base, part in parts.items():
        part.sync()
        part.close()
        files.set_modified_ms(_path(segment, base, CLEANED), modified)
    files.sync_directory(folder)
    for base in reversed(parts):
        files.rename(_path(segment, base, CLEANED), _path(segment, base, SWAP))
        files.sync_directory(folder)
    return list(parts)


def _path(segment: Segment, base: int, suffix: str) -> str:
    return f"{segment.folder}/{base:020}{LOG}{suffix}"


def _pieces(
    segment: Segment, following: int | None, damaged: Callable[[int, CorruptRecordError], None]
) -> Iterator[tuple[int, memoryview]]:
    """Yield the sound entries of a segment in order, each piece with the base of its part."""
    import numpy as np

    dialect, base = segment.config.dialect, segment.base_offset
    limits = Limits(base, MAX_OFFSET if following is None else following - 1)
    for sound_row in sound_beginning(segment.log.opened(), limits, dialect):
        if not isinstance(sound_row, Sound):
            damaged(sound_row.position, sound_row.error)
            return
        table = scan(sound_row.view, dialect=dialect)
        lasts, row = known_lasts(table), 0
        while row < len(table):
            begin = int(table.position[row])
            end = int(np.searchsorted(lasts, base + MAX_RELATIVE, "right"))
            if end <= row:
                base = first_offset_at(segment.log, sound_row.position + begin, dialect)
                continue
            yield base, sound_row.view[begin : int(table.position[end - 1]) + int(table.size[end - 1])]
            row = end
