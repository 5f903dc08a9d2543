"""Read LZ4 frames with a record of their matches, and write the content again without searching for matches.

Data that only changed its form, for instance records in another message format, repeats itself where it did before. So
the matches of the old blocks serve as hints: each is moved to the new position of its bytes, compared there byte by
byte and, if it holds, written. A wrong hint costs compression, never correctness. Source: LZ4's descriptions of its
frames and blocks; magicbyte.engine.codecs.lz4 has the subset that Kafka allows.
"""

from __future__ import annotations

from magicbyte.engine.codecs.lz4_frame_kernels import (
    BLOCK,
    FRAME_FLAGS,
    FRAME_MAGIC,
    FRAME_OVERHEAD,
    STORED,
    first_block,
    long_size,
    next_block,
)
from magicbyte.engine.compiled.kernel import Bytes, Int32s, Int64s, MutableBytes, kernel
from magicbyte.engine.compiled.likely import likely
from magicbyte.engine.compiled.primitives import (
    as_index,
    copy_bytes,
    load_i64,
    load_u8,
    shift_right,
    store_i8,
    store_i32,
    store_i64,
)

# ---- statuses
DONE = 0
FULL = 1  # no room in `out` or `matches`
ODD = 2  # damaged, or of a kind that is left to magicbyte.engine.codecs.lz4

# ---- fields of `state`
AT = 0  # position after the last byte written
COUNT = 1  # matches recorded or used in total
LEAD = 2  # leads used
STATE = 3

# ---- fields of a match
POSITION = 0  # its position in the content of its frame
LENGTH = 1
DISTANCE = 2  # how far back the same bytes are
MATCH = 3

GONE = -(1 << 30)
"""A move is the new position of an old byte less its old one. A move of GONE or below means that the byte was removed;
GONE less the move is the distance to the next remaining byte.
"""

LEAST_MATCH = 4
LAST_LITERALS = 5  # a block ends in this many literals
LAST_MATCH = 12  # no match begins closer to the end of a block
BLOCK_OVERHEAD = 40  # its size field, and the possible growth, besides 1/255 of it


def room(size: int, frames: int) -> int:
    """Return an upper bound of the size of frames of `size` bytes of content in total."""
    return size + size // 255 + size // BLOCK * BLOCK_OVERHEAD + frames * (FRAME_OVERHEAD + BLOCK_OVERHEAD)


@kernel
def read_block(
    data: Bytes, at: int, end: int, content: int, out: MutableBytes, room: int, matches: Int32s, state: Int64s
) -> int:
    """Decompress the block from `at` to `end` to position state[AT] of `out`, at most up to `room`; see `read_frame`.

    Its matches are recorded from matches[state[COUNT] * MATCH] on, with positions that count from `content`. Sets
    state[AT] and state[COUNT] if it returns DONE; otherwise it returns FULL or ODD.
    """
    start = to = state[AT]
    count, last_in, last_out = state[COUNT] * MATCH, end - 20, room - 48
    last_count = len(matches) - MATCH
    while at < end:
        token = load_u8(data, at)
        at += 1
        literals, size = token >> 4, (token & 15) + LEAST_MATCH
        # All five conditions of the fast path in one sign bit, as each difference is negative if its condition fails.
        # Under them 16 bytes of literals and 24 of a match can be copied unconditionally: the excess is overwritten by
        # the next sequence, and the margins keep it inside both buffers. Copies of fixed size compile to register
        # moves; a copy of exactly `literals` bytes would be a loop or a call for each sequence of about ten bytes.
        inside = (14 - literals) | (18 - size) | (last_in - at) | (last_out - to) | (last_count - count)
        if likely(inside >= 0):  # nearly all sequences: few literals, a short match, far from every end
            store_i64(out, to, load_i64(data, at))
            store_i64(out, to + 8, load_i64(data, at + 8))
            at += literals + 2
            to += literals
            distance = data[as_index(at - 2)] | data[as_index(at - 1)] << 8
            source = to - distance
            # Below a distance of 8, source and target of an 8-byte move overlap, and the move would read bytes not
            # written yet.
            if likely((distance >= 8) & (source >= start)):
                matches[as_index(count + POSITION)] = to - content
                matches[as_index(count + LENGTH)] = size
                matches[as_index(count + DISTANCE)] = distance
                count += MATCH
                store_i64(out, to, load_i64(out, source))
                store_i64(out, to + 8, load_i64(out, source + 8))
                store_i64(out, to + 16, load_i64(out, source + 16))
                to += size
                continue
        else:
            if literals == 15:
                literals, at = long_size(data, at, end, literals)
                if at < 0:
                    return ODD
            if literals > end - at:
                return ODD
            if literals > room - to:
                return FULL
            copy_bytes(out, to, data, at, literals)
            at += literals
            to += literals
            if at >= end - 1:
                if at != end:
                    return ODD
                state[AT], state[COUNT] = to, count // MATCH
                return DONE
            distance = data[at] | data[at + 1] << 8
            at += 2
            if size == 15 + LEAST_MATCH:
                size, at = long_size(data, at, end, size)
                if at < 0:
                    return ODD
        if distance == 0 or to - distance < start:
            return ODD
        if count > last_count or size > room - to:
            return FULL
        matches[count + POSITION], matches[count + LENGTH], matches[count + DISTANCE] = to - content, size, distance
        count += MATCH
        if distance >= size:
            copy_bytes(out, to, out, to - distance, size)
        else:
            for place in range(to, to + size):
                out[as_index(place)] = out[as_index(place - distance)]
        to += size
    return ODD


