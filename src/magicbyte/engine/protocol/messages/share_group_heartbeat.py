"""Generated from ShareGroupHeartbeatRequest.json and ShareGroupHeartbeatResponse.json. Do not edit: the schema compiler

makes it.
ShareGroupHeartbeatRequest: versions 0-1, flexible 0+.
ShareGroupHeartbeatResponse: versions 0-1, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_nullable_array,
    read_nullable_string,
    read_nullable_struct,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_array,
    write_nullable_string,
    write_nullable_struct,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_II = struct.Struct(">ii")


class ShareGroupHeartbeatRequest(Message, gc=False, kw_only=True):
    """Joins, stays in or leaves a share group. Fields left at their defaults did not change.

    group_id: Share group of the member.
    member_id: Id of the member, made by the client.
    member_epoch: Epoch of the member as the last answer gave it; 0 joins, -1 leaves.
    rack_id: Rack or zone of the member (client.rack); null if it has none or as before.
    subscribed_topic_names: Names of the topics subscribed to; null as before.
    """

    API_KEY = 76
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    group_id: str = ""  # string, versions 0+
    member_id: str = ""  # string, versions 0+
    member_epoch: int = 0  # int32, versions 0+
    rack_id: str | None = None  # string, versions 0+, nullable
    subscribed_topic_names: list[str] | None = None  # []string, versions 0+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, True, "group_id")
        write_string(buffer, self.member_id, True, "member_id")
        buffer += _I.pack(self.member_epoch)
        write_nullable_string(buffer, self.rack_id, True, "rack_id")
        write_array(buffer, self.subscribed_topic_names, True, write_string, True, "subscribed_topic_names")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupHeartbeatRequest, int]:
        self = ShareGroupHeartbeatRequest()
        self.group_id, at = read_string(data, at, True, "group_id")
        self.member_id, at = read_string(data, at, True, "member_id")
        (self.member_epoch,) = _I.unpack_from(data, at)
        at += 4
        self.rack_id, at = read_nullable_string(data, at, True, "rack_id")
        self.subscribed_topic_names, at = read_nullable_array(
            data,
            at,
            True,
            1,
            "subscribed_topic_names",
            read_string,
            True,
            "subscribed_topic_names",
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
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


class Assignment(Struct, gc=False, kw_only=True):
    """Partitions that the member is to read; null as before.

    topic_partitions: The partitions, by topic.
    """

    topic_partitions: list[TopicPartitions] = field(default_factory=list)  # []TopicPartitions, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.topic_partitions, True, TopicPartitions._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[Assignment, int]:
        self = Assignment()
        self.topic_partitions, at = read_structs(
            data,
            at,
            True,
            18,
            "topic_partitions",
            TopicPartitions._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class ShareGroupHeartbeatResponse(Message, gc=False, kw_only=True):
    """The member's new assignment.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error; 0 means none. 25 and 110 ask the member to rejoin with epoch 0.
    error_message: Error message; null without an error, or if the broker sends none.
    member_id: Id of the member; null with an error.
    member_epoch: Epoch of the member, to be sent next time.
    heartbeat_interval_ms: Milliseconds until the next heartbeat is due.
    assignment: Partitions that the member is to read; null as before.
    """

    API_KEY = 76
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    member_id: str | None = None  # string, versions 0+, nullable
    member_epoch: int = 0  # int32, versions 0+
    heartbeat_interval_ms: int = 0  # int32, versions 0+
    assignment: Assignment | None = None  # Assignment, versions 0+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        write_nullable_string(buffer, self.member_id, True, "member_id")
        buffer += _II.pack(self.member_epoch, self.heartbeat_interval_ms)
        write_nullable_struct(out, self.assignment, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupHeartbeatResponse, int]:
        self = ShareGroupHeartbeatResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.member_id, at = read_nullable_string(data, at, True, "member_id")
        self.member_epoch, self.heartbeat_interval_ms = _II.unpack_from(data, at)
        at += 8
        self.assignment, at = read_nullable_struct(data, at, version, "assignment", Assignment._read)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
