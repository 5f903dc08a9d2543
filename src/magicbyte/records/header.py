"""What the headers of all formats have in common."""

from magicbyte.codecs import Codec
from magicbyte.errors import CorruptRecordError
from magicbyte.records.layout import CODEC_MASK, LOG_APPEND_TIME_BIT, TimestampType

_CODECS = tuple(Codec)


def check_size(size: int, minimum: int) -> None:
    """Raise CorruptRecordError when `size`, the size field of an entry, is below `minimum`."""
    if size < minimum:
        raise CorruptRecordError("size", expected=f">= {minimum}", found=size, position=0)


def codec_of(attributes: int) -> Codec:
    """Return the codec of bits 0-2. Raises CorruptRecordError for 5, 6 and 7, which mean nothing."""
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
