"""Generated from IncrementalAlterConfigsRequest.json and IncrementalAlterConfigsResponse.json. Do not edit: the schema

compiler makes it.
IncrementalAlterConfigsRequest: versions 0-1, flexible 1+.
IncrementalAlterConfigsResponse: versions 0-1, flexible 1+.
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

_B = struct.Struct(">b")
_H = struct.Struct(">h")
_I = struct.Struct(">i")
_T = struct.Struct(">?")


class AlterableConfig(Struct, gc=False, kw_only=True):
    """Changes to make.

    name: Name of the setting.
    config_operation: Operation: 0 sets the value, 1 deletes it, 2 appends items to a list, 3 removes items from a
        list.
    value: The value, or the items with commas between them; null when deleting.
    """

    name: str = ""  # string, versions 0+
    config_operation: int = 0  # int8, versions 0+
    value: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterableConfig], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            buffer += _B.pack(self.config_operation)
            write_nullable_string(buffer, self.value, flexible, "value")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AlterableConfig], int]:
        flexible = version >= 1
        found: list[AlterableConfig] = []
        for _ in range(count):
            self = AlterableConfig()
            self.name, at = read_string(data, at, flexible, "name")
            (self.config_operation,) = _B.unpack_from(data, at)
            at += 1
            self.value, at = read_nullable_string(data, at, flexible, "value")
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class AlterConfigsResource(Struct, gc=False, kw_only=True):
    """Things to change.

    resource_type: Type of resource: 2 a topic, 4 a broker, 8 the loggers of a broker, 16 a client metrics
        subscription, 32 a group.
    resource_name: Name of the topic, group or subscription, or the broker's id in digits; empty stands for the
        default of all brokers.
    configs: Changes to make.
    """

    resource_type: int = 0  # int8, versions 0+
    resource_name: str = ""  # string, versions 0+
    configs: list[AlterableConfig] = field(default_factory=list)  # []AlterableConfig, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterConfigsResource], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            buffer += _B.pack(self.resource_type)
            write_string(buffer, self.resource_name, flexible, "resource_name")
            write_structs(out, self.configs, flexible, AlterableConfig._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AlterConfigsResource], int]:
        flexible = version >= 1
        found: list[AlterConfigsResource] = []
        for _ in range(count):
            self = AlterConfigsResource()
            (self.resource_type,) = _B.unpack_from(data, at)
            at += 1
            self.resource_name, at = read_string(data, at, flexible, "resource_name")
            self.configs, at = read_structs(data, at, flexible, 4, "configs", AlterableConfig._read_each, version)
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class IncrementalAlterConfigsRequest(Message, gc=False, kw_only=True):
    """Changes single settings and leaves all others alone.

    resources: Things to change.
    validate_only: True only checks whether the change would be accepted.
    """

    API_KEY = 44
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(1, 2)

    resources: list[AlterConfigsResource] = field(default_factory=list)  # []AlterConfigsResource, versions 0+
    validate_only: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        write_structs(out, self.resources, flexible, AlterConfigsResource._write_each, version)
        buffer += _T.pack(self.validate_only)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[IncrementalAlterConfigsRequest, int]:
        self = IncrementalAlterConfigsRequest()
        flexible = version >= 1
        self.resources, at = read_structs(data, at, flexible, 4, "resources", AlterConfigsResource._read_each, version)
        (self.validate_only,) = _T.unpack_from(data, at)
        at += 1
        if version >= 1:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class AlterConfigsResourceResponse(Struct, gc=False, kw_only=True):
    """One result for each resource.

    error_code: Error of this resource; 0 means changed. 40 says that a value is not valid.
    error_message: Error message; null without an error, or if the broker sends none.
    resource_type: Type of resource: 2 a topic, 4 a broker, 8 the loggers of a broker, 16 a client metrics
        subscription, 32 a group.
    resource_name: Name of the topic, group or subscription, or the broker's id in digits.
    """

    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    resource_type: int = 0  # int8, versions 0+
    resource_name: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterConfigsResourceResponse], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.error_message, flexible, "error_message")
            buffer += _B.pack(self.resource_type)
            write_string(buffer, self.resource_name, flexible, "resource_name")
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
    ) -> tuple[list[AlterConfigsResourceResponse], int]:
        flexible = version >= 1
        found: list[AlterConfigsResourceResponse] = []
        for _ in range(count):
            self = AlterConfigsResourceResponse()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
            (self.resource_type,) = _B.unpack_from(data, at)
            at += 1
            self.resource_name, at = read_string(data, at, flexible, "resource_name")
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class IncrementalAlterConfigsResponse(Message, gc=False, kw_only=True):
    """Result of each change.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    responses: One result for each resource.
    """

    API_KEY = 44
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(1, 2)

    throttle_time_ms: int = 0  # int32, versions 0+
    # []AlterConfigsResourceResponse, versions 0+
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.responses, flexible, AlterConfigsResourceResponse._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[IncrementalAlterConfigsResponse, int]:
        self = IncrementalAlterConfigsResponse()
        flexible = version >= 1
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.responses, at = read_structs(
            data,
            at,
            flexible,
            6,
            "responses",
            AlterConfigsResourceResponse._read_each,
            version,
        )
        if version >= 1:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
