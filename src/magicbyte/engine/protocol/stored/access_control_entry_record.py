"""Generated from AccessControlEntryRecord.json. Do not edit: the schema compiler makes it.

AccessControlEntryRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from uuid import UUID

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_string,
    read_unknown_tags,
    read_uuid,
    write_string,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_B = struct.Struct(">b")
_BB = struct.Struct(">bb")


class AccessControlEntryRecord(Message, gc=False, kw_only=True):
    """In the metadata log: an ACL was added.

    id: Random id, by which it is removed.
    resource_type: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user.
    resource_name: Name of the resource, or its prefix.
    pattern_type: 3: the name is whole; 4: it is a prefix.
    principal: Who, such as User:alice.
    host: From where; *: from anywhere.
    operation: What is allowed or denied.
    permission_type: 2 deny, 3 allow.
    """

    API_KEY = 18
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    id: UUID = NULL_UUID  # uuid, versions 0+
    resource_type: int = 0  # int8, versions 0+
    resource_name: str = ""  # string, versions 0+
    pattern_type: int = 0  # int8, versions 0+
    principal: str = ""  # string, versions 0+
    host: str = ""  # string, versions 0+
    operation: int = 0  # int8, versions 0+
    permission_type: int = 0  # int8, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_uuid(buffer, self.id)
        buffer += _B.pack(self.resource_type)
        write_string(buffer, self.resource_name, True, "resource_name")
        buffer += _B.pack(self.pattern_type)
        write_string(buffer, self.principal, True, "principal")
        write_string(buffer, self.host, True, "host")
        buffer += _BB.pack(self.operation, self.permission_type)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AccessControlEntryRecord, int]:
        self = AccessControlEntryRecord()
        self.id, at = read_uuid(data, at)
        (self.resource_type,) = _B.unpack_from(data, at)
        at += 1
        self.resource_name, at = read_string(data, at, True, "resource_name")
        (self.pattern_type,) = _B.unpack_from(data, at)
        at += 1
        self.principal, at = read_string(data, at, True, "principal")
        self.host, at = read_string(data, at, True, "host")
        self.operation, self.permission_type = _BB.unpack_from(data, at)
        at += 2
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
