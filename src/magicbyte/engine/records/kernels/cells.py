"""Copy keys and values one after the other, as the decoding kernels pack them."""

from __future__ import annotations

from magicbyte.engine.compiled.kernel import Bytes, Int32s, MutableBytes, kernel
from magicbyte.engine.compiled.primitives import copy_bytes

# ---- what to do with keys and values
LEAVE = 0  # find lengths only
REFER = 1  # refer to positions in the source
PACK = 2  # copy, one after the other

CELL_SPARE = 128  # bytes that may be read past a record and written past packed cells


@kernel
def pack_cells(data: Bytes, start: Int32s, length: Int32s, out_start: Int32s, out: MutableBytes) -> int:
    """Copy the cells given by `start` and `length` (-1 null), one after the other, and store where each begins.

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
