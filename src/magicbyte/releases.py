"""What each Kafka release does: what it stores, how it indexes it, which requests it answers.

This is the only place that compares releases with each other. Sources: Kafka's code at each release, the answers to
ApiVersions of brokers of each release from 0.10.0.1 on, and what 0.8.2.2 and 0.9.0.1 answer.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

LINES: Final = (
    *("0.8.0", "0.8.1", "0.8.2", "0.9.0", "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1"),
    *("2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8"),
    *("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9"),
    *("4.0", "4.1", "4.2", "4.3"),
)
"""The release lines that are known, in order."""

FIRST_WITH_MAGIC: Final = ((0, 8), (0, 10), (0, 11))
"""By magic: the first release that writes it."""

_NO_PATCH = 999  # a line stands for its latest release


class MarkerRule(enum.Enum):
    """What a transaction marker changes of its producer's last batch, besides ending the transaction."""

    IS_A_BATCH = "0.11"  # it counts as one, of its own offset and timestamp; the last sequence stays
    NOTHING = "1.0"
    TIMESTAMP = "2.4.1"


@dataclass(frozen=True, slots=True)
class Release:
    """One release, such as 3.9.1. A line, such as 3.9, stands for its latest release. `number` is for comparisons."""

    version: str
    line: tuple[int, ...]
    number: tuple[int, ...]

    @classmethod
    def of(cls, version: str) -> Release:
        """Return the release of a text such as "0.8.2.2" or "3.9". Raises ValueError for one that is not known."""
        line = next((each for each in LINES if re.fullmatch(rf"{re.escape(each)}(\.[0-9]{{1,3}})?", version)), None)
        if line is None:
            raise ValueError(f"Kafka {version}: expected a version of {LINES[0]} to {LINES[-1]}, such as 3.9.1")
        number = numbers(line)
        return cls(version, number, numbers(version) if version != line else (*number, _NO_PATCH))

    # ---- what it stores

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
        """None: no producers, transactions and leader epochs."""
        if not self.has_producers:
            return None
        if self.number < (1, 0):
            return MarkerRule.IS_A_BATCH
        return MarkerRule.NOTHING if self.number < (2, 4, 1) else MarkerRule.TIMESTAMP

    @property
    def indexes_empty_aborts(self) -> bool:
        """Whether an ABORT marker of a producer without an open transaction is indexed, as one of its own offset."""
        return self.number < (2, 8)

    @property
    def keeps_all_snapshots(self) -> bool:
        """Whether producer snapshots stay as long as their segments; before, those of the last two segments do."""
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
        """Whether answers to throttled clients are held back; later releases send them, and read no more (KIP-219)."""
        return self.number < (2, 0)

    @property
    def reads_from_log_start(self) -> bool:
        """Whether reads below the log start offset are refused (KIP-107), not only those below the first segment."""
        return self.number >= (0, 11)

    # ---- how it indexes and cleans

    @property
    def names_last_offset(self) -> bool:
        """Whether offset index entries name the last offset of an append, not its first."""
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
        """Whether a leader indexes the record with the largest timestamp of an uncompressed batch, not its last one."""
        return (0, 11) <= self.number < (3, 8)

    @property
    def has_delete_horizons(self) -> bool:
        """Whether the cleaner writes into a batch when its tombstones may go (KIP-534)."""
        return self.number >= (3, 1)

    @property
    def keeps_last_batch(self) -> bool:
        """Whether the cleaner keeps an empty batch for the last offset that it reads."""
        return self.number >= (4, 0)

    # ---- transactions

    @property
    def transaction_version(self) -> int:
        """The level of the feature `transaction.version` that a new cluster has: 2 is KIP-890's protocol."""
        return 2 if self.number >= (4, 0) else 0

    @property
    def verifies_partitions(self) -> bool:
        """Whether a partition's leader asks whether it is in a transaction before it takes the first records of one."""
        return self.number >= (3, 6)

    # ---- which requests it answers

    def answered(self) -> dict[int, range]:
        """Return the versions of each request that it answers, by API key, of the APIs in the table."""
        found = dict[int, range]()
        for key, grew in _GREW.items():
            latest = [version for since, version in grew.items() if numbers(since) <= self.line]
            if latest:
                found[key] = range(self.oldest_version(key), latest[-1] + 1)
        return found

    def oldest_version(self, key: int) -> int:
        """Return the first version of a request that it takes: 0 before 4.0 (KIP-896)."""
        is_removed = self.line >= (4, 0) and not (key == _JOIN_GROUP and self.line >= (4, 1))
        return _LEAST.get(key, 0) if is_removed else 0

    def has_forgotten(self, setting: str) -> bool:
        """Whether a setting of brokers or topics, which earlier releases know, means nothing to it."""
        return any(self.line >= numbers(line) and setting in names for line, names in _FORGOTTEN.items())

    @property
    def least_segment_bytes(self) -> int:
        """The least value that it takes for the size of segments (KIP-1030)."""
        return 1 << 20 if self.line >= (4, 0) else 14

    @property
    def converts_down(self) -> bool:
        """Whether it writes older formats than 2, and converts to them for readers (KIP-724)."""
        return self.line < (4, 0)

    @property
    def tells_range(self) -> bool:
        """Whether the answer to an ApiVersions that is too new lists the versions of ApiVersions (KIP-511)."""
        return self.number >= (2, 4)

    @property
    def reads_any_version(self) -> bool:
        """Whether requests in versions that are too new are read and answered in the latest one that is known."""
        return self.number < (0, 10)

    @property
    def ignores_unknown(self) -> bool:
        """Whether requests of unknown APIs get no answer, and their connections stay open."""
        return (0, 9) <= self.number < (0, 10)


