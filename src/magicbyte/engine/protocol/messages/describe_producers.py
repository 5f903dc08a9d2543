"""Generated from DescribeProducersRequest.json and DescribeProducersResponse.json. Do not edit: the schema compiler

makes it.
DescribeProducersRequest: version 0, flexible 0+.
DescribeProducersResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_string,
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
from magicbyte.engine.protocol.rows import Rows, read_rows

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_QIIQIQ = struct.Struct(">qiiqiq")
_ROWS_QIIQIQ_COMPACT = Rows("qiiqiq", flexible=True)


class TopicRequest(Struct, gc=False, kw_only=True):
    """Topics to look at.

    name: Name of the topic.
    partition_indexes: Numbers of the partitions to look at.
    """

    name: str = ""  # string, versions 0+
    partition_indexes: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicRequest], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_numbers(buffer, self.partition_indexes, True, "i")
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
            self.partition_indexes, at = read_numbers(data, at, True, "i", "partition_indexes")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeProducersRequest(Message, gc=False, kw_only=True):
    """Asks a broker which producers it remembers for partitions it has; helps to find transactions that hang.

    topics: Topics to look at.
    """

    API_KEY = 61
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    topics: list[TopicRequest] = field(default_factory=list)  # []TopicRequest, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.topics, True, TopicRequest._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeProducersRequest, int]:
        self = DescribeProducersRequest()
        self.topics, at = read_structs(data, at, True, 3, "topics", TopicRequest._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class ProducerState(Struct, gc=False, kw_only=True):
    """Producers that wrote here and have not been forgotten.

    producer_id: Id that the producer got from InitProducerId.
    producer_epoch: Its latest epoch.
    last_sequence: Sequence number of its last record; -1 if that is not known, as after a marker.
    last_timestamp: Timestamp of its last batch, in milliseconds since 1970; -1 if that is not known.
    coordinator_epoch: Epoch of the transaction coordinator that wrote its last marker; -1 if there was none.
    current_txn_start_offset: Offset of the first record of its open transaction; -1 if none is open here.
    """

    producer_id: int = 0  # int64, versions 0+
    producer_epoch: int = 0  # int32, versions 0+
    last_sequence: int = -1  # int32, versions 0+
    last_timestamp: int = -1  # int64, versions 0+
    coordinator_epoch: int = 0  # int32, versions 0+
    current_txn_start_offset: int = -1  # int64, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ProducerState], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _QIIQIQ.pack(
                self.producer_id,
                self.producer_epoch,
                self.last_sequence,
                self.last_timestamp,
                self.coordinator_epoch,
                self.current_txn_start_offset,
            )
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ProducerState], int]:
        found: list[ProducerState] = []
        for _ in range(count):
            self = ProducerState()
            (
                self.producer_id,
                self.producer_epoch,
                self.last_sequence,
                self.last_timestamp,
                self.coordinator_epoch,
                self.current_txn_start_offset,
            ) = _QIIQIQ.unpack_from(data, at)
            at += 36
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[ProducerState], int]:
        found: list[ProducerState] = []
        rows, at = _ROWS_QIIQIQ_COMPACT.read(data, at, most)
        for row in rows:
            (
                producer_id,
                producer_epoch,
                last_sequence,
                last_timestamp,
                coordinator_epoch,
                current_txn_start_offset,
            ) = row
            self = ProducerState(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                last_sequence=last_sequence,
                last_timestamp=last_timestamp,
                coordinator_epoch=coordinator_epoch,
                current_txn_start_offset=current_txn_start_offset,
            )
            found.append(self)
        return found, at


class PartitionResponse(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    active_producers: Producers that wrote here and have not been forgotten.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    active_producers: list[ProducerState] = field(default_factory=list)  # []ProducerState, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionResponse], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition_index, self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            write_structs(out, self.active_producers, True, ProducerState._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionResponse], int]:
        found: list[PartitionResponse] = []
        for _ in range(count):
            self = PartitionResponse()
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.active_producers, at = read_rows(data, at, True, 37, "active_producers", ProducerState, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class TopicResponse(Struct, gc=False, kw_only=True):
    """Results by topic.

    name: Name of the topic.
    partitions: Results by partition.
    """

    name: str = ""  # string, versions 0+
    partitions: list[PartitionResponse] = field(default_factory=list)  # []PartitionResponse, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicResponse], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_structs(out, self.partitions, True, PartitionResponse._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicResponse], int]:
        found: list[TopicResponse] = []
        for _ in range(count):
            self = TopicResponse()
            self.name, at = read_string(data, at, True, "name")
            self.partitions, at = read_structs(data, at, True, 9, "partitions", PartitionResponse._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeProducersResponse(Message, gc=False, kw_only=True):
    """The producers that the partitions remember.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    topics: Results by topic.
    """

    API_KEY = 61
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    topics: list[TopicResponse] = field(default_factory=list)  # []TopicResponse, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.topics, True, TopicResponse._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeProducersResponse, int]:
        self = DescribeProducersResponse()
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.topics, at = read_structs(data, at, True, 3, "topics", TopicResponse._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
