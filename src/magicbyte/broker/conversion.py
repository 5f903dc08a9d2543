"""Slices of logs for readers that do not know the stored format: converted in chunks, whatever their size.

docs/decisions/0005-conversion-while-sending.md says how the size of what is not converted yet is announced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magicbyte.broker.metrics import now_ns
from magicbyte.errors import CorruptRecordError
from magicbyte.records.convert import ConversionReport, convert
from magicbyte.records.encode import Format
from magicbyte.records.layout import LOG_OVERHEAD, Dialect
from magicbyte.records.scan import BatchTable, scan

if TYPE_CHECKING:
    from magicbyte.log.segment import FileSlice

CHUNK_BYTES: Final = 512 << 10
"""Of stored bytes that are converted at a time: memory is some multiple of this, or of one batch that is larger."""


@dataclass(slots=True)
class SliceConversion:
    """The conversion of one slice. `source` is the newest format in it; `time_ns` what the conversion took so far."""

    source: Format
    target: Format
    time_ns: int = 0
    report: ConversionReport = field(default_factory=ConversionReport)


def whole_entries(found: FileSlice, dialect: Dialect) -> Iterator[BatchTable]:
    """Yield the entries of a slice in chunks of about `CHUNK_BYTES`, up to the table's `end`; a cut one is left out."""
    position, end = found.position, found.position + found.length
    wanted = CHUNK_BYTES
    while position < end:
        data = memoryview(found.file.read_at(position, min(wanted, end - position)))
        table = scan(data, dialect=dialect)
        if table.damage is not None and not table.end:
            raise table.damage.locate(path=found.file.path, shift=position)
        if table.end:
            yield table
            position, wanted = position + table.end, CHUNK_BYTES
        elif position + len(data) >= end:
            return
        else:
            wanted = max(table.need, LOG_OVERHEAD + 5, 2 * len(data) if table.need <= len(data) else 0)


def newest_magic(found: FileSlice) -> tuple[int, int]:
    """Return the largest magic byte of the whole entries of a slice, -1 where none is whole; and where they end.

    Raises CorruptRecordError.
    """
    import numpy as np

    newest, end = -1, found.position
    for table in whole_entries(found, Dialect.KAFKA):
        newest = max(newest, int(np.asarray(table.magic).max()))
        end += table.end
    return newest, end


def converted(
    found: FileSlice, dialect: Dialect, conversion: SliceConversion, fetch_offset: int, limit: int
) -> Iterator[list[memoryview]]:
    """Yield what the slice becomes, never an empty list. Raises CorruptRecordError, UnsupportedCompressionError."""
    for table in whole_entries(found, dialect):
        started = now_ns()
        try:
            buffers = list(
                convert(
                    table.buffer[: table.end],
                    conversion.target,
                    dialect=dialect,
                    fetch_offset=fetch_offset,
                    limit=limit,
                    report=conversion.report,
                )
            )
        except CorruptRecordError as error:
            raise error.locate(path=found.file.path) from None
        conversion.time_ns += now_ns() - started
        if buffers:
            yield buffers
