"""Generated from StreamsGroupCurrentMemberAssignmentKey.json and StreamsGroupCurrentMemberAssignmentValue.json. Do not

edit: the schema compiler makes it.
StreamsGroupCurrentMemberAssignmentKey: version 22.
StreamsGroupCurrentMemberAssignmentValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_numbers,
    read_numbers,
    read_string,
    read_structs,
    read_tags,
    read_unknown_tags,
    unknown,
    whole,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_IIB = struct.Struct(">iib")


class StreamsGroupCurrentMemberAssignmentKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of the tasks that a Kafka Streams member has now. It follows the int16 22, its type.

    group_id: Group by its id, the application.id of Kafka Streams.
    member_id: Id of the member, the same for as long as it runs.
    """

    VALID_VERSIONS = range(22, 23)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 22
    member_id: str = ""  # string, versions 22

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")
        write_string(buffer, self.member_id, False, "member_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupCurrentMemberAssignmentKey, int]:
        self = StreamsGroupCurrentMemberAssignmentKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        self.member_id, at = read_string(data, at, False, "member_id")
        return self, at


class TaskIds(Struct, gc=False, kw_only=True):
    """Tasks of one part of the application.

    subtopology_id: Part of the application.
    partitions: Numbers of the partitions that the tasks work on.
    assignment_epochs: For each partition the group epoch in which the member got its task; null if it was not kept.
    """

    subtopology_id: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    assignment_epochs: tuple[int, ...] | None = ()  # []int32, versions 0+, nullable, tag 0
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TaskIds], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.subtopology_id, True, "subtopology_id")
            write_numbers(buffer, self.partitions, True, "i")
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TaskIds], int]:
        found: list[TaskIds] = []
        for _ in range(count):
            self = TaskIds()
            self.subtopology_id, at = read_string(data, at, True, "subtopology_id")
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


class StreamsGroupCurrentMemberAssignmentValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: the current tasks of a Kafka Streams member, and its progress towards the target
    assignment.

    member_epoch: Group epoch that the member has reached.
    previous_member_epoch: Epoch that it had before, still taken from a member that missed the last answer.
    state: 0 stable, 1 must revoke tasks first, 2 waits for tasks that others must revoke, 127 unknown.
    active_tasks: Tasks that do the work.
    standby_tasks: Tasks that keep a copy of the state, to take over.
    warmup_tasks: Tasks that build up a copy of the state before they move to the member.
    active_tasks_pending_revocation: Active tasks that it must revoke.
    standby_tasks_pending_revocation: Standby tasks that it must revoke.
    warmup_tasks_pending_revocation: Warm-up tasks that it must revoke.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    member_epoch: int = 0  # int32, versions 0+
    previous_member_epoch: int = 0  # int32, versions 0+
    state: int = 0  # int8, versions 0+
    active_tasks: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    standby_tasks: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    warmup_tasks: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    active_tasks_pending_revocation: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    standby_tasks_pending_revocation: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    warmup_tasks_pending_revocation: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IIB.pack(self.member_epoch, self.previous_member_epoch, self.state)
        write_structs(out, self.active_tasks, True, TaskIds._write_each, version)
        write_structs(out, self.standby_tasks, True, TaskIds._write_each, version)
        write_structs(out, self.warmup_tasks, True, TaskIds._write_each, version)
        write_structs(out, self.active_tasks_pending_revocation, True, TaskIds._write_each, version)
        write_structs(out, self.standby_tasks_pending_revocation, True, TaskIds._write_each, version)
        write_structs(out, self.warmup_tasks_pending_revocation, True, TaskIds._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupCurrentMemberAssignmentValue, int]:
        self = StreamsGroupCurrentMemberAssignmentValue()
        self.member_epoch, self.previous_member_epoch, self.state = _IIB.unpack_from(data, at)
        at += 9
        self.active_tasks, at = read_structs(data, at, True, 3, "active_tasks", TaskIds._read_each, version)
        self.standby_tasks, at = read_structs(data, at, True, 3, "standby_tasks", TaskIds._read_each, version)
        self.warmup_tasks, at = read_structs(data, at, True, 3, "warmup_tasks", TaskIds._read_each, version)
        self.active_tasks_pending_revocation, at = read_structs(
            data,
            at,
            True,
            3,
            "active_tasks_pending_revocation",
            TaskIds._read_each,
            version,
        )
        self.standby_tasks_pending_revocation, at = read_structs(
            data,
            at,
            True,
            3,
            "standby_tasks_pending_revocation",
            TaskIds._read_each,
            version,
        )
        self.warmup_tasks_pending_revocation, at = read_structs(
            data,
            at,
            True,
            3,
            "warmup_tasks_pending_revocation",
            TaskIds._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
