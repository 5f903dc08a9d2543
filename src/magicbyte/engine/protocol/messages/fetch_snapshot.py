"""Generated from FetchSnapshotRequest.json and FetchSnapshotResponse.json. Do not edit: the schema compiler makes it.

FetchSnapshotRequest: versions 0-1, flexible 0+.
FetchSnapshotResponse: versions 0-1, flexible 0+.
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
    read_view,
    unknown,
    whole,
    write_nullable_string,
    write_records,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Records, Tags, Writer

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_II = struct.Struct(">ii")
_Q = struct.Struct(">q")
_QI = struct.Struct(">qi")
_QQ = struct.Struct(">qq")
_UH = struct.Struct(">H")


class FetchSnapshotRequestSnapshotId(Struct, gc=False, kw_only=True):
    """The end offset and epoch that identify a snapshot.

    end_offset: Offset after the last record that the snapshot covers.
    epoch: Leader epoch of the last record that the snapshot covers.
    """

    end_offset: int = 0  # int64, versions 0+
    epoch: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _QI.pack(self.end_offset, self.epoch)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[FetchSnapshotRequestSnapshotId, int]:
        self = FetchSnapshotRequestSnapshotId()
        self.end_offset, self.epoch = _QI.unpack_from(data, at)
        at += 12
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return self.end_offset != 0 or self.epoch != 0 or len(self.unknown_tags) > 0


class FetchSnapshotRequestPartitionSnapshot(Struct, gc=False, kw_only=True):
    """Snapshots to fetch, by partition.

    partition: Number of the partition within its topic, counted from 0.
    current_leader_epoch: Epoch of the leader as the replica knows it; -1 skips the check.
    snapshot_id: The end offset and epoch that identify a snapshot.
    position: Byte of the snapshot at which the piece is to begin.
    replica_directory_id: Id of the directory in which the replica keeps the log; all zeros if it has none.
    """

    partition: int = 0  # int32, versions 0+
    current_leader_epoch: int = 0  # int32, versions 0+
    # SnapshotId, versions 0+
    snapshot_id: FetchSnapshotRequestSnapshotId = field(default_factory=FetchSnapshotRequestSnapshotId)
    position: int = 0  # int64, versions 0+
    replica_directory_id: UUID = NULL_UUID  # uuid, versions 1+, ignorable, tag 0
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[FetchSnapshotRequestPartitionSnapshot], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _II.pack(self.partition, self.current_leader_epoch)
            self.snapshot_id._write(out, version)
            buffer += _Q.pack(self.position)
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
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[FetchSnapshotRequestPartitionSnapshot], int]:
        found: list[FetchSnapshotRequestPartitionSnapshot] = []
        for _ in range(count):
            self = FetchSnapshotRequestPartitionSnapshot()
            self.partition, self.current_leader_epoch = _II.unpack_from(data, at)
            at += 8
            self.snapshot_id, at = FetchSnapshotRequestSnapshotId._read(data, at, version)
            (self.position,) = _Q.unpack_from(data, at)
            at += 8
            self.replica_directory_id = NULL_UUID
            if version >= 1:
                if data[at]:
                    tags, at = read_tags(data, at)
                    if 0 in tags:
                        part = tags.pop(0)
                        self.replica_directory_id = whole(part, read_uuid(part, 0), "replica_directory_id")
                    self.unknown_tags = unknown(tags)
                else:
                    self.unknown_tags, at = (), at + 1
            else:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if version >= 1 and self.replica_directory_id != NULL_UUID:
            part = Writer()
            write_uuid(part.buffer, self.replica_directory_id)
            found.append((0, bytes(part)))
        return found


class FetchSnapshotRequestTopicSnapshot(Struct, gc=False, kw_only=True):
    """Snapshots to fetch, by topic; the cluster has one such log, __cluster_metadata.

    name: Name of the topic.
    partitions: Snapshots to fetch, by partition.
    """

    name: str = ""  # string, versions 0+
    # []PartitionSnapshot, versions 0+
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[FetchSnapshotRequestTopicSnapshot], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_structs(out, self.partitions, True, FetchSnapshotRequestPartitionSnapshot._write_each, version)
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
    ) -> tuple[list[FetchSnapshotRequestTopicSnapshot], int]:
        found: list[FetchSnapshotRequestTopicSnapshot] = []
        for _ in range(count):
            self = FetchSnapshotRequestTopicSnapshot()
            self.name, at = read_string(data, at, True, "name")
            self.partitions, at = read_structs(
                data,
                at,
                True,
                30,
                "partitions",
                FetchSnapshotRequestPartitionSnapshot._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class FetchSnapshotRequest(Message, gc=False, kw_only=True):
    """Sent by a replica of the KRaft log that lags too far behind: fetch a piece of a snapshot instead of the log.

    cluster_id: Id of the cluster; null skips the check.
    replica_id: Node id of the replica that fetches; -1 if it has none.
    max_bytes: Most bytes of snapshot in the whole answer.
    topics: Snapshots to fetch, by topic; the cluster has one such log, __cluster_metadata.
    """

    API_KEY = 59
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    cluster_id: str | None = None  # string, versions 0+, nullable, tag 0
    replica_id: int = -1  # int32, versions 0+
    max_bytes: int = 2147483647  # int32, versions 0+
    topics: list[FetchSnapshotRequestTopicSnapshot] = field(default_factory=list)  # []TopicSnapshot, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _II.pack(self.replica_id, self.max_bytes)
        write_structs(out, self.topics, True, FetchSnapshotRequestTopicSnapshot._write_each, version)
        tags = self._tags(version)
        if tags or self.unknown_tags:
            write_tags(buffer, tags, self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[FetchSnapshotRequest, int]:
        self = FetchSnapshotRequest()
        self.cluster_id = None
        self.replica_id, self.max_bytes = _II.unpack_from(data, at)
        at += 8
        self.topics, at = read_structs(
            data,
            at,
            True,
            3,
            "topics",
            FetchSnapshotRequestTopicSnapshot._read_each,
            version,
        )
        if data[at]:
            tags, at = read_tags(data, at)
            if 0 in tags:
                part = tags.pop(0)
                self.cluster_id = whole(part, read_nullable_string(part, 0, True, "cluster_id"), "cluster_id")
            self.unknown_tags = unknown(tags)
        else:
            self.unknown_tags, at = (), at + 1
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.cluster_id is not None:
            part = Writer()
            write_nullable_string(part.buffer, self.cluster_id, True, "cluster_id")
            found.append((0, bytes(part)))
        return found


class FetchSnapshotResponseSnapshotId(Struct, gc=False, kw_only=True):
    """Snapshot to which the piece belongs.

    end_offset: Offset after the last record that the snapshot covers.
    epoch: Leader epoch of the last record that the snapshot covers.
    """

    end_offset: int = 0  # int64, versions 0+
    epoch: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _QI.pack(self.end_offset, self.epoch)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[FetchSnapshotResponseSnapshotId, int]:
        self = FetchSnapshotResponseSnapshotId()
        self.end_offset, self.epoch = _QI.unpack_from(data, at)
        at += 12
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return self.end_offset != 0 or self.epoch != 0 or len(self.unknown_tags) > 0


class LeaderIdAndEpoch(Struct, gc=False, kw_only=True):
    """Set when the asked node is not the leader, or the epoch is out of date, and it knows who leads now.

    leader_id: Node id of the present leader; -1 if it is not known.
    leader_epoch: Newest epoch that is known.
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


