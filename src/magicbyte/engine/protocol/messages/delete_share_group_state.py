"""Generated from DeleteShareGroupStateRequest.json and DeleteShareGroupStateResponse.json. Do not edit: the schema

compiler makes it.
DeleteShareGroupStateRequest: version 0, flexible 0+.
DeleteShareGroupStateResponse: version 0, flexible 0+.
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
from magicbyte.engine.protocol.rows import Rows, read_rows

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_ROWS_I_COMPACT = Rows("i", flexible=True)


class PartitionData(Struct, gc=False, kw_only=True):
    """Partitions to forget.

    partition: Number of the partition within its topic, counted from 0.
    """

    partition: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.partition)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionData], int]:
        found: list[PartitionData] = []
        for _ in range(count):
            self = PartitionData()
            (self.partition,) = _I.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[PartitionData], int]:
        found: list[PartitionData] = []
        rows, at = _ROWS_I_COMPACT.read(data, at, most)
        for row in rows:
            (partition,) = row
            self = PartitionData(partition=partition)
            found.append(self)
        return found, at


class DeleteStateData(Struct, gc=False, kw_only=True):
    """Partitions to forget, by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Partitions to forget.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: list[PartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DeleteStateData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, PartitionData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DeleteStateData], int]:
        found: list[DeleteStateData] = []
        for _ in range(count):
            self = DeleteStateData()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_rows(data, at, True, 5, "partitions", PartitionData, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DeleteShareGroupStateRequest(Message, gc=False, kw_only=True):
    """Sent by a group coordinator to a share coordinator: forget the state of a share group's partitions.

    group_id: Id of the share group.
    topics: Partitions to forget, by topic.
    """

    API_KEY = 86
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    group_id: str = ""  # string, versions 0+
    topics: list[DeleteStateData] = field(default_factory=list)  # []DeleteStateData, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, True, "group_id")
        write_structs(out, self.topics, True, DeleteStateData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DeleteShareGroupStateRequest, int]:
        self = DeleteShareGroupStateRequest()
        self.group_id, at = read_string(data, at, True, "group_id")
        self.topics, at = read_structs(data, at, True, 18, "topics", DeleteStateData._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class PartitionResult(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition: Number of the partition within its topic, counted from 0.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    partition: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition, self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionResult], int]:
        found: list[PartitionResult] = []
        for _ in range(count):
            self = PartitionResult()
            self.partition, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DeleteStateResult(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Results by partition.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: list[PartitionResult] = field(default_factory=list)  # []PartitionResult, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DeleteStateResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, PartitionResult._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DeleteStateResult], int]:
        found: list[DeleteStateResult] = []
        for _ in range(count):
            self = DeleteStateResult()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_structs(data, at, True, 8, "partitions", PartitionResult._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DeleteShareGroupStateResponse(Message, gc=False, kw_only=True):
    """Which partitions' state is gone.

    results: Results by topic.
    """

    API_KEY = 86
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    results: list[DeleteStateResult] = field(default_factory=list)  # []DeleteStateResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.results, True, DeleteStateResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DeleteShareGroupStateResponse, int]:
        self = DeleteShareGroupStateResponse()
        self.results, at = read_structs(data, at, True, 18, "results", DeleteStateResult._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
