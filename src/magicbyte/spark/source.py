"""The data source `magicbyte`: log directories as DataFrames of records, or of closed batches."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from magicbyte.errors import CorruptRecordError, MagicbyteError, TruncatedLogError
from magicbyte.log.files import file_system
from magicbyte.log.reader import Isolation, decode_chunk, read_chunks, select_records, select_rows
from magicbyte.records.columns import arrow_schema
from magicbyte.records.decode import DecodeOptions
from magicbyte.records.transactions import CommittedFilter
from magicbyte.spark import settle
from magicbyte.spark.options import OptionError, SourceOptions, parse_options
from magicbyte.spark.plan import NO_LIMITS, Limits, SegmentSlice, Task, chosen_partitions, plan
from magicbyte.spark.shallow import rows_within, shallow_batch, shallow_schema
from magicbyte.wire import kernel

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from magicbyte.log.directory import PartitionDirectory

BATCH_BYTES = 3 << 18  # of an Arrow batch: 1 to 10 MB, or about 10,000 rows, cross into the JVM best; this much is
BATCH_ROWS = 10_000  # what the decoder gives at a time, so that large batches are not copied once more
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_log = logging.getLogger("magicbyte.spark")


class MagicbyteSource(DataSource):
    """`spark.read.format("magicbyte")`. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "magicbyte"

    def schema(self) -> StructType:
        """Return the columns: those of Spark's Kafka source, or of shallow mode; only the chosen ones, if so asked."""
        from pyspark.sql.pandas.types import from_arrow_schema

        options = parse_options(self.options)
        whole = _full_schema(options)
        if options.columns is None:
            return from_arrow_schema(whole)
        return from_arrow_schema(_chosen(whole, options.columns, "columns"))

    def reader(self, schema: StructType) -> LogReader:
        """Return the reader of `schema`, which a user may have given: other columns are not even decoded."""
        from pyspark.sql.pandas.types import from_arrow_schema

        options = parse_options(self.options)
        wanted = _chosen(_full_schema(options), [field.name for field in schema.fields], "schema")
        for ours, theirs in zip(from_arrow_schema(wanted).fields, schema.fields, strict=True):
            if ours.dataType != theirs.dataType:
                raise OptionError(
                    f"schema: expected {ours.name} {ours.dataType.simpleString()}, "
                    f"found {theirs.dataType.simpleString()}"
                )
        return LogReader(options, wanted)


def _full_schema(options: SourceOptions) -> pa.Schema:
    return shallow_schema() if options.mode == "shallow" else arrow_schema(headers=options.include_headers)


def _chosen(whole: pa.Schema, names: Iterable[str], option: str) -> pa.Schema:
    """Return the named columns of `whole`, in the order of `names`. Raises OptionError."""
    import pyarrow as pa

    names = list(names)
    unknown = [name for name in names if name not in whole.names]
    if unknown:
        hint = "; headers need includeHeaders=true" if unknown[0] == "headers" else ""
        raise OptionError(f"{option}: no column {unknown[0]!r}: expected some of {', '.join(whole.names)}{hint}")
    return pa.schema([whole.field(name) for name in names])


