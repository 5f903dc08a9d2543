"""LZ4 frames of many batches at once, without a call for each: those that Kafka's own writers make.

Any other frame, and a damaged one, is left to `codecs.lz4`, which knows all of them and says what is wrong. The blocks
are read here because a call of a library for each, and the copy of what it returns, takes as long as the reading.
Format: the LZ4 block format description.
"""

from __future__ import annotations

from magicbyte.wire.kernel import Bytes, Int64s, MutableBytes, kernel
from magicbyte.wire.primitives import as_index, copy_16s, copy_32s, copy_bytes, load_u8, load_u32

SPARE = 64  # bytes behind a frame's content that the output must have
MALFORMED = -1
_MAGIC = 0x04224D18
_BLOCK = 1 << 16
_MARGIN = (
    96  # in input and output, for a token whose lengths are in it: 14 literals, 18 bytes of match, and what follows
)


@kernel
def read_block(data: Bytes, at: int, end: int, out: MutableBytes, to: int, stop: int) -> int:
    """Write the content of the block in the bytes from `at` to `end` to `out` from `to` on, and not beyond `stop`.

    Returns where it ends, MALFORMED also where it would go beyond `stop`; SPARE bytes behind `stop` belong to `out`.
    """
    begin = to
    safe_at, safe_to = end - _MARGIN, stop - _MARGIN
    while at < end:
        token = load_u8(data, at)
        at += 1
        while token < 240 and at < safe_at and to < safe_to:  # the usual token, far from the ends
            copy_16s(out, to, data, at, 16)
            at += token >> 4
            to += token >> 4
            back = load_u8(data, at) | (load_u8(data, at + 1) << 8)
            at += 2
            source, size = to - back, (token & 15) + 4
            if source < begin or back == 0:
                return MALFORMED
            if size == 19:
                more = 255
                while more == 255:
                    if at >= end:
                        return MALFORMED
                    more = load_u8(data, at)
                    size, at = size + more, at + 1
                if size > stop - to or at >= end:
                    return MALFORMED
            if size <= 16 and back >= 16:
                copy_16s(out, to, out, source, 16)
            elif back >= 32:
                copy_32s(out, to, out, source, size)
            elif back >= 16:
                copy_16s(out, to, out, source, size)
            else:
                for place in range(to, to + size):
                    out[as_index(place)] = out[as_index(place - back)]
            to += size
            token = load_u8(data, at)
            at += 1
        size = token >> 4
        if size == 15:
            more = 255
            while more == 255:
                if at >= end:
                    return MALFORMED
                more = load_u8(data, at)
                size, at = size + more, at + 1
        if size > end - at or size > stop - to:
            return MALFORMED
        copy_bytes(out, to, data, at, size)
        at += size
        to += size
        if at == end:
            return to
        if end - at < 2:
            return MALFORMED
        back = load_u8(data, at) | (load_u8(data, at + 1) << 8)
        at += 2
        size = (token & 15) + 4
        if size == 19:
            more = 255
            while more == 255:
                if at >= end:
                    return MALFORMED
                more = load_u8(data, at)
                size, at = size + more, at + 1
        if back == 0 or back > to - begin or size > stop - to:
            return MALFORMED
        if back >= 32:
            copy_32s(out, to, out, to - back, size)
        else:
            for place in range(to, to + size):
                out[as_index(place)] = out[as_index(place - back)]
        to += size
    return MALFORMED


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
        if end - at < 11 or load_u32(data, at) != _MAGIC or load_u8(data, at + 4) != 0x60:
            return place // stride
        check = load_u8(data, at + 6)
        if load_u8(data, at + 5) != 0x40 or (check != 0x82 and (not any_header or check != 0x1A)):
            return place // stride
        at += 7
        while True:
            if end - at < 4:
                return place // stride
            word = (
                load_u8(data, at)
                | (load_u8(data, at + 1) << 8)
                | (load_u8(data, at + 2) << 16)
                | (load_u8(data, at + 3) << 24)
            )
            at += 4
            if word == 0:
                break
            size = word & 0x7FFFFFFF
            if size > _BLOCK or size > end - at:
                return place // stride
            if word > 0x7FFFFFFF:
                if size > stop - to:
                    return place // stride
                copy_bytes(out, to, data, at, size)
                to += size
            else:
                to = read_block(data, at, at + size, out, to, min(stop, to + _BLOCK))
                if to < 0:
                    return place // stride
            at += size
        places[place], places[place + 1] = begin, to
    return len(places) // stride
