"""Generated from ShareFetchRequest.json and ShareFetchResponse.json. Do not edit: the schema compiler makes it.

ShareFetchRequest: versions 0-2, flexible 0+.
ShareFetchResponse: versions 0-2, flexible 0+.
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
    read_nullable_view,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    read_view,
    write_nullable_records,
    write_nullable_string,
    write_numbers,
    write_records,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Records, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, Shapes, read_rows

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_II = struct.Struct(">ii")
_IIII = struct.Struct(">iiii")
_IIIIII = struct.Struct(">iiiiii")
_IIIIIIBT = struct.Struct(">iiiiiib?")
_QQ = struct.Struct(">qq")
_QQH = struct.Struct(">qqh")
_ROWS_QQH_COMPACT = Rows("qqh", flexible=True)
_ROWS_QQ_B_COMPACT = Rows("qq[b", flexible=True)
_SHAPES_QQ_B_COMPACT = Shapes("qq[b", flexible=True)


class AcknowledgementBatch(Struct, gc=False, kw_only=True):
    """Acknowledgements of runs of records that the member acquired before.

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


class FetchPartition(Struct, gc=False, kw_only=True):
    """Partitions to read from.

    partition_index: Number of the partition within its topic, counted from 0.
    partition_max_bytes: Most bytes of records from this partition. Later versions have MaxRecords instead.
    acknowledgement_batches: Acknowledgements of runs of records that the member acquired before.
    """

    partition_index: int = 0  # int32, versions 0+
    partition_max_bytes: int = 0  # int32, versions 0
    # []AcknowledgementBatch, versions 0+
    acknowledgement_batches: list[AcknowledgementBatch] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[FetchPartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version > 0 and self.partition_max_bytes != 0:
                raise absent("partition_max_bytes")
            if version >= 1:
                buffer += _I.pack(self.partition_index)
            else:
                buffer += _II.pack(self.partition_index, self.partition_max_bytes)
            write_structs(out, self.acknowledgement_batches, True, AcknowledgementBatch._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[FetchPartition], int]:
        found: list[FetchPartition] = []
        for _ in range(count):
            self = FetchPartition()
            if version >= 1:
                (self.partition_index,) = _I.unpack_from(data, at)
                at += 4
                self.partition_max_bytes = 0
            else:
                self.partition_index, self.partition_max_bytes = _II.unpack_from(data, at)
                at += 8
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


class FetchTopic(Struct, gc=False, kw_only=True):
    """Topics to read from; within a session only those that are new or have acknowledgements.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Partitions to read from.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: list[FetchPartition] = field(default_factory=list)  # []FetchPartition, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[FetchTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, FetchPartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[FetchTopic], int]:
        found: list[FetchTopic] = []
        for _ in range(count):
            self = FetchTopic()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_structs(data, at, True, 6, "partitions", FetchPartition._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ForgottenTopic(Struct, gc=False, kw_only=True):
    """Partitions to take out of the share session.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Numbers of the partitions to take out.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ForgottenTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_numbers(buffer, self.partitions, True, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ForgottenTopic], int]:
        found: list[ForgottenTopic] = []
        for _ in range(count):
            self = ForgottenTopic()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ShareFetchRequest(Message, gc=False, kw_only=True):
    """A member of a share group gets records that no other member has, and acknowledges earlier ones.

    group_id: Share group of the member.
    member_id: Id of the member, the same for as long as it runs.
    share_session_epoch: Number of this request within the member's share session: 0 opens it, then 1, 2, 3 and so
        on; -1 closes it.
    max_wait_ms: Longest time, in milliseconds, that the broker may wait for MinBytes to gather.
    min_bytes: Fewest bytes of records worth an answer before the time is up.
    max_bytes: Most bytes of records in the whole answer; the first batch is sent however large it is.
    max_records: Most records in the whole answer; a batch that reaches beyond is still sent as a whole.
    batch_size: Number of records that should be handed out, and acknowledged, together.
    share_acquire_mode: 0 hands out whole batches, so that MaxRecords may be exceeded; 1 never more records than
        that.
    is_renew_ack: True if some of the acknowledgements are of type 4, which holds records for longer.
    topics: Topics to read from; within a session only those that are new or have acknowledgements.
    forgotten_topics_data: Partitions to take out of the share session.
    """

    API_KEY = 78
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    group_id: str | None = None  # string, versions 0+, nullable
    member_id: str | None = ""  # string, versions 0+, nullable
    share_session_epoch: int = 0  # int32, versions 0+
    max_wait_ms: int = 0  # int32, versions 0+
    min_bytes: int = 0  # int32, versions 0+
    max_bytes: int = 2147483647  # int32, versions 0+
    max_records: int = 0  # int32, versions 1+
    batch_size: int = 0  # int32, versions 1+
    share_acquire_mode: int = 0  # int8, versions 2+, ignorable
    is_renew_ack: bool = False  # bool, versions 2+
    topics: list[FetchTopic] = field(default_factory=list)  # []FetchTopic, versions 0+
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)  # []ForgottenTopic, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and self.max_records != 0:
            raise absent("max_records")
        if version < 1 and self.batch_size != 0:
            raise absent("batch_size")
        if version < 2 and self.is_renew_ack:
            raise absent("is_renew_ack")
        write_nullable_string(buffer, self.group_id, True, "group_id")
        write_nullable_string(buffer, self.member_id, True, "member_id")
        if version >= 2:
            buffer += _IIIIIIBT.pack(
                self.share_session_epoch,
                self.max_wait_ms,
                self.min_bytes,
                self.max_bytes,
                self.max_records,
                self.batch_size,
                self.share_acquire_mode,
                self.is_renew_ack,
            )
        elif version >= 1:
            buffer += _IIIIII.pack(
                self.share_session_epoch,
                self.max_wait_ms,
                self.min_bytes,
                self.max_bytes,
                self.max_records,
                self.batch_size,
            )
        else:
            buffer += _IIII.pack(self.share_session_epoch, self.max_wait_ms, self.min_bytes, self.max_bytes)
        write_structs(out, self.topics, True, FetchTopic._write_each, version)
        write_structs(out, self.forgotten_topics_data, True, ForgottenTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareFetchRequest, int]:
        self = ShareFetchRequest()
        self.group_id, at = read_nullable_string(data, at, True, "group_id")
        self.member_id, at = read_nullable_string(data, at, True, "member_id")
        if version >= 2:
            (
                self.share_session_epoch,
                self.max_wait_ms,
                self.min_bytes,
                self.max_bytes,
                self.max_records,
                self.batch_size,
                self.share_acquire_mode,
                self.is_renew_ack,
            ) = _IIIIIIBT.unpack_from(data, at)
            at += 26
        elif version >= 1:
            (
                self.share_session_epoch,
                self.max_wait_ms,
                self.min_bytes,
                self.max_bytes,
                self.max_records,
                self.batch_size,
            ) = _IIIIII.unpack_from(data, at)
            at += 24
            self.share_acquire_mode = 0
            self.is_renew_ack = False
        else:
            self.share_session_epoch, self.max_wait_ms, self.min_bytes, self.max_bytes = _IIII.unpack_from(data, at)
            at += 16
            self.max_records = 0
            self.batch_size = 0
            self.share_acquire_mode = 0
            self.is_renew_ack = False
        self.topics, at = read_structs(data, at, True, 18, "topics", FetchTopic._read_each, version)
        self.forgotten_topics_data, at = read_structs(
            data,
            at,
            True,
            18,
            "forgotten_topics_data",
            ForgottenTopic._read_each,
            version,
        )
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


