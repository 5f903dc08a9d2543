"""Walk the records of a set once, without columns: check that each is whole, and collect the facts that a log needs.

Statuses, the rules of a record, and the first fields of `state` are those of kernels/; the facts follow them.
"""

from __future__ import annotations

from magicbyte.engine.compiled.checksums import crc32_of, crc32_wide
from magicbyte.engine.compiled.kernel import Bytes, Int32s, Int64s, kernel
from magicbyte.engine.compiled.primitives import (
    as_int64,
    load_i8,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    short_varint,
)
from magicbyte.engine.records.kernels.batches import SPARE, TWO_BYTES, find_fields
from magicbyte.engine.records.kernels.messages import tagged_timestamp
from magicbyte.engine.records.kernels.statuses import (
    AT,
    BAD_CRC,
    BAD_MAGIC,
    BAD_SIZE,
    BAD_TAGS,
    BAD_VALUE_LENGTH,
    CUT_MESSAGE,
    DELTA,
    DONE,
    EXPECTED,
    FOUND,
    HEADER_COUNT,
    KEY_SIZE,
    LATER,
    STATE,
    STOP,
    TRAILING_BYTES,
)
from magicbyte.engine.records.layout import (
    ENRICHED_TAGS_LENGTH_AT,
    ENRICHED_TAGS_START,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_CRC_AT,
    SIZE_AT,
    V0_KEY_LENGTH_AT,
    V0_MINIMUM,
    V0_OVERHEAD,
    V1_KEY_LENGTH_AT,
    V1_MINIMUM,
    V1_TIMESTAMP_AT,
)

TOO_LARGE = 32  # a status, besides those of kernels/statuses.py

# ---- further fields of `state`; an index counts records from 0, and is -1 if there is no such record
COUNT = STATE
NULL_KEYS = STATE + 1
LEAST = STATE + 2  # the smallest timestamp other than -1; MOST_TIME if there is none
LATEST = STATE + 3  # the largest of all timestamps
LATEST_AT = STATE + 4  # index of the first record with that timestamp
OUT_OF_ORDER = STATE + 5  # index of the first record whose offset field, or offset delta, is not its index
HEADERS = STATE + 6
APPEND_BITS = STATE + 7  # messages marked LogAppendTime
NESTED = STATE + 8  # index of the first message that is itself compressed, or a control message
OTHER_MAGIC = STATE + 9  # index of the first message of another format than the set
LYING = STATE + 10  # position of the first message whose key or value length contradicts its size
FACTS = STATE + 11  # the length of `state`

MOST_TIME = (1 << 63) - 1
LEAST_TIME = -MOST_TIME - 1


@kernel
def clear_facts(state: Int64s) -> None:
    """Reset the facts to those of an empty set."""
    state[COUNT] = state[NULL_KEYS] = state[HEADERS] = state[APPEND_BITS] = 0
    state[LEAST], state[LATEST] = MOST_TIME, LEAST_TIME
    state[LATEST_AT] = state[OUT_OF_ORDER] = state[NESTED] = state[OTHER_MAGIC] = state[LYING] = -1


