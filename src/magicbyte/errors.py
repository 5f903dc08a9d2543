"""Kafka's error codes and the exception tree. Imports nothing; every room raises from this tree and only from it."""

import enum
from typing import NamedTuple


class ErrorCode(enum.IntEnum):
    """Kafka's own names and numbers; they never change. Source: org.apache.kafka.common.protocol.Errors."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    MESSAGE_TOO_LARGE = 10
    RECORD_LIST_TOO_LARGE = 18
    INVALID_REQUIRED_ACKS = 21
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87


class MagicbyteError(Exception):
    """Base of what we raise on purpose. `code` is what a response carries for it."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR


class CorruptRecordError(MagicbyteError):
    """Bytes fail their checksum or contradict their own lengths.

    `what` is wrong, what was `expected` and `found`; whoever knows them adds `path` (of the file), `position`
    (in bytes) and `offsets` (first and last offset that the damaged bytes claim to hold).
    """

    code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, what: str, *, expected: object, found: object, position: int | None = None) -> None:
        super().__init__(what, expected, found)
        self.what = what
        self.expected = expected
        self.found = found
        self.position = position
        self.path: str | None = None
        self.offsets: tuple[int, int] | None = None

    def locate(
        self, *, path: str | None = None, shift: int = 0, offsets: tuple[int, int] | None = None
    ) -> "CorruptRecordError":
        """Add what the caller knows: the file, where in it the parsed buffer began (`shift`, bytes), the offsets."""
        self.path = self.path or path
        if shift:
            self.position = (self.position or 0) + shift
        self.offsets = self.offsets or offsets
        return self

    def __str__(self) -> str:
        place = [] if self.path is None else [self.path]
        if self.position is not None:
            place.append(f"position {self.position}")
        if self.offsets is not None:
            place.append(f"offsets {self.offsets[0]}..{self.offsets[1]}")
        where = f"{', '.join(place)}: " if place else ""
        return f"{where}{self.what}: expected {self.expected}, found {self.found}"


class BatchTooLargeError(CorruptRecordError):
    """A batch is, or decompresses to, more bytes than the caller allows: a decompression bomb, or a low limit."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class TruncatedLogError(CorruptRecordError):
    """A log ends inside an entry, or in zeros: a torn write, a crash or a file that is still being written."""


class UnsupportedCompressionError(MagicbyteError):
    """The codec may not be used in this message format (zstd below magic 2)."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class UnsupportedForMessageFormatError(MagicbyteError):
    """The target format cannot hold what the source holds, and the caller did not allow it to be dropped."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class RecordError(NamedTuple):
    """What is wrong with one record of a produced set; `batch_index` counts from 0 within the set."""

    batch_index: int
    message: str


class AppendRefusedError(MagicbyteError):
    """A produced set that a log does not take, whole; nothing of it is stored.

    `code` is Kafka's for the version of the request. `record_errors` names the records that are to blame, where the
    version of the request can say so.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(code, message, record_errors)
        self.code = code
        self.message = message
        self.record_errors = record_errors

    def __str__(self) -> str:
        return self.message


class InvalidConfigError(MagicbyteError):
    """A setting with a value that it cannot have."""

    code = ErrorCode.INVALID_CONFIG


class LogDirectoryError(MagicbyteError):
    """A path is no Kafka log, partition folder or log directory; the message says what was expected there."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirectoryOfflineError(LogDirectoryError):
    """A log directory failed to write or to sync: what it holds is not to be relied on, and nothing goes in any more."""


class OffsetOutOfRangeError(MagicbyteError):
    """An offset that a log does not hold: below its start, or above its end or what is replicated."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class UnknownTopicError(MagicbyteError):
    """A topic or partition that the given logs do not hold."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ProtocolError(MagicbyteError):
    """Bytes that are no message of the version they are read as, or a value that its field cannot hold.

    `field` is wrong, what was `expected` and `found`, and, of bytes, at which `position` of the message, or of the
    tagged field, it is. `message` and `version` say of what.
    """

    code = ErrorCode.INVALID_REQUEST

    def __init__(self, field: str, *, expected: object, found: object, position: int | None = None) -> None:
        super().__init__(field, expected, found)
        self.field = field
        self.expected = expected
        self.found = found
        self.position = position
        self.message: str | None = None
        self.version: int | None = None

    def of(self, message: str, version: int) -> "ProtocolError":
        """Add what the caller knows: which message in which version."""
        self.message, self.version = message, version
        return self

    def __str__(self) -> str:
        where = "" if self.message is None else f"{self.message} version {self.version}, "
        at = "" if self.position is None else f" at byte {self.position}"
        return f"{where}{self.field}{at}: expected {self.expected}, found {self.found}"


class UnsupportedVersionError(MagicbyteError):
    """A version that a message does not have, or a field that is set and that the version to write does not have."""

    code = ErrorCode.UNSUPPORTED_VERSION

    def __init__(self, what: str, version: int | None, *, known: range | None = None) -> None:
        super().__init__(what, version)
        self.what = what
        self.version = version
        self.known = known
        self.message: str | None = None

    def of(self, message: str, version: int) -> "UnsupportedVersionError":
        """Add what the caller knows: which message in which version."""
        self.message, self.version = message, version
        return self

    def __str__(self) -> str:
        if self.known is None:
            return f"{self.message} version {self.version} has no {self.what}, which is set"
        known = f"{self.known[0]} to {self.known[-1]}" if self.known else "none"
        return f"{self.what} has no version {self.version}: known are {known}"
