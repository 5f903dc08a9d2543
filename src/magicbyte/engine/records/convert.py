"""Convert a slice of a log to another format, batch by batch.

This covers down-conversion as brokers do it for old consumers, and also whole logs: up-conversion, recompression, and
conversion to and from the enriched dialect. A pure generator: bytes in, bytes out, with one batch or about GROUP_BYTES
of records in memory. Source: Kafka's RecordsUtil.downConvert; docs/formats/; for the enriched dialect its proposal.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from msgspec import Struct, field

from magicbyte.engine.codecs import Codec, Lz4Header, compress, decompress, lz4_header_checksum
from magicbyte.engine.compiled.kernel import Ints
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError
from magicbyte.engine.records import encode_kernels as kernels
from magicbyte.engine.records.batch import HEADER as BATCH_HEADER
from magicbyte.engine.records.batch import RecordBatch, build_batch
from magicbyte.engine.records.columns import RecordColumns
from magicbyte.engine.records.control import marker_of
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions, decode_entries, decode_rows
from magicbyte.engine.records.encode import DEFAULT_HEADER, Format, OldFrames, RowWriter
from magicbyte.engine.records.enriched import EnrichedControl, EnrichedMessage
from magicbyte.engine.records.entry import entries, parse_entry
from magicbyte.engine.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    ENRICHED_CONTROL_BIT,
    TRANSACTIONAL_BIT,
    V0_KEY_LENGTH,
    V1_KEY_LENGTH,
    Dialect,
)
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.records.repack import decode_lz4
from magicbyte.engine.records.scan import BatchTable, scan
from magicbyte.engine.sentinels import NO_PRODUCER_ID, NO_TIMESTAMP
from magicbyte.engine.wire.checksum import Buffer

DEFAULT_BATCH_BYTES = 64 << 10


class ConversionReport(Struct):
    """Counts of converted records, and of data that the target format cannot hold. Sizes are in bytes.

    An entry is a batch, a wrapper, or a row of plain messages. `records` counts converted records only, without those
    in entries that passed through.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    bytes_passed_through: int = 0
    bytes_cut: int = 0
    """Bytes of an incomplete entry at the end of the slice, left out."""
    batches: int = 0
    """Wrappers and batches that were converted; a row of plain messages counts as one."""
    records: int = 0
    records_below_fetch_offset: int = 0
    """Records left out because they are below the fetch offset, as old consumers expect of plain messages."""
    timestamps: int = 0
    """Records that lost their timestamp."""
    headers: int = 0
    """Records that lost their headers."""
    transaction_markers: int = 0
    """Markers left out. Their offsets become gaps, and records of aborted transactions become visible."""
    control_records: int = 0
    """Other control records left out."""
    transactional_batches: int = 0
    """Batches that lost the transactional flag."""
    producer_states: int = 0
    """Batches that lost producer id, epoch and sequence."""
    leader_epochs: int = 0
    """Batches that lost their partition leader epoch."""
    delete_horizons: int = 0
    """Batches that lost their delete horizon."""
    tags: int = 0
    """Enriched messages and wrappers that lost tags of unknown meaning."""
    wrapper_keys: int = 0
    """Wrappers that lost their key, which has no meaning."""

    def lost(self) -> dict[str, int]:
        """Return the nonzero counts of lost data, by name; empty for a lossless conversion."""
        names = ("timestamps", "headers", "transaction_markers", "control_records", "transactional_batches",
                 "producer_states", "leader_epochs", "delete_horizons", "tags", "wrapper_keys")  # fmt: skip
        return {name: count for name in names if (count := getattr(self, name))}

    def to_json(self, lz4_headers: int) -> dict[str, Any]:
        """Return the counts as printed by `magicbyte convert --format json`; `lz4_headers`: repaired LZ4 headers."""
        return {
            "bytesIn": self.bytes_in,
            "bytesOut": self.bytes_out,
            "bytesPassedThrough": self.bytes_passed_through,
            "batches": self.batches,
            "records": self.records,
            "lz4HeadersFixed": lz4_headers,
            "lost": {_camel(name): count for name, count in self.lost().items()},
        }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class _Action(enum.Enum):
    PASS = enum.auto()
    DROP = enum.auto()
    RECODE = enum.auto()  # a v2 batch of which only the compression changes
    REBUILD = enum.auto()


class _Kind(NamedTuple):
    """The properties that neighbouring rows must share to be converted together."""

    action: _Action
    magic: int
    codec: int
    """Codec number of the source."""
    is_control: bool


