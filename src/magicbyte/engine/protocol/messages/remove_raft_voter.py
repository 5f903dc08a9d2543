"""Generated from RemoveRaftVoterRequest.json and RemoveRaftVoterResponse.json. Do not edit: the schema compiler makes

it.
RemoveRaftVoterRequest: version 0, flexible 0+.
RemoveRaftVoterResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from uuid import UUID

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_nullable_string,
    read_unknown_tags,
    read_uuid,
    write_nullable_string,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")


class RemoveRaftVoterRequest(Message, gc=False, kw_only=True):
    """Takes a controller out of the voters of the KRaft quorum.

    cluster_id: Id of the cluster; null skips the check.
    voter_id: Node id of the voter.
    voter_directory_id: Id of the directory in which it keeps the log.
    """

    API_KEY = 81
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    cluster_id: str | None = ""  # string, versions 0+, nullable
    voter_id: int = 0  # int32, versions 0+
    voter_directory_id: UUID = NULL_UUID  # uuid, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_nullable_string(buffer, self.cluster_id, True, "cluster_id")
        buffer += _I.pack(self.voter_id)
        write_uuid(buffer, self.voter_directory_id)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[RemoveRaftVoterRequest, int]:
        self = RemoveRaftVoterRequest()
        self.cluster_id, at = read_nullable_string(data, at, True, "cluster_id")
        (self.voter_id,) = _I.unpack_from(data, at)
        at += 4
        self.voter_directory_id, at = read_uuid(data, at)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class RemoveRaftVoterResponse(Message, gc=False, kw_only=True):
    """Whether the voter was removed.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error; 0 means removed. 127 says that there is no such voter, 41 that another controller leads.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    API_KEY = 81
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable, ignorable
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
    def _read(data: memoryview, at: int, version: int) -> tuple[RemoveRaftVoterResponse, int]:
        self = RemoveRaftVoterResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
