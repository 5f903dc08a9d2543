"""Generated from ProduceRequest.json and ProduceResponse.json. Do not edit: the schema compiler makes it.

ProduceRequest: versions 0-13, flexible 9+; deprecated 0-6.
ProduceResponse: versions 0-13, flexible 9+.
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
    read_string,
    read_structs,
    read_tags,
    read_unknown_tags,
    read_uuid,
    unknown,
    whole,
    write_nullable_records,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Records, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, read_rows

_HI = struct.Struct(">hi")
_I = struct.Struct(">i")
_IHQ = struct.Struct(">ihq")
_IHQQ = struct.Struct(">ihqq")
_IHQQQ = struct.Struct(">ihqqq")
_II = struct.Struct(">ii")
_ROWS_IHQQQ_CLASSIC = Rows("ihqqq", flexible=False)
_ROWS_IHQQ_CLASSIC = Rows("ihqq", flexible=False)
_ROWS_IHQ_CLASSIC = Rows("ihq", flexible=False)


class PartitionProduceData(Struct, gc=False, kw_only=True):
    """Records by partition.

    index: Number of the partition within its topic, counted from 0.
    records: One record batch of format 2 from version 3 on; before that a message set, of format 0 in versions 0-1
        and of format 1 in version 2.
    """

    index: int = 0  # int32, versions 0+
    records: Records | None = None  # records, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionProduceData], out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.index)
            write_nullable_records(out, self.records, flexible)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionProduceData], int]:
        flexible = version >= 9
        found: list[PartitionProduceData] = []
        for _ in range(count):
            self = PartitionProduceData()
            (self.index,) = _I.unpack_from(data, at)
            at += 4
            self.records, at = read_nullable_view(data, at, flexible, "records")
            if version >= 9:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class TopicProduceData(Struct, gc=False, kw_only=True):
    """Records by topic.

    name: Name of the topic.
    topic_id: Id of the topic, which replaces its name from version 13 on.
    partition_data: Records by partition.
    """

    name: str = ""  # string, versions 0-12, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 13+, ignorable
    partition_data: list[PartitionProduceData] = field(default_factory=list)  # []PartitionProduceData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicProduceData], out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        for self in structs:
            if version <= 12:
                write_string(buffer, self.name, flexible, "name")
            if version >= 13:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partition_data, flexible, PartitionProduceData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicProduceData], int]:
        flexible = version >= 9
        found: list[TopicProduceData] = []
        for _ in range(count):
            self = TopicProduceData()
            if version >= 13:
                self.name = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.name, at = read_string(data, at, flexible, "name")
                self.topic_id = NULL_UUID
            self.partition_data, at = read_structs(
                data,
                at,
                flexible,
                6,
                "partition_data",
                PartitionProduceData._read_each,
                version,
            )
            if version >= 9:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class ProduceRequest(Message, gc=False, kw_only=True):
    """Appends batches of records to partitions; sent to the broker that leads them.

    transactional_id: Name of the transaction the records belong to; null if they are in none.
    acks: When to answer: 0 never, 1 once the leader has the records, -1 once all in-sync replicas have them.
    timeout_ms: Longest time, in milliseconds, to wait for the replicas that Acks asks for.
    topic_data: Records by topic.
    """

    API_KEY = 0
    VALID_VERSIONS = range(14)
    FLEXIBLE_VERSIONS = range(9, 14)

    transactional_id: str | None = None  # string, versions 3+, nullable
    acks: int = 0  # int16, versions 0+
    timeout_ms: int = 0  # int32, versions 0+
    topic_data: list[TopicProduceData] = field(default_factory=list)  # []TopicProduceData, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        if version < 3 and self.transactional_id is not None:
            raise absent("transactional_id")
        if version >= 3:
            write_nullable_string(buffer, self.transactional_id, flexible, "transactional_id")
        buffer += _HI.pack(self.acks, self.timeout_ms)
        write_structs(out, self.topic_data, flexible, TopicProduceData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ProduceRequest, int]:
        self = ProduceRequest()
        flexible = version >= 9
        if version >= 3:
            self.transactional_id, at = read_nullable_string(data, at, flexible, "transactional_id")
        else:
            self.transactional_id = None
        self.acks, self.timeout_ms = _HI.unpack_from(data, at)
        at += 6
        self.topic_data, at = read_structs(data, at, flexible, 3, "topic_data", TopicProduceData._read_each, version)
        if version >= 9:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class BatchIndexAndErrorMessage(Struct, gc=False, kw_only=True):
    """Records for which the whole batch was refused; empty if the error is not about single records.

    batch_index: Place of the record in its batch, counted from 0.
    batch_index_error_message: Error message about that record; null if there is none.
    """

    batch_index: int = 0  # int32, versions 8+
    batch_index_error_message: str | None = None  # string, versions 8+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[BatchIndexAndErrorMessage], out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.batch_index)
            write_nullable_string(buffer, self.batch_index_error_message, flexible, "batch_index_error_message")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[BatchIndexAndErrorMessage], int]:
        flexible = version >= 9
        found: list[BatchIndexAndErrorMessage] = []
        for _ in range(count):
            self = BatchIndexAndErrorMessage()
            (self.batch_index,) = _I.unpack_from(data, at)
            at += 4
            self.batch_index_error_message, at = read_nullable_string(data, at, flexible, "batch_index_error_message")
            if version >= 9:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class LeaderIdAndEpoch(Struct, gc=False, kw_only=True):
    """Set when the asked broker is not the leader, or the epoch is out of date, and it knows who leads the partition
    now.

    leader_id: Broker id of the present leader; -1 if it is not known.
    leader_epoch: Epoch of that leadership; -1 if it is not known.
    """

    leader_id: int = -1  # int32, versions 10+
    leader_epoch: int = -1  # int32, versions 10+
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
        return self.leader_id != -1 or self.leader_epoch != -1 or len(self.unknown_tags) > 0


class PartitionProduceResponse(Struct, gc=False, kw_only=True):
    """Results by partition.

    index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means that the records are stored as Acks asked. 6 says that another
        broker leads it now.
    base_offset: Offset given to the first record; -1 with an error. A duplicate that was recognised gets the offset
        of the original.
    log_append_time_ms: Timestamp in milliseconds that the broker put on the records; -1 if the topic keeps the
        producer's timestamps.
    log_start_offset: First offset that is still in the log; -1 if it is not known.
    record_errors: Records for which the whole batch was refused; empty if the error is not about single records.
    error_message: Error message about the whole batch; null if there is none.
    current_leader: Set when the asked broker is not the leader, or the epoch is out of date, and it knows who leads
        the partition now.
    """

    index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    base_offset: int = 0  # int64, versions 0+
    log_append_time_ms: int = -1  # int64, versions 2+, ignorable
    log_start_offset: int = -1  # int64, versions 5+, ignorable
    # []BatchIndexAndErrorMessage, versions 8+, ignorable
    record_errors: list[BatchIndexAndErrorMessage] = field(default_factory=list)
    error_message: str | None = None  # string, versions 8+, nullable, ignorable
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)  # LeaderIdAndEpoch, versions 10+, tag 0
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionProduceResponse], out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        for self in structs:
            if version < 10 and self.current_leader._is_set():
                raise absent("current_leader")
            if version >= 5:
                buffer += _IHQQQ.pack(
                    self.index,
                    self.error_code,
                    self.base_offset,
                    self.log_append_time_ms,
                    self.log_start_offset,
                )
            elif version >= 2:
                buffer += _IHQQ.pack(self.index, self.error_code, self.base_offset, self.log_append_time_ms)
            else:
                buffer += _IHQ.pack(self.index, self.error_code, self.base_offset)
            if version >= 8:
                write_structs(out, self.record_errors, flexible, BatchIndexAndErrorMessage._write_each, version)
                write_nullable_string(buffer, self.error_message, flexible, "error_message")
            if version >= 10:
                tags = self._tags(version)
                if tags or self.unknown_tags:
                    write_tags(buffer, tags, self.unknown_tags)
                else:
                    buffer.append(0)
            elif version >= 9:
                if self.unknown_tags:
                    write_tags(buffer, (), self.unknown_tags)
                else:
                    buffer.append(0)
            elif self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionProduceResponse], int]:
        flexible = version >= 9
        found: list[PartitionProduceResponse] = []
        for _ in range(count):
            self = PartitionProduceResponse()
            if version >= 5:
                (
                    self.index,
                    self.error_code,
                    self.base_offset,
                    self.log_append_time_ms,
                    self.log_start_offset,
                ) = _IHQQQ.unpack_from(data, at)
                at += 30
            elif version >= 2:
                self.index, self.error_code, self.base_offset, self.log_append_time_ms = _IHQQ.unpack_from(data, at)
                at += 22
                self.log_start_offset = -1
            else:
                self.index, self.error_code, self.base_offset = _IHQ.unpack_from(data, at)
                at += 14
                self.log_append_time_ms = -1
                self.log_start_offset = -1
            if version >= 8:
                self.record_errors, at = read_structs(
                    data,
                    at,
                    flexible,
                    6,
                    "record_errors",
                    BatchIndexAndErrorMessage._read_each,
                    version,
                )
                self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
            else:
                self.record_errors = []
                self.error_message = None
            self.current_leader = LeaderIdAndEpoch()
            if version >= 10:
                if data[at]:
                    tags, at = read_tags(data, at)
                    if 0 in tags:
                        part = tags.pop(0)
                        self.current_leader = whole(part, LeaderIdAndEpoch._read(part, 0, version), "current_leader")
                    self.unknown_tags = unknown(tags)
                else:
                    self.unknown_tags, at = (), at + 1
            elif version >= 9:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if version >= 10 and self.current_leader._is_set():
            part = Writer()
            self.current_leader._write(part, version)
            found.append((0, bytes(part)))
        return found

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[PartitionProduceResponse], int]:
        found: list[PartitionProduceResponse] = []
        if 5 <= version <= 7:
            rows, at = _ROWS_IHQQQ_CLASSIC.read(data, at, most)
            for row in rows:
                index, error_code, base_offset, log_append_time_ms, log_start_offset = row
                self = PartitionProduceResponse(
                    index=index,
                    error_code=error_code,
                    base_offset=base_offset,
                    log_append_time_ms=log_append_time_ms,
                    log_start_offset=log_start_offset,
                )
                found.append(self)
        elif 2 <= version <= 4:
            rows, at = _ROWS_IHQQ_CLASSIC.read(data, at, most)
            for row in rows:
                index, error_code, base_offset, log_append_time_ms = row
                self = PartitionProduceResponse(
                    index=index,
                    error_code=error_code,
                    base_offset=base_offset,
                    log_append_time_ms=log_append_time_ms,
                )
                found.append(self)
        elif version <= 1:
            rows, at = _ROWS_IHQ_CLASSIC.read(data, at, most)
            for row in rows:
                index, error_code, base_offset = row
                self = PartitionProduceResponse(index=index, error_code=error_code, base_offset=base_offset)
                found.append(self)
        return found, at


class TopicProduceResponse(Struct, gc=False, kw_only=True):
    """Results by topic.

    name: Name of the topic.
    topic_id: Id of the topic, which replaces its name from version 13 on.
    partition_responses: Results by partition.
    """

    name: str = ""  # string, versions 0-12, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 13+, ignorable
    # []PartitionProduceResponse, versions 0+
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicProduceResponse], out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        for self in structs:
            if version <= 12:
                write_string(buffer, self.name, flexible, "name")
            if version >= 13:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partition_responses, flexible, PartitionProduceResponse._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicProduceResponse], int]:
        flexible = version >= 9
        found: list[TopicProduceResponse] = []
        for _ in range(count):
            self = TopicProduceResponse()
            if version >= 13:
                self.name = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.name, at = read_string(data, at, flexible, "name")
                self.topic_id = NULL_UUID
            if version >= 8:
                self.partition_responses, at = read_structs(
                    data,
                    at,
                    flexible,
                    14,
                    "partition_responses",
                    PartitionProduceResponse._read_each,
                    version,
                )
            else:
                self.partition_responses, at = read_rows(
                    data,
                    at,
                    flexible,
                    14,
                    "partition_responses",
                    PartitionProduceResponse,
                    version,
                )
            if version >= 9:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
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

    node_id: int = 0  # int32, versions 10+
    host: str = ""  # string, versions 10+
    port: int = 0  # int32, versions 10+
    rack: str | None = None  # string, versions 10+, nullable
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


class ProduceResponse(Message, gc=False, kw_only=True):
    """The base offset of each batch, or the reason for its refusal. With acks 0 there is no response.

    responses: Results by topic.
    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. Up to version 5 the
        broker held this response back for that long; from version 6 on it answers at once and the client does the
        waiting.
    node_endpoints: Addresses of the leaders named by the partitions above, so that the client can go there without
        asking for metadata first.
    """

    API_KEY = 0
    VALID_VERSIONS = range(14)
    FLEXIBLE_VERSIONS = range(9, 14)

    responses: list[TopicProduceResponse] = field(default_factory=list)  # []TopicProduceResponse, versions 0+
    throttle_time_ms: int = 0  # int32, versions 1+, ignorable
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # []NodeEndpoint, versions 10+, tag 0
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        if version < 10 and len(self.node_endpoints) > 0:
            raise absent("node_endpoints")
        write_structs(out, self.responses, flexible, TopicProduceResponse._write_each, version)
        if version >= 1:
            buffer += _I.pack(self.throttle_time_ms)
        if version >= 10:
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)
        elif version >= 9:
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)
        elif self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ProduceResponse, int]:
        self = ProduceResponse()
        flexible = version >= 9
        self.responses, at = read_structs(data, at, flexible, 3, "responses", TopicProduceResponse._read_each, version)
        if version >= 1:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.throttle_time_ms = 0
        self.node_endpoints = []
        if version >= 10:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.node_endpoints = whole(
                        part,
                        read_structs(part, 0, flexible, 11, "node_endpoints", NodeEndpoint._read_each, version),
                        "node_endpoints",
                    )
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        elif version >= 9:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        flexible = version >= 9
        found: list[tuple[int, bytes]] = []
        if version >= 10 and len(self.node_endpoints) > 0:
            part = Writer()
            write_structs(part, self.node_endpoints, flexible, NodeEndpoint._write_each, version)
            found.append((0, bytes(part)))
        return found
