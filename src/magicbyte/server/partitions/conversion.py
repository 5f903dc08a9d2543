"""Down-conversion of log slices for old clients, in chunks, whatever their size.

docs/decisions/0005-conversion-while-sending.md describes how the size is announced before the conversion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from magicbyte.engine.errors import CorruptRecordError, MagicbyteError
from magicbyte.engine.records.convert import ConversionReport, convert
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import LOG_OVERHEAD, Dialect
from magicbyte.engine.records.scan import BatchTable, scan
from magicbyte.server.serving.metrics import now_ns

if TYPE_CHECKING:
    from magicbyte.engine.log.live.segment import FileSlice

CHUNK_BYTES: Final = 512 << 10
"""Stored bytes converted at a time: memory is a multiple of this, or of a single larger batch."""


class SliceConversion(Struct):
    """The conversion of one slice. `source` is the newest format in it; `time_ns` the conversion time so far."""

    source: Format
    target: Format
    time_ns: int = 0
    report: ConversionReport = field(default_factory=ConversionReport)


def whole_entries(stored: FileSlice, dialect: Dialect) -> Iterator[tuple[int, BatchTable]]:
    """Yield the entries of a slice in chunks of about `CHUNK_BYTES`: the file position, and a table up to `end`.

    An incomplete entry is left out. Raises CorruptRecordError, after yielding everything before the damage.
    """
    position, end = stored.position, stored.position + stored.length
    wanted = CHUNK_BYTES
    while position < end:
        data = memoryview(stored.file.read_at(position, min(wanted, end - position)))
        table = scan(data, dialect=dialect)
        if table.damage is not None and not table.end:
            raise table.damage.locate(path=stored.file.path, shift=position)
        if table.end:
            yield position, table
            position, wanted = position + table.end, CHUNK_BYTES
        elif position + len(data) >= end:
            return
        else:
            wanted = max(table.need, LOG_OVERHEAD + 5, 2 * len(data) if table.need <= len(data) else 0)


def newest_magic(stored: FileSlice) -> tuple[int, int, CorruptRecordError | None]:
    """Return the largest magic of the whole entries of a slice (-1 if there is none), their end, and the damage there.

    Raises CorruptRecordError if the slice begins with damage.
    """
    import numpy as np

    newest, end, damage = -1, stored.position, None
    try:
        for position, table in whole_entries(stored, Dialect.KAFKA):
            newest = max(newest, int(np.asarray(table.magic).max()))
            end = position + table.end
    except CorruptRecordError as error:
        if end == stored.position:
            raise
        damage = error
    return newest, end, damage


def converted(
    stored: FileSlice, dialect: Dialect, conversion: SliceConversion, fetch_offset: int, limit: int
) -> Iterator[list[memoryview]]:
    """Yield the converted slice, never an empty list.

    Raises, after yielding everything before, CorruptRecordError with file and position, and the errors of `convert`.
    """
    for position, table in whole_entries(stored, dialect):
        started, failure = now_ns(), None
        buffers = list[memoryview]()
        try:
            for buffer in convert(
                table.buffer[: table.end],
                conversion.target,
                dialect=dialect,
                fetch_offset=fetch_offset,
                limit=limit,
                report=conversion.report,
            ):
                buffers.append(buffer)
        except MagicbyteError as error:
            failure = error
        conversion.time_ns += now_ns() - started
        if buffers:
            yield buffers
        if isinstance(failure, CorruptRecordError):
            raise failure.locate(path=stored.file.path, shift=position)
        if failure is not None:
            raise failure
