"""Generated from WriteShareGroupStateRequest.json and WriteShareGroupStateResponse.json. Do not edit: the schema

compiler makes it.
WriteShareGroupStateRequest: versions 0-1, flexible 0+.
WriteShareGroupStateResponse: versions 0-1, flexible 0+.
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
_IIIQ = struct.Struct(">iiiq")
_IIIQI = struct.Struct(">iiiqi")
_QQBH = struct.Struct(">qqbh")
_ROWS_QQBH_COMPACT = Rows("qqbh", flexible=True)


class StateBatch(Struct, gc=False, kw_only=True):
    """Delivery states of runs of records since the last write.

    first_offset: First offset of the run.
    last_offset: Last offset of the run.
    delivery_state: 0 to be handed out, 2 acknowledged, 4 given up.
    delivery_count: Delivery count of these records.
    """

    first_offset: int = 0  # int64, versions 0+
    last_offset: int = 0  # int64, versions 0+
    delivery_state: int = 0  # int8, versions 0+
    delivery_count: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[StateBatch], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _QQBH.pack(self.first_offset, self.last_offset, self.delivery_state, self.delivery_count)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[StateBatch], int]:
        found: list[StateBatch] = []
        for _ in range(count):
            self = StateBatch()
            self.first_offset, self.last_offset, self.delivery_state, self.delivery_count = _QQBH.unpack_from(data, at)
            at += 19
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[StateBatch], int]:
        found: list[StateBatch] = []
        rows, at = _ROWS_QQBH_COMPACT.read(data, at, most)
        for row in rows:
            first_offset, last_offset, delivery_state, delivery_count = row
            self = StateBatch(
                first_offset=first_offset,
                last_offset=last_offset,
                delivery_state=delivery_state,
                delivery_count=delivery_count,
            )
            found.append(self)
        return found, at


class PartitionData(Struct, gc=False, kw_only=True):
    """Partitions to write.

    partition: Number of the partition within its topic, counted from 0.
    state_epoch: Epoch of the state, as read; a lower one is refused (error 124).
    leader_epoch: Leader epoch of the writer; a lower one is refused.
    start_offset: First offset that is not yet acknowledged; -1 leaves it unchanged.
    delivery_complete_count: Number of acknowledged records from the start offset on; -1 if unknown.
    state_batches: Delivery states of runs of records since the last write.
    """

    partition: int = 0  # int32, versions 0+
    state_epoch: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    start_offset: int = 0  # int64, versions 0+
    delivery_complete_count: int = -1  # int32, versions 1+, ignorable
    state_batches: list[StateBatch] = field(default_factory=list)  # []StateBatch, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version >= 1:
                buffer += _IIIQI.pack(
                    self.partition,
                    self.state_epoch,
                    self.leader_epoch,
                    self.start_offset,
                    self.delivery_complete_count,
                )
            else:
                buffer += _IIIQ.pack(self.partition, self.state_epoch, self.leader_epoch, self.start_offset)
            write_structs(out, self.state_batches, True, StateBatch._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionData], int]:
        found: list[PartitionData] = []
        for _ in range(count):
            self = PartitionData()
            if version >= 1:
                (
                    self.partition,
                    self.state_epoch,
                    self.leader_epoch,
                    self.start_offset,
                    self.delivery_complete_count,
                ) = _IIIQI.unpack_from(data, at)
                at += 24
            else:
                self.partition, self.state_epoch, self.leader_epoch, self.start_offset = _IIIQ.unpack_from(data, at)
                at += 20
                self.delivery_complete_count = -1
            self.state_batches, at = read_rows(data, at, True, 20, "state_batches", StateBatch, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class WriteStateData(Struct, gc=False, kw_only=True):
    """Partitions, by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Partitions to write.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: list[PartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[WriteStateData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, PartitionData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[WriteStateData], int]:
        found: list[WriteStateData] = []
        for _ in range(count):
            self = WriteStateData()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_structs(data, at, True, 22, "partitions", PartitionData._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class WriteShareGroupStateRequest(Message, gc=False, kw_only=True):
    """Sent by a partition's leader to a share coordinator: store a share group's state of the partition.

    group_id: Id of the share group.
    topics: Partitions, by topic.
    """

    API_KEY = 85
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    group_id: str = ""  # string, versions 0+
    topics: list[WriteStateData] = field(default_factory=list)  # []WriteStateData, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, True, "group_id")
        write_structs(out, self.topics, True, WriteStateData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[WriteShareGroupStateRequest, int]:
        self = WriteShareGroupStateRequest()
        self.group_id, at = read_string(data, at, True, "group_id")
        self.topics, at = read_structs(data, at, True, 18, "topics", WriteStateData._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class PartitionResult(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition: Number of the partition within its topic, counted from 0.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    partition: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition, self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
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
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class WriteStateResult(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Results by partition.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: list[PartitionResult] = field(default_factory=list)  # []PartitionResult, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[WriteStateResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, PartitionResult._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[WriteStateResult], int]:
        found: list[WriteStateResult] = []
        for _ in range(count):
            self = WriteStateResult()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_structs(data, at, True, 8, "partitions", PartitionResult._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class WriteShareGroupStateResponse(Message, gc=False, kw_only=True):
    """Which partitions' state is kept.

    results: Results by topic.
    """

    API_KEY = 85
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    results: list[WriteStateResult] = field(default_factory=list)  # []WriteStateResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.results, True, WriteStateResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[WriteShareGroupStateResponse, int]:
        self = WriteShareGroupStateResponse()
        self.results, at = read_structs(data, at, True, 18, "results", WriteStateResult._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
