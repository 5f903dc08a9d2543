"""Generated from ConsumerGroupMemberMetadataKey.json and ConsumerGroupMemberMetadataValue.json. Do not edit: the schema

compiler makes it.
ConsumerGroupMemberMetadataKey: version 5.
ConsumerGroupMemberMetadataValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_array,
    read_bytes,
    read_nullable_string,
    read_nullable_struct,
    read_string,
    read_structs,
    read_tags,
    read_unknown_tags,
    unknown,
    whole,
    write_array,
    write_bytes,
    write_nullable_string,
    write_nullable_struct,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")


class ConsumerGroupMemberMetadataKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of a member of a group with the new consumer protocol. It follows the int16 5, its
    type.

    group_id: Group by its group.id, as its members are configured.
    member_id: Id of the member, the same for as long as it runs.
    """

    VALID_VERSIONS = range(5, 6)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 5
    member_id: str = ""  # string, versions 5

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")
        write_string(buffer, self.member_id, False, "member_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupMemberMetadataKey, int]:
        self = ConsumerGroupMemberMetadataKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        self.member_id, at = read_string(data, at, False, "member_id")
        return self, at


class ClassicProtocol(Struct, gc=False, kw_only=True):
    """Ways to share out the work that it knows, in order of preference.

    name: Name of the way, such as range.
    metadata: Metadata that it sent for that assignor: a ConsumerProtocolSubscription after an int16 version.
    """

    name: str = ""  # string, versions 0+
    metadata: bytes = b""  # bytes, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ClassicProtocol], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_bytes(buffer, self.metadata, True, "metadata")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ClassicProtocol], int]:
        found: list[ClassicProtocol] = []
        for _ in range(count):
            self = ClassicProtocol()
            self.name, at = read_string(data, at, True, "name")
            self.metadata, at = read_bytes(data, at, True, "metadata")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ClassicMemberMetadata(Struct, gc=False, kw_only=True):
    """Set for a member that still speaks the classic protocol, while the group moves to the new one.

    session_timeout_ms: Milliseconds without a heartbeat after which the member counts as dead.
    supported_protocols: Ways to share out the work that it knows, in order of preference.
    """

    session_timeout_ms: int = 0  # int32, versions 0+
    supported_protocols: list[ClassicProtocol] = field(default_factory=list)  # []ClassicProtocol, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.session_timeout_ms)
        write_structs(out, self.supported_protocols, True, ClassicProtocol._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ClassicMemberMetadata, int]:
        self = ClassicMemberMetadata()
        (self.session_timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        self.supported_protocols, at = read_structs(
            data,
            at,
            True,
            3,
            "supported_protocols",
            ClassicProtocol._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return self.session_timeout_ms != 0 or len(self.supported_protocols) > 0 or len(self.unknown_tags) > 0


class ConsumerGroupMemberMetadataValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: data that a member of a group with the new consumer protocol sent about itself; null
    if it has left.

    instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member.
    rack_id: Rack or zone of the member (client.rack); null if it has none.
    client_id: The member's client.id.
    client_host: Address from which it is connected, with a slash in front.
    subscribed_topic_names: Topics that the member wants to read, by name.
    subscribed_topic_regex: Pattern of topic names subscribed to; null or empty if there is none.
    rebalance_timeout_ms: Milliseconds that it may take to revoke partitions; -1 if it has not sent them.
    server_assignor: Assignor that it wants the coordinator to use; null for the coordinator's choice.
    classic_member_metadata: Set for a member that still speaks the classic protocol, while the group moves to the
        new one.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    instance_id: str | None = ""  # string, versions 0+, nullable
    rack_id: str | None = ""  # string, versions 0+, nullable
    client_id: str = ""  # string, versions 0+
    client_host: str = ""  # string, versions 0+
    subscribed_topic_names: list[str] = field(default_factory=list)  # []string, versions 0+
    subscribed_topic_regex: str | None = ""  # string, versions 0+, nullable
    rebalance_timeout_ms: int = -1  # int32, versions 0+
    server_assignor: str | None = ""  # string, versions 0+, nullable
    # ClassicMemberMetadata, versions 0+, nullable, tag 0
    classic_member_metadata: ClassicMemberMetadata | None = field(default_factory=ClassicMemberMetadata)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_nullable_string(buffer, self.instance_id, True, "instance_id")
        write_nullable_string(buffer, self.rack_id, True, "rack_id")
        write_string(buffer, self.client_id, True, "client_id")
        write_string(buffer, self.client_host, True, "client_host")
        write_array(buffer, self.subscribed_topic_names, True, write_string, True, "subscribed_topic_names")
        write_nullable_string(buffer, self.subscribed_topic_regex, True, "subscribed_topic_regex")
        buffer += _I.pack(self.rebalance_timeout_ms)
        write_nullable_string(buffer, self.server_assignor, True, "server_assignor")
        tags = self._tags(version)
        if tags or self.unknown_tags:
            write_tags(buffer, tags, self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupMemberMetadataValue, int]:
        self = ConsumerGroupMemberMetadataValue()
        self.instance_id, at = read_nullable_string(data, at, True, "instance_id")
        self.rack_id, at = read_nullable_string(data, at, True, "rack_id")
        self.client_id, at = read_string(data, at, True, "client_id")
        self.client_host, at = read_string(data, at, True, "client_host")
        self.subscribed_topic_names, at = read_array(
            data,
            at,
            True,
            1,
            "subscribed_topic_names",
            read_string,
            True,
            "subscribed_topic_names",
        )
        self.subscribed_topic_regex, at = read_nullable_string(data, at, True, "subscribed_topic_regex")
        (self.rebalance_timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        self.server_assignor, at = read_nullable_string(data, at, True, "server_assignor")
        self.classic_member_metadata = ClassicMemberMetadata()
        if data[at]:
            tags, at = read_tags(data, at)
            if 0 in tags:
                part = tags.pop(0)
                self.classic_member_metadata = whole(
                    part,
                    read_nullable_struct(
                        part,
                        0,
                        version,
                        "classic_member_metadata",
                        ClassicMemberMetadata._read,
                        null=0,
                    ),
                    "classic_member_metadata",
                )
            self.unknown_tags = unknown(tags)
        else:
            self.unknown_tags, at = (), at + 1
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.classic_member_metadata is None or self.classic_member_metadata._is_set():
            part = Writer()
            write_nullable_struct(part, self.classic_member_metadata, version, null=0)
            found.append((0, bytes(part)))
        return found
