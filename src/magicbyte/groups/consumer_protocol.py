"""What consumers tell each other through the group coordinator, which does not look into it.

Source: Kafka's ConsumerProtocol and its schemas, versions 0 to 3.
"""

import base64
from dataclasses import dataclass
from typing import Any, NamedTuple

from magicbyte.errors import CorruptRecordError
from magicbyte.wire.reader import Reader

LATEST_VERSION = 3  # of a later one the same fields are read, as consumers do


class TopicPartitions(NamedTuple):
    """Some partitions of one topic."""

    topic: str
    partitions: list[int]

    def to_json(self) -> dict[str, Any]:
        """Return it as Kafka's tools print it."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member asks for: the metadata of its JoinGroup request."""

    version: int
    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[TopicPartitions]  # version 1 on
    generation_id: int  # version 2 on
    rack_id: str | None  # version 3 on

    @classmethod
    def parse(cls, data: bytes) -> "Subscription":
        """Return the subscription that `data` holds. Raises CorruptRecordError."""
        reader = Reader(data)
        version = _version(reader)
        return cls(
            version=version,
            topics=reader.array(reader.string),
            user_data=reader.nullable_bytes(),
            owned_partitions=_topic_partitions(reader) if version >= 1 else [],
            generation_id=reader.int32() if version >= 2 else -1,
            rack_id=reader.nullable_string() if version >= 3 else None,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields of this version as Kafka's tools print them; bytes are base64."""
        fields: dict[str, Any] = {"topics": self.topics, "userData": base64_or_null(self.user_data)}
        if self.version >= 1:
            fields["ownedPartitions"] = [each.to_json() for each in self.owned_partitions]
        if self.version >= 2:
            fields["generationId"] = self.generation_id
        if self.version >= 3:
            fields["rackId"] = self.rack_id
        return fields


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the group's leader gave to one member."""

    version: int
    assigned_partitions: list[TopicPartitions]
    user_data: bytes | None

    @classmethod
    def parse(cls, data: bytes) -> "Assignment":
        """Return the assignment that `data` holds. Raises CorruptRecordError."""
        reader = Reader(data)
        return cls(_version(reader), _topic_partitions(reader), reader.nullable_bytes())

    def to_json(self) -> dict[str, Any]:
        """Return the fields as Kafka's tools print them; bytes are base64."""
        return {
            "assignedPartitions": [each.to_json() for each in self.assigned_partitions],
            "userData": base64_or_null(self.user_data),
        }


def base64_or_null(data: bytes | None) -> str | None:
    """Return bytes as Kafka's tools print them in JSON."""
    return None if data is None else base64.b64encode(data).decode()


def _version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise CorruptRecordError("consumer protocol version", expected=">= 0", found=version, position=0)
    return min(version, LATEST_VERSION)


def _topic_partitions(reader: Reader) -> list[TopicPartitions]:
    return reader.array(lambda: TopicPartitions(reader.string(), reader.array(reader.int32)))
