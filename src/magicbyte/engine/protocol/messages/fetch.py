"""Generated from FetchRequest.json and FetchResponse.json. Do not edit: the schema compiler makes it.

FetchRequest: versions 0-18, flexible 12+; deprecated 0-3.
FetchResponse: versions 0-18, flexible 12+.
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
    read_tags,
    read_unknown_tags,
    read_uuid,
    unknown,
    whole,
    write_nullable_records,
    write_nullable_string,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Records, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, read_nullable_rows, read_rows

_I = struct.Struct(">i")
_IHI = struct.Struct(">ihi")
_IHQ = struct.Struct(">ihq")
_IHQQ = struct.Struct(">ihqq")
_IHQQQ = struct.Struct(">ihqqq")
_II = struct.Struct(">ii")
_III = struct.Struct(">iii")
_IIIB = struct.Struct(">iiib")
_IIIBII = struct.Struct(">iiibii")
_IIQIQI = struct.Struct(">iiqiqi")
_IIQQI = struct.Struct(">iiqqi")
_IQ = struct.Struct(">iq")
_IQI = struct.Struct(">iqi")
_IQQI = struct.Struct(">iqqi")
_Q = struct.Struct(">q")
_QI = struct.Struct(">qi")
_QQ = struct.Struct(">qq")
_ROWS_IIQIQI_COMPACT = Rows("iiqiqi", flexible=True)
_ROWS_IIQQI_CLASSIC = Rows("iiqqi", flexible=False)
_ROWS_IQI_CLASSIC = Rows("iqi", flexible=False)
_ROWS_IQQI_CLASSIC = Rows("iqqi", flexible=False)
_ROWS_QQ_CLASSIC = Rows("qq", flexible=False)
_ROWS_QQ_COMPACT = Rows("qq", flexible=True)


class ReplicaState(Struct, gc=False, kw_only=True):
    """Identity of the follower, instead of the replica id of older versions; omitted by consumers.

    replica_id: Broker id of the follower that fetches; -1 for a consumer.
    replica_epoch: Broker epoch of the follower, so that a fetch from before its restart does not count as progress;
        -1 if there is none.
    """

    replica_id: int = -1  # int32, versions 15+
    replica_epoch: int = -1  # int64, versions 15+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IQ.pack(self.replica_id, self.replica_epoch)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ReplicaState, int]:
        self = ReplicaState()
        self.replica_id, self.replica_epoch = _IQ.unpack_from(data, at)
        at += 12
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return self.replica_id != -1 or self.replica_epoch != -1 or len(self.unknown_tags) > 0


class FetchPartition(Struct, gc=False, kw_only=True):
    """Partitions to read from. From version 3 on their order matters, as the size limit may be reached before the last
    one.

    partition: Number of the partition within its topic, counted from 0.
    current_leader_epoch: Epoch of the leader as the reader knows it, so that an old leader, or an old reader, is
        fenced; -1 skips the check.
    fetch_offset: Offset of the first record to fetch. For a follower, all records before it are stored there.
    last_fetched_epoch: Leader epoch of the last record that the follower has, so that the leader can see where the
        logs diverge; -1 if it has none or does not want the check.
    log_start_offset: First offset that the follower still has; the leader needs it to answer DeleteRecords. -1 from
        consumers.
    partition_max_bytes: Most bytes of records from this partition; up to version 2 a larger batch is cut off at this
        size.
    replica_directory_id: Id of the log directory in which the follower keeps this replica; all zeros from other
        clients.
    high_watermark: High watermark that the follower knows, so that the leader answers at once when its own is
        higher; -1 if it knows none, the largest int64 if it does not say.
    """

    partition: int = 0  # int32, versions 0+
    current_leader_epoch: int = -1  # int32, versions 9+, ignorable
    fetch_offset: int = 0  # int64, versions 0+
    last_fetched_epoch: int = -1  # int32, versions 12+
    log_start_offset: int = -1  # int64, versions 5+, ignorable
    partition_max_bytes: int = 0  # int32, versions 0+
    replica_directory_id: UUID = NULL_UUID  # uuid, versions 17+, ignorable, tag 0
    high_watermark: int = 9223372036854775807  # int64, versions 18+, ignorable, tag 1
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[FetchPartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version < 12 and self.last_fetched_epoch != -1:
                raise absent("last_fetched_epoch")
            if version >= 12:
                buffer += _IIQIQI.pack(
                    self.partition,
                    self.current_leader_epoch,
                    self.fetch_offset,
                    self.last_fetched_epoch,
                    self.log_start_offset,
                    self.partition_max_bytes,
                )
            elif version >= 9:
                buffer += _IIQQI.pack(
                    self.partition,
                    self.current_leader_epoch,
                    self.fetch_offset,
                    self.log_start_offset,
                    self.partition_max_bytes,
                )
            elif version >= 5:
                buffer += _IQQI.pack(self.partition, self.fetch_offset, self.log_start_offset, self.partition_max_bytes)
            else:
                buffer += _IQI.pack(self.partition, self.fetch_offset, self.partition_max_bytes)
            if version >= 17:
                tags = self._tags(version)
                if tags or self.unknown_tags:
                    write_tags(buffer, tags, self.unknown_tags)
                else:
                    buffer.append(0)
            elif version >= 12:
                if self.unknown_tags:
                    write_tags(buffer, (), self.unknown_tags)
                else:
                    buffer.append(0)
            elif self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[FetchPartition], int]:
        found: list[FetchPartition] = []
        for _ in range(count):
            self = FetchPartition()
            if version >= 12:
                (
                    self.partition,
                    self.current_leader_epoch,
                    self.fetch_offset,
                    self.last_fetched_epoch,
                    self.log_start_offset,
                    self.partition_max_bytes,
                ) = _IIQIQI.unpack_from(data, at)
                at += 32
            elif version >= 9:
                (
                    self.partition,
                    self.current_leader_epoch,
                    self.fetch_offset,
                    self.log_start_offset,
                    self.partition_max_bytes,
                ) = _IIQQI.unpack_from(data, at)
                at += 28
                self.last_fetched_epoch = -1
            elif version >= 5:
                (
                    self.partition,
                    self.fetch_offset,
                    self.log_start_offset,
                    self.partition_max_bytes,
                ) = _IQQI.unpack_from(data, at)
                at += 24
                self.current_leader_epoch = -1
                self.last_fetched_epoch = -1
            else:
                self.partition, self.fetch_offset, self.partition_max_bytes = _IQI.unpack_from(data, at)
                at += 16
                self.current_leader_epoch = -1
                self.last_fetched_epoch = -1
                self.log_start_offset = -1
            self.replica_directory_id = NULL_UUID
            self.high_watermark = 9223372036854775807
            if version >= 18:
                if data[at]:
                    tags, at = read_tags(data, at)
                    if 0 in tags:
                        part = tags.pop(0)
                        self.replica_directory_id = whole(part, read_uuid(part, 0), "replica_directory_id")
                    if 1 in tags:
                        part = tags.pop(1)
                        self.high_watermark = whole(part, (_Q.unpack_from(part)[0], 8), "high_watermark")
                    self.unknown_tags = unknown(tags)
                else:
                    self.unknown_tags, at = (), at + 1
            elif version >= 17:
                if data[at]:
                    tags, at = read_tags(data, at)
                    if 0 in tags:
                        part = tags.pop(0)
                        self.replica_directory_id = whole(part, read_uuid(part, 0), "replica_directory_id")
                    self.unknown_tags = unknown(tags)
                else:
                    self.unknown_tags, at = (), at + 1
            elif version >= 12:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if version >= 17 and self.replica_directory_id != NULL_UUID:
            part = Writer()
            write_uuid(part.buffer, self.replica_directory_id)
            found.append((0, bytes(part)))
        if version >= 18 and self.high_watermark != 9223372036854775807:
            part = Writer()
            part.buffer += _Q.pack(self.high_watermark)
            found.append((1, bytes(part)))
        return found

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[FetchPartition], int]:
        found: list[FetchPartition] = []
        if version >= 12:
            rows, at = _ROWS_IIQIQI_COMPACT.read(data, at, most)
            for row in rows:
                (
                    partition,
                    current_leader_epoch,
                    fetch_offset,
                    last_fetched_epoch,
                    log_start_offset,
                    partition_max_bytes,
                ) = row
                self = FetchPartition(
                    partition=partition,
                    current_leader_epoch=current_leader_epoch,
                    fetch_offset=fetch_offset,
                    last_fetched_epoch=last_fetched_epoch,
                    log_start_offset=log_start_offset,
                    partition_max_bytes=partition_max_bytes,
                )
                found.append(self)
        elif version >= 9:
            rows, at = _ROWS_IIQQI_CLASSIC.read(data, at, most)
            for row in rows:
                partition, current_leader_epoch, fetch_offset, log_start_offset, partition_max_bytes = row
                self = FetchPartition(
                    partition=partition,
                    current_leader_epoch=current_leader_epoch,
                    fetch_offset=fetch_offset,
                    log_start_offset=log_start_offset,
                    partition_max_bytes=partition_max_bytes,
                )
                found.append(self)
        elif version >= 5:
            rows, at = _ROWS_IQQI_CLASSIC.read(data, at, most)
            for row in rows:
                partition, fetch_offset, log_start_offset, partition_max_bytes = row
                self = FetchPartition(
                    partition=partition,
                    fetch_offset=fetch_offset,
                    log_start_offset=log_start_offset,
                    partition_max_bytes=partition_max_bytes,
                )
                found.append(self)
        else:
            rows, at = _ROWS_IQI_CLASSIC.read(data, at, most)
            for row in rows:
                partition, fetch_offset, partition_max_bytes = row
                self = FetchPartition(
                    partition=partition,
                    fetch_offset=fetch_offset,
                    partition_max_bytes=partition_max_bytes,
                )
                found.append(self)
        return found, at


class FetchTopic(Struct, gc=False, kw_only=True):
    """Topics to read from. Within a session only the partitions that are new or whose position changed.

    topic: Name of the topic, unique in the cluster.
    topic_id: Id of the topic, which replaces its name from version 13 on.
    partitions: Partitions to read from. From version 3 on their order matters, as the size limit may be reached
        before the last one.
    """

    topic: str = ""  # string, versions 0-12, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 13+, ignorable
    partitions: list[FetchPartition] = field(default_factory=list)  # []FetchPartition, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[FetchTopic], out: Writer, version: int) -> None:
        flexible = version >= 12
        buffer = out.buffer
        for self in structs:
            if version <= 12:
                write_string(buffer, self.topic, flexible, "topic")
            if version >= 13:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, flexible, FetchPartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[FetchTopic], int]:
        flexible = version >= 12
        found: list[FetchTopic] = []
        for _ in range(count):
            self = FetchTopic()
            if version >= 13:
                self.topic = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.topic, at = read_string(data, at, flexible, "topic")
                self.topic_id = NULL_UUID
            self.partitions, at = read_rows(data, at, flexible, 16, "partitions", FetchPartition, version)
            if version >= 12:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class ForgottenTopic(Struct, gc=False, kw_only=True):
    """Partitions to take out of the fetch session.

    topic: Name of the topic, unique in the cluster.
    topic_id: Id of the topic, which replaces its name from version 13 on.
    partitions: Numbers of the partitions to take out.
    """

    topic: str = ""  # string, versions 7-12, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 13+, ignorable
    partitions: tuple[int, ...] = ()  # []int32, versions 7+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ForgottenTopic], out: Writer, version: int) -> None:
        flexible = version >= 12
        buffer = out.buffer
        for self in structs:
            if version <= 12:
                write_string(buffer, self.topic, flexible, "topic")
            if version >= 13:
                write_uuid(buffer, self.topic_id)
            write_numbers(buffer, self.partitions, flexible, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ForgottenTopic], int]:
        flexible = version >= 12
        found: list[ForgottenTopic] = []
        for _ in range(count):
            self = ForgottenTopic()
            if version >= 13:
                self.topic = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.topic, at = read_string(data, at, flexible, "topic")
                self.topic_id = NULL_UUID
            self.partitions, at = read_numbers(data, at, flexible, "i", "partitions")
            if version >= 12:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class FetchRequest(Message, gc=False, kw_only=True):
    """Reads records: consumers from the leader or a nearby replica, followers from their leader. It waits until enough
    is there or its time is up.

    cluster_id: Cluster of the sender; null: not checked. Only members of a KRaft quorum set it, to refuse nodes of
        other clusters.
    replica_id: Broker id of the follower that fetches; -1 for a consumer, -2 for a debugging tool.
    replica_state: Identity of the follower, instead of the replica id of older versions; omitted by consumers.
    max_wait_ms: Longest time, in milliseconds, that the broker may wait for MinBytes to gather.
    min_bytes: Fewest bytes of records worth an answer before the time is up; with 0 the broker answers at once, with
        1 as soon as there is anything.
    max_bytes: Most bytes of records in the whole answer. Not strict: the first batch of the first partition that has
        data is sent however large it is.
    isolation_level: 0 reads everything up to the high watermark (read_uncommitted); 1 stops at the first open
        transaction (read_committed).
    session_id: Fetch session that this request continues; 0 asks for a new one or for none.
    session_epoch: Number of this request within its session: 0 opens a session, then 1, 2, 3 and so on; -1 means no
        session, or closes the one named.
    topics: Topics to read from. Within a session only the partitions that are new or whose position changed.
    forgotten_topics_data: Partitions to take out of the fetch session.
    rack_id: Rack or zone of the consumer, so that the leader can point it to a replica nearby; empty if it has none.
    """

    API_KEY = 1
    VALID_VERSIONS = range(19)
    FLEXIBLE_VERSIONS = range(12, 19)

    cluster_id: str | None = None  # string, versions 12+, nullable, ignorable, tag 0
    replica_id: int = -1  # int32, versions 0-14
    replica_state: ReplicaState = field(default_factory=ReplicaState)  # ReplicaState, versions 15+, tag 1
    max_wait_ms: int = 0  # int32, versions 0+
    min_bytes: int = 0  # int32, versions 0+
    max_bytes: int = 2147483647  # int32, versions 3+, ignorable
    isolation_level: int = 0  # int8, versions 4+, ignorable
    session_id: int = 0  # int32, versions 7+, ignorable
    session_epoch: int = -1  # int32, versions 7+, ignorable
    topics: list[FetchTopic] = field(default_factory=list)  # []FetchTopic, versions 0+
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)  # []ForgottenTopic, versions 7+
    rack_id: str = ""  # string, versions 11+, ignorable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 12
        buffer = out.buffer
        if version > 14 and self.replica_id != -1:
            raise absent("replica_id")
        if version < 15 and self.replica_state._is_set():
            raise absent("replica_state")
        if version < 7 and len(self.forgotten_topics_data) > 0:
            raise absent("forgotten_topics_data")
        if version <= 14:
            buffer += _I.pack(self.replica_id)
        if version >= 7:
            buffer += _IIIBII.pack(
                self.max_wait_ms,
                self.min_bytes,
                self.max_bytes,
                self.isolation_level,
                self.session_id,
                self.session_epoch,
            )
        elif version >= 4:
            buffer += _IIIB.pack(self.max_wait_ms, self.min_bytes, self.max_bytes, self.isolation_level)
        elif version >= 3:
            buffer += _III.pack(self.max_wait_ms, self.min_bytes, self.max_bytes)
        else:
            buffer += _II.pack(self.max_wait_ms, self.min_bytes)
        write_structs(out, self.topics, flexible, FetchTopic._write_each, version)
        if version >= 7:
            write_structs(out, self.forgotten_topics_data, flexible, ForgottenTopic._write_each, version)
        if version >= 11:
            write_string(buffer, self.rack_id, flexible, "rack_id")
        if version >= 12:
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)
        elif self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[FetchRequest, int]:
        self = FetchRequest()
        flexible = version >= 12
        self.cluster_id = None
        if version >= 15:
            self.replica_id = -1
        else:
            (self.replica_id,) = _I.unpack_from(data, at)
            at += 4
        self.replica_state = ReplicaState()
        if version >= 7:
            (
                self.max_wait_ms,
                self.min_bytes,
                self.max_bytes,
                self.isolation_level,
                self.session_id,
                self.session_epoch,
            ) = _IIIBII.unpack_from(data, at)
            at += 21
        elif version >= 4:
            self.max_wait_ms, self.min_bytes, self.max_bytes, self.isolation_level = _IIIB.unpack_from(data, at)
            at += 13
            self.session_id = 0
            self.session_epoch = -1
        elif version >= 3:
            self.max_wait_ms, self.min_bytes, self.max_bytes = _III.unpack_from(data, at)
            at += 12
            self.isolation_level = 0
            self.session_id = 0
            self.session_epoch = -1
        else:
            self.max_wait_ms, self.min_bytes = _II.unpack_from(data, at)
            at += 8
            self.max_bytes = 2147483647
            self.isolation_level = 0
            self.session_id = 0
            self.session_epoch = -1
        self.topics, at = read_structs(data, at, flexible, 3, "topics", FetchTopic._read_each, version)
        if version >= 7:
            self.forgotten_topics_data, at = read_structs(
                data,
                at,
                flexible,
                3,
                "forgotten_topics_data",
                ForgottenTopic._read_each,
                version,
            )
        else:
            self.forgotten_topics_data = []
        if version >= 11:
            self.rack_id, at = read_string(data, at, flexible, "rack_id")
        else:
            self.rack_id = ""
        if version >= 15:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.cluster_id = whole(part, read_nullable_string(part, 0, flexible, "cluster_id"), "cluster_id")
                if 1 in tags:
                    part = tags.pop(1)
                    self.replica_state = whole(part, ReplicaState._read(part, 0, version), "replica_state")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        elif version >= 12:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.cluster_id = whole(part, read_nullable_string(part, 0, flexible, "cluster_id"), "cluster_id")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        else:
            self.unknown_tags = ()
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        flexible = version >= 12
        found: list[tuple[int, bytes]] = []
        if version >= 12 and self.cluster_id is not None:
            part = Writer()
            write_nullable_string(part.buffer, self.cluster_id, flexible, "cluster_id")
            found.append((0, bytes(part)))
        if version >= 15 and self.replica_state._is_set():
            part = Writer()
            self.replica_state._write(part, version)
            found.append((1, bytes(part)))
        return found


class EpochEndOffset(Struct, gc=False, kw_only=True):
    """Set when the follower's log is not a prefix of the leader's: the newest epoch up to which both may agree.

    epoch: Largest leader epoch not above the follower's that the leader knows; -1 if there is none.
    end_offset: Offset after the last record of that epoch; the follower cuts its log there. -1 if there is none.
    """

    epoch: int = -1  # int32, versions 12+
    end_offset: int = -1  # int64, versions 12+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IQ.pack(self.epoch, self.end_offset)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[EpochEndOffset, int]:
        self = EpochEndOffset()
        self.epoch, self.end_offset = _IQ.unpack_from(data, at)
        at += 12
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return self.epoch != -1 or self.end_offset != -1 or len(self.unknown_tags) > 0


class LeaderIdAndEpoch(Struct, gc=False, kw_only=True):
    """Set when the asked broker is not the leader, or the epoch is out of date, and it knows who leads the partition
    now.

    leader_id: Broker id of the present leader; -1 if it is not known.
    leader_epoch: Epoch of that leadership; -1 if it is not known.
    """

    leader_id: int = -1  # int32, versions 12+
    leader_epoch: int = -1  # int32, versions 12+
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


class SnapshotId(Struct, gc=False, kw_only=True):
    """Set by a KRaft leader whose log no longer reaches back far enough: the snapshot to fetch instead.

    end_offset: Offset after the last record that the snapshot covers; -1 if there is none.
    epoch: Leader epoch of the last record that the snapshot covers; -1 if there is none.
    """

    end_offset: int = -1  # int64, versions 0+
    epoch: int = -1  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _QI.pack(self.end_offset, self.epoch)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[SnapshotId, int]:
        self = SnapshotId()
        self.end_offset, self.epoch = _QI.unpack_from(data, at)
        at += 12
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return self.end_offset != -1 or self.epoch != -1 or len(self.unknown_tags) > 0


class AbortedTransaction(Struct, gc=False, kw_only=True):
    """Aborted transactions with records in this answer, which a read_committed consumer drops; null for other readers.

    producer_id: Producer whose transaction was aborted.
    first_offset: Offset of the first record of that transaction; from there to its abort marker the producer's
        records are void.
    """

    producer_id: int = 0  # int64, versions 4+
    first_offset: int = 0  # int64, versions 4+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AbortedTransaction], out: Writer, version: int) -> None:
        flexible = version >= 12
        buffer = out.buffer
        for self in structs:
            buffer += _QQ.pack(self.producer_id, self.first_offset)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AbortedTransaction], int]:
        found: list[AbortedTransaction] = []
        for _ in range(count):
            self = AbortedTransaction()
            self.producer_id, self.first_offset = _QQ.unpack_from(data, at)
            at += 16
            if version >= 12:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[AbortedTransaction], int]:
        found: list[AbortedTransaction] = []
        if version >= 12:
            rows, at = _ROWS_QQ_COMPACT.read(data, at, most)
            for row in rows:
                producer_id, first_offset = row
                self = AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                found.append(self)
        else:
            rows, at = _ROWS_QQ_CLASSIC.read(data, at, most)
            for row in rows:
                producer_id, first_offset = row
                self = AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                found.append(self)
        return found, at


class PartitionData(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means none. 1 says that the offset is outside the log, 6 that the broker
        is not its leader.
    high_watermark: Offset before which every record is on all in-sync replicas; consumers read no further. -1 with
        an error.
    last_stable_offset: Offset of the first record of a transaction that is still open; with read_committed nothing
        from there on is sent. -1 if not known.
    log_start_offset: First offset that is still in the log; -1 if it is not known.
    diverging_epoch: Set when the follower's log is not a prefix of the leader's: the newest epoch up to which both
        may agree.
    current_leader: Set when the asked broker is not the leader, or the epoch is out of date, and it knows who leads
        the partition now.
    snapshot_id: Set by a KRaft leader whose log no longer reaches back far enough: the snapshot to fetch instead.
    aborted_transactions: Aborted transactions with records in this answer, which a read_committed consumer drops;
        null for other readers.
    preferred_read_replica: Broker that the consumer should read from next time, as it is nearer; -1 to stay here.
    records: Record batches, or a message set in versions 0-1. The last one may be cut off. Empty or null if there
        was nothing to read.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    high_watermark: int = 0  # int64, versions 0+
    last_stable_offset: int = -1  # int64, versions 4+, ignorable
    log_start_offset: int = -1  # int64, versions 5+, ignorable
    diverging_epoch: EpochEndOffset = field(default_factory=EpochEndOffset)  # EpochEndOffset, versions 12+, tag 0
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)  # LeaderIdAndEpoch, versions 12+, tag 1
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)  # SnapshotId, versions 12+, tag 2
    # []AbortedTransaction, versions 4+, nullable, ignorable
    aborted_transactions: list[AbortedTransaction] | None = field(default_factory=list)
    preferred_read_replica: int = -1  # int32, versions 11+
    records: Records | None = None  # records, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionData], out: Writer, version: int) -> None:
        flexible = version >= 12
        buffer = out.buffer
        for self in structs:
            if version < 12 and self.diverging_epoch._is_set():
                raise absent("diverging_epoch")
            if version < 12 and self.current_leader._is_set():
                raise absent("current_leader")
            if version < 12 and self.snapshot_id._is_set():
                raise absent("snapshot_id")
            if version < 11 and self.preferred_read_replica != -1:
                raise absent("preferred_read_replica")
            if version >= 5:
                buffer += _IHQQQ.pack(
                    self.partition_index,
                    self.error_code,
                    self.high_watermark,
                    self.last_stable_offset,
                    self.log_start_offset,
                )
            elif version >= 4:
                buffer += _IHQQ.pack(
                    self.partition_index,
                    self.error_code,
                    self.high_watermark,
                    self.last_stable_offset,
                )
            else:
                buffer += _IHQ.pack(self.partition_index, self.error_code, self.high_watermark)
            if version >= 4:
                write_structs(out, self.aborted_transactions, flexible, AbortedTransaction._write_each, version)
            if version >= 11:
                buffer += _I.pack(self.preferred_read_replica)
            write_nullable_records(out, self.records, flexible)
            if version >= 12:
                tags = self._tags(version)
                if tags or self.unknown_tags:
                    write_tags(buffer, tags, self.unknown_tags)
                else:
                    buffer.append(0)
            elif self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionData], int]:
        flexible = version >= 12
        found: list[PartitionData] = []
        for _ in range(count):
            self = PartitionData()
            if version >= 5:
                (
                    self.partition_index,
                    self.error_code,
                    self.high_watermark,
                    self.last_stable_offset,
                    self.log_start_offset,
                ) = _IHQQQ.unpack_from(data, at)
                at += 30
            elif version >= 4:
                (
                    self.partition_index,
                    self.error_code,
                    self.high_watermark,
                    self.last_stable_offset,
                ) = _IHQQ.unpack_from(data, at)
                at += 22
                self.log_start_offset = -1
            else:
                self.partition_index, self.error_code, self.high_watermark = _IHQ.unpack_from(data, at)
                at += 14
                self.last_stable_offset = -1
                self.log_start_offset = -1
            self.diverging_epoch = EpochEndOffset()
            self.current_leader = LeaderIdAndEpoch()
            self.snapshot_id = SnapshotId()
            if version >= 4:
                self.aborted_transactions, at = read_nullable_rows(
                    data,
                    at,
                    flexible,
                    16,
                    "aborted_transactions",
                    AbortedTransaction,
                    version,
                )
            else:
                self.aborted_transactions = []
            if version >= 11:
                (self.preferred_read_replica,) = _I.unpack_from(data, at)
                at += 4
            else:
                self.preferred_read_replica = -1
            self.records, at = read_nullable_view(data, at, flexible, "records")
            if version >= 12:
                if data[at]:
                    tags, at = read_tags(data, at)
                    if 0 in tags:
                        part = tags.pop(0)
                        self.diverging_epoch = whole(part, EpochEndOffset._read(part, 0, version), "diverging_epoch")
                    if 1 in tags:
                        part = tags.pop(1)
                        self.current_leader = whole(part, LeaderIdAndEpoch._read(part, 0, version), "current_leader")
                    if 2 in tags:
                        part = tags.pop(2)
                        self.snapshot_id = whole(part, SnapshotId._read(part, 0, version), "snapshot_id")
                    self.unknown_tags = unknown(tags)
                else:
                    self.unknown_tags, at = (), at + 1
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if version >= 12 and self.diverging_epoch._is_set():
            part = Writer()
            self.diverging_epoch._write(part, version)
            found.append((0, bytes(part)))
        if version >= 12 and self.current_leader._is_set():
            part = Writer()
            self.current_leader._write(part, version)
            found.append((1, bytes(part)))
        if version >= 12 and self.snapshot_id._is_set():
            part = Writer()
            self.snapshot_id._write(part, version)
            found.append((2, bytes(part)))
        return found


class FetchableTopicResponse(Struct, gc=False, kw_only=True):
    """One entry per topic. In an incremental fetch only partitions with news are listed.

    topic: Name of the topic, unique in the cluster.
    topic_id: Id of the topic, which replaces its name from version 13 on.
    partitions: Results by partition.
    """

    topic: str = ""  # string, versions 0-12, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 13+, ignorable
    partitions: list[PartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[FetchableTopicResponse], out: Writer, version: int) -> None:
        flexible = version >= 12
        buffer = out.buffer
        for self in structs:
            if version <= 12:
                write_string(buffer, self.topic, flexible, "topic")
            if version >= 13:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, flexible, PartitionData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[FetchableTopicResponse], int]:
        flexible = version >= 12
        found: list[FetchableTopicResponse] = []
        for _ in range(count):
            self = FetchableTopicResponse()
            if version >= 13:
                self.topic = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.topic, at = read_string(data, at, flexible, "topic")
                self.topic_id = NULL_UUID
            self.partitions, at = read_structs(data, at, flexible, 18, "partitions", PartitionData._read_each, version)
            if version >= 12:
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

    node_id: int = 0  # int32, versions 16+
    host: str = ""  # string, versions 16+
    port: int = 0  # int32, versions 16+
    rack: str | None = None  # string, versions 16+, nullable
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


class FetchResponse(Message, gc=False, kw_only=True):
    """The requested records, as batches unchanged from the log, with each partition's offsets and errors.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. Up to version 7 the
        broker held this response back for that long; from version 8 on it answers at once and the client does the
        waiting.
    error_code: Error of the request or its fetch session; 0 means none. 70 is an unknown session and 71 a request
        out of turn; the reader then starts a new session.
    session_id: Fetch session to name in the next request; 0 if the broker keeps none.
    responses: One entry per topic. In an incremental fetch only partitions with news are listed.
    node_endpoints: Addresses of the leaders named by the partitions above, so that the client can go there without
        asking for metadata first.
    """

    API_KEY = 1
    VALID_VERSIONS = range(19)
    FLEXIBLE_VERSIONS = range(12, 19)

    throttle_time_ms: int = 0  # int32, versions 1+, ignorable
    error_code: int = 0  # int16, versions 7+, ignorable
    session_id: int = 0  # int32, versions 7+
    responses: list[FetchableTopicResponse] = field(default_factory=list)  # []FetchableTopicResponse, versions 0+
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # []NodeEndpoint, versions 16+, tag 0
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 12
        buffer = out.buffer
        if version < 7 and self.session_id != 0:
            raise absent("session_id")
        if version < 16 and len(self.node_endpoints) > 0:
            raise absent("node_endpoints")
        if version >= 7:
            buffer += _IHI.pack(self.throttle_time_ms, self.error_code, self.session_id)
        elif version >= 1:
            buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.responses, flexible, FetchableTopicResponse._write_each, version)
        if version >= 16:
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)
        elif version >= 12:
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)
        elif self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[FetchResponse, int]:
        self = FetchResponse()
        flexible = version >= 12
        if version >= 7:
            self.throttle_time_ms, self.error_code, self.session_id = _IHI.unpack_from(data, at)
            at += 10
        elif version >= 1:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
            self.error_code = 0
            self.session_id = 0
        else:
            self.throttle_time_ms = 0
            self.error_code = 0
            self.session_id = 0
        self.responses, at = read_structs(
            data,
            at,
            flexible,
            3,
            "responses",
            FetchableTopicResponse._read_each,
            version,
        )
        self.node_endpoints = []
        if version >= 16:
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
        elif version >= 12:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        flexible = version >= 12
        found: list[tuple[int, bytes]] = []
        if version >= 16 and len(self.node_endpoints) > 0:
            part = Writer()
            write_structs(part, self.node_endpoints, flexible, NodeEndpoint._write_each, version)
            found.append((0, bytes(part)))
        return found
