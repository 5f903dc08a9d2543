"""Generated from ReadShareGroupStateRequest.json and ReadShareGroupStateResponse.json. Do not edit: the schema compiler

makes it.
ReadShareGroupStateRequest: version 0, flexible 0+.
ReadShareGroupStateResponse: version 0, flexible 0+.
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
_IQ = struct.Struct(">iq")
_QQBH = struct.Struct(">qqbh")
_ROWS_II_COMPACT = Rows("ii", flexible=True)
_ROWS_QQBH_COMPACT = Rows("qqbh", flexible=True)


class PartitionData(Struct, gc=False, kw_only=True):
    """Partitions to read.

    partition: Number of the partition within its topic, counted from 0.
    leader_epoch: Leader epoch of the asking leader; an older leader is shut out from then on.
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


class ReadStateData(Struct, gc=False, kw_only=True):
    """Partitions, by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Partitions to read.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: list[PartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ReadStateData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, PartitionData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ReadStateData], int]:
        found: list[ReadStateData] = []
        for _ in range(count):
            self = ReadStateData()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_rows(data, at, True, 9, "partitions", PartitionData, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ReadShareGroupStateRequest(Message, gc=False, kw_only=True):
    """Sent by a partition's leader to a share coordinator, to read a share group's state of the partition.

    group_id: Id of the share group.
    topics: Partitions, by topic.
    """

    API_KEY = 84
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    group_id: str = ""  # string, versions 0+
    topics: list[ReadStateData] = field(default_factory=list)  # []ReadStateData, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, True, "group_id")
        write_structs(out, self.topics, True, ReadStateData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ReadShareGroupStateRequest, int]:
        self = ReadShareGroupStateRequest()
        self.group_id, at = read_string(data, at, True, "group_id")
        self.topics, at = read_structs(data, at, True, 18, "topics", ReadStateData._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class StateBatch(Struct, gc=False, kw_only=True):
    """Delivery states of the records from there on; gaps are records that no member has acquired yet.

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


class PartitionResult(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition: Number of the partition within its topic, counted from 0.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    state_epoch: Epoch of the state; increases with each initialization.
    start_offset: First offset that is not yet done with; -1 if it was not set.
    state_batches: Delivery states of the records from there on; gaps are records that no member has acquired yet.
    """

    partition: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    state_epoch: int = 0  # int32, versions 0+
    start_offset: int = 0  # int64, versions 0+
    state_batches: list[StateBatch] = field(default_factory=list)  # []StateBatch, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition, self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            buffer += _IQ.pack(self.state_epoch, self.start_offset)
            write_structs(out, self.state_batches, True, StateBatch._write_each, version)
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
            self.state_epoch, self.start_offset = _IQ.unpack_from(data, at)
            at += 12
            self.state_batches, at = read_rows(data, at, True, 20, "state_batches", StateBatch, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ReadStateResult(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Results by partition.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: list[PartitionResult] = field(default_factory=list)  # []PartitionResult, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ReadStateResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, PartitionResult._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ReadStateResult], int]:
        found: list[ReadStateResult] = []
        for _ in range(count):
            self = ReadStateResult()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_structs(data, at, True, 21, "partitions", PartitionResult._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ReadShareGroupStateResponse(Message, gc=False, kw_only=True):
    """The state of the partitions, record by record.

    results: Results by topic.
    """

    API_KEY = 84
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    results: list[ReadStateResult] = field(default_factory=list)  # []ReadStateResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.results, True, ReadStateResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ReadShareGroupStateResponse, int]:
        self = ReadShareGroupStateResponse()
        self.results, at = read_structs(data, at, True, 18, "results", ReadStateResult._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