class FetchSnapshotResponsePartitionSnapshot(Struct, gc=False, kw_only=True):
    """Results by partition.

    index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means none. 98 says that there is no such snapshot, 99 that it is shorter
        than the position.
    snapshot_id: Snapshot to which the piece belongs.
    current_leader: Set when the asked node is not the leader, or the epoch is out of date, and it knows who leads
        now.
    size_: Size of the whole snapshot in bytes.
    position: Byte of the snapshot at which the piece begins.
    unaligned_records: The piece: bytes of record batches that may begin and end in the middle of one.
    """

    index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    # SnapshotId, versions 0+
    snapshot_id: FetchSnapshotResponseSnapshotId = field(default_factory=FetchSnapshotResponseSnapshotId)
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)  # LeaderIdAndEpoch, versions 0+, tag 0
    size_: int = 0  # int64, versions 0+
    position: int = 0  # int64, versions 0+
    unaligned_records: Records | None = None  # records, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[FetchSnapshotResponsePartitionSnapshot], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.index, self.error_code)
            self.snapshot_id._write(out, version)
            buffer += _QQ.pack(self.size_, self.position)
            write_records(out, self.unaligned_records, True, "unaligned_records")
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[FetchSnapshotResponsePartitionSnapshot], int]:
        found: list[FetchSnapshotResponsePartitionSnapshot] = []
        for _ in range(count):
            self = FetchSnapshotResponsePartitionSnapshot()
            self.index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.snapshot_id, at = FetchSnapshotResponseSnapshotId._read(data, at, version)
            self.current_leader = LeaderIdAndEpoch()
            self.size_, self.position = _QQ.unpack_from(data, at)
            at += 16
            self.unaligned_records, at = read_view(data, at, True, "unaligned_records")
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.current_leader = whole(part, LeaderIdAndEpoch._read(part, 0, version), "current_leader")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
            found.append(self)
        return found, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.current_leader._is_set():
            part = Writer()
            self.current_leader._write(part, version)
            found.append((0, bytes(part)))
        return found


class FetchSnapshotResponseTopicSnapshot(Struct, gc=False, kw_only=True):
    """Results by topic.

    name: Name of the topic.
    partitions: Results by partition.
    """

    name: str = ""  # string, versions 0+
    # []PartitionSnapshot, versions 0+
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[FetchSnapshotResponseTopicSnapshot], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_structs(out, self.partitions, True, FetchSnapshotResponsePartitionSnapshot._write_each, version)
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
    ) -> tuple[list[FetchSnapshotResponseTopicSnapshot], int]:
        found: list[FetchSnapshotResponseTopicSnapshot] = []
        for _ in range(count):
            self = FetchSnapshotResponseTopicSnapshot()
            self.name, at = read_string(data, at, True, "name")
            self.partitions, at = read_structs(
                data,
                at,
                True,
                37,
                "partitions",
                FetchSnapshotResponsePartitionSnapshot._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class NodeEndpoint(Struct, gc=False, kw_only=True):
    """Addresses of the leaders named above.

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


class FetchSnapshotResponse(Message, gc=False, kw_only=True):
    """A piece of a snapshot.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    topics: Results by topic.
    node_endpoints: Addresses of the leaders named above.
    """

    API_KEY = 59
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    throttle_time_ms: int = 0  # int32, versions 0+, ignorable
    error_code: int = 0  # int16, versions 0+
    topics: list[FetchSnapshotResponseTopicSnapshot] = field(default_factory=list)  # []TopicSnapshot, versions 0+
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # []NodeEndpoint, versions 1+, tag 0
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and len(self.node_endpoints) > 0:
            raise absent("node_endpoints")
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_structs(out, self.topics, True, FetchSnapshotResponseTopicSnapshot._write_each, version)
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
    def _read(data: memoryview, at: int, version: int) -> tuple[FetchSnapshotResponse, int]:
        self = FetchSnapshotResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.topics, at = read_structs(
            data,
            at,
            True,
            3,
            "topics",
            FetchSnapshotResponseTopicSnapshot._read_each,
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
