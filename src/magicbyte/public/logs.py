"""Logs as Python objects: `magicbyte.open_log` and `magicbyte.records`."""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from magicbyte.engine.compiled import kernel
from magicbyte.engine.log.files.partitions import choose
from magicbyte.engine.log.files.reader import EVERYTHING, Selection, stop_at_damage
from magicbyte.engine.log.files.reader import Isolation as IsolationLevel
from magicbyte.engine.log.files.units import parse_time, time_ms
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions
from magicbyte.public.sources import (
    check_client_settings,
    default_threads,
    doubts,
    is_topic,
    iterated_outside_of_loops,
    open_sources,
    outside_of_loops,
    read_source,
    served,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from magicbyte.engine.log.files.reader import DamageHandler
    from magicbyte.engine.records.columns import Record, RecordColumns
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.public.sources import AnyPath, Source

Isolation = Literal["read_uncommitted", "read_committed"]
Time = str | int | datetime


@dataclass(frozen=True, slots=True)
class _Query:
    """Which records of which partitions to read, and how."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    selection: Selection
    threads: int
    on_damage: DamageHandler


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

    def records(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        since: Time | None = None,
        until: Time | None = None,
        isolation: Isolation = "read_uncommitted",
        threads: int | None = None,
        on_damage: DamageHandler | None = None,
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
        query = self._query(topic, partition, start, end, since, until, isolation, threads, on_damage)
        return self._rows(query)

    def arrow_batches(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        since: Time | None = None,
        until: Time | None = None,
        isolation: Isolation = "read_uncommitted",
        threads: int | None = None,
        on_damage: DamageHandler | None = None,
        timestamp_millis: bool = False,
    ) -> pa.RecordBatchReader:
        """Return a reader of Arrow batches of the same records, with the columns of Spark's Kafka source.

        Arguments, memory and errors as in `records`. Keys and values are not copied. `timestamp_millis` adds the column
        `timestampMillis`, int64, with timestamps as stored. A timestamp that microseconds cannot hold (after the year
        294247) is null in the column `timestamp`: after the last record read, a warning has their number.
        """
        from magicbyte.engine.records.columns import arrow_schema

        schema = arrow_schema(headers=True, millis=timestamp_millis)
        import pyarrow as pa

        query = self._query(topic, partition, start, end, since, until, isolation, threads, on_damage)
        return pa.RecordBatchReader.from_batches(schema, self._arrow(query, schema))

    def _arrow(self, query: _Query, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
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

    def to_arrow(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        since: Time | None = None,
        until: Time | None = None,
        isolation: Isolation = "read_uncommitted",
        threads: int | None = None,
        on_damage: DamageHandler | None = None,
        timestamp_millis: bool = False,
    ) -> pa.Table:
        """Return the same records as an Arrow table, all in memory: `arrow_batches` streams.

        Arguments, warnings and errors as in `arrow_batches`.
        """
        return self.arrow_batches(
            topic, partition, start=start, end=end, since=since, until=until,
            isolation=isolation, threads=threads, on_damage=on_damage, timestamp_millis=timestamp_millis,
        ).read_all()  # fmt: skip

    def _query(
        self,
        topic: str | None,
        partition: int | None,
        start: int | None,
        end: int | None,
        since: Time | None,
        until: Time | None,
        isolation: Isolation,
        threads: int | None,
        on_damage: DamageHandler | None,
    ) -> _Query:
        """Return the checked query. Raises ValueError, UnknownTopicError."""
        _check_range(start, end)
        levels = {level.value: level for level in IsolationLevel}
        if isolation not in levels:
            raise ValueError(f"isolation={isolation!r}: expected {' or '.join(map(repr, levels))}")
        query = _Query(
            () if topic is None else (topic,),
            () if partition is None else (partition,),
            Selection(
                start or 0,
                EVERYTHING.end if end is None else end,
                since=_milliseconds("since", since),
                until=_milliseconds("until", until),
                isolation=levels[isolation],
            ),
            checked_threads(threads),
            on_damage or stop_at_damage,
        )
        choose(self._sources, query.topics, query.partitions)
        return query

    def _rows(self, query: _Query) -> Iterator[Record]:
        for topic, partition, columns in self._columns(query, packed=False):
            yield from columns.rows(topic, partition)

    def _columns(self, query: _Query, *, packed: bool) -> Iterator[tuple[str | None, int | None, RecordColumns]]:
        columns = self._read(query, packed=packed)
        return iterated_outside_of_loops(columns) if is_topic(self.path) else columns

    def _read(
        self, query: _Query, *, packed: bool
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


def records(
    path: AnyPath,
    *,
    topic: str | None = None,
    partition: int | None = None,
    start: int | None = None,
    end: int | None = None,
    since: Time | None = None,
    until: Time | None = None,
    isolation: Isolation = "read_uncommitted",
    dialect: Dialect | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    threads: int | None = None,
    on_damage: DamageHandler | None = None,
    client_settings: Mapping[str, str] | None = None,
) -> Iterator[Record]:
    """Return an iterator over the records at `path`: `open_log(path).records(...)`, which describes the arguments.

    for record in magicbyte.records("logs/orders-0", since="2016-11-01"):
        print(record.offset, record.key, record.value)
    """
    log = open_log(path, dialect=dialect, max_batch_bytes=max_batch_bytes, client_settings=client_settings)
    return log.records(
        topic, partition, start=start, end=end, since=since, until=until,
        isolation=isolation, threads=threads, on_damage=on_damage,
    )  # fmt: skip


def checked_threads(threads: int | None) -> int:
    """Return the number of threads to use. Raises ValueError."""
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}: expected 1 or more")
    return default_threads() if threads is None else threads


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


def _check_range(start: int | None, end: int | None) -> None:
    for name, offset in (("start", start), ("end", end)):
        if offset is not None and offset < 0:
            raise ValueError(f"{name}={offset}: expected an offset, 0 or more")
    if end is not None and end < (start or 0):
        raise ValueError(f"end={end}: expected an offset from {start} (start) on")


def _milliseconds(name: str, value: Time | None) -> int | None:
    """Return the ms since 1970 of an argument. Raises ValueError."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, datetime):
        return time_ms(value)
    try:
        return parse_time(value)
    except (ValueError, OverflowError) as error:
        expected = "expected a time such as 2016-11-01 or 2016-11-01T12:00:00Z, a datetime, or ms since 1970"
        raise ValueError(f"{name}={value!r}: {expected}") from error
