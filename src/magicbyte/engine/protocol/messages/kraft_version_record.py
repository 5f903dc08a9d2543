"""Generated from KRaftVersionRecord.json. Do not edit: the schema compiler makes it.

KRaftVersionRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_HH = struct.Struct(">hh")


class KRaftVersionRecord(Message, gc=False, kw_only=True):
    """Control record in the metadata log: which version of the quorum's own rules is in force.

    version: Version of this record's form.
    kraft_version: Level of the feature kraft.version; from 1 on the voters can change while the quorum runs.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    version: int = 0  # int16, versions 0+
    kraft_version: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _HH.pack(self.version, self.kraft_version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[KRaftVersionRecord, int]:
        self = KRaftVersionRecord()
        self.version, self.kraft_version = _HH.unpack_from(data, at)
        at += 4
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
