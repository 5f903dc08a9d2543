"""Generated from DescribeLogDirsRequest.json and DescribeLogDirsResponse.json. Do not edit: the schema compiler makes

it.
DescribeLogDirsRequest: versions 0-5, flexible 2+; deprecated 0.
DescribeLogDirsResponse: versions 0-5, flexible 2+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_structs,
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

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_IQQT = struct.Struct(">iqq?")
_QQ = struct.Struct(">qq")
_QQT = struct.Struct(">qq?")
_ROWS_IQQT_CLASSIC = Rows("iqq?", flexible=False)
_ROWS_IQQT_COMPACT = Rows("iqq?", flexible=True)


class DescribableLogDirTopic(Struct, gc=False, kw_only=True):
    """Replicas to look at; null means all that the broker has.

    topic: Name of the topic, unique in the cluster.
    partitions: Numbers of the partitions.
    """

    topic: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribableLogDirTopic], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic, flexible, "topic")
            write_numbers(buffer, self.partitions, flexible, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribableLogDirTopic], int]:
        flexible = version >= 2
        found: list[DescribableLogDirTopic] = []
        for _ in range(count):
            self = DescribableLogDirTopic()
            self.topic, at = read_string(data, at, flexible, "topic")
            self.partitions, at = read_numbers(data, at, flexible, "i", "partitions")
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeLogDirsRequest(Message, gc=False, kw_only=True):
    """Asks a broker how large its replicas are, and on which of its disks they lie.

    topics: Replicas to look at; null means all that the broker has.
    """

    API_KEY = 35
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(2, 6)

    # []DescribableLogDirTopic, versions 0+, nullable
    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        write_structs(out, self.topics, flexible, DescribableLogDirTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeLogDirsRequest, int]:
        self = DescribeLogDirsRequest()
        flexible = version >= 2
        self.topics, at = read_nullable_structs(
            data,
            at,
            flexible,
            3,
            "topics",
            DescribableLogDirTopic._read_each,
            version,
        )
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class DescribeLogDirsPartition(Struct, gc=False, kw_only=True):
    """Replicas in it, by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    partition_size: Bytes of the replica's segments.
    offset_lag: Lag in offsets: of a current replica behind the high watermark, of a future one behind the current
        one.
    is_future_key: True if it is being moved here from another directory and will then take the other's place.
    """

    partition_index: int = 0  # int32, versions 0+
    partition_size: int = 0  # int64, versions 0+
    offset_lag: int = 0  # int64, versions 0+
    is_future_key: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeLogDirsPartition], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            buffer += _IQQT.pack(self.partition_index, self.partition_size, self.offset_lag, self.is_future_key)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribeLogDirsPartition], int]:
        found: list[DescribeLogDirsPartition] = []
        for _ in range(count):
            self = DescribeLogDirsPartition()
            self.partition_index, self.partition_size, self.offset_lag, self.is_future_key = _IQQT.unpack_from(data, at)
            at += 21
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[DescribeLogDirsPartition], int]:
        found: list[DescribeLogDirsPartition] = []
        if version >= 2:
            rows, at = _ROWS_IQQT_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, partition_size, offset_lag, is_future_key = row
                self = DescribeLogDirsPartition(
                    partition_index=partition_index,
                    partition_size=partition_size,
                    offset_lag=offset_lag,
                    is_future_key=is_future_key,
                )
                found.append(self)
        else:
            rows, at = _ROWS_IQQT_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, partition_size, offset_lag, is_future_key = row
                self = DescribeLogDirsPartition(
                    partition_index=partition_index,
                    partition_size=partition_size,
                    offset_lag=offset_lag,
                    is_future_key=is_future_key,
                )
                found.append(self)
        return found, at


class DescribeLogDirsTopic(Struct, gc=False, kw_only=True):
    """Replicas in it, by topic.

    name: Name of the topic.
    partitions: Replicas in it, by partition.
    """

    name: str = ""  # string, versions 0+
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)  # []DescribeLogDirsPartition, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeLogDirsTopic], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_structs(out, self.partitions, flexible, DescribeLogDirsPartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribeLogDirsTopic], int]:
        flexible = version >= 2
        found: list[DescribeLogDirsTopic] = []
        for _ in range(count):
            self = DescribeLogDirsTopic()
            self.name, at = read_string(data, at, flexible, "name")
            self.partitions, at = read_rows(data, at, flexible, 21, "partitions", DescribeLogDirsPartition, version)
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeLogDirsResult(Struct, gc=False, kw_only=True):
    """One entry for each log directory.

    error_code: Error of this directory; 0 means none. 56 says that its disk has failed.
    log_dir: Absolute path of the directory.
    topics: Replicas in it, by topic.
    total_bytes: Size of the disk that the directory is on, in bytes; -1 if it is not known.
    usable_bytes: Bytes free on that disk; -1 if it is not known.
    is_cordoned: True if the directory is to get no new replicas.
    """

    error_code: int = 0  # int16, versions 0+
    log_dir: str = ""  # string, versions 0+
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)  # []DescribeLogDirsTopic, versions 0+
    total_bytes: int = -1  # int64, versions 4+, ignorable
    usable_bytes: int = -1  # int64, versions 4+, ignorable
    is_cordoned: bool = False  # bool, versions 5+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeLogDirsResult], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            buffer += _H.pack(self.error_code)
            write_string(buffer, self.log_dir, flexible, "log_dir")
            write_structs(out, self.topics, flexible, DescribeLogDirsTopic._write_each, version)
            if version >= 5:
                buffer += _QQT.pack(self.total_bytes, self.usable_bytes, self.is_cordoned)
            elif version >= 4:
                buffer += _QQ.pack(self.total_bytes, self.usable_bytes)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribeLogDirsResult], int]:
        flexible = version >= 2
        found: list[DescribeLogDirsResult] = []
        for _ in range(count):
            self = DescribeLogDirsResult()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.log_dir, at = read_string(data, at, flexible, "log_dir")
            self.topics, at = read_structs(data, at, flexible, 3, "topics", DescribeLogDirsTopic._read_each, version)
            if version >= 5:
                self.total_bytes, self.usable_bytes, self.is_cordoned = _QQT.unpack_from(data, at)
                at += 17
            elif version >= 4:
                self.total_bytes, self.usable_bytes = _QQ.unpack_from(data, at)
                at += 16
                self.is_cordoned = False
            else:
                self.total_bytes = -1
                self.usable_bytes = -1
                self.is_cordoned = False
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeLogDirsResponse(Message, gc=False, kw_only=True):
    """The directories of the broker with the replicas in them.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    results: One entry for each log directory.
    """

    API_KEY = 35
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(2, 6)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 3+, ignorable
    results: list[DescribeLogDirsResult] = field(default_factory=list)  # []DescribeLogDirsResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        if version >= 3:
            buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        else:
            buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.results, flexible, DescribeLogDirsResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeLogDirsResponse, int]:
        self = DescribeLogDirsResponse()
        flexible = version >= 2
        if version >= 3:
            self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
            self.error_code = 0
        self.results, at = read_structs(data, at, flexible, 5, "results", DescribeLogDirsResult._read_each, version)
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
