"""An index file of a live segment: entries are added, searched on disk, and truncated.

As in Kafka, the file is preallocated with zeros after the entries while its segment is appended to, and trimmed when
the segment is closed. A look-up reads about ten entries and one page and keeps nothing, so that memory does not grow
with the log. The entries themselves: indexes.py. Sources: Kafka's AbstractIndex, OffsetIndex and TimeIndex.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.filesystem import SMALL_FILE_LIMIT

if TYPE_CHECKING:
    from magicbyte.engine.log.files.open_files import OpenFile

OFFSET_ENTRY = struct.Struct(">ii")  # relative offset, position
TIME_ENTRY = struct.Struct(">qi")  # timestamp, relative offset
ENRICHED_ENTRY = struct.Struct(">iqi")  # relative offset, timestamp, position

Entry = tuple[int, ...]

_AT_ONCE = 512  # entries read at once at the end of a binary search, which costs little more than one of them


class IndexFile:
    """The entries of one open index file: `count` of them, of `layout`, the last one `last` (None without any)."""

    def __init__(self, file: OpenFile, layout: struct.Struct, max_bytes: int) -> None:
        self.file = file
        self.capacity = max_bytes // layout.size
        self._layout = layout
        self.count = self._used()
        self.last = self.entry(self.count - 1) if self.count else None

    def _used(self) -> int:
        """Return the number of entries: in an unclosed file, zeros follow the last one.

        Raises CorruptRecordError if the bytes are not whole entries.
        """
        size, width = self.file.size, self._layout.size
        if size % width:
            raise CorruptRecordError("index size", expected=f"a multiple of {width}", found=size).locate(
                path=self.file.path
            )
        if size > SMALL_FILE_LIMIT:
            raise CorruptRecordError("index size", expected=f"<= {SMALL_FILE_LIMIT}", found=size).locate(
                path=self.file.path
            )
        if size <= width or any(self.file.read_at(size - width, width)):
            return size // width
        used = len(self.file.read_at(0, size).rstrip(b"\0"))
        return -(-used // width)

    def verify(self, column: int) -> None:
        """Raise CorruptRecordError if the last entry's `column` is negative: the only check that brokers make."""
        if self.last is not None and self.last[column] < 0:
            raise CorruptRecordError("index entry", expected=">= 0", found=self.last[column]).locate(
                path=self.file.path
            )

    def entry(self, at: int) -> Entry:
        """Return one entry."""
        return self._layout.unpack(self.file.read_at(at * self._layout.size, self._layout.size))

    def append(self, *entry: int) -> None:
        """Add an entry."""
        self.extend((entry,))

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add one or more entries in one write."""
        pack = self._layout.pack
        self.file.write_at(self.count * self._layout.size, b"".join([pack(*entry) for entry in entries]))
        self.count += len(entries)
        self.last = entries[-1]

    def floor(self, column: int, value: int) -> int:
        """Return the index of the last entry whose `column`, which never falls, is at most `value`; -1 for none."""
        low, high = 0, self.count  # entries below low are at most the value, those from high on are above it
        while high - low > _AT_ONCE:
            middle = (low + high) // 2
            if self.entry(middle)[column] <= value:
                low = middle + 1
            else:
                high = middle
        layout = self._layout
        data = self.file.read_at(low * layout.size, (high - low) * layout.size)
        first = low
        while low < high:
            middle = (low + high) // 2
            if layout.unpack_from(data, (middle - first) * layout.size)[column] <= value:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries; the file keeps its size, with zeros after them."""
        if count < self.count:
            size = self.file.size
            self.file.truncate(count * self._layout.size)
            self.file.truncate(size)
            self.count = count
            self.last = self.entry(count - 1) if count else None

    def grow(self) -> None:
        """Extend the file to its preallocated size."""
        size = max(self.capacity, self.count) * self._layout.size
        if self.file.size != size:
            self.file.truncate(size)

    def trim(self) -> None:
        """Remove the preallocated space after the entries."""
        if self.file.size != (size := self.count * self._layout.size):
            self.file.truncate(size)
