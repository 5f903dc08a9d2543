"""Read the slices of a task in a worker, from files or brokers, and yield Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.datasource import InputPartition

from magicbyte.engine.errors import CorruptRecordError, MagicbyteError, TruncatedLogError
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.filesystem import file_system
from magicbyte.engine.log.files.reader import (
    Isolation,
    Selection,
    decode_chunk,
    read_chunks,
    select_records,
    select_rows,
)
from magicbyte.engine.printable import logger
from magicbyte.engine.records.decode import DecodeOptions
from magicbyte.engine.records.far_times import MILLIS_COLUMN, FarTimestamps
from magicbyte.engine.records.transactions import CommittedFilter, table_facts
from magicbyte.spark.options import SourceOptions
from magicbyte.spark.plan import SegmentSlice, SparkTask, TopicSlice
from magicbyte.spark.shallow import MAX_MILLIS_COLUMN, rows_within, shallow_batch
from magicbyte.spark.workers import announced_bytes, expect_bytes, settle

if TYPE_CHECKING:
    import pyarrow as pa

    from magicbyte.engine.log.files.headers import Headers

BATCH_BYTES = 3 << 18  # per Arrow batch: 1 to 10 MB, or about 10,000 rows, cross into the JVM fastest; this is
BATCH_ROWS = 10_000  # the decoder's output size, so that large batches are not copied again
_log = logger("magicbyte.spark")

Slice: TypeAlias = SegmentSlice | TopicSlice


def reads_headers_only(options: SourceOptions, columns: pa.Schema) -> bool:
    """Return whether only headers of entries are needed."""
    return options.mode == "shallow" and "batch" not in columns.names


def read_task(task: InputPartition | None, options: SourceOptions, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task, then call `settle`.

    Spark turns an empty plan into one task of None: yield nothing.
    """
    if not isinstance(task, SparkTask):
        return iter(())
    reader = _TaskReader(options, columns)
    if not reads_headers_only(options, columns):
        expect_bytes(sum(piece.size for piece in task.slices))
    return _settled(_joined(batch for piece in task.slices for batch in reader.read(piece)))


@dataclass(frozen=True, slots=True)
class _TaskReader:
    options: SourceOptions
    columns: pa.Schema

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one slice."""
        far = FarTimestamps()
        try:
            for batch in self._shallow(piece, far) if self.options.mode == "shallow" else self._deep(piece, far):
                if far.count and not self.options.far_timestamps_are_null:
                    raw = MAX_MILLIS_COLUMN if self.options.mode == "shallow" else MILLIS_COLUMN
                    raise MagicbyteError(
                        f"{piece.path}: {far.text}: name the column {raw} in the option columns, instead of the "
                        "timestamp, or give onFarTimestamp=null"
                    )
                yield batch
        except FileNotFoundError as error:
            if self.options.fail_on_data_loss:
                raise MagicbyteError(f"{piece.path}: deleted since the query was planned") from error
            _log.warning("%s: deleted since the query was planned", piece.path)
        if far.count:
            _log.warning("%s: %s: null", piece.path, far.text)

    def _on_damage(self, error: CorruptRecordError) -> None:
        truncated = isinstance(error, TruncatedLogError) and not self.options.fail_on_data_loss
        if not (self.options.skip_damage or truncated):
            raise error
        _log.warning("skipped: %s", error)

    def _deep(self, piece: Slice, far: FarTimestamps) -> Iterator[pa.RecordBatch]:
        names = self.columns.names
        options = DecodeOptions(
            keys="key" in names,
            values="value" in names,
            headers="headers" in names,
            packed=True,
            limit=self.options.max_batch_bytes,
        )
        for chunk, committed, selection in self._chunks(piece):
            delivered = None if committed is None else committed.delivered(table_facts(chunk.table))
            rows, more = select_rows(chunk.table, selection, delivered)
            for columns in decode_chunk(chunk, rows, options, self._on_damage):
                chosen = select_records(columns, selection)
                if len(chosen):
                    yield chosen.to_arrow(self.columns, far, topic=piece.topic, partition=piece.partition)
            if not more:
                return

    def _chunks(self, piece: Slice) -> Iterator[tuple[Chunk, CommittedFilter | None, Selection]]:
        """Yield entries of a slice, the filter of committed records for `read_committed`, and the records to select."""
        if isinstance(piece, TopicSlice):
            from magicbyte.spark.live import fetched_chunks  # it loads the client

            yield from fetched_chunks(piece, self.options)
            return
        committed = None
        if piece.selection.isolation is Isolation.READ_COMMITTED:
            committed = CommittedFilter(piece.aborted, piece.selection.end)
        files, path = file_system(piece.path)
        with files.open(path) as file:
            for chunk in read_chunks(
                file,
                start=piece.start,
                end=piece.end,
                dialect=piece.dialect,
                merge=True,
                limit=self.options.max_batch_bytes,
                on_damage=self._on_damage,
            ):
                yield chunk, committed, piece.selection

    def _shallow(self, piece: Slice, far: FarTimestamps) -> Iterator[pa.RecordBatch]:
        for headers in self._headers(piece):
            rows, more = rows_within(headers, piece.selection.first, piece.selection.end)
            if len(rows):
                yield shallow_batch(headers, rows, self.columns, far, piece.topic, piece.partition)
            if not more:
                return

    def _headers(self, piece: Slice) -> Iterator[Headers]:
        if isinstance(piece, TopicSlice):
            from magicbyte.spark.live import fetched_headers

            yield from fetched_headers(piece, self.options)
            return
        from magicbyte.engine.log.files.headers import read_headers

        files, path = file_system(piece.path)
        with files.open(path) as file:
            yield from read_headers(
                file,
                start=piece.start,
                end=piece.end,
                dialect=piece.dialect,
                limit=self.options.max_batch_bytes,
                on_damage=self._on_damage,
                expected_bytes=max(piece.size, announced_bytes()),
                whole=not reads_headers_only(self.options, self.columns),
            )


def _settled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches, then call `settle`."""
    yield from batches
    settle()


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Concatenate small batches, because each costs time on its way into the JVM."""
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
