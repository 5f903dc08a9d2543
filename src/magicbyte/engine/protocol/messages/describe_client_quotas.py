"""Generated from DescribeClientQuotasRequest.json and DescribeClientQuotasResponse.json. Do not edit: the schema

compiler makes it.
DescribeClientQuotasRequest: versions 0-1, flexible 1+.
DescribeClientQuotasResponse: versions 0-1, flexible 1+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_string,
    read_nullable_structs,
    read_string,
    read_structs,
    read_unknown_tags,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_B = struct.Struct(">b")
_D = struct.Struct(">d")
_IH = struct.Struct(">ih")
_T = struct.Struct(">?")


class ComponentData(Struct, gc=False, kw_only=True):
    """Filters, one for each part of an entity.

    entity_type: Kind of part that this filter is about: user, client-id or ip.
    match_type: 0 the name given in Match, 1 the default entity, 2 any that is named.
    match: Name to match; null unless MatchType is 0.
    """

    entity_type: str = ""  # string, versions 0+
    match_type: int = 0  # int8, versions 0+
    match: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ComponentData], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.entity_type, flexible, "entity_type")
            buffer += _B.pack(self.match_type)
            write_nullable_string(buffer, self.match, flexible, "match")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ComponentData], int]:
        flexible = version >= 1
        found: list[ComponentData] = []
        for _ in range(count):
            self = ComponentData()
            self.entity_type, at = read_string(data, at, flexible, "entity_type")
            (self.match_type,) = _B.unpack_from(data, at)
            at += 1
            self.match, at = read_nullable_string(data, at, flexible, "match")
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeClientQuotasRequest(Message, gc=False, kw_only=True):
    """Asks for the quotas of users, client ids and addresses.

    components: Filters, one for each part of an entity.
    strict: True leaves out entities with parts that no filter is about.
    """

    API_KEY = 48
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(1, 2)

    components: list[ComponentData] = field(default_factory=list)  # []ComponentData, versions 0+
    strict: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        write_structs(out, self.components, flexible, ComponentData._write_each, version)
        buffer += _T.pack(self.strict)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeClientQuotasRequest, int]:
        self = DescribeClientQuotasRequest()
        flexible = version >= 1
        self.components, at = read_structs(data, at, flexible, 4, "components", ComponentData._read_each, version)
        (self.strict,) = _T.unpack_from(data, at)
        at += 1
        if version >= 1:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class EntityData(Struct, gc=False, kw_only=True):
    """Whose quotas these are; several parts apply together.

    entity_type: Kind of this part: user, client-id or ip.
    entity_name: Name of the user or client, or the address; null stands for the default.
    """

    entity_type: str = ""  # string, versions 0+
    entity_name: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[EntityData], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.entity_type, flexible, "entity_type")
            write_nullable_string(buffer, self.entity_name, flexible, "entity_name")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[EntityData], int]:
        flexible = version >= 1
        found: list[EntityData] = []
        for _ in range(count):
            self = EntityData()
            self.entity_type, at = read_string(data, at, flexible, "entity_type")
            self.entity_name, at = read_nullable_string(data, at, flexible, "entity_name")
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class ValueData(Struct, gc=False, kw_only=True):
    """Its quotas.

    key: Name of the quota, such as producer_byte_rate.
    value: The limit: bytes or changes per second, percent of a thread's time, or connections per second.
    """

    key: str = ""  # string, versions 0+
    value: float = 0.0  # float64, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ValueData], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.key, flexible, "key")
            buffer += _D.pack(self.value)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ValueData], int]:
        flexible = version >= 1
        found: list[ValueData] = []
        for _ in range(count):
            self = ValueData()
            self.key, at = read_string(data, at, flexible, "key")
            (self.value,) = _D.unpack_from(data, at)
            at += 8
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class EntryData(Struct, gc=False, kw_only=True):
    """One entry per entity; null with an error.

    entity: Whose quotas these are; several parts apply together.
    values: Its quotas.
    """

    entity: list[EntityData] = field(default_factory=list)  # []EntityData, versions 0+
    values: list[ValueData] = field(default_factory=list)  # []ValueData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[EntryData], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_structs(out, self.entity, flexible, EntityData._write_each, version)
            write_structs(out, self.values, flexible, ValueData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[EntryData], int]:
        flexible = version >= 1
        found: list[EntryData] = []
        for _ in range(count):
            self = EntryData()
            self.entity, at = read_structs(data, at, flexible, 3, "entity", EntityData._read_each, version)
            self.values, at = read_structs(data, at, flexible, 10, "values", ValueData._read_each, version)
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeClientQuotasResponse(Message, gc=False, kw_only=True):
    """The quotas that were found.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    entries: One entry per entity; null with an error.
    """

    API_KEY = 48
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(1, 2)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    entries: list[EntryData] | None = field(default_factory=list)  # []EntryData, versions 0+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, flexible, "error_message")
        write_structs(out, self.entries, flexible, EntryData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeClientQuotasResponse, int]:
        self = DescribeClientQuotasResponse()
        flexible = version >= 1
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
        self.entries, at = read_nullable_structs(data, at, flexible, 3, "entries", EntryData._read_each, version)
        if version >= 1:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
