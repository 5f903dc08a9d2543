"""Generated from UnregisterControllerRecord.json. Do not edit: the schema compiler makes it.

UnregisterControllerRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")


class UnregisterControllerRecord(Message, gc=False, kw_only=True):
    """In the metadata log: the registration of a controller was removed.

    controller_id: Node id of the controller.
    """

    API_KEY = 29
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    controller_id: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.controller_id)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[UnregisterControllerRecord, int]:
        self = UnregisterControllerRecord()
        (self.controller_id,) = _I.unpack_from(data, at)
        at += 4
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
