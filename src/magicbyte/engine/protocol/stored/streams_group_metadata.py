"""Generated from StreamsGroupMetadataKey.json and StreamsGroupMetadataValue.json. Do not edit: the schema compiler

makes it.
StreamsGroupMetadataKey: version 17.
StreamsGroupMetadataValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_structs,
    read_string,
    read_tags,
    read_unknown_tags,
    unknown,
    whole,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")
_IQ = struct.Struct(">iq")


class StreamsGroupMetadataKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of a group of a Kafka Streams application (KIP-1071). It follows the int16 17, its
    type.

    group_id: Group by its id, the application.id of Kafka Streams.
    """

    VALID_VERSIONS = range(17, 18)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 17

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupMetadataKey, int]:
        self = StreamsGroupMetadataKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        return self, at


class LastAssignmentConfig(Struct, gc=False, kw_only=True):
    """One setting.

    key: Name of the setting.
    value: Its value as text.
    """

    key: str = ""  # string, versions 0+
    value: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[LastAssignmentConfig], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.key, True, "key")
            write_string(buffer, self.value, True, "value")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[LastAssignmentConfig], int]:
        found: list[LastAssignmentConfig] = []
        for _ in range(count):
            self = LastAssignmentConfig()
            self.key, at = read_string(data, at, True, "key")
            self.value, at = read_string(data, at, True, "value")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class StreamsGroupMetadataValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: epoch of a group of a Kafka Streams application; null if the group was deleted.

    epoch: Grows whenever members or the topology change.
    metadata_hash: Hash over the application's topics, by which the coordinator notices that they changed.
    validated_topology_epoch: Epoch of the topology that was last found to fit the topics; -1 if there is none.
    last_assignment_configs: Settings of the group for which the last assignment was computed; null if they were not
        kept.
    stored_description_topology_epoch: Epoch of the topology whose description is stored; -1 if none is, -2 if
        storing it was interrupted.
    failed_description_topology_epoch: Epoch of the topology whose description was refused for good, so that members
        are not asked for it again; -1 if there is none.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    epoch: int = 0  # int32, versions 0+
    metadata_hash: int = 0  # int64, versions 0+
    validated_topology_epoch: int = -1  # int32, versions 0+, tag 0
    # []LastAssignmentConfig, versions 0+, nullable, tag 1
    last_assignment_configs: list[LastAssignmentConfig] | None = field(default_factory=list)
    stored_description_topology_epoch: int = -1  # int32, versions 0+, tag 2
    failed_description_topology_epoch: int = -1  # int32, versions 0+, tag 3
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IQ.pack(self.epoch, self.metadata_hash)
        tags = self._tags(version)
        if tags or self.unknown_tags:
            write_tags(buffer, tags, self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupMetadataValue, int]:
        self = StreamsGroupMetadataValue()
        self.epoch, self.metadata_hash = _IQ.unpack_from(data, at)
        at += 12
        self.validated_topology_epoch = -1
        self.last_assignment_configs = []
        self.stored_description_topology_epoch = -1
        self.failed_description_topology_epoch = -1
        if data[at]:
            tags, at = read_tags(data, at)
            if 0 in tags:
                part = tags.pop(0)
                self.validated_topology_epoch = whole(part, (_I.unpack_from(part)[0], 4), "validated_topology_epoch")
            if 1 in tags:
                part = tags.pop(1)
                self.last_assignment_configs = whole(
                    part,
                    read_nullable_structs(
                        part,
                        0,
                        True,
                        3,
                        "last_assignment_configs",
                        LastAssignmentConfig._read_each,
                        version,
                    ),
                    "last_assignment_configs",
                )
            if 2 in tags:
                part = tags.pop(2)
                self.stored_description_topology_epoch = whole(
                    part,
                    (_I.unpack_from(part)[0], 4),
                    "stored_description_topology_epoch",
                )
            if 3 in tags:
                part = tags.pop(3)
                self.failed_description_topology_epoch = whole(
                    part,
                    (_I.unpack_from(part)[0], 4),
                    "failed_description_topology_epoch",
                )
            self.unknown_tags = unknown(tags)
        else:
            self.unknown_tags, at = (), at + 1
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.validated_topology_epoch != -1:
            part = Writer()
            part.buffer += _I.pack(self.validated_topology_epoch)
            found.append((0, bytes(part)))
        if self.last_assignment_configs is None or len(self.last_assignment_configs) > 0:
            part = Writer()
            write_structs(part, self.last_assignment_configs, True, LastAssignmentConfig._write_each, version)
            found.append((1, bytes(part)))
        if self.stored_description_topology_epoch != -1:
            part = Writer()
            part.buffer += _I.pack(self.stored_description_topology_epoch)
            found.append((2, bytes(part)))
        if self.failed_description_topology_epoch != -1:
            part = Writer()
            part.buffer += _I.pack(self.failed_description_topology_epoch)
            found.append((3, bytes(part)))
        return found
