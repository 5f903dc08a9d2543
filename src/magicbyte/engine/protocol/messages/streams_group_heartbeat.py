"""Generated from StreamsGroupHeartbeatRequest.json and StreamsGroupHeartbeatResponse.json. Do not edit: the schema

compiler makes it.
StreamsGroupHeartbeatRequest: versions 0-1, flexible 0+.
StreamsGroupHeartbeatResponse: versions 0-1, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_array,
    read_nullable_string,
    read_nullable_struct,
    read_nullable_structs,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_array,
    write_nullable_string,
    write_nullable_struct,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Shapes

_B = struct.Struct(">b")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_II = struct.Struct(">ii")
_IIII = struct.Struct(">iiii")
_IIIQ = struct.Struct(">iiiq")
_IQ = struct.Struct(">iq")
_SHAPES__H_H_H_COMPACT = Shapes("[h[h[h", flexible=True)
_T = struct.Struct(">?")
_TI = struct.Struct(">?i")
_UH = struct.Struct(">H")


class KeyValue(Struct, gc=False, kw_only=True):
    """A name with a value.

    key: Name of the setting or tag.
    value: Its value as text.
    """

    key: str = ""  # string, versions 0+
    value: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[KeyValue], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.key, True, "key")
            write_string(buffer, self.value, True, "value")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[KeyValue], int]:
        found: list[KeyValue] = []
        for _ in range(count):
            self = KeyValue()
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
    topic_configs: list[KeyValue] = field(default_factory=list)  # []KeyValue, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicInfo], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            buffer += _IH.pack(self.partitions, self.replication_factor)
            write_structs(out, self.topic_configs, True, KeyValue._write_each, version)
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
            self.topic_configs, at = read_structs(data, at, True, 3, "topic_configs", KeyValue._read_each, version)
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


class Topology(Struct, gc=False, kw_only=True):
    """Topology of the application; sent when joining, otherwise null.

    epoch: Epoch of the topology, by which the coordinator notices a new release of the application.
    subtopologies: Parts of the application that exchange data through topics only.
    """

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
    def _read(data: memoryview, at: int, version: int) -> tuple[Topology, int]:
        self = Topology()
        (self.epoch,) = _I.unpack_from(data, at)
        at += 4
        self.subtopologies, at = read_structs(data, at, True, 8, "subtopologies", Subtopology._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class StreamsGroupHeartbeatRequestTaskIds(Struct, gc=False, kw_only=True):
    """Tasks of one part of the application.

    subtopology_id: Part of the application.
    partitions: Numbers of the partitions that the tasks work on.
    """

    subtopology_id: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[StreamsGroupHeartbeatRequestTaskIds], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.subtopology_id, True, "subtopology_id")
            write_numbers(buffer, self.partitions, True, "i")
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
    ) -> tuple[list[StreamsGroupHeartbeatRequestTaskIds], int]:
        found: list[StreamsGroupHeartbeatRequestTaskIds] = []
        for _ in range(count):
            self = StreamsGroupHeartbeatRequestTaskIds()
            self.subtopology_id, at = read_string(data, at, True, "subtopology_id")
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class StreamsGroupHeartbeatRequestEndpoint(Struct, gc=False, kw_only=True):
    """An address.

    host: Host name or IP address.
    port: TCP port that belongs to the host.
    """

    host: str = ""  # string, versions 0+
    port: int = 0  # uint16, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.host, True, "host")
        buffer += _UH.pack(self.port)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupHeartbeatRequestEndpoint, int]:
        self = StreamsGroupHeartbeatRequestEndpoint()
        self.host, at = read_string(data, at, True, "host")
        (self.port,) = _UH.unpack_from(data, at)
        at += 2
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class TaskOffset(Struct, gc=False, kw_only=True):
    """A place in the state of one task.

    subtopology_id: Part of the application.
    partition: Number of the partition that the task works on.
    offset: Sum of the offsets in its changelog topics.
    """

    subtopology_id: str = ""  # string, versions 0+
    partition: int = 0  # int32, versions 0+
    offset: int = 0  # int64, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TaskOffset], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.subtopology_id, True, "subtopology_id")
            buffer += _IQ.pack(self.partition, self.offset)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TaskOffset], int]:
        found: list[TaskOffset] = []
        for _ in range(count):
            self = TaskOffset()
            self.subtopology_id, at = read_string(data, at, True, "subtopology_id")
            self.partition, self.offset = _IQ.unpack_from(data, at)
            at += 12
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class StreamsGroupHeartbeatRequest(Message, gc=False, kw_only=True):
    """The one request of a Kafka Streams member (KIP-1071): joins with its topology, stays in, confirms tasks, leaves.
    Fields left at their defaults did not change.

    group_id: Group of the member, the application.id.
    member_id: Id of the member, made by the client.
    member_epoch: Epoch of the member as the last answer gave it; 0 joins, -1 leaves, -2 is a static member that
        leaves for a while.
    endpoint_information_epoch: Epoch of the endpoints as the last answer gave it, so that they are only sent when
        changed.
    instance_id: Static member's own permanent name (group.instance.id); null if it has none or as before.
    rack_id: Rack or zone of the member (client.rack); null if it has none or as before.
    rebalance_timeout_ms: Milliseconds that the member may take to revoke tasks; -1 as before.
    topology: Topology of the application; sent when joining, otherwise null.
    active_tasks: Tasks that the member has and that do the work; null as before.
    standby_tasks: Tasks that keep a copy of the state, to take over; null as before.
    warmup_tasks: Tasks that build up a copy of the state before they move to the member; null as before.
    process_id: Process that the member runs in; null as before.
    user_endpoint: Address at which the application answers queries about its state; null if it does not, or as
        before.
    client_tags: Tags that show where the member runs, for spreading standby tasks; null as before.
    task_offsets: Offsets up to which the member has restored the state of its tasks; null as before.
    task_end_offsets: End offsets of the state of its tasks, as known to the member; null as before.
    shutdown_application: True asks all members of the group to stop.
    """

    API_KEY = 88
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    group_id: str = ""  # string, versions 0+
    member_id: str = ""  # string, versions 0+
    member_epoch: int = 0  # int32, versions 0+
    endpoint_information_epoch: int = 0  # int32, versions 0+
    instance_id: str | None = None  # string, versions 0+, nullable
    rack_id: str | None = None  # string, versions 0+, nullable
    rebalance_timeout_ms: int = -1  # int32, versions 0+
    topology: Topology | None = None  # Topology, versions 0+, nullable
    active_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None  # []TaskIds, versions 0+, nullable
    standby_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None  # []TaskIds, versions 0+, nullable
    warmup_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None  # []TaskIds, versions 0+, nullable
    process_id: str | None = None  # string, versions 0+, nullable
    user_endpoint: StreamsGroupHeartbeatRequestEndpoint | None = None  # Endpoint, versions 0+, nullable
    client_tags: list[KeyValue] | None = None  # []KeyValue, versions 0+, nullable
    task_offsets: list[TaskOffset] | None = None  # []TaskOffset, versions 0+, nullable
    task_end_offsets: list[TaskOffset] | None = None  # []TaskOffset, versions 0+, nullable
    shutdown_application: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, True, "group_id")
        write_string(buffer, self.member_id, True, "member_id")
        buffer += _II.pack(self.member_epoch, self.endpoint_information_epoch)
        write_nullable_string(buffer, self.instance_id, True, "instance_id")
        write_nullable_string(buffer, self.rack_id, True, "rack_id")
        buffer += _I.pack(self.rebalance_timeout_ms)
        write_nullable_struct(out, self.topology, version)
        write_structs(out, self.active_tasks, True, StreamsGroupHeartbeatRequestTaskIds._write_each, version)
        write_structs(out, self.standby_tasks, True, StreamsGroupHeartbeatRequestTaskIds._write_each, version)
        write_structs(out, self.warmup_tasks, True, StreamsGroupHeartbeatRequestTaskIds._write_each, version)
        write_nullable_string(buffer, self.process_id, True, "process_id")
        write_nullable_struct(out, self.user_endpoint, version)
        write_structs(out, self.client_tags, True, KeyValue._write_each, version)
        write_structs(out, self.task_offsets, True, TaskOffset._write_each, version)
        write_structs(out, self.task_end_offsets, True, TaskOffset._write_each, version)
        buffer += _T.pack(self.shutdown_application)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupHeartbeatRequest, int]:
        self = StreamsGroupHeartbeatRequest()
        self.group_id, at = read_string(data, at, True, "group_id")
        self.member_id, at = read_string(data, at, True, "member_id")
        self.member_epoch, self.endpoint_information_epoch = _II.unpack_from(data, at)
        at += 8
        self.instance_id, at = read_nullable_string(data, at, True, "instance_id")
        self.rack_id, at = read_nullable_string(data, at, True, "rack_id")
        (self.rebalance_timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        self.topology, at = read_nullable_struct(data, at, version, "topology", Topology._read)
        self.active_tasks, at = read_nullable_structs(
            data,
            at,
            True,
            3,
            "active_tasks",
            StreamsGroupHeartbeatRequestTaskIds._read_each,
            version,
        )
        self.standby_tasks, at = read_nullable_structs(
            data,
            at,
            True,
            3,
            "standby_tasks",
            StreamsGroupHeartbeatRequestTaskIds._read_each,
            version,
        )
        self.warmup_tasks, at = read_nullable_structs(
            data,
            at,
            True,
            3,
            "warmup_tasks",
            StreamsGroupHeartbeatRequestTaskIds._read_each,
            version,
        )
        self.process_id, at = read_nullable_string(data, at, True, "process_id")
        self.user_endpoint, at = read_nullable_struct(
            data,
            at,
            version,
            "user_endpoint",
            StreamsGroupHeartbeatRequestEndpoint._read,
        )
        self.client_tags, at = read_nullable_structs(data, at, True, 3, "client_tags", KeyValue._read_each, version)
        self.task_offsets, at = read_nullable_structs(
            data,
            at,
            True,
            14,
            "task_offsets",
            TaskOffset._read_each,
            version,
        )
        self.task_end_offsets, at = read_nullable_structs(
            data,
            at,
            True,
            14,
            "task_end_offsets",
            TaskOffset._read_each,
            version,
        )
        (self.shutdown_application,) = _T.unpack_from(data, at)
        at += 1
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class Status(Struct, gc=False, kw_only=True):
    """One hindrance.

    status_code: 0 old topology, 1 source topics missing, 2 topics wrongly partitioned, 3 internal topics missing, 4
        the application is to stop, 5 assignment delayed.
    status_detail: The status as a text.
    """

    status_code: int = 0  # int8, versions 0+
    status_detail: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Status], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _B.pack(self.status_code)
            write_string(buffer, self.status_detail, True, "status_detail")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[Status], int]:
        found: list[Status] = []
        for _ in range(count):
            self = Status()
            (self.status_code,) = _B.unpack_from(data, at)
            at += 1
            self.status_detail, at = read_string(data, at, True, "status_detail")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class StreamsGroupHeartbeatResponseTaskIds(Struct, gc=False, kw_only=True):
    """Tasks of one part of the application.

    subtopology_id: Part of the application.
    partitions: Numbers of the partitions that the tasks work on.
    """

    subtopology_id: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[StreamsGroupHeartbeatResponseTaskIds], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.subtopology_id, True, "subtopology_id")
            write_numbers(buffer, self.partitions, True, "i")
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
    ) -> tuple[list[StreamsGroupHeartbeatResponseTaskIds], int]:
        found: list[StreamsGroupHeartbeatResponseTaskIds] = []
        for _ in range(count):
            self = StreamsGroupHeartbeatResponseTaskIds()
            self.subtopology_id, at = read_string(data, at, True, "subtopology_id")
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class StreamsGroupHeartbeatResponseEndpoint(Struct, gc=False, kw_only=True):
    """An address.

    host: Host name or IP address.
    port: TCP port that belongs to the host.
    """

    host: str = ""  # string, versions 0+
    port: int = 0  # uint16, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.host, True, "host")
        buffer += _UH.pack(self.port)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupHeartbeatResponseEndpoint, int]:
        self = StreamsGroupHeartbeatResponseEndpoint()
        self.host, at = read_string(data, at, True, "host")
        (self.port,) = _UH.unpack_from(data, at)
        at += 2
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return self.host != "" or self.port != 0 or len(self.unknown_tags) > 0


class TopicPartition(Struct, gc=False, kw_only=True):
    """Partitions of one topic.

    topic: Name of the topic, unique in the cluster.
    partitions: Numbers of the partitions.
    """

    topic: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicPartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic, True, "topic")
            write_numbers(buffer, self.partitions, True, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicPartition], int]:
        found: list[TopicPartition] = []
        for _ in range(count):
            self = TopicPartition()
            self.topic, at = read_string(data, at, True, "topic")
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class EndpointToPartitions(Struct, gc=False, kw_only=True):
    """Endpoints of members with their partitions, for queries; null as before.

    user_endpoint: Address of the member.
    active_partitions: Partitions of its active tasks, by topic.
    standby_partitions: Partitions of its standby tasks, by topic.
    """

    # Endpoint, versions 0+
    user_endpoint: StreamsGroupHeartbeatResponseEndpoint = field(default_factory=StreamsGroupHeartbeatResponseEndpoint)
    active_partitions: list[TopicPartition] = field(default_factory=list)  # []TopicPartition, versions 0+
    standby_partitions: list[TopicPartition] = field(default_factory=list)  # []TopicPartition, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[EndpointToPartitions], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            self.user_endpoint._write(out, version)
            write_structs(out, self.active_partitions, True, TopicPartition._write_each, version)
            write_structs(out, self.standby_partitions, True, TopicPartition._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[EndpointToPartitions], int]:
        found: list[EndpointToPartitions] = []
        for _ in range(count):
            self = EndpointToPartitions()
            self.user_endpoint, at = StreamsGroupHeartbeatResponseEndpoint._read(data, at, version)
            self.active_partitions, at = read_structs(
                data,
                at,
                True,
                3,
                "active_partitions",
                TopicPartition._read_each,
                version,
            )
            self.standby_partitions, at = read_structs(
                data,
                at,
                True,
                3,
                "standby_partitions",
                TopicPartition._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class StreamsGroupHeartbeatResponse(Message, gc=False, kw_only=True):
    """What the Kafka Streams member has to do next.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error; 0 means none. 25 and 110 ask the member to rejoin with epoch 0; 130 to 132 concern the
        topology.
    error_message: Error message; null without an error, or if the broker sends none.
    member_id: Id of the member, the same for as long as it runs.
    member_epoch: Epoch of the member, to be sent next time.
    heartbeat_interval_ms: Milliseconds until the next heartbeat is due.
    acceptable_recovery_lag_legacy: Maximum lag of a warm-up task that counts as ready, in offsets.
    task_offset_interval_ms: Milliseconds between two reports of task offsets.
    acceptable_recovery_lag: Maximum lag of a warm-up task that counts as ready, in offsets; -1 if the broker has no
        such limit.
    status: Problems of the group; null as before.
    active_tasks: Tasks that the member is to have and that do the work; null as before.
    standby_tasks: Tasks that are to keep a copy of the state; null as before.
    warmup_tasks: Tasks that are to build up a copy of the state; null as before.
    topology_description_required: Whether the member is to send the description of its topology with
        StreamsGroupTopologyDescriptionUpdate.
    endpoint_information_epoch: Epoch of the endpoints below, to be sent next time.
    partitions_by_user_endpoint: Endpoints of members with their partitions, for queries; null as before.
    """

    API_KEY = 88
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    member_id: str = ""  # string, versions 0+
    member_epoch: int = 0  # int32, versions 0+
    heartbeat_interval_ms: int = 0  # int32, versions 0+
    acceptable_recovery_lag_legacy: int = 0  # int32, versions 0
    task_offset_interval_ms: int = 0  # int32, versions 0+
    acceptable_recovery_lag: int = -1  # int64, versions 1+, ignorable
    status: list[Status] | None = field(default_factory=list)  # []Status, versions 0+, nullable
    active_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None  # []TaskIds, versions 0+, nullable
    standby_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None  # []TaskIds, versions 0+, nullable
    warmup_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None  # []TaskIds, versions 0+, nullable
    topology_description_required: bool = False  # bool, versions 1+
    endpoint_information_epoch: int = 0  # int32, versions 0+
    # []EndpointToPartitions, versions 0+, nullable
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version > 0 and self.acceptable_recovery_lag_legacy != 0:
            raise absent("acceptable_recovery_lag_legacy")
        if version < 1 and self.topology_description_required:
            raise absent("topology_description_required")
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        write_string(buffer, self.member_id, True, "member_id")
        if version >= 1:
            buffer += _IIIQ.pack(
                self.member_epoch,
                self.heartbeat_interval_ms,
                self.task_offset_interval_ms,
                self.acceptable_recovery_lag,
            )
        else:
            buffer += _IIII.pack(
                self.member_epoch,
                self.heartbeat_interval_ms,
                self.acceptable_recovery_lag_legacy,
                self.task_offset_interval_ms,
            )
        write_structs(out, self.status, True, Status._write_each, version)
        write_structs(out, self.active_tasks, True, StreamsGroupHeartbeatResponseTaskIds._write_each, version)
        write_structs(out, self.standby_tasks, True, StreamsGroupHeartbeatResponseTaskIds._write_each, version)
        write_structs(out, self.warmup_tasks, True, StreamsGroupHeartbeatResponseTaskIds._write_each, version)
        if version >= 1:
            buffer += _TI.pack(self.topology_description_required, self.endpoint_information_epoch)
        else:
            buffer += _I.pack(self.endpoint_information_epoch)
        write_structs(out, self.partitions_by_user_endpoint, True, EndpointToPartitions._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupHeartbeatResponse, int]:
        self = StreamsGroupHeartbeatResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.member_id, at = read_string(data, at, True, "member_id")
        if version >= 1:
            (
                self.member_epoch,
                self.heartbeat_interval_ms,
                self.task_offset_interval_ms,
                self.acceptable_recovery_lag,
            ) = _IIIQ.unpack_from(data, at)
            at += 20
            self.acceptable_recovery_lag_legacy = 0
        else:
            (
                self.member_epoch,
                self.heartbeat_interval_ms,
                self.acceptable_recovery_lag_legacy,
                self.task_offset_interval_ms,
            ) = _IIII.unpack_from(data, at)
            at += 16
            self.acceptable_recovery_lag = -1
        self.status, at = read_nullable_structs(data, at, True, 3, "status", Status._read_each, version)
        self.active_tasks, at = read_nullable_structs(
            data,
            at,
            True,
            3,
            "active_tasks",
            StreamsGroupHeartbeatResponseTaskIds._read_each,
            version,
        )
        self.standby_tasks, at = read_nullable_structs(
            data,
            at,
            True,
            3,
            "standby_tasks",
            StreamsGroupHeartbeatResponseTaskIds._read_each,
            version,
        )
        self.warmup_tasks, at = read_nullable_structs(
            data,
            at,
            True,
            3,
            "warmup_tasks",
            StreamsGroupHeartbeatResponseTaskIds._read_each,
            version,
        )
        if version >= 1:
            self.topology_description_required, self.endpoint_information_epoch = _TI.unpack_from(data, at)
            at += 5
        else:
            (self.endpoint_information_epoch,) = _I.unpack_from(data, at)
            at += 4
            self.topology_description_required = False
        self.partitions_by_user_endpoint, at = read_nullable_structs(
            data,
            at,
            True,
            7,
            "partitions_by_user_endpoint",
            EndpointToPartitions._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
