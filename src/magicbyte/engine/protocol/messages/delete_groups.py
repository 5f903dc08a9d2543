"""Generated from DeleteGroupsRequest.json and DeleteGroupsResponse.json. Do not edit: the schema compiler makes it.

DeleteGroupsRequest: versions 0-3, flexible 2+; deprecated 0.
DeleteGroupsResponse: versions 0-3, flexible 2+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_array,
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    write_array,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")


class DeleteGroupsRequest(Message, gc=False, kw_only=True):
    """Deletes groups with their committed offsets; sent to their coordinator.

    groups_names: Ids of the groups; each must be without members.
    """

    API_KEY = 42
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    groups_names: list[str] = field(default_factory=list)  # []string, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        write_array(buffer, self.groups_names, flexible, write_string, flexible, "groups_names")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DeleteGroupsRequest, int]:
        self = DeleteGroupsRequest()
        flexible = version >= 2
        if version >= 2:
            self.groups_names, at = read_array(
                data,
                at,
                flexible,
                1,
                "groups_names",
                read_string,
                flexible,
                "groups_names",
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.groups_names, at = read_array(
                data,
                at,
                flexible,
                2,
                "groups_names",
                read_string,
                flexible,
                "groups_names",
            )
            self.unknown_tags = ()
        return self, at


class DeletableGroupResult(Struct, gc=False, kw_only=True):
    """One result per group.

    group_id: Group by its group.id, as its members are configured.
    error_code: Error of this group; 0 means deleted. 68 says that it has members, 69 that there is no such group.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    group_id: str = ""  # string, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 3+, nullable, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DeletableGroupResult], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.group_id, flexible, "group_id")
            buffer += _H.pack(self.error_code)
            if version >= 3:
                write_nullable_string(buffer, self.error_message, flexible, "error_message")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DeletableGroupResult], int]:
        flexible = version >= 2
        found: list[DeletableGroupResult] = []
        for _ in range(count):
            self = DeletableGroupResult()
            self.group_id, at = read_string(data, at, flexible, "group_id")
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            if version >= 3:
                self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
            else:
                self.error_message = None
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DeleteGroupsResponse(Message, gc=False, kw_only=True):
    """Result for each group.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    results: One result per group.
    """

    API_KEY = 42
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    throttle_time_ms: int = 0  # int32, versions 0+
    results: list[DeletableGroupResult] = field(default_factory=list)  # []DeletableGroupResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.results, flexible, DeletableGroupResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DeleteGroupsResponse, int]:
        self = DeleteGroupsResponse()
        flexible = version >= 2
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.results, at = read_structs(data, at, flexible, 4, "results", DeletableGroupResult._read_each, version)
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
