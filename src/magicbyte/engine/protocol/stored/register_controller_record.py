"""Generated from RegisterControllerRecord.json. Do not edit: the schema compiler makes it.

RegisterControllerRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_HH = struct.Struct(">hh")
_I = struct.Struct(">i")
_T = struct.Struct(">?")
_UHH = struct.Struct(">Hh")


class ControllerEndpoint(Struct, gc=False, kw_only=True):
    """Where it listens.

    name: Name of the listener.
    host: Host name or IP address.
    port: TCP port.
    security_protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    name: str = ""  # string, versions 0+
    host: str = ""  # string, versions 0+
    port: int = 0  # uint16, versions 0+
    security_protocol: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ControllerEndpoint], out: Writer, version: int) -> None:
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
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ControllerEndpoint], int]:
        found: list[ControllerEndpoint] = []
        for _ in range(count):
            self = ControllerEndpoint()
            self.name, at = read_string(data, at, True, "name")
            self.host, at = read_string(data, at, True, "host")
            self.port, self.security_protocol = _UHH.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ControllerFeature(Struct, gc=False, kw_only=True):
    """Features that it can run.

    name: Name of the feature.
    min_supported_version: Lowest level.
    max_supported_version: Highest level.
    """

    name: str = ""  # string, versions 0+
    min_supported_version: int = 0  # int16, versions 0+
    max_supported_version: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ControllerFeature], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            buffer += _HH.pack(self.min_supported_version, self.max_supported_version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ControllerFeature], int]:
        found: list[ControllerFeature] = []
        for _ in range(count):
            self = ControllerFeature()
            self.name, at = read_string(data, at, True, "name")
            self.min_supported_version, self.max_supported_version = _HH.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class RegisterControllerRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a controller has registered; an earlier registration of it is replaced.

    controller_id: Node id of the controller.
    incarnation_id: Drawn at each start of the controller.
    zk_migration_ready: Whether it can take part in a migration from ZooKeeper.
    end_points: Where it listens.
    features: Features that it can run.
    """

    API_KEY = 27
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    controller_id: int = 0  # int32, versions 0+
    incarnation_id: UUID = NULL_UUID  # uuid, versions 0+
    zk_migration_ready: bool = False  # bool, versions 0+
    end_points: list[ControllerEndpoint] = field(default_factory=list)  # []ControllerEndpoint, versions 0+
    features: list[ControllerFeature] = field(default_factory=list)  # []ControllerFeature, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.controller_id)
        write_uuid(buffer, self.incarnation_id)
        buffer += _T.pack(self.zk_migration_ready)
        write_structs(out, self.end_points, True, ControllerEndpoint._write_each, version)
        write_structs(out, self.features, True, ControllerFeature._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[RegisterControllerRecord, int]:
        self = RegisterControllerRecord()
        (self.controller_id,) = _I.unpack_from(data, at)
        at += 4
        self.incarnation_id, at = read_uuid(data, at)
        (self.zk_migration_ready,) = _T.unpack_from(data, at)
        at += 1
        self.end_points, at = read_structs(data, at, True, 7, "end_points", ControllerEndpoint._read_each, version)
        self.features, at = read_structs(data, at, True, 6, "features", ControllerFeature._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
