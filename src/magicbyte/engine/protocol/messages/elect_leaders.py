"""Generated from ElectLeadersRequest.json and ElectLeadersResponse.json. Do not edit: the schema compiler makes it.

ElectLeadersRequest: versions 0-2, flexible 2+.
ElectLeadersResponse: versions 0-2, flexible 2+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_nullable_string,
    read_nullable_structs,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_nullable_string,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_B = struct.Struct(">b")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")


class TopicPartitions(Struct, gc=False, kw_only=True):
    """Partitions to elect leaders for; null means all.

    topic: Name of the topic, unique in the cluster.
    partitions: Numbers of the partitions.
    """

    topic: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicPartitions], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic, flexible, "topic")
            write_numbers(buffer, self.partitions, flexible, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicPartitions], int]:
        flexible = version >= 2
        found: list[TopicPartitions] = []
        for _ in range(count):
            self = TopicPartitions()
            self.topic, at = read_string(data, at, flexible, "topic")
            self.partitions, at = read_numbers(data, at, flexible, "i", "partitions")
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class ElectLeadersRequest(Message, gc=False, kw_only=True):
    """Has new leaders elected: the preferred ones, or for partitions without a leader any replica that is alive, even
    if records get lost.

    election_type: 0 elects the preferred replica, 1 any live replica if none is in sync (unclean). Version 0 knows
        only 0.
    topic_partitions: Partitions to elect leaders for; null means all.
    timeout_ms: Milliseconds to wait for the elections to be over.
    """

    API_KEY = 43
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(2, 3)

    election_type: int = 0  # int8, versions 1+
    # []TopicPartitions, versions 0+, nullable
    topic_partitions: list[TopicPartitions] | None = field(default_factory=list)
    timeout_ms: int = 60000  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        if version < 1 and self.election_type != 0:
            raise absent("election_type")
        if version >= 1:
            buffer += _B.pack(self.election_type)
        write_structs(out, self.topic_partitions, flexible, TopicPartitions._write_each, version)
        buffer += _I.pack(self.timeout_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ElectLeadersRequest, int]:
        self = ElectLeadersRequest()
        flexible = version >= 2
        if version >= 1:
            (self.election_type,) = _B.unpack_from(data, at)
            at += 1
        else:
            self.election_type = 0
        self.topic_partitions, at = read_nullable_structs(
            data,
            at,
            flexible,
            3,
            "topic_partitions",
            TopicPartitions._read_each,
            version,
        )
        (self.timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class PartitionResult(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_id: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means elected. 84 says that there was no need, 80 and 83 that no suitable
        replica is alive.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    partition_id: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionResult], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition_id, self.error_code)
            write_nullable_string(buffer, self.error_message, flexible, "error_message")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionResult], int]:
        flexible = version >= 2
        found: list[PartitionResult] = []
        for _ in range(count):
            self = PartitionResult()
            self.partition_id, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class ReplicaElectionResult(Struct, gc=False, kw_only=True):
    """Results by topic; for a request for all partitions, only of those that needed an election.

    topic: Name of the topic, unique in the cluster.
    partition_result: Results by partition.
    """

    topic: str = ""  # string, versions 0+
    partition_result: list[PartitionResult] = field(default_factory=list)  # []PartitionResult, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ReplicaElectionResult], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic, flexible, "topic")
            write_structs(out, self.partition_result, flexible, PartitionResult._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ReplicaElectionResult], int]:
        flexible = version >= 2
        found: list[ReplicaElectionResult] = []
        for _ in range(count):
            self = ReplicaElectionResult()
            self.topic, at = read_string(data, at, flexible, "topic")
            self.partition_result, at = read_structs(
                data,
                at,
                flexible,
                8,
                "partition_result",
                PartitionResult._read_each,
                version,
            )
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class ElectLeadersResponse(Message, gc=False, kw_only=True):
    """Result of each election.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    replica_election_results: Results by topic; for a request for all partitions, only of those that needed an
        election.
    """

    API_KEY = 43
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(2, 3)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 1+
    # []ReplicaElectionResult, versions 0+
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        if version < 1 and self.error_code != 0:
            raise absent("error_code")
        if version >= 1:
            buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        else:
            buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.replica_election_results, flexible, ReplicaElectionResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ElectLeadersResponse, int]:
        self = ElectLeadersResponse()
        flexible = version >= 2
        if version >= 1:
            self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
            self.error_code = 0
        self.replica_election_results, at = read_structs(
            data,
            at,
            flexible,
            3,
            "replica_election_results",
            ReplicaElectionResult._read_each,
            version,
        )
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
