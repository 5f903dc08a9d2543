"""Generated from EndTxnRequest.json and EndTxnResponse.json. Do not edit: the schema compiler makes it.

EndTxnRequest: versions 0-5, flexible 3+.
EndTxnResponse: versions 0-5, flexible 3+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_string, read_unknown_tags, write_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_IH = struct.Struct(">ih")
_IHQH = struct.Struct(">ihqh")
_QHT = struct.Struct(">qh?")


class EndTxnRequest(Message, gc=False, kw_only=True):
    """Commits or aborts a transaction. The answer comes once the decision is stored; the markers in the partitions
    follow.

    transactional_id: Name of the transaction.
    producer_id: Producer id that goes with the name.
    producer_epoch: Epoch that goes with the id; the coordinator refuses one lower than it knows.
    committed: True commits, false aborts.
    """

    API_KEY = 26
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(3, 6)

    transactional_id: str = ""  # string, versions 0+
    producer_id: int = 0  # int64, versions 0+
    producer_epoch: int = 0  # int16, versions 0+
    committed: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        write_string(buffer, self.transactional_id, flexible, "transactional_id")
        buffer += _QHT.pack(self.producer_id, self.producer_epoch, self.committed)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[EndTxnRequest, int]:
        self = EndTxnRequest()
        flexible = version >= 3
        self.transactional_id, at = read_string(data, at, flexible, "transactional_id")
        self.producer_id, self.producer_epoch, self.committed = _QHT.unpack_from(data, at)
        at += 11
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class EndTxnResponse(Message, gc=False, kw_only=True):
    """Whether the end of the transaction is decided, and the id and epoch with which the producer continues.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    error_code: Error; 0 means that the decision is stored. 48 says that there is nothing to end that way.
    producer_id: Producer id for the next transaction; another one once the epochs of the old are used up. -1 with an
        error.
    producer_epoch: Epoch for the next transaction, one higher than before; -1 with an error.
    """

    API_KEY = 26
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(3, 6)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    producer_id: int = -1  # int64, versions 5+, ignorable
    producer_epoch: int = -1  # int16, versions 5+, ignorable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        if version >= 5:
            buffer += _IHQH.pack(self.throttle_time_ms, self.error_code, self.producer_id, self.producer_epoch)
        else:
            buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[EndTxnResponse, int]:
        self = EndTxnResponse()
        if version >= 5:
            self.throttle_time_ms, self.error_code, self.producer_id, self.producer_epoch = _IHQH.unpack_from(data, at)
            at += 16
        else:
            self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.producer_id = -1
            self.producer_epoch = -1
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
