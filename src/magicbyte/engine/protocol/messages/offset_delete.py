"""Generated from OffsetDeleteRequest.json and OffsetDeleteResponse.json. Do not edit: the schema compiler makes it.

OffsetDeleteRequest: version 0.
OffsetDeleteResponse: version 0.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import read_string, read_structs, write_string, write_structs
from magicbyte.engine.protocol.message import Message, Writer
from magicbyte.engine.protocol.rows import Rows, read_rows

_HI = struct.Struct(">hi")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_ROWS_IH_CLASSIC = Rows("ih", flexible=False)
_ROWS_I_CLASSIC = Rows("i", flexible=False)


class OffsetDeleteRequestPartition(Struct, gc=False, kw_only=True):
    """Partitions whose offsets are deleted.

    partition_index: Number of the partition within its topic, counted from 0.
    """

    partition_index: int = 0  # int32, versions 0+

    @staticmethod
    def _write_each(structs: Sequence[OffsetDeleteRequestPartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.partition_index)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[OffsetDeleteRequestPartition], int]:
        found: list[OffsetDeleteRequestPartition] = []
        for _ in range(count):
            self = OffsetDeleteRequestPartition()
            (self.partition_index,) = _I.unpack_from(data, at)
            at += 4
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(
        data: memoryview,
        at: int,
        most: int,
        version: int,
    ) -> tuple[list[OffsetDeleteRequestPartition], int]:
        found: list[OffsetDeleteRequestPartition] = []
        rows, at = _ROWS_I_CLASSIC.read(data, at, most)
        for row in rows:
            (partition_index,) = row
            self = OffsetDeleteRequestPartition(partition_index=partition_index)
            found.append(self)
        return found, at


class OffsetDeleteRequestTopic(Struct, gc=False, kw_only=True):
    """Topics whose offsets are deleted.

    name: Name of the topic.
    partitions: Partitions whose offsets are deleted.
    """

    name: str = ""  # string, versions 0+
    # []OffsetDeleteRequestPartition, versions 0+
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)

    @staticmethod
    def _write_each(structs: Sequence[OffsetDeleteRequestTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, False, "name")
            write_structs(out, self.partitions, False, OffsetDeleteRequestPartition._write_each, version)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetDeleteRequestTopic], int]:
        found: list[OffsetDeleteRequestTopic] = []
        for _ in range(count):
            self = OffsetDeleteRequestTopic()
            self.name, at = read_string(data, at, False, "name")
            self.partitions, at = read_rows(data, at, False, 4, "partitions", OffsetDeleteRequestPartition, version)
            found.append(self)
        return found, at


class OffsetDeleteRequest(Message, gc=False, kw_only=True):
    """Deletes a group's committed offsets of some partitions, while no member of the group is subscribed to their
    topics.

    group_id: Group whose offsets are deleted.
    topics: Topics whose offsets are deleted.
    """

    API_KEY = 47
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 0+
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)  # []OffsetDeleteRequestTopic, versions 0+

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")
        write_structs(out, self.topics, False, OffsetDeleteRequestTopic._write_each, version)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[OffsetDeleteRequest, int]:
        self = OffsetDeleteRequest()
        self.group_id, at = read_string(data, at, False, "group_id")
        self.topics, at = read_structs(data, at, False, 6, "topics", OffsetDeleteRequestTopic._read_each, version)
        return self, at


class OffsetDeleteResponsePartition(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means deleted. 86 says that the group is subscribed to the topic.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+

    @staticmethod
    def _write_each(structs: Sequence[OffsetDeleteResponsePartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition_index, self.error_code)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[OffsetDeleteResponsePartition], int]:
        found: list[OffsetDeleteResponsePartition] = []
        for _ in range(count):
            self = OffsetDeleteResponsePartition()
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(
        data: memoryview,
        at: int,
        most: int,
        version: int,
    ) -> tuple[list[OffsetDeleteResponsePartition], int]:
        found: list[OffsetDeleteResponsePartition] = []
        rows, at = _ROWS_IH_CLASSIC.read(data, at, most)
        for row in rows:
            partition_index, error_code = row
            self = OffsetDeleteResponsePartition(partition_index=partition_index, error_code=error_code)
            found.append(self)
        return found, at


class OffsetDeleteResponseTopic(Struct, gc=False, kw_only=True):
    """Results by topic.

    name: Name of the topic.
    partitions: Results by partition.
    """

    name: str = ""  # string, versions 0+
    # []OffsetDeleteResponsePartition, versions 0+
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)

    @staticmethod
    def _write_each(structs: Sequence[OffsetDeleteResponseTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, False, "name")
            write_structs(out, self.partitions, False, OffsetDeleteResponsePartition._write_each, version)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetDeleteResponseTopic], int]:
        found: list[OffsetDeleteResponseTopic] = []
        for _ in range(count):
            self = OffsetDeleteResponseTopic()
            self.name, at = read_string(data, at, False, "name")
            self.partitions, at = read_rows(data, at, False, 6, "partitions", OffsetDeleteResponsePartition, version)
            found.append(self)
        return found, at


class OffsetDeleteResponse(Message, gc=False, kw_only=True):
    """Which offsets were deleted.

    error_code: Error of the group as a whole; 0 means none. 68 says that it has members of a kind that does not
        report its topics, 69 that there is no such group.
    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    topics: Results by topic.
    """

    API_KEY = 47
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(0)

    error_code: int = 0  # int16, versions 0+
    throttle_time_ms: int = 0  # int32, versions 0+, ignorable
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)  # []OffsetDeleteResponseTopic, versions 0+

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _HI.pack(self.error_code, self.throttle_time_ms)
        write_structs(out, self.topics, False, OffsetDeleteResponseTopic._write_each, version)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[OffsetDeleteResponse, int]:
        self = OffsetDeleteResponse()
        self.error_code, self.throttle_time_ms = _HI.unpack_from(data, at)
        at += 6
        self.topics, at = read_structs(data, at, False, 6, "topics", OffsetDeleteResponseTopic._read_each, version)
        return self, at