@kernel
def survey_records(data: Bytes, at: int, end: int, count: int, base: int, state: Int64s) -> int:
    """Walk the `count` records of a v2 batch from `at` to `end`; timestamps count from `base`.

    Shapes: state (FACTS,).
    """
    clear_facts(state)
    null_keys = headers = 0
    least, latest, latest_at, out_of_order = MOST_TIME, LEAST_TIME, -1, -1
    safe = min(end, len(data) - SPARE)
    for index in range(count):
        begin, usual, stop = at, 0, 0
        delta = later = key_size = many = 0
        while at < safe:  # runs once: unusual records leave it for `find_fields`
            code, at = short_varint(data, at)
            if code > TWO_BYTES:
                break
            stop = at + (code >> 1)
            if code & 1 or stop > safe:
                break
            code, at = short_varint(data, at + 1)
            if code > TWO_BYTES:
                break
            delta = (code >> 1) ^ -(code & 1)
            code, at = short_varint(data, at)
            if code > TWO_BYTES:
                break
            later = (code >> 1) ^ -(code & 1)
            code, at = short_varint(data, at)
            if code > TWO_BYTES:
                break
            key_size, used = code >> 1, code >> 1
            if code & 1:
                if code != 1:
                    break
                key_size, used = -1, 0
            if used >= stop - at:
                break
            code, at = short_varint(data, at + used)
            if code > TWO_BYTES:
                break
            used = code >> 1
            if code & 1:
                if code != 1:
                    break
                used = 0
            if used >= stop - at:
                break
            at += used
            if load_u8(data, at) == 0 and at + 1 == stop:
                usual = 1
            break
        if not usual:
            status = find_fields(data, begin, end, state)
            if status != DONE:
                return int(status)
            stop, delta, later = state[STOP], state[DELTA], state[LATER]
            key_size, many = state[KEY_SIZE], state[HEADER_COUNT]
        at = stop
        time = as_int64(base + delta)
        if time > latest:
            latest, latest_at = time, index
        if time < least and time != -1:
            least = time
        if later != index and out_of_order < 0:
            out_of_order = index
        null_keys += key_size < 0
        headers += many
    state[COUNT], state[NULL_KEYS], state[LEAST], state[LATEST] = count, null_keys, least, latest
    state[LATEST_AT], state[OUT_OF_ORDER], state[HEADERS] = latest_at, out_of_order, headers
    if at != end:
        state[AT], state[EXPECTED], state[FOUND] = at, 0, end - at
        return TRAILING_BYTES
    return DONE


@kernel
def survey_messages(
    data: Bytes, at: int, end: int, magic: int, enriched: int, limit: int, table: Int32s, state: Int64s
) -> int:
    """Walk the messages from `at` to `end`: plain ones, or the content of a wrapper of `magic`. Every CRC is checked.

    Stops at damage, and at a message of more than `limit` bytes. Whole messages that are not allowed in a set are
    recorded as facts. Shapes: state (FACTS,); `table` is that of CRC-32.
    """
    clear_facts(state)
    count = null_keys = append_bits = 0
    least, latest, latest_at = MOST_TIME, LEAST_TIME, -1
    while at < end:
        state[AT] = at
        if end - at < LOG_OVERHEAD:
            state[EXPECTED], state[FOUND] = V0_OVERHEAD, end - at
            return CUT_MESSAGE
        size = load_i32(data, at + SIZE_AT)
        if size < V0_MINIMUM:
            state[EXPECTED], state[FOUND] = V0_MINIMUM, size
            return BAD_SIZE
        if size > end - at - LOG_OVERHEAD:
            state[EXPECTED], state[FOUND] = size + LOG_OVERHEAD, end - at
            return CUT_MESSAGE
        if size + LOG_OVERHEAD > limit:
            state[EXPECTED], state[FOUND] = limit, size + LOG_OVERHEAD
            return TOO_LARGE
        own = load_i8(data, at + MAGIC_AT)
        if own < 0 or own > 1 or (enriched and own != 1):
            state[EXPECTED], state[FOUND] = magic, own
            return BAD_MAGIC
        if own == 1 and size < V1_MINIMUM:
            state[EXPECTED], state[FOUND] = V1_MINIMUM, size
            return BAD_SIZE
        stop = at + LOG_OVERHEAD + size
        crc = crc32_wide(data, at + MAGIC_AT, stop, table) if at >= 48 else crc32_of(data, at + MAGIC_AT, stop, table)
        if crc != load_u32(data, at + MESSAGE_CRC_AT):
            state[EXPECTED], state[FOUND] = load_u32(data, at + MESSAGE_CRC_AT), crc
            return BAD_CRC
        attributes = load_i8(data, at + MESSAGE_ATTRIBUTES_AT)
        if own != magic and state[OTHER_MAGIC] < 0:
            state[OTHER_MAGIC] = count
        if attributes & (15 if enriched else 7) and state[NESTED] < 0:
            state[NESTED] = count
        time, field_at = -1, at + V0_KEY_LENGTH_AT
        if enriched:
            area, field_at = load_i32(data, at + ENRICHED_TAGS_LENGTH_AT), at + ENRICHED_TAGS_START
            if area < -1 or area > stop - field_at - 8:
                state[EXPECTED], state[FOUND] = stop - field_at - 8, area
                return BAD_TAGS
            if area > 0:
                _, found = tagged_timestamp(data, field_at, field_at + area)
                if found < 0:
                    state[EXPECTED], state[FOUND] = area, area
                    return BAD_TAGS
                field_at += area
        elif own == 1:
            time, field_at = load_i64(data, at + V1_TIMESTAMP_AT), at + V1_KEY_LENGTH_AT
            append_bits += (attributes >> 3) & 1
        if time > latest:
            latest, latest_at = time, count
        if time < least and time != -1:
            least = time
        if load_i64(data, at) != count and state[OUT_OF_ORDER] < 0:
            state[OUT_OF_ORDER] = count
        size = load_i32(data, field_at)
        null_keys += size == -1
        if size < -1 or size > stop - field_at - 8:
            if state[LYING] < 0:
                state[EXPECTED], state[FOUND] = stop - field_at - 8, size
                state[LYING] = at
        else:
            field_at += 4 + max(size, 0)
            size = load_i32(data, field_at)
            if (size < -1 or max(size, 0) != stop - field_at - 4) and state[LYING] < 0:
                state[EXPECTED], state[FOUND] = stop - field_at - 4, size
                state[LYING] = at
        count += 1
        at = stop
    state[COUNT], state[NULL_KEYS], state[LEAST], state[LATEST] = count, null_keys, least, latest
    state[LATEST_AT], state[APPEND_BITS] = latest_at, append_bits
    if state[LYING] >= 0:
        state[AT] = state[LYING]
        return BAD_VALUE_LENGTH
    return DONE


