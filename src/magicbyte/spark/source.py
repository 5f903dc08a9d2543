"""The data source `magicbyte`: log directories as DataFrames of records, or of closed batches."""

from __future__ import annotations

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

from magicbyte.engine.records.columns import arrow_schema
from magicbyte.spark.options import NOT_OF_STREAMS, OptionError, SourceOptions, parse_options
from magicbyte.spark.plan import NO_LIMITS, RecordLimits, chosen_partitions, plan
from magicbyte.spark.reading import read_task, reads_headers_only
from magicbyte.spark.shallow import shallow_schema
from magicbyte.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from magicbyte.engine.log.files.partitions import Named
    from magicbyte.spark.stream import LogStream
    from magicbyte.spark.writing import LogStreamWriter, LogWriter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MagicbyteSource(DataSource):
    """`spark.read.format("magicbyte")`. Options: docs/spark/dataframes.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "magicbyte"

    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source, or of shallow mode; those of the option `columns`, if given."""
        from pyspark.sql.pandas.types import from_arrow_schema

        options = self._parsed()
        if options.columns is None:
            return from_arrow_schema(_full_schema(options))
        return from_arrow_schema(_chosen(_full_schema(options, millis=True), options.columns, "columns"))

    def _parsed(self) -> SourceOptions:
        """Return the options of a query or of a stream: Spark asks for columns before it is known which one it is."""
        names = {name.lower() for name in self.options}
        return parse_options(self.options, stream=names.isdisjoint(name.lower() for name in NOT_OF_STREAMS))

    def reader(self, schema: StructType) -> LogReader:
        """Return the reader of `schema`, which may be given by the user. Other columns are not decoded."""
        options = parse_options(self.options)
        kind = PruningReader if options.push_filters else LogReader
        return kind(options, _wanted_columns(options, schema))

    def streamReader(self, schema: StructType) -> LogStream:  # noqa: N802 (Spark's name)
        """Return the reader of a stream of `schema`."""
        from magicbyte.spark.stream import LogStream

        options = parse_options(self.options, stream=True)
        return LogStream(options, _wanted_columns(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> LogWriter:
        """Return the writer of rows of `schema`."""
        from magicbyte.spark.writing import LogWriter, parse_write_options

        return LogWriter.of(parse_write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:  # noqa: N802
        """Return the writer of a stream's rows of `schema`. `overwrite` is refused: records are never replaced."""
        from magicbyte.spark.writing import LogStreamWriter, parse_write_options

        return LogStreamWriter.of(parse_write_options(self.options), schema, overwrite=overwrite)


def _wanted_columns(options: SourceOptions, schema: StructType) -> pa.Schema:
    """Return the columns of `schema`. Raises OptionError for unknown columns or types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    wanted = _chosen(_full_schema(options, millis=True), [field.name for field in schema.fields], "schema")
    for ours, theirs in zip(from_arrow_schema(wanted).fields, schema.fields, strict=True):
        if ours.dataType != theirs.dataType:
            raise OptionError(
                f"schema: expected {ours.name} {ours.dataType.simpleString()}, found {theirs.dataType.simpleString()}"
            )
    return wanted


def _full_schema(options: SourceOptions, *, millis: bool = False) -> pa.Schema:
    """Return the columns of a mode. `millis`: with the one of timestamps as stored, which is there if it is named."""
    if options.mode == "shallow":
        return shallow_schema(millis=millis)
    return arrow_schema(headers=options.include_headers, millis=millis)


def _chosen(whole: pa.Schema, names: Iterable[str], option: str) -> pa.Schema:
    """Return the named columns of `whole`, in the order of `names`. Raises OptionError."""
    import pyarrow as pa

    names = list(names)
    if twice := [name for at, name in enumerate(names) if name in names[:at]]:
        raise OptionError(f"{option}: expected each column once, found {twice[0]!r} again")
    unknown = [name for name in names if name not in whole.names]
    if unknown:
        hint = "; headers need includeHeaders=true" if unknown[0] == "headers" else ""
        raise OptionError(f"{option}: no column {unknown[0]!r}: expected some of {', '.join(whole.names)}{hint}")
    return pa.schema([whole.field(name) for name in names])


@dataclass
class LogReader(DataSourceReader):
    """Plan on the driver, read in the workers. Filters are stored in `limits` and the three fields after it."""

    options: SourceOptions
    columns: pa.Schema
    limits: RecordLimits = NO_LIMITS
    topics: frozenset[str] | None = None
    prefixes: tuple[str, ...] = ()
    numbers: tuple[tuple[str, Any], ...] = ()  # comparisons of the partition column

    def _wanted(self, partition: Named) -> bool:
        topic, number = partition.topic, partition.partition
        if self.topics is not None and topic not in self.topics:
            return False
        if not all(topic is not None and topic.startswith(prefix) for prefix in self.prefixes):
            return False
        if number is None and self.options.mode == "deep":
            number = -1  # the value of the column; in shallow mode it is null, which satisfies no comparison
        return all(number is not None and _compare(kind, number, value) for kind, value in self.numbers)

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks on the driver, from names, sizes and indexes. Spark runs this in a separate Python process."""
        settle()
        if self.options.bootstrap is not None:
            from magicbyte.spark.live import plan_live  # it loads the client

            return list(plan_live(self.options, self._wanted, self.limits))
        chosen = chosen_partitions(self.options, reports_missing=True)
        found = [each for each in chosen if self._wanted(each)]
        headers_only = reads_headers_only(self.options, self.columns)
        return list(plan(self.options, found, self.limits, os.cpu_count() or 1, headers_only=headers_only))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches, not rows: Spark takes them whole, with no pickling per row. Runs in a worker."""
        return read_task(partition, self.options, self.columns)


@dataclass
class PruningReader(LogReader):
    """A reader that evaluates a query's filters.

    Spark 4.3.0 stores the reader's plan for the latest filtered query of a DataFrame, and reuses it for unfiltered
    queries of this DataFrame and for the other side of a self-join, where rows are then missing. So it is an option
    (`pushFilters`), for DataFrames that are queried once.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Store the filters that can be applied exactly. Return all others, which Spark applies."""
        return [each for each in filters if not self._take(each)]

    def _take(self, condition: Filter) -> bool:
        name = getattr(condition, "attribute", (None,))
        value = getattr(condition, "value", None)
        if len(name) != 1 or value is None:
            return False
        match name[0], condition:
            case "topic", EqualTo():
                self._keep_topics({value})
            case "topic", In() if None not in value:
                self._keep_topics(set(value))
            case "topic", StringStartsWith():
                self.prefixes = (*self.prefixes, value)
            case "partition", EqualTo() | In() | LessThan() | LessThanOrEqual() | GreaterThan() | GreaterThanOrEqual():
                self.numbers = (*self.numbers, (type(condition).__name__, value))
            case "offset", EqualTo() | LessThan() | LessThanOrEqual() | GreaterThan() | GreaterThanOrEqual():
                self.limits = _offsets(self.limits, condition, value)
            case "offset", In() if None not in value and value:
                self.limits = self.limits.narrowed(first=min(value), end=max(value) + 1)
                return False  # Spark removes the offsets between them
            case "timestamp", EqualTo() | LessThan() | LessThanOrEqual() | GreaterThan() | GreaterThanOrEqual():
                self.limits = _timestamps(self.limits, condition, value)
            case _:
                return False
        return True

    def _keep_topics(self, topics: set[str]) -> None:
        self.topics = frozenset(topics) if self.topics is None else self.topics & topics


def _offsets(limits: RecordLimits, each: Filter, value: int) -> RecordLimits:
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


def _timestamps(limits: RecordLimits, each: Filter, value: datetime) -> RecordLimits:
    """Narrow by a timestamp of whole microseconds. Records have whole milliseconds."""
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
