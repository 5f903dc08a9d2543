"""Generated from DescribeQuorumRequest.json and DescribeQuorumResponse.json. Do not edit: the schema compiler makes it.

DescribeQuorumRequest: versions 0-2, flexible 0+.
DescribeQuorumResponse: versions 0-2, flexible 0+.
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

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_IIQ = struct.Struct(">iiq")
_Q = struct.Struct(">q")
_QQQ = struct.Struct(">qqq")
_ROWS_IQQQ_COMPACT = Rows("iqqq", flexible=True)
_ROWS_IQ_COMPACT = Rows("iq", flexible=True)
_ROWS_I_COMPACT = Rows("i", flexible=True)
_UH = struct.Struct(">H")


class DescribeQuorumRequestPartitionData(Struct, gc=False, kw_only=True):
    """Quorums, by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    """

    partition_index: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeQuorumRequestPartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.partition_index)
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
    ) -> tuple[list[DescribeQuorumRequestPartitionData], int]:
        found: list[DescribeQuorumRequestPartitionData] = []
        for _ in range(count):
            self = DescribeQuorumRequestPartitionData()
            (self.partition_index,) = _I.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(
        data: memoryview,
        at: int,
        most: int,
        version: int,
    ) -> tuple[list[DescribeQuorumRequestPartitionData], int]:
        found: list[DescribeQuorumRequestPartitionData] = []
        rows, at = _ROWS_I_COMPACT.read(data, at, most)
        for row in rows:
            (partition_index,) = row
            self = DescribeQuorumRequestPartitionData(partition_index=partition_index)
            found.append(self)
        return found, at


class DescribeQuorumRequestTopicData(Struct, gc=False, kw_only=True):
    """Quorums, by topic; the cluster has one, __cluster_metadata.

    topic_name: Name of the log, __cluster_metadata.
    partitions: Quorums, by partition.
    """

    topic_name: str = ""  # string, versions 0+
    partitions: list[DescribeQuorumRequestPartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeQuorumRequestTopicData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, True, "topic_name")
            write_structs(out, self.partitions, True, DescribeQuorumRequestPartitionData._write_each, version)
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
    ) -> tuple[list[DescribeQuorumRequestTopicData], int]:
        found: list[DescribeQuorumRequestTopicData] = []
        for _ in range(count):
            self = DescribeQuorumRequestTopicData()
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.partitions, at = read_rows(
                data,
                at,
                True,
                5,
                "partitions",
                DescribeQuorumRequestPartitionData,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeQuorumRequest(Message, gc=False, kw_only=True):
    """Asks for the state of the KRaft quorum: the leader, and the log end offsets of the others.

    topics: Quorums, by topic; the cluster has one, __cluster_metadata.
    """

    API_KEY = 55
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    topics: list[DescribeQuorumRequestTopicData] = field(default_factory=list)  # []TopicData, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.topics, True, DescribeQuorumRequestTopicData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeQuorumRequest, int]:
        self = DescribeQuorumRequest()
        self.topics, at = read_structs(data, at, True, 3, "topics", DescribeQuorumRequestTopicData._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class ReplicaState(Struct, gc=False, kw_only=True):
    """Log end offset of one replica.

    replica_id: Node id of the replica.
    replica_directory_id: Id of the directory in which it keeps the log; all zeros if it is not known.
    log_end_offset: Offset after its last record; -1 if it is not known.
    last_fetch_timestamp: When it last fetched, by the leader's clock, in milliseconds since 1970; -1 if it never
        did.
    last_caught_up_timestamp: When it last had everything, by the leader's clock, in milliseconds since 1970; -1 if
        it never did.
    """

    replica_id: int = 0  # int32, versions 0+
    replica_directory_id: UUID = NULL_UUID  # uuid, versions 2+
    log_end_offset: int = 0  # int64, versions 0+
    last_fetch_timestamp: int = -1  # int64, versions 1+, ignorable
    last_caught_up_timestamp: int = -1  # int64, versions 1+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ReplicaState], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version < 2 and self.replica_directory_id != NULL_UUID:
                raise absent("replica_directory_id")
            buffer += _I.pack(self.replica_id)
            if version >= 2:
                write_uuid(buffer, self.replica_directory_id)
            if version >= 1:
                buffer += _QQQ.pack(self.log_end_offset, self.last_fetch_timestamp, self.last_caught_up_timestamp)
            else:
                buffer += _Q.pack(self.log_end_offset)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ReplicaState], int]:
        found: list[ReplicaState] = []
        for _ in range(count):
            self = ReplicaState()
            (self.replica_id,) = _I.unpack_from(data, at)
            at += 4
            if version >= 2:
                self.replica_directory_id, at = read_uuid(data, at)
            else:
                self.replica_directory_id = NULL_UUID
            if version >= 1:
                (
                    self.log_end_offset,
                    self.last_fetch_timestamp,
                    self.last_caught_up_timestamp,
                ) = _QQQ.unpack_from(data, at)
                at += 24
            else:
                (self.log_end_offset,) = _Q.unpack_from(data, at)
                at += 8
                self.last_fetch_timestamp = -1
                self.last_caught_up_timestamp = -1
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[ReplicaState], int]:
        found: list[ReplicaState] = []
        if version == 1:
            rows, at = _ROWS_IQQQ_COMPACT.read(data, at, most)
            for row in rows:
                replica_id, log_end_offset, last_fetch_timestamp, last_caught_up_timestamp = row
                self = ReplicaState(
                    replica_id=replica_id,
                    log_end_offset=log_end_offset,
                    last_fetch_timestamp=last_fetch_timestamp,
                    last_caught_up_timestamp=last_caught_up_timestamp,
                )
                found.append(self)
        elif version <= 0:
            rows, at = _ROWS_IQ_COMPACT.read(data, at, most)
            for row in rows:
                replica_id, log_end_offset = row
                self = ReplicaState(replica_id=replica_id, log_end_offset=log_end_offset)
                found.append(self)
        return found, at


class DescribeQuorumResponsePartitionData(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means none. 6 says that another node leads.
    error_message: Error message; null without an error, or if the broker sends none.
    leader_id: Node id of the leader; -1 if it is not known.
    leader_epoch: Newest epoch that is known.
    high_watermark: Offset before which everything is committed; -1 if it is not known.
    current_voters: Replicas that vote.
    observers: Replicas that only follow, such as the brokers.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 2+, nullable, ignorable
    leader_id: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    high_watermark: int = 0  # int64, versions 0+
    current_voters: list[ReplicaState] = field(default_factory=list)  # []ReplicaState, versions 0+
    observers: list[ReplicaState] = field(default_factory=list)  # []ReplicaState, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeQuorumResponsePartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition_index, self.error_code)
            if version >= 2:
                write_nullable_string(buffer, self.error_message, True, "error_message")
            buffer += _IIQ.pack(self.leader_id, self.leader_epoch, self.high_watermark)
            write_structs(out, self.current_voters, True, ReplicaState._write_each, version)
            write_structs(out, self.observers, True, ReplicaState._write_each, version)
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
    ) -> tuple[list[DescribeQuorumResponsePartitionData], int]:
        found: list[DescribeQuorumResponsePartitionData] = []
        for _ in range(count):
            self = DescribeQuorumResponsePartitionData()
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            if version >= 2:
                self.error_message, at = read_nullable_string(data, at, True, "error_message")
            else:
                self.error_message = ""
            self.leader_id, self.leader_epoch, self.high_watermark = _IIQ.unpack_from(data, at)
            at += 16
            if version >= 2:
                self.current_voters, at = read_structs(
                    data,
                    at,
                    True,
                    13,
                    "current_voters",
                    ReplicaState._read_each,
                    version,
                )
                self.observers, at = read_structs(data, at, True, 13, "observers", ReplicaState._read_each, version)
            else:
                self.current_voters, at = read_rows(data, at, True, 13, "current_voters", ReplicaState, version)
                self.observers, at = read_rows(data, at, True, 13, "observers", ReplicaState, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeQuorumResponseTopicData(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_name: Name of the log, __cluster_metadata.
    partitions: Results by partition.
    """

    topic_name: str = ""  # string, versions 0+
    partitions: list[DescribeQuorumResponsePartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeQuorumResponseTopicData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, True, "topic_name")
            write_structs(out, self.partitions, True, DescribeQuorumResponsePartitionData._write_each, version)
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
    ) -> tuple[list[DescribeQuorumResponseTopicData], int]:
        found: list[DescribeQuorumResponseTopicData] = []
        for _ in range(count):
            self = DescribeQuorumResponseTopicData()
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.partitions, at = read_structs(
                data,
                at,
                True,
                25,
                "partitions",
                DescribeQuorumResponsePartitionData._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class Listener(Struct, gc=False, kw_only=True):
    """Its addresses.

    name: Name of the listener, such as CONTROLLER.
    host: Host name or IP address.
    port: TCP port that belongs to the host.
    """

    name: str = ""  # string, versions 2+
    host: str = ""  # string, versions 2+
    port: int = 0  # uint16, versions 2+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Listener], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_string(buffer, self.host, True, "host")
            buffer += _UH.pack(self.port)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[Listener], int]:
        found: list[Listener] = []
        for _ in range(count):
            self = Listener()
            self.name, at = read_string(data, at, True, "name")
            self.host, at = read_string(data, at, True, "host")
            (self.port,) = _UH.unpack_from(data, at)
            at += 2
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class Node(Struct, gc=False, kw_only=True):
    """Addresses of the voters.

    node_id: Node id of the voter.
    listeners: Its addresses.
    """

    node_id: int = 0  # int32, versions 2+
    listeners: list[Listener] = field(default_factory=list)  # []Listener, versions 2+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Node], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.node_id)
            write_structs(out, self.listeners, True, Listener._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[Node], int]:
        found: list[Node] = []
        for _ in range(count):
            self = Node()
            (self.node_id,) = _I.unpack_from(data, at)
            at += 4
            self.listeners, at = read_structs(data, at, True, 5, "listeners", Listener._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeQuorumResponse(Message, gc=False, kw_only=True):
    """State of the quorum, as its leader sees it.

    error_code: Error of the whole request; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    topics: Results by topic.
    nodes: Addresses of the voters.
    """

    API_KEY = 55
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 2+, nullable, ignorable
    topics: list[DescribeQuorumResponseTopicData] = field(default_factory=list)  # []TopicData, versions 0+
    nodes: list[Node] = field(default_factory=list)  # []Node, versions 2+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 2 and len(self.nodes) > 0:
            raise absent("nodes")
        buffer += _H.pack(self.error_code)
        if version >= 2:
            write_nullable_string(buffer, self.error_message, True, "error_message")
        write_structs(out, self.topics, True, DescribeQuorumResponseTopicData._write_each, version)
        if version >= 2:
            write_structs(out, self.nodes, True, Node._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeQuorumResponse, int]:
        self = DescribeQuorumResponse()
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        if version >= 2:
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
        else:
            self.error_message = ""
        self.topics, at = read_structs(data, at, True, 3, "topics", DescribeQuorumResponseTopicData._read_each, version)
        if version >= 2:
            self.nodes, at = read_structs(data, at, True, 6, "nodes", Node._read_each, version)
        else:
            self.nodes = []
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
