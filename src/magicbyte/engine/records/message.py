"""One message of magic 0 or 1, plain or the wrapper of a compressed set.

Bytes: docs/formats/message-v0.md and message-v1.md. Source: Kafka's LegacyRecord and AbstractLegacyRecordBatch.
"""

import struct
from typing import ClassVar

from magicbyte.engine.codecs import Codec, Lz4Header, compress
from magicbyte.engine.errors import CorruptRecordError, UnsupportedCompressionError
from magicbyte.engine.records.header import check_size, codec_of, timestamp_type_bit, timestamp_type_of
from magicbyte.engine.records.layout import (
    CODEC_MASK,
    INT32,
    LOG_OVERHEAD,
    MAGIC,
    MESSAGE_ATTRIBUTES,
    MESSAGE_CRC,
    OFFSET,
    SIZE,
    V0_KEY_LENGTH,
    V0_MINIMUM,
    V0_OVERHEAD,
    V1_KEY_LENGTH,
    V1_MINIMUM,
    V1_OVERHEAD,
    V1_TIMESTAMP,
    TimestampType,
)
from magicbyte.engine.sentinels import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from magicbyte.engine.wire.checksum import Buffer, crc32

V0_HEADER = struct.Struct(">qiIbbi")
"""The fields from offset to key length, unpacked in one call; a test compares it with the layout."""
V1_HEADER = struct.Struct(">qiIbbqi")
_BEFORE_BODY, _V0_BODY, _V1_BODY = (struct.Struct(parts) for parts in (">qiI", ">bbi", ">bbqi"))


class MessageView:
    """A view of one message, from the offset field on; nothing is copied.

    `offset` is that of the message, or for a wrapper that of its last message (or an arbitrary value from a producer).
    `message_size` counts the bytes after itself, `size` all bytes. `timestamp` is in ms, -1 if there is none.
    """

    __slots__ = ("attributes", "buffer", "crc", "key_length", "magic", "message_size", "offset", "timestamp")

    buffer: memoryview
    offset: int
    message_size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key_length: int

    is_transactional: ClassVar[bool] = False
    is_control: ClassVar[bool] = False
    producer_id: ClassVar[int] = NO_PRODUCER_ID
    producer_epoch: ClassVar[int] = -1
    base_sequence: ClassVar[int] = NO_SEQUENCE
    last_sequence: ClassVar[int] = NO_SEQUENCE
    partition_leader_epoch: ClassVar[int] = -1
    delete_horizon_ms: ClassVar[None] = None

    def __init__(self, buffer: memoryview) -> None:
        """Read the header at the start of `buffer`. Use `parse` for bytes from outside."""
        self.buffer = buffer
        if buffer[MAGIC.start] == 0:
            self.offset, self.message_size, self.crc, self.magic, self.attributes, self.key_length = (
                V0_HEADER.unpack_from(buffer)
            )
            self.timestamp = NO_TIMESTAMP
        else:
            self.offset, self.message_size, self.crc, self.magic, self.attributes, self.timestamp, self.key_length = (
                V1_HEADER.unpack_from(buffer)
            )

    @classmethod
    def parse(cls, buffer: memoryview) -> "MessageView | None":
        """Return the message at the start of `buffer`, or None while some of its bytes are missing.

        Raises CorruptRecordError for an impossible size, or another magic than 0 and 1. The lengths of key and value
        are checked when they are read.
        """
        have = len(buffer)
        if have < LOG_OVERHEAD:
            return None
        minimum = V1_MINIMUM if have > MAGIC.start and buffer[MAGIC.start] == 1 else V0_MINIMUM
        if have < LOG_OVERHEAD + minimum:
            check_size(SIZE.read(buffer), minimum)
            return None
        if buffer[MAGIC.start] > 1:
            raise CorruptRecordError("magic", expected="0 or 1", found=MAGIC.read(buffer), position=0)
        message = cls(buffer)
        check_size(message.message_size, minimum)
        end = LOG_OVERHEAD + message.message_size
        if have < end:
            return None
        if have > end:
            message.buffer = buffer[:end]
        return message

    def verify(self) -> None:
        """Raise CorruptRecordError unless the CRC holds.

        Separate from `parse`, so that a shallow walk does not compute it.
        """
        computed = crc32(self.buffer[MAGIC.start :])
        if self.crc != computed:
            raise CorruptRecordError("crc", expected=f"{self.crc:#010x}", found=f"{computed:#010x}", position=0).locate(
                offsets=(self.offset, self.offset)
            )

    @property
    def size(self) -> int:
        """Bytes of the whole entry."""
        return LOG_OVERHEAD + self.message_size

    @property
    def codec(self) -> Codec:
        """The compression of `value`. Raises CorruptRecordError for an undefined codec number."""
        return codec_of(self.attributes)

    @property
    def is_wrapper(self) -> bool:
        """Whether `value` is a compressed set of messages."""
        return self.attributes & CODEC_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        """The timestamp type; magic 0 has none. A wrapper's type applies to all messages in it."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return timestamp_type_of(self.attributes)

    @property
    def max_timestamp(self) -> int:
        """The message's timestamp; for a wrapper, the largest inside or the append time."""
        return self.timestamp

    @property
    def base_offset(self) -> int | None:
        """Offset of the first message; None for a wrapper, where it is known only after decompression."""
        return None if self.is_wrapper else self.offset

    @property
    def last_offset(self) -> int:
        """Offset of the last message."""
        return self.offset

    @property
    def next_offset(self) -> int:
        """The offset after `last_offset`, where the next entry begins unless compaction left a gap."""
        return self.offset + 1

    @property
    def record_count(self) -> int | None:
        """1; None for a wrapper, where the count is known only after decompression."""
        return None if self.is_wrapper else 1

    @property
    def key(self) -> memoryview | None:
        """The key's bytes, or None. Raises CorruptRecordError when its length contradicts the message's."""
        start = V0_OVERHEAD - 4 if self.magic == 0 else V1_OVERHEAD - 4
        length = self.key_length
        if length == -1:
            return None
        if not 0 <= length <= len(self.buffer) - start - 4:
            raise self._lying_length("key length", f"-1..{len(self.buffer) - start - 4}", length)
        return self.buffer[start : start + length]

    @property
    def value(self) -> memoryview | None:
        """The value's bytes, or None. Raises CorruptRecordError unless they end where the message ends."""
        key = self.key
        start = (V0_OVERHEAD if self.magic == 0 else V1_OVERHEAD) + (0 if key is None else len(key))
        (length,) = INT32.unpack_from(self.buffer, start - 4)
        if length == -1 and start == len(self.buffer):
            return None
        if length != len(self.buffer) - start:
            raise self._lying_length("value length", len(self.buffer) - start, length)
        return self.buffer[start:]

    def _lying_length(self, what: str, expected: object, found: int) -> CorruptRecordError:
        error = CorruptRecordError(what, expected=expected, found=found, position=0)
        return error.locate(offsets=(self.offset, self.offset))

    def set_offset(self, offset: int) -> None:
        """Write the offset in place; no checksum covers it. The buffer must be writable."""
        OFFSET.write(self.buffer, offset)
        self.offset = offset

    def set_max_timestamp(self, timestamp_type: TimestampType, timestamp: int) -> None:
        """Write the timestamp type and timestamp (ms) of a magic-1 message in place and update its CRC, unless both are
        set.

        The content of a wrapper does not change: the wrapper's type and, for LogAppendTime, its timestamp apply to it.
        """
        assert self.magic == 1, "magic 0 has no timestamp"
        if self.timestamp_type is timestamp_type and self.timestamp == timestamp:
            return
        self.attributes = self.attributes & CODEC_MASK | timestamp_type_bit(timestamp_type)
        self.timestamp = timestamp
        MESSAGE_ATTRIBUTES.write(self.buffer, self.attributes)
        V1_TIMESTAMP.write(self.buffer, timestamp)
        self.crc = crc32(self.buffer[MAGIC.start :])
        MESSAGE_CRC.write(self.buffer, self.crc)

    def stamped(self, offset: int, timestamp_type: TimestampType, timestamp: int) -> bytearray:
        """Return a copy of the header up to the key's length with these fields and the new CRC; the view is not
        changed.

        Has the effect of `set_offset` and, for magic 1, `set_max_timestamp`, without writing to the buffer.
        """
        start = (V0_KEY_LENGTH if self.magic == 0 else V1_KEY_LENGTH).start
        head = bytearray(self.buffer[:start])
        OFFSET.type.pack_into(head, OFFSET.start, offset)
        if self.magic and (self.timestamp_type is not timestamp_type or self.timestamp != timestamp):
            attributes = self.attributes & CODEC_MASK | timestamp_type_bit(timestamp_type)
            MESSAGE_ATTRIBUTES.type.pack_into(head, MESSAGE_ATTRIBUTES.start, attributes)
            V1_TIMESTAMP.type.pack_into(head, V1_TIMESTAMP.start, timestamp)
            crc = crc32(self.buffer[start:], crc32(head[MAGIC.start :]))
            MESSAGE_CRC.type.pack_into(head, MESSAGE_CRC.start, crc)
        return head


