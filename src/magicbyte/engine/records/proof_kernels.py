"""Check every record of v2 batches without keeping any, for verification, where nearly all batches are sound.

The kernels only report which batches are certainly sound. The usual decoder examines the others and describes damage.
"""

from __future__ import annotations

from magicbyte.engine.codecs.lz4_frame_kernels import BLOCK, CORRECT, STORED, first_block, next_block
from magicbyte.engine.codecs.lz4_read_kernels import read_block, read_two
from magicbyte.engine.compiled.kernel import Bytes, Int8s, Int32s, Int64s, MutableBytes, kernel
from magicbyte.engine.compiled.primitives import copy_bytes, load_i16, load_i32, load_i64
from magicbyte.engine.records.kernels.batches import SPARE, decode_batches
from magicbyte.engine.records.kernels.cells import LEAVE
from magicbyte.engine.records.kernels.runs import set_batch_run
from magicbyte.engine.records.kernels.statuses import DONE, HEADERS, ROWS
from magicbyte.engine.records.layout import (
    ATTRIBUTES_AT,
    LAST_OFFSET_DELTA_AT,
    MAX_TIMESTAMP_AT,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_AT,
)

# ---- fields of a block
SOURCE = 0
SOURCE_END = 1
IS_STORED = 2
CONTENT_END = 3
JOB = 4

# ---- where a batch's content is: its first slot and the slot after its last; PLAIN for both; or DOUBTFUL
PLAIN = -1
DOUBTFUL = -2

MOST_RECORDS = 1 << 16  # the most records of a batch that is checked here
SLOTS = 64  # the most LZ4 blocks at a time
ROOM = SLOTS * BLOCK + SPARE
AT_ONCE = 8  # blocks decompressed before their records are checked, so that they stay in the L2 cache


@kernel
def open_frame(data: Bytes, at: int, end: int, slot: int, jobs: Int64s) -> int:
    """Store the blocks of an LZ4 frame in `jobs` from `slot` on, if it is like those of Kafka's writers.

    Returns the slot after them, or DOUBTFUL for another frame or too few slots.
    """
    at = first_block(data, at, end, CORRECT, CORRECT)
    while at >= 0 and slot < SLOTS:
        word, at = next_block(data, at, end)
        if word == 0:
            return slot
        if word < 0:
            return DOUBTFUL
        size, into = word & (STORED - 1), slot * JOB
        jobs[into + SOURCE], jobs[into + SOURCE_END], jobs[into + IS_STORED] = at, at + size, word >> 31
        at += size
        slot += 1
    return DOUBTFUL


@kernel
def read_one(data: Bytes, job: int, jobs: Int64s, room: MutableBytes) -> None:
    """Decompress a block into its slot of `room`, and store its end in its job."""
    into, to = job * JOB, job * BLOCK
    at, end = jobs[into + SOURCE], jobs[into + SOURCE_END]
    if jobs[into + IS_STORED]:
        copy_bytes(room, to, data, at, end - at)
        jobs[into + CONTENT_END] = to + end - at
    else:
        jobs[into + CONTENT_END] = read_block(data, at, end, room, to, to + BLOCK)


@kernel
def read_jobs(data: Bytes, count: int, jobs: Int64s, room: MutableBytes, ends: Int64s) -> None:
    """Decompress jobs 0 to `count` as `read_one` does, two at a time if possible.

    In ascending order, because a wide copy may spill over into the next slot.
    """
    for job in range(0, count, 2):
        into, to = job * JOB, job * BLOCK
        if job + 1 < count and jobs[into + IS_STORED] + jobs[into + JOB + IS_STORED] == 0:
            status = read_two(
                data,
                jobs[into + SOURCE],
                jobs[into + SOURCE_END],
                jobs[into + JOB + SOURCE],
                jobs[into + JOB + SOURCE_END],
                room,
                to,
                to + BLOCK,
                to + BLOCK,
                to + 2 * BLOCK,
                ends,
            )
            if status == DONE:
                jobs[into + CONTENT_END], jobs[into + JOB + CONTENT_END] = ends[0], ends[1]
                continue
        read_one(data, job, jobs, room)
        if job + 1 < count:
            read_one(data, job + 1, jobs, room)


