"""Facts about each Kafka release: what it stores and how it indexes it, and which requests it answers.

This is the only module that compares releases. Sources: Kafka's code at each release, ApiVersions responses of brokers
of each release from 0.10.0.1 on, and requests sent to 0.8.2.2 and 0.9.0.1.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

LINES: Final = (
    *("0.8.0", "0.8.1", "0.8.2", "0.9.0", "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1"),
    *("2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8"),
    *("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9"),
    *("4.0", "4.1", "4.2", "4.3", "4.4"),
)
"""The known release lines, in order."""

FIRST_WITH_MAGIC: Final = ((0, 8), (0, 10), (0, 11))
"""By magic: the first release that writes it."""

_NO_PATCH = 999  # a line stands for its latest release


class MarkerRule(enum.Enum):
    """The effect of a transaction marker on its producer's last batch, besides ending the transaction."""

    IS_A_BATCH = "0.11"  # it counts as a batch with its own offset and timestamp; the last sequence is kept
    NOTHING = "1.0"
    TIMESTAMP = "2.4.1"


class Release(Struct, frozen=True):
    """One release, such as 3.9.1. A line, such as 3.9, stands for its latest release. `number` is for comparisons."""

    version: str
    line: tuple[int, ...]
    number: tuple[int, ...]

    @classmethod
    def of(cls, version: str) -> Release:
        """Parse a release such as "0.8.2.2" or "3.9". Raises ValueError for an unknown one."""
        line = next((each for each in LINES if re.fullmatch(rf"{re.escape(each)}(\.[0-9]{{1,3}})?", version)), None)
        if line is None:
            raise ValueError(f"Kafka {version}: expected a version of {LINES[0]} to {LINES[-1]}, such as 3.9.1")
        number = numbers(line)
        return cls(version, number, numbers(version) if version != line else (*number, _NO_PATCH))

    # ---- storage formats

    @property
    def newest_magic(self) -> int:
        """The newest format that it writes."""
        return newest_magic(self.number)

    @property
    def knows_zstd(self) -> bool:
        """Whether it reads and writes zstd (KIP-110)."""
        return self.number >= (2, 1)

    @property
    def has_producers(self) -> bool:
        """Whether there are `.txnindex` and `.snapshot` files and a `leader-epoch-checkpoint` (KIP-98, KIP-101)."""
        return self.number >= (0, 11)

    @property
    def marker_rule(self) -> MarkerRule | None:
        """The effect of markers; None if it has no producers, transactions and leader epochs."""
        if not self.has_producers:
            return None
        if self.number < (1, 0):
            return MarkerRule.IS_A_BATCH
        return MarkerRule.NOTHING if self.number < (2, 4, 1) else MarkerRule.TIMESTAMP

    @property
    def indexes_empty_aborts(self) -> bool:
        """Whether an ABORT marker of a producer without an open transaction is indexed, as an aborted transaction of
        its own
        offset only.
        """
        return self.number < (2, 8)

    @property
    def keeps_all_snapshots(self) -> bool:
        """Whether producer snapshots are kept as long as their segments; older releases keep those of the last two
        segments.
        """
        return self.number >= (2, 8)

    @property
    def makes_empty_epochs(self) -> bool:
        """Whether a new log has an empty `leader-epoch-checkpoint`; later releases write it with the first epoch."""
        return self.has_producers and self.number < (2, 0)

    @property
    def ends_epochs_with_older(self) -> bool:
        """Whether an older leader epoch at a later offset removes the epochs in between from the checkpoint."""
        return self.number >= (2, 1, 1)

    @property
    def has_topic_ids(self) -> bool:
        """Whether partitions have a `partition.metadata` with their topic's id (KIP-516)."""
        return self.number >= TOPIC_IDS

    @property
    def names_broker_epoch(self) -> bool:
        """Whether the mark of a clean shutdown holds a version and the broker's epoch (KIP-966)."""
        return self.number >= (3, 7)

    @property
    def holds_throttled(self) -> bool:
        """Whether responses to throttled clients are delayed; later releases send them and mute the connection
        (KIP-219).
        """
        return self.number < (2, 0)

    @property
    def reads_from_log_start(self) -> bool:
        """Whether fetches below the log start offset are refused (KIP-107), not only those below the first segment."""
        return self.number >= (0, 11)

    # ---- indexing and compaction

    @property
    def names_last_offset(self) -> bool:
        """Whether offset index entries have the last offset of an append, not its first."""
        return self.number >= (2, 0)

    @property
    def entry_per_batch(self) -> bool:
        """Whether each batch of an append may get an index entry, not only its beginning."""
        return self.number >= (3, 9, 1)

    @property
    def has_time_index(self) -> bool:
        """Whether segments have a `.timeindex` (KIP-33)."""
        return self.number >= (0, 10, 1)

    @property
    def names_record_of_time(self) -> bool:
        """Whether a leader indexes the record with the max timestamp of an uncompressed batch, not its last record."""
        return (0, 11) <= self.number < (3, 8)

    @property
    def has_delete_horizons(self) -> bool:
        """Whether compaction stores in a batch the time from which its tombstones may be removed (KIP-534)."""
        return self.number >= (3, 1)

    @property
    def keeps_last_batch(self) -> bool:
        """Whether compaction keeps an empty batch for the last offset that it reads."""
        return self.number >= (4, 0)

    # ---- transactions

    @property
    def transaction_version(self) -> int:
        """The level of the feature `transaction.version` that a new cluster has: 2 is KIP-890's protocol."""
        return 2 if self.number >= (4, 0) else 0

    @property
    def group_version(self) -> int:
        """The level of the feature `group.version` that a new cluster has: 1 is the consumer protocol (KIP-848)."""
        return 1 if self.number >= (4, 0) else 0

    @property
    def share_version(self) -> int:
        """The level of the feature `share.version` that a new cluster has: 1 is share groups (KIP-932).

        Since 4.4 it is 2 there, which adds dead-letter topics.
        """
        return 1 if self.number >= (4, 2) else 0

    @property
    def keeps_share_counts(self) -> bool:
        """Whether stored states of share groups have the number of records that are done."""
        return self.number >= (4, 2)

    @property
    def keeps_assignment_epochs(self) -> bool:
        """Whether records of consumer groups hold the epochs of partitions, and assignments are an interval apart."""
        return self.number >= (4, 3)

    @property
    def closes_empty_groups(self) -> bool:
        """Whether the assignment of a consumer group that becomes empty reaches its last epoch."""
        return self.number >= (4, 4)

    @property
    def group_settings(self) -> frozenset[str]:
        """The settings that groups may have of their own."""
        return frozenset(name for name, first in FIRST_WITH_GROUP_SETTING.items() if self.number >= first)

    @property
    def names_missing_groups(self) -> bool:
        """Whether OffsetCommit 9 by a member of an unknown group gets GROUP_ID_NOT_FOUND, not ILLEGAL_GENERATION."""
        return self.number >= (4, 0)

    @property
    def verifies_partitions(self) -> bool:
        """Whether a partition leader asks the coordinator about a transaction before it appends the first records of
        one.
        """
        return self.number >= (3, 6)

    # ---- KRaft

    @property
    def metadata_version(self) -> int | None:
        """The level of `metadata.version` that a new cluster has; None before 3.3, whose directories differ."""
        return max((level for line, level in _METADATA_VERSIONS.items() if self.line >= line), default=None)

    @property
    def has_directory_ids(self) -> bool:
        """Whether a formatted directory has an id (KIP-858)."""
        return self.number >= (3, 7)

    @property
    def begins_with_snapshot(self) -> bool:
        """Whether the first records of a cluster are in a snapshot of its metadata log, not in a file beside it."""
        return self.number >= (4, 4)

    @property
    def names_leader_changes(self) -> bool:
        """Whether its dump tool prints a change of a quorum's leader as JSON, not its type alone."""
        return self.number >= (4, 1)

    # ---- API versions

    def is_since(self, line: str) -> bool:
        """Return whether it belongs to this line, such as 2.8, or to a later one."""
        return self.line >= numbers(line)

    def lines_reached(self, lines: Sequence[str]) -> int:
        """Return the number of lines that it is since: the level of a feature that rose with each of them."""
        return sum(self.is_since(line) for line in lines)

    def answered(self) -> dict[int, range]:
        """Return the versions that it answers, by API key, of the APIs in the table."""
        found = dict[int, range]()
        for key, grew in _GREW.items():
            latest = [version for since, version in grew.items() if self.is_since(since)]
            if latest:
                found[key] = range(self.oldest_version(key), latest[-1] + 1)
        return found

    def oldest_version(self, key: int) -> int:
        """Return the oldest version of a request that it accepts: 0 before 4.0 (KIP-896)."""
        is_removed = self.line >= (4, 0) and not (key == _JOIN_GROUP and self.line >= (4, 1))
        return _LEAST.get(key, 0) if is_removed else 0

    def has_forgotten(self, setting: str) -> bool:
        """Return whether it ignores a broker or topic setting that earlier releases have."""
        return any(self.is_since(line) and setting in names for line, names in _FORGOTTEN.items())

    @property
    def least_segment_bytes(self) -> int:
        """The minimum of the segment size settings (KIP-1030)."""
        return 1 << 20 if self.line >= (4, 0) else 14

    @property
    def converts_down(self) -> bool:
        """Whether it writes formats older than 2, and down-converts for consumers (KIP-724)."""
        return self.line < (4, 0)

    @property
    def tells_range(self) -> bool:
        """Whether the response to an unsupported ApiVersions version lists the supported ones (KIP-511)."""
        return self.number >= (2, 4)

    @property
    def reads_any_version(self) -> bool:
        """Whether requests in unsupported newer versions are parsed and answered in the latest known version."""
        return self.number < (0, 10)

    @property
    def takes_prefixed_nonce(self) -> bool:
        """Whether a SCRAM client's final nonce may only end with the server's (CVE-2024-56128)."""
        return self.number < (4, 0)

    @property
    def ignores_unknown(self) -> bool:
        """Whether requests of unknown APIs get no response, and their connections stay open."""
        return (0, 9) <= self.number < (0, 10)