def convert(
    buffer: Buffer,
    target: Format,
    *,
    dialect: Dialect = Dialect.KAFKA,
    codec: Codec | None = None,
    level: int | None = None,
    fetch_offset: int | None = None,
    fix_lz4: bool = False,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    verify: bool = True,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
    report: ConversionReport | None = None,
) -> Iterator[memoryview]:
    """Yield the entries of `buffer`, a slice of a log in `dialect`, in the format `target`: chunks of whole entries.

    Each wrapper or batch becomes one wrapper or batch, with its codec unless `codec` is given. Rows of plain messages,
    and the records of uncompressed v2 batches, become batches of up to `batch_bytes`, or plain messages if the target
    format has them and no codec is given. Offsets never change; v2 batches and enriched wrappers keep their base
    offset. Entries already in the target format pass through byte for byte, as views of `buffer`. Data that the target
    cannot hold is left out and counted in `report`. An incomplete entry at the end is left out.

    With `fetch_offset` the conversion is a broker's down-conversion for a fetch: nothing is converted up, and plain
    records below that offset are skipped where they are converted. `fix_lz4` rewrites wrappers of magic 0 whose LZ4
    header checksum is not the one that old consumers expect. With `verify`, all checksums of converted entries are
    checked, and only the outer ones of entries that pass through. `limit` is the maximum size of a batch in bytes, also
    after decompression.

    An enriched wrapper has one timestamp and becomes LogAppendTime, or CreateTime if its messages have timestamps of
    their own. Raises, after yielding everything before: CorruptRecordError for damage, UnsupportedCompressionError for
    zstd that the target cannot hold, UnsupportedForMessageFormatError for a wrapper whose offsets span more than an
    int32.
    """
    view = memoryview(buffer)
    table = scan(view, dialect=dialect, merge=True)
    report = ConversionReport() if report is None else report
    report.bytes_in += len(view)
    conversion = _Conversion(
        table,
        target,
        codec,
        level,
        fetch_offset,
        fix_lz4,
        batch_bytes,
        DecodeOptions(verify=verify, limit=limit),
        report,
    )
    for kind, rows in conversion.kinds():
        for chunk in conversion.steps(kind, rows):
            if len(chunk):
                report.bytes_out += len(chunk)
                yield chunk
    if table.damage is not None:
        raise table.damage
    report.bytes_cut += len(view) - table.end


