"""Generated from ConsumerGroupTargetAssignmentMemberKey.json and ConsumerGroupTargetAssignmentMemberValue.json. Do not

edit: the schema compiler makes it.
ConsumerGroupTargetAssignmentMemberKey: version 7.
ConsumerGroupTargetAssignmentMemberValue: version 0, flexible 0+.
"""

from __future__ import annotations

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


class ConsumerGroupTargetAssignmentMemberKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of a member's share of the target assignment. It follows the int16 7, its type.

    group_id: Group by its group.id, as its members are configured.
    member_id: Id of the member, the same for as long as it runs.
    """

    VALID_VERSIONS = range(7, 8)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 7
    member_id: str = ""  # string, versions 7

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")
        write_string(buffer, self.member_id, False, "member_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupTargetAssignmentMemberKey, int]:
        self = ConsumerGroupTargetAssignmentMemberKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        self.member_id, at = read_string(data, at, False, "member_id")
        return self, at


class TopicPartition(Struct, gc=False, kw_only=True):
    """The partitions, by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Numbers of the partitions.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicPartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_numbers(buffer, self.partitions, True, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicPartition], int]:
        found: list[TopicPartition] = []
        for _ in range(count):
            self = TopicPartition()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ConsumerGroupTargetAssignmentMemberValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: which partitions a member is going to have; null if it has left.

    topic_partitions: The partitions, by topic.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    topic_partitions: list[TopicPartition] = field(default_factory=list)  # []TopicPartition, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.topic_partitions, True, TopicPartition._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupTargetAssignmentMemberValue, int]:
        self = ConsumerGroupTargetAssignmentMemberValue()
        self.topic_partitions, at = read_structs(
            data,
            at,
            True,
            18,
            "topic_partitions",
            TopicPartition._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
