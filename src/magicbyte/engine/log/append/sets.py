"""Validate a produced set: every outer entry and its content, decompressed at most once.

In the order of docs/internals/append.md: size, limit, magic and CRC of all entries; then shape, codec, header; then the
records. Sources: Kafka's UnifiedLog.analyzeAndValidateRecords and LogValidator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from magicbyte.engine.codecs import Codec, Lz4Header, OutputFull, decompress_into
from magicbyte.engine.errors import (
    AppendRefusedError,
    BatchTooLargeError,
    CorruptRecordError,
    ErrorCode,
    RecordError,
    RequestRefusedError,
)
from magicbyte.engine.log.append.rules import KEPT_SCRATCH, AppendRules, Request, RoomNeeded
from magicbyte.engine.log.files.reader import Buffers
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import RecordColumns
from magicbyte.engine.records.decode import DecodeOptions, decode_rows
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.enriched import EnrichedMessage
from magicbyte.engine.records.entry import Entry, entries
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    CODEC_MASK,
    LOG_OVERHEAD,
    MAGIC,
    MESSAGE_CRC,
    RECORD_BATCH_OVERHEAD,
    SIZE,
    V0_MINIMUM,
    Dialect,
    TimestampType,
)
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.records.scan import BatchTable, scan
from magicbyte.engine.records.survey import Survey, survey_messages, survey_records
from magicbyte.engine.sentinels import NO_PRODUCER_ID, NO_TIMESTAMP
from magicbyte.engine.wire.checksum import crc32

MOST_NAMED = 1000
"""The most invalid records that a refusal names: there may be millions."""
_APPEND_TIME, _CREATE_TIME = TimestampType.LOG_APPEND_TIME, TimestampType.CREATE_TIME
_V0, _V2 = Format.V0, Format.V2
_WITH_TIMES = (Format.V2, Format.V1)
_KAFKA, _ENRICHED = Dialect.KAFKA, Dialect.ENRICHED
_NONE, _ZSTD, _CORRECT = Codec.NONE, Codec.ZSTD, Lz4Header.CORRECT
_MAGIC = MAGIC.start
_SHORTEST = LOG_OVERHEAD + V0_MINIMUM
_CODECS = tuple(Codec)
_AS_IT_IS = DecodeOptions(verify=False, control=True, limit=1 << 62)


class ProducedPart(Struct):
    """A batch, a wrapper, or a row of plain messages of one magic.

    `view` is the header of the batch or wrapper, None for plain messages; `data` the part as produced; `records` its
    decompressed records section or messages. `is_control`: the broker's own.
    """

    magic: int
    codec: Codec
    data: memoryview
    view: Entry | None
    records: memoryview
    survey: Survey

    is_control: bool = False


class ProducedSet(Struct, frozen=True):
    """The parts of a set, in order, of one dialect. `decompressed` counts the decompressions.

    `codec` is the last one other than NONE. `is_control`: some of it is the broker's own.
    """

    dialect: Dialect
    parts: list[ProducedPart]
    decompressed: int
    codec: Codec
    is_control: bool

    def has_format(self, target: Format) -> bool:
        """Return whether every entry is already in the format `target`."""
        magic = target.magic
        for part in self.parts:
            if part.magic != magic:
                return False
        return self.dialect is target.dialect


def validate(
    records: memoryview,
    rules: AppendRules,
    request: Request,
    now_ms: int,
    dialect: Dialect = Dialect.KAFKA,
    *,
    has_room: bool = True,
) -> ProducedSet:
    """Return the set if it is whole and valid for a log with these rules. An incomplete last entry is left out, if
    allowed.

    Raises AppendRefusedError, and RoomNeeded if it does not fit into the kept scratch memory and `has_room` is False.
    Besides `records`, the parts refer to scratch memory that a later call reuses when nothing refers to it.
    """
    reader = _Reader(rules, request, now_ms, dialect, has_room=has_room)
    outer = reader.outer(records)
    reader.trusts = reader.may_trust(outer)
    parts, codec, is_control = [], _NONE, False
    for entry in outer:
        part = reader.open(entry)
        parts.append(part)
        codec = part.codec or codec
        is_control |= part.is_control
    if parts:
        reader.check_records(parts)
    return ProducedSet(dialect, parts, reader.decompressed, codec, is_control)


_memory = Buffers()
"""The scratch memory of all threads: a new allocation costs as much as decompression by a fast codec."""


class _Unpacker:
    """Decompress the payloads of one set, within a common limit."""

    def __init__(self, limit: int, *, has_room: bool) -> None:
        self._limit = self._left = limit
        self._has_room = has_room
        self._scratch = _memory.unused(KEPT_SCRATCH)[:KEPT_SCRATCH]

    def unpack(self, codec: Codec, payload: memoryview, header: Lz4Header) -> memoryview:
        """Decompress `payload`. Raises CorruptRecordError, BatchTooLargeError."""
        wanted = min(max(4 * len(payload), 1024), self._left)
        while True:
            if len(self._scratch) < wanted:
                if not self._has_room:
                    raise RoomNeeded
                self._scratch = room = memoryview(b"")  # release the smaller buffer before a larger one is allocated
                self._scratch = memoryview(bytearray(wanted))
            room = self._scratch[: self._left]
            try:
                # Every client must be able to read stored sets: liblz4 verifies more than Kafka's readers.
                written = decompress_into(codec, payload, room, lz4_header=header, strict=True)
            except OutputFull as full:
                if len(room) == self._left:
                    expected = f"<= {self._limit}"
                    raise BatchTooLargeError("decompressed size", expected=expected, found="more") from None
                wanted = min(max(2 * len(room), full.needed), self._left)
            else:
                self._left -= written
                self._scratch = self._scratch[written:]
                return room[:written]


class _Outer(NamedTuple):
    """A row of a set other than a batch: its position and first header fields. `survey`: of plain messages."""

    data: memoryview
    magic: int
    attributes: int
    view: MessageView | EnrichedMessage | None
    survey: Survey | None


class _Reader:
    def __init__(self, rules: AppendRules, request: Request, now_ms: int, dialect: Dialect, *, has_room: bool) -> None:
        self.has_room = has_room
        self.rules = rules
        self.request = request
        self.dialect = dialect
        self.now_ms = now_ms
        self.trusts = False
        self.decompressed = 0
        self._unpacker: _Unpacker | None = None

    # ---- outer entries

    def outer(self, records: memoryview) -> list[RecordBatch | _Outer]:
        """Return the rows of the set, checked to be whole with valid checksums, and allowed in the request."""
        size = len(records)
        if size >= RECORD_BATCH_OVERHEAD and records[_MAGIC] == 2 and self.dialect is _KAFKA:
            batch = RecordBatch(records)
            if batch.size == size:
                self._check_batch(batch)
                return [batch]
        table = scan(records, dialect=self.dialect, merge=True)
        rows = [self._row(table, row) for row in range(len(table))]
        rest = records[table.end :]
        if table.damage is not None:
            self._check_size(SIZE.read(rest) + LOG_OVERHEAD)
            if self.request.wants_one_batch and self._is_whole_but_short(rest):
                raise self._not_one_batch()
            raise self.request.damaged(table.damage)
        if len(rest) >= LOG_OVERHEAD and SIZE.read(rest) < V0_MINIMUM:
            raise self.request.damaged(f"size of an entry: expected at least {V0_MINIMUM}, found {SIZE.read(rest)}")
        if self.request.wants_one_batch and (len(rows) != 1 or rows[0].magic != 2):
            raise self._not_one_batch()
        if len(rows) > 1 and any(row.magic == 2 for row in rows):
            raise self.request.illegal("a batch of magic 2 together with other entries")
        return rows

    def _not_one_batch(self) -> RequestRefusedError:
        return RequestRefusedError(ErrorCode.INVALID_RECORD, "expected exactly one whole batch of magic 2")

    def _is_whole_but_short(self, rest: memoryview) -> bool:
        """Return whether the first entry is a message of magic 1 as short as one of magic 0, with a valid checksum.

        Kafka's minimum size of any entry is that of magic 0.
        """
        end = LOG_OVERHEAD + SIZE.read(rest)
        if self.dialect is not _KAFKA or len(rest) <= _MAGIC or rest[_MAGIC] != 1 or not _SHORTEST <= end <= len(rest):
            return False
        return MESSAGE_CRC.read(rest) == crc32(rest[_MAGIC:end])

    def _check_size(self, size: int) -> None:
        if size > self.rules.max_message_bytes:
            raise too_large(f"size of an entry: expected <= {self.rules.max_message_bytes}, found {size}")

    def _row(self, table: BatchTable, row: int) -> RecordBatch | _Outer:
        position, magic = int(table.position[row]), int(table.magic[row])
        data = table.buffer[position : position + int(table.size[row])]
        if magic == 2:
            batch = RecordBatch(data)
            self._check_batch(batch)
            return batch
        attributes = int(table.attributes[row])
        try:
            if int(table.count[row]) > 0:
                limit = self.rules.max_message_bytes
                survey = survey_messages(data, magic, dialect=self.dialect, limit=limit)
                return _Outer(data, magic, 0, None, survey)
            self._check_size(len(data))
            view: MessageView | EnrichedMessage
            if self.dialect is _ENRICHED:
                parsed = EnrichedMessage.parse(data)
                assert parsed is not None, "the scan found it whole"
                view = parsed
            else:
                view = MessageView(data)
            view.verify()
        except BatchTooLargeError as error:
            raise too_large(error) from None
        except CorruptRecordError as error:
            raise self.request.damaged(error.locate(shift=position)) from None
        return _Outer(data, magic, attributes, view, None)

    def _check_batch(self, batch: RecordBatch) -> None:
        self._check_size(len(batch.buffer))
        try:
            batch.verify()
        except CorruptRecordError as error:
            raise self.request.damaged(error) from None

    def may_trust(self, rows: list[RecordBatch | _Outer]) -> bool:
        """Return whether wrappers need not be decompressed: they are trusted, and none must be rewritten."""
        rules = self.rules
        if rules.verify or rules.format is not Format.ENRICHED or self.dialect is not Dialect.ENRICHED:
            return False
        return rules.codec is None or all(row.attributes & CODEC_MASK == rules.codec for row in rows)

    # ---- headers and content of entries

    def open(self, entry: RecordBatch | _Outer) -> ProducedPart:
        """Return the part for a row, with its records decompressed and walked."""
        if isinstance(entry, RecordBatch):
            return self._open_batch(entry)
        view = entry.view
        if entry.survey is not None:
            if entry.survey.lying is not None:
                raise self.request.damaged(entry.survey.lying)
            return ProducedPart(entry.magic, Codec.NONE, entry.data, None, entry.data, entry.survey)
        if isinstance(view, MessageView):
            return self._open_wrapper(view)
        assert view is not None
        return self._open_enriched(view)

    def _codec(self, attributes: int) -> Codec:
        number = attributes & CODEC_MASK
        if number >= len(_CODECS):
            raise self.request.damaged(f"codec: expected 0 to 4, found {number}")
        return _CODECS[number]

    def _open_batch(self, batch: RecordBatch) -> ProducedPart:
        request, to_batch, is_control = self.request, self.rules.format is _V2, batch.is_control
        codec = self._codec(batch.attributes)
        if codec is _ZSTD and not (request.may_use_zstd and to_batch):
            refused = AppendRefusedError if request.may_use_zstd else RequestRefusedError
            raise refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs magic 2 and version 7 of the request")
        if request.is_client:
            if is_control:
                raise request.illegal("a client may not send control batches")
            if batch.base_offset != 0:
                raise request.illegal(f"base offset of a produced batch: expected 0, found {batch.base_offset}")
        has_producer = batch.producer_id > NO_PRODUCER_ID
        if batch.is_transactional and not has_producer:
            raise request.not_authorized("a transactional batch without a producer id")
        if not to_batch and (has_producer or is_control):
            raise unsupported(f"format {self.rules.format.value} has no producer ids and no control batches")
        count = batch.record_count
        if count <= 0 or batch.last_offset_delta != count - 1:
            raise request.illegal(f"a batch of {count} records whose last offset delta is {batch.last_offset_delta}")
        if has_producer and batch.base_sequence < 0 and not is_control:
            raise request.illegal(f"base sequence of an idempotent batch: {batch.base_sequence}")
        records = batch.records_section
        if codec:
            records = self._unpack(codec, records, _CORRECT)
        try:
            survey = survey_records(records, count, batch.base_timestamp)
        except CorruptRecordError as error:
            raise request.illegal(error) from None
        if survey.out_of_order >= 0:
            raise request.illegal(f"offset delta of record {survey.out_of_order} is not {survey.out_of_order}")
        return ProducedPart(2, codec, batch.buffer, batch, records, survey, is_control)

    def _unpack(self, codec: Codec, payload: memoryview, header: Lz4Header) -> memoryview:
        if self._unpacker is None:
            self._unpacker = _Unpacker(self.rules.max_decompressed_bytes, has_room=self.has_room)
        self.decompressed += 1
        try:
            return self._unpacker.unpack(codec, payload, header)
        except BatchTooLargeError as error:
            raise too_large(error) from None
        except CorruptRecordError as error:
            raise self.request.damaged(error) from None

    def _open_wrapper(self, view: MessageView | EnrichedMessage) -> ProducedPart:
        request, enriched = self.request, self.dialect is _ENRICHED
        codec = self._codec(view.attributes)
        if codec is Codec.ZSTD:
            raise request.illegal("zstd needs magic 2")
        try:
            value = view.value
        except CorruptRecordError as error:
            raise request.damaged(error) from None
        if value is None:
            raise request.illegal("a wrapper without a value")
        header = Lz4Header.ANY if view.magic == 0 else Lz4Header.CORRECT
        records = self._unpack(codec, value, header)
        try:
            survey = survey_messages(records, view.magic, dialect=self.dialect)
        except CorruptRecordError as error:
            raise request.damaged(error) from None
        if survey.lying is not None:
            raise request.damaged(survey.lying)
        if not survey.records:
            raise request.illegal("a wrapper without messages")
        if enriched and survey.nested >= 0:
            raise request.illegal(f"message {survey.nested} of a wrapper is not a plain message")
        return ProducedPart(view.magic, codec, view.buffer, view, records, survey)

    def _open_enriched(self, view: EnrichedMessage) -> ProducedPart:
        request = self.request
        nothing = Survey(1, 0, None, NO_TIMESTAMP, 0, -1, 0, 0, -1, -1)
        if view.is_control:
            if request.is_client:
                raise request.illegal("a client may not send control messages")
            if self.rules.format is not Format.ENRICHED:
                raise unsupported(f"format {self.rules.format.value} has no control messages of the enriched dialect")
            return ProducedPart(1, Codec.NONE, view.buffer, view, view.buffer, nothing, is_control=True)
        try:
            count, non_keyed = view.num_messages, view.non_keyed
        except CorruptRecordError as error:
            raise request.damaged(error) from None
        if self.trusts:
            if count is None:
                raise request.damaged("a wrapper without num_messages (tag 32) is refused")
            null_keys = count if non_keyed else 0
            return ProducedPart(1, self._codec(view.attributes), view.buffer, view, view.buffer[:0],
                        nothing._replace(records=count, null_keys=null_keys))  # fmt: skip
        part = self._open_wrapper(view)
        if count is not None and count != part.survey.records:
            raise request.damaged(f"num_messages is {count}, but the wrapper holds {part.survey.records}")
        if non_keyed and part.survey.null_keys != part.survey.records:
            raise request.damaged("a wrapper claims that no message has a key, but one has")
        return part

    # ---- rules of records

    def check_records(self, parts: list[ProducedPart]) -> None:
        """Raise AppendRefusedError for keys, timestamps, nesting and inner magic. Error 32 takes precedence."""
        timed = illegal = has_headers = False
        for part in parts:
            survey = part.survey
            timed |= self._has_bad_time(part)
            illegal |= survey.nested >= 0 or survey.other_magic >= 0
            illegal |= self.rules.compacted and survey.null_keys > 0 and not part.is_control
            has_headers |= survey.headers > 0
        if timed or illegal:
            raise self._refusal(parts, timed=timed)
        if has_headers and self.rules.format is not _V2:
            raise unsupported(f"format {self.rules.format.value} has no headers")

    def _says_append_time(self, part: ProducedPart) -> bool:
        if part.magic == 0 or self.dialect is _ENRICHED or self.rules.format is _V0:
            return False
        return part.survey.append_bits > 0 if part.view is None else part.view.timestamp_type is _APPEND_TIME

    def _has_bad_time(self, part: ProducedPart) -> bool:
        if self._says_append_time(part):
            return True
        rules, survey = self.rules, part.survey
        if not self._checks_times or survey.least is None:
            return False
        return survey.least < self.now_ms - rules.before_max_ms or survey.latest > self.now_ms + rules.after_max_ms

    @property
    def _checks_times(self) -> bool:
        """Whether the producers' timestamps are stored, and must be within bounds."""
        rules = self.rules
        return rules.format in _WITH_TIMES and rules.timestamp_type is _CREATE_TIME

    def _refusal(self, parts: list[ProducedPart], *, timed: bool) -> AppendRefusedError:
        """Return the refusal with the invalid records, each with its first error. `timed`: some have a bad timestamp.

        This is slow, because it decodes the records one by one.
        """
        errors = tuple(error for error, _ in itertools.islice(self._record_errors(parts), MOST_NAMED))
        bad_time = next((error for error, is_time in self._record_errors(parts) if is_time), None) if timed else None
        if bad_time is not None:
            return self.request.bad_time(bad_time.message, errors)
        why = errors[0].message if errors else "a compacted topic takes no wrapper that says it has no keys"
        return self.request.illegal(why, errors)

    def _record_errors(self, parts: list[ProducedPart]) -> Iterator[tuple[RecordError, bool]]:
        """Yield the error of each invalid record, and whether it is about the timestamp."""
        earliest, furthest = self.now_ms - self.rules.before_max_ms, self.now_ms + self.rules.after_max_ms
        index, allowed = 0, range(earliest, furthest + 1)
        for part in parts:
            append_time = self._says_append_time(part) and part.view is not None
            for is_nested, is_other, says_append_time, has_key, timestamp in _walk(part, self.dialect):
                if is_nested:
                    yield RecordError(index, "a compressed message inside a wrapper"), False
                elif is_other:
                    yield RecordError(index, "a message of another magic than its wrapper"), False
                elif self.rules.compacted and not has_key:
                    yield RecordError(index, "a compacted topic takes no record without a key"), False
                elif append_time or (says_append_time and self.rules.format is not Format.V0):
                    yield RecordError(index, "only the broker sets LogAppendTime"), True
                elif self._checks_times and timestamp != NO_TIMESTAMP and timestamp not in allowed:
                    why = f"timestamp {timestamp} is not within {earliest} to {furthest}"
                    yield RecordError(index, why), True
                index += 1


