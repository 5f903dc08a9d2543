"""The records of a KRaft quorum's metadata log, `__cluster_metadata`: their values as messages, and back.

A value is a frame version, the type, the version (unsigned varints) and the message, which fills the rest. Source:
Kafka's MetadataRecordSerde and MetadataRecordType, 3.3 to 4.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from magicbyte.engine.errors import CorruptRecordError, ProtocolError
from magicbyte.engine.protocol.fields import write_uvarint
from magicbyte.engine.protocol.kafka_json import fields_of
from magicbyte.engine.protocol.message import Message, Writer
from magicbyte.engine.wire.reader import Reader

FRAME_VERSION: Final = 1
"""0 was that of the preview in Kafka 2.8, whose messages differ."""


class RecordType(NamedTuple):
    """A type of record: Kafka's name, fields that came with a later version, and tagged fields."""

    name: str
    since: Mapping[str, int] = MappingProxyType({})
    tagged: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """The name as Kafka's tools print it."""
        return _snake(self.name).upper()

    @property
    def message(self) -> type[Message]:
        """The class of its messages."""
        return _message(self.name)


def _snake(name: str) -> str:
    return re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()


@cache
def _message(name: str) -> type[Message]:
    found: type[Message] = getattr(import_module(f"magicbyte.engine.protocol.stored.{_snake(name)}"), name)
    return found


_ELR: Final = frozenset({"eligible_leader_replicas", "last_known_elr"})

RECORD_TYPES: Final = {
    0: RecordType(
        "RegisterBrokerRecord",
        {"in_controlled_shutdown": 1, "is_migrating_zk_broker": 2, "log_dirs": 3, "cordoned_log_dirs": 4},
        frozenset({"log_dirs", "cordoned_log_dirs"}),
    ),
    1: RecordType("UnregisterBrokerRecord"),
    2: RecordType("TopicRecord"),
    3: RecordType(
        "PartitionRecord",
        {"directories": 1, **dict.fromkeys(_ELR, 2)},
        _ELR | {"leader_recovery_state"},
    ),
    4: RecordType("ConfigRecord"),
    5: RecordType(
        "PartitionChangeRecord",
        {"directories": 1, **dict.fromkeys(_ELR, 2)},
        _ELR
        | {"isr", "leader", "replicas", "removing_replicas", "adding_replicas", "leader_recovery_state", "directories"},
    ),
    7: RecordType("FenceBrokerRecord"),
    8: RecordType("UnfenceBrokerRecord"),
    9: RecordType("RemoveTopicRecord"),
    10: RecordType("DelegationTokenRecord"),
    11: RecordType("UserScramCredentialRecord"),
    12: RecordType("FeatureLevelRecord"),
    14: RecordType("ClientQuotaRecord"),
    15: RecordType("ProducerIdsRecord"),
    17: RecordType(
        "BrokerRegistrationChangeRecord",
        {"in_controlled_shutdown": 1, "log_dirs": 2, "cordoned_log_dirs": 3},
        frozenset({"fenced", "in_controlled_shutdown", "log_dirs", "cordoned_log_dirs"}),
    ),
    18: RecordType("AccessControlEntryRecord"),
    19: RecordType("RemoveAccessControlEntryRecord"),
    20: RecordType("NoOpRecord"),
    21: RecordType("ZkMigrationStateRecord"),
    22: RecordType("RemoveUserScramCredentialRecord"),
    23: RecordType("BeginTransactionRecord", tagged=frozenset({"name"})),
    24: RecordType("EndTransactionRecord"),
    25: RecordType("AbortTransactionRecord", tagged=frozenset({"reason"})),
    26: RecordType("RemoveDelegationTokenRecord"),
    27: RecordType("RegisterControllerRecord"),
    28: RecordType("ClearElrRecord"),
    29: RecordType("UnregisterControllerRecord"),
}
"""By number."""


class MetadataRecord(NamedTuple):
    """A record of the metadata log: the number of its type, its version, and the message."""

    number: int
    version: int
    message: Message

    @property
    def type(self) -> RecordType:
        """The type of the record."""
        return RECORD_TYPES[self.number]

    def to_json(self) -> dict[str, Any]:
        """Return the record in the form of Kafka's dump tool."""
        kind = self.type
        absent = [name for name, since in kind.since.items() if self.version < since]
        return {"type": kind.label, "version": self.version, "data": fields_of(self.message, kind.tagged, absent)}


def read_metadata_record(value: bytes | None) -> MetadataRecord:
    """Return the record in a value of the metadata log.

    Raises CorruptRecordError, with the position in the value, for null, another frame version, unknown types and
    versions, and for bytes that are missing or left over: what is skipped could change the meaning of all that follows.
    """
    if value is None:
        raise CorruptRecordError("value of a metadata record", expected="bytes", found="null")
    reader = Reader(value)
    frame = reader.unsigned_varint()
    if frame != FRAME_VERSION:
        raise _wrong("frame version", f"{FRAME_VERSION} (0 is Kafka 2.8's preview)", frame, 0)
    at = reader.position
    number = reader.unsigned_varint()
    if number not in RECORD_TYPES:
        raise _wrong("type", f"one of {', '.join(map(str, RECORD_TYPES))}", number, at)
    at, kind = reader.position, RECORD_TYPES[number].message
    version = reader.unsigned_varint()
    if version not in kind.VALID_VERSIONS:
        known = f"0 to {kind.VALID_VERSIONS[-1]} of a {RECORD_TYPES[number].name}"
        raise _wrong("version", known, version, at)
    try:
        message, end = kind.read_at(value, reader.position, version)
    except ProtocolError as error:
        raise CorruptRecordError(
            f"{RECORD_TYPES[number].name}: {error.field}",
            expected=error.expected,
            found=error.found,
            position=error.position,
        ) from error
    if end != len(value):
        raise _wrong("end", f"{end} bytes of a {RECORD_TYPES[number].name}", len(value), end)
    return MetadataRecord(number, version, message)


def write_metadata_record(record: MetadataRecord) -> bytes:
    """Return the value of a record. Raises UnsupportedVersionError for a field that the version does not have."""
    out = Writer()
    for number in (FRAME_VERSION, record.number, record.version):
        write_uvarint(out.buffer, number)
    record.message.write(out, record.version)
    return bytes(out)


def _wrong(what: str, expected: str, found: int, position: int) -> CorruptRecordError:
    return CorruptRecordError(f"{what} of a metadata record", expected=expected, found=found, position=position)
