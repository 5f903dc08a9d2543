"""Generated from RemoveUserScramCredentialRecord.json. Do not edit: the schema compiler makes it.

RemoveUserScramCredentialRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_string, read_unknown_tags, write_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_B = struct.Struct(">b")


class RemoveUserScramCredentialRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a user no longer has a credential for a mechanism.

    name: Name of the user.
    mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    """

    API_KEY = 22
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    name: str = ""  # string, versions 0+
    mechanism: int = 0  # int8, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.name, True, "name")
        buffer += _B.pack(self.mechanism)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[RemoveUserScramCredentialRecord, int]:
        self = RemoveUserScramCredentialRecord()
        self.name, at = read_string(data, at, True, "name")
        (self.mechanism,) = _B.unpack_from(data, at)
        at += 1
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
