"""Generated from CreateAclsRequest.json and CreateAclsResponse.json. Do not edit: the schema compiler makes it.

CreateAclsRequest: versions 0-3, flexible 2+; deprecated 0.
CreateAclsResponse: versions 0-3, flexible 2+.
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
_H = struct.Struct(">h")
_I = struct.Struct(">i")


class AclCreation(Struct, gc=False, kw_only=True):
    """Rules to add.

    resource_type: Kind of resource: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user
        (3+).
    resource_name: Name, or beginning of names, that the rule is for; * stands for all, kafka-cluster for the
        cluster.
    resource_pattern_type: 3 if the name is literal, 4 if it is a prefix of names. Version 0 knows literal rules
        only.
    principal: Principal, such as User:alice; User:* is every principal.
    host: Address that the caller must have; * is any.
    operation: 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10-11 describe and
        alter configs, 12 idempotent write, 13-14 create and describe tokens.
    permission_type: 2 deny, 3 allow; a denial wins.
    """

    resource_type: int = 0  # int8, versions 0+
    resource_name: str = ""  # string, versions 0+
    resource_pattern_type: int = 3  # int8, versions 1+
    principal: str = ""  # string, versions 0+
    host: str = ""  # string, versions 0+
    operation: int = 0  # int8, versions 0+
    permission_type: int = 0  # int8, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AclCreation], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            if version < 1 and self.resource_pattern_type != 3:
                raise absent("resource_pattern_type")
            buffer += _B.pack(self.resource_type)
            write_string(buffer, self.resource_name, flexible, "resource_name")
            if version >= 1:
                buffer += _B.pack(self.resource_pattern_type)
            write_string(buffer, self.principal, flexible, "principal")
            write_string(buffer, self.host, flexible, "host")
            buffer += _BB.pack(self.operation, self.permission_type)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AclCreation], int]:
        flexible = version >= 2
        found: list[AclCreation] = []
        for _ in range(count):
            self = AclCreation()
            (self.resource_type,) = _B.unpack_from(data, at)
            at += 1
            self.resource_name, at = read_string(data, at, flexible, "resource_name")
            if version >= 1:
                (self.resource_pattern_type,) = _B.unpack_from(data, at)
                at += 1
            else:
                self.resource_pattern_type = 3
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


class CreateAclsRequest(Message, gc=False, kw_only=True):
    """Adds access rules.

    creations: Rules to add.
    """

    API_KEY = 30
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    creations: list[AclCreation] = field(default_factory=list)  # []AclCreation, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        write_structs(out, self.creations, flexible, AclCreation._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[CreateAclsRequest, int]:
        self = CreateAclsRequest()
        flexible = version >= 2
        self.creations, at = read_structs(data, at, flexible, 8, "creations", AclCreation._read_each, version)
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class AclCreationResult(Struct, gc=False, kw_only=True):
    """One result for each rule, in the order of the request.

    error_code: Error of this rule; 0 means added. 54 says that the brokers have no authorizer.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AclCreationResult], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.error_message, flexible, "error_message")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AclCreationResult], int]:
        flexible = version >= 2
        found: list[AclCreationResult] = []
        for _ in range(count):
            self = AclCreationResult()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class CreateAclsResponse(Message, gc=False, kw_only=True):
    """Which rules were added.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    results: One result for each rule, in the order of the request.
    """

    API_KEY = 30
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    throttle_time_ms: int = 0  # int32, versions 0+
    results: list[AclCreationResult] = field(default_factory=list)  # []AclCreationResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.results, flexible, AclCreationResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[CreateAclsResponse, int]:
        self = CreateAclsResponse()
        flexible = version >= 2
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.results, at = read_structs(data, at, flexible, 4, "results", AclCreationResult._read_each, version)
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
