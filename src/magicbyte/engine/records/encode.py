"""Encode records, as columns or as objects, in any format: batches, wrappers or plain messages.

Uncompressed output equals that of Kafka's own builders, byte for byte. Small input takes the plain twins of the
kernels, large input the compiled ones. Bytes: docs/formats/. Source: Kafka's MemoryRecordsBuilder, DefaultRecord,
LegacyRecord.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from msgspec import Struct

from magicbyte.engine.codecs import Codec, compress
from magicbyte.engine.codecs import lz4_kernels as lz4
from magicbyte.engine.compiled.checksums import CASTAGNOLI, IEEE
from magicbyte.engine.compiled.kernel import worth_compiling
from magicbyte.engine.errors import (
    BatchTooLargeError,
    CorruptRecordError,
    MagicbyteError,
    UnsupportedCompressionError,
    UnsupportedForMessageFormatError,
)
from magicbyte.engine.records import encode_kernels as kernels
from magicbyte.engine.records import repack_kernels as repack
from magicbyte.engine.records.batch import batch_attributes, build_batch, single_record, write_batch_header
from magicbyte.engine.records.columns import BytesColumn, HeaderColumns, Record, RecordColumns
from magicbyte.engine.records.enriched import MAX_SECONDS, build_enriched_wrapper
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.layout import RECORD_BATCH_OVERHEAD, V0_OVERHEAD, V1_OVERHEAD, Dialect, TimestampType
from magicbyte.engine.records.message import build_wrapper
from magicbyte.engine.sentinels import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP

DEFAULT_BATCH_BYTES = 16384
GROUP_BYTES = 1 << 21  # of records per chunk: enough to amortize a kernel call, small enough for the caches
_MOST_ROWS = 0x7FFFFFFF
_FEW_ROWS: Final = 64  # for so few rows, adding up their lengths is cheaper than zeroing memory for a whole batch
_RECORD_OVERHEAD = 36  # upper bound of a v2 record's size without key, value and headers
_HEADER_OVERHEAD = 10
_TAG_BYTES = 9


class Format(enum.Enum):
    """A message format to write: Kafka's three, and the enriched dialect."""

    V0 = "0"
    V1 = "1"
    V2 = "2"
    ENRICHED = "enriched"

    magic: int
    dialect: Dialect
    __hash__ = object.__hash__  # Enum's own is slow Python code, and brokers look up formats in dicts at each request

    def __init__(self, value: str) -> None:
        """Set the magic byte, and the dialect in which such a log is read."""
        self.magic = 1 if value == "enriched" else int(value)
        self.dialect = Dialect.ENRICHED if value == "enriched" else Dialect.KAFKA

    @property
    def title(self) -> str:
        """Its name in messages: v0, v1, v2 or enriched."""
        return self.value if self is Format.ENRICHED else f"v{self.value}"

    def check_codec(self, codec: Codec) -> None:
        """Raise UnsupportedCompressionError for zstd in any format but V2."""
        if codec is Codec.ZSTD and self is not Format.V2:
            raise UnsupportedCompressionError(f"zstd needs magic 2: format {self.value} cannot hold it")


KAFKA_FORMATS: Final = (Format.V0, Format.V1, Format.V2)
"""In the order of their magic, so the oldest first."""


class BatchHeader(NamedTuple):
    """Header fields of a batch or wrapper that its records do not determine. None means the value that follows from
    them.

    Times are in ms. With LogAppendTime as `timestamp_type`, `max_timestamp` is the append time and applies to all
    records: v2 keeps the records' own timestamps as deltas, the other formats write it into every message.
    `base_timestamp` is the base of v2's deltas, and the delete horizon with `has_delete_horizon`. All fields except
    timestamps are for v2 only, but `base_offset` is also the starting offset of an enriched wrapper.
    """

    base_offset: int | None = None
    last_offset: int | None = None
    base_timestamp: int | None = None
    timestamp_type: TimestampType | None = None
    max_timestamp: int | None = None
    is_transactional: bool = False
    is_control: bool = False
    has_delete_horizon: bool = False
    partition_leader_epoch: int = -1
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE

    def attributes(self, codec: Codec, *, append_time: bool) -> int:
        """Return the attributes field of a v2 batch. `append_time`: its timestamps are of type LogAppendTime."""
        return batch_attributes(
            codec,
            TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME,
            is_transactional=self.is_transactional,
            is_control=self.is_control,
            has_delete_horizon=self.has_delete_horizon,
        )


