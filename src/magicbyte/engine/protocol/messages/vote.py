"""Generated from VoteRequest.json and VoteResponse.json. Do not edit: the schema compiler makes it.

VoteRequest: versions 0-2, flexible 0+.
VoteResponse: versions 0-2, flexible 0+.
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
_IHIIT = struct.Struct(">ihii?")
_III = struct.Struct(">iii")
_IQ = struct.Struct(">iq")
_IQT = struct.Struct(">iq?")
_ROWS_IHIIT_COMPACT = Rows("ihii?", flexible=True)
_ROWS_IIIIQ_COMPACT = Rows("iiiiq", flexible=True)
_UH = struct.Struct(">H")


class VoteRequestPartitionData(Struct, gc=False, kw_only=True):
    """Quorums, by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    candidate_epoch: Epoch for which the candidate wants the votes; with PreVote the epoch that it is in. Kafka 4
        calls it ReplicaEpoch.
    candidate_id: Node id of the candidate.
    candidate_directory_id: Id of the directory in which the candidate keeps its log.
    voter_directory_id: Id of the directory in which the receiving voter keeps its log; all zeros skip the check.
    last_offset_epoch: Leader epoch of the candidate's last record; voters refuse a log less complete than their own.
    last_offset: Offset after the candidate's last record.
    pre_vote: True only asks whether the vote would be given, without beginning a new epoch.
    """

    partition_index: int = 0  # int32, versions 0+
    candidate_epoch: int = 0  # int32, versions 0+
    candidate_id: int = 0  # int32, versions 0+
    candidate_directory_id: UUID = NULL_UUID  # uuid, versions 1+, ignorable
    voter_directory_id: UUID = NULL_UUID  # uuid, versions 1+, ignorable
    last_offset_epoch: int = 0  # int32, versions 0+
    last_offset: int = 0  # int64, versions 0+
    pre_vote: bool = False  # bool, versions 2+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[VoteRequestPartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version < 2 and self.pre_vote:
                raise absent("pre_vote")
            buffer += _III.pack(self.partition_index, self.candidate_epoch, self.candidate_id)
            if version >= 1:
                write_uuid(buffer, self.candidate_directory_id)
                write_uuid(buffer, self.voter_directory_id)
            if version >= 2:
                buffer += _IQT.pack(self.last_offset_epoch, self.last_offset, self.pre_vote)
            else:
                buffer += _IQ.pack(self.last_offset_epoch, self.last_offset)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[VoteRequestPartitionData], int]:
        found: list[VoteRequestPartitionData] = []
        for _ in range(count):
            self = VoteRequestPartitionData()
            self.partition_index, self.candidate_epoch, self.candidate_id = _III.unpack_from(data, at)
            at += 12
            if version >= 1:
                self.candidate_directory_id, at = read_uuid(data, at)
                self.voter_directory_id, at = read_uuid(data, at)
            else:
                self.candidate_directory_id = NULL_UUID
                self.voter_directory_id = NULL_UUID
            if version >= 2:
                self.last_offset_epoch, self.last_offset, self.pre_vote = _IQT.unpack_from(data, at)
                at += 13
            else:
                self.last_offset_epoch, self.last_offset = _IQ.unpack_from(data, at)
                at += 12
                self.pre_vote = False
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[VoteRequestPartitionData], int]:
        found: list[VoteRequestPartitionData] = []
        if version <= 0:
            rows, at = _ROWS_IIIIQ_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, candidate_epoch, candidate_id, last_offset_epoch, last_offset = row
                self = VoteRequestPartitionData(
                    partition_index=partition_index,
                    candidate_epoch=candidate_epoch,
                    candidate_id=candidate_id,
                    last_offset_epoch=last_offset_epoch,
                    last_offset=last_offset,
                )
                found.append(self)
        return found, at


class VoteRequestTopicData(Struct, gc=False, kw_only=True):
    """Quorums, by topic; the cluster has one, __cluster_metadata.

    topic_name: Name of the log, __cluster_metadata.
    partitions: Quorums, by partition.
    """

    topic_name: str = ""  # string, versions 0+
    partitions: list[VoteRequestPartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[VoteRequestTopicData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, True, "topic_name")
            write_structs(out, self.partitions, True, VoteRequestPartitionData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[VoteRequestTopicData], int]:
        found: list[VoteRequestTopicData] = []
        for _ in range(count):
            self = VoteRequestTopicData()
            self.topic_name, at = read_string(data, at, True, "topic_name")
            if version >= 1:
                self.partitions, at = read_structs(
                    data,
                    at,
                    True,
                    25,
                    "partitions",
                    VoteRequestPartitionData._read_each,
                    version,
                )
            else:
                self.partitions, at = read_rows(data, at, True, 25, "partitions", VoteRequestPartitionData, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class VoteRequest(Message, gc=False, kw_only=True):
    """Sent by a candidate of a KRaft quorum to the other voters: elect me.

    cluster_id: Id of the cluster; null skips the check.
    voter_id: Node id of the voter that is to receive this; -1 skips the check.
    topics: Quorums, by topic; the cluster has one, __cluster_metadata.
    """

    API_KEY = 52
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    cluster_id: str | None = None  # string, versions 0+, nullable
    voter_id: int = -1  # int32, versions 1+, ignorable
    topics: list[VoteRequestTopicData] = field(default_factory=list)  # []TopicData, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_nullable_string(buffer, self.cluster_id, True, "cluster_id")
        if version >= 1:
            buffer += _I.pack(self.voter_id)
        write_structs(out, self.topics, True, VoteRequestTopicData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[VoteRequest, int]:
        self = VoteRequest()
        self.cluster_id, at = read_nullable_string(data, at, True, "cluster_id")
        if version >= 1:
            (self.voter_id,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.voter_id = -1
        self.topics, at = read_structs(data, at, True, 3, "topics", VoteRequestTopicData._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class VoteResponsePartitionData(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means none. 74 says that the voter knows a newer epoch.
    leader_id: Node id of the leader that the voter knows; -1 if it knows none.
    leader_epoch: Newest epoch that the voter knows.
    vote_granted: True if the vote is given; a voter gives one in each epoch.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    leader_id: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    vote_granted: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[VoteResponsePartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IHIIT.pack(
                self.partition_index,
                self.error_code,
                self.leader_id,
                self.leader_epoch,
                self.vote_granted,
            )
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[VoteResponsePartitionData], int]:
        found: list[VoteResponsePartitionData] = []
        for _ in range(count):
            self = VoteResponsePartitionData()
            (
                self.partition_index,
                self.error_code,
                self.leader_id,
                self.leader_epoch,
                self.vote_granted,
            ) = _IHIIT.unpack_from(data, at)
            at += 15
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[VoteResponsePartitionData], int]:
        found: list[VoteResponsePartitionData] = []
        rows, at = _ROWS_IHIIT_COMPACT.read(data, at, most)
        for row in rows:
            partition_index, error_code, leader_id, leader_epoch, vote_granted = row
            self = VoteResponsePartitionData(
                partition_index=partition_index,
                error_code=error_code,
                leader_id=leader_id,
                leader_epoch=leader_epoch,
                vote_granted=vote_granted,
            )
            found.append(self)
        return found, at


class VoteResponseTopicData(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_name: Name of the log, __cluster_metadata.
    partitions: Results by partition.
    """

    topic_name: str = ""  # string, versions 0+
    partitions: list[VoteResponsePartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[VoteResponseTopicData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, True, "topic_name")
            write_structs(out, self.partitions, True, VoteResponsePartitionData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[VoteResponseTopicData], int]:
        found: list[VoteResponseTopicData] = []
        for _ in range(count):
            self = VoteResponseTopicData()
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.partitions, at = read_rows(data, at, True, 16, "partitions", VoteResponsePartitionData, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
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


class VoteResponse(Message, gc=False, kw_only=True):
    """Whether the voter gives its vote.

    error_code: Error of the whole request; 0 means none. 104 says that the cluster is another one.
    topics: Results by topic.
    node_endpoints: Addresses of the leader named above.
    """

    API_KEY = 52
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    error_code: int = 0  # int16, versions 0+
    topics: list[VoteResponseTopicData] = field(default_factory=list)  # []TopicData, versions 0+
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # []NodeEndpoint, versions 1+, tag 0
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and len(self.node_endpoints) > 0:
            raise absent("node_endpoints")
        buffer += _H.pack(self.error_code)
        write_structs(out, self.topics, True, VoteResponseTopicData._write_each, version)
        if version >= 1:
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)
        else:
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[VoteResponse, int]:
        self = VoteResponse()
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        self.topics, at = read_structs(data, at, True, 3, "topics", VoteResponseTopicData._read_each, version)
        self.node_endpoints = []
        if version >= 1:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.node_endpoints = whole(
                        part,
                        read_structs(part, 0, True, 8, "node_endpoints", NodeEndpoint._read_each, version),
                        "node_endpoints",
                    )
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        else:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if version >= 1 and len(self.node_endpoints) > 0:
            part = Writer()
            write_structs(part, self.node_endpoints, True, NodeEndpoint._write_each, version)
            found.append((0, bytes(part)))
        return found
