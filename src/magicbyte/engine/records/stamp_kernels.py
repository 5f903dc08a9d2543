"""Set offsets and the append time of many plain messages in place, in one walk over a copy of them."""

from __future__ import annotations

from magicbyte.engine.compiled.checksums import crc32_of, crc32_wide
from magicbyte.engine.compiled.kernel import Int32s, MutableBytes, kernel
from magicbyte.engine.compiled.primitives import (
    load_i8,
    load_i32,
    load_i64,
    store_i8,
    store_i64,
    store_u32,
)
from magicbyte.engine.records.layout import (
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_CRC_AT,
    SIZE_AT,
    V1_TIMESTAMP_AT,
)


@kernel
def stamp_messages(out: MutableBytes, offset: int, append_time: int, sets_time: int, table: Int32s) -> int:
    """Set the offsets of the messages in `out`, whole ones of magic 0 or 1, from `offset` on. Returns their number.

    With `sets_time`, messages of magic 1 get LogAppendTime and `append_time` (ms), and a new CRC. Shapes: out (n,)
    writable; `table` is that of CRC-32.
    """
    at, count = 0, 0
    while at < len(out):
        stop = at + LOG_OVERHEAD + load_i32(out, at + SIZE_AT)
        store_i64(out, at, offset + count)
        if sets_time and load_i8(out, at + MAGIC_AT) == 1:
            attributes = load_i8(out, at + MESSAGE_ATTRIBUTES_AT)
            if not attributes & 8 or load_i64(out, at + V1_TIMESTAMP_AT) != append_time:
                store_i8(out, at + MESSAGE_ATTRIBUTES_AT, attributes & 7 | 8)
                store_i64(out, at + V1_TIMESTAMP_AT, append_time)
                crc = (
                    crc32_wide(out, at + MAGIC_AT, stop, table)
                    if at >= 48
                    else crc32_of(out, at + MAGIC_AT, stop, table)
                )
                store_u32(out, at + MESSAGE_CRC_AT, crc)
        at = stop
        count += 1
    return count
