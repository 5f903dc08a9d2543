"""Generated from OffsetFetchRequest.json and OffsetFetchResponse.json. Do not edit: the schema compiler makes it.

OffsetFetchRequest: versions 0-10, flexible 6+; deprecated 0.
OffsetFetchResponse: versions 0-10, flexible 6+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    absent,
    present,
    read_nullable_string,
    read_nullable_structs,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_nullable_string,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IQ = struct.Struct(">iq")
_IQI = struct.Struct(">iqi")
_T = struct.Struct(">?")


class OffsetFetchRequestTopic(Struct, gc=False, kw_only=True):
    """Topics to look up; null, possible from version 2 on, means all that the group has offsets for.

    name: Name of the topic.
    partition_indexes: Numbers of the partitions to look up.
    """

    name: str = ""  # string, versions 0-7
    partition_indexes: tuple[int, ...] = ()  # []int32, versions 0-7
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetFetchRequestTopic], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_numbers(buffer, self.partition_indexes, flexible, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetFetchRequestTopic], int]:
        flexible = version >= 6
        found: list[OffsetFetchRequestTopic] = []
        for _ in range(count):
            self = OffsetFetchRequestTopic()
            self.name, at = read_string(data, at, flexible, "name")
            self.partition_indexes, at = read_numbers(data, at, flexible, "i", "partition_indexes")
            if version >= 6:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class OffsetFetchRequestTopics(Struct, gc=False, kw_only=True):
    """Topics to look up; null means all that the group has offsets for.

    name: Name of the topic.
    topic_id: Id of the topic, which replaces its name from version 10 on.
    partition_indexes: Numbers of the partitions to look up.
    """

    name: str = ""  # string, versions 8-9, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 10+, ignorable
    partition_indexes: tuple[int, ...] = ()  # []int32, versions 8+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetFetchRequestTopics], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version <= 9:
                write_string(buffer, self.name, True, "name")
            if version >= 10:
                write_uuid(buffer, self.topic_id)
            write_numbers(buffer, self.partition_indexes, True, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetFetchRequestTopics], int]:
        found: list[OffsetFetchRequestTopics] = []
        for _ in range(count):
            self = OffsetFetchRequestTopics()
            if version >= 10:
                self.name = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.name, at = read_string(data, at, True, "name")
                self.topic_id = NULL_UUID
            self.partition_indexes, at = read_numbers(data, at, True, "i", "partition_indexes")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class OffsetFetchRequestGroup(Struct, gc=False, kw_only=True):
    """Groups whose offsets are read.

    group_id: Group by its group.id, as its members are configured.
    member_id: Id of the requesting member in the new group protocol; null in all other requests.
    member_epoch: Epoch of the requesting member in the new group protocol; -1 in all other requests.
    topics: Topics to look up; null means all that the group has offsets for.
    """

    group_id: str = ""  # string, versions 8+
    member_id: str | None = None  # string, versions 9+, nullable, ignorable
    member_epoch: int = -1  # int32, versions 9+, ignorable
    # []OffsetFetchRequestTopics, versions 8+, nullable
    topics: list[OffsetFetchRequestTopics] | None = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetFetchRequestGroup], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.group_id, True, "group_id")
            if version >= 9:
                write_nullable_string(buffer, self.member_id, True, "member_id")
                buffer += _I.pack(self.member_epoch)
            write_structs(out, self.topics, True, OffsetFetchRequestTopics._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetFetchRequestGroup], int]:
        found: list[OffsetFetchRequestGroup] = []
        for _ in range(count):
            self = OffsetFetchRequestGroup()
            self.group_id, at = read_string(data, at, True, "group_id")
            if version >= 9:
                self.member_id, at = read_nullable_string(data, at, True, "member_id")
                (self.member_epoch,) = _I.unpack_from(data, at)
                at += 4
            else:
                self.member_id = None
                self.member_epoch = -1
            self.topics, at = read_nullable_structs(
                data,
                at,
                True,
                3,
                "topics",
                OffsetFetchRequestTopics._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class OffsetFetchRequest(Message, gc=False, kw_only=True):
    """Reads the offsets that groups have committed. From version 8 on for several groups at once; version 0 reads from
    ZooKeeper.

    group_id: Group whose offsets are read.
    topics: Topics to look up; null, possible from version 2 on, means all that the group has offsets for.
    groups: Groups whose offsets are read.
    require_stable: True refuses (error 88) partitions with offsets in a transaction that is still open, rather than
        return the older ones.
    """

    API_KEY = 9
    VALID_VERSIONS = range(11)
    FLEXIBLE_VERSIONS = range(6, 11)

    group_id: str = ""  # string, versions 0-7
    # []OffsetFetchRequestTopic, versions 0-7, nullable 2-7
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list)
    groups: list[OffsetFetchRequestGroup] = field(default_factory=list)  # []OffsetFetchRequestGroup, versions 8+
    require_stable: bool = False  # bool, versions 7+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        if version > 7 and self.group_id != "":
            raise absent("group_id")
        if version > 7 and (self.topics is None or len(self.topics) > 0):
            raise absent("topics")
        if version < 8 and len(self.groups) > 0:
            raise absent("groups")
        if version < 7 and self.require_stable:
            raise absent("require_stable")
        if version <= 7:
            write_string(buffer, self.group_id, flexible, "group_id")
        if 2 <= version <= 7:
            write_structs(out, self.topics, flexible, OffsetFetchRequestTopic._write_each, version)
        elif version <= 1:
            write_structs(out, present(self.topics, "topics"), flexible, OffsetFetchRequestTopic._write_each, version)
        if version >= 8:
            write_structs(out, self.groups, flexible, OffsetFetchRequestGroup._write_each, version)
        if version >= 7:
            buffer += _T.pack(self.require_stable)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[OffsetFetchRequest, int]:
        self = OffsetFetchRequest()
        flexible = version >= 6
        if version >= 8:
            self.group_id = ""
        else:
            self.group_id, at = read_string(data, at, flexible, "group_id")
        if version >= 8:
            self.topics = []
        elif version >= 2:
            self.topics, at = read_nullable_structs(
                data,
                at,
                flexible,
                3,
                "topics",
                OffsetFetchRequestTopic._read_each,
                version,
            )
        else:
            self.topics, at = read_structs(data, at, flexible, 3, "topics", OffsetFetchRequestTopic._read_each, version)
        if version >= 8:
            self.groups, at = read_structs(data, at, flexible, 3, "groups", OffsetFetchRequestGroup._read_each, version)
        else:
            self.groups = []
        if version >= 7:
            (self.require_stable,) = _T.unpack_from(data, at)
            at += 1
        else:
            self.require_stable = False
        if version >= 6:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class OffsetFetchResponsePartition(Struct, gc=False, kw_only=True):
    """Offsets by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    committed_offset: Offset of the next record to read; -1 if nothing was committed.
    committed_leader_epoch: Leader epoch committed with the offset; -1 if there was none.
    metadata: Free text committed with the offset; empty if there was none.
    error_code: Error of this partition; 0 means none. 88 says that a transaction on it is still open.
    """

    partition_index: int = 0  # int32, versions 0-7
    committed_offset: int = 0  # int64, versions 0-7
    committed_leader_epoch: int = -1  # int32, versions 5-7, ignorable
    metadata: str | None = ""  # string, versions 0-7, nullable
    error_code: int = 0  # int16, versions 0-7
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetFetchResponsePartition], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        for self in structs:
            if version >= 5:
                buffer += _IQI.pack(self.partition_index, self.committed_offset, self.committed_leader_epoch)
            else:
                buffer += _IQ.pack(self.partition_index, self.committed_offset)
            write_nullable_string(buffer, self.metadata, flexible, "metadata")
            buffer += _H.pack(self.error_code)
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
    ) -> tuple[list[OffsetFetchResponsePartition], int]:
        flexible = version >= 6
        found: list[OffsetFetchResponsePartition] = []
        for _ in range(count):
            self = OffsetFetchResponsePartition()
            if version >= 5:
                self.partition_index, self.committed_offset, self.committed_leader_epoch = _IQI.unpack_from(data, at)
                at += 16
            else:
                self.partition_index, self.committed_offset = _IQ.unpack_from(data, at)
                at += 12
                self.committed_leader_epoch = -1
            self.metadata, at = read_nullable_string(data, at, flexible, "metadata")
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            if version >= 6:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class OffsetFetchResponseTopic(Struct, gc=False, kw_only=True):
    """Offsets by topic.

    name: Name of the topic.
    partitions: Offsets by partition.
    """

    name: str = ""  # string, versions 0-7
    # []OffsetFetchResponsePartition, versions 0-7
    partitions: list[OffsetFetchResponsePartition] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetFetchResponseTopic], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_structs(out, self.partitions, flexible, OffsetFetchResponsePartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetFetchResponseTopic], int]:
        flexible = version >= 6
        found: list[OffsetFetchResponseTopic] = []
        for _ in range(count):
            self = OffsetFetchResponseTopic()
            self.name, at = read_string(data, at, flexible, "name")
            self.partitions, at = read_structs(
                data,
                at,
                flexible,
                16,
                "partitions",
                OffsetFetchResponsePartition._read_each,
                version,
            )
            if version >= 6:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class OffsetFetchResponsePartitions(Struct, gc=False, kw_only=True):
    """Offsets by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    committed_offset: Offset of the next record to read; -1 if nothing was committed.
    committed_leader_epoch: Leader epoch committed with the offset; -1 if there was none.
    metadata: Free text committed with the offset; empty if there was none.
    error_code: Error of this partition; 0 means none. 88 says that a transaction on it is still open.
    """

    partition_index: int = 0  # int32, versions 8+
    committed_offset: int = 0  # int64, versions 8+
    committed_leader_epoch: int = -1  # int32, versions 8+, ignorable
    metadata: str | None = ""  # string, versions 8+, nullable
    error_code: int = 0  # int16, versions 8+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetFetchResponsePartitions], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IQI.pack(self.partition_index, self.committed_offset, self.committed_leader_epoch)
            write_nullable_string(buffer, self.metadata, True, "metadata")
            buffer += _H.pack(self.error_code)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[OffsetFetchResponsePartitions], int]:
        found: list[OffsetFetchResponsePartitions] = []
        for _ in range(count):
            self = OffsetFetchResponsePartitions()
            self.partition_index, self.committed_offset, self.committed_leader_epoch = _IQI.unpack_from(data, at)
            at += 16
            self.metadata, at = read_nullable_string(data, at, True, "metadata")
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class OffsetFetchResponseTopics(Struct, gc=False, kw_only=True):
    """Offsets by topic.

    name: Name of the topic.
    topic_id: Id of the topic, which replaces its name from version 10 on.
    partitions: Offsets by partition.
    """

    name: str = ""  # string, versions 8-9, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 10+, ignorable
    # []OffsetFetchResponsePartitions, versions 8+
    partitions: list[OffsetFetchResponsePartitions] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetFetchResponseTopics], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version <= 9:
                write_string(buffer, self.name, True, "name")
            if version >= 10:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, OffsetFetchResponsePartitions._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetFetchResponseTopics], int]:
        found: list[OffsetFetchResponseTopics] = []
        for _ in range(count):
            self = OffsetFetchResponseTopics()
            if version >= 10:
                self.name = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.name, at = read_string(data, at, True, "name")
                self.topic_id = NULL_UUID
            self.partitions, at = read_structs(
                data,
                at,
                True,
                20,
                "partitions",
                OffsetFetchResponsePartitions._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class OffsetFetchResponseGroup(Struct, gc=False, kw_only=True):
    """Offsets by group.

    group_id: Group by its group.id, as its members are configured.
    topics: Offsets by topic.
    error_code: Error of this group as a whole; 0 means none.
    """

    group_id: str = ""  # string, versions 8+
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list)  # []OffsetFetchResponseTopics, versions 8+
    error_code: int = 0  # int16, versions 8+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OffsetFetchResponseGroup], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.group_id, True, "group_id")
            write_structs(out, self.topics, True, OffsetFetchResponseTopics._write_each, version)
            buffer += _H.pack(self.error_code)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OffsetFetchResponseGroup], int]:
        found: list[OffsetFetchResponseGroup] = []
        for _ in range(count):
            self = OffsetFetchResponseGroup()
            self.group_id, at = read_string(data, at, True, "group_id")
            self.topics, at = read_structs(data, at, True, 3, "topics", OffsetFetchResponseTopics._read_each, version)
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class OffsetFetchResponse(Message, gc=False, kw_only=True):
    """The committed offsets.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 3 the broker
        held this response back for that long; from version 4 on it answers at once and the client does the waiting.
    topics: Offsets by topic.
    error_code: Error of the group as a whole; 0 means none.
    groups: Offsets by group.
    """

    API_KEY = 9
    VALID_VERSIONS = range(11)
    FLEXIBLE_VERSIONS = range(6, 11)

    throttle_time_ms: int = 0  # int32, versions 3+, ignorable
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list)  # []OffsetFetchResponseTopic, versions 0-7
    error_code: int = 0  # int16, versions 2-7, ignorable
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list)  # []OffsetFetchResponseGroup, versions 8+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        if version > 7 and len(self.topics) > 0:
            raise absent("topics")
        if version < 8 and len(self.groups) > 0:
            raise absent("groups")
        if version >= 3:
            buffer += _I.pack(self.throttle_time_ms)
        if version <= 7:
            write_structs(out, self.topics, flexible, OffsetFetchResponseTopic._write_each, version)
        if 2 <= version <= 7:
            buffer += _H.pack(self.error_code)
        if version >= 8:
            write_structs(out, self.groups, flexible, OffsetFetchResponseGroup._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[OffsetFetchResponse, int]:
        self = OffsetFetchResponse()
        flexible = version >= 6
        if version >= 3:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.throttle_time_ms = 0
        if version >= 8:
            self.topics = []
        else:
            self.topics, at = read_structs(
                data,
                at,
                flexible,
                3,
                "topics",
                OffsetFetchResponseTopic._read_each,
                version,
            )
        if version >= 8:
            self.error_code = 0
        elif version >= 2:
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
        else:
            self.error_code = 0
        if version >= 8:
            self.groups, at = read_structs(
                data,
                at,
                flexible,
                5,
                "groups",
                OffsetFetchResponseGroup._read_each,
                version,
            )
        else:
            self.groups = []
        if version >= 6:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
