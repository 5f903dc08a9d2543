"""Shallow mode: one row per message, wrapper or batch, from its header, without decompression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magicbyte.engine.log.files.reader import MAX_OFFSET
from magicbyte.engine.records import layout
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from magicbyte.engine.log.files.headers import Headers
    from magicbyte.engine.records.far_times import FarTimestamps


MAX_MILLIS_COLUMN = "maxTimestampMillis"
"""The column with the highest timestamp as stored, in milliseconds."""


def shallow_schema(*, millis: bool = False) -> pa.Schema:
    """Return the columns. Fields that a header lacks are null, such as base offset and count of a v0 or v1 wrapper.

    `millis` adds MAX_MILLIS_COLUMN.
    """
    import pyarrow as pa

    instant = pa.timestamp("us", tz="UTC")
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("baseOffset", pa.int64()),
            ("lastOffset", pa.int64()),
            ("segment", pa.string()),
            ("position", pa.int64()),
            ("size", pa.int32()),
            ("magic", pa.int32()),
            ("codec", pa.string()),
            ("maxTimestamp", instant),
            ("timestampType", pa.int32()),
            ("count", pa.int32()),
            ("crc", pa.int64()),
            ("producerId", pa.int64()),
            ("producerEpoch", pa.int32()),
            ("baseSequence", pa.int32()),
            ("partitionLeaderEpoch", pa.int32()),
            ("isTransactional", pa.bool_()),
            ("isControl", pa.bool_()),
            ("batch", pa.binary()),
        ]
    )
    return schema.append(pa.field(MAX_MILLIS_COLUMN, pa.int64())) if millis else schema


_CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7")


def shallow_batch(
    headers: Headers,
    rows: np.ndarray[Any, Any],
    schema: pa.Schema,
    far: FarTimestamps,
    topic: str | None,
    partition: int | None,
) -> pa.RecordBatch:
    """Return the columns of `schema` for the given rows (ascending). `batch` needs headers of whole entries.

    A timestamp that microseconds cannot hold is null, and counted in `far`.
    """
    import pyarrow as pa

    facts = _Facts(headers, rows)
    columns = []
    for field in schema:
        match field.name:
            case "topic":
                columns.append(pa.repeat(pa.scalar(topic, pa.string()), len(rows)))
            case "partition":
                columns.append(pa.repeat(pa.scalar(partition, pa.int32()), len(rows)))
            case "segment":
                columns.append(pa.repeat(pa.scalar(headers.file.path, pa.string()), len(rows)))
            case "maxTimestamp":
                micros = far.micros(facts.max_timestamp(), headers.offset[rows], topic, partition)
                columns.append(micros.cast(field.type))
            case name:
                columns.append(getattr(facts, f"_{name}")().cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_within(headers: Headers, first: int, end: int) -> tuple[np.ndarray[Any, Any], bool]:
    """Return the rows that may hold offsets from `first` to below `end`, and whether later entries may hold some, too.

    Headers of v0 and v1 wrappers have only the last offset. No row of an enriched log is left out.
    """
    import numpy as np

    keep = np.ones(len(headers), np.bool_)
    if headers.dialect is Dialect.ENRICHED:
        return np.flatnonzero(keep), True
    behind = (headers.offset >= end) & ~headers.is_wrapper & (end < MAX_OFFSET)
    more = not behind.any()
    if not more:
        keep[int(behind.argmax()) :] = False
    if first > 0:
        keep &= headers.last_offset >= first
    return np.flatnonzero(keep), more


class _Facts:
    """Header fields of some rows as Arrow arrays: one method per column.

    Their meanings are in docs/spark/dataframes.md.
    """

    def __init__(self, headers: Headers, rows: np.ndarray[Any, Any]) -> None:
        self.headers, self.rows = headers, rows
        self.enriched = headers.dialect is Dialect.ENRICHED
        self.fields = headers.fields[rows]
        self.is_batch, self.is_wrapper = headers.is_batch[rows], headers.is_wrapper[rows]

    def _integers(self, name: str) -> np.ndarray[Any, Any]:
        import numpy as np

        values: np.ndarray[Any, Any] = self.fields[name].astype(np.int64)
        return values

    def _of_batches(self, name: str) -> pa.Array:
        import pyarrow as pa

        return pa.array(self._integers(name), mask=~self.is_batch)

    def _baseOffset(self) -> pa.Array:  # noqa: N802 (the column's name)
        import pyarrow as pa

        return pa.array(self.headers.offset[self.rows], mask=self.is_wrapper & (not self.enriched))

    def _lastOffset(self) -> pa.Array:  # noqa: N802
        import pyarrow as pa

        return pa.array(self.headers.last_offset[self.rows], mask=self.is_wrapper & self.enriched)

    def _position(self) -> pa.Array:
        import pyarrow as pa

        return pa.array(self.headers.position[self.rows])

    def _size(self) -> pa.Array:
        import pyarrow as pa

        return pa.array(self.headers.size[self.rows])

    def _magic(self) -> pa.Array:
        import pyarrow as pa

        return pa.array(self.headers.magic[self.rows])

    def _codec(self) -> pa.Array:
        import pyarrow as pa

        return pa.array(_CODECS).take(pa.array(self.headers.codec[self.rows]))

    def max_timestamp(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the highest timestamp of each row, in ms."""
        import numpy as np

        if self.enriched:
            seconds = self._integers("seconds")
            return np.where(seconds == -1, NO_TIMESTAMP, (seconds & 0xFFFF_FFFF) * 1000)
        dated = np.where(self.fields["magic"] == 0, NO_TIMESTAMP, self._integers("message_timestamp"))
        return np.where(self.is_batch, self._integers("max_timestamp"), dated)

    def _maxTimestampMillis(self) -> pa.Array:  # noqa: N802
        import pyarrow as pa

        return pa.array(self.max_timestamp())

    def _timestampType(self) -> pa.Array:  # noqa: N802
        import numpy as np
        import pyarrow as pa

        if self.enriched:
            return pa.array(np.ones(len(self.rows), np.int64))
        late = (self.headers.attributes[self.rows] & layout.LOG_APPEND_TIME_BIT) >> 3
        return pa.array(np.where(self.fields["magic"] == 0, -1, late))

    def _count(self) -> pa.Array:
        import pyarrow as pa

        return pa.array(self.headers.count[self.rows], mask=self.is_wrapper)

    def _crc(self) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        return pa.array(np.where(self.is_batch, self._integers("batch_crc"), self._integers("message_crc")))

    def _producerId(self) -> pa.Array:  # noqa: N802
        return self._of_batches("producer_id")

    def _producerEpoch(self) -> pa.Array:  # noqa: N802
        return self._of_batches("producer_epoch")

    def _baseSequence(self) -> pa.Array:  # noqa: N802
        return self._of_batches("base_sequence")

    def _partitionLeaderEpoch(self) -> pa.Array:  # noqa: N802
        return self._of_batches("partition_leader_epoch")

    def _isTransactional(self) -> pa.Array:  # noqa: N802
        import pyarrow as pa

        return pa.array(self.is_batch & ((self.headers.attributes[self.rows] & layout.TRANSACTIONAL_BIT) != 0))

    def _isControl(self) -> pa.Array:  # noqa: N802
        import pyarrow as pa

        return pa.array(self.headers.is_control[self.rows])

    def _batch(self) -> pa.Array:
        """Return the bytes of each row, without a copy if the rows are adjacent."""
        import numpy as np
        import pyarrow as pa

        chunk = self.headers.chunk
        assert chunk is not None, "whole entries were read"
        buffer, size = chunk.table.buffer, self.headers.size[self.rows]
        position = self.headers.position[self.rows] - chunk.position
        if len(position) and not np.array_equal(position[1:], (position + size)[:-1]):
            return pa.array([bytes(buffer[at : at + n]) for at, n in zip(position, size, strict=True)], pa.binary())
        starts = np.append(position, position[-1:] + size[-1:]).astype(np.int32)
        return pa.Array.from_buffers(pa.binary(), len(size), [None, pa.py_buffer(starts), pa.py_buffer(buffer)])
