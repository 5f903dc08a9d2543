"""Fields that the headers of all formats have in common."""

from __future__ import annotations

from struct import Struct

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.layout import (
    CODEC_MASK,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAX_TIMESTAMP,
    OFFSET,
    V1_TIMESTAMP,
    Field,
    TimestampType,
)
from magicbyte.engine.sentinels import NO_TIMESTAMP
from magicbyte.engine.wire.checksum import Buffer

_CODECS = tuple(Codec)


def _struct_of(*fields: Field) -> Struct:
    """Return the struct that unpacks these fields of an entry, in their order."""
    at, form = 0, ">"
    for field in fields:
        form += f"{field.start - at}x{field.type.format.removeprefix('>')}"
        at = field.start + field.type.size
    return Struct(form)


_OF_V0 = _struct_of(OFFSET, MAGIC).unpack_from
_OF_V1 = _struct_of(OFFSET, V1_TIMESTAMP).unpack_from
_OF_V2 = _struct_of(OFFSET, LAST_OFFSET_DELTA, MAX_TIMESTAMP).unpack_from


def extent_of(buffer: Buffer, at: int = 0) -> tuple[int, int, int]:
    """Return the first and last offset and the max timestamp (ms, -1: none) of the entry at `at`, from its header.

    For Kafka's dialect. The header of a wrapper of magic 0 or 1 has only its last offset, which is then returned as
    both. The next offset is the last one plus 1.
    """
    offset, magic = _OF_V0(buffer, at)
    if magic == 2:
        offset, delta, timestamp = _OF_V2(buffer, at)
        return offset, offset + delta, timestamp
    return offset, offset, _OF_V1(buffer, at)[1] if magic else NO_TIMESTAMP


def check_size(size: int, minimum: int) -> None:
    """Raise CorruptRecordError when `size`, the size field of an entry, is below `minimum`."""
    if size < minimum:
        raise CorruptRecordError("size", expected=f">= {minimum}", found=size, position=0)


def codec_of(attributes: int) -> Codec:
    """Return the codec of bits 0-2. Raises CorruptRecordError for 5, 6 and 7, which are undefined."""
    number = attributes & CODEC_MASK
    if number >= len(_CODECS):
        raise CorruptRecordError("codec", expected=f"0..{len(_CODECS) - 1}", found=number, position=0)
    return _CODECS[number]


def timestamp_type_of(attributes: int) -> TimestampType:
    """Return the type in bit 3."""
    return TimestampType.LOG_APPEND_TIME if attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME


def timestamp_type_bit(timestamp_type: TimestampType) -> int:
    """Return bit 3 for the type; clear for everything but LogAppendTime."""
    return LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