@kernel
def prove_records(
    head: Bytes,
    at: int,
    data: Bytes,
    start: int,
    end: int,
    unused: MutableBytes,
    table: Int32s,
    run: Int64s,
    offset: Int64s,
    timestamp: Int64s,
    timestamp_type: Int8s,
    cells: Int32s,
    state: Int64s,
) -> int:
    """Return whether the batch with the header at `at` of `head` is sound; its records are `start` to `end` of `data`.

    Sound means that exactly the claimed records can be decoded, and that offsets ascend and match the header, as does
    the max timestamp. Shapes: run (RUN,); offset, timestamp, timestamp_type, cells (MOST_RECORDS,).
    """
    attributes, last_delta, count = (
        load_i16(head, at + ATTRIBUTES_AT),
        load_i32(head, at + LAST_OFFSET_DELTA_AT),
        load_i32(head, at + RECORD_COUNT_AT),
    )
    if count < 0 or count > MOST_RECORDS:
        return 0
    base, largest = load_i64(head, at), load_i64(head, at + MAX_TIMESTAMP_AT)
    set_batch_run(run, 0, head, at, start, end, -1)
    state[ROWS] = state[HEADERS] = 0
    status: int = decode_batches(
        data, run, table, LEAVE, LEAVE, offset, timestamp, timestamp_type,
        cells, cells, unused, cells, cells, unused, cells, cells, state,
    )  # fmt: skip
    if status != DONE or state[ROWS] != count:
        return 0
    if count == 0:
        return 1
    before, most, rise = base - 1, timestamp[0], 1
    for record in range(count):
        if offset[record] <= before:
            rise = 0
        before = offset[record]
        most = max(most, timestamp[record])
    if rise == 0 or last_delta < 0 or before - base > last_delta:
        return 0
    is_free = attributes & 72 != 0  # LogAppendTime, or a delete horizon in place of a base timestamp
    return 1 if is_free or most == largest else 0


@kernel
def prove_batches(
    data: Bytes,
    position: Int64s,
    size: Int64s,
    limit: int,
    table: Int32s,
    room: MutableBytes,
    jobs: Int64s,
    slots: Int64s,
    run: Int64s,
    offset: Int64s,
    timestamp: Int64s,
    timestamp_type: Int8s,
    cells: Int32s,
    state: Int64s,
    proven: Int8s,
) -> int:
    """Set `proven` to 1 for each v2 batch that is certainly sound and to 0 for the others; return how many are 0.

    Checksums must have been verified. Only uncompressed batches and those with LZ4 frames like Kafka's are considered,
    of at most MOST_RECORDS records, SLOTS blocks and `limit` bytes. `table` is that of CRC-32C. Shapes: position, size,
    proven (n,); slots (2 * n,); room (ROOM,); jobs (SLOTS * JOB,); state (STATE,); the others as above.
    """
    row, doubtful = 0, 0
    while row < len(position):
        first, slot = row, 0
        while row < len(position) and slot < AT_ONCE:
            at = position[row]
            codec, begin = load_i16(data, at + ATTRIBUTES_AT) & 7, slot
            behind = DOUBTFUL
            if codec == 0 and size[row] <= limit:
                begin = behind = PLAIN
            elif codec == 3 and size[row] <= limit:
                behind = open_frame(data, at + RECORD_BATCH_OVERHEAD, at + size[row], slot, jobs)
                if behind < 0 and slot > 0:
                    break  # again, with all slots free
                slot = max(slot, behind)
            slots[2 * row], slots[2 * row + 1] = begin, behind
            row += 1
        read_jobs(data, slot, jobs, room, state)
        for batch in range(first, row):
            at, begin, behind = position[batch], slots[2 * batch], slots[2 * batch + 1]
            sound = 0
            if behind == PLAIN:
                sound = prove_records(
                    data, at, data, at + RECORD_BATCH_OVERHEAD, at + size[batch], room,
                    table, run, offset, timestamp, timestamp_type, cells, state,
                )  # fmt: skip
            elif behind != DOUBTFUL:
                start, end, whole = begin * BLOCK, begin * BLOCK, 1
                for job in range(begin, behind):
                    if end != job * BLOCK:
                        whole = 0
                    end = jobs[job * JOB + CONTENT_END]
                if whole and start <= end <= start + limit:
                    sound = prove_records(
                        data, at, room, start, end, room,
                        table, run, offset, timestamp, timestamp_type, cells, state,
                    )  # fmt: skip
            proven[batch] = sound
            doubtful += 1 - sound
    return doubtful
