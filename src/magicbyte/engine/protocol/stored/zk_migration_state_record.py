"""Generated from ZkMigrationStateRecord.json. Do not edit: the schema compiler makes it.

ZkMigrationStateRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_B = struct.Struct(">b")


class ZkMigrationStateRecord(Message, gc=False, kw_only=True):
    """In the metadata log: how far the migration from ZooKeeper is.

    zk_migration_state: 0 none, 1 pre-migration, 2 migration, 3 post-migration.
    """

    API_KEY = 21
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    zk_migration_state: int = 0  # int8, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _B.pack(self.zk_migration_state)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ZkMigrationStateRecord, int]:
        self = ZkMigrationStateRecord()
        (self.zk_migration_state,) = _B.unpack_from(data, at)
        at += 1
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
