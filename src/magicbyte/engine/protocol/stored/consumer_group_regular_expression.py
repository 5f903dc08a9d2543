"""Generated from ConsumerGroupRegularExpressionKey.json and ConsumerGroupRegularExpressionValue.json. Do not edit: the

schema compiler makes it.
ConsumerGroupRegularExpressionKey: version 16.
ConsumerGroupRegularExpressionValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from msgspec import field

from magicbyte.engine.protocol.fields import (
    read_array,
    read_string,
    read_unknown_tags,
    write_array,
    write_string,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_QQ = struct.Struct(">qq")


class ConsumerGroupRegularExpressionKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of a pattern of topic names that members of a group subscribed to. It follows the int16
    16, its type.

    group_id: Group by its group.id, as its members are configured.
    regular_expression: The pattern (RE2).
    """

    VALID_VERSIONS = range(16, 17)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 16
    regular_expression: str = ""  # string, versions 16

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")
        write_string(buffer, self.regular_expression, False, "regular_expression")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupRegularExpressionKey, int]:
        self = ConsumerGroupRegularExpressionKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        self.regular_expression, at = read_string(data, at, False, "regular_expression")
        return self, at


class ConsumerGroupRegularExpressionValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: topics that match a pattern; null if no member uses it.

    topics: Names of the topics that fit.
    version: Offset in the metadata log at which that was found out.
    timestamp: When it was found out, in milliseconds since 1970.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    topics: list[str] = field(default_factory=list)  # []string, versions 0+
    version: int = 0  # int64, versions 0+
    timestamp: int = 0  # int64, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_array(buffer, self.topics, True, write_string, True, "topics")
        buffer += _QQ.pack(self.version, self.timestamp)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupRegularExpressionValue, int]:
        self = ConsumerGroupRegularExpressionValue()
        self.topics, at = read_array(data, at, True, 1, "topics", read_string, True, "topics")
        self.version, self.timestamp = _QQ.unpack_from(data, at)
        at += 16
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
