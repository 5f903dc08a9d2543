"""Generated from UpdateMetadataRequest.json and UpdateMetadataResponse.json. Do not edit: the schema compiler makes it.

UpdateMetadataRequest: versions 0-8, flexible 6+.
UpdateMetadataResponse: versions 0-8, flexible 6+.
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
    read_numbers,
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
from magicbyte.engine.protocol.rows import Rows, Shapes, read_rows

_B = struct.Struct(">b")
_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IIII = struct.Struct(">iiii")
_IQ = struct.Struct(">iq")
_IT = struct.Struct(">i?")
_ROWS_IIII_II_I_I_CLASSIC = Rows("iiii[ii[i[i", flexible=False)
_ROWS_IIII_II_I_I_COMPACT = Rows("iiii[ii[i[i", flexible=True)
_SHAPES_IIII_II_I_CLASSIC = Shapes("iiii[ii[i", flexible=False)
_SHAPES_IIII_II_I_I_CLASSIC = Shapes("iiii[ii[i[i", flexible=False)
_SHAPES_IIII_II_I_I_COMPACT = Shapes("iiii[ii[i[i", flexible=True)


class UpdateMetadataPartitionState(Struct, gc=False, kw_only=True):
    """State of one partition.

    topic_name: Topic by its name, which is unique in the cluster.
    partition_index: Number of the partition within its topic, counted from 0.
    controller_epoch: Epoch of the controller that last changed this state.
    leader: Broker that leads the partition; -1 if there is none, -2 if the topic is being deleted.
    leader_epoch: Number of the leadership, one higher with each change of leader.
    isr: In-sync replicas.
    zk_version: Version of the partition's state: in ZooKeeper the version of its znode.
    replicas: Brokers that hold a replica, the preferred leader first.
    offline_replicas: Replicas whose broker or log directory is down.
    """

    topic_name: str = ""  # string, versions 0-4, ignorable
    partition_index: int = 0  # int32, versions 0+
    controller_epoch: int = 0  # int32, versions 0+
    leader: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    isr: tuple[int, ...] = ()  # []int32, versions 0+
    zk_version: int = 0  # int32, versions 0+
    replicas: tuple[int, ...] = ()  # []int32, versions 0+
    offline_replicas: tuple[int, ...] = ()  # []int32, versions 4+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[UpdateMetadataPartitionState], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        lengths: tuple[int, ...]
        for self in structs:
            if version <= 4:
                write_string(buffer, self.topic_name, flexible, "topic_name")
            if version >= 6:
                lengths = len(self.isr), len(self.replicas), len(self.offline_replicas)
                buffer += _SHAPES_IIII_II_I_I_COMPACT[lengths](
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                    lengths[0] + 1,
                    *self.isr,
                    self.zk_version,
                    lengths[1] + 1,
                    *self.replicas,
                    lengths[2] + 1,
                    *self.offline_replicas,
                )
            elif version >= 4:
                lengths = len(self.isr), len(self.replicas), len(self.offline_replicas)
                buffer += _SHAPES_IIII_II_I_I_CLASSIC[lengths](
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                    lengths[0],
                    *self.isr,
                    self.zk_version,
                    lengths[1],
                    *self.replicas,
                    lengths[2],
                    *self.offline_replicas,
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
                    self.zk_version,
                    lengths[1],
                    *self.replicas,
                )
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
    ) -> tuple[list[UpdateMetadataPartitionState], int]:
        flexible = version >= 6
        found: list[UpdateMetadataPartitionState] = []
        for _ in range(count):
            self = UpdateMetadataPartitionState()
            if version >= 5:
                self.topic_name = ""
            else:
                self.topic_name, at = read_string(data, at, flexible, "topic_name")
            if version >= 4:
                (
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                ) = _IIII.unpack_from(data, at)
                at += 16
                self.isr, at = read_numbers(data, at, flexible, "i", "isr")
                (self.zk_version,) = _I.unpack_from(data, at)
                at += 4
                self.replicas, at = read_numbers(data, at, flexible, "i", "replicas")
                self.offline_replicas, at = read_numbers(data, at, flexible, "i", "offline_replicas")
            else:
                (
                    self.partition_index,
                    self.controller_epoch,
                    self.leader,
                    self.leader_epoch,
                ) = _IIII.unpack_from(data, at)
                at += 16
                self.isr, at = read_numbers(data, at, flexible, "i", "isr")
                (self.zk_version,) = _I.unpack_from(data, at)
                at += 4
                self.replicas, at = read_numbers(data, at, flexible, "i", "replicas")
                self.offline_replicas = ()
            if version >= 6:
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
    ) -> tuple[list[UpdateMetadataPartitionState], int]:
        found: list[UpdateMetadataPartitionState] = []
        if version >= 6:
            rows, at = _ROWS_IIII_II_I_I_COMPACT.read(data, at, most)
            for row in rows:
                (
                    (partition_index, controller_epoch, leader, leader_epoch, zk_version),
                    isr,
                    replicas,
                    offline_replicas,
                ) = row
                self = UpdateMetadataPartitionState(
                    partition_index=partition_index,
                    controller_epoch=controller_epoch,
                    leader=leader,
                    leader_epoch=leader_epoch,
                    isr=isr,
                    zk_version=zk_version,
                    replicas=replicas,
                    offline_replicas=offline_replicas,
                )
                found.append(self)
        elif version >= 5:
            rows, at = _ROWS_IIII_II_I_I_CLASSIC.read(data, at, most)
            for row in rows:
                (
                    (partition_index, controller_epoch, leader, leader_epoch, zk_version),
                    isr,
                    replicas,
                    offline_replicas,
                ) = row
                self = UpdateMetadataPartitionState(
                    partition_index=partition_index,
                    controller_epoch=controller_epoch,
                    leader=leader,
                    leader_epoch=leader_epoch,
                    isr=isr,
                    zk_version=zk_version,
                    replicas=replicas,
                    offline_replicas=offline_replicas,
                )
                found.append(self)
        return found, at


class UpdateMetadataTopicState(Struct, gc=False, kw_only=True):
    """State of the partitions, by topic.

    topic_name: Topic by its name, which is unique in the cluster.
    topic_id: Id of the topic; all zeros if topics have none yet.
    partition_states: State of each partition.
    """

    topic_name: str = ""  # string, versions 5+
    topic_id: UUID = NULL_UUID  # uuid, versions 7+, ignorable
    # []UpdateMetadataPartitionState, versions 5+
    partition_states: list[UpdateMetadataPartitionState] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[UpdateMetadataTopicState], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, flexible, "topic_name")
            if version >= 7:
                write_uuid(buffer, self.topic_id)
            write_structs(out, self.partition_states, flexible, UpdateMetadataPartitionState._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[UpdateMetadataTopicState], int]:
        flexible = version >= 6
        found: list[UpdateMetadataTopicState] = []
        for _ in range(count):
            self = UpdateMetadataTopicState()
            self.topic_name, at = read_string(data, at, flexible, "topic_name")
            if version >= 7:
                self.topic_id, at = read_uuid(data, at)
            else:
                self.topic_id = NULL_UUID
            self.partition_states, at = read_rows(
                data,
                at,
                flexible,
                24,
                "partition_states",
                UpdateMetadataPartitionState,
                version,
            )
            if version >= 6:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class UpdateMetadataEndpoint(Struct, gc=False, kw_only=True):
    """Addresses of the broker, one for each listener.

    port: TCP port of this listener.
    host: Host name or IP address advertised for this listener.
    listener: Name of the listener, such as PLAINTEXT or INTERNAL.
    security_protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    port: int = 0  # int32, versions 1+
    host: str = ""  # string, versions 1+
    listener: str = ""  # string, versions 3+, ignorable
    security_protocol: int = 0  # int16, versions 1+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[UpdateMetadataEndpoint], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.port)
            write_string(buffer, self.host, flexible, "host")
            if version >= 3:
                write_string(buffer, self.listener, flexible, "listener")
            buffer += _H.pack(self.security_protocol)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[UpdateMetadataEndpoint], int]:
        flexible = version >= 6
        found: list[UpdateMetadataEndpoint] = []
        for _ in range(count):
            self = UpdateMetadataEndpoint()
            (self.port,) = _I.unpack_from(data, at)
            at += 4
            self.host, at = read_string(data, at, flexible, "host")
            if version >= 3:
                self.listener, at = read_string(data, at, flexible, "listener")
            else:
                self.listener = ""
            (self.security_protocol,) = _H.unpack_from(data, at)
            at += 2
            if version >= 6:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class UpdateMetadataBroker(Struct, gc=False, kw_only=True):
    """All brokers that are alive; replaces what the broker knew before.

    id: Broker id.
    v0_host: Host name or IP address of the broker.
    v0_port: TCP port of the broker.
    endpoints: Addresses of the broker, one for each listener.
    rack: Rack or zone of the broker; null if it has none.
    """

    id: int = 0  # int32, versions 0+
    v0_host: str = ""  # string, versions 0, ignorable
    v0_port: int = 0  # int32, versions 0, ignorable
    # []UpdateMetadataEndpoint, versions 1+, ignorable
    endpoints: list[UpdateMetadataEndpoint] = field(default_factory=list)
    rack: str | None = ""  # string, versions 2+, nullable 0+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[UpdateMetadataBroker], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.id)
            if version <= 0:
                write_string(buffer, self.v0_host, flexible, "v0_host")
                buffer += _I.pack(self.v0_port)
            if version >= 1:
                write_structs(out, self.endpoints, flexible, UpdateMetadataEndpoint._write_each, version)
            if version >= 2:
                write_nullable_string(buffer, self.rack, flexible, "rack")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[UpdateMetadataBroker], int]:
        flexible = version >= 6
        found: list[UpdateMetadataBroker] = []
        for _ in range(count):
            self = UpdateMetadataBroker()
            (self.id,) = _I.unpack_from(data, at)
            at += 4
            if version >= 1:
                self.v0_host = ""
                self.v0_port = 0
                self.endpoints, at = read_structs(
                    data,
                    at,
                    flexible,
                    8,
                    "endpoints",
                    UpdateMetadataEndpoint._read_each,
                    version,
                )
            else:
                self.v0_host, at = read_string(data, at, flexible, "v0_host")
                (self.v0_port,) = _I.unpack_from(data, at)
                at += 4
                self.endpoints = []
            if version >= 2:
                self.rack, at = read_nullable_string(data, at, flexible, "rack")
            else:
                self.rack = ""
            if version >= 6:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class UpdateMetadataRequest(Message, gc=False, kw_only=True):
    """Sent by the controller: the brokers that are alive and the state of partitions, from which brokers answer
    Metadata. Clusters with ZooKeeper only; gone in Kafka 4.

    controller_id: Broker id of the controller that sends this.
    is_kraft_controller: True if the controller is a KRaft one, during a migration away from ZooKeeper.
    type: 1 if only changed partitions are listed, 2 if all are; 0 if it is not said.
    controller_epoch: Epoch of the controller; brokers refuse an epoch lower than one they have seen (error 11).
    broker_epoch: Epoch that the broker got when it registered, so that requests from before its restart are refused;
        -1 skips the check.
    ungrouped_partition_states: State of each partition, with its topic's name in each entry.
    topic_states: State of the partitions, by topic.
    live_brokers: All brokers that are alive; replaces what the broker knew before.
    """

    API_KEY = 6
    VALID_VERSIONS = range(9)
    FLEXIBLE_VERSIONS = range(6, 9)

    controller_id: int = 0  # int32, versions 0+
    is_kraft_controller: bool = False  # bool, versions 8+
    type: int = 0  # int8, versions 8+, tag 0
    controller_epoch: int = 0  # int32, versions 0+
    broker_epoch: int = -1  # int64, versions 5+, ignorable
    # []UpdateMetadataPartitionState, versions 0-4
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(default_factory=list)
    # []UpdateMetadataTopicState, versions 5+
    topic_states: list[UpdateMetadataTopicState] = field(default_factory=list)
    live_brokers: list[UpdateMetadataBroker] = field(default_factory=list)  # []UpdateMetadataBroker, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        if version < 8 and self.is_kraft_controller:
            raise absent("is_kraft_controller")
        if version < 8 and self.type != 0:
            raise absent("type")
        if version > 4 and len(self.ungrouped_partition_states) > 0:
            raise absent("ungrouped_partition_states")
        if version < 5 and len(self.topic_states) > 0:
            raise absent("topic_states")
        if version >= 8:
            buffer += _IT.pack(self.controller_id, self.is_kraft_controller)
        else:
            buffer += _I.pack(self.controller_id)
        if version >= 5:
            buffer += _IQ.pack(self.controller_epoch, self.broker_epoch)
        else:
            buffer += _I.pack(self.controller_epoch)
        if version <= 4:
            write_structs(
                out,
                self.ungrouped_partition_states,
                flexible,
                UpdateMetadataPartitionState._write_each,
                version,
            )
        if version >= 5:
            write_structs(out, self.topic_states, flexible, UpdateMetadataTopicState._write_each, version)
        write_structs(out, self.live_brokers, flexible, UpdateMetadataBroker._write_each, version)
        if version >= 8:
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)
        elif version >= 6:
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)
        elif self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[UpdateMetadataRequest, int]:
        self = UpdateMetadataRequest()
        flexible = version >= 6
        if version >= 8:
            self.controller_id, self.is_kraft_controller = _IT.unpack_from(data, at)
            at += 5
        else:
            (self.controller_id,) = _I.unpack_from(data, at)
            at += 4
            self.is_kraft_controller = False
        self.type = 0
        if version >= 5:
            self.controller_epoch, self.broker_epoch = _IQ.unpack_from(data, at)
            at += 12
            self.ungrouped_partition_states = []
            self.topic_states, at = read_structs(
                data,
                at,
                flexible,
                3,
                "topic_states",
                UpdateMetadataTopicState._read_each,
                version,
            )
        else:
            (self.controller_epoch,) = _I.unpack_from(data, at)
            at += 4
            self.broker_epoch = -1
            self.ungrouped_partition_states, at = read_structs(
                data,
                at,
                flexible,
                24,
                "ungrouped_partition_states",
                UpdateMetadataPartitionState._read_each,
                version,
            )
            self.topic_states = []
        self.live_brokers, at = read_structs(
            data,
            at,
            flexible,
            7,
            "live_brokers",
            UpdateMetadataBroker._read_each,
            version,
        )
        if version >= 8:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.type = whole(part, (_B.unpack_from(part)[0], 1), "type")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        elif version >= 6:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if version >= 8 and self.type != 0:
            part = Writer()
            part.buffer += _B.pack(self.type)
            found.append((0, bytes(part)))
        return found


class UpdateMetadataResponse(Message, gc=False, kw_only=True):
    """Whether the broker took over the new picture.

    error_code: Error; 0 means none. 11 says that the controller is out of date, 77 that the broker has restarted
        since.
    """

    API_KEY = 6
    VALID_VERSIONS = range(9)
    FLEXIBLE_VERSIONS = range(6, 9)

    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        buffer += _H.pack(self.error_code)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[UpdateMetadataResponse, int]:
        self = UpdateMetadataResponse()
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        if version >= 6:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
