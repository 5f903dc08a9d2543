"""Generated from ListPartitionReassignmentsRequest.json and ListPartitionReassignmentsResponse.json. Do not edit: the

schema compiler makes it.
ListPartitionReassignmentsRequest: version 0, flexible 0+.
ListPartitionReassignmentsResponse: version 0, flexible 0+.
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
from magicbyte.engine.protocol.rows import Rows, Shapes, read_rows

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_ROWS_I_I_I_I_COMPACT = Rows("i[i[i[i", flexible=True)
_SHAPES_I_I_I_I_COMPACT = Shapes("i[i[i[i", flexible=True)


class ListPartitionReassignmentsTopics(Struct, gc=False, kw_only=True):
    """Topics to look at; null means all.

    name: Name of the topic.
    partition_indexes: Numbers of the partitions to look at.
    """

    name: str = ""  # string, versions 0+
    partition_indexes: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ListPartitionReassignmentsTopics], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_numbers(buffer, self.partition_indexes, True, "i")
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
    ) -> tuple[list[ListPartitionReassignmentsTopics], int]:
        found: list[ListPartitionReassignmentsTopics] = []
        for _ in range(count):
            self = ListPartitionReassignmentsTopics()
            self.name, at = read_string(data, at, True, "name")
            self.partition_indexes, at = read_numbers(data, at, True, "i", "partition_indexes")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ListPartitionReassignmentsRequest(Message, gc=False, kw_only=True):
    """Asks which moves of partitions are under way.

    timeout_ms: Milliseconds to wait for the answer.
    topics: Topics to look at; null means all.
    """

    API_KEY = 46
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    timeout_ms: int = 60000  # int32, versions 0+
    # []ListPartitionReassignmentsTopics, versions 0+, nullable
    topics: list[ListPartitionReassignmentsTopics] | None = None
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.timeout_ms)
        write_structs(out, self.topics, True, ListPartitionReassignmentsTopics._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ListPartitionReassignmentsRequest, int]:
        self = ListPartitionReassignmentsRequest()
        (self.timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        self.topics, at = read_nullable_structs(
            data,
            at,
            True,
            3,
            "topics",
            ListPartitionReassignmentsTopics._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class OngoingPartitionReassignment(Struct, gc=False, kw_only=True):
    """Moves by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    replicas: All present replicas, both those that stay or go and those that come.
    adding_replicas: Replicas that come.
    removing_replicas: Replicas that go, once the coming ones are in sync.
    """

    partition_index: int = 0  # int32, versions 0+
    replicas: tuple[int, ...] = ()  # []int32, versions 0+
    adding_replicas: tuple[int, ...] = ()  # []int32, versions 0+
    removing_replicas: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OngoingPartitionReassignment], out: Writer, version: int) -> None:
        buffer = out.buffer
        lengths: tuple[int, ...]
        for self in structs:
            lengths = len(self.replicas), len(self.adding_replicas), len(self.removing_replicas)
            buffer += _SHAPES_I_I_I_I_COMPACT[lengths](
                self.partition_index,
                lengths[0] + 1,
                *self.replicas,
                lengths[1] + 1,
                *self.adding_replicas,
                lengths[2] + 1,
                *self.removing_replicas,
            )
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
    ) -> tuple[list[OngoingPartitionReassignment], int]:
        found: list[OngoingPartitionReassignment] = []
        for _ in range(count):
            self = OngoingPartitionReassignment()
            (self.partition_index,) = _I.unpack_from(data, at)
            at += 4
            self.replicas, at = read_numbers(data, at, True, "i", "replicas")
            self.adding_replicas, at = read_numbers(data, at, True, "i", "adding_replicas")
            self.removing_replicas, at = read_numbers(data, at, True, "i", "removing_replicas")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(
        data: memoryview,
        at: int,
        most: int,
        version: int,
    ) -> tuple[list[OngoingPartitionReassignment], int]:
        found: list[OngoingPartitionReassignment] = []
        rows, at = _ROWS_I_I_I_I_COMPACT.read(data, at, most)
        for row in rows:
            (partition_index,), replicas, adding_replicas, removing_replicas = row
            self = OngoingPartitionReassignment(
                partition_index=partition_index,
                replicas=replicas,
                adding_replicas=adding_replicas,
                removing_replicas=removing_replicas,
            )
            found.append(self)
        return found, at


class OngoingTopicReassignment(Struct, gc=False, kw_only=True):
    """Moves by topic.

    name: Name of the topic.
    partitions: Moves by partition.
    """

    name: str = ""  # string, versions 0+
    # []OngoingPartitionReassignment, versions 0+
    partitions: list[OngoingPartitionReassignment] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OngoingTopicReassignment], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_structs(out, self.partitions, True, OngoingPartitionReassignment._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OngoingTopicReassignment], int]:
        found: list[OngoingTopicReassignment] = []
        for _ in range(count):
            self = OngoingTopicReassignment()
            self.name, at = read_string(data, at, True, "name")
            self.partitions, at = read_rows(data, at, True, 8, "partitions", OngoingPartitionReassignment, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ListPartitionReassignmentsResponse(Message, gc=False, kw_only=True):
    """The moves that are under way; partitions that are not moving are left out.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    topics: Moves by topic.
    """

    API_KEY = 46
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    topics: list[OngoingTopicReassignment] = field(default_factory=list)  # []OngoingTopicReassignment, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        write_structs(out, self.topics, True, OngoingTopicReassignment._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ListPartitionReassignmentsResponse, int]:
        self = ListPartitionReassignmentsResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.topics, at = read_structs(data, at, True, 3, "topics", OngoingTopicReassignment._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
