"""Describe every byte of an entry: the fields of a message, wrapper or batch, named as in docs/formats/.

It inspects one entry, in particular a damaged one: `anatomy` raises no error about the content and puts each byte into
exactly one part. Use scan.py and decode.py to read logs.
"""

import datetime
import struct
from typing import NamedTuple

from magicbyte.engine.codecs import Codec, Lz4Header, decompress
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import ControlType
from magicbyte.engine.records.enriched import TAG_TYPES, EnrichedControl, EnrichedMessage, Tag
from magicbyte.engine.records.entry import entries, parse_entry
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    ENRICHED_CONTROL_BIT,
    ENRICHED_TYPE_MASK,
    INT8,
    INT16,
    INT32,
    INT64,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    UINT32,
    Dialect,
)
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.wire.checksum import crc32, crc32c

UNREADABLE = "unreadable"
"""Type of the last part of damaged input: all bytes after the last field that could be parsed.

Its note gives the reason.
"""

_TYPE_NAMES = {"b": "int8", "h": "int16", "i": "int32", "q": "int64", "I": "uint32"}
_MARKER_TYPES = (ControlType.ABORT, ControlType.COMMIT)
_MARKER_KEY_SIZE, _MARKER_VALUE_SIZE = 4, 6


class FieldPart(NamedTuple):
    """One field: `size` bytes at `start`, a position in the given bytes.

    `type` is a type name of docs/formats/, or UNREADABLE. `value` is None for bytes. `note` explains a value that is
    not self-explanatory.
    """

    start: int
    size: int
    field: str
    type: str
    value: int | None
    note: str


class Inside(NamedTuple):
    """The content of a compressed entry: the decompressed bytes and their parts."""

    data: memoryview
    parts: list[FieldPart]


def anatomy(entry: memoryview, dialect: Dialect = Dialect.KAFKA) -> list[FieldPart]:
    """Return the parts of `entry`, which may be incomplete. The parts cover the bytes exactly, in order.

    Compressed content is one part; `inside` decompresses and splits it.
    """
    walk = _AnatomyWalk(entry)
    try:
        _entry(walk, dialect, "")
        if walk.at < len(entry):
            raise CorruptRecordError("bytes after the last field", expected=0, found=len(entry) - walk.at)
    except CorruptRecordError as error:
        walk.give_up(error)
    return walk.parts


def inside(entry: memoryview, dialect: Dialect = Dialect.KAFKA, *, limit: int) -> Inside | None:
    """Return the decompressed content of an entry, at most `limit` bytes, or None for an uncompressed entry.

    Raises CorruptRecordError, also if decompression fails.
    """
    view = parse_entry(entry, dialect)
    if view is None or view.codec is Codec.NONE:
        return None
    header = Lz4Header.ANY if view.magic == 0 else Lz4Header.CORRECT
    section = view.records_section if isinstance(view, RecordBatch) else view.value
    if section is None:
        raise CorruptRecordError("value of a wrapper", expected="compressed messages", found="null")
    data = decompress(view.codec, section, limit=limit, lz4_header=header)
    walk = _AnatomyWalk(data)
    try:
        if isinstance(view, RecordBatch):
            _records(walk, view)
        else:
            _messages(walk, view, dialect)
    except CorruptRecordError as error:
        walk.give_up(error)
    return Inside(data, walk.parts)


