"""Generated from ShareGroupPartitionMetadataKey.json and ShareGroupPartitionMetadataValue.json. Do not edit: the schema

compiler makes it.
ShareGroupPartitionMetadataKey: version 9.
ShareGroupPartitionMetadataValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_array,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_array,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")


class ShareGroupPartitionMetadataKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of the metadata of a share group's topics at the last computation of its assignment. It
    follows the int16 9, its type. In early access releases only.

    group_id: Share group by its group.id, as its consumers are configured.
    """

    VALID_VERSIONS = range(9, 10)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 9

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupPartitionMetadataKey, int]:
        self = ShareGroupPartitionMetadataKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        return self, at


class PartitionMetadata(Struct, gc=False, kw_only=True):
    """Racks of its partitions; empty if no broker has a rack.

    partition: Number of the partition within its topic, counted from 0.
    racks: Racks of the brokers that hold a replica.
    """

    partition: int = 0  # int32, versions 0+
    racks: list[str] = field(default_factory=list)  # []string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionMetadata], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.partition)
            write_array(buffer, self.racks, True, write_string, True, "racks")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionMetadata], int]:
        found: list[PartitionMetadata] = []
        for _ in range(count):
            self = PartitionMetadata()
            (self.partition,) = _I.unpack_from(data, at)
            at += 4
            self.racks, at = read_array(data, at, True, 1, "racks", read_string, True, "racks")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class TopicMetadata(Struct, gc=False, kw_only=True):
    """Topics subscribed to.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    topic_name: Topic by its name, which is unique in the cluster.
    num_partitions: Number of partitions that it had.
    partition_metadata: Racks of its partitions; empty if no broker has a rack.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    topic_name: str = ""  # string, versions 0+
    num_partitions: int = 0  # int32, versions 0+
    partition_metadata: list[PartitionMetadata] = field(default_factory=list)  # []PartitionMetadata, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicMetadata], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_string(buffer, self.topic_name, True, "topic_name")
            buffer += _I.pack(self.num_partitions)
            write_structs(out, self.partition_metadata, True, PartitionMetadata._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicMetadata], int]:
        found: list[TopicMetadata] = []
        for _ in range(count):
            self = TopicMetadata()
            self.topic_id, at = read_uuid(data, at)
            self.topic_name, at = read_string(data, at, True, "topic_name")
            (self.num_partitions,) = _I.unpack_from(data, at)
            at += 4
            self.partition_metadata, at = read_structs(
                data,
                at,
                True,
                6,
                "partition_metadata",
                PartitionMetadata._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ShareGroupPartitionMetadataValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: metadata of a share group's topics at the last computation of its assignment.

    topics: Topics subscribed to.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    topics: list[TopicMetadata] = field(default_factory=list)  # []TopicMetadata, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.topics, True, TopicMetadata._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupPartitionMetadataValue, int]:
        self = ShareGroupPartitionMetadataValue()
        self.topics, at = read_structs(data, at, True, 23, "topics", TopicMetadata._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
