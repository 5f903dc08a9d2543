"""The loops that touch every record: walking a slice, decoding all formats into columns.

All of them work on flat buffers and arrays, return a status of `Status`, and never raise. `runs` holds RUN integers for
each stretch of bytes with records in it: a v2 batch's records, a wrapper's inner messages, a row of plain messages.
`state` receives where and why a kernel stopped. Byte positions: records/layout.py; rules: docs/formats/.
"""

from __future__ import annotations

from magicbyte.compiled.kernel import Bytes, Int8s, Int32s, Int64s, MutableBytes, kernel
from magicbyte.compiled.primitives import (
    as_index,
    as_int64,
    copy_bytes,
    copy_cell_ahead,
    crc32_of,
    crc32_wide,
    crc32c_of,
    difference,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_pair,
    load_u8,
    load_u32,
    load_word,
    prefetch,
    prefetch_two,
    unzigzag32,
    unzigzag64,
)

# ---- statuses
DONE = 0
SHORT = 1  # the entry at the position goes on behind the buffer
FULL = 2  # an output array is full: call again
BAD_SIZE = 3
BAD_MAGIC = 4
BAD_CRC = 5
BAD_KEY_LENGTH = 6
BAD_VALUE_LENGTH = 7
BAD_HEADER = 8
BAD_VARINT = 9
BAD_RECORD_LENGTH = 10
TRAILING_BYTES = 11
NESTED = 12
BAD_TAGS = 13
BAD_WRAPPER_OFFSET = 14
NO_MESSAGES = 15
CUT_MESSAGE = 16
BAD_BATCH_CRC = 17

# ---- what `state` holds
AT = 0  # position where the kernel stopped
ROWS = 1  # rows filled so far
NEED = 2  # scan: size of the entry that did not fit
EXPECTED = 3
FOUND = 4
RUN_INDEX = 5
KEY_BYTES = 6
VALUE_BYTES = 7
HEADERS = 8
STOP = 9  # from here on: what `find_fields` found of one record
DELTA = 10
LATER = 11
KEY = 12
KEY_SIZE = 13
VALUE = 14
VALUE_SIZE = 15
HEADER = 16
HEADER_COUNT = 17
STATE = 18

# ---- columns of the scan's table
T_POSITION = 0
T_SIZE = 1
T_MAGIC = 2
T_ATTRIBUTES = 3
T_OFFSET = 4
T_COUNT = 5  # plain messages merged into this row; v2: the header's record count; wrapper: -1
TABLE = 6

# ---- fields of a run
START = 0
END = 1
COUNT = 2  # v2: records to find. Messages: set by `measure_messages`
OFFSET = 3  # v2: base offset. Wrapper: its offset. Plain messages: unused
BASE_TIMESTAMP = 4  # v2
TYPE = 5  # timestamp type of the batch or wrapper; OWN for plain messages
TIMESTAMP = 6  # the append time of the batch or wrapper; enriched: the wrapper's timestamp
MAGIC = 7
LAST = 8  # messages: offset field of the last one, set by `measure_messages`
CHECK = 8  # v2: the CRC-32C that the 40 bytes of header before the records and the records must have, -1: not verified
HONOR = 9  # enriched wrapper: whether relative offsets count
RUN = 10

NOT_PLAIN = 0x27  # attributes of a v2 batch: a codec, or control records
LEAST_RECORD = 7  # bytes of a v2 record, with its length
CHECKED_HEADER = 40  # bytes of a v2 header that its CRC covers
OWN = 2
NO_TAGS = -(1 << 63)  # as an enriched timestamp: neither header nor tag 0
NO_TYPE = -1
LOG_APPEND = 1

# ---- what to do with keys and values
LEAVE = 0  # their lengths only
REFER = 1  # positions in the source
PACK = 2  # copied, one after the other

LEAST_AHEAD, MOST_AHEAD = 4 << 10, 32 << 10  # bytes that are asked of memory before they are decoded
TWO_BYTES = (1 << 14) - 1  # the most that a varint of two bytes says
CELL_SPARE = 128  # bytes that may be read behind a record, and written behind packed cells
SPARE = 16  # bytes that may be read behind a record before its lengths are checked
WALK_AHEAD = 4 << 10  # the same for the walk over messages


