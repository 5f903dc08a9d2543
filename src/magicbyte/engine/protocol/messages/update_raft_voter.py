"""Generated from UpdateRaftVoterRequest.json and UpdateRaftVoterResponse.json. Do not edit: the schema compiler makes

it.
UpdateRaftVoterRequest: version 0, flexible 0+.
UpdateRaftVoterResponse: version 0, flexible 0+.
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
    read_tags,
    read_unknown_tags,
    read_uuid,
    unknown,
    whole,
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
_II = struct.Struct(">ii")
_UH = struct.Struct(">H")


class Listener(Struct, gc=False, kw_only=True):
    """Addresses at which the other voters reach it.

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


class KRaftVersionFeature(Struct, gc=False, kw_only=True):
    """Levels of the feature kraft.version that it can run.

    min_supported_version: Lowest level.
    max_supported_version: Highest level.
    """

    min_supported_version: int = 0  # int16, versions 0+
    max_supported_version: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _HH.pack(self.min_supported_version, self.max_supported_version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[KRaftVersionFeature, int]:
        self = KRaftVersionFeature()
        self.min_supported_version, self.max_supported_version = _HH.unpack_from(data, at)
        at += 4
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return self.min_supported_version != 0 or self.max_supported_version != 0 or len(self.unknown_tags) > 0


class UpdateRaftVoterRequest(Message, gc=False, kw_only=True):
    """Sent by a voter of the KRaft quorum to the leader: its addresses or its abilities changed.

    cluster_id: Id of the cluster; null skips the check.
    current_leader_epoch: Newest epoch that the voter knows.
    voter_id: Node id of the voter.
    voter_directory_id: Id of the directory in which it keeps the log.
    listeners: Addresses at which the other voters reach it.
    kraft_version_feature: Levels of the feature kraft.version that it can run.
    """

    API_KEY = 82
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    cluster_id: str | None = ""  # string, versions 0+, nullable
    current_leader_epoch: int = 0  # int32, versions 0+
    voter_id: int = 0  # int32, versions 0+
    voter_directory_id: UUID = NULL_UUID  # uuid, versions 0+
    listeners: list[Listener] = field(default_factory=list)  # []Listener, versions 0+
    # KRaftVersionFeature, versions 0+
    kraft_version_feature: KRaftVersionFeature = field(default_factory=KRaftVersionFeature)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_nullable_string(buffer, self.cluster_id, True, "cluster_id")
        buffer += _II.pack(self.current_leader_epoch, self.voter_id)
        write_uuid(buffer, self.voter_directory_id)
        write_structs(out, self.listeners, True, Listener._write_each, version)
        self.kraft_version_feature._write(out, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[UpdateRaftVoterRequest, int]:
        self = UpdateRaftVoterRequest()
        self.cluster_id, at = read_nullable_string(data, at, True, "cluster_id")
        self.current_leader_epoch, self.voter_id = _II.unpack_from(data, at)
        at += 8
        self.voter_directory_id, at = read_uuid(data, at)
        self.listeners, at = read_structs(data, at, True, 5, "listeners", Listener._read_each, version)
        self.kraft_version_feature, at = KRaftVersionFeature._read(data, at, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class CurrentLeader(Struct, gc=False, kw_only=True):
    """The present leader, if another broker was asked.

    leader_id: Node id of the leader; -1 if it is not known.
    leader_epoch: Newest epoch that is known; -1 if there is none.
    host: Host name or IP address of the leader.
    port: TCP port that belongs to the host.
    """

    leader_id: int = -1  # int32, versions 0+
    leader_epoch: int = -1  # int32, versions 0+
    host: str = ""  # string, versions 0+
    port: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _II.pack(self.leader_id, self.leader_epoch)
        write_string(buffer, self.host, True, "host")
        buffer += _I.pack(self.port)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[CurrentLeader, int]:
        self = CurrentLeader()
        self.leader_id, self.leader_epoch = _II.unpack_from(data, at)
        at += 8
        self.host, at = read_string(data, at, True, "host")
        (self.port,) = _I.unpack_from(data, at)
        at += 4
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return (
            self.leader_id != -1
            or self.leader_epoch != -1
            or self.host != ""
            or self.port != 0
            or len(self.unknown_tags) > 0
        )


class UpdateRaftVoterResponse(Message, gc=False, kw_only=True):
    """Whether the leader took over the change.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    current_leader: The present leader, if another broker was asked.
    """

    API_KEY = 82
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    current_leader: CurrentLeader = field(default_factory=CurrentLeader)  # CurrentLeader, versions 0+, tag 0
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        tags = self._tags(version)
        if tags or self.unknown_tags:
            write_tags(buffer, tags, self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[UpdateRaftVoterResponse, int]:
        self = UpdateRaftVoterResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.current_leader = CurrentLeader()
        if data[at]:
            tags, at = read_tags(data, at)
            if 0 in tags:
                part = tags.pop(0)
                self.current_leader = whole(part, CurrentLeader._read(part, 0, version), "current_leader")
            self.unknown_tags = unknown(tags)
        else:
            self.unknown_tags, at = (), at + 1
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.current_leader._is_set():
            part = Writer()
            self.current_leader._write(part, version)
            found.append((0, bytes(part)))
        return found
