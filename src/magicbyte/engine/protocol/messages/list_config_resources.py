"""Generated from ListConfigResourcesRequest.json and ListConfigResourcesResponse.json. Do not edit: the schema compiler

makes it.
ListConfigResourcesRequest: versions 0-1, flexible 0+.
ListConfigResourcesResponse: versions 0-1, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_B = struct.Struct(">b")
_IH = struct.Struct(">ih")


class ListConfigResourcesRequest(Message, gc=False, kw_only=True):
    """Asks for the names of all resources of some types that have their own settings. Version 0 was called
    ListClientMetricsResources.

    resource_types: Requested types: 2 topics, 4 brokers, 8 broker loggers, 16 client metrics subscriptions, 32
        groups; empty means all. Version 0 is about subscriptions only.
    """

    API_KEY = 74
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    resource_types: tuple[int, ...] = ()  # []int8, versions 1+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and len(self.resource_types) > 0:
            raise absent("resource_types")
        if version >= 1:
            write_numbers(buffer, self.resource_types, True, "b")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ListConfigResourcesRequest, int]:
        self = ListConfigResourcesRequest()
        if version >= 1:
            self.resource_types, at = read_numbers(data, at, True, "b", "resource_types")
        else:
            self.resource_types = ()
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class ConfigResource(Struct, gc=False, kw_only=True):
    """One entry per resource.

    resource_name: Name of the topic, group or subscription, or the broker's id in digits.
    resource_type: Type of resource: 2 a topic, 4 a broker, 8 the loggers of a broker, 16 a client metrics
        subscription, 32 a group.
    """

    resource_name: str = ""  # string, versions 0+
    resource_type: int = 16  # int8, versions 1+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ConfigResource], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.resource_name, True, "resource_name")
            if version >= 1:
                buffer += _B.pack(self.resource_type)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ConfigResource], int]:
        found: list[ConfigResource] = []
        for _ in range(count):
            self = ConfigResource()
            self.resource_name, at = read_string(data, at, True, "resource_name")
            if version >= 1:
                (self.resource_type,) = _B.unpack_from(data, at)
                at += 1
            else:
                self.resource_type = 16
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ListConfigResourcesResponse(Message, gc=False, kw_only=True):
    """The names of the resources that have settings.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    config_resources: One entry per resource.
    """

    API_KEY = 74
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    config_resources: list[ConfigResource] = field(default_factory=list)  # []ConfigResource, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_structs(out, self.config_resources, True, ConfigResource._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ListConfigResourcesResponse, int]:
        self = ListConfigResourcesResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.config_resources, at = read_structs(
            data,
            at,
            True,
            2,
            "config_resources",
            ConfigResource._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
