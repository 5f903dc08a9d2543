"""The walk over the entries of a slice."""

from __future__ import annotations

from magicbyte.compiled.kernel import Bytes, Int64s, kernel
from magicbyte.compiled.primitives import load_i8, load_i16, load_i32, load_i64, prefetch
from magicbyte.records.kernels.statuses import AT, BAD_MAGIC, BAD_SIZE, DONE, EXPECTED, FOUND, FULL, NEED, ROWS, SHORT

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
        if end - at < 17:
            status, state[NEED] = SHORT, 17
            break
        size = load_i32(data, at + 8)
        magic = load_i8(data, at + 16)
        least = 14
        if magic == 1:
            least = 22
        elif magic == 2:
            least = 49
        if size < least:
            status, state[EXPECTED], state[FOUND] = BAD_SIZE, least, size
            break
        if magic < 0 or magic > 2 or (enriched and magic != 1):
            status, state[FOUND] = BAD_MAGIC, magic
            break
        if size + 12 > end - at:
            status, state[NEED] = SHORT, size + 12
            break
        if row == rows:
            status = FULL
            break
        count, first = -1, at
        if magic == 2:
            if end - at < 61:
                status, state[NEED] = SHORT, 61
                break
            attributes = load_i16(data, at + 21)
            count = load_i32(data, at + 57)
            guess = at + 2 * size  # where the batch after the next one begins, if they are alike
            prefetch(data, guess - 192, guess + 256)
            at += size + 12
        else:
            attributes = load_i8(data, at + 17)
            kind = load_i16(data, at + 16) & kind_bits
            at += size + 12
            if kind == magic << 8:
                count, ahead = 1, at
                while at - first < merge and end - at >= least + 12:  # one walk, on bytes that are on their way
                    ahead = prefetch(data, ahead, at + WALK_AHEAD)
                    size = load_i32(data, at + 8)
                    if load_i16(data, at + 16) & kind_bits != kind or size < least or size + 12 > end - at:
                        break
                    at += size + 12
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
