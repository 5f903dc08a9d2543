"""Dump a log: a dict for each batch, wrapper or message, and with `deep` for each record in it.

Keys are the names that Kafka's dump tool prints; dump_text.py converts them to lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from magicbyte.engine.codecs import Codec, Lz4Header, decompress
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError, ProtocolError
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.protocol.kafka_json import fields_of
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, parse_control_record
from magicbyte.engine.records.decode import DecodeOptions, decode_rows
from magicbyte.engine.records.enriched import EnrichedMessage, Tag
from magicbyte.engine.records.entry import Entry, dialect_doubt, entries, parse_entry
from magicbyte.engine.records.layout import CODEC_MASK, Dialect, TimestampType
from magicbyte.engine.records.message import MessageView

if TYPE_CHECKING:
    from magicbyte.cli.dump_decoders import Decoder
    from magicbyte.engine.log.files.chunk import Chunk
    from magicbyte.engine.log.files.reader import DamageHandler
    from magicbyte.engine.ports import ReadableFile
    from magicbyte.engine.protocol.message import Message

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogDump:
    """Options of a dump of logs. `limit`, `max_bytes`: in bytes.

    `decode`: converts key and payload to text, if given. `holes` gets the offsets of records before and after each hole
    between records, if `deep`.
    """

    dialect: Dialect
    deep: bool
    decode: Decoder | None
    limit: int
    max_bytes: int | None
    on_damage: DamageHandler
    warn: Callable[[str], None]
    progress: Callable[[int], None]
    holes: list[tuple[int, int]] = field(default_factory=list)

    def lines(self, file: ReadableFile) -> Iterator[Fields]:
        """Yield the content of `file`, pass damage to `on_damage`, and continue after it."""
        damage: list[CorruptRecordError] = []
        previous: int | None = None
        end = file.size if self.max_bytes is None else min(self.max_bytes, file.size)
        doubt = None
        for chunk in read_chunks(file, end=end, dialect=self.dialect, limit=self.limit, on_damage=damage.append):
            yield from self._damage(damage, file)
            table = chunk.table
            for row in range(len(table)):
                at, size = int(table.position[row]), int(table.size[row])
                if chunk.position + at + size > end:
                    return
                doubt = doubt or self._doubt(file, table.buffer[at : at + size], chunk.position + at)
                for fields in self._entry(chunk, row):
                    if fields["kind"] == "record":
                        offset = fields["offset"]
                        if previous is not None and offset != previous + 1:
                            self.holes.append((previous, offset))
                        previous = offset
                    yield fields
            self.progress(table.end)
        yield from self._damage(damage, file)

    def _damage(self, found: list[CorruptRecordError], file: ReadableFile) -> Iterator[Fields]:
        """Report damage found by the walk over the file, with the number of unreadable bytes after it."""
        while found:
            error = found.pop(0)
            if not isinstance(error, BatchTooLargeError):
                yield {
                    "kind": "invalid bytes",
                    "segment": file.path.rpartition("/")[2],
                    "position": error.position,
                    "size": file.size - (error.position or 0),
                }
            self.on_damage(error)

    def _doubt(self, file: ReadableFile, entry: memoryview, position: int) -> str | None:
        doubt = dialect_doubt(entry, self.dialect)
        if doubt is not None:
            self.warn(f"warning: {file.path}, position {position}: {doubt}")
        return doubt

    def _entry(self, chunk: Chunk, row: int) -> Iterator[Fields]:
        table = chunk.table
        at, size = int(table.position[row]), int(table.size[row])
        position = chunk.position + at
        try:
            entry = parse_entry(table.buffer[at : at + size], table.dialect)
        except CorruptRecordError as error:
            self.on_damage(error.locate(path=chunk.path, shift=position))
            return
        assert entry is not None, "the scan found it whole"
        damage = _checksum_error(entry)
        try:
            yield _entry_fields(entry, position, valid=damage is None)
        except CorruptRecordError as error:
            damage = damage or error
        if damage is not None:
            self.on_damage(damage.locate(path=chunk.path, shift=position))
        if self.deep:
            try:
                yield from self._records(chunk, row, entry)
            except CorruptRecordError as error:
                if damage is None:  # otherwise it was reported above
                    error.position = position
                    self.on_damage(error.locate(path=chunk.path))

    def _records(self, chunk: Chunk, row: int, entry: Entry) -> Iterator[Fields]:
        """Yield the records of one entry. Raises CorruptRecordError after the records before the damage."""
        table = replace(
            chunk.table,
            buffer=entry.buffer,
            position=[0],
            **{
                name: getattr(chunk.table, name)[row : row + 1]
                for name in ("size", "magic", "attributes", "offset", "count")
            },
        )
        options = DecodeOptions(verify=False, control=True, limit=self.limit)
        records: Iterator[Record] = (record for columns in decode_rows(table, [0], options) for record in columns)
        if isinstance(entry, RecordBatch):
            yield from self._batch_records(entry, records)
            return
        inner = _messages(entry, self.dialect, self.limit)
        for record, message in zip(records, inner, strict=True):
            damage = _checksum_error(message)
            yield self._message_record(message, record, valid=damage is None)
            if damage is not None and entry.is_wrapper:
                damage.offsets = (record.offset, record.offset)  # it has the relative offset
                raise damage

    def _batch_records(self, batch: RecordBatch, records: Iterable[Record]) -> Iterator[Fields]:
        """Yield the records of a batch; all that its header says is read once."""
        timestamp_type = batch.timestamp_type.label
        base, has_sequence = batch.base_sequence - batch.base_offset, batch.base_sequence >= 0
        is_control, decodes = batch.is_control, self.decode is not None
        for record in records:
            offset, key, value = record.offset, record.key, record.value
            fields: Fields = {
                "kind": "record",
                "offset": offset,
                "timestampType": timestamp_type,
                "timestamp": record.timestamp,
                "keySize": -1 if key is None else len(key),
                "valueSize": -1 if value is None else len(value),
                "sequence": (base + offset) & 0x7FFFFFFF if has_sequence else -1,
            }
            if is_control:
                fields["control"] = _control(record)
            fields["key"], fields["value"], fields["headers"] = key, value, record.headers
            if decodes and not is_control:
                fields |= self._decoded(record)
            yield fields

    def _message_record(self, message: Entry, record: Record, *, valid: bool) -> Fields:
        fields = _record_fields(record) | {"isValid": valid, "crc": message.crc}
        if isinstance(message, EnrichedMessage):
            fields |= _tags(message)
            if message.control_type is not None:
                payload = message.control
                said = {} if payload is None else {_camel(name): value for name, value in payload._asdict().items()}
                return fields | {"control": {"type": message.control_type.name, **said}} | _contents(record)
        return fields | _contents(record) | self._decoded(record)

    def _decoded(self, record: Record) -> Fields:
        if self.decode is None:
            return {}
        try:
            key, payload = self.decode(record.key, record.value)
        except CorruptRecordError as error:
            error.position = None
            raise error.locate(offsets=(record.offset, record.offset)) from None
        return {"decodedKey": key, "decodedPayload": payload}


def _checksum_error(entry: Entry) -> CorruptRecordError | None:
    try:
        entry.verify()
    except CorruptRecordError as error:
        return error
    return None


def _entry_fields(entry: Entry, position: int, *, valid: bool) -> Fields:
    fields: Fields = {"kind": "batch"}
    if isinstance(entry, RecordBatch):
        fields |= {
            "baseOffset": entry.base_offset,
            "lastOffset": entry.last_offset,
            "count": entry.record_count,
            "baseSequence": entry.base_sequence,
            "lastSequence": entry.last_sequence,
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "partitionLeaderEpoch": entry.partition_leader_epoch,
            "isTransactional": entry.is_transactional,
            "isControl": entry.is_control,
            "deleteHorizonMs": entry.delete_horizon_ms,
        }
    elif isinstance(entry, EnrichedMessage):
        fields |= {"baseOffset": entry.base_offset, "lastOffset": entry.last_offset}
    else:
        fields["lastOffset"] = entry.last_offset
    number = entry.attributes & CODEC_MASK
    if isinstance(entry, EnrichedMessage) and entry.is_control:
        number = 0
    fields |= {
        "position": position,
        "size": entry.size,
        "magic": entry.magic,
        "crc": entry.crc,
        "isvalid": valid,
        "timestampType": entry.timestamp_type.label,
        "maxTimestamp": entry.max_timestamp,
        "codec": Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown({number})",
    }
    return fields | _tags(entry) if isinstance(entry, EnrichedMessage) else fields


def _tags(message: EnrichedMessage) -> Fields:
    return {"tags": {Tag(tag).name.lower(): value for tag, value in message.tags.items()}}


def _record_fields(record: Record) -> Fields:
    return {
        "kind": "record",
        "offset": record.offset,
        "timestampType": TimestampType(record.timestamp_type).label,
        "timestamp": record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }


def _contents(record: Record) -> Fields:
    return {"key": record.key, "value": record.value, "headers": record.headers}


def _messages(entry: MessageView | EnrichedMessage, dialect: Dialect, limit: int) -> Iterator[Entry]:
    """Yield the messages in a wrapper, or the message itself."""
    if entry.codec is Codec.NONE:
        yield entry
        return
    header = Lz4Header.ANY if entry.magic == 0 else Lz4Header.CORRECT
    section = entry.value
    assert section is not None, "it was decompressed before"
    for _, message in entries(decompress(entry.codec, section, limit=limit, lz4_header=header), dialect):
        yield message


def _control(record: Record) -> Fields:
    """Return the content of a control record, with the names of Kafka's JSON."""
    control = parse_control_record(record.offset, record.key, record.value)
    if control.ends_transaction:
        return {"type": control.type.name, "coordinatorEpoch": control.coordinator_epoch}
    fields: Fields = {"type": control.type.name, "typeId": control.type_id}
    if control.value is not None and (kind := _message_of(control.type)) is not None:
        try:
            fields["data"] = fields_of(kind.read_at(control.value, 0, 0)[0])
        except ProtocolError as error:
            raise CorruptRecordError(
                f"{error.field} of a control record", expected=error.expected, found=error.found
            ) from error
    return fields


def _message_of(control: ControlType) -> type[Message] | None:
    """Return the message in a control record of KRaft. Kafka reads version 0 of each, whatever its field says."""
    from magicbyte.engine.protocol.messages.kraft_version_record import KRaftVersionRecord
    from magicbyte.engine.protocol.messages.leader_change_message import LeaderChangeMessage
    from magicbyte.engine.protocol.messages.snapshot_footer_record import SnapshotFooterRecord
    from magicbyte.engine.protocol.messages.snapshot_header_record import SnapshotHeaderRecord
    from magicbyte.engine.protocol.messages.voters_record import VotersRecord

    messages: dict[ControlType, type[Message]] = {
        ControlType.LEADER_CHANGE: LeaderChangeMessage,
        ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
        ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
        ControlType.KRAFT_VERSION: KRaftVersionRecord,
        ControlType.KRAFT_VOTERS: VotersRecord,
    }
    return messages.get(control)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
