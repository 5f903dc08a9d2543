"""LZ4 frames as Kafka's own writers make them, cut into their blocks: independent ones of at most 64 KiB each.

Any other frame is left to `codecs.lz4`, which knows all of them. Format: the LZ4 frame format description.
"""

from __future__ import annotations

from magicbyte.compiled.kernel import Bytes, kernel
from magicbyte.compiled.primitives import load_u8, load_u32

FRAME_MAGIC = 0x04224D18
FRAME_FLAGS = 0x6040  # version 1, independent blocks; at most 64 KiB each
FRAME_HEADER = 7  # bytes: magic, flags, checksum
FRAME_OVERHEAD = FRAME_HEADER + 4  # and the end mark
BLOCK = 1 << 16  # bytes of content that a block has at most
CORRECT, BROKEN, ANY = 0x82, 0x1A, -1  # checksums of such headers, as `codecs.lz4.Lz4Header`
STORED = 1 << 31  # in the word in front of a block: it is not compressed
MALFORMED = -1


@kernel
def first_block(data: Bytes, at: int, end: int, checksum: int, other: int) -> int:
    """Return the position of the first block of the frame at `at`, or MALFORMED if it has another kind of header.

    `checksum` and `other` are those that the header may have; ANY: it is not looked at.
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
    """Return the word in front of the block at `at`, 0 for the end mark, and where the block's bytes begin.

    MALFORMED for both unless they lie within `end` and are no more than a block may have.
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
    """Go on with a size of which a token says the largest, 15: bytes at `at` are added, up to one that is not 255.

    Returns the size, and the position behind it: MALFORMED where they are not all in front of `end`.
    """
    more = 255
    while more == 255:
        if at >= end:
            return size, MALFORMED
        more = load_u8(data, at)
        size, at = size + more, at + 1
    return size, at
