"""Split a log's segments, or join them: the same entries in other files. Nothing is decompressed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.files.partitions import log_start_offset, meta_properties
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.tools.offline.convert import last_epoch
from magicbyte.tools.offline.parts import WrittenSegment, written_in
from magicbyte.tools.offline.rebuild import recognise
from magicbyte.tools.offline.writer import LogDirectoryWriter

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.tools.offline.writer import PartitionWriter


def resegment(
    source: PartitionDirectory,
    name: TopicPartition,
    out: Path,
    segment_bytes: int,
    *,
    joins: bool,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
) -> None:
    """Write a new log directory `out` with the entries of one partition, in segments of at most `segment_bytes`.

    `joins`: adjacent segments are joined as far as they fit; otherwise each keeps its base offset. An empty last
    segment is kept, because its base is the log end offset. Index files are those of the Kafka version that wrote the
    source. Raises CorruptRecordError for damage, OSError if `out` cannot be written.
    """
    directory = LogDirectoryWriter(out, recognise(source) or LATEST_RULES)
    with _writer(source, name, directory, segment_bytes) as to:
        _copy(source, to, joins=joins, limit=limit)
        _finish(source, to)
    directory.finish(meta_properties([source]), {name: log_start_offset(source)})


def split_part(
    portion: PartitionDirectory,
    name: TopicPartition,
    out: Path,
    segment_bytes: int,
    *,
    rules: IndexRules,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
) -> list[WrittenSegment]:
    """Split some adjacent segments as `resegment` does, without joining, into a folder of their own.

    `rules` are those of the index files of the whole partition.
    """
    with _writer(portion, name, LogDirectoryWriter(out, rules), segment_bytes) as to:
        _copy(portion, to, joins=False, limit=limit)
        folder = to.finish().folder
    return written_in(folder, rules)


def join_split(
    source: PartitionDirectory,
    name: TopicPartition,
    out: Path,
    segment_bytes: int,
    segments: Iterable[WrittenSegment],
    *,
    rules: IndexRules,
) -> None:
    """Combine the segments of all parts of a partition, in order, into a log directory `out`, as `resegment` does.

    Parts do not overlap in offsets. The parts must be on the same file system as `out`.
    """
    directory = LogDirectoryWriter(out, rules)
    with _writer(source, name, directory, segment_bytes) as to:
        for segment in segments:
            to.adopt(segment)
        _finish(source, to)
    directory.finish(meta_properties([source]), {name: log_start_offset(source)})


def _writer(
    source: PartitionDirectory, name: TopicPartition, directory: LogDirectoryWriter, segment_bytes: int
) -> PartitionWriter:
    metadata, dialect = source.metadata(), source.dialect
    topic_id = None if metadata is None else metadata.topic_id
    return directory.partition(*name, segment_bytes=segment_bytes, topic_id=topic_id, dialect=dialect)


def _copy(source: PartitionDirectory, to: PartitionWriter, *, joins: bool, limit: int) -> None:
    for number, segment in enumerate(source.segments):
        is_needed = number == 0 or (segment is source.segments[-1] and not segment.log.size)
        if is_needed or not joins:
            to.roll(max(segment.base_offset, to.end_offset), keep_empty=not joins)
        with source.files.open(segment.log.path) as file:
            for chunk in read_chunks(file, dialect=source.dialect, limit=limit):
                try:
                    to.append(chunk.table.buffer[: chunk.table.end])
                except CorruptRecordError as error:
                    raise error.locate(path=chunk.path, shift=chunk.position) from None


def _finish(source: PartitionDirectory, to: PartitionWriter) -> None:
    if (epoch := last_epoch(source)) is not None:
        to.note_epoch(epoch)
    to.finish()
