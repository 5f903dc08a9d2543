"""Generated from LeaderChangeMessage.json. Do not edit: the schema compiler makes it.

LeaderChangeMessage: versions 0-1, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    absent,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, read_rows

_HI = struct.Struct(">hi")
_I = struct.Struct(">i")
_ROWS_I_COMPACT = Rows("i", flexible=True)


class Voter(Struct, gc=False, kw_only=True):
    """One voter.

    voter_id: Node id of the voter.
    voter_directory_id: Id of the directory in which it keeps the log.
    """

    voter_id: int = 0  # int32, versions 0+
    voter_directory_id: UUID = NULL_UUID  # uuid, versions 1+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Voter], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version < 1 and self.voter_directory_id != NULL_UUID:
                raise absent("voter_directory_id")
            buffer += _I.pack(self.voter_id)
            if version >= 1:
                write_uuid(buffer, self.voter_directory_id)
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
            if version >= 1:
                self.voter_directory_id, at = read_uuid(data, at)
            else:
                self.voter_directory_id = NULL_UUID
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[Voter], int]:
        found: list[Voter] = []
        if version <= 0:
            rows, at = _ROWS_I_COMPACT.read(data, at, most)
            for row in rows:
                (voter_id,) = row
                self = Voter(voter_id=voter_id)
                found.append(self)
        return found, at


class LeaderChangeMessage(Message, gc=False, kw_only=True):
    """Control record with which each new leader of a KRaft quorum begins its epoch.

    version: Version of this record's form.
    leader_id: Node id of the new leader.
    voters: All voters at that time.
    granting_voters: Voters that voted for it.
    """

    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    version: int = 0  # int16, versions 0+
    leader_id: int = 0  # int32, versions 0+
    voters: list[Voter] = field(default_factory=list)  # []Voter, versions 0+
    granting_voters: list[Voter] = field(default_factory=list)  # []Voter, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _HI.pack(self.version, self.leader_id)
        write_structs(out, self.voters, True, Voter._write_each, version)
        write_structs(out, self.granting_voters, True, Voter._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[LeaderChangeMessage, int]:
        self = LeaderChangeMessage()
        self.version, self.leader_id = _HI.unpack_from(data, at)
        at += 6
        if version >= 1:
            self.voters, at = read_structs(data, at, True, 5, "voters", Voter._read_each, version)
            self.granting_voters, at = read_structs(data, at, True, 5, "granting_voters", Voter._read_each, version)
        else:
            self.voters, at = read_rows(data, at, True, 5, "voters", Voter, version)
            self.granting_voters, at = read_rows(data, at, True, 5, "granting_voters", Voter, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
