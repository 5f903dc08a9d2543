"""The walk over the entries of a slice."""

from __future__ import annotations

from magicbyte.compiled.kernel import Bytes, Int64s, kernel
from magicbyte.compiled.primitives import load_i8, load_i16, load_i32, load_i64, prefetch
from magicbyte.records.kernels.statuses import AT, BAD_MAGIC, BAD_SIZE, DONE, EXPECTED, FOUND, FULL, NEED, ROWS, SHORT
from magicbyte.records.layout import (
    ATTRIBUTES_AT,
    HEADER_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_ATTRIBUTES_AT,
    RECORD_BATCH_MINIMUM,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_AT,
    SIZE_AT,
    V0_MINIMUM,
    V1_MINIMUM,
)

# ---- columns of the scan's table
T_POSITION = 0
T_SIZE = 1
T_MAGIC = 2
T_ATTRIBUTES = 3
T_OFFSET = 4
T_COUNT = 5  # plain messages merged into this row; v2: the header's record count; wrapper: -1
TABLE = 6

WALK_AHEAD = 4 << 10  # bytes that are asked of memory before they are walked over


@kernel
def scan_entries(data: Bytes, start: int, end: int, enriched: int, merge: int, table: Int64s, state: Int64s) -> int:
    """Fill `table` with one row for each whole entry from `start` on, and one for a row of plain messages of one magic
    until it has `merge` bytes (0: each has its own).

    Shapes: table (rows * TABLE,), state (STATE,). state[ROWS] rows are filled, state[AT] is where to go on.
    Returns DONE (at `end`), SHORT, FULL, BAD_SIZE or BAD_MAGIC.
    """
    at, row, rows = start, 0, len(table) // TABLE
    kind_bits = 0xFF0F if enriched else 0xFF07  # magic and, in the attributes, what tells plain messages from others
    status = DONE
    while at < end:
        if end - at < HEADER_TO_MAGIC:
            status, state[NEED] = SHORT, HEADER_TO_MAGIC
            break
        size = load_i32(data, at + SIZE_AT)
        magic = load_i8(data, at + MAGIC_AT)
        least = V0_MINIMUM
        if magic == 1:
            least = V1_MINIMUM
        elif magic == 2:
            least = RECORD_BATCH_MINIMUM
        if size < least:
            status, state[EXPECTED], state[FOUND] = BAD_SIZE, least, size
            break
        if magic < 0 or magic > 2 or (enriched and magic != 1):
            status, state[FOUND] = BAD_MAGIC, magic
            break
        if size + LOG_OVERHEAD > end - at:
            status, state[NEED] = SHORT, size + LOG_OVERHEAD
            break
        if row == rows:
            status = FULL
            break
        count, first = -1, at
        if magic == 2:
            if end - at < RECORD_BATCH_OVERHEAD:
                status, state[NEED] = SHORT, RECORD_BATCH_OVERHEAD
                break
            attributes = load_i16(data, at + ATTRIBUTES_AT)
            count = load_i32(data, at + RECORD_COUNT_AT)
            guess = at + 2 * size  # where the batch after the next one begins, if they are alike
            prefetch(data, guess - 192, guess + 256)
            at += size + LOG_OVERHEAD
        else:
            attributes = load_i8(data, at + MESSAGE_ATTRIBUTES_AT)
            kind = load_i16(data, at + MAGIC_AT) & kind_bits
            at += size + LOG_OVERHEAD
            if kind == magic << 8:
                count, ahead = 1, at
                # one walk, on bytes that are on their way
                while at - first < merge and end - at >= least + LOG_OVERHEAD:
                    ahead = prefetch(data, ahead, at + WALK_AHEAD)
                    size = load_i32(data, at + SIZE_AT)
                    if (
                        load_i16(data, at + MAGIC_AT) & kind_bits != kind
                        or size < least
                        or size + LOG_OVERHEAD > end - at
                    ):
                        break
                    at += size + LOG_OVERHEAD
                    count += 1
        into = row * TABLE
        table[into + T_POSITION] = first
        table[into + T_SIZE] = at - first
        table[into + T_MAGIC] = magic
        table[into + T_ATTRIBUTES] = attributes
        table[into + T_OFFSET] = load_i64(data, first)
        table[into + T_COUNT] = count
        row += 1
    state[AT] = at
    state[ROWS] = row
    return status
