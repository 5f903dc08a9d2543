"""What one append writes, and the facts about it that the log keeps: offsets, timestamps, what indexes may name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.errors import CorruptRecordError, TruncatedLogError
from magicbyte.log.index_writer import (
    IndexRules,
    first_offset,
    last_offsets,
    looked_into,
    max_timestamps,
    offset_of_time,
)
from magicbyte.records.batch import RecordBatch
from magicbyte.records.layout import LOG_OVERHEAD, MAGIC, NO_TIMESTAMP, RECORD_BATCH_OVERHEAD, SIZE, Dialect
from magicbyte.records.scan import BatchTable, scan
from magicbyte.wire.checksum import Buffer

if TYPE_CHECKING:
    from magicbyte.log.append import PreparedAppend
    from magicbyte.log.indexes import Int64Array


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
class PlainRows:
    """Many entries, one behind the other, each with all that an index says of it in its header: what parts it makes."""

    position: Int64Array
    size: Int64Array
    first_offset: Int64Array
    last_offset: Int64Array
    timestamp: Int64Array

    def since(self, since_entry: int, interval: int) -> Iterator[Part]:
        """Do what `RecordSet.parts_since` does: a row that an entry is due at comes alone, what is between as one."""
        import numpy as np

        row, count = 0, len(self.position)
        while row < count:
            beyond = int(self.position[row]) + interval - since_entry
            due = max(row, int(np.searchsorted(self.position, beyond, "right")))
            if due > row:
                yield self._part(row, due)
            if due < count:
                yield self._part(due, due + 1)
                since_entry = int(self.size[due])
            row = due + 1

    def _part(self, begin: int, end: int) -> Part:
        at = begin + int(self.timestamp[begin:end].argmax())  # of several that are the largest the first counts
        position, last = int(self.position[begin]), end - 1
        return Part(
            position,
            int(self.position[last] + self.size[last]) - position,
            int(self.first_offset[begin]),
            int(self.last_offset[last]),
            int(self.timestamp[at]),
            int(self.last_offset[at]),
        )


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
    parts: Sequence[Part] | PlainRows
    batches: Sequence[RecordBatch]
    has_older: bool

    def parts_since(self, since_entry: int, interval: int) -> Iterable[Part]:
        """Yield the parts in order. What may be one part, as none of it gets an index entry, may come as one.

        `since_entry`: how many bytes stand between the last index entry and this set; an entry is due behind
        `interval` bytes.
        """
        return self.parts.since(since_entry, interval) if isinstance(self.parts, PlainRows) else self.parts


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
    (part,) = found.parts_since(0, 0)
    named = part._replace(time_offset=prepared.max_timestamp_offset)
    return replace(found, pieces=prepared.buffers, parts=(named,))


def _of_batch(batch: RecordBatch) -> RecordSet:
    """Return a set of one batch: the case that has to be quick."""
    first, last, timestamp = batch.base_offset, batch.last_offset, batch.max_timestamp
    part = Part(0, batch.size, first, last, timestamp, last)
    return RecordSet((batch.buffer,), batch.size, first, last, timestamp, timestamp, (part,), (batch,), False)


def _of_table(table: BatchTable, rules: IndexRules) -> RecordSet:
    import numpy as np

    last, times = last_offsets(table), max_timestamps(table)
    position, size = np.asarray(table.position, np.int64), np.asarray(table.size, np.int64)
    fallen = np.flatnonzero(np.diff(last) <= 0)
    if fallen.size:
        row = int(fallen[0]) + 1
        found, place = int(last[row]), int(position[row])
        raise CorruptRecordError("offset", expected=f"> {int(last[row - 1])}", found=found, position=place).locate(
            offsets=(found, found)
        )

    def first(row: int) -> int:
        wrapper = table.count[row] < 0 and table.dialect is Dialect.KAFKA
        return first_offset(table, row) if wrapper and not rules.names_last_offset else int(table.offset[row])

    def part(begin: int, end: int) -> Part:
        """Return the part of rows `begin` to below `end`."""
        at = begin + int(times[begin:end].argmax())  # of several that are the largest the first counts
        last_of_it, timestamp = int(last[at]), int(times[at])
        named = offset_of_time(table, at, last_of_it, rules) if timestamp > NO_TIMESTAMP else last_of_it
        bytes_ = int(position[end - 1] + size[end - 1] - position[begin])
        return Part(int(position[begin]), bytes_, first(begin), int(last[end - 1]), timestamp, named)

    each, rows = rules.entry_per_batch or table.dialect is Dialect.ENRICHED, len(table)
    parts: Sequence[Part] | PlainRows
    if not each:
        parts = [part(0, rows)]
    elif table.dialect is Dialect.ENRICHED or looked_into(table, rules).any():
        parts = [part(row, row + 1) for row in range(rows)]
    else:
        parts = PlainRows(position, size, np.asarray(table.offset, np.int64), last, times)
    batches = [
        RecordBatch(table.buffer[position[row] : position[row] + size[row]])
        for row in np.flatnonzero(np.asarray(table.magic) == 2).tolist()
    ]
    return RecordSet(
        (table.buffer,),
        len(table.buffer),
        first(0),
        int(last[-1]),
        int(times[0]),
        int(times.max()),
        parts,
        batches,
        len(batches) < rows,
    )
