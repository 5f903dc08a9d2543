"""Generated from DeleteRecordsRequest.json and DeleteRecordsResponse.json. Do not edit: the schema compiler makes it.

DeleteRecordsRequest: versions 0-2, flexible 2+.
DeleteRecordsResponse: versions 0-2, flexible 2+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_string,
    read_structs,
    read_unknown_tags,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, read_rows

_I = struct.Struct(">i")
_IQ = struct.Struct(">iq")
_IQH = struct.Struct(">iqh")
_ROWS_IQH_CLASSIC = Rows("iqh", flexible=False)
_ROWS_IQH_COMPACT = Rows("iqh", flexible=True)
_ROWS_IQ_CLASSIC = Rows("iq", flexible=False)
_ROWS_IQ_COMPACT = Rows("iq", flexible=True)


class DeleteRecordsPartition(Struct, gc=False, kw_only=True):
    """Partitions to delete from.

    partition_index: Number of the partition within its topic, counted from 0.
    offset: First offset that stays; -1 stands for the high watermark and so deletes all there is.
    """

    partition_index: int = 0  # int32, versions 0+
    offset: int = 0  # int64, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DeleteRecordsPartition], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            buffer += _IQ.pack(self.partition_index, self.offset)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DeleteRecordsPartition], int]:
        found: list[DeleteRecordsPartition] = []
        for _ in range(count):
            self = DeleteRecordsPartition()
            self.partition_index, self.offset = _IQ.unpack_from(data, at)
            at += 12
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[DeleteRecordsPartition], int]:
        found: list[DeleteRecordsPartition] = []
        if version >= 2:
            rows, at = _ROWS_IQ_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, offset = row
                self = DeleteRecordsPartition(partition_index=partition_index, offset=offset)
                found.append(self)
        else:
            rows, at = _ROWS_IQ_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, offset = row
                self = DeleteRecordsPartition(partition_index=partition_index, offset=offset)
                found.append(self)
        return found, at


class DeleteRecordsTopic(Struct, gc=False, kw_only=True):
    """Topics to delete from.

    name: Name of the topic.
    partitions: Partitions to delete from.
    """

    name: str = ""  # string, versions 0+
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)  # []DeleteRecordsPartition, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DeleteRecordsTopic], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_structs(out, self.partitions, flexible, DeleteRecordsPartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DeleteRecordsTopic], int]:
        flexible = version >= 2
        found: list[DeleteRecordsTopic] = []
        for _ in range(count):
            self = DeleteRecordsTopic()
            self.name, at = read_string(data, at, flexible, "name")
            self.partitions, at = read_rows(data, at, flexible, 12, "partitions", DeleteRecordsPartition, version)
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DeleteRecordsRequest(Message, gc=False, kw_only=True):
    """Deletes the oldest records of partitions, up to an offset; sent to their leaders.

    topics: Topics to delete from.
    timeout_ms: Milliseconds to wait until all live replicas have moved the start of their logs.
    """

    API_KEY = 21
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(2, 3)

    topics: list[DeleteRecordsTopic] = field(default_factory=list)  # []DeleteRecordsTopic, versions 0+
    timeout_ms: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        write_structs(out, self.topics, flexible, DeleteRecordsTopic._write_each, version)
        buffer += _I.pack(self.timeout_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DeleteRecordsRequest, int]:
        self = DeleteRecordsRequest()
        flexible = version >= 2
        self.topics, at = read_structs(data, at, flexible, 3, "topics", DeleteRecordsTopic._read_each, version)
        (self.timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class DeleteRecordsPartitionResult(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    low_watermark: Smallest first offset among the live replicas; -1 with an error.
    error_code: Error of this partition; 0 means none. 1 says that the offset is beyond the high watermark, 6 that
        another broker leads.
    """

    partition_index: int = 0  # int32, versions 0+
    low_watermark: int = 0  # int64, versions 0+
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DeleteRecordsPartitionResult], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            buffer += _IQH.pack(self.partition_index, self.low_watermark, self.error_code)
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
    ) -> tuple[list[DeleteRecordsPartitionResult], int]:
        found: list[DeleteRecordsPartitionResult] = []
        for _ in range(count):
            self = DeleteRecordsPartitionResult()
            self.partition_index, self.low_watermark, self.error_code = _IQH.unpack_from(data, at)
            at += 14
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
    ) -> tuple[list[DeleteRecordsPartitionResult], int]:
        found: list[DeleteRecordsPartitionResult] = []
        if version >= 2:
            rows, at = _ROWS_IQH_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, low_watermark, error_code = row
                self = DeleteRecordsPartitionResult(
                    partition_index=partition_index,
                    low_watermark=low_watermark,
                    error_code=error_code,
                )
                found.append(self)
        else:
            rows, at = _ROWS_IQH_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, low_watermark, error_code = row
                self = DeleteRecordsPartitionResult(
                    partition_index=partition_index,
                    low_watermark=low_watermark,
                    error_code=error_code,
                )
                found.append(self)
        return found, at


class DeleteRecordsTopicResult(Struct, gc=False, kw_only=True):
    """Results by topic.

    name: Name of the topic.
    partitions: Results by partition.
    """

    name: str = ""  # string, versions 0+
    # []DeleteRecordsPartitionResult, versions 0+
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DeleteRecordsTopicResult], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_structs(out, self.partitions, flexible, DeleteRecordsPartitionResult._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DeleteRecordsTopicResult], int]:
        flexible = version >= 2
        found: list[DeleteRecordsTopicResult] = []
        for _ in range(count):
            self = DeleteRecordsTopicResult()
            self.name, at = read_string(data, at, flexible, "name")
            self.partitions, at = read_rows(data, at, flexible, 14, "partitions", DeleteRecordsPartitionResult, version)
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DeleteRecordsResponse(Message, gc=False, kw_only=True):
    """The new log start offsets.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    topics: Results by topic.
    """

    API_KEY = 21
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(2, 3)

    throttle_time_ms: int = 0  # int32, versions 0+
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)  # []DeleteRecordsTopicResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.topics, flexible, DeleteRecordsTopicResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DeleteRecordsResponse, int]:
        self = DeleteRecordsResponse()
        flexible = version >= 2
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.topics, at = read_structs(data, at, flexible, 3, "topics", DeleteRecordsTopicResult._read_each, version)
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
