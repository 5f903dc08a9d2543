"""Generated from HeartbeatRequest.json and HeartbeatResponse.json. Do not edit: the schema compiler makes it.

HeartbeatRequest: versions 0-4, flexible 4+.
HeartbeatResponse: versions 0-4, flexible 4+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import (
    absent,
    read_nullable_string,
    read_string,
    read_unknown_tags,
    write_nullable_string,
    write_string,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")


class HeartbeatRequest(Message, gc=False, kw_only=True):
    """Tells the coordinator that a group member is alive, and learns whether a rebalance is under way.

    group_id: Group of the member.
    generation_id: Generation that the member is in.
    member_id: Id of the member, as given when it joined.
    group_instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member, which gets
        a new identity whenever it restarts.
    """

    API_KEY = 12
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(4, 5)

    group_id: str = ""  # string, versions 0+
    generation_id: int = 0  # int32, versions 0+
    member_id: str = ""  # string, versions 0+
    group_instance_id: str | None = None  # string, versions 3+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version < 3 and self.group_instance_id is not None:
            raise absent("group_instance_id")
        write_string(buffer, self.group_id, flexible, "group_id")
        buffer += _I.pack(self.generation_id)
        write_string(buffer, self.member_id, flexible, "member_id")
        if version >= 3:
            write_nullable_string(buffer, self.group_instance_id, flexible, "group_instance_id")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[HeartbeatRequest, int]:
        self = HeartbeatRequest()
        flexible = version >= 4
        self.group_id, at = read_string(data, at, flexible, "group_id")
        (self.generation_id,) = _I.unpack_from(data, at)
        at += 4
        self.member_id, at = read_string(data, at, flexible, "member_id")
        if version >= 3:
            self.group_instance_id, at = read_nullable_string(data, at, flexible, "group_instance_id")
        else:
            self.group_instance_id = None
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class HeartbeatResponse(Message, gc=False, kw_only=True):
    """Whether the member may continue.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 1 the broker
        held this response back for that long; from version 2 on it answers at once and the client does the waiting.
    error_code: Error; 0 means success. 27 asks to join the rebalance, 22 and 25 to rejoin, 82 says that another
        instance took the static name.
    """

    API_KEY = 12
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(4, 5)

    throttle_time_ms: int = 0  # int32, versions 1+, ignorable
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version >= 1:
            buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        else:
            buffer += _H.pack(self.error_code)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[HeartbeatResponse, int]:
        self = HeartbeatResponse()
        if version >= 1:
            self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.throttle_time_ms = 0
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
