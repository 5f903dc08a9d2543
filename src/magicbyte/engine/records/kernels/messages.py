"""Decode messages of magic 0, magic 1 and the enriched dialect: plain ones and the content of wrappers."""

from __future__ import annotations

from magicbyte.engine.compiled.checksums import crc32_of, crc32_wide
from magicbyte.engine.compiled.kernel import Bytes, Int8s, Int32s, Int64s, MutableBytes, kernel
from magicbyte.engine.compiled.primitives import (
    as_index,
    as_int64,
    copy_bytes,
    difference,
    load_i8,
    load_i32,
    load_i64,
    load_u32,
    prefetch,
)
from magicbyte.engine.records.kernels.cells import PACK, REFER
from magicbyte.engine.records.kernels.runs import (
    COUNT,
    END,
    HONOR,
    LAST,
    LOG_APPEND,
    MAGIC,
    NO_TYPE,
    OFFSET,
    OWN,
    RUN,
    START,
    TIMESTAMP,
    TYPE,
    set_wrapper_run,
)
from magicbyte.engine.records.kernels.scan import WALK_AHEAD
from magicbyte.engine.records.kernels.statuses import (
    AT,
    BAD_CRC,
    BAD_KEY_LENGTH,
    BAD_MAGIC,
    BAD_SIZE,
    BAD_TAGS,
    BAD_VALUE_LENGTH,
    BAD_WRAPPER_OFFSET,
    CUT_MESSAGE,
    DONE,
    EXPECTED,
    FOUND,
    KEY_BYTES,
    NESTED,
    NO_MESSAGES,
    ROWS,
    RUN_INDEX,
    VALUE_BYTES,
)
from magicbyte.engine.records.layout import (
    ENRICHED_SECONDS_AT,
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


@kernel
def open_wrappers(
    data: Bytes, position: Int64s, size: Int64s, magic: int, verify: int, limit: int, table: Int32s, runs: Int64s
) -> int:
    """As `open_batches`, for compressed messages of magic 0 or 1; `table` is that of CRC-32."""
    for row in range(len(position)):
        at, end = position[row], position[row] + size[row]
        key = V0_KEY_LENGTH_AT if magic == 0 else V1_KEY_LENGTH_AT
        if size[row] > limit or size[row] < key + 8:
            return row
        if verify and crc32_of(data, at + MAGIC_AT, end, table) != load_u32(data, at + MESSAGE_CRC_AT):
            return row
        if load_i32(data, at + key) != -1 or load_i32(data, at + key + 4) != size[row] - key - 8:
            return row  # a wrapper with a key, which is valid but rare, or damage
        set_wrapper_run(runs, row * RUN, data, at, magic, at + key + 8, end)
    return len(position)


@kernel
def measure_messages(data: Bytes, runs: Int64s, state: Int64s) -> int:
    """Count the messages of each run (runs[COUNT]) and store the offset field of its last one (runs[LAST]).

    Runs that already have a count from the scan are skipped.
    """
    for run in range(0, len(runs), RUN):
        if runs[run + COUNT] > 0:
            continue
        at, end = runs[run + START], runs[run + END]
        count, last = 0, -1
        while at < end:
            if end - at < V0_OVERHEAD or load_i32(data, at + SIZE_AT) > end - at - LOG_OVERHEAD:
                state[AT], state[RUN_INDEX] = at, run // RUN
                state[EXPECTED], state[FOUND] = (
                    (load_i32(data, at + SIZE_AT) + LOG_OVERHEAD if end - at >= LOG_OVERHEAD else V0_OVERHEAD),
                    end - at,
                )
                return CUT_MESSAGE
            size = load_i32(data, at + SIZE_AT)
            if size < V0_MINIMUM:
                state[AT], state[RUN_INDEX], state[EXPECTED], state[FOUND] = at, run // RUN, V0_MINIMUM, size
                return BAD_SIZE
            last = load_i64(data, at)
            count += 1
            at += size + LOG_OVERHEAD
        if count == 0:
            state[AT], state[RUN_INDEX] = at, run // RUN
            return NO_MESSAGES
        runs[run + COUNT], runs[run + LAST] = count, last
    return DONE


@kernel
def tagged_timestamp(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return (tag 0, 1) of an enriched message's tags area, (-1, 0) without tag 0, (0, -1) if a known tag is cut."""
    value, tagged = -1, 0
    while at < end:
        tag = load_i8(data, at)
        if tag == 0:
            size = 8
        elif tag == 32:
            size = 4
        elif tag in (33, 34):
            size = 1
        else:
            break  # an unknown tag has no known size, so the rest is ignored
        if size > end - at - 1:
            return 0, -1
        if tag == 0 and tagged == 0:
            value, tagged = load_i64(data, at + 1), 1
        at += 1 + size
    return value, tagged


@kernel
def check_crcs(data: Bytes, at: int, end: int, table: Int32s) -> tuple[int, int]:
    """Verify the CRCs of messages from `at` on, some kilobytes of them and at least one.

    Separate from decoding, so that several CRCs are computed in parallel. Returns the position of the first message
    with a wrong CRC (-1: none), and the position where it stopped. Sizes must have been checked before.
    """
    most = min(end, at + WALK_AHEAD)
    while at < most:
        stop = at + LOG_OVERHEAD + load_i32(data, at + SIZE_AT)
        # The wide form loads up to 64 bytes before its start, which exist from position 48 on, as the checksum begins
        # 16 bytes into the message. It has no call, so that the multiplications of several short messages overlap.
        crc = crc32_wide(data, at + MAGIC_AT, stop, table) if at >= 48 else crc32_of(data, at + MAGIC_AT, stop, table)
        if crc != load_u32(data, at + MESSAGE_CRC_AT):
            return at, stop
        at = stop
    return -1, at


@kernel
def decode_messages(
    data: Bytes,
    runs: Int64s,
    enriched: int,
    verify: int,
    table: Int32s,
    keys: int,
    values: int,
    offset: Int64s,
    timestamp: Int64s,
    timestamp_type: Int8s,
    key_start: Int32s,
    key_length: Int32s,
    key_data: MutableBytes,
    value_start: Int32s,
    value_length: Int32s,
    value_data: MutableBytes,
    state: Int64s,
) -> int:
    """Decode messages of magic 0 or 1, or enriched ones: plain messages and the content of wrappers.

    As `decode_batches`, after `measure_messages`. `table` is that of CRC-32; with `verify` each message's CRC is
    checked. Wrappers of magic 1 may contain messages of magic 0, without a timestamp: the log cleaner of 0.10 wrote
    such.
    """
    row, key_at, value_at = state[ROWS], state[KEY_BYTES], state[VALUE_BYTES]
    status = DONE
    at = ahead = 0
    for run in range(0, len(runs), RUN):
        begin, end = runs[run + START], runs[run + END]
        ahead, checked, bad = max(ahead, begin), begin, -1
        at = begin
        kind, append_time, magic = runs[run + TYPE], runs[run + TIMESTAMP], runs[run + MAGIC]
        # the 0.10 log cleaner's wrapper: all messages in it are of magic 0
        cleaned = magic == 1 and kind != OWN and not enriched
        add, first_row = 0, row
        if kind != OWN:
            if enriched:
                add = runs[run + OFFSET]
            elif magic == 1 and runs[run + OFFSET] != 0:
                add = difference(runs[run + OFFSET], runs[run + LAST])
                if runs[run + OFFSET] < runs[run + LAST]:
                    status, state[EXPECTED], state[FOUND] = BAD_WRAPPER_OFFSET, runs[run + LAST], runs[run + OFFSET]
        whole = (row, key_at, value_at)
        while status == DONE and at < end:
            if kind == OWN:
                whole = (row, key_at, value_at)
            cell = as_index(row)
            ahead = prefetch(data, ahead, at + WALK_AHEAD)
            size = load_i32(data, at + SIZE_AT)
            stop = at + LOG_OVERHEAD + size
            own = load_i8(data, at + MAGIC_AT)
            least = V0_MINIMUM if magic == 0 or (own == 0 and cleaned) else V1_MINIMUM
            if size < least:
                status, state[EXPECTED], state[FOUND] = BAD_SIZE, least, size
                break
            if own != magic and not (own == 0 and cleaned):
                status, state[EXPECTED], state[FOUND] = BAD_MAGIC, magic, own
                break
            if verify and at >= checked:
                bad, checked = check_crcs(data, at, end, table)
            if at == bad:
                crc = crc32_of(data, at + MAGIC_AT, stop, table)
                status, state[EXPECTED], state[FOUND] = BAD_CRC, load_u32(data, at + MESSAGE_CRC_AT), crc
                break
            attributes = load_i8(data, at + MESSAGE_ATTRIBUTES_AT)
            field_at = at + V0_KEY_LENGTH_AT
            if enriched:
                if kind != OWN and attributes & 15:
                    status, state[FOUND] = NESTED, attributes & 15
                    break
                seconds = load_u32(data, at + ENRICHED_SECONDS_AT)
                area = load_i32(data, at + ENRICHED_TAGS_LENGTH_AT)
                field_at = at + ENRICHED_TAGS_START
                if area < -1 or area > stop - field_at - 8:
                    status, state[EXPECTED], state[FOUND] = BAD_TAGS, stop - field_at - 8, area
                    break
                if area > 0:
                    tagged, tag_status = tagged_timestamp(data, field_at, field_at + area)
                    field_at += area
                    if tag_status < 0:
                        status, state[EXPECTED], state[FOUND] = BAD_TAGS, area, area
                        break
                else:
                    tagged, tag_status = -1, 0
                if not tag_status:
                    if kind != OWN:
                        tagged = append_time
                    elif seconds != 0xFFFFFFFF:
                        tagged = seconds * 1000
                timestamp[cell] = tagged
                timestamp_type[cell] = 1 if tagged >= 0 else 0
                if kind == OWN:
                    offset[cell] = load_i64(data, at)
                elif runs[run + HONOR]:
                    offset[cell] = as_int64(add + load_i64(data, at))
                else:
                    offset[cell] = as_int64(add + row - first_row)
            else:
                if kind != OWN and attributes & 7:
                    status, state[FOUND] = NESTED, attributes & 7
                    break
                offset[cell] = as_int64(add + load_i64(data, at))
                if own == 0:
                    timestamp[cell] = -1
                    timestamp_type[cell] = NO_TYPE
                else:
                    field_at = at + V1_KEY_LENGTH_AT
                    if kind == LOG_APPEND:
                        timestamp[cell] = append_time
                    else:
                        timestamp[cell] = load_i64(data, at + V1_TIMESTAMP_AT)
                    timestamp_type[cell] = (attributes >> 3) & 1 if kind == OWN else kind
            size = load_i32(data, field_at)
            field_at += 4
            if size < -1 or size > stop - field_at - 4:
                status, state[EXPECTED], state[FOUND] = BAD_KEY_LENGTH, stop - field_at - 4, size
                break
            key_length[cell] = size
            if size >= 0:
                if keys == PACK:
                    copy_bytes(key_data, key_at, data, field_at, size)
                    key_start[cell] = key_at
                    key_at += size
                elif keys == REFER:
                    key_start[cell] = field_at
                field_at += size
            else:
                if keys == PACK:
                    key_start[cell] = key_at
                elif keys == REFER:
                    key_start[cell] = field_at
            size = load_i32(data, field_at)
            field_at += 4
            if size < -1 or max(size, 0) != stop - field_at:
                status, state[EXPECTED], state[FOUND] = BAD_VALUE_LENGTH, stop - field_at, size
                break
            value_length[cell] = size
            if size >= 0:
                if values == PACK:
                    copy_bytes(value_data, value_at, data, field_at, size)
                    value_start[cell] = value_at
                    value_at += size
                elif values == REFER:
                    value_start[cell] = field_at
            else:
                if values == PACK:
                    value_start[cell] = value_at
                elif values == REFER:
                    value_start[cell] = field_at
            row += 1
            at = stop
        if status != DONE:
            state[RUN_INDEX] = run // RUN
            row, key_at, value_at = whole  # no record of a damaged wrapper is returned
            break
    state[AT] = at
    state[ROWS], state[KEY_BYTES], state[VALUE_BYTES] = row, key_at, value_at
    return status