def numbers(version: str) -> tuple[int, ...]:
    """Return 3.9.1 as (3, 9, 1)."""
    return tuple(map(int, version.split(".")))


def newest_magic(line: tuple[int, ...]) -> int:
    """Return the newest format that a release or protocol version writes."""
    return 0 if line < FIRST_WITH_MAGIC[1] else 1 if line < FIRST_WITH_MAGIC[2] else 2


# ---- the effects of `inter.broker.protocol.version`

PROTOCOL_OF_MAGIC: Final = ((0, 8, 2), (0, 10, 0), (0, 11, 0))
"""By magic: the first protocol version that writes it."""
MAGIC_NAMES: Final = ("0.9.0", "0.10.0", "0.11.0")
"""By magic: its name as `log.message.format.version`."""
MAGIC_AS_RELEASE: Final = {str(magic): name for magic, name in enumerate(MAGIC_NAMES)}
"""Kafka's names of the formats that our settings also accept by magic: the oldest, which later brokers read, too."""
_METADATA_VERSIONS: Final[Mapping[tuple[int, ...], int]] = {
    (3, 3): 7, (3, 4): 8, (3, 5): 11, (3, 6): 14, (3, 7): 19, (3, 8): 20, (3, 9): 21,
    (4, 0): 25, (4, 1): 27, (4, 2): 29, (4, 3): 30, (4, 4): 33,
}  # fmt: skip
"""By line: the level of `metadata.version` of a new cluster."""
FIRST_WITH_FEATURES: Final = (2, 7)
"""The first protocol version whose brokers register the supported levels of features (KIP-584)."""
_REGISTRATIONS: Final[Mapping[int, tuple[int, ...]]] = {5: FIRST_WITH_FEATURES, 4: (0, 10, 2), 3: (0, 10, 0), 2: (0, 9)}
"""By version of a broker's registration: the first protocol version whose controllers can read it."""
TOPIC_IDS: Final = (2, 8)
"""The first protocol version whose brokers give topics ids, and write these into partition folders."""
LAST_WITH_NAMES: Final = (3, 0)
"""The last protocol version whose followers name topics in Fetch. Those of later ones name ids, in version 13 on."""

