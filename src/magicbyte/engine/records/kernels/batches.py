"""Decode the records of v2 batches: varints, single records, and all records of many batches."""

from __future__ import annotations

from magicbyte.engine.compiled.checksums import crc32c_of
from magicbyte.engine.compiled.kernel import Bytes, Int8s, Int32s, Int64s, MutableBytes, kernel
from magicbyte.engine.compiled.primitives import (
    as_index,
    as_int64,
    copy_bytes,
    copy_cell_ahead,
    load_i8,
    load_i16,
    load_i32,
    load_pair,
    load_u8,
    load_u32,
    load_word,
    prefetch_two,
    unzigzag32,
    unzigzag64,
)
from magicbyte.engine.records.kernels.cells import CELL_SPARE, PACK, REFER
from magicbyte.engine.records.kernels.runs import (
    BASE_TIMESTAMP,
    CHECK,
    COUNT,
    END,
    LOG_APPEND,
    OFFSET,
    RUN,
    START,
    TIMESTAMP,
    TYPE,
    set_batch_run,
)
from magicbyte.engine.records.kernels.statuses import (
    AT,
    BAD_BATCH_CRC,
    BAD_HEADER,
    BAD_KEY_LENGTH,
    BAD_RECORD_LENGTH,
    BAD_VALUE_LENGTH,
    BAD_VARINT,
    CUT_MESSAGE,
    DELTA,
    DONE,
    EXPECTED,
    FOUND,
    HEADER,
    HEADER_COUNT,
    HEADERS,
    KEY,
    KEY_BYTES,
    KEY_SIZE,
    LATER,
    ROWS,
    RUN_INDEX,
    STOP,
    TRAILING_BYTES,
    VALUE,
    VALUE_BYTES,
    VALUE_SIZE,
)
from magicbyte.engine.records.layout import (
    ATTRIBUTES_AT,
    BATCH_CRC_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_AT,
    SIZE_AT,
)

NOT_PLAIN = 0x27  # attributes that `decode_plain_log` does not take: a codec, or control records
LEAST_RECORD = 7  # smallest v2 record in bytes, with its length field
CHECKED_HEADER = RECORD_BATCH_OVERHEAD - ATTRIBUTES_AT  # bytes of a v2 header that its CRC covers
LEAST_AHEAD, MOST_AHEAD = 4 << 10, 32 << 10  # bounds of the distance in bytes at which data is prefetched
TWO_BYTES = (1 << 14) - 1  # the largest value of a two-byte varint
SPARE = 16  # bytes that may be read past a record before its lengths are checked


@kernel
def long_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the int32 varint at `at` and the position after it, or -1 as position if it is cut or over 5 bytes."""
    value, shift = 0, 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return unzigzag32(value), at
        shift += 7
        if shift > 28:
            return 0, -1
    return 0, -1


@kernel
def long_varlong(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the int64 varint at `at` and the position after it, or -1 as position if it is cut or over 10 bytes."""
    value, shift = 0, 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return unzigzag64(value), at
        shift += 7
        if shift > 63:
            return 0, -1
    return 0, -1


@kernel
def skip_headers(data: Bytes, at: int, end: int, count: int) -> int:
    """Return the position after `count` headers, or -1 if they extend past `end` or a name is null."""
    for _ in range(count):
        size, at = long_varint(data, at, end)
        if at < 0 or size < 0 or size > end - at:
            return -1
        at += size
        size, at = long_varint(data, at, end)
        if at < 0 or size < -1 or size > end - at:
            return -1
        if size > 0:
            at += size
    return at


@kernel
def open_batches(
    data: Bytes, position: Int64s, size: Int64s, verify: int, limit: int, least: int, table: Int32s, runs: Int64s
) -> int:
    """Fill `runs` from the headers of v2 batches. Returns the number of runs filled.

    It stops at the first batch that is larger than `limit`, or that claims more records of at least `least` bytes than
    it can hold. With `least` 0 the batches are compressed: the runs have the positions of their payloads, and with
    `verify` a batch with a wrong CRC stops it too. Otherwise the runs contain the CRC for the decoder to check.
    """
    for row in range(len(position)):
        at = position[row]
        count = load_i32(data, at + RECORD_COUNT_AT)
        if size[row] > limit or count < 0 or count * least > size[row] - RECORD_BATCH_OVERHEAD:
            return row
        check = load_u32(data, at + BATCH_CRC_AT) if verify else -1
        if least == 0 and verify:
            if crc32c_of(data, at + ATTRIBUTES_AT, at + size[row], table) != check:
                return row
            check = -1
        set_batch_run(runs, row * RUN, data, at, at + RECORD_BATCH_OVERHEAD, at + size[row], check)
    return len(position)


