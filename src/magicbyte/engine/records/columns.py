"""Records as columns: arrays over shared buffers, with light objects and Arrow as views of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from magicbyte.engine.compiled.kernel import Ints, worth_compiling
from magicbyte.engine.extras import require
from magicbyte.engine.records.far_times import MILLIS_COLUMN, FarTimestamps
from magicbyte.engine.records.kernels.cells import pack_cells

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


class Record(NamedTuple):
    """One record as a consumer sees it. `timestamp` is in ms since the epoch, -1 if it has none; `headers` keep their
    order.

    `timestamp_type` has Kafka's numbers: 0 CreateTime, 1 LogAppendTime, -1 none. `topic` and `partition` are None if
    the source does not name them.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str | None = None
    partition: int | None = None


class BytesColumn(Struct):
    """Keys, values or header cells: cell i is `length[i]` bytes (-1: null) of `data` from `start[i]` on.

    Shapes: start, length (n,) lists or int32 arrays. `packed`: the cells are adjacent, and `start` has one more
    element, the end of the last cell, as in Arrow.
    """

    data: Any
    start: Ints
    length: Ints
    packed: bool = False

    def __len__(self) -> int:
        return len(self.length)

    def cells(self) -> list[bytes | None]:
        """Return every cell as bytes, or None where it is null."""
        start, length = _as_list(self.start), _as_list(self.length)
        if not length:
            return []
        low = min(start)  # the cells may be a small part of the data, which can be a whole segment
        high = max(at + size for at, size in zip(start, length, strict=False))
        data = bytes(memoryview(self.data)[low:high])
        return [
            data[at - low : at - low + size] if size >= 0 else None for at, size in zip(start, length, strict=False)
        ]

    def slice(self, first: int, end: int) -> BytesColumn:
        """Return cells `first` to `end` over the same data."""
        start: Any = self.start
        length: Any = self.length
        return BytesColumn(self.data, start[first : end + 1 if self.packed else end], length[first:end], self.packed)

    def take(self, rows: np.ndarray[Any, Any]) -> BytesColumn:
        """Return the cells of `rows` (positions, any order) over the same data."""
        import numpy as np

        return BytesColumn(self.data, np.asarray(self.start, np.int32)[rows], np.asarray(self.length, np.int32)[rows])

    def pack(self) -> BytesColumn:
        """Return the same cells without gaps, in a buffer of their own."""
        import numpy as np

        if self.packed:
            return self
        start, length = np.asarray(self.start, np.int32), np.asarray(self.length, np.int32)
        total = int(np.maximum(length, 0).sum(dtype=np.int64))
        out_start, out = np.zeros(len(length) + 1, np.int32), np.empty(total, np.uint8)
        if worth_compiling(total):
            pack_cells(np.frombuffer(self.data, np.uint8), start, length, out_start, out)
        else:
            out[:] = np.frombuffer(b"".join(cell for cell in self.cells() if cell), np.uint8)
            np.cumsum(np.maximum(length, 0), out=out_start[1:])
        return BytesColumn(out, out_start, length, packed=True)

    def to_arrow(self, kind: pa.DataType | None = None) -> pa.Array:
        """Return the cells as an Arrow array of type binary, or `kind`, without a copy if they are packed."""
        import numpy as np
        import pyarrow as pa

        packed = self.pack()
        start, length = np.asarray(packed.start, np.int32), np.asarray(packed.length, np.int32)
        valid = length >= 0
        nulls = len(length) - int(np.count_nonzero(valid))
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
        buffers = [bitmap, pa.py_buffer(np.ascontiguousarray(start)), pa.py_buffer(packed.data)]
        return pa.Array.from_buffers(kind or pa.binary(), len(length), buffers, null_count=nulls)


class HeaderColumns(Struct):
    """Headers of all records, in order: `count[i]` of them belong to record i."""

    count: Ints
    key: BytesColumn
    value: BytesColumn

    def rows(self) -> Iterator[tuple[tuple[str, bytes | None], ...]]:
        """Yield the headers of each record. Names that are not UTF-8 keep their bytes as escapes."""
        at = 0
        names = [(name or b"").decode(errors="backslashreplace") for name in self.key.cells()]
        values = self.value.cells()
        for count in _as_list(self.count):
            yield tuple(zip(names[at : at + count], values[at : at + count], strict=True))
            at += count

    def take(self, rows: np.ndarray[Any, Any]) -> HeaderColumns:
        """Return the headers of the records `rows`."""
        import numpy as np

        count = np.asarray(self.count, np.int64)
        if not len(self.key):
            return HeaderColumns(count[rows], self.key, self.value)
        first = np.cumsum(count) - count
        each = [np.arange(first[row], first[row] + count[row]) for row in rows]
        cells = np.concatenate(each) if each else np.empty(0, np.int64)
        return HeaderColumns(count[rows], self.key.take(cells), self.value.take(cells))

    def to_arrow(self) -> pa.Array:
        """Return a list of structs of key (string) and value (binary) for each record, as Spark's Kafka source does."""
        import numpy as np
        import pyarrow as pa

        count = np.asarray(self.count, np.int32)
        ends = np.zeros(len(count) + 1, np.int32)
        np.cumsum(count, out=ends[1:])
        names = self.key.to_arrow()
        try:
            keys = names.cast(pa.string())
        except pa.ArrowInvalid:  # a name is not valid UTF-8
            keys = pa.array([(name.as_py() or b"").decode(errors="backslashreplace") for name in names], pa.string())
        pairs = pa.StructArray.from_arrays([keys, self.value.to_arrow()], ["key", "value"])
        return pa.ListArray.from_arrays(pa.array(ends), pairs, mask=pa.array(count == 0))


