"""Decompress the LZ4 frames of many batches in one call, if they are like those of Kafka's own writers.

All other frames, and damaged ones, are left to `codecs.lz4`, which describes the damage. The blocks are decompressed
here because a library call per block, and the copy of its result, takes as long as the decompression. Format: the LZ4
block format description.

There are three separate loops for usual sequences, because one for all would cost a fifth. For records of 100 bytes:
`read_rest` takes 30 ns a record, `read_two` 25, the one in `lz4_kernels`, which also records each match, 37. Frames,
sizes above 15 and their limits are parsed in one place, `lz4_frame_kernels`.
"""

from __future__ import annotations

from magicbyte.engine.codecs.lz4_frame_kernels import (
    BLOCK,
    BROKEN,
    CORRECT,
    MALFORMED,
    STORED,
    first_block,
    long_size,
    next_block,
)
from magicbyte.engine.compiled.kernel import Bytes, Int64s, MutableBytes, kernel
from magicbyte.engine.compiled.likely import likely
from magicbyte.engine.compiled.primitives import (
    as_index,
    copy_16s,
    copy_32s,
    copy_bytes,
    load_i64,
    load_u8,
    store_i64,
)

SPARE = 64  # spare bytes that the output must have after a frame's content
_MARGIN = 96  # distance from the ends of input and output at which a usual sequence needs no bounds checks


@kernel
def read_sequence(data: Bytes, at: int, end: int, out: MutableBytes, to: int, stop: int, begin: int) -> tuple[int, int]:
    """Write the content of one sequence of a block to `out` from `to` on, but nothing after `stop`.

    The block ends at `end`; its content begins at `begin`. Returns the position after the sequence, or MALFORMED, and
    the end of the written bytes.
    """
    token = load_u8(data, at)
    at += 1
    size = token >> 4
    if size == 15:
        size, at = long_size(data, at, end, size)
        if at < 0:
            return MALFORMED, to
    if size > end - at or size > stop - to:
        return MALFORMED, to
    if size > 32 or stop - to >= 32:
        copy_bytes(out, to, data, at, size)
    else:  # `copy_32s` could write 32 bytes past `stop`
        for place in range(size):
            out[as_index(to + place)] = data[as_index(at + place)]
    at += size
    to += size
    if at == end:
        return at, to
    if end - at < 2:
        return MALFORMED, to
    back = load_u8(data, at) | (load_u8(data, at + 1) << 8)
    at += 2
    size = (token & 15) + 4
    if size == 19:
        size, at = long_size(data, at, end, size)
        if at < 0:
            return MALFORMED, to
    if back == 0 or back > to - begin or size > stop - to or at >= end:
        return MALFORMED, to  # a block must end in literals
    if back >= 32 and size + 32 <= stop - to:
        copy_32s(out, to, out, to - back, size)
    else:
        for place in range(to, to + size):
            out[as_index(place)] = out[as_index(place - back)]
    return at, to + size


@kernel
def read_rest(data: Bytes, at: int, end: int, out: MutableBytes, to: int, stop: int, begin: int) -> int:
    """Decompress a block as `read_block` does, from the sequence at `at` on; its content begins at `begin`."""
    safe_at, safe_to = end - _MARGIN, stop - _MARGIN
    while at < end:
        while at < safe_at and to < safe_to:
            token = load_u8(data, at)
            size, after, match_at = (token & 15) + 4, to + (token >> 4), at + (token >> 4)
            back = load_u8(data, match_at + 1) | (load_u8(data, match_at + 2) << 8)
            source = after - back
            # the usual sequence: few literals, and a short match that is not too near
            if not likely((token < 240) & (size <= 16) & (back >= 8) & (source >= begin)):
                break
            copy_16s(out, to, data, at + 1, 16)
            store_i64(out, after, load_i64(out, source))
            store_i64(out, after + 8, load_i64(out, source + 8))
            at, to = match_at + 3, after + size
        at, to = read_sequence(data, at, end, out, to, stop, begin)
        if at < 0:
            return MALFORMED
    return to


@kernel
def read_block(data: Bytes, at: int, end: int, out: MutableBytes, to: int, stop: int) -> int:
    """Write the content of the block from `at` to `end` to `out` from `to` on, but nothing after `stop`.

    Returns the end of the content, or MALFORMED, also for content that extends past `stop`.
    """
    if at >= end:
        return MALFORMED
    return int(read_rest(data, at, end, out, to, stop, to))