FIRST_WITH_ENTITY_PATHS: Final = (0, 10, 1)
"""The first release that reads notifications of changed settings of version 2. Older ones do not start with one."""
FIRST_WITH_GROUP_SETTING: Final[Mapping[str, tuple[int, ...]]] = {
    "consumer.session.timeout.ms": (4, 0), "consumer.heartbeat.interval.ms": (4, 0),
    "consumer.assignment.interval.ms": (4, 3), "consumer.assignor.offload.enable": (4, 4),
    "share.session.timeout.ms": (4, 0), "share.heartbeat.interval.ms": (4, 0), "share.record.lock.duration.ms": (4, 0),
    "share.auto.offset.reset": (4, 0), "share.isolation.level": (4, 1), "share.assignment.interval.ms": (4, 3),
    "share.delivery.count.limit": (4, 3), "share.partition.max.record.locks": (4, 3),
    "share.renew.acknowledge.enable": (4, 3), "share.assignor.offload.enable": (4, 4),
    "errors.deadletterqueue.topic.name": (4, 4), "errors.deadletterqueue.copy.record.enable": (4, 4),
    "streams.session.timeout.ms": (4, 1), "streams.heartbeat.interval.ms": (4, 1),
    "streams.num.standby.replicas": (4, 1), "streams.initial.rebalance.delay.ms": (4, 3),
    "streams.assignment.interval.ms": (4, 3), "streams.assignor.offload.enable": (4, 4),
    "streams.assignor.name": (4, 4), "streams.rack.aware.assignment.tags": (4, 4),
}  # fmt: skip
"""By setting of groups: the first release that has it."""
FIRST_WITH_SETTINGS: Final[Mapping[str, tuple[int, ...]]] = {
    "topics": (0, 9), "clients": (0, 9), "clients/<default>": (0, 10, 1), "users": (0, 10, 1), "brokers": (0, 10, 1),
    "brokers/<default>": (1, 1), "ips": (2, 8),
}  # fmt: skip
"""By entity: the first release that reads its settings. Older ones fail at the notification."""
FIRST_WITH_MOVES: Final = (2, 4)
"""The first release whose controllers read reassignments in progress from the nodes of topics (KIP-455).

Older ones know those in the node of Kafka's old tools alone.
"""
FIRST_WITH_SEVERAL_POLICIES: Final = (0, 10, 1)
"""The first release that reads `cleanup.policy=compact,delete` (KIP-71)."""
FIRST_WITH_ZSTD: Final = (2, 1)
FIRST_WITH_PREFIXED_ACLS: Final = (2, 0)
FIRST_WITH_RESOURCE_TYPES: Final[Mapping[str, tuple[int, ...]]] = {
    "TRANSACTIONAL_ID": (0, 11), "DELEGATION_TOKEN": (1, 1), "USER": (3, 3),
}  # fmt: skip
"""By type of resource: the first release that knows it in ACLs. Older ones do not start with a node of the type."""
FIRST_WITH_OPERATIONS: Final[Mapping[str, tuple[int, ...]]] = {
    "DESCRIBE_CONFIGS": (0, 11), "ALTER_CONFIGS": (0, 11), "IDEMPOTENT_WRITE": (0, 11), "CREATE_TOKENS": (3, 3),
    "DESCRIBE_TOKENS": (3, 3),
}  # fmt: skip
"""By operation: the first release that knows it in ACLs. Older ones do not start with such an ACL."""

