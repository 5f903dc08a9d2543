"""Generated from DescribeShareGroupOffsetsRequest.json and DescribeShareGroupOffsetsResponse.json. Do not edit: the

schema compiler makes it.
DescribeShareGroupOffsetsRequest: versions 0-1, flexible 0+.
DescribeShareGroupOffsetsResponse: versions 0-1, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_nullable_string,
    read_nullable_structs,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_nullable_string,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IQIH = struct.Struct(">iqih")
_IQIQH = struct.Struct(">iqiqh")


class DescribeShareGroupOffsetsRequestTopic(Struct, gc=False, kw_only=True):
    """Topics to look at; null means all that the group has offsets for.

    topic_name: Topic by its name, which is unique in the cluster.
    partitions: Numbers of the partitions to look at.
    """

    topic_name: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeShareGroupOffsetsRequestTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, True, "topic_name")
            write_numbers(buffer, self.partitions, True, "i")
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
    ) -> tuple[list[DescribeShareGroupOffsetsRequestTopic], int]:
        found: list[DescribeShareGroupOffsetsRequestTopic] = []
        for _ in range(count):
            self = DescribeShareGroupOffsetsRequestTopic()
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeShareGroupOffsetsRequestGroup(Struct, gc=False, kw_only=True):
    """Share groups to look at.

    group_id: Share group by its group.id, as its consumers are configured.
    topics: Topics to look at; null means all that the group has offsets for.
    """

    group_id: str = ""  # string, versions 0+
    # []DescribeShareGroupOffsetsRequestTopic, versions 0+, nullable
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeShareGroupOffsetsRequestGroup], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.group_id, True, "group_id")
            write_structs(out, self.topics, True, DescribeShareGroupOffsetsRequestTopic._write_each, version)
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
    ) -> tuple[list[DescribeShareGroupOffsetsRequestGroup], int]:
        found: list[DescribeShareGroupOffsetsRequestGroup] = []
        for _ in range(count):
            self = DescribeShareGroupOffsetsRequestGroup()
            self.group_id, at = read_string(data, at, True, "group_id")
            self.topics, at = read_nullable_structs(
                data,
                at,
                True,
                3,
                "topics",
                DescribeShareGroupOffsetsRequestTopic._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeShareGroupOffsetsRequest(Message, gc=False, kw_only=True):
    """Asks for the offsets of share groups; sent to their coordinator.

    groups: Share groups to look at.
    """

    API_KEY = 90
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    # []DescribeShareGroupOffsetsRequestGroup, versions 0+
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.groups, True, DescribeShareGroupOffsetsRequestGroup._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeShareGroupOffsetsRequest, int]:
        self = DescribeShareGroupOffsetsRequest()
        self.groups, at = read_structs(
            data,
            at,
            True,
            3,
            "groups",
            DescribeShareGroupOffsetsRequestGroup._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class DescribeShareGroupOffsetsResponsePartition(Struct, gc=False, kw_only=True):
    """Offsets by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    start_offset: First offset that is not yet done with; -1 if the group has not read from the partition.
    leader_epoch: Leader epoch of the partition, as last written.
    lag: Number of records that are not acknowledged yet; -1 if unknown.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    partition_index: int = 0  # int32, versions 0+
    start_offset: int = 0  # int64, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    lag: int = -1  # int64, versions 1+, ignorable
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeShareGroupOffsetsResponsePartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version >= 1:
                buffer += _IQIQH.pack(
                    self.partition_index,
                    self.start_offset,
                    self.leader_epoch,
                    self.lag,
                    self.error_code,
                )
            else:
                buffer += _IQIH.pack(self.partition_index, self.start_offset, self.leader_epoch, self.error_code)
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
    ) -> tuple[list[DescribeShareGroupOffsetsResponsePartition], int]:
        found: list[DescribeShareGroupOffsetsResponsePartition] = []
        for _ in range(count):
            self = DescribeShareGroupOffsetsResponsePartition()
            if version >= 1:
                (
                    self.partition_index,
                    self.start_offset,
                    self.leader_epoch,
                    self.lag,
                    self.error_code,
                ) = _IQIQH.unpack_from(data, at)
                at += 26
            else:
                (
                    self.partition_index,
                    self.start_offset,
                    self.leader_epoch,
                    self.error_code,
                ) = _IQIH.unpack_from(data, at)
                at += 18
                self.lag = -1
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeShareGroupOffsetsResponseTopic(Struct, gc=False, kw_only=True):
    """Offsets by topic.

    topic_name: Topic by its name, which is unique in the cluster.
    topic_id: Id of the topic; all zeros if there is no such topic.
    partitions: Offsets by partition.
    """

    topic_name: str = ""  # string, versions 0+
    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    # []DescribeShareGroupOffsetsResponsePartition, versions 0+
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeShareGroupOffsetsResponseTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, True, "topic_name")
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, DescribeShareGroupOffsetsResponsePartition._write_each, version)
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
    ) -> tuple[list[DescribeShareGroupOffsetsResponseTopic], int]:
        found: list[DescribeShareGroupOffsetsResponseTopic] = []
        for _ in range(count):
            self = DescribeShareGroupOffsetsResponseTopic()
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_structs(
                data,
                at,
                True,
                20,
                "partitions",
                DescribeShareGroupOffsetsResponsePartition._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeShareGroupOffsetsResponseGroup(Struct, gc=False, kw_only=True):
    """One entry per group.

    group_id: Share group by its group.id, as its consumers are configured.
    topics: Offsets by topic.
    error_code: Error that concerns this group only, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    group_id: str = ""  # string, versions 0+
    # []DescribeShareGroupOffsetsResponseTopic, versions 0+
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(default_factory=list)
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeShareGroupOffsetsResponseGroup], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.group_id, True, "group_id")
            write_structs(out, self.topics, True, DescribeShareGroupOffsetsResponseTopic._write_each, version)
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
    ) -> tuple[list[DescribeShareGroupOffsetsResponseGroup], int]:
        found: list[DescribeShareGroupOffsetsResponseGroup] = []
        for _ in range(count):
            self = DescribeShareGroupOffsetsResponseGroup()
            self.group_id, at = read_string(data, at, True, "group_id")
            self.topics, at = read_structs(
                data,
                at,
                True,
                19,
                "topics",
                DescribeShareGroupOffsetsResponseTopic._read_each,
                version,
            )
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeShareGroupOffsetsResponse(Message, gc=False, kw_only=True):
    """Start offsets of the share groups.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    groups: One entry per group.
    """

    API_KEY = 90
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    throttle_time_ms: int = 0  # int32, versions 0+
    # []DescribeShareGroupOffsetsResponseGroup, versions 0+
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.groups, True, DescribeShareGroupOffsetsResponseGroup._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeShareGroupOffsetsResponse, int]:
        self = DescribeShareGroupOffsetsResponse()
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.groups, at = read_structs(
            data,
            at,
            True,
            6,
            "groups",
            DescribeShareGroupOffsetsResponseGroup._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