@dataclass
class LogReader(DataSourceReader):
    """Plans on the driver, reads in the workers. What filters said is kept in `limits` and the three others."""

    options: SourceOptions
    columns: pa.Schema
    limits: Limits = NO_LIMITS
    topics: frozenset[str] | None = None
    prefixes: tuple[str, ...] = ()
    numbers: tuple[tuple[str, Any], ...] = ()  # comparisons of the partition column

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take the filters that can be applied exactly; give back all others."""
        return [each for each in filters if not self._take(each)]

    def _take(self, each: Filter) -> bool:
        name = getattr(each, "attribute", (None,))
        value = getattr(each, "value", None)
        if len(name) != 1 or value is None:
            return False
        match name[0], each:
            case "topic", EqualTo():
                self._keep_topics({value})
            case "topic", In() if None not in value:
                self._keep_topics(set(value))
            case "topic", StringStartsWith():
                self.prefixes = (*self.prefixes, value)
            case "partition", EqualTo() | In() | LessThan() | LessThanOrEqual() | GreaterThan() | GreaterThanOrEqual():
                self.numbers = (*self.numbers, (type(each).__name__, value))
            case "offset", EqualTo() | LessThan() | LessThanOrEqual() | GreaterThan() | GreaterThanOrEqual():
                self.limits = _offsets(self.limits, each, value)
            case "offset", In() if None not in value and value:
                self.limits = self.limits.narrowed(first=min(value), end=max(value) + 1)
                return False  # Spark picks those in between
            case "timestamp", EqualTo() | LessThan() | LessThanOrEqual() | GreaterThan() | GreaterThanOrEqual():
                self.limits = _timestamps(self.limits, each, value)
            case _:
                return False
        return True

    def _keep_topics(self, topics: set[str]) -> None:
        self.topics = frozenset(topics) if self.topics is None else self.topics & topics

    def _wanted(self, partition: PartitionDirectory) -> bool:
        topic, number = partition.topic, partition.partition
        if self.topics is not None and topic not in self.topics:
            return False
        if not all(topic is not None and topic.startswith(prefix) for prefix in self.prefixes):
            return False
        if number is None and self.options.mode == "deep":
            number = -1  # what the column says then; in shallow mode it is null, for which no comparison holds
        return all(number is not None and _compare(kind, number, value) for kind, value in self.numbers)

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks: on the driver, from names, sizes and indexes. Runs in a process of its own there."""
        settle()
        found = [each for each in chosen_partitions(self.options) if self._wanted(each)]
        return list(plan(self.options, found, self.limits, os.cpu_count() or 1, headers_only=self._headers_only))

    @property
    def _headers_only(self) -> bool:
        return self.options.mode == "shallow" and "batch" not in self.columns.names

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches, not rows: Spark takes them whole, with no pickling per row. Runs in a worker."""
        if not isinstance(partition, Task):  # an empty plan becomes one task with nothing in it
            return iter(())
        if not self._headers_only:
            _expect(sum(piece.size for piece in partition.slices))
        read = self._shallow if self.options.mode == "shallow" else self._deep
        return _settled(_joined(batch for piece in partition.slices for batch in self._guarded(read, piece)))

    def _guarded(self, read: Any, piece: SegmentSlice) -> Iterator[pa.RecordBatch]:
        try:
            yield from read(piece)
        except FileNotFoundError as error:
            if self.options.fail_on_data_loss:
                raise MagicbyteError(f"{piece.path}: gone since the query was planned") from error
            _log.warning("%s: gone since the query was planned", piece.path)

    def _on_damage(self, error: CorruptRecordError) -> None:
        truncated = isinstance(error, TruncatedLogError) and not self.options.fail_on_data_loss
        if not (self.options.skip_damage or truncated):
            raise error
        _log.warning("skipped: %s", error)

    def _deep(self, piece: SegmentSlice) -> Iterator[pa.RecordBatch]:
        names = self.columns.names
        options = DecodeOptions(
            keys="key" in names,
            values="value" in names,
            headers="headers" in names,
            packed=True,
            limit=self.options.max_batch_bytes,
        )
        selection, committed = piece.selection, None
        if selection.isolation is Isolation.READ_COMMITTED:
            committed = CommittedFilter(piece.aborted, selection.end)
        files, path = file_system(piece.path)
        with files.open(path) as file:
            for chunk in read_chunks(
                file,
                start=piece.start,
                end=piece.end,
                dialect=piece.dialect,
                merge=True,
                limit=options.limit,
                on_damage=self._on_damage,
            ):
                rows, more = select_rows(chunk.table, selection, committed)
                for columns in decode_chunk(chunk, rows, options, self._on_damage):
                    chosen = select_records(columns, selection)
                    if len(chosen):
                        yield chosen.to_arrow(self.columns, topic=piece.topic, partition=piece.partition)
                if not more:
                    return

    def _shallow(self, piece: SegmentSlice) -> Iterator[pa.RecordBatch]:
        from magicbyte.log.headers import read_headers

        files, path = file_system(piece.path)
        with files.open(path) as file:
            for headers in read_headers(
                file,
                start=piece.start,
                end=piece.end,
                dialect=piece.dialect,
                limit=self.options.max_batch_bytes,
                on_damage=self._on_damage,
                expected_bytes=max(piece.size, _read_so_far),
                whole=not self._headers_only,
            ):
                rows, more = rows_within(headers, piece.selection.first, piece.selection.end)
                if len(rows):
                    yield shallow_batch(headers, rows, self.columns, piece.topic, piece.partition)
                if not more:
                    return


_read_so_far = 0  # bytes, by this worker process in all its tasks


def _expect(size: int) -> None:
    """Load the kernels for a task of `size` bytes, if it is large or this worker has read that much in small ones."""
    global _read_so_far
    kernel.expect(max(size, _read_so_far))
    _read_so_far += size


def _settled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and settle behind them."""
    yield from batches
    settle()


def _offsets(limits: Limits, each: Filter, value: int) -> Limits:
    match each:
        case EqualTo():
            return limits.narrowed(first=value, end=value + 1)
        case LessThan():
            return limits.narrowed(end=value)
        case LessThanOrEqual():
            return limits.narrowed(end=value + 1)
        case GreaterThan():
            return limits.narrowed(first=value + 1)
    return limits.narrowed(first=value)


def _timestamps(limits: Limits, each: Filter, value: datetime) -> Limits:
    """Narrow by a timestamp of whole microseconds; records have whole milliseconds."""
    micros = (value - _EPOCH) // timedelta(microseconds=1)
    up, behind = -(-micros // 1000), micros // 1000 + 1
    match each:
        case EqualTo():
            return limits.within(since=up, until=behind)
        case LessThan():
            return limits.within(until=up)
        case LessThanOrEqual():
            return limits.within(until=behind)
        case GreaterThan():
            return limits.within(since=behind)
    return limits.within(since=up)


def _compare(kind: str, number: int, value: Any) -> bool:
    match kind:
        case "EqualTo":
            return bool(number == value)
        case "In":
            return number in value
        case "LessThan":
            return bool(number < value)
        case "LessThanOrEqual":
            return bool(number <= value)
        case "GreaterThan":
            return bool(number > value)
    return bool(number >= value)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: each crosses into the JVM at a cost of its own. Large ones come in the size of a group."""
    import pyarrow as pa

    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield pa.concat_batches(pending) if len(pending) > 1 else batch
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.concat_batches(pending)