DEFAULT_HEADER = BatchHeader()
_FOLLOWS: Final = (None,) * 5  # the fields up to max_timestamp: all follow from the records
_HEADER_PLACES: Final = len(_FOLLOWS)


class OldFrames(Struct, frozen=True):
    """The matches of the LZ4 frames from which the columns of a `RowWriter` were decoded.

    `places`: PLACES integers (see repack_kernels.py) for each batch or wrapper to write; `matches` of all of them.
    """

    places: Any
    matches: Any

    def of(self, chosen: Sequence[int]) -> OldFrames:
        """Return the matches of some of the entries, in their order."""
        count, places = repack.PLACES, _flat(self.places)
        if len(chosen) * count == len(places):
            return self
        return OldFrames([number for at in chosen for number in places[at * count : (at + 1) * count]], self.matches)


def encode(
    columns: RecordColumns,
    target: Format,
    codec: Codec = Codec.NONE,
    *,
    level: int | None = None,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    batch_rows: int | None = None,
    header: BatchHeader = DEFAULT_HEADER,
    batches: Sequence[tuple[int, BatchHeader]] | None = None,
) -> memoryview:
    """Encode the records into one buffer of whole entries: the chunks of `encode_chunks`, joined."""
    options: dict[str, Any] = {"level": level, "batch_bytes": batch_bytes, "batch_rows": batch_rows}
    chunks = list(encode_chunks(columns, target, codec, header=header, batches=batches, **options))
    return chunks[0] if len(chunks) == 1 else memoryview(b"".join(chunks))


def encode_chunks(
    columns: RecordColumns,
    target: Format,
    codec: Codec = Codec.NONE,
    *,
    level: int | None = None,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    batch_rows: int | None = None,
    header: BatchHeader = DEFAULT_HEADER,
    batches: Sequence[tuple[int, BatchHeader]] | None = None,
) -> Iterator[memoryview]:
    """Yield the records in `target`, compressed with `codec`, in chunks of whole entries of about GROUP_BYTES.

    V2 gives batches; the other formats give wrappers, or plain messages if `codec` is NONE. A batch ends before it
    would exceed `batch_bytes` (uncompressed) or `batch_rows`, and where the timestamp type or the append time changes.
    All get `header`, whose base_sequence is that of the first record. `batches`, if given, sets the record counts and
    headers instead. The columns must hold keys and values; headers are written if the target has them.

    Raises UnsupportedCompressionError for zstd before magic 2, CorruptRecordError for inconsistent columns and for
    offsets that descend within a batch, UnsupportedForMessageFormatError for offsets that span more than an int32, and
    BatchTooLargeError for a batch of more bytes than an int32 can count.
    """
    target.check_codec(codec)
    writer = RowWriter(columns, target, level)
    if batches is not None:
        ends = list(accumulate((count for count, _ in batches), initial=0))
        if ends[-1] != len(columns):
            raise CorruptRecordError("records of the batches", expected=len(columns), found=ends[-1])
        for first, (count, each) in zip(ends, batches, strict=False):
            yield writer.write(writer.batch(first, first + count), codec, [each])
    elif len(columns):
        yield from writer.cut(0, len(columns), codec, batch_bytes, batch_rows, header)


def encode_records(
    records: Iterable[Record],
    target: Format,
    codec: Codec = Codec.NONE,
    *,
    level: int | None = None,
    header: BatchHeader = DEFAULT_HEADER,
) -> bytes:
    """Encode a few records as one batch or wrapper, or as plain messages. Errors: see `encode_chunks`."""
    target.check_codec(codec)
    rows = list(records)
    if len(rows) == 1 and target is Format.V2 and codec is Codec.NONE and header[:_HEADER_PLACES] == _FOLLOWS:
        return _single_batch(rows[0], header)
    columns = columns_of(rows)
    if not len(columns):
        return b""
    writer = RowWriter(columns, target, level)
    return bytes(writer.write(writer.batch(0, len(columns)), codec, [header]))


