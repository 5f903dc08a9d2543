"""Convert rows that Spark passes to a writer into columns of records by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from magicbyte.access.client.partitioning import partitions_of
from magicbyte.access.clock import SystemClock
from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.log.files.names import check_topic_name
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.columns import BytesColumn, HeaderColumns, RecordColumns
from magicbyte.engine.records.far_times import MILLIS_COLUMN
from magicbyte.spark.options import OptionError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql.types import StructType

TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    MILLIS_COLUMN: ("bigint",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "offset": ("bigint",),
    "timestampType": ("int",),
}
"""The columns that a writer accepts. It ignores the last two, which allow rows to be written as they were read."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise OptionError unless the rows can be converted to records."""
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        found = field.dataType.simpleString()
        if field.name not in TYPES:
            raise OptionError(f"columns: expected some of {', '.join(TYPES)}, found {field.name!r}")
        if found not in TYPES[field.name]:
            raise OptionError(f"columns: expected {field.name} {' or '.join(TYPES[field.name])}, found {found}")
    if "value" not in names:
        raise OptionError("columns: expected a column `value`, found none")
    if topic is None and "topic" not in names:
        raise OptionError("columns: expected a column `topic`, or the option topic, found neither")


def by_partition(
    rows: pa.RecordBatch, topic: str | None, partitions: Callable[[str], int], turn: int
) -> Iterator[tuple[TopicPartition, RecordColumns]]:
    """Yield the records of some rows by target partition, in order.

    `topic` overrides the column `topic`. `partitions` returns the number of partitions of a topic. A row without a
    partition (null or -1) is partitioned by its key as in Kafka's producers, and without a key goes to partition `turn`
    modulo their number. A timestamp of -1 ms means none. Raises MagicbyteError for a row without a topic, and for a
    partition or timestamp below -1; InvalidTopicError for an invalid topic name, because it becomes a folder name.
    """
    import numpy as np

    columns = _columns(rows)
    for name, chosen in _by_topic(rows, topic):
        check_topic_name(name)
        if "partition" in rows.schema.names:
            numbers = rows.column("partition").fill_null(-1).to_numpy(zero_copy_only=False)[chosen]
        else:
            numbers = np.full(len(chosen), -1)
        if (numbers < -1).any():
            raise MagicbyteError(f"a row of {name}: expected a partition of 0 or more, found {numbers.min()}")
        if (numbers < 0).any():
            count = partitions(name)
            assert columns.key is not None
            by_key = partitions_of(columns.key.take(chosen), count)
            numbers = np.where(numbers >= 0, numbers, np.where(by_key >= 0, by_key, turn % count))
        for number in np.unique(numbers).tolist():
            records = columns.take(chosen[numbers == number])
            yield TopicPartition(name, number), replace(records, offset=np.arange(len(records), dtype=np.int64))


def _by_topic(
    rows: pa.RecordBatch, topic: str | None
) -> Iterator[tuple[str, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
    import numpy as np

    if topic is not None:
        yield topic, np.arange(rows.num_rows)
        return
    names = rows.column("topic").dictionary_encode()
    if names.null_count:
        raise MagicbyteError("a row without a topic: give the option topic")
    at = names.indices.to_numpy(zero_copy_only=False)
    for code, name in enumerate(names.dictionary.to_pylist()):
        yield name, np.flatnonzero(at == code)


def _columns(rows: pa.RecordBatch) -> RecordColumns:
    """Return rows as records. A row without a timestamp gets the current time."""
    import numpy as np

    count, names = rows.num_rows, rows.schema.names
    now = SystemClock().now_ms()
    times = np.full(count, now, np.int64)
    exact = MILLIS_COLUMN in names
    if exact or "timestamp" in names:
        given = rows.column(MILLIS_COLUMN if exact else "timestamp").cast("int64")
        millis = given.fill_null(0).to_numpy(zero_copy_only=False) // (1 if exact else 1000)
        if (millis < -1).any():
            raise MagicbyteError(f"a row with a timestamp before 1970, which records cannot have: {millis.min()} ms")
        times = np.where(given.is_valid().to_numpy(zero_copy_only=False) & (millis >= 0), millis, now)
    return RecordColumns(
        np.arange(count, dtype=np.int64),
        times,
        np.zeros(count, np.int8),
        _cells(rows.column("key")) if "key" in names else _nothing(count),
        _cells(rows.column("value")),
        _headers(rows.column("headers")) if "headers" in names else _no_headers(count),
    )


def _cells(array: pa.Array) -> BytesColumn:
    """Return an array of bytes or strings as a column over its own buffer."""
    import numpy as np
    import pyarrow as pa

    array = array.cast(pa.binary())
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    length = np.where(valid, np.diff(ends), -1).astype(np.int32)
    return BytesColumn(b"" if data is None else data, ends[:-1], length)


def _nothing(count: int) -> BytesColumn:
    import numpy as np

    return BytesColumn(b"", np.zeros(count, np.int32), np.full(count, -1, np.int32))


def _no_headers(count: int) -> HeaderColumns:
    import numpy as np

    return HeaderColumns(np.zeros(count, np.int32), _nothing(0), _nothing(0))


def _headers(array: pa.Array) -> HeaderColumns:
    """Return a column of headers. Raises MagicbyteError for a header without a name."""
    pairs = array.flatten()
    counts = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    keys, values = pairs.flatten()
    if keys.null_count:
        raise MagicbyteError("a header without a name")
    return HeaderColumns(counts, _cells(keys), _cells(values))


def topics_of(found: Sequence[TopicPartition]) -> dict[str, int]:
    """Return the number of partitions of each topic: the highest partition found + 1."""
    counts: dict[str, int] = {}
    for topic, number in found:
        counts[topic] = max(counts.get(topic, 0), number + 1)
    return counts
