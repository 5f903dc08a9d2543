"""Generated from SaslAuthenticateRequest.json and SaslAuthenticateResponse.json. Do not edit: the schema compiler makes

it.
SaslAuthenticateRequest: versions 0-2, flexible 2+.
SaslAuthenticateResponse: versions 0-2, flexible 2+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import (
    read_bytes,
    read_nullable_string,
    read_unknown_tags,
    write_bytes,
    write_nullable_string,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_Q = struct.Struct(">q")


class SaslAuthenticateRequest(Message, gc=False, kw_only=True):
    """Carries one SASL token to the broker, after a handshake of version 1.

    auth_bytes: The token, as the mechanism defines it.
    """

    API_KEY = 36
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(2, 3)

    auth_bytes: bytes = b""  # bytes, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        write_bytes(buffer, self.auth_bytes, flexible, "auth_bytes")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[SaslAuthenticateRequest, int]:
        self = SaslAuthenticateRequest()
        flexible = version >= 2
        self.auth_bytes, at = read_bytes(data, at, flexible, "auth_bytes")
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class SaslAuthenticateResponse(Message, gc=False, kw_only=True):
    """Carries the broker's SASL token back.

    error_code: Error; 0 means that this step went well. 58 says that authentication failed, after which the broker
        closes the connection.
    error_message: Error message; null without an error, or if the broker sends none.
    auth_bytes: The broker's token, as the mechanism defines it; may be empty.
    session_lifetime_ms: Milliseconds after which the client has to authenticate again on this connection; 0 means
        never.
    """

    API_KEY = 36
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(2, 3)

    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    auth_bytes: bytes = b""  # bytes, versions 0+
    session_lifetime_ms: int = 0  # int64, versions 1+, ignorable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        buffer += _H.pack(self.error_code)
        write_nullable_string(buffer, self.error_message, flexible, "error_message")
        write_bytes(buffer, self.auth_bytes, flexible, "auth_bytes")
        if version >= 1:
            buffer += _Q.pack(self.session_lifetime_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[SaslAuthenticateResponse, int]:
        self = SaslAuthenticateResponse()
        flexible = version >= 2
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
        self.auth_bytes, at = read_bytes(data, at, flexible, "auth_bytes")
        if version >= 1:
            (self.session_lifetime_ms,) = _Q.unpack_from(data, at)
            at += 8
        else:
            self.session_lifetime_ms = 0
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
