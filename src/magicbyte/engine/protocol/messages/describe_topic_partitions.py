"""Generated from DescribeTopicPartitionsRequest.json and DescribeTopicPartitionsResponse.json. Do not edit: the schema

compiler makes it.
DescribeTopicPartitionsRequest: version 0, flexible 0+.
DescribeTopicPartitionsResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_nullable_numbers,
    read_nullable_string,
    read_nullable_struct,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_nullable_string,
    write_nullable_struct,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Shapes

_H = struct.Struct(">h")
_HIII = struct.Struct(">hiii")
_I = struct.Struct(">i")
_SHAPES_HIII_I_I_COMPACT = Shapes("hiii[i[i", flexible=True)
_T = struct.Struct(">?")


class TopicRequest(Struct, gc=False, kw_only=True):
    """Topics to describe; an empty list means all.

    name: Name of the topic.
    """

    name: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicRequest], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicRequest], int]:
        found: list[TopicRequest] = []
        for _ in range(count):
            self = TopicRequest()
            self.name, at = read_string(data, at, True, "name")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeTopicPartitionsRequestCursor(Struct, gc=False, kw_only=True):
    """Cursor from the previous response; null starts at the beginning.

    topic_name: Name of the topic to begin with, in alphabetical order.
    partition_index: Partition of that topic to begin with.
    """

    topic_name: str = ""  # string, versions 0+
    partition_index: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.topic_name, True, "topic_name")
        buffer += _I.pack(self.partition_index)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeTopicPartitionsRequestCursor, int]:
        self = DescribeTopicPartitionsRequestCursor()
        self.topic_name, at = read_string(data, at, True, "topic_name")
        (self.partition_index,) = _I.unpack_from(data, at)
        at += 4
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class DescribeTopicPartitionsRequest(Message, gc=False, kw_only=True):
    """Asks for leaders and replicas of topics page by page, for clusters with very many partitions.

    topics: Topics to describe; an empty list means all.
    response_partition_limit: Most partitions in one answer; the broker may have a lower limit.
    cursor: Cursor from the previous response; null starts at the beginning.
    """

    API_KEY = 75
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    topics: list[TopicRequest] = field(default_factory=list)  # []TopicRequest, versions 0+
    response_partition_limit: int = 2000  # int32, versions 0+
    cursor: DescribeTopicPartitionsRequestCursor | None = None  # Cursor, versions 0+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.topics, True, TopicRequest._write_each, version)
        buffer += _I.pack(self.response_partition_limit)
        write_nullable_struct(out, self.cursor, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeTopicPartitionsRequest, int]:
        self = DescribeTopicPartitionsRequest()
        self.topics, at = read_structs(data, at, True, 2, "topics", TopicRequest._read_each, version)
        (self.response_partition_limit,) = _I.unpack_from(data, at)
        at += 4
        self.cursor, at = read_nullable_struct(data, at, version, "cursor", DescribeTopicPartitionsRequestCursor._read)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class DescribeTopicPartitionsResponsePartition(Struct, gc=False, kw_only=True):
    """Partitions of the topic, as many as fit on this page.

    error_code: Error of this partition; 0 means none. 5 means that it has no leader now.
    partition_index: Number of the partition within its topic, counted from 0.
    leader_id: Broker that leads the partition; -1 if there is none.
    leader_epoch: Number of the leadership, one higher with each change of leader; -1 if it is not known.
    replica_nodes: Brokers that hold a replica, the preferred leader first.
    isr_nodes: In-sync replicas.
    eligible_leader_replicas: Replicas that are not in sync now but have all committed records, so that they may lead
        without loss; null if they are not tracked.
    last_known_elr: Replicas that were eligible before they stopped uncleanly; null if they are not tracked.
    offline_replicas: Replicas whose broker or log directory is down.
    """

    error_code: int = 0  # int16, versions 0+
    partition_index: int = 0  # int32, versions 0+
    leader_id: int = 0  # int32, versions 0+
    leader_epoch: int = -1  # int32, versions 0+, ignorable
    replica_nodes: tuple[int, ...] = ()  # []int32, versions 0+
    isr_nodes: tuple[int, ...] = ()  # []int32, versions 0+
    eligible_leader_replicas: tuple[int, ...] | None = None  # []int32, versions 0+, nullable
    last_known_elr: tuple[int, ...] | None = None  # []int32, versions 0+, nullable
    offline_replicas: tuple[int, ...] = ()  # []int32, versions 0+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeTopicPartitionsResponsePartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        lengths: tuple[int, ...]
        for self in structs:
            lengths = len(self.replica_nodes), len(self.isr_nodes)
            buffer += _SHAPES_HIII_I_I_COMPACT[lengths](
                self.error_code,
                self.partition_index,
                self.leader_id,
                self.leader_epoch,
                lengths[0] + 1,
                *self.replica_nodes,
                lengths[1] + 1,
                *self.isr_nodes,
            )
            write_numbers(buffer, self.eligible_leader_replicas, True, "i")
            write_numbers(buffer, self.last_known_elr, True, "i")
            write_numbers(buffer, self.offline_replicas, True, "i")
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
    ) -> tuple[list[DescribeTopicPartitionsResponsePartition], int]:
        found: list[DescribeTopicPartitionsResponsePartition] = []
        for _ in range(count):
            self = DescribeTopicPartitionsResponsePartition()
            self.error_code, self.partition_index, self.leader_id, self.leader_epoch = _HIII.unpack_from(data, at)
            at += 14
            self.replica_nodes, at = read_numbers(data, at, True, "i", "replica_nodes")
            self.isr_nodes, at = read_numbers(data, at, True, "i", "isr_nodes")
            self.eligible_leader_replicas, at = read_nullable_numbers(data, at, True, "i", "eligible_leader_replicas")
            self.last_known_elr, at = read_nullable_numbers(data, at, True, "i", "last_known_elr")
            self.offline_replicas, at = read_numbers(data, at, True, "i", "offline_replicas")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeTopicPartitionsResponseTopic(Struct, gc=False, kw_only=True):
    """Topics in alphabetical order.

    error_code: Error of this topic; 0 means none. 3 says that there is no such topic.
    name: Name of the topic.
    topic_id: Id of the topic, which stays with it for its whole life.
    is_internal: True for the topics that Kafka keeps for itself, such as __consumer_offsets.
    partitions: Partitions of the topic, as many as fit on this page.
    topic_authorized_operations: Operations that the caller may perform on the topic: bit n stands for ACL operation
        number n. -2147483648 if unknown.
    """

    error_code: int = 0  # int16, versions 0+
    name: str | None = ""  # string, versions 0+, nullable
    topic_id: UUID = NULL_UUID  # uuid, versions 0+, ignorable
    is_internal: bool = False  # bool, versions 0+, ignorable
    # []DescribeTopicPartitionsResponsePartition, versions 0+
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeTopicPartitionsResponseTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.name, True, "name")
            write_uuid(buffer, self.topic_id)
            buffer += _T.pack(self.is_internal)
            write_structs(out, self.partitions, True, DescribeTopicPartitionsResponsePartition._write_each, version)
            buffer += _I.pack(self.topic_authorized_operations)
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
    ) -> tuple[list[DescribeTopicPartitionsResponseTopic], int]:
        found: list[DescribeTopicPartitionsResponseTopic] = []
        for _ in range(count):
            self = DescribeTopicPartitionsResponseTopic()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.name, at = read_nullable_string(data, at, True, "name")
            self.topic_id, at = read_uuid(data, at)
            (self.is_internal,) = _T.unpack_from(data, at)
            at += 1
            self.partitions, at = read_structs(
                data,
                at,
                True,
                20,
                "partitions",
                DescribeTopicPartitionsResponsePartition._read_each,
                version,
            )
            (self.topic_authorized_operations,) = _I.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeTopicPartitionsResponseCursor(Struct, gc=False, kw_only=True):
    """Start of the next page; null if this is the last.

    topic_name: Name of the topic to continue with.
    partition_index: Partition of that topic to continue with.
    """

    topic_name: str = ""  # string, versions 0+
    partition_index: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.topic_name, True, "topic_name")
        buffer += _I.pack(self.partition_index)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeTopicPartitionsResponseCursor, int]:
        self = DescribeTopicPartitionsResponseCursor()
        self.topic_name, at = read_string(data, at, True, "topic_name")
        (self.partition_index,) = _I.unpack_from(data, at)
        at += 4
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class DescribeTopicPartitionsResponse(Message, gc=False, kw_only=True):
    """One page of topics with their partitions.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    topics: Topics in alphabetical order.
    next_cursor: Start of the next page; null if this is the last.
    """

    API_KEY = 75
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+, ignorable
    # []DescribeTopicPartitionsResponseTopic, versions 0+
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None  # Cursor, versions 0+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.topics, True, DescribeTopicPartitionsResponseTopic._write_each, version)
        write_nullable_struct(out, self.next_cursor, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeTopicPartitionsResponse, int]:
        self = DescribeTopicPartitionsResponse()
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.topics, at = read_structs(
            data,
            at,
            True,
            26,
            "topics",
            DescribeTopicPartitionsResponseTopic._read_each,
            version,
        )
        self.next_cursor, at = read_nullable_struct(
            data,
            at,
            version,
            "next_cursor",
            DescribeTopicPartitionsResponseCursor._read,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
