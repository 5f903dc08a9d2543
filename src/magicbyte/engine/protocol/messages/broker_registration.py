"""Generated from BrokerRegistrationRequest.json and BrokerRegistrationResponse.json. Do not edit: the schema compiler

makes it.
BrokerRegistrationRequest: versions 0-4, flexible 0+.
BrokerRegistrationResponse: versions 0-4, flexible 0+.
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
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
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
_IHQ = struct.Struct(">ihq")
_Q = struct.Struct(">q")
_T = struct.Struct(">?")
_UHH = struct.Struct(">Hh")


class Listener(Struct, gc=False, kw_only=True):
    """Addresses of the broker.

    name: Name of the listener, such as PLAINTEXT or INTERNAL.
    host: Host name or IP address advertised for this listener.
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
    """Features that the broker can run, each with a range of levels.

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


class BrokerRegistrationRequest(Message, gc=False, kw_only=True):
    """Sent by a broker that starts, to the active controller: its id and its addresses. KRaft only, or a migration to
    it.

    broker_id: Broker that registers.
    cluster_id: Cluster to which the broker belongs.
    incarnation_id: Made at random when the broker process started; distinguishes its runs.
    listeners: Addresses of the broker.
    features: Features that the broker can run, each with a range of levels.
    rack: Rack or zone set in broker.rack; null if it is not set.
    is_migrating_zk_broker: True for a broker that still runs on ZooKeeper and takes part in the migration to KRaft.
    log_dirs: Ids of all log directories that work.
    previous_broker_epoch: Epoch of the registration before a clean stop, which shows that no acknowledged record was
        lost; -1 if there is none.
    """

    API_KEY = 62
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(5)

    broker_id: int = 0  # int32, versions 0+
    cluster_id: str = ""  # string, versions 0+
    incarnation_id: UUID = NULL_UUID  # uuid, versions 0+
    listeners: list[Listener] = field(default_factory=list)  # []Listener, versions 0+
    features: list[Feature] = field(default_factory=list)  # []Feature, versions 0+
    rack: str | None = ""  # string, versions 0+, nullable
    is_migrating_zk_broker: bool = False  # bool, versions 1+
    log_dirs: list[UUID] = field(default_factory=list)  # []uuid, versions 2+, ignorable
    previous_broker_epoch: int = -1  # int64, versions 3+, ignorable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and self.is_migrating_zk_broker:
            raise absent("is_migrating_zk_broker")
        buffer += _I.pack(self.broker_id)
        write_string(buffer, self.cluster_id, True, "cluster_id")
        write_uuid(buffer, self.incarnation_id)
        write_structs(out, self.listeners, True, Listener._write_each, version)
        write_structs(out, self.features, True, Feature._write_each, version)
        write_nullable_string(buffer, self.rack, True, "rack")
        if version >= 1:
            buffer += _T.pack(self.is_migrating_zk_broker)
        if version >= 2:
            write_array(buffer, self.log_dirs, True, write_uuid)
        if version >= 3:
            buffer += _Q.pack(self.previous_broker_epoch)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[BrokerRegistrationRequest, int]:
        self = BrokerRegistrationRequest()
        (self.broker_id,) = _I.unpack_from(data, at)
        at += 4
        self.cluster_id, at = read_string(data, at, True, "cluster_id")
        self.incarnation_id, at = read_uuid(data, at)
        self.listeners, at = read_structs(data, at, True, 7, "listeners", Listener._read_each, version)
        self.features, at = read_structs(data, at, True, 6, "features", Feature._read_each, version)
        self.rack, at = read_nullable_string(data, at, True, "rack")
        if version >= 1:
            (self.is_migrating_zk_broker,) = _T.unpack_from(data, at)
            at += 1
        else:
            self.is_migrating_zk_broker = False
        if version >= 2:
            self.log_dirs, at = read_array(data, at, True, 16, "log_dirs", read_uuid)
        else:
            self.log_dirs = []
        if version >= 3:
            (self.previous_broker_epoch,) = _Q.unpack_from(data, at)
            at += 8
        else:
            self.previous_broker_epoch = -1
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class BrokerRegistrationResponse(Message, gc=False, kw_only=True):
    """Whether the broker is registered.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error; 0 means registered. 101 says that a live broker has this id, 104 that the cluster is another
        one.
    broker_epoch: Epoch of the registration, larger than any before; -1 with an error.
    """

    API_KEY = 62
    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(5)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    broker_epoch: int = -1  # int64, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IHQ.pack(self.throttle_time_ms, self.error_code, self.broker_epoch)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[BrokerRegistrationResponse, int]:
        self = BrokerRegistrationResponse()
        self.throttle_time_ms, self.error_code, self.broker_epoch = _IHQ.unpack_from(data, at)
        at += 14
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
