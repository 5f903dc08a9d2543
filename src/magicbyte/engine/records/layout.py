"""Byte positions of every field of every message format, the only place that defines them.

All positions count from the first byte of the entry, its offset field. Sources: docs/formats/, Kafka's LegacyRecord and
DefaultRecordBatch, the Enriched Message Metadata proposal.
"""

import enum
import struct
from typing import NamedTuple

INT8, INT16, INT32, INT64, UINT32 = (struct.Struct(">" + code) for code in "bhiqI")


class Dialect(enum.Enum):
    """Which of the two formats with magic byte 1 a log is in. It must be given: the bytes do not tell it."""

    KAFKA = "kafka"
    ENRICHED = "enriched"


class TimestampType(enum.IntEnum):
    """Bit 3 of the attributes; a magic-0 message has none. The numbers are Kafka's."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """The name as Kafka's tools print it."""
        return ("CreateTime", "LogAppendTime", "NoTimestampType")[self]


class Field(NamedTuple):
    """A big-endian integer `start` bytes into the entry."""

    start: int
    type: struct.Struct

    def read(self, buffer: memoryview) -> int:
        """Return the field's value in the entry at the start of `buffer`."""
        return int(self.type.unpack_from(buffer, self.start)[0])

    def write(self, buffer: memoryview, value: int) -> None:
        """Set the field in the entry at the start of the writable `buffer`."""
        self.type.pack_into(buffer, self.start, value)


# ---- every format
# v0, v1: of the message, or of a wrapper's last message; v2: base offset; enriched: of the first message
OFFSET = Field(0, INT64)
SIZE = Field(8, INT32)  # bytes after this field: enough to walk a file
LOG_OVERHEAD = 12
MAGIC = Field(16, INT8)  # byte 16 in every format, so read it first
HEADER_TO_MAGIC = 17

# ---- attributes, every format but the enriched one
CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

# ---- magic 0 and 1: CRC-32 of all bytes after the CRC
MESSAGE_CRC = Field(12, UINT32)
MESSAGE_ATTRIBUTES = Field(17, INT8)
V0_KEY_LENGTH = Field(18, INT32)
V0_MINIMUM = 14  # the smallest size field, for every magic
V0_OVERHEAD = LOG_OVERHEAD + V0_MINIMUM
V1_TIMESTAMP = Field(18, INT64)
V1_KEY_LENGTH = Field(26, INT32)
V1_MINIMUM = 22
V1_OVERHEAD = LOG_OVERHEAD + V1_MINIMUM

# ---- enriched: magic 1 as well
ENRICHED_TYPE_MASK = 0x0F
ENRICHED_CONTROL_BIT = 0x08
ENRICHED_SECONDS = Field(18, INT32)
ENRICHED_TAGS_LENGTH = Field(22, INT32)
ENRICHED_TAGS_START = 26
ENRICHED_MINIMUM = 22
ENRICHED_OVERHEAD = LOG_OVERHEAD + ENRICHED_MINIMUM

# ---- magic 2
PARTITION_LEADER_EPOCH = Field(12, INT32)  # outside the CRC: the leader sets it without hashing
BATCH_CRC = Field(17, UINT32)  # CRC-32C of all bytes after it
ATTRIBUTES = Field(21, INT16)
LAST_OFFSET_DELTA = Field(23, INT32)
BASE_TIMESTAMP = Field(27, INT64)  # the delete horizon when bit 6 is set
MAX_TIMESTAMP = Field(35, INT64)
PRODUCER_ID = Field(43, INT64)
PRODUCER_EPOCH = Field(51, INT16)
BASE_SEQUENCE = Field(53, INT32)
RECORD_COUNT = Field(57, INT32)
RECORD_BATCH_OVERHEAD = 61
RECORD_BATCH_MINIMUM = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD
RECORD_MINIMUM = 7  # length, attributes, two deltas, key length, value length, header count: a byte each

# ---- the same positions as integers, because kernels take no objects
SIZE_AT, MAGIC_AT = SIZE.start, MAGIC.start
MESSAGE_CRC_AT, MESSAGE_ATTRIBUTES_AT = MESSAGE_CRC.start, MESSAGE_ATTRIBUTES.start
V0_KEY_LENGTH_AT, V1_TIMESTAMP_AT, V1_KEY_LENGTH_AT = V0_KEY_LENGTH.start, V1_TIMESTAMP.start, V1_KEY_LENGTH.start
ENRICHED_SECONDS_AT, ENRICHED_TAGS_LENGTH_AT = ENRICHED_SECONDS.start, ENRICHED_TAGS_LENGTH.start
PARTITION_LEADER_EPOCH_AT, BATCH_CRC_AT, ATTRIBUTES_AT = PARTITION_LEADER_EPOCH.start, BATCH_CRC.start, ATTRIBUTES.start
LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT = LAST_OFFSET_DELTA.start, BASE_TIMESTAMP.start
MAX_TIMESTAMP_AT, PRODUCER_ID_AT, PRODUCER_EPOCH_AT = MAX_TIMESTAMP.start, PRODUCER_ID.start, PRODUCER_EPOCH.start
BASE_SEQUENCE_AT, RECORD_COUNT_AT = BASE_SEQUENCE.start, RECORD_COUNT.start
