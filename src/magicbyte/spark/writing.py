"""Write rows to log directories and, in transactions, to clusters, exactly once; without them, at least once.

See docs/decisions/0010-writing-rows.md for the reasons.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import LogDirectoryError, MagicbyteError
from magicbyte.engine.log.files.filesystem import file_system, local_path, read_whole
from magicbyte.engine.log.files.names import check_topic_name
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.encode import BatchHeader, Format, encode
from magicbyte.spark.columns import by_partition, check_columns, topics_of
from magicbyte.spark.log_sink import LogSink, Staged, partitions_there, stage
from magicbyte.spark.options import (
    SCHEME,
    OptionError,
    check_has_use,
    credentials_of,
    known_options,
    of_security,
    whole_path,
)
from magicbyte.spark.transaction_sink import TransactionSink
from magicbyte.spark.workers import expect_bytes, settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from magicbyte.engine.records.columns import BytesColumn, RecordColumns

_KNOWN: Final = (
    "path", "topic", "partitions", "kafka.compression.type", "kafka.bootstrap.servers", "jobId", "checkpointLocation",
    "kafka.transactional.id", "kafka.transaction.timeout.ms", "stagingLocation",
)  # fmt: skip
_TIMEOUT_MS: Final = 60_000
"""Default of `kafka.transaction.timeout.ms`, as in Kafka's producers."""
_LONGEST_TIMEOUT_MS: Final = (1 << 31) - 1
BATCH_BYTES: Final = 512 << 10
"""Size of the records of one set, before compression."""
LARGEST_RECORD: Final = DEFAULT_MAX_BATCH_BYTES - (1 << 20)
"""Limit of key, value and headers together: readers accept a set with one such record."""
_HEADER: Final = BatchHeader(partition_leader_epoch=0)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where rows go: `path`, a log directory on this machine or shared by all, or `bootstrap`, a cluster.

    `topic`: of all rows. `partitions`: the number for a new topic of a log directory. `job`: identifies a write that
    must happen once. `checkpoint`: the folder of a stream. `transactional_id`: for clusters. Its transactions time out
    after `timeout_ms`, and rows are staged in `staging`.
    """

    path: str | None
    bootstrap: str | None
    topic: str | None
    partitions: int
    codec: Codec
    job: str | None
    checkpoint: str | None
    transactional_id: str | None = None
    timeout_ms: int = _TIMEOUT_MS
    staging: str | None = None
    security: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def sink(self) -> LogSink | TransactionSink | None:
        """The sink of batches; None if tasks produce to the cluster without transactions."""
        if self.path is not None:
            return LogSink(Path(self.path), self.partitions)
        if self.transactional_id is None:
            return None
        assert self.bootstrap is not None, "a sink is a log directory or a cluster"
        assert self.staging is not None, "checked with the options"
        return TransactionSink(
            self.bootstrap, self.transactional_id, self.timeout_ms, Path(self.staging), self.security
        )


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Return the parsed options. Names are case-insensitive. Raises OptionError, InvalidTopicError."""
    given, security = of_security(given)
    options = known_options(given, _KNOWN)
    path, bootstrap = options.get("path"), options.get("kafka.bootstrap.servers")
    if path is not None and path.startswith(SCHEME):
        bootstrap, _, topic = path.removeprefix(SCHEME).partition("/")
        path = None
        if topic:
            options.setdefault("topic", topic)
    if (path is None) == (bootstrap is None):
        raise OptionError("expected either a path (a log directory) or kafka.bootstrap.servers")
    check_has_use(security, bootstrap)
    if path is not None:
        inside = local_path(path)
        if inside is None:
            raise OptionError(f"path: expected a log directory of this machine, found {path!r}")
        path = whole_path(inside)
    name, count = options.get("kafka.compression.type", "none").upper(), options.get("partitions", "1")
    if name not in Codec.__members__:
        raise OptionError(
            f"kafka.compression.type: expected one of none, gzip, snappy, lz4, zstd, found {name.lower()}"
        )
    if not count.isdecimal() or not int(count):
        raise OptionError(f"partitions: expected a number, 1 or more, found {count!r}")
    if "topic" in options:
        check_topic_name(options["topic"])
    return WriteOptions(
        path, bootstrap, options.get("topic"), int(count), Codec[name],
        options.get("jobId"), options.get("checkpointLocation"), *_transactions(options), security,
    )  # fmt: skip


