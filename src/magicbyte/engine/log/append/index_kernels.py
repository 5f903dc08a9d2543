"""Choose the entries of a set that get an index entry, in one walk over their headers."""

from __future__ import annotations

from magicbyte.engine.compiled.kernel import Bytes, Int64s, kernel
from magicbyte.engine.compiled.primitives import load_i8, load_i32, load_i64
from magicbyte.engine.records.kernels.framing import least_size
from magicbyte.engine.records.layout import (
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    SIZE_AT,
    V0_OVERHEAD,
    V1_TIMESTAMP_AT,
)

# ---- state between two sets
SINCE = 0  # bytes since the start of the entry with the last index entry
LATEST = 1  # the largest timestamp so far, in ms
LATEST_AT = 2  # the offset of LATEST
STATE = 3

# ---- fields of an index entry
POSITION = 0  # of the indexed entry, in the walked bytes
FIRST = 1  # its first offset by its header, and its last one
LAST = 2
TIME = 3  # LATEST and LATEST_AT at that point
TIME_AT = 4
ENTRY = 5

LEAST_ENTRY = V0_OVERHEAD
NOT_WHOLE = -1


@kernel
def due_entries(data: Bytes, interval: int, state: Int64s, out: Int64s) -> int:
    """Walk whole entries of Kafka's formats whose headers contain all fields of an index entry.

    An index entry is due at an entry that begins more than `interval` bytes after the last indexed one. Shapes: state
    (STATE,), in and out; out (n * ENTRY,), with room for one per `interval` bytes and one more. Returns the number of
    index entries, or NOT_WHOLE if the last entry is cut.
    """
    at, count = 0, 0
    since, latest, latest_at = state[SINCE], state[LATEST], state[LATEST_AT]
    while at < len(data):
        if len(data) - at < LEAST_ENTRY:
            return NOT_WHOLE
        size, magic = LOG_OVERHEAD + load_i32(data, at + SIZE_AT), load_i8(data, at + MAGIC_AT)
        if size > len(data) - at or size < LOG_OVERHEAD + least_size(magic):
            return NOT_WHOLE
        first, timestamp = load_i64(data, at), -1
        last = first
        if magic == 2:
            last, timestamp = first + load_i32(data, at + LAST_OFFSET_DELTA_AT), load_i64(data, at + MAX_TIMESTAMP_AT)
        elif magic == 1:
            timestamp = load_i64(data, at + V1_TIMESTAMP_AT)
        if timestamp > latest:
            latest, latest_at = timestamp, last
        if since > interval:
            into = count * ENTRY
            out[into + POSITION], out[into + FIRST], out[into + LAST] = at, first, last
            out[into + TIME], out[into + TIME_AT] = latest, latest_at
            count += 1
            since = 0
        since += size
        at += size
    state[SINCE], state[LATEST], state[LATEST_AT] = since, latest, latest_at
    return count
