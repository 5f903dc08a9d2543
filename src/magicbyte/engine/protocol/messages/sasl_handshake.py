"""Generated from SaslHandshakeRequest.json and SaslHandshakeResponse.json. Do not edit: the schema compiler makes it.

SaslHandshakeRequest: versions 0-1; deprecated 0.
SaslHandshakeResponse: versions 0-1.
"""

from __future__ import annotations

import struct

from msgspec import field

from magicbyte.engine.protocol.fields import read_array, read_string, write_array, write_string
from magicbyte.engine.protocol.message import Message, Writer

_H = struct.Struct(">h")


class SaslHandshakeRequest(Message, gc=False, kw_only=True):
    """Chooses how to authenticate. After version 0 bare SASL tokens follow on the connection; after version 1 they
    travel in SaslAuthenticate requests.

    mechanism: SASL mechanism, such as PLAIN, SCRAM-SHA-512, GSSAPI or OAUTHBEARER.
    """

    API_KEY = 17
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(0)

    mechanism: str = ""  # string, versions 0+

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.mechanism, False, "mechanism")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[SaslHandshakeRequest, int]:
        self = SaslHandshakeRequest()
        self.mechanism, at = read_string(data, at, False, "mechanism")
        return self, at


class SaslHandshakeResponse(Message, gc=False, kw_only=True):
    """Whether the broker accepts the mechanism.

    error_code: Error; 0 means success. 33 says that the mechanism is not enabled, 34 that this is no time for a
        handshake.
    mechanisms: Mechanisms that are enabled on this listener.
    """

    API_KEY = 17
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(0)

    error_code: int = 0  # int16, versions 0+
    mechanisms: list[str] = field(default_factory=list)  # []string, versions 0+

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _H.pack(self.error_code)
        write_array(buffer, self.mechanisms, False, write_string, False, "mechanisms")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[SaslHandshakeResponse, int]:
        self = SaslHandshakeResponse()
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        self.mechanisms, at = read_array(data, at, False, 2, "mechanisms", read_string, False, "mechanisms")
        return self, at
