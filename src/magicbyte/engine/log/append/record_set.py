"""The set of one append, with the facts that the log keeps: offsets, timestamps, entries for indexes."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from magicbyte.engine.compiled.kernel import worth_compiling
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError, TruncatedLogError
from magicbyte.engine.log.append import index_kernels as kernels
from magicbyte.engine.log.append.rules import ALL_ROOM, Room
from magicbyte.engine.log.files.index_writer import (
    IndexRules,
    looked_into,
    offset_of_time,
)
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.extent import first_offset, last_offsets, max_timestamps
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.header import extent_of
from magicbyte.engine.records.layout import LOG_OVERHEAD, MAGIC, SIZE, Dialect
from magicbyte.engine.records.scan import BatchTable, scan
from magicbyte.engine.sentinels import NO_PRODUCER_ID, NO_TIMESTAMP
from magicbyte.engine.wire.checksum import Buffer


class AppendOrigin(enum.Enum):
    """The sender of a set, which decides on the checks of its producer. Source: Kafka's AppendOrigin."""

    CLIENT = "client"  # duplicates and gaps are found by sequence
    COORDINATOR = "coordinator"  # of this broker: only the epoch is checked
    REPLICATION = "replication"  # the leader checked it, and assigned its offsets


class IndexedPart(NamedTuple):
    """A part of a set that may have an index entry of its own.

    This is the whole set; from 3.9.1 on and in the enriched dialect it is each batch. `position` counts from the set's
    beginning; `time_offset` is the offset of `max_timestamp` (ms).
    """

    position: int
    size: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    time_offset: int


class IndexEntry(NamedTuple):
    """An index entry for an entry of a set: the entry's position in the set, and its offsets.

    `timestamp` is the largest up to there (ms), `time_offset` its offset.
    """

    position: int
    first_offset: int
    last_offset: int
    timestamp: int
    time_offset: int


class Due(Struct, frozen=True):
    """The index entries of a set, in order, and the arguments of `RecordSet.due` for the next set."""

    entries: Sequence[IndexEntry]
    since_entry: int
    timestamp: int
    time_offset: int


class PlainEntries(NamedTuple):
    """Index entries of many parts in a row: the header of each has all values of its index entry."""

    data: memoryview

    def due(self, since_entry: int, interval: int, timestamp: int, time_offset: int) -> Due:
        """As `RecordSet.due`."""
        form = form_for(compiled=worth_compiling(len(self.data)))
        state = form.int64([since_entry, timestamp, time_offset])
        most = len(self.data) // max(interval, kernels.LEAST_ENTRY) + 2
        (out,) = form.outputs([(most * kernels.ENTRY, "q")])
        count = form.form(kernels.due_entries)(form.bytes_of(self.data), interval, state, out)
        assert count != kernels.NOT_WHOLE, "entries are whole"
        cells = iter(map(int, out[: count * kernels.ENTRY]))
        return Due([IndexEntry(*cell) for cell in zip(*[cells] * kernels.ENTRY, strict=True)], *map(int, state))


class RecordSet(Struct):
    """The entries of one append and the facts about them. `pieces` are whole entries, in order.

    `prepare` creates it for produced bytes, `record_set` for bytes with final offsets. Offsets -1: nothing to write.
    Sizes in bytes, timestamps in ms, -1: none. `first_timestamp`: in the first entry's header. `max_timestamp_offset`:
    of the time index entry, -1 for records without timestamps or if `parts` have it. `batches`: views of the magic 2
    batches, for the state of producers and leader epochs. `has_older`: there are messages of magic 0 or 1. `parts`
    None: the set is one batch.

    Results of `prepare`: `log_append_time`, for the response; `rebuilt`, whether the records were encoded again;
    `decompressed` and `compressed`, the number of codec calls; `origin`; `room`, for wrappers that `indexed` opens.
    """

    pieces: list[memoryview]
    size: int
    first_offset: int
    last_offset: int
    first_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    max_timestamp_offset: int = -1
    parts: Sequence[IndexedPart] | PlainEntries | None = None
    batches: Sequence[RecordBatch] = ()
    has_older: bool = False
    log_append_time: int = NO_TIMESTAMP
    rebuilt: bool = False
    decompressed: int = 0
    compressed: int = 0
    origin: AppendOrigin = AppendOrigin.REPLICATION
    room: Room = ALL_ROOM

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def records(self) -> int:
        """The number of offsets, which is the number of records that `prepare` read."""
        return self.last_offset - self.first_offset + 1 if self.size else 0

    @property
    def newest_magic(self) -> int:
        """An upper bound of the magic of its entries, by their kinds: 2 with a batch, otherwise 1."""
        return 2 if self.batches else 1

    @property
    def next_offset(self) -> int:
        """The offset after the last one: that of the next append."""
        return self.last_offset + 1

    @property
    def producer(self) -> RecordBatch | None:
        """The first batch, if it has a producer id: a leader checks it against the state of its producer."""
        batch = self.batches[0] if self.batches else None
        return None if batch is None or batch.producer_id == NO_PRODUCER_ID else batch

    def time(self, timestamp: int, offset: int) -> None:
        """Apply a timestamp. Of several equal largest timestamps the first counts."""
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, offset

    def due(self, since_entry: int, interval: int, timestamp: int, time_offset: int) -> Due:
        """Return the index entries of the set: one is due at a part more than `interval` bytes after the last one.

        `since_entry`: the bytes before the set, counted from the entry with the last index entry. `timestamp`,
        `time_offset`: the largest timestamp before the set.
        """
        if isinstance(self.parts, PlainEntries):
            return self.parts.due(since_entry, interval, timestamp, time_offset)
        if self.parts is None:
            if self.max_timestamp > timestamp:
                timestamp, time_offset = self.max_timestamp, self.max_timestamp_offset
            if since_entry <= interval:
                return Due((), since_entry + self.size, timestamp, time_offset)
            entry = IndexEntry(0, self.first_offset, self.last_offset, timestamp, time_offset)
            return Due((entry,), self.size, timestamp, time_offset)
        entries = []
        for indexed_part in self.parts:
            if indexed_part.max_timestamp > timestamp:
                timestamp, time_offset = indexed_part.max_timestamp, indexed_part.time_offset
            if since_entry > interval:
                entries.append(
                    IndexEntry(
                        indexed_part.position,
                        indexed_part.first_offset,
                        indexed_part.last_offset,
                        timestamp,
                        time_offset,
                    )
                )
                since_entry = 0
            since_entry += indexed_part.size
        return Due(entries, since_entry, timestamp, time_offset)


