"""Walk a log whose bytes cannot be trusted, and find its entries again after damage.

As in records/kernels/: flat buffers, a status, nothing raised, every position checked before it is read.
"""

from __future__ import annotations

from magicbyte.engine.compiled.checksums import crc32_of, crc32c_of
from magicbyte.engine.compiled.kernel import Bytes, Int32s, Int64s, kernel
from magicbyte.engine.compiled.primitives import (
    difference,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_u32,
)
from magicbyte.engine.records.kernels.batches import long_varint, skip_headers
from magicbyte.engine.records.kernels.framing import entry_size, least_size
from magicbyte.engine.records.kernels.statuses import AT, BAD_CRC, DONE, EXPECTED, FOUND, FULL
from magicbyte.engine.records.layout import (
    ATTRIBUTES_AT,
    BATCH_CRC_AT,
    ENRICHED_MINIMUM,
    ENRICHED_OVERHEAD,
    ENRICHED_TAGS_LENGTH_AT,
    ENRICHED_TAGS_START,
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_CRC_AT,
    RECORD_BATCH_MINIMUM,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_AT,
    RECORD_MINIMUM,
    SIZE_AT,
    V0_KEY_LENGTH_AT,
    V0_OVERHEAD,
    V1_KEY_LENGTH_AT,
)

# ---- statuses of `follow`, beside DONE, SHORT, BAD_SIZE, BAD_MAGIC and BAD_CRC
BACK = 30  # the entry is sound, but its offset is not above the one before it
OUTSIDE = 31  # the entry is sound, but its offsets are outside the segment
REJOINED = 32  # the entry is sound, and the first above `rejoin`
UNSURE = 33  # no credit left to compute the entry's checksum

# ---- fields of `state` for `follow`, besides AT, NEED, EXPECTED and FOUND
ENTRIES = 1  # sound entries in this call
FIRST = 5  # first offset of the first one, last offset of the last one
LAST = 6
BEFORE = 7  # last offset of the entry before the last one, across calls
PREVIOUS_AT = 8  # position and first offset of the last one, across calls
PREVIOUS_FIRST = 9
NEXT_FIRST = 10  # offsets of the entry at AT, for BACK, OUTSIDE and REJOINED
NEXT_LAST = 11
CREDIT = 12  # how many more bytes of failing checksums may be computed
FOLLOW = 13

NO_OFFSET = -(1 << 62)
LARGEST_ATTRIBUTES = 0x7F


@kernel
def follow(
    data: Bytes,
    start: int,
    end: int,
    enriched: int,
    last: int,
    low: int,
    high: int,
    rejoin: int,
    ieee: Int32s,
    castagnoli: Int32s,
    state: Int64s,
) -> int:
    """Follow sound entries from `start` on: sizes, magic bytes and checksums hold, offsets ascend above `last`.

    It stops at offsets outside `low` to `high` and at the first offset above `rejoin`. `ieee` and `castagnoli` are the
    tables of the two CRCs. state[AT] is where it stopped; the status is the reason.
    """
    at, entries, status = start, 0, DONE
    state[FIRST] = NO_OFFSET
    state[LAST] = last
    while at < end:
        whole = entry_size(data, at, end, enriched, state)
        if whole < 0:
            status = -whole
            break
        size, stop, magic = whole - LOG_OVERHEAD, at + whole, load_i8(data, at + MAGIC_AT)
        # An adversary can write a file in which an entry seems to begin at every position, each claiming megabytes:
        # computing all of these checksums would take quadratic time. So failing checksums are paid from a credit that
        # grows with the bytes of the file passed so far. When it is used up, the caller continues with running CRCs,
        # which read each byte once.
        if size > state[CREDIT]:
            status = UNSURE
            break
        if magic == 2:
            stored = load_u32(data, at + BATCH_CRC_AT)
            found = crc32c_of(data, at + ATTRIBUTES_AT, stop, castagnoli)
        else:
            stored = load_u32(data, at + MESSAGE_CRC_AT)
            found = crc32_of(data, at + MAGIC_AT, stop, ieee)
        if stored != found:
            status, state[EXPECTED], state[FOUND] = BAD_CRC, stored, found
            state[CREDIT] -= size
            break
        first = load_i64(data, at)
        final = first
        if magic == 2 and load_i32(data, at + LAST_OFFSET_DELTA_AT) > 0 and first >= 0:
            final = difference(first, -load_i32(data, at + LAST_OFFSET_DELTA_AT))
        state[NEXT_FIRST] = first
        state[NEXT_LAST] = final
        if first < low or final > high or final < first:
            status = OUTSIDE
            break
        if first <= last:
            status = BACK
            break
        if first > rejoin:
            status = REJOINED
            break
        if entries == 0:
            state[FIRST] = first
        state[BEFORE] = last
        state[PREVIOUS_AT] = at
        state[PREVIOUS_FIRST] = first
        last = final
        entries += 1
        at = stop
    state[AT] = at
    state[ENTRIES] = entries
    state[LAST] = last
    return status


