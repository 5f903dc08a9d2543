"""Keys and values: what the decoding kernels do with them, and copies of them one behind the other."""

from __future__ import annotations

from magicbyte.compiled.kernel import Bytes, Int32s, MutableBytes, kernel
from magicbyte.compiled.primitives import copy_bytes

# ---- what to do with keys and values
LEAVE = 0  # their lengths only
REFER = 1  # positions in the source
PACK = 2  # copied, one after the other

CELL_SPARE = 128  # bytes that may be read behind a record, and written behind packed cells


@kernel
def pack_cells(data: Bytes, start: Int32s, length: Int32s, out_start: Int32s, out: MutableBytes) -> int:
    """Copy the cells that `start` and `length` (-1 null) give, one after the other, and note where each begins.

    Shapes: start, length (n,); out_start (n + 1,). Returns the bytes written.
    """
    at = 0
    for i in range(len(length)):
        out_start[i] = at
        size = length[i]
        if size > 0:
            copy_bytes(out, at, data, start[i], size)
            at += size
    out_start[len(length)] = at
    return at
