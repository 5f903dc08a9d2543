"""The loops that write every record: cutting columns into batches, encoding them in all formats.

`batches` holds BATCH integers for each batch, wrapper or row of plain messages to write. Kernels return a status and
never raise; `state` receives where and why they stopped. Byte positions: records/layout.py; rules: docs/formats/.
"""

from __future__ import annotations

from magicbyte.wire.kernel import Bytes, Int8s, Int32s, Int64s, MutableBytes, kernel
from magicbyte.wire.primitives import (
    as_int64,
    copy_bytes,
    crc32_of,
    shift_right,
    store_i8,
    store_i32,
    store_i64,
    store_u32,
    zigzag64,
)

# ---- statuses
DONE = 0
FULL = 1  # `batches` (cutting) or `out` (encoding) is full
BAD_CELL = 2  # a key, value or header does not lie in its data, or a header's name is null
BAD_OFFSETS = 3  # descending, or further from the first than an int32 says
TOO_LARGE = 4  # a record or a batch of more bytes than an int32 says

# ---- what `state` holds
AT = 0  # encoding: where in `out` to begin, and the position behind what was written. Cutting: the row to go on with
HEADERS = 1  # headers in front of the row to begin with
ROW = 2  # where a kernel stopped
COUNT = 3  # batches that were cut
STATE = 4

# ---- fields of a batch
FIRST = 0  # row
END = 1  # row
OFFSET = 2  # v2: base offset. Inner messages: what is taken from their offsets
TIMESTAMP = 3  # v2: base timestamp. Inner messages of the enriched dialect: the wrapper's
KIND = 4  # messages: timestamp type of the wrapper, OWN for plain ones
START = 5  # set: where in `out` its records begin
STOP = 6  # set: where they end
MAX_TIMESTAMP = 7  # set: the largest timestamp of its records
LAST_OFFSET = 8  # set: the offset of the last of them
BATCH = 9

OWN = 2
LOG_APPEND = 1
UNSET = -(1 << 63)
MAX_INT32 = 0x7FFFFFFF
MAX_SECONDS = 0xFFFFFFFE  # that the header of an enriched message holds


@kernel
def code_size(code: int) -> int:
    """Return how many bytes the varint of a zigzag code has."""
    if 0 <= code < 128:
        return 1
    if 0 <= code < 16384:
        return 2
    size = 1
    code = shift_right(code, 7)
    while code != 0:
        code = shift_right(code, 7)
        size += 1
    return size


@kernel
def store_code(out: MutableBytes, at: int, code: int) -> int:
    """Write the varint of a zigzag code, and return the position behind it."""
    if 0 <= code < 128:
        out[at] = code
        return at + 1
    while shift_right(code, 7) != 0:
        out[at] = (code & 127) | 128
        code = shift_right(code, 7)
        at += 1
    out[at] = code
    return at + 1


@kernel
def cut_batches(
    first: int,
    end: int,
    magic: int,
    plain: int,
    least: int,
    most_bytes: int,
    most_rows: int,
    offset: Int64s,
    timestamp: Int64s,
    timestamp_type: Int8s,
    key_length: Int32s,
    value_length: Int32s,
    header_count: Int32s,
    header_key_length: Int32s,
    header_value_length: Int32s,
    batches: Int64s,
    state: Int64s,
) -> int:
    """Cut rows `first` to `end` into batches of at most `most_bytes` of records (but one at least) and `most_rows`.

    Unless they are to be `plain` messages, a batch has one timestamp type and, where that is LogAppendTime, one
    timestamp, and its offsets span an int32. A record counts `least` bytes, its key and value, and from magic 2 on its
    varints (to which a batch's first record may add a few more than it will have) and headers.
    Shapes: batches (k * BATCH,). Sets FIRST, END, OFFSET and TIMESTAMP to those of the first row, KIND to its type.
    state[COUNT] batches are cut; state[HEADERS] as in `encode_batches`. Returns DONE, or FULL: go on with row
    state[AT].
    """
    room, count, header = len(batches) // BATCH, 0, state[HEADERS]
    begin, total = first, 0
    base_offset, base_timestamp, kind = 0, 0, 0
    for row in range(first, end):
        key_size, value_size = key_length[row], value_length[row]
        headers = header_count[row] if len(header_count) > 0 else 0
        if headers < 0 or headers > len(header_key_length) - header:
            headers = 0  # what cannot be is for the encoder to refuse
        new = row == begin or timestamp_type[row] != kind or (kind == LOG_APPEND and timestamp[row] != base_timestamp)
        delta = as_int64(offset[row] - base_offset)
        size = least + max(key_size, 0) + max(value_size, 0)
        if magic == 2:
            size += code_size(zigzag64(as_int64(timestamp[row] - base_timestamp))) + code_size(zigzag64(delta))
            size += code_size(zigzag64(key_size)) + code_size(zigzag64(value_size)) + code_size(zigzag64(headers))
            for i in range(header, header + headers):
                size += code_size(zigzag64(header_key_length[i])) + max(header_key_length[i], 0)
                size += code_size(zigzag64(header_value_length[i])) + max(header_value_length[i], 0)
            size += code_size(size << 1)
        if plain:
            new = row == begin
        if new or total + size > most_bytes or row - begin >= most_rows or (not plain and (delta >> 31) != 0):
            if row > first:
                count += 1
            if count == room:
                state[AT], state[COUNT], state[HEADERS] = row, count, header
                return FULL
            into = count * BATCH
            begin, total = row, 0
            base_offset, base_timestamp, kind = offset[row], timestamp[row], timestamp_type[row]
            batches[into + FIRST] = row
            batches[into + OFFSET], batches[into + TIMESTAMP] = base_offset, base_timestamp
            batches[into + KIND] = kind
        batches[count * BATCH + END] = row + 1
        total += size
        header += headers
    if end > first:
        count += 1
    state[AT], state[COUNT], state[HEADERS] = end, count, header
    return DONE


