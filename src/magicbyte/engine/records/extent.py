"""Offsets and max timestamp of each entry of a table, from headers or from the content of wrappers.

For a single entry use `header.extent_of`, or the properties of its view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions, decode_rows
from magicbyte.engine.records.enriched import EnrichedMessage
from magicbyte.engine.records.layout import LAST_OFFSET_DELTA, MAX_TIMESTAMP, V1_TIMESTAMP, Dialect
from magicbyte.engine.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    import numpy as np

    from magicbyte.engine.records.scan import BatchTable

    Int64Array: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

OFFSETS_AND_TIMES = DecodeOptions(keys=False, values=False, headers=False, verify=False, control=True)


def first_offset(table: BatchTable, row: int, limit: int = DEFAULT_MAX_BATCH_BYTES) -> int:
    """Return the offset of the first message inside a wrapper, which is decompressed for it, to `limit` bytes at most.

    Raises BatchTooLargeError, and CorruptRecordError.
    """
    for columns in decode_rows(table, [row], replace(OFFSETS_AND_TIMES, limit=limit)):
        return int(columns.offset[0])
    return int(table.offset[row])


def max_timestamps(table: BatchTable) -> Int64Array:
    """Return the max timestamp (ms) of each row from its header, -1 if there is none."""
    import numpy as np

    timestamps = np.full(len(table), NO_TIMESTAMP, np.int64)
    if table.dialect is Dialect.ENRICHED:
        for row in range(len(table)):
            position = int(table.position[row])
            timestamps[row] = EnrichedMessage(table.buffer[position : position + int(table.size[row])]).max_timestamp
        return timestamps
    magic = np.asarray(table.magic, np.int64)
    for number, place in ((1, V1_TIMESTAMP), (2, MAX_TIMESTAMP)):
        rows = np.flatnonzero(magic == number)
        timestamps[rows] = table.gather(place, rows)
    return timestamps


def header_lasts(table: BatchTable) -> Int64Array:
    """Return the last offset of each row from its header.

    For an enriched wrapper the header has the first offset only.
    """
    import numpy as np

    last = np.array(table.offset, np.int64)
    batches = np.flatnonzero(np.asarray(table.magic, np.int64) == 2)
    if len(batches):
        last[batches] += table.gather(LAST_OFFSET_DELTA, batches)
    return last


def last_offsets(table: BatchTable, limit: int = DEFAULT_MAX_BATCH_BYTES) -> Int64Array:
    """Return the last offset of each row. Wrappers of the enriched dialect are decompressed, to `limit` bytes at most.

    Raises BatchTooLargeError, and CorruptRecordError.
    """
    import numpy as np

    last = header_lasts(table)
    if table.dialect is Dialect.KAFKA:
        return last
    options = replace(OFFSETS_AND_TIMES, limit=limit)
    for row in np.flatnonzero(np.asarray(table.count, np.int64) < 0).tolist():
        for columns in decode_rows(table, [row], options):
            last[row] = columns.offset[len(columns) - 1]
    return last