def record_set(data: Buffer, rules: IndexRules, dialect: Dialect = Dialect.KAFKA, room: Room = ALL_ROOM) -> RecordSet:
    """Return the set of the whole entries in `data` with final offsets, for appends of followers and tests.

    Headers are read. A wrapper is opened, in `room`, only if index entries have its first offset, or its header has not
    its last one. Raises CorruptRecordError for bytes that are not whole entries, or empty, and RoomNeeded.
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
    try:
        return _of_table(table, rules, room.limit)
    except BatchTooLargeError as error:
        raise room.exceeded(error) from None


def indexed(prepared: RecordSet, rules: IndexRules, dialect: Dialect = Dialect.KAFKA) -> RecordSet:
    """Return a non-empty prepared set of messages with the parts that a log with these rules indexes.

    Messages need no more reading if an index has the offsets in their headers.
    Of other sets the headers are read, as by `record_set`.
    """
    if dialect is not Dialect.KAFKA or not rules.entry_per_batch:
        return record_set(bytes(prepared), rules, dialect, prepared.room)
    head, last = prepared.pieces[0], prepared.last_offset
    prepared.first_timestamp, prepared.has_older = extent_of(head)[2], True
    if LOG_OVERHEAD + SIZE.read(head) == prepared.size:  # one message or wrapper, whose header has its last offset
        prepared.parts = (IndexedPart(0, prepared.size, last, last, prepared.max_timestamp, last),)
        return prepared
    if len(prepared.pieces) > 1:
        prepared.pieces = [memoryview(bytes(prepared))]
    prepared.parts = PlainEntries(prepared.pieces[0])
    return prepared


def _of_batch(batch: RecordBatch) -> RecordSet:
    """Return a set of one batch: the fast path."""
    last, timestamp = batch.last_offset, batch.max_timestamp
    return RecordSet([batch.buffer], batch.size, batch.base_offset, last, timestamp, timestamp, last, batches=(batch,))


def _of_table(table: BatchTable, rules: IndexRules, limit: int) -> RecordSet:
    import numpy as np

    last, times = last_offsets(table, limit), max_timestamps(table)
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
        return first_offset(table, row, limit) if wrapper and not rules.names_last_offset else int(table.offset[row])

    def part(begin: int, end: int) -> IndexedPart:
        """Return the part of rows `begin` to below `end`."""
        at = begin + int(times[begin:end].argmax())  # of several equal largest timestamps the first counts
        last_of_it, timestamp = int(last[at]), int(times[at])
        named = offset_of_time(table, at, last_of_it, rules) if timestamp > NO_TIMESTAMP else last_of_it
        bytes_ = int(position[end - 1] + size[end - 1] - position[begin])
        return IndexedPart(int(position[begin]), bytes_, first(begin), int(last[end - 1]), timestamp, named)

    each, rows = rules.entry_per_batch or table.dialect is Dialect.ENRICHED, len(table)
    parts: Sequence[IndexedPart] | PlainEntries
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
        [table.buffer],
        len(table.buffer),
        first(0),
        int(last[-1]),
        int(times[0]),
        int(times.max()),
        parts=parts,
        batches=batches,
        has_older=len(batches) < rows,
    )
