"""Generated from SnapshotFooterRecord.json. Do not edit: the schema compiler makes it.

SnapshotFooterRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")


class SnapshotFooterRecord(Message, gc=False, kw_only=True):
    """Control record that ends a snapshot; a snapshot without it is not whole.

    version: Version of this record's form.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    version: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _H.pack(self.version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[SnapshotFooterRecord, int]:
        self = SnapshotFooterRecord()
        (self.version,) = _H.unpack_from(data, at)
        at += 2
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