@kernel
def find_fields(data: Bytes, at: int, end: int, state: Int64s) -> int:
    """Find the fields of the v2 record at `at`, with varints of any length: state[STOP] to state[HEADER_COUNT].

    Returns a status, and in state[AT] the position reached.
    """
    state[AT] = begin = at
    if at >= end:
        return CUT_MESSAGE
    size, at = long_varint(data, at, end)
    if at < 0:
        return BAD_VARINT
    if size < 6 or size > end - at:
        state[AT], state[EXPECTED], state[FOUND] = at, end - at, size
        return BAD_RECORD_LENGTH
    stop = at + size
    state[STOP] = stop
    state[DELTA], at = long_varlong(data, at + 1, stop)
    if at < 0:
        return BAD_VARINT
    state[LATER], at = long_varint(data, at, stop)
    if at < 0:
        return BAD_VARINT
    size, at = long_varint(data, at, stop)
    if at < 0:
        return BAD_VARINT
    if size < -1 or size >= stop - at:
        state[AT], state[EXPECTED], state[FOUND] = at, stop - at - 1, size
        return BAD_KEY_LENGTH
    state[KEY], state[KEY_SIZE] = at, size
    size, at = long_varint(data, at + max(size, 0), stop)
    if at < 0:
        return BAD_VARINT
    if size < -1 or size >= stop - at:
        state[AT], state[EXPECTED], state[FOUND] = at, stop - at - 1, size
        return BAD_VALUE_LENGTH
    state[VALUE], state[VALUE_SIZE] = at, size
    count, at = long_varint(data, at + max(size, 0), stop)
    if at < 0:
        return BAD_VARINT
    state[AT], state[EXPECTED], state[FOUND] = at, stop - at, count
    if count < 0 or count > stop - at:
        return BAD_HEADER
    state[HEADER], state[HEADER_COUNT] = at, count
    at = skip_headers(data, at, stop, count)
    if at < 0:
        return BAD_HEADER
    if at != stop:
        state[AT], state[EXPECTED], state[FOUND] = at, at - begin, stop - begin
        return BAD_RECORD_LENGTH
    return DONE


