"""Generated from AlterPartitionReassignmentsRequest.json and AlterPartitionReassignmentsResponse.json. Do not edit: the

schema compiler makes it.
AlterPartitionReassignmentsRequest: versions 0-1, flexible 0+.
AlterPartitionReassignmentsResponse: versions 0-1, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_nullable_numbers,
    read_nullable_string,
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

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_IT = struct.Struct(">i?")
_ITH = struct.Struct(">i?h")


class ReassignablePartition(Struct, gc=False, kw_only=True):
    """Partitions to move.

    partition_index: Number of the partition within its topic, counted from 0.
    replicas: Brokers that are to hold the replicas, the preferred leader first; null stops the move that is under
        way.
    """

    partition_index: int = 0  # int32, versions 0+
    replicas: tuple[int, ...] | None = None  # []int32, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ReassignablePartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.partition_index)
            write_numbers(buffer, self.replicas, True, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ReassignablePartition], int]:
        found: list[ReassignablePartition] = []
        for _ in range(count):
            self = ReassignablePartition()
            (self.partition_index,) = _I.unpack_from(data, at)
            at += 4
            self.replicas, at = read_nullable_numbers(data, at, True, "i", "replicas")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ReassignableTopic(Struct, gc=False, kw_only=True):
    """Topics to move.

    name: Name of the topic.
    partitions: Partitions to move.
    """

    name: str = ""  # string, versions 0+
    partitions: list[ReassignablePartition] = field(default_factory=list)  # []ReassignablePartition, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ReassignableTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_structs(out, self.partitions, True, ReassignablePartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ReassignableTopic], int]:
        found: list[ReassignableTopic] = []
        for _ in range(count):
            self = ReassignableTopic()
            self.name, at = read_string(data, at, True, "name")
            self.partitions, at = read_structs(
                data,
                at,
                True,
                6,
                "partitions",
                ReassignablePartition._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AlterPartitionReassignmentsRequest(Message, gc=False, kw_only=True):
    """Starts moving partitions to other brokers, or stops a move.

    timeout_ms: Milliseconds to wait until the moves are under way; their end is not waited for.
    allow_replication_factor_change: False refuses moves that would change the number of replicas; before version 1
        they are always allowed.
    topics: Topics to move.
    """

    API_KEY = 45
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    timeout_ms: int = 60000  # int32, versions 0+
    allow_replication_factor_change: bool = True  # bool, versions 1+
    topics: list[ReassignableTopic] = field(default_factory=list)  # []ReassignableTopic, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and not self.allow_replication_factor_change:
            raise absent("allow_replication_factor_change")
        if version >= 1:
            buffer += _IT.pack(self.timeout_ms, self.allow_replication_factor_change)
        else:
            buffer += _I.pack(self.timeout_ms)
        write_structs(out, self.topics, True, ReassignableTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterPartitionReassignmentsRequest, int]:
        self = AlterPartitionReassignmentsRequest()
        if version >= 1:
            self.timeout_ms, self.allow_replication_factor_change = _IT.unpack_from(data, at)
            at += 5
        else:
            (self.timeout_ms,) = _I.unpack_from(data, at)
            at += 4
            self.allow_replication_factor_change = True
        self.topics, at = read_structs(data, at, True, 3, "topics", ReassignableTopic._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class ReassignablePartitionResponse(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means accepted. 39 says that the replicas do not fit, 85 that there is no
        move to stop.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ReassignablePartitionResponse], out: Writer, version: int) -> None:
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
    ) -> tuple[list[ReassignablePartitionResponse], int]:
        found: list[ReassignablePartitionResponse] = []
        for _ in range(count):
            self = ReassignablePartitionResponse()
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ReassignableTopicResponse(Struct, gc=False, kw_only=True):
    """Results by topic.

    name: Name of the topic.
    partitions: Results by partition.
    """

    name: str = ""  # string, versions 0+
    # []ReassignablePartitionResponse, versions 0+
    partitions: list[ReassignablePartitionResponse] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ReassignableTopicResponse], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_structs(out, self.partitions, True, ReassignablePartitionResponse._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ReassignableTopicResponse], int]:
        found: list[ReassignableTopicResponse] = []
        for _ in range(count):
            self = ReassignableTopicResponse()
            self.name, at = read_string(data, at, True, "name")
            self.partitions, at = read_structs(
                data,
                at,
                True,
                8,
                "partitions",
                ReassignablePartitionResponse._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AlterPartitionReassignmentsResponse(Message, gc=False, kw_only=True):
    """Results of the requested moves.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    allow_replication_factor_change: The setting of the request under which these results came about.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    responses: Results by topic.
    """

    API_KEY = 45
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    throttle_time_ms: int = 0  # int32, versions 0+
    allow_replication_factor_change: bool = True  # bool, versions 1+, ignorable
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    responses: list[ReassignableTopicResponse] = field(default_factory=list)  # []ReassignableTopicResponse, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version >= 1:
            buffer += _ITH.pack(self.throttle_time_ms, self.allow_replication_factor_change, self.error_code)
        else:
            buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        write_structs(out, self.responses, True, ReassignableTopicResponse._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterPartitionReassignmentsResponse, int]:
        self = AlterPartitionReassignmentsResponse()
        if version >= 1:
            self.throttle_time_ms, self.allow_replication_factor_change, self.error_code = _ITH.unpack_from(data, at)
            at += 7
        else:
            self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.allow_replication_factor_change = True
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.responses, at = read_structs(data, at, True, 3, "responses", ReassignableTopicResponse._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
