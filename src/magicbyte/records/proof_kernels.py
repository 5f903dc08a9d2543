"""The loop that looks at every record of v2 batches and keeps none: verification, where nearly all of them are sound.

It says only which batches are beyond doubt. Of the others those who can describe damage say what is wrong.
"""

from __future__ import annotations

from magicbyte.codecs.lz4_frame_kernels import BLOCK, CORRECT, STORED, first_block, next_block
from magicbyte.codecs.lz4_read_kernels import read_block, read_two
from magicbyte.compiled.kernel import Bytes, Int8s, Int32s, Int64s, MutableBytes, kernel
from magicbyte.compiled.primitives import copy_bytes, load_i16, load_i32, load_i64
from magicbyte.records.kernels.batches import SPARE, decode_batches
from magicbyte.records.kernels.cells import LEAVE
from magicbyte.records.kernels.runs import set_batch_run
from magicbyte.records.kernels.statuses import DONE, HEADERS, ROWS
from magicbyte.records.layout import (
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

# ---- where the content of a batch is: its first slot and the one behind its last, PLAIN for both, or DOUBTFUL
PLAIN = -1
DOUBTFUL = -2

MOST_RECORDS = 1 << 16  # of a batch that is looked at
SLOTS = 64  # blocks that there is room for
ROOM = SLOTS * BLOCK + SPARE
AT_ONCE = 8  # blocks that are decompressed before their records are looked at: they stay in the second cache


@kernel
def open_frame(data: Bytes, at: int, end: int, slot: int, jobs: Int64s) -> int:
    """Note the blocks of an LZ4 frame like those of Kafka's writers in `jobs`, from `slot` on.

    Returns the slot behind them, DOUBTFUL if it is no such frame or there are too few.
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
    """Put the content of a block into its slot of `room`, and where it ends into its job."""
    into, to = job * JOB, job * BLOCK
    at, end = jobs[into + SOURCE], jobs[into + SOURCE_END]
    if jobs[into + IS_STORED]:
        copy_bytes(room, to, data, at, end - at)
        jobs[into + CONTENT_END] = to + end - at
    else:
        jobs[into + CONTENT_END] = read_block(data, at, end, room, to, to + BLOCK)


@kernel
def read_jobs(data: Bytes, count: int, jobs: Int64s, room: MutableBytes, ends: Int64s) -> None:
    """Do what `read_one` does for jobs 0 to `count`, two at a time where that can be; from first to last, since a copy
    may spill over into the next slot.
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
    """Say whether the batch whose header is at `at` of `head` has its records from `start` to `end` of `data`.

    All of them can be decoded, none is too many, offsets rise and are those of the header, and so is the largest
    timestamp. Shapes: run (RUN,); offset, timestamp, timestamp_type, cells (MOST_RECORDS,).
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
    is_free = attributes & 72 != 0  # the broker's own time, or a delete horizon in place of a timestamp
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
    """Put 1 into `proven` for each v2 batch that is sound beyond doubt, 0 for others, and return how many those are.

    The checksums were verified before. Beyond doubt are only uncompressed ones and those with LZ4 frames like those
    of Kafka's writers, of MOST_RECORDS, SLOTS blocks and `limit` bytes at most. `table` is that of CRC-32C. Shapes:
    position, size, proven (n,); slots (2 * n,); room (ROOM,); jobs (SLOTS * JOB,); state (STATE,); and as above.
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
                    break  # once more, with all slots
                slot = max(slot, behind)
            slots[2 * row], slots[2 * row + 1] = begin, behind
            row += 1
        read_jobs(data, slot, jobs, room, state)
        for each in range(first, row):
            at, begin, behind = position[each], slots[2 * each], slots[2 * each + 1]
            sound = 0
            if behind == PLAIN:
                sound = prove_records(
                    data, at, data, at + RECORD_BATCH_OVERHEAD, at + size[each], room,
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
            proven[each] = sound
            doubtful += 1 - sound
    return doubtful
