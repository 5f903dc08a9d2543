"""Kafka's error codes and the exception tree. Imports nothing; every room raises from this tree and only from it."""

import enum
from typing import Any, NamedTuple


class ErrorCode(enum.IntEnum):
    """Kafka's own names and numbers; they never change. Source: org.apache.kafka.common.protocol.Errors."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


_CODES: dict[int | None, ErrorCode] = {int(each): each for each in ErrorCode}


def code_of(number: int | None) -> ErrorCode:
    """Return the code of a number that another broker sent, UNKNOWN_SERVER_ERROR for one that is not known."""
    return _CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


class MagicbyteError(Exception):
    """Base of all exceptions of magicbyte. `code` is the error code that a response carries for it."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def lines(self) -> list[str]:
        """Return the message as text: one line, unless there are several errors."""
        return [str(self)]


class CorruptRecordError(MagicbyteError):
    """Bytes fail their checksum or contradict their own lengths.

    `what` names the wrong part, with its `expected` and `found` values. Callers that know them add `path`
    (of the file), `position` (in bytes) and `offsets` (the first and last offset that the damaged bytes claim to hold).
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

    def to_json(self) -> dict[str, object]:
        """Return place and kind of the damage, as in reports."""
        return {
            "path": self.path,
            "position": self.position,
            "offsets": None if self.offsets is None else list(self.offsets),
            "what": self.what,
            "expected": str(self.expected),
            "found": str(self.found),
        }

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling, because workers send errors to each other. `expected` and `found` become strings."""
        values = str(self.expected), str(self.found), self.position, self.path, self.offsets
        return _corrupt_record_error, (type(self), self.what, *values)

    def __str__(self) -> str:
        place = [] if self.path is None else [self.path]
        if self.position is not None:
            place.append(f"position {self.position}")
        if self.offsets is not None:
            place.append(f"offsets {self.offsets[0]}..{self.offsets[1]}")
        where = f"{', '.join(place)}: " if place else ""
        return f"{where}{self.what}: expected {self.expected}, found {self.found}"


def _corrupt_record_error(
    kind: type[CorruptRecordError],
    what: str,
    expected: str,
    found: str,
    position: int | None,
    path: str | None,
    offsets: tuple[int, int] | None,
) -> CorruptRecordError:
    return kind(what, expected=expected, found=found, position=position).locate(path=path, offsets=offsets)


class BatchTooLargeError(CorruptRecordError):
    """A batch is, or decompresses to, more bytes than the caller allows: a decompression bomb, or a low limit."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class TruncatedLogError(CorruptRecordError):
    """A log ends inside an entry, or in zeros: a torn write, a crash or a file that is still being written."""


class UnsupportedCompressionError(MagicbyteError):
    """The codec may not be used in this message format (zstd below magic 2)."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class UnsupportedForMessageFormatError(MagicbyteError):
    """The target format cannot hold the data of the source, and the caller did not allow the loss."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class RecordError(NamedTuple):
    """What is wrong with one record of a produced set; `batch_index` counts from 0 within the set."""

    batch_index: int
    message: str


class AppendRefusedError(MagicbyteError):
    """A log refuses a produced set as a whole; nothing of it is stored.

    `code` is Kafka's for the version of the request. `record_errors` names the faulty records, if the version of the
    response has a field for them.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(code, message, record_errors)
        self.code = code
        self.message = message
        self.record_errors = record_errors

    def __str__(self) -> str:
        return self.message


class RequestRefusedError(AppendRefusedError):
    """A request of this version may not carry the produced set. No log was asked."""


class InvalidConfigError(MagicbyteError):
    """A setting has an invalid value."""

    code = ErrorCode.INVALID_CONFIG


class TopicExistsError(MagicbyteError):
    """A topic of this name exists already."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidTopicError(MagicbyteError):
    """No topic can have the name, or it is reserved by Kafka."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class InvalidPartitionsError(MagicbyteError):
    """A topic cannot have this number of partitions."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(MagicbyteError):
    """There are not enough brokers for the replicas."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(MagicbyteError):
    """A replica assignment is impossible."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidRequestError(MagicbyteError):
    """Fields of a request contradict each other."""

    code = ErrorCode.INVALID_REQUEST


class InvalidRegularExpressionError(MagicbyteError):
    """A pattern of topic names is wrong, too long, or uses what is not supported."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class PolicyViolationError(MagicbyteError):
    """The settings of the topic do not allow the request."""

    code = ErrorCode.POLICY_VIOLATION


class UnknownTopicIdError(MagicbyteError):
    """No topic has this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class MetadataError(MagicbyteError):
    """The metadata tree refused an operation on the node `path`. Nothing was changed."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class NoNodeError(MetadataError):
    """The node or its parent does not exist."""


class NodeExistsError(MetadataError):
    """The node exists already."""


class BadVersionError(MetadataError):
    """The node does not have the expected version: another session has changed it."""


