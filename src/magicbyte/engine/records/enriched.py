"""One message of the enriched dialect (magic 1 with tags), plain, control or the wrapper of a compressed set.

Bytes: docs/formats/enriched.md. Source: the Enriched Message Metadata proposal.
"""

import enum
import struct
from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

from magicbyte.engine.codecs import Codec, compress
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.printable import logger
from magicbyte.engine.records.header import check_size, codec_of
from magicbyte.engine.records.layout import (
    ENRICHED_CONTROL_BIT,
    ENRICHED_MINIMUM,
    ENRICHED_OVERHEAD,
    ENRICHED_SECONDS,
    ENRICHED_TAGS_START,
    ENRICHED_TYPE_MASK,
    INT8,
    INT32,
    INT64,
    LOG_OVERHEAD,
    MAGIC,
    MESSAGE_CRC,
    OFFSET,
    SIZE,
    TimestampType,
)
from magicbyte.engine.sentinels import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from magicbyte.engine.wire.checksum import Buffer, crc32

log = logger(__name__)

HEADER = struct.Struct(">qiIbbii")
"""The fields from offset to tags length, unpacked in one call; a test compares it with the layout."""
_BEFORE_BODY, _HEADER_BODY = struct.Struct(">qiI"), struct.Struct(">bbii")
NO_TAGS = -1
MAX_SECONDS = 0xFFFF_FFFE
"""The largest seconds of the header, an unsigned field in which all ones mean "not set"."""


class Tag(enum.IntEnum):
    """The known tags. Ids from 32 to 63 are for wrappers only."""

    TIMESTAMP = 0
    """int64 ms, set by the broker on receipt; takes precedence over the seconds of the header."""
    NUM_MESSAGES = 32
    """int32, the number of messages inside."""
    HONOR_SHIP = 33
    """int8: 1, the relative offsets inside are valid; 0, only the positions are."""
    NON_KEYED = 34
    """int8: 1, no message inside has a key."""


TAG_TYPES: Final[Mapping[int, struct.Struct]] = {
    Tag.TIMESTAMP: INT64,
    Tag.NUM_MESSAGES: INT32,
    Tag.HONOR_SHIP: INT8,
    Tag.NON_KEYED: INT8,
}


class EnrichedControl(enum.IntEnum):
    """Low four bits of the attributes of a control message."""

    LEADER_EPOCH = 8
    START_TRANSACTION = 9
    COMMIT_TRANSACTION = 10
    ABORT_TRANSACTION = 11
    RESERVED_12 = 12
    RESERVED_13 = 13
    RESERVED_14 = 14
    RESERVED_15 = 15


class LeaderEpochPayload(NamedTuple):
    """Value of a leader epoch message."""

    leader_epoch: int
    leader_id: int


class TransactionPayload(NamedTuple):
    """Value of a message that starts, commits or aborts a transaction."""

    transaction_id: int
    coordinator_epoch: int


_LEADER_EPOCH = struct.Struct(">ii")
_TRANSACTION = struct.Struct(">qi")


