"""Generated from ClientQuotaRecord.json. Do not edit: the schema compiler makes it.

ClientQuotaRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_DT = struct.Struct(">d?")


class EntityData(Struct, gc=False, kw_only=True):
    """Whom it limits.

    entity_type: user, client-id or ip.
    entity_name: Name of the user, client or address; null: the default of all.
    """

    entity_type: str = ""  # string, versions 0+
    entity_name: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[EntityData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.entity_type, True, "entity_type")
            write_nullable_string(buffer, self.entity_name, True, "entity_name")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[EntityData], int]:
        found: list[EntityData] = []
        for _ in range(count):
            self = EntityData()
            self.entity_type, at = read_string(data, at, True, "entity_type")
            self.entity_name, at = read_nullable_string(data, at, True, "entity_name")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ClientQuotaRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a quota was set or removed.

    entity: Whom it limits.
    key: Name of the quota, such as producer_byte_rate.
    value: The limit that it sets.
    remove: Whether it was removed.
    """

    API_KEY = 14
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    entity: list[EntityData] = field(default_factory=list)  # []EntityData, versions 0+
    key: str = ""  # string, versions 0+
    value: float = 0.0  # float64, versions 0+
    remove: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.entity, True, EntityData._write_each, version)
        write_string(buffer, self.key, True, "key")
        buffer += _DT.pack(self.value, self.remove)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ClientQuotaRecord, int]:
        self = ClientQuotaRecord()
        self.entity, at = read_structs(data, at, True, 3, "entity", EntityData._read_each, version)
        self.key, at = read_string(data, at, True, "key")
        self.value, self.remove = _DT.unpack_from(data, at)
        at += 9
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
