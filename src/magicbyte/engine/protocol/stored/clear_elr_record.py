"""Generated from ClearElrRecord.json. Do not edit: the schema compiler makes it.

ClearElrRecord: version 0, flexible 0+.
"""

from __future__ import annotations

from magicbyte.engine.protocol.fields import read_string, read_unknown_tags, write_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer


class ClearElrRecord(Message, gc=False, kw_only=True):
    """In the metadata log: partitions no longer have eligible leader replicas.

    topic_name: Name of the topic; empty: all topics.
    """

    API_KEY = 28
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    topic_name: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.topic_name, True, "topic_name")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ClearElrRecord, int]:
        self = ClearElrRecord()
        self.topic_name, at = read_string(data, at, True, "topic_name")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