@kernel
def encode_batches(
    batches: Int64s,
    gap: int,
    offset: Int64s,
    timestamp: Int64s,
    key_data: Bytes,
    key_start: Int32s,
    key_length: Int32s,
    value_data: Bytes,
    value_start: Int32s,
    value_length: Int32s,
    header_count: Int32s,
    header_key_data: Bytes,
    header_key_start: Int32s,
    header_key_length: Int32s,
    header_value_data: Bytes,
    header_value_start: Int32s,
    header_value_length: Int32s,
    out: MutableBytes,
    state: Int64s,
) -> int:
    """Write the records sections of v2 batches into `out`, with `gap` bytes left in front of each for its header.

    Shapes: batches (k * BATCH,), whose rows follow one another; offset … header_count (n,), but header_count may be
    empty: no headers then. Returns DONE, FULL, BAD_CELL, BAD_OFFSETS or TOO_LARGE.
    """
    at, header = state[AT], state[HEADERS]
    for batch in range(0, len(batches), BATCH):
        at += gap
        if at > len(out):
            return FULL
        batches[batch + START] = at
        base_offset, base_timestamp = batches[batch + OFFSET], batches[batch + TIMESTAMP]
        latest, least_delta = UNSET, 0
        for row in range(batches[batch + FIRST], batches[batch + END]):
            state[ROW] = row
            time = timestamp[row]
            latest = max(latest, time)
            delta = as_int64(offset[row] - base_offset)
            if delta < least_delta or delta > MAX_INT32:
                return BAD_OFFSETS
            least_delta = delta
            key_size, value_size = key_length[row], value_length[row]
            key_at, value_at = key_start[row], value_start[row]
            if key_size < -1 or key_at < 0 or (key_size > 0 and key_size > len(key_data) - key_at):
                return BAD_CELL
            if value_size < -1 or value_at < 0 or (value_size > 0 and value_size > len(value_data) - value_at):
                return BAD_CELL
            time_code, delta_code = zigzag64(as_int64(time - base_timestamp)), delta << 1
            key_code, value_code = zigzag64(key_size), zigzag64(value_size)
            size = 1 + code_size(time_code) + code_size(delta_code) + code_size(key_code) + code_size(value_code)
            size += max(key_size, 0) + max(value_size, 0)
            headers = 0
            if len(header_count) > 0:
                headers = header_count[row]
                if headers < 0 or headers > len(header_key_length) - header:
                    return BAD_CELL
                for i in range(header, header + headers):
                    name_size, cell_size = header_key_length[i], header_value_length[i]
                    name_at, cell_at = header_key_start[i], header_value_start[i]
                    if name_size < 0 or name_at < 0 or (name_size > 0 and name_size > len(header_key_data) - name_at):
                        return BAD_CELL
                    if cell_size < -1 or cell_at < 0:
                        return BAD_CELL
                    if cell_size > 0 and cell_size > len(header_value_data) - cell_at:
                        return BAD_CELL
                    size += code_size(name_size << 1) + name_size + code_size(zigzag64(cell_size)) + max(cell_size, 0)
            size += code_size(headers << 1)
            if size > MAX_INT32:
                return TOO_LARGE
            if size + 5 > len(out) - at:
                return FULL
            at = store_code(out, at, size << 1)
            out[at] = 0
            at = store_code(out, at + 1, time_code)
            at = store_code(out, at, delta_code)
            at = store_code(out, at, key_code)
            if key_size > 0:
                copy_bytes(out, at, key_data, key_at, key_size)
                at += key_size
            at = store_code(out, at, value_code)
            if value_size > 0:
                copy_bytes(out, at, value_data, value_at, value_size)
                at += value_size
            at = store_code(out, at, headers << 1)
            for i in range(header, header + headers):
                size = header_key_length[i]
                at = store_code(out, at, size << 1)
                copy_bytes(out, at, header_key_data, header_key_start[i], size)
                at = store_code(out, at + size, zigzag64(header_value_length[i]))
                size = max(header_value_length[i], 0)
                copy_bytes(out, at, header_value_data, header_value_start[i], size)
                at += size
            header += headers
        if at - batches[batch + START] > MAX_INT32 - 61:
            return TOO_LARGE
        batches[batch + STOP] = at
        batches[batch + MAX_TIMESTAMP] = latest
        if batches[batch + END] > batches[batch + FIRST]:
            batches[batch + LAST_OFFSET] = offset[batches[batch + END] - 1]
    state[AT], state[HEADERS] = at, header
    return DONE


