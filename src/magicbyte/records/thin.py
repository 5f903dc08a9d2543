"""Taking records out of v2 batches with LZ4, many at a time: for compaction, where that is most of the work."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from magicbyte.codecs import compress_lz4_into, lz4_frame_bound
from magicbyte.records import proof_kernels as proof
from magicbyte.records import thin_kernels as kernels
from magicbyte.records.forms import form_for
from magicbyte.records.scan import BatchTable
from magicbyte.wire.primitives import CASTAGNOLI

Array = np.ndarray[Any, Any]

GROUP_BYTES = 1 << 20  # of records that stay: they are still in the caches when they are compressed


class Thinned(NamedTuple):
    """What is left of the batch in a row of a table: the whole new batch, and the offset of its last record."""

    row: int
    data: memoryview
    last: int


def thin_lz4(table: BatchTable, rows: Array, low: int, gone: Array) -> Iterator[Thinned]:
    """Yield batches without the records that are gone: of offset `low` + i where gone[i], as far as this can do it.

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
            yield from _closed(form, data, rows[part], position[part], facts.reshape(-1, kernels.FACTS)[part], out)
        first = end + int(status == kernels.ODD or end == first)


_JOBS = proof.SLOTS * proof.JOB


def _closed(form: Any, data: Array, rows: Array, position: Array, facts: Array, records: Array) -> Iterator[Thinned]:
    """Compress the records of batches, and yield them with their headers."""
    sections = facts[:, : kernels.STOP + 1].tolist()
    (out,) = form.outputs([(sum(kernels.HEADER + lz4_frame_bound(stop - start) for start, stop in sections), "B")])
    source, written = memoryview(records.data), memoryview(out)
    bounds = [0]
    for start, stop in sections:
        at = bounds[-1] + kernels.HEADER
        bounds.append(at + compress_lz4_into(source[start:stop], written[at:]))
    flat, crcs = np.ascontiguousarray(facts).reshape(-1), form.crc_table(CASTAGNOLI)
    form.form(kernels.close_batches)(data, position, flat, form.int64(bounds), crcs, out)
    last = facts[:, kernels.LAST_OFFSET].tolist()
    for row, (start, stop), offset in zip(rows.tolist(), itertools.pairwise(bounds), last, strict=True):
        yield Thinned(row, written[start:stop], offset)
