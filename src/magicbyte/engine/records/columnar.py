"""Write records as Arrow IPC streams and Parquet files, with the columns of Spark's Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, Self

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.columns import RecordColumns, arrow_schema
from magicbyte.engine.records.far_times import FarTimestamps

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np
    import pyarrow as pa

    Int64Array = np.ndarray[Any, np.dtype[np.int64]]

# larger row groups are slower to write: their memory is new to the process and exceeds the caches
ROW_GROUP_BYTES = 16 << 20
ROW_GROUP_ROWS = 1 << 20
_REPEATED = ("topic", "partition", "timestampType", "key", "headers.list.element.key")
"""Columns with dictionary encoding. For the other columns a dictionary costs a fifth of the time and seldom helps."""
_SOUGHT = ("topic", "partition", "timestampType", "key", "offset", "timestamp")
"""Columns with statistics. Queries do not filter by the others."""
_CELLS_AT_ONCE = 16384
_ROW_BYTES = 33  # a record without key and value: offset, timestamp, type, partition, ends of key and value, topic


class _Writer:
    """A context manager that finishes the output at its end, also after a CorruptRecordError: earlier records stay
    readable.

    After any other error it abandons the output and writes no more. `far` counts the timestamps that became null, which
    the caller must report.
    """

    def __init__(self) -> None:
        self.far = FarTimestamps()

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
        """Stop writing and leave the output unfinished."""


class ArrowWriter(_Writer):
    """Write a stream of Arrow batches that can be read while it grows. `millis` adds the column MILLIS_COLUMN."""

    def __init__(self, stream: BinaryIO, *, millis: bool = False) -> None:
        super().__init__()
        self._schema = arrow_schema(headers=True, millis=millis)
        import pyarrow as pa

        self._writer: Any = pa.ipc.new_stream(stream, self._schema)

    def write(self, columns: RecordColumns, topic: str | None, partition: int | None) -> None:
        """Add the records of one partition."""
        self._writer.write_batch(columns.to_arrow(self._schema, self.far, topic=topic, partition=partition))

    def close(self) -> None:
        """Finish the stream."""
        self._writer.close()


def _names() -> pa.DataType:
    """Return the type of a column with few distinct values: a dictionary that is written without a look-up for each
    cell.
    """
    import pyarrow as pa

    return pa.dictionary(pa.int32(), pa.string())


class ParquetWriter(_Writer):
    """Write a Parquet file in row groups of up to ROW_GROUP_BYTES. It is complete only after `close`.

    The same records give the same bytes, however they are divided between calls: the end of a row group depends only on
    the size of its records, and each row group is encoded as a whole. `codec` compresses the pages: none, snappy, gzip,
    lz4 or zstd. `millis` adds the column MILLIS_COLUMN.
    """

    def __init__(self, stream: BinaryIO, *, codec: str = "zstd", millis: bool = False) -> None:
        super().__init__()
        whole = arrow_schema(headers=True, millis=millis)
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
            store_schema=False,  # readers see a plain string column for topics, not a dictionary
        )
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0

    def write(self, columns: RecordColumns, topic: str | None, partition: int | None) -> None:
        """Add the records of one partition."""
        import numpy as np
        import pyarrow as pa

        batch, count = columns.to_arrow(self._others, self.far, topic=topic, partition=partition), len(columns)
        if topic is None:
            names = pa.nulls(count, _names())
        else:
            names = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([topic], pa.string()))
        batch = batch.add_column(self._at, "topic", names)
        ends = np.cumsum(_row_bytes(columns))  # cumulative size after each row
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
            # Combined into one chunk, because a page ends where a chunk ends.
            self._writer.write_table(pa.Table.from_batches(self._waiting).combine_chunks(), row_group_size=self._rows)
        self._waiting, self._bytes, self._rows = [], 0, 0

    def close(self) -> None:
        """Write the last row group and the footer."""
        self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """Stop writing and leave the output unfinished."""
        self._waiting = []
        self._writer.is_open = False  # otherwise the writer's finalizer would write a footer


def _row_bytes(columns: RecordColumns) -> Int64Array:
    """Return the approximate memory of each record in bytes, with its share of fixed-width columns. Shape (n,)."""
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
