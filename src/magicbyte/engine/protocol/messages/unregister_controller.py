"""Generated from UnregisterControllerRequest.json and UnregisterControllerResponse.json. Do not edit: the schema

compiler makes it.
UnregisterControllerRequest: version 0, flexible 0+.
UnregisterControllerResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_nullable_string, read_unknown_tags, write_nullable_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")


class UnregisterControllerRequest(Message, gc=False, kw_only=True):
    """Makes the quorum forget a controller that will not come back. KRaft only.

    controller_id: Controller to forget.
    """

    API_KEY = 94
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    controller_id: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.controller_id)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[UnregisterControllerRequest, int]:
        self = UnregisterControllerRequest()
        (self.controller_id,) = _I.unpack_from(data, at)
        at += 4
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class UnregisterControllerResponse(Message, gc=False, kw_only=True):
    """Whether the controller is forgotten.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error; 0 means forgotten. 136 says that there is no such controller.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    API_KEY = 94
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[UnregisterControllerResponse, int]:
        self = UnregisterControllerResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
