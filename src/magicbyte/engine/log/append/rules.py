"""Rules of an append: the topic's settings, and the limits of each version of the Produce request.

docs/internals/append.md has the rules as a table. Sources: Kafka's topic settings and its LogValidator; KIP-31, KIP-32,
KIP-57.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from msgspec import Struct

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import (
    AppendRefusedError,
    BatchTooLargeError,
    ErrorCode,
    InvalidConfigError,
    RecordError,
    RequestRefusedError,
)
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.encode import KAFKA_FORMATS, Format
from magicbyte.engine.records.layout import TimestampType
from magicbyte.engine.releases import newest_magic

UNLIMITED_MS = (1 << 63) - 1
CODECS: Final[Mapping[str, Codec | None]] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
TIMESTAMP_TYPES: Final = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
KEPT_SCRATCH: Final = 4 << 20
"""Bytes of scratch memory kept for decompression: sets that fit need no allocation."""
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)(\.[0-9]+)*(-IV[0-9]+|-[0-9]+)?")


class RoomNeeded(Exception):  # noqa: N818  (a signal to come back with more room, no fault of the set)
    """A set needs more memory than is kept for decompression."""


class Room(NamedTuple):
    """The memory for the content of one wrapper: `limit` bytes. `is_all`: the caller cannot get more."""

    limit: int = DEFAULT_MAX_BATCH_BYTES
    is_all: bool = True

    def exceeded(self, error: BatchTooLargeError) -> BatchTooLargeError | RoomNeeded:
        """Return what to raise for content that does not fit."""
        return error if self.is_all else RoomNeeded()


ALL_ROOM: Final = Room()
KEPT_ROOM: Final = Room(KEPT_SCRATCH, is_all=False)


class AppendRules(Struct, frozen=True, kw_only=True):
    """The settings of a topic that apply to appends. Sizes in bytes, times in ms.

    `codec`: that of stored sets, None for that of the producer. A timestamp may be `before_max_ms` older and
    `after_max_ms` newer than the broker's clock. `max_message_bytes` is for each entry, as sent and as stored;
    `segment_bytes` for the whole set. `compacted`: records need a key. `verify`: look inside the wrappers of an
    enriched log; without it their tags are trusted. `max_decompressed_bytes`: what a set may decompress to.
    """

    format: Format = Format.V2
    codec: Codec | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    before_max_ms: int = UNLIMITED_MS
    after_max_ms: int = UNLIMITED_MS
    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    compacted: bool = False
    verify: bool = True
    max_decompressed_bytes: int = DEFAULT_MAX_BATCH_BYTES

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the rules of a topic's typed values, by the names of its settings: see `broker.topic_config`."""
        return cls(
            format=values["message.format.version"],
            codec=CODECS[values["compression.type"]],
            timestamp_type=TIMESTAMP_TYPES[values["message.timestamp.type"]],
            before_max_ms=values["message.timestamp.before.max.ms"],
            after_max_ms=values["message.timestamp.after.max.ms"],
            max_message_bytes=values["max.message.bytes"],
            segment_bytes=values["segment.bytes"],
            compacted="compact" in values["cleanup.policy"],
            verify=values["enriched.append.mode"] == "verify",
            max_decompressed_bytes=values["max.decompressed.message.bytes"],
        )


def stored_format(version: str) -> Format:
    """Return the format of a value of `message.format.version`: 0, 1, 2, or Kafka's name of a version.

    Raises InvalidConfigError.
    """
    if version in ("0", "1", "2"):
        return Format(version)
    parts = _VERSION.fullmatch(version.removesuffix(".X"))  # Kafka 1.x returns a configured 0.9.0 as "0.9.0.X"
    if parts is None:
        raise InvalidConfigError(
            f"message.format.version: expected 0, 1, 2 or a version such as 0.10.2, found {version}"
        )
    line = int(parts[1]), int(parts[2])
    return KAFKA_FORMATS[newest_magic(line)]


class Request:
    """What a client may send, and which errors it knows, by the version of its Produce request. None: the broker
    itself.

    `is_client`: a client sent the set, so it may not have control records. `wants_one_batch`: a set must be exactly one
    whole batch of magic 2, from version 3 on. `may_use_zstd`: the client knows zstd, from version 7 on.
    """

    __slots__ = ("is_client", "may_use_zstd", "version", "wants_one_batch")

    def __init__(self, version: int | None) -> None:
        self.version = version
        self.is_client = version is not None
        self.wants_one_batch = version is not None and version >= 3
        self.may_use_zstd = version is None or version >= 7

    def _knows_only_corrupt(self) -> bool:
        return self.version is not None and self.version < 3

    def damaged(self, why: object) -> AppendRefusedError:
        """Return the refusal of damaged bytes."""
        return AppendRefusedError(ErrorCode.CORRUPT_MESSAGE, str(why))

    def illegal(self, why: object, records: tuple[RecordError, ...] = ()) -> AppendRefusedError:
        """Return the refusal of sound bytes with illegal content. Old clients have no code for that."""
        code = ErrorCode.CORRUPT_MESSAGE if self._knows_only_corrupt() else ErrorCode.INVALID_RECORD
        return AppendRefusedError(code, str(why), self._supported_details(records))

    def bad_time(self, why: object, records: tuple[RecordError, ...] = ()) -> AppendRefusedError:
        """Return the refusal of a timestamp."""
        return AppendRefusedError(ErrorCode.INVALID_TIMESTAMP, str(why), self._supported_details(records))

    def not_authorized(self, why: object) -> AppendRefusedError:
        """Return the refusal of a transactional batch without a producer id."""
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return RequestRefusedError(ErrorCode.CORRUPT_MESSAGE if self._knows_only_corrupt() else code, str(why))

    def _supported_details(self, records: tuple[RecordError, ...]) -> tuple[RecordError, ...]:
        return records if self.version is None or self.version >= 8 else ()