class AcquiredRecords(Struct, gc=False, kw_only=True):
    """Runs of records that are in the member's hands now, until its lock on them ends.

    first_offset: First offset of the run.
    last_offset: Last offset of the run.
    delivery_count: Delivery count of these records, including this delivery.
    """

    first_offset: int = 0  # int64, versions 0+
    last_offset: int = 0  # int64, versions 0+
    delivery_count: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AcquiredRecords], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _QQH.pack(self.first_offset, self.last_offset, self.delivery_count)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AcquiredRecords], int]:
        found: list[AcquiredRecords] = []
        for _ in range(count):
            self = AcquiredRecords()
            self.first_offset, self.last_offset, self.delivery_count = _QQH.unpack_from(data, at)
            at += 18
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[AcquiredRecords], int]:
        found: list[AcquiredRecords] = []
        rows, at = _ROWS_QQH_COMPACT.read(data, at, most)
        for row in rows:
            first_offset, last_offset, delivery_count = row
            self = AcquiredRecords(first_offset=first_offset, last_offset=last_offset, delivery_count=delivery_count)
            found.append(self)
        return found, at


class PartitionData(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of fetching from this partition; 0 means none.
    error_message: Error message about fetching; null if there is none.
    acknowledge_error_code: Error of the acknowledgements for this partition; 0 means none.
    acknowledge_error_message: Error message about the acknowledgements; null if there is none.
    current_leader: The present leader of the partition, if the asked broker is not.
    records: Record batches as they lie in the log; only the records listed below are the member's to work on. Empty,
        or null in version 0, if there are none.
    acquired_records: Runs of records that are in the member's hands now, until its lock on them ends.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    acknowledge_error_code: int = 0  # int16, versions 0+
    acknowledge_error_message: str | None = None  # string, versions 0+, nullable
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)  # LeaderIdAndEpoch, versions 0+
    records: Records | None = None  # records, versions 0+, nullable 0
    acquired_records: list[AcquiredRecords] = field(default_factory=list)  # []AcquiredRecords, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition_index, self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            buffer += _H.pack(self.acknowledge_error_code)
            write_nullable_string(buffer, self.acknowledge_error_message, True, "acknowledge_error_message")
            self.current_leader._write(out, version)
            if version >= 1:
                write_records(out, self.records, True, "records")
            else:
                write_nullable_records(out, self.records, True)
            write_structs(out, self.acquired_records, True, AcquiredRecords._write_each, version)
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
            (self.acknowledge_error_code,) = _H.unpack_from(data, at)
            at += 2
            self.acknowledge_error_message, at = read_nullable_string(data, at, True, "acknowledge_error_message")
            self.current_leader, at = LeaderIdAndEpoch._read(data, at, version)
            if version >= 1:
                self.records, at = read_view(data, at, True, "records")
            else:
                self.records, at = read_nullable_view(data, at, True, "records")
            self.acquired_records, at = read_rows(data, at, True, 19, "acquired_records", AcquiredRecords, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ShareFetchableTopicResponse(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partitions: Results by partition.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    partitions: list[PartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ShareFetchableTopicResponse], out: Writer, version: int) -> None:
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
    ) -> tuple[list[ShareFetchableTopicResponse], int]:
        found: list[ShareFetchableTopicResponse] = []
        for _ in range(count):
            self = ShareFetchableTopicResponse()
            self.topic_id, at = read_uuid(data, at)
            self.partitions, at = read_structs(data, at, True, 22, "partitions", PartitionData._read_each, version)
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


