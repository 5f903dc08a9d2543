"""Generated from DescribeGroupsRequest.json and DescribeGroupsResponse.json. Do not edit: the schema compiler makes it.

DescribeGroupsRequest: versions 0-6, flexible 5+.
DescribeGroupsResponse: versions 0-6, flexible 5+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_array,
    read_bytes,
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    write_array,
    write_bytes,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_T = struct.Struct(">?")


class DescribeGroupsRequest(Message, gc=False, kw_only=True):
    """Asks for the state and the members of groups with the classic protocol; sent to their coordinator.

    groups: Groups to describe, by their group.id.
    include_authorized_operations: Whether the response lists the operations that the caller may perform on each
        group.
    """

    API_KEY = 15
    VALID_VERSIONS = range(7)
    FLEXIBLE_VERSIONS = range(5, 7)

    groups: list[str] = field(default_factory=list)  # []string, versions 0+
    include_authorized_operations: bool = False  # bool, versions 3+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 5
        buffer = out.buffer
        if version < 3 and self.include_authorized_operations:
            raise absent("include_authorized_operations")
        write_array(buffer, self.groups, flexible, write_string, flexible, "groups")
        if version >= 3:
            buffer += _T.pack(self.include_authorized_operations)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeGroupsRequest, int]:
        self = DescribeGroupsRequest()
        flexible = version >= 5
        if version >= 5:
            self.groups, at = read_array(data, at, flexible, 1, "groups", read_string, flexible, "groups")
        else:
            self.groups, at = read_array(data, at, flexible, 2, "groups", read_string, flexible, "groups")
        if version >= 3:
            (self.include_authorized_operations,) = _T.unpack_from(data, at)
            at += 1
        else:
            self.include_authorized_operations = False
        if version >= 5:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class DescribedGroupMember(Struct, gc=False, kw_only=True):
    """Members of the group.

    member_id: Id of the member, as given by the coordinator.
    group_instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member, which gets
        a new identity whenever it restarts.
    client_id: The member's client.id.
    client_host: Address from which the member joined, with a slash in front.
    member_metadata: Metadata that the member sent when it joined, for the chosen protocol; for consumers a
        ConsumerProtocolSubscription after an int16 version.
    member_assignment: The member's share of the work; for consumers a ConsumerProtocolAssignment with an int16
        version in front.
    """

    member_id: str = ""  # string, versions 0+
    group_instance_id: str | None = None  # string, versions 4+, nullable, ignorable
    client_id: str = ""  # string, versions 0+
    client_host: str = ""  # string, versions 0+
    member_metadata: bytes = b""  # bytes, versions 0+
    member_assignment: bytes = b""  # bytes, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribedGroupMember], out: Writer, version: int) -> None:
        flexible = version >= 5
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.member_id, flexible, "member_id")
            if version >= 4:
                write_nullable_string(buffer, self.group_instance_id, flexible, "group_instance_id")
            write_string(buffer, self.client_id, flexible, "client_id")
            write_string(buffer, self.client_host, flexible, "client_host")
            write_bytes(buffer, self.member_metadata, flexible, "member_metadata")
            write_bytes(buffer, self.member_assignment, flexible, "member_assignment")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribedGroupMember], int]:
        flexible = version >= 5
        found: list[DescribedGroupMember] = []
        for _ in range(count):
            self = DescribedGroupMember()
            self.member_id, at = read_string(data, at, flexible, "member_id")
            if version >= 4:
                self.group_instance_id, at = read_nullable_string(data, at, flexible, "group_instance_id")
            else:
                self.group_instance_id = None
            self.client_id, at = read_string(data, at, flexible, "client_id")
            self.client_host, at = read_string(data, at, flexible, "client_host")
            self.member_metadata, at = read_bytes(data, at, flexible, "member_metadata")
            self.member_assignment, at = read_bytes(data, at, flexible, "member_assignment")
            if version >= 5:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribedGroup(Struct, gc=False, kw_only=True):
    """One entry per group.

    error_code: Error of this group; 0 means none. An unknown group is in state Dead with error 0 up to version 5,
        and error 69 from version 6 on.
    error_message: Error message; null without an error, or if the broker sends none.
    group_id: Group by its group.id, as its members are configured.
    group_state: Empty, PreparingRebalance, CompletingRebalance (AwaitingSync before 1.0), Stable or Dead; empty text
        with an error.
    protocol_type: Kind of group: consumer, connect, or whatever its members named; empty if it has none.
    protocol_data: Way in which the work is shared out, such as range; empty unless the group is stable.
    members: Members of the group.
    authorized_operations: Operations that the caller may perform on the group: bit n stands for ACL operation number
        n. -2147483648 if not requested.
    """

    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 6+, nullable
    group_id: str = ""  # string, versions 0+
    group_state: str = ""  # string, versions 0+
    protocol_type: str = ""  # string, versions 0+
    protocol_data: str = ""  # string, versions 0+
    members: list[DescribedGroupMember] = field(default_factory=list)  # []DescribedGroupMember, versions 0+
    authorized_operations: int = -2147483648  # int32, versions 3+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribedGroup], out: Writer, version: int) -> None:
        flexible = version >= 5
        buffer = out.buffer
        for self in structs:
            if version < 6 and self.error_message is not None:
                raise absent("error_message")
            if version < 3 and self.authorized_operations != -2147483648:
                raise absent("authorized_operations")
            buffer += _H.pack(self.error_code)
            if version >= 6:
                write_nullable_string(buffer, self.error_message, flexible, "error_message")
            write_string(buffer, self.group_id, flexible, "group_id")
            write_string(buffer, self.group_state, flexible, "group_state")
            write_string(buffer, self.protocol_type, flexible, "protocol_type")
            write_string(buffer, self.protocol_data, flexible, "protocol_data")
            write_structs(out, self.members, flexible, DescribedGroupMember._write_each, version)
            if version >= 3:
                buffer += _I.pack(self.authorized_operations)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribedGroup], int]:
        flexible = version >= 5
        found: list[DescribedGroup] = []
        for _ in range(count):
            self = DescribedGroup()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            if version >= 6:
                self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
            else:
                self.error_message = None
            self.group_id, at = read_string(data, at, flexible, "group_id")
            self.group_state, at = read_string(data, at, flexible, "group_state")
            self.protocol_type, at = read_string(data, at, flexible, "protocol_type")
            self.protocol_data, at = read_string(data, at, flexible, "protocol_data")
            self.members, at = read_structs(data, at, flexible, 7, "members", DescribedGroupMember._read_each, version)
            if version >= 3:
                (self.authorized_operations,) = _I.unpack_from(data, at)
                at += 4
            else:
                self.authorized_operations = -2147483648
            if version >= 5:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeGroupsResponse(Message, gc=False, kw_only=True):
    """State, members and assignments of each group.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 1 the broker
        held this response back for that long; from version 2 on it answers at once and the client does the waiting.
    groups: One entry per group.
    """

    API_KEY = 15
    VALID_VERSIONS = range(7)
    FLEXIBLE_VERSIONS = range(5, 7)

    throttle_time_ms: int = 0  # int32, versions 1+, ignorable
    groups: list[DescribedGroup] = field(default_factory=list)  # []DescribedGroup, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 5
        buffer = out.buffer
        if version >= 1:
            buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.groups, flexible, DescribedGroup._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeGroupsResponse, int]:
        self = DescribeGroupsResponse()
        flexible = version >= 5
        if version >= 1:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.throttle_time_ms = 0
        self.groups, at = read_structs(data, at, flexible, 12, "groups", DescribedGroup._read_each, version)
        if version >= 5:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
