"""Generated from AlterClientQuotasRequest.json and AlterClientQuotasResponse.json. Do not edit: the schema compiler

makes it.
AlterClientQuotasRequest: versions 0-1, flexible 1+.
AlterClientQuotasResponse: versions 0-1, flexible 1+.
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
_H = struct.Struct(">h")
_I = struct.Struct(">i")
_T = struct.Struct(">?")


class AlterClientQuotasRequestEntityData(Struct, gc=False, kw_only=True):
    """The entity; several parts, such as a user and a client id, apply together.

    entity_type: Kind of this part: user, client-id or ip.
    entity_name: Name of the user or client, or the address; null stands for the default of all that have none of
        their own.
    """

    entity_type: str = ""  # string, versions 0+
    entity_name: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterClientQuotasRequestEntityData], out: Writer, version: int) -> None:
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
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[AlterClientQuotasRequestEntityData], int]:
        flexible = version >= 1
        found: list[AlterClientQuotasRequestEntityData] = []
        for _ in range(count):
            self = AlterClientQuotasRequestEntityData()
            self.entity_type, at = read_string(data, at, flexible, "entity_type")
            self.entity_name, at = read_nullable_string(data, at, flexible, "entity_name")
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class OpData(Struct, gc=False, kw_only=True):
    """Changes to make.

    key: Name of the quota: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate or
        connection_creation_rate.
    value: The new limit: bytes or changes per second, percent of a thread's time, or connections per second; has no
        meaning when removing.
    remove: True removes the quota, false sets it.
    """

    key: str = ""  # string, versions 0+
    value: float = 0.0  # float64, versions 0+
    remove: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[OpData], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.key, flexible, "key")
            buffer += _DT.pack(self.value, self.remove)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[OpData], int]:
        flexible = version >= 1
        found: list[OpData] = []
        for _ in range(count):
            self = OpData()
            self.key, at = read_string(data, at, flexible, "key")
            self.value, self.remove = _DT.unpack_from(data, at)
            at += 9
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class AlterClientQuotasRequestEntryData(Struct, gc=False, kw_only=True):
    """Whose quotas change, and how.

    entity: The entity; several parts, such as a user and a client id, apply together.
    ops: Changes to make.
    """

    entity: list[AlterClientQuotasRequestEntityData] = field(default_factory=list)  # []EntityData, versions 0+
    ops: list[OpData] = field(default_factory=list)  # []OpData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterClientQuotasRequestEntryData], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_structs(out, self.entity, flexible, AlterClientQuotasRequestEntityData._write_each, version)
            write_structs(out, self.ops, flexible, OpData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[AlterClientQuotasRequestEntryData], int]:
        flexible = version >= 1
        found: list[AlterClientQuotasRequestEntryData] = []
        for _ in range(count):
            self = AlterClientQuotasRequestEntryData()
            self.entity, at = read_structs(
                data,
                at,
                flexible,
                3,
                "entity",
                AlterClientQuotasRequestEntityData._read_each,
                version,
            )
            self.ops, at = read_structs(data, at, flexible, 11, "ops", OpData._read_each, version)
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class AlterClientQuotasRequest(Message, gc=False, kw_only=True):
    """Sets or removes quotas of users, client ids and addresses.

    entries: Whose quotas change, and how.
    validate_only: True only checks whether the change would be accepted.
    """

    API_KEY = 49
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(1, 2)

    entries: list[AlterClientQuotasRequestEntryData] = field(default_factory=list)  # []EntryData, versions 0+
    validate_only: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        write_structs(out, self.entries, flexible, AlterClientQuotasRequestEntryData._write_each, version)
        buffer += _T.pack(self.validate_only)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterClientQuotasRequest, int]:
        self = AlterClientQuotasRequest()
        flexible = version >= 1
        self.entries, at = read_structs(
            data,
            at,
            flexible,
            3,
            "entries",
            AlterClientQuotasRequestEntryData._read_each,
            version,
        )
        (self.validate_only,) = _T.unpack_from(data, at)
        at += 1
        if version >= 1:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class AlterClientQuotasResponseEntityData(Struct, gc=False, kw_only=True):
    """The entity whose quotas were to be changed.

    entity_type: Kind of this part: user, client-id or ip.
    entity_name: Name of the user or client, or the address; null stands for the default.
    """

    entity_type: str = ""  # string, versions 0+
    entity_name: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterClientQuotasResponseEntityData], out: Writer, version: int) -> None:
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
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[AlterClientQuotasResponseEntityData], int]:
        flexible = version >= 1
        found: list[AlterClientQuotasResponseEntityData] = []
        for _ in range(count):
            self = AlterClientQuotasResponseEntityData()
            self.entity_type, at = read_string(data, at, flexible, "entity_type")
            self.entity_name, at = read_nullable_string(data, at, flexible, "entity_name")
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class AlterClientQuotasResponseEntryData(Struct, gc=False, kw_only=True):
    """Results, one for each entry of the request.

    error_code: Error of this entry; 0 means changed.
    error_message: Error message; null without an error, or if the broker sends none.
    entity: The entity whose quotas were to be changed.
    """

    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    entity: list[AlterClientQuotasResponseEntityData] = field(default_factory=list)  # []EntityData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterClientQuotasResponseEntryData], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.error_message, flexible, "error_message")
            write_structs(out, self.entity, flexible, AlterClientQuotasResponseEntityData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[AlterClientQuotasResponseEntryData], int]:
        flexible = version >= 1
        found: list[AlterClientQuotasResponseEntryData] = []
        for _ in range(count):
            self = AlterClientQuotasResponseEntryData()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
            self.entity, at = read_structs(
                data,
                at,
                flexible,
                3,
                "entity",
                AlterClientQuotasResponseEntityData._read_each,
                version,
            )
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class AlterClientQuotasResponse(Message, gc=False, kw_only=True):
    """Result of each change.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    entries: Results, one for each entry of the request.
    """

    API_KEY = 49
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(1, 2)

    throttle_time_ms: int = 0  # int32, versions 0+
    entries: list[AlterClientQuotasResponseEntryData] = field(default_factory=list)  # []EntryData, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.entries, flexible, AlterClientQuotasResponseEntryData._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterClientQuotasResponse, int]:
        self = AlterClientQuotasResponse()
        flexible = version >= 1
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.entries, at = read_structs(
            data,
            at,
            flexible,
            5,
            "entries",
            AlterClientQuotasResponseEntryData._read_each,
            version,
        )
        if version >= 1:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
