"""Encoding kernels: they cut columns into batches and write every record, in all formats.

`batches` holds BATCH integers for each batch, wrapper or row of plain messages to write. Kernels return a status and
never raise; `state` receives where and why they stopped. Byte positions: records/layout.py; rules: docs/formats/.
"""

from __future__ import annotations

from magicbyte.engine.compiled.checksums import crc32_of, crc32c_of
from magicbyte.engine.compiled.kernel import Bytes, Int8s, Int32s, Int64s, MutableBytes, kernel
from magicbyte.engine.compiled.likely import likely
from magicbyte.engine.compiled.primitives import (
    as_index,
    as_int64,
    copy_bytes,
    copy_cell,
    difference,
    shift_right,
    store_i8,
    store_i32,
    store_i64,
    store_u32,
    zigzag64,
)
from magicbyte.engine.records.layout import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_CRC_AT,
    PARTITION_LEADER_EPOCH_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_AT,
    SIZE_AT,
    V0_KEY_LENGTH_AT,
    V0_OVERHEAD,
    V1_OVERHEAD,
)

# ---- statuses
DONE = 0
FULL = 1  # `batches` (cutting) or `out` (encoding) is full
BAD_CELL = 2  # a key, value or header lies outside its data, or a header's name is null
BAD_OFFSETS = 3  # descending offsets, or an offset delta above an int32
TOO_LARGE = 4  # a record or batch of more bytes than an int32 can count

# ---- fields of `state`
AT = 0  # in: start position in `out`; out: position after the last byte written
HEADERS = 1  # number of headers before the first row
ROW = 2  # row at which a kernel stopped
COUNT = 3  # batches cut or written
NEED = 4  # bytes missing in `out`
STATE = 5

# ---- fields of a batch
FIRST = 0  # first row
END = 1  # row after the last
OFFSET = 2  # v2: base offset. Inner messages: subtracted from their offsets
TIMESTAMP = 3  # v2: base timestamp. Inner messages of the enriched dialect: the wrapper's
KIND = 4  # messages: timestamp type of the wrapper, OWN for plain ones
START = 5  # out: position of its records in `out`
STOP = 6  # out: end of its records
MAX_TIMESTAMP = 7  # out: the largest timestamp of its records
LAST_OFFSET = 8  # out: the offset of its last record
BATCH = 9

OWN = 2
LOG_APPEND = 1
UNSET = -(1 << 63)
MAX_INT32 = 0x7FFFFFFF
ROOM = 80  # spare bytes after a record in `out` and after a cell in its data, for wide copies
MOST_CALM = (1 << 63) - 1 - (1 << 32)  # from this offset on, the offsets of a batch may overflow
MAX_SECONDS = 0xFFFFFFFE  # the largest value of an enriched header's seconds


@kernel
def code_size(code: int) -> int:
    """Return the size of the varint of a zigzag code in bytes."""
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
    """Write the varint of a zigzag code; return the position after it."""
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
def headers_size(
    first: int,
    count: int,
    key_bytes: int,
    key_start: Int32s,
    key_length: Int32s,
    value_bytes: int,
    value_start: Int32s,
    value_length: Int32s,
) -> int:
    """Return the bytes of a record's headers, or -1 if a cell lies outside its data or a name is null."""
    size = 0
    for i in range(first, first + count):
        name_size, cell_size, name_at, cell_at = key_length[i], value_length[i], key_start[i], value_start[i]
        if name_size < 0 or name_at < 0 or (name_size > 0 and name_size > key_bytes - name_at):
            return -1
        if cell_size < -1 or cell_at < 0 or (cell_size > 0 and cell_size > value_bytes - cell_at):
            return -1
        size += code_size(name_size << 1) + name_size + code_size(zigzag64(cell_size)) + max(cell_size, 0)
    return size


