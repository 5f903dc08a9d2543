"""Generated from ConsumerProtocolAssignment.json. Do not edit: the schema compiler makes it.

ConsumerProtocolAssignment: versions 0-3.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_view,
    read_numbers,
    read_string,
    read_structs,
    write_nullable_records,
    write_numbers,
    write_string,
    write_structs,
)
from magicbyte.engine.protocol.message import Message, Records, Writer


class TopicPartition(Struct, gc=False, kw_only=True):
    """Partitions that the consumer is to read.

    topic: Name of the topic, unique in the cluster.
    partitions: Numbers of the partitions.
    """

    topic: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+

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


class ConsumerProtocolAssignment(Message, gc=False, kw_only=True):
    """Partitions assigned to a consumer: the assignment in SyncGroup of groups of type consumer, after an int16
    version.

    assigned_partitions: Partitions that the consumer is to read.
    user_data: Bytes from the assignor to its own counterpart in the consumer; null if it needs none.
    """

    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(0)

    assigned_partitions: list[TopicPartition] = field(default_factory=list)  # []TopicPartition, versions 0+
    user_data: Records | None = None  # bytes, versions 0+, nullable

    def _write(self, out: Writer, version: int) -> None:
        write_structs(out, self.assigned_partitions, False, TopicPartition._write_each, version)
        write_nullable_records(out, self.user_data, False)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerProtocolAssignment, int]:
        self = ConsumerProtocolAssignment()
        self.assigned_partitions, at = read_structs(
            data,
            at,
            False,
            6,
            "assigned_partitions",
            TopicPartition._read_each,
            version,
        )
        self.user_data, at = read_nullable_view(data, at, False, "user_data")
        return self, at
