"""Generated from AlterShareGroupOffsetsRequest.json and AlterShareGroupOffsetsResponse.json. Do not edit: the schema

compiler makes it.
AlterShareGroupOffsetsRequest: version 0, flexible 0+.
AlterShareGroupOffsetsResponse: version 0, flexible 0+.
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

_IH = struct.Struct(">ih")
_IQ = struct.Struct(">iq")
_ROWS_IQ_COMPACT = Rows("iq", flexible=True)


class AlterShareGroupOffsetsRequestPartition(Struct, gc=False, kw_only=True):
    """New offsets, by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    start_offset: First offset that the group will read.
    """

    partition_index: int = 0  # int32, versions 0+
    start_offset: int = 0  # int64, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterShareGroupOffsetsRequestPartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IQ.pack(self.partition_index, self.start_offset)
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
    ) -> tuple[list[AlterShareGroupOffsetsRequestPartition], int]:
        found: list[AlterShareGroupOffsetsRequestPartition] = []
        for _ in range(count):
            self = AlterShareGroupOffsetsRequestPartition()
            self.partition_index, self.start_offset = _IQ.unpack_from(data, at)
            at += 12
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(
        data: memoryview,
        at: int,
        most: int,
        version: int,
    ) -> tuple[list[AlterShareGroupOffsetsRequestPartition], int]:
        found: list[AlterShareGroupOffsetsRequestPartition] = []
        rows, at = _ROWS_IQ_COMPACT.read(data, at, most)
        for row in rows:
            partition_index, start_offset = row
            self = AlterShareGroupOffsetsRequestPartition(partition_index=partition_index, start_offset=start_offset)
            found.append(self)
        return found, at


class AlterShareGroupOffsetsRequestTopic(Struct, gc=False, kw_only=True):
    """New offsets, by topic.

    topic_name: Topic by its name, which is unique in the cluster.
    partitions: New offsets, by partition.
    """

    topic_name: str = ""  # string, versions 0+
    # []AlterShareGroupOffsetsRequestPartition, versions 0+
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterShareGroupOffsetsRequestTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, True, "topic_name")
            write_structs(out, self.partitions, True, AlterShareGroupOffsetsRequestPartition._write_each, version)
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
    ) -> tuple[list[AlterShareGroupOffsetsRequestTopic], int]:
        found: list[AlterShareGroupOffsetsRequestTopic] = []
        for _ in range(count):
            self = AlterShareGroupOffsetsRequestTopic()
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.partitions, at = read_rows(
                data,
                at,
                True,
                13,
                "partitions",
                AlterShareGroupOffsetsRequestPartition,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AlterShareGroupOffsetsRequest(Message, gc=False, kw_only=True):
    """Sets from which offsets a share group reads; it must be without members.

    group_id: Share group whose offsets change.
    topics: New offsets, by topic.
    """

    API_KEY = 91
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    group_id: str = ""  # string, versions 0+
    # []AlterShareGroupOffsetsRequestTopic, versions 0+
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, True, "group_id")
        write_structs(out, self.topics, True, AlterShareGroupOffsetsRequestTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterShareGroupOffsetsRequest, int]:
        self = AlterShareGroupOffsetsRequest()
        self.group_id, at = read_string(data, at, True, "group_id")
        self.topics, at = read_structs(
            data,
            at,
            True,
            3,
            "topics",
            AlterShareGroupOffsetsRequestTopic._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class AlterShareGroupOffsetsResponsePartition(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterShareGroupOffsetsResponsePartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition_index, self.error_code)
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
    ) -> tuple[list[AlterShareGroupOffsetsResponsePartition], int]:
        found: list[AlterShareGroupOffsetsResponsePartition] = []
        for _ in range(count):
            self = AlterShareGroupOffsetsResponsePartition()
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AlterShareGroupOffsetsResponseTopic(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_name: Topic by its name, which is unique in the cluster.
    topic_id: Id of the topic; all zeros if there is no such topic.
    partitions: Results by partition.
    """

    topic_name: str = ""  # string, versions 0+
    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    # []AlterShareGroupOffsetsResponsePartition, versions 0+
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterShareGroupOffsetsResponseTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, True, "topic_name")
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, AlterShareGroupOffsetsResponsePartition._write_each, version)
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
    ) -> tuple[list[AlterShareGroupOffsetsResponseTopic], int]:
        found: list[AlterShareGroupOffsetsResponseTopic] = []
        for _ in range(count):
            self = AlterShareGroupOffsetsResponseTopic()
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_structs(
                data,
                at,
                True,
                8,
                "partitions",
                AlterShareGroupOffsetsResponsePartition._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AlterShareGroupOffsetsResponse(Message, gc=False, kw_only=True):
    """Which offsets were set.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    responses: Results by topic.
    """

    API_KEY = 91
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    # []AlterShareGroupOffsetsResponseTopic, versions 0+
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        write_structs(out, self.responses, True, AlterShareGroupOffsetsResponseTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterShareGroupOffsetsResponse, int]:
        self = AlterShareGroupOffsetsResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.responses, at = read_structs(
            data,
            at,
            True,
            19,
            "responses",
            AlterShareGroupOffsetsResponseTopic._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
