"""Generated from TxnOffsetCommitRequest.json and TxnOffsetCommitResponse.json. Do not edit: the schema compiler makes

it.
TxnOffsetCommitRequest: versions 0-6, flexible 3+.
TxnOffsetCommitResponse: versions 0-6, flexible 3+.
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
_QH = struct.Struct(">qh")
_QHI = struct.Struct(">qhi")
_ROWS_IH_CLASSIC = Rows("ih", flexible=False)
_ROWS_IH_COMPACT = Rows("ih", flexible=True)


class TxnOffsetCommitRequestPartition(Struct, gc=False, kw_only=True):
    """Offsets by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    committed_offset: Offset of the next record to read, one more than that of the last record processed.
    committed_leader_epoch: Leader epoch of the last record processed, to notice a log that was truncated; -1 if it
        is not known.
    committed_metadata: Free text that is kept with the offset; null counts as empty.
    """

    partition_index: int = 0  # int32, versions 0+
    committed_offset: int = 0  # int64, versions 0+
    committed_leader_epoch: int = -1  # int32, versions 2+, ignorable
    committed_metadata: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TxnOffsetCommitRequestPartition], out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        for self in structs:
            if version >= 2:
                buffer += _IQI.pack(self.partition_index, self.committed_offset, self.committed_leader_epoch)
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
    ) -> tuple[list[TxnOffsetCommitRequestPartition], int]:
        flexible = version >= 3
        found: list[TxnOffsetCommitRequestPartition] = []
        for _ in range(count):
            self = TxnOffsetCommitRequestPartition()
            if version >= 2:
                self.partition_index, self.committed_offset, self.committed_leader_epoch = _IQI.unpack_from(data, at)
                at += 16
            else:
                self.partition_index, self.committed_offset = _IQ.unpack_from(data, at)
                at += 12
                self.committed_leader_epoch = -1
            self.committed_metadata, at = read_nullable_string(data, at, flexible, "committed_metadata")
            if version >= 3:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class TxnOffsetCommitRequestTopic(Struct, gc=False, kw_only=True):
    """Offsets by topic.

    name: Name of the topic.
    topic_id: Id that the topic got when it was created.
    partitions: Offsets by partition.
    """

    name: str = ""  # string, versions 0-5, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 6+, ignorable
    # []TxnOffsetCommitRequestPartition, versions 0+
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TxnOffsetCommitRequestTopic], out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        for self in structs:
            if version <= 5:
                write_string(buffer, self.name, flexible, "name")
            if version >= 6:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, flexible, TxnOffsetCommitRequestPartition._write_each, version)
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
    ) -> tuple[list[TxnOffsetCommitRequestTopic], int]:
        flexible = version >= 3
        found: list[TxnOffsetCommitRequestTopic] = []
        for _ in range(count):
            self = TxnOffsetCommitRequestTopic()
            if version >= 6:
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
                TxnOffsetCommitRequestPartition._read_each,
                version,
            )
            if version >= 3:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class TxnOffsetCommitRequest(Message, gc=False, kw_only=True):
    """Commits a group's offsets as part of a transaction: they count once it commits, and vanish if it aborts. Sent to
    the group's coordinator.

    transactional_id: Name of the transaction.
    group_id: Group whose offsets are committed.
    producer_id: Producer id that goes with the name.
    producer_epoch: Epoch that goes with the id; the coordinator refuses one lower than it knows.
    generation_id_or_member_epoch: Generation of the group that the consumer is in, or its member epoch in the
        consumer protocol; -1 skips the check.
    member_id: Id of the consumer in the group; empty skips the check.
    group_instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member, which gets
        a new identity whenever it restarts.
    topics: Offsets by topic.
    """

    API_KEY = 28
    VALID_VERSIONS = range(7)
    FLEXIBLE_VERSIONS = range(3, 7)

    transactional_id: str = ""  # string, versions 0+
    group_id: str = ""  # string, versions 0+
    producer_id: int = 0  # int64, versions 0+
    producer_epoch: int = 0  # int16, versions 0+
    generation_id_or_member_epoch: int = -1  # int32, versions 3+
    member_id: str = ""  # string, versions 3+
    group_instance_id: str | None = None  # string, versions 3+, nullable
    # []TxnOffsetCommitRequestTopic, versions 0+
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        if version < 3 and self.generation_id_or_member_epoch != -1:
            raise absent("generation_id_or_member_epoch")
        if version < 3 and self.member_id != "":
            raise absent("member_id")
        if version < 3 and self.group_instance_id is not None:
            raise absent("group_instance_id")
        write_string(buffer, self.transactional_id, flexible, "transactional_id")
        write_string(buffer, self.group_id, flexible, "group_id")
        if version >= 3:
            buffer += _QHI.pack(self.producer_id, self.producer_epoch, self.generation_id_or_member_epoch)
        else:
            buffer += _QH.pack(self.producer_id, self.producer_epoch)
        if version >= 3:
            write_string(buffer, self.member_id, flexible, "member_id")
            write_nullable_string(buffer, self.group_instance_id, flexible, "group_instance_id")
        write_structs(out, self.topics, flexible, TxnOffsetCommitRequestTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[TxnOffsetCommitRequest, int]:
        self = TxnOffsetCommitRequest()
        flexible = version >= 3
        self.transactional_id, at = read_string(data, at, flexible, "transactional_id")
        self.group_id, at = read_string(data, at, flexible, "group_id")
        if version >= 3:
            self.producer_id, self.producer_epoch, self.generation_id_or_member_epoch = _QHI.unpack_from(data, at)
            at += 14
            self.member_id, at = read_string(data, at, flexible, "member_id")
            self.group_instance_id, at = read_nullable_string(data, at, flexible, "group_instance_id")
        else:
            self.producer_id, self.producer_epoch = _QH.unpack_from(data, at)
            at += 10
            self.generation_id_or_member_epoch = -1
            self.member_id = ""
            self.group_instance_id = None
        self.topics, at = read_structs(data, at, flexible, 3, "topics", TxnOffsetCommitRequestTopic._read_each, version)
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class TxnOffsetCommitResponsePartition(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TxnOffsetCommitResponsePartition], out: Writer, version: int) -> None:
        flexible = version >= 3
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
    ) -> tuple[list[TxnOffsetCommitResponsePartition], int]:
        found: list[TxnOffsetCommitResponsePartition] = []
        for _ in range(count):
            self = TxnOffsetCommitResponsePartition()
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            if version >= 3:
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
    ) -> tuple[list[TxnOffsetCommitResponsePartition], int]:
        found: list[TxnOffsetCommitResponsePartition] = []
        if version >= 3:
            rows, at = _ROWS_IH_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, error_code = row
                self = TxnOffsetCommitResponsePartition(partition_index=partition_index, error_code=error_code)
                found.append(self)
        else:
            rows, at = _ROWS_IH_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, error_code = row
                self = TxnOffsetCommitResponsePartition(partition_index=partition_index, error_code=error_code)
                found.append(self)
        return found, at


class TxnOffsetCommitResponseTopic(Struct, gc=False, kw_only=True):
    """Results by topic.

    name: Name of the topic.
    topic_id: Id that the topic got when it was created.
    partitions: Results by partition.
    """

    name: str = ""  # string, versions 0-5, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 6+, ignorable
    # []TxnOffsetCommitResponsePartition, versions 0+
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TxnOffsetCommitResponseTopic], out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        for self in structs:
            if version <= 5:
                write_string(buffer, self.name, flexible, "name")
            if version >= 6:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, flexible, TxnOffsetCommitResponsePartition._write_each, version)
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
    ) -> tuple[list[TxnOffsetCommitResponseTopic], int]:
        flexible = version >= 3
        found: list[TxnOffsetCommitResponseTopic] = []
        for _ in range(count):
            self = TxnOffsetCommitResponseTopic()
            if version >= 6:
                self.name = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.name, at = read_string(data, at, flexible, "name")
                self.topic_id = NULL_UUID
            self.partitions, at = read_rows(
                data,
                at,
                flexible,
                6,
                "partitions",
                TxnOffsetCommitResponsePartition,
                version,
            )
            if version >= 3:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class TxnOffsetCommitResponse(Message, gc=False, kw_only=True):
    """Which offsets wait for the end of the transaction now.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    topics: Results by topic.
    """

    API_KEY = 28
    VALID_VERSIONS = range(7)
    FLEXIBLE_VERSIONS = range(3, 7)

    throttle_time_ms: int = 0  # int32, versions 0+
    # []TxnOffsetCommitResponseTopic, versions 0+
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.topics, flexible, TxnOffsetCommitResponseTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[TxnOffsetCommitResponse, int]:
        self = TxnOffsetCommitResponse()
        flexible = version >= 3
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.topics, at = read_structs(
            data,
            at,
            flexible,
            3,
            "topics",
            TxnOffsetCommitResponseTopic._read_each,
            version,
        )
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
