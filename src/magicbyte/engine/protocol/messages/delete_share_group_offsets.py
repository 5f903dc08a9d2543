"""Generated from DeleteShareGroupOffsetsRequest.json and DeleteShareGroupOffsetsResponse.json. Do not edit: the schema

compiler makes it.
DeleteShareGroupOffsetsRequest: version 0, flexible 0+.
DeleteShareGroupOffsetsResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_IH = struct.Struct(">ih")


class DeleteShareGroupOffsetsRequestTopic(Struct, gc=False, kw_only=True):
    """Topics whose offsets are deleted.

    topic_name: Topic by its name, which is unique in the cluster.
    """

    topic_name: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DeleteShareGroupOffsetsRequestTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, True, "topic_name")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[DeleteShareGroupOffsetsRequestTopic], int]:
        found: list[DeleteShareGroupOffsetsRequestTopic] = []
        for _ in range(count):
            self = DeleteShareGroupOffsetsRequestTopic()
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DeleteShareGroupOffsetsRequest(Message, gc=False, kw_only=True):
    """Deletes a share group's offsets of whole topics; it must be without members.

    group_id: Share group whose offsets are deleted.
    topics: Topics whose offsets are deleted.
    """

    API_KEY = 92
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    group_id: str = ""  # string, versions 0+
    # []DeleteShareGroupOffsetsRequestTopic, versions 0+
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, True, "group_id")
        write_structs(out, self.topics, True, DeleteShareGroupOffsetsRequestTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DeleteShareGroupOffsetsRequest, int]:
        self = DeleteShareGroupOffsetsRequest()
        self.group_id, at = read_string(data, at, True, "group_id")
        self.topics, at = read_structs(
            data,
            at,
            True,
            2,
            "topics",
            DeleteShareGroupOffsetsRequestTopic._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class DeleteShareGroupOffsetsResponseTopic(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_name: Topic by its name, which is unique in the cluster.
    topic_id: Id of the topic; all zeros if there is no such topic.
    error_code: Error of this topic; 0 means deleted.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    topic_name: str = ""  # string, versions 0+
    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DeleteShareGroupOffsetsResponseTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, True, "topic_name")
            write_uuid(buffer, self.topic_id)
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[DeleteShareGroupOffsetsResponseTopic], int]:
        found: list[DeleteShareGroupOffsetsResponseTopic] = []
        for _ in range(count):
            self = DeleteShareGroupOffsetsResponseTopic()
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.topic_id, at = read_uuid(data, at)
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DeleteShareGroupOffsetsResponse(Message, gc=False, kw_only=True):
    """Which offsets were deleted.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    responses: Results by topic.
    """

    API_KEY = 92
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    # []DeleteShareGroupOffsetsResponseTopic, versions 0+
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        write_structs(out, self.responses, True, DeleteShareGroupOffsetsResponseTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DeleteShareGroupOffsetsResponse, int]:
        self = DeleteShareGroupOffsetsResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.responses, at = read_structs(
            data,
            at,
            True,
            21,
            "responses",
            DeleteShareGroupOffsetsResponseTopic._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