class ShareFetchResponse(Message, gc=False, kw_only=True):
    """Records for one member of a share group, and which of its acknowledgements were taken.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error of the whole request; 0 means none. 122 and 123 concern the share session.
    error_message: Error message; null without an error, or if the broker sends none.
    acquisition_lock_timeout_ms: Milliseconds for which the member may keep the records before others get them.
    responses: Results by topic.
    node_endpoints: Addresses of the leaders named by the partitions above, so that the client can go there without
        asking for metadata first.
    """

    API_KEY = 78
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    acquisition_lock_timeout_ms: int = 0  # int32, versions 1+
    # []ShareFetchableTopicResponse, versions 0+
    responses: list[ShareFetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # []NodeEndpoint, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and self.acquisition_lock_timeout_ms != 0:
            raise absent("acquisition_lock_timeout_ms")
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        if version >= 1:
            buffer += _I.pack(self.acquisition_lock_timeout_ms)
        write_structs(out, self.responses, True, ShareFetchableTopicResponse._write_each, version)
        write_structs(out, self.node_endpoints, True, NodeEndpoint._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareFetchResponse, int]:
        self = ShareFetchResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        if version >= 1:
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
            ShareFetchableTopicResponse._read_each,
            version,
        )
        self.node_endpoints, at = read_structs(data, at, True, 11, "node_endpoints", NodeEndpoint._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
