"""Generated from UserScramCredentialRecord.json. Do not edit: the schema compiler makes it.

UserScramCredentialRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import (
    read_bytes,
    read_string,
    read_unknown_tags,
    write_bytes,
    write_string,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_B = struct.Struct(">b")
_I = struct.Struct(">i")


class UserScramCredentialRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a user has a credential for a mechanism.

    name: Name of the user.
    mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    salt: Salt of the password.
    stored_key: Hash of the client's key.
    server_key: Key with which the server proves that it knows the credential.
    iterations: Rounds of hashing.
    """

    API_KEY = 11
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    name: str = ""  # string, versions 0+
    mechanism: int = 0  # int8, versions 0+
    salt: bytes = b""  # bytes, versions 0+
    stored_key: bytes = b""  # bytes, versions 0+
    server_key: bytes = b""  # bytes, versions 0+
    iterations: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.name, True, "name")
        buffer += _B.pack(self.mechanism)
        write_bytes(buffer, self.salt, True, "salt")
        write_bytes(buffer, self.stored_key, True, "stored_key")
        write_bytes(buffer, self.server_key, True, "server_key")
        buffer += _I.pack(self.iterations)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[UserScramCredentialRecord, int]:
        self = UserScramCredentialRecord()
        self.name, at = read_string(data, at, True, "name")
        (self.mechanism,) = _B.unpack_from(data, at)
        at += 1
        self.salt, at = read_bytes(data, at, True, "salt")
        self.stored_key, at = read_bytes(data, at, True, "stored_key")
        self.server_key, at = read_bytes(data, at, True, "server_key")
        (self.iterations,) = _I.unpack_from(data, at)
        at += 4
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
