"""Generated from SnapshotHeaderRecord.json. Do not edit: the schema compiler makes it.

SnapshotHeaderRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_HQ = struct.Struct(">hq")


class SnapshotHeaderRecord(Message, gc=False, kw_only=True):
    """Control record that begins a snapshot.

    version: Version of this record's form.
    last_contained_log_timestamp: Timestamp of the last log record that the snapshot covers, in milliseconds since
        1970.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    version: int = 0  # int16, versions 0+
    last_contained_log_timestamp: int = 0  # int64, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _HQ.pack(self.version, self.last_contained_log_timestamp)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[SnapshotHeaderRecord, int]:
        self = SnapshotHeaderRecord()
        self.version, self.last_contained_log_timestamp = _HQ.unpack_from(data, at)
        at += 10
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