def numbers(version: str) -> tuple[int, ...]:
    """Return 3.9.1 as (3, 9, 1)."""
    return tuple(map(int, version.split(".")))


def newest_magic(line: tuple[int, ...]) -> int:
    """Return the newest format that a release or a protocol version writes."""
    return 0 if line < FIRST_WITH_MAGIC[1] else 1 if line < FIRST_WITH_MAGIC[2] else 2


# ---- what brokers of an `inter.broker.protocol.version` write

PROTOCOL_OF_MAGIC: Final = ((0, 8, 2), (0, 10, 0), (0, 11, 0))
"""By magic: the first protocol version that goes with it."""
MAGIC_NAMES: Final = ("0.9.0", "0.10.0", "0.11.0")
"""By magic: how `log.message.format.version` names it."""
MAGIC_AS_RELEASE: Final = {"0": "0.9.0", "1": "0.10.2", "2": "0.11.0"}
"""What Kafka's own brokers call the formats that ours also takes by their magic."""
FIRST_WITH_FEATURES: Final = (2, 7)
"""The first protocol version whose brokers register which levels of features they support (KIP-584)."""
_REGISTRATIONS: Final[Mapping[int, tuple[int, ...]]] = {5: FIRST_WITH_FEATURES, 4: (0, 10, 2), 3: (0, 10, 0), 2: (0, 9)}
"""By version of a broker's registration: the first protocol version whose controllers know it."""
TOPIC_IDS: Final = (2, 8)
"""The first protocol version whose brokers give topics ids, and write them into the folders of partitions."""

GROUP_VALUES: Final[Mapping[int, tuple[int, ...]]] = {3: (2, 3), 2: (2, 1), 1: (0, 10, 1)}
"""By version of a group's value in `__consumer_offsets`: the first protocol version that writes it."""
OFFSET_VALUES: Final[Mapping[int, tuple[int, ...]]] = {3: (2, 1)}
"""The same of an offset's value. Only a broker in the middle of its upgrade to 2.1 writes version 2."""
EMPTY_GROUPS: Final = (0, 10, 1)
"""The first protocol version whose brokers keep a value for a group without members. Older ones write a tombstone."""
OFFSETS_EXPIRE_WITH_GROUP: Final = (2,)
"""From here on offsets expire with their group (KIP-211), not each at a time of its own."""


_ALL_OF_LINE: Final = 1 << 16
"""In place of the number behind "-IV": a line without one stands for the last protocol version of its release."""

