"""Generated from OffsetForLeaderEpochRequest.json and OffsetForLeaderEpochResponse.json. Do not edit: the schema

compiler makes it.
OffsetForLeaderEpochRequest: versions 0-4, flexible 4+; deprecated 0-1.
OffsetForLeaderEpochResponse: versions 0-4, flexible 4+.
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

_HIIQ = struct.Struct(">hiiq")
_HIQ = struct.Struct(">hiq")
_I = struct.Struct(">i")
_II = struct.Struct(">ii")
_III = struct.Struct(">iii")
_ROWS_HIIQ_CLASSIC = Rows("hiiq", flexible=False)
_ROWS_HIIQ_COMPACT = Rows("hiiq", flexible=True)
_ROWS_HIQ_CLASSIC = Rows("hiq", flexible=False)
_ROWS_III_CLASSIC = Rows("iii", flexible=False)
_ROWS_III_COMPACT = Rows("iii", flexible=True)
_ROWS_II_CLASSIC = Rows("ii", flexible=False)


class OffsetForLeaderPartition(Struct, gc=False, kw_only=True):
    """Partitions to look up.

    partition: Number of the partition within its topic, counted from 0.
    current_leader_epoch: Epoch of the leader as the asker knows it, so that an old leader, or an old asker, is
        fenced; -1 skips the check.
    leader_epoch: Epoch whose end is sought.
    """

    partition: int = 0  # int32, versions 0+
    current_leader_epoch: int = -1  # int32, versions 2+, ignorable
    leader_epoch: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetForLeaderPartition], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            if version >= 2:
                buffer += _III.pack(self.partition, self.current_leader_epoch, self.leader_epoch)
            else:
                buffer += _II.pack(self.partition, self.leader_epoch)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetForLeaderPartition], int]:
        found: list[OffsetForLeaderPartition] = []
        for _ in range(count):
            self = OffsetForLeaderPartition()
            if version >= 2:
                self.partition, self.current_leader_epoch, self.leader_epoch = _III.unpack_from(data, at)
                at += 12
            else:
                self.partition, self.leader_epoch = _II.unpack_from(data, at)
                at += 8
                self.current_leader_epoch = -1
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[OffsetForLeaderPartition], int]:
        found: list[OffsetForLeaderPartition] = []
        if version >= 4:
            rows, at = _ROWS_III_COMPACT.read(data, at, most)
            for row in rows:
                partition, current_leader_epoch, leader_epoch = row
                self = OffsetForLeaderPartition(
                    partition=partition,
                    current_leader_epoch=current_leader_epoch,
                    leader_epoch=leader_epoch,
                )
                found.append(self)
        elif version >= 2:
            rows, at = _ROWS_III_CLASSIC.read(data, at, most)
            for row in rows:
                partition, current_leader_epoch, leader_epoch = row
                self = OffsetForLeaderPartition(
                    partition=partition,
                    current_leader_epoch=current_leader_epoch,
                    leader_epoch=leader_epoch,
                )
                found.append(self)
        else:
            rows, at = _ROWS_II_CLASSIC.read(data, at, most)
            for row in rows:
                partition, leader_epoch = row
                self = OffsetForLeaderPartition(partition=partition, leader_epoch=leader_epoch)
                found.append(self)
        return found, at


class OffsetForLeaderTopic(Struct, gc=False, kw_only=True):
    """Topics to look up.

    topic: Name of the topic, unique in the cluster.
    partitions: Partitions to look up.
    """

    topic: str = ""  # string, versions 0+
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)  # []OffsetForLeaderPartition, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetForLeaderTopic], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic, flexible, "topic")
            write_structs(out, self.partitions, flexible, OffsetForLeaderPartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetForLeaderTopic], int]:
        flexible = version >= 4
        found: list[OffsetForLeaderTopic] = []
        for _ in range(count):
            self = OffsetForLeaderTopic()
            self.topic, at = read_string(data, at, flexible, "topic")
            self.partitions, at = read_rows(data, at, flexible, 8, "partitions", OffsetForLeaderPartition, version)
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class OffsetForLeaderEpochRequest(Message, gc=False, kw_only=True):
    """Asks a leader where an epoch of its log ended. Followers and consumers find out with it whether, and where, their
    copy went another way.

    replica_id: Broker id of the follower that asks; -1 for a consumer, -2 if it is not said.
    topics: Topics to look up.
    """

    API_KEY = 23
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(4, 5)

    replica_id: int = -2  # int32, versions 3+, ignorable
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)  # []OffsetForLeaderTopic, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version >= 3:
            buffer += _I.pack(self.replica_id)
        write_structs(out, self.topics, flexible, OffsetForLeaderTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[OffsetForLeaderEpochRequest, int]:
        self = OffsetForLeaderEpochRequest()
        flexible = version >= 4
        if version >= 3:
            (self.replica_id,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.replica_id = -2
        self.topics, at = read_structs(data, at, flexible, 3, "topics", OffsetForLeaderTopic._read_each, version)
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class EpochEndOffset(Struct, gc=False, kw_only=True):
    """Results by partition.

    error_code: Error of this partition; 0 means none. 74 and 75 say that the asker's picture of the leader is too
        old or too new.
    partition: Number of the partition within its topic, counted from 0.
    leader_epoch: Largest epoch in the log that is not above the requested one; -1 if there is none.
    end_offset: Offset after the last record of that epoch; -1 if it is not known.
    """

    error_code: int = 0  # int16, versions 0+
    partition: int = 0  # int32, versions 0+
    leader_epoch: int = -1  # int32, versions 1+, ignorable
    end_offset: int = -1  # int64, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[EpochEndOffset], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            if version >= 1:
                buffer += _HIIQ.pack(self.error_code, self.partition, self.leader_epoch, self.end_offset)
            else:
                buffer += _HIQ.pack(self.error_code, self.partition, self.end_offset)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[EpochEndOffset], int]:
        found: list[EpochEndOffset] = []
        for _ in range(count):
            self = EpochEndOffset()
            if version >= 1:
                self.error_code, self.partition, self.leader_epoch, self.end_offset = _HIIQ.unpack_from(data, at)
                at += 18
            else:
                self.error_code, self.partition, self.end_offset = _HIQ.unpack_from(data, at)
                at += 14
                self.leader_epoch = -1
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[EpochEndOffset], int]:
        found: list[EpochEndOffset] = []
        if version >= 4:
            rows, at = _ROWS_HIIQ_COMPACT.read(data, at, most)
            for row in rows:
                error_code, partition, leader_epoch, end_offset = row
                self = EpochEndOffset(
                    error_code=error_code,
                    partition=partition,
                    leader_epoch=leader_epoch,
                    end_offset=end_offset,
                )
                found.append(self)
        elif version >= 1:
            rows, at = _ROWS_HIIQ_CLASSIC.read(data, at, most)
            for row in rows:
                error_code, partition, leader_epoch, end_offset = row
                self = EpochEndOffset(
                    error_code=error_code,
                    partition=partition,
                    leader_epoch=leader_epoch,
                    end_offset=end_offset,
                )
                found.append(self)
        else:
            rows, at = _ROWS_HIQ_CLASSIC.read(data, at, most)
            for row in rows:
                error_code, partition, end_offset = row
                self = EpochEndOffset(error_code=error_code, partition=partition, end_offset=end_offset)
                found.append(self)
        return found, at


class OffsetForLeaderTopicResult(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic: Name of the topic, unique in the cluster.
    partitions: Results by partition.
    """

    topic: str = ""  # string, versions 0+
    partitions: list[EpochEndOffset] = field(default_factory=list)  # []EpochEndOffset, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetForLeaderTopicResult], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic, flexible, "topic")
            write_structs(out, self.partitions, flexible, EpochEndOffset._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetForLeaderTopicResult], int]:
        flexible = version >= 4
        found: list[OffsetForLeaderTopicResult] = []
        for _ in range(count):
            self = OffsetForLeaderTopicResult()
            self.topic, at = read_string(data, at, flexible, "topic")
            self.partitions, at = read_rows(data, at, flexible, 14, "partitions", EpochEndOffset, version)
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class OffsetForLeaderEpochResponse(Message, gc=False, kw_only=True):
    """The end of each requested epoch.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    topics: Results by topic.
    """

    API_KEY = 23
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(4, 5)

    throttle_time_ms: int = 0  # int32, versions 2+, ignorable
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)  # []OffsetForLeaderTopicResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version >= 2:
            buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.topics, flexible, OffsetForLeaderTopicResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[OffsetForLeaderEpochResponse, int]:
        self = OffsetForLeaderEpochResponse()
        flexible = version >= 4
        if version >= 2:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.throttle_time_ms = 0
        self.topics, at = read_structs(data, at, flexible, 3, "topics", OffsetForLeaderTopicResult._read_each, version)
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
