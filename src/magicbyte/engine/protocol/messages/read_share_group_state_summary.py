"""Generated from ReadShareGroupStateSummaryRequest.json and ReadShareGroupStateSummaryResponse.json. Do not edit: the

schema compiler makes it.
ReadShareGroupStateSummaryRequest: versions 0-1, flexible 0+.
ReadShareGroupStateSummaryResponse: versions 0-1, flexible 0+.
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
_II = struct.Struct(">ii")
_IIQ = struct.Struct(">iiq")
_IIQI = struct.Struct(">iiqi")
_ROWS_II_COMPACT = Rows("ii", flexible=True)


class PartitionData(Struct, gc=False, kw_only=True):
    """Partitions to read.

    partition: Number of the partition within its topic, counted from 0.
    leader_epoch: Leader epoch of the partition; -1 if the asker is not its leader.
    """

    partition: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _II.pack(self.partition, self.leader_epoch)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionData], int]:
        found: list[PartitionData] = []
        for _ in range(count):
            self = PartitionData()
            self.partition, self.leader_epoch = _II.unpack_from(data, at)
            at += 8
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[PartitionData], int]:
        found: list[PartitionData] = []
        rows, at = _ROWS_II_COMPACT.read(data, at, most)
        for row in rows:
            partition, leader_epoch = row
            self = PartitionData(partition=partition, leader_epoch=leader_epoch)
            found.append(self)
        return found, at


class ReadStateSummaryData(Struct, gc=False, kw_only=True):
    """Partitions, by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Partitions to read.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: list[PartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ReadStateSummaryData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, PartitionData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ReadStateSummaryData], int]:
        found: list[ReadStateSummaryData] = []
        for _ in range(count):
            self = ReadStateSummaryData()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_rows(data, at, True, 9, "partitions", PartitionData, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ReadShareGroupStateSummaryRequest(Message, gc=False, kw_only=True):
    """Asks a share coordinator only for the start offset of a share group's partitions.

    group_id: Id of the share group.
    topics: Partitions, by topic.
    """

    API_KEY = 87
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    group_id: str = ""  # string, versions 0+
    topics: list[ReadStateSummaryData] = field(default_factory=list)  # []ReadStateSummaryData, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, True, "group_id")
        write_structs(out, self.topics, True, ReadStateSummaryData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ReadShareGroupStateSummaryRequest, int]:
        self = ReadShareGroupStateSummaryRequest()
        self.group_id, at = read_string(data, at, True, "group_id")
        self.topics, at = read_structs(data, at, True, 18, "topics", ReadStateSummaryData._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class PartitionResult(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition: Number of the partition within its topic, counted from 0.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    state_epoch: Epoch of the state; increases with each initialization.
    leader_epoch: Leader epoch of the partition, as last written. Not in the early version 0 of Kafka 3.9 and 4.0.
    start_offset: First offset that is not yet done with; -1 if it was not set.
    delivery_complete_count: Number of acknowledged records from the start offset on; -1 if unknown.
    """

    partition: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    state_epoch: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    start_offset: int = 0  # int64, versions 0+
    delivery_complete_count: int = -1  # int32, versions 1+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition, self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            if version >= 1:
                buffer += _IIQI.pack(
                    self.state_epoch,
                    self.leader_epoch,
                    self.start_offset,
                    self.delivery_complete_count,
                )
            else:
                buffer += _IIQ.pack(self.state_epoch, self.leader_epoch, self.start_offset)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionResult], int]:
        found: list[PartitionResult] = []
        for _ in range(count):
            self = PartitionResult()
            self.partition, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            if version >= 1:
                (
                    self.state_epoch,
                    self.leader_epoch,
                    self.start_offset,
                    self.delivery_complete_count,
                ) = _IIQI.unpack_from(data, at)
                at += 20
            else:
                self.state_epoch, self.leader_epoch, self.start_offset = _IIQ.unpack_from(data, at)
                at += 16
                self.delivery_complete_count = -1
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ReadStateSummaryResult(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Results by partition.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: list[PartitionResult] = field(default_factory=list)  # []PartitionResult, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ReadStateSummaryResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, PartitionResult._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ReadStateSummaryResult], int]:
        found: list[ReadStateSummaryResult] = []
        for _ in range(count):
            self = ReadStateSummaryResult()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_structs(data, at, True, 24, "partitions", PartitionResult._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ReadShareGroupStateSummaryResponse(Message, gc=False, kw_only=True):
    """The start offsets of the partitions.

    results: Results by topic.
    """

    API_KEY = 87
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    results: list[ReadStateSummaryResult] = field(default_factory=list)  # []ReadStateSummaryResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.results, True, ReadStateSummaryResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ReadShareGroupStateSummaryResponse, int]:
        self = ReadShareGroupStateSummaryResponse()
        self.results, at = read_structs(data, at, True, 18, "results", ReadStateSummaryResult._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