@kernel
def read_frame(
    data: Bytes,
    at: int,
    end: int,
    checksum: int,
    out: MutableBytes,
    room: int,
    matches: Int32s,
    state: Int64s,
) -> int:
    """Decompress a frame like those of Kafka's Java classes, from `at` to `end`, with that header `checksum` (-1: any).

    The content goes to position state[AT] of `out`, at most up to `room`; bytes after it may change. Shapes: matches (n
    * MATCH,), state (STATE,); otherwise as `read_block`.
    """
    content = state[AT]
    at = first_block(data, at, end, checksum, checksum)
    while at >= 0:
        word, at = next_block(data, at, end)
        if word == 0:
            return DONE
        if word < 0:
            return ODD
        size = word & (STORED - 1)
        if word < STORED:
            most = min(room, state[AT] + BLOCK)
            status: int = read_block(data, at, at + size, content, out, most, matches, state)
            if status != DONE:
                return status
        else:
            if size > room - state[AT]:
                return FULL
            copy_bytes(out, state[AT], data, at, size)
            state[AT] += size
        at += size
    return ODD


@kernel
def shared(data: Bytes, at: int, other: int, end: int) -> int:
    """Return how many bytes from `at`, at most up to `end`, equal those from `other` on, which is before `at`."""
    matched = at
    while end - matched >= 8:
        unlike = load_i64(data, matched) ^ load_i64(data, other)
        if unlike != 0:
            size = matched - at
            if shift_right(unlike, 32) == 0:
                size += 4
                unlike = unlike << 32
            if shift_right(unlike, 48) == 0:
                size += 2
                unlike = unlike << 16
            return size + 1 if shift_right(unlike, 56) == 0 else size
        matched += 8
        other += 8
    while matched < end and data[as_index(matched)] == data[as_index(other)]:
        matched += 1
        other += 1
    return matched - at


@kernel
def store_length(out: MutableBytes, at: int, rest: int) -> int:
    """Write the part of a length that exceeds its half of the token; return the position after it."""
    while rest >= 255:
        store_i8(out, at, 255)
        rest -= 255
        at += 1
    store_i8(out, at, rest)
    return at + 1


@kernel
def store_literals(data: Bytes, start: int, end: int, token: int, out: MutableBytes, at: int) -> int:
    """Write a token with the given lower half, and the literals from `start` to `end`; return the position after
    them.
    """
    size = end - start
    store_i8(out, at, min(size, 15) << 4 | token)
    at += 1
    if size >= 15:
        at = store_length(out, at, size - 15)
    copy_bytes(out, at, data, start, size)
    return at + size


@kernel
def store_match(data: Bytes, anchor: int, place: int, size: int, distance: int, out: MutableBytes, at: int) -> int:
    """Write the literals from `anchor` to `place` and a match there; return the position after it."""
    size -= LEAST_MATCH
    at = store_literals(data, anchor, place, min(size, 15), out, at)
    store_i8(out, at, distance)
    store_i8(out, at + 1, distance >> 8)
    at += 2
    return store_length(out, at, size - 15) if size >= 15 else at