@kernel
def cut_wrappers(
    first: int,
    end: int,
    plain: int,
    least: int,
    most_bytes: int,
    most_rows: int,
    offset: Int64s,
    timestamp: Int64s,
    timestamp_type: Int8s,
    key_length: Int32s,
    value_length: Int32s,
    batches: Int64s,
    state: Int64s,
) -> int:
    """Cut rows `first` to `end` into wrappers of at most `most_rows` and `most_bytes` of records, with at least one
    record.

    Unless the rows become `plain` messages, a wrapper has one timestamp type, one timestamp if that is LogAppendTime,
    and offsets that span at most an int32. A record counts `least` bytes, its key and its value. Shapes: batches (k *
    BATCH,). Sets FIRST, END, OFFSET and TIMESTAMP from the first row, KIND to its type. state[COUNT] is the number of
    batches. Returns DONE, or FULL: then continue at row state[ROW].
    """
    room, count = len(batches) // BATCH, 0
    begin, total = first, 0
    base_offset, base_timestamp, kind = 0, 0, 0
    for row in range(first, end):
        size = least + max(key_length[row], 0) + max(value_length[row], 0)
        new = row == begin or total + size > most_bytes or row - begin >= most_rows
        if not new and not plain:
            delta = difference(offset[row], base_offset)
            new = timestamp_type[row] != kind or (kind == LOG_APPEND and timestamp[row] != base_timestamp)
            new = new or delta < 0 or delta > MAX_INT32 or offset[row] < base_offset
        if new:
            if row > first:
                count += 1
            if count == room:
                state[ROW], state[COUNT] = row, count
                return FULL
            into = count * BATCH
            begin, total = row, 0
            base_offset, base_timestamp, kind = offset[row], timestamp[row], timestamp_type[row]
            batches[into + FIRST] = row
            batches[into + OFFSET], batches[into + TIMESTAMP] = base_offset, base_timestamp
            batches[into + KIND] = kind
        batches[count * BATCH + END] = row + 1
        total += size
    if end > first:
        count += 1
    state[ROW], state[COUNT] = end, count
    return DONE


@kernel
def store_batch_header(
    batches: Int64s, batch: int, codec: int, out: MutableBytes, at: int, end: int, table: Int32s
) -> None:
    """Write the header and CRC of the v2 batch from `at` to `end`, whose records section is already written.

    `batch` is the index of its first integer in `batches`. The header has no producer and no leader epoch.
    """
    base_offset = batches[batch + OFFSET]
    store_i64(out, at, base_offset)
    store_i32(out, at + SIZE_AT, end - at - LOG_OVERHEAD)
    store_i32(out, at + PARTITION_LEADER_EPOCH_AT, -1)
    store_i8(out, at + MAGIC_AT, 2)
    store_i8(out, at + ATTRIBUTES_AT, 0)
    store_i8(out, at + ATTRIBUTES_AT + 1, codec | 8 if batches[batch + KIND] == LOG_APPEND else codec)
    store_i32(out, at + LAST_OFFSET_DELTA_AT, batches[batch + LAST_OFFSET] - base_offset)
    store_i64(out, at + BASE_TIMESTAMP_AT, batches[batch + TIMESTAMP])
    store_i64(out, at + MAX_TIMESTAMP_AT, batches[batch + MAX_TIMESTAMP])
    store_i64(out, at + PRODUCER_ID_AT, -1)
    store_i8(out, at + PRODUCER_EPOCH_AT, -1)
    store_i8(out, at + PRODUCER_EPOCH_AT + 1, -1)
    store_i32(out, at + BASE_SEQUENCE_AT, -1)
    store_i32(out, at + RECORD_COUNT_AT, batches[batch + END] - batches[batch + FIRST])
    store_u32(out, at + BATCH_CRC_AT, crc32c_of(out, at + ATTRIBUTES_AT, end, table))


@kernel
def store_wrapper_header(
    batches: Int64s, batch: int, magic: int, codec: int, out: MutableBytes, at: int, end: int, table: Int32s
) -> None:
    """Write the header and CRC of the wrapper of `magic` 0 or 1 from `at` to `end`, whose value is already written."""
    store_i64(out, at, batches[batch + LAST_OFFSET])
    store_i32(out, at + SIZE_AT, end - at - LOG_OVERHEAD)
    store_i8(out, at + MAGIC_AT, magic)
    store_i8(
        out, at + MESSAGE_ATTRIBUTES_AT, codec | 8 if magic == 1 and batches[batch + KIND] == LOG_APPEND else codec
    )
    place = at + V0_KEY_LENGTH_AT
    if magic == 1:
        store_i64(out, place, batches[batch + MAX_TIMESTAMP])
        place += 8
    store_i32(out, place, -1)
    store_i32(out, place + 4, end - place - 8)
    store_u32(out, at + MESSAGE_CRC_AT, crc32_of(out, at + MAGIC_AT, end, table))


