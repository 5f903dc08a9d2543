"""Parse LZ4 frames as Kafka's own writers make them: independent blocks of at most 64 KiB each.

`codecs.lz4` handles all other frames. Format: the LZ4 frame format description.
"""

from __future__ import annotations

from magicbyte.engine.compiled.kernel import Bytes, kernel
from magicbyte.engine.compiled.primitives import load_u8, load_u32

FRAME_MAGIC = 0x04224D18
FRAME_FLAGS = 0x6040  # version 1, independent blocks; at most 64 KiB each
FRAME_HEADER = 7  # bytes: magic, flags, checksum
FRAME_OVERHEAD = FRAME_HEADER + 4  # and the end mark
BLOCK = 1 << 16  # the maximum content of a block in bytes
CORRECT, BROKEN, ANY = 0x82, 0x1A, -1  # checksums of such headers, as `codecs.lz4.Lz4Header`
STORED = 1 << 31  # flag in the word before a block: it is not compressed
MALFORMED = -1


@kernel
def first_block(data: Bytes, at: int, end: int, checksum: int, other: int) -> int:
    """Return the position of the first block of the frame at `at`, or MALFORMED for another kind of header.

    `checksum` and `other` are the allowed header checksums; ANY skips the check.
    """
    if end - at < FRAME_OVERHEAD or load_u32(data, at) != FRAME_MAGIC:
        return MALFORMED
    if load_u8(data, at + 4) << 8 | load_u8(data, at + 5) != FRAME_FLAGS:
        return MALFORMED
    found = load_u8(data, at + 6)
    if checksum >= 0 and found != checksum and found != other:
        return MALFORMED
    return at + FRAME_HEADER


@kernel
def next_block(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the word before the block at `at` (0 for the end mark) and the position of the block's bytes.

    MALFORMED for both if the block extends past `end` or is larger than allowed.
    """
    if end - at < 4:
        return MALFORMED, MALFORMED
    word = load_u8(data, at) | load_u8(data, at + 1) << 8 | load_u8(data, at + 2) << 16 | load_u8(data, at + 3) << 24
    at += 4
    size = word & (STORED - 1)
    if size > BLOCK or size > end - at:
        return MALFORMED, MALFORMED
    return word, at


@kernel
def long_size(data: Bytes, at: int, end: int, size: int) -> tuple[int, int]:
    """Read the extra bytes at `at` of a size whose token field is 15, up to the first that is not 255.

    Returns the size and the position after it, which is MALFORMED if the bytes extend past `end`.
    """
    more = 255
    while more == 255:
        if at >= end:
            return size, MALFORMED
        more = load_u8(data, at)
        size, at = size + more, at + 1
    return size, at