@kernel
def encode_messages(
    batches: Int64s,
    magic: int,
    enriched: int,
    offset: Int64s,
    timestamp: Int64s,
    timestamp_type: Int8s,
    key_data: Bytes,
    key_start: Int32s,
    key_length: Int32s,
    value_data: Bytes,
    value_start: Int32s,
    value_length: Int32s,
    table: Int32s,
    out: MutableBytes,
    state: Int64s,
) -> int:
    """Write rows as messages of magic 0 or 1, or enriched ones: plain messages, or the insides of wrappers.

    Plain messages (KIND OWN) have the timestamp types of their rows, inner ones that of their wrapper. Enriched, in
    both: a timestamp goes where offline conversion puts it, into the header's seconds or tag 0; inner messages have
    neither where they inherit the wrapper's. Shapes as in `encode_batches`; `table` is crc32_table(). Returns DONE,
    FULL, BAD_CELL, BAD_OFFSETS or TOO_LARGE.
    """
    at = state[AT]
    least = 34 if enriched or magic == 1 else 26
    for batch in range(0, len(batches), BATCH):
        batches[batch + START] = at
        base_offset, inherited, kind = batches[batch + OFFSET], batches[batch + TIMESTAMP], batches[batch + KIND]
        latest, previous = UNSET, UNSET
        for row in range(batches[batch + FIRST], batches[batch + END]):
            state[ROW] = row
            time = timestamp[row]
            latest = max(latest, time)
            key_size, value_size = key_length[row], value_length[row]
            key_at, value_at = key_start[row], value_start[row]
            if key_size < -1 or key_at < 0 or (key_size > 0 and key_size > len(key_data) - key_at):
                return BAD_CELL
            if value_size < -1 or value_at < 0 or (value_size > 0 and value_size > len(value_data) - value_at):
                return BAD_CELL
            if kind != OWN:
                if offset[row] < previous:
                    return BAD_OFFSETS
                previous = offset[row]
            seconds, tags = -1, 0
            if enriched:
                if kind != OWN:
                    tags = 9 if time != inherited else 0
                else:
                    if 0 <= time <= MAX_SECONDS * 1000 + 999:
                        seconds = time // 1000
                    tags = 9 if time != -1 and (seconds == -1 or time != seconds * 1000) else 0
            size = least + tags + max(key_size, 0) + max(value_size, 0)
            if size - 12 > MAX_INT32:
                return TOO_LARGE
            if size > len(out) - at:
                return FULL
            store_i64(out, at, as_int64(offset[row] - base_offset))
            store_i32(out, at + 8, size - 12)
            store_i8(out, at + 16, magic)
            store_i8(out, at + 17, 0)
            place = at + 18
            if enriched:
                store_i32(out, place, seconds if seconds <= MAX_INT32 else seconds - (1 << 32))
                store_i32(out, place + 4, tags if tags > 0 else -1)
                place += 8
                if tags > 0:
                    store_i8(out, place, 0)
                    store_i64(out, place + 1, time)
                    place += 9
            elif magic == 1:
                if (timestamp_type[row] if kind == OWN else kind) == LOG_APPEND:
                    store_i8(out, at + 17, 8)
                store_i64(out, place, time)
                place += 8
            store_i32(out, place, key_size)
            place += 4
            if key_size > 0:
                copy_bytes(out, place, key_data, key_at, key_size)
                place += key_size
            store_i32(out, place, value_size)
            place += 4
            if value_size > 0:
                copy_bytes(out, place, value_data, value_at, value_size)
            store_u32(out, at + 12, crc32_of(out, at + 16, at + size, table))
            at += size
        if kind != OWN and at - batches[batch + START] > MAX_INT32 - 61:
            return TOO_LARGE
        batches[batch + STOP] = at
        batches[batch + MAX_TIMESTAMP] = latest
        if batches[batch + END] > batches[batch + FIRST]:
            batches[batch + LAST_OFFSET] = offset[batches[batch + END] - 1]
    state[AT] = at
    return DONE
