"""Generated from StopReplicaRequest.json and StopReplicaResponse.json. Do not edit: the schema compiler makes it.

StopReplicaRequest: versions 0-4, flexible 2+.
StopReplicaResponse: versions 0-4, flexible 2+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, read_rows

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_IIQ = struct.Struct(">iiq")
_IIQT = struct.Struct(">iiq?")
_IIT = struct.Struct(">ii?")
_ITIQ = struct.Struct(">i?iq")
_ROWS_IIT_COMPACT = Rows("ii?", flexible=True)


class StopReplicaPartitionV0(Struct, gc=False, kw_only=True):
    """Replicas to stop, with the topic's name in each entry.

    topic_name: Topic by its name, which is unique in the cluster.
    partition_index: Number of the partition within its topic, counted from 0.
    """

    topic_name: str = ""  # string, versions 0
    partition_index: int = 0  # int32, versions 0

    @staticmethod
    def _write_each(structs: Sequence[StopReplicaPartitionV0], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, False, "topic_name")
            buffer += _I.pack(self.partition_index)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[StopReplicaPartitionV0], int]:
        found: list[StopReplicaPartitionV0] = []
        for _ in range(count):
            self = StopReplicaPartitionV0()
            self.topic_name, at = read_string(data, at, False, "topic_name")
            (self.partition_index,) = _I.unpack_from(data, at)
            at += 4
            found.append(self)
        return found, at


class StopReplicaTopicV1(Struct, gc=False, kw_only=True):
    """Replicas to stop, by topic.

    name: Name of the topic.
    partition_indexes: Numbers of the partitions.
    """

    name: str = ""  # string, versions 1-2
    partition_indexes: tuple[int, ...] = ()  # []int32, versions 1-2
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[StopReplicaTopicV1], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_numbers(buffer, self.partition_indexes, flexible, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[StopReplicaTopicV1], int]:
        flexible = version >= 2
        found: list[StopReplicaTopicV1] = []
        for _ in range(count):
            self = StopReplicaTopicV1()
            self.name, at = read_string(data, at, flexible, "name")
            self.partition_indexes, at = read_numbers(data, at, flexible, "i", "partition_indexes")
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class StopReplicaPartitionState(Struct, gc=False, kw_only=True):
    """Replicas to stop.

    partition_index: Number of the partition within its topic, counted from 0.
    leader_epoch: Leader epoch of the partition, to notice requests that come late; -1 skips the check, -2 means that
        the topic is being deleted.
    delete_partition: True if the log of this replica is to be deleted too.
    """

    partition_index: int = 0  # int32, versions 3+
    leader_epoch: int = -1  # int32, versions 3+
    delete_partition: bool = False  # bool, versions 3+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[StopReplicaPartitionState], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IIT.pack(self.partition_index, self.leader_epoch, self.delete_partition)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[StopReplicaPartitionState], int]:
        found: list[StopReplicaPartitionState] = []
        for _ in range(count):
            self = StopReplicaPartitionState()
            self.partition_index, self.leader_epoch, self.delete_partition = _IIT.unpack_from(data, at)
            at += 9
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[StopReplicaPartitionState], int]:
        found: list[StopReplicaPartitionState] = []
        rows, at = _ROWS_IIT_COMPACT.read(data, at, most)
        for row in rows:
            partition_index, leader_epoch, delete_partition = row
            self = StopReplicaPartitionState(
                partition_index=partition_index,
                leader_epoch=leader_epoch,
                delete_partition=delete_partition,
            )
            found.append(self)
        return found, at


class StopReplicaTopicState(Struct, gc=False, kw_only=True):
    """Replicas to stop, by topic, each with its own epoch and mark.

    topic_name: Topic by its name, which is unique in the cluster.
    partition_states: Replicas to stop.
    """

    topic_name: str = ""  # string, versions 3+
    # []StopReplicaPartitionState, versions 3+
    partition_states: list[StopReplicaPartitionState] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[StopReplicaTopicState], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, True, "topic_name")
            write_structs(out, self.partition_states, True, StopReplicaPartitionState._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[StopReplicaTopicState], int]:
        found: list[StopReplicaTopicState] = []
        for _ in range(count):
            self = StopReplicaTopicState()
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.partition_states, at = read_rows(
                data,
                at,
                True,
                10,
                "partition_states",
                StopReplicaPartitionState,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class StopReplicaRequest(Message, gc=False, kw_only=True):
    """Sent by the controller: stop replicas, and delete their logs if so marked. Clusters with ZooKeeper only; gone in
    Kafka 4.

    controller_id: Broker id of the controller that sends this.
    is_kraft_controller: True if the controller is a KRaft one, during a migration away from ZooKeeper.
    controller_epoch: Epoch of the controller; brokers refuse an epoch lower than one they have seen (error 11).
    broker_epoch: Epoch that the broker got when it registered, so that requests from before its restart are refused;
        -1 skips the check.
    delete_partitions: True if the logs of all these replicas are to be deleted too.
    ungrouped_partitions: Replicas to stop, with the topic's name in each entry.
    topics: Replicas to stop, by topic.
    topic_states: Replicas to stop, by topic, each with its own epoch and mark.
    """

    API_KEY = 5
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(2, 5)

    controller_id: int = 0  # int32, versions 0+
    is_kraft_controller: bool = False  # bool, versions 4+
    controller_epoch: int = 0  # int32, versions 0+
    broker_epoch: int = -1  # int64, versions 1+, ignorable
    delete_partitions: bool = False  # bool, versions 0-2
    # []StopReplicaPartitionV0, versions 0
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(default_factory=list)
    topics: list[StopReplicaTopicV1] = field(default_factory=list)  # []StopReplicaTopicV1, versions 1-2
    topic_states: list[StopReplicaTopicState] = field(default_factory=list)  # []StopReplicaTopicState, versions 3+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        if version < 4 and self.is_kraft_controller:
            raise absent("is_kraft_controller")
        if version > 2 and self.delete_partitions:
            raise absent("delete_partitions")
        if version > 0 and len(self.ungrouped_partitions) > 0:
            raise absent("ungrouped_partitions")
        if not 1 <= version <= 2 and len(self.topics) > 0:
            raise absent("topics")
        if version < 3 and len(self.topic_states) > 0:
            raise absent("topic_states")
        if version >= 4:
            buffer += _ITIQ.pack(self.controller_id, self.is_kraft_controller, self.controller_epoch, self.broker_epoch)
        elif version >= 3:
            buffer += _IIQ.pack(self.controller_id, self.controller_epoch, self.broker_epoch)
        elif version >= 1:
            buffer += _IIQT.pack(self.controller_id, self.controller_epoch, self.broker_epoch, self.delete_partitions)
        else:
            buffer += _IIT.pack(self.controller_id, self.controller_epoch, self.delete_partitions)
        if version <= 0:
            write_structs(out, self.ungrouped_partitions, flexible, StopReplicaPartitionV0._write_each, version)
        if 1 <= version <= 2:
            write_structs(out, self.topics, flexible, StopReplicaTopicV1._write_each, version)
        if version >= 3:
            write_structs(out, self.topic_states, flexible, StopReplicaTopicState._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StopReplicaRequest, int]:
        self = StopReplicaRequest()
        flexible = version >= 2
        if version >= 4:
            (
                self.controller_id,
                self.is_kraft_controller,
                self.controller_epoch,
                self.broker_epoch,
            ) = _ITIQ.unpack_from(data, at)
            at += 17
            self.delete_partitions = False
        elif version >= 3:
            self.controller_id, self.controller_epoch, self.broker_epoch = _IIQ.unpack_from(data, at)
            at += 16
            self.is_kraft_controller = False
            self.delete_partitions = False
        elif version >= 1:
            (
                self.controller_id,
                self.controller_epoch,
                self.broker_epoch,
                self.delete_partitions,
            ) = _IIQT.unpack_from(data, at)
            at += 17
            self.is_kraft_controller = False
        else:
            self.controller_id, self.controller_epoch, self.delete_partitions = _IIT.unpack_from(data, at)
            at += 9
            self.is_kraft_controller = False
            self.broker_epoch = -1
        if version >= 1:
            self.ungrouped_partitions = []
        else:
            self.ungrouped_partitions, at = read_structs(
                data,
                at,
                flexible,
                6,
                "ungrouped_partitions",
                StopReplicaPartitionV0._read_each,
                version,
            )
        if version >= 3:
            self.topics = []
        elif version >= 1:
            self.topics, at = read_structs(data, at, flexible, 3, "topics", StopReplicaTopicV1._read_each, version)
        else:
            self.topics = []
        if version >= 3:
            self.topic_states, at = read_structs(
                data,
                at,
                flexible,
                3,
                "topic_states",
                StopReplicaTopicState._read_each,
                version,
            )
        else:
            self.topic_states = []
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class StopReplicaPartitionError(Struct, gc=False, kw_only=True):
    """Result for each partition.

    topic_name: Topic by its name, which is unique in the cluster.
    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    """

    topic_name: str = ""  # string, versions 0+
    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[StopReplicaPartitionError], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, flexible, "topic_name")
            buffer += _IH.pack(self.partition_index, self.error_code)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[StopReplicaPartitionError], int]:
        flexible = version >= 2
        found: list[StopReplicaPartitionError] = []
        for _ in range(count):
            self = StopReplicaPartitionError()
            self.topic_name, at = read_string(data, at, flexible, "topic_name")
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class StopReplicaResponse(Message, gc=False, kw_only=True):
    """Which replicas were stopped.

    error_code: Error of the whole request; 0 means none. 11 says that the controller is out of date, 77 that the
        broker has restarted since.
    partition_errors: Result for each partition.
    """

    API_KEY = 5
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(2, 5)

    error_code: int = 0  # int16, versions 0+
    # []StopReplicaPartitionError, versions 0+
    partition_errors: list[StopReplicaPartitionError] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        buffer += _H.pack(self.error_code)
        write_structs(out, self.partition_errors, flexible, StopReplicaPartitionError._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StopReplicaResponse, int]:
        self = StopReplicaResponse()
        flexible = version >= 2
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        self.partition_errors, at = read_structs(
            data,
            at,
            flexible,
            8,
            "partition_errors",
            StopReplicaPartitionError._read_each,
            version,
        )
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
