"""Records as Arrow IPC streams and Parquet files, with the columns of Spark's Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, Self

from magicbyte.errors import CorruptRecordError
from magicbyte.records.columns import RecordColumns, arrow_schema

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np
    import pyarrow as pa

    Int64Array = np.ndarray[Any, np.dtype[np.int64]]

ROW_GROUP_BYTES = 16 << 20  # more is written more slowly: memory that is new to the process, out of the caches
ROW_GROUP_ROWS = 1 << 20
_REPEATED = ("topic", "partition", "timestampType", "key", "headers.list.element.key")
"""Columns whose cells come again: dictionaries of the others, offsets and values, cost a fifth of the time."""
_SOUGHT = ("topic", "partition", "timestampType", "key", "offset", "timestamp")
"""Columns that have statistics: by those of the others nobody picks rows."""
_CELLS_AT_ONCE = 16384
_ROW_BYTES = 33  # of a record without a cell: offset, timestamp, its type, partition, ends of key and value, topic


class _Writer:
    """A context: at its end the output is finished, also behind damage: what came before can be read.

    After any other error it is abandoned, and nothing is written any more.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if error is not None and not isinstance(error, CorruptRecordError):
            self.abandon()
            return
        try:
            self.close()
        except BaseException:
            self.abandon()
            raise

    def close(self) -> None:
        """Finish the output."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Give the output up as it is."""


class ArrowWriter(_Writer):
    """Writes a stream of Arrow batches; what is in it can be read while it grows."""

    def __init__(self, stream: BinaryIO) -> None:
        self._schema = arrow_schema(headers=True)
        import pyarrow as pa

        self._writer: Any = pa.ipc.new_stream(stream, self._schema)

    def write(self, columns: RecordColumns, topic: str | None, partition: int | None) -> None:
        """Add the records of one partition."""
        self._writer.write_batch(columns.to_arrow(self._schema, topic=topic, partition=partition))

    def close(self) -> None:
        """Finish the stream."""
        self._writer.close()


def _names() -> pa.DataType:
    """Return the type of a column of a few names: none of its cells is looked up again to be written."""
    import pyarrow as pa

    return pa.dictionary(pa.int32(), pa.string())


class ParquetWriter(_Writer):
    """Writes a Parquet file in row groups of up to ROW_GROUP_BYTES; it is whole only after `close`.

    The same records give the same bytes, however many of them come at a time: a row group ends where the size of its
    records says so, and is encoded as a whole. `codec`: of its pages; none, snappy, gzip, lz4 or zstd.
    """

    def __init__(self, stream: BinaryIO, *, codec: str = "zstd") -> None:
        whole = arrow_schema(headers=True)
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._at = whole.names.index("topic")
        self._others = whole.remove(self._at)
        self._writer: Any = pq.ParquetWriter(
            stream,
            whole.set(self._at, pa.field("topic", _names())),
            compression=codec,
            use_dictionary=list(_REPEATED),
            write_statistics=list(_SOUGHT),
            write_batch_size=_CELLS_AT_ONCE,
            store_schema=False,  # a topic is a string to who reads it
        )
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0

    def write(self, columns: RecordColumns, topic: str | None, partition: int | None) -> None:
        """Add the records of one partition."""
        import numpy as np
        import pyarrow as pa

        batch, count = columns.to_arrow(self._others, partition=partition), len(columns)
        if topic is None:
            names = pa.nulls(count, _names())
        else:
            names = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([topic], pa.string()))
        batch = batch.add_column(self._at, "topic", names)
        ends = np.cumsum(_row_bytes(columns))  # behind each row
        first = before = 0
        while first < count:
            full = int(np.searchsorted(ends, before + ROW_GROUP_BYTES - self._bytes)) + 1
            end = min(full, first + ROW_GROUP_ROWS - self._rows, count)
            self._waiting.append(batch.slice(first, end - first))
            self._bytes, self._rows = self._bytes + int(ends[end - 1]) - before, self._rows + end - first
            first, before = end, int(ends[end - 1])
            if self._bytes >= ROW_GROUP_BYTES or self._rows >= ROW_GROUP_ROWS:
                self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._waiting:
            # In one piece: pages end at the end of a piece, too.
            self._writer.write_table(pa.Table.from_batches(self._waiting).combine_chunks(), row_group_size=self._rows)
        self._waiting, self._bytes, self._rows = [], 0, 0

    def close(self) -> None:
        """Write the last row group and the footer."""
        self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """Give the output up as it is."""
        self._waiting = []
        self._writer.is_open = False  # else it would be finished when it is collected


def _row_bytes(columns: RecordColumns) -> Int64Array:
    """Return about how much memory each record takes: its cells, and the numbers beside them. Shape (n,)."""
    import numpy as np

    size = np.full(len(columns), _ROW_BYTES, np.int64)
    for cells in (columns.key, columns.value):
        if cells is not None:
            size += np.maximum(np.asarray(cells.length, np.int64), 0)
    if columns.headers is not None and len(columns.headers.key):
        each = [
            np.maximum(np.asarray(cells.length, np.int64), 0) for cells in (columns.headers.key, columns.headers.value)
        ]
        ends = np.concatenate(([0], np.cumsum(each[0] + each[1])))
        last = np.cumsum(np.asarray(columns.headers.count, np.int64))
        size += np.diff(ends[last], prepend=0)
    return size