GROUP_VALUES: Final[Mapping[int, tuple[int, ...]]] = {3: (2, 3), 2: (2, 1), 1: (0, 10, 1)}
"""By version of a group's value in `__consumer_offsets`: the first protocol version that writes it."""
OFFSET_VALUES: Final[Mapping[int, tuple[int, ...]]] = {3: (2, 1)}
"""By version of an offset's value: the first protocol version that writes it.

Version 2 is written only by brokers during their upgrade to 2.1.
"""
EMPTY_GROUPS: Final = (0, 10, 1)
"""The first protocol version whose brokers keep a value for a group without members; older ones write a tombstone."""
OFFSETS_EXPIRE_WITH_GROUP: Final = (2,)
"""The first protocol version with which offsets expire with their group (KIP-211), not each at its own time."""


_ALL_OF_LINE: Final = 1 << 16
"""Stands for the number after "-IV": a name without it means the last protocol version of its release."""

_INTER_BROKER: Final[Mapping[int, Sequence[tuple[tuple[int, ...], int]]]] = {
    1: (  # Fetch; later versions identify topics by id
        ((0, 8), 0), ((0, 9, 0, 0), 1), ((0, 10, 0, 0), 2), ((0, 10, 1, 1), 3), ((0, 11, 0, 0), 4),
        ((0, 11, 0, 1), 5), ((1, 1, 0), 7), ((2, 0, 1), 8), ((2, 1, 2), 10), ((2, 3, 1), 11), ((2, 7, 1), 12),
    ),
    2: (  # ListOffsets
        ((0, 8), 0), ((0, 10, 1, 2), 1), ((0, 11, 0, 0), 2), ((2, 0, 1), 3), ((2, 1, 1), 4), ((2, 2, 1), 5),
        ((2, 8, 0), 6),
    ),
    4: (  # LeaderAndIsr
        ((0, 8), 0), ((1, 0, 0), 1), ((2, 2, 0), 2), ((2, 4, 0), 3), ((2, 4, 1), 4), ((2, 8, 1), 5),
    ),
    5: (((0, 8), 0), ((2, 2, 0), 1), ((2, 4, 1), 2), ((2, 6, 0), 3)),  # StopReplica
    6: (  # UpdateMetadata
        ((0, 8), 0), ((0, 9, 0, 0), 1), ((0, 10, 0, 1), 2), ((0, 10, 2, 0), 3), ((1, 0, 0), 4), ((2, 2, 0), 5),
        ((2, 4, 1), 6), ((2, 8, 1), 7),
    ),
    7: (((0, 8), 0), ((0, 9, 0, 0), 1), ((2, 2, 0), 2), ((2, 4, 1), 3)),  # ControlledShutdown
    23: (  # OffsetForLeaderEpoch
        ((0, 11, 0, 2), 0), ((2, 0, 0), 1), ((2, 1, 1), 2), ((2, 3, 1), 3), ((2, 8, 0), 4),
    ),
    27: (((0, 11, 0, 0), 0), ((2, 8, 0), 1)),  # WriteTxnMarkers
}  # fmt: skip
"""By API key: the first protocol version with which brokers send each version of a request to other brokers."""
_LOGINS: Final[Mapping[int, Sequence[tuple[tuple[int, ...], int]]]] = {
    17: (((0, 10, 0, 1), 0), ((1, 0, 0), 1)),  # SaslHandshake; after version 0, tokens are sent without a Kafka header
    36: (((1, 0, 0), 0), ((2, 2, 0), 1)),  # SaslAuthenticate; from version 1 on with the session lifetime
}
_FIRST_WITH_ALTER_PARTITION: Final = (2, 7, 2)


