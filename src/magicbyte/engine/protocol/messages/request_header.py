"""Generated from RequestHeader.json. Do not edit: the schema compiler makes it.

RequestHeader: versions 0-2, flexible 2+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_nullable_string, read_unknown_tags, write_nullable_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_HHI = struct.Struct(">hhi")


class RequestHeader(Message, gc=False, kw_only=True):
    """Comes before the body of every request. Version 2 goes with flexible request versions, version 0 only with
    ControlledShutdown version 0.

    request_api_key: Number of the API that the body belongs to.
    request_api_version: Version of the API in which the body is written.
    correlation_id: Number chosen by the client, which the response repeats.
    client_id: Name that the client gave itself (client.id), for logs, metrics and quotas. Has the old string form
        even in flexible headers.
    """

    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(2, 3)

    request_api_key: int = 0  # int16, versions 0+
    request_api_version: int = 0  # int16, versions 0+
    correlation_id: int = 0  # int32, versions 0+
    client_id: str | None = ""  # string, versions 1+, nullable, ignorable, flexible none
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        buffer += _HHI.pack(self.request_api_key, self.request_api_version, self.correlation_id)
        if version >= 1:
            write_nullable_string(buffer, self.client_id, False, "client_id")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[RequestHeader, int]:
        self = RequestHeader()
        self.request_api_key, self.request_api_version, self.correlation_id = _HHI.unpack_from(data, at)
        at += 8
        if version >= 1:
            self.client_id, at = read_nullable_string(data, at, False, "client_id")
        else:
            self.client_id = ""
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