class StaleProposalError(MetadataError):
    """A proposed change was decided by metadata that another broker has changed since.

    `image`: the `ClusterImage` to decide again by. It may have what a controller has not announced yet.
    """

    image: Any = None


class NotEmptyError(MetadataError):
    """The node has children, and so cannot be deleted."""


class NoChildrenForEphemeralsError(MetadataError):
    """The node is ephemeral and cannot have children."""


class SessionExpiredError(MetadataError):
    """The session has expired; its ephemeral nodes are gone."""


class NoProducerIdError(MagicbyteError):
    """The broker has no producer id left; it is about to reserve others. Kafka has the same code for it."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class NotControllerError(MagicbyteError):
    """The broker is not, or is no longer, the controller of the cluster."""

    code = ErrorCode.NOT_CONTROLLER


class StaleControllerEpochError(MagicbyteError):
    """A later controller has been elected."""

    code = ErrorCode.STALE_CONTROLLER_EPOCH


class StaleBrokerEpochError(MagicbyteError):
    """The request is from before the broker's restart."""

    code = ErrorCode.STALE_BROKER_EPOCH


class UnknownBrokerError(MagicbyteError):
    """No such broker is registered."""

    code = ErrorCode.BROKER_NOT_AVAILABLE


class LogDirectoryError(MagicbyteError):
    """A path is not a Kafka log, partition folder or log directory. The message says what was expected."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirectoryOfflineError(LogDirectoryError):
    """A log directory failed to write or sync. Its content is unreliable, and it takes no more data."""


class OutOfDescriptorsError(LogDirectoryError):
    """The process has no file descriptor left. The fault is transient: nothing was changed, and a retry may succeed."""


class OffsetOutOfRangeError(MagicbyteError):
    """The offset is below the log start offset, or above the log end offset or the high watermark."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class NotLeaderError(MagicbyteError):
    """This broker does not lead the partition, or has no replica of it. Clients refresh their metadata."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class CoordinatorNotAvailableError(MagicbyteError):
    """There is no coordinator yet. A retry may succeed."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotReplicatedError(MagicbyteError):
    """Records are in the leader's log, but perhaps not in all in-sync replicas. `code` is the reason."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnknownTopicError(MagicbyteError):
    """A topic or partition that the given logs do not hold."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ProtocolError(MagicbyteError):
    """Bytes are no message of the expected version, or a value does not fit its field.

    `field` is the wrong field, with its `expected` and `found` values. In bytes, `position` is its place in the message
    or in the tagged field. `message` and `version` name the message.
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


class BusyError(MagicbyteError):
    """A request waited too long for a bounded resource. A later retry may succeed."""

    code = ErrorCode.REQUEST_TIMED_OUT


class TooManyElementsError(ProtocolError):
    """The arrays of a message have more elements than its reader allows."""


class UnsupportedVersionError(MagicbyteError):
    """The message has no such version, or a field is set that this version does not have."""

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


class ProtocolTooOldError(MagicbyteError):
    """A change that the brokers of the cluster's `inter.broker.protocol.version` cannot read in the metadata tree."""

    code = ErrorCode.UNSUPPORTED_VERSION

    def __init__(self, what: str, first: tuple[int, ...], protocol: tuple[int, ...]) -> None:
        needed, found = (".".join(map(str, each)) for each in (first, protocol))
        super().__init__(
            f"{what}: brokers before {needed} cannot read this in the metadata tree, and may not start again; "
            f"inter.broker.protocol.version is {found}: raise it on all brokers first"
        )


class MissingExtraError(MagicbyteError):
    """A package of an extra of the distribution is missing. `what` needs it."""

    def __init__(self, extra: str, package: str, what: str) -> None:
        super().__init__(f"{what} needs {package}: pip install 'magicbyte[{extra}]'")
        self.extra = extra


class MirrorError(MagicbyteError):
    """A mirror cannot continue without losing or repeating records. The message says where, and why."""


class NetworkError(MagicbyteError):
    """A peer cannot be reached, closed the connection, or did not respond in time. The message names it."""

    code = ErrorCode.NETWORK_EXCEPTION


class SecurityError(MagicbyteError):
    """Authentication failed at either end. A retry fails in the same way."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnknownOutcomeError(NetworkError):
    """The connection was lost before the response to a change. The change may have been made."""


class BrokerError(MagicbyteError):
    """A broker answered with an error code. `what` is the request, `broker` the broker's name, `detail` its message.

    `number` is the code that it sent. `code` is UNKNOWN_SERVER_ERROR if that number is unknown.
    """

    def __init__(self, what: str, number: int, *, broker: str, detail: str | None = None) -> None:
        super().__init__(what, number)
        self.what = what
        self.number = number
        self.broker = broker
        self.detail = detail
        self.code = code_of(number)

    def __str__(self) -> str:
        said = "" if self.detail is None else f": {self.detail}"
        return f"{self.broker}: {self.what}: {self.code.name} ({self.number}){said}"