def _walk(produced: ProducedPart, dialect: Dialect) -> Iterator[tuple[bool, bool, bool, bool, int]]:
    """Yield for each record whether it is nested, has another magic, is LogAppendTime, has a key; and its timestamp."""
    if produced.magic == 2:
        for columns in columns_of_part(produced, dialect):
            assert columns.key is not None, "they were asked for"
            for size, timestamp in zip(columns.key.length, columns.timestamp, strict=True):  # type: ignore[call-overload]
                yield False, False, False, int(size) >= 0, int(timestamp)
        return
    for _, entry in entries(produced.records, dialect):
        assert not isinstance(entry, RecordBatch), "the walk found messages only"
        plain = produced.view is None and isinstance(entry, MessageView) and entry.timestamp_type is _APPEND_TIME
        timestamp = entry.timestamp if isinstance(entry, MessageView) else NO_TIMESTAMP
        yield entry.is_wrapper, entry.magic != produced.magic, plain, entry.key is not None, timestamp


def columns_of_part(produced: ProducedPart, dialect: Dialect) -> Iterator[RecordColumns]:
    """Yield the records of a whole part, with the producer's offsets."""
    image = produced.records
    if produced.magic == 2:
        header = bytearray(produced.data[:RECORD_BATCH_OVERHEAD])
        with memoryview(header) as view:
            ATTRIBUTES.write(view, ATTRIBUTES.read(view) & ~CODEC_MASK)
            SIZE.write(view, RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(produced.records))
        image = memoryview(b"".join((header, produced.records))) if produced.codec else produced.data
    table = scan(image, dialect=dialect, merge=True)
    assert table.damage is None, "it was walked before"
    yield from decode_rows(table, range(len(table)), _AS_IT_IS)


def too_large(why: object) -> AppendRefusedError:
    """Return the refusal of an entry that is too large, as sent or as stored."""
    return AppendRefusedError(ErrorCode.MESSAGE_TOO_LARGE, str(why))


def unsupported(why: str) -> AppendRefusedError:
    """Return the refusal of data that the stored format cannot hold."""
    return AppendRefusedError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, why)
