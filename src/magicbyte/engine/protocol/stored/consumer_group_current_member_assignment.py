"""Generated from ConsumerGroupCurrentMemberAssignmentKey.json and ConsumerGroupCurrentMemberAssignmentValue.json. Do

not edit: the schema compiler makes it.
ConsumerGroupCurrentMemberAssignmentKey: version 8.
ConsumerGroupCurrentMemberAssignmentValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_nullable_numbers,
    read_numbers,
    read_string,
    read_structs,
    read_tags,
    read_unknown_tags,
    read_uuid,
    unknown,
    whole,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_IIB = struct.Struct(">iib")


class ConsumerGroupCurrentMemberAssignmentKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of the partitions that a member has now. It follows the int16 8, its type.

    group_id: Group by its group.id, as its members are configured.
    member_id: Id of the member, the same for as long as it runs.
    """

    VALID_VERSIONS = range(8, 9)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 8
    member_id: str = ""  # string, versions 8

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")
        write_string(buffer, self.member_id, False, "member_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupCurrentMemberAssignmentKey, int]:
        self = ConsumerGroupCurrentMemberAssignmentKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        self.member_id, at = read_string(data, at, False, "member_id")
        return self, at


class TopicPartitions(Struct, gc=False, kw_only=True):
    """Partitions of one topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Numbers of the partitions.
    assignment_epochs: For each partition the group epoch in which the member got it; null if it was not kept.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    assignment_epochs: tuple[int, ...] | None = ()  # []int32, versions 0+, nullable, tag 0
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicPartitions], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_numbers(buffer, self.partitions, True, "i")
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicPartitions], int]:
        found: list[TopicPartitions] = []
        for _ in range(count):
            self = TopicPartitions()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.assignment_epochs = ()
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.assignment_epochs = whole(
                        part,
                        read_nullable_numbers(part, 0, True, "i", "assignment_epochs"),
                        "assignment_epochs",
                    )
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
            found.append(self)
        return found, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.assignment_epochs is None or len(self.assignment_epochs) > 0:
            part = Writer()
            write_numbers(part.buffer, self.assignment_epochs, True, "i")
            found.append((0, bytes(part)))
        return found


class ConsumerGroupCurrentMemberAssignmentValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: the current partitions of a member, and its progress towards the target assignment.

    member_epoch: Group epoch that the member has reached.
    previous_member_epoch: Epoch that it had before, still taken from a member that missed the last answer; -1 after
        joining.
    state: 0 stable, 1 must revoke partitions first, 2 waits for partitions that others must revoke, 127 unknown.
    assigned_partitions: Partitions that it has, by topic.
    partitions_pending_revocation: Partitions that it must revoke, by topic.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    member_epoch: int = 0  # int32, versions 0+
    previous_member_epoch: int = 0  # int32, versions 0+
    state: int = 0  # int8, versions 0+
    assigned_partitions: list[TopicPartitions] = field(default_factory=list)  # []TopicPartitions, versions 0+
    partitions_pending_revocation: list[TopicPartitions] = field(default_factory=list)  # []TopicPartitions, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IIB.pack(self.member_epoch, self.previous_member_epoch, self.state)
        write_structs(out, self.assigned_partitions, True, TopicPartitions._write_each, version)
        write_structs(out, self.partitions_pending_revocation, True, TopicPartitions._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupCurrentMemberAssignmentValue, int]:
        self = ConsumerGroupCurrentMemberAssignmentValue()
        self.member_epoch, self.previous_member_epoch, self.state = _IIB.unpack_from(data, at)
        at += 9
        self.assigned_partitions, at = read_structs(
            data,
            at,
            True,
            18,
            "assigned_partitions",
            TopicPartitions._read_each,
            version,
        )
        self.partitions_pending_revocation, at = read_structs(
            data,
            at,
            True,
            18,
            "partitions_pending_revocation",
            TopicPartitions._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
