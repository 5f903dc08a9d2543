"""Taking records out of v2 batches with LZ4, many at a time: for compaction, where that is most of the work."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from magicbyte.codecs import compress_lz4_frames, lz4_frame_bound
from magicbyte.compiled.checksums import CASTAGNOLI
from magicbyte.records import proof_kernels as proof
from magicbyte.records import thin_kernels as kernels
from magicbyte.records.forms import form_for
from magicbyte.records.scan import BatchTable

Array = np.ndarray[Any, Any]

GROUP_BYTES = 1 << 20  # of records that stay: they are still in the caches when they are compressed


class Thinned(NamedTuple):
    """What is left of the batches in some rows of a table: that of rows[i] is data[i], its last record has last[i]."""

    rows: list[int]
    data: list[memoryview]
    last: list[int]


def thin_lz4(table: BatchTable, rows: Array, low: int, gone: Array) -> Iterator[Thinned]:
    """Yield batches, some at a time, without the records that are gone: those of offset `low` + i where gone[i].

    `rows` are v2 batches with LZ4 and without control records, whose checksums were verified, and `gone` speaks of all
    their offsets. Their headers keep what they say of offsets, producer and transaction; times are counted from the
    first record that stays, as Kafka's cleaner does it. Rows that are left out, since they are damaged, framed in an
    unusual way or lose everything, take the usual path. Shapes: rows (n,), gone (m,) uint8.
    """
    form = form_for(compiled=True)
    data, marks = form.bytes_of(table.buffer), form.bytes_of(gone)
    position, size = (np.asarray(each, np.int64)[rows] for each in (table.position, table.size))
    facts, slots, jobs = (np.zeros(n, np.int64) for n in (len(rows) * kernels.FACTS, 2 * len(rows), _JOBS))
    room, out = form.outputs([(proof.ROOM, "B"), (GROUP_BYTES, "B")])
    state, ends = np.zeros(kernels.STATE, np.int64), np.zeros(2, np.int64)
    first = 0
    while first < len(rows):
        state[:] = 0, first
        status = form.form(kernels.thin_batches)(
            data, position, size, low, marks, room, jobs, slots, ends, out, facts, state
        )
        end = int(state[kernels.ROW])
        if end > first:
            part = slice(first, end)
            yield _closed(form, data, rows[part], position[part], facts.reshape(-1, kernels.FACTS)[part], out)
        first = end + int(status == kernels.ODD or end == first)


_JOBS = proof.SLOTS * proof.JOB


def _closed(form: Any, data: Array, rows: Array, position: Array, facts: Array, records: Array) -> Thinned:
    """Compress the records of batches, and give them their headers."""
    sections, size, count = facts[:, : kernels.STOP + 1].tolist(), int(facts[-1, kernels.STOP]), len(rows)
    (out,) = form.outputs([(count * kernels.HEADER + lz4_frame_bound(size, count), "B")])
    written = memoryview(out.data)
    bounds = compress_lz4_frames(memoryview(records.data), sections, written, kernels.HEADER)
    flat, crcs = np.ascontiguousarray(facts).reshape(-1), form.crc_table(CASTAGNOLI)
    form.form(kernels.close_batches)(data, position, flat, form.int64(bounds), crcs, out)
    batches = [written[start:stop] for start, stop in itertools.pairwise(bounds)]
    return Thinned(rows.tolist(), batches, facts[:, kernels.LAST_OFFSET].tolist())
