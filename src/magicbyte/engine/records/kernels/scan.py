"""The walk over the entries of a slice."""

from __future__ import annotations

from magicbyte.engine.compiled.kernel import Bytes, Int64s, kernel
from magicbyte.engine.compiled.primitives import load_i8, load_i16, load_i32, load_i64, prefetch
from magicbyte.engine.records.kernels.framing import entry_size, least_size
from magicbyte.engine.records.kernels.statuses import AT, DONE, FULL, ROWS
from magicbyte.engine.records.layout import (
    ATTRIBUTES_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_ATTRIBUTES_AT,
    RECORD_COUNT_AT,
    SIZE_AT,
)

# ---- columns of the scan's table
T_POSITION = 0
T_SIZE = 1
T_MAGIC = 2
T_ATTRIBUTES = 3
T_OFFSET = 4
T_COUNT = 5  # plain messages merged into this row; v2: the header's record count; wrapper: -1
TABLE = 6

WALK_AHEAD = 4 << 10  # distance in bytes at which entries are prefetched


@kernel
def scan_entries(data: Bytes, start: int, end: int, enriched: int, merge: int, table: Int64s, state: Int64s) -> int:
    """Fill `table` with one row per whole entry from `start` on; plain messages of one magic are merged up to `merge`
    bytes.

    `merge` 0 gives each message its own row. Shapes: table (rows * TABLE,), state (STATE,). state[ROWS] rows are
    filled, state[AT] is the position to continue at. Returns DONE (at `end`), SHORT, FULL, BAD_SIZE or BAD_MAGIC.
    """
    at, row, rows = start, 0, len(table) // TABLE
    # magic, and the attribute bits that distinguish plain messages from others
    kind_bits = 0xFF0F if enriched else 0xFF07
    status = DONE
    while at < end:
        size = entry_size(data, at, end, enriched, state)
        if size < 0:
            status = -size
            break
        if row == rows:
            status = FULL
            break
        count, first, magic = -1, at, load_i8(data, at + MAGIC_AT)
        if magic == 2:
            attributes = load_i16(data, at + ATTRIBUTES_AT)
            count = load_i32(data, at + RECORD_COUNT_AT)
            # start of the entry after the next one, if both have this entry's size
            # A walk over headers touches one cache line per batch and then jumps, a pattern that the hardware does not
            # predict, so that each header would be a cache miss. Batches of a topic have similar sizes: prefetch where
            # the entry after the next one should begin, with some lines around it. Two entries ahead, because one entry
            # is walked faster than memory answers.
            guess = at + 2 * (size - LOG_OVERHEAD)
            prefetch(data, guess - 192, guess + 256)
            at += size
        else:
            attributes = load_i8(data, at + MESSAGE_ATTRIBUTES_AT)
            kind = load_i16(data, at + MAGIC_AT) & kind_bits
            least = least_size(magic)
            at += size
            if kind == magic << 8:
                count, ahead = 1, at
                # a tight loop over bytes that were prefetched
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
