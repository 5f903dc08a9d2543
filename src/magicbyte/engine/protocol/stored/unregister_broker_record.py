"""Generated from UnregisterBrokerRecord.json. Do not edit: the schema compiler makes it.

UnregisterBrokerRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_IQ = struct.Struct(">iq")


class UnregisterBrokerRecord(Message, gc=False, kw_only=True):
    """In the metadata log: the registration of a broker was removed.

    broker_id: Node id of the broker.
    broker_epoch: Epoch of that registration.
    """

    API_KEY = 1
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    broker_id: int = 0  # int32, versions 0+
    broker_epoch: int = 0  # int64, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IQ.pack(self.broker_id, self.broker_epoch)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[UnregisterBrokerRecord, int]:
        self = UnregisterBrokerRecord()
        self.broker_id, self.broker_epoch = _IQ.unpack_from(data, at)
        at += 12
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
