"""Convert LZ4 to LZ4: decompress many entries at a time, and compress them again without a search for matches.

Method and statuses: magicbyte.engine.codecs.lz4_kernels. Byte positions: records/layout.py.
"""

from __future__ import annotations

from magicbyte.engine.codecs.lz4_frame_kernels import ANY, BROKEN, CORRECT
from magicbyte.engine.codecs.lz4_kernels import AT, COUNT, DONE, FULL, GONE, LEAD, ODD, read_frame, write_frame
from magicbyte.engine.compiled.checksums import crc32_of, crc32c_of
from magicbyte.engine.compiled.kernel import Bytes, Int32s, Int64s, MutableBytes, kernel
from magicbyte.engine.compiled.primitives import (
    as_index,
    load_i32,
    load_u32,
    zigzag64,
)
from magicbyte.engine.records.encode_kernels import BATCH, code_size, store_batch_header, store_wrapper_header
from magicbyte.engine.records.encode_kernels import END as LAST_ROW
from magicbyte.engine.records.encode_kernels import FIRST as FIRST_ROW
from magicbyte.engine.records.encode_kernels import START as SECTION
from magicbyte.engine.records.encode_kernels import STOP as SECTION_END
from magicbyte.engine.records.kernels.runs import RUN, set_batch_run, set_wrapper_run
from magicbyte.engine.records.layout import (
    ATTRIBUTES_AT,
    BATCH_CRC_AT,
    MAGIC_AT,
    MESSAGE_CRC_AT,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_AT,
    V0_KEY_LENGTH_AT,
    V0_OVERHEAD,
    V1_KEY_LENGTH_AT,
    V1_OVERHEAD,
)

# ---- fields of a place: the content of an entry
CONTENT = 0  # position of the decompressed content
SIZE = 1
MATCHES = 2  # the first match and the one after the last
MATCHES_END = 3
PLACES = 4

LZ4 = 3
LEAST_RECORD = 7  # smallest v2 record in bytes


@kernel
def open_entries(
    data: Bytes,
    position: Int64s,
    size: Int64s,
    magic: int,
    verify: int,
    any_header: int,
    limit: int,
    enough: int,
    table: Int32s,
    out: MutableBytes,
    matches: Int32s,
    runs: Int64s,
    places: Int64s,
    state: Int64s,
) -> int:
    """Decompress wrappers or batches of one magic into `out`, one after the other, until there are `enough` bytes.

    With `verify` their checksums are computed; `table` is that of the CRC of `magic`. `limit`: the maximum size of an
    entry in bytes, also after decompression. Shapes: position, size (n,), from a scan; runs (n * RUN,) for the decoding
    kernels; places (n * PLACES,); matches (m * MATCH,); state of codecs.lz4_kernels, zeros. Returns DONE, or
    FULL or ODD for the entry after the last in `runs`; state[LEAD] entries are decompressed.
    """
    opened = 0
    while opened < len(position):
        if state[AT] >= enough:
            return FULL
        begin = position[opened]
        end = begin + size[opened]
        if size[opened] > limit:
            return ODD
        if magic == 2:
            if verify and crc32c_of(data, begin + ATTRIBUTES_AT, end, table) != load_u32(data, begin + BATCH_CRC_AT):
                return ODD
            frame, checksum = begin + RECORD_BATCH_OVERHEAD, CORRECT
        else:
            if verify and crc32_of(data, begin + MAGIC_AT, end, table) != load_u32(data, begin + MESSAGE_CRC_AT):
                return ODD
            frame, checksum = begin + V0_KEY_LENGTH_AT, ANY
            if magic == 1:
                frame, checksum = begin + V1_KEY_LENGTH_AT, ANY if any_header else CORRECT
            key = load_i32(data, frame)
            if key < -1 or key > end - frame - 8:
                return ODD
            frame += 8 + max(key, 0)
            if load_i32(data, frame - 4) != end - frame:
                return ODD
        content, first = state[AT], state[COUNT]
        status: int = read_frame(data, frame, end, checksum, out, min(len(out), content + limit), matches, state)
        if status != DONE:
            state[AT], state[COUNT] = content, first
            return status if status == ODD or len(out) - content < limit else ODD
        count = load_i32(data, begin + RECORD_COUNT_AT) if magic == 2 else 0
        if count < 0 or count > (state[AT] - content) // LEAST_RECORD:
            state[AT], state[COUNT] = content, first
            return ODD
        slot = opened * PLACES
        if magic == 2:
            set_batch_run(runs, opened * RUN, data, begin, content, state[AT], -1)
        else:
            set_wrapper_run(runs, opened * RUN, data, begin, magic, content, state[AT])
        places[slot + CONTENT], places[slot + SIZE] = content, state[AT] - content
        places[slot + MATCHES], places[slot + MATCHES_END] = first, state[COUNT]
        opened += 1
        state[LEAD] = opened
    return DONE