@kernel
def scan(data: Bytes, start: int, end: int, enriched: int, merge: int, table: Int64s, state: Int64s) -> int:
    """Fill `table` with one row for each whole entry from `start` on, and one for a row of plain messages of one magic
    until it has `merge` bytes (0: each has its own).

    Shapes: table (rows * TABLE,), state (STATE,). state[ROWS] rows are filled, state[AT] is where to go on.
    Returns DONE (at `end`), SHORT, FULL, BAD_SIZE or BAD_MAGIC.
    """
    at, row, rows = start, 0, len(table) // TABLE
    kind_bits = 0xFF0F if enriched else 0xFF07  # magic and, in the attributes, what tells plain messages from others
    status = DONE
    while at < end:
        if end - at < 17:
            status, state[NEED] = SHORT, 17
            break
        size = load_i32(data, at + 8)
        magic = load_i8(data, at + 16)
        least = 14
        if magic == 1:
            least = 22
        elif magic == 2:
            least = 49
        if size < least:
            status, state[EXPECTED], state[FOUND] = BAD_SIZE, least, size
            break
        if magic < 0 or magic > 2 or (enriched and magic != 1):
            status, state[FOUND] = BAD_MAGIC, magic
            break
        if size + 12 > end - at:
            status, state[NEED] = SHORT, size + 12
            break
        if row == rows:
            status = FULL
            break
        count, first = -1, at
        if magic == 2:
            if end - at < 61:
                status, state[NEED] = SHORT, 61
                break
            attributes = load_i16(data, at + 21)
            count = load_i32(data, at + 57)
            guess = at + 2 * size  # where the batch after the next one begins, if they are alike
            prefetch(data, guess - 192, guess + 256)
            at += size + 12
        else:
            attributes = load_i8(data, at + 17)
            kind = load_i16(data, at + 16) & kind_bits
            at += size + 12
            if kind == magic << 8:
                count, ahead = 1, at
                while at - first < merge and end - at >= least + 12:  # one walk, on bytes that are on their way
                    ahead = prefetch(data, ahead, at + WALK_AHEAD)
                    size = load_i32(data, at + 8)
                    if load_i16(data, at + 16) & kind_bits != kind or size < least or size + 12 > end - at:
                        break
                    at += size + 12
                    count += 1
        into = row * TABLE
        table[into + T_POSITION] = first
        table[into + T_SIZE] = at - first
        table[into + T_MAGIC] = magic
        table[into + T_ATTRIBUTES] = attributes
        table[into + T_OFFSET] = load_i64(data, first)
        table[into + T_COUNT] = count
        row += 1
    state[AT] = at
    state[ROWS] = row
    return status


