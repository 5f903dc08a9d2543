"""Generated from ListOffsetsRequest.json and ListOffsetsResponse.json. Do not edit: the schema compiler makes it.

ListOffsetsRequest: versions 0-11, flexible 6+; deprecated 0.
ListOffsetsResponse: versions 0-11, flexible 6+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, Shapes, read_rows

_I = struct.Struct(">i")
_IB = struct.Struct(">ib")
_IH = struct.Struct(">ih")
_IHQQ = struct.Struct(">ihqq")
_IHQQI = struct.Struct(">ihqqi")
_IIQ = struct.Struct(">iiq")
_IQ = struct.Struct(">iq")
_IQI = struct.Struct(">iqi")
_ROWS_IHQQI_CLASSIC = Rows("ihqqi", flexible=False)
_ROWS_IHQQI_COMPACT = Rows("ihqqi", flexible=True)
_ROWS_IHQQ_CLASSIC = Rows("ihqq", flexible=False)
_ROWS_IH_Q_CLASSIC = Rows("ih[q", flexible=False)
_ROWS_IIQ_CLASSIC = Rows("iiq", flexible=False)
_ROWS_IIQ_COMPACT = Rows("iiq", flexible=True)
_ROWS_IQI_CLASSIC = Rows("iqi", flexible=False)
_ROWS_IQ_CLASSIC = Rows("iq", flexible=False)
_SHAPES_IH_Q_CLASSIC = Shapes("ih[q", flexible=False)


class ListOffsetsPartition(Struct, gc=False, kw_only=True):
    """Partitions to look up.

    partition_index: Number of the partition within its topic, counted from 0.
    current_leader_epoch: Epoch of the leader as the asker knows it, so that an old leader, or an old asker, is
        fenced; -1 skips the check.
    timestamp: Milliseconds since 1970, or a special value: -1 the end, -2 the start, -3 the record with the largest
        timestamp (7+), -4 the start on local disk (8+), -5 the last tiered offset (9+), -6 the first not yet tiered
        (11+).
    max_num_offsets: Maximum number of offsets to return.
    """

    partition_index: int = 0  # int32, versions 0+
    current_leader_epoch: int = -1  # int32, versions 4+, ignorable
    timestamp: int = 0  # int64, versions 0+
    max_num_offsets: int = 1  # int32, versions 0
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ListOffsetsPartition], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        for self in structs:
            if version > 0 and self.max_num_offsets != 1:
                raise absent("max_num_offsets")
            if version >= 4:
                buffer += _IIQ.pack(self.partition_index, self.current_leader_epoch, self.timestamp)
            elif version >= 1:
                buffer += _IQ.pack(self.partition_index, self.timestamp)
            else:
                buffer += _IQI.pack(self.partition_index, self.timestamp, self.max_num_offsets)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ListOffsetsPartition], int]:
        found: list[ListOffsetsPartition] = []
        for _ in range(count):
            self = ListOffsetsPartition()
            if version >= 4:
                self.partition_index, self.current_leader_epoch, self.timestamp = _IIQ.unpack_from(data, at)
                at += 16
                self.max_num_offsets = 1
            elif version >= 1:
                self.partition_index, self.timestamp = _IQ.unpack_from(data, at)
                at += 12
                self.current_leader_epoch = -1
                self.max_num_offsets = 1
            else:
                self.partition_index, self.timestamp, self.max_num_offsets = _IQI.unpack_from(data, at)
                at += 16
                self.current_leader_epoch = -1
            if version >= 6:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[ListOffsetsPartition], int]:
        found: list[ListOffsetsPartition] = []
        if version >= 6:
            rows, at = _ROWS_IIQ_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, current_leader_epoch, timestamp = row
                self = ListOffsetsPartition(
                    partition_index=partition_index,
                    current_leader_epoch=current_leader_epoch,
                    timestamp=timestamp,
                )
                found.append(self)
        elif version >= 4:
            rows, at = _ROWS_IIQ_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, current_leader_epoch, timestamp = row
                self = ListOffsetsPartition(
                    partition_index=partition_index,
                    current_leader_epoch=current_leader_epoch,
                    timestamp=timestamp,
                )
                found.append(self)
        elif version >= 1:
            rows, at = _ROWS_IQ_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, timestamp = row
                self = ListOffsetsPartition(partition_index=partition_index, timestamp=timestamp)
                found.append(self)
        else:
            rows, at = _ROWS_IQI_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, timestamp, max_num_offsets = row
                self = ListOffsetsPartition(
                    partition_index=partition_index,
                    timestamp=timestamp,
                    max_num_offsets=max_num_offsets,
                )
                found.append(self)
        return found, at


class ListOffsetsTopic(Struct, gc=False, kw_only=True):
    """Topics to look up.

    name: Name of the topic.
    partitions: Partitions to look up.
    """

    name: str = ""  # string, versions 0+
    partitions: list[ListOffsetsPartition] = field(default_factory=list)  # []ListOffsetsPartition, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ListOffsetsTopic], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_structs(out, self.partitions, flexible, ListOffsetsPartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ListOffsetsTopic], int]:
        flexible = version >= 6
        found: list[ListOffsetsTopic] = []
        for _ in range(count):
            self = ListOffsetsTopic()
            self.name, at = read_string(data, at, flexible, "name")
            self.partitions, at = read_rows(data, at, flexible, 12, "partitions", ListOffsetsPartition, version)
            if version >= 6:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class ListOffsetsRequest(Message, gc=False, kw_only=True):
    """Looks up offsets by time: the first record not older than a timestamp, or the start or end of a partition.

    replica_id: Broker id if a follower asks; -1 for a consumer, -2 for a debugging tool.
    isolation_level: 1 (read_committed) makes the latest offset the last stable one; with 0 it is the high watermark.
    topics: Topics to look up.
    timeout_ms: Longest time, in milliseconds, to wait for an answer that has to come from tiered storage.
    """

    API_KEY = 2
    VALID_VERSIONS = range(12)
    FLEXIBLE_VERSIONS = range(6, 12)

    replica_id: int = 0  # int32, versions 0+
    isolation_level: int = 0  # int8, versions 2+
    topics: list[ListOffsetsTopic] = field(default_factory=list)  # []ListOffsetsTopic, versions 0+
    timeout_ms: int = 0  # int32, versions 10+, ignorable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        if version < 2 and self.isolation_level != 0:
            raise absent("isolation_level")
        if version >= 2:
            buffer += _IB.pack(self.replica_id, self.isolation_level)
        else:
            buffer += _I.pack(self.replica_id)
        write_structs(out, self.topics, flexible, ListOffsetsTopic._write_each, version)
        if version >= 10:
            buffer += _I.pack(self.timeout_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ListOffsetsRequest, int]:
        self = ListOffsetsRequest()
        flexible = version >= 6
        if version >= 2:
            self.replica_id, self.isolation_level = _IB.unpack_from(data, at)
            at += 5
        else:
            (self.replica_id,) = _I.unpack_from(data, at)
            at += 4
            self.isolation_level = 0
        self.topics, at = read_structs(data, at, flexible, 3, "topics", ListOffsetsTopic._read_each, version)
        if version >= 10:
            (self.timeout_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.timeout_ms = 0
        if version >= 6:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class ListOffsetsPartitionResponse(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    old_style_offsets: First offsets of segments that were not changed after the timestamp, latest first; how version
        0 answers.
    timestamp: Timestamp of the record found; -1 if none was found, or if the start or the end was requested.
    offset: Offset that was found; -1 if no record is that new.
    leader_epoch: Leader epoch of the record found; -1 if it is not known.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    old_style_offsets: tuple[int, ...] = ()  # []int64, versions 0
    timestamp: int = -1  # int64, versions 1+
    offset: int = -1  # int64, versions 1+
    leader_epoch: int = -1  # int32, versions 4+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ListOffsetsPartitionResponse], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        lengths: tuple[int, ...]
        for self in structs:
            if version > 0 and len(self.old_style_offsets) > 0:
                raise absent("old_style_offsets")
            if version < 1 and self.timestamp != -1:
                raise absent("timestamp")
            if version < 1 and self.offset != -1:
                raise absent("offset")
            if version < 4 and self.leader_epoch != -1:
                raise absent("leader_epoch")
            if version >= 4:
                buffer += _IHQQI.pack(
                    self.partition_index,
                    self.error_code,
                    self.timestamp,
                    self.offset,
                    self.leader_epoch,
                )
            elif version >= 1:
                buffer += _IHQQ.pack(self.partition_index, self.error_code, self.timestamp, self.offset)
            else:
                lengths = (len(self.old_style_offsets),)
                buffer += _SHAPES_IH_Q_CLASSIC[lengths](
                    self.partition_index,
                    self.error_code,
                    lengths[0],
                    *self.old_style_offsets,
                )
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
    ) -> tuple[list[ListOffsetsPartitionResponse], int]:
        flexible = version >= 6
        found: list[ListOffsetsPartitionResponse] = []
        for _ in range(count):
            self = ListOffsetsPartitionResponse()
            if version >= 4:
                (
                    self.partition_index,
                    self.error_code,
                    self.timestamp,
                    self.offset,
                    self.leader_epoch,
                ) = _IHQQI.unpack_from(data, at)
                at += 26
                self.old_style_offsets = ()
            elif version >= 1:
                self.partition_index, self.error_code, self.timestamp, self.offset = _IHQQ.unpack_from(data, at)
                at += 22
                self.old_style_offsets = ()
                self.leader_epoch = -1
            else:
                self.partition_index, self.error_code = _IH.unpack_from(data, at)
                at += 6
                self.old_style_offsets, at = read_numbers(data, at, flexible, "q", "old_style_offsets")
                self.timestamp = -1
                self.offset = -1
                self.leader_epoch = -1
            if version >= 6:
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
    ) -> tuple[list[ListOffsetsPartitionResponse], int]:
        found: list[ListOffsetsPartitionResponse] = []
        if version >= 6:
            rows, at = _ROWS_IHQQI_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, error_code, timestamp, offset, leader_epoch = row
                self = ListOffsetsPartitionResponse(
                    partition_index=partition_index,
                    error_code=error_code,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=leader_epoch,
                )
                found.append(self)
        elif version >= 4:
            rows, at = _ROWS_IHQQI_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, error_code, timestamp, offset, leader_epoch = row
                self = ListOffsetsPartitionResponse(
                    partition_index=partition_index,
                    error_code=error_code,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=leader_epoch,
                )
                found.append(self)
        elif version >= 1:
            rows, at = _ROWS_IHQQ_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, error_code, timestamp, offset = row
                self = ListOffsetsPartitionResponse(
                    partition_index=partition_index,
                    error_code=error_code,
                    timestamp=timestamp,
                    offset=offset,
                )
                found.append(self)
        else:
            rows, at = _ROWS_IH_Q_CLASSIC.read(data, at, most)
            for row in rows:
                (partition_index, error_code), old_style_offsets = row
                self = ListOffsetsPartitionResponse(
                    partition_index=partition_index,
                    error_code=error_code,
                    old_style_offsets=old_style_offsets,
                )
                found.append(self)
        return found, at


class ListOffsetsTopicResponse(Struct, gc=False, kw_only=True):
    """Results by topic.

    name: Name of the topic.
    partitions: Results by partition.
    """

    name: str = ""  # string, versions 0+
    # []ListOffsetsPartitionResponse, versions 0+
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ListOffsetsTopicResponse], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_structs(out, self.partitions, flexible, ListOffsetsPartitionResponse._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ListOffsetsTopicResponse], int]:
        flexible = version >= 6
        found: list[ListOffsetsTopicResponse] = []
        for _ in range(count):
            self = ListOffsetsTopicResponse()
            self.name, at = read_string(data, at, flexible, "name")
            self.partitions, at = read_rows(data, at, flexible, 10, "partitions", ListOffsetsPartitionResponse, version)
            if version >= 6:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class ListOffsetsResponse(Message, gc=False, kw_only=True):
    """The offsets that were looked up, with the timestamp of the record found.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 2 the broker
        held this response back for that long; from version 3 on it answers at once and the client does the waiting.
    topics: Results by topic.
    """

    API_KEY = 2
    VALID_VERSIONS = range(12)
    FLEXIBLE_VERSIONS = range(6, 12)

    throttle_time_ms: int = 0  # int32, versions 2+, ignorable
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)  # []ListOffsetsTopicResponse, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        if version >= 2:
            buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.topics, flexible, ListOffsetsTopicResponse._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ListOffsetsResponse, int]:
        self = ListOffsetsResponse()
        flexible = version >= 6
        if version >= 2:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.throttle_time_ms = 0
        self.topics, at = read_structs(data, at, flexible, 3, "topics", ListOffsetsTopicResponse._read_each, version)
        if version >= 6:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
