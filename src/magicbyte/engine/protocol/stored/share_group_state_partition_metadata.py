"""Generated from ShareGroupStatePartitionMetadataKey.json and ShareGroupStatePartitionMetadataValue.json. Do not edit:

the schema compiler makes it.
ShareGroupStatePartitionMetadataKey: version 15.
ShareGroupStatePartitionMetadataValue: version 0, flexible 0+.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer


class ShareGroupStatePartitionMetadataKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of the initialization of a share group's partitions at the share coordinator. It
    follows the int16 15, its type.

    group_id: Share group by its group.id, as its consumers are configured.
    """

    VALID_VERSIONS = range(15, 16)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 15

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupStatePartitionMetadataKey, int]:
        self = ShareGroupStatePartitionMetadataKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        return self, at


class TopicPartitionsInfo(Struct, gc=False, kw_only=True):
    """Partitions of one topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    topic_name: Topic by its name, which is unique in the cluster.
    partitions: Numbers of the partitions.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    topic_name: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicPartitionsInfo], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_string(buffer, self.topic_name, True, "topic_name")
            write_numbers(buffer, self.partitions, True, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicPartitionsInfo], int]:
        found: list[TopicPartitionsInfo] = []
        for _ in range(count):
            self = TopicPartitionsInfo()
            self.topic_id, at = read_uuid(data, at)
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class TopicInfo(Struct, gc=False, kw_only=True):
    """One topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    topic_name: Topic by its name, which is unique in the cluster.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    topic_name: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicInfo], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_string(buffer, self.topic_name, True, "topic_name")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicInfo], int]:
        found: list[TopicInfo] = []
        for _ in range(count):
            self = TopicInfo()
            self.topic_id, at = read_uuid(data, at)
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ShareGroupStatePartitionMetadataValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: which partitions of a share group the share coordinator keeps state for.

    initializing_topics: Partitions whose state the share coordinator was asked to keep, by topic. Not in the early
        form of Kafka 4.0.
    initialized_topics: Partitions whose state is kept, by topic.
    deleting_topics: Topics of which the share coordinator is to forget the state.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    initializing_topics: list[TopicPartitionsInfo] = field(default_factory=list)  # []TopicPartitionsInfo, versions 0+
    initialized_topics: list[TopicPartitionsInfo] = field(default_factory=list)  # []TopicPartitionsInfo, versions 0+
    deleting_topics: list[TopicInfo] = field(default_factory=list)  # []TopicInfo, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.initializing_topics, True, TopicPartitionsInfo._write_each, version)
        write_structs(out, self.initialized_topics, True, TopicPartitionsInfo._write_each, version)
        write_structs(out, self.deleting_topics, True, TopicInfo._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupStatePartitionMetadataValue, int]:
        self = ShareGroupStatePartitionMetadataValue()
        self.initializing_topics, at = read_structs(
            data,
            at,
            True,
            19,
            "initializing_topics",
            TopicPartitionsInfo._read_each,
            version,
        )
        self.initialized_topics, at = read_structs(
            data,
            at,
            True,
            19,
            "initialized_topics",
            TopicPartitionsInfo._read_each,
            version,
        )
        self.deleting_topics, at = read_structs(data, at, True, 18, "deleting_topics", TopicInfo._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
