"""Kernels of the offset map: hash keys, add them, look them up.

`table` holds SLOT integers for each slot: both halves of a key's hash, and its latest offset plus one, 0 for a free
slot. Linear probing starts at the slot given by the hash.
"""

from __future__ import annotations

from magicbyte.engine.compiled.kernel import Bytes, Int32s, Int64s, MutableBytes, kernel
from magicbyte.engine.compiled.primitives import prefetch_two
from magicbyte.engine.compiled.siphash import siphash128

# ---- statuses
DONE = 0
FULL = 1  # the table has the maximum number of keys
BAD_CELL = 2  # a key lies outside its data

# ---- fields of `state`
ROW = 0  # where `put_keys` stopped
KEYS = 1  # number of keys in the table
STATE = 2

SLOT = 3
AHEAD = 12  # rows whose slots are prefetched: each is a cache miss that takes as long as many rows
UPPER = 0x7FFFFFFF


@kernel
def hash_keys(data: Bytes, start: Int32s, length: Int32s, low: int, high: int, out: Int64s) -> int:
    """Store the hash of each key in `out`, two integers each; return DONE or BAD_CELL. Nulls (-1) are skipped.

    Shapes: start, length (n,), start may have one more; out (2 * n,). `low` and `high` are the secret.
    """
    for row in range(len(length)):
        at, size = start[row], length[row]
        if size >= 0:
            if at < 0 or size > len(data) - at:
                return BAD_CELL
            out[2 * row], out[2 * row + 1] = siphash128(data, at, at + size, low, high)
    return DONE


@kernel
def place_of(slots: int, first: int) -> int:
    """Return where in the table the probing for a hash begins."""
    return ((first & UPPER) * slots >> 31) * SLOT


@kernel
def find_slot(table: Int64s, slots: int, first: int, second: int) -> int:
    """Return the index in `table` of the slot of a hash: one that has it, or the free one for it."""
    at: int = place_of(slots, first)
    while table[at + 2] != 0 and (table[at] != first or table[at + 1] != second):
        at += SLOT
        if at == slots * SLOT:
            at = 0
    return at


@kernel
def put_keys(
    hashes: Int64s,
    key_length: Int32s,
    value_length: Int32s,
    offset: Int64s,
    begin: int,
    limit: int,
    table: Int64s,
    first: int,
    superseded: MutableBytes,
    odd: MutableBytes,
    state: Int64s,
) -> int:
    """Add the keys of records with offsets from `begin` on, from row state[ROW] on: DONE, or FULL at a row with a key.

    For offsets from `first` on, as many as the marks have bits: `superseded` gets a bit for a record whose key came
    again, `odd` for one without key or value. Shapes: hashes (2 * n,); key_length, value_length, offset (n,); table
    (slots * SLOT,); superseded, odd alike.
    """
    slots, bits = len(table) // SLOT, len(odd) * 8
    for row in range(state[ROW], len(key_length)):
        # The table is far larger than the caches, and a hash leads to a random slot: each look-up is a cache miss,
        # which takes as long as the rest of many rows. The slot of a row some places ahead is known from its hash, so
        # its lines are requested now, and a dozen misses are in flight at once.
        if row + AHEAD < len(key_length):
            prefetch_two(table, 8 * place_of(slots, hashes[2 * (row + AHEAD)]))
        bit = offset[row] - first
        if bit < 0 or offset[row] < begin:
            continue
        if key_length[row] < 0 or value_length[row] < 0:
            if bit < bits:
                odd[bit >> 3] = odd[bit >> 3] | (1 << (bit & 7))
            if key_length[row] < 0:
                continue
        if state[KEYS] >= limit:
            state[ROW] = row
            return FULL
        at = find_slot(table, slots, hashes[2 * row], hashes[2 * row + 1])
        if table[at + 2] == 0:
            state[KEYS] = state[KEYS] + 1
            table[at], table[at + 1] = hashes[2 * row], hashes[2 * row + 1]
        else:
            bit = table[at + 2] - 1 - first
            if bit < bits:
                superseded[bit >> 3] = superseded[bit >> 3] | (1 << (bit & 7))
        table[at + 2] = offset[row] + 1
    state[ROW] = len(key_length)
    return DONE


@kernel
def find_keys(hashes: Int64s, key_length: Int32s, table: Int64s, out: Int64s) -> None:
    """Store the latest offset of each key in `out`, -1 for a null or a key that is not in the table."""
    slots = len(table) // SLOT
    for row in range(len(key_length)):
        if row + AHEAD < len(key_length):
            prefetch_two(table, 8 * place_of(slots, hashes[2 * (row + AHEAD)]))
        out[row] = -1
        if key_length[row] >= 0:
            at = find_slot(table, slots, hashes[2 * row], hashes[2 * row + 1])
            out[row] = table[at + 2] - 1
