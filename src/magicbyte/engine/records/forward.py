"""Forward many v2 batches to another cluster without decompressing them: only their headers change."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from magicbyte.engine.compiled.checksums import CASTAGNOLI
from magicbyte.engine.compiled.kernel import worth_compiling
from magicbyte.engine.records import forward_kernels as kernels
from magicbyte.engine.records.forms import Lists, form_for
from magicbyte.engine.records.layout import CONTROL_BIT, DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT
from magicbyte.engine.records.scan import BatchTable

MOST = 256  # batches per kernel call
NO_LIMIT = 1 << 62
_POWERS = 32


class Forwarded(NamedTuple):
    """Neighbouring batches of `data` with new headers.

    `rows` has the source facts of each batch: position, size in bytes, base offset, next offset, record count, codec
    number. `heads` has the new headers, kernels.HEADER bytes each. `sequence` is that of the record after them.
    """

    data: memoryview
    rows: list[tuple[int, ...]]
    heads: memoryview
    sequence: int

    @property
    def following(self) -> int:
        """The next offset after the last batch."""
        return self.rows[-1][kernels.R_FOLLOWING]


def forward_batches(
    table: BatchTable,
    row: int,
    first: int,
    stable: int,
    codecs: int,
    identity: tuple[int, int, int],
    *,
    transactional: bool = True,
    append_time: bool = True,
) -> Forwarded:
    """Return the batches from a row of a table on that need not be decompressed, up to the first that must be, or to
    MOST.

    Such a batch holds data, has no offset gaps, uses one of `codecs` (a bit for each), lies between the offsets `first`
    and `stable`, belongs to no transaction unless `transactional`, and has no LogAppendTime unless `append_time`.
    `identity`: producer id, epoch and sequence of the first batch, or -1 each. Offsets in the new headers count from 0.
    Checksums are not verified: a wrong CRC stays wrong, a right one stays right.
    """
    start, count = int(table.position[row]), min(len(table) - row, MOST)
    form = form_for(compiled=worth_compiling(table.end - start))
    heads, rows = form.outputs([(count * kernels.HEADER, "B"), (count * kernels.ROW, "q")])
    opened = CONTROL_BIT | DELETE_HORIZON_BIT | (0 if transactional else TRANSACTIONAL_BIT)
    opened |= 0 if append_time else LOG_APPEND_TIME_BIT
    state = form.int64([start, first, stable, codecs, opened, *identity])
    data, crcs = form.bytes_of(table.buffer), form.crc_table(CASTAGNOLI)
    found = form.form(kernels.forward_batches)(data, table.end, heads, rows, state, form.int64(powers()), crcs)
    each = iter(Lists.int64(rows[: found * kernels.ROW]))
    return Forwarded(
        table.buffer, list(zip(*[each] * kernels.ROW, strict=True)), memoryview(heads), int(state[kernels.SEQUENCE])
    )


@cache
def powers() -> list[int]:
    """Return x^(8 * 2^k) modulo the polynomial of CRC-32C for k from 0 on, as the kernel takes them."""
    found = [1 << 23]
    while len(found) < _POWERS:
        found.append(kernels.times.py_func(found[-1], found[-1]))
    return found
