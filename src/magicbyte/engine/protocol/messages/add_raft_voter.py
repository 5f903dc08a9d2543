"""Generated from AddRaftVoterRequest.json and AddRaftVoterResponse.json. Do not edit: the schema compiler makes it.

AddRaftVoterRequest: versions 0-1, flexible 0+.
AddRaftVoterResponse: versions 0-1, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    absent,
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

_IH = struct.Struct(">ih")
_II = struct.Struct(">ii")
_T = struct.Struct(">?")
_UH = struct.Struct(">H")


class Listener(Struct, gc=False, kw_only=True):
    """Addresses at which the other voters reach the new one.

    name: Name of the listener, such as CONTROLLER.
    host: Host name or IP address.
    port: TCP port that belongs to the host.
    """

    name: str = ""  # string, versions 0+
    host: str = ""  # string, versions 0+
    port: int = 0  # uint16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Listener], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_string(buffer, self.host, True, "host")
            buffer += _UH.pack(self.port)
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
            (self.port,) = _UH.unpack_from(data, at)
            at += 2
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AddRaftVoterRequest(Message, gc=False, kw_only=True):
    """Makes a controller a voter of the KRaft quorum. It has to be started and to have caught up beforehand.

    cluster_id: Id of the cluster; null skips the check.
    timeout_ms: Milliseconds to wait for the new voter set to be committed.
    voter_id: Node id of the new voter.
    voter_directory_id: Id of the directory in which the new voter keeps the metadata log, so that a node with a new
        disk is not taken for the old one.
    listeners: Addresses at which the other voters reach the new one.
    ack_when_committed: True waits for the answer until the new voter set is committed; false until the leader has
        written it to its log.
    """

    API_KEY = 80
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    cluster_id: str | None = ""  # string, versions 0+, nullable
    timeout_ms: int = 0  # int32, versions 0+
    voter_id: int = 0  # int32, versions 0+
    voter_directory_id: UUID = NULL_UUID  # uuid, versions 0+
    listeners: list[Listener] = field(default_factory=list)  # []Listener, versions 0+
    ack_when_committed: bool = True  # bool, versions 1+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and not self.ack_when_committed:
            raise absent("ack_when_committed")
        write_nullable_string(buffer, self.cluster_id, True, "cluster_id")
        buffer += _II.pack(self.timeout_ms, self.voter_id)
        write_uuid(buffer, self.voter_directory_id)
        write_structs(out, self.listeners, True, Listener._write_each, version)
        if version >= 1:
            buffer += _T.pack(self.ack_when_committed)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AddRaftVoterRequest, int]:
        self = AddRaftVoterRequest()
        self.cluster_id, at = read_nullable_string(data, at, True, "cluster_id")
        self.timeout_ms, self.voter_id = _II.unpack_from(data, at)
        at += 8
        self.voter_directory_id, at = read_uuid(data, at)
        self.listeners, at = read_structs(data, at, True, 5, "listeners", Listener._read_each, version)
        if version >= 1:
            (self.ack_when_committed,) = _T.unpack_from(data, at)
            at += 1
        else:
            self.ack_when_committed = True
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class AddRaftVoterResponse(Message, gc=False, kw_only=True):
    """Whether the voter was added.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error; 0 means added. 126 says that it is a voter already, 41 that another controller leads.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    API_KEY = 80
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable, ignorable
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
    def _read(data: memoryview, at: int, version: int) -> tuple[AddRaftVoterResponse, int]:
        self = AddRaftVoterResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
