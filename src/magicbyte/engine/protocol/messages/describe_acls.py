"""Generated from DescribeAclsRequest.json and DescribeAclsResponse.json. Do not edit: the schema compiler makes it.

DescribeAclsRequest: versions 0-3, flexible 2+; deprecated 0.
DescribeAclsResponse: versions 0-3, flexible 2+.
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

_B = struct.Struct(">b")
_BB = struct.Struct(">bb")
_IH = struct.Struct(">ih")


class DescribeAclsRequest(Message, gc=False, kw_only=True):
    """Looks up access rules by a filter.

    resource_type_filter: Kind of resource: 1 any, 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation
        token, 7 user (3+).
    resource_name_filter: Name of the resource; null means any.
    pattern_type_filter: 1 any rule of that very name, 2 every rule that applies to a resource of that name, 3
        literal rules, 4 prefix rules. Version 0 knows literal rules only.
    principal_filter: Principal that the rule is about, such as User:alice; null means any.
    host_filter: Address that the rule is about; null means any.
    operation: 1 any, 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10-11
        describe and alter configs, 12 idempotent write, 13-14 create and describe tokens.
    permission_type: 1 any, 2 deny, 3 allow.
    """

    API_KEY = 29
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    resource_type_filter: int = 0  # int8, versions 0+
    resource_name_filter: str | None = ""  # string, versions 0+, nullable
    pattern_type_filter: int = 3  # int8, versions 1+
    principal_filter: str | None = ""  # string, versions 0+, nullable
    host_filter: str | None = ""  # string, versions 0+, nullable
    operation: int = 0  # int8, versions 0+
    permission_type: int = 0  # int8, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        if version < 1 and self.pattern_type_filter != 3:
            raise absent("pattern_type_filter")
        buffer += _B.pack(self.resource_type_filter)
        write_nullable_string(buffer, self.resource_name_filter, flexible, "resource_name_filter")
        if version >= 1:
            buffer += _B.pack(self.pattern_type_filter)
        write_nullable_string(buffer, self.principal_filter, flexible, "principal_filter")
        write_nullable_string(buffer, self.host_filter, flexible, "host_filter")
        buffer += _BB.pack(self.operation, self.permission_type)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeAclsRequest, int]:
        self = DescribeAclsRequest()
        flexible = version >= 2
        (self.resource_type_filter,) = _B.unpack_from(data, at)
        at += 1
        self.resource_name_filter, at = read_nullable_string(data, at, flexible, "resource_name_filter")
        if version >= 1:
            (self.pattern_type_filter,) = _B.unpack_from(data, at)
            at += 1
        else:
            self.pattern_type_filter = 3
        self.principal_filter, at = read_nullable_string(data, at, flexible, "principal_filter")
        self.host_filter, at = read_nullable_string(data, at, flexible, "host_filter")
        self.operation, self.permission_type = _BB.unpack_from(data, at)
        at += 2
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class AclDescription(Struct, gc=False, kw_only=True):
    """The rules.

    principal: Principal, such as User:alice; User:* is every principal.
    host: Address that the caller must have; * is any.
    operation: Operation: 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe and so on, with the numbers
        of the request.
    permission_type: 2 deny, 3 allow; a denial wins.
    """

    principal: str = ""  # string, versions 0+
    host: str = ""  # string, versions 0+
    operation: int = 0  # int8, versions 0+
    permission_type: int = 0  # int8, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AclDescription], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.principal, flexible, "principal")
            write_string(buffer, self.host, flexible, "host")
            buffer += _BB.pack(self.operation, self.permission_type)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AclDescription], int]:
        flexible = version >= 2
        found: list[AclDescription] = []
        for _ in range(count):
            self = AclDescription()
            self.principal, at = read_string(data, at, flexible, "principal")
            self.host, at = read_string(data, at, flexible, "host")
            self.operation, self.permission_type = _BB.unpack_from(data, at)
            at += 2
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeAclsResource(Struct, gc=False, kw_only=True):
    """Resources that have such rules.

    resource_type: Kind of resource: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user.
    resource_name: Name, or beginning of names, that the rules are for; * stands for all.
    pattern_type: 3 if the name is literal, 4 if it is a prefix of names.
    acls: The rules.
    """

    resource_type: int = 0  # int8, versions 0+
    resource_name: str = ""  # string, versions 0+
    pattern_type: int = 3  # int8, versions 1+
    acls: list[AclDescription] = field(default_factory=list)  # []AclDescription, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeAclsResource], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            if version < 1 and self.pattern_type != 3:
                raise absent("pattern_type")
            buffer += _B.pack(self.resource_type)
            write_string(buffer, self.resource_name, flexible, "resource_name")
            if version >= 1:
                buffer += _B.pack(self.pattern_type)
            write_structs(out, self.acls, flexible, AclDescription._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribeAclsResource], int]:
        flexible = version >= 2
        found: list[DescribeAclsResource] = []
        for _ in range(count):
            self = DescribeAclsResource()
            (self.resource_type,) = _B.unpack_from(data, at)
            at += 1
            self.resource_name, at = read_string(data, at, flexible, "resource_name")
            if version >= 1:
                (self.pattern_type,) = _B.unpack_from(data, at)
                at += 1
            else:
                self.pattern_type = 3
            self.acls, at = read_structs(data, at, flexible, 5, "acls", AclDescription._read_each, version)
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeAclsResponse(Message, gc=False, kw_only=True):
    """The rules that fit the filter.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    error_code: Error; 0 means none. 54 says that the brokers have no authorizer.
    error_message: Error message; null without an error, or if the broker sends none.
    resources: Resources that have such rules.
    """

    API_KEY = 29
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    resources: list[DescribeAclsResource] = field(default_factory=list)  # []DescribeAclsResource, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, flexible, "error_message")
        write_structs(out, self.resources, flexible, DescribeAclsResource._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeAclsResponse, int]:
        self = DescribeAclsResponse()
        flexible = version >= 2
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
        self.resources, at = read_structs(data, at, flexible, 5, "resources", DescribeAclsResource._read_each, version)
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
