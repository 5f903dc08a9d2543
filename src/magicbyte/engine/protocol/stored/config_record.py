"""Generated from ConfigRecord.json. Do not edit: the schema compiler makes it.

ConfigRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import (
    read_nullable_string,
    read_string,
    read_unknown_tags,
    write_nullable_string,
    write_string,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_B = struct.Struct(">b")


class ConfigRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a setting was made or removed.

    resource_type: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    resource_name: Name of the resource; empty: all brokers.
    name: Name of the setting.
    value: Its value; null: the setting was removed.
    """

    API_KEY = 4
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    resource_type: int = 0  # int8, versions 0+
    resource_name: str = ""  # string, versions 0+
    name: str = ""  # string, versions 0+
    value: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _B.pack(self.resource_type)
        write_string(buffer, self.resource_name, True, "resource_name")
        write_string(buffer, self.name, True, "name")
        write_nullable_string(buffer, self.value, True, "value")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConfigRecord, int]:
        self = ConfigRecord()
        (self.resource_type,) = _B.unpack_from(data, at)
        at += 1
        self.resource_name, at = read_string(data, at, True, "resource_name")
        self.name, at = read_string(data, at, True, "name")
        self.value, at = read_nullable_string(data, at, True, "value")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
