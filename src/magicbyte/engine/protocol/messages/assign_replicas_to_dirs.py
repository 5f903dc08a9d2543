"""Generated from AssignReplicasToDirsRequest.json and AssignReplicasToDirsResponse.json. Do not edit: the schema

compiler makes it.
AssignReplicasToDirsRequest: version 0, flexible 0+.
AssignReplicasToDirsResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, read_rows

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_IQ = struct.Struct(">iq")
_ROWS_IH_COMPACT = Rows("ih", flexible=True)
_ROWS_I_COMPACT = Rows("i", flexible=True)


class AssignReplicasToDirsRequestPartitionData(Struct, gc=False, kw_only=True):
    """Replicas in it, by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    """

    partition_index: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AssignReplicasToDirsRequestPartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.partition_index)
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
    ) -> tuple[list[AssignReplicasToDirsRequestPartitionData], int]:
        found: list[AssignReplicasToDirsRequestPartitionData] = []
        for _ in range(count):
            self = AssignReplicasToDirsRequestPartitionData()
            (self.partition_index,) = _I.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(
        data: memoryview,
        at: int,
        most: int,
        version: int,
    ) -> tuple[list[AssignReplicasToDirsRequestPartitionData], int]:
        found: list[AssignReplicasToDirsRequestPartitionData] = []
        rows, at = _ROWS_I_COMPACT.read(data, at, most)
        for row in rows:
            (partition_index,) = row
            self = AssignReplicasToDirsRequestPartitionData(partition_index=partition_index)
            found.append(self)
        return found, at


class AssignReplicasToDirsRequestTopicData(Struct, gc=False, kw_only=True):
    """Replicas in it, by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Replicas in it, by partition.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    # []PartitionData, versions 0+
    partitions: list[AssignReplicasToDirsRequestPartitionData] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AssignReplicasToDirsRequestTopicData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, AssignReplicasToDirsRequestPartitionData._write_each, version)
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
    ) -> tuple[list[AssignReplicasToDirsRequestTopicData], int]:
        found: list[AssignReplicasToDirsRequestTopicData] = []
        for _ in range(count):
            self = AssignReplicasToDirsRequestTopicData()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_rows(
                data,
                at,
                True,
                5,
                "partitions",
                AssignReplicasToDirsRequestPartitionData,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AssignReplicasToDirsRequestDirectoryData(Struct, gc=False, kw_only=True):
    """Its directories with the replicas newly placed in them.

    id: Id of the directory.
    topics: Replicas in it, by topic.
    """

    id: UUID = NULL_UUID  # uuid, versions 0+
    topics: list[AssignReplicasToDirsRequestTopicData] = field(default_factory=list)  # []TopicData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AssignReplicasToDirsRequestDirectoryData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.id)
            write_structs(out, self.topics, True, AssignReplicasToDirsRequestTopicData._write_each, version)
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
    ) -> tuple[list[AssignReplicasToDirsRequestDirectoryData], int]:
        found: list[AssignReplicasToDirsRequestDirectoryData] = []
        for _ in range(count):
            self = AssignReplicasToDirsRequestDirectoryData()
            self.id, at = read_uuid(data, at)
            self.topics, at = read_structs(
                data,
                at,
                True,
                18,
                "topics",
                AssignReplicasToDirsRequestTopicData._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AssignReplicasToDirsRequest(Message, gc=False, kw_only=True):
    """Sent by a broker to the controller: in which of its directories replicas lie, so that the loss of a disk concerns
    only those on it.

    broker_id: Broker that sends this.
    broker_epoch: Epoch of that broker's registration; -1 if it has none.
    directories: Its directories with the replicas newly placed in them.
    """

    API_KEY = 73
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    broker_id: int = 0  # int32, versions 0+
    broker_epoch: int = -1  # int64, versions 0+
    # []DirectoryData, versions 0+
    directories: list[AssignReplicasToDirsRequestDirectoryData] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IQ.pack(self.broker_id, self.broker_epoch)
        write_structs(out, self.directories, True, AssignReplicasToDirsRequestDirectoryData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AssignReplicasToDirsRequest, int]:
        self = AssignReplicasToDirsRequest()
        self.broker_id, self.broker_epoch = _IQ.unpack_from(data, at)
        at += 12
        self.directories, at = read_structs(
            data,
            at,
            True,
            18,
            "directories",
            AssignReplicasToDirsRequestDirectoryData._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class AssignReplicasToDirsResponsePartitionData(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AssignReplicasToDirsResponsePartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition_index, self.error_code)
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
    ) -> tuple[list[AssignReplicasToDirsResponsePartitionData], int]:
        found: list[AssignReplicasToDirsResponsePartitionData] = []
        for _ in range(count):
            self = AssignReplicasToDirsResponsePartitionData()
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(
        data: memoryview,
        at: int,
        most: int,
        version: int,
    ) -> tuple[list[AssignReplicasToDirsResponsePartitionData], int]:
        found: list[AssignReplicasToDirsResponsePartitionData] = []
        rows, at = _ROWS_IH_COMPACT.read(data, at, most)
        for row in rows:
            partition_index, error_code = row
            self = AssignReplicasToDirsResponsePartitionData(partition_index=partition_index, error_code=error_code)
            found.append(self)
        return found, at


class AssignReplicasToDirsResponseTopicData(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Results by partition.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    # []PartitionData, versions 0+
    partitions: list[AssignReplicasToDirsResponsePartitionData] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AssignReplicasToDirsResponseTopicData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, AssignReplicasToDirsResponsePartitionData._write_each, version)
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
    ) -> tuple[list[AssignReplicasToDirsResponseTopicData], int]:
        found: list[AssignReplicasToDirsResponseTopicData] = []
        for _ in range(count):
            self = AssignReplicasToDirsResponseTopicData()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_rows(
                data,
                at,
                True,
                7,
                "partitions",
                AssignReplicasToDirsResponsePartitionData,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AssignReplicasToDirsResponseDirectoryData(Struct, gc=False, kw_only=True):
    """Results by directory.

    id: Id of the directory.
    topics: Results by topic.
    """

    id: UUID = NULL_UUID  # uuid, versions 0+
    topics: list[AssignReplicasToDirsResponseTopicData] = field(default_factory=list)  # []TopicData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AssignReplicasToDirsResponseDirectoryData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.id)
            write_structs(out, self.topics, True, AssignReplicasToDirsResponseTopicData._write_each, version)
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
    ) -> tuple[list[AssignReplicasToDirsResponseDirectoryData], int]:
        found: list[AssignReplicasToDirsResponseDirectoryData] = []
        for _ in range(count):
            self = AssignReplicasToDirsResponseDirectoryData()
            self.id, at = read_uuid(data, at)
            self.topics, at = read_structs(
                data,
                at,
                True,
                18,
                "topics",
                AssignReplicasToDirsResponseTopicData._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AssignReplicasToDirsResponse(Message, gc=False, kw_only=True):
    """Whether the controller took over the places.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    directories: Results by directory.
    """

    API_KEY = 73
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    # []DirectoryData, versions 0+
    directories: list[AssignReplicasToDirsResponseDirectoryData] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_structs(out, self.directories, True, AssignReplicasToDirsResponseDirectoryData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AssignReplicasToDirsResponse, int]:
        self = AssignReplicasToDirsResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.directories, at = read_structs(
            data,
            at,
            True,
            18,
            "directories",
            AssignReplicasToDirsResponseDirectoryData._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
