"""Generated from SyncGroupRequest.json and SyncGroupResponse.json. Do not edit: the schema compiler makes it.

SyncGroupRequest: versions 0-5, flexible 4+.
SyncGroupResponse: versions 0-5, flexible 4+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_bytes,
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    write_bytes,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")


class SyncGroupRequestAssignment(Struct, gc=False, kw_only=True):
    """Assignment of every member, from the leader; empty from the others.

    member_id: Member that the assignment is for.
    assignment: Its share of the work; for consumers a ConsumerProtocolAssignment with an int16 version in front.
    """

    member_id: str = ""  # string, versions 0+
    assignment: bytes = b""  # bytes, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[SyncGroupRequestAssignment], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.member_id, flexible, "member_id")
            write_bytes(buffer, self.assignment, flexible, "assignment")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[SyncGroupRequestAssignment], int]:
        flexible = version >= 4
        found: list[SyncGroupRequestAssignment] = []
        for _ in range(count):
            self = SyncGroupRequestAssignment()
            self.member_id, at = read_string(data, at, flexible, "member_id")
            self.assignment, at = read_bytes(data, at, flexible, "assignment")
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class SyncGroupRequest(Message, gc=False, kw_only=True):
    """Ends a rebalance: the leader sends the assignments of all members, and each member waits for its own.

    group_id: Group of the member.
    generation_id: Generation that JoinGroup returned.
    member_id: Id that the coordinator gave the member when it first joined.
    group_instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member, which gets
        a new identity whenever it restarts.
    protocol_type: Kind of group as the member knows it, for the coordinator to compare; null to leave it out.
    protocol_name: Way to share out the work as JoinGroup returned it, for the coordinator to compare; null to leave
        it out.
    assignments: Assignment of every member, from the leader; empty from the others.
    """

    API_KEY = 14
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(4, 6)

    group_id: str = ""  # string, versions 0+
    generation_id: int = 0  # int32, versions 0+
    member_id: str = ""  # string, versions 0+
    group_instance_id: str | None = None  # string, versions 3+, nullable
    protocol_type: str | None = None  # string, versions 5+, nullable, ignorable
    protocol_name: str | None = None  # string, versions 5+, nullable, ignorable
    # []SyncGroupRequestAssignment, versions 0+
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version < 3 and self.group_instance_id is not None:
            raise absent("group_instance_id")
        write_string(buffer, self.group_id, flexible, "group_id")
        buffer += _I.pack(self.generation_id)
        write_string(buffer, self.member_id, flexible, "member_id")
        if version >= 3:
            write_nullable_string(buffer, self.group_instance_id, flexible, "group_instance_id")
        if version >= 5:
            write_nullable_string(buffer, self.protocol_type, flexible, "protocol_type")
            write_nullable_string(buffer, self.protocol_name, flexible, "protocol_name")
        write_structs(out, self.assignments, flexible, SyncGroupRequestAssignment._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[SyncGroupRequest, int]:
        self = SyncGroupRequest()
        flexible = version >= 4
        self.group_id, at = read_string(data, at, flexible, "group_id")
        (self.generation_id,) = _I.unpack_from(data, at)
        at += 4
        self.member_id, at = read_string(data, at, flexible, "member_id")
        if version >= 3:
            self.group_instance_id, at = read_nullable_string(data, at, flexible, "group_instance_id")
        else:
            self.group_instance_id = None
        if version >= 5:
            self.protocol_type, at = read_nullable_string(data, at, flexible, "protocol_type")
            self.protocol_name, at = read_nullable_string(data, at, flexible, "protocol_name")
        else:
            self.protocol_type = None
            self.protocol_name = None
        self.assignments, at = read_structs(
            data,
            at,
            flexible,
            3,
            "assignments",
            SyncGroupRequestAssignment._read_each,
            version,
        )
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class SyncGroupResponse(Message, gc=False, kw_only=True):
    """The member's own share of the work.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 1 the broker
        held this response back for that long; from version 2 on it answers at once and the client does the waiting.
    error_code: Error; 0 means none. 27 says that another rebalance has begun, so that the member joins again.
    protocol_type: Kind of group, such as consumer; null with an error.
    protocol_name: Way in which the work was shared out; null with an error.
    assignment: The member's share, as its leader wrote it; for consumers a ConsumerProtocolAssignment with an int16
        version in front.
    """

    API_KEY = 14
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(4, 6)

    throttle_time_ms: int = 0  # int32, versions 1+, ignorable
    error_code: int = 0  # int16, versions 0+
    protocol_type: str | None = None  # string, versions 5+, nullable, ignorable
    protocol_name: str | None = None  # string, versions 5+, nullable, ignorable
    assignment: bytes = b""  # bytes, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version >= 1:
            buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        else:
            buffer += _H.pack(self.error_code)
        if version >= 5:
            write_nullable_string(buffer, self.protocol_type, flexible, "protocol_type")
            write_nullable_string(buffer, self.protocol_name, flexible, "protocol_name")
        write_bytes(buffer, self.assignment, flexible, "assignment")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[SyncGroupResponse, int]:
        self = SyncGroupResponse()
        flexible = version >= 4
        if version >= 1:
            self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.throttle_time_ms = 0
        if version >= 5:
            self.protocol_type, at = read_nullable_string(data, at, flexible, "protocol_type")
            self.protocol_name, at = read_nullable_string(data, at, flexible, "protocol_name")
        else:
            self.protocol_type = None
            self.protocol_name = None
        self.assignment, at = read_bytes(data, at, flexible, "assignment")
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
