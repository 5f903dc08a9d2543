"""Generated from AddOffsetsToTxnRequest.json and AddOffsetsToTxnResponse.json. Do not edit: the schema compiler makes

it.
AddOffsetsToTxnRequest: versions 0-4, flexible 3+.
AddOffsetsToTxnResponse: versions 0-4, flexible 3+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_string, read_unknown_tags, write_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_IH = struct.Struct(">ih")
_QH = struct.Struct(">qh")


class AddOffsetsToTxnRequest(Message, gc=False, kw_only=True):
    """Tells the transaction coordinator that the transaction is going to commit offsets of a group, so that it is
    marked in __consumer_offsets as well.

    transactional_id: Name of the transaction.
    producer_id: Producer id that goes with the name.
    producer_epoch: Epoch that goes with the id; the coordinator refuses one lower than it knows.
    group_id: Group whose offsets will be committed.
    """

    API_KEY = 25
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(3, 5)

    transactional_id: str = ""  # string, versions 0+
    producer_id: int = 0  # int64, versions 0+
    producer_epoch: int = 0  # int16, versions 0+
    group_id: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        write_string(buffer, self.transactional_id, flexible, "transactional_id")
        buffer += _QH.pack(self.producer_id, self.producer_epoch)
        write_string(buffer, self.group_id, flexible, "group_id")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AddOffsetsToTxnRequest, int]:
        self = AddOffsetsToTxnRequest()
        flexible = version >= 3
        self.transactional_id, at = read_string(data, at, flexible, "transactional_id")
        self.producer_id, self.producer_epoch = _QH.unpack_from(data, at)
        at += 10
        self.group_id, at = read_string(data, at, flexible, "group_id")
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class AddOffsetsToTxnResponse(Message, gc=False, kw_only=True):
    """Whether the group's offsets are part of the transaction now.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    """

    API_KEY = 25
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(3, 5)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AddOffsetsToTxnResponse, int]:
        self = AddOffsetsToTxnResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
