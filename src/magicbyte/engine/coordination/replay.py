"""Read the log of a partition again, at the beginning of a term.

Invariants of a `Replay`: the result depends on the records alone, in the order of their offsets, not on how they are
cut into pieces. Damage raises CorruptRecordError: a partition with unknown content must not be served as if it was new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.decode import DecodeOptions, decode_rows
from magicbyte.engine.records.scan import BatchTable

C_co = TypeVar("C_co", covariant=True)

_OPTIONS = DecodeOptions(headers=False)


class Replay(Protocol[C_co]):
    """Read the log of a partition, piece by piece."""

    def read(self, data: memoryview) -> int:
        """Read the whole entries of `data`, which follow those read before.

        Return their last offset, -1 if there are none. Raises CorruptRecordError.
        """

    def finish(self) -> C_co:
        """Return the content after all that was read. Raises CorruptRecordError."""


class LogRecord(NamedTuple):
    """A record of the log: its offset and its value."""

    offset: int
    value: bytes | None


def keyed_records(table: BatchTable, rows: Iterable[int]) -> Iterator[tuple[bytes, LogRecord]]:
    """Yield the records of some rows, each with its key. Raises CorruptRecordError."""
    for columns in decode_rows(table, rows, _OPTIONS):
        for record in columns:
            if record.key is None:
                place = (record.offset, record.offset)
                raise CorruptRecordError("key", expected="one in every record", found="null").locate(offsets=place)
            yield record.key, LogRecord(record.offset, record.value)
