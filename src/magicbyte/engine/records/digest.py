"""Digests of records, to compare the content of logs independent of format, batching and order.

Each cell is hashed with XXH64, so that records are compared as arrays of integers. A digest is the sum of one hash per
record, so it does not depend on order or division. It does not resist deliberate collisions: the hash is not
cryptographic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct

from magicbyte.engine.compiled.kernel import worth_compiling
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records import digest_kernels as kernels
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from magicbyte.engine.records.columns import BytesColumn, HeaderColumns, RecordColumns

Array = np.ndarray[Any, Any]

_KEY, _VALUE, _NAME, _HEADER = range(1, 5)  # seeds, so that equal bytes as a key and as a value hash differently
_NULL = 0x4E554C4C  # stands for the hash of null, which differs from that of an empty cell
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Digest(NamedTuple):
    """Digest of a set of records, independent of their order. Each part includes the offsets.

    `body`: keys and values. `timestamps`: of the records that have one, without the type. `headers`: of the records
    that have headers.
    """

    records: int = 0
    body: int = 0
    timestamps: int = 0
    headers: int = 0

    def plus(self, other: Digest) -> Digest:
        """Return the digest of the union of two disjoint sets of records."""
        sums = ((mine + its) & 0xFFFFFFFFFFFFFFFF for mine, its in zip(self[1:], other[1:], strict=True))
        return Digest(self.records + other.records, *sums)

    def to_json(self) -> dict[str, Any]:
        """Return the parts in hexadecimal."""
        parts = {"body": self.body, "timestamps": self.timestamps, "headers": self.headers}
        return {"records": self.records, "digest": {name: f"{part:016x}" for name, part in parts.items()}}


NOTHING = Digest()


class RecordHashes(Struct):
    """Hashes of records. Shapes: (n,); int64 offsets and timestamps, int8 types, uint64 hashes.

    `headers` is 0 for a record without headers.
    """

    offset: Array
    timestamp: Array
    timestamp_type: Array
    key: Array
    value: Array
    headers: Array

    def __len__(self) -> int:
        return len(self.offset)

    def slice(self, first: int, end: int) -> RecordHashes:
        """Return the records `first` to `end` (positions, not offsets), without a copy."""
        chosen = slice(first, end)
        return RecordHashes(
            self.offset[chosen],
            self.timestamp[chosen],
            self.timestamp_type[chosen],
            self.key[chosen],
            self.value[chosen],
            self.headers[chosen],
        )

    def take(self, rows: Array) -> RecordHashes:
        """Return the records at `rows`: positions, or a mask."""
        return RecordHashes(
            self.offset[rows],
            self.timestamp[rows],
            self.timestamp_type[rows],
            self.key[rows],
            self.value[rows],
            self.headers[rows],
        )

    def digest(self) -> Digest:
        """Return the digest of these records."""
        places = _mixed(self.offset.view(np.uint64) * _ODD)
        times = _mixed(places ^ (self.timestamp.view(np.uint64) * _ODD))[self.timestamp != NO_TIMESTAMP]
        headers = _mixed(places ^ self.headers)[self.headers != 0]
        parts = _mixed(places ^ (_mixed(self.key) + self.value)), times, headers
        return Digest(len(self), *(int(part.sum(dtype=np.uint64)) for part in parts))


def hash_records(columns: RecordColumns) -> RecordHashes:
    """Return the hashes of records decoded with keys, values and headers."""
    assert columns.key is not None
    assert columns.value is not None
    assert columns.headers is not None
    return RecordHashes(
        np.ascontiguousarray(columns.offset, np.int64),
        np.ascontiguousarray(columns.timestamp, np.int64),
        np.asarray(columns.timestamp_type, np.int8),
        hash_cells(columns.key, _KEY),
        hash_cells(columns.value, _VALUE),
        _hash_headers(columns.headers),
    )


def hash_cells(cells: BytesColumn, seed: int) -> Array:
    """Return the hash of each cell. Raises CorruptRecordError for a cell outside the column's data."""
    length = np.asarray(cells.length, np.int32)
    total = int(np.maximum(length, 0).sum(dtype=np.int64))
    make = form_for(compiled=worth_compiling(total))
    if make is form_for(compiled=True):
        out: Any = np.empty(len(length), np.int64)
    else:
        out = make.zeros(len(length))
    data = make.bytes_of(cells.data)
    if make.form(kernels.hash_cells)(data, make.int32(cells.start), make.int32(length), seed, _NULL, out):
        raise CorruptRecordError("cell", expected=f"within {len(data)} bytes", found="one beyond them")
    return np.asarray(out, np.int64).view(np.uint64)


def _hash_headers(headers: HeaderColumns) -> Array:
    """Return a hash of each record's headers, dependent on their order; 0 for none."""
    count = np.asarray(headers.count, np.int64)
    hashes = np.zeros(len(count), np.uint64)
    if not len(headers.key):
        return hashes
    end = np.cumsum(count)
    place = np.arange(len(headers.key)) - np.repeat(end - count, count)  # index of each header within its record
    names, values = hash_cells(headers.key, _NAME), hash_cells(headers.value, _HEADER)
    each = _mixed(_mixed(names + place.astype(np.uint64) * _ODD) + values)
    sums = np.zeros(len(each) + 1, np.uint64)
    np.cumsum(each, out=sums[1:])
    hashes[:] = sums[end] - sums[end - count]
    return hashes


def _mixed(values: Array) -> Array:
    """Return each integer with its bits mixed by the finalizer of SplitMix64, a bijection."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    stirred: Array = values ^ (values >> np.uint64(31))
    return stirred
