"""What one append writes, and the facts about it that the log keeps: offsets, timestamps, what indexes may name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.compiled.kernel import worth_compiling
from magicbyte.errors import CorruptRecordError, TruncatedLogError
from magicbyte.log.append import index_kernels as kernels
from magicbyte.log.files.index_writer import (
    IndexRules,
    looked_into,
    offset_of_time,
)
from magicbyte.records.batch import RecordBatch
from magicbyte.records.extent import first_offset, last_offsets, max_timestamps
from magicbyte.records.forms import form_for
from magicbyte.records.header import extent_of
from magicbyte.records.layout import LOG_OVERHEAD, MAGIC, NO_TIMESTAMP, SIZE, Dialect
from magicbyte.records.scan import BatchTable, scan
from magicbyte.wire.checksum import Buffer

if TYPE_CHECKING:
    from magicbyte.log.append.prepare import PreparedAppend


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


class IndexEntry(NamedTuple):
    """An index entry that an entry of a set gets: where that begins in the set, and its offsets.

    `timestamp` is the largest up to there (ms), `time_offset` the offset that it counts as.
    """

    position: int
    first_offset: int
    last_offset: int
    timestamp: int
    time_offset: int


class Due(NamedTuple):
    """The index entries that a set gets, in order; and behind it what `RecordSet.due` is to be told of the next set."""

    entries: Sequence[IndexEntry]
    since_entry: int
    timestamp: int
    time_offset: int


class PlainEntries(NamedTuple):
    """The parts that many entries are, one behind the other: each has in its header all that an index says of it."""

    data: memoryview

    def due(self, since_entry: int, interval: int, timestamp: int, time_offset: int) -> Due:
        """Do what `RecordSet.due` does."""
        form = form_for(compiled=worth_compiling(len(self.data)))
        state = form.int64([since_entry, timestamp, time_offset])
        most = len(self.data) // max(interval, kernels.LEAST_ENTRY) + 2
        (out,) = form.outputs([(most * kernels.ENTRY, "q")])
        count = form.form(kernels.due_entries)(form.bytes_of(self.data), interval, state, out)
        assert count != kernels.NOT_WHOLE, "entries are whole"
        cells = iter(map(int, out[: count * kernels.ENTRY]))
        return Due([IndexEntry(*cell) for cell in zip(*[cells] * kernels.ENTRY, strict=True)], *map(int, state))


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
    parts: Sequence[Part] | PlainEntries
    batches: Sequence[RecordBatch]
    has_older: bool

    def due(self, since_entry: int, interval: int, timestamp: int, time_offset: int) -> Due:
        """Return the index entries of the set: one is due at a part more than `interval` bytes behind the last one.

        `since_entry`: how many bytes there are in front of the set from the entry on that got the last one.
        `timestamp`, `time_offset`: the largest in front of it.
        """
        if isinstance(self.parts, PlainEntries):
            return self.parts.due(since_entry, interval, timestamp, time_offset)
        entries = []
        for part in self.parts:
            if part.max_timestamp > timestamp:
                timestamp, time_offset = part.max_timestamp, part.time_offset
            if since_entry > interval:
                entries.append(IndexEntry(part.position, part.first_offset, part.last_offset, timestamp, time_offset))
                since_entry = 0
            since_entry += part.size
        return Due(entries, since_entry, timestamp, time_offset)


def record_set(data: Buffer, rules: IndexRules, dialect: Dialect = Dialect.KAFKA) -> RecordSet:
    """Return the set of the whole entries in `data`, whose offsets are final: what a follower appends, or a test.

    Headers are read; a wrapper is opened only where index entries name its first offset. Raises CorruptRecordError
    for bytes that are no whole entries, or none.
    """
    view = memoryview(data).toreadonly().cast("B")
    if len(view) > MAGIC.start and view[MAGIC.start] == 2 and dialect is Dialect.KAFKA:
        batch = RecordBatch.parse(view)
        if batch is not None and batch.size == len(view) and not rules.names_record_of_time:
            return _of_batch(batch, (view,), batch.last_offset)
    table = scan(view, dialect=dialect)
    if table.damage is not None:
        raise table.damage
    if table.end < len(view) or not len(table):
        expected = f"{table.need} bytes of an entry"
        raise TruncatedLogError("end of the data", expected=expected, found=len(view) - table.end, position=table.end)
    return _of_table(table, rules)


def prepared_set(prepared: PreparedAppend, rules: IndexRules, dialect: Dialect = Dialect.KAFKA) -> RecordSet:
    """Return the set of what `prepare` gives, of which there is something: what a leader appends.

    One batch of magic 2 and, where an index names what their headers say, messages are taken as they are described
    there; of anything else the headers are read.
    """
    head = prepared.buffers[0]
    magic, is_one = head[MAGIC.start], LOG_OVERHEAD + SIZE.read(head) == prepared.size
    if dialect is Dialect.KAFKA and magic == 2 and is_one:
        batch = RecordBatch(head)
        if batch.is_control:
            batch = RecordBatch(memoryview(bytes(prepared)))
        named = prepared.max_timestamp_offset if rules.names_record_of_time else -1
        return _of_batch(batch, prepared.buffers, batch.last_offset if named < 0 else named)
    if dialect is Dialect.KAFKA and magic < 2 and rules.entry_per_batch:
        return _of_messages(prepared, is_one=is_one)
    return record_set(bytes(prepared), rules, dialect)


def _of_batch(batch: RecordBatch, pieces: Sequence[Buffer], time_offset: int) -> RecordSet:
    """Return a set of one batch: the case that has to be quick."""
    first, last, timestamp, size = batch.base_offset, batch.last_offset, batch.max_timestamp, batch.size
    part = Part(0, size, first, last, timestamp, time_offset)
    return RecordSet(pieces, size, first, last, timestamp, timestamp, (part,), (batch,), False)


def _of_messages(prepared: PreparedAppend, *, is_one: bool) -> RecordSet:
    """Return a set of messages of magic 0 or 1, or of one wrapper, whose last offset is what its header says."""
    head, last, latest, size = prepared.buffers[0], prepared.last_offset, prepared.max_timestamp, prepared.size
    pieces: Sequence[Buffer] = prepared.buffers
    parts: Sequence[Part] | PlainEntries
    if is_one:
        parts = (Part(0, size, last, last, latest, last),)
    else:
        data = prepared.buffers[0] if len(prepared.buffers) == 1 else memoryview(bytes(prepared))
        pieces, parts = (data,), PlainEntries(data)
    timestamp = extent_of(head)[2]
    return RecordSet(pieces, size, prepared.first_offset, last, timestamp, latest, parts, (), True)


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
    parts: Sequence[Part] | PlainEntries
    if not each:
        parts = [part(0, rows)]
    elif table.dialect is Dialect.ENRICHED or looked_into(table, rules).any():
        parts = [part(row, row + 1) for row in range(rows)]
    else:
        parts = PlainEntries(table.buffer)
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
