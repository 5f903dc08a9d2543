"""Write new headers for many v2 batches on their way to another cluster, without reading their records.

A producer's header differs from a leader's in known bytes, and a CRC is linear. So the new CRC is the old one, xor the
CRC of the changed bits, shifted by the number of bytes after them. A damaged batch stays damaged, because the
difference between its stored and its computed CRC is kept.
"""

from __future__ import annotations

from magicbyte.engine.compiled.checksums import crc32c_of
from magicbyte.engine.compiled.kernel import Bytes, Int32s, Int64s, MutableBytes, kernel
from magicbyte.engine.compiled.primitives import (
    copy_bytes,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_u32,
    store_i8,
    store_i32,
    store_i64,
    store_u32,
)
from magicbyte.engine.records.layout import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BATCH_CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    PARTITION_LEADER_EPOCH_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_AT,
    SIZE_AT,
)

HEADER = RECORD_BATCH_OVERHEAD
POLYNOMIAL = 0x82F63B78  # of CRC-32C, reflected

# ---- fields of `state`
AT = 0  # position of the next batch
FIRST = 1  # the smallest allowed base offset
STABLE = 2  # batches must end at this offset or before
CODECS = 3  # a bit for each codec that the target supports
OPENED = 4  # attribute bits that must all be clear
PRODUCER_ID = 5  # -1: none
PRODUCER_EPOCH = 6
SEQUENCE = 7
STATE = 8

# ---- columns of `rows`
R_POSITION = 0
R_SIZE = 1
R_FIRST = 2
R_FOLLOWING = 3
R_RECORDS = 4
R_CODEC = 5
ROW = 6


@kernel
def times(one: int, other: int) -> int:
    """Return the product of two polynomials modulo that of CRC-32C, all reflected: bit 31 is x^0."""
    product = 0
    while one:
        if one & 0x80000000:
            product ^= other
        one = (one << 1) & 0xFFFFFFFF
        other = (other >> 1) ^ (POLYNOMIAL if other & 1 else 0)
    return product


@kernel
def forward_batches(
    data: Bytes, end: int, heads: MutableBytes, rows: Int64s, state: Int64s, powers: Int64s, table: Int32s
) -> int:
    """Write a producer's header for each batch from state[AT] on, up to the first that must be decompressed.

    A batch is taken if it has magic 2, ends before `end`, holds data without offset gaps, and meets the conditions in
    `state`. `state` is moved past the batches taken. Returns their number. Shapes: heads (n, HEADER) flat; rows (n *
    ROW,); state (STATE,); powers (32,), x^(8 * 2^k) modulo the polynomial; `table` is that of CRC-32C.
    """
    at, first, stable, sequence = state[AT], state[FIRST], state[STABLE], state[SEQUENCE]
    codecs, opened = state[CODECS], state[OPENED]
    producer_id, epoch = state[PRODUCER_ID], state[PRODUCER_EPOCH]
    count, most = 0, min(len(rows) // ROW, len(heads) // HEADER)
    while count < most and end - at >= HEADER:
        size = load_i32(data, at + SIZE_AT) + LOG_OVERHEAD
        attributes = load_i16(data, at + ATTRIBUTES_AT)
        base, records = load_i64(data, at), load_i32(data, at + RECORD_COUNT_AT)
        if (
            load_i8(data, at + MAGIC_AT) != 2
            or size < HEADER
            or size > end - at
            or attributes & opened
            or not (codecs >> (attributes & 7)) & 1
            or records < 1
            or load_i32(data, at + LAST_OFFSET_DELTA_AT) != records - 1
            or base < first
            or base > stable - records
        ):
            break
        head = count * HEADER
        copy_bytes(heads, head, data, at, HEADER)
        store_i64(heads, head, 0)
        store_i32(heads, head + PARTITION_LEADER_EPOCH_AT, -1)
        store_i8(heads, head + ATTRIBUTES_AT, 0)
        store_i8(heads, head + ATTRIBUTES_AT + 1, attributes & 7)
        store_i64(heads, head + PRODUCER_ID_AT, producer_id)
        store_i8(heads, head + PRODUCER_EPOCH_AT, epoch >> 8)
        store_i8(heads, head + PRODUCER_EPOCH_AT + 1, epoch)
        store_i32(heads, head + BASE_SEQUENCE_AT, sequence)
        # A CRC is linear: the xor of two messages of equal length has the xor of their CRCs, up to a constant. Only
        # bytes before the record count differ, so the difference is computed over these 36 bytes, and then shifted over
        # the rest of the batch by multiplication with x^(8 * bytes), one power of two at a time. The records are not
        # read, which is most of the saving of a mirror; and because the difference is applied to the stored CRC, a
        # damaged batch does not become valid.
        changed = crc32c_of(data, at + ATTRIBUTES_AT, at + RECORD_COUNT_AT, table) ^ crc32c_of(
            heads, head + ATTRIBUTES_AT, head + RECORD_COUNT_AT, table
        )
        behind, power = size - RECORD_COUNT_AT, 0
        while behind:
            if behind & 1:
                changed = times(changed, powers[power])
            behind >>= 1
            power += 1
        store_u32(heads, head + BATCH_CRC_AT, load_u32(data, at + BATCH_CRC_AT) ^ changed)
        row = count * ROW
        rows[row + R_POSITION] = at
        rows[row + R_SIZE] = size
        rows[row + R_FIRST] = base
        rows[row + R_FOLLOWING] = base + records
        rows[row + R_RECORDS] = records
        rows[row + R_CODEC] = attributes & 7
        if producer_id >= 0:
            sequence = (sequence + records) & 0x7FFFFFFF
        at, first = at + size, base + records
        count += 1
    state[AT], state[FIRST], state[SEQUENCE] = at, first, sequence
    return count