def _single_batch(record: Record, header: BatchHeader) -> bytes:
    """Return a batch of one record: coordinators write many, and columns cost several times the rest."""
    return build_batch(
        single_record(record.key, record.value, record.headers),
        base_offset=record.offset,
        last_offset_delta=0,
        base_timestamp=record.timestamp,
        max_timestamp=record.timestamp,
        record_count=1,
        attributes=header.attributes(Codec.NONE, append_time=record.timestamp_type == 1),
        partition_leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def columns_of(records: Iterable[Record]) -> RecordColumns:
    """Return records as columns."""
    rows = list(records)
    headers = [header for row in rows for header in row.headers]
    return RecordColumns(
        [row.offset for row in rows],
        [row.timestamp for row in rows],
        [row.timestamp_type for row in rows],
        _column([row.key for row in rows]),
        _column([row.value for row in rows]),
        HeaderColumns(
            [len(row.headers) for row in rows],
            _column([name.encode() for name, _ in headers]),
            _column([value for _, value in headers]),
        ),
    )


def _column(cells: list[bytes | None]) -> BytesColumn:
    lengths = [-1 if cell is None else len(cell) for cell in cells]
    starts = list(accumulate((max(length, 0) for length in lengths), initial=0))
    return BytesColumn(b"".join(cell for cell in cells if cell), starts, lengths, packed=True)


class RowWriter:
    """Write the rows of some columns in order, in groups of batches, wrappers or plain messages.

    Batches have the form that the kernels take: an array or list of kernels.BATCH integers for each.
    """

    def __init__(self, columns: RecordColumns, target: Format, level: int | None = None) -> None:
        assert columns.key is not None
        assert columns.value is not None
        self.target = target
        self.level = level
        least = V0_OVERHEAD if target is Format.V0 else V1_OVERHEAD
        self._least = 1 if target is Format.V2 else least
        self._overhead = _RECORD_OVERHEAD if target is Format.V2 else least + _TAG_BYTES
        self.form = form = form_for(compiled=worth_compiling(len(columns.key.data) + len(columns.value.data)))
        self.offset, self.timestamp = form.int64(columns.offset), form.int64(columns.timestamp)
        self.timestamp_type = form.int8(columns.timestamp_type)
        self.key, self.value = self._cells(columns.key), self._cells(columns.value)
        self.header_count = form.int32([])
        self.header_key = self.header_value = form.bytes_of(b""), form.int32([]), form.int32([])
        if target is Format.V2 and columns.headers is not None and len(columns.headers.key):
            self.header_count = form.int32(columns.headers.count)
            self.header_key = self._cells(columns.headers.key)
            self.header_value = self._cells(columns.headers.value)
        self._row = self._headers_before = 0
        of_rows = [self.offset, self.timestamp, self.timestamp_type, *self.key[1:], *self.value[1:]]
        shortest = min(map(len, of_rows if not len(self.header_count) else [*of_rows, self.header_count]))
        names = len(self.header_key[2])
        if shortest < len(columns) or min(map(len, (self.header_key[1], *self.header_value[1:]))) < names:
            raise CorruptRecordError("length of a column", expected=len(columns), found=shortest)

    def _cells(self, column: BytesColumn) -> tuple[Any, Any, Any]:
        form = self.form
        return form.bytes_of(column.data), form.int32(column.start), form.int32(column.length)

    def batch(self, first: int, end: int) -> Any:
        """Return one batch of the rows `first` to `end`. The caller must have checked that they fit into one batch."""
        return self.form.int64(self.batch_fields(first, end))

    def batch_fields(self, first: int, end: int) -> list[int]:
        """Return the integers of one batch."""
        if first == end:
            return [first, end, 0, NO_TIMESTAMP, 0, 0, 0, 0, 0]
        base, kind = int(self.offset[first]), int(self.timestamp_type[first])
        return [first, end, base, int(self.timestamp[first]), kind, 0, 0, 0, 0]

    def cut(
        self,
        first: int,
        end: int,
        codec: Codec,
        batch_bytes: int,
        batch_rows: int | None = None,
        header: BatchHeader = DEFAULT_HEADER,
    ) -> Iterator[memoryview]:
        """Yield the rows `first` to `end` in chunks of about GROUP_BYTES, with the parameters of `encode_chunks`."""
        form, batched = self.form, self.target is Format.V2
        plain = codec is Codec.NONE and not batched
        room = 1 if plain else max(GROUP_BYTES // max(batch_bytes, 1), 1)
        most_rows = _MOST_ROWS if plain or batch_rows is None else max(batch_rows, 1)
        row, first_offset, need = first, int(self.offset[first]), 0
        while row < end:
            batches, state = form.zeros(room * kernels.BATCH), form.zeros(kernels.STATE)
            if batched:
                gap = RECORD_BATCH_OVERHEAD if codec is Codec.NONE else 0
                limits = batch_bytes - RECORD_BATCH_OVERHEAD + gap, most_rows
                size = room * (batch_bytes + 1) + _RECORD_OVERHEAD
                # a batch of room for what may be one record would cost more than adding up these lengths
                if end - row <= _FEW_ROWS:
                    size = min(size, self._bound(row, end) + (end - row) * gap)
                size = max(size, need)
                out, status = self._encode_batches(batches, gap, state, row, end, *limits, size)
                if status == kernels.FULL:
                    need = size + int(state[kernels.NEED])
                    continue
            else:
                form.form(kernels.cut_wrappers)(
                    row, end, int(plain), self._least, GROUP_BYTES if plain else batch_bytes, most_rows,
                    self.offset, self.timestamp, self.timestamp_type, self.key[2], self.value[2], batches, state,
                )  # fmt: skip
            row = int(state[kernels.ROW])
            batches = batches[: int(state[kernels.COUNT]) * kernels.BATCH]
            headers = self.headers_of(batches, header, first_offset)
            yield self._finish_batches(batches, out, codec, headers) if batched else self.write(batches, codec, headers)

    def headers_of(self, batches: Any, header: BatchHeader, first_offset: int) -> list[BatchHeader]:
        """Return a header for each batch: `header`, whose base_sequence belongs to the record at `first_offset`."""
        count = len(batches) // kernels.BATCH
        if header is DEFAULT_HEADER:
            return [header] * count
        header = header._replace(base_offset=None, last_offset=None, base_timestamp=None)
        if header.base_sequence == NO_SEQUENCE:
            return [header] * count
        offsets = batches[kernels.OFFSET :: kernels.BATCH]
        sequences = [header.base_sequence + int(offset) - first_offset & 0x7FFFFFFF for offset in offsets]
        return [header._replace(base_sequence=sequence) for sequence in sequences]

    def write(
        self, batches: Any, codec: Codec, headers: Sequence[BatchHeader], old: OldFrames | None = None
    ) -> memoryview:
        """Encode the entries of `batches`, one header for each. Raises as `encode_chunks` does.

        With `old`, LZ4 reuses the matches of the old frames instead of searching: about twice as fast.
        """
        old = old if old is not None and self._can_reuse(codec, headers) else None
        if self.target is Format.V2:
            return self._write_batches(batches, codec, headers, old)
        if codec is Codec.NONE:
            batches[kernels.OFFSET :: kernels.BATCH] = self.form.zeros(len(headers))
            batches[kernels.KIND :: kernels.BATCH] = self.form.int64([kernels.OWN] * len(headers))
            return self._encode_messages(batches)
        return self._write_wrappers(batches, codec, headers, old)

    def _write_batches(
        self, batches: Any, codec: Codec, headers: Sequence[BatchHeader], old: OldFrames | None
    ) -> memoryview:
        for at, header in enumerate(headers):
            if header is not DEFAULT_HEADER:
                if header.base_offset is not None:
                    batches[at * kernels.BATCH + kernels.OFFSET] = header.base_offset
                if header.base_timestamp is not None:
                    batches[at * kernels.BATCH + kernels.TIMESTAMP] = header.base_timestamp
        first, end = int(batches[kernels.FIRST]), int(batches[len(batches) - kernels.BATCH + kernels.END])
        gap = RECORD_BATCH_OVERHEAD if codec is Codec.NONE else 0
        size = self._bound(first, end) + len(batches) // kernels.BATCH * gap
        state = self.form.zeros(kernels.STATE)
        out, status = self._encode_batches(batches, gap, state, first, 0, 0, 0, size)
        if status == kernels.FULL:  # lengths below -1 made the bound too low
            raise self._error(kernels.BAD_CELL, batches, int(state[kernels.ROW]))
        if old is not None and (written := self._close(batches, out, old)) is not None:
            return written
        return self._finish_batches(batches, out, codec, headers)

    def _encode_batches(
        self, batches: Any, gap: int, state: Any, first: int, cut_end: int, most_bytes: int, most_rows: int, size: int
    ) -> tuple[memoryview, int]:
        """Run the kernel with `size` bytes of output; return the output and DONE or FULL. Raises for other statuses."""
        form, out = self.form, self._room(size)
        state[kernels.HEADERS], state[kernels.ROW] = self._headers_in_front(first), first
        status = form.form(kernels.encode_batches)(
            batches, gap, cut_end, most_bytes, most_rows, self.offset, self.timestamp, self.timestamp_type,
            *self.key, *self.value, self.header_count, *self.header_key, *self.header_value,
            form.crc_table(CASTAGNOLI), out, state,
        )  # fmt: skip
        if status not in (kernels.DONE, kernels.FULL):
            raise self._error(status, batches, int(state[kernels.ROW]))
        return memoryview(out)[: int(state[kernels.AT])], status

    def _finish_batches(
        self, batches: Any, out: memoryview, codec: Codec, headers: Sequence[BatchHeader]
    ) -> memoryview:
        """Complete the kernel's output: compress the sections, and write headers that differ from the default."""
        gap = RECORD_BATCH_OVERHEAD if codec is Codec.NONE else 0
        if gap and all(header is DEFAULT_HEADER for header in headers):
            return out  # the kernel wrote these headers
        flat, pieces = _flat(batches), []
        for at, header in enumerate(headers):
            first, end, base, base_timestamp, kind, start, stop, latest, last = flat[at * kernels.BATCH :][
                : kernels.BATCH
            ]
            append_time = kind == kernels.LOG_APPEND if header.timestamp_type is None else header.timestamp_type
            if header.last_offset is not None:
                last = header.last_offset
            if not 0 <= last - base <= kernels.MAX_INT32 and end > first:
                raise _offsets_error(base, last)
            batch: bytearray | memoryview = out[start - gap : stop]
            if not gap:
                batch = bytearray(RECORD_BATCH_OVERHEAD) + compress(codec, batch, level=self.level)
                pieces.append(batch)
            write_batch_header(
                batch,
                base_offset=base,
                last_offset_delta=last - base,
                base_timestamp=base_timestamp,
                max_timestamp=latest if header.max_timestamp is None else header.max_timestamp,
                record_count=end - first,
                attributes=header.attributes(codec, append_time=append_time == 1),
                partition_leader_epoch=header.partition_leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )
        return out if gap else _joined(pieces)

    def _write_wrappers(
        self, batches: Any, codec: Codec, headers: Sequence[BatchHeader], old: OldFrames | None
    ) -> memoryview:
        target, enriched = self.target, self.target is Format.ENRICHED
        for at, header in enumerate(headers):
            at *= kernels.BATCH
            first, end, base = int(batches[at]), int(batches[at + 1]), int(batches[at + kernels.OFFSET])
            if target is Format.V0:
                batches[at + kernels.OFFSET] = 0
            elif enriched:
                times = _flat(self.timestamp[first:end])
                batches[at + kernels.TIMESTAMP] = max(times) if header.max_timestamp is None else header.max_timestamp
                if header.base_offset is not None:
                    batches[at + kernels.OFFSET] = header.base_offset
            elif base < 0:
                raise CorruptRecordError("first offset of a wrapper", expected=">= 0", found=base)
            if header.timestamp_type is not None:
                batches[at + kernels.KIND] = header.timestamp_type
        out = self._encode_messages(batches)
        if old is not None and (written := self._close(batches, out, old)) is not None:
            return written
        flat, pieces = _flat(batches), []
        for at, header in enumerate(headers):
            first, end, base, own, kind, start, stop, latest, last = flat[at * kernels.BATCH :][: kernels.BATCH]
            inner = out[start:stop]
            if enriched:
                seconds, tag = header_time(own)
                if not 0 <= last - base <= kernels.MAX_INT32:
                    raise _offsets_error(base, last)
                pieces.append(
                    build_enriched_wrapper(
                        codec,
                        inner,
                        num_messages=end - first,
                        non_keyed=max(_flat(self.key[2][first:end])) < 0,
                        start_offset=base,
                        seconds=seconds,
                        timestamp_ms=tag,
                        level=self.level,
                    )
                )
            else:
                timestamp = latest if header.max_timestamp is None else header.max_timestamp
                of_type = TimestampType.LOG_APPEND_TIME if kind == kernels.LOG_APPEND else TimestampType.CREATE_TIME
                pieces.append(build_wrapper(target.magic, codec, inner, last, timestamp, of_type, level=self.level))
        return _joined(pieces)

    def _can_reuse(self, codec: Codec, headers: Sequence[BatchHeader]) -> bool:
        """Return whether `close_entries` can write these entries."""
        plain = codec is Codec.LZ4 and self.level is None and all(header is DEFAULT_HEADER for header in headers)
        return plain and self.target is not Format.ENRICHED and not len(self.header_count)

    def _close(self, batches: Any, data: memoryview, old: OldFrames) -> memoryview | None:
        """Compress the encoded records in `data` and complete the entries.

        Return None if the old frames do not fit them.
        """
        form, flat, places = self.form, _flat(batches), _flat(old.places)
        rows = max(end - first for first, end in zip(flat[:: kernels.BATCH], flat[1 :: kernels.BATCH], strict=True))
        moves, leads = form.outputs([(max(places[repack.SIZE :: repack.PLACES]), "i"), (2 * rows + 1, "i")])
        count, state = len(flat) // kernels.BATCH, form.zeros(lz4.STATE)
        out = self._room(lz4.room(len(data), count) + count * RECORD_BATCH_OVERHEAD)
        status = form.form(repack.close_entries)(
            form.bytes_of(data), batches, self.target.magic, form.int64(old.places), form.int32(old.matches),
            *self.key[1:], *self.value[1:], form.crc_table(CASTAGNOLI if self.target is Format.V2 else IEEE),
            moves, leads, out, state,
        )  # fmt: skip
        return memoryview(out)[: int(state[lz4.AT])] if status == lz4.DONE else None

    def _headers_in_front(self, row: int) -> int:
        """Return the number of headers of rows before `row`. Rows come in order, so each header is counted once."""
        if len(self.header_count) and row > self._row:
            self._headers_before += self.form.sum(self.header_count[self._row : row])
            self._row = row
        return self._headers_before

    def _bound(self, first: int, end: int) -> int:
        """Return an upper bound of the encoded bytes of rows, without batch and wrapper headers."""
        size = (end - first) * (self._overhead + 2) + _RECORD_OVERHEAD
        size += self.form.sum(self.key[2][first:end]) + self.form.sum(self.value[2][first:end])
        if len(self.header_count):
            begin = self._headers_in_front(first)
            stop = begin + self.form.sum(self.header_count[first:end])
            size += self.form.sum(self.header_key[2][begin:stop]) + self.form.sum(self.header_value[2][begin:stop])
            size += (stop - begin) * (_HEADER_OVERHEAD + 1)
        return size

    def _room(self, size: int) -> Any:
        return self.form.outputs([(max(size, 0), "B")])[0]

    def _encode_messages(self, batches: Any) -> memoryview:
        form, state = self.form, self.form.zeros(kernels.STATE)
        first, end = int(batches[kernels.FIRST]), int(batches[len(batches) - kernels.BATCH + kernels.END])
        out = self._room(self._bound(first, end))
        status = form.form(kernels.encode_messages)(
            batches, self.target.magic, int(self.target is Format.ENRICHED),
            self.offset, self.timestamp, self.timestamp_type, *self.key, *self.value,
            form.crc_table(IEEE), out, state,
        )  # fmt: skip
        if status != kernels.DONE:
            raise self._error(status, batches, int(state[kernels.ROW]))
        return memoryview(out)[: int(state[kernels.AT])]

    def _error(self, status: int, batches: Any, row: int) -> MagicbyteError:
        offset = int(self.offset[row])
        if status == kernels.TOO_LARGE:
            found = f"more, at offset {offset}"
            return BatchTooLargeError("size of a batch", expected=f"<= {kernels.MAX_INT32} bytes", found=found)
        if status == kernels.BAD_OFFSETS:
            firsts = [int(first) for first in batches[kernels.FIRST :: kernels.BATCH]]
            at = max(i for i, first in enumerate(firsts) if first <= row)
            return _offsets_error(int(batches[at * kernels.BATCH + kernels.OFFSET]), offset)
        return CorruptRecordError(
            "cells of a record", expected="within their data", found=f"others, at offset {offset}"
        )


def header_time(timestamp: int) -> tuple[int, int | None]:
    """Return an enriched message's seconds (-1: not set) and tag 0 (None: left out) for a timestamp in ms."""
    seconds = timestamp // 1000 if 0 <= timestamp // 1000 <= MAX_SECONDS else -1
    exact = timestamp == seconds * 1000 if seconds >= 0 else timestamp == NO_TIMESTAMP
    return seconds, None if exact else timestamp


def _offsets_error(base: int, found: int) -> MagicbyteError:
    if found - base > kernels.MAX_INT32:
        return UnsupportedForMessageFormatError(
            f"offsets {base} to {found}: those of one batch lie within {kernels.MAX_INT32} of the first"
        )
    return CorruptRecordError("offset in a batch", expected=f"ascending from {base}", found=found)


def _flat(values: Any) -> list[int]:
    flat: list[int] = values if isinstance(values, list) else values.tolist()
    return flat


def _joined(pieces: Sequence[bytes | bytearray]) -> memoryview:
    return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))
