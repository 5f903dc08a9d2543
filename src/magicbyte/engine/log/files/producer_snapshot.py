"""`.snapshot` files: the state of each producer at an offset. Source: Kafka's ProducerStateManager.

Bytes: int16 version, uint32 CRC-32C of all that follows, int32 count, then 46 bytes per producer.
"""

import struct
from typing import NamedTuple, Self

from msgspec import Struct

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.wire.checksum import crc32c

VERSION = 1
HEADER = struct.Struct(">hIi")
CHECKED_FROM = 6  # the count is the first field under the CRC
ENTRY = struct.Struct(">qhiqiqiq")


class ProducerEntry(NamedTuple):
    """The last batch of one producer. `last_offset` -1: it has none, only an epoch."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int  # last minus first offset of that batch
    timestamp: int  # ms
    coordinator_epoch: int
    current_txn_first_offset: int  # -1: no transaction is open

    @property
    def first_sequence(self) -> int:
        """The batch's base sequence: sequences wrap at 2^31."""
        return (self.last_sequence - self.offset_delta) & 0x7FFFFFFF if self.last_sequence >= 0 else -1


class ProducerSnapshot(Struct, frozen=True):
    """A whole snapshot. The order of `producers` means nothing."""

    producers: tuple[ProducerEntry, ...]

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the producers of a whole file, its checksum verified. Raises CorruptRecordError."""
        if len(data) < HEADER.size:
            raise CorruptRecordError("snapshot size", expected=f">= {HEADER.size}", found=len(data), position=0)
        version, stored, count = HEADER.unpack_from(data)
        if version != VERSION:
            raise CorruptRecordError("snapshot version", expected=VERSION, found=version, position=0)
        computed = crc32c(memoryview(data)[CHECKED_FROM:])
        if stored != computed:
            raise CorruptRecordError("snapshot crc", expected=f"{stored:#010x}", found=f"{computed:#010x}", position=2)
        size = HEADER.size + ENTRY.size * count
        if count < 0 or len(data) != size:
            raise CorruptRecordError("snapshot size", expected=f"{size} for {count} producers", found=len(data))
        return cls(tuple(map(ProducerEntry._make, ENTRY.iter_unpack(memoryview(data)[HEADER.size :]))))

    def to_bytes(self) -> bytes:
        """Return the whole file, with the producers in their given order."""
        body = struct.pack(">i", len(self.producers)) + b"".join(ENTRY.pack(*entry) for entry in self.producers)
        return HEADER.pack(VERSION, crc32c(body), len(self.producers)) + body[4:]
