"""LZ4 frames of many batches at once, without a call for each: those that Kafka's own writers make.

Any other frame, and a damaged one, is left to `codecs.lz4`, which knows all of them and says what is wrong. The blocks
are read here because a call of a library for each, and the copy of what it returns, takes as long as the reading.
Format: the LZ4 block format description.

Blocks have three loops for sequences that are usual, one beside the other, because one for all would cost a fifth. For
records of 100 bytes: `read_rest` takes 30 ns a record, `read_two` 25, the one in `lz4_kernels`, which notes each match
as well, 37. Frames, sizes of more than 15 and their limits are read in one place, `lz4_frame_kernels`.
"""

from __future__ import annotations

from magicbyte.codecs.lz4_frame_kernels import (
    BLOCK,
    BROKEN,
    CORRECT,
    MALFORMED,
    STORED,
    first_block,
    long_size,
    next_block,
)
from magicbyte.compiled.kernel import Bytes, Int64s, MutableBytes, kernel
from magicbyte.compiled.likely import likely
from magicbyte.compiled.primitives import (
    as_index,
    copy_16s,
    copy_32s,
    copy_bytes,
    load_i64,
    load_u8,
    store_i64,
)

SPARE = 64  # bytes behind a frame's content that the output must have
_MARGIN = 96  # in input and output, for a usual sequence that is read without a look at the ends


@kernel
def read_sequence(data: Bytes, at: int, end: int, out: MutableBytes, to: int, stop: int, begin: int) -> tuple[int, int]:
    """Write what one sequence of a block stands for to `out` from `to` on, and nothing beyond `stop`.

    The block ends at `end`, its content begins at `begin`. Returns the position behind the sequence, or MALFORMED, and
    where what was written ends.
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
    else:  # that would be free to write 32 bytes
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
        return MALFORMED, to  # a block ends in literals
    if back >= 32 and size + 32 <= stop - to:
        copy_32s(out, to, out, to - back, size)
    else:
        for place in range(to, to + size):
            out[as_index(place)] = out[as_index(place - back)]
    return at, to + size


@kernel
def read_rest(data: Bytes, at: int, end: int, out: MutableBytes, to: int, stop: int, begin: int) -> int:
    """As `read_block`, from the sequence at `at` of a block on whose content begins at `begin`."""
    safe_at, safe_to = end - _MARGIN, stop - _MARGIN
    while at < end:
        while at < safe_at and to < safe_to:
            token = load_u8(data, at)
            size, after, place = (token & 15) + 4, to + (token >> 4), at + (token >> 4)
            back = load_u8(data, place + 1) | (load_u8(data, place + 2) << 8)
            source = after - back
            # nearly all: few literals, a short match that is not too near
            if not likely((token < 240) & (size <= 16) & (back >= 8) & (source >= begin)):
                break
            copy_16s(out, to, data, at + 1, 16)
            store_i64(out, after, load_i64(out, source))
            store_i64(out, after + 8, load_i64(out, source + 8))
            at, to = place + 3, after + size
        at, to = read_sequence(data, at, end, out, to, stop, begin)
        if at < 0:
            return MALFORMED
    return to


@kernel
def read_block(data: Bytes, at: int, end: int, out: MutableBytes, to: int, stop: int) -> int:
    """Write the content of the block in the bytes from `at` to `end` to `out` from `to` on, and nothing beyond `stop`.

    Returns where it ends, MALFORMED also where it would go beyond `stop`.
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
    """Do what `read_block` does for two blocks at once: where each sequence begins is known only when the one before
    was looked at, and while the processor waits for that of one block it works on the other.

    Puts what `read_block` returns into `ends`, and returns 0, or MALFORMED if one is: `ends` says nothing then.
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
            size, after, place = (token & 15) + 4, to + (token >> 4), at + (token >> 4)
            other_size, other_after = (other_token & 15) + 4, other_to + (other_token >> 4)
            other_place = other_at + (other_token >> 4)
            back = load_u8(data, place + 1) | (load_u8(data, place + 2) << 8)
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
            at, to = place + 3, after + size
            other_at, other_to = other_place + 3, other_after + other_size
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
    """Decompress frames to `out` from position `to` on, one behind the other, none to more than `limit` bytes.

    Shapes: places (n * stride,); places[i * stride] and the next one are begin and end of a frame in `data`, and become
    those of its content in `out`. Returns how many frames are done: up to the first that is not as Kafka's writers
    make them (with `any_header`, of both header checksums), is damaged, or does not fit.
    """
    room = len(out) - SPARE
    for place in range(0, len(places), stride):
        at, end, begin = places[place], places[place + 1], to
        stop = min(room, begin + limit)
        at = first_block(data, at, end, CORRECT, BROKEN if any_header else CORRECT)
        while at >= 0:
            word, at = next_block(data, at, end)
            if word <= 0:
                break
            size = word & (STORED - 1)
            if word >= STORED:
                if size > stop - to:
                    return place // stride
                copy_bytes(out, to, data, at, size)
                to += size
            else:
                to = read_block(data, at, at + size, out, to, min(stop, to + BLOCK))
                if to < 0:
                    return place // stride
            at += size
        if at < 0:
            return place // stride
        places[place], places[place + 1] = begin, to
    return len(places) // stride
