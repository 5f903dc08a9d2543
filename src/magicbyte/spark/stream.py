"""Streams: follow growing log directories and running clusters batch by batch.

Spark stores a stream's position as JSON, as of its Kafka source: {"orders": {"0": 23}} has the offsets after the last
ones read. The first position that includes a partition also has its starting offset, under "began at". So a batch that
is repeated after a crash reads the same records, even if others have been appended since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.spark.options import EARLIEST, LATEST, OptionError, SourceOptions
from magicbyte.spark.plan import OffsetSpan, Ranges, SparkTask, lost
from magicbyte.spark.reading import read_task

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, Any]
BEGAN = "began at"
"""Not a valid topic name."""
_log = logger("magicbyte.spark")


class Logs(Protocol):
    """The source of a stream: `GrowingLogs` in files, or a `LiveCluster`."""

    def spans(self, begun: Mapping[TopicPartition, int] | None, /) -> Ranges:
        """Return the current offsets of each partition.

        `begun`: the offsets read so far; None: ignore open transactions. An end below them means that the log itself
        ends there, and not that a high watermark or a look-up lags behind.
        """

    def offset_from(self, key: TopicPartition, timestamp: int) -> int | None:
        """Return the offset of the first record with a timestamp (ms) or a later one, None if there is none."""

    def within_bytes(self, ranges: Ranges, most: int, /) -> Ranges:
        """Return the ranges cut to about `most` bytes in total."""

    def tasks(self, ranges: Ranges) -> list[SparkTask]:
        """Return tasks that read the ranges."""

    def close(self) -> None:
        """Release connections."""


def logs_of(options: SourceOptions) -> Logs:
    """Return the source of a stream. Starting offsets are not applied to it; `LogStream` applies them."""
    if options.bootstrap is not None:
        from magicbyte.spark.live import LiveCluster  # it loads the client

        return LiveCluster(replace(options, starts={}))
    from magicbyte.spark.growing import GrowingLogs

    return GrowingLogs(replace(options, starts={}))


@dataclass
class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plan batches on the driver, in a process that lives as long as the stream; read them in workers."""

    options: SourceOptions
    columns: pa.Schema
    _logs: Logs | None = None
    _target: Mapping[TopicPartition, int] | None = None
    _seen: Ranges | None = None

    @property
    def logs(self) -> Logs:
        """The source of the stream, created at first use, on the driver only."""
        if self._logs is None:
            self._logs = logs_of(self.options)
        return self._logs

    def initialOffset(self) -> Json:  # noqa: N802 (Spark's name)
        """Return the empty position. The first `latestOffset` after it adds the starting offsets."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return whether batches are limited. `latestOffset` applies the limits."""
        limits = [each for each in (self.options.max_offsets, self.options.max_bytes) if each]
        return ReadMaxRows(limits[0]) if limits else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the stream at the current end offsets."""
        self._target = {key: span.end for key, span in self.logs.spans(None).items()}

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Return the position at which the next batch ends: `start` itself, if there are no new records.

        Raises MagicbyteError for partitions or offsets that were read before and are gone, unless failOnDataLoss=false:
        then a deleted partition leaves the position, and one that ends below its position continues at its end, as in
        Spark's Kafka source.
        """
        begun = _offsets(start)
        spans = self._seen = self.logs.spans(begun)
        self._check(begun, spans)
        if self._target is not None:  # it limits how far a batch goes, and takes no position back
            spans = {
                key: span._replace(end=max(min(span.end, self._target[key]), min(begun.get(key, 0), span.end)))
                for key, span in spans.items()
                if key in self._target
            }
        new = {key: self._first(key, span, is_first=not start) for key, span in spans.items() if key not in begun}
        ranges: Ranges = {
            key: OffsetSpan(first, max(span.end, first))
            for key, span in spans.items()
            for first in [new[key] if key in new else min(max(begun[key], span.first), span.end)]
        }
        if not isinstance(limit, ReadAllAvailable):
            ranges = self._limited(ranges)
        ends = {key: span.end for key, span in ranges.items()}
        if start and ends == begun:
            return start
        place: Json = _json(ends)
        # An empty position would begin with the options' starting offsets again.
        return place | {BEGAN: _json(new)} if new or not place else place

    def _check(self, begun: Mapping[TopicPartition, int], spans: Ranges) -> None:
        """Raise MagicbyteError for partitions and offsets that are gone, or log them if failOnDataLoss is false."""
        for key, offset in begun.items():
            if key not in spans:
                problem, remedy = f"{key}: deleted since the stream read it", "continues without it"
            elif offset > spans[key].end:
                end = spans[key].end
                problem = f"{key}: read up to offset {offset} before, and ends at {end} now: was it recreated?"
                remedy = f"continues at {end}, without the records below it that may have replaced those already read"
            else:
                continue
            if self.options.fail_on_data_loss:
                raise MagicbyteError(f"{problem} The option failOnDataLoss=false {remedy}")
            _log.warning("%s The stream %s", problem, remedy)

    def _first(self, key: TopicPartition, span: OffsetSpan, *, is_first: bool) -> int:
        """Return the starting offset of a partition: that of the options, or its first offset if it was added later."""
        if not is_first:
            return span.first
        options = self.options
        if options.starts and key not in options.starts:
            raise OptionError(f"startingOffsets: expected one for each partition that is read, found none for {key}")
        bound = options.starts.get(key, options.start)
        if bound.timestamp is not None:
            offset = self.logs.offset_from(key, bound.timestamp)
            if offset is None and options.start_strategy == "error":
                raise OptionError(
                    f"{key}: no record from timestamp {bound.timestamp} on; the option "
                    "startingOffsetsByTimestampStrategy=latest then begins at the end"
                )
            return span.end if offset is None else min(max(offset, span.first), span.end)
        if bound.offset == EARLIEST:
            return span.first
        if bound.offset == LATEST:
            return span.end
        assert bound.offset is not None, "an offset or a timestamp"
        if bound.offset < span.first and options.fail_on_data_loss:
            raise lost(str(key), bound.offset, span.first)
        return min(max(bound.offset, span.first), span.end)

    def _limited(self, ranges: Ranges) -> Ranges:
        """Return the ranges cut to the limits of one batch, in proportion to their size."""
        most, total = self.options.max_offsets, sum(end - first for first, end in ranges.values())
        if most and total > most:
            ranges = {
                key: OffsetSpan(first, min(first + max((end - first) * most // total, 1), end))
                for key, (first, end) in ranges.items()
            }
        return self.logs.within_bytes(ranges, self.options.max_bytes) if self.options.max_bytes else ranges

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Return the end offsets of the last look-up, which Spark reports in a stream's progress."""
        return None if self._seen is None else _json({key: span.end for key, span in self._seen.items()})

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Plan a batch. Raises MagicbyteError for deleted partitions or offsets, unless failOnDataLoss=false."""
        begun = _offsets(start) | _offsets(end.get(BEGAN, {}))
        ranges = {
            key: OffsetSpan(begun[key], offset)
            for key, offset in _offsets(end).items()
            if key in begun and begun[key] < offset
        }
        if not ranges:
            return []
        spans = self.logs.spans({key: span.first for key, span in ranges.items()})
        self._check({key: span.end for key, span in ranges.items()}, spans)
        if self.options.fail_on_data_loss:
            for key, span in ranges.items():
                if span.first < spans[key].first:
                    raise lost(str(key), span.first, spans[key].first)
        ranges = {
            key: OffsetSpan(max(first, spans[key].first), min(behind, spans[key].end))
            for key, (first, behind) in ranges.items()
            if key in spans
        }
        return list(self.logs.tasks({key: span for key, span in ranges.items() if span.first < span.end}))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches. Runs in a worker."""
        return read_task(partition, self.options, self.columns)

    def stop(self) -> None:
        """Release connections."""
        if self._logs is not None:
            self._logs.close()
            self._logs = None


def _offsets(place: Json) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): offset
        for topic, numbers in place.items()
        if topic != BEGAN
        for number, offset in numbers.items()
    }


def _json(offsets: Mapping[TopicPartition, int]) -> Json:
    found: Json = {}
    for (topic, number), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(number)] = offset
    return found
