"""Generated from ShareGroupCurrentMemberAssignmentKey.json and ShareGroupCurrentMemberAssignmentValue.json. Do not

edit: the schema compiler makes it.
ShareGroupCurrentMemberAssignmentKey: version 14.
ShareGroupCurrentMemberAssignmentValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_IIB = struct.Struct(">iib")


class ShareGroupCurrentMemberAssignmentKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of the partitions that a member of a share group reads now. It follows the int16 14,
    its type.

    group_id: Share group by its group.id, as its consumers are configured.
    member_id: Id of the member, the same for as long as it runs.
    """

    VALID_VERSIONS = range(14, 15)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 14
    member_id: str = ""  # string, versions 14

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")
        write_string(buffer, self.member_id, False, "member_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupCurrentMemberAssignmentKey, int]:
        self = ShareGroupCurrentMemberAssignmentKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        self.member_id, at = read_string(data, at, False, "member_id")
        return self, at


class TopicPartitions(Struct, gc=False, kw_only=True):
    """Partitions of one topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Numbers of the partitions.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicPartitions], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_numbers(buffer, self.partitions, True, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicPartitions], int]:
        found: list[TopicPartitions] = []
        for _ in range(count):
            self = TopicPartitions()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ShareGroupCurrentMemberAssignmentValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: which partitions a member of a share group reads now.

    member_epoch: Group epoch that the member has reached.
    previous_member_epoch: Epoch that it had before, still taken from a member that missed the last answer.
    state: State; always 0, stable, because nothing is revoked first.
    assigned_partitions: Partitions that it reads, by topic.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    member_epoch: int = 0  # int32, versions 0+
    previous_member_epoch: int = 0  # int32, versions 0+
    state: int = 0  # int8, versions 0+
    assigned_partitions: list[TopicPartitions] = field(default_factory=list)  # []TopicPartitions, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IIB.pack(self.member_epoch, self.previous_member_epoch, self.state)
        write_structs(out, self.assigned_partitions, True, TopicPartitions._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupCurrentMemberAssignmentValue, int]:
        self = ShareGroupCurrentMemberAssignmentValue()
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
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