class _AnatomyWalk:
    """The current position in `data` and the parts before it. Reading past `end` raises CorruptRecordError."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)
        self.parts: list[FieldPart] = []

    def integer(self, field: str, kind: struct.Struct) -> int:
        self._need(field, kind.size)
        value = int(kind.unpack_from(self.data, self.at)[0])
        self._add(field, _TYPE_NAMES[kind.format[-1]], kind.size, value)
        return value

    def varint(self, field: str, most: int = 5) -> int:
        """Read a zigzag varint of up to `most` bytes."""
        value = 0
        for i in range(most):
            self._need(field, i + 1)
            byte = self.data[self.at + i]
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                value = (value >> 1) ^ -(value & 1)
                self._add(field, "varint" if most == 5 else "varlong", i + 1, value)
                return value
        raise CorruptRecordError(field, expected=f"a varint of at most {most} bytes", found="a longer one")

    def octets(self, field: str, size: int, note: str = "") -> None:
        """Read `size` bytes. A size of 0 adds no part."""
        self._need(field, size)
        if size:
            self._add(field, "bytes", size, None, note)

    def sized(self, field: str, length: int) -> None:
        """Read a field whose length is the value of the last part; -1 means null."""
        if length == -1:
            self.note("null")
        elif length < 0:
            raise CorruptRecordError(f"length of {field}", expected="-1 or more", found=length)
        else:
            self.octets(field, length)

    def note(self, text: str) -> None:
        """Set the note of the last part."""
        self.parts[-1] = self.parts[-1]._replace(note=text)

    def give_up(self, error: CorruptRecordError) -> None:
        """Add the rest of the bytes as one UNREADABLE part."""
        note = f"{error.what}: expected {error.expected}, found {error.found}"
        if self.at < len(self.data):
            self._add("?", UNREADABLE, len(self.data) - self.at, None, note)
        elif self.parts:
            last = self.parts[-1]
            self.parts[-1] = last._replace(type=UNREADABLE, note=f"{last.note}; {note}" if last.note else note)

    def _need(self, field: str, size: int) -> None:
        left = self.end - self.at
        if size > left:
            raise CorruptRecordError(field, expected=f"{size} bytes", found=f"{left} before the end")

    def _add(self, field: str, kind: str, size: int, value: int | None, note: str = "") -> None:
        self.parts.append(FieldPart(self.at, size, field, kind, value, note))
        self.at += size


def _entry(walk: _AnatomyWalk, dialect: Dialect, prefix: str) -> None:
    """Read one entry at the walk's position, up to the walk's end."""
    magic = walk.data[walk.at + MAGIC.start] if walk.end - walk.at > MAGIC.start else None
    if magic == 2 and dialect is Dialect.KAFKA and not prefix:
        _batch(walk)
        return
    first = walk.at
    walk.integer(f"{prefix}offset", INT64)
    size = walk.integer(f"{prefix}message_size", INT32)
    crc = walk.integer(f"{prefix}crc", UINT32)
    body = walk.data[first + MAGIC.start : walk.end]
    walk.note(_checked(crc, crc32(body), whole=walk.end - first >= LOG_OVERHEAD + size))
    magic = walk.integer(f"{prefix}magic", INT8)
    if dialect is Dialect.ENRICHED:
        if magic != 1:
            raise CorruptRecordError("magic of the enriched dialect", expected=1, found=magic)
        _enriched_message(walk, prefix)
    elif magic in (0, 1):
        _message(walk, prefix, magic)
    else:
        raise CorruptRecordError("magic", expected="0 or 1" if prefix else "0, 1 or 2", found=magic)


def _message(walk: _AnatomyWalk, prefix: str, magic: int) -> None:
    """Read a message of magic 0 or 1 from its attributes on."""
    attributes = walk.integer(f"{prefix}attributes", INT8)
    bits = [_codec_name(attributes)]
    if magic == 1:
        bits.append(_timestamp_type(attributes))
    walk.note(", ".join(bits))
    if magic == 1:
        walk.integer(f"{prefix}timestamp", INT64)
        walk.note(_time(walk.parts[-1].value))
    walk.sized(f"{prefix}key", walk.integer(f"{prefix}key_length", INT32))
    _value(walk, prefix, compressed=attributes & CODEC_MASK != 0)


def _value(walk: _AnatomyWalk, prefix: str, *, compressed: bool) -> None:
    walk.sized(f"{prefix}value", walk.integer(f"{prefix}value_length", INT32))
    if compressed and walk.parts[-1].type == "bytes":
        walk.note("compressed messages")


def _enriched_message(walk: _AnatomyWalk, prefix: str) -> None:
    """Read an enriched message from its attributes on."""
    attributes = walk.integer(f"{prefix}attributes", INT8)
    control = attributes & ENRICHED_CONTROL_BIT != 0
    walk.note(EnrichedControl(attributes & ENRICHED_TYPE_MASK).name if control else _codec_name(attributes))
    seconds = walk.integer(f"{prefix}seconds", INT32)
    walk.note("not set" if seconds == -1 else _time((seconds & 0xFFFF_FFFF) * 1000))
    length = walk.integer(f"{prefix}tags_length", INT32)
    if length < -1 or length > walk.end - walk.at:
        raise CorruptRecordError("length of the tags", expected=f"-1..{walk.end - walk.at}", found=length)
    if length == -1:
        walk.note("none")
    _tags(walk, prefix, walk.at + max(length, 0))
    walk.sized(f"{prefix}key", walk.integer(f"{prefix}key_length", INT32))
    _value(walk, prefix, compressed=not control and attributes & CODEC_MASK != 0)


def _tags(walk: _AnatomyWalk, prefix: str, end: int) -> None:
    while walk.at < end:
        tag = INT8.unpack_from(walk.data, walk.at)[0]
        kind = TAG_TYPES.get(tag)
        if kind is None:
            walk.octets(f"{prefix}unknown_tags", end - walk.at, "not known, so kept as they are")
            return
        if walk.at + 1 + kind.size > end:
            raise CorruptRecordError(f"tag {tag}", expected=f"{kind.size} bytes", found=f"{end - walk.at - 1} bytes")
        walk.integer(f"{prefix}tag id", INT8)
        walk.note(Tag(tag).name.lower())
        value = walk.integer(f"{prefix}tags[{tag}]", kind)
        if tag == Tag.TIMESTAMP:
            walk.note(_time(value))


def _batch(walk: _AnatomyWalk) -> None:
    """Read a record batch."""
    base_offset = walk.integer("base_offset", INT64)
    size = walk.integer("batch_length", INT32)
    walk.integer("partition_leader_epoch", INT32)
    walk.integer("magic", INT8)
    crc = walk.integer("crc", UINT32)
    walk.note(_checked(crc, crc32c(walk.data[ATTRIBUTES.start :]), whole=len(walk.data) >= LOG_OVERHEAD + size))
    attributes = walk.integer("attributes", INT16)
    bits = [_codec_name(attributes), _timestamp_type(attributes)]
    names = {TRANSACTIONAL_BIT: "transactional", CONTROL_BIT: "control", DELETE_HORIZON_BIT: "delete horizon"}
    walk.note(", ".join(bits + [name for bit, name in names.items() if attributes & bit]))
    last = walk.integer("last_offset_delta", INT32)
    walk.note(f"offset {base_offset + last}")
    base_timestamp = walk.integer("base_timestamp", INT64)
    horizon = "delete horizon " if attributes & DELETE_HORIZON_BIT else ""
    walk.note(f"{horizon}{_time(base_timestamp)}")
    walk.note(_time(walk.integer("max_timestamp", INT64)))
    walk.integer("producer_id", INT64)
    walk.integer("producer_epoch", INT16)
    walk.integer("base_sequence", INT32)
    walk.integer("record_count", INT32)
    if attributes & CODEC_MASK:
        walk.octets("records", walk.end - walk.at, f"compressed: {_codec_name(attributes)}")
    else:
        _records(walk, RecordBatch(walk.data))


def _records(walk: _AnatomyWalk, batch: RecordBatch) -> None:
    """Read the records of a batch, decompressed, up to the walk's end."""
    whole = walk.end
    for i in range(batch.record_count):
        name = f"records[{i}]."
        walk.end = whole
        length = walk.varint(f"{name}length")
        if not 0 <= length <= whole - walk.at:
            raise CorruptRecordError("record length", expected=f"0..{whole - walk.at}", found=length)
        walk.end = walk.at + length
        _record(walk, name, batch)
        if walk.at != walk.end:
            raise CorruptRecordError("bytes after a record's fields", expected=0, found=walk.end - walk.at)
    walk.end = whole
    if walk.at != whole:
        raise CorruptRecordError("bytes after the last record", expected=0, found=whole - walk.at)


