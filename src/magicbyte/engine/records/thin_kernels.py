"""Remove records from v2 batches with LZ4, many batches in a call, and complete the new batches.

The remaining records are copied as bytes; only the timestamp delta changes if the batch's first record is removed. The
removal is decided by offset, so only lengths, timestamps and offsets are decoded.
"""

from __future__ import annotations

from magicbyte.engine.codecs.lz4_frame_kernels import BLOCK
from magicbyte.engine.compiled.checksums import crc32c_of
from magicbyte.engine.compiled.kernel import Bytes, Int32s, Int64s, MutableBytes, kernel
from magicbyte.engine.compiled.primitives import (
    as_int64,
    copy_bytes,
    difference,
    load_i16,
    load_i32,
    load_i64,
    store_i8,
    store_i32,
    store_i64,
    store_u32,
    zigzag64,
)
from magicbyte.engine.records.encode_kernels import UNSET, code_size, store_code
from magicbyte.engine.records.kernels.batches import LEAST_RECORD, long_varint, long_varlong
from magicbyte.engine.records.layout import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    BATCH_CRC_AT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_AT,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_AT,
    SIZE_AT,
)
from magicbyte.engine.records.proof_kernels import AT_ONCE, CONTENT_END, JOB, open_frame, read_jobs

# ---- statuses
DONE = 0
FULL = 1  # no room in `out`
ODD = 2  # a batch that is left to the usual decoder

# ---- fields of `state`
AT = 0  # position after the last byte written
ROW = 1  # the batch at which it stopped
STATE = 2

# ---- facts of a batch
START = 0  # start of its records in `out`
STOP = 1  # end of its records
COUNT = 2
BASE_TIMESTAMP = 3
MAX_TIMESTAMP = 4
LAST_OFFSET = 5  # of the last remaining record
FACTS = 6

LOG_APPEND_TIME_BIT = 8
DELETE_HORIZON_BIT = 64
HEADER = RECORD_BATCH_OVERHEAD
SPARE = 32  # spare bytes after a record in `out`: the growth of its varints


@kernel
def thin_records(
    head: Bytes,
    at: int,
    data: Bytes,
    start: int,
    end: int,
    low: int,
    gone: Bytes,
    out: MutableBytes,
    facts: Int64s,
    into: int,
    state: Int64s,
) -> int:
    """Copy the remaining records to `out` from state[AT] on, and fill facts[into + START] and the following.

    The batch's header is at `at` of `head`, its records are from `start` to `end` of `data`. Moves state[AT] if it
    returns DONE; otherwise it returns FULL or ODD. See `thin_batches`.
    """
    attributes, count = load_i16(head, at + ATTRIBUTES_AT), load_i32(head, at + RECORD_COUNT_AT)
    base_offset, base, largest = (
        load_i64(head, at),
        load_i64(head, at + BASE_TIMESTAMP_AT),
        load_i64(head, at + MAX_TIMESTAMP_AT),
    )
    append_time, horizon = attributes & LOG_APPEND_TIME_BIT, attributes & DELETE_HORIZON_BIT
    to, kept, latest, last, new_base = state[AT], 0, UNSET, base_offset, base
    field_at = start
    for _ in range(count):
        size, body = long_varint(data, field_at, end)
        if body < 0 or size < LEAST_RECORD - 1 or size > end - body:
            return ODD
        stop = body + size
        delta, behind = long_varlong(data, body + 1, stop)
        if behind < 0:
            return ODD
        later, rest = long_varint(data, behind, stop)
        offset = base_offset + later
        if rest < 0 or later < 0 or offset < low or offset - low >= len(gone):
            return ODD
        if gone[offset - low] == 0:
            time = largest if append_time != 0 else as_int64(base + delta)
            if kept == 0 and horizon == 0:
                new_base = time
            if stop - field_at + SPARE > len(out) - to:
                return FULL
            new_delta = difference(time, new_base)
            if new_delta == delta:
                copy_bytes(out, to, data, field_at, stop - field_at)
                to += stop - field_at
            else:
                code = zigzag64(new_delta)
                to = store_code(out, to, zigzag64(1 + code_size(code) + stop - behind))
                store_i8(out, to, data[body])
                to = store_code(out, to + 1, code)
                copy_bytes(out, to, data, behind, stop - behind)
                to += stop - behind
            latest, last, kept = max(latest, time), offset, kept + 1
        field_at = stop
    if field_at != end or kept == 0:
        return ODD
    facts[into + START], facts[into + STOP], facts[into + COUNT] = state[AT], to, kept
    facts[into + BASE_TIMESTAMP], facts[into + MAX_TIMESTAMP] = new_base, largest if append_time != 0 else latest
    facts[into + LAST_OFFSET] = last
    state[AT] = to
    return DONE


