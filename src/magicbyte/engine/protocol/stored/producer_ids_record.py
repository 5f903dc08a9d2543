"""Generated from ProducerIdsRecord.json. Do not edit: the schema compiler makes it.

ProducerIdsRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_IQQ = struct.Struct(">iqq")


class ProducerIdsRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a broker has a block of producer ids.

    broker_id: Node id of the broker.
    broker_epoch: Epoch of its registration.
    next_producer_id: First id that no broker has.
    """

    API_KEY = 15
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    broker_id: int = 0  # int32, versions 0+
    broker_epoch: int = -1  # int64, versions 0+
    next_producer_id: int = 0  # int64, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IQQ.pack(self.broker_id, self.broker_epoch, self.next_producer_id)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ProducerIdsRecord, int]:
        self = ProducerIdsRecord()
        self.broker_id, self.broker_epoch, self.next_producer_id = _IQQ.unpack_from(data, at)
        at += 20
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
