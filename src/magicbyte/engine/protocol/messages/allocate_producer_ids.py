"""Generated from AllocateProducerIdsRequest.json and AllocateProducerIdsResponse.json. Do not edit: the schema compiler

makes it.
AllocateProducerIdsRequest: version 0, flexible 0+.
AllocateProducerIdsResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_IHQI = struct.Struct(">ihqi")
_IQ = struct.Struct(">iq")


class AllocateProducerIdsRequest(Message, gc=False, kw_only=True):
    """Sent by a broker to the controller: get a block of producer ids, to give them to producers one by one.

    broker_id: Broker that asks.
    broker_epoch: Epoch of that broker's registration; -1 if it has none.
    """

    API_KEY = 67
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    broker_id: int = 0  # int32, versions 0+
    broker_epoch: int = -1  # int64, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IQ.pack(self.broker_id, self.broker_epoch)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AllocateProducerIdsRequest, int]:
        self = AllocateProducerIdsRequest()
        self.broker_id, self.broker_epoch = _IQ.unpack_from(data, at)
        at += 12
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class AllocateProducerIdsResponse(Message, gc=False, kw_only=True):
    """A block of producer ids that no other broker gets.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    producer_id_start: First id of the block.
    producer_id_len: Number of ids in the block.
    """

    API_KEY = 67
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    producer_id_start: int = 0  # int64, versions 0+
    producer_id_len: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IHQI.pack(self.throttle_time_ms, self.error_code, self.producer_id_start, self.producer_id_len)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AllocateProducerIdsResponse, int]:
        self = AllocateProducerIdsResponse()
        (
            self.throttle_time_ms,
            self.error_code,
            self.producer_id_start,
            self.producer_id_len,
        ) = _IHQI.unpack_from(data, at)
        at += 18
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