@kernel
def long_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the int32 varint at `at` and the position behind it, or -1 for that if it is cut or over 5 bytes."""
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
    """Return the int64 varint at `at` and the position behind it, or -1 for that if it is cut or over 10 bytes."""
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
    """Return the position behind `count` headers, or -1 if they do not lie within `end` or a key is null."""
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
    """Fill `runs` from the headers of v2 batches, up to the first that is larger than `limit` or that claims more
    records, of `least` bytes or more, than it can hold. Returns how many are filled.

    `least` 0: the batches are compressed, the runs say where their payloads are, and with `verify` a batch whose CRC is
    wrong ends it, too; else the runs hold the CRC to check.
    """
    for row in range(len(position)):
        at, into = position[row], row * RUN
        count = load_i32(data, at + 57)
        if size[row] > limit or count < 0 or count * least > size[row] - 61:
            return row
        check = load_u32(data, at + 17) if verify else -1
        if least == 0 and verify:
            if crc32c_of(data, at + 21, at + size[row], table) != check:
                return row
            check = -1
        runs[into + START], runs[into + END], runs[into + COUNT] = at + 61, at + size[row], count
        runs[into + OFFSET], runs[into + BASE_TIMESTAMP] = load_i64(data, at), load_i64(data, at + 27)
        runs[into + TYPE], runs[into + TIMESTAMP] = (load_i16(data, at + 21) >> 3) & 1, load_i64(data, at + 35)
        runs[into + MAGIC], runs[into + CHECK], runs[into + HONOR] = 2, check, 0
    return len(position)


@kernel
def open_wrappers(
    data: Bytes, position: Int64s, size: Int64s, magic: int, verify: int, limit: int, table: Int32s, runs: Int64s
) -> int:
    """As `open_batches`, for compressed messages of magic 0 or 1; `table` is that of CRC-32."""
    for row in range(len(position)):
        at, into, end = position[row], row * RUN, position[row] + size[row]
        key = 18 if magic == 0 else 26
        if size[row] > limit or size[row] < key + 8:
            return row
        if verify and crc32_of(data, at + 16, end, table) != load_u32(data, at + 12):
            return row
        if load_i32(data, at + key) != -1 or load_i32(data, at + key + 4) != size[row] - key - 8:
            return row  # with a key, which is allowed and rare, or damaged
        runs[into + START], runs[into + END], runs[into + COUNT] = at + key + 8, end, 0
        runs[into + OFFSET], runs[into + BASE_TIMESTAMP] = load_i64(data, at), 0
        runs[into + TYPE], runs[into + TIMESTAMP] = NO_TYPE, -1
        if magic == 1:
            runs[into + TYPE], runs[into + TIMESTAMP] = (load_i8(data, at + 17) >> 3) & 1, load_i64(data, at + 18)
        runs[into + MAGIC], runs[into + LAST], runs[into + HONOR] = magic, 0, 1
    return len(position)


@kernel
def find_fields(data: Bytes, at: int, end: int, state: Int64s) -> int:
    """Find the fields of the v2 record at `at`, whatever the length of its varints: state[STOP] to state[HEADER_COUNT].

    Returns a status, and in state[AT] how far it came.
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

    Shapes: runs (k * RUN,); offset … header_count (n,), n at least state[ROWS] plus the sum of the runs' counts;
    key_data and value_data hold at least the bytes of all runs, and CELL_SPARE more, when packed. Goes on at row
    state[ROWS] and at bytes state[KEY_BYTES] and state[VALUE_BYTES] of the packed data.
    """
    row, key_at, value_at = state[ROWS], state[KEY_BYTES], state[VALUE_BYTES]
    headers = state[HEADERS]
    status = DONE
    at = 0
    # The layout of a usual record's first bytes, learnt from the one before: of a word with them, which bits are
    # looked at and what they must be, where its varints are, and what the second bytes of those may hold.
    mask, wanted, after_size, long_size = 0, 1, 1, 0
    time_shift, long_time, offset_shift, long_offset, before_key = 0, 0, 0, 0, 0
    for run in range(0, len(runs), RUN):
        at, end = runs[run + START], runs[run + END]
        base_offset, kind = runs[run + OFFSET], runs[run + TYPE]
        base_timestamp, own = runs[run + BASE_TIMESTAMP], -1
        if kind == LOG_APPEND:
            base_timestamp, own = runs[run + TIMESTAMP], 0  # all records have the broker's
        whole = (row, key_at, value_at, headers)
        begin = at
        if runs[run + CHECK] >= 0:
            crc = crc32c_of(data, at - CHECKED_HEADER, end, table)
            if crc != runs[run + CHECK]:
                status, state[EXPECTED], state[FOUND] = BAD_BATCH_CRC, runs[run + CHECK], crc
        safe = min(end, len(data) - CELL_SPARE)
        reach = max(
            min(end - at, MOST_AHEAD), LEAST_AHEAD
        )  # the same place in the next batch, if that is like this one
        for each in range(row, row + runs[run + COUNT]):  # apart: so these are wide moves
            place = as_index(each)
            timestamp_type[place] = kind
            header_count[place] = 0
        for _ in range(runs[run + COUNT] if status == DONE else 0):
            begin, cell, usual, stop = at, as_index(row), 0, 0
            delta = later = key_at_source = key_size = value_at_source = value_size = header_at = count = 0
            if at < safe:  # what is not usual is left to `find_fields`
                prefetch_two(data, at + reach)
                word = load_word(data, at)
                if word & mask != wanted:  # lengths of varints are not those of the record before
                    two = (word >> 7) & 1
                    mask, wanted, after_size, long_size = 0x81 | two << 15, two << 7, 1 + two, 0x7F00 & -two
                    time_shift = 8 * after_size + 8  # behind the attributes, which are unused
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
            row, key_at, value_at, headers = whole  # of a damaged batch nothing is given
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
    """Decode uncompressed v2 batches that lie one behind the other from `at` on, headers and all, in one walk.

    Stops in front of the first that is cut off by `end`, of another kind or not sound (to be looked at by whoever can
    say why), and before `room` records or `most` bytes are exceeded. Shapes: run (RUN,) to work with; the others as in
    `decode_batches`. state[AT] is where it stopped, state[ROWS] and those behind it as there. Returns how many batches.
    """
    first, batches = at, 0
    while end - at >= 61:
        size, count, attributes = load_i32(data, at + 8) + 12, load_i32(data, at + 57), load_i16(data, at + 21)
        if load_i8(data, at + 16) != 2 or attributes & NOT_PLAIN or size < 61 or size > min(limit, end - at):
            break
        if count < 0 or count * LEAST_RECORD > size - 61 or count > room - state[ROWS] or at + size - first > most:
            break
        run[START], run[END], run[COUNT] = at + 61, at + size, count
        run[OFFSET], run[BASE_TIMESTAMP] = load_i64(data, at), load_i64(data, at + 27)
        run[TYPE], run[TIMESTAMP] = (attributes >> 3) & 1, load_i64(data, at + 35)
        run[MAGIC], run[CHECK], run[HONOR] = 2, load_u32(data, at + 17) if verify else -1, 0
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
    """Give positions and lengths of the headers of rows `first` to `rows`, which `decode_batches` has walked before.

    Shapes: start, count (rows,); key_start … value_length (headers,), filled from `into` on. Returns where it ended.
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


