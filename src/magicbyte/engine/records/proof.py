"""Find the entries whose records are provably sound, without decoding them into columns."""

from __future__ import annotations

from typing import Any

from magicbyte.engine.compiled.checksums import CASTAGNOLI
from magicbyte.engine.compiled.kernel import worth_compiling
from magicbyte.engine.records import proof_kernels
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.kernels.runs import RUN
from magicbyte.engine.records.kernels.statuses import STATE
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import BatchTable


def doubtful_rows(table: BatchTable, limit: int) -> list[int]:
    """Return the rows of `table` that must be decoded to decide whether they are sound; the others are sound.

    Sound, apart from checksums, are batches of at most `limit` bytes, compressed or not, whose records can be decoded,
    with ascending offsets within the header's range, and with the header's max timestamp.
    """
    if table.dialect is Dialect.ENRICHED or not worth_compiling(len(table.buffer)):
        return list(range(len(table)))
    import numpy as np

    make = form_for(compiled=True)
    is_batch = np.asarray(table.magic, np.int64) == 2
    rows = np.flatnonzero(is_batch)
    position, size = (np.asarray(each, np.int64)[rows] for each in (table.position, table.size))
    most = proof_kernels.MOST_RECORDS
    wanted = [(proof_kernels.ROOM, "B"), (proof_kernels.SLOTS * proof_kernels.JOB, "q"), (2 * len(rows), "q")]
    wanted += [(RUN, "q"), (most, "q"), (most, "q"), (most, "b"), (most, "i"), (STATE, "q")]
    outputs: list[Any] = make.outputs([*wanted, (len(rows), "b")])
    doubtful = proof_kernels.prove_batches(
        make.bytes_of(table.buffer), position, size, limit, make.crc_table(CASTAGNOLI), *outputs
    )
    if not doubtful and len(rows) == len(table):
        return []
    is_batch[rows] = outputs[-1] == 0
    found: list[int] = np.flatnonzero(is_batch | (np.asarray(table.magic, np.int64) != 2)).tolist()
    return found
