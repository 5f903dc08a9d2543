"""The metadata that consumers exchange through the group coordinator, which treats it as opaque bytes."""

import base64
from typing import Any, NamedTuple

from msgspec import Struct

from magicbyte.engine.coordination.stored import read_stored
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.protocol.fields import as_bytes
from magicbyte.engine.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from magicbyte.engine.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from magicbyte.engine.wire.reader import Reader

LATEST_VERSION = 3  # of later versions the same fields are read, as consumers do


class TopicPartitions(NamedTuple):
    """Partitions of one topic."""

    topic: str
    partitions: list[int]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of Kafka's tools."""
        return self._asdict()


class Subscription(Struct, frozen=True):
    """What one member subscribes to: the metadata of its JoinGroup request."""

    version: int
    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[TopicPartitions]  # version 1 on
    generation_id: int  # version 2 on
    rack_id: str | None  # version 3 on

    @classmethod
    def parse(cls, data: bytes) -> "Subscription":
        """Parse a subscription. Raises CorruptRecordError."""
        version = _version(data)
        sent = read_stored(ConsumerProtocolSubscription, data, version)
        return cls(
            version=version,
            topics=sent.topics,
            user_data=None if sent.user_data is None else as_bytes(sent.user_data),
            owned_partitions=[TopicPartitions(each.topic, list(each.partitions)) for each in sent.owned_partitions],
            generation_id=sent.generation_id,
            rack_id=sent.rack_id,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields of this version in the JSON form of Kafka's tools; bytes are base64."""
        fields: dict[str, Any] = {"topics": self.topics, "userData": base64_or_null(self.user_data)}
        if self.version >= 1:
            fields["ownedPartitions"] = [each.to_json() for each in self.owned_partitions]
        if self.version >= 2:
            fields["generationId"] = self.generation_id
        if self.version >= 3:
            fields["rackId"] = self.rack_id
        return fields


class Assignment(Struct, frozen=True):
    """The partitions that the group leader assigned to one member."""

    version: int
    assigned_partitions: list[TopicPartitions]
    user_data: bytes | None

    @classmethod
    def parse(cls, data: bytes) -> "Assignment":
        """Parse an assignment. Raises CorruptRecordError."""
        version = _version(data)
        sent = read_stored(ConsumerProtocolAssignment, data, version)
        assigned = [TopicPartitions(each.topic, list(each.partitions)) for each in sent.assigned_partitions]
        return cls(version, assigned, None if sent.user_data is None else as_bytes(sent.user_data))

    def to_json(self) -> dict[str, Any]:
        """Return the fields in the JSON form of Kafka's tools; bytes are base64."""
        return {
            "assignedPartitions": [each.to_json() for each in self.assigned_partitions],
            "userData": base64_or_null(self.user_data),
        }


def topics_in(subscription: bytes) -> list[str]:
    """Return the topics in a member's metadata, read as version 0, which is a prefix of every version.

    Some clients write less than the version that they name has. Source: Kafka's GroupMetadata.computeSubscribedTopics.
    Raises CorruptRecordError.
    """
    return read_stored(ConsumerProtocolSubscription, subscription, 0).topics


def base64_or_null(data: bytes | None) -> str | None:
    """Return bytes in the JSON form of Kafka's tools."""
    return None if data is None else base64.b64encode(data).decode()


def _version(data: bytes) -> int:
    version = Reader(data).int16()
    if version < 0:
        raise CorruptRecordError("consumer protocol version", expected=">= 0", found=version, position=0)
    return min(version, LATEST_VERSION)