class EnrichedMessage:
    """A view of one message, from the offset field on; nothing is copied.

    `offset` is the message's offset, or for a wrapper the *starting* offset, that of its first message (Kafka's magic 1
    stores the last). `message_size` counts the bytes after itself, `size` all bytes. `seconds` since 1970, -1 if not
    set. `tags_length` is -1 without tags.
    """

    __slots__ = ("_known", "_tags", "_tags_end", "attributes", "buffer", "crc", "magic", "message_size", "offset",
                 "seconds", "tags_length")  # fmt: skip

    buffer: memoryview
    offset: int
    message_size: int
    crc: int
    magic: int
    attributes: int
    seconds: int
    tags_length: int

    is_transactional: ClassVar[bool] = False
    producer_id: ClassVar[int] = NO_PRODUCER_ID
    producer_epoch: ClassVar[int] = -1
    base_sequence: ClassVar[int] = NO_SEQUENCE
    last_sequence: ClassVar[int] = NO_SEQUENCE
    partition_leader_epoch: ClassVar[int] = -1
    delete_horizon_ms: ClassVar[None] = None

    def __init__(self, buffer: memoryview) -> None:
        """Read the header at the start of `buffer`. Use `parse` for bytes from outside."""
        self.buffer = buffer
        self.offset, self.message_size, self.crc, self.magic, self.attributes, seconds, self.tags_length = (
            HEADER.unpack_from(buffer)
        )
        self.seconds = seconds if seconds >= -1 else seconds & 0xFFFF_FFFF
        self._tags: dict[int, tuple[int, int]] | None = None  # id to position and value, parsed at first use
        self._known = ENRICHED_TAGS_START  # end of the known tags
        self._tags_end = ENRICHED_TAGS_START + max(self.tags_length, 0)

    @classmethod
    def parse(cls, buffer: memoryview) -> "EnrichedMessage | None":
        """Return the message at the start of `buffer`, or None while some of its bytes are missing.

        Raises CorruptRecordError for an impossible size, another magic than 1, or tags that extend past the end of the
        message. Tags, key and value are checked when they are read.
        """
        have = len(buffer)
        if have < ENRICHED_OVERHEAD:
            if have >= LOG_OVERHEAD:
                check_size(SIZE.read(buffer), ENRICHED_MINIMUM)
            return None
        message = cls(buffer)
        if message.magic != 1:
            raise CorruptRecordError("magic of the enriched dialect", expected=1, found=message.magic, position=0)
        check_size(message.message_size, ENRICHED_MINIMUM)
        room = message.message_size - ENRICHED_MINIMUM
        if not NO_TAGS <= message.tags_length <= room:
            raise CorruptRecordError(
                "length of the tags", expected=f"-1..{room}", found=message.tags_length, position=0
            ).locate(offsets=(message.offset, message.offset))
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
            raise _error(self, "crc", expected=f"{self.crc:#010x}", found=f"{computed:#010x}")

    # ---- attributes

    @property
    def size(self) -> int:
        """Bytes of the whole entry."""
        return LOG_OVERHEAD + self.message_size

    @property
    def is_control(self) -> bool:
        """Whether this is a control message, which is never delivered to applications."""
        return self.attributes & ENRICHED_CONTROL_BIT != 0

    @property
    def control_type(self) -> EnrichedControl | None:
        """The type of a control message; None for data."""
        return EnrichedControl(self.attributes & ENRICHED_TYPE_MASK) if self.is_control else None

    @property
    def codec(self) -> Codec:
        """The compression of `value`. Raises CorruptRecordError for an undefined codec number."""
        return Codec.NONE if self.is_control else codec_of(self.attributes)

    @property
    def is_wrapper(self) -> bool:
        """Whether `value` is a compressed set of messages."""
        return 0 < self.attributes & ENRICHED_TYPE_MASK < ENRICHED_CONTROL_BIT

    # ---- tags

    @property
    def tags_area(self) -> memoryview:
        """The tags as stored, unknown ones included, for intermediaries that must copy them."""
        return self.buffer[ENRICHED_TAGS_START : self._tags_end]

    @property
    def unknown_tags(self) -> memoryview:
        """The tags area from the first unknown tag on. Tags have no size field, so no later tag can be parsed."""
        _positions(self)
        return self.buffer[self._known : self._tags_end]

    @property
    def tags(self) -> dict[int, int]:
        """The known tags, id to value, in stored order. Of a repeated id the first one counts.

        Raises CorruptRecordError for a known tag cut off by the end of the area.
        """
        return {tag: value for tag, (_, value) in _positions(self).items()}

    @property
    def num_messages(self) -> int | None:
        """The message count in a wrapper's tag; None without the tag. Raises CorruptRecordError for a count below 1."""
        count = _wrapper_tag(self, Tag.NUM_MESSAGES, None)
        if count is not None and count < 1:
            raise _error(self, "num_messages", expected=">= 1", found=count)
        return count

    @property
    def honor_ship(self) -> bool:
        """Whether relative offsets inside a wrapper are valid, or only positions. True without the tag."""
        return _wrapper_tag(self, Tag.HONOR_SHIP, 1) != 0

    @property
    def non_keyed(self) -> bool:
        """Whether a wrapper declares that no message inside has a key. False without the tag."""
        return _wrapper_tag(self, Tag.NON_KEYED, 0) != 0

    @property
    def body(self) -> memoryview:
        """The bytes after the tags: key and value with their lengths."""
        return self.buffer[self._tags_end :]

    # ---- offsets and timestamps

    @property
    def base_offset(self) -> int:
        """Offset of the message, or the starting offset of the wrapper.

        After compaction the first message may have a later one.
        """
        return self.offset

    @property
    def last_offset(self) -> int | None:
        """Offset of the last message.

        None if it is known only after decompression: in a wrapper without a count, and in one with valid relative
        offsets, because compaction may have left gaps.
        """
        if not self.is_wrapper:
            return self.offset
        count = self.num_messages
        return None if self.honor_ship or count is None else self.offset + count - 1

    @property
    def next_offset(self) -> int | None:
        """Offset of the next entry unless compaction left a gap; None if `last_offset` is None."""
        last = self.last_offset
        return None if last is None else last + 1

    def absolute_offset(self, index: int, relative_offset: int) -> int:
        """Return the offset of the wrapped message at `index` (from 0) that stores `relative_offset`."""
        return self.offset + (relative_offset if self.honor_ship else index)

    @property
    def record_count(self) -> int | None:
        """1, or a wrapper's message count; None if it has no count tag."""
        return self.num_messages if self.is_wrapper else 1

    @property
    def timestamp(self) -> int:
        """The time at which a broker received the message, in ms, or -1: tag 0, else the header's seconds.

        Inner messages inherit the wrapper's, unless they have a tag 0 of their own.
        """
        precise = _positions(self).get(Tag.TIMESTAMP)
        if precise is not None:
            return precise[1]
        return NO_TIMESTAMP if self.seconds == -1 else self.seconds * 1000

    @property
    def max_timestamp(self) -> int:
        """The timestamp: a wrapper has only one."""
        return self.timestamp

    @property
    def timestamp_type(self) -> TimestampType:
        """LogAppendTime, as brokers set the timestamp. CreateTime if there is none, as in Kafka's formats."""
        return TimestampType.LOG_APPEND_TIME if self.timestamp >= 0 else TimestampType.CREATE_TIME

    # ---- key, value, control payload

    @property
    def key(self) -> memoryview | None:
        """The key's bytes, or None. Raises CorruptRecordError when its length contradicts the message's."""
        start = self._tags_end + 4
        room = len(self.buffer) - start - 4
        (length,) = INT32.unpack_from(self.buffer, start - 4)
        if length == -1:
            return None
        if not 0 <= length <= room:
            raise _error(self, "key length", expected=f"-1..{room}", found=length)
        return self.buffer[start : start + length]

    @property
    def value(self) -> memoryview | None:
        """The value's bytes, or None. Raises CorruptRecordError unless they end where the message ends."""
        key = self.key
        start = self._tags_end + 8 + (0 if key is None else len(key))
        (length,) = INT32.unpack_from(self.buffer, start - 4)
        if length == -1 and start == len(self.buffer):
            return None
        if length != len(self.buffer) - start:
            raise _error(self, "value length", expected=len(self.buffer) - start, found=length)
        return self.buffer[start:]

    @property
    def control(self) -> LeaderEpochPayload | TransactionPayload | None:
        """The payload of a control message; None for data and for reserved types, which are skipped.

        Raises CorruptRecordError for a key, or a value of another size than its type has.
        """
        control_type = self.control_type
        if control_type is None or control_type >= EnrichedControl.RESERVED_12:
            return None
        if self.key is not None:
            raise _error(self, "key of a control message", expected=None, found=f"{len(self.key)} bytes")
        kind = _LEADER_EPOCH if control_type is EnrichedControl.LEADER_EPOCH else _TRANSACTION
        value = self.value
        if value is None or len(value) != kind.size:
            found = None if value is None else f"{len(value)} bytes"
            raise _error(self, "value of a control message", expected=f"{kind.size} bytes", found=found)
        if control_type is EnrichedControl.LEADER_EPOCH:
            return LeaderEpochPayload(*kind.unpack(value))
        return TransactionPayload(*kind.unpack(value))

    # ---- changes

    def set_offset(self, offset: int) -> None:
        """Write the offset in place (for a wrapper, the starting offset); no checksum covers it."""
        OFFSET.write(self.buffer, offset)
        self.offset = offset

    def set_metadata(self, *, seconds: int | None = None, tags: Mapping[int, int] | None = None) -> None:
        """Write the header's seconds (-1: not set) and the values of existing tags in place, and update the CRC.

        Bytes keep their positions, and the wrapped content does not change. A missing tag is a KeyError: `with_tags`
        adds tags.
        """
        if seconds is not None:
            ENRICHED_SECONDS.type.pack_into(self.buffer, ENRICHED_SECONDS.start, _signed(seconds))
            self.seconds = seconds
        for tag, value in (tags or {}).items():
            position, _ = _positions(self)[tag]
            TAG_TYPES[tag].pack_into(self.buffer, position, value)
            _positions(self)[tag] = (position, value)
        self.crc = crc32(self.buffer[MAGIC.start :])
        MESSAGE_CRC.write(self.buffer, self.crc)

    def stamped(self, offset: int, timestamp_ms: int, *, honor_ship: bool | None = None) -> bytearray:
        """Return a copy of the header up to the key's length as a broker appends it; the view is not changed.

        It contains the offset, the second of `timestamp_ms`, tag 0 if the message has it, `honor_ship` if it is given
        (added if missing), and the new CRC. Raises CorruptRecordError where `with_tags` does.
        """
        message, tags = self, {Tag.TIMESTAMP: timestamp_ms}
        if honor_ship is not None:
            tags[Tag.HONOR_SHIP] = int(honor_ship)
            if Tag.HONOR_SHIP not in self.tags:
                message = EnrichedMessage(memoryview(self.with_tags({Tag.HONOR_SHIP: int(honor_ship)})))
        head = bytearray(message.buffer[: message._tags_end])
        OFFSET.type.pack_into(head, OFFSET.start, offset)
        ENRICHED_SECONDS.type.pack_into(head, ENRICHED_SECONDS.start, _signed(timestamp_ms // 1000))
        for tag, value in tags.items():
            if tag in _positions(message):
                TAG_TYPES[tag].pack_into(head, _positions(message)[tag][0], value)
        MESSAGE_CRC.type.pack_into(head, MESSAGE_CRC.start, crc32(self.body, crc32(head[MAGIC.start :])))
        return head

    def with_tags(self, tags: Mapping[int, int]) -> bytes:
        """Return a copy in which `tags` have these values. Missing tags are added in ascending order of ids.

        They are inserted before unknown tags. Raises CorruptRecordError if the ids would then not ascend, because a
        reader that stops at an unknown tag would miss the known ones after it.
        """
        values = self.tags | dict(tags)
        order = list(self.tags)
        missing = sorted(tags.keys() - self.tags.keys())
        for tag in missing:
            order.insert(next((i for i, present in enumerate(order) if present > tag), len(order)), tag)
        unknown = self.unknown_tags
        ids = order + [INT8.unpack_from(unknown)[0] for _ in range(min(len(unknown), 1))]
        if missing and ids != sorted(ids):
            raise _error(self, "order of the tags", expected="ascending ids", found=ids)
        area = b"".join(_encode_tag(tag, values[tag]) for tag in order) + bytes(unknown)
        return _build(self.offset, self.attributes, self.seconds, area, self.body)


def _error(message: EnrichedMessage, what: str, *, expected: object, found: object) -> CorruptRecordError:
    error = CorruptRecordError(what, expected=expected, found=found, position=0)
    return error.locate(offsets=(message.offset, message.offset))


def _positions(message: EnrichedMessage) -> dict[int, tuple[int, int]]:
    """Return the known tags, id to position and value, parsed at first use."""
    if message._tags is None:
        message._tags, message._known = _read_tags(message)
    return message._tags


def _wrapper_tag(message: EnrichedMessage, tag: Tag, missing: int | None) -> int | None:
    if not message.is_wrapper:
        return missing
    found = _positions(message).get(tag)
    return missing if found is None else found[1]


def _read_tags(message: EnrichedMessage) -> tuple[dict[int, tuple[int, int]], int]:
    """Return the known tags, id to position and value, and the position after them. Raises CorruptRecordError."""
    at, end = ENRICHED_TAGS_START, message._tags_end
    positions: dict[int, tuple[int, int]] = {}
    while at < end:
        (tag,) = INT8.unpack_from(message.buffer, at)
        kind = TAG_TYPES.get(tag)
        if kind is None:
            break
        if at + 1 + kind.size > end:
            raise _error(message, f"tag {tag}", expected=f"{kind.size} bytes", found=f"{end - at - 1} bytes")
        if tag in positions:
            log.warning("message at offset %d: tag %d comes twice, the first counts", message.offset, tag)
        else:
            positions[tag] = (at + 1, kind.unpack_from(message.buffer, at + 1)[0])
        at += 1 + kind.size
    return positions, at


def encode_tags(tags: Mapping[int, int]) -> bytes:
    """Return the encoded tags, in ascending order of ids."""
    return b"".join(_encode_tag(tag, tags[tag]) for tag in sorted(tags))


def build_enriched_message(
    offset: int,
    key: Buffer | None,
    value: Buffer | None,
    *,
    seconds: int = -1,
    tags: bytes = b"",
    control_type: EnrichedControl | None = None,
) -> bytes:
    """Build one uncompressed message. `seconds` since 1970, -1 not set; `tags` as `encode_tags` returns them."""
    rest = b"".join(
        part for data in (key, value) for part in (INT32.pack(-1 if data is None else len(data)), data or b"")
    )
    return _build(offset, control_type or 0, seconds, tags, rest)


def build_enriched_wrapper(
    codec: Codec,
    inner: Buffer,
    *,
    num_messages: int,
    non_keyed: bool,
    start_offset: int = 0,
    seconds: int = -1,
    timestamp_ms: int | None = None,
    honor_ship: bool = True,
    level: int | None = None,
) -> bytes:
    """Build a wrapper of `inner`, whole enriched messages with relative offsets.

    `timestamp_ms` becomes tag 0, or is left out if None. The defaults are those of a producer.
    """
    assert codec is not Codec.NONE
    tags: dict[int, int] = {
        Tag.NUM_MESSAGES: num_messages,
        Tag.HONOR_SHIP: int(honor_ship),
        Tag.NON_KEYED: int(non_keyed),
    }
    if timestamp_ms is not None:
        tags[Tag.TIMESTAMP] = timestamp_ms
    value = compress(codec, inner, level=level)
    return _build(start_offset, codec, seconds, encode_tags(tags), INT32.pack(-1) + INT32.pack(len(value)) + value)


def _encode_tag(tag: int, value: int) -> bytes:
    return INT8.pack(tag) + TAG_TYPES[tag].pack(value)


def _signed(seconds: int) -> int:
    return seconds if seconds <= 0x7FFF_FFFF else seconds - 0x1_0000_0000


def _build(offset: int, attributes: int, seconds: int, tags: bytes, key_and_value: Buffer) -> bytes:
    """Build a message; `key_and_value` begins with the key's length."""
    head = _HEADER_BODY.pack(1, attributes, _signed(seconds), len(tags) or NO_TAGS)
    body = b"".join((head, tags, key_and_value))
    return _BEFORE_BODY.pack(offset, MESSAGE_CRC.type.size + len(body), crc32(body)) + body