def build_message(
    magic: int,
    offset: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Build one uncompressed message of magic 0 or 1. Magic 0 ignores the timestamp (ms) and its type."""
    return _build(magic, offset, timestamp, key, value, timestamp_type_bit(timestamp_type))


def build_wrapper(
    magic: int,
    codec: Codec,
    inner: Buffer,
    last_offset: int,
    timestamp: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    *,
    level: int | None = None,
) -> bytes:
    """Build a wrapper of `inner`, whole messages of the same magic.

    `last_offset` is the last inner message's absolute offset. Inner offsets are absolute for magic 0, relative to the
    first for magic 1; `timestamp` is the largest inside, or the append time. LZ4 frames of magic 0 get the header
    checksum that old Kafka clients expect. Raises UnsupportedCompressionError for zstd.
    """
    assert codec is not Codec.NONE
    if codec is Codec.ZSTD:
        raise UnsupportedCompressionError(f"zstd needs magic 2: a wrapper of magic {magic} cannot hold it")
    header = Lz4Header.BROKEN if magic == 0 else Lz4Header.CORRECT
    value = compress(codec, inner, level=level, lz4_header=header)
    return _build(magic, last_offset, timestamp, None, value, codec | timestamp_type_bit(timestamp_type))


def _build(magic: int, offset: int, timestamp: int, key: Buffer | None, value: Buffer | None, attributes: int) -> bytes:
    key_length, value_length = (-1 if part is None else len(part) for part in (key, value))
    if magic == 0:
        head = _V0_BODY.pack(0, attributes & CODEC_MASK, key_length)
    else:
        assert magic == 1
        head = _V1_BODY.pack(1, attributes, timestamp, key_length)
    body = b"".join((head, key or b"", INT32.pack(value_length), value or b""))
    return _BEFORE_BODY.pack(offset, MESSAGE_CRC.type.size + len(body), crc32(body)) + body
