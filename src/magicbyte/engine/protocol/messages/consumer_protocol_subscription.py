"""Generated from ConsumerProtocolSubscription.json. Do not edit: the schema compiler makes it.

ConsumerProtocolSubscription: versions 0-3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_array,
    read_nullable_string,
    read_nullable_view,
    read_numbers,
    read_string,
    read_structs,
    write_array,
    write_nullable_records,
    write_nullable_string,
    write_numbers,
    write_string,
    write_structs,
)
from magicbyte.engine.protocol.message import Message, Records, Writer

_I = struct.Struct(">i")


class TopicPartition(Struct, gc=False, kw_only=True):
    """Partitions that the consumer has now and would keep if it may (cooperative rebalancing).

    topic: Name of the topic, unique in the cluster.
    partitions: Numbers of the partitions.
    """

    topic: str = ""  # string, versions 1+
    partitions: tuple[int, ...] = ()  # []int32, versions 1+

    @staticmethod
    def _write_each(structs: Sequence[TopicPartition], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic, False, "topic")
            write_numbers(buffer, self.partitions, False, "i")

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicPartition], int]:
        found: list[TopicPartition] = []
        for _ in range(count):
            self = TopicPartition()
            self.topic, at = read_string(data, at, False, "topic")
            self.partitions, at = read_numbers(data, at, False, "i", "partitions")
            found.append(self)
        return found, at


class ConsumerProtocolSubscription(Message, gc=False, kw_only=True):
    """Topics to which a consumer subscribes: the metadata in JoinGroup of groups of type consumer, after an int16
    version.

    topics: Topics that the member wants to read, by name.
    user_data: Bytes for the assignor alone, such as the sticky assignor's memory; null if it needs none.
    owned_partitions: Partitions that the consumer has now and would keep if it may (cooperative rebalancing).
    generation_id: Generation in which it got the owned partitions, so that old claims can be distinguished from new
        ones; -1 if it has none.
    rack_id: Rack or zone of the consumer (client.rack), for assignors that place readers near replicas; null if it
        has none.
    """

    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(0)

    topics: list[str] = field(default_factory=list)  # []string, versions 0+
    user_data: Records | None = None  # bytes, versions 0+, nullable
    owned_partitions: list[TopicPartition] = field(default_factory=list)  # []TopicPartition, versions 1+, ignorable
    generation_id: int = -1  # int32, versions 2+, ignorable
    rack_id: str | None = None  # string, versions 3+, nullable, ignorable

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_array(buffer, self.topics, False, write_string, False, "topics")
        write_nullable_records(out, self.user_data, False)
        if version >= 1:
            write_structs(out, self.owned_partitions, False, TopicPartition._write_each, version)
        if version >= 2:
            buffer += _I.pack(self.generation_id)
        if version >= 3:
            write_nullable_string(buffer, self.rack_id, False, "rack_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerProtocolSubscription, int]:
        self = ConsumerProtocolSubscription()
        self.topics, at = read_array(data, at, False, 2, "topics", read_string, False, "topics")
        self.user_data, at = read_nullable_view(data, at, False, "user_data")
        if version >= 1:
            self.owned_partitions, at = read_structs(
                data,
                at,
                False,
                6,
                "owned_partitions",
                TopicPartition._read_each,
                version,
            )
        else:
            self.owned_partitions = []
        if version >= 2:
            (self.generation_id,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.generation_id = -1
        if version >= 3:
            self.rack_id, at = read_nullable_string(data, at, False, "rack_id")
        else:
            self.rack_id = None
        return self, at
