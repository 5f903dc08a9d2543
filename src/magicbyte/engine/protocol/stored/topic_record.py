"""Generated from TopicRecord.json. Do not edit: the schema compiler makes it.

TopicRecord: version 0, flexible 0+.
"""

from __future__ import annotations

from uuid import UUID

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_string,
    read_unknown_tags,
    read_uuid,
    write_string,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer


class TopicRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a topic was created.

    name: Name of the topic.
    topic_id: Random id, which differs from that of an earlier topic of the same name.
    """

    API_KEY = 2
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    name: str = ""  # string, versions 0+
    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.name, True, "name")
        write_uuid(buffer, self.topic_id)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[TopicRecord, int]:
        self = TopicRecord()
        self.name, at = read_string(data, at, True, "name")
        self.topic_id, at = read_uuid(data, at)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
