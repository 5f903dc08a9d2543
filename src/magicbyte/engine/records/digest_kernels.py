"""The loop that hashes every cell of a column: keys, values, names and values of headers."""

from __future__ import annotations

from magicbyte.engine.compiled.kernel import Bytes, Int32s, Int64s, kernel
from magicbyte.engine.compiled.xxh64 import xxh64_of

DONE = 0
BAD_CELL = 1  # a cell lies outside the data


@kernel
def hash_cells(data: Bytes, start: Int32s, length: Int32s, seed: int, null: int, out: Int64s) -> int:
    """Store the XXH64 of each cell in `out`, or `null` for a null cell (length -1). Return DONE or BAD_CELL.

    Shapes: start, length, out (n,); start may have more elements.
    """
    for i in range(len(length)):
        at, size = start[i], length[i]
        if size < 0:
            out[i] = null
        elif at < 0 or size > len(data) - at:
            return BAD_CELL
        else:
            out[i] = xxh64_of(data, at, at + size, seed)
    return DONE
