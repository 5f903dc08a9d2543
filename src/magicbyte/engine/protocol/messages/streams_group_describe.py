"""Generated from StreamsGroupDescribeRequest.json and StreamsGroupDescribeResponse.json. Do not edit: the schema

compiler makes it.
StreamsGroupDescribeRequest: versions 0-1, flexible 0+.
StreamsGroupDescribeResponse: versions 0-1, flexible 0+.
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

_B = struct.Struct(">b")
_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_II = struct.Struct(">ii")
_IQ = struct.Struct(">iq")
_T = struct.Struct(">?")
_TT = struct.Struct(">??")
_UH = struct.Struct(">H")


class StreamsGroupDescribeRequest(Message, gc=False, kw_only=True):
    """Asks for the state and the members of groups of Kafka Streams applications (KIP-1071); sent to their coordinator.

    group_ids: Groups to describe, by their group.id.
    include_authorized_operations: Whether the response lists the operations that the caller may perform on each
        group.
    include_topology_description: Whether the response has the full description of each topology, if the broker
        stores it.
    """

    API_KEY = 89
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    group_ids: list[str] = field(default_factory=list)  # []string, versions 0+
    include_authorized_operations: bool = False  # bool, versions 0+
    include_topology_description: bool = False  # bool, versions 1+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and self.include_topology_description:
            raise absent("include_topology_description")
        write_array(buffer, self.group_ids, True, write_string, True, "group_ids")
        if version >= 1:
            buffer += _TT.pack(self.include_authorized_operations, self.include_topology_description)
        else:
            buffer += _T.pack(self.include_authorized_operations)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupDescribeRequest, int]:
        self = StreamsGroupDescribeRequest()
        self.group_ids, at = read_array(data, at, True, 1, "group_ids", read_string, True, "group_ids")
        if version >= 1:
            self.include_authorized_operations, self.include_topology_description = _TT.unpack_from(data, at)
            at += 2
        else:
            (self.include_authorized_operations,) = _T.unpack_from(data, at)
            at += 1
            self.include_topology_description = False
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


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


class Subtopology(Struct, gc=False, kw_only=True):
    """Parts of the application that exchange data through topics only; null if the topology is not valid for the
    present topics.

    subtopology_id: Name of the part.
    source_topics: Topics that it reads.
    repartition_sink_topics: Internal topics that it writes for other parts to read.
    state_changelog_topics: Internal topics that keep its state.
    repartition_source_topics: Internal topics that it reads, written by other parts.
    """

    subtopology_id: str = ""  # string, versions 0+
    source_topics: list[str] = field(default_factory=list)  # []string, versions 0+
    repartition_sink_topics: list[str] = field(default_factory=list)  # []string, versions 0+
    state_changelog_topics: list[TopicInfo] = field(default_factory=list)  # []TopicInfo, versions 0+
    repartition_source_topics: list[TopicInfo] = field(default_factory=list)  # []TopicInfo, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Subtopology], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.subtopology_id, True, "subtopology_id")
            write_array(buffer, self.source_topics, True, write_string, True, "source_topics")
            write_array(buffer, self.repartition_sink_topics, True, write_string, True, "repartition_sink_topics")
            write_structs(out, self.state_changelog_topics, True, TopicInfo._write_each, version)
            write_structs(out, self.repartition_source_topics, True, TopicInfo._write_each, version)
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
            self.state_changelog_topics, at = read_structs(
                data,
                at,
                True,
                9,
                "state_changelog_topics",
                TopicInfo._read_each,
                version,
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
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class Topology(Struct, gc=False, kw_only=True):
    """Topology of the application; null if no member has sent it yet.

    epoch: Epoch of the topology, set by the application.
    subtopologies: Parts of the application that exchange data through topics only; null if the topology is not valid
        for the present topics.
    """

    epoch: int = 0  # int32, versions 0+
    subtopologies: list[Subtopology] | None = None  # []Subtopology, versions 0+, nullable
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
        self.subtopologies, at = read_nullable_structs(
            data,
            at,
            True,
            6,
            "subtopologies",
            Subtopology._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class Endpoint(Struct, gc=False, kw_only=True):
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
    def _read(data: memoryview, at: int, version: int) -> tuple[Endpoint, int]:
        self = Endpoint()
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


class TaskIds(Struct, gc=False, kw_only=True):
    """Tasks of one part of the application.

    subtopology_id: Part of the application.
    partitions: Numbers of the partitions that the tasks work on.
    """

    subtopology_id: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TaskIds], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.subtopology_id, True, "subtopology_id")
            write_numbers(buffer, self.partitions, True, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TaskIds], int]:
        found: list[TaskIds] = []
        for _ in range(count):
            self = TaskIds()
            self.subtopology_id, at = read_string(data, at, True, "subtopology_id")
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class Assignment(Struct, gc=False, kw_only=True):
    """A set of tasks.

    active_tasks: Tasks that do the work.
    standby_tasks: Tasks that keep a copy of the state, to take over.
    warmup_tasks: Tasks that build up a copy of the state before they move to the member.
    """

    active_tasks: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    standby_tasks: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    warmup_tasks: list[TaskIds] = field(default_factory=list)  # []TaskIds, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.active_tasks, True, TaskIds._write_each, version)
        write_structs(out, self.standby_tasks, True, TaskIds._write_each, version)
        write_structs(out, self.warmup_tasks, True, TaskIds._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[Assignment, int]:
        self = Assignment()
        self.active_tasks, at = read_structs(data, at, True, 3, "active_tasks", TaskIds._read_each, version)
        self.standby_tasks, at = read_structs(data, at, True, 3, "standby_tasks", TaskIds._read_each, version)
        self.warmup_tasks, at = read_structs(data, at, True, 3, "warmup_tasks", TaskIds._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return (
            len(self.active_tasks) > 0
            or len(self.standby_tasks) > 0
            or len(self.warmup_tasks) > 0
            or len(self.unknown_tags) > 0
        )


class Member(Struct, gc=False, kw_only=True):
    """Members of the group.

    member_id: Id of the member, the same for as long as it runs.
    member_epoch: Group epoch that the member has reached.
    instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member.
    rack_id: Rack or zone of the member (client.rack); null if it has none.
    client_id: The member's client.id.
    client_host: Address from which the member is connected, with a slash in front.
    topology_epoch: Epoch of the topology that the member runs.
    process_id: Process that the member runs in; members in one process share their state's disk.
    user_endpoint: Address at which the application answers queries about its state; null if it does not.
    client_tags: Tags that show where the member runs, for spreading standby tasks.
    task_offsets: Offsets up to which the member has restored the state of its tasks.
    task_end_offsets: End offsets of the state of its tasks, as known to the member.
    assignment: Tasks that the member has now.
    target_assignment: Tasks that the member is going to have.
    is_classic: True if the member still speaks the classic protocol.
    """

    member_id: str = ""  # string, versions 0+
    member_epoch: int = 0  # int32, versions 0+
    instance_id: str | None = None  # string, versions 0+, nullable
    rack_id: str | None = None  # string, versions 0+, nullable
    client_id: str = ""  # string, versions 0+
    client_host: str = ""  # string, versions 0+
    topology_epoch: int = 0  # int32, versions 0+
    process_id: str = ""  # string, versions 0+
    user_endpoint: Endpoint | None = None  # Endpoint, versions 0+, nullable
    client_tags: list[KeyValue] = field(default_factory=list)  # []KeyValue, versions 0+
    task_offsets: list[TaskOffset] = field(default_factory=list)  # []TaskOffset, versions 0+
    task_end_offsets: list[TaskOffset] = field(default_factory=list)  # []TaskOffset, versions 0+
    assignment: Assignment = field(default_factory=Assignment)  # Assignment, versions 0+
    target_assignment: Assignment = field(default_factory=Assignment)  # Assignment, versions 0+
    is_classic: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Member], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.member_id, True, "member_id")
            buffer += _I.pack(self.member_epoch)
            write_nullable_string(buffer, self.instance_id, True, "instance_id")
            write_nullable_string(buffer, self.rack_id, True, "rack_id")
            write_string(buffer, self.client_id, True, "client_id")
            write_string(buffer, self.client_host, True, "client_host")
            buffer += _I.pack(self.topology_epoch)
            write_string(buffer, self.process_id, True, "process_id")
            write_nullable_struct(out, self.user_endpoint, version)
            write_structs(out, self.client_tags, True, KeyValue._write_each, version)
            write_structs(out, self.task_offsets, True, TaskOffset._write_each, version)
            write_structs(out, self.task_end_offsets, True, TaskOffset._write_each, version)
            self.assignment._write(out, version)
            self.target_assignment._write(out, version)
            buffer += _T.pack(self.is_classic)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[Member], int]:
        found: list[Member] = []
        for _ in range(count):
            self = Member()
            self.member_id, at = read_string(data, at, True, "member_id")
            (self.member_epoch,) = _I.unpack_from(data, at)
            at += 4
            self.instance_id, at = read_nullable_string(data, at, True, "instance_id")
            self.rack_id, at = read_nullable_string(data, at, True, "rack_id")
            self.client_id, at = read_string(data, at, True, "client_id")
            self.client_host, at = read_string(data, at, True, "client_host")
            (self.topology_epoch,) = _I.unpack_from(data, at)
            at += 4
            self.process_id, at = read_string(data, at, True, "process_id")
            self.user_endpoint, at = read_nullable_struct(data, at, version, "user_endpoint", Endpoint._read)
            self.client_tags, at = read_structs(data, at, True, 3, "client_tags", KeyValue._read_each, version)
            self.task_offsets, at = read_structs(data, at, True, 14, "task_offsets", TaskOffset._read_each, version)
            self.task_end_offsets, at = read_structs(
                data,
                at,
                True,
                14,
                "task_end_offsets",
                TaskOffset._read_each,
                version,
            )
            self.assignment, at = Assignment._read(data, at, version)
            self.target_assignment, at = Assignment._read(data, at, version)
            (self.is_classic,) = _T.unpack_from(data, at)
            at += 1
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class TopologyDescriptionNode(Struct, gc=False, kw_only=True):
    """One node of the graph.

    name: Name of the node, unique in the topology.
    node_type: 1 source, 2 processor, 3 sink.
    source_topics: Topics that a source reads; empty if they are known only at run time.
    sink_topic: Topic that a sink writes; null if it is known only at run time.
    stores: Names of the state stores that a processor uses.
    successors: Names of the nodes that get its output.
    """

    name: str = ""  # string, versions 1+
    node_type: int = 0  # int8, versions 1+
    source_topics: list[str] = field(default_factory=list)  # []string, versions 1+
    sink_topic: str | None = None  # string, versions 1+, nullable
    stores: list[str] = field(default_factory=list)  # []string, versions 1+
    successors: list[str] = field(default_factory=list)  # []string, versions 1+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.name, True, "name")
        buffer += _B.pack(self.node_type)
        write_array(buffer, self.source_topics, True, write_string, True, "source_topics")
        write_nullable_string(buffer, self.sink_topic, True, "sink_topic")
        write_array(buffer, self.stores, True, write_string, True, "stores")
        write_array(buffer, self.successors, True, write_string, True, "successors")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _write_each(structs: Sequence[TopologyDescriptionNode], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            buffer += _B.pack(self.node_type)
            write_array(buffer, self.source_topics, True, write_string, True, "source_topics")
            write_nullable_string(buffer, self.sink_topic, True, "sink_topic")
            write_array(buffer, self.stores, True, write_string, True, "stores")
            write_array(buffer, self.successors, True, write_string, True, "successors")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[TopologyDescriptionNode, int]:
        self = TopologyDescriptionNode()
        self.name, at = read_string(data, at, True, "name")
        (self.node_type,) = _B.unpack_from(data, at)
        at += 1
        self.source_topics, at = read_array(data, at, True, 1, "source_topics", read_string, True, "source_topics")
        self.sink_topic, at = read_nullable_string(data, at, True, "sink_topic")
        self.stores, at = read_array(data, at, True, 1, "stores", read_string, True, "stores")
        self.successors, at = read_array(data, at, True, 1, "successors", read_string, True, "successors")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopologyDescriptionNode], int]:
        found: list[TopologyDescriptionNode] = []
        for _ in range(count):
            self = TopologyDescriptionNode()
            self.name, at = read_string(data, at, True, "name")
            (self.node_type,) = _B.unpack_from(data, at)
            at += 1
            self.source_topics, at = read_array(data, at, True, 1, "source_topics", read_string, True, "source_topics")
            self.sink_topic, at = read_nullable_string(data, at, True, "sink_topic")
            self.stores, at = read_array(data, at, True, 1, "stores", read_string, True, "stores")
            self.successors, at = read_array(data, at, True, 1, "successors", read_string, True, "successors")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    def _is_set(self) -> bool:
        return (
            self.name != ""
            or self.node_type != 0
            or len(self.source_topics) > 0
            or self.sink_topic is not None
            or len(self.stores) > 0
            or len(self.successors) > 0
            or len(self.unknown_tags) > 0
        )


class TopologyDescriptionSubtopology(Struct, gc=False, kw_only=True):
    """One part of the graph.

    subtopology_id: Name of the part.
    nodes: Steps of its work, in no order.
    """

    subtopology_id: str = ""  # string, versions 1+
    nodes: list[TopologyDescriptionNode] = field(default_factory=list)  # []TopologyDescriptionNode, versions 1+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopologyDescriptionSubtopology], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.subtopology_id, True, "subtopology_id")
            write_structs(out, self.nodes, True, TopologyDescriptionNode._write_each, version)
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
    ) -> tuple[list[TopologyDescriptionSubtopology], int]:
        found: list[TopologyDescriptionSubtopology] = []
        for _ in range(count):
            self = TopologyDescriptionSubtopology()
            self.subtopology_id, at = read_string(data, at, True, "subtopology_id")
            self.nodes, at = read_structs(data, at, True, 7, "nodes", TopologyDescriptionNode._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class TopologyDescriptionGlobalStore(Struct, gc=False, kw_only=True):
    """One global state store.

    source: Node that reads its topic.
    processor: Node that fills it.
    """

    # TopologyDescriptionNode, versions 1+
    source: TopologyDescriptionNode = field(default_factory=TopologyDescriptionNode)
    # TopologyDescriptionNode, versions 1+
    processor: TopologyDescriptionNode = field(default_factory=TopologyDescriptionNode)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopologyDescriptionGlobalStore], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            self.source._write(out, version)
            self.processor._write(out, version)
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
    ) -> tuple[list[TopologyDescriptionGlobalStore], int]:
        found: list[TopologyDescriptionGlobalStore] = []
        for _ in range(count):
            self = TopologyDescriptionGlobalStore()
            self.source, at = TopologyDescriptionNode._read(data, at, version)
            self.processor, at = TopologyDescriptionNode._read(data, at, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class TopologyDescription(Struct, gc=False, kw_only=True):
    """The whole processing graph of an application.

    subtopologies: Parts that exchange data through topics only.
    global_stores: State that every instance of the application has in full.
    """

    # []TopologyDescriptionSubtopology, versions 1+
    subtopologies: list[TopologyDescriptionSubtopology] = field(default_factory=list)
    # []TopologyDescriptionGlobalStore, versions 1+
    global_stores: list[TopologyDescriptionGlobalStore] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.subtopologies, True, TopologyDescriptionSubtopology._write_each, version)
        write_structs(out, self.global_stores, True, TopologyDescriptionGlobalStore._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[TopologyDescription, int]:
        self = TopologyDescription()
        self.subtopologies, at = read_structs(
            data,
            at,
            True,
            3,
            "subtopologies",
            TopologyDescriptionSubtopology._read_each,
            version,
        )
        self.global_stores, at = read_structs(
            data,
            at,
            True,
            15,
            "global_stores",
            TopologyDescriptionGlobalStore._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class DescribedGroup(Struct, gc=False, kw_only=True):
    """One entry per group.

    error_code: Error of this group; 0 means none. 69 says that there is no such group, or that it is none of this
        kind.
    error_message: Error message; null without an error, or if the broker sends none.
    group_id: Group by its id, the application.id of Kafka Streams.
    group_state: Empty, NotReady, Assigning, Reconciling, Stable or Dead; empty text with an error.
    group_epoch: Grows whenever members or the topology change.
    assignment_epoch: Group epoch for which the target assignment was computed.
    topology: Topology of the application; null if no member has sent it yet.
    members: Members of the group.
    authorized_operations: Operations that the caller may perform on the group: bit n stands for ACL operation number
        n. -2147483648 if not requested.
    topology_description: Full description of the topology; null unless the status is 3.
    topology_description_status: 0 not requested, 1 none is stored, 2 it cannot be read, 3 it is there.
    assignor_name: Assignor of the next assignment, which may be another one than that of the present; null with an
        error.
    """

    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    group_id: str = ""  # string, versions 0+
    group_state: str = ""  # string, versions 0+
    group_epoch: int = 0  # int32, versions 0+
    assignment_epoch: int = 0  # int32, versions 0+
    topology: Topology | None = None  # Topology, versions 0+, nullable
    members: list[Member] = field(default_factory=list)  # []Member, versions 0+
    authorized_operations: int = -2147483648  # int32, versions 0+
    topology_description: TopologyDescription | None = None  # TopologyDescription, versions 1+, nullable
    topology_description_status: int = 0  # int8, versions 1+
    assignor_name: str | None = None  # string, versions 1+, nullable, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribedGroup], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version < 1 and self.topology_description is not None:
                raise absent("topology_description")
            if version < 1 and self.topology_description_status != 0:
                raise absent("topology_description_status")
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            write_string(buffer, self.group_id, True, "group_id")
            write_string(buffer, self.group_state, True, "group_state")
            buffer += _II.pack(self.group_epoch, self.assignment_epoch)
            write_nullable_struct(out, self.topology, version)
            write_structs(out, self.members, True, Member._write_each, version)
            buffer += _I.pack(self.authorized_operations)
            if version >= 1:
                write_nullable_struct(out, self.topology_description, version)
                buffer += _B.pack(self.topology_description_status)
                write_nullable_string(buffer, self.assignor_name, True, "assignor_name")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribedGroup], int]:
        found: list[DescribedGroup] = []
        for _ in range(count):
            self = DescribedGroup()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.group_id, at = read_string(data, at, True, "group_id")
            self.group_state, at = read_string(data, at, True, "group_state")
            self.group_epoch, self.assignment_epoch = _II.unpack_from(data, at)
            at += 8
            self.topology, at = read_nullable_struct(data, at, version, "topology", Topology._read)
            self.members, at = read_structs(data, at, True, 28, "members", Member._read_each, version)
            (self.authorized_operations,) = _I.unpack_from(data, at)
            at += 4
            if version >= 1:
                self.topology_description, at = read_nullable_struct(
                    data,
                    at,
                    version,
                    "topology_description",
                    TopologyDescription._read,
                )
                (self.topology_description_status,) = _B.unpack_from(data, at)
                at += 1
                self.assignor_name, at = read_nullable_string(data, at, True, "assignor_name")
            else:
                self.topology_description = None
                self.topology_description_status = 0
                self.assignor_name = None
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class StreamsGroupDescribeResponse(Message, gc=False, kw_only=True):
    """State, topology, members and tasks of each group.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    groups: One entry per group.
    """

    API_KEY = 89
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    throttle_time_ms: int = 0  # int32, versions 0+
    groups: list[DescribedGroup] = field(default_factory=list)  # []DescribedGroup, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.groups, True, DescribedGroup._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupDescribeResponse, int]:
        self = StreamsGroupDescribeResponse()
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.groups, at = read_structs(data, at, True, 20, "groups", DescribedGroup._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
