"""Generated from ShareGroupMemberMetadataKey.json and ShareGroupMemberMetadataValue.json. Do not edit: the schema

compiler makes it.
ShareGroupMemberMetadataKey: version 10.
ShareGroupMemberMetadataValue: version 0, flexible 0+.
"""

from __future__ import annotations

from msgspec import field

from magicbyte.engine.protocol.fields import (
    read_array,
    read_nullable_string,
    read_string,
    read_unknown_tags,
    write_array,
    write_nullable_string,
    write_string,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer


class ShareGroupMemberMetadataKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of a member of a share group. It follows the int16 10, its type.

    group_id: Share group by its group.id, as its consumers are configured.
    member_id: Id of the member, the same for as long as it runs.
    """

    VALID_VERSIONS = range(10, 11)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 10
    member_id: str = ""  # string, versions 10

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")
        write_string(buffer, self.member_id, False, "member_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupMemberMetadataKey, int]:
        self = ShareGroupMemberMetadataKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        self.member_id, at = read_string(data, at, False, "member_id")
        return self, at


class ShareGroupMemberMetadataValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: data that a member of a share group sent about itself; null if it has left.

    rack_id: Rack or zone of the member (client.rack); null if it has none.
    client_id: The member's client.id.
    client_host: Address from which it is connected, with a slash in front.
    subscribed_topic_names: Topics that the member wants to read, by name.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    rack_id: str | None = ""  # string, versions 0+, nullable
    client_id: str = ""  # string, versions 0+
    client_host: str = ""  # string, versions 0+
    subscribed_topic_names: list[str] = field(default_factory=list)  # []string, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_nullable_string(buffer, self.rack_id, True, "rack_id")
        write_string(buffer, self.client_id, True, "client_id")
        write_string(buffer, self.client_host, True, "client_host")
        write_array(buffer, self.subscribed_topic_names, True, write_string, True, "subscribed_topic_names")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupMemberMetadataValue, int]:
        self = ShareGroupMemberMetadataValue()
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
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
