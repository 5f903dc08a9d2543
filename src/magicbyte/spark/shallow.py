"""Shallow mode: one row per message, wrapper or batch, from its header alone, with its bytes unopened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magicbyte.records import layout
from magicbyte.records.layout import Dialect

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from magicbyte.log.reader import Chunk


def shallow_schema() -> pa.Schema:
    """Return the columns. What a header does not tell is null: base offset and count of a v0 or v1 wrapper, say."""
    import pyarrow as pa

    instant = pa.timestamp("us", tz="UTC")
    return pa.schema(
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


_CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7")


def shallow_batch(
    chunk: Chunk, rows: list[int], schema: pa.Schema, topic: str | None, partition: int | None
) -> pa.RecordBatch:
    """Return the columns of `schema` for the given rows of a chunk, which are neighbours or not."""
    import pyarrow as pa

    facts = _Facts(chunk, rows)
    columns = []
    for field in schema:
        match field.name:
            case "topic":
                columns.append(pa.repeat(pa.scalar(topic, pa.string()), len(rows)))
            case "partition":
                columns.append(pa.repeat(pa.scalar(partition, pa.int32()), len(rows)))
            case "segment":
                columns.append(pa.repeat(pa.scalar(chunk.path, pa.string()), len(rows)))
            case "batch":
                columns.append(facts.batches())
            case name:
                columns.append(getattr(facts, f"_{name}")().cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Facts:
    """Header fields of some rows of a table, as Arrow arrays. Each method gives the column of its name."""

    def __init__(self, chunk: Chunk, rows: list[int]) -> None:
        import numpy as np

        self.chunk, self.table, self.rows = chunk, chunk.table, np.array(rows)
        self.enriched = chunk.table.dialect is Dialect.ENRICHED
        self.magic = np.asarray(self.table.magic, np.int64)[self.rows]
        self.attributes = np.asarray(self.table.attributes, np.int64)[self.rows]
        self.offset = np.asarray(self.table.offset, np.int64)[self.rows]
        self.is_batch = self.magic == 2
        self.is_wrapper = ~self.is_batch & (np.asarray(self.table.count, np.int64)[self.rows] < 0)

    def _field(self, field: layout.Field, only: np.ndarray[Any, Any], default: int = -1) -> np.ndarray[Any, Any]:
        """Return a field of the rows where `only` holds, and `default` elsewhere."""
        import numpy as np

        values = np.full(len(self.rows), default, np.int64)
        values[only] = self.table.gather(field, self.rows[only])
        return values

    def _baseOffset(self) -> pa.Array:  # noqa: N802 (the column's name)
        import pyarrow as pa

        return pa.array(self.offset, mask=self.is_wrapper & (not self.enriched))

    def _lastOffset(self) -> pa.Array:  # noqa: N802
        import pyarrow as pa

        last = self.offset + self._field(layout.LAST_OFFSET_DELTA, self.is_batch, 0)
        return pa.array(last, mask=self.is_wrapper & self.enriched)

    def _position(self) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        return pa.array(np.asarray(self.table.position, np.int64)[self.rows] + self.chunk.position)

    def _size(self) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        return pa.array(np.asarray(self.table.size, np.int64)[self.rows])

    def _magic(self) -> pa.Array:
        import pyarrow as pa

        return pa.array(self.magic)

    def _codec(self) -> pa.Array:
        import pyarrow as pa

        return pa.array(_CODECS).take(pa.array(self.table.codec[self.rows]))

    def _maxTimestamp(self) -> pa.Array:  # noqa: N802
        import numpy as np
        import pyarrow as pa

        millis = self._field(layout.MAX_TIMESTAMP, self.is_batch)
        if self.enriched:
            seconds = self._field(layout.ENRICHED_SECONDS, ~self.is_batch)
            millis = np.where(seconds == -1, -1, (seconds & 0xFFFFFFFF) * 1000)
        else:
            with_time = self.magic == 1
            millis[with_time] = self.table.gather(layout.V1_TIMESTAMP, self.rows[with_time])
        return pa.array(millis * 1000).cast(pa.timestamp("us"))

    def _timestampType(self) -> pa.Array:  # noqa: N802
        import numpy as np
        import pyarrow as pa

        if self.enriched:
            return pa.array(np.ones(len(self.rows), np.int64))
        return pa.array(np.where(self.magic == 0, -1, (self.attributes & layout.LOG_APPEND_TIME_BIT) >> 3))

    def _count(self) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        return pa.array(np.asarray(self.table.count, np.int64)[self.rows], mask=self.is_wrapper)

    def _crc(self) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        own = self._field(layout.MESSAGE_CRC, ~self.is_batch)
        return pa.array(np.where(self.is_batch, self._field(layout.BATCH_CRC, self.is_batch), own))

    def _of_batches(self, field: layout.Field) -> pa.Array:
        import pyarrow as pa

        return pa.array(self._field(field, self.is_batch), mask=~self.is_batch)

    def _producerId(self) -> pa.Array:  # noqa: N802
        return self._of_batches(layout.PRODUCER_ID)

    def _producerEpoch(self) -> pa.Array:  # noqa: N802
        return self._of_batches(layout.PRODUCER_EPOCH)

    def _baseSequence(self) -> pa.Array:  # noqa: N802
        return self._of_batches(layout.BASE_SEQUENCE)

    def _partitionLeaderEpoch(self) -> pa.Array:  # noqa: N802
        return self._of_batches(layout.PARTITION_LEADER_EPOCH)

    def _isTransactional(self) -> pa.Array:  # noqa: N802
        import pyarrow as pa

        return pa.array(self.is_batch & ((self.attributes & layout.TRANSACTIONAL_BIT) != 0))

    def _isControl(self) -> pa.Array:  # noqa: N802
        import pyarrow as pa

        bit = layout.ENRICHED_CONTROL_BIT if self.enriched else layout.CONTROL_BIT
        return pa.array((self.is_batch | self.enriched) & ((self.attributes & bit) != 0))

    def batches(self) -> pa.Array:
        """Return the bytes of each row, without a copy of those of neighbours."""
        import numpy as np
        import pyarrow as pa

        position = np.asarray(self.table.position, np.int64)[self.rows]
        size = np.asarray(self.table.size, np.int64)[self.rows]
        if len(position) and not np.array_equal(position[1:], (position + size)[:-1]):
            buffer = self.table.buffer
            return pa.array([bytes(buffer[at : at + n]) for at, n in zip(position, size, strict=True)], pa.binary())
        starts = np.append(position, position[-1:] + size[-1:]).astype(np.int32)
        return pa.Array.from_buffers(
            pa.binary(), len(size), [None, pa.py_buffer(starts), pa.py_buffer(self.table.buffer)]
        )
