"""Cuts a log's segments smaller, or puts them together: the same entries in other files. Nothing is decompressed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from magicbyte.archive.convert import last_epoch
from magicbyte.archive.rebuild import recognise
from magicbyte.archive.writer import LogDirectoryWriter
from magicbyte.errors import CorruptRecordError
from magicbyte.log.files.index_writer import LATEST_RULES
from magicbyte.log.files.partitions import log_start_offset, meta_properties
from magicbyte.log.files.reader import read_chunks
from magicbyte.records.decode import DEFAULT_MAX_BATCH_BYTES

if TYPE_CHECKING:
    from magicbyte.log.files.directory import PartitionDirectory
    from magicbyte.ports import TopicPartition


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

    `joins`: neighbouring segments become one, as far as they fit; else each begins where it did. The last one, if it is
    empty, stays: its base is where the log ends. Index files are those of the Kafka version whose files are there.
    Raises CorruptRecordError for damage, OSError where it cannot be written.
    """
    writer = LogDirectoryWriter(out, recognise(source) or LATEST_RULES)
    metadata, dialect = source.metadata(), source.dialect
    topic_id = None if metadata is None else metadata.topic_id
    with writer.partition(*name, segment_bytes=segment_bytes, topic_id=topic_id, dialect=dialect) as to:
        for number, segment in enumerate(source.segments):
            is_needed = number == 0 or (segment is source.segments[-1] and not segment.log.size)
            if is_needed or not joins:
                to.roll(max(segment.base_offset, to.end_offset), keep_empty=not joins)
            with source.files.open(segment.log.path) as file:
                for chunk in read_chunks(file, dialect=dialect, limit=limit):
                    try:
                        to.append(chunk.table.buffer[: chunk.table.end])
                    except CorruptRecordError as error:
                        raise error.locate(path=chunk.path, shift=chunk.position) from None
        if (epoch := last_epoch(source)) is not None:
            to.note_epoch(epoch)
        to.finish()
    writer.finish(meta_properties([source]), {name: log_start_offset(source)})