def _record(walk: _AnatomyWalk, name: str, batch: RecordBatch) -> None:
    walk.integer(f"{name}attributes", INT8)
    delta = walk.varint(f"{name}timestamp_delta", 10)
    if not batch.attributes & LOG_APPEND_TIME_BIT:
        walk.note(_time(batch.base_timestamp + delta))
    offset = batch.base_offset + walk.varint(f"{name}offset_delta")
    walk.note(f"offset {offset}")
    key_length = walk.varint(f"{name}key_length")
    control_type = None
    if batch.is_control and key_length == _MARKER_KEY_SIZE:
        walk.integer(f"{name}key.version", INT16)
        control_type = walk.integer(f"{name}key.type", INT16)
        walk.note(_control_name(control_type))
    else:
        walk.sized(f"{name}key", key_length)
    value_length = walk.varint(f"{name}value_length")
    if control_type in _MARKER_TYPES and value_length == _MARKER_VALUE_SIZE:
        walk.integer(f"{name}value.version", INT16)
        walk.integer(f"{name}value.coordinator_epoch", INT32)
    else:
        walk.sized(f"{name}value", value_length)
    for _ in range(walk.varint(f"{name}header_count")):
        walk.sized(f"{name}header_key", walk.varint(f"{name}header_key_length"))
        walk.sized(f"{name}header_value", walk.varint(f"{name}header_value_length"))