@kernel
def first_of_time(
    data: Bytes, at: int, end: int, count: int, base: int, timestamp: int, least_delta: int, state: Int64s
) -> int:
    """Find the first of the `count` records of a v2 batch with `timestamp` or a later one.

    Timestamps count from `base`; records with an offset delta below `least_delta` are skipped. Returns DONE, with the
    timestamp in state[DELTA] and the delta in state[LATER], or the status with which the walk ended: CUT_MESSAGE at
    `end` if there is no such record. Shapes: state (STATE,).
    """
    for _ in range(count):
        status = find_fields(data, at, end, state)
        if status != DONE:
            return int(status)
        time = as_int64(base + state[DELTA])
        if time >= timestamp and state[LATER] >= least_delta:
            state[DELTA] = time
            return DONE
        at = state[STOP]
    state[AT], state[EXPECTED], state[FOUND] = at, 1, end - at
    return CUT_MESSAGE


# ---- results of `count_columns`
WITH_KEY = 0
TOMBSTONES = 1
WITH_HEADERS = 2
ALL_HEADERS = 3
SMALLEST = 4  # the smallest timestamp other than -1; MOST_TIME and LEAST_TIME if there is none
LARGEST = 5
COUNTED = 6  # the length of `counted`


@kernel
def count_columns(
    timestamp: Int64s, key_length: Int32s, value_length: Int32s, header_count: Int32s, counted: Int64s
) -> None:
    """Summarize columns of decoded records. Shapes: all (n,), counted (COUNTED,)."""
    keys, nulls, with_headers, headers, smallest, largest = 0, 0, 0, 0, MOST_TIME, LEAST_TIME
    for i in range(len(timestamp)):
        keys += key_length[i] >= 0
        nulls += value_length[i] < 0
        with_headers += header_count[i] != 0
        headers += header_count[i]
        if timestamp[i] != -1:
            smallest = min(smallest, timestamp[i])
            largest = max(largest, timestamp[i])
    counted[WITH_KEY], counted[TOMBSTONES], counted[WITH_HEADERS], counted[ALL_HEADERS] = (
        keys,
        nulls,
        with_headers,
        headers,
    )
    counted[SMALLEST], counted[LARGEST] = smallest, largest
