"""Generated from ControlRecordTypeSchema.json. Do not edit: the schema compiler makes it.

ControlRecordTypeSchema: version 0.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.message import Message, Writer

_H = struct.Struct(">h")


class ControlRecordTypeSchema(Message, gc=False, kw_only=True):
    """Key of a control record, after an int16 version: which kind it is. Control records lie in batches of their own,
    and clients do not see them.

    type: 0 abort marker, 1 commit marker, 2 leader change, 3 snapshot header, 4 snapshot footer, 5 KRaft version, 6
        KRaft voters.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(0)

    type: int = 0  # int16, versions 0+

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _H.pack(self.type)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ControlRecordTypeSchema, int]:
        self = ControlRecordTypeSchema()
        (self.type,) = _H.unpack_from(data, at)
        at += 2
        return self, at
