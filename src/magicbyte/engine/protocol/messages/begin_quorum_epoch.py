"""Generated from BeginQuorumEpochRequest.json and BeginQuorumEpochResponse.json. Do not edit: the schema compiler makes

it.
BeginQuorumEpochRequest: versions 0-1, flexible 1+.
BeginQuorumEpochResponse: versions 0-1, flexible 1+.
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
    read_tags,
    read_unknown_tags,
    read_uuid,
    unknown,
    whole,
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
_IHII = struct.Struct(">ihii")
_II = struct.Struct(">ii")
_ROWS_IHII_CLASSIC = Rows("ihii", flexible=False)
_ROWS_IHII_COMPACT = Rows("ihii", flexible=True)
_ROWS_III_CLASSIC = Rows("iii", flexible=False)
_UH = struct.Struct(">H")


class BeginQuorumEpochRequestPartitionData(Struct, gc=False, kw_only=True):
    """Quorums, by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    voter_directory_id: Id of the directory in which the receiving voter keeps its log; all zeros skip the check.
    leader_id: Node id of the new leader, which sends this.
    leader_epoch: Epoch that begins with this leader.
    """

    partition_index: int = 0  # int32, versions 0+
    voter_directory_id: UUID = NULL_UUID  # uuid, versions 1+, ignorable
    leader_id: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[BeginQuorumEpochRequestPartitionData], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.partition_index)
            if version >= 1:
                write_uuid(buffer, self.voter_directory_id)
            buffer += _II.pack(self.leader_id, self.leader_epoch)
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
    ) -> tuple[list[BeginQuorumEpochRequestPartitionData], int]:
        found: list[BeginQuorumEpochRequestPartitionData] = []
        for _ in range(count):
            self = BeginQuorumEpochRequestPartitionData()
            (self.partition_index,) = _I.unpack_from(data, at)
            at += 4
            if version >= 1:
                self.voter_directory_id, at = read_uuid(data, at)
            else:
                self.voter_directory_id = NULL_UUID
            self.leader_id, self.leader_epoch = _II.unpack_from(data, at)
            at += 8
            if version >= 1:
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
    ) -> tuple[list[BeginQuorumEpochRequestPartitionData], int]:
        found: list[BeginQuorumEpochRequestPartitionData] = []
        if version <= 0:
            rows, at = _ROWS_III_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, leader_id, leader_epoch = row
                self = BeginQuorumEpochRequestPartitionData(
                    partition_index=partition_index,
                    leader_id=leader_id,
                    leader_epoch=leader_epoch,
                )
                found.append(self)
        return found, at


class BeginQuorumEpochRequestTopicData(Struct, gc=False, kw_only=True):
    """Quorums, by topic; the cluster has one, __cluster_metadata.

    topic_name: Name of the log, __cluster_metadata.
    partitions: Quorums, by partition.
    """

    topic_name: str = ""  # string, versions 0+
    partitions: list[BeginQuorumEpochRequestPartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[BeginQuorumEpochRequestTopicData], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, flexible, "topic_name")
            write_structs(out, self.partitions, flexible, BeginQuorumEpochRequestPartitionData._write_each, version)
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
    ) -> tuple[list[BeginQuorumEpochRequestTopicData], int]:
        flexible = version >= 1
        found: list[BeginQuorumEpochRequestTopicData] = []
        for _ in range(count):
            self = BeginQuorumEpochRequestTopicData()
            self.topic_name, at = read_string(data, at, flexible, "topic_name")
            if version >= 1:
                self.partitions, at = read_structs(
                    data,
                    at,
                    flexible,
                    12,
                    "partitions",
                    BeginQuorumEpochRequestPartitionData._read_each,
                    version,
                )
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.partitions, at = read_rows(
                    data,
                    at,
                    flexible,
                    12,
                    "partitions",
                    BeginQuorumEpochRequestPartitionData,
                    version,
                )
                self.unknown_tags = ()
            found.append(self)
        return found, at


class LeaderEndpoint(Struct, gc=False, kw_only=True):
    """Addresses at which the voters reach the leader.

    name: Name of the listener, such as CONTROLLER.
    host: Host name or IP address.
    port: TCP port that belongs to the host.
    """

    name: str = ""  # string, versions 1+
    host: str = ""  # string, versions 1+
    port: int = 0  # uint16, versions 1+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[LeaderEndpoint], out: Writer, version: int) -> None:
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
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[LeaderEndpoint], int]:
        found: list[LeaderEndpoint] = []
        for _ in range(count):
            self = LeaderEndpoint()
            self.name, at = read_string(data, at, True, "name")
            self.host, at = read_string(data, at, True, "host")
            (self.port,) = _UH.unpack_from(data, at)
            at += 2
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class BeginQuorumEpochRequest(Message, gc=False, kw_only=True):
    """Sent by a newly elected leader of a KRaft quorum to the other voters: the epoch has begun, and it is mine.

    cluster_id: Id of the cluster; null skips the check.
    voter_id: Node id of the voter that is to receive this; -1 skips the check.
    topics: Quorums, by topic; the cluster has one, __cluster_metadata.
    leader_endpoints: Addresses at which the voters reach the leader.
    """

    API_KEY = 53
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(1, 2)

    cluster_id: str | None = None  # string, versions 0+, nullable
    voter_id: int = -1  # int32, versions 1+, ignorable
    topics: list[BeginQuorumEpochRequestTopicData] = field(default_factory=list)  # []TopicData, versions 0+
    leader_endpoints: list[LeaderEndpoint] = field(default_factory=list)  # []LeaderEndpoint, versions 1+, ignorable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        write_nullable_string(buffer, self.cluster_id, flexible, "cluster_id")
        if version >= 1:
            buffer += _I.pack(self.voter_id)
        write_structs(out, self.topics, flexible, BeginQuorumEpochRequestTopicData._write_each, version)
        if version >= 1:
            write_structs(out, self.leader_endpoints, flexible, LeaderEndpoint._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[BeginQuorumEpochRequest, int]:
        self = BeginQuorumEpochRequest()
        flexible = version >= 1
        self.cluster_id, at = read_nullable_string(data, at, flexible, "cluster_id")
        if version >= 1:
            (self.voter_id,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.voter_id = -1
        self.topics, at = read_structs(
            data,
            at,
            flexible,
            3,
            "topics",
            BeginQuorumEpochRequestTopicData._read_each,
            version,
        )
        if version >= 1:
            self.leader_endpoints, at = read_structs(
                data,
                at,
                flexible,
                5,
                "leader_endpoints",
                LeaderEndpoint._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.leader_endpoints = []
            self.unknown_tags = ()
        return self, at


class BeginQuorumEpochResponsePartitionData(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means none. 74 says that the voter knows a newer epoch.
    leader_id: Node id of the leader that the voter knows; -1 if it knows none.
    leader_epoch: Newest epoch that the voter knows.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    leader_id: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[BeginQuorumEpochResponsePartitionData], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            buffer += _IHII.pack(self.partition_index, self.error_code, self.leader_id, self.leader_epoch)
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
    ) -> tuple[list[BeginQuorumEpochResponsePartitionData], int]:
        found: list[BeginQuorumEpochResponsePartitionData] = []
        for _ in range(count):
            self = BeginQuorumEpochResponsePartitionData()
            self.partition_index, self.error_code, self.leader_id, self.leader_epoch = _IHII.unpack_from(data, at)
            at += 14
            if version >= 1:
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
    ) -> tuple[list[BeginQuorumEpochResponsePartitionData], int]:
        found: list[BeginQuorumEpochResponsePartitionData] = []
        if version >= 1:
            rows, at = _ROWS_IHII_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, error_code, leader_id, leader_epoch = row
                self = BeginQuorumEpochResponsePartitionData(
                    partition_index=partition_index,
                    error_code=error_code,
                    leader_id=leader_id,
                    leader_epoch=leader_epoch,
                )
                found.append(self)
        else:
            rows, at = _ROWS_IHII_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, error_code, leader_id, leader_epoch = row
                self = BeginQuorumEpochResponsePartitionData(
                    partition_index=partition_index,
                    error_code=error_code,
                    leader_id=leader_id,
                    leader_epoch=leader_epoch,
                )
                found.append(self)
        return found, at


class BeginQuorumEpochResponseTopicData(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_name: Name of the log, __cluster_metadata.
    partitions: Results by partition.
    """

    topic_name: str = ""  # string, versions 0+
    # []PartitionData, versions 0+
    partitions: list[BeginQuorumEpochResponsePartitionData] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[BeginQuorumEpochResponseTopicData], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, flexible, "topic_name")
            write_structs(out, self.partitions, flexible, BeginQuorumEpochResponsePartitionData._write_each, version)
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
    ) -> tuple[list[BeginQuorumEpochResponseTopicData], int]:
        flexible = version >= 1
        found: list[BeginQuorumEpochResponseTopicData] = []
        for _ in range(count):
            self = BeginQuorumEpochResponseTopicData()
            self.topic_name, at = read_string(data, at, flexible, "topic_name")
            self.partitions, at = read_rows(
                data,
                at,
                flexible,
                14,
                "partitions",
                BeginQuorumEpochResponsePartitionData,
                version,
            )
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class NodeEndpoint(Struct, gc=False, kw_only=True):
    """Addresses of the leader named above.

    node_id: Node id of the leader.
    host: Host name or IP address.
    port: TCP port that belongs to the host.
    """

    node_id: int = 0  # int32, versions 1+
    host: str = ""  # string, versions 1+
    port: int = 0  # uint16, versions 1+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[NodeEndpoint], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.node_id)
            write_string(buffer, self.host, True, "host")
            buffer += _UH.pack(self.port)
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
            (self.port,) = _UH.unpack_from(data, at)
            at += 2
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class BeginQuorumEpochResponse(Message, gc=False, kw_only=True):
    """Whether the voter follows the new leader.

    error_code: Error of the whole request; 0 means none. 104 says that the cluster is another one.
    topics: Results by topic.
    node_endpoints: Addresses of the leader named above.
    """

    API_KEY = 53
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(1, 2)

    error_code: int = 0  # int16, versions 0+
    topics: list[BeginQuorumEpochResponseTopicData] = field(default_factory=list)  # []TopicData, versions 0+
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # []NodeEndpoint, versions 1+, tag 0
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        if version < 1 and len(self.node_endpoints) > 0:
            raise absent("node_endpoints")
        buffer += _H.pack(self.error_code)
        write_structs(out, self.topics, flexible, BeginQuorumEpochResponseTopicData._write_each, version)
        if version >= 1:
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)
        elif self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[BeginQuorumEpochResponse, int]:
        self = BeginQuorumEpochResponse()
        flexible = version >= 1
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        self.topics, at = read_structs(
            data,
            at,
            flexible,
            3,
            "topics",
            BeginQuorumEpochResponseTopicData._read_each,
            version,
        )
        self.node_endpoints = []
        if version >= 1:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.node_endpoints = whole(
                        part,
                        read_structs(part, 0, flexible, 8, "node_endpoints", NodeEndpoint._read_each, version),
                        "node_endpoints",
                    )
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        else:
            self.unknown_tags = ()
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        flexible = version >= 1
        found: list[tuple[int, bytes]] = []
        if version >= 1 and len(self.node_endpoints) > 0:
            part = Writer()
            write_structs(part, self.node_endpoints, flexible, NodeEndpoint._write_each, version)
            found.append((0, bytes(part)))
        return found