@kernel
def decode_batches(
    data: Bytes,
    runs: Int64s,
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
    header_start: Int32s,
    header_count: Int32s,
    state: Int64s,
) -> int:
    """Decode the records of v2 batches. `keys` and `values` are LEAVE, REFER or PACK; `table` is that of CRC-32C.

    Shapes: runs (k * RUN,); offset … header_count (n,), n at least state[ROWS] plus the sum of the runs' counts; packed
    key_data and value_data hold at least the bytes of all runs and CELL_SPARE more. Continues at row state[ROWS] and at
    bytes state[KEY_BYTES] and state[VALUE_BYTES] of the packed data.
    """
    row, key_at, value_at = state[ROWS], state[KEY_BYTES], state[VALUE_BYTES]
    headers = state[HEADERS]
    status = DONE
    at = 0
    # Nearly all records of a batch have varints of the same lengths, because keys, values and timestamps are similar.
    # Decoding varint by varint costs a branch per byte, and a record has five varints before its value. So the kernel
    # learns the layout of the first bytes from one record and tests it on the next with a single comparison: `mask`
    # selects, in the first eight bytes as one word, the continuation bits and the bits that must be 0 (the signs of the
    # length and of the offset delta), and `wanted` is their value. If they match, length, timestamp delta and offset
    # delta are shifts of that word. If not, the layout is learned again from this record; with varints above two bytes
    # the second comparison fails as well, and `find_fields` takes over. docs/internals/varints.md has the layout and
    # measurements. The initial values match no record, because bit 0 of the mask is clear and that of `wanted` is set.
    mask, wanted, after_size, long_size = 0, 1, 1, 0
    time_shift, long_time, offset_shift, long_offset, before_key = 0, 0, 0, 0, 0
    for run in range(0, len(runs), RUN):
        at, end = runs[run + START], runs[run + END]
        base_offset, kind = runs[run + OFFSET], runs[run + TYPE]
        base_timestamp, own = runs[run + BASE_TIMESTAMP], -1
        if kind == LOG_APPEND:
            # LogAppendTime: the batch's max timestamp is that of every record
            base_timestamp, own = runs[run + TIMESTAMP], 0
        whole = (row, key_at, value_at, headers)
        begin = at
        if runs[run + CHECK] >= 0:
            crc = crc32c_of(data, at - CHECKED_HEADER, end, table)
            if crc != runs[run + CHECK]:
                status, state[EXPECTED], state[FOUND] = BAD_BATCH_CRC, runs[run + CHECK], crc
        # Up to here a record may be read before its lengths are verified: the word, the pairs and the copies below may
        # touch bytes after the record, but not after the buffer. Everything is checked against `stop` afterwards, and a
        # record that does not add up is decoded again by `find_fields`, which checks each byte. Without this margin
        # each load would need its own test.
        safe = min(end, len(data) - CELL_SPARE)
        reach = max(
            min(end - at, MOST_AHEAD), LEAST_AHEAD
        )  # the corresponding position in the next batch, if that has the same layout
        for each in range(row, row + runs[run + COUNT]):  # a loop of its own, so that it compiles to wide stores
            place = as_index(each)
            timestamp_type[place] = kind
            header_count[place] = 0
        for _ in range(runs[run + COUNT] if status == DONE else 0):
            begin, cell, usual, stop = at, as_index(row), 0, 0
            delta = later = key_at_source = key_size = value_at_source = value_size = header_at = count = 0
            if at < safe:  # unusual records are left to `find_fields`
                # The next batch usually begins in memory that the hardware prefetcher does not know yet, because a
                # header and a CRC interrupt the sequence. The distance is that of the corresponding record in a batch
                # of the same size, within bounds: any closer, the line would arrive too late; any further, it would be
                # evicted again before it is used.
                prefetch_two(data, at + reach)
                word = load_word(data, at)
                if word & mask != wanted:  # the varints' lengths differ from those of the record before
                    two = (word >> 7) & 1
                    mask, wanted, after_size, long_size = 0x81 | two << 15, two << 7, 1 + two, 0x7F00 & -two
                    time_shift = 8 * after_size + 8  # after the attributes, which are unused
                    two = (word >> (time_shift + 7)) & 1
                    mask, wanted = mask | (0x80 | two << 15) << time_shift, wanted | two << (time_shift + 7)
                    offset_shift, long_time = time_shift + 8 + 8 * two, 0x7F00 & -two
                    two = (word >> (offset_shift + 7)) & 1
                    mask, wanted = mask | (0x81 | two << 15) << offset_shift, wanted | two << (offset_shift + 7)
                    before_key, long_offset = (offset_shift >> 3) + 1 + two, 0x7F00 & -two
                if word & mask == wanted:
                    stop = at + after_size + ((word & 0x7E) >> 1 | (word & long_size) >> 2)
                    code = word >> time_shift
                    code = code & 0x7F | (code & long_time) >> 1
                    delta = (code >> 1) ^ -(code & 1)
                    code = word >> offset_shift
                    later = (code & 0x7E) >> 1 | (code & long_offset) >> 2
                    at += before_key
                    code = load_pair(data, at)
                    if code & 0x81 == 0:
                        key_at_source, key_size = at + 1, (code & 0x7E) >> 1
                        at = key_at_source + key_size
                    elif code & 0x8081 == 0x80:
                        key_at_source, key_size = at + 2, (code & 0x7E) >> 1 | (code & 0x7F00) >> 2
                        at = key_at_source + key_size
                    elif code & 0xFF == 1:
                        key_at_source, key_size, at = at + 1, -1, at + 1
                    else:
                        at = stop
                    if at < stop and stop <= safe:
                        code = load_pair(data, at)
                        if code & 0x8081 == 0x80:
                            value_at_source, value_size = at + 2, (code & 0x7E) >> 1 | (code & 0x7F00) >> 2
                            at = value_at_source + value_size
                        elif code & 0x81 == 0:
                            value_at_source, value_size = at + 1, (code & 0x7E) >> 1
                            at = value_at_source + value_size
                        elif code & 0xFF == 1:
                            value_at_source, value_size, at = at + 1, -1, at + 1
                        else:
                            at = stop
                        if at < stop:
                            header_at, count = at + 1, load_u8(data, at)
                            if count == 0:
                                usual = header_at == stop
                            elif count & 129 == 0:
                                count >>= 1
                                usual = skip_headers(data, header_at, stop, count) == stop
            if not usual:
                status = find_fields(data, begin, end, state)
                if status != DONE:
                    at = state[AT]
                    break
                stop, delta, later = state[STOP], state[DELTA], state[LATER]
                key_at_source, key_size = state[KEY], state[KEY_SIZE]
                value_at_source, value_size = state[VALUE], state[VALUE_SIZE]
                header_at, count = state[HEADER], state[HEADER_COUNT]
            at = stop
            timestamp[cell] = as_int64(base_timestamp + (delta & own))
            offset[cell] = as_int64(base_offset + later)
            key_length[cell] = key_size
            if keys == PACK:
                key_start[cell] = key_at
                if key_size > 0:
                    if usual:
                        # Whole pieces of 32 bytes instead of memcpy: for cells of 10 to 100 bytes, memcpy's call and
                        # its dispatch by size take longer than the copy. The bytes written after the cell are
                        # overwritten by the next cell, and CELL_SPARE leaves room after the last one. An unusual record
                        # may lie at the end of the buffer, so it is copied exactly.
                        copy_cell_ahead(key_data, key_at, data, key_at_source, key_size)
                    else:
                        copy_bytes(key_data, key_at, data, key_at_source, key_size)
                    key_at += key_size
            elif keys == REFER:
                key_start[cell] = key_at_source
            value_length[cell] = value_size
            if values == PACK:
                value_start[cell] = value_at
                if value_size > 0:
                    if usual:
                        copy_cell_ahead(value_data, value_at, data, value_at_source, value_size)
                    else:
                        copy_bytes(value_data, value_at, data, value_at_source, value_size)
                    value_at += value_size
            elif values == REFER:
                value_start[cell] = value_at_source
            if count != 0:
                header_start[cell], header_count[cell] = header_at, count
                headers += count
            row += 1
        if status == DONE and at != end:
            status, state[EXPECTED], state[FOUND] = TRAILING_BYTES, 0, end - at
        if status != DONE:
            state[RUN_INDEX] = run // RUN
            at = begin if at < 0 else at
            row, key_at, value_at, headers = whole  # no record of a damaged batch is returned
            break
    state[AT] = at
    state[ROWS], state[KEY_BYTES], state[VALUE_BYTES] = row, key_at, value_at
    state[HEADERS] = headers
    return status