def _transactions(options: Mapping[str, str]) -> tuple[str | None, int, str | None]:
    """Return transactional id, timeout in ms and the staging folder. Raises OptionError."""
    name, given = options.get("kafka.transactional.id"), options.get("kafka.transaction.timeout.ms", str(_TIMEOUT_MS))
    if name is None:
        for each in ("kafka.transaction.timeout.ms", "stagingLocation"):
            if each in options:
                raise OptionError(f"{each}: expected with kafka.transactional.id")
        return None, _TIMEOUT_MS, None
    if "path" in options and not options["path"].startswith(SCHEME):
        raise OptionError("kafka.transactional.id: expected a cluster; a log directory gets each batch once without it")
    if not name:
        raise OptionError("kafka.transactional.id: expected a name, found none")
    if not given.isdecimal() or not 0 < int(given) <= _LONGEST_TIMEOUT_MS:
        raise OptionError(f"kafka.transaction.timeout.ms: expected milliseconds, 1 or more, found {given!r}")
    staging = options.get("stagingLocation", options.get("checkpointLocation"))
    if staging is None:
        raise OptionError("stagingLocation: expected a folder that the driver and all workers share")
    inside = local_path(staging)
    if inside is None:
        raise OptionError(
            f"stagingLocation: expected a local folder, or one that all machines share, found {staging!r}"
        )
    return name, int(given), whole_path(inside)


@dataclass
class TaskOutput(WriterCommitMessage):
    """The staged output of a task, to be committed. Empty if the task produced to a cluster without transactions."""

    staged: tuple[Staged, ...] = ()


def write_rows(rows: Iterator[pa.RecordBatch], options: WriteOptions, writer: str) -> TaskOutput:
    """Write the rows of one task. Return the staged output. Runs in a worker."""
    sink = options.sink
    if sink is None:
        asyncio.run(_send(rows, options))
        return TaskOutput()
    partitions = _cluster_counter(sink) if isinstance(sink, TransactionSink) else _log_counter(sink)

    def sets() -> Iterator[tuple[TopicPartition, memoryview, int]]:
        for turn, some in enumerate(rows):
            expect_bytes(some.nbytes)
            for key, records in by_partition(some, options.topic, partitions, turn):
                _check_sizes(key, records)
                made = encode(records, Format.V2, options.codec, batch_bytes=BATCH_BYTES, header=_HEADER)
                yield key, made, len(records)

    staged = tuple(stage(sink.folder(writer) / uuid.uuid4().hex, sets()))
    settle()
    return TaskOutput(staged)


def _log_counter(sink: LogSink) -> Callable[[str], int]:
    """Return a function from a topic's name to its number of partitions, existing or to be created."""
    counts = topics_of(partitions_there(sink.path))
    return lambda name: counts.get(name, sink.partitions)


def _cluster_counter(sink: TransactionSink) -> Callable[[str], int]:
    """Return a function from a topic's name to its number of partitions. The cluster is asked once per topic."""
    return cache(sink.partitions_of)


def _check_sizes(key: TopicPartition, records: RecordColumns) -> None:
    """Raise MagicbyteError for a record that readers would refuse, since a committed batch must be appended."""
    assert records.headers is not None
    assert records.value is not None
    counts, parts = np.asarray(records.headers.count), (records.headers.key, records.headers.value)
    sizes = _lengths(records.value) + (0 if records.key is None else _lengths(records.key))
    of_headers = sum(map(_lengths, parts), np.zeros(int(counts.sum()), np.int64))
    sizes = sizes + np.bincount(np.repeat(np.arange(len(counts)), counts), of_headers, len(counts)).astype(np.int64)
    if len(sizes) and (largest := int(sizes.max())) > LARGEST_RECORD:
        raise MagicbyteError(f"{key}: expected records of up to {LARGEST_RECORD} bytes, found one of {largest}")