class RecordColumns(Struct):
    """Records in offset order: arrays of `offset`, `timestamp` (ms, -1 none) and `timestamp_type` (Kafka's numbers).

    Shapes: (n,), lists for few records and NumPy arrays for many; `np.asarray` accepts both. `key`, `value` and
    `headers` are None if they were not decoded.
    """

    offset: Ints
    timestamp: Ints
    timestamp_type: Ints
    key: BytesColumn | None
    value: BytesColumn | None
    headers: HeaderColumns | None

    def __len__(self) -> int:
        return len(self.offset)

    def __iter__(self) -> Iterator[Record]:
        """Yield each record as a Record. Parts that were not decoded are None or ()."""
        return self.rows()

    def rows(self, topic: str | None = None, partition: int | None = None) -> Iterator[Record]:
        """Yield each record as a Record of this topic and partition."""
        count = len(self)
        nothing: list[bytes | None] = [None] * count
        headers: Iterator[Any] | Sequence[Any] = [()] * count
        if self.headers is not None and len(self.headers.key):
            headers = self.headers.rows()
        columns: list[Iterable[Any]] = [
            _as_list(self.offset),
            _as_list(self.timestamp),
            _as_list(self.timestamp_type),
            self.key.cells() if self.key is not None else nothing,
            self.value.cells() if self.value is not None else nothing,
            headers,
        ]
        if topic is not None or partition is not None:
            columns += [repeat(topic), repeat(partition)]
        return map(Record, *columns)

    def slice(self, first: int, end: int) -> RecordColumns:
        """Return records `first` to `end` (positions, not offsets), over the same buffers."""
        if first == 0 and end >= len(self):
            return self
        if self.headers is not None and len(self.headers.key):
            import numpy as np

            return self.take(np.arange(first, min(end, len(self))))
        offset: Any = self.offset
        timestamp: Any = self.timestamp
        timestamp_type: Any = self.timestamp_type
        count: Any = self.headers and self.headers.count
        headers = self.headers and HeaderColumns(count[first:end], self.headers.key, self.headers.value)
        return RecordColumns(
            offset[first:end],
            timestamp[first:end],
            timestamp_type[first:end],
            self.key and self.key.slice(first, end),
            self.value and self.value.slice(first, end),
            headers,
        )

    def take(self, rows: np.ndarray[Any, Any]) -> RecordColumns:
        """Return the records at the positions `rows`, over the same buffers."""
        import numpy as np

        return RecordColumns(
            np.asarray(self.offset, np.int64)[rows],
            np.asarray(self.timestamp, np.int64)[rows],
            np.asarray(self.timestamp_type, np.int8)[rows],
            self.key and self.key.take(rows),
            self.value and self.value.take(rows),
            self.headers and self.headers.take(rows),
        )

    def to_arrow(
        self, schema: pa.Schema, far: FarTimestamps, *, topic: str | None = None, partition: int | None = None
    ) -> pa.RecordBatch:
        """Return the columns named in `schema`, in its order and types, as one Arrow batch.

        The known names are those of `arrow_schema()`, the schema of Spark's Kafka source, and MILLIS_COLUMN. Keys and
        values that were decoded packed are not copied. A timestamp that microseconds cannot hold is null, and counted
        in `far`, which the caller must report.
        """
        import numpy as np
        import pyarrow as pa

        count = len(self)
        columns = []
        for field in schema:
            match field.name:
                case "key" | "value":
                    cells = self.key if field.name == "key" else self.value
                    columns.append(cells.to_arrow() if cells is not None else pa.nulls(count, field.type))
                case "topic":
                    columns.append(pa.repeat(pa.scalar(topic, pa.string()), count))
                case "partition":
                    columns.append(pa.array(np.full(count, -1 if partition is None else partition, np.int32)))
                case "offset":
                    columns.append(pa.array(np.asarray(self.offset, np.int64)))
                case "timestamp":
                    millis, offset = np.asarray(self.timestamp, np.int64), np.asarray(self.offset, np.int64)
                    columns.append(far.micros(millis, offset, topic, partition).cast(field.type))
                case name if name == MILLIS_COLUMN:
                    columns.append(pa.array(np.asarray(self.timestamp, np.int64)))
                case "timestampType":
                    columns.append(pa.array(np.asarray(self.timestamp_type, np.int32)))
                case "headers":
                    assert self.headers is not None, "headers were not decoded"
                    columns.append(self.headers.to_arrow())
                case unknown:
                    raise KeyError(unknown)
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def arrow_schema(*, headers: bool = False, millis: bool = False) -> pa.Schema:
    """Return the schema of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType.

    `headers` and `millis` (MILLIS_COLUMN) add columns. Raises MissingExtraError without pyarrow. All conversions to
    Arrow call this first.
    """
    require("arrow", "an Arrow or Parquet output")
    import pyarrow as pa

    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if headers:
        pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pair)))
    if millis:
        fields.append(pa.field(MILLIS_COLUMN, pa.int64()))
    return pa.schema(fields)


def _as_list(column: Ints) -> list[int]:
    return column if isinstance(column, list) else column.tolist()  # type: ignore[attr-defined]
