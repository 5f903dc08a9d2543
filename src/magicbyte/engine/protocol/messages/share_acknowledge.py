"""Generated from ShareAcknowledgeRequest.json and ShareAcknowledgeResponse.json. Do not edit: the schema compiler makes

it.
ShareAcknowledgeRequest: versions 0-2, flexible 0+.
ShareAcknowledgeResponse: versions 0-2, flexible 0+.
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
    read_numbers,
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
from magicbyte.engine.protocol.rows import Rows, Shapes, read_rows

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_II = struct.Struct(">ii")
_IT = struct.Struct(">i?")
_QQ = struct.Struct(">qq")
_ROWS_QQ_B_COMPACT = Rows("qq[b", flexible=True)
_SHAPES_QQ_B_COMPACT = Shapes("qq[b", flexible=True)


class AcknowledgementBatch(Struct, gc=False, kw_only=True):
    """Acknowledgements of runs of records.

    first_offset: First offset of the run.
    last_offset: Last offset of the run.
    acknowledge_types: One number for the whole run or one for each offset: 0 no record there, 1 done, 2 hand it out
        again, 3 give it up, 4 hold it for longer (2+).
    """

    first_offset: int = 0  # int64, versions 0+
    last_offset: int = 0  # int64, versions 0+
    acknowledge_types: tuple[int, ...] = ()  # []int8, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AcknowledgementBatch], out: Writer, version: int) -> None:
        buffer = out.buffer
        lengths: tuple[int, ...]
        for self in structs:
            lengths = (len(self.acknowledge_types),)
            buffer += _SHAPES_QQ_B_COMPACT[lengths](
                self.first_offset,
                self.last_offset,
                lengths[0] + 1,
                *self.acknowledge_types,
            )
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AcknowledgementBatch], int]:
        found: list[AcknowledgementBatch] = []
        for _ in range(count):
            self = AcknowledgementBatch()
            self.first_offset, self.last_offset = _QQ.unpack_from(data, at)
            at += 16
            self.acknowledge_types, at = read_numbers(data, at, True, "b", "acknowledge_types")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[AcknowledgementBatch], int]:
        found: list[AcknowledgementBatch] = []
        rows, at = _ROWS_QQ_B_COMPACT.read(data, at, most)
        for row in rows:
            (first_offset, last_offset), acknowledge_types = row
            self = AcknowledgementBatch(
                first_offset=first_offset,
                last_offset=last_offset,
                acknowledge_types=acknowledge_types,
            )
            found.append(self)
        return found, at


class AcknowledgePartition(Struct, gc=False, kw_only=True):
    """Records, by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    acknowledgement_batches: Acknowledgements of runs of records.
    """

    partition_index: int = 0  # int32, versions 0+
    # []AcknowledgementBatch, versions 0+
    acknowledgement_batches: list[AcknowledgementBatch] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AcknowledgePartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.partition_index)
            write_structs(out, self.acknowledgement_batches, True, AcknowledgementBatch._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AcknowledgePartition], int]:
        found: list[AcknowledgePartition] = []
        for _ in range(count):
            self = AcknowledgePartition()
            (self.partition_index,) = _I.unpack_from(data, at)
            at += 4
            self.acknowledgement_batches, at = read_rows(
                data,
                at,
                True,
                18,
                "acknowledgement_batches",
                AcknowledgementBatch,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AcknowledgeTopic(Struct, gc=False, kw_only=True):
    """Records, by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Records, by partition.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: list[AcknowledgePartition] = field(default_factory=list)  # []AcknowledgePartition, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AcknowledgeTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, AcknowledgePartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AcknowledgeTopic], int]:
        found: list[AcknowledgeTopic] = []
        for _ in range(count):
            self = AcknowledgeTopic()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_structs(
                data,
                at,
                True,
                6,
                "partitions",
                AcknowledgePartition._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ShareAcknowledgeRequest(Message, gc=False, kw_only=True):
    """A member of a share group acknowledges records it got, without fetching more.

    group_id: Share group of the member.
    member_id: Id of the member, the same for as long as it runs.
    share_session_epoch: Number of this request within the member's share session; -1 closes the session.
    is_renew_ack: True if some of the acknowledgements are of type 4, which holds records for longer.
    topics: Records, by topic.
    """

    API_KEY = 79
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    group_id: str | None = None  # string, versions 0+, nullable
    member_id: str | None = ""  # string, versions 0+, nullable
    share_session_epoch: int = 0  # int32, versions 0+
    is_renew_ack: bool = False  # bool, versions 2+
    topics: list[AcknowledgeTopic] = field(default_factory=list)  # []AcknowledgeTopic, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 2 and self.is_renew_ack:
            raise absent("is_renew_ack")
        write_nullable_string(buffer, self.group_id, True, "group_id")
        write_nullable_string(buffer, self.member_id, True, "member_id")
        if version >= 2:
            buffer += _IT.pack(self.share_session_epoch, self.is_renew_ack)
        else:
            buffer += _I.pack(self.share_session_epoch)
        write_structs(out, self.topics, True, AcknowledgeTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareAcknowledgeRequest, int]:
        self = ShareAcknowledgeRequest()
        self.group_id, at = read_nullable_string(data, at, True, "group_id")
        self.member_id, at = read_nullable_string(data, at, True, "member_id")
        if version >= 2:
            self.share_session_epoch, self.is_renew_ack = _IT.unpack_from(data, at)
            at += 5
        else:
            (self.share_session_epoch,) = _I.unpack_from(data, at)
            at += 4
            self.is_renew_ack = False
        self.topics, at = read_structs(data, at, True, 18, "topics", AcknowledgeTopic._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class LeaderIdAndEpoch(Struct, gc=False, kw_only=True):
    """The present leader of the partition, if the asked broker is not.

    leader_id: Broker id of the present leader; -1 if it is not known.
    leader_epoch: Epoch of that leadership; -1 if it is not known.
    """

    leader_id: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _II.pack(self.leader_id, self.leader_epoch)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[LeaderIdAndEpoch, int]:
        self = LeaderIdAndEpoch()
        self.leader_id, self.leader_epoch = _II.unpack_from(data, at)
        at += 8
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return self.leader_id != 0 or self.leader_epoch != 0 or len(self.unknown_tags) > 0


class PartitionData(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means none. 121 says that the member no longer holds a record.
    error_message: Error message; null without an error, or if the broker sends none.
    current_leader: The present leader of the partition, if the asked broker is not.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)  # LeaderIdAndEpoch, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition_index, self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            self.current_leader._write(out, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionData], int]:
        found: list[PartitionData] = []
        for _ in range(count):
            self = PartitionData()
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.current_leader, at = LeaderIdAndEpoch._read(data, at, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ShareAcknowledgeTopicResponse(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Results by partition.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+, ignorable
    partitions: list[PartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ShareAcknowledgeTopicResponse], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, PartitionData._write_each, version)
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
    ) -> tuple[list[ShareAcknowledgeTopicResponse], int]:
        found: list[ShareAcknowledgeTopicResponse] = []
        for _ in range(count):
            self = ShareAcknowledgeTopicResponse()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_structs(data, at, True, 17, "partitions", PartitionData._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class NodeEndpoint(Struct, gc=False, kw_only=True):
    """Addresses of the leaders named by the partitions above, so that the client can go there without asking for
    metadata first.

    node_id: Broker id that the partitions refer to as their leader.
    host: Host name or IP address at which the broker takes client connections.
    port: TCP port that belongs to the host.
    rack: Rack or zone of the broker as set in its broker.rack; null if it has none.
    """

    node_id: int = 0  # int32, versions 0+
    host: str = ""  # string, versions 0+
    port: int = 0  # int32, versions 0+
    rack: str | None = None  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[NodeEndpoint], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.node_id)
            write_string(buffer, self.host, True, "host")
            buffer += _I.pack(self.port)
            write_nullable_string(buffer, self.rack, True, "rack")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[NodeEndpoint], int]:
        found: list[NodeEndpoint] = []
        for _ in range(count):
            self = NodeEndpoint()
            (self.node_id,) = _I.unpack_from(data, at)
            at += 4
            self.host, at = read_string(data, at, True, "host")
            (self.port,) = _I.unpack_from(data, at)
            at += 4
            self.rack, at = read_nullable_string(data, at, True, "rack")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ShareAcknowledgeResponse(Message, gc=False, kw_only=True):
    """Results of the acknowledgements.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error of the whole request; 0 means none. 122 and 123 concern the share session.
    error_message: Error message; null without an error, or if the broker sends none.
    acquisition_lock_timeout_ms: Milliseconds for which a member may keep records before others get them.
    responses: Results by topic.
    node_endpoints: Addresses of the leaders named by the partitions above, so that the client can go there without
        asking for metadata first.
    """

    API_KEY = 79
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    throttle_time_ms: int = 0  # int32, versions 0+, ignorable
    error_code: int = 0  # int16, versions 0+, ignorable
    error_message: str | None = None  # string, versions 0+, nullable
    acquisition_lock_timeout_ms: int = 0  # int32, versions 2+, ignorable
    # []ShareAcknowledgeTopicResponse, versions 0+
    responses: list[ShareAcknowledgeTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # []NodeEndpoint, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        if version >= 2:
            buffer += _I.pack(self.acquisition_lock_timeout_ms)
        write_structs(out, self.responses, True, ShareAcknowledgeTopicResponse._write_each, version)
        write_structs(out, self.node_endpoints, True, NodeEndpoint._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareAcknowledgeResponse, int]:
        self = ShareAcknowledgeResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        if version >= 2:
            (self.acquisition_lock_timeout_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.acquisition_lock_timeout_ms = 0
        self.responses, at = read_structs(
            data,
            at,
            True,
            18,
            "responses",
            ShareAcknowledgeTopicResponse._read_each,
            version,
        )
        self.node_endpoints, at = read_structs(data, at, True, 11, "node_endpoints", NodeEndpoint._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