def protocol_version(name: str) -> tuple[int, ...]:
    """Parse an `inter.broker.protocol.version` into comparable numbers: 0.10.0-IV1 is (0, 10, 0, 1), 2.8 is (2, 8).

    `0.9.0-1` is 0.10.0-IV0. Raises ValueError for an unknown name.
    """
    known_as = "0.10.0-IV0" if name == "0.9.0-1" else name.removesuffix(".X")  # "0.9.0.X" is what brokers of 1.x return
    numbered, behind, internal = known_as.partition("-IV")
    parts = numbered.split(".")
    length = 3 if parts[0] == "0" else 2
    known = ".".join(parts[:length]) in LINES and all(part.isdigit() for part in parts)
    if not known or (behind and not internal.isdigit()):
        raise ValueError(name)
    line = tuple(map(int, parts[:length]))
    return (*line, int(internal)) if behind else line


def line_of(protocol: tuple[int, ...]) -> tuple[int, ...]:
    """Return the release line of a protocol version: of (2, 8, 1) it is (2, 8)."""
    return protocol[: _line_length(protocol)]


def protocol_name(protocol: tuple[int, ...]) -> str:
    """Return the name of a protocol version: 0.10.0-IV1, 2.8."""
    line = line_of(protocol)
    internal = "".join(f"-IV{each}" for each in protocol[len(line) :])
    return ".".join(map(str, line)) + internal


def _line_length(protocol: tuple[int, ...]) -> int:
    return 3 if protocol[0] == 0 else 2


