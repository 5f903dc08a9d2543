"""Generated from FeatureLevelRecord.json. Do not edit: the schema compiler makes it.

FeatureLevelRecord: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_string, read_unknown_tags, write_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")


class FeatureLevelRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a feature of the cluster has a level.

    name: Name of the feature, such as metadata.version.
    feature_level: Its level; 0: the feature is off.
    """

    API_KEY = 12
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    name: str = ""  # string, versions 0+
    feature_level: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.name, True, "name")
        buffer += _H.pack(self.feature_level)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[FeatureLevelRecord, int]:
        self = FeatureLevelRecord()
        self.name, at = read_string(data, at, True, "name")
        (self.feature_level,) = _H.unpack_from(data, at)
        at += 2
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
