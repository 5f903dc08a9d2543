"""Generated from FindCoordinatorRequest.json and FindCoordinatorResponse.json. Do not edit: the schema compiler makes

it.
FindCoordinatorRequest: versions 0-6, flexible 3+; deprecated 0.
FindCoordinatorResponse: versions 0-6, flexible 3+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_array,
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
_IH = struct.Struct(">ih")


class FindCoordinatorRequest(Message, gc=False, kw_only=True):
    """Asks which broker looks after a consumer group, a transactional id or a share group's state.

    key: Group id or transactional id whose coordinator is sought.
    key_type: Kind of key: 0 a group, 1 a transactional id, 2 a partition of a share group (6+, written
        group:topicId:partition).
    coordinator_keys: The keys whose coordinators are sought, all of the same kind.
    """

    API_KEY = 10
    VALID_VERSIONS = range(7)
    FLEXIBLE_VERSIONS = range(3, 7)

    key: str = ""  # string, versions 0-3
    key_type: int = 0  # int8, versions 1+
    coordinator_keys: list[str] = field(default_factory=list)  # []string, versions 4+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        if version > 3 and self.key != "":
            raise absent("key")
        if version < 1 and self.key_type != 0:
            raise absent("key_type")
        if version < 4 and len(self.coordinator_keys) > 0:
            raise absent("coordinator_keys")
        if version <= 3:
            write_string(buffer, self.key, flexible, "key")
        if version >= 1:
            buffer += _B.pack(self.key_type)
        if version >= 4:
            write_array(buffer, self.coordinator_keys, flexible, write_string, flexible, "coordinator_keys")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[FindCoordinatorRequest, int]:
        self = FindCoordinatorRequest()
        flexible = version >= 3
        if version >= 4:
            self.key = ""
        else:
            self.key, at = read_string(data, at, flexible, "key")
        if version >= 1:
            (self.key_type,) = _B.unpack_from(data, at)
            at += 1
        else:
            self.key_type = 0
        if version >= 4:
            self.coordinator_keys, at = read_array(
                data,
                at,
                flexible,
                1,
                "coordinator_keys",
                read_string,
                flexible,
                "coordinator_keys",
            )
        else:
            self.coordinator_keys = []
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class Coordinator(Struct, gc=False, kw_only=True):
    """One entry per key.

    key: The key from the request.
    node_id: Broker id of its coordinator; -1 with an error.
    host: Host name or IP address of its coordinator; empty with an error.
    port: TCP port of its coordinator; -1 with an error.
    error_code: Error of this key; 0 means none. 15 says that there is no coordinator just now.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    key: str = ""  # string, versions 4+
    node_id: int = 0  # int32, versions 4+
    host: str = ""  # string, versions 4+
    port: int = 0  # int32, versions 4+
    error_code: int = 0  # int16, versions 4+
    error_message: str | None = ""  # string, versions 4+, nullable, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Coordinator], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.key, True, "key")
            buffer += _I.pack(self.node_id)
            write_string(buffer, self.host, True, "host")
            buffer += _IH.pack(self.port, self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[Coordinator], int]:
        found: list[Coordinator] = []
        for _ in range(count):
            self = Coordinator()
            self.key, at = read_string(data, at, True, "key")
            (self.node_id,) = _I.unpack_from(data, at)
            at += 4
            self.host, at = read_string(data, at, True, "host")
            self.port, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class FindCoordinatorResponse(Message, gc=False, kw_only=True):
    """The address of each coordinator. Up to version 3 a single one, in the top-level fields.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 1 the broker
        held this response back for that long; from version 2 on it answers at once and the client does the waiting.
    error_code: Error; 0 means none. 15 says that there is no coordinator just now, for instance while its internal
        topic is being created.
    error_message: Error message; null without an error, or if the broker sends none.
    node_id: Broker id of the coordinator; -1 with an error.
    host: Host name or IP address of the coordinator; empty with an error.
    port: TCP port of the coordinator; -1 with an error.
    coordinators: One entry per key.
    """

    API_KEY = 10
    VALID_VERSIONS = range(7)
    FLEXIBLE_VERSIONS = range(3, 7)

    throttle_time_ms: int = 0  # int32, versions 1+, ignorable
    error_code: int = 0  # int16, versions 0-3
    error_message: str | None = ""  # string, versions 1-3, nullable, ignorable
    node_id: int = 0  # int32, versions 0-3
    host: str = ""  # string, versions 0-3
    port: int = 0  # int32, versions 0-3
    coordinators: list[Coordinator] = field(default_factory=list)  # []Coordinator, versions 4+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        if version > 3 and self.error_code != 0:
            raise absent("error_code")
        if version > 3 and self.node_id != 0:
            raise absent("node_id")
        if version > 3 and self.host != "":
            raise absent("host")
        if version > 3 and self.port != 0:
            raise absent("port")
        if version < 4 and len(self.coordinators) > 0:
            raise absent("coordinators")
        if version >= 4:
            buffer += _I.pack(self.throttle_time_ms)
        elif version >= 1:
            buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        else:
            buffer += _H.pack(self.error_code)
        if 1 <= version <= 3:
            write_nullable_string(buffer, self.error_message, flexible, "error_message")
        if version <= 3:
            buffer += _I.pack(self.node_id)
            write_string(buffer, self.host, flexible, "host")
            buffer += _I.pack(self.port)
        if version >= 4:
            write_structs(out, self.coordinators, flexible, Coordinator._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[FindCoordinatorResponse, int]:
        self = FindCoordinatorResponse()
        flexible = version >= 3
        if version >= 4:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
            self.error_code = 0
            self.error_message = ""
        elif version >= 1:
            self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
        else:
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.throttle_time_ms = 0
            self.error_message = ""
        if version >= 4:
            self.node_id = 0
            self.host = ""
            self.port = 0
            self.coordinators, at = read_structs(
                data,
                at,
                flexible,
                14,
                "coordinators",
                Coordinator._read_each,
                version,
            )
        else:
            (self.node_id,) = _I.unpack_from(data, at)
            at += 4
            self.host, at = read_string(data, at, flexible, "host")
            (self.port,) = _I.unpack_from(data, at)
            at += 4
            self.coordinators = []
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
