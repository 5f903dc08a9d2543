"""Generated from EnvelopeRequest.json and EnvelopeResponse.json. Do not edit: the schema compiler makes it.

EnvelopeRequest: version 0, flexible 0+.
EnvelopeResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import (
    read_bytes,
    read_nullable_bytes,
    read_nullable_view,
    read_unknown_tags,
    read_view,
    write_bytes,
    write_nullable_bytes,
    write_nullable_records,
    write_records,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Records, Tags, Writer

_H = struct.Struct(">h")


class EnvelopeRequest(Message, gc=False, kw_only=True):
    """A client's request that a broker passes on to the controller, with the client's identity.

    request_data: The client's whole request, header included.
    request_principal: Principal of the client: a DefaultPrincipalData after an int16 version, unless the principal
        builder has its own format; null if there is none.
    client_host_address: The client's IP address, 4 or 16 bytes.
    """

    API_KEY = 58
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    request_data: Records = b""  # bytes, versions 0+
    request_principal: bytes | None = b""  # bytes, versions 0+, nullable
    client_host_address: bytes = b""  # bytes, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_records(out, self.request_data, True, "request_data")
        write_nullable_bytes(buffer, self.request_principal, True, "request_principal")
        write_bytes(buffer, self.client_host_address, True, "client_host_address")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[EnvelopeRequest, int]:
        self = EnvelopeRequest()
        self.request_data, at = read_view(data, at, True, "request_data")
        self.request_principal, at = read_nullable_bytes(data, at, True, "request_principal")
        self.client_host_address, at = read_bytes(data, at, True, "client_host_address")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class EnvelopeResponse(Message, gc=False, kw_only=True):
    """The controller's answer to a request that was passed on.

    response_data: The whole response, header included; null with an error.
    error_code: Error of the passing on itself; 0 means none. 41 says that this is not the active controller.
    """

    API_KEY = 58
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    response_data: Records | None = None  # bytes, versions 0+, nullable
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_nullable_records(out, self.response_data, True)
        buffer += _H.pack(self.error_code)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[EnvelopeResponse, int]:
        self = EnvelopeResponse()
        self.response_data, at = read_nullable_view(data, at, True, "response_data")
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
