"""Generated from LeaveGroupRequest.json and LeaveGroupResponse.json. Do not edit: the schema compiler makes it.

LeaveGroupRequest: versions 0-5, flexible 4+.
LeaveGroupResponse: versions 0-5, flexible 4+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_IH = struct.Struct(">ih")


class MemberIdentity(Struct, gc=False, kw_only=True):
    """Members that leave.

    member_id: Id of the member; may be empty when a static member is removed by its name.
    group_instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member, which gets
        a new identity whenever it restarts.
    reason: Why the member leaves, for the coordinator's log; null if it is not said.
    """

    member_id: str = ""  # string, versions 3+
    group_instance_id: str | None = None  # string, versions 3+, nullable
    reason: str | None = None  # string, versions 5+, nullable, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[MemberIdentity], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.member_id, flexible, "member_id")
            write_nullable_string(buffer, self.group_instance_id, flexible, "group_instance_id")
            if version >= 5:
                write_nullable_string(buffer, self.reason, flexible, "reason")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[MemberIdentity], int]:
        flexible = version >= 4
        found: list[MemberIdentity] = []
        for _ in range(count):
            self = MemberIdentity()
            self.member_id, at = read_string(data, at, flexible, "member_id")
            self.group_instance_id, at = read_nullable_string(data, at, flexible, "group_instance_id")
            if version >= 5:
                self.reason, at = read_nullable_string(data, at, flexible, "reason")
            else:
                self.reason = None
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class LeaveGroupRequest(Message, gc=False, kw_only=True):
    """Leaves a group at once, without waiting for the session timeout. From version 3 on it can remove several members,
    also others than the sender.

    group_id: Group to leave.
    member_id: Id of the member that leaves.
    members: Members that leave.
    """

    API_KEY = 13
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(4, 6)

    group_id: str = ""  # string, versions 0+
    member_id: str = ""  # string, versions 0-2
    members: list[MemberIdentity] = field(default_factory=list)  # []MemberIdentity, versions 3+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version > 2 and self.member_id != "":
            raise absent("member_id")
        if version < 3 and len(self.members) > 0:
            raise absent("members")
        write_string(buffer, self.group_id, flexible, "group_id")
        if version <= 2:
            write_string(buffer, self.member_id, flexible, "member_id")
        if version >= 3:
            write_structs(out, self.members, flexible, MemberIdentity._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[LeaveGroupRequest, int]:
        self = LeaveGroupRequest()
        flexible = version >= 4
        self.group_id, at = read_string(data, at, flexible, "group_id")
        if version >= 3:
            self.member_id = ""
            self.members, at = read_structs(data, at, flexible, 3, "members", MemberIdentity._read_each, version)
        else:
            self.member_id, at = read_string(data, at, flexible, "member_id")
            self.members = []
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class MemberResponse(Struct, gc=False, kw_only=True):
    """One result for each member of the request.

    member_id: Id of the member, as in the request.
    group_instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member, which gets
        a new identity whenever it restarts.
    error_code: Error that concerns this member only, by its number in the protocol; 0 means none.
    """

    member_id: str = ""  # string, versions 3+
    group_instance_id: str | None = ""  # string, versions 3+, nullable
    error_code: int = 0  # int16, versions 3+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[MemberResponse], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.member_id, flexible, "member_id")
            write_nullable_string(buffer, self.group_instance_id, flexible, "group_instance_id")
            buffer += _H.pack(self.error_code)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[MemberResponse], int]:
        flexible = version >= 4
        found: list[MemberResponse] = []
        for _ in range(count):
            self = MemberResponse()
            self.member_id, at = read_string(data, at, flexible, "member_id")
            self.group_instance_id, at = read_nullable_string(data, at, flexible, "group_instance_id")
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class LeaveGroupResponse(Message, gc=False, kw_only=True):
    """Whether the members were removed.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 1 the broker
        held this response back for that long; from version 2 on it answers at once and the client does the waiting.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    members: One result for each member of the request.
    """

    API_KEY = 13
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(4, 6)

    throttle_time_ms: int = 0  # int32, versions 1+, ignorable
    error_code: int = 0  # int16, versions 0+
    members: list[MemberResponse] = field(default_factory=list)  # []MemberResponse, versions 3+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version < 3 and len(self.members) > 0:
            raise absent("members")
        if version >= 1:
            buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        else:
            buffer += _H.pack(self.error_code)
        if version >= 3:
            write_structs(out, self.members, flexible, MemberResponse._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[LeaveGroupResponse, int]:
        self = LeaveGroupResponse()
        flexible = version >= 4
        if version >= 1:
            self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.throttle_time_ms = 0
        if version >= 3:
            self.members, at = read_structs(data, at, flexible, 5, "members", MemberResponse._read_each, version)
        else:
            self.members = []
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