@kernel
def thin_batches(
    data: Bytes,
    position: Int64s,
    size: Int64s,
    low: int,
    gone: Bytes,
    room: MutableBytes,
    jobs: Int64s,
    slots: Int64s,
    ends: Int64s,
    out: MutableBytes,
    facts: Int64s,
    state: Int64s,
) -> int:
    """Write the remaining records of v2 batches to `out` from state[AT] on, and the facts of each batch, from
    state[ROW] on.

    Records of offset `low` + i are removed where gone[i] is not 0; `gone` covers all offsets. Only sound batches with
    LZ4 frames like Kafka's and at least one remaining record are taken. Checksums are not verified. Shapes: position,
    size (n,); facts (n * FACTS,); slots (2 * n,); room (ROOM,) and jobs (SLOTS * JOB,) of proof_kernels; ends (2,);
    state (STATE,). Returns DONE, or FULL or ODD for the batch of state[ROW].
    """
    row = state[ROW]
    while row < len(position):
        first, slot = row, 0
        while row < len(position) and slot < AT_ONCE:
            at = position[row]
            behind = open_frame(data, at + HEADER, at + size[row], slot, jobs)
            if behind < 0:
                break  # unless it is the first: again, with all slots free
            slots[2 * row], slots[2 * row + 1] = slot, behind
            slot = behind
            row += 1
        if row == first:
            state[ROW] = row
            return ODD
        read_jobs(data, slot, jobs, room, ends)
        for batch in range(first, row):
            begin, behind = slots[2 * batch], slots[2 * batch + 1]
            end, whole = begin * BLOCK, 1
            for job in range(begin, behind):
                if end != job * BLOCK:
                    whole = 0
                end = jobs[job * JOB + CONTENT_END]
            status = ODD
            if whole and end >= begin * BLOCK:
                status = thin_records(
                    data, position[batch], room, begin * BLOCK, end, low, gone, out, facts, batch * FACTS, state
                )
            if status != DONE:
                state[ROW] = batch
                return status
    state[ROW] = row
    return DONE


@kernel
def close_batches(
    data: Bytes, position: Int64s, facts: Int64s, bounds: Int64s, table: Int32s, out: MutableBytes
) -> None:
    """Write the header of each batch in `out`, whose compressed records are in place, from bounds[i] to bounds[i + 1].

    It is the header at position[i] of `data` with new sizes, times, count and CRC. `table` is crc_table(CASTAGNOLI).
    Shapes: position (n,); bounds (n + 1,); facts (n * FACTS,).
    """
    for row in range(len(position)):
        at, end, into = bounds[row], bounds[row + 1], row * FACTS
        copy_bytes(out, at, data, position[row], HEADER)
        store_i32(out, at + SIZE_AT, end - at - LOG_OVERHEAD)
        store_i64(out, at + BASE_TIMESTAMP_AT, facts[into + BASE_TIMESTAMP])
        store_i64(out, at + MAX_TIMESTAMP_AT, facts[into + MAX_TIMESTAMP])
        store_i32(out, at + RECORD_COUNT_AT, facts[into + COUNT])
        store_u32(out, at + BATCH_CRC_AT, crc32c_of(out, at + ATTRIBUTES_AT, end, table))
