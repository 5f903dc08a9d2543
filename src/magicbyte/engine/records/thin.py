"""Remove records from many v2 batches with LZ4 at a time, for compaction, where this is most of the work."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from magicbyte.engine.codecs import compress_lz4_frames, lz4_frame_bound
from magicbyte.engine.compiled.checksums import CASTAGNOLI
from magicbyte.engine.records import proof_kernels as proof
from magicbyte.engine.records import thin_kernels as kernels
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.scan import BatchTable

Array = np.ndarray[Any, Any]

GROUP_BYTES = 1 << 20  # of remaining records: they are still in the caches when they are compressed


class Thinned(NamedTuple):
    """Batches after removal: for rows[i] of a table, data[i] is the new batch and last[i] the offset of its last
    record.
    """

    rows: list[int]
    data: list[memoryview]
    last: list[int]


def thin_lz4(table: BatchTable, rows: Array, low: int, gone: Array) -> Iterator[Thinned]:
    """Yield groups of batches without the removed records: those of offset `low` + i where gone[i].

    `rows` are v2 batches with LZ4 and without control records, whose checksums were verified, and `gone` covers all
    their offsets. The new headers keep offsets, producer and transaction; timestamps count from the first remaining
    record, as in Kafka's log cleaner. Rows that are damaged, framed in an unusual way, or left without records are not
    yielded; the caller rewrites these. Shapes: rows (n,), gone (m,) uint8.
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
    """Compress the records of batches and write their headers."""
    sections, size, count = facts[:, : kernels.STOP + 1].tolist(), int(facts[-1, kernels.STOP]), len(rows)
    (out,) = form.outputs([(count * kernels.HEADER + lz4_frame_bound(size, count), "B")])
    written = memoryview(out.data)
    bounds = compress_lz4_frames(memoryview(records.data), sections, written, kernels.HEADER)
    flat, crcs = np.ascontiguousarray(facts).reshape(-1), form.crc_table(CASTAGNOLI)
    form.form(kernels.close_batches)(data, position, flat, form.int64(bounds), crcs, out)
    batches = [written[start:stop] for start, stop in itertools.pairwise(bounds)]
    return Thinned(rows.tolist(), batches, facts[:, kernels.LAST_OFFSET].tolist())