@kernel
def read_two(
    data: Bytes,
    at: int,
    end: int,
    other_at: int,
    other_end: int,
    out: MutableBytes,
    to: int,
    stop: int,
    other_to: int,
    other_stop: int,
    ends: Int64s,
) -> int:
    """Decompress two blocks at once, as `read_block` does for one.

    The start of a sequence is known only after the one before was parsed. With two independent chains the processor
    works on one block while it waits for the other. Stores the results of `read_block` in `ends` and returns 0, or
    returns MALFORMED if one is, and `ends` is undefined.
    """
    begin, other_begin = to, other_to
    safe_at, safe_to = end - _MARGIN, stop - _MARGIN
    other_safe_at, other_safe_to = other_end - _MARGIN, other_stop - _MARGIN
    if at >= end or other_at >= other_end:
        return MALFORMED
    while at < end and other_at < other_end:
        other_is_usual = True
        while at < safe_at and to < safe_to and other_at < other_safe_at and other_to < other_safe_to:
            token, other_token = load_u8(data, at), load_u8(data, other_at)
            size, after, match_at = (token & 15) + 4, to + (token >> 4), at + (token >> 4)
            other_size, other_after = (other_token & 15) + 4, other_to + (other_token >> 4)
            other_place = other_at + (other_token >> 4)
            back = load_u8(data, match_at + 1) | (load_u8(data, match_at + 2) << 8)
            other_back = load_u8(data, other_place + 1) | (load_u8(data, other_place + 2) << 8)
            source, other_source = after - back, other_after - other_back
            if not likely((token < 240) & (size <= 16) & (back >= 8) & (source >= begin)):
                break
            other_is_usual = (
                (other_token < 240) & (other_size <= 16) & (other_back >= 8) & (other_source >= other_begin)
            )
            if not likely(other_is_usual):
                break
            copy_16s(out, to, data, at + 1, 16)
            copy_16s(out, other_to, data, other_at + 1, 16)
            store_i64(out, after, load_i64(out, source))
            store_i64(out, other_after, load_i64(out, other_source))
            store_i64(out, after + 8, load_i64(out, source + 8))
            store_i64(out, other_after + 8, load_i64(out, other_source + 8))
            at, to = match_at + 3, after + size
            other_at, other_to = other_place + 3, other_after + other_size
        # One of the two blocks met an unusual sequence, or its end. That one decodes a single sequence with all checks,
        # and both return to the common loop: leaving it for good would give up the overlap for the rest of the blocks.
        # The flag tells which of the two it was, because the conditions of both were tested in order.
        if other_is_usual and other_at < other_safe_at and other_to < other_safe_to:
            at, to = read_sequence(data, at, end, out, to, stop, begin)
            if at < 0:
                return MALFORMED
        else:
            other_at, other_to = read_sequence(data, other_at, other_end, out, other_to, other_stop, other_begin)
            if other_at < 0:
                return MALFORMED
    ends[0] = read_rest(data, at, end, out, to, stop, begin)
    ends[1] = read_rest(data, other_at, other_end, out, other_to, other_stop, other_begin)
    return min(ends[0], ends[1], 0)


@kernel
def read_frames(
    data: Bytes, places: Int64s, stride: int, any_header: int, out: MutableBytes, to: int, limit: int
) -> int:
    """Decompress frames to `out` from position `to` on, one after the other, each of at most `limit` bytes.

    Shapes: places (n * stride,); places[i * stride] and the next one are start and end of a frame in `data`, and become
    those of its content in `out`. Returns the number of frames done, up to the first that is unlike Kafka's (with
    `any_header`, of both header checksums), is damaged, or does not fit.
    """
    room = len(out) - SPARE
    for slot in range(0, len(places), stride):
        at, end, begin = places[slot], places[slot + 1], to
        stop = min(room, begin + limit)
        at = first_block(data, at, end, CORRECT, BROKEN if any_header else CORRECT)
        while at >= 0:
            word, at = next_block(data, at, end)
            if word <= 0:
                break
            size = word & (STORED - 1)
            if word >= STORED:
                if size > stop - to:
                    return slot // stride
                copy_bytes(out, to, data, at, size)
                to += size
            else:
                to = read_block(data, at, at + size, out, to, min(stop, to + BLOCK))
                if to < 0:
                    return slot // stride
            at += size
        if at < 0:
            return slot // stride
        places[slot], places[slot + 1] = begin, to
    return len(places) // stride