@kernel
def decode_plain_log(
    data: Bytes,
    at: int,
    end: int,
    verify: int,
    limit: int,
    room: int,
    most: int,
    run: Int64s,
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
    header_start: Int32s,
    header_count: Int32s,
    state: Int64s,
) -> int:
    """Decode consecutive uncompressed v2 batches from `at` on, headers included, in one walk.

    Stops before the first batch that is cut off by `end`, of another kind or damaged (the caller finds out why), and
    before `room` records or `most` bytes are exceeded. Shapes: run (RUN,) as scratch; the others as in
    `decode_batches`. state[AT] is the position where it stopped, state[ROWS] and the following fields are as there.
    Returns the number of batches.
    """
    first, batches = at, 0
    while end - at >= RECORD_BATCH_OVERHEAD:
        size, count, attributes = (
            load_i32(data, at + SIZE_AT) + LOG_OVERHEAD,
            load_i32(data, at + RECORD_COUNT_AT),
            load_i16(data, at + ATTRIBUTES_AT),
        )
        if (
            load_i8(data, at + MAGIC_AT) != 2
            or attributes & NOT_PLAIN
            or size < RECORD_BATCH_OVERHEAD
            or size > min(limit, end - at)
        ):
            break
        if (
            count < 0
            or count * LEAST_RECORD > size - RECORD_BATCH_OVERHEAD
            or count > room - state[ROWS]
            or at + size - first > most
        ):
            break
        set_batch_run(
            run, 0, data, at, at + RECORD_BATCH_OVERHEAD, at + size, load_u32(data, at + BATCH_CRC_AT) if verify else -1
        )
        status = decode_batches(
            data, run, table, keys, values, offset, timestamp, timestamp_type, key_start, key_length, key_data,
            value_start, value_length, value_data, header_start, header_count, state,
        )  # fmt: skip
        if status != DONE:
            break
        at += size
        batches += 1
    state[AT] = at
    return batches


@kernel
def read_headers(
    data: Bytes,
    start: Int32s,
    count: Int32s,
    first: int,
    rows: int,
    into: int,
    key_start: Int32s,
    key_length: Int32s,
    value_start: Int32s,
    value_length: Int32s,
) -> int:
    """Store positions and lengths of the record headers of rows `first` to `rows`, which `decode_batches` has walked.

    Shapes: start, count (rows,); key_start … value_length (headers,), filled from `into` on. Returns the index after
    the last one.
    """
    for row in range(first, rows):
        at = start[row]
        for _ in range(count[row]):
            size, at = long_varint(data, at, len(data))
            key_start[into], key_length[into] = at, size
            at += size
            size, at = long_varint(data, at, len(data))
            value_start[into], value_length[into] = at, size
            at += max(size, 0)
            into += 1
    return into
