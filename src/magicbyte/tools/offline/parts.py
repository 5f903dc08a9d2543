"""Describe written segments, so that several workers can write one partition, each some of its segments.

Offset and time indexes depend on their segment alone. Transactions, producers, leader epochs and the log end offset
depend on earlier segments. They are computed when the parts are joined, from the few entries that affect them, without
reading the logs again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.files.producer_state import LeaderEpochs, telling_rows
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.records.extent import last_offsets
from magicbyte.engine.records.layout import CONTROL_BIT, RECORD_BATCH_OVERHEAD

if TYPE_CHECKING:
    from pathlib import Path

    from magicbyte.engine.log.files.directory import PartitionDirectory, SegmentFiles


class WrittenSegment(NamedTuple):
    """A written segment with its indexes, in `folder`. Picklable.

    `size`: bytes of its log. `has_batches`: whether its last entry is of magic 2; None if it has no entry. `producers`:
    the entries that change the state of producers, in order: whole markers, and headers of data batches.
    """

    folder: Path
    base_offset: int
    end_offset: int
    size: int
    has_batches: bool | None
    epochs: LeaderEpochs
    producers: tuple[bytes, ...]


def written_in(folder: Path, rules: IndexRules) -> list[WrittenSegment]:
    """Describe the segments of a partition folder that was just written by `rules`."""
    (written,) = discover([str(folder)])
    of_dialect = rules.of_dialect(written.dialect)
    return [look_at(written, segment, folder, of_dialect) for segment in written.segments]


def look_at(partition: PartitionDirectory, segment: SegmentFiles, folder: Path, rules: IndexRules) -> WrittenSegment:
    """Describe a segment in `folder` that was just written. Raises CorruptRecordError."""
    end, has_batches = segment.base_offset, None
    producers: list[bytes] = []
    epochs = LeaderEpochs(ends_with_older=rules.release.ends_epochs_with_older)
    with partition.files.open(segment.log.path) as file:
        for chunk in read_chunks(file, dialect=partition.dialect):
            table = chunk.table
            end = int(last_offsets(table)[-1]) + 1
            has_batches = int(table.magic[len(table) - 1]) == 2
            if not rules.has_producers:
                continue
            epochs.append(table)
            for row in telling_rows(table):
                at, is_control = int(table.position[row]), int(table.attributes[row]) & CONTROL_BIT
                size = int(table.size[row]) if is_control else RECORD_BATCH_OVERHEAD
                producers.append(bytes(table.buffer[at : at + size]))
    return WrittenSegment(folder, segment.base_offset, end, segment.log.size, has_batches, epochs, tuple(producers))
