"""Generated from OffsetCommitRequest.json and OffsetCommitResponse.json. Do not edit: the schema compiler makes it.

OffsetCommitRequest: versions 0-10, flexible 8+; deprecated 0-1.
OffsetCommitResponse: versions 0-10, flexible 8+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    absent,
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

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_IQ = struct.Struct(">iq")
_IQI = struct.Struct(">iqi")
_IQQ = struct.Struct(">iqq")
_Q = struct.Struct(">q")
_ROWS_IH_CLASSIC = Rows("ih", flexible=False)
_ROWS_IH_COMPACT = Rows("ih", flexible=True)


class OffsetCommitRequestPartition(Struct, gc=False, kw_only=True):
    """Offsets by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    committed_offset: Offset of the next record to read, one more than that of the last record processed.
    committed_leader_epoch: Leader epoch of the last record processed, to notice a log that was truncated; -1 if it
        is not known.
    commit_timestamp: Time of the commit in milliseconds since 1970, from which retention counts; -1 means now.
    committed_metadata: Free text that is kept with the offset (4096 bytes unless the broker allows more); null
        counts as empty.
    """

    partition_index: int = 0  # int32, versions 0+
    committed_offset: int = 0  # int64, versions 0+
    committed_leader_epoch: int = -1  # int32, versions 6+, ignorable
    commit_timestamp: int = -1  # int64, versions 1
    committed_metadata: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetCommitRequestPartition], out: Writer, version: int) -> None:
        flexible = version >= 8
        buffer = out.buffer
        for self in structs:
            if version != 1 and self.commit_timestamp != -1:
                raise absent("commit_timestamp")
            if version >= 6:
                buffer += _IQI.pack(self.partition_index, self.committed_offset, self.committed_leader_epoch)
            elif version >= 2:
                buffer += _IQ.pack(self.partition_index, self.committed_offset)
            elif version >= 1:
                buffer += _IQQ.pack(self.partition_index, self.committed_offset, self.commit_timestamp)
            else:
                buffer += _IQ.pack(self.partition_index, self.committed_offset)
            write_nullable_string(buffer, self.committed_metadata, flexible, "committed_metadata")
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
    ) -> tuple[list[OffsetCommitRequestPartition], int]:
        flexible = version >= 8
        found: list[OffsetCommitRequestPartition] = []
        for _ in range(count):
            self = OffsetCommitRequestPartition()
            if version >= 6:
                self.partition_index, self.committed_offset, self.committed_leader_epoch = _IQI.unpack_from(data, at)
                at += 16
                self.commit_timestamp = -1
            elif version >= 2:
                self.partition_index, self.committed_offset = _IQ.unpack_from(data, at)
                at += 12
                self.committed_leader_epoch = -1
                self.commit_timestamp = -1
            elif version >= 1:
                self.partition_index, self.committed_offset, self.commit_timestamp = _IQQ.unpack_from(data, at)
                at += 20
                self.committed_leader_epoch = -1
            else:
                self.partition_index, self.committed_offset = _IQ.unpack_from(data, at)
                at += 12
                self.committed_leader_epoch = -1
                self.commit_timestamp = -1
            self.committed_metadata, at = read_nullable_string(data, at, flexible, "committed_metadata")
            if version >= 8:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class OffsetCommitRequestTopic(Struct, gc=False, kw_only=True):
    """Offsets by topic.

    name: Name of the topic.
    topic_id: Id of the topic, which replaces its name from version 10 on.
    partitions: Offsets by partition.
    """

    name: str = ""  # string, versions 0-9, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 10+, ignorable
    # []OffsetCommitRequestPartition, versions 0+
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetCommitRequestTopic], out: Writer, version: int) -> None:
        flexible = version >= 8
        buffer = out.buffer
        for self in structs:
            if version <= 9:
                write_string(buffer, self.name, flexible, "name")
            if version >= 10:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, flexible, OffsetCommitRequestPartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetCommitRequestTopic], int]:
        flexible = version >= 8
        found: list[OffsetCommitRequestTopic] = []
        for _ in range(count):
            self = OffsetCommitRequestTopic()
            if version >= 10:
                self.name = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.name, at = read_string(data, at, flexible, "name")
                self.topic_id = NULL_UUID
            self.partitions, at = read_structs(
                data,
                at,
                flexible,
                14,
                "partitions",
                OffsetCommitRequestPartition._read_each,
                version,
            )
            if version >= 8:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class OffsetCommitRequest(Message, gc=False, kw_only=True):
    """Commits offsets of a group. The coordinator stores them in __consumer_offsets; version 0 stores them in
    ZooKeeper.

    group_id: Group whose offsets are stored.
    generation_id_or_member_epoch: Generation of the group, or from version 9 on a member's epoch in the new group
        protocol; -1 for a consumer that assigns partitions to itself.
    member_id: Id of the member; empty for a consumer that assigns partitions to itself.
    group_instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member, which gets
        a new identity whenever it restarts.
    retention_time_ms: Milliseconds to keep the offsets; -1 means as long as the broker's offsets.retention.minutes
        says.
    topics: Offsets by topic.
    """

    API_KEY = 8
    VALID_VERSIONS = range(11)
    FLEXIBLE_VERSIONS = range(8, 11)

    group_id: str = ""  # string, versions 0+
    generation_id_or_member_epoch: int = -1  # int32, versions 1+, ignorable
    member_id: str = ""  # string, versions 1+, ignorable
    group_instance_id: str | None = None  # string, versions 7+, nullable
    retention_time_ms: int = -1  # int64, versions 2-4, ignorable
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)  # []OffsetCommitRequestTopic, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 8
        buffer = out.buffer
        if version < 7 and self.group_instance_id is not None:
            raise absent("group_instance_id")
        write_string(buffer, self.group_id, flexible, "group_id")
        if version >= 1:
            buffer += _I.pack(self.generation_id_or_member_epoch)
            write_string(buffer, self.member_id, flexible, "member_id")
        if version >= 7:
            write_nullable_string(buffer, self.group_instance_id, flexible, "group_instance_id")
        if 2 <= version <= 4:
            buffer += _Q.pack(self.retention_time_ms)
        write_structs(out, self.topics, flexible, OffsetCommitRequestTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[OffsetCommitRequest, int]:
        self = OffsetCommitRequest()
        flexible = version >= 8
        self.group_id, at = read_string(data, at, flexible, "group_id")
        if version >= 1:
            (self.generation_id_or_member_epoch,) = _I.unpack_from(data, at)
            at += 4
            self.member_id, at = read_string(data, at, flexible, "member_id")
        else:
            self.generation_id_or_member_epoch = -1
            self.member_id = ""
        if version >= 7:
            self.group_instance_id, at = read_nullable_string(data, at, flexible, "group_instance_id")
        else:
            self.group_instance_id = None
        if version >= 5:
            self.retention_time_ms = -1
        elif version >= 2:
            (self.retention_time_ms,) = _Q.unpack_from(data, at)
            at += 8
        else:
            self.retention_time_ms = -1
        self.topics, at = read_structs(data, at, flexible, 3, "topics", OffsetCommitRequestTopic._read_each, version)
        if version >= 8:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class OffsetCommitResponsePartition(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means that the offset is stored. 22, 25 and 27 concern the member, 12 its
        metadata.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetCommitResponsePartition], out: Writer, version: int) -> None:
        flexible = version >= 8
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
    ) -> tuple[list[OffsetCommitResponsePartition], int]:
        found: list[OffsetCommitResponsePartition] = []
        for _ in range(count):
            self = OffsetCommitResponsePartition()
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            if version >= 8:
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
    ) -> tuple[list[OffsetCommitResponsePartition], int]:
        found: list[OffsetCommitResponsePartition] = []
        if version >= 8:
            rows, at = _ROWS_IH_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, error_code = row
                self = OffsetCommitResponsePartition(partition_index=partition_index, error_code=error_code)
                found.append(self)
        else:
            rows, at = _ROWS_IH_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, error_code = row
                self = OffsetCommitResponsePartition(partition_index=partition_index, error_code=error_code)
                found.append(self)
        return found, at


class OffsetCommitResponseTopic(Struct, gc=False, kw_only=True):
    """Results by topic.

    name: Name of the topic.
    topic_id: Id of the topic, which replaces its name from version 10 on.
    partitions: Results by partition.
    """

    name: str = ""  # string, versions 0-9, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 10+, ignorable
    # []OffsetCommitResponsePartition, versions 0+
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetCommitResponseTopic], out: Writer, version: int) -> None:
        flexible = version >= 8
        buffer = out.buffer
        for self in structs:
            if version <= 9:
                write_string(buffer, self.name, flexible, "name")
            if version >= 10:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, flexible, OffsetCommitResponsePartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetCommitResponseTopic], int]:
        flexible = version >= 8
        found: list[OffsetCommitResponseTopic] = []
        for _ in range(count):
            self = OffsetCommitResponseTopic()
            if version >= 10:
                self.name = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.name, at = read_string(data, at, flexible, "name")
                self.topic_id = NULL_UUID
            self.partitions, at = read_rows(data, at, flexible, 6, "partitions", OffsetCommitResponsePartition, version)
            if version >= 8:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class OffsetCommitResponse(Message, gc=False, kw_only=True):
    """Which offsets were stored.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 3 the broker
        held this response back for that long; from version 4 on it answers at once and the client does the waiting.
    topics: Results by topic.
    """

    API_KEY = 8
    VALID_VERSIONS = range(11)
    FLEXIBLE_VERSIONS = range(8, 11)

    throttle_time_ms: int = 0  # int32, versions 3+, ignorable
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)  # []OffsetCommitResponseTopic, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 8
        buffer = out.buffer
        if version >= 3:
            buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.topics, flexible, OffsetCommitResponseTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[OffsetCommitResponse, int]:
        self = OffsetCommitResponse()
        flexible = version >= 8
        if version >= 3:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.throttle_time_ms = 0
        self.topics, at = read_structs(data, at, flexible, 3, "topics", OffsetCommitResponseTopic._read_each, version)
        if version >= 8:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
