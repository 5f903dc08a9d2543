"""Generated from FenceBrokerRecord.json. Do not edit: the schema compiler makes it.

FenceBrokerRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_IQ = struct.Struct(">iq")


class FenceBrokerRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a broker may no longer lead partitions.

    id: Node id of the broker.
    epoch: Epoch of its registration.
    """

    API_KEY = 7
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    id: int = 0  # int32, versions 0+
    epoch: int = 0  # int64, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IQ.pack(self.id, self.epoch)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[FenceBrokerRecord, int]:
        self = FenceBrokerRecord()
        self.id, self.epoch = _IQ.unpack_from(data, at)
        at += 12
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