@kernel
def write_block(
    data: Bytes,
    start: int,
    end: int,
    matches: Int32s,
    count: int,
    moves: Int32s,
    leads: Int32s,
    period: int,
    out: MutableBytes,
    at: int,
    state: Int64s,
) -> int:
    """Write `data` from `start` to `end`, at most BLOCK bytes, as an LZ4 block to position `at` of `out`.

    Hints are the matches of the old data from state[COUNT] to `count`, whose bytes moved as `moves` says. `leads` are
    further hints: ascending positions in `data` from leads[state[LEAD]] on, each of which may repeat the bytes one
    `period` before it; the last one is after all data. State is left as the next block needs it. `out` must have room
    for the data, 1/255 of it and 32 bytes more. Returns the position after the block.
    """
    anchor, last, stop = start, end - LAST_MATCH, end - LAST_LITERALS
    lead, hint = state[LEAD], state[COUNT]
    next_lead = leads[lead]
    limit = min(next_lead, last - LAST_MATCH)
    while hint < count:
        position, size = matches[as_index(hint * MATCH + POSITION)], matches[as_index(hint * MATCH + LENGTH)]
        distance = matches[as_index(hint * MATCH + DISTANCE)]
        behind = position + size
        # The fast path of nearly all matches: short, and none of their bytes removed.
        move, other = moves[as_index(position)], moves[as_index(position - distance)]
        match_at, back = position + move, distance + move - other
        literals = match_at - anchor
        # `cut` is 0 if the first and last byte of the match moved alike, and so did those of its source: then usually
        # nothing was removed or inserted in between, and the match is still contiguous on both sides. Whether it really
        # repeats its source is decided below by comparing the bytes, at most 16, in two words that may overlap.
        cut = (move ^ moves[as_index(behind - 1)]) | (other ^ moves[as_index(behind - 1 - distance)])
        outside = literals | (14 - literals) | (limit - match_at) | (16 - size) | (back - 1) | (match_at - start - back)
        if likely((cut == 0) & (outside >= 0)):
            unused, tail = 64 - 8 * min(size, 8), max(size - 8, 0)
            unlike = load_i64(data, match_at) ^ load_i64(data, match_at - back)
            unlike |= load_i64(data, match_at + tail) ^ load_i64(data, match_at + tail - back)
            if likely(shift_right(unlike, unused) == 0):
                store_i8(out, at, literals << 4 | (size - LEAST_MATCH))
                store_i64(out, at + 1, load_i64(data, anchor))
                store_i64(out, at + 9, load_i64(data, anchor + 8))
                at += literals + 3
                store_i8(out, at - 2, back)
                store_i8(out, at - 1, back >> 8)
                anchor = match_at + size
                hint += 1
                continue
        while behind - position >= LEAST_MATCH:
            move, other = moves[as_index(position)], moves[as_index(position - distance)]
            if move < GONE or other < GONE:
                position += max(GONE - move, GONE - other)
                continue
            match_at, back = position + move, distance + move - other
            while next_lead <= min(match_at, last):
                previous = leads[as_index(lead - period)] if lead >= period else -1
                if next_lead >= anchor and start <= previous < next_lead:
                    size = shared(data, next_lead, previous, stop)
                    if size >= LEAST_MATCH:
                        at = store_match(data, anchor, next_lead, size, next_lead - previous, out, at)
                        anchor = next_lead + size
                lead += 1
                next_lead = leads[as_index(lead)]
                limit = min(next_lead, last - LAST_MATCH)
            if match_at < anchor:
                position += anchor - match_at
                continue
            if match_at > last:
                break
            if back <= 0 or back > match_at - start:
                position = behind
                continue
            size = shared(data, match_at, match_at - back, stop)
            position += max(size, 1)
            while match_at > anchor and match_at - back > start and data[match_at - 1] == data[match_at - back - 1]:
                match_at -= 1
                size += 1
            if size >= LEAST_MATCH:
                at = store_match(data, anchor, match_at, size, back, out, at)
                anchor = match_at + size
        if behind - position >= LEAST_MATCH:  # the block is full: the next one begins with this hint
            break
        hint += 1
    state[LEAD], state[COUNT] = lead, hint
    return int(store_literals(data, anchor, end, 0, out, at))


@kernel
def store_size(out: MutableBytes, at: int, size: int) -> None:
    """Write a uint32, little-endian."""
    store_i8(out, at, size)
    store_i8(out, at + 1, size >> 8)
    store_i8(out, at + 2, size >> 16)
    store_i8(out, at + 3, size >> 24)


@kernel
def write_frame(
    data: Bytes,
    start: int,
    end: int,
    checksum: int,
    matches: Int32s,
    count: int,
    moves: Int32s,
    leads: Int32s,
    period: int,
    out: MutableBytes,
    at: int,
    state: Int64s,
) -> int:
    """Write `data` from `start` to `end` as an LZ4 frame to position `at` of `out`.

    `checksum`: that of its header. Hints as in `write_block`, from state[COUNT] on. Incompressible blocks are stored.
    `out` must have the room that `write_block` needs, for each block. Returns the position after the frame.
    """
    store_i32(out, at, FRAME_MAGIC)
    store_i8(out, at + 4, FRAME_FLAGS >> 8)
    store_i8(out, at + 5, FRAME_FLAGS)
    store_i8(out, at + 6, checksum)
    at += 7
    state[LEAD] = 0
    for begin in range(start, end, BLOCK):
        behind = min(begin + BLOCK, end)
        size = write_block(data, begin, behind, matches, count, moves, leads, period, out, at + 4, state) - at - 4
        if size < behind - begin:
            store_size(out, at, size)
        else:
            size = behind - begin
            store_size(out, at, size | STORED)
            copy_bytes(out, at + 4, data, begin, size)
        at += 4 + size
    store_i32(out, at, 0)
    return at + 4
