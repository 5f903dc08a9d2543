"""Generated from CreatePartitionsRequest.json and CreatePartitionsResponse.json. Do not edit: the schema compiler makes

it.
CreatePartitionsRequest: versions 0-3, flexible 2+.
CreatePartitionsResponse: versions 0-3, flexible 2+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_string,
    read_nullable_structs,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_nullable_string,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IT = struct.Struct(">i?")


class CreatePartitionsAssignment(Struct, gc=False, kw_only=True):
    """Brokers for each new partition, in order; null lets the controller choose.

    broker_ids: Brokers that get a replica, the preferred leader first.
    """

    broker_ids: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[CreatePartitionsAssignment], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_numbers(buffer, self.broker_ids, flexible, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[CreatePartitionsAssignment], int]:
        flexible = version >= 2
        found: list[CreatePartitionsAssignment] = []
        for _ in range(count):
            self = CreatePartitionsAssignment()
            self.broker_ids, at = read_numbers(data, at, flexible, "i", "broker_ids")
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class CreatePartitionsTopic(Struct, gc=False, kw_only=True):
    """Topics that grow.

    name: Name of the topic.
    count: New total number of partitions.
    assignments: Brokers for each new partition, in order; null lets the controller choose.
    """

    name: str = ""  # string, versions 0+
    count: int = 0  # int32, versions 0+
    # []CreatePartitionsAssignment, versions 0+, nullable
    assignments: list[CreatePartitionsAssignment] | None = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[CreatePartitionsTopic], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            buffer += _I.pack(self.count)
            write_structs(out, self.assignments, flexible, CreatePartitionsAssignment._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[CreatePartitionsTopic], int]:
        flexible = version >= 2
        found: list[CreatePartitionsTopic] = []
        for _ in range(count):
            self = CreatePartitionsTopic()
            self.name, at = read_string(data, at, flexible, "name")
            (self.count,) = _I.unpack_from(data, at)
            at += 4
            self.assignments, at = read_nullable_structs(
                data,
                at,
                flexible,
                2,
                "assignments",
                CreatePartitionsAssignment._read_each,
                version,
            )
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class CreatePartitionsRequest(Message, gc=False, kw_only=True):
    """Gives topics more partitions. There is no way back, and keys may go to other partitions than before.

    topics: Topics that grow.
    timeout_ms: Milliseconds to wait for the partitions to be ready everywhere; with 0 or less the answer does not
        wait.
    validate_only: True only checks whether it could be done.
    """

    API_KEY = 37
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    topics: list[CreatePartitionsTopic] = field(default_factory=list)  # []CreatePartitionsTopic, versions 0+
    timeout_ms: int = 0  # int32, versions 0+
    validate_only: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        write_structs(out, self.topics, flexible, CreatePartitionsTopic._write_each, version)
        buffer += _IT.pack(self.timeout_ms, self.validate_only)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[CreatePartitionsRequest, int]:
        self = CreatePartitionsRequest()
        flexible = version >= 2
        self.topics, at = read_structs(data, at, flexible, 7, "topics", CreatePartitionsTopic._read_each, version)
        self.timeout_ms, self.validate_only = _IT.unpack_from(data, at)
        at += 5
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class CreatePartitionsTopicResult(Struct, gc=False, kw_only=True):
    """One result per topic.

    name: Name of the topic.
    error_code: Error of this topic; 0 means none. 37 says that the count is not higher than before, 60 that a
        reassignment is running.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    name: str = ""  # string, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[CreatePartitionsTopicResult], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.error_message, flexible, "error_message")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[CreatePartitionsTopicResult], int]:
        flexible = version >= 2
        found: list[CreatePartitionsTopicResult] = []
        for _ in range(count):
            self = CreatePartitionsTopicResult()
            self.name, at = read_string(data, at, flexible, "name")
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class CreatePartitionsResponse(Message, gc=False, kw_only=True):
    """Result for each topic.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    results: One result per topic.
    """

    API_KEY = 37
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    throttle_time_ms: int = 0  # int32, versions 0+
    # []CreatePartitionsTopicResult, versions 0+
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.results, flexible, CreatePartitionsTopicResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[CreatePartitionsResponse, int]:
        self = CreatePartitionsResponse()
        flexible = version >= 2
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.results, at = read_structs(
            data,
            at,
            flexible,
            5,
            "results",
            CreatePartitionsTopicResult._read_each,
            version,
        )
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
