"""Generated from ConsumerGroupTargetAssignmentMetadataKey.json and ConsumerGroupTargetAssignmentMetadataValue.json. Do

not edit: the schema compiler makes it.
ConsumerGroupTargetAssignmentMetadataKey: version 6.
ConsumerGroupTargetAssignmentMetadataValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_string, read_tags, unknown, whole, write_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")
_Q = struct.Struct(">q")


class ConsumerGroupTargetAssignmentMetadataKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of the epoch of a group's target assignment. It follows the int16 6, its type.

    group_id: Group by its group.id, as its members are configured.
    """

    VALID_VERSIONS = range(6, 7)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 6

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupTargetAssignmentMetadataKey, int]:
        self = ConsumerGroupTargetAssignmentMetadataKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        return self, at


class ConsumerGroupTargetAssignmentMetadataValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: epoch of the group for which the target assignment was computed.

    assignment_epoch: The epoch of the group.
    assignment_timestamp: When the assignment was computed, in milliseconds since 1970; 0 if it was not kept.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    assignment_epoch: int = 0  # int32, versions 0+
    assignment_timestamp: int = 0  # int64, versions 0+, ignorable, tag 0
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.assignment_epoch)
        tags = self._tags(version)
        if tags or self.unknown_tags:
            write_tags(buffer, tags, self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupTargetAssignmentMetadataValue, int]:
        self = ConsumerGroupTargetAssignmentMetadataValue()
        (self.assignment_epoch,) = _I.unpack_from(data, at)
        at += 4
        self.assignment_timestamp = 0
        if data[at]:
            tags, at = read_tags(data, at)
            if 0 in tags:
                part = tags.pop(0)
                self.assignment_timestamp = whole(part, (_Q.unpack_from(part)[0], 8), "assignment_timestamp")
            self.unknown_tags = unknown(tags)
        else:
            self.unknown_tags, at = (), at + 1
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.assignment_timestamp != 0:
            part = Writer()
            part.buffer += _Q.pack(self.assignment_timestamp)
            found.append((0, bytes(part)))
        return found