def inter_broker_versions(protocol: tuple[int, ...]) -> dict[int, int]:
    """Return the versions in which brokers of a protocol version send requests to other brokers, by API key.

    OffsetForLeaderEpoch is missing before 0.11.0-IV2: followers then truncate to their high watermark. Source: the
    table of Kafka's ApiVersion and MetadataVersion.
    """
    return _latest(_INTER_BROKER, protocol)


def login_versions(protocol: tuple[int, ...]) -> dict[int, int]:
    """Return the versions in which brokers of a protocol version authenticate to others, by API key; {} if they
    cannot.
    """
    return _latest(_LOGINS, protocol)


def _latest(table: Mapping[int, Sequence[tuple[tuple[int, ...], int]]], protocol: tuple[int, ...]) -> dict[int, int]:
    exact = _exact(protocol)
    found = {key: [version for first, version in rows if exact >= first] for key, rows in table.items()}
    return {key: versions[-1] for key, versions in found.items() if versions}


def tells_isr_at_once(protocol: tuple[int, ...]) -> bool:
    """Return whether leaders report ISR changes to the controller immediately, instead of in batches every few seconds.

    Kafka does so with AlterPartition.
    """
    return _exact(protocol) >= _FIRST_WITH_ALTER_PARTITION


def _exact(protocol: tuple[int, ...]) -> tuple[int, ...]:
    return protocol if len(protocol) > _line_length(protocol) else (*protocol, _ALL_OF_LINE)


def registration_version(protocol: tuple[int, ...]) -> int:
    """Return the version of the registration node written by brokers of a protocol version."""
    return next((version for version, first in _REGISTRATIONS.items() if protocol >= first), 1)


# ---- versions of requests

