"""The index files beside a segment: offsets, timestamps, aborted transactions, and the enriched one.

All have big-endian entries of one size. Kafka preallocates offset and time indexes, and trims them when it closes them.
So a file that was not closed has zeros after the last entry. `parse` reads the bytes. `verify` checks the entries,
which a look-up relies on. Sources: Kafka's OffsetIndex, TimeIndex and TransactionIndex.
"""

from __future__ import annotations

import bisect
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec import Struct

from magicbyte.engine.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    Int64Array = npt.NDArray[np.int64]

OFFSET_ENTRY = [("relative_offset", ">i4"), ("position", ">i4")]
TIME_ENTRY = [("timestamp", ">i8"), ("relative_offset", ">i4")]
ENRICHED_ENTRY = [("relative_offset", ">i4"), ("timestamp", ">i8"), ("position", ">i4")]
TRANSACTION_ENTRY = struct.Struct(">hqqqq")  # version, producer id, first, last and last stable offset
TRANSACTION_VERSION = 0
BLOCK_ENTRIES = 128  # entries of aborted transactions that are read together
PIECE_ENTRIES = 1 << 15  # likewise, where all are read


def _entries(data: bytes, layout: list[tuple[str, str]]) -> np.ndarray:
    """Return the valid entries of `data` as an array of `layout`.

    All-zero entries at the end are preallocated space. A single all-zero entry counts as an entry (offset index: the
    base offset at position 0). Raises CorruptRecordError if the bytes are no whole entries.
    """
    import numpy as np

    entry = np.dtype(layout)
    if len(data) % entry.itemsize:
        whole = len(data) - len(data) % entry.itemsize
        expected = f"a multiple of {entry.itemsize}"
        raise CorruptRecordError("index size", expected=expected, found=len(data), position=whole)
    used = len(data.rstrip(b"\0"))
    count = -(-used // entry.itemsize)
    if len(data) == entry.itemsize:
        count = 1
    return np.frombuffer(data, entry, count)


def _to_bytes(layout: list[tuple[str, str]], *columns: Int64Array) -> bytes:
    """Return the file of entries whose fields are `columns`, in the order of `layout`; each fits its field."""
    import numpy as np

    entries: Any = np.empty(len(columns[0]), np.dtype(layout))
    for (name, kind), column in zip(layout, columns, strict=True):
        assert not len(column) or -(2**31) <= int(column.min()) <= int(column.max()) < 2**31 or kind == ">i8", name
        entries[name] = column
    return bytes(entries.tobytes())


def _verify_order(what: str, values: Int64Array, entry_size: int, *, strict: bool, floor: int) -> None:
    """Raise CorruptRecordError at the first value below `floor` or, from the second on, out of order."""
    import numpy as np

    steps = values[1:] > values[:-1] if strict else values[1:] >= values[:-1]
    sound = values >= floor
    sound[1:] &= steps
    if not sound.all():
        at = int(np.argmin(sound))
        least = floor if at == 0 else max(floor, int(values[at - 1]) + strict)
        raise CorruptRecordError(
            f"index {what}", expected=f">= {least}", found=int(values[at]), position=at * entry_size
        )


class OffsetIndex(Struct, frozen=True, eq=False):
    """A `.index` file: positions of some offsets in the segment.

    `offsets` (n,) int64, absolute; `positions` (n,) int64, of the append that holds the offset. Brokers up to 1.1 name
    the first offset of that append, from 2.0 on the last one.
    """

    ENTRY_SIZE: ClassVar[int] = 8

    base_offset: int
    offsets: Int64Array
    positions: Int64Array

    @classmethod
    def parse(cls, data: bytes, base_offset: int) -> OffsetIndex:
        """Return the valid entries of a whole file. Raises CorruptRecordError."""
        entries = _entries(data, OFFSET_ENTRY)
        return cls(base_offset, entries["relative_offset"].astype("i8") + base_offset, entries["position"].astype("i8"))

    def to_bytes(self) -> bytes:
        """Return the closed file: the entries without preallocated space."""
        return _to_bytes(OFFSET_ENTRY, self.offsets - self.base_offset, self.positions)

    def __len__(self) -> int:
        return len(self.offsets)

    def verify(self, log_size: int | None = None) -> None:
        """Raise CorruptRecordError unless offsets and positions grow, and lie in a log of `log_size` bytes if given."""
        _verify_order("offset", self.offsets, self.ENTRY_SIZE, strict=True, floor=self.base_offset)
        _verify_order("position", self.positions, self.ENTRY_SIZE, strict=True, floor=0)
        _verify_inside(self.positions, self.ENTRY_SIZE, log_size)

    def floor(self, offset: int) -> tuple[int, int]:
        """Return offset and position of the last entry at or before `offset`, else the base offset and 0."""
        return self._entry(int(self.offsets.searchsorted(offset, "right")) - 1)

    def _entry(self, at: int) -> tuple[int, int]:
        return (int(self.offsets[at]), int(self.positions[at])) if at >= 0 else (self.base_offset, 0)


def _verify_inside(positions: Int64Array, entry_size: int, log_size: int | None) -> None:
    """Raise CorruptRecordError when the last of `positions` is outside a log of `log_size` bytes."""
    if log_size is not None and len(positions) and positions[-1] >= log_size:
        at = int(positions.searchsorted(log_size))
        found = int(positions[at])
        raise CorruptRecordError("index position", expected=f"< {log_size}", found=found, position=at * entry_size)


class TimeIndex(Struct, frozen=True, eq=False):
    """A `.timeindex` file: all entries of the log up to an offset have at most its timestamp.

    `timestamps` (n,) int64, ms; `offsets` (n,) int64, absolute.
    """

    ENTRY_SIZE: ClassVar[int] = 12

    base_offset: int
    timestamps: Int64Array
    offsets: Int64Array

    @classmethod
    def parse(cls, data: bytes, base_offset: int) -> TimeIndex:
        """Return the valid entries of a whole file. Raises CorruptRecordError."""
        entries = _entries(data, TIME_ENTRY)
        return cls(
            base_offset, entries["timestamp"].astype("i8"), entries["relative_offset"].astype("i8") + base_offset
        )

    def to_bytes(self) -> bytes:
        """Return the closed file: the entries without preallocated space."""
        return _to_bytes(TIME_ENTRY, self.timestamps, self.offsets - self.base_offset)

    def __len__(self) -> int:
        return len(self.offsets)

    def verify(self) -> None:
        """Raise CorruptRecordError unless timestamps grow and offsets never fall."""
        _verify_order("timestamp", self.timestamps, self.ENTRY_SIZE, strict=True, floor=0)
        _verify_order("offset", self.offsets, self.ENTRY_SIZE, strict=False, floor=self.base_offset)

    def floor(self, timestamp: int) -> tuple[int, int]:
        """Return timestamp and offset of the last entry at or before `timestamp`, else -1 and the base offset.

        A record later than `timestamp` lies after that offset, never at or before it.
        """
        at = int(self.timestamps.searchsorted(timestamp, "right")) - 1
        return (int(self.timestamps[at]), int(self.offsets[at])) if at >= 0 else (-1, self.base_offset)


class EnrichedIndex(Struct, frozen=True, eq=False):
    """An `.emindex` file, of the enriched dialect: offset, timestamp and position in one entry.

    `offsets` (n,) int64, absolute, each the first of the entry of the log at `positions` (n,) int64; `timestamps` (n,)
    int64, ms, the largest up to there, -1 without any.
    """

    ENTRY_SIZE: ClassVar[int] = 16

    base_offset: int
    offsets: Int64Array
    timestamps: Int64Array
    positions: Int64Array

    @classmethod
    def parse(cls, data: bytes, base_offset: int) -> EnrichedIndex:
        """Return the valid entries of a whole file. Raises CorruptRecordError."""
        entries = _entries(data, ENRICHED_ENTRY)
        return cls(
            base_offset,
            entries["relative_offset"].astype("i8") + base_offset,
            entries["timestamp"].astype("i8"),
            entries["position"].astype("i8"),
        )

    def to_bytes(self) -> bytes:
        """Return the closed file: the entries without preallocated space."""
        return _to_bytes(ENRICHED_ENTRY, self.offsets - self.base_offset, self.timestamps, self.positions)

    def __len__(self) -> int:
        return len(self.offsets)

    def verify(self, log_size: int | None = None) -> None:
        """Raise CorruptRecordError unless offsets and positions grow and timestamps never fall."""
        _verify_order("offset", self.offsets, self.ENTRY_SIZE, strict=True, floor=self.base_offset)
        _verify_order("position", self.positions, self.ENTRY_SIZE, strict=True, floor=0)
        _verify_order("timestamp", self.timestamps, self.ENTRY_SIZE, strict=False, floor=-1)
        _verify_inside(self.positions, self.ENTRY_SIZE, log_size)

    def floor(self, offset: int) -> tuple[int, int]:
        """Return offset and position of the last entry at or before `offset`, else the base offset and 0."""
        at = int(self.offsets.searchsorted(offset, "right")) - 1
        return (int(self.offsets[at]), int(self.positions[at])) if at >= 0 else (self.base_offset, 0)


class AbortedTransaction(NamedTuple):
    """One aborted transaction. `last_offset` is that of its marker, `last_stable_offset` the log's after the marker."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    @property
    def next_offset(self) -> int:
        """The offset after the marker."""
        return self.last_offset + 1


def _last_offset(data: bytes, row: int) -> int:
    return int(TRANSACTION_ENTRY.unpack_from(data, row * TRANSACTION_ENTRY.size)[3])


class TransactionIndex(Struct, frozen=True):
    """A `.txnindex` file: the aborted transactions whose marker lies in the segment, in the order of their markers."""

    ENTRY_SIZE: ClassVar[int] = TRANSACTION_ENTRY.size

    entries: tuple[AbortedTransaction, ...]

    @classmethod
    def parse(cls, data: bytes) -> TransactionIndex:
        """Return the entries of a whole file. Raises CorruptRecordError, also for an unknown version."""
        whole = len(data) - len(data) % cls.ENTRY_SIZE
        if whole != len(data):
            expected = f"a multiple of {cls.ENTRY_SIZE}"
            raise CorruptRecordError("transaction index size", expected=expected, found=len(data), position=whole)
        entries = tuple(map(AbortedTransaction._make, TRANSACTION_ENTRY.iter_unpack(data)))
        for at, entry in enumerate(entries):
            if entry.version != TRANSACTION_VERSION:
                raise CorruptRecordError(
                    "transaction index version",
                    expected=TRANSACTION_VERSION,
                    found=entry.version,
                    position=at * cls.ENTRY_SIZE,
                )
        return cls(entries)

    def to_bytes(self) -> bytes:
        """Return the file. Without entries, Kafka has no file."""
        return b"".join(TRANSACTION_ENTRY.pack(*entry) for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def verify(self) -> None:
        """Raise CorruptRecordError unless each transaction ends after its begin, and after the one before it."""
        self._verify(-1)

    def _verify(self, previous: int) -> int:
        """Verify entries that follow one with the last offset `previous`; return the last offset of the last one."""
        for at, entry in enumerate(self.entries):
            position = at * self.ENTRY_SIZE
            if not 0 <= entry.first_offset <= entry.last_offset:
                expected = f"0 to {entry.last_offset}"
                raise CorruptRecordError(
                    "transaction's first offset", expected=expected, found=entry.first_offset, position=position
                )
            if entry.last_offset <= previous:
                raise CorruptRecordError(
                    "transaction's last offset", expected=f"> {previous}", found=entry.last_offset, position=position
                )
            previous = entry.last_offset
        return previous

    @classmethod
    def all_in(
        cls, read: Callable[[int, int], bytes], file_size: int, first: int, end: int
    ) -> list[AbortedTransaction]:
        """Return the result of `aborted` from a file that may be large. Raises CorruptRecordError for any damage in it.

        `read`: see `search`.
        """
        transactions, previous = list[AbortedTransaction](), -1
        for start in range(0, file_size, PIECE_ENTRIES * cls.ENTRY_SIZE):
            try:
                index = cls.parse(read(start, min(PIECE_ENTRIES * cls.ENTRY_SIZE, file_size - start)))
                previous = index._verify(previous)
            except CorruptRecordError as error:
                raise error.locate(shift=start) from None
            transactions += index.aborted(first, end)
        return transactions

    @classmethod
    def search(
        cls, read: Callable[[int, int], bytes], file_size: int, first: int, end: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the result of `aborted` from a file, and whether later segments have no more.

        `read` returns bytes of the file, from a position on. Only the relevant entries and a block before them are
        read. Raises CorruptRecordError for damage in these entries.
        """
        size, low, high = cls.ENTRY_SIZE, 0, file_size // cls.ENTRY_SIZE
        while high - low > BLOCK_ENTRIES:
            middle = (low + high) // 2
            entry = read(middle * size, size)
            if len(entry) == size and TRANSACTION_ENTRY.unpack(entry)[3] < first:
                low = middle + 1
            else:  # the file may have been truncated meanwhile
                high = middle
        relevant, is_complete = bytearray(), False
        for start in range(low * size, file_size, BLOCK_ENTRIES * size):
            data = read(start, min(BLOCK_ENTRIES * size, file_size - start))
            whole = range(len(data) // size)
            if not relevant:  # transactions that end before `first` are skipped
                whole = whole[bisect.bisect_left(whole, first, key=partial(_last_offset, data)) :]
            for row in whole:
                entry = data[row * size : (row + 1) * size]
                relevant += entry
                is_complete = TRANSACTION_ENTRY.unpack(entry)[4] >= end
                if is_complete:  # later entries begin at its last stable offset or after it
                    break
            if is_complete:
                break
            relevant += data[len(data) - len(data) % size :]
        index = cls.parse(bytes(relevant))
        index.verify()
        return index.aborted(first, end), is_complete

    def aborted(self, first: int, end: int) -> list[AbortedTransaction]:
        """Return the transactions with an offset in `first` to `end` (exclusive), in the order of their markers."""
        at = bisect.bisect_left(self.entries, first, key=lambda entry: entry.last_offset)
        return [entry for entry in self.entries[at:] if entry.first_offset < end]
