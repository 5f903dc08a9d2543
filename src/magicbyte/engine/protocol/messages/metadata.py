"""Generated from MetadataRequest.json and MetadataResponse.json. Do not edit: the schema compiler makes it.

MetadataRequest: versions 0-13, flexible 9+; deprecated 0-3.
MetadataResponse: versions 0-13, flexible 9+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    absent,
    present,
    read_nullable_string,
    read_nullable_structs,
    read_numbers,
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
from magicbyte.engine.protocol.rows import Rows, Shapes, read_rows

_H = struct.Struct(">h")
_HII = struct.Struct(">hii")
_HIII = struct.Struct(">hiii")
_I = struct.Struct(">i")
_ROWS_HIII_I_I_I_CLASSIC = Rows("hiii[i[i[i", flexible=False)
_ROWS_HIII_I_I_I_COMPACT = Rows("hiii[i[i[i", flexible=True)
_ROWS_HII_I_I_CLASSIC = Rows("hii[i[i", flexible=False)
_ROWS_HII_I_I_I_CLASSIC = Rows("hii[i[i[i", flexible=False)
_SHAPES_HIII_I_I_I_CLASSIC = Shapes("hiii[i[i[i", flexible=False)
_SHAPES_HIII_I_I_I_COMPACT = Shapes("hiii[i[i[i", flexible=True)
_SHAPES_HII_I_I_CLASSIC = Shapes("hii[i[i", flexible=False)
_SHAPES_HII_I_I_I_CLASSIC = Shapes("hii[i[i[i", flexible=False)
_T = struct.Struct(">?")
_TT = struct.Struct(">??")
_TTT = struct.Struct(">???")


class MetadataRequestTopic(Struct, gc=False, kw_only=True):
    """Topics to describe. In version 0 an empty list asks for all topics; from version 1 on null asks for all and an
    empty list for none.

    topic_id: Id of the topic, instead of its name; all zeros when the name is given. Brokers answer requests by id
        from version 12 on.
    name: Name of the topic; null when the topic is requested by its id.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 10+, ignorable
    name: str | None = ""  # string, versions 0+, nullable 10+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[MetadataRequestTopic], out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        for self in structs:
            if version >= 10:
                write_uuid(buffer, self.topic_id)
            if version >= 10:
                write_nullable_string(buffer, self.name, flexible, "name")
            else:
                write_string(buffer, present(self.name, "name"), flexible, "name")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[MetadataRequestTopic], int]:
        flexible = version >= 9
        found: list[MetadataRequestTopic] = []
        for _ in range(count):
            self = MetadataRequestTopic()
            if version >= 10:
                self.topic_id, at = read_uuid(data, at)
                self.name, at = read_nullable_string(data, at, flexible, "name")
            else:
                self.topic_id = NULL_UUID
                self.name, at = read_string(data, at, flexible, "name")
            if version >= 9:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class MetadataRequest(Message, gc=False, kw_only=True):
    """Asks any broker which brokers there are, who the controller is, and who leads which partition. Every client
    starts with it.

    topics: Topics to describe. In version 0 an empty list asks for all topics; from version 1 on null asks for all
        and an empty list for none.
    allow_auto_topic_creation: Whether the broker may create a topic that does not exist, provided its
        auto.create.topics.enable is on. Before version 4 it always may.
    include_cluster_authorized_operations: Whether the response lists the operations that the caller may perform on
        the cluster. From version 11 on DescribeCluster answers this.
    include_topic_authorized_operations: Whether the response lists the operations that the caller may perform on
        each topic.
    """

    API_KEY = 3
    VALID_VERSIONS = range(14)
    FLEXIBLE_VERSIONS = range(9, 14)

    # []MetadataRequestTopic, versions 0+, nullable 1+
    topics: list[MetadataRequestTopic] | None = field(default_factory=list)
    allow_auto_topic_creation: bool = True  # bool, versions 4+
    include_cluster_authorized_operations: bool = False  # bool, versions 8-10
    include_topic_authorized_operations: bool = False  # bool, versions 8+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        if version < 4 and not self.allow_auto_topic_creation:
            raise absent("allow_auto_topic_creation")
        if not 8 <= version <= 10 and self.include_cluster_authorized_operations:
            raise absent("include_cluster_authorized_operations")
        if version < 8 and self.include_topic_authorized_operations:
            raise absent("include_topic_authorized_operations")
        if version >= 1:
            write_structs(out, self.topics, flexible, MetadataRequestTopic._write_each, version)
        else:
            write_structs(out, present(self.topics, "topics"), flexible, MetadataRequestTopic._write_each, version)
        if version >= 11:
            buffer += _TT.pack(self.allow_auto_topic_creation, self.include_topic_authorized_operations)
        elif version >= 8:
            buffer += _TTT.pack(
                self.allow_auto_topic_creation,
                self.include_cluster_authorized_operations,
                self.include_topic_authorized_operations,
            )
        elif version >= 4:
            buffer += _T.pack(self.allow_auto_topic_creation)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[MetadataRequest, int]:
        self = MetadataRequest()
        flexible = version >= 9
        if version >= 1:
            self.topics, at = read_nullable_structs(
                data,
                at,
                flexible,
                2,
                "topics",
                MetadataRequestTopic._read_each,
                version,
            )
        else:
            self.topics, at = read_structs(data, at, flexible, 2, "topics", MetadataRequestTopic._read_each, version)
        if version >= 11:
            self.allow_auto_topic_creation, self.include_topic_authorized_operations = _TT.unpack_from(data, at)
            at += 2
            self.include_cluster_authorized_operations = False
        elif version >= 8:
            (
                self.allow_auto_topic_creation,
                self.include_cluster_authorized_operations,
                self.include_topic_authorized_operations,
            ) = _TTT.unpack_from(data, at)
            at += 3
        elif version >= 4:
            (self.allow_auto_topic_creation,) = _T.unpack_from(data, at)
            at += 1
            self.include_cluster_authorized_operations = False
            self.include_topic_authorized_operations = False
        else:
            self.allow_auto_topic_creation = True
            self.include_cluster_authorized_operations = False
            self.include_topic_authorized_operations = False
        if version >= 9:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class MetadataResponseBroker(Struct, gc=False, kw_only=True):
    """Brokers that are alive, with the address each has on the listener that received the request.

    node_id: Broker id (broker.id or node.id), by which the rest of the response refers to this broker.
    host: Advertised host name or IP address that clients connect to.
    port: Advertised TCP port.
    rack: Rack or zone set in broker.rack; null if it is not set.
    """

    node_id: int = 0  # int32, versions 0+
    host: str = ""  # string, versions 0+
    port: int = 0  # int32, versions 0+
    rack: str | None = None  # string, versions 1+, nullable, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[MetadataResponseBroker], out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.node_id)
            write_string(buffer, self.host, flexible, "host")
            buffer += _I.pack(self.port)
            if version >= 1:
                write_nullable_string(buffer, self.rack, flexible, "rack")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[MetadataResponseBroker], int]:
        flexible = version >= 9
        found: list[MetadataResponseBroker] = []
        for _ in range(count):
            self = MetadataResponseBroker()
            (self.node_id,) = _I.unpack_from(data, at)
            at += 4
            self.host, at = read_string(data, at, flexible, "host")
            (self.port,) = _I.unpack_from(data, at)
            at += 4
            if version >= 1:
                self.rack, at = read_nullable_string(data, at, flexible, "rack")
            else:
                self.rack = None
            if version >= 9:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class MetadataResponsePartition(Struct, gc=False, kw_only=True):
    """Partitions of the topic, in no particular order.

    error_code: Error of this partition; 0 means none. 5 means that it has no leader now, 9 that a replica is not
        available.
    partition_index: Number of the partition within its topic, counted from 0.
    leader_id: Broker that leads the partition, to which records are sent; -1 if there is none.
    leader_epoch: Number of the leadership, one higher with each change of leader; -1 if it is not known.
    replica_nodes: Brokers that hold a replica, the preferred leader first.
    isr_nodes: Replicas that keep up with the leader and may succeed it (the in-sync replicas).
    offline_replicas: Replicas whose broker or log directory is down.
    """

    error_code: int = 0  # int16, versions 0+
    partition_index: int = 0  # int32, versions 0+
    leader_id: int = 0  # int32, versions 0+
    leader_epoch: int = -1  # int32, versions 7+, ignorable
    replica_nodes: tuple[int, ...] = ()  # []int32, versions 0+
    isr_nodes: tuple[int, ...] = ()  # []int32, versions 0+
    offline_replicas: tuple[int, ...] = ()  # []int32, versions 5+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[MetadataResponsePartition], out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        lengths: tuple[int, ...]
        for self in structs:
            if version >= 9:
                lengths = len(self.replica_nodes), len(self.isr_nodes), len(self.offline_replicas)
                buffer += _SHAPES_HIII_I_I_I_COMPACT[lengths](
                    self.error_code,
                    self.partition_index,
                    self.leader_id,
                    self.leader_epoch,
                    lengths[0] + 1,
                    *self.replica_nodes,
                    lengths[1] + 1,
                    *self.isr_nodes,
                    lengths[2] + 1,
                    *self.offline_replicas,
                )
            elif version >= 7:
                lengths = len(self.replica_nodes), len(self.isr_nodes), len(self.offline_replicas)
                buffer += _SHAPES_HIII_I_I_I_CLASSIC[lengths](
                    self.error_code,
                    self.partition_index,
                    self.leader_id,
                    self.leader_epoch,
                    lengths[0],
                    *self.replica_nodes,
                    lengths[1],
                    *self.isr_nodes,
                    lengths[2],
                    *self.offline_replicas,
                )
            elif version >= 5:
                lengths = len(self.replica_nodes), len(self.isr_nodes), len(self.offline_replicas)
                buffer += _SHAPES_HII_I_I_I_CLASSIC[lengths](
                    self.error_code,
                    self.partition_index,
                    self.leader_id,
                    lengths[0],
                    *self.replica_nodes,
                    lengths[1],
                    *self.isr_nodes,
                    lengths[2],
                    *self.offline_replicas,
                )
            else:
                lengths = len(self.replica_nodes), len(self.isr_nodes)
                buffer += _SHAPES_HII_I_I_CLASSIC[lengths](
                    self.error_code,
                    self.partition_index,
                    self.leader_id,
                    lengths[0],
                    *self.replica_nodes,
                    lengths[1],
                    *self.isr_nodes,
                )
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[MetadataResponsePartition], int]:
        flexible = version >= 9
        found: list[MetadataResponsePartition] = []
        for _ in range(count):
            self = MetadataResponsePartition()
            if version >= 7:
                self.error_code, self.partition_index, self.leader_id, self.leader_epoch = _HIII.unpack_from(data, at)
                at += 14
                self.replica_nodes, at = read_numbers(data, at, flexible, "i", "replica_nodes")
                self.isr_nodes, at = read_numbers(data, at, flexible, "i", "isr_nodes")
                self.offline_replicas, at = read_numbers(data, at, flexible, "i", "offline_replicas")
            elif version >= 5:
                self.error_code, self.partition_index, self.leader_id = _HII.unpack_from(data, at)
                at += 10
                self.replica_nodes, at = read_numbers(data, at, flexible, "i", "replica_nodes")
                self.isr_nodes, at = read_numbers(data, at, flexible, "i", "isr_nodes")
                self.offline_replicas, at = read_numbers(data, at, flexible, "i", "offline_replicas")
                self.leader_epoch = -1
            else:
                self.error_code, self.partition_index, self.leader_id = _HII.unpack_from(data, at)
                at += 10
                self.replica_nodes, at = read_numbers(data, at, flexible, "i", "replica_nodes")
                self.isr_nodes, at = read_numbers(data, at, flexible, "i", "isr_nodes")
                self.leader_epoch = -1
                self.offline_replicas = ()
            if version >= 9:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[MetadataResponsePartition], int]:
        found: list[MetadataResponsePartition] = []
        if version >= 9:
            rows, at = _ROWS_HIII_I_I_I_COMPACT.read(data, at, most)
            for row in rows:
                (error_code, partition_index, leader_id, leader_epoch), replica_nodes, isr_nodes, offline_replicas = row
                self = MetadataResponsePartition(
                    error_code=error_code,
                    partition_index=partition_index,
                    leader_id=leader_id,
                    leader_epoch=leader_epoch,
                    replica_nodes=replica_nodes,
                    isr_nodes=isr_nodes,
                    offline_replicas=offline_replicas,
                )
                found.append(self)
        elif version >= 7:
            rows, at = _ROWS_HIII_I_I_I_CLASSIC.read(data, at, most)
            for row in rows:
                (error_code, partition_index, leader_id, leader_epoch), replica_nodes, isr_nodes, offline_replicas = row
                self = MetadataResponsePartition(
                    error_code=error_code,
                    partition_index=partition_index,
                    leader_id=leader_id,
                    leader_epoch=leader_epoch,
                    replica_nodes=replica_nodes,
                    isr_nodes=isr_nodes,
                    offline_replicas=offline_replicas,
                )
                found.append(self)
        elif version >= 5:
            rows, at = _ROWS_HII_I_I_I_CLASSIC.read(data, at, most)
            for row in rows:
                (error_code, partition_index, leader_id), replica_nodes, isr_nodes, offline_replicas = row
                self = MetadataResponsePartition(
                    error_code=error_code,
                    partition_index=partition_index,
                    leader_id=leader_id,
                    replica_nodes=replica_nodes,
                    isr_nodes=isr_nodes,
                    offline_replicas=offline_replicas,
                )
                found.append(self)
        else:
            rows, at = _ROWS_HII_I_I_CLASSIC.read(data, at, most)
            for row in rows:
                (error_code, partition_index, leader_id), replica_nodes, isr_nodes = row
                self = MetadataResponsePartition(
                    error_code=error_code,
                    partition_index=partition_index,
                    leader_id=leader_id,
                    replica_nodes=replica_nodes,
                    isr_nodes=isr_nodes,
                )
                found.append(self)
        return found, at


