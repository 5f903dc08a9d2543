"""Generated from MetadataResponsePartitionsUnpacked.json. Do not edit: the schema compiler makes it.

MetadataResponsePartitionsUnpacked: version 9, flexible 9+; error_code is unpacked16; partition_index is unpacked32;
leader_id is unpacked32; leader_epoch is unpacked32; replica_nodes is unpacked32; isr_nodes is unpacked32;
offline_replicas is unpacked32 (KIP-625).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    read_unpacked,
    read_varints,
    write_array,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
    write_unpacked,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_T = struct.Struct(">?")


class MetadataResponseBroker(Struct, gc=False, kw_only=True):
    """Brokers that are alive, with the address each has on the listener that received the request.

    node_id: Broker id (broker.id or node.id), by which the rest of the response refers to this broker.
    host: Advertised host name or IP address that clients connect to.
    port: Advertised TCP port.
    rack: Rack or zone set in broker.rack; null if it is not set.
    """

    node_id: int = 0  # int32, versions 9+
    host: str = ""  # string, versions 9+
    port: int = 0  # int32, versions 9+
    rack: str | None = None  # string, versions 9+, nullable, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[MetadataResponseBroker], out: Writer, version: int) -> None:
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
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[MetadataResponseBroker], int]:
        found: list[MetadataResponseBroker] = []
        for _ in range(count):
            self = MetadataResponseBroker()
            (self.node_id,) = _I.unpack_from(data, at)
            at += 4
            self.host, at = read_string(data, at, True, "host")
            (self.port,) = _I.unpack_from(data, at)
            at += 4
            self.rack, at = read_nullable_string(data, at, True, "rack")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
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

    error_code: int = 0  # int16, versions 9+, unpacked16
    partition_index: int = 0  # int32, versions 9+, unpacked32
    leader_id: int = 0  # int32, versions 9+, unpacked32
    leader_epoch: int = -1  # int32, versions 9+, ignorable, unpacked32
    replica_nodes: tuple[int, ...] = ()  # []int32, versions 9+, unpacked32
    isr_nodes: tuple[int, ...] = ()  # []int32, versions 9+, unpacked32
    offline_replicas: tuple[int, ...] = ()  # []int32, versions 9+, ignorable, unpacked32
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[MetadataResponsePartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_unpacked(buffer, self.error_code, 16, "error_code")
            write_unpacked(buffer, self.partition_index, 32, "partition_index")
            write_unpacked(buffer, self.leader_id, 32, "leader_id")
            write_unpacked(buffer, self.leader_epoch, 32, "leader_epoch")
            write_array(buffer, self.replica_nodes, True, write_unpacked, 32, "replica_nodes")
            write_array(buffer, self.isr_nodes, True, write_unpacked, 32, "isr_nodes")
            write_array(buffer, self.offline_replicas, True, write_unpacked, 32, "offline_replicas")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[MetadataResponsePartition], int]:
        found: list[MetadataResponsePartition] = []
        for _ in range(count):
            self = MetadataResponsePartition()
            self.error_code, at = read_unpacked(data, at, 16, "error_code")
            self.partition_index, at = read_unpacked(data, at, 32, "partition_index")
            self.leader_id, at = read_unpacked(data, at, 32, "leader_id")
            self.leader_epoch, at = read_unpacked(data, at, 32, "leader_epoch")
            self.replica_nodes, at = read_varints(data, at, True, 32, "replica_nodes", read_unpacked)
            self.isr_nodes, at = read_varints(data, at, True, 32, "isr_nodes", read_unpacked)
            self.offline_replicas, at = read_varints(data, at, True, 32, "offline_replicas", read_unpacked)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class MetadataResponseTopic(Struct, gc=False, kw_only=True):
    """One entry for each requested topic, or for every topic that the caller may describe.

    error_code: Error of this topic; 0 means none. 3 is an unknown topic and 5 one that is just being created.
    name: Name of the topic.
    is_internal: True for the topics that Kafka keeps for itself, such as __consumer_offsets.
    partitions: Partitions of the topic, in no particular order.
    topic_authorized_operations: Operations that the caller may perform on the topic: bit n stands for ACL operation
        number n. -2147483648 if not requested.
    """

    error_code: int = 0  # int16, versions 9+
    name: str = ""  # string, versions 9+
    is_internal: bool = False  # bool, versions 9+, ignorable
    # []MetadataResponsePartition, versions 9+
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648  # int32, versions 9+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[MetadataResponseTopic], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _H.pack(self.error_code)
            write_string(buffer, self.name, True, "name")
            buffer += _T.pack(self.is_internal)
            write_structs(out, self.partitions, True, MetadataResponsePartition._write_each, version)
            buffer += _I.pack(self.topic_authorized_operations)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[MetadataResponseTopic], int]:
        found: list[MetadataResponseTopic] = []
        for _ in range(count):
            self = MetadataResponseTopic()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.name, at = read_string(data, at, True, "name")
            (self.is_internal,) = _T.unpack_from(data, at)
            at += 1
            self.partitions, at = read_structs(
                data,
                at,
                True,
                8,
                "partitions",
                MetadataResponsePartition._read_each,
                version,
            )
            (self.topic_authorized_operations,) = _I.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class MetadataResponsePartitionsUnpacked(Message, gc=False, kw_only=True):
    """MetadataResponse version 9 with the integers of its partitions unpacked (KIP-625), as the proposal's example has
    it. No broker speaks it.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0.
    brokers: Brokers that are alive, with the address each has on the listener that received the request.
    cluster_id: Id of the cluster, made when it was first started; null if unknown.
    controller_id: Broker to send administrative requests to; -1 if none is known. In KRaft mode it is some live
        broker, which forwards them.
    topics: One entry for each requested topic, or for every topic that the caller may describe.
    cluster_authorized_operations: Operations that the caller may perform on the cluster: bit n stands for ACL
        operation number n. -2147483648 if not requested.
    """

    VALID_VERSIONS = range(9, 10)
    FLEXIBLE_VERSIONS = range(9, 10)

    throttle_time_ms: int = 0  # int32, versions 9+, ignorable
    brokers: list[MetadataResponseBroker] = field(default_factory=list)  # []MetadataResponseBroker, versions 9+
    cluster_id: str | None = None  # string, versions 9+, nullable, ignorable
    controller_id: int = -1  # int32, versions 9+, ignorable
    topics: list[MetadataResponseTopic] = field(default_factory=list)  # []MetadataResponseTopic, versions 9+
    cluster_authorized_operations: int = -2147483648  # int32, versions 9+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.brokers, True, MetadataResponseBroker._write_each, version)
        write_nullable_string(buffer, self.cluster_id, True, "cluster_id")
        buffer += _I.pack(self.controller_id)
        write_structs(out, self.topics, True, MetadataResponseTopic._write_each, version)
        buffer += _I.pack(self.cluster_authorized_operations)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[MetadataResponsePartitionsUnpacked, int]:
        self = MetadataResponsePartitionsUnpacked()
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.brokers, at = read_structs(data, at, True, 11, "brokers", MetadataResponseBroker._read_each, version)
        self.cluster_id, at = read_nullable_string(data, at, True, "cluster_id")
        (self.controller_id,) = _I.unpack_from(data, at)
        at += 4
        self.topics, at = read_structs(data, at, True, 10, "topics", MetadataResponseTopic._read_each, version)
        (self.cluster_authorized_operations,) = _I.unpack_from(data, at)
        at += 4
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
