"""Generated from ControllerRegistrationRequest.json and ControllerRegistrationResponse.json. Do not edit: the schema

compiler makes it.
ControllerRegistrationRequest: version 0, flexible 0+.
ControllerRegistrationResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_HH = struct.Struct(">hh")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_T = struct.Struct(">?")
_UHH = struct.Struct(">Hh")


class Listener(Struct, gc=False, kw_only=True):
    """Addresses of the controller.

    name: Name of the listener, such as CONTROLLER.
    host: Host name or IP address.
    port: TCP port that belongs to the host.
    security_protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    name: str = ""  # string, versions 0+
    host: str = ""  # string, versions 0+
    port: int = 0  # uint16, versions 0+
    security_protocol: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Listener], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_string(buffer, self.host, True, "host")
            buffer += _UHH.pack(self.port, self.security_protocol)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[Listener], int]:
        found: list[Listener] = []
        for _ in range(count):
            self = Listener()
            self.name, at = read_string(data, at, True, "name")
            self.host, at = read_string(data, at, True, "host")
            self.port, self.security_protocol = _UHH.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class Feature(Struct, gc=False, kw_only=True):
    """Features that the controller can run, each with a range of levels.

    name: Name of the feature, such as metadata.version.
    min_supported_version: Lowest level that it can run.
    max_supported_version: Highest level that it can run.
    """

    name: str = ""  # string, versions 0+
    min_supported_version: int = 0  # int16, versions 0+
    max_supported_version: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Feature], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            buffer += _HH.pack(self.min_supported_version, self.max_supported_version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[Feature], int]:
        found: list[Feature] = []
        for _ in range(count):
            self = Feature()
            self.name, at = read_string(data, at, True, "name")
            self.min_supported_version, self.max_supported_version = _HH.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ControllerRegistrationRequest(Message, gc=False, kw_only=True):
    """Sent by a controller to the active one: its addresses and features. KRaft only.

    controller_id: Controller that registers.
    incarnation_id: Made at random when the controller process started; distinguishes its runs.
    zk_migration_ready: True if it is configured for a migration from ZooKeeper.
    listeners: Addresses of the controller.
    features: Features that the controller can run, each with a range of levels.
    """

    API_KEY = 70
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    controller_id: int = 0  # int32, versions 0+
    incarnation_id: UUID = NULL_UUID  # uuid, versions 0+
    zk_migration_ready: bool = False  # bool, versions 0+
    listeners: list[Listener] = field(default_factory=list)  # []Listener, versions 0+
    features: list[Feature] = field(default_factory=list)  # []Feature, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.controller_id)
        write_uuid(buffer, self.incarnation_id)
        buffer += _T.pack(self.zk_migration_ready)
        write_structs(out, self.listeners, True, Listener._write_each, version)
        write_structs(out, self.features, True, Feature._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ControllerRegistrationRequest, int]:
        self = ControllerRegistrationRequest()
        (self.controller_id,) = _I.unpack_from(data, at)
        at += 4
        self.incarnation_id, at = read_uuid(data, at)
        (self.zk_migration_ready,) = _T.unpack_from(data, at)
        at += 1
        self.listeners, at = read_structs(data, at, True, 7, "listeners", Listener._read_each, version)
        self.features, at = read_structs(data, at, True, 6, "features", Feature._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class ControllerRegistrationResponse(Message, gc=False, kw_only=True):
    """Whether the controller is registered.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    API_KEY = 70
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ControllerRegistrationResponse, int]:
        self = ControllerRegistrationResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