_GREW: Final[Mapping[int, Mapping[str, int]]] = {
    0: {"0.8.2": 0, "0.9.0": 1, "0.10.0": 2, "0.11.0": 3, "1.0": 5, "2.0": 6, "2.1": 7, "2.4": 8, "2.8": 9, "3.7": 10,
        "3.8": 11, "4.0": 12, "4.1": 13},
    1: {"0.8.2": 0, "0.9.0": 1, "0.10.0": 2, "0.10.1": 3, "0.11.0": 5, "1.0": 6, "1.1": 7, "2.0": 8, "2.1": 10,
        "2.3": 11, "2.7": 12, "3.1": 13, "3.5": 15, "3.7": 16, "3.9": 17, "4.1": 18},
    2: {"0.8.2": 0, "0.10.1": 1, "0.11.0": 2, "2.0": 3, "2.1": 4, "2.2": 5, "2.8": 6, "3.0": 7, "3.5": 8, "3.9": 9,
        "4.0": 10, "4.2": 11},
    3: {"0.8.2": 0, "0.10.0": 1, "0.10.1": 2, "0.11.0": 4, "1.0": 5, "2.0": 6, "2.1": 7, "2.3": 8, "2.4": 9, "2.8": 11,
        "3.1": 12, "4.0": 13},
    8: {"0.8.2": 1, "0.9.0": 2, "0.11.0": 3, "2.0": 4, "2.1": 6, "2.3": 7, "2.4": 8, "3.7": 9, "4.2": 10},
    9: {"0.8.2": 1, "0.10.2": 2, "0.11.0": 3, "2.0": 4, "2.1": 5, "2.4": 6, "2.5": 7, "3.0": 8,
        "3.7": 9, "4.2": 10},
    10: {"0.8.2": 0, "0.11.0": 1, "2.0": 2, "2.4": 3, "3.0": 4, "3.8": 5, "3.9": 6},
    11: {"0.9.0": 0, "0.10.1": 1, "0.11.0": 2, "2.0": 3, "2.2": 4, "2.3": 5, "2.4": 6, "2.5": 7, "3.2": 9},
    12: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.3": 3, "2.4": 4},
    13: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.4": 4, "3.2": 5},
    14: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.3": 3, "2.4": 4, "2.5": 5},
    15: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.3": 3, "2.4": 5, "4.0": 6},
    16: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.4": 3, "2.6": 4, "3.8": 5},
    17: {"0.10.0": 0, "1.0": 1},
    18: {"0.10.0": 0, "0.11.0": 1, "2.0": 2, "2.4": 3, "3.9": 4, "4.4": 5},
    19: {"0.10.1": 0, "0.10.2": 1, "0.11.0": 2, "2.0": 3, "2.4": 5, "2.7": 6, "2.8": 7},
    20: {"0.10.1": 0, "0.11.0": 1, "2.0": 2, "2.1": 3, "2.4": 4, "2.7": 5, "2.8": 6},
    21: {"0.11.0": 0, "2.0": 1, "2.6": 2},
    22: {"0.11.0": 0, "2.0": 1, "2.4": 2, "2.5": 3, "2.7": 4, "3.8": 5},
    23: {"0.11.0": 0, "2.0": 1, "2.1": 2, "2.3": 3, "2.8": 4},
    24: {"0.11.0": 0, "2.0": 1, "2.7": 2, "2.8": 3, "3.6": 4, "3.8": 5},
    25: {"0.11.0": 0, "2.0": 1, "2.7": 2, "2.8": 3, "3.8": 4},
    26: {"0.11.0": 0, "2.0": 1, "2.7": 2, "2.8": 3, "3.8": 4, "4.0": 5},
    27: {"0.11.0": 0, "2.8": 1, "4.2": 2},
    28: {"0.11.0": 0, "2.0": 1, "2.1": 2, "2.5": 3, "3.8": 4, "4.0": 5, "4.4": 6},
    29: {"0.11.0": 0, "2.0": 1, "2.5": 2, "3.3": 3},
    30: {"0.11.0": 0, "2.0": 1, "2.5": 2, "3.3": 3},
    31: {"0.11.0": 0, "2.0": 1, "2.5": 2, "3.3": 3},
    32: {"0.11.0": 0, "1.1": 1, "2.0": 2, "2.6": 3, "2.8": 4},
    33: {"0.11.0": 0, "2.0": 1, "2.8": 2},
    34: {"1.0": 0, "2.0": 1, "2.8": 2},
    35: {"1.0": 0, "2.0": 1, "2.6": 2, "3.2": 3, "3.3": 4, "4.3": 5},
    36: {"1.0": 0, "2.2": 1, "2.5": 2},
    37: {"1.0": 0, "2.0": 1, "2.5": 2, "2.7": 3},
    38: {"1.1": 0, "2.0": 1, "2.4": 2, "3.3": 3},
    39: {"1.1": 0, "2.0": 1, "2.5": 2},
    40: {"1.1": 0, "2.0": 1, "2.5": 2},
    41: {"1.1": 0, "2.0": 1, "2.5": 2, "3.3": 3},
    42: {"1.1": 0, "2.0": 1, "2.4": 2, "4.4": 3},
    43: {"2.2": 0, "2.4": 2},
    44: {"2.3": 0, "2.4": 1},
    45: {"2.4": 0, "4.1": 1},
    46: {"2.4": 0},
    47: {"2.4": 0},
    48: {"2.6": 0, "2.8": 1},
    49: {"2.6": 0, "2.8": 1},
    50: {"2.7": 0},
    51: {"2.7": 0},
    60: {"2.8": 0, "3.7": 1, "4.0": 2},
    61: {"2.8": 0},
    65: {"3.0": 0},
    66: {"3.0": 0, "3.8": 1, "4.1": 2},
    68: {"4.0": 0, "4.1": 1},
    69: {"4.0": 0, "4.1": 1},
    74: {"4.0": 0, "4.1": 1},
    75: {"4.0": 0},
    76: {"4.1": 1},
    77: {"4.1": 1},
    78: {"4.1": 1, "4.2": 2},
    79: {"4.1": 1, "4.2": 2},
    83: {"4.1": 0},
    84: {"4.1": 0},
    85: {"4.1": 0, "4.2": 1},
    86: {"4.1": 0},
    87: {"4.1": 0, "4.2": 1},
    90: {"4.1": 0, "4.2": 1},
    91: {"4.1": 0},
    92: {"4.1": 0},
}  # fmt: skip
"""By API key: the latest version of each release line, given where it changes."""
_OF_TRANSACTIONS: Final = frozenset({24, 25, 26, 27, 28})
"""AddPartitionsToTxn to TxnOffsetCommit, which need format 2."""

_OF_SCRAM: Final = frozenset({50, 51})
"""DescribeUserScramCredentials and AlterUserScramCredentials, which KRaft brokers before 3.5 lack (KIP-900)."""