def _lengths(column: BytesColumn) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.maximum(np.asarray(column.length, np.int64), 0)


async def _send(rows: Iterator[pa.RecordBatch], options: WriteOptions) -> None:
    """Produce rows, each set acknowledged by all replicas. Raises UnknownTopicError, BrokerError, NetworkError."""
    from magicbyte.access.client import Client
    from magicbyte.access.client.produce import ProduceOptions, send

    assert options.bootstrap is not None
    produce, counts = ProduceOptions(codec=options.codec), dict[str, int]()
    async with Client(options.bootstrap, security=credentials_of(options.security)) as client:
        for turn, some in enumerate(rows):
            expect_bytes(some.nbytes)
            for topic in _topics(some, options.topic):
                if topic not in counts:
                    counts[topic] = len((await client.existing_topic(topic)).partitions)
            for (topic, partition), records in by_partition(some, options.topic, counts.__getitem__, turn):
                await send(client, topic, partition, records, produce)


def _topics(rows: pa.RecordBatch, topic: str | None) -> list[str]:
    names = [topic] if topic is not None else rows.column("topic").unique().to_pylist()
    return [name for name in names if name is not None]


@dataclass
class LogWriter(DataSourceArrowWriter):
    """A batch write. It happens once: the next commit to the sink completes one that was interrupted."""

    options: WriteOptions
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, options: WriteOptions, schema: StructType, *, overwrite: bool) -> LogWriter:
        """Return the writer of rows of a schema. Raises OptionError."""
        if overwrite:
            raise OptionError("mode: expected append: records of a log are never overwritten")
        check_columns(schema, options.topic)
        return cls(options, f"job-{options.job}") if options.job is not None else cls(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Write the rows of a task. Runs in a worker."""
        return write_rows(iterator, self.options, self.name)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the staged output of all tasks to the log directory or the cluster. Raises MagicbyteError."""
        if self.options.sink is not None:
            self.options.sink.commit(self.name, 0 if self.options.job is not None else None, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 (Spark's)
        """Delete the staged output. Records produced without transactions remain in the cluster."""
        if self.options.sink is not None:
            self.options.sink.give_up(self.name)


@dataclass
class LogStreamWriter(DataSourceStreamArrowWriter):
    """A stream's writer. `name` is the id of its query; a committed batch is not committed again."""

    options: WriteOptions
    name: str

    @classmethod
    def of(cls, options: WriteOptions, schema: StructType, *, overwrite: bool) -> LogStreamWriter:
        """Return the writer of rows of a schema. Raises OptionError."""
        if overwrite:
            raise OptionError("outputMode: expected append or update: records of a log are never overwritten")
        check_columns(schema, options.topic)
        return cls(options, "" if options.sink is None else _query_id(options.checkpoint))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Write the rows of a task. Runs in a worker."""
        return write_rows(iterator, self.options, self.name)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Commit the staged output of all tasks, unless the batch is committed already. Raises MagicbyteError."""
        if self.options.sink is not None:
            self.options.sink.commit(self.name, batchId, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        """Delete the staged output. Records produced without transactions remain in the cluster."""
        if self.options.sink is not None:
            self.options.sink.give_up(self.name)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    found: list[Staged] = []
    for message in messages:
        assert isinstance(message, TaskOutput), "only what all tasks finished is committed"
        found += message.staged
    return found


def _query_id(checkpoint: str | None) -> str:
    """Return the id of a stream's query, from the checkpoint's metadata. Raises OptionError, LogDirectoryError."""
    if checkpoint is None:
        raise OptionError("checkpointLocation: expected as an option of the stream: it identifies the batches")
    files, path = file_system(checkpoint)
    try:
        return str(json.loads(read_whole(files, f"{path.rstrip('/')}/metadata"))["id"])
    except (OSError, ValueError, KeyError) as error:
        raise LogDirectoryError(f"{checkpoint}: expected a checkpoint with the id of its stream: {error}") from error