@kernel
def plausible(data: Bytes, at: int, end: int, room: int, limit: int, enriched: int) -> int:
    """Return the size of the entry whose header may be at `at`, or -1 if no header fits. No checksum is computed.

    `room` is the number of bytes from `at` to the end of the file; `data` ends at `end`. Every field that its magic
    restricts is checked, as far as it lies in `data`.
    """
    if end - at < V0_OVERHEAD:
        return -1
    magic = load_i8(data, at + MAGIC_AT)
    size = load_i32(data, at + SIZE_AT)
    if magic < 0 or magic > 2 or (enriched and magic != 1) or load_i64(data, at) < 0:
        return -1
    if size < least_size(magic) or size + LOG_OVERHEAD > room or size + LOG_OVERHEAD > limit:
        return -1
    if magic == 2:
        if end - at < RECORD_BATCH_OVERHEAD:
            return -1
        attributes = load_i16(data, at + ATTRIBUTES_AT)
        delta = load_i32(data, at + LAST_OFFSET_DELTA_AT)
        count = load_i32(data, at + RECORD_COUNT_AT)
        if attributes < 0 or attributes > LARGEST_ATTRIBUTES or (attributes & 7) > 4 or delta < 0:
            return -1
        if (
            count < 0
            or count - 1 > delta
            or ((attributes & 7) == 0 and count > (size - RECORD_BATCH_MINIMUM) // RECORD_MINIMUM)
        ):
            return -1
        return size + LOG_OVERHEAD
    attributes = load_i8(data, at + MESSAGE_ATTRIBUTES_AT)
    field_at = at + V0_KEY_LENGTH_AT
    if enriched:
        if end - at < ENRICHED_OVERHEAD or attributes < 0 or attributes > 15:
            return -1
        area = load_i32(data, at + ENRICHED_TAGS_LENGTH_AT)
        if area < -1 or area > size - ENRICHED_MINIMUM:
            return -1
        field_at = at + ENRICHED_TAGS_START + max(area, 0)
    else:
        if attributes < 0 or attributes > 15 or (attributes & 7) > 4:
            return -1
        if magic == 1:
            field_at = at + V1_KEY_LENGTH_AT
    stop = at + LOG_OVERHEAD + size
    if end - field_at < 4:
        return size + LOG_OVERHEAD
    length = load_i32(data, field_at)
    if length < -1 or length > stop - field_at - 8:
        return -1
    field_at += 4 + max(length, 0)
    if end - field_at < 4:
        return size + LOG_OVERHEAD
    length = load_i32(data, field_at)
    if length < -1 or max(length, 0) != stop - field_at - 4:
        return -1
    return size + LOG_OVERHEAD


@kernel
def find_headers(
    data: Bytes, start: int, stop: int, end: int, room: int, limit: int, enriched: int, out: Int64s, state: Int64s
) -> int:
    """Fill `out` with the positions from `start` to `stop` where a header may be.

    `room` is the number of bytes from position 0 of `data` to the end of the file. state[AT] is the position to
    continue at, state[ENTRIES] the number of positions. Returns DONE or FULL.
    """
    at, headers, status = start, 0, DONE
    last = min(stop, end - V0_OVERHEAD + 1)
    while at < last:
        # the magic byte and the size first, because they rule out a header at nearly all positions
        rare = data[at + MAGIC_AT] <= 2 and data[at + SIZE_AT] < 128 and data[at] < 128
        if rare and plausible(data, at, end, room - at, limit, enriched) > 0:
            if headers == len(out):
                status = FULL
                break
            out[headers] = at
            headers += 1
        at += 1
    state[AT] = at
    state[ENTRIES] = headers
    return status


@kernel
def record_end(data: Bytes, at: int, end: int) -> int:
    """Return the end of the v2 record at `at`, or -1 if no whole record is there within `end`."""
    size, at = long_varint(data, at, end)
    if at < 0 or size < 6 or size > end - at or data[at] != 0:
        return -1
    stop = at + size
    at += 1
    while at < stop and data[at] >= 128:  # the timestamp delta, of up to ten bytes
        at += 1
    _, at = long_varint(data, at + 1, stop)
    if at < 0:
        return -1
    for _ in range(2):
        length, at = long_varint(data, at, stop)
        if at < 0 or length < -1 or length >= stop - at:
            return -1
        at += max(length, 0)
    count, at = long_varint(data, at, stop)
    if at < 0 or count < 0 or count > stop - at:
        return -1
    at = skip_headers(data, at, stop, count)
    return at if at == stop else -1


@kernel
def follow_records(data: Bytes, start: int, end: int, most: int, state: Int64s) -> int:
    """Return the position after the last plausible record of a v2 batch from `start` on, at most `most` records.

    state[ENTRIES] is their number.
    """
    at, count = start, 0
    while count < most:
        stop = record_end(data, at, end)
        if stop < 0:
            break
        at = stop
        count += 1
    state[ENTRIES] = count
    return at


@kernel
def value_start(data: Bytes, at: int, end: int) -> int:
    """Return where the value of the record at `at` begins, or -1 unless it ends one byte before the record.

    That byte is the header count, 0.
    """
    size, at = long_varint(data, at, end)
    if at < 0 or size < 6 or at >= end or data[at] != 0:
        return -1
    stop = at + size
    at += 1
    while at < end and data[at] >= 128:
        at += 1
    _, at = long_varint(data, at + 1, end)
    if at < 0:
        return -1
    length, at = long_varint(data, at, end)
    if at < 0 or length < -1 or length >= end - at:
        return -1
    length, at = long_varint(data, at + max(length, 0), end)
    return at if at >= 0 and at + length + 1 == stop else -1


@kernel
def held_by_record(data: Bytes, low: int, start: int, stop: int, end: int) -> int:
    """Return the end of a record that begins between `low` and `start` and contains `start` to `stop`, or -1.

    The record is whole; or only its beginning is left, and its value begins at `start`: then `stop` is returned.
    """
    for at in range(start - 1, low - 1, -1):
        # a record's length has at most five bytes, and its attributes after them are 0
        size, place = long_varint(data, at, end)
        if place < 0 or size < stop - place or data[place] != 0:
            continue
        ends: int = record_end(data, at, end)
        if ends >= stop:
            return ends
        if value_start(data, at, start) == start:
            return stop
    return -1
