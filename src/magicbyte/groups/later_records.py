"""Values of the newer group protocols in `__consumer_offsets`: consumer groups of KIP-848 and share groups of KIP-932.

All of them have version 0, which is flexible. Their fields stand in one table, by the type of the key; tagged fields
that later brokers added are skipped. Sources: Kafka's ConsumerGroup*Key, ConsumerGroup*Value, ShareGroup*Key and
ShareGroup*Value schemas.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from magicbyte.errors import CorruptRecordError
from magicbyte.groups.consumer_protocol import base64_or_null
from magicbyte.wire.reader import Reader

Fields: TypeAlias = "tuple[tuple[str, Kind], ...]"
Kind: TypeAlias = "str | list[Kind] | Fields"  # a type's name, an array of a kind, or a structure


class LaterRecord(NamedTuple):
    """One type of record: Kafka's name for it, the second field of its key, if any, and the fields of its value.

    `tagged`: structures that may be missing, by tag, each with its name.
    """

    name: str
    second_key: str | None
    fields: Fields
    tagged: dict[int, tuple[str, Fields]]


_EPOCH: Fields = (("epoch", "int32"),)
_ASSIGNMENT_EPOCH: Fields = (("assignmentEpoch", "int32"),)
_PARTITIONS: Fields = (("topicId", "uuid"), ("partitions", ["int32"]))
_TARGET: Fields = (("topicPartitions", [_PARTITIONS]),)
_TOPICS: Fields = (
    (
        "topics",
        [
            (
                ("topicId", "uuid"),
                ("topicName", "string"),
                ("numPartitions", "int32"),
                ("partitionMetadata", [(("partition", "int32"), ("racks", ["string"]))]),
            )
        ],
    ),
)
_MEMBER_EPOCHS: Fields = (("memberEpoch", "int32"), ("previousMemberEpoch", "int32"), ("state", "int8"))
_CLASSIC_MEMBER: Fields = (
    ("sessionTimeoutMs", "int32"),
    ("supportedProtocols", [(("name", "string"), ("metadata", "bytes"))]),
)

RECORDS: dict[int, LaterRecord] = {
    3: LaterRecord("ConsumerGroupMetadata", None, _EPOCH, {}),
    4: LaterRecord("ConsumerGroupPartitionMetadata", None, _TOPICS, {}),
    5: LaterRecord(
        "ConsumerGroupMemberMetadata",
        "memberId",
        (
            ("instanceId", "nullable_string"),
            ("rackId", "nullable_string"),
            ("clientId", "string"),
            ("clientHost", "string"),
            ("subscribedTopicNames", ["string"]),
            ("subscribedTopicRegex", "nullable_string"),
            ("rebalanceTimeoutMs", "int32"),
            ("serverAssignor", "nullable_string"),
        ),
        {0: ("classicMemberMetadata", _CLASSIC_MEMBER)},
    ),
    6: LaterRecord("ConsumerGroupTargetAssignmentMetadata", None, _ASSIGNMENT_EPOCH, {}),
    7: LaterRecord("ConsumerGroupTargetAssignmentMember", "memberId", _TARGET, {}),
    8: LaterRecord(
        "ConsumerGroupCurrentMemberAssignment",
        "memberId",
        (*_MEMBER_EPOCHS, ("assignedPartitions", [_PARTITIONS]), ("partitionsPendingRevocation", [_PARTITIONS])),
        {},
    ),
    9: LaterRecord("ShareGroupPartitionMetadata", None, _TOPICS, {}),
    10: LaterRecord(
        "ShareGroupMemberMetadata",
        "memberId",
        (
            ("rackId", "nullable_string"),
            ("clientId", "string"),
            ("clientHost", "string"),
            ("subscribedTopicNames", ["string"]),
        ),
        {},
    ),
    11: LaterRecord("ShareGroupMetadata", None, _EPOCH, {}),
    12: LaterRecord("ShareGroupTargetAssignmentMetadata", None, _ASSIGNMENT_EPOCH, {}),
    13: LaterRecord("ShareGroupTargetAssignmentMember", "memberId", _TARGET, {}),
    14: LaterRecord(
        "ShareGroupCurrentMemberAssignment", "memberId", (*_MEMBER_EPOCHS, ("assignedPartitions", [_PARTITIONS])), {}
    ),
    15: LaterRecord(
        "ShareGroupStatePartitionMetadata",
        None,
        (
            ("initializedTopics", [(("topicId", "uuid"), ("topicName", "string"), ("partitions", ["int32"]))]),
            ("deletingTopics", [(("topicId", "uuid"), ("topicName", "string"))]),
        ),
        {},
    ),
}


def read_fields(record: LaterRecord, reader: Reader) -> dict[str, Any]:
    """Return the fields of a value, named and shown as Kafka's tools do. Raises CorruptRecordError."""
    found = _read_in_order(record.fields, reader)

    def tagged(name: str, fields: Fields) -> Callable[[], None]:
        def read() -> None:
            start, present = reader.position, reader.int8()
            if present not in (-1, 1):
                raise CorruptRecordError(name, expected="1, or -1 for null", found=present, position=start)
            if present == 1:
                found[name] = _read(fields, reader)

        return read

    reader.tagged_fields({tag: tagged(name, fields) for tag, (name, fields) in record.tagged.items()})
    return found


def _read_in_order(fields: Fields, reader: Reader) -> dict[str, Any]:
    return {name: _read(kind, reader) for name, kind in fields}


def _read(kind: Kind, reader: Reader) -> Any:
    if isinstance(kind, list):
        return reader.array(lambda: _read(kind[0], reader))
    if isinstance(kind, tuple):
        found = _read_in_order(kind, reader)
        reader.tagged_fields()
        return found
    if kind == "uuid":
        return base64.urlsafe_b64encode(reader.uuid().bytes).decode().rstrip("=")
    if kind == "bytes":
        return base64_or_null(reader.bytes())
    read: dict[str, Callable[[], Any]] = {
        "int8": reader.int8,
        "int32": reader.int32,
        "string": reader.string,
        "nullable_string": reader.nullable_string,
    }
    return read[kind]()
