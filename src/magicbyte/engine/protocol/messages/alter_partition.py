"""Generated from AlterPartitionRequest.json and AlterPartitionResponse.json. Do not edit: the schema compiler makes it.

AlterPartitionRequest: versions 0-3, flexible 0+.
AlterPartitionResponse: versions 0-3, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    absent,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, Shapes, read_rows

_BI = struct.Struct(">bi")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_IHII = struct.Struct(">ihii")
_II = struct.Struct(">ii")
_IQ = struct.Struct(">iq")
_ROWS_IHII_IBI_COMPACT = Rows("ihii[ibi", flexible=True)
_ROWS_IHII_II_COMPACT = Rows("ihii[ii", flexible=True)
_ROWS_II_IBI_COMPACT = Rows("ii[ibi", flexible=True)
_ROWS_II_II_COMPACT = Rows("ii[ii", flexible=True)
_ROWS_IQ_COMPACT = Rows("iq", flexible=True)
_SHAPES_IHII_IBI_COMPACT = Shapes("ihii[ibi", flexible=True)
_SHAPES_IHII_II_COMPACT = Shapes("ihii[ii", flexible=True)
_SHAPES_II_I_COMPACT = Shapes("ii[i", flexible=True)


class BrokerState(Struct, gc=False, kw_only=True):
    """The in-sync replicas from now on, each with the epoch of its broker, so that a replica that restarted meanwhile
    does not slip in.

    broker_id: Broker of the replica.
    broker_epoch: Epoch of that broker as its last fetch gave it; -1 if it is not known.
    """

    broker_id: int = 0  # int32, versions 3+
    broker_epoch: int = -1  # int64, versions 3+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[BrokerState], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _IQ.pack(self.broker_id, self.broker_epoch)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[BrokerState], int]:
        found: list[BrokerState] = []
        for _ in range(count):
            self = BrokerState()
            self.broker_id, self.broker_epoch = _IQ.unpack_from(data, at)
            at += 12
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[BrokerState], int]:
        found: list[BrokerState] = []
        rows, at = _ROWS_IQ_COMPACT.read(data, at, most)
        for row in rows:
            broker_id, broker_epoch = row
            self = BrokerState(broker_id=broker_id, broker_epoch=broker_epoch)
            found.append(self)
        return found, at


class AlterPartitionRequestPartitionData(Struct, gc=False, kw_only=True):
    """Changes by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    leader_epoch: Epoch of the asker's leadership; the controller refuses an older one.
    new_isr: The in-sync replicas from now on.
    new_isr_with_epochs: The in-sync replicas from now on, each with the epoch of its broker, so that a replica that
        restarted meanwhile does not slip in.
    leader_recovery_state: 0 means in order; 1 that the leader was elected uncleanly and is still recovering from
        that.
    partition_epoch: Version of the partition's state that the change starts from (with ZooKeeper the version of its
        znode); the controller refuses an older one.
    """

    partition_index: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    new_isr: tuple[int, ...] = ()  # []int32, versions 0-2
    new_isr_with_epochs: list[BrokerState] = field(default_factory=list)  # []BrokerState, versions 3+
    leader_recovery_state: int = 0  # int8, versions 1+
    partition_epoch: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterPartitionRequestPartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        lengths: tuple[int, ...]
        for self in structs:
            if version > 2 and len(self.new_isr) > 0:
                raise absent("new_isr")
            if version < 3 and len(self.new_isr_with_epochs) > 0:
                raise absent("new_isr_with_epochs")
            if version < 1 and self.leader_recovery_state != 0:
                raise absent("leader_recovery_state")
            if version >= 3:
                buffer += _II.pack(self.partition_index, self.leader_epoch)
            else:
                lengths = (len(self.new_isr),)
                buffer += _SHAPES_II_I_COMPACT[lengths](
                    self.partition_index,
                    self.leader_epoch,
                    lengths[0] + 1,
                    *self.new_isr,
                )
            if version >= 3:
                write_structs(out, self.new_isr_with_epochs, True, BrokerState._write_each, version)
            if version >= 1:
                buffer += _BI.pack(self.leader_recovery_state, self.partition_epoch)
            else:
                buffer += _I.pack(self.partition_epoch)
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
    ) -> tuple[list[AlterPartitionRequestPartitionData], int]:
        found: list[AlterPartitionRequestPartitionData] = []
        for _ in range(count):
            self = AlterPartitionRequestPartitionData()
            if version >= 3:
                self.partition_index, self.leader_epoch = _II.unpack_from(data, at)
                at += 8
                self.new_isr = ()
                self.new_isr_with_epochs, at = read_rows(
                    data,
                    at,
                    True,
                    13,
                    "new_isr_with_epochs",
                    BrokerState,
                    version,
                )
            else:
                self.partition_index, self.leader_epoch = _II.unpack_from(data, at)
                at += 8
                self.new_isr, at = read_numbers(data, at, True, "i", "new_isr")
                self.new_isr_with_epochs = []
            if version >= 1:
                self.leader_recovery_state, self.partition_epoch = _BI.unpack_from(data, at)
                at += 5
            else:
                (self.partition_epoch,) = _I.unpack_from(data, at)
                at += 4
                self.leader_recovery_state = 0
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(
        data: memoryview,
        at: int,
        most: int,
        version: int,
    ) -> tuple[list[AlterPartitionRequestPartitionData], int]:
        found: list[AlterPartitionRequestPartitionData] = []
        if 1 <= version <= 2:
            rows, at = _ROWS_II_IBI_COMPACT.read(data, at, most)
            for row in rows:
                (partition_index, leader_epoch, leader_recovery_state, partition_epoch), new_isr = row
                self = AlterPartitionRequestPartitionData(
                    partition_index=partition_index,
                    leader_epoch=leader_epoch,
                    new_isr=new_isr,
                    leader_recovery_state=leader_recovery_state,
                    partition_epoch=partition_epoch,
                )
                found.append(self)
        elif version <= 0:
            rows, at = _ROWS_II_II_COMPACT.read(data, at, most)
            for row in rows:
                (partition_index, leader_epoch, partition_epoch), new_isr = row
                self = AlterPartitionRequestPartitionData(
                    partition_index=partition_index,
                    leader_epoch=leader_epoch,
                    new_isr=new_isr,
                    partition_epoch=partition_epoch,
                )
                found.append(self)
        return found, at


class AlterPartitionRequestTopicData(Struct, gc=False, kw_only=True):
    """Changes by topic.

    topic_name: Topic by its name, which is unique in the cluster.
    topic_id: Id of the topic, which replaces its name from version 2 on.
    partitions: Changes by partition.
    """

    topic_name: str = ""  # string, versions 0-1, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 2+, ignorable
    partitions: list[AlterPartitionRequestPartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterPartitionRequestTopicData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version <= 1:
                write_string(buffer, self.topic_name, True, "topic_name")
            if version >= 2:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, AlterPartitionRequestPartitionData._write_each, version)
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
    ) -> tuple[list[AlterPartitionRequestTopicData], int]:
        found: list[AlterPartitionRequestTopicData] = []
        for _ in range(count):
            self = AlterPartitionRequestTopicData()
            if version >= 2:
                self.topic_name = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.topic_name, at = read_string(data, at, True, "topic_name")
                self.topic_id = NULL_UUID
            if version >= 3:
                self.partitions, at = read_structs(
                    data,
                    at,
                    True,
                    14,
                    "partitions",
                    AlterPartitionRequestPartitionData._read_each,
                    version,
                )
            else:
                self.partitions, at = read_rows(
                    data,
                    at,
                    True,
                    14,
                    "partitions",
                    AlterPartitionRequestPartitionData,
                    version,
                )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AlterPartitionRequest(Message, gc=False, kw_only=True):
    """Sent by a partition's leader to the controller: the in-sync replicas changed. Takes the place of writing to
    ZooKeeper (2.7 and later).

    broker_id: Broker that asks.
    broker_epoch: Epoch of that broker's registration; -1 if it has none.
    topics: Changes by topic.
    """

    API_KEY = 56
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(4)

    broker_id: int = 0  # int32, versions 0+
    broker_epoch: int = -1  # int64, versions 0+
    topics: list[AlterPartitionRequestTopicData] = field(default_factory=list)  # []TopicData, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IQ.pack(self.broker_id, self.broker_epoch)
        write_structs(out, self.topics, True, AlterPartitionRequestTopicData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterPartitionRequest, int]:
        self = AlterPartitionRequest()
        self.broker_id, self.broker_epoch = _IQ.unpack_from(data, at)
        at += 12
        self.topics, at = read_structs(data, at, True, 3, "topics", AlterPartitionRequestTopicData._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class AlterPartitionResponsePartitionData(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means changed. 95 says that the version given is out of date, 74 that the
        leadership is, 107 that a replica is not fit to join.
    leader_id: Broker that leads the partition.
    leader_epoch: Number of the leadership.
    isr: In-sync replicas.
    leader_recovery_state: 0 means in order; 1 that the leader was elected uncleanly and is still recovering from
        that.
    partition_epoch: Version of the partition's state, from which the next change starts.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    leader_id: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    isr: tuple[int, ...] = ()  # []int32, versions 0+
    leader_recovery_state: int = 0  # int8, versions 1+, ignorable
    partition_epoch: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterPartitionResponsePartitionData], out: Writer, version: int) -> None:
        buffer = out.buffer
        lengths: tuple[int, ...]
        for self in structs:
            if version >= 1:
                lengths = (len(self.isr),)
                buffer += _SHAPES_IHII_IBI_COMPACT[lengths](
                    self.partition_index,
                    self.error_code,
                    self.leader_id,
                    self.leader_epoch,
                    lengths[0] + 1,
                    *self.isr,
                    self.leader_recovery_state,
                    self.partition_epoch,
                )
            else:
                lengths = (len(self.isr),)
                buffer += _SHAPES_IHII_II_COMPACT[lengths](
                    self.partition_index,
                    self.error_code,
                    self.leader_id,
                    self.leader_epoch,
                    lengths[0] + 1,
                    *self.isr,
                    self.partition_epoch,
                )
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
    ) -> tuple[list[AlterPartitionResponsePartitionData], int]:
        found: list[AlterPartitionResponsePartitionData] = []
        for _ in range(count):
            self = AlterPartitionResponsePartitionData()
            if version >= 1:
                self.partition_index, self.error_code, self.leader_id, self.leader_epoch = _IHII.unpack_from(data, at)
                at += 14
                self.isr, at = read_numbers(data, at, True, "i", "isr")
                self.leader_recovery_state, self.partition_epoch = _BI.unpack_from(data, at)
                at += 5
            else:
                self.partition_index, self.error_code, self.leader_id, self.leader_epoch = _IHII.unpack_from(data, at)
                at += 14
                self.isr, at = read_numbers(data, at, True, "i", "isr")
                (self.partition_epoch,) = _I.unpack_from(data, at)
                at += 4
                self.leader_recovery_state = 0
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(
        data: memoryview,
        at: int,
        most: int,
        version: int,
    ) -> tuple[list[AlterPartitionResponsePartitionData], int]:
        found: list[AlterPartitionResponsePartitionData] = []
        if version >= 1:
            rows, at = _ROWS_IHII_IBI_COMPACT.read(data, at, most)
            for row in rows:
                (
                    (partition_index, error_code, leader_id, leader_epoch, leader_recovery_state, partition_epoch),
                    isr,
                ) = row
                self = AlterPartitionResponsePartitionData(
                    partition_index=partition_index,
                    error_code=error_code,
                    leader_id=leader_id,
                    leader_epoch=leader_epoch,
                    isr=isr,
                    leader_recovery_state=leader_recovery_state,
                    partition_epoch=partition_epoch,
                )
                found.append(self)
        else:
            rows, at = _ROWS_IHII_II_COMPACT.read(data, at, most)
            for row in rows:
                (partition_index, error_code, leader_id, leader_epoch, partition_epoch), isr = row
                self = AlterPartitionResponsePartitionData(
                    partition_index=partition_index,
                    error_code=error_code,
                    leader_id=leader_id,
                    leader_epoch=leader_epoch,
                    isr=isr,
                    partition_epoch=partition_epoch,
                )
                found.append(self)
        return found, at


class AlterPartitionResponseTopicData(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_name: Topic by its name, which is unique in the cluster.
    topic_id: Id of the topic, which replaces its name from version 2 on.
    partitions: Results by partition.
    """

    topic_name: str = ""  # string, versions 0-1, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 2+, ignorable
    partitions: list[AlterPartitionResponsePartitionData] = field(default_factory=list)  # []PartitionData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterPartitionResponseTopicData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version <= 1:
                write_string(buffer, self.topic_name, True, "topic_name")
            if version >= 2:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partitions, True, AlterPartitionResponsePartitionData._write_each, version)
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
    ) -> tuple[list[AlterPartitionResponseTopicData], int]:
        found: list[AlterPartitionResponseTopicData] = []
        for _ in range(count):
            self = AlterPartitionResponseTopicData()
            if version >= 2:
                self.topic_name = ""
                self.topic_id, at = read_uuid(data, at)
            else:
                self.topic_name, at = read_string(data, at, True, "topic_name")
                self.topic_id = NULL_UUID
            self.partitions, at = read_rows(
                data,
                at,
                True,
                20,
                "partitions",
                AlterPartitionResponsePartitionData,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AlterPartitionResponse(Message, gc=False, kw_only=True):
    """The state of the partitions after the changes.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    topics: Results by topic.
    """

    API_KEY = 56
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(4)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    topics: list[AlterPartitionResponseTopicData] = field(default_factory=list)  # []TopicData, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_structs(out, self.topics, True, AlterPartitionResponseTopicData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterPartitionResponse, int]:
        self = AlterPartitionResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.topics, at = read_structs(data, at, True, 3, "topics", AlterPartitionResponseTopicData._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
