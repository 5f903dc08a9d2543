"""Generated from LeaderAndIsrRequest.json and LeaderAndIsrResponse.json. Do not edit: the schema compiler makes it.

LeaderAndIsrRequest: versions 0-7, flexible 4+.
LeaderAndIsrResponse: versions 0-7, flexible 4+.
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

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_II = struct.Struct(">ii")
_IIII = struct.Struct(">iiii")
_IIQ = struct.Struct(">iiq")
_IIQB = struct.Struct(">iiqb")
_ITIQB = struct.Struct(">i?iqb")
_ROWS_IH_COMPACT = Rows("ih", flexible=True)
_ROWS_IIII_II_IT_CLASSIC = Rows("iiii[ii[i?", flexible=False)
_ROWS_IIII_II_I_I_ITB_COMPACT = Rows("iiii[ii[i[i[i?b", flexible=True)
_ROWS_IIII_II_I_I_IT_CLASSIC = Rows("iiii[ii[i[i[i?", flexible=False)
_ROWS_IIII_II_I_I_IT_COMPACT = Rows("iiii[ii[i[i[i?", flexible=True)
_SHAPES_IIII_II_IT_CLASSIC = Shapes("iiii[ii[i?", flexible=False)
_SHAPES_IIII_II_I_CLASSIC = Shapes("iiii[ii[i", flexible=False)
_SHAPES_IIII_II_I_I_ITB_COMPACT = Shapes("iiii[ii[i[i[i?b", flexible=True)
_SHAPES_IIII_II_I_I_IT_CLASSIC = Shapes("iiii[ii[i[i[i?", flexible=False)
_SHAPES_IIII_II_I_I_IT_COMPACT = Shapes("iiii[ii[i[i[i?", flexible=True)
_T = struct.Struct(">?")
_TB = struct.Struct(">?b")


class LeaderAndIsrPartitionState(Struct, gc=False, kw_only=True):
    """Leader and followers of one partition.

    topic_name: Topic by its name, which is unique in the cluster.
    partition_index: Number of the partition within its topic, counted from 0.
    controller_epoch: Epoch of the controller that last changed this state.
    leader: Broker that leads the partition; -1 if there is none.
    leader_epoch: Number of the leadership, one higher with each change of leader; brokers ignore one that is not
        higher than theirs.
    isr: In-sync replicas.
    partition_epoch: Version of the partition's state: in ZooKeeper the version of its znode, which the leader needs
        to change the in-sync replicas.
    replicas: Brokers that hold a replica, the preferred leader first.
    adding_replicas: Replicas that a running reassignment is adding; empty if there is none.
    removing_replicas: Replicas that a running reassignment is going to remove; empty if there is none.
    is_new: True if the partition was just created, so that the broker makes its log anywhere, rather than wait for a
        directory that is offline.
    leader_recovery_state: 0 means in order; 1 that the leader was elected uncleanly and is still recovering from
        that.
    """

    topic_name: str = ""  # string, versions 0-1, ignorable
    partition_index: int = 0  # int32, versions 0+
    controller_epoch: int = 0  # int32, versions 0+
    leader: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    isr: tuple[int, ...] = ()  # []int32, versions 0+
    partition_epoch: int = 0  # int32, versions 0+
    replicas: tuple[int, ...] = ()  # []int32, versions 0+
    adding_replicas: tuple[int, ...] = ()  # []int32, versions 3+, ignorable
    removing_replicas: tuple[int, ...] = ()  # []int32, versions 3+, ignorable
    is_new: bool = False  # bool, versions 1+, ignorable
    leader_recovery_state: int = 0  # int8, versions 6+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[LeaderAndIsrPartitionState], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        lengths: tuple[int, ...]
        for self in structs:
            if version < 6 and self.leader_recovery_state != 0:
                raise absent("leader_recovery_state")
            if version <= 1:
                write_string(buffer, self.topic_name, flexible, "topic_name")
            if version >= 6:
                lengths = len(self.isr), len(self.replicas), len(self.adding_replicas), len(self.removing_replicas)
                buffer += _SHAPES_IIII_II_I_I_ITB_COMPACT[lengths](
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                    lengths[0] + 1,
                    *self.isr,
                    self.partition_epoch,
                    lengths[1] + 1,
                    *self.replicas,
                    lengths[2] + 1,
                    *self.adding_replicas,
                    lengths[3] + 1,
                    *self.removing_replicas,
                    self.is_new,
                    self.leader_recovery_state,
                )
            elif version >= 4:
                lengths = len(self.isr), len(self.replicas), len(self.adding_replicas), len(self.removing_replicas)
                buffer += _SHAPES_IIII_II_I_I_IT_COMPACT[lengths](
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                    lengths[0] + 1,
                    *self.isr,
                    self.partition_epoch,
                    lengths[1] + 1,
                    *self.replicas,
                    lengths[2] + 1,
                    *self.adding_replicas,
                    lengths[3] + 1,
                    *self.removing_replicas,
                    self.is_new,
                )
            elif version >= 3:
                lengths = len(self.isr), len(self.replicas), len(self.adding_replicas), len(self.removing_replicas)
                buffer += _SHAPES_IIII_II_I_I_IT_CLASSIC[lengths](
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                    lengths[0],
                    *self.isr,
                    self.partition_epoch,
                    lengths[1],
                    *self.replicas,
                    lengths[2],
                    *self.adding_replicas,
                    lengths[3],
                    *self.removing_replicas,
                    self.is_new,
                )
            elif version >= 1:
                lengths = len(self.isr), len(self.replicas)
                buffer += _SHAPES_IIII_II_IT_CLASSIC[lengths](
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                    lengths[0],
                    *self.isr,
                    self.partition_epoch,
                    lengths[1],
                    *self.replicas,
                    self.is_new,
                )
            else:
                lengths = len(self.isr), len(self.replicas)
                buffer += _SHAPES_IIII_II_I_CLASSIC[lengths](
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                    lengths[0],
                    *self.isr,
                    self.partition_epoch,
                    lengths[1],
                    *self.replicas,
                )
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[LeaderAndIsrPartitionState], int]:
        flexible = version >= 4
        found: list[LeaderAndIsrPartitionState] = []
        for _ in range(count):
            self = LeaderAndIsrPartitionState()
            if version >= 2:
                self.topic_name = ""
            else:
                self.topic_name, at = read_string(data, at, flexible, "topic_name")
            if version >= 6:
                (
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                ) = _IIII.unpack_from(data, at)
                at += 16
                self.isr, at = read_numbers(data, at, flexible, "i", "isr")
                (self.partition_epoch,) = _I.unpack_from(data, at)
                at += 4
                self.replicas, at = read_numbers(data, at, flexible, "i", "replicas")
                self.adding_replicas, at = read_numbers(data, at, flexible, "i", "adding_replicas")
                self.removing_replicas, at = read_numbers(data, at, flexible, "i", "removing_replicas")
                self.is_new, self.leader_recovery_state = _TB.unpack_from(data, at)
                at += 2
            elif version >= 3:
                (
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                ) = _IIII.unpack_from(data, at)
                at += 16
                self.isr, at = read_numbers(data, at, flexible, "i", "isr")
                (self.partition_epoch,) = _I.unpack_from(data, at)
                at += 4
                self.replicas, at = read_numbers(data, at, flexible, "i", "replicas")
                self.adding_replicas, at = read_numbers(data, at, flexible, "i", "adding_replicas")
                self.removing_replicas, at = read_numbers(data, at, flexible, "i", "removing_replicas")
                (self.is_new,) = _T.unpack_from(data, at)
                at += 1
                self.leader_recovery_state = 0
            elif version >= 1:
                (
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                ) = _IIII.unpack_from(data, at)
                at += 16
                self.isr, at = read_numbers(data, at, flexible, "i", "isr")
                (self.partition_epoch,) = _I.unpack_from(data, at)
                at += 4
                self.replicas, at = read_numbers(data, at, flexible, "i", "replicas")
                (self.is_new,) = _T.unpack_from(data, at)
                at += 1
                self.adding_replicas = ()
                self.removing_replicas = ()
                self.leader_recovery_state = 0
            else:
                (
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                ) = _IIII.unpack_from(data, at)
                at += 16
                self.isr, at = read_numbers(data, at, flexible, "i", "isr")
                (self.partition_epoch,) = _I.unpack_from(data, at)
                at += 4
                self.replicas, at = read_numbers(data, at, flexible, "i", "replicas")
                self.adding_replicas = ()
                self.removing_replicas = ()
                self.is_new = False
                self.leader_recovery_state = 0
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[LeaderAndIsrPartitionState], int]:
        found: list[LeaderAndIsrPartitionState] = []
        if version >= 6:
            rows, at = _ROWS_IIII_II_I_I_ITB_COMPACT.read(data, at, most)
            for row in rows:
                (
                    (
                        partition_index,
                        controller_epoch,
                        leader,
                        leader_epoch,
                        partition_epoch,
                        is_new,
                        leader_recovery_state,
                    ),
                    isr,
                    replicas,
                    adding_replicas,
                    removing_replicas,
                ) = row
                self = LeaderAndIsrPartitionState(
                    partition_index=partition_index,
                    controller_epoch=controller_epoch,
                    leader=leader,
                    leader_epoch=leader_epoch,
                    isr=isr,
                    partition_epoch=partition_epoch,
                    replicas=replicas,
                    adding_replicas=adding_replicas,
                    removing_replicas=removing_replicas,
                    is_new=is_new,
                    leader_recovery_state=leader_recovery_state,
                )
                found.append(self)
        elif version >= 4:
            rows, at = _ROWS_IIII_II_I_I_IT_COMPACT.read(data, at, most)
            for row in rows:
                (
                    (partition_index, controller_epoch, leader, leader_epoch, partition_epoch, is_new),
                    isr,
                    replicas,
                    adding_replicas,
                    removing_replicas,
                ) = row
                self = LeaderAndIsrPartitionState(
                    partition_index=partition_index,
                    controller_epoch=controller_epoch,
                    leader=leader,
                    leader_epoch=leader_epoch,
                    isr=isr,
                    partition_epoch=partition_epoch,
                    replicas=replicas,
                    adding_replicas=adding_replicas,
                    removing_replicas=removing_replicas,
                    is_new=is_new,
                )
                found.append(self)
        elif version >= 3:
            rows, at = _ROWS_IIII_II_I_I_IT_CLASSIC.read(data, at, most)
            for row in rows:
                (
                    (partition_index, controller_epoch, leader, leader_epoch, partition_epoch, is_new),
                    isr,
                    replicas,
                    adding_replicas,
                    removing_replicas,
                ) = row
                self = LeaderAndIsrPartitionState(
                    partition_index=partition_index,
                    controller_epoch=controller_epoch,
                    leader=leader,
                    leader_epoch=leader_epoch,
                    isr=isr,
                    partition_epoch=partition_epoch,
                    replicas=replicas,
                    adding_replicas=adding_replicas,
                    removing_replicas=removing_replicas,
                    is_new=is_new,
                )
                found.append(self)
        elif version >= 2:
            rows, at = _ROWS_IIII_II_IT_CLASSIC.read(data, at, most)
            for row in rows:
                (partition_index, controller_epoch, leader, leader_epoch, partition_epoch, is_new), isr, replicas = row
                self = LeaderAndIsrPartitionState(
                    partition_index=partition_index,
                    controller_epoch=controller_epoch,
                    leader=leader,
                    leader_epoch=leader_epoch,
                    isr=isr,
                    partition_epoch=partition_epoch,
                    replicas=replicas,
                    is_new=is_new,
                )
                found.append(self)
        return found, at


class LeaderAndIsrTopicState(Struct, gc=False, kw_only=True):
    """New state of the partitions, by topic.

    topic_name: Topic by its name, which is unique in the cluster.
    topic_id: Id of the topic; all zeros if topics have none yet.
    partition_states: New state of each partition.
    """

    topic_name: str = ""  # string, versions 2+
    topic_id: UUID = NULL_UUID  # uuid, versions 5+, ignorable
    # []LeaderAndIsrPartitionState, versions 2+
    partition_states: list[LeaderAndIsrPartitionState] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[LeaderAndIsrTopicState], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, flexible, "topic_name")
            if version >= 5:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partition_states, flexible, LeaderAndIsrPartitionState._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[LeaderAndIsrTopicState], int]:
        flexible = version >= 4
        found: list[LeaderAndIsrTopicState] = []
        for _ in range(count):
            self = LeaderAndIsrTopicState()
            self.topic_name, at = read_string(data, at, flexible, "topic_name")
            if version >= 5:
                self.topic_id, at = read_uuid(data, at)
            else:
                self.topic_id = NULL_UUID
            self.partition_states, at = read_rows(
                data,
                at,
                flexible,
                26,
                "partition_states",
                LeaderAndIsrPartitionState,
                version,
            )
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class LeaderAndIsrLiveLeader(Struct, gc=False, kw_only=True):
    """Brokers that lead one of these partitions, with the addresses to fetch from.

    broker_id: Broker id of the leader.
    host_name: Host name or IP address on the listener between brokers.
    port: TCP port that belongs to the host.
    """

    broker_id: int = 0  # int32, versions 0+
    host_name: str = ""  # string, versions 0+
    port: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[LeaderAndIsrLiveLeader], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.broker_id)
            write_string(buffer, self.host_name, flexible, "host_name")
            buffer += _I.pack(self.port)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[LeaderAndIsrLiveLeader], int]:
        flexible = version >= 4
        found: list[LeaderAndIsrLiveLeader] = []
        for _ in range(count):
            self = LeaderAndIsrLiveLeader()
            (self.broker_id,) = _I.unpack_from(data, at)
            at += 4
            self.host_name, at = read_string(data, at, flexible, "host_name")
            (self.port,) = _I.unpack_from(data, at)
            at += 4
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class LeaderAndIsrRequest(Message, gc=False, kw_only=True):
    """Sent by the controller: for which partitions the broker is leader, for which follower, and of whom. Clusters with
    ZooKeeper only; gone in Kafka 4.

    controller_id: Broker id of the controller that sends this.
    is_kraft_controller: True if the controller is a KRaft one, during a migration away from ZooKeeper.
    controller_epoch: Epoch of the controller; brokers refuse an epoch lower than one they have seen (error 11).
    broker_epoch: Epoch that the broker got when it registered, so that requests from before its restart are refused;
        -1 skips the check.
    type: 1 if only changed partitions are listed, 2 if all partitions of the broker are, as after its start; 0 if it
        is not said.
    ungrouped_partition_states: New state of each partition, with its topic's name in each entry.
    topic_states: New state of the partitions, by topic.
    live_leaders: Brokers that lead one of these partitions, with the addresses to fetch from.
    """

    API_KEY = 4
    VALID_VERSIONS = range(8)
    FLEXIBLE_VERSIONS = range(4, 8)

    controller_id: int = 0  # int32, versions 0+
    is_kraft_controller: bool = False  # bool, versions 7+
    controller_epoch: int = 0  # int32, versions 0+
    broker_epoch: int = -1  # int64, versions 2+, ignorable
    type: int = 0  # int8, versions 5+
    # []LeaderAndIsrPartitionState, versions 0-1
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(default_factory=list)
    topic_states: list[LeaderAndIsrTopicState] = field(default_factory=list)  # []LeaderAndIsrTopicState, versions 2+
    live_leaders: list[LeaderAndIsrLiveLeader] = field(default_factory=list)  # []LeaderAndIsrLiveLeader, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version < 7 and self.is_kraft_controller:
            raise absent("is_kraft_controller")
        if version < 5 and self.type != 0:
            raise absent("type")
        if version > 1 and len(self.ungrouped_partition_states) > 0:
            raise absent("ungrouped_partition_states")
        if version < 2 and len(self.topic_states) > 0:
            raise absent("topic_states")
        if version >= 7:
            buffer += _ITIQB.pack(
                self.controller_id,
                self.is_kraft_controller,
                self.controller_epoch,
                self.broker_epoch,
                self.type,
            )
        elif version >= 5:
            buffer += _IIQB.pack(self.controller_id, self.controller_epoch, self.broker_epoch, self.type)
        elif version >= 2:
            buffer += _IIQ.pack(self.controller_id, self.controller_epoch, self.broker_epoch)
        else:
            buffer += _II.pack(self.controller_id, self.controller_epoch)
        if version <= 1:
            write_structs(
                out,
                self.ungrouped_partition_states,
                flexible,
                LeaderAndIsrPartitionState._write_each,
                version,
            )
        if version >= 2:
            write_structs(out, self.topic_states, flexible, LeaderAndIsrTopicState._write_each, version)
        write_structs(out, self.live_leaders, flexible, LeaderAndIsrLiveLeader._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[LeaderAndIsrRequest, int]:
        self = LeaderAndIsrRequest()
        flexible = version >= 4
        if version >= 7:
            (
                self.controller_id,
                self.is_kraft_controller,
                self.controller_epoch,
                self.broker_epoch,
                self.type,
            ) = _ITIQB.unpack_from(data, at)
            at += 18
        elif version >= 5:
            self.controller_id, self.controller_epoch, self.broker_epoch, self.type = _IIQB.unpack_from(data, at)
            at += 17
            self.is_kraft_controller = False
        elif version >= 2:
            self.controller_id, self.controller_epoch, self.broker_epoch = _IIQ.unpack_from(data, at)
            at += 16
            self.is_kraft_controller = False
            self.type = 0
        else:
            self.controller_id, self.controller_epoch = _II.unpack_from(data, at)
            at += 8
            self.is_kraft_controller = False
            self.broker_epoch = -1
            self.type = 0
        if version >= 2:
            self.ungrouped_partition_states = []
            self.topic_states, at = read_structs(
                data,
                at,
                flexible,
                3,
                "topic_states",
                LeaderAndIsrTopicState._read_each,
                version,
            )
        else:
            self.ungrouped_partition_states, at = read_structs(
                data,
                at,
                flexible,
                26,
                "ungrouped_partition_states",
                LeaderAndIsrPartitionState._read_each,
                version,
            )
            self.topic_states = []
        self.live_leaders, at = read_structs(
            data,
            at,
            flexible,
            10,
            "live_leaders",
            LeaderAndIsrLiveLeader._read_each,
            version,
        )
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class LeaderAndIsrPartitionError(Struct, gc=False, kw_only=True):
    """Result for one partition.

    topic_name: Topic by its name, which is unique in the cluster.
    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error of this partition; 0 means taken over. 11 says that its leader epoch was not higher than the
        broker's.
    """

    topic_name: str = ""  # string, versions 0-4, ignorable
    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[LeaderAndIsrPartitionError], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            if version <= 4:
                write_string(buffer, self.topic_name, flexible, "topic_name")
            buffer += _IH.pack(self.partition_index, self.error_code)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[LeaderAndIsrPartitionError], int]:
        flexible = version >= 4
        found: list[LeaderAndIsrPartitionError] = []
        for _ in range(count):
            self = LeaderAndIsrPartitionError()
            if version >= 5:
                self.topic_name = ""
            else:
                self.topic_name, at = read_string(data, at, flexible, "topic_name")
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[LeaderAndIsrPartitionError], int]:
        found: list[LeaderAndIsrPartitionError] = []
        if version >= 5:
            rows, at = _ROWS_IH_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, error_code = row
                self = LeaderAndIsrPartitionError(partition_index=partition_index, error_code=error_code)
                found.append(self)
        return found, at


class LeaderAndIsrTopicError(Struct, gc=False, kw_only=True):
    """Results by topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partition_errors: Result for each partition.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 5+
    # []LeaderAndIsrPartitionError, versions 5+
    partition_errors: list[LeaderAndIsrPartitionError] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[LeaderAndIsrTopicError], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_structs(out, self.partition_errors, True, LeaderAndIsrPartitionError._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[LeaderAndIsrTopicError], int]:
        found: list[LeaderAndIsrTopicError] = []
        for _ in range(count):
            self = LeaderAndIsrTopicError()
            self.topic_id, at = read_uuid(data, at)
            self.partition_errors, at = read_rows(
                data,
                at,
                True,
                7,
                "partition_errors",
                LeaderAndIsrPartitionError,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class LeaderAndIsrResponse(Message, gc=False, kw_only=True):
    """Results of the changes at the broker.

    error_code: Error of the whole request; 0 means none. 11 says that the controller is out of date, 77 that the
        broker has restarted since.
    partition_errors: Result for each partition, with its topic's name in each entry.
    topics: Results by topic.
    """

    API_KEY = 4
    VALID_VERSIONS = range(8)
    FLEXIBLE_VERSIONS = range(4, 8)

    error_code: int = 0  # int16, versions 0+
    # []LeaderAndIsrPartitionError, versions 0-4
    partition_errors: list[LeaderAndIsrPartitionError] = field(default_factory=list)
    topics: list[LeaderAndIsrTopicError] = field(default_factory=list)  # []LeaderAndIsrTopicError, versions 5+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version > 4 and len(self.partition_errors) > 0:
            raise absent("partition_errors")
        if version < 5 and len(self.topics) > 0:
            raise absent("topics")
        buffer += _H.pack(self.error_code)
        if version <= 4:
            write_structs(out, self.partition_errors, flexible, LeaderAndIsrPartitionError._write_each, version)
        if version >= 5:
            write_structs(out, self.topics, flexible, LeaderAndIsrTopicError._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[LeaderAndIsrResponse, int]:
        self = LeaderAndIsrResponse()
        flexible = version >= 4
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        if version >= 5:
            self.partition_errors = []
            self.topics, at = read_structs(data, at, flexible, 18, "topics", LeaderAndIsrTopicError._read_each, version)
        else:
            self.partition_errors, at = read_structs(
                data,
                at,
                flexible,
                7,
                "partition_errors",
                LeaderAndIsrPartitionError._read_each,
                version,
            )
            self.topics = []
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
