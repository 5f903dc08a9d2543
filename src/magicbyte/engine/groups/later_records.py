"""Decode records of the newer group protocols in `__consumer_offsets`: KIP-848, share groups (KIP-932) and Kafka
Streams groups (KIP-1071).

Keys and values are generated classes of `protocol.stored`, by the type of the key; values have version 0,
which is flexible. Share groups are read as Kafka 4.1 and later write them.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, Final, NamedTuple

from magicbyte.engine.coordination.stored import read_stored
from magicbyte.engine.protocol.kafka_json import fields_of
from magicbyte.engine.protocol.message import Message


class LaterRecord(NamedTuple):
    """One type of record: Kafka's name for it, and the tagged fields of its value, which are omitted if default."""

    name: str
    tagged: frozenset[str] = frozenset()

    @property
    def key(self) -> type[Message]:
        """The class of its keys."""
        return self._message("Key")

    @property
    def value(self) -> type[Message]:
        """The class of its values."""
        return self._message("Value")

    def _message(self, kind: str) -> type[Message]:
        module = re.sub(r"(?<=.)([A-Z])", r"_\1", self.name).lower()
        found: type[Message] = getattr(import_module(f"magicbyte.engine.protocol.stored.{module}"), self.name + kind)
        return found


RECORDS: Final = {
    3: LaterRecord("ConsumerGroupMetadata", frozenset({"metadata_hash"})),
    4: LaterRecord("ConsumerGroupPartitionMetadata"),
    5: LaterRecord("ConsumerGroupMemberMetadata", frozenset({"classic_member_metadata"})),
    6: LaterRecord("ConsumerGroupTargetAssignmentMetadata", frozenset({"assignment_timestamp"})),
    7: LaterRecord("ConsumerGroupTargetAssignmentMember"),
    8: LaterRecord("ConsumerGroupCurrentMemberAssignment", frozenset({"assignment_epochs"})),
    9: LaterRecord("ShareGroupPartitionMetadata"),
    10: LaterRecord("ShareGroupMemberMetadata"),
    11: LaterRecord("ShareGroupMetadata"),
    12: LaterRecord("ShareGroupTargetAssignmentMetadata", frozenset({"assignment_timestamp"})),
    13: LaterRecord("ShareGroupTargetAssignmentMember"),
    14: LaterRecord("ShareGroupCurrentMemberAssignment"),
    15: LaterRecord("ShareGroupStatePartitionMetadata"),
    16: LaterRecord("ConsumerGroupRegularExpression"),
    17: LaterRecord("StreamsGroupMetadata", frozenset({"validated_topology_epoch", "last_assignment_configs"})),
    19: LaterRecord("StreamsGroupMemberMetadata"),
    20: LaterRecord("StreamsGroupTargetAssignmentMetadata", frozenset({"assignment_timestamp"})),
    21: LaterRecord("StreamsGroupTargetAssignmentMember"),
    22: LaterRecord("StreamsGroupCurrentMemberAssignment", frozenset({"assignment_epochs"})),
    23: LaterRecord("StreamsGroupTopology"),
}


def read_later(kind: type[Message], data: bytes, version: int, tagged: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the fields of a key or value, in the form of Kafka's tools. Raises CorruptRecordError."""
    return fields_of(read_stored(kind, data, version), tagged)
