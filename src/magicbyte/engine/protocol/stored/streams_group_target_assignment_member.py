"""Generated from StreamsGroupTargetAssignmentMemberKey.json and StreamsGroupTargetAssignmentMemberValue.json. Do not

edit: the schema compiler makes it.
StreamsGroupTargetAssignmentMemberKey: version 21.
StreamsGroupTargetAssignmentMemberValue: version 0, flexible 0+.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer


class StreamsGroupTargetAssignmentMemberKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of a Kafka Streams member's share of the target assignment. It follows the int16 21,
    its type.

    group_id: Group by its id, the application.id of Kafka Streams.
    member_id: Id of the member, the same for as long as it runs.
    """

    VALID_VERSIONS = range(21, 22)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 21
    member_id: str = ""  # string, versions 21

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")
        write_string(buffer, self.member_id, False, "member_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupTargetAssignmentMemberKey, int]:
        self = StreamsGroupTargetAssignmentMemberKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        self.member_id, at = read_string(data, at, False, "member_id")
        return self, at


class TaskIds(Struct, gc=False, kw_only=True):
    """Tasks of one part of the application.

    subtopology_id: Part of the application.
    partitions: Numbers of the partitions that the tasks work on.
    """

    subtopology_id: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TaskIds], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.subtopology_id, True, "subtopology_id")
            write_numbers(buffer, self.partitions, True, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TaskIds], int]:
        found: list[TaskIds] = []
        for _ in range(count):
            self = TaskIds()
            self.subtopology_id, at = read_string(data, at, True, "subtopology_id")
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class StreamsGroupTargetAssignmentMemberValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: which tasks a Kafka Streams member is going to have; null if it has left.

    active_tasks: Tasks that do the work.
    standby_tasks: Tasks that keep a copy of the state, to take over.
    warmup_tasks: Tasks that build up a copy of the state before they move to the member.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    active_tasks: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    standby_tasks: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    warmup_tasks: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.active_tasks, True, TaskIds._write_each, version)
        write_structs(out, self.standby_tasks, True, TaskIds._write_each, version)
        write_structs(out, self.warmup_tasks, True, TaskIds._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupTargetAssignmentMemberValue, int]:
        self = StreamsGroupTargetAssignmentMemberValue()
        self.active_tasks, at = read_structs(data, at, True, 3, "active_tasks", TaskIds._read_each, version)
        self.standby_tasks, at = read_structs(data, at, True, 3, "standby_tasks", TaskIds._read_each, version)
        self.warmup_tasks, at = read_structs(data, at, True, 3, "warmup_tasks", TaskIds._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
