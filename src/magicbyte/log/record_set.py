"""What one append writes, and the facts about it that the log keeps: offsets, timestamps, what indexes may name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from magicbyte.errors import CorruptRecordError, TruncatedLogError
from magicbyte.log.index_writer import IndexRules, first_offset, last_offsets, max_timestamps, offset_of_time
from magicbyte.records.batch import RecordBatch
from magicbyte.records.layout import LOG_OVERHEAD, MAGIC, NO_TIMESTAMP, RECORD_BATCH_OVERHEAD, SIZE, Dialect
from magicbyte.records.scan import BatchTable, scan
from magicbyte.wire.checksum import Buffer

if TYPE_CHECKING:
    from magicbyte.log.append import PreparedAppend


class Part(NamedTuple):
    """A part of a set that may have an index entry of its own.

    That is all of it, or each batch from 3.9.1 on and in the enriched dialect. `position` counts from the set's
    beginning; `time_offset` is the offset that `max_timestamp` (ms) counts as.
    """

    position: int
    size: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    time_offset: int


@dataclass(frozen=True, slots=True)
class RecordSet:
    """Whole entries, as they are to lie in the log, in `pieces` of bytes.

    `first_timestamp` is that of the first entry's header (ms, -1: none); `batches` views of the magic 2 batches whose
    producers and leader epochs the log has to know; `has_older`: there are messages of magic 0 or 1.
    """

    pieces: Sequence[Buffer]
    size: int
    first_offset: int
    last_offset: int
    first_timestamp: int
    max_timestamp: int
    parts: Sequence[Part]
    batches: Sequence[RecordBatch]
    has_older: bool


def record_set(data: Buffer, rules: IndexRules, dialect: Dialect = Dialect.KAFKA) -> RecordSet:
    """Return the set of the whole entries in `data`, whose offsets are final: what a follower appends, or a test.

    Headers are read; a wrapper is opened only where index entries name its first offset. Raises CorruptRecordError
    for bytes that are no whole entries, or none.
    """
    view = memoryview(data).toreadonly().cast("B")
    if len(view) > MAGIC.start and view[MAGIC.start] == 2 and dialect is Dialect.KAFKA:
        batch = RecordBatch.parse(view)
        if batch is not None and batch.size == len(view) and not rules.names_record_of_time:
            return _of_batch(batch)
    table = scan(view, dialect=dialect)
    if table.damage is not None:
        raise table.damage
    if table.end < len(view) or not len(table):
        expected = f"{table.need} bytes of an entry"
        raise TruncatedLogError("end of the data", expected=expected, found=len(view) - table.end, position=table.end)
    return _of_table(table, rules)


def prepared_set(prepared: PreparedAppend, rules: IndexRules, dialect: Dialect = Dialect.KAFKA) -> RecordSet:
    """Return the set of what `prepare` gives, of which there is something: what a leader appends.

    One batch of magic 2 is taken as it is described there; of anything else the headers are read.
    """
    head = prepared.buffers[0]
    one_batch = len(head) >= RECORD_BATCH_OVERHEAD and head[MAGIC.start] == 2 and dialect is Dialect.KAFKA
    if not one_batch or LOG_OVERHEAD + SIZE.read(head) != prepared.size:
        return record_set(bytes(prepared), rules, dialect)
    batch = RecordBatch(head)
    if batch.is_control:
        batch = RecordBatch(memoryview(bytes(prepared)))
    found = _of_batch(batch)
    if prepared.max_timestamp_offset < 0 or not rules.names_record_of_time:
        return replace(found, pieces=prepared.buffers)
    part = found.parts[0]._replace(time_offset=prepared.max_timestamp_offset)
    return replace(found, pieces=prepared.buffers, parts=(part,))


def _of_batch(batch: RecordBatch) -> RecordSet:
    """Return a set of one batch: the case that has to be quick."""
    first, last, timestamp = batch.base_offset, batch.last_offset, batch.max_timestamp
    part = Part(0, batch.size, first, last, timestamp, last)
    return RecordSet((batch.buffer,), batch.size, first, last, timestamp, timestamp, (part,), (batch,), False)


def _of_table(table: BatchTable, rules: IndexRules) -> RecordSet:
    last, times = last_offsets(table).tolist(), max_timestamps(table).tolist()
    positions, sizes = np.asarray(table.position).tolist(), np.asarray(table.size).tolist()
    for row in range(1, len(table)):
        if last[row] <= last[row - 1]:
            raise CorruptRecordError(
                "offset", expected=f"> {last[row - 1]}", found=last[row], position=positions[row]
            ).locate(offsets=(last[row], last[row]))

    def first(row: int) -> int:
        wrapper = table.count[row] < 0 and table.dialect is Dialect.KAFKA
        return first_offset(table, row) if wrapper and not rules.names_last_offset else int(table.offset[row])

    def part(begin: int, end: int) -> Part:
        """Return the part of rows `begin` to below `end`."""
        largest = max(range(begin, end), key=lambda row: (times[row], -row))
        at = offset_of_time(table, largest, last[largest], rules) if times[largest] > NO_TIMESTAMP else last[largest]
        size = positions[end - 1] + sizes[end - 1] - positions[begin]
        return Part(positions[begin], size, first(begin), last[end - 1], times[largest], at)

    each = rules.entry_per_batch or table.dialect is Dialect.ENRICHED
    parts = [part(row, row + 1) for row in range(len(table))] if each else [part(0, len(table))]
    batches = [
        RecordBatch(table.buffer[positions[row] : positions[row] + sizes[row]])
        for row in range(len(table))
        if table.magic[row] == 2
    ]
    return RecordSet(
        (table.buffer,),
        len(table.buffer),
        first(0),
        last[-1],
        times[0],
        max(times),
        parts,
        batches,
        len(batches) < len(table),
    )
