"""Convert LZ4 to LZ4 with less work: decompress many entries at a time, and keep the matches of their frames.

An encoder of the same records in another format can reuse these matches instead of searching: see `OldFrames` of
encode.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from magicbyte.engine.codecs import lz4_kernels as lz4
from magicbyte.engine.compiled.checksums import CASTAGNOLI, IEEE
from magicbyte.engine.compiled.kernel import Ints, worth_compiling
from magicbyte.engine.records import repack_kernels as repack
from magicbyte.engine.records.columns import RecordColumns
from magicbyte.engine.records.decode import DecodeOptions, decode_entries, decode_opened
from magicbyte.engine.records.encode import OldFrames
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.kernels.runs import RUN
from magicbyte.engine.records.scan import BatchTable

GROUP_BYTES = 2 << 20  # of decompressed entries
_ROOM = 4 << 20  # for these and the last entry of a group
_MOST_ENTRIES = 4096  # per group
_PLAIN_COSTS = 8  # how many times the cost per byte of other plain twins


def decode_lz4(
    table: BatchTable, rows: Sequence[int], options: DecodeOptions
) -> Iterator[tuple[Sequence[int], Ints, RecordColumns, OldFrames | None]]:
    """Decode neighbouring rows of one magic compressed with LZ4, as `decode_entries` does, and yield their frames as
    well.

    Not for the enriched dialect. Entries that are damaged, very large or framed in an unusual way are decoded one by
    one, without frames.
    """
    compiled = worth_compiling(_PLAIN_COSTS * len(table.buffer))
    form = form_for(compiled=compiled)
    data, magic = form.bytes_of(table.buffer), int(table.magic[rows[0]])
    position: Any = table.position
    size: Any = table.size
    position, size = (form.int64(column[rows[0] : rows[-1] + 1]) for column in (position, size))
    crc_table = form.crc_table(CASTAGNOLI if magic == 2 else IEEE)
    first = 0
    while first < len(rows):
        last = min(first + _MOST_ENTRIES, len(rows))
        most = min(form.sum(size[first:last]) // 3, _ROOM // 4)
        scratch, matches = form.outputs([(_ROOM, "B"), (most * lz4.MATCH, "i")])
        runs, places, state = (
            form.zeros(count) for count in ((last - first) * RUN, (last - first) * repack.PLACES, lz4.STATE)
        )
        status = form.form(repack.open_entries)(
            data, position[first:last], size[first:last], magic, int(options.verify), int(options.any_lz4_header),
            options.limit, GROUP_BYTES, crc_table, scratch, matches, runs, places, state,
        )  # fmt: skip
        opened = int(state[lz4.LEAD])
        if opened:
            old = OldFrames(places[: opened * repack.PLACES], matches)
            taken, runs = list(rows[first : first + opened]), runs[: opened * RUN]
            for found in decode_opened(table, taken, options, scratch[: int(state[lz4.AT])], runs, compiled=compiled):
                yield *found, old
            first += opened
        if first < len(rows) and (status == lz4.ODD or not opened):
            for found in decode_entries(table, [rows[first]], options):
                yield *found, None
            first += 1