class MetadataResponseTopic(Struct, gc=False, kw_only=True):
    """One entry for each requested topic, or for every topic that the caller may describe.

    error_code: Error of this topic; 0 means none. 3 is an unknown topic, 5 one that is just being created, 100 an
        unknown topic id.
    name: Name of the topic; null if it was requested by an id that the broker does not know.
    topic_id: Id of the topic, which stays with it for its whole life; all zeros in clusters without topic ids.
    is_internal: True for the topics that Kafka keeps for itself, such as __consumer_offsets.
    partitions: Partitions of the topic, in no particular order.
    topic_authorized_operations: Operations that the caller may perform on the topic: bit n stands for ACL operation
        number n. -2147483648 if not requested.
    """

    error_code: int = 0  # int16, versions 0+
    name: str | None = ""  # string, versions 0+, nullable 12+
    topic_id: UUID = NULL_UUID  # uuid, versions 10+, ignorable
    is_internal: bool = False  # bool, versions 1+, ignorable
    # []MetadataResponsePartition, versions 0+
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648  # int32, versions 8+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[MetadataResponseTopic], out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        for self in structs:
            if version < 8 and self.topic_authorized_operations != -2147483648:
                raise absent("topic_authorized_operations")
            buffer += _H.pack(self.error_code)
            if version >= 12:
                write_nullable_string(buffer, self.name, flexible, "name")
            else:
                write_string(buffer, present(self.name, "name"), flexible, "name")
            if version >= 10:
                write_uuid(buffer, self.topic_id)
            if version >= 1:
                buffer += _T.pack(self.is_internal)
            write_structs(out, self.partitions, flexible, MetadataResponsePartition._write_each, version)
            if version >= 8:
                buffer += _I.pack(self.topic_authorized_operations)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[MetadataResponseTopic], int]:
        flexible = version >= 9
        found: list[MetadataResponseTopic] = []
        for _ in range(count):
            self = MetadataResponseTopic()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            if version >= 12:
                self.name, at = read_nullable_string(data, at, flexible, "name")
            else:
                self.name, at = read_string(data, at, flexible, "name")
            if version >= 10:
                self.topic_id, at = read_uuid(data, at)
            else:
                self.topic_id = NULL_UUID
            if version >= 1:
                (self.is_internal,) = _T.unpack_from(data, at)
                at += 1
            else:
                self.is_internal = False
            self.partitions, at = read_rows(data, at, flexible, 18, "partitions", MetadataResponsePartition, version)
            if version >= 8:
                (self.topic_authorized_operations,) = _I.unpack_from(data, at)
                at += 4
            else:
                self.topic_authorized_operations = -2147483648
            if version >= 9:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class MetadataResponse(Message, gc=False, kw_only=True):
    """The picture of the cluster: live brokers with their addresses, the controller, and leader and replicas of every
    requested partition.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. Up to version 5 the
        broker held this response back for that long; from version 6 on it answers at once and the client does the
        waiting.
    brokers: Brokers that are alive, with the address each has on the listener that received the request.
    cluster_id: Id of the cluster, made when it was first started; null from brokers before 0.10.1.
    controller_id: Broker to send administrative requests to; -1 if none is known. In KRaft mode it is some live
        broker, which forwards them.
    topics: One entry for each requested topic, or for every topic that the caller may describe.
    cluster_authorized_operations: Operations that the caller may perform on the cluster: bit n stands for ACL
        operation number n. -2147483648 if not requested.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    """

    API_KEY = 3
    VALID_VERSIONS = range(14)
    FLEXIBLE_VERSIONS = range(9, 14)

    throttle_time_ms: int = 0  # int32, versions 3+, ignorable
    brokers: list[MetadataResponseBroker] = field(default_factory=list)  # []MetadataResponseBroker, versions 0+
    cluster_id: str | None = None  # string, versions 2+, nullable, ignorable
    controller_id: int = -1  # int32, versions 1+, ignorable
    topics: list[MetadataResponseTopic] = field(default_factory=list)  # []MetadataResponseTopic, versions 0+
    cluster_authorized_operations: int = -2147483648  # int32, versions 8-10
    error_code: int = 0  # int16, versions 13+, ignorable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 9
        buffer = out.buffer
        if not 8 <= version <= 10 and self.cluster_authorized_operations != -2147483648:
            raise absent("cluster_authorized_operations")
        if version >= 3:
            buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.brokers, flexible, MetadataResponseBroker._write_each, version)
        if version >= 2:
            write_nullable_string(buffer, self.cluster_id, flexible, "cluster_id")
        if version >= 1:
            buffer += _I.pack(self.controller_id)
        write_structs(out, self.topics, flexible, MetadataResponseTopic._write_each, version)
        if version >= 13:
            buffer += _H.pack(self.error_code)
        elif 8 <= version <= 10:
            buffer += _I.pack(self.cluster_authorized_operations)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[MetadataResponse, int]:
        self = MetadataResponse()
        flexible = version >= 9
        if version >= 3:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.throttle_time_ms = 0
        self.brokers, at = read_structs(data, at, flexible, 10, "brokers", MetadataResponseBroker._read_each, version)
        if version >= 2:
            self.cluster_id, at = read_nullable_string(data, at, flexible, "cluster_id")
        else:
            self.cluster_id = None
        if version >= 1:
            (self.controller_id,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.controller_id = -1
        self.topics, at = read_structs(data, at, flexible, 8, "topics", MetadataResponseTopic._read_each, version)
        if version >= 13:
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.cluster_authorized_operations = -2147483648
        elif version >= 11:
            self.cluster_authorized_operations = -2147483648
            self.error_code = 0
        elif version >= 8:
            (self.cluster_authorized_operations,) = _I.unpack_from(data, at)
            at += 4
            self.error_code = 0
        else:
            self.cluster_authorized_operations = -2147483648
            self.error_code = 0
        if version >= 9:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
