"""Generated from DescribeConfigsRequest.json and DescribeConfigsResponse.json. Do not edit: the schema compiler makes

it.
DescribeConfigsRequest: versions 0-4, flexible 4+; deprecated 0.
DescribeConfigsResponse: versions 0-4, flexible 4+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_nullable_array,
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    write_array,
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
_TBT = struct.Struct(">?b?")
_TT = struct.Struct(">??")
_TTT = struct.Struct(">???")


class DescribeConfigsResource(Struct, gc=False, kw_only=True):
    """Resources whose settings are requested.

    resource_type: Type of resource: 2 a topic, 4 a broker, 8 the loggers of a broker, 16 a client metrics
        subscription, 32 a group.
    resource_name: Name of the topic, group or subscription, or the broker's id in digits; empty stands for the
        default of all brokers.
    configuration_keys: Names of the requested settings; null requests all.
    """

    resource_type: int = 0  # int8, versions 0+
    resource_name: str = ""  # string, versions 0+
    configuration_keys: list[str] | None = field(default_factory=list)  # []string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeConfigsResource], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            buffer += _B.pack(self.resource_type)
            write_string(buffer, self.resource_name, flexible, "resource_name")
            write_array(buffer, self.configuration_keys, flexible, write_string, flexible, "configuration_keys")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribeConfigsResource], int]:
        flexible = version >= 4
        found: list[DescribeConfigsResource] = []
        for _ in range(count):
            self = DescribeConfigsResource()
            (self.resource_type,) = _B.unpack_from(data, at)
            at += 1
            self.resource_name, at = read_string(data, at, flexible, "resource_name")
            if version >= 4:
                self.configuration_keys, at = read_nullable_array(
                    data,
                    at,
                    flexible,
                    1,
                    "configuration_keys",
                    read_string,
                    flexible,
                    "configuration_keys",
                )
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.configuration_keys, at = read_nullable_array(
                    data,
                    at,
                    flexible,
                    2,
                    "configuration_keys",
                    read_string,
                    flexible,
                    "configuration_keys",
                )
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeConfigsRequest(Message, gc=False, kw_only=True):
    """Asks for the settings of topics, brokers and other resources. Settings of one broker are requested from that
    broker.

    resources: Resources whose settings are requested.
    include_synonyms: Whether to include the other settings from which the value may come.
    include_documentation: Whether to include the documentation of each setting.
    """

    API_KEY = 32
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(4, 5)

    resources: list[DescribeConfigsResource] = field(default_factory=list)  # []DescribeConfigsResource, versions 0+
    include_synonyms: bool = False  # bool, versions 1+
    include_documentation: bool = False  # bool, versions 3+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version < 1 and self.include_synonyms:
            raise absent("include_synonyms")
        if version < 3 and self.include_documentation:
            raise absent("include_documentation")
        write_structs(out, self.resources, flexible, DescribeConfigsResource._write_each, version)
        if version >= 3:
            buffer += _TT.pack(self.include_synonyms, self.include_documentation)
        elif version >= 1:
            buffer += _T.pack(self.include_synonyms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeConfigsRequest, int]:
        self = DescribeConfigsRequest()
        flexible = version >= 4
        self.resources, at = read_structs(
            data,
            at,
            flexible,
            4,
            "resources",
            DescribeConfigsResource._read_each,
            version,
        )
        if version >= 3:
            self.include_synonyms, self.include_documentation = _TT.unpack_from(data, at)
            at += 2
        elif version >= 1:
            (self.include_synonyms,) = _T.unpack_from(data, at)
            at += 1
            self.include_documentation = False
        else:
            self.include_synonyms = False
            self.include_documentation = False
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class DescribeConfigsSynonym(Struct, gc=False, kw_only=True):
    """All places that have a value for this setting, the one that counts first.

    name: Name of the setting there, for example log.retention.ms for a topic's retention.ms.
    value: Value there; null if it is secret or has none.
    source: Kind of that place, with the numbers of ConfigSource.
    """

    name: str = ""  # string, versions 1+
    value: str | None = ""  # string, versions 1+, nullable 0+
    source: int = 0  # int8, versions 1+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeConfigsSynonym], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_nullable_string(buffer, self.value, flexible, "value")
            buffer += _B.pack(self.source)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribeConfigsSynonym], int]:
        flexible = version >= 4
        found: list[DescribeConfigsSynonym] = []
        for _ in range(count):
            self = DescribeConfigsSynonym()
            self.name, at = read_string(data, at, flexible, "name")
            self.value, at = read_nullable_string(data, at, flexible, "value")
            (self.source,) = _B.unpack_from(data, at)
            at += 1
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeConfigsResourceResult(Struct, gc=False, kw_only=True):
    """Its settings.

    name: Name of the setting.
    value: Its value as text; null if it is secret or has none.
    read_only: True if it cannot be changed while brokers run.
    is_default: True if it was not set.
    config_source: Where the value comes from: 1 the topic, 2 this broker's dynamic settings, 3 those of all brokers,
        4 the broker's file, 5 Kafka's default, 6 a logger, 7 a metrics subscription, 8 a group.
    is_sensitive: True for passwords and the like, whose values are never sent.
    synonyms: All places that have a value for this setting, the one that counts first.
    config_type: Type of the value: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9
        password; 0 unknown.
    documentation: Documentation of the setting; null if not requested.
    """

    name: str = ""  # string, versions 0+
    value: str | None = ""  # string, versions 0+, nullable
    read_only: bool = False  # bool, versions 0+
    is_default: bool = False  # bool, versions 0
    config_source: int = -1  # int8, versions 1+, ignorable
    is_sensitive: bool = False  # bool, versions 0+
    # []DescribeConfigsSynonym, versions 1+, ignorable
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: int = 0  # int8, versions 3+, ignorable
    documentation: str | None = ""  # string, versions 3+, nullable 0+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeConfigsResourceResult], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            if version > 0 and self.is_default:
                raise absent("is_default")
            write_string(buffer, self.name, flexible, "name")
            write_nullable_string(buffer, self.value, flexible, "value")
            if version >= 1:
                buffer += _TBT.pack(self.read_only, self.config_source, self.is_sensitive)
            else:
                buffer += _TTT.pack(self.read_only, self.is_default, self.is_sensitive)
            if version >= 1:
                write_structs(out, self.synonyms, flexible, DescribeConfigsSynonym._write_each, version)
            if version >= 3:
                buffer += _B.pack(self.config_type)
                write_nullable_string(buffer, self.documentation, flexible, "documentation")
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
    ) -> tuple[list[DescribeConfigsResourceResult], int]:
        flexible = version >= 4
        found: list[DescribeConfigsResourceResult] = []
        for _ in range(count):
            self = DescribeConfigsResourceResult()
            self.name, at = read_string(data, at, flexible, "name")
            self.value, at = read_nullable_string(data, at, flexible, "value")
            if version >= 1:
                self.read_only, self.config_source, self.is_sensitive = _TBT.unpack_from(data, at)
                at += 3
                self.is_default = False
                self.synonyms, at = read_structs(
                    data,
                    at,
                    flexible,
                    4,
                    "synonyms",
                    DescribeConfigsSynonym._read_each,
                    version,
                )
            else:
                self.read_only, self.is_default, self.is_sensitive = _TTT.unpack_from(data, at)
                at += 3
                self.config_source = -1
                self.synonyms = []
            if version >= 3:
                (self.config_type,) = _B.unpack_from(data, at)
                at += 1
                self.documentation, at = read_nullable_string(data, at, flexible, "documentation")
            else:
                self.config_type = 0
                self.documentation = ""
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeConfigsResult(Struct, gc=False, kw_only=True):
    """One entry for each requested resource.

    error_code: Error of this entry; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    resource_type: Type of resource: 2 a topic, 4 a broker, 8 the loggers of a broker, 16 a client metrics
        subscription, 32 a group.
    resource_name: Name of the topic, group or subscription, or the broker's id in digits.
    configs: Its settings.
    """

    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    resource_type: int = 0  # int8, versions 0+
    resource_name: str = ""  # string, versions 0+
    # []DescribeConfigsResourceResult, versions 0+
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeConfigsResult], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.error_message, flexible, "error_message")
            buffer += _B.pack(self.resource_type)
            write_string(buffer, self.resource_name, flexible, "resource_name")
            write_structs(out, self.configs, flexible, DescribeConfigsResourceResult._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribeConfigsResult], int]:
        flexible = version >= 4
        found: list[DescribeConfigsResult] = []
        for _ in range(count):
            self = DescribeConfigsResult()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
            (self.resource_type,) = _B.unpack_from(data, at)
            at += 1
            self.resource_name, at = read_string(data, at, flexible, "resource_name")
            self.configs, at = read_structs(
                data,
                at,
                flexible,
                7,
                "configs",
                DescribeConfigsResourceResult._read_each,
                version,
            )
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeConfigsResponse(Message, gc=False, kw_only=True):
    """The settings and where their values come from.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. Up to version 1 the
        broker held this response back for that long; from version 2 on it answers at once and the client does the
        waiting.
    results: One entry for each requested resource.
    """

    API_KEY = 32
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(4, 5)

    throttle_time_ms: int = 0  # int32, versions 0+
    results: list[DescribeConfigsResult] = field(default_factory=list)  # []DescribeConfigsResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.results, flexible, DescribeConfigsResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeConfigsResponse, int]:
        self = DescribeConfigsResponse()
        flexible = version >= 4
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.results, at = read_structs(data, at, flexible, 7, "results", DescribeConfigsResult._read_each, version)
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
