"""Generated from DefaultPrincipalData.json. Do not edit: the schema compiler makes it.

DefaultPrincipalData: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_string, read_unknown_tags, write_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_T = struct.Struct(">?")


class DefaultPrincipalData(Message, gc=False, kw_only=True):
    """Principal of a forwarded request: inside an Envelope, after an int16 version.

    type: Kind of the principal, such as User.
    name: Name of the principal, such as alice.
    token_authenticated: True if it logged in with a delegation token.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    type: str = ""  # string, versions 0+
    name: str = ""  # string, versions 0+
    token_authenticated: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.type, True, "type")
        write_string(buffer, self.name, True, "name")
        buffer += _T.pack(self.token_authenticated)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DefaultPrincipalData, int]:
        self = DefaultPrincipalData()
        self.type, at = read_string(data, at, True, "type")
        self.name, at = read_string(data, at, True, "name")
        (self.token_authenticated,) = _T.unpack_from(data, at)
        at += 1
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
