"""Generated from DelegationTokenRecord.json. Do not edit: the schema compiler makes it.

DelegationTokenRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from msgspec import field

from magicbyte.engine.protocol.fields import (
    read_array,
    read_string,
    read_unknown_tags,
    write_array,
    write_string,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_QQQ = struct.Struct(">qqq")


class DelegationTokenRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a delegation token was created or renewed. Its secret is derived, not stored.

    owner: Principal that the token stands for.
    requester: Principal that asked for it.
    renewers: Principals that may renew it.
    issue_timestamp: Time of creation, in ms.
    max_timestamp: Time from which on it cannot be renewed, in ms.
    expiration_timestamp: Time from which on it is invalid, in ms.
    token_id: Names the token; its secret follows from it.
    """

    API_KEY = 10
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    owner: str = ""  # string, versions 0+
    requester: str = ""  # string, versions 0+
    renewers: list[str] = field(default_factory=list)  # []string, versions 0+
    issue_timestamp: int = 0  # int64, versions 0+
    max_timestamp: int = 0  # int64, versions 0+
    expiration_timestamp: int = 0  # int64, versions 0+
    token_id: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.owner, True, "owner")
        write_string(buffer, self.requester, True, "requester")
        write_array(buffer, self.renewers, True, write_string, True, "renewers")
        buffer += _QQQ.pack(self.issue_timestamp, self.max_timestamp, self.expiration_timestamp)
        write_string(buffer, self.token_id, True, "token_id")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DelegationTokenRecord, int]:
        self = DelegationTokenRecord()
        self.owner, at = read_string(data, at, True, "owner")
        self.requester, at = read_string(data, at, True, "requester")
        self.renewers, at = read_array(data, at, True, 1, "renewers", read_string, True, "renewers")
        self.issue_timestamp, self.max_timestamp, self.expiration_timestamp = _QQQ.unpack_from(data, at)
        at += 24
        self.token_id, at = read_string(data, at, True, "token_id")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