def _messages(walk: _AnatomyWalk, wrapper: MessageView | EnrichedMessage, dialect: Dialect) -> None:
    """Read the messages in a wrapper, decompressed."""
    inner = entries(walk.data, dialect)
    messages: list[MessageView | EnrichedMessage] = []
    damage = None
    try:
        for _, message in inner:
            if isinstance(message, RecordBatch):
                raise CorruptRecordError("magic of a message in a wrapper", expected="0 or 1", found=2)
            messages.append(message)
    except CorruptRecordError as error:
        damage = error
    for i, message in enumerate(messages):
        walk.end = walk.at + message.size
        first = len(walk.parts)
        _entry(walk, dialect, f"messages[{i}].")
        if walk.at != walk.end:
            raise CorruptRecordError("bytes after the value", expected=0, found=walk.end - walk.at)
        if isinstance(wrapper, EnrichedMessage):
            offset = wrapper.absolute_offset(i, message.offset)
        elif wrapper.magic == 0 or wrapper.offset == 0:
            offset = message.offset
        else:
            offset = wrapper.offset - messages[-1].offset + message.offset
        if offset != message.offset:
            walk.parts[first] = walk.parts[first]._replace(note=f"offset {offset}")
    walk.end = len(walk.data)
    if damage is not None:
        raise damage
    if inner.tail is not None:
        raise CorruptRecordError("end of the messages", expected="a whole message", found=f"{inner.tail.found} bytes")


def _checked(stored: int, computed: int, *, whole: bool) -> str:
    if not whole:
        return "cannot be checked: bytes are missing"
    return "right" if stored == computed else f"wrong: the bytes have {computed:#010x}"


def _codec_name(attributes: int) -> str:
    number = attributes & CODEC_MASK
    return f"codec {Codec(number).name.lower()}" if number <= Codec.ZSTD else f"unknown codec {number}"


def _timestamp_type(attributes: int) -> str:
    return "LogAppendTime" if attributes & LOG_APPEND_TIME_BIT else "CreateTime"


def _control_name(number: int) -> str:
    return ControlType(number).name if number in set(ControlType) - {ControlType.UNKNOWN} else "unknown type"


def _time(milliseconds: int | None) -> str:
    """Format a timestamp in UTC; return an empty string for -1 and for times outside the calendar."""
    if milliseconds is None or milliseconds == -1:
        return ""
    try:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return "beyond the year 9999" if milliseconds > 0 else "before the year 1"
    return moment.isoformat(timespec="milliseconds") + "Z"