@kernel
def measure_messages(data: Bytes, runs: Int64s, state: Int64s) -> int:
    """Count the messages of each run (runs[COUNT]) and note the offset field of its last one (runs[LAST]).

    Runs whose count is known, because the scan has walked them, are left alone.
    """
    for run in range(0, len(runs), RUN):
        if runs[run + COUNT] > 0:
            continue
        at, end = runs[run + START], runs[run + END]
        count, last = 0, -1
        while at < end:
            if end - at < 26 or load_i32(data, at + 8) > end - at - 12:
                state[AT], state[RUN_INDEX] = at, run // RUN
                state[EXPECTED], state[FOUND] = (load_i32(data, at + 8) + 12 if end - at >= 12 else 26), end - at
                return CUT_MESSAGE
            size = load_i32(data, at + 8)
            if size < 14:
                state[AT], state[RUN_INDEX], state[EXPECTED], state[FOUND] = at, run // RUN, 14, size
                return BAD_SIZE
            last = load_i64(data, at)
            count += 1
            at += size + 12
        if count == 0:
            state[AT], state[RUN_INDEX] = at, run // RUN
            return NO_MESSAGES
        runs[run + COUNT], runs[run + LAST] = count, last
    return DONE


@kernel
def tagged_timestamp(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return (tag 0, 1) of an enriched message's tag area, (-1, 0) if it has none, (0, -1) if a known tag is cut."""
    value, found = -1, 0
    while at < end:
        tag = load_i8(data, at)
        if tag == 0:
            size = 8
        elif tag == 32:
            size = 4
        elif tag in (33, 34):
            size = 1
        else:
            break  # of unknown size: it and what follows is ignored
        if size > end - at - 1:
            return 0, -1
        if tag == 0 and found == 0:
            value, found = load_i64(data, at + 1), 1
        at += 1 + size
    return value, found


@kernel
def check_crcs(data: Bytes, at: int, end: int, table: Int32s) -> tuple[int, int]:
    """Compare the CRCs of the messages from `at` on with their bytes, some kilobytes of them, at least one.

    Apart from decoding, so that several are computed at once. Returns where the first message with a wrong one begins
    (-1: none), and where it stopped. Sizes were checked before.
    """
    most = min(end, at + WALK_AHEAD)
    while at < most:
        stop = at + 12 + load_i32(data, at + 8)
        crc = crc32_wide(data, at + 16, stop, table) if at >= 48 else crc32_of(data, at + 16, stop, table)
        if crc != load_u32(data, at + 12):
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
    """Decode messages of magic 0 or 1, or enriched ones: rows of plain messages and the insides of wrappers.

    As `decode_batches`, after `measure_messages`. `table` is that of CRC-32; with `verify` each message's is checked.
    Wrappers of magic 1 may have messages of magic 0, without a timestamp: cleaners of 0.10 wrote such.
    """
    row, key_at, value_at = state[ROWS], state[KEY_BYTES], state[VALUE_BYTES]
    status = DONE
    at = ahead = 0
    for run in range(0, len(runs), RUN):
        begin, end = runs[run + START], runs[run + END]
        ahead, checked, bad = max(ahead, begin), begin, -1
        at = begin
        kind, append_time, magic = runs[run + TYPE], runs[run + TIMESTAMP], runs[run + MAGIC]
        cleaned = magic == 1 and kind != OWN and not enriched  # an old cleaner's: messages of magic 0, and no others
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
            size = load_i32(data, at + 8)
            stop = at + 12 + size
            own = load_i8(data, at + 16)
            least = 14 if magic == 0 or (own == 0 and cleaned) else 22
            if size < least:
                status, state[EXPECTED], state[FOUND] = BAD_SIZE, least, size
                break
            if own != magic and not (own == 0 and cleaned):
                status, state[EXPECTED], state[FOUND] = BAD_MAGIC, magic, own
                break
            if verify and at >= checked:
                bad, checked = check_crcs(data, at, end, table)
            if at == bad:
                crc = crc32_of(data, at + 16, stop, table)
                status, state[EXPECTED], state[FOUND] = BAD_CRC, load_u32(data, at + 12), crc
                break
            attributes = load_i8(data, at + 17)
            place = at + 18
            if enriched:
                if kind != OWN and attributes & 15:
                    status, state[FOUND] = NESTED, attributes & 15
                    break
                seconds = load_u32(data, at + 18)
                area = load_i32(data, at + 22)
                place = at + 26
                if area < -1 or area > stop - place - 8:
                    status, state[EXPECTED], state[FOUND] = BAD_TAGS, stop - place - 8, area
                    break
                if area > 0:
                    tagged, found = tagged_timestamp(data, place, place + area)
                    place += area
                    if found < 0:
                        status, state[EXPECTED], state[FOUND] = BAD_TAGS, area, area
                        break
                else:
                    tagged, found = -1, 0
                if not found:
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
                    place = at + 26
                    if kind == LOG_APPEND:
                        timestamp[cell] = append_time
                    else:
                        timestamp[cell] = load_i64(data, at + 18)
                    timestamp_type[cell] = (attributes >> 3) & 1 if kind == OWN else kind
            size = load_i32(data, place)
            place += 4
            if size < -1 or size > stop - place - 4:
                status, state[EXPECTED], state[FOUND] = BAD_KEY_LENGTH, stop - place - 4, size
                break
            key_length[cell] = size
            if size >= 0:
                if keys == PACK:
                    copy_bytes(key_data, key_at, data, place, size)
                    key_start[cell] = key_at
                    key_at += size
                elif keys == REFER:
                    key_start[cell] = place
                place += size
            else:
                if keys == PACK:
                    key_start[cell] = key_at
                elif keys == REFER:
                    key_start[cell] = place
            size = load_i32(data, place)
            place += 4
            if size < -1 or max(size, 0) != stop - place:
                status, state[EXPECTED], state[FOUND] = BAD_VALUE_LENGTH, stop - place, size
                break
            value_length[cell] = size
            if size >= 0:
                if values == PACK:
                    copy_bytes(value_data, value_at, data, place, size)
                    value_start[cell] = value_at
                    value_at += size
                elif values == REFER:
                    value_start[cell] = place
            else:
                if values == PACK:
                    value_start[cell] = value_at
                elif values == REFER:
                    value_start[cell] = place
            row += 1
            at = stop
        if status != DONE:
            state[RUN_INDEX] = run // RUN
            row, key_at, value_at = whole  # of a damaged wrapper nothing is given
            break
    state[AT] = at
    state[ROWS], state[KEY_BYTES], state[VALUE_BYTES] = row, key_at, value_at
    return status


@kernel
def pack(data: Bytes, start: Int32s, length: Int32s, out_start: Int32s, out: MutableBytes) -> int:
    """Copy the cells that `start` and `length` (-1 null) give, one after the other, and note where each begins.

    Shapes: start, length (n,); out_start (n + 1,). Returns the bytes written.
    """
    at = 0
    for i in range(len(length)):
        out_start[i] = at
        size = length[i]
        if size > 0:
            copy_bytes(out, at, data, start[i], size)
            at += size
    out_start[len(length)] = at
    return at
