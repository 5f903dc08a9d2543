"""Generated from StreamsGroupTopologyKey.json and StreamsGroupTopologyValue.json. Do not edit: the schema compiler

makes it.
StreamsGroupTopologyKey: version 23.
StreamsGroupTopologyValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_array,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_array,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Shapes

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_SHAPES__H_H_H_COMPACT = Shapes("[h[h[h", flexible=True)


class StreamsGroupTopologyKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of the topology of a Kafka Streams application. It follows the int16 23, its type.

    group_id: Group by its id, the application.id of Kafka Streams.
    """

    VALID_VERSIONS = range(23, 24)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 23

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupTopologyKey, int]:
        self = StreamsGroupTopologyKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        return self, at


class TopicConfig(Struct, gc=False, kw_only=True):
    """One setting.

    key: Name of the setting.
    value: Its value as text.
    """

    key: str = ""  # string, versions 0+
    value: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicConfig], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.key, True, "key")
            write_string(buffer, self.value, True, "value")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicConfig], int]:
        found: list[TopicConfig] = []
        for _ in range(count):
            self = TopicConfig()
            self.key, at = read_string(data, at, True, "key")
            self.value, at = read_string(data, at, True, "value")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class TopicInfo(Struct, gc=False, kw_only=True):
    """Requirements of an internal topic.

    name: Name of the topic.
    partitions: Number of its partitions; 0 if it follows from other topics.
    replication_factor: Number of replicas of each partition; 0 for the broker's default.
    topic_configs: Settings of the topic that differ from the broker's defaults.
    """

    name: str = ""  # string, versions 0+
    partitions: int = 0  # int32, versions 0+
    replication_factor: int = 0  # int16, versions 0+
    topic_configs: list[TopicConfig] = field(default_factory=list)  # []TopicConfig, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicInfo], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            buffer += _IH.pack(self.partitions, self.replication_factor)
            write_structs(out, self.topic_configs, True, TopicConfig._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicInfo], int]:
        found: list[TopicInfo] = []
        for _ in range(count):
            self = TopicInfo()
            self.name, at = read_string(data, at, True, "name")
            self.partitions, self.replication_factor = _IH.unpack_from(data, at)
            at += 6
            self.topic_configs, at = read_structs(data, at, True, 3, "topic_configs", TopicConfig._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class CopartitionGroup(Struct, gc=False, kw_only=True):
    """Topics that have to have equally many partitions.

    source_topics: Places of such topics in the list of source topics, counted from 0.
    source_topic_regex: Places of such patterns in the list of patterns, counted from 0.
    repartition_source_topics: Places of such topics in the list of internal topics that are read, counted from 0.
    """

    source_topics: tuple[int, ...] = ()  # []int16, versions 0+
    source_topic_regex: tuple[int, ...] = ()  # []int16, versions 0+
    repartition_source_topics: tuple[int, ...] = ()  # []int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[CopartitionGroup], out: Writer, version: int) -> None:
        buffer = out.buffer
        lengths: tuple[int, ...]
        for self in structs:
            lengths = len(self.source_topics), len(self.source_topic_regex), len(self.repartition_source_topics)
            buffer += _SHAPES__H_H_H_COMPACT[lengths](
                lengths[0] + 1,
                *self.source_topics,
                lengths[1] + 1,
                *self.source_topic_regex,
                lengths[2] + 1,
                *self.repartition_source_topics,
            )
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[CopartitionGroup], int]:
        found: list[CopartitionGroup] = []
        for _ in range(count):
            self = CopartitionGroup()
            self.source_topics, at = read_numbers(data, at, True, "h", "source_topics")
            self.source_topic_regex, at = read_numbers(data, at, True, "h", "source_topic_regex")
            self.repartition_source_topics, at = read_numbers(data, at, True, "h", "repartition_source_topics")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class Subtopology(Struct, gc=False, kw_only=True):
    """Parts of the application that exchange data through topics only.

    subtopology_id: Name of the part.
    source_topics: Topics that it reads.
    source_topic_regex: Patterns of the names of topics that it reads.
    state_changelog_topics: Internal topics that keep its state.
    repartition_sink_topics: Internal topics that it writes for other parts to read.
    repartition_source_topics: Internal topics that it reads, written by other parts.
    copartition_groups: Topics that have to have equally many partitions.
    """

    subtopology_id: str = ""  # string, versions 0+
    source_topics: list[str] = field(default_factory=list)  # []string, versions 0+
    source_topic_regex: list[str] = field(default_factory=list)  # []string, versions 0+
    state_changelog_topics: list[TopicInfo] = field(default_factory=list)  # []TopicInfo, versions 0+
    repartition_sink_topics: list[str] = field(default_factory=list)  # []string, versions 0+
    repartition_source_topics: list[TopicInfo] = field(default_factory=list)  # []TopicInfo, versions 0+
    copartition_groups: list[CopartitionGroup] = field(default_factory=list)  # []CopartitionGroup, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Subtopology], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.subtopology_id, True, "subtopology_id")
            write_array(buffer, self.source_topics, True, write_string, True, "source_topics")
            write_array(buffer, self.source_topic_regex, True, write_string, True, "source_topic_regex")
            write_structs(out, self.state_changelog_topics, True, TopicInfo._write_each, version)
            write_array(buffer, self.repartition_sink_topics, True, write_string, True, "repartition_sink_topics")
            write_structs(out, self.repartition_source_topics, True, TopicInfo._write_each, version)
            write_structs(out, self.copartition_groups, True, CopartitionGroup._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[Subtopology], int]:
        found: list[Subtopology] = []
        for _ in range(count):
            self = Subtopology()
            self.subtopology_id, at = read_string(data, at, True, "subtopology_id")
            self.source_topics, at = read_array(data, at, True, 1, "source_topics", read_string, True, "source_topics")
            self.source_topic_regex, at = read_array(
                data,
                at,
                True,
                1,
                "source_topic_regex",
                read_string,
                True,
                "source_topic_regex",
            )
            self.state_changelog_topics, at = read_structs(
                data,
                at,
                True,
                9,
                "state_changelog_topics",
                TopicInfo._read_each,
                version,
            )
            self.repartition_sink_topics, at = read_array(
                data,
                at,
                True,
                1,
                "repartition_sink_topics",
                read_string,
                True,
                "repartition_sink_topics",
            )
            self.repartition_source_topics, at = read_structs(
                data,
                at,
                True,
                9,
                "repartition_source_topics",
                TopicInfo._read_each,
                version,
            )
            self.copartition_groups, at = read_structs(
                data,
                at,
                True,
                4,
                "copartition_groups",
                CopartitionGroup._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class StreamsGroupTopologyValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: topology of a Kafka Streams application, as its members sent it; null if the group
    was deleted.

    epoch: Epoch of the topology.
    subtopologies: Parts of the application that exchange data through topics only.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    epoch: int = 0  # int32, versions 0+
    subtopologies: list[Subtopology] = field(default_factory=list)  # []Subtopology, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.epoch)
        write_structs(out, self.subtopologies, True, Subtopology._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupTopologyValue, int]:
        self = StreamsGroupTopologyValue()
        (self.epoch,) = _I.unpack_from(data, at)
        at += 4
        self.subtopologies, at = read_structs(data, at, True, 8, "subtopologies", Subtopology._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