@kernel
def encode_batches(
    batches: Int64s,
    gap: int,
    cut_end: int,
    most_bytes: int,
    most_rows: int,
    offset: Int64s,
    timestamp: Int64s,
    timestamp_type: Int8s,
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
    table: Int32s,
    out: MutableBytes,
    state: Int64s,
) -> int:
    """Write the records sections of v2 batches into `out`; with a `gap` of 61, each after its header.

    The header has the fields that follow from the records and KIND; it has no producer and no leader epoch. `table` is
    crc_table(CASTAGNOLI). Shapes: batches (k * BATCH,), with consecutive rows; offset … header_count (n,); an empty
    header_count means no headers.

    With a `cut_end` above 0 the kernel cuts the batches itself, from row state[ROW] to `cut_end`: as `cut_wrappers`
    does, each of at most `most_bytes` with its `gap`. It stops when `batches` is full, or before a batch that does not
    fit into `out`: FULL if that is the first.

    state[COUNT] is the number of batches written, state[ROW] the row after them, state[AT] the end of the output.
    Returns DONE, FULL (state[NEED] more bytes are needed), BAD_CELL, BAD_OFFSETS or TOO_LARGE (with the row in
    state[ROW]).
    """
    at, header, row = state[AT], state[HEADERS], state[ROW]
    for batch in range(0, len(batches), BATCH):
        if cut_end > 0:
            if row == cut_end:
                break
            batches[batch + FIRST] = row
            batches[batch + OFFSET], batches[batch + TIMESTAMP] = offset[row], timestamp[row]
            batches[batch + KIND] = timestamp_type[row]
            end = cut_end
        else:
            end = batches[batch + END]
        first = batches[batch + FIRST]
        whole, whole_header = at, header
        if gap > len(out) - at:
            state[NEED] = gap
            return FULL
        at += gap
        start = at
        base_offset, base_timestamp = batches[batch + OFFSET], batches[batch + TIMESTAMP]
        kind = batches[batch + KIND]
        latest, least_delta = UNSET, 0
        row = first
        # A record is usual up to these positions and rows, and with no other kind of timestamp.
        most_at, most_row = len(out) - ROOM, end
        if cut_end > 0:
            most_at, most_row = min(most_at, start - gap + most_bytes), min(first + most_rows, end)
        calm = -1 if len(header_count) > 0 or base_offset > MOST_CALM or (cut_end > 0 and kind == LOG_APPEND) else 0
        key_room, value_room = len(key_data) - ROOM, len(value_data) - ROOM
        while row < end:
            cell = as_index(row)
            time, delta = timestamp[cell], difference(offset[cell], base_offset)
            time_code, delta_code = zigzag64(difference(time, base_timestamp)), delta << 1
            key_size, value_size = key_length[cell], value_length[cell]
            key_code, value_code = zigzag64(key_size), zigzag64(value_size)
            key_at, value_at = key_start[cell], value_start[cell]
            size = 6 + max(key_size, 0) + max(value_size, 0)
            other = (timestamp_type[cell] ^ kind) if cut_end > 0 else 0
            # One sign bit collects all conditions of the fast path: each term is negative if its condition fails, so a
            # single branch replaces seventeen. The processor computes the terms in parallel, while a chain of `and`
            # would become that many branches, each with a chance of being mispredicted. The conditions bound the
            # varints to two bytes (one for the key length), the copies to their buffers, and the row to this batch.
            unusual = calm | other | -other | (most_row - 1 - row) | (delta - least_delta) | (8191 - delta)
            unusual |= time_code | (16383 - time_code) | (key_size + 1) | (63 - key_size) | (value_size + 1)
            unusual |= (8180 - size) | key_at | (key_room - key_at - key_size) | value_at
            unusual |= (value_room - value_at - value_size) | (most_at - at - 5 - size)
            if likely(unusual >= 0):  # all bytes before the key form one integer, stored as one big-endian word
                long_time, long_delta, long_value = time_code > 127, delta_code > 127, value_code > 127
                size += long_time + long_delta + long_value
                # Record length, attributes, deltas and key length are assembled in one register and stored at once:
                # writing them byte by byte would make each store depend on the position after the previous one. `used`
                # is the number of bytes so far, with one each for the attributes, offset delta and key length included.
                head, used = size << 1, 4
                if size > 63:
                    head, used = ((size << 1 & 127) | 128) << 8 | size >> 6, 5
                if long_time:
                    head, used = head << 24 | (time_code & 127 | 128) << 8 | time_code >> 7, used + 2
                else:
                    head, used = head << 16 | time_code, used + 1
                if long_delta:
                    head, used = head << 16 | (delta_code & 127 | 128) << 8 | delta_code >> 7, used + 1
                else:
                    head = head << 8 | delta_code
                head = head << 8 | key_code
                store_i64(out, at, as_int64(head << (64 - 8 * used)))
                at += used
                copy_cell(out, at, key_data, key_at, key_size)
                at += max(key_size, 0)
                if long_value:
                    store_i8(out, at, (value_code & 127) | 128)
                    at += 1
                    value_code = value_code >> 7
                store_i8(out, at, value_code)
                at += 1
                copy_cell(out, at, value_data, value_at, value_size)
                at += max(value_size, 0)
                store_i8(out, at, 0)
                at += 1
                latest = max(latest, time)
                least_delta = delta
                row += 1
                continue
            new = cut_end > 0 and row > first
            if delta < least_delta or delta > MAX_INT32 or offset[row] < base_offset:
                if new:
                    break
                state[ROW] = row
                return BAD_OFFSETS
            key_left, value_left = len(key_data) - key_at, len(value_data) - value_at
            wrong = (key_size + 1) | key_at | key_left | (value_size + 1) | value_at | value_left
            if wrong < 0 or key_size > key_left or value_size > value_left:
                state[ROW] = row
                return BAD_CELL
            headers = header_count[row] if len(header_count) > 0 else 0
            size += code_size(time_code) + code_size(delta_code) + code_size(key_code) + code_size(value_code) - 4
            if headers != 0:
                if headers < 0 or headers > len(header_key_length) - header:
                    state[ROW] = row
                    return BAD_CELL
                cells = headers_size(
                    header,
                    headers,
                    len(header_key_data),
                    header_key_start,
                    header_key_length,
                    len(header_value_data),
                    header_value_start,
                    header_value_length,
                )
                if cells < 0:
                    state[ROW] = row
                    return BAD_CELL
                size += cells + code_size(headers << 1) - 1
            if size > MAX_INT32:
                state[ROW] = row
                return TOO_LARGE
            length_size = code_size(size << 1)
            if new:
                if at - start + gap + length_size + size > most_bytes or row - first >= most_rows:
                    break
                if timestamp_type[row] != kind or (kind == LOG_APPEND and time != base_timestamp):
                    break
            if size + 8 > len(out) - at:
                state[AT], state[HEADERS], state[ROW], state[COUNT] = whole, whole_header, first, batch // BATCH
                state[NEED] = gap + size + 8
                return DONE if cut_end > 0 and batch > 0 else FULL
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
            latest = max(latest, time)
            least_delta = delta
            row += 1
        if at - start > MAX_INT32 - RECORD_BATCH_OVERHEAD:
            state[ROW] = row - 1
            return TOO_LARGE
        batches[batch + END], batches[batch + START], batches[batch + STOP] = row, start, at
        batches[batch + MAX_TIMESTAMP] = latest
        batches[batch + LAST_OFFSET] = base_offset + least_delta
        if gap == RECORD_BATCH_OVERHEAD:
            store_batch_header(batches, batch, 0, out, start - gap, at, table)
        state[AT], state[HEADERS], state[ROW], state[COUNT] = at, header, row, batch // BATCH + 1
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
    """Write rows as messages of magic 0 or 1, or enriched ones: plain messages, or the content of wrappers.

    Plain messages (KIND OWN) have the timestamp types of their rows, inner messages that of their wrapper. In the
    enriched dialect a timestamp goes into the header's seconds or tag 0, as in offline conversion; inner messages omit
    both if they inherit the wrapper's. Shapes as in `encode_batches`; `table` is crc_table(IEEE). Returns DONE, FULL,
    BAD_CELL, BAD_OFFSETS or TOO_LARGE.
    """
    at = state[AT]
    least = V1_OVERHEAD if enriched or magic == 1 else V0_OVERHEAD
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
            if size - LOG_OVERHEAD > MAX_INT32:
                return TOO_LARGE
            if size > len(out) - at:
                return FULL
            store_i64(out, at, difference(offset[row], base_offset))
            store_i32(out, at + SIZE_AT, size - LOG_OVERHEAD)
            store_i8(out, at + MAGIC_AT, magic)
            store_i8(out, at + MESSAGE_ATTRIBUTES_AT, 0)
            field_at = at + V0_KEY_LENGTH_AT
            if enriched:
                store_i32(out, field_at, seconds if seconds <= MAX_INT32 else seconds - (1 << 32))
                store_i32(out, field_at + 4, tags if tags > 0 else -1)
                field_at += 8
                if tags > 0:
                    store_i8(out, field_at, 0)
                    store_i64(out, field_at + 1, time)
                    field_at += 9
            elif magic == 1:
                if (timestamp_type[row] if kind == OWN else kind) == LOG_APPEND:
                    store_i8(out, at + MESSAGE_ATTRIBUTES_AT, 8)
                store_i64(out, field_at, time)
                field_at += 8
            store_i32(out, field_at, key_size)
            field_at += 4
            if key_size > 0:
                copy_bytes(out, field_at, key_data, key_at, key_size)
                field_at += key_size
            store_i32(out, field_at, value_size)
            field_at += 4
            if value_size > 0:
                copy_bytes(out, field_at, value_data, value_at, value_size)
            store_u32(out, at + MESSAGE_CRC_AT, crc32_of(out, at + MAGIC_AT, at + size, table))
            at += size
        if kind != OWN and at - batches[batch + START] > MAX_INT32 - RECORD_BATCH_OVERHEAD:
            return TOO_LARGE
        batches[batch + STOP] = at
        batches[batch + MAX_TIMESTAMP] = latest
        if batches[batch + END] > batches[batch + FIRST]:
            batches[batch + LAST_OFFSET] = offset[batches[batch + END] - 1]
    state[AT] = at
    return DONE