_LEAST: Final[Mapping[int, int]] = {
    0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 11: 2, 19: 2, 20: 1, 23: 2, 27: 1, 29: 1, 30: 1, 31: 1, 32: 1, 34: 1, 35: 1, 38: 1,
    39: 1, 40: 1, 41: 1, 76: 1, 77: 1, 78: 1, 79: 1,
}  # fmt: skip
"""By API key: the first version that releases from 4.0 on support (KIP-896)."""
_JOIN_GROUP: Final = 11  # its oldest versions returned in 4.1

_FORGOTTEN: Final[Mapping[str, frozenset[str]]] = {
    "3.0": frozenset({
        "advertised.host.name", "advertised.port", "host.name", "port", "quota.consumer.default",
        "quota.producer.default",
    }),
    "3.9": frozenset({"zookeeper.sync.time.ms"}),  # gone by 3.9 at the latest; 3.1 has it
    "4.0": frozenset({
        "auto.include.jmx.reporter", "broker.id.generation.enable", "control.plane.listener.name",
        "controlled.shutdown.max.retries", "controlled.shutdown.retry.backoff.ms", "delegation.token.master.key",
        "eligible.leader.replicas.enable", "inter.broker.protocol.version", "leader.imbalance.per.broker.percentage",
        "log.message.downconversion.enable", "log.message.format.version", "log.message.timestamp.difference.max.ms",
        "message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms",
        "offsets.commit.required.acks", "password.encoder.cipher.algorithm", "password.encoder.iterations",
        "password.encoder.key.length", "password.encoder.keyfactory.algorithm", "password.encoder.old.secret",
        "password.encoder.secret", "reserved.broker.max.id", "zookeeper.clientCnxnSocket", "zookeeper.connect",
        "zookeeper.connection.timeout.ms", "zookeeper.max.in.flight.requests", "zookeeper.metadata.migration.enable",
        "zookeeper.session.timeout.ms", "zookeeper.set.acl", "zookeeper.ssl.cipher.suites",
        "zookeeper.ssl.client.enable", "zookeeper.ssl.crl.enable", "zookeeper.ssl.enabled.protocols",
        "zookeeper.ssl.endpoint.identification.algorithm", "zookeeper.ssl.keystore.location",
        "zookeeper.ssl.keystore.password", "zookeeper.ssl.keystore.type", "zookeeper.ssl.ocsp.enable",
        "zookeeper.ssl.protocol", "zookeeper.ssl.truststore.location", "zookeeper.ssl.truststore.password",
        "zookeeper.ssl.truststore.type",
    }),
}  # fmt: skip
"""By release line: the broker and topic settings that it no longer has, according to its brokers' configs."""


def first_with(key: int, version: int) -> str | None:
    """Return the first release line that has a version of a request. Its Java clients use that version as well."""
    return next((since for since, latest in _GREW.get(key, {}).items() if latest >= version), None)


def release_of_level(level: int) -> Release:
    """Return the first release line that has a level of `metadata.version`. Raises ValueError for an unknown one."""
    line = next((line for line, most in _METADATA_VERSIONS.items() if most >= level), None)
    if line is None:
        raise ValueError(f"metadata.version {level}: expected up to {max(_METADATA_VERSIONS.values())}")
    return Release.of(".".join(map(str, line)))


def releases_of(answered: Mapping[int, range]) -> list[str]:
    """Return the release lines whose brokers answer exactly these versions of the requests in the table, in order.

    A broker whose inter.broker.protocol.version is below 0.11 does not offer the requests of transactions.
    """
    compared = {key: versions for key, versions in answered.items() if key in _GREW and key not in _OF_SCRAM}
    hidden = _OF_SCRAM | (_OF_TRANSACTIONS if compared.keys().isdisjoint(_OF_TRANSACTIONS) else frozenset())

    def offered(line: str) -> dict[int, range]:
        return {key: versions for key, versions in Release.of(line).answered().items() if key not in hidden}

    return [line for line in LINES if offered(line) == compared]


def release_meant(text: str) -> Release:
    """Parse a release, where a major version alone, such as 4, stands for its latest line."""
    lines = [line for line in LINES if line.startswith(f"{text}.")]
    return Release.of(lines[-1] if lines and "." not in text else text)
