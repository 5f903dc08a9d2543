"""Generated from ResponseHeader.json. Do not edit: the schema compiler makes it.

ResponseHeader: versions 0-1, flexible 1+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")


class ResponseHeader(Message, gc=False, kw_only=True):
    """Comes before the body of every response. Version 1 goes with flexible response versions, except that ApiVersions
    always has version 0.

    correlation_id: The number from the header of the request that this answers.
    """

    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(1, 2)

    correlation_id: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        buffer += _I.pack(self.correlation_id)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ResponseHeader, int]:
        self = ResponseHeader()
        (self.correlation_id,) = _I.unpack_from(data, at)
        at += 4
        if version >= 1:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
