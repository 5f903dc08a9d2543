"""Generated from AlterReplicaLogDirsRequest.json and AlterReplicaLogDirsResponse.json. Do not edit: the schema compiler

makes it.
AlterReplicaLogDirsRequest: versions 0-2, flexible 2+; deprecated 0.
AlterReplicaLogDirsResponse: versions 0-2, flexible 2+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, read_rows

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_ROWS_IH_CLASSIC = Rows("ih", flexible=False)
_ROWS_IH_COMPACT = Rows("ih", flexible=True)


class AlterReplicaLogDirTopic(Struct, gc=False, kw_only=True):
    """Replicas to move there, by topic.

    name: Name of the topic.
    partitions: Numbers of the partitions.
    """

    name: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterReplicaLogDirTopic], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_numbers(buffer, self.partitions, flexible, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AlterReplicaLogDirTopic], int]:
        flexible = version >= 2
        found: list[AlterReplicaLogDirTopic] = []
        for _ in range(count):
            self = AlterReplicaLogDirTopic()
            self.name, at = read_string(data, at, flexible, "name")
            self.partitions, at = read_numbers(data, at, flexible, "i", "partitions")
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class AlterReplicaLogDir(Struct, gc=False, kw_only=True):
    """Directories to move to.

    path: Absolute path of the log directory on the broker.
    topics: Replicas to move there, by topic.
    """

    path: str = ""  # string, versions 0+
    topics: list[AlterReplicaLogDirTopic] = field(default_factory=list)  # []AlterReplicaLogDirTopic, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterReplicaLogDir], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.path, flexible, "path")
            write_structs(out, self.topics, flexible, AlterReplicaLogDirTopic._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AlterReplicaLogDir], int]:
        flexible = version >= 2
        found: list[AlterReplicaLogDir] = []
        for _ in range(count):
            self = AlterReplicaLogDir()
            self.path, at = read_string(data, at, flexible, "path")
            self.topics, at = read_structs(data, at, flexible, 3, "topics", AlterReplicaLogDirTopic._read_each, version)
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class AlterReplicaLogDirsRequest(Message, gc=False, kw_only=True):
    """Moves replicas of a broker to another of its disks. Each broker is asked about its own replicas.

    dirs: Directories to move to.
    """

    API_KEY = 34
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(2, 3)

    dirs: list[AlterReplicaLogDir] = field(default_factory=list)  # []AlterReplicaLogDir, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        write_structs(out, self.dirs, flexible, AlterReplicaLogDir._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterReplicaLogDirsRequest, int]:
        self = AlterReplicaLogDirsRequest()
        flexible = version >= 2
        self.dirs, at = read_structs(data, at, flexible, 3, "dirs", AlterReplicaLogDir._read_each, version)
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class AlterReplicaLogDirPartitionResult(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means that the move has begun. 57 says that there is no such directory, 9
        that the broker has no replica yet and will use it once it has.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterReplicaLogDirPartitionResult], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition_index, self.error_code)
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
    ) -> tuple[list[AlterReplicaLogDirPartitionResult], int]:
        found: list[AlterReplicaLogDirPartitionResult] = []
        for _ in range(count):
            self = AlterReplicaLogDirPartitionResult()
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(
        data: memoryview,
        at: int,
        most: int,
        version: int,
    ) -> tuple[list[AlterReplicaLogDirPartitionResult], int]:
        found: list[AlterReplicaLogDirPartitionResult] = []
        if version >= 2:
            rows, at = _ROWS_IH_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, error_code = row
                self = AlterReplicaLogDirPartitionResult(partition_index=partition_index, error_code=error_code)
                found.append(self)
        else:
            rows, at = _ROWS_IH_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, error_code = row
                self = AlterReplicaLogDirPartitionResult(partition_index=partition_index, error_code=error_code)
                found.append(self)
        return found, at


class AlterReplicaLogDirTopicResult(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_name: Topic by its name, which is unique in the cluster.
    partitions: Results by partition.
    """

    topic_name: str = ""  # string, versions 0+
    # []AlterReplicaLogDirPartitionResult, versions 0+
    partitions: list[AlterReplicaLogDirPartitionResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterReplicaLogDirTopicResult], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, flexible, "topic_name")
            write_structs(out, self.partitions, flexible, AlterReplicaLogDirPartitionResult._write_each, version)
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
    ) -> tuple[list[AlterReplicaLogDirTopicResult], int]:
        flexible = version >= 2
        found: list[AlterReplicaLogDirTopicResult] = []
        for _ in range(count):
            self = AlterReplicaLogDirTopicResult()
            self.topic_name, at = read_string(data, at, flexible, "topic_name")
            self.partitions, at = read_rows(
                data,
                at,
                flexible,
                6,
                "partitions",
                AlterReplicaLogDirPartitionResult,
                version,
            )
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class AlterReplicaLogDirsResponse(Message, gc=False, kw_only=True):
    """Results of starting the moves; the response does not wait for their end.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    results: Results by topic.
    """

    API_KEY = 34
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(2, 3)

    throttle_time_ms: int = 0  # int32, versions 0+
    # []AlterReplicaLogDirTopicResult, versions 0+
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.results, flexible, AlterReplicaLogDirTopicResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterReplicaLogDirsResponse, int]:
        self = AlterReplicaLogDirsResponse()
        flexible = version >= 2
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.results, at = read_structs(
            data,
            at,
            flexible,
            3,
            "results",
            AlterReplicaLogDirTopicResult._read_each,
            version,
        )
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
