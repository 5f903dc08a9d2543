"""Generated from DeleteTopicsRequest.json and DeleteTopicsResponse.json. Do not edit: the schema compiler makes it.

DeleteTopicsRequest: versions 0-6, flexible 4+; deprecated 0.
DeleteTopicsResponse: versions 0-6, flexible 4+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    absent,
    present,
    read_array,
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_array,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")


class DeleteTopicState(Struct, gc=False, kw_only=True):
    """Topics to delete.

    name: Name of the topic; null if the id is given.
    topic_id: Id of the topic; all zeros if the name is given.
    """

    name: str | None = None  # string, versions 6+, nullable
    topic_id: UUID = NULL_UUID  # uuid, versions 6+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DeleteTopicState], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_nullable_string(buffer, self.name, True, "name")
            write_uuid(buffer, self.topic_id)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DeleteTopicState], int]:
        found: list[DeleteTopicState] = []
        for _ in range(count):
            self = DeleteTopicState()
            self.name, at = read_nullable_string(data, at, True, "name")
            self.topic_id, at = read_uuid(data, at)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DeleteTopicsRequest(Message, gc=False, kw_only=True):
    """Deletes topics with all their records. By name, or from version 6 on also by id.

    topics: Topics to delete.
    topic_names: Topics to delete, by name.
    timeout_ms: Milliseconds to wait for the deletion; with 0 or less the answer does not wait.
    """

    API_KEY = 20
    VALID_VERSIONS = range(7)
    FLEXIBLE_VERSIONS = range(4, 7)

    topics: list[DeleteTopicState] = field(default_factory=list)  # []DeleteTopicState, versions 6+
    topic_names: list[str] = field(default_factory=list)  # []string, versions 0-5, ignorable
    timeout_ms: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version < 6 and len(self.topics) > 0:
            raise absent("topics")
        if version >= 6:
            write_structs(out, self.topics, flexible, DeleteTopicState._write_each, version)
        if version <= 5:
            write_array(buffer, self.topic_names, flexible, write_string, flexible, "topic_names")
        buffer += _I.pack(self.timeout_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DeleteTopicsRequest, int]:
        self = DeleteTopicsRequest()
        flexible = version >= 4
        if version >= 6:
            self.topics, at = read_structs(data, at, flexible, 18, "topics", DeleteTopicState._read_each, version)
        else:
            self.topics = []
        if version >= 6:
            self.topic_names = []
        elif version >= 4:
            self.topic_names, at = read_array(
                data,
                at,
                flexible,
                1,
                "topic_names",
                read_string,
                flexible,
                "topic_names",
            )
        else:
            self.topic_names, at = read_array(
                data,
                at,
                flexible,
                2,
                "topic_names",
                read_string,
                flexible,
                "topic_names",
            )
        (self.timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class DeletableTopicResult(Struct, gc=False, kw_only=True):
    """One result per topic.

    name: Name of the topic; null if it was requested by an id that is unknown or that the caller may not see.
    topic_id: Id of the topic; all zeros if it is not known.
    error_code: Error of this topic; 0 means deleted. 3 and 100 say that there is no such name or id, 73 that the
        brokers do not allow deletion.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    name: str | None = ""  # string, versions 0+, nullable 6+
    topic_id: UUID = NULL_UUID  # uuid, versions 6+, ignorable
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 5+, nullable, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DeletableTopicResult], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            if version >= 6:
                write_nullable_string(buffer, self.name, flexible, "name")
            else:
                write_string(buffer, present(self.name, "name"), flexible, "name")
            if version >= 6:
                write_uuid(buffer, self.topic_id)
            buffer += _H.pack(self.error_code)
            if version >= 5:
                write_nullable_string(buffer, self.error_message, flexible, "error_message")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DeletableTopicResult], int]:
        flexible = version >= 4
        found: list[DeletableTopicResult] = []
        for _ in range(count):
            self = DeletableTopicResult()
            if version >= 6:
                self.name, at = read_nullable_string(data, at, flexible, "name")
                self.topic_id, at = read_uuid(data, at)
            else:
                self.name, at = read_string(data, at, flexible, "name")
                self.topic_id = NULL_UUID
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            if version >= 5:
                self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
            else:
                self.error_message = None
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DeleteTopicsResponse(Message, gc=False, kw_only=True):
    """Result for each topic.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 1 the broker
        held this response back for that long; from version 2 on it answers at once and the client does the waiting.
    responses: One result per topic.
    """

    API_KEY = 20
    VALID_VERSIONS = range(7)
    FLEXIBLE_VERSIONS = range(4, 7)

    throttle_time_ms: int = 0  # int32, versions 1+, ignorable
    responses: list[DeletableTopicResult] = field(default_factory=list)  # []DeletableTopicResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version >= 1:
            buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.responses, flexible, DeletableTopicResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DeleteTopicsResponse, int]:
        self = DeleteTopicsResponse()
        flexible = version >= 4
        if version >= 1:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.throttle_time_ms = 0
        self.responses, at = read_structs(data, at, flexible, 4, "responses", DeletableTopicResult._read_each, version)
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
