"""Generated from RegisterBrokerRecord.json. Do not edit: the schema compiler makes it.

RegisterBrokerRecord: versions 0-4, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    absent,
    read_array,
    read_nullable_array,
    read_nullable_string,
    read_string,
    read_structs,
    read_tags,
    read_unknown_tags,
    read_uuid,
    unknown,
    whole,
    write_array,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_HH = struct.Struct(">hh")
_I = struct.Struct(">i")
_IT = struct.Struct(">i?")
_Q = struct.Struct(">q")
_T = struct.Struct(">?")
_TT = struct.Struct(">??")
_UHH = struct.Struct(">Hh")


class BrokerEndpoint(Struct, gc=False, kw_only=True):
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
    def _write_each(structs: Sequence[BrokerEndpoint], out: Writer, version: int) -> None:
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
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[BrokerEndpoint], int]:
        found: list[BrokerEndpoint] = []
        for _ in range(count):
            self = BrokerEndpoint()
            self.name, at = read_string(data, at, True, "name")
            self.host, at = read_string(data, at, True, "host")
            self.port, self.security_protocol = _UHH.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class BrokerFeature(Struct, gc=False, kw_only=True):
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
    def _write_each(structs: Sequence[BrokerFeature], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            buffer += _HH.pack(self.min_supported_version, self.max_supported_version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[BrokerFeature], int]:
        found: list[BrokerFeature] = []
        for _ in range(count):
            self = BrokerFeature()
            self.name, at = read_string(data, at, True, "name")
            self.min_supported_version, self.max_supported_version = _HH.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class RegisterBrokerRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a broker has registered; an earlier registration of it is replaced.

    broker_id: Node id of the broker.
    is_migrating_zk_broker: Whether the broker still uses ZooKeeper.
    incarnation_id: Drawn at each start of the broker.
    broker_epoch: Epoch of the registration: the offset of this record.
    end_points: Where it listens.
    features: Features that it can run.
    rack: Rack of the broker; null: none.
    fenced: Whether it may not lead partitions yet.
    in_controlled_shutdown: Whether it is being stopped.
    log_dirs: Ids of its log directories.
    cordoned_log_dirs: Ids of directories that get no new replicas.
    """

    API_KEY = 0
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(5)

    broker_id: int = 0  # int32, versions 0+
    is_migrating_zk_broker: bool = False  # bool, versions 2+
    incarnation_id: UUID = NULL_UUID  # uuid, versions 0+
    broker_epoch: int = 0  # int64, versions 0+
    end_points: list[BrokerEndpoint] = field(default_factory=list)  # []BrokerEndpoint, versions 0+
    features: list[BrokerFeature] = field(default_factory=list)  # []BrokerFeature, versions 0+
    rack: str | None = ""  # string, versions 0+, nullable
    fenced: bool = True  # bool, versions 0+
    in_controlled_shutdown: bool = False  # bool, versions 1+
    log_dirs: list[UUID] = field(default_factory=list)  # []uuid, versions 3+, tag 0
    cordoned_log_dirs: list[UUID] | None = None  # []uuid, versions 4+, nullable, tag 1
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 2 and self.is_migrating_zk_broker:
            raise absent("is_migrating_zk_broker")
        if version < 1 and self.in_controlled_shutdown:
            raise absent("in_controlled_shutdown")
        if version < 3 and len(self.log_dirs) > 0:
            raise absent("log_dirs")
        if version < 4 and self.cordoned_log_dirs is not None:
            raise absent("cordoned_log_dirs")
        if version >= 2:
            buffer += _IT.pack(self.broker_id, self.is_migrating_zk_broker)
        else:
            buffer += _I.pack(self.broker_id)
        write_uuid(buffer, self.incarnation_id)
        buffer += _Q.pack(self.broker_epoch)
        write_structs(out, self.end_points, True, BrokerEndpoint._write_each, version)
        write_structs(out, self.features, True, BrokerFeature._write_each, version)
        write_nullable_string(buffer, self.rack, True, "rack")
        if version >= 1:
            buffer += _TT.pack(self.fenced, self.in_controlled_shutdown)
        else:
            buffer += _T.pack(self.fenced)
        if version >= 3:
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)
        else:
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[RegisterBrokerRecord, int]:
        self = RegisterBrokerRecord()
        if version >= 2:
            self.broker_id, self.is_migrating_zk_broker = _IT.unpack_from(data, at)
            at += 5
        else:
            (self.broker_id,) = _I.unpack_from(data, at)
            at += 4
            self.is_migrating_zk_broker = False
        self.incarnation_id, at = read_uuid(data, at)
        (self.broker_epoch,) = _Q.unpack_from(data, at)
        at += 8
        self.end_points, at = read_structs(data, at, True, 7, "end_points", BrokerEndpoint._read_each, version)
        self.features, at = read_structs(data, at, True, 6, "features", BrokerFeature._read_each, version)
        self.rack, at = read_nullable_string(data, at, True, "rack")
        if version >= 1:
            self.fenced, self.in_controlled_shutdown = _TT.unpack_from(data, at)
            at += 2
        else:
            (self.fenced,) = _T.unpack_from(data, at)
            at += 1
            self.in_controlled_shutdown = False
        self.log_dirs = []
        self.cordoned_log_dirs = None
        if version >= 4:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.log_dirs = whole(part, read_array(part, 0, True, 16, "log_dirs", read_uuid), "log_dirs")
                if 1 in tags:
                    part = tags.pop(1)
                    self.cordoned_log_dirs = whole(
                        part,
                        read_nullable_array(part, 0, True, 16, "cordoned_log_dirs", read_uuid),
                        "cordoned_log_dirs",
                    )
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        elif version >= 3:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.log_dirs = whole(part, read_array(part, 0, True, 16, "log_dirs", read_uuid), "log_dirs")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        else:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if version >= 3 and len(self.log_dirs) > 0:
            part = Writer()
            write_array(part.buffer, self.log_dirs, True, write_uuid)
            found.append((0, bytes(part)))
        if version >= 4 and self.cordoned_log_dirs is not None:
            part = Writer()
            write_array(part.buffer, self.cordoned_log_dirs, True, write_uuid)
            found.append((1, bytes(part)))
        return found
