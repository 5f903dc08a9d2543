"""The shallow walk: find each message, wrapper and batch of a slice by its header.

It reads a magic byte, a size and a few header fields. It verifies no checksum and decompresses nothing.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from magicbyte.engine.compiled.kernel import Ints, worth_compiling
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.kernels.scan import TABLE, scan_entries
from magicbyte.engine.records.kernels.statuses import (
    AT,
    BAD_BATCH_CRC,
    BAD_CRC,
    BAD_HEADER,
    BAD_KEY_LENGTH,
    BAD_MAGIC,
    BAD_RECORD_LENGTH,
    BAD_SIZE,
    BAD_TAGS,
    BAD_VALUE_LENGTH,
    BAD_VARINT,
    BAD_WRAPPER_OFFSET,
    CUT_MESSAGE,
    EXPECTED,
    FOUND,
    FULL,
    NEED,
    NESTED,
    NO_MESSAGES,
    ROWS,
    STATE,
    TRAILING_BYTES,
)
from magicbyte.engine.records.layout import CODEC_MASK, LOG_OVERHEAD, SIZE_AT, Dialect, Field

if TYPE_CHECKING:
    import numpy as np

GROUP_BYTES = 4 << 20  # of records per RecordColumns: enough that the Python code between kernel calls does not matter
_ROWS_AT_FIRST = 1024


class BatchTable(Struct):
    """One row per entry of `buffer`: v0 or v1 message, wrapper, v2 batch, enriched message or wrapper.

    Each column is a list (small slices) or an int64 array: `position` and `size` in bytes, including the 12 bytes of
    offset and size field; `magic`; `attributes`; `offset`, the header's first field; `count`: 1 for a plain message
    (more if `scan` merged several), the header's record count for a v2 batch, -1 for a wrapper.

    `end` is the position where the walk ended. If that is before the end of the buffer, `damage` is the reason. If
    `damage` is None the last entry is incomplete, and `need` is its size (or 17, enough to parse the size).
    """

    buffer: memoryview
    dialect: Dialect
    position: Ints
    size: Ints
    magic: Ints
    attributes: Ints
    offset: Ints
    count: Ints
    end: int
    need: int
    damage: CorruptRecordError | None

    def __len__(self) -> int:
        return len(self.position)

    def gather(self, field: Field, rows: Any = slice(None)) -> np.ndarray[Any, Any]:
        """Return a header field of the given rows (which must have this field) as an int64 array."""
        import numpy as np

        from magicbyte.engine.records.arrays import at_each_byte

        width = field.type.size
        positions = np.asarray(self.position, np.int64)[rows]
        if not len(positions):
            return np.empty(0, np.int64)
        kind = "u" if field.type.format.isupper() else "i"
        return np.asarray(at_each_byte(self.buffer, f">{kind}{width}", field.start)[positions], np.int64)

    @property
    def codec(self) -> np.ndarray[Any, Any]:
        """The codec number of each row; 0 for control messages of the enriched dialect."""
        import numpy as np

        attributes = np.asarray(self.attributes, np.int64)
        if self.dialect is Dialect.ENRICHED:
            return np.where(attributes & 8, 0, attributes & CODEC_MASK)
        return attributes & CODEC_MASK


def scan(buffer: memoryview, *, start: int = 0, dialect: Dialect = Dialect.KAFKA, merge: bool = False) -> BatchTable:
    """Walk the entries of `buffer` from position `start`. Never raises: see BatchTable.damage.

    `merge` joins neighbouring plain messages of one magic into one row of up to about GROUP_BYTES, for decoding.
    """
    enriched = int(dialect is Dialect.ENRICHED)
    plain = not worth_compiling(len(buffer) - start)
    state: Any = [0] * STATE
    walk: Any = scan_entries.py_func
    data: Any = buffer
    if not plain:
        import numpy as np

        walk, state, data = scan_entries, np.zeros(STATE, np.int64), np.frombuffer(buffer, np.uint8)
    at, status, capacity = start, FULL, _ROWS_AT_FIRST
    pieces = []
    while status == FULL:
        table: Any = [0] * (capacity * TABLE) if plain else np.empty(capacity * TABLE, np.int64)
        status = walk(data, at, len(buffer), enriched, GROUP_BYTES * merge, table, state)
        at = int(state[AT])
        pieces.append(table[: int(state[ROWS]) * TABLE])
        capacity *= 4
    whole: Any = list(itertools.chain.from_iterable(pieces)) if plain else np.concatenate(pieces)
    position, size, magic, attributes, offset, count = (whole[i::TABLE] for i in range(TABLE))
    damage = None
    if status in (BAD_SIZE, BAD_MAGIC):
        damage = complaint(status, state)
        damage.position = at
        if enriched and status == BAD_MAGIC:
            damage.expected = "1, the only one in the enriched dialect"
    need = int(state[NEED])
    return BatchTable(buffer, dialect, position, size, magic, attributes, offset, count, at, need, damage)


_COMPLAINTS = {
    BAD_SIZE: ("entry size", "at least {expected}", "{found}"),
    BAD_MAGIC: ("magic byte", "{expected}", "{found}"),
    BAD_BATCH_CRC: ("crc", "{expected:#010x}", "{found:#010x}"),
    BAD_CRC: ("crc of a message", "{expected:#010x}", "{found:#010x}"),
    BAD_KEY_LENGTH: ("key length", "-1 to {expected}", "{found}"),
    BAD_VALUE_LENGTH: ("value length", "-1, or {expected} and nothing after it", "{found}"),
    BAD_HEADER: ("headers of a record", "names that are not null, within {expected} bytes", "{found} headers"),
    BAD_VARINT: ("varint", "at most 5 bytes (timestamp: 10) within its record", "a longer one"),
    BAD_RECORD_LENGTH: ("record length", "6 to the end of the batch, all of it used", "{found}"),
    TRAILING_BYTES: ("bytes after the last record", "0", "{found}"),
    NESTED: ("type of a message inside a wrapper", "0, plain", "{found}"),
    BAD_TAGS: ("tags of an enriched message", "length -1 to {expected}, each tag whole", "{found}"),
    BAD_WRAPPER_OFFSET: ("wrapper offset", "0, or not below the last message's {expected}", "{found}"),
    NO_MESSAGES: ("messages in a wrapper", "at least 1", "none"),
    CUT_MESSAGE: ("end of the records", "{expected} more bytes or records", "{found}"),
}


def complaint(status: int, state: Ints) -> CorruptRecordError:
    """Return the error for a kernel's status and state. The caller sets its position."""
    what, expected, found = _COMPLAINTS[status]
    values = {"expected": int(state[EXPECTED]), "found": int(state[FOUND])}
    if status == BAD_MAGIC and not values["expected"]:
        return CorruptRecordError(what, expected="0, 1 or 2", found=values["found"])
    return CorruptRecordError(what, expected=expected.format(**values), found=found.format(**values))


def entry_end(buffer: memoryview, position: int) -> int:
    """Return the end of the entry at `position` by its size field, or the buffer's end if that is invalid."""
    if len(buffer) - position < LOG_OVERHEAD:
        return len(buffer)
    size = int.from_bytes(buffer[position + SIZE_AT : position + LOG_OVERHEAD], "big", signed=True)
    return min(position + LOG_OVERHEAD + size, len(buffer)) if size >= 0 else len(buffer)
