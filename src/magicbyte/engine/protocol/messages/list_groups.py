"""Generated from ListGroupsRequest.json and ListGroupsResponse.json. Do not edit: the schema compiler makes it.

ListGroupsRequest: versions 0-5, flexible 3+.
ListGroupsResponse: versions 0-5, flexible 3+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_array,
    read_string,
    read_structs,
    read_unknown_tags,
    write_array,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_IH = struct.Struct(">ih")


class ListGroupsRequest(Message, gc=False, kw_only=True):
    """Lists the groups that one broker coordinates; to list all, ask every broker.

    states_filter: Names of the states to list, such as Stable; empty lists groups in any state.
    types_filter: Kinds of group to list, such as classic, consumer or share; empty lists all kinds.
    """

    API_KEY = 16
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(3, 6)

    states_filter: list[str] = field(default_factory=list)  # []string, versions 4+
    types_filter: list[str] = field(default_factory=list)  # []string, versions 5+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        if version < 4 and len(self.states_filter) > 0:
            raise absent("states_filter")
        if version < 5 and len(self.types_filter) > 0:
            raise absent("types_filter")
        if version >= 4:
            write_array(buffer, self.states_filter, flexible, write_string, flexible, "states_filter")
        if version >= 5:
            write_array(buffer, self.types_filter, flexible, write_string, flexible, "types_filter")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ListGroupsRequest, int]:
        self = ListGroupsRequest()
        flexible = version >= 3
        if version >= 4:
            self.states_filter, at = read_array(
                data,
                at,
                flexible,
                1,
                "states_filter",
                read_string,
                flexible,
                "states_filter",
            )
        else:
            self.states_filter = []
        if version >= 5:
            self.types_filter, at = read_array(
                data,
                at,
                flexible,
                1,
                "types_filter",
                read_string,
                flexible,
                "types_filter",
            )
        else:
            self.types_filter = []
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class ListedGroup(Struct, gc=False, kw_only=True):
    """One entry per group.

    group_id: Group by its group.id, as its members are configured.
    protocol_type: Kind of members that the group has, such as consumer or connect.
    group_state: State of the group by name, such as Stable or Empty.
    group_type: Group protocol in use: classic, consumer, share or streams.
    """

    group_id: str = ""  # string, versions 0+
    protocol_type: str = ""  # string, versions 0+
    group_state: str = ""  # string, versions 4+, ignorable
    group_type: str = ""  # string, versions 5+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ListedGroup], out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.group_id, flexible, "group_id")
            write_string(buffer, self.protocol_type, flexible, "protocol_type")
            if version >= 4:
                write_string(buffer, self.group_state, flexible, "group_state")
            if version >= 5:
                write_string(buffer, self.group_type, flexible, "group_type")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ListedGroup], int]:
        flexible = version >= 3
        found: list[ListedGroup] = []
        for _ in range(count):
            self = ListedGroup()
            self.group_id, at = read_string(data, at, flexible, "group_id")
            self.protocol_type, at = read_string(data, at, flexible, "protocol_type")
            if version >= 4:
                self.group_state, at = read_string(data, at, flexible, "group_state")
            else:
                self.group_state = ""
            if version >= 5:
                self.group_type, at = read_string(data, at, flexible, "group_type")
            else:
                self.group_type = ""
            if version >= 3:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class ListGroupsResponse(Message, gc=False, kw_only=True):
    """The groups that the broker coordinates.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 1 the broker
        held this response back for that long; from version 2 on it answers at once and the client does the waiting.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    groups: One entry per group.
    """

    API_KEY = 16
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(3, 6)

    throttle_time_ms: int = 0  # int32, versions 1+, ignorable
    error_code: int = 0  # int16, versions 0+
    groups: list[ListedGroup] = field(default_factory=list)  # []ListedGroup, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        if version >= 1:
            buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        else:
            buffer += _H.pack(self.error_code)
        write_structs(out, self.groups, flexible, ListedGroup._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ListGroupsResponse, int]:
        self = ListGroupsResponse()
        flexible = version >= 3
        if version >= 1:
            self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.throttle_time_ms = 0
        self.groups, at = read_structs(data, at, flexible, 3, "groups", ListedGroup._read_each, version)
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
