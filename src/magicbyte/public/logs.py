"""Logs as Python objects: `magicbyte.open_log` and `magicbyte.records`."""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magicbyte.engine.compiled import kernel
from magicbyte.engine.log.files.partitions import choose
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions
from magicbyte.public.selected import Query, spelled_out
from magicbyte.public.sources import (
    check_client_settings,
    doubts,
    is_topic,
    iterated_outside_of_loops,
    open_sources,
    outside_of_loops,
    read_source,
    served,
)

if TYPE_CHECKING:
    from typing import Unpack

    import pyarrow as pa

    from magicbyte.engine.records.columns import Record, RecordColumns
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.public.selected import Selected
    from magicbyte.public.sources import AnyPath, Source


@dataclass(frozen=True, slots=True)
class Log:
    """The partitions at one path, from `open_log`. It holds no open file or connection, so it need not be closed.

    Folders are listed once, by `open_log`; the end of a cluster's topic is looked up by each read.
    """

    path: str
    dialect: Dialect | None
    max_batch_bytes: int
    _sources: Sequence[Source] = field(repr=False)
    _client_settings: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def topics(self) -> list[str]:
        """The names of the topics, sorted. A folder not named TOPIC-N has none."""
        return sorted({each.topic for each in self._sources if each.topic is not None})

    @property
    def partitions(self) -> list[tuple[str | None, int | None]]:
        """Topic and number of each partition, in the order of reading; None if unknown."""
        return [(each.topic, each.partition) for each in self._sources]

    @spelled_out
    def records(
        self,
        topic: str | None = None,
        partition: int | None = None,
        **selected: Unpack[Selected],
    ) -> Iterator[Record]:
        """Return an iterator over records, partition by partition, in offset order, as a consumer would see them.

        `topic`, `partition`: only these. `start`, `end`: offsets from `start` to below `end`. `since`, `until`:
        timestamps from `since` to below `until`, each a date or time in ISO 8601 (UTC unless it has an offset), a
        datetime (likewise), or ms since 1970. `isolation`: as a consumer's isolation.level. `threads` decode; default:
        one per core, at most 4. `on_damage` is called for each damage: an exception from it ends the iteration; if it
        returns, the records after the damage follow; default: raise the error.

        Memory does not grow with the log: a few MiB per thread are read ahead.

        Raises immediately ValueError for an invalid argument, UnknownTopicError for an unknown topic or partition; and
        during the iteration CorruptRecordError, OSError, and for a cluster NetworkError and BrokerError.
        """
        return self._rows(self._checked(Query.of(topic, partition, selected)))

    @spelled_out
    def arrow_batches(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        timestamp_millis: bool = False,
        **selected: Unpack[Selected],
    ) -> pa.RecordBatchReader:
        """Return a reader of Arrow batches of the same records, with the columns of Spark's Kafka source.

        Arguments, memory and errors as in `records`. Keys and values are not copied. `timestamp_millis` adds the column
        `timestampMillis`, int64, with timestamps as stored. A timestamp that microseconds cannot hold (after the year
        294247) is null in the column `timestamp`: after the last record read, a warning has their number.
        """
        from magicbyte.engine.records.columns import arrow_schema

        schema = arrow_schema(headers=True, millis=timestamp_millis)
        import pyarrow as pa

        query = self._checked(Query.of(topic, partition, selected))
        return pa.RecordBatchReader.from_batches(schema, self._arrow(query, schema))

    def _arrow(self, query: Query, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        from magicbyte.engine.records.far_times import MILLIS_COLUMN, FarTimestamps

        far = FarTimestamps()
        try:
            for topic, partition, columns in self._columns(query, packed=True):
                yield columns.to_arrow(schema, far, topic=topic, partition=partition)
        finally:
            if far.count:
                has_all = MILLIS_COLUMN in schema.names
                remedy = f"{MILLIS_COLUMN} has them" if has_all else "timestamp_millis=True adds a column that has them"
                warn(f"{far.text}: null in the column timestamp; {remedy}")

    @spelled_out
    def to_arrow(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        timestamp_millis: bool = False,
        **selected: Unpack[Selected],
    ) -> pa.Table:
        """Return the same records as an Arrow table, all in memory: `arrow_batches` streams.

        Arguments, warnings and errors as in `arrow_batches`.
        """
        return self.arrow_batches(topic, partition, timestamp_millis=timestamp_millis, **selected).read_all()

    def _checked(self, query: Query) -> Query:
        """Return `query`. Raises UnknownTopicError if no partition is chosen."""
        choose(self._sources, query.topics, query.partitions)
        return query

    def _rows(self, query: Query) -> Iterator[Record]:
        for topic, partition, columns in self._columns(query, packed=False):
            yield from columns.rows(topic, partition)

    def _columns(self, query: Query, *, packed: bool) -> Iterator[tuple[str | None, int | None, RecordColumns]]:
        columns = self._read(query, packed=packed)
        return iterated_outside_of_loops(columns) if is_topic(self.path) else columns

    def _read(
        self, query: Query, *, packed: bool
    ) -> Generator[tuple[str | None, int | None, RecordColumns], None, None]:
        """Yield the selected records, with topic and number of their partition."""
        from magicbyte.engine.log.files.directory import PartitionDirectory

        options = DecodeOptions(packed=packed, limit=self.max_batch_bytes)
        with contextlib.ExitStack() as stack:
            sources = self._sources
            if is_topic(self.path):
                opened = open_sources([self.path], dialect=self.dialect, settings=self._client_settings)
                sources = stack.enter_context(opened)
            chosen = choose(sources, query.topics, query.partitions)
            kernel.expect(sum(each.size for each in chosen if isinstance(each, PartitionDirectory)))
            for source in chosen:
                columns = read_source(
                    source, query.selection, options,
                    dialect=self.dialect, threads=query.threads, on_damage=query.on_damage,
                )  # fmt: skip
                for each in columns:
                    yield source.topic, source.partition, each


def open_log(
    path: AnyPath,
    *,
    dialect: Dialect | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    client_settings: Mapping[str, str] | None = None,
) -> Log:
    """Return the log at `path`: its files are listed, and no record is read.

    `path`: a `.log` file, a partition folder, a log directory or a folder of log directories, local or any URL that
    fsspec opens; or a topic of a running cluster or one of its partitions, kafka://HOST:PORT/TOPIC[/PARTITION]. Folders
    that a broker is deleting, or has not completed, are left out. `dialect`: how to interpret magic byte 1; default:
    that in a `message.dialect` file, else Kafka's own format. `max_batch_bytes`: the maximum size of a batch, also
    after decompression. `client_settings`: client settings with the names of Kafka or librdkafka: security.protocol,
    ssl.*, sasl.* and timeouts; ${env:NAME} and ${file:PATH:KEY} in a value refer to secrets.

    Raises LogDirectoryError if there is no log, OSError; for a cluster UnknownTopicError, NetworkError, BrokerError,
    SecurityError if the authentication fails, InvalidConfigError for invalid settings; ValueError for an invalid
    kafka:// address, and for `client_settings` with a path on disk.

    Warns if a log seems to be in the other dialect.
    """
    path = os.fspath(path)

    def found() -> list[Source]:
        with open_sources([path], dialect=dialect, settings=client_settings) as sources:
            return served(sources)

    check_client_settings([path], client_settings)
    sources = outside_of_loops(found) if is_topic(path) else found()
    warn_of_dialect(sources, dialect)
    return Log(path, dialect, max_batch_bytes, sources, client_settings)


@spelled_out
def records(
    path: AnyPath,
    *,
    topic: str | None = None,
    partition: int | None = None,
    dialect: Dialect | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    client_settings: Mapping[str, str] | None = None,
    **selected: Unpack[Selected],
) -> Iterator[Record]:
    """Return an iterator over the records at `path`: `open_log(path).records(...)`, which describes the arguments.

    for record in magicbyte.records("logs/orders-0", since="2016-11-01"):
        print(record.offset, record.key, record.value)
    """
    log = open_log(path, dialect=dialect, max_batch_bytes=max_batch_bytes, client_settings=client_settings)
    return log.records(topic, partition, **selected)


def warn_of_dialect(sources: Sequence[Source], dialect: Dialect | None) -> None:
    """Warn of each source that seems to be in the other dialect."""
    for doubt in doubts(sources, dialect):
        warn(doubt)


def warn(text: str) -> None:
    """Warn at the line that called the package."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] == "magicbyte":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
