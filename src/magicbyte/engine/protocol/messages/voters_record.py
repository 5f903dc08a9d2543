"""Generated from VotersRecord.json. Do not edit: the schema compiler makes it.

VotersRecord: version 0, flexible 0+.
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

_H = struct.Struct(">h")
_HH = struct.Struct(">hh")
_I = struct.Struct(">i")
_UH = struct.Struct(">H")


class Endpoint(Struct, gc=False, kw_only=True):
    """Its addresses.

    name: Name of the listener, such as CONTROLLER.
    host: Host name or IP address.
    port: TCP port that belongs to the host.
    """

    name: str = ""  # string, versions 0+
    host: str = ""  # string, versions 0+
    port: int = 0  # uint16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Endpoint], out: Writer, version: int) -> None:
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
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[Endpoint], int]:
        found: list[Endpoint] = []
        for _ in range(count):
            self = Endpoint()
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


class Voter(Struct, gc=False, kw_only=True):
    """All voters.

    voter_id: Node id of the voter.
    voter_directory_id: Id of the directory in which it keeps the log.
    endpoints: Its addresses.
    kraft_version_feature: Levels of the feature kraft.version that it can run.
    """

    voter_id: int = 0  # int32, versions 0+
    voter_directory_id: UUID = NULL_UUID  # uuid, versions 0+
    endpoints: list[Endpoint] = field(default_factory=list)  # []Endpoint, versions 0+
    # KRaftVersionFeature, versions 0+
    kraft_version_feature: KRaftVersionFeature = field(default_factory=KRaftVersionFeature)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Voter], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _I.pack(self.voter_id)
            write_uuid(buffer, self.voter_directory_id)
            write_structs(out, self.endpoints, True, Endpoint._write_each, version)
            self.kraft_version_feature._write(out, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[Voter], int]:
        found: list[Voter] = []
        for _ in range(count):
            self = Voter()
            (self.voter_id,) = _I.unpack_from(data, at)
            at += 4
            self.voter_directory_id, at = read_uuid(data, at)
            self.endpoints, at = read_structs(data, at, True, 5, "endpoints", Endpoint._read_each, version)
            self.kraft_version_feature, at = KRaftVersionFeature._read(data, at, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class VotersRecord(Message, gc=False, kw_only=True):
    """Control record in the metadata log: who the voters of the quorum are.

    version: Version of this record's form.
    voters: All voters.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    version: int = 0  # int16, versions 0+
    voters: list[Voter] = field(default_factory=list)  # []Voter, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _H.pack(self.version)
        write_structs(out, self.voters, True, Voter._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[VotersRecord, int]:
        self = VotersRecord()
        (self.version,) = _H.unpack_from(data, at)
        at += 2
        self.voters, at = read_structs(data, at, True, 27, "voters", Voter._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
