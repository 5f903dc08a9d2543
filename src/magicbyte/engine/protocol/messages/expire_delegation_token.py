"""Generated from ExpireDelegationTokenRequest.json and ExpireDelegationTokenResponse.json. Do not edit: the schema

compiler makes it.
ExpireDelegationTokenRequest: versions 0-2, flexible 2+; deprecated 0.
ExpireDelegationTokenResponse: versions 0-2, flexible 2+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_bytes, read_unknown_tags, write_bytes, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_HQI = struct.Struct(">hqi")
_Q = struct.Struct(">q")


class ExpireDelegationTokenRequest(Message, gc=False, kw_only=True):
    """Changes when a token ends, or ends it now.

    hmac: Secret of the token.
    expiry_time_period_ms: Milliseconds from now until the token ends; a negative number ends it at once.
    """

    API_KEY = 40
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(2, 3)

    hmac: bytes = b""  # bytes, versions 0+
    expiry_time_period_ms: int = 0  # int64, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        write_bytes(buffer, self.hmac, flexible, "hmac")
        buffer += _Q.pack(self.expiry_time_period_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ExpireDelegationTokenRequest, int]:
        self = ExpireDelegationTokenRequest()
        flexible = version >= 2
        self.hmac, at = read_bytes(data, at, flexible, "hmac")
        (self.expiry_time_period_ms,) = _Q.unpack_from(data, at)
        at += 8
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class ExpireDelegationTokenResponse(Message, gc=False, kw_only=True):
    """When the token ends.

    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    expiry_timestamp_ms: When the token ends, in milliseconds since 1970.
    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    """

    API_KEY = 40
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(2, 3)

    error_code: int = 0  # int16, versions 0+
    expiry_timestamp_ms: int = 0  # int64, versions 0+
    throttle_time_ms: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        buffer += _HQI.pack(self.error_code, self.expiry_timestamp_ms, self.throttle_time_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ExpireDelegationTokenResponse, int]:
        self = ExpireDelegationTokenResponse()
        self.error_code, self.expiry_timestamp_ms, self.throttle_time_ms = _HQI.unpack_from(data, at)
        at += 14
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