@kernel
def note_moves(moves: Int32s, start: int, cell: int, end: int, move: int) -> None:
    """Mark old bytes `start` to `cell` as removed and `cell` to `end` as moved by `move`."""
    for at in range(start, cell):
        moves[as_index(at)] = GONE - (cell - at)
    for at in range(cell, end):
        moves[as_index(at)] = move


@kernel
def note_cells(
    data: Bytes,
    at: int,
    magic: int,
    first: int,
    end: int,
    base: int,
    total: int,
    key_start: Int32s,
    key_length: Int32s,
    value_start: Int32s,
    value_length: Int32s,
    moves: Int32s,
    leads: Int32s,
) -> int:
    """Fill `moves` for `total` old bytes from position `base` on, which hold rows `first` to `end` of the columns.

    `data` holds the same records from `at` on: v2 without headers, or magic 0 or 1. For these, `leads` receives the
    start of each message and, for magic 1, the starts of magic, attributes and timestamp. Shapes: key_start …
    value_length (n,); moves (total,); leads (2 * (end - first) + 1,). Returns DONE, or ODD if the columns contradict
    `total`.
    """
    old, lead = 0, 0
    for row in range(first, end):
        key_size, value_size = max(key_length[row], 0), max(value_length[row], 0)
        if magic == 2:
            size, shift, byte = 0, 0, 128
            while byte >= 128:
                byte = data[at]
                size |= (byte & 127) << shift
                shift += 7
                at += 1
            at += size >> 1
            value_at = at - 1 - value_size
            key_at = value_at - code_size(zigzag64(value_length[row])) - key_size
        else:
            leads[lead] = at
            lead += 1
            if magic == 1:
                leads[lead] = at + MAGIC_AT
                lead += 1
            key_at = at + 4 + (V0_KEY_LENGTH_AT if magic == 0 else V1_KEY_LENGTH_AT)
            value_at = key_at + key_size + 4
            at = value_at + value_size
        key_old, value_old = key_start[row] - base, value_start[row] - base
        if key_old < old or value_old < key_old + key_size or value_old + value_size > total:
            return ODD
        note_moves(moves, old, key_old, key_old + key_size, key_at - key_old)
        note_moves(moves, key_old + key_size, value_old, value_old + value_size, value_at - value_old)
        old = value_old + value_size
    note_moves(moves, old, total, total, 0)
    leads[lead] = len(data)
    return DONE


@kernel
def close_entries(
    data: Bytes,
    batches: Int64s,
    magic: int,
    places: Int64s,
    matches: Int32s,
    key_start: Int32s,
    key_length: Int32s,
    value_start: Int32s,
    value_length: Int32s,
    table: Int32s,
    moves: Int32s,
    leads: Int32s,
    out: MutableBytes,
    state: Int64s,
) -> int:
    """Write the records in `data` as the batches or wrappers that `batches` of encode_kernels describes, compressed
    with LZ4.

    The matches come from the old frames of the same records, each decompressed to a place of `places`; keys and values
    are there, at the columns' positions. `table` is that of the CRC of `magic`. Shapes: batches (k * BATCH,), places (k
    * PLACES,), matches from `open_entries`; key_start … value_length (n,); moves, leads for the largest batch, see
    `note_cells`; state of codecs.lz4_kernels; `out` has enough room. state[AT] is the start of the output,
    and afterwards its end. Returns DONE, or ODD for columns that do not belong to the frames.
    """
    at = state[AT]
    for batch in range(0, len(batches), BATCH):
        slot = batch // BATCH * PLACES
        base, total, count = places[slot + CONTENT], places[slot + SIZE], places[slot + MATCHES_END]
        start, end = batches[batch + SECTION], batches[batch + SECTION_END]
        first, last = batches[batch + FIRST_ROW], batches[batch + LAST_ROW]
        cells = key_start, key_length, value_start, value_length
        if note_cells(data, start, magic, first, last, base, total, *cells, moves, leads) != DONE:
            return ODD
        entry, period, state[COUNT] = at, 1 + magic % 2, places[slot + MATCHES]
        if magic == 2:
            at = write_frame(
                data, start, end, CORRECT, matches, count, moves, leads, period, out, at + RECORD_BATCH_OVERHEAD, state
            )
            store_batch_header(batches, batch, LZ4, out, entry, at, table)
        else:
            checksum, header = (BROKEN, V0_OVERHEAD) if magic == 0 else (CORRECT, V1_OVERHEAD)
            at = write_frame(data, start, end, checksum, matches, count, moves, leads, period, out, at + header, state)
            store_wrapper_header(batches, batch, magic, LZ4, out, entry, at, table)
    state[AT] = at
    return DONE
