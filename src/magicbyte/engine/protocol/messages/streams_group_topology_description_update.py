"""Generated from StreamsGroupTopologyDescriptionUpdateRequest.json and

StreamsGroupTopologyDescriptionUpdateResponse.json. Do not edit: the schema compiler makes it.
StreamsGroupTopologyDescriptionUpdateRequest: version 0, flexible 0+.
StreamsGroupTopologyDescriptionUpdateResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_array,
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    write_array,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_B = struct.Struct(">b")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")


class TopologyDescriptionNode(Struct, gc=False, kw_only=True):
    """One node of the graph.

    name: Name of the node, unique in the topology.
    node_type: 1 source, 2 processor, 3 sink.
    source_topics: Topics that a source reads; empty if they are known only at run time.
    sink_topic: Topic that a sink writes; null if it is known only at run time.
    stores: Names of the state stores that a processor uses.
    successors: Names of the nodes that get its output.
    """

    name: str = ""  # string, versions 0+
    node_type: int = 0  # int8, versions 0+
    source_topics: list[str] = field(default_factory=list)  # []string, versions 0+
    sink_topic: str | None = None  # string, versions 0+, nullable
    stores: list[str] = field(default_factory=list)  # []string, versions 0+
    successors: list[str] = field(default_factory=list)  # []string, versions 0+
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

    subtopology_id: str = ""  # string, versions 0+
    nodes: list[TopologyDescriptionNode] = field(default_factory=list)  # []TopologyDescriptionNode, versions 0+
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

    # TopologyDescriptionNode, versions 0+
    source: TopologyDescriptionNode = field(default_factory=TopologyDescriptionNode)
    # TopologyDescriptionNode, versions 0+
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

    # []TopologyDescriptionSubtopology, versions 0+
    subtopologies: list[TopologyDescriptionSubtopology] = field(default_factory=list)
    # []TopologyDescriptionGlobalStore, versions 0+
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

    def _is_set(self) -> bool:
        return len(self.subtopologies) > 0 or len(self.global_stores) > 0 or len(self.unknown_tags) > 0


class StreamsGroupTopologyDescriptionUpdateRequest(Message, gc=False, kw_only=True):
    """Hands the description of a Kafka Streams topology to the coordinator of its group, which keeps it for others
    (KIP-1331).

    group_id: Group of the member, the application.id.
    member_id: Id of the member that sends it, which must be in the group.
    topology_epoch: Epoch of the topology that is described.
    topology_description: Its whole processing graph.
    """

    API_KEY = 93
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    group_id: str = ""  # string, versions 0+
    member_id: str = ""  # string, versions 0+
    topology_epoch: int = 0  # int32, versions 0+
    # TopologyDescription, versions 0+
    topology_description: TopologyDescription = field(default_factory=TopologyDescription)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, True, "group_id")
        write_string(buffer, self.member_id, True, "member_id")
        buffer += _I.pack(self.topology_epoch)
        self.topology_description._write(out, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupTopologyDescriptionUpdateRequest, int]:
        self = StreamsGroupTopologyDescriptionUpdateRequest()
        self.group_id, at = read_string(data, at, True, "group_id")
        self.member_id, at = read_string(data, at, True, "member_id")
        (self.topology_epoch,) = _I.unpack_from(data, at)
        at += 4
        self.topology_description, at = TopologyDescription._read(data, at, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class StreamsGroupTopologyDescriptionUpdateResponse(Message, gc=False, kw_only=True):
    """Whether the description is stored.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error; 0 means stored. 25 asks the member to rejoin, 135 says that the description could not be
        stored.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    API_KEY = 93
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupTopologyDescriptionUpdateResponse, int]:
        self = StreamsGroupTopologyDescriptionUpdateResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
