"""The offset map of compaction: for each key, identified by a 128-bit hash, the offset of its latest record.

Memory: 24 bytes a slot, of which nine in ten may be used, so 27 bytes a key; Kafka's own map needs as much. The hash is
keyed: without the secret two colliding keys cannot be constructed. Besides the map there are two marks, a bit each,
for each offset that was read, so that records just read need no look-up: docs/commands/compact.md. Source for the fill
limit: Kafka's Cleaner and SkimpyOffsetMap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.cleaning import offset_map_kernels as kernels
from magicbyte.engine.records.forms import form_for

if TYPE_CHECKING:
    from magicbyte.engine.records.columns import BytesColumn, RecordColumns

Array = np.ndarray[Any, Any]

SLOT_BYTES = 8 * kernels.SLOT
_MOST_MARKS = 1 << 31  # offsets: 256 MiB for each kind of mark


class OffsetMap:
    """The map of one compaction, of records with offsets from `begin` to below `end`.

    `dedupe_bytes` bounds its memory, marks apart, and with `load_factor` its number of keys (at least one). `latest` is
    the last offset that it covers. `secret`: 16 bytes. `compiled`: as kernels, for many records.
    """

    def __init__(
        self, begin: int, end: int, *, dedupe_bytes: int, load_factor: float, secret: bytes, compiled: bool
    ) -> None:
        self.begin, self.latest = begin, begin - 1
        slots = dedupe_bytes // SLOT_BYTES
        self.limit = max(int(slots * load_factor), 1)
        used = min(max(slots, 2), int((end - begin) / load_factor) + 2)  # at most as many keys as offsets
        self._form = form_for(compiled=compiled)
        self._table = self._form.zeros(used * kernels.SLOT)
        self._state = self._form.zeros(kernels.STATE)
        count = end - begin if end - begin <= _MOST_MARKS else 0
        self.marked_end = begin + count
        self._superseded, self._odd = bytearray(-(-count // 8)), bytearray(-(-count // 8))
        self._secret = (
            int.from_bytes(secret[:8], "little", signed=True),
            int.from_bytes(secret[8:16], "little", signed=True),
        )

    @property
    def keys(self) -> int:
        """The number of keys in it."""
        return int(self._state[kernels.KEYS])

    def _hashes(self, keys: BytesColumn) -> Any:
        form = self._form
        out = form.zeros(2 * len(keys))
        status = form.form(kernels.hash_keys)(
            form.bytes_of(keys.data), form.int32(keys.start), form.int32(keys.length), *self._secret, out
        )
        if status != kernels.DONE:
            raise CorruptRecordError("key", expected=f"within {len(keys.data)} bytes", found="one beyond them")
        return out

    def put(self, columns: RecordColumns) -> bool:
        """Add records that follow the previous ones; return whether all fit. `latest` is before one that does not."""
        assert columns.key is not None
        assert columns.value is not None
        form, state = self._form, self._state
        state[kernels.ROW] = 0
        marks = (form.bytes_of(each) if each else form.outputs([(0, "B")])[0] for each in (self._superseded, self._odd))
        status = form.form(kernels.put_keys)(
            self._hashes(columns.key), form.int32(columns.key.length), form.int32(columns.value.length),
            form.int64(columns.offset), self.begin, self.limit, self._table, self.begin, *marks, state,
        )  # fmt: skip
        if status == kernels.FULL:
            row = int(state[kernels.ROW])
            self.latest = max(self.latest, int(columns.offset[row - 1]) if row else self.latest)
            return False
        if len(columns):
            self.latest = max(self.latest, int(columns.offset[len(columns) - 1]))
        return True

    def read_to(self, offset: int) -> None:
        """Record that everything up to `offset` was read: a gap, or records that do not count."""
        self.latest = max(self.latest, offset)

    def latest_of(self, keys: BytesColumn) -> Array:
        """Return the latest offset of each key, -1 if it is not in the map. Shape: (n,) int64."""
        form = self._form
        out = form.zeros(len(keys))
        form.form(kernels.find_keys)(self._hashes(keys), form.int32(keys.length), self._table, out)
        return np.asarray(out, np.int64)

    def superseded(self, first: int, end: int) -> Array:
        """Return for each offset from `first` to below `end`, all of them marked, whether its key came again."""
        return self._bits(self._superseded, first, end)

    def odd(self, first: int, end: int) -> Array:
        """Return for each offset whether its record has no key or no value."""
        return self._bits(self._odd, first, end)

    def _bits(self, marks: bytearray, first: int, end: int) -> Array:
        begin = first - self.begin
        low = begin >> 3
        data = np.frombuffer(marks, np.uint8)[low : (end - self.begin + 7) >> 3]
        return np.unpackbits(data, bitorder="little")[begin - 8 * low : end - self.begin - 8 * low]
