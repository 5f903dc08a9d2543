"""One record batch: magic 2.

Bytes: docs/formats/record-batch-v2.md. Source: Kafka's DefaultRecordBatch.
"""

import struct
from collections.abc import Iterable
from typing import ClassVar

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.header import check_size, codec_of, timestamp_type_bit, timestamp_type_of
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    BATCH_CRC,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    OFFSET,
    PARTITION_LEADER_EPOCH,
    RECORD_BATCH_MINIMUM,
    RECORD_BATCH_OVERHEAD,
    SIZE,
    TRANSACTIONAL_BIT,
    TimestampType,
)
from magicbyte.engine.sentinels import NO_PRODUCER_ID, NO_SEQUENCE
from magicbyte.engine.wire.checksum import Buffer, crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
"""The 61 header bytes before the records, unpacked in one call; a test compares it with the layout."""

_PLACE = struct.Struct(">qii")  # base offset, batch length, leader epoch
_CRC_COVERS = ATTRIBUTES.start  # the CRC covers all bytes from here on
_ONE_BYTE = [bytes((value,)) for value in range(0x80)]
_APPEND_TIME = TimestampType.LOG_APPEND_TIME
_KEPT_BITS = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT


class RecordBatch:
    """A view of one batch; nothing is copied.

    `batch_length` counts the bytes after it, `size` all. `last_offset` is that of the last record written, which a
    compaction may have removed. `is_control`: Kafka writes it for its own use, and never delivers it to applications
    (control.py). `is_transactional`: the records, or the marker, belong to a transaction. Timestamps are in ms. The
    records' timestamp deltas count from `base_timestamp`: the first record's timestamp, or the delete horizon if the
    batch has one.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "buffer",
        "crc",
        "is_control",
        "is_transactional",
        "last_offset",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )

    buffer: memoryview
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    size: int
    last_offset: int
    is_control: bool
    is_transactional: bool

    is_wrapper: ClassVar[bool] = False

    def __init__(self, buffer: memoryview) -> None:
        """Read the header at the start of `buffer`. Use `parse` for bytes from outside."""
        self.buffer = buffer
        (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(buffer)
        self.size = LOG_OVERHEAD + self.batch_length
        self.last_offset = self.base_offset + self.last_offset_delta
        self.is_control = self.attributes & CONTROL_BIT != 0
        self.is_transactional = self.attributes & TRANSACTIONAL_BIT != 0

    @classmethod
    def parse(cls, buffer: memoryview) -> "RecordBatch | None":
        """Return the batch at the start of `buffer`, or None while some of its bytes are missing.

        Raises CorruptRecordError for a size that no batch has, or another magic than 2. Missing bytes are no error:
        on a socket they mean "read more", at a segment's end a torn write, and only the caller knows which.
        """
        have = len(buffer)
        if have < RECORD_BATCH_OVERHEAD:
            if have >= LOG_OVERHEAD:
                check_size(SIZE.read(buffer), RECORD_BATCH_MINIMUM)
            return None
        batch = cls(buffer)
        if batch.magic != 2:
            raise CorruptRecordError("magic", expected=2, found=batch.magic, position=0)
        check_size(batch.batch_length, RECORD_BATCH_MINIMUM)
        end = LOG_OVERHEAD + batch.batch_length
        if have < end:
            return None
        if have > end:
            batch.buffer = buffer[:end]
        return batch

    def verify(self) -> None:
        """Raise CorruptRecordError unless the CRC holds. Apart from `parse`: a shallow walk need not pay for it."""
        computed = crc32c(self.buffer[_CRC_COVERS:])
        if self.crc != computed:
            raise CorruptRecordError("crc", expected=f"{self.crc:#010x}", found=f"{computed:#010x}", position=0).locate(
                offsets=(self.base_offset, self.last_offset)
            )

    @property
    def codec(self) -> Codec:
        """The compression of the records section. Raises CorruptRecordError for an undefined codec number."""
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        """The timestamp type. With LogAppendTime, `max_timestamp` is the timestamp of every record."""
        return timestamp_type_of(self.attributes)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may remove the batch's tombstones or marker; None until a compaction has set
        it.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def next_offset(self) -> int:
        """The offset after `last_offset`, where the next entry begins unless compaction left a gap."""
        return self.last_offset + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record written, -1 if there is none. It wraps from 2147483647 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def records_section(self) -> memoryview:
        """The records as stored, compressed as one block by `codec`."""
        return self.buffer[RECORD_BATCH_OVERHEAD:]

    def set_base_offset(self, base_offset: int) -> None:
        """Write the base offset in place; no checksum covers it. The buffer must be writable."""
        OFFSET.write(self.buffer, base_offset)
        self.base_offset, self.last_offset = base_offset, base_offset + self.last_offset_delta

    def set_partition_leader_epoch(self, epoch: int) -> None:
        """Write the leader epoch in place; no checksum covers it. The buffer must be writable."""
        PARTITION_LEADER_EPOCH.write(self.buffer, epoch)
        self.partition_leader_epoch = epoch

    def place(self, base_offset: int, epoch: int) -> None:
        """Do what `set_base_offset` and `set_partition_leader_epoch` do, in one write."""
        _PLACE.pack_into(self.buffer, 0, base_offset, self.batch_length, epoch)
        self.base_offset, self.last_offset = base_offset, base_offset + self.last_offset_delta
        self.partition_leader_epoch = epoch

    def set_max_timestamp(self, timestamp_type: TimestampType, max_timestamp: int) -> None:
        """Write the timestamp type and max timestamp (ms) in place and update the CRC, unless both are set already.

        The bits for codec, transaction, control and delete horizon are kept. Undefined bits are cleared, as Kafka does.
        """
        if self.timestamp_type is timestamp_type and self.max_timestamp == max_timestamp:
            return
        self.attributes = self.attributes & _KEPT_BITS | timestamp_type_bit(timestamp_type)
        self.max_timestamp = max_timestamp
        ATTRIBUTES.write(self.buffer, self.attributes)
        MAX_TIMESTAMP.write(self.buffer, max_timestamp)
        self.crc = crc32c(self.buffer[ATTRIBUTES.start :])
        BATCH_CRC.write(self.buffer, self.crc)

    def stamped(
        self, base_offset: int, leader_epoch: int, timestamp_type: TimestampType, max_timestamp: int
    ) -> bytearray:
        """Set these fields in the view only, and return a new 61-byte header that contains them, with its CRC.

        Has the effect of `set_base_offset`, `set_partition_leader_epoch` and `set_max_timestamp` without writing to the
        buffer. Afterwards the view describes the batch made of the returned bytes and `records_section`.
        """
        type_bit = LOG_APPEND_TIME_BIT if timestamp_type is _APPEND_TIME else 0
        changes = self.attributes & LOG_APPEND_TIME_BIT != type_bit or self.max_timestamp != max_timestamp
        if changes:
            self.attributes = self.attributes & _KEPT_BITS | type_bit
            self.max_timestamp = max_timestamp
        self.base_offset, self.last_offset = base_offset, base_offset + self.last_offset_delta
        self.partition_leader_epoch = leader_epoch
        head = bytearray(RECORD_BATCH_OVERHEAD)
        HEADER.pack_into(
            head,
            0,
            base_offset,
            self.batch_length,
            leader_epoch,
            2,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        if changes:
            self.crc = crc32c(self.records_section, crc32c(head[ATTRIBUTES.start :]))
            BATCH_CRC.type.pack_into(head, BATCH_CRC.start, self.crc)
        return head


def batch_attributes(
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    *,
    is_transactional: bool = False,
    is_control: bool = False,
    has_delete_horizon: bool = False,
) -> int:
    """Return the attributes field of a batch."""
    return (
        codec
        | timestamp_type_bit(timestamp_type)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
        | (DELETE_HORIZON_BIT if has_delete_horizon else 0)
    )


def write_batch_header(
    batch: bytearray | memoryview,
    *,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    attributes: int = 0,
    partition_leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
) -> None:
    """Fill the first 61 bytes of `batch`, which already has its records section after them.

    `batch` must be writable and contiguous, and end with the last record: its length and CRC are computed from it.
    """
    view = memoryview(batch)
    HEADER.pack_into(
        view,
        0,
        base_offset,
        len(view) - LOG_OVERHEAD,
        partition_leader_epoch,
        2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    BATCH_CRC.write(view, crc32c(view[ATTRIBUTES.start :]))


def single_record(
    key: Buffer | None,
    value: Buffer | None,
    headers: Iterable[tuple[str, Buffer | None]] = (),
    *,
    offset_delta: int = 0,
) -> bytes:
    """Return an uncompressed record with its length. Its timestamp delta is 0. Alone it is a records section."""
    cells: list[Buffer] = [_size_of(key), key or b"", _size_of(value), value or b""]
    if headers:
        named = list(headers)
        cells.append(_varint(len(named)))
        for name, content in named:
            cells += _size_of(name.encode()), name.encode(), _size_of(content), content or b""
    else:
        cells.append(_ONE_BYTE[0])
    body = b"".join((b"\x00\x00", _varint(offset_delta), *cells))
    return _varint(len(body)) + body


def _size_of(content: Buffer | None) -> bytes:
    """Return the length of a key, value or header, as a record has it."""
    if content is None:
        return _ONE_BYTE[1]
    size = len(content)
    return _ONE_BYTE[size << 1] if size < 64 else _varint(size)


def _varint(value: int) -> bytes:
    """Return a zigzag varint."""
    left = (value << 1) ^ (value >> 63)
    if left < 0x80:
        return _ONE_BYTE[left]
    encoded = bytearray()
    while left >= 0x80:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def build_batch(
    records_section: Buffer,
    *,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    attributes: int = 0,
    partition_leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Return a batch around `records_section`, already encoded, and compressed with the codec in `attributes`."""
    batch = bytearray(RECORD_BATCH_OVERHEAD) + records_section
    write_batch_header(
        batch,
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=record_count,
        attributes=attributes,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return bytes(batch)
