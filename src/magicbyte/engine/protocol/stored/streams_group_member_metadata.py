"""Generated from StreamsGroupMemberMetadataKey.json and StreamsGroupMemberMetadataValue.json. Do not edit: the schema

compiler makes it.
StreamsGroupMemberMetadataKey: version 19.
StreamsGroupMemberMetadataValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_string,
    read_nullable_struct,
    read_string,
    read_structs,
    read_unknown_tags,
    write_nullable_string,
    write_nullable_struct,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_II = struct.Struct(">ii")
_UH = struct.Struct(">H")


class StreamsGroupMemberMetadataKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of a member of a group of a Kafka Streams application. It follows the int16 19, its
    type.

    group_id: Group by its id, the application.id of Kafka Streams.
    member_id: Id of the member, the same for as long as it runs.
    """

    VALID_VERSIONS = range(19, 20)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 19
    member_id: str = ""  # string, versions 19

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")
        write_string(buffer, self.member_id, False, "member_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupMemberMetadataKey, int]:
        self = StreamsGroupMemberMetadataKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        self.member_id, at = read_string(data, at, False, "member_id")
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


class KeyValue(Struct, gc=False, kw_only=True):
    """A tag.

    key: Name of the tag.
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


class StreamsGroupMemberMetadataValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: data that a Kafka Streams member sent about itself; null if it has left.

    instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member.
    rack_id: Rack or zone of the member (client.rack); null if it has none.
    client_id: The member's client.id.
    client_host: Address from which it is connected, with a slash in front.
    rebalance_timeout_ms: Milliseconds that it may take to revoke tasks; -1 if it has not sent them.
    topology_epoch: Epoch of the topology that it runs.
    process_id: Process that it runs in; members in one process share their state's disk.
    user_endpoint: Address at which the application answers queries about its state; null if it does not.
    client_tags: Tags that show where it runs, for spreading standby tasks.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    instance_id: str | None = ""  # string, versions 0+, nullable
    rack_id: str | None = ""  # string, versions 0+, nullable
    client_id: str = ""  # string, versions 0+
    client_host: str = ""  # string, versions 0+
    rebalance_timeout_ms: int = -1  # int32, versions 0+
    topology_epoch: int = 0  # int32, versions 0+
    process_id: str = ""  # string, versions 0+
    user_endpoint: Endpoint | None = None  # Endpoint, versions 0+, nullable
    client_tags: list[KeyValue] = field(default_factory=list)  # []KeyValue, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_nullable_string(buffer, self.instance_id, True, "instance_id")
        write_nullable_string(buffer, self.rack_id, True, "rack_id")
        write_string(buffer, self.client_id, True, "client_id")
        write_string(buffer, self.client_host, True, "client_host")
        buffer += _II.pack(self.rebalance_timeout_ms, self.topology_epoch)
        write_string(buffer, self.process_id, True, "process_id")
        write_nullable_struct(out, self.user_endpoint, version)
        write_structs(out, self.client_tags, True, KeyValue._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[StreamsGroupMemberMetadataValue, int]:
        self = StreamsGroupMemberMetadataValue()
        self.instance_id, at = read_nullable_string(data, at, True, "instance_id")
        self.rack_id, at = read_nullable_string(data, at, True, "rack_id")
        self.client_id, at = read_string(data, at, True, "client_id")
        self.client_host, at = read_string(data, at, True, "client_host")
        self.rebalance_timeout_ms, self.topology_epoch = _II.unpack_from(data, at)
        at += 8
        self.process_id, at = read_string(data, at, True, "process_id")
        self.user_endpoint, at = read_nullable_struct(data, at, version, "user_endpoint", Endpoint._read)
        self.client_tags, at = read_structs(data, at, True, 3, "client_tags", KeyValue._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
