"""The rule for where an entry ends, used by every walk over entries: of a slice, of a file, and after damage."""

from __future__ import annotations

from magicbyte.engine.compiled.kernel import Bytes, Int64s, kernel
from magicbyte.engine.compiled.primitives import load_i8, load_i32
from magicbyte.engine.records.kernels.statuses import BAD_MAGIC, BAD_SIZE, EXPECTED, FOUND, NEED, SHORT
from magicbyte.engine.records.layout import (
    HEADER_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_MINIMUM,
    SIZE_AT,
    V0_MINIMUM,
    V1_MINIMUM,
)


@kernel
def least_size(magic: int) -> int:
    """Return the smallest valid size field of a magic (it counts the bytes after itself); for an unknown magic, that of
    0.
    """
    if magic == 2:
        return RECORD_BATCH_MINIMUM
    return V1_MINIMUM if magic == 1 else V0_MINIMUM


@kernel
def entry_size(data: Bytes, at: int, end: int, enriched: int, state: Int64s) -> int:
    """Return the size of the entry at `at` in bytes, if it ends at or before `end`.

    Otherwise return minus SHORT, with state[NEED], or minus BAD_SIZE or BAD_MAGIC, with state[EXPECTED] and
    state[FOUND].
    """
    if end - at < HEADER_TO_MAGIC:
        state[NEED] = HEADER_TO_MAGIC
        return -SHORT
    size, magic = load_i32(data, at + SIZE_AT), load_i8(data, at + MAGIC_AT)
    if size < least_size(magic):
        state[EXPECTED], state[FOUND] = least_size(magic), size
        return -BAD_SIZE
    if magic < 0 or magic > 2 or (enriched and magic != 1):
        state[EXPECTED], state[FOUND] = 0, magic
        return -BAD_MAGIC
    if size + LOG_OVERHEAD > end - at:
        state[NEED] = size + LOG_OVERHEAD
        return -SHORT
    return size + LOG_OVERHEAD
