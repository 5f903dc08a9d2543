"""Generated from DescribeClusterRequest.json and DescribeClusterResponse.json. Do not edit: the schema compiler makes

it.
DescribeClusterRequest: versions 0-2, flexible 0+.
DescribeClusterResponse: versions 0-2, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
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
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_T = struct.Struct(">?")
_TB = struct.Struct(">?b")
_TBT = struct.Struct(">?b?")


class DescribeClusterRequest(Message, gc=False, kw_only=True):
    """Asks for the members of the cluster, with their addresses.

    include_cluster_authorized_operations: Whether the response lists the operations that the caller may perform on
        the cluster.
    endpoint_type: Requested addresses: 1 the brokers', 2 the KRaft controllers'.
    include_fenced_brokers: Whether to include fenced brokers, which do not serve clients.
    """

    API_KEY = 60
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    include_cluster_authorized_operations: bool = False  # bool, versions 0+
    endpoint_type: int = 1  # int8, versions 1+
    include_fenced_brokers: bool = False  # bool, versions 2+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and self.endpoint_type != 1:
            raise absent("endpoint_type")
        if version < 2 and self.include_fenced_brokers:
            raise absent("include_fenced_brokers")
        if version >= 2:
            buffer += _TBT.pack(
                self.include_cluster_authorized_operations,
                self.endpoint_type,
                self.include_fenced_brokers,
            )
        elif version >= 1:
            buffer += _TB.pack(self.include_cluster_authorized_operations, self.endpoint_type)
        else:
            buffer += _T.pack(self.include_cluster_authorized_operations)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeClusterRequest, int]:
        self = DescribeClusterRequest()
        if version >= 2:
            (
                self.include_cluster_authorized_operations,
                self.endpoint_type,
                self.include_fenced_brokers,
            ) = _TBT.unpack_from(data, at)
            at += 3
        elif version >= 1:
            self.include_cluster_authorized_operations, self.endpoint_type = _TB.unpack_from(data, at)
            at += 2
            self.include_fenced_brokers = False
        else:
            (self.include_cluster_authorized_operations,) = _T.unpack_from(data, at)
            at += 1
            self.endpoint_type = 1
            self.include_fenced_brokers = False
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class DescribeClusterBroker(Struct, gc=False, kw_only=True):
    """The members.

    broker_id: Id of the broker or controller.
    host: Host name or IP address that clients connect to.
    port: TCP port that belongs to the host.
    rack: Rack or zone of the broker; null if it has none.
    is_fenced: Whether the broker is fenced, and so out of service though registered.
    """

    broker_id: int = 0  # int32, versions 0+
    host: str = ""  # string, versions 0+
    port: int = 0  # int32, versions 0+
    rack: str | None = None  # string, versions 0+, nullable
    is_fenced: bool = False  # bool, versions 2+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeClusterBroker], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version < 2 and self.is_fenced:
                raise absent("is_fenced")
            buffer += _I.pack(self.broker_id)
            write_string(buffer, self.host, True, "host")
            buffer += _I.pack(self.port)
            write_nullable_string(buffer, self.rack, True, "rack")
            if version >= 2:
                buffer += _T.pack(self.is_fenced)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribeClusterBroker], int]:
        found: list[DescribeClusterBroker] = []
        for _ in range(count):
            self = DescribeClusterBroker()
            (self.broker_id,) = _I.unpack_from(data, at)
            at += 4
            self.host, at = read_string(data, at, True, "host")
            (self.port,) = _I.unpack_from(data, at)
            at += 4
            self.rack, at = read_nullable_string(data, at, True, "rack")
            if version >= 2:
                (self.is_fenced,) = _T.unpack_from(data, at)
                at += 1
            else:
                self.is_fenced = False
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeClusterResponse(Message, gc=False, kw_only=True):
    """The members of the cluster.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error; 0 means none. 114 says that this listener does not know that kind of member, 115 that there is
        no such kind.
    error_message: Error message; null without an error, or if the broker sends none.
    endpoint_type: Whose addresses these are: 1 the brokers', 2 the KRaft controllers'.
    cluster_id: Id of the cluster, made when it was first started.
    controller_id: Broker to send administrative requests to, or the active controller if controllers were requested;
        -1 if none is known.
    brokers: The members.
    cluster_authorized_operations: Operations that the caller may perform on the cluster: bit n stands for ACL
        operation number n. -2147483648 if not requested.
    """

    API_KEY = 60
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    endpoint_type: int = 1  # int8, versions 1+
    cluster_id: str = ""  # string, versions 0+
    controller_id: int = -1  # int32, versions 0+
    brokers: list[DescribeClusterBroker] = field(default_factory=list)  # []DescribeClusterBroker, versions 0+
    cluster_authorized_operations: int = -2147483648  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and self.endpoint_type != 1:
            raise absent("endpoint_type")
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        if version >= 1:
            buffer += _B.pack(self.endpoint_type)
        write_string(buffer, self.cluster_id, True, "cluster_id")
        buffer += _I.pack(self.controller_id)
        write_structs(out, self.brokers, True, DescribeClusterBroker._write_each, version)
        buffer += _I.pack(self.cluster_authorized_operations)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeClusterResponse, int]:
        self = DescribeClusterResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        if version >= 1:
            (self.endpoint_type,) = _B.unpack_from(data, at)
            at += 1
        else:
            self.endpoint_type = 1
        self.cluster_id, at = read_string(data, at, True, "cluster_id")
        (self.controller_id,) = _I.unpack_from(data, at)
        at += 4
        self.brokers, at = read_structs(data, at, True, 11, "brokers", DescribeClusterBroker._read_each, version)
        (self.cluster_authorized_operations,) = _I.unpack_from(data, at)
        at += 4
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