class _Conversion(Struct):
    table: BatchTable
    target: Format
    codec: Codec | None
    level: int | None
    fetch_offset: int | None
    fix_lz4: bool
    batch_bytes: int
    options: DecodeOptions
    report: ConversionReport
    known: dict[tuple[int, int, bool], _Kind] = field(default_factory=dict)

    def kinds(self) -> Iterator[tuple[_Kind, list[int]]]:
        """Yield each kind with its neighbouring rows."""
        table = self.table
        columns = (_list(table.magic), _list(table.attributes), [count == 0 for count in _list(table.count)])
        headers = list(zip(*columns, strict=True))
        for kind, rows in groupby(range(len(headers)), lambda row: self._kind_of(row, *headers[row])):
            yield kind, list(rows)

    def _kind_of(self, row: int, magic: int, attributes: int, is_empty: bool) -> _Kind:
        """Decide how a row of the table is converted."""
        kind = self.known.get((magic, attributes, is_empty))
        if kind is None:
            kind = self.known[magic, attributes, is_empty] = self._kind(magic, attributes, is_empty=is_empty)
        if (
            kind.action is _Action.PASS
            and self.fix_lz4
            and magic == 0
            and kind.codec == Codec.LZ4
            and self._has_other_lz4(row)
        ):
            return kind._replace(action=_Action.REBUILD)
        return kind

    def _kind(self, magic: int, attributes: int, *, is_empty: bool) -> _Kind:
        table, target = self.table, self.target
        enriched = table.dialect is Dialect.ENRICHED
        is_control = attributes & (ENRICHED_CONTROL_BIT if enriched else CONTROL_BIT if magic == 2 else 0) != 0
        codec = 0 if is_control else attributes & CODEC_MASK
        action = _Action.REBUILD
        if table.dialect is target.dialect and magic == target.magic:
            if is_control or self.codec in (None, codec) or (magic == 2 and is_empty):
                action = _Action.PASS
            elif magic == 2:
                action = _Action.RECODE
        elif is_control:
            action = _Action.DROP
        elif self.fetch_offset is not None and table.dialect is target.dialect and magic < target.magic:
            action = _Action.PASS
        return _Kind(action, magic, codec, is_control)

    def _has_other_lz4(self, row: int) -> bool:
        entry = parse_entry(self._entry(row))
        assert isinstance(entry, MessageView)
        return entry.value is not None and lz4_header_checksum(entry.value) is not Lz4Header.BROKEN

    def _entry(self, row: int) -> memoryview:
        position = int(self.table.position[row])
        return self.table.buffer[position : position + int(self.table.size[row])]

    def steps(self, kind: _Kind, rows: list[int]) -> Iterator[memoryview]:
        """Yield the converted entries of neighbouring rows of one kind."""
        match kind.action:
            case _Action.PASS:
                yield from self._pass_through(rows)
            case _Action.DROP:
                for row in rows:
                    self._drop(row)
            case _Action.RECODE:
                for row in rows:
                    yield self._recode(row)
            case _Action.REBUILD:
                codec = self.codec
                if codec is None and kind.codec <= Codec.ZSTD:
                    codec = Codec(kind.codec)
                self.target.check_codec(codec or Codec.NONE)
                yield from self._rebuild(kind, rows, codec or Codec.NONE)

    # ---- entries that pass through or are dropped

    def _pass_through(self, rows: list[int]) -> Iterator[memoryview]:
        table = self.table
        start = int(table.position[rows[0]])
        end = int(table.position[rows[-1]]) + int(table.size[rows[-1]])
        damage = None
        if self.options.verify:
            try:
                for row in rows:
                    self._verify(row)
            except CorruptRecordError as error:
                damage, end = error, error.position or 0
        self.report.bytes_passed_through += end - start
        yield table.buffer[start:end]
        if damage is not None:
            raise damage

    def _verify(self, row: int) -> None:
        """Check the outer checksums of one row of the table."""
        table = self.table
        if int(table.magic[row]) < 2 and int(table.count[row]) > 0:
            shallow = DecodeOptions(keys=False, values=False, headers=False, limit=self.options.limit)
            for _ in decode_rows(table, [row], shallow):
                pass
            return
        position, size = int(table.position[row]), int(table.size[row])
        if size > self.options.limit:
            raise BatchTooLargeError("batch size", expected=f"<= {self.options.limit}", found=size, position=position)
        try:
            entry = parse_entry(self._entry(row), table.dialect)
            assert entry is not None, "the scan found it whole"
            entry.verify()
        except CorruptRecordError as error:
            error.position = position
            raise

    def _drop(self, row: int) -> None:
        """Count a control batch or message that the target cannot hold."""
        if self.options.verify:
            self._verify(row)
        entry = parse_entry(self._entry(row), self.table.dialect)
        if isinstance(entry, EnrichedMessage):
            is_marker = entry.control_type in (EnrichedControl.COMMIT_TRANSACTION, EnrichedControl.ABORT_TRANSACTION)
        else:
            assert isinstance(entry, RecordBatch)
            try:
                marker = marker_of(entry)
            except CorruptRecordError as error:
                error.position = int(self.table.position[row])
                raise
            is_marker = marker is not None and marker.ends_transaction
        if is_marker:
            self.report.transaction_markers += 1
        else:
            self.report.control_records += 1

    # ---- v2 to v2

    def _recode(self, row: int) -> memoryview:
        """Return a v2 batch with its records section recompressed and otherwise unchanged."""
        self._verify(row)
        batch = RecordBatch(self._entry(row))
        assert self.codec is not None
        try:
            section = decompress(batch.codec, batch.records_section, limit=self.options.limit)
        except CorruptRecordError as error:
            error.position = int(self.table.position[row])
            raise error.locate(offsets=(batch.base_offset, batch.last_offset)) from None
        self.report.batches += 1
        self.report.records += batch.record_count
        return memoryview(
            build_batch(
                compress(self.codec, section, level=self.level),
                base_offset=batch.base_offset,
                last_offset_delta=batch.last_offset_delta,
                base_timestamp=batch.base_timestamp,
                max_timestamp=batch.max_timestamp,
                record_count=batch.record_count,
                attributes=batch.attributes & ~CODEC_MASK | self.codec,
                partition_leader_epoch=batch.partition_leader_epoch,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
            )
        )

    # ---- through columns

    def _rebuild(self, kind: _Kind, rows: list[int], codec: Codec) -> Iterator[memoryview]:
        """Decode rows and write their records in the target format."""
        plain_rows = kind.magic < 2 and kind.codec == 0
        to_plain = codec is Codec.NONE and self.target is not Format.V2
        for from_rows, counts, columns, old in self._decoded(kind, rows, codec):
            spans = _spans(from_rows, counts, len(columns))
            for row, _, _ in spans:
                self._count_losses(kind, row)
            if to_plain and kind.codec == 0 and self.fetch_offset is not None:
                columns = self._from_fetch_offset(columns)
            self._count_records(columns)
            writer = RowWriter(columns, self.target, self.level)
            try:
                if to_plain:
                    if len(columns):
                        yield from writer.cut(0, len(columns), codec, self.batch_bytes)
                elif plain_rows:
                    for _, first, end in spans:
                        yield from writer.cut(first, end, codec, self.batch_bytes)
                else:
                    batches = [number for row, first, end in spans for number in self._fields(writer, row, first, end)]
                    if old is not None:
                        old = old.of([row - from_rows[0] for row, _, _ in spans])
                    yield writer.write(writer.form.int64(batches), codec, [DEFAULT_HEADER] * len(spans), old)
            # offsets that no batch can hold, from the first of these rows or a later one
            except CorruptRecordError as error:
                error.position = int(self.table.position[from_rows[0]])
                raise

    def _decoded(
        self, kind: _Kind, rows: list[int], codec: Codec
    ) -> Iterator[tuple[Sequence[int], Ints, RecordColumns, OldFrames | None]]:
        """Yield the result of `decode_entries`, and the old LZ4 frames if the encoder can reuse their matches."""
        lz4 = kind.codec == Codec.LZ4 == codec and self.level is None and kind.magic != self.target.magic
        if lz4 and self.table.dialect is not Dialect.ENRICHED and self.target is not Format.ENRICHED:
            yield from decode_lz4(self.table, rows, self.options)
        else:
            for found in decode_entries(self.table, rows, self.options):
                yield *found, None

    def _fields(self, writer: RowWriter, row: int, first: int, end: int) -> list[int]:
        """Return the batch fields for a converted wrapper or batch."""
        fields = writer.batch_fields(first, end)
        if self.table.dialect is Dialect.ENRICHED:
            if self.target in (Format.V2, Format.ENRICHED):
                fields[kernels.OFFSET] = int(self.table.offset[row])
            times = writer.timestamp[first:end]
            if min(times) != max(times):
                fields[kernels.KIND] = 0
        return fields

    def _from_fetch_offset(self, columns: RecordColumns) -> RecordColumns:
        assert self.fetch_offset is not None
        if not len(columns) or min(columns.offset) >= self.fetch_offset:  # type: ignore[call-overload]
            return columns
        import numpy as np

        kept = columns.take(np.flatnonzero(np.asarray(columns.offset) >= self.fetch_offset))
        self.report.records_below_fetch_offset += len(columns) - len(kept)
        return kept

    # ---- the report

    def _count_records(self, columns: RecordColumns) -> None:
        report = self.report
        report.records += len(columns)
        timestamps: Any = columns.timestamp
        if self.target is Format.V0 and len(columns):
            if isinstance(timestamps, list):
                report.timestamps += sum(timestamp != NO_TIMESTAMP for timestamp in timestamps)
            else:
                report.timestamps += int((timestamps != NO_TIMESTAMP).sum())
        if self.target is not Format.V2 and columns.headers is not None and len(columns.headers.key):
            counts: Any = columns.headers.count
            report.headers += sum(1 for count in counts if count)

    def _count_losses(self, kind: _Kind, row: int) -> None:
        """Count the header fields of a source entry that the target format does not have."""
        report = self.report
        report.batches += 1
        if kind.magic == 2:
            header = BATCH_HEADER.unpack_from(self.table.buffer, int(self.table.position[row]))
            _, _, leader_epoch, _, _, attributes, _, _, _, producer_id, *_ = header
            report.transactional_batches += attributes & TRANSACTIONAL_BIT != 0
            report.producer_states += producer_id != NO_PRODUCER_ID
            report.leader_epochs += leader_epoch >= 0
            report.delete_horizons += attributes & DELETE_HORIZON_BIT != 0
        elif self.table.dialect is Dialect.ENRICHED:
            for _, entry in entries(self._entry(row), Dialect.ENRICHED):
                assert isinstance(entry, EnrichedMessage)
                report.tags += len(entry.unknown_tags) > 0
        elif kind.codec:
            key_length = V1_KEY_LENGTH if kind.magic else V0_KEY_LENGTH
            report.wrapper_keys += key_length.read(self.table.buffer[int(self.table.position[row]) :]) >= 0


def _spans(rows: Sequence[int], counts: Any, total: int) -> list[tuple[int, int, int]]:
    """Return (row of the table, first record, end) for each row that has records."""
    spans, at = [], 0
    for row, count in zip(rows, _list(counts), strict=False):
        end = min(at + count, total)  # of a damaged row of messages only the sound ones before the damage were decoded
        if end > at:
            spans.append((row, at, end))
        at = end
    return spans


def _list(column: Any) -> list[int]:
    numbers: list[int] = column if isinstance(column, list) else column.tolist()
    return numbers