_INTER_BROKER: Final[Mapping[int, Sequence[tuple[tuple[int, ...], int]]]] = {
    1: (  # Fetch; later versions name topics by their ids
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
"""By API key: the first protocol version with which brokers send each version of a request to each other."""
_LOGINS: Final[Mapping[int, Sequence[tuple[tuple[int, ...], int]]]] = {
    17: (((0, 10, 0, 1), 0), ((1, 0, 0), 1)),  # SaslHandshake; tokens as they are behind version 0
    36: (((1, 0, 0), 0), ((2, 2, 0), 1)),  # SaslAuthenticate; from version 1 on with the session's lifetime
}
_FIRST_WITH_ALTER_PARTITION: Final = (2, 7, 2)


def protocol_version(name: str) -> tuple[int, ...]:
    """Return an `inter.broker.protocol.version` as numbers that compare: 0.10.0-IV1 is (0, 10, 0, 1), 2.8 is (2, 8).

    `0.9.0-1` is 0.10.0-IV0. Raises ValueError for a name that no release has.
    """
    known_as = "0.10.0-IV0" if name == "0.9.0-1" else name.removesuffix(".X")  # 0.9.0.X, as brokers of 1.x tell it
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
    """Return in which version brokers of a protocol version send each request to each other, by API key.

    OffsetForLeaderEpoch is missing before 0.11.0-IV2: followers truncate by their high watermark. Source: the table of
    Kafka's ApiVersion and MetadataVersion.
    """
    return _latest(_INTER_BROKER, protocol)


def login_versions(protocol: tuple[int, ...]) -> dict[int, int]:
    """Return in which version brokers of a protocol version log in at each other, by API key; {}: they cannot."""
    return _latest(_LOGINS, protocol)


def _latest(table: Mapping[int, Sequence[tuple[tuple[int, ...], int]]], protocol: tuple[int, ...]) -> dict[int, int]:
    exact = _exact(protocol)
    found = {key: [version for first, version in rows if exact >= first] for key, rows in table.items()}
    return {key: versions[-1] for key, versions in found.items() if versions}


def tells_isr_at_once(protocol: tuple[int, ...]) -> bool:
    """Say whether leaders tell the controller of changed in-sync replicas at once, and not in batches of seconds.

    Kafka does with AlterPartition.
    """
    return _exact(protocol) >= _FIRST_WITH_ALTER_PARTITION


def _exact(protocol: tuple[int, ...]) -> tuple[int, ...]:
    return protocol if len(protocol) > _line_length(protocol) else (*protocol, _ALL_OF_LINE)


def registration_version(protocol: tuple[int, ...]) -> int:
    """Return the version of the node by which brokers of a protocol version register themselves."""
    return next((version for version, first in _REGISTRATIONS.items() if protocol >= first), 1)


# ---- versions of requests

_GREW: Final[Mapping[int, Mapping[str, int]]] = {
    0: {"0.8.2": 0, "0.9.0": 1, "0.10.0": 2, "0.11.0": 3, "1.0": 5, "2.0": 6, "2.1": 7, "2.4": 8, "2.8": 9, "3.7": 10,
        "3.8": 11, "4.0": 12, "4.1": 13},
    1: {"0.8.2": 0, "0.9.0": 1, "0.10.0": 2, "0.10.1": 3, "0.11.0": 5, "1.0": 6, "1.1": 7, "2.0": 8, "2.1": 10,
        "2.3": 11, "2.7": 12, "3.1": 13, "3.5": 15, "3.7": 16, "3.9": 17, "4.1": 18},
    2: {"0.8.2": 0, "0.10.1": 1, "0.11.0": 2, "2.0": 3, "2.1": 4, "2.2": 5, "2.8": 6, "3.0": 7, "3.5": 8, "3.9": 9,
        "4.0": 10},
    3: {"0.8.2": 0, "0.10.0": 1, "0.10.1": 2, "0.11.0": 4, "1.0": 5, "2.0": 6, "2.1": 7, "2.3": 8, "2.4": 9, "2.8": 11,
        "3.1": 12, "4.0": 13},
    8: {"0.8.2": 1, "0.9.0": 2, "0.11.0": 3, "2.0": 4, "2.1": 6, "2.3": 7, "2.4": 8, "3.7": 9},
    9: {"0.8.2": 1, "0.10.2": 2, "0.11.0": 3, "2.0": 4, "2.1": 5, "2.4": 6, "2.5": 7, "3.0": 8,
        "3.7": 9},
    10: {"0.8.2": 0, "0.11.0": 1, "2.0": 2, "2.4": 3, "3.0": 4, "3.8": 5, "3.9": 6},
    11: {"0.9.0": 0, "0.10.1": 1, "0.11.0": 2, "2.0": 3, "2.2": 4, "2.3": 5, "2.4": 6, "2.5": 7, "3.2": 9},
    12: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.3": 3, "2.4": 4},
    13: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.4": 4, "3.2": 5},
    14: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.3": 3, "2.4": 4, "2.5": 5},
    15: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.3": 3, "2.4": 5, "4.0": 6},
    16: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.4": 3, "2.6": 4, "3.8": 5},
    18: {"0.10.0": 0, "0.11.0": 1, "2.0": 2, "2.4": 3, "3.9": 4},
    19: {"0.10.1": 0, "0.10.2": 1, "0.11.0": 2, "2.0": 3, "2.4": 5, "2.7": 6, "2.8": 7},
    20: {"0.10.1": 0, "0.11.0": 1, "2.0": 2, "2.1": 3, "2.4": 4, "2.7": 5, "2.8": 6},
    21: {"0.11.0": 0, "2.0": 1, "2.6": 2},
    22: {"0.11.0": 0, "2.0": 1, "2.4": 2, "2.5": 3, "2.7": 4, "3.8": 5},
    23: {"0.11.0": 0, "2.0": 1, "2.1": 2, "2.3": 3, "2.8": 4},
    24: {"0.11.0": 0, "2.0": 1, "2.7": 2, "2.8": 3, "3.6": 4, "3.8": 5},
    25: {"0.11.0": 0, "2.0": 1, "2.7": 2, "2.8": 3, "3.8": 4},
    26: {"0.11.0": 0, "2.0": 1, "2.7": 2, "2.8": 3, "3.8": 4, "4.0": 5},
    27: {"0.11.0": 0, "2.8": 1},
    28: {"0.11.0": 0, "2.0": 1, "2.1": 2, "2.5": 3, "3.8": 4, "4.0": 5},
    29: {"0.11.0": 0, "2.0": 1, "2.5": 2, "3.3": 3},
    30: {"0.11.0": 0, "2.0": 1, "2.5": 2, "3.3": 3},
    31: {"0.11.0": 0, "2.0": 1, "2.5": 2, "3.3": 3},
    32: {"0.11.0": 0, "1.1": 1, "2.0": 2, "2.6": 3, "2.8": 4},
    33: {"0.11.0": 0, "2.0": 1, "2.8": 2},
    35: {"1.0": 0, "2.0": 1, "2.6": 2, "3.2": 3, "3.3": 4},
    37: {"1.0": 0, "2.0": 1, "2.5": 2, "2.7": 3},
    42: {"1.1": 0, "2.0": 1, "2.4": 2},
    43: {"2.2": 0, "2.4": 2},
    44: {"2.3": 0, "2.4": 1},
    45: {"2.4": 0, "4.1": 1},
    46: {"2.4": 0},
    47: {"2.4": 0},
    60: {"2.8": 0, "3.7": 1, "4.0": 2},
    61: {"2.8": 0},
    65: {"3.0": 0},
    66: {"3.0": 0, "3.8": 1, "4.1": 2},
}  # fmt: skip
"""By API key: from which release line on the latest version is which."""
_OF_TRANSACTIONS: Final = frozenset({24, 25, 26, 27, 28})
"""AddPartitionsToTxn to TxnOffsetCommit: their records are of format 2."""

_LEAST: Final[Mapping[int, int]] = {
    0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 11: 2, 19: 2, 20: 1, 23: 2, 27: 1, 29: 1, 30: 1, 31: 1, 32: 1, 34: 1, 35: 1, 38: 1,
    39: 1, 40: 1, 41: 1,
}  # fmt: skip
"""From 4.0 on: the first version that is still known, by API key (KIP-896)."""
_JOIN_GROUP: Final = 11  # its oldest versions came back in 4.1

_FORGOTTEN: Final[Mapping[str, frozenset[str]]] = {
    "3.0": frozenset({
        "advertised.host.name", "advertised.port", "host.name", "port", "quota.consumer.default",
        "quota.producer.default",
    }),
    "3.9": frozenset({"zookeeper.sync.time.ms"}),  # by 3.9 at the latest; 3.1 has it
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
"""By release line: the settings of brokers and topics that it does not know any more, by what brokers say of theirs."""


def first_with(key: int, version: int) -> str | None:
    """Return the first release line that has a version of a request; its Java clients speak it, too."""
    return next((since for since, latest in _GREW.get(key, {}).items() if latest >= version), None)


def releases_of(answered: Mapping[int, range]) -> list[str]:
    """Return the release lines whose brokers take just these versions of the requests in the table, in order.

    A broker whose inter.broker.protocol.version is below 0.11 does not offer what transactions need.
    """
    told = {key: versions for key, versions in answered.items() if key in _GREW}
    hidden = _OF_TRANSACTIONS if told.keys().isdisjoint(_OF_TRANSACTIONS) else frozenset[int]()

    def offered(line: str) -> dict[int, range]:
        return {key: versions for key, versions in Release.of(line).answered().items() if key not in hidden}

    return [line for line in LINES if offered(line) == told]


def release_meant(text: str) -> Release:
    """Return the release of a text, of which a major version alone, such as 4, stands for its latest line.

    Raises ValueError as `Release.of`.
    """
    lines = [line for line in LINES if line.startswith(f"{text}.")]
    return Release.of(lines[-1] if lines and "." not in text else text)
